//! Cores of which both instructions and DWT messages are traced.

use kymo_event::TraceInfo;

use super::Reader;

/// Marks the ITMs of cores whose instructions are traced, too. The instruction trace has each exception exactly; the
/// DWT reports the same ones again, with times of another clock.
pub(super) fn mark_cores_twice(readers: &mut [Reader], is_serial: bool, info: &mut TraceInfo) {
    let is_traced = |reader: &&Reader| reader.exceptions.is_some_and(|it| it.is_m_profile());
    let cores: Vec<_> = readers.iter().filter(is_traced).map(|it| it.cpu).collect();
    let mut has_both = false;
    for reader in readers.iter_mut().filter(|it| it.exceptions.is_none()) {
        // With a single core, neither source need name it.
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
