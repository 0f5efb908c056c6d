//! Rebuilds the identity at the start of a dump whose first lines are damaged.
//!
//! Each line of a dump has a checksum, so that whole words in the lines that are left are right. The program's ELF file
//! and the metadata of the recording have those that are lost.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use kymo_symbols::Program;
use kymo_wire::event::METADATA_STREAM;
use kymo_wire::link::crc::crc32;
use kymo_wire::link::identity::PREFIX;
use kymo_wire::link::{Identity, PROTOCOL};

use super::super::memory::{clock_of, identity_of};
use super::super::packets::checked_header;

/// More bytes than there are in front of the first packet.
const WITHIN: usize = 1024;

/// Words of an identity. Without those of the first list packets cannot be read.
const NEEDED: [&str; 6] = ["word", "order", "shape", "shift", "text_base", "clock_hz"];
const OTHERS: [&str; 8] = [
    "protocol",
    "clock_bits",
    "buffer",
    "packet",
    "streams",
    "mode",
    "caps",
    "build_id",
];

/// Words that are the same in each dump of a program.
const CONSTANT: [&str; 7] = [
    "word",
    "order",
    "shape",
    "shift",
    "text_base",
    "packet",
    "clock_hz",
];

/// An identity of which some words are not from the dump.
#[derive(Debug)]
pub(super) struct Rebuilt {
    pub(super) identity: Identity,
    /// Offset of the first packet.
    pub(super) start: usize,
    /// What is said about it.
    pub(super) remark: String,
}

/// Rebuilds the identity of a dump that lacks these ranges, which are zero in `bytes`. `program` is its ELF file, if
/// known. `None` if words are missing.
pub(super) fn rebuild(
    bytes: &[u8],
    missing: &[Range<u64>],
    program: Option<&Path>,
) -> Result<Option<Rebuilt>, String> {
    let Some(first) = missing.first() else {
        return Ok(None);
    };
    let mut words = whole_words(bytes);
    let (mut from_elf, mut assumed) = (Vec::new(), Vec::new());
    if let Some(path) = program {
        let program = Program::open(path).map_err(|error| error.to_string())?;
        let line = identity_of(&program)?.to_string();
        for (name, value) in line.split(' ').filter_map(|word| word.split_once('=')) {
            // (The metadata of the recording has it.)
            if (name, value) == ("clock_hz", "0") {
                continue;
            }
            match words.get(name) {
                None => {
                    words.insert(name.to_owned(), value.to_owned());
                    from_elf.push(name.to_owned());
                }
                Some(found) if found != value && CONSTANT.contains(&name) => {
                    return Err(format!(
                        "expected the ELF file of the program that was dumped, found another: {name}={value} in it, \
                         {name}={found} in the dump"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    for name in OTHERS.into_iter().chain(["clock_hz"]) {
        words.entry(name.to_owned()).or_insert_with(|| {
            assumed.push(name);
            match name {
                "protocol" => PROTOCOL.to_string(),
                "clock_bits" => "32".to_owned(),
                "streams" => "1".to_owned(),
                "mode" => "overwrite".to_owned(),
                "caps" => "trace".to_owned(),
                "build_id" => String::new(),
                _ => "0".to_owned(),
            }
        });
    }
    let mut body = PREFIX.to_owned();
    for name in NEEDED.into_iter().chain(OTHERS) {
        let Some(value) = words.get(name) else {
            return Ok(None);
        };
        body += &format!(" {name}={value}");
    }
    let line = format!("{body} #{:08x}", crc32(body.as_bytes()));
    let Some(mut identity) = Identity::parse(&line) else {
        return Ok(None);
    };
    let layout = identity.layout;
    let header = |at: usize| checked_header(layout, bytes.get(at..)?).ok();
    let found = (0..bytes.len().min(WITHIN)).find_map(|at| Some((at, header(at)?)));
    let clock = found.and_then(|(at, header)| {
        let end = at + (header.content_bits / 8) as usize;
        let lacks = |range: &Range<u64>| range.start < end as u64 && range.end > at as u64;
        if header.cpu != METADATA_STREAM || missing.iter().any(lacks) {
            return None;
        }
        clock_of(layout, &header, bytes.get(at..end)?)
    });
    if let Some((hz, bits)) = clock {
        identity.clock_hz = hz;
        identity.clock_bits = bits;
        assumed.retain(|name| !name.starts_with("clock"));
    }
    if identity.clock_hz == 0 {
        return Ok(None);
    }
    let mut remark = "the target's identity is damaged in the dump".to_owned();
    if !from_elf.is_empty() {
        remark += &format!("; of the ELF file are {}", from_elf.join(", "));
    }
    // (Nothing depends on the others.)
    if assumed.contains(&"protocol") {
        remark += &format!("; its protocol is taken for {PROTOCOL}");
    }
    Ok(Some(Rebuilt {
        identity,
        start: found.map_or(first.end as usize, |(at, _)| at),
        remark,
    }))
}

/// The words of the identity that are whole: no missing byte, which is 0, is in or next to them.
fn whole_words(bytes: &[u8]) -> BTreeMap<String, String> {
    let head = bytes.get(..WITHIN).unwrap_or(bytes);
    let is_text = |byte: &u8| matches!(byte, 0 | b' '..=b'~');
    let end = head.iter().position(|byte| !is_text(byte));
    let text = head.get(..end.unwrap_or(0)).unwrap_or_default();
    let words = text.split(|byte| *byte == b' ');
    let words = words.filter(|word| !word.contains(&0));
    let pairs = words.filter_map(|word| std::str::from_utf8(word).ok()?.split_once('='));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
