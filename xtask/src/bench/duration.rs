//! `cargo xtask bench duration`: how much time a buffer covers in duration mode, on the demonstration firmware.
//!
//! The table of Tim Bird's "Measuring Function Duration with Ftrace" for our own recorder: the time that the same
//! buffer covers at rising thresholds. Both threads of the firmware run Lua in an emulator that counts instructions (16
//! ns each, as for a processor with 62 MHz). The cost of a call in this mode is in rows of `cargo xtask bench
//! recorder`.

use std::fs;
use std::path::Path;
use std::process::Command;

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::run::{self, Context, Error, Result};
use kymo_targets::rust::BareRust;

/// Bytes of the firmware's buffer (`demos/firmware/main.c`).
const BUFFER: u64 = 1536 * 1024;

/// Thresholds, each with the recording time in seconds of this machine.
const THRESHOLDS: [(&str, u32); 7] = [
    ("0", 2),
    ("1us", 2),
    ("10us", 3),
    ("100us", 5),
    ("1ms", 15),
    ("100ms", 40),
    ("1s", 40),
];

/// Result for one threshold.
struct Coverage {
    span_ns: u64,
    bytes: u64,
    calls: u64,
}

/// Prints the table.
///
/// # Errors
/// When the firmware cannot be built or run.
pub fn duration() -> Result<()> {
    let elf = firmware::build(Hooks::Duration, &BareRust::find()?)?;
    let kymo = kymo::build(Profile::Debug)?;
    let folder = run::target_dir().join("bench/duration");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).context(folder.display())?;
    let mut rows = Vec::new();
    for (threshold, wait) in THRESHOLDS {
        let qemu = Qemu::boot_with(&elf, &folder, &["-icount", "shift=4"])?;
        let trace = folder.join(threshold);
        let mut command = Command::new(&kymo);
        command.env("KYMO_PATIENCE", "20");
        command.args(["trace", "--target", &qemu.target(), "--elf"]);
        command.arg(&elf).args(["--threshold", threshold, "--wait"]);
        command.arg(wait.to_string()).arg("--output").arg(&trace);
        run::run(&mut command)?;
        drop(qemu);
        rows.push((threshold, measure(&kymo, &trace)?));
    }
    let base = match rows.first() {
        Some((_, first)) => held(first),
        None => return Err(Error::new("there is no threshold")),
    };
    println!(
        "\nTHRESHOLD   RECORDED EVENTS      BYTES   TIME COVERED   IN A FULL BUFFER        GAIN"
    );
    for (threshold, row) in &rows {
        let full = held(row);
        let mark = if row.bytes < BUFFER { "projected" } else { "" };
        println!(
            "{threshold:>9} {:>16} {:>11} {:>12.3} s {:>14.3} s {:>10.0}x  {mark}",
            row.calls,
            row.bytes,
            row.span_ns as f64 / 1e9,
            full,
            full / base
        );
    }
    Ok(())
}

/// Seconds that the buffer covers, extrapolated if it was not full.
fn held(row: &Coverage) -> f64 {
    let seconds = row.span_ns as f64 / 1e9;
    match row.bytes {
        0 => 0.0,
        bytes if bytes < BUFFER => seconds * BUFFER as f64 / bytes as f64,
        _ => seconds,
    }
}

fn measure(kymo: &Path, trace: &Path) -> Result<Coverage> {
    let info = run::output(
        Command::new(kymo)
            .args(["info", "--format", "json"])
            .arg(trace),
    )?;
    let stream = info
        .split("\"name\":\"cpu0\"")
        .nth(1)
        .ok_or_else(|| Error::new("the trace has no stream cpu0"))?;
    let number = |name: &str| -> Result<u64> {
        let value = stream.split(&format!("\"{name}\":")).nth(1);
        let digits = value.and_then(|value| value.split([',', '}']).next());
        digits
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| Error::new(format!("`kymo info` tells no {name} of cpu0")))
    };
    let whole = |name: &str| -> Option<u64> {
        let value = info.split(&format!("\"{name}\":")).nth(1)?;
        value.split([',', '}']).next()?.parse().ok()
    };
    let (start, end) = match (whole("start_ns"), whole("end_ns")) {
        (Some(start), Some(end)) => (start, end),
        _ => return Err(Error::new("`kymo info` tells no times")),
    };
    let bytes = fs::metadata(trace.join("cpu0")).context("cpu0")?.len();
    Ok(Coverage {
        span_ns: end - start,
        bytes,
        calls: number("events")?,
    })
}
