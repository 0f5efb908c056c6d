//! Counts of a trace from one pass over it, for `kymo info`.

use kymo_event::{
    Batch, Cpu, Damage, Duration, EventKind, Gap, Row, RowKind, StreamId, StreamInfo, ThreadId,
    Time,
};

use crate::Source;

/// Counts of a whole trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Format ([`TraceInfo::format`](kymo_event::TraceInfo::format)).
    pub format: String,
    /// Number of records in the input.
    pub events: u64,
    /// Number of events missing between those that exist; `None` if that is unknown (packets were lost or damaged). It
    /// does not include events before the beginning of the trace that newer ones overwrote: they are a gap, but not
    /// missing *in* the trace.
    pub lost: Option<u64>,
    /// Number of packets before the beginning, which newer ones overwrote.
    pub overwritten: u64,
    /// Number of gaps: parts that are missing or uncertain.
    pub gaps: u64,
    /// Number of steps back of a clock, and their sum. The times here are as recorded; tables and exports subtract the
    /// time that did not pass.
    pub steps_back: (u64, Duration),
    /// Time of the first event, without streams that hold only names ([`StreamInfo::timeless`]).
    pub start: Option<Time>,
    /// Time of the last event, likewise.
    pub end: Option<Time>,
    /// Counts of each stream, in the order of the trace's streams.
    pub streams: Vec<StreamSummary>,
    /// Damage, and the error that ended reading, if any.
    pub errors: Vec<Damage>,
}

/// Counts of one stream. The fields have the same meaning as in [`Summary`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamSummary {
    /// Name.
    pub name: String,
    /// CPU of the stream, if it belongs to one.
    pub cpu: Option<Cpu>,
    /// Thread of the stream, if it belongs to one.
    pub thread: Option<ThreadId>,
    /// Number of records.
    pub events: u64,
    /// Number of missing events; `None` if unknown.
    pub lost: Option<u64>,
    /// Number of gaps.
    pub gaps: u64,
    /// Time of the first event.
    pub start: Option<Time>,
    /// Time of the last event.
    pub end: Option<Time>,
}

impl StreamSummary {
    fn new(stream: &StreamInfo) -> Self {
        Self {
            name: stream.name.clone(),
            cpu: stream.cpu,
            thread: stream.thread,
            lost: Some(0),
            ..Self::default()
        }
    }
}

impl Summary {
    /// Reads `source` to its end and counts its events.
    ///
    /// An error that ends reading does not discard the counts up to it. It is the last entry of
    /// [`errors`](Self::errors).
    pub fn of(source: &mut dyn Source) -> Self {
        let mut summary = Self {
            lost: Some(0),
            ..Self::default()
        };
        let mut failure = None;
        let mut batch = Batch::default();
        loop {
            match source.fill(&mut batch) {
                Ok(true) => {
                    let known = &source.info().streams;
                    for stream in known.iter().skip(summary.streams.len()) {
                        summary.streams.push(StreamSummary::new(stream));
                    }
                    summary.add_batch(&batch, known);
                }
                Ok(false) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let info = source.info();
        summary.format.clone_from(&info.format);
        for stream in info.streams.iter().skip(summary.streams.len()) {
            summary.streams.push(StreamSummary::new(stream));
        }
        summary.errors.clone_from(&info.damage);
        summary.errors.extend(failure.map(|error| {
            let message = error.to_string();
            let crate::ReadError::Io { stream, offset, .. } = error;
            Damage {
                stream,
                offset,
                message,
            }
        }));
        summary
    }

    /// Counts a gap in a stream.
    fn add_gap(&mut self, stream: usize, gap: &Gap) {
        let mut unlisted = StreamSummary::default();
        let stream = self.streams.get_mut(stream).unwrap_or(&mut unlisted);
        let lost = match gap {
            Gap::Overwritten { packets } => {
                self.overwritten = self.overwritten.saturating_add(*packets);
                Some(0)
            }
            Gap::TimeBackward { by } => {
                let (steps, total) = self.steps_back;
                self.steps_back = (steps + 1, Duration(total.0.saturating_add(by.0)));
                gap.lost_events()
            }
            gap => gap.lost_events(),
        };
        for (gaps, total) in [
            (&mut self.gaps, &mut self.lost),
            (&mut stream.gaps, &mut stream.lost),
        ] {
            *gaps += 1;
            *total = total
                .zip(lost)
                .map(|(total, lost)| total.saturating_add(lost));
        }
    }

    /// Counts the events of a batch. Calls come in runs of one stream.
    fn add_batch(&mut self, batch: &Batch, known: &[StreamInfo]) {
        let mut rest = batch.rows();
        let mut at = 0;
        for calls in batch.runs() {
            let (before, behind) = rest
                .split_at_checked(calls.start - at)
                .unwrap_or((rest, &[]));
            self.add_rows(batch, before, known);
            let (run, behind) = behind
                .split_at_checked(calls.len())
                .unwrap_or((behind, &[]));
            if let (Some(first), Some(last)) = (run.first(), run.last()) {
                let run = Run {
                    stream: first.stream,
                    records: run.len() as u64,
                    first: first.time,
                    last: last.time,
                };
                self.add(&run, known);
            }
            (rest, at) = (behind, calls.end);
        }
        self.add_rows(batch, rest, known);
    }

    fn add_rows(&mut self, batch: &Batch, rows: &[Row], known: &[StreamInfo]) {
        let mut run = Run::of(StreamId(u32::MAX));
        for row in rows {
            if row.stream != run.stream {
                self.add(&run, known);
                run = Run::of(row.stream);
            }
            if row.record {
                run.records += 1;
                run.first = run.first.min(row.time);
                run.last = run.last.max(row.time);
            } else if row.kind == RowKind::Enter {
                // The record of a whole call is the one of its end.
                run.first = run.first.min(row.time);
            }
            if row.kind == RowKind::Rare
                && let Some(EventKind::Gap(gap)) = batch.event_of(row).map(|event| &event.kind)
            {
                self.add_gap(place(row.stream), gap);
            }
        }
        self.add(&run, known);
    }

    /// Counts the records of a run.
    fn add(&mut self, run: &Run, known: &[StreamInfo]) {
        if run.first == Time(i64::MAX) {
            return;
        }
        let place = place(run.stream);
        let timeless = known.get(place).is_some_and(|stream| stream.timeless);
        let mut unlisted = StreamSummary::default();
        let stream = self.streams.get_mut(place).unwrap_or(&mut unlisted);
        self.events += run.records;
        stream.events += run.records;
        let whole = (!timeless).then_some((&mut self.start, &mut self.end));
        for (start, end) in whole
            .into_iter()
            .chain([(&mut stream.start, &mut stream.end)])
        {
            *start = Some(start.map_or(run.first, |start| start.min(run.first)));
            *end = Some(end.map_or(run.last, |end| end.max(run.last)))
                .filter(|_| run.records > 0)
                .or(*end);
        }
    }
}

/// Consecutive events of one stream.
struct Run {
    stream: StreamId,
    records: u64,
    /// Times of the first and the last record.
    first: Time,
    last: Time,
}

impl Run {
    const fn of(stream: StreamId) -> Self {
        Self {
            stream,
            records: 0,
            first: Time(i64::MAX),
            last: Time(i64::MIN),
        }
    }
}

/// Returns the index of a stream.
fn place(stream: StreamId) -> usize {
    usize::try_from(stream.0).unwrap_or(usize::MAX)
}
