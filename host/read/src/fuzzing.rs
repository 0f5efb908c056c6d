//! Body of the fuzz target that opens arbitrary inputs like the command line.

use std::fs;
use std::io;
use std::path::Path;

use kymo_event::Wanted;

use crate::{OpenOptions, Summary, ctf_traces, open, saved};

/// Opens the bytes in each way that the command line supports: as one file, as a stream with its metadata next to it or
/// elsewhere, and as a directory. Reads each input to its end.
///
/// The first byte selects the way. For those with metadata, a zero byte separates the metadata from the stream.
///
/// Checks that nothing panics, that reading ends, that a summary's counts match those of its streams, and that a second
/// pass gives the same result.
///
/// # Errors
/// Errors from writing the input to a temporary directory.
///
/// # Panics
/// If one of these does not hold.
pub fn fuzz_open(data: &[u8]) -> io::Result<()> {
    let Some((way, data)) = data.split_first() else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let end = data.iter().position(|byte| *byte == 0);
    let (metadata, stream) = match end {
        Some(end) => (
            data.get(..end).unwrap_or_default(),
            data.get(end + 1..).unwrap_or_default(),
        ),
        None => (data, &[][..]),
    };
    let (file, beside) = (folder.path().join("input"), folder.path().join("metadata"));
    let mut options = OpenOptions {
        wanted: match way >> 3 & 3 {
            0 => Wanted::Meaning,
            1 => Wanted::Details,
            2 => Wanted::Everything,
            _ => Wanted::Records,
        },
        ..OpenOptions::default()
    };
    let input = match way % 5 {
        0 => {
            fs::write(&file, data)?;
            // Any file may be given as the program's ELF file.
            options.program = Some(file.clone());
            file
        }
        1 => {
            fs::write(&beside, metadata)?;
            fs::write(&file, stream)?;
            file
        }
        2 => {
            let named = folder.path().join("apart");
            fs::write(&named, metadata)?;
            fs::write(&file, stream)?;
            options.metadata = Some(named);
            file
        }
        3 => {
            fs::write(&beside, metadata)?;
            fs::write(&file, stream)?;
            folder.path().to_owned()
        }
        _ => {
            let below = folder.path().join("below");
            fs::create_dir(&below)?;
            fs::write(below.join("metadata"), metadata)?;
            fs::write(below.join("cpu0"), stream)?;
            fs::write(below.join("cpu2"), stream)?;
            folder.path().to_owned()
        }
    };
    let first = read(&input, &options);
    assert_eq!(first, read(&input, &options), "the same twice");
    if let Some(summary) = first {
        let events: u64 = summary.streams.iter().map(|stream| stream.events).sum();
        assert!(events <= summary.events, "{events} of {}", summary.events);
    }
    // `trace` and `export` also access the records directly.
    let _ = saved(&input);
    let _ = ctf_traces(&input, &options);
    Ok(())
}

/// Returns the summary of an input; `None` if it cannot be opened.
fn read(input: &Path, options: &OpenOptions) -> Option<Summary> {
    let mut source = open(input, options).ok()?;
    Some(Summary::of(source.as_mut()))
}
