//! Contents of an ELF file besides functions: notes, addresses of variables, and initial memory. For readers of memory
//! dumps.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use object::{
    Architecture, Endianness, File, Object, ObjectSection, ObjectSymbol, Section, Symbol,
    SymbolKind,
};

use crate::elf::{check_magic, is_code, is_in_memory, is_writable};
use crate::error::{ElfError, Error};

/// A linked bare-metal program, which runs at its link-time addresses.
#[derive(Clone, Debug)]
pub struct Program {
    data: Arc<[u8]>,
    big_endian: bool,
    arm: bool,
    /// Addresses of symbols that are not functions.
    variables: HashMap<Box<str>, u64>,
    /// Sections by name, as ranges of the file.
    sections: HashMap<Box<str>, Range<usize>>,
    /// Loaded parts of the file, with their addresses.
    loaded: Vec<Loaded>,
    /// Writable memory.
    writable: Vec<Range<u64>>,
    /// Memory of its code.
    code: Vec<Range<u64>>,
}

/// Bytes of a file that are loaded into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Their address in memory.
    pub address: u64,
    /// Their range in the file.
    pub file: Range<usize>,
}

impl Program {
    /// Reads an ELF file.
    ///
    /// # Errors
    /// When it cannot be read, is not an ELF file, or is damaged.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let data = crate::read_file(path, crate::LARGEST_FILE).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })?;
        Self::from_elf(data).map_err(|source| Error::ElfFile {
            path: path.to_owned(),
            source,
        })
    }

    /// Parses the contents of an ELF file.
    ///
    /// # Errors
    /// When it is not an ELF file, or damaged.
    pub fn from_elf(data: impl Into<Arc<[u8]>>) -> Result<Self, ElfError> {
        let data = data.into();
        check_magic(&data)?;
        let file = parse(&data)?;
        let variable = |symbol: Symbol<'_, '_>| {
            let is_one = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Unknown)
                && symbol.is_definition();
            let name = symbol.name().ok().filter(|name| is_one && !name.is_empty());
            name.map(|name| (name.into(), symbol.address()))
        };
        let in_file = |section: &Section<'_, '_>| {
            let (offset, size) = section.file_range()?;
            range(&data, offset, size)
        };
        let big_endian = file.endianness() == Endianness::Big;
        let arm = file.architecture() == Architecture::Arm;
        let variables = file.symbols().filter_map(variable).collect();
        let sections = file.sections();
        let sections = sections
            .filter_map(|section| Some((section.name().ok()?.into(), in_file(&section)?)))
            .collect();
        // By sections: a segment may have the load address rather than the run-time address.
        let loaded = file
            .sections()
            .filter(is_in_memory)
            .filter_map(|section| {
                Some(Loaded {
                    address: section.address(),
                    file: in_file(&section)?,
                })
            })
            .collect();
        let memory = |wanted: &dyn Fn(&Section<'_, '_>) -> bool| {
            let sections = file.sections();
            let sections = sections.filter(|section| is_in_memory(section) && wanted(section));
            let range = |section: Section<'_, '_>| {
                section.address()..section.address().saturating_add(section.size())
            };
            sections.map(range).collect()
        };
        Ok(Self {
            big_endian,
            arm,
            writable: joined(memory(&|section| is_writable(section))),
            code: memory(&|section| is_code(section)),
            variables,
            sections,
            loaded,
            data,
        })
    }

    /// Whether it is big-endian.
    pub const fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Whether bit 0 of a code address tells the instruction set, as on 32-bit Arm.
    pub const fn is_arm(&self) -> bool {
        self.arm
    }

    /// Its writable memory, as far as sections cover it: sorted, with close ranges merged.
    pub fn writable(&self) -> &[Range<u64>] {
        &self.writable
    }

    /// Whether an address is in the program's code, as far as sections cover it.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    /// The whole file.
    pub(crate) fn file(&self) -> &[u8] {
        &self.data
    }

    /// The content of a section; `None` if there is no such section, or it has no content.
    pub fn section(&self, name: &str) -> Option<&[u8]> {
        self.data.get(self.sections.get(name)?.clone())
    }

    /// The address of a variable.
    pub fn variable(&self, name: &str) -> Option<u64> {
        self.variables.get(name).copied()
    }

    /// Initial content of memory; `None` if the file does not contain it.
    pub fn bytes_at(&self, address: u64, length: usize) -> Option<&[u8]> {
        self.loaded.iter().find_map(|loaded| {
            let skip = usize::try_from(address.checked_sub(loaded.address)?).ok()?;
            let end = skip.checked_add(length)?;
            self.data.get(loaded.file.clone())?.get(skip..end)
        })
    }
}

/// Sorts ranges, removes empty ones, and merges those with gaps smaller than this.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    const CLOSE: u64 = 64;
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(CLOSE) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

pub(crate) fn parse(data: &[u8]) -> Result<File<'_>, ElfError> {
    File::parse(data).map_err(|error| ElfError::Damaged {
        bytes: data.len(),
        message: error.to_string(),
    })
}

/// A range of a file, if the file contains it.
pub(crate) fn range(data: &[u8], offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (start <= data.len()).then(|| start..end.min(data.len()))
}
