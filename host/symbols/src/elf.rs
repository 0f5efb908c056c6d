//! ELF reader: symbols, ranges of debug information and constants, build id.

use std::ops::Range;
use std::sync::Arc;

use gimli::RunTimeEndian;
use object::read::elf::{ElfFile32, ElfFile64};
use object::{
    Architecture, Endianness, Object, ObjectKind, ObjectSection, ObjectSegment, ObjectSymbol,
    SectionFlags, SymbolKind, SymbolSection,
};

use crate::error::ElfError;
use crate::image::{Base, Constant, File};
use crate::jumps;
use crate::lines::{Lines, Packed, Section, section_names};
use crate::linkage;
use crate::table::{Binding, Candidate, Table};

/// Magic number at the start of every ELF file.
pub(crate) const MAGIC: [u8; 4] = *b"\x7fELF";

/// Checks the magic number.
///
/// # Errors
/// When it is missing: with the bytes found instead.
pub(crate) fn check_magic(data: &[u8]) -> Result<(), ElfError> {
    if data.starts_with(&MAGIC) {
        return Ok(());
    }
    let found = data.iter().take(MAGIC.len()).copied().collect();
    Err(ElfError::NotElf { found })
}

/// Reads an ELF file.
pub(crate) fn read(data: Arc<[u8]>) -> Result<File, ElfError> {
    check_magic(&data)?;
    let damaged = |error: object::Error| ElfError::Damaged {
        bytes: data.len(),
        message: error.to_string(),
    };
    // The class, byte 4, is the width of addresses; 2 is 64 bits.
    if data.get(4) == Some(&2) {
        let file = ElfFile64::<Endianness>::parse(&*data).map_err(damaged)?;
        image(&file, &data)
    } else {
        let file = ElfFile32::<Endianness>::parse(&*data).map_err(damaged)?;
        image(&file, &data)
    }
}

fn image<'d>(file: &impl Object<'d>, data: &Arc<[u8]>) -> Result<File, ElfError> {
    let movable = match file.kind() {
        ObjectKind::Executable => false,
        ObjectKind::Dynamic => true,
        ObjectKind::Relocatable => {
            return Err(ElfError::WrongKind {
                found: "an object file that is not linked yet",
            });
        }
        ObjectKind::Core => {
            return Err(ElfError::WrongKind {
                found: "a core dump",
            });
        }
        _ => {
            return Err(ElfError::WrongKind {
                found: "an unknown kind of ELF file",
            });
        }
    };
    let thumb = file.architecture() == Architecture::Arm;
    let base = if movable {
        Base::Movable(link_base(file))
    } else {
        Base::Fixed
    };
    Ok(File {
        table: Table::new(candidates(file, thumb)),
        lines: Some(lines(file, data)),
        listed: Vec::new(),
        build_id: file.build_id().ok().flatten().map(<[u8]>::to_vec),
        base,
        thumb,
        not_thumb: if thumb { not_thumb(file) } else { Vec::new() },
        unmarked_jumps: jumps::unmarked(file),
        switches_stacks: jumps::switches_stacks(file),
        constants: constants(file),
        declared: declared(file),
        data: Arc::clone(data),
    })
}

/// Flags of a section: loaded, writable, code.
struct Flags {
    alloc: bool,
    write: bool,
    code: bool,
}

fn flags<'d>(section: &impl ObjectSection<'d>) -> Flags {
    // The kind that `object` returns depends on whether there is content; files with only debug information have none,
    // and their symbols are valid all the same.
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
        return Flags {
            alloc: false,
            write: false,
            code: false,
        };
    };
    Flags {
        alloc: sh_flags.contains(object::elf::SHF_ALLOC),
        write: sh_flags.contains(object::elf::SHF_WRITE),
        code: sh_flags.contains(object::elf::SHF_EXECINSTR),
    }
}

/// Whether a section is in memory at its address. (The address alone is not enough: it is 0 for sections that aren't,
/// and for the first one of a program in flash that begins at 0.)
pub(crate) fn is_in_memory<'d>(section: &impl ObjectSection<'d>) -> bool {
    flags(section).alloc
}

/// Whether the program may write a section.
pub(crate) fn is_writable<'d>(section: &impl ObjectSection<'d>) -> bool {
    flags(section).write
}

/// Whether a section is code.
pub(crate) fn is_code<'d>(section: &impl ObjectSection<'d>) -> bool {
    flags(section).code
}

/// Candidates for function names: symbols marked as functions, and labels in code.
fn candidates<'d>(file: &impl Object<'d>, thumb: bool) -> Vec<Candidate> {
    let mut found = Vec::new();
    let dynamic = file
        .dynamic_symbols()
        .map(|symbol| candidate(file, &symbol, thumb));
    let all = file.symbols().map(|symbol| candidate(file, &symbol, thumb));
    found.extend(all.flatten());
    // A stripped file still has its dynamic symbols; in any other file they are duplicates.
    found.extend(dynamic.flatten());
    found.extend(linkage::stubs(file));
    found
}

fn candidate<'d>(
    file: &impl Object<'d>,
    symbol: &impl ObjectSymbol<'d>,
    thumb: bool,
) -> Option<Candidate> {
    let function = match symbol.kind() {
        SymbolKind::Text => true,
        SymbolKind::Unknown | SymbolKind::Label => false,
        _ => return None,
    };
    let name = symbol.name().ok().filter(|name| is_name(name))?;
    let address = if thumb {
        symbol.address() & !1
    } else {
        symbol.address()
    };
    let limit = match symbol.section() {
        SymbolSection::Section(index) => {
            let section = file.section_by_index(index).ok()?;
            let limit = section.address().saturating_add(section.size());
            // A label after the last byte (`_etext`) is not part of the section.
            let inside = (section.address()..limit).contains(&address);
            let label = flags(&section).code && inside;
            if !(function || label) {
                return None;
            }
            limit
        }
        // Functions in ROM, defined by addresses in linker scripts.
        SymbolSection::Absolute if function => u64::MAX,
        _ => return None,
    };
    Some(Candidate {
        address,
        size: symbol.size(),
        name: name.into(),
        function,
        binding: match (symbol.is_weak(), symbol.is_global()) {
            (true, _) => Binding::Weak,
            (false, true) => Binding::Global,
            (false, false) => Binding::Local,
        },
        limit,
    })
}

/// The functions of a program for Arm whose addresses lack the Thumb bit.
fn not_thumb<'d>(file: &impl Object<'d>) -> Vec<u64> {
    let functions = file.symbols().chain(file.dynamic_symbols());
    let mut even: Vec<u64> = functions
        .filter(|symbol| symbol.kind() == SymbolKind::Text)
        .map(|symbol| symbol.address())
        .filter(|address| address & 1 == 0)
        .collect();
    even.sort_unstable();
    even.dedup();
    even
}

/// Whether it is a name to show: neither empty nor one of the markers that distinguish code from data (`$t`, `$d.1`) or
/// that assemblers generate.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('$') && !name.starts_with(".L")
}

/// `__executable_start`, or else the lowest loaded address.
fn link_base<'d>(file: &impl Object<'d>) -> u64 {
    let start = file
        .symbol_by_name("__executable_start")
        .map(|symbol| symbol.address());
    let lowest = || file.segments().map(|segment| segment.address()).min();
    start.or_else(lowest).unwrap_or(0)
}

/// Range of the section in which a program declares its own events (`kymo_event.h`), and whether it is big-endian.
fn declared<'d>(file: &impl Object<'d>) -> Option<(Range<usize>, bool)> {
    let (offset, size) = file.section_by_name(".kymo.events")?.file_range()?;
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    Some((start..end, !file.is_little_endian()))
}

/// Loaded ranges of the file that are read-only.
fn constants<'d>(file: &impl Object<'d>) -> Vec<Constant> {
    let constant = file.sections().filter(|section| {
        let flags = flags(section);
        flags.alloc && !flags.write
    });
    let ranges = constant.filter_map(|section| {
        let (offset, size) = section.file_range()?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        Some(Constant {
            address: section.address(),
            file: start..end,
        })
    });
    ranges.collect()
}

fn lines<'d>(file: &impl Object<'d>, data: &Arc<[u8]>) -> Lines {
    let mut sections = Vec::new();
    let mut unknown = false;
    for name in section_names() {
        // Before ELF had a flag for compressed sections, their names had a `z`.
        let former = name.replacen('.', ".z", 1);
        let section = file.section_by_name(name);
        let Some(section) = section.or_else(|| file.section_by_name(&former)) else {
            continue;
        };
        let range = section.compressed_file_range().ok().and_then(|found| {
            let start = usize::try_from(found.offset).ok()?;
            let end = start.checked_add(usize::try_from(found.compressed_size).ok()?)?;
            let packed = match found.format {
                object::CompressionFormat::None => Packed::No,
                object::CompressionFormat::Zlib => Packed::Zlib(found.uncompressed_size),
                object::CompressionFormat::Zstandard => Packed::Zstandard(found.uncompressed_size),
                _ => {
                    unknown = true;
                    return None;
                }
            };
            (end <= data.len()).then_some((start..end, packed))
        });
        sections.extend(range.map(|(range, packed)| Section {
            name,
            range,
            packed,
        }));
    }
    let endian = match file.endianness() {
        Endianness::Little => RunTimeEndian::Little,
        Endianness::Big => RunTimeEndian::Big,
    };
    Lines::new(Arc::clone(data), endian, sections, unknown)
}
