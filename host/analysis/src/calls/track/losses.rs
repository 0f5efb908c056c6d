//! Certain times of calls that were open in a loss.

use kymo_event::{Duration, FunctionId, Time};

use super::Track;
use crate::calls::frames::{Lost, Marks, Outer};
use crate::calls::output::{Callee, How};

impl Lost {
    /// The certain part of a call's duration and of its self time, in instructions, from its self time and its
    /// callees' time. Time after a loss is certain from where the call was seen to run, because instructions pass
    /// only when recorded.
    pub fn of_instructions(&self, self_time: Duration, callees: Duration) -> (Duration, Duration) {
        let since = self.seen.map_or(Duration(0), |seen| self_time - seen);
        let sure_self = self.sure_self + since;
        let sure = sure_self + (callees - self.unsure);
        (sure.max(self.sure), sure_self)
    }

    /// Restarts at the begin of a window: an earlier loss may have hidden that other calls run.
    pub fn restart(&mut self) {
        (self.sure, self.sure_self, self.unsure) = (Duration(0), Duration(0), Duration(0));
        self.seen = self.seen.map(|_| Duration(0));
    }
}

/// A period in which a thread has its processor.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::calls) struct Turn {
    /// When the thread got it.
    since: Option<Time>,
    /// The thread's run time by then.
    ran: i64,
    /// When the previous period began.
    before: Option<Time>,
    /// The time of the last event of the thread's earlier processor, if the thread was not seen to leave that.
    pub unseen: Option<Time>,
    /// The processor (as an index of cpus) from which it came without having been seen to leave it.
    pub moved_from: Option<usize>,
}

impl Turn {
    /// Whether it began behind `time`.
    pub fn is_behind(&self, time: Time) -> bool {
        self.since.is_some_and(|since| since > time)
    }

    /// Whether it began at `time`.
    pub fn began(&self, time: Time) -> bool {
        self.since == Some(time)
    }

    /// Adds `passed` nanoseconds to the run time before it.
    pub fn ran_before(&mut self, passed: i64) {
        self.ran = self.ran.saturating_add(passed);
    }
}

impl Track {
    /// Records that the track gets a processor.
    pub fn begin_turn(&mut self, time: Time) {
        self.turn = Turn {
            since: Some(time),
            ran: self.ran,
            // A period that ends in the tick of its begin is none.
            before: match self.turn.began(time) {
                true => self.turn.before,
                false => self.turn.since,
            },
            unseen: None,
            moved_from: None,
        };
    }

    /// Whether its period with this processor began at `time`, and it was not seen to leave the earlier one.
    pub fn came_unseen(&self, time: Time) -> bool {
        self.turn.began(time) && self.turn.unseen.is_some()
    }

    /// Whether its innermost call began before it got its processor.
    pub fn is_in_earlier_call(&self) -> bool {
        let innermost = self.frames.last();
        innermost.is_some_and(|frame| self.turn.since.is_some_and(|since| frame.begin < since))
    }

    /// Puts the calls in doubt that were open when it got its processor, if it was not seen to leave the earlier one:
    /// it may have left that at any time since then.
    pub fn doubt_unseen(&mut self) {
        if let Some(from) = self.turn.unseen.take() {
            self.doubt_elsewhere(from);
        }
    }

    /// Whether a loss of a processor's events leaves the track as it is: it has no processor, no call is open, and
    /// none was when recording was turned off.
    pub fn is_indifferent_to_loss(&self) -> bool {
        self.on.is_none() && self.frames.is_empty() && self.off.is_empty()
    }

    /// Handles events of another processor that are missing since `from`: puts in doubt the calls that were open when
    /// the track last got a processor, if it may have had the other one in between. Returns whether it may have.
    pub fn doubt_elsewhere(&mut self, from: Time) -> bool {
        let Some(since) = self.turn.since.filter(|since| *since >= from) else {
            return false;
        };
        // Before that it had a processor without missing events. The run time at the end of earlier periods is not
        // kept, but that at the begin of each open call.
        let until = match self.turn.before.is_none_or(|before| before < from) {
            true => self.turn.ran,
            false => {
                let before = self.frames.partition_point(|frame| frame.begin <= from);
                let last = before.checked_sub(1).and_then(|last| self.frames.get(last));
                last.map_or(i64::MIN, |frame| frame.ran)
            }
        };
        for lost in &mut self.lost {
            lost.seen = None;
        }
        let before = self.frames.iter().take_while(|frame| frame.begin <= since);
        self.doubt(before.count(), until);
        true
    }

    /// Puts all open calls in doubt because of a loss: their times up to here are certain.
    pub fn doubt_loss(&mut self) {
        self.outer = Outer::default();
        // Outer calls have been in doubt for longer.
        // Only walks in instructions keep what was seen.
        let seen = match self.in_instructions {
            true => self.lost.len(),
            false => 0,
        };
        for index in 0..seen {
            let own = self.own_time(index, self.ran);
            if let Some(lost) = self.lost.get_mut(index)
                && let Some(seen) = lost.seen.take()
            {
                lost.sure_self += own - seen;
            }
        }
        self.doubt(self.frames.len(), self.ran);
    }

    /// Puts the outermost `depth` calls in doubt: their times up to the run time `until` are certain.
    fn doubt(&mut self, depth: usize, until: i64) {
        for index in self.lost.len()..depth {
            let sure_self = self.own_time(index, until);
            let Some(frame) = self.frames.get_mut(index) else {
                break;
            };
            frame.marks.set(Marks::LOSS);
            let lost = Lost {
                sure: passed(frame.ran, until),
                sure_self,
                alive: self.losses,
                ..Lost::default()
            };
            self.lost.push(lost);
        }
    }

    /// The self time of an open call up to the run time `until`; a lower bound if callees have ended since.
    fn own_time(&self, index: usize, until: i64) -> Duration {
        let until = self
            .frames
            .get(index + 1)
            .map_or(until, |next| next.ran.min(until));
        let frame = self.frames.get(index);
        frame.map_or(Duration(0), |frame| {
            passed(frame.ran, until) - frame.callees
        })
    }

    /// Whether the innermost call, which was open at the begin of a window, may have ended before it in a loss.
    pub fn may_have_ended(&self) -> bool {
        let innermost = self.frames.last();
        innermost.is_some_and(|frame| frame.marks.has(Marks::MAY_HAVE_ENDED))
    }

    /// Marks the innermost call as [found](kymo_event::Row::found) open.
    pub fn find_open(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.marks.set(Marks::FOUND);
        }
    }

    /// Whether a call that begins now may not be the innermost call's, which was open when events were lost: that one
    /// has not executed an instruction since it was seen. A tail call of a function that was found open begins so.
    pub fn has_unsure_caller(&self) -> bool {
        let index = self.frames.len().checked_sub(1);
        let lost = index.and_then(|index| Some((index, self.lost.get(index)?)));
        self.in_instructions
            && lost.is_some_and(|(index, lost)| {
                let own = self.own_time(index, self.ran);
                lost.seen.is_none_or(|seen| seen >= own)
            })
    }

    /// Whether calls that begin now need [`has_unsure_caller`](Self::has_unsure_caller).
    pub fn may_have_unsure_callers(&self) -> bool {
        self.in_instructions && !self.lost.is_empty()
    }

    /// Marks the innermost call as one whose caller is not certain.
    pub fn doubt_caller(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.marks.set(Marks::UNSURE_CALLER);
        }
    }

    /// Records that this function is seen to run after a loss.
    pub fn runs(&mut self, function: FunctionId) {
        let innermost = self.frames.last().map(|frame| frame.callee());
        if innermost == Some(Callee::Function(function)) {
            self.seen();
        }
    }

    /// Records that a callee of the innermost call has ended, and the part of its time that may not have been called
    /// from there.
    pub(super) fn callee_ended(&mut self, unsure: Duration, how: How) {
        if let Some(index) = self.frames.len().checked_sub(1)
            && let Some(lost) = self.lost.get_mut(index)
        {
            lost.unsure += unsure;
            if how == How::Returned {
                self.seen();
            }
        }
    }

    /// Records that the innermost call is seen to run.
    fn seen(&mut self) {
        if self.in_instructions
            && let Some(index) = self.frames.len().checked_sub(1)
        {
            let own = self.own_time(index, self.ran);
            if let Some(lost) = self.lost.get_mut(index) {
                lost.seen.get_or_insert(own);
            }
        }
    }
}

/// The run time of a track between two readings.
fn passed(from: i64, until: i64) -> Duration {
    Duration(u64::try_from(until.saturating_sub(from)).unwrap_or(0))
}
