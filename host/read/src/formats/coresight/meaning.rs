//! Names of records and exceptions in hardware trace, and remarks about a trace.

use std::collections::BTreeSet;

use kymo_coresight::Protocol;
use kymo_coresight::clock::Measure;
use kymo_coresight::perf::TimeConversion;
use kymo_coresight::remarks::Remark;
use kymo_event::{Damage, RowKind, TimeUnit, TraceInfo};

use super::unit::End;

/// Returns the name of records with this meaning, for which the trace has no names.
pub(super) fn name_of(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Enter => "enter",
        RowKind::Exit => "exit",
        RowKind::IsrEnter => "irq_enter",
        RowKind::IsrExit => "irq_exit",
        RowKind::SwitchedIn => "switched_in",
        RowKind::SwitchedOut => "switched_out",
        RowKind::Time => "last_time",
        _ => "",
    }
}

/// Returns the name of an exception of Armv7-M and Armv8-M.
pub(super) fn cortex_m(number: u32) -> String {
    match number {
        1 => "Reset".to_owned(),
        2 => "NMI".to_owned(),
        3 => "HardFault".to_owned(),
        4 => "MemManage".to_owned(),
        5 => "BusFault".to_owned(),
        6 => "UsageFault".to_owned(),
        7 => "SecureFault".to_owned(),
        11 => "SVCall".to_owned(),
        12 => "DebugMonitor".to_owned(),
        14 => "PendSV".to_owned(),
        15 => "SysTick".to_owned(),
        16.. => format!("IRQ{}", number - 16),
        _ => format!("exception {number}"),
    }
}

/// Adds a remark about a trace.
pub(super) fn add(info: &mut TraceInfo, remark: Remark) {
    match remark.is_damage {
        true => info.add_damage(Damage {
            stream: remark.stream,
            offset: remark.offset,
            message: remark.text,
        }),
        false if remark.is_note => info.notes.push(remark.to_string()),
        false => info.remarks.push(remark.to_string()),
    }
}

/// Share of a trace, in percent, from which on a remark mentions interpolated times.
const COARSE: u128 = 10;

/// Returns a remark about durations if a large part of a trace is between two of its times. The share is rounded down.
pub(super) fn coarse(total: &End, info: &TraceInfo) -> Option<String> {
    let begin = info
        .streams
        .iter()
        .filter_map(|stream| stream.start)
        .min()?;
    let end = info.streams.iter().filter_map(|stream| stream.end).max()?;
    let (widest, span) = (total.widest, end.0.abs_diff(begin.0));
    let share = u128::from(widest) * 100 / u128::from(span.max(1));
    if share < COARSE || total.counts.instructions == 0 {
        return None;
    }
    let (share, unit) = (share.min(100), info.unit.suffix());
    let by = match total.is_widest_by_cycles {
        true => "by the cycle counts in between, which come every so many instructions",
        false => "over the instructions in between and what was not traced",
    };
    Some(format!(
        "durations are uncertain: {share} % of the trace, {widest} {unit}, lie between two times that it tells, and are spread {by}"
    ))
}

/// Returns a remark about threads that ran on several CPUs without a known order; `None` if there are none.
pub(super) fn unordered(threads: usize) -> Option<String> {
    let threads = match threads {
        0 => return None,
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    };
    Some(format!(
        "{threads} ran on several CPUs, and the trace has no timestamps: what ran on one CPU is taken for a run of its own, so that \
         callers, ends and durations of these calls are uncertain"
    ))
}

/// Returns a remark about context IDs that several CPUs executed at once; `None` if there are none.
pub(super) fn concurrent(ids: &BTreeSet<u32>) -> Option<String> {
    const LISTED: usize = 4;
    let listed: Vec<_> = ids.iter().take(LISTED).map(u32::to_string).collect();
    let listed = listed.join(", ");
    let (what, are) = match ids.len() {
        0 => return None,
        1 => (format!("context ID {listed} executes"), "is"),
        2..=LISTED => (format!("context IDs {listed} execute"), "are each"),
        more => (
            format!("{more} context IDs, {listed} and others, execute"),
            "are each",
        ),
    };
    Some(format!(
        "{what} on several CPUs at once and {are} not one thread: each CPU has a thread of its own for it"
    ))
}

/// Returns a remark about timestamps that went back; `None` if none did.
pub(super) fn backward(times: u64) -> Option<String> {
    let times = match times {
        0 => return None,
        1 => "1 time".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "the timestamps went back {times} (a reset of the target, say): what follows goes on at the rate before, and keeps its own distances; \
         durations across such a step are uncertain, and times behind it are not those of the trace"
    ))
}

/// Returns a remark about calls that were too deep to be followed; `None` if there are none.
pub(super) fn too_deep(calls: u64) -> Option<String> {
    (calls > 0).then(|| {
        format!(
            "{calls} calls were more than 65,536 deep and are not followed: they are not counted, and their time is the caller's"
        )
    })
}

/// Returns a remark about sources of messages without timestamps; `None` if there are none.
pub(super) fn timeless(sources: u64) -> Option<String> {
    let sources = match sources {
        0 => return None,
        1 => "an ITM sends no timestamps".to_owned(),
        sources => format!("{sources} ITMs send no timestamps"),
    };
    Some(format!(
        "{sources} (TSENA of ITM_TCR): all that it says is at one time, and durations of interrupts are not known"
    ))
}

/// Returns a remark about sources of instructions with fewer than two timestamps; `None` if there are none.
pub(super) fn brief(sources: u64) -> Option<String> {
    let sources = match sources {
        0 => return None,
        1 => "a source has".to_owned(),
        sources => format!("{sources} sources have"),
    };
    Some(format!(
        "{sources} fewer than two timestamps: all that ran there is at one time, and durations there are not known"
    ))
}

/// Returns a remark about exception returns after which any of several tasks may have continued; `None` if there are
/// none.
pub(super) fn same_address(switches: u64) -> Option<String> {
    let times = match switches {
        0 => return None,
        1 => "1 time".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "a handler returned {times} to an address where several tasks were interrupted, and the trace has no context IDs: which \
         of them went on is a guess, so that durations of their calls are uncertain"
    ))
}

/// Returns the unit of times.
pub(super) fn unit(measure: Measure, conversion: Option<TimeConversion>) -> TimeUnit {
    match (measure, conversion) {
        (Measure::Instructions, _) => TimeUnit::Instructions,
        (Measure::Cycles, _) => TimeUnit::Cycles,
        (Measure::Timestamps, Some(_)) => TimeUnit::Nanoseconds,
        (Measure::Timestamps, None) => TimeUnit::Ticks,
    }
}

/// Returns the kernel clock of the times, if any: perf records the conversion of its counter to that clock.
pub(super) fn clock(measure: Measure, conversion: Option<TimeConversion>) -> Option<String> {
    let is_clock = measure == Measure::Timestamps && conversion.is_some();
    is_clock.then(|| "sched_clock".to_owned())
}

/// Counts of uncertain conditions.
#[derive(Default)]
pub(super) struct Doubts {
    /// Number of times that execution went to code that no image has.
    pub not_followed: u64,
    /// Number of times that code and trace did not match.
    pub not_fitting: u64,
    /// Number of times that trace is missing.
    pub lost: u64,
    /// Number of times that the trace unit was off.
    pub paused: u64,
    /// Times that a processor started anew.
    pub resets: u64,
}

/// Describes the configuration of the trace units. Units with the same configuration are grouped.
pub(super) fn about_units<'a>(units: impl Iterator<Item = (&'a str, &'a Protocol)>) -> String {
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, protocol) in units {
        let Some(about) = protocol.about() else {
            continue;
        };
        match alike.iter_mut().find(|(known, _)| *known == about) {
            // Several buffers of a recording may have the same unit.
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => alike.push((about, vec![name])),
        }
    }
    let alike = alike.into_iter();
    let alike = alike.map(|(about, names)| format!("{}: {about}", names.join(", ")));
    alike.collect::<Vec<_>>().join("; ")
}
