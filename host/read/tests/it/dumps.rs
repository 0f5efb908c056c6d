//! Generator of dumps of Zephyr's instrumentation, and helpers to read them.
#![allow(dead_code, reason = "every test binary uses another part of it")]

use kymo_event::{Event, EventKind, Gap, TraceInfo};
use kymo_read::zephyr_instrumentation::open_bytes;
use kymo_read::{Events, OpenOptions};
use kymo_zephyr_instrumentation::{Layout, Record, RecordType};

use kymo_fixtures::zephyr_records::CORTEX_M;

pub fn read_bytes(bytes: &[u8]) -> (TraceInfo, Vec<Event>) {
    let mut source = open_bytes("dump", bytes.to_vec(), &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (source.info().clone(), events)
}

/// A record of a target, whose call site is a few bytes after the callee's address.
pub fn record(
    layout: &Layout,
    kind: RecordType,
    callee: u64,
    time: u64,
    cpu: u8,
    (thread, name): (u64, &[u8]),
) -> Vec<u8> {
    let record = Record {
        kind,
        callee,
        caller: callee + 0x40,
        time_ns: time,
        priority_bits: 0,
        cpu,
        thread,
        name,
    };
    kymo_fixtures::zephyr_records::record(layout, &record)
}

/// Alternates between entries and exits.
pub const fn kind(n: u64) -> RecordType {
    if n.is_multiple_of(2) {
        RecordType::Entry
    } else {
        RecordType::Exit
    }
}

/// Alternating entries and exits, one record per microsecond.
pub fn calls(count: u64, thread: (u64, &[u8])) -> Vec<Vec<u8>> {
    let record = |n: u64| {
        let callee = CODE + n / 2 % 7 * 0x40;
        record(&CORTEX_M, kind(n), callee, 1_000 * n, 0, thread)
    };
    (2..count + 2).map(record).collect()
}

/// The number of other events, and the gaps.
pub fn gaps(bytes: &[u8]) -> (usize, Vec<Gap>) {
    let (_, events) = read_bytes(bytes);
    let all = events.len();
    let gaps = events.into_iter().filter_map(|event| match event.kind {
        EventKind::Gap(gap) => Some(gap),
        _ => None,
    });
    let gaps: Vec<_> = gaps.collect();
    (all - gaps.len(), gaps)
}

pub const CODE: u64 = 0x4000_1000;

/// A thread's id and name.
pub const MAIN: (u64, &[u8]) = (0x2000_0100, b"main");
