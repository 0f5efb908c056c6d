//! What Linux offers a recorder: a clock, a place for each thread, memory, files, and a barrier that
//! one thread can lay on all others.
//!
//! The library lives in other people's programs, so it takes nothing from them: no allocator, no
//! standard library, no thread-local storage beyond one word. All of it may be called from signal
//! handlers and before `main`. A processor is a file in
//! `machine/`; word size and byte order are whatever it has.
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
