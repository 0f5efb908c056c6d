//! Exited threads in C programs: their unfinished records, and the reuse of their memory.

#![cfg(target_os = "linux")]

#[path = "common/programs.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{build, compilers, raw_file};
use kymo_device_tests::{Host, ItemPacket, Kind, Packet, packets};
use kymo_wire::event::{Layout, METADATA_STREAM};

/// Runs a program that saves to a file; returns the file and the output.
fn run(program: &Path) -> (PathBuf, String) {
    let file = program.with_extension("kymo");
    let output = Command::new(program).arg(&file).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("the program prints text");
    (file, text)
}

/// Recordings of short-lived threads.
struct Lives {
    packets: Vec<Packet>,
    items: Vec<ItemPacket>,
    /// Growth of the program in KiB.
    kib: i64,
}

impl Lives {
    const THREADS: u32 = 3000;

    fn run(flags: &[&str]) -> Self {
        let threads = format!("-DTHREADS={}", Self::THREADS);
        let flags = [&["-finstrument-functions", &threads], flags].concat();
        let (file, text) = run(&build("gcc", "lives", &flags));
        let mut bytes = std::fs::read(file).expect("it was saved");
        if flags.contains(&"-DMODE=KYMO_STREAM") {
            let mut host = Host::default();
            host.hear(&bytes);
            assert_eq!(
                (host.damaged, host.missing(host.pieces.len() as u32)),
                (0, vec![])
            );
            bytes = host.pieces.into_values().flatten().collect();
        } else {
            let line = bytes.iter().position(|byte| *byte == b'\n');
            bytes.drain(..=line.expect("the first line is text"));
        }
        let (items, events) = ItemPacket::take(Layout::NATIVE, &bytes);
        let mut packets = packets(&events, Layout::NATIVE, 0);
        assert!(packets.iter().all(|packet| packet.discarded == 0));
        packets.retain(|packet| packet.cpu != METADATA_STREAM);
        let kib = text.trim().parse().expect("a number");
        Self {
            packets,
            items,
            kib,
        }
    }

    /// The numbers of the streams of events.
    fn streams(&self) -> BTreeSet<u16> {
        self.packets.iter().map(|packet| packet.cpu).collect()
    }

    /// Checks that every packet belongs to one thread, in the order of its stream, and that missing packets are the
    /// first ones. Returns the number of missing ones.
    fn missing(&self) -> u32 {
        let mut next: BTreeMap<u16, u32> = BTreeMap::new();
        let mut missing = 0;
        for packet in &self.packets {
            let next = next.entry(packet.cpu).or_insert_with(|| {
                missing += packet.sequence;
                packet.sequence
            });
            assert_eq!(packet.sequence, *next);
            *next += 1;
            let markers = markers(std::slice::from_ref(packet));
            assert!(markers.len() <= 1, "{markers:?} in a packet");
            // It leaves its calls open, and so does the thread before it in the same stream.
            let kinds = packet.records.iter().map(|record| &record.kind);
            let edges = kinds.filter(|kind| matches!(kind, Kind::Enter(_) | Kind::Exit(_)));
            assert!(markers.is_empty() || edges.count() == 3);
        }
        missing
    }

    /// The markers of all threads, and their items, sorted.
    fn values(&self) -> (Vec<u32>, Vec<usize>) {
        let mut markers = markers(&self.packets);
        let items = self.items.iter().flat_map(|packet| &packet.items);
        let mut items: Vec<usize> = items.map(|item| item.data).collect();
        markers.sort_unstable();
        items.sort_unstable();
        (markers, items)
    }
}

/// While the host consumes packets, any number of threads uses the memory of a few.
#[test]
fn streamed_threads_use_the_memory_of_those_that_ended() {
    if compilers().is_empty() {
        return;
    }
    let lives = Lives::run(&["-DMODE=KYMO_STREAM"]);
    assert_eq!(lives.missing(), 0);
    let (markers, items) = lives.values();
    assert!(markers.into_iter().eq(0..Lives::THREADS));
    assert!(
        items
            .into_iter()
            .eq((0..Lives::THREADS as usize).step_by(3))
    );
    let streams = lives.streams();
    assert!(streams.len() < 100, "{} streams", streams.len());
    assert!(lives.kib < 8 << 10, "{} KiB", lives.kib);
    // The packets of items and of events name their thread.
    let threads: BTreeSet<u64> = lives.packets.iter().map(|packet| packet.thread).collect();
    assert!(threads.len() > 2900, "{} threads", threads.len());
    let in_items = |packet: &ItemPacket| threads.contains(&packet.header.thread);
    assert!(lives.items.iter().all(in_items));
}

#[test]
fn so_many_ended_threads_are_kept_as_the_program_wants_and_the_newest_in_any_case() {
    if compilers().is_empty() {
        return;
    }
    let few = Lives::run(&["-DENDED=10"]);
    let (markers, items) = few.values();
    let streams = few.streams().len();
    assert!((10..30).contains(&streams), "{streams} streams");
    // A thread that finds none of those before it ended yet has memory of its own, however late it comes: only where
    // all places are full has anything been overwritten.
    let mut full = 0;
    for stream in few.streams() {
        let packets = few.packets.iter().filter(|packet| packet.cpu == stream);
        let numbers: Vec<u32> = packets.map(|packet| packet.sequence).collect();
        full += usize::from(numbers.len() == 4);
        assert!(
            numbers.len() == 4 || numbers.first() == Some(&0),
            "{numbers:?}"
        );
    }
    assert!(full >= 10, "{full} streams are full");
    // A packet each, of which the first ones are gone.
    let gone = few.missing();
    assert_eq!(
        gone as usize + few.packets.len(),
        Lives::THREADS as usize + 1
    );
    assert_eq!(markers.len(), few.packets.len() - 1);
    let newest = Lives::THREADS - 30;
    assert!(markers.iter().filter(|marker| **marker >= newest).count() == 30);
    assert!(!items.is_empty() && few.kib < 8 << 10, "{} KiB", few.kib);

    // By default many are, so that nothing is missing.
    let many = Lives::run(&[]);
    assert_eq!(many.missing(), 0);
    assert!(many.values().0.into_iter().eq(0..Lives::THREADS));
    let streams = many.streams().len();
    assert!((1024..1500).contains(&streams), "{streams} streams");

    // What is kept first is never overwritten, so there is memory for those that come later.
    let fixed = Lives::run(&["-DMODE=KYMO_FIXED", "-DENDED=10"]);
    assert_eq!(fixed.missing(), 0);
    assert!(fixed.values().0.into_iter().eq(0..Lives::THREADS));
    let streams = fixed.streams().len();
    assert!((750..1200).contains(&streams), "{streams} streams");
}

/// The values of all markers.
fn markers(packets: &[Packet]) -> Vec<u32> {
    let kinds = packets.iter().flat_map(|packet| &packet.records);
    let markers = kinds.filter_map(|record| match record.kind {
        Kind::Marker(value) => Some(value),
        _ => None,
    });
    markers.collect()
}

#[test]
fn a_thread_that_ended_while_it_filled_a_record_holds_nothing_up() {
    for compiler in compilers() {
        let (file, _) = run(&build(compiler, "ended", &[]));
        let (_, packets) = raw_file(&file);
        // (The stream of `main` is the first.)
        assert_eq!(markers(&packets), [3, 1, 2], "by {compiler}");
        let lost: Vec<u32> = packets.iter().map(|packet| packet.discarded).collect();
        assert_eq!(lost.iter().sum::<u32>(), 1, "by {compiler}: {lost:?}");
        let unfinished = packets.iter().flat_map(|packet| &packet.records).filter(
            |record| matches!(&record.kind, Kind::Block { kind: 0, data } if data == &[7; 24]),
        );
        assert_eq!(unfinished.count(), 1, "by {compiler}");
        let (_, packets) = raw_file(&file.with_extension("kymo.2"));
        assert_eq!(markers(&packets), [4], "by {compiler}");
    }
}

/// Number of instructions to save the recordings of this many threads, and to stream them. `None` without an
/// instruction counter.
fn costs(program: &Path, threads: u32) -> Option<[u64; 2]> {
    let folder = program.with_extension(format!("counts-{threads}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let functions = ["save_all", "stream_all"];
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=counts"])
        .args(functions.map(|function| format!("--zero-before={function}")))
        .args(functions.map(|function| format!("--dump-after={function}")))
        .arg(program)
        .args(["saved.kymo", &threads.to_string()])
        .current_dir(&folder)
        .output();
    let Ok(output) = output else {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "valgrind is needed"
        );
        let _ = writeln!(std::io::stderr(), "SKIPPED: valgrind is not installed");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Some([1, 2].map(|dump| {
        let file = folder.join(format!("counts.{dump}"));
        let text = std::fs::read_to_string(file).expect("callgrind counted");
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        totals
            .and_then(|total| total.parse().ok())
            .expect("a number")
    }))
}

#[test]
fn ended_threads_cost_what_they_are_and_not_their_square() {
    for compiler in compilers() {
        let program = build(compiler, "many", &[]);
        let (Some(few), Some(many)) = (costs(&program, 500), costs(&program, 2000)) else {
            return;
        };
        for (few, many) in few.into_iter().zip(many) {
            println!(
                "by {compiler}: {few} instructions, and {many} for four times as many threads"
            );
            // Of a search among all for each it would be 16.
            assert!(many < 5 * few, "by {compiler}: {few}, {many}");
        }
    }
}
