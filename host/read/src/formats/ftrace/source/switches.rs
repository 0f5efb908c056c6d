//! Switches of tasks.

use kymo_event::{Batch, Cpu, Row, RowKind, TraceInfo};

use super::{At, Reader};
use crate::formats::ftrace::meaning::Switch;
use crate::linux::is_dead;

impl Reader {
    /// Handles a switch from one task to another.
    pub(super) fn switch(
        &mut self,
        switch: &Switch,
        at: &At<'_>,
        info: &mut TraceInfo,
        batch: &mut Batch,
    ) {
        let (previous, next) = (
            self.pid(&switch.previous, at.data),
            self.pid(&switch.next, at.data),
        );
        let is_dead = || {
            let state = switch.previous_state.as_ref();
            state.is_some_and(|state| is_dead(self.trace.scope().field(state, at.data)))
        };
        let identities = &mut info.identities;
        let earlier = self.output.switched([previous, next], is_dead, identities);
        self.end_earlier(next, earlier, at, batch);
        self.name(previous, switch.previous_comm.as_ref(), at, info, batch);
        self.name(next, switch.next_comm.as_ref(), at, info, batch);
        let left = self.output.thread(previous, &mut info.identities);
        let entered = self.output.thread(next, &mut info.identities);
        for (thread, field) in [
            (left, &switch.previous_priority),
            (entered, &switch.next_priority),
        ] {
            if let (Some(thread), Some(field)) = (thread, field) {
                let priority = self.pid(field, at.data).into();
                info.identities.set_priority(thread, priority);
            }
        }
        let cpu = Some(Cpu(at.place.cpu));
        let out = at.row(RowKind::SwitchedOut).at(cpu, left);
        let into = at.row(RowKind::SwitchedIn).at(cpu, entered);
        match (left, entered) {
            (Some(_), Some(_)) => {
                let mut first = out;
                first.record = false;
                self.output.put_row(first, next, batch);
                self.switched(into, next, at, batch);
            }
            (Some(_), None) => self.switched(out, next, at, batch),
            (None, Some(_)) => self.switched(into, next, at, batch),
            (None, None) => self.other(at, batch),
        }
    }

    /// Adds the row of a switch to the task `next`.
    fn switched(&mut self, row: Row, next: i32, at: &At<'_>, batch: &mut Batch) {
        let mut out = self.out(row, at);
        out.pid = Some(next);
        self.output.put(out, batch);
    }
}
