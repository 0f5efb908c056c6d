//! Files of processes: their programs and shared libraries, found at the paths in the trace, or among separate debug
//! information.

use std::path::{Path, PathBuf};

use kymo_event::Mapping;
use kymo_symbols::{DebugDirectories, Place, Symbols};

use super::hex;
use crate::context::Context;
use crate::render::escape::escaped;

/// The suffix in `/proc/PID/maps` of the path of a removed file.
const DELETED: &str = " (deleted)";

/// Maximum number of missing files that a message names.
const NAMED: usize = 3;

/// Reads the symbols of these files from their paths. Files of another build are not used, and are reported, as are
/// missing files.
pub(super) fn load<'m>(
    mappings: impl Iterator<Item = (Place, &'m Mapping)>,
    debug_directories: &[PathBuf],
    context: &Context,
) -> Symbols {
    let symbols = Symbols::new();
    let mut missing = Vec::new();
    for (place, mapping) in mappings {
        let found = find(mapping, debug_directories);
        for path in found.read {
            context.detail(format_args!("names are taken from {}", escaped(&path)));
        }
        for remark in found.refused {
            context.warn(remark);
        }
        match found.other {
            Some(build_id) => context.warn(other_build(mapping, &build_id)),
            None if found.symbols.is_empty() => missing.push(mapping),
            None => {}
        }
        symbols.merge(found.symbols.placed(place, mapping.start));
    }
    if !missing.is_empty() {
        let named = missing.iter().take(NAMED);
        let named: Vec<_> = named.map(|mapping| file(mapping)).collect();
        let more = match missing.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        context.note(absent(&format!("{}{more}", named.join(", "))));
    }
    symbols
}

/// The message for a file of another build, with that file's build id.
pub(super) fn other_build(mapping: &Mapping, build_id: &str) -> String {
    format!(
        "{} is another build than the one that was recorded: its build id is {build_id}, the recording says {}; \
         --elf names the right one",
        escaped(&mapping.path),
        mapping.build_id.as_deref().map(hex).unwrap_or_default(),
    )
}

/// The message for missing files.
pub(super) fn absent(files: &str) -> String {
    format!(
        "not on this machine: {files}; functions of these files are shown by address unless --elf names the files"
    )
}

/// The name of a mapped file in messages, with its build id.
pub(super) fn file(mapping: &Mapping) -> String {
    let id = mapping.build_id.as_deref().map(hex);
    let id = id.map_or(String::new(), |id| format!(" (build id {id})"));
    format!("{}{id}", escaped(&mapping.path))
}

/// The symbols found for a mapped file.
#[derive(Default)]
pub(super) struct Found {
    /// Its symbols, at its link addresses; empty if the file is missing.
    pub(super) symbols: Symbols,
    /// The files that they were read from.
    pub(super) read: Vec<String>,
    /// Remarks on files of debug information that are not used.
    pub(super) refused: Vec<String>,
    /// The build id of another file at its path.
    pub(super) other: Option<String>,
}

/// Finds a file, and its debug information.
pub(super) fn find(mapping: &Mapping, debug_directories: &[PathBuf]) -> Found {
    let mut found = Found::default();
    let debug = DebugDirectories::new(debug_directories.to_vec());
    let id = mapping.build_id.as_deref();
    let by_id = id.into_iter().flat_map(|id| debug.of_build(id));
    // A file that cannot be read or is of another build does not hide the one of a later directory.
    let mut separate = by_id.filter_map(|path| Some((Symbols::open(&path).ok()?, path)));
    let mut separate = separate.find(|(file, _)| file.build_id() == id);
    let path = mapping.path.strip_suffix(DELETED).unwrap_or(&mapping.path);
    let paths = [Path::new(&mapping.path), Path::new(path)];
    let mut paths = paths.into_iter().filter(|path| path.is_absolute());
    let own = paths.find_map(|path| Some((Symbols::open(path).ok()?, path)));
    let is_same = |file: &Symbols| id.is_none() || file.build_id() == id;
    if separate.is_none()
        && let Some((_, path)) = own.as_ref().filter(|(file, _)| is_same(file))
        && let Ok(bytes) = kymo_symbols::read_file(path, kymo_symbols::LARGEST_FILE)
    {
        let linked = debug.of_file(&bytes, Some(path), path);
        separate = linked
            .file
            .and_then(|path| Some((Symbols::open(&path).ok()?, path)));
        found.refused.extend(linked.refused.iter().map(|refused| {
            let file = refused.file.display().to_string();
            let (file, name) = (escaped(&file), escaped(&mapping.path));
            format!(
                "{file} is not used for the names of {name}: {}",
                refused.why
            )
        }));
    }
    if let Some((file, path)) = separate {
        // It has all names and lines; the file itself has exported names and constants.
        found.read.push(path.display().to_string());
        found.symbols.merge(file);
    }
    if let Some((file, _)) = own {
        if is_same(&file) {
            found.read.push(mapping.path.clone());
            found.symbols.merge(file);
        } else {
            found.other = Some(file.build_id().map_or("missing".to_owned(), hex));
        }
    }
    found
}
