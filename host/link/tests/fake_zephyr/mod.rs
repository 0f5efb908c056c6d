//! A device that exists only in a test: it runs Zephyr's instrumentation subsystem, answers byte for
//! byte as a real one did (a test holds it against captures), and goes wrong in the ways it is told to.
//!
//! It is written from the description of the protocol, without anything of the code under test.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a device says when it starts.
pub const BANNER: &str = "*** Booting Zephyr OS build  ***\r\n";

/// What a device has, what it does wrong, and what was done to it.
#[derive(Clone, Debug)]
pub struct State {
    /// The reply to `status`, without its line end.
    pub status: &'static str,
    /// Whether it takes `instr_` before a command.
    pub takes_prefix: bool,
    /// Whether it leaves lines without it to somebody else, who says nothing.
    pub needs_prefix: bool,
    /// What it says when it starts.
    pub banner: &'static str,
    /// Whether it was built to trace; then the records of the dumps, each until the next reboot.
    pub trace: Option<Vec<u8>>,
    /// The entries of its table, if it was built to have one.
    pub profile: Option<Vec<u8>>,
    /// What it is set to.
    pub trigger: u32,
    /// What it is set to.
    pub stopper: u32,
    /// Whether trigger and stopper survive a reboot.
    pub retained: bool,
    /// Everything is sent in pieces of so many bytes, with a pause behind each.
    pub fragments: Option<usize>,
    /// Text that the program prints again and again, also before the first question.
    pub chatter: Option<&'static str>,
    /// Commands of which the first byte gets lost.
    pub torn_commands: u32,
    /// Commands that get lost whole.
    pub lost_commands: u32,
    /// Behind so many bytes of its records a dump breaks off, and this happens.
    pub cut: Option<(usize, Cut)>,
    /// Dumps of which it sends one before each answer, as when its buffer is full.
    pub unasked: VecDeque<Vec<u8>>,
    /// What it answers `identify` with instead of a complaint.
    pub stranger: Option<&'static str>,

    /// Every byte that came.
    pub received: Vec<u8>,
    /// The lines that it understood, complete.
    pub lines: Vec<String>,
    /// How often it started again.
    pub reboots: u32,
    /// How many trace dumps have been sent since it started.
    pub dumped: u32,
}

/// How a dump breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The device says nothing any more.
    Dead,
    /// It starts again.
    Reboot,
    /// The connection ends.
    Close,
    /// The rest comes, but for these bytes.
    Lost(usize),
}

impl State {
    /// A device with the default configuration, which has recorded this.
    pub fn new(trace: Vec<u8>, profile: Vec<u8>) -> Self {
        Self {
            status: "1 1 1",
            takes_prefix: false,
            needs_prefix: false,
            banner: BANNER,
            trace: Some(trace),
            profile: Some(profile),
            trigger: 0x829,
            stopper: 0x829,
            retained: true,
            fragments: None,
            chatter: None,
            torn_commands: 0,
            lost_commands: 0,
            cut: None,
            unasked: VecDeque::new(),
            stranger: None,
            received: Vec::new(),
            lines: Vec::new(),
            reboots: 0,
            dumped: 0,
        }
    }
}

/// The captures of real devices, or `None`, said aloud, where they are not there.
pub fn captures() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zephyr");
    if root.is_dir() {
        return Some(root);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "no captures at {}",
        root.display()
    );
    // The harness hides what `eprintln!` says of a test that passes.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        root.display()
    );
    None
}

/// What stands between the marks of a dump that was captured.
pub fn body(capture: &Path) -> Vec<u8> {
    let bytes = std::fs::read(capture).expect("a capture");
    let body = bytes.strip_prefix(b"-*-#").expect("the first mark");
    body.strip_suffix(b"-*-!\r\n").expect("the last").to_vec()
}

/// Records of calls, of a 32-bit target with names of 32 bytes.
pub fn records(count: u32) -> Vec<u8> {
    (0..count)
        .flat_map(|number| record(number % 2, 0x0800_0101 + number / 2 * 4, number))
        .collect()
}

/// A record of `main`'s, `at` milliseconds from the start.
pub fn record(kind: u32, callee: u32, at: u32) -> Vec<u8> {
    let mut bytes = vec![kind.to_le_bytes()[0]];
    bytes.extend(callee.to_le_bytes());
    bytes.extend(0x0800_0205_u32.to_le_bytes());
    bytes.extend((u64::from(at) * 1_000_000).to_le_bytes());
    bytes.push(0);
    bytes.extend(0x2000_0100_u32.to_le_bytes());
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"main");
    bytes.extend(name);
    bytes
}

/// Entries of a profile, of a 32-bit target.
pub fn entries(count: u32) -> Vec<u8> {
    let entry = |number: u32| {
        let mut bytes = vec![2];
        bytes.extend((0x0800_0101 + number * 4).to_le_bytes());
        bytes.extend((u64::from(number) * 1_000).to_le_bytes());
        bytes
    };
    (0..count).flat_map(entry).collect()
}

/// A running fake device. It ends when this is dropped.
pub struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a device on a free port of this machine.
    pub fn start(state: State) -> Self {
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
                        Ok((line, _)) => Device::new(line, &state, &stop).run(),
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
    #[allow(dead_code, reason = "not every test needs it")]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has and what was done to it, now.
    pub fn state(&self) -> State {
        self.state.lock().expect("the device lives").clone()
    }

    /// Changes it while it runs.
    #[allow(dead_code, reason = "not every test does")]
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().expect("the device lives"));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the fake failed");
        }
    }
}

/// The device while somebody is connected.
struct Device<'a> {
    line: TcpStream,
    state: &'a Mutex<State>,
    stop: &'a AtomicBool,
    command: Vec<u8>,
    /// It answers nothing any more.
    dead: bool,
    gone: bool,
    /// Where in its chatter the program is.
    said: usize,
}

impl<'a> Device<'a> {
    fn new(line: TcpStream, state: &'a Mutex<State>, stop: &'a AtomicBool) -> Self {
        line.set_nonblocking(false).expect("blocking");
        line.set_read_timeout(Some(Duration::from_millis(3)))
            .expect("a time-out");
        Self {
            line,
            state,
            stop,
            command: Vec::new(),
            dead: false,
            gone: false,
            said: 0,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().expect("the test lives"))
    }

    fn run(mut self) {
        let mut buffer = [0; 256];
        while !self.gone && !self.stop.load(Ordering::Relaxed) {
            self.chat();
            match self.line.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    self.with(|state| state.received.extend_from_slice(&buffer[..length]));
                    for &byte in &buffer[..length] {
                        self.byte(byte);
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
        }
    }

    /// The program prints a part of a line, so that replies stand in the middle of it.
    fn chat(&mut self) {
        let Some(chatter) = self.with(|state| state.chatter).filter(|_| !self.dead) else {
            return;
        };
        let part: Vec<u8> = chatter.bytes().cycle().skip(self.said).take(7).collect();
        self.said = (self.said + part.len()) % chatter.len();
        self.write(&part);
    }

    /// As the interrupt handler takes it: what is no character is ignored, and 31 are all that fit.
    fn byte(&mut self, byte: u8) {
        if byte == b'\r' {
            let command = std::mem::take(&mut self.command);
            self.line(&command);
        } else if (b' '..=b'~').contains(&byte) && self.command.len() < 31 {
            self.command.push(byte);
        }
    }

    fn line(&mut self, command: &[u8]) {
        if self.dead {
            return;
        }
        let lost = self.with(|state| {
            let lost = state.lost_commands > 0;
            state.lost_commands = state.lost_commands.saturating_sub(1);
            lost
        });
        if lost {
            return;
        }
        let torn = self.with(|state| {
            let torn = state.torn_commands > 0;
            state.torn_commands = state.torn_commands.saturating_sub(1);
            torn
        });
        let command = command.get(usize::from(torn)..).unwrap_or_default();
        let text = String::from_utf8(command.to_vec()).expect("characters");
        self.with(|state| state.lines.push(text.clone()));
        let (takes, needs) = self.with(|state| (state.takes_prefix, state.needs_prefix));
        let bare = match text.strip_prefix("instr_") {
            Some(bare) if takes => bare,
            _ if needs => return,
            _ => &text,
        };
        if let Some(dump) = self.with(|state| state.unasked.pop_front()) {
            self.dump(&dump);
        }
        self.handle(bare);
    }

    /// Carries out a command. All but two are compared over the length of what was received.
    fn handle(&mut self, command: &str) {
        let is = |name: &str| name.starts_with(command);
        if is("reboot") {
            self.reboot();
        } else if is("status") {
            let status = self.with(|state| state.status);
            self.say(status);
        } else if is("ping") {
            self.say("pong");
        } else if is("dump_trace") {
            let records = self.with(|state| {
                state.dumped += 1;
                let first = state.dumped == 1;
                let records = state.trace.clone()?;
                Some(if first { records } else { Vec::new() })
            });
            if let Some(records) = records {
                self.dump(&records);
            }
        } else if is("dump_profile") {
            if let Some(entries) = self.with(|state| state.profile.clone()) {
                self.dump(&entries);
            }
        } else if let Some(argument) = command.strip_prefix("trigger") {
            match strtol(argument) {
                Some(address) => self.with(|state| state.trigger = address),
                None => self.say(&format!("trigger: invalid argument in: '{command}'")),
            }
        } else if let Some(argument) = command.strip_prefix("stopper") {
            match strtol(argument) {
                Some(address) => self.with(|state| state.stopper = address),
                None => self.say(&format!("stopper: invalid argument in: '{command}'")),
            }
        } else if is("listsets") {
            let (trigger, stopper) = self.with(|state| (state.trigger, state.stopper));
            for (name, address) in [("trigger", trigger), ("stopper", stopper)] {
                match address {
                    0 => self.say(&format!("{name}: not set.")),
                    address => self.say(&format!("{name}: {address:#x}")),
                }
            }
        } else if let Some(stranger) = self.with(|state| state.stranger) {
            self.say(stranger);
        } else {
            self.say(&format!("invalid command {command}"));
        }
    }

    fn reboot(&mut self) {
        let banner = self.with(|state| {
            state.reboots += 1;
            state.dumped = 0;
            if !state.retained {
                (state.trigger, state.stopper) = (0x829, 0x829);
            }
            state.banner
        });
        self.command.clear();
        self.write(banner.as_bytes());
    }

    /// Sends records between the two marks.
    fn dump(&mut self, records: &[u8]) {
        let cut = self.with(|state| state.cut.take_if(|(at, _)| *at <= records.len()));
        let Some((at, cut)) = cut else {
            let dump = [b"-*-#", records, b"-*-!\r\n"].concat();
            return self.write(&dump);
        };
        self.write(&[b"-*-#", &records[..at]].concat());
        match cut {
            Cut::Dead => self.dead = true,
            Cut::Reboot => self.reboot(),
            Cut::Close => self.gone = true,
            Cut::Lost(bytes) => {
                self.write(&[&records[at + bytes..], b"-*-!\r\n"].concat());
            }
        }
    }

    fn say(&mut self, text: &str) {
        self.write(format!("{text}\r\n").as_bytes());
    }

    fn write(&mut self, bytes: &[u8]) {
        let pieces = self.with(|state| state.fragments);
        for piece in bytes.chunks(pieces.unwrap_or(bytes.len()).max(1)) {
            if self.line.write_all(piece).is_err() {
                self.gone = true;
                return;
            }
            if pieces.is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// A number of base 16 as C reads it on a 32-bit target; `None` if there is none.
fn strtol(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let text = text.strip_prefix("0x").unwrap_or(text);
    let end = text
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(text.len());
    let magnitude = i64::from_str_radix(text.get(..end)?, 16).ok()?;
    let number = if negative { -magnitude } else { magnitude };
    let number = number.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
    Some(i32::try_from(number).ok()? as u32)
}
