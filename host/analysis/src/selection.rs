//! Selection of the calls to show.
//!
//! A selection never changes results: durations, self times and nesting are those of the whole trace.

mod held;

use std::ops::Range;
use std::sync::Arc;

use kymo_event::{
    Addr, Cpu, Duration, Event, EventKind, EventRef, Filter, FunctionId, Identities, Operand,
    Pattern, Row, RowKind, StreamInfo, Subject, ThreadId, Tid, Time, TraceInfo, Unmet,
};
use kymo_symbols::{Symbols, spellings};

use crate::calls::{Begin, CallId, Callee, End, Step, TrackId, TrackInfo, TrackKind};
use crate::ended::Ended;
use crate::replay::Origin;
use crate::titles;
use held::Held;

/// Filters for the calls of a trace. The default shows all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Filter for the event that a call begins with: its name and fields. Threads, processors and streams are those
    /// of the event; bounds of time have no effect here (see [`Window`](crate::replay::Window)). A call whose begin
    /// is missing is filtered by its end.
    pub events: Filter,
    /// Shows only calls of these functions or interrupts, and their callees; all if empty.
    pub functions: Vec<FunctionChoice>,
    /// Hides calls of these functions or interrupts; their callees are still shown.
    pub hide: Vec<FunctionChoice>,
    /// Maximum number of levels shown.
    pub depth: Option<u32>,
    /// Minimum duration of the calls shown.
    pub min_duration: Duration,
}

/// Chooses functions by an address, a range of addresses or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionChoice {
    /// The function that begins at this address.
    Address(Addr),
    /// Functions with code in this range.
    Addresses(Range<u64>),
    /// Functions whose name matches: as shown, without parameters, or without its path.
    Named(Pattern),
}

impl FunctionChoice {
    /// Parses user input: an address with `0x`, or a name with `*` and `?` as wildcards.
    pub fn new(text: &str) -> Self {
        let digits = text.strip_prefix("0x");
        match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
            Some(address) => Self::Address(Addr(address)),
            None => Self::Named(Pattern::new(text)),
        }
    }

    /// Whether a function matches, by the addresses of its code ([`Symbols::code_of`]) or any spelling of its name.
    pub fn matches(&self, code: Option<&Range<u64>>, name: &str) -> bool {
        match self {
            Self::Address(wanted) => code.is_some_and(|code| code.start == wanted.0),
            Self::Addresses(wanted) => {
                code.is_some_and(|code| code.start < wanted.end && wanted.start < code.end)
            }
            Self::Named(pattern) => spellings(name).iter().any(|name| pattern.matches(name)),
        }
    }
}

impl Selection {
    /// Whether nothing is filtered.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// Whether Linux's task 0, which runs where no other task does, is one of the chosen threads.
    fn chooses_idle(&self) -> bool {
        let mut threads = self.events.threads.iter();
        let is_chosen = threads.any(|choice| choice.fits(Tid(0), Some("<idle>")));
        is_chosen && self.events.processes.is_empty()
    }

    /// Whether it filters by names or fields of events, so that these are [wanted](kymo_event::Wanted::Everything).
    pub fn needs_events(&self) -> bool {
        let Filter {
            events, conditions, ..
        } = &self.events;
        !conditions.is_empty() || !events.keep.is_empty() || !events.drop.is_empty()
    }
}

/// Removes steps that are not selected.
pub(crate) struct Chooser {
    selection: Selection,
    symbols: Arc<Symbols>,
    /// Whether the filter needs more of an event than its thread, processor and stream.
    needs_events: bool,
    /// Whether events outside threads belong to the chosen [idle task](Selection::chooses_idle).
    wants_idle: bool,
    tracks: Vec<Track>,
    /// The tracks of threads, indexed by [`ThreadId`].
    threads: Vec<Option<TrackId>>,
    /// Cached matches, indexed by [`FunctionId`] and [`InterruptId`](kymo_event::InterruptId).
    functions: Vec<Option<Fits>>,
    interrupts: Vec<Option<Fits>>,
    streams: Vec<Option<bool>>,
    chosen: Chosen,
    unmet: Unmet,
    held: Held,
    /// Whether calls that have ended were shown: a clock may turn out to have been ahead in them.
    ended: Ended<bool>,
}

/// Numbers of selected events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Events that were selected, without gaps and events without a time.
    pub kept: u64,
    /// Events that were not selected.
    pub left_out: u64,
    /// Calls that are shown because the queue was full before their duration was known.
    pub undecided: u64,
}

/// How a function matches the choices.
#[derive(Clone, Copy, Debug)]
struct Fits {
    wanted: bool,
    hidden: bool,
}

/// The calls that are open on a track.
#[derive(Debug, Default)]
struct Track {
    info: Option<TrackInfo>,
    calls: Vec<Open>,
    /// The number of calls that are shown, and of calls whose functions were requested.
    shown: u32,
    roots: u32,
    /// The processor that it had last.
    cpu: Option<Cpu>,
    /// The thread of the track; for an interrupt, the interrupted thread.
    thread: Option<ThreadId>,
    /// The calls that were open when the window began, which begin there again.
    clipped: Vec<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    call: CallId,
    /// Whether its event was chosen.
    chosen: bool,
    shown: bool,
    root: bool,
}

impl std::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chooser")
            .field("selection", &self.selection)
            .finish_non_exhaustive()
    }
}

impl Chooser {
    pub(crate) fn new(selection: Selection, symbols: Arc<Symbols>) -> Self {
        Self {
            needs_events: selection.needs_events(),
            unmet: Unmet::new(&selection.events.conditions),
            held: Held::new(selection.min_duration),
            ended: Ended::default(),
            wants_idle: false,
            selection,
            symbols,
            tracks: Vec::new(),
            threads: Vec::new(),
            functions: Vec::new(),
            interrupts: Vec::new(),
            streams: Vec::new(),
            chosen: Chosen::default(),
        }
    }

    pub(crate) const fn chosen(&self) -> Chosen {
        Chosen {
            undecided: self.held.undecided,
            ..self.chosen
        }
    }

    pub(crate) const fn unmet(&self) -> &Unmet {
        &self.unmet
    }

    /// Whether an event is selected by its stream, name and fields.
    pub(crate) fn event(&mut self, event: EventRef<'_>, info: &TraceInfo) -> bool {
        let row = event.row;
        let stream = info.stream(row.stream);
        if stream.is_some_and(|stream| stream.timeless) {
            return true;
        }
        let index = row.stream.0 as usize;
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
            self.wants_idle = info.numbered_threads && self.selection.chooses_idle();
        }
        let filter = &self.selection.events;
        let wants = || match stream {
            Some(stream) => filter.wants_stream(stream),
            None => filter.wants_stream(&StreamInfo::default()),
        };
        if !*self.streams[index].get_or_insert_with(wants) {
            return false;
        }
        let whole = event.event.filter(|_| self.needs_events);
        let gap = matches!(
            event.event.map(|event| &event.kind),
            Some(EventKind::Gap(_))
        );
        if gap {
            return true;
        }
        let identities = &info.identities;
        let named = match row.kind {
            _ if filter.conditions.is_empty() => None,
            kind if kind.is_of_call() => row
                .of_function()
                .map(|id| function(id, identities, &self.symbols)),
            RowKind::IsrEnter | RowKind::IsrExit => row
                .of_interrupt()
                .map(|id| (None, titles::interrupt(identities, id))),
            _ => None,
        };
        let subject = Chooseable {
            function: named,
            row,
            event: whole,
            identities,
        };
        if self.needs_events {
            let fields = whole.map_or(&[][..], |event| &event.fields);
            self.unmet.meet(&subject, fields);
        }
        let wanted = !self.needs_events
            || (filter.wants_name(&subject)
                && filter.conditions.iter().all(|it| it.holds(&subject)));
        if row.record {
            let kept = wanted && self.wants_place(row.cpu(), subject.about(), &info.identities);
            self.chosen.kept += u64::from(kept);
            self.chosen.left_out += u64::from(!kept);
        }
        wanted
    }

    /// Processes a step of an event; passes it on if it is shown. `chosen`: the event is selected.
    pub(crate) fn step(
        &mut self,
        step: Step<'_>,
        from: Option<Origin>,
        chosen: bool,
        info: &TraceInfo,
        out: &mut impl FnMut(Option<Origin>, Step<'_>),
    ) {
        let step = match step {
            Step::Track { track, info } => {
                self.know(track, info);
                step
            }
            Step::Begin(begin) => match self.begin(begin, chosen, &info.identities) {
                Some(begin) => Step::Begin(begin),
                None => return,
            },
            Step::End(end) => {
                let shown = self.end(end, chosen, &info.identities);
                if !info.in_order {
                    self.ended.add(end.call, shown.is_some());
                }
                match shown {
                    Some(end) => Step::End(end),
                    None => return,
                }
            }
            Step::ClockAhead(ahead) if self.ended.find(ahead.call) == Some(false) => return,
            // A state change belongs to no event, so only its processor and thread are filtered.
            Step::State { track, cpu, .. } => {
                let found = self.track(track);
                found.cpu = cpu.or(found.cpu);
                let (cpu, thread) = (found.cpu, found.thread);
                let elsewhere = !self.selection.events.wants_cpu(cpu);
                if elsewhere
                    || thread.is_some_and(|thread| !self.wants_thread(thread, &info.identities))
                {
                    return;
                }
                step
            }
            Step::Event { track, event } => {
                if !chosen || !self.wants_event(track, event, &info.identities) {
                    return;
                }
                step
            }
            step => step,
        };
        self.held.step(step, from, out);
    }

    /// Processes a step from before the window, which is never shown. Returns whether an event that is no call would
    /// be shown.
    pub(crate) fn before(&mut self, step: Step<'_>, chosen: bool, info: &TraceInfo) -> bool {
        match step {
            Step::Track { track, info } => self.know(track, info),
            Step::Begin(begin) => {
                self.begin(begin, chosen, &info.identities);
            }
            Step::End(end) => {
                self.end(end, chosen, &info.identities);
            }
            Step::Event { track, event } => {
                return chosen && self.wants_event(track, event, &info.identities);
            }
            _ => {}
        }
        false
    }

    /// Begins the window: open calls begin there again, and counts restart.
    pub(crate) fn open_window(&mut self) {
        self.chosen = Chosen::default();
        for track in &mut self.tracks {
            track.clipped = std::mem::take(&mut track.calls);
            (track.shown, track.roots) = (0, 0);
        }
    }

    /// The earlier state of a call that the window clips.
    fn clipped(&self, begin: &Begin) -> Option<Open> {
        let track = self.tracks.get(begin.track.0 as usize)?;
        let open = track.clipped.get(begin.depth as usize)?;
        (open.call == begin.call).then_some(*open)
    }

    /// Ends the steps: passes on those still held back.
    pub(crate) fn finish(&mut self, out: &mut impl FnMut(Option<Origin>, Step<'_>)) {
        self.held.finish(out);
    }

    /// Records the properties of a track.
    fn know(&mut self, track: TrackId, info: TrackInfo) {
        let found = self.track(track);
        found.info = Some(info);
        found.cpu = found.cpu.or(info.cpu);
        found.thread = found.thread.or(info.thread());
        if let TrackKind::Thread {
            thread: Some(thread),
        } = info.kind
        {
            let index = thread.0 as usize;
            if self.threads.len() <= index {
                self.threads.resize(index + 1, None);
            }
            self.threads[index] = Some(track);
        }
    }

    /// Whether a thread is within a requested function.
    fn is_inside(&self, thread: Option<ThreadId>) -> bool {
        let track = thread.and_then(|thread| *self.threads.get(thread.0 as usize)?);
        let track = track.and_then(|track| self.tracks.get(track.0 as usize));
        track.is_some_and(|track| track.roots > 0)
    }

    fn begin(&mut self, begin: Begin, chosen: bool, identities: &Identities) -> Option<Begin> {
        let mut fits = self.fits(begin.callee, identities);
        let track = self.track(begin.track);
        if let Callee::Interrupt(_) = begin.callee {
            track.thread = begin.thread;
        }
        track.cpu = begin.cpu.or(track.cpu);
        let (cpu, thread) = (track.cpu, begin.thread.or(track.thread));
        // An interrupt that preempts a requested function is shown with it.
        if let Callee::Interrupt(_) = begin.callee {
            fits.wanted |= self.is_inside(thread);
        }
        // A call that is open at the begin of a window is filtered by the event that it began with.
        let event = match self.clipped(&begin) {
            Some(open) => open.chosen,
            None => chosen,
        };
        let chosen = event && self.wants_place(cpu, thread, identities);
        let (anything, depth) = (self.selection.functions.is_empty(), self.selection.depth);
        let track = self.track(begin.track);
        let inside = anything || track.roots > 0 || fits.wanted;
        let shown = chosen && inside && !fits.hidden && depth.is_none_or(|most| track.shown < most);
        let level = track.shown;
        track.calls.push(Open {
            call: begin.call,
            chosen: event,
            shown,
            root: fits.wanted,
        });
        track.shown += u32::from(shown);
        track.roots += u32::from(fits.wanted);
        shown.then_some(Begin {
            depth: level,
            ..begin
        })
    }

    fn end(&mut self, end: End, chosen: bool, identities: &Identities) -> Option<End> {
        if end.begin.is_none() {
            let fits = self.fits(end.callee, identities);
            let anything = self.selection.functions.is_empty();
            let deepest = self.selection.depth;
            let track = self.track(end.track);
            let (cpu, thread) = (track.cpu, track.thread);
            let chosen = chosen && self.wants_place(cpu, thread, identities);
            let track = self.track(end.track);
            let shown = chosen
                && !fits.hidden
                && (anything || fits.wanted || track.roots > 0)
                && deepest.is_none_or(|deepest| track.shown < deepest);
            return shown.then_some(End {
                depth: track.shown,
                ..end
            });
        }
        let track = self.track(end.track);
        let open = track.calls.pop()?;
        track.shown -= u32::from(open.shown);
        track.roots -= u32::from(open.root);
        open.shown.then_some(End {
            depth: track.shown,
            ..end
        })
    }

    /// Whether an event that is no call is shown, by its processor and thread. Missing events may have been of any
    /// thread and in any call.
    fn wants_event(
        &mut self,
        track: Option<TrackId>,
        event: EventRef<'_>,
        identities: &Identities,
    ) -> bool {
        let kind = event.event.map(|event| &event.kind);
        if let Some(EventKind::Gap(_) | EventKind::Recording { .. }) = kind {
            let cpu = event.row.cpu();
            return cpu.is_none() || self.selection.events.wants_cpu(cpu);
        }
        let inside = self.selection.functions.is_empty()
            || track.is_none_or(|track| self.track(track).roots > 0);
        let thread = track.and_then(|track| self.track(track).thread);
        inside && self.wants_place(event.row.cpu(), thread.or(event.row.thread()), identities)
    }

    fn track(&mut self, track: TrackId) -> &mut Track {
        let index = track.0 as usize;
        if self.tracks.len() <= index {
            self.tracks.resize_with(index + 1, Track::default);
        }
        &mut self.tracks[index]
    }

    fn wants_place(
        &self,
        cpu: Option<Cpu>,
        thread: Option<ThreadId>,
        identities: &Identities,
    ) -> bool {
        self.selection.events.wants_cpu(cpu)
            && (!self.selection.events.chooses_threads()
                || thread.map_or(self.wants_idle, |thread| {
                    self.wants_thread(thread, identities)
                }))
    }

    fn wants_thread(&self, thread: ThreadId, identities: &Identities) -> bool {
        self.selection.events.wants_thread_id(thread, identities)
    }

    fn fits(&mut self, callee: Callee, identities: &Identities) -> Fits {
        let (table, index) = match callee {
            Callee::Function(id) => (&mut self.functions, id.0 as usize),
            Callee::Interrupt(id) => (&mut self.interrupts, id.0 as usize),
            Callee::Unknown => {
                return Fits {
                    wanted: false,
                    hidden: false,
                };
            }
        };
        if table.len() <= index {
            table.resize(index + 1, None);
        }
        if let Some(known) = table[index] {
            return known;
        }
        let (code, name) = match callee {
            Callee::Function(id) => {
                let known = identities.function(id);
                let code = known.and_then(|function| self.symbols.code_of(function));
                (code, function(id, identities, &self.symbols).1)
            }
            Callee::Interrupt(id) => (None, titles::interrupt(identities, id)),
            Callee::Unknown => (None, String::new()),
        };
        let any = |choices: &[FunctionChoice]| {
            let mut choices = choices.iter();
            choices.any(|choice| choice.matches(code.as_ref(), &name))
        };
        let fits = Fits {
            wanted: any(&self.selection.functions),
            hidden: any(&self.selection.hide),
        };
        // An interrupt may get its name later.
        if !matches!(callee, Callee::Interrupt(_)) {
            table[index] = Some(fits);
        }
        fits
    }
}

fn function(id: FunctionId, identities: &Identities, symbols: &Symbols) -> (Option<Addr>, String) {
    let Some(function) = identities.function(id) else {
        return (None, String::new());
    };
    let name = symbols.name_of(function).map_or_else(
        || function.address.unwrap_or_default().to_string(),
        str::to_owned,
    );
    (function.address, name)
}

/// An event with the identities that filters need.
struct Chooseable<'a> {
    row: &'a Row,
    event: Option<&'a Event>,
    identities: &'a Identities,
    /// The function that is entered or exited, where conditions may refer to it.
    function: Option<(Option<Addr>, String)>,
}

impl Subject for Chooseable<'_> {
    fn time(&self) -> Option<Time> {
        None
    }

    fn name(&self) -> &str {
        self.event.map_or("", |event| &event.name)
    }

    fn label(&self) -> Option<&str> {
        self.event?.label()
    }

    fn cpu(&self) -> Option<Cpu> {
        self.row.cpu()
    }

    fn thread(&self) -> Option<Tid> {
        Some(self.identities.tid(self.about()?))
    }

    fn thread_name(&self) -> Option<std::borrow::Cow<'_, str>> {
        Some(self.identities.thread_name(self.about()?)?.into())
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        // By name or address, whatever the source's own field is named.
        if let ("function", Some((address, name))) = (path, &self.function) {
            let address = address.unwrap_or_default();
            return Some(Operand::Label(name, address.0.into()));
        }
        let recorded = self.event.and_then(|event| event.field(path));
        // The number of the interrupt as in `report --by irq`, where the source has no field of that name.
        recorded.or_else(|| {
            let is_requested = path == "irq" && is_of_interrupt(self.row);
            let id = self.row.of_interrupt().filter(|_| is_requested)?;
            Some(Operand::Integer(self.identities.irq(id).0.into()))
        })
    }
}

/// Whether a row is an interrupt's enter or exit.
const fn is_of_interrupt(row: &Row) -> bool {
    matches!(row.kind, RowKind::IsrEnter | RowKind::IsrExit)
}

impl Chooseable<'_> {
    /// The thread that an event refers to.
    fn about(&self) -> Option<ThreadId> {
        match self.event.map(|event| &event.kind) {
            Some(EventKind::ThreadName { thread, .. }) => Some(*thread),
            _ => self.row.thread(),
        }
    }
}
