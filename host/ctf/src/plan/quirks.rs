//! Streams whose time goes back although the format does not foresee it.
//!
//! A field that holds the low bits of a clock is taken for the next time at which the clock has these bits (CTF 1.8.3,
//! section 8; CTF 2, 6.4): smaller bits than before mean that the counter went round. Some tracers write a time that is
//! a little before the last one, and then readers add a whole turn, some 4 s for 32 bits of nanoseconds, and one more at each
//! such event: babeltrace2 shows 45 s for a capture of 11 s. So in their streams a step that is much shorter back than
//! forward is one back.
//!
//! - Zephyr's tracing takes the time before it locks out interrupts, which may be traced first; and SysTick's counter is
//!   read a period wrong now and then. Its packets say nothing of their times, by which such streams are recognised.
//! - barectf before 2.3.1 begins a packet at the time of the moment, and then writes the event for which it did, whose
//!   time is before that.

use crate::metadata::{EnvValue, FieldClass, Form, IntegerClass, Metadata, Role, StreamClass};

/// Fewest bits of a clock for which steps back are distinguished from wraparounds: with fewer, a quarter of a turn is no long time.
const LEAST_BITS: u32 = 32;

/// Whether times in a stream of this class may step back.
pub(super) fn steps_back(metadata: &Metadata, stream: &StreamClass) -> bool {
    let header = stream.event_header.iter().flat_map(|it| &it.members);
    let mut stamps = header.filter_map(|member| match &member.class {
        FieldClass::Integer(class) if class.clock.is_some() => Some(class),
        _ => None,
    });
    let partial = |class: &IntegerClass| {
        class.form != Form::Variable && (LEAST_BITS..u64::BITS).contains(&class.size)
    };
    if !stamps.next().is_some_and(partial) || stamps.next().is_some() {
        return false;
    }
    let context = stream.packet_context.as_ref();
    let mut members = context.iter().flat_map(|it| &it.members);
    let begins = members.any(|member| {
        let class = member.class.as_integer();
        class.is_some_and(|class| class.role == Some(Role::TimestampBegin))
    });
    !begins || is_before(metadata, "barectf", [2, 3, 1])
}

/// Whether a trace is of a version of a tracer before this one.
fn is_before(metadata: &Metadata, tracer: &str, version: [i64; 3]) -> bool {
    let name = match metadata.env("tracer_name") {
        Some(EnvValue::Text(name)) => name,
        _ => return false,
    };
    let parts = ["tracer_major", "tracer_minor", "tracer_patch"];
    let found = parts.map(|part| match metadata.env(part) {
        Some(EnvValue::Integer(number)) => *number,
        _ => 0,
    });
    name == tracer && found < version
}
