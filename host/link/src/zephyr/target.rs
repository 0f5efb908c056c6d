//! The conversation with a target that runs Zephyr's instrumentation subsystem.

mod dumping;

use std::time::{Duration, Instant};

use kymo_event::Addr;

use super::Status;
use super::replies::{self, Found};
use super::sorter::{DUMP_BYTES, Sorter};
use crate::target::Console;
use crate::transport::{self, Transport};
use crate::{Address, Cancel, LinkError, ReplyError, Sets, Timeouts};

/// How often a long wait looks at its [`Cancel`] flag.
const POLL: Duration = Duration::from_millis(50);

/// How many bytes are read at once.
const READ_BYTES: usize = 64 * 1024;

/// How often a command is given before its target is taken for dead.
const ATTEMPTS: u32 = 4;

/// How often it is asked again what could mean several things.
const ROUNDS: u32 = 8;

/// How often it is asked before a digit in front of a reply is taken for a part of it.
const SURE: u32 = 3;

/// How long a target is left in peace after it has said that it starts: by then it takes commands.
const START: Duration = Duration::from_millis(300);

/// Number of unasked dumps after which a question counts as not answered: a target that sends dump
/// after dump would be waited for without end.
const MOST_UNASKED: usize = 16;

/// What newer firmware lets stand before each command, for a UART that it shares with a shell.
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
    /// The word for it, which is also the command.
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

/// How a reboot went, of which the target answers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebooted {
    /// Whether the target was heard to start. Without that it only answers again: it was built without
    /// a banner, or the command did not reach it.
    pub heard: bool,
}

/// A live target that runs Zephyr's instrumentation subsystem.
pub struct Target {
    address: Address,
    timeouts: Timeouts,
    transport: Box<dyn Transport>,
    sorter: Sorter,
    console: Option<Console>,
    /// What stands before each command.
    prefix: &'static str,
    buffer: Vec<u8>,
    /// When the last bytes came.
    heard: Instant,
}

impl Target {
    /// The target at the other end of `transport`, which has shown that it understands text.
    pub(crate) fn over(
        transport: Box<dyn Transport>,
        address: Address,
        timeouts: Timeouts,
        console: Option<Console>,
    ) -> Self {
        Self {
            address,
            timeouts,
            transport,
            sorter: Sorter::default(),
            console,
            prefix: "",
            buffer: vec![0; READ_BYTES],
            heard: Instant::now(),
        }
    }

    /// Where the target is reached.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Takes what came before it was known what it is; whether there was a dump in it.
    pub(crate) fn heard_before(&mut self, bytes: &[u8]) -> bool {
        for bytes in bytes.chunks(READ_BYTES) {
            self.sorter.push(bytes);
            let surplus = self.sorter.take_surplus();
            self.print(&surplus);
        }
        self.print_text();
        self.sorter.has_dumps()
    }

    /// Whether it answers, be it behind the prefix of newer firmware. Of a target that has not shown yet
    /// that it understands anything, `hidden`, only that is asked first.
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
                // Somebody listens who does not know the prefix, or knows nothing without.
                Some(false) => {}
                // A target that does not answer the guarded question is not asked the plain one.
                None if hidden => return Ok(false),
                None => {}
            }
        }
        Ok(false)
    }

    /// Finds out whether the target answers to commands as they are, or behind the prefix of newer
    /// firmware: for who knows what it is. [`recognise`](crate::Target::recognise) has done so.
    ///
    /// # Errors
    /// [`LinkError::NoAnswer`], or the connection's.
    pub fn greet(&mut self) -> Result<(), LinkError> {
        let started = Instant::now();
        if self.hello(false)? {
            return Ok(());
        }
        Err(LinkError::NoAnswer {
            address: self.address.clone(),
            waited: started.elapsed(),
        })
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], or the connection's.
    pub fn ping(&mut self) -> Result<(), LinkError> {
        self.ask("ping", replies::pong)
    }

    /// Asks what the firmware was built to do.
    ///
    /// The program can print what looks like the reply, or half a line with a digit at its end before it.
    /// So what came is compared with what comes the next time, until only one status is in both, or two
    /// of which the shorter is the end of the longer: no program prints just that digit every time.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], [`LinkError::Protocol`] if it stays ambiguous, or the connection's.
    pub fn status(&mut self) -> Result<Status, LinkError> {
        let mut possible: Vec<Status> = Vec::new();
        for round in 0..ROUNDS {
            // The first look only waits until there is something; a `pong` then says that nothing more
            // will come.
            self.ask_and_look("status", |text| replies::statuses(text).into_iter().next())?;
            self.send("ping")?;
            let deadline = Instant::now() + self.timeouts.reply;
            let found = self.look(deadline, |text| {
                let ((), pong) = replies::pong(text)?;
                let before = text.get(..pong.start)?;
                Some((replies::statuses(before), pong))
            })?;
            let Some((found, pong)) = found else { continue };
            let last = found.last().map_or(0, |(_, range)| range.end);
            // Of those that end together, the longest is what stands on the line.
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

    /// Asks for trigger and stopper. Addresses are as the target has them: those of Thumb code are odd.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`], or the connection's.
    pub fn sets(&mut self) -> Result<Sets, LinkError> {
        self.ask("listsets", replies::sets)
    }

    /// Sets trigger or stopper, and reads it back. `None` disables it.
    ///
    /// The target has it at once, and over a reboot if it has memory for that ([`Status::retained`]).
    ///
    /// # Errors
    /// [`LinkError::NotSet`] if the target has another address in the end, [`LinkError::TimedOut`], or
    /// the connection's.
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
            // The target reads a signed number and stops at the largest: then the same bits have to be
            // said as a negative one.
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

    /// Makes the target start again and waits until it answers.
    ///
    /// # Errors
    /// [`LinkError::TimedOut`] if it does not come back, [`LinkError::Cancelled`], or the connection's.
    pub fn reboot(&mut self, cancel: &Cancel) -> Result<Rebooted, LinkError> {
        let started = Instant::now();
        let deadline = started + self.timeouts.reboot;
        self.print_text();
        self.send("reboot")?;
        let mut heard = false;
        // While it starts it should not be spoken to: of a command that comes while its UART is being
        // switched on, only the end would arrive, and an empty line makes it start again.
        let mut next_ping = Instant::now() + self.timeouts.reply;
        loop {
            match self.receive(deadline.min(next_ping)) {
                Ok(()) => self.wait_for_dump(&mut |_| {}, cancel),
                // A serial port over USB goes away while its board reboots.
                Err(error) if error.is_connection() && Instant::now() < deadline => {
                    heard = true;
                    std::thread::sleep(POLL);
                    self.reopen();
                }
                Err(error) => return Err(error),
            }
            if cancel.is_cancelled() {
                return Err(LinkError::Cancelled);
            }
            let now = Instant::now();
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
                // It was damaged on the way, or a `ping` was.
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
                    waited: started.elapsed(),
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

    /// Listens for `duration`, or until cancelled, and does nothing else: for console text, and for
    /// dumps that come unasked.
    ///
    /// # Errors
    /// The connection's.
    pub fn listen(&mut self, duration: Duration, cancel: &Cancel) -> Result<(), LinkError> {
        let deadline = Instant::now() + duration;
        while Instant::now() < deadline && !cancel.is_cancelled() {
            self.receive(deadline)?;
            self.print_text();
        }
        Ok(())
    }
}

/// Questions and answers.
impl Target {
    /// Asks until the answer comes.
    fn ask<T>(
        &mut self,
        command: &str,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<T, LinkError> {
        let (answer, range) = self.ask_and_look(command, find)?;
        self.take_reply(range);
        Ok(answer)
    }

    /// Asks until the answer comes, and leaves it in the text.
    fn ask_and_look<T>(
        &mut self,
        command: &str,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Found<T>, LinkError> {
        let started = Instant::now();
        for _ in 0..ATTEMPTS {
            // What came before belongs to nobody's question.
            self.print_text();
            self.send(command)?;
            let deadline = Instant::now() + self.timeouts.reply;
            let answer = self.look(deadline, |text| {
                if let Some((answer, range)) = find(text) {
                    return Some((Some(answer), range));
                }
                let (_, range) = replies::invalid(text)?;
                Some((None, range))
            })?;
            match answer {
                Some((Some(answer), range)) => return Ok((answer, range)),
                // It was damaged on the way: once more.
                Some((None, range)) => self.take_reply(range),
                None => {}
            }
        }
        Err(LinkError::TimedOut {
            command: command.to_owned(),
            waited: started.elapsed(),
        })
    }

    /// Waits for what `find` finds, and takes it out of the text.
    fn wait<T>(
        &mut self,
        longest: Duration,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Option<T>, LinkError> {
        let found = self.look(Instant::now() + longest, find)?;
        Ok(found.map(|(found, range)| {
            self.take_reply(range);
            found
        }))
    }

    /// Waits for what `find` finds. While a dump comes that nobody asked for, the target can't answer.
    fn look<T>(
        &mut self,
        mut deadline: Instant,
        find: impl Fn(&[u8]) -> Option<Found<T>>,
    ) -> Result<Option<Found<T>>, LinkError> {
        let mut dumps = self.sorter.dumps();
        let most = dumps + MOST_UNASKED;
        loop {
            if let Some(found) = find(self.sorter.text()) {
                return Ok(Some(found));
            }
            if self.sorter.coming().is_some() {
                self.wait_for_dump(&mut |_| {}, &Cancel::new());
            }
            if self.sorter.dumps() > dumps && dumps < most {
                dumps = self.sorter.dumps();
                deadline = Instant::now() + self.timeouts.reply;
                continue;
            }
            if Instant::now() >= deadline {
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

    /// Waits a little, not beyond `deadline`, for bytes and sorts them.
    ///
    /// # Errors
    /// The connection's, and [`LinkError::TooMuch`].
    fn receive(&mut self, deadline: Instant) -> Result<(), LinkError> {
        let left = deadline.saturating_duration_since(Instant::now());
        let result = self.transport.read(&mut self.buffer, left.min(POLL));
        let length = result.map_err(|source| self.disconnected(source))?;
        if length > 0 {
            self.sorter
                .push(self.buffer.get(..length).unwrap_or_default());
            let surplus = self.sorter.take_surplus();
            self.print(&surplus);
            // Behind the work on them: on a busy host that is no silence of the target.
            self.heard = Instant::now();
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

    /// Opens the transport again; whether that worked shows at the next use.
    fn reopen(&mut self) {
        if let Ok(transport) = transport::open(&self.address, self.timeouts.connect) {
            self.transport = transport;
        }
    }

    /// Takes a reply out of the text; what came before it is the console's.
    fn take_reply(&mut self, range: std::ops::Range<usize>) {
        let text = self.sorter.take_reply(range);
        self.print(&text);
    }

    /// Gives all text that has come to the console.
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
    /// What has come and was not given on yet is the console's.
    fn drop(&mut self) {
        self.print_text();
    }
}
