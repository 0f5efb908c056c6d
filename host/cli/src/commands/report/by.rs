//! Grouping of the table's rows: by function, file, thread, or a combination.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use kymo_analysis::calls::{Callee, TrackInfo, TrackKind};
use kymo_analysis::groups::Grouped;
use kymo_analysis::titles;
use kymo_event::{Addr, Cpu, FunctionId, InterruptId, SpaceId, ThreadId, TraceInfo};
use kymo_symbols::{Location, Place as SymbolPlace, Symbols};

use crate::names::Names;
use crate::render::table::Align;

/// A property of calls by which they are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// The function or interrupt.
    #[default]
    Function,
    /// The source file of the function.
    File,
    /// The line at which the function stands in its source.
    Line,
    /// The place that it is called from, where the trace records that.
    CallSite,
    /// The thread; also how long it ran, and waited to run.
    Thread,
    /// The interrupt within which it was called; also how long its handlers ran.
    Irq,
    /// The processor on which the call began; also how long it was busy.
    Cpu,
    /// The address space of the function: a kernel, a process, a program.
    Space,
}

impl By {
    /// The name of its column.
    pub const fn column(self) -> &'static str {
        match self {
            Self::Function => "name",
            Self::File => "file",
            Self::Line => "line",
            Self::CallSite => "call-site",
            Self::Thread => "thread",
            Self::Irq => "irq",
            Self::Cpu => "cpu",
            Self::Space => "space",
        }
    }

    /// Its heading.
    pub const fn heading(self) -> &'static str {
        match self {
            Self::Function => "FUNCTION",
            Self::File => "FILE",
            Self::Line => "LINE",
            Self::CallSite => "CALL SITE",
            Self::Thread => "THREAD",
            Self::Irq => "INTERRUPT",
            Self::Cpu => "CPU",
            Self::Space => "SPACE",
        }
    }

    /// How its cells are aligned.
    pub const fn align(self) -> Align {
        match self {
            Self::Cpu => Align::Right,
            _ => Align::Left,
        }
    }

    /// Its member in JSON objects.
    pub const fn member(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::CallSite => "call_site",
            other => other.column(),
        }
    }
}

/// The key of a row: the value of each property by which calls are grouped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    pub callee: Option<Callee>,
    pub file: Option<u32>,
    pub line: Option<u32>,
    /// With the space of its address.
    pub call_site: Option<Option<(SpaceId, Addr)>>,
    pub thread: Option<Within>,
    pub irq: Option<Option<InterruptId>>,
    /// With its machine.
    pub cpu: Option<(SpaceId, Option<Cpu>)>,
    pub space: Option<SpaceId>,
}

/// The thread that was charged with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Within {
    Thread(ThreadId),
    /// Code without a known thread.
    NoThread,
    /// An interrupt, regardless of the interrupted thread.
    Interrupts,
}

/// Computes the keys of calls, and their names.
pub struct Keys<'s> {
    by: Vec<By>,
    symbols: &'s Symbols,
    /// Files and lines in them, numbered in order of first appearance; keys contain these numbers.
    files: Interner,
    lines: Interner,
    /// The numbers of a function's file and line, indexed by [`FunctionId`].
    places: Vec<Option<(u32, u32)>>,
    /// Cached locations of call sites.
    sites: RefCell<HashMap<(SpaceId, Addr), Rc<str>>>,
}

#[derive(Default)]
struct Interner {
    numbers: HashMap<Rc<str>, u32>,
    texts: Vec<Rc<str>>,
}

impl Interner {
    fn number(&mut self, text: String) -> u32 {
        if let Some(known) = self.numbers.get(text.as_str()) {
            return *known;
        }
        let text: Rc<str> = text.into();
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(Rc::clone(&text));
        self.numbers.insert(text, number);
        number
    }
}

impl<'s> Keys<'s> {
    /// Creates keys for these properties.
    pub fn new(by: Vec<By>, symbols: &'s Symbols) -> Self {
        Self {
            by,
            symbols,
            files: Interner::default(),
            lines: Interner::default(),
            places: Vec::new(),
            sites: RefCell::default(),
        }
    }

    /// The key of a call.
    pub fn of(&mut self, call: Grouped<'_>, info: &TraceInfo) -> Key {
        let mut key = Key::default();
        for place in 0..self.by.len() {
            let Some(by) = self.by.get(place) else {
                continue;
            };
            match by {
                By::Function => key.callee = Some(call.callee),
                By::File => key.file = Some(self.place(call.callee, info).0),
                By::Line => key.line = Some(self.place(call.callee, info).1),
                By::CallSite => {
                    let site = call.begin.and_then(|it| {
                        let caller = || it.caller?.call_site(&info.identities);
                        it.call_site.or_else(caller)
                    });
                    key.call_site = Some(site.map(|it| (space(call.callee, call.track, info), it)));
                }
                By::Thread => key.thread = Some(within(call)),
                By::Irq => {
                    key.irq = Some(match call.track.map(|track| track.kind) {
                        Some(TrackKind::Interrupt { irq, .. }) => Some(irq),
                        _ => None,
                    });
                }
                By::Cpu => {
                    let began = call.begin.and_then(|begin| begin.cpu);
                    let cpu = began.or(call.track.and_then(|track| track.cpu));
                    key.cpu = Some((machine(call.track, info), cpu));
                }
                By::Space => key.space = Some(space(call.callee, call.track, info)),
            }
        }
        key
    }

    fn place(&mut self, callee: Callee, info: &TraceInfo) -> (u32, u32) {
        let Callee::Function(FunctionId(id)) = callee else {
            return self.interned(None);
        };
        if let Some(Some(known)) = self.places.get(id as usize) {
            return *known;
        }
        let function = info.identities.function(FunctionId(id));
        let place = self.interned(function.and_then(|it| self.symbols.location_of(it)));
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, None);
        }
        self.places[id as usize] = Some(place);
        place
    }

    fn interned(&mut self, location: Option<Location>) -> (u32, u32) {
        match location {
            Some(location) => {
                let line = location.to_string();
                (self.files.number(location.file), self.lines.number(line))
            }
            None => (
                self.files.number("(no file)".to_owned()),
                self.lines.number("(no line)".to_owned()),
            ),
        }
    }

    /// The values of a key, in the order of the properties.
    pub fn labels(&self, key: &Key, names: &Names<'_>, info: &TraceInfo) -> Vec<(By, Rc<str>)> {
        let of = |by: &By| {
            let known = |texts: &Interner, number: Option<u32>| {
                let text = number.and_then(|number| texts.texts.get(number as usize));
                text.cloned()
            };
            let text = match by {
                By::Function => key.callee.map(|it| names.callee(&info.identities, it)),
                By::File => known(&self.files, key.file),
                By::Line => known(&self.lines, key.line),
                By::CallSite => key.call_site.map(|site| match site {
                    Some(site) => self.site(site),
                    None => "(no call site)".into(),
                }),
                By::Thread => key.thread.map(|within| match within {
                    Within::Thread(thread) => titles::thread(info, thread).into(),
                    Within::NoThread => "(outside threads)".into(),
                    Within::Interrupts => "(interrupts)".into(),
                }),
                By::Irq => key.irq.map(|irq| match irq {
                    Some(irq) => names.callee(&info.identities, Callee::Interrupt(irq)),
                    None => "(outside interrupts)".into(),
                }),
                By::Cpu => key.cpu.map(|cpu| processor(info, cpu).into()),
                By::Space => key.space.map(|space| titles::space(info, space).into()),
            };
            (*by, text.unwrap_or_else(|| "(unknown)".into()))
        };
        self.by.iter().map(of).collect()
    }

    /// Formats a call site: its function with the line, or else the offset in the function.
    fn site(&self, (space, site): (SpaceId, Addr)) -> Rc<str> {
        let mut sites = self.sites.borrow_mut();
        let text = sites.entry((space, site)).or_insert_with(|| {
            let place = SymbolPlace {
                space,
                mapping: None,
            };
            // The address is the one after the call, which may already be another function's.
            let call = Addr(site.0.saturating_sub(1));
            let Some(caller) = self.symbols.function_in(place, call) else {
                return site.to_string().into();
            };
            let name = caller.name();
            match self.symbols.location_in(place, call) {
                Some(location) => format!("{name} ({location})").into(),
                None => format!("{name}+{:#x}", site.0 - caller.address().0).into(),
            }
        });
        Rc::clone(text)
    }
}

/// The name of a processor: its number, with the trace if there are several machines.
pub fn processor(info: &TraceInfo, (machine, cpu): (SpaceId, Option<Cpu>)) -> String {
    let number = cpu.map_or("(unknown)".to_owned(), |cpu| cpu.to_string());
    match info.has_machines() {
        true => format!("{number} [{}]", titles::space(info, machine)),
        false => number,
    }
}

/// The machine of a call: that of the stream in which its track first appeared.
fn machine(track: Option<&TrackInfo>, info: &TraceInfo) -> SpaceId {
    let stream = track.and_then(|track| info.stream(track.stream));
    stream
        .or(info.streams.first())
        .map(|stream| stream.machine)
        .unwrap_or_default()
}

fn within(call: Grouped<'_>) -> Within {
    match call.track.map(|track| track.kind) {
        Some(TrackKind::Interrupt { .. }) => Within::Interrupts,
        Some(TrackKind::Thread {
            thread: Some(thread),
        }) => Within::Thread(thread),
        Some(TrackKind::Span { .. }) => {
            let thread = call.begin.and_then(|begin| begin.thread);
            thread.map_or(Within::NoThread, Within::Thread)
        }
        _ => Within::NoThread,
    }
}

fn space(callee: Callee, track: Option<&TrackInfo>, info: &TraceInfo) -> SpaceId {
    let identities = &info.identities;
    let known = match callee {
        Callee::Function(id) => identities.function(id).map(|function| function.space),
        Callee::Interrupt(id) => {
            let interrupt = identities.interrupts().get(id.0 as usize);
            interrupt.map(|interrupt| interrupt.space)
        }
        Callee::Unknown => None,
    };
    let of_track = || track.map(|track| track.space(info));
    known.or_else(of_track).unwrap_or_default()
}
