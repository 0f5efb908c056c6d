//! Protects inputs from being overwritten by outputs.

use std::fs;
use std::path::{Path, PathBuf};

use kymo_event::TraceInfo;

use crate::args::{InputArgs, MemoryArgs, SymbolArgs};
use crate::diagnostic::Report;

/// Maximum depth of directories searched in an input.
const DEPTH: u32 = 16;

/// Identity of a file, independent of the path to it: device and inode, or its canonical path on systems without these.
#[cfg(unix)]
type FileId = (u64, u64);
#[cfg(not(unix))]
type FileId = PathBuf;

#[cfg(unix)]
fn id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn id(path: &Path) -> Option<FileId> {
    path.canonicalize().ok()
}

/// The files that a subcommand reads.
#[derive(Debug, Default)]
pub struct Inputs {
    paths: Vec<PathBuf>,
}

impl Inputs {
    /// The files of a trace: metadata, mapping, memory and symbols.
    pub fn of(input: &InputArgs, symbols: &SymbolArgs) -> Self {
        let mut inputs = Self::at(input.path(), &input.memory, symbols);
        let ctf = &input.ctf;
        let more = [&ctf.metadata, &ctf.mapping, &ctf.rtems.event_names];
        inputs.paths.extend(more.into_iter().flatten().cloned());
        inputs.paths.extend(ctf.description.iter().cloned());
        inputs.paths.extend(ctf.with.iter().cloned());
        let binaries = &ctf.binaries;
        let more = [&binaries.symfs, &binaries.vmlinux, &binaries.buildid_dir];
        inputs.paths.extend(more.into_iter().flatten().cloned());
        let images = binaries.trace_image.iter();
        inputs
            .paths
            .extend(images.map(|image| image.split(['@', ',']).next().unwrap_or(image).into()));
        if input.path() == Path::new("-") {
            // The file to which the shell redirects.
            inputs.paths.push("/dev/stdin".into());
        }
        inputs
    }

    /// Adds the files found automatically for an open trace: the programs that it names.
    pub fn with_programs(mut self, info: &TraceInfo, symfs: Option<&Path>) -> Self {
        let spaces = info.identities.spaces().iter();
        for mapping in spaces.flat_map(|space| &space.mappings) {
            let path = Path::new(&mapping.path);
            self.paths.push(path.to_owned());
            let below = symfs.map(|root| root.join(path.strip_prefix("/").unwrap_or(path)));
            self.paths.extend(below);
        }
        self
    }

    /// The files of a saved recording: more memory, and symbols.
    pub fn at(path: &Path, memory: &MemoryArgs, symbols: &SymbolArgs) -> Self {
        let mut inputs = Self::of_symbols(symbols);
        inputs.paths.push(path.to_owned());
        // A stream of a CTF trace is read with the metadata beside it.
        if path.is_file() {
            inputs.paths.push(path.with_file_name("metadata"));
            inputs.paths.extend(descriptions_beside(path));
        }
        let more = memory.memory.iter().map(|(path, _)| path.clone());
        inputs.paths.extend(more);
        inputs
    }

    /// Only symbols, as for a live target.
    pub fn of_symbols(symbols: &SymbolArgs) -> Self {
        let SymbolArgs {
            elf,
            symbols,
            build_dir,
            debug_dir,
        } = symbols;
        let built = build_dir.iter().map(|dir| dir.join("zephyr/zephyr.elf"));
        let given = elf.iter().chain(symbols).chain(debug_dir);
        let paths = given.cloned().chain(built);
        Self {
            paths: paths.collect(),
        }
    }
}

/// The files beside a SystemView recording that name its events.
fn descriptions_beside(path: &Path) -> Vec<PathBuf> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("SYSVIEW_");
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

/// Whether two paths refer to the same file.
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Refuses an output that is one of the inputs under any name: an input file, an input directory or a file in it, or
/// a directory that contains an input.
///
/// # Errors
/// When it is, because it would be overwritten before it is read.
pub fn protect(inputs: &Inputs, output: &Path) -> Result<(), Report> {
    let output_id = id(output);
    // The path of the output, existing or not, and the directories above it.
    let around = ancestors(output);
    let refuse = |what: &str| {
        let output = output.display();
        let report = Report::new(format_args!("{output} {what}: it is left as it is"));
        Err(report.help("give --output another name"))
    };
    let mut pending: Vec<(PathBuf, u32)> =
        inputs.paths.iter().map(|path| (path.clone(), 0)).collect();
    while let Some((path, depth)) = pending.pop() {
        let Some(found) = id(&path) else { continue };
        if output_id == Some(found) {
            return refuse(if depth == 0 {
                "is the input itself"
            } else {
                "is a file of the input"
            });
        }
        if path.is_dir() {
            if depth == 0 && around.contains(&found) {
                return refuse("is inside of the input");
            }
            let linked = depth > 0 && path.is_symlink();
            if depth < DEPTH && !linked {
                // A directory that can't be listed can't be read either.
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                pending.extend(entries.map(|entry| (entry.path(), depth + 1)));
            }
        } else if depth == 0
            && let Some(output_id) = output_id
            && output.is_dir()
            && ancestors(&path).contains(&output_id)
        {
            return refuse(&format!("holds the input {}", path.display()));
        }
    }
    Ok(())
}

/// The directories above a path, which need not exist itself.
fn ancestors(path: &Path) -> Vec<FileId> {
    let existing = path.ancestors().find_map(|path| {
        let here = Path::new(".");
        let path = if path.as_os_str().is_empty() {
            here
        } else {
            path
        };
        path.canonicalize().ok()
    });
    existing
        .iter()
        .flat_map(|path| path.ancestors())
        .filter_map(id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(paths: &[&Path]) -> Inputs {
        Inputs {
            paths: paths.iter().map(|path| path.to_path_buf()).collect(),
        }
    }

    #[test]
    fn no_part_of_an_input_is_an_output() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        fs::create_dir_all(trace.join("deep/er")).unwrap();
        let elf = folder.path().join("x.elf");
        for file in ["trace/metadata", "trace/deep/er/stream", "x.elf", "other"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let inputs = inputs(&[&trace, &elf]);
        for bad in [
            "trace",
            "trace/metadata",
            "trace/deep/../metadata",
            "trace/deep/er/stream",
            "trace/new",
            "trace/deep/new/newer",
            "x.elf",
            "./trace/../x.elf",
        ] {
            let report = protect(&inputs, &folder.path().join(bad)).expect_err(bad);
            assert!(report.message().contains("left as it is"), "{report:?}");
        }
        for good in ["other", "new", "new/newer"] {
            assert!(
                protect(&inputs, &folder.path().join(good)).is_ok(),
                "{good}"
            );
        }
        // A directory that holds an input would be cleared.
        let report = protect(&inputs, folder.path()).expect_err("its directory");
        assert!(report.message().contains("holds the input"), "{report:?}");
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_hide_an_input() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        fs::create_dir(&trace).unwrap();
        fs::write(trace.join("stream"), "").unwrap();
        let hard = folder.path().join("hard");
        let soft = folder.path().join("soft");
        fs::hard_link(trace.join("stream"), &hard).unwrap();
        std::os::unix::fs::symlink(&trace, &soft).unwrap();
        let inputs = inputs(&[&trace]);
        for bad in ["hard", "soft", "soft/new"] {
            assert!(protect(&inputs, &folder.path().join(bad)).is_err(), "{bad}");
        }
    }
}
