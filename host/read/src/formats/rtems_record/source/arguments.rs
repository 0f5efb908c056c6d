//! Arguments and results of a call, which are separate items behind its entry or exit.

use kymo_event::{Field, Value};
use kymo_rtems_record::{EventId, Record};

use super::RecordSource;
use crate::formats::rtems_record::meaning::Means;

/// Largest number of items that belong to one call.
const MOST: usize = 10;

impl RecordSource {
    /// Returns how many of the records can be output. Excludes the last call as long as arguments of it may arrive.
    pub(super) fn complete(&self) -> usize {
        let all = self.records.len();
        if self.ended || self.inputs.has_faults() {
            return all;
        }
        let mut tail = self.records.iter().rev().take(MOST);
        let calls = tail.position(|record| !self.is_argument(record));
        match calls.and_then(|behind| all.checked_sub(behind + 1)) {
            Some(at) if self.records.get(at).is_some_and(|it| self.is_call(it)) => at,
            _ => all,
        }
    }

    /// Returns whether a record is a call or code location that may have arguments behind it.
    fn is_call(&self, record: &Record) -> bool {
        let means = self.means.get(usize::from(record.event.0));
        record.is_item
            && matches!(
                means,
                Some(
                    Means::Begin(_)
                        | Means::End(_)
                        | Means::FunctionEntry
                        | Means::FunctionExit
                        | Means::Code
                )
            )
    }

    /// Returns whether a record is an argument of one before it.
    fn is_argument(&self, record: &Record) -> bool {
        let means = self.means.get(usize::from(record.event.0));
        record.is_item && matches!(means, Some(Means::Argument | Means::Return))
    }

    /// Adds the arguments in the items behind a record, which have the same time.
    pub(super) fn add_arguments(&self, record: &Record, fields: &mut Vec<Field>) {
        let behind = self.records.get(self.next + 1..).unwrap_or(&[]);
        for other in behind.iter().take(MOST) {
            let is_near = (other.cpu, other.time) == (record.cpu, record.time);
            if !is_near || !other.is_item || other.dump != record.dump {
                return;
            }
            let (name, first) = match self.means.get(usize::from(other.event.0)) {
                Some(Means::Argument) => ("arg", EventId::ARG_0),
                Some(Means::Return) => ("return", EventId::RETURN_0),
                _ => return,
            };
            let place = other.event.0.saturating_sub(first.0);
            fields.push(Field::new(format!("{name}{place}"), Value::Hex(other.data)));
        }
    }
}
