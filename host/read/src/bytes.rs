//! The bytes of an input, wherever they are, as one slice that several streams can share.
//!
//! Files are mapped, so that a trace of any size costs no memory of ours and seeking in it is
//! free. What cannot be mapped (a pipe) is first copied to a temporary file that has no name and
//! goes away with the process, so that "bounded memory" holds for it too.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Bytes that are copied of a pipe at most.
pub(crate) const SPOOLED_AT_MOST: u64 = 4 << 30;

/// Bytes that do not change; a clone shares them.
#[derive(Clone, Debug)]
pub struct Bytes(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Map(Mmap),
    Memory(Vec<u8>),
}

impl Bytes {
    /// What an input has: a file, or what comes through a pipe or, for `-`, the standard input.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn of_input(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::spool(io::stdin().lock(), SPOOLED_AT_MOST);
        }
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        if about.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "is a directory",
            ));
        }
        match about.is_file() {
            true => Self::of_file(&file),
            false => Self::spool(&mut file, SPOOLED_AT_MOST),
        }
    }

    /// The content of a regular file.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        if file.metadata()?.len() == 0 {
            return Ok(Self::from(Vec::new()));
        }
        truncation::watch();
        // SAFETY: the map is only ever read, as plain bytes, and every use of them checks its
        // bounds and takes any value; so another process that writes to the file meanwhile can
        // change what we read but not break us. A file that is cut while it is read raises SIGBUS:
        // `truncation` says so and ends the process.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(file)? };
        Ok(Self(Arc::new(Inner::Map(map))))
    }

    /// All that `input` gives until its end, kept on disk: so many bytes at most.
    ///
    /// # Errors
    /// Those of the operating system: reading, or writing the temporary file; and [`io::ErrorKind::FileTooLarge`].
    pub(crate) fn spool(input: impl io::Read, most: u64) -> io::Result<Self> {
        let mut copy = Copy(tempfile::tempfile().map_err(not_copied)?);
        if io::copy(&mut input.take(most.saturating_add(1)), &mut copy)? > most {
            let message = format!(
                "more than {most} bytes came through a pipe, which this format needs as a whole"
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Self::of_file(&copy.0)
    }
}

/// The temporary file, whose errors name it: those of reading don't.
struct Copy(File);

impl io::Write for Copy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(not_copied)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(not_copied)
    }
}

fn not_copied(error: io::Error) -> io::Error {
    let place = std::env::temp_dir();
    let message = format!(
        "its copy, which this format needs, could not be written to a temporary file in {}: {error}",
        place.display()
    );
    io::Error::new(error.kind(), message)
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Inner::Memory(bytes)))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Inner::Map(map) => map,
            Inner::Memory(bytes) => bytes,
        }
    }
}

/// What happens when a mapped file is shortened by another process.
#[cfg(unix)]
mod truncation {
    use std::sync::Once;

    /// What the process says then. It can't tell which file it was.
    const MESSAGE: &[u8] =
        b"error: an input was shortened while it was read, or its storage failed\n\
        help: read a copy of it, or wait until nothing writes to it\n";

    /// Lets SIGBUS end the process with a message and exit code 2.
    pub(super) fn watch() {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(|| {
            let handler: extern "C" fn(libc::c_int) = end;
            // SAFETY: the handler calls nothing but what POSIX lists as async-signal-safe.
            #[allow(unsafe_code)]
            unsafe {
                libc::signal(libc::SIGBUS, handler as libc::sighandler_t);
            }
        });
    }

    extern "C" fn end(_: libc::c_int) {
        // SAFETY: `write` gets a buffer of that length; `_exit` does not return, so nothing that was
        // interrupted goes on.
        #[allow(unsafe_code)]
        unsafe {
            libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(2);
        }
    }
}

/// Files that are mapped can't be shortened here.
#[cfg(not(unix))]
mod truncation {
    pub(super) const fn watch() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_pipes_and_memory_look_the_same() {
        for content in [&b""[..], b"some bytes"] {
            let path = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(path.path(), content).unwrap();
            assert_eq!(
                &*Bytes::of_file(&File::open(path.path()).unwrap()).unwrap(),
                content
            );
            assert_eq!(&*Bytes::spool(content, 100).unwrap(), content);
            assert_eq!(&*Bytes::from(content.to_vec()), content);
        }
    }
}
