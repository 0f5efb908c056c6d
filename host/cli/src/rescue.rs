//! Rescue files for dumps that could not be written to their destination, or that the target can't send again.
//!
//! A Zephyr target forgets its trace after it has sent it. So everything that can be checked is checked before
//! ([`check_output`]). The received dump is saved to a file of its own if the subcommand only shows it
//! ([`Rescue::keep`]), or could not write it to its destination ([`Rescue::keep_after`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kymo_event::TraceInfo;
use kymo_read::kymo::{Dump, write_raw};

use crate::context::Context;
use crate::diagnostic::{Report, unwritable};

/// Number of file names to try: earlier processes with the same id may have left files.
const NAMES: u32 = 1000;

/// The bytes of dumps as received.
pub struct Rescue {
    bytes: Vec<u8>,
    /// The file that they were saved to.
    kept: Option<PathBuf>,
}

impl Rescue {
    /// Wraps received bytes, not saved yet.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, kept: None }
    }

    /// Saves the dumps to a file, reports its name, and frees the bytes in memory.
    ///
    /// # Errors
    /// When no file can be written; the dumps would then be lost with this process.
    pub fn keep(&mut self, context: &Context) -> Result<(), Report> {
        if self.bytes.is_empty() || self.kept.is_some() {
            return Ok(());
        }
        let path = self.write().map_err(|error| {
            let folder = std::env::temp_dir();
            Report::caused(
                format_args!("cannot keep the target's dump in {}", folder.display()),
                &error,
            )
            .help("TMPDIR names another directory")
        })?;
        context.note(format_args!(
            "the target will not send this dump again: it is kept in {}, which every subcommand reads",
            path.display()
        ));
        self.bytes = Vec::new();
        self.kept = Some(path);
        Ok(())
    }

    /// Saves the dumps because the subcommand failed, and adds the file's name to the report. A closed pipe is no
    /// failure: the reader of the output had seen enough.
    pub fn keep_after(&self, report: Report) -> Report {
        if report.is_closed_pipe() || self.kept.is_some() || self.bytes.is_empty() {
            return report;
        }
        match self.write() {
            Ok(path) => report.help(format_args!(
                "the target will not send this dump again: it is kept in {}, which every subcommand reads",
                path.display()
            )),
            Err(error) => report.help(format_args!(
                "what the target sent is lost: it could not be kept in {} either: {error}",
                std::env::temp_dir().display()
            )),
        }
    }

    fn write(&self) -> io::Result<PathBuf> {
        write(|file| file.write_all(&self.bytes))
    }
}

/// Saves a Kymo dump that could not be written to its destination, and adds the file's name to the report. The target
/// still has the data, but may record over it.
pub fn keep_dump(dump: &Dump<'_>, report: Report) -> Report {
    if report.is_closed_pipe() || dump.bytes.is_empty() {
        return report;
    }
    match write(|file| write_raw(file, dump).map(drop)) {
        Ok(path) => report.help(format_args!(
            "what the target sent is kept in {}, which every subcommand reads",
            path.display()
        )),
        Err(error) => report.help(format_args!(
            "what the target sent could not be kept in {} either ({error}); it has it still, until it is cleared or \
             recorded over",
            std::env::temp_dir().display()
        )),
    }
}

/// Writes a new file in the directory for temporary files, and leaves it there. An incomplete file is removed.
fn write(content: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<PathBuf> {
    let folder = std::env::temp_dir();
    let process = std::process::id();
    for number in 0..NAMES {
        let path = folder.join(format!("kymo-{process}-{number}.kymo"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                return match content(&mut file) {
                    Ok(()) => Ok(path),
                    Err(error) => {
                        // A failure to remove the file is ignored, because the write error is reported.
                        let _ = fs::remove_file(&path);
                        Err(error)
                    }
                };
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Checks that a file can be written, without changing it.
///
/// # Errors
/// When it can't.
pub fn check_output(path: &Path) -> Result<(), Report> {
    let failed = |error: io::Error| unwritable(path, &error);
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path).map_err(failed),
        // Anything but a file, such as a pipe, could not be opened twice.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => {
            let file: io::Result<File> = OpenOptions::new().write(true).open(path);
            file.map(drop).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Whether a trace is an empty dump of Zephyr's instrumentation, which a target sends that was dumped before.
pub fn is_empty_dump(info: &TraceInfo) -> bool {
    let mut streams = info.streams.iter();
    info.format == kymo_read::zephyr_instrumentation::FORMAT
        && info.damage.is_empty()
        && streams.all(|stream| stream.start.is_none() && !stream.timeless)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        check_output(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, "old").unwrap();
        check_output(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        for bad in [folder.path().to_owned(), folder.path().join("no/x")] {
            let report = check_output(&bad).unwrap_err();
            assert!(report.message().starts_with("cannot write"), "{report:?}");
        }
    }

    #[test]
    fn what_was_sent_is_kept_where_the_report_says() {
        let sent = Rescue::new(b"-*-#".to_vec());
        let kept = sent.keep_after(Report::new("no room"));
        let reported = kept.help_lines().last().unwrap();
        let path = reported.split("kept in ").nth(1).unwrap();
        let path = path.strip_suffix(", which every subcommand reads").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"-*-#");
        fs::remove_file(path).unwrap();
        let closed = Report::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(sent.keep_after(closed).is_closed_pipe());
    }
}
