//! Targets behind a GDB server, `gdb:HOST:PORT`, whose memory is read.
//!
//! A core dump that a debugger saves is a supported input already ([`kymo_symbols::core_dump`]). So the memory that
//! the program may write is fetched into a core dump, which is then processed like any other.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::HumanBytes;
use kymo_link::Address;
use kymo_link::gdb::{Debugger, GdbError};
use kymo_read::kymo;
use kymo_symbols::{Program, core_dump};

use crate::args::SymbolArgs;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::interrupt::{self, Interruptible};
use crate::output::{Inputs, protect, write_file};
use crate::render::count::counted;
use crate::target::patience;

/// The section of a program that describes the recording in its memory.
const NOTE: &str = ".note.kymo";

/// The prefix of a GDB server's address.
const PREFIX: &str = "gdb:";

/// Timeout of a connection, and of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of the memory to read: more than any target has that a host reads through a debug port.
const MOST: u64 = 1 << 30;

/// Size of one read, between two checks for ctrl-C.
const PIECE: u64 = 64 << 10;

/// Whether a path is the address of a GDB server.
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// A target's core dump in a temporary file, which is removed on drop.
#[derive(Debug)]
pub struct Fetched {
    folder: PathBuf,
    /// The file.
    pub path: PathBuf,
}

impl Drop for Fetched {
    fn drop(&mut self) {
        interrupt::remove_now(&self.folder);
    }
}

/// Fetches the memory of the target at an address into a temporary core dump, named like the address.
///
/// # Errors
/// When there is no ELF file, no server answers, or the file can't be written.
pub fn fetch(
    address: &Path,
    stay_halted: bool,
    symbols: &SymbolArgs,
    context: &Context,
) -> Result<Fetched, Report> {
    let dump = dump(address, stay_halted, symbols, context)?;
    let unwritten = |error: io::Error| {
        Report::caused("cannot keep what was read of the target", &error)
            .help("is there room where temporary files are (TMPDIR)?")
    };
    let folder = std::env::temp_dir().join(format!("kymo-{}-gdb", std::process::id()));
    let create = || fs::create_dir(&folder).map(|()| (folder.clone(), ()));
    let (folder, ()) = interrupt::create_temporary(create).map_err(unwritten)?;
    let path = folder.join(address);
    let fetched = Fetched { folder, path };
    fs::write(&fetched.path, dump).map_err(unwritten)?;
    Ok(fetched)
}

/// `kymo record gdb:HOST:PORT`: fetches the memory into a core dump that is saved.
///
/// # Errors
/// As for [`fetch`], and when the output is one of the files that name functions.
pub fn record(
    address: &Path,
    stay_halted: bool,
    symbols: &SymbolArgs,
    output: &Path,
    context: &Context,
) -> Result<ExitCode, Report> {
    protect(&Inputs::of_symbols(symbols), output)?;
    let dump = dump(address, stay_halted, symbols, context)?;
    let name = output.display();
    write_file(output, &dump)?;
    context.note(format_args!(
        "{name}: a core dump of {}; with --elf every subcommand reads it",
        counted(dump.len() as u64, "byte")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Fetches the core dump of the target at an address.
fn dump(
    address: &Path,
    stay_halted: bool,
    symbols: &SymbolArgs,
    context: &Context,
) -> Result<Vec<u8>, Report> {
    let name = address.display();
    let program = program(symbols)?;
    let ranges = ranges(&program);
    let size: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if size == 0 || size > MOST {
        return Err(Report::new(format_args!(
            "{name}: the program may write {size} bytes of memory, expected 1 to {MOST}"
        ))
        .help("is it the ELF file of this very program?"));
    }
    let (host, port) = host_and_port(address)?;
    let started = Instant::now();
    let explain = |error: GdbError| explain(&error);
    let mut debugger = Debugger::connect(&host, port, TIMEOUT * patience()?).map_err(explain)?;
    let parts = match read(&mut debugger, ranges, &name.to_string(), context) {
        Ok(parts) => parts,
        Err(report) => {
            // A target that was halted for this is resumed, if the server still answers.
            let help = match debugger.detach() {
                Ok(()) => "the target runs on",
                Err(_) => "the target may still be halted",
            };
            return Err(report.help(help));
        }
    };
    let read: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
    let now = if stay_halted {
        drop(debugger);
        "stays halted"
    } else {
        // What was read is whole, whatever becomes of the target.
        match debugger.detach() {
            Ok(()) => "runs on",
            Err(error) => {
                context.warn(format_args!("{name}: the target stays halted: {error}"));
                "stays halted"
            }
        }
    };
    context.note(format_args!(
        "{name}: {} of memory read in {:.1} s; debug servers halt a target meanwhile; it {now}",
        HumanBytes(read as u64),
        started.elapsed().as_secs_f64(),
    ));
    core_dump(&program, &parts).map_err(|error| Report::caused(name, &error))
}

/// Reads memory: each part with its address, as far as the server delivers it.
fn read(
    debugger: &mut Debugger,
    ranges: Vec<Range<u64>>,
    name: &str,
    context: &Context,
) -> Result<Vec<(u64, Vec<u8>)>, Report> {
    let cancel = Interruptible::new()?;
    let mut parts = Vec::new();
    for range in ranges {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < range.end - range.start {
            if cancel.flag().is_cancelled() {
                return Err(Report::new("broken off"));
            }
            let at = range.start + bytes.len() as u64;
            let wanted = PIECE.min(range.end - at) as usize;
            let read = debugger.read(at, wanted).map_err(|error| explain(&error))?;
            let all = read.len() == wanted;
            bytes.extend(read);
            if !all {
                let end = range.start + bytes.len() as u64;
                context.warn(format_args!(
                    "{name}: the debug server gives no memory at {end:#x}: {} left out",
                    counted(range.end - end, "byte")
                ));
                break;
            }
        }
        if !bytes.is_empty() {
            parts.push((range.start, bytes));
        }
    }
    Ok(parts)
}

/// The memory to read: everything that the program may write, and its recording.
fn ranges(program: &Program) -> Vec<Range<u64>> {
    let mut ranges = program.writable().to_vec();
    let within = |ranges: &[Range<u64>], range: &Range<u64>| {
        let mut all = ranges.iter();
        all.any(|other| other.start <= range.start && range.end <= other.end)
    };
    for range in kymo::recorded_memory(program) {
        if !within(&ranges, &range) {
            ranges.push(range);
        }
    }
    ranges
}

/// The program among the ELF files: if there are several, the one with a recorder.
///
/// # Errors
/// When none is given, or it can't be read.
pub fn program(symbols: &SymbolArgs) -> Result<Program, Report> {
    let Some((first, others)) = symbols.elf.split_first() else {
        return Err(
            Report::new("a dump of a target's memory can't be read alone")
                .help("give the program's ELF file with --elf"),
        );
    };
    let program = |path| Program::open(path).map_err(|error| Report::caused_by(&error));
    // A boot loader may be among them.
    let mut found = program(first)?;
    for other in others {
        if found.section(NOTE).is_none() {
            found = program(other)?;
        }
    }
    Ok(found)
}

fn host_and_port(address: &Path) -> Result<(String, u16), Report> {
    let name = address.to_str().unwrap_or("");
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    // `gdb::1234`, as in GDB itself, is this machine.
    let rest = match rest.strip_prefix(':') {
        Some(port) => format!("localhost:{port}"),
        None => rest.to_owned(),
    };
    match format!("tcp:{rest}").parse() {
        Ok(Address::Tcp { host, port }) => Ok((host, port)),
        Ok(_) => Err(Report::new(format_args!("{name} is no debug server"))),
        Err(error) => Err(
            Report::new(format_args!("`{name}`: {}", error.problem)).help(
                "a debug server is gdb:HOST:PORT, as in gdb:localhost:3333; a file of such a name is ./NAME",
            ),
        ),
    }
}

/// The report with advice for an error.
fn explain(error: &GdbError) -> Report {
    let help = match error {
        GdbError::Link(_) => {
            "is the debug server started? QEMU's listens at port 1234 (-s), OpenOCD's and pyOCD's at 3333, J-Link's at 2331"
        }
        GdbError::NoTarget { .. } => "attach the server to the target first",
        GdbError::Lost(_) => "most debug servers serve one client: is GDB connected to it?",
        _ => {
            "does a debug server of GDB's listen at this port, and is no other client connected to it?"
        }
    };
    Report::caused_by(error).help(help)
}
