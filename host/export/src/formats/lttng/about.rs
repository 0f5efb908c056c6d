//! Environment and clock of a trace, including the facts by which tools recognise a kernel trace.

use kymo_event::{Event, Time, TraceInfo};

use super::classes::{ClockOf, Env};
use super::packets::Uuid;
use crate::format::Context;

/// The facts by which tools recognise a kernel trace of LTTng, then the origin of this one. `host`: the machine's name.
pub(super) fn environment(
    info: &TraceInfo,
    context: Context<'_>,
    host: Option<&str>,
) -> Vec<(&'static str, Env)> {
    let text = |text: &str| Env::Text(text.to_owned());
    let reported = |name: &str| {
        let found = info.about.iter().find(|(known, _)| known == name);
        found.map(|(_, text)| text.clone())
    };
    let program = &context.options.program;
    let mut facts = vec![
        (
            "hostname",
            Env::Text(match host {
                Some(host) => host.to_owned(),
                None => reported("bsp").unwrap_or_else(|| program.clone()),
            }),
        ),
        ("domain", text("kernel")),
        ("sysname", text("Linux")),
        ("kernel_release", text("5.0.0")),
        ("kernel_version", text("#1")),
        ("tracer_name", text("lttng-modules")),
        ("tracer_major", Env::Number(2)),
        ("tracer_minor", Env::Number(11)),
        ("tracer_patchlevel", Env::Number(0)),
        ("kymo_program", Env::Text(program.clone())),
        ("kymo_format", Env::Text(info.format.clone())),
    ];
    for (name, fact) in [
        ("kymo_arch", "arch"),
        ("kymo_tools", "tools"),
        ("kymo_revision", "revision"),
    ] {
        facts.extend(reported(fact).map(|text| (name, Env::Text(text))));
    }
    facts
}

/// The clock: the time of tick 0, with the date if known.
pub(super) fn clock(info: &TraceInfo, base: Option<Time>) -> ClockOf {
    const NANO: i64 = 1_000_000_000;
    let origin = info.wall_clock.as_ref().and_then(|wall| {
        let first = wall.moments().first()?;
        first.unix_ns.checked_sub(first.time.0)
    });
    let base = base.map_or(0, |base| base.0);
    let base = base.saturating_add(origin.unwrap_or(0));
    ClockOf {
        description: match origin {
            Some(_) => "time of day".to_owned(),
            None => "uptime of the target".to_owned(),
        },
        seconds: base.div_euclid(NANO),
        nanoseconds: base.rem_euclid(NANO),
    }
}

/// The UUID of a trace, from its description and its first event: viewers treat traces with the same UUID as one trace.
pub(super) fn uuid(info: &TraceInfo, first: &Event) -> Uuid {
    let streams: Vec<_> = info.streams.iter().map(|it| (&it.name, it.start)).collect();
    let (format, clock, wall) = (&info.format, info.clock_hz, &info.wall_clock);
    Uuid::of(&format!(
        "{format:?} {clock:?} {wall:?} {:?} {streams:?} {first:?}",
        info.about
    ))
}
