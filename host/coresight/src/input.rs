//! Inputs of any kind, opened: trace buffers with their sources and the code that these ran.

use std::collections::HashMap;
use std::path::Path;

use crate::Error;
use crate::frames::{self, Frames, Stream, TraceId};
use crate::memory::{Images, Memory};
use crate::snapshot::Snapshot;
use crate::source::Source;

/// A trace buffer, split into the streams of its sources.
#[derive(Debug)]
pub struct Buffer {
    /// Its name in the input.
    pub name: String,
    /// The sources that write into it.
    pub sources: Vec<Source>,
    /// The memory of each source's core, in their order.
    pub code: Vec<Memory>,
    /// Its streams, and what is in none.
    pub frames: Frames<'static>,
    /// The thread whose trace it has alone, by its number.
    pub thread: Option<u32>,
}

impl Buffer {
    /// The source of a stream, by its place among [`sources`](Self::sources). A stream without a trace ID is the first one's.
    pub fn source_of(&self, stream: &Stream<'_>) -> Option<usize> {
        match stream.id {
            TraceId::NONE => (!self.sources.is_empty()).then_some(0),
            id => self.sources.iter().position(|source| source.id == id),
        }
    }
}

/// Opens a snapshot directory. What of it cannot be read, though the rest can, is returned beside it.
///
/// # Errors
/// [`Error`] if the snapshot or a trace buffer cannot be read.
pub fn open_snapshot(path: &Path) -> Result<(Vec<Buffer>, Vec<Error>), Error> {
    let snapshot = Snapshot::open(path)?;
    let mut buffers = Vec::new();
    let mut missing = Vec::new();
    let mut files = HashMap::new();
    for buffer in &snapshot.buffers {
        let sources = Source::of_buffer(&snapshot, buffer);
        let mut code = Vec::new();
        for source in &sources {
            let core = snapshot
                .device(&source.name)
                .and_then(|device| snapshot.core_of(device));
            let (images, errors) = core.map_or_else(Default::default, |core| {
                Images::of_core(&snapshot, core, &mut files)
            });
            code.push(Memory::from(images));
            missing.extend(errors);
        }
        let bytes = snapshot.read_buffer(buffer)?;
        let frames = frames::split(&bytes, buffer.format, TraceId::NONE).into_owned();
        buffers.push(Buffer {
            name: buffer.name.clone(),
            sources,
            code,
            frames,
            thread: None,
        });
    }
    Ok((buffers, missing))
}
