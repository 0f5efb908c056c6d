//! Body of the fuzz target that opens any input as the command line does.

use std::fs;
use std::io;
use std::path::Path;

use kymo_event::Wanted;

use crate::{OpenOptions, Summary, ctf_traces, open, saved};

/// Opens any bytes as an input, in each of the ways that the command line has: as one file, as a stream with its metadata
/// beside it or named apart, and as a directory. All of them are read to their end.
///
/// The first byte chooses the way. For those with metadata, a zero byte separates that from the stream.
///
/// What is checked: nothing panics, everything ends, a summary's counts agree with those of its streams, and what is read
/// twice is the same twice.
///
/// # Errors
/// Those of writing the input into a temporary directory.
///
/// # Panics
/// When one of these does not hold.
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
            // An ELF file of the program may be any file.
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
    // The ways of `trace` and `export` into the records themselves.
    let _ = saved(&input);
    let _ = ctf_traces(&input, &options);
    Ok(())
}

/// The summary of an input; `None` if it is none.
fn read(input: &Path, options: &OpenOptions) -> Option<Summary> {
    let mut source = open(input, options).ok()?;
    Some(Summary::of(source.as_mut()))
}
