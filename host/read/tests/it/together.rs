//! Recordings of one run on one time line: hardware trace beside a software recording.

use std::path::{Path, PathBuf};

use kymo_event::{Date, Event, EventKind, Field, Time, TimeUnit, TraceInfo, Value};
use kymo_fixtures::captures;
use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;
use kymo_read::{Events, OpenError, OpenOptions, open};
use tempfile::TempDir;

fn read(path: &Path, options: &OpenOptions) -> (Vec<Event>, TraceInfo) {
    let mut source = open(path, options).unwrap_or_else(|error| panic!("{error}"));
    let events = Events::new(&mut *source).map(|event| event.expect("an event"));
    let events = events.collect();
    (events, source.info().clone())
}

fn beside(path: &Path) -> OpenOptions {
    OpenOptions {
        beside: vec![path.to_owned()],
        ..OpenOptions::default()
    }
}

/// Ticks per second of the ITM's clock, which is not exact.
const HZ: i128 = 48_002_400;

/// Generates the trace of an ITM for the run of a Zephyr capture: a text at each event `idle`, a value at each
/// `isr_enter`, and a sample of the program counter at each switch, each with a timestamp of the ITM's own clock.
fn itm(events: &[Event]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
    let (mut last, mut number) = (0, 0u32);
    for event in events {
        let packets = match &*event.name {
            "idle" => b"idle\n".iter().flat_map(|byte| [0x01, *byte]).collect(),
            "isr_enter" => {
                number += 1;
                [&[0x0b][..], &number.to_le_bytes()].concat()
            }
            "thread_switched_in" => [&[0x17][..], &0x1000u32.to_le_bytes()].concat(),
            _ => continue,
        };
        bytes.extend(packets);
        let ticks = (i128::from(event.time.0) * HZ / 1_000_000_000).max(last);
        let mut left = ticks - last;
        last = ticks;
        assert!(left < 1 << 28, "a local timestamp has 28 bits");
        bytes.push(0xc0);
        while left > 0x7f {
            bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        bytes.push(left as u8);
    }
    bytes
}

/// A capture of Zephyr, and the generated trace of an ITM of the same run.
fn same_run() -> Option<(TempDir, PathBuf, PathBuf)> {
    let zephyr = captures::zephyr_with_metadata()?.join("ctf_native_sample");
    let folder = tempfile::tempdir().expect("a folder");
    let (events, _) = read(&zephyr, &OpenOptions::default());
    std::fs::write(folder.path().join("itm.bin"), itm(&events)).expect("a buffer");
    let hardware = folder.path().join("itm.toml");
    let text = "buffer = 'itm.bin'\nframes = 'none'\n[[source]]\nprotocol = 'ITM'\n";
    std::fs::write(&hardware, text).expect("its description");
    Some((folder, zephyr, hardware))
}

fn times(events: &[Event], is_it: impl Fn(&Event) -> bool) -> Vec<Time> {
    let chosen = events.iter().filter(|event| is_it(event));
    chosen.map(|event| event.time).collect()
}

#[test]
fn events_that_both_have_put_an_itm_onto_the_time_line_of_software() {
    let Some((_folder, zephyr, hardware)) = same_run() else {
        return;
    };
    let (software, _) = read(&zephyr, &OpenOptions::default());
    let (alone, _) = read(&hardware, &OpenOptions::default());
    let options = OpenOptions {
        align: Some("idle".to_owned()),
        ..beside(&hardware)
    };
    let (events, info) = read(&zephyr, &options);
    assert_eq!(events.len(), software.len() + alone.len());
    assert_eq!(
        (info.unit, &*info.format),
        (TimeUnit::Nanoseconds, "ctf+coresight")
    );
    assert!(info.has_machines(), "each keeps its processors");
    // The software's times are unchanged.
    let is_software = |event: &Event| {
        let stream = info.stream(event.stream).expect("a stream");
        stream.name.starts_with("ctf_native_sample/")
    };
    let kept = times(&events, is_software);
    assert_eq!(kept, times(&software, |_| true));
    // The ITM's value and Zephyr's event have the same time within two ticks, as have the sample and the switch.
    let value = |event: &Event| event.name == "value";
    let isr = |event: &Event| event.name == "isr_enter";
    let sample = |event: &Event| event.name == "pc_sample";
    let switch = |event: &Event| event.name == "thread_switched_in";
    for (hardware, zephyr) in [
        (times(&events, value), times(&software, isr)),
        (times(&events, sample), times(&software, switch)),
    ] {
        assert_eq!(hardware.len(), zephyr.len());
        assert!(hardware.len() > 30);
        for (hardware, zephyr) in hardware.iter().zip(&zephyr) {
            let apart = hardware.0.abs_diff(zephyr.0);
            assert!(apart < 50, "{hardware:?} is {zephyr:?}");
        }
    }
    let about = info
        .about
        .iter()
        .find(|(what, _)| what == "time line of itm.toml");
    let about = &about.expect("how times were moved").1;
    assert!(about.contains("40 events `idle`"), "{about}");
    // In the other order of inputs, the time line is still that of the clock in nanoseconds.
    let options = OpenOptions {
        align: Some("idle".to_owned()),
        ..beside(&zephyr)
    };
    let (other, info) = read(&hardware, &options);
    assert_eq!(info.unit, TimeUnit::Nanoseconds);
    assert_eq!(times(&other, value), times(&events, value));
}

/// The error message when two recordings can't be combined.
fn refusal(path: &Path, options: &OpenOptions) -> String {
    match open(path, options) {
        Err(error @ OpenError::Together { .. }) => error.to_string(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("{} is opened", path.display()),
    }
}

#[test]
fn where_nothing_tells_how_clocks_go_together_recordings_are_refused() {
    let Some((_folder, zephyr, hardware)) = same_run() else {
        return;
    };
    let refused = refusal(&zephyr, &beside(&hardware));
    assert!(
        refused.contains("one of them counts ticks, not time"),
        "{refused}"
    );
    for (event, expected) in [
        ("isr_exit", "itm.toml: it has no event `isr_exit`"),
        ("17", "ctf_native_sample: it has no event `17`"),
    ] {
        let options = OpenOptions {
            align: Some(event.to_owned()),
            ..beside(&hardware)
        };
        let refused = refusal(&zephyr, &options);
        assert!(refused.contains(expected), "{refused}");
    }
    // Two runs, none of them with dates.
    let other = captures::zephyr_with_metadata()
        .expect("it was there")
        .join("ctf_uart_mps2");
    let refused = refusal(&zephyr, &beside(&other));
    assert!(refused.contains("neither tells dates"), "{refused}");
    let options = OpenOptions {
        align: Some("thread_switched_in".to_owned()),
        ..beside(&other)
    };
    let refused = refusal(&zephyr, &options);
    assert!(
        refused.contains("which of them are the same is not known"),
        "{refused}"
    );
}

#[test]
fn an_etm_and_an_ftrace_of_one_kernel_have_the_same_times() {
    let Some(folder) = captures::ftrace() else {
        return;
    };
    let ftrace = folder.join("arm64/fg-v7.dat");
    let made = tempfile::tempdir().expect("a folder");
    // nop, ret.
    let code: Vec<u8> = [0xd503_201fu32, 0xd65f_03c0]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    std::fs::write(made.path().join("two"), code).expect("code");
    const BEGIN: u64 = 135_000_000_000;
    let mut perf = recording(true, |perf| {
        perf.at(BEGIN - 3000).comm(1, "first");
        perf.at(BEGIN - 2000)
            .mapping(1, 0x40_0000, 0x1000, 0, "/two");
    });
    let mut trace = Trace::new(true);
    for step in 0..200 {
        trace = trace.time(BEGIN + step * 1_000_000).run(1, 0x40_0000);
    }
    perf.at(BEGIN + 300_000_000)
        .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    let hardware = made.path().join("perf.data");
    std::fs::write(&hardware, perf.file()).expect("a recording");
    let options = OpenOptions {
        symfs: Some(made.path().to_owned()),
        ..OpenOptions::default()
    };
    let (own, _) = read(&hardware, &options);
    let (kernel, kernel_info) = read(&ftrace, &OpenOptions::default());
    let together = OpenOptions {
        beside: vec![ftrace],
        ..options
    };
    let (events, info) = read(&hardware, &together);
    assert_eq!(info.clock.as_deref(), Some("sched_clock"));
    assert_eq!(events.len(), own.len() + kernel.len());
    let is_own = |event: &Event| event.stream.0 == 0;
    assert_eq!(times(&events, is_own), times(&own, |_| true));
    // The kernel's events keep their names, although numbers differ.
    let name = |event: &Event, info: &TraceInfo| match event.kind {
        EventKind::Enter { function, .. } => {
            let function = info.identities.function(function).expect("a function");
            let thread = event
                .thread
                .and_then(|thread| info.identities.thread_name(thread));
            Some((
                event.time,
                function.name.clone(),
                function.address,
                thread.map(str::to_owned),
            ))
        }
        _ => None,
    };
    let is_kernel = |event: &&Event| event.stream.0 != 0;
    let seen = events
        .iter()
        .filter(is_kernel)
        .filter_map(|event| name(event, &info));
    let known = kernel.iter().filter_map(|event| name(event, &kernel_info));
    assert!(seen.eq(known));
    // The events of both are ordered by time.
    let first = events
        .iter()
        .position(is_own)
        .expect("an event of the hardware");
    assert!(first > 1000 && events.len() - first > 1000, "{first}");
    let is_late = |pair: &[Event]| {
        let [one, other] = pair else { return false };
        is_own(one) != is_own(other) && one.time > other.time
    };
    assert!(!events.windows(2).any(is_late));
}

#[test]
fn values_align_as_well_as_names() {
    let folder = tempfile::tempdir().expect("a folder");
    // Values of port 1, one second apart: 1000 ticks of one clock, 3000 of the other.
    for (name, ticks) in [("one", 1000u32), ("other", 3000)] {
        let mut bytes = vec![0, 0, 0, 0, 0, 0x80];
        for value in [7u32, 9, 7] {
            bytes.push(0x0b);
            bytes.extend(value.to_le_bytes());
            bytes.extend([0xc0, ticks as u8 | 0x80, (ticks >> 7) as u8]);
        }
        std::fs::write(folder.path().join(format!("{name}.bin")), bytes).expect("a buffer");
        let text =
            format!("buffer = '{name}.bin'\nframes = 'none'\n[[source]]\nprotocol = 'ITM'\n");
        std::fs::write(folder.path().join(format!("{name}.toml")), text).expect("a description");
    }
    let (one, other) = (
        folder.path().join("one.toml"),
        folder.path().join("other.toml"),
    );
    let options = |value: &str| OpenOptions {
        align: Some(value.to_owned()),
        ..beside(&other)
    };
    let (events, info) = read(&one, &options("0x7"));
    assert_eq!(info.unit, TimeUnit::Ticks);
    let value = |event: &Event| {
        event
            .fields
            .iter()
            .any(|field: &Field| field.value == Value::Hex(9))
    };
    let nines = times(&events, value);
    assert_eq!(nines, [Time(2000), Time(2000)]);
    // With one common time the length of the other's tick is not known.
    let refused = refusal(&one, &options("9"));
    assert!(refused.contains("that takes two events"), "{refused}");
}

/// Programs write texts to `trace_marker` at known times, so they can align recordings. The clocks of one run must not
/// differ by a fifth.
#[test]
fn messages_align_and_clocks_that_differ_too_much_are_doubted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for (name, end) in [
        ("a.txt", "2.000000"),
        ("b.txt", "2.000010"),
        ("c.txt", "2.200000"),
    ] {
        let text = format!(
            "# tracer: nop\n a-10 [000] ...1 1.000000: tracing_mark_write: sync\n \
             a-10 [000] ...1 1.500000: tracing_mark_write: other\n \
             a-10 [000] ...1 {end}: tracing_mark_write: sync\n"
        );
        std::fs::write(path(name), text).expect("a text");
    }
    let remarks = |other: &str| {
        let options = OpenOptions {
            align: Some("sync".to_owned()),
            ..beside(&path(other))
        };
        let (events, info) = read(&path("a.txt"), &options);
        assert_eq!(times(&events, |event| event.record).len(), 6);
        info.remarks.concat()
    };
    assert!(!remarks("b.txt").contains("same run"));
    let doubt = remarks("c.txt");
    assert!(
        doubt.contains("16.6 %") && doubt.contains("same run"),
        "{doubt}"
    );
}

#[test]
fn recordings_that_tell_dates_are_moved_by_these() {
    let (Some(zephyr), Some(ctf)) = (captures::zephyr_with_metadata(), captures::ctf()) else {
        return;
    };
    let zephyr = zephyr.join("ctf_native_sample");
    let lttng = ctf.join("lttng-recorded");
    let (alone, info) = read(&lttng, &OpenOptions::default());
    let wall = info.wall_clock.expect("LTTng tells dates");
    // The target started one second before LTTng's first event.
    let first = alone.iter().map(|event| wall.unix_ns(event.time)).min();
    let zero = first.expect("an event") - 1_000_000_000;
    let options = OpenOptions {
        time_zero: Some(Date(zero)),
        ..beside(&lttng)
    };
    let (events, info) = read(&zephyr, &options);
    let is_lttng = |event: &Event| {
        let stream = info.stream(event.stream).expect("a stream");
        stream.name.starts_with("lttng-recorded/")
    };
    let moved: Vec<_> = alone
        .iter()
        .map(|event| Time(wall.unix_ns(event.time) - zero))
        .collect();
    assert!(moved.len() > 100);
    assert_eq!(times(&events, is_lttng), moved);
    assert_eq!(moved.iter().min(), Some(&Time(1_000_000_000)));
}
