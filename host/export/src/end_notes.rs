//! Notes on how a call ended, for timelines.
//!
//! A viewer shows a slice whose end was inferred like any other. Notes at its end state what is uncertain.

use kymo_analysis::calls::{End, How};

/// Title of the instant at an exit whose entry is not in the trace. A slice would need a beginning.
pub(crate) fn orphan(name: &str) -> String {
    format!("return from {name}")
}

/// The note of a call that began before the window.
pub(crate) const CLIPPED: (&str, &str) = ("clipped", "it began before this part of the trace");

/// The notes of an end: what happened, and why. None if the call returned and nothing is in doubt.
pub(crate) fn notes(end: &End) -> impl Iterator<Item = (&'static str, &'static str)> {
    let how = match end.how {
        How::Returned => None,
        How::Jumped => Some(("left by", "longjmp")),
        How::Orphan => Some(("begin", "not in the trace")),
        How::Repaired(repair) => Some(("closed by inference", repair.name())),
        How::RecordingOff => Some(("still open", "when recording was turned off")),
        How::NoEnd => Some(("end", "not recorded")),
        How::Open => Some(("still open", "at the end of the trace")),
    };
    let loss = ("doubtful", "events were lost while it was open");
    let clock = ("doubtful time", "the clock was uncertain meanwhile");
    let interrupt = (
        "doubtful interruption",
        "the beginning of an interrupt is missing",
    );
    how.into_iter()
        .chain(end.doubt.loss.then_some(loss))
        .chain(end.doubt.clock.then_some(clock))
        .chain(end.doubt.interrupt.then_some(interrupt))
}
