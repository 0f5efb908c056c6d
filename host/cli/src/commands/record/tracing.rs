//! `kymo record --protocol zephyr-tracing`: records the live stream of Zephyr's tracing subsystem.
//!
//! Such a target sends CTF without packets and without its metadata, which belongs to the Zephyr release that it was
//! built from. So a recording consists of the received bytes and a copy of that file: a trace directory that any CTF
//! reader accepts.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar};
use kymo_link::LinkError;
use kymo_link::zephyr::tracing::{HostCommand, Line};

use super::{Args, bar, per_second};
use crate::args::Format;
use crate::commands::export::check_empty;
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::interrupt::Interruptible;
use crate::render::json::Object;
use crate::target::{TargetArgs, explain, timeouts};

/// The environment variable of Zephyr's build system with the path of its tree, which contains the metadata.
const ZEPHYR_BASE: &str = "ZEPHYR_BASE";
const METADATA: &str = "subsys/tracing/ctf/tsdl/metadata";

/// The name of the stream in such directories in Zephyr's documentation.
const STREAM: &str = "channel0_0";

/// Interval at which a wait checks whether the recording is complete.
const POLL: Duration = Duration::from_millis(100);

/// Silence after which the target is considered to have ended its stream. After `disable` it sends the rest of its
/// buffer.
const QUIET: Duration = Duration::from_millis(500);

/// Maximum time for this rest.
const DRAIN: Duration = Duration::from_secs(5);

/// Records until stopped, and reports the result.
pub fn record(args: &Args, target: &TargetArgs, context: &mut Context) -> Result<ExitCode, Report> {
    if args.events.is_some() {
        return Err(
            Report::new("--events can't be counted in this stream while it comes")
                .help("--duration or --size limit it"),
        );
    }
    let metadata = metadata(args.metadata.as_deref())?;
    check_empty(args.output())?;
    let address = target.address();
    let mut line = Line::open(&address, timeouts()?).map_err(explain)?;
    let interrupt = Interruptible::new()?;
    let path = args.output().join(STREAM);
    fs::create_dir_all(args.output()).map_err(|error| unwritable(args.output(), &error))?;
    fs::write(args.output().join("metadata"), metadata)
        .map_err(|error| unwritable(args.output(), &error))?;
    let file = File::create(&path).map_err(|error| unwritable(&path, &error))?;
    let mut recorder = Recorder {
        file,
        path: &path,
        bytes: 0,
        started: Instant::now(),
        bar: bar(context),
        buffer: vec![0; 64 * 1024],
    };
    line.give(HostCommand::Enable).map_err(explain)?;
    let enough = |recorder: &Recorder<'_>| {
        interrupt.flag().is_cancelled()
            || args
                .duration
                .is_some_and(|limit| recorder.started.elapsed() >= limit)
            || args.size.is_some_and(|limit| recorder.bytes >= limit)
    };
    let mut ended = None;
    while ended.is_none() && !enough(&recorder) {
        ended = recorder.take(&mut line, POLL)?.err();
    }
    let wanted = recorder.bytes;
    if ended.is_none() {
        ended = drain(&mut line, &mut recorder, context)?;
    }
    recorder.bar.finish_and_clear();
    let (bytes, took) = (recorder.bytes, recorder.started.elapsed());
    match args.format.format {
        Format::Text => context.note(format_args!(
            "{}: {bytes} bytes in {:.1} s ({} bytes a second)",
            args.output().display(),
            took.as_secs_f64(),
            per_second(bytes, took)
        )),
        Format::Json => {
            let out = context.out().0;
            let mut object = Object::begin(out)?;
            object.member("bytes", bytes)?;
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            object.member("duration_ns", took)?;
            object.end()?;
            out.write_all(b"\n")?;
        }
    }
    if wanted == 0 {
        context.warn(
            "nothing came: is this the UART of zephyr,tracing-uart, at its speed (--baud), and does \
             the firmware send CTF over it (CONFIG_TRACING_BACKEND_UART)?",
        );
    }
    match ended {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(explain(error).help(format_args!(
            "what arrived until then is in {}",
            args.output().display()
        ))),
    }
}

/// Ends the stream and records the rest of it.
fn drain(
    line: &mut Line,
    recorder: &mut Recorder<'_>,
    context: &Context,
) -> Result<Option<LinkError>, Report> {
    if let Err(error) = line.give(HostCommand::Disable) {
        return Ok(Some(error));
    }
    let deadline = Instant::now() + DRAIN;
    let mut quiet = Instant::now() + QUIET;
    while Instant::now() < quiet {
        if Instant::now() >= deadline {
            context.warn(
                "the target goes on sending: it was not built to take commands \
                 (CONFIG_TRACING_HANDLE_HOST_CMD); the recording ends in the middle",
            );
            break;
        }
        match recorder.take(line, POLL)? {
            Ok(0) => {}
            Ok(_) => quiet = Instant::now() + QUIET,
            Err(error) => return Ok(Some(error)),
        }
    }
    Ok(None)
}

/// The metadata to save with the stream: the given file, or that of the installed Zephyr.
fn metadata(named: Option<&Path>) -> Result<Vec<u8>, Report> {
    let base = || Some(PathBuf::from(env::var_os(ZEPHYR_BASE)?).join(METADATA));
    let Some(path) = named.map(Path::to_owned).or_else(base) else {
        return Err(
            Report::new("the stream of Zephyr's tracing does not describe itself").help(
                format_args!(
                    "give {METADATA} of the Zephyr that the target was built from with --metadata, or \
                     set {ZEPHYR_BASE}"
                ),
            ),
        );
    };
    fs::read(&path).map_err(|error| {
        Report::caused(format_args!("cannot read {}", path.display()), &error)
            .help("--metadata names the file that describes the stream")
    })
}

/// Writes received bytes, and shows the progress.
struct Recorder<'a> {
    file: File,
    path: &'a Path,
    bytes: u64,
    started: Instant,
    bar: ProgressBar,
    buffer: Vec<u8>,
}

impl Recorder<'_> {
    /// Writes received bytes, after waiting at most `timeout` for them. Returns their number, or that the connection
    /// failed.
    fn take(
        &mut self,
        line: &mut Line,
        timeout: Duration,
    ) -> Result<Result<usize, LinkError>, Report> {
        let length = match line.read(&mut self.buffer, timeout) {
            Ok(length) => length,
            Err(error) => return Ok(Err(error)),
        };
        let bytes = self.buffer.get(..length).unwrap_or_default();
        // Written immediately, so that the recording is readable whatever ends this process.
        self.file
            .write_all(bytes)
            .map_err(|error| unwritable(self.path, &error))?;
        self.bytes += length as u64;
        let took = self.started.elapsed();
        self.bar.set_message(format!(
            "{:.1} s  {}  {}/s",
            took.as_secs_f64(),
            HumanBytes(self.bytes),
            HumanBytes(per_second(self.bytes, took)),
        ));
        self.bar.tick();
        Ok(Ok(length))
    }
}
