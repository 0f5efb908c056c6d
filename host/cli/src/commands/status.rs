//! `kymo status`: identity and state of the target.
//!
//! A target that runs Zephyr's own instrumentation reports only its build options.

use std::io::{self, Write};
use std::process::ExitCode;

use kymo_event::{Addr, ClockCheck};
use kymo_link::{Sets, Status, zephyr};
use kymo_symbols::Symbols;
use kymo_wire::event::{ByteOrder, Form};
use kymo_wire::link::Identity;

use crate::args::{Format, FormatArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::hex;
use crate::recording;
use crate::render::clock::{Checks, checked};
use crate::render::count::counted;
use crate::render::escape::escaped;
use crate::render::json::Object;
use crate::target::{
    Either, LiveZephyr, NamedTarget, build_id_text, explain, pointer_text, set_text, trace_info,
};

/// The options of `kymo status`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo status                                    the board on /dev/ttyACM0
  kymo status tcp:localhost:4000                 a UART of QEMU's
  kymo status --elf firmware.elf                 with the names of trigger and stopper
  kymo status --format json | jq .recording      one object, for programs")]
pub struct Args {
    #[command(flatten)]
    format: FormatArgs,

    #[command(flatten)]
    target: NamedTarget,

    #[command(flatten)]
    symbols: SymbolArgs,
}

/// Requests and shows everything that the target reports about itself.
///
/// # Errors
/// When the target does not answer.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let mut live = match args.target.args().recognise(context)? {
        Either::Kymo(live) => live,
        Either::Zephyr(live) => return zephyr(args, *live, context),
    };
    // A target without a readable clock still reports the rest.
    let reading = live.target.read_clock().ok();
    let status = live.target.status().map_err(explain)?;
    let sets = live.target.sets().map_err(explain)?;
    let symbols = args.symbols.load(&trace_info(&live.identity), context)?;
    let checks = reading.map_or(Vec::new(), |reading| {
        recording::compare(&mut live, &reading)
    });
    let (out, _) = context.out();
    let name = live.name();
    match args.format.format {
        Format::Text => text(
            out,
            &name,
            &live.identity,
            (&status, &checks),
            sets,
            &symbols,
        )?,
        Format::Json => json(
            out,
            &name,
            &live.identity,
            (&status, &checks),
            sets,
            &symbols,
        )?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The status of a target that runs Zephyr's own instrumentation.
fn zephyr(args: &Args, mut live: LiveZephyr, context: &mut Context) -> Result<ExitCode, Report> {
    let status = live.status()?;
    let sets = live.sets()?;
    let symbols = args.symbols.load(&LiveZephyr::info(), context)?;
    let (out, _) = context.out();
    let name = live.name();
    match args.format.format {
        Format::Text => zephyr_text(out, &name, status, sets, &symbols)?,
        Format::Json => zephyr_json(out, &name, status, sets, &symbols)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn zephyr_text(
    out: &mut dyn Write,
    name: &str,
    status: zephyr::Status,
    sets: Sets,
    symbols: &Symbols,
) -> io::Result<()> {
    let mut line = |label: &str, value: &str| writeln!(out, "{label:<10}  {}", escaped(value));
    line("target", name)?;
    line("runs", "Zephyr's own instrumentation")?;
    let can: Vec<_> = [
        (status.trace, "trace"),
        (status.profile, "profile"),
        (true, "reboot"),
        (
            status.retained == Some(true),
            "keep trigger and stopper over a reboot",
        ),
    ]
    .into_iter()
    .filter_map(|(can, what)| can.then_some(what))
    .collect();
    line("can", &can.join(", "))?;
    if status.retained.is_none() {
        line(
            "retained",
            "not reported, as by all firmware of before 2025-10, which keeps them over a reboot",
        )?;
    }
    line("recording", "not reported: it has no command for that")?;
    line("trigger", &pointer_text(symbols, sets.trigger))?;
    line("stopper", &pointer_text(symbols, sets.stopper))
}

fn zephyr_json(
    out: &mut dyn Write,
    name: &str,
    status: zephyr::Status,
    sets: Sets,
    symbols: &Symbols,
) -> io::Result<()> {
    let function = |set: Option<Addr>| Some(symbols.function_at(set?)?.name());
    let mut object = Object::begin(out)?;
    object.member("target", name)?;
    object.member("protocol", "zephyr")?;
    object.member("can_trace", status.trace)?;
    object.member("can_profile", status.profile)?;
    object.member("can_reboot", true)?;
    object.member("retained", status.retained)?;
    object.member("trigger", sets.trigger.map(|address| address.0))?;
    object.member("trigger_function", function(sets.trigger))?;
    object.member("stopper", sets.stopper.map(|address| address.0))?;
    object.member("stopper_function", function(sets.stopper))?;
    object.end()?;
    out.write_all(b"\n")
}

fn text(
    out: &mut dyn Write,
    name: &str,
    identity: &Identity,
    (status, checks): (&Status, &[ClockCheck]),
    sets: Sets,
    symbols: &Symbols,
) -> io::Result<()> {
    let mut line = |label: &str, value: String| writeln!(out, "{label:<10}  {}", escaped(&value));
    line("target", name.to_owned())?;
    line("build id", build_id_text(identity))?;
    let order = match identity.layout.order {
        ByteOrder::Little => "little-endian",
        ByteOrder::Big => "big-endian",
    };
    let (word, shape) = (identity.layout.word.bits(), identity.layout.shape);
    line(
        "processor",
        format!(
            "{word} bits, {order}; {} records, from {} bytes a call and {} a return",
            shape.name(),
            shape.bytes(Form::EnterShort),
            shape.bytes(Form::ExitShort)
        ),
    )?;
    let sure = if identity.capabilities.sure_clock {
        "never in doubt"
    } else {
        "uncertain after long pauses, or with interrupts masked for long"
    };
    line(
        "clock",
        format!(
            "{} Hz, a counter of {} bits, {sure}; {}",
            identity.clock_hz,
            identity.clock_bits,
            checked(checks)
        ),
    )?;
    let streams = counted(identity.streams.into(), "stream");
    line(
        "buffer",
        format!(
            "{streams} of {} bytes in packets of {}, {} when full",
            identity.buffer_bytes,
            identity.packet_bytes,
            match status.mode {
                kymo_wire::link::Mode::Overwrite => "the oldest give way",
                kymo_wire::link::Mode::Fixed => "the oldest are kept",
                kymo_wire::link::Mode::Stream => "what is not fetched in time is not recorded",
            }
        ),
    )?;
    line("can", capabilities(identity).join(", "))?;
    let recording = match (status.enabled, status.on, sets.trigger) {
        (true, true, _) => "on",
        (true, false, Some(_)) if status.spent == Some(true) => {
            "off: its single shot is over; `kymo command clear` arms it again"
        }
        (true, false, Some(_)) => "off: waits for its trigger, or for `kymo command on`",
        (true, false, None) => "off: there is no trigger; `kymo command on` makes it record",
        (false, ..) => {
            "disabled by the program, or by a command that `kymo command enable` takes back"
        }
    };
    line("recording", recording.to_owned())?;
    line("trigger", set_text(symbols, sets.trigger))?;
    line("stopper", set_text(symbols, sets.stopper))?;
    line(
        "recorded",
        format!(
            "{}, {} discarded",
            counted(status.bytes, "byte"),
            counted(status.discarded, "event")
        ),
    )?;
    line(
        "used",
        format!(
            "{} in {}",
            counted(status.used, "byte"),
            counted(status.packets, "packet")
        ),
    )?;
    let fits = if status.needed > status.used {
        ": not everything is still there"
    } else {
        ""
    };
    line("needed", format!("{} bytes{fits}", status.needed))?;
    if let (Some(functions), Some(slots)) = (status.functions, status.slots) {
        let lost = status.no_slot.unwrap_or(0);
        line(
            "profile",
            format!(
                "{} in {}, {} without one",
                counted(functions, "function"),
                counted(slots, "slot"),
                counted(lost, "call")
            ),
        )?;
    }
    line(
        "link",
        format!(
            "{} and {} too many arrived",
            counted(status.damaged, "damaged frame or line"),
            counted(status.lost_bytes.unwrap_or(0), "byte")
        ),
    )?;
    if let Some(refused) = status.refused.filter(|refused| *refused > 0) {
        let by = match status.refused_function {
            Some(function) => format!(
                ": what the recorder calls is instrumented, the last was {} (leave it out: KYMO_NO_INSTRUMENT)",
                pointer_text(symbols, Some(function))
            ),
            None => String::new(),
        };
        let hooks = counted(refused, "hook");
        line("refused", format!("{hooks} called from inside a hook{by}"))?;
    }
    if let Some(displaced) = status.stopper_displaced.filter(|displaced| *displaced > 0) {
        let threads = counted(displaced, "thread");
        line(
            "stopper",
            format!(
                "more threads called it than can be followed: {threads} may have ended recording early, or not at all"
            ),
        )?;
    }
    if let Some((thread, ticks)) = status.within_stopper {
        let thread = match thread {
            0 => "it".to_owned(),
            thread => format!("thread {thread:#x}"),
        };
        let seconds = ticks as f64 / identity.clock_hz.max(1) as f64;
        line(
            "stops",
            format!(
                "when {thread} leaves the stopper, where it has been for {seconds:.3} s (if it was deleted there, `kymo command off` stops)"
            ),
        )?;
    }
    if let Some(backward) = status.backward.filter(|backward| *backward > 0) {
        line("clock", format!("went back {backward} times"))?;
    }
    if let Some(error) = status.set_up_error() {
        let text = match status.error.as_deref() {
            Some("cpu_stuck" | "thread_stuck") => {
                "a CPU or thread did not leave its hook when it was read: its recording is missing"
                    .to_owned()
            }
            _ => format!("the recorder could not be set up: {error}"),
        };
        line("error", text)?;
    }
    Ok(())
}

/// The features that the target was built with.
fn capabilities(identity: &Identity) -> Vec<&'static str> {
    let can = identity.capabilities;
    [
        (can.trace, "trace"),
        (can.profile, "profile"),
        (can.reboot, "reboot"),
        (can.retained, "keep trigger and stopper over a reboot"),
    ]
    .into_iter()
    .filter_map(|(can, what)| can.then_some(what))
    .collect()
}

fn json(
    out: &mut dyn Write,
    name: &str,
    identity: &Identity,
    (status, checks): (&Status, &[ClockCheck]),
    sets: Sets,
    symbols: &Symbols,
) -> io::Result<()> {
    let can = identity.capabilities;
    let build_id = identity.build_id();
    let function = |set: Option<Addr>| {
        let function = symbols.function_at(set?)?;
        Some(function.name())
    };
    let mut object = Object::begin(out)?;
    object.member("target", name)?;
    object.member("protocol", identity.protocol)?;
    object.member("build_id", (!build_id.is_empty()).then(|| hex(build_id)))?;
    object.member("word_bits", identity.layout.word.bits())?;
    object.member("byte_order", identity.layout.order.name())?;
    object.member("shape", identity.layout.shape.name())?;
    object.member("clock_hz", identity.clock_hz)?;
    object.member("clock_bits", identity.clock_bits)?;
    object.member("sure_clock", can.sure_clock)?;
    object.member("clock_verdict", ClockCheck::overall(checks).name())?;
    object.member("clock_checks", Checks(checks))?;
    object.member("streams", identity.streams)?;
    object.member("buffer_bytes", identity.buffer_bytes)?;
    object.member("packet_bytes", identity.packet_bytes)?;
    object.member("mode", status.mode.name())?;
    object.member("can_trace", can.trace)?;
    object.member("can_profile", can.profile)?;
    object.member("can_reboot", can.reboot)?;
    object.member("retained", can.retained)?;
    object.member("enabled", status.enabled)?;
    object.member("recording", status.enabled && status.on)?;
    object.member("trigger", sets.trigger.map(|address| address.0))?;
    object.member("trigger_function", function(sets.trigger))?;
    object.member("stopper", sets.stopper.map(|address| address.0))?;
    object.member("stopper_function", function(sets.stopper))?;
    object.member("recorded_bytes", status.bytes)?;
    object.member("discarded", status.discarded)?;
    object.member("packets", status.packets)?;
    object.member("used_bytes", status.used)?;
    object.member("needed_bytes", status.needed)?;
    object.member("functions", status.functions)?;
    object.member("slots", status.slots)?;
    object.member("no_slot", status.no_slot)?;
    object.member("damaged", status.damaged)?;
    object.member("lost_bytes", status.lost_bytes)?;
    object.member("refused", status.refused)?;
    object.member("stopper_displaced", status.stopper_displaced)?;
    object.member(
        "stopper_thread",
        status.within_stopper.map(|(thread, _)| thread),
    )?;
    object.member(
        "stopper_ticks",
        status.within_stopper.map(|(_, ticks)| ticks),
    )?;
    object.member(
        "refused_function",
        status.refused_function.map(|address| address.0),
    )?;
    object.member("once", sets.once)?;
    object.member("spent", status.spent)?;
    object.member("backward", status.backward)?;
    object.member("error", status.error.as_deref())?;
    object.member("error_value", status.error_value)?;
    object.end()?;
    out.write_all(b"\n")
}
