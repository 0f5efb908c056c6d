//! What all formats that draw a line of time do with the steps of the calls: the same things get a
//! place in all of them, and the same are counted as left out.

use kymo_analysis::calls::{Begin, End, Step, TrackId, TrackKind};
use kymo_event::{Cpu, Event, Time};

use crate::lanes::Lanes;
use crate::names::Names;

/// A file of such a format.
pub(crate) trait Draw<'a> {
    /// What interrupts are called.
    fn names(&mut self) -> &mut Names<'a>;
    /// Where tracks stand.
    fn lanes(&mut self) -> &mut Lanes;
    /// How much had no place.
    fn left_out(&mut self) -> &mut u64;
    /// The title of a lane that is shown already is another one from here on.
    fn retitle(&mut self, track: TrackId);
    /// A call begins.
    fn begin(&mut self, begin: &Begin);
    /// A call ends.
    fn end(&mut self, end: &End);
    /// A thread gets a CPU, or loses it.
    fn state(&mut self, track: TrackId, time: Time, cpu: Cpu, running: bool);
    /// Anything else happens.
    fn event(&mut self, track: Option<TrackId>, event: &Event);

    /// Takes a step of the calls.
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Track { track, info } => {
                if let (TrackKind::Interrupt { irq, .. }, Some(name)) = (info.kind, &info.name) {
                    self.names().learn_interrupt(irq, name);
                }
                if self.lanes().update(*track, info) {
                    self.retitle(*track);
                }
            }
            Step::Begin(begin) => self.begin(begin),
            Step::End(end) => self.end(end),
            Step::State {
                track,
                time,
                cpu,
                running,
                recorded,
            } => match cpu {
                Some(cpu) => self.state(*track, *time, *cpu, *running),
                // A switch needs a CPU to be shown on. Threads of a Linux process have none, and
                // what is only inferred of them then is nothing that is missed.
                None => *self.left_out() += u64::from(*recorded),
            },
            Step::Event { track, event } => self.event(*track, event),
            // There may be more kinds of steps one day; what has no place here is counted.
            _ => *self.left_out() += 1,
        }
    }
}
