//! Remarks on losses that the kernel recorded.

use super::{Remark, counted, times};
use crate::perf::Losses;

/// Remarks on the losses of a perf recording.
pub(super) fn of_recording(losses: &Losses) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let of_trace = [
        (losses.truncated, "truncated", "the buffer had no room"),
        (losses.partial, "partial", "it has gaps"),
        (
            losses.collisions,
            "collision",
            "something else used the trace unit",
        ),
    ];
    for (loss, flag, why) in of_trace {
        if loss.times > 0 {
            remarks.push(format!(
                "the kernel lost trace{}: {why} (flag of AUX records: {flag}){}",
                times(loss.times),
                loss.recorded()
            ));
        }
    }
    if losses.records.times > 0 {
        remarks.push(format!(
            "the kernel lost {} of its own{}{}: processes, mappings, switches or trace may be missing before, so that code or \
             threads are unknown or those of before the loss",
            counted(losses.records.count, "record"),
            times(losses.records.times),
            losses.records.recorded()
        ));
    }
    if losses.samples.times > 0 {
        remarks.push(format!(
            "the kernel lost {}{}{}",
            counted(losses.samples.count, "sample"),
            times(losses.samples.times),
            losses.samples.recorded()
        ));
    }
    let remarks = remarks.into_iter();
    remarks.map(|text| Remark::warning("", text)).collect()
}
