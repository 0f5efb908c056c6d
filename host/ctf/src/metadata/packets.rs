//! Packetized metadata (CTF 1.8): a tracer that streams its metadata, as LTTng does, splits the text into packets with
//! headers of their own. Their concatenated contents are the text.

use std::borrow::Cow;

use super::ByteOrder;
use crate::error::{MetadataError, MetadataErrorKind as Kind};

/// First word of a metadata packet; its byte order is that of the whole header.
const MAGIC: u32 = 0x75d1_1d57;
/// Size of the header: magic, UUID, checksum, content size, packet size, five single bytes.
const HEADER: usize = 37;

/// The text of a metadata file, packetized or not, and the byte order of the packets.
///
/// One zero byte at the end of plain text is tolerated: some writers terminate it as C does. Any other is an error.
pub(super) fn unpack(bytes: &[u8]) -> Result<(Cow<'_, str>, Option<ByteOrder>), MetadataError> {
    let (text, order) = text(bytes)?;
    match text.find('\0') {
        Some(offset) => Err(Kind::Zero.at(&text, offset)),
        None => Ok((text, order)),
    }
}

fn text(bytes: &[u8]) -> Result<(Cow<'_, str>, Option<ByteOrder>), MetadataError> {
    let order = match bytes.first_chunk() {
        Some(first) if u32::from_le_bytes(*first) == MAGIC => ByteOrder::Little,
        Some(first) if u32::from_be_bytes(*first) == MAGIC => ByteOrder::Big,
        _ => {
            // Some writers end the text with a zero byte.
            let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
            return std::str::from_utf8(bytes)
                .map(|text| (Cow::Borrowed(text), None))
                .map_err(|error| not_text(bytes, error));
        }
    };
    let mut text = Vec::new();
    let mut rest = bytes;
    let mut uuid = None;
    let mut offset = 0;
    // A few bytes after the last packet are ignored.
    while rest.len() >= 4 || (offset == 0 && !rest.is_empty()) {
        let (content, size) = packet(rest, order, &mut uuid).map_err(|kind| MetadataError {
            kind,
            offset,
            line: 0,
            column: 0,
        })?;
        text.extend_from_slice(content);
        offset += size;
        rest = rest.get(size..).unwrap_or(&[]);
    }
    String::from_utf8(text)
        .map(|text| (Cow::Owned(text), Some(order)))
        .map_err(|error| not_text(error.as_bytes(), error.utf8_error()))
}

fn not_text(bytes: &[u8], error: std::str::Utf8Error) -> MetadataError {
    let valid = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
    Kind::NotText.at(&String::from_utf8_lossy(valid), valid.len())
}

/// The content of the packet at the start of `bytes` and the size of the packet in bytes.
fn packet<'b>(
    bytes: &'b [u8],
    order: ByteOrder,
    trace: &mut Option<[u8; 16]>,
) -> Result<(&'b [u8], usize), Kind> {
    let wrong = |field, expected, found| {
        Err(Kind::Packet {
            field,
            expected,
            found,
        })
    };
    let Some(header) = bytes.get(..HEADER) else {
        return wrong("header", "37 bytes", bytes.len() as u64);
    };
    let word = |at: usize| {
        let bytes = header
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .copied()
            .unwrap_or_default();
        match order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    };
    let byte = |at: usize| u64::from(header.get(at).copied().unwrap_or(0));
    if word(0) != MAGIC {
        return wrong("magic", "0x75d11d57", u64::from(word(0)));
    }
    let uuid: [u8; 16] = header
        .get(4..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .unwrap_or_default();
    if *trace.get_or_insert(uuid) != uuid {
        return wrong("UUID", "the same in all packets", u64::from(uuid[0]));
    }
    let (content_bits, packet_bits) = (word(24), word(28));
    for (at, field) in [
        (32, "compression scheme"),
        (33, "encryption scheme"),
        (34, "checksum scheme"),
    ] {
        if byte(at) != 0 {
            return wrong(field, "0 (none)", byte(at));
        }
    }
    if byte(35) != 1 {
        return wrong("major version", "1", byte(35));
    }
    if byte(36) != 8 {
        return wrong("minor version", "8", byte(36));
    }
    if !content_bits.is_multiple_of(8) {
        return wrong("content size", "whole bytes", u64::from(content_bits));
    }
    if !packet_bits.is_multiple_of(8) {
        return wrong("packet size", "whole bytes", u64::from(packet_bits));
    }
    let (content, size) = ((content_bits / 8) as usize, (packet_bits / 8) as usize);
    if content < HEADER {
        return wrong(
            "content size",
            "at least the header's 296 bits",
            u64::from(content_bits),
        );
    }
    if size < content {
        return wrong(
            "packet size",
            "at least the content size",
            u64::from(packet_bits),
        );
    }
    if size > bytes.len() {
        return wrong(
            "packet size",
            "at most the rest of the file",
            u64::from(packet_bits),
        );
    }
    match bytes.get(HEADER..content) {
        Some(content) => Ok((content, size)),
        None => wrong(
            "content size",
            "at most the rest of the file",
            u64::from(content_bits),
        ),
    }
}
