//! Symbols: maps addresses to functions, files and lines.
//!
//! Symbol information comes in several formats: an ELF file with or without DWARF, the output of `nm`, a linker map, a
//! kernel's `System.map` or `/proc/kallsyms`, or the names in the trace itself. [`Symbols`] reads any of them, and
//! several at once (a boot loader and an application), behind a single interface.
//!
//! The interface uses run-time addresses. For a program that was not loaded at its link-time addresses
//! (position-independent executables), [`Symbols::set_text_base`] sets the difference once.
//!
//! Several symbols can have one address (aliases, symbols of the linker script). The choice of the one that names the
//! function does not depend on their order in the file: see [`Function`].
#![forbid(unsafe_code)]

mod cpp;
mod dump;
mod elf;
mod error;
mod file;
mod image;
mod instrumentation;
mod jumps;
mod lines;
mod linkage;
mod name;
mod program;
mod separate;
mod similar;
mod symbols;
mod table;
mod text;

pub use dump::{TooLarge, core_dump, core_memory};
pub use error::{ElfError, Error, TextError};
pub use file::{LARGEST_FILE, read_file};
pub use image::Place;
pub use instrumentation::{Calls, FileKind, HOOKS, Hook, HookPlace, Instrumentation, PATCHABLE};
pub use jumps::UnmarkedJumps;
pub use lines::{DebugInfo, Frame, Location, Row};
pub use name::{demangle, spellings};
pub use object::Architecture;
pub use program::{Loaded, Program};
pub use separate::{DebugDirectories, Refused, Separate};
pub use symbols::{Function, Symbols};
