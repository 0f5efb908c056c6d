//! A live Kymo target: identification, commands, dumps and streams.

mod clock;
mod fetch;
mod recognise;
mod stream;
mod text;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kymo_wire::link::frame::MAX_WIRE;
use kymo_wire::link::{Command, Frame, Identity, is_understood};

use crate::splitter::{Piece, Splitter};
use crate::transport::{self, Transport};
use crate::zephyr;
use crate::{Address, Cancel, Clock, Dump, LinkError, Progress, ReplyError, Sets, Status};
pub use clock::ClockReading;
pub use recognise::Device;
use stream::Receiving;
pub use stream::{Next, Reported, Stream};
pub(crate) use text::Console;
use text::TextSink;

/// How often a long wait checks its [`Cancel`] flag.
const POLL: Duration = Duration::from_millis(50);

/// Limit for the bytes kept of an unidentified target, about a minute of a fast UART.
const RAW_BYTES: usize = 16 * 1024 * 1024;

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// Time-outs for each kind of wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a TCP connection to be accepted.
    pub connect: Duration,
    /// For the answer to one `identify`, before it is sent again. An unidentified target is given four times as long,
    /// but gets a second `identify` only if the received text can only be a Kymo target's.
    pub identify: Duration,
    /// For the answer to one command; a command is sent several times.
    pub reply: Duration,
    /// For the next frame of a dump, before missing pieces are requested again.
    pub stall: Duration,
    /// For any frame of a dump, before the target is considered dead.
    pub silence: Duration,
    /// For a target to answer again after a reboot.
    pub reboot: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            identify: Duration::from_millis(750),
            reply: Duration::from_secs(1),
            stall: Duration::from_secs(1),
            silence: Duration::from_secs(8),
            reboot: Duration::from_secs(15),
        }
    }
}

impl Timeouts {
    /// Multiplies the time-outs after which a target is given up by `factor`: for a slow or busy target or host.
    /// Missing pieces are requested after four times as long at most, before the target forgets them
    /// ([`DUMP_TIMEOUT_MS`](kymo_wire::link::DUMP_TIMEOUT_MS)).
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        let longer = |time: Duration| time.saturating_mul(factor);
        Self {
            connect: longer(self.connect),
            identify: longer(self.identify),
            reply: longer(self.reply),
            stall: self.stall.saturating_mul(factor.min(4)),
            silence: longer(self.silence),
            reboot: longer(self.reboot),
        }
    }
}

/// How often a command is sent before the target is considered dead.
const ATTEMPTS: u32 = 4;

/// A live target.
pub struct Target {
    address: Address,
    timeouts: Timeouts,
    clock: Arc<dyn Clock>,
    transport: Box<dyn Transport>,
    /// Splits received bytes into frames and text.
    splitter: Splitter,
    /// Received frames that have not been processed yet.
    inbox: VecDeque<Incoming>,
    /// The stream that is being received; its pieces do not enter the inbox.
    receiving: Option<Receiving>,
    text: TextSink,
    /// Frames that arrived damaged, since the target was opened.
    damaged: u64,
    identity: Option<Identity>,
    /// Number of the last command.
    request: u8,
    /// The target's clock value when it began a dump, and when the host received it.
    began: Option<(u64, Instant)>,
    buffer: Vec<u8>,
    /// All received bytes, while it is unknown whether they are frames at all.
    raw: Option<Vec<u8>>,
}

/// What is known of the target that gets an `identify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing: a second question might do harm.
    Unknown,
    /// A target that was known before the command to reboot, or a guest with its rings in shared memory: it receives
    /// nothing until it is back, and rings are reset when a guest starts, so that a question in them is lost.
    Rebooting,
}

/// A received frame.
#[derive(Debug)]
enum Incoming {
    Reply {
        request: u8,
        ok: bool,
        text: String,
    },
    Data {
        request: u8,
        number: u32,
        bytes: Vec<u8>,
    },
    End {
        request: u8,
        frames: u32,
        bytes: u32,
        crc: u32,
    },
}

impl Target {
    /// Opens the connection to a target. Nothing is sent yet.
    ///
    /// # Errors
    /// Those of opening the port or connection.
    pub fn open(address: &Address, timeouts: Timeouts) -> Result<Self, LinkError> {
        let transport = transport::open(address, timeouts.connect)?;
        Ok(Self::over(transport, address.clone(), timeouts))
    }

    /// Creates a target that is reached through `transport`. `address` is its name in messages, and is opened again if
    /// the transport fails while the target reboots.
    pub fn over(transport: Box<dyn Transport>, address: Address, timeouts: Timeouts) -> Self {
        Self {
            address,
            timeouts,
            clock: transport.clock(),
            transport,
            splitter: Splitter::new(),
            inbox: VecDeque::new(),
            receiving: None,
            text: TextSink::default(),
            damaged: 0,
            identity: None,
            request: 0,
            began: None,
            buffer: vec![0; READ_BYTES],
            raw: None,
        }
    }

    /// Passes the text that the traced program writes to the line to `console` as it arrives. Without a console it is
    /// dropped.
    pub fn set_console(&mut self, console: impl FnMut(&[u8]) + Send + 'static) {
        self.text.console = Some(Box::new(console));
    }

    /// Closes the connection or port; later requests fail.
    ///
    /// The old connection must be closed before a new one is opened: a serial port can be opened only once (and a board
    /// that is unplugged and plugged in again gets another name while the old port is open), and many TCP servers,
    /// QEMU's among them, serve one connection at a time.
    pub fn hang_up(&mut self) {
        self.transport = Box::new(transport::Closed);
    }

    /// The target's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How many frames have arrived damaged.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Requests the target's identity, in text. The question is repeated only after a damaged identity, or after a Kymo
    /// target's error message about a damaged question: another listener receives one line.
    ///
    /// # Errors
    /// [`LinkError::NoAnswer`], [`LinkError::NotKymo`], [`LinkError::Zephyr`] or
    /// [`LinkError::Version`]; or the connection's.
    pub fn identify(&mut self) -> Result<Identity, LinkError> {
        let waited = self.timeouts.identify * ATTEMPTS;
        let requested = match self.address {
            Address::Memory { .. } => Known::Rebooting,
            _ => Known::Unknown,
        };
        self.identify_until(self.clock.now() + waited, requested, &Cancel::new())?
            .ok_or_else(|| {
                let heard = self.text.heard();
                let address = self.address.clone();
                if heard.is_empty() && self.damaged == 0 {
                    LinkError::NoAnswer { address, waited }
                } else {
                    LinkError::NotKymo { address, heard }
                }
            })
    }

    /// The target's identity; requests it if it is unknown.
    ///
    /// # Errors
    /// As [`identify`](Self::identify).
    pub fn identity(&mut self) -> Result<Identity, LinkError> {
        match self.identity {
            Some(identity) => Ok(identity),
            None => self.identify(),
        }
    }

    /// Sends a command that is answered by one reply, and returns the reply's text. The command is repeated when no
    /// answer arrives, so the target may carry it out twice.
    ///
    /// # Errors
    /// [`LinkError::Refused`] or [`LinkError::TimedOut`]; those of [`identify`](Self::identify) if
    /// the target has not been identified yet.
    pub fn command(&mut self, command: Command) -> Result<String, LinkError> {
        self.identity()?;
        let request = self.next_request();
        self.insist(request, command)
    }

    /// Sends a command until it is answered.
    fn insist(&mut self, request: u8, command: Command) -> Result<String, LinkError> {
        let started = self.clock.now();
        for _ in 0..ATTEMPTS {
            self.send(request, command)?;
            let deadline = self.clock.now() + self.timeouts.reply;
            if let Some(reply) = self.reply(request, command, deadline)? {
                return Ok(reply);
            }
        }
        Err(LinkError::TimedOut {
            command: command.to_string(),
            waited: self.clock.since(started),
        })
    }

    /// Requests the state of gate and buffer.
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`LinkError::Protocol`].
    pub fn status(&mut self) -> Result<Status, LinkError> {
        let command = Command::Status;
        let text = self.command(command)?;
        text.parse().map_err(|source| protocol(command, source))
    }

    /// Requests trigger and stopper.
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`LinkError::Protocol`].
    pub fn sets(&mut self) -> Result<Sets, LinkError> {
        let command = Command::ListSets;
        let text = self.command(command)?;
        text.parse().map_err(|source| protocol(command, source))
    }

    /// Restarts the target and waits until it answers; returns its new identity.
    ///
    /// A target does not reply to a reboot, so a command that was lost completely looks like one that was carried out
    /// at once. A command that arrived damaged is detected, and repeated.
    ///
    /// # Errors
    /// [`LinkError::Refused`], [`LinkError::TimedOut`] if it does not come back,
    /// [`LinkError::Cancelled`]; or those of [`command`](Self::command).
    pub fn reboot(&mut self, cancel: &Cancel) -> Result<Identity, LinkError> {
        let started = self.clock.now();
        let deadline = started + self.timeouts.reboot;
        let before = self.status()?.damaged;
        loop {
            let request = self.next_request();
            self.send(request, Command::Reboot)?;
            let refusal_by = self.clock.now() + self.timeouts.reply / 4;
            match self.reply(request, Command::Reboot, refusal_by) {
                Err(error) if !error.is_connection() => return Err(error),
                _ => {}
            }
            self.identity = None;
            let identity = loop {
                match self.identify_until(deadline, Known::Rebooting, cancel) {
                    Ok(Some(identity)) => break identity,
                    Ok(None) => {
                        return Err(LinkError::TimedOut {
                            command: Command::Reboot.to_string(),
                            waited: self.clock.since(started),
                        });
                    }
                    Err(error) if error.is_connection() && self.clock.now() < deadline => {
                        if cancel.is_cancelled() {
                            return Err(LinkError::Cancelled);
                        }
                        self.clock.sleep(POLL);
                        self.reopen();
                    }
                    Err(error) => return Err(error),
                }
            };
            if self.status()?.damaged <= before {
                return Ok(identity);
            }
        }
    }

    /// Fetches the target's whole recording. `progress` is called after every piece.
    ///
    /// # Errors
    /// Only when nothing arrived; a transfer that breaks off later returns what arrived, and [`Dump::ended`] gives the
    /// reason.
    pub fn dump_trace(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Dump, LinkError> {
        self.dump(Command::DumpTrace, progress, cancel)
    }

    /// Fetches the target's profile table ([`kymo_wire::profile`]).
    ///
    /// # Errors
    /// As [`dump_trace`](Self::dump_trace).
    pub fn dump_profile(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Dump, LinkError> {
        self.dump(Command::DumpProfile, progress, cancel)
    }

    /// Receives console text for `duration`, or until cancelled, without sending anything.
    ///
    /// # Errors
    /// The connection's.
    pub fn listen(&mut self, duration: Duration, cancel: &Cancel) -> Result<(), LinkError> {
        let deadline = self.clock.now() + duration;
        while self.clock.now() < deadline && !cancel.is_cancelled() {
            self.receive(deadline)?;
            self.inbox.clear();
        }
        Ok(())
    }
}

/// Sending and receiving.
impl Target {
    /// The number of the next command.
    fn next_request(&mut self) -> u8 {
        self.request = self.request.wrapping_add(1);
        self.request
    }

    /// Sends a command as a frame.
    fn send(&mut self, request: u8, command: Command) -> Result<(), LinkError> {
        let text = command.to_string();
        let frame = Frame::Command {
            request,
            text: text.as_bytes(),
        };
        let mut wire = [0; MAX_WIRE];
        let length = frame.encode(&mut wire).unwrap_or(0);
        self.write(wire.get(..length).unwrap_or(&[]))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        self.transport
            .write(bytes, self.timeouts.reply)
            .map_err(|source| self.disconnected(source))
    }

    fn disconnected(&self, source: io::Error) -> LinkError {
        LinkError::Disconnected {
            address: self.address.clone(),
            source,
        }
    }

    /// Waits for the reply to `request`; `None` if it does not arrive in time.
    fn reply(
        &mut self,
        request: u8,
        command: Command,
        deadline: Instant,
    ) -> Result<Option<String>, LinkError> {
        loop {
            while let Some(incoming) = self.inbox.pop_front() {
                match incoming {
                    Incoming::Reply {
                        request: of,
                        ok,
                        text,
                    } if of == request => {
                        return if ok {
                            Ok(Some(text))
                        } else {
                            Err(refused(command, text))
                        };
                    }
                    // A late answer to an earlier command.
                    _ => {}
                }
            }
            if self.clock.now() >= deadline {
                self.give_up_frame();
                return Ok(None);
            }
            self.receive(deadline)?;
        }
    }

    /// Waits briefly, not beyond `deadline`, for bytes and splits them into `inbox` and console text.
    fn receive(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(self.clock.now());
        let result = self.transport.read(&mut self.buffer, left.min(POLL));
        let length = result.map_err(|source| self.disconnected(source))?;
        let bytes = self.buffer.get(..length).unwrap_or(&[]);
        if let Some(raw) = self.raw.as_mut().filter(|raw| raw.len() < RAW_BYTES) {
            raw.extend_from_slice(bytes);
        }
        let (inbox, text, damaged) = (&mut self.inbox, &mut self.text, &mut self.damaged);
        let mut sort = |piece: Piece<'_>| sort(piece, inbox, text, damaged);
        if bytes.is_empty() {
            self.splitter.flush(&mut sort);
        } else {
            self.splitter.push(bytes, &mut sort);
        }
        if let Some(receiving) = &mut self.receiving {
            let arrived = std::mem::take(&mut self.inbox).into_iter();
            let now = self.clock.now();
            self.inbox = arrived
                .filter_map(|incoming| receiving.take(incoming, now))
                .collect();
        }
        Ok(())
    }

    /// Stops waiting for the rest of a frame.
    fn give_up_frame(&mut self) {
        let (inbox, text, damaged) = (&mut self.inbox, &mut self.text, &mut self.damaged);
        self.splitter
            .give_up_frame(&mut |piece| sort(piece, inbox, text, damaged));
    }

    /// Requests the target's identity until an answer arrives or `deadline` has passed.
    fn identify_until(
        &mut self,
        deadline: Instant,
        requested: Known,
        cancel: &Cancel,
    ) -> Result<Option<Identity>, LinkError> {
        self.text.expect_identity();
        let mut ask = true;
        let result = loop {
            if self.clock.now() >= deadline {
                break Ok(None);
            }
            if std::mem::take(&mut ask)
                && let Err(error) = self.write(b"identify\r")
            {
                break Err(error);
            }
            match self.hear_identity(
                deadline.min(self.clock.now() + self.timeouts.identify),
                cancel,
            ) {
                Ok(None) => ask = requested == Known::Rebooting || self.text.torn(),
                result => break result,
            }
        };
        self.text.expect_text();
        let Some(identity) = result? else {
            return Ok(None);
        };
        if !is_understood(identity.protocol, identity.layout.shape) {
            return Err(LinkError::Version {
                address: self.address.clone(),
                found: identity.protocol,
            });
        }
        self.identity = Some(identity);
        // Frames received before answer earlier requests, possibly another client's.
        self.inbox.clear();
        Ok(Some(identity))
    }

    /// Waits for the answer to one `identify`.
    fn hear_identity(
        &mut self,
        deadline: Instant,
        cancel: &Cancel,
    ) -> Result<Option<Identity>, LinkError> {
        loop {
            self.receive(deadline)?;
            // Frames answer earlier questions, and must not pile up.
            self.inbox.clear();
            if let Some(identity) = self.text.identity.take() {
                return Ok(Some(identity));
            }
            if self.text.zephyr() || self.raw.as_deref().is_some_and(zephyr::complains) {
                let address = self.address.clone();
                return Err(LinkError::Zephyr { address });
            }
            if cancel.is_cancelled() {
                return Err(LinkError::Cancelled);
            }
            if self.clock.now() >= deadline {
                self.give_up_frame();
                return Ok(self.text.identity.take());
            }
        }
    }

    /// Opens the transport again; the next use shows whether that succeeded.
    fn reopen(&mut self) {
        self.hang_up();
        if let Ok(transport) = transport::open(&self.address, self.timeouts.connect) {
            self.transport = transport;
            self.give_up_frame();
        }
    }
}

fn refused(command: Command, reason: String) -> LinkError {
    LinkError::Refused {
        command: command.to_string(),
        reason,
    }
}

fn protocol(command: Command, source: ReplyError) -> LinkError {
    LinkError::Protocol {
        command: command.to_string(),
        source,
    }
}

/// Passes a piece to the inbox, the text sink or the count of damaged frames.
fn sort(piece: Piece<'_>, inbox: &mut VecDeque<Incoming>, text: &mut TextSink, damaged: &mut u64) {
    match piece {
        Piece::Text(bytes) => text.take(bytes),
        Piece::Damaged(_) => *damaged += 1,
        Piece::Frame(Frame::Reply { request, ok, text }) => inbox.push_back(Incoming::Reply {
            request,
            ok,
            text: String::from_utf8_lossy(text).into_owned(),
        }),
        Piece::Frame(Frame::Data {
            request,
            number,
            bytes,
        }) => inbox.push_back(Incoming::Data {
            request,
            number,
            bytes: bytes.to_vec(),
        }),
        Piece::Frame(Frame::End {
            request,
            frames,
            bytes,
            crc,
        }) => inbox.push_back(Incoming::End {
            request,
            frames,
            bytes,
            crc,
        }),
        // The splitter never returns these: only hosts send them.
        Piece::Frame(Frame::Command { .. }) => {}
    }
}
