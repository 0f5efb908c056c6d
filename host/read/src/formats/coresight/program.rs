//! The code that was traced: which function has an address, in which address space, and which thread runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::lane::{FileOf, ProcessOf};
use kymo_coresight::Protocol;
use kymo_coresight::calls::{Place, Program};
use kymo_coresight::element::Context;
use kymo_coresight::memory::{Image, Images, Layout};
use kymo_event::Addr;
use kymo_symbols::Symbols;

/// Where an address means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Room {
    /// The machine has one program.
    Machine,
    /// The kernel.
    Kernel,
    /// A process, by its number.
    Process(u32),
}

/// A function that is new.
#[derive(Debug)]
pub(super) struct Definition {
    pub room: Room,
    /// Where it begins; `None` of what stands for code that is not there.
    pub address: Option<u64>,
    pub name: Option<Box<str>>,
}

/// The symbols of all images, read when they are first needed and shared by all sources.
pub(super) struct Binaries {
    /// The file of an image, by the image's name.
    read: Box<ReadImage>,
    known: Mutex<HashMap<String, Option<Arc<Binary>>>>,
}

/// Reads the file of an image.
type ReadImage = dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync;

/// An ELF file.
#[derive(Debug)]
struct Binary {
    layout: Layout,
    symbols: Symbols,
}

impl Binaries {
    pub fn new(read: impl Fn(&str) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        Binaries {
            read: Box::new(read),
            known: Mutex::default(),
        }
    }

    fn of(&self, image: &Image) -> Option<Arc<Binary>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&image.name) {
            return known.clone();
        }
        let binary = (self.read)(&image.name).and_then(|file| {
            let layout = Layout::of_elf(&file)?;
            let symbols = Symbols::from_elf(file).ok()?;
            Some(Arc::new(Binary { layout, symbols }))
        });
        known.insert(image.name.clone(), binary.clone());
        binary
    }
}

/// How a source tells which thread runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    pub protocol: Protocol,
    /// The thread that the whole buffer is of.
    pub always: Option<u32>,
}

/// No thread is known.
pub(super) const NO_THREAD: u32 = u32::MAX;

/// What one source's core ran.
pub(super) struct Code<'a> {
    pub images: &'a Images,
    pub binaries: &'a Binaries,
    pub threads: Option<Threads>,
    /// The process of each thread, where the trace is of processes.
    process_of: Option<&'a ProcessOf>,
    functions: HashMap<(Room, u64), u32>,
    unknown: HashMap<(Room, u64), u32>,
    missing: HashMap<(Room, Option<String>), u32>,
    /// The name of the file that has an address.
    file_of: &'a FileOf,
    count: u32,
    /// Functions that nobody was told of.
    pub new: Vec<Definition>,
}

impl<'a> Code<'a> {
    pub fn new(
        images: &'a Images,
        binaries: &'a Binaries,
        process_of: Option<&'a ProcessOf>,
        file_of: &'a FileOf,
    ) -> Self {
        Code {
            images,
            binaries,
            threads: None,
            process_of,
            functions: HashMap::new(),
            unknown: HashMap::new(),
            missing: HashMap::new(),
            file_of,
            count: 0,
            new: Vec::new(),
        }
    }

    fn room(&self, context: &Context, address: u64) -> Room {
        let Some(process_of) = self.process_of else {
            return Room::Machine;
        };
        // Linux has the kernel in the upper half of 64 bits, and above 3 GiB of 32.
        let is_kernel = address >> 63 == 1 || address >> 32 == 0 && address >= 0xc000_0000;
        match self.tid(context) {
            _ if is_kernel => Room::Kernel,
            Some(thread) => Room::Process(process_of(thread)),
            None => Room::Process(NO_THREAD),
        }
    }

    fn tid(&self, context: &Context) -> Option<u32> {
        let threads = self.threads.as_ref()?;
        // Context IDs may be numbers of another namespace than the recording's.
        threads
            .always
            .or_else(|| threads.protocol.thread_of(context))
    }

    /// What stands for all code of a file that is not there.
    fn missing(&mut self, context: &Context, address: u64) -> Place {
        let room = self.room(context, address);
        let file = (self.file_of)(room, address);
        let key = (room, file.clone());
        let function = match self.missing.get(&key) {
            Some(known) => *known,
            None => {
                let name = match &file {
                    Some(file) => format!("[no code of {file}]"),
                    None => "[no code]".to_owned(),
                };
                let id = self.define(Definition {
                    room,
                    address: None,
                    name: Some(name.into()),
                });
                self.missing.insert(key, id);
                id
            }
        };
        Place {
            function,
            is_start: false,
        }
    }

    fn define(&mut self, definition: Definition) -> u32 {
        self.new.push(definition);
        self.count += 1;
        self.count - 1
    }
}

impl Program for Code<'_> {
    fn function(&mut self, context: &Context, address: u64) -> Option<Place> {
        let Some(image) = self.images.find(context.space(), address) else {
            return Some(self.missing(context, address));
        };
        let binary = self.binaries.of(image)?;
        let offset = image.file_offset + (address - image.address);
        let linked = binary.layout.address_of(offset)?;
        let mut function = binary.symbols.function_at(Addr(linked))?;
        // What a compiler moves out of a function is still of it.
        if let Some(parent) = function.raw_name().strip_suffix(".cold")
            && let [only] = binary.symbols.by_name(parent).as_slice()
        {
            function = *only;
        }
        let start = address
            .wrapping_sub(linked)
            .wrapping_add(function.address().0);
        let room = self.room(context, address);
        let name = function.name();
        let function = match self.functions.get(&(room, start)) {
            Some(known) => *known,
            None => {
                let id = self.define(Definition {
                    room,
                    address: Some(start),
                    name: Some(name.into()),
                });
                self.functions.insert((room, start), id);
                id
            }
        };
        Some(Place {
            function,
            is_start: start == address,
        })
    }

    fn unknown(&mut self, context: &Context, address: u64) -> u32 {
        let room = self.room(context, address);
        if let Some(known) = self.unknown.get(&(room, address)) {
            return *known;
        }
        let id = self.define(Definition {
            room,
            address: Some(address),
            name: None,
        });
        self.unknown.insert((room, address), id);
        id
    }

    fn is_unknown(&self, context: &Context, address: u64) -> bool {
        self.unknown
            .contains_key(&(self.room(context, address), address))
    }

    fn thread(&mut self, context: &Context) -> u32 {
        self.tid(context).unwrap_or(NO_THREAD)
    }
}
