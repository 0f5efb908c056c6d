//! What a target records, while it records it: for `kymo record` and `kymo show --follow`.
//!
//! The packets come from [`kymo_link::Stream`]. Here is what goes on around that: the target is told
//! to record and what time it is, a connection that breaks is made again, and when enough has come
//! the target is asked for the rest.

use std::time::{Duration, Instant};

use kymo_link::{LinkError, Next, Told};
use kymo_wire::link::{Command, Identity};

use crate::context::Remarks;
use crate::diagnostic::Report;
use crate::render::count::counted;
use crate::target::{Live, TargetArgs, explain, patience};

/// How often the target is told the time of day, so that the drift of its clock is known.
const TIME_EVERY: Duration = Duration::from_secs(10);

/// How long nothing may come before the sink is asked what it thinks of that.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a target may usually take to send what it has when it is told to stop.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// How long to wait between two attempts to reach a target that is gone.
const RETRY: Duration = Duration::from_millis(200);

/// How to stream.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct StreamArgs {
    /// Send what there is every so many milliseconds, although packets are not full yet. 0: only
    /// full packets, which is least work for the target.
    #[arg(long, value_name = "MS", default_value_t = kymo_wire::link::FLUSH_MS)]
    pub flush: u32,

    /// When the connection is lost, try for so many seconds to get it back.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub retry: u64,
}

/// Takes what comes.
pub trait Sink {
    /// A packet.
    ///
    /// # Errors
    /// What makes it useless to go on.
    fn packet(&mut self, packet: &[u8]) -> Result<Go, Report>;

    /// Nothing comes at the moment; or a while has passed.
    ///
    /// # Errors
    /// What makes it useless to go on.
    fn pause(&mut self) -> Result<Go, Report>;
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// More is wanted.
    On,
    /// What has been recorded up to now is enough.
    Enough,
    /// Nothing more is wanted, not even what has been recorded.
    Away,
}

/// How a stream ended, and what is to be said of it.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    /// Frames that arrived damaged.
    pub damaged: u64,
    /// How often something had to be sent again.
    pub resends: u64,
    /// How often the connection was made again.
    pub reconnected: u64,
    /// Of how many streams the target kept something back at the end ([`kymo_link::Stream::withheld`]).
    pub withheld: u64,
    /// Why the stream ended although more was wanted.
    pub failure: Option<Report>,
}

/// Makes sure that a target can stream.
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

/// When tick 0 of a target's clock was, in nanoseconds since 1970, by what it was told; `None` if that is
/// further away than can be told.
pub fn origin(told: Told, identity: &Identity) -> Option<i64> {
    let hz = u128::from(identity.clock_hz.max(1));
    let since = u128::from(told.ticks) * 1_000_000_000 / hz;
    i64::try_from(i128::from(told.ns) - i128::try_from(since).ok()?).ok()
}

/// Streams from a target into `sink`, until that has enough or the user ends it. What arrived has
/// been given to the sink whatever happens.
///
/// # Errors
/// Those of the sink, and what kept the stream from beginning.
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
        told_time: None,
        ended: Ended::default(),
    };
    let mut stopping = None;
    loop {
        let error = match drain.session(sink, &mut stopping)? {
            Ok(()) => break,
            Err(error) => error,
        };
        let cancelled = drain.live.cancel.flag().is_cancelled();
        // A target that ends each stream at once would be asked for ever.
        let late = stopping.is_some_and(|until| Instant::now() >= until);
        if cancelled || late || !(error.is_connection() || begins_anew(&error)) {
            drain.ended.failure = Some(explain(error));
            break;
        }
        match error {
            LinkError::Refused { .. } => {
                remarks.warn("the target has ended the stream; trying again")
            }
            other => remarks.warn(format_args!("{}; trying again", explain(other).message())),
        }
        if let Err(report) = drain.reconnect(target, remarks) {
            drain.ended.failure = Some(report);
            break;
        }
        remarks.note("the target is back");
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

/// Lets a target record that waits for nothing; whether it had to be told.
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

/// Whether the target still answers, or will soon, and only the stream is over: it was reset, or it
/// heard nothing of us for too long.
fn begins_anew(error: &LinkError) -> bool {
    matches!(
        error,
        LinkError::Refused { .. } | LinkError::TimedOut { .. }
    )
}

/// A stream that is going on, over several connections maybe.
struct Drain<'a> {
    live: &'a mut Live,
    args: StreamArgs,
    /// The target records only because of us.
    turned_on: bool,
    told_time: Option<Instant>,
    ended: Ended,
}

impl Drain<'_> {
    /// Streams over the present connection. The outer error is the sink's. `stopping` is until when
    /// what is left may come, once no more is wanted.
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
                    .told_time
                    .is_none_or(|told| told.elapsed() >= TIME_EVERY)
            {
                match stream.target().tell_time() {
                    Ok(_) => self.told_time = Some(Instant::now()),
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
            }
            let mut go = match stream.next(Instant::now() + PAUSE) {
                Ok(Next::Packet(packet)) => sink.packet(&packet)?,
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
                        // If it does not hear this, it will hear the end of the stream.
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

    /// Makes the connection again.
    ///
    /// # Errors
    /// When that does not work in time, or another program answers.
    fn reconnect(&mut self, target: &TargetArgs, remarks: &Remarks) -> Result<(), Report> {
        let deadline = Instant::now() + Duration::from_secs(self.args.retry);
        loop {
            let error = match target.reach(self.live, remarks) {
                Ok(()) => break,
                Err(error) => error,
            };
            if self.live.cancel.flag().is_cancelled() || Instant::now() >= deadline {
                return Err(error);
            }
            std::thread::sleep(RETRY);
        }
        self.ended.reconnected += 1;
        self.told_time = None;
        Ok(())
    }
}
