//! The files of a process that was recorded: its program and shared libraries, found where the recording says
//! they were, or among separate debug information.

use std::path::{Path, PathBuf};

use kymo_event::Mapping;
use kymo_symbols::Symbols;

use super::hex;
use crate::context::Context;
use crate::render::escape::escaped;

/// Where distributions put separate debug information.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// What `/proc/PID/maps` says behind the path of a file that has been removed.
const DELETED: &str = " (deleted)";

/// How many missing files are named.
const NAMED: usize = 3;

/// Reads the symbols of these files, where they lay. Files of another build are not used, which is said, as is what
/// is not there.
pub(super) fn load<'m>(
    mappings: impl Iterator<Item = &'m Mapping>,
    debug_directories: &[PathBuf],
    context: &Context,
) -> Symbols {
    let mut symbols = Symbols::new();
    let mut missing = Vec::new();
    for mapping in mappings {
        let mut found = Symbols::new();
        let path = escaped(&mapping.path);
        match program(mapping) {
            Found::Same(file) => {
                context.detail(format_args!("names are taken from {path}"));
                found.merge(file);
            }
            Found::Other(build_id) => context.warn(format_args!(
                "{path} is another build than the one that was recorded: its build id is {build_id}, the \
                 recording says {}; --elf names the right one",
                mapping.build_id.as_deref().map(hex).unwrap_or_default(),
            )),
            Found::Missing => missing.push(mapping),
        }
        if let Some((path, file)) = debug_file(mapping, debug_directories) {
            context.detail(format_args!(
                "names and lines are taken from {}",
                path.display()
            ));
            let mut file = file;
            file.set_text_base(mapping.start);
            // It has all names and lines, the file itself those that others use, and constants.
            file.merge(found);
            found = file;
            missing.retain(|other| !std::ptr::eq(*other, mapping));
        }
        symbols.merge(found);
    }
    if !missing.is_empty() {
        let named = missing.iter().take(NAMED).map(|mapping| {
            let id = mapping.build_id.as_deref().map(hex);
            let id = id.map_or(String::new(), |id| format!(" (build id {id})"));
            format!("{}{id}", escaped(&mapping.path))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match missing.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        context.note(format_args!(
            "not on this machine: {named}{more}; functions of these files are shown by address unless --elf names \
             the files"
        ));
    }
    symbols
}

/// The file of a mapping.
enum Found {
    /// The one that was recorded.
    Same(Symbols),
    /// One with this build id.
    Other(String),
    Missing,
}

/// What is at the path of a mapping now.
fn program(mapping: &Mapping) -> Found {
    let path = mapping.path.strip_suffix(DELETED).unwrap_or(&mapping.path);
    let paths = [Path::new(&mapping.path), Path::new(path)];
    let mut paths = paths.into_iter().filter(|path| path.is_absolute());
    let Some(mut file) = paths.find_map(|path| Symbols::open(path).ok()) else {
        return Found::Missing;
    };
    if mapping.build_id.is_some() && file.build_id() != mapping.build_id.as_deref() {
        return Found::Other(file.build_id().map_or("missing".to_owned(), hex));
    }
    file.set_text_base(mapping.start);
    Found::Same(file)
}

/// The separate debug information of a mapping.
fn debug_file(mapping: &Mapping, directories: &[PathBuf]) -> Option<(PathBuf, Symbols)> {
    let id = mapping.build_id.as_deref()?;
    let (first, rest) = id.split_first()?;
    let name = format!(".build-id/{first:02x}/{}.debug", hex(rest));
    let default = [PathBuf::from(DEBUG_DIRECTORY)];
    let mut directories = directories.iter().chain(&default);
    directories.find_map(|directory| {
        let path = directory.join(&name);
        let file = Symbols::open(&path).ok()?;
        (file.build_id() == Some(id)).then_some((path, file))
    })
}
