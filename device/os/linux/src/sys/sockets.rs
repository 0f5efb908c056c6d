//! Local sockets (`AF_UNIX`), and creation of threads.

use core::ffi::{c_int, c_long, c_void};

use super::{EINTR, Errno, files, unnoticed, without_signals};

/// Maximum length of a socket's name, with its zero byte.
pub const NAME: usize = 108;

/// The peer has disconnected, or has not read for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// `sockaddr_un`.
#[repr(C)]
struct Address {
    family: u16,
    name: [u8; NAME],
}

/// `struct pollfd`.
#[repr(C)]
struct Wanted {
    file: c_int,
    events: i16,
    found: i16,
}

/// `struct ucred`.
#[repr(C)]
#[derive(Default)]
struct Credentials {
    process: c_int,
    user: u32,
    group: u32,
}

const UNIX: c_int = 1;
const STREAM_CLOEXEC: c_int = 1 | CLOEXEC;
const CLOEXEC: c_int = 0o2_000_000;
const NO_WAIT_NO_SIGNAL: c_int = 0x40 | 0x4000;
const SOL_SOCKET: c_int = 1;
const PEER_CREDENTIALS: c_int = match cfg!(any(target_arch = "powerpc", target_arch = "powerpc64"))
{
    true => 21,
    false => 17,
};
const READABLE: i16 = 1;
const WRITABLE: i16 = 4;

/// The name is in use.
pub const EADDRINUSE: Errno = Errno(98);
const ECONNREFUSED: Errno = Errno(111);
/// The name is that of a file that is not a socket.
const ENOTSOCK: Errno = Errno(88);

/// Timeout for a peer that does not read, in milliseconds.
const PATIENCE: c_int = 5000;

// SAFETY: these are the C library's declarations; `socklen_t` and `nfds_t` have the widths that Linux has.
unsafe extern "C" {
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn bind(socket: c_int, to: *const Address, bytes: u32) -> c_int;
    fn listen(socket: c_int, waiting: c_int) -> c_int;
    fn connect(socket: c_int, to: *const Address, bytes: u32) -> c_int;
    fn accept4(socket: c_int, from: *mut c_void, bytes: *mut u32, flags: c_int) -> c_int;
    fn recv(socket: c_int, to: *mut c_void, bytes: usize, flags: c_int) -> isize;
    fn send(socket: c_int, from: *const c_void, bytes: usize, flags: c_int) -> isize;
    fn shutdown(socket: c_int, how: c_int) -> c_int;
    fn getsockopt(
        socket: c_int,
        level: c_int,
        option: c_int,
        to: *mut Credentials,
        bytes: *mut u32,
    ) -> c_int;
    fn poll(wanted: *mut Wanted, count: core::ffi::c_ulong, milliseconds: c_int) -> c_int;
    fn geteuid() -> u32;
}

/// Type of `pthread_create`.
pub type Spawn = unsafe extern "C" fn(
    thread: *mut c_long,
    attributes: *const c_void,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int;

/// Creates a thread with all signals blocked; returns false if the system cannot create it.
pub fn spawn(spawn: Spawn, start: extern "C" fn(*mut c_void) -> *mut c_void) -> bool {
    let mut thread = 0;
    // SAFETY: the place is valid, and the function takes no argument. (It allocates: the caller is not in a hook.)
    without_signals(|| unsafe {
        spawn(&mut thread, core::ptr::null(), start, core::ptr::null_mut()) == 0
    })
}

fn address(name: &[u8]) -> Option<Address> {
    let mut address = Address {
        family: UNIX as u16,
        name: [0; NAME],
    };
    let room = address.name.get_mut(..NAME - 1)?;
    room.get_mut(..name.len())?.copy_from_slice(name);
    Some(address)
}

const ADDRESS_BYTES: u32 = size_of::<Address>() as u32;

fn result(value: c_int) -> Result<c_int, Errno> {
    if value < 0 {
        Err(Errno::last())
    } else {
        Ok(value)
    }
}

/// Creates a listening socket of this name. Replaces a stale socket of an exited process, and no file of another type.
/// `name` has no zero byte.
///
/// # Errors
/// The system's error; [`EADDRINUSE`] if a process answers there, `ENOTSOCK` if the file is not a socket.
pub fn listen_at(name: &[u8]) -> Result<c_int, Errno> {
    let address = address(name).ok_or(Errno(36))?;
    unnoticed(|| {
        // SAFETY: numbers alone.
        let file = files::raise(result(unsafe { socket(UNIX, STREAM_CLOEXEC, 0) })?);
        // SAFETY: the address is valid.
        let bind = || result(unsafe { bind(file, &address, ADDRESS_BYTES) });
        let bound = match bind() {
            Err(EADDRINUSE) if !is_socket(&address.name) => Err(ENOTSOCK),
            Err(EADDRINUSE) if is_left_behind(&address) => {
                files::remove(&address.name);
                bind()
            }
            other => other,
        };
        // SAFETY: numbers alone.
        let listening = bound.and_then(|_| result(unsafe { listen(file, 8) }));
        listening.map(|_| file).inspect_err(|_| files::close(file))
    })
}

/// Removes the name of a socket; leaves a file of another type that has this name meanwhile. `path` ends with a zero
/// byte.
pub fn remove(path: &[u8]) {
    if is_socket(path) {
        files::remove(path);
    }
}

/// Returns whether a file is a socket, and not a link to one. `path` ends with a zero byte.
fn is_socket(path: &[u8]) -> bool {
    files::status(path).is_ok_and(|status| status.kind == files::Kind::Socket)
}

/// Returns whether no process answers at a socket.
fn is_left_behind(address: &Address) -> bool {
    // SAFETY: numbers alone.
    let Ok(file) = result(unsafe { socket(UNIX, STREAM_CLOEXEC | 0o4000, 0) }) else {
        return false;
    };
    // SAFETY: the address is valid.
    let answer = result(unsafe { connect(file, address, ADDRESS_BYTES) });
    files::close(file);
    answer == Err(ECONNREFUSED)
}

/// Accepts the pending connection, if its user is that of this process, or root.
///
/// # Errors
/// The system's error; `EPERM` for another user.
pub fn accept(listener: c_int) -> Result<c_int, Errno> {
    unnoticed(|| {
        // SAFETY: the address of the other side is not asked for.
        let file = unsafe {
            accept4(
                listener,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
                CLOEXEC,
            )
        };
        let file = files::raise(result(file)?);
        let mut peer = Credentials::default();
        let mut bytes = size_of::<Credentials>() as u32;
        // SAFETY: both places are valid, and it takes nothing.
        let (known, own) = unsafe {
            (
                getsockopt(file, SOL_SOCKET, PEER_CREDENTIALS, &mut peer, &mut bytes) == 0,
                geteuid(),
            )
        };
        if known && [0, own].contains(&peer.user) {
            return Ok(file);
        }
        files::close(file);
        Err(Errno(1))
    })
}

/// Waits until there is data to read, or the peer has disconnected. Returns false after `milliseconds` (-1: no
/// timeout).
pub fn wait(file: c_int, milliseconds: c_int) -> bool {
    wait_for(file, READABLE, milliseconds)
}

fn wait_for(file: c_int, events: i16, milliseconds: c_int) -> bool {
    let mut wanted = Wanted {
        file,
        events,
        found: 0,
    };
    // SAFETY: it is one valid place.
    unnoticed(|| unsafe { poll(&mut wanted, 1, milliseconds) > 0 })
}

/// Reads the available bytes, possibly none.
///
/// # Errors
/// If the peer has disconnected.
pub fn receive(file: c_int, to: &mut [u8]) -> Result<usize, Gone> {
    unnoticed(|| {
        // SAFETY: the pointer and length are those of a slice.
        let count = unsafe { recv(file, to.as_mut_ptr().cast(), to.len(), NO_WAIT_NO_SIGNAL) };
        match usize::try_from(count) {
            Ok(0) => Err(Gone),
            Ok(count) => Ok(count),
            Err(_) if [EINTR, files::EAGAIN].contains(&Errno::last()) => Ok(0),
            Err(_) => Err(Gone),
        }
    })
}

/// Sends all of the bytes.
///
/// # Errors
/// If the peer has disconnected, or has not read for five seconds.
pub fn send_all(file: c_int, mut bytes: &[u8]) -> Result<(), Gone> {
    while !bytes.is_empty() {
        let sent = unnoticed(|| {
            // SAFETY: the pointer and length are those of a slice.
            let sent = unsafe { send(file, bytes.as_ptr().cast(), bytes.len(), NO_WAIT_NO_SIGNAL) };
            usize::try_from(sent).map_err(|_| Errno::last())
        });
        match sent {
            Ok(count) => bytes = bytes.get(count..).unwrap_or(&[]),
            Err(EINTR) => {}
            Err(files::EAGAIN) if wait_for(file, WRITABLE, PATIENCE) => {}
            Err(_) => return Err(Gone),
        }
    }
    Ok(())
}

/// Shuts a socket down, so that a thread that waits for it sees its end.
pub fn end(file: c_int) {
    const BOTH: c_int = 2;
    // SAFETY: numbers alone.
    unnoticed(|| unsafe { shutdown(file, BOTH) });
}
