//! How a dump is fetched, and how the wait for it ends.
//!
//! A dump has no length, and a target that was built without one of the two kinds does not answer at
//! all. What helps is that it answers `ping`: a `pong` in the place of a dump says that none will come,
//! and a `pong` where records should stand says that the dump is over. Records that come are never
//! disturbed by a question.

use std::time::{Duration, Instant};

use kymo_zephyr_instrumentation::Kind;

use super::{ATTEMPTS, MOST_UNREQUESTED, Target};
use crate::zephyr::replies;
use crate::zephyr::{Arrived, Ended};
use crate::{Cancel, LinkError, Progress};

/// How often it is looked whether a dump that comes still makes sense.
const LOOK: Duration = Duration::from_millis(250);

/// How many times as long as a silence a dump is waited for of which nothing more makes sense, though
/// something comes.
const PATIENCE: u32 = 4;

/// The command for a kind of dump.
const fn command(kind: Kind) -> &'static str {
    match kind {
        Kind::Trace => "dump_trace",
        Kind::Profile => "dump_profile",
    }
}

impl Target {
    /// Fetches what the target has recorded: the dumps that it sent unasked meanwhile, the oldest first,
    /// and the one that was asked for, last. From then on the target records nothing more until it is
    /// rebooted, and of a trace has forgotten what it sent.
    ///
    /// `progress` is called after every piece.
    ///
    /// # Errors
    /// [`LinkError::NotSupported`] if the target does not answer to this, and does to `ping`;
    /// [`LinkError::TimedOut`] if it answers nothing; [`LinkError::Cancelled`], or the connection's. Only
    /// when nothing arrived: a dump that breaks off says so itself, and [`Arrived::missing`] why there is
    /// none beside those that came unasked.
    pub fn dump(
        &mut self,
        kind: Kind,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Arrived, LinkError> {
        let result = self.ask_for_dump(kind, progress, cancel);
        self.sorter.no_longer_requested();
        let dumps = self.sorter.take_dumps();
        let missing = match result {
            Err(error) if dumps.is_empty() => return Err(error),
            Err(error @ LinkError::TooMuch { .. }) => Some(error),
            Err(error) if dumps.iter().all(|dump| dump.unrequested) => Some(error),
            _ => None,
        };
        Ok(Arrived { dumps, missing })
    }

    fn ask_for_dump(
        &mut self,
        kind: Kind,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<(), LinkError> {
        let command = command(kind);
        let started = self.clock.now();
        let mut alive = 0;
        for _ in 0..ATTEMPTS {
            self.print_text();
            self.wait_for_dump(progress, cancel);
            self.sorter.ask();
            self.send(command)?;
            if self.dump_begins(cancel)? {
                self.wait_for_dump(progress, cancel);
            }
            if cancel.is_cancelled() {
                return Err(LinkError::Cancelled);
            }
            // After a dump: one that began unasked just before may have been taken for it.
            let answers = self.answers_ping(progress, cancel);
            if let Err(error @ LinkError::TooMuch { .. }) = answers {
                return Err(error);
            }
            if self.sorter.has_requested() {
                return Ok(());
            }
            if answers? {
                alive += 1;
                if alive == 2 {
                    return Err(LinkError::NotSupported {
                        command: command.to_owned(),
                    });
                }
            }
        }
        Err(LinkError::TimedOut {
            command: command.to_owned(),
            waited: self.clock.since(started),
        })
    }

    /// Waits for a dump to begin; one that has come whole meanwhile has, too.
    fn dump_begins(&mut self, cancel: &Cancel) -> Result<bool, LinkError> {
        let deadline = self.clock.now() + self.timeouts.reply;
        loop {
            if self.sorter.coming().is_some() || self.sorter.has_requested() {
                return Ok(true);
            }
            if let Some((_, range)) = replies::invalid(self.sorter.text()) {
                // It was damaged on the way.
                self.take_reply(range);
                return Ok(false);
            }
            if cancel.is_cancelled() || self.clock.now() >= deadline {
                return Ok(false);
            }
            self.receive(deadline)?;
        }
    }

    /// Whether the target answers one `ping`, maybe behind a dump that comes late.
    fn answers_ping(
        &mut self,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<bool, LinkError> {
        self.send("ping")?;
        let mut deadline = self.clock.now() + self.timeouts.reply;
        let mut dumps = self.sorter.dumps();
        let most = dumps + MOST_UNREQUESTED;
        loop {
            if let Some(((), range)) = replies::pong(self.sorter.text()) {
                self.take_reply(range);
                return Ok(true);
            }
            if self.sorter.coming().is_some() {
                self.wait_for_dump(progress, cancel);
            }
            if self.sorter.dumps() > dumps && dumps < most {
                dumps = self.sorter.dumps();
                deadline = self.clock.now() + self.timeouts.reply;
            } else if cancel.is_cancelled() || self.clock.now() >= deadline {
                return Ok(false);
            }
            self.receive(deadline)?;
        }
    }

    /// Waits until no dump is coming any more, however that ends.
    pub(super) fn wait_for_dump(&mut self, progress: &mut dyn FnMut(Progress), cancel: &Cancel) {
        let mut watch = Watch::new(self.clock.now());
        while let Some(coming) = self.sorter.coming() {
            progress(Progress {
                bytes: coming.bytes() as u64,
                ..Progress::default()
            });
            if cancel.is_cancelled() {
                self.sorter.end_dump(Ended::Cancelled);
                break;
            }
            let now = self.clock.now();
            if now >= watch.look {
                watch.look = now + LOOK;
                let quiet = now.saturating_duration_since(self.heard.max(watch.began));
                let progressed = coming.understood();
                if progressed > watch.understood {
                    watch.understood = progressed;
                    watch.progressed = now;
                }
                if quiet >= self.timeouts.silence {
                    self.sorter.end_dump(Ended::Silent { waited: quiet });
                    break;
                }
                let stuck = now.saturating_duration_since(watch.progressed);
                let doubt = (quiet >= self.timeouts.stall)
                    || (stuck >= self.timeouts.stall && coming.doubtful())
                    || (stuck >= self.timeouts.silence);
                if doubt && self.sorter.end_dump_at_pong() {
                    break;
                }
                if stuck >= self.timeouts.silence * PATIENCE {
                    self.sorter.end_dump(Ended::Cut);
                    break;
                }
                if doubt && now >= watch.ping {
                    watch.ping = now + self.timeouts.stall;
                    if let Err(error) = self.send("ping") {
                        self.sorter.end_dump(Ended::Disconnected(error.to_string()));
                        break;
                    }
                }
            }
            let deadline = now + LOOK;
            match self.receive(deadline) {
                Ok(()) => {}
                Err(LinkError::TooMuch { .. }) => {
                    self.sorter.end_dump(Ended::TooLong);
                    break;
                }
                Err(error) => {
                    self.sorter.end_dump(Ended::Disconnected(error.to_string()));
                    break;
                }
            }
        }
    }
}

/// What is known of a dump while it comes.
struct Watch {
    /// When the wait began.
    began: Instant,
    /// How much of it is understood.
    understood: u64,
    /// When that grew last.
    progressed: Instant,
    /// When to look again.
    look: Instant,
    /// When a `ping` may be sent again.
    ping: Instant,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Self {
            began: now,
            understood: 0,
            progressed: now,
            look: now,
            ping: now,
        }
    }
}
