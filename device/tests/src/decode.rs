//! Decoder from packets to records, bit by bit.

use std::collections::BTreeMap;

use kymo_wire::event::{ByteOrder, Layout, Shape};

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of a packet header")]
pub struct Packet {
    pub sequence: u32,
    pub begin: u64,
    pub end: u64,
    /// Time of its last event.
    pub last: Option<u64>,
    pub discarded: u32,
    pub cpu: u16,
    pub isr_depth: u8,
    pub flags: u8,
    pub thread: u64,
    /// Without `time` records, which are not events.
    pub records: Vec<Record>,
    /// Number of records of each id, `time` records included.
    pub ids: BTreeMap<u8, usize>,
}

/// Function of an exit whose entry came before all available packets, in nested packets.
pub const UNKNOWN: u64 = u64::MAX;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its time.
    pub time: u64,
    /// Its content.
    pub kind: Kind,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the events of the wire format")]
pub enum Kind {
    Enter(u64),
    /// Entry of a function from a known call site.
    EnterFrom {
        /// The function's address.
        function: u64,
        /// Its return address.
        caller: u64,
    },
    /// A user record.
    Block {
        /// Its type; 0: unfinished.
        kind: u16,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// Exit of this function, whether the record names it or not.
    Exit(u64),
    Context {
        thread: u64,
        priority: i16,
        mode: u16,
    },
    SwitchedIn(u64),
    SwitchedOut(u64),
    IsrEnter(u16),
    IsrExit(u16),
    Marker(u32),
    NamedMarker {
        name: u64,
        value: u32,
    },
    Metadata {
        kind: u16,
        value: Vec<u8>,
    },
    ClockGap(u64),
    Recording {
        on: bool,
        cause: u8,
    },
    /// A whole call, which ends here.
    Call {
        /// The event's number.
        how: u8,
        function: u64,
        duration: u64,
        own: u64,
        thread: u64,
    },
    Setjmp(u64),
    Longjmp(u64),
    WallClock {
        ns: u64,
        uncertainty: u32,
    },
}

/// Reads fields from the front of bytes.
struct Bits<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    /// In bits.
    at: usize,
}

impl Bits<'_> {
    /// A bit field: from the least significant bit of each byte on little-endian machines, from
    /// the most significant one on big-endian ones.
    fn take(&mut self, width: usize) -> u64 {
        let mut value = 0;
        for i in 0..width {
            let at = self.at + i;
            let byte = self.bytes[at / 8];
            match self.order {
                ByteOrder::Little => value |= u64::from(byte >> (at % 8) & 1) << i,
                ByteOrder::Big => value = value << 1 | u64::from(byte >> (7 - at % 8) & 1),
            }
        }
        self.at += width;
        value
    }
}

/// Decodes all packets in `bytes`. Nested packets must be those of one stream, in order.
///
/// # Panics
/// On any violation of the format's description.
pub fn packets(bytes: &[u8], layout: Layout, text_base: u64) -> Vec<Packet> {
    let packets = packets_of_jumps(bytes, layout, text_base);
    for Packet { end, last, .. } in &packets {
        assert!(
            last.is_none_or(|last| last == *end),
            "the end of a packet is its last event's time"
        );
    }
    packets
}

/// The same for a program that jumps out of hooks, whose packets may end later than their last event.
///
/// # Panics
/// As [`packets`].
pub fn packets_of_jumps(bytes: &[u8], layout: Layout, text_base: u64) -> Vec<Packet> {
    let word = layout.word.bits() as usize;
    let mut packets = Vec::new();
    let mut start = 0;
    let mut stack = Vec::new();
    while start < bytes.len() {
        let mut bits = Bits {
            bytes: &bytes[start..],
            order: layout.order,
            at: 0,
        };
        assert_eq!(bits.take(32), 0xC1FC_1FC1, "no packet at {start}");
        assert_eq!(bits.take(8), 0, "no packet of events");
        let flags = bits.take(4) as u8;
        assert_eq!(flags & !7, 0, "flags that these targets do not set");
        let isr_depth = bits.take(4) as u8;
        let cpu = bits.take(16) as u16;
        let sequence = bits.take(32) as u32;
        let discarded = bits.take(32) as u32;
        let (begin, end) = (bits.take(64), bits.take(64));
        let (content, size) = (bits.take(32), bits.take(32));
        assert_eq!(content, size, "a packet as it is sent has no padding");
        let thread = bits.take(word);
        let nested = flags & 2 != 0;
        if !nested {
            stack.clear();
        }
        let mut reader = Reader {
            layout,
            nested,
            text_base,
            time: begin,
            head_thread: thread,
            thread,
            stack,
            interrupts: Vec::new(),
            ids: BTreeMap::new(),
        };
        let mut records = Vec::new();
        while bits.at < content as usize {
            records.extend(reader.record(&mut bits));
            assert_eq!(bits.at % 8, 0, "a record ends within a byte");
        }
        assert_eq!(bits.at, content as usize, "a record goes past its packet");
        assert!(
            reader.time <= end,
            "an event is behind the end of its packet"
        );
        packets.push(Packet {
            sequence,
            begin,
            end,
            last: (!records.is_empty()).then_some(reader.time),
            discarded,
            cpu,
            isr_depth,
            flags,
            thread,
            records,
            ids: reader.ids,
        });
        stack = reader.stack;
        start += content as usize / 8;
    }
    packets
}

/// Decoder state between the records of a packet.
struct Reader {
    layout: Layout,
    /// Whether exits are never named, and calls continue in the next packet.
    nested: bool,
    text_base: u64,
    time: u64,
    head_thread: u64,
    thread: u64,
    /// Open calls that were entered in this packet (or an earlier one, if packets are nested) since the last thread
    /// switch.
    stack: Vec<u64>,
    /// Open interrupts that began in this packet.
    interrupts: Vec<u16>,
    ids: BTreeMap<u8, usize>,
}

impl Reader {
    fn clock(&mut self, bits: &mut Bits<'_>, width: usize) {
        let low = bits.take(width);
        let wrap = 1u128 << width;
        let time = u128::from(self.time);
        let mut now = time / wrap * wrap + u128::from(low);
        if now < time {
            now += wrap;
        }
        self.time = now as u64;
    }

    fn address(&self, function: u64) -> u64 {
        self.text_base + (function << self.layout.function_shift)
    }

    /// Decodes the next record; `None` for a `time` record.
    fn record(&mut self, bits: &mut Bits<'_>) -> Option<Record> {
        // Number of bits of: an exit's id; an enter's id, its function; a later exit's id; a later enter's id, its
        // function; other ids; a function as a field.
        let widths = match self.layout.shape {
            Shape::Compact => [7, 8, 13, 13, 12, 17, 16, 24],
            Shape::Wide => [15, 21, 24, 29, 29, 32, 16, 32],
        };
        let [
            exit,
            enter,
            near,
            exit_later,
            enter_later,
            far,
            other,
            function,
        ] = widths;
        if bits.take(1) == 1 {
            self.clock(bits, exit);
            return self.exit(1);
        }
        match bits.take(2) {
            0 => {
                self.clock(bits, enter);
                let address = self.address(bits.take(near));
                self.enter(0, address)
            }
            1 => {
                self.clock(bits, exit_later);
                self.exit(1)
            }
            2 => {
                self.clock(bits, enter_later);
                let address = self.address(bits.take(far));
                self.enter(2, address)
            }
            _ => {
                let id = bits.take(5) as u8;
                self.clock(bits, if id == 31 { 56 } else { other });
                self.other(bits, id, function)
            }
        }
    }

    fn give(&mut self, id: u8, kind: Kind) -> Option<Record> {
        *self.ids.entry(id).or_default() += 1;
        Some(Record {
            time: self.time,
            kind,
        })
    }

    fn enter(&mut self, id: u8, address: u64) -> Option<Record> {
        self.stack.push(address);
        self.give(id, Kind::Enter(address))
    }

    fn exit(&mut self, id: u8) -> Option<Record> {
        let address = self.stack.pop().or(self.nested.then_some(UNKNOWN));
        let address = address.expect("an exit that nobody can name");
        self.give(id, Kind::Exit(address))
    }

    fn other(&mut self, bits: &mut Bits<'_>, id: u8, function: usize) -> Option<Record> {
        let word = self.layout.word.bits() as usize;
        let kind = match id {
            31 => {
                *self.ids.entry(id).or_default() += 1;
                return None;
            }
            4 => {
                // The target assumes no open call whose exit could be unnamed.
                self.stack.clear();
                Kind::Exit(self.address(bits.take(function)))
            }
            5 => {
                let address = bits.take(word);
                return self.enter(id, address);
            }
            6 => {
                self.stack.clear();
                Kind::Exit(bits.take(word))
            }
            9 => {
                let thread = bits.take(word);
                if thread != self.thread {
                    self.stack.clear();
                }
                self.thread = thread;
                Kind::Context {
                    thread,
                    priority: bits.take(16) as i16,
                    mode: bits.take(16) as u16,
                }
            }
            10 | 11 => {
                self.stack.clear();
                self.thread = if id == 10 {
                    bits.take(word)
                } else {
                    assert_ne!(self.head_thread, 0, "far from nobody");
                    let apart = i64::from(bits.take(16) as i16) * 4;
                    self.head_thread.wrapping_add_signed(apart)
                };
                Kind::SwitchedIn(self.thread)
            }
            12 | 13 => {
                self.stack.clear();
                let thread = if id == 12 {
                    self.thread
                } else {
                    bits.take(word)
                };
                self.thread = 0;
                Kind::SwitchedOut(thread)
            }
            14 | 15 => {
                let irq = bits.take(if id == 14 { 8 } else { 16 }) as u16;
                self.interrupts.push(irq);
                Kind::IsrEnter(irq)
            }
            16 => Kind::IsrExit(self.interrupts.pop().expect("an unknown interrupt")),
            17 => Kind::IsrExit(bits.take(16) as u16),
            18 => Kind::Marker(bits.take(32) as u32),
            19 => Kind::NamedMarker {
                name: bits.take(word),
                value: bits.take(32) as u32,
            },
            20 => {
                let kind = bits.take(16) as u16;
                let length = bits.take(16) as usize;
                let value = (0..length).map(|_| bits.take(8) as u8).collect();
                Kind::Metadata { kind, value }
            }
            7 | 8 => {
                let function = if id == 7 {
                    self.address(bits.take(function))
                } else {
                    bits.take(word)
                };
                let caller = bits.take(word);
                self.stack.push(function);
                Kind::EnterFrom { function, caller }
            }
            26 => {
                bits.at = bits.at.next_multiple_of(32);
                let kind = bits.take(16) as u16;
                let length = bits.take(16) as usize;
                let data = (0..length).map(|_| bits.take(8) as u8).collect();
                Kind::Block { kind, data }
            }
            21 => Kind::ClockGap(bits.take(64)),
            22 => {
                let on = bits.take(8) != 0;
                if on {
                    self.stack.clear();
                }
                let cause = bits.take(8) as u8;
                Kind::Recording { on, cause }
            }
            27..=30 => {
                let (function, width) = match id {
                    27 => (self.address(bits.take(function)), 32),
                    _ => (bits.take(word), 64),
                };
                Kind::Call {
                    how: id,
                    function,
                    duration: bits.take(width),
                    own: bits.take(width),
                    thread: bits.take(word),
                }
            }
            23 => Kind::Setjmp(bits.take(word)),
            24 => {
                self.stack.clear();
                Kind::Longjmp(bits.take(word))
            }
            25 => Kind::WallClock {
                ns: bits.take(64),
                uncertainty: bits.take(32) as u32,
            },
            id => panic!("event {id} at bit {}", bits.at),
        };
        self.give(id, kind)
    }
}
