//! What is missing: lost events, a clock in doubt, recording turned off.

use kymo_event::{Event, Gap, StreamId, Time};

use super::functions::unfinished;
use super::step::{How, Step};
use super::track::Track;
use super::{Calls, LOSSES_SURVIVED};

impl Calls {
    /// Takes a gap: a loss, or a clock in doubt.
    pub(super) fn gap(&mut self, gap: &Gap, event: &Event, out: &mut impl FnMut(Step<'_>)) {
        let own = self.lane(event);
        let track = self.lanes[own].running().map(|track| self.id(track));
        out(Step::Event { track, event });
        let loss = gap.lost_events() != Some(0);
        self.counts.losses += u64::from(loss);
        match gap {
            // Whoever shows events has told of it; calls are whole. (What is damaged may have been
            // another stream's.)
            Gap::Discarded { .. }
            | Gap::LostPackets { .. }
            | Gap::Overwritten { .. }
            | Gap::InInterrupt { .. }
                if self.has_no_calls(event.stream) =>
            {
                return;
            }
            _ if loss => {}
            Gap::Clock(_) => self.counts.clock_doubts += 1,
            Gap::InInterrupt { depth } => {
                self.advance(own, event.time, out);
                self.nobody(own, event.stream, out);
                self.lanes[own].unseen = *depth;
                return;
            }
            // The next event shows it, but if its time was put right ([`crate::steady`]).
            Gap::TimeBackward { .. } => {
                self.counts.clock_doubts += 1;
                for lane in 0..self.lanes.len() {
                    if self.lanes[lane].stream == event.stream {
                        self.lanes[lane].told = true;
                        self.each_touched(lane, Track::doubt_clock);
                    }
                }
                return;
            }
            _ => return,
        }
        if loss && !self.in_gap.contains(&event.stream) {
            self.in_gap.push(event.stream);
        }
        // A stream can hold the events of several processors.
        for lane in 0..self.lanes.len() {
            if lane != own && self.lanes[lane].stream != event.stream {
                continue;
            }
            if loss {
                self.lose_lane(lane, event.time, out);
            } else {
                self.each_touched(lane, Track::doubt_clock);
            }
        }
    }

    /// Whether a stream is known to hold nothing that calls are rebuilt from.
    fn has_no_calls(&self, stream: StreamId) -> bool {
        let stream = usize::try_from(stream.0)
            .ok()
            .and_then(|i| self.streams.get(i));
        stream.is_some_and(|stream| stream.without_calls)
    }

    /// Events of a processor are lost from here on.
    fn lose_lane(&mut self, lane: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        self.lanes[lane].unsure = true;
        self.lanes[lane].crossed = None;
        self.lanes[lane].unforeseen = 0;
        let mut stale = Vec::new();
        self.each_touched(lane, |track| {
            stale.extend(track.lose(LOSSES_SURVIVED).map(|depth| (track.id, depth)));
        });
        // Handlers are short: that one goes on behind the loss is less likely than that its end
        // was lost, and taking it to go on would charge it for everything that follows.
        self.end_interrupts(lane, 0, time, unfinished, out);
        for (track, depth) in stale {
            self.close(track.0 as usize, depth, time, unfinished, out);
        }
    }

    /// A thread may have done anything from here on.
    pub(super) fn lose(&mut self, track: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        if let Some(depth) = self.tracks[track].lose(LOSSES_SURVIVED) {
            self.close(track, depth, time, unfinished, out);
        }
    }

    /// Recording goes on or off, everywhere.
    pub(super) fn recording(
        &mut self,
        lane: usize,
        on: bool,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = self.context(lane, event, out);
        let track = Some(self.id(track));
        let before = self.recording.replace(on);
        if on {
            // Of what is being served now, the beginnings are recorded behind this.
            self.lanes[lane].unseen = 0;
            out(Step::Event { track, event });
            if before == Some(true) {
                // That it was off in between is among what was lost.
                self.counts.losses += 1;
                for lane in 0..self.lanes.len() {
                    self.lose_lane(lane, event.time, out);
                }
                self.in_gap.clear();
            }
            return;
        }
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].last.is_some_and(|last| last < event.time)
                && self.lanes[lane].owner.is_none()
            {
                self.advance(lane, event.time, out);
            }
            self.end_interrupts(lane, 0, event.time, |_| How::RecordingOff, out);
        }
        for track in 0..self.tracks.len() {
            self.close(track, 0, event.time, |_| How::RecordingOff, out);
        }
        for lane in 0..self.lanes.len() {
            if let Some(thread) = self.lanes[lane].thread {
                self.leave(lane, thread, event.time, false, out);
            }
            // What passes until recording is on again is nobody's.
            self.lanes[lane].left = None;
            self.lanes[lane].crossed = None;
            self.lanes[lane].last = None;
        }
        out(Step::Event { track, event });
    }
}
