//! What goes where in the file: steps and events to packets on the tracks they belong to.

use std::collections::BTreeMap;

use kymo_analysis::calls::{Begin, End, How, TrackId};
use kymo_analysis::steady::{RECORDED, recorded};
use kymo_event::{Cpu, Event, EventKind, Field, Gap, StreamId, Time, Value};

use super::fields::*;
use super::sequence::{Output, Sequence, iid};
use super::wire::Message;
use crate::Summary;
use crate::draw::Draw;
use crate::ending;
use crate::format::Context;
use crate::gaps::OpenGaps;
use crate::lanes::{Lanes, gaps_title};
use crate::names::Names;

/// The process that all threads are put into. Targets have one program, and Linux's own number of
/// it is not in the trace.
const PID: u64 = 1;

/// The number of the sequence, and of the track, that stand for the process.
const PROCESS: u32 = 1;

/// The packets of the file, and who writes them.
pub(super) struct File<'a> {
    context: Context<'a>,
    output: Output,
    names: Names<'a>,
    lanes: Lanes,
    /// The process: task states, and events that belong to no track.
    process: Sequence,
    /// The sequences of tracks, by [`TrackId`].
    tracks: Vec<Option<Sequence>>,
    /// The sequences of the tracks for gaps, by stream.
    gaps: BTreeMap<StreamId, Sequence>,
    /// The gaps that have not ended.
    open_gaps: OpenGaps,
    /// The time of the last event.
    now: Time,
    /// When it was recorded, if that is not where it stands.
    recorded: Option<Time>,
    /// The latest time so far.
    latest: Time,
    /// The next number of a sequence.
    next: u32,
    left_out: u64,
}

impl<'a> File<'a> {
    /// A file that begins with an event at this time.
    pub fn new(context: Context<'a>, first: Time) -> Self {
        let mut output = Output::new(first);
        let mut process = Sequence::new(PROCESS);
        process.describe(&mut output, |track| {
            track.message(track_descriptor::PROCESS, |process| {
                process
                    .number(process_descriptor::PID, PID)
                    .text(process_descriptor::PROCESS_NAME, &context.options.program);
            });
        });
        Self {
            context,
            output,
            names: Names::with_sources(context),
            lanes: Lanes::default(),
            process,
            tracks: Vec::new(),
            gaps: BTreeMap::new(),
            open_gaps: OpenGaps::default(),
            now: first,
            recorded: None,
            latest: Time(i64::MIN),
            next: PROCESS + 1,
            left_out: 0,
        }
    }

    /// The packets that wait to be written.
    pub fn packets(&mut self) -> &mut Vec<u8> {
        &mut self.output.buffer
    }

    /// What an event means before it is looked into: the end of its stream's gaps.
    pub fn before(&mut self, event: &Event) {
        self.now = event.time;
        let held = (event.time < self.latest).then_some(event.time);
        self.recorded = recorded(event).or(held);
        self.latest = self.latest.max(event.time);
        let ended = self.open_gaps.ended_by(event);
        self.end_gaps(event.stream, ended);
    }

    fn end_gaps(&mut self, stream: StreamId, count: usize) {
        for _ in 0..count {
            if let Some(sequence) = self.gaps.get_mut(&stream) {
                sequence.timed(&mut self.output, self.now, None, |packet| {
                    packet.message(trace_packet::TRACK_EVENT, |event| {
                        event.number(track_event::TYPE, track_event::TYPE_SLICE_END);
                    });
                });
            }
        }
    }

    /// Ends the gaps behind which nothing came any more, and tells what could not be shown.
    pub fn finish(&mut self, summary: &mut Summary) {
        for (stream, count) in self.open_gaps.rest() {
            self.end_gaps(stream, count);
        }
        summary.held += self.output.held;
        summary.shifted_ns = self.output.shift;
        summary.left_out += self.left_out;
    }

    /// Describes a track before the first time that something stands on it.
    fn show(&mut self, track: TrackId) {
        if let Some((_, true)) = self.lanes.show(track) {
            self.describe(track);
        }
    }

    /// Describes a track: its name and what it is.
    fn describe(&mut self, track: TrackId) {
        let at = track.0 as usize;
        if self.tracks.len() <= at {
            self.tracks.resize_with(at + 1, || None);
        }
        let (Some(place), Some(lane)) = (self.tracks.get_mut(at), self.lanes.get(track)) else {
            return;
        };
        let sequence = place.get_or_insert_with(|| new_sequence(&mut self.next));
        sequence.describe(&mut self.output, |track| {
            if lane.thread {
                track.message(track_descriptor::THREAD, |thread| {
                    thread
                        .number(thread_descriptor::PID, PID)
                        .number(thread_descriptor::TID, u64::from(lane.number))
                        .text(thread_descriptor::THREAD_NAME, &lane.title);
                });
            } else {
                name_track(track, &lane.title);
            }
            if let Some(thread) = lane.origin {
                track.text(
                    track_descriptor::DESCRIPTION,
                    &format!("the target's thread {thread}"),
                );
            }
        });
    }

    /// Something of no length: on its track, or the process's if it has none.
    fn instant(
        &mut self,
        track: Option<TrackId>,
        event: &Event,
        category: &str,
        name: &str,
        annotations: impl FnOnce(&mut Message<'_>),
    ) {
        if let Some(track) = track {
            self.show(track);
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

    fn gap(&mut self, track: Option<TrackId>, event: &Event, gap: &Gap) {
        let lost = self.open_gaps.begins(event.stream, gap);
        if lost && let Some(hit) = track.and_then(|track| sequence(&mut self.tracks, track)) {
            hit.lose(reason(gap));
        }
        let sequence = self.gaps.entry(event.stream).or_insert_with(|| {
            let mut sequence = new_sequence(&mut self.next);
            sequence.describe(&mut self.output, |track| {
                name_track(track, &gaps_title(self.context.info, event.stream));
            });
            sequence
        });
        let kind = if lost {
            sequence.lose(reason(gap));
            track_event::TYPE_SLICE_BEGIN
        } else {
            track_event::TYPE_INSTANT
        };
        sequence.timed(&mut self.output, event.time, None, |packet| {
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

impl<'a> Draw<'a> for File<'a> {
    fn names(&mut self) -> &mut Names<'a> {
        &mut self.names
    }

    fn lanes(&mut self) -> &mut Lanes {
        &mut self.lanes
    }

    fn left_out(&mut self) -> &mut u64 {
        &mut self.left_out
    }

    fn retitle(&mut self, track: TrackId) {
        self.describe(track);
    }

    fn begin(&mut self, begin: &Begin) {
        self.show(begin.track);
        let name = self.names.id(begin.callee);
        let Some(sequence) = sequence(&mut self.tracks, begin.track) else {
            self.left_out += 1;
            return;
        };
        let names = Some((name, &self.names));
        sequence.timed(&mut self.output, begin.time, names, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |event| {
                event
                    .number(track_event::TYPE, track_event::TYPE_SLICE_BEGIN)
                    .number(track_event::NAME_IID, iid(name));
                if self.names.source(name).is_some() {
                    event.number(track_event::SOURCE_LOCATION_IID, iid(name));
                }
                annotate_recorded(event, self.recorded);
                if let Some(site) = begin.call_site {
                    event.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
                        annotation
                            .text(debug_annotation::NAME, "call site")
                            .number(debug_annotation::POINTER_VALUE, site.0);
                    });
                }
            });
        });
    }

    fn end(&mut self, end: &End) {
        self.show(end.track);
        let orphan = end.how == How::Orphan;
        let name = orphan.then(|| self.names.id(end.callee));
        let Some(sequence) = sequence(&mut self.tracks, end.track) else {
            self.left_out += 1;
            return;
        };
        sequence.timed(&mut self.output, end.time, None, |packet| {
            packet.message(trace_packet::TRACK_EVENT, |event| {
                if let Some(name) = name {
                    event
                        .number(track_event::TYPE, track_event::TYPE_INSTANT)
                        .text(track_event::CATEGORIES, "orphan")
                        .text(track_event::NAME, &ending::orphan(self.names.get(name)));
                } else {
                    event.number(track_event::TYPE, track_event::TYPE_SLICE_END);
                }
                annotate_recorded(event, self.recorded);
                for (what, why) in ending::notes(end) {
                    annotate(event, what, why);
                }
            });
        });
    }

    fn state(&mut self, track: TrackId, time: Time, cpu: Cpu, running: bool) {
        self.show(track);
        let Some(lane) = self.lanes.get(track) else {
            self.left_out += 1;
            return;
        };
        let state = if running {
            generic_kernel_task_state_event::TASK_STATE_RUNNING
        } else {
            generic_kernel_task_state_event::TASK_STATE_STOPPED
        };
        self.process.timed(&mut self.output, time, None, |packet| {
            packet.message(trace_packet::GENERIC_KERNEL_TASK_STATE_EVENT, |event| {
                event
                    .number(generic_kernel_task_state_event::CPU, u64::from(cpu.0))
                    .text(generic_kernel_task_state_event::COMM, &lane.title)
                    .number(generic_kernel_task_state_event::TID, u64::from(lane.number))
                    .number(generic_kernel_task_state_event::STATE, state);
            });
        });
    }

    fn event(&mut self, track: Option<TrackId>, event: &Event) {
        match &event.kind {
            EventKind::Gap(gap) => self.gap(track, event, gap),
            // Tracks tell the names; what recording costs, and what a target says of itself, happens at no
            // moment.
            EventKind::ThreadName { .. } | EventKind::IsrName { .. } => {}
            EventKind::Costs(_) | EventKind::Fact => {}
            // Where a jump may lead is seen when it does; times of day are the clock's affair.
            EventKind::SetJmp { .. } | EventKind::WallClock { .. } | EventKind::Time => {}
            EventKind::Marker { label, value } => {
                let name = label.as_deref().unwrap_or("marker");
                self.instant(track, event, "marker", name, |annotations| {
                    annotations.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
                        annotation
                            .text(debug_annotation::NAME, "value")
                            .number(debug_annotation::UINT_VALUE, *value);
                    });
                });
            }
            EventKind::Recording { on, cause } => {
                let name = if *on { "recording on" } else { "recording off" };
                self.instant(track, event, "recording", name, |annotations| {
                    annotate(annotations, "cause", cause.name());
                });
            }
            EventKind::Context { priority, mode } => {
                self.instant(track, event, "context", "context", |annotations| {
                    annotate(annotations, "priority", &priority.to_string());
                    annotate(annotations, "mode", &mode.to_string());
                });
            }
            _ => self.instant(track, event, "event", &event.name, |_| {}),
        }
    }
}

/// Names a track that is no thread: one of the process's, and not merged with one of equal name.
fn name_track(track: &mut Message<'_>, name: &str) {
    track
        .text(track_descriptor::NAME, name)
        .number(track_descriptor::PARENT_UUID, u64::from(PROCESS))
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

/// Why packets were lost, in Perfetto's words.
fn reason(gap: &Gap) -> u64 {
    match gap {
        Gap::Overwritten { .. } => trace_packet::DATA_LOSS_OVERWRITE,
        Gap::Discarded { .. } => trace_packet::DATA_LOSS_SMB_FULL,
        _ => trace_packet::DATA_LOSS_PRESENT,
    }
}

/// Says something about an event.
fn annotate(event: &mut Message<'_>, name: &str, value: &str) {
    event.message(track_event::DEBUG_ANNOTATIONS, |annotation| {
        annotation
            .text(debug_annotation::NAME, name)
            .text(debug_annotation::STRING_VALUE, value);
    });
}

/// Says when something was recorded that does not stand where it was.
fn annotate_recorded(event: &mut Message<'_>, recorded: Option<Time>) {
    if let Some(Time(recorded)) = recorded {
        annotate_field(event, &Field::new(RECORDED, recorded));
    }
}

/// A field of an event as its source has it.
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
