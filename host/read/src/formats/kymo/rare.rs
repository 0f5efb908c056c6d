//! Meaning and fields of records with a form of their own.

use std::borrow::Cow;

use kymo_event::{
    Addr, ClockGap, Duration, Event, EventKind, Field, Gap, Identities, Row, RowKind, Ticks, Time,
    Value, Wanted, WholeCall,
};
use kymo_wire::event::{BLOCK_ALIGN, EventId, Layout, OTHER_BYTES};

use crate::dialects::kymo::{Dialect, call_end, recording_cause};

/// A record of [its own form](kymo_wire::event::Form::Other).
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) layout: Layout,
    pub(super) id: EventId,
    /// The bytes after the header.
    pub(super) payload: &'a [u8],
}

/// Record of a whole call, in ticks.
struct Call {
    number: Option<u32>,
    address: u64,
    duration: u64,
    own: u64,
    thread: u64,
}

impl Call {
    /// The address of the function.
    fn address(&self, dialect: &Dialect, time: Time) -> Addr {
        match self.number {
            Some(number) => dialect.address(number.into()),
            None => dialect.code(self.address, time),
        }
    }
}

impl<'a> Record<'a> {
    /// The record at offset `at` of a packet, `size` bytes long.
    pub(super) fn new(
        layout: Layout,
        id: EventId,
        content: &'a [u8],
        at: usize,
        size: usize,
    ) -> Self {
        let header = match id {
            EventId::Time => size,
            EventId::Block => (at + OTHER_BYTES).next_multiple_of(BLOCK_ALIGN) - at,
            _ => OTHER_BYTES,
        };
        let payload = content.get(at + header..at + size).unwrap_or(&[]);
        Self {
            layout,
            id,
            payload,
        }
    }

    /// The integer of `bytes` bytes at offset `from` of the payload.
    fn number(&self, from: usize, bytes: usize) -> u64 {
        let bytes = self.payload.get(from..from + bytes).unwrap_or(&[]);
        super::number(self.layout.order, bytes)
    }

    /// The word of the target's size at offset `from` of the payload.
    pub(super) fn word(&self, from: usize) -> u64 {
        self.number(from, self.layout.word.bytes())
    }

    /// The function number at the start of the payload.
    pub(super) fn function(&self) -> u32 {
        let bytes = self.layout.shape.named_bits() as usize / 8;
        u32::try_from(self.number(0, bytes)).unwrap_or(u32::MAX)
    }

    /// The word after a function number.
    pub(super) fn behind_function(&self) -> u64 {
        self.word(self.layout.shape.named_bits() as usize / 8)
    }

    /// The second word of the payload.
    pub(super) fn behind_word(&self) -> u64 {
        self.word(self.layout.word.bytes())
    }

    /// The whole payload as an integer.
    pub(super) fn whole(&self) -> u64 {
        super::number(self.layout.order, self.payload)
    }

    /// The payload's low 16 bits as a signed integer.
    pub(super) fn signed(&self) -> i64 {
        i64::from(self.whole() as u16 as i16)
    }

    /// The type and the bytes of a record with a length field.
    fn counted(&self) -> (u64, &'a [u8]) {
        (self.number(0, 2), self.payload.get(4..).unwrap_or(&[]))
    }

    /// The event kind of records besides calls, switches and interrupts.
    fn kind(&self, dialect: &Dialect, identities: &mut Identities, time: Time) -> EventKind {
        let word = self.layout.word.bytes();
        match self.id {
            EventId::Context => EventKind::Context {
                priority: (self.number(word, 2) as u16 as i16).into(),
                mode: self.number(word + 2, 2) as u32,
            },
            EventId::Marker => EventKind::Marker {
                label: None,
                value: self.whole(),
            },
            EventId::NamedMarker => EventKind::Marker {
                label: dialect.marker(self.word(0)),
                value: self.number(word, 4),
            },
            EventId::Metadata => {
                let (kind, value) = self.counted();
                let reported = dialect.metadata(identities, kind, value);
                reported.unwrap_or(EventKind::Fact)
            }
            EventId::ClockGap => EventKind::Gap(Gap::Clock(ClockGap {
                at_least: Duration(Ticks(self.whole()).to_ns(dialect.clock_hz)),
            })),
            EventId::Recording => EventKind::Recording {
                on: self.number(0, 1) != 0,
                cause: recording_cause(self.number(1, 1)),
            },
            EventId::Setjmp => EventKind::SetJmp {
                env: Addr(self.word(0)),
            },
            EventId::Longjmp => EventKind::LongJmp {
                env: Addr(self.word(0)),
            },
            EventId::WallClock => EventKind::WallClock {
                unix_ns: self.number(0, 8),
                uncertainty_ns: self.number(8, 4) as u32,
            },
            EventId::Time => EventKind::Time,
            EventId::Call | EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
                let call = self.call();
                let ns = |ticks| Duration(Ticks(ticks).to_ns(dialect.clock_hz));
                EventKind::Call(WholeCall {
                    function: identities.function_at(dialect.space, call.address(dialect, time)),
                    duration: ns(call.duration),
                    self_time: ns(call.own),
                    end: call_end(self.id),
                })
            }
            _ => EventKind::Other,
        }
    }

    /// Decodes the record of a whole call.
    fn call(&self) -> Call {
        let word = self.layout.word.bytes();
        let function = self.layout.shape.named_bits() as usize / 8;
        let (first, size) = match self.id {
            EventId::Call => (function, 4),
            _ => (word, 8),
        };
        Call {
            number: (self.id == EventId::Call).then(|| self.function()),
            address: self.word(0),
            duration: self.number(first, size),
            own: self.number(first + size, size),
            thread: self.word(first + 2 * size),
        }
    }

    /// The fields as recorded.
    fn fields(&self, dialect: &Dialect, time: Time) -> Vec<Field> {
        let word = self.layout.word.bytes();
        let hex = |name, from| Field::new(name, Value::Hex(self.word(from)));
        let plain = |name, from, bytes| Field::new(name, self.number(from, bytes));
        let bytes = |name| {
            let (kind, value) = self.counted();
            let length = self.number(2, 2);
            vec![
                Field::new("type", kind),
                Field::new("length", length),
                Field::new(name, Value::Bytes(value.to_vec())),
            ]
        };
        match self.id {
            EventId::Context => {
                let priority = i64::from(self.number(word, 2) as u16 as i16);
                vec![
                    hex("thread", 0),
                    Field::new("priority", priority),
                    plain("mode", word + 2, 2),
                ]
            }
            EventId::Marker => vec![plain("value", 0, 4)],
            EventId::NamedMarker => vec![hex("name", 0), plain("value", word, 4)],
            EventId::Metadata => bytes("value"),
            EventId::Block => bytes("data"),
            EventId::ClockGap => vec![plain("ticks", 0, 8)],
            EventId::Recording => vec![plain("on", 0, 1), plain("cause", 1, 1)],
            EventId::Setjmp | EventId::Longjmp => vec![hex("jmp_buf", 0)],
            EventId::WallClock => vec![plain("ns", 0, 8), plain("uncertainty", 8, 4)],
            EventId::Call | EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
                let call = self.call();
                vec![
                    Field::new("function", Value::Hex(call.address(dialect, time).0)),
                    Field::new("duration", call.duration),
                    Field::new("self_time", call.own),
                    Field::new("thread", Value::Hex(call.thread)),
                ]
            }
            _ => Vec::new(),
        }
    }

    /// The row of a record besides calls, switches and interrupts, if a row holds everything that is wanted of
    /// it.
    pub(super) fn row(&self, wanted: Wanted, template: Row) -> Option<Row> {
        let kind = match self.id {
            EventId::Setjmp => RowKind::SetJmp,
            EventId::Longjmp => RowKind::LongJmp,
            EventId::Time => RowKind::Time,
            _ => return None,
        };
        let word = match kind {
            RowKind::Time => Addr(0),
            _ => Addr(self.word(0)),
        };
        let mut row = template.word(word);
        row.kind = kind;
        (wanted == Wanted::Meaning).then_some(row)
    }

    /// The event of a record besides calls, switches and interrupts.
    pub(super) fn event(
        &self,
        dialect: &Dialect,
        identities: &mut Identities,
        (time, template): (Time, &Row),
    ) -> Event {
        let kept = matches!(
            self.id,
            EventId::NamedMarker | EventId::Metadata | EventId::Block
        );
        let fields = match dialect.wanted {
            Wanted::Meaning if !kept => Vec::new(),
            _ => self.fields(dialect, time),
        };
        let thread = match self.id {
            EventId::Call | EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
                dialect.thread(identities, self.call().thread)
            }
            _ => template.thread(),
        };
        Event {
            time,
            stream: template.stream,
            cpu: template.cpu(),
            thread,
            kind: self.kind(dialect, identities, time),
            named: false,
            record: true,
            stamp: None,
            name: Cow::Borrowed(self.id.name()),
            fields,
        }
    }
}
