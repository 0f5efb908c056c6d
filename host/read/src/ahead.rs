//! Reading ahead: a separate thread fills batches while the consumer handles earlier ones.
//!
//! Batches keep their order, so the result does not depend on the speed of either side. A fixed number of batches
//! circulates: full ones in one direction, empty ones in the other. Each full batch carries the properties that became
//! known with it, so [`Source::info`] never describes events that were not returned yet.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use kymo_event::{
    Batch, Damage, Identities, Known, News, StreamInfo, Time, TraceCounts, TraceInfo,
};

use crate::{ReadError, Source};

/// Number of circulating batches. Enough that neither side waits for each single batch of the other.
const BATCHES: usize = 4;

/// Reads `source` on a separate thread.
///
/// Changes through [`info_mut`](Source::info_mut) affect only the consumer, not the source.
pub fn read_ahead(mut source: Box<dyn Source>) -> impl Source {
    let info = source.info().clone();
    let threads = source.threads() + 1;
    let reported = Reported::of(source.info_mut());
    let (full_in, full) = sync_channel(BATCHES);
    let (empty, empty_out) = sync_channel(BATCHES);
    for _ in 0..BATCHES {
        // The channel has a slot for each of them.
        let _ = empty.try_send(Batch::default());
    }
    let mut reader = Reader { source, reported };
    let thread = thread::spawn(move || reader.run(&empty_out, &full_in));
    Ahead {
        info,
        full: Some(full),
        empty,
        thread: Some(thread),
        threads,
    }
}

/// Full batch on its way to the consumer.
struct Filled {
    batch: Batch,
    news: Box<Change>,
}

/// Properties of a trace that changed with a batch.
struct Change {
    identities: News,
    /// New streams.
    streams: Vec<StreamInfo>,
    /// New damage.
    damage: Vec<Damage>,
    /// Changed properties of streams.
    spans: Vec<(usize, Span)>,
    /// All other properties, if any of them changed.
    rest: Option<Box<TraceInfo>>,
}

/// Properties of a stream that change: the times of its first and last event, and the counts of its trace.
type Span = (Option<Time>, Option<Time>, Option<TraceCounts>);

/// Properties that were reported to the consumer.
struct Reported {
    identities: Known,
    streams: Vec<Span>,
    damage: usize,
    rest: TraceInfo,
}

impl Reported {
    /// Records everything that is known now as reported.
    fn of(info: &mut TraceInfo) -> Self {
        let mut identities = Known::default();
        info.identities.news(&mut identities);
        Self {
            identities,
            streams: info.streams.iter().map(span).collect(),
            damage: info.damage.len(),
            rest: rest(info),
        }
    }

    /// Returns the changes since the last call.
    fn change(&mut self, info: &mut TraceInfo) -> Change {
        let known = self.streams.len();
        let streams = info.streams.get(known..).unwrap_or(&[]).to_vec();
        let mut spans = Vec::new();
        for (index, (stream, reported)) in info.streams.iter().zip(&mut self.streams).enumerate() {
            let now = span(stream);
            if *reported != now {
                *reported = now;
                spans.push((index, now));
            }
        }
        self.streams.extend(streams.iter().map(span));
        let damage = info.damage.get(self.damage..).unwrap_or(&[]).to_vec();
        self.damage = info.damage.len();
        let now = rest(info);
        Change {
            identities: info.identities.news(&mut self.identities),
            streams,
            damage,
            spans,
            rest: (now != self.rest).then(|| {
                self.rest.clone_from(&now);
                Box::new(now)
            }),
        }
    }
}

const fn span(stream: &StreamInfo) -> Span {
    (stream.start, stream.end, stream.counts)
}

/// Copies the properties of a trace except for those that grow. It names each field, so that none is forgotten.
fn rest(info: &TraceInfo) -> TraceInfo {
    let TraceInfo {
        format,
        build_id,
        text_base,
        cut,
        unit,
        clock_hz,
        clock,
        session,
        moved_to_session,
        wall_clock,
        clock_corrections,
        clock_checks,
        steps_back,
        untimed,
        in_order,
        wall_times,
        costs,
        numbered_threads,
        idle_is_no_thread,
        has_cpus,
        has_processes,
        settled_symbols,
        added_events,
        about,
        more_damage,
        remarks,
        notes,
        streams: _,
        identities: _,
        damage: _,
    } = info;
    TraceInfo {
        format: format.clone(),
        build_id: build_id.clone(),
        text_base: *text_base,
        cut: *cut,
        unit: *unit,
        clock_hz: *clock_hz,
        clock: clock.clone(),
        session: *session,
        moved_to_session: *moved_to_session,
        wall_clock: wall_clock.clone(),
        clock_corrections: clock_corrections.clone(),
        clock_checks: clock_checks.clone(),
        steps_back: *steps_back,
        untimed: *untimed,
        in_order: *in_order,
        wall_times: *wall_times,
        costs: costs.clone(),
        numbered_threads: *numbered_threads,
        idle_is_no_thread: *idle_is_no_thread,
        has_cpus: *has_cpus,
        has_processes: *has_processes,
        settled_symbols: settled_symbols.clone(),
        added_events: *added_events,
        about: about.clone(),
        more_damage: *more_damage,
        remarks: remarks.clone(),
        notes: notes.clone(),
        streams: Vec::new(),
        identities: Identities::default(),
        damage: Vec::new(),
    }
}

/// The reading side.
struct Reader {
    source: Box<dyn Source>,
    reported: Reported,
}

impl Reader {
    /// Fills batches until the source ends, or the consumer stops taking them.
    fn run(&mut self, empty: &Receiver<Batch>, full: &SyncSender<Result<Filled, ReadError>>) {
        while let Ok(mut batch) = empty.recv() {
            let filled = self.source.fill(&mut batch).map(|_| Filled {
                batch,
                news: Box::new(self.reported.change(self.source.info_mut())),
            });
            let is_last = filled
                .as_ref()
                .map_or(true, |filled| filled.batch.is_empty());
            if full.send(filled).is_err() || is_last {
                return;
            }
        }
    }
}

/// The consuming side.
struct Ahead {
    info: TraceInfo,
    /// `None` once all batches have been returned.
    full: Option<Receiver<Result<Filled, ReadError>>>,
    empty: SyncSender<Batch>,
    thread: Option<JoinHandle<()>>,
    threads: usize,
}

impl Ahead {
    fn learn(&mut self, change: Change) {
        let info = &mut self.info;
        info.identities.learn(change.identities);
        for (index, span) in change.spans {
            if let Some(stream) = info.streams.get_mut(index) {
                (stream.start, stream.end, stream.counts) = span;
            }
        }
        info.streams.extend(change.streams);
        info.damage.extend(change.damage);
        if let Some(rest) = change.rest {
            let known = std::mem::replace(info, *rest);
            info.streams = known.streams;
            info.identities = known.identities;
            info.damage = known.damage;
        }
    }

    /// Waits for the reading thread, and propagates a panic of it.
    fn end(&mut self) {
        self.full = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Source for Ahead {
    fn threads(&self) -> usize {
        self.threads
    }

    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let next = self.full.as_ref().map(Receiver::recv);
        let Some(Ok(next)) = next else {
            self.end();
            batch.clear();
            return Ok(false);
        };
        let filled = next.inspect_err(|_| batch.clear())?;
        let mut emptied = std::mem::replace(batch, filled.batch);
        emptied.clear();
        // If the reader has ended, it needs no more batches.
        let _ = self.empty.try_send(emptied);
        self.learn(*filled.news);
        Ok(!batch.is_empty())
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Closes both channels, which ends the reader wherever it waits.
        let (closed, _) = sync_channel(0);
        self.empty = closed;
        self.full = None;
        if let Some(thread) = self.thread.take() {
            // Ignores a panic of the reader, because its events are no longer wanted.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kymo_event::{Row, RowKind, Space, SpaceId, StreamId, Tid};

    use super::*;

    /// Returns a number of batches with one event each, then fails. Each batch adds a thread and damage.
    struct Failing {
        info: TraceInfo,
        left: u64,
        filled: Arc<AtomicUsize>,
    }

    impl Source for Failing {
        fn info(&self) -> &TraceInfo {
            &self.info
        }

        fn info_mut(&mut self) -> &mut TraceInfo {
            &mut self.info
        }

        fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
            batch.clear();
            let Some(left) = self.left.checked_sub(1) else {
                return Err(ReadError::Io {
                    stream: "it".to_owned(),
                    offset: 7,
                    source: std::io::ErrorKind::Other.into(),
                });
            };
            self.left = left;
            self.filled.fetch_add(1, Ordering::SeqCst);
            let time = Time(i64::try_from(left).unwrap());
            let thread = self.info.identities.thread(SpaceId(0), Tid(left));
            self.info.identities.name_thread(thread, &left.to_string());
            self.info.damage.push(Damage {
                stream: "it".to_owned(),
                offset: left,
                message: String::new(),
            });
            self.info.clock_hz = Some(left);
            if left % 3 == 0 {
                self.info.streams.push(StreamInfo::default());
            }
            if let Some(stream) = self.info.streams.first_mut() {
                stream.end = Some(time);
            }
            batch.push(Row::new(RowKind::Other, time, StreamId(0)).at(None, Some(thread)));
            Ok(true)
        }
    }

    fn failing(left: u64) -> (Box<dyn Source>, Arc<AtomicUsize>) {
        let filled = Arc::default();
        let mut info = TraceInfo {
            streams: vec![StreamInfo::default()],
            ..TraceInfo::default()
        };
        info.identities.add_space(Space::default());
        let source = Failing {
            info,
            left,
            filled: Arc::clone(&filled),
        };
        (Box::new(source), filled)
    }

    #[test]
    fn each_batch_comes_with_what_was_known_then_and_errors_come_last() {
        let (mut direct, _) = failing(50);
        let mut ahead = read_ahead(failing(50).0);
        let (mut one, mut other) = (Batch::default(), Batch::default());
        for _ in 0..50 {
            assert!(direct.fill(&mut one).unwrap() && ahead.fill(&mut other).unwrap());
            assert_eq!(one.rows(), other.rows());
            assert_eq!(direct.info(), ahead.info());
        }
        let failure = ahead.fill(&mut other).unwrap_err();
        assert_eq!(
            direct.fill(&mut one).unwrap_err().to_string(),
            failure.to_string()
        );
        assert!(other.is_empty());
        assert!(!ahead.fill(&mut other).unwrap());
    }

    #[test]
    fn it_reads_so_far_ahead_and_ends_when_nobody_listens() {
        let (source, filled) = failing(u64::MAX >> 1);
        let mut ahead = read_ahead(source);
        let mut batch = Batch::default();
        assert!(ahead.fill(&mut batch).unwrap());
        // Waits for the thread, after which there is no other owner.
        drop(ahead);
        assert_eq!(Arc::strong_count(&filled), 1);
        assert!(filled.load(Ordering::SeqCst) <= 2 * BATCHES + 2);
    }
}
