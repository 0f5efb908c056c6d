//! Meanings that combine several records: locks, allocations, memory blocks.

use std::borrow::Cow;

use kymo_event::{Batch, Cpu, Event, EventKind, Field, FunctionId, Time, Value, Wanted};
use kymo_rtems_record::{EventId, Record, WordSize};

use super::{Block, RecordSource};
use crate::formats::rtems_record::meaning::Means;

/// Largest number of distinguished locks. It bounds memory for hostile inputs.
const LOCKS: usize = 1 << 12;

/// Largest number of bytes of a memory block that are kept.
const BLOCK: usize = 1 << 16;

/// Number of allocations of the network stack's zone allocator (UMA) that are not freed.
///
/// An allocation can be recorded by its address (`UMA_ALLOC_PTR`), by its zone (`UMA_ALLOC_ZONE`), or by both in
/// sequence; frees likewise. RTEMS and libbsd reserve these events but do not record them, so no source defines the
/// choice or the order. Once addresses are recorded, only they are counted.
#[derive(Debug, Default)]
pub(super) struct Uma {
    used: u32,
    allocated: Seen,
    freed: Seen,
}

/// Form of the records of allocations, or of frees.
#[derive(Debug, Default)]
struct Seen {
    /// Whether they are recorded by address.
    addresses: bool,
    /// Whether the last one was recorded by its zone.
    zone_last: bool,
}

impl Seen {
    /// Returns whether a record is a further allocation or free, not a second record of the same one.
    const fn counts(&mut self, is_address: bool) -> bool {
        let is_new = match is_address {
            true => self.addresses || !self.zone_last,
            false => !self.addresses,
        };
        self.addresses |= is_address;
        self.zone_last = !is_address;
        is_new
    }
}

impl Uma {
    /// Counts a record. Returns the new number of allocations, if the record counts.
    const fn count(&mut self, event: EventId, by: i8) -> Option<u32> {
        let is_address = matches!(event, EventId::UMA_ALLOC_PTR | EventId::UMA_FREE_PTR);
        let seen = if by > 0 {
            &mut self.allocated
        } else {
            &mut self.freed
        };
        if !seen.counts(is_address) {
            return None;
        }
        self.used = self.used.saturating_add_signed(by as i32);
        Some(self.used)
    }
}

impl RecordSource {
    /// Returns the function that represents an operation on a lock.
    pub(super) fn lock(&mut self, address: u64, verb: &str) -> FunctionId {
        let name = format!("{verb} ISR lock {address:#x}");
        let known = self.info.identities.functions().len();
        if self.locks < LOCKS {
            let function = self.info.identities.function_named(self.space, &name);
            self.locks += usize::from(self.info.identities.functions().len() > known);
            return function;
        }
        let name = format!("{verb} ISR lock");
        self.info.identities.function_named(self.space, &name)
    }

    /// Counts memory of the network stack; `None` for the second record of an allocation or free.
    pub(super) const fn uma(&mut self, record: &Record, by: i8) -> Option<u32> {
        self.dump.uma.count(record.event, by)
    }

    /// Ends the memory block in front of a record that belongs to another block.
    pub(super) fn end_other_block(
        &mut self,
        record: &Record,
        means: Means,
        number: usize,
        batch: &mut Batch,
    ) {
        let is_new = self
            .dump
            .cpus
            .get(number)
            .and_then(|cpu| cpu.block.as_ref())
            .is_some_and(|block| {
                let is_same = means == Means::BlockWord && block.event == Some(record.event);
                !block.bytes.is_empty() && !is_same
            });
        if is_new {
            self.end_block(number, batch);
        }
    }

    /// Adds a word to a memory block, and outputs the block if the word is its last.
    pub(super) fn block(
        &mut self,
        record: &Record,
        means: Means,
        number: usize,
        batch: &mut Batch,
    ) {
        let format = self.dump.format;
        let Some(cpu) = self.dump.cpus.get_mut(number) else {
            return;
        };
        let block = cpu.block.get_or_insert_with(Block::default);
        block.time = Time(record.time);
        match means {
            Means::BlockAddress => block.address = Some(record.data),
            Means::BlockLength => block.length = Some(record.data),
            _ => {
                block.event = Some(record.event);
                let bytes = match format.order {
                    kymo_rtems_record::ByteOrder::Little => record.data.to_le_bytes(),
                    kymo_rtems_record::ByteOrder::Big => match format.word {
                        WordSize::Bits32 => ((record.data) << 32).to_be_bytes(),
                        WordSize::Bits64 => record.data.to_be_bytes(),
                    },
                };
                let size = match format.word {
                    WordSize::Bits32 => 4,
                    WordSize::Bits64 => 8,
                };
                if block.bytes.len() < BLOCK {
                    block.bytes.extend(bytes.into_iter().take(size));
                }
                // Records of other processors may be between two words of this processor.
                let is_whole = |length| block.bytes.len() as u64 >= length;
                if block.length.is_some_and(is_whole) {
                    self.end_block(number, batch);
                }
            }
        }
    }

    /// Outputs a complete memory block.
    pub(super) fn end_block(&mut self, number: usize, batch: &mut Batch) {
        let Some(cpu) = self.dump.cpus.get_mut(number) else {
            return;
        };
        let (stream, thread) = (cpu.stream, cpu.thread);
        let Some(mut block) = cpu.block.take() else {
            return;
        };
        let Some(event) = block.event.filter(|_| self.wanted > Wanted::Meaning) else {
            return;
        };
        let mut fields = Vec::new();
        if let Some(address) = block.address {
            fields.push(Field::new("address", Value::Hex(address)));
        }
        if let Some(length) = block.length {
            fields.push(Field::new("length", length));
            block
                .bytes
                .truncate(usize::try_from(length).unwrap_or(usize::MAX));
        }
        fields.push(Field::new("bytes", Value::Bytes(block.bytes)));
        batch.push_event(Event {
            stream,
            cpu: u32::try_from(number).ok().map(Cpu),
            thread,
            record: false,
            stamp: None,
            name: Cow::Borrowed(match event {
                EventId::REGISTERS => "registers",
                EventId::BUFFER => "buffer",
                _ => "memory",
            }),
            fields,
            ..self.event(EventKind::Other, block.time)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_that_is_recorded_twice_counts_once() {
        const PTR: (EventId, i8) = (EventId::UMA_ALLOC_PTR, 1);
        const ZONE: (EventId, i8) = (EventId::UMA_ALLOC_ZONE, 1);
        const FREE_PTR: (EventId, i8) = (EventId::UMA_FREE_PTR, -1);
        const FREE_ZONE: (EventId, i8) = (EventId::UMA_FREE_ZONE, -1);
        for (records, used) in [
            (&[PTR, ZONE, PTR, ZONE, PTR, ZONE][..], 3),
            (&[ZONE, PTR, ZONE, PTR], 2),
            (&[PTR, PTR, ZONE, ZONE], 2),
            (&[PTR, PTR], 2),
            (&[ZONE, ZONE], 2),
            (&[PTR, ZONE, PTR, ZONE, FREE_PTR, FREE_ZONE], 1),
            (&[PTR, ZONE, FREE_ZONE, FREE_PTR], 0),
            (&[ZONE, ZONE, FREE_PTR], 1),
            (&[FREE_PTR], 0),
        ] {
            let mut uma = Uma::default();
            let counts = records.iter().map(|(event, by)| uma.count(*event, *by));
            assert_eq!(counts.flatten().last(), Some(used), "{records:?}");
        }
    }
}
