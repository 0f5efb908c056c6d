//! Symbols of several files behind one interface.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use kymo_event::Addr;

use crate::error::Error;
use crate::image::{Base, File, Image, Place};
use crate::jumps::UnmarkedJumps;
use crate::lines::{DebugInfo, Frame, Location, Row};
use crate::table::Entry;
use crate::{ElfError, TextError, elf, name, similar, text};

/// Functions, lines and strings of a program, by run-time address.
///
/// If several files are [merged](Self::merge), the first that knows an address or name provides the answer. All methods
/// can be called from several threads at once.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Append-only: results can be kept while files of other processes are added.
    images: boxcar::Vec<Image>,
    /// Places whose files are known to be missing.
    absent: boxcar::Vec<Place>,
}

/// The same files, which are not read again.
impl Clone for Symbols {
    fn clone(&self) -> Self {
        Self {
            images: self.images().cloned().collect(),
            absent: self.absent.iter().map(|(_, place)| *place).collect(),
        }
    }
}

/// A function.
///
/// Several symbols at one address are one function, named by the best of them: a function symbol before a label, global
/// before weak before local, with a size before without, then fewer leading underscores, then the shorter name, then
/// alphabetical order. Symbols of the linker script (`_stext`) come last.
#[derive(Clone, Copy, Debug)]
pub struct Function<'s> {
    image: &'s Image,
    entry: &'s Entry,
}

impl<'s> Function<'s> {
    /// Its start address, at run time.
    pub fn address(&self) -> Addr {
        Addr(self.image.run_time(self.entry.start))
    }

    /// The value of a pointer to it: its address, with bit 0 set if its code is Thumb code. `None` if unknown: the `nm`
    /// of Arm's tools, for example, clears the bit.
    pub fn pointer(&self) -> Option<Addr> {
        self.image.pointer(self.entry.start).map(Addr)
    }

    /// Its size in bytes, if the file states it.
    pub fn size(&self) -> Option<u64> {
        (self.entry.size > 0).then_some(self.entry.size)
    }

    /// Its end address: from its size, or, without that, the start of the next function.
    pub fn end(&self) -> Addr {
        let bytes = self.entry.end.saturating_sub(self.entry.start);
        Addr(self.address().0.saturating_add(bytes))
    }

    /// Its demangled source name.
    pub fn name(&self) -> &'s str {
        self.entry.name()
    }

    /// Its linker name.
    pub fn raw_name(&self) -> &'s str {
        &self.entry.name
    }

    /// Its source location: the line of its declaration if the debug information has it, else that of its first
    /// instruction.
    pub fn location(&self) -> Option<Location> {
        let lines = self.image.file.lines.as_ref();
        let declared = lines.and_then(|lines| lines.declaration(self.entry.start));
        declared.or_else(|| self.image.location(self.address().0))
    }
}

impl Symbols {
    /// Creates an empty set: every lookup returns `None`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a file, either an ELF file or any list of symbols that [`from_text`](Self::from_text) supports; the
    /// content determines which.
    ///
    /// # Errors
    /// When it cannot be read, or is neither.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let data = crate::read_file(path, crate::LARGEST_FILE).map_err(io)?;
        if data.starts_with(&elf::MAGIC) {
            let elf_file = |source| Error::ElfFile {
                path: path.to_owned(),
                source,
            };
            return Self::from_elf(data).map_err(elf_file);
        }
        let text_file = |source| Error::TextFile {
            path: path.to_owned(),
            source,
        };
        let text = std::str::from_utf8(&data).map_err(|error| {
            text_file(TextError::NotText {
                offset: error.valid_up_to(),
            })
        })?;
        Self::from_text(text).map_err(text_file)
    }

    /// Parses an ELF file: an executable or a shared object, for any processor. Without a symbol table it still
    /// provides lines, strings and the build id.
    ///
    /// # Errors
    /// When it is not an ELF file, not linked, or damaged.
    pub fn from_elf(data: impl Into<Arc<[u8]>>) -> Result<Self, ElfError> {
        Ok(elf::read(data.into())?.into())
    }

    /// Parses a list of symbols: the output of `nm` (also with `-S`, `-l`, `-C`, `-P`), a map of GNU ld, `System.map`
    /// or `/proc/kallsyms`.
    ///
    /// # Errors
    /// When it contains no symbol.
    pub fn from_text(text: &str) -> Result<Self, TextError> {
        Ok(text::read(text)?.into())
    }

    /// Appends the symbols of `other`, with lower priority.
    ///
    /// It can be called during lookups: earlier results remain valid.
    pub fn merge(&self, other: Self) {
        for image in other.images {
            self.images.push(image);
        }
    }

    /// The same files, not read again, for a single place, with their text at this address
    /// ([`set_text_base`](Self::set_text_base)).
    pub fn placed(&self, place: Place, start: Addr) -> Self {
        let images = self.images.iter().map(|(_, image)| Image {
            bias: image.file.bias_at(start).unwrap_or(0),
            place: Some(place),
            file: Arc::clone(&image.file),
        });
        Self {
            images: images.collect(),
            ..Self::default()
        }
    }

    /// Records that the file of this place, known by its build id, is missing: programs that apply to the whole trace
    /// are different ones, and are not used there.
    pub fn set_absent(&self, place: Place) {
        self.absent.push(place);
    }

    /// Whether there are symbols for this place only.
    pub fn knows(&self, place: Place) -> bool {
        self.images().any(|image| image.place == Some(place))
    }

    fn images(&self) -> impl Iterator<Item = &Image> {
        self.images.iter().map(|(_, image)| image)
    }

    /// The files that may contain an address in a place, the best one first: those of the mapping or, if that is
    /// unknown, of the space, then those that apply to the whole trace.
    fn images_at(&self, place: Place) -> impl Iterator<Item = &Image> {
        let is_near = move |image: &&Image| {
            image.place.is_some_and(|known| {
                known.space == place.space
                    && (place.mapping.is_none()
                        || known.mapping.is_none()
                        || known.mapping == place.mapping)
            })
        };
        // (An unknown mapping may be any of the space.)
        let is_absent = self.absent.iter().any(|(_, known)| {
            known.space == place.space
                && (place.mapping.is_none() || known.mapping == place.mapping)
        });
        let is_other = move |image: &Image| is_absent && image.file.build_id.is_some();
        let everywhere = self.images().filter(|image| image.place.is_none());
        let everywhere = everywhere.filter(move |image| !is_other(image));
        self.images().filter(is_near).chain(everywhere)
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Sets the run-time address of the program's text ([`TraceInfo::text_base`](kymo_event::TraceInfo::text_base)).
    ///
    /// It affects position-independent programs, and is compared with their `__executable_start` (or, without that
    /// symbol, first loaded byte); of several such programs, the first is moved. Programs linked for fixed addresses
    /// are not moved.
    ///
    /// Returns whether the address is possible: programs are loaded at whole pages, so any other difference means
    /// another program, which is not moved.
    pub fn set_text_base(&mut self, run_time: Addr) -> bool {
        let is_movable = |image: &Image| matches!(image.file.base, Base::Movable(_));
        let movable = self.images().position(is_movable);
        let Some(image) = movable.and_then(|index| self.images.get_mut(index)) else {
            return true;
        };
        let bias = image.file.bias_at(run_time);
        image.bias = bias.unwrap_or(0);
        bias.is_some()
    }

    /// The build id of the first file that has one.
    pub fn build_id(&self) -> Option<&[u8]> {
        self.images()
            .find_map(|image| image.file.build_id.as_deref())
    }

    /// State of the debug information: the best of all files.
    pub fn debug_info(&self) -> DebugInfo {
        let mut best = DebugInfo::Missing;
        for lines in self.images().filter_map(|image| image.file.lines.as_ref()) {
            match lines.state() {
                DebugInfo::Present => return DebugInfo::Present,
                DebugInfo::Missing => {}
                worse => best = worse,
            }
        }
        best
    }

    /// Unrecorded calls of `longjmp`, from the first file that has any. They can be found in ELF files with a symbol
    /// table.
    pub fn unmarked_jumps(&self) -> Option<&UnmarkedJumps> {
        self.images()
            .find_map(|image| image.file.unmarked_jumps.as_ref())
    }

    /// By what the program changes the stack of a thread for another one, which no trace tells (`swapcontext`), of the first file
    /// for which that is so. It is found in ELF files with a symbol table.
    pub fn switches_stacks(&self) -> Option<&'static str> {
        self.images().find_map(|image| image.file.switches_stacks)
    }

    /// The function that contains an address.
    pub fn function_at(&self, address: Addr) -> Option<Function<'_>> {
        self.images().find_map(|image| function(image, address))
    }

    /// The function that contains an address in a place.
    pub fn function_in(&self, place: Place, address: Addr) -> Option<Function<'_>> {
        self.images_at(place)
            .find_map(|image| function(image, address))
    }

    /// The file and line of an address of code in a place, as [`location`](Self::location).
    pub fn location_in(&self, place: Place, address: Addr) -> Option<Location> {
        self.images_at(place)
            .find_map(|image| image.location(address.0))
    }

    /// Looks up a function of a trace by its address.
    pub fn function_of(&self, function: &kymo_event::Function) -> Option<Function<'_>> {
        self.function_in(place(function), function.address?)
    }

    /// The name of a function of a trace: from the symbols if they contain its address, else from the trace; `None` if
    /// neither has one.
    pub fn name_of<'a>(&'a self, function: &'a kymo_event::Function) -> Option<&'a str> {
        let known = self.function_of(function);
        known.map(|known| known.name()).or(function.name.as_deref())
    }

    /// The code range of a function of a trace, if its address is known: from the symbols if they contain it, else from
    /// the trace. If its size is unknown, the first byte.
    pub fn code_of(&self, function: &kymo_event::Function) -> Option<Range<u64>> {
        let Addr(start) = function.address?;
        let known = self.function_of(function).map(|known| known.end().0);
        let reported = function.bytes.map(|bytes| start.saturating_add(bytes));
        let end = known.or(reported).unwrap_or(start);
        Some(start..end.max(start.saturating_add(1)))
    }

    /// The file and line of the beginning of a function of a trace.
    pub fn location_of(&self, function: &kymo_event::Function) -> Option<Location> {
        self.location_in(place(function), function.address?)
    }

    /// The file and line of an address of code. A call site is the address *after* the call: pass the address before
    /// it.
    pub fn location(&self, address: Addr) -> Option<Location> {
        self.images().find_map(|image| image.location(address.0))
    }

    /// The lines of the code in an address range, sorted by address, from the first file that has any.
    pub fn rows(&self, start: Addr, end: Addr) -> Vec<Row> {
        for image in self.images() {
            let Some(lines) = &image.file.lines else {
                continue;
            };
            let mut rows = lines.rows(image.link_time(start.0), image.link_time(end.0));
            for row in &mut rows {
                row.start = image.run_time(row.start);
                row.end = image.run_time(row.end);
            }
            if !rows.is_empty() {
                return rows;
            }
        }
        Vec::new()
    }

    /// The functions at an address, the innermost inlined one first, the enclosing real function last. Without debug
    /// information there is at most the latter.
    pub fn frames(&self, address: Addr) -> Vec<Frame> {
        for image in self.images() {
            let code = image.code(address.0);
            let frames = image.file.lines.as_ref().map(|lines| lines.frames(code));
            if let Some(frames) = frames.filter(|f| f.iter().any(|f| f.function.is_some())) {
                return frames;
            }
        }
        let function = self.function_at(address);
        let frame = function.map(|function| Frame {
            function: Some(function.name().to_owned()),
            location: self.location(address),
        });
        frame.into_iter().collect()
    }

    /// All functions, file by file, in address order.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        self.images().flat_map(|image| {
            image
                .file
                .table
                .entries()
                .iter()
                .map(move |entry| Function { image, entry })
        })
    }

    /// The functions that a name may refer to, by address: those with this linker name; if there are none, with this
    /// source name; if there are none, with this source name without parameters, including copies specialized by the
    /// compiler (`f.constprop.0` for `f`); if there are none, with this last part of a path (`f` for `ns::f`).
    pub fn by_name(&self, wanted: &str) -> Vec<Function<'_>> {
        let raw = self.images().flat_map(|image| {
            let named = image.file.table.named(wanted);
            named.map(move |entry| Function { image, entry })
        });
        let raw = by_address(raw);
        if !raw.is_empty() || wanted.is_empty() {
            return raw;
        }
        let whole = self.matching(|full| full == wanted);
        if !whole.is_empty() {
            return whole;
        }
        let bare = self.matching(|full| {
            [name::without_parameters(full), name::without_clone(full)].contains(&wanted)
        });
        if !bare.is_empty() {
            return bare;
        }
        self.matching(|full| {
            let path = name::without_parameters(full);
            path.strip_suffix(wanted)
                .is_some_and(|rest| rest.ends_with("::"))
        })
    }

    /// The functions with a matching source name, by address.
    fn matching(&self, fits: impl Fn(&str) -> bool) -> Vec<Function<'_>> {
        let names = self.images().flat_map(|image| {
            image
                .file
                .table
                .names()
                .map(move |(raw, entry)| (raw, Function { image, entry }))
        });
        let matching = names.filter(|(raw, function)| {
            // Source names of aliases are rarely needed, so they are not cached.
            if *raw == function.raw_name() {
                fits(function.name())
            } else {
                fits(&name::demangle(raw))
            }
        });
        by_address(matching.map(|(_, function)| function))
    }

    /// Similar names for one that does not exist, best first, at most 5.
    pub fn similar(&self, wanted: &str) -> Vec<String> {
        let names = self.functions().map(|function| {
            let name = name::without_clone(name::without_parameters(function.name()));
            // A name without a path is compared with the last parts of paths.
            if wanted.contains("::") {
                name
            } else {
                name::last_part(name)
            }
        });
        similar::similar(wanted, names, 5)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    /// The sections in which programs declare their own events (`kymo_event.h`), each with its byte order: whether it
    /// is big-endian.
    pub fn declared_events(&self) -> impl Iterator<Item = (&[u8], bool)> {
        self.images().filter_map(|image| {
            let (range, big_endian) = image.file.declared.clone()?;
            Some((image.file.data.get(range)?, big_endian))
        })
    }

    /// The constant string at an address, such as the name of a marker. `None` if memory is not constant or not in the
    /// file, or if no end is found within 4 KiB. Invalid UTF-8 is replaced.
    pub fn string_at(&self, address: Addr) -> Option<String> {
        const LONGEST: usize = 4096;
        let bytes = self
            .images()
            .find_map(|image| image.constant_bytes(address.0))?;
        let end = bytes.iter().take(LONGEST).position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }
}

/// The function of a file that contains a run-time address.
fn function(image: &Image, address: Addr) -> Option<Function<'_>> {
    let entry = image.file.table.at(image.code(address.0))?;
    Some(Function { image, entry })
}

/// The place of a function of a trace.
const fn place(function: &kymo_event::Function) -> Place {
    Place {
        space: function.space,
        mapping: function.mapping,
    }
}

impl From<File> for Symbols {
    fn from(file: File) -> Self {
        Self {
            images: [Image::from(file)].into_iter().collect(),
            ..Self::default()
        }
    }
}

/// Removes duplicate functions and sorts by address; of several files, the first has priority.
fn by_address<'s>(functions: impl Iterator<Item = Function<'s>>) -> Vec<Function<'s>> {
    let mut found = BTreeMap::new();
    for function in functions {
        found.entry(function.address()).or_insert(function);
    }
    found.into_values().collect()
}
