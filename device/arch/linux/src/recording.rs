//! The file that a process records into ([`kymo_wire::process_file`]).
//!
//! Where `KYMO_OUTPUT` names a file, the buffers of all threads lie in it, mapped shared: what was
//! recorded outlives the process, however that ends. The blocks of the file are allocated before they
//! are mapped, for a store into a mapping that finds the disk full kills the process. Where the file
//! cannot be made, or grown, buffers lie in the process's own memory, which is said on standard error,
//! and are saved when it exits.
//!
//! The descriptor may be closed by the program (daemons close all), and its number used again, so before
//! each use the file behind it is compared with the mapped header.

use core::cell::Cell;
use core::ffi::c_int;
use core::fmt::Write as _;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use kymo_wire::process_file::{MAGIC, REGION_ALIGN, VERSION, header, region};

use crate::clock::Clock;
use crate::process::Lock;
use crate::save::Text;
use crate::sys::files::{self, EEXIST, ENOENT};
use crate::sys::{self, Errno};

/// The longest path, with its zero byte.
pub(crate) const PATH: usize = 4096;

/// How many names are tried where files exist.
const NAMES: u32 = 10_000;

/// Room for paths, in memory of its own: hooks may run on small stacks.
pub(crate) struct Names {
    /// What `KYMO_OUTPUT` says, made absolute.
    pattern: Text<PATH>,
    /// The file of this process, with a zero byte.
    path: Text<PATH>,
    /// Another one beside it.
    other: Text<PATH>,
}

/// Nothing is recorded into a file.
const NONE: u32 = 0;
/// The file is made when something is recorded.
const WAITING: u32 = 1;
/// It is there.
const OPEN: u32 = 2;
/// It could not be made, or not as one that can be mapped.
const REFUSED: u32 = 3;

/// The file of a process.
#[derive(Debug)]
pub(crate) struct Recording {
    lock: Lock,
    state: AtomicU32,
    file: Cell<c_int>,
    /// The header, mapped.
    header: AtomicPtr<u8>,
    /// How long the file is.
    used: Cell<usize>,
    names: AtomicPtr<Names>,
    /// Something is recorded into memory that is not the file's.
    incomplete: AtomicBool,
    /// The process is a fork of one that had the name.
    child: AtomicBool,
}

impl Recording {
    /// No file.
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

    /// The file is to have this name (a relative one, of now); nothing is made yet.
    pub fn name(&self, output: &[u8]) {
        let Ok(memory) = sys::map(size_of::<Names>()) else {
            return;
        };
        let names = memory.cast::<Names>();
        // SAFETY: the memory is new, large enough, aligned to a page; all zero is three empty texts.
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

    /// Whether a file has been named.
    pub fn is_named(&self) -> bool {
        self.state.load(Ordering::Acquire) != NONE
    }

    /// Whether the file is there.
    pub fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Whether all that was recorded is in the file.
    pub fn is_complete(&self) -> bool {
        self.is_open() && !self.incomplete.load(Ordering::Relaxed)
    }

    /// Whether the process is a fork, and has recorded nothing.
    pub fn is_unused_child(&self) -> bool {
        self.child.load(Ordering::Relaxed) && self.state.load(Ordering::Acquire) == WAITING
    }

    /// How long the file is, in bytes.
    pub fn bytes(&self) -> usize {
        self.used.get()
    }

    /// Makes the file, if one is named that has not been made. `identity` writes the line for its header.
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
            report(b"cannot record into ", names.path.bytes(), error);
            sys::say(b"kymo: it records in memory instead, which is lost if it is killed\n");
        }
    }

    /// Makes the file and maps its header; an error of `None` where something else than a file has its
    /// name, into which all is written at the end.
    fn make(
        &self,
        names: &mut Names,
        clock: &Clock,
        identity: impl FnOnce(&mut dyn core::fmt::Write),
    ) -> Result<(), Option<Errno>> {
        let child = self.child.load(Ordering::Relaxed);
        let file = create(names, child)?;
        let mapped = files::allocate(file, 0, REGION_ALIGN)
            .and_then(|()| files::map_file(file, 0, REGION_ALIGN));
        let memory = mapped.map_err(|error| {
            files::close(file);
            files::remove(names.path.bytes());
            Some(error)
        })?;
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
        let mut line = Text::<512>::new();
        identity(&mut line);
        let _ = line.write_str("\n");
        put(header::IDENTITY, line.bytes());
        clock.describe(memory);
        put(0, &MAGIC);
        self.file.set(file);
        self.used.set(REGION_ALIGN);
        self.header.store(memory, Ordering::Release);
        Ok(())
    }

    /// Memory for a region of at least so many bytes, all zero but for its header: in the file, or else
    /// the process's own.
    ///
    /// # Errors
    /// The system's, if it has no memory at all.
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
                    report(b"cannot extend ", names.path.bytes(), error);
                    sys::say(b"kymo: threads that begin now are recorded in memory only\n");
                }
                self.incomplete.store(true, Ordering::Relaxed);
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
        if !files::begins_with(self.file.get(), own) {
            // The number is another file's by now, or none's: it is not ours to close.
            // SAFETY: the names stay for good.
            let names = unsafe { &*self.names.load(Ordering::Acquire) };
            let again = files::open_again(names.path.bytes())?;
            if !files::begins_with(again, own) {
                files::close(again);
                return Err(ENOENT);
            }
            self.file.set(again);
        }
        let (file, at) = (self.file.get(), self.used.get());
        files::allocate(file, at, bytes)?;
        let memory = files::map_file(file, at, bytes)?;
        self.used.set(at + bytes);
        Ok(memory)
    }

    /// Counts events that were lost because their thread had no buffer.
    pub fn lose(&self, events: u32) {
        let header = self.header.load(Ordering::Acquire);
        if !header.is_null() {
            // SAFETY: the header is mapped, and the field is aligned.
            let lost = unsafe { &*header.add(header::LOST).cast::<AtomicU32>() };
            lost.fetch_add(events, Ordering::Relaxed);
        }
    }

    /// This process is a fork of the one that had the file: it gets one of its own when it records.
    ///
    /// # Safety
    /// Nobody else is at work in this process.
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

    /// Writes the whole recording into the file in its plain form, at the end of the process: `write`
    /// gets the path of a file to be made. What goes wrong is said on standard error.
    pub fn finish(&self, write: impl FnOnce(&[u8]) -> Result<(), Errno>) {
        // SAFETY: the names stay for good; at the end of the process one thread comes here.
        let Some(names) = (unsafe { self.names.load(Ordering::Acquire).as_mut() }) else {
            return;
        };
        if self.is_open() {
            beside(names, b".part");
            let written = write(names.other.bytes())
                .and_then(|()| files::rename(names.other.bytes(), names.path.bytes()));
            if let Err(error) = written {
                files::remove(names.other.bytes());
                report(b"cannot complete ", names.path.bytes(), error);
                let kept: &[u8] = match self.is_complete() {
                    true => b"kymo: nothing is lost: kymo reads the file as it is\n",
                    false => b"kymo: threads that were recorded in memory only are lost\n",
                };
                sys::say(kept);
            }
            return;
        }
        let child = self.child.load(Ordering::Relaxed);
        expand(names, child, 0);
        if files::is_regular(names.path.bytes()) == Ok(true) {
            keep_old(names);
        }
        if let Err(error) = write(names.path.bytes()) {
            report(b"cannot save to ", names.path.bytes(), error);
        }
    }
}

/// Stores a field of a region's header.
pub(crate) fn put<T>(memory: *mut u8, at: usize, value: T) {
    // SAFETY: whoever has a region has its header, in which the offsets of the fields are multiples of
    // their sizes.
    unsafe { memory.add(at).cast::<T>().write(value) };
}

/// Says what a region holds, when the rest of its header is there.
pub(crate) fn publish(memory: *mut u8, kind: u32) {
    // SAFETY: as above.
    let place = unsafe { &*memory.add(region::KIND).cast::<AtomicU32>() };
    place.store(kind, Ordering::Release);
}

/// The path of the process's file: the pattern with `%p` replaced by the number of the process (`%%` is
/// one `%`); without `%p` a fork adds its number. A `number` is added if it is not 0.
fn expand(names: &mut Names, child: bool, number: u32) -> bool {
    let Names { pattern, path, .. } = names;
    path.clear();
    let mut with_process = false;
    let mut rest = pattern.bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match (first, behind.first()) {
            (b'%', Some(b'p')) => {
                let _ = write!(path, "{}", sys::process());
                with_process = true;
                rest = behind.get(1..).unwrap_or(&[]);
            }
            (b'%', Some(b'%')) => {
                path.put(b"%");
                rest = behind.get(1..).unwrap_or(&[]);
            }
            _ => path.put(&[*first]),
        }
    }
    if child && !with_process {
        let _ = write!(path, ".{}", sys::process());
    }
    if number != 0 {
        let _ = write!(path, ".{number}");
    }
    path.end();
    with_process || child
}

/// Writes the path with something behind it into `other`.
fn beside(names: &mut Names, more: &[u8]) {
    let Names { path, other, .. } = names;
    other.clear();
    let bytes = path.bytes();
    other.put(bytes.strip_suffix(&[0]).unwrap_or(bytes));
    other.put(more);
    other.end();
}

/// Makes a file for this process that no other one has.
fn create(names: &mut Names, child: bool) -> Result<c_int, Option<Errno>> {
    let mut number = 0;
    let mut kept = 0;
    while number < NAMES {
        let own = expand(names, child, number);
        match files::create_new(names.path.bytes()) {
            Err(EEXIST) => {}
            other => return other.map_err(Some),
        }
        if files::is_regular(names.path.bytes()) != Ok(true) {
            // A device, a pipe: what is in its place is not replaced.
            return Err(None);
        }
        // Those of a tree of processes stay; so does that of one that still records, as of this
        // process before it called exec.
        if own || number != 0 || kept > 3 || is_in_use(names.path.bytes()) {
            number += 1;
        } else {
            keep_old(names);
            kept += 1;
        }
    }
    Err(Some(EEXIST))
}

/// Renames an older recording.
fn keep_old(names: &mut Names) {
    beside(names, b".old");
    let _ = files::rename(names.path.bytes(), names.other.bytes());
}

/// Whether the process that records into a file still runs.
fn is_in_use(path: &[u8]) -> bool {
    let mut head = [0; header::LOST];
    let Ok(head) = sys::read_front(path, &mut head) else {
        return false;
    };
    if !head.starts_with(&MAGIC) {
        return false;
    }
    let field = |at: usize| head.get(at..);
    let process = field(header::PROCESS).and_then(|it| it.first_chunk());
    let started = field(header::STARTED).and_then(|it| it.first_chunk());
    let (Some(process), Some(started)) = (process, started) else {
        return false;
    };
    files::started(u32::from_ne_bytes(*process)) == Some(u64::from_ne_bytes(*started))
}

/// Says on standard error what went wrong with a file.
pub(crate) fn report(what: &[u8], path: &[u8], error: Errno) {
    let mut message = Text::<512>::new();
    message.put(b"kymo: ");
    message.put(what);
    let path = path.strip_suffix(&[0]).unwrap_or(path);
    message.put(path.get(..400).unwrap_or(path));
    let _ = writeln!(message, ": {} (error {})", error.words(), error.0);
    sys::say(message.bytes());
}
