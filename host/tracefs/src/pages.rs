//! Directory of raw pages of a recording, with the texts that describe them.
//!
//! Pages move from the kernel into named files, so a process that is killed, or whose disk is full, leaves what it had
//! recorded. The directory has the layout of tracefs itself (`events/SYSTEM/NAME/format`, `header_page`, `kallsyms`,
//! ...), with the pages of a CPU in `cpuN.raw`, and `kymo` can read it directly.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::plan::Place;
use crate::recording::comms;
use crate::{Result, Tracefs, TracefsError};

/// Suffix of the directory's name, after that of the finished file.
const SUFFIX: &str = ".pages";

/// Number of names to try: directories of killed recordings are kept.
const NAMES: u32 = 1000;

/// A directory of pages. Dropping it removes the directory, unless there are pages in it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    files: Vec<PathBuf>,
}

impl Directory {
    /// Creates one beside the output file of the recording.
    pub(crate) fn create(output: &Path) -> Result<Self> {
        let name = |number: u32| {
            let mut name = OsString::from(output);
            name.push(SUFFIX);
            if number > 1 {
                name.push(format!(".{number}"));
            }
            PathBuf::from(name)
        };
        let mut path = name(1);
        for number in 1..=NAMES {
            path = name(number);
            match fs::create_dir(&path) {
                Ok(()) => {
                    let files = Vec::new();
                    return Ok(Self { path, files });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(TracefsError::io("make", path, error)),
            }
        }
        let error = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(TracefsError::io("make", path, error))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the file for the pages of a CPU.
    pub(crate) fn file(&mut self, cpu: u32) -> Result<File> {
        let path = self.path.join(format!("cpu{cpu}.raw"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|error| TracefsError::io("make", &path, error))?;
        self.files.push(path);
        Ok(file)
    }

    /// Copies the texts without which pages can't be decoded, before recording begins.
    pub(crate) fn explain(
        &self,
        tracefs: &Tracefs,
        place: &Place,
        systems: &[String],
    ) -> Result<()> {
        self.put("header_page", &tracefs.bytes("events/header_page")?)?;
        self.put("trace_clock", &tracefs.bytes(&place.file("trace_clock"))?)?;
        self.put("saved_cmdlines", &comms(tracefs))?;
        let formats = tracefs.bytes("printk_formats").unwrap_or_default();
        self.put("printk_formats", &formats)?;
        // Without it, addresses have no names.
        self.put("kallsyms", &fs::read("/proc/kallsyms").unwrap_or_default())?;
        let ftrace = "ftrace".to_owned();
        for system in systems.iter().chain([&ftrace]) {
            for event in tracefs.names(&format!("events/{system}")) {
                let name = format!("events/{system}/{event}/format");
                if let Ok(format) = tracefs.bytes(&name) {
                    self.put(&name, &format)?;
                }
            }
        }
        Ok(())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let folder = path.parent().unwrap_or(&self.path);
        let made = fs::create_dir_all(folder).and_then(|()| fs::write(&path, bytes));
        made.map_err(|error| TracefsError::io("write", path, error))
    }

    /// Removes the directory with its contents.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        self.files.clear();
        fs::remove_dir_all(&self.path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let holds = |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        if !self.files.iter().any(holds) {
            // Files that can't be removed do no harm.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
