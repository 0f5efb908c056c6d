//! Finds the executable files of a recording and checks their build IDs.
//!
//! The search tries the recorded path below the given directories, then perf's cache of files by build ID (`~/.debug`).
//! It refuses a file with another build ID than the recorded one, because its code differs from the code that ran.

mod kernel;
mod module;
mod xz;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use super::{Mapping, Recording};
use crate::Error;
use crate::fit::has_code;
use crate::memory::{Bytes, Image, build_id, elf_kind, other_machine};
use crate::remarks::Remark;

/// Reason why a mapping has no code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// No such file.
    Nothing,
    /// File of another build.
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// Its build ID.
        found: Vec<u8>,
    },
    /// File without kernel or module code as it is in memory.
    NotCode {
        /// The file.
        path: PathBuf,
    },
    /// File for a machine other than Arm.
    OtherMachine {
        /// The file.
        path: PathBuf,
        /// Name of the machine.
        machine: String,
    },
    /// File that is damaged, or compressed in an unsupported way.
    Compressed {
        /// The file.
        path: PathBuf,
    },
}

/// User-defined locations of files.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Directory with the files at their recorded paths. Defaults to the directory of the recording (in `symfs`, or by
    /// their paths) and this machine.
    pub symfs: Option<PathBuf>,
    /// Kernel file: a `vmlinux`, or an `Image` of AArch64.
    pub kernel: Option<PathBuf>,
    /// perf's cache of files by build ID. Defaults to `~/.debug`.
    pub cache: Option<PathBuf>,
    /// Files that are also used for mappings with their build IDs.
    pub programs: Vec<PathBuf>,
}

impl Places {
    /// Checks that the locations exist.
    ///
    /// # Errors
    /// [`Error::Io`] for the first that does not.
    pub fn check(&self) -> Result<(), Error> {
        for path in [&self.symfs, &self.kernel, &self.cache]
            .into_iter()
            .flatten()
        {
            std::fs::metadata(path).map_err(|source| Error::Io {
                path: path.clone(),
                source,
            })?;
        }
        Ok(())
    }
}

/// Finds the files of a recording.
#[derive(Debug, Default)]
pub struct Files {
    roots: Vec<PathBuf>,
    caches: Vec<PathBuf>,
    kernel: Option<PathBuf>,
    /// Files that are used by their build IDs.
    programs: Vec<PathBuf>,
    /// Directory with `kcore` and `kallsyms`, which perf puts beside the records.
    kcore: Option<PathBuf>,
    release: Option<String>,
    /// Recorded paths of programs and libraries whose files are no ELF files.
    raw: BTreeSet<String>,
    /// Recorded paths of files with a recorded build ID whose file as found has none.
    unchecked: BTreeSet<String>,
    /// Recorded paths of ELF files that end before their headers say.
    cut: BTreeSet<String>,
    /// Results of earlier searches.
    known: HashMap<(String, Vec<u8>), Result<Bytes, NotFound>>,
    /// Segments of a copy of the kernel's memory.
    core: Vec<Image>,
    /// The kernel's `kallsyms`.
    symbols: Option<Vec<u8>>,
    /// Modules and addresses of each of its names.
    addresses: HashMap<Box<str>, Listed>,
}

/// Modules and addresses of a symbol name; `None` is the kernel itself.
type Listed = Vec<(Option<Box<str>>, u64)>;

/// Result of a search.
type Found = Result<Bytes, NotFound>;

impl Files {
    /// Searches below each of these directories, in order.
    pub fn below(roots: Vec<PathBuf>) -> Self {
        Files {
            roots,
            ..Files::default()
        }
    }

    /// Searches the directories in which perf leaves the files of the recording at `path`, or the locations in
    /// `places`.
    pub fn of_recording(path: &Path, recording: &Recording, places: &Places) -> Self {
        let beside = path.parent().unwrap_or(Path::new("."));
        let roots = match &places.symfs {
            Some(symfs) => vec![symfs.clone()],
            // The second is that of Android's scripts.
            None => {
                let below = |name| beside.join(name);
                let beside = beside.to_owned();
                vec![below("symfs"), below("binary_cache"), beside, "/".into()]
            }
        };
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".debug"));
        let mut caches = vec![beside.join(".debug")];
        caches.extend(places.symfs.as_ref().map(|symfs| symfs.join(".debug")));
        caches.extend(places.cache.clone().or_else(home));
        Files::below(roots)
            .with_caches(caches)
            .with_kernel(places.kernel.clone())
            .with_programs(places.programs.clone())
            .with_kcore(path.is_dir().then(|| path.join("kcore_dir")))
            .with_release(recording.release.clone())
    }

    /// Also searches these perf caches, in the layout of `~/.debug`.
    #[must_use]
    pub fn with_caches(mut self, caches: Vec<PathBuf>) -> Self {
        self.caches = caches;
        self
    }

    /// Uses this file as the kernel: a `vmlinux`, or an `Image` of AArch64.
    #[must_use]
    pub fn with_kernel(mut self, kernel: Option<PathBuf>) -> Self {
        self.kernel = kernel;
        self
    }

    /// Also uses these files, for mappings with their build IDs.
    #[must_use]
    pub fn with_programs(mut self, programs: Vec<PathBuf>) -> Self {
        self.programs = programs;
        self
    }

    /// Uses the kernel's memory from a directory with `kcore` and `kallsyms`, as `perf record --kcore` makes it.
    #[must_use]
    pub fn with_kcore(mut self, directory: Option<PathBuf>) -> Self {
        self.kcore = directory;
        self
    }

    /// Sets the release of the kernel, by which distributions name its files.
    #[must_use]
    pub fn with_release(mut self, release: Option<String>) -> Self {
        self.release = release;
        self
    }

    /// Symbols of the loaded kernel in the format of `/proc/kallsyms`, if found.
    pub fn kernel_symbols(&mut self) -> Option<Vec<u8>> {
        self.symbols.take()
    }

    /// Images of a mapping.
    ///
    /// # Errors
    /// [`NotFound`] with the reason why there are none.
    pub fn images(&mut self, mapping: &Mapping) -> Result<Vec<Image>, NotFound> {
        let is_kernel = mapping.process.is_none();
        if is_kernel && kernel::is_kernel(&mapping.path) {
            return self.kernel(mapping);
        }
        if is_kernel && module::is_module(&mapping.path) {
            return self.module(mapping);
        }
        let file = self.file(mapping)?;
        Ok(vec![mapping.image(&file)])
    }

    /// File of a mapping.
    fn file(&mut self, mapping: &Mapping) -> Found {
        let key = (mapping.path.clone(), mapping.build_id.clone());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let places = self.places(&mapping.path, &mapping.build_id);
        let found = first_of(places, &mapping.build_id);
        let name = Path::new(&mapping.path).file_name();
        let found = found.or_else(|why| {
            let named = name.and_then(|name| self.named(Path::new(name), &mapping.build_id));
            named.ok_or(why)
        });
        let found = found.or_else(|why| self.given(&mapping.build_id).ok_or(why));
        let found = self.checked(mapping, found);
        // Android maps libraries from the application archives (zip).
        if let Ok(file) = &found
            && elf_kind(file).is_none()
            && !file.starts_with(b"PK\x03\x04")
        {
            self.raw.insert(mapping.path.clone());
        }
        self.known.insert(key, found.clone());
        found
    }

    /// Notes a file that was found without a build ID although one was recorded.
    fn checked(&mut self, mapping: &Mapping, found: Found) -> Found {
        let is_recorded = mapping.build_id.iter().any(|byte| *byte != 0);
        if found.as_ref().is_ok_and(|file| is_cut(file)) {
            self.cut.insert(mapping.path.clone());
        } else if is_recorded && found.as_ref().is_ok_and(|file| build_id(file).is_none()) {
            self.unchecked.insert(mapping.path.clone());
        }
        found
    }

    /// Remarks on the files that were found.
    pub fn remarks(&self) -> Vec<Remark> {
        let mut remarks = self.remarks_of_raw();
        let cut = self.cut.iter().map(|path| {
            let text = format!(
                "the file of {path} is cut or damaged: its headers name bytes that it does not have; its build ID and symbols are \
                 not known"
            );
            Remark::warning("", text)
        });
        remarks.extend(cut);
        let mut unchecked = self.unchecked.iter();
        if let Some(first) = unchecked.next() {
            let text = match unchecked.count() {
                0 => format!(
                    "the file of {first} has no build ID, and the recording names one: whether it is what ran is not known"
                ),
                more => format!(
                    "the files of {first} and {more} more have no build ID, and the recording names one of each: whether they are \
                     what ran is not known"
                ),
            };
            remarks.push(Remark::warning("", text));
        }
        remarks
    }

    fn remarks_of_raw(&self) -> Vec<Remark> {
        let mut raw = self.raw.iter();
        let Some(first) = raw.next() else {
            return Vec::new();
        };
        let files = match raw.count() {
            0 => format!("the file of {first} is no ELF file"),
            more => format!("the files of {first} and {more} more are no ELF files"),
        };
        let text = format!("{files}: bytes are taken for code at the offsets of the mappings");
        vec![Remark::warning("", text)]
    }

    /// Possible locations of a file.
    fn places(&self, path: &str, build_id: &[u8]) -> Vec<PathBuf> {
        let below = below(path);
        let roots = self.roots.iter();
        let mut places: Vec<_> = roots
            .flat_map(|root| below.iter().map(|below| root.join(below)))
            .collect();
        places.extend(self.cached(build_id, &["elf", "vdso"]));
        places
    }

    /// Given file with this build ID and code. Files of debug information have the ID alone.
    fn given(&self, recorded: &[u8]) -> Option<Bytes> {
        if recorded.iter().all(|byte| *byte == 0) {
            return None;
        }
        let mut files = self.programs.iter().filter_map(|path| read(path).ok());
        files.find(|file| {
            let found = build_id(file);
            found.is_some_and(|found| !is_other(recorded, &found)) && has_code(file)
        })
    }

    /// File with this name and build, whatever its recorded directory: users copy binaries of a board beside the
    /// recording.
    fn named(&self, name: &Path, recorded: &[u8]) -> Option<Bytes> {
        let roots = self.roots.iter().filter(|root| *root != Path::new("/"));
        let mut files = roots.filter_map(|root| read(&root.join(name)).ok());
        files.find(|file| {
            let found = build_id(file).filter(|_| !recorded.is_empty());
            found.is_some_and(|found| !is_other(recorded, &found))
        })
    }

    /// Files of a build in the caches. The entry of a build is a directory; of old perf versions, the file itself.
    fn cached(&self, build_id: &[u8], names: &[&str]) -> Vec<PathBuf> {
        let Some((first, rest)) = build_id.split_first() else {
            return Vec::new();
        };
        // Recorders pad short build IDs with zeros.
        let written = rest
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let mut lengths = vec![rest.len(), written];
        lengths.dedup();
        let mut places = Vec::new();
        for cache in &self.caches {
            for length in &lengths {
                let rest = rest.get(..*length).unwrap_or(rest);
                let entry = cache.join(".build-id").join(hex(&[*first])).join(hex(rest));
                places.extend(names.iter().map(|name| entry.join(name)));
                places.push(entry);
            }
        }
        places
    }
}

/// Whether an ELF file ends before its headers say.
fn is_cut(file: &[u8]) -> bool {
    elf_kind(file).is_some() && object::File::parse(file).is_err()
}

/// Recorded path as a relative path. `None` if it leads out of the directory, or names no file.
fn below(path: &str) -> Option<PathBuf> {
    let mut below = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => below.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!below.as_os_str().is_empty()).then_some(below)
}

/// First of these files with the recorded build ID, if known; otherwise the first one without a build ID.
fn first_of(places: Vec<PathBuf>, recorded: &[u8]) -> Found {
    let (mut why, mut unchecked) = (NotFound::Nothing, None);
    for path in places {
        let file = match read(&path) {
            Ok(file) => file,
            Err(Unread::NoFile) => continue,
            Err(Unread::Compressed) => {
                why = NotFound::Compressed { path };
                continue;
            }
        };
        if let Some(machine) = other_machine(&file) {
            if why == NotFound::Nothing {
                why = NotFound::OtherMachine { path, machine };
            }
            continue;
        }
        match build_id(&file) {
            Some(found) if is_other(recorded, &found) => {
                if why == NotFound::Nothing {
                    why = NotFound::OtherBuild { path, found };
                }
            }
            None if !recorded.is_empty() => {
                unchecked.get_or_insert(file);
            }
            _ => return Ok(file),
        }
    }
    unchecked.ok_or(why)
}

/// Reason why a file cannot be read.
enum Unread {
    NoFile,
    Compressed,
}

/// Size limit of an unpacked file, in bytes.
const LARGEST_UNPACKED: u64 = 1 << 30;

/// Reads a file, and unpacks it if compressed, as the modules of distributions are.
fn read(path: &Path) -> Result<Bytes, Unread> {
    let file = crate::file::read(path).map_err(|_| Unread::NoFile)?;
    let unpacker: Box<dyn io::Read + '_> = match file.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::GzDecoder::new(&*file)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(&*file);
            Box::new(decoder.map_err(|_| Unread::Compressed)?)
        }
        bytes if bytes.starts_with(&xz::MAGIC) => {
            let unpacked = xz::unpack(bytes, LARGEST_UNPACKED as usize);
            return unpacked.map(Bytes::from).ok_or(Unread::Compressed);
        }
        _ => return Ok(Bytes::from(file).read_from(path)),
    };
    let mut unpacked = Vec::new();
    let read = unpacker.take(LARGEST_UNPACKED).read_to_end(&mut unpacked);
    match read {
        Ok(_) => Ok(Bytes::from(unpacked)),
        Err(_) => Err(Unread::Compressed),
    }
}

/// Whether two build IDs differ. Recorders pad short ones with zeros.
fn is_other(recorded: &[u8], found: &[u8]) -> bool {
    let length = recorded.len().min(found.len());
    length > 0 && recorded.get(..length) != found.get(..length)
}

/// Formats bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_files_are_unpacked_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.ko");
        let code: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        io::Write::write_all(&mut packed, &code).unwrap();
        let packed = packed.finish().unwrap();
        for (bytes, expected) in [
            (&code, Some(&code)),
            (&packed, Some(&code)),
            (&packed[..packed.len() / 2].to_vec(), None),
            (&b"\xfd7zXZ\0rest".to_vec(), None),
        ] {
            std::fs::write(&path, bytes).unwrap();
            let found = first_of(vec![path.clone()], &[]);
            match expected {
                Some(expected) => assert_eq!(&*found.unwrap(), expected.as_slice()),
                None => assert!(matches!(found, Err(NotFound::Compressed { .. }))),
            }
        }
    }
}
