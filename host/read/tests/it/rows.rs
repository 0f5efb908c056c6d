//! Comparison of the decoder that creates rows directly from bytes with the decoder for CTF.

use std::path::Path;

use kymo_event::{Event, EventKind, TraceInfo, Wanted};
use kymo_fixtures::names::reported;
use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, identity, layouts, random_op, small};
use kymo_read::kymo::{Dump, open_dump, write_raw};
use kymo_read::{Events, OpenOptions, Source, open};
use kymo_wire::event::{Layout, PacketHeader};
use kymo_wire::link::Identity;
use proptest::prelude::*;

/// A source's description and its events, without names and items, which both decoders read in the same way.
struct Read {
    info: TraceInfo,
    events: Vec<Event>,
}

fn read(mut source: Box<dyn Source>) -> Read {
    let mut events: Vec<Event> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info = source.info().clone();
    events.retain(|event| {
        let stream = &info.streams[event.stream.0 as usize];
        !stream.timeless && !stream.without_calls
    });
    let sorted = events.is_sorted_by_key(|event| event.time);
    assert!(sorted || !info.in_order, "it said that it is in order");
    Read { info, events }
}

impl Read {
    /// The damage that was found.
    fn damage(&self) -> Vec<(&str, u64, &str)> {
        let damage = self.info.damage.iter();
        let mut damage: Vec<_> = damage
            .map(|damage| (&*damage.stream, damage.offset, &*damage.message))
            .collect();
        damage.sort();
        damage
    }

    fn streams(&self) -> Vec<String> {
        let streams = self.info.streams.iter();
        streams
            .map(|stream| format!("{} {:?} {:?}", stream.name, stream.start, stream.end))
            .collect()
    }
}

/// Reduces a complete event to the properties that are read with `wanted`.
fn wanted_of(whole: &Event, wanted: Wanted, row: &Event) -> Event {
    let mut event = whole.clone();
    // For an exit or handler end without a function or interrupt, the row does not contain it: only nesting determines
    // it.
    match (&mut event.kind, &row.kind) {
        (EventKind::Exit { function }, _) if !whole.named => *function = None,
        (EventKind::IsrExit { irq }, EventKind::IsrExit { irq: None }) => *irq = None,
        _ => {}
    }
    let is_common = matches!(
        event.kind,
        EventKind::Enter { .. }
            | EventKind::Exit { .. }
            | EventKind::SwitchedIn
            | EventKind::SwitchedOut
            | EventKind::IsrEnter { .. }
            | EventKind::IsrExit { .. }
    );
    if is_common {
        event.name = "".into();
        event.fields.clear();
    }
    if wanted == Wanted::Meaning {
        // The row may contain more than was requested.
        event.name = row.name.clone();
        event.fields.clone_from(&row.fields);
    }
    event
}

/// Reads the same input with both decoders, and compares the results. Returns the number of events.
fn agree(open: &dyn Fn(&OpenOptions) -> Box<dyn Source>) -> usize {
    let with = |wanted| {
        let options = OpenOptions {
            wanted,
            ..OpenOptions::default()
        };
        read(open(&options))
    };
    let whole = with(Wanted::Everything);
    for wanted in [Wanted::Meaning, Wanted::Details] {
        let rows = with(wanted);
        for (at, (row, event)) in rows.events.iter().zip(&whole.events).enumerate() {
            let event = wanted_of(event, wanted, row);
            assert_eq!(
                reported(&rows.info, row),
                reported(&whole.info, &event),
                "{wanted:?}, event {at}"
            );
        }
        assert_eq!(rows.events.len(), whole.events.len());
        assert_eq!(rows.damage(), whole.damage());
        assert_eq!(rows.streams(), whole.streams());
    }
    whole.events.len()
}

/// The clock of a Cortex-M, and that of a processor with more than one tick per nanosecond.
const CLOCKS: [u64; 2] = [25_000_000, 2_593_991_000];

/// The number of events with each clock. Damage may shift packets so that only one of the clocks has a time in 64 bits,
/// and so lead to different gaps.
fn dump(layout: Layout, bytes: &[u8], missing: &[std::ops::Range<u64>]) -> [usize; 2] {
    CLOCKS.map(|clock_hz| {
        let identity = Identity {
            clock_hz,
            ..identity(layout)
        };
        agree(&|options| open_dump(&identity, bytes.to_vec(), missing, "test", options).unwrap())
    })
}

#[test]
fn a_recording_in_every_layout() {
    for layout in layouts() {
        let (bytes, count) = small(layout);
        // All events but the three names.
        let events = dump(layout, &bytes, &[]).map(|events| events as u64);
        assert_eq!(events, [count - 3; 2]);
    }
}

/// Several streams of random events, with losses reported in their packets.
fn streams(layout: Layout) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let flags = prop_oneof![
        Just(0),
        Just(PacketHeader::FLAG_THREAD),
        Just(PacketHeader::FLAG_CUT)
    ];
    let ops = prop::collection::vec(random_op(layout), 1..120);
    let stream = (
        ops,
        flags,
        0..3u8,
        prop::collection::vec(any::<bool>(), 120),
    );
    let number = 0..4u16;
    prop::collection::vec((number, stream), 1..4).prop_map(move |streams| {
        let mut packets = Vec::new();
        for (number, (ops, flags, depth, lost)) in streams {
            let mut encoder = Encoder::new(layout, number, 0x40);
            encoder.flags = flags;
            encoder.isr_depth = depth;
            let mut ticks = 0;
            for ((after, op), lost) in ops.iter().zip(lost) {
                ticks += after;
                encoder.record(ticks, op);
                encoder.discarded += u32::from(lost);
            }
            encoder.close();
            packets.extend(encoder.packets);
        }
        packets
    })
}

/// Kind of damage: changed, removed, inserted or zeroed bytes, or a missing range.
#[derive(Clone, Debug)]
enum Harm {
    Change(u8),
    Remove(usize),
    Insert(Vec<u8>),
    Zero(usize),
    Missing(usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        3 => any::<u8>().prop_map(Harm::Change),
        2 => (1..300usize).prop_map(Harm::Remove),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Harm::Insert),
        2 => (1..60usize).prop_map(Harm::Zero),
        1 => (1..200usize).prop_map(Harm::Missing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn random_streams_whole_and_damaged(
        (layout, packets) in prop::sample::select(layouts())
            .prop_flat_map(|layout| (Just(layout), streams(layout))),
        // Order of the packets; one in 20 is removed.
        order in prop::collection::vec((any::<u16>(), 0..20u8), 200),
        harms in prop::collection::vec((any::<prop::sample::Index>(), harm()), 0..4),
    ) {
        let mut packets: Vec<_> = packets.into_iter().zip(order).collect();
        packets.retain(|(_, (_, fate))| *fate > 0);
        // Usually in recorded order, one stream after the other; sometimes mixed.
        if packets.iter().any(|(_, (_, fate))| *fate == 1) {
            packets.sort_by_key(|(_, (key, _))| *key);
        }
        let mut bytes: Vec<u8> = packets.into_iter().flat_map(|(packet, _)| packet).collect();
        let mut missing = Vec::new();
        for (at, harm) in harms {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            let upto = |count: usize| (at + count).min(bytes.len());
            match harm {
                Harm::Change(value) => bytes[at] = value,
                Harm::Remove(count) => drop(bytes.drain(at..upto(count))),
                Harm::Insert(new) => drop(bytes.splice(at..at, new)),
                Harm::Zero(count) => {
                    let to = upto(count);
                    bytes[at..to].fill(0);
                }
                Harm::Missing(count) => missing.push(at as u64..upto(count) as u64),
            }
        }
        dump(layout, &bytes, &missing);
    }
}

/// Holes of zeros that begin within a record, and records that end with zeros anyway.
#[test]
fn holes_that_begin_inside_of_a_record() {
    // Layouts with both shapes and both byte orders.
    for layout in layouts()
        .into_iter()
        .skip(1)
        .step_by(4)
        .chain(layouts().into_iter().step_by(6))
    {
        let mut stream = Encoder::new(layout, 0, 1);
        stream.packet_bytes = 400;
        for n in 0..30u32 {
            stream.record(u64::from(n) * 3, &Op::Enter(n % 7));
            stream.record(u64::from(n) * 3 + 1, &Op::Exit(n % 7));
            stream.record(u64::from(n) * 3 + 2, &Op::Marker(n << 8));
        }
        let bytes = stream.bytes();
        for from in 60..75 {
            for length in [11, 12, 13] {
                let mut holed = bytes.clone();
                holed[from..from + length].fill(0);
                assert!(dump(layout, &holed, &[]).iter().all(|events| *events > 0));
            }
        }
    }
}

#[test]
fn reading_ahead_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let (bytes, _) = small(CORTEX_M);
    let dump = Dump {
        identity: &identity(CORTEX_M),
        bytes: &bytes,
        missing: &[],
        target: "test",
    };
    write_raw(std::fs::File::create(&path).unwrap(), &dump).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - 30).unwrap();
    for wanted in [Wanted::Meaning, Wanted::Everything] {
        let [direct, ahead] = [1, 2].map(|threads| {
            let options = OpenOptions {
                wanted,
                threads,
                ..OpenOptions::default()
            };
            let mut source = open(&path, &options).unwrap();
            let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
            (events, source.info().clone())
        });
        assert!(direct == ahead, "{wanted:?}");
        assert_eq!(direct.1.damage.len(), 1);
    }
}

/// The recordings in this checkout, and those of its last demonstration.
#[test]
fn recordings_of_targets() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = 0;
    for place in ["target/demo", "host/cli/tests/data"] {
        found += recordings_below(&root.join(place), 3);
    }
    if found < 1_000 {
        kymo_fixtures::skipped("no recordings of Kymo's beside the checkout");
    }
}

/// Reads the recordings below a folder with both decoders, and returns the number of events.
fn recordings_below(folder: &Path, depth: u32) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let mut found = 0;
    for path in entries.map(|entry| entry.unwrap().path()) {
        let is_recording =
            open(&path, &OpenOptions::default()).is_ok_and(|source| source.info().format == "kymo");
        if is_recording {
            found += agree(&|options| open(&path, options).unwrap());
        } else if path.is_dir() && depth > 0 {
            found += recordings_below(&path, depth - 1);
        }
    }
    found
}
