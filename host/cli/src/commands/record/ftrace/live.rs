//! Records with ftrace on Linux: from the settings of the kernel to the finished file.

use std::io;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar};
use kymo_tracefs::{
    Figures, Loss, Recording, Request, STATE_DIRECTORY, Session, Stopped, Tracefs, TracefsError,
    boot, recover,
};

use super::FtraceArgs;
use crate::args::Format;
use crate::commands::record::{Args, bar, per_second};
use crate::context::Context;
use crate::diagnostic::{Report, unwritable};
use crate::interrupt::{self, Interruptible};
use crate::output::OutputFile;
use crate::render::count::{are, counted};
use crate::render::json::Object;

/// Interval between checks whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Interval between reads of the session's counts of events and bytes.
const ASK: Duration = Duration::from_millis(100);

/// Records until the command ends, a limit is reached, or ctrl-C.
///
/// # Errors
/// When the kernel can't record what is asked for, or the file can't be written.
pub fn record(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let options = &args.ftrace;
    let mut request = request(options)?;
    if options.boot && args.output.is_none() {
        return print_parameters(&request, context);
    }
    if args.output() == Path::new("-") {
        return Err(Report::new("a trace.dat can't be written to a pipe: its parts are put together at the end")
            .help("name a file with -o; trace_pipe is read as it comes: kymo show /sys/kernel/tracing/trace_pipe"));
    }
    let tracefs = Tracefs::find().map_err(explain)?;
    // Settings of an earlier, killed recording are restored first: they may be the reason why this one would fail.
    recovered(context);
    if options.boot {
        return save_boot(&tracefs, args, context);
    }
    for pid in &options.pid {
        request
            .tasks
            .extend(kymo_tracefs::threads(*pid).map_err(explain)?);
    }
    let file = OutputFile::create(args.output())?;
    let interruptible = Interruptible::new()?;
    let mut command = match &options.command[..] {
        [] => None,
        command => Some(Command::prepare(command)?),
    };
    request
        .tasks
        .extend(command.as_ref().map(|command| command.stopped.id()));
    let mut session =
        Session::prepare(tracefs, &request, Path::new(STATE_DIRECTORY)).map_err(explain)?;
    let restorer = session.restorer();
    interrupt::before_end(move || {
        restorer.restore();
    });
    introduce(&session, &request, context);
    session.start(args.output()).map_err(explain)?;
    let started = Instant::now();
    if let Some(command) = &mut command {
        command.begin()?;
    }
    let bar = bar(context);
    let ended = watch(&session, args, &interruptible, &mut command, &bar);
    let ended = ended.map_err(|report| match session.pages() {
        Some(pages) => report.help(format_args!("what was recorded is in {}", pages.display())),
        None => report,
    })?;
    bar.finish_and_clear();
    let took = started.elapsed();
    let place = session.place().to_string();
    let tracer = session.tracer().map(str::to_owned);
    let (recording, failed) = session.finish();
    unrestored(&failed, context);
    let mut recording = recording.map_err(explain)?;
    let cut = recording.cut.take();
    let summary = Summary {
        place,
        tracer,
        took,
        has_stopped: ended.has_stopped,
        events: recording.events,
        bytes: recording.bytes(),
        losses: recording.losses.clone(),
    };
    write(recording, file, args.output(), context)?;
    summary.print(args, context)?;
    let code = match (command, ended.status) {
        (Some(mut command), None) => command.end()?,
        (_, Some(status)) => code(status),
        (None, None) => ExitCode::SUCCESS,
    };
    match cut {
        None => Ok(code),
        Some(error) => Err(cut_short(&error, args.output())),
    }
}

/// Report of an error that ended a recording. The file has the events before it.
fn cut_short(error: &TracefsError, path: &Path) -> Report {
    Report::caused_by(error).help(format_args!(
        "{} has what was recorded before; record less (--threshold, --function, --event, --duration, --size), or to \
         another disk with -o",
        path.display()
    ))
}

/// Converts the options into a request to the kernel.
fn request(options: &FtraceArgs) -> Result<Request, Report> {
    let events = options.event.iter().map(|name| name.parse());
    let events: Result<_, String> = events.collect();
    Ok(Request {
        tracer: options.tracer.clone(),
        threshold_us: options.threshold,
        stop_at: options.stop_at.clone(),
        functions: options.function.clone(),
        hidden: options.hide.clone(),
        depth: options.depth,
        events: events.map_err(Report::new)?,
        tasks: Vec::new(),
        buffer_kb: options.buffer.div_ceil(1024).max(1),
        clock: options.clock.clone(),
    })
}

/// Adds the next step to an error.
fn explain(error: TracefsError) -> Report {
    let help = error.help();
    let report = Report::caused_by(&error);
    match help {
        Some(help) => report.help(help),
        None => report,
    }
}

/// Restores the settings that killed recordings changed, and reports it.
fn recovered(context: &Context) {
    for recovery in recover(Path::new(STATE_DIRECTORY)) {
        if recovery.changes > 0 || recovery.pages.is_some() {
            let changes = counted(recovery.changes as u64, "change");
            let recorded = match &recovery.pages {
                Some(pages) => {
                    let pages = pages.display();
                    format!("what it recorded is in {pages}: kymo report {pages}")
                }
                None => "what it recorded is lost".to_owned(),
            };
            context.note(format_args!(
                "an earlier recording was killed: what it changed in tracefs is restored ({changes}); {recorded}"
            ));
        }
        unrestored(&recovery.failed, context);
    }
}

/// Warns of settings that could not be restored.
fn unrestored(failed: &[TracefsError], context: &Context) {
    for error in failed {
        let error = Report::caused_by(error);
        context.warn(format_args!(
            "a setting is not restored: {}",
            error.message()
        ));
    }
}

/// Reports what is recorded and in which buffer, and warns of limitations.
fn introduce(session: &Session, request: &Request, context: &Context) {
    let what = match (session.tracer(), request.threshold_us) {
        (Some(tracer), Some(least)) => format!("calls of at least {least} us ({tracer})"),
        (Some(tracer), None) => format!("functions ({tracer})"),
        (None, _) => "events".to_owned(),
    };
    context.note(format_args!("recording {what} in {}", session.place()));
    if !request.tasks.is_empty() && request.events.iter().any(|event| event.is_of("sched")) {
        context.note(
            "switches between other tasks are not recorded: for how long these ran is not known (record the whole system \
             for that)",
        );
    }
    if session.cleared > 0 {
        context.warn(format_args!(
            "{} that the top buffer held are gone: {} needs that buffer in this kernel",
            counted(session.cleared, "event"),
            session.tracer().unwrap_or("recording"),
        ));
    }
    if let [first, ..] = &session.excluded[..] {
        context.warn(format_args!(
            "{} not recorded, {first} among them: set_ftrace_notrace or set_graph_notrace of the top buffer has them",
            are(session.excluded.len() as u64, "function")
        ));
    }
    if let Some(error) = &session.unguarded {
        context.warn(format_args!(
            "settings are not restored if this process is killed: no state file in {STATE_DIRECTORY}: {error}"
        ));
    }
}

/// A command that is recorded.
struct Command {
    stopped: Stopped,
    name: String,
    has_begun: bool,
}

impl Command {
    fn prepare(command: &[std::ffi::OsString]) -> Result<Self, Report> {
        let name = command
            .first()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        match Stopped::new(command) {
            Ok(stopped) => Ok(Self {
                stopped,
                name,
                has_begun: false,
            }),
            Err(error) => Err(Report::new(format_args!("cannot run {name}: {error}"))
                .help("COMMAND is a program with its arguments; a shell's line is sh -c 'LINE'")),
        }
    }

    fn begin(&mut self) -> Result<(), Report> {
        self.has_begun = true;
        self.failed(self.stopped.resume())
    }

    fn failed<T>(&self, result: io::Result<T>) -> Result<T, Report> {
        result.map_err(|error| Report::new(format_args!("{}: {error}", self.name)))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>, Report> {
        let ended = self.stopped.ended();
        self.failed(ended)
    }

    /// Waits until the command ends, after the end of the recording.
    fn end(&mut self) -> Result<ExitCode, Report> {
        let ended = self.stopped.wait();
        self.failed(ended).map(code)
    }
}

/// Abandons a command that has not begun.
impl Drop for Command {
    fn drop(&mut self) {
        if !self.has_begun {
            self.stopped.abandon();
        }
    }
}

/// Exit code of a command as shells report it: 128 + the number of the signal that ended it.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// How a recording ended.
#[derive(Default)]
struct Ended {
    status: Option<ExitStatus>,
    has_stopped: bool,
}

/// Waits until the command ends, a limit is reached, the recording stops or fails, or ctrl-C.
fn watch(
    session: &Session,
    args: &Args,
    interruptible: &Interruptible,
    command: &mut Option<Command>,
    bar: &ProgressBar,
) -> Result<Ended, Report> {
    let started = Instant::now();
    let mut requested: Option<Instant> = None;
    let mut ended = Ended::default();
    loop {
        if let Some(command) = command.as_mut() {
            ended.status = command.ended()?;
            if ended.status.is_some() {
                return Ok(ended);
            }
        }
        if interruptible.flag().is_cancelled() {
            if let Some(command) = command {
                command.stopped.terminate();
            }
            return Ok(ended);
        }
        let took = started.elapsed();
        if args.duration.is_some_and(|limit| took >= limit) {
            return Ok(ended);
        }
        if requested.is_none_or(|requested| requested.elapsed() >= ASK) {
            requested = Some(Instant::now());
            let figures = session.figures();
            progress(bar, figures, took);
            ended.has_stopped |= figures.has_stopped;
            let reached = |limit: Option<u64>, value| limit.is_some_and(|limit| value >= limit);
            let is_enough = figures.has_failed
                || reached(args.size, figures.bytes)
                || reached(args.events, figures.events);
            // If recording stops early, the command still runs to its end.
            if is_enough || ended.has_stopped && command.is_none() {
                return Ok(ended);
            }
        }
        thread::sleep(LOOK);
    }
}

fn progress(bar: &ProgressBar, figures: Figures, took: Duration) {
    bar.set_message(format!(
        "{:.1} s  {} events  {}  {}/s  {} lost",
        took.as_secs_f64(),
        HumanCount(figures.events),
        HumanBytes(figures.bytes),
        HumanBytes(per_second(figures.bytes, took)),
        HumanCount(figures.lost),
    ));
    bar.tick();
}

/// Writes the file and moves it to its path. If that fails, the files of raw pages are kept.
fn write(
    recording: Recording,
    mut file: OutputFile,
    path: &Path,
    context: &Context,
) -> Result<(), Report> {
    if recording.is_nameless {
        context.warn(
            "functions have no names: the kernel hides addresses (kernel.kptr_restrict), which root may change",
        );
    }
    let written = recording.write(&mut file);
    let written = written.map_err(|error| unwritable(path, &error));
    if let Err(report) = written.and_then(|()| file.finish()) {
        let pages = recording.pages().display();
        return Err(report.help(format_args!(
            "{pages} has the pages that were not written: kymo report {pages}"
        )));
    }
    let pages = recording.pages().to_owned();
    if let Err(error) = recording.remove_pages() {
        context.warn(format_args!(
            "{} is not removed, and no longer needed: {error}",
            pages.display()
        ));
    }
    Ok(())
}

/// Figures of a recording, printed at its end.
struct Summary {
    place: String,
    tracer: Option<String>,
    took: Duration,
    has_stopped: bool,
    events: u64,
    bytes: u64,
    losses: Vec<Loss>,
}

impl Summary {
    fn print(&self, args: &Args, context: &mut Context) -> Result<(), Report> {
        let lost: u64 = self.losses.iter().map(|loss| loss.events).sum();
        if args.format.format == Format::Json {
            let out = context.out().0;
            let mut object = Object::begin(out)?;
            object.member("events", self.events)?;
            object.member("lost", lost)?;
            object.member("bytes", self.bytes)?;
            object.member(
                "duration_ns",
                u64::try_from(self.took.as_nanos()).unwrap_or(u64::MAX),
            )?;
            object.member("buffer", &*self.place)?;
            object.member("tracer", self.tracer.as_deref())?;
            object.member("stopped", self.has_stopped)?;
            object.end()?;
            out.write_all(b"\n")?;
            return Ok(());
        }
        if self.has_stopped {
            let function = args
                .ftrace
                .stop_at
                .as_deref()
                .unwrap_or("another program's command");
            context.note(format_args!("recording stopped at {function}"));
        }
        context.note(format_args!(
            "{}: {} in {}, in {:.1} s",
            args.output().display(),
            counted(self.events, "event"),
            counted(self.bytes, "byte"),
            self.took.as_secs_f64(),
        ));
        if lost > 0 {
            let cpus: Vec<String> = self
                .losses
                .iter()
                .map(|loss| format!("{} on CPU {}", loss.events, loss.cpu))
                .collect();
            context.warn(format_args!(
                "{} lost because they came faster than they were read: {}; gaps show where (--buffer 64M, \
                 --threshold or --function helps)",
                counted(lost, "event"),
                cpus.join(", ")
            ));
        }
        Ok(())
    }
}

/// Prints the parameters with which a kernel traces its boot.
fn print_parameters(request: &Request, context: &mut Context) -> Result<ExitCode, Report> {
    let mut request = request.clone();
    // function_duration, if this kernel has it: this tracer takes a stop function on the kernel command line, others
    // need a boot configuration.
    let available = Tracefs::find()
        .ok()
        .and_then(|tracefs| tracefs.tracers().ok());
    let duration = "function_duration";
    if request.tracer.is_none()
        && (request.threshold_us.is_some() || request.stop_at.is_some())
        && available.is_some_and(|available| available.iter().any(|it| it == duration))
    {
        request.tracer = Some(duration.to_owned());
    }
    let parameters = boot::parameters(&request);
    let out = context.out().0;
    writeln!(out, "{}", parameters.command_line)?;
    if let Some(configuration) = &parameters.configuration {
        write!(out, "\n{configuration}")?;
    }
    context.note("add the first line to the kernel's command line; after the boot: kymo record --ftrace --boot -o boot.dat");
    if parameters.configuration.is_some() {
        context.note(
            "the other lines stop at that function: a boot configuration, which tools/bootconfig puts behind the initrd; \
             the kernel needs CONFIG_BOOTTIME_TRACING and CONFIG_KPROBE_EVENTS",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Saves the recording of the boot.
fn save_boot(tracefs: &Tracefs, args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let started = Instant::now();
    let file = OutputFile::create(args.output())?;
    let (recording, failed) = boot::save(tracefs, args.output(), Path::new(STATE_DIRECTORY));
    unrestored(&failed, context);
    let mut recording = recording.map_err(explain)?;
    let cut = recording.cut.take();
    let left = boot::tracer_left(tracefs).map_err(explain)?;
    let summary = Summary {
        place: "the top buffer".to_owned(),
        tracer: left.clone(),
        took: started.elapsed(),
        has_stopped: false,
        events: recording.events,
        bytes: recording.bytes(),
        losses: recording.losses.clone(),
    };
    write(recording, file, args.output(), context)?;
    summary.print(args, context)?;
    if let Some(tracer) = left {
        context.note(format_args!(
            "{tracer} still records: end it with echo nop > {}",
            tracefs.path("current_tracer").display()
        ));
    }
    match cut {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(cut_short(&error, args.output())),
    }
}
