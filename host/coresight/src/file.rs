//! Size-limited reading of an input's files.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::Error;

/// The largest file that is read, in bytes: 4 GiB.
pub(crate) const LARGEST: u64 = 4 << 30;

/// Reads a regular file of limited size. An input may name a device or a FIFO, which may never end.
///
/// # Errors
/// [`Error::Io`] if `path` is not a regular file, is larger than [`LARGEST`], or cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_up_to(path, LARGEST).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

/// Size of one read, in bytes.
const PART: usize = 1 << 20;

/// Reads a file of at most `largest` bytes part by part.
pub(crate) fn parts(path: &Path, largest: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut file = open(path, largest)?;
    let mut part = vec![0; PART];
    let mut left = largest;
    loop {
        let read = match file.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        left = left
            .checked_sub(read as u64)
            .ok_or_else(|| too_large(largest))?;
        take(part.get(..read).unwrap_or_default());
    }
}

fn too_large(largest: u64) -> io::Error {
    let message = format!("expected at most {largest} bytes, found more");
    io::Error::new(io::ErrorKind::FileTooLarge, message)
}

fn read_up_to(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, largest)?.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        return Err(too_large(largest));
    }
    Ok(bytes)
}

/// Opens a file, limited to one byte more than `largest`, so that the reader notices a file that is too large.
fn open(path: &Path, largest: u64) -> io::Result<io::Take<File>> {
    // Checks the type before opening, because opening a FIFO waits for a writer.
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A descriptor that a shell passes is already open, and ends.
    let is_open = path.starts_with("/dev/fd") || path.starts_with("/dev/stdin");
    if !about.is_file() && !is_open {
        let message = "expected a regular file, found a device, a socket or a FIFO";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(File::open(path)?.take(largest.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_limited_size() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let size = read_up_to(path, LARGEST).unwrap().len() as u64;
        assert!(read_up_to(path, size).is_ok());
        assert!(read_up_to(path, size - 1).is_err());
        for other in ["/dev/zero", "/dev", "/nothing/there"] {
            assert!(read(Path::new(other)).is_err(), "{other}");
        }
    }
}
