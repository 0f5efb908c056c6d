//! Source of a recording's events, with all streams merged by time.

use std::path::Path;

use kymo_event::{Batch, Cpu, Damage, Gap, Space, StreamId, StreamInfo, Time, TraceInfo};
use kymo_systemview::{Packet, Problem};

use super::counters;
use super::files::is_shared;
use super::meaning::{At, Meaning};
use super::stream::{Ahead, CUT, Next, Pending, Stream};
use crate::{OpenOptions, ReadError, Source};

/// Number of packets at the start of a stream that are read beforehand, because they describe the recording.
const DESCRIBING: usize = 4096;

/// Largest number of packets with the current time that are kept, to recognize them in another core's stream.
const REMEMBERED: usize = 256;

/// SystemView recording.
pub(super) struct SystemViewSource {
    info: TraceInfo,
    streams: Vec<Stream>,
    meaning: Meaning,
    /// Packets with the current time that other streams may have, too: stream and bytes.
    recent: Vec<(usize, Vec<u8>)>,
    moment: Time,
    /// Streams that seem to end within a packet, each with the gap to add if it continues.
    cut: Vec<(usize, Gap)>,
    failed: bool,
}

impl SystemViewSource {
    /// Creates the source of these streams. `path` is their location, for description files next to it.
    pub(super) fn new(
        mut streams: Vec<Stream>,
        path: Option<&Path>,
        options: &OpenOptions,
    ) -> Self {
        let mut info = TraceInfo {
            format: super::FORMAT.to_owned(),
            ..TraceInfo::default()
        };
        let space = info.identities.add_space(Space::default());
        for stream in &streams {
            info.streams.push(StreamInfo {
                name: stream.name.clone(),
                space,
                cpu: (!stream.is_of_two_cores()).then_some(Cpu(stream.core.unwrap_or(0))),
                ..StreamInfo::default()
            });
        }
        // The second cores of two-core streams have indices behind those of all streams.
        let mut meaning = Meaning::new(space, 2 * streams.len(), path, options);
        for stream in &mut streams {
            let Some(mut again) = stream.again() else {
                continue;
            };
            for _ in 0..DESCRIBING {
                let arguments = |id| meaning.descriptions.payload(id);
                if !matches!(again.advance(&arguments, true), Ok(Ahead::At(_))) {
                    break;
                }
                if let Some(pending) = again.take()
                    && let Some(packet) = again.packet(&pending)
                {
                    meaning.learn(&packet, &mut info);
                    meaning.survey(&packet);
                }
            }
            match again.frequency() {
                Some(frequency) => stream.set_frequency(frequency),
                None => info.remarks.push(format!(
                    "{}: expected a packet that tells the frequency of times, found none: ticks are shown as nanoseconds",
                    stream.name
                )),
            }
            meaning.begin();
        }
        Self {
            info,
            streams,
            meaning,
            recent: Vec::new(),
            moment: Time(i64::MIN),
            cut: Vec::new(),
            failed: false,
        }
    }

    /// Returns the stream with the earliest packet; `None` if no packet is available yet.
    fn earliest(&mut self, may_read: bool) -> Result<Option<usize>, ReadError> {
        let mut next: Option<(Time, usize)> = None;
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let descriptions = &self.meaning.descriptions;
            let arguments = |id| descriptions.payload(id);
            let ahead = stream
                .advance(&arguments, may_read)
                .map_err(|source| ReadError::Io {
                    stream: stream.name.clone(),
                    offset: stream.offset(),
                    source,
                })?;
            match ahead {
                Ahead::At(time) if next.is_none_or(|(earliest, _)| time < earliest) => {
                    next = Some((time, index));
                }
                Ahead::Wait => return Ok(None),
                _ => {}
            }
        }
        Ok(next.map(|(_, index)| index))
    }

    /// Returns whether another stream had this packet at this time.
    fn is_again(&mut self, index: usize, pending: &Pending) -> bool {
        if self.streams.len() < 2 {
            return false;
        }
        if pending.time != self.moment {
            self.recent.clear();
            self.moment = pending.time;
        }
        let Some(stream) = self.streams.get(index) else {
            return false;
        };
        if !stream
            .packet(pending)
            .is_some_and(|packet| is_shared(&packet))
        {
            return false;
        }
        let bytes = stream.packet_bytes(pending);
        // The delta depends on what each core sent before; the time is the same.
        let content = bytes
            .get(..bytes.len() - delta_bytes(bytes))
            .unwrap_or(bytes);
        let same = |(of, packet): &(usize, Vec<u8>)| *of != index && packet == content;
        if let Some(found) = self.recent.iter().position(same) {
            if self.streams.len() == 2 {
                self.recent.swap_remove(found);
            }
            return true;
        }
        if self.recent.len() < REMEMBERED {
            let content = content.to_vec();
            self.recent.push((index, content));
        }
        false
    }

    fn take(&mut self, index: usize, batch: &mut Batch) {
        let Some(pending) = self.streams.get_mut(index).and_then(Stream::take) else {
            return;
        };
        let is_again = self.is_again(index, &pending);
        let Some(stream) = self.streams.get(index) else {
            return;
        };
        let id = StreamId(u32::try_from(index).unwrap_or(u32::MAX));
        let (core, cpu) = match pending.of_second {
            true => (self.streams.len() + index, 1),
            false => (index, stream.core.unwrap_or(0)),
        };
        let second = self.streams.len() + index;
        let at = At {
            time: pending.time,
            stream: id,
            core,
            cpu: Cpu(cpu),
            other: stream.is_of_two_cores().then_some(if pending.of_second {
                index
            } else {
                second
            }),
        };
        if let Some(cut) = self.cut.iter().position(|(of, _)| *of == index) {
            let (_, gap) = self.cut.swap_remove(cut);
            self.meaning.gap(at, gap, batch);
        }
        if is_again {
            // A target does not report which core lost packets. The first stream with this packet has counted them.
            if let Some(Packet::Overflow { .. }) = stream.packet(&pending) {
                let events = Some(0);
                self.meaning.gap(at, Gap::Discarded { events }, batch);
            }
            return;
        }
        if let Next::Damage { bytes, problem } = pending.next {
            let is_first = self
                .info
                .stream(id)
                .is_some_and(|stream| stream.start.is_none());
            let is_rest = bytes < CUT && problem != Problem::Incomplete;
            if is_first && (is_rest || problem == Problem::Cut) {
                // A ring whose oldest packet is partly overwritten, or a target that was running before.
                let remark = format!(
                    "{}: lacks its beginning: the first {bytes} bytes, which may be the rest of a packet, are passed over",
                    stream.name
                );
                self.info.remarks.push(remark);
                self.meaning
                    .gap(at, Gap::LostPackets { packets: None }, batch);
                return;
            }
            let message = match problem {
                Problem::Incomplete => "the stream ends within a packet".to_owned(),
                problem => problem.to_string(),
            };
            self.info.add_damage(Damage {
                stream: stream.name.clone(),
                offset: pending.offset,
                message: message.clone(),
            });
            let gap = Gap::Damage {
                offset: pending.offset,
                bytes: Some(bytes),
                message,
            };
            match problem {
                // At the end, the gap is only added if the stream continues.
                Problem::Incomplete => self.cut.push((index, gap)),
                _ => self.meaning.gap(at, gap, batch),
            }
            return;
        }
        let is_first = self.info.streams.get(index);
        if is_first.is_some_and(|it| it.start.is_none()) && stream.is_guess() {
            let remark = format!(
                "{}: lacks its beginning, and its bytes do not show where the first packet begins: its first events are a guess",
                stream.name
            );
            self.info.remarks.push(remark);
        }
        if let Some(packet) = stream.packet(&pending) {
            self.meaning.learn(&packet, &mut self.info);
            self.meaning
                .packet(at, &packet, &mut self.info.identities, batch);
            if std::mem::take(&mut self.meaning.unregistered) {
                let remark = counters::UNREGISTERED;
                if !self.info.remarks.iter().any(|known| known == remark) {
                    self.info.remarks.push(remark.to_owned());
                }
            }
        }
        if let Some(stream) = self.info.streams.get_mut(index) {
            stream.start = stream.start.or(Some(pending.time));
            stream.end = Some(pending.time);
        }
    }
}

/// Returns the length in bytes of the number at the end of a packet.
fn delta_bytes(bytes: &[u8]) -> usize {
    let before = bytes.iter().rev().skip(1);
    (1 + before.take_while(|byte| **byte & 0x80 != 0).count()).min(bytes.len())
}

impl Source for SystemViewSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while !batch.is_full() && !self.failed {
            match self.earliest(batch.is_empty()) {
                Ok(Some(index)) => self.take(index, batch),
                Ok(None) => break,
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
        Ok(!batch.is_empty())
    }
}
