//! Linux ftrace, live: chooses and changes settings of tracefs, copies pages of each CPU, restores what was changed.
//!
//! - [`Tracefs`] is the directory, found by its mount.
//! - [`Session`] records what a [`Request`] asks for, in an instance of its own where the kernel can, else in the top
//!   buffer.
//! - [`Restore`] undoes changes, also from another thread. A state file lists them from before each is made, so that
//!   [`recover`] undoes those of a process that was killed.
//! - [`Recording`] is what came of it: a trace.dat to be written.
//! - [`boot`] is the kernel command line for tracing a boot, and the buffer afterwards.
//!
//! Memory is bounded by the sizes of the kernel's texts: pages go from the kernel to files by `splice`.
//!
//! Sources: the kernel's `Documentation/trace/ftrace.rst`, `events.rst`, `boottime-trace.rst` and
//! `admin-guide/kernel-parameters.txt`.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

pub mod boot;
mod command;
mod drain;
mod error;
mod events;
mod files;
mod pages;
mod plan;
mod recording;
mod session;
mod state;

pub use command::{Stopped, threads};
pub use error::TracefsError;
pub use events::EventName;
pub use files::Tracefs;
pub use plan::{Place, Request};
pub use recording::{Loss, Recording};
pub use session::{Figures, Session};
pub use state::{Recovery, Restore, STATE_DIRECTORY, recover};

/// Result of a tracefs operation.
pub type Result<T> = std::result::Result<T, TracefsError>;
