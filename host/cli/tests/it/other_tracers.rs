//! Traces of other tracers: babeltrace2's layout, filters and mappings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_fixtures::captures;

/// Path of a case in the shared collection; `None`, with a message, if the collection is missing.
fn case(name: &str) -> Option<PathBuf> {
    Some(captures::ctf()?.join(name))
}

fn kymo(arguments: &[&str], trace: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).arg(trace).output().unwrap()
}

fn stdout(arguments: &[&str], trace: &Path) -> String {
    let output = kymo(arguments, trace);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Reads babeltrace2's output for a case.
fn golden(case: &Path) -> String {
    let names = ["golden-bt21.txt", "golden-bt20.txt"];
    let mut texts = names.iter().filter_map(|name| {
        let packed = case.join(format!("{name}.gz"));
        if packed.exists() {
            let output = Command::new("gzip").arg("-dc").arg(packed).output();
            return Some(String::from_utf8(output.unwrap().stdout).unwrap());
        }
        std::fs::read_to_string(case.join(name)).ok()
    });
    texts.next().unwrap()
}

const CYG: &str = "lttng-recorded/lttng213-ctf1-cyg";

#[test]
fn any_trace_is_printed_as_babeltrace2_does() {
    for name in [
        CYG,
        "lttng-recorded/lttng216-ctf2-cyg",
        "lttng-recorded/lttng213-ctf1-perpid",
        "lttng-recorded/lttng216-ctf2-perpid",
        "tracecompass/context-switches-context-switches-ust",
    ] {
        let Some(case) = case(name) else { return };
        let ours = stdout(&["show", "--format", "babeltrace"], &case.join("trace"));
        let theirs = golden(&case);
        let mut lines = ours.lines().zip(theirs.lines());
        assert_eq!(lines.find(|(one, other)| one != other), None, "{name}");
        assert_eq!(ours.len(), theirs.len(), "{name}");
    }
}

#[test]
fn filters_choose_among_records() {
    let Some(case) = case(CYG) else { return };
    let trace = case.join("trace");
    let golden = golden(&case);
    let expected: Vec<&str> = golden
        .lines()
        .filter(|line| line.contains(":func_entry") && line.contains("vtid = 1476"))
        .filter(|line| line.contains("addr = 0x55FDE5FF8204"))
        .collect();
    assert!(expected.len() > 20);
    let wanted = [
        "--event",
        "*:func_entry",
        "--thread",
        "1476",
        "--where",
        "addr == 0x55fde5ff8204",
    ];
    let with = |first: &[&'static str]| [first, &wanted[..]].concat();
    let ours = stdout(&with(&["show", "--format", "babeltrace"]), &trace);
    assert_eq!(ours.lines().collect::<Vec<_>>(), expected);
    let listed = stdout(&with(&["show", "--events"]), &trace);
    assert_eq!(listed.lines().count(), expected.len() + 1);
    let json = stdout(&with(&["show", "--format", "json"]), &trace);
    let events = json.lines().filter(|line| line.contains("\"event\""));
    assert_eq!(events.count(), expected.len());
}

#[test]
fn a_report_can_be_of_a_part() {
    let Some(case) = case(CYG) else { return };
    let trace = case.join("trace");
    let calls = |arguments: &[&str]| {
        let arguments = [&["report", "--format", "json"], arguments].concat();
        let lines = stdout(&arguments, &trace);
        let rows = lines.lines().map(|line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            row["count"].as_u64().unwrap()
        });
        rows.sum::<u64>()
    };
    let threads = ["1472", "1475", "1476"].map(|thread| calls(&["--thread", thread]));
    assert!(threads.iter().all(|count| *count > 0), "{threads:?}");
    assert_eq!(threads.iter().sum::<u64>(), calls(&[]));
    assert_eq!(calls(&["--end", "+1ms"]), 0);
}

#[test]
fn a_mapping_says_what_events_mean() {
    let Some(case) = case("lttng-recorded/lttng213-ctf1-overwrite") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mapping = folder.path().join("spans.toml");
    let write = |text: &str| std::fs::write(&mapping, text).unwrap();
    write(
        "thread = 'vtid'\n\
         [[event]]\nname = 'benchtp:span_begin'\nmeans = 'enter'\nfunction = 'name'\n\
         [[event]]\nname = 'benchtp:span_end'\nmeans = 'exit'\n",
    );
    let trace = case.join("trace");
    let arguments = ["report", "--mapping", mapping.to_str().unwrap()];
    let table = stdout(&arguments, &trace);
    for span in ["adc.sample", "dma.complete", "net.rx", "fs.write"] {
        assert!(table.contains(span), "{table}");
    }
    write("[[event]]\nname = 'benchtp:span_end'\nmeans = 'leave'\n");
    let output = kymo(&arguments, &trace);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("(line 3)") && errors.contains("help:"),
        "{errors}"
    );
}

#[test]
fn a_trace_goes_by_its_metadata_and_a_stream_by_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = folder.path().join("metadata");
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        event { name = \"e\"; fields := struct { integer { size = 8; } n; string s; }; };";
    std::fs::write(&metadata, text).unwrap();
    std::fs::write(folder.path().join("stream"), b"\x01one\0\x1btw\x1bo\0").unwrap();
    let layout = ["show", "--format", "babeltrace"];
    let expected = "e: { n = 1, s = \"one\" }\ne: { n = 27, s = \"tw\\eo\" }\n";
    assert_eq!(stdout(&layout, folder.path()), expected);
    assert_eq!(stdout(&layout, &metadata), expected);
    let info = stdout(&["info", "--format", "json"], &metadata);
    assert!(info.contains("\"events\":2"), "{info}");
    let stream = || std::fs::File::open(folder.path().join("stream")).unwrap();
    let piped = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
        command
            .args(layout)
            .args(arguments)
            .arg("-")
            .stdin(stream());
        command.output().unwrap()
    };
    let output = piped(&["--metadata", metadata.to_str().unwrap()]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let output = piped(&[]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("--metadata"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}

/// babeltrace's layout does not derive threads from switches. A selection by thread is refused if no record names one, and
/// so are threads, processors and streams that the trace does not have.
#[test]
fn babeltrace_layout_refuses_threads_that_no_record_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; };
        event { name = \"e\"; fields := struct { integer { size = 8; } n; }; };";
    std::fs::write(folder.path().join("metadata"), text).unwrap();
    std::fs::write(folder.path().join("stream"), b"\x01\x02").unwrap();
    let layout = ["show", "--format", "babeltrace"];
    let shown = |arguments: &[&str], trace: &Path| {
        let output = kymo(&[&layout[..], arguments].concat(), trace);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, lines, errors) = shown(&["--thread", "main"], folder.path());
    assert_eq!((code, &*lines), (Some(2), ""));
    assert!(errors.contains("none names one"), "{errors}");
    let (code, lines, errors) = shown(&["--event", "f"], folder.path());
    assert_eq!((code, &*lines), (Some(0), ""));
    assert!(errors.contains("2 events excluded"), "{errors}");
    // Events whose context has a thread can be selected by it.
    let trace = functions(folder.path(), 0, [&[true], &[false]], |_| 0x1000);
    for (option, wanted, known) in [
        ("--thread", "8", "its threads are 1"),
        ("--thread", "main", "its threads are 1"),
        ("--cpu", "3", "no processors"),
        ("--stream", "other*", "its streams are s"),
    ] {
        let (code, lines, errors) = shown(&[option, wanted], &trace);
        assert_eq!((code, &*lines), (Some(2), ""), "{option}: {errors}");
        let what = format!("{wanted}\n");
        assert!(
            errors.contains("the trace has no ") && errors.contains(&what),
            "{errors}"
        );
        assert!(errors.contains(known), "{errors}");
    }
    // Others may be chosen besides.
    let (code, lines, _) = shown(&["--thread", "1", "--event", "none"], &trace);
    assert_eq!((code, &*lines), (Some(0), ""));
}

/// Creates a CTF trace of two packets of entries (`true`) and exits, 1 us apart, with `lost` events lost between the
/// packets. `address` gives the address of the function at each depth.
fn functions(
    folder: &Path,
    lost: u64,
    packets: [&[bool]; 2],
    address: impl Fn(u32) -> u32,
) -> PathBuf {
    use kymo_ctf::metadata::{
        ByteOrder, Clock, ClockId, EventClass, IntegerClass, Metadata, StreamClass, StructClass,
        Version, standard,
    };
    let order = ByteOrder::Little;
    let mut metadata = Metadata::new(order);
    metadata.clocks.push(Clock::new("c", 1_000_000_000));
    metadata.packet_header = Some(standard::packet_header(order));
    let mut class = StreamClass::new(0);
    class.packet_context = Some(standard::packet_context(order, ClockId(0)));
    class.event_header = Some(standard::event_header(order, ClockId(0)));
    let number = IntegerClass::unsigned(32, order);
    class.event_context = Some(StructClass::new().with("vtid", number));
    for (id, name) in ["func_entry", "func_exit"].into_iter().enumerate() {
        let name = format!("lttng_ust_cyg_profile:{name}");
        let mut event = EventClass::new(id as u64, name);
        event.fields = Some(
            StructClass::new()
                .with("addr", number)
                .with("call_site", number),
        );
        class.events.push(event);
    }
    metadata.streams.push(class);
    let path = folder.join("functions");
    let mut trace = kymo_ctf::TraceWriter::create(&path, metadata, Version::Ctf18).unwrap();
    let mut stream = trace.stream(0, "s").unwrap();
    let (mut time, mut depth) = (0, 0);
    for events in packets {
        stream.begin_packet(time, &[]).unwrap();
        for enter in events {
            time += 1000;
            depth -= u32::from(!enter);
            let values = [1u32.into(), address(depth).into(), 0u32.into()];
            depth += u32::from(*enter);
            stream.event(usize::from(!enter), time, &values).unwrap();
        }
        stream.end_packet(time, lost).unwrap();
    }
    stream.finish().unwrap();
    path
}

#[test]
fn a_lost_exit_does_not_take_the_time_of_all_calls_behind_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (enter, exit) = (true, false);
    let packets = [&[enter][..], &[enter, exit, enter, exit]];
    let report = |folder: &str, lost| {
        let folder = scratch.path().join(folder);
        std::fs::create_dir(&folder).unwrap();
        let trace = functions(&folder, lost, packets, |_| 0x1000);
        let output = kymo(&["report", "--format", "json"], &trace);
        let row: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let members = ["count", "count_max", "total_ns", "self_ns"];
        let times = members.map(|key| row[key].as_u64().unwrap());
        (times, String::from_utf8(output.stderr).unwrap())
    };
    // The exits of calls that seem to be open may be lost, so only the certain part of their time counts.
    let (times, printed) = report("lossy", 3);
    // Each lost event may be the entry of another call.
    assert_eq!(times, [3, 6, 2000, 2000], "{printed}");
    assert!(
        printed.contains("up to 3 calls of any function"),
        "{printed}"
    );
    // Without losses the call is open, and its time counts up to the end.
    let (times, printed) = report("whole", 0);
    assert_eq!(times, [3, 3, 4000, 4000], "{printed}");
    assert!(printed.contains("1 still open at the end"), "{printed}");
}

#[test]
fn advice_names_what_fills_the_buffer_and_says_what_is_gained() {
    let scratch = tempfile::tempdir().unwrap();
    let mut calls = vec![true];
    calls.extend([true, false].repeat(49));
    calls.push(false);
    let by_depth = |depth| 0x1000 * (depth + 1);
    let trace = functions(scratch.path(), 0, [&calls, &[]], by_depth);
    let advice: serde_json::Value =
        serde_json::from_str(&stdout(&["advise", "--format", "json"], &trace)).unwrap();
    let number = |key: &str| advice[key].as_u64().unwrap();
    // 100 events, 1 us apart; 98 of them belong to calls of 1 us each.
    assert_eq!((number("events"), number("held_ns")), (100, 99_000));
    assert_eq!(number("excluded_events"), 98);
    assert_eq!(number("excluded_self_ns"), 49_000);
    assert_eq!(number("holds_ns"), 99_000 * 100 / 2);
    let functions = advice["functions"].as_array().unwrap();
    assert_eq!(functions.len(), 1);
    assert_eq!(functions[0]["calls"], 49);
    let text = stdout(&["advise"], &trace);
    assert!(
        text.contains("98.00 % of the events and 49.49 % of the time"),
        "{text}"
    );
    assert!(text.contains("holds 4.950 ms"), "{text}");
    // Compiler options exclude functions by name, and without symbols there are no names.
    assert!(
        text.contains("--elf") && !text.contains("-finstrument"),
        "{text}"
    );
}

/// A buffer that was dumped as a whole ends with zeros. If no event has the id 0, no subcommand reports them as damage.
#[test]
fn the_unused_rest_of_a_buffer_is_no_damage_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    std::fs::create_dir(&trace).unwrap();
    let metadata = "/* CTF 1.8 */\n\
        typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n\
        trace { major = 1; minor = 8; byte_order = le; };\n\
        stream { event.header := struct { uint8_t id; }; };\n\
        event { name = \"one\"; id = 1; fields := struct { uint8_t value; }; };\n";
    std::fs::write(trace.join("metadata"), metadata).unwrap();
    for (rest, is_damaged) in [([0, 0], false), ([0, 1], true)] {
        let stream = [vec![1, 7, 1, 8], vec![0; 5000], rest.to_vec()].concat();
        std::fs::write(trace.join("stream"), stream).unwrap();
        let into = folder.path().join(format!("out-{is_damaged}"));
        let into = into.to_str().unwrap();
        for arguments in [
            &["info"][..],
            &["show", "--events"],
            &["show", "--format", "babeltrace"],
            &["export", "--to", "ctf", "-o", into],
        ] {
            let output = kymo(arguments, &trace);
            let errors = String::from_utf8_lossy(&output.stderr);
            let reported = format!("{errors}{}", String::from_utf8_lossy(&output.stdout));
            assert_eq!(
                output.status.success(),
                !is_damaged,
                "{arguments:?}: {reported}"
            );
            assert_eq!(
                reported.contains("unused rest"),
                !is_damaged,
                "{arguments:?}: {reported}"
            );
        }
        let again = stdout(&["show", "--events"], Path::new(into));
        assert_eq!(again.contains("lost"), is_damaged, "{again}");
    }
}

/// Interrupts in Zephyr's tracing can be selected by number, although no field of the records has that name.
#[test]
fn interrupts_are_chosen_by_number_whatever_records_call_it() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let trace = data.join("ctf_native_sample/trace");
    let run = |arguments: &[&str]| {
        let mut kymo = Command::new(env!("CARGO_BIN_EXE_kymo"));
        let output = kymo.args(arguments).arg(&trace).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    let rows = run(&["report", "--by", "irq", "--format", "json"]);
    assert!(
        rows.starts_with("{\"irq\":\"interrupt\"") && rows.contains("\"id\":\"0\""),
        "{rows}"
    );
    let condition = "irq == 0";
    for view in [
        &["report", "--where", condition][..],
        &["show", "-e", "--where", condition],
        &["export", "--to", "csv", "-o", "-", "--where", condition],
    ] {
        assert!(run(view).lines().count() > 1, "{view:?}");
    }
}
