//! Host side of the link to live Kymo targets.
//!
//! The host reaches a target through a byte stream ([`Transport`]: a serial port or a TCP connection), which the target
//! may share with the traced program's own console. [`Splitter`] separates that stream into console text and frames.
//! [`Target`] runs the protocol on top: it identifies the target, sends commands, fetches dumps and receives streams,
//! and requests again whatever was lost or damaged.
//!
//! A target may run Zephyr's own instrumentation instead. That is a [`zephyr::Target`], with its own protocol.
//! [`Target::recognise`] detects which of the two it is.
//!
//! Three rules hold throughout:
//!
//! - *Every wait is bounded.* Every wait has a time-out ([`Timeouts`]) and, where it can be long, a [`Cancel`] flag.
//! - *Nothing is sent before identification.* Until a valid identity has arrived, the host sends only the text line
//!   `identify` (and, where it looks for both protocols, `instr_ping` if there was no answer to that): a question must
//!   not harm another listener.
//! - *Received data is kept.* A dump that breaks off is still a [`Dump`], which reports what is missing.
#![forbid(unsafe_code)]

mod address;
mod clock;
mod dump;
mod error;
pub mod gdb;
mod memory;
mod reply;
mod rtt;
mod splitter;
mod stream;
pub mod systemview;
mod target;
mod transport;
pub mod zephyr;

pub use address::{Address, AddressError, DEFAULT_BAUD};
pub use clock::{Clock, SystemClock};
pub use dump::{Cancel, Dump, Ended, Progress};
pub use error::LinkError;
pub use reply::{ReplyError, Sets, Status};
pub use splitter::{Piece, Splitter};
pub use target::{ClockReading, Device, Next, Reported, Stream, Target, Timeouts};
pub use transport::{SerialTransport, TcpTransport, Transport};

#[doc(hidden)]
pub use splitter::fuzz_splitter;
