//! The mapping file of `--mapping`: what the events of another tracer's CTF mean.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kymo_read::{Mapping, MappingError};

use crate::diagnostic::Report;

/// Reads a mapping file.
///
/// # Errors
/// When it can't be read, or is none.
pub fn read(path: &Path) -> Result<Arc<Mapping>, Report> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
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
