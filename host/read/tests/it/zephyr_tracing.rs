//! Meaning of Zephyr's tracing events: real traces compared with babeltrace2's text, and synthetic ones for the
//! versions of the format without a capture.

use std::fs;
use std::path::Path;

use kymo_event::{Cpu, Duration, Event, EventKind, Gap, Time, TraceInfo};
use kymo_fixtures::captures;
use kymo_fixtures::names::{address, function_named, interrupt, meaning, thread as thread_of};
use kymo_read::{Events, OpenOptions, open};

fn read(path: &Path) -> (TraceInfo, Vec<Event>) {
    let mut source = open(path, &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

/// The events that are records.
fn records(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.record)
}

/// A record in babeltrace2's format, without the time.
fn line(event: &Event) -> String {
    let fields = event.fields.iter();
    let fields: Vec<_> = fields
        .map(|field| format!("{} = {}", field.name, field.value))
        .collect();
    match fields.is_empty() {
        true => format!("{}: ", event.name),
        false => format!("{}: {{ {} }}", event.name, fields.join(", ")),
    }
}

/// The nanoseconds of `[00:00:09.221503072]`.
fn nanoseconds(time: &str) -> i64 {
    let parts: Vec<i64> = time
        .trim_matches(['[', ']'])
        .split([':', '.'])
        .map(|part| part.parse().unwrap())
        .collect();
    ((parts[0] * 60 + parts[1]) * 60 + parts[2]) * 1_000_000_000 + parts[3]
}

#[test]
fn records_are_those_that_babeltrace_prints_with_their_own_times() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    for (folder, count, steps_back, turns) in [
        ("ctf_native_sample", 564, 0, 4),
        ("ctf_uart_mps2", 941, 8, 2),
    ] {
        let (info, events) = read(&data.join(folder).join("trace"));
        let text = fs::read_to_string(data.join(folder).join("babeltrace2.txt")).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(records(&events).count(), count);
        assert_eq!(lines.len(), count);
        let (mut last, mut back, mut around) = (Time(0), 0, 0);
        for (event, theirs) in records(&events).zip(&lines) {
            let (time, rest) = theirs.split_once("] (").unwrap();
            assert_eq!(line(event), rest.split_once(") ").unwrap().1);
            // babeltrace2 counts a wraparound of the 32-bit time after each step back; the difference is a multiple of
            // 2^32 ns.
            let apart = nanoseconds(time) - event.time.0;
            assert_eq!(apart.rem_euclid(1 << 32), 0, "{theirs}");
            back += usize::from(event.time < last);
            around += usize::from(event.time.0 >> 32 > last.0 >> 32);
            last = event.time;
        }
        assert_eq!((back, around), (steps_back, turns), "{folder}");
        let reported = events.iter().filter(|event| {
            matches!(event.kind, EventKind::Gap(Gap::TimeBackward { by }) if by < Duration(1 << 30))
        });
        assert_eq!(reported.count(), steps_back);
        if folder == "ctf_uart_mps2" {
            // The capture ends within the last event. It lasted 11 s, not 45 s as babeltrace2 shows.
            assert_eq!(info.damage.len(), 1);
            assert_eq!(last, Time(11_120_373_840));
        }
    }
}

#[test]
fn threads_interrupts_and_pairs_of_events_have_their_meaning() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    for folder in ["ctf_native_sample", "ctf_uart_mps2"] {
        let (info, events) = read(&data.join(folder).join("trace"));
        assert!(info.streams.iter().all(|it| it.cpu == Some(Cpu(0))));
        let mut names = Vec::new();
        let mut running = None;
        for event in &events {
            match &event.kind {
                EventKind::ThreadName { thread, name } => names.push((*thread, name.as_str())),
                EventKind::SwitchedIn => running = event.thread,
                EventKind::SwitchedOut => {
                    assert!(event.thread.is_some());
                    running = None;
                }
                EventKind::Gap(_) | EventKind::IsrName { .. } => {}
                _ => assert_eq!(event.thread, running, "{event:?}"),
            }
            // A kernel whose events contain no CPU has only one.
            assert_eq!(event.cpu, Some(Cpu(0)), "{event:?}");
            let function = |name: &str| function_named(&info, name);
            let expected = match &*event.name {
                "thread_switched_in" => EventKind::SwitchedIn,
                "thread_switched_out" => EventKind::SwitchedOut,
                "isr_enter" => EventKind::IsrEnter {
                    irq: interrupt(&info, 0),
                },
                "isr_exit" => EventKind::IsrExit { irq: None },
                "semaphore_take_enter" => EventKind::Enter {
                    function: function("semaphore_take"),
                    call_site: None,
                },
                "semaphore_take_exit" => EventKind::Exit {
                    function: Some(function("semaphore_take")),
                },
                "semaphore_give_exit" => EventKind::Exit {
                    function: Some(function("semaphore_give")),
                },
                "idle" | "timer_start" | "thread_create" | "semaphore_take_blocking" => {
                    EventKind::Other
                }
                _ => continue,
            };
            assert_eq!(event.kind, expected);
        }
        for name in ["main", "thread_a", "thread_b", "idle"] {
            assert!(
                names.iter().any(|(_, other)| *other == name),
                "{folder}: {name}"
            );
        }
    }
}

/// Metadata of a format version: event header, beginning of a packet, and the events.
fn metadata(time_bits: u32, id_bits: u32, packets: &str) -> String {
    let integer = |size: u32| format!("integer {{ size = {size}; align = 8; signed = false; }}");
    let (u8_, u32_) = (integer(8), integer(32));
    let name = "integer { size = 8; align = 8; signed = false; encoding = ASCII; } name[20]";
    let event = |name: &str, id: u32, fields: &str| {
        format!("event {{ name = {name}; id = {id}; fields := struct {{ {fields} }}; }};\n")
    };
    let thread = format!("{u32_} thread_id; {name};");
    let sizes = format!(
        "{0} timestamp_begin; {0} timestamp_end; {u32_} content_size; {u32_} packet_size;",
        integer(64)
    );
    let magic = format!("{u32_} magic;");
    let (header, context) = match packets {
        "" => (String::new(), String::new()),
        // Packets of a circular buffer.
        "packet_seq_num" => (magic, format!("{sizes} {} packet_seq_num;", integer(64))),
        cpu => (
            format!("{magic} {u32_} stream_id;"),
            format!("{sizes} {u32_} events_discarded; {u8_} {cpu};"),
        ),
    };
    let scope = |name: &str, fields: String| match fields.as_str() {
        "" => String::new(),
        fields => format!("packet.{name} := struct {{ {fields} }};"),
    };
    let (header, context) = (scope("header", header), scope("context", context));
    [
        "/* CTF 1.8 */\n".to_owned(),
        format!("trace {{ major = 1; minor = 8; byte_order = le; {header} }};\n"),
        format!(
            "stream {{ event.header := struct {{ {} timestamp; {} id; }}; {context} }};\n",
            integer(time_bits),
            integer(id_bits)
        ),
        event("thread_switched_out", 0x10, &thread),
        event("thread_switched_in", 0x11, &thread),
        event("thread_ready", 0x17, &thread),
        event("isr_enter", 0x1B, ""),
        event("isr_exit", 0x1C, ""),
        event("socket_connect_enter", 0x3D, &format!("{u32_} id;")),
        event("socket_connect_exit", 0x3E, &format!("{u32_} id;")),
        event("gpio_fire_callbacks_enter", 0x7D, &format!("{u32_} list;")),
        event(
            "named_event",
            0x62,
            &format!("{name}; {u32_} arg0; {u32_} arg1;"),
        ),
    ]
    .concat()
}

fn named(name: &str) -> Vec<u8> {
    let mut name = name.as_bytes().to_vec();
    name.resize(20, 0);
    name
}

fn thread(id: u32, name: &str) -> Vec<u8> {
    [id.to_le_bytes().to_vec(), named(name)].concat()
}

/// A trace directory with this metadata and stream.
fn trace(metadata: &str, stream: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("metadata"), metadata).unwrap();
    fs::write(folder.path().join("channel0_0"), stream).unwrap();
    folder
}

fn event(time_bits: u32, id_bits: u32, time: u64, id: u16, payload: &[u8]) -> Vec<u8> {
    let time = &time.to_le_bytes()[..time_bits as usize / 8];
    [time, &id.to_le_bytes()[..id_bits as usize / 8], payload].concat()
}

#[test]
fn every_generation_is_read() {
    let second = 1_000_000_000;
    for (time_bits, id_bits) in [(32, 8), (32, 16), (64, 16)] {
        let one = |time: u64, id, payload: &[u8]| event(time_bits, id_bits, time, id, payload);
        let stream = [
            one(second, 0x11, &thread(0x2000_0000, "worker")),
            one(2 * second, 0x3D, &7_u32.to_le_bytes()),
            one(
                5 * second,
                0x62,
                &[named("phase"), vec![3, 0, 0, 0], vec![9, 0, 0, 0]].concat(),
            ),
            one(5 * second - 1_000, 0x1B, &[]),
            one(5 * second + 1_000, 0x17, &thread(0x2000_0100, "worker")),
            one(5 * second + 2_000, 0x1C, &[]),
            one(6 * second, 0x7D, &7_u32.to_le_bytes()),
            one(7 * second, 0x3E, &7_u32.to_le_bytes()),
            // Unknown event: the rest cannot be read.
            one(8 * second, 0x20, &[0; 40]),
        ];
        let length: usize = stream[..8].iter().map(Vec::len).sum();
        let folder = trace(&metadata(time_bits, id_bits, ""), &stream.concat());
        let (info, events) = read(folder.path());
        let connect = function_named(&info, "socket_connect");
        let kinds: Vec<_> = records(&events)
            .map(|event| (event.time.0, event.kind.clone()))
            .collect();
        let at = |ns: u64| ns as i64;
        let ready = EventKind::Ready {
            thread: thread_of(&info, 0x2000_0100),
        };
        let marker = EventKind::Marker {
            label: Some("phase".to_owned()),
            value: 3,
        };
        let expected = [
            (at(second), EventKind::SwitchedIn),
            (
                at(2 * second),
                EventKind::Enter {
                    function: connect,
                    call_site: None,
                },
            ),
            (at(5 * second), marker),
            (
                at(5 * second - 1_000),
                EventKind::IsrEnter {
                    irq: interrupt(&info, 0),
                },
            ),
            (at(5 * second + 1_000), ready),
            (at(5 * second + 2_000), EventKind::IsrExit { irq: None }),
            // An event without an end.
            (at(6 * second), EventKind::Other),
            (
                at(7 * second),
                EventKind::Exit {
                    function: Some(connect),
                },
            ),
        ];
        assert_eq!(kinds, expected, "{time_bits} {id_bits}");
        let back = Gap::TimeBackward {
            by: Duration(1_000),
        };
        assert!(
            events
                .iter()
                .any(|event| event.kind == EventKind::Gap(back.clone()))
        );
        // Two threads of one name.
        let names = events.iter().filter_map(|event| match &event.kind {
            EventKind::ThreadName { thread, name } => {
                Some((info.identities.tid(*thread).0, name.as_str()))
            }
            _ => None,
        });
        let names: Vec<_> = names.collect();
        assert_eq!(names, [(0x2000_0000, "worker"), (0x2000_0100, "worker")]);
        let [damage] = info.damage.as_slice() else {
            panic!("{:?}", info.damage);
        };
        let head = (time_bits + id_bits) as u64 / 8;
        assert!(damage.offset >= length as u64 && damage.offset <= length as u64 + head);
        assert!(damage.message.contains("32"), "{}", damage.message);
    }
}

/// Image of a circular buffer of packets that has wrapped around several times. The oldest packet is in the middle of
/// the file.
#[test]
fn a_ring_of_packets_is_read_from_the_oldest_on() {
    let numbered = metadata(64, 16, "packet_seq_num");
    let packet = |number: u64| {
        let begin = number * 1_000;
        let content = [
            event(64, 16, begin + 10, 0x1B, &[]),
            event(64, 16, begin + 20, 0x1C, &[]),
        ]
        .concat();
        let bits = (4 + 8 + 8 + 4 + 4 + 8 + content.len()) as u32 * 8;
        let mut bytes = [
            0xC1FC_1FC1_u32.to_le_bytes().to_vec(),
            begin.to_le_bytes().to_vec(),
            (begin + 100).to_le_bytes().to_vec(),
            bits.to_le_bytes().to_vec(),
            (128_u32 * 8).to_le_bytes().to_vec(),
            number.to_le_bytes().to_vec(),
            content,
        ]
        .concat();
        bytes.resize(128, 0);
        bytes
    };
    for turn in 0..8 {
        let numbers: Vec<u64> = (0..8).map(|at| 20 + (at + turn) % 8).collect();
        let stream: Vec<u8> = numbers.iter().flat_map(|number| packet(*number)).collect();
        let folder = trace(&numbered, &stream);
        let (info, events) = read(folder.path());
        assert_eq!(info.damage, []);
        let times: Vec<_> = records(&events).map(|event| event.time.0).collect();
        let expected = (20..28).flat_map(|number| [number * 1_000 + 10, number * 1_000 + 20]);
        assert_eq!(times, expected.collect::<Vec<_>>(), "{turn}");
        let gaps: Vec<_> = events
            .iter()
            .filter_map(|event| match &event.kind {
                EventKind::Gap(gap) => Some(gap.clone()),
                _ => None,
            })
            .collect();
        // Only overwritten packets are missing.
        assert!(
            matches!(gaps.as_slice(), [Gap::Overwritten { .. }]),
            "{turn}: {gaps:?}"
        );
    }
    // The position of damage is relative to the oldest packet.
    let mut stream: Vec<u8> = [5, 6, 3, 4].into_iter().flat_map(packet).collect();
    let id = 3 * 128 + 36 + 8;
    stream[id..id + 2].copy_from_slice(&[0xEE, 0xEE]);
    let (info, _) = read(trace(&numbered, &stream).path());
    let reported = info.damage.first().expect("damage");
    assert!(
        reported.message.contains("at byte 256"),
        "{}",
        reported.message
    );
    assert!((128..256).contains(&reported.offset), "{}", reported.offset);
    // A missing packet in between is reported.
    let stream: Vec<u8> = [5, 6, 2, 4].into_iter().flat_map(packet).collect();
    let (_, events) = read(trace(&numbered, &stream).path());
    let lost = Gap::LostPackets { packets: Some(1) };
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::Gap(lost.clone()))
    );
}

/// Proposed versions for several CPUs have the CPU number in every event.
#[test]
fn events_tell_their_processors() {
    let fields = |metadata: String| {
        let number = "integer { size = 32; align = 8; signed = false; } core_id;";
        metadata.replace(
            "fields := struct { ",
            &format!("fields := struct {{ {number} "),
        )
    };
    let one = |time: u64, id, core: u32, payload: &[u8]| {
        event(32, 8, time, id, &[&core.to_le_bytes(), payload].concat())
    };
    let stream = [
        one(1_000, 0x11, 0, &thread(0x10, "a")),
        one(1_100, 0x11, 1, &thread(0x20, "b")),
        one(1_200, 0x1B, 0, &[]),
        one(1_300, 0x1C, 0, &[]),
    ];
    let folder = trace(&fields(metadata(32, 8, "")), &stream.concat());
    let (info, events) = read(folder.path());
    assert_eq!(info.damage, []);
    let cpus: Vec<_> = records(&events).map(|event| event.cpu).collect();
    assert_eq!(cpus, [0, 1, 0, 0].map(|cpu| Some(Cpu(cpu))));
}

#[test]
fn packets_tell_processors_and_losses() {
    let packet = |begin: u64, cpu: u8, discarded: u32, events: &[Vec<u8>]| {
        let content = events.concat();
        let bits = (4 + 4 + 8 + 8 + 4 + 4 + 4 + 1 + content.len()) as u32 * 8;
        [
            0xC1FC_1FC1_u32.to_le_bytes().to_vec(),
            // The stream number.
            vec![0; 4],
            begin.to_le_bytes().to_vec(),
            (begin + 1_000).to_le_bytes().to_vec(),
            bits.to_le_bytes().to_vec(),
            bits.to_le_bytes().to_vec(),
            discarded.to_le_bytes().to_vec(),
            vec![cpu],
            content,
        ]
        .concat()
    };
    let one = |time: u64, id, payload: &[u8]| event(64, 16, time, id, payload);
    let stream = [
        packet(1_000, 0, 0, &[one(1_000, 0x11, &thread(0x10, "a"))]),
        packet(2_000, 1, 0, &[one(2_100, 0x11, &thread(0x20, "b"))]),
        packet(3_000, 0, 5, &[one(3_100, 0x1B, &[]), one(3_200, 0x1C, &[])]),
    ];
    for name in ["cpu", "cpu_id"] {
        let folder = trace(&metadata(64, 16, name), &stream.concat());
        let (info, events) = read(folder.path());
        assert_eq!(info.damage, []);
        let places: Vec<_> = records(&events)
            .map(|event| (event.cpu, event.thread))
            .collect();
        let (a, b) = (Some(thread_of(&info, 0x10)), Some(thread_of(&info, 0x20)));
        let (first, second) = (Some(Cpu(0)), Some(Cpu(1)));
        assert_eq!(
            places,
            [(first, a), (second, b), (first, a), (first, a)],
            "{name}"
        );
        let lost = events.iter().find_map(|event| match &event.kind {
            EventKind::Gap(Gap::Discarded { events }) => *events,
            _ => None,
        });
        assert_eq!(lost, Some(5));
    }
}

#[test]
fn a_dump_with_the_metadata_of_its_build_is_the_same_trace() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let dump = data.join("instr_big/cap_big/04_dump_trace.bin");
    let (info, events) = read(&dump);
    let bytes = fs::read(&dump).unwrap();
    let text = fs::read_to_string(data.join("instr_big/ctf_metadata")).unwrap();
    let folder = trace(&text, &bytes[4..bytes.len() - 6]);
    let (info_again, again) = read(folder.path());
    let seen = |info: &TraceInfo, event: &Event| {
        let meant = !matches!(event.kind, EventKind::ThreadName { .. } | EventKind::Other);
        let thread = event.thread.map(|thread| info.identities.tid(thread));
        meant.then(|| (event.time, event.cpu, thread, meaning(info, &event.kind)))
    };
    let gap = |event: &&Event| matches!(event.kind, EventKind::Gap(_));
    let calls = |info: &TraceInfo, events: &[Event]| -> Vec<_> {
        events
            .iter()
            .filter(|event| !gap(event))
            .filter_map(|event| seen(info, event))
            .collect()
    };
    let (one, other) = (calls(&info, &events), calls(&info_again, &again));
    assert_eq!(one.len(), 3_390);
    assert_eq!(one, other);
    assert_eq!(
        events.iter().filter(gap).count(),
        again.iter().filter(gap).count()
    );
    assert!(events.iter().all(|event| match event.kind {
        EventKind::Enter { function, .. } => address(&info, function).0 & 1 == 0,
        _ => true,
    }));
}

/// The buffer of the RAM backend is dumped completely: zeros after the last event are no damage, other bytes are.
#[test]
fn zeros_behind_the_last_event_are_no_damage() {
    let event = event(32, 8, 1_000, 0x11, &thread(0x2000_0000, "worker"));
    for (rest, is_damaged) in [([0, 0], false), ([0, 1], true)] {
        let stream = [event.clone(), vec![0; 5000], rest.to_vec()].concat();
        let folder = trace(&metadata(32, 8, ""), &stream);
        let (info, events) = read(folder.path());
        assert_eq!(records(&events).count(), 1);
        assert_eq!(info.damaged_places() > 0, is_damaged);
        let is_gap = |event: &Event| matches!(event.kind, EventKind::Gap(_));
        assert_eq!(events.iter().any(is_gap), is_damaged, "{events:?}");
        let is_printed = |remark: &String| remark.contains("unused rest of a buffer");
        assert_eq!(info.remarks.iter().any(is_printed), !is_damaged);
    }
}
