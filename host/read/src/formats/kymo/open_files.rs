//! LRU cache of open stream files.
//!
//! A program has one stream per thread, and may have more threads than the limit of open files of a process
//! (often 1024). The least recently used file is therefore closed when another one is needed, and reopened on
//! its next use. Each use reads or writes a whole packet, so reopening costs comparatively little.

use std::fs::File;
use std::io;

/// Maximum number of open files: half of the smallest limit in practical use.
const MOST: usize = 32;

/// Open files, each with the key of its stream.
#[derive(Debug)]
pub(super) struct OpenFiles<Key> {
    /// In the order of use: the most recently used file is the last.
    files: Vec<(Key, File)>,
}

impl<Key: PartialEq> OpenFiles<Key> {
    /// Creates an empty cache.
    pub(super) const fn new() -> Self {
        Self { files: Vec::new() }
    }

    /// Calls `act` with the file of a stream; opens it with `open` first if it is closed.
    ///
    /// # Errors
    /// Those of `open` and `act`. After an error of `act` the file is closed.
    pub(super) fn with<T>(
        &mut self,
        key: Key,
        open: impl FnOnce() -> io::Result<File>,
        act: impl FnOnce(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut file = match self.files.iter().position(|(other, _)| *other == key) {
            Some(index) => self.files.remove(index).1,
            None => {
                if self.files.len() == MOST {
                    self.files.remove(0);
                }
                open()?
            }
        };
        let done = act(&mut file)?;
        self.files.push((key, file));
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    #[test]
    fn the_files_used_last_are_open_and_the_others_are_opened_again() {
        let directory = tempfile::tempdir().expect("directory");
        let path = |number: usize| directory.path().join(number.to_string());
        let mut files = OpenFiles::new();
        let opened = Cell::new(0);
        let mut write = |number: usize| {
            opened.set(0);
            let open = || {
                opened.set(1);
                OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path(number))
            };
            files
                .with(number, open, |file| file.write_all(b"x"))
                .expect("written");
            assert!(files.files.len() <= MOST);
            opened.get()
        };
        let count = MOST + 1;
        assert_eq!((0..count).map(&mut write).sum::<usize>(), count);
        // The first file was evicted; the last one is open, and the second stays open while it is used.
        assert_eq!([count - 1, 1, 0, 1, 2].map(&mut write), [0, 0, 1, 0, 1]);
        let lengths = (0..count).map(|number| fs::read(path(number)).expect("there").len());
        assert_eq!(lengths.sum::<usize>(), count + 5);
    }
}
