//! Calls whose duration the source states.

use kymo_event::{Duration, Time};

use super::Track;
use crate::calls::frames::{Frame, Marks, Outer};
use crate::calls::output::End;

/// Maximum difference between two times that a source states for the begin of a call: when it began, and when its
/// entry was written.
const SAME: Duration = Duration(20_000);

impl Track {
    /// The wall time and the run time before the window of a clipped call that has just ended.
    #[cold]
    pub(super) fn before_window(&self, frame: &Frame) -> (Duration, Duration) {
        let before = self.before.get(self.frames.len());
        let wall = self.window.since(frame.begin);
        (
            wall.unwrap_or_default(),
            before.copied().unwrap_or_default(),
        )
    }

    /// The wall time, within the window, of a call that has just ended, if the source states the same duration: then
    /// no other call of the function, whose begin is lost, began when this one did.
    #[cold]
    pub(super) fn stated_over_loss(
        &self,
        frame: &Frame,
        stated: Duration,
        wall: Duration,
    ) -> Option<Duration> {
        let before = match frame.marks.has(Marks::CLIPPED) {
            true => self.before_window(frame).0,
            false => Duration(0),
        };
        let is_it = stated.0.abs_diff((wall + before).0) <= SAME.0;
        is_it.then_some(stated - before)
    }

    /// Marks the innermost call as ended unseen. The source measured its self time up to now.
    pub fn unseen_end(&mut self, own: Duration) {
        if let Some(frame) = self.frames.last_mut() {
            frame.marks.set(Marks::UNSEEN_END);
            let ran = u64::try_from(self.ran.saturating_sub(frame.ran)).unwrap_or(0);
            frame.callees = frame.callees.max(Duration(ran) - own);
        }
    }

    /// Processes a whole call, which is one event at its end; `wall` and `own` are the parts of its duration and self
    /// time that count. Its callees have ended before, and were charged to the call that is open.
    pub fn whole(&mut self, end: &mut End, (wall, own): (Duration, Duration)) {
        (end.wall, end.duration, end.self_time) = (Some(wall), Some(wall), Some(own));
        let begin = Time(end.time.0.saturating_sub_unsigned(wall.0));
        match self.frames.last_mut() {
            Some(caller) => caller.callees += own,
            None => {
                if self.outer.begin.is_none_or(|first| begin <= first) {
                    self.outer = Outer::default();
                }
                self.outer.add(begin, wall, Duration(0));
            }
        }
    }

    /// Applies the wall time that the source states for a call of which only the end is in the trace. Calls that
    /// ended with no open caller were its callees if it began before the first of them.
    pub fn stated(&mut self, end: &mut End, wall: Duration) {
        let begin = Time(end.time.0.saturating_sub_unsigned(wall.0));
        let encloses = self.outer.begin.is_none_or(|first| begin <= first);
        let (made, sure) = match self.frames.is_empty() && encloses {
            true => (
                self.outer.time.min(wall),
                self.outer.time - self.outer.unsure,
            ),
            false => (Duration(0), Duration(0)),
        };
        let sure = sure.min(made);
        (end.wall, end.duration, end.self_time) = (Some(wall), Some(wall), Some(wall - made));
        (end.sure, end.sure_self) = (Some(sure), Some(Duration(0)));
        end.doubt.loss = true;
        if self.frames.is_empty() && encloses {
            self.outer = Outer::default();
            self.outer.add(begin, wall, wall - sure);
        } else if self.frames.is_empty() {
            self.outer.add(begin, wall, wall);
        }
    }
}

/// The wall time and processor time of a call for which the source states `stated`. The source measured this at the
/// begin and end themselves, not when it wrote the records. It may exclude the time in which the thread was switched
/// out (`nosleep-time` of ftrace).
pub(super) fn as_stated(stated: Duration, wall: Duration, ran: Duration) -> (Duration, Duration) {
    if stated.0.abs_diff(ran.0) < stated.0.abs_diff(wall.0) {
        return (wall.max(stated), stated);
    }
    let off = wall - ran;
    (stated, stated - off)
}
