//! Files and lines, from DWARF.

use std::fmt;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{EndianReader, Reader as _, RunTimeEndian, SectionId};

use crate::name;

/// Source location of code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file name as passed to the compiler. Windows paths use `/`.
    pub file: String,
    /// The line, counted from 1; `None` if the code belongs to none.
    pub line: Option<u32>,
}

/// `file:line`.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// Code of one source line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Address of its first byte.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// The line.
    pub location: Location,
}

/// A function at an address, one of several if functions are inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its source name, if known.
    pub function: Option<String>,
    /// Location in it: the requested address for the innermost function, the call for the others.
    pub location: Option<Location>,
}

/// State of the debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebugInfo {
    /// It is available.
    Present,
    /// It is missing: the file was built without `-g`, or stripped.
    Missing,
    /// It is compressed with an unknown method.
    Compressed,
    /// It is damaged, for this reason.
    Damaged(String),
}

type Reader = EndianReader<RunTimeEndian, Arc<[u8]>>;

/// Debug information of one image. It is read on first use, and then unit by unit: most uses of a trace need only
/// names.
pub(crate) struct Lines {
    sections: Vec<Section>,
    endian: RunTimeEndian,
    data: Arc<[u8]>,
    /// Whether some of it is compressed with an unknown method.
    unknown: bool,
    /// Behind a lock because reading fills caches.
    context: Mutex<Option<Result<addr2line::Context<Reader>, String>>>,
}

/// A section of debug information.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: &'static str,
    /// Its range in the file.
    pub range: std::ops::Range<usize>,
    pub packed: Packed,
}

/// Compression of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    /// Not compressed.
    No,
    /// By zlib, with this uncompressed size in bytes.
    Zlib(u64),
    /// By Zstandard, with this uncompressed size in bytes.
    Zstandard(u64),
}

/// Maximum total size in bytes of uncompressed sections: larger claims are treated as damage.
const LARGEST: u64 = 1 << 31;

/// Decompresses a section with this uncompressed size.
fn expand(input: &[u8], packed: Packed) -> Result<Vec<u8>, String> {
    let mut expanded = Vec::new();
    let damaged = |error: &dyn fmt::Display| format!("a compressed section is damaged: {error}");
    let size = match packed {
        Packed::No => return Ok(input.to_vec()),
        Packed::Zlib(size) => {
            let mut decoder = flate2::read::ZlibDecoder::new(input).take(size);
            decoder
                .read_to_end(&mut expanded)
                .map_err(|error| damaged(&error))?;
            size
        }
        Packed::Zstandard(size) => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(input);
            let decoder = decoder.map_err(|error| damaged(&error))?;
            decoder
                .take(size)
                .read_to_end(&mut expanded)
                .map_err(|error| damaged(&error))?;
            size
        }
    };
    if expanded.len() as u64 != size {
        return Err(damaged(&format_args!("{} bytes of {size}", expanded.len())));
    }
    Ok(expanded)
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("sections", &self.sections)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// The debug information in `data`; `unknown`: there are further sections, compressed with an unknown method.
    pub fn new(
        data: Arc<[u8]>,
        endian: RunTimeEndian,
        sections: Vec<Section>,
        unknown: bool,
    ) -> Self {
        Self {
            sections,
            endian,
            data,
            unknown,
            context: Mutex::new(None),
        }
    }

    /// Whether it is available.
    pub fn state(&self) -> DebugInfo {
        if self.unknown {
            return DebugInfo::Compressed;
        }
        let lines = SectionId::DebugLine.name();
        if !self.sections.iter().any(|section| section.name == lines) {
            return DebugInfo::Missing;
        }
        self.with(|context| match context {
            Ok(_) => DebugInfo::Present,
            Err(error) => DebugInfo::Damaged(error.to_owned()),
        })
    }

    /// The file and line of a link-time address. `None` also if the debug information of the unit is damaged.
    pub fn location(&self, address: u64) -> Option<Location> {
        self.with(|context| location(context.ok()?.find_location(address).ok()??))
    }

    /// The rows of the line table from one link-time address to another, by address.
    pub fn rows(&self, start: u64, end: u64) -> Vec<Row> {
        self.with(|context| {
            let mut rows = Vec::new();
            let Some(found) = context
                .ok()
                .and_then(|context| context.find_location_range(start, end).ok())
            else {
                return rows;
            };
            for (address, size, found) in found {
                let end = address.saturating_add(size).min(end);
                if let Some(location) = location(found).filter(|_| start < end) {
                    rows.push(Row {
                        start: address.max(start),
                        end,
                        location,
                    });
                }
            }
            rows
        })
    }

    /// The functions at a link-time address, the innermost inlined one first.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        self.with(|context| {
            let Ok(context) = context else {
                return Vec::new();
            };
            let mut frames = Vec::new();
            // Split debug information in `.dwo` files is not supported.
            let Ok(mut found) = context.find_frames(address).skip_all_loads() else {
                return frames;
            };
            while let Ok(Some(frame)) = found.next() {
                let raw = frame
                    .function
                    .and_then(|name| Some(name.raw_name().ok()?.into_owned()));
                frames.push(Frame {
                    function: raw.map(|raw| name::demangle(&raw).into_owned()),
                    location: frame.location.and_then(location),
                });
            }
            frames
        })
    }

    /// The declaration of the function at a link-time address: its own line, not that of the first instruction, which
    /// may come from an inlined function.
    pub fn declaration(&self, address: u64) -> Option<Location> {
        self.with(|context| {
            let context = context.ok()?;
            let mut frames = context.find_frames(address).skip_all_loads().ok()?;
            let mut outermost = None;
            while let Ok(Some(frame)) = frames.next() {
                outermost = frame.dw_die_offset;
            }
            let unit = context.find_dwarf_and_unit(address).skip_all_loads()?;
            declaration(unit, outermost?)
        })
    }

    fn with<T>(&self, use_it: impl FnOnce(Result<&addr2line::Context<Reader>, &str>) -> T) -> T {
        // A panic while the lock was held leaves caches that are at worst incomplete.
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let context = context.get_or_insert_with(|| self.read());
        use_it(context.as_ref().map_err(String::as_str))
    }

    fn read(&self) -> Result<addr2line::Context<Reader>, String> {
        let whole = EndianReader::new(Arc::clone(&self.data), self.endian);
        let mut left = LARGEST;
        let section = |id: SectionId| -> Result<Reader, String> {
            let found = self.sections.iter().find(|it| it.name == id.name());
            let Some(Section { range, packed, .. }) = found else {
                return Ok(whole.range(0..0));
            };
            match *packed {
                Packed::No => Ok(whole.range(range.clone())),
                Packed::Zlib(size) | Packed::Zstandard(size) => {
                    let rest = left.checked_sub(size);
                    left = rest.ok_or("compressed sections claim more than 2 GiB")?;
                    let input = self.data.get(range.clone()).unwrap_or(&[]);
                    let expanded = expand(input, *packed)?;
                    Ok(EndianReader::new(Arc::from(expanded), self.endian))
                }
            }
        };
        let dwarf = gimli::Dwarf::load(section)?;
        addr2line::Context::from_dwarf(dwarf).map_err(|error| error.to_string())
    }
}

fn location(found: addr2line::Location<'_>) -> Option<Location> {
    Some(Location {
        file: with_slashes(found.file?.to_owned()),
        line: found.line,
    })
}

/// Reads the declaration of a function. In DWARF it may be spread over several entries: the code, the abstract
/// function, its declaration in a class.
fn declaration(
    unit: gimli::UnitRef<'_, Reader>,
    mut offset: gimli::UnitOffset<usize>,
) -> Option<Location> {
    const ENTRIES: usize = 4;
    for _ in 0..ENTRIES {
        let entry = unit.entry(offset).ok()?;
        let line = entry.attr_value(gimli::DW_AT_decl_line);
        if let Some(line) = line.and_then(|line| line.udata_value()) {
            let Some(gimli::AttributeValue::FileIndex(file)) =
                entry.attr_value(gimli::DW_AT_decl_file)
            else {
                return None;
            };
            return Some(Location {
                file: path(unit, file)?,
                line: u32::try_from(line).ok(),
            });
        }
        let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
        let next = origin.or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        let gimli::AttributeValue::UnitRef(next) = next else {
            return None;
        };
        offset = next;
    }
    None
}

/// The path of a file by its number in the unit.
fn path(unit: gimli::UnitRef<'_, Reader>, number: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(number)?;
    let text = |value| {
        let text = unit.attr_string(value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    };
    let compiled_in = unit
        .comp_dir
        .as_ref()
        .and_then(|path| path.to_string_lossy().ok());
    let mut path = compiled_in.map_or(String::new(), |path| path.into_owned());
    // Directory 0 is the compilation directory of the unit.
    let directory = file
        .directory(header)
        .filter(|_| file.directory_index() != 0);
    for part in directory.into_iter().chain([file.path_name()]) {
        let part = text(part)?;
        if part.starts_with('/') || is_of_windows(&part) || path.is_empty() {
            path = part;
        } else {
            path = format!("{}/{part}", path.trim_end_matches(['/', '\\']));
        }
    }
    Some(with_slashes(path))
}

/// Whether a path is an absolute Windows path: with a drive, or a share.
fn is_of_windows(path: &str) -> bool {
    match path.as_bytes() {
        [b'\\', ..] => true,
        [drive, b':', b'/' | b'\\', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

/// Converts a Windows path to `/` separators: compilers use either, and one file would have two names.
fn with_slashes(path: String) -> String {
    match is_of_windows(&path) {
        true => path.replace('\\', "/"),
        false => path,
    }
}

/// The names of the sections that [`Lines`] reads.
pub(crate) fn section_names() -> impl Iterator<Item = &'static str> {
    use SectionId::{
        DebugAbbrev, DebugAddr, DebugAranges, DebugInfo, DebugLine, DebugLineStr, DebugRanges,
        DebugRngLists, DebugStr, DebugStrOffsets,
    };
    [
        DebugAbbrev,
        DebugAddr,
        DebugAranges,
        DebugInfo,
        DebugLine,
        DebugLineStr,
        DebugRanges,
        DebugRngLists,
        DebugStr,
        DebugStrOffsets,
    ]
    .into_iter()
    .map(|id| id.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_windows_have_one_spelling() {
        for (path, spelling) in [
            (
                r"C:\work\Debug/../src\main.c",
                "C:/work/Debug/../src/main.c",
            ),
            (
                r"C:/work\Debug\../src/main.c",
                "C:/work/Debug/../src/main.c",
            ),
            (r"\\server\share\main.c", "//server/share/main.c"),
            (r"/home/a\b/main.c", r"/home/a\b/main.c"),
            (r"src\main.c", r"src\main.c"),
        ] {
            assert_eq!(with_slashes(path.to_owned()), spelling);
        }
    }
}
