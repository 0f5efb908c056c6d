//! One symbol file, and its place in memory.

use std::ops::Range;
use std::sync::Arc;

use kymo_event::{Addr, SpaceId};

use crate::jumps::UnmarkedJumps;
use crate::lines::{Lines, Location};
use crate::table::Table;

/// Place of a file that only one part of a trace has: a process, a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The space.
    pub space: SpaceId,
    /// Index of its [mapping](kymo_event::Space::mappings); `None` for the program of a space without mappings.
    pub mapping: Option<u32>,
}

/// A file loaded in memory. Several processes can have the same file, each at another address.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub file: Arc<File>,
    /// Difference of run-time and link-time addresses, modulo 2^64.
    pub bias: u64,
    /// Its place; `None` if it applies to the whole trace.
    pub place: Option<Place>,
}

/// Contents of one program, at its link-time addresses.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Its functions.
    pub table: Table,
    /// Files and lines, for an ELF file.
    pub lines: Option<Lines>,
    /// Locations in a list of symbols (`nm -l`), by address.
    pub listed: Vec<(u64, Location)>,
    /// The build id.
    pub build_id: Option<Vec<u8>>,
    /// Start of the text, and whether the program may be loaded elsewhere.
    pub base: Base,
    /// Whether bit 0 of a code address is the Thumb bit.
    pub thumb: bool,
    /// The sorted link-time addresses of functions with Arm code, in a program that also has Thumb code.
    pub not_thumb: Vec<u64>,
    /// Calls of `longjmp` that the trace does not record.
    pub unmarked_jumps: Option<UnmarkedJumps>,
    /// By what it changes its stack for another one.
    pub switches_stacks: Option<&'static str>,
    /// Constant memory with content in the file.
    pub constants: Vec<Constant>,
    /// Range of the program's own event declarations in the file, and whether it is big-endian.
    pub declared: Option<(Range<usize>, bool)>,
    /// The file's content, as far as it is needed.
    pub data: Arc<[u8]>,
}

/// The link-time address that corresponds to the target's `text_base`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Base {
    /// The program runs at its link-time addresses.
    #[default]
    Fixed,
    /// The program is position-independent; this is its `__executable_start` or, without that symbol, the lowest loaded
    /// address.
    Movable(u64),
}

/// A read-only range of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    /// Its link-time address.
    pub address: u64,
    /// Its range in the file.
    pub file: Range<usize>,
}

impl File {
    /// The bias if its text starts at this run-time address; 0 for programs linked for fixed addresses. `None` if that
    /// is impossible: files are loaded at whole pages.
    pub fn bias_at(&self, start: Addr) -> Option<u64> {
        const PAGE: u64 = 4096;
        let Base::Movable(base) = self.base else {
            return Some(0);
        };
        let bias = start.0.wrapping_sub(base);
        bias.is_multiple_of(PAGE).then_some(bias)
    }
}

impl From<File> for Image {
    /// Places it at its link-time addresses.
    fn from(file: File) -> Self {
        Self {
            file: Arc::new(file),
            bias: 0,
            place: None,
        }
    }
}

impl Image {
    /// Converts a run-time address to a link-time address.
    pub fn link_time(&self, run_time: u64) -> u64 {
        run_time.wrapping_sub(self.bias)
    }

    /// Converts a link-time address to a run-time address.
    pub fn run_time(&self, link_time: u64) -> u64 {
        link_time.wrapping_add(self.bias)
    }

    /// Converts an address of code to a link-time address, without its mode bit.
    pub fn code(&self, run_time: u64) -> u64 {
        let address = self.link_time(run_time);
        if self.file.thumb {
            address & !1
        } else {
            address
        }
    }

    /// The run-time value of a pointer to the function at this link-time address, if the file tells. A list of symbols
    /// without Thumb bits may be of a program that has none, or from a tool that clears them.
    pub fn pointer(&self, function: u64) -> Option<u64> {
        let thumb = self.file.thumb && self.file.not_thumb.binary_search(&function).is_err();
        let reports = self.file.thumb || self.file.lines.is_some();
        reports.then_some(self.run_time(function) | u64::from(thumb))
    }

    /// The file and line of a run-time address of code.
    pub fn location(&self, run_time: u64) -> Option<Location> {
        let address = self.code(run_time);
        let from_lines = self
            .file
            .lines
            .as_ref()
            .and_then(|lines| lines.location(address));
        from_lines.or_else(|| {
            let index = self
                .file
                .listed
                .binary_search_by_key(&address, |(at, _)| *at)
                .ok()?;
            Some(self.file.listed.get(index)?.1.clone())
        })
    }

    /// The bytes from a run-time address to the end of the constant range that holds it.
    pub fn constant_bytes(&self, run_time: u64) -> Option<&[u8]> {
        let address = self.link_time(run_time);
        self.file.constants.iter().find_map(|constant| {
            let skip = usize::try_from(address.checked_sub(constant.address)?).ok()?;
            let bytes = self.file.data.get(constant.file.clone())?.get(skip..)?;
            (!bytes.is_empty()).then_some(bytes)
        })
    }
}
