//! Assignment of threads to processors, and names of threads.

use kymo_event::{EventRef, Row, ThreadId, Time};

use super::Calls;
use super::cpu_state::Handlers;
use super::output::{Step, TrackKind};

impl Calls {
    /// Gives a thread a processor. The thread that had it loses it, and this thread loses the one that it had.
    pub(super) fn switch_in(
        &mut self,
        cpu: usize,
        track: usize,
        time: Time,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let before = self.cpus[cpu].thread;
        self.cpus[cpu].unsure = false;
        if before == Some(track) {
            return;
        }
        let elsewhere = self.tracks[track].on;
        let nobody = self.cpus[cpu].nobody == Some(track);
        if !recorded && !nobody && (before.or(elsewhere).is_some() || self.cpus[cpu].left.is_some())
        {
            self.counts.implied_switches += 1;
        }
        if let Some(before) = before {
            self.leave(cpu, before, time, false, out);
            self.cpus[cpu].crossed = Some(before);
        }
        if let Some(elsewhere) = elsewhere {
            // CPU states that the other processor's streams remember become invalid.
            self.epoch += 1;
            self.leave(elsewhere, track, time, false, out);
        }
        self.cpus[cpu].thread = Some(track);
        self.cpus[cpu].left = None;
        if self.cpus[cpu].handlers != Handlers::Known {
            // A handler whose begin was not seen may have switched it in, and would be charged to the thread. (Not if
            // the thread made calls here since: then the thread runs, not a handler.)
            if self.tracks[track].last_on.is_some_and(|last| last != cpu) {
                self.tracks[track].doubt_loss();
            }
            self.cpus[cpu].handlers = Handlers::UnknownAtSwitch;
        }
        self.put_on(cpu, track, time);
        self.state(cpu, track, time, true, recorded, out);
    }

    /// Processes a recorded switch out.
    pub(super) fn switch_out(&mut self, cpu: usize, row: &Row, out: &mut impl FnMut(Step<'_>)) {
        let named = row.thread().or(self.cpus[cpu].owner);
        let running = self.cpus[cpu].thread;
        let track = match (named, running) {
            (None, Some(running)) => running,
            _ => self.thread_of(cpu, row, out),
        };
        if let Some(other) = running.filter(|running| *running != track) {
            self.counts.implied_switches += 1;
            self.leave(cpu, other, row.time, false, out);
        }
        self.leave(cpu, track, row.time, true, out);
        self.cpus[cpu].left = Some(track);
        self.cpus[cpu].crossed = Some(track);
        if row.may_run_unseen() {
            self.lose(track, row.stream, row.time, out);
        }
    }

    /// Takes the processor from a thread.
    pub(super) fn leave(
        &mut self,
        cpu: usize,
        track: usize,
        time: Time,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        if self.cpus[cpu].thread == Some(track) {
            self.cpus[cpu].thread = None;
        }
        match self.tracks[track].on {
            // It has another processor by now, and lost this one when it got that.
            Some(on) if on != cpu => return,
            _ => self.tracks[track].on = None,
        }
        self.state(cpu, track, time, false, recorded, out);
        // It may run unseen on a processor whose events are being lost.
        let machine = self.cpus[cpu].machine;
        let mut in_gap = self.in_gap.iter();
        if in_gap.any(|stream| self.machine_of(*stream) == machine) {
            self.lose(track, self.cpus[cpu].stream, time, out);
        }
    }

    pub(super) fn state(
        &self,
        cpu: usize,
        track: usize,
        time: Time,
        running: bool,
        recorded: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = &self.tracks[track];
        // Code without a thread has no state.
        if track.info.kind != (TrackKind::Thread { thread: None }) {
            let cpu = self.cpus[cpu].cpu();
            out(Step::State {
                track: track.id,
                time,
                cpu,
                running,
                recorded,
            });
        }
    }

    /// Reports the track of a thread whose name has become known.
    pub(super) fn name_thread(
        &mut self,
        thread: ThreadId,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = self.thread_track(thread);
        if let Some(track) = track {
            self.tell(track, out);
        }
        out(Step::Event {
            track: track.map(|track| self.id(track)),
            event,
        });
    }

    /// Reports a track to the consumer again.
    pub(super) fn tell(&self, track: usize, out: &mut impl FnMut(Step<'_>)) {
        let track = &self.tracks[track];
        out(Step::Track {
            track: track.id,
            info: track.info,
        });
    }
}
