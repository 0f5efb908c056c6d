//! What a target of Zephyr's sent, which it will not send again.
//!
//! Once it has been dumped such a target has forgotten its trace. So all that can be known before is made
//! sure of before ([`check_output`]), and what arrived and could then not be written where it was
//! wanted is kept as it came, in a file of its own ([`Sent::keep`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use kymo_event::TraceInfo;

use crate::diagnostic::{Report, unwritable};

/// So many files may be there that were kept earlier, by processes of the same number.
const NAMES: u32 = 1000;

/// The bytes of dumps as they came.
pub struct Sent(Vec<u8>);

impl Sent {
    /// What came.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Keeps them, because nothing else could; the report says where. When only the reader of our output
    /// has gone, that was wanted.
    pub fn keep(&self, report: Report) -> Report {
        if report.is_closed_pipe() || self.0.is_empty() {
            return report;
        }
        match self.write() {
            Ok(path) => report.help(format_args!(
                "what the target sent, and won't send again, is kept in {}: every verb reads it",
                path.display()
            )),
            Err(error) => report.help(format_args!(
                "what the target sent is lost: it could not be kept in {} either: {error}",
                std::env::temp_dir().display()
            )),
        }
    }

    fn write(&self) -> io::Result<PathBuf> {
        let folder = std::env::temp_dir();
        let process = std::process::id();
        for number in 0..NAMES {
            let path = folder.join(format!("kymo-{process}-{number}.kymo"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => return file.write_all(&self.0).map(|()| path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

/// Makes sure that a file can be written, and leaves what is there as it is.
///
/// # Errors
/// When it can't.
pub fn check_output(path: &Path) -> Result<(), Report> {
    let failed = |error: io::Error| unwritable(path, &error);
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => fs::remove_file(path).map_err(failed),
        // What is no file, as a pipe is not, could not be opened twice.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_file() => {
            let file: io::Result<File> = OpenOptions::new().write(true).open(path);
            file.map(drop).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Whether that was a dump of Zephyr's instrumentation without a record, as a target sends that was dumped
/// before. It is known once the trace was read.
pub fn is_empty_dump(info: &TraceInfo) -> bool {
    let mut streams = info.streams.iter();
    info.format == kymo_read::zephyr::FORMAT
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
        let sent = Sent::new(b"-*-#".to_vec());
        let kept = sent.keep(Report::new("no room"));
        let told = kept.help_lines().last().unwrap();
        let path = told.split("kept in ").nth(1).unwrap();
        let path = path.strip_suffix(": every verb reads it").unwrap();
        assert_eq!(fs::read(path).unwrap(), b"-*-#");
        fs::remove_file(path).unwrap();
        let closed = Report::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(sent.keep(closed).is_closed_pipe());
    }
}
