//! Who had the processors: run times of threads and interrupts, how often and how long at a time, and how long threads
//! waited between being ready and running.
//!
//! It looks at switches of threads and at interrupts alone, batch by batch: any source that tells of them has this table.
//! Time is charged to the innermost interrupt handler of a processor, else to its thread, else to nobody: that is idle time, as
//! the time of idle threads is. On a processor that has an idle thread, nobody runs while the kernel switches alone, which is
//! [told apart](RunTime::switching). Where the trace begins, and behind lost events, the thread that events name, or that the next switch
//! ends, has run; else it is not known what did. A trace without any switch tells nothing of threads and of idle time.

mod run_time;

use std::collections::BTreeMap;

use kymo_event::{
    Batch, Cpu, Duration, EventKind, EventRef, Gap, InterruptId, Row, RowKind, SpaceId, StreamInfo,
    ThreadId, Time, TraceInfo,
};

use crate::clock_repair::ClockRepair;
use crate::replay::Window;

pub use run_time::{RunTime, Waits};

/// Something that runs.
#[derive(Clone, Copy, Debug)]
struct Active<Id> {
    id: Id,
    ran: Duration,
    /// Its beginning was seen.
    whole: bool,
}

impl<Id> Active<Id> {
    const fn new(id: Id, whole: bool) -> Self {
        Self {
            id,
            ran: Duration(0),
            whole,
        }
    }
}

/// Whose a processor is, outside of interrupt handlers.
#[derive(Clone, Copy, Debug)]
enum Running {
    /// Where the trace begins, or events are lost, nothing is known yet.
    Unknown {
        /// The thread that events have named since, or ended there; `Err` if there are several.
        named: Result<Option<ThreadId>, ()>,
        /// The time since.
        time: Duration,
    },
    Nobody {
        /// The switch after which that is so.
        since: Row,
    },
    Thread {
        active: Active<ThreadId>,
        /// The switch that gave it to the thread.
        since: Row,
    },
}

impl Default for Running {
    fn default() -> Self {
        Self::Unknown {
            named: Ok(None),
            time: Duration(0),
        }
    }
}

/// A processor.
#[derive(Clone, Debug, Default)]
struct Processor {
    /// Its first event: what it did before is not known.
    first: Option<Time>,
    /// Up to when its time is charged; `None` before its first event.
    charged: Option<Time>,
    /// Its last event.
    last: Option<Time>,
    running: Running,
    /// Events are missing from its last one up to the next.
    is_lost: bool,
    /// Its events are behind the window.
    is_behind: bool,
    interrupts: Vec<Active<Option<InterruptId>>>,
    /// Time in interrupt handlers, and how many began.
    handlers: RunTime,
    /// The threads that ran, with how often they began to and for how long.
    threads: BTreeMap<ThreadId, (u64, Duration)>,
    nobody: Duration,
    unknown: Duration,
    /// All that it did: threads and interrupts that began, and their time. Known at the end.
    all: RunTime,
}

/// A processor of a machine: of [`StreamInfo::machine`].
type Place = (SpaceId, Cpu);

/// The processor of events that don't say theirs.
const UNKNOWN: Cpu = Cpu(u32::MAX);

/// Interrupt handlers in each other that are followed.
const NESTED: usize = 1 << 10;

/// The tables of threads and interrupts.
#[derive(Debug, Default)]
pub struct Schedule {
    window: Window,
    of_cpus: Vec<Cpu>,
    processors: BTreeMap<Place, Processor>,
    /// By [`ThreadId`].
    threads: Vec<RunTime>,
    /// By [`InterruptId`].
    interrupts: Vec<RunTime>,
    /// When threads got ready that do not run yet.
    ready: BTreeMap<ThreadId, Time>,
    /// From when to when each machine was looked at.
    spans: BTreeMap<SpaceId, (Time, Time)>,
    gaps: u64,
    has_switches: bool,
    has_interrupts: bool,
    unknown: Duration,
    /// Where a clock steps back: takes off what did not pass.
    repair: Option<ClockRepair>,
}

impl Schedule {
    /// Empty tables of a part of a trace.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            ..Self::default()
        }
    }

    /// The same of some processors alone; of all if there are none.
    #[must_use]
    pub fn of_cpus(mut self, cpus: Vec<Cpu>) -> Self {
        self.of_cpus = cpus;
        self
    }

    /// Takes the next events.
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

    /// Takes the next event of a trace whose clock does not step back.
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
                self.change(row, machine);
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

    /// The latest switches of the processors of which it is known who has them: those to a thread that still has one, and
    /// those after which nobody has had one.
    pub fn latest_switches(&self) -> impl Iterator<Item = Row> {
        let processors = self.processors.values();
        processors.filter_map(|processor| match processor.running {
            Running::Nobody { since } | Running::Thread { since, .. } => Some(since),
            Running::Unknown { .. } => None,
        })
    }

    /// The thread that events alone show on a processor of a machine: no switch so far shows who has it.
    pub fn named_on(&self, machine: SpaceId, cpu: Option<Cpu>) -> Option<ThreadId> {
        let processor = self.processors.get(&(machine, cpu.unwrap_or(UNKNOWN)))?;
        match processor.running {
            Running::Unknown { named, .. } => named.ok().flatten(),
            _ => None,
        }
    }

    /// A machine is looked at up to this time, as far as that is in the window: where the trace goes on beyond it, it is
    /// all looked at.
    fn look_at(&mut self, machine: SpaceId, time: Time) {
        let within = time.clamp(self.window.begin, self.window.end);
        let (start, end) = self.spans.entry(machine).or_insert((within, within));
        (*start, *end) = ((*start).min(within), (*end).max(within));
    }

    /// Takes a row behind the window: where events are missing before it, the end of the window is unknown. A window without a
    /// switch has threads that run all through it.
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

    /// Ends the tables: what runs at the end of the trace runs up to there.
    pub fn finish(&mut self, info: &TraceInfo) {
        if let Some(mut repair) = self.repair.take() {
            let mut rest = Batch::default();
            repair.finish(&mut rest);
            self.take(info, &rest);
        }
        // Where a trace was cut, it goes on up to there.
        for cut in [info.cut.begin, info.cut.end].into_iter().flatten() {
            let machines: Vec<_> = self.spans.keys().copied().collect();
            for machine in machines {
                self.look_at(machine, cut);
            }
        }
        for ((machine, _), processor) in &mut self.processors {
            let Some((begin, end)) = self.spans.get(machine).copied() else {
                continue;
            };
            let before = processor
                .first
                .and_then(|first| first.min(end).since(begin));
            processor.unknown += before.unwrap_or_default();
            processor.go_on(end, self.window, &mut self.interrupts);
            processor.charge(end, self.window, &mut self.interrupts);
            processor.stay_open();
            processor.leave(None, &mut self.threads);
            if !self.has_switches {
                // Events name a thread now and then: that is no time that it had.
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

    /// What is known of a thread; `None` of one that neither ran nor was ready.
    pub fn thread(&self, thread: ThreadId) -> Option<&RunTime> {
        let run = self.threads.get(thread.0 as usize);
        run.filter(|run| **run != RunTime::default())
    }

    /// What is known of an interrupt; `None` of one that did not happen.
    pub fn interrupt(&self, interrupt: InterruptId) -> Option<&RunTime> {
        let run = self.interrupts.get(interrupt.0 as usize);
        run.filter(|run| **run != RunTime::default())
    }

    /// The time of all processors in which nothing ran, or idle threads alone; `None` if the trace has no thread switches.
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

    /// The time of all processors of which it is not known what ran.
    pub const fn unknown(&self) -> Duration {
        self.unknown
    }

    /// What is known of the processors that had events: the time of threads and interrupts together, and how often one
    /// of them began, idle threads aside. `None` stands for a processor of which the trace does not say which it is.
    /// Each has its [machine](StreamInfo::machine).
    pub fn cpus(&self) -> impl Iterator<Item = (SpaceId, Option<Cpu>, &RunTime)> {
        let known = |cpu: Cpu| (cpu != UNKNOWN).then_some(cpu);
        let processors = self.processors.iter();
        processors.map(move |((machine, cpu), processor)| (*machine, known(*cpu), &processor.all))
    }

    /// From the first to the last event of a machine, as far as that is in the window; of the longest, where what is asked
    /// for stands for none of several.
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

    /// Places at which events are missing: counts and times are at least what they are.
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Whether threads were seen to get processors, also around the window: else nothing is known of their time.
    pub const fn has_switches(&self) -> bool {
        self.has_switches
    }

    /// Whether interrupt handlers were seen.
    pub const fn has_interrupts(&self) -> bool {
        self.has_interrupts
    }

    fn change(&mut self, row: &Row, machine: SpaceId) {
        let place = (machine, row.cpu().unwrap_or(UNKNOWN));
        let processor = self.processors.entry(place).or_default();
        processor.go_on(row.time, self.window, &mut self.interrupts);
        if row.kind == RowKind::SwitchedOut && processor.runs_another(row.thread()) {
            // Switches are missing: filtered by process, or lost.
            self.gaps += u64::from(row.time >= self.window.begin);
            processor.lose(self.window, &mut self.interrupts, &mut self.threads);
            processor.go_on(row.time, self.window, &mut self.interrupts);
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
                };
                let wait = self.ready.remove(&id);
                if within {
                    processor.threads.entry(id).or_default().0 += 1;
                    let run = entry(&mut self.threads, id.0);
                    run.count += 1;
                    // A wait that the window cuts is no whole one, as a run that it cuts is none.
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
                // An exit that names its interrupt ends those whose exits are lost, too.
                let named = |it: &Active<Option<InterruptId>>| id.is_none() || it.id == id;
                let Some(place) = processor.interrupts.iter().rposition(named) else {
                    // It began before the trace, or among what is lost.
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

    /// Another event, which may show what runs where no switch has yet.
    fn met(&mut self, row: &Row, machine: SpaceId) {
        let Some(cpu) = row.cpu().filter(|cpu| self.is_of_cpu(Some(*cpu))) else {
            return;
        };
        let processor = self.processors.entry((machine, cpu)).or_default();
        processor.go_on(row.time, self.window, &mut self.interrupts);
        processor.charged = processor.charged.or(Some(row.time));
        processor.first = processor.first.or(Some(row.time));
        processor.last = Some(row.time);
        if let Running::Unknown { named, .. } = &mut processor.running
            && let Some(thread) = row.thread()
        {
            *named = match *named {
                Ok(None) => Ok(Some(thread)),
                Ok(Some(known)) if known == thread => Ok(Some(known)),
                _ => Err(()),
            };
        }
    }

    fn is_of_cpu(&self, cpu: Option<Cpu>) -> bool {
        self.of_cpus.is_empty() || cpu.is_none_or(|cpu| self.of_cpus.contains(&cpu))
    }

    /// Whether a thread has a processor.
    fn runs(&self, thread: ThreadId) -> bool {
        let mut processors = self.processors.values();
        processors
            .any(|it| matches!(it.running, Running::Thread { active, .. } if active.id == thread))
    }

    /// Events are missing behind the last one, of one processor or of any of a machine: what runs up to the next one is not known, nor
    /// what runs then.
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

impl Processor {
    /// An event: up to it, events are missing behind a gap.
    fn go_on(&mut self, now: Time, window: Window, interrupts: &mut Vec<RunTime>) {
        if std::mem::take(&mut self.is_lost) {
            self.charge(now, window, interrupts);
            self.forget();
        }
    }

    /// Events are missing behind its last one: what runs from there up to the next one is not known.
    fn lose(&mut self, window: Window, interrupts: &mut Vec<RunTime>, threads: &mut Vec<RunTime>) {
        if let Some(last) = self.last {
            self.charge(last, window, interrupts);
        }
        self.interrupts.clear();
        self.stay_open();
        self.leave(None, threads);
        self.running = Running::default();
        self.is_lost = true;
    }

    /// Whether another thread than this has it, as far as is known.
    fn runs_another(&self, thread: Option<ThreadId>) -> bool {
        match (&self.running, thread) {
            (Running::Thread { active, .. }, Some(thread)) => active.id != thread,
            _ => false,
        }
    }

    /// Charges what runs up to a moment.
    fn charge(&mut self, now: Time, window: Window, interrupts: &mut Vec<RunTime>) {
        let from = self.charged;
        // Where the clock steps back, time that was charged is not charged again.
        self.charged = Some(from.map_or(now, |from| from.max(now)));
        let Some(from) = from.map(|from| from.max(window.begin)) else {
            return;
        };
        let time = now.since(from).unwrap_or_default();
        if let Some(top) = self.interrupts.last_mut() {
            top.ran += time;
            self.handlers.run += time;
            if let Some(id) = top.id {
                entry(interrupts, id.0).run += time;
            }
            return;
        }
        match &mut self.running {
            Running::Nobody { .. } => self.nobody += time,
            Running::Thread { active, .. } => active.ran += time,
            Running::Unknown { time: unknown, .. } => *unknown += time,
        }
    }

    /// The end of what runs is not seen.
    fn stay_open(&mut self) {
        if let Running::Thread { active, .. } = &mut self.running {
            active.whole = false;
        }
    }

    /// What ran does so no longer; `thread` was it, if the trace tells.
    fn leave(&mut self, thread: Option<ThreadId>, threads: &mut Vec<RunTime>) {
        let ended = match std::mem::take(&mut self.running) {
            Running::Nobody { .. } => return,
            Running::Thread { active, .. } => active,
            Running::Unknown { named, time } => {
                let known = match (named, thread) {
                    (Ok(named), None) => named,
                    (Ok(named), Some(thread)) => {
                        named.is_none_or(|it| it == thread).then_some(thread)
                    }
                    (Err(()), _) => None,
                };
                let Some(id) = known else {
                    self.unknown += time;
                    return;
                };
                Active {
                    id,
                    ran: time,
                    whole: false,
                }
            }
        };
        self.threads.entry(ended.id).or_default().1 += ended.ran;
        let run = entry(threads, ended.id.0);
        run.run += ended.ran;
        if ended.whole {
            run.end(ended.ran);
        }
    }

    /// What ran since it is not known what runs is not known either.
    fn forget(&mut self) {
        if let Running::Unknown { named, time } = &mut self.running {
            self.unknown += std::mem::take(time);
            *named = Ok(None);
        }
    }
}

/// The entry of a table, which grows.
fn entry(table: &mut Vec<RunTime>, index: u32) -> &mut RunTime {
    let index = index as usize;
    if table.len() <= index {
        table.resize_with(index + 1, RunTime::default);
    }
    &mut table[index]
}

#[cfg(test)]
mod tests;
