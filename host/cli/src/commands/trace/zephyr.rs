//! `kymo trace` for targets with Zephyr's own instrumentation, and for dumps saved from them.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use kymo_link::zephyr::{Set, Status};
use kymo_read::OpenOptions;
use kymo_symbols::Symbols;
use kymo_zephyr_instrumentation::Kind;

use super::sets::Wanted;
use super::{Args, Output, show_or_export, wanted};
use crate::commands::export;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::{Trace, name_of, refused};
use crate::output::write_file;
use crate::render::escape::escaped;
use crate::rescue::{Rescue, check_output};
use crate::target::{LiveZephyr, ZEPHYR_WAIT, one_pointer, pointer_text};

/// Name of the export format for trace directories.
const DIRECTORY: &str = "ctf";

/// Processes the recording of a live target.
pub fn live(
    args: &Args,
    mut live: LiveZephyr,
    output: &Output<'_>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let status = live.status()?;
    if !status.trace {
        return Err(no_trace(status));
    }
    let symbols = Arc::new(args.symbols.load(&LiveZephyr::info(), context)?);
    let changed = set(args, &mut live, status, &symbols, context)?;
    if args.reboot {
        reboot(&mut live, changed, context)?;
    }
    if args.list || (changed && !args.reboot) {
        list(&mut live, &symbols, context)?;
        if changed && !args.reboot {
            context.note(
                "what it has recorded was recorded before that, and it can't clear it: `kymo trace \
                 --reboot` gets what it records from a new start on",
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    // Some firmware dumps each time its buffer is full, so kymo listens for the whole time of `--wait`. After a reboot
    // there is a default for it.
    let usual = args.reboot.then_some(ZEPHYR_WAIT);
    if let Some(longest) = args.wait.or(usual) {
        live.wait(longest, context);
    }
    check(output)?;
    let fetched = live.fetch(Kind::Trace, context)?;
    if let Output::Raw(path) = output {
        let bytes = fetched.as_sent();
        keep_bytes(path, &bytes, context)
            .map_err(|report| Rescue::new(bytes).keep_after(report))?;
        return fetched.incomplete.map_or(Ok(ExitCode::SUCCESS), Err);
    }
    let wanted = wanted(args, output);
    let mut trace = Trace::of_zephyr(live.name(), fetched, symbols, wanted)?;
    if matches!(output, Output::Show) {
        trace.keep_sent(context)?;
    }
    finish(args, output, &mut trace, context)
}

/// Checks that the output can be written, because the target sends its recording only once.
fn check(output: &Output<'_>) -> Result<(), Report> {
    match output {
        Output::Show => Ok(()),
        Output::Raw(path) => check_output(path),
        Output::Directory(path) => export::check_empty(path),
        Output::Export(format, path) => export::check(format, path),
    }
}

/// Report of a target that has no trace.
fn no_trace(status: Status) -> Report {
    let report = Report::new("this target records no calls");
    let report = report.help("build it with CONFIG_INSTRUMENTATION_MODE_CALLGRAPH");
    if status.profile {
        report.help("it keeps a table of functions: `kymo profile`")
    } else {
        report
    }
}

/// Sets trigger and stopper of the target; returns whether anything changed.
fn set(
    args: &Args,
    live: &mut LiveZephyr,
    status: Status,
    symbols: &Symbols,
    context: &Context,
) -> Result<bool, Report> {
    let trigger = args.trigger.as_ref().or(args.couple.as_ref());
    let stopper = args.stopper.as_ref().or(args.couple.as_ref());
    if trigger.is_none() && stopper.is_none() {
        return Ok(false);
    }
    let before = live.sets()?;
    // Both names are looked up before anything is changed.
    let find = |name: Option<&String>| {
        let Some(name) = name else { return Ok(None) };
        if !Wanted::parse(name)?.is_plain() {
            return Err(Report::new(
                "trigger and stopper of a target of Zephyr's take no from, hit or times",
            ));
        }
        one_pointer(symbols, name, before, context).map(Some)
    };
    let wanted = [
        (Set::Trigger, find(trigger)?),
        (Set::Stopper, find(stopper)?),
    ];
    for (set, pointer) in wanted {
        if let Some(pointer) = pointer {
            live.set(set, pointer, context).map_err(|report| {
                report.help("trigger and stopper may be half changed: see `kymo trace --list`")
            })?;
        }
    }
    if status.retained == Some(false) {
        context.note(
            "this target keeps trigger and stopper only until it is rebooted: it has no retained \
             memory (CONFIG_INSTRUMENTATION_DYNAMIC_TRIGGER)",
        );
    }
    Ok(true)
}

/// Reboots the target. If trigger or stopper were just set, warns if they are not the same after it.
fn reboot(live: &mut LiveZephyr, changed: bool, context: &Context) -> Result<(), Report> {
    let before = if changed { Some(live.sets()?) } else { None };
    live.reboot(context)?;
    if let Some(before) = before
        && live.sets()? != before
    {
        context.warn(
            "the target has not kept trigger and stopper over the reboot: it records with those it \
             was built with (`kymo trace --list`)",
        );
    }
    Ok(())
}

/// Lists trigger and stopper.
fn list(live: &mut LiveZephyr, symbols: &Symbols, context: &mut Context) -> Result<(), Report> {
    let sets = live.sets()?;
    let (out, _) = context.out();
    writeln!(
        out,
        "trigger: {}",
        escaped(&pointer_text(symbols, sets.trigger))
    )?;
    writeln!(
        out,
        "stopper: {}",
        escaped(&pointer_text(symbols, sets.stopper))
    )?;
    Ok(())
}

/// Saves dumps as the target sent them.
fn keep_bytes(path: &Path, bytes: &[u8], context: &Context) -> Result<(), Report> {
    write_file(path, bytes)?;
    context.note(format_args!(
        "{}: {} bytes, as the target sent them",
        path.display(),
        bytes.len()
    ));
    Ok(())
}

/// Processes the bytes of a saved dump: copies, shows or converts it.
pub fn saved(
    args: &Args,
    path: &Path,
    bytes: Vec<u8>,
    output: &Output<'_>,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    if let Output::Raw(to) = output {
        keep_bytes(to, &bytes, context)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = OpenOptions {
        program: args.symbols.elf.first().cloned(),
        ..OpenOptions::default()
    };
    let name = name_of(path);
    let source = kymo_read::zephyr_instrumentation::open_bytes(&name, bytes, &options);
    let source = source.map_err(|error| refused(&error))?;
    let mut trace = Trace::new(name, source, &args.symbols, context)?;
    finish(args, output, &mut trace, context)
}

/// Shows a trace, or writes it to the output.
fn finish(
    args: &Args,
    output: &Output<'_>,
    trace: &mut Trace,
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let formats = kymo_export::Formats::built_in();
    let (Output::Directory(path), Some(format)) = (output, formats.by_name(DIRECTORY)) else {
        return show_or_export(args, output, trace, context);
    };
    let options = kymo_export::Options::default();
    let all = Part::default();
    export::write(trace, &all, format, Some(path), &options, context)
        .map_err(|report| trace.kept(report))?;
    trace.remark(context);
    trace.verdict()
}
