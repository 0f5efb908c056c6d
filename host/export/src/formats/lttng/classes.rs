//! Event classes of an export, numbered in the order of first use, and the metadata that describes them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

use super::packets::Uuid;

/// Type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Type {
    /// 32 bits, signed.
    Int32,
    /// 32 bits, unsigned.
    Uint32,
    /// 64 bits, signed.
    Int64,
    /// 64 bits, unsigned.
    Uint64,
    /// 64 bits, unsigned, displayed in hexadecimal.
    Hex64,
    /// Zero-terminated text.
    Text,
    /// 16 bytes of text: the name of a thread.
    Comm,
}

impl Type {
    /// Its type in the metadata, and the suffix of the field's name.
    const fn tsdl(self) -> (&'static str, &'static str) {
        match self {
            Self::Int32 => ("int32_t", ""),
            Self::Uint32 => ("uint32_t", ""),
            Self::Int64 => ("int64_t", ""),
            Self::Uint64 => ("uint64_t", ""),
            Self::Hex64 => ("xint64_t", ""),
            Self::Text => ("string", ""),
            Self::Comm => ("text8_t", "[16]"),
        }
    }
}

/// A field of a class.
pub(super) type FieldOf = (Cow<'static, str>, Type);

/// The classes in use, by name and fields.
#[derive(Debug, Default)]
pub(super) struct Classes {
    numbers: HashMap<(String, Vec<FieldOf>), u32>,
    list: Vec<(String, Vec<FieldOf>)>,
    /// Cache of recently used classes, by a hash of name and number of fields.
    recent: Vec<u32>,
}

/// Entries of [`Classes::recent`].
const RECENT: usize = 1 << 10;

impl Classes {
    /// The number of a class, which is created if missing.
    pub fn number(&mut self, name: &str, fields: &[FieldOf]) -> u32 {
        self.recent.resize(RECENT, 0);
        let place = spread(name, fields.len());
        let recent = self.recent.get(place).copied().unwrap_or(0);
        let known = self.list.get(recent as usize);
        if known.is_some_and(|(known, of)| known == name && of == fields) {
            return recent;
        }
        let number = self.find(name, fields);
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = number;
        }
        number
    }

    fn find(&mut self, name: &str, fields: &[FieldOf]) -> u32 {
        let key = (name.to_owned(), fields.to_vec());
        if let Some(known) = self.numbers.get(&key) {
            return *known;
        }
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(key.clone());
        self.numbers.insert(key, number);
        number
    }

    /// The metadata of a trace of these classes.
    pub fn metadata(&self, uuid: Uuid, environment: &[(&str, Env)], clock: &ClockOf) -> String {
        let mut text = String::from(HEAD);
        let _ = write!(
            text,
            "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\
             \tpacket.header := struct {{\n\t\tuint32_t magic;\n\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\
             \t\tuint64_t stream_instance_id;\n\t}};\n}};\n\nenv {{\n"
        );
        for (name, value) in environment {
            let _ = match value {
                Env::Text(value) => writeln!(text, "\t{name} = \"{}\";", escaped(value)),
                Env::Number(value) => writeln!(text, "\t{name} = {value};"),
            };
        }
        let _ = write!(
            text,
            "}};\n\nclock {{\n\tname = \"monotonic\";\n\tuuid = \"{uuid}\";\n\
             \tdescription = \"{}\";\n\tfreq = 1000000000;\n\toffset_s = {};\n\toffset = {};\n}};\n\n",
            escaped(&clock.description),
            clock.seconds,
            clock.nanoseconds
        );
        text.push_str(STREAM);
        for (number, (name, fields)) in self.list.iter().enumerate() {
            let _ = write!(
                text,
                "event {{\n\tname = \"{}\";\n\tid = {number};\n\tstream_id = 0;\n\tfields := struct {{\n",
                escaped(name)
            );
            for (field, of_type) in fields {
                let (type_name, behind) = of_type.tsdl();
                let _ = writeln!(text, "\t\t{type_name} _{field}{behind};");
            }
            text.push_str("\t};\n};\n\n");
        }
        text
    }
}

/// Value of an environment entry.
pub(super) enum Env {
    Text(String),
    Number(i64),
}

/// Description of the clock: the time of its zero.
pub(super) struct ClockOf {
    pub description: String,
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// Index in [`RECENT`] entries, from the two ends of a name, and a number.
fn spread(name: &str, number: usize) -> usize {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let bytes = name.as_bytes();
    let eight = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |it| u64::from_le_bytes(*it));
    let (first, last) = (bytes.first_chunk(), bytes.last_chunk());
    let short = bytes
        .iter()
        .take(7)
        .fold(0, |all, byte| all << 8 | u64::from(*byte));
    let mut all = if first.is_none() { short } else { eight(first) };
    for part in [eight(last), (bytes.len() as u64) << 32 | number as u64] {
        all = (all.rotate_left(29) ^ part).wrapping_mul(SPREAD);
    }
    (all >> 32) as usize % RECENT
}

/// A field name that is valid in the metadata.
pub(super) fn identifier(name: Cow<'static, str>) -> Cow<'static, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if (1..=64).contains(&name.len()) && name.bytes().all(fits) {
        return name;
    }
    let fits = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(fits).take(64).collect();
    match name.is_empty() {
        true => "value".into(),
        false => name.into(),
    }
}

/// Escapes text for quotes.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

const HEAD: &str = "\
/* CTF 1.8 */

typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 64; align = 8; signed = false; base = 16; } := xint64_t;
typealias integer { size = 8; align = 8; signed = false; encoding = UTF8; base = 10; } := text8_t;

";

const STREAM: &str = "\
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_t;
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
	enum : integer { size = 5; align = 1; signed = false; } { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct {
			uint27_clock_t timestamp;
		} compact;
		struct {
			uint32_t id;
			uint64_clock_t timestamp;
		} extended;
	} v;
} align(8);

stream {
	id = 0;
	event.header := struct event_header_compact;
	packet.context := struct packet_context;
};

";
