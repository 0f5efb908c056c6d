//! Begin and end of packets: sizes, times, and losses since the previous packet.

use std::cell::Cell;

use super::super::bits::{Cursor, Stop};
use super::super::event::{Gap, GapKind, PacketInfo};
use super::super::walk::Walk;
use super::{Decode, Roles, StreamReader};
use crate::error::{DecodeError, DecodeErrorKind as Kind};
use crate::metadata::Scope;
use crate::plan::Plan;

/// The magic number at the start of every packet, if the metadata has a field for it.
pub(super) const MAGIC: u64 = 0xc1fc_1fc1;
/// Maximum number of streams in one file whose last packet is remembered.
const MAX_INSTANCES: usize = 256;

/// The previous packet of one of the streams in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Previous {
    class: usize,
    instance: Option<u64>,
    cpu: Option<u64>,
    begin: Option<u64>,
    end: Option<u64>,
    sequence: Option<u64>,
    discarded: Option<u64>,
}

impl StreamReader {
    /// Opens the next packet; `false` at the end of the stream.
    pub(super) fn open_packet(&mut self) -> Result<bool, DecodeError> {
        let offset = self
            .view
            .packet
            .offset
            .saturating_add(self.view.packet.size.unwrap_or(0) / 8);
        self.view.packet = PacketInfo {
            offset,
            number: self.packets,
            ..PacketInfo::default()
        };
        (self.content_end, self.data_end, self.events, self.at) = (u64::MAX, None, 0, 0);
        self.fill(0, 8)?;
        if self.data_end == Some(0) {
            let missing = offset
                .saturating_sub(self.view.window.end())
                .saturating_mul(8);
            // The stream ends in the padding of the previous packet.
            return if missing > 0 {
                Err(self.error(Kind::Truncated { missing }, 0))
            } else {
                Ok(false)
            };
        }
        self.packets += 1;
        let (roles, foreign, stream, end) = loop {
            match self.packet_head() {
                Ok(found) => break found,
                Err(Stop::Fault(kind, at)) => return Err(self.fault(kind, at)),
                Err(Stop::More(upto)) => self.fill(0, upto)?,
            }
        };
        self.view.packet.stream_class = stream;
        self.view.packet.foreign = foreign;
        self.view.packet.stream_instance = roles.stream_instance;
        self.view.packet.begin_ticks = roles.begin;
        self.view.packet.end_ticks = roles.end;
        self.view.packet.seq_num = roles.sequence;
        self.view.packet.events_discarded = roles.discarded;
        self.view.packet.cpu_id = roles.cpu;
        self.set_sizes(roles, end)?;
        self.at = end;
        if self.is_repeated() {
            self.begins_file = false;
            self.packets -= 1;
            return Ok(true);
        }
        self.find_gaps();
        (self.open, self.announce) = (true, true);
        Ok(true)
    }

    /// Decodes the header and context of a packet: returns their roles, the stream class, and their end.
    fn packet_head(&mut self) -> Result<(Roles, bool, usize, u64), Stop> {
        let plan: &Plan = &self.view.plan;
        self.clocks.fill(0);
        let (bytes, first) = self.view.window.from(self.view.packet.offset);
        let origin = (first - self.view.packet.offset) * 8;
        let mut cursor = Cursor::new(
            bytes,
            origin,
            0,
            self.data_end.unwrap_or(u64::MAX),
            plan.mixed,
        );
        let mut decode = Decode {
            clocks: &mut self.clocks,
            roles: Roles::default(),
            uuid: plan.metadata.uuid,
            foreign: false,
            steps_back: false,
        };
        if let Some(program) = plan.packet_header {
            let walk = Walk {
                plan,
                slots: &self.view.slots,
                scope: Scope::PacketHeader,
                empties: Cell::new(0),
            };
            walk.node(program.skip, "", &mut cursor, &mut decode)?;
        }
        if let Some(found) = decode.roles.magic.filter(|magic| *magic != MAGIC) {
            return Err(Stop::Fault(Kind::Magic { found }, 0));
        }
        if decode.foreign && self.refuse_foreign {
            return Err(Stop::Fault(Kind::ForeignUuid, 0));
        }
        let streams = &plan.metadata.streams;
        let index = match decode.roles.stream_id {
            Some(id) => streams.iter().position(|stream| stream.id == id),
            None => (!streams.is_empty()).then_some(0),
        };
        let stream = index.and_then(|index| Some((index, plan.streams.get(index)?)));
        let Some((index, stream)) = stream else {
            let found = decode.roles.stream_id.unwrap_or(0);
            return Err(Stop::Fault(Kind::UnknownStream { found }, 0));
        };
        self.view.context_start = cursor.at;
        if let Some(program) = stream.packet_context {
            let walk = Walk {
                plan,
                slots: &self.view.slots,
                scope: Scope::PacketContext,
                empties: Cell::new(0),
            };
            walk.node(program.skip, "", &mut cursor, &mut decode)?;
        }
        let length = usize::try_from(cursor.at.div_ceil(8)).unwrap_or(usize::MAX);
        self.view.head.clear();
        self.view
            .head
            .extend_from_slice(bytes.get(..length).unwrap_or(bytes));
        Ok((decode.roles, decode.foreign, index, cursor.at))
    }

    /// Checks and stores the sizes that the packet states. If only one is stated it stands for both; without any, the
    /// packet extends to the end of the stream.
    fn set_sizes(&mut self, roles: Roles, head: u64) -> Result<(), DecodeError> {
        let Some(content) = roles.content_size.or(roles.packet_size) else {
            return Ok(());
        };
        let packet = roles.packet_size.unwrap_or(content);
        if !packet.is_multiple_of(8) || content > packet || content < head {
            return Err(self.error(
                Kind::PacketSize {
                    packet,
                    content,
                    least: head,
                },
                0,
            ));
        }
        self.view.packet.size = Some(packet);
        self.view.packet.content_size = Some(content);
        self.content_end = content;
        Ok(())
    }

    /// Whether an earlier file of the stream had this packet: snapshots have packets in common.
    fn is_repeated(&self) -> bool {
        let packet = &self.view.packet;
        let here = (packet.stream_class, packet.stream_instance, packet.cpu_id);
        let mut previous = self.previous.iter();
        let previous = previous.find(|it| (it.class, it.instance, it.cpu) == here);
        self.file > 0
            && packet.size.is_some_and(|size| size > 0)
            && previous
                .and_then(|it| match packet.seq_num {
                    Some(number) => Some(it.sequence? >= number),
                    // Such files are joined if their packets are in order of time.
                    None => Some(it.begin? >= packet.begin_ticks?),
                })
                .unwrap_or(false)
    }

    /// Discarded events, behind those of the packet.
    pub(super) fn discarded(&mut self) -> Option<Gap> {
        let mut gap = self.behind.take()?;
        let clock = self.view.plan.streams.get(self.view.packet.stream_class);
        let clock = clock.and_then(|stream| stream.clock);
        let last = clock.and_then(|clock| self.clocks.get(clock.0 as usize).copied());
        gap.from_ticks = match last.filter(|_| self.events > 0) {
            Some(last) => Some(last),
            None => self.view.packet.begin_ticks,
        };
        Some(gap)
    }

    /// Compares the packet's counters with those of the previous packet of the same stream.
    fn find_gaps(&mut self) {
        let Some(stream) = self.view.plan.streams.get(self.view.packet.stream_class) else {
            return;
        };
        let packet = &self.view.packet;
        let now = Previous {
            class: packet.stream_class,
            instance: packet.stream_instance,
            cpu: packet.cpu_id,
            begin: packet.begin_ticks,
            end: packet.end_ticks,
            sequence: packet.seq_num,
            discarded: packet.events_discarded,
        };
        let same = |it: &&mut Previous| {
            (it.class, it.instance, it.cpu) == (now.class, now.instance, now.cpu)
        };
        let before = self
            .previous
            .iter_mut()
            .find(same)
            .map(|it| std::mem::replace(it, now));
        if before.is_none() {
            if self.previous.len() == MAX_INSTANCES {
                self.previous.remove(0);
            }
            self.previous.push(now);
        }
        let is_first = before.is_none();
        // Without numbers, that two snapshots have no packet in common is all that shows a loss between them.
        let is_apart = std::mem::take(&mut self.begins_file) && now.sequence.is_none();
        let from_ticks = before.and_then(|before| before.end);
        if let (Some(before), Some(now)) = (before.and_then(|before| before.sequence), now.sequence)
        {
            let mask = u64::MAX >> (64 - stream.sequence_size.max(1));
            let lost = now.wrapping_sub(before).wrapping_sub(1) & mask;
            // A difference of more than half the range means that the number went backward: another run, or packets out
            // of order.
            let count = (lost <= mask / 2).then_some(lost);
            if lost != 0 {
                let gap = Gap {
                    kind: GapKind::Packets,
                    count,
                    from_ticks,
                    to_ticks: packet.begin_ticks,
                };
                self.gaps[0] = Some(gap);
            }
        } else if is_apart && !is_first {
            self.gaps[0] = Some(Gap {
                kind: GapKind::Packets,
                count: None,
                from_ticks,
                to_ticks: packet.begin_ticks,
            });
        }
        if let Some(now) = now.discarded {
            let mask = u64::MAX >> (64 - stream.discarded_size.max(1));
            let before = before.and_then(|before| before.discarded).unwrap_or(0);
            let lost = now.wrapping_sub(before) & mask;
            let gap = |kind, to_ticks| {
                Some(Gap {
                    kind,
                    count: Some(lost),
                    from_ticks,
                    to_ticks,
                })
            };
            let are_earlier = is_first && packet.seq_num.is_some_and(|it| it > 0);
            match lost {
                0 => {}
                _ if self.counts_before => {
                    self.gaps[1] = gap(GapKind::Events, packet.begin_ticks);
                }
                _ if are_earlier => {
                    self.gaps[1] = gap(GapKind::EarlierEvents, packet.begin_ticks);
                }
                _ => self.behind = gap(GapKind::Events, packet.end_ticks),
            }
        }
    }

    /// Closes the packet. If its size is unknown, it ends here.
    pub(super) fn close_packet(&mut self) -> Result<(), DecodeError> {
        self.open = false;
        self.mend_end();
        let size = *self
            .view
            .packet
            .size
            .get_or_insert(self.limit().saturating_add(7) & !7);
        if let Some(end) = self.data_end.filter(|end| *end < size) {
            return Err(self.error(
                Kind::Truncated {
                    missing: size - end,
                },
                end,
            ));
        }
        Ok(())
    }

    /// Moves the stated end of the packet to its last event: packets of some tracers end before that (LTTng before
    /// 2.11), or state 0 (after a crash). Losses after the packet begin at the corrected end.
    fn mend_end(&mut self) {
        let packet = &self.view.packet;
        let here = (packet.stream_class, packet.stream_instance, packet.cpu_id);
        let mut previous = self.previous.iter_mut();
        let own = previous.find(|it| (it.class, it.instance, it.cpu) == here);
        if let Some(end) = own
            .and_then(|it| it.end.as_mut())
            .filter(|_| self.events > 0)
            && let Some(clock) = self.view.plan.streams.get(here.0).and_then(|it| it.clock)
            && let Some(last) = self.clocks.get(clock.0 as usize)
        {
            // The clock still has the value of the last event.
            *end = (*last).max(*end);
        }
    }
}
