//! Resolves addresses of a hardware trace to functions and lines, with the symbols of the files behind its images.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use kymo_coresight::fit::ImageId;
use kymo_coresight::input::Buffer;
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::{Image, Images, Layout, Memory, MemorySpace, Scene};
use kymo_event::{Addr, Pattern};
use kymo_read::coresight::GivenSymbols;
use kymo_symbols::{Location, Symbols};

use super::Opened;

/// The files behind images, read when first needed.
#[derive(Debug)]
pub struct Programs {
    /// Keyed by name and memory address of the contents, because files of one name can differ.
    files: HashMap<(String, usize), Rc<Program>>,
    /// Symbol files given beside the images.
    given: GivenSymbols,
    /// The kernel's own symbols, at run-time addresses.
    kernel: Symbols,
}

/// A file with its load address and symbols, as far as available.
#[derive(Debug)]
pub struct Program {
    /// Its path in the trace.
    pub path: String,
    /// Its name without directories.
    pub name: String,
    /// Its link layout, if it is an ELF file.
    pub layout: Option<Layout>,
    /// Its symbols; empty if it is no ELF file.
    pub symbols: Symbols,
    /// Its bytes; empty if there is no file.
    pub bytes: Arc<[u8]>,
}

/// An address of an image.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub program: Rc<Program>,
    /// The image.
    pub image: ImageId,
    /// The link address; without an ELF file, the offset in the file.
    pub address: u64,
}

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Within {
    /// Its name.
    pub function: Rc<str>,
    /// Bytes from its beginning.
    pub offset: u64,
}

impl Programs {
    /// The files of an input, with the symbols that were given for it.
    pub fn new(opened: &mut Opened) -> Self {
        let listed = opened
            .kernel_symbols
            .as_deref()
            .map(String::from_utf8_lossy);
        let kernel = listed.and_then(|text| Symbols::from_text(&text).ok());
        Programs {
            files: HashMap::new(),
            given: std::mem::take(&mut opened.given),
            kernel: kernel.unwrap_or_default(),
        }
    }

    /// Symbols at run-time addresses of an image, or, for `None`, of code without an image.
    fn at(&self, image: Option<ImageId>) -> impl Iterator<Item = &Symbols> {
        self.given.at(image).chain([&self.kernel])
    }

    /// The file of an image.
    fn program(&mut self, image: &Image) -> Rc<Program> {
        let bytes = Arc::clone(image.bytes.file());
        let (path, key) = (&image.name, (image.name.clone(), bytes.as_ptr().addr()));
        if let Some(known) = self.files.get(&key) {
            return Rc::clone(known);
        }
        let mut layout = Layout::of_elf(&bytes);
        let symbols = self.given.linked(image);
        if let Some(layout) = &mut layout {
            self.given.complete(image, layout);
            symbols.merge(Symbols::from_elf(Arc::clone(&bytes)).unwrap_or_default());
        }
        let name = Path::new(path).file_name();
        let program = Rc::new(Program {
            path: path.clone(),
            name: name.map_or(path.clone(), |name| name.to_string_lossy().into_owned()),
            layout,
            symbols,
            bytes,
        });
        self.files.insert(key, Rc::clone(&program));
        program
    }

    /// The file and the link address for an address. `None` outside of images.
    pub fn place(&mut self, code: Scene<'_>, address: u64) -> Option<Place> {
        let image = code.find(MemorySpace::ANY, address)?;
        let offset = image.file_offset.wrapping_add(address - image.address);
        let program = self.program(image);
        let linked = program
            .layout
            .as_ref()
            .and_then(|layout| layout.address_of(offset));
        Some(Place {
            program,
            image: image.into(),
            address: linked.unwrap_or(offset),
        })
    }

    /// The function at an address.
    pub fn function(&self, place: Option<&Place>, address: u64) -> Option<Within> {
        let own = place.and_then(|place| {
            let symbols = &place.program.symbols;
            Some((symbols.function_at(Addr(place.address))?, place.address))
        });
        let (function, at) = match own {
            Some(own) => own,
            None => {
                let mut symbols = self.at(place.map(|place| place.image));
                let function = symbols.find_map(|symbols| symbols.function_at(Addr(address)))?;
                (function, address)
            }
        };
        Some(Within {
            function: function.name().into(),
            offset: at.wrapping_sub(function.address().0),
        })
    }

    /// The line of the source at an address.
    pub fn location(&self, place: Option<&Place>, address: u64) -> Option<Location> {
        let own = place.and_then(|place| place.program.symbols.location(Addr(place.address)));
        own.or_else(|| {
            let mut symbols = self.at(place.map(|place| place.image));
            symbols.find_map(|symbols| symbols.location(Addr(address)))
        })
    }

    /// The run-time addresses of the functions that match a pattern, each with its file.
    pub fn functions(
        &mut self,
        buffers: &[Buffer],
        wanted: &str,
    ) -> Vec<(Range<u64>, Option<String>)> {
        let found = self.named(buffers, wanted).into_iter();
        found
            .map(|function| {
                let file = function.program.map(|program| program.path.clone());
                (function.start..function.end, file)
            })
            .collect()
    }

    /// The functions that match a name or a pattern, in address order.
    pub fn named(&mut self, buffers: &[Buffer], wanted: &str) -> Vec<Loaded> {
        let mut found: BTreeMap<(u64, Option<String>), Loaded> = BTreeMap::new();
        let images = buffers.iter().flat_map(|buffer| &buffer.code);
        let images: BTreeMap<(u64, &str, usize), &Image> = images
            .flat_map(Memory::images)
            .map(|image| {
                let contents = image.bytes.file().as_ptr().addr();
                ((image.address, image.name.as_str(), contents), image)
            })
            .collect();
        for image in images.into_values() {
            let program = self.program(image);
            let Some(layout) = &program.layout else {
                continue;
            };
            for (name, range, isa) in chosen(&program.symbols, wanted) {
                let Some(offset) = layout.offset_of(range.start) else {
                    continue;
                };
                let within = offset.wrapping_sub(image.file_offset);
                if within < image.bytes.len() as u64 {
                    let start = image.address.wrapping_add(within);
                    let end = start.saturating_add(range.end - range.start);
                    let function = Loaded {
                        name,
                        start,
                        end,
                        linked: range.start,
                        isa: Some(program.isa_at(range.start, isa)),
                        program: Some(Rc::clone(&program)),
                        code: Images::from_iter([image.clone()]).into(),
                    };
                    found.insert((start, Some(program.path.clone())), function);
                }
            }
        }
        let listed = self.given.all().chain([&self.kernel]);
        for (symbols, (name, range, isa)) in listed.flat_map(|symbols| {
            let chosen = chosen(symbols, wanted).into_iter();
            chosen.map(move |chosen| (symbols, chosen))
        }) {
            let is_known = found.keys().any(|(start, _)| *start == range.start);
            if is_known {
                continue;
            }
            let images = buffers.iter().flat_map(|buffer| &buffer.code);
            let mut images = images.flat_map(Memory::images);
            let image = images
                .find(|image| range.start.wrapping_sub(image.address) < image.bytes.len() as u64);
            let mut applicable = self.at(image.map(ImageId::from));
            if !applicable.any(|known| std::ptr::eq(known, symbols)) {
                continue;
            }
            found.entry((range.start, None)).or_insert(Loaded {
                name,
                start: range.start,
                end: range.end,
                linked: range.start,
                isa,
                program: None,
                code: Images::from_iter(image.cloned()).into(),
            });
        }
        found.into_values().collect()
    }

    /// The total size of code in the images, in bytes.
    pub fn code_bytes(buffers: &[Buffer]) -> u64 {
        let images = buffers.iter().flat_map(|buffer| &buffer.code);
        let all: BTreeMap<_, u64> = images
            .flat_map(Memory::images)
            .map(|image| {
                let contents = image.bytes.file().as_ptr().addr();
                let place = (contents, image.address, image.file_offset);
                (place, image.bytes.len() as u64)
            })
            .collect();
        all.into_values().fold(0, u64::saturating_add)
    }

    /// Why symbol files that were given are not used.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        self.given.refusals()
    }

    /// Names of functions similar to `wanted`.
    pub fn similar(&self, wanted: &str) -> Vec<String> {
        let programs = self.files.values().map(|program| &program.symbols);
        let all = programs.chain(self.at(None));
        let mut similar: Vec<String> = all.flat_map(|symbols| symbols.similar(wanted)).collect();
        similar.sort();
        similar.dedup();
        similar.truncate(5);
        similar
    }
}

impl Program {
    /// The instruction set at a link address; `by_pointer` is that of a function's pointer.
    pub fn isa_at(&self, address: u64, by_pointer: Option<Isa>) -> Isa {
        let layout = self.layout.as_ref();
        let marked = layout.and_then(|layout| layout.isa_at(address).flatten());
        let isa = marked.or(by_pointer);
        isa.unwrap_or(layout.map_or(Isa::A64, Layout::isa))
    }
}

/// A function at its run-time address.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Its name.
    pub name: String,
    /// Address of its first byte.
    pub start: u64,
    /// Address behind its last byte.
    pub end: u64,
    /// Its link address.
    pub linked: u64,
    /// Its instruction set, if the file has it.
    pub isa: Option<Isa>,
    /// Its file; `None` for symbols given beside the images.
    pub program: Option<Rc<Program>>,
    /// The image that has its code.
    pub code: Memory,
}

/// The functions of a file that match a name or a pattern, with their link addresses, and T32 if their pointers have
/// the bit.
fn chosen(symbols: &Symbols, wanted: &str) -> Vec<(String, Range<u64>, Option<Isa>)> {
    let mut functions = symbols.by_name(wanted);
    if functions.is_empty() && wanted.contains(['*', '?']) {
        let pattern = Pattern::new(wanted);
        functions = symbols
            .functions()
            .filter(|function| pattern.matches(function.name()))
            .collect();
    }
    let ranges = functions.into_iter().map(|function| {
        let start = function.address().0;
        let end = function.end().0;
        let is_thumb = function.pointer().is_some_and(|pointer| pointer.0 & 1 == 1);
        let isa = is_thumb.then_some(Isa::T32);
        (function.name().to_owned(), start..end, isa)
    });
    ranges.collect()
}
