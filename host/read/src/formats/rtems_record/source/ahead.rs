//! Look-ahead for the running thread at the start of a processor's records and behind gaps: the next switch names it.

use kymo_event::ThreadId;
use kymo_rtems_record::{Error, EventId, Record};

use super::{RecordSource, names};

/// Processors of each dump that have had a record, one bit each.
#[derive(Debug, Default)]
pub(super) struct Begun(Vec<[u64; 4]>);

impl Begun {
    /// Notes a record. Returns whether it is the first of its processor.
    fn is_first(&mut self, record: &Record) -> bool {
        let dump = usize::from(record.dump);
        if self.0.len() <= dump {
            self.0.resize(dump + 1, [0; 4]);
        }
        let word = self.0.get_mut(dump).and_then(|words| {
            let place = usize::from(record.cpu) / 64;
            words.get_mut(place)
        });
        let bit = 1 << (record.cpu % 64);
        word.is_some_and(|word| {
            let is_first = *word & bit == 0;
            *word |= bit;
            is_first
        })
    }
}

/// Number of records that are read at once to find the next switch: 6 MiB.
const AHEAD: usize = 1 << 18;

/// Returns whether a record is a gap.
fn is_gap(record: &Record) -> bool {
    !record.is_item && record.event == EventId::PER_CPU_OVERFLOW
}

/// Returns whether a record determines the processor's thread, or prevents later ones from doing so.
pub(super) fn decides(record: &Record) -> bool {
    match record.is_item {
        true => [EventId::THREAD_SWITCH_OUT, EventId::THREAD_SWITCH_IN].contains(&record.event),
        false => is_gap(record),
    }
}

impl RecordSource {
    /// Reads more records, up to the first switch of each processor and the first switch behind each gap. Does not wait
    /// for a live target.
    pub(super) fn read_ahead(&mut self) -> Result<bool, Error> {
        // Processors that began, or have a gap, without a switch behind it so far.
        let mut open: Vec<(u16, u8)> = Vec::new();
        let mut seen = self.records.len();
        loop {
            let more = self.inputs.read(&mut self.records)?;
            for record in self.records.get(seen..).unwrap_or_default() {
                let place = (record.dump, record.cpu);
                let is_first = self.begun.is_first(record);
                if is_gap(record) || is_first && !decides(record) {
                    if !open.contains(&place) {
                        open.push(place);
                    }
                } else if !open.is_empty() && decides(record) {
                    open.retain(|it| *it != place);
                }
            }
            seen = self.records.len();
            let is_done =
                open.is_empty() || !more || self.inputs.is_live() || self.inputs.has_faults();
            if is_done || seen >= AHEAD {
                return Ok(more);
            }
        }
    }

    /// Returns the thread that runs behind the current record, a gap or the first of its processor; `None` if no switch
    /// shows it.
    pub(super) fn thread_behind(&mut self, gap: &Record) -> Option<ThreadId> {
        let behind = self.records.get(self.next + 1..).unwrap_or_default();
        let mut behind = behind
            .iter()
            .filter(|it| (it.dump, it.cpu) == (gap.dump, gap.cpu));
        let next = behind.find(|record| decides(record));
        if next.is_none() && is_gap(gap) && self.inputs.is_live() {
            self.unseen += 1;
        }
        let out = next.filter(|record| record.event == EventId::THREAD_SWITCH_OUT)?;
        let (machine, id) = (self.dump.machine, out.data);
        Some(names::thread(&mut self.info.identities, machine, id))
    }
}
