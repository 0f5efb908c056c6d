//! Flag columns of ftrace's text output.

/// Appends the flags of an event as `trace` shows them: interrupts off, reschedule needed, hard or soft interrupt,
/// preemption depth, migration-disable depth. `flags` and `preempt` are the fields `common_flags` and
/// `common_preempt_count`.
pub fn latency(flags: u8, preempt: u8, out: &mut String) {
    const IRQS_OFF: u8 = 0x01;
    const IRQS_UNKNOWN: u8 = 0x02;
    const NEED_RESCHED: u8 = 0x04;
    const HARD: u8 = 0x08;
    const SOFT: u8 = 0x10;
    let is = |flag| flags & flag != 0;
    out.push(match () {
        () if is(IRQS_OFF) => 'd',
        () if is(IRQS_UNKNOWN) => 'X',
        () => '.',
    });
    out.push(if is(NEED_RESCHED) { 'N' } else { '.' });
    out.push(match (is(HARD), is(SOFT)) {
        (true, true) => 'H',
        (true, false) => 'h',
        (false, true) => 's',
        (false, false) => '.',
    });
    for depth in [preempt & 0xf, preempt >> 4] {
        out.push(match depth {
            0 => '.',
            depth => char::from_digit(depth.into(), 16).unwrap_or('?'),
        });
    }
}
