//! Recordings of programs that could not save them: killed, crashed, replaced by another program.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::{Command, Output};

use kymo_event::EventKind;
use kymo_read::{Events, OpenOptions, Source, open};

use crate::recorder::build;

/// Numbers of calls, markers and gaps in a recording.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    entered: usize,
    left: usize,
    markers: usize,
    gaps: usize,
}

fn counts(path: &Path) -> (Counts, Box<dyn Source>) {
    let mut source = open(path, &OpenOptions::default()).unwrap();
    let mut counts = Counts::default();
    for event in Events::new(&mut source).map(Result::unwrap) {
        match event.kind {
            EventKind::Enter { .. } => counts.entered += 1,
            EventKind::Exit { .. } => counts.left += 1,
            EventKind::Marker { .. } => counts.markers += 1,
            EventKind::Gap(_) => counts.gaps += 1,
            _ => {}
        }
    }
    (counts, source)
}

/// The complete recording of the program, after both threads have ended.
const ALL: Counts = Counts {
    entered: 2 * 3001,
    left: 2 * 3001,
    markers: 1,
    gaps: 0,
};

fn calls(count: usize) -> Counts {
    Counts {
        entered: count,
        left: count,
        ..Counts::default()
    }
}

fn run(program: &Path, how: &str, raw: &Path) -> Output {
    Command::new(program)
        .arg(how)
        .env("KYMO_OUTPUT", raw)
        .output()
        .unwrap()
}

fn is_unfinished(source: &dyn Source) -> bool {
    let remarks = &source.info().remarks;
    remarks
        .iter()
        .any(|remark| remark.contains("has not completed"))
}

#[test]
fn a_killed_program_has_lost_nothing() {
    let (folder, program) = build("gcc", "dying.c");
    // (Where a thread still runs at exit, the file is left as it is.)
    for how in ["kill", "segv", "abort", "term", "_exit", "running", "exit"] {
        let raw = folder.path().join(how);
        let output = run(&program, how, &raw);
        let killed = !matches!(how, "_exit" | "running" | "exit");
        assert_eq!(output.status.code().is_none(), killed, "{how}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{how}");
        let (counts, source) = counts(&raw);
        assert_eq!(counts, ALL, "{how}");
        assert_eq!(is_unfinished(&*source), how != "exit", "{how}");
        let info = source.info();
        assert!(info.clock_hz.is_some_and(|hz| hz > 1_000_000), "{how}");
        let named = info
            .identities
            .threads()
            .iter()
            .any(|thread| thread.name.as_deref() == Some("the worker"));
        // Of a thread that has ended the kernel knows no name.
        assert_eq!(named, how != "exit", "{how}");
    }
}

/// A damaged file of a killed process is not reported as complete.
#[test]
fn what_is_damaged_in_a_killed_programs_file_is_told_and_the_rest_read() {
    const REGION: usize = 64 << 10;
    let (folder, program) = build("gcc", "dying.c");
    let raw = folder.path().join("kill");
    run(&program, "kill", &raw);
    let whole = std::fs::read(&raw).unwrap();
    let regions: Vec<_> = (REGION..whole.len())
        .step_by(REGION)
        .filter(|at| whole[*at..].starts_with(&0x4B59_4D52_u32.to_le_bytes()))
        .collect();
    let of_thread = |at: &&usize| whole[**at + 4] == 1;
    let threads: Vec<_> = regions.iter().filter(of_thread).copied().collect();
    assert!(threads.len() >= 2, "{threads:?}");
    let last = *regions.last().unwrap();
    let damaged = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let (counts, source) = counts(&path);
        let damage = source.info().damage.clone();
        assert!(!damage.is_empty(), "{name}");
        let remarks = &source.info().remarks;
        let all = remarks
            .iter()
            .any(|remark| remark.contains("all that was recorded"));
        assert!(!all, "{name}: {remarks:?}");
        (counts.entered, damage[0].offset)
    };
    let with = |at: usize, bytes: &[u8]| {
        let mut copy = whole.clone();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        copy
    };
    // Truncated at the end of a region, and within one.
    assert_eq!(damaged("cut", &whole[..last]).1, last as u64);
    damaged("cut-in", &whole[..last + REGION / 2]);
    // Damage of one thread's region: its mark, its size, the offsets of its packets and its rings, and the end of its
    // newest packet.
    let one = threads[0];
    for (name, at) in [
        ("mark", 0),
        ("size", 8),
        ("packets", 32),
        ("rings", 68),
        ("cursor", 0),
    ] {
        let at = match name {
            "cursor" => {
                one + u32::from_le_bytes(*whole[one + 48..].first_chunk().unwrap()) as usize
            }
            _ => one + at,
        };
        let (entered, offset) = damaged(name, &with(at, &[0x55, 0x55, 0x55, 0x55]));
        assert!(
            (one as u64..(one + 4 * REGION) as u64).contains(&offset),
            "{name}: {offset}"
        );
        assert!(entered >= 3001, "{name}: {entered}");
    }
    // A second recording after the first.
    let (entered, offset) = damaged("twice", &[&whole[..], &whole[..]].concat());
    assert_eq!((entered, offset), (ALL.entered, whole.len() as u64));
}

#[test]
fn a_program_that_another_one_replaces_keeps_its_recording() {
    let (folder, program) = build("gcc", "dying.c");
    let raw = folder.path().join("raw");
    assert!(run(&program, "exec", &raw).status.success());
    let (before, source) = counts(&raw);
    assert_eq!(before, ALL);
    assert!(is_unfinished(&*source));
    // The new program runs in the same process, so it records into a second file.
    let (after, _) = counts(&folder.path().join("raw.1"));
    assert_eq!(after, calls(2));
}

#[test]
fn each_process_of_a_tree_has_a_file() {
    let (folder, program) = build("gcc", "dying.c");
    for pattern in ["plain", "at-%p-100%%"] {
        let output = run(&program, "tree", &folder.path().join(pattern));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{pattern}");
        let children: Vec<&str> = text.lines().collect();
        let [killed, exited, silent, replaced] = children[..] else {
            panic!("{text}");
        };
        let of = |child: &str| match pattern {
            "plain" => format!("plain.{child}"),
            _ => format!("at-{child}-100%"),
        };
        let count = |name: &str| counts(&folder.path().join(name)).0;
        assert_eq!(count(&of(killed)), calls(3001), "{pattern}");
        assert_eq!(count(&of(exited)), calls(1), "{pattern}");
        assert!(!folder.path().join(of(silent)).exists(), "{pattern}");
        // The program started with exec records into its own file, whatever the name pattern.
        let own = match pattern {
            "plain" => "plain.1".to_owned(),
            _ => of(replaced),
        };
        assert_eq!(count(&own), calls(2), "{pattern}");
    }
    // The parent's file has only its own calls.
    assert_eq!(counts(&folder.path().join("plain")).0, calls(2));
}

#[test]
fn an_older_recording_is_kept() {
    let (folder, program) = build("gcc", "dying.c");
    let raw = folder.path().join("raw");
    for how in ["kill", "exit", "after-exec"] {
        run(&program, how, &raw);
    }
    let (newest, _) = counts(&raw);
    assert_eq!(newest, calls(2));
    let (older, source) = counts(&folder.path().join("raw.old"));
    assert_eq!(older, ALL);
    assert!(!is_unfinished(&*source));
}

#[test]
fn what_the_disk_refuses_is_said_in_words() {
    let (folder, program) = build("gcc", "dying.c");
    let output = run(&program, "exit", &folder.path().join("no/such/raw"));
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("cannot record into"), "{errors}");
    assert!(errors.contains("no such file or directory"), "{errors}");
    assert!(errors.contains("cannot save to"), "{errors}");

    // A limit of the file size has the same effect as a full disk.
    let raw = folder.path().join("raw");
    let script = "ulimit -f 64; trap '' XFSZ; exec \"$0\" exit";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(&program)
        .env("KYMO_OUTPUT", &raw)
        .output()
        .unwrap();
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("the file would be too large"), "{errors}");

    // A path that is not a regular file is written to, not replaced.
    let output = run(&program, "exit", Path::new("/dev/null"));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(!Path::new("/dev/null").is_file());
}

#[test]
fn a_program_that_records_nothing_says_so() {
    let (folder, program) = build("gcc", "dying.c");
    let raw = folder.path().join("raw");
    let output = run(&program, "nothing", &raw);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("no hook was called"), "{errors}");
    assert!(errors.contains("-u,__cyg_profile_func_enter"), "{errors}");
    let output = std::process::Command::new(&program)
        .arg("exit")
        .env("KYMO_OUTPUT", &raw)
        .env("KYMO_ON", "0")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("never turned on"), "{errors}");
}
