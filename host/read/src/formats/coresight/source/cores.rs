//! Cores of which both instructions are traced and what their DWT says.

use kymo_event::TraceInfo;

use super::Reader;

/// Marks the ITMs of cores whose instructions are traced as well. The trace of instructions has each exception exactly; the DWT
/// says the same ones again, with the times of another clock.
pub(super) fn mark_cores_twice(readers: &mut [Reader], is_serial: bool, info: &mut TraceInfo) {
    let is_traced = |reader: &&Reader| reader.exceptions.is_some_and(|it| it.is_m_profile());
    let cores: Vec<_> = readers.iter().filter(is_traced).map(|it| it.cpu).collect();
    let mut has_both = false;
    for reader in readers.iter_mut().filter(|it| it.exceptions.is_none()) {
        // Of a single core nothing need say which one it is.
        let is_only = reader.cpu.is_none() && cores.len() == 1;
        reader.has_exceptions = is_only || cores.contains(&reader.cpu);
        has_both |= reader.has_exceptions;
    }
    if has_both && !is_serial {
        info.remarks.push(
            "an ITM counts time from its own start, and the trace of instructions by another clock: what the ITM says may be early or \
             late beside what ran"
                .to_owned(),
        );
    }
}
