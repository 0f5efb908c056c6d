//! What a device that exists only in a test has in common with any other: it serves one host after the
//! other over TCP, from a thread of its own, and the test sees what it has and changes it meanwhile.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How a device speaks. It is made for every host that connects.
pub trait Speaks: Sized {
    /// What the device has, and what was done to it; it outlasts a connection.
    type State: Clone + Send + 'static;

    /// For a host at the other end of this line.
    fn new(line: Line<Self::State>) -> Self;

    /// The line.
    fn line(&mut self) -> &mut Line<Self::State>;

    /// Takes what came from the host.
    fn take(&mut self, bytes: &[u8]);

    /// Does what it does by itself, again and again.
    fn act(&mut self) {}
}

/// A running device. It ends when this is dropped.
pub struct Server<S> {
    port: u16,
    state: Arc<Mutex<S>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[allow(dead_code, reason = "not every test needs all of it")]
impl<S: Clone + Send + 'static> Server<S> {
    /// Starts a device on a free port of this machine.
    pub fn serve<D: Speaks<State = S>>(state: S) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("non-blocking");
        let port = listener.local_addr().expect("its port").port();
        let state = Arc::new(Mutex::new(state));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let (state, stop) = (Arc::clone(&state), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => run(D::new(Line::new(stream, &state, &stop))),
                        Err(_) => std::thread::sleep(Duration::from_millis(2)),
                    }
                }
            }
        });
        Self {
            port,
            state,
            stop,
            thread: Some(thread),
        }
    }

    /// Where it is reached.
    pub fn address(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has and what was done to it, now.
    pub fn state(&self) -> S {
        self.state.lock().expect("the device lives").clone()
    }

    /// Changes it while it runs.
    pub fn change(&self, change: impl FnOnce(&mut S)) {
        change(&mut self.state.lock().expect("the device lives"));
    }
}

impl<S> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the fake failed");
        }
    }
}

/// Until the host or the device ends the connection.
fn run<D: Speaks>(mut device: D) {
    let mut buffer = [0; 1024];
    while device.line().is_open() {
        device.act();
        match device.line().stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => device.take(&buffer[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

/// The line to a host, and what the device behind it has.
pub struct Line<S> {
    stream: TcpStream,
    state: Arc<Mutex<S>>,
    stop: Arc<AtomicBool>,
    /// The device has ended the connection.
    pub gone: bool,
}

impl<S> Line<S> {
    fn new(stream: TcpStream, state: &Arc<Mutex<S>>, stop: &Arc<AtomicBool>) -> Self {
        stream.set_nonblocking(false).expect("blocking");
        let often = Some(Duration::from_millis(3));
        stream.set_read_timeout(often).expect("a time-out");
        Self {
            stream,
            state: Arc::clone(state),
            stop: Arc::clone(stop),
            gone: false,
        }
    }

    /// Looks at what the device has, or changes it.
    pub fn with<T>(&self, f: impl FnOnce(&mut S) -> T) -> T {
        f(&mut self.state.lock().expect("the test lives"))
    }

    /// Whether there is anybody to talk to.
    pub fn is_open(&self) -> bool {
        !self.gone && !self.stop.load(Ordering::Relaxed)
    }

    /// Sends bytes in pieces of so many, with a pause behind each; at once, if there is no number.
    pub fn send(&mut self, bytes: &[u8], pieces: Option<usize>, pause: Duration) -> io::Result<()> {
        for piece in bytes.chunks(pieces.unwrap_or(bytes.len()).max(1)) {
            self.stream.write_all(piece)?;
            if pieces.is_some() {
                std::thread::sleep(pause);
            }
        }
        Ok(())
    }
}
