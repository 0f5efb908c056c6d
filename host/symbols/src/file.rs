//! Reads whole files of a limited size.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size in bytes of a symbol file: 4 GiB.
pub const LARGEST_FILE: u64 = 4 << 30;

/// Reads a regular file, or a descriptor that a shell passes below `/dev/fd`, of at most `largest` bytes.
///
/// # Errors
/// When it is a device, a socket or a FIFO, which may never end; when it is larger; when reading fails.
pub fn read_file(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    // Opening a FIFO waits for a writer; descriptors below these paths are open already.
    let is_open = ["/dev/fd", "/proc/self/fd", "/dev/stdin"];
    let is_open = is_open.iter().any(|place| path.starts_with(place));
    let about = std::fs::metadata(path)?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !about.is_file() && (!is_open || is_device(&about)) {
        let message = "expected a regular file, found a device, a socket or a FIFO";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let too_large = |size: &str| {
        let message = format!("expected at most {largest} bytes, found {size}");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if about.is_file() && about.len() > largest {
        return Err(too_large(&about.len().to_string()));
    }
    let mut data = Vec::new();
    let mut file = File::open(path)?.take(largest.saturating_add(1));
    file.read_to_end(&mut data)?;
    match data.len() as u64 > largest {
        true => Err(too_large("more")),
        false => Ok(data),
    }
}

#[cfg(unix)]
fn is_device(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    about.file_type().is_char_device() || about.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_directories_and_large_files_are_refused() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let size = std::fs::metadata(path).unwrap().len();
        assert_eq!(read_file(path, size).unwrap().len() as u64, size);
        let error = read_file(path, size - 1).unwrap_err();
        let expected = format!("expected at most {} bytes, found {size}", size - 1);
        assert_eq!(error.to_string(), expected);
        assert!(read_file(Path::new(env!("CARGO_MANIFEST_DIR")), size).is_err());
        #[cfg(unix)]
        for device in ["/dev/zero", "/dev/null"] {
            let error = read_file(Path::new(device), size).unwrap_err();
            assert!(error.to_string().starts_with("expected a regular file"));
        }
    }
}
