//! Any packets and any bytes.

use kymo_systemview::packet::{FIRST_CALL, Packet};
use kymo_systemview::scan::UNKNOWN;
use kymo_systemview::{
    Beginning, Form, Ids, Length, Payload, Piece, Problem, SYNC, Scan, Text, TextOrder, decode,
    encode,
};
use proptest::prelude::*;

/// What packets are made of.
#[derive(Clone, Debug)]
struct Parts {
    kind: u32,
    numbers: [u32; 4],
    text: Vec<u8>,
    /// Numbers of 1 to 5 bytes.
    payload: Vec<u32>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let number = || prop_oneof![0u32..300, any::<u32>()];
    let text = prop_oneof![
        proptest::collection::vec(b' '..b'~', 0..40),
        proptest::collection::vec(b' '..b'~', 255..700),
    ];
    let payload = proptest::collection::vec(number(), 0..40);
    let numbers = [number(), number(), number(), number()];
    (0u32..45, numbers, text, payload).prop_map(|(kind, numbers, text, payload)| Parts {
        kind,
        numbers,
        text,
        payload,
    })
}

fn varints(values: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        let mut value = *value;
        while value > 0x7F {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    bytes
}

fn packet<'a>(parts: &'a Parts, payload: &'a [u8]) -> Packet<'a> {
    let [a, b, c, d] = parts.numbers;
    let text = Text(&parts.text);
    match parts.kind {
        0 => Packet::Nop,
        1 => Packet::Overflow { total: a },
        2 => Packet::IsrEnter { irq: a },
        3 => Packet::IsrExit,
        4 => Packet::TaskStartExec { task: a },
        5 => Packet::TaskStopExec,
        6 => Packet::TaskStartReady { task: a },
        7 => Packet::TaskStopReady { task: a, cause: b },
        8 => Packet::TaskCreate { task: a },
        9 => Packet::TaskInfo {
            task: a,
            priority: b,
            name: text,
        },
        10 => Packet::TraceStart,
        11 => Packet::TraceStop,
        12 => Packet::SystemTimeCycles { cycles: a },
        13 => Packet::SystemTimeUs {
            us: u64::from(a) << 32 | u64::from(b),
        },
        14 => Packet::SystemDescription { text },
        15 => Packet::MarkStart { id: a },
        16 => Packet::MarkStop { id: a },
        17 => Packet::Idle,
        18 => Packet::IsrToScheduler,
        19 => Packet::TimerEnter { timer: a },
        20 => Packet::TimerExit,
        21 => Packet::StackInfo {
            task: a,
            base: b,
            size: c,
            usage: d,
        },
        22 => Packet::ModuleDescription {
            module: a,
            offset: b,
            text,
        },
        23 => Packet::DataSample { id: a, value: b },
        24 => Packet::Init {
            frequency: a,
            cpu_frequency: b,
            ids: Ids { base: c, shift: d },
        },
        25 => Packet::NameResource {
            resource: a,
            name: text,
        },
        26 => Packet::Print {
            format: text,
            options: a,
            count: parts.payload.len() as u32,
            arguments: payload,
        },
        27 => Packet::ModuleCount { count: a },
        28 => Packet::EndCall {
            id: a,
            value: (b & 1 == 0).then_some(c),
        },
        29 => Packet::TaskTerminate { task: a },
        30 => Packet::Mark { id: a },
        31 => Packet::NameMarker { id: a, name: text },
        32 => Packet::HeapDefine {
            heap: a,
            base: b,
            size: c,
            metadata: d,
        },
        33 => Packet::HeapAlloc {
            heap: a,
            block: b,
            size: c,
            tag: (d & 1 == 0).then_some(d),
        },
        34 => Packet::HeapFree { heap: a, block: b },
        35 => Packet::RegisterData {
            id: a,
            name: text,
            rest: payload,
        },
        36 => Packet::Extended {
            id: a | 64,
            payload,
        },
        _ => Packet::Event {
            id: FIRST_CALL.max(a),
            payload,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(
        all in parts(),
        delta in prop_oneof![0u32..1000, any::<u32>()],
        (wide, wide_id, big) in any::<(bool, bool, bool)>(),
        second_core in any::<Option<bool>>(),
    ) {
        let form = Form {
            length: if wide { Length::Wide } else { Length::Bytes },
            text: if big { TextOrder::Big } else { TextOrder::Little },
            wide_id: wide_id && second_core.is_none(),
            second_core,
        };
        let payload = varints(&all.payload);
        let packet = packet(&all, &payload);
        let mut bytes = [0; 2000];
        // Ids whose bit tells the core are fewer.
        let id = packet.id();
        let has_room = id < 64 || (128..8192).contains(&id);
        prop_assume!(second_core.is_none() || has_room);
        let size = encode(&packet, delta, form, &mut bytes).unwrap();
        let read = decode(&bytes[..size], form, Payload::default()).unwrap();
        prop_assert_eq!(read.packet, packet);
        prop_assert_eq!((read.delta, read.bytes), (delta, size));
        prop_assert_eq!(read.form.second_core, second_core);
        let mut again = [0; 2000];
        let size = encode(&read.packet, read.delta, read.form, &mut again).unwrap();
        prop_assert_eq!(&again[..size], &bytes[..size]);
        for cut in 0..size {
            // Never something else.
            prop_assert!(decode(&bytes[..cut], form, Payload::default()).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_to_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut scan = Scan::default();
        let mut at = 0;
        while let Some(piece) = scan.next(&bytes[at as usize..], true, UNKNOWN) {
            let size = match piece {
                Piece::Sync { .. } => SYNC.len() as u64,
                Piece::Record(record) => record.bytes.len() as u64,
                Piece::Damage { bytes, .. } => bytes,
            };
            prop_assert!(size > 0);
            at += size;
            prop_assert_eq!(scan.offset(), at);
        }
        prop_assert_eq!(at, bytes.len() as u64);
    }
}

/// A recording as a target with that error in its sources makes it.
fn with_ids_for_lengths() -> (Vec<u8>, usize) {
    let form = Form {
        length: Length::Id,
        ..Form::default()
    };
    let ids = Ids {
        base: 0x2000_0000,
        shift: 2,
    };
    let mut packets = vec![
        Packet::TraceStart,
        Packet::Init {
            frequency: 64_000_000,
            cpu_frequency: 64_000_000,
            ids,
        },
        Packet::SystemDescription {
            text: Text(b"N=App,O=RTOS"),
        },
        Packet::TaskInfo {
            task: 40,
            priority: 3,
            name: Text(b"main"),
        },
        Packet::TaskInfo {
            task: 80,
            priority: 2,
            name: Text(b"idle"),
        },
        Packet::ModuleCount { count: 0 },
    ];
    let calls: [&[u8]; 4] = [&[5], &[0x81, 2, 7], &[], &[9, 9, 9, 9]];
    for round in 0..200usize {
        packets.push(Packet::TaskStartExec {
            task: 40 + 40 * (round as u32 & 1),
        });
        let id = 33 + (round % 4) as u32;
        packets.push(Packet::Event {
            id,
            payload: calls[round % 4],
        });
        packets.push(Packet::IsrEnter { irq: 15 });
        packets.push(Packet::IsrExit);
        if round % 5 == 0 {
            packets.push(Packet::EndCall { id, value: None });
        }
    }
    let mut bytes = SYNC.to_vec();
    let mut scratch = [0; 100];
    for (at, packet) in packets.iter().enumerate() {
        let size = encode(packet, 100 + at as u32 * 7, form, &mut scratch).unwrap();
        bytes.extend(&scratch[..size]);
    }
    (bytes, packets.len())
}

/// What the payloads of its calls are.
fn payload(id: u32) -> Option<Payload> {
    let count = [1, 2, 0, 4].get(id.checked_sub(33)? as usize)?;
    Some(Payload::numbers(*count))
}

#[test]
fn lengths_that_are_ids_are_found_out() {
    let (bytes, packets) = with_ids_for_lengths();
    let known = |id: u32| payload(id);
    let mut scan = Scan::default();
    let mut read = 0;
    while let Some(piece) = scan.next(&bytes[scan.offset() as usize..], true, &known) {
        match piece {
            Piece::Damage { .. } => panic!("{piece:?}"),
            Piece::Record(_) => read += 1,
            Piece::Sync { .. } => {}
        }
    }
    assert_eq!(read, packets);
    assert_eq!(scan.form().length, Length::Id);
    // Without descriptions, the packets behind an event tell how long it is, as a rule.
    let mut scan = Scan::default();
    let (mut read, mut lost) = (0, 0);
    while let Some(piece) = scan.next(&bytes[scan.offset() as usize..], true, UNKNOWN) {
        match piece {
            Piece::Damage { bytes, .. } => lost += bytes,
            Piece::Record(_) => read += 1,
            Piece::Sync { .. } => {}
        }
    }
    assert!(
        read * 100 > packets * 95 && lost < bytes.len() as u64 / 20,
        "{read} {lost}"
    );
}

/// Foreign bytes of each kind between packets: everything else is read.
#[test]
fn foreign_bytes_cost_few_packets() {
    let form = Form::default();
    let mut scratch = [0; 100];
    let mut stream = SYNC.to_vec();
    let mut put = |packet: Packet<'_>, stream: &mut Vec<u8>| {
        let size = encode(&packet, 1000, form, &mut scratch).unwrap();
        stream.extend(&scratch[..size]);
    };
    put(Packet::TraceStart, &mut stream);
    let ids = Ids {
        base: 0x2000_0000,
        shift: 2,
    };
    put(
        Packet::Init {
            frequency: 1_000_000,
            cpu_frequency: 1,
            ids,
        },
        &mut stream,
    );
    for task in 1..6 {
        let name = Text(b"task");
        put(
            Packet::TaskInfo {
                task: task * 100,
                priority: 1,
                name,
            },
            &mut stream,
        );
    }
    let foreign: [&[u8]; 5] = [
        b"[INFO] a console's text\r\n",
        &[0xFF; 40],
        &[0; 33],
        b"$$SEGGER_TELNET_ConfigStr=RTTCh;1$$",
        &[
            0x9a, 0x81, 0xfb, 0x3f, 0xc4, 0xdf, 0xfd, 0x3f, 3, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f,
        ],
    ];
    let (mut packets, mut other) = (7, 0);
    for round in 0..400u32 {
        put(
            Packet::TaskStartExec {
                task: (1 + round % 5) * 100,
            },
            &mut stream,
        );
        put(
            Packet::Event {
                id: 34,
                payload: &[1],
            },
            &mut stream,
        );
        put(Packet::IsrEnter { irq: 15 }, &mut stream);
        put(Packet::IsrExit, &mut stream);
        packets += 4;
        if round % 20 == 10 {
            let bytes = foreign[round as usize / 20 % 5];
            other += bytes.len() as u64;
            stream.extend(bytes);
        }
    }
    let mut scan = Scan::default();
    let (mut read, mut lost) = (0, 0);
    while let Some(piece) = scan.next(&stream[scan.offset() as usize..], true, UNKNOWN) {
        match piece {
            Piece::Record(_) => read += 1,
            Piece::Damage { bytes, .. } => lost += bytes,
            Piece::Sync { .. } => {}
        }
    }
    assert!(
        read >= packets - 20 && read <= packets + 20,
        "{read} of {packets}"
    );
    assert!(
        // One of them looks like an event.
        lost + 160 >= other && lost <= other + 60,
        "{lost} of {other}"
    );
}

/// Lines as ESP-IDF logs, between packets: no event is made of them, and no packet is lost.
#[test]
fn lines_of_a_log_are_no_packets() {
    let lines: [&[u8]; 4] = [
        b"I (1234) wifi: connected\r\n",
        b"\x1b[0;32mW (56789) app_main: heap low 1234\x1b[0m\n",
        b"E (12:30:45.678) x: y\n",
        b"D (7) t: \n",
    ];
    let mut scratch = [0; 100];
    let mut stream = SYNC.to_vec();
    let mut put = |packet: &Packet<'_>, stream: &mut Vec<u8>| {
        let size = encode(packet, 1000, Form::default(), &mut scratch).unwrap();
        stream.extend(&scratch[..size]);
    };
    let packets = [
        Packet::TaskStartExec { task: 100 },
        Packet::IsrEnter { irq: 15 },
        Packet::IsrExit,
        // Which begins as a line does.
        Packet::Event {
            id: 73,
            payload: &[40; 32],
        },
    ];
    let mut places = Vec::new();
    for round in 0..40 {
        for packet in &packets {
            put(packet, &mut stream);
        }
        if round >= 20 {
            let line = lines[round % 4];
            places.push((stream.len() as u64, line.len() as u64));
            stream.extend(line);
        }
    }
    let (mut read, mut damage) = (Vec::new(), Vec::new());
    let mut scan = Scan::default();
    // As it comes.
    for end in 1..=stream.len() {
        let ended = end == stream.len();
        while let Some(piece) = scan.next(&stream[scan.offset() as usize..end], ended, UNKNOWN) {
            match piece {
                Piece::Record(record) => read.push(format!("{:?}", record.packet)),
                Piece::Damage {
                    offset,
                    bytes,
                    problem,
                } => {
                    assert_eq!(problem, Problem::Log);
                    damage.push((offset, bytes));
                }
                Piece::Sync { .. } => {}
            }
        }
    }
    assert_eq!(damage, places);
    let expected = (0..40).flat_map(|_| packets.iter().map(|it| format!("{it:?}")));
    assert_eq!(read, expected.collect::<Vec<_>>());
}

/// A recording of tasks, interrupts, calls and, seldom, other packets, `seed` of a sequence; where its packets begin.
fn mixed(seed: u64) -> (Vec<u8>, Vec<usize>) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = |below: u32| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as u32 % below
    };
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    let mut scratch = [0; 300];
    for _ in 0..900 {
        let payload = varints(&[0x8001_0000 + 0x100 * random(12), 0x8000_0100]);
        let call = [random(2) as u8];
        // In some, most packets are calls of functions, with two addresses each.
        let kind = match seed % 3 {
            0 => random(120),
            _ => random(40),
        };
        let packet = match kind {
            0..8 => Packet::TaskStartExec {
                task: 0x4000 + 0x40 * random(5),
            },
            8..12 => Packet::TaskStartReady {
                task: 0x4000 + 0x40 * random(5),
            },
            12..16 => Packet::TaskStopReady {
                task: 0x4000 + 0x40 * random(5),
                cause: random(4),
            },
            16..20 => Packet::IsrEnter {
                irq: [15, 18, 25][random(3) as usize],
            },
            20..23 => Packet::IsrExit,
            23 => Packet::IsrToScheduler,
            24..27 => Packet::Idle,
            27..30 => Packet::Event {
                id: 512,
                payload: &payload,
            },
            30..33 => Packet::Event {
                id: 513,
                payload: &payload,
            },
            33..36 => Packet::Event {
                id: 40 + random(5),
                payload: &call,
            },
            39.. if kind > 39 => Packet::Event {
                id: 512 + random(2),
                payload: &payload,
            },
            36..39 => Packet::EndCall {
                id: 40 + random(5),
                value: None,
            },
            _ => match random(12) {
                0..4 => Packet::Print {
                    format: Text(b"the value is %d"),
                    options: 0,
                    count: 1,
                    arguments: &[9],
                },
                4..6 => Packet::TaskCreate { task: 0x9000 },
                6..8 => Packet::Event {
                    id: 90 + random(20),
                    payload: &payload[..5],
                },
                8 => Packet::SystemDescription {
                    text: Text(b"I#15=SysTick,I#18=UART,I#25=DMA"),
                },
                9 => Packet::IsrEnter {
                    irq: 40 + random(40),
                },
                10 => Packet::MarkStart { id: 5 },
                _ => Packet::Overflow { total: 300 },
            },
        };
        starts.push(bytes.len());
        let delta = [random(100), random(3000), random(200_000)][random(3) as usize];
        let size = encode(&packet, delta, Form::default(), &mut scratch).unwrap();
        bytes.extend(&scratch[..size]);
    }
    (bytes, starts)
}

/// A stream without its beginning: no packet is read that the target did not send, and few are passed over.
#[test]
fn a_stream_cut_anywhere_begins_with_a_packet_that_is_certain() {
    let (mut cuts, mut guesses, mut passed) = (0, 0, 0);
    for seed in 1..16 {
        let (bytes, starts) = mixed(seed);
        for cut in (1..1500).step_by(5) {
            let stream = &bytes[cut..];
            let mut scan = Scan::default();
            let first = loop {
                match scan.next(&stream[scan.offset() as usize..], true, UNKNOWN) {
                    Some(Piece::Record(record)) => break record,
                    Some(Piece::Damage { problem, .. }) => {
                        assert!(problem == Problem::Cut || scan.beginning() == Beginning::Guessed)
                    }
                    other => panic!("{other:?}"),
                }
            };
            cuts += 1;
            if scan.beginning() == Beginning::Guessed {
                guesses += 1;
                continue;
            }
            let at = cut + first.offset as usize;
            assert!(starts.contains(&at), "seed {seed}, cut {cut}: {first:?}");
            passed += first.offset;
            // As it comes, 97 bytes at a time.
            let mut scan = Scan::default();
            let mut end = 0;
            let again = loop {
                let at = scan.offset() as usize;
                match scan.next(&stream[at..end.max(at)], false, UNKNOWN) {
                    Some(Piece::Record(record)) => break record,
                    Some(_) => {}
                    None => end += 97,
                }
            };
            assert_eq!(again, first);
        }
    }
    assert!(guesses * 1000 < cuts, "{guesses} of {cuts}");
    assert!(passed / cuts < 90, "{passed} bytes in {cuts} cuts");
}

/// The ten zeros are cut, or stale packets stand in front of a recording.
#[test]
fn a_recording_begins_where_it_says_so() {
    let (stale, _) = mixed(1);
    let (whole, packets) = with_ids_for_lengths();
    for before in [&[][..], &[0; 4], &[0x91, 0], &stale[1..40]] {
        let bytes = [before, &whole[SYNC.len()..]].concat();
        let mut scan = Scan::default();
        let mut read = 0;
        let arguments = |id: u32| payload(id);
        while let Some(piece) = scan.next(&bytes[scan.offset() as usize..], true, &arguments) {
            match piece {
                Piece::Record(_) => read += 1,
                Piece::Damage {
                    offset,
                    bytes,
                    problem,
                } => {
                    assert_eq!(
                        (offset, bytes, problem),
                        (0, before.len() as u64, Problem::Cut)
                    );
                }
                Piece::Sync { .. } => panic!(),
            }
        }
        assert_eq!((read, scan.beginning()), (packets, Beginning::Certain));
    }
}
