//! Everything between the events of a trace and what is shown of its calls, in one place, so that tables,
//! pictures and files agree: clocks that stepped back are repaired, calls are rebuilt
//! ([`Calls`]), clipped at the bounds of a window, the cost of recording is taken off
//! ([`Compensation`]), and what the user did not ask for is left out ([`Selection`]).
//!
//! A window never changes what happened: calls are rebuilt from the start of the trace, and those that are
//! open at a bound are clipped there. A selection never changes a duration: it only chooses what is shown.

use std::sync::Arc;

use kymo_event::{Batch, Cut, EventRef, StreamId, Time, TraceInfo, Unmet};
use kymo_symbols::Symbols;

use crate::arrange::Arrange;
use crate::calls::{self, Calls, Counts, Observer as _, Step};
use crate::clock_repair::{ClockRepairCounts, recorded};
use crate::compensation::Compensation;
use crate::counter_values::CounterValues;
use crate::selection::{Chooser, Chosen, Selection};

mod ahead;

pub use ahead::{Feeder, Steps};

/// What to make of a trace.
#[derive(Clone, Debug)]
pub struct Options {
    /// How to rebuild calls.
    pub calls: calls::Options,
    /// The bounds at which calls are clipped.
    pub window: Window,
    /// What to show.
    pub selection: Selection,
    /// Whether to take off what recording took, where the trace tells.
    pub compensate: bool,
    /// Whether to move back what was recorded while a clock was ahead.
    pub repair_clock: bool,
    /// The steps, where another thread makes them: then nothing is rebuilt here, and the replay has to be a
    /// [whole](Self::is_whole) one.
    pub steps: Option<Steps>,
}

impl Options {
    /// Whether all of a trace is replayed as it was recorded: such a replay has nothing to do but to rebuild calls.
    pub fn is_whole(&self, info: &TraceInfo) -> bool {
        self.window == Window::default()
            && self.selection.is_everything()
            && !self.compensate
            && !(self.repair_clock && info.steps_back)
    }
}

impl Default for Options {
    /// All of it, as it was recorded, with clocks repaired.
    fn default() -> Self {
        Self {
            calls: calls::Options::default(),
            window: Window::default(),
            selection: Selection::default(),
            compensate: false,
            repair_clock: true,
            steps: None,
        }
    }
}

/// A part of a trace by time. The default is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From when on.
    pub begin: Time,
    /// Up to when.
    pub end: Time,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            begin: Time(i64::MIN),
            end: Time(i64::MAX),
        }
    }
}

/// The event that a step follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The stream that it stands in.
    pub stream: StreamId,
    /// How much later than its time it was recorded, in nanoseconds: the clock was ahead then.
    pub moved: i64,
}

impl Origin {
    #[inline]
    fn of(event: EventRef<'_>) -> Self {
        let recorded = event.event.and_then(recorded);
        Self {
            stream: event.row.stream,
            moved: recorded.map_or(0, |recorded| recorded.0.saturating_sub(event.row.time.0)),
        }
    }
}

/// Takes the steps of a replay where a closure is too slow: its `step` can be inlined where millions of calls
/// begin and end.
pub trait Observer {
    /// Takes the next step, and what it follows from.
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>);
}

/// A closure as an [`Observer`].
struct Each<'f, F>(&'f mut F);

impl<F: FnMut(Option<Origin>, Step<'_>)> Observer for Each<'_, F> {
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        (self.0)(origin, step);
    }
}

/// Gives steps on with what they follow from.
struct From<'o, O> {
    origin: Origin,
    out: &'o mut O,
}

impl<O: Observer> calls::Observer for From<'_, O> {
    #[inline(always)]
    fn step(&mut self, step: Step<'_>) {
        self.out.step(Some(self.origin), step);
    }
}

/// Replays a trace: takes its events batch by batch, and gives steps of calls.
///
/// Each step comes with the [`Origin`] that it follows from; what the bounds of the trace or the window add
/// follows from none.
#[derive(Debug)]
pub struct Replay {
    calls: Calls,
    /// What rebuilds them, if it is another thread.
    steps: Option<Steps>,
    window: Window,
    stage: Stage,
    arrange: Arrange,
    compensate: bool,
    compensation: Option<Compensation>,
    chooser: Option<Chooser>,
    /// The values of counters before the window.
    counters: CounterValues,
}

/// Where in the trace a [`Replay`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before the window.
    Before,
    /// Within it.
    Within,
    /// Behind it: nothing is looked at any more.
    Behind,
}

impl Replay {
    /// Knows of nothing yet. `symbols` have the names by which functions are chosen.
    pub fn new(info: &TraceInfo, symbols: &Arc<Symbols>, options: Options) -> Self {
        let Options {
            calls,
            window,
            selection,
            compensate,
            repair_clock,
            steps,
        } = options;
        let compensation = compensate.then(|| Compensation::new(info)).flatten();
        Self {
            calls: Calls::new(info, calls),
            steps,
            window,
            stage: match window.begin {
                Time(i64::MIN) => Stage::Within,
                _ => Stage::Before,
            },
            arrange: Arrange::new(window, repair_clock),
            compensate,
            compensation,
            chooser: (!selection.is_everything())
                .then(|| Chooser::new(selection, Arc::clone(symbols))),
            counters: CounterValues::default(),
        }
    }

    /// Takes the next events; `info` is what is known of the trace by now. `false` when the window is over:
    /// no more events are needed.
    pub fn batch(
        &mut self,
        info: &TraceInfo,
        batch: &Batch,
        out: &mut impl FnMut(Option<Origin>, Step<'_>),
    ) -> bool {
        self.batch_to(info, batch, &mut Each(out))
    }

    /// [`batch`](Self::batch) for an [`Observer`].
    #[inline]
    pub fn batch_to(&mut self, info: &TraceInfo, batch: &Batch, out: &mut impl Observer) -> bool {
        if let Some(steps) = &self.steps {
            steps.batch_to(batch, out);
            return true;
        }
        let mut arrange = std::mem::take(&mut self.arrange);
        let more = self.take(info, arrange.take(info, batch), out);
        self.arrange = arrange;
        more
    }

    fn take(&mut self, info: &TraceInfo, batch: &Batch, out: &mut impl Observer) -> bool {
        self.calls.learn(info);
        let whole = self.window == Window::default();
        if whole && self.chooser.is_none() && self.compensation.is_none() {
            self.rebuild(batch, out);
            return true;
        }
        for event in batch.iter() {
            self.one(info, event, out);
        }
        self.stage != Stage::Behind
    }

    /// Takes a batch of which calls are to be rebuilt, and nothing else.
    fn rebuild(&mut self, batch: &Batch, out: &mut impl Observer) {
        let rows = batch.rows();
        let mut runs = batch.runs().peekable();
        let mut at = 0;
        while let Some(row) = rows.get(at) {
            while runs.next_if(|run| run.end <= at).is_some() {}
            let run = runs.peek();
            let is_run = run.is_some_and(|run| run.start <= at);
            let until = run.map_or(rows.len(), |run| match is_run {
                true => run.end,
                false => run.start,
            });
            let event = EventRef {
                row,
                event: batch.event_of(row),
            };
            // An event that was moved has an origin of its own.
            let rest = match row.has_event() {
                false => rows.get(at..until).unwrap_or(&[]),
                true => std::slice::from_ref(row),
            };
            let mut from = From {
                origin: Origin::of(event),
                out,
            };
            let done = self.calls.run_to(rest, is_run, &mut from);
            if done == 0 {
                self.calls.push(event, &mut |step| from.step(step));
            }
            at += done.max(1);
        }
    }

    /// Takes one event, where there is more to do than to rebuild calls.
    fn one(&mut self, info: &TraceInfo, event: EventRef<'_>, out: &mut impl Observer) {
        let time = event.row.time;
        let timeless = info
            .stream(event.row.stream)
            .is_some_and(|stream| stream.timeless);
        if self.stage == Stage::Before && time >= self.window.begin && !timeless {
            self.open(info, out);
        }
        if self.stage == Stage::Within && time > self.window.end && !timeless {
            self.close(info, out);
        }
        match self.stage {
            Stage::Before => return self.before(info, event),
            Stage::Behind => return,
            Stage::Within => {}
        }
        if let Some(compensation) = &mut self.compensation {
            compensation.event(event);
        }
        let chosen = self
            .chooser
            .as_mut()
            .is_none_or(|chooser| chooser.event(event, info));
        let origin = Some(Origin::of(event));
        let (compensation, chooser) = (&mut self.compensation, &mut self.chooser);
        self.calls.push(event, &mut |mut step| {
            if let Some(compensation) = compensation {
                compensation.step(Some(event.row.stream), &mut step);
            }
            match chooser {
                Some(chooser) => chooser.step(step, origin, chosen, info, &mut |origin, step| {
                    out.step(origin, step)
                }),
                None => out.step(origin, step),
            }
        });
    }

    /// Takes an event before the window.
    fn before(&mut self, info: &TraceInfo, event: EventRef<'_>) {
        let counters = &mut self.counters;
        let Some(chooser) = &mut self.chooser else {
            counters.take(info, event);
            return self.calls.push(event, &mut |_| {});
        };
        let chosen = chooser.event(event, info);
        self.calls.push(event, &mut |step| {
            let shown = chooser.before(step, chosen, info);
            if let Step::Event { event, .. } = step
                && shown
            {
                counters.take(info, event);
            }
        });
    }

    /// Begins the window with what is open, and with the values that counters have.
    fn open(&mut self, info: &TraceInfo, out: &mut impl Observer) {
        self.stage = Stage::Within;
        if let Some(chooser) = &mut self.chooser {
            chooser.open_window();
        }
        // Of what was recorded before, nothing is taken off.
        self.compensation = self.compensate.then(|| Compensation::new(info)).flatten();
        let (compensation, chooser) = (&mut self.compensation, &mut self.chooser);
        let mut streams = Vec::new();
        self.calls.open_window(self.window.begin, &mut |mut step| {
            if let Step::Track { track, info } = step {
                streams.resize(track.0 as usize + 1, info.stream);
            }
            if let (Some(compensation), Step::Begin(begin)) = (compensation.as_mut(), step) {
                let stream = streams.get(begin.track.0 as usize).copied();
                compensation.step(stream, &mut step);
            }
            let origin = stream_of(&step, &streams).map(|stream| Origin { stream, moved: 0 });
            match chooser {
                Some(chooser) => chooser.step(step, origin, true, info, &mut |origin, step| {
                    out.step(origin, step)
                }),
                None => out.step(origin, step),
            }
        });
        for event in std::mem::take(&mut self.counters).at(self.window.begin) {
            let mut batch = Batch::default();
            batch.push_event(event);
            for event in batch.iter() {
                let step = Step::Event { track: None, event };
                let origin = Some(Origin::of(event));
                match chooser {
                    Some(chooser) => chooser.step(step, origin, true, info, &mut |origin, step| {
                        out.step(origin, step)
                    }),
                    None => out.step(origin, step),
                }
            }
        }
    }

    /// Ends the window.
    fn close(&mut self, info: &TraceInfo, out: &mut impl Observer) {
        self.stage = Stage::Behind;
        let end = self.window.end;
        self.end(info, out, |calls, out| {
            calls.close_window(end, &mut |step| out(step))
        });
    }

    /// Ends the trace: gives what is still open.
    pub fn finish(&mut self, info: &TraceInfo, out: &mut impl FnMut(Option<Origin>, Step<'_>)) {
        self.finish_to(info, &mut Each(out));
    }

    /// [`finish`](Self::finish) for an [`Observer`].
    pub fn finish_to(&mut self, info: &TraceInfo, out: &mut impl Observer) {
        if let Some(steps) = self.steps.take() {
            if let Some(calls) = steps.finish_to(out) {
                self.calls = calls;
            }
            return;
        }
        let rest = self.arrange.finish(info);
        self.take(info, &rest, out);
        // A window that begins behind the last event shows nothing; but a trace that was cut may have no events there.
        if self.stage == Stage::Before
            && let Cut {
                begin: Some(_),
                end: Some(end),
                ..
            } = info.cut
            && self.window.begin <= end
        {
            self.open(info, out);
        }
        if self.stage == Stage::Within {
            // A trace that was cut goes on behind its last event.
            let cut = info.cut.end.filter(|end| *end <= self.window.end);
            self.end(info, out, |calls, out| match cut {
                Some(end) => calls.close_window(end, &mut |step| out(step)),
                None => calls.finish(&mut |step| out(step)),
            });
        }
        if let Some(chooser) = &mut self.chooser {
            chooser.finish(&mut |origin, step| out.step(origin, step));
        }
    }

    /// Gives what `ends` closes.
    fn end<O: Observer>(
        &mut self,
        info: &TraceInfo,
        out: &mut O,
        ends: impl FnOnce(&mut Calls, &mut dyn FnMut(Step<'_>)),
    ) {
        let (compensation, chooser) = (&mut self.compensation, &mut self.chooser);
        ends(&mut self.calls, &mut |mut step| {
            if let Some(compensation) = compensation {
                compensation.step(None, &mut step);
            }
            match chooser {
                Some(chooser) => chooser.step(step, None, false, info, &mut |origin, step| {
                    out.step(origin, step)
                }),
                None => out.step(None, step),
            }
        });
    }

    /// The bounds at which calls are clipped.
    pub const fn window(&self) -> Window {
        self.window
    }

    /// What was counted while rebuilding.
    pub const fn counts(&self) -> &Counts {
        self.calls.counts()
    }

    /// What was done to the times of clocks that stepped back; `None` if nothing had to be.
    pub fn clock_repair(&self) -> Option<&ClockRepairCounts> {
        self.arrange.repaired()
    }

    /// How many events were chosen; `None` if all were asked for.
    pub fn chosen(&self) -> Option<Chosen> {
        self.chooser.as_ref().map(Chooser::chosen)
    }

    /// The fields that conditions of the selection ask for and no event has; `None` if all were asked for.
    pub fn unmet(&self) -> Option<&Unmet> {
        self.chooser.as_ref().map(Chooser::unmet)
    }

    /// Whether the window has begun: whether there are events behind its first bound.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Before
    }

    /// What recording took, if that is taken off.
    pub const fn compensation(&self) -> Option<&Compensation> {
        self.compensation.as_ref()
    }
}

/// The stream of the track that a step is of.
fn stream_of(step: &Step<'_>, streams: &[StreamId]) -> Option<StreamId> {
    let track = match step {
        Step::Track { track, .. } | Step::State { track, .. } => *track,
        Step::Begin(begin) => begin.track,
        Step::End(end) => end.track,
        _ => return None,
    };
    streams.get(track.0 as usize).copied()
}

#[cfg(test)]
mod tests;
