//! Where events happen: which processor, which track; and how time passes there.

use kymo_event::{Duration, Event, EventKind, StreamId, ThreadId, Time};

use super::Calls;
use super::lane::{Charge, Lane, LaneKey};
use super::step::{CallId, Step, TrackId, TrackInfo, TrackKind};
use super::track::Track;

impl Calls {
    /// The processor of an event, or the thread, where its stream belongs to one. (Several streams can
    /// belong to either.)
    pub(super) fn lane(&mut self, event: &Event) -> usize {
        let stream = usize::try_from(event.stream.0).ok();
        let owner = stream.and_then(|stream| self.owner(stream, event));
        let cpu = event
            .cpu
            .or_else(|| stream.and_then(|i| self.streams.get(i))?.cpu);
        let key = match (owner, cpu) {
            (Some(owner), _) => LaneKey::Thread(owner),
            (None, Some(cpu)) => LaneKey::Cpu(cpu),
            (None, None) => LaneKey::Stream(event.stream),
        };
        let next = self.lanes.len();
        let lane = *self.lane_keys.entry(key).or_insert(next);
        if lane == next {
            self.lanes.push(Lane::new(key, owner, event.stream));
        }
        self.lanes[lane].stream = event.stream;
        lane
    }

    /// The thread whose stream an event is in, if it is a thread's. When that has ended another may go on in its
    /// stream: whom events name there without having been switched in.
    #[inline]
    fn owner(&mut self, stream: usize, event: &Event) -> Option<ThreadId> {
        let owner = self.streams.get(stream)?.thread?;
        match event.thread {
            Some(named) if named != owner => Some(self.heir(stream, event, owner, named)),
            _ => Some(owner),
        }
    }

    /// The thread whose stream it is now, where an event names another one than the owner before.
    fn heir(&mut self, stream: usize, event: &Event, owner: ThreadId, named: ThreadId) -> ThreadId {
        use EventKind::{Context, SwitchedIn, SwitchedOut};
        // What the program's own scheduler does.
        if matches!(event.kind, SwitchedIn | SwitchedOut | Context { .. }) {
            return owner;
        }
        if let Some(lane) = self.lane_keys.get(&LaneKey::Thread(owner)) {
            let lane = &self.lanes[*lane];
            let thread = Some(named);
            let is_named =
                |track: usize| self.tracks[track].info.kind == TrackKind::Thread { thread };
            if lane.thread.or(lane.left).is_some_and(is_named) {
                return owner;
            }
        }
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.thread = Some(named);
        }
        named
    }

    /// Lets the time of a processor go on to `time`. Whoever has it is charged.
    pub(super) fn advance(&mut self, lane: usize, time: Time, out: &mut impl FnMut(Step<'_>)) {
        let found = &mut self.lanes[lane];
        let Some(last) = found.last.replace(time) else {
            return found.charges.forget();
        };
        let passed = time.0.saturating_sub(last.0);
        let told = std::mem::take(&mut found.told);
        if passed >= 0 {
            let running = found.running();
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
        if !told {
            self.counts.clock_doubts += 1;
            self.each_touched(lane, Track::doubt_clock);
        }
    }

    /// The track that an event happened on. A thread that names itself has the processor.
    pub(super) fn context(
        &mut self,
        lane: usize,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        if let Some(track) = self.lanes[lane].interrupts.last() {
            return *track;
        }
        if self.lanes[lane].unseen > 0 {
            return self.nobody(lane, event.stream, out);
        }
        let named = event.thread.or(self.lanes[lane].owner);
        let track = match (named, self.lanes[lane].thread) {
            (None, Some(running)) if !self.lanes[lane].unsure => return running,
            _ => self.thread_of(lane, event, out),
        };
        // Between a thread's switch out and the next switch in, sources still name it: only a call
        // shows that it is at work.
        let call = matches!(event.kind, EventKind::Enter { .. } | EventKind::Exit { .. });
        if call || self.lanes[lane].left != Some(track) {
            self.switch_in(lane, track, event.time, false, out);
        }
        track
    }

    /// The track of the thread that an event names; without a name, that of what runs on the
    /// processor without a thread.
    pub(super) fn thread_of(
        &mut self,
        lane: usize,
        event: &Event,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        let thread = event.thread.or(self.lanes[lane].owner);
        // Most events are the running thread's.
        if let Some(running) = self.lanes[lane].thread
            && self.tracks[running].info.kind == (TrackKind::Thread { thread })
        {
            return running;
        }
        let Some(thread) = thread else {
            return self.nobody(lane, event.stream, out);
        };
        if let Some(track) = self.threads.get(&thread) {
            return *track;
        }
        let info = TrackInfo {
            kind: TrackKind::Thread {
                thread: Some(thread),
            },
            cpu: None,
            stream: event.stream,
            name: self.thread_names.get(&thread).cloned(),
        };
        let track = self.add_track(info, out);
        self.threads.insert(thread, track);
        track
    }

    /// The track of what runs on a processor without a thread.
    pub(super) fn nobody(
        &mut self,
        lane: usize,
        stream: StreamId,
        out: &mut impl FnMut(Step<'_>),
    ) -> usize {
        if let Some(track) = self.lanes[lane].nobody {
            return track;
        }
        let info = TrackInfo {
            kind: TrackKind::Thread { thread: None },
            cpu: self.lanes[lane].cpu(),
            stream,
            name: None,
        };
        let track = self.add_track(info, out);
        self.tracks[track].last_on = Some(lane);
        self.lanes[lane].nobody = Some(track);
        track
    }

    /// A new track, told to the consumer.
    pub(super) fn add_track(&mut self, info: TrackInfo, out: &mut impl FnMut(Step<'_>)) -> usize {
        let index = self.tracks.len();
        // There is no memory for 2^32 tracks.
        let id = TrackId(u32::try_from(index).unwrap_or(u32::MAX));
        out(Step::Track {
            track: id,
            info: &info,
        });
        self.tracks.push(Track::new(id, info));
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
    pub(super) fn each_touched(&mut self, lane: usize, mut act: impl FnMut(&mut Track)) {
        let found = &self.lanes[lane];
        for track in &found.interrupts {
            act(&mut self.tracks[*track]);
        }
        let wanders = matches!(found.key, LaneKey::Cpu(_));
        for track in &mut self.tracks {
            let here = match track.on {
                Some(on) => on == lane,
                None => wanders || track.last_on == Some(lane),
            };
            let thread = match track.info.kind {
                TrackKind::Thread { thread: None } => track.last_on == Some(lane),
                TrackKind::Thread { .. } => here,
                TrackKind::Interrupt { .. } => false,
            };
            if thread {
                act(track);
            }
        }
    }
}
