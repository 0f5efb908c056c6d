//! `--compensate`, shared by all subcommands that have it: checks for the measured overhead, and remarks on what was
//! subtracted.

use kymo_analysis::compensation::Compensation;
use kymo_event::{Duration, Picoseconds, TraceInfo};

use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::count::counted;
use crate::render::share::percent;

/// Checks that a trace has the recording overhead that its target measured.
///
/// # Errors
/// When it has none.
pub fn check(info: &TraceInfo) -> Result<(), Report> {
    if !info.costs.is_empty() {
        return Ok(());
    }
    Err(
        Report::new("the trace does not tell what recording cost").help(
            "Kymo's targets measure that when they start, if they have a clock by then, 1 KiB of \
             `metadata`, and on Linux no second thread; traces of other tracers can't be compensated",
        ),
    )
}

/// Reports the overhead subtracted, its share of the time, and the number of results below zero.
pub fn remark(
    compensation: &Compensation,
    left: Duration,
    below_zero: u64,
    what: &str,
    context: &Context,
) {
    let whole = compensation.whole();
    let taken = whole.cost();
    if let Some((pair, doubt)) = compensation.pair() {
        let tick = compensation.tick();
        context.note(format_args!(
            "compensated: {} ticks a call (± {}), {} ± {} in all, {} % of the time",
            hundredths(pair, tick),
            hundredths(doubt, tick),
            taken.with_unit(),
            compensation.bound(whole).with_unit(),
            percent(taken, left + taken),
        ));
    }
    if below_zero > 0 {
        context.note(format_args!(
            "below zero, which the uncertainty of the cost can do, and shown as 0: {}",
            counted(below_zero, what)
        ));
    }
}

/// Formats a duration in ticks, with two decimals, rounded to the nearest.
fn hundredths(span: Picoseconds, tick: Picoseconds) -> String {
    let tick = u128::from(tick.0.max(1));
    let hundredths = (u128::from(span.0) * 100 + tick / 2) / tick;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
