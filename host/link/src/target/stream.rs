//! Receives a stream: requests it, collects the pieces, and acknowledges them.
//!
//! The target sends on its own. Meanwhile the host sends three things: acknowledgements, so that the target can reuse
//! the slots of acknowledged packets ([`ACK_PIECES`], [`ACK_EVERY`]); requests for missing pieces; and, when nothing
//! arrives, an occasional question to check that the target is still there. All other commands work during a stream:
//! pieces that arrive while an answer is awaited are added to the stream.

use std::time::{Duration, Instant};

use kymo_wire::link::Command;

use super::clock::ClockReading;
use super::{Incoming, Target, protocol, refused};
use crate::LinkError;
use crate::reply::Words;
use crate::stream::Sequence;

/// Number of new pieces that are acknowledged immediately.
const ACK_PIECES: u32 = 8;

/// Delay after which fewer pieces are acknowledged.
const ACK_EVERY: Duration = Duration::from_millis(50);

/// Interval of acknowledgements without news: they make the target send again what it assumes has arrived.
const ACK_IDLE: Duration = Duration::from_millis(500);

/// Number of time requests; the fastest answer counts.
const TIME_QUESTIONS: u32 = 8;

/// Receiving end of a stream. The target owns it, so that pieces reach it whatever else the host is waiting for.
#[derive(Debug)]
pub(super) struct Receiving {
    /// Number of the request that started the stream.
    request: u8,
    sequence: Sequence,
    /// The last acknowledged number, and when.
    acked: u32,
    acked_at: Instant,
    ack_request: Option<u8>,
    /// Why the target refuses acknowledgements: it no longer has a stream.
    refused: Option<String>,
    /// The first piece of the last request for missing ones, and when.
    requested: Option<(u32, Instant)>,
    /// When the last new piece or answer arrived.
    heard: Instant,
    /// How often pieces were requested again.
    resends: u64,
}

impl Receiving {
    /// Consumes a frame of the stream that was received `now`; returns any other.
    pub(super) fn take(&mut self, incoming: Incoming, now: Instant) -> Option<Incoming> {
        match incoming {
            Incoming::Data {
                request,
                number,
                bytes,
            } if request == self.request => {
                if self.sequence.take(number, bytes) {
                    self.heard = now;
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

/// The time of day that was sent to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// The reading of the target's clock.
    pub ticks: u64,
    /// Nanoseconds since 1970 UTC at that reading.
    pub ns: u64,
    /// Uncertainty in nanoseconds, either way.
    pub uncertainty: u32,
}

/// Result of [`Stream::next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A complete packet.
    Packet(Vec<u8>),
    /// Nothing arrived before the deadline.
    Nothing,
    /// The stream was [stopped](Stream::stop), and everything has arrived.
    Over,
}

/// A stream of packets from a target that continues to record.
///
/// After a drop the target sends until it notices that there are no acknowledgements (some seconds), and then keeps its
/// packets; [`stop`](Self::stop) ends the stream properly.
pub struct Stream<'t> {
    target: &'t mut Target,
    stopping: bool,
    /// When the command to stop was last sent.
    reported: Option<Instant>,
    over: bool,
    /// Number of abandoned streams that the target reported at the end ([`Stream::withheld`]).
    withheld: u64,
}

impl Target {
    /// Starts a stream: the target sends packets as they become full and, at intervals of `flush`, the contents of
    /// packets that are not (zero: full packets only).
    ///
    /// # Errors
    /// As [`command`](Self::command): [`LinkError::Refused`] if the target cannot stream.
    pub fn stream(&mut self, flush: Duration) -> Result<Stream<'_>, LinkError> {
        let layout = self.identity()?.layout;
        let flush_ms = u32::try_from(flush.as_millis()).unwrap_or(u32::MAX);
        let command = Command::StreamOn { flush_ms };
        let request = self.next_request();
        let now = self.clock.now();
        // Pieces may arrive before the answer.
        self.receiving = Some(Receiving {
            request,
            sequence: Sequence::new(layout),
            acked: 0,
            acked_at: now,
            ack_request: None,
            refused: None,
            requested: None,
            heard: now,
            resends: 0,
        });
        match self.insist(request, command) {
            Ok(_) => Ok(Stream {
                target: self,
                stopping: false,
                reported: None,
                over: false,
                withheld: 0,
            }),
            Err(error) => {
                self.receiving = None;
                Err(error)
            }
        }
    }

    /// Sends the time of day to the target, which records it if it is recording; returns what was sent.
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`LinkError::Protocol`].
    pub fn send_time(&mut self) -> Result<Reported, LinkError> {
        let ClockReading {
            ticks, wall, half, ..
        } = self.ask_clock(TIME_QUESTIONS)?;
        let reported = Reported {
            ticks,
            ns: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
            uncertainty: u32::try_from(half.as_nanos()).unwrap_or(u32::MAX),
        };
        let Reported {
            ticks,
            ns,
            uncertainty,
        } = reported;
        self.command(Command::WallClock {
            ticks,
            ns,
            uncertainty,
        })?;
        Ok(reported)
    }
}

impl Stream<'_> {
    /// The target, for other commands during the stream.
    pub fn target(&mut self) -> &mut Target {
        self.target
    }

    /// Stops the stream: the target sends only what it has recorded up to now. That still arrives through
    /// [`next`](Self::next), which then returns [`Next::Over`].
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// How often pieces had to be requested again.
    pub fn resends(&self) -> u64 {
        self.receiving().map_or(0, |receiving| receiving.resends)
    }

    /// Number of received pieces that belong to no packet; only a target that violates the protocol sends them.
    pub fn stray(&self) -> u64 {
        self.receiving()
            .map_or(0, |receiving| receiving.sequence.stray())
    }

    /// Number of the target's streams that are incomplete although the stream is [over](Next::Over), because the
    /// program has not finished writing a record in them.
    pub const fn withheld(&self) -> u64 {
        self.withheld
    }

    const fn receiving(&self) -> Option<&Receiving> {
        self.target.receiving.as_ref()
    }

    /// Waits for the next packet, not beyond `deadline`.
    ///
    /// # Errors
    /// The connection's; [`LinkError::TimedOut`] when the target has been silent for long and does not answer a
    /// question either; [`LinkError::Refused`] when it has ended the stream (after a reset, or because it received
    /// nothing for too long), so that a new one must be started.
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
            if self.target.clock.now() >= deadline {
                return Ok(Next::Nothing);
            }
            let soon = self.target.clock.now() + ACK_EVERY;
            self.target.receive(soon.min(deadline))?;
        }
    }

    /// Sends due acknowledgements and requests for missing pieces, and checks that the target is still there.
    fn say_what_is_to_say(&mut self) -> Result<(), LinkError> {
        let stall = self.target.timeouts.stall;
        let silence = self.target.timeouts.silence;
        let Some(receiving) = self.target.receiving.as_mut() else {
            return Ok(());
        };
        let now = self.target.clock.now();
        let arrived = receiving.sequence.arrived();
        let new = arrived.wrapping_sub(receiving.acked);
        let waited = now - receiving.acked_at;
        let idle = now - receiving.heard;
        let missing = receiving.sequence.missing().filter(|missing| {
            let again = |(first, at)| first != *missing.start() || now >= at + stall;
            receiving.requested.is_none_or(again)
        });
        if let Some(missing) = &missing {
            receiving.requested = Some((*missing.start(), now));
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
        if self.stopping
            && self
                .reported
                .is_none_or(|reported| now >= reported + ACK_EVERY * 2)
        {
            self.send_stop()?;
            self.reported = Some(self.target.clock.now());
        } else if idle > silence / 4 {
            self.target.command(Command::Ping)?;
            let now = self.target.clock.now();
            if let Some(receiving) = self.target.receiving.as_mut() {
                receiving.heard = now;
            }
        }
        Ok(())
    }

    /// Sends the command to stop and processes its answer.
    fn send_stop(&mut self) -> Result<(), LinkError> {
        let command = Command::StreamOff;
        let text = self.target.command(command)?;
        let words = Words(&text);
        let sending = words.number("sending");
        let over = sending.map_err(|source| protocol(command, source))? == 0;
        // Then everything sent has arrived: the target waits for the last acknowledgement. A target whose stream ended
        // in another way refuses; an older one replies the same without a number, and maybe with more.
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
