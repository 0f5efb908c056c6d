//! Dump of a recording as lines that a person can read, for when no tool is at hand.
//!
//! ```text
//! *** kymo lines begin: the addresses are those of the program with build id 5a5a5a5a ***
//! thread 0x20000010 is named main
//!        0.001234 0x20000010 > 0x800012a
//!        0.001236 0x20000010   > 0x8000104
//!        0.001240 0x20000010   < 0x8000104
//!        0.001251 0x20000010   marker 7
//! *** kymo lines end: 4 records ***
//! ```
//!
//! Each line has the time in seconds, the running thread, and an entry (`>`) or exit (`<`) with the function's address,
//! or another event with its numbers. It needs no memory but the stack.

use kymo_wire::event::{
    ByteOrder, EventId, Form, Layout, METADATA_STREAM, MetadataType, PacketHeader,
};
use kymo_wire::link::{Identity, Text};
use kymo_wire::packet::EVENT_STREAM;
use kymo_wire::walk::{Walk, number};

use crate::bits64::divide;
use crate::link::{Control, SCRATCH_BYTES, Subject};

/// Most entries whose exits, which have no function, are shown with it.
const CALLS: usize = 32;

/// Most spaces before an entry.
const SPACES: &[u8] = &[b' '; 2 * 16];

/// Length of the longest line.
const LINE: usize = 200;

/// Writer of lines.
struct Lines<'a> {
    put: &'a mut dyn FnMut(&[u8]),
    identity: Identity,
    /// The functions entered in the packet, in the running thread.
    calls: [u64; CALLS],
    /// Number of open calls, which may be more than there is room for.
    depth: usize,
    thread: u64,
    records: u32,
    /// Losses that were reported so far; `None` before the first packet.
    discarded: Option<u32>,
    /// Packets of other records.
    others: u32,
}

/// Passes the whole recording, line by line, to `put`. The buffers are frozen.
pub(crate) fn write(control: &impl Control, put: &mut dyn FnMut(&[u8])) {
    let mut lines = Lines {
        put,
        identity: control.identity(),
        calls: [0; CALLS],
        depth: 0,
        thread: 0,
        records: 0,
        discarded: None,
        others: 0,
    };
    lines.line(|text, identity| {
        text.add("\r\n*** kymo lines begin: the addresses are those of the program");
        if !identity.build_id().is_empty() {
            text.add(" with build id ");
            for byte in identity.build_id() {
                text.hexadecimal((*byte).into(), 2);
            }
        }
        text.add(" ***");
    });
    let mut scratch = [0; SCRATCH_BYTES];
    let mut n = 0;
    while let Some(chunk) = control.chunk(Subject::Trace, n, &mut scratch) {
        lines.packet(chunk);
        n += 1;
    }
    let (records, others) = (lines.records, lines.others);
    lines.line(|text, _| {
        text.add("*** kymo lines end: ").decimal(records.into());
        text.add(" records");
        if others > 0 {
            text.add(", and ").decimal(others.into());
            text.add(" packets of RTEMS records that are not shown");
        }
        text.add(" ***");
    });
}

impl Lines<'_> {
    /// Passes a line to `put`.
    #[inline(never)]
    fn line(&mut self, write: impl FnOnce(&mut Text<'_>, &Identity)) {
        let mut room = [0; LINE];
        let mut text = Text::new(&mut room);
        write(&mut text, &self.identity);
        text.end_line();
        (self.put)(text.bytes());
    }

    /// Writes the records of a packet.
    fn packet(&mut self, content: &[u8]) {
        let layout = self.identity.layout;
        let Some(header) = PacketHeader::read(layout, content) else {
            return;
        };
        if header.stream != EVENT_STREAM {
            self.others += 1;
            return;
        }
        let is_metadata = header.cpu == METADATA_STREAM;
        if !is_metadata {
            self.begin(&header);
        }
        let mut walk = Walk::new(layout, &header, content);
        loop {
            let first = content.get(walk.offset()..).unwrap_or_default();
            let Ok(Some(id)) = walk.next() else {
                return;
            };
            if is_metadata {
                self.name(walk.payload);
            } else {
                self.record(id, first, &walk, &header);
            }
        }
    }

    /// Begins a packet: nothing is known of calls entered before.
    fn begin(&mut self, header: &PacketHeader) {
        self.depth = 0;
        self.thread = header.thread;
        let before = match self.discarded.replace(header.discarded) {
            None if header.sequence > 0 => {
                self.line(|text, _| {
                    text.add("(older records were overwritten");
                    if header.discarded > 0 {
                        text.add("; ").decimal(header.discarded.into());
                        text.add(" were lost among them or up to a packet later");
                    }
                    text.add(")");
                });
                header.discarded
            }
            before => before.unwrap_or(0),
        };
        let lost = header.discarded.wrapping_sub(before);
        if lost > 0 {
            self.line(|text, _| {
                text.add("(").decimal(lost.into());
                text.add(" records were lost here, at most a packet later)");
            });
        }
    }

    /// Writes the name of a thread or an interrupt.
    fn name(&mut self, payload: &[u8]) {
        let layout = self.identity.layout;
        let order = layout.order;
        let word = layout.word.bytes();
        let (kind, value) = (payload.get(..2), payload.get(4..));
        let (Some(kind), Some(value)) = (kind, value) else {
            return;
        };
        let (what, size) = match MetadataType::from_number(number(order, kind) as u16) {
            Some(MetadataType::ThreadName) => ("thread 0x", word),
            Some(MetadataType::IsrName) => ("interrupt 0x", 2),
            _ => return,
        };
        let whose = number(order, value.get(..size).unwrap_or_default());
        let name = value.get(word.min(size + 2)..).unwrap_or_default();
        self.line(|text, _| {
            text.add(what).hexadecimal(whose, 1).add(" is named ");
            for byte in name.iter().filter(|byte| **byte >= b' ') {
                text.add_bytes(&[*byte]);
            }
        });
    }

    /// Writes a record.
    fn record(&mut self, id: EventId, first: &[u8], walk: &Walk<'_>, header: &PacketHeader) {
        self.records = self.records.saturating_add(1);
        let Identity {
            layout, text_base, ..
        } = self.identity;
        let Layout {
            order, shape, word, ..
        } = layout;
        let word = word.bytes();
        let named = shape.named_bits() as usize / 8;
        let payload = walk.payload;
        let part = |from: usize, size: usize| {
            number(order, payload.get(from..from + size).unwrap_or_default())
        };
        let function = |it: u64| layout.address(it as u32, text_base);
        // Functions of entries and exits.
        let entered = match id {
            EventId::Enter | EventId::EnterLong => Some(function(in_record(layout, first))),
            EventId::EnterFrom => Some(function(part(0, named))),
            EventId::EnterFar | EventId::EnterFarFrom => Some(part(0, word)),
            _ => None,
        };
        let exited = match id {
            EventId::Exit => Some(self.exit()),
            EventId::ExitNamed => Some(Some(function(part(0, named)))),
            EventId::ExitFar => Some(Some(part(0, word))),
            _ => None,
        };
        // A call that ended: its function, and where its times begin.
        let call = match id {
            EventId::Call => Some((function(part(0, named)), named, 4)),
            EventId::CallFar | EventId::CallOpen | EventId::CallLost => {
                Some((part(0, word), word, 8))
            }
            _ => None,
        };
        match id {
            EventId::SwitchedIn | EventId::Context => self.switch(part(0, word)),
            EventId::SwitchedInNear => {
                let away = i64::from(part(0, 2) as u16 as i16) * 4;
                self.switch(header.thread.wrapping_add_signed(away));
            }
            EventId::Longjmp | EventId::Recording | EventId::SwitchedOut => self.depth = 0,
            _ => {}
        }
        let (thread, depth, time) = (self.thread, self.depth, walk.clock);
        self.line(|text, identity| {
            seconds(text, time, identity.clock_hz);
            text.add(" 0x").hexadecimal(thread, 1).add(" ");
            text.add_bytes(SPACES.get(..2 * depth).unwrap_or(SPACES));
            if let Some(function) = entered {
                text.add("> 0x").hexadecimal(function, 1);
            } else if let Some(function) = exited {
                match function {
                    Some(function) => text.add("< 0x").hexadecimal(function, 1),
                    None => text.add("<"),
                };
            } else if let Some((function, at, size)) = call {
                text.add(id.name()).add(" 0x").hexadecimal(function, 1);
                text.add(" took");
                seconds(text, part(at, size), identity.clock_hz);
                text.add(" self");
                seconds(text, part(at + size, size), identity.clock_hz);
            } else {
                text.add(id.name());
                numbers(text, id, payload, order, word);
            }
        });
        if let Some(function) = entered {
            if let Some(place) = self.calls.get_mut(self.depth) {
                *place = function;
            }
            self.depth += 1;
        }
    }

    /// The function that an exit without one leaves; `None` if it was entered too deep, or before the packet.
    fn exit(&mut self) -> Option<u64> {
        self.depth = self.depth.checked_sub(1)?;
        self.calls.get(self.depth).copied()
    }

    /// Another thread runs.
    fn switch(&mut self, thread: u64) {
        if thread != self.thread {
            self.depth = 0;
        }
        self.thread = thread;
    }
}

/// The function's number in an entry of a usual form, which begins with these bytes.
fn in_record(layout: Layout, bytes: &[u8]) -> u64 {
    let Layout { order, shape, .. } = layout;
    let Some(first) = bytes.first() else {
        return 0;
    };
    let form = Form::of(order, *first);
    let size = shape.bytes(form);
    let value = number(order, bytes.get(..size).unwrap_or_default());
    let bits = shape.function_bits(form);
    match order {
        ByteOrder::Little => value >> (size as u32 * 8 - bits),
        ByteOrder::Big => value & ((1 << bits) - 1),
    }
}

/// Appends a time in seconds, with six digits behind the point, in at least 16 characters.
#[inline(never)]
fn seconds(text: &mut Text<'_>, ticks: u64, hz: u64) {
    let hz = hz.max(1);
    let (whole, rest) = divide(ticks, hz);
    // (Of clocks beyond 10 THz the digits would be wrong.)
    let (digits, _) = divide(rest.saturating_mul(1_000_000), hz);
    let mut power = 10_000_000;
    while power > 1 && whole < power {
        text.add(" ");
        power /= 10;
    }
    text.add(" ").decimal(whole).add(".");
    let mut power = 100_000;
    while power > 1 && digits < power {
        text.add("0");
        power /= 10;
    }
    text.decimal(digits);
}

/// Appends the numbers of any other record: known ones by their fields, others as bytes.
#[inline(never)]
fn numbers(text: &mut Text<'_>, id: EventId, payload: &[u8], order: ByteOrder, word: usize) {
    // Sizes of the fields; 0: hexadecimal with the size of a word.
    let fields: &[usize] = match id {
        EventId::SwitchedIn | EventId::SwitchedOutNamed | EventId::Setjmp | EventId::Longjmp => {
            &[0]
        }
        // The thread column has it.
        EventId::SwitchedInNear | EventId::SwitchedOut | EventId::IsrExit | EventId::Time => &[],
        EventId::IsrEnter => &[1],
        EventId::IsrEnterWide | EventId::IsrExitNamed => &[2],
        EventId::Recording => &[1, 1],
        EventId::Marker => &[4],
        EventId::NamedMarker => &[0, 4],
        EventId::Context => &[0, 2, 2],
        EventId::ClockGap => &[8],
        EventId::WallClock => &[8, 4],
        _ => {
            for byte in payload {
                text.add(" ").hexadecimal((*byte).into(), 2);
            }
            return;
        }
    };
    let mut at = 0;
    for field in fields {
        let size = if *field == 0 { word } else { *field };
        let value = number(order, payload.get(at..at + size).unwrap_or_default());
        match *field {
            0 => text.add(" 0x").hexadecimal(value, 1),
            _ => text.add(" ").decimal(value),
        };
        at += size;
    }
}
