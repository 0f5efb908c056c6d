//! Scheduling analysis: run times of threads and interrupts, number and length of their activations, and how long
//! threads waited between being ready and running.
//!
//! Uses only thread switches and interrupts, batch by batch, so every source that records them has this table. Time
//! is charged to the innermost interrupt handler of a processor, else to its thread, else to none. The latter is idle
//! time, as is the time of idle threads. On a processor that has an idle thread, no thread runs only while the kernel
//! switches, which is [counted separately](RunTime::switching).
//!
//! At the start of the trace, and after lost events, time is charged to the thread that events name or that the next
//! switch ends; otherwise it is unknown. A trace without any switch has no times of threads and no idle time.

mod processor;
mod run_time;

use std::collections::BTreeMap;

use kymo_event::{
    Batch, Cpu, Duration, EventKind, EventRef, Gap, InterruptId, Row, RowKind, SpaceId, StreamInfo,
    ThreadId, Tid, Time, TraceInfo,
};

use crate::clock_repair::ClockRepair;
use crate::replay::Window;

use processor::{Active, Processor, Running};

pub use run_time::{RunTime, Waits};

/// A processor of a machine ([`StreamInfo::machine`]).
type Place = (SpaceId, Cpu);

/// Stands for the processor of events that don't record theirs.
const UNKNOWN: Cpu = Cpu(u32::MAX);

/// Maximum nesting depth of interrupt handlers.
const NESTED: usize = 1 << 10;

/// Tables of threads and interrupts.
#[derive(Debug, Default)]
pub struct Schedule {
    window: Window,
    of_cpus: Vec<Cpu>,
    processors: BTreeMap<Place, Processor>,
    /// Indexed by [`ThreadId`].
    threads: Vec<RunTime>,
    /// Indexed by [`InterruptId`].
    interrupts: Vec<RunTime>,
    /// The processor on which each thread was last seen to run, indexed by [`ThreadId`].
    last_on: Vec<Option<Place>>,
    /// Threads that are ready but do not run yet, and since when.
    ready: BTreeMap<ThreadId, Time>,
    /// The observed time span of each machine.
    spans: BTreeMap<SpaceId, (Time, Time)>,
    gaps: u64,
    has_switches: bool,
    has_interrupts: bool,
    unknown: Duration,
    /// Repairs the times of clocks that step back.
    repair: Option<ClockRepair>,
}

impl Schedule {
    /// Creates empty tables for a part of a trace.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    /// Restricts the tables to some processors; an empty list means all.
    #[must_use]
    pub fn of_cpus(mut self, cpus: Vec<Cpu>) -> Self {
        self.of_cpus = cpus;
        self
    }

    /// Processes the next events.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) {
        if self.repair.is_none() && !info.steps_back {
            return self.take(info, batch);
        }
        let mut repaired = Batch::default();
        let repair = self.repair.get_or_insert_default();
        repair.take(batch, &mut repaired);
        self.take(info, &repaired);
    }

    fn take(&mut self, info: &TraceInfo, batch: &Batch) {
        for event in batch.iter() {
            self.push(info, event);
        }
    }

    /// Processes the next event of a trace whose clock does not step back.
    pub fn push(&mut self, info: &TraceInfo, event: EventRef<'_>) {
        let row = event.row;
        let stream = info.stream(row.stream);
        if stream.is_some_and(|stream| stream.timeless) {
            return;
        }
        let machine = stream.map(|stream| stream.machine).unwrap_or_default();
        self.look_at(machine, row.time);
        if row.time > self.window.end {
            return self.beyond(event, stream);
        }
        match row.kind {
            RowKind::SwitchedIn | RowKind::SwitchedOut | RowKind::IsrEnter | RowKind::IsrExit
                if self.is_of_cpu(row.cpu()) =>
            {
                self.change(info, row, machine);
            }
            RowKind::Rare => match event.event.map(|event| &event.kind) {
                Some(EventKind::Ready { thread }) if !self.runs(*thread) => {
                    self.ready.entry(*thread).or_insert(row.time);
                }
                Some(EventKind::Gap(gap)) => {
                    let cpu = row.cpu().or(stream.and_then(|stream| stream.cpu));
                    if self.is_of_cpu(cpu) {
                        self.gap(row.time, (machine, cpu), gap);
                    }
                }
                _ => self.met(row, machine),
            },
            _ => self.met(row, machine),
        }
    }

    /// The latest switch of each processor whose owner is known: one to a thread that still has it, or one after
    /// which no thread has had it.
    pub fn latest_switches(&self) -> impl Iterator<Item = Row> {
        let processors = self.processors.values();
        processors.filter_map(|processor| match processor.running {
            Running::Nobody { since } => Some(since),
            Running::Thread { since, until, .. } => until.is_none().then_some(since),
            Running::Unknown { .. } => None,
        })
    }

    /// The thread that events name on a processor of a machine where no switch has shown the owner yet.
    pub fn named_on(&self, machine: SpaceId, cpu: Option<Cpu>) -> Option<ThreadId> {
        let processor = self.processors.get(&(machine, cpu.unwrap_or(UNKNOWN)))?;
        match processor.running {
            Running::Unknown {
                named, until: None, ..
            } => named.ok().flatten(),
            _ => None,
        }
    }

    /// Extends a machine's observed time span to `time`, as far as that is in the window. If the trace continues past
    /// the window, the span reaches the window's end.
    fn look_at(&mut self, machine: SpaceId, time: Time) {
        let within = time.clamp(self.window.begin, self.window.end);
        let (start, end) = self.spans.entry(machine).or_insert((within, within));
        (*start, *end) = ((*start).min(within), (*end).max(within));
    }

    /// Processes a row past the window. A gap there makes the end of the window unknown; a switch there shows that
    /// threads run through a window without switches.
    fn beyond(&mut self, event: EventRef<'_>, stream: Option<&StreamInfo>) {
        let row = event.row;
        let machine = stream.map(|stream| stream.machine).unwrap_or_default();
        let cpu = row.cpu().or(stream.and_then(|stream| stream.cpu));
        let event = event.event.filter(|_| row.kind == RowKind::Rare);
        match event.map(|event| &event.kind) {
            Some(EventKind::Gap(gap)) if self.is_of_cpu(cpu) => {
                self.gap(row.time, (machine, cpu), gap);
            }
            _ => {
                self.has_switches |= row.kind == RowKind::SwitchedIn && self.is_of_cpu(cpu);
                let place = cpu.map(|cpu| (machine, cpu));
                if let Some(processor) = place.and_then(|it| self.processors.get_mut(&it)) {
                    processor.is_behind = true;
                }
            }
        }
    }

    /// Ends the tables: threads and interrupts that run at the end of the trace run up to there.
    pub fn finish(&mut self, info: &TraceInfo) {
        if let Some(mut repair) = self.repair.take() {
            let mut rest = Batch::default();
            repair.finish(&mut rest);
            self.take(info, &rest);
        }
        // A trace that was cut extends up to the cuts.
        for cut in [info.cut.begin, info.cut.end].into_iter().flatten() {
            let machines: Vec<_> = self.spans.keys().copied().collect();
            for machine in machines {
                self.look_at(machine, cut);
            }
        }
        for ((machine, cpu), processor) in &mut self.processors {
            let Some((begin, end)) = self.spans.get(machine).copied() else {
                continue;
            };
            if let Some(known) = known_until(info, (*machine, *cpu)).filter(|it| *it < end) {
                processor.end_at(known.max(begin), self.window, &mut self.interrupts);
            }
            let before = processor
                .first
                .and_then(|first| first.min(end).since(begin));
            processor.unknown += before.unwrap_or_default();
            processor.go_on(end, self.window, &mut self.interrupts);
            processor.charge(end, self.window, &mut self.interrupts);
            processor.stay_open();
            processor.leave(None, &mut self.threads);
            if !self.has_switches {
                // Events name a thread now and then, which does not show that it had the time.
                processor.unknown += processor.nobody;
                processor.nobody = Duration(0);
                for (_, time) in std::mem::take(&mut processor.threads).into_values() {
                    processor.unknown += time;
                }
            }
            let mut all = processor.handlers;
            let mut idle = Duration(0);
            let mut has_idle_thread = false;
            for (thread, (count, time)) in &processor.threads {
                match info.identities.is_idle(*thread) {
                    true => {
                        idle += *time;
                        has_idle_thread = true;
                    }
                    false => {
                        all.run += *time;
                        all.count += count;
                    }
                }
            }
            match has_idle_thread {
                true => all.switching = processor.nobody,
                false => idle += processor.nobody,
            }
            all.idle = self.has_switches.then_some(idle);
            all.unknown = processor.unknown;
            self.unknown += processor.unknown;
            processor.all = all;
        }
        if !self.has_switches {
            self.threads.clear();
        }
    }

    /// The run time of a thread; `None` for one that neither ran nor was ready.
    pub fn thread(&self, thread: ThreadId) -> Option<&RunTime> {
        let run = self.threads.get(thread.0 as usize);
        run.filter(|run| **run != RunTime::default())
    }

    /// The run time of an interrupt; `None` for one that did not happen.
    pub fn interrupt(&self, interrupt: InterruptId) -> Option<&RunTime> {
        let run = self.interrupts.get(interrupt.0 as usize);
        run.filter(|run| **run != RunTime::default())
    }

    /// The time of all processors in which no thread, or only idle threads, ran; `None` if the trace has no thread
    /// switches.
    pub fn idle(&self) -> Option<Duration> {
        self.has_switches.then_some(())?;
        let mut processors = self.processors.values();
        processors.try_fold(Duration(0), |sum, it| Some(sum + it.all.idle?))
    }

    /// The time of all processors between two threads, where there is an idle thread too.
    pub fn switching(&self) -> Duration {
        let processors = self.processors.values();
        processors.fold(Duration(0), |sum, it| sum + it.all.switching)
    }

    /// The time of all processors in which it is unknown what ran.
    pub const fn unknown(&self) -> Duration {
        self.unknown
    }

    /// The run time of each processor that had events, with its [machine](StreamInfo::machine): the time of threads
    /// and interrupts together, and the number of their activations, without idle threads. `None` stands for a
    /// processor that the trace does not identify.
    pub fn cpus(&self) -> impl Iterator<Item = (SpaceId, Option<Cpu>, &RunTime)> {
        let known = |cpu: Cpu| (cpu != UNKNOWN).then_some(cpu);
        let processors = self.processors.iter();
        processors.map(move |((machine, cpu), processor)| (*machine, known(*cpu), &processor.all))
    }

    /// The time from the first to the last event of a machine, as far as that is in the window; that of the longest
    /// machine if `machine` has no events.
    pub fn span(&self, machine: SpaceId) -> Duration {
        let span = |(start, end): &(Time, Time)| end.since(*start).unwrap_or_default();
        let longest = || self.spans.values().map(span).max();
        let known = self.spans.get(&machine).map(span);
        known.or_else(longest).unwrap_or_default()
    }

    /// The time of all processors that had events.
    pub fn all(&self) -> Duration {
        let spans = self
            .processors
            .keys()
            .map(|(machine, _)| self.span(*machine));
        spans.fold(Duration(0), |sum, span| sum + span)
    }

    /// The number of gaps with missing events; counts and times are then lower bounds.
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Whether threads were seen to get processors, also around the window; otherwise nothing is known of their time.
    pub const fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// Whether interrupt handlers were seen.
    pub const fn has_interrupts(&self) -> bool {
        self.has_interrupts
    }

    fn change(&mut self, info: &TraceInfo, row: &Row, machine: SpaceId) {
        let place = (machine, row.cpu().unwrap_or(UNKNOWN));
        if row.kind == RowKind::SwitchedIn
            && let Some(thread) = row.thread()
            && !is_shared(info, thread)
        {
            self.take_from_others(thread, place, row.time);
        }
        let processor = self.processors.entry(place).or_default();
        processor.go_on(row.time, self.window, &mut self.interrupts);
        if row.kind == RowKind::SwitchedOut && processor.runs_another(row.thread()) {
            // Switches are missing: filtered by process, or lost.
            self.gaps += u64::from(row.time >= self.window.begin);
            processor.lose(self.window, &mut self.interrupts, &mut self.threads);
            processor.go_on(row.time, self.window, &mut self.interrupts);
        }
        if row.kind == RowKind::SwitchedOut
            && let Some(thread) = row.thread()
        {
            let tables = (&mut self.interrupts, &mut self.threads);
            processor.show(thread, self.window, tables);
        }
        processor.charge(row.time, self.window, &mut self.interrupts);
        processor.first = processor.first.or(Some(row.time));
        processor.last = Some(row.time);
        let within = row.time >= self.window.begin;
        match row.kind {
            RowKind::SwitchedIn => {
                self.has_switches = true;
                processor.leave(None, &mut self.threads);
                let Some(id) = row.thread() else {
                    processor.running = Running::Nobody { since: *row };
                    return;
                };
                processor.running = Running::Thread {
                    active: Active::new(id, within),
                    since: *row,
                    until: None,
                };
                let wait = self.ready.remove(&id);
                if within {
                    processor.threads.entry(id).or_default().0 += 1;
                    let run = entry(&mut self.threads, id.0);
                    run.count += 1;
                    // A wait that the window cuts is incomplete, like a run that it cuts.
                    let wait = wait.filter(|ready| *ready >= self.window.begin);
                    if let Some(wait) = wait.and_then(|ready| row.time.since(ready)) {
                        run.ready.add(wait);
                    }
                }
            }
            RowKind::SwitchedOut => {
                processor.leave(row.thread(), &mut self.threads);
                processor.running = Running::Nobody { since: *row };
            }
            RowKind::IsrEnter => {
                self.has_interrupts = true;
                let id = row.of_interrupt();
                processor.handlers.count += u64::from(within);
                if processor.interrupts.len() < NESTED {
                    processor.interrupts.push(Active::new(id, within));
                }
                if let Some(id) = id.filter(|_| within) {
                    entry(&mut self.interrupts, id.0).count += 1;
                }
            }
            RowKind::IsrExit => {
                let id = row.of_interrupt();
                // An exit that names its interrupt also ends those above it, whose exits are lost.
                let named = |it: &Active<Option<InterruptId>>| id.is_none() || it.id == id;
                let Some(place) = processor.interrupts.iter().rposition(named) else {
                    // It began before the trace, or in a loss.
                    processor.forget();
                    return;
                };
                let ended = processor.interrupts.get(place).copied();
                processor.interrupts.truncate(place);
                if let Some(Active {
                    id: Some(id),
                    ran,
                    whole: true,
                }) = ended
                {
                    entry(&mut self.interrupts, id.0).end(ran);
                }
            }
            _ => {}
        }
    }

    /// Processes any other event, which may show the running thread before the first switch.
    fn met(&mut self, row: &Row, machine: SpaceId) {
        let Some(cpu) = row.cpu().filter(|cpu| self.is_of_cpu(Some(*cpu))) else {
            return;
        };
        let processor = self.processors.entry((machine, cpu)).or_default();
        processor.go_on(row.time, self.window, &mut self.interrupts);
        processor.charged = processor.charged.or(Some(row.time));
        processor.first = processor.first.or(Some(row.time));
        processor.last = Some(row.time);
        if !matches!(processor.running, Running::Unknown { .. }) {
            return;
        }
        let Some(thread) = row.thread() else { return };
        let tables = (&mut self.interrupts, &mut self.threads);
        processor.show(thread, self.window, tables);
        if let Running::Unknown { named, .. } = &mut processor.running {
            let is_first = *named == Ok(None);
            *named = match *named {
                Ok(known) if known.is_none_or(|known| known == thread) => Ok(Some(thread)),
                _ => Err(()),
            };
            // A recorded switch is better evidence of where a thread runs.
            if is_first && !self.runs(thread) {
                self.take_from_others(thread, (machine, cpu), row.time);
            }
        }
    }

    fn is_of_cpu(&self, cpu: Option<Cpu>) -> bool {
        self.of_cpus.is_empty() || cpu.is_none_or(|cpu| self.of_cpus.contains(&cpu))
    }

    /// Whether a thread has a processor.
    fn runs(&self, thread: ThreadId) -> bool {
        let place = self.last_on.get(thread.0 as usize).copied().flatten();
        let processor = place.and_then(|place| self.processors.get(&place));
        processor.is_some_and(|it| it.has(thread))
    }

    /// Notes that a thread has a processor. If it has another one, its time there ends: the switch from it comes later,
    /// because the processors' clocks differ, or is missing.
    fn take_from_others(&mut self, thread: ThreadId, place: Place, time: Time) {
        let before = place_of(&mut self.last_on, thread).replace(place);
        if let Some(before) = before.filter(|before| *before != place)
            && let Some(processor) = self.processors.get_mut(&before)
        {
            processor.lose_thread(thread, time);
        }
    }

    /// Handles missing events after the last one, of one processor or of all of a machine: until the next event it is
    /// unknown what runs, and what runs then.
    fn gap(&mut self, time: Time, (machine, cpu): (SpaceId, Option<Cpu>), gap: &Gap) {
        if !gap.is_loss() {
            return;
        }
        if time >= self.window.begin && time <= self.window.end {
            self.gaps += 1;
        }
        self.ready.clear();
        let chosen = |it: &Place| it.0 == machine && cpu.is_none_or(|cpu| cpu == it.1);
        let processors = self.processors.iter_mut().filter(|(it, _)| chosen(it));
        for (_, processor) in processors.filter(|(_, it)| !it.is_behind) {
            processor.lose(self.window, &mut self.interrupts, &mut self.threads);
        }
    }
}

/// When the trace of a processor ends, if nothing is known of what runs there later.
fn known_until(info: &TraceInfo, (machine, cpu): Place) -> Option<Time> {
    let streams = info.streams.iter();
    let of_cpu = streams.filter(|it| it.machine == machine && it.cpu == Some(cpu));
    let ends = of_cpu.map(|it| it.end.filter(|_| it.is_silent_behind));
    // Later events of another stream show what runs.
    let last = ends.max_by_key(|end| end.unwrap_or(Time(i64::MAX)));
    last.flatten()
}

/// Whether a thread may have several processors at a time: some sources have one idle thread for all, Linux's with the
/// number 0.
fn is_shared(info: &TraceInfo, thread: ThreadId) -> bool {
    let known = info.identities.threads().get(thread.0 as usize);
    known.is_some_and(|it| it.tid == Tid(0)) || info.identities.is_idle(thread)
}

/// The entry of a thread in a list of processors, which grows as needed.
fn place_of(list: &mut Vec<Option<Place>>, thread: ThreadId) -> &mut Option<Place> {
    let index = thread.0 as usize;
    if list.len() <= index {
        list.resize(index + 1, None);
    }
    &mut list[index]
}

/// The entry of a table, which grows as needed.
fn entry(table: &mut Vec<RunTime>, index: u32) -> &mut RunTime {
    let index = index as usize;
    if table.len() <= index {
        table.resize_with(index + 1, RunTime::default);
    }
    &mut table[index]
}

#[cfg(test)]
mod tests;
