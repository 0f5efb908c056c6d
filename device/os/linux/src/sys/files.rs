//! Files that are shared between processes or outlive them: creation, extension, mapping, renaming.

use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};

use super::{Errno, c, open, unnoticed, without_file_signals};
use crate::machine;

mod more {
    use super::*;

    // SAFETY: these are the C library's declarations, where `off_t` is as wide as `long`.
    unsafe extern "C" {
        pub fn fallocate(file: c_int, mode: c_int, offset: c_long, bytes: c_long) -> c_int;
        pub fn pread(file: c_int, to: *mut c_void, count: usize, offset: c_long) -> isize;
        pub fn fcntl(file: c_int, command: c_int, ...) -> c_int;
        pub fn rename(from: *const c_char, to: *const c_char) -> c_int;
        pub fn link(from: *const c_char, to: *const c_char) -> c_int;
        pub fn readlink(path: *const c_char, to: *mut c_char, size: usize) -> isize;
        pub fn flock(file: c_int, operation: c_int) -> c_int;
        pub fn unlink(path: *const c_char) -> c_int;
        pub fn getcwd(to: *mut c_char, size: usize) -> *mut c_char;
        pub fn getauxval(kind: c_ulong) -> c_ulong;
        pub fn prctl(option: c_int, ...) -> c_int;
        pub fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
        pub fn mremap(
            at: *mut c_void,
            bytes: usize,
            new_bytes: usize,
            flags: c_int,
            ...
        ) -> *mut c_void;
        pub fn pthread_atfork(
            prepare: Option<extern "C" fn()>,
            parent: Option<extern "C" fn()>,
            child: Option<extern "C" fn()>,
        ) -> c_int;
    }
}

/// No such file.
pub const ENOENT: Errno = Errno(2);
/// The file exists.
pub const EEXIST: Errno = Errno(17);
/// Another process has locked it.
pub const EAGAIN: Errno = Errno(11);
/// It is a directory.
pub const EISDIR: Errno = Errno(21);
/// Too many symbolic links.
pub const ELOOP: Errno = Errno(40);
/// No space on the disk.
const ENOSPC: Errno = Errno(28);

impl Errno {
    /// Describes the error in words.
    pub fn words(self) -> &'static str {
        match self.0 {
            1 => "not permitted",
            2 => "no such file or directory",
            4 => "interrupted",
            5 => "input/output error",
            6 => "no such device, or a pipe that nobody reads",
            9 => "the descriptor was closed",
            12 => "no memory",
            13 => "permission denied",
            14 => "no such address",
            16 => "busy: another dump or stream is going on, or a thread does not leave its hook",
            17 => "the file exists",
            20 => "not a directory",
            21 => "it is a directory",
            22 => "not possible",
            23 | 24 => "too many open files",
            26 => "the file is busy",
            27 => "the file would be too large",
            28 => "no space left on the device",
            30 => "the file system is read-only",
            32 => "nobody reads from the pipe any more",
            36 => "the name is too long",
            88 => "a file of this name exists, and is not a socket",
            38 | 95 => "the file system cannot do that",
            40 => "too many symbolic links",
            122 => "the disk quota is used up",
            _ => "the system refused",
        }
    }
}

/// Creates a file, open for reading and writing, closed on exec. Its descriptor is a high number if possible, because
/// programs may rely on low ones. `path` ends with a zero byte.
///
/// # Errors
/// The system's error; [`EEXIST`] if the file exists.
pub fn create_new(path: &[u8]) -> Result<c_int, Errno> {
    const READ_WRITE_CREATE_EXCLUSIVE_CLOEXEC: c_int = 2 | 0o100 | 0o200 | 0o2_000_000;
    unnoticed(|| open(path, READ_WRITE_CREATE_EXCLUSIVE_CLOEXEC).map(raise))
}

/// Opens an existing file for reading and writing.
///
/// # Errors
/// The system's error.
pub fn open_again(path: &[u8]) -> Result<c_int, Errno> {
    const READ_WRITE_CLOEXEC: c_int = 2 | 0o2_000_000;
    unnoticed(|| open(path, READ_WRITE_CLOEXEC).map(raise))
}

/// Opens an existing file to lock and read it.
///
/// # Errors
/// The system's error.
pub fn open_to_lock(path: &[u8]) -> Result<c_int, Errno> {
    const NO_TERMINAL_NO_WAIT_CLOEXEC: c_int = 0o400 | 0o4000 | 0o2_000_000;
    const READ_WRITE: c_int = 2;
    unnoticed(|| {
        open(path, READ_WRITE | NO_TERMINAL_NO_WAIT_CLOEXEC)
            .or_else(|_| open(path, NO_TERMINAL_NO_WAIT_CLOEXEC))
    })
}

/// Locks a file for as long as it is open here, or in a process that inherited the descriptor.
///
/// # Errors
/// The system's error; [`EAGAIN`] if another process has the lock.
pub fn lock(file: c_int) -> Result<(), Errno> {
    const EXCLUSIVE_NO_WAIT: c_int = 2 | 4;
    unnoticed(|| {
        // SAFETY: it takes numbers.
        match unsafe { more::flock(file, EXCLUSIVE_NO_WAIT) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    })
}

/// Makes writes to a file block, after it was opened without blocking.
pub(super) fn wait_from_now_on(file: c_int) {
    const GET_FLAGS: c_int = 3;
    const SET_FLAGS: c_int = 4;
    const NO_WAIT: c_int = 0o4000;
    // SAFETY: the commands take and give numbers; the file is ours.
    unnoticed(|| unsafe {
        let flags = more::fcntl(file, GET_FLAGS);
        more::fcntl(file, SET_FLAGS, flags & !NO_WAIT);
    });
}

/// Moves a descriptor to a high number if one is free.
pub(super) fn raise(file: c_int) -> c_int {
    const DUPLICATE_CLOEXEC: c_int = 1030;
    const HIGH: c_int = 600;
    // SAFETY: the file is ours, and the command takes a number.
    let high = unsafe { more::fcntl(file, DUPLICATE_CLOEXEC, HIGH) };
    if high < 0 {
        return file;
    }
    close(file);
    high
}

/// Closes a descriptor that the caller owns.
pub fn close(file: c_int) {
    // SAFETY: it takes a number; the caller owns the file that it stands for.
    unnoticed(|| unsafe { c::close(file) });
}

/// Returns whether the file of a descriptor begins with these bytes (at most 64).
pub fn begins_with(file: c_int, bytes: &[u8]) -> bool {
    let mut found = [0u8; 64];
    let Some(room) = found.get_mut(..bytes.len()) else {
        return false;
    };
    read_at_start(file, room) && room == bytes
}

/// Fills `to` from the start of a file; returns false if the file is shorter.
pub fn read_at_start(file: c_int, to: &mut [u8]) -> bool {
    // SAFETY: the pointer and length are those of a slice.
    let count = unnoticed(|| unsafe { more::pread(file, to.as_mut_ptr().cast(), to.len(), 0) });
    count == to.len() as isize
}

/// Extends a file to `offset + bytes` and allocates its blocks, so that later stores into it cannot fail for lack of
/// space.
///
/// # Errors
/// The system's error: no space, or a file system that cannot allocate blocks in advance.
pub fn allocate(file: c_int, offset: usize, bytes: usize) -> Result<(), Errno> {
    let (Ok(offset), Ok(bytes)) = (c_long::try_from(offset), c_long::try_from(bytes)) else {
        return Err(ENOSPC);
    };
    let allocate = || {
        // SAFETY: it takes numbers; the file is ours.
        match unsafe { more::fallocate(file, 0, offset, bytes) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    };
    without_file_signals(|| unnoticed(allocate))
}

/// Maps a part of a file, shared with it.
///
/// # Errors
/// The system's error.
pub fn map_file(file: c_int, offset: usize, bytes: usize) -> Result<*mut u8, Errno> {
    const READ_WRITE: c_int = 1 | 2;
    const SHARED: c_int = 1;
    unnoticed(|| {
        // SAFETY: a mapping at an address that the kernel chooses touches no existing memory.
        let at = unsafe {
            c::mmap(
                core::ptr::null_mut(),
                bytes,
                READ_WRITE,
                SHARED,
                file,
                offset as c_long,
            )
        };
        if at as isize == -1 {
            Err(Errno::last())
        } else {
            Ok(at.cast())
        }
    })
}

/// Replaces a mapping by zeroed memory that is private to this process.
///
/// # Safety
/// The range is a mapping that the caller owns, whose content is not needed any more.
pub unsafe fn replace(at: *mut u8, bytes: usize) {
    const READ_WRITE: c_int = 1 | 2;
    const PRIVATE_FIXED_ANONYMOUS: c_int = 0x02 | 0x10 | 0x20;
    // SAFETY: by this function's contract.
    unnoticed(|| unsafe { c::mmap(at.cast(), bytes, READ_WRITE, PRIVATE_FIXED_ANONYMOUS, -1, 0) });
}

/// Renames a file; both paths end with a zero byte.
///
/// # Errors
/// The system's error.
pub fn rename(from: &[u8], to: &[u8]) -> Result<(), Errno> {
    debug_assert!(from.ends_with(&[0]) && to.ends_with(&[0]));
    unnoticed(|| {
        // SAFETY: both are NUL-terminated.
        match unsafe { more::rename(from.as_ptr().cast(), to.as_ptr().cast()) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    })
}

/// Renames a file to a name that does not exist; both paths end with a zero byte.
///
/// # Errors
/// The system's error; [`EEXIST`] if there is such a file.
pub fn rename_new(from: &[u8], to: &[u8]) -> Result<(), Errno> {
    debug_assert!(from.ends_with(&[0]) && to.ends_with(&[0]));
    let linked = unnoticed(|| {
        // SAFETY: both are NUL-terminated.
        match unsafe { more::link(from.as_ptr().cast(), to.as_ptr().cast()) } {
            0 => Ok(()),
            _ => Err(Errno::last()),
        }
    });
    match linked {
        Ok(()) => {
            remove(from);
            Ok(())
        }
        Err(EEXIST) => Err(EEXIST),
        // The file system has no links: another process may take the name between the two calls.
        Err(_) => match status(to) {
            Err(ENOENT) => rename(from, to),
            Err(error) => Err(error),
            Ok(_) => Err(EEXIST),
        },
    }
}

/// Removes a file's name; `path` ends with a zero byte.
pub fn remove(path: &[u8]) {
    debug_assert!(path.ends_with(&[0]));
    // SAFETY: it is NUL-terminated.
    unnoticed(|| unsafe { more::unlink(path.as_ptr().cast()) });
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Folder,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A device, a pipe.
    Other,
}

/// Type and identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The type.
    pub kind: Kind,
    /// The file's inode number and its device.
    number: [u8; 16],
}

/// Returns the status of the file with this name (of a link, the link itself); `path` ends with a zero byte.
///
/// # Errors
/// The system's error, [`ENOENT`] if there is no such file.
pub fn status(path: &[u8]) -> Result<Status, Errno> {
    /// `AT_FDCWD`, `AT_SYMLINK_NOFOLLOW`.
    const HERE: c_int = -100;
    const NO_FOLLOW: c_int = 0x100;
    debug_assert!(path.ends_with(&[0]));
    statx(HERE, path, NO_FOLLOW)
}

/// Returns the status of an open file.
///
/// # Errors
/// The system's error.
pub fn status_of(file: c_int) -> Result<Status, Errno> {
    /// `AT_EMPTY_PATH`.
    const ITSELF: c_int = 0x1000;
    statx(file, &[0], ITSELF)
}

fn statx(file: c_int, path: &[u8], flags: c_int) -> Result<Status, Errno> {
    /// `STATX_TYPE`, `STATX_INO`.
    const TYPE_AND_NUMBER: c_int = 1 | 0x100;
    /// Offsets of `stx_mode`, `stx_ino` and `stx_dev_major`, `stx_dev_minor`, and the mask of types in the first.
    const MODE: usize = 28;
    const NUMBER: usize = 32;
    const DEVICE: usize = 136;
    const FORMAT: u16 = 0o170_000;
    let mut found = [0u8; 256];
    unnoticed(|| {
        let to = found.as_mut_ptr();
        let (at, wanted) = (path.as_ptr(), TYPE_AND_NUMBER);
        // SAFETY: the path is NUL-terminated, and a `statx` has 256 bytes.
        let result = unsafe { c::syscall(machine::STATX, file, at, flags, wanted, to) };
        if result != 0 {
            return Err(Errno::last());
        }
        let mode = u16::from_ne_bytes([found[MODE], found[MODE + 1]]);
        let mut number = [0; 16];
        number[..8].copy_from_slice(&found[NUMBER..NUMBER + 8]);
        number[8..].copy_from_slice(&found[DEVICE..DEVICE + 8]);
        let kind = match mode & FORMAT {
            0o100_000 => Kind::File,
            0o040_000 => Kind::Folder,
            0o120_000 => Kind::Link,
            0o140_000 => Kind::Socket,
            _ => Kind::Other,
        };
        Ok(Status { kind, number })
    })
}

/// Reads the target of a symbolic link into `to`; `path` ends with a zero byte.
///
/// # Errors
/// The system's error, also if the target is too long for `to`.
pub fn link_target<'a>(path: &[u8], to: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    const ENAMETOOLONG: Errno = Errno(36);
    debug_assert!(path.ends_with(&[0]));
    let count = unnoticed(|| {
        // SAFETY: the path is NUL-terminated; pointer and length are those of a slice.
        let count =
            unsafe { more::readlink(path.as_ptr().cast(), to.as_mut_ptr().cast(), to.len()) };
        usize::try_from(count).map_err(|_| Errno::last())
    })?;
    match to.get(..count) {
        Some(target) if count < to.len() => Ok(target),
        _ => Err(ENAMETOOLONG),
    }
}

/// Reads the path of the working directory into `to`.
///
/// # Errors
/// The system's error.
pub fn working_directory(to: &mut [u8]) -> Result<&[u8], Errno> {
    unnoticed(|| {
        // SAFETY: the pointer and length are those of a slice.
        let found = unsafe { more::getcwd(to.as_mut_ptr().cast(), to.len()) };
        if found.is_null() {
            return Err(Errno::last());
        }
        let end = to.iter().position(|byte| *byte == 0).unwrap_or(to.len());
        Ok(to.get(..end).unwrap_or(&[]))
    })
}

/// Returns whether the program runs with privileges that its user does not have, so that its environment must not be
/// trusted.
pub fn is_privileged() -> bool {
    const SECURE: c_ulong = 23;
    // SAFETY: it takes a number.
    unnoticed(|| unsafe { more::getauxval(SECURE) != 0 })
}

/// Returns the kernel's name of this thread, padded with zeros.
pub fn thread_name() -> [u8; 16] {
    const GET_NAME: c_int = 16;
    let mut name = [0; 16];
    // SAFETY: it writes at most 16 bytes.
    unnoticed(|| unsafe { more::prctl(GET_NAME, name.as_mut_ptr()) });
    name
}

/// Returns the time at which a process started, in clock ticks after boot; `None` if there is no such process.
pub fn started(process: u32) -> Option<u64> {
    /// `starttime` among the words after the program's name (proc(5)).
    const STARTED: usize = 19;
    use core::fmt::Write as _;
    let mut path = crate::text::Text::<40>::new();
    let _ = write!(path, "/proc/{process}/stat\0");
    let mut text = [0; 512];
    let text = super::read_front(path.bytes(), &mut text).ok()?;
    let word = super::word_of_stat(text, STARTED)?;
    core::str::from_utf8(word).ok()?.parse().ok()
}

/// Registers `before` to be called before each fork, and `child` in the child.
pub fn at_fork(before: extern "C" fn(), child: extern "C" fn()) {
    // SAFETY: the functions are there as long as the program.
    unnoticed(|| unsafe { more::pthread_atfork(Some(before), None, Some(child)) });
}

/// Returns the size of the kernel's pages.
pub fn page_bytes() -> usize {
    const PAGE_SIZE: c_ulong = 6;
    // SAFETY: it takes a number.
    unnoticed(|| unsafe { more::getauxval(PAGE_SIZE) as usize })
}

/// Makes the kernel fill private memory with zeros in every child of this process; returns false if it cannot. The
/// memory keeps its content, and is not mapped from a file afterwards.
///
/// # Safety
/// The range is whole pages that the caller owns, to which no thread stores meanwhile.
pub unsafe fn wipe_in_children(at: *mut u8, bytes: usize) -> bool {
    const WIPE_ON_FORK: c_int = 18;
    const MAY_MOVE_FIXED: c_int = 1 | 2;
    let Ok(new) = super::map(bytes) else {
        return false;
    };
    unnoticed(|| {
        // SAFETY: both are mapped, with this size, and nothing else uses `new` yet. The kernel moves it to the address
        // of the old pages atomically, so that other threads see the same content throughout.
        unsafe {
            new.copy_from_nonoverlapping(at, bytes);
            let moved = more::madvise(new.cast(), bytes, WIPE_ON_FORK) == 0
                && more::mremap(new.cast(), bytes, bytes, MAY_MOVE_FIXED, at) as isize != -1;
            if !moved {
                super::unmap(new, bytes);
            }
            moved
        }
    })
}
