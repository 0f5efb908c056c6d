//! Synthetic streams: every layout, both versions, losses, wraparounds, processors without uptime.

use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use kymo_rtems_record::{EventId, Reader, Record};
use proptest::prelude::*;

use crate::common::{read, user};

const MHZ: u64 = 1_000_000;

/// `USER_0` in both versions.
const USER: u32 = 512;

#[test]
fn headers_and_names_are_those_that_were_written() {
    for version in [9, 10] {
        for layout in LAYOUTS {
            let mut stream = Stream::new(layout, version, 2, 64, 100 * MHZ);
            stream
                .thread(0x0901_0001, "IDLE")
                .thread(0x0a01_0001, "a name of more letters");
            stream.processor(0).uptime(7).item(9, USER, 1);
            let read = read(&stream.bytes);
            assert_eq!(read.faults, []);
            let header = &read.header;
            assert_eq!(
                (header.version, header.cpus, header.ring_items),
                (version, 2, 64)
            );
            assert_eq!(header.frequency, 100 * MHZ);
            let texts = [
                &header.arch,
                &header.multilib,
                &header.bsp,
                &header.version_control_key,
                &header.tools,
            ];
            assert_eq!(
                texts,
                [
                    "ARM",
                    "ARMv7-A NEON",
                    "realview",
                    "0123abc",
                    "12.2.1 20221205"
                ]
            );
            let names: Vec<_> = read
                .names
                .iter()
                .map(|it| (it.id, it.name.as_str()))
                .collect();
            assert_eq!(
                names,
                [
                    (0x0901_0001, "IDLE"),
                    (0x0a01_0001, "a name of more letters")
                ]
            );
            assert_eq!(user(&read), [(0, 90, 1)]);
        }
    }
}

#[test]
fn the_events_of_version_9_are_those_of_version_10() {
    let mut stream = Stream::new(LAYOUTS[0], 9, 1, 64, MHZ);
    stream.processor(0).uptime(10);
    // THREAD_SWITCH_OUT and _IN, INTERRUPT_ENTRY, WRITE_ENTRY by their numbers of version 9.
    for (number, name) in [
        (303, "THREAD_SWITCH_OUT"),
        (302, "THREAD_SWITCH_IN"),
        (59, "INTERRUPT_ENTRY"),
        (337, "WRITE_ENTRY"),
    ] {
        stream.item(11, number, 3);
        let last = *read(&stream.bytes).records.last().unwrap();
        assert_eq!((last.event.name(10), last.time), (name, 11_000));
    }
}

#[test]
fn what_a_ring_of_version_9_lost_follows_from_its_counts() {
    let mut stream = Stream::new(LAYOUTS[1], 9, 1, 16, MHZ);
    stream.processor(0).ring(0, 3).uptime(10).item(11, USER, 1);
    stream
        .processor(0)
        .ring(3, 5)
        .item(12, USER, 2)
        .item(13, USER, 3);
    // 40 were recorded, of which 15 are in the ring.
    stream.processor(0).ring(5, 45);
    for counter in 30..43 {
        stream.item(counter, USER, counter);
    }
    stream.uptime(43);
    let read = read(&stream.bytes);
    let lost: Vec<_> = read
        .records
        .iter()
        .filter(|it| it.event == EventId::PER_CPU_OVERFLOW)
        .collect();
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].data, lost[0].time, lost[0].is_item),
        (25, 13_000, false)
    );
    assert_eq!(read.statistics.lost, 25);
    let last = user(&read).into_iter().next_back().unwrap();
    assert_eq!(last, (0, 42_000, 42));
}

/// SPARC's counter is composed of a timer and its interrupt, and goes back when one is ahead of the other.
#[test]
fn a_counter_that_goes_back_a_little_has_not_gone_round() {
    // Before the first pair, after it, and after a loss with no later pair.
    for (first, last) in [(true, false), (false, true), (false, false)] {
        let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, MHZ);
        stream.processor(0);
        if last {
            stream.uptime(1_000);
        }
        stream
            .item(1_600, USER, 1)
            .item(1_622, USER, 2)
            .item(1_278, USER, 3)
            .item(2_000, USER, 4);
        if first {
            stream.uptime(2_100);
        }
        let read = read(&stream.bytes);
        let times: Vec<_> = user(&read).iter().map(|(_, time, _)| *time).collect();
        let since: Vec<_> = times.iter().map(|time| time - times[0]).collect();
        // It has the time of the record before.
        assert_eq!(since, [0, 22_000, 22_000, 400_000], "{first} {last}");
        if first || last {
            assert_eq!(times[0], 1_600_000);
            assert_eq!(
                (read.statistics.put_back, read.statistics.put_back_most_ns),
                (1, 344_000)
            );
        }
    }
    // A whole wraparound without records other than the uptime.
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, MHZ);
    stream.processor(0).uptime(1_000).item(1_600, USER, 1);
    stream
        .uptime(1_000 + 4_190_000)
        .item(1_600 + 4_190_000, USER, 2);
    let read = read(&stream.bytes);
    assert_eq!(user(&read), [(0, 1_600_000, 1), (0, 4_191_600_000, 2)]);
    assert_eq!(read.statistics.put_back, 0);
}

/// A target of version 9 with rings of 16 items. Item `n` of a ring is user event `n % 64` at tick `10 * n`. Every
/// eighth item and the one after it are a pair of uptime items.
fn item_of_version_9(stream: &mut Stream, number: u64) {
    let counter = 10 * number;
    let (seconds, rest) = (counter / MHZ, counter % MHZ);
    let fraction = (u128::from(rest) << 32) / u128::from(MHZ);
    match number % 8 {
        0 => stream.item(counter, 321, fraction as u64),
        1 => stream.item(counter - 10, 320, seconds),
        _ => stream.item(counter, USER + number as u32 % 64, number),
    };
}

/// Returns a chunk with the items `tail..head` of a ring. Those in `overwritten` were sent as the items that replaced
/// them.
fn chunk_of_version_9(
    stream: &mut Stream,
    cpu: u64,
    (tail, head): (u64, u64),
    overwritten: &[u64],
) {
    stream.processor(cpu).ring(tail, head);
    for number in tail.max(head.saturating_sub(15))..head {
        let hit = overwritten.contains(&number);
        item_of_version_9(stream, if hit { number + 16 } else { number });
    }
}

/// Returns the records of a stream of version 9: the data of a processor's user events, and the losses, each with the
/// number of events before it.
fn of_version_9(stream: &Stream, cpu: u8) -> (Vec<u64>, Vec<(usize, u64)>) {
    let read = read(&stream.bytes);
    assert!(read.faults.is_empty(), "{:?}", read.faults);
    let (mut data, mut lost) = (Vec::new(), Vec::new());
    for record in read.records.iter().filter(|it| it.cpu == cpu) {
        match record.event {
            EventId::PER_CPU_OVERFLOW => lost.push((data.len(), record.data)),
            event if event >= EventId::USER_0 && event < EventId::PER_CPU_HEAD => {
                assert_eq!(record.time, 10_000 * record.data as i64, "{record:?}");
                data.push(record.data);
            }
            _ => {}
        }
    }
    (data, lost)
}

/// Returns the numbers of the user events among the items.
fn users(items: impl Iterator<Item = u64>) -> Vec<u64> {
    items.filter(|number| number % 8 > 1).collect()
}

#[test]
fn items_that_version_9_sent_in_time_are_kept_though_their_place_was_taken_later() {
    let mut stream = Stream::new(LAYOUTS[0], 9, 2, 16, MHZ);
    for round in 0..6 {
        for cpu in 0..2 {
            chunk_of_version_9(&mut stream, cpu, (10 * round, 10 * round + 10), &[]);
        }
    }
    for cpu in 0..2 {
        assert_eq!(of_version_9(&stream, cpu), (users(0..60), Vec::new()));
    }
}

#[test]
fn items_of_version_9_that_were_overwritten_while_they_were_sent_are_lost() {
    let mut stream = Stream::new(LAYOUTS[3], 9, 2, 16, MHZ);
    chunk_of_version_9(&mut stream, 0, (0, 12), &[]);
    chunk_of_version_9(&mut stream, 1, (0, 4), &[]);
    // Items 14 and 15 were sent as 30 and 31; 12 and 13 had been sent before.
    chunk_of_version_9(&mut stream, 0, (12, 24), &[14, 15]);
    chunk_of_version_9(&mut stream, 0, (24, 34), &[]);
    chunk_of_version_9(&mut stream, 1, (4, 5), &[]);
    chunk_of_version_9(&mut stream, 0, (34, 40), &[]);
    let kept = users((0..40).filter(|number| !(14..16).contains(number)));
    // After the loss, the pair 16 and 17 determines the times.
    assert_eq!(of_version_9(&stream, 0), (kept, vec![(10, 2)]));
    assert_eq!(of_version_9(&stream, 1), (users(0..5), Vec::new()));
}

#[test]
fn items_of_version_9_are_judged_by_their_times_if_what_took_their_place_is_lost_too() {
    for (overwritten, lost) in [
        (&[][..], &[(14, 25)][..]),
        (&[12, 13], &[(8, 2), (12, 25)]),
        // The replacing items are in order, and as valid as the others.
        (&[18, 19], &[(14, 25)]),
    ] {
        let mut stream = Stream::new(LAYOUTS[0], 9, 1, 16, MHZ);
        chunk_of_version_9(&mut stream, 0, (0, 8), &[]);
        chunk_of_version_9(&mut stream, 0, (8, 20), overwritten);
        // 40 have been recorded since, of which 15 were in the ring. 3 of these could have been overwritten while they
        // were sent, and were not.
        chunk_of_version_9(&mut stream, 0, (20, 60), &[]);
        chunk_of_version_9(&mut stream, 0, (60, 63), &[]);
        let newer = overwritten.iter().map(|it| it + 16).filter(|it| *it > 30);
        let kept = (0..20).filter(|it| !overwritten.contains(it));
        let kept = kept.chain(newer).chain(45..63);
        assert_eq!(of_version_9(&stream, 0), (users(kept), lost.to_vec()));
    }
}

#[test]
fn damage_of_version_9_ends_with_all_that_came_before() {
    let mut stream = Stream::new(LAYOUTS[1], 9, 1, 16, MHZ);
    chunk_of_version_9(&mut stream, 0, (0, 4), &[]);
    chunk_of_version_9(&mut stream, 0, (4, 10), &[]);
    let offset = stream.bytes.len() as u64;
    chunk_of_version_9(&mut stream, 7, (0, 4), &[]);
    chunk_of_version_9(&mut stream, 0, (10, 12), &[]);
    let read = read(&stream.bytes);
    assert_eq!(read.faults.len(), 1);
    assert_eq!(read.faults[0].offset, offset);
    assert_eq!(user(&read).len(), users(0..10).len());
}

#[test]
fn records_behind_a_loss_wait_for_the_next_pair() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, MHZ);
    stream.processor(0).uptime(1_000).item(1_001, USER, 1);
    // Ten wraparounds later.
    let far = 10 << 22;
    stream
        .processor(0)
        .overflow(77)
        .item(far, USER, 2)
        .uptime(far + 5)
        .item(far + 6, USER, 3);
    let read = read(&stream.bytes);
    let far = far as i64 * 1_000;
    assert_eq!(
        user(&read),
        [(0, 1_001_000, 1), (0, far, 2), (0, far + 6_000, 3)]
    );
    assert_eq!((read.statistics.lost, read.statistics.uncertain), (77, 0));
}

#[test]
fn hours_after_the_last_pair_nothing_overflows() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 100 * MHZ);
    stream.processor(0).uptime(0);
    let mut counter = 0;
    for step in 0..2_000_000_u64 {
        counter += 4_000_000;
        stream.item(counter, USER, step & 0xFF);
    }
    let read = read(&stream.bytes);
    assert_eq!(user(&read).last(), Some(&(0, counter as i64 * 10, 0x7F)));
    assert_eq!(read.statistics.put_back, 0);
}

#[test]
fn processors_without_uptime_are_placed_by_the_others() {
    // 100 ticks after a wraparound of the 22-bit counter, in rounds.
    let start: u64 = (5 << 22) + 100;
    let mut stream = Stream::new(LAYOUTS[1], 10, 3, 64, MHZ);
    for round in 0..4 {
        let now = start + round * 10_000;
        stream
            .processor(0)
            .uptime(now)
            .item(now + 9_000, USER, round);
        // The second processor has no pair at all, the third has a later one.
        stream
            .processor(1)
            .item(now + 2_000, USER, 10 + round)
            .item(now + 8_000, USER, 20 + round);
        stream.processor(2).item(now + 3_000, USER, 30 + round);
        if round == 2 {
            stream.uptime(now + 4_000);
        }
    }
    let read = read(&stream.bytes);
    let at = |ticks: u64| ticks as i64 * 1_000;
    for (cpu, time, data) in user(&read) {
        let round = start + data % 10 * 10_000;
        let own = match data / 10 {
            0 => 9_000,
            1 => 2_000,
            2 => 8_000,
            _ => 3_000,
        };
        assert_eq!(time, at(round + own), "CPU {cpu}, {data}");
    }
    let times: Vec<_> = read.records.iter().map(|record| record.time).collect();
    assert!(times.is_sorted(), "all processors in the order of time");
    let marked: Vec<_> = read
        .records
        .iter()
        .filter(|it| it.event == EventId::UNRELIABLE_TIME)
        .map(|it| it.cpu)
        .collect();
    assert_eq!(marked, [1]);
}

/// On a fatal error all rings are sent once, one after the other, and a ring that wrapped around in two parts.
#[test]
fn a_ring_that_is_sent_in_two_parts_is_in_the_order_of_time() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, MHZ);
    stream.processor(0).uptime(1_000);
    for number in 0..20 {
        stream.item(1_000 + number * 50_000, USER, number);
    }
    stream
        .processor(1)
        .uptime(1_010)
        .item(10_000, USER, 100)
        .processor(1)
        .item(20_000, USER, 101)
        .item(500_000, USER, 102);
    let read = read(&stream.bytes);
    let times: Vec<_> = read.records.iter().map(|record| record.time).collect();
    assert!(times.is_sorted(), "{:?}", user(&read));
    assert_eq!(user(&read).len(), 23);
}

/// The processors are sent in rounds of 100 ms: an idle one, and one that has records and no uptime, or a late one.
fn rounds(late: Option<u64>) -> Stream {
    let mut stream = Stream::new(LAYOUTS[0], 10, 3, 64, MHZ);
    for round in 0..100 {
        let now = 5_000_000 + round * 100_000;
        stream.processor(0).uptime(now).item(now + 10, USER, round);
        stream.processor(1);
        if late == Some(round) {
            stream.uptime(now + 5);
        }
        stream.item(now + 20, USER, 1_000 + round);
        stream.processor(2);
    }
    stream
}

#[test]
fn a_live_processor_without_uptime_holds_the_others_back_for_a_while_only() {
    for late in [None, Some(95)] {
        let stream = rounds(late);
        let mut reader = Reader::new(&stream.bytes[..]).live();
        let mut before_end = Vec::new();
        while before_end.is_empty() {
            assert!(reader.read(&mut before_end).unwrap());
        }
        let mut records = before_end.clone();
        while reader.read(&mut records).unwrap() {}
        // Nine seconds (two wraparounds of 4.2 s) have passed before the last records arrive.
        let of_user = |record: &&Record| record.event.0 == 512;
        let count = before_end.iter().filter(of_user).count();
        assert!(count >= 30, "{late:?} {count}");
        assert!(records.is_sorted_by_key(|record| record.time), "{late:?}");
        let all: Vec<_> = records.iter().filter(of_user).collect();
        assert_eq!(all.len(), 200);
        // The times are correct, because the processors share the counter.
        for record in all.iter().filter(|record| record.cpu == 1) {
            let expected = 5_000_020_000 + (record.data as i64 - 1_000) * 100_000_000;
            assert_eq!(record.time, expected, "{record:?}");
        }
        let marks = |record: &&Record| record.event == EventId::UNRELIABLE_TIME;
        assert_eq!(records.iter().filter(marks).count(), 1);
    }
}

#[test]
fn without_any_uptime_time_begins_with_the_first_record() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, MHZ);
    stream
        .processor(0)
        .item(4_000_000, USER, 1)
        .item(4_000_010, USER, 2);
    stream.processor(1).item(4_000_007, USER, 3);
    let read = read(&stream.bytes);
    assert_eq!(
        user(&read).iter().map(|it| it.2).collect::<Vec<_>>(),
        [1, 3, 2]
    );
    assert_eq!(
        read.statistics.uncertain as usize,
        read.records.iter().filter(|it| it.is_item).count()
    );
}

/// Number of ticks above which the difference of a slow counter is negative.
const LONGEST: u32 = (1 << 22) - (1 << 16);

/// Record of a processor: ticks since the record before, user event, data.
type Made = (u32, u16, u64);

proptest! {
    #[test]
    fn what_is_written_is_read(
        layout in 0..4_usize,
        version in 9..=10_u32,
        frequency in prop::sample::select(vec![32_768, MHZ, 100 * MHZ, 4_000 * MHZ]),
        cpus in prop::collection::vec(prop::collection::vec((0..LONGEST, 0..512_u16, any::<u64>()), 0..40), 1..4),
        chunk in 1..10_usize,
        cut in 1..40_usize,
    ) {
        let layout = LAYOUTS[layout];
        let mask = if layout.wide { u64::MAX } else { u64::from(u32::MAX) };
        let mut stream = Stream::new(layout, version, cpus.len() as u64, 1 << 10, frequency);
        let mut counters = vec![frequency; cpus.len()];
        let mut expected: Vec<Vec<(u16, u64, i64)>> = vec![Vec::new(); cpus.len()];
        let longest = cpus.iter().map(Vec::len).max().unwrap_or(0);
        for round in 0..=longest / chunk {
            for (cpu, made) in cpus.iter().enumerate() {
                stream.processor(cpu as u64);
                if round == 0 {
                    stream.uptime(counters[cpu]);
                }
                let made: &[Made] = made;
                for (ticks, event, data) in made.iter().skip(round * chunk).take(chunk) {
                    counters[cpu] += u64::from(*ticks);
                    stream.item(counters[cpu], USER + u32::from(*event), *data);
                    let ns = u128::from(counters[cpu]) * 1_000_000_000 / u128::from(frequency);
                    expected[cpu].push((*event, *data & mask, ns as i64));
                }
            }
        }
        let text = stream.log(true, "[ 12.345] ");
        for input in [&stream.bytes[..], stream.base64().as_bytes(), &stream.zlib(), text.as_bytes()] {
            let read = read(input);
            prop_assert_eq!(&read.faults, &[]);
            let mut found: Vec<Vec<(u16, u64, i64)>> = vec![Vec::new(); cpus.len()];
            for record in read.records.iter().filter(|it| (512..1024).contains(&it.event.0)) {
                found[usize::from(record.cpu)].push((record.event.0 - 512, record.data, record.time));
            }
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(expected) {
                    prop_assert_eq!((found.0, found.1), (expected.0, expected.1));
                    // The uptime itself is in units of 2^-32 s, rounded down.
                    prop_assert!((found.2 - expected.2).abs() <= 1, "{:?} {:?}", found, expected);
                }
            }
        }
        let mut fuzzed = vec![cut as u8];
        fuzzed.extend(&stream.bytes);
        kymo_rtems_record::fuzz(&fuzzed);
    }

    #[test]
    fn damage_of_any_kind_ends_with_a_message_or_records(
        place in 0..2_000_usize, value in any::<u8>(), cut in 0..2_000_usize, form in 0..4_u8,
    ) {
        let mut stream = Stream::new(LAYOUTS[0], 10, 2, 64, MHZ);
        for round in 0..20 {
            for cpu in 0..2 {
                stream.processor(cpu).uptime(round * 1_000).item(round * 1_000 + 7, USER, round);
            }
        }
        let mut bytes = match form {
            0 => stream.bytes,
            1 => stream.base64().into_bytes(),
            2 => stream.zlib(),
            _ => stream.log(true, "x ").into_bytes(),
        };
        bytes.truncate(bytes.len() - cut % bytes.len());
        let place = place % bytes.len();
        bytes[place] ^= value;
        bytes.insert(0, value);
        kymo_rtems_record::fuzz(&bytes);
    }
}

/// The target's item about a loss has no time. Behind the loss, it would end it at the last time in front of it.
#[test]
fn a_later_loss_with_no_pair_behind_it_lasts_until_the_next_time() {
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, MHZ);
    stream.processor(0).uptime(1_000).item(1_001, USER, 1);
    for (at, data) in [(1_050, 2), (1_100, 3), (1_150, 4)] {
        stream.processor(0).overflow(4).item(at, USER, data);
    }
    let read = read(&stream.bytes);
    let mut behind = Vec::new();
    for (loss, next) in read.records.iter().zip(read.records.iter().skip(1)) {
        if loss.event == EventId::PER_CPU_OVERFLOW && !loss.is_item {
            behind.push((loss.time, next.event, next.time));
        }
    }
    let uncertain = (1_001_000, EventId::UNRELIABLE_TIME, 1_050_000);
    let later = [
        (1_050_000, EventId(512), 1_100_000),
        (1_100_000, EventId(512), 1_150_000),
    ];
    assert_eq!(behind, [&[uncertain], &later[..]].concat());
}

#[test]
fn a_loss_with_no_pair_behind_it_goes_on_from_the_last_time() {
    let start = 100 * MHZ;
    for cpus in [1, 4] {
        for later in [100_000, 500_000, 790_000, 2_000_000, 4_000_000_u64] {
            let mut stream = Stream::new(LAYOUTS[0], 10, cpus, 64, 100 * MHZ);
            stream.processor(0).uptime(start);
            for cpu in 0..cpus {
                stream.processor(cpu).overflow(986);
                for step in 0..200 {
                    stream.item(start + later + 1_000 * step + cpu, USER, step);
                }
            }
            let read = read(&stream.bytes);
            for (cpu, time, step) in user(&read) {
                let counter = start + later + 1_000 * step + u64::from(cpu);
                assert_eq!(time, counter as i64 * 10, "CPU {cpu} of {cpus}, {later}");
            }
        }
    }
}
