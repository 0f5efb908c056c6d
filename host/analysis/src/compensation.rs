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
//! What is subtracted can so be more than there was: most of all in callees that take hardly any time. It is not
//! stopped at zero call by call, since what is too much of one call is too little of another, and only the sum is
//! right. But the callees of a function took no less than nothing together, and where more was charged to them,
//! just what they took is subtracted from the total: it is at least the self time ([`Charged::left`]).
//!
//! Of events whose cost the trace does not tell nothing is subtracted. Memory grows with threads × depth and with functions.

use std::ops::AddAssign;

use kymo_event::{
    Duration, EventKind, EventRef, Picoseconds, Recorded, RecordingCost, RowKind, StreamId, Time,
    TraceInfo,
};

use crate::calls::{Callee, End, How, Step, TrackId};
use crate::hash::FastMap;
use crate::profile::{Row, is_loss};
use crate::recursion::Recursion;

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

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.add(&other);
    }
}

fn nanoseconds(picoseconds: u128) -> Duration {
    Duration(u64::try_from((picoseconds + 500) / 1000).unwrap_or(u64::MAX))
}

/// What was charged to one function; so it can be subtracted from its row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// To be taken off [`Row::self_time`].
    pub self_time: Charge,
    /// To be taken off [`Row::total`]: recursion counts once.
    pub total: Charge,
    /// To be taken off [`Row::sum`].
    pub each: Charge,
    /// The shortest of the calls, compensated.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
    calls: u64,
}

/// What is left of a function's times when what was [charged](Charged) is taken off them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Of [`Row::self_time`].
    pub self_time: Duration,
    /// Of [`Row::total`].
    pub total: Duration,
    /// Of [`Row::sum`].
    pub each: Duration,
    /// More was charged to what it called than that took.
    pub callees_below_zero: bool,
}

impl Charged {
    /// Takes off what was charged.
    pub fn left(&self, row: &Row) -> Left {
        let self_time = row.self_time - self.self_time.cost();
        // The calls of the function are in both times, so what is in the other one besides is callees'.
        let above_self =
            |all: Duration, charge: &Charge| (all - charge.cost()).max(self_time.min(all));
        let total = row.total - self.total.cost();
        let at_least = above_self(row.total, &self.total);
        Left {
            self_time,
            total: at_least,
            // Their self times are not known apart from those of other calls.
            each: match row.complete == row.ends() {
                true => above_self(row.sum, &self.each),
                false => row.sum - self.each.cost(),
            },
            callees_below_zero: total < at_least,
        }
    }
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
    /// What was charged to recursive calls that have ended.
    within: Recursion<Charge>,
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
            within: Recursion::default(),
            whole: Charge::default(),
            below_zero: 0,
        })
    }

    /// Takes the next event, before the steps that it leads to.
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
            // It belongs to the next record, and is in its cost.
            RowKind::Time => return,
            _ => None,
        };
        if is_loss(event) {
            self.within.lose();
        }
        // They are no records of the stream.
        if let Some(EventKind::Gap(_) | EventKind::Costs(_)) = event.event.map(|event| &event.kind)
        {
            return;
        }
        let last = self.last.insert(row.stream, row.time);
        let Some(recorded) = recorded else { return };
        // The first record of a stream has none before it, and a short form.
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
        end.sure = end.sure.map(|sure| sure - all);
        end.sure_self = end.sure_self.map(|sure| sure - own);
        end.wall = end.wall.map(|wall| wall - all);
        let within = self.within.end(end, frame.all);
        let row = self.rows.entry(end.callee).or_default();
        row.self_time.add(&frame.own);
        let open = matches!(end.how, How::Open | How::RecordingOff);
        if !end.recursive {
            // What counts of a call that only seems to be open is what ended within it.
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
mod tests;
