//! Mapping file of `--mapping`, which defines the meaning of events in another tracer's CTF.

use std::io;
use std::path::Path;
use std::sync::Arc;

use kymo_read::{Mapping, MappingError};
use kymo_symbols::read_file;

use crate::diagnostic::Report;

/// Maximum size of a mapping file, in bytes: 16 MiB.
const LARGEST: u64 = 16 << 20;

/// Reads a mapping file.
///
/// # Errors
/// When it can't be read, or is not a mapping file.
pub fn read(path: &Path) -> Result<Arc<Mapping>, Report> {
    let name = path.display();
    let text = read_file(path, LARGEST).and_then(|bytes| {
        let text = String::from_utf8(bytes);
        text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
    });
    let text = text.map_err(|error| {
        Report::new(format_args!("{name}: {error}")).help(
            "--mapping names a file that says what the events mean; the book shows one: book/other-tracers.md",
        )
    })?;
    let mapping = Mapping::parse(&text).map_err(|error| {
        let line = match &error {
            MappingError::Syntax { offset, .. } => {
                let end = usize::try_from(*offset).ok();
                let before = end.and_then(|end| text.get(..end)).unwrap_or("");
                format!(" (line {})", before.matches('\n').count() + 1)
            }
            _ => String::new(),
        };
        Report::new(format_args!("{name}: {error}{line}"))
            .help("the book shows what such a file looks like: book/other-tracers.md")
    })?;
    Ok(Arc::new(mapping))
}
