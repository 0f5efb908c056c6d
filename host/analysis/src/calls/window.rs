//! Window of a trace: calls that are open at its bounds are clipped there.

use kymo_event::{Addr, Cpu, Row, RowKind, SpaceId, StreamId, ThreadId, Time};

use super::Calls;
use super::cpu_state::CpuState;
use super::output::{Begin, CallId, Callee, How, Step};

impl Calls {
    /// Begins a window: reports the state at `time` as if the trace began there, that is, tracks, threads that have a
    /// processor, and all open calls. Times and [counts](Self::counts) restart here.
    ///
    /// Must be called before the first event at or after `time`; the steps of earlier events must be dropped.
    pub fn open_window(&mut self, time: Time, out: &mut impl FnMut(Step<'_>)) {
        self.epoch += 1;
        self.window = Some(time);
        self.half_seen.clear();
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].last.is_some_and(|last| last < time) {
                self.advance(cpu, time, &mut |_| {});
            }
            self.cpus[cpu].charges.forget();
        }
        self.counts = self.lost_before.open_window(&self.counts);
        // A processor whose only event is a loss may have run since before the window.
        let unheard = |cpu: &&CpuState| {
            cpu.last.is_none()
                && self.in_gap.contains(&cpu.stream)
                && !self.has_no_calls(cpu.stream)
        };
        self.counts.unbounded_gaps = self.cpus.iter().filter(unheard).count() as u64;
        for track in 0..self.tracks.len() {
            self.tell(track, out);
            if self.lossy_cut {
                self.tracks[track].doubt_loss();
            }
        }
        // Threads come before the interrupts that preempt them.
        for track in 0..self.tracks.len() {
            if let Some(cpu) = self.tracks[track].on {
                self.state(cpu, track, time, true, true, out);
            }
            if self.tracks[track].info.is_thread() {
                // A waiting thread is on the processor where it ran last.
                let last_on = self.tracks[track].last_on;
                let cpu = last_on.and_then(|cpu| self.cpus[cpu].cpu());
                self.clip(track, time, (cpu, None), out);
            }
        }
        for (_, spans) in self.spans_in_order() {
            self.clip(spans.track, time, (spans.cpu, spans.thread), out);
        }
        for cpu in 0..self.cpus.len() {
            let found = &self.cpus[cpu];
            let thread = found.thread.and_then(|thread| self.place_of(thread).1);
            for track in found.interrupts.clone() {
                self.clip(track, time, (None, thread), out);
            }
        }
    }

    /// Clips the calls of a track; `cpu` and `thread` apply where the track has none.
    fn clip(
        &mut self,
        track: usize,
        time: Time,
        (cpu, thread): (Option<Cpu>, Option<ThreadId>),
        out: &mut impl FnMut(Step<'_>),
    ) {
        let mut begun = Vec::new();
        self.tracks[track].clip(time, |begin| begun.push(begin));
        for begin in begun {
            let placed = self.placed(begin, track);
            out(Step::Begin(Begin {
                cpu: placed.cpu.or(cpu),
                thread: placed.thread.or(thread),
                ..placed
            }));
        }
    }

    /// The rows that a trace cut at `time` must begin with: they put every thread on its processor and enter the open
    /// calls and interrupts, each with its call. None of them is a record.
    pub fn open_rows(&self, time: Time) -> Vec<(Row, Option<CallId>)> {
        let mut rows = Vec::new();
        for (index, cpu) in self.cpus.iter().enumerate() {
            let running = cpu.thread.filter(|_| !cpu.ended);
            // Waiting tracks come first: the one without a thread before any thread has the processor, and last the
            // thread that left the processor to none.
            let mut waiting: Vec<usize> = cpu.tracks.clone();
            waiting.retain(|track| {
                let found = &self.tracks[*track];
                let here = found.last_on == Some(index) && Some(*track) != running;
                here && found.depth() > 0
            });
            waiting.sort_unstable_by_key(|track| {
                let left_it = cpu.left == Some(*track);
                (cpu.nobody != Some(*track), left_it, *track)
            });
            let row = |kind, track: usize| {
                let thread = self.place_of(track).1;
                let mut row = Row::new(kind, time, cpu.stream).at(cpu.cpu(), thread);
                row.record = false;
                row
            };
            for track in waiting.into_iter().chain(running) {
                let is_thread = cpu.nobody != Some(track);
                if is_thread {
                    rows.push((row(RowKind::SwitchedIn, track), None));
                }
                self.enters(track, row(RowKind::Enter, track), &mut rows);
                if is_thread && Some(track) != running {
                    rows.push((row(RowKind::SwitchedOut, track), None));
                }
            }
            for track in &cpu.interrupts {
                let below = running.unwrap_or(*track);
                self.enters(*track, row(RowKind::Enter, below), &mut rows);
            }
        }
        for ((_, _, cpu), spans) in self.spans_in_order() {
            let stream = self.tracks[spans.track].info.stream;
            let row = Row::new(RowKind::SpanBegin, time, stream).at(spans.cpu, spans.thread);
            for (call, callee, _) in self.tracks[spans.track].open_calls() {
                let Callee::Function(function) = callee else {
                    continue;
                };
                let mut row = row.function(Some(function)).per_cpu(cpu.is_some());
                row.record = false;
                rows.push((row, Some(call)));
            }
        }
        rows
    }

    /// The streams in which events are missing up to the next event of their processor.
    pub fn lossy_streams(&self) -> impl Iterator<Item = StreamId> {
        let lossy = self.cpus.iter().filter(|cpu| cpu.lossy);
        lossy.map(|cpu| cpu.stream)
    }

    /// Adds rows like `enter` for the open calls of a track, and the marks that jumps lead to.
    fn enters(&self, track: usize, enter: Row, rows: &mut Vec<(Row, Option<CallId>)>) {
        let mut marks = self.tracks[track].marks().into_iter().peekable();
        for (depth, (call, callee, site)) in self.tracks[track].open_calls().enumerate() {
            while let Some((_, env)) = marks.next_if(|(at, _)| *at <= depth) {
                rows.push((set_jump(enter, env), None));
            }
            let row = match callee {
                Callee::Function(function) => enter.function(Some(function)).word(site),
                Callee::Interrupt(irq) => {
                    let mut row = enter.interrupt(Some(irq));
                    row.kind = RowKind::IsrEnter;
                    row
                }
                Callee::Unknown => continue,
            };
            rows.push((row, Some(call)));
        }
        rows.extend(marks.map(|(_, env)| (set_jump(enter, env), None)));
    }

    /// Ends a window: open calls are clipped at `time`, as if the trace ended there ([`How::Open`]).
    ///
    /// Must be called after all events up to `time`.
    pub fn close_window(&mut self, time: Time, out: &mut impl FnMut(Step<'_>)) {
        self.close_all(|_| time, &mut |mut step| {
            if let Step::End(end) = &mut step {
                end.clipped = true;
            }
            out(step);
        });
    }

    /// Ends the trace: open calls last until the last event of their machine ([`How::Open`]). Later events of another
    /// machine have no effect on them.
    pub fn finish(&mut self, out: &mut impl FnMut(Step<'_>)) {
        // A stream that ends with a loss does not show how long it continued.
        let ends_lost = |stream: &StreamId| !self.has_no_calls(*stream);
        self.counts.unbounded_gaps += u64::from(self.in_gap.iter().any(ends_lost));
        let mut ends: Vec<(SpaceId, Time)> = Vec::new();
        for cpu in &self.cpus {
            let Some(last) = cpu.last else { continue };
            match ends.iter_mut().find(|(machine, _)| *machine == cpu.machine) {
                Some((_, end)) => *end = last.max(*end),
                None => ends.push((cpu.machine, last)),
            }
        }
        let Some(last) = ends.iter().map(|(_, end)| *end).max() else {
            return;
        };
        let end_of = |machine| {
            let end = ends.iter().find(|(known, _)| *known == machine);
            end.map_or(last, |(_, end)| *end)
        };
        self.close_all(end_of, out);
    }

    /// Whether the track that has a processor has open calls.
    fn has_open_calls(&self, cpu: usize) -> bool {
        let running = self.cpus[cpu].running();
        running.is_some_and(|track| self.tracks[track].depth() > 0)
    }

    /// Closes open calls at the end of their machine's events. A processor or thread without further events has not
    /// stopped: a waiting thread keeps its calls open. Only a thread that is known to have exited, and one whose last
    /// events were lost, is not charged for time after its last event. After a loss, all time until the end counts as
    /// run time, possibly in calls whose enters were lost.
    fn close_all(&mut self, end_of: impl Fn(SpaceId) -> Time, out: &mut impl FnMut(Step<'_>)) {
        // Threads carry calls whose enters were lost to other processors.
        let lossy = self
            .cpus
            .iter()
            .filter(|cpu| cpu.lost && cpu.cpu().is_some());
        let lossy: Vec<SpaceId> = lossy.map(|cpu| cpu.machine).collect();
        for cpu in 0..self.cpus.len() {
            let machine = self.cpus[cpu].machine;
            let (time, wander) = (end_of(machine), lossy.contains(&machine));
            let Some(last) = self.cpus[cpu].last.filter(|last| *last < time) else {
                self.end_interrupts(cpu, 0, time, |_| How::Open, out);
                continue;
            };
            let mut end = last;
            let found = &mut self.cpus[cpu];
            let lossy = std::mem::take(&mut found.lossy);
            let lost = found.lost || (wander && found.cpu().is_some());
            let followed = |owner: ThreadId| self.followed.1.get(owner.0 as usize) == Some(&true);
            let ended = found.ended || found.owner.is_some_and(followed);
            if !lossy && !ended && self.has_open_calls(cpu) {
                self.advance(cpu, time, out);
                end = time;
            } else if lossy || (lost && !ended) {
                // The lost events at its end may extend until then, and so may a call whose enter is lost.
                self.counts.ran += time.since(last).unwrap_or_default();
            }
            self.end_interrupts(cpu, 0, end, |_| How::Open, out);
        }
        for track in 0..self.tracks.len() {
            let on = self.tracks[track].on.and_then(|cpu| self.cpus[cpu].last);
            let end = on.unwrap_or_else(|| end_of(self.tracks[track].machine));
            self.close(track, 0, end, |_| How::Open, out);
        }
    }
}

/// A row like `enter` that marks the target of jumps with `env`.
fn set_jump(enter: Row, env: Addr) -> Row {
    let mut row = enter.word(env);
    row.kind = RowKind::SetJmp;
    row
}
