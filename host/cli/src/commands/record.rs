//! `kymo record`: streams from a target into a trace directory, until stopped.

mod ftrace;
mod rtems;
mod tracing;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kymo_event::Addr;
use kymo_link::Reported;
use kymo_read::kymo::{Recording, RecordingFigures, Taken, WriteError};

use self::ftrace::FtraceArgs;
use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::gdb;
use crate::input::symbols::program;
use crate::live_stream::{self, Ended, Go, Sink, StreamArgs};
use crate::recording;
use crate::render::count::{are, counted};
use crate::render::json::Object;
use crate::systemview;
use crate::target::{NamedTarget, Protocol, explain, trace_info};

/// The options of `kymo record`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo record /dev/ttyACM0 -o trace --elf firmware.elf    until ctrl-C
  kymo record tcp:localhost:4000 -o trace --duration 10s  for ten seconds
  kymo record -o trace --size 100M --baud 921600          until there are 100 MB
  kymo record unix:prog.sock -o trace                     a program that runs with KYMO_SOCKET=prog.sock
  kymo show --follow trace --elf firmware.elf             in another window: see it come
  kymo record systemview:localhost:19111 -o it.SVDat      what a target with SystemView's recorder sends
  kymo record rtems:board:1234 -o capture.bin --limit 10M what RTEMS's record server sends, as it came
  kymo record gdb:localhost:3333 -o crash.core --elf fw.elf
                                                          what a target that crashed has in memory
  kymo record --ftrace --threshold 100us -- make          what a command has Linux do for long
  kymo record --ftrace --event 'sched:*' -o sched.dat     who runs on this Linux, until ctrl-C
  kymo record /dev/ttyUSB1 -o trace --protocol zephyr-tracing --metadata metadata
                                                          what Zephyr's tracing sends")]
pub struct Args {
    /// The directory of the recording; of SystemView, RTEMS, ftrace and of memory, the file. A trace that is there is
    /// replaced. [default with --ftrace: trace.dat]
    #[arg(short, long, value_name = "DIR", required_unless_present = "ftrace")]
    output: Option<PathBuf>,

    /// Stop after this time: a number with ms, s, m or h.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Duration>,

    /// Stop when this many events have come.
    #[arg(long, value_name = "N")]
    events: Option<u64>,

    /// Stop when the recording has this many bytes: a number, with k, M or G or without.
    #[arg(long, visible_alias = "limit", value_name = "BYTES", value_parser = size)]
    size: Option<u64>,

    /// The metadata of a stream that does not describe itself, as Zephyr's tracing's doesn't
    /// [default: that in $ZEPHYR_BASE].
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,

    /// Leave a target halted whose memory was read from gdb:HOST:PORT.
    #[arg(long)]
    stay_halted: bool,

    #[command(flatten)]
    stream: StreamArgs,

    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    target: NamedTarget,

    #[command(flatten)]
    symbols: SymbolArgs,

    #[command(flatten)]
    ftrace: FtraceArgs,
}

impl Args {
    /// The path of the recording.
    fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new("trace.dat"))
    }
}

/// Records until stopped, and reports the result.
///
/// # Errors
/// When the target does not answer or cannot stream, the directory can't be written, or the stream ended although
/// more was wanted; everything that arrived until then is in the recording.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    if args.ftrace.ftrace {
        return ftrace::record(args, context);
    }
    if let Some(address) = args.target.systemview()? {
        let limits = systemview::Limits {
            duration: args.duration,
            bytes: args.size,
        };
        return systemview::record(&address, args.output(), limits, context);
    }
    if let Some(path) = args
        .target
        .path()
        .filter(|path| crate::rtems::is_address(path))
    {
        return rtems::record(args, &path, context);
    }
    if let Some(path) = args.target.path().filter(|path| gdb::is_address(path)) {
        return gdb::record(
            &path,
            args.stay_halted,
            &args.symbols,
            args.output(),
            context,
        );
    }
    let target = args.target.args();
    if target.protocol() == Protocol::ZephyrTracing {
        return tracing::record(args, &target, context);
    }
    if args.metadata.is_some() {
        return Err(
            Report::new("Kymo targets describe their streams themselves")
                .help("--metadata goes with --protocol zephyr-tracing"),
        );
    }
    let mut live = target.connect(context)?;
    recording::check(&live)?;
    live_stream::check(&live)?;
    let symbols = args.symbols.load(&trace_info(&live.identity), context)?;
    let string_at = |address| symbols.string_at(address);
    let program = program(&symbols, &string_at);
    let name = live.name();
    let reported = live.target.send_time().map_err(explain)?;
    let origin = live_stream::origin(reported, &live.identity);
    let mut recording = Recording::create(args.output(), &live.identity, &name, origin, &program)
        .map_err(|error| unwritten(&error))?;
    recording.begins_at(reported.ticks);
    let mut recorder = Recorder {
        recording,
        string_at: &string_at,
        args,
        started: Instant::now(),
        bar: bar(context),
        begun_anew: false,
    };
    let ended = live_stream::run(
        &mut live,
        &target,
        args.stream,
        &mut recorder,
        context.remarks(),
    )?;
    recorder.bar.finish_and_clear();
    let took = recorder.started.elapsed();
    let figures = recorder.recording.figures();
    if recorder.begun_anew {
        context.warn("the target has begun anew: the recording ends there");
    }
    let hz = live.identity.clock_hz;
    match args.format.format {
        Format::Text => summary(args.output(), (figures, hz), &ended, took, context),
        Format::Json => json(context.out().0, figures, &ended, (took, reported))?,
    }
    match ended.failure {
        Some(report) => Err(report.help(format_args!(
            "what arrived until then is in {}",
            args.output().display()
        ))),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Writes packets, and shows the progress.
struct Recorder<'a> {
    recording: Recording,
    string_at: &'a dyn Fn(Addr) -> Option<String>,
    args: &'a Args,
    started: Instant,
    bar: ProgressBar,
    begun_anew: bool,
}

impl Recorder<'_> {
    /// Whether a limit has been reached.
    fn enough(&self) -> Go {
        let figures = self.recording.figures();
        let reached = |limit: Option<u64>, value| limit.is_some_and(|limit| value >= limit);
        let late = self
            .args
            .duration
            .is_some_and(|limit| self.started.elapsed() >= limit);
        if late
            || reached(self.args.events, figures.events)
            || reached(self.args.size, figures.bytes)
        {
            Go::Enough
        } else {
            Go::On
        }
    }
}

impl Sink for Recorder<'_> {
    fn packet(&mut self, packet: &[u8]) -> Result<Go, Report> {
        let failed = |error: WriteError| {
            let directory = self.args.output().display();
            unwritten(&error).help(format_args!("what arrived until then is in {directory}"))
        };
        let taken = self.recording.push(packet).map_err(failed)?;
        let named = self.recording.name_markers(self.string_at);
        named.map_err(failed)?;
        match taken {
            Taken::Written | Taken::Known | Taken::Refused => Ok(self.enough()),
            Taken::BegunAnew => {
                self.begun_anew = true;
                Ok(Go::Away)
            }
        }
    }

    fn pause(&mut self) -> Result<Go, Report> {
        let figures = self.recording.figures();
        let took = self.started.elapsed();
        self.bar.set_message(format!(
            "{:.1} s  {} events  {}  {}/s  {} lost",
            took.as_secs_f64(),
            HumanCount(figures.events),
            HumanBytes(figures.bytes),
            HumanBytes(per_second(figures.bytes, took)),
            HumanCount(figures.discarded),
        ));
        self.bar.tick();
        Ok(self.enough())
    }
}

/// The progress bar, visible on a terminal.
fn bar(context: &Context) -> ProgressBar {
    let bar = ProgressBar::hidden();
    if context.progress_visible() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
    }
    // The template is a valid constant; an invalid one would only change the looks.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Reports the recorded and the lost events.
fn summary(
    directory: &Path,
    (figures, hz): (RecordingFigures, u64),
    ended: &Ended,
    took: Duration,
    context: &Context,
) {
    context.note(format_args!(
        "{}: {} in {}, {}, in {:.1} s ({} a second)",
        directory.display(),
        counted(figures.events, "event"),
        counted(figures.packets, "packet"),
        counted(figures.bytes, "byte"),
        took.as_secs_f64(),
        counted(per_second(figures.bytes, took), "byte"),
    ));
    if ended.damaged > 0 || ended.resends > 0 {
        context.note(format_args!(
            "{}; pieces were asked for again {}",
            counted(ended.damaged, "damaged frame"),
            counted(ended.resends, "time")
        ));
    }
    if figures.earlier > 0 {
        context.note(format_args!(
            "{} older than this recording, by up to {:.1} s: the target had kept them (`kymo command clear` forgets such)",
            are(figures.earlier, "event"),
            figures.earlier_ticks as f64 / hz.max(1) as f64,
        ));
    }
    if figures.discarded_earlier > 0 {
        context.warn(format_args!(
            "lost before this recording began, because the target's buffer was full and nobody took it: {}",
            counted(figures.discarded_earlier, "event"),
        ));
    }
    let lost = [
        (figures.discarded - figures.discarded_earlier, "event"),
        (figures.lost_packets, "packet"),
    ];
    let lost: Vec<String> = lost
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| counted(count, what))
        .collect();
    if !lost.is_empty() {
        let why = match ended.reconnected {
            0 => "the link is too slow",
            _ => "the connection was lost, or the link is too slow",
        };
        context.warn(format_args!(
            "lost because {why}: {}; gaps show where",
            lost.join(" and ")
        ));
    }
    if figures.refused > 0 {
        context.warn(format_args!(
            "left out because the target sent it as packets, and it is none: {}",
            counted(figures.refused, "byte")
        ));
    }
}

/// The report as one object, for programs.
fn json(
    out: &mut dyn Write,
    figures: RecordingFigures,
    ended: &Ended,
    (took, reported): (Duration, Reported),
) -> std::io::Result<()> {
    let mut object = Object::begin(out)?;
    object.member("events", figures.events)?;
    object.member("lost", figures.discarded)?;
    object.member("lost_packets", figures.lost_packets)?;
    object.member("earlier_events", figures.earlier)?;
    object.member("earlier_lost", figures.discarded_earlier)?;
    object.member("packets", figures.packets)?;
    object.member("bytes", figures.bytes)?;
    object.member("refused_bytes", figures.refused)?;
    object.member(
        "duration_ns",
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
    )?;
    object.member("damaged", ended.damaged)?;
    object.member("resends", ended.resends)?;
    object.member("reconnected", ended.reconnected)?;
    object.member("withheld_streams", ended.withheld)?;
    object.member("wall_clock_uncertainty_ns", reported.uncertainty)?;
    object.end()?;
    out.write_all(b"\n")
}

fn per_second(bytes: u64, took: Duration) -> u64 {
    (bytes as f64 / took.as_secs_f64().max(0.001)) as u64
}

/// The error of a recording that cannot be written.
fn unwritten(error: &WriteError) -> Report {
    let report = Report::caused_by(error);
    match error {
        WriteError::Occupied { .. } => report.help("give --output a new directory"),
        _ => report.help("give --output a place that you may write to, with room for the trace"),
    }
}

/// Parses a time such as `10s`.
fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let expected = || format!("expected a number with ms, s, m or h, found {text:?}");
    let (number, unit) = units
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)))
        .ok_or_else(expected)?;
    let number: f64 = number.trim().parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * unit).map_err(|_| expected())
}

/// Parses a number of bytes such as `100M`.
fn size(text: &str) -> Result<u64, String> {
    let expected =
        || format!("expected a number of bytes, with k, M or G or without, found {text:?}");
    let units = [
        ("k", 1_000),
        ("K", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let unit = units
        .into_iter()
        .find_map(|(name, unit)| Some((text.strip_suffix(name)?, unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let number: u64 = number.trim().parse().map_err(|_| expected())?;
    number.checked_mul(unit).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_read_as_people_write_them() {
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1.5 m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "10", "s", "-1s", "1e300h", "nans"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("1000"), Ok(1000));
        assert_eq!(size("100M"), Ok(100_000_000));
        assert_eq!((size("100k"), size("100K")), (Ok(100_000), Ok(100_000)));
        for wrong in ["", "M", "-1", "1.5M", "99999999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
