//! Address spaces: where addresses and names mean something.

use super::Function;
use crate::{Addr, Time};

/// Where addresses, names and numbers mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// What kind of space it is.
    pub kind: SpaceKind,
    /// What to call it where there are several: the trace's place, the program's name.
    pub name: String,
    /// What else a process was called: before, or behind an exec.
    pub other_names: Vec<String>,
    /// The process, where it is one.
    pub pid: Option<u64>,
    /// The build id of its program, if the trace tells.
    pub build_id: Option<Vec<u8>>,
    /// The run-time address of the start of its program's text, if the trace tells.
    pub text_base: Option<Addr>,
    /// What lies where in it, as far as the trace tells, in the order of its records.
    pub mappings: Vec<Mapping>,
}

impl Space {
    /// The file that a function of it lies in, by its index in [`mappings`](Self::mappings): the one that held it when it was
    /// met, or, where the trace told that only later, the latest that holds it.
    pub fn file_of(&self, function: &Function) -> Option<u32> {
        let latest = |address| {
            let mut mappings = self.mappings.iter();
            let found = mappings.rposition(|mapping| mapping.holds(address))?;
            u32::try_from(found).ok()
        };
        function.mapping.or_else(|| latest(function.address?))
    }
}

/// The kinds of [`Space`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpaceKind {
    /// One program that has the machine to itself.
    #[default]
    Firmware,
    /// A kernel and its modules.
    Kernel,
    /// A process.
    Process,
}

/// A file that was mapped into a [`Space`] for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address. Of a library of a Kymo recording that was loaded where another one had been, it and all
    /// addresses in it are moved by a multiple of 2^48.
    pub start: Addr,
    /// How many bytes.
    pub bytes: u64,
    /// Where in the file that is; 0 for a whole image.
    pub offset: u64,
    /// The file.
    pub path: String,
    /// Its build id, if the trace tells.
    pub build_id: Option<Vec<u8>>,
    /// From when on it is known to be there; `None` if since before the trace.
    pub since: Option<Time>,
}

impl Mapping {
    /// Whether an address lies in it.
    pub const fn holds(&self, address: Addr) -> bool {
        address.0.wrapping_sub(self.start.0) < self.bytes
    }
}
