//! Options that apply only to inputs of one format.

use kymo_event::TraceInfo;
use kymo_read::{rtems_record, systemview, zephyr_instrumentation};

use super::FORMAT;
use super::symbols::CTF;
use crate::args::InputArgs;
use crate::diagnostic::Report;

/// Refuses options that are about inputs of another format.
///
/// # Errors
/// If one is given; the report names the inputs to which it applies.
pub(super) fn check(input: &InputArgs, info: &TraceInfo) -> Result<(), Report> {
    let ctf = &input.ctf;
    let fits = |formats: &[&str]| formats.iter().any(|format| info.is_of(format));
    let unfit = [
        (
            ctf.mapping.is_some() && !fits(&[CTF]),
            "--mapping",
            "CTF traces of other tracers",
        ),
        (
            ctf.rtems.names()?.is_some() && !fits(&[rtems_record::FORMAT]),
            "--event-names",
            "recordings of RTEMS",
        ),
        (
            !ctf.description.is_empty() && !fits(&[systemview::FORMAT]),
            "--description",
            "recordings of SystemView",
        ),
        (
            ctf.metadata.is_some() && !fits(&[CTF, FORMAT, zephyr_instrumentation::FORMAT]),
            "--metadata",
            "CTF streams and Zephyr's dumps",
        ),
        (
            !input.memory.memory.is_empty(),
            "--memory",
            "dumps of a target's memory",
        ),
    ];
    match unfit.into_iter().find(|(is_unfit, ..)| *is_unfit) {
        Some((_, option, of)) => Err(Report::new(format_args!(
            "{option} is for {of}, and the input is none (format {})",
            info.format
        ))
        .help(format_args!("leave {option} away"))),
        None => Ok(()),
    }
}
