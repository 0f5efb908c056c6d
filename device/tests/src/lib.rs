//! Shared code of the recorder's tests: a decoder written only from the format's description, mock processors, random
//! events, and a host's side of the link.
//!
//! The decoder works bit by bit, as CTF 1.8 defines bit fields, and uses none of the functions that the recorder
//! encodes with: an error would have to be made twice to remain undetected.

mod board;
mod decode;
pub mod emulator;
mod equipment;
mod host;
mod items;
mod mock;
mod random;

pub use board::Board;
pub use decode::{Kind, Packet, Record, UNKNOWN, packets, packets_of_jumps};
pub use equipment::{device, equipped};
pub use host::Host;
pub use items::ItemPacket;
pub use mock::{Layouts, Mock, Preempt, config, hot, layout, leak};
pub use random::Random;
