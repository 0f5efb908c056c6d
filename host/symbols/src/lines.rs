//! Files and lines, out of DWARF.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use gimli::{EndianReader, Reader as _, RunTimeEndian, SectionId};

use crate::name;

/// Where code stands in its source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The file, as the compiler was told it.
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
    /// The file has them compressed, in a way that is not read here.
    Compressed,
    /// They are damaged: why.
    Damaged(String),
}

type Reader = EndianReader<RunTimeEndian, Arc<[u8]>>;

/// The debug information of one image. It is read when it is asked for first, and then unit by
/// unit: most uses of a trace need names only.
pub(crate) struct Lines {
    sections: Vec<(&'static str, std::ops::Range<usize>)>,
    endian: RunTimeEndian,
    data: Arc<[u8]>,
    compressed: bool,
    /// Behind a lock because reading fills caches.
    context: Mutex<Option<Result<addr2line::Context<Reader>, gimli::Error>>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("sections", &self.sections)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// The debug information in `data`: `sections` are its sections by name, with their place;
    /// `compressed` tells that there are more, which are compressed.
    pub fn new(
        data: Arc<[u8]>,
        endian: RunTimeEndian,
        sections: Vec<(&'static str, std::ops::Range<usize>)>,
        compressed: bool,
    ) -> Self {
        Self {
            sections,
            endian,
            data,
            compressed,
            context: Mutex::new(None),
        }
    }

    /// Whether there is any.
    pub fn state(&self) -> DebugInfo {
        if self.compressed {
            return DebugInfo::Compressed;
        }
        if !self
            .sections
            .iter()
            .any(|(name, _)| *name == SectionId::DebugLine.name())
        {
            return DebugInfo::Missing;
        }
        self.with(|context| match context {
            Ok(_) => DebugInfo::Present,
            Err(error) => DebugInfo::Damaged(error.to_string()),
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

    fn with<T>(
        &self,
        use_it: impl FnOnce(Result<&addr2line::Context<Reader>, &gimli::Error>) -> T,
    ) -> T {
        // A panic while the lock was held leaves caches that are at worst incomplete.
        let mut context = self.context.lock().unwrap_or_else(PoisonError::into_inner);
        let context = context.get_or_insert_with(|| {
            let whole = EndianReader::new(Arc::clone(&self.data), self.endian);
            let section = |id: SectionId| -> Result<Reader, gimli::Error> {
                let found = self.sections.iter().find(|(name, _)| *name == id.name());
                Ok(whole.range(found.map_or(0..0, |(_, range)| range.clone())))
            };
            addr2line::Context::from_dwarf(gimli::Dwarf::load(section)?)
        });
        use_it(context.as_ref())
    }
}

fn location(found: addr2line::Location<'_>) -> Option<Location> {
    Some(Location {
        file: found.file?.to_owned(),
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
        if part.starts_with('/') || path.is_empty() {
            path = part;
        } else {
            path = format!("{}/{part}", path.trim_end_matches('/'));
        }
    }
    Some(path)
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
