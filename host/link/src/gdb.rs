//! Client of GDB's remote serial protocol, which reads a target's memory through a debug server.
//!
//! QEMU, OpenOCD, pyOCD, J-Link and probe-rs provide such servers. The client implements only what reading memory
//! needs: packets with checksums, acknowledged until the server agrees to work without; escapes and run-length encoding
//! in answers; `qSupported`, `?`, `m` and `D`. (*Debugging with GDB*, appendix E, "The GDB Remote Serial Protocol".)
//!
//! Servers halt a target when a debugger connects, so that its memory does not change, and resume it when the debugger
//! detaches. A connection that is closed without detaching leaves it halted.

use std::io;
use std::time::{Duration, Instant};

use crate::{LinkError, TcpTransport, Transport};

/// Longest accepted packet in bytes. Servers have buffers of a few KiB.
const MOST: usize = 1 << 20;

/// Bytes requested at once where a server accepts any number.
const PIECE: usize = 4 << 10;

/// Packet size of a server that does not report one: GDB's own assumption.
const LEAST_PACKET: usize = 400;

/// How often a damaged packet is requested again.
const REPEATS: u32 = 3;

/// Error while reading memory through a debug server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GdbError {
    /// The connection could not be opened.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The connection ended.
    #[error("the connection to the debug server was lost")]
    Lost(#[source] io::Error),
    /// No answer, or no packet in it.
    #[error("no answer of a debug server to `{command}` within {:.1} s", waited.as_secs_f64())]
    NoAnswer {
        /// The command.
        command: String,
        /// How long the client waited.
        waited: Duration,
    },
    /// The packet's checksum is wrong.
    #[error(
        "the answer to `{command}` is damaged: expected the checksum {expected:#04x}, found {found:#04x}"
    )]
    Damaged {
        /// The command.
        command: String,
        /// The computed checksum.
        expected: u8,
        /// The checksum in the packet.
        found: u8,
    },
    /// The answer does not fit the command.
    #[error("expected {expected} as the answer to `{command}`, found `{found}`")]
    Unexpected {
        /// The command.
        command: String,
        /// The expected answer.
        expected: &'static str,
        /// The beginning of the answer.
        found: String,
    },
    /// The server has no target.
    #[error("the debug server has no target: `?` was answered by `{found}`")]
    NoTarget {
        /// The answer.
        found: String,
    },
}

/// A connection to a debug server.
pub struct Debugger {
    transport: Box<dyn Transport>,
    /// Received bytes that have not been parsed yet.
    come: Vec<u8>,
    /// Time-out of an answer.
    timeout: Duration,
    /// Whether packets are acknowledged, in both directions.
    acknowledged: bool,
    /// Bytes of memory that fit into one answer.
    piece: usize,
    /// The process that is stopped, in hexadecimal digits.
    process: String,
}

impl std::fmt::Debug for Debugger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Debugger")
            .field("acknowledged", &self.acknowledged)
            .field("piece", &self.piece)
            .finish_non_exhaustive()
    }
}

impl Debugger {
    /// Connects to the server at this host and port, which halts the target with most servers. `timeout` applies to the
    /// connection and to each answer.
    ///
    /// # Errors
    /// [`GdbError`] if nothing listens there, it is no debug server, or it has no target.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, GdbError> {
        let transport = TcpTransport::connect(host, port, timeout)?;
        Self::over(Box::new(transport), timeout)
    }

    /// Starts the protocol over an existing connection.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn over(transport: Box<dyn Transport>, timeout: Duration) -> Result<Self, GdbError> {
        let mut debugger = Self {
            transport,
            come: Vec::new(),
            timeout,
            acknowledged: true,
            piece: LEAST_PACKET / 2,
            process: "1".to_owned(),
        };
        let supported = debugger.ask("qSupported")?;
        let supported = String::from_utf8_lossy(&supported);
        let size = supported
            .split(';')
            .find_map(|feature| feature.strip_prefix("PacketSize="));
        if let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) {
            // Two digits per byte, minus the framing.
            debugger.piece = (size / 2).saturating_sub(4).clamp(1, PIECE);
        }
        if supported.contains("QStartNoAckMode+") && debugger.ask("QStartNoAckMode")? == b"OK" {
            debugger.acknowledged = false;
        }
        let state = debugger.ask("?")?;
        if let Some(process) = process(&state) {
            debugger.process = process;
        }
        match state.first() {
            // Stopped by a signal, or running (`OK`); an empty answer tells nothing.
            Some(b'S' | b'T' | b'O') | None => Ok(debugger),
            _ => Err(GdbError::NoTarget {
                found: shown(&state),
            }),
        }
    }

    /// Reads `length` bytes of memory from `address` on, or fewer if the server returns fewer.
    ///
    /// # Errors
    /// [`GdbError`] if the server doesn't answer, or its answer is invalid. A refused address is no error: the result
    /// is what was read before it.
    pub fn read(&mut self, address: u64, length: usize) -> Result<Vec<u8>, GdbError> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let at = address.wrapping_add(bytes.len() as u64);
            let piece = self.piece.min(length - bytes.len());
            let command = format!("m{at:x},{piece:x}");
            let answer = self.ask(&command)?;
            // An error: `E` and two digits, which have no even count, or `E.` and a text.
            if answer.starts_with(b"E.") || (answer.first() == Some(&b'E') && answer.len() == 3) {
                break;
            }
            let unexpected = || GdbError::Unexpected {
                command: command.clone(),
                expected: "hexadecimal digits, no more than were asked for",
                found: shown(&answer),
            };
            let piece_of_it = hexadecimal(&answer).ok_or_else(unexpected)?;
            if piece_of_it.len() > piece {
                return Err(unexpected());
            }
            if piece_of_it.is_empty() {
                break;
            }
            bytes.extend_from_slice(&piece_of_it);
        }
        Ok(bytes)
    }

    /// Detaches, which resumes the target.
    ///
    /// # Errors
    /// [`GdbError`] if the server doesn't confirm it.
    pub fn detach(mut self) -> Result<(), GdbError> {
        if self.ask("D")? == b"OK" {
            return Ok(());
        }
        // A server with several processes wants to know which. QEMU does once GDB has been its client.
        let command = format!("D;{}", self.process);
        match &*self.ask(&command)? {
            b"OK" => Ok(()),
            other => Err(GdbError::Unexpected {
                command,
                expected: "OK",
                found: shown(other),
            }),
        }
    }

    /// Sends a command and waits for its answer.
    fn ask(&mut self, command: &str) -> Result<Vec<u8>, GdbError> {
        let deadline = Instant::now() + self.timeout;
        let packet = format!("${command}#{:02x}", sum(command.as_bytes()));
        self.send(packet.as_bytes())?;
        let mut repeats = 0;
        loop {
            let (content, found) = self.packet(command, deadline)?;
            let expected = sum(&content);
            if expected != found {
                if !self.acknowledged || repeats == REPEATS {
                    let command = command.to_owned();
                    return Err(GdbError::Damaged {
                        command,
                        expected,
                        found,
                    });
                }
                repeats += 1;
                self.send(b"-")?;
                continue;
            }
            if self.acknowledged {
                self.send(b"+")?;
            }
            let answer = expanded(&content);
            let is_console = answer.first() == Some(&b'O') && answer != b"OK";
            let is_stop = matches!(answer.first(), Some(b'S' | b'T'));
            // Console output and stop replies may arrive at any time.
            if is_console || (is_stop && command != "?") {
                continue;
            }
            return Ok(answer);
        }
    }

    /// Returns the next packet's content, still encoded, and its checksum.
    fn packet(&mut self, command: &str, deadline: Instant) -> Result<(Vec<u8>, u8), GdbError> {
        loop {
            if let Some((packet, used)) = first_packet(&self.come) {
                self.come.drain(..used);
                return Ok(packet);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.come.len() > MOST {
                return Err(GdbError::NoAnswer {
                    command: command.to_owned(),
                    waited: self.timeout,
                });
            }
            let mut room = [0; 4096];
            let read = self.transport.read(&mut room, left);
            let read = read.map_err(GdbError::Lost)?;
            self.come
                .extend_from_slice(room.get(..read).unwrap_or_default());
        }
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), GdbError> {
        self.transport
            .write(bytes, self.timeout)
            .map_err(GdbError::Lost)
    }
}

/// The process of a stop reply, `T05thread:p2.1;`.
fn process(state: &[u8]) -> Option<String> {
    let state = String::from_utf8_lossy(state);
    let (process, _) = state.split_once("thread:p")?.1.split_once('.')?;
    let is_number = process.bytes().all(|digit| digit.is_ascii_hexdigit());
    (is_number && !process.is_empty()).then(|| process.to_owned())
}

/// Finds the first complete packet: returns its content and checksum, and how many bytes it and everything before it
/// take. Skips acknowledgements and notifications (`%`).
fn first_packet(come: &[u8]) -> Option<((Vec<u8>, u8), usize)> {
    let mut at = 0;
    loop {
        at += come
            .get(at..)?
            .iter()
            .position(|byte| b"$%".contains(byte))?;
        let begin = at + 1;
        let end = begin + come.get(begin..)?.iter().position(|byte| *byte == b'#')?;
        let digits = come.get(end + 1..end + 3)?;
        let is_answer = come.get(at) == Some(&b'$');
        at = end + 3;
        // Without valid digits, a checksum that cannot match.
        let content = come.get(begin..end)?.to_vec();
        let checksum = hexadecimal(digits).and_then(|bytes| bytes.first().copied());
        let checksum = checksum.unwrap_or_else(|| !sum(&content));
        if is_answer {
            return Some(((content, checksum), at));
        }
    }
}

/// The checksum of a packet's content: the sum of its bytes modulo 256.
fn sum(content: &[u8]) -> u8 {
    content.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Decodes escapes (`}` and a byte with bit 5 inverted) and runs (a byte, `*`, and a count as a character: 29 more than
/// the number of repetitions). Stops soon after [`MOST`] bytes.
fn expanded(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len());
    let mut bytes = content.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'}' => out.extend(bytes.next().map(|byte| byte ^ 0x20)),
            b'*' => {
                let times = bytes.next().map_or(0, |count| count.saturating_sub(29));
                if let Some(last) = out.last().copied() {
                    out.extend(std::iter::repeat_n(last, times.into()));
                }
            }
            byte => out.push(byte),
        }
        if out.len() > MOST {
            break;
        }
    }
    out
}

/// Decodes hexadecimal digits; `None` if they are invalid.
fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

/// The beginning of an answer, for a message.
fn shown(answer: &[u8]) -> String {
    let first = answer.get(..40).unwrap_or(answer);
    first.escape_ascii().to_string()
}

/// For the fuzz target: parses and expands packets from arbitrary bytes.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    let mut rest = data;
    while let Some(((content, _), used)) = first_packet(rest) {
        let answer = expanded(&content);
        assert!(answer.len() <= MOST + 256);
        let _ = (hexadecimal(&answer), shown(&answer));
        rest = rest.get(used..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_found_among_what_is_none() {
        let come = b"+$OK#9a%Stop:T05#00$m1,2#f";
        let ((content, checksum), used) = first_packet(come).unwrap();
        assert_eq!((&*content, checksum, used), (&b"OK"[..], 0x9a, 7));
        assert_eq!(sum(b"OK"), 0x9a);
        // The notification is skipped; the packet after it is incomplete.
        assert_eq!(first_packet(&come[used..]), None);
    }

    #[test]
    fn runs_and_escapes_are_expanded() {
        // The example of GDB's manual: `0* ` is four zeros.
        assert_eq!(expanded(b"0* "), b"0000");
        assert_eq!(expanded(b"}\x03x*\""), b"#xxxxxx");
        assert_eq!(expanded(b"*!"), b"");
        assert_eq!(expanded(b"}"), b"");
    }

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(hexadecimal(b"00fFa5"), Some(vec![0, 0xff, 0xa5]));
        assert_eq!(hexadecimal(b"0"), None);
        assert_eq!(hexadecimal(b"0x"), None);
    }
}
