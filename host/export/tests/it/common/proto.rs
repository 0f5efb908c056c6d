//! Decoder of Perfetto's protobuf with the rules of `trace_processor`. Its field numbers are from the `.proto` files,
//! not from the crate under test.

use std::collections::{BTreeMap, HashMap};

use super::timeline::{Entry, Timeline, What};

/// A field's value.
#[derive(Clone, Copy, Debug)]
enum Field<'a> {
    Number(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
#[derive(Clone, Debug, Default)]
struct Message<'a>(Vec<(u64, Field<'a>)>);

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a varint is cut");
        *bytes = rest;
        value |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint is too long");
}

impl<'a> Message<'a> {
    fn parse(mut bytes: &'a [u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let value = match tag & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => {
                    let (value, rest) = bytes.split_first_chunk().unwrap();
                    bytes = rest;
                    Field::Fixed(u64::from_le_bytes(*value))
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (inner, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(inner)
                }
                other => panic!("wire type {other}"),
            };
            fields.push((tag >> 3, value));
        }
        Self(fields)
    }

    fn number(&self, field: u64) -> Option<u64> {
        self.0.iter().rev().find_map(|entry| match entry {
            (number, Field::Number(value)) if *number == field => Some(*value),
            _ => None,
        })
    }

    fn real(&self, field: u64) -> Option<f64> {
        self.0.iter().rev().find_map(|entry| match entry {
            (number, Field::Fixed(value)) if *number == field => Some(f64::from_bits(*value)),
            _ => None,
        })
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter_map(move |entry| match entry {
            (number, Field::Bytes(value)) if *number == field => Some(*value),
            _ => None,
        })
    }

    fn message(&self, field: u64) -> Option<Message<'a>> {
        self.all(field).last().map(Message::parse)
    }

    fn text(&self, field: u64) -> Option<String> {
        let bytes = self.all(field).last()?;
        Some(String::from_utf8(bytes.to_vec()).expect("a string is UTF-8"))
    }
}

/// A state of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    pub time: i64,
    pub cpu: u64,
    pub name: String,
    pub tid: u64,
    /// 3 is running, 6 stopped.
    pub state: u64,
}

/// The content of a file.
#[derive(Debug, Default)]
pub struct Perfetto {
    pub timeline: Timeline,
    pub states: Vec<TaskState>,
    /// The names of threads, by `tid`.
    pub threads: BTreeMap<u64, String>,
    /// Number of reports of dropped packets in each sequence, by the name of its track.
    pub dropped: BTreeMap<String, u64>,
}

/// The state of a packet sequence.
#[derive(Default)]
struct Sequence {
    valid: bool,
    clock: Option<u64>,
    default_clock: u64,
    default_track: u64,
    names: HashMap<u64, String>,
    sources: HashMap<u64, String>,
}

/// Reads a file with the rules of `trace_processor`: a reference to missing state fails.
pub fn read(bytes: &[u8]) -> Perfetto {
    let mut perfetto = Perfetto::default();
    let mut sequences: HashMap<u64, Sequence> = HashMap::new();
    let mut dropped: BTreeMap<u64, u64> = BTreeMap::new();
    for packet in Message::parse(bytes).all(1) {
        let packet = Message::parse(packet);
        let id = packet.number(10).expect("trusted_packet_sequence_id");
        let new = !sequences.contains_key(&id);
        assert_eq!(packet.number(87).is_some(), new, "first_packet_on_sequence");
        let sequence = sequences.entry(id).or_default();
        let flags = packet.number(13).unwrap_or(0);
        let lost = packet.number(42).unwrap_or(0);
        if lost != 0 {
            assert_eq!(lost & 1, 1, "DATA_LOSS_PRESENT");
            *dropped.entry(id).or_default() += 1;
        }
        if flags & 1 != 0 {
            *sequence = Sequence {
                valid: true,
                ..Sequence::default()
            };
        } else if lost != 0 {
            sequence.valid = false;
        }
        if let Some(defaults) = packet.message(59) {
            sequence.default_clock = defaults.number(58).unwrap_or(0);
            sequence.default_track = defaults.message(11).and_then(|d| d.number(11)).unwrap_or(0);
        }
        for entry in packet.message(12).iter().flat_map(|data| data.all(2)) {
            let entry = Message::parse(entry);
            let iid = entry.number(1).unwrap();
            assert_ne!(iid, 0);
            let old = sequence.names.insert(iid, entry.text(2).unwrap());
            assert_eq!(old, None, "a name is interned once");
        }
        for entry in packet.message(12).iter().flat_map(|data| data.all(4)) {
            let entry = Message::parse(entry);
            let iid = entry.number(1).unwrap();
            assert_eq!(entry.text(3), sequence.names.get(&iid).cloned());
            let source = format!("{}:{}", entry.text(2).unwrap(), entry.number(4).unwrap());
            let old = sequence.sources.insert(iid, source);
            assert_eq!(old, None, "a source is interned once");
        }
        if let Some(snapshot) = packet.message(6) {
            let clocks: Vec<Message<'_>> = snapshot.all(1).map(Message::parse).collect();
            let time = |id| {
                let clock = clocks.iter().find(|clock| clock.number(1) == Some(id));
                clock.and_then(|clock| clock.number(2)).unwrap()
            };
            assert_eq!(time(6), time(64), "both clocks begin together");
            sequence.clock = Some(time(64));
            assert!(
                packet.message(11).is_none(),
                "the reader stops at a snapshot"
            );
        }
        if let Some(track) = packet.message(60) {
            describe(&mut perfetto, &track);
        }
        let event = packet.message(11);
        let state = packet.message(117);
        if event.is_none() && state.is_none() {
            continue;
        }
        // A packet that adds interned names must declare that it needs the incremental state.
        if packet.message(12).is_some() {
            assert_eq!(flags & 2, 2, "SEQ_NEEDS_INCREMENTAL_STATE");
        }
        assert!(sequence.valid, "state is needed and was lost");
        assert_eq!(sequence.default_clock, 64);
        let clock = sequence.clock.as_mut().expect("a clock");
        *clock += packet.number(8).expect("timestamp");
        let time = i64::try_from(*clock).unwrap();
        if let Some(event) = event {
            let track = event.number(11).unwrap_or(sequence.default_track);
            let row = perfetto.timeline.rows.get_mut(&track);
            let entry = entry(&event, time, sequence);
            row.expect("a track is described before it is used")
                .entries
                .push(entry);
        }
        if let Some(state) = state {
            perfetto.states.push(TaskState {
                time,
                cpu: state.number(1).unwrap(),
                name: state.text(2).unwrap(),
                tid: state.number(3).unwrap(),
                state: state.number(4).unwrap(),
            });
        }
    }
    for (track, count) in dropped {
        let name = perfetto.timeline.rows[&track].name.clone();
        perfetto.dropped.insert(name, count);
    }
    perfetto
}

fn describe(perfetto: &mut Perfetto, track: &Message<'_>) {
    let uuid = track.number(1).expect("uuid");
    let mut process = String::new();
    let name = if let Some(described) = track.message(3) {
        let (pid, name) = (described.number(1).unwrap(), described.text(6).unwrap());
        let old = perfetto.timeline.processes.insert(pid, name.clone());
        assert_eq!(old, None, "a process is described once");
        format!("process {name}")
    } else if let Some(thread) = track.message(4) {
        let pid = thread.number(1).expect("pid");
        process.clone_from(&perfetto.timeline.processes[&pid]);
        let name = thread.text(5).unwrap();
        perfetto
            .threads
            .insert(thread.number(2).unwrap(), name.clone());
        name
    } else {
        let parent = &perfetto.timeline.rows[&track.number(5).expect("a parent")].name;
        process = parent
            .strip_prefix("process ")
            .expect("a process")
            .to_owned();
        assert_eq!(track.number(15), Some(2), "SIBLING_MERGE_BEHAVIOR_NONE");
        let kind = if track.message(8).is_some() {
            "counter "
        } else {
            ""
        };
        kind.to_owned() + &track.text(2).unwrap()
    };
    let row = perfetto.timeline.rows.entry(uuid).or_default();
    (row.name, row.process) = (name, process);
}

fn entry(event: &Message<'_>, time: i64, sequence: &Sequence) -> Entry {
    let name = || match (event.number(10), event.text(23)) {
        (Some(iid), None) => sequence.names[&iid].clone(),
        (None, Some(name)) => name,
        other => panic!("one name, not {other:?}"),
    };
    let what = match event.number(9) {
        Some(1) => What::Begin(name()),
        Some(2) => What::End,
        Some(3) => What::Instant(name()),
        Some(4) => What::Counter(match event.number(30) {
            Some(value) => value.cast_signed().to_string(),
            None => event.real(44).expect("a value").to_string(),
        }),
        other => panic!("type {other:?}"),
    };
    let notes = event.all(4).map(|annotation| {
        let annotation = Message::parse(annotation);
        let value = annotation.text(6).or_else(|| {
            let number = [2, 3, 4, 7].into_iter().find_map(|f| annotation.number(f));
            number.map(|number| number.to_string())
        });
        (annotation.text(10).unwrap(), value.unwrap())
    });
    let source = event.number(34).map(|iid| sequence.sources[&iid].clone());
    let source = source.map(|source| ("source".to_owned(), source));
    Entry {
        time,
        what,
        notes: notes.chain(source).collect(),
    }
}
