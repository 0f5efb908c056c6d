//! Timeline rendering shared by all timeline formats: they represent the same elements, and count the same ones as left
//! out.

use kymo_analysis::calls::{Begin, End, Step, TrackId, TrackKind};
use kymo_analysis::replay::{Observer, Origin, Replay};
use kymo_event::{
    Batch, Cpu, Event, EventKind, EventRef, SpaceId, StreamId, StreamInfo, Time, TraceInfo,
};

use crate::Summary;
use crate::format::Context;
use crate::gaps::{GapStep, Gaps};
use crate::names::Names;
use crate::processes::{New, Processes};
use crate::tracks::Tracks;

/// State of a timeline.
pub(crate) struct View<'a> {
    pub context: Context<'a>,
    pub names: Names<'a>,
    pub tracks: Tracks,
    pub processes: Processes,
    gaps: Option<Gaps>,
    /// The processor of events that name none, if the source has only one.
    only_cpu: Option<Cpu>,
    /// The latest time of an event so far.
    latest: Time,
    /// Number of elements that the format cannot represent.
    pub left_out: u64,
}

impl<'a> View<'a> {
    /// Creates an empty timeline.
    pub fn new(context: Context<'a>, names: Names<'a>) -> Self {
        let options = &context.options.replay;
        Self {
            context,
            names,
            tracks: Tracks::default(),
            processes: Processes::default(),
            gaps: Some(Gaps::new(options.window, &options.selection.events)),
            only_cpu: None,
            latest: Time(i64::MIN),
            left_out: 0,
        }
    }

    /// The process number of a space, and the process if it is new.
    pub fn process(&mut self, info: &TraceInfo, space: SpaceId) -> (u32, Option<New>) {
        let program = &self.context.options.program;
        let (pid, mut new) = self.processes.show(info, program, space);
        // Timelines show times even if the trace has none.
        if let Some(new) = new.as_mut().filter(|_| info.untimed) {
            new.name
                .push_str(" (times are made of durations, for each thread by itself)");
        }
        (pid, new)
    }

    /// The space of a counter that names no process: that of its event's thread, else that of its machine, if that is
    /// displayed.
    pub fn space_of_counter(&self, info: &TraceInfo, event: &Event) -> Option<SpaceId> {
        let threads = info.identities.threads();
        let thread = event.thread.and_then(|id| threads.get(id.0 as usize));
        let machine = || info.stream(event.stream).map(|stream| stream.machine);
        let is_shown = |machine: &SpaceId| self.processes.get(*machine).is_some();
        let of_thread = thread.map(|thread| thread.space);
        of_thread.or_else(|| machine().filter(is_shown))
    }

    /// The process number for the counters of a stream, and the process if it is new.
    pub fn process_of_counter(
        &mut self,
        info: &TraceInfo,
        (stream, pid): (StreamId, u64),
        own: bool,
    ) -> (u32, Option<New>) {
        let machine = info.stream(stream).map(|stream| stream.machine);
        let process = (machine.unwrap_or_default(), pid);
        self.processes.show_counted(info, process, own)
    }

    /// The recorded time of an element that is shown at `time`, if it differs.
    #[inline]
    fn recorded(&mut self, origin: Option<Origin>, time: Time) -> Option<Time> {
        let moved = origin?.moved;
        let held = time < self.latest;
        if moved == 0 && !held {
            self.latest = time;
            return None;
        }
        Some(Time(time.0.saturating_add(moved)))
    }
}

/// Output file of a timeline format.
pub(crate) trait Timeline<'a> {
    /// The state of the timeline.
    fn view(&mut self) -> &mut View<'a>;
    /// Changes the title of a track that is already displayed.
    fn retitle(&mut self, info: &TraceInfo, track: TrackId);
    /// A call begins; `recorded` is its recorded time, if that differs.
    fn begin(&mut self, info: &TraceInfo, begin: &Begin, recorded: Option<Time>);
    /// A call ends.
    fn end(&mut self, info: &TraceInfo, end: &End, recorded: Option<Time>);
    /// A thread gets a CPU, or loses it.
    fn state(&mut self, info: &TraceInfo, track: TrackId, time: Time, cpu: Cpu, running: bool);
    /// Any other event.
    fn event(
        &mut self,
        info: &TraceInfo,
        track: Option<TrackId>,
        event: EventRef<'_>,
        recorded: Option<Time>,
    );
    /// A gap begins or ends.
    fn gap(&mut self, info: &TraceInfo, step: GapStep<'_>);

    /// Processes the next events. Returns `false` when no more are needed.
    fn batch(&mut self, info: &TraceInfo, replay: &mut Replay, batch: &Batch) -> bool {
        self.view().only_cpu = only_cpu(&info.streams);
        self.gaps(|gaps, _| gaps.take(info, batch));
        let more = replay.batch_to(info, batch, &mut Drawing { file: self, info });
        self.gaps(|gaps, file| gaps.settle(&mut |step| file.gap(info, step)));
        more
    }

    /// Processes the end of the trace.
    fn finish_steps(&mut self, info: &TraceInfo, replay: &mut Replay, summary: &mut Summary) {
        replay.finish_to(info, &mut Drawing { file: self, info });
        self.gaps(|gaps, file| gaps.finish(&mut |step| file.gap(info, step)));
        summary.count_calls(replay);
        summary.left_out += self.view().left_out;
        summary.left_out += self.view().gaps.as_ref().map_or(0, |gaps| gaps.left_out);
    }

    /// Calls `act` with the gaps and the file, which it may modify.
    fn gaps(&mut self, act: impl FnOnce(&mut Gaps, &mut Self)) {
        if let Some(mut gaps) = self.view().gaps.take() {
            act(&mut gaps, self);
            self.view().gaps = Some(gaps);
        }
    }

    /// Processes a step of the calls.
    #[inline(always)]
    fn step(&mut self, info: &TraceInfo, origin: Option<Origin>, step: &Step<'_>) {
        match step {
            Step::Begin(begin) => {
                let recorded = self.view().recorded(origin, begin.time);
                self.begin(info, begin, recorded);
            }
            Step::End(end) => {
                let recorded = self.view().recorded(origin, end.time);
                self.end(info, end, recorded);
            }
            Step::Track { track, info: of } => {
                if let TrackKind::Interrupt { irq, .. } = of.kind {
                    self.view().names.update_interrupt(info, irq);
                }
                if self.view().tracks.update(info, *track, of) {
                    self.retitle(info, *track);
                }
            }
            Step::State {
                track,
                time,
                cpu,
                running,
                recorded,
            } => {
                let of_thread = origin.and_then(|origin| info.stream(origin.stream)?.thread);
                let only = self.view().only_cpu.filter(|_| of_thread.is_none());
                match cpu.or(only) {
                    Some(cpu) => self.state(info, *track, *time, cpu, *running),
                    // A switch needs a CPU to be shown on. Threads of a Linux process have none, and switches that are
                    // only inferred for them are not counted as left out.
                    None => self.view().left_out += u64::from(*recorded),
                }
            }
            Step::Event { track, event } => {
                let kind = event.event.map(|event| &event.kind);
                if matches!(kind, Some(EventKind::Gap(_))) {
                    self.gaps(|gaps, file| gaps.reached(&mut |step| file.gap(info, step)));
                }
                let recorded = self.view().recorded(origin, event.row.time);
                self.event(info, *track, *event, recorded);
            }
            // Other steps may be added in the future; those without a representation are counted.
            _ => self.view().left_out += 1,
        }
    }
}

/// Receiver of steps for a file.
struct Drawing<'f, T: ?Sized> {
    file: &'f mut T,
    info: &'f TraceInfo,
}

impl<'a, T: Timeline<'a> + ?Sized> Observer for Drawing<'_, T> {
    #[inline(always)]
    fn step(&mut self, origin: Option<Origin>, step: Step<'_>) {
        self.file.step(self.info, origin, &step);
    }
}

/// The processor of all events, if the source names none and has just one stream in which threads can run: then it has
/// one processor.
fn only_cpu(streams: &[StreamInfo]) -> Option<Cpu> {
    let with_calls = |stream: &&StreamInfo| !stream.timeless && !stream.without_calls;
    let mut with_calls = streams.iter().filter(with_calls);
    let only = with_calls.next();
    let owned = only.is_some_and(|stream| stream.cpu.is_some() || stream.thread.is_some());
    (with_calls.next().is_none() && !owned).then_some(Cpu(0))
}
