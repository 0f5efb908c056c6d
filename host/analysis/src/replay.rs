//! Replay of a trace: repairs clocks that stepped back, rebuilds calls ([`Calls`]), clips them at the bounds of a
//! window, subtracts recording overhead ([`Compensation`]) and applies the user's filters ([`Selection`]). Shared by
//! all tables, graphs and exports, so that they agree.
//!
//! A window never changes results: calls are rebuilt from the start of the trace, and those open at a bound are
//! clipped there. A selection never changes a duration: it only chooses what is shown.

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

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Options of the reconstruction of calls.
    pub calls: calls::Options,
    /// The bounds at which calls are clipped.
    pub window: Window,
    /// Filters for what is shown.
    pub selection: Selection,
    /// Whether to subtract recording overhead, where the trace records it.
    pub compensate: bool,
    /// Whether to move back events that were recorded while a clock was ahead.
    pub repair_clock: bool,
    /// The source of steps that another thread makes. If set, nothing is rebuilt here, and the replay must be a
    /// [whole](Self::is_whole) one.
    pub steps: Option<Steps>,
}

impl Options {
    /// Whether all of a trace is replayed as recorded, so that calls must be rebuilt but nothing else.
    pub fn is_whole(&self, info: &TraceInfo) -> bool {
        self.window == Window::default()
            && self.selection.is_everything()
            && !self.compensate
            && !(self.repair_clock && info.steps_back)
    }
}

impl Default for Options {
    /// The whole trace as recorded, with clocks repaired.
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

/// A time range of a trace. The default is all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first time in the range.
    pub begin: Time,
    /// The last time in the range.
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

/// The event that a step results from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The stream of the event.
    pub stream: StreamId,
    /// By how much the event was recorded too late, in nanoseconds, because the clock was ahead.
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

/// Receives the steps of a replay where a closure is too slow: `step` can be inlined where millions of calls begin
/// and end.
pub trait Observer {
    /// Processes the next step; `origin` is the event that it results from.
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>);
}

/// A closure as an [`Observer`].
struct Each<'f, F>(&'f mut F);

impl<F: FnMut(Option<Origin>, Step<'_>)> Observer for Each<'_, F> {
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        (self.0)(origin, step);
    }
}

/// Passes steps on with their origin.
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

/// Replays a trace: takes its events batch by batch and produces steps of calls.
///
/// Each step comes with its [`Origin`]; steps that the bounds of the trace or the window add have none.
#[derive(Debug)]
pub struct Replay {
    calls: Calls,
    /// The steps that another thread makes, if it does.
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

/// Position of a [`Replay`] relative to its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Before the window.
    Before,
    /// Within it.
    Within,
    /// After it: all events are ignored.
    Behind,
}

impl Replay {
    /// Starts a replay. `symbols` have the names by which functions are chosen.
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

    /// Processes the next events; `info` describes the trace so far. Returns `false` when the window is over and no
    /// more events are needed.
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

    /// Processes a batch for which calls must be rebuilt and nothing else.
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

    /// Processes one event, where more must be done than to rebuild calls.
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

    /// Processes an event before the window.
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

    /// Begins the window with the open calls and the current values of counters.
    fn open(&mut self, info: &TraceInfo, out: &mut impl Observer) {
        self.stage = Stage::Within;
        if let Some(chooser) = &mut self.chooser {
            chooser.open_window();
        }
        // No overhead is subtracted for what was recorded before the window.
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

    /// Ends the trace: closes the open calls.
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
        // A window that begins after the last event shows nothing, but a trace that was cut may have no events there.
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
            // A trace that was cut extends beyond its last event.
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

    /// Passes on the steps of the calls that `ends` closes.
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

    /// Counters of the reconstruction.
    pub const fn counts(&self) -> &Counts {
        self.calls.counts()
    }

    /// Counters of the clock repair; `None` if no clock stepped back.
    pub fn clock_repair(&self) -> Option<&ClockRepairCounts> {
        self.arrange.repaired()
    }

    /// Numbers of selected events; `None` without a selection.
    pub fn chosen(&self) -> Option<Chosen> {
        self.chooser.as_ref().map(Chooser::chosen)
    }

    /// The fields that conditions of the selection need and no event has; `None` without a selection.
    pub fn unmet(&self) -> Option<&Unmet> {
        self.chooser.as_ref().map(Chooser::unmet)
    }

    /// Whether the window has begun, that is, whether there are events after its first bound.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Before
    }

    /// The recording overhead, if it is subtracted.
    pub const fn compensation(&self) -> Option<&Compensation> {
        self.compensation.as_ref()
    }
}

/// The stream of a step's track.
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
