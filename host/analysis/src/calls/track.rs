//! The call stack of one track.

mod jumps;
mod losses;
mod stated;

use kymo_event::{Addr, Duration, FunctionId, SpaceId, Time};

use crate::hash::FastMap;

use super::cpu_state::Charge;
use super::frames::{Frame, Lost, Marks, OpenCounts, Outer, Stack};
use super::output::{Begin, CallId, Callee, Doubt, End, How, TrackId, TrackInfo};
use jumps::Mark;
use losses::Turn;
use stated::as_stated;

/// A track, and the calls that are open on it.
#[derive(Debug)]
pub(super) struct Track {
    pub id: TrackId,
    pub info: TrackInfo,
    /// The machine that it belongs to.
    pub machine: SpaceId,
    /// How long it has had a processor, in nanoseconds, as far as recorded. Steps back when the clock does.
    pub ran: i64,
    /// The processor (as an index of cpus) that a thread has.
    pub on: Option<usize>,
    /// The one that it had last.
    pub last_on: Option<usize>,
    /// Its place among the tracks of that one.
    pub listed_at: usize,
    /// When it last got its processor.
    pub turn: Turn,
    /// The open calls, outermost first.
    frames: Vec<Frame>,
    /// Number of open calls of each function: detects recursion, and whether an exit has its call here, without a
    /// walk through the frames.
    open: OpenCounts,
    /// Number of open calls beyond the maximum depth.
    hidden: u64,
    /// The functions of these calls.
    hidden_functions: FastMap<FunctionId, u64>,
    /// The targets of jumps, by environment.
    marks: FastMap<Addr, Mark>,
    /// State of the calls among `frames` that were open when events were lost: the outermost ones.
    lost: Vec<Lost>,
    /// The number of losses so far.
    losses: u32,
    /// The functions that were open when recording was turned off, outermost first: later exits without a function
    /// may belong to these.
    off: Vec<FunctionId>,
    /// Whether times are counts of the instructions in the trace.
    in_instructions: bool,
    /// Whether it is among the tracks that a loss may concern ([`Calls::exposed`](super::Calls)).
    pub exposed: bool,
    /// The last time that its source records; later times are extrapolated.
    pub last_time: Option<Time>,
    /// The begin of the last window in which calls were clipped.
    window: Time,
    /// How long each call that was clipped there had run by then: the outermost calls.
    before: Vec<Duration>,
    outer: Outer,
}

/// Maximum difference between two times that a source states for the begin of one call.
const NEAR: Duration = Duration(1_000_000);

/// The call that an exit matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The open call with this index; calls above it must be closed first.
    Open(usize),
    /// A call that is too deep to be followed.
    Hidden,
    /// None: no call of this function is open.
    Nothing,
}

impl Track {
    pub fn new(id: TrackId, info: TrackInfo, machine: SpaceId, in_instructions: bool) -> Self {
        Self {
            id,
            info,
            machine,
            in_instructions,
            exposed: false,
            last_time: None,
            // A span's run time is the time of the trace.
            ran: if info.is_span() { i64::MIN } else { 0 },
            on: None,
            last_on: None,
            listed_at: 0,
            turn: Turn::default(),
            frames: Vec::new(),
            open: OpenCounts::default(),
            hidden: 0,
            hidden_functions: FastMap::default(),
            marks: FastMap::default(),
            lost: Vec::new(),
            losses: 0,
            off: Vec::new(),
            window: Time(0),
            before: Vec::new(),
            outer: Outer::default(),
        }
    }

    /// Adds `passed` nanoseconds to its run time. Returns the run time and the innermost call, which is charged.
    #[inline]
    pub fn charge(&mut self, passed: i64) -> (i64, Option<(CallId, Callee)>) {
        self.ran = self.ran.saturating_add(passed);
        let innermost = self.frames.last();
        (
            self.ran,
            innermost.map(|frame| (frame.call, frame.callee())),
        )
    }

    /// Adds `passed` nanoseconds before `time` to its run time, after calls may have begun at `time` or later.
    pub fn charge_before(&mut self, passed: i64, time: Time) {
        self.ran = self.ran.saturating_add(passed);
        self.turn.ran_before(passed);
        let begun = self.frames.iter_mut().rev();
        for frame in begun.take_while(|frame| frame.begin >= time) {
            frame.ran = frame.ran.saturating_add(passed);
        }
    }

    /// For spans: advances their run time to `time`.
    pub fn run_to(&mut self, time: Time) {
        self.ran = self.ran.max(time.0);
    }

    /// Takes back a charge for time that did not pass. Returns the charged call if it has ended and can't be
    /// corrected any more.
    pub fn give_back(&mut self, charge: Charge) -> Option<(CallId, Callee)> {
        self.ran = self.ran.saturating_sub(charge.passed);
        let mut frames = self.frames.iter_mut().rev();
        // Calls that began later had `passed` less run time when they began.
        let open_then = frames.find_map(|frame| {
            if frame.ran < charge.until {
                return Some(frame);
            }
            frame.ran = frame.ran.saturating_sub(charge.passed);
            None
        });
        let (call, callee) = charge.call?;
        if let Some(frame) = open_then {
            if frame.call == call {
                return None;
            }
            let passed = charge.passed.unsigned_abs();
            frame.callees = Duration(frame.callees.0.saturating_sub(passed));
        }
        Some((call, callee))
    }

    /// The open calls, outermost first, with their call sites.
    pub fn open_calls(&self) -> impl Iterator<Item = (CallId, Callee, Addr)> {
        self.frames.iter().map(|frame| {
            let site = frame.call_site().unwrap_or_default();
            (frame.call, frame.callee(), site)
        })
    }

    /// Whether a call is open. (Calls have numbers in the order of their begins.)
    pub fn is_open(&self, call: CallId) -> bool {
        self.frames
            .binary_search_by_key(&call.0, |frame| frame.call.0)
            .is_ok()
    }

    /// Whether an open call that began before `call` is of the same callee.
    pub fn is_within(&self, call: CallId, callee: Callee) -> bool {
        let before = self.frames.partition_point(|frame| frame.call.0 < call.0);
        let mut frames = self.frames.iter().take(before);
        frames.any(|frame| frame.callee() == callee)
    }

    /// The number of open calls.
    pub fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Limits the self time of the innermost call to `own`, if it is of this function. The excess counts as callees
    /// that are not in the trace.
    pub fn hide_callees(&mut self, function: Option<FunctionId>, own: Duration) {
        let ran = self.ran;
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        if function.map(Callee::Function) == Some(frame.callee()) {
            let duration = u64::try_from(ran.saturating_sub(frame.ran)).unwrap_or(0);
            let rest = Duration(duration) - frame.callees;
            if rest > own {
                frame.callees += rest - own;
            }
        }
    }

    /// Opens a call.
    #[inline(always)]
    pub fn begin(
        &mut self,
        call: CallId,
        callee: Callee,
        time: Time,
        call_site: Option<Addr>,
    ) -> Begin {
        if self.info.is_span() {
            self.run_to(time);
        }
        let begin = Begin {
            track: self.id,
            call,
            callee,
            time,
            depth: self.frames.len() as u32,
            call_site,
            caller: None,
            clipped: false,
            cpu: None,
            thread: None,
        };
        let mut frame = Frame::new(call, callee, (time, self.ran), call_site);
        if let Callee::Function(function) = callee
            && self.open.add(function) > 0
        {
            frame.marks.set(Marks::RECURSIVE);
        }
        self.frames.push(frame);
        begin
    }

    /// Counts a call that is too deep to be followed.
    pub fn hide(&mut self, function: FunctionId) {
        self.hidden += 1;
        *self.hidden_functions.entry(function).or_default() += 1;
    }

    /// Whether calls beyond the maximum depth are open.
    pub const fn hides(&self) -> bool {
        self.hidden > 0
    }

    /// Finds the call that an exit belongs to. An exit that does not name its function belongs to
    /// the innermost call.
    #[inline]
    pub fn find(&mut self, function: Option<FunctionId>) -> Match {
        if self.hidden > 0 && self.unhide(function) {
            return Match::Hidden;
        }
        let wanted = function.map(Callee::Function);
        let Some(top) = self.frames.len().checked_sub(1) else {
            return Match::Nothing;
        };
        let fits = |frame: &Frame| match wanted {
            Some(wanted) => frame.callee() == wanted,
            None => !matches!(frame.callee(), Callee::Interrupt(_)),
        };
        if self.frames.last().is_some_and(fits) {
            return Match::Open(top);
        }
        match function {
            Some(function) if self.open.has(function) => {
                let index = self.frames.iter().rposition(fits);
                index.map_or(Match::Nothing, Match::Open)
            }
            _ => Match::Nothing,
        }
    }

    /// The index of the innermost call that was entered at this time.
    pub fn entered(&self, time: Time) -> Option<usize> {
        let is_it =
            |frame: &Frame| frame.begin == time && matches!(frame.callee(), Callee::Function(_));
        self.frames.iter().rposition(is_it)
    }

    /// Remembers the functions that are open. Called before recording is turned off.
    pub fn remember_off(&mut self) {
        self.off.clear();
        self.off
            .extend(self.frames.iter().filter_map(|frame| match frame.callee() {
                Callee::Function(function) => Some(function),
                _ => None,
            }));
    }

    /// The function of an exit without a call, if it was open when recording was turned off.
    pub fn left_while_off(&mut self, function: Option<FunctionId>) -> Option<FunctionId> {
        let open = self.off.pop();
        if function.is_some() && function != open {
            self.off.clear();
        }
        function.or(open)
    }

    /// The innermost open call.
    pub fn innermost(&self) -> Option<Callee> {
        self.frames.last().map(|frame| frame.callee())
    }

    /// Whether a function is open.
    pub fn has_open(&self, function: FunctionId) -> bool {
        self.open.has(function)
    }

    /// Whether the exit belongs to a hidden call. An exit of any other function shows that all hidden calls have
    /// ended.
    fn unhide(&mut self, function: Option<FunctionId>) -> bool {
        let Some(function) = function else {
            self.hidden -= 1;
            if self.hidden == 0 {
                self.hidden_functions.clear();
            }
            return true;
        };
        if let Some(count) = self.hidden_functions.get_mut(&function) {
            *count -= 1;
            if *count == 0 {
                self.hidden_functions.remove(&function);
            }
            self.hidden -= 1;
            return true;
        }
        self.forget_hidden();
        false
    }

    /// Drops the calls that are too deep to be followed.
    #[inline]
    pub fn forget_hidden(&mut self) {
        if self.hidden > 0 {
            self.hidden = 0;
            self.hidden_functions.clear();
        }
    }

    /// Its calls, to be opened and closed in a loop.
    #[inline(always)]
    pub fn stack(&mut self) -> Stack<'_> {
        Stack {
            id: self.id,
            frames: std::mem::take(&mut self.frames),
            open: &mut self.open,
            outer: Outer::default(),
            home: &mut self.frames,
            outer_home: &mut self.outer,
        }
    }

    /// Closes the innermost call, with its wall time if the source states it.
    pub fn end(
        &mut self,
        (time, stated): (Time, Option<Duration>),
        how: impl FnOnce(Doubt) -> How,
    ) -> Option<End> {
        if self.info.is_span() {
            self.run_to(time);
        }
        let frame = self.frames.pop()?;
        let lost = match frame.marks.has(Marks::LOSS) {
            true => self.lost.pop().unwrap_or_default(),
            false => Lost::default(),
        };
        self.forget_hidden();
        let clipped = frame.marks.has(Marks::CLIPPED);
        let begin = match clipped {
            true => self.window,
            false => frame.begin,
        };
        let found = frame.marks.has(Marks::FOUND);
        let wall = time.since(begin);
        let ran = self.ran.saturating_sub(frame.ran);
        let duration = Duration(u64::try_from(ran).unwrap_or(0));
        // Only this comparison detects that the clocks of two processors disagree.
        let clock = wall.is_none_or(|wall| wall < duration);
        let doubt = Doubt {
            loss: frame.marks.has(Marks::LOSS),
            clock: clock || frame.marks.has(Marks::CLOCK),
            interrupt: frame.marks.has(Marks::INTERRUPT),
            unseen_end: frame.marks.has(Marks::UNSEEN_END),
        };
        let how = how(doubt);
        let over_loss = match (stated, wall) {
            (Some(stated), Some(wall)) if doubt.loss => self.stated_over_loss(&frame, stated, wall),
            _ => None,
        };
        let (wall, duration) = match (stated, wall) {
            (Some(_), Some(_)) if over_loss.is_some() => (over_loss, duration),
            (Some(stated), Some(wall)) if !doubt.loss => {
                // The part before the window was counted as the rows have it. The rest counts in this one, so that
                // windows add up to the whole.
                let (wall_before, before) = match clipped {
                    true => self.before_window(&frame),
                    false => (Duration(0), Duration(0)),
                };
                let (wall, duration) = as_stated(stated, wall + wall_before, duration + before);
                (Some(wall - wall_before), duration - before)
            }
            _ => (wall, duration),
        };
        let self_time = match self.info.is_span() {
            true => Duration(0),
            false => duration - frame.callees,
        };
        let is_behind = self.last_time.is_some_and(|last| begin >= last);
        let is_endless = is_behind && how != How::Returned;
        let (sure, sure_self) = match doubt {
            // Some of it may be an interrupt's, or it is open at the end, whose time is unknown.
            _ if doubt.interrupt || is_endless => (Duration(0), Duration(0)),
            Doubt { loss: true, .. } => {
                let (sure, sure_self) = match self.in_instructions {
                    true => lost.of_instructions(self_time, frame.callees),
                    false => (lost.sure, lost.sure_self),
                };
                (sure.min(duration), sure_self.min(self_time))
            }
            _ => (duration, self_time),
        };
        // No call ran longer than its wall time, whatever the clocks say.
        let most = wall.unwrap_or_default();
        let (sure, sure_self) = (sure.min(most), sure_self.min(most));
        if how == How::Returned && doubt.loss {
            self.confirm();
        }
        match self.frames.last_mut() {
            Some(caller) => caller.callees += duration,
            None => self.outer.add(begin, duration, duration - sure),
        }
        if self.in_instructions && !self.lost.is_empty() {
            let sure = match (found || frame.marks.has(Marks::UNSURE_CALLER), doubt.loss) {
                (true, _) => Duration(0),
                (false, true) => lost.sure,
                (false, false) => duration,
            };
            self.callee_ended(duration - sure, how);
        }
        if let Callee::Function(function) = frame.callee() {
            self.open.release(function);
        }
        Some(End {
            track: self.id,
            call: frame.call,
            callee: frame.callee(),
            time,
            depth: self.frames.len() as u32,
            begin: Some(begin),
            wall: Some(wall.unwrap_or_default()),
            duration: Some(duration),
            self_time: Some(self_time),
            sure: Some(sure),
            sure_self: Some(sure_self),
            how,
            doubt,
            recursive: frame.marks.has(Marks::RECURSIVE),
            clipped: clipped || found,
            uncounted: frame.marks.has(Marks::MAY_HAVE_ENDED) && how != How::Returned,
            wall_is_stated: over_loss.is_some(),
        })
    }

    /// The end of a call whose begin was not seen.
    pub fn orphan(&self, call: CallId, callee: Callee, time: Time) -> End {
        let recursive = match callee {
            Callee::Function(function) => self.has_open(function),
            Callee::Interrupt(_) | Callee::Unknown => false,
        };
        End {
            track: self.id,
            call,
            callee,
            time,
            depth: self.frames.len() as u32,
            begin: None,
            wall: None,
            duration: None,
            self_time: None,
            sure: None,
            sure_self: None,
            how: How::Orphan,
            doubt: Doubt::default(),
            recursive,
            clipped: false,
            uncounted: false,
            wall_is_stated: false,
        }
    }

    /// Whether an exit at `time` of a call with this wall time can't belong to the call at `index`, which was open
    /// when events were lost, because its own call clearly began later.
    pub fn is_another(&self, index: usize, time: Time, wall: Duration) -> bool {
        let frame = self.frames.get(index).filter(|_| self.is_lossy(index));
        let open = frame.and_then(|frame| time.since(frame.begin));
        open.is_some_and(|open| open > wall + NEAR)
    }

    /// Clips the open calls at the begin of a window, from which their times count. Passes a begin for each call to
    /// `begun`, outermost first.
    pub fn clip(&mut self, time: Time, mut begun: impl FnMut(Begin)) {
        self.window = time;
        if self.info.is_span() {
            self.run_to(time);
        }
        self.outer = Outer::default();
        for lost in &mut self.lost {
            // An earlier loss may have hidden that other calls run.
            lost.restart();
        }
        let earlier = std::mem::take(&mut self.before);
        for (depth, frame) in self.frames.iter_mut().enumerate() {
            let ran = Duration(u64::try_from(self.ran.saturating_sub(frame.ran)).unwrap_or(0));
            let known = earlier.get(depth).copied().unwrap_or_default();
            self.before.push(match frame.marks.has(Marks::CLIPPED) {
                true => known + ran,
                false => ran,
            });
            if frame.begin < time {
                frame.marks.set(Marks::CLIPPED);
                if frame.marks.has(Marks::LOSS) {
                    frame.marks.set(Marks::MAY_HAVE_ENDED);
                }
            }
            frame.begin = frame.begin.min(time);
            frame.ran = self.ran;
            frame.callees = Duration(0);
            // Doubts about the times before the window do not apply to those within it.
            frame.marks.unset(Marks::CLOCK);
            frame.marks.unset(Marks::INTERRUPT);
            begun(Begin {
                track: self.id,
                call: frame.call,
                callee: frame.callee(),
                time,
                depth: depth as u32,
                call_site: frame.call_site(),
                caller: None,
                clipped: frame.marks.has(Marks::CLIPPED),
                cpu: None,
                thread: None,
            });
        }
    }

    /// The index of the first of the innermost calls that were all entered since the last loss; the number of calls
    /// if there is none. Interrupts do not count among them, because they end by themselves.
    pub fn entered_since_loss(&self) -> usize {
        let since = self.frames.iter().rev().take_while(|frame| {
            !frame.marks.has(Marks::LOSS) && !matches!(frame.callee(), Callee::Interrupt(_))
        });
        self.frames.len() - since.count()
    }

    /// Puts all open calls in doubt. Returns the index of the first call without a sign of life for more than
    /// `survived` losses.
    pub fn lose(&mut self, survived: u32) -> Option<usize> {
        self.doubt_loss();
        self.count_loss(survived)
    }

    /// Counts a loss. Returns the index of the first call without a sign of life for more than `survived` losses.
    pub fn count_loss(&mut self, survived: u32) -> Option<usize> {
        self.off.clear();
        let now = self.losses.wrapping_add(1);
        self.losses = now;
        self.lost
            .iter()
            .position(|lost| now.wrapping_sub(lost.alive) > survived)
    }

    /// Whether a call is in doubt because of a loss.
    pub fn is_lossy(&self, index: usize) -> bool {
        index < self.lost.len()
    }

    /// Puts the times of all open calls in doubt because of the clock.
    pub fn doubt_clock(&mut self) {
        self.mark_all(Marks::CLOCK);
    }

    /// Puts the times of all open calls in doubt because of an interrupt.
    pub fn doubt_interrupt(&mut self) {
        self.mark_all(Marks::INTERRUPT);
    }

    /// Marks all open calls. Callers of a marked call are marked already.
    fn mark_all(&mut self, mark: Marks) {
        let frames = self.frames.iter_mut().rev();
        for frame in frames.take_while(|frame| !frame.marks.has(mark)) {
            frame.marks.set(mark);
        }
    }

    /// Confirms that calls from before the last loss are open: one of them gave a sign of life, so its callers are
    /// open too.
    fn confirm(&mut self) {
        for lost in self.lost.iter_mut().rev() {
            // Calls below a confirmed call are confirmed already.
            if lost.alive == self.losses {
                break;
            }
            lost.alive = self.losses;
        }
    }
}
