//! Input of the bench: the same calls recorded by Kymo and by uftrace, the CTF export, and a recording of LTTng; each
//! in a short and a long version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::compile::{self, Compiler, Source};
use kymo_targets::library;
use kymo_targets::lua;
use kymo_targets::run::{self, Context, Error, Result};

/// Rounds of the program: a short run and a long one.
const ROUNDS: [u32; 2] = [1, 2];

/// Number of repetitions of the packets of LTTng's recording. Both versions have more than the 100,000 records that
/// `kymo` searches beforehand for loaded files, because that search is no cost per record.
const REPEATED: [u64; 2] = [400, 800];

/// One recording.
#[derive(Debug)]
pub struct Trace {
    /// The file or directory.
    pub path: PathBuf,
    /// The program, if the trace does not contain the names.
    pub elf: Option<PathBuf>,
    /// Number of records.
    pub records: u64,
}

/// A short recording and a long one.
#[derive(Debug)]
pub struct Pair(pub [Trace; 2]);

impl Pair {
    /// Cost per record: the difference of the counts divided by the difference of the records.
    ///
    /// # Errors
    /// If counting fails.
    pub fn each(&self, count: impl Fn(&Trace) -> Result<u64>) -> Result<f64> {
        let [few, many] = &self.0;
        let more = count(many)?.saturating_sub(count(few)?);
        Ok(more as f64 / (many.records - few.records) as f64)
    }
}

/// The program's recordings.
#[derive(Debug)]
pub struct Recordings {
    /// Kymo's trace.
    pub kymo: Pair,
    /// The CTF export of Kymo's trace.
    pub ctf: Pair,
    /// uftrace's recording, if the peers are requested.
    pub uftrace: Option<Pair>,
    /// The program with Kymo; its argument is the number of rounds.
    pub program: PathBuf,
}

impl Recordings {
    /// Builds the program with and without Kymo, and records both runs with both tracers.
    ///
    /// # Errors
    /// If something can't be built or run, or the tracers disagree on the number of calls.
    pub fn make(kymo: &Path, peers: bool) -> Result<Self> {
        let folder = run::target_dir().join("bench-analyze");
        fs::create_dir_all(&folder).context(folder.display())?;
        let traced = build(&folder.join("kymo"), true)?;
        let [a, b] = ROUNDS;
        let own = Pair([
            record(kymo, &traced, &folder, a)?,
            record(kymo, &traced, &folder, b)?,
        ]);
        let export = |trace: &Trace| export(kymo, trace);
        let ctf = Pair([export(&own.0[0])?, export(&own.0[1])?]);
        let uftrace = match peers {
            false => None,
            true => {
                let plain = build(&folder.join("plain"), false)?;
                Some(Pair([
                    uftrace(&plain, &folder, a, own.0[0].records)?,
                    uftrace(&plain, &folder, b, own.0[1].records)?,
                ]))
            }
        };
        Ok(Self {
            kymo: own,
            ctf,
            uftrace,
            program: traced,
        })
    }
}

/// Builds the program, with Kymo or without.
fn build(folder: &Path, with_kymo: bool) -> Result<PathBuf> {
    let root = run::root();
    let demos = root.join("demos");
    let lua = lua::sources()?;
    let mut cc = Compiler::new("gcc");
    cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .args([lua::FIXED_SEED])
        .include(&lua.include)
        .include(&root.join("device/c/include"))
        .include(&demos.join("lua"));
    if !with_kymo {
        cc.args(["-DPLAIN"]);
    }
    let mut sources: Vec<Source> = lua.files.into_iter().map(Source::instrumented).collect();
    sources.push(Source::instrumented(demos.join("lua/program.c")));
    sources.push(Source::plain(demos.join("lua/script.S")));
    let main = root.join("xtask/src/bench/analyze/main.c");
    sources.push(Source::plain(main));
    let objects = cc.compile(&sources, &folder.join("objects"))?;
    let program = folder.join("program");
    let mut linker = Command::new("gcc");
    linker.args(["-pthread", "-Wl,--build-id"]);
    if with_kymo {
        linker.args(compile::wrap_options(&["_setjmp", "longjmp"]));
    }
    linker.args(&objects).arg("-lm");
    if with_kymo {
        linker.arg(library::for_this_machine()?);
    }
    run::make(&mut linker, &program)?;
    Ok(program)
}

/// Runs the program with Kymo, and saves its trace as a directory.
fn record(kymo: &Path, program: &Path, folder: &Path, rounds: u32) -> Result<Trace> {
    let raw = folder.join(format!("{rounds}.kymo"));
    let mut command = Command::new(program);
    command.arg(rounds.to_string()).env("KYMO_OUTPUT", &raw);
    run::output(&mut command)?;
    let path = folder.join(format!("kymo-{rounds}"));
    remove(&path)?;
    let mut save = Command::new(kymo);
    save.arg("trace").arg(&raw).arg("--elf").arg(program);
    run::output(save.arg("--output").arg(&path))?;
    Ok(Trace {
        records: records(kymo, &path)?,
        path,
        elf: Some(program.to_owned()),
    })
}

/// Exports a trace as CTF, with the names of its functions.
fn export(kymo: &Path, trace: &Trace) -> Result<Trace> {
    let mut path = trace.path.clone().into_os_string();
    path.push("-ctf");
    let path = PathBuf::from(path);
    remove(&path)?;
    let mut export = Command::new(kymo);
    export.args(["export", "--to", "ctf"]);
    if let Some(elf) = &trace.elf {
        export.arg("--elf").arg(elf);
    }
    run::output(export.arg("--output").arg(&path).arg(&trace.path))?;
    Ok(Trace {
        records: records(kymo, &path)?,
        path,
        elf: None,
    })
}

/// Records the program without Kymo with uftrace, which must find the same number of calls.
fn uftrace(program: &Path, folder: &Path, rounds: u32, expected: u64) -> Result<Trace> {
    let path = folder.join(format!("uftrace-{rounds}"));
    remove(&path)?;
    let mut record = Command::new("uftrace");
    record.args(["record", "--no-libcall", "--no-event", "-d"]);
    run::output(record.arg(&path).arg(program).arg(rounds.to_string()))?;
    let mut report = Command::new("uftrace");
    report.args(["report", "--no-pager", "-f", "call", "-d"]);
    let table = run::output(report.arg(&path))?;
    let calls = table
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let records = 2 * calls.sum::<u64>();
    // There are few markers and names, and functions that longjmp skipped have no exit.
    if records.abs_diff(expected) > expected / 100 {
        return Err(Error::new(format!(
            "uftrace has {records} records of the run of which kymo has {expected}"
        )));
    }
    Ok(Trace {
        path,
        elf: None,
        records,
    })
}

/// The number of records that `kymo info` prints.
fn records(kymo: &Path, trace: &Path) -> Result<u64> {
    let mut info = Command::new(kymo);
    let info = run::output(info.args(["info", "--format", "json"]).arg(trace))?;
    let number = |key: &str| {
        let (_, rest) = info.split_once(&format!(r#""{key}":"#))?;
        rest.split([',', '}']).next()?.parse::<u64>().ok()
    };
    match (number("events"), number("lost")) {
        (Some(events), Some(0)) => Ok(events),
        _ => Err(Error::new(format!(
            "{}: expected a trace without losses, found {info}",
            trace.display()
        ))),
    }
}

/// Removes a folder if it exists.
fn remove(folder: &Path) -> Result<()> {
    match folder.exists() {
        true => fs::remove_dir_all(folder).context(folder.display()),
        false => Ok(()),
    }
}

/// A recording of LTTng's user-space tracer (`liblttng-ust-cyg-profile`), extended by repeating its packets with later
/// times.
#[derive(Debug)]
pub struct Lttng(Pair);

/// Difference in time between two repetitions of a packet. Most events in these packets have the low 32 bits of the
/// time, which a multiple of this does not change. A few have all 64 bits: they are recognized by a value between the
/// packet's begin and end.
const LATER: u64 = 1 << 32;

/// Offsets of the fields of a packet, in bytes: a header with magic, UUID, stream and instance, then a context.
const BEGIN: usize = 32;
const END: usize = 40;
const PACKET_BITS: usize = 56;
const SEQUENCE: usize = 64;

impl Lttng {
    /// Makes both recordings from the one in the large captures; `None` if there are no large captures.
    ///
    /// # Errors
    /// If they can't be written or read.
    pub fn find(kymo: &Path) -> Result<Option<Self>> {
        let data = match std::env::var_os("KYMO_DATA") {
            Some(data) => PathBuf::from(data),
            None => run::root().join("../shared/data"),
        };
        let trace = data.join("ctf/lttng-recorded/lttng213-ctf1-cyg/trace/ust/uid/0/64-bit");
        if !trace.is_dir() {
            return Ok(None);
        }
        let make = |times: u64| {
            let path = run::target_dir().join(format!("bench-analyze/lttng-{times}"));
            remove(&path)?;
            repeat(&trace, &path, times)?;
            Ok(Trace {
                records: records(kymo, &path)?,
                path,
                elf: None,
            })
        };
        let [few, many] = REPEATED;
        Ok(Some(Self(Pair([make(few)?, make(many)?]))))
    }

    /// The short and the long recording.
    pub const fn pair(&self) -> &Pair {
        &self.0
    }
}

/// Copies a trace, with each stream's packets repeated.
fn repeat(from: &Path, to: &Path, times: u64) -> Result<()> {
    fs::create_dir_all(to).context(to.display())?;
    for entry in fs::read_dir(from).context(from.display())? {
        let path = entry.context(from.display())?.path();
        if !path.is_file() {
            continue;
        }
        let mut bytes = fs::read(&path).context(path.display())?;
        let name = path.file_name().unwrap_or_default();
        if name != "metadata" {
            bytes = later(&bytes, times).ok_or_else(|| {
                let shown = path.display();
                Error::new(format!("{shown}: expected packets of LTTng's"))
            })?;
        }
        let copy = to.join(name);
        fs::write(&copy, bytes).context(copy.display())?;
    }
    Ok(())
}

/// Repeats the packets of a stream, each repetition with later times.
fn later(stream: &[u8], times: u64) -> Option<Vec<u8>> {
    let field = |packet: &[u8], at: usize| {
        let bytes = packet.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let mut packets = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let length = field(rest, PACKET_BITS)? / 8;
        let (packet, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        packets.push(packet);
        rest = behind;
        if packet.is_empty() {
            return None;
        }
    }
    let mut bytes = Vec::new();
    for time in 0..times {
        for packet in &packets {
            let span = field(packet, BEGIN)?..=field(packet, END)?;
            let mut copy = packet.to_vec();
            let mut add = |at: usize, more: u64| {
                let value = field(packet, at)? + more;
                copy.get_mut(at..at + 8)?
                    .copy_from_slice(&value.to_le_bytes());
                Some(())
            };
            for at in BEGIN..packet.len().saturating_sub(7) {
                if span.contains(&field(packet, at)?) {
                    add(at, time * LATER)?;
                }
            }
            add(SEQUENCE, time * packets.len() as u64)?;
            bytes.extend(copy);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_repeated_later() {
        let mut packet = vec![0; 80];
        packet[BEGIN] = 5;
        packet[END] = 9;
        packet[PACKET_BITS..PACKET_BITS + 2].copy_from_slice(&640_u16.to_le_bytes());
        let both = later(&packet, 2).unwrap();
        assert_eq!(both.len(), 160);
        assert_eq!(both[..80], packet);
        assert_eq!((both[80 + BEGIN], both[80 + BEGIN + 4]), (5, 1));
        assert_eq!((both[80 + END], both[80 + SEQUENCE]), (9, 1));
        assert_eq!(later(&packet[..79], 2), None);
        assert_eq!(later(&[0; 80], 2), None);
    }

    #[test]
    fn a_pair_is_free_of_what_both_cost() {
        let trace = |records| Trace {
            path: PathBuf::new(),
            elf: None,
            records,
        };
        let pair = Pair([trace(10), trace(30)]);
        let each = pair.each(|trace| Ok(1_000 + 7 * trace.records)).unwrap();
        assert!((each - 7.0).abs() < 1e-9);
    }
}
