//! A dump: sends it piece by piece, and again where it did not arrive.

use kymo_wire::link::crc::Crc32;
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{DATA_BYTES, Frame};

use super::{Control, DUMP_TIMEOUT, Refusal, SCRATCH_BYTES, Subject};

/// A dump in progress.
#[derive(Debug)]
pub(super) struct Dump {
    subject: Subject,
    request: u8,
    bytes: u32,
    frames: u32,
    /// The pieces to send: from `next` on, as long as it is below `end`.
    next: u32,
    end: u32,
    /// Whether `End` has to be sent after the pieces.
    unfinished: bool,
    /// Checksum of all pieces below `summed`.
    sum: Crc32,
    summed: u32,
    /// Time of the last transmission in either direction.
    active: u64,
    /// Number of the program's ticks since then.
    ticks: u32,
    place: Place,
}

/// A position in the dump from which the next piece is found quickly.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Number of a chunk.
    chunk: u32,
    /// Number of bytes before it.
    before: u32,
}

impl Dump {
    /// Starts a dump of the frozen buffers.
    pub fn new(subject: Subject, request: u8, control: &impl Control) -> Self {
        let mut bytes = 0u32;
        let mut n = 0;
        let mut scratch = [0; SCRATCH_BYTES];
        while let Some(chunk) = control.chunk(subject, n, &mut scratch) {
            bytes = bytes.saturating_add(chunk.len() as u32);
            n += 1;
        }
        let frames = bytes.div_ceil(DATA_BYTES as u32);
        Self {
            subject,
            request,
            bytes,
            frames,
            next: 0,
            end: frames,
            unfinished: true,
            sum: Crc32::new(),
            summed: 0,
            active: control.now(),
            ticks: 0,
            place: Place::default(),
        }
    }

    /// Bytes and pieces of the whole dump.
    pub fn size(&self) -> (u32, u32) {
        (self.bytes, self.frames)
    }

    /// Notes a transmission to or from the host.
    pub fn hear(&mut self, control: &impl Control) {
        self.active = control.now();
        self.ticks = 0;
    }

    /// Handles a tick of the program at `tick_hz` per second (0: unknown). Returns whether the host has been silent for
    /// so many that it is considered gone. (A clock whose counter wraps around with the tick may not advance as long as
    /// nothing else reads it.)
    pub fn tick(&mut self, tick_hz: u32) -> bool {
        self.ticks = self.ticks.saturating_add(1);
        let limit = u64::from(tick_hz) * DUMP_TIMEOUT;
        limit != 0 && u64::from(self.ticks) > limit
    }

    /// Whether the host has been silent for so long that it is considered gone.
    pub fn is_forgotten(&self, now: u64, hz: u64) -> bool {
        let limit = hz.saturating_mul(DUMP_TIMEOUT);
        now.saturating_sub(self.active) > limit
    }

    /// Sends these pieces (again) next, in reply to `request`.
    pub fn resend(&mut self, request: u8, first: u32, last: u32) -> Result<(), Refusal> {
        if first > last || last >= self.frames {
            return Err(Refusal::NoPiece);
        }
        self.request = request;
        (self.next, self.end) = (first, last + 1);
        self.unfinished = true;
        Ok(())
    }

    /// Sends the next piece, or the end behind the last; returns false if there is nothing to send.
    pub fn send_next(&mut self, control: &impl Control, out: &mut [u8; MAX_WIRE]) -> bool {
        if !self.unfinished {
            return false;
        }
        let mut data = [0; DATA_BYTES];
        let length = if self.next < self.end {
            let number = self.next;
            self.next += 1;
            let bytes = self.piece(number, control, &mut data);
            Frame::Data {
                request: self.request,
                number,
                bytes,
            }
            .encode(out)
        } else {
            self.unfinished = false;
            // The checksum does not include pieces yet that the host skipped.
            while self.summed < self.frames {
                self.piece(self.summed, control, &mut data);
            }
            Frame::End {
                request: self.request,
                frames: self.frames,
                bytes: self.bytes,
                crc: self.sum.value(),
            }
            .encode(out)
        };
        if let Some(bytes) = length.and_then(|length| out.get(..length)) {
            control.send(bytes);
        }
        self.hear(control);
        true
    }

    /// Copies a piece into `to`, and adds it to the checksum if that continues with it.
    fn piece<'a>(
        &mut self,
        number: u32,
        control: &impl Control,
        to: &'a mut [u8; DATA_BYTES],
    ) -> &'a [u8] {
        let begin = number * DATA_BYTES as u32;
        let wanted = (self.bytes - begin.min(self.bytes)).min(DATA_BYTES as u32) as usize;
        if begin < self.place.before {
            self.place = Place::default();
        }
        let mut scratch = [0; SCRATCH_BYTES];
        let mut length = 0;
        while length < wanted
            && let Some(chunk) = control.chunk(self.subject, self.place.chunk, &mut scratch)
        {
            let skip = (begin as usize + length) - self.place.before as usize;
            if let Some(rest) = chunk.get(skip..).filter(|rest| !rest.is_empty()) {
                let count = rest.len().min(wanted - length);
                if let (Some(to), Some(from)) =
                    (to.get_mut(length..length + count), rest.get(..count))
                {
                    to.copy_from_slice(from);
                }
                length += count;
                if count < rest.len() {
                    break;
                }
            }
            self.place.chunk += 1;
            self.place.before += chunk.len() as u32;
        }
        let bytes = to.get(..length).unwrap_or(&[]);
        if number == self.summed {
            self.sum.update(bytes);
            self.summed += 1;
        }
        bytes
    }
}
