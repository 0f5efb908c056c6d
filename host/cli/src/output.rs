//! Atomic output files and directories: complete, or absent.
//!
//! An output is written under a temporary name in the destination's directory, and renamed when it is complete
//! ([`OutputFile`], [`OutputDirectory`]). After a failure, a full disk or a signal, the earlier output remains, and
//! no part of the new one. Pipes and devices can't be replaced and are written directly.
//!
//! [`protect()`] refuses an output that is part of its own input.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::diagnostic::{Report, unwritable};
use crate::interrupt;
use crate::render::count::counted;

pub use protect::{Inputs, is_same_file, protect};

mod protect;

/// Number of temporary names to try, because a killed process may have left some.
const NAMES: u32 = 1000;

/// A file under construction.
pub struct OutputFile {
    out: BufWriter<File>,
    /// The path of the finished file.
    path: PathBuf,
    /// The temporary file, unless `path` is written directly.
    temporary: Option<PathBuf>,
}

impl OutputFile {
    /// Begins to write the file at `path`. A symbolic link is followed, so that it remains one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn create(path: &Path) -> Result<Self, Report> {
        Self::begin(path).map_err(|error| unwritable(path, &error))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let direct = |path: PathBuf| {
            Ok(Self {
                out: BufWriter::new(File::create(&path)?),
                path,
                temporary: None,
            })
        };
        let before = match fs::metadata(path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if before.as_ref().is_some_and(|before| !before.is_file()) {
            return direct(path.to_owned());
        }
        let place = match &before {
            Some(_) => path.canonicalize()?,
            // A dangling link becomes a file at its target.
            None if path.is_symlink() => return direct(path.to_owned()),
            None => path.to_owned(),
        };
        if before.is_some() {
            // A read-only file is kept, although its directory would permit a replacement.
            OpenOptions::new().write(true).open(&place)?;
        }
        let options = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let (temporary, file) = match interrupt::create_temporary(|| beside(&place, options)) {
            Ok(created) => created,
            // The directory takes no new file, so the old one must be overwritten.
            Err(error) if before.is_some() && error.kind() == io::ErrorKind::PermissionDenied => {
                return direct(place);
            }
            Err(error) => return Err(error),
        };
        if let Some(before) = before {
            // If the system refuses, the file has default permissions.
            let _ = file.set_permissions(before.permissions());
        }
        Ok(Self {
            out: BufWriter::new(file),
            path: place,
            temporary: Some(temporary),
        })
    }

    /// Renames the file to its final path.
    ///
    /// # Errors
    /// When the rest can't be written; the earlier file is then unchanged.
    pub fn finish(mut self) -> Result<(), Report> {
        let result = self.out.flush().and_then(|()| match self.temporary.take() {
            Some(temporary) => {
                interrupt::put_in_place(&temporary, || fs::rename(&temporary, &self.path))
                    .inspect_err(|_| self.temporary = Some(temporary))
            }
            None => Ok(()),
        });
        result.map_err(|error| unwritable(&self.path, &error))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Removes an unfinished file.
impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            interrupt::remove_now(&temporary);
        }
    }
}

/// A file that receives a target's data, and can be read at any time. An earlier file is kept until the first byte
/// arrives.
pub struct LiveFile<'a> {
    path: &'a Path,
    /// Written before the first byte.
    header: &'a [u8],
    out: Option<File>,
    /// The number of bytes in it after the header.
    written: u64,
}

impl<'a> LiveFile<'a> {
    /// Prepares a file at this path, which is created with the first write.
    ///
    /// # Errors
    /// When it is already known that it can't be written.
    pub fn new(path: &'a Path, header: &'a [u8]) -> Result<Self, Report> {
        let possible = match fs::metadata(path) {
            Ok(_) => OpenOptions::new().write(true).open(path).map(drop),
            Err(_) => match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => fs::read_dir(folder).map(drop),
                _ => Ok(()),
            },
        };
        possible.map_err(|error| unwritable(path, &error))?;
        Ok(Self {
            path,
            header,
            out: None,
            written: 0,
        })
    }

    /// The number of received bytes in it.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Truncates it to `bytes`: removes a part of data that could not be written completely.
    ///
    /// # Errors
    /// When it can't be truncated, such as a pipe.
    pub fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if let Some(out) = &mut self.out
            && bytes < self.written
        {
            out.set_len(self.header.len() as u64 + bytes)?;
            self.written = bytes;
        }
        Ok(())
    }

    /// The error when not all of the `arrived` bytes could be written. The contents of the file remain readable.
    pub fn unwritten(&self, error: &io::Error, arrived: u64) -> Report {
        let report = unwritable(self.path, error);
        let lost = counted(arrived.saturating_sub(self.written), "byte");
        match self.written {
            0 => report.help(format_args!(
                "nothing is kept: lost are {lost} that had come, and what the target sent since"
            )),
            written => report.help(format_args!(
                "what arrived until then is in {} ({}); lost are {lost} that came behind it, and what the target sent \
                 since",
                self.path.display(),
                counted(written, "byte"),
            )),
        }
    }
}

impl Write for LiveFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let out = match &mut self.out {
            Some(out) => out,
            None => {
                let mut out = File::create(self.path)?;
                if let Err(error) = out.write_all(self.header) {
                    // A part of the header is no recording.
                    let _ = out.set_len(0);
                    return Err(error);
                }
                self.out.insert(out)
            }
        };
        let count = out.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Writes a whole file.
///
/// # Errors
/// When it can't be written; the earlier file is then unchanged.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Report> {
    let mut file = OutputFile::create(path)?;
    let written = file.write_all(bytes);
    written.map_err(|error| unwritable(path, &error))?;
    file.finish()
}

/// A directory under construction.
pub struct OutputDirectory {
    /// The path under which it is written.
    temporary: PathBuf,
    /// Its path when it is complete.
    path: PathBuf,
    done: bool,
}

impl OutputDirectory {
    /// Begins to write a directory that replaces `path`, which must be missing or empty, or be cleared by the closure
    /// passed to [`finish`](Self::finish).
    ///
    /// # Errors
    /// When it can't be written.
    pub fn create(path: &Path) -> Result<Self, Report> {
        Self::begin(path).map_err(|error| unwritable(path, &error))
    }

    fn begin(path: &Path) -> io::Result<Self> {
        let place = match path.canonicalize() {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        if let Some(parent) = place
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            fs::create_dir_all(parent)?;
        }
        let (temporary, ()) =
            interrupt::create_temporary(|| beside(&place, |path| fs::create_dir(path)))?;
        if let Ok(before) = fs::metadata(&place) {
            // If the system refuses, the directory has default permissions.
            let _ = fs::set_permissions(&temporary, before.permissions());
        }
        Ok(Self {
            temporary,
            path: place,
            done: false,
        })
    }

    /// The directory into which files must be written until then.
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Renames the directory to its final path, after `clear` has removed the removable contents there.
    ///
    /// # Errors
    /// When it can't be renamed.
    pub fn finish(mut self, clear: impl FnOnce() -> io::Result<()>) -> Result<(), Report> {
        let put = || {
            clear()?;
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            fs::rename(&self.temporary, &self.path)
        };
        interrupt::put_in_place(&self.temporary, put)
            .map_err(|error| unwritable(&self.path, &error))?;
        self.done = true;
        Ok(())
    }
}

/// Removes an unfinished directory.
impl Drop for OutputDirectory {
    fn drop(&mut self) {
        if !self.done {
            interrupt::remove_now(&self.temporary);
        }
    }
}

/// Creates a file or directory under a temporary name beside `place`. The name begins with a dot, so readers of
/// traces skip it.
fn beside<T>(place: &Path, create: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let name = place
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    sweep(place, &name.to_string_lossy());
    let process = std::process::id();
    for number in 0..NAMES {
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{process}-{number}.part"));
        let path = place.with_file_name(temporary);
        match create(&path) {
            Ok(created) => return Ok((path, created)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Minimum age of an unmodified temporary file before it is considered abandoned. The process that writes it may run
/// in another container, or on another machine.
const LEFT_BEHIND: Duration = Duration::from_secs(600);

/// Removes temporary files of an output that killed processes have abandoned.
fn sweep(place: &Path, name: &str) {
    let folder = match place.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let prefix = format!(".{name}.");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let numbers = file.to_str().and_then(|file| {
            let numbers = file.strip_prefix(&prefix)?.strip_suffix(".part")?;
            let (process, number) = numbers.split_once('-')?;
            Some((process.parse::<u32>().ok()?, number.parse::<u32>().ok()?))
        });
        let path = entry.path();
        if numbers.is_some_and(|(process, _)| !is_running(process)) && is_untouched(&path) {
            // Files that can't be removed remain, and are harmless.
            let _ = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
        }
    }
}

/// Whether a process runs; assumed if that is unknown.
fn is_running(process: u32) -> bool {
    let processes = Path::new("/proc");
    !processes.join("self").exists() || processes.join(process.to_string()).exists()
}

/// Whether a file, or the contents of a directory, are unmodified for [`LEFT_BEHIND`].
fn is_untouched(path: &Path) -> bool {
    let is_old = |path: &Path| {
        let written = fs::symlink_metadata(path).and_then(|about| about.modified());
        let age = written.ok().and_then(|written| written.elapsed().ok());
        age.is_some_and(|age| age > LEFT_BEHIND)
    };
    let mut inside = fs::read_dir(path).into_iter().flatten().flatten();
    is_old(path) && inside.all(|entry| is_old(&entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn what_killed_processes_left_behind_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!(".x.{}-7.part", std::process::id());
        let gone = ".x.4294967295-0.part";
        for (name, age) in [
            (gone, 3600),
            (&own, 3600),
            (".x.4294967294-0.part", 0),
            (".y.4294967295-0.part", 3600),
            (".x.4294967295.part", 3600),
        ] {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let written = std::time::SystemTime::now() - Duration::from_secs(age);
            file.set_modified(written).unwrap();
        }
        OutputFile::create(&folder.path().join("x"))
            .unwrap()
            .finish()
            .unwrap();
        let found = names(folder.path());
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(!found.iter().any(|name| name == gone), "{found:?}");
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_the_old_one_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "old").unwrap();
        for finish in [false, true] {
            let mut file = OutputFile::create(&path).unwrap();
            file.write_all(b"new").unwrap();
            file.flush().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"old");
            if finish {
                file.finish().unwrap();
            }
        }
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[test]
    fn a_directory_appears_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for (finish, before) in [(false, false), (true, false), (true, true)] {
            if before {
                fs::remove_dir_all(&path).unwrap();
                fs::create_dir(&path).unwrap();
            }
            let directory = OutputDirectory::create(&path).unwrap();
            fs::write(directory.temporary().join("a"), "").unwrap();
            assert!(!path.join("a").exists());
            if finish {
                directory.finish(|| Ok(())).unwrap();
            }
            assert_eq!(path.join("a").exists(), finish);
        }
        assert_eq!(names(folder.path()), ["x"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_devices_and_modes_stay_what_they_are() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&path, &link).unwrap();
        let mut file = OutputFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let mut device = OutputFile::create(Path::new("/dev/null")).unwrap();
        device.write_all(b"new").unwrap();
        device.finish().unwrap();
        let failed = OutputFile::create(Path::new("/dev/full")).unwrap();
        let mut failed = failed;
        failed.write_all(b"new").unwrap();
        assert!(failed.finish().is_err());
    }
}
