//! Addresses to functions, files and lines.
//!
//! A trace knows addresses; people know names. What connects them comes in several shapes: an ELF
//! file with or without DWARF, the output of `nm`, a linker map, a kernel's `System.map` or
//! `/proc/kallsyms`, or the names that the trace itself carries. [`Symbols`] takes any of them, and
//! several at once (a boot loader and an application), and answers the same questions of all.
//!
//! Addresses are run-time addresses everywhere in the interface. Where a program was not loaded
//! where it was linked (position-independent executables), [`Symbols::set_text_base`] says so once.
//!
//! Several symbols can stand at one address (aliases, marks of the linker script). Which of them
//! names the function does not depend on their order in the file: see [`Function`].
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
mod similar;
mod symbols;
mod table;
mod text;

pub use dump::{TooLarge, core_dump, core_memory};
pub use error::{ElfError, Error, TextError};
pub use file::{LARGEST_FILE, read_file};
pub use image::Place;
pub use instrumentation::{Calls, FileKind, HOOKS, Hook, HookPlace, Instrumentation};
pub use jumps::UnmarkedJumps;
pub use lines::{DebugInfo, Frame, Location, Row};
pub use name::{demangle, spellings};
pub use object::Architecture;
pub use program::{Loaded, Program};
pub use symbols::{Function, Symbols};
