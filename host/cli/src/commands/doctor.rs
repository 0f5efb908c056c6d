//! `kymo doctor`: finds out why there is no trace.
//!
//! Checks each link of the chain from the program's hooks to this computer, in the order in which a recording passes
//! them, and prints the next step for each that fails. Changes nothing on the target.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use kymo_event::{ClockCheck, ClockReference, ClockVerdict};
use kymo_link::{ClockReading, Sets, Status, zephyr};
use kymo_symbols::{FileKind, Instrumentation, LARGEST_FILE, Symbols};
use kymo_wire::link::Mode;

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::hex;
use crate::recording;
use crate::render::clock::checked;
use crate::render::count::counted;
use crate::render::escape::escaped;
use crate::render::json::Object;
use crate::target::{Either, Live, LiveZephyr, NamedTarget, pointer_text, trace_info};

/// Number of polls for new events of a target that records, and the interval between them.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The function that the compiler calls at the begin of an instrumented function.
const HOOK: &str = "__cyg_profile_func_enter";

/// The options of `kymo doctor`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo doctor --elf firmware.elf                 the board on /dev/ttyACM0
  kymo doctor tcp:localhost:4000 --elf firmware.elf    a UART of QEMU's
  kymo doctor --format json | jq .check,.outcome  one object a line, for programs

Exit code 1 says that a check failed.")]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    target: NamedTarget,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fine,
    /// The check could not be made.
    Unknown,
    Failed,
}

impl Outcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// One link of the chain.
#[derive(Clone, Debug)]
struct Check {
    name: &'static str,
    outcome: Outcome,
    found: String,
    /// The next step, unless the result is fine.
    next: Option<String>,
}

/// All checks, in order.
#[derive(Debug, Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn fine(&mut self, name: &'static str, found: impl Into<String>) {
        self.add(name, Outcome::Fine, found.into(), None);
    }

    fn unknown(&mut self, name: &'static str, found: impl Into<String>, next: &str) {
        self.add(name, Outcome::Unknown, found.into(), Some(next.to_owned()));
    }

    fn failed(&mut self, name: &'static str, found: impl Into<String>, next: impl Into<String>) {
        self.add(name, Outcome::Failed, found.into(), Some(next.into()));
    }

    fn add(&mut self, name: &'static str, outcome: Outcome, found: String, next: Option<String>) {
        self.0.push(Check {
            name,
            outcome,
            found,
            next,
        });
    }

    /// Adds a check that ended with an error.
    fn error(&mut self, name: &'static str, report: &Report) {
        self.failed(name, report.message(), report.help_lines().join("; "));
    }
}

/// Checks a target from its link to its events.
///
/// # Errors
/// When a file of symbols can't be read, or the result can't be written.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let mut checks = Checks::default();
    match args.target.args().recognise(context) {
        Err(report) => checks.error("link", &report),
        Ok(Either::Zephyr(live)) => {
            let symbols = args.symbols.load(&LiveZephyr::info(), context)?;
            zephyr(*live, &symbols, &mut checks);
        }
        Ok(Either::Kymo(mut live)) => {
            let symbols = args.symbols.load(&trace_info(&live.identity), context)?;
            if let Err(report) = kymo(&mut live, &symbols, calls(&args.symbols), &mut checks) {
                checks.error("link", &report);
            }
        }
    }
    let (out, _) = context.out();
    match args.format.format {
        Format::Text => text(out, &checks)?,
        Format::Json => json(out, &checks)?,
    }
    let failed = checks.0.iter().any(|it| it.outcome == Outcome::Failed);
    Ok(ExitCode::from(u8::from(failed)))
}

/// The number of calls of hooks in the program's files; `None` if unknown.
fn calls(symbols: &SymbolArgs) -> Option<u64> {
    let mut sites = None;
    for path in symbols.files() {
        let Ok(data) = kymo_symbols::read_file(&path, LARGEST_FILE) else {
            continue;
        };
        // A list of symbols has no calls.
        let Ok(file) = Instrumentation::of(&data) else {
            continue;
        };
        for hook in &file.hooks {
            // The larger of the enter and the exit hook.
            let most = sites.unwrap_or(0).max(hook.calls?.sites);
            sites = Some(most);
        }
        // Its libraries may call the hooks.
        if sites == Some(0) && file.kind != FileKind::Static {
            return None;
        }
    }
    sites
}

fn kymo(
    live: &mut Live,
    symbols: &Symbols,
    calls: Option<u64>,
    checks: &mut Checks,
) -> Result<(), Report> {
    let reading = live.target.read_clock();
    let status = live.target.status().map_err(crate::target::explain)?;
    let sets = live.target.sets().map_err(crate::target::explain)?;
    link(live, &status, checks);
    build(live, symbols, checks);
    hooks(&status, symbols, calls, checks);
    set_up(&status, checks);
    if status.set_up_error().is_some() {
        // Clock, buffer and events follow from that.
        return Ok(());
    }
    match reading {
        Ok(reading) => clock(live, &reading, &status, checks),
        Err(error) => checks.error("clock", &crate::target::explain(error)),
    }
    if !live.identity.capabilities.trace {
        checks.failed(
            "recording",
            "the library was built without recording of events",
            "link the whole libkymo.a; what the target keeps is shown by `kymo profile`",
        );
        return Ok(());
    }
    buffer(live, &status, checks);
    let records = recording(&status, sets, symbols, checks);
    events(live, &status, records, checks)
}

fn link(live: &Live, status: &Status, checks: &mut Checks) {
    let name = live.name();
    let lost = status.lost_bytes.unwrap_or(0);
    if status.damaged == 0 && lost == 0 {
        return checks.fine("link", format!("{name} answers as a Kymo target"));
    }
    let damage = format!(
        "{name} answers, but {} and {} too many arrived there",
        counted(status.damaged, "damaged frame or line"),
        counted(lost, "byte")
    );
    let next = match lost {
        0 => "check --baud and the wires: the target hears what was not said",
        _ => "have the target read its UART more often, or by interrupt",
    };
    checks.failed("link", damage, next);
}

fn build(live: &Live, symbols: &Symbols, checks: &mut Checks) {
    let target = live.identity.build_id();
    let next = "link the program with -Wl,--build-id";
    match (target, symbols.build_id()) {
        ([], _) => checks.unknown("build", "the program has no build id", next),
        (_, None) if symbols.is_empty() => {
            checks.unknown("build", hex(target), "give the program with --elf");
        }
        (_, None) => checks.unknown("build", "the file has no build id", next),
        (target, Some(file)) if target == file => {
            checks.fine("build", format!("{}, as the file says", hex(target)));
        }
        (target, Some(file)) => checks.failed(
            "build",
            format!("the target runs {}, the file is {}", hex(target), hex(file)),
            "flash this file, or give the one that was flashed with --elf",
        ),
    }
}

fn hooks(status: &Status, symbols: &Symbols, calls: Option<u64>, checks: &mut Checks) {
    // Hooks of an unprivileged thread are refused as well; the recorder's fault says so.
    let is_unprivileged = status.error.as_deref() == Some("unprivileged");
    let refused = status.refused.filter(|refused| *refused > 0);
    if let Some(refused) = refused.filter(|_| !is_unprivileged) {
        let function = match status.refused_function {
            Some(function) => pointer_text(symbols, Some(function)),
            None => "a function".to_owned(),
        };
        return checks.failed(
            "hooks",
            format!(
                "{} from inside a hook: the recorder calls {function}, which is instrumented",
                counted(refused, "call")
            ),
            "leave it out: KYMO_NO_INSTRUMENT before it, or compile its file without -finstrument-functions",
        );
    }
    if symbols.is_empty() {
        return checks.unknown("hooks", "the program is not known", "give it with --elf");
    }
    if symbols.by_name(HOOK).is_empty() {
        return checks.failed(
            "hooks",
            format!("the program has no {HOOK}: nothing in it is instrumented"),
            "compile what you want to see with -finstrument-functions, and link libkymo.a last",
        );
    }
    let called = match calls {
        // The linker takes the hooks from the library even if they are not called.
        Some(0) => {
            return checks.failed(
                "hooks",
                format!("{HOOK} is in the program, but no function calls it"),
                "compile what you want to see with -finstrument-functions",
            );
        }
        Some(sites) => format!(", called in {}", counted(sites, "place")),
        None => String::new(),
    };
    checks.fine(
        "hooks",
        format!("{HOOK} is in the program{called}, and no hook was called from inside one"),
    );
}

fn set_up(status: &Status, checks: &mut Checks) {
    match status.set_up_error() {
        None => checks.fine("set-up", "the recorder accepted its configuration"),
        Some(error) => checks.failed(
            "set-up",
            format!("the recorder could not be set up: {error}"),
            "change kymo_config so that the rule holds; kymo_status() says the same on the target",
        ),
    }
}

fn clock(live: &mut Live, first: &ClockReading, status: &Status, checks: &mut Checks) {
    let hz = live.identity.clock_hz;
    let is_sure = live.identity.capabilities.sure_clock;
    let compared = recording::compare(live, first);
    let found = format!("{hz} Hz, {}", checked(&compared));
    if let Some(backward) = status.backward.filter(|backward| *backward > 0) {
        return checks.failed(
            "clock",
            format!("{found}; it went back {backward} times"),
            "a counter must count up, over all of its bits: check kymo_config.counter, or .clock",
        );
    }
    match ClockCheck::overall(&compared) {
        ClockVerdict::Agrees => checks.fine("clock", found),
        ClockVerdict::Unverified => checks.unknown(
            "clock",
            found,
            "give kymo_config.tick_hz, or use a link that answers sooner: there is nothing exact enough to compare with",
        ),
        ClockVerdict::Differs if compared.iter().any(|check| check.absent) => checks.failed(
            "clock",
            found,
            "call kymo_tick() kymo_config.tick_hz times a second, from a timer's interrupt, or leave tick_hz out",
        ),
        ClockVerdict::Differs if !is_sure && compared.iter().all(|check| check.reference == ClockReference::Host) => {
            checks.failed(
                "clock",
                found,
                "set kymo_config.tick_hz, and call kymo_tick() that often: without it the counter goes round unseen; \
                 if that is not it, set kymo_config.clock_hz to the counter's true rate",
            );
        }
        ClockVerdict::Differs => checks.failed(
            "clock",
            found,
            "set kymo_config.clock_hz to the counter's true rate, and see that the counter runs",
        ),
    }
}

fn buffer(live: &Live, status: &Status, checks: &mut Checks) {
    let identity = &live.identity;
    let found = format!(
        "{} of {} bytes in packets of {}",
        counted(identity.streams.into(), "stream"),
        identity.buffer_bytes,
        identity.packet_bytes
    );
    if identity.buffer_bytes / 2 < identity.packet_bytes {
        return checks.failed(
            "buffer",
            found,
            "give it at least two packets: one is written while the other is kept",
        );
    }
    match (status.mode, status.discarded) {
        (_, 0) => checks.fine("buffer", found),
        (Mode::Fixed, discarded) => checks.fine(
            "buffer",
            format!(
                "{found}; it is full, and {} came too late for it",
                counted(discarded, "event")
            ),
        ),
        (Mode::Overwrite | Mode::Stream, discarded) => checks.failed(
            "buffer",
            format!("{found}; {} were discarded", counted(discarded, "event")),
            "give it more packets, or record less: `kymo advise` says what",
        ),
    }
}

/// Checks whether it records, and why not.
fn recording(status: &Status, sets: Sets, symbols: &Symbols, checks: &mut Checks) -> bool {
    let trigger = pointer_text(symbols, sets.trigger);
    match (status.enabled, status.on, sets.trigger) {
        (true, true, _) => {
            checks.fine("recording", "on");
            return true;
        }
        (true, false, Some(_)) if status.spent == Some(true) => checks.failed(
            "recording",
            "off: its single shot is over",
            "`kymo command clear` arms it again",
        ),
        (true, false, Some(_)) if status.bytes > 0 => {
            checks.fine("recording", format!("off until {trigger} is entered again"));
        }
        (true, false, Some(_)) => checks.failed(
            "recording",
            format!("off: {trigger} has not been entered"),
            "see that it runs, choose another trigger (`kymo trace --trigger`), or `kymo command on`",
        ),
        (true, false, None) if status.bytes > 0 => {
            checks.fine("recording", "off, with what was recorded before");
        }
        (true, false, None) => {
            checks.failed("recording", "off, and there is no trigger", "`kymo command on` makes it record");
        }
        (false, ..) => checks.failed(
            "recording",
            "disabled, by the program or by a command",
            "`kymo command enable`, or kymo_enable() in the program",
        ),
    }
    false
}

fn events(
    live: &mut Live,
    before: &Status,
    records: bool,
    checks: &mut Checks,
) -> Result<(), Report> {
    if !records {
        match before.bytes {
            0 => checks.unknown("events", "none recorded", "have it record, then ask again"),
            bytes => checks.fine("events", format!("{} recorded", counted(bytes, "byte"))),
        }
        return Ok(());
    }
    for _ in 0..LOOKS {
        thread::sleep(BETWEEN_LOOKS);
        let now = live.target.status().map_err(crate::target::explain)?;
        let more = now.bytes.saturating_sub(before.bytes);
        if more > 0 || now.discarded > before.discarded {
            checks.fine("events", format!("{} in a moment", counted(more, "byte")));
            return Ok(());
        }
        if now.mode == Mode::Fixed && now.discarded > 0 {
            checks.fine(
                "events",
                format!(
                    "{} recorded, and the buffer is full",
                    counted(now.bytes, "byte")
                ),
            );
            return Ok(());
        }
    }
    checks.failed(
        "events",
        format!(
            "none arrived while it was recording, {} before",
            counted(before.bytes, "byte")
        ),
        "see that instrumented functions run; with --elf the hooks are checked, too",
    );
    Ok(())
}

fn zephyr(mut live: LiveZephyr, symbols: &Symbols, checks: &mut Checks) {
    let status: Result<zephyr::Status, Report> = live.status();
    let status = match status {
        Ok(status) => status,
        Err(report) => return checks.error("link", &report),
    };
    checks.fine(
        "link",
        format!("{} runs Zephyr's own instrumentation", live.name()),
    );
    if symbols.is_empty() {
        checks.unknown(
            "hooks",
            "the program is not known",
            "give zephyr.elf with --elf, or --build-dir",
        );
    } else if symbols.by_name(HOOK).is_empty() {
        checks.failed(
            "hooks",
            format!("the program has no {HOOK}"),
            "build with CONFIG_INSTRUMENTATION=y",
        );
    } else {
        checks.fine("hooks", format!("{HOOK} is in the program"));
    }
    if status.trace {
        checks.unknown(
            "events",
            "this protocol does not say what is recorded",
            "`kymo trace` fetches it; `kymo trace --list` shows trigger and stopper, which have to run first",
        );
    } else {
        checks.failed(
            "recording",
            "the firmware keeps no trace",
            "build with CONFIG_INSTRUMENTATION_MODE_CALLGRAPH=y; `kymo profile` shows its table",
        );
    }
}

fn text(out: &mut dyn Write, checks: &Checks) -> io::Result<()> {
    for check in &checks.0 {
        let name = check.outcome.name();
        writeln!(
            out,
            "{name:<7}  {:<9}  {}",
            check.name,
            escaped(&check.found)
        )?;
        if let Some(next) = check.next.as_deref().filter(|next| !next.is_empty()) {
            writeln!(out, "{:<20}next: {}", "", escaped(next))?;
        }
    }
    Ok(())
}

fn json(out: &mut dyn Write, checks: &Checks) -> io::Result<()> {
    for check in &checks.0 {
        let mut object = Object::begin(out)?;
        object.member("check", check.name)?;
        object.member("outcome", check.outcome.name())?;
        object.member("found", check.found.as_str())?;
        object.member("next", check.next.as_deref())?;
        object.end()?;
        out.write_all(b"\n")?;
    }
    Ok(())
}
