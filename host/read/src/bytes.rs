//! Bytes of an input as one slice that several streams can share, independent of its source.
//!
//! Files are mapped, so traces of any size use no heap memory, and seeking is free. An input that cannot be mapped (a
//! pipe) is first copied to an unnamed temporary file, which disappears with the process. So memory is bounded for it,
//! too.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

/// Maximum number of bytes that are copied from a pipe.
pub(crate) const SPOOLED_AT_MOST: u64 = 4 << 30;

/// Immutable bytes. Clones share them.
#[derive(Clone, Debug)]
pub struct Bytes {
    inner: Arc<Inner>,
    /// Bytes behind this length are ignored.
    length: usize,
}

#[derive(Debug)]
enum Inner {
    Map(Mmap),
    Memory(Vec<u8>),
}

impl Bytes {
    /// Returns the contents of an input: a file, a pipe or, for `-`, standard input.
    ///
    /// # Errors
    /// Errors of the operating system.
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

    /// Returns the contents of a regular file.
    ///
    /// # Errors
    /// Errors of the operating system.
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
        Ok(Self::of(Inner::Map(map)))
    }

    /// Copies `input` to its end into a temporary file, at most `most` bytes.
    ///
    /// # Errors
    /// Errors of the operating system from reading, or from writing the temporary file, and
    /// [`io::ErrorKind::FileTooLarge`].
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

impl Bytes {
    fn of(inner: Inner) -> Self {
        Self {
            length: inner.bytes().len(),
            inner: Arc::new(inner),
        }
    }

    /// The first `length` bytes, or all if there are fewer.
    pub(crate) fn first(self, length: usize) -> Self {
        Self {
            length: self.length.min(length),
            ..self
        }
    }
}

impl Inner {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Map(map) => map,
            Self::Memory(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::of(Inner::Memory(bytes))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.inner.bytes().get(..self.length).unwrap_or(&[])
    }
}

/// Handling of a mapped file that another process truncates.
#[cfg(unix)]
mod truncation {
    use std::sync::Once;

    /// Message of the process. It cannot know which file was truncated.
    const MESSAGE: &[u8] =
        b"error: an input was shortened while it was read, or its storage failed\n\
        help: read a copy of it, or wait until nothing writes to it\n";

    /// Makes SIGBUS end the process with a message and exit code 2.
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

/// On other systems, mapped files cannot be truncated.
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
            let first = content.get(..4).unwrap_or(content);
            assert_eq!(&*Bytes::from(content.to_vec()).first(4), first);
        }
    }
}
