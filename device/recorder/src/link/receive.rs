//! Parses received bytes into lines and frames.
//!
//! Bytes are text until a zero byte, then a frame until the next one ([`kymo_wire::link`]). Two zeros in a row are the
//! end of one frame and the start of the next, so a lost zero costs one frame and not all that follow.
//!
//! A zero byte can also be noise (a plug, a break on the line), or come from a host that stopped in the middle of a
//! frame. The following bytes then seem to be in a frame. A host that starts a conversation sends only text, so the
//! line `identify` is recognized inside a frame, too, and ends it.

use kymo_wire::link::Frame;
use kymo_wire::link::frame::MAX_WIRE;

use super::ring::LOST;

/// A complete input, or a failed one.
#[derive(Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A line of text, without its terminator.
    Line(&'a [u8]),
    /// A line that was longer than any command.
    TooLong,
    /// A line with lost bytes.
    Torn,
    /// A command in a frame.
    Command {
        /// The request's number.
        request: u8,
        /// The command line.
        text: &'a [u8],
    },
    /// A frame that is damaged, or that no host sends.
    Damaged,
}

/// The line that ends a frame, without its terminator, as the number that its bytes form.
const IDENTIFY: u64 = u64::from_be_bytes(*b"identify");

/// Parser for single bytes. All zero at the beginning.
#[derive(Debug)]
pub struct Receiver {
    buffer: [u8; MAX_WIRE],
    length: usize,
    in_frame: bool,
    too_long: bool,
    torn: bool,
    /// The last eight bytes, the newest lowest.
    recent: u64,
}

impl Receiver {
    /// A parser without input.
    pub const fn new() -> Self {
        Self {
            buffer: [0; MAX_WIRE],
            length: 0,
            in_frame: false,
            too_long: false,
            torn: false,
            recent: 0,
        }
    }

    /// Processes a byte; returns the input that it completes.
    pub fn feed(&mut self, byte: u8) -> Option<Input<'_>> {
        match (self.in_frame, byte) {
            (true, 0) if self.length == 0 => None,
            (true, 0) => {
                self.in_frame = false;
                Some(self.frame())
            }
            (true, b'\r' | b'\n') if self.recent == IDENTIFY => {
                self.start();
                self.in_frame = false;
                Some(Input::Line(b"identify"))
            }
            (false, 0) => {
                // An unterminated line is ignored.
                self.start();
                self.in_frame = true;
                None
            }
            (false, b'\r' | b'\n') => self.line(),
            (false, LOST) => {
                self.torn = true;
                None
            }
            (false, 0x08 | 0x7F) => {
                self.length = self.length.saturating_sub(1);
                None
            }
            (false, byte) if byte < b' ' && byte != b'\t' => None,
            (_, byte) => {
                self.recent = self.recent << 8 | u64::from(byte);
                match self.buffer.get_mut(self.length) {
                    Some(place) => {
                        *place = byte;
                        self.length += 1;
                    }
                    None => self.too_long = true,
                }
                None
            }
        }
    }

    /// Starts again; returns the previous length, too long, torn.
    fn start(&mut self) -> (usize, bool, bool) {
        let was = (self.length, self.too_long, self.torn);
        (self.length, self.too_long, self.torn) = (0, false, false);
        self.recent = 0;
        was
    }

    fn line(&mut self) -> Option<Input<'_>> {
        match self.start() {
            (_, true, _) => Some(Input::TooLong),
            (_, _, true) => Some(Input::Torn),
            (0, ..) => None,
            (length, ..) => Some(Input::Line(self.buffer.get(..length)?)),
        }
    }

    fn frame(&mut self) -> Input<'_> {
        let (length, too_long, _) = self.start();
        if too_long {
            return Input::Damaged;
        }
        let bytes = self.buffer.get_mut(..length).unwrap_or(&mut []);
        match Frame::decode(bytes) {
            Some(Frame::Command { request, text }) => Input::Command { request, text },
            _ => Input::Damaged,
        }
    }
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}

/// For fuzzing: checks that no input causes a panic, and that an intact command behind it is understood once two zeros
/// have ended any open frame.
#[doc(hidden)]
pub fn check_receiver(bytes: &[u8]) {
    let mut receiver = Receiver::new();
    for &byte in bytes {
        if let Some(Input::Line(line)) = receiver.feed(byte) {
            let _ = kymo_wire::link::Command::parse(line);
        }
    }
    let command = Frame::Command {
        request: 7,
        text: b"ping",
    };
    let mut wire = [0; MAX_WIRE];
    let length = command.encode(&mut wire).unwrap_or(0);
    let mut understood = false;
    // The first frame may be taken as the rest of an open one; the second may not.
    for &byte in wire[..length].iter().chain(&wire[..length]) {
        let input = receiver.feed(byte);
        let ping = Input::Command {
            request: 7,
            text: b"ping",
        };
        understood |= input == Some(ping);
    }
    assert!(understood, "a command was swallowed");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_with_either_end_and_an_empty_one_is_nothing() {
        let mut receiver = Receiver::new();
        let mut lines = Vec::new();
        for byte in *b"\r\nping\r\n\n\x1b sta\x08atus\rtrigger\t1\n" {
            match receiver.feed(byte) {
                None => {}
                Some(Input::Line(line)) => lines.push(String::from_utf8_lossy(line).into_owned()),
                Some(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(lines, ["ping", " status", "trigger\t1"]);
    }

    #[test]
    fn a_line_that_is_too_long_or_torn_is_refused_once() {
        let mut receiver = Receiver::new();
        for _ in 0..1000 {
            assert_eq!(receiver.feed(b'x'), None);
        }
        assert_eq!(receiver.feed(b'\r'), Some(Input::TooLong));
        assert_eq!(receiver.feed(b'\n'), None);
        assert_eq!(receiver.feed(b'a'), None);
        assert_eq!(receiver.feed(LOST), None);
        assert_eq!(receiver.feed(b'\r'), Some(Input::Torn));
        assert_eq!(receiver.feed(b'a'), None);
        assert_eq!(receiver.feed(b'\r'), Some(Input::Line(b"a")));
    }

    #[test]
    fn the_line_identify_ends_a_frame_that_was_left_open() {
        for open in [
            &b"\0"[..],
            b"\0\x03CA",
            b"\0identiidentif",
            &[0; 3],
            &[b"\0", &[b'x'; 900][..]].concat(),
        ] {
            // Some terminals send another terminator than `kymo` does.
            let mut receiver = Receiver::new();
            for &byte in open.iter().chain(b"identify") {
                assert_eq!(receiver.feed(byte), None, "{open:?}");
            }
            assert_eq!(receiver.feed(b'\n'), Some(Input::Line(b"identify")));
            let mut receiver = Receiver::new();
            for &byte in open.iter().chain(b"identify") {
                assert_eq!(receiver.feed(byte), None, "{open:?}");
            }
            assert_eq!(receiver.feed(b'\r'), Some(Input::Line(b"identify")));
            for byte in *b"ping" {
                assert_eq!(receiver.feed(byte), None);
            }
            assert_eq!(receiver.feed(b'\r'), Some(Input::Line(b"ping")));
        }
    }

    #[test]
    fn damage_never_swallows_more_than_a_frame() {
        check_receiver(b"");
        check_receiver(&[0]);
        check_receiver(&[0, 1, 2]);
        check_receiver(&[b'x'; 2000]);
        let mut seed = 1u32;
        for length in 0..2000 {
            let bytes: Vec<u8> = (0..length % 700)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if seed >> 28 == 0 {
                        0
                    } else {
                        (seed >> 20) as u8
                    }
                })
                .collect();
            check_receiver(&bytes);
        }
    }
}
