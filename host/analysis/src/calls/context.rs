//! The context of an event: its processor, its track, and how time passes there.

use kymo_event::{Duration, Row, RowKind, SpaceId, StreamId, ThreadId, Time};

use super::cpu_state::{Charge, CpuKey, CpuState};
use super::output::{CallId, Step, TrackId, TrackInfo, TrackKind};
use super::track::Track;
use super::{Calls, NO_TRACK};

impl Calls {
    /// The processor of an event, or the thread, where its stream belongs to one. (Several streams can
    /// belong to either.)
    #[inline]
    pub(super) fn cpu_of(&mut self, row: &Row) -> usize {
        if let Some(stream) = self.streams.get(row.stream.0 as usize)
            && stream.requested == Some(row.place())
        {
            self.cpus[stream.state].stream = row.stream;
            return stream.state;
        }
        self.find_cpu(row)
    }

    #[inline(never)]
    fn find_cpu(&mut self, row: &Row) -> usize {
        let stream = row.stream.0 as usize;
        let owner = self.owner(stream, row);
        let cpu = row.cpu().or_else(|| self.streams.get(stream)?.cpu);
        let machine = self.machine_of(row.stream);
        let key = match (owner, cpu) {
            (Some(owner), _) => CpuKey::Thread(owner),
            (None, Some(cpu)) => CpuKey::Cpu(machine, cpu),
            (None, None) => CpuKey::Stream(row.stream),
        };
        let next = self.cpus.len();
        let state = *self.cpu_keys.entry(key).or_insert(next);
        if state == next {
            self.cpus
                .push(CpuState::new(key, machine, owner, row.stream));
        }
        self.cpus[state].stream = row.stream;
        self.cpus[state].owner_on = owner.and(cpu);
        self.cpus[state].ended = false;
        if let Some(stream) = self.streams.get_mut(stream) {
            // Another thread in a thread's stream has to be looked at each time.
            let settled = owner.is_none() || row.thread().is_none_or(|named| Some(named) == owner);
            stream.requested = settled.then_some(row.place());
            stream.state = state;
        }
        state
    }

    /// The machine that a stream is of.
    pub(super) fn machine_of(&self, stream: StreamId) -> SpaceId {
        let stream = self.streams.get(stream.0 as usize);
        stream.map(|stream| stream.machine).unwrap_or_default()
    }

    /// The thread whose stream an event is in, if it is a thread's, or stands for one as each thread goes on by itself.
    /// When that has ended another may go on in its stream: whom events name there without having been switched in.
    fn owner(&mut self, stream: usize, row: &Row) -> Option<ThreadId> {
        let found = self.streams.get(stream)?;
        if found.without_switches {
            return row.thread();
        }
        let owner = found.thread?;
        match row.thread() {
            Some(named) if named != owner => Some(self.heir(stream, row, owner, named)),
            _ => Some(owner),
        }
    }

    /// The thread whose stream it is now, where an event names another one than the owner before.
    fn heir(&mut self, stream: usize, row: &Row, owner: ThreadId, named: ThreadId) -> ThreadId {
        // What the program's own scheduler does.
        if matches!(row.kind, RowKind::SwitchedIn | RowKind::SwitchedOut) || self.in_context {
            return owner;
        }
        if let Some(index) = self.cpu_keys.get(&CpuKey::Thread(owner)) {
            let cpu = &mut self.cpus[*index];
            let thread = Some(named);
            let is_named =
                |track: usize| self.tracks[track].info.kind == TrackKind::Thread { thread };
            if cpu.thread.or(cpu.left).is_some_and(is_named) {
                return owner;
            }
            cpu.ended = true;
        }
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.thread = Some(named);
            stream.requested = None;
        }
        named
    }

    /// Advances a processor's clock to `time` and charges the track that has it.
    #[inline]
    pub(super) fn advance(&mut self, cpu: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        let found = &mut self.cpus[cpu];
        let Some(last) = found.last.replace(time) else {
            return found.charges.forget();
        };
        let passed = time.0.saturating_sub(last.0);
        let reported = std::mem::take(&mut found.reported);
        if passed >= 0 {
            let running = found.running();
            found.lossy = false;
            if passed == 0 {
                return;
            }
            self.counts.ran += Duration(passed.unsigned_abs());
            let (until, call) = match running {
                Some(track) => self.tracks[track].charge(passed),
                None => (0, None),
            };
            return found.charges.add(Charge {
                track: running,
                passed,
                until,
                call,
            });
        }
        self.step_back(cpu, passed, reported, out);
    }

    /// A processor's time goes back: takes back what was charged while its clock was ahead.
    #[cold]
    fn step_back(
        &mut self,
        cpu: usize,
        passed: i64,
        reported: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let found = &mut self.cpus[cpu];
        // A clock that steps back was ahead before: what it has charged too much is taken back from
        // whom it was charged to, who need not be at work any more. Calls during which it went ahead
        // and back are as long as they were.
        let (tracks, counts) = (&mut self.tracks, &mut self.counts);
        found.charges.take_back(passed.saturating_neg(), |charge| {
            let Some(track) = charge.track.map(|track| &mut tracks[track]) else {
                return;
            };
            if let Some((call, callee)) = track.give_back(charge) {
                let by = Duration(charge.passed.unsigned_abs());
                counts.clock_ahead += by;
                let track = track.id;
                out(Step::ClockAhead {
                    track,
                    call,
                    callee,
                    by,
                });
            }
        });
        // Of others nobody knows.
        if !reported {
            self.counts.clock_doubts += 1;
            self.each_touched(cpu, Track::doubt_clock);
        }
    }

    /// The track that an event happened on. A thread that names itself has the processor.
    pub(super) fn context(
        &mut self,
        cpu: usize,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        if let Some(track) = self.cpus[cpu].interrupts.last() {
            return *track;
        }
        if self.cpus[cpu].unseen > 0 {
            return self.nobody(cpu, row.stream, out);
        }
        let named = row.thread().or(self.cpus[cpu].owner);
        let track = match (named, self.cpus[cpu].thread) {
            (None, Some(running)) if !self.cpus[cpu].unsure => return running,
            _ => self.thread_of(cpu, row, out),
        };
        // Between a thread's switch out and the next switch in, sources still name it: only a call
        // shows that it is at work.
        let call = row.kind.is_of_call();
        if call || self.cpus[cpu].left != Some(track) {
            self.switch_in(cpu, track, row.time, false, out);
        }
        track
    }

    /// The track of the thread that an event names; without a name, that of what runs on the
    /// processor without a thread.
    pub(super) fn thread_of(
        &mut self,
        cpu: usize,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        let thread = row.thread().or(self.cpus[cpu].owner);
        // Most events are the running thread's.
        if let Some(running) = self.cpus[cpu].thread
            && self.tracks[running].info.kind == (TrackKind::Thread { thread })
        {
            return running;
        }
        let Some(thread) = thread else {
            return self.nobody(cpu, row.stream, out);
        };
        if let Some(track) = self.thread_track(thread) {
            return track;
        }
        let info = TrackInfo {
            kind: TrackKind::Thread {
                thread: Some(thread),
            },
            cpu: None,
            stream: row.stream,
        };
        let track = self.add_track(info, out);
        let index = thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, NO_TRACK);
        }
        self.threads[index] = track;
        track
    }

    /// The track of what runs on a processor without a thread.
    pub(super) fn nobody(
        &mut self,
        cpu: usize,
        stream: StreamId,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        if let Some(track) = self.cpus[cpu].nobody {
            return track;
        }
        let info = TrackInfo {
            kind: TrackKind::Thread { thread: None },
            cpu: self.cpus[cpu].cpu(),
            stream,
        };
        let track = self.add_track(info, out);
        self.tracks[track].last_on = Some(cpu);
        self.cpus[cpu].tracks.push(track);
        self.cpus[cpu].nobody = Some(track);
        track
    }

    /// The track of a thread that has been met.
    #[inline]
    pub(super) fn thread_track(&self, thread: ThreadId) -> Option<usize> {
        let track = *self.threads.get(thread.0 as usize)?;
        (track != NO_TRACK).then_some(track)
    }

    /// A thread's track has a processor from here on.
    pub(super) fn put_on(&mut self, cpu: usize, track: usize, time: Time) {
        let found = &mut self.tracks[track];
        found.begin_turn(time);
        found.on = Some(cpu);
        if let Some(before) = found.last_on.replace(cpu) {
            if before == cpu {
                return;
            }
            self.cpus[before].tracks.retain(|had| *had != track);
        }
        self.cpus[cpu].tracks.push(track);
    }

    /// A new track, reported to the consumer.
    pub(super) fn add_track(&mut self, info: TrackInfo, out: &mut impl FnMut(Step<'_>)) -> usize {
        let index = self.tracks.len();
        // There is no memory for 2^32 tracks.
        let id = TrackId(u32::try_from(index).unwrap_or(u32::MAX));
        out(Step::Track { track: id, info });
        let machine = self.machine_of(info.stream);
        self.tracks
            .push(Track::new(id, info, machine, self.in_instructions));
        index
    }

    /// The number that consumers know a track by.
    pub(super) fn id(&self, track: usize) -> TrackId {
        self.tracks[track].id
    }

    /// A number for a call.
    pub(super) fn next_call(&mut self) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        call
    }

    /// Does something to every track that may have been at work on a processor without an event
    /// telling so: its interrupts, and the threads that no other processor has.
    pub(super) fn each_touched(&mut self, cpu: usize, mut act: impl FnMut(&mut Track)) {
        let found = &self.cpus[cpu];
        for track in &found.interrupts {
            act(&mut self.tracks[*track]);
        }
        if !matches!(found.key, CpuKey::Cpu(..)) {
            // Threads that belong here do not wander.
            for track in &found.tracks {
                let track = &mut self.tracks[*track];
                if track.on.is_none_or(|on| on == cpu) {
                    act(track);
                }
            }
            return;
        }
        let machine = found.machine;
        for track in &mut self.tracks {
            if track.machine != machine {
                continue;
            }
            let here = match track.info.kind {
                TrackKind::Thread { thread: None } => track.last_on == Some(cpu),
                TrackKind::Thread { .. } => track.on.is_none_or(|on| on == cpu),
                TrackKind::Interrupt { .. } | TrackKind::Span { .. } => false,
            };
            if here {
                act(track);
            }
        }
    }
}
