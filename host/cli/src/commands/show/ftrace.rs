//! `kymo show --format ftrace`: prints calls in the layouts of ftrace's tracers.

use kymo_analysis::replay::Replay;

use super::{ViewArgs, refuse};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Part;
use crate::input::{Events, Moment, more};
use crate::names::Names;
use crate::render::count::counted;
use crate::render::ftrace::{Ftrace, Tracer};
use crate::render::times::TimeKind;
use crate::span::{Span, remark_replay};

/// Refuses options that these layouts can't honour.
///
/// # Errors
/// If such an option was given.
pub fn check(view: &ViewArgs) -> Result<(), Report> {
    let what = "--format ftrace";
    refuse(view.events, "--events", what)?;
    refuse(view.compensate, "--compensate", what)?;
    refuse(view.time != TimeKind::Absolute, "--time", what)
}

/// Shows a trace to its end, from any source.
///
/// # Errors
/// When the trace can't be read to its end, or the result can't be written.
pub fn show(
    trace: &mut dyn Events,
    view: &ViewArgs,
    part: &Part,
    tracer: Tracer,
    context: &mut Context,
) -> Result<(), Report> {
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    let mut replay = Replay::new(trace.info(), &symbols, part.replay());
    let mut span = Span::default();
    let (out, _) = context.out();
    let mut writer = Ftrace::new(out, &names, tracer, view.annotation);
    writer.heading()?;
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            writer.flush()?;
            return Ok(more(true));
        };
        span.meet(info, batch);
        let mut written = Ok(());
        let goes_on = replay.batch(info, batch, &mut |origin, step| {
            if written.is_ok() {
                written = writer.step(&info.identities, origin, &step);
            }
        });
        written?;
        Ok(more(goes_on))
    });
    let mut written = Ok(());
    let identities = &trace.info().identities;
    replay.finish(trace.info(), &mut |origin, step| {
        if written.is_ok() {
            written = writer.step(identities, origin, &step);
        }
    });
    written?;
    writer.finish()?;
    let left_out = writer.left_out();
    if left_out > 0 {
        context.warn(format_args!(
            "{} left out: how long they took is not known, and this format has no other place for them",
            counted(left_out, "call")
        ));
    }
    names.remark(identities, context);
    read.and(remark_replay(&replay, span, context))
}
