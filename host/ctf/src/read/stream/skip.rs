//! Recovery after damage.
//!
//! A packet is decoded from its beginning, so content after an error is lost up to the next packet. That begins at the
//! stated end of the damaged packet, if its size was decoded and a packet really begins there; otherwise at the next
//! magic number, if packets of the trace begin with one; otherwise it cannot be found.

use super::super::window::Shortage;
use super::StreamReader;
use super::packet::MAGIC;
use crate::error::{DecodeError, DecodeErrorKind as Kind};
use crate::metadata::{ByteOrder, FieldClass, Form, Role};

/// Number of bytes searched for a magic number at once.
const STEP: u64 = 64 << 10;

/// Number of bytes in which the UUID of a packet header is searched.
const MOST_HEADER: usize = 64;

/// A part of a stream that was skipped after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skipped {
    /// The error.
    pub error: DecodeError,
    /// Number of the damaged packet in the stream, from 0.
    pub packet: u64,
    /// Begin of the skipped part, in bits from the start of the file; everything before it has been returned.
    pub from: u64,
    /// End of the skipped part, where reading continues, in bytes from the start of the file; `None` when nothing
    /// after the error can be read.
    pub to: Option<u64>,
    /// How that position was found.
    pub resume: Resume,
    /// Whether all bytes from `from` to the end of the stream are zero, in a stream without packet sizes in which no
    /// event has the id 0: the unused rest of a buffer that was dumped completely.
    pub is_unused: bool,
    /// Whether this is no stream of the trace at all: nowhere is the magic number, and the file does not begin with a
    /// packet header with the trace's UUID, or if headers have none, it begins with text.
    pub is_other_file: bool,
}

impl Skipped {
    /// A remark for users on the [unused rest](Self::is_unused) of the stream with this name.
    pub fn unused(&self, stream: &str) -> Option<String> {
        let offset = self.from / 8;
        self.is_unused.then(|| {
            format!(
                "{stream}: all bytes from offset {offset} to the end are zero, and no event has the id 0: taken for the unused \
                 rest of a buffer"
            )
        })
    }
}

/// How the position after damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resume {
    /// The stated end of the damaged packet.
    PacketSize,
    /// A magic number. Bytes in the damaged packet may look like one; then another error follows.
    Magic,
    /// The begin of the stream's next file. The skipped part extends to the end of the damaged one.
    NextFile,
    /// None was found: the stream ends, or its packets cannot be told apart.
    End,
}

impl StreamReader {
    /// After an error: continues at the next packet after the damage and returns the skipped part. `None` if there was
    /// no error.
    ///
    /// Messages then continue as usual: packets that were skipped completely show as a gap in the sequence numbers, if
    /// the stream has any.
    ///
    /// ```no_run
    /// # fn read(mut reader: kymo_ctf::StreamReader) -> Result<(), kymo_ctf::DecodeError> {
    /// loop {
    ///     match reader.next_message() {
    ///         Ok(Some(message)) => println!("{message:?}"),
    ///         Ok(None) => break,
    ///         Err(_) => println!("lost: {:?}", reader.skip()?),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The input cannot be read. Then the stream is at its end.
    pub fn skip(&mut self) -> Result<Option<Skipped>, DecodeError> {
        let Some(error) = self.error.take() else {
            return Ok(None);
        };
        let from = self
            .view
            .packet
            .offset
            .saturating_mul(8)
            .saturating_add(self.at);
        let is_unused =
            matches!(error.kind, Kind::UnknownEvent { found: 0 }) && self.is_unused(from / 8)?;
        let mut is_other_file = error.packet == 0 && self.begins_otherwise(error.kind);
        let (to, resume) = match error.kind {
            _ if is_unused => (None, Resume::End),
            // If the first packet belongs to another trace, the whole stream does.
            Kind::ForeignUuid if error.packet == 0 => (None, Resume::End),
            Kind::Io(_) => (None, Resume::End),
            _ => self.next_packet(from / 8)?,
        };
        is_other_file &= to.is_none();
        let end = self.view.window.end();
        let (to, resume) = match to {
            None if self.next_file()? => (Some(end), Resume::NextFile),
            Some(to) => {
                (self.view.packet.offset, self.view.packet.size) = (to, Some(0));
                (Some(to), resume)
            }
            None => (None, resume),
        };
        if to.is_some() {
            self.failed = false;
            self.open = false;
            self.announce = false;
            (self.gaps, self.behind) = ([None; 2], None);
            self.pending = None;
        }
        Ok(Some(Skipped {
            error,
            packet: error.packet,
            from,
            to,
            resume,
            is_unused,
            is_other_file,
        }))
    }

    /// Whether the first bytes cannot be the damaged header of a packet of the trace.
    fn begins_otherwise(&self, error: Kind) -> bool {
        let (bytes, first) = self.view.window.from(0);
        let head = bytes.get(..bytes.len().min(MOST_HEADER)).unwrap_or(bytes);
        let is_text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
        let metadata = self.view.plan.metadata();
        let header = metadata.packet_header.iter().flat_map(|it| &it.members);
        let mut states_uuid = header.map(|member| match &member.class {
            FieldClass::Array(class) => class.is_uuid,
            FieldClass::Blob(class) => class.is_uuid,
            _ => false,
        });
        let uuid = metadata.uuid.filter(|_| states_uuid.any(|it| it));
        matches!(error, Kind::Magic { .. })
            && first == 0
            && match uuid {
                Some(uuid) => !head.windows(uuid.0.len()).any(|it| *it == uuid.0),
                None => head.iter().take(4).all(is_text),
            }
    }

    /// Whether the bytes from `at` to the end of the stream are zero, and no packet states its size.
    fn is_unused(&mut self, mut at: u64) -> Result<bool, DecodeError> {
        if self.view.packet.size.is_some_and(|size| size > 0) || self.magic().is_some() {
            return Ok(false);
        }
        loop {
            let more = self.hold(at, at.saturating_add(STEP))?;
            let (bytes, first) = self.view.window.from(at);
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            match more {
                Some(true) => at = first + bytes.len() as u64,
                Some(false) => return Ok(true),
                None => return Ok(false),
            }
        }
    }

    /// The position of the packet after the damaged one, of which the bytes up to `given` have been used.
    fn next_packet(&mut self, given: u64) -> Result<(Option<u64>, Resume), DecodeError> {
        let start = self.view.packet.offset;
        let magic = self.magic();
        if let Some(size) = self.view.packet.size.filter(|size| *size > 0) {
            let next = start.saturating_add(size / 8);
            match self.hold(given, next.saturating_add(4))? {
                // The packet is too large to be held for a search, so trust its size.
                None => return Ok((Some(next), Resume::PacketSize)),
                Some(true) if magic.is_none_or(|magic| self.is_at(next, magic)) => {
                    return Ok((Some(next), Resume::PacketSize));
                }
                // The stream ends with the packet, or less than 4 bytes after it.
                Some(false) if self.view.window.end() >= next => {
                    return Ok((Some(next), Resume::PacketSize));
                }
                Some(_) => {}
            }
        }
        let Some(magic) = magic else {
            return Ok((None, Resume::End));
        };
        let mut at = given.max(start.saturating_add(1));
        loop {
            let more = self.hold(at, at.saturating_add(STEP))?;
            let (bytes, first) = self.view.window.from(at);
            if let Some(index) = bytes.windows(4).position(|four| four == magic) {
                return Ok((Some(first + index as u64), Resume::Magic));
            }
            if more != Some(true) {
                return Ok((None, Resume::End));
            }
            // A magic number may begin in the last bytes.
            at = (first + bytes.len() as u64).saturating_sub(3);
        }
    }

    /// Reads the bytes of the stream from `keep` to `upto` into memory; returns whether the stream has them, `None` if
    /// they are too many.
    fn hold(&mut self, keep: u64, upto: u64) -> Result<Option<bool>, DecodeError> {
        match self.view.window.fill(keep, upto) {
            Ok(all) => Ok(Some(all)),
            Err(Shortage::TooLarge(_)) => Ok(None),
            Err(Shortage::Io(kind)) => Err(self.error(Kind::Io(kind), 0)),
        }
    }

    fn is_at(&self, place: u64, magic: [u8; 4]) -> bool {
        let (bytes, first) = self.view.window.from(place);
        first == place && bytes.starts_with(&magic)
    }

    /// The bytes at the start of every packet, if the metadata specifies them.
    fn magic(&self) -> Option<[u8; 4]> {
        let first = self
            .view
            .plan
            .metadata()
            .packet_header
            .as_ref()?
            .members
            .first()?;
        let FieldClass::Integer(class) = &first.class else {
            return None;
        };
        let plain = (class.role, class.size, class.form) == (Some(Role::Magic), 32, Form::Fixed);
        plain.then(|| match class.byte_order {
            ByteOrder::Little => (MAGIC as u32).to_le_bytes(),
            ByteOrder::Big => (MAGIC as u32).to_be_bytes(),
        })
    }
}
