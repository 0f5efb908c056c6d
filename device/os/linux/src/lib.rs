//! Linux services for the recorder: a clock, thread-local storage, memory, files, and a memory barrier that one thread
//! imposes on all others.
//!
//! The library is linked into other programs, so it takes no resources from them: no allocator, no standard library, no
//! thread-local storage except one word. All of it may be called from signal handlers and before `main`. Each processor
//! has a file in `machine/`; word size and byte order follow the processor.
//!
//! A file uses only files that stand above it here, and those in its own folder (a test checks it):
//!
//! | file | has |
//! |---|---|
//! | `text` | text in memory of a fixed size |
//! | `machine` | code of each processor |
//! | `sys` | the functions of the system |
//! | `thread` | the thread's word |
//! | `wide` | 64-bit numbers |
//! | `fields` | fields of the recording's file |
//! | `lock` | locks that know their owners |
//! | `elf` | the program's images |
//! | `settings` | the environment's variables |
//! | `clock` | the clock, and its pairs in the file |
//! | `recording` | the file |
//! | `port` | Linux as the recorder's target |
//! | `process` | the recorder of the process: its folder has a file for each of its tasks |
//! | `hooks` | the hooks in assembly |
#![no_std]
#![cfg(target_os = "linux")]

pub mod clock;
pub mod elf;
mod fields;
#[cfg(target_arch = "x86_64")]
pub mod hooks;
mod lock;
mod machine;
pub mod port;
pub mod process;
mod recording;
mod settings;
pub mod sys;
mod text;
pub mod thread;
mod wide;
