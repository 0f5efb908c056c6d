//! Conversion of dumps' records to events.

use std::collections::{BTreeMap, VecDeque};

use kymo_event::{
    Addr, Batch, Cpu, Duration, Event, EventKind, Field, Gap, Identities, Space, SpaceId, StreamId,
    StreamInfo, Tid, Time, TraceInfo, Value, Wanted,
};
use kymo_zephyr_instrumentation::{Entry, Kind, Layout, Piece, Position, Record, RecordType, Walk};

use super::dump::Dump;
use super::profile;
use crate::bytes::Bytes;
use crate::{OpenOptions, ReadError, Source};

/// Stream of trace records.
const TRACE: StreamId = StreamId(0);

/// Stream of profile entries, if there are any.
const PROFILE: StreamId = StreamId(1);

/// Largest number of named threads. In the remains of a broken file every record may have another thread.
const NAMES: usize = 1 << 16;

/// Message for a dump without an end mark.
pub(super) const NO_END: &str =
    "the dump breaks off: expected the mark -*-! behind the last record";

/// Message for a dump without a begin mark.
const NO_BEGIN: &str = "expected the mark -*-# before the first record: others may be missing, too";

/// Returns the message for bytes that are not a record.
pub(super) fn no_record(layout: &Layout, bytes: usize) -> String {
    let kind = match layout.kind() {
        Kind::Trace => "a record",
        Kind::Profile => "an entry of a profile",
    };
    format!(
        "expected {kind} of {} bytes, found {bytes} bytes that are none",
        layout.size()
    )
}

/// Returns the message for bytes that are neither a dump nor text.
pub(super) fn neither(bytes: usize) -> String {
    format!("expected a dump or a console's text, found {bytes} bytes that are neither")
}

/// Counts of functions with odd and even addresses. All Thumb functions have odd ones, but lost or damaged bytes can
/// change the address in a record, so the majority decides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Functions {
    odd: u64,
    even: u64,
}

impl Functions {
    pub fn add(&mut self, function: u64) {
        match function & 1 {
            1 => self.odd += 1,
            _ => self.even += 1,
        }
    }

    /// Returns the mask for addresses, without the Thumb bit if there is one.
    pub const fn mask(&self) -> u64 {
        if self.odd > self.even { !1 } else { !0 }
    }
}

/// Source of the dumps in a file.
pub(super) struct DumpSource {
    info: TraceInfo,
    bytes: Bytes,
    /// Where in the input these begin.
    offset: usize,
    dumps: Vec<Dump>,
    /// Whether earlier input had a dump of a trace: events may be missing before the next such dump.
    has_trace_before: bool,
    functions: Functions,
    /// Which dump is being read, and up to where in it.
    dump: usize,
    position: Position,
    /// Time of the last trace record.
    last: Option<Time>,
    /// Mask for addresses, without the Thumb bit if functions have it.
    mask: u64,
    ready: VecDeque<Event>,
    space: SpaceId,
    wanted: Wanted,
}

impl DumpSource {
    /// A source that has [no dumps yet](Self::add).
    pub fn new(name: &str, options: &OpenOptions) -> Self {
        let mut identities = Identities::default();
        let space = identities.add_space(Space::default());
        let stream = StreamInfo {
            name: name.to_owned(),
            space,
            ..StreamInfo::default()
        };
        Self {
            info: TraceInfo {
                format: super::FORMAT.to_owned(),
                streams: vec![stream],
                identities,
                ..TraceInfo::default()
            },
            bytes: Bytes::from(Vec::new()),
            offset: 0,
            dumps: Vec::new(),
            has_trace_before: false,
            functions: Functions::default(),
            dump: 0,
            position: Position::default(),
            last: None,
            mask: !0,
            ready: VecDeque::new(),
            space,
            wanted: options.wanted,
        }
    }

    /// Adds dumps, when those before have been read, in bytes that begin at an offset of the input. Reads all their
    /// records once, for the names of threads and the kind of code.
    pub fn add(&mut self, bytes: Bytes, offset: usize, dumps: Vec<Dump>) {
        let mut names: BTreeMap<u64, &[u8]> = BTreeMap::new();
        let functions = &mut self.functions;
        let last = self.last.map_or(0, |last| last.0.unsigned_abs());
        let (mut last, mut steps_back) = (last, false);
        for dump in &dumps {
            let body = bytes.get(dump.begin..dump.end).unwrap_or_default();
            let Some(layout) = dump.layout else { continue };
            for piece in Walk::new(body, layout) {
                let Piece::Record { bytes, .. } = piece else {
                    continue;
                };
                if let Some(entry) = layout.entry(bytes) {
                    functions.add(entry.function);
                }
                let Some(record) = layout.record(bytes) else {
                    continue;
                };
                functions.add(record.callee);
                steps_back |= record.time_ns < last;
                last = record.time_ns;
                // The last name is used: a thread is recorded before it gets one.
                if record.thread != 0
                    && !record.name.is_empty()
                    && (names.len() < NAMES || names.contains_key(&record.thread))
                {
                    names.insert(record.thread, record.name);
                }
            }
        }
        for (thread, name) in names {
            let identities = &mut self.info.identities;
            let thread = identities.thread(self.space, Tid(thread));
            identities.name_thread(thread, &super::name_text(name));
        }
        let has = |kind| dumps.iter().any(|dump| dump.kind() == Some(kind));
        let streams = &mut self.info.streams;
        if has(Kind::Profile)
            && let [trace] = streams.as_slice()
        {
            streams.push(StreamInfo {
                name: format!("{} (profile)", trace.name),
                space: self.space,
                timeless: true,
                ..StreamInfo::default()
            });
        }
        self.info.steps_back |= steps_back;
        self.mask = functions.mask();
        if has(Kind::Trace) && std::mem::take(&mut self.has_trace_before) {
            self.gap(TRACE, Gap::Discarded { events: None });
        }
        (self.bytes, self.offset, self.dumps) = (bytes, offset, dumps);
        (self.dump, self.position) = (0, Position::default());
        self.begin_dump();
    }

    /// Reports the loss before the first record of a dump.
    fn begin_dump(&mut self) {
        if let Some(dump) = self.dumps.get(self.dump).copied()
            && dump.headless
        {
            self.damage(&dump, 0, 0, NO_BEGIN.to_owned());
        }
    }

    /// Handles the next piece of the dumps. Returns whether there was one.
    fn advance(&mut self) -> bool {
        let Some(dump) = self.dumps.get(self.dump).copied() else {
            return false;
        };
        let bytes = self.bytes.clone();
        let body = bytes.get(dump.begin..dump.end).unwrap_or_default();
        let piece = dump.layout.and_then(|layout| {
            let mut walk = Walk::resume(body, layout, self.position);
            let piece = walk.next()?;
            self.position = walk.position();
            Some((layout, piece))
        });
        match piece {
            Some((layout, Piece::Record { bytes, .. })) => {
                if let Some(record) = layout.record(bytes) {
                    self.record(&record);
                } else if let Some(entry) = layout.entry(bytes) {
                    self.entry(&entry);
                }
                return true;
            }
            Some((layout, Piece::Damage { offset, bytes })) => {
                self.damage(&dump, offset, bytes, no_record(&layout, bytes));
                return true;
            }
            Some((layout, Piece::Cut { offset, bytes })) => {
                let mut message = no_record(&layout, bytes);
                if dump.cut {
                    message = format!("{message}, and the mark -*-! that ends a dump is missing");
                }
                self.damage(&dump, offset, bytes, message);
            }
            Some((_, Piece::End(_))) => {}
            None if dump.is_unknown() => {
                self.damage(&dump, 0, body.len(), neither(body.len()));
            }
            None if dump.cut => self.damage(&dump, body.len(), 0, NO_END.to_owned()),
            None => {}
        }
        self.next_dump(&dump);
        true
    }

    /// Starts the next dump. Between two dumps of traces, events may have been lost.
    fn next_dump(&mut self, before: &Dump) {
        self.dump += 1;
        self.position = Position::default();
        let rest = self.dumps.get(self.dump..).unwrap_or_default();
        let more = rest.iter().any(|dump| dump.kind() == Some(Kind::Trace));
        if before.kind() == Some(Kind::Trace) {
            match more {
                true => self.gap(TRACE, Gap::Discarded { events: None }),
                false => self.has_trace_before = true,
            }
        }
        self.begin_dump();
    }

    fn gap(&mut self, stream: StreamId, gap: Gap) {
        self.ready.push_back(Event {
            time: self.last.unwrap_or_default(),
            stream,
            cpu: None,
            thread: None,
            kind: EventKind::Gap(gap),
            named: false,
            record: false,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        });
    }

    fn damage(&mut self, dump: &Dump, offset: usize, bytes: usize, message: String) {
        let stream = match dump.kind() {
            Some(Kind::Profile) => PROFILE,
            _ => TRACE,
        };
        let offset = (self.offset + dump.begin).saturating_add(offset) as u64;
        let named = self.info.stream(stream);
        self.info.add_damage(kymo_event::Damage {
            stream: named.map_or_else(String::new, |stream| stream.name.clone()),
            offset,
            message: message.clone(),
        });
        self.gap(
            stream,
            Gap::Damage {
                offset,
                bytes: Some(bytes as u64),
                message,
            },
        );
    }

    /// Adds the event of a trace record.
    fn record(&mut self, record: &Record<'_>) {
        let time = Time(i64::try_from(record.time_ns).unwrap_or(i64::MAX));
        if let Some(by) = self.last.and_then(|last| last.since(time))
            && by > Duration(0)
        {
            self.gap(TRACE, Gap::TimeBackward { by });
        }
        self.last = Some(time);
        if let Some(stream) = self.info.streams.first_mut() {
            stream.start = Some(stream.start.map_or(time, |start| start.min(time)));
            stream.end = Some(stream.end.map_or(time, |end| end.max(time)));
        }
        let identities = &mut self.info.identities;
        let (callee, caller) = (record.callee & self.mask, record.caller & self.mask);
        let mut callee = || identities.function_at(self.space, Addr(callee));
        let kind = match record.kind {
            RecordType::Entry => EventKind::Enter {
                function: callee(),
                call_site: Some(Addr(caller)),
            },
            RecordType::Exit => EventKind::Exit {
                function: Some(callee()),
            },
            RecordType::SwitchedIn => EventKind::SwitchedIn,
            RecordType::SwitchedOut => EventKind::SwitchedOut,
        };
        let thread =
            (record.thread != 0).then(|| identities.thread(self.space, Tid(record.thread)));
        self.ready.push_back(Event {
            time,
            stream: TRACE,
            cpu: Some(Cpu(record.cpu.into())),
            thread,
            kind,
            named: record.kind == RecordType::Exit,
            record: true,
            stamp: None,
            name: record.kind.name().into(),
            // Records are only of calls and switches.
            fields: match self.wanted {
                Wanted::Everything | Wanted::Records => fields(record),
                Wanted::Meaning | Wanted::Details => Vec::new(),
            },
        });
    }

    /// Adds the event of a profile entry, which has no time.
    fn entry(&mut self, entry: &Entry) {
        let mut fields = vec![
            Field::new("callee", Value::Hex(entry.function & self.mask)),
            Field::new("delta_t", entry.total_ns),
        ];
        if profile::total(entry.total_ns).is_none() {
            let why = "the target's time stepped back: the sum is negative and no time";
            fields.push(Field::new("doubt", why));
        }
        self.ready.push_back(Event {
            time: self.last.unwrap_or_default(),
            stream: PROFILE,
            cpu: None,
            thread: None,
            kind: EventKind::Other,
            named: false,
            record: true,
            stamp: None,
            name: "profile".into(),
            // The fields are complete.
            fields,
        });
    }
}

/// Returns the fields of a record, with the names of Zephyr's own metadata, except for its mode, which is named
/// correctly.
fn fields(record: &Record<'_>) -> Vec<Field> {
    vec![
        Field::new("callee", Value::Hex(record.callee)),
        Field::new("caller", Value::Hex(record.caller)),
        Field::new("priority_bits", u64::from(record.priority_bits)),
        Field::new("cpu", u64::from(record.cpu)),
        Field::new("thread_id", Value::Hex(record.thread)),
        Field::new(
            "thread_name",
            match std::str::from_utf8(record.name) {
                Ok(name) => name.to_owned(),
                Err(_) => super::name_text(record.name),
            },
        ),
    ]
}

impl Source for DumpSource {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while !batch.is_full() && self.advance() {
            self.ready
                .drain(..)
                .for_each(|event| batch.push_event(event));
        }
        // First bytes of a dump without a mark.
        self.ready
            .drain(..)
            .for_each(|event| batch.push_event(event));
        Ok(!batch.is_empty())
    }
}
