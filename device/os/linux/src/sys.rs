//! Safe wrappers of the few functions of the C library that the recorder uses.

use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{Ordering, fence};

use crate::machine;

pub mod files;
pub mod maps;
pub mod sockets;
mod stack;

pub use stack::first_above;

/// Declarations as in POSIX and Linux.
mod c {
    use super::*;

    #[repr(C)]
    pub struct Timespec {
        pub seconds: c_long,
        pub nanoseconds: c_long,
    }

    /// `sigset_t`: 1024 bits, both in glibc and in musl.
    #[repr(C, align(8))]
    #[derive(Clone, Copy)]
    pub struct SignalSet(pub [u8; 128]);

    impl SignalSet {
        /// Returns the byte and the bit of a signal: the set is an array of `long`.
        fn place(signal: usize) -> (usize, u8) {
            const WORD: usize = size_of::<c_long>();
            let (byte, bit) = ((signal - 1) / 8, 1 << ((signal - 1) % 8));
            let in_word = byte % WORD;
            let in_word = match cfg!(target_endian = "big") {
                true => WORD - 1 - in_word,
                false => in_word,
            };
            (byte / WORD * WORD + in_word, bit)
        }

        /// Adds a signal.
        pub fn put(&mut self, signal: usize) {
            let (byte, bit) = Self::place(signal);
            self.0[byte] |= bit;
        }

        /// Returns whether a signal is in the set.
        pub fn has(&self, signal: usize) -> bool {
            let (byte, bit) = Self::place(signal);
            self.0[byte] & bit != 0
        }
    }

    // SAFETY: these are the C library's declarations, where `off_t` and `time_t` are as wide as
    // `long`: on 64-bit Linux always, on 32-bit Linux for these names.
    unsafe extern "C" {
        pub fn mmap(
            at: *mut c_void,
            length: usize,
            protection: c_int,
            flags: c_int,
            file: c_int,
            offset: c_long,
        ) -> *mut c_void;
        pub fn munmap(at: *mut c_void, length: usize) -> c_int;
        pub fn open(path: *const c_char, flags: c_int, ...) -> c_int;
        pub fn read(file: c_int, to: *mut c_void, count: usize) -> isize;
        pub fn write(file: c_int, from: *const c_void, count: usize) -> isize;
        pub fn close(file: c_int) -> c_int;
        pub fn getenv(name: *const c_char) -> *const c_char;
        pub fn getpid() -> c_int;
        pub fn syscall(number: c_long, ...) -> c_long;
        pub fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
        pub fn sigprocmask(how: c_int, signals: *const SignalSet, before: *mut SignalSet) -> c_int;
        pub fn sigpending(signals: *mut SignalSet) -> c_int;
        pub fn sigtimedwait(
            signals: *const SignalSet,
            information: *mut c_void,
            timeout: *const Timespec,
        ) -> c_int;
        pub fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
        pub fn nanosleep(time: *const Timespec, left: *mut Timespec) -> c_int;
        pub fn __errno_location() -> *mut c_int;
    }
}

/// An `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// No such process or thread.
const ESRCH: Errno = Errno(3);
/// A signal interrupted the call; try again.
pub const EINTR: Errno = Errno(4);
/// Nothing is mapped at the address.
pub const EFAULT: Errno = Errno(14);
/// Another user is active.
pub const EBUSY: Errno = Errno(16);
/// An argument is invalid.
pub const EINVAL: Errno = Errno(22);

impl Errno {
    /// Returns the error of this thread's last call that failed.
    pub fn last() -> Self {
        // SAFETY: the C library gives each thread a valid place.
        Self(unsafe { *c::__errno_location() })
    }

    /// Stores it in the calling program's `errno`.
    pub fn set(self) {
        // SAFETY: as above.
        unsafe { *c::__errno_location() = self.0 }
    }
}

/// Runs `work` with the program's `errno` preserved and thread cancellation disabled. So a hook may call it: recording
/// a function neither changes `errno` nor ends the thread.
fn unnoticed<R>(work: impl FnOnce() -> R) -> R {
    let before = Errno::last();
    let result = uncancelled(work);
    before.set();
    result
}

/// Runs `work` with cancellation of this thread disabled. (Opening, reading, writing and closing files, and sleeping,
/// are cancellation points of POSIX.)
fn uncancelled<R>(work: impl FnOnce() -> R) -> R {
    const DISABLE: c_int = 1;
    let mut before = 0;
    // SAFETY: `before` is a valid place. It fails only for a state that does not exist.
    unsafe { c::pthread_setcancelstate(DISABLE, &mut before) };
    let result = work();
    let mut own = 0;
    // SAFETY: as above.
    unsafe { c::pthread_setcancelstate(before, &mut own) };
    result
}

/// Allocates zeroed memory that no other code uses, in whole pages. Only pages that are used cost memory.
pub fn map(bytes: usize) -> Result<*mut u8, Errno> {
    const READ_WRITE: c_int = 1 | 2;
    const PRIVATE_ANONYMOUS: c_int = 0x02 | 0x20;
    unnoticed(|| {
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches no existing memory.
        let at = unsafe {
            c::mmap(
                core::ptr::null_mut(),
                bytes,
                READ_WRITE,
                PRIVATE_ANONYMOUS,
                -1,
                0,
            )
        };
        if at as isize == -1 {
            Err(Errno::last())
        } else {
            Ok(at.cast())
        }
    })
}

/// Frees memory.
///
/// # Safety
/// It came from [`map`] with the same size, and is not used any more.
pub unsafe fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: by this function's contract. It can only fail for arguments that are not from `map`.
    unsafe { c::munmap(at.cast(), bytes) };
}

/// Opens a file; `path` ends with a zero byte.
fn open(path: &[u8], flags: c_int) -> Result<c_int, Errno> {
    if path.last() != Some(&0) {
        return Err(EINVAL);
    }
    // SAFETY: `path` is NUL-terminated.
    let file = unsafe { c::open(path.as_ptr().cast(), flags, 0o666 as c_int) };
    if file < 0 {
        Err(Errno::last())
    } else {
        Ok(file)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Output(c_int);

impl Output {
    /// Creates the file, or truncates it. `path` ends with a zero byte.
    ///
    /// # Errors
    /// The system's error. Does not wait for a reader of a pipe.
    pub fn create(path: &[u8]) -> Result<Self, Errno> {
        const CREATE_TRUNCATE: c_int = 0o100 | 0o1000;
        Self::open(path, CREATE_TRUNCATE)
    }

    /// Opens an existing device, pipe or file for appending. `path` ends with a zero byte.
    ///
    /// # Errors
    /// As above.
    pub fn append(path: &[u8]) -> Result<Self, Errno> {
        const APPEND: c_int = 0o2000;
        Self::open(path, APPEND)
    }

    fn open(path: &[u8], flags: c_int) -> Result<Self, Errno> {
        const WRITE_NO_TERMINAL_NO_WAIT_CLOEXEC: c_int = 1 | 0o400 | 0o4000 | 0o2_000_000;
        let file = uncancelled(|| open(path, flags | WRITE_NO_TERMINAL_NO_WAIT_CLOEXEC))?;
        files::wait_from_now_on(file);
        Ok(Self(file))
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// The system's error; part of the bytes may have been written.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            // SAFETY: the pointer and length are those of a slice.
            let written =
                uncancelled(|| unsafe { c::write(self.0, bytes.as_ptr().cast(), bytes.len()) });
            match usize::try_from(written) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
                Err(_) if Errno::last() == EINTR => {}
                Err(_) => return Err(Errno::last()),
            }
        }
        Ok(())
    }

    /// Closes the file.
    ///
    /// # Errors
    /// An error that the system has not reported before.
    pub fn close(self) -> Result<(), Errno> {
        // SAFETY: the file is ours, and is not used after this.
        let result = uncancelled(|| unsafe { c::close(self.0) });
        core::mem::forget(self);
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::last())
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // SAFETY: as in `close`; an error has been reported by the write that failed before.
        uncancelled(|| unsafe { c::close(self.0) });
    }
}

/// Reads the start of a file into `to` and returns the bytes that were read. `path` ends with a zero byte.
///
/// # Errors
/// The system's error.
pub fn read_front<'a>(path: &[u8], to: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    const READ_ONLY_CLOEXEC: c_int = 0o2_000_000;
    unnoticed(|| {
        let file = open(path, READ_ONLY_CLOEXEC)?;
        // SAFETY: the pointer and length are those of a slice.
        let count = unsafe { c::read(file, to.as_mut_ptr().cast(), to.len()) };
        let error = Errno::last();
        // SAFETY: the file is ours, and is not used after this.
        unsafe { c::close(file) };
        match usize::try_from(count) {
            Ok(count) => Ok(to.get(..count).unwrap_or(&[])),
            Err(_) => Err(error),
        }
    })
}

/// Writes to standard error; a failure cannot be reported.
pub fn print(text: &[u8]) {
    // SAFETY: the pointer and length are those of a slice.
    unnoticed(|| unsafe { c::write(2, text.as_ptr().cast(), text.len()) });
}

/// Returns the value of an environment variable; `name` ends with a zero byte. The value lives as long as the program
/// does not change the variable.
pub fn environment(name: &[u8]) -> Option<&'static [u8]> {
    if name.last() != Some(&0) {
        return None;
    }
    // SAFETY: `name` is NUL-terminated.
    let value = unsafe { c::getenv(name.as_ptr().cast()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: the C library gives NUL-terminated strings.
    Some(unsafe { core::ffi::CStr::from_ptr(value) }.to_bytes())
}

/// Runs `work` with all signals blocked in this thread, and cancellation disabled.
pub fn without_signals<R>(work: impl FnOnce() -> R) -> R {
    blocking(&c::SignalSet([0xFF; 128]), || uncancelled(work))
}

/// Runs `work`, which extends or writes files. If that fails because of the limit of a file's size, or because a pipe
/// has no reader, the kernel sends a signal that would end the program; this function discards it.
pub fn without_file_signals<R>(work: impl FnOnce() -> R) -> R {
    /// `SIGPIPE` and `SIGXFSZ`.
    const SIGNALS: [usize; 2] = [13, 25];
    let mut set = c::SignalSet([0; 128]);
    for signal in SIGNALS {
        set.put(signal);
    }
    blocking(&set, || {
        let before = pending();
        let result = work();
        let after = pending();
        let now = c::Timespec {
            seconds: 0,
            nanoseconds: 0,
        };
        for signal in SIGNALS {
            if after.has(signal) && !before.has(signal) {
                let mut one = c::SignalSet([0; 128]);
                one.put(signal);
                // SAFETY: the places are valid, and no information is requested. It waits for nothing.
                unnoticed(|| unsafe { c::sigtimedwait(&one, core::ptr::null_mut(), &now) });
            }
        }
        result
    })
}

/// Runs `work` with these signals blocked.
fn blocking<R>(signals: &c::SignalSet, work: impl FnOnce() -> R) -> R {
    const BLOCK: c_int = 0;
    const SET: c_int = 2;
    let mut before = c::SignalSet([0; 128]);
    // SAFETY: both are valid places. It fails only for a `how` that does not exist.
    unsafe { c::sigprocmask(BLOCK, signals, &mut before) };
    let result = work();
    // SAFETY: as above.
    unsafe { c::sigprocmask(SET, &before, core::ptr::null_mut()) };
    result
}

/// Returns the signals that are pending for this thread.
fn pending() -> c::SignalSet {
    let mut set = c::SignalSet([0; 128]);
    // SAFETY: it is a valid place. It cannot fail.
    unsafe { c::sigpending(&mut set) };
    set
}

/// Returns whether this is the process's only thread; false if the kernel does not tell.
pub fn is_alone() -> bool {
    /// `num_threads` among the words after the program's name (proc(5)).
    const THREADS: usize = 17;
    let mut text = [0; 512];
    read_front(b"/proc/self/stat\0", &mut text)
        .is_ok_and(|text| word_of_stat(text, THREADS) == Some(b"1"))
}

/// Returns the `n`th word after the program's name in a process's `stat` (proc(5)).
fn word_of_stat(text: &[u8], n: usize) -> Option<&[u8]> {
    let name = text.iter().rposition(|byte| *byte == b')')?;
    let mut words = text
        .get(name + 1..)?
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    words.nth(n)
}

/// Returns the id of this process.
pub fn process() -> u32 {
    // SAFETY: it cannot fail.
    unsafe { c::getpid() as u32 }
}

/// Returns the kernel's id of this thread.
pub fn thread() -> u32 {
    // SAFETY: it takes no argument and cannot fail.
    unsafe { c::syscall(machine::GETTID) as u32 }
}

/// Returns whether a thread of a process has exited: it does not run any more, and its stores are visible. (Its id may
/// have been reused by a thread that has not exited.)
pub fn has_ended(process: u32, thread: u32) -> bool {
    const NO_SIGNAL: c_int = 0;
    let (process, thread) = (process as c_int, thread as c_int);
    let ended = unnoticed(|| {
        // SAFETY: it takes three integers, and sends nothing.
        let found = unsafe { c::syscall(machine::TGKILL, process, thread, NO_SIGNAL) };
        found != 0 && Errno::last() == ESRCH
    });
    fence(Ordering::SeqCst);
    ended
}

/// Registers for [`barrier`]; returns false if the kernel does not support it.
pub fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;
    // SAFETY: it takes two integers and touches no memory.
    unnoticed(|| unsafe {
        c::syscall(machine::MEMBARRIER, REGISTER_PRIVATE_EXPEDITED, 0 as c_int) == 0
    })
}

/// Imposes a full memory barrier on every thread of this process. Only after [`register_barrier`].
pub fn barrier() {
    const PRIVATE_EXPEDITED: c_int = 1 << 3;
    // SAFETY: it takes two integers and touches no memory. It cannot fail once registered.
    unsafe { c::syscall(machine::MEMBARRIER, PRIVATE_EXPEDITED, 0 as c_int) };
}

/// Returns nanoseconds of a clock that no time daemon adjusts (`CLOCK_MONOTONIC_RAW`).
pub fn nanoseconds() -> u64 {
    const MONOTONIC_RAW: c_int = 4;
    clock(MONOTONIC_RAW)
}

/// Returns nanoseconds since 1970 UTC.
pub fn since_1970() -> u64 {
    const REALTIME: c_int = 0;
    clock(REALTIME)
}

fn clock(id: c_int) -> u64 {
    let mut time = c::Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: `time` is a valid place; the clocks exist since Linux 2.6.28.
    unsafe { c::clock_gettime(id, &mut time) };
    (time.seconds as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.nanoseconds as u64)
}

/// Sleeps for about this time; a signal may end the sleep.
pub fn sleep(nanoseconds: u64) {
    let time = c::Timespec {
        seconds: (nanoseconds / 1_000_000_000) as c_long,
        nanoseconds: (nanoseconds % 1_000_000_000) as c_long,
    };
    // SAFETY: `time` is valid, and the remaining time is not requested.
    unnoticed(|| unsafe { c::nanosleep(&time, core::ptr::null_mut()) });
}
