//! Fetches a dump: requests it, collects the pieces, and requests missing pieces again.
//!
//! One dump takes several requests: the command itself, then a `resend` for each run of missing pieces. A [`Round`] is
//! the state of the current request. The host sends the next request when the target reports the end of the last, or
//! when nothing has arrived for a while. It gives up when the target has been silent for long, or keeps sending without
//! the missing pieces.

use std::error::Error;

use kymo_wire::link::Command;

use super::{Incoming, Target, protocol, refused};
use crate::dump::{Extent, Pieces, limit_of};
use crate::reply::Words;
use crate::{Cancel, Dump, Ended, LinkError, Progress, ReplyError};

/// How many rounds of a dump in a row may bring nothing new before the host gives up.
const IDLE_ROUNDS: u32 = 20;

impl Target {
    /// Fetches the dump that `command` requests, a second time if the checksum of the whole is wrong.
    pub(super) fn dump(
        &mut self,
        command: Command,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Dump, LinkError> {
        let limit = limit_of(&self.identify()?);
        let damaged_before = self.damaged;
        self.began = None;
        // Includes the pieces of a first attempt: they took time.
        let mut resent = 0;
        let mut again = true;
        loop {
            let mut pieces = Pieces::new(limit);
            let result = self.fetch(command, &mut pieces, &mut resent, progress, cancel);
            // If this is lost, the target still continues after a while.
            let _ = self.finish_dump();
            let mut ended = match result {
                Ok(ended) => ended,
                Err(error) if pieces.is_empty() => return Err(error),
                Err(LinkError::Refused { .. }) if self.has_restarted() => Ended::Restarted,
                Err(LinkError::Refused { reason, .. }) => Ended::Refused(reason),
                Err(LinkError::TooMuch { limit }) => Ended::TooLong { limit },
                Err(error) => Ended::Disconnected(with_cause(&error)),
            };
            let (bytes, total, missing, right) = pieces.assemble();
            if ended == Ended::Whole && !right {
                if std::mem::take(&mut again) {
                    continue;
                }
                ended = Ended::Changed;
            }
            let identity = self.identity()?;
            return Ok(Dump {
                identity,
                bytes,
                total,
                missing,
                ended,
                damaged: self.damaged - damaged_before,
                resent,
            });
        }
    }

    /// Whether the target has restarted: its clock shows less than it must have reached since the dump began. The check
    /// requires only half of the elapsed time, because a clock need not be exact. False if the target does not report
    /// its clock.
    fn has_restarted(&mut self) -> bool {
        let hz = self.identity.map_or(0, |identity| identity.clock_hz);
        let Some((before, began)) = self.began.take() else {
            return false;
        };
        let Ok(text) = self.command(Command::Time) else {
            return false;
        };
        let Ok(now) = Words(&text).number("ticks") else {
            return false;
        };
        let passed = self
            .clock
            .since(began)
            .as_millis()
            .saturating_mul(hz.into())
            / 2000;
        u128::from(now) < u128::from(before).saturating_add(passed)
    }

    /// Tells the target that it may resume.
    fn finish_dump(&mut self) -> Result<(), LinkError> {
        let request = self.next_request();
        self.send(request, Command::Done)?;
        let deadline = self.clock.now() + self.timeouts.reply;
        self.reply(request, Command::Done, deadline)?;
        Ok(())
    }

    /// Sends the dump command and collects the pieces, requesting missing ones again.
    fn fetch(
        &mut self,
        command: Command,
        pieces: &mut Pieces,
        resent: &mut u64,
        progress: &mut dyn FnMut(Progress),
        cancel: &Cancel,
    ) -> Result<Ended, LinkError> {
        let mut round = Round {
            first: self.next_request(),
            ..Round::default()
        };
        round.last = round.first;
        self.send(round.first, command)?;
        let started = self.clock.now();
        let mut heard = started;
        let mut requested = started;
        let mut idle_rounds = 0;
        loop {
            if cancel.is_cancelled() {
                return if pieces.is_empty() {
                    Err(LinkError::Cancelled)
                } else {
                    Ok(Ended::Cancelled)
                };
            }
            self.receive(requested.max(heard) + self.timeouts.stall)?;
            while let Some(incoming) = self.inbox.pop_front() {
                let again = matches!(&incoming, Incoming::Data { request, .. }
                    if *request != round.first);
                if let Incoming::Reply { ok: true, text, .. } = &incoming
                    && self.began.is_none()
                    && let Ok(ticks) = Words(text).number("ticks")
                {
                    self.began = Some((ticks, self.clock.now()));
                }
                if round.take(incoming, command, pieces)? {
                    *resent += u64::from(again);
                    heard = self.clock.now();
                    progress(Progress {
                        bytes: pieces.bytes(),
                        total: pieces.extent().map(|extent| extent.bytes),
                        resent: *resent,
                    });
                }
                if pieces.is_too_long() {
                    return Err(LinkError::TooMuch {
                        limit: pieces.limit(),
                    });
                }
            }
            let missing = pieces.first_missing();
            if pieces.extent().is_some() && missing.is_none() && pieces.has_crc() {
                return Ok(Ended::Whole);
            }
            let now = self.clock.now();
            if !round.over && now < requested.max(heard) + self.timeouts.stall {
                continue;
            }
            // The target has sent everything requested, or has stopped: request the missing pieces.
            self.give_up_frame();
            if now >= heard + self.timeouts.silence {
                let waited = now - heard;
                return if pieces.is_empty() {
                    Err(LinkError::TimedOut {
                        command: command.to_string(),
                        waited,
                    })
                } else {
                    Ok(Ended::Silent { waited })
                };
            }
            idle_rounds = if round.news { 0 } else { idle_rounds + 1 };
            if idle_rounds > IDLE_ROUNDS {
                return Ok(Ended::Incomplete);
            }
            requested = now;
            if pieces.is_empty() && pieces.extent().is_none() {
                round.begin(round.first);
                self.send(round.first, command)?;
                continue;
            }
            // If only the size or the checksum is missing, any piece will bring it.
            let range = missing.unwrap_or(0..1);
            // Request numbers wrap around; the number of the announcing reply stays reserved.
            let request = match self.next_request() {
                first if first == round.first => self.next_request(),
                other => other,
            };
            round.begin(request);
            self.send(
                request,
                Command::Resend {
                    first: range.start,
                    last: range.end - 1,
                },
            )?;
        }
    }
}

/// State of a dump that is being fetched, over several requests.
#[derive(Debug, Default)]
struct Round {
    /// Number of the request that began the dump.
    first: u8,
    /// Number of the request that is being answered.
    last: u8,
    /// Whether the numbers have wrapped around since the first.
    wrapped: bool,
    /// Whether the answer has ended.
    over: bool,
    /// Whether the answer has brought something new.
    news: bool,
}

impl Round {
    /// Begins a round with another request.
    fn begin(&mut self, request: u8) {
        self.wrapped |= self.since_first(request) < self.since_first(self.last);
        self.last = request;
        self.over = false;
        self.news = false;
    }

    /// Whether an answer belongs to this dump. Numbers wrap around after 256 requests, so with more of them any number
    /// may.
    fn owns(&self, request: u8) -> bool {
        self.wrapped || self.since_first(request) <= self.since_first(self.last)
    }

    /// Number of requests from the first to this one.
    const fn since_first(&self, request: u8) -> u8 {
        request.wrapping_sub(self.first)
    }

    /// Processes a frame; returns whether it belongs to the dump.
    fn take(
        &mut self,
        incoming: Incoming,
        command: Command,
        pieces: &mut Pieces,
    ) -> Result<bool, LinkError> {
        match incoming {
            Incoming::Reply { request, ok, text } if self.owns(request) => {
                if !ok {
                    return Err(refused(command, text));
                }
                // Only one reply announces the size. It may arrive twice if the command was repeated.
                if request == self.first && pieces.extent().is_none() {
                    pieces.set_extent(extent_of(&text).map_err(|e| protocol(command, e))?);
                    self.news = true;
                }
                Ok(true)
            }
            Incoming::Data {
                request,
                number,
                bytes,
            } if self.owns(request) => {
                self.news |= pieces.insert(number, &bytes);
                Ok(true)
            }
            Incoming::End {
                request,
                frames,
                bytes,
                crc,
            } if self.owns(request) => {
                let extent = Extent::new(bytes.into(), frames.into()).ok_or_else(|| {
                    let source = ReplyError {
                        expected: "an end with as many pieces as its bytes need".to_owned(),
                        found: format!("{bytes} bytes in {frames} pieces"),
                    };
                    protocol(command, source)
                })?;
                self.news |= pieces.extent().is_none() || !pieces.has_crc();
                pieces.set_extent(extent);
                pieces.set_crc(crc);
                self.over |= request == self.last;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Parses the size of a dump from the reply that announces it.
fn extent_of(text: &str) -> Result<Extent, ReplyError> {
    let words = Words(text);
    Extent::new(words.number("bytes")?, words.number("frames")?).ok_or_else(|| ReplyError {
        expected: "as many frames as the bytes need".to_owned(),
        found: text.to_owned(),
    })
}

/// An error with the system's error.
fn with_cause(error: &LinkError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
