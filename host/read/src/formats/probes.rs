//! Probes of the formats that recognize an input by neighbouring files, and their openers.

use std::path::{Path, PathBuf};

use kymo_ctf::metadata::Metadata;

use super::{Confidence, Opened, ctf, kymo, zephyr_instrumentation};
use crate::peek::{FOREIGN_HEAD, Peek, foreign};
use crate::{OpenError, OpenOptions};

/// Returns the metadata file in a directory, if there is one.
///
/// # Errors
/// If it is neither a file nor a directory: reading a FIFO would block forever.
pub(crate) fn metadata_in(directory: &Path) -> Result<Option<PathBuf>, OpenError> {
    let path = directory.join("metadata");
    match std::fs::metadata(&path) {
        Ok(about) if about.is_file() => Ok(Some(path)),
        Ok(about) if about.is_dir() => Ok(None),
        Ok(about) => Err(OpenError::Unknown {
            path,
            expected: "a regular file in a trace directory".to_owned(),
            found: special(about.file_type()).to_owned(),
        }),
        Err(_) => Ok(None),
    }
}

/// Describes something that is neither a regular file nor a directory.
fn special(found: std::fs::FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if found.is_fifo() {
            return "a pipe";
        }
        if found.is_socket() {
            return "a socket";
        }
        if found.is_block_device() || found.is_char_device() {
            return "a device";
        }
    }
    let _ = found;
    "something else"
}

/// Returns the metadata of a stream: that of the options, or the file next to it.
pub(crate) fn described_by(peek: &Peek, options: &OpenOptions) -> Option<PathBuf> {
    options.metadata.clone().or_else(|| {
        let beside = peek.path().parent()?.join("metadata");
        (peek.is_file() && beside.is_file()).then_some(beside)
    })
}

/// Kymo recordings: raw files and directories.
pub(super) mod recording {
    use super::*;

    /// Returns the metadata in a directory, if it is that of a recording.
    fn metadata(directory: &Path) -> Result<Option<Metadata>, OpenError> {
        let Some(path) = metadata_in(directory)? else {
            return Ok(None);
        };
        // The CTF reader reports errors in it.
        let parsed = std::fs::read(path).ok().map(|text| Metadata::parse(&text));
        let metadata = parsed.and_then(Result::ok).map(|parsed| parsed.metadata);
        Ok(metadata.filter(kymo::is_native))
    }

    pub(crate) fn probe(
        peek: &mut Peek,
        options: &OpenOptions,
    ) -> Result<Option<Confidence>, OpenError> {
        let is_ours = if peek.is_directory() {
            metadata(peek.path())?.is_some()
        } else {
            // An input whose metadata the options name is a stream.
            options.metadata.is_none() && kymo::is_raw(peek.first(kymo::PREFIX_BYTES)?)
        };
        Ok(is_ours.then_some(Confidence::Certain))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        if !peek.is_directory() {
            return kymo::open_raw(peek, options).map(Opened::Source);
        }
        match metadata(peek.path())? {
            Some(metadata) => {
                kymo::open_directory(peek.path(), metadata, kymo::Chosen::All, options)
                    .map(Opened::Source)
            }
            None => Ok(Opened::Other(peek)),
        }
    }
}

/// Dumps of Zephyr's instrumentation. They have no magic number at the start: anything that a terminal captured may
/// precede the mark.
pub(super) mod dump {
    use super::*;

    /// Number of bytes of a pipe in which the mark is searched.
    const MARK_WITHIN: usize = 1 << 20;

    pub(crate) fn probe(
        peek: &mut Peek,
        options: &OpenOptions,
    ) -> Result<Option<Confidence>, OpenError> {
        if peek.is_directory() {
            let metadata = metadata_in(peek.path())?;
            let is_build = metadata.is_some_and(|it| zephyr_instrumentation::is_metadata(&it));
            return Ok(is_build.then_some(Confidence::Likely));
        }
        if let Some(metadata) = described_by(peek, options) {
            let is_build = zephyr_instrumentation::is_metadata(&metadata);
            return Ok(is_build.then_some(Confidence::Likely));
        }
        if foreign(peek.first(FOREIGN_HEAD)?).is_some() {
            return Ok(None);
        }
        if peek.is_file() {
            return Ok(Some(Confidence::Possible));
        }
        // A mark is enough, and what comes behind it may come much later.
        let mut length = kymo_zephyr_instrumentation::BEGIN.len();
        while options.as_it_comes && length < MARK_WITHIN {
            let head = peek.first(length)?;
            if head.len() < length {
                break;
            }
            if head.ends_with(kymo_zephyr_instrumentation::BEGIN) {
                return Ok(Some(Confidence::Possible));
            }
            length += 1;
        }
        let head = peek.first(MARK_WITHIN)?;
        let is_dump =
            zephyr_instrumentation::is_dump(head) || zephyr_instrumentation::begun(head).is_some();
        Ok(is_dump.then_some(Confidence::Possible))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        if peek.is_directory() {
            let source = crate::open::open_dump_in(peek.path(), options)?;
            return Ok(source.map_or(Opened::Other(peek), Opened::Source));
        }
        if let Some(metadata) = described_by(&peek, options) {
            let path = peek.path().to_owned();
            let source = zephyr_instrumentation::open_described(&path, &metadata, options)?;
            return Ok(source.map_or(Opened::Other(peek), Opened::Source));
        }
        let path = peek.path().to_owned();
        if let Some(bytes) = peek.file() {
            let source = zephyr_instrumentation::open_shared(&path, bytes, None, options);
            return Ok(source.map_or(Opened::Other(peek), Opened::Source));
        }
        if options.as_it_comes {
            return Ok(Opened::Source(zephyr_instrumentation::open_piped(
                peek, options,
            )?));
        }
        let bytes = peek.into_bytes()?;
        zephyr_instrumentation::open_shared(&path, &bytes, None, options)
            .map(Opened::Source)
            .ok_or_else(|| crate::open::unknown_bytes(&path, &bytes))
    }
}

/// Directories with traces in them or below.
pub(super) mod directory {
    use super::*;

    pub(crate) fn probe(
        peek: &mut Peek,
        options: &OpenOptions,
    ) -> Result<Option<Confidence>, OpenError> {
        // Inputs whose metadata the options name are streams, whatever else the directory contains.
        let confidence = match options.metadata {
            Some(_) => Confidence::Certain,
            None => Confidence::Possible,
        };
        Ok(peek.is_directory().then_some(confidence))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        crate::open::open_traces_in(peek.path(), options).map(Opened::Source)
    }
}

/// Single streams whose metadata is next to them or named by the options.
pub(super) mod stream {
    use super::*;

    pub(crate) fn probe(
        peek: &mut Peek,
        options: &OpenOptions,
    ) -> Result<Option<Confidence>, OpenError> {
        if peek.is_directory() {
            return Ok(None);
        }
        if options.metadata.is_some() {
            return Ok(Some(Confidence::Possible));
        }
        let is_described = described_by(peek, options).is_some();
        let is_stream = is_described && foreign(peek.first(FOREIGN_HEAD)?).is_none();
        Ok(is_stream.then_some(Confidence::Possible))
    }

    pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
        match described_by(&peek, options) {
            Some(metadata) => ctf::open_stream(peek, &metadata, options).map(Opened::Source),
            None => Ok(Opened::Other(peek)),
        }
    }
}
