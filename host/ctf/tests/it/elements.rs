//! Tests against the element lists of yactfr's suite, in which its authors state the content of a stream bit by bit.
//!
//! They compare the bit range of every event, and all fields of packets and events in order, also for traces on which
//! babeltrace2 crashes.

use std::io::Cursor;
use std::sync::Arc;

use crate::cases::Version;
use kymo_ctf::metadata::{Encoding, Metadata, Scope};
use kymo_ctf::{Container, Message, Plan, StreamReader, Value, Visitor};

/// Lists that are not compared, each with a reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("ctf-2-pass-diff-magic-auto", NO_STREAM_CLASS),
    ("ctf-2-pass-diff-uuid-auto", NO_STREAM_CLASS),
    ("ctf-2-pass-no-ers-no-dst-id-fl-ints-auto", NO_STREAM_CLASS),
];
const NO_STREAM_CLASS: &str = "no data stream class, of which the specification wants one at least";

/// One element of a stream.
#[derive(Debug, Clone, PartialEq)]
enum Element {
    /// An event with its begin and end, in bits of the stream.
    Event(u64, u64),
    /// A field, as name and value.
    Field(String),
    /// A string or BLOB: its name and bytes; strings only up to the first zero character.
    Bytes(String, Vec<u8>),
}

/// Parses the elements of a list.
fn listed(list: &str) -> Vec<Element> {
    let mut elements: Vec<Element> = Vec::new();
    // For each open bracket, the action when it is closed.
    let mut open = Vec::new();
    for line in list.lines() {
        let (place, what) = line.trim().split_once(' ').unwrap_or(("", ""));
        let (place, what) = (place.parse::<u64>().expect("a place"), what.trim());
        let (kind, rest) = what.split_once(':').unwrap_or((what, ""));
        let name = rest.strip_suffix(" {").unwrap_or(rest);
        match kind {
            "ER {" => {
                open.push(Some(elements.len()));
                elements.push(Element::Event(place, 0));
                continue;
            }
            "}" => {
                let event = open.pop().expect("an open bracket");
                if let Some(Element::Event(_, end)) = event.and_then(|at| elements.get_mut(at)) {
                    *end = place;
                }
            }
            "FLUI" | "FLSI" | "VLUI" | "VLSI" | "FLB" | "FLBM" | "FLFPN" => {
                elements.push(Element::Field(rest.to_owned()));
            }
            "RD" => {
                let (_, data) = rest.split_once(':').expect("a length");
                let Some(Element::Bytes(name, bytes)) = elements.last_mut() else {
                    panic!("data of nothing: {line}")
                };
                // BLOBs are in hexadecimal. Strings are text, with escapes for unprintable characters.
                if name.starts_with("blob ") {
                    bytes.extend(unhex(data));
                } else {
                    let mut parts = data.split('$');
                    bytes.extend(parts.next().unwrap_or("").bytes());
                    for part in parts {
                        bytes.extend(unhex(&part[..2]));
                        bytes.extend(part[2..].bytes());
                    }
                }
            }
            _ if kind.starts_with("NTS") || kind.starts_with("SLS") || kind.starts_with("DLS") => {
                elements.push(Element::Bytes(format!("text {name}"), Vec::new()));
            }
            _ if kind.starts_with("SLB") || kind.starts_with("DLB") => {
                // The media type follows the last colon.
                elements.push(Element::Bytes(format!("blob {name}"), Vec::new()));
            }
            _ => {}
        }
        if what.ends_with('{') {
            open.push(None);
        }
    }
    assert!(open.is_empty(), "brackets");
    elements
}

fn unhex(digits: &str) -> Vec<u8> {
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// The bytes of a string before its first zero character.
fn content(mut bytes: Vec<u8>, unit: usize) -> Vec<u8> {
    let end = bytes
        .chunks(unit)
        .position(|unit| unit.iter().all(|&byte| byte == 0));
    bytes.truncate(end.map_or(bytes.len(), |end| end * unit));
    bytes
}

#[derive(Default)]
struct Fields {
    elements: Vec<Element>,
    /// Character size of each string, with its index among the elements.
    units: Vec<(usize, usize)>,
    /// Whether the next field is the option of a variant, whose name the lists omit.
    option: bool,
}

impl<'a> Visitor<'a> for Fields {
    fn begin(&mut self, _: &'a str, container: Container) {
        self.option = matches!(container, Container::Variant | Container::Optional);
    }

    fn value(&mut self, name: &'a str, value: Value<'a>) {
        let named = !std::mem::take(&mut self.option);
        let name = if named { name } else { "" };
        let shown = match value {
            Value::Integer { value, .. } => value.widen().to_string(),
            Value::Float { value, .. } => significant(value),
            Value::Boolean(value) => value.to_string(),
            Value::Bits { value, flags, .. } => {
                let flags: Vec<&str> = flags.flags(value).collect();
                format!("{value}:{}", flags.join(","))
            }
            Value::Text { bytes, encoding } => {
                let unit = if encoding == Encoding::None {
                    1
                } else {
                    encoding.unit()
                };
                self.units.push((self.elements.len(), unit as usize));
                let name = format!("text {name}");
                return self.elements.push(Element::Bytes(name, bytes.to_vec()));
            }
            Value::Blob { bytes, media_type } => {
                let colon = if name.is_empty() { "" } else { ":" };
                let name = format!("blob {name}{colon}{media_type}");
                return self.elements.push(Element::Bytes(name, bytes.to_vec()));
            }
            Value::Absent => return,
        };
        self.elements.push(Element::Field(if name.is_empty() {
            shown
        } else {
            format!("{name}:{shown}")
        }));
    }
}

/// A number with six significant digits, without trailing zeros; the suite has none that need an exponent.
fn significant(value: f64) -> String {
    let digits = 5 - (value.abs().log10().floor().max(-4.0) as i32).min(5);
    let shown = format!("{value:.*}", usize::try_from(digits).expect("few digits"));
    match shown.contains('.') {
        true => shown.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => shown,
    }
}

/// The decoded elements of a stream, with the sizes of characters.
fn decoded(metadata: &[u8], stream: Vec<u8>) -> Result<Fields, String> {
    let parsed = Metadata::parse(metadata).map_err(|error| error.to_string())?;
    let plan = Plan::new(parsed.metadata).map_err(|error| error.to_string())?;
    let mut reader = StreamReader::new(Arc::new(plan), Cursor::new(stream));
    let mut fields = Fields::default();
    while let Some(message) = reader.next_message().map_err(|error| error.to_string())? {
        match message {
            Message::Packet(packet) => {
                packet.visit(Scope::PacketHeader, &mut fields);
                packet.visit(Scope::PacketContext, &mut fields);
            }
            Message::Event(event) => {
                let start = event.offset();
                let element = Element::Event(start, start + event.size());
                fields.elements.push(element);
                for scope in &Scope::ALL[2..] {
                    event.visit(*scope, &mut fields);
                }
            }
            Message::Gap(_) => {}
        }
    }
    Ok(fields)
}

/// LTTng writes such labels where an enumeration with negative values is recorded in an unsigned integer.
#[test]
fn labels_beyond_their_integer_are_of_no_value() {
    let of = |labels: &str, byte: u8| {
        let metadata = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }}; event {{ name = e;
             fields := struct {{ enum : integer {{ size = 8; }} {{ {labels} }} v; }}; }};"
        );
        let found = decoded(metadata.as_bytes(), vec![byte]);
        found.map(|found| match found.elements.last() {
            Some(Element::Field(shown)) => shown.clone(),
            _ => String::new(),
        })
    };
    let labels = "NEG = -3, AUTO, HIGH = 200 ... 300, LOW = -5 ... 7, NEXT";
    assert_eq!(
        of(labels, 253).unwrap(),
        of("HIGH = 200 ... 255", 253).unwrap()
    );
    assert_eq!(of(labels, 7).unwrap(), of("LOW = 0 ... 7", 7).unwrap());
    assert_eq!(of(labels, 8).unwrap(), of("NEXT = 8", 8).unwrap());
    assert_eq!(of(labels, 9).unwrap(), of("NEG = 1", 9).unwrap());
    assert_eq!(of("NEG = -3", 9).unwrap(), "v:9");
    assert!(of("WRONG = 3 ... 2", 9).is_err());
}

#[test]
fn elements_are_those_of_yactfr() {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return;
    };
    let (mut wrong, mut seen, mut count) = (Vec::new(), 0, 0);
    let scratch = tempfile::tempdir().expect("scratch folder");
    let mut cases = crate::cases::cases(&data, Version::Ctf1);
    cases.extend(crate::cases::cases(&data, Version::Ctf2));
    for case in cases {
        let Some(name) = case.name.strip_prefix("yactfr-data/") else {
            continue;
        };
        let except = EXCEPTIONS.iter().any(|(it, _reason)| *it == name);
        if !case.passes || except {
            continue;
        }
        let trace = case.trace(scratch.path());
        let list = crate::cases::read(&case.folder.join("yactfr-elements.txt"));
        let mut expected = listed(std::str::from_utf8(&list).expect("text"));
        let metadata = crate::cases::read(&trace.join("metadata"));
        let stream = crate::cases::read(&trace.join("stream"));
        seen += 1;
        match decoded(&metadata, stream) {
            Ok(found) => {
                for (at, unit) in found.units {
                    if let Some(Element::Bytes(_, bytes)) = expected.get_mut(at) {
                        *bytes = content(std::mem::take(bytes), unit);
                    }
                }
                count += expected.len();
                let mut pairs = found.elements.iter().zip(&expected);
                let differ = pairs.position(|(a, b)| a != b);
                let shorter = found.elements.len().min(expected.len());
                let at = differ.unwrap_or(shorter);
                if differ.is_some() || found.elements.len() != expected.len() {
                    let (ours, theirs) = (found.elements.get(at), expected.get(at));
                    wrong.push(format!("{name}, element {at}: {ours:?}, not {theirs:?}"));
                }
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {seen}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(seen > 50 && count > 5000, "{seen} lists, {count} elements");
}
