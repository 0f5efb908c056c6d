//! What a person would say of small traces: whole ones here, and in a module of its own those with
//! something missing.

mod clocks;
mod jumps;
mod missing;
mod runs;
mod seen;
mod spans;
mod stated;
mod streams;
mod switching;
mod unrecorded;
mod unseen;
mod whole;

use kymo_event::{
    Addr, Batch, ClockGap, Cpu, Duration, Event, FunctionId, Gap, InterruptId, RecordingCause,
    SpaceId, StreamId, StreamInfo, ThreadId, Time,
};

use super::*;
use crate::profile::Profile;

/// The functions of the tests.
const A: FunctionId = FunctionId(0xA0);
const B: FunctionId = FunctionId(0xB0);
const C: FunctionId = FunctionId(0xC0);

/// Writes traces: a processor (and stream), a thread, and events at times.
struct Trace {
    calls: Calls,
    cpu: Option<u32>,
    stream: u32,
    thread: Option<u32>,
    printed: Vec<String>,
    profile: Profile,
}

impl Trace {
    fn new() -> Self {
        Self::with(&TraceInfo::default(), Options::default())
    }

    fn with(info: &TraceInfo, options: Options) -> Self {
        Self {
            calls: Calls::new(info, options),
            cpu: Some(0),
            stream: 0,
            thread: Some(1),
            printed: Vec::new(),
            profile: Profile::new(),
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Self {
        self.thread = Some(thread);
        self
    }

    fn cpu(&mut self, cpu: u32) -> &mut Self {
        self.cpu = Some(cpu);
        self.stream = cpu;
        self
    }

    fn push(&mut self, time: i64, kind: EventKind) -> &mut Self {
        let event = Event {
            time: Time(time),
            stream: StreamId(self.stream),
            cpu: self.cpu.map(Cpu),
            thread: self.thread.map(ThreadId),
            kind,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        };
        let (printed, profile) = (&mut self.printed, &mut self.profile);
        for event in Batch::from_iter([event]).iter() {
            self.calls.push(event, &mut |step| {
                profile.add(&step);
                say(&step, printed);
            });
        }
        self
    }

    fn enter(&mut self, time: i64, function: FunctionId) -> &mut Self {
        self.push(
            time,
            EventKind::Enter {
                function,
                call_site: None,
            },
        )
    }

    fn exit(&mut self, time: i64, function: FunctionId) -> &mut Self {
        self.push(
            time,
            EventKind::Exit {
                function: Some(function),
            },
        )
    }

    fn switch(&mut self, time: i64, thread: u32) -> &mut Self {
        self.push(time, EventKind::SwitchedOut);
        self.thread(thread).push(time, EventKind::SwitchedIn)
    }

    fn isr(&mut self, time: i64, irq: u32) -> &mut Self {
        self.push(
            time,
            EventKind::IsrEnter {
                irq: InterruptId(irq),
            },
        )
    }

    fn isr_end(&mut self, time: i64, irq: u32) -> &mut Self {
        self.push(
            time,
            EventKind::IsrExit {
                irq: Some(InterruptId(irq)),
            },
        )
    }

    fn gap(&mut self, time: i64) -> &mut Self {
        self.push(time, EventKind::Gap(Gap::Discarded { events: Some(2) }))
    }

    fn recording(&mut self, time: i64, on: bool) -> &mut Self {
        let cause = RecordingCause::Function;
        self.push(time, EventKind::Recording { on, cause })
    }

    /// What was said since the last time, and what the end of the trace adds.
    fn finish(&mut self) -> Vec<String> {
        let printed = &mut self.printed;
        self.calls.finish(&mut |step| say(&step, printed));
        std::mem::take(&mut self.printed)
    }
}

/// Ends as `track callee begin-end duration/self how`; switches as `+track` and `-track`.
fn say(step: &Step<'_>, printed: &mut Vec<String>) {
    match step {
        Step::End(end) => {
            let callee = match end.callee {
                Callee::Function(FunctionId(address)) => format!("{address:X}"),
                Callee::Interrupt(irq) => format!("irq{irq}"),
                Callee::Unknown => "?".to_owned(),
            };
            let mut line = format!("{} {callee} ", end.track.0);
            match (end.begin, end.duration, end.self_time) {
                (Some(begin), Some(Duration(duration)), Some(Duration(own))) => {
                    line += &format!("{begin}-{} {duration}/{own}", end.time);
                    assert_eq!(end.wall, Some(end.time.since(begin).unwrap_or_default()));
                }
                (None, Some(Duration(most)), Some(Duration(own))) => {
                    let [sure, wall] = [end.sure, end.wall].map(Option::unwrap_or_default);
                    line += &format!("{sure}..{most}/{own} of {wall} ");
                }
                all => assert_eq!((all, end.wall), ((None, None, None), None)),
            }
            line += match end.how {
                How::NoEnd => " without end",
                How::Returned => "",
                How::Repaired(repair) => {
                    printed.push(line.clone() + " " + repair.name());
                    return doubt(end.doubt, printed);
                }
                How::Jumped => " jumped",
                How::RecordingOff => " off",
                How::Open => " open",
                How::Orphan => "orphan",
            };
            line += if end.recursive { " recursive" } else { "" };
            printed.push(line);
            doubt(end.doubt, printed);
        }
        Step::ClockAhead(ahead) => {
            let Ahead {
                track, callee, by, ..
            } = ahead;
            let own = if ahead.own { "" } else { " in all" };
            printed.push(format!("{} {callee:?} less {}{own}", track.0, by.0));
        }
        Step::State {
            track,
            running,
            recorded,
            ..
        } => {
            let sign = if *running { '+' } else { '-' };
            let how = if *recorded { "" } else { " implied" };
            printed.push(format!("{sign}{}{how}", track.0));
        }
        _ => {}
    }
}

fn doubt(doubt: Doubt, printed: &mut [String]) {
    if let Some(line) = printed.last_mut() {
        *line += if doubt.loss { " doubtful" } else { "" };
        *line += if doubt.clock { " clock" } else { "" };
        *line += if doubt.interrupt { " interrupt" } else { "" };
    }
}

#[test]
fn calls_nest() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(10, B)
        .exit(15, B)
        .enter(20, B)
        .exit(26, B)
        .exit(30, A);
    let printed = [
        "+0 implied",
        "0 B0 10-15 5/5",
        "0 B0 20-26 6/6",
        "0 A0 0-30 30/19",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(
        *trace.calls.counts(),
        Counts {
            returned: 3,
            ran: Duration(30),
            ..Counts::default()
        }
    );
}

#[test]
fn exits_without_a_name_end_the_innermost_call() {
    let mut trace = Trace::new();
    let exit = || EventKind::Exit { function: None };
    trace
        .enter(0, A)
        .enter(1, B)
        .push(2, exit())
        .push(3, exit())
        .push(4, exit());
    assert_eq!(
        trace.finish(),
        ["+0 implied", "0 B0 1-2 1/1", "0 A0 0-3 3/2", "0 ? orphan"]
    );
}

#[test]
fn recursion_is_told() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(1, B)
        .enter(2, A)
        .exit(3, A)
        .exit(4, B)
        .exit(5, A);
    let printed = [
        "+0 implied",
        "0 A0 2-3 1/1 recursive",
        "0 B0 1-4 3/2",
        "0 A0 0-5 5/2",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn preemption_is_not_charged() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .switch(10, 2)
        .enter(12, B)
        .switch(20, 1)
        .exit(25, A)
        .switch(30, 2);
    trace.exit(35, B);
    let printed = [
        "+0 implied",
        "-0",
        "+1",
        "-1",
        "+0",
        "0 A0 0-25 15/15",
        "-0",
        "+1",
        "1 B0 12-35 13/13",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().implied_switches, 0);
}

#[test]
fn a_thread_that_names_itself_has_the_processor() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .thread(2)
        .enter(5, B)
        .exit(9, B)
        .thread(1)
        .exit(10, A);
    let printed = [
        "+0 implied",
        "-0 implied",
        "+1 implied",
        "1 B0 5-9 4/4",
        "-1 implied",
        "+0 implied",
        "0 A0 0-10 5/5",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().implied_switches, 2);
}

#[test]
fn threads_wander_between_processors() {
    let mut trace = Trace::new();
    trace.cpu(0).enter(0, A).push(10, EventKind::SwitchedOut);
    trace.cpu(1).push(50, EventKind::SwitchedIn).exit(55, A);
    assert_eq!(
        trace.finish(),
        ["+0 implied", "-0", "+0", "0 A0 0-55 15/15"]
    );
}

#[test]
fn a_processor_can_idle_and_still_be_interrupted() {
    let mut trace = Trace::new();
    trace.enter(0, A).push(10, EventKind::SwitchedOut);
    // Sources still name the thread that was switched out.
    trace
        .isr(20, 15)
        .isr_end(22, 15)
        .push(30, EventKind::SwitchedIn)
        .exit(31, A);
    let printed = [
        "+0 implied",
        "-0",
        "1 irq15 20-22 2/2",
        "+0",
        "0 A0 0-31 11/11",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn interrupts_charge_themselves() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .isr(10, 15)
        .enter(11, B)
        .isr(13, 16)
        .isr_end(17, 16);
    trace.exit(18, B).isr_end(20, 15).exit(30, A);
    let printed = [
        "+0 implied",
        "2 irq16 13-17 4/4",
        "1 B0 11-18 3/3",
        "1 irq15 10-20 6/3",
        "0 A0 0-30 20/20",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn an_interrupt_can_switch_threads() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .isr(10, 14)
        .switch(12, 2)
        .isr_end(14, 14)
        .enter(16, B)
        .exit(17, B);
    trace.isr(18, 14).switch(19, 1).isr_end(20, 14).exit(30, A);
    let printed = [
        "+0 implied",
        "-0",
        "+2",
        "1 irq14 10-14 4/4",
        "2 B0 16-17 1/1",
        "-2",
        "+0",
        "1 irq14 18-20 2/2",
        "0 A0 0-30 20/20",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn an_interrupt_that_interrupts_itself_has_another_track() {
    let mut trace = Trace::new();
    trace.isr(0, 15).isr(2, 15).isr_end(3, 15).isr_end(9, 15);
    let printed = ["+0 implied", "2 irq15 2-3 1/1", "1 irq15 0-9 8/8"];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn longjmp_leaves_calls_behind() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .enter(1, B)
        .enter(2, C)
        .enter(3, C)
        .exit(10, A)
        .enter(11, B)
        .exit(12, B);
    let printed = [
        "+0 implied",
        "0 C0 3-10 7/7 unwound",
        "0 C0 2-10 8/1 unwound",
        "0 B0 1-10 9/1 unwound",
        "0 A0 0-10 10/1",
        "0 B0 11-12 1/1",
    ];
    assert_eq!(trace.finish(), printed);
    let counts = Counts {
        returned: 2,
        unwound: 3,
        ran: Duration(12),
        ..Counts::default()
    };
    assert_eq!(*trace.calls.counts(), counts);
}

#[test]
fn longjmp_out_of_a_handler_ends_it() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .isr(1, 10)
        .enter(2, B)
        .isr(3, 11)
        .enter(4, C)
        .exit(9, A);
    trace.enter(10, A).exit(11, A);
    let printed = [
        "+0 implied",
        "2 C0 4-9 5/5 unwound",
        "2 irq11 3-9 6/1 unwound",
        "1 B0 2-9 1/1 unwound",
        "1 irq10 1-9 2/1 unwound",
        "0 A0 0-9 1/1",
        "0 A0 10-11 1/1",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn streams_of_threads_have_signals_of_their_own() {
    let streams = [7, 8].map(|thread| StreamInfo {
        thread: Some(ThreadId(thread)),
        ..StreamInfo::default()
    });
    let info = TraceInfo {
        streams: streams.to_vec(),
        ..TraceInfo::default()
    };
    let mut trace = Trace::with(&info, Options::default());
    trace.cpu = None;
    trace.thread = None;
    trace.enter(0, A);
    trace.stream = 1;
    trace.enter(1, A).isr(2, 10);
    trace.stream = 0;
    trace.exit(5, A);
    trace.stream = 1;
    trace.isr_end(6, 10).exit(9, A);
    let printed = trace.finish();
    let ends: Vec<_> = printed.iter().filter(|s| s.contains('/')).collect();
    assert_eq!(ends, ["0 A0 0-5 5/5", "2 irq10 2-6 4/4", "1 A0 1-9 4/4"]);
    let track = |id| trace.calls.track(TrackId(id)).copied();
    let main = track(0).map(|info| (info.kind, info.cpu));
    let thread = TrackKind::Thread {
        thread: Some(ThreadId(7)),
    };
    assert_eq!(main, Some((thread, None)));
    let signal = TrackKind::Interrupt {
        irq: InterruptId(10),
        thread: Some(ThreadId(8)),
        level: 0,
    };
    assert_eq!(track(2).map(|info| info.kind), Some(signal));
    assert_eq!(track(3), None);
}

#[test]
fn a_new_name_tells_the_track_again() {
    let mut calls = Calls::new(&TraceInfo::default(), Options::default());
    let mut reported = Vec::new();
    let mut push = |kind| {
        let event = Event {
            time: Time(0),
            stream: StreamId(0),
            cpu: None,
            thread: Some(ThreadId(1)),
            kind,
            named: false,
            record: true,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        };
        for event in Batch::from_iter([event]).iter() {
            calls.push(event, &mut |step| {
                if let Step::Track { track, info } = step {
                    reported.push((track.0, info.kind));
                }
            });
        }
    };
    let main = || EventKind::ThreadName {
        thread: ThreadId(1),
        name: "main".to_owned(),
    };
    push(EventKind::Enter {
        function: A,
        call_site: None,
    });
    push(main());
    push(EventKind::IsrEnter {
        irq: InterruptId(15),
    });
    push(EventKind::IsrName {
        irq: InterruptId(15),
        name: "tick".to_owned(),
    });
    let thread = TrackKind::Thread {
        thread: Some(ThreadId(1)),
    };
    let interrupt = TrackKind::Interrupt {
        irq: InterruptId(15),
        thread: None,
        level: 0,
    };
    assert_eq!(
        reported,
        [(0, thread), (0, thread), (1, interrupt), (1, interrupt)]
    );
}
