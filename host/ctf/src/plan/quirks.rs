//! Detection of streams whose time may step back, although the format does not allow it.
//!
//! A field with the low bits of a clock means the next time at which the clock has these bits (CTF 1.8.3, section 8;
//! CTF 2, 6.4): a smaller value than before means that the counter wrapped. Some tracers write a time slightly before
//! the last one, and then readers add a whole wraparound, some 4 s for 32 bits of nanoseconds, and another one at each
//! such event: babeltrace2 shows 45 s for a capture of 11 s. So in the streams of these tracers a step that is much
//! shorter backward than forward is a step back.
//!
//! - Zephyr's tracing reads the time before it masks interrupts, which may be traced first; and SysTick's counter is
//!   sometimes read wrong by one period. Its packets do not state their times, which identifies such streams.
//! - barectf before 2.3.1 begins a packet at the current time, and then writes the event that caused the packet, with an
//!   earlier time.

use crate::metadata::{EnvValue, FieldClass, Form, IntegerClass, Metadata, Role, StreamClass};

/// Minimum number of clock bits for which steps back are distinguished from wraparounds: with fewer, a quarter of the
/// range is too short a time.
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

/// Whether a tracer older than `version` wrote the trace.
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
