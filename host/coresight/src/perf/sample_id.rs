//! What stands at the end of records that are no samples: whose they are, on which CPU.

use super::fields::{number, word};

/// Bits of a `sample_type`.
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID: u64 = 1 << 6;
const SAMPLE_CPU: u64 = 1 << 7;
const SAMPLE_STREAM_ID: u64 = 1 << 9;
const SAMPLE_IDENTIFIER: u64 = 1 << 16;

/// What stands at the end of each record: `sample_type`, if `sample_id_all` is set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SampleId(pub(super) u64);

impl SampleId {
    pub(super) fn of_attr(attr: &[u8]) -> Self {
        let is_all = number(attr, 40).is_some_and(|flags| flags >> 18 & 1 == 1);
        SampleId(if is_all {
            number(attr, 24).unwrap_or_default()
        } else {
            0
        })
    }

    /// Process, thread and CPU at the end of a record, where it has them.
    pub(super) fn of(self, record: &[u8]) -> (Option<(u32, u32)>, Option<u32>) {
        let fields = [
            SAMPLE_TID,
            SAMPLE_TIME,
            SAMPLE_ID,
            SAMPLE_STREAM_ID,
            SAMPLE_CPU,
            SAMPLE_IDENTIFIER,
        ];
        let present = fields.iter().filter(|field| self.0 & **field != 0);
        let Some(mut at) = record.len().checked_sub(8 * present.clone().count()) else {
            return (None, None);
        };
        let (mut thread, mut cpu) = (None, None);
        for field in present {
            match *field {
                SAMPLE_TID => thread = word(record, at).zip(word(record, at + 4)),
                SAMPLE_CPU => cpu = word(record, at),
                _ => {}
            }
            at += 8;
        }
        (thread, cpu)
    }
}
