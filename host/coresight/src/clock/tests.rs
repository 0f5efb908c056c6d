//! Interpolation between times, with pauses, gaps and steps back.

use super::*;

/// The events, with their times.
fn times<T: Copy>(out: &[Placed<T>]) -> Vec<(i64, T)> {
    out.iter()
        .map(|placed| (placed.time, placed.what))
        .collect()
}

#[test]
fn what_lies_between_two_times_is_spread_by_instructions() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.push(5, "before", &mut out);
    clock.timestamp(10, 1000, &mut out);
    clock.push(15, "half", &mut out);
    assert!(out.is_empty());
    clock.timestamp(20, 1100, &mut out);
    clock.push(22, "after", &mut out);
    clock.finish(Some("last"), &mut out);
    assert_eq!(
        times(&out),
        [
            (950, "before"),
            (1050, "half"),
            (1100, "last"),
            (1120, "after")
        ]
    );
    assert_eq!(clock.widest, 100);
}

#[test]
fn the_timestamp_of_a_single_packet_is_exact() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(1, 0, &mut out);
    clock.push(2, "one", &mut out);
    clock.timestamp(2, 5000, &mut out);
    assert_eq!((times(&out), clock.widest), (vec![(5000, "one")], 0));
    clock.push(3, "two", &mut out);
    clock.push(3, "three", &mut out);
    clock.timestamp(3, 5007, &mut out);
    assert_eq!(clock.widest, 7);
}

#[test]
fn time_that_goes_back_goes_on_from_where_it_was() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 1000, &mut out);
    clock.timestamp(10, 1100, &mut out);
    clock.push(11, 'a', &mut out);
    // At the rate so far, the time would be 1120.
    clock.timestamp(12, 500, &mut out);
    clock.push(13, 'b', &mut out);
    clock.timestamp(14, 508, &mut out);
    clock.push(15, 'c', &mut out);
    clock.timestamp(16, 516, &mut out);
    assert_eq!(clock.backward, 1);
    assert_eq!(times(&out), [(1110, 'a'), (1124, 'b'), (1132, 'c')]);
    // After a pause, times later than all earlier ones are used as they are.
    clock.pause(&mut out);
    clock.push(20, 'd', &mut out);
    clock.timestamp(20, 3000, &mut out);
    clock.timestamp(30, 3010, &mut out);
    assert_eq!((out[3].time, clock.backward), (3000, 1));
    // Earlier times continue from the pause.
    clock.pause(&mut out);
    clock.push(30, 'e', &mut out);
    clock.timestamp(32, 7, &mut out);
    clock.push(42, 'f', &mut out);
    clock.timestamp(52, 27, &mut out);
    assert_eq!(times(&out[4..]), [(3010, 'e'), (3022, 'f')]);
    assert_eq!(clock.backward, 2);
}

#[test]
fn timestamps_beyond_the_times_of_events_are_counted_from_there() {
    let mut clock = Clock::new(Measure::Timestamps, None, 1 << 63);
    let mut out = Vec::new();
    clock.timestamp(0, (1 << 63) + 5, &mut out);
    clock.push(1, 'a', &mut out);
    clock.timestamp(2, u64::MAX, &mut out);
    assert_eq!(times(&out), [((i64::MAX - 5) / 2 + 5, 'a')]);
    // Without the offset, times stop at the largest possible time.
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    clock.timestamp(0, 5, &mut out);
    clock.timestamp(2, u64::MAX, &mut out);
    assert_eq!(
        (clock.widest, clock.backward),
        ((i64::MAX - 5).cast_unsigned(), 0)
    );
}

#[test]
fn nothing_is_spread_over_a_pause() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 1000, &mut out);
    clock.timestamp(10, 1020, &mut out);
    clock.push(15, "before", &mut out);
    clock.pause(&mut out);
    clock.push(15, "behind", &mut out);
    clock.timestamp(17, 900_004, &mut out);
    clock.timestamp(27, 900_024, &mut out);
    assert_eq!(times(&out), [(1030, "before"), (900_000, "behind")]);
    assert_eq!(clock.widest, 20);
}

#[test]
fn a_gap_before_the_first_time_takes_none() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 1000, &mut out);
    clock.timestamp(10, 1020, &mut out);
    clock.pause(&mut out);
    clock.gap();
    clock.push(105, 'a', &mut out);
    clock.timestamp(110, 5000, &mut out);
    clock.push(115, 'b', &mut out);
    clock.timestamp(120, 5100, &mut out);
    assert_eq!(times(&out), [(4950, 'a'), (5050, 'b')]);
}

#[test]
fn what_a_filter_kept_out_takes_what_the_rate_leaves_of_the_time() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 1000, &mut out);
    clock.timestamp(10, 1020, &mut out);
    clock.push(15, "before", &mut out);
    clock.gap();
    clock.push(15, "behind", &mut out);
    clock.push(18, "later", &mut out);
    clock.timestamp(20, 9000, &mut out);
    clock.push(25, "after", &mut out);
    clock.timestamp(30, 9040, &mut out);
    let expected = [
        (1030, "before"),
        (8990, "behind"),
        (8996, "later"),
        (9020, "after"),
    ];
    assert_eq!(times(&out), expected);
    assert_eq!(clock.widest, 7980);
    // Several gaps share the remaining time. If no rate is known, the minimum time per instruction is used.
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 0, &mut out);
    clock.push(1, 'a', &mut out);
    clock.gap();
    clock.timestamp(2, 4, &mut out);
    clock.push(3, 'b', &mut out);
    clock.gap();
    clock.push(3, 'c', &mut out);
    clock.gap();
    clock.push(4, 'd', &mut out);
    clock.timestamp(5, 106, &mut out);
    clock.finish(None, &mut out);
    let expected = [(2, 'a'), (6, 'b'), (54, 'c'), (104, 'd')];
    assert_eq!(times(&out), expected);
}

#[test]
fn a_first_interval_with_a_gap_waits_for_a_rate() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 10_000, &mut out);
    clock.push(110, "call", &mut out);
    clock.gap();
    clock.push(110, "behind", &mut out);
    clock.timestamp(110, 1_000_000, &mut out);
    clock.push(220, "next", &mut out);
    clock.gap();
    clock.push(220, "later", &mut out);
    clock.timestamp(220, 1_000_200, &mut out);
    assert!(out.is_empty());
    clock.push(225, "after", &mut out);
    clock.timestamp(330, 1_000_310, &mut out);
    let expected = [
        (10_110, "call"),
        (1_000_000, "behind"),
        (1_000_110, "next"),
        (1_000_200, "later"),
        (1_000_205, "after"),
    ];
    assert_eq!(times(&out), expected);
    // Also over a pause.
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp(0, 0, &mut out);
    clock.push(10, 'a', &mut out);
    clock.gap();
    clock.timestamp(20, 1000, &mut out);
    clock.push(25, 'b', &mut out);
    clock.pause(&mut out);
    clock.push(30, 'c', &mut out);
    clock.timestamp(30, 5000, &mut out);
    clock.timestamp(40, 5020, &mut out);
    assert_eq!(times(&out), [(20, 'a'), (1010, 'b'), (5000, 'c')]);
    // Beyond the maximum number of waiting events, the minimum time per instruction is used.
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    for step in 0..=WAITING as u64 {
        clock.gap();
        clock.push(step, step, &mut out);
        clock.timestamp(step + 1, step * 100, &mut out);
    }
    assert!(out.len() >= WAITING && clock.waiting.len() < 2);
}

#[test]
fn the_times_before_and_behind_bound_where_things_are() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.push(0, 'a', &mut out);
    clock.timestamp(5, 100, &mut out);
    clock.push(10, 'b', &mut out);
    clock.timestamp(15, 120, &mut out);
    clock.push(20, 'c', &mut out);
    clock.finish(None, &mut out);
    let bounds = |placed: &Placed<char>| (placed.earliest, placed.time, placed.latest);
    let bounds: Vec<_> = out.iter().map(bounds).collect();
    let expected = [(UNKNOWN, 90, 100), (100, 110, 120), (120, 130, i64::MAX)];
    assert_eq!(bounds, expected);
}

#[test]
fn cycles_add_up() {
    let mut clock = Clock::new(Measure::Cycles, None, 0);
    let mut out = Vec::new();
    clock.push(5, 'a', &mut out);
    clock.cycles(10, 100, &mut out);
    clock.push(15, 'b', &mut out);
    clock.cycles(20, 10, &mut out);
    assert_eq!(times(&out), [(50, 'a'), (105, 'b')]);
}

#[test]
fn ticks_of_the_kernel_s_counter_become_its_nanoseconds() {
    let conversion = TimeConversion {
        shift: 1,
        multiplier: 20,
        zero: 7,
    };
    let mut clock = Clock::new(Measure::Timestamps, Some(conversion), 0);
    let mut out = Vec::new();
    clock.timestamp(0, 3, &mut out);
    clock.push(5, 'a', &mut out);
    clock.timestamp(10, 5, &mut out);
    assert_eq!(times(&out), [(47, 'a')]);
}

#[test]
fn cycle_counts_spread_the_time_between_two_timestamps() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp_with_cycles(0, 1000, Some(0), &mut out);
    clock.push(0, "slow", &mut out);
    clock.cycles(10, 1000, &mut out);
    clock.push(10, "fast", &mut out);
    clock.push(15, "half of fast", &mut out);
    clock.cycles(20, 20, &mut out);
    clock.push(20, "rest", &mut out);
    // 30 cycles of the next 100 were before the timestamp.
    clock.timestamp_with_cycles(23, 1105, Some(30), &mut out);
    clock.cycles(30, 100, &mut out);
    clock.push(30, "end", &mut out);
    clock.timestamp_with_cycles(30, 1112, Some(0), &mut out);
    clock.cycles(40, 50, &mut out);
    clock.push(40, "behind", &mut out);
    clock.finish(Some("last"), &mut out);
    assert_eq!(
        times(&out),
        [
            (1000, "slow"),
            (1100, "fast"),
            (1101, "half of fast"),
            (1102, "rest"),
            (1112, "end"),
            (1112, "last"),
            (1117, "behind"),
        ]
    );
    // The cycles between two timestamps need not have one length.
    assert_eq!((out[0].earliest, out[0].latest), (1000, 1105));
    assert_eq!(clock.widest, 105);
}

#[test]
fn cycles_spread_what_is_before_the_first_timestamp() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.push(0, 'a', &mut out);
    clock.cycles(1, 100, &mut out);
    clock.push(1, 'b', &mut out);
    clock.cycles(11, 10, &mut out);
    clock.timestamp_with_cycles(11, 500, Some(0), &mut out);
    clock.cycles(12, 100, &mut out);
    clock.timestamp_with_cycles(12, 600, Some(0), &mut out);
    assert_eq!(times(&out)[1], (490, 'b'));
    assert_eq!((out[1].earliest, out[1].latest), (UNKNOWN, 500));
}

/// ETMv4's next count includes the 100 cycles up to the timestamp, PTM's does not.
#[test]
fn what_a_count_behind_a_timestamp_includes_depends_on_the_protocol() {
    for (restarts, next) in [(false, 300), (true, 200)] {
        let mut clock = Clock::new(Measure::Timestamps, None, 0);
        clock.restarts_at_timestamps = restarts;
        let mut out = Vec::new();
        clock.timestamp_with_cycles(0, 0, Some(0), &mut out);
        clock.timestamp_with_cycles(10, 100, Some(100), &mut out);
        out.clear();
        clock.cycles(20, next, &mut out);
        clock.push(20, 'a', &mut out);
        clock.cycles(30, 200, &mut out);
        clock.timestamp_with_cycles(30, 500, Some(0), &mut out);
        assert_eq!(times(&out), [(300, 'a')], "{restarts}");
    }
}

#[test]
fn without_all_cycle_counts_instructions_spread_the_time() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp_with_cycles(0, 0, Some(0), &mut out);
    clock.cycles(10, 90, &mut out);
    clock.push(10, "unknown", &mut out);
    clock.count(20, &Element::Cycles(0), &mut out);
    clock.timestamp_with_cycles(20, 100, Some(0), &mut out);
    assert_eq!(times(&out), [(50, "unknown")]);
    out.clear();
    // The first count behind a pause may include the pause.
    clock.pause(&mut out);
    clock.timestamp_with_cycles(20, 1000, Some(0), &mut out);
    clock.cycles(30, 9000, &mut out);
    clock.push(30, "paused", &mut out);
    clock.cycles(40, 10, &mut out);
    clock.timestamp_with_cycles(40, 1100, Some(0), &mut out);
    assert_eq!(times(&out), [(1050, "paused")]);
}

#[test]
fn a_gap_takes_what_the_cycles_leave_of_the_time() {
    let mut clock = Clock::new(Measure::Timestamps, None, 0);
    let mut out = Vec::new();
    clock.timestamp_with_cycles(0, 0, Some(0), &mut out);
    clock.cycles(10, 100, &mut out);
    clock.timestamp_with_cycles(10, 100, Some(0), &mut out);
    clock.cycles(20, 10, &mut out);
    clock.push(20, "before", &mut out);
    clock.gap();
    clock.push(20, "behind", &mut out);
    clock.cycles(30, 10, &mut out);
    clock.timestamp_with_cycles(30, 1100, Some(0), &mut out);
    assert_eq!(times(&out), [(110, "before"), (1090, "behind")]);
}
