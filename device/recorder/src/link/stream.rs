//! Streaming: sends packets while recording continues.
//!
//! The recorder's buffer serves as a queue whose only reader is the link: it reads closed packets
//! ([`Control::waiting`]), sends them piece by piece, and returns their slots when the host has acknowledged them
//! ([`Control::release`]). Nothing is copied, so a piece that was damaged in transmission can be sent again as long as
//! its packet has not been released. The writers never wait: they count what finds no room.
//!
//! The packets in transmission form a short queue of [`Flight`]s, one per packet. It defines which packet a piece
//! belongs to, and how many packets of each stream have been begun, so there is no state for each of many processors.

use core::hint::black_box;

use kymo_wire::event::{METADATA_STREAM, PacketHeader};
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{DATA_BYTES, Frame, Mode};

use super::{Control, DUMP_TIMEOUT, Refusal};
use crate::bits64::divide;

/// Most packets in transmission at a time.
pub const WINDOW: usize = 16;

/// Most pieces that one poll sends, because the program's own work waits for it.
pub const BURST: u32 = 64;

/// How long the end of a stream waits for records that the program is filling, in seconds: most are filled at once, and
/// some never, because their thread has exited.
const PATIENCE: u64 = 1;

/// A packet that is being sent, or has been sent and is not acknowledged yet.
#[derive(Clone, Copy, Debug)]
struct Flight {
    /// Its stream's number.
    stream: u16,
    /// The number of its first piece.
    first: u32,
    /// Number of its pieces.
    pieces: u32,
}

impl Flight {
    const NONE: Self = Self {
        stream: 0,
        first: 0,
        pieces: 0,
    };

    /// The number after its last piece.
    const fn end(&self) -> u32 {
        self.first.wrapping_add(self.pieces)
    }

    const fn has(&self, piece: u32) -> bool {
        piece.wrapping_sub(self.first) < self.pieces
    }
}

/// A stream in progress, or the last one. All zero at the beginning.
#[derive(Debug)]
pub(super) struct Streaming {
    active: bool,
    /// The host wants only packets that began before `stop_at`.
    stopping: bool,
    stop_at: u64,
    /// Whether the stream changed the mode, and the mode before. (Not an `Option`, whose `None` is not all zero.)
    changed: bool,
    before: Mode,
    /// The number of the host's request.
    request: u8,
    flights: [Flight; WINDOW],
    /// Number of valid entries of `flights`, from the front; oldest first.
    count: usize,
    /// The next piece to be sent for the first time.
    next: u32,
    /// All pieces before this one are acknowledged.
    acked: u32,
    /// Whether a piece was sent since the last acknowledgement.
    sent: bool,
    /// Pieces to be sent again: from the first on, as long as it is before the second.
    again: (u32, u32),
    /// The stream that is checked first for the next packet.
    first_choice: u16,
    /// Value of [`Control::facts`] when the metadata was last sent.
    facts: u32,
    /// Interval in ticks after which an open packet is closed to be sent; 0: never.
    flush: u64,
    flushed_at: u64,
    /// Whether all packets that were open when the host stopped the stream have been closed.
    closed: bool,
    /// Whether the last losses have been reported, as far as there was room.
    reported: bool,
    /// Whether the host knows that everything was sent and acknowledged, except for what `blocked` streams hold back.
    finished: bool,
    blocked: u16,
    /// Time of the last input from the host, and the program's ticks since then.
    heard: u64,
    ticks: u32,
}

/// Reply to a host that stops a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// Whether there is still something to send or acknowledge.
    pub sending: bool,
    /// Number of pieces so far.
    pub pieces: u32,
    /// Number of streams that hold packets back because the program is filling a record.
    pub blocked: u16,
}

impl Streaming {
    /// No stream.
    pub const fn new() -> Self {
        Self {
            active: false,
            stopping: false,
            stop_at: 0,
            changed: false,
            before: Mode::Overwrite,
            request: 0,
            flights: [Flight::NONE; WINDOW],
            count: 0,
            next: 0,
            acked: 0,
            sent: false,
            again: (0, 0),
            first_choice: 0,
            facts: 0,
            flush: 0,
            flushed_at: 0,
            closed: false,
            reported: false,
            finished: false,
            blocked: 0,
            heard: 0,
            ticks: 0,
        }
    }

    /// Whether a stream is in progress.
    pub const fn is_active(&self) -> bool {
        self.active
    }

    /// Starts a stream, or restarts it with the packets that were not acknowledged. A repeated request, after a lost
    /// reply, has no effect.
    pub fn start(
        &mut self,
        request: u8,
        flush_ms: u32,
        control: &impl Control,
    ) -> Result<(), Refusal> {
        if self.active && !self.stopping && self.request == request {
            return Ok(());
        }
        if !control.can_stream() {
            return Err(Refusal::NoStream);
        }
        self.end(control);
        let mode = control.status().mode;
        if mode != Mode::Stream {
            control.set_mode(Mode::Stream)?;
            (self.changed, self.before) = (true, mode);
        }
        let now = control.now();
        *self = Self {
            active: true,
            request,
            changed: self.changed,
            before: self.before,
            flush: divide(control.hz(), 1000).0 * u64::from(flush_ms),
            flushed_at: now,
            heard: now,
            ..Self::new()
        };
        Ok(())
    }

    /// Stops the stream after the packets that began before now; returns the reply.
    ///
    /// # Errors
    /// There is no stream, and none was sent to its end: a stream that timed out, or was ended by a reset, may have
    /// more than the host received.
    pub fn stop(&mut self, control: &impl Control) -> Result<Left, Refusal> {
        if !self.active {
            // A host that did not receive the reply repeats its request.
            return if self.finished {
                Ok(self.left())
            } else {
                Err(Refusal::NotStreaming)
            };
        }
        if !self.stopping {
            self.stopping = true;
            self.stop_at = control.now();
            self.closed = control.flush();
        }
        if self.count != 0 || self.choose(control).is_some() {
            return Ok(self.left());
        }
        if !self.closed || !self.reported {
            // Now that there is room, the losses can be reported, too.
            (self.closed, self.reported) = (control.flush(), true);
            return Ok(self.left());
        }
        self.blocked = self.count_blocked(control);
        let waited = control.now().saturating_sub(self.stop_at);
        if self.blocked != 0 && waited < control.hz() * PATIENCE {
            return Ok(self.left());
        }
        self.end(control);
        self.finished = true;
        // This fails while a record is being filled; the end of the next stream tries again.
        if self.changed && control.set_mode(self.before).is_ok() {
            self.changed = false;
        }
        Ok(self.left())
    }

    const fn left(&self) -> Left {
        Left {
            sending: self.active,
            pieces: self.next,
            blocked: self.blocked,
        }
    }

    /// Number of streams that hold back packets that the host wants.
    fn count_blocked(&self, control: &impl Control) -> u16 {
        let held = |stream: &u16| {
            let begin = control.blocked(*stream);
            begin.is_some_and(|begin| begin <= self.stop_at)
        };
        (0..control.streams()).filter(held).count() as u16
    }

    /// Stops sending. Packets that are not acknowledged are kept.
    pub fn end(&mut self, control: &impl Control) {
        if self.flying(METADATA_STREAM) != 0 {
            control.seal_facts(false);
        }
        self.active = false;
        self.count = 0;
    }

    /// Notes input from the host.
    pub fn hear(&mut self, control: &impl Control) {
        self.heard = control.now();
        self.ticks = 0;
    }

    /// Whether the host has been silent for so long, by the clock, that it is considered gone.
    pub fn is_forgotten(&self, now: u64, hz: u64) -> bool {
        let limit = hz.saturating_mul(DUMP_TIMEOUT);
        now.saturating_sub(self.heard) > limit
    }

    /// Handles a tick of the program at `tick_hz` per second (0: unknown); returns whether the host is considered gone.
    pub fn tick(&mut self, tick_hz: u32) -> bool {
        self.ticks = self.ticks.saturating_add(1);
        let limit = u64::from(tick_hz) * DUMP_TIMEOUT;
        limit != 0 && u64::from(self.ticks) > limit
    }

    /// Closes open packets when the flush interval has passed, so that the host sees them. Not while closed packets
    /// still wait: small packets would take the slots that large ones need.
    pub fn flush(&mut self, now: u64, control: &impl Control) {
        if self.active
            && self.flush != 0
            && now.saturating_sub(self.flushed_at) >= self.flush
            && self.count < WINDOW
            && self.choose(control).is_none()
        {
            self.flushed_at = now;
            control.flush();
        }
    }

    /// Handles the acknowledgement of all pieces before `piece`.
    pub fn acknowledge(&mut self, piece: u32, control: &impl Control) {
        if !reaches(piece, self.acked) || !reaches(self.next, piece) {
            // From an earlier stream, or late.
            return;
        }
        if piece == self.acked && piece != self.next && !self.sent {
            self.again = (piece, self.next);
        }
        self.acked = piece;
        self.sent = false;
        while let Some(oldest) = self.flights().first().copied()
            && reaches(piece, oldest.end())
        {
            if oldest.stream == METADATA_STREAM {
                control.seal_facts(false);
            } else {
                control.release(oldest.stream);
            }
            // (One by one: moving them at once would link another function.)
            for at in 1..self.count {
                if let Some(&flight) = self.flights.get(at)
                    && let Some(place) = black_box(&mut self.flights).get_mut(at - 1)
                {
                    *place = flight;
                }
            }
            self.count -= 1;
        }
    }

    /// Sends these pieces again next.
    pub fn resend(&mut self, first: u32, last: u32) -> Result<(), Refusal> {
        let end = last.wrapping_add(1);
        if !reaches(first, self.acked) || !reaches(last, first) || !reaches(self.next, end) {
            return Err(Refusal::NoPiece);
        }
        self.again = (first, end);
        Ok(())
    }

    /// Whether packets have been sent and not acknowledged.
    pub const fn has_flights(&self) -> bool {
        self.active && self.count != 0
    }

    /// Whether [`send_next`](Self::send_next) would send something.
    pub fn has_more(&self, control: &impl Control) -> bool {
        self.active && (self.again.0 != self.again.1 || self.is_due() || self.could_choose(control))
    }

    /// Sends one piece; returns false if there is nothing to send now.
    pub fn send_next(&mut self, control: &impl Control, out: &mut [u8; MAX_WIRE]) -> bool {
        if !self.active {
            return false;
        }
        let piece = if let Some(piece) = self.next_again() {
            piece
        } else {
            if !self.is_due() && !self.begin(control) {
                return false;
            }
            let piece = self.next;
            self.next = piece.wrapping_add(1);
            piece
        };
        let Some(at) = self.flights().iter().position(|flight| flight.has(piece)) else {
            // It was acknowledged after the request for it.
            return true;
        };
        let bytes = self.bytes(at, piece, control);
        let frame = Frame::Data {
            request: self.request,
            number: piece,
            bytes,
        };
        if let Some(length) = frame.encode(out)
            && let Some(bytes) = out.get(..length)
        {
            control.send(bytes);
        }
        self.sent = true;
        true
    }

    /// The next piece to send again.
    fn next_again(&mut self) -> Option<u32> {
        let (first, end) = self.again;
        if first == end {
            return None;
        }
        self.again.0 = first.wrapping_add(1);
        Some(first)
    }

    /// Whether some pieces of the newest flight have not been sent yet.
    fn is_due(&self) -> bool {
        let newest = self.flights().last();
        newest.is_some_and(|newest| newest.end() != self.next)
    }

    fn could_choose(&self, control: &impl Control) -> bool {
        self.count < WINDOW && self.choose(control).is_some()
    }

    /// Starts the transmission of the next packet; returns false if there is none, or if too many are in transmission.
    fn begin(&mut self, control: &impl Control) -> bool {
        if self.count >= WINDOW {
            return false;
        }
        let Some(stream) = self.choose(control) else {
            return false;
        };
        let length = if stream == METADATA_STREAM {
            self.facts = control.facts();
            control.seal_facts(true);
            control.sealed_facts().len()
        } else {
            self.first_choice = stream.wrapping_add(1);
            control
                .waiting(stream, self.flying(stream))
                .map_or(0, <[u8]>::len)
        };
        if let Some(place) = self.flights.get_mut(self.count) {
            *place = Flight {
                stream,
                first: self.next,
                // A packet has at least a header.
                pieces: length.div_ceil(DATA_BYTES).max(1) as u32,
            };
            self.count += 1;
        }
        true
    }

    /// The stream whose next packet is to be sent.
    fn choose(&self, control: &impl Control) -> Option<u16> {
        let facts = control.facts();
        if facts != 0 && facts != self.facts && self.flying(METADATA_STREAM) == 0 {
            return Some(METADATA_STREAM);
        }
        let streams = control.streams();
        let first_choice = if self.first_choice < streams {
            self.first_choice
        } else {
            0
        };
        let (before, from) = (0..first_choice, first_choice..streams);
        from.chain(before).find(|&stream| {
            let packet = control.waiting(stream, self.flying(stream));
            packet.is_some_and(|packet| self.is_wanted(packet, control))
        })
    }

    /// Whether a packet began before the host stopped the stream.
    fn is_wanted(&self, packet: &[u8], control: &impl Control) -> bool {
        let begin = || PacketHeader::read_begin(control.identity().layout.order, packet);
        !self.stopping || begin().is_some_and(|begin| begin <= self.stop_at)
    }

    /// The bytes of a piece of the flight at `at`.
    fn bytes<'a>(&self, at: usize, piece: u32, control: &'a impl Control) -> &'a [u8] {
        let Some(flight) = self.flights().get(at) else {
            return &[];
        };
        let packet = if flight.stream == METADATA_STREAM {
            control.sealed_facts()
        } else {
            let earlier = self.flights().iter().take(at);
            let earlier = earlier.filter(|other| other.stream == flight.stream);
            let packet = control.waiting(flight.stream, earlier.count() as u32);
            packet.unwrap_or(&[])
        };
        let begin = piece.wrapping_sub(flight.first) as usize * DATA_BYTES;
        let end = packet.len().min(begin + DATA_BYTES);
        packet.get(begin..end).unwrap_or(&[])
    }

    fn flights(&self) -> &[Flight] {
        self.flights.get(..self.count).unwrap_or(&[])
    }

    /// Number of a stream's packets in transmission.
    fn flying(&self, stream: u16) -> u32 {
        let same = self
            .flights()
            .iter()
            .filter(|flight| flight.stream == stream);
        same.count() as u32
    }
}

/// Whether `number` is `other` or comes after it. The numbers wrap around; only numbers less than half their range
/// apart are compared.
const fn reaches(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) <= u32::MAX / 2
}
