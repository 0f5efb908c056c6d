//! Live Kymo targets: the host's side of the link.
//!
//! A target is reached through a byte stream ([`Transport`]: a serial port or a TCP connection)
//! that it may share with the traced program's own console. [`Splitter`] takes that stream apart
//! into console text and frames; [`Target`] holds the conversation over it: it identifies the
//! target, gives commands, fetches dumps and receives streams, asking again for whatever was lost or
//! damaged.
//!
//! A target may as well run Zephyr's own instrumentation: then it is a [`zephyr::Target`], with a
//! protocol of its own. [`Target::recognise`] finds out which of the two is there.
//!
//! Three rules hold everywhere here:
//!
//! - *No wait without an end.* Every wait has a time-out ([`Timeouts`]) and, where it can be long,
//!   a [`Cancel`] flag.
//! - *Nothing before the name.* Until a clean identity has arrived, only the text line `identify`
//!   is sent (and, where both protocols are looked for, `instr_ping` to who keeps silent to that):
//!   another listener must not be harmed by a question.
//! - *What arrived is kept.* A dump that breaks off is still a [`Dump`], which says what is missing.
#![forbid(unsafe_code)]

mod address;
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
pub use dump::{Cancel, Dump, Ended, Progress};
pub use error::LinkError;
pub use reply::{ReplyError, Sets, Status};
pub use splitter::{Piece, Splitter};
pub use target::{ClockReading, Device, Next, Stream, Target, Timeouts, Told};
pub use transport::{SerialTransport, TcpTransport, Transport};

#[doc(hidden)]
pub use splitter::fuzz_splitter;
