//! Synthetic traces, each with one kind of difficulty.

use kymo_event::{
    Addr, ClockGap, Cpu, Duration, Event, EventKind, Field, FunctionId, Gap, InterruptId,
    InterruptKind, Irq, Quantity, RecordingCause, Space, SpaceId, StreamId, StreamInfo, ThreadId,
    Tid, Time, TraceInfo, Value,
};

use super::Trace;

/// Functions; the name of each is its letter.
pub const A: Addr = Addr(0x1000);
pub const B: Addr = Addr(0x1100);
pub const C: Addr = Addr(0x1200);
/// A name that must be escaped in JSON, XML and folded stacks.
pub const ODD: Addr = Addr(0x1300);
pub const ODD_NAME: &str = "operator<<;\"x\" & <y>";
/// An address without a name.
pub const NAMELESS: Addr = Addr(0x9000);

/// Threads: two with the same name, one without.
pub const WORKER_1: Tid = Tid(0x2000_0100);
pub const WORKER_2: Tid = Tid(0x2000_0200);
pub const UNNAMED: Tid = Tid(0x2000_0300);
/// A thread with a number that Linux could have given.
pub const MAIN: Tid = Tid(42);

/// Writer of events of a stream, one after the other.
pub struct Writer {
    pub trace: Trace,
    /// The space of the following events.
    pub space: SpaceId,
    stream: StreamId,
    cpu: Option<Cpu>,
    thread: Option<ThreadId>,
    time: i64,
}

impl Writer {
    /// Creates a writer for a target with two CPUs.
    pub fn new() -> Self {
        let stream = |cpu| StreamInfo {
            name: format!("cpu{cpu}"),
            cpu: Some(Cpu(cpu)),
            ..StreamInfo::default()
        };
        let info = TraceInfo {
            format: "test".to_owned(),
            streams: vec![stream(0), stream(1)],
            clock_hz: Some(1_000_000_000),
            ..TraceInfo::default()
        };
        let mut writer = Self {
            trace: Trace {
                info,
                events: Vec::new(),
            },
            space: SpaceId(0),
            stream: StreamId(0),
            cpu: Some(Cpu(0)),
            thread: None,
            time: 0,
        };
        let identities = &mut writer.trace.info.identities;
        writer.space = identities.add_space(Space::default());
        for (tid, name) in [(WORKER_1, "worker"), (WORKER_2, "worker"), (MAIN, "main")] {
            let thread = identities.thread(writer.space, tid);
            identities.name_thread(thread, name);
        }
        let tick = identities.interrupt(writer.space, InterruptKind::Hard, Irq(15));
        identities.name_interrupt(tick, "SysTick");
        for (address, name) in [(A, "a"), (B, "b"), (C, "c"), (ODD, ODD_NAME)] {
            let function = identities.function_at(writer.space, address);
            identities.name_function(function, name);
        }
        writer.thread = Some(writer.thread(WORKER_1));
        writer
    }

    /// A thread of the space.
    pub fn thread(&mut self, tid: Tid) -> ThreadId {
        self.trace.info.identities.thread(self.space, tid)
    }

    /// A function of the space.
    pub fn function(&mut self, address: Addr) -> FunctionId {
        let identities = &mut self.trace.info.identities;
        identities.function_at(self.space, address)
    }

    /// A hard interrupt of the space.
    pub fn irq(&mut self, irq: u32) -> InterruptId {
        let identities = &mut self.trace.info.identities;
        identities.interrupt(self.space, InterruptKind::Hard, Irq(irq))
    }

    /// Sets the CPU and thread of the following events.
    pub fn on(&mut self, cpu: u32, thread: Tid) -> &mut Self {
        self.stream = StreamId(cpu);
        self.cpu = Some(Cpu(cpu));
        self.thread = Some(self.thread(thread));
        self
    }

    /// Sets the time of the following events.
    pub fn at(&mut self, time: i64) -> &mut Self {
        self.time = time;
        self
    }

    /// Adds an event.
    pub fn event(&mut self, name: &'static str, kind: EventKind) -> &mut Self {
        self.trace.events.push(Event {
            time: Time(self.time),
            stream: self.stream,
            cpu: self.cpu,
            thread: self.thread,
            // A gap is not a record.
            record: !matches!(kind, EventKind::Gap(_)),
            stamp: None,
            kind,
            named: false,
            name: name.into(),
            fields: Vec::new(),
        });
        self
    }

    pub fn enter(&mut self, function: Addr) -> &mut Self {
        let function = self.function(function);
        let call_site = None;
        self.event(
            "enter",
            EventKind::Enter {
                function,
                call_site,
            },
        )
    }

    pub fn exit(&mut self, function: Addr) -> &mut Self {
        let function = Some(self.function(function));
        self.event("exit", EventKind::Exit { function })
    }

    /// Switches from the running thread to another one.
    pub fn switch(&mut self, to: Tid) -> &mut Self {
        self.event("switched_out", EventKind::SwitchedOut);
        self.thread = Some(self.thread(to));
        self.event("switched_in", EventKind::SwitchedIn)
    }

    pub fn isr_enter(&mut self, irq: u32) -> &mut Self {
        let irq = self.irq(irq);
        self.event("isr_enter", EventKind::IsrEnter { irq })
    }

    pub fn isr_exit(&mut self, irq: u32) -> &mut Self {
        let irq = Some(self.irq(irq));
        self.event("isr_exit", EventKind::IsrExit { irq })
    }

    pub fn gap(&mut self, gap: Gap) -> &mut Self {
        self.event("gap", EventKind::Gap(gap))
    }

    pub fn field(&mut self, field: Field) -> &mut Self {
        self.trace.events.last_mut().unwrap().fields.push(field);
        self
    }
}

/// A trace without losses: calls in two threads of one name and an unnamed one, with preemption, nested interrupts,
/// recursion, calls of length 0, calls at the same time, and two CPUs.
pub fn whole() -> Trace {
    let mut w = Writer::new();
    w.at(100).event("switched_in", EventKind::SwitchedIn);
    w.at(110).enter(A);
    w.at(120).enter(B).exit(B);
    w.at(120).enter(B).enter(C).exit(C).exit(B);
    w.at(130).enter(ODD);
    w.on(1, MAIN)
        .at(135)
        .event("switched_in", EventKind::SwitchedIn)
        .enter(A);
    w.on(0, WORKER_1).at(140).isr_enter(15);
    w.at(142).enter(C);
    w.at(144).isr_enter(16);
    w.at(145).enter(NAMELESS);
    w.at(148).exit(NAMELESS).isr_exit(16);
    w.at(150).exit(C);
    w.at(152).isr_exit(15);
    w.at(160).switch(WORKER_2);
    w.at(170).enter(A);
    w.at(175).enter(A);
    w.at(180).exit(A);
    w.on(1, MAIN).at(185).exit(A);
    w.on(0, WORKER_2).at(200).exit(A);
    w.at(210).switch(UNNAMED);
    w.at(220).enter(B);
    w.at(221).event(
        "named_marker",
        EventKind::Marker {
            label: Some("half way".to_owned()),
            value: 7,
        },
    );
    for (time, value) in [(222, Quantity::Unsigned(3)), (225, Quantity::Real(-2.5))] {
        w.at(time).event("set", counter("queued", None, value));
    }
    w.at(230).exit(B);
    w.at(240).switch(WORKER_1);
    w.at(250).exit(ODD);
    w.at(260).exit(A);
    w.trace
}

/// An event that sets a counter.
pub fn counter(name: &str, process: Option<u64>, value: Quantity) -> EventKind {
    EventKind::Counter {
        name: name.to_owned(),
        process,
        value,
    }
}

/// Counters of one name in two processes and in none, some with values that an `f64` cannot represent.
pub fn counters() -> Trace {
    const BIG: u64 = (1 << 53) + 1;
    let mut w = Writer::new();
    let mut set = |time, process, value| {
        w.on(0, WORKER_1)
            .at(time)
            .event("set", counter("queued", process, value));
    };
    set(110, Some(7), Quantity::Unsigned(BIG));
    set(120, Some(9), Quantity::Signed(i64::MIN));
    set(130, None, Quantity::Unsigned(u64::MAX));
    set(140, Some(7), Quantity::Real(1.5));
    set(150, Some(9), Quantity::Real(f64::NAN));
    set(160, Some(7), Quantity::Unsigned(4));
    set(170, Some(9), Quantity::Signed(5));
    w.trace
}

/// A trace with all kinds of losses and damage, except time that goes back.
pub fn broken() -> Trace {
    let mut w = Writer::new();
    // The beginning is overwritten, so the first exits are orphans.
    w.at(100).gap(Gap::Overwritten { packets: 3 });
    w.at(100).exit(C);
    w.at(105).exit(B);
    // An exception: a catches an exception thrown in c.
    w.at(110).enter(A);
    w.at(115).enter(B);
    w.at(120).enter(C);
    w.at(130).exit(A);
    // longjmp: b jumps back into a.
    w.at(131).enter(A);
    w.at(131)
        .event("setjmp", EventKind::SetJmp { env: Addr(0x80) });
    w.at(132).enter(B);
    w.at(134)
        .event("longjmp", EventKind::LongJmp { env: Addr(0x80) });
    w.at(136).exit(A);
    let unix_ns = 1_700_000_000_123_456_789;
    let uncertainty_ns = 250_000;
    let kind = EventKind::WallClock {
        unix_ns,
        uncertainty_ns,
    };
    w.at(137).event("wall_clock", kind);
    // A loss within a call, and another one directly after it.
    w.at(140).enter(A);
    w.at(150).enter(B);
    w.at(155).gap(Gap::Discarded { events: Some(37) });
    w.at(155).gap(Gap::LostPackets { packets: None });
    w.at(170).exit(A);
    // The clock is uncertain within a call.
    w.at(180).enter(C);
    w.at(182).gap(Gap::Clock(ClockGap {
        at_least: Duration(1000),
    }));
    w.at(1190).exit(C);
    // Recording is turned off within a call, and on again outside.
    w.at(1200).enter(B);
    let recording = |on| EventKind::Recording {
        on,
        cause: RecordingCause::Command,
    };
    w.at(1210).event("recording", recording(false));
    w.at(2000).event("recording", recording(true));
    w.at(2010).enter(A);
    w.at(2020).event(
        "context",
        EventKind::Context {
            priority: -3,
            mode: 1,
        },
    );
    w.at(2025).event("tick", EventKind::Other);
    w.field(Field::new("count", 5_u64));
    w.field(Field::new("what", "a \"thing\""));
    w.field(Field::new("where", Value::Hex(0xE000_E010)));
    // Unreadable bytes end the stream; its calls remain open.
    w.at(2030).gap(Gap::Damage {
        offset: 4096,
        bytes: None,
        message: "bad magic".to_owned(),
    });
    w.trace
}

/// Time that begins below zero, and goes back in one stream.
pub fn backward() -> Trace {
    let mut w = Writer::new();
    w.at(-50).enter(A);
    w.at(-20).enter(B);
    w.on(1, MAIN).at(-10).enter(C);
    w.on(0, WORKER_1).at(40).exit(B);
    w.at(40).gap(Gap::TimeBackward { by: Duration(60) });
    w.at(-20).enter(C);
    w.at(-15).exit(C);
    w.at(60).exit(A);
    w.on(1, MAIN).at(70).exit(C);
    w.trace
}

/// A Linux process: streams belong to threads, and CPUs are not known.
pub fn process() -> Trace {
    let mut w = Writer::new();
    w.trace.info.streams = [(MAIN, "thread-0"), (Tid(43), "thread-1")]
        .map(|(thread, name)| StreamInfo {
            name: name.to_owned(),
            thread: Some(w.thread(thread)),
            ..StreamInfo::default()
        })
        .to_vec();
    w.on(0, MAIN).cpu = None;
    w.at(10).enter(A);
    w.on(1, Tid(43)).cpu = None;
    w.at(20).enter(B);
    w.on(0, MAIN).cpu = None;
    w.at(30).isr_enter(14).enter(C).at(35).exit(C).isr_exit(14);
    w.at(50).exit(A);
    w.on(1, Tid(43)).cpu = None;
    w.at(60).exit(B);
    w.trace
}

/// The same process; one thread jumps out of more and more calls.
pub fn jumps() -> Trace {
    let mut w = Writer::new();
    let main = w.thread(MAIN);
    w.trace.info.streams.truncate(1);
    w.trace.info.streams[0] = StreamInfo {
        name: "thread-0".to_owned(),
        thread: Some(main),
        ..StreamInfo::default()
    };
    let set = |env| EventKind::SetJmp { env: Addr(env) };
    let jump = |env| EventKind::LongJmp { env: Addr(env) };
    w.on(0, MAIN).cpu = None;
    w.at(5).event("setjmp", set(0x100));
    w.at(10).enter(A).at(12).event("setjmp", set(0x200));
    w.at(15).enter(B).at(20).enter(C).at(25);
    w.event("longjmp", jump(0x200));
    w.at(30).enter(B).at(35).event("setjmp", set(0x300));
    w.at(40).enter(C).at(45).event("longjmp", jump(0x300));
    w.at(50).enter(C).at(55).event("longjmp", jump(0x100));
    w.at(60).enter(B).at(70).exit(B);
    w.trace
}

/// A thread that becomes ready at 20 and runs at 40.
pub fn woken() -> Trace {
    let mut w = Writer::new();
    let thread = w.thread(Tid(43));
    w.on(0, MAIN).at(10);
    w.event("switched_in", EventKind::SwitchedIn);
    w.at(20).event("wakeup", EventKind::Ready { thread });
    w.at(40).event("switched_out", EventKind::SwitchedOut);
    w.on(0, Tid(43)).at(40);
    w.event("switched_in", EventKind::SwitchedIn);
    w.at(50).enter(A).at(60).exit(A);
    w.trace
}

/// A CPU that is idle for some time, and threads that record events before their first switch.
pub fn scheduled() -> Trace {
    let mut w = Writer::new();
    let thread = w.thread(WORKER_2);
    w.on(0, MAIN).at(10).enter(A);
    w.on(1, UNNAMED).at(15).enter(C);
    w.on(0, MAIN).at(20);
    w.event("wakeup", EventKind::Ready { thread });
    w.at(25).switch(WORKER_1).at(35);
    w.event("switched_out", EventKind::SwitchedOut);
    w.thread = None;
    w.at(40).isr_enter(15).at(42).isr_exit(15);
    w.on(1, UNNAMED).at(45).exit(C);
    w.on(0, WORKER_2).at(50);
    w.event("switched_in", EventKind::SwitchedIn);
    w.at(55).enter(B).at(60).exit(B);
    w.on(1, UNNAMED).at(65);
    w.event("switched_out", EventKind::SwitchedOut);
    w.on(0, WORKER_2).at(70).switch(MAIN);
    w.at(80).exit(A);
    w.trace
}

/// Two machines in one trace: each has a function, a thread and an interrupt with the same number and name as one of
/// the other machine.
pub fn two_machines() -> Trace {
    let mut w = Writer::new();
    let spaces = ["alpha", "beta"].map(|name| {
        let identities = &mut w.trace.info.identities;
        identities.add_space(Space {
            name: name.to_owned(),
            ..Space::default()
        })
    });
    for (stream, space) in (0..).zip(spaces) {
        w.space = space;
        w.trace.info.streams[stream].space = space;
        let (thread, function, irq) = (w.thread(MAIN), w.function(A), w.irq(15));
        let identities = &mut w.trace.info.identities;
        identities.name_thread(thread, "main");
        identities.name_function(function, "read");
        identities.name_interrupt(irq, "SysTick");
    }
    for (time, calls) in [(0, 1), (100, 2)] {
        for (cpu, space) in (0..).zip(spaces) {
            w.space = space;
            w.on(cpu, MAIN).at(time + i64::from(cpu));
            w.event("switched_in", EventKind::SwitchedIn);
            for call in 0..calls {
                let begin = time + 10 * call + i64::from(cpu);
                w.at(begin).enter(A).at(begin + 2).isr_enter(15);
                w.at(begin + 3).isr_exit(15).at(begin + 5).exit(A);
            }
        }
    }
    // The streams are merged by time.
    w.trace.events.sort_by_key(|event| event.time);
    w.trace
}

/// A trace without events.
pub fn empty() -> Trace {
    Trace {
        events: Vec::new(),
        ..Writer::new().trace
    }
}

/// All traces, with their names.
pub fn all() -> [(&'static str, Trace); 5] {
    [
        ("whole", whole()),
        ("broken", broken()),
        ("backward", backward()),
        ("process", process()),
        ("empty", empty()),
    ]
}
