//! Optional compression layer.

use flate2::{Decompress, FlushDecompress, Status};

/// Number of bytes that are inflated at once.
pub(super) const PIECE: usize = 256 << 10;

/// Returns whether bytes begin like a zlib stream (RFC 1950, section 2.2).
pub(super) fn is_zlib(head: &[u8]) -> bool {
    match head {
        [method, flags, ..] => method & 15 == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0,
        _ => false,
    }
}

/// Inflates the start of a zlib stream, as far as it is available.
pub(super) fn first_bytes(head: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 16];
    let mut inflate = Decompress::new(true);
    let _ = inflate.decompress(head, &mut out, FlushDecompress::Sync);
    out.truncate(usize::try_from(inflate.total_out()).unwrap_or(0));
    out
}

/// Layer that passes bytes through or inflates them, depending on the first two bytes.
#[derive(Default)]
pub(super) struct Layer {
    state: State,
    /// Bytes that wait to be inflated, and how many of them are consumed.
    waiting: Vec<u8>,
    done: usize,
    /// Number of consumed bytes.
    taken: u64,
}

#[derive(Default)]
enum State {
    #[default]
    Unknown,
    Plain,
    Zlib(Box<Decompress>),
    /// The zlib stream has ended.
    Ended,
}

impl Layer {
    /// Adds bytes of the layer below. Bytes that are not compressed are appended to `out` at once.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if matches!(self.state, State::Plain) {
            out.extend_from_slice(bytes);
            self.taken += bytes.len() as u64;
            return;
        }
        self.waiting.drain(..self.done);
        self.done = 0;
        self.waiting.extend_from_slice(bytes);
        if matches!(self.state, State::Unknown) && self.waiting.len() >= 2 {
            if is_zlib(&self.waiting) {
                self.state = State::Zlib(Box::new(Decompress::new(true)));
            } else {
                self.plain(out);
            }
        }
    }

    fn plain(&mut self, out: &mut Vec<u8>) {
        self.state = State::Plain;
        self.taken = self.waiting.len() as u64;
        out.append(&mut self.waiting);
    }

    /// Returns whether there are bytes to inflate.
    pub fn has_more(&self) -> bool {
        match self.state {
            State::Unknown | State::Plain => false,
            State::Zlib(_) | State::Ended => self.done < self.waiting.len(),
        }
    }

    /// Returns the number of consumed bytes.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Inflates a piece of the waiting bytes.
    ///
    /// # Errors
    /// A message that describes the damage.
    pub fn advance(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        let waiting = self.waiting.get(self.done..).unwrap_or(&[]);
        let inflate = match &mut self.state {
            State::Unknown | State::Plain => return Ok(()),
            State::Ended if waiting.is_empty() => return Ok(()),
            State::Ended => {
                return Err(format!(
                    "expected the end of the input behind the zlib stream, found {} more byte{}",
                    waiting.len(),
                    if waiting.len() == 1 { "" } else { "s" }
                ));
            }
            State::Zlib(inflate) => inflate,
        };
        let length = out.len();
        out.resize(length + PIECE, 0);
        let (taken, given) = (inflate.total_in(), inflate.total_out());
        let room = out.get_mut(length..).unwrap_or(&mut []);
        let status = inflate.decompress(waiting, room, FlushDecompress::None);
        let taken = inflate.total_in() - taken;
        let given = usize::try_from(inflate.total_out() - given).unwrap_or(0);
        out.truncate(length + given);
        self.done += usize::try_from(taken).unwrap_or(0);
        self.taken += taken;
        match status {
            Ok(Status::StreamEnd) => {
                self.state = State::Ended;
                Ok(())
            }
            // The decoder needs more input.
            Ok(_) if taken == 0 && given == 0 => {
                let left = self.waiting.len() - self.done;
                if left == 0 {
                    return Ok(());
                }
                Err("expected a zlib stream, found bytes that inflate to nothing".to_owned())
            }
            Ok(_) => Ok(()),
            Err(error) => Err(format!("expected a zlib stream, found damage: {error}")),
        }
    }

    /// Returns a message if the stream is not complete at the end of the input.
    pub fn unfinished(&self) -> Option<String> {
        match &self.state {
            State::Zlib(inflate) => Some(format!(
                "expected the end of the zlib stream, found the end of the input; {} bytes were inflated",
                inflate.total_out()
            )),
            State::Unknown if !self.waiting.is_empty() => {
                Some("expected a stream, found one byte".to_owned())
            }
            _ => None,
        }
    }
}
