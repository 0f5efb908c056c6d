//! How a stream is received: ask for it, take what comes, say what has arrived.
//!
//! The target sends on its own. The host has three things to say meanwhile: what has arrived, so that
//! the target can give the places of its packets to new ones ([`ACK_PIECES`], [`ACK_EVERY`]); what is
//! missing; and now and then a question, when nothing comes, to learn whether the target is still
//! there. All other commands work meanwhile too: the pieces that come while an answer is waited for are
//! taken in.

use std::time::{Duration, Instant};

use kymo_wire::link::Command;

use super::clock::ClockReading;
use super::{Incoming, Target, protocol, refused};
use crate::LinkError;
use crate::reply::Words;
use crate::stream::Sequence;

/// After how many new pieces they are acknowledged at once.
const ACK_PIECES: u32 = 8;

/// How soon fewer pieces are acknowledged.
const ACK_EVERY: Duration = Duration::from_millis(50);

/// How often an acknowledgement without news is sent: that makes it send again what it thinks
/// has arrived.
const ACK_IDLE: Duration = Duration::from_millis(500);

/// How often the time is asked for, to have one answer that came back soon.
const TIME_QUESTIONS: u32 = 8;

/// What a target knows of a stream that it receives; it stands in the target so that all that arrives,
/// whatever else is being waited for, gets here.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The number of the request that began it.
    request: u8,
    sequence: Sequence,
    /// The last number that was acknowledged, and when.
    acked: u32,
    acked_at: Instant,
    ack_request: Option<u8>,
    /// Why the target refuses an acknowledgement: for it there is no stream any more.
    refused: Option<String>,
    /// From which piece on the missing ones were asked for last, and when.
    asked: Option<(u32, Instant)>,
    /// When the last new piece came, or an answer.
    heard: Instant,
    /// How often pieces were asked for again.
    resends: u64,
}

impl Receiving {
    /// Takes what is of the stream out of what has arrived.
    pub(super) fn take(&mut self, incoming: Incoming) -> Option<Incoming> {
        match incoming {
            Incoming::Data {
                request,
                number,
                bytes,
            } if request == self.request => {
                if self.sequence.take(number, bytes) {
                    self.heard = Instant::now();
                }
                None
            }
            Incoming::Reply {
                request,
                ok: false,
                text,
            } if Some(request) == self.ack_request => {
                self.refused = Some(text);
                None
            }
            other => Some(other),
        }
    }
}

/// The time of day as it was sent to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// What its own clock showed.
    pub ticks: u64,
    /// Nanoseconds since 1970 UTC at that moment.
    pub ns: u64,
    /// By how many that may be wrong, either way.
    pub uncertainty: u32,
}

/// What a stream gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A packet, whole.
    Packet(Vec<u8>),
    /// Nothing came in the time that was given.
    Nothing,
    /// It was [stopped](Stream::stop), and everything has come.
    Over,
}

/// A stream of packets from a target that goes on recording.
///
/// When this is dropped, the target sends until it notices that nobody answers (some seconds), and then
/// keeps what there is; [`stop`](Self::stop) ends it properly.
pub struct Stream<'t> {
    target: &'t mut Target,
    stopping: bool,
    /// When the command to stop was last sent.
    told: Option<Instant>,
    over: bool,
    /// What the target said at the end ([`Stream::withheld`]).
    withheld: u64,
}

impl Target {
    /// Lets the target stream: packets as they become full, and every `flush` what there is of those
    /// that are not (zero: full packets only).
    ///
    /// # Errors
    /// As [`command`](Self::command): [`LinkError::Refused`] if the target cannot stream.
    pub fn stream(&mut self, flush: Duration) -> Result<Stream<'_>, LinkError> {
        let layout = self.identity()?.layout;
        let flush_ms = u32::try_from(flush.as_millis()).unwrap_or(u32::MAX);
        let command = Command::StreamOn { flush_ms };
        let request = self.next_request();
        let now = Instant::now();
        // Before the answer, pieces may come.
        self.receiving = Some(Receiving {
            request,
            sequence: Sequence::new(layout),
            acked: 0,
            acked_at: now,
            ack_request: None,
            refused: None,
            asked: None,
            heard: now,
            resends: 0,
        });
        match self.insist(request, command) {
            Ok(_) => Ok(Stream {
                target: self,
                stopping: false,
                told: None,
                over: false,
                withheld: 0,
            }),
            Err(error) => {
                self.receiving = None;
                Err(error)
            }
        }
    }

    /// Tells the target the time of day, which it records if it records anything at the moment; returns
    /// what it was told.
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`LinkError::Protocol`].
    pub fn tell_time(&mut self) -> Result<Told, LinkError> {
        let ClockReading {
            ticks, wall, half, ..
        } = self.ask_clock(TIME_QUESTIONS)?;
        let told = Told {
            ticks,
            ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            uncertainty: u32::try_from(half.as_nanos()).unwrap_or(u32::MAX),
        };
        let Told {
            ticks,
            ns,
            uncertainty,
        } = told;
        self.command(Command::WallClock {
            ticks,
            ns,
            uncertainty,
        })?;
        Ok(told)
    }
}

impl Stream<'_> {
    /// The target, to give it other commands meanwhile.
    pub fn target(&mut self) -> &mut Target {
        self.target
    }

    /// Asks the target for no more than what was recorded up to now. That still comes, through
    /// [`next`](Self::next), which then says [`Next::Over`].
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// How often pieces had to be asked for again.
    pub fn resends(&self) -> u64 {
        self.receiving().map_or(0, |receiving| receiving.resends)
    }

    /// How many pieces the target sent that belong to no packet; only one that does not keep to the
    /// protocol does.
    pub fn stray(&self) -> u64 {
        self.receiving()
            .map_or(0, |receiving| receiving.sequence.stray())
    }

    /// Of how many of the target's streams something did not come although the stream is
    /// [over](Next::Over), because the program is filling a record in it and has not finished it.
    pub const fn withheld(&self) -> u64 {
        self.withheld
    }

    const fn receiving(&self) -> Option<&Receiving> {
        self.target.receiving.as_ref()
    }

    /// Waits for the next packet, not beyond `deadline`.
    ///
    /// # Errors
    /// The connection's; [`LinkError::TimedOut`] when the target has been silent for long and does
    /// not answer a question either; [`LinkError::Refused`] when it has ended the stream (it was reset,
    /// or has heard nothing for too long), so that it must be begun anew.
    pub fn next(&mut self, deadline: Instant) -> Result<Next, LinkError> {
        loop {
            let packet = self.target.receiving.as_mut();
            if let Some(packet) = packet.and_then(|receiving| receiving.sequence.pop()) {
                return Ok(Next::Packet(packet));
            }
            if self.over {
                return Ok(Next::Over);
            }
            let receiving = self.target.receiving.as_mut();
            if let Some(reason) = receiving.and_then(|receiving| receiving.refused.take()) {
                return Err(refused(Command::Ack(0), reason));
            }
            self.say_what_is_to_say()?;
            if self.over {
                continue;
            }
            if Instant::now() >= deadline {
                return Ok(Next::Nothing);
            }
            let soon = Instant::now() + ACK_EVERY;
            self.target.receive(soon.min(deadline))?;
        }
    }

    /// Tells the target what has arrived and what has not, and asks it whether it is still there.
    fn say_what_is_to_say(&mut self) -> Result<(), LinkError> {
        let stall = self.target.timeouts.stall;
        let silence = self.target.timeouts.silence;
        let Some(receiving) = self.target.receiving.as_mut() else {
            return Ok(());
        };
        let now = Instant::now();
        let arrived = receiving.sequence.arrived();
        let new = arrived.wrapping_sub(receiving.acked);
        let waited = now - receiving.acked_at;
        let idle = now - receiving.heard;
        let missing = receiving.sequence.missing().filter(|missing| {
            let again = |(first, at)| first != *missing.start() || now >= at + stall;
            receiving.asked.is_none_or(again)
        });
        if let Some(missing) = &missing {
            receiving.asked = Some((*missing.start(), now));
            receiving.resends += 1;
        }
        if new >= ACK_PIECES || (new > 0 && waited >= ACK_EVERY) || waited >= ACK_IDLE {
            (receiving.acked, receiving.acked_at) = (arrived, now);
            let request = self.target.next_request();
            if let Some(receiving) = self.target.receiving.as_mut() {
                receiving.ack_request = Some(request);
            }
            self.target.send(request, Command::Ack(arrived))?;
        }
        if let Some(missing) = missing {
            let request = self.target.next_request();
            let (first, last) = missing.into_inner();
            self.target.send(request, Command::Resend { first, last })?;
        }
        if self.stopping && self.told.is_none_or(|told| now >= told + ACK_EVERY * 2) {
            self.tell_to_stop()?;
            self.told = Some(Instant::now());
        } else if idle > silence / 4 {
            self.target.command(Command::Ping)?;
            if let Some(receiving) = self.target.receiving.as_mut() {
                receiving.heard = Instant::now();
            }
        }
        Ok(())
    }

    /// Tells the target to stop, and hears whether it has.
    fn tell_to_stop(&mut self) -> Result<(), LinkError> {
        let command = Command::StreamOff;
        let text = self.target.command(command)?;
        let words = Words(&text);
        let sending = words.number("sending");
        let over = sending.map_err(|source| protocol(command, source))? == 0;
        // What was sent has arrived then: the target waits for the last acknowledgement. One whose
        // stream ended in another way refuses; an older one says the same, and maybe tells of more.
        let arrived = self.receiving().map(|it| u64::from(it.sequence.arrived()));
        if over
            && let (Ok(pieces), Some(arrived)) = (words.number("pieces"), arrived)
            && pieces != arrived
        {
            let reason =
                format!("of {pieces} pieces {arrived} have arrived, and no stream is going on");
            return Err(refused(command, reason));
        }
        self.over = over;
        self.withheld = words.number("reserved").unwrap_or(0);
        Ok(())
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.target.receiving = None;
    }
}
