//! Separate files of debug information, which have the names and lines of a stripped file.
//!
//! They are searched where GDB and perf search them: by build ID below each debug directory (`.build-id/xx/yyyy.debug`,
//! and `.build-id/xx/yyyy/debug` in perf's cache); then beside the file, in `.debug` beside it, and below each debug
//! directory at the file's path, by the name in its debug link (`.gnu_debuglink`) or by its own name. A file that is
//! found by name is used if it has the same build ID, or the checksum that the debug link states.

use std::path::{Component, Path, PathBuf};

use object::{Object as _, ObjectSection as _};

use crate::{LARGEST_FILE, read_file};

/// Directories with separate files of debug information.
#[derive(Clone, Debug, Default)]
pub struct DebugDirectories(Vec<PathBuf>);

/// Result of a search for a separate file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Separate {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Files of that name that belong to another build.
    pub others: Vec<PathBuf>,
}

impl DebugDirectories {
    /// The given directories, the system's (`/usr/lib/debug`) and perf's cache (`~/.debug`), in this order.
    pub fn new(given: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut all: Vec<PathBuf> = given.into_iter().collect();
        all.push("/usr/lib/debug".into());
        all.extend(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".debug")));
        DebugDirectories(all)
    }

    /// The file for a build ID.
    pub fn of_build(&self, id: &[u8]) -> Option<PathBuf> {
        let (first, rest) = id.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let entry = format!(".build-id/{first:02x}/{rest}");
        let names = [format!("{entry}.debug"), format!("{entry}/debug")];
        let mut files = self
            .0
            .iter()
            .flat_map(|directory| names.iter().map(|name| directory.join(name)));
        files.find(|path| path.is_file())
    }

    /// The file for an ELF file without a symbol table or without lines. `path` is where that file was read, and
    /// `recorded` where it was on the machine that ran it.
    pub fn of_file(&self, file: &[u8], path: Option<&Path>, recorded: &Path) -> Separate {
        let mut separate = Separate::default();
        let Some(parsed) = object::File::parse(file)
            .ok()
            .filter(|file| !is_complete(file))
        else {
            return separate;
        };
        let id = parsed.build_id().ok().flatten();
        separate.file = id.and_then(|id| self.of_build(id));
        if separate.file.is_some() {
            return separate;
        }
        let link = parsed.gnu_debuglink().ok().flatten();
        for candidate in self.named(link.map(|(name, _)| name), path, recorded) {
            let is_itself = path == Some(candidate.as_path());
            if is_itself || !candidate.is_file() {
                continue;
            }
            let Ok(bytes) = read_file(&candidate, LARGEST_FILE) else {
                continue;
            };
            let other = object::File::parse(&*bytes).ok();
            let other = other.and_then(|other| Some(other.build_id().ok()??.to_vec()));
            let is_same = match (id, other) {
                (Some(id), Some(other)) => id == other,
                _ => link.is_some_and(|(_, sum)| crc32fast::hash(&bytes) == sum),
            };
            if is_same {
                separate.file = Some(candidate);
                separate.others.clear();
                return separate;
            }
            separate.others.push(candidate);
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

/// Whether a file has names and lines of its own.
fn is_complete(file: &object::File<'_>) -> bool {
    let has_lines = file.sections().any(|section| {
        let name = section.name().unwrap_or_default();
        matches!(name, ".debug_line" | ".zdebug_line")
    });
    has_lines && file.symbols().next().is_some()
}

/// A path below the root, without components that lead elsewhere.
fn relative(path: &Path) -> PathBuf {
    let parts = path.components();
    let parts = parts.filter(|part| matches!(part, Component::Normal(_)));
    parts.collect()
}
