//! Subtracts recording overhead from the times of calls.
//!
//! A target that has measured itself reports for each kind of event the overhead before its timestamp is taken, and
//! after it ([`RecordingCost`]). The time between two neighbouring events thus consists of the program's own time,
//! the overhead of the first event after its timestamp, and that of the second before its own. [`Compensation`]
//! follows the events and the steps that [`Calls`](crate::calls::Calls) makes of them, and charges each part to the
//! call that was then the innermost of its track: the part before an enter to the caller, the part after it to the
//! callee, and likewise at exits and interrupts. The charge of a call is subtracted from its self time, and from the
//! durations of all calls around it on the track.
//!
//! # Accuracy
//! Hooks do not always take the same time, and calls of hooks are compiled differently from place to place; the
//! target reports this [uncertainty](RecordingCost::uncertainty). In addition, timestamps have the resolution of a
//! tick. Both add up to a [bound](Compensation::bound) on the error of the subtracted time: the first for every part,
//! the second as independent errors do (three standard deviations of the rounding error of all spans).
//!
//! The subtracted time can thus exceed the actual time, most of all in callees that take hardly any time. It is not
//! clamped at zero for each call, because an excess in one call is a deficit in another, and only the sum is right.
//! But the callees of a function took no less than zero together. Where more was charged to them, exactly their time
//! is subtracted from the total, which is at least the self time ([`Charged::left`]).
//!
//! Nothing is subtracted for events whose overhead the trace does not report. Memory grows with threads × depth and
//! with functions.

use std::ops::AddAssign;

use kymo_event::{
    Duration, EventKind, EventRef, Picoseconds, Recorded, RecordingCost, RowKind, StreamId, Time,
    TraceInfo,
};

use crate::calls::{Callee, End, How, Step, TrackId};
use crate::hash::FastMap;
use crate::profile::{Row, is_loss};
use crate::recursion::Recursion;

/// Overhead charged to a call or function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The overhead, in picoseconds.
    cost: u128,
    /// The possible error due to the uncertainty of the parts, in picoseconds.
    doubt: u128,
    /// The number of parts; a span has two.
    parts: u64,
}

impl Charge {
    /// The overhead, rounded to the nearest nanosecond.
    pub fn cost(&self) -> Duration {
        nanoseconds(self.cost)
    }

    /// The number of parts: two for a leaf of the call tree, and two more for each call that a function makes.
    pub const fn parts(&self) -> u64 {
        self.parts
    }

    fn add(&mut self, other: &Self) {
        self.cost += other.cost;
        self.doubt += other.doubt;
        self.parts += other.parts;
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.add(&other);
    }
}

fn nanoseconds(picoseconds: u128) -> Duration {
    Duration(u64::try_from((picoseconds + 500) / 1000).unwrap_or(u64::MAX))
}

/// Overhead charged to one function, to be subtracted from its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// To be subtracted from [`Row::self_time`].
    pub self_time: Charge,
    /// To be subtracted from [`Row::total`]: recursion counts once.
    pub total: Charge,
    /// To be subtracted from [`Row::sum`].
    pub each: Charge,
    /// The shortest call, compensated.
    pub min: Duration,
    /// The longest call, compensated.
    pub max: Duration,
    calls: u64,
}

/// A function's times after the [charges](Charged) were subtracted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// From [`Row::self_time`].
    pub self_time: Duration,
    /// From [`Row::total`].
    pub total: Duration,
    /// From [`Row::sum`].
    pub each: Duration,
    /// Whether more was charged to its callees than they took.
    pub callees_below_zero: bool,
}

impl Charged {
    /// Subtracts the charges from a row.
    pub fn left(&self, row: &Row) -> Left {
        let self_time = row.self_time - self.self_time.cost();
        // The calls of the function are part of both times, so the rest of `all` is the callees'.
        let above_self =
            |all: Duration, charge: &Charge| (all - charge.cost()).max(self_time.min(all));
        let total = row.total - self.total.cost();
        let at_least = above_self(row.total, &self.total);
        Left {
            self_time,
            total: at_least,
            // The self times of these calls alone are unknown.
            each: match row.complete == row.ends() {
                true => above_self(row.sum, &self.each),
                false => row.sum - self.each.cost(),
            },
            callees_below_zero: total < at_least,
        }
    }
}

/// Overhead of the current event that was not charged yet.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Whether the event is a thread switch. (Other events can lead to an implied one.)
    switch: bool,
    before: Option<Charge>,
    after: Option<Charge>,
}

/// An open call.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    own: Charge,
    /// Own overhead and that of all calls within.
    all: Charge,
}

/// Follows a trace and subtracts recording overhead. See the [module](self).
#[derive(Debug)]
pub struct Compensation {
    costs: Vec<RecordingCost>,
    /// A tick of the target's clock.
    tick: Picoseconds,
    /// The time of the last event of each stream.
    last: FastMap<StreamId, Time>,
    /// The running tracks of each stream: the thread's, and those of the interrupts in it.
    running: FastMap<StreamId, Vec<TrackId>>,
    tracks: FastMap<TrackId, Vec<Frame>>,
    pending: Pending,
    rows: FastMap<Callee, Charged>,
    /// The overhead charged to recursive calls that have ended.
    within: Recursion<Charge>,
    whole: Charge,
    /// Number of calls whose time would have become negative.
    below_zero: u64,
}

impl Compensation {
    /// Uses the overheads that the trace reports; `None` if it reports none.
    pub fn new(info: &TraceInfo) -> Option<Self> {
        if info.costs.is_empty() {
            return None;
        }
        let mut costs = info.costs.clone();
        // Of several costs that apply, the last one is used.
        costs.sort_by_key(|cost| cost.from);
        Some(Self {
            costs,
            tick: Picoseconds(1_000_000_000_000 / info.clock_hz.unwrap_or(1_000_000_000).max(1)),
            last: FastMap::default(),
            running: FastMap::default(),
            tracks: FastMap::default(),
            pending: Pending::default(),
            rows: FastMap::default(),
            within: Recursion::default(),
            whole: Charge::default(),
            below_zero: 0,
        })
    }

    /// Processes the next event. Must be called before the steps that it leads to.
    pub fn event(&mut self, event: EventRef<'_>) {
        self.pending = Pending::default();
        let row = event.row;
        let recorded = match row.kind {
            RowKind::Enter => Some(Recorded::Enter),
            RowKind::Exit if row.named && self.knows(Recorded::ExitNamed) => {
                Some(Recorded::ExitNamed)
            }
            RowKind::Exit => Some(Recorded::Exit),
            RowKind::IsrEnter => Some(Recorded::IsrEnter),
            RowKind::IsrExit => Some(Recorded::IsrExit),
            RowKind::SwitchedOut => Some(Recorded::SwitchedOut),
            RowKind::SwitchedIn => Some(Recorded::SwitchedIn),
            // Part of the next record, and included in its overhead.
            RowKind::Time => return,
            _ => None,
        };
        if is_loss(event) {
            self.within.lose();
        }
        // These are no records of the stream.
        if let Some(EventKind::Gap(_) | EventKind::Costs(_)) = event.event.map(|event| &event.kind)
        {
            return;
        }
        let last = self.last.insert(row.stream, row.time);
        let Some(recorded) = recorded else { return };
        // The first record of a stream has no predecessor, and a short form.
        let since = last.and_then(|last| row.time.since(last));
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

    /// Processes a step that results from the last [`event`](Self::event), of this stream, or from the end of the
    /// trace, and subtracts overhead from its times. They are clamped at zero; [`below_zero`](Self::below_zero)
    /// counts that.
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
                    // The overhead before it is charged to the interrupted track.
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
            // No thread runs between the two, so the overhead there is charged to none.
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

    /// Makes `track` the innermost running track.
    fn runs(&mut self, stream: StreamId, track: TrackId) {
        let running = self.running.entry(stream).or_default();
        match running.last_mut() {
            Some(innermost) => *innermost = track,
            None => running.push(track),
        }
    }

    fn end(&mut self, stream: StreamId, end: &mut End) {
        self.charge_before(Some(end.track));
        // The overhead after it is charged to the track that continues.
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
        end.sure = end.sure.map(|sure| sure - all);
        end.sure_self = end.sure_self.map(|sure| sure - own);
        end.wall = end.wall.map(|wall| wall - all);
        let within = self.within.end(end, frame.all);
        let row = self.rows.entry(end.callee).or_default();
        row.self_time.add(&frame.own);
        let open = matches!(end.how, How::Open | How::RecordingOff);
        if !end.recursive {
            // The time of a call that only seems to be open is that of the calls that ended within it.
            row.total.add(match open && end.doubt.loss {
                true => &within,
                false => &frame.all,
            });
        }
        if !end.is_complete() {
            return;
        }
        let duration = duration - all;
        row.min = match row.calls {
            0 => duration,
            _ => row.min.min(duration),
        };
        row.max = row.max.max(duration);
        row.calls += 1;
        row.each.add(&frame.all);
    }

    /// The overhead charged to a function or interrupt.
    pub fn charged(&self, callee: Callee) -> Charged {
        self.rows.get(&callee).copied().unwrap_or_default()
    }

    /// The total overhead charged.
    pub const fn whole(&self) -> &Charge {
        &self.whole
    }

    /// The maximum error of a charge, in either direction. Times are right within this bound after the charge was
    /// subtracted.
    pub fn bound(&self, charge: &Charge) -> Duration {
        // The error of a span between two timestamps that are rounded down to the tick has a variance of 1/6 tick²;
        // three standard deviations of n spans are 3 √(n/6), and a span has two parts.
        let spans = charge.parts as f64 / 2.0;
        let rounding = 3.0 * (spans / 6.0).sqrt() * self.tick.0 as f64;
        // But at most one tick per span.
        let rounding = rounding.min(spans * self.tick.0 as f64);
        nanoseconds(charge.doubt.saturating_add(rounding as u128))
    }

    /// The overhead of a call and its exit together, with its uncertainty. `None` unless the trace reports both.
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

    /// The number of calls whose duration or self time would have become negative and was clamped at zero.
    pub const fn below_zero(&self) -> u64 {
        self.below_zero
    }
}

#[cfg(test)]
mod tests;
