//! The straight path: an enter, the exit of the innermost call, or an event of no meaning, on a track that is known to be at
//! work.
//!
//! Nearly all events of a trace of functions are such. What the other files do for them comes down to a few
//! loads and stores, if nothing else has happened since the stream's last event: so a stream remembers its
//! processor and track ([`Place`]), until anything but an enter or exit forgets them all.

use kymo_event::{Cpu, EventRef, Row, RowKind, ThreadId, Time};

use super::Calls;
use super::cpu_state::{Charge, CpuState};
use super::output::{Begin, CallId, Counts, Observer, Step};
use super::track::Track;

/// Where the enters and exits of a stream happen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The [`Calls::epoch`] for which this holds; 0 for none.
    epoch: u64,
    /// The [`Row::place`] of its events.
    of: u64,
    /// The state of the processor, and the track that has it.
    cpu: usize,
    track: usize,
    /// What a [`Begin`] there says.
    on: Option<Cpu>,
    thread: Option<ThreadId>,
}

impl Calls {
    /// Takes the enters and exits at the front of `rows` that are on the straight path: one loop with all
    /// that they share at hand. How many those were. `is_run`: they are of a [run](kymo_event::Run).
    pub fn run_to(&mut self, rows: &[Row], is_run: bool, out: &mut impl Observer) -> usize {
        let Some(first) = rows.first() else { return 0 };
        let Some(stream) = self.streams.get(first.stream.0 as usize) else {
            return 0;
        };
        let place = stream.place;
        if place.epoch != self.epoch || first.place() != place.of {
            return 0;
        }
        let cpus = self.cpus.get_mut(place.cpu);
        let (Some(cpu), Some(track)) = (cpus, self.tracks.get_mut(place.track)) else {
            return 0;
        };
        let Some(begun) = cpu.last else { return 0 };
        // All time that passes here is the track's.
        let Some(ahead) = track.ran.checked_sub(begun.0) else {
            return 0;
        };
        if track.hides() {
            return 0;
        }
        let mut straight = Straight {
            place,
            ahead,
            max_depth: self.options.max_depth as usize,
            calls: self.calls,
            counts: &mut self.counts,
            last: begun,
        };
        // Of a run, the first time is the earliest, and the last one the latest.
        let times = (first.time, rows.last().unwrap_or(first).time);
        let is_run = is_run && times.0 >= begun && times.1.0.checked_add(ahead).is_some();
        let done = match (is_run, self.in_order) {
            (true, true) => straight.take::<true, false>(rows, cpu, track, out),
            (true, false) => straight.take::<true, true>(rows, cpu, track, out),
            (false, _) => straight.take::<false, true>(rows, cpu, track, out),
        };
        let Straight { calls, last, .. } = straight;
        self.calls = calls;
        cpu.last = Some(last);
        if done > 0 {
            cpu.stream = first.stream;
        }
        self.counts.ran += last.since(begun).unwrap_or_default();
        done
    }

    /// After an enter or exit that took the long way: remembers where the next one of its stream happens,
    /// if that is clear.
    pub(super) fn remember_place(&mut self, row: &Row, cpu: usize, track: usize) {
        let state = &self.cpus[cpu];
        let clear = state.crossed.is_none()
            && state.hidden == 0
            && state.running() == Some(track)
            && !state.unsure
            && !state.reported
            && !state.lossy;
        let (on, thread) = self.place_of(track);
        if let Some(stream) = self.streams.get_mut(row.stream.0 as usize) {
            // Another thread in a thread's stream has to be looked at each time.
            let clear = clear && stream.requested == Some(row.place());
            stream.place = Place {
                epoch: if clear { self.epoch } else { 0 },
                of: row.place(),
                cpu,
                track,
                on,
                thread,
            };
        }
    }
}

/// What enters and exits of one place have in common.
struct Straight<'c> {
    place: Place,
    /// How much more nanoseconds the track has run than the time says.
    ahead: i64,
    max_depth: usize,
    /// The number of the next call.
    calls: u64,
    counts: &'c mut Counts,
    /// The time of the last of them.
    last: Time,
}

impl Straight<'_> {
    /// Takes rows as far as they belong here. `RUN`: they are of a run whose times don't lie before the last one. `CHARGE`:
    /// what time was charged to whom is remembered, as a clock may step back. Apart from its caller, so that the compiler
    /// has registers for it.
    #[inline(never)]
    fn take<const RUN: bool, const CHARGE: bool>(
        &mut self,
        rows: &[Row],
        cpu: &mut CpuState,
        track: &mut Track,
        out: &mut impl Observer,
    ) -> usize {
        let (place, ahead, max_depth) = (self.place, self.ahead, self.max_depth);
        let (mut calls, mut last, mut returned) = (self.calls, self.last, 0);
        let stream = rows.first().map(|row| row.stream);
        let mut stack = track.stack();
        let mut rest = rows;
        // What is left takes the long way.
        while let Some((row, behind)) = rest.split_first() {
            if !RUN {
                // Elsewhere; or a clock that stepped back, or times too far apart for a number.
                let is_here = Some(row.stream) == stream && row.place() == place.of;
                let is_later = row.time >= last && row.time.0.checked_add(ahead).is_some();
                // What stands beside a row is for the consumer of the steps, one by one.
                let is_alone = !row.has_event() || rest.len() == rows.len();
                if !(is_here && is_later && is_alone) {
                    break;
                }
            }
            let ran = row.time.0.wrapping_add(ahead);
            let worked = CHARGE.then(|| stack.at_work());
            match row.kind {
                RowKind::Enter if stack.depth() < max_depth && (RUN || !row.is_found()) => {
                    let Some(function) = row.of_function() else {
                        break;
                    };
                    let call = CallId(calls);
                    calls += 1;
                    let begin = stack.enter(call, function, (row.time, ran), row.call_site());
                    out.step(Step::Begin(Begin {
                        cpu: place.on,
                        thread: place.thread,
                        ..begin
                    }));
                }
                // What was measured on the target is for the long way; it is not in a run.
                RowKind::Exit if RUN || row.is_plain_exit() => {
                    let Some(end) = stack.leave(row.of_function(), (row.time, ran)) else {
                        break;
                    };
                    returned += 1;
                    out.step(Step::End(end));
                }
                RowKind::Other if !RUN && !row.has_event() && row.of_function().is_none() => out
                    .step(Step::Event {
                        track: Some(stack.id),
                        event: EventRef { row, event: None },
                    }),
                _ => break,
            }
            if let Some(call) = worked {
                let passed = row.time.0.wrapping_sub(last.0);
                if passed > 0 {
                    cpu.charges.add(Charge {
                        track: Some(place.track),
                        passed,
                        until: ran,
                        call,
                    });
                }
            }
            (last, rest) = (row.time, behind);
        }
        stack.end();
        track.ran = last.0.wrapping_add(ahead);
        (self.calls, self.last) = (calls, last);
        self.counts.returned += returned;
        rows.len() - rest.len()
    }
}
