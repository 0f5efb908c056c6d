//! Forward reader of a stream's file, with a bound on open files.
//!
//! A trace may have more streams than a process may have open files (often 1024), and merging reads all of them in
//! parallel. So only some stay open. The others are reopened for each chunk, which has sixteen kilobytes or more, so
//! the overhead is small.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of files that all readers of a process keep open: half of the smallest limit in common use.
const MOST: usize = 32;

/// Number of files kept open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Permit to keep a file open.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let more = |kept: usize| (kept < MOST).then_some(kept + 1);
        let taken = KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(_) => Some(Self),
            Err(_) => None,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// State of the file.
#[derive(Debug)]
enum State {
    /// The file is open, with a permit if it needs one.
    Open(
        File,
        #[expect(dead_code, reason = "held for its drop")] Option<Place>,
    ),
    /// The file is reopened for each chunk; the next one begins at this offset.
    Closed(u64),
}

/// A file that is read up to its end.
#[derive(Debug)]
pub(super) struct StreamInput {
    path: PathBuf,
    state: State,
}

impl StreamInput {
    /// Opens a file at an offset, at least to check that it can be opened.
    pub fn open_at(path: PathBuf, at: u64) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        if at > 0 {
            file.seek(SeekFrom::Start(at))?;
        }
        let state = match Place::take() {
            Some(place) => State::Open(file, Some(place)),
            // Data read from a pipe cannot be read again, so it stays open.
            None if !file.metadata()?.is_file() => State::Open(file, None),
            None => State::Closed(at),
        };
        Ok(Self { path, state })
    }
}

impl Read for StreamInput {
    fn read(&mut self, mut buffer: &mut [u8]) -> io::Result<usize> {
        let at = match &mut self.state {
            State::Open(file, _) => return file.read(buffer),
            State::Closed(at) => at,
        };
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(*at))?;
        // Read a full chunk, as the file is closed afterwards.
        let mut done = 0;
        while !buffer.is_empty() {
            match file.read(buffer) {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    buffer = buffer.get_mut(read..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        *at += done as u64;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_may_be_open_are_read_side_by_side() {
        let directory = tempfile::tempdir().expect("directory");
        let count = 3 * MOST;
        let mut inputs = Vec::new();
        for number in 0..count {
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, [number as u8; 10]).expect("file");
            inputs.push(StreamInput::open_at(path, 0).expect("open"));
        }
        let open = |input: &&StreamInput| matches!(input.state, State::Open(..));
        assert!(inputs.iter().filter(open).count() <= MOST);
        let mut buffer = [0; 4];
        for length in [4, 4, 2, 0] {
            for (number, input) in inputs.iter_mut().enumerate() {
                assert_eq!(input.read(&mut buffer).expect("read"), length);
                assert!(buffer.iter().take(length).all(|byte| *byte == number as u8));
            }
        }
        // Returns their permits.
        drop(inputs);
        let path = directory.path().join("0");
        let again: Vec<_> = (0..count / 3)
            .map(|_| StreamInput::open_at(path.clone(), 0).expect("open"))
            .collect();
        assert!(again.iter().any(|input| open(&input)));
    }
}
