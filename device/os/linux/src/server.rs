//! The link of a process over a socket that `KYMO_SOCKET` names, so that `kymo record unix:PATH` (and any other command)
//! reaches a program that does nothing for it.
//!
//! A thread of the recorder's own makes the socket, takes one host after the other, and polls the link. No signal is
//! delivered in it, and nothing of it is recorded but what the host has it do (turning recording on and off).
//!
//! A fork has none of its parent's threads: it closes the parent's connection, and a thread of its own makes a socket
//! of its own once something has been recorded there. At exit the thread sends what a stream has still to send.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::fmt::Write as _;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::link::RECEIVE_BYTES;

use crate::process::Process;
use crate::reader::View;
use crate::recording::expand;
use crate::save::Text;
use crate::settings;
use crate::sys::{self, files, sockets};

/// How long the thread waits for bytes while there is a host, in milliseconds: the link has things to do by itself.
const LOOK_EVERY: c_int = 10;

/// How long the end of the process waits without any progress for a host that receives a stream, in milliseconds.
const PATIENCE: u32 = 2000;

/// How long it waits at most for one that reads slowly, in nanoseconds.
const LONGEST: u64 = 30_000_000_000;

/// The socket, and who serves it.
pub(crate) struct Server {
    /// What `KYMO_SOCKET` says, made absolute. Written by who sets up.
    pattern: UnsafeCell<Text<PATTERN>>,
    /// The name of this process's socket. For the thread that serves, and before there is one.
    name: UnsafeCell<Text<{ sockets::NAME + 32 }>>,
    /// `pthread_create`; 0: nothing is served.
    spawn: AtomicUsize,
    /// Descriptors, and 1; 0: none.
    listener: AtomicU32,
    host: AtomicU32,
    /// [`NONE`] and so on.
    state: AtomicU32,
}

/// The longest name of a socket as it is given.
const PATTERN: usize = 512;

/// There is no thread.
const NONE: u32 = 0;
/// There is one.
const SERVING: u32 = 1;
/// It is to send what there is, and to end.
const ENDING: u32 = 2;
/// It has ended.
const ENDED: u32 = 3;

// SAFETY: both texts have one user at a time, as stands there.
unsafe impl Sync for Server {}

impl core::fmt::Debug for Server {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

impl Server {
    /// Nothing is served. All zero.
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

    /// Makes the socket; what is wrong is said on standard error.
    fn listen(&self, child: bool) -> bool {
        // SAFETY: this is the one user.
        let (pattern, name) = unsafe { (&*self.pattern.get(), &mut *self.name.get()) };
        let with_process = expand(pattern.bytes(), name);
        if child && !with_process {
            let _ = write!(name, ".{}", sys::process());
        }
        let mut made = sockets::listen_at(name.bytes());
        if made == Err(sockets::EADDRINUSE) && !child && !with_process {
            // The parent's, of which this is a program of its own.
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
                    sockets::EADDRINUSE => "another process answers there, or it is no socket",
                    error => error.words(),
                };
                complain(name.bytes(), words);
                false
            }
        }
    }
}

/// The descriptor that a place holds.
fn file_in(place: u32) -> Option<c_int> {
    place.checked_sub(1).map(|file| file as c_int)
}

fn complain(name: &[u8], why: &str) {
    let mut message = Text::<800>::new();
    message.put(b"kymo: no host can connect to ");
    message.put(name);
    let _ = writeln!(message, ": {why}");
    sys::say(message.bytes());
}

/// What the thread does.
extern "C" fn serve(_: *mut c_void) -> *mut c_void {
    if let Some((process, gate)) = crate::process::recorder() {
        process.serve(gate);
        process.server.state.store(ENDED, Ordering::Release);
    }
    core::ptr::null_mut()
}

impl Process {
    /// Has hosts connect to the socket that `KYMO_SOCKET` names, if it names one. To be called by start-up code, not in a
    /// hook: `spawn`, which makes threads, allocates memory. `None` where the program has no threads.
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

    /// In the child of a fork: closes what is the parent's.
    pub(crate) fn leave_server(&self) {
        Server::close(&self.server.host);
        Server::close(&self.server.listener);
        self.server.state.store(NONE, Ordering::Relaxed);
    }

    /// In the child of a fork of which the C library tells: serves this process as its parent is.
    pub(crate) fn serve_child(&self) {
        self.begin_to_serve();
    }

    /// Serves hosts until the process ends.
    fn serve(&self, gate: &Gate) {
        let server = &self.server;
        let is_ending = || server.state.load(Ordering::Acquire) == ENDING;
        if server.listener.load(Ordering::Acquire) == 0 {
            // A fork: most call `exec` at once, and shall leave no socket behind.
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
        files::remove(name.bytes());
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
            // Where descriptors are short, not at once again.
            Err(_) => sys::sleep(1_000_000),
        }
    }

    /// Hears what the host says, and does it; whether it said anything.
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
        self.keep_gate(gate);
        // What it did not take may have been the last of a command that goes on elsewhere.
        if heard.is_err() || self.server.host.load(Ordering::Acquire) == 0 {
            self.hang_up(gate);
            Server::close(&self.server.host);
        }
    }

    /// At the end of the process: closes all packets, and goes on until the host has a stream's, or says nothing more.
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
        // Other threads may go on until the process is gone, and there would be no end.
        gate.disable();
        if self.is_in_duration() && view.hold().is_ok() {
            // Calls that are open are recorded with that.
            view.let_go();
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
                // The host had enough.
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

    /// Sends bytes to the host that is connected; to none if it does not take them.
    pub(crate) fn send_to_host(&self, bytes: &[u8]) {
        let place = &self.server.host;
        let held = place.load(Ordering::Acquire);
        if let Some(host) = file_in(held)
            && sockets::send_all(host, bytes).is_err()
        {
            // Nobody may read from it any more; it is closed by who serves.
            sockets::end(host);
        }
    }

    /// Ends the service when the process ends: what a stream has still to send is sent.
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
        // A host that takes something keeps the process for as long as it does.
        let mut left = 4 * PATIENCE;
        while state.load(Ordering::Acquire) != ENDED && left > 0 {
            sys::sleep(1_000_000);
            if server.host.load(Ordering::Relaxed) == 0 {
                left -= 1;
            }
        }
    }
}
