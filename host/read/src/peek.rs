//! Input of unknown format: a directory, a file, or a pipe whose beginning can be read in advance.
//!
//! A file is mapped. A pipe (standard input, a FIFO, a device) is read incrementally: reading its beginning buffers
//! only those bytes, and the next reader gets them first. Only a format that has to seek copies a pipe to a temporary
//! file, of limited size.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::OpenError;
use crate::bytes::{Bytes, SPOOLED_AT_MOST};

/// An input whose beginning can be read in advance.
pub(crate) struct Peek {
    path: PathBuf,
    content: Content,
}

enum Content {
    Directory,
    File(Bytes),
    Stream {
        /// The bytes read in advance.
        head: Vec<u8>,
        rest: Box<dyn Read + Send>,
        /// Whether [`Peek::first`] may block to read more.
        may_wait: bool,
    },
}

impl Peek {
    /// Opens a directory, a file, a pipe, or with the path `-` standard input.
    ///
    /// # Errors
    /// [`OpenError::Io`] if the operating system refuses.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io {
            path: path.to_owned(),
            source,
        };
        let stream = |rest: Box<dyn Read + Send>| Content::Stream {
            head: Vec::new(),
            rest,
            may_wait: true,
        };
        let content = if path == Path::new("-") {
            stream(Box::new(io::stdin()))
        } else if path.is_dir() {
            Content::Directory
        } else {
            let file = File::open(path).map_err(io)?;
            if file.metadata().map_err(io)?.is_file() {
                Content::File(Bytes::of_file(&file).map_err(io)?)
            } else {
                stream(Box::new(file))
            }
        };
        Ok(Self {
            path: path.to_owned(),
            content,
        })
    }

    /// The path, which is also the name in messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a directory.
    pub(crate) const fn is_directory(&self) -> bool {
        matches!(self.content, Content::Directory)
    }

    /// Whether it is a regular file.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    /// The whole content of a file; `None` for other inputs.
    pub(crate) fn file(&self) -> Option<&Bytes> {
        match &self.content {
            Content::File(bytes) => Some(bytes),
            Content::Directory | Content::Stream { .. } => None,
        }
    }

    /// Sets whether [`first`](Self::first) waits for more bytes of a pipe than are buffered. The format may be known
    /// already, and more bytes may arrive much later.
    pub(crate) fn set_waiting(&mut self, waits: bool) {
        if let Content::Stream { may_wait, .. } = &mut self.content {
            *may_wait = waits;
        }
    }

    /// The first `count` bytes, or all if there are fewer; none for a directory. On a pipe it
    /// [waits](Self::set_waiting) for them.
    ///
    /// # Errors
    /// [`OpenError::Io`] if it cannot be read.
    pub(crate) fn first(&mut self, count: usize) -> Result<&[u8], OpenError> {
        let bytes: &[u8] = match &mut self.content {
            Content::Directory => &[],
            Content::File(bytes) => bytes,
            Content::Stream {
                head,
                may_wait: false,
                ..
            } => head,
            Content::Stream { head, rest, .. } => {
                let missing = count.saturating_sub(head.len());
                let read = rest.take(missing as u64).read_to_end(head);
                read.map_err(|source| OpenError::Io {
                    path: self.path.clone(),
                    source,
                })?;
                head
            }
        };
        Ok(bytes.get(..count).unwrap_or(bytes))
    }

    /// The whole content with random access; at least one byte.
    ///
    /// # Errors
    /// [`OpenError::Io`] if it cannot be read, is a directory, or is a pipe with more than [`SPOOLED_AT_MOST`] bytes;
    /// [`OpenError::Empty`].
    pub(crate) fn into_bytes(self) -> Result<Bytes, OpenError> {
        self.into_bytes_up_to(SPOOLED_AT_MOST)
    }

    fn into_bytes_up_to(self, most: u64) -> Result<Bytes, OpenError> {
        let io = |source| OpenError::Io {
            path: self.path.clone(),
            source,
        };
        let bytes = match self.content {
            Content::Directory => return Err(io(io::ErrorKind::IsADirectory.into())),
            Content::File(bytes) => bytes,
            Content::Stream { head, rest, .. } => {
                Bytes::spool(io::Cursor::new(head).chain(rest), most).map_err(io)?
            }
        };
        if bytes.is_empty() {
            return Err(OpenError::Empty { path: self.path });
        }
        Ok(bytes)
    }

    /// Incremental reader of a whole pipe; `None` for other inputs.
    pub(crate) fn into_reader(self) -> Option<Box<dyn Read + Send>> {
        match self.content {
            Content::Stream { head, rest, .. } => Some(Box::new(io::Cursor::new(head).chain(rest))),
            Content::Directory | Content::File(_) => None,
        }
    }
}

/// Recognises common formats that are not traces, by their first bytes (as `file(1)` does).
pub(crate) fn foreign(head: &[u8]) -> Option<&'static str> {
    /// Number of zeros at the beginning that mark an input as zeros.
    const ZEROS: usize = 4096;
    const SIGNATURES: [(&[u8], &str); 16] = [
        (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        (b"\xff\xd8\xff", "a JPEG picture"),
        (b"GIF8", "a GIF picture"),
        (b"%PDF-", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive: unpack it first"),
        (b"\x1f\x8b\x08", "a gzip file: unpack it first"),
        (b"\xfd7zXZ\0", "an xz file: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a Zstandard file: unpack it first"),
        (b"BZh", "a bzip2 file: unpack it first"),
        (b"!<arch>\n", "a library of object files"),
        (b"#!/", "a script"),
        (
            b"TRACE:\nx",
            "a compressed trace of Android's atrace: record it without -z",
        ),
        (
            b"# tracer: mmiotrace",
            "accesses to the registers of devices (mmiotrace), which are no events of threads",
        ),
        (b"Ftrace!", "data of uftrace, which uftrace reads"),
        (b"*version\n", "a method trace of Android's runtime"),
        (
            b"{\"traceEvents\"",
            "trace-event JSON, as browsers have it: it is written, and not read",
        ),
    ];
    if head.starts_with(b"\x7fELF") {
        // The type is at offset 16, in the byte order at offset 5.
        let at = |place: usize| head.get(place).copied().unwrap_or(0);
        let kind = match at(5) {
            2 => at(17),
            _ => at(16),
        };
        return Some(match kind {
            1 => "an ELF object file",
            4 => "an ELF core file: give the program with --elf",
            _ => "an ELF executable",
        });
    }
    if head.len() >= ZEROS && head.iter().all(|byte| *byte == 0) {
        return Some("zeros");
    }
    if is_perfetto(head) {
        return Some("a Perfetto trace: it is written, and not read");
    }
    let mut known = SIGNATURES.into_iter();
    let (_, what) = known.find(|(start, _)| head.starts_with(start))?;
    Some(what)
}

/// Whether the bytes are consecutive packets, as in Perfetto's protobuf messages (`Trace.packet`, field 1).
fn is_perfetto(head: &[u8]) -> bool {
    /// Number of packets that rules out a coincidence.
    const PACKETS: usize = 3;
    /// Wire types of a packet's first field: 2 for a length, 0 for a varint, 1 for 64 bits.
    const TYPES: [u8; 3] = [0, 1, 2];
    // A log may begin with empty lines.
    if head.iter().take(64).all(u8::is_ascii) {
        return false;
    }
    let mut rest = head;
    for _ in 0..PACKETS {
        let Some((0x0A, behind)) = rest.split_first() else {
            return false;
        };
        let digits = behind.iter().take(4).position(|byte| *byte < 0x80);
        let Some((length, packet)) = digits.and_then(|last| behind.split_at_checked(last + 1))
        else {
            return false;
        };
        let length = length
            .iter()
            .rev()
            .fold(0, |length, byte| length << 7 | usize::from(byte & 0x7F));
        let fits = packet
            .first()
            .is_some_and(|first| TYPES.contains(&(first & 7)) && *first > 7);
        match packet.get(length..) {
            Some(next) if fits && length > 0 => rest = next,
            _ => return false,
        }
    }
    true
}

/// Number of bytes that [`foreign`] needs.
pub(crate) const FOREIGN_HEAD: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: impl Read + Send + 'static) -> Peek {
        Peek {
            path: "-".into(),
            content: Content::Stream {
                head: Vec::new(),
                rest: Box::new(bytes),
                may_wait: true,
            },
        }
    }

    #[test]
    fn what_was_looked_at_comes_first_however_it_is_read() {
        let text = &b"some bytes of a pipe"[..];
        let mut peek = stream(text);
        assert_eq!(peek.first(4).unwrap(), b"some");
        assert_eq!(peek.first(2).unwrap(), b"so");
        assert_eq!(peek.first(100).unwrap(), text);
        let mut all = Vec::new();
        let mut reader = peek.into_reader().unwrap();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, text);
        let mut peek = stream(text);
        assert_eq!(peek.first(4).unwrap(), b"some");
        assert_eq!(&*peek.into_bytes().unwrap(), text);
    }

    #[test]
    fn a_pipe_is_not_waited_for_when_it_is_known() {
        let mut peek = stream(&b"some bytes"[..]);
        assert_eq!(peek.first(4).unwrap(), b"some");
        peek.set_waiting(false);
        assert_eq!(peek.first(10).unwrap(), b"some");
        assert_eq!(peek.first(2).unwrap(), b"so");
        peek.set_waiting(true);
        assert_eq!(peek.first(5).unwrap(), b"some ");
        assert_eq!(&*peek.into_bytes().unwrap(), b"some bytes");
    }

    #[test]
    fn a_pipe_without_end_is_not_copied_without_end() {
        assert!(stream(&b"12345"[..]).into_bytes_up_to(5).is_ok());
        let refused = stream(io::repeat(7)).into_bytes_up_to(5).unwrap_err();
        let expected = "-: more than 5 bytes came through a pipe";
        assert!(refused.to_string().starts_with(expected), "{refused}");
        let empty = stream(io::empty()).into_bytes();
        assert!(matches!(empty, Err(OpenError::Empty { .. })));
    }

    #[test]
    fn what_is_no_trace_is_known_by_its_beginning() {
        let elf = |order, kind: [u8; 2]| {
            let mut head = b"\x7fELF\x02".to_vec();
            head.extend([order; 11]);
            head.extend(kind);
            foreign(&head)
        };
        assert_eq!(elf(1, [2, 0]), Some("an ELF executable"));
        assert_eq!(elf(2, [0, 1]), Some("an ELF object file"));
        assert_eq!(
            elf(1, [4, 0]),
            Some("an ELF core file: give the program with --elf")
        );
        assert_eq!(foreign(&[0; FOREIGN_HEAD]), Some("zeros"));
        assert_eq!(foreign(&[0; 100]), None);
        assert_eq!(foreign(b"\xc1\x1f\xfc\xc1"), None);
    }
}
