//! The context of an event: its processor, its track, and how time passes there.

use kymo_event::{Duration, Row, RowKind, SpaceId, StreamId, ThreadId, Time};

use super::cpu_state::{Charge, CpuKey, CpuState};
use super::output::{CallId, Step, TrackId, TrackInfo, TrackKind};
use super::track::Track;
use super::{Calls, NO_TRACK};

impl Calls {
    /// The CPU state of an event: that of its processor, or of the thread that its stream belongs to. (Several
    /// streams can belong to either.)
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
        let before = std::mem::replace(&mut self.cpus[state].stream, row.stream);
        self.cpus[state].owner_on = owner.and(cpu);
        self.cpus[state].ended = false;
        if let Some(stream) = self.streams.get_mut(stream) {
            // An event that names another thread in a thread's stream must be examined each time.
            let settled = owner.is_none() || row.thread().is_none_or(|named| Some(named) == owner);
            stream.requested = settled.then_some(row.place());
            stream.state = state;
            if (state == next || before != row.stream) && !stream.states.contains(&state) {
                stream.states.push(state);
            }
        }
        state
    }

    /// The machine that a stream belongs to.
    pub(super) fn machine_of(&self, stream: StreamId) -> SpaceId {
        let stream = self.streams.get(stream.0 as usize);
        stream.map(|stream| stream.machine).unwrap_or_default()
    }

    /// The thread that acts as the processor of an event: the owner of its stream, or the thread that the event names
    /// where the source records no switches. After the owner has exited, another thread may continue in its stream:
    /// the one that events name without a switch.
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

    /// The thread that owns a stream from here on, where an event names a thread other than the owner.
    fn heir(&mut self, stream: usize, row: &Row, owner: ThreadId, named: ThreadId) -> ThreadId {
        // Such events name the threads of the program's own scheduler.
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

    /// The track of an event. A thread that an event names has the processor.
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
        // Between a thread's switch out and the next switch in, sources still name the thread; only a call shows that
        // it runs.
        let call = row.kind.is_of_call();
        if call || self.cpus[cpu].left != Some(track) {
            self.switch_in(cpu, track, row.time, false, out);
        }
        track
    }

    /// The track of the thread that an event names; without a name, the track of code that runs on the processor
    /// without a thread.
    pub(super) fn thread_of(
        &mut self,
        cpu: usize,
        row: &Row,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        let thread = row.thread().or(self.cpus[cpu].owner);
        // Fast path: most events belong to the running thread.
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

    /// The track of code that runs on a processor without a thread.
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
        self.list_on(cpu, track);
        self.cpus[cpu].nobody = Some(track);
        self.expose(track);
        track
    }

    /// The track of a thread, if it has one already.
    #[inline]
    pub(super) fn thread_track(&self, thread: ThreadId) -> Option<usize> {
        let track = *self.threads.get(thread.0 as usize)?;
        (track != NO_TRACK).then_some(track)
    }

    /// Gives a thread's track a processor from `time` on.
    pub(super) fn put_on(&mut self, cpu: usize, track: usize, time: Time) {
        self.expose(track);
        let found = &mut self.tracks[track];
        found.begin_turn(time);
        found.on = Some(cpu);
        if let Some(before) = found.last_on.replace(cpu) {
            if before == cpu {
                return;
            }
            self.take_off(before, track);
        }
        self.list_on(cpu, track);
    }

    /// Lists a thread's track among those whose last processor is this one.
    fn list_on(&mut self, cpu: usize, track: usize) {
        let tracks = &mut self.cpus[cpu].tracks;
        self.tracks[track].listed_at = tracks.len();
        tracks.push(track);
    }

    /// Removes a track from the list of its last processor. The last one there takes its place.
    fn take_off(&mut self, before: usize, track: usize) {
        let place = self.tracks[track].listed_at;
        let listed = &mut self.cpus[before].tracks;
        if listed.get(place) != Some(&track) {
            return;
        }
        listed.swap_remove(place);
        if let Some(moved) = listed.get(place) {
            self.tracks[*moved].listed_at = place;
        }
    }

    /// Lists a thread's track among those that a loss may concern.
    fn expose(&mut self, track: usize) {
        if !std::mem::replace(&mut self.tracks[track].exposed, true) {
            let place = self.exposed.partition_point(|listed| *listed < track);
            self.exposed.insert(place, track);
        }
    }

    /// Adds a track and reports it to the consumer.
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

    /// The public id of a track.
    pub(super) fn id(&self, track: usize) -> TrackId {
        self.tracks[track].id
    }

    /// Allocates the id of a call.
    pub(super) fn next_call(&mut self) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        call
    }

    /// Applies `act` to every track that may have run on a processor without an event that shows it: its active
    /// interrupts, and the threads that have no other processor.
    pub(super) fn each_touched(&mut self, cpu: usize, mut act: impl FnMut(&mut Track)) {
        let found = &self.cpus[cpu];
        for track in &found.interrupts {
            act(&mut self.tracks[*track]);
        }
        if !matches!(found.key, CpuKey::Cpu(..)) {
            // Threads with a CPU state of their own do not migrate.
            for track in &found.tracks {
                let track = &mut self.tracks[*track];
                if track.on.is_none_or(|on| on == cpu) {
                    act(track);
                }
            }
            return;
        }
        let machine = found.machine;
        for track in &self.exposed {
            let track = &mut self.tracks[*track];
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
