//! Decoder for all records besides entries and exits of the usual forms: switches, interrupts, calls of far
//! functions, and rare records.

use kymo_event::{Batch, FunctionId, Identities, InterruptId, Row, RowKind, ThreadId, Time};
use kymo_wire::event::EventId;

use super::interned::Interned;
use super::rare::Record;
use crate::dialects::kymo::Dialect;

/// Decoder for records of [`Form::Other`](kymo_wire::event::Form::Other).
pub(super) struct Other<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) identities: &'a mut Identities,
    pub(super) interned: &'a mut Interned,
    /// The thread in the packet header, the base of relative thread numbers; 0 for none.
    pub(super) base: u64,
    /// The template of the stream's rows.
    pub(super) row: &'a mut Row,
}

impl Other<'_> {
    /// Adds a record to the batch; returns whether it was an entry.
    pub(super) fn push(&mut self, record: &Record<'_>, time: Time, batch: &mut Batch) -> bool {
        let place = *self.row;
        let row = |kind| of_kind(&place, kind, time);
        match record.id {
            EventId::ExitNamed => {
                let function = self.function(record.function());
                batch.push(named(row(RowKind::Exit).function(Some(function))));
            }
            EventId::ExitFar => {
                let function = self.far(record.whole(), time);
                batch.push(named(row(RowKind::Exit).function(Some(function))));
            }
            EventId::EnterFar => {
                let function = self.far(record.whole(), time);
                batch.push(row(RowKind::Enter).function(Some(function)));
                return true;
            }
            EventId::EnterFrom => {
                let function = self.function(record.function());
                let site = self.dialect.code(record.behind_function(), time);
                batch.push(row(RowKind::Enter).function(Some(function)).word(site));
                return true;
            }
            EventId::EnterFarFrom => {
                let function = self.far(record.word(0), time);
                let site = self.dialect.code(record.behind_word(), time);
                batch.push(row(RowKind::Enter).function(Some(function)).word(site));
                return true;
            }
            EventId::SwitchedIn => {
                let thread = self.thread(record.whole());
                self.run(thread);
                batch.push(row(RowKind::SwitchedIn).at(self.row.cpu(), thread));
            }
            EventId::SwitchedInNear => {
                let offset = record.signed().wrapping_mul(4);
                let number = self.base.wrapping_add_signed(offset);
                let thread = self.thread(self.dialect.word(number));
                self.run(thread);
                batch.push(row(RowKind::SwitchedIn).at(self.row.cpu(), thread));
            }
            EventId::SwitchedOut => {
                batch.push(row(RowKind::SwitchedOut));
                self.run(None);
            }
            EventId::SwitchedOutNamed => {
                let thread = self.thread(record.whole());
                batch.push(row(RowKind::SwitchedOut).at(self.row.cpu(), thread));
                self.run(None);
            }
            EventId::IsrEnter | EventId::IsrEnterWide => {
                let irq = self.interrupt(record.whole());
                batch.push(row(RowKind::IsrEnter).interrupt(irq));
            }
            EventId::IsrExit => batch.push(row(RowKind::IsrExit)),
            EventId::IsrExitNamed => {
                let irq = self.interrupt(record.whole());
                batch.push(row(RowKind::IsrExit).interrupt(irq));
            }
            id => {
                if id == EventId::Context {
                    let thread = self.thread(record.word(0));
                    self.run(thread);
                }
                let row = of_kind(self.row, RowKind::Other, time);
                match record.row(self.dialect.wanted, row) {
                    Some(row) => batch.push(row),
                    None => {
                        let place = (time, &*self.row);
                        let event = record.event(self.dialect, self.identities, place);
                        batch.push_event(event);
                    }
                }
            }
        }
        false
    }

    /// Sets the running thread, or none.
    fn run(&mut self, thread: Option<ThreadId>) {
        *self.row = self.row.at(self.row.cpu(), thread);
    }

    fn function(&mut self, number: u32) -> FunctionId {
        let Self {
            dialect,
            identities,
            interned,
            ..
        } = self;
        interned.function(dialect, identities, number)
    }

    /// The function at an address outside the range of function numbers.
    fn far(&mut self, address: u64, time: Time) -> FunctionId {
        let address = self.dialect.code(address, time);
        self.identities.function_at(self.dialect.space, address)
    }

    fn thread(&mut self, number: u64) -> Option<ThreadId> {
        let Self {
            dialect,
            identities,
            interned,
            ..
        } = self;
        interned.thread(dialect, identities, number)
    }

    fn interrupt(&mut self, number: u64) -> Option<InterruptId> {
        let Self {
            dialect,
            identities,
            interned,
            ..
        } = self;
        interned.interrupt(dialect, identities, number)
    }
}

/// The row of an exit whose record names the function.
const fn named(mut row: Row) -> Row {
    row.named = true;
    row
}

/// A row of this kind and time, with the template's other fields.
#[inline(always)]
pub(super) const fn of_kind(place: &Row, kind: RowKind, time: Time) -> Row {
    let mut row = *place;
    row.kind = kind;
    row.time = time;
    row
}
