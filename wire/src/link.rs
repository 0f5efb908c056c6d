//! Frames and commands between a target and the host.
//!
//! The link is a byte stream that the target's own console may share: a UART, a TCP connection.
//! *Commands* are text lines, so that a person at a terminal can give them, and the replies to
//! them are text lines too. *Data* (dumps) and everything a program asks travels in frames.
//!
//! A frame is `00 COBS(content, CRC-32 of the content) 00`. Text never contains a zero byte and COBS
//! ([`cobs`]) takes them out of the frame, so a zero byte always tells where a frame begins or
//! ends, whatever was lost or damaged before; and console text between frames stays readable.
//!
//! A conversation:
//!
//! 1. The host, not knowing who is there, sends one line: `identify\r`. A Kymo target answers with
//!    a line `kymo identify: protocol=3 word=32 ... #xxxxxxxx` ([`Identity`]), whose last word is a checksum,
//!    because a console may have written in the middle of it. Nothing else is sent before that.
//!    A target takes this line in the middle of a frame as well, and forgets the frame: a zero byte
//!    may have come from a plug or from a host that ended too early. (So a person whose commands are not
//!    heard any more types it, with either end of line.)
//! 2. From then on the host sends commands in frames ([`FrameKind::Command`]), with a request
//!    number, and the target answers each with a frame ([`FrameKind::Reply`]).
//! 3. A dump command is answered by a reply that says how many bytes and frames will follow, and what the
//!    target's clock shows (`ticks=`, by which the host knows a target that starts again meanwhile), then
//!    that many [`FrameKind::Data`], then [`FrameKind::End`]. What did not arrive whole is asked
//!    for again (`resend FIRST LAST`); `done` ends the dump. From dump to `done` the target keeps the
//!    data still: events that happen meanwhile are counted as discarded. A target that hears
//!    nothing for [`DUMP_TIMEOUT_MS`] goes on by itself.
//!
//! A *stream* is sent while everything goes on recording:
//!
//! 1. `stream on` puts the buffer into stream mode (which empties it, unless that is its mode
//!    already: then what was not taken yet comes first) and is answered with `window=` packets.
//! 2. From then on the target sends packets as [`FrameKind::Data`] with the number of that request:
//!    first the metadata, which comes again whenever there is more of it, then the packets of each
//!    stream as they are closed. Each packet begins with a piece of its own, all pieces but its last
//!    have [`DATA_BYTES`], and pieces are numbered from 0 through the whole session, so that the host
//!    puts packets together by the sizes in their heads.
//! 3. The host says `ack NUMBER` now and then, and at least every second: the target keeps a packet
//!    until all of it is acknowledged, and has at most a window of them on the way. An `ack` is not
//!    answered, unless there is no stream any more. What did not arrive is asked for again
//!    (`resend FIRST LAST`). An `ack` that says nothing new, when nothing was sent since the last one,
//!    means that the pieces from there on were lost.
//! 4. What finds no room meanwhile is discarded and counted in the packets' heads.
//! 5. `stream off` lets the target send what was recorded up to then. Each time it is asked, it
//!    answers `sending=1`, and when all is acknowledged `sending=0 pieces=N`; the buffer then goes back
//!    to the mode that it had before. All other commands but dumps are obeyed meanwhile. Packets in
//!    which the program is filling a record are waited for, a second at most: `reserved=N` behind that
//!    says of how many streams the last ones did not come. A target that knows of no stream refuses, unless
//!    it was this that ended the last one: there may be more.
//!
//! When the host is gone (nothing heard for [`DUMP_TIMEOUT_MS`], or somebody asks `identify`),
//! nothing more is sent. The buffer stays in stream mode and keeps what was not acknowledged;
//! the next `stream on` goes on with it.
//!
//! `time` is answered by `ticks=`, what the clock shows. A target whose program calls `kymo_tick()` says behind
//! that how the clock compares with it ([`TickCheck`](crate::clock_check::TickCheck)): `tick_hz=`, how many calls
//! came (`tick_count=`), and how far the clock went in that time (`tick_clock=`).
//!
//! To tell the target the time of day, the host asks `time` a few times, takes the answer that came
//! back soonest, and says `wall_clock` with what its own clock showed half-way between question and
//! answer; half of that round trip is how wrong it may be.
//!
//! An empty line does nothing; commands are whole words; what does not parse is refused with a
//! message.

pub mod cobs;
pub mod command;
#[cfg(feature = "conditions")]
pub mod condition;
pub mod console;
pub mod crc;
#[cfg(feature = "duration")]
pub mod duration;
pub mod fault;
pub mod frame;
pub mod identity;
pub mod text;

use crate::event::Shape;

pub use command::{Command, CommandError, Mode};
#[cfg(feature = "conditions")]
pub use condition::{Condition, Conditions};
#[cfg(feature = "duration")]
pub use duration::{Action, Duration, FreezeOn};
pub use fault::{Fault, MAX_FUNCTION_SHIFT, SetupError};
pub use frame::{Frame, FrameKind};
pub use identity::{Capabilities, Identity};
pub use text::Text;

/// The version of this protocol and of the packets that go with it: in `identify`, and as
/// `tracer_minor` in metadata.
pub const PROTOCOL: u32 = 3;

/// Whether what has this version, and packets of this shape, is the same as of [`PROTOCOL`]. In
/// version 2 [wide](Shape::Wide) packets were others: the headers of records that are no calls had 40
/// bits of time.
pub const fn is_understood(version: u32, shape: Shape) -> bool {
    match shape {
        Shape::Compact => matches!(version, 2 | PROTOCOL),
        Shape::Wide => version == PROTOCOL,
    }
}

/// How many bytes of a dump a [`FrameKind::Data`] frame carries, except the last.
pub const DATA_BYTES: usize = 240;

/// How often a target that streams sends what there is of the newest packet, in milliseconds, where
/// the host does not say.
pub const FLUSH_MS: u32 = 100;

/// After how long a silence, in milliseconds, a target ends a dump or stream by itself.
pub const DUMP_TIMEOUT_MS: u32 = 5_000;
