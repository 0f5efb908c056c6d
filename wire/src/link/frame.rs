//! Frames: the content between two zero bytes.
//!
//! | offset | type | field |
//! |---|---|---|
//! | 0 | u8 | kind |
//! | 1 | u8 | request: the command's number, repeated in all its replies |
//! | 2 | | the rest, depending on the kind |
//! | last 4 | u32 | CRC-32 of all before, least significant byte first |
//!
//! All integers in a frame are little-endian, whatever the target's byte order.

use super::cobs;
use super::crc::crc32;

/// Maximum length of a command's or reply's text in a frame.
pub const MAX_TEXT: usize = 320;

/// Maximum length of a frame's content: kind, request, success, text, CRC.
pub const MAX_CONTENT: usize = 3 + MAX_TEXT + 4;

/// Maximum length of a frame on the wire: COBS adds a byte or two, and there is a zero before and after.
pub const MAX_WIRE: usize = MAX_CONTENT + MAX_CONTENT / 254 + 1 + 2;

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// Host to target: a command line without its end.
    Command = b'C',
    /// Target to host: the reply to a command.
    Reply = b'R',
    /// Target to host: a piece of a dump, or of a stream's packet.
    Data = b'D',
    /// Target to host: all requested pieces have been sent.
    End = b'E',
}

/// Decoded content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame<'a> {
    /// See [`FrameKind::Command`].
    Command {
        /// The request number, which the replies repeat.
        request: u8,
        /// The command line.
        text: &'a [u8],
    },
    /// See [`FrameKind::Reply`].
    Reply {
        /// The command's request number.
        request: u8,
        /// Whether the command was executed; otherwise `text` contains the reason.
        ok: bool,
        /// The reply.
        text: &'a [u8],
    },
    /// See [`FrameKind::Data`].
    Data {
        /// The command's request number.
        request: u8,
        /// The number of the piece. Piece `number` of a dump begins at byte `number * DATA_BYTES`; the pieces of a
        /// stream are numbered consecutively ([`link`](super)).
        number: u32,
        /// The bytes: [`DATA_BYTES`](super::DATA_BYTES), fewer in the last piece.
        bytes: &'a [u8],
    },
    /// See [`FrameKind::End`].
    End {
        /// The command's request number.
        request: u8,
        /// The number of pieces of the whole dump.
        frames: u32,
        /// The number of bytes of the whole dump.
        bytes: u32,
        /// CRC-32 of the whole dump.
        crc: u32,
    },
}

impl<'a> Frame<'a> {
    /// Encodes the frame for the wire, zero bytes included, and returns its length; `None` if its text or data is too
    /// long ([`MAX_TEXT`], [`DATA_BYTES`](super::DATA_BYTES)).
    pub fn encode(&self, out: &mut [u8; MAX_WIRE]) -> Option<usize> {
        let mut content = [0; MAX_CONTENT];
        let mut length = 0;
        let mut put = |bytes: &[u8]| {
            content
                .get_mut(length..length + bytes.len())?
                .copy_from_slice(bytes);
            length += bytes.len();
            Some(())
        };
        match *self {
            Self::Command { request, text } => {
                put(&[FrameKind::Command as u8, request])?;
                put(text)?;
            }
            Self::Reply { request, ok, text } => {
                put(&[FrameKind::Reply as u8, request, ok.into()])?;
                put(text)?;
            }
            Self::Data {
                request,
                number,
                bytes,
            } => {
                put(&[FrameKind::Data as u8, request])?;
                put(&number.to_le_bytes())?;
                put(bytes)?;
            }
            Self::End {
                request,
                frames,
                bytes,
                crc,
            } => {
                put(&[FrameKind::End as u8, request])?;
                put(&frames.to_le_bytes())?;
                put(&bytes.to_le_bytes())?;
                put(&crc.to_le_bytes())?;
            }
        }
        let crc = crc32(content.get(..length)?);
        content
            .get_mut(length..length + 4)?
            .copy_from_slice(&crc.to_le_bytes());
        out[0] = 0;
        let encoded = cobs::encode(&content[..length + 4], &mut out[1..])?;
        *out.get_mut(encoded + 1)? = 0;
        Some(encoded + 2)
    }

    /// Decodes in place the bytes between two zero bytes; `None` if they are damaged (invalid COBS, wrong CRC) or not a
    /// frame defined here.
    pub fn decode(bytes: &'a mut [u8]) -> Option<Self> {
        let length = cobs::decode_in_place(bytes, bytes.len())?;
        let bytes: &'a [u8] = bytes;
        let (content, crc) = bytes.get(..length)?.split_last_chunk::<4>()?;
        if u32::from_le_bytes(*crc) != crc32(content) {
            return None;
        }
        let word = |at: usize| {
            let bytes = content.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let request = *content.get(1)?;
        Some(match *content.first()? {
            kind if kind == FrameKind::Command as u8 => Self::Command {
                request,
                text: &content[2..],
            },
            kind if kind == FrameKind::Reply as u8 => Self::Reply {
                request,
                ok: *content.get(2)? != 0,
                text: &content[3..],
            },
            kind if kind == FrameKind::Data as u8 => Self::Data {
                request,
                number: word(2)?,
                bytes: content.get(6..)?,
            },
            kind if kind == FrameKind::End as u8 => Self::End {
                request,
                frames: word(2)?,
                bytes: word(6)?,
                crc: word(10)?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_and_damage_is_seen() {
        let frames = [
            Frame::Command {
                request: 1,
                text: b"status",
            },
            Frame::Reply {
                request: 1,
                ok: true,
                text: b"",
            },
            Frame::Data {
                request: 0,
                number: 0x0001_0000,
                bytes: &[0; crate::link::DATA_BYTES],
            },
            Frame::End {
                request: 255,
                frames: 1,
                bytes: 2,
                crc: 3,
            },
        ];
        for frame in frames {
            let mut wire = [0xAA; MAX_WIRE];
            let length = frame.encode(&mut wire).unwrap();
            assert_eq!((wire[0], wire[length - 1]), (0, 0));
            for flip in 1..length - 1 {
                let mut damaged = wire;
                damaged[flip] ^= 0x10;
                assert_eq!(Frame::decode(&mut damaged[1..length - 1]), None);
            }
            assert_eq!(Frame::decode(&mut wire[1..length - 1]), Some(frame));
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let text = [b'x'; MAX_TEXT + 1];
        let frame = |text| Frame::Reply {
            request: 0,
            ok: false,
            text,
        };
        assert!(frame(&text).encode(&mut [0; MAX_WIRE]).is_none());
        assert!(frame(&text[1..]).encode(&mut [0; MAX_WIRE]).is_some());
    }
}
