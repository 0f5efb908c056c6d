//! ETMv4 (Arm IHI 0064, all 4.x) and the Embedded Trace Extension (ETE): packets of the instruction trace.
//!
//! [`Decoder`] turns the bytes of one source into [`Packet`]s. It tracks the protocol's state (address history,
//! timestamp, cycle threshold), so that a packet has full values. It does not need the traced code.

mod config;
mod decoder;
mod headers;
mod packet;
mod text;

pub use config::Config;
pub use decoder::Decoder;
pub use packet::{Address, Atoms, Context, Fields, KeyedResult, Kind, Packet, QElement, TraceInfo};
pub use text::describe;
pub(crate) use text::{name, write_atoms};
