//! `sample_id` fields at the end of non-sample records: thread, time and CPU.

use std::collections::HashMap;

use super::fields::{number, word};

/// Bits of a `sample_type`.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID: u64 = 1 << 6;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_STREAM_ID: u64 = 1 << 9;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

/// Fields at the end of each record of an event: its `sample_type` if `sample_id_all` is set, else 0.
#[derive(Clone, Copy, Debug, Default)]
struct Layout(u64);

/// Values of a record's `sample_id` fields, as far as present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ending {
    /// Process and thread.
    pub thread: Option<(u32, u32)>,
    pub cpu: Option<u32>,
    /// Nanoseconds of perf's clock.
    pub time: Option<u64>,
}

/// `sample_id` layouts of all events.
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts {
    /// Layout of the first event.
    first: Option<Layout>,
    /// Layouts of other events, by the identifier at the end of their records.
    by_id: HashMap<u64, Layout>,
}

impl Layouts {
    /// Adds an event by its attributes and its identifiers.
    pub fn add(&mut self, attr: &[u8], ids: &[u8]) {
        let is_all = number(attr, 40).is_some_and(|flags| flags >> 18 & 1 == 1);
        let layout = Layout(match is_all {
            true => number(attr, 24).unwrap_or_default(),
            false => 0,
        });
        self.first.get_or_insert(layout);
        if layout.0 & SAMPLE_IDENTIFIER != 0 {
            let ids = ids.chunks_exact(8).filter_map(|id| number(id, 0));
            self.by_id.extend(ids.map(|id| (id, layout)));
        }
    }

    /// Adds an event of a HEADER_ATTR record: attributes, whose size is in the field after their type, then
    /// identifiers.
    pub fn add_record(&mut self, record: &[u8]) {
        let size = word(record, 4).and_then(|size| usize::try_from(size).ok());
        let ids = size.and_then(|size| record.get(size..));
        self.add(record, ids.unwrap_or_default());
    }

    /// Reads the `sample_id` fields of a record.
    pub fn read(&self, record: &[u8]) -> Ending {
        // Records of different events are distinguishable only if all of them end with an identifier.
        let last = record.len().checked_sub(8);
        let own = last
            .and_then(|at| number(record, at))
            .and_then(|id| self.by_id.get(&id));
        let layout = own.copied().or(self.first);
        layout.unwrap_or_default().read(record)
    }
}

impl Layout {
    fn read(self, record: &[u8]) -> Ending {
        let fields = [
            SAMPLE_TID,
            SAMPLE_TIME,
            SAMPLE_ID,
            SAMPLE_STREAM_ID,
            SAMPLE_CPU,
            SAMPLE_IDENTIFIER,
        ];
        let present = fields.iter().filter(|field| self.0 & **field != 0);
        let mut ending = Ending::default();
        let Some(mut at) = record.len().checked_sub(8 * present.clone().count()) else {
            return ending;
        };
        for field in present {
            match *field {
                SAMPLE_TID => ending.thread = word(record, at).zip(word(record, at + 4)),
                SAMPLE_TIME => ending.time = number(record, at),
                SAMPLE_CPU => ending.cpu = word(record, at),
                _ => {}
            }
            at += 8;
        }
        ending
    }
}
