//! Inputs of hardware trace with an incomplete description, and inputs combined with other traces (`--with`).

use std::path::Path;
use std::process::{Command, Output};

use kymo_fixtures::captures;
use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;
use serde_json::Value;

fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().expect("kymo runs")
}

fn stdout(arguments: &[&str]) -> String {
    let output = kymo(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

#[test]
fn a_layout_that_the_bytes_do_not_have_is_told() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    for (name, layout, expected) in [
        (
            "juno-uname-002",
            "tpiu",
            "which would synchronize, and these bytes never do",
        ),
        (
            "juno-uname-002-tpiu",
            "memory",
            "805 frames have the synchronization of a trace port: give the layout tpiu",
        ),
        ("itm_only_raw", "memory", "without frames (layout none)"),
    ] {
        let input = folder.join("snapshots").join(name).display().to_string();
        for subcommand in ["info", "packets", "show"] {
            let output = kymo(&[subcommand, "--trace-frames", layout, &input]);
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed);
            assert_eq!(
                output.status.code(),
                Some(2),
                "{subcommand} {name}: {printed}"
            );
            assert!(printed.contains(expected), "{subcommand} {name}: {printed}");
        }
        // The unchanged input gives no such message.
        let output = kymo(&["packets", &input]);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(!printed.contains("layout"), "{name}: {printed}");
    }
}

/// Creates an ITM's buffer with samples of the program counter, 1000 ticks apart; `None` is a sample of a sleeping
/// core.
fn samples(addresses: &[Option<u32>]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
    for address in addresses {
        match address {
            Some(address) => {
                bytes.push(0x17);
                bytes.extend(address.to_le_bytes());
            }
            None => bytes.extend([0x15, 0]),
        }
        bytes.extend([0xc0, 0xe8, 0x07]);
    }
    bytes
}

/// Writes an ITM's buffer and a description of it.
fn described(folder: &Path, bytes: &[u8]) -> String {
    std::fs::write(folder.join("itm.bin"), bytes).expect("a buffer");
    let text = "buffer = 'itm.bin'\nframes = 'none'\n[[source]]\nprotocol = 'ITM'\n";
    let input = folder.join("itm.toml");
    std::fs::write(&input, text).expect("its description");
    input.display().to_string()
}

#[test]
fn samples_of_the_program_counter_are_a_profile_of_their_own() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let program = folder.join("snapshots/r5f-freertos/freertos.out");
    let program = program.display().to_string();
    // Addresses within vPortFree, within pvPortMalloc, and outside of all functions.
    let listed = ["report", "--format", "json"];
    let snapshot = folder.join("snapshots/r5f-freertos").display().to_string();
    let functions = lines(&stdout(&[&listed[..], &[&snapshot]].concat()));
    let address = |name: &str| {
        let found = functions.iter().find(|row| row["function"] == name);
        let address = found.expect("a function")["address"].as_u64();
        u32::try_from(address.expect("an address")).expect("of 32 bits")
    };
    let (free, malloc) = (address("vPortFree"), address("pvPortMalloc"));
    let mut addresses = vec![
        Some(free),
        Some(free + 4),
        None,
        Some(malloc + 2),
        Some(0xffff_fff0),
    ];
    addresses.extend([Some(free + 2); 3]);
    let made = tempfile::tempdir().expect("a folder");
    let input = described(made.path(), &samples(&addresses));
    let options = [
        "report",
        "--samples",
        "--format",
        "json",
        "--elf",
        &program,
        &input,
    ];
    let rows: Vec<_> = lines(&stdout(&options))
        .iter()
        .map(|row| {
            let samples = row["samples"].as_u64().expect("a number");
            let share = row["share_percent"].as_f64().expect("a number");
            assert!((share - 100.0 * samples as f64 / 8.0).abs() < 0.01, "{row}");
            (
                row["function"].as_str().expect("a name").to_owned(),
                samples,
            )
        })
        .collect();
    let expected = [
        ("vPortFree", 5),
        ("(sleeping)", 1),
        ("0xfffffff0", 1),
        ("pvPortMalloc", 1),
    ];
    assert_eq!(rows, expected.map(|(name, count)| (name.to_owned(), count)));
    // The report calls them samples, and does not count them as calls.
    let output = kymo(&["report", "--samples", &input]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("8 samples of the program counter, one in 1000 ticks"),
        "{printed}"
    );
    let output = kymo(&["report", &input]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("8 samples of the program counter: --samples shows"),
        "{printed}"
    );
    // A part of the trace has fewer samples.
    let part = ["--begin", "3000", "--end", "5000"];
    let part = lines(&stdout(&[&options[..], &part].concat()));
    let count: u64 = part.iter().filter_map(|row| row["samples"].as_u64()).sum();
    assert_eq!(count, 3);
}

#[test]
fn hardware_trace_stands_beside_a_software_trace_of_the_same_run() {
    let Some(zephyr) = captures::zephyr_with_metadata() else {
        return;
    };
    let zephyr = zephyr.join("ctf_native_sample").display().to_string();
    let software = lines(&stdout(&["show", "--events", "--format", "json", &zephyr]));
    // A text at each event `idle`, with a clock of 1 MHz that starts at the first one.
    let (mut bytes, mut last) = (vec![0, 0, 0, 0, 0, 0x80], None);
    for event in software.iter().filter(|event| event["name"] == "idle") {
        let now = event["time_ns"].as_u64().expect("a time") / 1000;
        let passed = now - last.replace(now).unwrap_or(now);
        assert!(passed < 1 << 21);
        bytes.extend(b"idle\n".iter().flat_map(|byte| [0x01, *byte]));
        bytes.extend([0xc0, passed as u8 | 0x80, (passed >> 7) as u8 | 0x80]);
        bytes.push((passed >> 14) as u8);
    }
    let made = tempfile::tempdir().expect("a folder");
    let itm = described(made.path(), &bytes);
    let output = kymo(&["show", "--events", "--with", &itm, &zephyr]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        printed.contains("nothing tells how its clock goes with that of"),
        "{printed}"
    );
    assert!(printed.contains("--align EVENT"), "{printed}");
    let together = ["--with", &itm, "--align", "idle", &zephyr];
    let shown = ["show", "--events", "--format", "json"];
    let all = lines(&stdout(&[&shown[..], &together].concat()));
    let texts: Vec<_> = all.iter().filter(|event| event["name"] == "text").collect();
    let idle = software.iter().filter(|event| event["name"] == "idle");
    assert_eq!(texts.len(), 40);
    for (text, idle) in texts.iter().zip(idle) {
        let time = |event: &Value| event["time_ns"].as_i64().expect("a time");
        assert!((time(text) - time(idle)).abs() <= 1000, "{text}\n{idle}");
    }
    // Calls and threads are those of the software trace; exports have both traces.
    let export = made.path().join("both.json").display().to_string();
    stdout(
        &[
            &["export", "--to", "trace-event", "-o", &export][..],
            &together,
        ]
        .concat(),
    );
    let export = std::fs::read_to_string(export).expect("an export");
    assert!(export.matches("\"idle\"").count() >= 40);
    // Also for an output format for which the raw records of a single input would be copied.
    let export = made.path().join("both.ctf").display().to_string();
    stdout(&[&["export", "--to", "ctf", "-o", &export][..], &together].concat());
    let again = lines(&stdout(&[&shown[..], &[&export]].concat()));
    let texts = again.iter().filter(|event| event["label"] == "idle");
    assert_eq!(texts.count(), 40);
    let info = stdout(&[&["info"], &together[..]].concat());
    assert!(info.contains("format     ctf+coresight"), "{info}");
    assert!(info.contains("40 events `idle`"), "{info}");
}

#[test]
fn times_of_64_bits_choose_as_the_trace_has_them() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    let input = folder.join("snapshots/ts_bit64_set").display().to_string();
    let ranges = |begin: &str| {
        let output = kymo(&["ranges", "--format", "json", "--begin", begin, &input]);
        assert!(output.status.success(), "{output:?}");
        let lines = lines(&String::from_utf8(output.stdout).expect("text"));
        let ranges = lines.into_iter().filter(|line| line["type"] == "range");
        ranges.collect::<Vec<_>>()
    };
    let all = ranges("0");
    let last = all.last().expect("ranges")["timestamp"].as_u64();
    let last = last.expect("a timestamp");
    assert!(last > 1 << 63, "{last}");
    // The time as in the trace, and as `calls` shows it.
    let chosen = ranges(&last.to_string());
    assert!(!chosen.is_empty() && chosen.len() < all.len(), "{last}");
    assert_eq!(chosen, ranges(&(last - (1 << 63)).to_string()));
    let output = kymo(&["calls", "--begin", &last.to_string(), &input]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(printed.contains("no times go that far"), "{printed}");
}

#[test]
fn a_counter_that_passes_what_times_can_be_goes_on() {
    const HERE: u64 = 0x40_0000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let code = [0xd503_201f_u32, 0xd65f_03c0].map(u32::to_le_bytes);
    std::fs::write(path("code"), code.concat()).expect("code");
    let middle = 1 << 63;
    let mut trace = Trace::new(false);
    for time in [middle - 100, middle - 50, middle, middle + 50, middle + 100] {
        trace = trace.time(time).run(1, HERE).run(1, HERE);
    }
    std::fs::write(path("trace"), &trace.bytes).expect("a trace");
    let image = format!("{}@{HERE:#x}", path("code"));
    let source =
        "ETMv4,id=0x10,cpu=0,TRCCONFIGR=0x801,TRCIDR0=0x8000e81,TRCIDR1=0x4100f463,TRCIDR2=0x488";
    let options = ["--trace-source", source, "--trace-frames", "none"];
    let trace = path("trace");
    let rest = ["--trace-image", &image, "--format", "json", &trace];
    let info = stdout(&[&["info"], &options[..], &rest].concat());
    let info = &lines(&info)[0];
    let of = |name: &str| info[name].as_i64().expect("a time");
    assert_eq!(of("end_ticks") - of("start_ticks"), 225, "{info}");
}

/// Atoms: of the load, then of the return; of a store none.
#[test]
fn loads_with_atoms_of_their_own_are_followed() {
    const HERE: u64 = 0x40_0000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let code = [0xd503_201f_u32, 0xf940_0041, 0xf900_0041, 0xd65f_03c0].map(u32::to_le_bytes);
    std::fs::write(path("code"), code.concat()).expect("code");
    let mut trace = Trace::new(false);
    for _ in 0..5 {
        trace = trace.at(1, HERE);
        trace.bytes.extend([0xf7, 0xf7]);
    }
    std::fs::write(path("trace"), &trace.bytes).expect("a trace");
    let image = format!("{}@{HERE:#x}", path("code"));
    let source =
        "ETMv4,id=0x10,cpu=0,TRCCONFIGR=0x803,TRCIDR0=0x8000e87,TRCIDR1=0x4100f463,TRCIDR2=0x488";
    let options = ["--trace-source", source, "--trace-frames", "none"];
    let trace = path("trace");
    let rest = ["--trace-image", &image, &trace];
    let ranges = stdout(&[&["ranges"], &options[..], &rest].concat());
    let has = |text: &str| ranges.matches(text).count();
    assert_eq!(
        has("exec range=0x400000:[0x400008] num_i(2) last_sz(4) (ISA=A64) E LD.ST"),
        5,
        "{ranges}"
    );
    assert_eq!(
        has("exec range=0x400008:[0x400010] num_i(2) last_sz(4) (ISA=A64) E iBR"),
        5,
        "{ranges}"
    );
    let rest = [&rest[..], &["--format", "json"]].concat();
    let spots = stdout(&[&["hotspots"], &options[..], &rest].concat());
    let spots = lines(&spots);
    let counts = spots
        .iter()
        .filter_map(|line| line["instructions"].as_u64());
    assert_eq!(counts.sum::<u64>(), 20, "{spots:?}");
}

#[test]
fn recordings_without_a_time_in_common_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    // Both recordings use the clock of the kernel.
    let recorded = |name: &str, from: u64| {
        let mut perf = recording(true, |perf| {
            perf.at(from).comm(1, "first");
        });
        let trace = Trace::new(true).time(from).run(1, 0x40_0000);
        let trace = trace.time(from + 50).run(1, 0x40_0000);
        let trace = trace.time(from + 100).run(1, 0x40_0000).bytes;
        perf.at(from + 90).aux(0, 0, 0, trace.len() as u64, AUX_RAW);
        perf.buffer(None, 0, 0, &trace);
        let path = folder.path().join(name);
        std::fs::write(&path, perf.file()).expect("a recording");
        path.display().to_string()
    };
    let (early, late) = (recorded("early", 1000), recorded("late", 9_000_000));
    let output = kymo(&["show", "--with", &late, &early]);
    let printed = String::from_utf8_lossy(&output.stderr);
    let expected =
        "late has nothing at the time of early, so that they may not be of one run: it is from ";
    assert!(printed.contains(expected), "{printed}");
    let same = recorded("same", 1020);
    let output = kymo(&["show", "--with", &same, &early]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!printed.contains("has nothing at the time"), "{printed}");
}

#[test]
fn nothing_is_beside_what_has_no_end() {
    for (input, words) in [
        ("tcp:localhost:1", &["show", "--follow"][..]),
        ("tcp:localhost:1", &["report"]),
        ("systemview:localhost:1", &["show", "--follow"]),
        ("rtems:localhost:1", &["show"]),
    ] {
        let output = kymo(&[words, &["--with", "other", input]].concat());
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(
            printed.contains("--with puts whole recordings"),
            "{printed}"
        );
        assert!(printed.contains("kymo record TARGET -o DIR"), "{printed}");
    }
}

#[test]
fn views_say_where_durations_are_uncertain() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    for (name, is_coarse) in [("ricsec-fib-1", true), ("ricsec-branches-1", false)] {
        let input = folder.join("snapshots").join(name).display().to_string();
        for subcommand in ["report", "calls", "show", "graph"] {
            let output = kymo(&[subcommand, &input]);
            let printed = String::from_utf8_lossy(&output.stderr);
            let expected =
                "durations are uncertain: 83 % of the trace, 18710612 ticks, lie between two times";
            assert_eq!(
                printed.contains(expected),
                is_coarse,
                "{subcommand}: {printed}"
            );
        }
    }
}
