//! `kymo record rtems:HOST:PORT`: writes the data of an RTEMS record server to a file.
//!
//! The file has the bytes as received, so RTEMS's own tools can read it as well.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use indicatif::{HumanBytes, HumanCount};
use kymo_rtems_record::Reader;

use super::{Args, bar, per_second};
use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::output::LiveFile;
use crate::render::count::counted;
use crate::render::json::Object;
use crate::rtems::Server;

/// A reader that copies all bytes read to a file.
struct Copy<'a> {
    server: Server,
    file: LiveFile<'a>,
    bytes: u64,
    most: u64,
    /// Number of events still wanted. A read never requests more bytes than these have at least.
    wanted: u64,
    /// The write error, if any, and the number of bytes that had arrived before it.
    full: Option<(io::Error, u64)>,
}

/// Minimum size of an item in bytes.
const LEAST_ITEM: u64 = 8;

impl Read for Copy<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.most - self.bytes).unwrap_or(usize::MAX);
        if left == 0 || self.full.is_some() {
            return Ok(0);
        }
        let wanted = self.wanted.saturating_mul(LEAST_ITEM).max(LEAST_ITEM);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let most = left.min(room.len()).min(wanted);
        let room = room.get_mut(..most).unwrap_or(&mut []);
        let read = self.server.read(room)?;
        if let Err(error) = self.file.write_all(room.get(..read).unwrap_or(&[])) {
            return Ok(self.end(error, read as u64));
        }
        self.bytes += read as u64;
        Ok(read)
    }
}

impl Copy<'_> {
    /// After a write error, truncates the file to complete items. Returns how many of the bytes are in it.
    fn end(&mut self, error: io::Error, arrived: u64) -> usize {
        self.full = Some((error, self.bytes + arrived));
        let whole = self.server.whole(self.file.written()).max(self.bytes);
        // A file that can't be truncated, such as a pipe, ends within an item.
        let _ = self.file.cut(whole);
        let kept = whole - self.bytes;
        self.bytes = whole;
        usize::try_from(kept).unwrap_or(0)
    }
}

/// Records until stopped.
///
/// # Errors
/// When no server answers, its data is no recording, or the file can't be written.
pub fn record(args: &Args, path: &Path, context: &mut Context) -> Result<ExitCode, Report> {
    if args.metadata.is_some() {
        return Err(
            Report::new("the stream of a record server describes itself")
                .help("--metadata goes with --protocol zephyr-tracing"),
        );
    }
    let unwritten = |error: io::Error| {
        Report::new(format_args!("{}: {error}", args.output().display()))
            .help("give --output a file that can be written")
    };
    let mut server = Server::connect(path)?;
    let file = LiveFile::new(args.output(), &[])?;
    let started = Instant::now();
    server.end_at(args.duration.and_then(|most| started.checked_add(most)));
    let copy = Copy {
        server,
        file,
        bytes: 0,
        most: args.size.unwrap_or(u64::MAX),
        wanted: args.events.unwrap_or(u64::MAX),
        full: None,
    };
    let mut reader = Reader::new(copy).live();
    let bar = bar(context);
    let (mut records, mut events, mut faults) = (Vec::new(), 0_u64, Vec::new());
    let mut failure = None;
    loop {
        let more = reader.read(&mut records);
        events += records.iter().filter(|record| record.is_item).count() as u64;
        records.clear();
        if let Some(most) = args.events {
            reader.input_mut().wanted = most.saturating_sub(events);
        }
        faults.append(&mut reader.take_faults());
        match more {
            Ok(true) if faults.is_empty() => {}
            Ok(_) => break,
            Err(error) => {
                failure = Some(Report::caused_by(&error));
                break;
            }
        }
        let (took, bytes) = (started.elapsed(), reader.input().bytes);
        bar.set_message(format!(
            "{:.1} s  {} events  {}  {}/s  {} lost",
            took.as_secs_f64(),
            HumanCount(events),
            HumanBytes(bytes),
            HumanBytes(per_second(bytes, took)),
            HumanCount(reader.statistics().lost),
        ));
        bar.tick();
        if args.events.is_some_and(|most| events >= most) {
            break;
        }
    }
    bar.finish_and_clear();
    let (statistics, took) = (reader.statistics(), started.elapsed());
    let mut copy = reader.into_input();
    let bytes = copy.bytes;
    let full = copy
        .full
        .take()
        .map(|(error, arrived)| copy.file.unwritten(&error, arrived));
    if full.is_none() {
        copy.file.flush().map_err(unwritten)?;
    }
    // A recording that a limit cuts ends within an item.
    let limited = events > 0 && args.size.is_some_and(|most| bytes >= most);
    let fault = faults.into_iter().next().filter(|_| !limited);
    match args.format.format {
        Format::Text => {
            context.note(format_args!(
                "{}: {} in {}, in {:.1} s ({} a second)",
                args.output().display(),
                counted(events, "event"),
                counted(bytes, "byte"),
                took.as_secs_f64(),
                counted(per_second(bytes, took), "byte"),
            ));
            if statistics.lost > 0 {
                context.warn(format_args!(
                    "lost because the server is too slow: {}; gaps show where",
                    counted(statistics.lost, "event")
                ));
            }
        }
        Format::Json => {
            let out = context.out().0;
            let mut object = Object::begin(out)?;
            object.member("events", events)?;
            object.member("lost", statistics.lost)?;
            object.member("bytes", bytes)?;
            object.member(
                "duration_ns",
                u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
            )?;
            object.end()?;
            out.write_all(b"\n")?;
        }
    }
    if let Some(full) = full {
        return Err(full);
    }
    let failure = failure.or_else(|| {
        let fault = fault?;
        Some(Report::new(format_args!("{}: {fault}", path.display())))
    });
    match failure {
        Some(report) => Err(report.help(format_args!(
            "what arrived until then is in {}",
            args.output().display()
        ))),
        None => Ok(ExitCode::SUCCESS),
    }
}
