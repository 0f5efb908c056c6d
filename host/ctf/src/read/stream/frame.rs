//! Frames: decoded content of a stream, handed to another thread.
//!
//! A frame contains the next output of a [`StreamReader`] with a copy of the underlying bytes, so that the reader can
//! continue while another thread consumes it.

use super::super::event::{Event, Events, Packet};
use super::super::window::Window;
use super::fast_events::Batch;
use super::{Message, NO_ENTRY, Run, Skipped, Step, StreamReader, View};
use crate::error::DecodeError;
use crate::plan::field_program::NEAR;

/// Bytes after an event that field programs may read at once.
const BEHIND: u64 = NEAR as u64 + 8;

/// Several events of a packet, or one other message.
#[derive(Debug)]
pub(in crate::read) struct Frame {
    view: View,
    batch: Batch,
    /// The number in the packet of the next event.
    next: u64,
    /// The other message, with its time.
    other: Option<(i64, Other)>,
}

/// A message that is not an event.
#[derive(Debug)]
enum Other {
    Step(Step),
    /// Damage, and the part skipped because of it.
    Damage(DecodeError, Result<Option<Skipped>, DecodeError>),
}

/// Next content of a [`Frame`].
pub(in crate::read) enum Next {
    /// A message with this time.
    Time(i64),
    /// Damage, which is reported only once.
    Damage(DecodeError, Result<Option<Skipped>, DecodeError>),
    /// Everything has been returned.
    Nothing,
}

impl Frame {
    /// The next content.
    pub(in crate::read) fn next(&mut self) -> Next {
        if let Some(time) = self.batch.next_time() {
            return Next::Time(time);
        }
        match self.other.take() {
            Some((_, Other::Damage(error, skipped))) => Next::Damage(error, skipped),
            Some((time, other)) => {
                self.other = Some((time, other));
                Next::Time(time)
            }
            None => Next::Nothing,
        }
    }

    /// The time of the next event.
    #[inline(always)]
    pub(in crate::read) fn next_time(&self) -> Option<i64> {
        self.batch.next_time()
    }

    /// As [`StreamReader::take`].
    pub(in crate::read) fn take(&mut self, limit: i64) -> Option<Run<'_>> {
        let Some(range) = self.batch.take(limit) else {
            return match self.other.take()?.1 {
                Other::Step(Step::Packet) => Some(Run::Packet(Packet { view: &self.view })),
                Other::Step(Step::Gap(gap)) => Some(Run::Gap(gap)),
                Other::Damage(..) => None,
            };
        };
        let first = self.next;
        self.next += range.len() as u64;
        Some(Run::Events(Events::new(
            &self.view,
            self.batch.records(range),
            first,
        )))
    }

    /// As [`StreamReader::take_one`].
    pub(in crate::read) fn take_one(&mut self) -> Option<Message<'_>> {
        let Some(index) = self.batch.take_one() else {
            return match self.take(i64::MIN)? {
                Run::Packet(packet) => Some(Message::Packet(packet)),
                Run::Gap(gap) => Some(Message::Gap(gap)),
                Run::Events(_) => None,
            };
        };
        self.next += 1;
        let record = self.batch.record(index)?;
        Some(Message::Event(Event::new(
            &self.view,
            record,
            self.next - 1,
        )))
    }
}

/// A sequence of frames.
#[derive(Debug, Default)]
pub(in crate::read) struct Frames {
    /// Frames in use, followed by some for reuse.
    frames: Vec<Frame>,
    used: usize,
}

impl Frames {
    pub(in crate::read) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    pub(in crate::read) const fn clear(&mut self) {
        self.used = 0;
    }

    /// The frame at an index.
    #[inline(always)]
    pub(in crate::read) fn get_mut(&mut self, index: usize) -> Option<&mut Frame> {
        self.frames.get_mut(..self.used)?.get_mut(index)
    }

    #[inline(always)]
    pub(in crate::read) fn get(&self, index: usize) -> Option<&Frame> {
        self.frames.get(..self.used)?.get(index)
    }

    /// Fills it from a stream, up to this many bytes; `false` at the end of the stream.
    pub(in crate::read) fn fill(&mut self, reader: &mut StreamReader, bytes: usize) -> bool {
        let mut held = 0;
        while held < bytes {
            if self.used == self.frames.len() {
                self.frames.push(Frame {
                    view: View::new(reader.view.plan.clone(), Window::elsewhere()),
                    batch: Batch::new(),
                    next: 0,
                    other: None,
                });
            }
            let Some(frame) = self.frames.get_mut(self.used) else {
                return false;
            };
            match reader.decode_frame(frame, bytes - held) {
                Some(more) => held += more,
                None => return false,
            }
            self.used += 1;
        }
        true
    }
}

impl StreamReader {
    /// Decodes the next content into a frame, of about `most` bytes at most; returns its size, `None` at the end.
    fn decode_frame(&mut self, frame: &mut Frame, most: usize) -> Option<usize> {
        let Frame {
            view,
            batch,
            next,
            other,
        } = frame;
        batch.clear();
        *next = self.events;
        let time = match self.find_next() {
            Ok(time) => time?,
            Err(error) => {
                *other = Some((super::NO_TIME, Other::Damage(error, self.skip())));
                return Some(size_of::<Frame>());
            }
        };
        if let Some(step) = self.pending.take() {
            *other = Some((time, Other::Step(step)));
            view.show_packet(&self.view, 0, 0);
            return Some(size_of::<Frame>() + self.view.head.len());
        }
        *other = None;
        let first = self.batch.record(0).map_or(0, |record| record.start / 8);
        // In an event decoded by the walk, fields may depend on slot values from the walk: it stays alone.
        let is_alone = self
            .batch
            .record(0)
            .is_none_or(|record| record.lead == NO_ENTRY);
        let most = most / size_of::<super::EventRecord>();
        loop {
            self.events += self.batch.len() as u64;
            batch.append(&mut self.batch);
            // Continue with the content in memory.
            if is_alone || batch.len() >= most || !self.decode_batch() {
                break;
            }
        }
        let length = (self.at.div_ceil(8) - first).saturating_add(BEHIND);
        view.show_packet(&self.view, self.view.packet.offset + first, length);
        let records = batch.len() * size_of::<super::EventRecord>();
        Some(size_of::<Frame>() + records + view.window.held().0.len())
    }
}
