//! Contents of trace-event JSON, read back with `serde_json`.

use crate::common::timeline::{Timeline, expected_calls, spans};
use crate::common::{Trace, json, traces};
use kymo_event::{Addr, EventKind, Tid};

fn timeline(trace: &Trace) -> Timeline {
    let timeline = json::read(&trace.export("trace-event").0);
    timeline.check();
    let processes: Vec<_> = timeline.processes.iter().collect();
    assert_eq!(processes, [(&1, &"program".to_owned())]);
    timeline
}

#[test]
fn every_call_is_a_slice_with_its_times_and_how_it_ended() {
    for (name, trace) in traces::all() {
        if name == "backward" {
            continue;
        }
        assert_eq!(timeline(&trace).calls(), expected_calls(&trace), "{name}");
    }
}

#[test]
fn a_cpu_shows_what_ran_on_it() {
    let timeline = timeline(&traces::whole());
    let ran = timeline.row("CPU 0").slices();
    let ran = spans(&ran);
    assert_eq!(
        ran,
        [
            ("worker", 100, 160),
            ("worker (0x20000200)", 160, 210),
            ("thread 0x20000300", 210, 240),
            ("worker", 240, 260),
        ]
    );
}

#[test]
fn counters_have_values() {
    let timeline = timeline(&traces::whole());
    let values = timeline.rows.values().flat_map(|row| row.counters());
    let values: Vec<_> = values.collect();
    assert_eq!(values, [(222, "queued = 3"), (225, "queued = -2.5")]);
}

#[test]
fn gaps_are_slices_and_orphans_instants() {
    let timeline = timeline(&traces::broken());
    let gaps = timeline.row("gaps of cpu0").slices();
    assert_eq!(gaps.len(), 4, "{gaps:?}");
    assert!(
        gaps.iter()
            .any(|gap| gap.name == "37 events discarded" && gap.end == 170)
    );
    let instants = timeline.row("worker").instants();
    assert!(instants.contains(&(100, "return from c")), "{instants:?}");
}

#[test]
fn time_below_zero_is_written_and_time_that_goes_back_is_held() {
    let (bytes, summary) = traces::backward().export("trace-event");
    let timeline = json::read(&bytes);
    timeline.check();
    assert_eq!(summary.shifted_ns, 0);
    assert!(summary.held >= 2, "{summary:?}");
    let calls = timeline.calls();
    let found = spans(&calls);
    assert_eq!(
        found,
        [
            ("a", -50, 60),
            ("b", -20, 40),
            ("c", -10, 70),
            ("c", 40, 40)
        ]
    );
}

#[test]
fn what_has_no_number_takes_none_of_a_threads() {
    for (numbered_threads, first) in [(true, false), (false, true)] {
        let mut w = traces::Writer::new();
        w.trace.info.numbered_threads = numbered_threads;
        w.on(0, Tid(42)).at(10).isr_enter(14).at(20).isr_exit(14);
        w.on(0, Tid(1))
            .at(30)
            .enter(Addr(0x100))
            .at(40)
            .exit(Addr(0x100));
        let timeline = json::read(&w.trace.export("trace-event").0);
        timeline.check();
        // If threads are identified by addresses, numbers are assigned in the order of occurrence.
        let is_thread = timeline.rows[&1].name.starts_with("thread 1");
        assert_eq!(is_thread, !first, "{:?}", timeline.rows.keys());
    }
}

#[test]
fn threads_of_a_process_have_their_numbers() {
    let (bytes, summary) = traces::process().export("trace-event");
    let timeline = json::read(&bytes);
    timeline.check();
    assert_eq!(timeline.rows[&42].name, "main");
    assert_eq!(timeline.rows[&43].name, "thread 43");
    assert_eq!(timeline.row("irq 14 in thread 42").slices().len(), 2);
    assert_eq!(summary.left_out, 0);
}

#[test]
fn records_of_a_kymo_target_that_only_carry_its_clock_on_are_not_shown() {
    let mut trace = traces::broken();
    let instants = |trace: &Trace| {
        let timeline = json::read(&trace.export("trace-event").0);
        let instants = timeline.row("worker").instants();
        instants.iter().filter(|(_, name)| *name == "tick").count()
    };
    assert_eq!(instants(&trace), 1);
    // Records of the target's program (items, records in place) are exported. Records that only continue the clock, or
    // describe the target, are not.
    trace.info.format = "kymo".to_owned();
    assert_eq!(instants(&trace), 1);
    for kind in [EventKind::Time, EventKind::Fact] {
        let ticks = trace.events.iter_mut().filter(|event| event.name == "tick");
        ticks.for_each(|event| event.kind = kind.clone());
        assert_eq!(instants(&trace), 0);
    }
}
