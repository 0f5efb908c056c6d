//! Files and lines, out of DWARF.

use std::fmt;
use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{EndianReader, Reader as _, RunTimeEndian, SectionId};

use crate::name;

/// Where code stands in its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file, as it was named to the compiler. Paths of Windows have `/` between their parts.
    pub file: String,
    /// The line, counted from 1; `None` where code belongs to none.
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

/// Code of one line of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Address of its first byte.
    pub start: u64,
    /// Address behind its last byte.
    pub end: u64,
    /// The line.
    pub location: Location,
}

/// A function at an address, one of several where functions are inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name as the source has it, if known.
    pub function: Option<String>,
    /// Where in it: for the innermost the address asked for, for the others the call.
    pub location: Option<Location>,
}

/// Whether files and lines are known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DebugInfo {
    /// They are.
    Present,
    /// The file has none: it was built without `-g`, or stripped.
    Missing,
    /// The file has them compressed, in a way that is not known.
    Compressed,
    /// They are damaged: why.
    Damaged(String),
}

type Reader = EndianReader<RunTimeEndian, Arc<[u8]>>;

/// The debug information of one image. It is read when it is asked for first, and then unit by
/// unit: most uses of a trace need names only.
pub(crate) struct Lines {
    sections: Vec<Section>,
    endian: RunTimeEndian,
    data: Arc<[u8]>,
    /// Some are compressed in a way that is not known.
    unknown: bool,
    /// Behind a lock because reading fills caches.
    context: Mutex<Option<Result<addr2line::Context<Reader>, String>>>,
}

/// A section of debug information.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: &'static str,
    /// Where it is in the file.
    pub range: std::ops::Range<usize>,
    pub packed: Packed,
}

/// How a section is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    /// It is not.
    No,
    /// By zlib, to so many bytes.
    Zlib(u64),
    /// By Zstandard.
    Zstandard(u64),
}

/// The most bytes that compressed sections may have together: a claim of more is taken for damage.
const LARGEST: u64 = 1 << 31;

/// Expands a section of so many bytes.
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
    /// The debug information in `data`; `unknown` tells that there are more sections, compressed in a way that is not
    /// known.
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

    /// Whether there is any.
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

    /// The file and line of a link-time address. Damage in the debug information of the unit that
    /// holds it is as if there were none.
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
            // Debug information split into `.dwo` files is not followed.
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

    /// Where the function at a link-time address is declared: its own line, not that of the first
    /// instruction, which can stem from a function that is inlined there.
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

/// Reads where a function is declared. What DWARF says of it may be spread over several entries: the
/// code, the function as such, its declaration in a class.
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
    // Directory 0 is the one that the unit was compiled in.
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

/// Whether a path is an absolute one of Windows: from a drive, or from a share.
fn is_of_windows(path: &str) -> bool {
    match path.as_bytes() {
        [b'\\', ..] => true,
        [drive, b':', b'/' | b'\\', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

/// A path with `/` between its parts if it is one of Windows: compilers there put either, and one file would have two names.
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
