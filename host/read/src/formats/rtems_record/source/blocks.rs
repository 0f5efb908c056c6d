//! What several records say together: locks, allocations, what is held off, blocks of memory.

use std::borrow::Cow;

use kymo_event::{Batch, Cpu, Event, EventKind, Field, FunctionId, Time, Value, Wanted};
use kymo_rtems_record::{EventId, Record, WordSize};

use super::{Block, RecordSource};
use crate::formats::rtems_record::meaning::Means;

/// Locks that are distinguished; hostile input has millions.
const LOCKS: usize = 1 << 12;

/// Bytes of a block of memory that are kept.
const BLOCK: usize = 1 << 16;

impl RecordSource {
    /// The function that stands for what is done with a lock.
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

    /// Counts memory of the network stack; an allocation can tell its zone and its address, one behind the other.
    pub(super) fn uma(&mut self, record: &Record, by: i8) -> u32 {
        let now = (record.cpu, Time(record.time), by, record.event);
        let is_same = self.dump.uma_last.is_some_and(|last| {
            (last.0, last.1, last.2) == (now.0, now.1, now.2) && last.3 != now.3
        });
        self.dump.uma_last = Some(now);
        if !is_same {
            self.dump.uma = self.dump.uma.saturating_add_signed(by.into());
        }
        self.dump.uma
    }

    /// Takes a word of a block of memory.
    pub(super) fn block(
        &mut self,
        record: &Record,
        means: Means,
        number: usize,
        batch: &mut Batch,
    ) {
        let format = self.dump.format;
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
            }
        }
    }

    /// Gives a block of memory that is whole.
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
