//! Threads that have ended, in C programs: what they left undone, and what becomes of their memory.

#![cfg(target_os = "linux")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{build, compilers, raw_file};
use kymo_device_tests::{Kind, Packet};

/// Runs a program that saves to a file; returns that.
fn run(program: &Path) -> PathBuf {
    let file = program.with_extension("kymo");
    let output = Command::new(program).arg(&file).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    file
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
        let file = run(&build(compiler, "ended", &[]));
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
