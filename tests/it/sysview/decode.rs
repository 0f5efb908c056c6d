//! Decoder of SystemView's stream from its encoding rules only, independent of Kymo's.

/// Content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// LEB128.
    Number(u32),
    /// A length, and bytes.
    Text(String),
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub(super) id: u32,
    pub(super) fields: Vec<Field>,
    pub(super) delta: u32,
}

/// The fields of packets without a length (`n` number, `t` text), and their names, by id.
const SHORT: [(&str, &str); 24] = [
    ("nop", ""),
    ("overflow", "n"),
    ("isr_enter", "n"),
    ("isr_exit", ""),
    ("task_start_exec", "n"),
    ("task_stop_exec", ""),
    ("task_start_ready", "n"),
    ("task_stop_ready", "nn"),
    ("task_create", "n"),
    ("task_info", "nnt"),
    ("trace_start", ""),
    ("trace_stop", ""),
    ("systime_cycles", "n"),
    ("systime_us", "nn"),
    ("sysdesc", "t"),
    ("mark_start", "n"),
    ("mark_stop", "n"),
    ("idle", ""),
    ("isr_to_scheduler", ""),
    ("timer_enter", "n"),
    ("timer_exit", ""),
    ("stack_info", "nnnn"),
    ("moduledesc", "nnt"),
    ("data_sample", "nn"),
];

/// The same for packets with a length, which have further numbers after the listed fields.
const LONG: [(u32, &str, &str); 6] = [
    (24, "init", ""),
    (25, "name_resource", "nt"),
    (26, "print", "t"),
    (27, "nummodules", ""),
    (28, "end_call", ""),
    (29, "task_terminate", ""),
];

/// `kymo`'s name for a packet; empty for packets named by the program or by their content.
pub(super) fn name(packet: &Decoded) -> &'static str {
    let short = SHORT.get(packet.id as usize).map(|it| it.0);
    let long = LONG.iter().find(|it| it.0 == packet.id).map(|it| it.1);
    short.or(long).unwrap_or_default()
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().expect("a whole packet");
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u32 {
        let (mut value, mut shift) = (0u32, 0);
        loop {
            let byte = self.byte();
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    fn field(&mut self, shape: u8) -> Field {
        if shape == b'n' {
            return Field::Number(self.number());
        }
        let length = self.byte();
        assert_ne!(length, 255, "no text is so long");
        let (text, rest) = self.0.split_at(length.into());
        self.0 = rest;
        Field::Text(String::from_utf8(text.to_vec()).unwrap())
    }
}

/// All packets of a stream.
pub(super) fn all(stream: &[u8]) -> Vec<Decoded> {
    let mut bytes = Bytes(stream.strip_prefix(&[0; 10]).expect("synchronization"));
    let mut packets = Vec::new();
    while !bytes.0.is_empty() {
        let id = bytes.number();
        let fields = match SHORT.get(id as usize) {
            Some((_, shape)) => shape.bytes().map(|shape| bytes.field(shape)).collect(),
            None => {
                let (payload, rest) = {
                    let length = bytes.number();
                    bytes.0.split_at(length as usize)
                };
                bytes.0 = rest;
                long(id, Bytes(payload))
            }
        };
        let delta = bytes.number();
        packets.push(Decoded { id, fields, delta });
    }
    packets
}

/// The fields of a packet with a length.
fn long(id: u32, mut payload: Bytes<'_>) -> Vec<Field> {
    let mut fields = Vec::new();
    let shape = match id {
        // An extended id; names of markers include a text.
        31 if payload.0.first() == Some(&1) => "nnt",
        _ => LONG.iter().find(|it| it.0 == id).map_or("", |it| it.2),
    };
    for shape in shape.bytes() {
        fields.push(payload.field(shape));
    }
    while !payload.0.is_empty() {
        fields.push(payload.field(b'n'));
    }
    fields
}
