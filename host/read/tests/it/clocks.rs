//! Dates, and CPUs with different clocks.

use std::path::Path;
use std::process::Command;

use kymo_event::{ClockCorrection, Cpu, Date, Event, EventKind, Time};
use kymo_fixtures::missing;
use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, events, every_way, identity};
use kymo_read::kymo::{Dump, Live, Program, write_trace};
use kymo_read::{OpenOptions, Source, Summary, open};
use kymo_wire::event::PacketHeader;

const S: u64 = 1_000_000_000;
/// 2026-11-21T17:20:05Z
const START: u64 = 1_795_281_605 * S;
/// Ticks per second.
const HZ: u64 = 25_000_000;

/// Two CPUs that alternately record a marker, every 20 ms, and the wall-clock time every second. The clock of the
/// second CPU is 1.5 s ahead and 80 ppm fast.
fn two_processors() -> Vec<u8> {
    let mut streams = [0, 1].map(|cpu| Encoder::new(CORTEX_M, cpu, 0x20));
    for turn in 0..250u64 {
        let us = turn * 20_000;
        let cpu = turn % 2;
        let ticks = |us: u64| match cpu {
            0 => us * 25,
            _ => HZ * 3 / 2 + us * 25 + us * 25 * 80 / 1_000_000,
        };
        let stream = &mut streams[cpu as usize];
        if turn % 50 < 2 {
            stream.record(ticks(us), &Op::WallClock(START + us * 1000, 0));
        }
        stream.record(ticks(us), &Op::Marker(turn as u32));
    }
    let [first, second] = &mut streams;
    [first.bytes(), second.bytes()].concat()
}

fn markers(source: &mut dyn Source) -> Vec<u64> {
    let marker = |kind: &EventKind| match kind {
        EventKind::Marker { value, .. } => Some(*value),
        _ => None,
    };
    let events = events(source);
    assert!(events.is_sorted_by_key(|event| event.time));
    events
        .iter()
        .filter_map(|event| marker(&event.kind))
        .collect()
}

#[test]
fn processors_come_into_one_order_and_events_have_dates() {
    every_way(CORTEX_M, &two_processors(), &mut |source| {
        let wall = source.info().wall_clock.clone().unwrap();
        let date = |time| Date(wall.unix_ns(Time(time))).to_string();
        assert_eq!(date(0), "2026-11-21T17:20:05.000000000Z");
        assert_eq!(date(1_020_000_000), "2026-11-21T17:20:06.020000000Z");
        let [correction] = &source.info().clock_corrections[..] else {
            panic!("{:?}", source.info().clock_corrections);
        };
        assert_eq!(
            *correction,
            ClockCorrection {
                cpu: Cpu(1),
                reference: Cpu(0),
                moments: 5,
                first_ns: correction.first_ns,
                last_ns: correction.last_ns,
                uncertainty_ns: correction.uncertainty_ns,
            }
        );
        // Accurate to a tick, which is 40 ns.
        assert!(correction.uncertainty_ns < 100, "{correction:?}");
        assert!(
            (correction.first_ns + 1_500_001_600).abs() < 100,
            "{correction:?}"
        );
        assert!(
            (correction.last_ns + 1_500_321_600).abs() < 100,
            "{correction:?}"
        );
        assert_eq!(markers(source), (0..250).collect::<Vec<_>>());
    });
}

#[test]
fn clocks_in_common_and_clocks_without_a_date_stay_as_they_are() {
    for dates in [false, true] {
        let mut streams = [0, 1].map(|cpu| Encoder::new(CORTEX_M, cpu, 0x20));
        for turn in 0..100u64 {
            let stream = &mut streams[turn as usize % 2];
            // The wall-clock readings have an error of up to 60 us, and events are 40 us apart.
            let strays = turn * 7919 % 60_000;
            if dates && turn % 10 < 2 {
                stream.record(
                    turn * 1000,
                    &Op::WallClock(START + turn * 40_000 + strays, 0),
                );
            }
            stream.record(turn * 1000, &Op::Marker(turn as u32));
        }
        let [first, second] = &mut streams;
        let bytes = [first.bytes(), second.bytes()].concat();
        every_way(CORTEX_M, &bytes, &mut |source| {
            assert_eq!(source.info().clock_corrections, []);
            assert_eq!(source.info().wall_clock.is_some(), dates);
            assert_eq!(markers(source), (0..100).collect::<Vec<_>>());
        });
    }
}

#[test]
fn other_readers_show_the_date_of_what_is_kept() {
    let bytes = two_processors();
    let identity = identity(CORTEX_M);
    let dump = Dump {
        identity: &identity,
        bytes: &bytes,
        missing: &[],
        target: "test",
    };
    let folder = tempfile::tempdir().unwrap();
    write_trace(folder.path(), &dump, &Program::default()).unwrap();
    let whole = Summary::of(&mut *open(folder.path(), &OpenOptions::default()).unwrap());
    assert_eq!(whole.start, Some(Time(0)), "times begin with the target");
    let command = Path::new("babeltrace2");
    let output = match Command::new(command)
        .arg(folder.path())
        .args(["--clock-gmt", "--clock-date", "--no-delta"])
        .output()
    {
        Ok(output) => output,
        Err(error) => return missing(&format!("babeltrace2 cannot be run: {error}")),
    };
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or("");
    assert!(
        first.starts_with("[2026-11-21 17:20:05.000000000]"),
        "{first}"
    );
    // Without its streams the directory still contains the date of the start.
    std::fs::remove_file(folder.path().join("cpu0")).unwrap();
    std::fs::remove_file(folder.path().join("cpu1")).unwrap();
    let source = open(folder.path(), &OpenOptions::default()).unwrap();
    let wall = source.info().wall_clock.clone().unwrap();
    assert_eq!(wall.unix_ns(Time(0)), START as i64);
}

#[test]
fn what_comes_live_is_put_into_order_by_what_is_known_so_far() {
    let bytes = two_processors();
    let options = OpenOptions::default();
    let mut live = Live::of_target(&identity(CORTEX_M), "test", None, &options).unwrap();
    // The packets of both CPUs in the order of their ends, which is about the order in which they arrive.
    let mut packets = Vec::new();
    let mut rest = &bytes[..];
    while let Some(header) = PacketHeader::read(CORTEX_M, rest) {
        let (packet, behind) = rest.split_at(header.packet_bits as usize / 8);
        let ahead = if header.cpu == 1 { HZ * 3 / 2 } else { 0 };
        packets.push((header.end - ahead, packet.to_vec()));
        rest = behind;
    }
    packets.sort();
    assert!(packets.len() > 4, "{}", packets.len());
    let mut found = Vec::new();
    for (_, packet) in packets {
        live.push(packet);
        while let Some(event) = live.next(false) {
            found.push(event);
        }
    }
    while let Some(event) = live.next(true) {
        found.push(event);
    }
    let [correction] = &live.info().clock_corrections[..] else {
        panic!("{:?}", live.info().clock_corrections);
    };
    assert_eq!((correction.cpu, correction.reference), (Cpu(1), Cpu(0)));
    let value = |event: &Event| match event.kind {
        EventKind::Marker { value, .. } => Some(value),
        _ => None,
    };
    let values: Vec<u64> = found.iter().filter_map(value).collect();
    assert_eq!(values.len(), 250);
    // Before both have recorded a wall-clock time, one may be ahead; afterwards the order is right.
    let rising = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
    assert!(rising >= 249 - 2, "{values:?}");
}
