//! Streaming session for `kymo record` and `kymo show --follow`.
//!
//! [`kymo_link::Stream`] delivers the packets. This module manages the session around it: it turns recording on,
//! sends the time of day, reconnects after a lost connection with growing delays ([`Backoff`]), and requests the
//! remaining packets when the user stops.

use std::time::{Duration, Instant};

use kymo_link::{LinkError, Next, Reported};
use kymo_wire::link::{Command, Identity};

use crate::context::Remarks;
use crate::diagnostic::Report;
use crate::render::count::counted;
use crate::target::{Live, TargetArgs, explain, patience};

/// Interval at which the time of day is sent to the target, to determine the drift of its clock.
const TIME_EVERY: Duration = Duration::from_secs(10);

/// Interval at which the sink's [`pause`](Sink::pause) is called.
const PAUSE: Duration = Duration::from_millis(50);

/// Usual time for a target to send its remaining packets after the command to stop.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// Delay before the first attempt to restart a stream.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Longest delay between two attempts.
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// How to stream.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct StreamArgs {
    /// Send what there is every so many milliseconds, although packets are not full yet. 0: only
    /// full packets, which is least work for the target.
    #[arg(long, value_name = "MS", default_value_t = kymo_wire::link::FLUSH_MS)]
    pub flush: u32,

    /// When the stream ends or the connection is lost, try for so many seconds to get packets again.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub retry: u64,
}

/// Receives the packets of a stream.
pub trait Sink {
    /// Processes a packet.
    ///
    /// # Errors
    /// An error after which continuing is useless.
    fn packet(&mut self, packet: &[u8]) -> Result<Go, Report>;

    /// Called at intervals, with and without packets in between.
    ///
    /// # Errors
    /// An error after which continuing is useless.
    fn pause(&mut self) -> Result<Go, Report>;
}

/// Whether to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// More is wanted.
    On,
    /// The recording up to now is enough.
    Enough,
    /// No more packets are wanted, not even those recorded already.
    Away,
}

/// How a stream ended, with counts to report.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Number of frames that arrived damaged.
    pub damaged: u64,
    /// Number of retransmissions.
    pub resends: u64,
    /// Number of reconnections.
    pub reconnected: u64,
    /// Number of packets passed to the sink.
    pub packets: u64,
    /// Number of streams with packets that the target withheld at the end ([`kymo_link::Stream::withheld`]).
    pub withheld: u64,
    /// Why the stream ended although more was wanted.
    pub failure: Option<Report>,
}

/// Checks that a target can stream.
///
/// # Errors
/// When it can't.
pub fn check(live: &Live) -> Result<(), Report> {
    if live.identity.capabilities.stream {
        return Ok(());
    }
    Err(Report::new("this target cannot stream")
        .help("`kymo trace` gets what its buffer holds; a library that is built anew can stream"))
}

/// The time at tick 0 of a target's clock, in nanoseconds since 1970, according to the time that the host sent;
/// `None` if it is out of range.
pub fn origin(reported: Reported, identity: &Identity) -> Option<i64> {
    let hz = u128::from(identity.clock_hz.max(1));
    let since = u128::from(reported.ticks) * 1_000_000_000 / hz;
    i64::try_from(i128::from(reported.ns) - i128::try_from(since).ok()?).ok()
}

/// Streams from a target into `sink`, until the sink has enough or the user ends it. All packets that arrived were
/// passed to the sink, even after an error.
///
/// # Errors
/// Those of the sink, and errors that prevented the stream from starting.
pub fn run(
    live: &mut Live,
    target: &TargetArgs,
    args: StreamArgs,
    sink: &mut dyn Sink,
    remarks: &Remarks,
) -> Result<Ended, Report> {
    let turned_on = turn_on(live, remarks)?;
    let mut drain = Drain {
        live,
        args,
        turned_on,
        reported_time: None,
        ended: Ended::default(),
    };
    let mut stopping = None;
    let mut backoff = Backoff::default();
    loop {
        let packets = drain.ended.packets;
        let error = match drain.session(sink, &mut stopping)? {
            Ok(()) => break,
            Err(error) => error,
        };
        if drain.ended.packets > packets {
            backoff = Backoff::default();
        }
        let cancelled = drain.live.cancel.flag().is_cancelled();
        // Otherwise a target that ends each stream at once would be retried forever.
        let late = stopping.is_some_and(|until| Instant::now() >= until);
        if cancelled || late || !(error.is_connection() || begins_anew(&error)) {
            drain.ended.failure = Some(explain(error));
            break;
        }
        if target.has_ended() {
            remarks
                .note("the program has ended; if it was killed, what it had recorded last is lost");
            break;
        }
        let report = explain(error);
        remarks.warn(format_args!("{}; trying again", report.message()));
        if let Err(failure) = drain.reconnect(target, sink, &mut backoff, report, remarks)? {
            drain.ended.failure = Some(failure);
            break;
        }
    }
    let ended = drain.ended;
    if ended.withheld > 0 {
        remarks.warn(format_args!(
            "the end of {} is missing: the program reserved records in it that it has not committed",
            counted(ended.withheld, "stream")
        ));
    }
    Ok(ended)
}

/// Turns recording on, unless a condition will. Returns whether that took a command.
fn turn_on(live: &mut Live, remarks: &Remarks) -> Result<bool, Report> {
    let status = live.target.status().map_err(explain)?;
    if let Some(error) = &status.error {
        remarks.warn(format_args!("the recorder could not be set up: {error}"));
    }
    if !status.enabled {
        remarks.warn("the target is disabled: `kymo command enable`");
    }
    if status.on {
        return Ok(false);
    }
    let sets = live.target.sets().map_err(explain)?;
    if sets.trigger.is_some() {
        remarks.note(
            "the target waits for its trigger; `kymo trace --list` shows it, `kymo command on` \
             makes it record at once",
        );
        return Ok(false);
    }
    live.target.command(Command::On).map_err(explain)?;
    Ok(true)
}

/// Whether the target still answers, or soon will, and only the stream is over: the target was reset, or received
/// nothing from us for too long.
fn begins_anew(error: &LinkError) -> bool {
    matches!(
        error,
        LinkError::Refused { .. } | LinkError::TimedOut { .. }
    )
}

/// An active stream, possibly over several connections.
struct Drain<'a> {
    live: &'a mut Live,
    args: StreamArgs,
    /// Whether we turned recording on.
    turned_on: bool,
    reported_time: Option<Instant>,
    ended: Ended,
}

impl Drain<'_> {
    /// Streams over the current connection. The outer error is the sink's. `stopping` is the deadline for remaining
    /// packets, once no more are wanted.
    fn session(
        &mut self,
        sink: &mut dyn Sink,
        stopping: &mut Option<Instant>,
    ) -> Result<Result<(), LinkError>, Report> {
        let flush = Duration::from_millis(self.args.flush.into());
        let last_words = LAST_WORDS * patience()?;
        let Live { target, cancel, .. } = &mut *self.live;
        let damaged_before = target.damaged();
        let mut stream = match target.stream(flush) {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let mut result = Ok(());
        let mut paused = Instant::now();
        if stopping.is_some() {
            stream.stop();
        }
        loop {
            if stopping.is_none()
                && self
                    .reported_time
                    .is_none_or(|reported| reported.elapsed() >= TIME_EVERY)
            {
                match stream.target().send_time() {
                    Ok(_) => self.reported_time = Some(Instant::now()),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            let mut go = match stream.next(Instant::now() + PAUSE) {
                Ok(Next::Packet(packet)) => {
                    self.ended.packets += 1;
                    sink.packet(&packet)?
                }
                Ok(Next::Nothing) => Go::On,
                Ok(Next::Over) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            if go == Go::On && paused.elapsed() >= PAUSE {
                go = sink.pause()?;
                paused = Instant::now();
            }
            if go == Go::Away {
                break;
            }
            match *stopping {
                None if go == Go::Enough || cancel.flag().is_cancelled() => {
                    *stopping = Some(Instant::now() + last_words);
                    if self.turned_on {
                        // If the target misses this command, it will receive the end of the stream.
                        let _ = stream.target().command(Command::Off);
                    }
                    stream.stop();
                }
                Some(until) if Instant::now() >= until => {
                    result = Err(LinkError::TimedOut {
                        command: Command::StreamOff.to_string(),
                        waited: last_words,
                    });
                    break;
                }
                _ => {}
            }
        }
        self.ended.resends += stream.resends();
        self.ended.withheld = stream.withheld();
        drop(stream);
        self.ended.damaged += target.damaged() - damaged_before;
        Ok(result)
    }

    /// Reconnects after a delay. The outer error is the sink's. The inner one is the reason to give up: no success in
    /// time, another program answers, or no more is wanted. `lost` is why the last stream ended.
    fn reconnect(
        &mut self,
        target: &TargetArgs,
        sink: &mut dyn Sink,
        backoff: &mut Backoff,
        mut lost: Report,
        remarks: &Remarks,
    ) -> Result<Result<(), Report>, Report> {
        let longest = Duration::from_secs(self.args.retry);
        // Releases the line, because a server for one connection would not accept another.
        self.live.target.hang_up();
        loop {
            let until = backoff.next(Instant::now(), longest);
            let Some(until) = until else {
                return Ok(Err(lost.help(format_args!(
                    "no packet came within {} s of attempts; --retry gives it longer",
                    self.args.retry
                ))));
            };
            while Instant::now() < until {
                if self.live.cancel.flag().is_cancelled() || sink.pause()? != Go::On {
                    return Ok(Err(lost));
                }
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(PAUSE));
            }
            match target.reach(self.live, remarks) {
                Ok(()) => break,
                Err(error) => lost = error,
            }
        }
        remarks.note("the target is back");
        self.ended.reconnected += 1;
        self.reported_time = None;
        Ok(Ok(()))
    }
}

/// Delays between attempts to get a stream: each is twice as long as the previous one, and none follows once they
/// exceed the user's limit together. A stream that delivers a packet starts over.
#[derive(Debug, Default)]
struct Backoff {
    /// The time of the first attempt.
    began: Option<Instant>,
    attempts: u32,
}

impl Backoff {
    /// The time of the next attempt; `None` after attempts for `longest`.
    fn next(&mut self, now: Instant, longest: Duration) -> Option<Instant> {
        let end = *self.began.get_or_insert(now) + longest;
        if now >= end {
            return None;
        }
        let delay = FIRST_DELAY.saturating_mul(1 << self.attempts.min(16));
        self.attempts += 1;
        Some((now + delay.min(LONGEST_DELAY)).min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rare_and_end() {
        let began = Instant::now();
        let longest = Duration::from_secs(60);
        let mut backoff = Backoff::default();
        let mut now = began;
        let mut attempts = 0;
        while let Some(next) = backoff.next(now, longest) {
            assert!(next > now && next - now <= LONGEST_DELAY);
            now = next;
            attempts += 1;
        }
        assert_eq!(now, began + longest);
        assert!((10..25).contains(&attempts), "{attempts}");
        assert_eq!(Backoff::default().next(began, Duration::ZERO), None);
    }
}
