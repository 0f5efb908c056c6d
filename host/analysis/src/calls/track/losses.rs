//! What is certain of calls that were open in a loss.

use kymo_event::{Duration, FunctionId, Time};

use super::Track;
use crate::calls::frames::{Lost, Marks, Outer};
use crate::calls::output::{Callee, How};

impl Lost {
    /// What is certain of a call and of its self time, which take so many instructions with callees of so many. What was
    /// seen to run behind a loss is certain as well: instructions do not pass unseen.
    pub fn of_instructions(&self, self_time: Duration, callees: Duration) -> (Duration, Duration) {
        let since = self.seen.map_or(Duration(0), |seen| self_time - seen);
        let sure_self = self.sure_self + since;
        let sure = sure_self + (callees - self.unsure);
        (sure.max(self.sure), sure_self)
    }

    /// Counts from the beginning of a window on: a loss before may have hidden that other calls run.
    pub fn restart(&mut self) {
        (self.sure, self.sure_self, self.unsure) = (Duration(0), Duration(0), Duration(0));
        self.seen = self.seen.map(|_| Duration(0));
    }
}

/// From when on a thread has its processor.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::calls) struct Turn {
    /// When it got it.
    since: Option<Time>,
    /// How long it had run by then.
    ran: i64,
    /// When it got the one before.
    before: Option<Time>,
}

impl Track {
    /// It gets a processor.
    pub fn begin_turn(&mut self, time: Time) {
        self.turn = Turn {
            since: Some(time),
            ran: self.ran,
            before: self.turn.since,
        };
    }

    /// Events of another processor are missing since `from`: puts in doubt the calls that were open when the track got a
    /// processor last, if it may have had the other one in between. Whether it may have.
    pub fn doubt_elsewhere(&mut self, from: Time) -> bool {
        let Some(since) = self.turn.since.filter(|since| *since >= from) else {
            return false;
        };
        // Before, it had one from which nothing is missing. How long it had run at the end of earlier turns is not kept.
        let until = match self.turn.before.is_none_or(|before| before < from) {
            true => self.turn.ran,
            false => i64::MIN,
        };
        for lost in &mut self.lost {
            lost.seen = None;
        }
        let before = self.frames.iter().take_while(|frame| frame.begin <= since);
        self.doubt(before.count(), until);
        true
    }

    /// Puts everything that is open in doubt because of a loss: the times up to here are certain.
    pub fn doubt_loss(&mut self) {
        self.outer = Outer::default();
        // Those further out have been in doubt for longer.
        for index in 0..self.lost.len() {
            let own = self.own_time(index, self.ran);
            if let Some(lost) = self.lost.get_mut(index)
                && let Some(seen) = lost.seen.take()
            {
                lost.sure_self += own - seen;
            }
        }
        self.doubt(self.frames.len(), self.ran);
    }

    /// Puts the outermost `depth` calls in doubt: their times up to when the track had run that long are certain.
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

    /// The self time of an open call up to when the track had run that long; at least that, if callees have ended since.
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

    /// Whether the innermost call, which was open where a window began, may have ended before in a loss.
    pub fn may_have_ended(&self) -> bool {
        let innermost = self.frames.last();
        innermost.is_some_and(|frame| frame.marks.has(Marks::MAY_HAVE_ENDED))
    }

    /// The innermost call was [found](kymo_event::Row::found) open.
    pub fn find_open(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.marks.set(Marks::FOUND);
        }
    }

    /// This function runs, as is seen behind a loss.
    pub fn runs(&mut self, function: FunctionId) {
        let innermost = self.frames.last().map(|frame| frame.callee());
        if innermost == Some(Callee::Function(function)) {
            self.seen();
        }
    }

    /// The innermost call has a callee less, of which it may not have called so much.
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

    /// The innermost call is seen to run.
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

/// How long a track ran in between.
fn passed(from: i64, until: i64) -> Duration {
    Duration(u64::try_from(until.saturating_sub(from)).unwrap_or(0))
}
