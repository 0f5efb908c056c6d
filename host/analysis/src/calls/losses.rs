//! Missing data: lost events, a clock in doubt, recording turned off.

use kymo_event::{Duration, EventRef, Gap, Row, StreamId, Time};

use super::cpu_state::{CpuKey, Handlers};
use super::functions::unfinished;
use super::output::{Counts, How, Repair, Step, TrackKind};
use super::track::Track;
use super::{Calls, LOSSES_SURVIVED};

impl Calls {
    /// Processes a gap: a loss, or a clock in doubt.
    pub(super) fn gap(&mut self, gap: &Gap, event: EventRef<'_>, out: &mut impl FnMut(Step<'_>)) {
        let own = self.cpu_of(event.row);
        let track = self.cpus[own].running().map(|track| self.id(track));
        out(Step::Event { track, event });
        let loss = gap.is_loss();
        self.counts.losses += u64::from(loss);
        let calls = loss && !self.has_no_calls(event.row.stream);
        if calls && self.cpus[own].last.is_none() && !matches!(gap, Gap::Overwritten { .. }) {
            self.counts.unbounded_gaps += 1;
        }
        match gap.lost_events() {
            // The loss is before the trace, not in it.
            _ if !calls || matches!(gap, Gap::Overwritten { .. }) => {}
            // A call is missing if its entry is lost and its exit is not in the trace or the window either.
            Some(events) => {
                self.counts.missing_calls = self.counts.missing_calls.saturating_add(events);
            }
            None => self.counts.unknown_gaps += 1,
        }
        if calls && !matches!(gap, Gap::Overwritten { .. }) {
            self.lost_before
                .add(gap.lost_events(), self.has_whole_calls(event.row.stream));
        }
        match gap {
            // The gap is shown with the events; calls are complete. (Damaged data may have belonged to another
            // stream.)
            Gap::Discarded { .. }
            | Gap::LostPackets { .. }
            | Gap::Overwritten { .. }
            | Gap::InInterrupt { .. }
                if self.has_no_calls(event.row.stream) =>
            {
                return;
            }
            _ if loss => {}
            Gap::Clock(_) => self.counts.clock_doubts += 1,
            Gap::InInterrupt { depth } => {
                self.advance(own, event.row.time, out);
                self.nobody(own, event.row.stream, out);
                self.cpus[own].unseen = *depth;
                self.cpus[own].handlers = Handlers::Known;
                return;
            }
            Gap::MissingExit { ago } => return self.missing_exit(own, event.row, *ago, out),
            // The next event shows it, unless its time was repaired ([`crate::clock_repair`]).
            Gap::TimeBackward { .. } => {
                self.counts.clock_doubts += 1;
                for cpu in self.states_of(event.row.stream) {
                    self.cpus[cpu].reported = true;
                    self.each_touched(cpu, Track::doubt_clock);
                }
                return;
            }
            _ => return,
        }
        if loss && self.in_instructions {
            // Times in instructions do not advance in a loss, so those up to it belong to the open calls.
            self.advance(own, event.row.time, out);
        }
        if loss {
            self.begin_gap(event.row.stream);
        }
        // A stream can hold the events of several processors.
        for cpu in self.states_of(event.row.stream) {
            if loss {
                self.lose_cpu(cpu, event.row.time, out);
                // Overwritten events are before the trace.
                if !matches!(gap, Gap::Overwritten { .. }) {
                    self.cpus[cpu].lost = true;
                    self.cpus[cpu].handlers = Handlers::Unknown;
                }
            } else {
                self.each_touched(cpu, Track::doubt_clock);
            }
        }
    }

    /// The CPU states whose last event is of a stream, in order.
    pub(super) fn states_of(&self, stream: StreamId) -> Vec<usize> {
        let is_last = |cpu: &usize| self.cpus[*cpu].stream == stream;
        match self.streams.get(stream.0 as usize) {
            Some(known) => {
                let mut states: Vec<_> = known.states.iter().copied().filter(is_last).collect();
                states.sort_unstable();
                states
            }
            None => (0..self.cpus.len()).filter(is_last).collect(),
        }
    }

    fn begin_gap(&mut self, stream: StreamId) {
        let is_in_gap = match self.streams.get_mut(stream.0 as usize) {
            Some(stream) => std::mem::replace(&mut stream.is_in_gap, true),
            None => self.in_gap.contains(&stream),
        };
        if !is_in_gap {
            self.in_gap.push(stream);
        }
    }

    /// Ends the gap of a stream, if there is one.
    pub(super) fn end_gap(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(stream.0 as usize)
            && !std::mem::take(&mut known.is_in_gap)
        {
            return;
        }
        if let Some(at) = self.in_gap.iter().rposition(|it| *it == stream) {
            self.in_gap.swap_remove(at);
        }
    }

    /// Closes a call whose exit is not in the trace, and all calls above it.
    fn missing_exit(
        &mut self,
        cpu: usize,
        row: &Row,
        ago: Duration,
        out: &mut impl FnMut(Step<'_>),
    ) {
        // It may stand directly behind a loss, which lasts up to the next event.
        let lossy = self.cpus[cpu].lossy;
        self.advance(cpu, row.time, out);
        self.cpus[cpu].lossy = lossy;
        let entered = i64::try_from(ago.0).map(|ago| row.time.0.saturating_sub(ago));
        let Ok(entered) = entered.map(Time) else {
            return;
        };
        let found = &self.cpus[cpu];
        let thread = match row.thread().or(found.owner) {
            Some(thread) => self.thread_track(thread),
            None => found.nobody,
        };
        let handlers = found.interrupts.iter().copied().enumerate().rev();
        let handlers = handlers.map(|(level, track)| (level + 1, track));
        let place = handlers
            .chain(thread.map(|track| (0, track)))
            .find_map(|(level, track)| Some((level, track, self.tracks[track].entered(entered)?)));
        let Some((level, track, index)) = place else {
            return;
        };
        // Which loss has its exit is not known if that is reported later: the call may have ended at any time since
        // its thread left the processor on which it began. (Unless the target has measured it.)
        if row.self_time().is_none() && self.tracks[track].turn.is_behind(entered) {
            self.tracks[track].doubt_elsewhere(entered);
        }
        let found = &self.cpus[cpu];
        let lost = |_| How::Repaired(Repair::Lost);
        if found.interrupts.len() > level && (level > 0 || found.thread == Some(track)) {
            self.end_interrupts(cpu, level, row.time, lost, out);
        }
        if let Some(own) = row.self_time() {
            // The target had it open up to here.
            self.close(track, index + 1, row.time, lost, out);
            self.tracks[track].unseen_end(own);
        }
        self.close(track, index, row.time, lost, out);
        self.tracks[track].forget_hidden();
    }

    /// Whether a stream is known to hold nothing that calls are rebuilt from.
    pub(super) fn has_no_calls(&self, stream: StreamId) -> bool {
        let stream = self.streams.get(stream.0 as usize);
        stream.is_some_and(|stream| stream.without_calls)
    }

    /// Whether a stream's records are whole calls, not entries and exits.
    fn has_whole_calls(&self, stream: StreamId) -> bool {
        let stream = self.streams.get(stream.0 as usize);
        stream.is_some_and(|stream| stream.whole_calls)
    }

    /// Handles a loss of events of a processor.
    fn lose_cpu(&mut self, cpu: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        self.cpus[cpu].unsure = true;
        self.cpus[cpu].lossy = true;
        self.cpus[cpu].crossed = None;
        self.cpus[cpu].moved = None;
        self.cpus[cpu].unforeseen = 0;
        let survived = self.survived(self.cpus[cpu].stream);
        for (track, depth) in self.lose_spans(cpu, time, survived) {
            self.close(track, depth, time, unfinished, out);
        }
        let mut stale = Vec::new();
        // Some sources report a loss at its end, after other processors' events of that time have passed. A processor
        // without earlier events may have run any thread since the beginning.
        let found = &self.cpus[cpu];
        if let CpuKey::Cpu(machine, _) = found.key {
            let from = found.last.unwrap_or(Time(i64::MIN));
            let tracks = &mut self.tracks;
            self.exposed.retain(|index| {
                let track = &mut tracks[*index];
                let wanders = matches!(track.info.kind, TrackKind::Thread { thread: Some(_) });
                track.exposed = !(wanders && track.is_indifferent_to_loss());
                track.exposed
            });
            for index in &self.exposed {
                let track = &mut tracks[*index];
                let wanders = matches!(track.info.kind, TrackKind::Thread { thread: Some(_) });
                if !wanders || track.machine != machine || track.on == Some(cpu) {
                    continue;
                }
                // Threads without a processor count the loss below.
                if track.doubt_elsewhere(from) && track.on.is_some() {
                    stale.extend(track.count_loss(survived).map(|depth| (track.id, depth)));
                }
            }
        }
        self.each_touched(cpu, |track| {
            stale.extend(track.lose(survived).map(|depth| (track.id, depth)));
        });
        // Handlers are short: that the end of one was lost is more likely than that it continues after the loss, and
        // a handler assumed to continue would be charged with everything that follows.
        self.end_interrupts(cpu, 0, time, unfinished, out);
        for (track, depth) in stale {
            self.close(track.0 as usize, depth, time, unfinished, out);
        }
    }

    /// The number of losses that a call survives without a sign of life.
    fn survived(&self, stream: StreamId) -> u32 {
        let stream = self.streams.get(stream.0 as usize);
        match stream.is_some_and(|stream| stream.marks_missing_exits) {
            true => u32::MAX,
            false => LOSSES_SURVIVED,
        }
    }

    /// Handles a loss of a thread's events: the thread may have done anything from here on.
    pub(super) fn lose(
        &mut self,
        track: usize,
        stream: StreamId,
        time: Time,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let survived = self.survived(stream);
        if let Some(depth) = self.tracks[track].lose(survived) {
            self.close(track, depth, time, unfinished, out);
        }
    }

    /// Handles the last time that a processor's source records: of open calls, only the time up to here is certain.
    pub(super) fn last_time(&mut self, cpu: usize, row: &Row, out: &mut impl FnMut(Step<'_>)) {
        self.advance(cpu, row.time, out);
        let found = &self.cpus[cpu];
        let thread = found.thread.or(found.nobody);
        for track in found.interrupts.clone().into_iter().chain(thread) {
            self.tracks[track].last_time.get_or_insert(row.time);
            self.lose(track, row.stream, row.time, out);
        }
    }

    /// Turns recording on or off, on all processors of the machine.
    pub(super) fn recording(
        &mut self,
        cpu: usize,
        on: bool,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let track = self.context(cpu, event.row, out);
        let track = Some(self.id(track));
        let machine = self.cpus[cpu].machine;
        let before = self.recording.insert(machine, on);
        if on {
            // For interrupts that are active now, begins are recorded after this event.
            self.cpus[cpu].unseen = 0;
            out(Step::Event { track, event });
            if before == Some(true) {
                // The event that turned recording off is among the lost ones.
                self.counts.losses += 1;
                for cpu in 0..self.cpus.len() {
                    if self.cpus[cpu].machine == machine {
                        self.lose_cpu(cpu, event.row.time, out);
                        self.cpus[cpu].lost = true;
                    }
                }
                let streams = &mut self.streams;
                self.in_gap.retain(|stream| {
                    let Some(stream) = streams.get_mut(stream.0 as usize) else {
                        return false;
                    };
                    stream.is_in_gap = stream.machine != machine;
                    stream.is_in_gap
                });
            }
            return;
        }
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].machine != machine {
                continue;
            }
            if self.cpus[cpu]
                .last
                .is_some_and(|last| last < event.row.time)
                && self.cpus[cpu].owner.is_none()
            {
                self.advance(cpu, event.row.time, out);
            }
            self.end_interrupts(cpu, 0, event.row.time, |_| How::RecordingOff, out);
        }
        for track in 0..self.tracks.len() {
            if self.tracks[track].machine != machine {
                continue;
            }
            self.tracks[track].remember_off();
            self.close(track, 0, event.row.time, |_| How::RecordingOff, out);
        }
        for cpu in 0..self.cpus.len() {
            if self.cpus[cpu].machine != machine {
                continue;
            }
            if let Some(thread) = self.cpus[cpu].thread {
                self.leave(cpu, thread, event.row.time, false, out);
            }
            // Time until recording is on again is charged to no track.
            self.cpus[cpu].left = None;
            self.cpus[cpu].crossed = None;
            self.cpus[cpu].last = None;
        }
        out(Step::Event { track, event });
    }
}

/// Losses before a window: calls whose entries were lost there may be open in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LostBefore {
    gaps: u64,
    /// Entries that may be among the lost events.
    entries: u64,
    /// Gaps for which the source does not record the number of missing events.
    unknown: u64,
    /// Calls before the last window whose ends were inferred.
    guessed: u64,
}

impl LostBefore {
    /// The losses that a cut trace reports of the longer one that it was cut from.
    pub fn of_cut(hidden_calls: Option<u64>) -> Self {
        let unknown = u64::from(hidden_calls == Some(u64::MAX));
        Self {
            gaps: u64::from(hidden_calls.is_some()),
            entries: hidden_calls.filter(|_| unknown == 0).unwrap_or(0),
            unknown,
            guessed: 0,
        }
    }

    /// Counts missing events. A record of a whole call is written at its end, so a lost one leaves no call open.
    fn add(&mut self, events: Option<u64>, whole_calls: bool) {
        self.gaps = self.gaps.saturating_add(1);
        match events {
            _ if whole_calls => {}
            Some(events) => self.entries = self.entries.saturating_add(events),
            None => self.unknown = self.unknown.saturating_add(1),
        }
    }

    /// The counts that a window begins with; `before` are those between the previous window and this one.
    pub fn open_window(&mut self, before: &Counts) -> Counts {
        self.guessed = self.guessed_by(before);
        self.counts(&Counts::default())
    }

    /// The number of calls whose ends were inferred, including those of `counts`.
    fn guessed_by(self, counts: &Counts) -> u64 {
        let counts = [counts.lost, counts.unwound, counts.doubtful];
        counts.into_iter().fold(self.guessed, u64::saturating_add)
    }

    /// The counts that a window would begin with; `before` are those since the last one. Calls with an inferred end
    /// may be open, too.
    fn counts(self, before: &Counts) -> Counts {
        let guessed = match self.gaps {
            0 => 0,
            _ => self.guessed_by(before),
        };
        Counts {
            losses_before: self.gaps,
            missing_calls: self.entries.saturating_add(guessed),
            unknown_gaps: self.unknown,
            ..Counts::default()
        }
    }
}

impl Calls {
    /// The number of calls that may be open unnoticed because events were lost: the value for a trace that is cut
    /// from here on ([`Cut::hidden_calls`](kymo_event::Cut)).
    pub fn hidden_calls(&self) -> Option<u64> {
        let counts = self.lost_before.counts(&self.counts);
        let calls = match counts.unknown_gaps {
            0 => counts.missing_calls.min(u64::MAX - 1),
            _ => u64::MAX,
        };
        (counts.losses_before > 0).then_some(calls)
    }
}
