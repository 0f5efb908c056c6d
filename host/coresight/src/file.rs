//! Reads the files of an input.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::Error;

/// The largest file that is read, in bytes: 4 GiB.
const LARGEST: u64 = 4 << 30;

/// Reads a regular file of limited size: a device or a FIFO that an input names may never end.
///
/// # Errors
/// [`Error::Io`] if it is none, is larger, or cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    read_up_to(path, LARGEST).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

fn read_up_to(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    // Asked before it is opened: opening a FIFO waits for a writer.
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // What a shell hands over is open already, and has an end.
    let is_open = path.starts_with("/dev/fd") || path.starts_with("/dev/stdin");
    if !about.is_file() && !is_open {
        let message = "expected a regular file, found a device, a socket or a FIFO";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(largest.saturating_add(1));
    file.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > largest {
        let message = format!("expected at most {largest} bytes, found more");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
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
