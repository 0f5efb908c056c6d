//! Serves hosts over a local socket that `KYMO_SOCKET` names. `kymo record unix:PATH` and the other subcommands reach
//! the program without its help.
//!
//! A thread of the recorder creates the socket, accepts one host at a time, and polls the link. All signals are blocked
//! in it, and it records nothing except commands of the host (turning recording on and off).
//!
//! A fork has none of its parent's threads: it closes the parent's connection, and a thread of its own creates another
//! socket once the fork has recorded something. At exit the thread sends the rest of a stream.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::link::RECEIVE_BYTES;

use super::Process;
use super::reader::View;
use crate::recording::expand;
use crate::settings;
use crate::sys::{self, files, sockets};
use crate::text::Text;

/// Interval, in milliseconds, at which the thread polls the link while a host is connected: the link has work even if
/// no bytes arrive.
const LOOK_EVERY: c_int = 10;

/// Timeout at exit for a host that receives a stream and makes no progress, in milliseconds.
const PATIENCE: u32 = 2000;

/// Maximum time at exit for a host that reads slowly, in nanoseconds.
const LONGEST: u64 = 30_000_000_000;

/// The socket, and the state of the thread that serves it.
pub(crate) struct Server {
    /// `KYMO_SOCKET`, made absolute. Written during set-up.
    pattern: UnsafeCell<Text<PATTERN>>,
    /// Name of this process's socket. Used by the serving thread, and by set-up before that thread exists.
    name: UnsafeCell<Text<{ sockets::NAME + 32 }>>,
    /// Address of `pthread_create`; 0: no socket is served.
    spawn: AtomicUsize,
    /// File descriptors plus 1; 0: none.
    listener: AtomicU32,
    host: AtomicU32,
    /// One of [`NONE`], [`SERVING`], [`ENDING`], [`ENDED`].
    state: AtomicU32,
}

/// Maximum length of the configured name of a socket.
const PATTERN: usize = 512;

/// There is no thread.
const NONE: u32 = 0;
/// The thread serves hosts.
const SERVING: u32 = 1;
/// The thread is to send the rest of a stream, and to end.
const ENDING: u32 = 2;
/// The thread has ended.
const ENDED: u32 = 3;

// SAFETY: both texts have one user at a time, as their fields document.
unsafe impl Sync for Server {}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Creates a server that serves nothing. All zero.
    pub const fn new() -> Self {
        Self {
            pattern: UnsafeCell::new(Text::new()),
            name: UnsafeCell::new(Text::new()),
            spawn: AtomicUsize::new(0),
            listener: AtomicU32::new(0),
            host: AtomicU32::new(0),
            state: AtomicU32::new(NONE),
        }
    }

    fn close(place: &AtomicU32) {
        if let Some(file) = file_in(place.swap(0, Ordering::AcqRel)) {
            files::close(file);
        }
    }

    /// Creates the socket; reports errors on standard error.
    fn listen(&self, child: bool) -> bool {
        // SAFETY: this is the one user.
        let (pattern, name) = unsafe { (&*self.pattern.get(), &mut *self.name.get()) };
        let with_process = expand(pattern.bytes(), name);
        if child && !with_process {
            let _ = write!(name, ".{}", sys::process());
        }
        let mut made = sockets::listen_at(name.bytes());
        if made == Err(sockets::EADDRINUSE) && !child && !with_process {
            // The parent process uses the name, and this process runs another program.
            let _ = write!(name, ".{}", sys::process());
            made = sockets::listen_at(name.bytes());
        }
        match made {
            Ok(file) => {
                self.listener.store(file as u32 + 1, Ordering::Release);
                true
            }
            Err(error) => {
                let words = match error {
                    sockets::EADDRINUSE => "another process answers there",
                    error => error.words(),
                };
                complain(name.bytes(), words);
                false
            }
        }
    }
}

/// Returns the descriptor that a field holds.
fn file_in(place: u32) -> Option<c_int> {
    place.checked_sub(1).map(|file| file as c_int)
}

fn complain(name: &[u8], why: &str) {
    let mut message = Text::<800>::new();
    message.put(b"kymo: no host can connect to ");
    message.put(name);
    let _ = writeln!(message, ": {why}");
    sys::print(message.bytes());
}

/// Body of the thread.
extern "C" fn serve(_: *mut c_void) -> *mut c_void {
    if let Some((process, gate)) = crate::process::recorder() {
        process.serve(gate);
        process.server.state.store(ENDED, Ordering::Release);
    }
    core::ptr::null_mut()
}

impl Process {
    /// Starts serving the socket that `KYMO_SOCKET` names, if it is set. Start-up code must call it, not a hook:
    /// `spawn`, which creates threads, allocates memory. `None` if the program has no threads.
    pub fn serve_hosts(&self, spawn: Option<sockets::Spawn>) {
        let Some(given) = settings::socket() else {
            return;
        };
        if self.is_spare() || self.config.get().is_none() {
            return;
        }
        if self.config().send.is_some() {
            return complain(
                given,
                "the program has a link of its own (kymo_config.send)",
            );
        }
        let Some(spawn) = spawn else {
            return complain(given, "the program is linked without threads (-pthread)");
        };
        // SAFETY: there is no thread that serves.
        let pattern = unsafe { &mut *self.server.pattern.get() };
        pattern.clear();
        if !given.starts_with(b"/") {
            let mut here = [0; PATTERN];
            if let Ok(here) = files::working_directory(&mut here) {
                pattern.put(here);
                pattern.put(b"/");
            }
        }
        pattern.put(given);
        if self.server.listen(false) {
            self.server.spawn.store(spawn as usize, Ordering::Relaxed);
            self.begin_to_serve();
        }
    }

    fn begin_to_serve(&self) {
        let spawn = self.server.spawn.load(Ordering::Relaxed) as *const ();
        // SAFETY: it is null, or what `serve_hosts` was given.
        let spawn = unsafe { core::mem::transmute::<*const (), Option<sockets::Spawn>>(spawn) };
        let Some(spawn) = spawn else { return };
        self.server.state.store(SERVING, Ordering::Release);
        if !sockets::spawn(spawn, serve) {
            self.server.state.store(NONE, Ordering::Release);
            Server::close(&self.server.listener);
            complain(b"it", "the system has no thread to give");
        }
    }

    /// Closes the parent's sockets, in the child of a fork.
    pub(crate) fn leave_server(&self) {
        Server::close(&self.server.host);
        Server::close(&self.server.listener);
        self.server.state.store(NONE, Ordering::Relaxed);
    }

    /// Serves this process as its parent is served. Called in the child of a fork that the C library reports.
    pub(crate) fn serve_child(&self) {
        self.begin_to_serve();
    }

    /// Serves hosts until the process exits.
    fn serve(&self, gate: &Gate) {
        let server = &self.server;
        let is_ending = || server.state.load(Ordering::Acquire) == ENDING;
        if server.listener.load(Ordering::Acquire) == 0 {
            // This is a fork. Most forks call `exec` at once, and must not leave a socket behind.
            while self.has_nothing_of_its_own() {
                if is_ending() {
                    return;
                }
                sys::sleep(20_000_000);
            }
            if !server.listen(true) {
                return;
            }
        }
        while !is_ending() {
            match file_in(server.host.load(Ordering::Acquire)) {
                None => self.wait_for_a_host(),
                Some(host) => self.talk_to(host, gate),
            }
        }
        self.send_the_rest(gate);
        // SAFETY: this is the one user.
        let name = unsafe { &mut *server.name.get() };
        name.end();
        sockets::remove(name.bytes());
        Server::close(&server.host);
        Server::close(&server.listener);
    }

    fn wait_for_a_host(&self) {
        let Some(listener) = file_in(self.server.listener.load(Ordering::Acquire)) else {
            return;
        };
        sockets::wait(listener, -1);
        match sockets::accept(listener) {
            Ok(host) => self.server.host.store(host as u32 + 1, Ordering::Release),
            // If descriptors are exhausted, do not retry at once.
            Err(_) => sys::sleep(1_000_000),
        }
    }

    /// Receives bytes from the host; returns whether there were any.
    fn hear(&self, host: c_int, milliseconds: c_int) -> Result<bool, sockets::Gone> {
        let mut bytes = [0; RECEIVE_BYTES];
        let mut heard = false;
        if sockets::wait(host, milliseconds) {
            let count = sockets::receive(host, &mut bytes)?;
            for byte in bytes.get(..count).unwrap_or_default() {
                self.receive(*byte);
            }
            heard = count > 0;
        }
        Ok(heard)
    }

    fn talk_to(&self, host: c_int, gate: &Gate) {
        let wait = if self.pending(gate) { 0 } else { LOOK_EVERY };
        let heard = self.hear(host, wait);
        self.poll(gate);
        self.gate_changed(gate);
        // Bytes that the host did not take may have been the last of a reply that another thread is sending.
        if heard.is_err() || self.server.host.load(Ordering::Acquire) == 0 {
            self.hang_up(gate);
            Server::close(&self.server.host);
        }
    }

    /// Closes all packets at the end of the process, and continues until the host has received the stream, or is
    /// silent.
    fn send_the_rest(&self, gate: &Gate) {
        let view = View {
            process: self,
            gate,
        };
        let Some(host) = file_in(self.server.host.load(Ordering::Acquire)) else {
            return;
        };
        if !self.is_streaming() {
            return;
        }
        // Other threads may record until the process is gone, and sending would never end.
        gate.disable();
        if self.is_in_duration() && view.hold().is_ok() {
            // This records the calls that are open.
            view.resume();
        }
        let mut flushed = 0;
        let mut silent = 0;
        let end = sys::nanoseconds().saturating_add(LONGEST);
        while silent < PATIENCE / 10
            && sys::nanoseconds() < end
            && self.server.host.load(Ordering::Acquire) != 0
        {
            let Ok(heard) = self.hear(host, 10) else {
                return;
            };
            self.poll(gate);
            silent = if heard { 0 } else { silent + 1 };
            if !self.is_streaming() {
                // The host has ended the stream.
                return;
            }
            if self.pending(gate) || self.has_flights() {
                continue;
            }
            // Losses are reported once there is room for them: hence twice.
            if flushed == 2 {
                return;
            }
            flushed += 1;
            kymo_recorder::link::Control::flush(&view);
        }
    }

    /// Sends bytes to the connected host. Disconnects a host that does not take them.
    pub(crate) fn send_to_host(&self, bytes: &[u8]) {
        let place = &self.server.host;
        let held = place.load(Ordering::Acquire);
        if let Some(host) = file_in(held)
            && sockets::send_all(host, bytes).is_err()
        {
            // Only shut down here, so that nothing is read from it any more; the serving thread closes it.
            sockets::end(host);
        }
    }

    /// Ends the service when the process exits, after the rest of a stream has been sent.
    pub fn end_service(&self) {
        let server = &self.server;
        let state = &server.state;
        let begun = state.compare_exchange(SERVING, ENDING, Ordering::AcqRel, Ordering::Relaxed);
        if begun.is_err() {
            return;
        }
        if let Some(listener) = file_in(server.listener.load(Ordering::Acquire))
            && server.host.load(Ordering::Acquire) == 0
        {
            sockets::end(listener);
        }
        // A host that makes progress delays the exit of the process.
        let mut left = 4 * PATIENCE;
        while state.load(Ordering::Acquire) != ENDED && left > 0 {
            sys::sleep(1_000_000);
            if server.host.load(Ordering::Relaxed) == 0 {
                left -= 1;
            }
        }
    }
}
