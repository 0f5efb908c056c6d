//! Messages of software and hardware through an STM or ITM: text, values, interrupts, samples, counters.
//!
//! Times are the source's own. An ITM sends the ticks since its last timestamp, for the packets before it. An STM gives
//! packets absolute timestamps. Bytes that are UTF-8 text are joined to lines, which have the time of their last byte,
//! so later elements wait until the line ends. All other data are values.

use std::collections::{BTreeMap, VecDeque};

use kymo_coresight::element::Element;
use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::Stream;
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::memory::Memory;
use kymo_coresight::{Protocol, itm, stm};
use kymo_event::TraceCounts;

use super::unit::{Output, What};

/// Message of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Line of text from a stimulus port, or from a channel of a master.
    Text { from: From, text: String },
    /// Value.
    Value {
        from: From,
        value: u64,
        bits: u8,
        is_marker: bool,
    },
    /// Start of an interrupt handler (DWT).
    InterruptEnter(u32),
    /// End of an interrupt handler (DWT).
    InterruptExit(u32),
    /// Other message with its numbers. The first may be a code address.
    Named(&'static str, Vec<(&'static str, u64)>),
    /// The source could not send everything.
    Overflow,
    /// The time up to the next message is unknown.
    Timeless,
    /// Bytes that are no packet: where they begin in the stream, and how many.
    Damage { bytes: u64, message: &'static str },
}

/// Origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum From {
    /// Stimulus port of an ITM.
    Port(u32),
    /// Channel of a master of an STM.
    Channel { master: u16, channel: u16 },
}

/// Returns whether a source traces no instructions.
pub(super) fn is_software(protocol: &Protocol) -> bool {
    matches!(protocol, Protocol::Stm(_) | Protocol::Itm(_))
}

/// Largest length of a line in bytes. Longer ones are split.
const LONGEST: usize = 4096;

/// Largest number of channels with open lines. There are 16 million channels.
const CHANNELS: usize = 4096;

/// Largest number of messages and timestamps that wait for lines to end. Beyond it, all lines are ended.
const WAITING: usize = 1 << 16;

/// Kind of timestamps in a stream of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    /// Each timestamp follows its message: timestamps of an STM, and local ones of an ITM.
    Own,
    /// Global timestamps of an ITM alone, which come now and then.
    Global {
        /// Whether their upper bits are known: they come by themselves.
        is_known: bool,
    },
    /// There are none.
    None,
}

impl Times {
    fn of(protocol: &Protocol, stream: &Stream<'_>) -> Self {
        if !matches!(protocol, Protocol::Itm(_)) {
            return Times::Own;
        }
        let (mut is_global, mut has_upper, mut has_messages) = (false, false, false);
        for segment in stream.segments() {
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            for packet in PacketDecoder::new(protocol, bytes, segment.start) {
                match packet {
                    Packet::Itm(it) if it.kind == itm::Kind::LocalTimestamp => return Times::Own,
                    Packet::Itm(it) if it.kind == itm::Kind::GlobalTimestamp1 => {
                        is_global = true;
                    }
                    Packet::Itm(it) => {
                        has_upper |= it.kind == itm::Kind::GlobalTimestamp2;
                        has_messages |= it.kind == itm::Kind::Hardware;
                    }
                    _ => {}
                }
            }
        }
        // Of text alone no duration follows.
        match (has_messages, is_global) {
            (false, _) => Times::Own,
            (true, true) => Times::Global {
                is_known: !has_upper,
            },
            (true, false) => Times::None,
        }
    }
}

/// Reads a stream of messages, and counts its packets and elements.
pub(super) fn read(
    protocol: &Protocol,
    stream: &Stream<'_>,
    output: &mut Output<'_>,
    counts: &mut TraceCounts,
) -> Times {
    let times = Times::of(protocol, stream);
    let mut reader = Reader {
        output,
        times,
        group: 0,
        ticks: 0,
        lines: BTreeMap::new(),
        waiting: VecDeque::new(),
        given: 0,
        page: 0,
        global: 0,
        seems_back: false,
        has_lower: false,
        is_unsynced: false,
    };
    // Messages are joined to lines and values. The counted elements are those that `kymo ranges` lists.
    let mut flow = Flow::new(protocol, EtmV4Options::default(), Memory::default());
    let mut elements = Elements::default();
    for segment in stream.segments() {
        let start = segment.start;
        let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
        flow.begin(&segment, &mut elements);
        let decoder = PacketDecoder::new(protocol, bytes, start);
        let is_counted =
            matches!(protocol, Protocol::Itm(_)) && !matches!(times, Times::Global { .. });
        if is_counted && start == 0 {
            // Its times count from here.
            reader.output.timestamp(0, 0, 0, None);
        }
        for packet in decoder {
            counts.packets += 1;
            flow.packet(&packet, &mut elements);
            match packet {
                Packet::Itm(packet) => reader.itm(&packet),
                Packet::Stm(packet) => reader.stm(&packet),
                _ => {}
            }
        }
    }
    reader.end_lines();
    flow.finish_stream(stream, &mut elements);
    counts.elements += elements.0;
    times
}

/// Counter of elements.
#[derive(Default)]
struct Elements(u64);

impl Sink for Elements {
    fn element(&mut self, _: usize, _: Element) {
        self.0 += 1;
    }
}

/// Open line.
#[derive(Default)]
struct Line {
    text: Vec<u8>,
    /// Number of its last byte, counted over everything that has waited.
    place: usize,
}

/// Element that waits for a line to end.
enum Waiting {
    /// Message, and the position of its packet in the stream.
    Message(usize, Message),
    /// Messages of an ended line, and the position of its last byte.
    Messages(usize, Vec<Message>),
    /// A timestamp, and the position of its packet in the stream.
    Ticks(usize, u64),
    /// The last byte of an open line, at this position.
    Line(usize),
    /// Byte of a line that is not its last.
    Nothing,
}

struct Reader<'o, 'a> {
    output: &'o mut Output<'a>,
    times: Times,
    /// Number of timestamps so far: messages between two timestamps have the time of the second.
    group: u64,
    ticks: u64,
    /// Open lines, by origin.
    lines: BTreeMap<From, Line>,
    /// Messages and timestamps from the earliest open line on.
    waiting: VecDeque<Waiting>,
    /// Number of elements that have left `waiting`.
    given: usize,
    /// Page of stimulus ports: packets have ports in pages of 32.
    page: u32,
    /// Upper bits of the global timestamp.
    global: u64,
    /// The lower bits of the last one alone went back.
    seems_back: bool,
    /// The lower bits of the global timestamp are known.
    has_lower: bool,
    /// The packets before could not be read for lack of a synchronization.
    is_unsynced: bool,
}

impl Reader<'_, '_> {
    fn push(&mut self, at: usize, message: Message) {
        self.wait(Waiting::Message(at, message));
    }

    fn timestamp(&mut self, at: usize, ticks: u64) {
        self.wait(Waiting::Ticks(at, ticks));
    }

    fn wait(&mut self, what: Waiting) {
        self.waiting.push_back(what);
        self.give();
        if self.waiting.len() >= WAITING {
            self.end_lines();
        }
    }

    /// Outputs elements that wait for no line.
    fn give(&mut self) {
        while !matches!(self.waiting.front(), Some(Waiting::Line(_)))
            && let Some(first) = self.waiting.pop_front()
        {
            self.given += 1;
            match first {
                Waiting::Message(at, message) => self.out(at, message),
                Waiting::Messages(at, messages) => {
                    for message in messages {
                        self.out(at, message);
                    }
                }
                Waiting::Ticks(at, ticks) => {
                    self.group += 1;
                    self.output.timestamp(self.group, at, ticks, None);
                }
                Waiting::Line(_) | Waiting::Nothing => {}
            }
        }
    }

    fn out(&mut self, at: usize, message: Message) {
        self.output.push(self.group + 1, at, What::Message(message));
        self.output.flush(None);
    }

    /// Returns the element of a line's last byte.
    fn place(&mut self, line: &Line) -> Option<&mut Waiting> {
        self.waiting.get_mut(line.place.checked_sub(self.given)?)
    }

    /// Adds a byte to a line, which moves to this position.
    fn byte(&mut self, at: usize, from: From, byte: u8) {
        let mut line = self.lines.remove(&from).unwrap_or_default();
        if !line.text.is_empty()
            && let Some(before) = self.place(&line)
        {
            *before = Waiting::Nothing;
        }
        if byte != b'\n' {
            line.text.push(byte);
        }
        line.place = self.given + self.waiting.len();
        let is_whole = byte == b'\n' || line.text.len() >= LONGEST;
        self.lines.insert(from, line);
        self.wait(Waiting::Line(at));
        if is_whole {
            self.end_line(from);
        }
    }

    /// Handles data of a port or channel: a part of a line, or a separate value.
    fn data(&mut self, at: usize, from: From, (value, bits): (u64, u8), is_marker: bool) {
        let bytes = value.to_le_bytes();
        let bytes = bytes.get(..usize::from(bits / 8)).unwrap_or_default();
        if is_marker || !self.goes_on(from, bytes) {
            self.end_line(from);
        }
        // A line that is open now continues.
        let goes_on = self.lines.contains_key(&from);
        let may_be_text = match from {
            // By convention it is for text. Libraries send as many bytes at once as fit into a write.
            From::Port(0) => bits == 8 || goes_on || is_whole_text(bytes),
            From::Port(_) => bits == 8,
            From::Channel { .. } => bits == 8 || goes_on,
        };
        if !may_be_text || bytes.is_empty() || !goes_on && !is_text(bytes) {
            self.end_line(from);
            let message = Message::Value {
                from,
                value,
                bits,
                is_marker,
            };
            return self.push(at, message);
        }
        if !goes_on && self.lines.len() >= CHANNELS {
            self.end_lines();
        }
        for byte in bytes {
            self.byte(at, from, *byte);
        }
    }

    /// Returns whether the open line continues with these bytes: it is text together with them.
    fn goes_on(&self, from: From, bytes: &[u8]) -> bool {
        let Some(line) = self.lines.get(&from) else {
            return true;
        };
        // The last character may be incomplete.
        let tail = line.text.get(line.text.len().saturating_sub(4)..);
        let tail = tail.unwrap_or_default();
        let begin = tail.iter().rposition(|byte| !matches!(byte, 0x80..=0xbf));
        let mut tail = tail.get(begin.unwrap_or(0)..).unwrap_or_default().to_vec();
        tail.extend_from_slice(bytes);
        is_text(&tail)
    }

    fn end_line(&mut self, from: From) {
        let Some(line) = self.lines.remove(&from) else {
            return;
        };
        let valid = match std::str::from_utf8(&line.text) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let (text, rest) = line.text.split_at(valid);
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end_matches('\r').to_owned();
        let text = (!text.is_empty()).then_some(Message::Text { from, text });
        // An incomplete character is not text.
        let rest = rest.iter().map(|byte| Message::Value {
            from,
            value: (*byte).into(),
            bits: 8,
            is_marker: false,
        });
        if let Some(place) = self.place(&line)
            && let Waiting::Line(at) = *place
        {
            *place = Waiting::Messages(at, text.into_iter().chain(rest).collect());
        }
        self.give();
    }

    fn end_lines(&mut self) {
        while let Some((from, _)) = self.lines.first_key_value() {
            self.end_line(*from);
        }
    }

    fn itm(&mut self, packet: &itm::Packet) {
        let itm::Packet {
            start: at,
            source,
            value,
            size,
            ..
        } = *packet;
        match packet.kind {
            itm::Kind::Software => {
                let from = From::Port(self.page * 32 + u32::from(source));
                self.data(at, from, (value, 8 * size), false);
            }
            itm::Kind::Hardware => self.hardware(at, source, value, size),
            itm::Kind::LocalTimestamp => {
                self.ticks = self.ticks.saturating_add(value);
                self.timestamp(at, self.ticks);
            }
            itm::Kind::GlobalTimestamp1 => {
                // The low bits replace those that the packet has.
                let bits = [7, 14, 21, 26][usize::from(size.clamp(1, 4) - 1)];
                let mask = (1u64 << bits) - 1;
                self.global = self.global & !mask | value & mask;
                let numbers = vec![("value", self.global)];
                self.push(at, Message::Named("global_timestamp", numbers));
                // Where its upper bits have changed, they follow: it seems to go back up to then.
                let is_back = self.global < self.ticks && !self.seems_back;
                if self.times == (Times::Global { is_known: true }) && !is_back {
                    self.global_time(at);
                }
                (self.seems_back, self.has_lower) = (is_back, true);
            }
            itm::Kind::GlobalTimestamp2 => {
                self.global = value << 26 | self.global & ((1 << 26) - 1);
                self.seems_back = false;
                if let Times::Global { .. } = self.times {
                    self.times = Times::Global { is_known: true };
                    if self.has_lower {
                        self.global_time(at);
                    }
                }
            }
            itm::Kind::Extension if size == 2 && source == 0 => self.page = value as u32,
            itm::Kind::Extension => {
                let numbers = vec![("value", value)];
                self.push(at, Message::Named("extension", numbers));
            }
            itm::Kind::Overflow => {
                self.end_lines();
                self.push(at, Message::Overflow);
            }
            itm::Kind::Async => self.is_unsynced = false,
            itm::Kind::NotSync => self.unsynced(at),
            // It ends with the trace, which no event reports.
            itm::Kind::IncompleteEot => {}
            itm::Kind::BadSequence | itm::Kind::Reserved => {
                self.damage(at, packet.len, "expected a packet of an ITM");
            }
        }
    }

    /// Handles unreadable packets before a synchronization: in a ring buffer whose oldest packet was partly
    /// overwritten, or after damage.
    fn unsynced(&mut self, at: usize) {
        if !std::mem::replace(&mut self.is_unsynced, true) && at > 0 {
            self.end_lines();
            self.push(at, Message::Overflow);
        }
    }

    fn global_time(&mut self, at: usize) {
        self.ticks = self.global;
        self.timestamp(at, self.ticks);
    }

    fn damage(&mut self, at: usize, bytes: usize, message: &'static str) {
        let bytes = bytes as u64;
        self.push(at, Message::Damage { bytes, message });
    }

    /// Handles a DWT packet (Armv7-M architecture, appendix D4.3).
    fn hardware(&mut self, at: usize, source: u8, value: u64, size: u8) {
        let number = (value & 0x1ff) as u32;
        let message = match (source, size) {
            (0, _) => Message::Named("counter_overflow", counters(value)),
            (1, _) => match value >> 12 & 3 {
                1 => Message::InterruptEnter(number),
                2 => Message::InterruptExit(number),
                3 => Message::Named("exception_return", vec![("to", number.into())]),
                _ => Message::Named("exception", vec![("number", number.into())]),
            },
            (2, 4) => Message::Named("pc_sample", vec![(crate::code::FIELD, value)]),
            // Armv8-M: code is running that may not be sampled, as secure code (Arm DDI 0553, periodic PC sample
            // packet).
            (2, _) if value == 0xff => Message::Named("pc_sample_prohibited", Vec::new()),
            (2, _) => Message::Named("sleeping", Vec::new()),
            // Armv8.1-M: a bit for each counter of the performance monitors.
            (3, _) => Message::Named("pmu_overflow", vec![("counters", value)]),
            // Armv8-M sends that a comparator matched in the place of its PC (data trace match packet).
            (8..=15, 1) if source & 1 == 0 => Message::Named(
                "data_match",
                vec![("comparator", u64::from(source >> 1 & 3))],
            ),
            (8..=23, _) => {
                let comparator = ("comparator", u64::from(source >> 1 & 3));
                let (name, numbers) = match (source >> 3, source & 1) {
                    (1, 0) => ("data_pc", vec![(crate::code::FIELD, value), comparator]),
                    (1, _) => ("data_address", vec![("address", value), comparator]),
                    (_, 0) => ("data_read", vec![("value", value), comparator]),
                    (_, _) => ("data_write", vec![("value", value), comparator]),
                };
                Message::Named(name, numbers)
            }
            _ => {
                let source = ("discriminator", source.into());
                Message::Named("hardware", vec![source, ("value", value)])
            }
        };
        let begins = matches!(message, Message::InterruptEnter(_));
        self.push(at, message);
        // Global timestamps do not follow each message.
        if begins && self.times != Times::Own {
            self.push(at, Message::Timeless);
        }
    }

    fn stm(&mut self, packet: &stm::Packet) {
        use stm::Kind;
        let at = packet.start();
        let from = From::Channel {
            master: packet.master,
            channel: packet.channel,
        };
        let bits = match packet.kind {
            Kind::Data4 => 4,
            Kind::Data8 => 8,
            Kind::Data16 => 16,
            Kind::Data32 => 32,
            Kind::Data64 => 64,
            _ => 0,
        };
        let len = packet.end() - at;
        match packet.kind {
            Kind::Data4 | Kind::Data8 | Kind::Data16 | Kind::Data32 | Kind::Data64 => {
                self.data(at, from, (packet.value, bits), packet.is_marker);
            }
            Kind::Flag => self.end_line(from),
            Kind::Trigger => {
                let numbers = vec![("value", packet.value)];
                self.push(at, Message::Named("trigger", numbers));
            }
            Kind::Frequency => {
                let numbers = vec![("hz", packet.value)];
                self.push(at, Message::Named("frequency", numbers));
            }
            Kind::GlobalError | Kind::MasterError => {
                self.end_lines();
                self.push(at, Message::Overflow);
            }
            Kind::NotSync => self.unsynced(at),
            Kind::IncompleteEot => {}
            Kind::BadSequence | Kind::Reserved => {
                self.damage(at, len, "expected a packet of an STM");
            }
            Kind::Async => self.is_unsynced = false,
            Kind::Version
            | Kind::Null
            | Kind::Master8
            | Kind::Master16
            | Kind::Channel8
            | Kind::Channel16 => {}
        }
        if let Some((ticks, _)) = packet.timestamp {
            self.timestamp(at, ticks);
        }
    }
}

/// Returns whether bytes are text, whose last character may be incomplete.
fn is_text(bytes: &[u8]) -> bool {
    let printable = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t' | 0x80..);
    let is_utf8 = match std::str::from_utf8(bytes) {
        Ok(text) => !text.is_empty(),
        Err(error) => error.error_len().is_none(),
    };
    is_utf8 && bytes.iter().all(printable)
}

/// Returns whether bytes that were written at once are complete text: printable, and without an incomplete character.
fn is_whole_text(bytes: &[u8]) -> bool {
    is_text(bytes) && std::str::from_utf8(bytes).is_ok()
}

/// Returns the DWT counters that wrapped around, each with 1.
fn counters(flags: u64) -> Vec<(&'static str, u64)> {
    ["cpi", "exception", "sleep", "lsu", "fold", "cycle"]
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| flags >> bit & 1 == 1)
        .map(|(_, name)| (name, 1))
        .collect()
}
