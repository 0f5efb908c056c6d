//! Recordings of RTEMS's events: the meaning of the records.

use std::collections::BTreeSet;
use std::io::Write as _;

use kymo_event::{Event, EventKind, Gap, TraceInfo, Value, Wanted};
use kymo_fixtures::captures;
use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use kymo_read::{Events, OpenError, OpenOptions, Summary, open, rtems_record};
use kymo_rtems_record::EventId;

fn read(bytes: &[u8]) -> (TraceInfo, Vec<Event>) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let mut source = open(file.path(), &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

/// An event as a line: thread, meaning, fields.
fn line(info: &TraceInfo, event: &Event) -> String {
    let all = &info.identities;
    let function = |id| all.function(id).unwrap().name.clone().unwrap();
    let what = match &event.kind {
        EventKind::Enter { function: id, .. } => format!("enter {}", function(*id)),
        EventKind::Exit { function: id } => format!("exit {}", function(id.unwrap())),
        EventKind::SpanBegin { function: id, .. } => format!("begin {}", function(*id)),
        EventKind::SpanEnd { function: id, .. } => format!("end {}", function(*id)),
        EventKind::IsrEnter { irq } => format!("interrupt {}", all.irq(*irq)),
        EventKind::IsrExit { irq } => format!("end of interrupt {}", all.irq(irq.unwrap())),
        EventKind::Marker { label, value } => format!("{} is {value}", label.as_deref().unwrap()),
        EventKind::Counter { name, value, .. } => format!("{name} is {value}"),
        EventKind::Ready { thread } => format!("{} can run", all.thread_name(*thread).unwrap()),
        EventKind::Gap(gap) => gap.to_string(),
        EventKind::SwitchedIn => "in".to_owned(),
        EventKind::SwitchedOut => "out".to_owned(),
        _ => event.name.to_string(),
    };
    let thread = event
        .thread
        .and_then(|id| all.thread_name(id))
        .unwrap_or("-");
    let fields = event
        .fields
        .iter()
        .filter(|it| it.name != "data" && it.name != "code");
    let fields: String = fields
        .map(|it| format!(" {}={}", it.name, it.value))
        .collect();
    format!("{thread}: {what}{fields}")
}

#[test]
fn records_mean_what_they_say() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream
        .thread(0x0901_0001, "IDLE")
        .thread(0x0a01_0001, "UI1 ");
    stream.processor(0).uptime(10);
    stream.item(10, 302, 0x0a01_0001); // THREAD_START
    stream
        .item(11, 306, 0x0901_0001)
        .item(11, 299, 64)
        .item(11, 305, 0x0a01_0001);
    stream
        .item(12, 338, 0x1001)
        .item(12, 22, 3)
        .item(12, 23, 0x2000); // WRITE_ENTRY
    stream
        .item(13, 71, 27)
        .item(14, 71, 5)
        .item(15, 72, 5)
        .item(16, 72, 27);
    stream.item(17, 339, 0x1001).item(17, 142, 99); // WRITE_EXIT
    stream
        .item(18, 89, 0x40)
        .item(19, 90, 0x40)
        .item(20, 95, 0x40); // a lock
    stream.item(21, 87, 0x1003); // ISR_DISABLE
    stream.item(22, 306, 0x0a01_0001).item(22, 305, 0x0901_0001);
    stream.item(23, 88, 0x1005); // ISR_ENABLE
    stream.item(24, 315, 1).item(24, 314, 2).item(25, 316, 2); // UMA
    stream
        .item(26, 19, 0x300)
        .item(26, 100, 6)
        .item(26, 110, 0x0403_0201)
        .item(26, 110, 0x0605);
    stream.item(27, 45, 1500); // ETHER_OUTPUT
    stream.overflow(9).item(28, 512, 7).uptime(30);
    let (info, events) = read(&stream.bytes);
    let happened = events.iter().filter(|event| {
        !matches!(event.kind, EventKind::Fact | EventKind::Time)
            && !event.name.starts_with("ARG_")
            && !event.name.starts_with("RETURN_")
    });
    let lines: Vec<_> = happened.map(|event| line(&info, event)).collect();
    assert_eq!(
        lines,
        [
            "IDLE/0: UI1  can run",
            "IDLE/0: out",
            "-: THREAD_STACK_CURRENT",
            "UI1 : in",
            "UI1 : enter write arg0=0x3 arg1=0x2000",
            "UI1 : interrupt 27",
            "UI1 : interrupt 5",
            "UI1 : end of interrupt 5",
            "UI1 : end of interrupt 27",
            "UI1 : exit write return0=0x63",
            "UI1 : begin wait for ISR lock 0x40",
            "UI1 : end wait for ISR lock 0x40",
            "UI1 : begin hold ISR lock 0x40",
            "UI1 : end hold ISR lock 0x40",
            "UI1 : begin interrupts disabled",
            "UI1 : out",
            "IDLE/0: in",
            "IDLE/0: end interrupts disabled",
            "IDLE/0: UMA allocations is 1",
            "IDLE/0: UMA_ALLOC_PTR",
            "IDLE/0: UMA allocations is 0",
            "IDLE/0: ADDRESS",
            "IDLE/0: LENGTH",
            "IDLE/0: MEMORY",
            "IDLE/0: MEMORY",
            "IDLE/0: memory address=0x300 length=6 bytes=010203040506",
            "IDLE/0: ETHER_OUTPUT",
            "-: 9 events discarded",
            "-: PER_CPU_OVERFLOW",
            "-: USER_0",
        ]
    );
    let call_site = events.iter().find_map(|event| match event.kind {
        EventKind::Enter { call_site, .. } => call_site,
        _ => None,
    });
    // Without the Thumb bit.
    assert_eq!(call_site.map(|address| address.0), Some(0x1000));
    let target: Vec<_> = info
        .about
        .iter()
        .map(|(name, text)| format!("{name} {text}"))
        .collect();
    assert_eq!(
        target,
        [
            "arch ARM",
            "bsp realview",
            "multilib ARMv7-A NEON",
            "tools 12.2.1 20221205",
            "revision 0123abc",
            "version 10 of the record format, 32 bits, little endian",
            "cpus 1",
            "ring 64 records"
        ]
    );
}

/// The event of a memory block follows the last word of the block, and precedes all later events.
#[test]
fn a_block_of_memory_lies_before_what_follows_it() {
    let (memory, registers) = (110, EventId::REGISTERS.0.into());
    let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, 1_000_000);
    stream.processor(0).uptime(10);
    // A block of known length. In order of time, records of the other CPU follow before the next one of this CPU.
    stream.item(20, 19, 0x300).item(20, 100, 6);
    stream
        .item(20, memory, 0x0403_0201)
        .item(20, memory, 0x0605);
    stream.item(40, memory, 7).item(41, registers, 8);
    stream.item(42, 512, 1);
    stream.processor(1).uptime(10);
    stream.item(30, 512, 2).item(31, 512, 3);
    let (info, events) = read(&stream.bytes);
    assert!(events.is_sorted_by_key(|event| event.time), "{events:?}");
    let happened = events.iter().filter(|event| {
        !matches!(
            event.kind,
            EventKind::Fact | EventKind::Time | EventKind::Gap(_)
        )
    });
    let lines: Vec<_> = happened.map(|event| line(&info, event)).collect();
    assert_eq!(
        lines,
        [
            "-: ADDRESS",
            "-: LENGTH",
            "-: MEMORY",
            "-: MEMORY",
            "-: memory address=0x300 length=6 bytes=010203040506",
            "-: USER_0",
            "-: USER_0",
            "-: MEMORY",
            "-: memory bytes=07000000",
            "-: REGISTERS",
            "-: registers bytes=08000000",
            "-: USER_0",
        ]
    );
}

/// After a gap the running thread is known from the next switch, also if interrupts occur before it.
#[test]
fn behind_a_gap_the_next_switch_names_the_thread() {
    let (thread, idle) = (0x0a01_0001, 0x0901_0001);
    let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, 1_000_000);
    stream.thread(idle, "IDLE").thread(thread, "UI1 ");
    // A switch of another CPU must not matter.
    stream.processor(1).uptime(10).item(21, 305, thread);
    stream.processor(0).uptime(10);
    stream.item(11, 306, idle).item(11, 305, thread);
    stream.item(12, 338, 0x1000); // WRITE_ENTRY
    stream.overflow(9).item(20, 512, 1).uptime(20);
    stream.item(22, 71, 27).item(23, 72, 27); // an interrupt
    stream.item(24, 339, 0x1000); // WRITE_EXIT
    stream.item(25, 306, thread).item(25, 305, idle);
    stream.overflow(9).item(30, 512, 2).uptime(30);
    // This switch does not contain the thread that ran before it.
    stream.item(31, 305, thread).item(32, 512, 3);
    stream.overflow(9).item(40, 512, 4).uptime(40);
    let (info, events) = read(&stream.bytes);
    let first = info.streams.iter().position(|it| it.name == "cpu0");
    let happened = events.iter().filter(|event| {
        Some(event.stream.0 as usize) == first
            && !matches!(event.kind, EventKind::Fact | EventKind::Time)
    });
    let lines: Vec<_> = happened.map(|event| line(&info, event)).collect();
    assert_eq!(
        lines,
        [
            "IDLE/0: out",
            "UI1 : in",
            "UI1 : enter write",
            "-: 9 events discarded",
            "-: PER_CPU_OVERFLOW",
            "UI1 : USER_0",
            "UI1 : interrupt 27",
            "UI1 : end of interrupt 27",
            "UI1 : exit write",
            "UI1 : out",
            "IDLE/0: in",
            "-: 9 events discarded",
            "-: PER_CPU_OVERFLOW",
            "-: USER_0",
            "UI1 : in",
            "UI1 : USER_0",
            "-: 9 events discarded",
            "-: PER_CPU_OVERFLOW",
            "-: USER_0",
        ]
    );
}

#[test]
fn all_cases_are_counted_and_their_damage_is_told() {
    let folder = captures::some_rtems_record();
    let index = std::fs::read_to_string(folder.join("index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    for case in index.as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let path = folder.join(name).join(case["input"].as_str().unwrap());
        let summary = |wanted| {
            let options = OpenOptions {
                wanted,
                ..OpenOptions::default()
            };
            open(&path, &options).map(|mut source| {
                let summary = Summary::of(&mut *source);
                (summary, source.info().clone())
            })
        };
        let (found, info) = match summary(Wanted::Everything) {
            Ok(found) => found,
            Err(error) => {
                assert!(name.starts_with("error-"), "{name}: {error}");
                let is_reported =
                    matches!(error, OpenError::Record { .. } | OpenError::Empty { .. });
                assert!(is_reported, "{name}: {error}");
                continue;
            }
        };
        assert_eq!(
            found.errors.is_empty(),
            !name.starts_with("error-"),
            "{name}: {:?}",
            found.errors
        );
        let (again, _) = summary(Wanted::Meaning).unwrap();
        assert_eq!(
            (again.events, again.lost),
            (found.events, found.lost),
            "{name}"
        );
        // No event has time 0, except in the recording that begins there.
        let floor = if name == "shim-le64-uptime-zero" {
            0
        } else {
            900_000_000
        };
        for stream in found.streams.iter().filter(|stream| stream.events > 0) {
            assert!(stream.start.unwrap().0 >= floor, "{name}: {stream:?}");
        }
        let threads = info.identities.threads();
        assert!(
            threads.iter().any(|it| it.name.is_some()) || name.starts_with("shim"),
            "{name}"
        );
    }
}

#[test]
fn processors_without_uptime_are_marked_and_lie_among_the_others() {
    let folder = captures::some_rtems_record();
    let path = folder.join("kernel-smp4-dump-no-uptime/console.log");
    let mut source = open(&path, &OpenOptions::default()).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let marked: BTreeSet<_> = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::Gap(Gap::Clock(_))))
        .map(|event| event.cpu.unwrap().0)
        .collect();
    assert_eq!(marked, BTreeSet::from([1, 2, 3]));
    let (first, last) = (
        events.first().unwrap().time.0,
        events.last().unwrap().time.0,
    );
    assert!(
        first >= 996_000_000 && last <= 1_245_000_000,
        "{first} to {last}"
    );
    assert!(events.is_sorted_by_key(|event| event.time));
    // The last records of these CPUs are shortly before the crash.
    for cpu in 1..4 {
        let last = events
            .iter()
            .rev()
            .find(|it| it.record && it.cpu.is_some_and(|it| it.0 == cpu));
        assert!(last.unwrap().time.0 > 1_190_000_000, "CPU {cpu}");
    }
}

#[test]
fn several_dumps_of_a_log_are_streams_of_their_own() {
    let dump = |first: u64| {
        let mut stream = Stream::new(LAYOUTS[1], 10, 2, 64, 1_000_000);
        stream.processor(0).uptime(first).item(first + 1, 512, 1);
        stream.processor(1).uptime(first).item(first + 2, 513, 2);
        stream.log(true, "[ 1.2] ")
    };
    let log = format!("{}reset\n{}", dump(9_000), dump(500));
    let (info, events) = read(log.as_bytes());
    let several = |it: &String| it.starts_with("there are 2 dumps in the log");
    assert_eq!(info.remarks.iter().filter(|it| several(it)).count(), 1);
    // When reading from a pipe the number of dumps is known at its end.
    let reader = Box::new(std::io::Cursor::new(log.clone()));
    let pipe = rtems_record::open_stream("log".as_ref(), reader, &OpenOptions::default());
    let mut pipe = pipe.unwrap();
    assert!(Events::new(&mut *pipe).all(|it| it.is_ok()));
    assert_eq!(
        pipe.info().remarks.iter().filter(|it| several(it)).count(),
        1
    );
    let names: Vec<_> = info.streams.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["cpu0", "cpu1", "cpu0 of dump 2", "cpu1 of dump 2"]);
    // The uptime restarts with each dump. Each is a machine of its own, and all events are ordered by time.
    assert!(!info.steps_back);
    let machines: Vec<_> = info.streams.iter().map(|it| it.machine).collect();
    assert!(machines[0] == machines[1] && machines[2] == machines[3]);
    assert_ne!(machines[0], machines[2]);
    let names = machines
        .iter()
        .map(|id| info.identities.space(*id).unwrap().name.as_str());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["dump 1", "dump 1", "dump 2", "dump 2"]
    );
    let users = events.iter().filter(|it| it.name.starts_with("USER_"));
    let users: Vec<_> = users.map(|it| (it.stream.0, it.time.0)).collect();
    assert_eq!(
        users,
        [(2, 501_000), (3, 502_000), (0, 9_001_000), (1, 9_002_000)]
    );
    let fields = |event: &Event| event.fields.first().map(|it| it.value.clone());
    let last = events.iter().rfind(|it| it.name == "USER_1").unwrap();
    assert_eq!(fields(last), Some(Value::Hex(2)));
}

/// Reader that returns at most this number of bytes at a time.
struct Pieces(Vec<u8>, usize);

impl std::io::Read for Pieces {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(room.len()).min(self.0.len());
        room[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

/// The items of the arguments follow that of the call, so they may arrive in another chunk.
#[test]
fn calls_of_a_live_target_have_their_arguments() {
    const CALLS: u64 = 20;
    let mut stream = Stream::new(LAYOUTS[1], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(1_000_000);
    for call in 0..CALLS {
        let now = 1_000_000 + call * 100;
        stream
            .item(now, 338, 0x1000)
            .item(now, 22, 3)
            .item(now, 23, call);
        stream.item(now + 30, 339, 0x1000).item(now + 30, 142, 7);
    }
    let options = OpenOptions {
        wanted: Wanted::Everything,
        ..OpenOptions::default()
    };
    for piece in [1, 16, 40, 1 << 16] {
        let reader = Box::new(Pieces(stream.bytes.clone(), piece));
        let mut source = rtems_record::open_stream("live".as_ref(), reader, &options).unwrap();
        let events = Events::new(&mut *source).map(Result::unwrap);
        let fields = events.flat_map(|event| event.fields);
        let names: Vec<_> = fields.map(|field| field.name.into_owned()).collect();
        for name in ["arg0", "arg1", "return0"] {
            let count = names.iter().filter(|it| *it == name).count();
            assert_eq!(count as u64, CALLS, "{name} in pieces of {piece}");
        }
    }
}
