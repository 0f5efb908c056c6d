//! Calls that are one event each, at their ends, from sources that could not write them in order.

use kymo_event::{CallEnd, Duration, Row, WholeCall};

use super::Calls;
use super::output::{Callee, Step};

impl Calls {
    /// Processes a call whose event states its duration. Only its end is recorded, as for an
    /// [orphan](super::How::Orphan), but its times are certain where its thread is alone in its stream.
    pub(super) fn whole_call(
        &mut self,
        cpu: usize,
        call: &WholeCall,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = self.context(cpu, row, out);
        self.counts.orphans += 1;
        let (number, callee) = (self.next_call(), Callee::Function(call.function));
        let mut end = self.tracks[track].orphan(number, callee, row.time);
        let own = call.self_time.min(call.duration);
        let within = self.window.and_then(|begin| row.time.since(begin));
        let within = within.filter(|within| *within < call.duration);
        end.clipped = within.is_some();
        let wall = within.unwrap_or(call.duration);
        let before = call.duration - wall;
        // In a window it is unknown in which part of the call its self time lies.
        let most = own.min(wall);
        self.tracks[track].whole(&mut end, (wall, most));
        let alone = self.streams.get(row.stream.0 as usize);
        let alone = alone.is_some_and(|stream| stream.thread.is_some());
        let sure_self = match alone {
            true => own - before,
            false => Duration(0),
        };
        // Calls of the same function within it were counted, but not those in its self time.
        let sure = match alone && !row.is_recursive() {
            true => wall,
            false => sure_self,
        };
        (end.sure, end.sure_self) = (Some(sure), Some(sure_self));
        end.doubt.loss = sure < wall || sure_self < most;
        end.doubt.unseen_end = call.end != CallEnd::Returned;
        out(Step::End(end));
    }
}
