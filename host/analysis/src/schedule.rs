//! Who had the processors: run times of threads and interrupts, how often and how long at a time, and how long threads
//! waited between being ready and running.
//!
//! It looks at switches of threads and at interrupts alone, batch by batch: any source that tells of them has this table.
//! Time is charged to the innermost interrupt handler of a processor, else to its thread, else to nobody (idle).

use std::collections::BTreeMap;

use kymo_event::{
    Batch, Cpu, Duration, EventKind, Gap, InterruptId, Row, RowKind, ThreadId, Time, TraceInfo,
};

use crate::replay::Window;

/// What is known of the time that a thread or an interrupt had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunTime {
    /// All of it: without what interrupted it.
    pub run: Duration,
    /// How often it began.
    pub count: u64,
    /// Activations that were seen from their beginning to their end.
    pub complete: u64,
    /// The run time of these.
    pub sum: Duration,
    /// The shortest of these.
    pub min: Duration,
    /// The longest of these.
    pub max: Duration,
    /// From ready to running; of threads only.
    pub ready: Waits,
    /// The time without anything to run; of processors only.
    pub idle: Duration,
}

/// Times from ready to running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// Their sum.
    pub sum: Duration,
    /// The shortest.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Waits {
    /// The average; `None` if there is none.
    pub fn average(&self) -> Option<Duration> {
        self.sum.0.checked_div(self.count).map(Duration)
    }

    fn add(&mut self, wait: Duration) {
        self.min = if self.count == 0 {
            wait
        } else {
            self.min.min(wait)
        };
        self.max = self.max.max(wait);
        self.sum += wait;
        self.count += 1;
    }
}

impl RunTime {
    /// The average of complete activations; `None` if there is none.
    pub fn average(&self) -> Option<Duration> {
        self.sum.0.checked_div(self.complete).map(Duration)
    }

    /// Adds what is known of another one.
    #[must_use]
    pub fn with(mut self, other: &Self) -> Self {
        self.min = match (self.complete, other.complete) {
            (0, _) => other.min,
            (_, 0) => self.min,
            _ => self.min.min(other.min),
        };
        self.run += other.run;
        self.count += other.count;
        self.complete += other.complete;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.idle += other.idle;
        self
    }

    /// An activation has ended that ran so long.
    fn end(&mut self, ran: Duration) {
        self.min = if self.complete == 0 {
            ran
        } else {
            self.min.min(ran)
        };
        self.max = self.max.max(ran);
        self.sum += ran;
        self.complete += 1;
    }
}

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

/// A processor.
#[derive(Clone, Debug, Default)]
struct Processor {
    /// Up to when its time is charged; `None` before its first switch or interrupt.
    charged: Option<Time>,
    thread: Option<Active<ThreadId>>,
    interrupts: Vec<Active<Option<InterruptId>>>,
    /// All that it did: threads and interrupts that began, and their time.
    all: RunTime,
}

/// The processor of events that don't say theirs.
const UNKNOWN: Cpu = Cpu(u32::MAX);

/// Interrupt handlers in each other that are followed.
const NESTED: usize = 1 << 10;

/// The tables of threads and interrupts.
#[derive(Debug, Default)]
pub struct Schedule {
    window: Window,
    of_cpus: Vec<Cpu>,
    processors: BTreeMap<Cpu, Processor>,
    /// By [`ThreadId`].
    threads: Vec<RunTime>,
    /// By [`InterruptId`].
    interrupts: Vec<RunTime>,
    /// When threads got ready that do not run yet.
    ready: BTreeMap<ThreadId, Time>,
    start: Option<Time>,
    end: Option<Time>,
    gaps: u64,
    switches: u64,
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
        for row in batch.rows() {
            let timeless = info
                .stream(row.stream)
                .is_some_and(|stream| stream.timeless);
            if timeless || row.time > self.window.end {
                continue;
            }
            if row.time >= self.window.begin {
                self.start = Some(self.start.map_or(row.time, |start| start.min(row.time)));
                self.end = Some(self.end.map_or(row.time, |end| end.max(row.time)));
            }
            match row.kind {
                RowKind::SwitchedIn
                | RowKind::SwitchedOut
                | RowKind::IsrEnter
                | RowKind::IsrExit
                    if self.is_of_cpu(row.cpu()) =>
                {
                    self.change(row);
                }
                RowKind::Rare => match batch.event_of(row).map(|event| &event.kind) {
                    Some(EventKind::Ready { thread }) if !self.runs(*thread) => {
                        self.ready.entry(*thread).or_insert(row.time);
                    }
                    Some(EventKind::Gap(gap)) if self.is_of_cpu(row.cpu()) => self.gap(row, gap),
                    _ => {}
                },
                _ => self.met(row),
            }
        }
    }

    /// Ends the tables: what runs at the end of the trace runs up to there.
    pub fn finish(&mut self) {
        let Some(end) = self.end else {
            return;
        };
        let cpus: Vec<_> = self.processors.keys().copied().collect();
        for cpu in cpus {
            self.charge(cpu, end);
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

    /// The time of all processors in which nothing ran.
    pub fn idle(&self) -> Duration {
        let processors = self.processors.values();
        processors.fold(Duration(0), |sum, processor| sum + processor.all.idle)
    }

    /// What is known of the processors that had threads or interrupts: the time of both together, and how often one
    /// of them began. `None` stands for a processor of which the trace does not say which it is.
    pub fn cpus(&self) -> impl Iterator<Item = (Option<Cpu>, &RunTime)> {
        let known = |cpu: Cpu| (cpu != UNKNOWN).then_some(cpu);
        let processors = self.processors.iter();
        processors.map(move |(cpu, processor)| (known(*cpu), &processor.all))
    }

    /// From the first to the last event.
    pub fn span(&self) -> Duration {
        let span = self
            .start
            .zip(self.end)
            .and_then(|(start, end)| end.since(start));
        span.unwrap_or_default()
    }

    /// Processors that had threads or interrupts.
    pub fn processors(&self) -> usize {
        self.processors.len()
    }

    /// Places at which events are missing: counts and times are at least what they are.
    pub const fn gaps(&self) -> u64 {
        self.gaps
    }

    /// Switches of threads and interrupts that were seen.
    pub const fn switches(&self) -> u64 {
        self.switches
    }

    /// Charges what runs on a processor up to a moment.
    fn charge(&mut self, cpu: Cpu, now: Time) {
        let processor = self.processors.entry(cpu).or_default();
        let from = processor.charged.replace(now);
        let Some(from) = from.map(|from| from.max(self.window.begin)) else {
            return;
        };
        let time = now.since(from).unwrap_or_default();
        if processor.interrupts.is_empty() && processor.thread.is_none() {
            processor.all.idle += time;
        } else {
            processor.all.run += time;
        }
        if let Some(top) = processor.interrupts.last_mut() {
            top.ran += time;
            if let Some(id) = top.id {
                entry(&mut self.interrupts, id.0).run += time;
            }
        } else if let Some(thread) = &mut processor.thread {
            thread.ran += time;
            entry(&mut self.threads, thread.id.0).run += time;
        }
    }

    fn change(&mut self, row: &Row) {
        let cpu = row.cpu().unwrap_or(UNKNOWN);
        self.charge(cpu, row.time);
        self.switches += 1;
        let within = row.time >= self.window.begin;
        let Some(processor) = self.processors.get_mut(&cpu) else {
            return;
        };
        match row.kind {
            RowKind::SwitchedIn => {
                let ended = processor.thread.take();
                let next = row.thread();
                processor.thread = next.map(|id| Active::new(id, within));
                processor.all.count += u64::from(within && next.is_some());
                self.end_thread(ended);
                if let Some(id) = next {
                    let wait = self.ready.remove(&id);
                    if within {
                        let run = entry(&mut self.threads, id.0);
                        run.count += 1;
                        if let Some(wait) = wait.and_then(|ready| row.time.since(ready)) {
                            run.ready.add(wait);
                        }
                    }
                }
            }
            RowKind::SwitchedOut => {
                let ended = processor.thread.take();
                self.end_thread(ended);
            }
            RowKind::IsrEnter => {
                let id = row.of_interrupt();
                processor.all.count += u64::from(within);
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

    /// Before the first switch of a processor its thread is that of its events.
    fn met(&mut self, row: &Row) {
        let (Some(cpu), Some(thread)) = (row.cpu(), row.thread()) else {
            return;
        };
        if !self.is_of_cpu(Some(cpu)) {
            return;
        }
        let processor = self.processors.entry(cpu).or_default();
        if processor.charged.is_none() {
            processor.charged = Some(row.time);
            processor.thread = Some(Active::new(thread, false));
        }
    }

    fn is_of_cpu(&self, cpu: Option<Cpu>) -> bool {
        self.of_cpus.is_empty() || cpu.is_none_or(|cpu| self.of_cpus.contains(&cpu))
    }

    /// Whether a thread has a processor.
    fn runs(&self, thread: ThreadId) -> bool {
        let running = self.processors.values().filter_map(|it| it.thread.as_ref());
        running.into_iter().any(|active| active.id == thread)
    }

    fn end_thread(&mut self, ended: Option<Active<ThreadId>>) {
        if let Some(Active {
            id,
            ran,
            whole: true,
        }) = ended
        {
            entry(&mut self.threads, id.0).end(ran);
        }
    }

    /// What ran is in doubt where events are missing.
    fn gap(&mut self, row: &Row, gap: &Gap) {
        if gap.lost_events() == Some(0) {
            return;
        }
        if row.time >= self.window.begin {
            self.gaps += 1;
        }
        self.ready.clear();
        let Some(cpu) = row.cpu() else {
            return;
        };
        self.charge(cpu, row.time);
        if let Some(processor) = self.processors.get_mut(&cpu) {
            processor.interrupts.clear();
            if let Some(thread) = &mut processor.thread {
                thread.whole = false;
            }
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
mod tests {
    use kymo_event::{Event, StreamId};

    use super::*;

    const STREAM: StreamId = StreamId(0);

    fn row(kind: RowKind, time: i64, thread: Option<u32>) -> Row {
        Row::new(kind, Time(time), STREAM).at(Some(Cpu(0)), thread.map(ThreadId))
    }

    fn event(kind: EventKind, time: i64) -> Event {
        Event {
            time: Time(time),
            stream: STREAM,
            cpu: Some(Cpu(0)),
            thread: None,
            kind,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        }
    }

    /// Thread 1 runs from 10 to 50 with interrupt 7 from 20 to 30 in it, and one in that from 22 to 25; thread 2 is
    /// ready at 40, runs from 50 to 80, and thread 1 from 90 to the end at 100.
    fn trace() -> Batch {
        let mut batch = Batch::default();
        let irq = |row: Row, irq| row.interrupt(Some(InterruptId(irq)));
        batch.push(row(RowKind::SwitchedIn, 10, Some(1)));
        batch.push(irq(row(RowKind::IsrEnter, 20, Some(1)), 7));
        batch.push(irq(row(RowKind::IsrEnter, 22, Some(1)), 8));
        batch.push(row(RowKind::IsrExit, 25, Some(1)));
        batch.push(irq(row(RowKind::IsrExit, 30, Some(1)), 7));
        let thread = ThreadId(2);
        batch.push_event(event(EventKind::Ready { thread }, 40));
        batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
        batch.push(row(RowKind::SwitchedIn, 50, Some(2)));
        batch.push(row(RowKind::SwitchedOut, 80, Some(2)));
        batch.push(row(RowKind::SwitchedIn, 90, Some(1)));
        batch.push(row(RowKind::Other, 100, Some(1)));
        batch
    }

    fn schedule(window: Window, batch: &Batch) -> Schedule {
        let mut schedule = Schedule::new(window);
        schedule.batch(&TraceInfo::default(), batch);
        schedule.finish();
        schedule
    }

    #[test]
    fn time_is_charged_to_what_ran() {
        let schedule = schedule(Window::default(), &trace());
        let one = schedule.thread(ThreadId(1)).unwrap();
        assert_eq!((one.run, one.count, one.complete), (Duration(40), 2, 1));
        assert_eq!((one.min, one.max), (Duration(30), Duration(30)));
        let two = schedule.thread(ThreadId(2)).unwrap();
        assert_eq!((two.run, two.count), (Duration(30), 1));
        assert_eq!(two.ready.average(), Some(Duration(10)));
        let outer = schedule.interrupt(InterruptId(7)).unwrap();
        assert_eq!(
            (outer.run, outer.max, outer.count),
            (Duration(7), Duration(7), 1)
        );
        assert_eq!(schedule.interrupt(InterruptId(8)).unwrap().run, Duration(3));
        assert_eq!(
            (schedule.idle(), schedule.span()),
            (Duration(10), Duration(90))
        );
        assert_eq!(schedule.thread(ThreadId(0)), None);
        let cpus: Vec<_> = schedule.cpus().collect();
        let [(Some(Cpu(0)), cpu)] = cpus[..] else {
            panic!("{cpus:?}");
        };
        assert_eq!(
            (cpu.run, cpu.idle, cpu.count),
            (Duration(80), Duration(10), 5)
        );
    }

    #[test]
    fn what_runs_at_the_beginning_is_known_by_its_events() {
        let mut batch = Batch::default();
        batch.push(row(RowKind::Enter, 10, Some(1)));
        batch.push(row(RowKind::IsrEnter, 20, Some(1)).interrupt(Some(InterruptId(7))));
        batch.push(row(RowKind::IsrExit, 30, Some(1)).interrupt(Some(InterruptId(7))));
        batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
        batch.push(row(RowKind::Other, 60, Some(1)));
        let schedule = schedule(Window::default(), &batch);
        let one = schedule.thread(ThreadId(1)).unwrap();
        assert_eq!((one.run, one.count, one.complete), (Duration(30), 0, 0));
        assert_eq!(schedule.idle(), Duration(10));
    }

    #[test]
    fn a_window_clips_and_a_gap_casts_doubt() {
        let window = Window {
            begin: Time(28),
            end: Time(60),
        };
        let clipped = schedule(window, &trace());
        let one = clipped.thread(ThreadId(1)).unwrap();
        assert_eq!((one.run, one.count, one.complete), (Duration(20), 0, 0));
        assert_eq!(clipped.interrupt(InterruptId(7)).unwrap().run, Duration(2));
        let mut batch = Batch::default();
        batch.push(row(RowKind::SwitchedIn, 0, Some(1)));
        batch.push(row(RowKind::IsrEnter, 5, Some(1)).interrupt(Some(InterruptId(7))));
        let events = Some(3);
        batch.push_event(event(EventKind::Gap(Gap::Discarded { events }), 10));
        batch.push(row(RowKind::SwitchedOut, 20, Some(1)));
        let lossy = schedule(Window::default(), &batch);
        let one = lossy.thread(ThreadId(1)).unwrap();
        assert_eq!((one.run, one.complete, lossy.gaps()), (Duration(15), 0, 1));
    }
}
