//! Spans: named stretches of time that are no calls. Each name has a track, because spans may overlap calls and end
//! in another thread. Their duration is wall time, and they have no self time: the code that ran meanwhile has it.

use kymo_event::{Cpu, EventRef, FunctionId, RowKind, SpaceId, ThreadId, Time};

use super::Calls;
use super::output::{Begin, Callee, How, Step, TrackInfo, TrackKind};
use super::track::Match;

/// The scope in which spans nest: a name on a machine, or on a processor of it.
pub(super) type Key = (SpaceId, FunctionId, Option<Cpu>);

/// State of the spans of one name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spans {
    pub track: usize,
    /// Whether one was seen since the trace began, or since events were lost. Until then, an end without a begin
    /// belongs to a span whose begin was not seen; afterwards, to none.
    pub seen: bool,
    /// The processor on which the last of them began.
    pub cpu: Option<Cpu>,
    pub thread: Option<ThreadId>,
}

impl Calls {
    /// Begins or ends a span.
    pub(super) fn span(
        &mut self,
        cpu: usize,
        function: FunctionId,
        event: EventRef<'_>,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let row = event.row;
        let running = self.context(cpu, row, out);
        let (here, thread) = (self.cpus[cpu].cpu(), self.place_of(running).1);
        let key = (
            self.cpus[cpu].machine,
            function,
            here.filter(|_| row.is_per_cpu()),
        );
        let known = self.spans.get(&key).copied();
        let track = match known {
            Some(spans) => spans.track,
            None => self.add_track(
                TrackInfo {
                    kind: TrackKind::Span { function },
                    cpu: key.2,
                    stream: row.stream,
                },
                out,
            ),
        };
        let spans = Spans {
            track,
            seen: true,
            cpu: here,
            thread,
        };
        if row.kind == RowKind::SpanBegin {
            self.spans.insert(key, spans);
            self.tracks[track].last_on = Some(cpu);
            return self.begin_span(&spans, function, row.time, out);
        }
        let is_first = !known.is_some_and(|known| known.seen);
        self.spans.entry(key).or_insert(spans).seen = true;
        match self.tracks[track].find(Some(function)) {
            Match::Open(index) => {
                self.close(track, index, row.time, |_| How::Returned, out);
            }
            Match::Nothing if is_first => {
                self.tracks[track].last_on = Some(cpu);
                self.orphan(track, Callee::Function(function), (row.time, None), out);
            }
            Match::Hidden => {}
            Match::Nothing => {
                let track = Some(self.id(running));
                out(Step::Event { track, event });
            }
        }
    }

    fn begin_span(
        &mut self,
        spans: &Spans,
        function: FunctionId,
        time: Time,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let found = &mut self.tracks[spans.track];
        if found.depth() >= self.options.max_depth as usize || found.hides() {
            self.counts.too_deep += 1;
            return found.hide(function);
        }
        let call = self.next_call();
        let begin = self.tracks[spans.track].begin(call, Callee::Function(function), time, None);
        out(Step::Begin(Begin {
            cpu: spans.cpu,
            thread: spans.thread,
            ..begin
        }));
    }

    /// Handles a loss of a processor's events: spans that began there, or that any processor may end, have lasted up
    /// to here for certain. Returns those without a sign of life for more than `survived` losses, and the first such
    /// call of each.
    pub(super) fn lose_spans(
        &mut self,
        cpu: usize,
        time: Time,
        survived: u32,
    ) -> Vec<(usize, usize)> {
        let machine = self.cpus[cpu].machine;
        let mut stale = Vec::new();
        for ((of, _, own), spans) in &mut self.spans {
            let track = &mut self.tracks[spans.track];
            let is_touched = match own {
                Some(_) => track.last_on == Some(cpu),
                None => *of == machine,
            };
            if is_touched {
                spans.seen = false;
                track.run_to(time);
                stale.extend(track.lose(survived).map(|depth| (spans.track, depth)));
            }
        }
        stale
    }

    /// Spans in the order of their tracks.
    pub(super) fn spans_in_order(&self) -> Vec<(Key, Spans)> {
        let mut spans: Vec<_> = self.spans.iter().map(|(key, it)| (*key, *it)).collect();
        spans.sort_unstable_by_key(|(_, spans)| spans.track);
        spans
    }
}
