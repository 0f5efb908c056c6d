//! Comparison of Kymo's traces with an independent record of the same run, call by call and in order.
//!
//! The demonstration program is built with a second recorder (`device/tests/naive`), which logs every entry and every exit
//! before Kymo's hooks run. Both records must agree: every call of every thread and of every interrupt handler, in
//! order, in the right context. Where `longjmp` skipped exits, Kymo's repairs must be exactly the calls that are open
//! in the naive record.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::native::{self, CompilerKind};
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// Minimum number of calls in the compared window.
const LEAST_CALLS: usize = 10_000;

/// An event of either record, with its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    what: What,
    /// The thread that ran, or that was interrupted; for a switch, the thread concerned.
    thread: u64,
    /// The interrupt (exception, signal) whose handler ran; 0: none.
    interrupt: u64,
}

/// Functions are identified by their addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Enter(u64),
    Exit(u64),
    SwitchedOut,
    SwitchedIn,
    /// Naive log only: a handler began after its thread had written this many entries.
    Interrupt(u64),
}

/// Reads a log of the naive recorder: 16 bytes per entry, as defined in `naive.h`.
fn naive_log(path: &Path) -> Vec<Entry> {
    let bytes = fs::read(path).unwrap();
    assert_eq!(bytes.len() % 16, 0, "{} is cut", path.display());
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let entry = |bytes: &[u8]| Entry {
        what: match number(&bytes[12..14]) {
            0 => What::Enter(number(&bytes[..8])),
            1 => What::Exit(number(&bytes[..8])),
            3 => What::Interrupt(number(&bytes[..8])),
            kind => panic!("the log is full, or damaged: kind {kind}"),
        },
        thread: number(&bytes[8..12]),
        interrupt: number(&bytes[14..]),
    };
    bytes.chunks_exact(16).map(entry).collect()
}

/// Kymo's reading of an input: the events, and the calls that it closed as skipped by `longjmp`, each with its thread.
#[derive(Default)]
struct Reported {
    entries: Vec<Entry>,
    unwound: Vec<(u64, u64)>,
    /// For each handler its thread, and the number of entries of that thread before it.
    interruptions: Vec<(u64, u64)>,
}

/// Runs `kymo show`, whose JSON is what other programs would use.
fn kymo(kymo: &Path, input: &Path, elf: &Path) -> Reported {
    let info = run::output(
        Command::new(kymo)
            .args(["info", "--format", "json", "--elf"])
            .arg(elf)
            .arg(input),
    );
    let info: Value = serde_json::from_str(&info.unwrap()).unwrap();
    assert_eq!(info["lost"], 0, "nothing is lost: {info}");
    assert_eq!(info["gaps"], 0, "there is no gap: {info}");
    assert_eq!(info["errors"].as_array().unwrap().len(), 0, "{info}");
    // An emulator's clock does not run at this machine's speed; only that is reported.
    let warnings = info["warnings"].as_array().unwrap().iter();
    let others = warnings.filter(|warning| {
        let text = warning.as_str().unwrap();
        !text.contains("by the clock of this computer")
    });
    assert_eq!(others.count(), 0, "its jumps are marked: {info}");

    let mut show = Command::new(kymo);
    show.args(["show", "--format", "json", "--elf"]).arg(elf);
    let mut reported = Reported::default();
    let mut handlers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut own_entries: BTreeMap<u64, u64> = BTreeMap::new();
    for line in run::output(show.arg(input)).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let fields = &line["fields"];
        let thread = line["thread"].as_u64().unwrap_or(0);
        if line["type"] == "repair" && line["reason"] == "longjmp" {
            reported
                .unwound
                .push((thread, line["address"].as_u64().unwrap()));
        }
        let function = fields["function"].as_u64().or(fields["address"].as_u64());
        let open = handlers.entry(thread).or_default();
        let (what, thread) = match line["name"].as_str() {
            Some("enter" | "enter_far") => (What::Enter(function.unwrap()), thread),
            Some("exit" | "exit_far") => (What::Exit(function.unwrap()), thread),
            Some("switched_out") => (What::SwitchedOut, thread),
            Some("switched_in") => (What::SwitchedIn, thread),
            Some("isr_enter") => {
                open.push(fields["irq"].as_u64().unwrap());
                let own = own_entries.get(&thread).copied().unwrap_or(0);
                reported.interruptions.push((thread, own));
                continue;
            }
            Some("isr_exit") => {
                let innermost = open.pop();
                assert!(innermost.is_some(), "handlers nest: {line}");
                let reported = fields["irq"].as_u64();
                assert!(
                    reported.is_none() || reported == innermost,
                    "the innermost ends: {line}"
                );
                continue;
            }
            _ => continue,
        };
        let interrupt = open.last().copied().unwrap_or(0);
        if interrupt == 0 {
            *own_entries.entry(thread).or_default() += 1;
        }
        reported.entries.push(Entry {
            what,
            thread,
            interrupt,
        });
    }
    reported
}

/// The calls left open by an exit of an outer function: those are the ones that `longjmp` skipped. An exit without an
/// entry belongs to a call that began before the record, and skips nothing.
fn unwound<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u64> {
    let mut stack = Vec::new();
    let mut skipped = Vec::new();
    for entry in entries {
        match entry.what {
            What::Enter(function) => stack.push(function),
            What::Exit(function) => {
                if let Some(at) = stack.iter().rposition(|open| *open == function) {
                    skipped.extend(stack.drain(at + 1..).rev());
                    stack.pop();
                }
            }
            _ => {}
        }
    }
    skipped
}

fn enters(entries: &[Entry]) -> usize {
    let is_enter = |entry: &&Entry| matches!(entry.what, What::Enter(_));
    entries.iter().filter(is_enter).count()
}

/// Fails at the first difference between two records, and shows the entries around it.
#[track_caller]
fn assert_same<T: PartialEq + Debug>(what: &str, naive: &[T], kymo: &[T]) {
    if let Some(at) = naive.iter().zip(kymo).position(|(a, b)| a != b) {
        let around = at.saturating_sub(3)..at + 4;
        let around = |list: &[T]| format!("{:x?}", &list[around.start..around.end.min(list.len())]);
        panic!(
            "{what}: {at} of {} differs\nnaive: {}\nkymo:  {}",
            naive.len(),
            around(naive),
            around(kymo),
        );
    }
    assert_eq!(naive.len(), kymo.len(), "{what}: how many");
}

/// A new folder below cargo's target folder.
fn folder(name: &str) -> PathBuf {
    let folder = run::target_dir().join("truth").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Entries by thread; those of handlers are separate from the thread's own.
fn by_context(entries: &[Entry]) -> BTreeMap<(u64, bool), Vec<Entry>> {
    let mut contexts: BTreeMap<_, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        let context = (entry.thread, entry.interrupt != 0);
        contexts.entry(context).or_default().push(*entry);
    }
    contexts
}

fn native_run_is_told_truly(compiler: CompilerKind) {
    tools::require(&[Need::Native, Need::Checks]).unwrap();
    let tool = kymo::build(Profile::Debug).unwrap();
    let program = native::build(compiler, Hooks::Naive).unwrap();
    let folder = folder(compiler.program());
    let raw = folder.join("trace.kymo");
    let mut command = Command::new(&program);
    command.args(["--rounds", "2"]).env("KYMO_OUTPUT", &raw);
    run::run(command.current_dir(&folder)).unwrap();

    let log = naive_log(&folder.join("naive.log"));
    let begun = |entry: &Entry| match entry.what {
        What::Interrupt(entries) => Some(entries),
        _ => None,
    };
    let (handlers, mut calls): (Vec<Entry>, Vec<Entry>) =
        log.iter().partition(|entry| begun(entry).is_some());
    let reported = kymo(&tool, &raw, &program);

    // The position of a handler may differ by the event that was being written. Only one thread unblocks signals, so
    // both lists are in time order.
    for (entry, (thread, kymo)) in handlers.iter().zip(&reported.interruptions) {
        assert_eq!(entry.thread, *thread, "thread of a signal");
        let naive = begun(entry).unwrap_or_default();
        assert!(naive.abs_diff(*kymo) <= 1, "signal at {naive}, not {kymo}");
    }
    assert_eq!(handlers.len(), reported.interruptions.len(), "signals");

    let (naive, mut kymo) = (by_context(&calls), by_context(&reported.entries));
    // A thread that has ended by then also has a final switch out.
    for entries in kymo.values_mut() {
        entries.pop_if(|entry| entry.what == What::SwitchedOut);
    }
    assert_eq!(
        naive.keys().collect::<Vec<_>>(),
        kymo.keys().collect::<Vec<_>>(),
        "threads and handlers"
    );
    let mut skipped = 0;
    for (context, naive) in &naive {
        assert_same(&format!("{context:?}"), naive, &kymo[context]);
        let (thread, in_handler) = *context;
        if !in_handler {
            let naive = unwound(naive);
            let of_thread = reported.unwound.iter().filter(|(of, _)| *of == thread);
            let kymo: Vec<u64> = of_thread.map(|(_, function)| *function).collect();
            assert_same(
                &format!("calls that longjmp skipped in {thread}"),
                &naive,
                &kymo,
            );
            skipped += naive.len();
        }
    }

    calls.retain(|entry| entry.interrupt == 0);
    let (calls, signals) = (enters(&calls), handlers.len());
    println!("{calls} calls, {signals} signals, {skipped} calls skipped by longjmp: the same");
    assert!(calls >= LEAST_CALLS && signals >= 10 && skipped >= 10);
}

#[test]
fn a_native_run_built_by_gcc_is_told_truly() {
    native_run_is_told_truly(CompilerKind::Gcc);
}

#[test]
fn a_native_run_built_by_clang_is_told_truly() {
    native_run_is_told_truly(CompilerKind::Clang);
}

/// The addresses of a program's functions, by name.
fn functions(elf: &Path) -> BTreeMap<String, u64> {
    let text = run::output(Command::new("arm-none-eabi-nm").arg(elf)).unwrap();
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    text.lines().filter_map(symbol).collect()
}

/// The naive log of the firmware in Kymo's terms: addresses without the Thumb bit, and the scheduler's promoted
/// functions as the events that they represent.
fn promoted(log: &[Entry], functions: &BTreeMap<String, u64>) -> Vec<Entry> {
    let out = functions["scheduler_switched_out"];
    let r#in = functions["scheduler_switched_in"];
    let translate = |entry: &Entry| {
        let what = match entry.what {
            What::Enter(function) if function & !1 == out => What::SwitchedOut,
            What::Enter(function) if function & !1 == r#in => What::SwitchedIn,
            What::Exit(function) if [out, r#in].contains(&(function & !1)) => return None,
            What::Enter(function) => What::Enter(function & !1),
            What::Exit(function) => What::Exit(function & !1),
            other => other,
        };
        // PendSV, which switches threads, is not reported to Kymo as an interrupt.
        let interrupt = match what {
            What::SwitchedOut | What::SwitchedIn => 0,
            _ => entry.interrupt,
        };
        Some(Entry {
            what,
            interrupt,
            ..*entry
        })
    };
    let mut entries: Vec<Entry> = log.iter().filter_map(translate).collect();
    // An interrupt in the middle of a switch interrupts no thread: one has been switched out, and the other not yet in.
    let mut switching = false;
    for entry in &mut entries {
        match entry.what {
            What::SwitchedOut => switching = true,
            What::SwitchedIn => switching = false,
            _ if switching && entry.interrupt != 0 => entry.thread = 0,
            _ => {}
        }
    }
    entries
}

#[test]
fn a_run_on_a_cortex_m3_is_told_truly() {
    tools::require(&[Need::Firmware]).unwrap();
    let tool = kymo::build(Profile::Debug).unwrap();
    let elf = firmware::build(Hooks::Naive, &BareRust::find().unwrap()).unwrap();
    let folder = folder("firmware");
    let trace = folder.join("trace");
    let qemu = Qemu::boot(&elf, &folder, true).unwrap();
    let mut command = Command::new(&tool);
    command.env("KYMO_PATIENCE", "20");
    command.args(["trace", "--target", &qemu.target(), "--elf"]);
    run::run(command.arg(&elf).arg("--output").arg(&trace)).unwrap();
    drop(qemu);

    let functions = functions(&elf);
    let first_round = functions["program_first_round"];
    let log = promoted(&naive_log(&folder.join("naive.log")), &functions);
    // The recording contains everything between trigger and stopper, inclusive.
    let place = |what| log.iter().position(|entry| entry.what == what);
    let begin = place(What::Enter(first_round)).unwrap();
    let end = place(What::Exit(first_round)).unwrap();
    let naive = &log[begin..=end];
    let reported = kymo(&tool, &trace, &elf);
    assert_same("in the order of time", naive, &reported.entries);

    let mut skipped = 0;
    for ((thread, in_handler), naive) in by_context(naive) {
        if !in_handler {
            let naive = unwound(&naive);
            let of_thread = reported.unwound.iter().filter(|(of, _)| *of == thread);
            let kymo: Vec<u64> = of_thread.map(|(_, function)| *function).collect();
            assert_same(
                &format!("calls that longjmp skipped in {thread:#x}"),
                &naive,
                &kymo,
            );
            skipped += naive.len();
        }
    }

    let calls = enters(naive);
    let switches = naive.iter().filter(|e| e.what == What::SwitchedIn).count();
    let interrupts = reported.interruptions.len();
    println!(
        "{calls} calls, {switches} thread switches, {interrupts} interrupts, {skipped} calls \
         skipped by longjmp: the same"
    );
    assert!(calls >= LEAST_CALLS && switches >= 1 && interrupts >= 1 && skipped >= 1);
}
