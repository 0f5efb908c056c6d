//! Several cores of a bare-metal system: context IDs that are the same on all of them, or of one thread that moves.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;
use tempfile::TempDir;

/// Address of the code, which has three instructions.
const HERE: u64 = 0x40_0000;

fn code() -> Vec<u8> {
    let words = [0xd503_201f_u32, 0xd503_201f, 0xd65f_03c0];
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn kymo(arguments: &[&str], input: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).arg(input);
    command.output().expect("kymo runs")
}

/// Runs `kymo`, which must exit with this code, and returns both outputs.
fn printed(code: i32, arguments: &[&str], input: &Path) -> (String, String) {
    let Output {
        stdout,
        stderr,
        status,
    } = kymo(arguments, input);
    let texts = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(status.code(), Some(code), "{arguments:?}: {texts:?}");
    texts.into()
}

/// A snapshot of two cores that run the same code.
fn snapshot(cores: [Trace; 2]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path().join(name), bytes).expect("a file");
    };
    write("code", &code());
    let (mut devices, mut buffers, mut sources, mut owners) =
        (String::new(), String::new(), String::new(), String::new());
    for (cpu, trace) in cores.iter().enumerate() {
        write(&format!("trace{cpu}"), &trace.bytes);
        write(
            &format!("cpu_{cpu}.ini"),
            format!(
                "[device]\nname=cpu_{cpu}\nclass=core\ntype=Cortex-A53\n\n[dump1]\nfile=code\n\
                 address={HERE:#x}\nlength=12\n"
            )
            .as_bytes(),
        );
        write(
            &format!("etm_{cpu}.ini"),
            format!(
                "[device]\nname=ETM_{cpu}\nclass=trace_source\ntype=ETM4\n\n[regs]\n\
                 TRCCONFIGR(0x004)=0x8c1\nTRCTRACEIDR(0x010)={:#x}\nTRCAUTHSTATUS(0x3EE)=0xCC\n\
                 TRCIDR0(0x078)=0x8000e81\nTRCIDR1(0x079)=0x4100f463\nTRCIDR2(0x07A)=0x488\n",
                0x10 + cpu
            )
            .as_bytes(),
        );
        devices += &format!(
            "device{}=cpu_{cpu}.ini\ndevice{}=etm_{cpu}.ini\n",
            2 * cpu,
            2 * cpu + 1
        );
        buffers +=
            &format!("\n[buffer{cpu}]\nname=ETB_{cpu}\nfile=trace{cpu}\nformat=source_data\n");
        sources += &format!("ETM_{cpu}=ETB_{cpu}\n");
        owners += &format!("cpu_{cpu}=ETM_{cpu}\n");
    }
    write(
        "snapshot.ini",
        format!(
            "[snapshot]\nversion=1.0\n\n[device_list]\n{devices}\n[trace]\nmetadata=trace.ini\n"
        )
        .as_bytes(),
    );
    write(
        "trace.ini",
        format!(
            "[trace_buffers]\nbuffers=buffer0,buffer1\n{buffers}\n[source_buffers]\n{sources}\n\
             [core_trace_sources]\n{owners}"
        )
        .as_bytes(),
    );
    let path = folder.path().to_owned();
    (folder, path)
}

/// Trace of a core that runs the code in this context from one time to another.
fn core(context: u32, times: std::ops::Range<u64>) -> Trace {
    let mut trace = Trace::new(true).time(times.start);
    for time in (times.start..times.end).step_by(100).skip(1) {
        trace = trace.run(context, HERE).time(time);
    }
    trace.run(context, HERE).time(times.end)
}

const AT_ONCE: &str = "executes on several CPUs at once";

#[test]
fn a_context_of_several_cores_at_once_is_a_thread_of_each() {
    for context in [0, 7] {
        let (_folder, input) = snapshot([core(context, 1000..3000), core(context, 1003..3003)]);
        let (rows, notes) = printed(0, &["report", "--format", "json"], &input);
        assert!(
            notes.contains(&format!("context ID {context} {AT_ONCE}")),
            "{notes}"
        );
        let own = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            row["self_ticks"].as_u64().expect("ticks")
        };
        // Both cores execute all the time.
        let sum: u64 = rows.lines().map(own).sum();
        assert!((3990..=4010).contains(&sum), "{sum}: {rows}");
        let (calls, _) = printed(0, &["calls"], &input);
        for cpu in 0..2 {
            let name = format!("thread {context}, cpu {cpu}");
            let (rows, _) = printed(0, &["report", "--by", "thread"], &input);
            assert_eq!(rows.matches(&name).count(), 1, "{rows}");
        }
        assert!(!calls.contains("lost"), "{calls}");
    }
}

#[test]
fn a_context_of_one_core_after_another_is_one_thread() {
    let (_folder, input) = snapshot([core(7, 1000..3000), core(7, 3100..5000)]);
    let (rows, notes) = printed(0, &["report", "--by", "thread"], &input);
    assert!(!notes.contains(AT_ONCE), "{notes}");
    assert!(!rows.contains("cpu 0"), "{rows}");
}

/// What ran when a core's trace ends is not known to run on until the trace of all cores ends.
#[test]
fn a_run_is_at_most_what_was_traced() {
    let (_folder, input) = snapshot([core(7, 1000..3000), core(8, 1000..9000)]);
    let (text, _) = printed(0, &["report", "--by", "thread"], &input);
    let run = |thread: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(thread));
        let words: Vec<_> = line.expect("a row").split_whitespace().collect();
        let numbers = words[3..]
            .iter()
            .filter_map(|word| word.parse::<u64>().ok());
        numbers.into_iter().next().expect("a number")
    };
    assert!(run("7") <= 2000, "{text}");
    assert!((7900..=8000).contains(&run("8")), "{text}");
}

#[test]
fn threads_that_the_trace_does_not_have_are_errors_everywhere() {
    let (_folder, input) = snapshot([core(0, 1000..3000), core(0, 1003..3003)]);
    let elsewhere = tempfile::tempdir().expect("a folder");
    let output = elsewhere.path().join("out").display().to_string();
    for words in [
        &["report"][..],
        &["calls"],
        &["hotspots"],
        &["disasm"],
        &["ranges"],
        &["branches"],
        &["packets"],
        &["hotspots", "--coverage"],
        &["export", "--to", "lcov", "-o", &output],
        &["export", "--to", "autofdo", "-o", &output],
    ] {
        let with = |more: &[&'static str]| [words, more].concat();
        let (_, errors) = printed(2, &with(&["--thread", "5"]), &input);
        assert!(
            errors.contains("error: the trace has no thread 5"),
            "{words:?}: {errors}"
        );
        assert!(errors.contains("thread 0"), "{words:?}: {errors}");
        let (_, errors) = printed(2, &with(&["--begin", "2000", "--end", "1500"]), &input);
        let expected = "error: --begin is 500 ticks later than --end";
        assert!(errors.contains(expected), "{words:?}: {errors}");
    }
}

/// A recording of one process whose kernel wrote no context IDs, and records of the trace without a process.
#[test]
fn code_under_context_0_is_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("three"), code()).expect("code");
    let trace = Trace::new(true).run(0, HERE).run(0, HERE);
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        // A record of thread 0, as AUX records of a CPU have it.
        perf.at(2500).comm(0, "swapper");
    });
    perf.at(9000)
        .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    let input = folder.path().join("perf.data");
    std::fs::write(&input, perf.file()).expect("a recording");
    let symfs = folder.path().display().to_string();
    let (rows, notes) = printed(
        0,
        &["hotspots", "--format", "json", "--symfs", &symfs],
        &input,
    );
    let executed = |line: &str| {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        row["instructions"].as_u64().expect("a number")
    };
    let sum: u64 = rows.lines().map(executed).sum();
    assert_eq!(sum, 6, "{rows} {notes}");
}
