//! Random programs on a simulated machine, on which every call is known. The calls that are rebuilt from the events are
//! compared with them: all calls of a complete trace, and those without doubt of a trace with losses.

mod elsewhere;
mod windows;

use std::collections::{HashMap, HashSet};

use kymo_analysis::call_tree::{CallTree, View};
use kymo_analysis::calls::{Callee, Calls, Counts, End, How, Options, Repair, Step, TrackId};
use kymo_analysis::profile::{Bounds, Profile};
use kymo_event::{
    Batch, Cpu, Duration, Event, EventKind, FunctionId, Gap, InterruptId, RecordingCause, StreamId,
    StreamInfo, ThreadId, Time, TraceInfo,
};
use proptest::prelude::*;

const CPUS: usize = 2;
const THREADS: usize = 4;
const PRIORITIES: usize = 3;

/// A random action: its kind, its subject, and the time since the one before.
type Action = (u8, u8, u8);

fn actions() -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec((0u8..100, any::<u8>(), 0u8..20), 1..400)
}

/// A call, as it happened on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Call {
    callee: Callee,
    begin: Time,
    end: Time,
    duration: Duration,
    self_time: Duration,
    recursive: bool,
    unwound: bool,
}

struct Frame {
    callee: Callee,
    begin: u64,
    ran: u64,
    callees: u64,
}

/// A thread, or an activation of an interrupt handler.
#[derive(Default)]
struct Context {
    ran: u64,
    frames: Vec<Frame>,
}

impl Context {
    fn enter(&mut self, callee: Callee, now: u64) {
        self.frames.push(Frame {
            callee,
            begin: now,
            ran: self.ran,
            callees: 0,
        });
    }

    fn leave(&mut self, now: u64, unwound: bool) -> Option<Call> {
        let frame = self.frames.pop()?;
        let duration = self.ran - frame.ran;
        if let Some(caller) = self.frames.last_mut() {
            caller.callees += duration;
        }
        Some(Call {
            callee: frame.callee,
            begin: Time(now as i64 - (now - frame.begin) as i64),
            end: Time(now as i64),
            duration: Duration(duration),
            self_time: Duration(duration - frame.callees),
            recursive: self.frames.iter().any(|other| other.callee == frame.callee),
            unwound,
        })
    }
}

/// The simulated machine: the running thread and the active handlers of each CPU.
struct Machine {
    now: u64,
    threads: Vec<Context>,
    running: [Option<usize>; CPUS],
    /// The active handlers of each CPU with their interrupts, the innermost last.
    handlers: [Vec<(InterruptId, Context)>; CPUS],
    /// For each CPU, whether no function was entered or exited since the last switch of threads.
    switched: [bool; CPUS],
    events: Vec<Event>,
    truth: Vec<Call>,
}

impl Machine {
    fn run(actions: &[Action]) -> Self {
        let mut machine = Self {
            now: 1000,
            threads: (0..THREADS).map(|_| Context::default()).collect(),
            running: [None; CPUS],
            handlers: [const { Vec::new() }; CPUS],
            switched: [false; CPUS],
            events: Vec::new(),
            truth: Vec::new(),
        };
        for cpu in 0..CPUS {
            machine.switch_in(cpu, cpu);
        }
        for action in actions {
            machine.act(*action);
        }
        machine
    }

    fn act(&mut self, (what, whom, passed): Action) {
        self.pass(u64::from(passed));
        let cpu = usize::from(whom) % CPUS;
        let which = u64::from(whom) / CPUS as u64;
        let innermost = self.handlers[cpu]
            .last()
            .map_or(0, |(irq, _)| irq.0 as usize);
        match what {
            0..40 => self.enter(cpu, FunctionId((which % 5) as u32)),
            40..70 => self.exit(cpu, 0),
            // A jump to a caller that is still open: nothing runs between the jump and the return.
            70..75 => self.exit(cpu, 1 + which as usize % 3),
            75..85 if innermost < PRIORITIES => {
                self.interrupt(cpu, InterruptId(innermost as u32 + 1))
            }
            85..93 => self.interrupt_end(cpu),
            93..98 => self.switch(cpu, which as usize % THREADS, which.is_multiple_of(3)),
            _ => self.mark(cpu, which),
        }
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        for cpu in 0..CPUS {
            if let Some(context) = self.at(cpu) {
                context.ran += time;
            }
        }
    }

    /// The context that a CPU executes.
    fn at(&mut self, cpu: usize) -> Option<&mut Context> {
        match self.handlers[cpu].last_mut() {
            Some((_, handler)) => Some(handler),
            None => self.running[cpu].map(|thread| &mut self.threads[thread]),
        }
    }

    fn record(&mut self, cpu: usize, kind: EventKind) {
        self.events.push(Event {
            time: Time(self.now as i64),
            stream: StreamId(cpu as u32),
            cpu: Some(Cpu(cpu as u32)),
            thread: self.running[cpu].map(|thread| ThreadId(thread as u32)),
            kind,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        });
    }

    fn enter(&mut self, cpu: usize, function: FunctionId) {
        let now = self.now;
        if let Some(context) = self.at(cpu) {
            context.enter(Callee::Function(function), now);
            self.switched[cpu] = false;
            self.record(
                cpu,
                EventKind::Enter {
                    function,
                    call_site: None,
                },
            );
        }
    }

    /// Returns from the function that is `out` calls further out than the innermost, and abandons the inner calls. If
    /// one of these is of the same function, it is the one that returns, because an exit does not show which of them it
    /// belongs to. After a switch of threads only the innermost call returns: if its entry is lost, the trace looks as
    /// if the other thread had entered the function that switches.
    fn exit(&mut self, cpu: usize, out: usize) {
        let now = self.now;
        let out = if self.switched[cpu] { 0 } else { out };
        let Some(context) = self.at(cpu) else {
            return;
        };
        let functions = context.frames.iter().rev().map(|frame| frame.callee);
        let functions: Vec<_> = functions
            .filter_map(|callee| match callee {
                Callee::Function(function) => Some(function),
                _ => None,
            })
            .collect();
        let Some(wanted) = functions.get(out).or(functions.first()).copied() else {
            return;
        };
        let out = functions
            .iter()
            .position(|function| *function == wanted)
            .unwrap_or(0);
        let unwound: Vec<_> = (0..out).filter_map(|_| context.leave(now, true)).collect();
        let returned = context.leave(now, false);
        self.truth.extend(unwound);
        self.truth.extend(returned);
        self.switched[cpu] = false;
        self.record(
            cpu,
            EventKind::Exit {
                function: Some(wanted),
            },
        );
    }

    fn interrupt(&mut self, cpu: usize, irq: InterruptId) {
        self.record(cpu, EventKind::IsrEnter { irq });
        let mut handler = Context::default();
        handler.enter(Callee::Interrupt(irq), self.now);
        self.handlers[cpu].push((irq, handler));
    }

    /// Ends the innermost handler, if none of its functions is open.
    fn interrupt_end(&mut self, cpu: usize) {
        if self.handlers[cpu]
            .last()
            .is_some_and(|(_, handler)| handler.frames.len() == 1)
            && let Some((irq, mut handler)) = self.handlers[cpu].pop()
        {
            self.truth.extend(handler.leave(self.now, false));
            self.record(cpu, EventKind::IsrExit { irq: Some(irq) });
        }
    }

    /// Switches a CPU to another thread, or to none. Interrupt handlers may do that, but not within a function: if a
    /// trace with losses did not contain the interrupt, the function would be entered in one thread and exited in
    /// another.
    fn switch(&mut self, cpu: usize, thread: usize, idle: bool) {
        if self.handlers[cpu]
            .iter()
            .any(|(_, handler)| handler.frames.len() > 1)
        {
            return;
        }
        self.switched[cpu] = true;
        if self.running[cpu].is_some() {
            self.record(cpu, EventKind::SwitchedOut);
            self.running[cpu] = None;
        }
        if idle || self.running.contains(&Some(thread)) {
            return;
        }
        self.switch_in(cpu, thread);
    }

    fn switch_in(&mut self, cpu: usize, thread: usize) {
        self.running[cpu] = Some(thread);
        self.record(cpu, EventKind::SwitchedIn);
    }

    fn mark(&mut self, cpu: usize, value: u64) {
        self.record(cpu, EventKind::Marker { label: None, value });
    }
}

/// The rebuilt calls, for which all invariants of any trace were checked.
struct Rebuilt {
    ends: Vec<End>,
    counts: Counts,
    profile: Profile,
    tree: CallTree,
}

fn rebuild(events: &[Event], options: Options) -> Rebuilt {
    rebuild_with(&TraceInfo::default(), events, options)
}

fn rebuild_with(info: &TraceInfo, events: &[Event], options: Options) -> Rebuilt {
    let mut calls = Calls::new(info, options);
    let mut ends = Vec::new();
    let mut profile = Profile::new();
    let mut tree = CallTree::new(false);
    let mut stacks: HashMap<TrackId, Vec<_>> = HashMap::new();
    let mut check = |step: Step<'_>| {
        profile.add(&step);
        tree.step(info, &step);
        match step {
            Step::Track { track, .. } => {
                stacks.entry(track).or_default();
            }
            Step::Begin(begin) => {
                let stack = stacks.get_mut(&begin.track).expect("tracks come first");
                assert_eq!(begin.depth as usize, stack.len());
                stack.push((begin.call, begin.callee));
            }
            Step::End(end) => {
                let stack = stacks.get_mut(&end.track).expect("tracks come first");
                if end.how == How::Orphan {
                    assert_eq!((end.begin, end.wall, end.duration), (None, None, None));
                } else {
                    assert_eq!(stack.pop(), Some((end.call, end.callee)));
                    assert!(end.self_time <= end.duration && end.duration.is_some());
                    assert!(end.doubt.any() || end.duration <= end.wall);
                }
                assert_eq!(end.depth as usize, stack.len());
                let open = stack.iter().any(|(_, callee)| *callee == end.callee);
                assert_eq!(end.recursive, open);
                ends.push(end);
            }
            _ => {}
        }
    };
    for event in Batch::from_iter(events.iter().cloned()).iter() {
        calls.push(event, &mut check);
    }
    calls.finish(&mut check);
    assert!(stacks.values().all(Vec::is_empty), "every begin has an end");
    let counts = *calls.counts();
    let count = |how| ends.iter().filter(|end| end.how == how).count() as u64;
    assert_eq!(count(How::Returned), counts.returned);
    assert_eq!(count(How::Orphan), counts.orphans);
    assert_eq!(count(How::Open), counts.open);
    assert_eq!(count(How::RecordingOff), counts.recording_off);
    assert_eq!(count(How::Repaired(Repair::Lost)), counts.lost);
    assert_eq!(count(How::Repaired(Repair::Unwound)), counts.unwound);
    Rebuilt {
        ends,
        counts,
        profile,
        tree,
    }
}

/// A rebuilt call in the form of the machine's record.
fn printed(end: &End) -> Call {
    Call {
        callee: end.callee,
        begin: end.begin.unwrap_or_default(),
        end: end.time,
        duration: end.duration.unwrap_or_default(),
        self_time: end.self_time.unwrap_or_default(),
        recursive: end.recursive,
        unwound: end.how == How::Repaired(Repair::Unwound),
    }
}

/// The call without properties that depend on outer calls, which a part of a trace need not contain.
fn alone(call: Call) -> Call {
    Call {
        recursive: false,
        ..call
    }
}

/// Events of a process: each thread runs all the time, with its calls and signals in one stream and its markers in
/// another one, for items.
fn process(actions: &[Action]) -> (TraceInfo, Machine) {
    let stays = |(what, whom, passed): &Action| match what {
        // Markers instead of switches.
        93.. => (98, *whom, *passed),
        _ => (*what, *whom, *passed),
    };
    let mut machine = Machine::run(&actions.iter().map(stays).collect::<Vec<_>>());
    let switch = |event: &Event| matches!(event.kind, EventKind::SwitchedIn);
    machine.events.retain(|event| !switch(event));
    for event in &mut machine.events {
        event.cpu = None;
        if matches!(event.kind, EventKind::Marker { .. }) {
            event.stream.0 += CPUS as u32;
        }
    }
    let stream = |number: usize| StreamInfo {
        thread: Some(ThreadId((number % CPUS) as u32)),
        without_calls: number >= CPUS,
        ..StreamInfo::default()
    };
    let info = TraceInfo {
        streams: (0..2 * CPUS).map(stream).collect(),
        ..TraceInfo::default()
    };
    (info, machine)
}

/// Removes ranges of events of single streams, and inserts gaps instead.
fn lose(events: &[Event], losses: &[(u16, u8)]) -> Vec<Event> {
    let mut lost = vec![false; events.len()];
    for (from, count) in losses {
        let from = usize::from(*from) % events.len();
        let stream = events[from].stream;
        let same = (from..events.len()).filter(|at| events[*at].stream == stream);
        same.take(usize::from(*count))
            .for_each(|at| lost[at] = true);
    }
    let mut kept: Vec<Event> = Vec::new();
    for (at, event) in events.iter().enumerate() {
        if !lost[at] {
            kept.push(event.clone());
            continue;
        }
        let first = events[..at]
            .iter()
            .zip(&lost)
            .rev()
            .find(|(other, _)| other.stream == event.stream);
        let (time, after_loss) =
            first.map_or((event.time, false), |(other, lost)| (other.time, *lost));
        if after_loss {
            let of_stream = |other: &&mut Event| other.stream == event.stream;
            let gap = kept.iter_mut().rev().find(of_stream);
            if let Some(EventKind::Gap(Gap::Discarded { events: Some(lost) })) =
                gap.map(|gap| &mut gap.kind)
            {
                *lost += 1;
            }
            continue;
        }
        let gap = EventKind::Gap(Gap::Discarded { events: Some(1) });
        let gap = Event {
            time,
            kind: gap,
            thread: None,
            ..event.clone()
        };
        // Directly after the last event of the stream.
        let place = kept.iter().rposition(|other| other.stream == event.stream);
        kept.insert(place.map_or(kept.len(), |place| place + 1), gap);
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        max_shrink_iters: 20_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_whole_trace_gives_the_truth(actions in actions()) {
        let machine = Machine::run(&actions);
        let rebuilt = rebuild(&machine.events, Options::default());
        let ended = rebuilt.ends.iter().filter(|end| end.how != How::Open);
        let ended: Vec<_> = ended.map(printed).collect();
        prop_assert_eq!(ended, &machine.truth[..]);
        let counts = rebuilt.counts;
        prop_assert_eq!((counts.orphans, counts.lost, counts.doubtful), (0, 0, 0));
        prop_assert_eq!((counts.implied_switches, counts.losses), (0, 0));

        // The profile is the sum of the calls.
        for (callee, row) in rebuilt.profile.rows() {
            let calls: Vec<_> = machine.truth.iter().filter(|call| call.callee == callee).collect();
            let sum = |times: &mut dyn Iterator<Item = Duration>| Duration(times.map(|t| t.0).sum());
            let complete = || calls.iter().filter(|call| !call.unwound).map(|call| call.duration);
            let open = rebuilt.ends.iter().filter(|end| end.how == How::Open && end.callee == callee);
            let open: Vec<_> = open.collect();
            prop_assert_eq!(row.count, (calls.len() + open.len()) as u64);
            prop_assert_eq!((row.open, row.complete), (open.len() as u64, complete().count() as u64));
            prop_assert_eq!(row.unwound, calls.iter().filter(|call| call.unwound).count() as u64);
            // The total of recursive calls counts once. Open calls count up to the end.
            let outermost = calls.iter().filter(|call| !call.recursive).map(|call| call.duration);
            let still = open.iter().filter(|end| !end.recursive).filter_map(|end| end.duration);
            prop_assert_eq!(row.total, sum(&mut outermost.chain(still)));
            let still = open.iter().filter_map(|end| end.self_time);
            let own = calls.iter().map(|call| call.self_time);
            prop_assert_eq!(row.self_time, sum(&mut own.chain(still)));
            prop_assert_eq!((row.total, row.self_time), (row.total_max, row.self_max));
            prop_assert_eq!(row.min, complete().min().unwrap_or_default());
            prop_assert_eq!(row.max, complete().max().unwrap_or_default());
        }
    }

    #[test]
    fn what_a_trace_with_losses_does_not_doubt_is_true(
        actions in actions(),
        losses in prop::collection::vec((any::<u16>(), 1u8..30), 1..8),
    ) {
        let machine = Machine::run(&actions);
        let events = lose(&machine.events, &losses);
        let truth: HashSet<_> = machine.truth.iter().copied().map(alone).collect();
        let rebuilt = rebuild(&events, Options::default());
        // The totals of the complete trace, including calls open at its end, are within the bounds of the remaining
        // part.
        let whole = rebuild(&machine.events, Options::default()).profile;
        let bounds = Bounds::of(&rebuilt.counts, &rebuilt.profile);
        let view = View::new(&rebuilt.tree);
        for (callee, row) in rebuilt.profile.rows() {
            let Some(whole) = whole.row(callee) else { continue };
            if callee == Callee::Unknown {
                continue;
            }
            // The tree has the same total as the table.
            let of = view.calls_of(|of| of == callee);
            let total = of.iter().fold(Duration(0), |sum, it| sum + it.total);
            prop_assert_eq!(total, row.total, "{:?} {:?}", row, whole);
            // Bounds do not include what happened after the last remaining event.
            let ends = events.last() == machine.events.last();
            let (total, own) = (bounds.total(&row), bounds.self_time(&row));
            let (total, own) = (total.filter(|_| ends), own.filter(|_| ends));
            prop_assert!(total.is_none_or(|most| whole.total <= most), "{row:?} {whole:?} {bounds:?}");
            prop_assert!(own.is_none_or(|most| whole.self_time <= most), "{row:?} {whole:?} {bounds:?}");
            prop_assert!(row.total <= whole.total, "{row:?} {whole:?} {bounds:?}");
            prop_assert!(row.self_time <= whole.self_time, "{row:?} {whole:?} {bounds:?}");
            prop_assert!(bounds.count(&row).is_none_or(|most| whole.count <= most));
            prop_assert!(row.count <= whole.count, "{row:?} {whole:?}");
        }
        for end in rebuilt.ends {
            if end.how == How::Returned && !end.doubt.any() {
                prop_assert!(truth.contains(&alone(printed(&end))), "{:?}", end);
            }
        }
    }

    #[test]
    fn a_thread_with_a_stream_of_items_is_rebuilt_as_one_without(
        actions in actions(),
        losses in prop::collection::vec((any::<u16>(), 1u8..30), 0..8),
    ) {
        let (info, machine) = process(&actions);
        let items = |event: &Event| event.stream.0 >= CPUS as u32;
        prop_assume!(!machine.events.is_empty());
        let lost = lose(&machine.events, &losses);
        // Losses of items have no effect on calls, and are counted.
        let kept: Vec<_> = machine.events.iter().filter(|event| !items(event)).cloned().collect();
        let mut mixed: Vec<_> = lost.iter().filter(|event| items(event)).cloned().collect();
        let gaps = mixed.iter().filter(|event| matches!(event.kind, EventKind::Gap(_))).count();
        mixed.extend(kept);
        mixed.sort_by_key(|event| event.time);
        for (events, losses) in [(&machine.events, 0), (&mixed, gaps as u64)] {
            let rebuilt = rebuild_with(&info, events, Options::default());
            let ended = rebuilt.ends.iter().filter(|end| end.how != How::Open);
            prop_assert_eq!(ended.map(printed).collect::<Vec<_>>(), &machine.truth[..]);
            let counts = rebuilt.counts;
            prop_assert_eq!((counts.orphans, counts.lost, counts.doubtful), (0, 0, 0));
            prop_assert_eq!((counts.implied_switches, counts.losses), (0, losses));
        }

        // With losses of calls, those without doubt are right.
        let truth: HashSet<_> = machine.truth.iter().copied().map(alone).collect();
        for end in rebuild_with(&info, &lost, Options::default()).ends {
            if end.how == How::Returned && !end.doubt.any() {
                prop_assert!(truth.contains(&alone(printed(&end))), "{:?}", end);
            }
        }
    }

    #[test]
    fn a_trace_that_begins_in_the_middle_is_true_in_what_it_has_whole(
        actions in actions(),
        first in 0usize..400,
    ) {
        let machine = Machine::run(&actions);
        let events = &machine.events[first.min(machine.events.len() - 1)..];
        let truth: HashSet<_> = machine.truth.iter().copied().map(alone).collect();
        for end in rebuild(events, Options::default()).ends {
            prop_assert!(!end.doubt.loss && !end.doubt.clock);
            if end.how == How::Returned && !end.doubt.interrupt {
                prop_assert!(truth.contains(&alone(printed(&end))), "{:?}", end);
            }
        }
    }

    #[test]
    fn anything_is_survived(
        events in prop::collection::vec((0u8..14, 0u32..4, 0u32..5, 0u64..4, -100i64..1000), 0..300),
        max_depth in 0u32..6,
    ) {
        let events: Vec<_> = events.into_iter().map(any_event).collect();
        rebuild(&events, Options { max_depth });
    }
}

/// An event without any relation to others.
fn any_event((kind, stream, thread, what, time): (u8, u32, u32, u64, i64)) -> Event {
    let function = FunctionId(what as u32);
    let irq = InterruptId(what as u32);
    let kind = match kind {
        0..3 => EventKind::Enter {
            function,
            call_site: None,
        },
        3..5 => EventKind::Exit {
            function: Some(function),
        },
        5 => EventKind::Exit { function: None },
        6 => EventKind::SwitchedIn,
        7 => EventKind::SwitchedOut,
        8 => EventKind::IsrEnter { irq },
        9 => EventKind::IsrExit {
            irq: (what > 0).then_some(irq),
        },
        10 => EventKind::Recording {
            on: what > 0,
            cause: RecordingCause::Unknown,
        },
        11 => EventKind::Gap(Gap::LostPackets { packets: None }),
        12 => EventKind::Gap(Gap::TimeBackward { by: Duration(what) }),
        _ => EventKind::Other,
    };
    Event {
        time: Time(time),
        stream: StreamId(stream),
        cpu: (stream < 2).then_some(Cpu(stream)),
        thread: thread.checked_sub(1).map(ThreadId),
        kind,
        named: false,
        record: true,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    }
}
