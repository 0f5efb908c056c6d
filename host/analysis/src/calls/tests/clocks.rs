//! Clocks that go from one end of time to the other and back, and clocks that were ahead.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Threads that both processors claim are charged by two clocks, and each takes back what is its own: sums
    /// stop at the ends of time, and nothing panics.
    #[test]
    fn sums_stop_at_the_ends_of_time(
        events in prop::collection::vec(
            (0_u32..2, 1_u32..3, prop_oneof![Just(i64::MIN), Just(i64::MAX), -50_i64..50], 0_u8..4),
            0..80,
        ),
    ) {
        let mut trace = Trace::new();
        for (cpu, thread, time, kind) in events {
            trace.cpu(cpu).thread(thread);
            match kind {
                0 => trace.enter(time, A),
                1 => trace.exit(time, A),
                2 => trace.push(time, EventKind::SwitchedIn),
                _ => trace.isr(time, 15).isr_end(time, 15),
            };
        }
        trace.finish();
    }
}

/// A caller that has ended before the clock steps back loses the time from its total, too; one that is recursive from
/// its calls' sum alone.
#[test]
fn totals_are_without_the_time_that_a_clock_was_ahead() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(5, A).enter(10, B);
    // Ahead by 1,000 from here on.
    trace.exit(1_020, B).exit(1_030, A).exit(1_040, A);
    trace.enter(1_050, C).exit(70, C);
    let printed = trace.finish();
    let less: Vec<_> = printed
        .iter()
        .filter(|line| line.contains("less"))
        .collect();
    assert_eq!(
        less,
        [
            "0 Function(FunctionId(176)) less 980",
            "0 Function(FunctionId(160)) less 980 in all",
            "0 Function(FunctionId(160)) less 980 in all",
        ]
    );
    let row = |function| {
        let row = trace
            .profile
            .row(Callee::Function(function))
            .expect("a row");
        (row.total.0, row.self_time.0, row.sum.0)
    };
    assert_eq!((row(A), row(B)), ((60, 30, 105), (30, 30, 30)));
}

/// No single charge is as long as the step: the latest ones together are the excess, also that of calls that ended.
#[test]
fn totals_are_without_an_excess_of_several_charges() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(0, B).exit(40, B).exit(70, A);
    trace.enter(80, C).exit(0, C);
    trace.finish();
    let total = |function| {
        let row = trace.profile.row(Callee::Function(function));
        row.expect("a row").total.0
    };
    // 40 ns of B and 30 of A passed while the clock was ahead by 80.
    assert_eq!((total(A), total(B)), (0, 0));
}
