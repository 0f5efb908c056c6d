//! Recordings of a test recorder in each form in which a recording can be stored: the events read must be those
//! recorded, in every layout.

use std::path::Path;

use kymo_event::{
    Addr, Cpu, Duration, Event, EventKind, Field, Gap, Irq, RecordingCause, StreamId, Ticks, Tid,
    Time, TraceInfo, Value,
};
use kymo_fixtures::names::{address, function_at, named_interrupts, named_threads};
use kymo_fixtures::recorder::{
    CORTEX_M, Encoder, Op, TEXT_BASE, Truth, events, every_way, identity, layouts, random_op,
    small, ten_packets,
};
use kymo_read::kymo::{Dump, Program, open_dump, write_raw, write_trace};
use kymo_read::{OpenError, OpenOptions, Source, Summary, open};
use kymo_wire::event::{Layout, PacketHeader, Shape, WordSize};
use kymo_wire::link::Identity;
use proptest::prelude::*;

fn time(ticks: u64) -> Time {
    Time(Ticks(ticks).to_ns(25_000_000) as i64)
}

/// A read event in the form of the recorder's expected result.
fn truth<'e>(info: &TraceInfo, event: &'e Event) -> (Time, &'e str, u64) {
    let field = |name: &str| {
        event.fields.iter().find_map(|field| match &field.value {
            Value::Hex(value) | Value::Unsigned(value) if field.name == name => Some(*value),
            _ => None,
        })
    };
    let address = |function| address(info, function).0;
    let tid = |thread| info.identities.tid(thread).0;
    let number = |irq| info.identities.irq(irq).0.into();
    let argument = match &event.kind {
        EventKind::Enter { function, .. } => address(*function),
        EventKind::Exit { function } => address(function.unwrap()),
        EventKind::SwitchedIn | EventKind::SwitchedOut | EventKind::Context { .. } => {
            event.thread.map_or(0, tid)
        }
        EventKind::IsrEnter { irq } | EventKind::IsrExit { irq: Some(irq) } => number(*irq),
        EventKind::Marker { value, .. } => *value,
        EventKind::Recording { on, .. } => u64::from(*on),
        EventKind::ThreadName { thread, .. } => tid(*thread),
        EventKind::IsrName { irq, .. } => number(*irq),
        EventKind::Gap(Gap::Clock(_)) => field("ticks").unwrap(),
        EventKind::SetJmp { env } | EventKind::LongJmp { env } => env.0,
        EventKind::WallClock { unix_ns, .. } => *unix_ns,
        EventKind::Other if event.name == "block" => field("type").unwrap(),
        EventKind::Time => 0,
        other => panic!("{other:?}"),
    };
    (event.time, &event.name, argument)
}

/// Compares the events of a source with those that the streams recorded.
fn agree(source: &mut dyn Source, streams: &[&Encoder]) {
    let events = events(source);
    assert!(
        events.is_sorted_by_key(|event| event.time),
        "merged by time"
    );
    assert_eq!(source.info().streams.len(), streams.len());
    for (index, stream) in (0..).zip(streams) {
        let found = events
            .iter()
            .filter(|event| event.stream == StreamId(index));
        let found: Vec<_> = found.map(|event| truth(source.info(), event)).collect();
        let recorded: Vec<_> = stream
            .truth
            .iter()
            .map(
                |Truth {
                     ticks,
                     name,
                     argument,
                 }| (time(*ticks), *name, *argument),
            )
            .collect();
        assert_eq!(found, recorded, "stream {index}");
    }
    assert_eq!(source.info().damage, []);
}

fn recording() -> impl Strategy<Value = (Layout, Vec<Vec<(u64, Op)>>)> {
    prop::sample::select(layouts()).prop_flat_map(|layout| {
        let stream = prop::collection::vec(random_op(layout), 1..120);
        (Just(layout), prop::collection::vec(stream, 1..4))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_was_recorded_comes_back((layout, streams) in recording()) {
        let mut encoders = Vec::new();
        let mut bytes = Vec::new();
        for (number, ops) in (0..).zip(&streams) {
            let mut encoder = Encoder::new(layout, number, 0x20);
            let mut ticks = 0;
            for (distance, op) in ops {
                ticks += distance;
                encoder.record(ticks, op);
            }
            bytes.extend(encoder.bytes());
            encoders.push(encoder);
        }
        let encoders: Vec<_> = encoders.iter().collect();
        every_way(layout, &bytes, &mut |source| agree(source, &encoders));
    }

}

#[test]
fn meaning_names_and_context() {
    let layout = CORTEX_M;
    let mut names = Encoder::metadata(layout);
    names.record(0, &Op::ThreadName(0x2000_0100, "main".to_owned()));
    names.record(0, &Op::IsrName(15, "SysTick".to_owned()));
    let mut cpu = Encoder::new(layout, 0, 0x2000_0100);
    cpu.record(25, &Op::Recording(1, 1));
    cpu.record(50, &Op::Enter(1));
    cpu.record(75, &Op::Context(0x2000_0200, -3, 1));
    cpu.record(75, &Op::SwitchedOut);
    cpu.record(80, &Op::IsrEnter(15));
    cpu.record(85, &Op::SwitchedIn(0x2000_0300));
    cpu.record(90, &Op::EnterFar(0x1FFF_0001));
    cpu.record(95, &Op::NamedMarker(0x0800_2000, 5));
    cpu.record(100, &Op::ClockGap(50));
    let mut bytes = names.bytes();
    bytes.extend(cpu.bytes());
    every_way(layout, &bytes, &mut |source| {
        let info = source.info().clone();
        assert_eq!(info.format, "kymo");
        assert_eq!(info.build_id.as_deref(), Some(&[0x5A; 20][..]));
        assert_eq!(info.text_base, Some(Addr(TEXT_BASE)));
        assert_eq!(info.clock_hz, Some(25_000_000));
        assert_eq!(
            named_threads(&info),
            [(Tid(0x2000_0100), "main".to_owned())]
        );
        assert_eq!(named_interrupts(&info), [(Irq(15), "SysTick".to_owned())]);
        assert_eq!(info.streams[0].name, "cpu0");
        assert_eq!(info.streams[0].cpu, Some(Cpu(0)));
        assert_eq!(info.streams[1].name, "target");
        assert_eq!(info.streams[1].cpu, None);

        let events = events(source);
        let events: Vec<_> = events
            .iter()
            .filter(|event| event.stream == StreamId(0))
            .collect();
        let info = source.info();
        let thread = |index: usize| events[index].thread.map(|id| info.identities.tid(id).0);
        assert_eq!(
            events[0].kind,
            EventKind::Recording {
                on: true,
                cause: RecordingCause::Function
            }
        );
        assert_eq!((events[0].time, events[0].cpu), (Time(1_000), Some(Cpu(0))));
        assert_eq!(
            events[1].kind,
            EventKind::Enter {
                function: function_at(info, Addr(TEXT_BASE + 2)),
                call_site: None
            }
        );
        assert_eq!(
            events[1].fields[0],
            Field::new("function", Value::Hex(TEXT_BASE + 2))
        );
        // Only a trace directory contains names of functions.
        let function = info
            .identities
            .function(function_at(info, Addr(TEXT_BASE + 2)));
        let label = function.and_then(|function| function.name.as_deref());
        assert_eq!(
            events[1].fields.get(1),
            label.map(|name| Field::new("label", name)).as_ref()
        );
        assert_eq!(thread(1), Some(0x2000_0100));
        assert_eq!(
            events[2].kind,
            EventKind::Context {
                priority: -3,
                mode: 1
            }
        );
        assert_eq!(
            (thread(2), thread(3)),
            (Some(0x2000_0200), Some(0x2000_0200))
        );
        assert_eq!(thread(4), None, "nobody is known to run after a switch out");
        assert_eq!(
            (thread(5), thread(6)),
            (Some(0x2000_0300), Some(0x2000_0300))
        );
        assert_eq!(
            events[6].kind,
            EventKind::Enter {
                function: function_at(info, Addr(0x1FFF_0000)),
                call_site: None
            }
        );
        assert_eq!(
            events[7].fields[0],
            Field::new("name", Value::Hex(0x0800_2000))
        );
        let EventKind::Gap(Gap::Clock(gap)) = events[8].kind else {
            panic!("{:?}", events[8]);
        };
        assert_eq!(gap.at_least, Duration(2_000));
        assert_eq!(source.info().streams[0].start, Some(Time(1_000)));
        assert_eq!(source.info().streams[0].end, Some(Time(4_000)));
    });
}

#[test]
fn threads_of_a_process_are_streams_of_their_own() {
    let wide = Layout {
        word: WordSize::Bits64,
        ..CORTEX_M
    };
    let thread = PacketHeader::FLAG_THREAD;
    // A CPU that runs only one thread is possible.
    for (layout, flags, threads) in [
        (CORTEX_M, thread, true),
        (wide, thread, true),
        (wide, 0, false),
        (CORTEX_M, 0, false),
    ] {
        let mut streams = [0, 1].map(|number| {
            let mut stream = Encoder::new(layout, number, 4000 + u64::from(number));
            stream.flags = flags;
            (0..100).for_each(|i| stream.record(i, &Op::Enter(0)));
            stream
        });
        let bytes = [streams[0].bytes(), streams[1].bytes()].concat();
        every_way(layout, &bytes, &mut |source| {
            let stream = source.info().streams[1].clone();
            let name = if threads { "thread-1" } else { "cpu1" };
            assert_eq!(stream.name, name);
            assert_eq!(stream.cpu, (!threads).then_some(Cpu(1)));
            let tid = stream
                .thread
                .map(|thread| source.info().identities.tid(thread));
            assert_eq!(tid, threads.then_some(Tid(4001)));
            let all = events(source);
            assert!(all.iter().all(|event| event.cpu.is_none() == threads));
        });
    }
}

#[test]
fn names_that_found_no_room_are_no_lost_events() {
    for (flags, gaps) in [(PacketHeader::FLAG_FACTS, 0), (0, 1)] {
        let mut names = Encoder::metadata(CORTEX_M);
        names.flags = flags;
        names.discarded = 7;
        names.record(1, &Op::ThreadName(5, "worker".to_owned()));
        let mut stream = Encoder::new(CORTEX_M, 0, 5);
        (0..100).for_each(|i| stream.record(i, &Op::Enter(0)));
        let bytes = [names.bytes(), stream.bytes()].concat();
        every_way(CORTEX_M, &bytes, &mut |source| {
            let remarks = &source.info().remarks;
            let lost = remarks
                .iter()
                .filter(|it| it.contains("no memory for 7 names"));
            assert_eq!(lost.count(), 1 - gaps);
            let events = events(source);
            let lost = events.iter().filter(|event| {
                matches!(
                    event.kind,
                    EventKind::Gap(Gap::Discarded { events: Some(7) })
                )
            });
            assert_eq!(lost.count(), gaps);
        });
    }
}

#[test]
fn a_summary_counts_records_and_losses() {
    let (bytes, count) = small(CORTEX_M);
    every_way(CORTEX_M, &bytes, &mut |source| {
        let summary = Summary::of(source);
        assert_eq!(
            (summary.events, summary.lost, summary.gaps),
            (count, Some(0), 0)
        );
        assert_eq!(summary.streams.len(), 3);
        assert_eq!(summary.streams[2].name, "target");
        assert_eq!(summary.streams[2].events, 3);
        let total: u64 = summary.streams.iter().map(|stream| stream.events).sum();
        assert_eq!(total, count);
        // Names are recorded at time 0, which is not the start of the events.
        assert_eq!(summary.start, Some(time(1_000)));
        assert_eq!(summary.streams[2].start, Some(Time(0)));
        assert_eq!(summary.streams[0].start, Some(time(1_000)));
        assert_eq!(
            summary.end,
            summary.streams.iter().filter_map(|stream| stream.end).max()
        );
    });
    let packets = ten_packets().packets;
    let cut = [&packets[0][..], &packets[1], &packets[2][..56]].concat();
    let mut source = open_dump(
        &identity(CORTEX_M),
        cut.clone(),
        &[],
        "test",
        &OpenOptions::default(),
    )
    .unwrap();
    let summary = Summary::of(&mut *source);
    // The header and four events of the third packet are present.
    assert_eq!((summary.events, summary.lost, summary.gaps), (20, None, 1));
    assert_eq!(summary.errors.len(), 1);
    let found = packets[0].len() + packets[1].len() + 56;
    assert_eq!(summary.errors[0].offset, found as u64);
    assert_eq!(
        summary.errors[0].message,
        "expected a packet of 68 bytes, found the first 56: the last 12 are missing"
    );
    // No event that is present is omitted, and no loss is reported.
    let folder = tempfile::tempdir().unwrap();
    let dump = Dump {
        identity: &identity(CORTEX_M),
        bytes: &cut,
        missing: &[],
        target: "test",
    };
    let written = write_trace(&folder.path().join("trace"), &dump, &Program::default()).unwrap();
    assert_eq!(written.damage.len(), 1);
    assert_eq!(written.damage[0].message, summary.errors[0].message);
    let gap = Gap::Damage {
        offset: found as u64,
        bytes: Some(0),
        message: "the end is missing".to_owned(),
    };
    assert_eq!(
        gap.to_string(),
        format!("damage at offset {found}: the end is missing")
    );
}

#[test]
fn refusals_say_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = open(&path, &OpenOptions::default())
            .err()
            .unwrap()
            .to_string();
        error.replace(folder.path().to_str().unwrap(), "")
    };
    assert_eq!(
        refused("empty", b""),
        "/empty: the file is empty, expected a trace"
    );
    let text = refused("text", b"hello, this is no trace");
    let found = "/text: not a trace that kymo knows: found bytes that begin with [68, 65, 6c, 6c, 6f, 2c, 20, 74], \
                 expected a CTF trace directory, ";
    assert!(
        text.starts_with(found) && text.ends_with("a dump of Zephyr's instrumentation"),
        "{text}"
    );
    let line = identity(CORTEX_M).to_string();
    assert_eq!(
        refused(
            "torn",
            line.replace("clock_hz=25", "clock_hz=26").as_bytes()
        ),
        "/torn: identity at offset 0: expected a line of text that ends, found none"
    );
    assert!(
        refused(
            "torn",
            format!("{}\n", line.replace("=25", "=26")).as_bytes()
        )
        .contains("checksum")
    );
    // A recording of an older Kymo version is refused, because its packets would be misinterpreted.
    let mut old = identity(CORTEX_M);
    old.protocol = 1;
    assert_eq!(
        refused("old", format!("{old}\n").as_bytes()),
        "/old: expected a recording of format 3, found one of format 1"
    );
    let missing = open(Path::new("/no/such/trace"), &OpenOptions::default())
        .err()
        .unwrap();
    assert!(missing.to_string().starts_with("/no/such/trace: "));
    let directory = open(folder.path(), &OpenOptions::default()).err().unwrap();
    assert!(
        directory
            .to_string()
            .contains("a directory without metadata")
    );
    let (bytes, _) = small(CORTEX_M);
    let dump = Dump {
        identity: &identity(CORTEX_M),
        bytes: &bytes,
        missing: &[],
        target: "test",
    };
    let kept = folder.path().join("kept");
    write_trace(&kept, &dump, &Program::default()).unwrap();
    let text = std::fs::read_to_string(kept.join("metadata")).unwrap();
    let text = text.replace("tracer_minor = 3;", "tracer_minor = 1;");
    std::fs::write(kept.join("metadata"), text).unwrap();
    let old = open(&kept, &OpenOptions::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        old.ends_with("expected a recording of format 3, found one of format 1"),
        "{old}"
    );
    std::fs::remove_dir_all(&kept).unwrap();
    std::fs::write(folder.path().join("metadata"), "/* CTF 1.8 */ trace { maj").unwrap();
    let metadata = open(folder.path(), &OpenOptions::default()).err().unwrap();
    assert!(metadata.to_string().contains("line 1"), "{metadata}");
}

#[test]
fn recordings_of_format_2_are_read_where_records_were_the_same() {
    let linux = Layout {
        shape: Shape::Wide,
        word: WordSize::Bits64,
        ..CORTEX_M
    };
    for layout in [CORTEX_M, linux] {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| {
            let mut source = open(&folder.path().join(name), &OpenOptions::default())
                .map_err(|error| error.to_string())?;
            Ok::<_, String>(events(source.as_mut()))
        };
        let now = identity(layout);
        let old = Identity { protocol: 2, ..now };
        let (bytes, _) = small(layout);
        let dump = |identity| Dump {
            identity,
            bytes: &bytes,
            missing: &[],
            target: "test",
        };
        let kept = folder.path().join("kept");
        write_trace(&kept, &dump(&now), &Program::default()).unwrap();
        let wanted = read("kept").unwrap();
        let metadata = kept.join("metadata");
        let text = std::fs::read_to_string(&metadata).unwrap();
        let text = text.replace("tracer_minor = 3;", "tracer_minor = 2;");
        std::fs::write(metadata, text).unwrap();
        let file = std::fs::File::create(folder.path().join("raw")).unwrap();
        write_raw(file, &dump(&old)).unwrap();
        for found in [read("kept"), read("raw")] {
            match (layout.shape, found) {
                (Shape::Compact, Ok(found)) => assert_eq!(found, wanted),
                (Shape::Wide, Err(error)) => assert!(
                    error.ends_with("expected a recording of format 3, found one of format 2"),
                    "{error}"
                ),
                (shape, found) => panic!("{shape:?}: {found:?}"),
            }
        }
    }
}

#[test]
fn an_empty_recording_is_a_recording() {
    every_way(CORTEX_M, &[], &mut |source| {
        assert_eq!(events(source), []);
        assert_eq!(source.info().damage, []);
    });
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "years").unwrap();
    let (bytes, _) = small(CORTEX_M);
    let identity = identity(CORTEX_M);
    let dump = Dump {
        identity: &identity,
        bytes: &bytes,
        missing: &[],
        target: "test",
    };
    let error = write_trace(folder.path(), &dump, &Program::default()).unwrap_err();
    assert!(error.to_string().contains("thesis.tex"));
    std::fs::remove_file(folder.path().join("thesis.tex")).unwrap();
    write_trace(folder.path(), &dump, &Program::default()).unwrap();
    // A second recording with fewer streams removes the files of the first.
    let dump = Dump {
        bytes: &ten_packets().bytes(),
        ..dump
    };
    write_trace(folder.path(), &dump, &Program::default()).unwrap();
    assert!(!folder.path().join("cpu1").exists());
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(Summary::of(&mut *source).events, 80);
}

#[test]
fn a_directory_around_a_recording_is_opened_as_the_recording() {
    let (bytes, count) = small(CORTEX_M);
    let folder = tempfile::tempdir().unwrap();
    let dump = Dump {
        identity: &identity(CORTEX_M),
        bytes: &bytes,
        missing: &[],
        target: "test",
    };
    write_trace(
        &folder.path().join("demo/trace"),
        &dump,
        &Program::default(),
    )
    .unwrap();
    let options = OpenOptions::default();
    let mut source = open(folder.path(), &options).unwrap();
    assert_eq!(source.info().format, "kymo");
    let events = events(&mut *source);
    assert_eq!(events.len() as u64, count);
    assert!(matches!(events[3].kind, EventKind::Enter { .. }));

    // Two recordings have two clocks, so the order of their events is unknown.
    write_trace(&folder.path().join("other"), &dump, &Program::default()).unwrap();
    let error = open(folder.path(), &options).err().unwrap();
    let OpenError::Several { traces, .. } = &error else {
        panic!("{error}");
    };
    let paths = ["demo/trace", "other"].map(|name| folder.path().join(name));
    assert_eq!(traces, &paths.map(|path| path.display().to_string()));
}
