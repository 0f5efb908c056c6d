//! Frames and commands between a target and the host.
//!
//! The link is a byte stream that the target's own console may share: a UART, a TCP connection. *Commands* are text
//! lines, so that a person at a terminal can type them, and their replies are text lines, too. *Data* (dumps) and all
//! requests of a program travel in frames.
//!
//! A frame is `00 COBS(content, CRC-32 of the content) 00`. Text never contains a zero byte, and COBS ([`cobs`])
//! removes zero bytes from the frame. So a zero byte always marks the start or end of a frame, whatever was lost or
//! damaged before, and console text between frames remains readable.
//!
//! A session:
//!
//! 1. The host, which does not know the target yet, sends one line: `identify\r`. A Kymo target replies with a line
//!    `kymo identify: protocol=3 word=32 ... #xxxxxxxx` ([`Identity`]). Its last word is a checksum, because a console
//!    may have written into the middle of the line. Nothing else is sent before that. A target accepts this line in the
//!    middle of a frame as well, and discards the frame: a zero byte may come from plugging in a cable, or from a host
//!    that ended too early. (So a person whose commands are ignored can type this line, with either end of line.)
//! 2. From then on the host sends commands in frames ([`FrameKind::Command`]), with a request number, and the target
//!    replies to each with a frame ([`FrameKind::Reply`]).
//! 3. The reply to a dump command contains the number of bytes and frames that follow, and the target's clock
//!    (`ticks=`, by which the host detects a target that restarts meanwhile). Then come that many [`FrameKind::Data`],
//!    then [`FrameKind::End`]. The host requests frames that did not arrive intact again (`resend FIRST LAST`); `done`
//!    ends the dump. From dump to `done` the target does not change the data: events that occur meanwhile are counted
//!    as discarded. A target that receives nothing for [`DUMP_TIMEOUT_MS`] ends the dump by itself.
//!
//! A *stream* is sent while recording continues:
//!
//! 1. `stream on` puts the buffer into stream mode. That empties the buffer, unless it is in stream mode already: then
//!    the packets that were not sent yet come first. The reply contains `window=`, a number of packets.
//! 2. From then on the target sends packets as [`FrameKind::Data`] with the number of that request: first the metadata,
//!    which is sent again whenever it has grown, then the packets of each stream as they are closed. Each packet begins
//!    with a new piece, all its pieces except the last have [`DATA_BYTES`], and pieces are numbered from 0 through the
//!    whole session, so that the host reassembles packets by the sizes in their headers.
//! 3. The host sends `ack NUMBER` repeatedly, at least every second. The target keeps a packet until all of it is
//!    acknowledged, and has at most a window of packets in flight. There is no reply to an `ack`, unless the stream has
//!    ended. The host requests lost pieces again (`resend FIRST LAST`). An `ack` that repeats the last number, when
//!    nothing was sent since the last one, means that the pieces from that number on were lost.
//! 4. Events for which there is no room meanwhile are discarded and counted in the packets' headers.
//! 5. `stream off` makes the target send everything recorded up to then. Each time it is repeated, the target replies
//!    `sending=1`, and after all is acknowledged `sending=0 pieces=N`. The buffer then returns to its previous mode.
//!    All other commands except dumps are executed meanwhile. The target waits at most one second for packets in which
//!    the program is filling a record; a following `reserved=N` is the number of streams whose last packets are
//!    missing. A target without a stream refuses the command, because data may be missing, unless this command ended
//!    the last stream.
//!
//! When the host is gone (silent for [`DUMP_TIMEOUT_MS`], or a host sends `identify`), the target stops sending. The
//! buffer stays in stream mode and keeps the unacknowledged packets; the next `stream on` continues with them.
//!
//! The reply to `time` contains `ticks=`, the value of the clock. A target whose program calls `kymo_tick()` adds a
//! comparison of the clock with these calls ([`TickCheck`](crate::clock_check::TickCheck)): `tick_hz=`, the number of
//! calls (`tick_count=`), and how far the clock advanced in that time (`tick_clock=`).
//!
//! To send the target the wall-clock time, the host sends `time` several times and uses the reply with the shortest
//! round trip. It then sends `wall_clock` with the value of its own clock half-way between request and reply; half of
//! the round trip is the uncertainty.
//!
//! An empty line does nothing; commands are whole words; input that does not parse is refused with a message.

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

/// Version of this protocol and of its packets: in `identify`, and as `tracer_minor` in metadata.
pub const PROTOCOL: u32 = 3;

/// Returns whether data of this version, with packets of this shape, is the same as of [`PROTOCOL`]. In version 2
/// [wide](Shape::Wide) packets were different: the headers of records other than calls had 40 bits of time.
pub const fn is_understood(version: u32, shape: Shape) -> bool {
    match shape {
        Shape::Compact => matches!(version, 2 | PROTOCOL),
        Shape::Wide => version == PROTOCOL,
    }
}

/// Number of bytes of a dump in a [`FrameKind::Data`] frame, except the last.
pub const DATA_BYTES: usize = 240;

/// Default interval, in milliseconds, at which a streaming target sends the records in the newest packet.
pub const FLUSH_MS: u32 = 100;

/// Time of silence, in milliseconds, after which a target ends a dump or stream by itself.
pub const DUMP_TIMEOUT_MS: u32 = 5_000;
