//! Several recordings of one run on one timeline, such as hardware trace and a software recording.
//!
//! Their clocks are related in one of these ways. If none applies, the recordings are rejected:
//!
//! | recordings | times |
//! |---|---|
//! | that use the same clock ([`TraceInfo::clock`]) | are unchanged |
//! | with dates | are shifted by the dates |
//! | with an equal number of events that [the caller](OpenOptions::align) names | are placed on the line through the first and the last of these events |
//!
//! The times of one recording do not change: of the first that counts nanoseconds. Nothing else is merged: each
//! recording keeps its own processors, threads and functions, like traces of several machines.

mod line;
mod span;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use kymo_event::{
    Batch, Known, Numbers, Space, SpaceId, StreamId, StreamInfo, Time, TraceInfo, Wanted,
};

use crate::{OpenError, OpenOptions, ReadError, Source};
use line::Line;
use span::Span;

/// Several sources as one.
struct Together {
    info: TraceInfo,
    parts: Vec<Part>,
    /// Error that ended reading.
    failed: Option<ReadError>,
    ended: bool,
}

/// One of the sources.
struct Part {
    source: Box<dyn Source>,
    /// Name for the user.
    name: String,
    line: Line,
    numbers: Numbers,
    known: Known,
    batch: Batch,
    /// Index of the next event in the batch, and its time.
    next: usize,
    time: Time,
    ended: bool,
    /// Times of the first and last event that were passed on.
    span: Span,
    /// Counts of the growing properties that were passed on.
    passed: Passed,
}

#[derive(Default)]
struct Passed {
    about: usize,
    remarks: usize,
    damage: usize,
    more_damage: u64,
}

/// Aligns the recordings [beside](OpenOptions::beside) an input with its timeline.
///
/// # Errors
/// [`OpenError`] if one cannot be opened, or if the clocks cannot be related.
pub(crate) fn open(
    path: &Path,
    first: Box<dyn Source>,
    options: &OpenOptions,
) -> Result<Box<dyn Source>, OpenError> {
    // The other options apply to the input only.
    let plain = OpenOptions {
        wanted: options.wanted,
        threads: options.threads,
        ..OpenOptions::default()
    };
    let mut sources = vec![(path.to_owned(), first)];
    for beside in &options.beside {
        sources.push((beside.clone(), crate::open::open_source(beside, &plain)?));
    }
    for (_, source) in &mut sources {
        // Identities without a space belong to the recording.
        let identities = &mut source.info_mut().identities;
        if identities.spaces().is_empty() {
            identities.add_space(Space::default());
        }
    }
    let lines = match &options.align {
        Some(event) => {
            let reopen = |number: usize, path: &Path| {
                let options = match number {
                    0 => options,
                    _ => &plain,
                };
                let again = OpenOptions {
                    beside: Vec::new(),
                    wanted: Wanted::Everything,
                    ..options.clone()
                };
                crate::open::open_source(path, &again)
            };
            line::through(&sources, event, reopen)?
        }
        None => line::known(&sources)?,
    };
    let names = names(&sources);
    let infos = sources.iter().map(|(_, source)| source.info());
    let mut info = common(infos.zip(&lines), line::reference(&sources));
    let parts = sources.into_iter().zip(lines).zip(names);
    let mut parts: Vec<Part> = parts
        .map(|(((_, source), line), name)| Part {
            source,
            name,
            line,
            numbers: Numbers::default(),
            known: Known::default(),
            batch: Batch::default(),
            next: 0,
            time: Time(i64::MIN),
            ended: false,
            span: Span::default(),
            passed: Passed::default(),
        })
        .collect();
    for part in &mut parts {
        if let Some(about) = part.line.about() {
            info.about
                .push((format!("time line of {}", part.name), about));
        }
        if let Some(remark) = part.line.remark() {
            info.remarks.push(format!("{}: {remark}", part.name));
        }
        let notes = part.source.info().notes.iter();
        let notes: Vec<_> = notes.map(|note| format!("{}: {note}", part.name)).collect();
        info.notes.extend(notes);
        part.pass_on(&mut info);
    }
    Ok(Box::new(Together {
        info,
        parts,
        failed: None,
        ended: false,
    }))
}

/// Returns the names of the recordings: their file names, or their paths if those are ambiguous.
fn names(sources: &[(PathBuf, Box<dyn Source>)]) -> Vec<String> {
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let short: Vec<_> = sources.iter().map(|(path, _)| name(path)).collect();
    let distinct: HashSet<_> = short.iter().collect();
    match distinct.len() == short.len() {
        true => short,
        false => {
            let paths = sources.iter();
            paths.map(|(path, _)| path.display().to_string()).collect()
        }
    }
}

/// Merges the properties of all, except for those that grow. The times are those of `reference`.
fn common<'a>(
    all: impl Iterator<Item = (&'a TraceInfo, &'a Line)> + Clone,
    reference: usize,
) -> TraceInfo {
    let mut formats: Vec<&str> = Vec::new();
    for (info, _) in all.clone() {
        if !formats.contains(&&*info.format) {
            formats.push(&info.format);
        }
    }
    let infos = || all.clone().map(|(info, _)| info);
    let of = infos().nth(reference);
    // All may have the same program.
    let only = |mut found: Vec<&'a TraceInfo>| found.pop().filter(|_| found.is_empty());
    let program = only(infos().filter(|info| info.build_id.is_some()).collect());
    let placed = only(infos().filter(|info| info.text_base.is_some()).collect());
    let begins: Option<Vec<_>> = all
        .clone()
        .map(|(info, line)| info.cut.begin.map(|time| line.time(time)))
        .collect();
    let ends: Option<Vec<_>> = all
        .clone()
        .map(|(info, line)| info.cut.end.map(|time| line.time(time)))
        .collect();
    let mut info = TraceInfo {
        format: formats.join("+"),
        build_id: program.and_then(|info| info.build_id.clone()),
        text_base: placed.and_then(|info| info.text_base),
        unit: of.map(|info| info.unit).unwrap_or_default(),
        clock_hz: of.and_then(|info| info.clock_hz),
        clock: of.and_then(|info| info.clock.clone()),
        wall_clock: of.and_then(|info| info.wall_clock.clone()),
        clock_checks: of.and_then(|info| info.clock_checks.clone()),
        clock_corrections: infos()
            .flat_map(|info| info.clock_corrections.iter().cloned())
            .collect(),
        steps_back: infos().any(|info| info.steps_back),
        in_order: infos().all(|info| info.in_order),
        numbered_threads: infos().any(|info| info.numbered_threads),
        // What another recording of the kernel knows of threads holds for all.
        wall_times: infos().any(|info| info.wall_times) && !infos().any(TraceInfo::shows_cpus),
        idle_is_no_thread: infos().all(|info| info.idle_is_no_thread),
        has_cpus: infos().any(|info| info.has_cpus),
        has_processes: infos().any(|info| info.has_processes),
        ..TraceInfo::default()
    };
    info.cut.begin = begins.and_then(|times| times.into_iter().min());
    info.cut.end = ends.and_then(|times| times.into_iter().max());
    info
}

impl Part {
    /// Reads the next batch if the current one is used up. Returns `false` at the end.
    fn fill(&mut self, info: &mut TraceInfo) -> Result<bool, ReadError> {
        while self.next >= self.batch.len() && !self.ended {
            let filled = self.source.fill(&mut self.batch);
            self.ended = !matches!(filled, Ok(true));
            self.next = 0;
            self.pass_on(info);
            filled?;
        }
        let next = self.batch.rows().get(self.next);
        if let Some(row) = next {
            self.time = self.line.time(row.time);
        }
        Ok(next.is_some())
    }

    /// Passes the next event on.
    fn take(&mut self, batch: &mut Batch) {
        let Some(next) = self.batch.get(self.next) else {
            return;
        };
        self.next += 1;
        self.span.meet(self.time);
        let row = next.row.renumbered(&self.numbers, self.time);
        let row = row.rescaled(|duration| self.line.duration(duration));
        let Some(event) = next.event else {
            return batch.push(row);
        };
        let mut event = event.clone();
        event.time = self.time;
        event.stamp = event.stamp.map(|stamp| self.line.time(stamp));
        self.numbers.renumber(&mut event);
        self.line.rescale(&mut event.kind);
        batch.push_both(&row, event);
    }

    /// Passes on what became known.
    fn pass_on(&mut self, info: &mut TraceInfo) {
        let own = self.source.info_mut();
        // If a trace names its program once, it is the program of its space.
        let (build_id, text_base) = (own.build_id.clone(), own.text_base);
        if let Some(space) = own.identities.space(SpaceId(0))
            && space.mappings.is_empty()
            && space.build_id.is_none()
            && build_id.is_some()
            && let Some(space) = own.identities.space_mut(SpaceId(0))
        {
            (space.build_id, space.text_base) = (build_id, text_base);
        }
        let news = own.identities.news(&mut self.known);
        let line = &self.line;
        info.identities
            .join(news, &mut self.numbers, &self.name, |time| line.time(time));
        for (index, stream) in own.streams.iter().enumerate() {
            let numbers = &self.numbers;
            let stream = StreamInfo {
                name: format!("{}/{}", self.name, stream.name),
                space: numbers.space(stream.space),
                machine: numbers.space(stream.machine),
                thread: stream.thread.map(|thread| numbers.thread(thread)),
                start: stream.start.map(|time| line.time(time)),
                end: stream.end.map(|time| line.time(time)),
                switches: stream
                    .switches
                    .map(|(begin, end)| (line.time(begin), line.time(end))),
                ..stream.clone()
            };
            let id = self.numbers.streams.get(index);
            match id.and_then(|id| info.streams.get_mut(id.0 as usize)) {
                Some(known) => *known = stream,
                None => {
                    let id = u32::try_from(info.streams.len()).unwrap_or(u32::MAX);
                    self.numbers.streams.push(StreamId(id));
                    info.streams.push(stream);
                }
            }
        }
        let Passed {
            about,
            remarks,
            damage,
            more_damage,
        } = &mut self.passed;
        let name = &self.name;
        for (what, value) in own.about.iter().skip(*about) {
            let what = format!("{name}: {what}");
            info.about.push((what, value.clone()));
        }
        for remark in own.remarks.iter().skip(*remarks) {
            info.remarks.push(format!("{name}: {remark}"));
        }
        for place in own.damage.iter().skip(*damage) {
            let mut place = place.clone();
            place.stream = format!("{name}/{}", place.stream);
            info.add_damage(place);
        }
        info.more_damage += own.more_damage - *more_damage;
        *more_damage = own.more_damage;
        (*about, *remarks, *damage) = (own.about.len(), own.remarks.len(), own.damage.len());
    }
}

impl Together {
    /// Returns the index of the source whose next event comes first.
    fn first(&mut self) -> Result<Option<usize>, ReadError> {
        let mut first: Option<(Time, usize)> = None;
        for (index, part) in self.parts.iter_mut().enumerate() {
            if part.fill(&mut self.info)? && first.is_none_or(|(time, _)| part.time < time) {
                first = Some((part.time, index));
            }
        }
        Ok(first.map(|(_, index)| index))
    }
}

impl Source for Together {
    fn threads(&self) -> usize {
        let threads = self.parts.iter().map(|part| part.source.threads());
        threads.max().unwrap_or(1)
    }

    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.info
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        batch.clear();
        while !batch.is_full() && !self.ended {
            match self.first() {
                Ok(Some(index)) => {
                    if let Some(part) = self.parts.get_mut(index) {
                        part.take(batch);
                    }
                }
                Ok(None) => {
                    self.ended = true;
                    let all = self.parts.iter().map(|part| (&*part.name, part.span));
                    self.info.remarks.extend(span::apart(all, self.info.unit));
                }
                Err(error) => (self.failed, self.ended) = (Some(error), true),
            }
        }
        match self.failed.take_if(|_| batch.is_empty()) {
            Some(error) => Err(error),
            None => Ok(!batch.is_empty()),
        }
    }
}
