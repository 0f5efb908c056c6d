//! Generated traces for the measurement of readers: the same bytes on every machine.
//!
//! They are written byte by byte and not by `kymo-ctf`, so that the measured code does not generate its own input. Each
//! is of a common kind: LTTng's with several fields and contexts, LTTng's smallest event, barectf's with bit-packed
//! fields, and Kymo's own calls.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use kymo_wire::event::{ByteOrder, Form, Layout, PacketHeader, Shape, WordSize};
use kymo_wire::metadata::Description;
use kymo_wire::packet::EVENT_STREAM;

use kymo_targets::run::{Context, Error, Result};

/// A kind of trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// LTTng-UST: two streams, three contexts, five event classes with strings, labels, sequences.
    Mixed,
    /// LTTng-UST: one stream, one event class with one 32-bit number.
    Ticks,
    /// barectf: two streams, headers and payloads packed without padding between bits, big endian.
    Packed,
    /// Kymo: two streams of enters and exits, one to three bytes each.
    Calls,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Mixed, Self::Ticks, Self::Packed, Self::Calls];

    /// Name in the table and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Ticks => "ticks",
            Self::Packed => "packed",
            Self::Calls => "calls",
        }
    }

    /// A field of nearly every event, for reading a single field.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Mixed => "vtid",
            Self::Ticks => "n",
            Self::Packed => "level",
            Self::Calls => "function",
        }
    }

    const fn streams(self) -> u32 {
        match self {
            Self::Ticks => 1,
            Self::Mixed | Self::Packed | Self::Calls => 2,
        }
    }

    /// Writes a trace of about `events` events into `directory`.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(self, directory: &Path, events: u64) -> Result<()> {
        fs::create_dir_all(directory).context(directory.display())?;
        let text = match self {
            Self::Mixed => format!("{LTTNG}{MIXED}"),
            Self::Ticks => format!("{LTTNG}{TICKS}"),
            Self::Packed => PACKED.to_owned(),
            Self::Calls => calls_metadata()?,
        };
        let metadata = directory.join("metadata");
        fs::write(&metadata, text).context(metadata.display())?;
        for cpu in 0..self.streams() {
            let path = directory.join(format!("stream_{cpu}"));
            let file = File::create(&path).context(path.display())?;
            let mut stream = Stream {
                out: BufWriter::with_capacity(1 << 20, file),
                random: Random(u64::from(cpu) + 1),
                cpu,
                time: 1_000_000_000 + u64::from(cpu) * 117,
                packets: 0,
            };
            let share = events / u64::from(self.streams());
            match self {
                Self::Mixed | Self::Ticks => stream.lttng(self, share),
                Self::Packed => stream.packed(share),
                Self::Calls => stream.calls(share),
            }
            .and_then(|()| stream.out.flush())
            .context(path.display())?;
        }
        Ok(())
    }
}

/// Random numbers: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// A stream under construction.
struct Stream {
    out: BufWriter<File>,
    random: Random,
    cpu: u32,
    time: u64,
    packets: u64,
}

/// Size of an LTTng packet in bytes, including padding.
const LTTNG_PACKET: usize = 512 << 10;
/// Size of its header and context in bytes.
const LTTNG_HEAD: usize = 4 + 16 + 4 + 8 + 6 * 8 + 4;
const UUID: [u8; 16] = [7; 16];
const MAGIC: u32 = 0xc1fc_1fc1;

impl Stream {
    /// Advances the time by 50 to 749 ticks.
    fn tick(&mut self) -> u64 {
        self.time += 50 + self.random.below(700);
        self.time
    }

    fn lttng(&mut self, kind: Kind, events: u64) -> std::io::Result<()> {
        let mut left = events;
        while left > 0 {
            let begin = self.time;
            let mut packet = vec![0; LTTNG_HEAD];
            // Leaves room for the largest event.
            while left > 0 && packet.len() + 256 < LTTNG_PACKET {
                let time = self.tick();
                match kind {
                    Kind::Ticks => {
                        packet.extend_from_slice(&0u16.to_le_bytes());
                        packet.extend_from_slice(&(time as u32).to_le_bytes());
                        packet.extend_from_slice(&(left as u32).to_le_bytes());
                    }
                    _ => self.mixed_event(&mut packet, time),
                }
                left -= 1;
            }
            let content = packet.len() as u64 * 8;
            let mut head = Vec::with_capacity(LTTNG_HEAD);
            head.extend_from_slice(&MAGIC.to_le_bytes());
            head.extend_from_slice(&UUID);
            head.extend_from_slice(&0u32.to_le_bytes());
            head.extend_from_slice(&u64::from(self.cpu).to_le_bytes());
            let size = LTTNG_PACKET as u64 * 8;
            for value in [begin, self.time, content, size, self.packets, 0] {
                head.extend_from_slice(&value.to_le_bytes());
            }
            head.extend_from_slice(&self.cpu.to_le_bytes());
            packet.splice(..LTTNG_HEAD, head);
            packet.resize(LTTNG_PACKET, 0);
            self.out.write_all(&packet)?;
            self.packets += 1;
        }
        Ok(())
    }

    /// A compact header, contexts, and one of five payloads.
    fn mixed_event(&mut self, packet: &mut Vec<u8>, time: u64) {
        const NAMES: [&str; 4] = ["parse", "wait_for_input", "render", "write_back_to_disk"];
        let id = [0u32, 0, 1, 1, 2, 3, 4][self.random.below(7) as usize];
        packet.extend_from_slice(&(id | (time as u32) << 5).to_le_bytes());
        packet.extend_from_slice(&4711i32.to_le_bytes());
        packet.extend_from_slice(&(4711 + self.random.below(8) as i32).to_le_bytes());
        packet.extend_from_slice(b"worker-thread\0\0\0\0");
        let number = self.random.next();
        match id {
            0 => {
                packet.extend_from_slice(&(number >> 20).to_le_bytes());
                packet.extend_from_slice(NAMES[(number % 4) as usize].as_bytes());
                packet.push(0);
                packet.extend_from_slice(&((number >> 8) as u32 % 7).to_le_bytes());
            }
            1 => {
                packet.extend_from_slice(&(number >> 20).to_le_bytes());
                packet.extend_from_slice(&(-((number >> 8) as i32 % 100)).to_le_bytes());
                packet.extend_from_slice(&((number % 1000) as f64 / 8.0).to_le_bytes());
            }
            2 => {
                let length = number % 12;
                packet.extend_from_slice(&(length as u16).to_le_bytes());
                packet.extend((0..length).map(|byte| byte as u8));
                packet.extend_from_slice(&(number as u32).to_le_bytes());
            }
            3 => {
                packet.extend_from_slice(&(0x7fff_0000_0000 + (number & 0xffff)).to_le_bytes());
                packet.extend_from_slice(&(number as u16).to_le_bytes());
                packet.push(number as u8);
            }
            _ => {
                packet.extend_from_slice(NAMES[(number % 4) as usize].as_bytes());
                packet.push(0);
                packet.extend_from_slice(NAMES[(number >> 2) as usize % 4].as_bytes());
                packet.push(0);
            }
        }
    }

    /// Packets of 4 KiB whose fields after the header are packed bit by bit, from the highest bit.
    fn packed(&mut self, events: u64) -> std::io::Result<()> {
        const PACKET: usize = 4096;
        let mut left = events;
        while left > 0 {
            let mut bits = Bits::default();
            bits.put(u64::from(MAGIC), 32);
            bits.put(0, 8);
            bits.put(PACKET as u64 * 8, 32);
            let size_at = bits.bytes.len();
            bits.put(0, 32);
            bits.put(self.time, 64);
            let end_at = bits.bytes.len();
            bits.put(0, 64);
            bits.put(0, 32);
            bits.put(u64::from(self.cpu), 8);
            // Excludes the padding after the last event.
            let mut content = 0;
            while left > 0 && bits.bytes.len() + 32 < PACKET {
                let time = self.tick();
                let (number, id) = (self.random.next(), self.random.below(3));
                bits.put(id, 5);
                bits.put(time, 27);
                match id {
                    0 => {
                        for (shift, size) in [(0, 3), (3, 13), (16, 24), (40, 10)] {
                            bits.put(number >> shift, size);
                        }
                    }
                    1 => {
                        bits.put(number, 3);
                        bits.put(number >> 3, 40);
                    }
                    _ => {
                        bits.put(number, 3);
                        bits.put(number >> 3, 1);
                        let speed = (number >> 4 & 0xfff) as f32 / 16.0;
                        bits.put(speed.to_bits().into(), 32);
                        bits.put(number >> 36, 20);
                    }
                }
                content = bits.bytes.len() as u32 * 8 + bits.count;
                bits.align();
                left -= 1;
            }
            bits.bytes.resize(PACKET, 0);
            bits.bytes[size_at..size_at + 4].copy_from_slice(&content.to_be_bytes());
            bits.bytes[end_at..end_at + 8].copy_from_slice(&self.time.to_be_bytes());
            self.out.write_all(&bits.bytes)?;
        }
        Ok(())
    }

    /// Packets of 4 KiB from a recorder on a microcontroller with 25 MHz.
    fn calls(&mut self, events: u64) -> std::io::Result<()> {
        const PACKET: usize = 4096;
        let (order, shape) = (CALLS.order, CALLS.shape);
        let mut head = PacketHeader {
            stream: EVENT_STREAM,
            flags: 0,
            isr_depth: 0,
            cpu: self.cpu as u16,
            sequence: 0,
            discarded: 0,
            begin: 0,
            end: 0,
            content_bits: 0,
            packet_bits: PACKET as u32 * 8,
            thread: 0x2000_0100,
        };
        let mut left = events;
        while left > 0 {
            (head.sequence, head.begin) = (self.packets as u32, self.time);
            let mut packet = vec![0; PACKET];
            let mut at = head.write(CALLS, &mut packet).unwrap_or(PACKET);
            let mut depth = 0;
            while left > 0 && at + 8 < PACKET {
                // Most events follow the previous one closely.
                let later = self.random.below(16) == 0;
                self.time += self.random.below(if later { 3_000 } else { 100 });
                let exit = depth > 0 && (depth > 12 || self.random.below(2) == 0);
                let form = match (exit, later) {
                    (true, false) => Form::ExitShort,
                    (true, true) => Form::ExitLong,
                    (false, false) => Form::EnterShort,
                    (false, true) => Form::EnterLong,
                };
                depth = if exit { depth - 1 } else { depth + 1 };
                let function = self.random.below(FUNCTIONS) as u32 * 8;
                let record = shape.call_record(order, form, self.time, function);
                let size = shape.bytes(form);
                packet[at..at + size].copy_from_slice(&record.to_le_bytes()[..size]);
                at += size;
                left -= 1;
            }
            (head.end, head.content_bits) = (self.time, at as u32 * 8);
            head.write(CALLS, &mut packet);
            self.out.write_all(&packet)?;
            self.packets += 1;
        }
        Ok(())
    }
}

/// Writer of bits, from the highest bit of each byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, and their number.
    rest: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, value: u64, size: u32) {
        for shift in (0..size).rev() {
            self.rest = self.rest << 1 | (value >> shift & 1);
            self.count += 1;
            if self.count == 8 {
                self.bytes.push(self.rest as u8);
                (self.rest, self.count) = (0, 0);
            }
        }
    }

    fn align(&mut self) {
        if self.count > 0 {
            self.put(0, 8 - self.count);
        }
    }
}

/// Packet layout of the recorder of the calls.
const CALLS: Layout = Layout {
    order: ByteOrder::Little,
    word: WordSize::Bits32,
    shape: Shape::Compact,
    function_shift: 1,
};

/// Number of functions in the traced program.
const FUNCTIONS: u64 = 500;

fn calls_metadata() -> Result<String> {
    let names: Vec<String> = (0..FUNCTIONS).map(|n| format!("function_{n}")).collect();
    let description = Description {
        layout: CALLS,
        clock_hz: 25_000_000,
        clock_bits: 32,
        origin_ns: None,
        text_base: 0,
        build_id: &[],
        target: "bench",
        events: &[],
        items: false,
    };
    let mut text = String::new();
    let functions = (0u32..).step_by(8).zip(names.iter().map(String::as_str));
    kymo_wire::metadata::write(&mut text, &description, functions)
        .and_then(|()| kymo_wire::metadata::write_markers(&mut text, std::iter::empty()))
        .map_err(|error| Error::new(error.to_string()))?;
    Ok(text)
}

/// Beginning of all LTTng metadata, as version 2.13 writes it.
const LTTNG: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
trace {
	major = 1;
	minor = 8;
	uuid = "07070707-0707-0707-0707-070707070707";
	byte_order = le;
	packet.header := struct {
		uint32_t magic;
		uint8_t  uuid[16];
		uint32_t stream_id;
		uint64_t stream_instance_id;
	};
};
env {
	hostname = "vm";
	domain = "ust";
	tracer_name = "lttng-ust";
	tracer_major = 2;
	tracer_minor = 13;
};
clock {
	name = "monotonic";
	freq = 1000000000;
	offset = 1795258574298255094;
};
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_t;
typealias integer { size = 32; align = 8; signed = false; map = clock.monotonic.value; } := uint32_clock_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_t;
struct packet_context {
	uint64_clock_t timestamp_begin;
	uint64_clock_t timestamp_end;
	uint64_t content_size;
	uint64_t packet_size;
	uint64_t packet_seq_num;
	uint64_t events_discarded;
	uint32_t cpu_id;
};
struct event_header_compact {
	enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct { uint27_clock_t timestamp; } compact;
		struct { uint32_t id; uint64_clock_t timestamp; } extended;
	} v;
} align(8);
struct event_header_large {
	enum : uint16_t { compact = 0 ... 65534, extended = 65535 } id;
	variant <id> {
		struct { uint32_clock_t timestamp; } compact;
		struct { uint32_t id; uint64_clock_t timestamp; } extended;
	} v;
} align(8);
"#;

const MIXED: &str = r#"stream {
	id = 0;
	event.header := struct event_header_compact;
	packet.context := struct packet_context;
	event.context := struct {
		int32_t _vpid;
		int32_t _vtid;
		integer { size = 8; align = 8; signed = 0; encoding = UTF8; base = 10; } _procname[17];
	};
};
event {
	name = "app:span_begin"; id = 0; stream_id = 0; loglevel = 13;
	fields := struct {
		uint64_t _id;
		string _name;
		enum : int32_t { "IDLE" = 0, "RUN" = 1, "WAIT" = 2 ... 5, "STOP" = 6 } _phase;
	};
};
event {
	name = "app:span_end"; id = 1; stream_id = 0; loglevel = 13;
	fields := struct {
		uint64_t _id;
		int32_t _status;
		floating_point { exp_dig = 11; mant_dig = 53; align = 8; } _value;
	};
};
event {
	name = "app:data"; id = 2; stream_id = 0; loglevel = 13;
	fields := struct {
		integer { size = 16; align = 8; signed = 0; base = 10; } __bytes_length;
		uint8_t _bytes[ __bytes_length ];
		integer { size = 32; align = 8; signed = 0; base = 16; } _crc;
	};
};
event {
	name = "app:alloc"; id = 3; stream_id = 0; loglevel = 6;
	fields := struct {
		integer { size = 64; align = 8; signed = 0; base = 16; } _ptr;
		uint16_t _size;
		uint8_t _zone;
	};
};
event {
	name = "app:message"; id = 4; stream_id = 0; loglevel = 4;
	fields := struct { string _from; string _to; };
};
"#;

const TICKS: &str = r#"stream {
	id = 0;
	event.header := struct event_header_large;
	packet.context := struct packet_context;
};
event {
	name = "app:tick"; id = 0; stream_id = 0; loglevel = 13;
	fields := struct { uint32_t _n; };
};
"#;

const PACKED: &str = r#"/* CTF 1.8 */
trace {
	major = 1;
	minor = 8;
	byte_order = be;
	packet.header := struct {
		integer { size = 32; align = 8; } magic;
		integer { size = 8; align = 8; } stream_id;
	} align(8);
};
env { domain = "bare"; tracer_name = "barectf"; tracer_major = 3; tracer_minor = 1; };
clock { name = default; freq = 80000000; offset_s = 1795258574; offset = 0; };
typealias integer { size = 64; align = 8; map = clock.default.value; } := time;
stream {
	id = 0;
	packet.context := struct {
		integer { size = 32; align = 8; } packet_size;
		integer { size = 32; align = 8; } content_size;
		time timestamp_begin;
		time timestamp_end;
		integer { size = 32; align = 8; } events_discarded;
		integer { size = 8; align = 8; } cpu_id;
	} align(8);
	event.header := struct {
		integer { size = 5; align = 1; } id;
		integer { size = 27; align = 1; map = clock.default.value; } timestamp;
	} align(8);
};
event {
	stream_id = 0; id = 0; name = "sensor";
	fields := struct {
		integer { size = 3; align = 1; } level;
		integer { size = 13; align = 1; signed = true; } temperature;
		integer { size = 24; align = 1; } pressure;
		integer { size = 10; align = 1; } humidity;
	} align(1);
};
event {
	stream_id = 0; id = 1; name = "position";
	fields := struct {
		integer { size = 3; align = 1; } level;
		integer { size = 40; align = 1; base = 16; } place;
	} align(1);
};
event {
	stream_id = 0; id = 2; name = "motor";
	fields := struct {
		integer { size = 3; align = 1; } level;
		enum : integer { size = 1; align = 1; } { "off" = 0, "on" = 1 } state;
		floating_point { exp_dig = 8; mant_dig = 24; align = 1; } speed;
		integer { size = 20; align = 1; } steps;
	} align(1);
};
"#;
