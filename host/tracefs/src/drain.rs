//! Copies the pages of each CPU from the kernel to a file: one thread a CPU, whole pages by `splice`, the last by `read`.
//!
//! The files are those of a [`Directory`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::pages::Directory;
use crate::plan::Place;
use crate::{Result, Tracefs, TracefsError};

/// Interval at which a thread checks whether it has to end.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// How long to wait for more events after a wakeup: older kernels wake a reader for a single event, which is no full
/// page yet.
const BREATH: Duration = Duration::from_millis(5);

/// Time without a full page after which the partial page is read as well. This is the most that a killed recording
/// loses of a quiet CPU.
const QUIET: Duration = Duration::from_secs(1);

/// Requested capacity of a pipe in bytes.
const PIPE: usize = 1 << 20;

/// Disk space in bytes reserved for the kernel's texts, mostly the names of its functions, so that a recording that
/// fills the disk can still be completed.
const ROOM: u64 = 8 << 20;

/// The copying threads.
#[derive(Debug)]
pub(crate) struct Drain {
    threads: Vec<JoinHandle<Pages>>,
    /// Reserves [`ROOM`]; `None` if the disk lacks the space, or its file system can't reserve it.
    _room: Option<File>,
    ending: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

/// The recording of one CPU.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) cpu: u32,
    pub(crate) file: File,
    pub(crate) bytes: u64,
    /// The error that ended the copying early, if any.
    pub(crate) cut: Option<TracefsError>,
}

impl Drain {
    /// Starts to copy into files of `directory`.
    pub(crate) fn start(
        tracefs: &Tracefs,
        place: &Place,
        page_size: usize,
        directory: &mut Directory,
    ) -> Result<Self> {
        let folder = directory.path().to_owned();
        let mut drain = Self {
            threads: Vec::new(),
            _room: room(&folder),
            ending: Arc::default(),
            bytes: Arc::default(),
        };
        for cpu in tracefs.cpus() {
            let name = place.file(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
            let path = tracefs.path(&name);
            // O_NONBLOCK: a read returns at once when there is no data.
            let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
            let raw = OpenOptions::new()
                .read(true)
                .custom_flags(nonblocking)
                .open(&path)
                .map_err(|error| TracefsError::io("open", &path, error))?;
            let copy = Copy {
                raw,
                path,
                folder: folder.clone(),
                pages: Pages {
                    cpu,
                    file: directory.file(cpu)?,
                    bytes: 0,
                    cut: None,
                },
                page_size,
                ending: Arc::clone(&drain.ending),
                bytes: Arc::clone(&drain.bytes),
            };
            let thread = thread::Builder::new().name(format!("cpu{cpu}"));
            let thread = thread
                .spawn(move || copy.run())
                .map_err(|error| TracefsError::io("begin a thread for", tracefs.root(), error))?;
            drain.threads.push(thread);
        }
        Ok(drain)
    }

    /// Bytes of pages copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a thread has ended early: its disk may be full.
    pub(crate) fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Copies the remaining pages, when recording is off.
    pub(crate) fn finish(mut self) -> Vec<Pages> {
        self.ending.store(true, Ordering::Relaxed);
        let threads = self.threads.drain(..);
        // A thread does not panic; if it does, so does this one.
        let pages = threads.map(|thread| {
            let ended = thread.join();
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        pages.collect()
    }
}

/// Ends the threads: they hold files that prevent the removal of an instance.
impl Drop for Drain {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// An unnamed file that reserves [`ROOM`] until it is closed.
fn room(folder: &Path) -> Option<File> {
    let file = tempfile::tempfile_in(folder).ok()?;
    fallocate(&file, FallocateFlags::empty(), 0, ROOM).ok()?;
    Some(file)
}

/// Copying thread of one CPU.
struct Copy {
    raw: File,
    path: PathBuf,
    folder: PathBuf,
    pages: Pages,
    page_size: usize,
    ending: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
}

impl Copy {
    fn run(mut self) -> Pages {
        if let Err(error) = self.copy() {
            // Complete pages are kept; a partial one is truncated.
            let size = self.page_size.max(1) as u64;
            self.pages.bytes -= self.pages.bytes % size;
            self.pages.cut = Some(error);
        }
        self.pages
    }

    fn copy(&mut self) -> Result<()> {
        let pipe = pipe_with(PipeFlags::CLOEXEC)
            .map_err(|error| TracefsError::io("make a pipe for", &self.path, error.into()))?;
        // A smaller pipe works, too.
        let _ = fcntl_setpipe_size(&pipe.1, PIPE);
        let mut full = Instant::now();
        while !self.ending.load(Ordering::Relaxed) {
            if self.whole_pages(&pipe)? > 0 {
                full = Instant::now();
                continue;
            }
            if full.elapsed() >= QUIET {
                self.rest()?;
                full = Instant::now();
            }
            let mut waiting = [PollFd::new(&self.raw, PollFlags::IN)];
            match poll(&mut waiting, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => {
                    if self.whole_pages(&pipe)? == 0 {
                        thread::sleep(BREATH);
                    }
                }
                Err(error) => {
                    return Err(TracefsError::io("wait for", &self.path, error.into()));
                }
            }
        }
        while self.whole_pages(&pipe)? > 0 {}
        self.rest()
    }

    fn took(&mut self, bytes: u64) {
        self.pages.bytes += bytes;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn unwritten(&self, error: impl Into<io::Error>) -> TracefsError {
        TracefsError::io("write into", &self.folder, error.into())
    }

    /// Moves full pages, as many as fit into the pipe. Returns the number of bytes.
    fn whole_pages(
        &mut self,
        (out, into): &(impl std::os::fd::AsFd, impl std::os::fd::AsFd),
    ) -> Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let most = PIPE - PIPE % self.page_size.max(1);
        let moved = match splice(&self.raw, None, into, None, most, flags) {
            Ok(moved) => moved,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(TracefsError::io("read", &self.path, error.into())),
        };
        let mut left = moved;
        while left > 0 {
            match splice(out, None, &self.pages.file, None, left, SpliceFlags::MOVE) {
                Ok(0) => return Err(self.unwritten(io::Error::from(io::ErrorKind::WriteZero))),
                Ok(written) => {
                    left = left.saturating_sub(written);
                    self.took(written as u64);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.unwritten(error)),
            }
        }
        Ok(moved)
    }

    /// Reads the partial pages.
    fn rest(&mut self) -> Result<()> {
        let mut page = vec![0; self.page_size];
        loop {
            match self.raw.read(&mut page) {
                Ok(0) => return Ok(()),
                Ok(read) => {
                    // All pages have the same size in the file, whatever their fill level.
                    page.get_mut(read..).unwrap_or_default().fill(0);
                    let written = self.pages.file.write_all(&page);
                    written.map_err(|error| self.unwritten(error))?;
                    self.took(page.len() as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TracefsError::io("read", &self.path, error)),
            }
        }
    }
}
