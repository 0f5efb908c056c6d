//! Queue of steps that wait until their call is known to last long enough to be shown.

use std::collections::VecDeque;

use kymo_event::{Duration, Event, EventRef, Row};

use crate::calls::{Begin, CallId, End, Step, TrackId};
use crate::hash::FastMap;
use crate::replay::Origin;

/// Holds steps back until their calls are known to last long enough.
pub(super) struct Held {
    least: Duration,
    queue: VecDeque<Waiting>,
    /// The sequence number of the first entry in the queue.
    first: u64,
    /// The calls in the queue whose end has not come, with the sequence number of their begin.
    open: FastMap<CallId, u64>,
    /// Calls that were shown before their duration was known.
    pub(super) undecided: u64,
}

/// Maximum number of steps held back; beyond it, a call that is still open is shown.
const MOST_HELD: usize = 1 << 17;

enum Waiting {
    /// A step to pass on.
    Step(Option<Origin>, OwnedStep),
    /// The begin of a call whose duration is not known yet.
    Begin(Option<Origin>, Begin),
    /// A dropped begin: its call was too short.
    Nothing,
}

enum OwnedStep {
    Plain(Step<'static>),
    Event(Option<TrackId>, Row, Option<Box<Event>>),
}

impl Held {
    pub(super) fn new(least: Duration) -> Self {
        Self {
            least,
            queue: VecDeque::new(),
            first: 0,
            open: FastMap::default(),
            undecided: 0,
        }
    }

    pub(super) fn step(
        &mut self,
        step: Step<'_>,
        from: Option<Origin>,
        out: &mut impl FnMut(Option<Origin>, Step<'_>),
    ) {
        if self.least == Duration(0) {
            return out(from, step);
        }
        match step {
            Step::Begin(begin) => {
                let place = self.first + self.queue.len() as u64;
                self.open.insert(begin.call, place);
                self.queue.push_back(Waiting::Begin(from, begin));
            }
            Step::End(end) => self.end(end, from),
            step if self.queue.is_empty() => return out(from, step),
            step => self.queue.push_back(Waiting::Step(from, owned(step))),
        }
        if self.queue.len() > MOST_HELD
            && let Some(Waiting::Begin(from, begin)) = self.queue.front()
        {
            let (from, begin) = (*from, *begin);
            self.undecided += 1;
            self.open.remove(&begin.call);
            self.queue[0] = Waiting::Step(from, OwnedStep::Plain(Step::Begin(begin)));
        }
        self.give(out);
    }

    fn end(&mut self, end: End, from: Option<Origin>) {
        let long = end.duration.is_none_or(|duration| duration >= self.least);
        if let Some(place) = self.open.remove(&end.call) {
            let place = (place - self.first) as usize;
            if let Waiting::Begin(from, begin) = self.queue[place] {
                self.queue[place] = match long {
                    true => Waiting::Step(from, OwnedStep::Plain(Step::Begin(begin))),
                    false => Waiting::Nothing,
                };
            }
            if !long {
                return;
            }
        } else if !long && end.begin.is_none() {
            return;
        }
        self.queue
            .push_back(Waiting::Step(from, OwnedStep::Plain(Step::End(end))));
    }

    fn give(&mut self, out: &mut impl FnMut(Option<Origin>, Step<'_>)) {
        while !matches!(self.queue.front(), None | Some(Waiting::Begin(..))) {
            self.first += 1;
            if let Some(Waiting::Step(from, step)) = self.queue.pop_front() {
                tell(&step, from, out);
            }
        }
    }

    pub(super) fn finish(&mut self, out: &mut impl FnMut(Option<Origin>, Step<'_>)) {
        for waiting in std::mem::take(&mut self.queue) {
            match waiting {
                Waiting::Step(from, step) => tell(&step, from, out),
                Waiting::Begin(from, begin) => out(from, Step::Begin(begin)),
                Waiting::Nothing => {}
            }
        }
        self.open.clear();
    }
}

fn tell(step: &OwnedStep, from: Option<Origin>, out: &mut impl FnMut(Option<Origin>, Step<'_>)) {
    match step {
        OwnedStep::Plain(step) => out(from, *step),
        OwnedStep::Event(track, row, event) => out(
            from,
            Step::Event {
                track: *track,
                event: EventRef {
                    row,
                    event: event.as_deref(),
                },
            },
        ),
    }
}

fn owned(step: Step<'_>) -> OwnedStep {
    OwnedStep::Plain(match step {
        Step::Event { track, event } => {
            let whole = event.event.cloned().map(Box::new);
            return OwnedStep::Event(track, *event.row, whole);
        }
        Step::Track { track, info } => Step::Track { track, info },
        Step::Begin(begin) => Step::Begin(begin),
        Step::End(end) => Step::End(end),
        Step::State {
            track,
            time,
            cpu,
            running,
            recorded,
        } => Step::State {
            track,
            time,
            cpu,
            running,
            recorded,
        },
        Step::ClockAhead(ahead) => Step::ClockAhead(ahead),
    })
}
