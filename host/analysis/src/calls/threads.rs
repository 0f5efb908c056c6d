//! Which thread has which processor, and what threads are called.

use kymo_event::{Event, ThreadId, Time};

use super::Calls;
use super::step::{Step, TrackKind};

impl Calls {
    /// A thread gets a processor. Whoever had it, and wherever the thread was, that is over.
    pub(super) fn switch_in(
        &mut self,
        lane: usize,
        track: usize,
        time: Time,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let before = self.lanes[lane].thread;
        self.lanes[lane].unsure = false;
        if before == Some(track) {
            return;
        }
        let elsewhere = self.tracks[track].on;
        let nobody = self.lanes[lane].nobody == Some(track);
        if !recorded
            && !nobody
            && (before.or(elsewhere).is_some() || self.lanes[lane].left.is_some())
        {
            self.counts.implied_switches += 1;
        }
        if let Some(before) = before {
            self.leave(lane, before, time, false, out);
            self.lanes[lane].crossed = Some(before);
        }
        if let Some(elsewhere) = elsewhere {
            self.leave(elsewhere, track, time, false, out);
        }
        self.lanes[lane].thread = Some(track);
        self.lanes[lane].left = None;
        self.tracks[track].on = Some(lane);
        self.tracks[track].last_on = Some(lane);
        self.state(lane, track, time, true, recorded, out);
    }

    /// A thread loses its processor, as the trace tells.
    pub(super) fn switch_out(
        &mut self,
        lane: usize,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let named = event.thread.or(self.lanes[lane].owner);
        let running = self.lanes[lane].thread;
        let track = match (named, running) {
            (None, Some(running)) => running,
            _ => self.thread_of(lane, event, out),
        };
        if let Some(other) = running.filter(|running| *running != track) {
            self.counts.implied_switches += 1;
            self.leave(lane, other, event.time, false, out);
        }
        self.leave(lane, track, event.time, true, out);
        self.lanes[lane].left = Some(track);
        self.lanes[lane].crossed = Some(track);
        // It may run, unseen, on a processor whose events are being lost.
        if !self.in_gap.is_empty() {
            self.lose(track, event.time, out);
        }
    }

    /// A thread loses its processor.
    pub(super) fn leave(
        &mut self,
        lane: usize,
        track: usize,
        time: Time,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        if self.lanes[lane].thread == Some(track) {
            self.lanes[lane].thread = None;
        }
        if self.tracks[track].on == Some(lane) {
            self.tracks[track].on = None;
        }
        self.state(lane, track, time, false, recorded, out);
    }

    fn state(
        &self,
        lane: usize,
        track: usize,
        time: Time,
        running: bool,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = &self.tracks[track];
        // Nobody is not a thread.
        if track.info.kind != (TrackKind::Thread { thread: None }) {
            let cpu = self.lanes[lane].cpu();
            out(Step::State {
                track: track.id,
                time,
                cpu,
                running,
                recorded,
            });
        }
    }

    /// The name of a thread is known.
    pub(super) fn name_thread(
        &mut self,
        thread: ThreadId,
        name: &str,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) {
        self.thread_names.insert(thread, name.to_owned());
        let track = self.threads.get(&thread).copied();
        if let Some(track) = track {
            self.rename(track, name, out);
        }
        out(Step::Event {
            track: track.map(|track| self.id(track)),
            event,
        });
    }

    /// Names a track, and tells if that is news.
    pub(super) fn rename(&mut self, track: usize, name: &str, out: &mut impl FnMut(Step<'_>)) {
        let track = &mut self.tracks[track];
        if track.info.name.as_deref() != Some(name) {
            track.info.name = Some(name.to_owned());
            out(Step::Track {
                track: track.id,
                info: &track.info,
            });
        }
    }
}
