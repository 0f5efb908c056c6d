//! How a fake target answers one host.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kymo_wire::link::crc::crc32;
use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{Command, DATA_BYTES, Frame};

use super::{Faults, STARTED, State};
use crate::server::{Line, Speaks};

/// One host that is served.
pub struct Connection {
    line: Line<State>,
    /// What came since the last line end or zero byte.
    held: Vec<u8>,
    in_frame: bool,
    /// The frames that were sent, or would have been.
    frames: u32,
    data_frames: u32,
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

impl Speaks for Connection {
    type State = State;

    fn new(line: Line<State>) -> Self {
        Self {
            line,
            held: Vec::new(),
            in_frame: false,
            frames: 0,
            data_frames: 0,
            mute: false,
            dump: None,
            stream: None,
        }
    }

    fn line(&mut self) -> &mut Line<State> {
        &mut self.line
    }

    fn take(&mut self, bytes: &[u8]) {
        self.with(|state| state.received.extend_from_slice(bytes));
        for &byte in bytes {
            if !self.mute {
                self.byte(byte);
            }
        }
    }

    fn act(&mut self) {
        if !self.mute {
            self.pump();
        }
    }
}

impl Connection {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        self.line.with(f)
    }

    fn faults(&self) -> Faults {
        self.with(|state| state.faults.clone())
    }

    /// Sends what there is to send of a stream.
    fn pump(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        let window = self.with(|state| state.window);
        while stream.ends.len() < window {
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
        self.line.gone |= close;
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
                self.identify(&line);
            }
            _ => self.held.push(byte),
        }
    }

    fn identify(&mut self, line: &[u8]) {
        let faults = self.faults();
        if faults.silent {
            return;
        }
        if let Some(answer) = faults.stranger {
            return self.send(answer.as_bytes());
        }
        assert_eq!(Command::parse(line), Ok(Some(Command::Identify)));
        let identity = self.with(|state| {
            let identity = state.identity;
            state.identity.clock_hz += state.faults.clock_scatter;
            identity
        });
        let mut text = format!("{identity}\r\n");
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
                self.line.gone = self.faults().reboot_disconnects;
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
                let window = self.with(|state| state.window);
                self.reply(request, true, &format!("window={window}"));
            }
            Command::StreamOff => {
                // Nothing more is recorded in a test that has said this.
                let (waiting, end) =
                    self.with(|state| (!state.packets.is_empty(), state.faults.end));
                match &self.stream {
                    None => self.reply(request, false, "no stream is going on"),
                    Some(_) if waiting => self.reply(request, true, "sending=1"),
                    Some(_) => self.reply(request, true, &format!("sending=0{end}")),
                }
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
            if !self.line.is_open() {
                return;
            }
            self.data_frames += 1;
            self.with(|state| state.sent += 1);
            if faults.close_at == Some(self.data_frames) {
                self.line.gone = true;
            }
            if faults.hang_at.is_some_and(|at| at <= self.data_frames) || self.line.gone {
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
        let pieces = self.faults().fragments;
        // The host may have gone: that shows at the next read.
        let _ = self.line.send(bytes, pieces, Duration::from_micros(200));
    }
}
