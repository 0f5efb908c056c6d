//! OpenCSD's snapshot directories: `snapshot.ini`, device and core files, trace buffers and memory images.
//!
//! The layout is that of the Arm debugger's "snapshot" export as OpenCSD's `trc_pkt_lister` reads it: `snapshot.ini`
//! lists device files and names the trace metadata, which lists the buffers and assigns sources to buffers and to
//! cores. A device file has the registers that configure a source, or the memory of a core.
//!
//! A raw buffer with a configuration in TOML is also read as a snapshot.

pub(crate) mod configuration;

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::Error;
use crate::frames::{FrameFormat, Frames, Splitter};
use crate::memory::{MemorySpace, elf_kind};

/// Snapshot directory, without the contents of its trace buffers and memory images.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The directory.
    pub directory: PathBuf,
    /// Whether its files may be outside of the directory: true for a configuration that the user wrote, false for a
    /// snapshot directory from others.
    pub is_own: bool,
    /// Cores and trace sources.
    pub devices: Vec<Device>,
    /// Trace buffers, in the order of the metadata's sections.
    pub buffers: Vec<Buffer>,
    /// Pairs of source name and buffer name in the metadata.
    pub source_buffers: Vec<(String, String)>,
    /// Pairs of core name and source name in the metadata.
    pub core_sources: Vec<(String, String)>,
}

/// Core or trace source.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Name in the metadata.
    pub name: String,
    /// `core`, `trace_source`, or another.
    pub class: String,
    /// Type, for instance `Cortex-A53` or `ETM4.1`.
    pub kind: String,
    /// Registers by name, without their addresses.
    pub registers: BTreeMap<String, u64>,
    /// Memory images.
    pub dumps: Vec<Dump>,
}

impl Device {
    /// Value of a register, or `default` if the snapshot lacks it.
    pub fn register(&self, name: &str, default: u32) -> u32 {
        self.registers
            .get(name)
            .map_or(default, |value| *value as u32)
    }
}

/// Image of a core's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    /// Path of the file, below the snapshot's directory.
    pub file: PathBuf,
    /// Address of its first byte; `None` for a linked ELF file, whose segments have addresses.
    pub address: Option<u64>,
    /// Length in bytes. Defaults to the rest of the file.
    pub length: Option<u64>,
    /// Offset of the memory in the file.
    pub offset: u64,
    /// Memory space (`S`, `N`, `EL1N`, ...). Defaults to all spaces.
    pub space: Option<String>,
}

impl Dump {
    /// Memory space in which it is visible.
    pub(crate) fn memory_space(&self) -> MemorySpace {
        let name = self.space.as_deref();
        let known = name.and_then(MemorySpace::of_name);
        known.unwrap_or(MemorySpace::ANY)
    }
}

/// Trace buffer.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// Name in the metadata.
    pub name: String,
    /// Files with its bytes, in order.
    pub files: Vec<PathBuf>,
    /// Frame format of its bytes.
    pub format: FrameFormat,
}

impl Snapshot {
    /// Whether `path` is a snapshot: a directory with a `snapshot.ini`, that file, or a configuration in TOML that
    /// describes a raw buffer.
    pub fn is_at(path: &Path) -> bool {
        path.join("snapshot.ini").is_file()
            || path.file_name().is_some_and(|name| name == "snapshot.ini")
            || Self::configuration_at(path).is_some()
    }

    /// Text of a configuration file; `None` for other files.
    fn configuration_at(path: &Path) -> Option<String> {
        let about = std::fs::metadata(path).ok()?;
        if !about.is_file() || about.len() > configuration::LARGEST {
            return None;
        }
        let text = String::from_utf8(std::fs::read(path).ok()?).ok()?;
        configuration::is_one(&text).then_some(text)
    }

    /// Reads a configuration of a raw buffer: see the module `configuration`. Its paths are relative to `directory`.
    ///
    /// # Errors
    /// [`Error::Value`] if the configuration is malformed.
    pub fn of_configuration(directory: &Path, text: &str) -> Result<Self, Error> {
        configuration::read(directory, "configuration", text)
    }

    /// Reads the `.ini` files of the snapshot at `path`, or the configuration there.
    ///
    /// # Errors
    /// [`Error`] if a file is missing or malformed.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let directory = if path.is_dir() {
            path.to_owned()
        } else {
            path.parent().unwrap_or(path).to_owned()
        };
        if let Some(text) = Self::configuration_at(path) {
            let snapshot = configuration::read(&directory, &path.display().to_string(), &text)?;
            return Ok(Snapshot {
                is_own: true,
                ..snapshot
            });
        }
        let main = Ini::read(&directory, Path::new("snapshot.ini"))?;
        let mut snapshot = Snapshot {
            directory,
            devices: Vec::new(),
            buffers: Vec::new(),
            is_own: false,
            source_buffers: Vec::new(),
            core_sources: Vec::new(),
        };
        for (key, file) in main.section("device_list") {
            let file = Path::new(file);
            let device = read_device(&snapshot.directory, file);
            let device = device.map_err(|error| main.absent(error, ("device_list", key), file))?;
            snapshot.devices.push(device);
        }
        let metadata = match main.value("trace", "metadata") {
            Some(file) => {
                let file = Path::new(file);
                let metadata = Ini::read(&snapshot.directory, file);
                metadata.map_err(|error| main.absent(error, ("trace", "metadata"), file))?
            }
            None => {
                return Err(
                    main.lacks("metadata in [trace], the file that lists the trace buffers")
                );
            }
        };
        // Buffers are in the order of their sections, as in the reference tool, not in the order of the list.
        let names = metadata.value("trace_buffers", "buffers").ok_or_else(|| {
            metadata.lacks("buffers in [trace_buffers], the list of the trace buffers")
        })?;
        let is_listed = |section: &str| names.split(',').any(|name| name.trim() == section);
        for section in metadata
            .sections
            .iter()
            .map(|section| section.name.as_str())
        {
            if !is_listed(section) {
                continue;
            }
            let files = metadata.value(section, "file").unwrap_or_default();
            snapshot.buffers.push(Buffer {
                name: metadata
                    .value(section, "name")
                    .unwrap_or(section)
                    .to_owned(),
                files: files
                    .split(',')
                    .map(|file| PathBuf::from(file.trim()))
                    .collect(),
                format: metadata.format(section)?,
            });
        }
        snapshot.source_buffers = metadata.pairs("source_buffers");
        snapshot.core_sources = metadata.pairs("core_trace_sources");
        Ok(snapshot)
    }

    /// Reads the bytes of a buffer.
    ///
    /// # Errors As [`read`](Self::read), where the limit of 4 GiB is for all files together; [`Error::Value`] if a file
    /// is an ELF file.
    pub fn read_buffer(&self, buffer: &Buffer) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read_parts(buffer, |part| bytes.extend_from_slice(part))?;
        Ok(bytes)
    }

    /// Reads a buffer and splits it into the streams of its sources.
    ///
    /// # Errors
    /// As [`read_buffer`](Self::read_buffer).
    pub fn split_buffer(
        &self,
        buffer: &Buffer,
        format: FrameFormat,
    ) -> Result<Frames<'static>, Error> {
        let mut splitter = Splitter::new(format);
        self.read_parts(buffer, |part| splitter.push(part))?;
        Ok(splitter.finish())
    }

    fn read_parts(&self, buffer: &Buffer, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut left = LARGEST_FILE;
        for file in &buffer.files {
            let path = self.path(file, left)?;
            let (mut is_first, mut program) = (true, None);
            let parts = crate::file::parts(&path, left, |part| {
                left = left.saturating_sub(part.len() as u64);
                if std::mem::take(&mut is_first) {
                    program = elf_kind(part);
                }
                if program.is_none() {
                    take(part);
                }
            });
            if let Some(what) = program {
                return Err(Error::Value {
                    place: file.display().to_string(),
                    expected: "hardware trace (code that ran is an image)",
                    found: what.to_owned(),
                });
            }
            parts.map_err(|source| Error::Io { path, source })?;
        }
        Ok(())
    }

    /// Reads a file of the snapshot.
    ///
    /// # Errors [`Error::Io`] if it cannot be read, is no regular file or larger than 4 GiB; [`Error::Value`] if it is
    /// outside of the directory of a snapshot from others.
    pub fn read(&self, file: &Path) -> Result<Vec<u8>, Error> {
        Ok(self.read_at(file)?.0)
    }

    /// Reads one of its files. Also returns where it is.
    pub(crate) fn read_at(&self, file: &Path) -> Result<(Vec<u8>, PathBuf), Error> {
        let path = self.path(file, LARGEST_FILE)?;
        match std::fs::read(&path) {
            Ok(bytes) => Ok((bytes, path)),
            Err(source) => Err(Error::Io { path, source }),
        }
    }

    /// Checked path of one of its files.
    fn path(&self, file: &Path, largest: u64) -> Result<PathBuf, Error> {
        match self.is_own {
            true => regular(self.directory.join(file), largest),
            false => checked(&self.directory, file, largest),
        }
    }

    /// Device with a name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// Trace sources of a buffer.
    pub fn sources<'a>(&'a self, buffer: &'a Buffer) -> impl Iterator<Item = &'a Device> {
        self.source_buffers
            .iter()
            .filter(|(_, name)| name.split(',').any(|name| name.trim() == buffer.name))
            .filter_map(|(source, _)| self.device(source))
    }

    /// Core that a source traces.
    pub fn core_of(&self, source: &Device) -> Option<&Device> {
        let (core, _) = self
            .core_sources
            .iter()
            .find(|(_, name)| *name == source.name)?;
        self.device(core)
    }
}

/// Size limit of a buffer or memory image, in bytes.
const LARGEST_FILE: u64 = 4 << 30;

/// Size limit of an `.ini` file, in bytes.
const LARGEST_INI: u64 = 16 << 20;

/// Reads a file that a snapshot names. Snapshots are untrusted: a path must not lead out of the directory, nor to a
/// device or a pipe, which may never end.
fn read(directory: &Path, file: &Path, largest: u64) -> Result<Vec<u8>, Error> {
    let path = checked(directory, file, largest)?;
    std::fs::read(&path).map_err(|source| Error::Io { path, source })
}

/// Checked path of a file that a snapshot names.
fn checked(directory: &Path, file: &Path, largest: u64) -> Result<PathBuf, Error> {
    let is_below = file
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if !is_below {
        return Err(Error::Value {
            place: directory.display().to_string(),
            expected: "a file below the snapshot's directory",
            found: file.display().to_string(),
        });
    }
    regular(directory.join(file), largest)
}

/// Returns `path` if it is a regular file within the size limit.
fn regular(path: PathBuf, largest: u64) -> Result<PathBuf, Error> {
    let wrong = |kind: io::ErrorKind, message: String| io::Error::new(kind, message);
    let found = std::fs::metadata(&path).and_then(|about| {
        if !about.is_file() {
            let message = "expected a regular file".to_owned();
            return Err(wrong(io::ErrorKind::InvalidInput, message));
        }
        if about.len() > largest {
            let message = format!("expected at most {largest} bytes, found {}", about.len());
            return Err(wrong(io::ErrorKind::FileTooLarge, message));
        }
        Ok(())
    });
    match found {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::Io { path, source }),
    }
}

fn read_device(directory: &Path, file: &Path) -> Result<Device, Error> {
    let path = directory.join(file);
    let ini = Ini::read(directory, file)?;
    let mut device = Device {
        name: ini.value("device", "name").unwrap_or_default().to_owned(),
        class: ini.value("device", "class").unwrap_or_default().to_owned(),
        kind: ini.value("device", "type").unwrap_or_default().to_owned(),
        ..Device::default()
    };
    for (key, value) in ini.section("regs") {
        let name = key.split('(').next().unwrap_or_default().trim();
        // Wide core registers have other notations; none of them is needed here.
        if let Some(value) = parse_number(value) {
            device.registers.insert(name.to_owned(), value);
        }
    }
    for section in ini
        .sections
        .iter()
        .filter(|section| section.name.starts_with("dump"))
    {
        let find = |key: &str| {
            section
                .values
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value.as_str())
        };
        let number = |key: &'static str| -> Result<Option<u64>, Error> {
            match find(key) {
                None => Ok(None),
                Some(value) => parse_number(value).map(Some).ok_or_else(|| Error::Value {
                    place: format!("{}: {key} of [{}]", path.display(), section.name),
                    expected: "a number",
                    found: value.to_owned(),
                }),
            }
        };
        let Some(file) = find("file") else { continue };
        device.dumps.push(Dump {
            file: PathBuf::from(file),
            address: Some(number("address")?.unwrap_or_default()),
            length: number("length")?,
            offset: number("offset")?.unwrap_or_default(),
            space: find("space").map(str::to_owned),
        });
    }
    Ok(device)
}

fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Contents of an `.ini` file: sections of keys and values, in order.
struct Ini {
    path: PathBuf,
    sections: Vec<Section>,
}

struct Section {
    name: String,
    values: Vec<(String, String)>,
}

impl Ini {
    fn read(directory: &Path, file: &Path) -> Result<Self, Error> {
        let bytes = read(directory, file, LARGEST_INI)?;
        Self::parse(&directory.join(file), &String::from_utf8_lossy(&bytes))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let mut sections: Vec<Section> = Vec::new();
        // Editors of Windows write a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            let line = line.split([';', '#']).next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let malformed = || Error::Ini {
                path: path.to_owned(),
                line: index + 1,
                found: line.chars().take(80).collect(),
            };
            if let Some(name) = line.strip_prefix('[') {
                let name = name.strip_suffix(']').ok_or_else(malformed)?.trim();
                sections.push(Section {
                    name: name.to_owned(),
                    values: Vec::new(),
                });
            } else {
                let (key, value) = line.split_once('=').ok_or_else(malformed)?;
                let section = sections.last_mut().ok_or_else(malformed)?;
                let value = value.trim().trim_matches('"');
                section
                    .values
                    .push((key.trim().to_owned(), value.to_owned()));
            }
        }
        Ok(Ini {
            path: path.to_owned(),
            sections,
        })
    }

    fn section<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.sections
            .iter()
            .filter(move |section| section.name == name)
            .flat_map(|section| {
                section
                    .values
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
            })
    }

    fn value<'a>(&'a self, section: &'a str, key: &'a str) -> Option<&'a str> {
        self.section(section)
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// The error for a file that this one names: where it is named, if it is not there.
    fn absent(&self, error: Error, (section, key): (&str, &str), file: &Path) -> Error {
        match error {
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                Error::Absent {
                    place: format!("{}: {key} in [{section}]", self.path.display()),
                    file: file.to_owned(),
                }
            }
            other => other,
        }
    }

    /// Error for a file without something that it must have.
    fn lacks(&self, expected: &'static str) -> Error {
        let sections = self.sections.iter();
        let sections: Vec<_> = sections.map(|it| format!("[{}]", it.name)).collect();
        Error::Value {
            place: self.path.display().to_string(),
            expected,
            found: match sections.as_slice() {
                [] => "no section".to_owned(),
                _ => format!("the sections {}", sections.join(", ")),
            },
        }
    }

    /// Frame format of the buffer that a section describes.
    fn format(&self, section: &str) -> Result<FrameFormat, Error> {
        let format = self.value(section, "format").unwrap_or("coresight");
        match format.to_ascii_lowercase().as_str() {
            "coresight" => Ok(FrameFormat::Memory),
            "source_data" => Ok(FrameFormat::Unformatted),
            "tpiu" | "tpiu_hsync" => Ok(FrameFormat::Tpiu),
            "dstream_coresight" => Ok(FrameFormat::Dstream),
            _ => Err(Error::Value {
                place: format!("{}: format of [{section}]", self.path.display()),
                expected: "coresight, source_data, tpiu, tpiu_hsync or dstream_coresight",
                found: format.to_owned(),
            }),
        }
    }

    fn pairs(&self, section: &str) -> Vec<(String, String)> {
        self.section(section)
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sections_comments_and_quotes() {
        let ini = Ini::parse(
            Path::new("x"),
            "; c\n[a]\nk = \"v\" ; c\n[b]\nR(0x1)=0x10\n",
        )
        .unwrap();
        assert_eq!(ini.value("a", "k"), Some("v"));
        assert_eq!(ini.value("b", "R(0x1)"), Some("0x10"));
    }

    #[test]
    fn says_what_a_snapshot_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let metadata = |format: &str| {
            format!("[trace_buffers]\nbuffers=b\n[b]\nname=B\nfile=b.bin\nformat={format}\n")
        };
        let open = |main: &str, metadata: &str| {
            std::fs::write(folder.path().join("snapshot.ini"), main).unwrap();
            std::fs::write(folder.path().join("trace.ini"), metadata).unwrap();
            Snapshot::open(folder.path())
        };
        let main = "[trace]\nmetadata=trace.ini\n";
        for (main, metadata, expected) in [
            ("[TRACE]\nmetadata=trace.ini\n", "", "metadata in [trace]"),
            ("[TRACE]\nmetadata=trace.ini\n", "", "the sections [TRACE]"),
            (main, "[Trace_Buffers]\n", "buffers in [trace_buffers]"),
            (main, &metadata("foo"), "format of [b]: expected coresight"),
        ] {
            let error = open(main, metadata).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        for (format, expected) in [
            ("SOURCE_DATA", FrameFormat::Unformatted),
            ("coresight", FrameFormat::Memory),
        ] {
            let found = open(&format!("\u{feff}{main}"), &metadata(format)).unwrap();
            assert_eq!(found.buffers[0].format, expected);
        }
    }

    #[test]
    fn reads_regular_files_below_its_directory_alone() {
        for (file, expected) in [
            ("/dev/zero", "below the snapshot's directory"),
            ("../Cargo.toml", "below the snapshot's directory"),
            ("src/../../x", "below the snapshot's directory"),
            ("src", "expected a regular file"),
        ] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
            let error = read(directory, Path::new(file), 100).expect_err(file);
            assert!(error.to_string().contains(expected), "{error}");
        }
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let error = read(directory, Path::new("src/snapshot.rs"), 100).expect_err("its size");
        assert!(error.to_string().contains("at most 100 bytes"), "{error}");
    }

    #[test]
    fn files_of_an_own_configuration_are_anywhere() {
        let text = "buffer = '../b.bin'\nsource = [{ protocol = 'ITM', id = 1 }]\n";
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(folder.path().join("b.bin"), [1, 2]).unwrap();
        let path = below.join("x.toml");
        std::fs::write(&path, text).unwrap();
        let own = Snapshot::open(&path).unwrap();
        assert_eq!(own.read_buffer(&own.buffers[0]).unwrap(), [1, 2]);
        let absolute = folder.path().join("b.bin");
        assert_eq!(own.read(&absolute).unwrap(), [1, 2]);
        let other = Snapshot::of_configuration(&below, text).unwrap();
        assert!(other.read_buffer(&other.buffers[0]).is_err());
    }

    #[test]
    fn says_which_line_is_malformed() {
        let error = Ini::parse(Path::new("x.ini"), "[a]\nnothing\n")
            .err()
            .unwrap();
        assert!(
            error.to_string().starts_with("x.ini:2: expected"),
            "{error}"
        );
    }
}
