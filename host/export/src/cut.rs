//! Event filter for formats that list events: passes the events in the window that the filter selects.
//!
//! A format that can be read as a trace again also gets the calls, switches and other states that are open when the
//! window begins, as events just before it; without them the truncated trace could not be interpreted. They are not
//! records.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kymo_analysis::calls::{CallId, Calls, Step};
use kymo_analysis::counter_values::CounterValues;
use kymo_analysis::replay::{self, Window};
use kymo_analysis::schedule::Schedule;
use kymo_event::{
    Addr, Batch, Cpu, Cut as Bounds, Duration, Event, EventKind, EventRef, Filter, FunctionId, Gap,
    Operand, Row, RowKind, Space, StreamId, StreamInfo, Subject, ThreadId, Tid, Time, TraceInfo,
};
use kymo_symbols::Symbols;

use crate::ExportError;

/// Drops events outside the window or the selection.
pub(crate) struct Cut {
    window: Window,
    filter: Filter,
    symbols: Arc<Symbols>,
    /// Which streams are selected, by [`StreamId`], as far as already decided.
    streams: Vec<Option<bool>>,
    /// Whether the format can be read as a trace again.
    is_trace: bool,
    /// State that is open before the window.
    before: Option<Before>,
    /// Nearest times of events dropped before and after the window.
    bounds: Bounds,
    /// Number of events added for what was open when the window began.
    opened: u64,
    /// Functions whose calls were open then.
    open: HashSet<FunctionId>,
}

/// State at the beginning of the window.
struct Before {
    calls: Calls,
    /// Open calls whose event is not selected.
    unwanted: HashSet<CallId>,
    /// Whether any event came before the window.
    any: bool,
    /// Whether threads were switched. Otherwise the trace does not say which thread has a processor, and neither may
    /// the truncated one.
    switched: bool,
    /// Which thread has each processor.
    schedule: Schedule,
    /// Threads that are ready and have not got a processor yet, each with the event that reports it.
    ready: BTreeMap<ThreadId, Event>,
    /// Current values of counters.
    counters: CounterValues,
}

impl Cut {
    /// Creates the filter for `options`. `is_trace`: the format can be read as a trace again.
    ///
    /// # Errors
    /// [`ExportError::Selection`] if the options select by a property that only calls have.
    pub fn new(
        (format, is_trace): (&'static str, bool),
        info: &TraceInfo,
        options: &replay::Options,
        symbols: &Arc<Symbols>,
    ) -> Result<Self, ExportError> {
        let selection = &options.selection;
        for (requested, option) in [
            (!selection.functions.is_empty(), "functions"),
            (!selection.hide.is_empty(), "hidden functions"),
            (selection.depth.is_some(), "depth"),
            (selection.min_duration > Duration(0), "duration"),
            (options.compensate, "times without recording overhead"),
        ] {
            if requested {
                return Err(ExportError::Selection { format, option });
            }
        }
        let opens = is_trace && options.window.begin > Window::default().begin;
        Ok(Self {
            is_trace,
            before: opens.then(|| Before {
                calls: Calls::new(info, options.calls),
                unwanted: HashSet::new(),
                any: false,
                switched: false,
                schedule: Schedule::default(),
                ready: BTreeMap::new(),
                counters: CounterValues::default(),
            }),
            bounds: Bounds::default(),
            opened: 0,
            open: HashSet::new(),
            window: options.window,
            filter: selection.events.clone(),
            symbols: Arc::clone(symbols),
            streams: Vec::new(),
        })
    }

    /// Whether it passes all events.
    pub fn keeps_all(&self) -> bool {
        self.window == Window::default() && self.filter.is_everything()
    }

    /// Adds the selected events to `kept`.
    pub fn take(&mut self, info: &TraceInfo, batch: &Batch, kept: &mut Batch) {
        if let Some(before) = &mut self.before {
            before.calls.learn(info);
        }
        for event in batch.iter() {
            let row = event.row;
            let stream = info.stream(row.stream);
            let timeless = stream.is_some_and(|stream| stream.timeless);
            if timeless && self.is_trace {
                // It has no timestamp.
                if self.wants(info, event) {
                    kept.push_ref(event);
                }
                continue;
            }
            if self.before.is_some() {
                if row.time < self.window.begin {
                    self.before(info, event);
                    continue;
                }
                self.open(info, kept);
            }
            if row.time > self.window.end {
                self.bounds.end = Some(self.window.end);
            }
            if within(self.window, row.time) && self.wants(info, event) {
                let clipped = self.clipped(row);
                let row = clipped.as_ref().unwrap_or(row);
                kept.push_ref(EventRef { row, ..event });
            }
        }
    }

    /// Returns the exit of a call that was open when the window began and whose stated duration is longer than the time
    /// since its entry there: with that time instead. The duration would win over the window otherwise.
    fn clipped(&self, row: &Row) -> Option<Row> {
        let wall = row.wall()?;
        let open = row.of_function().filter(|open| self.open.contains(open));
        open?;
        let since = row.time.since(just_before(self.window))?;
        (wall > since).then(|| row.took(since))
    }

    /// Nearest times of dropped events on both sides of the window, and the number of events added for what was open at
    /// its beginning.
    pub const fn bounds(&self) -> (Bounds, u64) {
        (self.bounds, self.opened)
    }

    /// Processes an event before the window.
    fn before(&mut self, info: &TraceInfo, event: EventRef<'_>) {
        let wanted = self.wants(info, event);
        let Some(Before {
            calls,
            unwanted,
            any,
            switched,
            schedule,
            ready,
            counters,
        }) = &mut self.before
        else {
            return;
        };
        *any = true;
        *switched |= is_switch(event.row);
        schedule.push(info, event);
        if wanted {
            counters.take(info, event);
        }
        match event.event.map(|event| (&event.kind, event)) {
            Some((EventKind::Ready { thread }, event)) if wanted => {
                ready.insert(*thread, event.clone());
            }
            _ if is_switch(event.row) => {
                event.row.thread().map(|thread| ready.remove(&thread));
            }
            _ => {}
        }
        calls.push(event, &mut |step| match step {
            Step::Begin(begin) if !wanted => {
                unwanted.insert(begin.call);
            }
            Step::End(end) => {
                unwanted.remove(&end.call);
            }
            _ => {}
        });
    }

    /// Begins the window: adds what is open, just before it.
    fn open(&mut self, info: &TraceInfo, kept: &mut Batch) {
        let Some(before) = self.before.take() else {
            return;
        };
        let begin = self.window.begin;
        self.bounds.begin = Some(begin).filter(|_| before.any);
        self.bounds.hidden_calls = before.calls.hidden_calls();
        let just_before = just_before(self.window);
        let rows = before.calls.open_rows(just_before);
        for row in latest_switches(&before.schedule, just_before) {
            // A thread's row takes its position among those of the calls, unless the thread seems to have two
            // processors.
            let place = |it: &Row| (it.kind, it.cpu(), it.thread());
            let is_there = rows.iter().any(|(it, _)| place(it) == place(&row));
            let stream = info.stream(row.stream);
            let of_thread = stream.is_some_and(|stream| stream.thread.is_some());
            if !is_there && !of_thread && self.wants_row(info, &row) {
                kept.push(row);
                self.opened += 1;
            }
        }
        // Processors that waiting threads get and leave here, so that the one that runs has to get them again.
        let left = rows
            .iter()
            .filter(|(row, _)| row.kind == RowKind::SwitchedOut);
        let left: HashSet<_> = left.map(|(row, _)| (row.stream, row.cpu())).collect();
        for (mut row, call) in rows {
            let stream = info.stream(row.stream);
            let machine = stream.map(|stream| stream.machine).unwrap_or_default();
            if row.kind == RowKind::SwitchedIn
                && let Some(thread) = row.thread()
                && before.schedule.named_on(machine, row.cpu()) == Some(thread)
                && !(before.switched && left.contains(&(row.stream, row.cpu())))
            {
                // No switch is recorded, and none may be added.
                row.kind = RowKind::Other;
            }
            let wanted = match call {
                Some(call) => {
                    !before.unwanted.contains(&call) && self.wants_stream(info, row.stream)
                }
                None if is_switch(&row) && !before.switched => false,
                None => self.wants_row(info, &row),
            };
            if wanted {
                self.open.extend(row.of_function());
                kept.push(row);
                self.opened += 1;
            }
        }
        let mut events = Vec::new();
        for (_, mut event) in before.ready {
            (event.time, event.stamp, event.record) = (just_before, None, false);
            events.push(event);
        }
        events.extend(before.counters.at(just_before));
        for mut event in events {
            let stream = info.stream(event.stream);
            if stream.is_none_or(|stream| stream.thread.is_none() && !stream.without_switches) {
                // The thread that woke another one, or set a counter, may have lost the processor since.
                event.thread = None;
            }
            kept.push_event(event);
            self.opened += 1;
        }
        // Losses there affect the window as well.
        for stream in before.calls.lossy_streams() {
            let mut gap = Row::new(RowKind::Other, just_before, stream);
            gap.record = false;
            let mut gap = EventRef {
                row: &gap,
                event: None,
            }
            .to_event();
            gap.cpu = info.stream(stream).and_then(|stream| stream.cpu);
            gap.kind = EventKind::Gap(Gap::Discarded { events: None });
            let wanted = self.filter.keeps_gap(Some(just_before), gap.cpu);
            if wanted && self.wants_stream(info, stream) {
                kept.push_event(gap);
                self.opened += 1;
            }
        }
    }

    fn wants_row(&mut self, info: &TraceInfo, row: &Row) -> bool {
        self.wants(info, EventRef { row, event: None })
    }

    /// Whether an event is selected, regardless of its time.
    fn wants(&mut self, info: &TraceInfo, seen: EventRef<'_>) -> bool {
        let row = seen.row;
        if !self.wants_stream(info, row.stream) {
            return false;
        }
        if let Some(event) = seen.event {
            if matches!(event.kind, EventKind::Gap(_)) {
                return self.filter.keeps_gap(Some(row.time), row.cpu());
            }
            return self.filter.wants(&Requested {
                event,
                info,
                symbols: &self.symbols,
            });
        }
        let event = &seen.to_event();
        self.filter.wants(&Requested {
            event,
            info,
            symbols: &self.symbols,
        })
    }

    fn wants_stream(&mut self, info: &TraceInfo, stream: StreamId) -> bool {
        let index = stream.0 as usize;
        if let Some(Some(known)) = self.streams.get(index) {
            return *known;
        }
        let Some(found) = info.stream(stream) else {
            // An undescribed stream has no name.
            return self.filter.wants_stream(&StreamInfo::default());
        };
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
        }
        let wanted = self.filter.wants_stream(found);
        if let Some(place) = self.streams.get_mut(index) {
            *place = Some(wanted);
        }
        wanted
    }
}

/// Environment entries of a CTF trace that report where it was cut from a longer one, in nanoseconds of its clock.
pub(crate) fn facts(info: &TraceInfo, cut: Bounds) -> Vec<(&'static str, String)> {
    let wall = info.wall_clock.as_ref();
    let first = wall.and_then(|wall| wall.moments().first());
    let origin = first.and_then(|first| first.unix_ns.checked_sub(first.time.0));
    let fact = |name, time: Option<Time>| {
        let ns = time?.0.saturating_add(origin.unwrap_or(0));
        Some((name, ns.to_string()))
    };
    let begin = fact(Bounds::BEGIN_NAME, cut.begin);
    let end = fact(Bounds::END_NAME, cut.end);
    let hidden = cut
        .hidden_calls
        .map(|calls| (Bounds::HIDDEN_CALLS_NAME, calls.to_string()));
    begin.into_iter().chain(end).chain(hidden).collect()
}

/// Rows that state which thread has each processor, or that it is idle: the previous thread leaves it then. None is a
/// record.
fn latest_switches(schedule: &Schedule, time: Time) -> Vec<Row> {
    let mut rows = Vec::new();
    for since in schedule.latest_switches() {
        let row = |kind| {
            let mut row = Row::new(kind, time, since.stream).at(since.cpu(), since.thread());
            row.record = false;
            row
        };
        let leaves = since.kind == RowKind::SwitchedOut;
        // A leaving thread shows that threads are switched only if some other row reports that one was switched in.
        if !leaves || schedule.has_switches() {
            rows.push(row(RowKind::SwitchedIn));
        }
        if leaves {
            rows.push(row(RowKind::SwitchedOut));
        }
    }
    rows
}

const fn is_switch(row: &Row) -> bool {
    matches!(row.kind, RowKind::SwitchedIn | RowKind::SwitchedOut)
}

/// The time of the events that state what is open when a window begins.
const fn just_before(window: Window) -> Time {
    Time(window.begin.0.saturating_sub(1))
}

/// Whether a time lies in a window.
pub(crate) fn within(window: Window, time: Time) -> bool {
    (window.begin..=window.end).contains(&time)
}

/// An event together with its thread and its function.
struct Requested<'a> {
    event: &'a Event,
    info: &'a TraceInfo,
    symbols: &'a Symbols,
}

impl Requested<'_> {
    /// The thread that the event is about.
    fn about(&self) -> Option<ThreadId> {
        match &self.event.kind {
            EventKind::ThreadName { thread, .. } => Some(*thread),
            _ => self.event.thread,
        }
    }

    /// The function that the event enters or leaves.
    fn function(&self) -> Option<FunctionId> {
        self.event.kind.function()
    }
}

impl Subject for Requested<'_> {
    fn time(&self) -> Option<Time> {
        // The window has already been checked.
        None
    }

    fn name(&self) -> &str {
        &self.event.name
    }

    fn label(&self) -> Option<&str> {
        self.event.label()
    }

    fn cpu(&self) -> Option<Cpu> {
        self.event.cpu
    }

    fn thread(&self) -> Option<Tid> {
        Some(self.info.identities.tid(self.about()?))
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        Some(self.info.identities.thread_name(self.about()?)?.into())
    }

    fn space(&self) -> Option<&Space> {
        self.info.identities.thread_space(self.about()?)
    }

    /// The value of a function is its address; its name is the displayed one.
    fn field(&self, path: &str) -> Option<Operand<'_>> {
        if path == "function"
            && let Some(id) = self.function()
            && let Some(function) = self.info.identities.function(id)
            && let Some(name) = self.symbols.name_of(function)
        {
            let Addr(address) = function.address.unwrap_or_default();
            return Some(Operand::Label(name, address.into()));
        }
        let recorded = self.event.field(path);
        // What `report --by irq` shows, where the source has no field of that name.
        recorded.or_else(|| {
            let id = self.event.kind.interrupt().filter(|_| path == "irq")?;
            Some(Operand::Integer(self.info.identities.irq(id).0.into()))
        })
    }
}
