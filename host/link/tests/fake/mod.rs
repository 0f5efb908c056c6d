//! A target that exists only in a test: it speaks the protocol over TCP, and goes wrong in the ways
//! it is told to.
//!
//! It is written from the description of the protocol in `kymo-wire`, without anything of the
//! code under test.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::link::crc::crc32;
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{Capabilities, Command, DATA_BYTES, Frame, Identity, Mode, PROTOCOL};

/// What goes wrong. Frames are counted from 1 over the whole connection.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Nothing is ever answered.
    pub silent: bool,
    /// So many answers to `identify` have text of the program's in their middle.
    pub torn_identities: u32,
    /// What is answered to a line instead of an identity.
    pub stranger: Option<&'static str>,
    /// Every frame with such a number has a bit turned over.
    pub damage_every: Option<u32>,
    /// Every frame with such a number is not sent.
    pub lose_every: Option<u32>,
    /// The frames with these numbers are not sent.
    pub lose: Vec<u32>,
    /// Every frame with such a number has a line of the program's in its middle.
    pub console_inside_every: Option<u32>,
    /// Every frame with such a number has a line of the program's behind it.
    pub console_after_every: Option<u32>,
    /// Everything is sent in pieces of so many bytes, with a pause in between.
    pub fragments: Option<usize>,
    /// From this data frame on nothing is sent.
    pub hang_at: Option<u32>,
    /// At this data frame the connection is closed.
    pub close_at: Option<u32>,
    /// A pause after each data frame.
    pub slow: Option<Duration>,
    /// A reboot ends the connection, as with a board whose serial port is its own.
    pub reboot_disconnects: bool,
    /// The command of which it refuses the first word, and why.
    pub refuse: Option<(&'static str, &'static str)>,
    /// Its dumps end with a wrong checksum, so many times.
    pub wrong_sums: u32,
    /// When so many packets of a stream have been acknowledged, the connection is closed, once.
    pub close_after: Option<usize>,
    /// When so many packets of a stream have been acknowledged, the stream is forgotten, once.
    pub forget_after: Option<usize>,
    /// When so many packets of a stream have been acknowledged, nothing more is heard or said on this
    /// connection, which stays open; once.
    pub mute_after: Option<usize>,
}

/// What a fake target has, and what was done to it.
#[derive(Clone, Debug)]
pub struct State {
    /// Who it says it is.
    pub identity: Identity,
    /// What `dump_trace` gives.
    pub trace: Vec<u8>,
    /// What `dump_profile` gives.
    pub profile: Vec<u8>,
    /// What it does wrong.
    pub faults: Faults,
    /// The reply to `status`.
    pub status: String,
    /// The trigger.
    pub trigger: u64,
    /// The stopper.
    pub stopper: u64,
    /// Every byte that came from the host.
    pub received: Vec<u8>,
    /// The commands that were carried out.
    pub commands: Vec<Command>,
    /// What the program has written to the console.
    pub console: String,
    /// The packets that wait to be streamed, and those that are on their way: none is taken out before
    /// it is acknowledged.
    pub packets: VecDeque<Vec<u8>>,
    /// How many packets have been acknowledged.
    pub released: usize,
    /// How many pieces of dumps have been sent, or were meant to be.
    pub sent: u32,
}

impl Faults {
    /// Whether all that is sent arrives: then one may wait for it as long as it takes, and what is
    /// asked for twice, or given up, on a machine that is slow, is not the target's fault.
    #[allow(dead_code, reason = "not every test waits")]
    pub fn nothing_is_missing(&self) -> bool {
        let loses = [
            self.damage_every,
            self.lose_every,
            self.hang_at,
            self.close_at,
        ];
        loses.iter().all(Option::is_none)
            && self.lose.is_empty()
            && self.close_after.is_none()
            && self.forget_after.is_none()
            && self.mute_after.is_none()
            && self.torn_identities == 0
            && !self.reboot_disconnects
            && !self.silent
            && self.stranger.is_none()
    }
}

impl State {
    /// A target with these dumps and no faults.
    pub fn new(trace: Vec<u8>, profile: Vec<u8>) -> Self {
        Self {
            identity: identity(),
            trace,
            profile,
            faults: Faults::default(),
            status: "enabled=1 on=1 mode=overwrite used=2048 needed=2048 bytes=2000 discarded=0 \
                     packets=2 functions=3 slots=64 no_slot=0 damaged=0"
                .to_owned(),
            trigger: 0,
            stopper: 0,
            received: Vec::new(),
            commands: Vec::new(),
            console: String::new(),
            packets: VecDeque::new(),
            released: 0,
            sent: 0,
        }
    }
}

/// A Cortex-M3 at 25 MHz.
pub fn identity() -> Identity {
    let mut build_id = ([0; 32], 20);
    build_id.0[..20].fill(0xB1);
    Identity {
        protocol: PROTOCOL,
        layout: Layout {
            shape: Shape::Compact,
            word: WordSize::Bits32,
            order: ByteOrder::Little,
            function_shift: 1,
        },
        clock_hz: 25_000_000,
        clock_bits: 32,
        buffer_bytes: 65_536,
        packet_bytes: 1024,
        streams: 1,
        mode: Mode::Overwrite,
        text_base: 0,
        capabilities: Capabilities {
            trace: true,
            profile: true,
            reboot: true,
            retained: true,
            sure_clock: true,
            stream: true,
        },
        build_id,
    }
}

/// Bytes of any value, the same each time.
pub fn noise(length: usize) -> Vec<u8> {
    (0..length as u32)
        .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// A running fake target. It ends when this is dropped.
pub struct Fake {
    port: u16,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// Starts a target on a free port of this machine.
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
                        Ok((stream, _)) => Connection::new(stream, &state, &stop).serve(),
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

    /// What it has and what was done to it, now.
    pub fn state(&self) -> State {
        self.state.lock().expect("the fake target lives").clone()
    }

    /// Has a packet to be streamed.
    #[allow(dead_code, reason = "not every test streams")]
    pub fn record(&self, packet: Vec<u8>) {
        let mut state = self.state.lock().expect("the fake target lives");
        state.packets.push_back(packet);
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

/// One host that is served.
struct Connection<'a> {
    line: TcpStream,
    state: &'a Mutex<State>,
    stop: &'a AtomicBool,
    /// What came since the last line end or zero byte.
    held: Vec<u8>,
    in_frame: bool,
    /// The frames that were sent, or would have been.
    frames: u32,
    data_frames: u32,
    gone: bool,
    mute: bool,
    /// The dump that is going on.
    dump: Option<Vec<u8>>,
    stream: Option<Streamed>,
}

/// A stream that is going on.
struct Streamed {
    request: u8,
    /// All pieces so far, and the number behind the last piece of each packet that is on its way.
    pieces: Vec<Vec<u8>>,
    ends: VecDeque<usize>,
    next: usize,
    acked: usize,
    /// A piece was sent since the last acknowledgement.
    sent: bool,
}

/// When the clock showed 0, in nanoseconds since 1970; it counts at 25 MHz.
pub const STARTED: u64 = 1_700_000_000_000_000_000;

/// How many packets are on their way at most.
const WINDOW: usize = 4;

impl<'a> Connection<'a> {
    fn new(stream: TcpStream, state: &'a Mutex<State>, stop: &'a AtomicBool) -> Self {
        stream.set_nonblocking(false).expect("blocking");
        stream
            .set_read_timeout(Some(Duration::from_millis(10)))
            .expect("a time-out");
        Self {
            line: stream,
            state,
            stop,
            held: Vec::new(),
            in_frame: false,
            frames: 0,
            data_frames: 0,
            gone: false,
            mute: false,
            dump: None,
            stream: None,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().expect("the test lives"))
    }

    fn faults(&self) -> Faults {
        self.with(|state| state.faults.clone())
    }

    fn serve(mut self) {
        let mut buffer = [0; 1024];
        while !self.gone && !self.stop.load(Ordering::Relaxed) {
            match self.line.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    self.with(|state| state.received.extend_from_slice(&buffer[..length]));
                    for &byte in &buffer[..length] {
                        if !self.mute {
                            self.byte(byte);
                        }
                    }
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return,
            }
            if !self.mute {
                self.pump();
            }
        }
    }

    /// Sends what there is to send of a stream.
    fn pump(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        while stream.ends.len() < WINDOW {
            let on_its_way = stream.ends.len();
            let Some(packet) = self.with(|state| state.packets.get(on_its_way).cloned()) else {
                break;
            };
            stream
                .pieces
                .extend(packet.chunks(DATA_BYTES).map(<[u8]>::to_vec));
            stream.ends.push_back(stream.pieces.len());
        }
        while let Some(piece) = stream.pieces.get(stream.next) {
            self.piece(&stream, stream.next, piece);
            stream.next += 1;
            stream.sent = true;
        }
        self.stream = Some(stream);
    }

    fn piece(&mut self, stream: &Streamed, number: usize, bytes: &[u8]) {
        self.data_frames += 1;
        self.frame(&Frame::Data {
            request: stream.request,
            number: number as u32,
            bytes,
        });
        if let Some(pause) = self.faults().slow {
            std::thread::sleep(pause);
        }
    }

    fn acknowledge(&mut self, piece: usize) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if piece == stream.acked && piece < stream.next && !stream.sent {
            stream.next = piece;
        }
        (stream.acked, stream.sent) = (piece, false);
        let mut released = 0;
        while stream.ends.front().is_some_and(|end| *end <= piece) {
            stream.ends.pop_front();
            released += 1;
        }
        let (close, forget, mute) = self.with(|state| {
            state.packets.drain(..released);
            state.released += released;
            let now = state.released;
            let due = |after: &mut Option<usize>| after.take_if(|after| now >= *after).is_some();
            (
                due(&mut state.faults.close_after),
                due(&mut state.faults.forget_after),
                due(&mut state.faults.mute_after),
            )
        });
        self.gone |= close;
        self.mute |= mute;
        if forget {
            self.stream = None;
        }
    }

    fn byte(&mut self, byte: u8) {
        match byte {
            0 if self.in_frame && !self.held.is_empty() => {
                let mut held = std::mem::take(&mut self.held);
                self.in_frame = false;
                if let Some(Frame::Command { request, text }) = Frame::decode(&mut held) {
                    let command = Command::parse(text);
                    self.framed(request, command.expect("hosts send commands"));
                }
            }
            0 => {
                self.held.clear();
                self.in_frame = true;
            }
            b'\r' if !self.in_frame => {
                let line = std::mem::take(&mut self.held);
                self.line(&line);
            }
            _ => self.held.push(byte),
        }
    }

    fn line(&mut self, line: &[u8]) {
        let faults = self.faults();
        if faults.silent {
            return;
        }
        if let Some(answer) = faults.stranger {
            return self.send(answer.as_bytes());
        }
        assert_eq!(Command::parse(line), Ok(Some(Command::Identify)));
        let mut text = format!("{}\r\n", self.with(|state| state.identity));
        if faults.torn_identities > 0 {
            self.with(|state| state.faults.torn_identities -= 1);
            text.insert_str(60, "tick\r\n");
        }
        self.send(text.as_bytes());
    }

    fn framed(&mut self, request: u8, command: Option<Command>) {
        let Some(command) = command else { return };
        self.with(|state| state.commands.push(command));
        if let Some((word, reason)) = self.faults().refuse
            && command.to_string().split(' ').next() == Some(word)
        {
            return self.reply(request, false, reason);
        }
        match command {
            Command::Ping => self.reply(request, true, "pong"),
            Command::Status => self.reply(request, true, &self.with(|state| state.status.clone())),
            Command::ListSets => {
                let (trigger, stopper) = self.with(|state| (state.trigger, state.stopper));
                let text = format!("trigger={trigger:#x} stopper={stopper:#x}");
                self.reply(request, true, &text);
            }
            Command::Trigger(address) => {
                self.with(|state| state.trigger = address);
                self.reply(request, true, "ok");
            }
            Command::Stopper(address) => {
                self.with(|state| state.stopper = address);
                self.reply(request, true, "ok");
            }
            Command::Reboot if self.with(|state| state.identity.capabilities.reboot) => {
                self.say("*** booting ***\r\n");
                self.gone = self.faults().reboot_disconnects;
            }
            Command::Reboot => self.reply(request, false, "this target cannot reboot"),
            Command::DumpTrace | Command::DumpProfile => {
                let dump = self.with(|state| match command {
                    Command::DumpTrace => state.trace.clone(),
                    _ => state.profile.clone(),
                });
                let frames = dump.len().div_ceil(DATA_BYTES);
                self.reply(
                    request,
                    true,
                    &format!("bytes={} frames={frames}", dump.len()),
                );
                self.dump = Some(dump);
                self.data(request, 0, u32::MAX);
            }
            Command::Resend { first, last } if self.stream.is_some() => {
                self.reply(request, true, "ok");
                if let Some(stream) = self.stream.take() {
                    for number in first as usize..=last as usize {
                        if let Some(piece) = stream.pieces.get(number) {
                            self.piece(&stream, number, piece);
                        }
                    }
                    self.stream = Some(stream);
                }
            }
            Command::Resend { .. } if self.dump.is_none() => {
                self.reply(request, false, "no dump");
            }
            Command::Resend { first, last } => {
                self.reply(request, true, "ok");
                self.data(request, first, last);
            }
            Command::Done => {
                self.dump = None;
                self.reply(request, true, "ok");
            }
            Command::StreamOn { .. } => {
                let same = |stream: &Streamed| stream.request == request;
                if !self.stream.as_ref().is_some_and(same) {
                    self.stream = Some(Streamed {
                        request,
                        pieces: Vec::new(),
                        ends: VecDeque::new(),
                        next: 0,
                        acked: 0,
                        sent: false,
                    });
                }
                self.reply(request, true, &format!("window={WINDOW}"));
            }
            Command::StreamOff => {
                // Nothing more is recorded in a test that has said this.
                let waiting = self.with(|state| !state.packets.is_empty());
                let sending = self.stream.is_some() && waiting;
                self.reply(request, true, &format!("sending={}", u8::from(sending)));
            }
            Command::Ack(piece) if self.stream.is_some() => self.acknowledge(piece as usize),
            Command::Ack(_) => self.reply(request, false, "no stream is going on"),
            Command::Time => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let since = since.expect("after 1970").as_nanos();
                let ticks = (since - u128::from(STARTED)) / 40;
                self.reply(request, true, &format!("ticks={ticks}"));
            }
            _ => self.reply(request, true, "ok"),
        }
    }

    /// Sends pieces of the dump, and its end.
    fn data(&mut self, request: u8, first: u32, last: u32) {
        let dump = self.dump.clone().unwrap_or_default();
        let faults = self.faults();
        for (number, bytes) in (0u32..).zip(dump.chunks(DATA_BYTES)) {
            if !(first..=last).contains(&number) {
                continue;
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.data_frames += 1;
            self.with(|state| state.sent += 1);
            if faults.close_at == Some(self.data_frames) {
                self.gone = true;
            }
            if faults.hang_at.is_some_and(|at| at <= self.data_frames) || self.gone {
                return;
            }
            self.frame(&Frame::Data {
                request,
                number,
                bytes,
            });
            if let Some(pause) = faults.slow {
                std::thread::sleep(pause);
            }
        }
        let mut crc = crc32(&dump);
        if faults.wrong_sums > 0 {
            self.with(|state| state.faults.wrong_sums -= 1);
            crc ^= 1;
        }
        self.frame(&Frame::End {
            request,
            frames: dump.len().div_ceil(DATA_BYTES) as u32,
            bytes: dump.len() as u32,
            crc,
        });
    }

    fn reply(&mut self, request: u8, ok: bool, text: &str) {
        self.frame(&Frame::Reply {
            request,
            ok,
            text: text.as_bytes(),
        });
    }

    /// Sends a frame, or what the faults make of it.
    fn frame(&mut self, frame: &Frame<'_>) {
        let faults = self.faults();
        if faults.hang_at.is_some_and(|at| at <= self.data_frames) {
            return;
        }
        self.frames += 1;
        let hits =
            |every: Option<u32>| every.is_some_and(|every| self.frames.is_multiple_of(every));
        let lost = hits(faults.lose_every) || faults.lose.contains(&self.frames);
        let damaged = hits(faults.damage_every);
        let inside = hits(faults.console_inside_every);
        let after = hits(faults.console_after_every);
        let mut wire = [0; MAX_WIRE];
        let length = frame.encode(&mut wire).expect("a frame that fits");
        let middle = 1 + self.frames as usize % (length - 2);
        if damaged {
            wire[middle] ^= 0x10;
        }
        let (front, back) = wire[..length].split_at(middle);
        if lost {
            return;
        }
        if inside {
            self.send(front);
            self.say(&format!("inside {}\r\n", self.frames));
            self.send(back);
        } else {
            self.send(&wire[..length]);
        }
        if after {
            self.say(&format!("after {}\r\n", self.frames));
        }
    }

    /// The program writes to the console.
    fn say(&mut self, text: &str) {
        self.with(|state| state.console.push_str(text));
        self.send(text.as_bytes());
    }

    fn send(&mut self, bytes: &[u8]) {
        let size = self.faults().fragments;
        for part in bytes.chunks(size.unwrap_or(usize::MAX)) {
            // The host may have gone: that shows at the next read.
            let _ = self.line.write_all(part);
            if size.is_some() {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

/// Waits until `condition` holds; panics if it does not within ten minutes.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
