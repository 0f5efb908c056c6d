//! Readers of raw buffers and snapshots: trace buffers with their sources and the traced code.

use std::collections::HashMap;
use std::path::Path;

use crate::Error;
use crate::frames::{FrameFormat, Frames, Splitter, Stream, TraceId};
use crate::memory::{Bytes, Image, Images, Memory, elf_kind};
use crate::snapshot::{Device, Snapshot, configuration};
use crate::source::{Protocol, Source};

/// A trace buffer, split into the streams of its sources.
#[derive(Debug)]
pub struct Buffer {
    /// Its name in the input.
    pub name: String,
    /// The sources that write into it.
    pub sources: Vec<Source>,
    /// The memory of each source's core, in their order.
    pub code: Vec<Memory>,
    /// Its streams, and counts of the bytes that are in none.
    pub frames: Frames<'static>,
    /// The ID of the thread, if the buffer has the trace of one thread only.
    pub thread: Option<u32>,
}

impl Buffer {
    /// Returns the CPU or thread that owns the buffer: the part of the name before `@`, which its buffers share.
    pub fn owner(&self) -> &str {
        self.name.split('@').next().unwrap_or_default()
    }

    /// Returns the index of a stream's source in [`sources`](Self::sources). A stream without a trace ID belongs to the
    /// first source.
    pub fn source_of(&self, stream: &Stream<'_>) -> Option<usize> {
        match stream.id {
            TraceId::NONE => (!self.sources.is_empty()).then_some(0),
            id => self.sources.iter().position(|source| source.id == id),
        }
    }

    /// Returns the streams whose source is known, each with the index of its source.
    pub fn streams(&self) -> impl Iterator<Item = (usize, &Stream<'static>)> {
        let all = self.frames.streams.iter();
        all.filter_map(|stream| Some((self.source_of(stream)?, stream)))
    }
}

/// A stream of a buffer, and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the buffer.
    pub buffer: usize,
    /// Index of the stream in the buffer.
    pub stream: usize,
    /// Index of the source in the buffer.
    pub source: usize,
}

/// Returns the streams of each source, in the order of time. Buffers of one CPU or thread follow each other, so one
/// source's streams in them are one trace.
pub fn traces(buffers: &[Buffer]) -> Vec<Vec<Part>> {
    let mut traces: Vec<Vec<Part>> = Vec::new();
    // Buffers have their sources in an order of their own.
    let mut known: HashMap<(&str, TraceId, &str), usize> = HashMap::new();
    for (number, buffer) in buffers.iter().enumerate() {
        for (index, stream) in buffer.frames.streams.iter().enumerate() {
            let Some(source) = buffer.source_of(stream) else {
                continue;
            };
            let next = traces.len();
            let Some(name) = buffer.sources.get(source).map(|source| &*source.name) else {
                continue;
            };
            let trace = *known
                .entry((buffer.owner(), stream.id, name))
                .or_insert(next);
            if trace == next {
                traces.push(Vec::new());
            }
            traces[trace].push(Part {
                buffer: number,
                stream: index,
                source,
            });
        }
    }
    traces
}

/// Options for an input with hardware trace, in addition to the description in the input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Layout of its buffers.
    pub frames: Option<FrameFormat>,
    /// Its sources, if it is a raw buffer: `ETMv4,id=0x10,cpu=0,TRCCONFIGR=0xc1`.
    pub sources: Vec<String>,
    /// The memory of all cores: `FILE@ADDRESS`, or a linked ELF file.
    pub images: Vec<String>,
}

impl Given {
    /// Whether the input is a raw buffer: only then do options describe the sources.
    pub fn is_raw(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether any option is set.
    pub fn any(&self) -> bool {
        *self != Given::default()
    }

    /// A source and its core, by its number among the sources.
    fn source(&self, number: usize, text: &str) -> Result<Source, Error> {
        let (device, core) = configuration::source_of("--trace-source", number, text)?;
        let protocol = Protocol::of_device(&device, Some(&core));
        let protocol = protocol.ok_or_else(|| Error::Value {
            place: "--trace-source".to_owned(),
            expected: "a protocol",
            found: text.to_owned(),
        })?;
        let digits = core.name.trim_start_matches("cpu_");
        Ok(Source {
            id: protocol.trace_id(),
            name: device.name,
            cpu: digits.parse().ok(),
            protocol,
        })
    }

    /// The images, each as often as it has parts.
    fn images(&self) -> Result<Vec<Image>, Error> {
        let mut images = Vec::new();
        for text in &self.images {
            let dump = configuration::image_of("--trace-image", text)?;
            let bytes = Bytes::from(crate::file::read(&dump.file)?).read_from(&dump.file);
            images.extend(Image::of_dump(
                &dump,
                &bytes,
                &format!("--trace-image {text}"),
            )?);
        }
        Ok(images)
    }
}

/// Opens a raw buffer whose sources are given.
///
/// # Errors
/// [`Error`] if it cannot be read, or if the options are malformed.
pub fn open_raw(path: &Path, given: &Given) -> Result<Vec<Buffer>, Error> {
    let sources = given.sources.iter().enumerate();
    let sources: Vec<_> = sources
        .map(|(number, text)| given.source(number, text))
        .collect::<Result<_, _>>()?;
    let format = given.frames.unwrap_or(FrameFormat::Memory);
    if format == FrameFormat::Unformatted && sources.len() > 1 {
        return Err(Error::Value {
            place: "--trace-source".to_owned(),
            expected: "one source, as the buffer has no frames",
            found: format!("{} of them", sources.len()),
        });
    }
    let images: Images = given.images()?.into_iter().collect();
    let mut splitter = Splitter::new(format);
    let mut program = None;
    let mut is_first = true;
    let read = crate::file::parts(path, crate::file::LARGEST, |part| {
        if std::mem::take(&mut is_first) {
            program = elf_kind(part);
        }
        if program.is_none() {
            splitter.push(part);
        }
    });
    read.map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    if let Some(what) = program {
        return Err(Error::Program { what });
    }
    Ok(vec![Buffer {
        name: "buffer".to_owned(),
        code: vec![Memory::from(images); sources.len()],
        sources,
        frames: splitter.finish(),
        thread: None,
    }])
}

/// Opens a snapshot directory. Returns its buffers, and errors for the parts that cannot be read.
///
/// # Errors
/// [`Error`] if the snapshot or a trace buffer cannot be read, or if the options are malformed or not for a snapshot.
pub fn open_snapshot(path: &Path, given: &Given) -> Result<(Vec<Buffer>, Vec<Error>), Error> {
    if given.is_raw() {
        return Err(Error::Value {
            place: "--trace-source".to_owned(),
            expected: "a raw buffer",
            found: "an input that describes its sources".to_owned(),
        });
    }
    let snapshot = Snapshot::open(path)?;
    let extra = given.images()?;
    let mut buffers = Vec::new();
    let mut missing = Vec::new();
    let mut files = HashMap::new();
    for buffer in &snapshot.buffers {
        let sources = Source::of_buffer(&snapshot, buffer);
        let unknown = snapshot
            .sources(buffer)
            .filter(|device| !sources.iter().any(|source| source.name == device.name));
        missing.extend(unknown.map(|device| Error::Value {
            place: format!(
                "type of the device {}, which writes into {}",
                device.name, buffer.name
            ),
            expected: "ETM3, ETM4, ETE, PTM, STM or ITM",
            found: device.kind.clone(),
        }));
        let mut code = Vec::new();
        for source in &sources {
            let core = snapshot
                .device(&source.name)
                .and_then(|device| snapshot.core_of(device));
            if core.is_none() && extra.is_empty() && source.protocol.traces_instructions() {
                missing.push(Error::Value {
                    place: "[core_trace_sources] of the trace's metadata".to_owned(),
                    expected: "the core of each source, which has the images of its code",
                    found: format!("no core of the device list for {}", source.name),
                });
            }
            let (mut images, errors) = core.map_or_else(Default::default, |core| {
                Images::of_core(&snapshot, core, &mut files)
            });
            extra.iter().cloned().for_each(|image| images.add(image));
            code.push(Memory::from(images));
            missing.extend(errors);
        }
        let format = given.frames.unwrap_or(buffer.format);
        buffers.push(Buffer {
            name: buffer.name.clone(),
            sources,
            code,
            frames: snapshot.split_buffer(buffer, format)?,
            thread: None,
        });
    }
    missing.extend(unassigned(&snapshot, &buffers));
    Ok((buffers, missing))
}

/// Errors for trace sources of a snapshot whose trace is in a buffer, though they are assigned to none.
fn unassigned(snapshot: &Snapshot, buffers: &[Buffer]) -> Vec<Error> {
    let is_unknown = |id: TraceId| {
        buffers.iter().any(|buffer| {
            let mut streams = buffer.frames.streams.iter();
            // A buffer without frames has no trace ID.
            streams.any(|stream| {
                [id, TraceId::NONE].contains(&stream.id) && buffer.source_of(stream).is_none()
            })
        })
    };
    let is_assigned = |device: &Device| {
        let mut all = snapshot.source_buffers.iter();
        all.any(|(source, _)| *source == device.name)
    };
    let devices = snapshot.devices.iter();
    let devices = devices.filter(|device| {
        let protocol = Protocol::of_device(device, None);
        protocol.is_some_and(|it| is_unknown(it.trace_id())) && !is_assigned(device)
    });
    let errors = devices.map(|device| Error::Value {
        place: "[source_buffers] of the trace's metadata".to_owned(),
        expected: "the buffer of each source",
        found: format!("none for {}", device.name),
    });
    errors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_that_a_snapshot_forgets_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        write(
            "snapshot.ini",
            "[device_list]\nd0=cpu.ini\nd1=etm.ini\n[trace]\nmetadata=trace.ini\n",
        );
        write(
            "cpu.ini",
            "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n",
        );
        write(
            "etm.ini",
            "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCTRACEIDR=0x10\n",
        );
        write("t.bin", "0123456789abcdef");
        let buffers = "[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=t.bin\nformat=source_data\n";
        let found = |rest: &str| -> Vec<String> {
            write("trace.ini", &format!("{buffers}{rest}"));
            let (_, missing) = open_snapshot(folder.path(), &Given::default()).unwrap();
            missing.iter().map(Error::to_string).collect()
        };
        let of_buffer = found("[core_trace_sources]\ncpu_0=ETM_0\n");
        assert_eq!(of_buffer.len(), 1, "{of_buffer:?}");
        assert!(of_buffer[0].contains("[source_buffers]"), "{of_buffer:?}");
        assert!(of_buffer[0].contains("ETM_0"), "{of_buffer:?}");
        let of_core = found("[source_buffers]\nETM_0=B\n[core_trace_sources]\nCPU_0=ETM_0\n");
        assert_eq!(of_core.len(), 1, "{of_core:?}");
        assert!(of_core[0].contains("[core_trace_sources]"), "{of_core:?}");
        let whole = "[source_buffers]\nETM_0=B\n[core_trace_sources]\ncpu_0=ETM_0\n";
        assert_eq!(found(whole), [""; 0]);
    }
}
