//! The x86-64 hooks in assembly: a signal at each of their instructions, and a comparison with the hooks in Rust for
//! the same calls.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "common/programs.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{
    build, build_with, compilers, library, portable_library, raw_file, raw_file_of_jumps,
};
use kymo_device_tests::{Kind, Packet, Record};
use kymo_wire::event::METADATA_STREAM;

/// Runs a program and returns what it printed as `NAME ADDRESS NUMBER`, and its recording.
fn record(program: &Path) -> (BTreeMap<String, (u64, u64)>, Vec<Packet>) {
    let file = program.with_extension("kymo");
    let output = Command::new(program)
        .env("KYMO_OUTPUT", &file)
        .output()
        .expect("the program runs");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("the program prints text");
    (printed(&text), raw_file(&file).1)
}

/// What a program prints in lines of `NAME ADDRESS NUMBER`.
fn printed(text: &str) -> BTreeMap<String, (u64, u64)> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = u64::from_str_radix(words[1].trim_start_matches("0x"), 16);
        let number = words[2].parse().expect("a number");
        (words[0].to_owned(), (address.expect("an address"), number))
    };
    text.lines().map(line).collect()
}

#[test]
fn a_signal_at_any_instruction_loses_and_mixes_nothing() {
    for compiler in compilers() {
        let program = build(compiler, "stepped", &["-finstrument-functions"]);
        let (printed, packets) = record(&program);
        let (leaf, leaves) = printed["leaf"];
        let (struck, preempts) = printed["struck"];
        assert!(preempts > 250, "only {preempts} signals, by {compiler}");
        assert!(packets.iter().all(|packet| packet.discarded == 0));
        let records = packets.iter().flat_map(|packet| &packet.records);
        let records: Vec<_> = records
            // The time of day comes when it is due.
            .filter(|record| !matches!(record.kind, Kind::Metadata { .. } | Kind::WallClock { .. }))
            .collect();
        assert!(records.is_sorted_by_key(|record| record.time));
        // What a handler leaves stands together, and without it there is one call after the other.
        let kinds: Vec<&Kind> = records.iter().map(|record| &record.kind).collect();
        let handled = [
            Kind::IsrEnter(5),
            Kind::Enter(struck),
            Kind::Exit(struck),
            Kind::IsrExit(5),
        ];
        let (mut calls, mut handlers, mut at) = (Vec::new(), 0, 0);
        while at < kinds.len() {
            if kinds[at] == &handled[0] {
                let stands = kinds.get(at..at + 4).expect("a handler ends");
                assert!(stands.iter().copied().eq(&handled), "{stands:?}");
                handlers += 1;
                at += 4;
            } else {
                calls.push(kinds[at]);
                at += 1;
            }
        }
        assert_eq!(handlers, preempts);
        let calls: Vec<_> = calls
            .into_iter()
            .filter(|kind| matches!(kind, Kind::Enter(_) | Kind::Exit(_)))
            .collect();
        let expected = (0..leaves).flat_map(|_| [Kind::Enter(leaf), Kind::Exit(leaf)]);
        assert!(calls.into_iter().cloned().eq(expected), "by {compiler}");
    }
}

/// The point of preemption in a hook makes no difference: events after the jump are recorded, and the hook's own event
/// counts as lost if it is missing.
#[test]
fn a_handler_that_jumps_out_of_any_instruction_leaves_a_whole_recording() {
    // All is kept, or little, so that packets are begun where others were.
    for (compiler, packets) in compilers().into_iter().flat_map(|it| [(it, 8192), (it, 5)]) {
        let packets_there = format!("-DPACKETS={packets}");
        let flags = ["-finstrument-functions", &packets_there];
        let program = build(compiler, "jumped", &flags);
        let file = program.with_extension("kymo");
        let output = Command::new(&program).arg(&file).output().expect("it runs");
        assert!(output.status.success(), "by {compiler}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        let printed = printed(&text);
        let mut recorded = raw_file_of_jumps(&file);
        recorded.retain(|packet| packet.flags == 1);
        let mut sequences = recorded.iter().map(|packet| packet.sequence);
        let first = sequences.next().expect("a packet");
        assert!(sequences.eq(first + 1..first + recorded.len() as u32));
        let records: Vec<_> = recorded.iter().flat_map(|it| &it.records).collect();
        assert!(records.is_sorted_by_key(|record| record.time));
        let entered = |name: &str| {
            let entered = |kind: &Kind| *kind == Kind::Enter(printed[name].0);
            records.iter().filter(|it| entered(&it.kind)).count() as u64
        };
        let lost = recorded.last().map_or(0, |packet| packet.discarded);
        let jumps = printed["jumps"].1;
        assert!(jumps > 500, "{jumps} jumps, by {compiler}");
        assert!((200..=jumps).contains(&lost.into()), "{lost} of {jumps}");
        if packets == 5 {
            assert_eq!(recorded.len(), packets);
            continue;
        }
        for name in ["after", "deep"] {
            assert_eq!(entered(name), printed[name].1, "{name}, by {compiler}");
        }
        let (leaf, leaves) = printed["leaf"];
        let exits = |it: &&&Record| it.kind == Kind::Exit(leaf);
        let exits = records.iter().filter(exits).count() as u64;
        assert!(entered("leaf") + u64::from(lost) >= leaves, "by {compiler}");
        assert!(exits + u64::from(lost) + jumps >= leaves, "by {compiler}");
    }
}

/// Waiting would be a deadlock: the hook would wait for its handler, and the handler for the hook.
#[test]
fn a_handler_that_saves_in_a_hook_does_not_wait_for_it_and_what_is_missing_is_counted() {
    for compiler in compilers() {
        let program = build(compiler, "interrupted", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let begin = Instant::now();
        let output = Command::new(&program).arg(&file).output().expect("it runs");
        let took = begin.elapsed();
        assert!(output.status.success(), "by {compiler}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        let printed = printed(&text);
        assert!(
            printed["whole"].1 > 10 && printed["missing"].1 == 20,
            "{text}"
        );
        // (Of another thread a reader waits ten seconds for a hook.)
        assert!(took < Duration::from_secs(60), "{took:?}");
        let (_, packets) = raw_file(&file);
        assert!(packets.iter().all(|packet| packet.cpu == METADATA_STREAM));
        let lost = packets.last().map_or(0, |packet| packet.discarded);
        assert!(lost >= 1, "{lost}");
    }
}

/// Calls after a jump up the stack are kept until a hook is deep enough to be certain of the jump, or counted.
#[test]
fn what_follows_a_jump_up_the_stack_is_recorded_or_counted() {
    for compiler in compilers() {
        let program = build(compiler, "jumped_up", &["-finstrument-functions"]);
        let file = program.with_extension("kymo");
        let output = Command::new(&program).arg(&file).output().expect("it runs");
        assert!(output.status.success(), "by {compiler}: {output:?}");
        let text = String::from_utf8(output.stdout).expect("the program prints text");
        let printed = printed(&text);
        let mut recorded = raw_file_of_jumps(&file);
        recorded.retain(|packet| packet.flags == 1);
        let records: Vec<_> = recorded.iter().flat_map(|it| &it.records).collect();
        assert!(records.is_sorted_by_key(|record| record.time));
        let entered = |name: &str| {
            let entered = |kind: &Kind| *kind == Kind::Enter(printed[name].0);
            records.iter().filter(|it| entered(&it.kind)).count() as u64
        };
        let lost = u64::from(recorded.last().map_or(0, |packet| packet.discarded));
        let jumps = printed["jumps"].1;
        assert!(jumps > 200, "{jumps} jumps, by {compiler}");
        assert_eq!(entered("again"), printed["again"].1, "by {compiler}");
        let names = ["few", "many", "deep", "leaf"];
        let made: u64 = names.iter().map(|name| printed[*name].1).sum();
        let there: u64 = names.iter().map(|name| entered(name)).sum();
        // Of a hook that was left it is not known whether its own event was recorded.
        assert!(
            there < made && there + lost >= made,
            "{there} and {lost} of {made}"
        );
        assert!(
            2 * (made - there) + jumps >= lost,
            "{there} and {lost} of {made}"
        );
    }
}

#[test]
fn a_handler_on_a_stack_above_the_interrupted_one_has_not_left_a_hook() {
    let program = build("gcc", "autodisarm", &["-finstrument-functions"]);
    let places = ["above", "local", "coroutine"];
    for (place, how) in places
        .into_iter()
        .flat_map(|place| ["plain", "autodisarm"].map(|how| (place, how)))
    {
        let file = program.with_extension("kymo");
        let output = Command::new(&program)
            .args([place, how])
            .env("KYMO_OUTPUT", &file)
            .env("KYMO_BUFFER", "64M")
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |n: usize| words[n].parse::<usize>().expect("a number");
        let calls = number(1) + number(3);
        let (_, packets) = raw_file(&file);
        let what = format!("{place}, {how}: {text}");
        assert!(packets.iter().all(|it| it.discarded == 0), "{what}");
        let edges = edges(&packets, 0);
        let entered = edges.iter().filter(|(enter, _)| *enter).count();
        assert_eq!((entered, edges.len()), (calls, 2 * calls), "{what}");
    }
}

/// The enters and exits of a recording, as distances from `main`.
fn edges(packets: &[Packet], main: u64) -> Vec<(bool, u64)> {
    let records = packets.iter().flat_map(|packet| &packet.records);
    let edge = |kind: &Kind| match kind {
        Kind::Enter(function) => Some((true, function.wrapping_sub(main))),
        Kind::Exit(function) => Some((false, function.wrapping_sub(main))),
        _ => None,
    };
    records.filter_map(|record| edge(&record.kind)).collect()
}

#[test]
fn assembly_records_what_rust_records() {
    // Not all calls, but every way that a hook can take: see the program.
    let flags = ["-finstrument-functions"];
    let [fast, portable] = [library(), portable_library()].map(|library| {
        let program = build_with(library, "gcc", "paths", &flags);
        let (printed, packets) = record(&program);
        assert!(packets.iter().all(|packet| packet.discarded == 0));
        edges(&packets, printed["main"].0)
    });
    assert!(fast.len() > 10_000, "{} enters and exits", fast.len());
    assert_eq!(fast, portable);
}

/// Number of instructions of a function up to its first return, inclusive: the executed ones if no branch is taken.
fn straight_path(program: &Path, function: &str) -> usize {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(format!("--disassemble={function}"))
        .arg(program)
        .output()
        .expect("objdump comes with the compiler");
    let text = String::from_utf8(output.stdout).expect("a disassembly is text");
    let mut instructions = text.lines().filter_map(|line| line.split(":\t").nth(1));
    let returned = instructions.position(|instruction| instruction.starts_with("ret"));
    returned.expect("the function returns") + 1
}

#[test]
fn a_recorded_entry_or_exit_takes_few_instructions() {
    let program = build("gcc", "paths", &["-finstrument-functions"]);
    let enter = straight_path(&program, "__cyg_profile_func_enter");
    let exit = straight_path(&program, "__cyg_profile_func_exit");
    println!("instructions: enter {enter}, exit {exit}");
    // Two of them look at the stopper, whose depth is counted.
    assert!((20..=43).contains(&enter), "enter: {enter} instructions");
    assert!((20..=42).contains(&exit), "exit: {exit} instructions");
}
