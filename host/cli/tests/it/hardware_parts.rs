//! Options that select a part of a hardware trace give the same part in all subcommands. The trace has two processes
//! that run different code at the same address on one CPU.

use std::path::PathBuf;
use std::process::{Command, Output};

use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::{AUX_RAW, AUX_TRUNCATED, PerfData};
use tempfile::TempDir;

/// Address of the code of both processes.
const HERE: u64 = 0x40_0000;

/// Code of the processes: three instructions of process 1, two of process 2.
const FILES: [(&str, &[u32]); 2] = [
    ("three", &[0xd503_201f, 0xd503_201f, 0xd65f_03c0]),
    ("two", &[0xd503_201f, 0xd65f_03c0]),
];

/// Recording of CPU 0: process 1, `first`, runs twice and process 2, `second`, once in between.
struct Case {
    folder: TempDir,
    input: PathBuf,
}

impl Case {
    fn new() -> Self {
        let trace = Trace::new(true).run(1, HERE).run(2, HERE).run(1, HERE);
        Case::of(true, &trace, |_| {})
    }

    /// The same recording with timestamps and `switches` instead of context IDs.
    fn without_ids(switches: impl FnOnce(&mut PerfData)) -> Self {
        let trace = Trace::new(false).time(4000).run(0, HERE);
        let trace = trace.time(6000).run(0, HERE).time(8000).run(0, HERE);
        Case::of(false, &trace.time(8500), switches)
    }

    fn of(has_ids: bool, trace: &Trace, sideband: impl FnOnce(&mut PerfData)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, words) in FILES {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            std::fs::write(folder.path().join(name), code).expect("code");
        }
        let mut perf = recording(has_ids, |perf| {
            perf.at(1000).comm(1, "first");
            perf.at(1000).comm(2, "second");
            perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
            perf.at(2100).mapping(2, HERE, 0x1000, 0, "/two");
            sideband(perf);
        });
        perf.at(9000)
            .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
        perf.buffer(None, 0, 0, &trace.bytes);
        let input = folder.path().join("perf.data");
        std::fs::write(&input, perf.file()).expect("a recording");
        Case { folder, input }
    }

    fn run(&self, words: &[&str]) -> Output {
        let (subcommand, options) = words.split_first().expect("a subcommand");
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.arg(subcommand).arg(&self.input);
        command.arg("--symfs").arg(self.folder.path());
        command.args(options).output().expect("kymo runs")
    }

    fn stdout(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Sums a member over the lines of JSON.
    fn sum(&self, words: &[&str], member: &str) -> u64 {
        let text = self.stdout(&[words, &["--format", "json"]].concat());
        let lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line[member].as_u64().unwrap_or(0)
        });
        lines.sum()
    }
}

#[test]
fn processes_are_chosen_by_number_and_name_in_every_subcommand() {
    let case = Case::new();
    let all: &[&str] = &[];
    for (option, instructions, executions) in [
        (all, 8, 3),
        (&["--process", "1"], 6, 2),
        (&["--pid", "first"], 6, 2),
        (&["--process", "sec*"], 2, 1),
        (&["--thread", "2"], 2, 1),
        (&["--process", "second", "--cpu", "0", "--id", "10"], 2, 1),
    ] {
        let with = |words: &[&'static str]| [words, option].concat();
        assert_eq!(
            case.sum(&with(&["hotspots"]), "instructions"),
            instructions,
            "{option:?}"
        );
        assert_eq!(
            case.sum(&with(&["ranges"]), "instructions"),
            instructions,
            "{option:?}"
        );
        assert_eq!(
            case.sum(&with(&["report"]), "self_instructions"),
            instructions,
            "{option:?}"
        );
        assert_eq!(
            case.sum(&with(&["graph"]), "self_instructions"),
            instructions,
            "{option:?}"
        );
        assert_eq!(
            case.sum(&with(&["calls"]), "self_instructions"),
            instructions,
            "{option:?}"
        );
        let listed = case.stdout(&with(&["disasm", "--format", "json"]));
        let listed = listed
            .lines()
            .filter(|line| line.contains("\"instruction\""));
        assert_eq!(listed.count() as u64, instructions, "{option:?}");
        let shown = case.stdout(&with(&["show", "--events"]));
        let entries = shown.lines().filter(|line| line.contains("enter"));
        assert_eq!(entries.count(), executions, "{option:?}");
        let packets = case.stdout(&with(&["packets"]));
        let atoms = packets.lines().filter(|line| line.contains("I_ATOM_F1"));
        assert_eq!(atoms.count(), executions, "{option:?}");
        let folded = case.stdout(&with(&["export", "--to", "folded", "-o", "-"]));
        let counts = folded.lines().filter_map(|line| line.rsplit(' ').next());
        let sum: u64 = counts.filter_map(|count| count.parse::<u64>().ok()).sum();
        assert_eq!(sum, instructions, "{option:?}: {folded}");
    }
}

#[test]
fn threads_come_from_the_kernel_s_switches_where_the_trace_does_not_say_them() {
    let case = Case::without_ids(|perf| {
        perf.at(3000).switch(1, 0);
        perf.at(5000).switch(2, 0);
        perf.at(7000).switch(1, 0);
    });
    for (process, instructions, calls) in [("first", 6, 2), ("second", 2, 1)] {
        for (subcommand, member, expected) in [
            ("hotspots", "instructions", instructions),
            ("ranges", "instructions", instructions),
            ("report", "count", calls),
        ] {
            let sum = case.sum(&[subcommand, "--process", process], member);
            assert_eq!(sum, expected, "{subcommand} {process}");
        }
    }
    let listed = case.stdout(&["branches"]);
    assert!(
        listed.contains("first") && listed.contains("second"),
        "{listed}"
    );
}

#[test]
fn a_trace_that_tells_no_threads_is_refused_where_some_are_chosen() {
    let case = Case::without_ids(|_| {});
    for subcommand in [
        &["packets"][..],
        &["ranges"],
        &["branches"],
        &["disasm"],
        &["hotspots"],
        &["export", "--to", "autofdo", "-o", "-"],
    ] {
        for option in [["--process", "first"], ["--thread", "2"]] {
            let refused = case.refused(&[subcommand, &option].concat());
            let expected = format!("{}: the trace does not tell threads", option[0]);
            assert!(refused.contains(&expected), "{subcommand:?}: {refused}");
            assert!(
                refused.contains("--switch-events"),
                "{subcommand:?}: {refused}"
            );
        }
    }
    // In these subcommands, only events can name the process.
    for subcommand in ["report", "graph", "calls", "show"] {
        let refused = case.refused(&[subcommand, "--process", "first"]);
        assert!(refused.contains("no process first"), "{refused}");
    }
}

#[test]
fn profiles_of_counts_take_parts_too() {
    let case = Case::new();
    let profile = |words: &[&str]| {
        let all = [&["export", "--to", "autofdo", "-o", "-"], words].concat();
        case.stdout(&all)
    };
    let both = profile(&[]);
    assert!(both.contains("0-8:2") && both.contains("0-4:1"), "{both}");
    let second = profile(&["--process", "second"]);
    assert!(
        !second.contains("0-8") && second.contains("0-4:1"),
        "{second}"
    );
    let refused = case.refused(&["export", "--to", "lcov", "--depth", "2"]);
    assert!(refused.contains("--depth chooses"), "{refused}");
}

#[test]
fn addresses_choose_packets_ranges_and_calls() {
    let case = Case::new();
    // Only the longer code has instructions at the first range.
    let (there, nowhere) = ("0x400008..0x40000c", "0x500000..0x500010");
    let count = |words: &[&str], what: &str| {
        let text = case.stdout(words);
        text.lines().filter(|line| line.contains(what)).count()
    };
    assert_eq!(count(&["packets", "--address", there], "I_ATOM_F1"), 2);
    assert_eq!(count(&["packets", "--address", there], ""), 2);
    let decoded = ["packets", "--decode", "--address", there];
    assert_eq!(count(&decoded, "INSTR_RANGE"), 2);
    assert_eq!(count(&["packets", "--address", nowhere], ""), 0);
    assert_eq!(count(&["ranges", "--address", there], "INSTR_RANGE"), 2);
    // Without symbols, a function is known only by its first address.
    let begins = ["report", "--address", "0x400000..0x400004"];
    assert_eq!(case.sum(&begins, "self_instructions"), 8);
    let inside = ["report", "--address", there];
    assert_eq!(case.sum(&inside, "self_instructions"), 0);
}

#[test]
fn addresses_within_a_function_choose_its_calls() {
    let input = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/coresight-code");
    let counts = |subcommand: &str, addresses: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command.args([
            subcommand,
            "--format",
            "json",
            "--address",
            addresses,
            input,
        ]);
        let output = command.output().expect("kymo runs");
        assert!(output.status.success(), "{subcommand} {addresses}");
        let text = String::from_utf8(output.stdout).expect("text");
        let lines = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            line["count"].as_u64().unwrap_or(1)
        });
        lines.sum::<u64>()
    };
    // main, which begins at 0x400144, calls sum, at 0x40010c, twice.
    for (addresses, calls) in [
        ("0x400128..0x40012c", 2),
        ("0x400100..0x40010d", 2),
        ("0x400140..0x40014c", 3),
        ("0x400100..0x40010c", 0),
    ] {
        for subcommand in ["report", "graph", "calls"] {
            assert_eq!(
                counts(subcommand, addresses),
                calls,
                "{subcommand} {addresses}"
            );
        }
    }
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let case = Case::new();
    for subcommand in ["packets", "ranges", "report", "show", "calls", "graph"] {
        let refused = case.refused(&[subcommand, "--id", "11"]);
        assert!(
            refused.contains("no trace ID 11") && refused.contains("trace IDs are 10"),
            "{subcommand}: {refused}"
        );
    }
}

/// A name that the trace does not have is an error, with the same message in all subcommands.
#[test]
fn names_of_nothing_are_refused_alike() {
    let case = Case::new();
    for (option, wanted, expected) in [
        ("--process", "nosuch", "the trace has no process nosuch"),
        ("--process", "no*", "the trace has no process no*"),
        ("--thread", "nosuch", "the trace has no thread nosuch"),
        ("--function", "nosuch", "there is no function nosuch"),
        ("--cpu", "7", "the trace has no processor 7"),
    ] {
        for subcommand in [
            &["ranges"][..],
            &["disasm"],
            &["hotspots"],
            &["report"],
            &["graph"],
            &["calls"],
            &["show"],
            &["export", "--to", "folded", "-o", "-"],
            &["export", "--to", "autofdo", "-o", "-"],
        ] {
            let refused = case.refused(&[subcommand, &[option, wanted]].concat());
            assert!(refused.contains(expected), "{subcommand:?}: {refused}");
        }
    }
    // One missing name is an error even if the other one exists.
    let refused = case.refused(&["report", "--process", "first", "--process", "nosuch"]);
    assert!(refused.contains("no process nosuch"), "{refused}");
    let refused = case.refused(&["ranges", "--process", "first", "--process", "nosuch"]);
    assert!(refused.contains("no process nosuch"), "{refused}");
}

#[test]
fn profiles_are_of_chosen_binaries() {
    let case = Case::new();
    let profile = |words: &[&str]| {
        let all = [&["export", "--to", "autofdo", "-o", "-"], words].concat();
        case.stdout(&all)
    };
    let both = profile(&[]);
    let binaries: Vec<&str> = both
        .lines()
        .filter_map(|line| line.strip_prefix("// /"))
        .collect();
    assert_eq!(binaries.len(), 2, "{both}");
    let name = binaries[0].rsplit('/').next().expect("a name");
    let one = profile(&["--binary", name]);
    assert!(both.starts_with(one.trim_end()), "{one}");
    assert!(!one.contains(binaries[1]), "{one}");
    let refused = case.refused(&["export", "--to", "autofdo", "-o", "-", "--binary", "nosuch"]);
    assert!(
        refused.contains("no binary nosuch") && refused.contains(name),
        "{refused}"
    );
    let refused = case.refused(&["export", "--to", "folded", "-o", "-", "--binary", name]);
    assert!(refused.contains("--binary"), "{refused}");
}

#[test]
fn exports_do_not_depend_on_how_many_threads_work() {
    let case = Case::new();
    for format in ["trace-event", "folded", "json"] {
        let export = |threads: &str| {
            case.stdout(&["export", "--to", format, "-o", "-", "--threads", threads])
        };
        let one = export("1");
        for threads in ["2", "3", "8"] {
            assert_eq!(one, export(threads), "{format}, {threads} threads");
        }
    }
    let trace = case.stdout(&["export", "--to", "trace-event", "-o", "-", "--threads", "3"]);
    assert!(trace.contains("\"pid\":2"), "{trace}");
}

/// Creates a recording of CPU 0 with two sessions of its trace unit, 5 ms apart.
fn two_sessions() -> Case {
    let case = Case::new();
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let run = |trace: Trace, times: usize| (0..times).fold(trace, |trace, _| trace.run(1, HERE));
    let first = run(run(Trace::new(true).time(1000), 10).time(1060), 10).bytes;
    let second = run(
        run(Trace::new(true).time(5_000_000), 10).time(5_000_060),
        10,
    )
    .bytes;
    let offset = first.len() as u64;
    perf.at(9000).aux(0, 0, 0, offset, AUX_RAW);
    perf.at(9_000_000)
        .aux(0, 0, offset, second.len() as u64, AUX_RAW);
    perf.buffer(None, 0, 0, &[first, second].concat());
    std::fs::write(&case.input, perf.file()).expect("a recording");
    case
}

/// Writes a recording of CPU 0 with one session for each piece of trace, in buffers of their own or in one buffer.
fn pieces(case: &Case, pieces: &[&[u8]], flags: u64, is_one_buffer: bool) {
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let mut offset = 0;
    for (piece, time) in pieces.iter().zip((3000..).step_by(1000)) {
        let size = piece.len() as u64;
        perf.at(time).aux(0, 0, offset, size, AUX_RAW | flags);
        if !is_one_buffer {
            perf.buffer(None, 0, offset, piece);
        }
        offset += size;
    }
    if is_one_buffer {
        perf.buffer(None, 0, 0, &pieces.concat());
    }
    std::fs::write(&case.input, perf.file()).expect("a recording");
}

#[test]
fn each_processor_has_an_idle_task_of_its_own() {
    let case = Case::new();
    let trace = Trace::new(true).run(1, HERE).run(0, HERE).run(1, HERE);
    let perf = |trace: &Trace| {
        let mut perf = recording(true, |perf| {
            perf.at(1000).comm(1, "first");
            perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        });
        let size = trace.bytes.len() as u64;
        perf.at(9000).aux(0, 0, 0, size, AUX_RAW);
        perf.buffer(None, 0, 0, &trace.bytes);
        std::fs::write(&case.input, perf.file()).expect("a recording");
        case.stdout(&["show", "--events"])
    };
    let shown = perf(&trace);
    assert!(shown.contains("swapper/0"), "{shown}");
    // Without context IDs from the kernel, the context ID is 0.
    let shown = perf(&Trace::new(true).run(0, HERE));
    assert!(!shown.contains("swapper"), "{shown}");
}

#[test]
fn sessions_that_adjoin_miss_nothing() {
    let case = Case::new();
    let whole = Trace::new(true)
        .run(1, HERE)
        .run(1, HERE)
        .run(1, HERE)
        .bytes;
    // The split is within a packet.
    let (first, second) = whole.split_at(whole.len() - 24);
    pieces(&case, &[&whole], 0, true);
    let expected = case.stdout(&["show", "--events"]);
    for is_one_buffer in [true, false] {
        pieces(&case, &[first, second], 0, is_one_buffer);
        assert_eq!(case.stdout(&["show", "--events"]), expected);
    }
    assert_eq!(case.sum(&["hotspots"], "instructions"), 9);
    pieces(&case, &[first, second], AUX_TRUNCATED, true);
    let shown = case.stdout(&["show", "--events"]);
    assert!(shown.contains("~~~"), "{shown}");
    // After restarts of the trace unit, separate buffers give the same result as one buffer.
    let again = Trace::new(true).time(1000).run(1, HERE);
    let again = again.time(1010).run(1, HERE).bytes;
    pieces(&case, &[&again, &again, &again], 0, true);
    let expected = case.stdout(&["show", "--events"]);
    pieces(&case, &[&again, &again, &again], 0, false);
    assert_eq!(case.stdout(&["show", "--events"]), expected);
}

#[test]
fn time_in_which_nothing_is_traced_is_no_function_s() {
    let case = two_sessions();
    let spent = case.sum(&["report"], "self_ns");
    // 40 runs of three instructions with 2 ns each.
    assert!(spent > 0 && spent <= 240, "{spent}");
    let info = case.stdout(&["info"]);
    assert!(info.contains("nothing was traced for a while"), "{info}");
}

#[test]
fn a_call_opens_at_the_times_that_are_shown_of_it() {
    let case = two_sessions();
    let calls = case.stdout(&["calls", "--format", "json"]);
    let line = calls.lines().nth(4).expect("a call");
    let call: serde_json::Value = serde_json::from_str(line).expect("JSON");
    let begin = call["begin_ns"].as_i64().expect("a time");
    let end = call["end_ns"].as_i64().expect("a time");
    assert!(end > begin, "{call}");
    let after = format!("+{}ns", begin - 1000);
    let (begin, end) = (format!("{begin}ns"), format!("{end}ns"));
    let window = ["--begin", &begin, "--end", &end];
    let disasm = case.stdout(&[&["disasm", "--format", "json"], &window[..]].concat());
    let instructions = disasm
        .lines()
        .filter(|line| line.contains("\"instruction\""));
    let addresses: Vec<_> = instructions
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(line["timestamp"], 1000, "{line}");
            line["address_hex"].as_str().expect("a text").to_owned()
        })
        .collect();
    assert_eq!(addresses, ["0x400000", "0x400004", "0x400008"]);
    assert_eq!(
        case.sum(&[&["hotspots"], &window[..]].concat(), "instructions"),
        3
    );
    assert_eq!(
        case.sum(&[&["ranges"], &window[..]].concat(), "instructions"),
        3
    );
    // Windows with only one bound are complementary.
    let rest = case.sum(&["hotspots", "--begin", &begin], "instructions");
    let before = case.sum(&["hotspots", "--end", &begin], "instructions");
    assert_eq!(case.sum(&["hotspots"], "instructions"), 120);
    assert_eq!(rest + before, 120);
    // Times relative to the first timestamp, which is 1000.
    for subcommand in ["hotspots", "ranges"] {
        let sum =
            |arguments: &[&str]| case.sum(&[&[subcommand], arguments].concat(), "instructions");
        assert_eq!(sum(&["--begin", "+0"]), 120, "{subcommand}");
        assert_eq!(sum(&["--begin", &after]), rest, "{subcommand}");
        assert_eq!(sum(&["--end", &after]), before, "{subcommand}");
    }
    let hint = case.run(&["calls", "-n", "1"]);
    let hint = String::from_utf8_lossy(&hint.stderr).into_owned();
    assert!(hint.contains("kymo disasm --cpu 0 --begin "), "{hint}");
    let refused = case.refused(&["disasm", "--begin", "99999999999999"]);
    assert!(
        refused.contains("seconds, or a number with a unit"),
        "{refused}"
    );
}

#[test]
fn counts_of_functions_are_chosen_by_function_and_address() {
    let case = Case::new();
    let autofdo = [
        "export",
        "--to",
        "autofdo",
        "-o",
        "-",
        "--address",
        "0x400008..0x40000c",
    ];
    let profile = case.stdout(&autofdo);
    assert!(
        profile.starts_with("1\n8-8:2\n") && !profile.contains("0-"),
        "{profile}"
    );
}

#[test]
fn what_hardware_trace_has_no_use_for_is_refused() {
    let case = Case::new();
    for (words, expected) in [
        (&["report", "--baud", "9600"][..], "--baud is not"),
        (&["report", "--with", "nosuch"], "nosuch: "),
        (&["report", "--vmlinux", "/nonexistent"], "/nonexistent: "),
        (&["ranges", "--vmlinux", "/nonexistent"], "/nonexistent: "),
    ] {
        let refused = case.refused(words);
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn recordings_come_through_the_standard_input() {
    let case = Case::new();
    let symfs = case.folder.path().display().to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["ranges", "-", "--symfs", &symfs]);
    let input = std::fs::File::open(&case.input).expect("the recording");
    let output = command.stdin(input).output().expect("kymo runs");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        case.stdout(&["ranges"])
    );
}
