//! Packets of SEGGER SystemView: decoder, encoder, recording files (`.SVDat`).
//!
//! A target with SystemView's recorder sends packets of a few bytes, one per event: a thread gets the processor, an
//! interrupt handler begins, an operating system function is called. This crate reads and writes them. It has no
//! dependencies, allocates nothing and needs no operating system, so that a target can use it for encoding.
//!
//! | module | contents |
//! |---|---|
//! | [`packet`] | every kind of packet, its fields, its name |
//! | [`decode()`] and [`encode()`] | one packet from bytes and back, byte for byte |
//! | [`scan`] | a whole stream: synchronization, damage, resynchronization |
//! | [`file`](mod@file) | the text at the start of a recording file, and the streams after it |
//! | [`describe`] | descriptive texts: system, interrupts, modules, `SYSVIEW_*.txt` |
//! | [`rtt`] | the control block of SEGGER's RTT in an image of a target's memory |
//!
//! # The format
//! A stream begins with ten zero bytes. A packet is an id, its fields and the ticks since the previous packet:
//!
//! ```text
//! id < 24     id, fields, delta
//! id >= 24    id, length, fields, delta
//! ```
//!
//! Ids, lengths, numbers and deltas are unsigned LEB128 of at most 32 bits; a text is its length in a byte and its
//! bytes. A packet with an unknown id below 24 cannot be skipped, and there is no checksum to detect damage: [`scan`]
//! relies on plausibility.
//!
//! Source: `SEGGER_SYSVIEW.c` and `.h` of SystemView's target sources, and recordings of real targets.
#![no_std]
#![forbid(unsafe_code)]

mod begin;
mod decode;
pub mod describe;
mod encode;
mod error;
pub mod file;
pub mod packet;
mod plausible;
pub mod rtt;
pub mod scan;
mod varint;

pub use decode::{Decoded, decode};
pub use encode::{NoRoom, encode, encode_body, encode_number, encode_numbers};
pub use error::{DecodeError, Problem};
pub use packet::{Form, Ids, Length, Packet, Payload, Text, TextOrder};
pub use scan::{Beginning, Piece, Record, Scan};
pub use varint::{MAX_VARINT, Varints};

/// Start of a stream; a target in post-mortem mode repeats it.
pub const SYNC: [u8; 10] = [0; 10];

/// Commands of a host, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// Begin recording; the target first describes itself.
    Start = 1,
    /// End recording.
    Stop = 2,
    /// Send the time.
    SystemTime = 3,
    /// Send the list of threads.
    TaskList = 4,
    /// Send the description of the system.
    SystemDescription = 5,
    /// Send the number of modules.
    ModuleCount = 6,
    /// Send the descriptions of modules.
    ModuleDescriptions = 7,
    /// Sign of life of the host.
    Heartbeat = 127,
    /// Send the description of one module; its index follows as a byte.
    Module = 128,
}

/// TCP port of SystemView's recorder over IP.
pub const TCP_PORT: u16 = 19111;

/// Greeting with which both sides of a TCP connection begin: 32 bytes, padded with zeros.
pub const TCP_HELLO: [u8; 32] = *b"SEGGER SystemView V3.32.00\0\0\0\0\0\0";

/// Greeting with which both sides of a serial line begin; the last two bytes may have any value.
pub const SERIAL_HELLO: [u8; 4] = *b"SV\x32\x00";
