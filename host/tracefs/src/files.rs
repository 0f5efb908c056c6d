//! The tracefs directory and its files: small texts, each written with one system call.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use crate::{Result, TracefsError};

/// Bytes per read: more than any text that the kernel returns in one piece.
const PIECE: usize = 1 << 16;

/// The tracefs directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Finds it in the list of mounts.
    ///
    /// # Errors
    /// When the kernel has none, it is not mounted, or this user has no permission to read it.
    pub fn find() -> Result<Self> {
        let path = Path::new("/proc/mounts");
        let mounts = fs::read(path).map_err(|error| TracefsError::io("read", path, error))?;
        let Some(root) = mounted(&mounts) else {
            let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            return Err(match known.split_whitespace().any(|it| it == "tracefs") {
                true => TracefsError::NotMounted,
                false => TracefsError::NoTracefs,
            });
        };
        let found = Self::at(root);
        found.read("available_tracers")?;
        Ok(found)
    }

    /// Uses a known directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The kernel's tracers.
    ///
    /// # Errors
    /// When they can't be read.
    pub fn tracers(&self) -> Result<Vec<String>> {
        let text = self.read("available_tracers")?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Reads a text file. Invalid UTF-8 is replaced: texts contain the kernel's symbols and names of tasks.
    pub(crate) fn read(&self, name: &str) -> Result<String> {
        self.bytes(name)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads a file.
    pub(crate) fn bytes(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.path(name);
        read_whole(&path).map_err(|error| TracefsError::io("read", path, error))
    }

    /// Replaces the value of a setting.
    pub(crate) fn write(&self, name: &str, value: &str) -> Result<()> {
        self.put(name, value, OpenOptions::new().write(true).truncate(true))
    }

    /// Appends to the value of a setting.
    pub(crate) fn append(&self, name: &str, value: &str) -> Result<()> {
        self.put(name, value, OpenOptions::new().append(true))
    }

    fn put(&self, name: &str, value: &str, options: &OpenOptions) -> Result<()> {
        let path = self.path(name);
        let mut file = match options.open(&path) {
            Ok(file) => file,
            Err(error) => return Err(TracefsError::io("open", path, error)),
        };
        // Opening for writing has cleared a list; an empty value is not one of its elements.
        if value.is_empty() {
            return Ok(());
        }
        // The kernel processes the last word of a list when something follows it, and otherwise when the file is
        // closed, which reports no error.
        let line = match value.ends_with('\n') {
            true => value.to_owned(),
            false => format!("{value}\n"),
        };
        match file.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                Err(TracefsError::PermissionDenied { path, source })
            }
            Err(source) => Err(TracefsError::Refused {
                path,
                value: value.trim_end().to_owned(),
                source,
            }),
        }
    }

    /// The names in a directory, sorted; none if there is no such directory.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten();
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The CPUs with buffers.
    pub(crate) fn cpus(&self) -> Vec<u32> {
        let names = self.names("per_cpu");
        let mut cpus: Vec<u32> = names
            .iter()
            .filter_map(|name| name.strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort_unstable();
        cpus
    }
}

/// Reads a file in large pieces. The kernel regenerates some texts for each piece (`stats`), and returns only the first
/// piece of others (`events/header_page`); [`fs::read`] begins with a small one.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut bytes, mut end) = (Vec::new(), 0);
    loop {
        bytes.resize(end + PIECE, 0);
        match file.read(bytes.get_mut(end..).unwrap_or_default()) {
            Ok(0) => {
                bytes.truncate(end);
                return Ok(bytes);
            }
            Ok(read) => end += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Finds the mount point of tracefs: its own, or that in debugfs, which mounts it on access.
fn mounted(mounts: &[u8]) -> Option<PathBuf> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let of_type = |wanted: &'static [u8]| {
        lines.clone().find_map(move |line| {
            let mut words = line.split(|byte| *byte == b' ');
            let path = words.nth(1)?;
            (words.next()? == wanted).then(|| unescaped(path))
        })
    };
    of_type(b"tracefs").or_else(|| {
        let inside = of_type(b"debugfs")?.join("tracing");
        inside.join("available_tracers").exists().then_some(inside)
    })
}

/// Decodes a path from the kernel's list of mounts, in which blanks and some other characters are a backslash and three
/// octal digits.
fn unescaped(path: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), path);
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = match octal {
            Some(_) => behind.get(3..).unwrap_or_default(),
            None => behind,
        };
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found() {
        let mounts = b"proc /proc proc rw 0 0\n\
            nodev /sys/kernel/tracing tracefs rw,relatime 0 0\n\
            debugfs /sys/kernel/debug debugfs rw 0 0\n";
        assert_eq!(mounted(mounts), Some("/sys/kernel/tracing".into()));
        let elsewhere = b"nodev /mnt/my\\040traces tracefs rw 0 0\n";
        assert_eq!(mounted(elsewhere), Some("/mnt/my traces".into()));
        assert_eq!(mounted(b"proc /proc proc rw 0 0\nx"), None);
        // A directory inside a mounted debugfs that looks like tracefs.
        let folder = tempfile::tempdir().unwrap();
        let line = format!("debugfs {} debugfs rw 0 0\n", folder.path().display());
        assert_eq!(mounted(line.as_bytes()), None);
        fs::create_dir(folder.path().join("tracing")).unwrap();
        fs::write(folder.path().join("tracing/available_tracers"), "nop").unwrap();
        assert_eq!(
            mounted(line.as_bytes()),
            Some(folder.path().join("tracing"))
        );
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let tracefs = Tracefs::at(folder.path());
        let error = tracefs.read("tracing_on").unwrap_err();
        assert!(error.to_string().contains("tracing_on"), "{error}");
        assert!(tracefs.write("tracing_on", "1").is_err());
        assert_eq!(tracefs.names("events"), [""; 0]);
    }
}
