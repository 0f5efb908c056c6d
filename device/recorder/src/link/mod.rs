//! The target's side of the link: commands in, replies and dumps out.
//!
//! What arrives is only put into a ring, by whatever context hears it ([`Link::receive`]). All
//! work is done in [`Link::poll`], from a place of the program that may take its time; it goes on
//! until there is nothing more to do, and looks for new commands between any two frames that it
//! sends, so a host can stop a dump at any time.
//!
//! During a dump the buffers are held still ([`Control::freeze`]); a stream leaves while everything
//! goes on recording ([`Control::waiting`]). Nothing is copied: a piece is found by its number each
//! time it is asked for. The protocol is described in [`kymo_wire::link`].

mod control;
mod dump;
mod receive;
mod ring;
mod stream;

use core::cell::{Cell, UnsafeCell};
use core::fmt::{self, Write as _};
use core::sync::atomic::AtomicBool;

use kymo_wire::link::frame::{MAX_TEXT, MAX_WIRE};
use kymo_wire::link::{Command, CommandError, Frame};

use crate::sync::{AtomicU32, Ordering, add};
use dump::Dump;
use receive::{Input, Receiver};
use ring::Ring;
use stream::Streaming;

pub use control::{Control, Refusal, SCRATCH_BYTES, Status, Subject, later};
#[doc(hidden)]
pub use receive::check_receiver;
pub use ring::BYTES as RECEIVE_BYTES;
pub use stream::{BURST, WINDOW};

/// The link. All zero at the beginning.
#[derive(Debug)]
pub struct Link {
    ring: Ring,
    /// Damaged frames, and lines that were refused.
    damaged: AtomicU32,
    polling: AtomicBool,
    streaming: AtomicBool,
    /// When the buffers were frozen: for who froze them.
    pub(crate) frozen_at: Cell<u64>,
    inner: UnsafeCell<Inner>,
}

// SAFETY: `inner` is only touched by the context that set `polling`, and `frozen_at` by that or who
// froze the buffers; the rest is for one producer and one consumer.
unsafe impl Sync for Link {}

/// What only [`Link::poll`] touches.
#[derive(Debug)]
struct Inner {
    receiver: Receiver,
    dump: State,
    stream: Streaming,
    /// A frame or line on its way out.
    out: [u8; MAX_WIRE],
}

/// Whether a dump is going on. (An `Option` that is `None` would not be all zero, and the whole
/// link would lie in flash.)
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

    /// Ends a dump, if one is going on.
    fn end(&mut self, control: &impl Control) {
        if let Self::Dumping(_) = core::mem::replace(self, Self::Idle) {
            control.thaw();
        }
    }
}

/// How an answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way<'a> {
    /// As a line of text; the word that the command began with.
    Line(&'a [u8]),
    /// In a frame, with this request's number.
    Frame(u8),
}

impl Link {
    /// Nothing has arrived.
    pub const fn new() -> Self {
        Self {
            ring: Ring::new(),
            damaged: AtomicU32::new(0),
            polling: AtomicBool::new(false),
            streaming: AtomicBool::new(false),
            frozen_at: Cell::new(0),
            inner: UnsafeCell::new(Inner {
                receiver: Receiver::new(),
                dump: State::Idle,
                stream: Streaming::new(),
                out: [0; MAX_WIRE],
            }),
        }
    }

    /// A byte arrived. From any context, but not from two at once.
    pub fn receive(&self, byte: u8) {
        self.ring.push(byte);
    }

    /// Does what the host asked for; returns when there is nothing more to do, or when of a stream
    /// [`BURST`] pieces have been sent. If another context is at it, nothing.
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

    /// Ends a dump or stream whose host has been silent for too long at `now`, closes packets so that
    /// a stream can send them, and does nothing else: for contexts that must not send. A program may
    /// [poll](Self::poll) only when bytes arrive, and none do when the host is gone. What has arrived
    /// is heard by a poll first. `tick_hz` is how often this is called in a second, if it is called
    /// regularly, or else 0.
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

    /// Whether a [poll](Self::poll) would have something to do: bytes have arrived, or a stream has
    /// something to send.
    pub fn is_pending(&self, control: &impl Control) -> bool {
        let mut pending = !self.ring.is_empty();
        self.alone(|inner| pending |= inner.stream.has_more(control));
        pending
    }

    /// Whether a stream is going on.
    pub fn is_streaming(&self) -> bool {
        self.streaming.load(Ordering::Relaxed)
    }

    /// Runs `work` unless another context is at it. Two that come here at the same moment: one of
    /// them is an interrupt, or preempted the other, which has not begun; it ends before the other
    /// goes on. On Linux the driver holds a lock.
    fn alone(&self, work: impl FnOnce(&mut Inner)) {
        if self.polling.load(Ordering::Acquire) {
            return;
        }
        self.polling.store(true, Ordering::Relaxed);
        // SAFETY: `polling` was false, so nobody else is here.
        let inner = unsafe { &mut *self.inner.get() };
        work(inner);
        self.streaming
            .store(inner.stream.is_active(), Ordering::Relaxed);
        self.polling.store(false, Ordering::Release);
    }

    /// Lines and frames that were not understood because bytes were damaged or lost, and bytes
    /// that did not fit the ring.
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
    /// Takes a byte, and carries out the command that is complete with it.
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
        let mut answer = Answer { out, control, link };
        let (way, text) = match input {
            Input::Line(text) => (Way::Line(first_word(text)), text),
            Input::Command { request, text } => (Way::Frame(request), text),
            Input::TooLong => {
                add(&link.damaged, 1);
                return answer.give(Way::Line(b""), false, format_args!("the line is too long"));
            }
            Input::Torn => {
                add(&link.damaged, 1);
                let message = format_args!("bytes of the line were lost");
                return answer.give(Way::Line(b""), false, message);
            }
            Input::Damaged => return add(&link.damaged, 1),
        };
        match Command::parse(text) {
            Ok(None) => {}
            Ok(Some(command)) => {
                if let Err(refusal) = obey(command, way, (dump, stream), &mut answer) {
                    answer.give(way, false, format_args!("{refusal}"));
                }
            }
            Err(error) => answer.give(way, false, format_args!("{error}")),
        }
    }

    /// Sends the next piece of a dump, or ends one that nobody listens to any more; false if there
    /// is nothing to do.
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

    /// Sends the next piece of a stream, or ends one that nobody listens to any more; false if there
    /// is nothing to do.
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

/// The first word of a line, which stands in its reply.
fn first_word(line: &[u8]) -> &[u8] {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    line.split(blank)
        .find(|word| !word.is_empty())
        .unwrap_or(&[])
}

/// Carries a command out and answers it; what is refused the caller answers.
fn obey(
    command: Command,
    way: Way<'_>,
    (dump, stream): (&mut State, &mut Streaming),
    answer: &mut Answer<'_, impl Control>,
) -> Result<(), Refusal> {
    let control = answer.control;
    let request = match way {
        Way::Line(_) => 0,
        Way::Frame(request) => request,
    };
    match command {
        Command::Identify => {
            // A line comes from somebody who does not know of a stream.
            if let Way::Line(_) = way {
                stream.end(control);
            }
            // Always as a line: it is what a host that lost its place asks for.
            let identity = control.identity();
            answer.line(format_args!("{identity}"));
            if let Way::Frame(_) = way {
                answer.ok(way);
            }
        }
        Command::Ping => answer.give(way, true, format_args!("pong")),
        Command::Status => {
            let status = control.status();
            answer.give(way, true, format_args!("{}", Report(&status, answer.link)));
        }
        Command::Reboot => {
            dump.end(control);
            return Err(control.reboot());
        }
        Command::Enable | Command::Disable => {
            control.enable(command == Command::Enable);
            answer.ok(way);
        }
        Command::On | Command::Off => {
            control.turn(command == Command::On);
            answer.ok(way);
        }
        Command::ListSets => {
            let (trigger, stopper) = control.sets();
            let sets = format_args!("trigger={trigger:#x} stopper={stopper:#x}");
            answer.give(way, true, sets);
        }
        Command::Trigger(address) | Command::Stopper(address) => {
            let Ok(address) = usize::try_from(address) else {
                answer.give(way, false, format_args!("{}", CommandError::TooWide));
                return Ok(());
            };
            let (trigger, stopper) = control.sets();
            match command {
                Command::Trigger(_) => control.set_sets(address, stopper),
                _ => control.set_sets(trigger, address),
            }
            answer.ok(way);
        }
        Command::Mode(_) | Command::Clear | Command::DumpTrace | Command::DumpProfile
            if stream.is_active() =>
        {
            return Err(Refusal::Streaming);
        }
        Command::Mode(mode) => {
            dump.end(control);
            control.set_mode(mode)?;
            answer.ok(way);
        }
        Command::Clear => {
            dump.end(control);
            control.clear()?;
            answer.ok(way);
        }
        Command::DumpTrace | Command::DumpProfile => {
            dump.end(control);
            let subject = match command {
                Command::DumpTrace => Subject::Trace,
                _ => Subject::Profile,
            };
            control.freeze(subject)?;
            let new = Dump::new(subject, request, control);
            let (bytes, frames) = new.size();
            answer.give(way, true, format_args!("bytes={bytes} frames={frames}"));
            *dump = State::Dumping(new);
        }
        Command::Resend { first, last } => {
            match dump.dump() {
                Some(dump) => dump.resend(request, first, last)?,
                None if stream.is_active() => stream.resend(first, last)?,
                None => return Err(Refusal::NoDump),
            }
            answer.ok(way);
        }
        Command::Done => {
            dump.end(control);
            answer.ok(way);
        }
        Command::StreamOn { flush_ms } => {
            dump.end(control);
            stream.start(request, flush_ms, control)?;
            answer.give(way, true, format_args!("window={WINDOW}"));
        }
        Command::StreamOff => {
            let left = stream.stop(control)?;
            let (sending, pieces) = (u8::from(left.sending), left.pieces);
            let text = format_args!("sending={sending} pieces={pieces}");
            match left.withheld {
                0 => answer.give(way, true, text),
                streams => answer.give(way, true, format_args!("{text} reserved={streams}")),
            }
        }
        Command::Ack(piece) => {
            if !stream.is_active() {
                return Err(Refusal::NotStreaming);
            }
            stream.acknowledge(piece, control);
        }
        Command::Time => {
            let ticks = control.now();
            answer.give(way, true, format_args!("ticks={ticks}"));
        }
        Command::WallClock {
            ticks,
            ns,
            uncertainty,
        } => {
            let recorded = u8::from(control.wall_clock(ticks, ns, uncertainty));
            answer.give(way, true, format_args!("recorded={recorded}"));
        }
    }
    Ok(())
}

/// Sends answers.
struct Answer<'a, C> {
    out: &'a mut [u8; MAX_WIRE],
    control: &'a C,
    link: &'a Link,
}

impl<C: Control> Answer<'_, C> {
    fn ok(&mut self, way: Way<'_>) {
        self.give(way, true, format_args!("ok"));
    }

    fn give(&mut self, way: Way<'_>, ok: bool, text: fmt::Arguments<'_>) {
        match way {
            Way::Line(word) if ok => {
                let word = core::str::from_utf8(word).unwrap_or("");
                self.line(format_args!("kymo {word}: {text}"));
            }
            Way::Line(_) => self.line(format_args!("kymo error: {text}")),
            Way::Frame(request) => {
                let mut buffer = Text::<MAX_TEXT>::new();
                let _ = buffer.write_fmt(text);
                let reply = Frame::Reply {
                    request,
                    ok,
                    text: buffer.bytes(),
                };
                if let Some(length) = reply.encode(self.out) {
                    self.control.send(self.out.get(..length).unwrap_or(&[]));
                }
            }
        }
    }

    /// Sends a line at once, so that nothing of ours can stand in the middle of it.
    fn line(&mut self, text: fmt::Arguments<'_>) {
        let mut buffer = Text::<{ MAX_TEXT + 64 }>::new();
        let _ = buffer.write_fmt(text);
        buffer.end_line();
        self.control.send(buffer.bytes());
    }
}

/// The reply to `status`.
struct Report<'a>(&'a Status, &'a Link);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(status, link) = self;
        let (damaged, lost_bytes) = link.damaged();
        let figures = status.figures;
        write!(
            f,
            "enabled={} on={} mode={} used={} needed={} bytes={} discarded={} packets={} \
             functions={} slots={} no_slot={} damaged={} lost_bytes={} refused={} backward={} \
             clock_gaps={}",
            u8::from(status.enabled),
            u8::from(status.on),
            status.mode.name(),
            figures.used,
            figures.needed,
            figures.bytes,
            figures.discarded,
            figures.packets,
            status.functions,
            status.slots,
            status.no_slot,
            damaged,
            lost_bytes,
            status.refused,
            figures.backward,
            status.clock_gaps,
        )?;
        match status.error {
            Some(error) => write!(f, " error={error}"),
            None => Ok(()),
        }
    }
}

/// A text in the making. What does not fit is cut off.
struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    /// Adds CR and LF, in the place of the last characters if need be.
    fn end_line(&mut self) {
        self.length = self.length.min(N - 2);
        let _ = self.write_str("\r\n");
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or(&mut []);
        let count = text.len().min(room.len());
        if let (Some(room), Some(text)) = (room.get_mut(..count), text.as_bytes().get(..count)) {
            room.copy_from_slice(text);
        }
        self.length += count;
        Ok(())
    }
}
