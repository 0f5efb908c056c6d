//! What recording cost, taken off the times of calls.
//!
//! A target that has measured itself tells for each kind of event how long it takes before the
//! moment that it records, and after it ([`RecordingCost`]). Between two neighbouring events the
//! trace shows what the program did, and what the first event took after its moment and the second
//! before its own. [`Compensation`] follows the events and the steps that [`Calls`](crate::calls::Calls)
//! makes of them, and charges each part to the call that was the innermost of its track at that
//! moment: what comes before an enter to the caller, what comes after it to the callee, and the same
//! at exits and interrupts. What is charged to a call is subtracted from its self time, and from the
//! durations of all calls around it on the track.
//!
//! # How sure it is
//! Hooks do not always take the same time, and calls of hooks are compiled differently from place
//! to place; by how much the target says ([`RecordingCost::uncertainty`]). In addition the moments
//! themselves are only known to the tick. Both add up to a [bound](Compensation::bound) on what is subtracted:
//! the first for every part, the second as independent errors do (three standard deviations of what
//! rounding does to so many spans).
//!
//! Of events whose cost the trace does not tell nothing is subtracted. Memory grows with threads × depth and with functions.

use kymo_event::{
    Duration, Event, EventKind, Picoseconds, Recorded, RecordingCost, StreamId, Time, TraceInfo,
};

use crate::calls::{Callee, End, How, Step, TrackId};
use crate::hash::FastMap;

/// What was charged to something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// How much, in picoseconds.
    cost: u128,
    /// By how much that may be wrong because of the parts' own uncertainty, in picoseconds.
    doubt: u128,
    /// How many parts there were; two of them end one span.
    parts: u64,
}

impl Charge {
    /// How much it is, rounded to the nearest nanosecond.
    pub fn cost(&self) -> Duration {
        nanoseconds(self.cost)
    }

    /// How many parts it has: a leaf of the call tree has two, and two more a call that it makes.
    pub const fn parts(&self) -> u64 {
        self.parts
    }

    fn add(&mut self, other: &Self) {
        self.cost += other.cost;
        self.doubt += other.doubt;
        self.parts += other.parts;
    }
}

fn nanoseconds(picoseconds: u128) -> Duration {
    Duration(u64::try_from((picoseconds + 500) / 1000).unwrap_or(u64::MAX))
}

/// What was charged to one function, over the calls that [`Row::count`](crate::profile::Row::count)
/// counts; so it can be subtracted from that row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// To be taken off [`Row::self_time`](crate::profile::Row::self_time).
    pub self_time: Charge,
    /// To be taken off [`Row::total`](crate::profile::Row::total): recursion counts once.
    pub total: Charge,
    /// To be taken off the sum of all calls' own durations.
    pub each: Charge,
    /// The shortest of the calls, compensated.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    calls: u64,
}

/// The cost of the event at hand that was not charged yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// It is a switch of threads. (Other events can lead to an implied one.)
    switch: bool,
    before: Option<Charge>,
    after: Option<Charge>,
}

/// An open call.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    own: Charge,
    /// Own, and that of all calls within.
    all: Charge,
}

/// Follows a trace and takes off what recording cost. See the [module](self).
#[derive(Debug)]
pub struct Compensation {
    costs: Vec<RecordingCost>,
    /// A tick of the target's clock.
    tick: Picoseconds,
    /// When the last event of each stream was.
    last: FastMap<StreamId, Time>,
    /// What runs, by stream: the thread's track, and those of the interrupts in it.
    running: FastMap<StreamId, Vec<TrackId>>,
    tracks: FastMap<TrackId, Vec<Frame>>,
    pending: Pending,
    rows: FastMap<Callee, Charged>,
    whole: Charge,
    /// Calls that would have come out below zero.
    below_zero: u64,
}

impl Compensation {
    /// With what the trace tells of its costs; `None` if it tells nothing.
    pub fn new(info: &TraceInfo) -> Option<Self> {
        if info.costs.is_empty() {
            return None;
        }
        let mut costs = info.costs.clone();
        // The last one that holds is the one that counts.
        costs.sort_by_key(|cost| cost.from);
        Some(Self {
            costs,
            tick: Picoseconds(1_000_000_000_000 / info.clock_hz.unwrap_or(1_000_000_000).max(1)),
            last: FastMap::default(),
            running: FastMap::default(),
            tracks: FastMap::default(),
            pending: Pending::default(),
            rows: FastMap::default(),
            whole: Charge::default(),
            below_zero: 0,
        })
    }

    /// Takes the next event, before the steps that it leads to.
    pub fn event(&mut self, event: &Event) {
        self.pending = Pending::default();
        let recorded = match event.kind {
            EventKind::Enter { .. } => Some(Recorded::Enter),
            EventKind::Exit { .. } if event.named && self.knows(Recorded::ExitNamed) => {
                Some(Recorded::ExitNamed)
            }
            EventKind::Exit { .. } => Some(Recorded::Exit),
            EventKind::IsrEnter { .. } => Some(Recorded::IsrEnter),
            EventKind::IsrExit { .. } => Some(Recorded::IsrExit),
            EventKind::SwitchedOut => Some(Recorded::SwitchedOut),
            EventKind::SwitchedIn => Some(Recorded::SwitchedIn),
            // They are no records of the stream; or one that belongs to the next, and is in its cost.
            EventKind::Gap(_) | EventKind::Costs(_) | EventKind::Time => return,
            _ => None,
        };
        let last = self.last.insert(event.stream, event.time);
        let Some(recorded) = recorded else { return };
        // The first record of a stream has none before it, and a short form.
        let since = last.and_then(|last| event.time.since(last));
        let since = since.unwrap_or_default();
        let mut costs = self.costs.iter().rev();
        let cost = costs.find(|cost| cost.recorded == recorded && cost.from <= since);
        if let Some(cost) = cost {
            let part = |picoseconds: Picoseconds| {
                Some(Charge {
                    cost: picoseconds.0.into(),
                    doubt: cost.uncertainty.0.into(),
                    parts: 1,
                })
            };
            self.pending = Pending {
                switch: matches!(recorded, Recorded::SwitchedOut | Recorded::SwitchedIn),
                before: part(cost.before),
                after: part(cost.after),
            };
        }
    }

    fn knows(&self, recorded: Recorded) -> bool {
        self.costs.iter().any(|cost| cost.recorded == recorded)
    }

    /// Takes a step that the last [`event`](Self::event), of this stream, led to, or that the end of
    /// the trace leads to, and takes off the times in it what recording cost. They stop at zero;
    /// [`below_zero`](Self::below_zero) counts that.
    pub fn step(&mut self, stream: Option<StreamId>, step: &mut Step<'_>) {
        let Some(stream) = stream else {
            self.pending = Pending::default();
            if let Step::End(end) = step {
                self.close(end);
            }
            return;
        };
        match step {
            Step::Begin(begin) => {
                let interrupt = matches!(begin.callee, Callee::Interrupt(_));
                if interrupt {
                    // What it interrupts pays for what comes before.
                    let running = self.running.entry(stream).or_default();
                    let interrupted = running.last().copied();
                    running.push(begin.track);
                    self.charge_before(interrupted);
                } else {
                    self.runs(stream, begin.track);
                    self.charge_before(Some(begin.track));
                }
                let frames = self.tracks.entry(begin.track).or_default();
                frames.push(Frame::default());
                self.charge_after(Some(begin.track));
            }
            Step::End(end) => self.end(stream, end),
            // Between the two no thread runs, so nobody pays for what lies there.
            Step::State {
                track,
                running: true,
                ..
            } => {
                self.runs(stream, *track);
                if self.pending.switch {
                    self.pending.before = None;
                    self.charge_after(Some(*track));
                }
            }
            Step::State {
                track,
                running: false,
                ..
            } if self.pending.switch => {
                self.charge_before(Some(*track));
                self.pending.after = None;
            }
            _ => {}
        }
    }

    /// The innermost that runs is this track.
    fn runs(&mut self, stream: StreamId, track: TrackId) {
        let running = self.running.entry(stream).or_default();
        match running.last_mut() {
            Some(innermost) => *innermost = track,
            None => running.push(track),
        }
    }

    fn end(&mut self, stream: StreamId, end: &mut End) {
        self.charge_before(Some(end.track));
        // What goes on behind it pays for what comes after.
        let mut goes_on = Some(end.track);
        if matches!(end.callee, Callee::Interrupt(_)) {
            let running = self.running.entry(stream).or_default();
            if let Some(at) = running.iter().rposition(|track| *track == end.track) {
                running.truncate(at);
            }
            goes_on = running.last().copied();
        }
        self.close(end);
        // An event that ends several calls is the exit of the last.
        if matches!(end.how, How::Returned | How::Orphan) {
            self.charge_after(goes_on);
        }
    }

    fn close(&mut self, end: &mut End) {
        if end.how == How::Orphan {
            return;
        }
        let frames = self.tracks.entry(end.track).or_default();
        let frame = frames.pop().unwrap_or_default();
        if let Some(caller) = frames.last_mut() {
            caller.all.add(&frame.all);
        }
        self.subtract(end, &frame);
    }

    fn charge_before(&mut self, track: Option<TrackId>) {
        if let Some(charge) = self.pending.before.take() {
            self.charge(track, &charge);
        }
    }

    fn charge_after(&mut self, track: Option<TrackId>) {
        if let Some(charge) = self.pending.after.take() {
            self.charge(track, &charge);
        }
    }

    fn charge(&mut self, track: Option<TrackId>, charge: &Charge) {
        self.whole.add(charge);
        let frames = track.and_then(|track| self.tracks.get_mut(&track));
        if let Some(frame) = frames.and_then(|frames| frames.last_mut()) {
            frame.own.add(charge);
            frame.all.add(charge);
        }
    }

    fn subtract(&mut self, end: &mut End, frame: &Frame) {
        let (Some(duration), Some(self_time)) = (end.duration, end.self_time) else {
            return;
        };
        let (all, own) = (frame.all.cost(), frame.own.cost());
        self.below_zero += u64::from(all > duration || own > self_time);
        end.duration = Some(duration - all);
        end.self_time = Some(self_time - own);
        end.wall = end.wall.map(|wall| wall - all);
        if matches!(end.how, How::Open | How::RecordingOff) {
            return;
        }
        let duration = duration - all;
        let row = self.rows.entry(end.callee).or_default();
        row.min = match row.calls {
            0 => duration,
            _ => row.min.min(duration),
        };
        row.max = row.max.max(duration);
        row.calls += 1;
        row.self_time.add(&frame.own);
        row.each.add(&frame.all);
        if !end.recursive {
            row.total.add(&frame.all);
        }
    }

    /// What was charged to a function or interrupt.
    pub fn charged(&self, callee: Callee) -> Charged {
        self.rows.get(&callee).copied().unwrap_or_default()
    }

    /// What was charged in all, to whatever.
    pub const fn whole(&self) -> &Charge {
        &self.whole
    }

    /// By how much a charge may be wrong, either way: what is left after it was taken off is right
    /// within this bound.
    pub fn bound(&self, charge: &Charge) -> Duration {
        // The error of a span between two moments that are rounded down to the tick has a variance
        // of 1/6 tick²; three standard deviations of n spans are 3 √(n/6), and a span has two parts.
        let spans = charge.parts as f64 / 2.0;
        let rounding = 3.0 * (spans / 6.0).sqrt() * self.tick.0 as f64;
        // Not more than a tick a span, though.
        let rounding = rounding.min(spans * self.tick.0 as f64);
        nanoseconds(charge.doubt.saturating_add(rounding as u128))
    }

    /// What a call and its exit cost, as the trace tells: in all, with its uncertainty. `None` where
    /// it does not tell of both.
    pub fn pair(&self) -> Option<(Picoseconds, Picoseconds)> {
        let of = |recorded| {
            let mut costs = self.costs.iter();
            costs.find(|cost| cost.recorded == recorded)
        };
        let (enter, exit) = (of(Recorded::Enter)?, of(Recorded::Exit)?);
        let sum = [enter.before, enter.after, exit.before, exit.after];
        let sum = sum.iter().map(|part| part.0).fold(0, u64::saturating_add);
        let doubt = enter.uncertainty.0.saturating_add(exit.uncertainty.0);
        Some((Picoseconds(sum), Picoseconds(doubt.saturating_mul(2))))
    }

    /// A tick of the target's clock.
    pub const fn tick(&self) -> Picoseconds {
        self.tick
    }

    /// How many calls would have come out below zero, in their duration or self time, and were left
    /// at zero instead.
    pub const fn below_zero(&self) -> u64 {
        self.below_zero
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{Addr, Cpu, Irq, ThreadId};

    use super::*;
    use crate::calls::{Calls, Options};

    const A: Addr = Addr(0xA0);
    const B: Addr = Addr(0xB0);

    const fn cost(recorded: Recorded, from: u64, before: u64, after: u64) -> RecordingCost {
        RecordingCost {
            recorded,
            from: Duration(from),
            before: Picoseconds(before * 1000),
            after: Picoseconds(after * 1000),
            uncertainty: Picoseconds(500),
        }
    }

    fn info() -> TraceInfo {
        TraceInfo {
            clock_hz: Some(1_000_000_000),
            costs: vec![
                cost(Recorded::Exit, 0, 5, 15),
                cost(Recorded::Enter, 150, 10, 30),
                cost(Recorded::Enter, 0, 10, 20),
                cost(Recorded::IsrEnter, 0, 3, 7),
                cost(Recorded::IsrExit, 0, 2, 4),
            ],
            ..TraceInfo::default()
        }
    }

    fn enter(function: Addr) -> EventKind {
        EventKind::Enter {
            function,
            call_site: None,
        }
    }

    fn exit(function: Addr) -> EventKind {
        EventKind::Exit {
            function: Some(function),
        }
    }

    /// What is left: of each end its function (or interrupt), duration and self time.
    fn compensated(events: &[(i64, EventKind)]) -> (Vec<(Callee, u64, u64)>, Compensation) {
        compensated_with(&info(), events)
    }

    fn compensated_with(
        info: &TraceInfo,
        events: &[(i64, EventKind)],
    ) -> (Vec<(Callee, u64, u64)>, Compensation) {
        let mut compensation = Compensation::new(info).unwrap();
        let mut calls = Calls::new(info, Options::default());
        let mut ends = Vec::new();
        let mut take = |mut step: Step<'_>, stream, compensation: &mut Compensation| {
            compensation.step(stream, &mut step);
            if let Step::End(end) = step {
                let ns = |duration: Option<Duration>| duration.unwrap_or_default().0;
                ends.push((end.callee, ns(end.duration), ns(end.self_time)));
            }
        };
        let stream = StreamId(0);
        for (time, kind) in events {
            let event = Event {
                time: Time(*time),
                stream,
                cpu: Some(Cpu(0)),
                thread: Some(ThreadId(1)),
                kind: kind.clone(),
                named: false,
                name: "".into(),
                fields: Vec::new(),
            };
            compensation.event(&event);
            calls.push(&event, &mut |step| {
                take(step, Some(stream), &mut compensation);
            });
        }
        calls.finish(&mut |step| take(step, None, &mut compensation));
        (ends, compensation)
    }

    #[test]
    fn callers_and_callees_pay_their_parts() {
        let (ends, compensation) = compensated(&[
            (0, enter(A)),
            (100, enter(B)),
            (200, exit(B)),
            (300, exit(A)),
        ]);
        // B: 100 less 20 after its enter and 5 before its exit.
        // A: of its own 200, 20 after its enter, 10 before B's, 15 after B's exit, 5 before its own.
        let (a, b) = (Callee::Function(A), Callee::Function(B));
        assert_eq!(ends, [(b, 75, 75), (a, 225, 150)]);
        let charged = compensation.charged(a);
        assert_eq!(charged.self_time.cost(), Duration(50));
        assert_eq!(charged.total.cost(), Duration(75));
        assert_eq!(charged.self_time.parts(), 4);
        // Four parts of half a nanosecond, and two spans rounded to the nanosecond.
        assert_eq!(compensation.bound(&charged.self_time), Duration(2 + 2));
        assert_eq!(compensation.below_zero(), 0);
        // The first enter's before and the last exit's after are nobody's.
        assert_eq!(compensation.whole().cost(), Duration(10 + 75 + 15));
        let pair = (Picoseconds(50_000), Picoseconds(2_000));
        assert_eq!(compensation.pair(), Some(pair));
    }

    #[test]
    fn an_interrupt_is_paid_for_by_what_it_interrupts() {
        let (ends, _) = compensated(&[
            (0, enter(A)),
            (100, EventKind::IsrEnter { irq: Irq(7) }),
            (120, enter(B)),
            (160, exit(B)),
            (200, EventKind::IsrExit { irq: None }),
            (300, exit(A)),
        ]);
        let handler = Callee::Interrupt(Irq(7));
        let expected = [
            (Callee::Function(B), 40 - 25, 40 - 25),
            // 7 after it began, 10 before B, 15 after it, 2 before it ends.
            (handler, 100 - 34 - 25, 60 - 34),
            // 20 after its enter, 3 and 4 around the interrupt, 5 before its exit.
            (Callee::Function(A), 200 - 32, 200 - 32),
        ];
        assert_eq!(ends, expected);
    }

    #[test]
    fn a_switch_is_paid_for_by_both_threads() {
        let mut info = info();
        info.costs.push(cost(Recorded::SwitchedOut, 0, 11, 1000));
        info.costs.push(cost(Recorded::SwitchedIn, 0, 1000, 13));
        let (ends, _) = compensated_with(
            &info,
            &[
                (0, enter(A)),
                (100, EventKind::SwitchedOut),
                (2000, EventKind::SwitchedIn),
                (2100, exit(A)),
            ],
        );
        // 20 after its enter, 11 before it was switched out, 13 after it was in again, 5 at the end.
        let left = 200 - 49;
        assert_eq!(ends, [(Callee::Function(A), left, left)]);
    }

    #[test]
    fn late_records_have_their_own_cost() {
        let (ends, _) = compensated(&[
            (0, enter(A)),
            (150, enter(B)),
            (200, exit(B)),
            (300, exit(A)),
        ]);
        assert_eq!(ends[0], (Callee::Function(B), 50 - 35, 50 - 35));
    }

    #[test]
    fn a_time_record_makes_none_early() {
        let (ends, _) = compensated(&[
            (0, enter(A)),
            (145, EventKind::Time),
            (150, enter(B)),
            (200, exit(B)),
            (300, exit(A)),
        ]);
        assert_eq!(ends[0], (Callee::Function(B), 50 - 35, 50 - 35));
    }

    #[test]
    fn nothing_comes_out_below_zero_unsaid() {
        let (ends, compensation) = compensated(&[(0, enter(A)), (10, exit(A))]);
        assert_eq!(ends, [(Callee::Function(A), 0, 0)]);
        assert_eq!(compensation.below_zero(), 1);
        // The sum is not falsified by that.
        let charged = compensation.charged(Callee::Function(A));
        assert_eq!(charged.self_time.cost(), Duration(25));
    }

    #[test]
    fn what_jumps_left_and_what_is_open_is_charged_too() {
        let env = Addr(0x1000);
        let (ends, compensation) = compensated(&[
            (0, enter(A)),
            (50, EventKind::SetJmp { env }),
            (100, enter(B)),
            (150, EventKind::LongJmp { env }),
            (200, enter(B)),
            (
                300,
                EventKind::Marker {
                    label: None,
                    value: 1,
                },
            ),
        ]);
        let (a, b) = (Callee::Function(A), Callee::Function(B));
        // No exit was recorded of the first B; the second is open at the end, and so is A.
        assert_eq!(ends, [(b, 30, 30), (b, 80, 80), (a, 220, 110)]);
        assert_eq!(compensation.charged(b).self_time.cost(), Duration(20));
        assert_eq!(compensation.charged(a), Charged::default());
    }

    #[test]
    fn a_trace_without_costs_can_not_be_compensated() {
        assert!(Compensation::new(&TraceInfo::default()).is_none());
    }
}
