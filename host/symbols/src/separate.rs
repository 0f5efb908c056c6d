//! Separate files of debug information, which have the names and lines of a stripped file.
//!
//! They are searched where GDB and perf search them: by build ID below each debug directory (`.build-id/xx/yyyy.debug`,
//! and `.build-id/xx/yyyy/debug` in perf's cache); then beside the file, in `.debug` beside it, and below each debug
//! directory at the file's path, by the name in its debug link (`.gnu_debuglink`) or by its own name. Each is used only if
//! it has the same build ID, or, found by name, the checksum that the debug link states; else the search goes on.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use object::{Object, ObjectKind, ObjectSection as _, ReadCache};

use crate::{LARGEST_FILE, read_file};

/// Directories with separate files of debug information.
#[derive(Clone, Debug, Default)]
pub struct DebugDirectories(Vec<PathBuf>);

/// Result of a search for a separate file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separate {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Files in its place that are not used, if there is none.
    pub refused: Vec<Refused>,
}

/// A file in the place of a separate file that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The file.
    pub file: PathBuf,
    /// Why it is not used.
    pub why: String,
}

impl DebugDirectories {
    /// The given directories, the system's (`/usr/lib/debug`) and perf's cache (`~/.debug`), in this order.
    pub fn new(given: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut all: Vec<PathBuf> = given.into_iter().collect();
        all.push("/usr/lib/debug".into());
        all.extend(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".debug")));
        all.into_iter().collect()
    }

    /// The files in the places of a build ID, not yet checked.
    pub fn of_build(&self, id: &[u8]) -> impl Iterator<Item = PathBuf> {
        let names = id.split_first().map(|(first, rest)| {
            let entry = format!(".build-id/{first:02x}/{}", hex(rest));
            [format!("{entry}.debug"), format!("{entry}/debug")]
        });
        let directories = self.0.iter().flat_map(move |directory| {
            let names = names.iter().flatten();
            let places: Vec<_> = names.map(|name| directory.join(name)).collect();
            places
        });
        directories.filter(|path| path.is_file())
    }

    /// The file for an ELF file without a symbol table or without lines. `path` is where that file was read, and
    /// `recorded` where it was on the machine that ran it.
    pub fn of_file(&self, file: &[u8], path: Option<&Path>, recorded: &Path) -> Separate {
        let mut separate = Separate::default();
        let Some(parsed) = object::File::parse(file)
            .ok()
            .filter(|file| is_linked(file) && !(has_names(file) && has_lines(file)))
        else {
            return separate;
        };
        let id = parsed.build_id().ok().flatten();
        let link = parsed.gnu_debuglink().ok().flatten();
        if id.is_none() && link.is_none() {
            // Nothing tells which file is of this build.
            return separate;
        }
        let by_id = id.into_iter().flat_map(|id| self.of_build(id));
        let by_id = by_id.map(|candidate| (candidate, None, true));
        let (link, sum) = link.unzip();
        let by_name = self.named(link, path, recorded).into_iter();
        let by_name = by_name.filter(|candidate| candidate.is_file());
        // Its own name states nothing: where names are not missing, the file may well be of another program.
        let by_name = by_name.map(|candidate| {
            let name = candidate.file_name().map(|name| name.as_encoded_bytes());
            let is_stated = link.is_some() && name == link || !has_names(&parsed);
            (candidate, sum, is_stated)
        });
        for (candidate, sum, is_stated) in by_id.chain(by_name) {
            if path == Some(candidate.as_path()) {
                continue;
            }
            match is_of(&candidate, id, sum) {
                Ok(true) => {
                    separate.file = Some(candidate);
                    separate.refused.clear();
                    return separate;
                }
                Err(why) if is_stated => separate.refused.push(Refused {
                    file: candidate,
                    why,
                }),
                Ok(false) | Err(_) => {}
            }
        }
        separate
    }

    /// Places of a file with the linked name, or with the file's own name.
    fn named(&self, link: Option<&[u8]>, path: Option<&Path>, recorded: &Path) -> Vec<PathBuf> {
        // A link is a name without directories.
        let link = link.and_then(|name| std::str::from_utf8(name).ok());
        let link = link.filter(|name| !name.is_empty() && !name.contains('/'));
        let own = recorded.file_name().and_then(|name| name.to_str());
        let own = own.into_iter().flat_map(|name| {
            let with_suffix = format!("{name}.debug");
            [with_suffix, name.to_owned()]
        });
        let mut names: Vec<String> = link.map(str::to_owned).into_iter().collect();
        names.extend(own);
        names.dedup();
        let mut directories = Vec::new();
        if let Some(beside) = path.and_then(Path::parent) {
            directories.extend([beside.to_owned(), beside.join(".debug")]);
        }
        let below = recorded.parent().map(relative).unwrap_or_default();
        directories.extend(self.0.iter().map(|directory| directory.join(&below)));
        let mut places = Vec::new();
        for place in directories
            .iter()
            .flat_map(|directory| names.iter().map(|name| directory.join(name)))
        {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

impl FromIterator<PathBuf> for DebugDirectories {
    /// Only these directories.
    fn from_iter<T: IntoIterator<Item = PathBuf>>(directories: T) -> Self {
        DebugDirectories(directories.into_iter().collect())
    }
}

/// Whether a file has names or lines, and the build ID or else the checksum of those that are missing. Of a large file,
/// only the headers are read, unless the checksum decides.
///
/// # Errors
/// Why it is not used, if it cannot be read or is of another build.
fn is_of(candidate: &Path, id: Option<&[u8]>, sum: Option<u32>) -> Result<bool, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("it cannot be read: {error}");
    let file = File::open(candidate).map_err(|error| unreadable(&error))?;
    let size = file.metadata().map_err(|error| unreadable(&error))?.len();
    if size > LARGEST_FILE {
        return Err(format!("it has {size} bytes, more than {LARGEST_FILE}"));
    }
    let cache = ReadCache::new(file);
    let parsed = object::File::parse(&cache).map_err(|error| unreadable(&error))?;
    let is_useful = is_linked(&parsed) && (has_names(&parsed) || has_lines(&parsed));
    match (id, parsed.build_id().ok().flatten(), sum) {
        (Some(id), Some(other), _) if id == other => Ok(is_useful),
        (Some(id), Some(other), _) => {
            Err(format!("its build ID is {}, not {}", hex(other), hex(id)))
        }
        (_, _, Some(sum)) => {
            let bytes = read_file(candidate, LARGEST_FILE).map_err(|error| unreadable(&error))?;
            match crc32fast::hash(&bytes) == sum {
                true => Ok(is_useful),
                false => Err("it does not have the checksum of the debug link".to_owned()),
            }
        }
        (_, _, None) => Err("it has no build ID".to_owned()),
    }
}

/// Whether a file is a program or a library, whose symbols have addresses.
fn is_linked<'d>(file: &impl Object<'d>) -> bool {
    matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic)
}

/// Whether a file has a symbol table.
fn has_names<'d>(file: &impl Object<'d>) -> bool {
    file.symbols().next().is_some()
}

/// Whether a file has lines.
fn has_lines<'d>(file: &impl Object<'d>) -> bool {
    file.sections().any(|section| {
        let name = section.name().unwrap_or_default();
        matches!(name, ".debug_line" | ".zdebug_line")
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A path below the root, without components that lead elsewhere.
fn relative(path: &Path) -> PathBuf {
    let parts = path.components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
    parts.collect()
}
