//! Losses and damage: all intact events are read, and all others are reported with position and size.

use kymo_event::{Duration, Event, EventKind, Gap, Wanted};
use kymo_fixtures::recorder::{
    CORTEX_M, Encoder, Op, events, every_way, identity, layouts, small, ten_packets,
};
use kymo_read::kymo::{Dump, Program, open_dump, write_raw, write_trace};
use kymo_read::{OpenOptions, Source, Summary, open};
use proptest::prelude::*;

/// The gaps of a source, with their stream and the number of preceding events.
fn gaps(source: &mut dyn Source) -> Vec<(u32, usize, Gap)> {
    let mut before = std::collections::HashMap::<u32, usize>::new();
    let mut gaps = Vec::new();
    for event in events(source) {
        let before = before.entry(event.stream.0).or_default();
        match event.kind {
            EventKind::Gap(gap) if !event.record => gaps.push((event.stream.0, *before, gap)),
            _ => *before += 1,
        }
    }
    gaps
}

#[test]
fn losses_have_their_place_and_size() {
    let packets = ten_packets().packets;
    let dump = |indices: &[usize]| -> Vec<u8> {
        indices
            .iter()
            .flat_map(|index| packets[*index].clone())
            .collect()
    };
    every_way(CORTEX_M, &dump(&[3, 4, 7]), &mut |source| {
        assert_eq!(
            gaps(source),
            [
                (0, 0, Gap::Overwritten { packets: 3 }),
                (0, 16, Gap::LostPackets { packets: Some(2) }),
            ]
        );
    });
    // The recording was cleared in between, so sequence numbers restart.
    every_way(CORTEX_M, &dump(&[0, 1, 0]), &mut |source| {
        assert_eq!(
            gaps(source),
            [
                (0, 16, Gap::LostPackets { packets: None }),
                (
                    0,
                    16,
                    Gap::TimeBackward {
                        by: Duration(1007 * 40)
                    }
                ),
            ]
        );
    });
}

#[test]
fn discarded_events_stand_before_the_packet_that_tells_of_them_but_for_the_last() {
    let mut stream = Encoder::new(CORTEX_M, 0, 1);
    for (packet, discarded) in [5, 5, 12, 12, 20].into_iter().enumerate() {
        stream.record(packet as u64, &Op::Enter(1));
        stream.discarded = discarded;
        stream.close();
    }
    every_way(CORTEX_M, &stream.bytes(), &mut |source| {
        let lost = |events| Gap::Discarded {
            events: Some(events),
        };
        assert_eq!(
            gaps(source),
            [(0, 0, lost(5)), (0, 2, lost(7)), (0, 5, lost(8))]
        );
    });
}

#[test]
fn interrupts_that_are_served_behind_a_loss_are_told() {
    let mut stream = Encoder::new(CORTEX_M, 0, 1);
    for (packet, depth) in [2, 1, 0, 1].into_iter().enumerate() {
        stream.isr_depth = depth;
        stream.record(25 * packet as u64, &Op::Enter(1));
        stream.close();
    }
    let inside = |depth| Gap::InInterrupt { depth };
    let lost = |packets| Gap::LostPackets {
        packets: Some(packets),
    };
    // Without a loss the entries of the interrupts are in the trace.
    for (kept, wanted) in [
        (&[0, 1, 2, 3][..], vec![]),
        (
            &[1, 3],
            vec![
                (0, 0, Gap::Overwritten { packets: 1 }),
                (0, 0, inside(1)),
                (0, 1, lost(1)),
                (0, 1, inside(1)),
            ],
        ),
        (&[0, 2], vec![(0, 1, lost(1))]),
    ] {
        let bytes: Vec<u8> = kept
            .iter()
            .flat_map(|i| stream.packets[*i].clone())
            .collect();
        every_way(CORTEX_M, &bytes, &mut |source| {
            assert_eq!(gaps(source), wanted, "{kept:?}");
        });
    }
    let bytes = [&stream.packets[1][..], &stream.packets[3]].concat();
    every_way(CORTEX_M, &bytes, &mut |source| {
        let times: Vec<_> = kymo_fixtures::recorder::events(source)
            .iter()
            .map(|event| event.time.0)
            .collect();
        assert_eq!(times, [1000, 1000, 1000, 1000, 3000, 3000]);
    });
}

#[test]
fn damage_in_the_middle_costs_only_what_is_damaged() {
    let packets = ten_packets().packets;
    let size = packets[0].len();
    let whole = packets.concat();
    let read = |bytes: Vec<u8>, missing: &[std::ops::Range<u64>]| {
        let identity = identity(CORTEX_M);
        let mut source =
            open_dump(&identity, bytes, missing, "test", &OpenOptions::default()).unwrap();
        let gaps = gaps(&mut *source);
        let mut source = source.info().damage.clone();
        (
            gaps,
            source.pop().map(|damage| (damage.offset, damage.message)),
        )
    };
    // A wrong magic number.
    let mut bytes = whole.clone();
    bytes[size * 2] ^= 0xFF;
    let (found, listed) = read(bytes, &[]);
    let message = "expected a packet's magic number [c1, 1f, fc, c1], found [3e, 1f, fc, c1]";
    let damage = Gap::Damage {
        offset: 2 * size as u64,
        bytes: Some(size as u64),
        message: message.to_owned(),
    };
    assert_eq!(
        found,
        [
            (0, 16, damage),
            (0, 16, Gap::LostPackets { packets: Some(1) })
        ]
    );
    assert_eq!(listed, Some((2 * size as u64, message.to_owned())));
    // A reported hole: the header and three events of packet 2, and the end of packet 4 remain.
    let start = size * 2 + 44 + 11;
    let end = size * 4 + 10;
    let (found, _) = read(
        whole.clone(),
        std::slice::from_ref(&(start as u64..end as u64)),
    );
    let hole = size * 2 + 44 + 9;
    let damage = Gap::Damage {
        offset: hole as u64,
        bytes: Some((size * 5 - hole) as u64),
        message: "these bytes never arrived".to_owned(),
    };
    let lost = Gap::LostPackets { packets: Some(2) };
    assert_eq!(found, [(0, 16 + 3, damage), (0, 16 + 3, lost)]);
    // The same hole, not reported: zeros.
    let mut bytes = whole.clone();
    bytes[start..end].fill(0);
    let (found, _) = read(bytes, &[]);
    assert!((16..=16 + 3).contains(&found[0].1), "{found:?}");
    assert_eq!(
        found.last().unwrap().2,
        Gap::LostPackets { packets: Some(2) }
    );
    // The bytes are removed: the next packet begins within packet 2, of which any bytes may be missing.
    let mut bytes = whole.clone();
    bytes.drain(start..size * 5);
    let (found, _) = read(bytes, &[]);
    assert_eq!(found[0].1, 16, "{found:?}");
    // A size larger than any memory.
    let mut bytes = whole;
    bytes[size * 9 + 36..size * 9 + 40].copy_from_slice(&0xFFFF_FFF8u32.to_le_bytes());
    let (found, listed) = read(bytes, &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1, 80, "the events that are there are given");
    assert_eq!(
        listed.unwrap().1,
        format!(
            "expected a packet of 536870911 bytes, found the first {size}: the last {} are missing",
            536_870_911 - size
        )
    );
}

/// A wrong byte is detected some records later or not at all. The events in between may be of functions that never ran.
#[test]
fn no_event_is_taken_out_of_a_packet_that_is_found_to_be_damaged() {
    let mut stream = Encoder::new(CORTEX_M, 0, 1);
    let mut firsts = Vec::new();
    for packet in 0..3 {
        firsts.push(stream.truth.len());
        for round in 0..6 {
            let ticks = packet * 10_000 + round * 100;
            stream.record(ticks, &Op::Enter(round as u32 * 7));
            stream.record(ticks + 10, &Op::Exit(round as u32 * 7));
            stream.record(ticks + 20, &Op::SwitchedOut);
            stream.record(ticks + 30, &Op::SwitchedIn(0x40));
        }
        stream.close();
    }
    let in_packet = stream.truth.len() - firsts[2];
    let (size, whole) = (stream.packets[0].len(), stream.packets.concat());
    let read = |bytes: &[u8], wanted| {
        let options = OpenOptions {
            wanted,
            ..OpenOptions::default()
        };
        let identity = identity(CORTEX_M);
        let mut source = open_dump(&identity, bytes.to_vec(), &[], "test", &options).unwrap();
        let mut events = events(&mut *source);
        events.retain(|event| event.record);
        let damage = source.info().damage.clone();
        let reported = |event: &Event| format!("{} {:?}", event.time.0, event.kind);
        (events.iter().map(reported).collect::<Vec<_>>(), damage)
    };
    for wanted in [Wanted::Meaning, Wanted::Everything] {
        let (mut truth, none) = read(&whole, wanted);
        assert_eq!((truth.len(), none.len()), (3 * in_packet, 0));
        truth.drain(firsts[1]..firsts[2]);
        let mut found = 0;
        for at in size + 44..2 * size {
            for bit in 0..8 {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let (events, damage) = read(&bytes, wanted);
                if let [damage] = &damage[..] {
                    found += 1;
                    assert_eq!(events, truth, "{at} {bit}");
                    assert_eq!(damage.offset, size as u64 + 44);
                    let message = &damage.message;
                    assert!(
                        message.ends_with("no event of this packet is used"),
                        "{message}"
                    );
                } else {
                    // The damaged record is also a valid one.
                    assert_eq!(damage.len(), 0);
                }
            }
        }
        assert!(found > 100, "{found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any damage: no panic, the reading ends, and omitted bytes are reported.
    #[test]
    fn damage_is_told_and_never_fatal(
        layout in prop::sample::select(layouts()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
        hole in any::<(prop::sample::Index, u8)>(),
    ) {
        let (mut bytes, events) = small(layout);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let start = hole.0.index(bytes.len());
        let end = bytes.len().min(start + usize::from(hole.1));
        bytes[start..end].fill(0);
        let cut = cut.index(bytes.len()) + 1;
        bytes.truncate(cut);
        let identity = identity(layout);
        let options = OpenOptions::default();
        let mut source = open_dump(&identity, bytes.clone(), &[], "test", &options).unwrap();
        let summary = Summary::of(&mut *source);
        // Damage can split one long record into several short ones, but no more than fit into it.
        prop_assert!(summary.events <= events * 16);
        // A stored copy contains the same events and no damage.
        let dump = Dump { identity: &identity, bytes: &bytes, missing: &[], target: "test" };
        let mut raw = Vec::new();
        let written = write_raw(&mut raw, &dump).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw");
        std::fs::write(&path, &raw).unwrap();
        let again = Summary::of(&mut *open(&path, &options).unwrap());
        prop_assert_eq!(again.events, summary.events);
        prop_assert_eq!(&again.errors, &[]);
        prop_assert_eq!(written.damage.is_empty(), summary.errors.is_empty());
        write_trace(&folder.path().join("trace"), &dump, &Program::default()).unwrap();
        let again = Summary::of(&mut *open(&folder.path().join("trace"), &options).unwrap());
        prop_assert_eq!(again.events, summary.events);
        prop_assert_eq!(&again.errors, &[]);
    }
}
