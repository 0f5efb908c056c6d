//! Reader of raw files: the target's identity as a line of text, followed by packets.

use std::path::{Path, PathBuf};

use kymo_wire::link::Identity;
use kymo_wire::link::identity::PREFIX;
use memchr::memmem;

use super::Dump;
use super::memory::{Fault, Unfinished, add_faults, is_unfinished, read_unfinished};
use super::source::open_packets;
use crate::bytes::Bytes;
use crate::{OpenError, OpenOptions, Source};

/// Maximum length of an identity line in bytes; real ones are shorter.
pub(super) const LINE_MAX: usize = 4096;

/// A raw file, for code that converts its packets instead of reading its events
/// ([`write_trace`](super::write_trace)).
#[derive(Clone, Debug)]
pub struct RawFile {
    path: PathBuf,
    identity: Identity,
    bytes: Bytes,
    start: usize,
    /// Remarks for the user.
    remarks: Vec<String>,
    damage: Vec<Fault>,
}

impl RawFile {
    /// Opens the raw file at `path`; `-` is standard input.
    ///
    /// # Errors
    /// [`OpenError`] if it cannot be read, or is not a raw file.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let bytes = crate::open::file_bytes(path)?;
        if !is_raw(&bytes) {
            return Err(crate::open::unknown_bytes(path, &bytes));
        }
        Self::new(path, bytes)
    }

    /// Opens a raw file in memory; messages call it `name`.
    ///
    /// # Errors
    /// [`OpenError::Identity`] if it does not begin with an identity line.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, OpenError> {
        Self::new(Path::new(name), Bytes::from(bytes))
    }

    /// Opens a raw file with this content.
    pub(crate) fn new(path: &Path, bytes: Bytes) -> Result<Self, OpenError> {
        if is_unfinished(&bytes) {
            let unfinished = read_unfinished(&bytes).map_err(|message| OpenError::Identity {
                path: path.to_owned(),
                message,
            })?;
            let Unfinished {
                identity,
                packets,
                remarks,
                damage,
            } = unfinished;
            return Ok(Self {
                path: path.to_owned(),
                identity,
                bytes: Bytes::from(packets),
                start: 0,
                remarks,
                damage,
            });
        }
        let (identity, start) = split_identity(&bytes).map_err(|message| OpenError::Identity {
            path: path.to_owned(),
            message: message.to_owned(),
        })?;
        let next = next_recording(&bytes, start);
        let damage = next.map(|next| Fault {
            at: next as u64,
            message: format!(
                "another recording begins here: only the first is read; `tail -c +{}` of the file gives the other",
                next + 1
            ),
        });
        Ok(Self {
            path: path.to_owned(),
            identity,
            bytes: bytes.first(next.unwrap_or(usize::MAX)),
            start,
            remarks: Vec::new(),
            damage: damage.into_iter().collect(),
        })
    }

    /// Reads its events.
    ///
    /// # Errors
    /// [`OpenError::Identity`] if its identity is not valid for a recording.
    pub fn into_source(self, options: &OpenOptions) -> Result<Box<dyn Source>, OpenError> {
        let name = self.path.display().to_string();
        let mut source = open_packets(&self.identity, self.bytes, self.start, &[], options)
            .map_err(|why| why.of_identity(self.path))?;
        source.info_mut().remarks.extend(self.remarks);
        add_faults(source.info_mut(), &name, self.damage);
        Ok(source)
    }

    /// The identity of the recorded target.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The packets. Offsets count from the first packet, after the identity line.
    pub fn dump(&self) -> Dump<'_> {
        Dump {
            identity: &self.identity,
            bytes: self.bytes.get(self.start..).unwrap_or(&[]),
            missing: &[],
            target: self.path.to_str().unwrap_or("raw file"),
        }
    }
}

/// Number of bytes that identify a raw file.
pub(crate) const PREFIX_BYTES: usize = PREFIX.len();

/// Whether `bytes` begin like a raw file.
pub(crate) fn is_raw(bytes: &[u8]) -> bool {
    bytes.starts_with(PREFIX.as_bytes()) || is_unfinished(bytes)
}

/// Offset of another recording's identity line at or after `from`. Its checksum distinguishes it from other text.
fn next_recording(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let lines = memmem::find_iter(rest, PREFIX.as_bytes());
    let mut lines = lines.map(|at| from + at);
    lines.find(|at| {
        bytes
            .get(*at..)
            .is_some_and(|line| split_identity(line).is_ok())
    })
}

/// Splits a raw file into the identity and the offset of its packets.
pub(super) fn split_identity(bytes: &[u8]) -> Result<(Identity, usize), &'static str> {
    let head = bytes.get(..LINE_MAX).unwrap_or(bytes);
    let end = head
        .iter()
        .position(|byte| *byte == b'\n')
        .ok_or("expected a line of text that ends, found none")?;
    let line = head.get(..end).unwrap_or(&[]);
    let line = std::str::from_utf8(line).map_err(|_| "expected text, found other bytes")?;
    let identity = Identity::parse(line).ok_or(
        "expected the words of an identity and their checksum, found some that do not match it",
    )?;
    Ok((identity, end + 1))
}

#[cfg(test)]
mod tests {
    use kymo_event::Batch;

    use super::*;

    #[test]
    fn of_recordings_one_behind_the_other_the_first_is_read() {
        let one = include_bytes!("../../../../cli/tests/data/demo.kymo");
        let read = |bytes: Vec<u8>| {
            let file = RawFile::from_bytes("x.kymo", bytes).unwrap();
            let mut source = file.into_source(&OpenOptions::default()).unwrap();
            let (mut batch, mut count) = (Batch::default(), 0);
            while source.fill(&mut batch).unwrap() {
                count += batch.rows().len();
            }
            let damage = source.info().damage.iter();
            let offsets: Vec<u64> = damage.map(|damage| damage.offset).collect();
            (count, offsets)
        };
        let (alone, nothing) = read(one.to_vec());
        assert_eq!(nothing, [0; 0]);
        let twice = read([&one[..], one].concat());
        assert_eq!(twice, (alone, vec![one.len() as u64]));
        // Text that only looks like an identity line is ordinary damage.
        let mut other = one.to_vec();
        other.extend(b"kymo identify: protocol=3");
        let (count, offsets) = read(other);
        assert_eq!((count, offsets.len()), (alone + 1, 1), "a gap besides");
    }
}
