//! Eight CPUs in QEMU: their traces merge in the actual order of events, every record arrives intact, and the machine
//! code orders its memory accesses, whose absence an x86 host would hide.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use kymo_targets::cpus::{self, Machine, Stress, Wish};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// Lock, so that only one test at a time runs the eight emulated CPUs.
static MACHINE: Mutex<()> = Mutex::new(());

/// The demonstration, built with these features.
fn build(features: &[&str]) -> PathBuf {
    tools::require(&[Need::Cpus]).unwrap();
    let rust = BareRust::find_for(cpus::TARGET).unwrap();
    cpus::build(&rust, features).unwrap()
}

/// The stress test, built with these features.
fn build_stress(features: &[&str]) -> PathBuf {
    tools::require(&[Need::Cpus]).unwrap();
    let rust = BareRust::find_for(cpus::TARGET).unwrap();
    cpus::build_stress(&rust, features).unwrap()
}

/// One JSON value per line.
fn lines(command: &mut Command) -> Vec<Value> {
    let text = run::output(command).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Number of attempts of a command to a target. One unanswered attempt can mean that the emulator got no processor
/// time; two mean that the target does not answer.
const TRIES: u32 = 2;

/// Fetches the trace of the running machine, or records it, into a new directory.
fn get(kymo: &Path, verb: &[&str], machine: &Machine, elf: &Path, name: &str) -> PathBuf {
    let folder = run::target_dir().join("cpus-test").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let trace = folder.join("trace");
    let mut command = Command::new(kymo);
    command
        .args(verb)
        .args(["--target", &machine.target(), "--elf"]);
    command.arg(elf).arg("--output").arg(&trace);
    // On a busy machine one of the eight emulated processors may be silent for longer than the target waits for `kymo`.
    command.env("KYMO_PATIENCE", "20");
    for silent in 0..TRIES {
        let _ = fs::remove_dir_all(&trace);
        match run::run(&mut command) {
            Ok(()) => return trace,
            Err(error) => println!("the target did not answer, time {}: {error}", silent + 1),
        }
    }
    panic!("the target did not answer in {TRIES} times");
}

/// A command that reads a trace.
fn look(kymo: &Path, verb: &str, elf: &Path, trace: &Path) -> Command {
    let mut command = Command::new(kymo);
    command.args([verb, "--format", "json", "--elf"]);
    command.arg(elf).arg(trace);
    command
}

/// The markers of a displayed trace: times and values.
fn markers(show: &[Value]) -> Vec<(u64, u64)> {
    numbers(show, "marker", "value")
}

/// The values of this field in events of this name.
fn numbers(show: &[Value], name: &str, field: &str) -> Vec<(u64, u64)> {
    let events = show.iter().filter(|line| line["name"] == name);
    events
        .map(|line| {
            let number = line["fields"][field].as_u64().unwrap();
            (line["time_ns"].as_u64().unwrap(), number)
        })
        .collect()
}

/// Fails unless the values rise with the times. The order within one tick is unknown, so there may be only few such
/// cases.
fn in_order(markers: &[(u64, u64)]) {
    let mut ties = 0;
    for pair in markers.windows(2) {
        let ((before, a), (after, b)) = (pair[0], pair[1]);
        assert!(before < after && a < b || before == after, "{pair:?}");
        ties += usize::from(before == after);
    }
    println!("{ties} of {} neighbours have one time", markers.len());
    assert!(ties * 20 < markers.len(), "{ties} of {}", markers.len());
}

#[test]
fn eight_cpus_merge_into_the_order_in_which_things_happened() {
    let _turn = MACHINE.lock();
    let elf = build(&[]);
    let kymo = kymo::build(Profile::Debug).unwrap();
    let machine = Machine::boot(&elf, Wish::Demonstration).unwrap();
    let trace = get(&kymo, &["trace"], &machine, &elf, "merge");
    drop(machine);

    let info = lines(&mut look(&kymo, "info", &elf, &trace)).remove(0);
    assert_eq!(info["lost"], 0, "{info}");
    let streams = info["streams"].as_array().unwrap();
    let cpus = |of: &str| -> Vec<u64> {
        let of = |it: &&Value| it["name"].as_str().unwrap().starts_with(of);
        streams
            .iter()
            .filter(of)
            .filter_map(|it| it["cpu"].as_u64())
            .collect()
    };
    assert_eq!(cpus("cpu"), [0, 1, 2, 3, 4, 5, 6, 7], "{info}");
    assert_eq!(cpus("items"), [0, 1, 2, 3, 4, 5, 6, 7], "{info}");

    // Every CPU took its numbers under a shared lock, and recorded them before it released the lock: on any CPU, the
    // next number has a later time, or the same tick.
    let show = lines(&mut look(&kymo, "show", &elf, &trace));
    let markers = markers(&show);
    let mut numbers: Vec<u64> = markers.iter().map(|(_, number)| *number).collect();
    in_order(&markers);
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=8 * 200), "{numbers:?}");

    // Each CPU also recorded its number as an item, right after the marker.
    let items = self::numbers(&show, "USER_0", "data");
    assert!(items.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    let mut of_items: Vec<u64> = items.iter().map(|(_, number)| *number).collect();
    of_items.sort_unstable();
    assert_eq!(of_items, numbers);

    // The functions' calls are complete, too: nothing is missing or uncertain.
    let report = lines(&mut look(&kymo, "report", &elf, &trace));
    let count = |name: &str| {
        let function = report.iter().find(|line| line["function"] == name);
        function.map(|line| line["count"].as_u64().unwrap())
    };
    assert_eq!(count("work"), Some(8 * 200), "{report:?}");
    assert_eq!(count("collatz"), Some(8 * 200), "{report:?}");
    assert_eq!(count("kymo_demo_cpus::round"), Some(8 * 200), "{report:?}");
    let repairs = show.iter().filter(|line| line["type"] == "repair").count();
    assert_eq!(repairs, 0, "every call ends as it should");

    // An independent reader gets the same result.
    let other = Command::new("babeltrace2").arg(&trace).output().unwrap();
    let warnings = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.success() && warnings.is_empty(), "{warnings}");
    let events = other.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(info["events"], events as u64);
}

#[test]
fn eight_cpus_record_long_calls_alone() {
    let _turn = MACHINE.lock();
    let elf = build(&["duration"]);
    let kymo = kymo::build(Profile::Debug).unwrap();
    let machine = Machine::boot(&elf, Wish::Demonstration).unwrap();
    let trace = get(&kymo, &["trace"], &machine, &elf, "duration");
    let mut ask = Command::new(&kymo);
    ask.env("KYMO_PATIENCE", "20");
    ask.args(["command", "duration", "--target", &machine.target()]);
    let settings = run::output(&mut ask).unwrap();
    let mut ask = Command::new(&kymo);
    ask.env("KYMO_PATIENCE", "20");
    ask.args(["status", "--format", "json", "--target", &machine.target()]);
    let status = lines(&mut ask).remove(0);
    let command = |words: &str| {
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args(["command", words, "--target", &machine.target()]);
        run::output(&mut command).unwrap()
    };
    command("duration stop_at 1000");
    command("duration condition 0 3 5");
    let stops = command("duration");
    drop(machine);
    assert_eq!(status["backward"].as_u64().unwrap_or(0), 0, "{status}");
    for expected in [" stop_at=0x1000 ", " hit=3 ", " after=5 "] {
        assert!(stops.contains(expected), "{stops}");
    }
    assert!(settings.starts_with("on=1 threshold=0 "), "{settings}");
    assert!(
        settings.trim_end().ends_with("too_deep=0 unmatched=0"),
        "{settings}"
    );

    let info = lines(&mut look(&kymo, "info", &elf, &trace)).remove(0);
    assert_eq!(info["lost"], 0, "{info}");
    // Each call is present once, with its CPU, and within its caller.
    let report = lines(&mut look(&kymo, "report", &elf, &trace));
    let count = |name: &str| {
        let function = report.iter().find(|line| line["function"] == name);
        function.map(|line| line["count"].as_u64().unwrap())
    };
    for name in ["work", "collatz", "kymo_demo_cpus::round"] {
        assert_eq!(count(name), Some(8 * 200), "{name}: {report:?}");
    }
    let calls = lines(&mut look(&kymo, "calls", &elf, &trace));
    let of = |name: &'static str| calls.iter().filter(move |call| call["function"] == name);
    for cpu in 0..8 {
        let here = of("work").filter(|call| call["cpu"] == cpu);
        assert_eq!(here.count(), 200, "CPU {cpu}");
    }
    for call in of("collatz") {
        assert_eq!(call["caller"], "work", "{call}");
        assert_eq!(call["ended"], "returned", "{call}");
    }
    in_order(&markers(&lines(&mut look(&kymo, "show", &elf, &trace))));
}

/// Minimum distance of two events on CPUs with different clocks for a defined order: some ticks of 16 ns, the rounding
/// error of clocks, times of day and the interpolation between them.
const ROUNDING_NS: u64 = 200;

#[test]
fn eight_cpus_whose_clocks_differ_are_put_into_order() {
    let _turn = MACHINE.lock();
    let elf = build(&["clocks"]);
    let kymo = kymo::build(Profile::Debug).unwrap();
    let machine = Machine::boot(&elf, Wish::Demonstration).unwrap();
    let trace = get(&kymo, &["trace"], &machine, &elf, "clocks");
    drop(machine);

    // Their clocks start up to 5.6 s apart, and their rates differ by up to 3500 ppm.
    let info = lines(&mut look(&kymo, "info", &elf, &trace)).remove(0);
    let corrections = info["clock_corrections"].as_array().unwrap();
    let cpus: Vec<u64> = corrections
        .iter()
        .filter_map(|it| it["cpu"].as_u64())
        .collect();
    assert_eq!(cpus, [1, 2, 3, 4, 5, 6, 7], "{info}");
    for (correction, cpu) in corrections.iter().zip(1i64..) {
        let first = correction["first_ns"].as_i64().unwrap();
        assert!(first < -800_000_000 * cpu, "{correction}");
        assert!(
            correction["last_ns"].as_i64().unwrap() < first,
            "{correction}"
        );
    }
    // Uncorrected, the events of one CPU come after those of the other.
    let raw = Command::new("babeltrace2").arg(&trace).output().unwrap();
    let raw = String::from_utf8(raw.stdout).unwrap();
    let number = |line: &str| {
        let (_, value) = line.split_once("marker:")?.1.split_once("value = ")?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    };
    let numbers: Vec<u64> = raw.lines().filter_map(number).collect();
    assert_eq!(numbers.len(), 8 * 200);
    assert!(!numbers.is_sorted(), "nothing was to be put right");

    let show = lines(&mut look(&kymo, "show", &elf, &trace));
    let markers = markers(&show);
    assert_eq!(markers.len(), 8 * 200);
    for pair in markers.windows(2) {
        let ((before, a), (after, b)) = (pair[0], pair[1]);
        assert!(a < b || after - before <= ROUNDING_NS, "{pair:?}");
    }
}

#[test]
fn eight_cpus_are_recorded_live() {
    let _turn = MACHINE.lock();
    let elf = build(&[]);
    let kymo = kymo::build(Profile::Debug).unwrap();
    let machine = Machine::boot(&elf, Wish::Live).unwrap();
    let record = ["record", "--events", "4000"];
    // On a busy machine one of them may get no processor time for that long: then repeat.
    let (trace, info) = (0..5)
        .find_map(|_| {
            let trace = get(&kymo, &record, &machine, &elf, "live");
            let info = lines(&mut look(&kymo, "info", &elf, &trace)).remove(0);
            let streams = info["streams"].as_array().unwrap();
            let events = |it: &&Value| it["name"].as_str().unwrap().starts_with("cpu");
            let cpus = streams
                .iter()
                .filter(events)
                .filter_map(|it| it["cpu"].as_u64());
            cpus.eq(0..8).then_some((trace, info))
        })
        .expect("all CPUs are heard once in five times");
    drop(machine);
    assert_eq!(info["lost"], 0, "{info}");
    assert!(info["events"].as_u64().unwrap() >= 4000, "{info}");
    // Every number up to the last one received is present.
    let show = lines(&mut look(&kymo, "show", &elf, &trace));
    let markers = markers(&show);
    assert!(markers.len() > 8, "{markers:?}");
    in_order(&markers);
}

#[test]
fn a_million_records_of_eight_cpus_are_none_lost_and_none_torn() {
    let _turn = MACHINE.lock();
    let elf = build_stress(&[]);
    check(
        &cpus::stress(&elf, Stress::Whole(42_000)).unwrap(),
        1_000_000,
    );
}

/// For programs that use that register themselves, like RTEMS SMP, which stores a pointer in it.
#[test]
fn programs_to_which_tpidr_el1_belongs_are_recorded() {
    let _turn = MACHINE.lock();
    let elf = build_stress(&["own_register"]);
    check(&cpus::stress(&elf, Stress::Whole(2_000)).unwrap(), 48_000);
}

#[test]
#[ignore = "takes long: fifty million records"]
fn fifty_million_records_of_eight_cpus_are_none_lost_and_none_torn() {
    let _turn = MACHINE.lock();
    let elf = build_stress(&[]);
    let found = cpus::stress(&elf, Stress::Whole(2_084_000)).unwrap();
    check(&found, 50_000_000);
}

/// Fails unless the stress succeeded.
fn check(found: &str, enough: u64) {
    assert!(found.contains(": 0 lost, none torn"), "{found}");
    let mut words = found.split_whitespace();
    words.find(|word| *word == "checked");
    let records: u64 = words.next().unwrap().parse().unwrap();
    assert!(records >= enough, "{found}");
}

#[test]
fn losses_of_eight_cpus_are_counted_where_they_happened() {
    let _turn = MACHINE.lock();
    let elf = build_stress(&[]);
    // The received records and the losses in packets add up to everything recorded: the program checks this.
    let found = cpus::stress(&elf, Stress::Lossy(300_000)).unwrap();
    assert!(found.contains("lost, none torn"), "{found}");
    assert!(!found.contains(": 0 lost"), "{found}");
}

/// The instructions of every function of this name in the ELF, as mnemonics with their operands.
fn disassemble(elf: &Path, function: &str) -> Vec<Vec<String>> {
    let mut objdump = Command::new("aarch64-linux-gnu-objdump");
    objdump.args(["-d", "-C", "--no-show-raw-insn"]).arg(elf);
    let text = run::output(&mut objdump).unwrap();
    let mut functions: Vec<Vec<String>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:") {
            inside = name.ends_with(function);
            if inside {
                functions.push(Vec::new());
            }
        } else if let Some((_, instruction)) = line.split_once(":\t")
            && let Some(instructions) = functions.last_mut().filter(|_| inside)
        {
            instructions.push(instruction.replace('\t', " "));
        }
    }
    assert!(!functions.is_empty(), "{function} is in the program");
    functions
}

/// Index of the first instruction with this prefix, from an index on.
fn position(code: &[String], what: &str, from: usize) -> usize {
    let at = code[from..].iter().position(|line| line.starts_with(what));
    let at = at.unwrap_or_else(|| panic!("no {what} behind {from} in {code:#?}"));
    from + at
}

/// Fails on exclusive accesses and atomic instructions.
fn locks_nothing(code: &[String]) {
    let locks = [
        "ldx", "ldax", "stx", "stlx", "cas", "swp", "ldadd", "ldset", "ldclr",
    ];
    for line in code {
        assert!(!locks.iter().any(|lock| line.starts_with(lock)), "{line}");
    }
}

#[test]
fn the_machine_code_orders_memory_without_locking_it() {
    let elf = build_stress(&[]);

    // A hook announces itself with a store-release before it reads the gate with a load-acquire. It ends with a
    // store-release, so that a context that sees it ended also sees its record. (`cargo xtask bench recorder` also
    // checks that no event executes a locking instruction.)
    let hooks = disassemble(&elf, "::open_call");
    assert_eq!(hooks.len(), 2, "one for entries, one for exits");
    for hook in &hooks {
        let masked = position(hook, "msr daifset", 0);
        let inside = position(hook, "stlrb", masked);
        let look = position(hook, "ldar ", inside);
        let clock = position(hook, "mrs x", look);
        assert!(hook[clock].contains("cntvct_el0"), "{}", hook[clock]);
        position(hook, "stlrb wzr", clock);
        locks_nothing(hook);
    }
    // The same for all other events, whose inner part is a separate function.
    let hook = &disassemble(&elf, "Cpus<P,_>::hook")[0];
    let masked = position(hook, "msr daifset", 0);
    let inside = position(hook, "stlrb", masked);
    position(hook, "stlrb wzr", inside);
    locks_nothing(hook);
    let record = &disassemble(&elf, "Cpus<P,_>::record")[0];
    let look = position(record, "ldar ", 0);
    let clock = position(record, "mrs x", look);
    assert!(record[clock].contains("cntvct_el0"), "{}", record[clock]);
    locks_nothing(record);

    // The writer publishes a packet when it closes it, and reads the reader's position when it begins one. The reader
    // does the opposite.
    position(
        &disassemble(&elf, "Stream<T>::change_packet")[0],
        "stlr ",
        0,
    );
    position(&disassemble(&elf, "Buffer<T>::free_start")[0], "ldar ", 0);
    let reader = &disassemble(&elf, "stress::look")[0];
    let take = position(reader, "ldar ", 0);
    position(reader, "stlr ", take);
}
