//! The file of a stream, read forward.
//!
//! A trace may have more streams than a process may have files open (1024, often), and to merge them all have to be read
//! side by side. So only some stay open. The others are opened for each chunk that is read: that is one in sixteen
//! kilobytes or more, beside which it costs little.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many files all readers of a process together keep open: half of the smallest limit that anybody sets.
const MOST: usize = 32;

/// How many are kept open.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// A right to keep a file open.
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

/// How the bytes are had.
#[derive(Debug)]
enum State {
    /// The file is open, by the right to be so, if it needs one.
    Open(
        File,
        #[expect(dead_code, reason = "held for its drop")] Option<Place>,
    ),
    /// It is opened for each chunk, which begins here.
    Closed(u64),
}

/// A file that is read to its end, open or not.
#[derive(Debug)]
pub(super) struct StreamInput {
    path: PathBuf,
    state: State,
}

impl StreamInput {
    /// Opens a file from a place on, if only to see that it can be.
    pub fn open_at(path: PathBuf, at: u64) -> io::Result<Self> {
        let mut file = File::open(&path)?;
        if at > 0 {
            file.seek(SeekFrom::Start(at))?;
        }
        let state = match Place::take() {
            Some(place) => State::Open(file, Some(place)),
            // What has come through a pipe is gone.
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
        // As much as there is, for it is closed again.
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
        // Their places are free again for others.
        drop(inputs);
        let path = directory.path().join("0");
        let again: Vec<_> = (0..count / 3)
            .map(|_| StreamInput::open_at(path.clone(), 0).expect("open"))
            .collect();
        assert!(again.iter().any(|input| open(&input)));
    }
}
