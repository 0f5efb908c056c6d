//! Hardware trace, read as events: every instruction belongs to a function, and calls nest as in the program.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kymo_analysis::calls::Callee;
use kymo_analysis::profile::Profile;
use kymo_analysis::replay::{Options, Replay};
use kymo_event::{Batch, Damage, Event, EventKind, TimeUnit, TraceInfo};
use kymo_read::{Events, OpenOptions, Source, open};
use kymo_symbols::Symbols;

/// The folder of CoreSight captures; `None`, with a message, if it is missing.
fn captures() -> Option<PathBuf> {
    let named = std::env::var_os("KYMO_DATA").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = named.clone().unwrap_or_else(beside).join("coresight");
    if folder.join("manifest.json").is_file() {
        return Some(folder);
    }
    assert!(
        named.is_none(),
        "KYMO_DATA is set, and there is no {}",
        folder.display()
    );
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        folder.display()
    );
    None
}

fn source(folder: &Path, name: &str) -> Box<dyn Source> {
    let options = OpenOptions {
        threads: 1,
        ..OpenOptions::default()
    };
    open(&folder.join(name), &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The function table of a capture, by names: count, total and self time.
fn table(folder: &Path, name: &str) -> (BTreeMap<String, [u64; 3]>, TraceInfo) {
    let mut source = source(folder, name);
    let symbols = Arc::new(Symbols::new());
    let mut replay = Replay::new(source.info(), &symbols, Options::default());
    let (mut profile, mut batch) = (Profile::new(), Batch::default());
    while source.fill(&mut batch).unwrap() {
        replay.batch_to(source.info(), &batch, &mut profile);
    }
    replay.finish_to(source.info(), &mut profile);
    let identities = &source.info().identities;
    let mut table: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (callee, row) in profile.rows() {
        let name = match callee {
            Callee::Function(id) => {
                let function = identities.function(id).unwrap();
                let address = || function.address.unwrap_or_default().to_string();
                function.name.as_deref().map_or_else(address, str::to_owned)
            }
            Callee::Interrupt(id) => identities.interrupt_name(id).unwrap_or("irq").to_owned(),
            Callee::Unknown => "(unknown)".to_owned(),
        };
        let sum = table.entry(name).or_default();
        sum[0] += row.count;
        sum[1] += row.total.0;
        sum[2] += row.self_time.0;
    }
    (table, source.info().clone())
}

#[test]
fn self_times_are_the_instructions_that_ran() {
    let Some(folder) = captures() else { return };
    // The counts are those of OpenCSD and perf, except for r5f-freertos, of which OpenCSD counts a cancelled instruction, and
    // for ptm-tc2-raw: perf prints 59,238, because it does not give
    // the decoder the registers that report a return stack.
    for (name, instructions) in [
        ("snapshots/ricsec-fib-1", 77_438),
        ("snapshots/ricsec-branches-1", 74_912),
        ("snapshots/001-ack_test", 90_654),
        ("snapshots/r5f-freertos", 232_204),
        ("snapshots/tc2-ptm-rstk-t32", 192_073),
        ("perf/ricsec-fib-1.perf.data", 77_438),
        ("perf/ptm-tc2-raw.perf.data", 192_073),
        ("perf/aosp-perf_etm.perf.data", 944),
        ("perf/aosp-perf_with_unformatted_trace.perf.data", 944),
        ("perf/cc1-head.perf.data", 4_851_250),
    ] {
        let (table, info) = table(&folder, name);
        let sum: u64 = table.values().map(|[_, _, own]| own).sum();
        // The trace unit of ricsec's captures sends timestamps, so times are ticks.
        if name.contains("ricsec") {
            assert_eq!(info.unit, TimeUnit::Ticks, "{name}");
        } else {
            assert_eq!(info.unit, TimeUnit::Instructions, "{name}");
            assert_eq!(sum, instructions, "{name}");
        }
        let reported = ("instructions".to_owned(), instructions.to_string());
        assert!(info.about.contains(&reported), "{name}: {:?}", info.about);
    }
}

#[test]
fn functions_of_a_real_time_system_nest() {
    let Some(folder) = captures() else { return };
    let (table, _) = table(&folder, "snapshots/r5f-freertos");
    let row = |name: &str| table.get(name).copied().unwrap_or_default();
    // Each malloc suspends and resumes the scheduler, which enters and exits a critical section.
    assert_eq!(row("vPortFree")[0], 519);
    assert_eq!(row("pvPortMalloc")[0], 520);
    assert_eq!(row("xTaskResumeAll")[0], 1038);
    let [_, total, own] = row("xTaskResumeAll");
    let [.., enter] = row("vTaskEnterCritical");
    let [.., exit] = row("vTaskExitCritical");
    // 1038 of the 1040 critical sections belong to xTaskResumeAll, and are all equal; the others belong to the tick
    // handler.
    assert_eq!(total, own + enter / 1040 * 1038 + exit / 1040 * 1038);
}

/// 85 overflows, and no symbols of the code: the function that runs after an overflow is not certain before the next call or
/// return, but each instruction is in a row.
#[test]
fn instructions_beside_a_loss_are_in_rows() {
    let Some(folder) = captures() else { return };
    for name in [
        "snapshots/juno-uname-002",
        "perf/juno-uname-002-v0.perf.data",
    ] {
        let (table, info) = table(&folder, name);
        let sum: u64 = table.values().map(|[_, _, own]| own).sum();
        assert_eq!(sum, 31_566, "{name}");
        let reported = ("instructions".to_owned(), "31566".to_owned());
        assert!(info.about.contains(&reported), "{name}: {:?}", info.about);
    }
}

/// All events of a capture.
fn events(folder: &Path, name: &str) -> (Vec<Event>, TraceInfo) {
    let mut source = source(folder, name);
    let events = Events::new(&mut *source).map(Result::unwrap).collect();
    (events, source.info().clone())
}

#[test]
fn processes_have_names_and_files() {
    let Some(folder) = captures() else { return };
    let (events, info) = events(&folder, "perf/ricsec-fib-1.perf.data");
    let identities = &info.identities;
    let thread = events.iter().find_map(|event| event.thread).unwrap();
    let space = identities.threads()[thread.0 as usize].space;
    let space = identities.space(space).unwrap();
    assert!(!space.name.is_empty() && space.pid.is_some(), "{space:?}");
    let entered = events.iter().filter_map(|event| match event.kind {
        EventKind::Enter { function, .. } => identities.function(function),
        _ => None,
    });
    let (mut files, mut names) = (0, 0);
    for function in entered {
        files += usize::from(function.mapping.is_some());
        names += usize::from(function.name.is_some());
    }
    assert!(files > 500 && names > 10, "{files} {names}");
}

#[test]
fn code_without_an_image_is_told() {
    let Some(folder) = captures() else { return };
    let (events, info) = events(&folder, "snapshots/juno-uname-002");
    let is_no_code = |event: &&Event| event.name == "no_code";
    // OpenCSD's count of such elements.
    assert_eq!(events.iter().filter(is_no_code).count(), 15_974);
    let reported = info.about.iter().find(|(what, _)| what == "not followed");
    assert!(
        reported.unwrap().1.starts_with("15974 times"),
        "{reported:?}"
    );
    let mut functions = info.identities.functions().iter();
    assert!(functions.any(|function| function.name.as_deref() == Some("[no code]")));
}

#[test]
fn cycle_counts_make_times() {
    let Some(folder) = captures() else { return };
    let (events, info) = events(&folder, "snapshots/maxspec78_commopt0");
    assert_eq!(info.unit, TimeUnit::Cycles);
    assert!(events.is_sorted_by_key(|event| event.time));
    let uncertainty = info.about.iter().find(|(what, _)| what == "uncertainty");
    assert!(uncertainty.unwrap().1.contains("cycles"), "{uncertainty:?}");
}

#[test]
fn cores_with_timestamps_are_one_timeline() {
    let Some(folder) = captures() else { return };
    let (events, info) = events(&folder, "snapshots/TC2");
    assert_eq!(info.unit, TimeUnit::Ticks);
    assert!(events.is_sorted_by_key(|event| event.time));
    let changes = events
        .windows(2)
        .filter(|pair| pair[0].stream != pair[1].stream);
    assert!(changes.count() > 100, "the cores' events alternate");
}

#[test]
fn an_itm_tells_interrupts_values_and_text() {
    let Some(folder) = captures() else { return };
    let (events, _) = events(&folder, "snapshots/itm_only_raw");
    let count = |name: &str| events.iter().filter(|event| event.name == name).count();
    let isr = events
        .iter()
        .filter(|event| matches!(event.kind, EventKind::IsrEnter { .. }));
    assert!(isr.count() > 0 && count("pc_sample") > 0 && count("value") > 0);
}

/// 8-bit writes to a port are joined to lines. A line without an end has the time of its last byte, not of the trace's
/// end.
#[test]
fn text_of_an_itm_stands_at_the_time_of_its_last_byte() {
    let synchronization = [0, 0, 0, 0, 0, 0x80];
    let writes = [
        // Port 1, 8 bits; a local timestamp, 5 ticks later.
        &[0x09, b'r', 0x50][..],
        // Port 3, 16 bits.
        &[0x1a, 0x03, 0xef, 0x10],
        &[0x11, b'o', 0x10],
        &[0x1a, 0x04, 0xbe, 0x20],
        &[0x11, b'k', 0x10, 0x11, b'\n', 0x10],
        &[0x1a, 0x05, 0xbe, 0x20],
    ];
    let bytes = [&synchronization[..], &writes.concat()].concat();
    let (found, info) = printed("ITM", &bytes);
    let expected = [
        (5, "\"r\""),
        (6, "0xef03"),
        (9, "0xbe04"),
        (11, "\"ok\""),
        (13, "0xbe05"),
    ];
    assert_eq!(found, expected.map(|(time, text)| (time, text.to_owned())));
    let uncertain = info.about.iter().find(|(what, _)| what == "uncertainty");
    assert_eq!(uncertain, None);
}

/// Times and texts or values of the software's messages in a stream without frames.
fn printed(protocol: &str, bytes: &[u8]) -> (Vec<(i64, String)>, TraceInfo) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("said.bin");
    std::fs::write(&path, bytes).unwrap();
    let options = OpenOptions {
        trace: kymo_coresight::input::Given {
            frames: Some(kymo_coresight::frames::FrameFormat::Unformatted),
            sources: vec![protocol.to_owned()],
            ..Default::default()
        },
        ..OpenOptions::default()
    };
    let mut source = open(&path, &options).unwrap();
    let shown = |event: Event| {
        let field = event
            .fields
            .iter()
            .find(|it| ["text", "value"].contains(&&*it.name));
        field.map(|it| (event.time.0, it.value.to_string()))
    };
    let events = Events::new(&mut *source).map(Result::unwrap);
    let found = events.filter_map(shown).collect();
    (found, source.info().clone())
}

/// Libraries write text to port 0 in words as long as enough bytes remain. Other ports have values.
#[test]
fn text_of_port_0_may_be_written_in_words() {
    let writes = [
        &[0x03, b'h', b'e', b'l', b'l'][..],
        &[0x03, b'o', b' ', b'w', b'o'],
        &[0x02, b'r', b'l', 0x01, b'd', 0x01, b'\n'],
        // A number on port 0, and on port 1 one that looks like text.
        &[0x03, 1, 2, 0, 0, 0x0b, b'a', b'b', b'c', b'd'],
    ];
    let bytes = [&[0, 0, 0, 0, 0, 0x80][..], &writes.concat()].concat();
    let (found, _) = printed("ITM", &bytes);
    let found: Vec<_> = found.into_iter().map(|(_, what)| what).collect();
    assert_eq!(found, ["\"hello world\"", "0x201", "0x64636261"]);
}

/// Bytes of a source in formatter frames, 14 in each.
fn framed(id: u8, bytes: &[u8]) -> Vec<u8> {
    let frame = |bytes: &[u8]| {
        let mut frame = [0; 16];
        frame[0] = id << 1 | 1;
        for (place, byte) in (1..15).zip(bytes) {
            let low = if place % 2 == 0 { byte & 1 } else { 0 };
            frame[place] = byte & !low;
            frame[15] |= low << (place / 2);
        }
        frame
    };
    bytes.chunks_exact(14).flat_map(frame).collect()
}

/// Instruction trace contains the exceptions of its core, which a DWT of the same core reports as well.
#[test]
fn exceptions_of_a_dwt_are_markers_where_instructions_are_traced() {
    let itm = [
        // SysTick begins and ends, each with a local timestamp.
        0, 0, 0, 0, 0, 0x80, 0x0e, 0x0f, 0x10, 0x10, 0x0e, 0x0f, 0x20, 0x10,
    ];
    let etm = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0];
    let folder = tempfile::tempdir().unwrap();
    let bytes = [framed(0x10, &etm), framed(1, &itm)].concat();
    std::fs::write(folder.path().join("t.bin"), bytes).unwrap();
    for (core, expected) in [(0, [0, 1, 1]), (1, [1, 0, 0])] {
        let toml = format!(
            "buffer = \"t.bin\"\nframes = \"memory\"\n[[source]]\nprotocol = \"ETMv4\"\ncpu = {core}\ncore = \"Cortex-M33\"\n\
             registers = {{ TRCTRACEIDR = 0x10 }}\n[[source]]\nprotocol = \"ITM\"\ncpu = 0\nid = 1\n"
        );
        std::fs::write(folder.path().join("t.toml"), toml).unwrap();
        let (events, _) = events(folder.path(), "t.toml");
        let isr = |it: &&Event| matches!(it.kind, EventKind::IsrEnter { .. });
        let named = |name| events.iter().filter(|it| it.name == name).count();
        let found = [
            events.iter().filter(isr).count(),
            named("exception_entry"),
            named("exception_exit"),
        ];
        assert_eq!(found, expected, "core {core}");
    }
}

/// The timestamps of a target restart after a reset.
#[test]
fn timestamps_that_go_back_are_remarked() {
    // D8MTS of master 0, channel 0, at 0x50, 0x60 and 0x10.
    let packets = [
        0x0f, 0x0f, 0x30, 0x68, 0x21, 0x05, 0x68, 0x22, 0x06, 0x68, 0x23, 0x01,
    ];
    let printed_so = |packets: &[u8]| {
        let (_, info) = printed("STM", &[&[0xff; 10][..], packets].concat());
        let mut remarks = info.remarks.iter();
        remarks.any(|it| it.starts_with("the timestamps went back 1 time "))
    };
    assert!(printed_so(&packets));
    assert!(!printed_so(&packets[..9]));
}

/// Only UTF-8 is text. Other bytes are shown as numbers.
#[test]
fn bytes_that_are_no_text_are_values() {
    let written = |bytes: &[u8]| -> Vec<u8> {
        let writes = bytes.iter().flat_map(|byte| [0x09, *byte]);
        [0, 0, 0, 0, 0, 0x80].into_iter().chain(writes).collect()
    };
    for (bytes, expected) in [
        (&b"r\xb2ok\n"[..], &["\"r\"", "0xb2", "\"ok\""][..]),
        (&b"\xff"[..], &["0xff"]),
        ("5 \u{20ac}\n".as_bytes(), &["\"5 \u{20ac}\""]),
        ("\u{20ac}".as_bytes(), &["\"\u{20ac}\""]),
        ("\u{1f600} ok\n".as_bytes(), &["\"\u{1f600} ok\""]),
        // An incomplete character.
        (b"\xc3A\n\xe2\x82", &["0xc3", "\"A\"", "0xe2", "0x82"]),
    ] {
        let (found, _) = printed("ITM", &written(bytes));
        let found: Vec<_> = found.into_iter().map(|(_, what)| what).collect();
        assert_eq!(found, expected, "{bytes:?}");
    }
    // Master 0x41, channel 1: D8, D16, D8, D32, D8, D8; D8 'a', D4.
    let packets = [
        0x0f, 0x0f, 0x30, 0x41, 0x31, 0x10, 0xb4, 0x52, 0xd4, 0x9a, 0x04, 0x63, 0x21, 0x43, 0x65,
        0x87, 0x04, 0x47, 0xff, 0x64, 0xc1, 0x05,
    ];
    let (found, _) = printed("STM", &[&[0xff; 10][..], &packets].concat());
    let found: Vec<_> = found.into_iter().map(|(_, what)| what).collect();
    assert_eq!(
        found,
        [
            "0xb2",
            "0x4da9",
            "0x3",
            "0x12345678",
            "0x7",
            "0xff",
            "\"a\"",
            "0x5"
        ]
    );
}

#[test]
fn times_are_looked_for_where_registers_do_not_tell_of_them() {
    let Some(folder) = captures() else { return };
    // TRCCONFIGR is 0, but the trace contains timestamps.
    let (_, info) = events(&folder, "snapshots/ricsec-fib-1");
    assert_eq!(info.unit, TimeUnit::Ticks);
    // Timestamps with bit 63 set don't fit into the times of events.
    let (events, info) = events(&folder, "snapshots/ts_bit64_set");
    let times: Vec<i64> = events.iter().map(|event| event.time.0).collect();
    assert!(times.iter().all(|time| *time > 1 << 62), "{times:?}");
    let reported = info.about.iter().find(|(what, _)| what == "clock");
    assert!(
        reported.is_some_and(|(_, about)| about.contains("9223372036854775808")),
        "{:?}",
        info.about
    );
}

#[test]
fn messages_are_counted_as_the_reference_tool_lists_them() {
    let Some(folder) = captures() else { return };
    // Number of elements in the reference's listings, including the begin and the end.
    for (name, elements) in [
        ("stm_only", 6281),
        ("stm-issue-27", 163),
        ("itm_only_raw", 60),
    ] {
        let (_, info) = events(&folder, &format!("snapshots/{name}"));
        let counts = info.streams.iter().filter_map(|stream| stream.counts);
        let sum: u64 = counts.map(|counts| counts.elements).sum();
        assert_eq!(sum, elements, "{name}");
    }
}

#[test]
fn an_stm_tells_values_of_channels() {
    let Some(folder) = captures() else { return };
    let (events, _) = events(&folder, "snapshots/stm_only-juno");
    let of_channel = events
        .iter()
        .filter(|event| event.fields.iter().any(|field| field.name == "channel"));
    assert!(of_channel.count() > 10);
}

#[test]
fn other_hardware_trace_is_refused_by_name() {
    let Some(folder) = captures() else { return };
    let bytes = std::fs::read(folder.join("perf/ricsec-fib-1.perf.data")).unwrap();
    let version = [3u8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    let at = bytes.windows(16).position(|found| found == version);
    for (kind, name) in [(1, "Intel PT"), (4, "Arm SPE")] {
        let mut other = bytes.clone();
        other[at.unwrap()] = kind;
        let file =
            std::env::temp_dir().join(format!("kymo-auxtrace-{}-{kind}", std::process::id()));
        std::fs::write(&file, other).unwrap();
        let refused = open(&file, &OpenOptions::default()).err().unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[test]
fn a_recording_that_was_cut_says_so() {
    let Some(folder) = captures() else { return };
    let whole = std::fs::read(folder.join("perf/ricsec-fib-1.perf.data")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.perf.data");
    // Cut in the middle of the trace, within a record, and after the last record.
    let damage = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let source = open(&path, &OpenOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        source.info().damage.clone()
    };
    let field = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let end = field(40) + field(48);
    assert_eq!(damage(&whole), []);
    assert_eq!(damage(&whole[..end]), []);
    for length in [8000, end - 4] {
        let found = damage(&whole[..length]);
        assert_eq!(found[0].offset, length as u64);
        // A cut within the trace may also cut a frame.
        let is_frame = |damage: &Damage| damage.message.contains("ends within a frame");
        assert!(found[1..].iter().all(is_frame), "{found:?}");
    }
}
