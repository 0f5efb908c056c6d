//! Straight path: fast path for an enter, the exit of the innermost call, or an event without effect, on a track that
//! is known to run.
//!
//! Nearly all events of a function trace are of this kind. If nothing else has happened since the stream's last
//! event, the work of the other files comes down to a few loads and stores. So each stream caches its processor and
//! track ([`Place`]); any event other than an enter or exit invalidates all caches.

use kymo_event::{Cpu, EventRef, Row, RowKind, ThreadId, Time};

use super::Calls;
use super::cpu_state::{Charge, CpuState};
use super::output::{Begin, CallId, Counts, Observer, Step};
use super::track::Track;

/// The processor and track of a stream's enters and exits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The [`Calls::epoch`] for which this is valid; 0 for none.
    epoch: u64,
    /// The [`Row::place`] of its events.
    of: u64,
    /// The state of the processor, and the track that has it.
    cpu: usize,
    track: usize,
    /// The values for a [`Begin`] there.
    on: Option<Cpu>,
    thread: Option<ThreadId>,
}

impl Calls {
    /// Processes the enters and exits at the front of `rows` that are on the straight path, in one loop. Returns
    /// their number. `is_run`: they belong to a [run](kymo_event::Run).
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
        // All time that passes here is charged to the track.
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
        // In a run, the first time is the earliest and the last one the latest.
        let times = (first.time, rows.last().unwrap_or(first).time);
        if times.1 > self.unrecorded.next_end() {
            return 0;
        }
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

    /// Remembers where the next enter or exit of the stream happens, if that is unambiguous. Called after one that
    /// took the slow path.
    pub(super) fn remember_place(&mut self, row: &Row, cpu: usize, track: usize) {
        let state = &self.cpus[cpu];
        let clear = state.crossed.is_none()
            && state.hidden == 0
            && state.running() == Some(track)
            && !state.unsure
            && !state.reported
            && !state.lossy
            && !self.tracks[track].may_have_unsure_callers()
            && !self.is_unrecorded(cpu, row.time)
            && !self.is_moving(track, row.time);
        let (on, thread) = self.place_of(track);
        if let Some(stream) = self.streams.get_mut(row.stream.0 as usize) {
            // An event that names another thread in a thread's stream must be examined each time.
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

/// State that the enters and exits of one place share.
struct Straight<'c> {
    place: Place,
    /// The track's run time minus the time of the trace, in nanoseconds.
    ahead: i64,
    max_depth: usize,
    /// The id of the next call.
    calls: u64,
    counts: &'c mut Counts,
    /// The time of the last event.
    last: Time,
}

impl Straight<'_> {
    /// Processes rows as far as they are on the straight path. `RUN`: they belong to a run whose times are not before
    /// the last one. `CHARGE`: charges are remembered, because a clock may step back. Not inlined into its caller, so
    /// that the compiler has registers for it.
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
        // The remaining rows take the slow path.
        while let Some((row, behind)) = rest.split_first() {
            if !RUN {
                // Breaks at another place, where a clock stepped back, and where times are too far apart for an
                // `i64`.
                let is_here = Some(row.stream) == stream && row.place() == place.of;
                let is_later = row.time >= last && row.time.0.checked_add(ahead).is_some();
                // An event beside a row must reach the consumer of the steps alone.
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
                // Exits with values measured on the target take the slow path; runs have none.
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
