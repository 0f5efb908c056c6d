//! The file that a process records into ([`kymo_wire::process_file`]).
//!
//! If `KYMO_OUTPUT` names a file, the buffers of all threads are in that file, mapped shared: the recording survives
//! the process, however it ends. The blocks of the file are allocated before they are mapped, because a store into a
//! mapping kills the process if the disk is full. If the file cannot be created or extended, buffers are in the
//! process's own memory and saved at exit; a message on standard error says so.
//!
//! The program may close the descriptor (daemons close all), and its number may be reused. So before each use the file
//! behind it is compared with the mapped header.

use core::cell::Cell;
use core::ffi::c_int;
use core::fmt::Write as _;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use kymo_wire::process_file::{MAGIC, REGION_ALIGN, VERSION, header, region};

use crate::clock::Clock;
use crate::fields::put;
use crate::lock::Lock;
use crate::sys::files::{self, ENOENT};
use crate::sys::{self, Errno};
use crate::text::Text;

mod names;

use names::Names;
pub(crate) use names::expand;

/// No file is named.
const NONE: u32 = 0;
/// The file is created at the first record.
const WAITING: u32 = 1;
/// The file exists.
const OPEN: u32 = 2;
/// The file could not be created, or cannot be mapped.
const REFUSED: u32 = 3;

/// The file of a process.
#[derive(Debug)]
pub(crate) struct Recording {
    lock: Lock,
    state: AtomicU32,
    file: Cell<c_int>,
    /// The mapped header.
    header: AtomicPtr<u8>,
    /// Size of the file.
    used: Cell<usize>,
    names: AtomicPtr<Names>,
    /// Whether some records are in memory that is not the file's.
    incomplete: AtomicBool,
    /// Whether the process is a fork of one that had the name.
    child: AtomicBool,
}

impl Recording {
    /// Creates a recording without a file.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            state: AtomicU32::new(NONE),
            file: Cell::new(-1),
            header: AtomicPtr::new(null_mut()),
            used: Cell::new(0),
            names: AtomicPtr::new(null_mut()),
            incomplete: AtomicBool::new(false),
            child: AtomicBool::new(false),
        }
    }

    /// Sets the name of the file (a relative one as of now); creates nothing yet.
    pub fn name(&self, output: &[u8]) {
        let Ok(memory) = sys::map(size_of::<Names>()) else {
            return;
        };
        let names = memory.cast::<Names>();
        // SAFETY: the memory is new, large enough, aligned to a page; all zero is a set of empty texts.
        let texts = unsafe { &mut *names };
        if !output.starts_with(b"/") {
            let mut here = [0; 1024];
            if let Ok(here) = files::working_directory(&mut here) {
                texts.pattern.put(here);
                texts.pattern.put(b"/");
            }
        }
        texts.pattern.put(output);
        self.names.store(names, Ordering::Release);
        self.state.store(WAITING, Ordering::Release);
    }

    /// Returns whether a file has been named.
    pub fn is_named(&self) -> bool {
        self.state.load(Ordering::Acquire) != NONE
    }

    /// Returns whether the file exists.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Returns whether the whole recording is in the file.
    pub fn is_complete(&self) -> bool {
        self.is_open() && !self.incomplete.load(Ordering::Relaxed)
    }

    /// Returns whether the whole recording is in the file, under its name.
    pub fn is_kept(&self) -> bool {
        // SAFETY: the names remain for good, and do not change once the file is open.
        let names = unsafe { self.names.load(Ordering::Acquire).as_ref() };
        self.is_complete() && names.is_some_and(|names| self.has_its_name(names))
    }

    /// Returns whether the process is a fork, and has recorded nothing.
    pub fn is_unused_child(&self) -> bool {
        self.child.load(Ordering::Relaxed) && self.state.load(Ordering::Acquire) == WAITING
    }

    /// Returns the size of the file in bytes.
    pub fn bytes(&self) -> usize {
        self.used.get()
    }

    /// Creates the file, if one is named and does not exist yet. `identity` writes the line for its header.
    #[cold]
    pub fn open(&self, clock: &Clock, identity: impl FnOnce(&mut dyn core::fmt::Write)) {
        let opened = self.lock.with(|| {
            if self.state.load(Ordering::Relaxed) != WAITING {
                return Ok(());
            }
            // SAFETY: it stays for good, and is used under the lock.
            let names = unsafe { &mut *self.names.load(Ordering::Acquire) };
            let made = self.make(names, clock, identity);
            let state = if made.is_ok() { OPEN } else { REFUSED };
            self.state.store(state, Ordering::Release);
            made.map_err(|error| (error, names))
        });
        if let Some(Err((Some(error), names))) = opened {
            report(b"cannot record into ", names.path(), error);
            sys::print(b"kymo: it records in memory instead, which is lost if it is killed\n");
        }
    }

    /// Creates the file and maps its header. The error is `None` if the name is not that of a regular file; then
    /// everything is written to it at the end.
    fn make(
        &self,
        names: &mut Names,
        clock: &Clock,
        identity: impl FnOnce(&mut dyn core::fmt::Write),
    ) -> Result<(), Option<Errno>> {
        if !names.resolve(self.child.load(Ordering::Relaxed))? {
            return Err(None);
        }
        let file = names.create()?;
        let mapped = files::allocate(file, 0, REGION_ALIGN)
            .and_then(|()| files::map_file(file, 0, REGION_ALIGN));
        let refuse = |names: &Names, error| {
            files::close(file);
            files::remove(names.temporary());
            Some(error)
        };
        let memory = mapped.map_err(|error| refuse(names, error))?;
        let put = |at: usize, bytes: &[u8]| {
            // SAFETY: the header is mapped, and longer than any of its fields reaches.
            unsafe {
                memory
                    .add(at)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
            };
        };
        let process = sys::process();
        put(header::VERSION, &VERSION.to_ne_bytes());
        put(header::ORDER, &header::ORDER_MARK.to_ne_bytes());
        put(header::PROCESS, &process.to_ne_bytes());
        let started = files::started(process).unwrap_or(0);
        put(header::STARTED, &started.to_ne_bytes());
        put(header::REGION_BYTES, &(region::BYTES as u32).to_ne_bytes());
        let mut line = Text::<512>::new();
        identity(&mut line);
        let _ = line.write_str("\n");
        put(header::IDENTITY, line.bytes());
        clock.describe(memory);
        put(0, &MAGIC);
        if let Err(error) = names.claim() {
            // SAFETY: it was mapped with this size, and nobody else knows of it.
            unsafe { sys::unmap(memory, REGION_ALIGN) };
            return Err(refuse(names, error));
        }
        self.file.set(file);
        self.used.set(REGION_ALIGN);
        self.header.store(memory, Ordering::Release);
        Ok(())
    }

    /// Allocates a region of at least `bytes` bytes, all zero except its header: in the file, or else in the process's
    /// own memory.
    ///
    /// # Errors
    /// The system's error, if it has no memory at all.
    pub fn take(&self, bytes: usize) -> Result<*mut u8, Errno> {
        let bytes = bytes
            .checked_next_multiple_of(REGION_ALIGN)
            .ok_or(sys::EINVAL)?;
        let of_file = if self.is_open() {
            self.lock.with(|| self.extend(bytes))
        } else {
            None
        };
        let memory = match of_file {
            Some(Ok(memory)) => memory,
            other => {
                if let Some(Err(error)) = other
                    && !self.incomplete.load(Ordering::Relaxed)
                {
                    // SAFETY: the names stay for good, and this one does not change once the file is open.
                    let names = unsafe { &*self.names.load(Ordering::Acquire) };
                    report(b"cannot extend ", names.path(), error);
                    sys::print(b"kymo: threads that begin now are recorded in memory only\n");
                }
                self.incomplete.store(true, Ordering::Relaxed);
                self.count(header::MEMORY_ONLY, 1);
                sys::map(bytes)?
            }
        };
        put(memory, region::SIZE, bytes as u64);
        put(memory, region::ADDRESS, memory as usize as u64);
        put(memory, region::MARK, region::MAGIC);
        Ok(memory)
    }

    fn extend(&self, bytes: usize) -> Result<*mut u8, Errno> {
        let header = self.header.load(Ordering::Acquire);
        // SAFETY: the header is mapped, and these fields never change.
        let own = unsafe { core::slice::from_raw_parts(header, header::LOST) };
        if !self.has_descriptor() {
            // The descriptor's number is another file's by now, or unused: do not close it.
            // SAFETY: the names stay for good.
            let names = unsafe { &*self.names.load(Ordering::Acquire) };
            let again = files::open_again(names.path())?;
            if !files::begins_with(again, own) {
                files::close(again);
                return Err(ENOENT);
            }
            // The lock was lost when the descriptor was closed.
            let _ = files::lock(again);
            self.file.set(again);
        }
        let (file, at) = (self.file.get(), self.used.get());
        files::allocate(file, at, bytes)?;
        let memory = files::map_file(file, at, bytes)?;
        self.used.set(at + bytes);
        put(header, header::USED, (at + bytes) as u64);
        Ok(memory)
    }

    /// Counts events that were lost because their thread had no buffer.
    pub fn lose(&self, events: u32) {
        self.count(header::LOST, events);
    }

    /// Adds to a count in the file's header, if there is a file.
    fn count(&self, field: usize, more: u32) {
        let header = self.header.load(Ordering::Acquire);
        if !header.is_null() {
            // SAFETY: the header is mapped, and its counts are aligned.
            let count = unsafe { &*header.add(field).cast::<AtomicU32>() };
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Resets the recording in a fork of the process that had the file; the fork gets a file of its own at its first
    /// record.
    ///
    /// # Safety
    /// No other thread uses the recorder in this process.
    pub unsafe fn fork(&self) {
        self.lock.reset();
        let header = self.header.swap(null_mut(), Ordering::Relaxed);
        if !header.is_null() {
            // SAFETY: it was mapped with this size; of the child's mapping there is no other user.
            unsafe {
                let own = core::slice::from_raw_parts(header, header::LOST);
                if files::begins_with(self.file.get(), own) {
                    files::close(self.file.get());
                }
                sys::unmap(header, REGION_ALIGN);
            }
        }
        self.file.set(-1);
        self.used.set(0);
        self.incomplete.store(false, Ordering::Relaxed);
        self.child.store(true, Ordering::Relaxed);
        if self.state.load(Ordering::Relaxed) != NONE {
            self.state.store(WAITING, Ordering::Relaxed);
        }
    }

    /// Returns whether the descriptor still refers to the file.
    fn has_descriptor(&self) -> bool {
        let header = self.header.load(Ordering::Acquire);
        // SAFETY: the header is mapped if it is there, and these fields never change.
        !header.is_null()
            && files::begins_with(self.file.get(), unsafe {
                core::slice::from_raw_parts(header, header::LOST)
            })
    }

    /// Returns whether the file still has its name.
    fn has_its_name(&self, names: &Names) -> bool {
        let header = self.header.load(Ordering::Acquire);
        if header.is_null() {
            return false;
        }
        // The process may have lost the right to open it, or the descriptor.
        if self.has_descriptor() {
            let named = files::status(names.path());
            return named.is_ok_and(|named| files::status_of(self.file.get()) == Ok(named));
        }
        // SAFETY: the header is mapped, and these fields never change.
        let own = unsafe { core::slice::from_raw_parts(header, header::LOST) };
        files::open_again(names.path()).is_ok_and(|file| {
            let same = files::begins_with(file, own);
            files::close(file);
            same
        })
    }

    /// Replaces the file, at the end of the process, by the whole recording in its plain form. `write` receives a
    /// function that opens the file to be written. Reports errors on standard error.
    pub fn finish(
        &self,
        write: impl FnOnce(&mut dyn FnMut() -> Result<sys::Output, Errno>) -> Result<(), Errno>,
    ) {
        // SAFETY: the names stay for good; at the end of the process one thread comes here.
        let Some(names) = (unsafe { self.names.load(Ordering::Acquire).as_mut() }) else {
            return;
        };
        if self.is_open() {
            names.choose_temporary("part", 0);
            let written = write(&mut || sys::Output::create(names.temporary()));
            let there = self.has_its_name(names);
            let named = written.and_then(|()| match there {
                true => files::rename(names.temporary(), names.path()),
                // If another process took the name, it keeps it.
                false => names.claim(),
            });
            if let Err(error) = named {
                files::remove(names.temporary());
                report(b"cannot complete ", names.path(), error);
                let kept: &[u8] = match (self.is_complete(), there) {
                    // Another root directory, for example, may hide the name.
                    (true, false) if self.has_descriptor() => {
                        b"kymo: nothing is lost: kymo reads the file as it is, wherever it is named\n"
                    }
                    (true, true) => b"kymo: nothing is lost: kymo reads the file as it is\n",
                    (false, true) => b"kymo: threads that were recorded in memory only are lost\n",
                    (_, false) => b"kymo: the file was renamed or removed while the program ran\n",
                };
                sys::print(kept);
            } else if !there {
                say_path(
                    b"the file was renamed or removed while the program ran; saved to ",
                    names.path(),
                );
            }
            return;
        }
        let saved = match names.resolve(self.child.load(Ordering::Relaxed)) {
            Ok(true) => {
                names.choose_temporary("part", 0);
                let written = write(&mut || sys::Output::create(names.temporary()));
                // A partial recording is better than none.
                let named = names.claim();
                written.and(named)
            }
            Ok(false) => write(&mut || sys::Output::append(names.path())),
            Err(error) => Err(error),
        };
        if let Err(error) = saved {
            report(b"cannot save to ", names.path(), error);
        }
    }
}

/// Writes a message that ends with a path to standard error.
fn say_path(what: &[u8], path: &[u8]) {
    let mut message = Text::<512>::new();
    message.put(b"kymo: ");
    message.put(what);
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    message.put(path.get(..400).unwrap_or(path));
    message.put(b"\n");
    sys::print(message.bytes());
}

/// Reports an error with a file on standard error.
pub(crate) fn report(what: &[u8], path: &[u8], error: Errno) {
    let mut message = Text::<512>::new();
    message.put(b"kymo: ");
    message.put(what);
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    message.put(path.get(..400).unwrap_or(path));
    let _ = writeln!(message, ": {} (error {})", error.words(), error.0);
    sys::print(message.bytes());
}
