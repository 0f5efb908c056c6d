//! Subcommands for hardware trace, compared with perf's output for the same files.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_fixtures::captures;

/// Runs a subcommand.
pub fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().expect("kymo runs")
}

/// Runs a subcommand that must succeed, and returns its stdout.
pub fn stdout(arguments: &[&str]) -> String {
    let output = kymo(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a subcommand on a perf.data file of the captures, and returns its stdout.
pub fn of_perf(folder: &Path, name: &str, arguments: &[&str]) -> String {
    let symfs = folder.join("perf/symfs").display().to_string();
    let input = folder.join(format!("perf/{name}.perf.data"));
    let input = input.display().to_string();
    let (subcommand, rest) = arguments.split_first().expect("a subcommand");
    stdout(&[&[*subcommand, "--symfs", &symfs, &input], rest].concat())
}

/// Reads perf's output for a capture.
pub fn golden(folder: &Path, name: &str, what: &str) -> String {
    unpack(&folder.join(format!("perf/golden/{name}.{what}.txt.zst")))
}

/// As [`golden`], without the one instruction that OpenCSD does not take back though an ETMv3 cancels it (argued in
/// `host/coresight/tests/it/elements.rs`): the halt behind it then follows the branch to it.
fn without_cancelled(folder: &Path, name: &str, what: &str) -> String {
    let text = golden(folder, name, what);
    if name != "etmv3-r5f-freertos" {
        return text;
    }
    let (halt, before) = ("tr end  hw int                 700ace", ("30", "42"));
    let text = text.replacen(
        &format!("{halt}{}", before.0),
        &format!("{halt}{}", before.1),
        1,
    );
    let instruction = "instructions:HG:   jmp                            700ace30 ";
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(number, line)| *number != 1 || !line.contains(instruction));
    lines.map(|(_, line)| format!("{line}\n")).collect()
}

fn unpack(path: &PathBuf) -> String {
    let file = std::fs::File::open(path).expect("the golden is there");
    let file = std::io::BufReader::new(file);
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).expect("zstd");
    let mut text = String::new();
    decoder.read_to_string(&mut text).expect("text");
    text
}

/// Parses the addresses of a branch, before and behind `=>`, in a line of perf or of Kymo. Names in parentheses may
/// follow an address.
fn branch(line: &str) -> (u64, u64) {
    let (from, to) = line.split_once("=>").expect("a branch");
    let address = |text: &str| u64::from_str_radix(text, 16).ok();
    // The last word that is an address, because names follow it.
    let words = from.split_whitespace().rev();
    let from = words
        .filter(|word| !word.starts_with('('))
        .find_map(address);
    let to = to.split_whitespace().next().and_then(address);
    (from.expect("an address"), to.expect("an address"))
}

/// Kind of a branch in a line of Kymo.
fn kind(line: &str) -> &str {
    let (_, line) = line.split_once("] ").expect("a processor");
    line.get(..21).expect("a kind").trim_end()
}

/// Kind of a branch in a line of perf, in Kymo's terms. Perf distinguishes returns from system calls and from
/// interrupts.
fn kind_of_perf(line: &str) -> String {
    let flags = line
        .split("branches:")
        .nth(1)
        .and_then(|it| it.split_once(':'));
    let flags = flags.expect("flags").1.trim_start();
    let flags = match flags.split_once("   ") {
        // Without flags, the address follows directly.
        Some((flags, _)) if !flags.contains('(') => flags,
        _ => "",
    };
    let words = flags.split("  ").map(|flag| match flag {
        "tr strt" => "trace begin",
        "tr end" => "trace end",
        "jmp" => "jump",
        "jcc" => "conditional",
        "iret" | "sysret" => "eret",
        "hw int" => "interrupt",
        "int" => "fault",
        other => other,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Compares branches and single instructions with perf's. Only for captures of one source, because perf merges all
/// sources of a thread.
fn compare(name: &str) {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let listed = of_perf(&folder, name, &["branches"]);
    let theirs = without_cancelled(&folder, name, "script-b");
    // If an exception occurs at the target of a branch before any instruction runs there, perf lists only the
    // exception.
    let (mut ours, mut rest) = (String::new(), listed.lines().peekable());
    for line in theirs.lines() {
        let should = branch(line);
        let is_less = |ours: &str, next: Option<&&str>| {
            branch(ours).0 == should.0
                && branch(ours).1 != should.1
                && !kind(ours).starts_with("trace")
                && next.is_some_and(|next| branch(next) == should)
        };
        while let Some(next) = rest.next() {
            if !is_less(next, rest.peek()) {
                ours.push_str(next);
                ours.push('\n');
                break;
            }
        }
    }
    ours.extend(rest);
    for (index, (ours, theirs)) in ours.lines().zip(theirs.lines()).enumerate() {
        let (is, should) = (branch(ours), branch(theirs));
        let kind = kind(ours);
        // For an exception before the first instruction, perf has no address, but the trace has one.
        let is_exception = ["syscall", "interrupt", "fault", "reset"].contains(&kind);
        let is_known_better = is_exception && should.0 == 0;
        if !(is_known_better && is.1 == should.1) {
            assert_eq!(is, should, "{name}: line {index}\n{ours}\n{theirs}");
            let should = kind_of_perf(theirs);
            // Perf reports each indirect branch without a link as a return, a conditional branch not taken at the end
            // of the trace as one taken, and a halt as an interrupt. It does not know exceptions of an ETE.
            let is_argued = match (kind, should.as_str()) {
                ("jump", "return")
                | ("trace end jump", "trace end return")
                | ("trace end", "trace end conditional")
                | ("trace end reset", "trace end interrupt") => true,
                ("syscall" | "interrupt", "" | "trace begin")
                | ("trace end syscall" | "trace end interrupt", "trace end") => {
                    name == "ete-001-raw"
                }
                _ => false,
            };
            assert!(
                kind == should || is_argued,
                "{name}: line {index}: {kind:?}, of perf {should:?}\n{ours}\n{theirs}"
            );
        }
    }
    assert_eq!(ours.lines().count(), theirs.lines().count(), "{name}");

    let address = |line: &str| {
        let words = line.split_whitespace().filter(|word| word.len() > 3);
        let mut found = words.filter_map(|word| u64::from_str_radix(word, 16).ok());
        found.next_back().expect("an address")
    };
    let theirs = without_cancelled(&folder, name, "script-i1i");
    let theirs: Vec<u64> = theirs.lines().map(address).collect();
    for every in [1, 7] {
        let ours = of_perf(&folder, name, &["branches", "--every", &every.to_string()]);
        let ours: Vec<u64> = ours
            .lines()
            .map(|line| address(line.split('(').next().expect("a part")))
            .collect();
        let expected: Vec<u64> = theirs
            .iter()
            .copied()
            .skip(every - 1)
            .step_by(every)
            .collect();
        assert!(ours == expected, "{name}: every {every}");
    }
}

#[test]
fn branches_and_instructions_are_those_of_perf() {
    for name in [
        "ricsec-fib-1",
        "ricsec-branches-1",
        "ete-001-raw",
        "etmv3-r5f-freertos",
        "aosp-perf_etm",
        "aosp-perf_with_unformatted_trace",
    ] {
        compare(name);
    }
}

/// Symbols for which perf chooses another one than Kymo: the second of two at one address, and instead of `malloc` one
/// whose address is not in the file's text.
const OTHER_SYMBOLS: [(&str, &str); 2] = [
    ("aligned_alloc", "memalign"),
    ("prvCheckForValidListAndQueue.xStaticTimerQueue+", "malloc"),
];

/// Shares of command, file and function equal those of `perf report`, line by line.
///
/// Captures for which perf's own counts are wrong are not compared: `ptm-tc2-raw` (perf does not know its return stack)
/// and `aosp-perf_kernel` (perf does not relocate a module).
#[test]
fn hot_spots_are_those_of_perf() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    for name in [
        "ricsec-fib-1",
        "ricsec-branches-1",
        "aosp-perf_etm",
        "aosp-perf_with_unformatted_trace",
        "cc1-head",
        "ete-001-raw",
        "etmv3-r5f-freertos",
        "juno-uname-002-v0",
        "juno-uname-002-v1",
    ] {
        let mut expected = Vec::new();
        for line in golden(&folder, name, "report-i1i").lines() {
            let mut words = line.split_whitespace();
            let (Some(share), Some(command), Some(file)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let Some(share) = share.strip_suffix('%').filter(|_| words.next().is_some()) else {
                continue;
            };
            let function = words.collect::<Vec<_>>().join(" ");
            // Perf prints address 0 without its 0x.
            let digits = function.strip_prefix("0x");
            let digits = digits.or(function.strip_prefix("00000000"));
            let hex = digits.map(|digits| u64::from_str_radix(digits, 16));
            let function = match hex {
                Some(Ok(address)) => format!("{address:#x}"),
                _ => function,
            };
            expected.push(format!("{share} {command} {file} {function}"));
        }
        let ours = of_perf(&folder, name, &["hotspots", "--sort", "comm,dso,sym"]);
        let mut found: Vec<String> = ours
            .lines()
            .skip(1)
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                format!(
                    "{} {}",
                    words[0],
                    [&words[4..6], &[&*words[6..].join(" ")]].concat().join(" ")
                )
            })
            .collect();
        // In a file without symbols, perf lists the entries of the linkage table by address.
        let theirs = expected.clone();
        let is_more = |row: &String| row.ends_with("@plt") && !theirs.contains(row);
        if found.iter().any(is_more) {
            assert!(name.starts_with("aosp-"), "{name}");
            found.retain(|row| !is_more(row));
            expected.retain(|row| found.contains(row));
        }
        for row in found.iter_mut().chain(&mut expected) {
            for (mark, function) in OTHER_SYMBOLS {
                if row.contains(mark) {
                    row.truncate(row.rfind(' ').unwrap_or_default());
                    row.push(' ');
                    row.push_str(function);
                }
            }
        }
        // Perf treats labels within a function as functions with rows of their own, so these rows are not compared.
        let has_label =
            |row: &String| name == "ricsec-branches-1" && row.contains(" branches branches ");
        found.retain(|row| !has_label(row));
        expected.retain(|row| !has_label(row));
        found.sort();
        expected.sort();
        let differs = found
            .iter()
            .zip(&expected)
            .find(|(found, expected)| found != expected);
        assert_eq!(differs, None, "{name}");
        assert_eq!(found.len(), expected.len(), "{name}");
    }
}

/// The profile for AutoFDO equals simpleperf's, except that simpleperf gives some indirect branches the target 0. Kymo
/// has the actual target, as perf does.
#[test]
fn profiles_are_those_of_simpleperf() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let golden = folder.join("perf/golden/aosp-perf_etm.simpleperf-autofdo.txt");
    let golden = std::fs::read_to_string(golden).expect("the golden is there");
    let expected = golden.replace("1088->0:1", "1088->10a4:1");
    for name in ["aosp-perf_etm", "aosp-perf_with_unformatted_trace"] {
        let ours = of_perf(&folder, name, &["export", "--to", "autofdo"]);
        assert_eq!(ours.trim(), expected.trim(), "{name}");
    }
}

/// Binaries of a board in the directory of a recording are found by name and build ID, and others are ignored.
#[test]
fn binaries_beside_a_recording_are_found_by_name_and_build() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let recording = directory.path().join("perf.data");
    let binary = directory.path().join("etm_test_loop");
    let copy = |from: &str, to: &Path| {
        std::fs::copy(folder.join("perf").join(from), to).expect("a copy");
    };
    copy("aosp-perf_etm.perf.data", &recording);
    let input = recording.display().to_string();
    let profile = || stdout(&["export", "--to", "autofdo", &input]);
    assert_eq!(profile(), "");
    copy("symfs/data/local/tmp/etm_test_loop", &binary);
    let golden = folder.join("perf/golden/aosp-perf_etm.simpleperf-autofdo.txt");
    let golden = std::fs::read_to_string(golden).expect("the golden is there");
    let expected = golden.replace("1088->0:1", "1088->10a4:1");
    assert_eq!(profile().trim(), expected.trim());
    let mut other = std::fs::read(&binary).expect("the binary");
    let id = [4, 0, 0, 0, 16, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
    let at = other.windows(id.len()).position(|found| found == id);
    other[at.expect("a build ID") + id.len()] ^= 1;
    std::fs::write(&binary, other).expect("a file");
    assert_eq!(profile(), "");
}

/// In a tracefile for genhtml, the sums at the end of each file equal its records, and the counts of lines agree with
/// those of instructions.
#[test]
fn coverage_adds_up() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/r5f-freertos").display().to_string();
    let text = stdout(&["export", "--to", "lcov", &input]);
    let mut sum = std::collections::BTreeMap::<&str, u64>::new();
    let mut files = 0;
    for line in text.lines() {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let last = value.rsplit(',').next().expect("a part");
        match key {
            "FN" | "DA" | "BRDA" => {
                *sum.entry(key).or_default() += 1;
                let is_hit = last.parse::<u64>().is_ok_and(|count| count > 0);
                *sum.entry(if key == "DA" { "LH" } else { "BRH" })
                    .or_default() += u64::from(is_hit && key != "FN");
            }
            "FNDA" => {
                let count = value.split(',').next().expect("a count");
                *sum.entry("FNH").or_default() += u64::from(count != "0");
            }
            "FNF" | "FNH" | "BRF" | "BRH" | "LF" | "LH" => {
                let counted = match key {
                    "FNF" => "FN",
                    "BRF" => "BRDA",
                    "LF" => "DA",
                    other => other,
                };
                let found = sum.remove(counted).unwrap_or_default();
                assert_eq!(value.parse(), Ok(found), "{line}");
            }
            "end_of_record" => files += 1,
            "TN" | "SF" => {}
            _ => panic!("{line}"),
        }
    }
    assert!(files > 20, "{files}");
    // The program was built on Windows, so paths have both separators. Each file still has only one record.
    let sources = || text.lines().filter_map(|line| line.strip_prefix("SF:"));
    let spelled = sources().map(|path| path.replace('\\', "/"));
    let distinct: std::collections::HashSet<_> = spelled.collect();
    assert_eq!(distinct.len(), sources().count());
    assert!(distinct.iter().all(|path| path.rfind(":/") == Some(1)));
    // The count of a line that is inlined in several functions is the sum over all of them.
    let memory = text.split("end_of_record");
    let memory: Vec<_> = memory
        .filter(|record| record.contains("/memory.c\n") && record.contains("DA:264,"))
        .collect();
    assert_eq!(memory.len(), 1);
    assert!(memory[0].contains("DA:264,3115\n") && memory[0].contains("\nFN:"));
    // The first line of xTaskResumeAll has the same count as its first instruction.
    let annotated = stdout(&["annotate", "xTaskResumeAll", &input, "--format", "json"]);
    let first: serde_json::Value =
        serde_json::from_str(annotated.lines().next().expect("a line")).expect("JSON");
    let (file, line, count) = (&first["source"], &first["line"], &first["count"]);
    let record = text.split("end_of_record");
    let record = record
        .filter(|record| record.contains(&format!("SF:{}", file.as_str().expect("a file"))))
        .collect::<String>();
    assert!(record.contains(&format!("DA:{line},{count}\n")), "{first}");
}

/// All subcommands report the same damage, the same omissions and the same exit code.
#[test]
fn all_say_the_same_of_a_damaged_trace() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let result = directory.path().join("result").display().to_string();
    let cut = directory.path().join("cut.perf.data");
    let whole = std::fs::read(folder.join("perf/ricsec-fib-1.perf.data")).expect("a recording");
    std::fs::write(&cut, &whole[..8000]).expect("a file");
    let snapshot = |name: &str| folder.join("snapshots").join(name).display().to_string();
    for (input, code) in [
        (snapshot("r5f-zephyr"), 2),
        (snapshot("infrastructure"), 2),
        (snapshot("a55-test-tpiu"), 2),
        (snapshot("stm-issue-27"), 0),
        (snapshot("TC2"), 0),
        (cut.display().to_string(), 2),
    ] {
        let mut first: Option<Vec<String>> = None;
        for subcommand in [
            &["ranges"][..],
            &["packets", "--decode"],
            &["branches"],
            &["disasm"],
            &["hotspots"],
            &["info"],
            &["report"],
            &["graph"],
            &["calls"],
            &["show"],
            &["export", "--to", "folded", "-o", &result],
            &["export", "--to", "lcov", "-o", &result],
            &["export", "--to", "autofdo", "-o", &result],
        ] {
            let output = kymo(&[subcommand, &[&input]].concat());
            assert_eq!(output.status.code(), Some(code), "{input}: {subcommand:?}");
            let printed = String::from_utf8_lossy(&output.stderr);
            // Only lcov reports missing lines, and only subcommands with durations report uncertain ones.
            let printed = printed.lines().filter(|line| {
                !line.starts_with("note:")
                    && !line.contains("no debug information")
                    && !line.contains("durations are uncertain")
            });
            let mut printed: Vec<String> = printed.map(str::to_owned).collect();
            printed.sort();
            let first = first.get_or_insert_with(|| printed.clone());
            assert_eq!(&printed, first, "{input}: {subcommand:?}");
        }
        let damaged = first
            .expect("a subcommand")
            .join("\n")
            .contains("at offset");
        assert!(damaged || code == 0, "{input}");
    }
    // `packets` needs no code, so it does not report missing code.
    let output = kymo(&["packets", &snapshot("infrastructure")]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        printed.contains("damaged in ETB_0/ETM_0 at offset 2165: a packet is wrong, 29 times"),
        "{printed}"
    );
}

/// A raw buffer gives the same result as the same bytes in a snapshot, with its sources and memory described on the
/// command line or in a file.
#[test]
fn raw_buffers_are_described_on_the_command_line() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let snapshot = folder.join("snapshots/r5f-freertos");
    let expected = stdout(&["hotspots", &snapshot.display().to_string()]);
    let file = |name: &str| snapshot.join(name).display().to_string();
    let ini = |name: &str| std::fs::read_to_string(snapshot.join(name)).expect("a file");
    // The description in the snapshot, converted to options.
    let device = ini("device_6.ini");
    let value = |text: &str, key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(name, _)| name.split('(').next().map(str::trim) == Some(key));
        let (_, value) = found.unwrap_or_else(|| panic!("{key} in {text}"));
        value.trim().to_owned()
    };
    let registers = ["ETMCR", "ETMCCER", "ETMIDR", "ETMTRACEIDR"];
    let registers = registers.map(|name| format!("{name}={}", value(&device, name)));
    let source = format!("ETMv3,cpu=0,core=Cortex-R5,{}", registers.join(","));
    let (image, buffer) = (file("freertos.out"), file("cstrace.bin"));
    let given = [
        "--trace-source",
        &source,
        "--trace-frames",
        "memory",
        "--trace-image",
        &image,
    ];
    let rows = |text: &str| -> Vec<String> {
        // The file of a firmware has a second name beside its path.
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.map(|words| words.join(" ")).collect()
    };
    let found = stdout(&[&["hotspots"], &given[..], &[&buffer]].concat());
    assert_eq!(rows(&found), rows(&expected));
    let report = stdout(&[&["report"], &given[..], &[&buffer]].concat());
    assert!(report.contains("vPortFree"), "{report}");
    // The program with the symbols serves as the image of the code.
    let of_program = ["--trace-source", &source, "--elf", &image];
    for (subcommand, expected) in [("hotspots", &found), ("report", &report)] {
        let is = stdout(&[&[subcommand], &of_program[..], &[&buffer]].concat());
        assert_eq!(rows(&is), rows(expected), "{subcommand}");
    }
    // With a trace ID that no frame has, there is nothing to show, which is an error.
    let wrong = source.replace("ETMTRACEIDR", "id=0x6e,ETMTRACEIDR");
    let given = ["--trace-source", &wrong, "--trace-image", &image];
    for subcommand in ["hotspots", "report", "packets", "info"] {
        let output = kymo(&[&[subcommand], &given[..], &[&buffer]].concat());
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{subcommand}: {printed}");
        assert!(
            printed.contains("trace ID 6e, and there is trace of 10"),
            "{subcommand}: {printed}"
        );
    }
    // Options that cannot be honoured are refused.
    let snapshot = snapshot.display().to_string();
    for options in [
        &["--symfs", "/"][..],
        &["--trace-source", "ETMv3,id=1"],
        &["--trace-source", "ETM,id=1"],
        &["--trace-frames", "none,"],
    ] {
        for subcommand in ["hotspots", "report"] {
            let output = kymo(&[&[subcommand], options, &[&snapshot]].concat());
            assert_eq!(output.status.code(), Some(2), "{subcommand} {options:?}");
            assert!(output.stdout.is_empty(), "{subcommand} {options:?}");
        }
    }
}

#[test]
fn functions_of_which_the_file_tells_no_size_are_counted_whole() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/r5f-freertos").display().to_string();
    // A function written in assembler: 34 instructions, executed twice.
    let name = "HwiP_irq_handler";
    let chosen = stdout(&["hotspots", "--function", name, "--format", "json", &input]);
    let row: serde_json::Value = serde_json::from_str(chosen.trim()).expect("JSON");
    assert_eq!(row["instructions"], 68, "{row}");
    let annotated = stdout(&["annotate", name, &input]);
    assert!(
        annotated.contains("68 instructions executed, 34 of 34"),
        "{annotated}"
    );
    let covered = stdout(&["hotspots", "--coverage", "--format", "json", &input]);
    let rows = covered
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let ran = rows.filter_map(|row: serde_json::Value| row["instructions_ran"].as_u64());
    assert_eq!(ran.sum::<u64>(), 552);
}

/// Damage with bytes that look like timestamps gives no clock. In a trace with timestamps, a call begins with its first
/// instruction.
#[test]
fn times_are_those_of_elements() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let damaged = folder.join("snapshots/r5f-zephyr").display().to_string();
    let info = String::from_utf8(kymo(&["info", &damaged]).stdout).expect("text");
    assert!(info.contains("the trace has no time"), "{info}");
    let calls = ["calls", "--function", "main", "--format", "json"];
    let calls = of_perf(&folder, "ricsec-fib-1", &calls);
    let call: serde_json::Value = serde_json::from_str(calls.trim_end()).expect("one call");
    let (begin, end) = (
        call["begin_ticks"].to_string(),
        call["end_ticks"].to_string(),
    );
    let window = ["--begin", &begin, "--end", &end];
    let opened = of_perf(
        &folder,
        "ricsec-fib-1",
        &[&["disasm"], &window[..]].concat(),
    );
    let lines: Vec<_> = opened.lines().skip(1).collect();
    assert!(lines[0].contains("main+0x0"), "{opened}");
    // The range behind them begins at the last tick of main.
    let (of_main, behind) = lines.split_at(236);
    assert!(
        of_main.iter().all(|line| line.contains("main+")),
        "{opened}"
    );
    assert!(behind.len() < 4, "{behind:?}");
}
