//! A live target that runs Zephyr's instrumentation subsystem.

mod dumping;

use std::sync::Arc;
use std::time::{Duration, Instant};

use kymo_event::Addr;

use super::Status;
use super::replies::{self, Found};
use super::sorter::{DUMP_BYTES, Sorter};
use crate::target::Console;
use crate::transport::{self, Transport};
use crate::{Address, Cancel, Clock, LinkError, ReplyError, Sets, Timeouts};

/// How often a long wait checks its [`Cancel`] flag.
const POLL: Duration = Duration::from_millis(50);

/// Bytes per read.
const READ_BYTES: usize = 64 * 1024;

/// How often a command is sent before the target is considered dead.
const ATTEMPTS: u32 = 4;

/// How often a command with an ambiguous answer is repeated.
const ROUNDS: u32 = 8;

/// How many answers are needed before a digit in front of a reply counts as a part of it.
const SURE: u32 = 3;

/// How long to leave a target alone after it has reported its start: by then it accepts commands.
const START: Duration = Duration::from_millis(300);

/// Number of unsolicited dumps after which a command counts as unanswered: the host would wait forever for a target
/// that sends dump after dump.
const MOST_UNREQUESTED: usize = 16;

/// Prefix that newer firmware accepts before each command, for a UART that it shares with a shell.
const PREFIX: &str = "instr_";

/// Which of the two functions is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The function whose entry turns recording on.
    Trigger,
    /// The function whose exit turns recording off.
    Stopper,
}

impl Set {
    /// The name, which is also the command.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trigger => "trigger",
            Self::Stopper => "stopper",
        }
    }

    /// Its address among both.
    const fn of(self, sets: Sets) -> Option<Addr> {
        match self {
            Self::Trigger => sets.trigger,
            Self::Stopper => sets.stopper,
        }
    }
}

/// Result of a reboot, to which the target does not reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebooted {
    /// Whether the target reported its start. Otherwise it only answers again: it was built without a banner, or the
    /// command did not reach it.
    pub heard: bool,
}

/// A live target that runs Zephyr's instrumentation subsystem.
pub struct Target {
    address: Address,
    timeouts: Timeouts,
    pub(crate) clock: Arc<dyn Clock>,
    transport: Box<dyn Transport>,
    sorter: Sorter,
    console: Option<Console>,
    /// Prefix of each command.
    prefix: &'static str,
    buffer: Vec<u8>,
    /// When the last bytes arrived.
    heard: Instant,
}

impl Target {
    /// Creates a target at the other end of `transport`, which has shown that it understands text.
    pub(crate) fn over(
        transport: Box<dyn Transport>,
        address: Address,
        timeouts: Timeouts,
        console: Option<Console>,
    ) -> Self {
        let clock = transport.clock();
        Self {
            address,
            timeouts,
            transport,
            sorter: Sorter::default(),
            console,
            prefix: "",
            buffer: vec![0; READ_BYTES],
            heard: clock.now(),
            clock,
        }
    }

    /// The target's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Processes bytes received before the protocol was known; returns whether there was a dump in them.
    pub(crate) fn heard_before(&mut self, bytes: &[u8]) -> bool {
        for bytes in bytes.chunks(READ_BYTES) {
            self.sorter.push(bytes);
            let surplus = self.sorter.take_surplus();
            self.print(&surplus);
        }
        self.print_text();
        self.sorter.has_dumps()
    }

    /// Checks whether the target answers, with or without the prefix of newer firmware. `hidden`: the target has not
    /// answered any command yet; then the prefixed command goes first, and the plain one only after an answer.
    pub(crate) fn hello(&mut self, hidden: bool) -> Result<bool, LinkError> {
        let prefixes = if hidden {
            [PREFIX, "", PREFIX]
        } else {
            ["", PREFIX, ""]
        };
        for prefix in prefixes {
            self.prefix = prefix;
            self.send("ping")?;
            let answer = self.wait(self.timeouts.reply, |text| {
                let pong = replies::pong(text).map(|(_, range)| (true, range));
                pong.or_else(|| {
                    let (understood, range) = replies::invalid(text)?;
                    understood.ends_with(b"ping").then_some((false, range))
                })
            })?;
            match answer {
                Some(true) => return Ok(true),
                // Another listener, or a target that accepts commands only in the other form.
                Some(false) => {}
                // A target that does not answer the prefixed command does not get the plain one.
                None if hidden => return Ok(false),
                None => {}
            }
        }
        Ok(false)
    }

    /// Detects whether the target accepts commands plain or with the prefix of newer firmware: for callers that know
    /// the protocol. [`recognise`](crate::Target::recognise) does the same.
    ///
    /// # Errors
    /// [`LinkError::NoAnswer`], or the connection's.
    pub fn greet(&mut self) -> Result<(), LinkError> {
        let started = self.clock.now();
        if self.hello(false)? {
            return Ok(());
        }
        Err(LinkError::NoAnswer {
            address: self.address.clone(),
            waited: self.clock.since(started),
        })
    }

    /// Checks that the target answers.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], or the connection's.
    pub fn ping(&mut self) -> Result<(), LinkError> {
        self.ask("ping", replies::pong)
    }

    /// Requests the features of the firmware.
    ///
    /// The program can print what looks like the reply, or half a line that ends with a digit before it. The answers to
    /// repeated commands are therefore compared until they have only one status in common, or two of which the shorter
    /// is the end of the longer: no program prints just that digit every time.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], [`LinkError::Protocol`] if it stays ambiguous, or the connection's.
    pub fn status(&mut self) -> Result<Status, LinkError> {
        let mut possible: Vec<Status> = Vec::new();
        for round in 0..ROUNDS {
            // This only waits until there is an answer; after a `pong` nothing more of it will arrive.
            self.ask_and_look("status", |text| replies::statuses(text).into_iter().next())?;
            self.send("ping")?;
            let deadline = self.clock.now() + self.timeouts.reply;
            let found = self.look(deadline, |text| {
                let ((), pong) = replies::pong(text)?;
                let before = text.get(..pong.start)?;
                Some((replies::statuses(before), pong))
            })?;
            let Some((found, pong)) = found else { continue };
            let last = found.last().map_or(0, |(_, range)| range.end);
            // Of those with the same end, the longest is the one on the line.
            if let Some((_, reply)) = found.iter().find(|(_, range)| range.end == last) {
                self.take_reply(reply.clone());
                self.take_reply(pong.start - reply.end..pong.end - reply.end);
            }
            let now = found.into_iter().map(|(status, _)| status);
            possible = if possible.is_empty() {
                now.collect()
            } else {
                now.filter(|status| possible.contains(status)).collect()
            };
            possible.sort_unstable();
            possible.dedup();
            match *possible.as_slice() {
                [one] => return Ok(one),
                [one, other] if round + 1 >= SURE && one.is_end_of(other) => return Ok(other),
                [one, other] if round + 1 >= SURE && other.is_end_of(one) => return Ok(one),
                _ => {}
            }
        }
        Err(LinkError::Protocol {
            command: "status".to_owned(),
            source: ReplyError {
                expected: "two or three digits on a line, each 0 or 1".to_owned(),
                found: format!("{possible:?}"),
            },
        })
    }

    /// Requests trigger and stopper. Addresses are the target's: those of Thumb code are odd.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], or the connection's.
    pub fn sets(&mut self) -> Result<Sets, LinkError> {
        self.ask("listsets", replies::sets)
    }

    /// Sets trigger or stopper, and reads it back. `None` disables it.
    ///
    /// It takes effect at once, and survives a reboot if the target has memory for that ([`Status::retained`]).
    ///
    /// # Errors
    /// [`LinkError::NotSet`] if the target ends up with another address, [`LinkError::TimedOut`], or the connection's.
    pub fn set(&mut self, set: Set, address: Option<Addr>) -> Result<(), LinkError> {
        let wanted = address.map_or(0, |address| address.0);
        let mut digits = format!("0x{wanted:x}");
        let mut found = None;
        for _ in 0..ATTEMPTS {
            self.send(&format!("{} {digits}", set.name()))?;
            found = set.of(self.sets()?);
            if found == address {
                return Ok(());
            }
            // The target parses a signed number and saturates: the same bits then have to be sent as a negative number.
            digits = match (found, wanted) {
                (Some(Addr(0x7FFF_FFFF)), 0x8000_0000..=0xFFFF_FFFF) => {
                    format!("-0x{:x}", (1 << 32) - wanted)
                }
                (Some(Addr(0x7FFF_FFFF_FFFF_FFFF)), 0x8000_0000_0000_0000..) => {
                    format!("-0x{:x}", wanted.wrapping_neg())
                }
                _ => digits,
            };
        }
        Err(LinkError::NotSet {
            what: set.name(),
            wanted: address,
            found,
        })
    }

    /// Restarts the target and waits until it answers.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`] if it does not come back, [`LinkError::Cancelled`], or the connection's.
    pub fn reboot(&mut self, cancel: &Cancel) -> Result<Rebooted, LinkError> {
        let started = self.clock.now();
        let deadline = started + self.timeouts.reboot;
        self.print_text();
        self.send("reboot")?;
        let mut heard = false;
        // The host must not send while it starts: only the end of a command would arrive while the UART is being
        // switched on, and an empty line restarts the target.
        let mut next_ping = self.clock.now() + self.timeouts.reply;
        loop {
            match self.receive(deadline.min(next_ping)) {
                Ok(()) => self.wait_for_dump(&mut |_| {}, cancel),
                // A serial port over USB disappears while its board reboots.
                Err(error) if error.is_connection() && self.clock.now() < deadline => {
                    heard = true;
                    self.clock.sleep(POLL);
                    self.reopen();
                }
                Err(error) => return Err(error),
            }
            if cancel.is_cancelled() {
                return Err(LinkError::Cancelled);
            }
            let now = self.clock.now();
            let text = self.sorter.text();
            if !heard && replies::booting(text) {
                heard = true;
                next_ping = now + START;
            }
            if let Some(((), range)) = replies::pong(text) {
                self.take_reply(range);
                return Ok(Rebooted { heard });
            }
            if let Some((understood, range)) = replies::invalid(text) {
                // The command was damaged on the line, or a `ping` was.
                self.take_reply(range);
                if !understood.ends_with(b"ping") && !heard {
                    self.send("reboot")?;
                    next_ping = now + self.timeouts.reply;
                }
            }
            if now >= deadline {
                self.print_text();
                return Err(LinkError::TimedOut {
                    command: "reboot".to_owned(),
                    waited: self.clock.since(started),
                });
            }
            if now >= next_ping {
                next_ping = now + self.timeouts.identify;
                match self.send("ping") {
                    Err(error) if !error.is_connection() => return Err(error),
                    _ => {}
                }
            }
        }
    }

    /// Receives console text and unsolicited dumps for `duration`, or until cancelled, without sending anything.
    ///
    /// # Errors
    /// The connection's.
    pub fn listen(&mut self, duration: Duration, cancel: &Cancel) -> Result<(), LinkError> {
        let deadline = self.clock.now() + duration;
        while self.clock.now() < deadline && !cancel.is_cancelled() {
            self.receive(deadline)?;
            self.print_text();
        }
        Ok(())
    }
}

/// Commands and replies.
impl Target {
    /// Sends a command until the answer arrives.
    fn ask<T>(
        &mut self,
        command: &str,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<T, LinkError> {
        let (answer, range) = self.ask_and_look(command, find)?;
        self.take_reply(range);
        Ok(answer)
    }

    /// Sends a command until the answer arrives, and leaves the answer in the text.
    fn ask_and_look<T>(
        &mut self,
        command: &str,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Found<T>, LinkError> {
        let started = self.clock.now();
        for _ in 0..ATTEMPTS {
            // Text received before is not an answer to this command.
            self.print_text();
            self.send(command)?;
            let deadline = self.clock.now() + self.timeouts.reply;
            let answer = self.look(deadline, |text| {
                if let Some((answer, range)) = find(text) {
                    return Some((Some(answer), range));
                }
                let (_, range) = replies::invalid(text)?;
                Some((None, range))
            })?;
            match answer {
                Some((Some(answer), range)) => return Ok((answer, range)),
                // The command was damaged on the line: repeat it.
                Some((None, range)) => self.take_reply(range),
                None => {}
            }
        }
        Err(LinkError::TimedOut {
            command: command.to_owned(),
            waited: self.clock.since(started),
        })
    }

    /// Waits until `find` finds something, and removes it from the text.
    fn wait<T>(
        &mut self,
        longest: Duration,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Option<T>, LinkError> {
        let found = self.look(self.clock.now() + longest, find)?;
        Ok(found.map(|(found, range)| {
            self.take_reply(range);
            found
        }))
    }

    /// Waits until `find` finds something. The target can't answer while it sends an unsolicited dump.
    fn look<T>(
        &mut self,
        mut deadline: Instant,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Option<Found<T>>, LinkError> {
        let mut dumps = self.sorter.dumps();
        let most = dumps + MOST_UNREQUESTED;
        loop {
            if let Some(found) = find(self.sorter.text()) {
                return Ok(Some(found));
            }
            if self.sorter.coming().is_some() {
                self.wait_for_dump(&mut |_| {}, &Cancel::new());
            }
            if self.sorter.dumps() > dumps && dumps < most {
                dumps = self.sorter.dumps();
                deadline = self.clock.now() + self.timeouts.reply;
                continue;
            }
            if self.clock.now() >= deadline {
                return Ok(None);
            }
            self.receive(deadline)?;
        }
    }

    /// Sends a command as a line of its own.
    fn send(&mut self, command: &str) -> Result<(), LinkError> {
        let line = format!("{}{command}\r\n", self.prefix);
        self.transport
            .write(line.as_bytes(), self.timeouts.reply)
            .map_err(|source| self.disconnected(source))
    }

    /// Waits briefly, not beyond `deadline`, for bytes and sorts them.
    ///
    /// # Errors
    /// The connection's, and [`LinkError::TooMuch`].
    fn receive(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(self.clock.now());
        let result = self.transport.read(&mut self.buffer, left.min(POLL));
        let length = result.map_err(|source| self.disconnected(source))?;
        if length > 0 {
            self.sorter
                .push(self.buffer.get(..length).unwrap_or_default());
            let surplus = self.sorter.take_surplus();
            self.print(&surplus);
            // After processing: on a busy host the time that takes is not the target's silence.
            self.heard = self.clock.now();
        }
        if self.sorter.is_full() {
            return Err(LinkError::TooMuch {
                limit: DUMP_BYTES as u64,
            });
        }
        Ok(())
    }

    fn disconnected(&self, source: std::io::Error) -> LinkError {
        LinkError::Disconnected {
            address: self.address.clone(),
            source,
        }
    }

    /// Opens the transport again; the next use shows whether that succeeded.
    fn reopen(&mut self) {
        if let Ok(transport) = transport::open(&self.address, self.timeouts.connect) {
            self.transport = transport;
        }
    }

    /// Removes a reply from the text and prints the text before it.
    fn take_reply(&mut self, range: std::ops::Range<usize>) {
        let text = self.sorter.take_reply(range);
        self.print(&text);
    }

    /// Passes all received text to the console.
    fn print_text(&mut self) {
        let text = self.sorter.take_text();
        self.print(&text);
    }

    fn print(&mut self, text: &[u8]) {
        if let Some(console) = self.console.as_mut().filter(|_| !text.is_empty()) {
            console(text);
        }
    }
}

impl Drop for Target {
    /// Passes the remaining text to the console.
    fn drop(&mut self) {
        self.print_text();
    }
}
