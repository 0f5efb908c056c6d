//! Assignment of threads to processors, and names of threads.

use kymo_event::{Duration, EventRef, Row, ThreadId, Time};

use super::Calls;
use super::cpu_state::{Handlers, Moved};
use super::output::{Step, TrackKind};

/// Largest difference between the clocks of two processors for which a switch to a thread may come before the switch
/// from it, although it happened later. (ftrace's default clock, `local`, differs by some microseconds.)
pub(super) const SKEW: Duration = Duration(100_000);

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
        if self.settle_move(cpu, track, time, false) && !recorded {
            return;
        }
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
        let (mut unseen, mut moved_from) = (None, None);
        if let Some(elsewhere) = elsewhere {
            let from = &mut self.cpus[elsewhere];
            if let Some(last) = from.last
                && from.running() == Some(track)
            {
                from.moved = Some(Moved {
                    track,
                    since: last,
                    at: time,
                    recorded,
                });
                unseen = Some(last).filter(|last| *last < time && self.has_switches);
                moved_from = Some(elsewhere).filter(|_| last < time);
            }
            // CPU states that the other processor's streams remember become invalid.
            self.epoch += 1;
            self.leave(elsewhere, track, time, false, out);
        }
        let turn = &self.tracks[track].turn;
        if turn.began(time) {
            moved_from = moved_from.or(turn.moved_from);
        }
        let before = turn.unseen;
        match self.tracks[track].came_unseen(time) {
            // It moves on within the tick in which it came: whether it left the first processor is still open.
            true => unseen = before,
            false => self.tracks[track].doubt_unseen(),
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
        self.tracks[track].turn.unseen = unseen;
        self.tracks[track].turn.moved_from = moved_from;
        self.state(cpu, track, time, true, recorded, out);
    }

    /// Charges a thread for its time on a processor from which another one took it, if an event at the same time shows
    /// that it was there up to then: of two streams with equal times, either can come first. So does a switch from the
    /// thread (`is_out`) up to [`SKEW`] later: the processors' clocks differ. (Other events then may show that it is
    /// back, and that switches are missing.) Returns whether the event is earlier than the thread's switch to the other
    /// processor, which it has kept since.
    pub(super) fn settle_move(
        &mut self,
        cpu: usize,
        track: usize,
        time: Time,
        is_out: bool,
    ) -> bool {
        let Some(moved) = self.cpus[cpu].moved else {
            return false;
        };
        let late = time.since(moved.at);
        let is_late = is_out
            && moved.recorded
            && late.is_some_and(|late| late <= SKEW)
            && self.tracks[track].turn.began(moved.at);
        if moved.track != track || moved.at != time && !is_late {
            self.cpus[cpu].moved = None;
            if self.tracks[moved.track].came_unseen(moved.at) && moved.at < time {
                self.tracks[moved.track].doubt_unseen();
            }
            return false;
        }
        let passed = moved.at.0.saturating_sub(moved.since.0);
        self.tracks[track].charge_before(passed, moved.at);
        if self.tracks[track].turn.began(moved.at) {
            self.tracks[track].turn.unseen = None;
        }
        let since = moved.at;
        self.cpus[cpu].moved = Some(Moved { since, ..moved });
        moved.recorded
    }

    /// Whether a thread has moved here without an event that shows it on its earlier processor until then.
    pub(super) fn is_moving(&self, track: usize, time: Time) -> bool {
        self.tracks[track].turn.unseen.is_some() || self.mover(track, time).is_some()
    }

    /// The processor from which a thread has moved at `time`, or before and unseen, if its time there is not charged.
    fn mover(&self, track: usize, time: Time) -> Option<usize> {
        let from = self.tracks[track].turn.moved_from?;
        let moved = self.cpus[from].moved?;
        let is_it = moved.at == time || self.tracks[track].came_unseen(moved.at);
        (moved.track == track && is_it && moved.since < moved.at).then_some(from)
    }

    /// Charges a thread that moved at `time` for its time on its earlier processor before a call ends, and puts its
    /// calls in doubt: the events that show it there may come later. If it moved long before, these events are missing.
    pub(super) fn charge_move(&mut self, track: usize, time: Time, is_end: bool) {
        let Some(from) = self.mover(track, time) else {
            return self.tracks[track].doubt_unseen();
        };
        let Some(moved) = self.cpus[from].moved else {
            return;
        };
        if time.since(moved.at).is_none_or(|late| late > SKEW) {
            self.cpus[from].moved = None;
            return self.tracks[track].doubt_unseen();
        }
        let is_later = moved.at < time;
        if !is_end || is_later && !self.tracks[track].is_in_earlier_call() {
            return;
        }
        match is_later {
            true => self.tracks[track].doubt_unseen(),
            false => self.tracks[track].doubt_loss(),
        }
        let passed = moved.at.0.saturating_sub(moved.since.0);
        self.tracks[track].charge_before(passed, moved.at);
        self.cpus[from].moved = Some(Moved {
            since: moved.at,
            ..moved
        });
    }

    /// Processes a recorded switch out.
    pub(super) fn switch_out(&mut self, cpu: usize, row: &Row, out: &mut impl FnMut(Step<'_>)) {
        let named = row.thread().or(self.cpus[cpu].owner);
        let running = self.cpus[cpu].thread;
        let track = match (named, running) {
            (None, Some(running)) => running,
            _ => self.thread_of(cpu, row, out),
        };
        self.settle_move(cpu, track, row.time, true);
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
        if !self.tracks[track].came_unseen(time) {
            self.tracks[track].doubt_unseen();
        }
        self.state(cpu, track, time, false, recorded, out);
        // It may run unseen on a processor whose events are being lost.
        let machine = self.cpus[cpu].machine;
        let mut in_gap = self.in_gap.iter();
        if in_gap.any(|stream| self.machine_of(*stream) == machine) {
            self.lose(track, self.cpus[cpu].stream, time, out);
        }
        if self.unrecorded.anywhere(machine, time) {
            self.tracks[track].doubt_loss();
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
