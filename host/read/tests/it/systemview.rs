//! Recordings of SystemView: real ones, and generated ones with every kind of packet.

use kymo_event::{Event, EventKind, Gap, Time, Value};
use kymo_fixtures::captures;
use kymo_read::{Events, OpenError, OpenOptions, Source, Summary, open, systemview};
use kymo_systemview::rtt::ID;
use kymo_systemview::{Form, Ids, Packet, SYNC, Text, encode};

fn events(source: &mut dyn Source) -> Vec<Event> {
    Events::new(source).map(Result::unwrap).collect()
}

fn options() -> OpenOptions {
    OpenOptions {
        threads: 1,
        ..OpenOptions::default()
    }
}

/// File name, number of packets, count of the last overflow packet, time of the last packet.
const CLEAN: [(&str, u64, u64, i64); 4] = [
    ("app-cpu1.SVDat", 47_430, 13_875, 25_322_383_000),
    ("pro-cpu1.SVDat", 47_461, 13_875, 25_322_383_000),
    ("app-cpu2.svdat", 163, 0, 365_434_275),
    ("pro-cpu2.svdat", 195, 0, 365_434_275),
];

#[test]
fn real_recordings_have_their_counts_times_and_names() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    for (name, packets, lost, end) in CLEAN {
        let mut source = open(&folder.join(name), &options()).unwrap();
        let summary = Summary::of(&mut *source);
        assert_eq!(summary.format, "systemview");
        let found = (summary.events, summary.lost, summary.end);
        assert_eq!(found, (packets, Some(lost), Some(Time(end))), "{name}");
        assert_eq!(summary.errors, []);
        let info = source.info();
        let about = |what: &str| {
            info.about
                .iter()
                .find(|(it, _)| it == what)
                .map(|it| &*it.1)
        };
        assert_eq!(about("system"), Some("FreeRTOS Application"));
        assert_eq!(
            (about("os"), about("device")),
            (Some("FreeRTOS"), Some("ESP32"))
        );
        let idle = info
            .identities
            .threads()
            .iter()
            .find(|it| it.name.as_deref() == Some("IDLE0"));
        let idle = idle.unwrap();
        assert_eq!(idle.priority, Some(0));
        assert!(idle.stack.is_some_and(|stack| stack.bytes > 500));
        let tick = info
            .identities
            .interrupts()
            .iter()
            .find(|it| it.irq.0 == 5)
            .unwrap();
        assert_eq!(tick.name.as_deref(), Some("SysTick"));
    }
    let damaged = &mut *open(&folder.join("app-cpu.SVDat"), &options()).unwrap();
    let summary = Summary::of(damaged);
    assert_eq!((summary.errors[0].offset, summary.lost), (9326, None));
    assert!(summary.events > 2500, "{}", summary.events);
}

#[test]
fn calls_are_named_by_the_descriptions_beside_the_recording() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    let source = &mut *open(&folder.join("pro-cpu2.svdat"), &options()).unwrap();
    let all = events(source);
    let receive = all
        .iter()
        .find(|it| it.name == "xQueueGenericReceive")
        .unwrap();
    assert_eq!(receive.fields[0].name, "xQueue");
    assert!(matches!(
        receive.fields[0].value,
        Value::Hex(0x3ff0_0000..=0x3fff_ffff)
    ));
    let heap = all.iter().find(|it| it.name == "heap_alloc").unwrap();
    assert_eq!(heap.fields[1].value, Value::Unsigned(65));
    // Both callers are named `caller` in the description.
    let names: Vec<&str> = heap.fields.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["block", "size", "caller", "caller2"]);
    // Without the description file, events have their numbers as names.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("it");
    std::fs::copy(folder.join("pro-cpu2.svdat"), &copy).unwrap();
    let all = events(&mut *open(&copy, &options()).unwrap());
    assert!(all.iter().any(|it| it.name == "event 49"));
    let named = OpenOptions {
        descriptions: vec![folder.join("SYSVIEW_FreeRTOS.txt")],
        ..options()
    };
    let all = events(&mut *open(&copy, &named).unwrap());
    assert!(all.iter().any(|it| it.name == "xQueueGenericReceive"));
}

#[test]
fn files_of_two_cores_are_one_trace() {
    let Some(folder) = captures::systemview() else {
        return;
    };
    let beside = |name: &str| OpenOptions {
        beside: vec![folder.join(name)],
        ..options()
    };
    let source = &mut *open(&folder.join("app-cpu2.svdat"), &beside("pro-cpu2.svdat")).unwrap();
    let all = events(source);
    let names: Vec<_> = source.info().streams.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["pro-cpu2.svdat", "app-cpu2.svdat"]);
    let records: Vec<_> = all.iter().filter(|it| it.record).collect();
    assert!(records.iter().is_sorted_by_key(|it| it.time));
    // Packets that both files contain are returned once: 71 descriptions, one start.
    let of = |name: &str| records.iter().filter(|it| it.name == name).count();
    assert_eq!((of("sysdesc"), of("init"), of("trace_stop")), (71, 1, 1));
    assert_eq!((of("isr_enter"), of("idle")), (17 + 6, 8 + 3));
    // Two recordings of different runs are refused.
    let other = open(&folder.join("app-cpu2.svdat"), &beside("pro-cpu1.SVDat"));
    assert!(matches!(other.err(), Some(OpenError::Several { .. })));
    let both = tempfile::tempdir().unwrap();
    for name in ["app-cpu2.svdat", "pro-cpu2.svdat"] {
        std::fs::copy(folder.join(name), both.path().join(name)).unwrap();
    }
    let of_folder = events(&mut *open(both.path(), &options()).unwrap());
    assert_eq!(of_folder.len(), all.len());
}

/// A recording of packets that are 10 microseconds apart.
pub fn recording(packets: &[Packet<'_>]) -> Vec<u8> {
    let start = [
        Packet::TraceStart,
        Packet::Init {
            frequency: 1_000_000,
            cpu_frequency: 64_000_000,
            ids: Ids {
                base: 0x2000_0000,
                shift: 2,
            },
        },
        Packet::SystemDescription {
            text: Text(b"N=test,D=none,C=Cortex-M4,O=none,I#15=SysTick"),
        },
        Packet::TaskInfo {
            task: 0x40,
            priority: 7,
            name: Text(b"main"),
        },
    ];
    let mut bytes = SYNC.to_vec();
    let mut scratch = [0; 300];
    for packet in start.iter().chain(packets) {
        let size = encode(packet, 10, Form::default(), &mut scratch).unwrap();
        bytes.extend(&scratch[..size]);
    }
    bytes
}

pub fn read(bytes: Vec<u8>) -> (Vec<Event>, Box<dyn Source>) {
    let mut source =
        systemview::open_reader("test", Box::new(std::io::Cursor::new(bytes)), &options());
    let all = events(&mut *source);
    (all, source)
}

#[test]
fn functions_prints_markers_heaps_and_samples_are_events() {
    let module: &[u8] = b"M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p call_site=%p";
    // 0x08001001 and 0x08002000.
    let addresses = &[0x81, 0xA0, 0x80, 0x40, 0x80, 0xC0, 0x80, 0x40][..];
    let (all, source) = read(recording(&[
        Packet::ModuleDescription {
            module: 0,
            offset: 512,
            text: Text(module),
        },
        Packet::NameMarker {
            id: 3,
            name: Text(b"phase"),
        },
        Packet::RegisterData {
            id: 1,
            name: Text(b"speed"),
            rest: &[2, 0],
        },
        Packet::NameResource {
            resource: 0x100,
            name: Text(b"heap"),
        },
        Packet::TaskStartReady { task: 0x40 },
        Packet::TaskStartExec { task: 0x40 },
        Packet::Event {
            id: 512,
            payload: addresses,
        },
        Packet::IsrEnter { irq: 15 },
        Packet::IsrEnter { irq: 20 },
        Packet::IsrExit,
        Packet::IsrToScheduler,
        Packet::Event {
            id: 513,
            payload: addresses,
        },
        Packet::MarkStart { id: 3 },
        Packet::MarkStop { id: 4 },
        Packet::Print {
            format: Text(b"%d of %3u"),
            options: 1,
            count: 2,
            arguments: &[5, 7],
        },
        Packet::HeapAlloc {
            heap: 0x100,
            block: 0x200,
            size: 16,
            tag: None,
        },
        Packet::HeapAlloc {
            heap: 0x100,
            block: 0x280,
            size: 1,
            tag: Some(7),
        },
        Packet::HeapFree {
            heap: 0x100,
            block: 0x200,
        },
        Packet::HeapFree {
            heap: 0x100,
            block: 0x240,
        },
        Packet::DataSample {
            id: 1,
            value: 1.5f32.to_bits(),
        },
        Packet::TimerEnter { timer: 0x300 },
        Packet::TimerExit,
        Packet::Event {
            id: 40,
            payload: &[9],
        },
        Packet::EndCall {
            id: 40,
            value: Some(2),
        },
        Packet::Overflow { total: 30 },
        Packet::Overflow { total: 42 },
        Packet::Idle,
        Packet::TraceStop,
    ]));
    let kind = |name: &str| &all.iter().find(|it| it.name == name).unwrap().kind;
    let identities = &source.info().identities;
    let EventKind::Enter {
        function,
        call_site,
    } = kind("function_enter")
    else {
        panic!("{:?}", kind("function_enter"));
    };
    let address = identities.function(*function).unwrap().address;
    assert_eq!(
        (address.unwrap().0, call_site.unwrap().0),
        (0x0800_1000, 0x0800_2000)
    );
    assert!(matches!(
        kind("function_exit"),
        EventKind::Exit { function: Some(_) }
    ));
    let exits: Vec<_> = all
        .iter()
        .filter_map(|it| match it.kind {
            EventKind::IsrExit { irq } => Some(identities.irq(irq.unwrap()).0),
            _ => None,
        })
        .collect();
    assert_eq!(exits, [20, 15]);
    let markers: Vec<_> = all
        .iter()
        .filter_map(|it| match &it.kind {
            EventKind::Marker { label, value } => Some((label.as_deref().unwrap(), *value)),
            _ => None,
        })
        .collect();
    assert_eq!(
        markers,
        [
            ("phase start", 3),
            ("user event 4 stop", 4),
            ("5 of   7", 1)
        ]
    );
    let counter = |it: &Event| match &it.kind {
        EventKind::Counter { name, value, .. } => Some((name.clone(), *value)),
        _ => None,
    };
    let counters: Vec<_> = all.iter().filter_map(counter).collect();
    let heap = [64u64, 68, 4].map(|it| ("bytes used of heap heap".to_owned(), it.into()));
    assert_eq!(
        counters,
        [&heap[..], &[("speed".to_owned(), 1.5.into())]].concat()
    );
    let fields = |name: &str| {
        all.iter()
            .find(|it| it.name == name)
            .unwrap()
            .fields
            .clone()
    };
    let heap = fields("heap_alloc");
    assert_eq!(heap[0].value, Value::from("heap"));
    assert_eq!(
        (&heap[1].value, &heap[2].value),
        (&Value::Hex(0x2000_0800), &Value::Unsigned(64))
    );
    assert_eq!(fields("data_sample")[1].value, Value::Real(1.5));
    let EventKind::Enter { function, .. } = kind("timer_enter") else {
        panic!("{:?}", kind("timer_enter"));
    };
    let timer = identities.function(*function).unwrap();
    assert_eq!(timer.name.as_deref(), Some("timer 0x20000c00"));
    let gaps: Vec<_> = all
        .iter()
        .filter_map(|it| match it.kind {
            EventKind::Gap(Gap::Discarded { events }) => Some((it.time.0, events)),
            _ => None,
        })
        .collect();
    // 4 packets before, and 24 of the list before the first overflow: 10 us each.
    assert_eq!(gaps, [(280_000, Some(30)), (290_000, Some(12))]);
    let thread = identities
        .threads()
        .iter()
        .find(|it| it.name.as_deref() == Some("main"));
    assert_eq!(thread.unwrap().tid.0, 0x2000_0100);
    assert_eq!(all.iter().filter(|it| it.record).count(), 4 + 28);
}

/// A stream that ends within a packet, and one with the text of a file before it.
#[test]
fn streams_that_come_piece_by_piece_read_like_files() {
    let bytes = recording(&[Packet::TaskStartExec { task: 0x40 }, Packet::Idle]);
    let (whole, _) = read(bytes.clone());
    assert_eq!(whole.iter().filter(|it| it.record).count(), 6);
    let text = [b";\n; Version\tSEGGER SystemViewer V2.42\n;\n", &bytes[..]].concat();
    assert_eq!(read(text).0, whole);
    let (cut, source) = read(bytes[..bytes.len() - 1].to_vec());
    assert_eq!(cut.iter().filter(|it| it.record).count(), 5);
    assert_eq!(
        source.info().damage[0].message,
        "the stream ends within a packet"
    );
    // The stream is cut at the end of the trace: the events before it are certain, so there is no gap.
    let is_gap = |event: &&Event| matches!(event.kind, EventKind::Gap(_));
    assert_eq!(cut.iter().filter(is_gap).count(), 0);
}

/// A buffer that was saved completely, including its unused end.
#[test]
fn zeros_behind_the_last_packet_are_no_damage() {
    let bytes = recording(&[Packet::TaskStartExec { task: 0x40 }, Packet::Idle]);
    for zeros in [1, 3] {
        let (_, source) = read([&bytes[..], &vec![0; zeros]].concat());
        assert_eq!(source.info().damage, [], "{zeros}");
    }
}

/// One file with the streams of two cores.
#[test]
fn offsets_in_the_text_part_a_file() {
    let one = recording(&[
        Packet::TaskStartExec { task: 0x40 },
        Packet::IsrEnter { irq: 15 },
        Packet::IsrExit,
    ]);
    let other = recording(&[Packet::IsrEnter { irq: 16 }, Packet::IsrExit]);
    let text = format!(
        ";\n; Author pyOCD\n; Offset Core0 0\n; Offset Core1 {}\n;\n",
        one.len()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both");
    std::fs::write(&file, [text.as_bytes(), &one, &other].concat()).unwrap();
    let source = &mut *open(&file, &options()).unwrap();
    let summary = Summary::of(source);
    let cores: Vec<_> = summary
        .streams
        .iter()
        .map(|it| (it.cpu.unwrap().0, it.events))
        .collect();
    // Packets that both streams contain at the same time are returned from the first one.
    assert_eq!(cores, [(0, 4 + 3), (1, 2)]);
}

/// An image of RAM at 0x2000_0000 with a control block and a ring that has wrapped around.
#[test]
fn a_ring_in_an_image_of_memory_is_read() {
    let mut packets = Vec::new();
    for _ in 0..300 {
        packets.extend([
            Packet::TaskStartExec { task: 0x40 },
            Packet::IsrEnter { irq: 15 },
            Packet::IsrExit,
            Packet::Event {
                id: 40,
                payload: &[1],
            },
        ]);
    }
    let stream = recording(&packets);
    for size in [1024usize, 1 << 15] {
        let mut ring = vec![0; size];
        for (at, byte) in stream.iter().enumerate() {
            ring[at % size] = *byte;
        }
        let write = stream.len() % size;
        let read = if stream.len() < size {
            0
        } else {
            (write + 1) % size
        };
        let mut image = vec![0u8; 0x800];
        let name = image.len() as u32;
        image.extend(b"SysView\0");
        let block = image.len();
        image.extend(ID);
        for field in [2u32, 0] {
            image.extend(field.to_le_bytes());
        }
        let ram = 0x2000_0000u32;
        let buffer = block as u32 + 24 + 48;
        for field in [0, ram + 0x100, 16, 3, 1, 0] {
            image.extend(u32::to_le_bytes(field));
        }
        for field in [
            ram + name,
            ram + buffer,
            size as u32,
            write as u32,
            read as u32,
            0,
        ] {
            image.extend(field.to_le_bytes());
        }
        image.extend(&ring);
        image.resize(0x10000, 0);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ram.bin");
        std::fs::write(&file, &image).unwrap();
        let source = &mut *open(&file, &options()).unwrap();
        let summary = Summary::of(source);
        assert_eq!(summary.errors, [], "{size}");
        let remarks = &source.info().remarks;
        let is_image = |remark: &String| remark.contains("image of a target's memory");
        assert!(remarks.iter().any(is_image), "{remarks:?}");
        let all = packets.len() as u64 + 4;
        match size {
            1024 => assert!(summary.events > 200, "{}", summary.events),
            _ => assert_eq!(summary.events, all),
        }
        // A given address is used, even if it is wrong.
        let at = |address| {
            let source =
                systemview::open_memory(&file, image.clone(), Some(address), &options()).unwrap();
            source.map(|mut source| Summary::of(&mut *source).events)
        };
        assert_eq!(at(0x2000_0000), Some(summary.events), "{size}");
        assert_eq!(at(0x1000_0000), None, "{size}");
    }
}

/// `SysTick` begins after 15,444 ticks, and ends after 556 ticks.
const PAIR: [u8; 7] = [0x02, 0x0f, 0xd4, 0x78, 0x03, 0xac, 0x04];

/// A ring whose oldest packets were overwritten, so that it begins with the time field of one.
fn cut_stream(pairs: usize) -> Vec<u8> {
    let mut bytes = PAIR[5..].to_vec();
    (0..pairs).for_each(|_| bytes.extend(PAIR));
    bytes
}

/// Contents of a file with this name: number of events, number of damaged places, first interrupt.
fn read_file(name: &str, bytes: &[u8]) -> (u64, usize, Option<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let summary = Summary::of(&mut *open(&file, &options()).unwrap());
    let source = &mut *open(&file, &options()).unwrap();
    let first = events(source).into_iter().find(|event| event.record);
    let interrupts = source.info().identities.interrupts();
    let irq = first.and_then(|event| match event.kind {
        EventKind::IsrEnter { irq } => Some(interrupts[irq.0 as usize].irq),
        _ => None,
    });
    let irq = irq.map(|irq| format!("irq {}", irq.0));
    (summary.events, summary.errors.len(), irq)
}

/// Bytes that may be the rest of a packet are skipped and counted.
#[test]
fn a_recording_without_its_beginning_begins_at_the_first_packet_that_is_certain() {
    let found = read_file("ring.SVdat", &cut_stream(100));
    assert_eq!(found, (200, 0, Some("irq 15".to_owned())));
    let (all, source) = read(cut_stream(100));
    let remark = "the first 2 bytes, which may be the rest of a packet, are passed over";
    assert!(source.info().remarks[0].ends_with(remark));
    assert!(matches!(
        all[0].kind,
        EventKind::Gap(Gap::LostPackets { packets: None })
    ));
    let remarks = read(cut_stream(9)).1.info().remarks.join(" ");
    assert!(remarks.ends_with("its first events are a guess"));
}

/// The dump of a buffer contains the memory after it: control blocks of rings at other addresses.
#[test]
fn old_control_blocks_behind_a_stream_do_not_make_it_an_image() {
    let mut bytes = cut_stream(300);
    bytes.resize(2500, 0);
    for _ in 0..2 {
        bytes.extend(ID);
        for field in [2u32, 0] {
            bytes.extend(field.to_le_bytes());
        }
        for field in [0, 0x2001_3238u32, 1024, 0, 0, 0] {
            bytes.extend(field.to_le_bytes());
        }
        for field in [0, 0x2001_364c_u32, 8192, 6088, 6089, 0] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.resize(bytes.len() + 200, 0);
    }
    bytes.resize(8192, 0);
    // Some bytes of the control blocks look like packets.
    let (events, _, first) = read_file("stale.SVDat", &bytes);
    assert!((600..620).contains(&events), "{events}");
    assert_eq!(first.as_deref(), Some("irq 15"));
}

#[test]
fn ids_tell_the_core_where_the_text_says_so() {
    let packets = [
        (Packet::TraceStart, 0, false),
        (
            Packet::Init {
                frequency: 1_000_000,
                cpu_frequency: 160_000_000,
                ids: Ids::default(),
            },
            0,
            false,
        ),
        (Packet::TaskStartExec { task: 0x100 }, 10, false),
        (Packet::TaskStartExec { task: 0x200 }, 5, true),
        (Packet::IsrEnter { irq: 7 }, 5, true),
        (Packet::Idle, 5, false),
        (Packet::IsrExit, 5, true),
        (
            Packet::Event {
                id: 600,
                payload: &[1],
            },
            5,
            true,
        ),
        (Packet::Overflow { total: 3 }, 5, false),
        (Packet::TaskStartExec { task: 0x200 }, 5, true),
    ];
    let mut file = b";\n; Version     SEGGER SystemViewer V2.42\n; ESP_Extension\n;\n".to_vec();
    file.extend(SYNC);
    for (packet, delta, second) in packets {
        let form = Form {
            second_core: Some(second),
            ..Form::default()
        };
        let mut bytes = [0; 64];
        let size = encode(&packet, delta, form, &mut bytes).unwrap();
        file.extend(&bytes[..size]);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcore.svdat");
    std::fs::write(&path, file).unwrap();
    let mut source = open(&path, &options()).unwrap();
    let all = events(&mut *source);
    assert!(source.info().damage.is_empty());
    assert_eq!(all.iter().filter(|it| it.record).count(), packets.len());
    let place = |event: &Event| {
        let cpu = event.cpu.map(|cpu| cpu.0);
        let thread = event.thread.map(|id| source.info().identities.tid(id).0);
        (event.time.0 / 1000, cpu, thread)
    };
    let of = |wanted: fn(&EventKind) -> bool| -> Vec<_> {
        all.iter()
            .filter(|it| wanted(&it.kind))
            .map(place)
            .collect()
    };
    let (one, two) = (Some(0x100), Some(0x200));
    let starts = of(|kind| matches!(kind, EventKind::SwitchedIn));
    assert_eq!(
        starts,
        [(10, Some(0), one), (15, Some(1), two), (45, Some(1), two)]
    );
    let interrupts =
        of(|kind| matches!(kind, EventKind::IsrEnter { .. } | EventKind::IsrExit { .. }));
    assert_eq!(interrupts, [(20, Some(1), two), (30, Some(1), two)]);
    // Lost packets may belong to either core.
    let gaps = of(|kind| matches!(kind, EventKind::Gap(_)));
    assert_eq!(gaps, [(35, None, None)]);
}
