//! The straight path: an enter, or the exit of the innermost call, on a track that is known to be at work.
//!
//! Nearly all events of a trace of functions are such. What the other files do for them comes down to a few
//! loads and stores, if nothing else has happened since the stream's last event: so a stream remembers its
//! processor and track ([`Place`]), until anything but an enter or exit forgets them all.

use kymo_event::{Cpu, Row, RowKind, ThreadId};

use super::Calls;
use super::cpu_state::{Charge, CpuState};
use super::output::{Begin, CallId, Callee, How, Observer, Step};
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
    /// that they share at hand. How many those were.
    #[inline]
    pub fn run_to(&mut self, rows: &[Row], out: &mut impl Observer) -> usize {
        let Some(first) = rows.first() else { return 0 };
        let Some(stream) = self.streams.get(first.stream.0 as usize) else {
            return 0;
        };
        let place = stream.place;
        if place.epoch != self.epoch {
            return 0;
        }
        let cpus = self.cpus.get_mut(place.cpu);
        let (Some(cpu), Some(track)) = (cpus, self.tracks.get_mut(place.track)) else {
            return 0;
        };
        let Some(mut last) = cpu.last else { return 0 };
        if track.hides() {
            return 0;
        }
        let max_depth = self.options.max_depth as usize;
        let (begun, mut returned, mut done) = (last, 0, 0);
        for row in rows {
            let passed = row.time.0.wrapping_sub(last.0);
            // What stands beside a row is for whoever takes the steps, one by one.
            if done > 0 && row.has_event() {
                break;
            }
            // Elsewhere; or a clock that stepped back, or times too far apart for a number.
            if row.stream != first.stream || row.place() != place.of || passed < 0 {
                break;
            }
            match (row.kind, row.of_function()) {
                (RowKind::Enter, Some(function)) if track.depth() < max_depth => {
                    cpu.pass(place.track, passed, track);
                    let (call, callee) = (CallId(self.calls), Callee::Function(function));
                    self.calls += 1;
                    let begin = track.begin(call, callee, row.time, row.call_site());
                    out.step(Step::Begin(Begin {
                        cpu: place.on,
                        thread: place.thread,
                        ..begin
                    }));
                }
                (RowKind::Exit, function) if track.is_innermost(function) => {
                    cpu.pass(place.track, passed, track);
                    if let Some(end) = track.end(row.time, |_| How::Returned) {
                        returned += 1;
                        if end.doubt.any() {
                            self.counts.doubtful += 1;
                            self.counts.doubtful_time += u64::from(!end.doubt.loss);
                        }
                        out.step(Step::End(end));
                    }
                }
                _ => break,
            }
            last = row.time;
            done += 1;
        }
        cpu.last = Some(last);
        if done > 0 {
            cpu.stream = first.stream;
        }
        self.counts.returned += returned;
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
            && !state.told
            && !state.lossy
            && self.in_gap.is_empty();
        let (on, thread) = self.place_of(track);
        if let Some(stream) = self.streams.get_mut(row.stream.0 as usize) {
            // Another thread in a thread's stream has to be looked at each time.
            let clear = clear && stream.asked == Some(row.place());
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

impl CpuState {
    /// Time passes up to an event, and the track that has the processor is charged.
    #[inline(always)]
    fn pass(&mut self, index: usize, passed: i64, track: &mut Track) {
        if passed > 0 {
            let (until, call) = track.charge(passed);
            self.charges.add(Charge {
                track: Some(index),
                passed,
                until,
                call,
            });
        }
    }
}
