//! Finds misspelt names in filter options: names that the trace does not have.

use std::borrow::Cow;
use std::collections::BTreeSet;

use kymo_analysis::calls::Callee;
use kymo_analysis::selection::FunctionChoice;
use kymo_analysis::titles;
use kymo_event::{Batch, Cpu, Pattern, Space, SpaceKind, Subject, ThreadChoice, Tid, TraceInfo};
use kymo_symbols::Symbols;

use super::{process_choice, thread_choice};
use crate::diagnostic::Report;
use crate::names::{self, Names};

/// Maximum number of names listed in a message; further ones are counted.
const LISTED: usize = 20;

/// Threads, processes, processors, streams and functions that options name and that the trace has not had so far. Each
/// is stored as the user wrote it: a number, a name or a pattern.
#[derive(Clone, Debug, Default)]
pub struct Unseen {
    threads: Vec<String>,
    processes: Vec<String>,
    streams: Vec<String>,
    functions: Vec<String>,
    cpus: BTreeSet<u32>,
    /// Processors of events and streams so far; collected only if an option names processors.
    known_cpus: BTreeSet<u32>,
    chooses_cpus: bool,
}

impl Unseen {
    /// Starts with all names of the options.
    pub fn new(filter: &super::FilterArgs) -> Self {
        Self {
            threads: filter.thread.clone(),
            processes: filter.process.clone(),
            streams: filter.stream.clone(),
            functions: [filter.function.as_slice(), &filter.hide].concat(),
            cpus: filter.cpu.iter().copied().collect(),
            known_cpus: BTreeSet::new(),
            chooses_cpus: !filter.cpu.is_empty(),
        }
    }

    /// Whether the trace has had all names.
    fn is_empty(&self) -> bool {
        let Self {
            threads,
            processes,
            streams,
            functions,
            ..
        } = self;
        let named = [threads, processes, streams, functions];
        self.cpus.is_empty() && named.iter().all(|names| names.is_empty())
    }

    /// Removes the names that the trace has had up to this batch. Called for each batch, because threads and processes
    /// change their names.
    pub fn meet(&mut self, info: &TraceInfo, batch: &Batch) {
        if self.is_empty() {
            return;
        }
        if self.chooses_cpus {
            let cpus = batch.rows().iter().filter_map(|row| row.cpu());
            let of_streams = info.streams.iter().filter_map(|stream| stream.cpu);
            let all = cpus.chain(of_streams);
            self.known_cpus.extend(all.map(|Cpu(number)| number));
        }
        self.meet_names(info);
    }

    /// Removes the names that the trace has at present.
    fn meet_names(&mut self, info: &TraceInfo) {
        let identities = &info.identities;
        self.cpus.retain(|cpu| !self.known_cpus.contains(cpu));
        self.threads.retain(|text| {
            let choice = thread_choice(text);
            // Task 0 of Linux has no name of its own, and traces need not list it.
            let is_idle = choice.fits(Tid(0), Some("<idle>"));
            let mut threads = identities.threads().iter();
            !is_idle && !threads.any(|thread| choice.fits(thread.tid, thread.name.as_deref()))
        });
        self.processes.retain(|text| {
            let choice = process_choice(text);
            !identities.spaces().iter().any(|space| choice.fits(space))
        });
        self.streams.retain(|text| {
            let pattern = Pattern::new(text);
            !info
                .streams
                .iter()
                .any(|stream| pattern.matches(&stream.name))
        });
    }

    /// Checks that the trace, which was read to its end, has everything that the options name.
    ///
    /// # Errors
    /// If it lacks something; the report lists the existing names.
    pub fn check(&self, info: &TraceInfo, symbols: &Symbols) -> Result<(), Report> {
        if self.is_empty() {
            return Ok(());
        }
        let mut unseen = self.clone();
        unseen.meet_names(info);
        unseen.verdict(info, symbols)
    }

    fn verdict(&self, info: &TraceInfo, symbols: &Symbols) -> Result<(), Report> {
        let identities = &info.identities;
        if let Some(missing) = self.processes.first() {
            let spaces = identities.spaces().iter();
            let is_process =
                |space: &&Space| space.kind == SpaceKind::Process && space.pid.is_some();
            let processes = spaces.filter(is_process);
            return Err(nothing(
                "process",
                missing,
                "processes",
                processes.map(process),
            ));
        }
        if let Some(missing) = self.threads.first() {
            let threads = (0..identities.threads().len()).filter_map(|at| u32::try_from(at).ok());
            let threads = threads.map(|at| titles::thread(info, kymo_event::ThreadId(at)));
            return Err(nothing("thread", missing, "threads", threads));
        }
        if let Some(missing) = self.cpus.first() {
            let cpus = self.known_cpus.iter().map(u32::to_string);
            return Err(nothing(
                "processor",
                &missing.to_string(),
                "processors",
                cpus,
            ));
        }
        if let Some(missing) = self.streams.first() {
            let streams = info.streams.iter().map(|stream| stream.name.clone());
            return Err(nothing("stream", missing, "streams", streams));
        }
        let names = Names::new(symbols);
        let unknown = |text: &&String| !is_function(text, info, symbols, &names);
        match self.functions.iter().find(unknown) {
            Some(missing) => Err(names::not_there(missing, info, symbols)),
            None => Ok(()),
        }
    }
}

/// Threads, processors and streams that options name and that no raw record has had so far.
#[derive(Clone, Debug, Default)]
pub struct UnseenInRecords {
    unseen: Unseen,
    /// Threads of records so far: the names, and the numbers of those without; collected only if an option names threads
    /// that were not seen.
    threads: BTreeSet<String>,
    streams: Vec<String>,
}

/// Maximum number of threads collected for a message.
const COLLECTED: usize = 1 << 12;

impl UnseenInRecords {
    /// Starts with all names of the options; `streams` are those of the trace.
    pub fn new(filter: &super::FilterArgs, streams: Vec<String>) -> Self {
        let mut unseen = Unseen::new(filter);
        unseen.streams.retain(|text| {
            let pattern = Pattern::new(text);
            !streams.iter().any(|stream| pattern.matches(stream))
        });
        // Records name no processes and functions here.
        (unseen.processes, unseen.functions) = (Vec::new(), Vec::new());
        // Task 0 of Linux has no name of its own, and traces need not list it.
        let is_idle = |text: &str| thread_choice(text).fits(Tid(0), Some("<idle>"));
        unseen.threads.retain(|text| !is_idle(text));
        Self {
            unseen,
            threads: BTreeSet::new(),
            streams,
        }
    }

    /// Whether records may still have one of the names.
    pub fn is_open(&self) -> bool {
        !self.unseen.threads.is_empty() || !self.unseen.cpus.is_empty()
    }

    /// Removes the names that a record has.
    pub fn meet(&mut self, record: &impl Subject) {
        if let Some(Cpu(cpu)) = record.cpu().filter(|_| self.unseen.chooses_cpus) {
            self.unseen.cpus.remove(&cpu);
            self.unseen.known_cpus.insert(cpu);
        }
        if self.unseen.threads.is_empty() {
            return;
        }
        let (tid, name) = (record.thread(), record.thread_name());
        self.unseen
            .threads
            .retain(|text| match thread_choice(text) {
                ThreadChoice::Id(wanted) => tid != Some(wanted),
                ThreadChoice::Named(pattern) => {
                    !name.as_deref().is_some_and(|name| pattern.matches(name))
                }
            });
        let title = name.map(Cow::into_owned);
        let title = title.or_else(|| tid.map(|tid| titles::Number(tid).to_string()));
        if let Some(title) = title.filter(|_| self.threads.len() < COLLECTED) {
            self.threads.insert(title);
        }
    }

    /// Checks that the trace, which was read to its end, has everything that the options name. Threads are not checked
    /// if records name none.
    ///
    /// # Errors
    /// If it lacks something; the report lists the existing names.
    pub fn check(&self) -> Result<(), Report> {
        let Unseen {
            threads,
            cpus,
            streams,
            known_cpus,
            ..
        } = &self.unseen;
        if let Some(missing) = threads.first().filter(|_| !self.threads.is_empty()) {
            let known = self.threads.iter().cloned();
            return Err(nothing("thread", missing, "threads", known));
        }
        if let Some(missing) = cpus.first().map(u32::to_string) {
            let known = known_cpus.iter().map(u32::to_string);
            return Err(nothing("processor", &missing, "processors", known));
        }
        match streams.first() {
            Some(missing) => {
                let known = self.streams.iter().cloned();
                Err(nothing("stream", missing, "streams", known))
            }
            None => Ok(()),
        }
    }
}

/// Whether the symbols or the events have a function or interrupt of this name. Addresses always pass.
fn is_function(text: &str, info: &TraceInfo, symbols: &Symbols, names: &Names<'_>) -> bool {
    let choice = FunctionChoice::new(text);
    if !matches!(choice, FunctionChoice::Named(_)) || !symbols.by_name(text).is_empty() {
        return true;
    }
    let identities = &info.identities;
    let functions = (0..identities.functions().len()).filter_map(|at| u32::try_from(at).ok());
    let functions = functions.map(|at| Callee::Function(kymo_event::FunctionId(at)));
    let interrupts = (0..identities.interrupts().len()).filter_map(|at| u32::try_from(at).ok());
    let interrupts = interrupts.map(|at| Callee::Interrupt(kymo_event::InterruptId(at)));
    functions
        .chain(interrupts)
        .any(|callee| choice.matches(None, &names.callee(identities, callee)))
}

/// Formats a process, as in `fib 3000`.
fn process(space: &Space) -> String {
    let file = space.name.rsplit('/').next().unwrap_or_default();
    match space.pid {
        Some(pid) if file.is_empty() => pid.to_string(),
        Some(pid) => format!("{file} {pid}"),
        None => space.name.clone(),
    }
}

/// Report of an option that names something the trace does not have, with a list of the existing names.
pub fn nothing(
    one: &str,
    wanted: &str,
    all: &str,
    known: impl IntoIterator<Item = String>,
) -> Report {
    let report = Report::new(format_args!("the trace has no {one} {wanted}"));
    let known: BTreeSet<String> = known.into_iter().filter(|name| !name.is_empty()).collect();
    let known: Vec<String> = known.into_iter().collect();
    let more = known.len().saturating_sub(LISTED);
    let listed = known.get(..LISTED).unwrap_or(&known).join(", ");
    match (known.len(), more) {
        (0, _) => report.help(format_args!("it tells of no {all}")),
        (_, 0) => report.help(format_args!("its {all} are {listed}")),
        (_, more) => report.help(format_args!("its {all} are {listed} and {more} more")),
    }
}
