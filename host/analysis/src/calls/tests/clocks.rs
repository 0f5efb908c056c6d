//! Clocks that go from one end of time to the other and back.

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
