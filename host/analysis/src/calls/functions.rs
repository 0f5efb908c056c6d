//! Enters and exits, and how exits are matched to open calls.

use kymo_event::{Addr, Cpu, Duration, FunctionId, Row, ThreadId, Time};

use super::Calls;
use super::cpu_state::Handlers;
use super::output::{Begin, Callee, Doubt, End, How, Repair, Step, TrackKind};
use super::track::Match;

impl Calls {
    /// Opens a call.
    #[inline]
    pub(super) fn enter(
        &mut self,
        track: usize,
        function: FunctionId,
        call_site: Option<Addr>,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let time = row.time;
        let deep = self.tracks[track].depth() >= self.options.max_depth as usize;
        if deep || self.tracks[track].hides() {
            self.counts.too_deep += 1;
            return self.tracks[track].hide(function);
        }
        let call = self.next_call();
        let has_unsure_caller = self.tracks[track].has_unsure_caller();
        let mut begin = self.tracks[track].begin(call, Callee::Function(function), time, call_site);
        if row.is_found() {
            begin.clipped = true;
            self.tracks[track].find_open();
        } else if has_unsure_caller {
            self.tracks[track].doubt_caller();
        }
        out(Step::Begin(self.placed(begin, track)));
    }

    /// Reports a call whose end the source never records.
    pub(super) fn called(
        &mut self,
        track: usize,
        function: FunctionId,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let (call, callee) = (self.next_call(), Callee::Function(function));
        let end = End {
            begin: Some(row.time),
            how: How::NoEnd,
            ..self.tracks[track].orphan(call, callee, row.time)
        };
        let begin = Begin {
            track: end.track,
            call,
            callee,
            time: row.time,
            depth: end.depth,
            call_site: None,
            caller: row.caller(),
            clipped: false,
            cpu: None,
            thread: None,
        };
        out(Step::Begin(self.placed(begin, track)));
        out(Step::End(end));
    }

    /// Adds the processor and thread of the track to a begin.
    pub(super) fn placed(&self, begin: Begin, track: usize) -> Begin {
        let (cpu, thread) = self.place_of(track);
        Begin {
            cpu,
            thread,
            ..begin
        }
    }

    /// The processor that a track has, and its thread.
    pub(super) fn place_of(&self, track: usize) -> (Option<Cpu>, Option<ThreadId>) {
        let found = &self.tracks[track];
        match found.info.kind {
            TrackKind::Thread { thread } => {
                let cpu = found.on.and_then(|cpu| self.cpus[cpu].place());
                (cpu.or(found.info.cpu), thread)
            }
            TrackKind::Interrupt { thread, .. } => (found.info.cpu, thread),
            TrackKind::Span { .. } => (found.info.cpu, None),
        }
    }

    /// Closes the call that an exit belongs to, and all calls above it.
    pub(super) fn exit(
        &mut self,
        cpu: usize,
        mut track: usize,
        function: Option<FunctionId>,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let time = row.time;
        if let Some(before) = self.crosses(cpu, track, function) {
            let depth = self.tracks[before].depth() - 1;
            return self.close(before, depth, time, |_| How::Returned, out);
        }
        self.cpus[cpu].crossed = None;
        let mut found = self.tracks[track].find(function);
        if found == Match::Nothing
            && let Some(function) = function
            && let Some(level) = self.interrupted(cpu, function)
        {
            // A `longjmp` left the handler: the code that it interrupted continues.
            self.end_interrupts(cpu, level, time, unfinished, out);
            track = self.cpus[cpu].running().unwrap_or(track);
            found = self.tracks[track].find(Some(function));
        }
        if let (Match::Open(index), Some(wall)) = (found, row.wall())
            && self.tracks[track].is_another(index, time, wall)
        {
            found = Match::Nothing;
        }
        match found {
            Match::Hidden => {}
            Match::Open(index) => {
                let handlers = &mut self.cpus[cpu].handlers;
                if *handlers == Handlers::UnknownAtSwitch && self.tracks[track].is_lossy(index) {
                    *handlers = Handlers::Known;
                }
                if self.tracks[track].depth() > index + 1 {
                    self.close(track, index + 1, time, unfinished, out);
                }
                let stated = Stated::of(row);
                let is_left = row.is_left();
                let how = |doubt| match is_left {
                    true => unfinished(doubt),
                    false => How::Returned,
                };
                self.close_one(track, (time, stated), how, out);
            }
            Match::Nothing => {
                // The call began before the trace or in the last loss. It made all calls that were entered since and
                // are still open, and they ended with it.
                let first = self.tracks[track].entered_since_loss();
                self.close(track, first, time, |_| How::Repaired(Repair::Unwound), out);
                let function = self.tracks[track].left_while_off(function);
                let callee = function.map_or(Callee::Unknown, Callee::Function);
                self.orphan(track, callee, (time, row.wall()), out);
            }
        }
    }

    /// The track whose innermost call an exit ends although another track has the processor: the exit is of code that
    /// switches threads. `None` if the exit belongs to the running track, or may belong to it.
    fn crosses(&self, cpu: usize, track: usize, function: Option<FunctionId>) -> Option<usize> {
        let found = &self.cpus[cpu];
        let (before, function) = (found.crossed?, function?);
        let ours = before == track || self.tracks[track].has_open(function);
        if ours || self.tracks[before].innermost() != Some(Callee::Function(function)) {
            return None;
        }
        // The running thread may have entered the same function before the trace began. It has not if it has open
        // calls entered since, which would lie within that one, or if it is no thread.
        let seen = self.tracks[track].depth() > self.tracks[track].entered_since_loss();
        let nobody = [Some(track), Some(before)].contains(&found.nobody);
        (seen || nobody).then_some(before)
    }

    /// How many interrupts stay active if an exit of `function` belongs to an interrupt below the innermost, or to
    /// the thread; `None` if neither has the function open.
    fn interrupted(&self, cpu: usize, function: FunctionId) -> Option<usize> {
        let found = &self.cpus[cpu];
        let below = found.interrupts.split_last()?.1;
        let holds = |track: &usize| self.tracks[*track].has_open(function);
        if let Some(level) = below.iter().rposition(holds) {
            return Some(level + 1);
        }
        found.thread.filter(holds).map(|_| 0)
    }

    /// Reports an exit without a call, with its wall time if that is known.
    pub(super) fn orphan(
        &mut self,
        track: usize,
        callee: Callee,
        (time, wall): (Time, Option<Duration>),
        out: &mut impl FnMut(Step<'_>),
    ) {
        self.counts.orphans += 1;
        let call = self.next_call();
        let mut end = self.tracks[track].orphan(call, callee, time);
        if let Some(wall) = wall {
            let within = self.window.and_then(|begin| time.since(begin));
            let within = within.filter(|within| *within < wall);
            end.clipped = within.is_some();
            self.tracks[track].stated(&mut end, within.unwrap_or(wall));
        } else {
            self.half_seen(track, &mut end, false);
        }
        out(Step::End(end));
    }

    /// Closes calls, innermost first, until `depth` remain open.
    pub(super) fn close(
        &mut self,
        track: usize,
        depth: usize,
        time: Time,
        how: impl Fn(Doubt) -> How,
        out: &mut impl FnMut(Step<'_>),
    ) {
        while self.tracks[track].depth() > depth {
            self.close_one(track, (time, Stated::Nothing), &how, out);
        }
    }

    /// Closes the innermost call, with its wall time if the source states it.
    fn close_one(
        &mut self,
        track: usize,
        (time, stated): (Time, Stated),
        how: impl FnOnce(Doubt) -> How,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let may_have_ended = self.tracks[track].may_have_ended();
        let Some(mut end) = self.tracks[track].end((time, stated.wall()), how) else {
            return;
        };
        if stated == Stated::Unknown {
            end.forget_times();
        }
        let unfinished = matches!(end.how, How::Repaired(_) | How::RecordingOff | How::Open);
        if unfinished && !end.uncounted {
            self.half_seen(track, &mut end, true);
        } else if may_have_ended && end.how == How::Returned && !end.wall_is_stated {
            // The exit may belong to another call.
            self.half_seen(track, &mut end, false);
        }
        let count = match end.how {
            How::Returned => {
                self.counts.doubtful += u64::from(end.doubt.any());
                let time = end.doubt.any() && !end.doubt.loss;
                self.counts.doubtful_time += u64::from(time);
                &mut self.counts.returned
            }
            How::Repaired(Repair::Unwound) => &mut self.counts.unwound,
            How::Repaired(Repair::Lost) => &mut self.counts.lost,
            How::Jumped => &mut self.counts.jumped,
            How::RecordingOff => &mut self.counts.recording_off,
            How::Open => &mut self.counts.open,
            // Never open, so not counted here.
            How::NoEnd | How::Orphan => return out(Step::End(end)),
        };
        *count += 1;
        out(Step::End(end));
    }
}

/// The duration of a call, as far as the source states it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stated {
    /// Nothing stated: the duration follows from the times of begin and end.
    Nothing,
    /// The stated wall time.
    Wall(Duration),
    /// Stated to be unknown.
    Unknown,
}

impl Stated {
    fn of(row: &Row) -> Self {
        match row.wall() {
            Some(wall) => Self::Wall(wall),
            None if row.is_untimed() => Self::Unknown,
            None => Self::Nothing,
        }
    }

    const fn wall(self) -> Option<Duration> {
        match self {
            Self::Wall(wall) => Some(wall),
            Self::Nothing | Self::Unknown => None,
        }
    }
}

/// How a call ended whose caller returned first: its exit was lost if events were lost, or it had none.
pub(super) fn unfinished(doubt: Doubt) -> How {
    How::Repaired(if doubt.loss {
        Repair::Lost
    } else {
        Repair::Unwound
    })
}
