//! The target's side of the link: receives commands, sends replies and dumps.
//!
//! The receiving context only stores bytes into a ring ([`Link::receive`]). All work is done in [`Link::poll`], which
//! the program calls where it has time. It runs until there is nothing more to do, and checks for new commands between
//! any two frames that it sends, so a host can stop a dump at any time.
//!
//! During a dump the buffers are frozen ([`Control::freeze`]); a stream is sent while recording continues
//! ([`Control::waiting`]). Nothing is copied: a piece is located by its number at each request. [`kymo_wire::link`]
//! describes the protocol.

mod control;
mod dump;
mod receive;
mod ring;
mod stream;

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::AtomicBool;

use kymo_wire::link::frame::{MAX_TEXT, MAX_WIRE};
use kymo_wire::link::{Command, DUMP_TIMEOUT_MS, Frame, SetupError, Text};

use crate::sync::{AtomicU32, Ordering, add};
use dump::Dump;
use receive::{Input, Receiver};
use ring::Ring;
use stream::Streaming;

pub use control::{Control, Refusal, SCRATCH_BYTES, Status, Subject, later};
#[cfg(feature = "duration")]
pub use control::{DurationReport, FreezeReport};
#[doc(hidden)]
pub use receive::check_receiver;
pub use ring::BYTES as RECEIVE_BYTES;
pub use stream::{BURST, WINDOW};

/// [`DUMP_TIMEOUT_MS`] in seconds.
const DUMP_TIMEOUT: u64 = {
    assert!(DUMP_TIMEOUT_MS.is_multiple_of(1000));
    DUMP_TIMEOUT_MS as u64 / 1000
};

/// The link. All zero at the beginning.
#[derive(Debug)]
pub struct Link {
    ring: Ring,
    /// Number of damaged frames, and of rejected lines.
    damaged: AtomicU32,
    polling: AtomicBool,
    streaming: AtomicBool,
    /// The time at which the buffers were frozen. Only the context that froze them uses it.
    pub(crate) frozen_at: Cell<u64>,
    /// When a thread was first seen within the stopper, which it has not left since; 0: none is. Set with interrupts
    /// masked.
    pub(crate) in_stopper_since: Cell<u64>,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the context that set `polling`, and `frozen_at` by that or the one that froze the
// buffers; the rest is for one producer and one consumer.
unsafe impl Sync for Link {}

/// State that only [`Link::poll`] uses.
#[derive(Debug)]
struct Inner {
    receiver: Receiver,
    dump: State,
    stream: Streaming,
    /// The frame or line being sent.
    out: [u8; MAX_WIRE],
}

/// Whether a dump is in progress. (`None` of an `Option` would not be all zero, and the whole link would be in flash.)
#[derive(Debug)]
#[repr(u8)]
enum State {
    Idle = 0,
    Dumping(Dump) = 1,
}

impl State {
    fn dump(&mut self) -> Option<&mut Dump> {
        match self {
            Self::Idle => None,
            Self::Dumping(dump) => Some(dump),
        }
    }

    /// Ends the dump, if one is in progress.
    fn end(&mut self, control: &impl Control) {
        if let Self::Dumping(_) = core::mem::replace(self, Self::Idle) {
            control.thaw();
        }
    }
}

/// Format of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way<'a> {
    /// A line of text, with the command's first word.
    Line(&'a [u8]),
    /// A frame, with this request's number.
    Frame(u8),
}

impl Link {
    /// A link without input.
    pub const fn new() -> Self {
        Self {
            ring: Ring::new(),
            damaged: AtomicU32::new(0),
            polling: AtomicBool::new(false),
            streaming: AtomicBool::new(false),
            frozen_at: Cell::new(0),
            in_stopper_since: Cell::new(0),
            inner: UnsafeCell::new(Inner {
                receiver: Receiver::new(),
                dump: State::Idle,
                stream: Streaming::new(),
                out: [0; MAX_WIRE],
            }),
        }
    }

    /// Resets everything, also the received bytes: in the child of a fork.
    ///
    /// # Safety
    /// No other context uses the link.
    pub unsafe fn reset(&self) {
        while self.ring.pop().is_some() {}
        // SAFETY: by this function's contract.
        let inner = unsafe { &mut *self.inner.get() };
        inner.receiver = Receiver::new();
        inner.dump = State::Idle;
        inner.stream = Streaming::new();
        self.streaming.store(false, Ordering::Relaxed);
        self.polling.store(false, Ordering::Release);
    }

    /// Stores a received byte. Any context may call it, but not two at once.
    pub fn receive(&self, byte: u8) {
        self.ring.push(byte);
    }

    /// Executes the host's requests; returns when there is nothing more to do, or when [`BURST`] pieces of a stream
    /// have been sent. Does nothing if another context is polling.
    pub fn poll(&self, control: &impl Control) {
        self.alone(|inner| {
            let mut burst = 0;
            loop {
                while let Some(byte) = self.ring.pop() {
                    inner.take(byte, self, control);
                }
                if inner.step(control) {
                    continue;
                }
                if burst >= BURST || !inner.stream_step(control) {
                    break;
                }
                burst += 1;
            }
        });
    }

    /// Ends a dump or stream whose host has been silent for too long at `now`, and closes packets so that a stream can
    /// send them. Does nothing else, so contexts that must not send may call it. A program may [poll](Self::poll) only
    /// when bytes arrive, and none do when the host has gone; a host whose bytes are still in the ring is not
    /// considered gone. `tick_hz` is how often this is called per second, if it is called regularly, or else 0.
    pub fn tick(&self, now: u64, tick_hz: u32, control: &impl Control) {
        self.alone(|inner| {
            if let Some(dump) = inner.dump.dump() {
                let gone = dump.tick(tick_hz) || dump.is_forgotten(now, control.hz());
                if gone && self.ring.is_empty() {
                    inner.dump.end(control);
                }
            }
            if inner.stream.is_active() {
                let stream = &mut inner.stream;
                let gone = stream.tick(tick_hz) || stream.is_forgotten(now, control.hz());
                if gone && self.ring.is_empty() {
                    stream.end(control);
                }
                stream.flush(now, control);
            }
        });
    }

    /// Whether a [poll](Self::poll) would have work to do: bytes have arrived, or a stream has something to send.
    pub fn is_pending(&self, control: &impl Control) -> bool {
        let mut pending = !self.ring.is_empty();
        self.alone(|inner| pending |= inner.stream.has_more(control));
        pending
    }

    /// Handles that the host has disconnected: ends its dump or stream, and drops partial input. Packets of a stream
    /// that it has not acknowledged are kept.
    pub fn hang_up(&self, control: &impl Control) {
        self.alone(|inner| {
            while self.ring.pop().is_some() {}
            inner.receiver = Receiver::new();
            inner.dump.end(control);
            if inner.stream.is_active() {
                inner.stream.end(control);
            }
        });
    }

    /// Whether packets of a stream have been sent and not acknowledged.
    pub fn has_flights(&self) -> bool {
        let mut has = false;
        self.alone(|inner| has = inner.stream.has_flights());
        has
    }

    /// Whether a stream is in progress.
    pub fn is_streaming(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// Runs `work` unless another context is running it. If two contexts are between the check and the store of
    /// `polling`, one of them is an interrupt, or has preempted the other, which has not begun its work; it ends before
    /// the other continues. On Linux the driver holds a lock.
    fn alone(&self, work: impl FnOnce(&mut Inner)) {
        if self.polling.load(Ordering::Acquire) {
            return;
        }
        self.polling.store(true, Ordering::Relaxed);
        // SAFETY: `polling` was false, so no other context is here.
        let inner = unsafe { &mut *self.inner.get() };
        work(inner);
        self.streaming
            .store(inner.stream.is_active(), Ordering::Relaxed);
        self.polling.store(false, Ordering::Release);
    }

    /// Number of lines and frames with damaged or lost bytes, and number of bytes that did not fit the ring.
    fn damaged(&self) -> (u32, u32) {
        (self.damaged.load(Ordering::Relaxed), self.ring.lost())
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    /// Processes a byte, and executes the command that it completes.
    fn take(&mut self, byte: u8, link: &Link, control: &impl Control) {
        let Self {
            receiver,
            dump,
            stream,
            out,
        } = self;
        let Some(input) = receiver.feed(byte) else {
            return;
        };
        if let Some(dump) = dump.dump() {
            dump.hear(control);
        }
        stream.hear(control);
        let mut answer = Answer { out, control };
        let (way, text) = match input {
            Input::Line(text) => (Way::Line(first_word(text)), text),
            Input::Command { request, text } => (Way::Frame(request), text),
            Input::TooLong => {
                add(&link.damaged, 1);
                return answer.give(Way::Line(b""), Err("the line is too long"));
            }
            Input::Torn => {
                add(&link.damaged, 1);
                return answer.give(Way::Line(b""), Err("bytes of the line were lost"));
            }
            Input::Damaged => return add(&link.damaged, 1),
        };
        let mut room = [0; MAX_TEXT];
        let mut reply = Text::new(&mut room);
        let outcome = match Command::parse(text) {
            Ok(None) => return,
            Ok(Some(command)) => {
                let obeyed = obey(command, way, (dump, stream), &mut answer, link, &mut reply);
                obeyed.map_err(Refusal::message)
            }
            Err(error) => Err(error.message()),
        };
        match outcome {
            Ok(true) if reply.is_empty() => answer.give(way, Ok(b"ok")),
            Ok(true) => answer.give(way, Ok(reply.bytes())),
            Ok(false) => {}
            Err(message) => answer.give(way, Err(message)),
        }
    }

    /// Sends the next piece of a dump, or ends the dump if the host has gone; returns false if there is nothing to do.
    fn step(&mut self, control: &impl Control) -> bool {
        let Some(dump) = self.dump.dump() else {
            return false;
        };
        if dump.send_next(control, &mut self.out) {
            return true;
        }
        if dump.is_forgotten(control.now(), control.hz()) {
            self.dump.end(control);
        }
        false
    }

    /// Sends the next piece of a stream, or ends the stream if the host has gone; returns false if there is nothing to
    /// do.
    fn stream_step(&mut self, control: &impl Control) -> bool {
        let stream = &mut self.stream;
        if !stream.is_active() {
            return false;
        }
        let now = control.now();
        if stream.is_forgotten(now, control.hz()) {
            stream.end(control);
            return false;
        }
        stream.flush(now, control);
        stream.send_next(control, &mut self.out)
    }
}

/// The first word of a line, which its reply repeats.
fn first_word(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    line.split(blank)
        .find(|word| !word.is_empty())
        .unwrap_or(&[])
}

/// Executes a command. Writes the reply to `reply`, unless that is `ok`; returns false if there is no reply.
#[inline(never)]
fn obey(
    command: Command,
    way: Way<'_>,
    (dump, stream): (&mut State, &mut Streaming),
    answer: &mut Answer<'_, impl Control>,
    link: &Link,
    reply: &mut Text<'_>,
) -> Result<bool, Refusal> {
    let control = answer.control;
    let request = match way {
        Way::Line(_) => 0,
        Way::Frame(request) => request,
    };
    match command {
        Command::Mode(_) | Command::Clear | Command::DumpTrace | Command::DumpProfile
            if stream.is_active() =>
        {
            return Err(Refusal::Streaming);
        }
        Command::Reboot
        | Command::Mode(_)
        | Command::Clear
        | Command::DumpTrace
        | Command::DumpProfile
        | Command::Done
        | Command::StreamOn { .. } => dump.end(control),
        _ => {}
    }
    match command {
        Command::Identify => {
            // A host that sends this as a line does not know of a stream.
            if let Way::Line(_) = way {
                stream.end(control);
            }
            // Always as a line, because hosts send it to resynchronize.
            answer.line(|line| control.identity().write(line));
            return Ok(matches!(way, Way::Frame(_)));
        }
        Command::Ping => _ = reply.add("pong"),
        Command::Status => report(reply, &control.status(), link.damaged()),
        Command::Reboot => return Err(control.reboot()),
        Command::Enable => control.enable(true),
        Command::Disable => control.enable(false),
        Command::On => control.set_recording(true),
        Command::Off => control.set_recording(false),
        Command::ListSets => {
            let (trigger, stopper) = control.sets();
            reply.address("trigger", trigger as u64);
            reply.address("stopper", stopper as u64);
            if control.status().once.is_some() {
                reply.word("once", 1);
            }
        }
        Command::Trigger(address) | Command::Stopper(address) => {
            let address = usize::try_from(address).map_err(|_| Refusal::TooWide)?;
            let (trigger, stopper) = control.sets();
            #[cfg(feature = "conditions")]
            if let Some(conditions) = control.conditions() {
                let own = match command {
                    Command::Trigger(_) => &conditions.trigger,
                    _ => &conditions.stopper,
                };
                own.set(0, 0, 0, 0);
            }
            match command {
                Command::Trigger(_) => control.set_sets(address, stopper),
                _ => control.set_sets(trigger, address),
            }
        }
        Command::Once(once) => control.set_once(once),
        #[cfg(feature = "conditions")]
        Command::Condition(requested) => {
            let conditions = control.conditions().ok_or(Refusal::NoConditions)?;
            conditions.request(requested).ok_or(Refusal::TooWide)?;
            if requested != kymo_wire::link::Conditions::Ask {
                control.keep_conditions();
            }
            for (condition, keys) in [
                (&conditions.trigger, &TRIGGER_KEYS),
                (&conditions.stopper, &STOPPER_KEYS),
            ] {
                let (code, counts) = condition.get();
                let ([from, end, cold], rest) = (keys.0, keys.1);
                reply
                    .address(from, code[0] as u64)
                    .address(end, code[1] as u64);
                let [apart, _] = condition.cold();
                if apart != 0 {
                    reply.address(cold, apart as u64);
                }
                for (key, count) in rest.into_iter().zip(counts) {
                    reply.word(key, count.into());
                }
            }
        }
        #[cfg(feature = "duration")]
        Command::Duration(requested) => {
            control.change_duration(requested)?;
            let report = control.duration_report().ok_or(Refusal::NoDuration)?;
            report.write(reply);
        }
        Command::Mode(mode) => control.set_mode(mode)?,
        Command::Clear => control.clear()?,
        Command::DumpTrace | Command::DumpProfile => {
            let subject = match command {
                Command::DumpTrace => Subject::Trace,
                _ => Subject::Profile,
            };
            control.freeze(subject)?;
            let new = Dump::new(subject, request, control);
            let (bytes, frames) = new.size();
            reply
                .word("bytes", bytes.into())
                .word("frames", frames.into())
                .word("ticks", control.now());
            *dump = State::Dumping(new);
        }
        Command::Resend { first, last } => match dump.dump() {
            Some(dump) => dump.resend(request, first, last)?,
            None if stream.is_active() => stream.resend(first, last)?,
            None => return Err(Refusal::NoDump),
        },
        Command::Done => {}
        Command::StreamOn { flush_ms } => {
            stream.start(request, flush_ms, control)?;
            reply.word("window", WINDOW as u64);
        }
        Command::StreamOff => {
            let left = stream.stop(control)?;
            reply.word("sending", left.sending.into());
            reply.word("pieces", left.pieces.into());
            if left.blocked != 0 {
                reply.word("reserved", left.blocked.into());
            }
        }
        Command::Ack(piece) => {
            if !stream.is_active() {
                return Err(Refusal::NotStreaming);
            }
            stream.acknowledge(piece, control);
            return Ok(false);
        }
        Command::Time => {
            let now = control.now();
            reply.word("ticks", now);
            if let Some(check) = control.tick_check(now) {
                reply
                    .word("tick_hz", check.hz.into())
                    .word("tick_count", check.count.into())
                    .word("tick_clock", check.clock);
            }
        }
        Command::WallClock {
            ticks,
            ns,
            uncertainty,
        } => {
            let recorded = control.wall_clock(ticks, ns, uncertainty);
            reply.word("recorded", recorded.into());
        }
        // A workspace build may have the commands of features that this recorder lacks; a target's build does not.
        #[cfg(not(all(feature = "conditions", feature = "duration")))]
        #[allow(unreachable_patterns)]
        _ => return Ok(false),
    }
    Ok(true)
}

/// Keys of the reply to `condition`: addresses, of which the last is optional, and four counts.
#[cfg(feature = "conditions")]
type Keys = ([&'static str; 3], [&'static str; 4]);

/// The trigger's keys.
#[cfg(feature = "conditions")]
const TRIGGER_KEYS: Keys = (
    ["trigger_from", "trigger_end", "trigger_cold"],
    [
        "trigger_hit",
        "trigger_times",
        "trigger_hits",
        "trigger_acted",
    ],
);

/// The stopper's keys.
#[cfg(feature = "conditions")]
const STOPPER_KEYS: Keys = (
    ["stopper_from", "stopper_end", "stopper_cold"],
    [
        "stopper_hit",
        "stopper_times",
        "stopper_hits",
        "stopper_acted",
    ],
);

/// Sends replies.
struct Answer<'a, C> {
    out: &'a mut [u8; MAX_WIRE],
    control: &'a C,
}

impl<C: Control> Answer<'_, C> {
    /// Replies with this text, or with an error message.
    #[inline(never)]
    fn give(&mut self, way: Way<'_>, outcome: Result<&[u8], &str>) {
        let text = match outcome {
            Ok(text) => text,
            Err(message) => message.as_bytes(),
        };
        match way {
            Way::Line(word) => self.line(|line| {
                line.add("kymo ");
                match outcome {
                    Ok(_) => line.add_bytes(word),
                    Err(_) => line.add("error"),
                };
                line.add(": ").add_bytes(text);
            }),
            Way::Frame(request) => {
                let reply = Frame::Reply {
                    request,
                    ok: outcome.is_ok(),
                    text,
                };
                if let Some(length) = reply.encode(self.out) {
                    self.control.send(self.out.get(..length).unwrap_or(&[]));
                }
            }
        }
    }

    /// Sends a line as a whole, so that no other output of the link interrupts it.
    fn line(&mut self, write: impl FnOnce(&mut Text<'_>)) {
        let mut room = [0; MAX_TEXT + 64];
        let mut line = Text::new(&mut room);
        write(&mut line);
        line.end_line();
        self.control.send(line.bytes());
    }
}

/// The reply to `status`.
#[inline(never)]
fn report(reply: &mut Text<'_>, status: &Status, (damaged, lost_bytes): (u32, u32)) {
    let figures = status.figures;
    reply
        .word("enabled", status.enabled.into())
        .word("on", status.on.into())
        .word_of("mode", status.mode.name())
        .word("used", figures.used)
        .word("needed", figures.needed);
    for (key, count) in [
        ("bytes", figures.bytes),
        ("discarded", figures.discarded),
        ("packets", figures.packets),
        ("functions", status.functions),
        ("slots", status.slots),
        ("no_slot", status.no_slot),
        ("damaged", damaged),
        ("lost_bytes", lost_bytes),
        ("refused", status.refused),
        ("backward", figures.backward),
        ("clock_gaps", status.clock_gaps),
    ] {
        reply.word(key, count.into());
    }
    if status.refused_function != 0 {
        reply.address("refused_function", status.refused_function as u64);
    }
    status.report_stopper(reply);
    if let Some(spent) = status.once {
        reply.word("once", 1).word("spent", spent.into());
    }
    if let Some(SetupError { fault, value }) = status.setup_error {
        reply
            .word_of("error", fault.name())
            .word("value", value as u64);
    } else if let Some(error) = status.stuck {
        reply.word_of("error", error);
    }
}
