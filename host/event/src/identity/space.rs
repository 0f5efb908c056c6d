//! Address spaces: the scopes of addresses and names.

use super::Function;
use crate::{Addr, Time};

/// Scope of addresses, names and numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The kind of space.
    pub kind: SpaceKind,
    /// Display name where there are several spaces: the trace's path or the program's name.
    pub name: String,
    /// Other names of the process: earlier ones, or those after an exec.
    pub other_names: Vec<String>,
    /// The process id, if it is a process.
    pub pid: Option<u64>,
    /// The build id of its program, if the trace records it.
    pub build_id: Option<Vec<u8>>,
    /// The run-time address of the start of its program's text, if the trace records it.
    pub text_base: Option<Addr>,
    /// Its mapped files as far as the trace records them, in the order of the records.
    pub mappings: Vec<Mapping>,
}

impl Space {
    /// The mapping of one of its functions, as an index into [`mappings`](Self::mappings): the one that contained the
    /// function when it was first seen, or, if the trace recorded the mapping only later, the latest one that contains
    /// it.
    pub fn file_of(&self, function: &Function) -> Option<u32> {
        let latest = |address| {
            let mut mappings = self.mappings.iter();
            let found = mappings.rposition(|mapping| mapping.holds(address))?;
            u32::try_from(found).ok()
        };
        function.mapping.or_else(|| latest(function.address?))
    }
}

/// Kinds of [`Space`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// A single program that has the machine to itself.
    #[default]
    Firmware,
    /// A kernel and its modules.
    Kernel,
    /// A process.
    Process,
}

/// A file that was mapped into a [`Space`] for some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address. In Kymo recordings, a library loaded at addresses of an earlier one is shifted, with all
    /// addresses in it, by a multiple of 2^48.
    pub start: Addr,
    /// Size in bytes.
    pub bytes: u64,
    /// Offset in the file; 0 for a whole image.
    pub offset: u64,
    /// Path of the file.
    pub path: String,
    /// Its build id, if the trace records it.
    pub build_id: Option<Vec<u8>>,
    /// Time from which it is known to exist; `None` if it existed before the trace.
    pub since: Option<Time>,
}

impl Mapping {
    /// Whether it contains an address.
    pub const fn holds(&self, address: Addr) -> bool {
        address.0.wrapping_sub(self.start.0) < self.bytes
    }
}
