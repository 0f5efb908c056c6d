//! Live recording with Linux ftrace: changes tracefs settings, copies each CPU's pages, and restores the settings.
//!
//! - [`Tracefs`] is the tracefs directory, found in the list of mounts.
//! - [`Session`] records according to a [`Request`]: in an instance of its own if the kernel supports that, else in the
//!   top buffer.
//! - [`Restore`] undoes changes, also from another thread. A state file lists each change before it is made, so that
//!   [`recover`] can undo those of a killed process.
//! - [`Recording`] is a finished recording, which can be written as a trace.dat.
//! - [`boot`] builds the kernel command line for tracing a boot, and saves the buffer afterwards.
//!
//! Memory is bounded by the sizes of the kernel's texts: pages move from the kernel to files by `splice`.
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
