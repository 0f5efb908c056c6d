//! Linux services for the recorder: a clock, thread-local storage, memory, files, and a memory barrier that one thread
//! imposes on all others.
//!
//! The library is linked into other programs, so it takes no resources from them: no allocator, no standard library, no
//! thread-local storage except one word. All of it may be called from signal handlers and before `main`. Each processor
//! has a file in `machine/`; word size and byte order follow the processor.
#![no_std]
#![cfg(target_os = "linux")]

pub mod clock;
#[cfg(feature = "cost")]
mod cost;
pub mod elf;
mod ended;
#[cfg(target_arch = "x86_64")]
pub mod hooks;
mod items;
mod machine;
mod numbers;
pub mod port;
pub mod process;
mod reader;
mod recording;
mod save;
mod server;
mod settings;
pub mod sys;
pub mod thread;
mod wide;
