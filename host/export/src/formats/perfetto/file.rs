//! Mapping of steps and events to packets on Perfetto's tracks.

use std::collections::BTreeMap;

use kymo_analysis::calls::{Begin, Callee, End, How, TrackId};
use kymo_analysis::clock_repair::RECORDED;
use kymo_analysis::replay::Replay;
use kymo_event::{
    Cpu, Event, EventKind, EventRef, Field, Gap, Quantity, SpaceId, StreamId, Time, TraceInfo,
    Value,
};

use super::fields::*;
use super::sequence::{Output, Sequence, iid, plain_event};
use super::wire::{Chunk, Message, Packets};
use crate::Summary;
use crate::end_notes;
use crate::format::Context;
use crate::gaps::GapStep;
use crate::names::{NameId, Names};
use crate::timeline::{Timeline, View};
use crate::tracks::gaps_title;

/// Number of the sequence, and of the track, of the first process.
const PROCESS: u32 = 1;

/// The packets of the file, and their sequences.
pub(super) struct File<'a> {
    view: View<'a>,
    output: Output,
    /// The first process: task states, and events without a track.
    process: Sequence,
    /// The sequences of the processes, by their number.
    processes: BTreeMap<u32, u64>,
    /// The sequences of tracks, by [`TrackId`].
    tracks: Vec<Option<Sequence>>,
    /// The sequences of the tracks for gaps, by stream.
    gaps: BTreeMap<StreamId, Sequence>,
    /// The sequences of counters, by the track of their process and by their name.
    counters: BTreeMap<(u64, String), Sequence>,
    /// The next number of a sequence.
    next: u32,
    /// The begin of a call of each name, by [`NameId`]; empty until it is first needed.
    begins: Vec<Option<Chunk>>,
    /// The end of any call.
    end: Option<Chunk>,
}

impl<'a> File<'a> {
    /// Creates a file that begins at this time.
    pub fn new(context: Context<'a>, first: Time) -> Self {
        Self {
            view: View::new(context, Names::with_sources(context)),
            output: Output::new(first),
            process: Sequence::new(PROCESS),
            processes: BTreeMap::new(),
            tracks: Vec::new(),
            gaps: BTreeMap::new(),
            counters: BTreeMap::new(),
            next: PROCESS + 1,
            begins: Vec::new(),
            end: plain_event(track_event::TYPE_SLICE_END, None),
        }
    }

    /// The buffered packets.
    pub fn packets(&mut self) -> &mut Packets {
        &mut self.output.packets
    }

    /// Ends open elements, and counts what could not be shown.
    pub fn finish(&mut self, info: &TraceInfo, replay: &mut Replay, summary: &mut Summary) {
        self.finish_steps(info, replay, summary);
        if self.processes.is_empty() {
            self.process(info, SpaceId(0));
        }
        summary.held += self.output.held;
        summary.shifted_ns = self.output.shift;
    }

    /// The number of a space's process and of its track, which is described before its first use.
    fn process(&mut self, info: &TraceInfo, space: SpaceId) -> (u32, u64) {
        let (pid, new) = self.view.process(info, space);
        if let Some(new) = new {
            let mut other = None;
            let sequence = if new.first {
                &mut self.process
            } else {
                other.insert(new_sequence(&mut self.next))
            };
            describe_process(sequence, &mut self.output, pid, &new.name);
            self.processes.insert(pid, sequence.track());
        }
        (pid, self.processes.get(&pid).copied().unwrap_or_default())
    }

    /// The track of the process that counters of a stream belong to.
    fn process_of_counter(&mut self, info: &TraceInfo, stream: StreamId, pid: u64) -> u64 {
        self.any_process(info, stream);
        let (pid, new) = self.view.process_of_counter(info, (stream, pid), false);
        if let Some(new) = new {
            let mut sequence = new_sequence(&mut self.next);
            describe_process(&mut sequence, &mut self.output, pid, &new.name);
            self.processes.insert(pid, sequence.track());
        }
        self.processes.get(&pid).copied().unwrap_or_default()
    }

    /// The process of elements without a track.
    fn any_process(&mut self, info: &TraceInfo, stream: StreamId) -> u64 {
        if self.processes.is_empty() {
            let stream = info.stream(stream);
            let threads = info.identities.threads().first();
            let space = threads.map(|thread| thread.space);
            let space = space.or(stream.map(|stream| stream.space));
            self.process(info, space.unwrap_or_default());
        }
        u64::from(PROCESS)
    }

    /// Describes a track before its first use.
    #[inline]
    fn show(&mut self, info: &TraceInfo, track: TrackId) {
        if !matches!(self.tracks.get(track.0 as usize), Some(Some(_))) {
            self.show_first(info, track);
        }
    }

    #[cold]
    fn show_first(&mut self, info: &TraceInfo, track: TrackId) {
        if self.view.tracks.show(track).is_some() {
            self.describe(info, track);
        }
    }

    /// Describes a track: its name and its kind.
    fn describe(&mut self, info: &TraceInfo, track: TrackId) {
        let Some(space) = self.view.tracks.get(track).map(|shown| shown.space) else {
            return;
        };
        let (pid, parent) = self.process(info, space);
        let at = track.0 as usize;
        if self.tracks.len() <= at {
            self.tracks.resize_with(at + 1, || None);
        }
        let (Some(place), Some(shown)) = (self.tracks.get_mut(at), self.view.tracks.get(track))
        else {
            return;
        };
        let sequence = place.get_or_insert_with(|| new_sequence(&mut self.next));
        sequence.describe(&mut self.output, |track| {
            if shown.thread {
                track.message(track_descriptor::THREAD, |thread| {
                    thread
                        .number(thread_descriptor::PID, pid.into())
                        .number(thread_descriptor::TID, u64::from(shown.number))
                        .text(thread_descriptor::THREAD_NAME, &shown.title);
                });
            } else {
                name_track(track, &shown.title, parent);
            }
            if let Some(tid) = shown.origin {
                track.text(
                    track_descriptor::DESCRIPTION,
                    &format!("the target's thread {tid}"),
                );
            }
        });
    }

    /// Writes the begin of a call with annotations.
    #[inline(never)]
    fn begin_noted(
        &mut self,
        info: &TraceInfo,
        begin: Begin,
        recorded: Option<Time>,
        name: NameId,
    ) {
        self.show(info, begin.track);
        let has_source = self.view.names.source(name).is_some();
        let index = name.index();
        if self.begins.len() <= index {
            self.begins.resize(index + 1, None);
        }
        if let Some(place) = self.begins.get_mut(index)
            && place.is_none()
        {
            *place = plain_event(track_event::TYPE_SLICE_BEGIN, Some((name, has_source)));
        }
        let Some(sequence) = sequence(&mut self.tracks, begin.track) else {
            self.view.left_out += 1;
            return;
        };
        let caller = begin.caller.map(|it| Callee::Function(it.function));
        let caller = caller.map(|caller| self.view.names.id(info, caller));
        let names = Some((name, &self.view.names));
        let text = &self.view.names;
        sequence.timed(&mut self.output, begin.time, names, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |event| {
                event
                    .number(track_event::TYPE, track_event::TYPE_SLICE_BEGIN)
                    .number(track_event::NAME_IID, iid(name));
                if has_source {
                    event.number(track_event::SOURCE_LOCATION_IID, iid(name));
                }
                annotate_recorded(event, recorded);
                if let Some(site) = begin.call_site {
                    event.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
                        annotation
                            .text(debug_annotation::NAME, "call site")
                            .number(debug_annotation::POINTER_VALUE, site.0);
                    });
                }
                if let Some(caller) = caller {
                    annotate(event, "caller", text.get(caller));
                }
                if begin.clipped {
                    let (what, why) = end_notes::CLIPPED;
                    annotate(event, what, why);
                }
            });
        });
    }

    /// Writes the end of a call with annotations.
    #[inline(never)]
    fn end_noted(&mut self, info: &TraceInfo, end: End, recorded: Option<Time>) {
        self.show(info, end.track);
        let orphan = end.how == How::Orphan;
        let name = orphan.then(|| self.view.names.id(info, end.callee));
        let Some(sequence) = sequence(&mut self.tracks, end.track) else {
            self.view.left_out += 1;
            return;
        };
        let names = &self.view.names;
        sequence.timed(&mut self.output, end.time, None, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |event| {
                if let Some(name) = name {
                    event
                        .number(track_event::TYPE, track_event::TYPE_INSTANT)
                        .text(track_event::CATEGORIES, "orphan")
                        .text(track_event::NAME, &end_notes::orphan(names.get(name)));
                } else {
                    event.number(track_event::TYPE, track_event::TYPE_SLICE_END);
                }
                annotate_recorded(event, recorded);
                for (what, why) in end_notes::notes(&end) {
                    annotate(event, what, why);
                }
            });
        });
    }

    /// Writes an instant: on its track, or the process's if it has none.
    fn instant(
        &mut self,
        info: &TraceInfo,
        track: Option<TrackId>,
        event: &Event,
        category: &str,
        name: &str,
        annotations: impl FnOnce(&mut Message<'_>),
    ) {
        match track {
            Some(track) => self.show(info, track),
            None => {
                self.any_process(info, event.stream);
            }
        }
        let sequence = track
            .and_then(|track| sequence(&mut self.tracks, track))
            .unwrap_or(&mut self.process);
        sequence.timed(&mut self.output, event.time, None, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |message| {
                message
                    .number(track_event::TYPE, track_event::TYPE_INSTANT)
                    .text(track_event::CATEGORIES, category)
                    .text(track_event::NAME, name);
                annotations(message);
                for field in &event.fields {
                    annotate_field(message, field);
                }
            });
        });
    }

    /// Writes a new value of a counter: of the process that its event names, or else of that of the event's thread.
    fn counter(
        &mut self,
        info: &TraceInfo,
        event: &Event,
        (name, process): (&str, Option<u64>),
        value: Quantity,
    ) {
        let space = self.view.space_of_counter(info, event);
        let parent = match (process, space) {
            (Some(pid), _) => self.process_of_counter(info, event.stream, pid),
            (None, Some(space)) => self.process(info, space).1,
            (None, None) => self.any_process(info, event.stream),
        };
        let key = (parent, name.to_owned());
        let sequence = self.counters.entry(key).or_insert_with(|| {
            let mut sequence = new_sequence(&mut self.next);
            sequence.describe(&mut self.output, |track| {
                name_track(track, name, parent);
                track.message(track_descriptor::COUNTER, |_| {});
            });
            sequence
        });
        sequence.timed(&mut self.output, event.time, None, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |message| {
                message.number(track_event::TYPE, track_event::TYPE_COUNTER);
                // Unsigned integers beyond 63 bits have no field type of their own.
                match value.as_i64() {
                    Some(value) => message.signed(track_event::COUNTER_VALUE, value),
                    None => message.real(track_event::DOUBLE_COUNTER_VALUE, value.as_f64()),
                };
            });
        });
    }

    /// A gap of a stream begins, or is an instant.
    fn gap_begin(&mut self, info: &TraceInfo, event: &Event, gap: &Gap, time: Time, lost: bool) {
        let parent = self.any_process(info, event.stream);
        let sequence = self.gaps.entry(event.stream).or_insert_with(|| {
            let mut sequence = new_sequence(&mut self.next);
            sequence.describe(&mut self.output, |track| {
                name_track(track, &gaps_title(info, event.stream), parent);
            });
            sequence
        });
        let kind = if lost {
            sequence.lose(reason(gap));
            track_event::TYPE_SLICE_BEGIN
        } else {
            track_event::TYPE_INSTANT
        };
        sequence.timed(&mut self.output, time, None, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |message| {
                message
                    .number(track_event::TYPE, kind)
                    .text(track_event::CATEGORIES, "gap")
                    .text(track_event::NAME, &gap.to_string());
                annotate(message, "kind", gap.name());
                for field in &event.fields {
                    annotate_field(message, field);
                }
            });
        });
    }
}

/// First CPU number of a machine: several machines are numbered consecutively.
fn first_cpu(info: &TraceInfo, machine: SpaceId) -> u64 {
    let streams = info.streams.iter();
    let before = streams.filter(|stream| stream.machine < machine);
    let mut machines: BTreeMap<SpaceId, u64> = BTreeMap::new();
    for stream in before {
        let cpus = machines.entry(stream.machine).or_default();
        *cpus = (*cpus).max(stream.cpu.map_or(0, |cpu| u64::from(cpu.0) + 1));
    }
    machines.values().sum()
}

impl<'a> Timeline<'a> for File<'a> {
    #[inline]
    fn view(&mut self) -> &mut View<'a> {
        &mut self.view
    }

    fn retitle(&mut self, info: &TraceInfo, track: TrackId) {
        self.describe(info, track);
    }

    #[inline(always)]
    fn begin(&mut self, info: &TraceInfo, begin: &Begin, recorded: Option<Time>) {
        let name = self.view.names.id(info, begin.callee);
        if recorded.is_none()
            && begin.call_site.is_none()
            && begin.caller.is_none()
            && !begin.clipped
            && let Some(sequence) = sequence(&mut self.tracks, begin.track)
            && let Some(Some(event)) = self.begins.get(name.index())
            && sequence.plain(&mut self.output, begin.time, Some(name), event)
        {
            return;
        }
        // By value; otherwise the compiler would store every call in memory, even those without notes.
        self.begin_noted(info, *begin, recorded, name);
    }

    #[inline(always)]
    fn end(&mut self, info: &TraceInfo, end: &End, recorded: Option<Time>) {
        if recorded.is_none()
            && end.how == How::Returned
            && !end.doubt.any()
            && let Some(sequence) = sequence(&mut self.tracks, end.track)
            && let Some(event) = &self.end
            && sequence.plain(&mut self.output, end.time, None, event)
        {
            return;
        }
        self.end_noted(info, *end, recorded);
    }

    fn state(&mut self, info: &TraceInfo, track: TrackId, time: Time, cpu: Cpu, running: bool) {
        self.show(info, track);
        let Some(shown) = self.view.tracks.get(track) else {
            self.view.left_out += 1;
            return;
        };
        let state = if running {
            generic_kernel_task_state_event::TASK_STATE_RUNNING
        } else {
            generic_kernel_task_state_event::TASK_STATE_STOPPED
        };
        let machine = self.view.tracks.machine(track);
        let cpu = u64::from(cpu.0) + first_cpu(info, machine);
        self.process.timed(&mut self.output, time, None, |packet| {
            packet.message(trace_packet::GENERIC_KERNEL_TASK_STATE_EVENT, |event| {
                event
                    .number(generic_kernel_task_state_event::CPU, cpu)
                    .text(generic_kernel_task_state_event::COMM, &shown.title)
                    .number(
                        generic_kernel_task_state_event::TID,
                        u64::from(shown.number),
                    )
                    .number(generic_kernel_task_state_event::STATE, state);
            });
        });
    }

    fn event(
        &mut self,
        info: &TraceInfo,
        track: Option<TrackId>,
        event: EventRef<'_>,
        _recorded: Option<Time>,
    ) {
        // Without an event there is no name and no meaning to show.
        let Some(event) = event.event else {
            return;
        };
        match &event.kind {
            EventKind::Gap(gap) => {
                // The stream's own track shows its duration.
                if gap.is_loss()
                    && let Some(hit) = track.and_then(|track| sequence(&mut self.tracks, track))
                {
                    hit.lose(reason(gap));
                }
            }
            // Names are shown by tracks; recording overhead, and a target's description of itself, have no time.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } => {}
            EventKind::Costs(_) | EventKind::Fact => {}
            // A jump shows its destination; times of day concern the clock.
            EventKind::SetJmp { .. } | EventKind::WallClock { .. } | EventKind::Time => {}
            EventKind::Marker { label, value } => {
                let name = label.as_deref().unwrap_or("marker");
                self.instant(info, track, event, "marker", name, |annotations| {
                    annotations.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
                        annotation
                            .text(debug_annotation::NAME, "value")
                            .number(debug_annotation::UINT_VALUE, *value);
                    });
                });
            }
            EventKind::Counter {
                name,
                process,
                value,
            } => self.counter(info, event, (name, *process), *value),
            EventKind::Recording { on, cause } => {
                let name = if *on { "recording on" } else { "recording off" };
                self.instant(info, track, event, "recording", name, |annotations| {
                    annotate(annotations, "cause", cause.name());
                });
            }
            EventKind::Context { priority, mode } => {
                self.instant(info, track, event, "context", "context", |annotations| {
                    annotate(annotations, "priority", &priority.to_string());
                    annotate(annotations, "mode", &mode.to_string());
                });
            }
            _ => self.instant(info, track, event, "event", &event.name, |_| {}),
        }
    }

    fn gap(&mut self, info: &TraceInfo, step: GapStep<'_>) {
        match step {
            GapStep::Gap {
                event,
                gap,
                time,
                lost,
            } => self.gap_begin(info, event, gap, time, lost),
            GapStep::End(stream, time) => {
                if let Some(sequence) = self.gaps.get_mut(&stream) {
                    sequence.timed(&mut self.output, time, None, |packet| {
                        packet.message(trace_packet::TRACK_EVENT, |event| {
                            event.number(track_event::TYPE, track_event::TYPE_SLICE_END);
                        });
                    });
                }
            }
        }
    }
}

/// Describes the track of a process.
fn describe_process(sequence: &mut Sequence, output: &mut Output, pid: u32, name: &str) {
    sequence.describe(output, |track| {
        track.message(track_descriptor::PROCESS, |process| {
            process
                .number(process_descriptor::PID, pid.into())
                .text(process_descriptor::PROCESS_NAME, name);
        });
    });
}

/// Names a track that is not a thread: a child of `parent`, not merged with others of the same name.
fn name_track(track: &mut Message<'_>, name: &str, parent: u64) {
    track
        .text(track_descriptor::NAME, name)
        .number(track_descriptor::PARENT_UUID, parent)
        .number(
            track_descriptor::SIBLING_MERGE_BEHAVIOR,
            track_descriptor::SIBLING_MERGE_BEHAVIOR_NONE,
        );
}

/// A sequence that no other packet uses.
fn new_sequence(next: &mut u32) -> Sequence {
    let sequence = Sequence::new(*next);
    *next = next.saturating_add(1);
    sequence
}

/// The sequence of a track, once the track has been announced.
fn sequence(tracks: &mut [Option<Sequence>], track: TrackId) -> Option<&mut Sequence> {
    tracks.get_mut(track.0 as usize)?.as_mut()
}

/// The reason of a packet loss as Perfetto's constants.
fn reason(gap: &Gap) -> u64 {
    match gap {
        Gap::Overwritten { .. } => trace_packet::DATA_LOSS_OVERWRITE,
        Gap::Discarded { .. } => trace_packet::DATA_LOSS_SMB_FULL,
        _ => trace_packet::DATA_LOSS_PRESENT,
    }
}

/// Adds an annotation to an event.
fn annotate(event: &mut Message<'_>, name: &str, value: &str) {
    event.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
        annotation
            .text(debug_annotation::NAME, name)
            .text(debug_annotation::STRING_VALUE, value);
    });
}

/// Adds the recorded time to an event that is shown at another time.
fn annotate_recorded(event: &mut Message<'_>, recorded: Option<Time>) {
    if let Some(Time(recorded)) = recorded {
        annotate_field(event, &Field::new(RECORDED, recorded));
    }
}

/// Adds a field of the source to an event.
fn annotate_field(event: &mut Message<'_>, field: &Field) {
    event.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
        annotation.text(debug_annotation::NAME, &field.name);
        match &field.value {
            Value::Unsigned(value) => annotation.number(debug_annotation::UINT_VALUE, *value),
            Value::Signed(value) => annotation.signed(debug_annotation::INT_VALUE, *value),
            Value::Hex(value) => annotation.number(debug_annotation::POINTER_VALUE, *value),
            Value::Bool(value) => annotation.number(debug_annotation::BOOL_VALUE, (*value).into()),
            Value::Text(value) => annotation.text(debug_annotation::STRING_VALUE, value),
            value => annotation.text(debug_annotation::STRING_VALUE, &value.to_string()),
        };
    });
}
