//! Options that select a part of a hardware trace.

use std::collections::BTreeSet;
use std::ops;

use kymo_coresight::Source;
use kymo_coresight::clock::{self, Measure};
use kymo_coresight::element::{Element, Last, Range};
use kymo_coresight::frames::TraceId;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::memory::Scene;
use kymo_coresight::selection::{Selection, contexts, has_threads, threads, within};
use kymo_event::{Duration, Pattern, Time, TimeUnit};

use super::counting::steps;
use super::program::Programs;
use super::{DecodeArgs, Opened};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::{Given, check_order, given, nothing};
use crate::render::escape::escaped;

/// Which sources of a hardware trace.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub struct SourceArgs {
    /// Only the source with this trace ID, hexadecimal as in the listing. Repeatable.
    #[arg(long, visible_alias = "trace-id", value_name = "ID", value_parser = trace_id)]
    pub id: Vec<TraceId>,

    /// Only this trace buffer of the input. Repeatable.
    #[arg(long, value_name = "NAME")]
    pub buffer: Vec<String>,

    /// Only what ran on this processor. Repeatable.
    #[arg(long, value_name = "CPU")]
    pub cpu: Vec<u32>,
}

/// Which part of what a hardware trace's processors ran.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub struct PartArgs {
    #[command(flatten)]
    pub sources: SourceArgs,

    /// Only what this process ran: its number, or its name with * and ? as wildcards. Repeatable.
    #[arg(long, visible_alias = "pid", value_name = "PROCESS")]
    pub process: Vec<String>,

    /// Only what this thread ran: its number, or its name with * and ? as wildcards; in a trace without threads, its
    /// context ID. Repeatable.
    #[arg(long, value_name = "THREAD")]
    pub thread: Vec<String>,

    /// Only what ran from this time on, as `kymo calls` and `report` show it: in ticks of the trace's clock (from 2^63 on, as
    /// the trace has them), or in seconds or with a unit where the recording converts them; +TIME is so long after the first
    /// timestamp. Between two timestamps, times are spread over the instructions.
    #[arg(long, value_name = "TIME", value_parser = given, allow_hyphen_values = true)]
    pub begin: Option<Given>,

    /// Only what ran up to this time.
    #[arg(long, value_name = "TIME", value_parser = given, allow_hyphen_values = true)]
    pub end: Option<Given>,
}

/// Which code of a hardware trace.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which part of the trace")]
pub struct CodeArgs {
    /// Only instructions at these addresses: START..END, END not included. Of a range of instructions that reaches beyond, the
    /// part within is listed. Repeatable. With --function, what either of them has.
    #[arg(long, visible_alias = "range", value_name = "ADDRESSES", value_parser = addresses)]
    pub address: Vec<ops::Range<u64>>,

    /// Only instructions of this function: its name with * and ? as wildcards. Repeatable.
    #[arg(long, visible_alias = "symbol", value_name = "FUNCTION")]
    pub function: Vec<String>,
}

/// Parses a trace id as listings show it: hexadecimal.
pub fn trace_id(text: &str) -> Result<TraceId, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match u8::from_str_radix(digits, 16) {
        Ok(id) if id < 0x70 => Ok(TraceId(id)),
        _ => Err("expected a trace ID from 0 to 6f".to_owned()),
    }
}

/// The error for a selection of processes in a trace that has none.
pub fn no_processes() -> Report {
    let report = Report::new("--process: the trace does not tell processes");
    report.help("--thread takes context IDs, --id and --cpu choose sources")
}

/// Parses a range of addresses.
pub fn addresses(text: &str) -> Result<ops::Range<u64>, String> {
    let number = |text: &str| {
        let value = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        value.map_err(|_| format!("expected an address, found {text:?}"))
    };
    let (start, end) = text
        .split_once("..")
        .ok_or("expected START..END, found no ..")?;
    let range = number(start)?..number(end)?;
    match range.is_empty() {
        true => Err("the range ends before it begins".to_owned()),
        false => Ok(range),
    }
}

/// Refuses trace ids without a source.
///
/// # Errors
/// If there is one; the report lists the existing ones.
pub fn check_ids(wanted: &[TraceId], known: impl Iterator<Item = TraceId>) -> Result<(), Report> {
    let known: BTreeSet<TraceId> = known.collect();
    let hexadecimal = |id: &TraceId| format!("{:x}", id.0);
    match wanted.iter().find(|id| !known.contains(id)) {
        None => Ok(()),
        Some(missing) => {
            let known = known.iter().map(hexadecimal);
            Err(nothing(
                "trace ID",
                &hexadecimal(missing),
                "trace IDs",
                known,
            ))
        }
    }
}

impl SourceArgs {
    /// Keeps the selected buffers.
    ///
    /// # Errors
    /// When there is no such buffer, or none with the selected sources.
    pub fn choose(&self, buffers: &mut Vec<Buffer>) -> Result<(), Report> {
        let all = std::mem::take(buffers);
        let names: Vec<_> = all.iter().map(|buffer| buffer.name.clone()).collect();
        let is_chosen =
            |buffer: &Buffer| self.buffer.is_empty() || self.buffer.contains(&buffer.name);
        *buffers = all.into_iter().filter(is_chosen).collect();
        if buffers.is_empty() && !self.buffer.is_empty() {
            let wanted = self.buffer.join(" or ");
            return Err(nothing("buffer", &wanted, "buffers", names));
        }
        let sources = buffers.iter().flat_map(|buffer| &buffer.sources);
        check_ids(&self.id, sources.map(|source| source.id))?;
        let sources = buffers.iter().flat_map(|buffer| &buffer.sources);
        let cpus: BTreeSet<u32> = sources.filter_map(|source| source.cpu).collect();
        match self.cpu.iter().find(|cpu| !cpus.contains(cpu)) {
            Some(missing) => {
                let cpus = cpus.iter().map(u32::to_string);
                Err(nothing(
                    "processor",
                    &missing.to_string(),
                    "processors",
                    cpus,
                ))
            }
            None => Ok(()),
        }
    }

    /// Whether a source of a buffer, given by its index, is selected.
    pub fn has(&self, buffer: &Buffer, source: usize) -> bool {
        let source = buffer.sources.get(source);
        source.is_some_and(|source| self.has_source(source))
    }

    /// Whether a source is selected.
    pub fn has_source(&self, source: &Source) -> bool {
        let has_cpu = |cpu: u32| self.cpu.contains(&cpu);
        (self.id.is_empty() || self.id.contains(&source.id))
            && (self.cpu.is_empty() || source.cpu.is_some_and(has_cpu))
    }
}

impl PartArgs {
    /// Warns that options selected nothing of the trace.
    ///
    /// # Errors
    /// If one of them names a thread that the trace does not have.
    pub fn remark_nothing(
        &self,
        opened: &Opened,
        code: Option<&CodeArgs>,
        context: &Context,
    ) -> Result<(), Report> {
        self.check_numbers(opened)?;
        let SourceArgs { id, buffer, cpu } = &self.sources;
        let mut given = vec![
            ("--id", !id.is_empty()),
            ("--buffer", !buffer.is_empty()),
            ("--cpu", !cpu.is_empty()),
            ("--process", !self.process.is_empty()),
            ("--thread", !self.thread.is_empty()),
            ("--begin", self.begin.is_some()),
            ("--end", self.end.is_some()),
        ];
        if let Some(code) = code {
            given.push(("--address", !code.address.is_empty()));
            given.push(("--function", !code.function.is_empty()));
        }
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let given: Vec<_> = given.map(|(option, _)| option).collect();
        if !given.is_empty() {
            let options = given.join(", ");
            context.warn(format_args!("nothing of the trace is left by {options}"));
        }
        Ok(())
    }

    /// Refuses numbers of threads that no source has.
    fn check_numbers(&self, opened: &Opened) -> Result<(), Report> {
        let wanted = self.thread.iter();
        let mut wanted = wanted
            .filter_map(|text| Some((text, number(text)?)))
            .peekable();
        if wanted.peek().is_none() {
            return Ok(());
        }
        let buffers = opened.buffers.iter();
        let traced: BTreeSet<u32> = buffers
            .flat_map(|buffer| {
                let sources = 0..buffer.sources.len();
                sources.flat_map(|source| match opened.is_of_processes {
                    true => threads(buffer, source),
                    false => contexts(buffer, source),
                })
            })
            .collect();
        let is_known = |id: &u32| traced.contains(id) || opened.threads.contains_key(id);
        match wanted.find(|(_, id)| !is_known(id)) {
            None => Ok(()),
            Some((missing, _)) => {
                let known = traced.iter().chain(opened.threads.keys());
                let known = known.map(|id| match opened.is_of_processes {
                    true => opened.thread_label(Some(*id)),
                    false => format!("thread {id}"),
                });
                Err(nothing("thread", missing, "threads", known))
            }
        }
    }

    /// Whether times are selected.
    pub fn has_times(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }

    /// The selected threads and times of each buffer.
    ///
    /// # Errors
    /// When no thread or time of the trace is selected.
    pub fn selection(&self, opened: &Opened, decode: DecodeArgs) -> Result<Vec<Selection>, Report> {
        let threads = self.threads(opened)?;
        if threads
            .as_ref()
            .is_some_and(|threads| !threads.contains(&0))
        {
            self.check_threads(opened)?;
        }
        let selection = |buffer: &Buffer| Selection {
            threads: threads.clone(),
            instructions: self.has_times().then(|| vec![0..0; buffer.sources.len()]),
        };
        let mut selections: Vec<_> = opened.buffers.iter().map(selection).collect();
        if !self.has_times() {
            return Ok(selections);
        }
        let traces = input::traces(&opened.buffers);
        let (measure, origin) = clock::measure(&opened.buffers, &traces);
        let option = if self.begin.is_some() {
            "--begin"
        } else {
            "--end"
        };
        if measure != Measure::Timestamps {
            let report = Report::new(format_args!("{option}: the trace has no timestamps"));
            return Err(report.help("kymo disasm --instructions chooses by number"));
        }
        let clock = (opened.conversion, origin);
        // The first timestamp is the start, on the same scale.
        let start = || {
            let first = clock::first_timestamp(&opened.buffers, &traces)?;
            match clock.0 {
                Some(conversion) => i64::try_from(conversion.nanoseconds(first)).ok(),
                None => i64::try_from(i128::from(first) - i128::from(origin)).ok(),
            }
        };
        let after_start = |given: &Given, is_time| {
            let span = i64::try_from(given.after_start(is_time)?).ok()?;
            start()?.checked_add(span)
        };
        let time = |given: &Option<Given>, option: &str| {
            let time = given.as_ref().map(|given| {
                let time = match clock.0 {
                    Some(_) => given.at(true).or_else(|| after_start(given, true)),
                    None => given.tick(origin).or_else(|| after_start(given, false)),
                };
                time.ok_or_else(|| {
                    let help = match clock.0 {
                        Some(_) => "give a time of the trace: seconds, or a number with a unit",
                        None => "give a number of ticks of the trace's clock, without a unit",
                    };
                    let report =
                        Report::new(format_args!("{option} {}: no time of it", given.text));
                    report.help(help)
                })
            });
            time.transpose()
        };
        let window = (time(&self.begin, "--begin")?, time(&self.end, "--end")?);
        if let (Some(begin), Some(end)) = window {
            let later = |by: Duration| match clock.0 {
                Some(_) => by.with_unit(),
                None => format!("{} {}", by.0, TimeUnit::Ticks.suffix()),
            };
            check_order(Time(begin), Time(end), later)?;
        }
        for parts in &traces {
            let chosen = within(&opened.buffers, parts, decode.options(), clock, window);
            for (part, chosen) in parts.iter().zip(chosen) {
                let of_buffer = selections.get_mut(part.buffer);
                let all = of_buffer.and_then(|it| it.instructions.as_mut());
                if let Some(place) = all.and_then(|all| all.get_mut(part.source)) {
                    *place = chosen;
                }
            }
        }
        Ok(selections)
    }

    /// Refuses threads and processes where the threads of the trace are unknown.
    fn check_threads(&self, opened: &Opened) -> Result<(), Report> {
        let mut sources = opened.buffers.iter().flat_map(|buffer| {
            let all = (0..buffer.sources.len()).filter(|source| self.sources.has(buffer, *source));
            all.map(move |source| (buffer, source))
        });
        let is_known = |(buffer, source): (&Buffer, usize)| match opened.is_of_processes {
            true => has_threads(buffer, source),
            // Bare-metal code may have 0 as the only one.
            false => !contexts(buffer, source).is_empty(),
        };
        if sources.any(is_known) {
            return Ok(());
        }
        let option = match self.process.is_empty() {
            true => "--thread",
            false => "--process",
        };
        let report = Report::new(format_args!("{option}: the trace does not tell threads"));
        Err(report.help(match opened.threads.is_empty() {
            true => "leave it out; --id and --cpu choose sources",
            false => {
                "leave it out; for the next recording: --per-thread, a kernel that writes context IDs (CONFIG_PID_IN_CONTEXTIDR), or \
                 --switch-events and timestamps"
            }
        }))
    }

    /// The selected threads; `None` for all.
    fn threads(&self, opened: &Opened) -> Result<Option<BTreeSet<u32>>, Report> {
        let mut threads = None;
        if !self.process.is_empty() || !self.thread.is_empty() {
            let labels = || {
                opened
                    .threads
                    .keys()
                    .map(|it| opened.thread_label(Some(*it)))
            };
            let is_named = |wanted: &str, number: u32, name: &str| {
                wanted == number.to_string() || Pattern::new(wanted).matches(name)
            };
            let process_name = |process: u32| {
                let process = opened.threads.get(&process);
                process.map_or("", |process| process.name.as_str())
            };
            // All sources share the data on processes.
            let mut code = opened.buffers.iter().flat_map(|buffer| &buffer.code);
            let code = code.next();
            let was_named = |wanted: &str, process: u32| {
                let mut names = code.into_iter().flat_map(|code| code.names_of(process));
                names.any(|name| Pattern::new(wanted).matches(name))
            };
            let is_of = |wanted: &String, process: u32| {
                is_named(wanted, process, process_name(process)) || was_named(wanted, process)
            };
            let is_thread = |wanted: &String, number: u32, name: &str| {
                is_named(wanted, number, name) || *wanted == opened.thread_label(Some(number))
            };
            let all = || opened.threads.iter();
            if !self.process.is_empty() && opened.threads.is_empty() {
                return Err(no_processes());
            }
            for wanted in &self.process {
                if !all().any(|(_, thread)| is_of(wanted, thread.process)) {
                    let processes: BTreeSet<u32> =
                        all().map(|(_, thread)| thread.process).collect();
                    let processes = processes.into_iter();
                    let processes = processes.map(|it| format!("{} {it}", process_name(it)));
                    return Err(nothing("process", wanted, "processes", processes));
                }
            }
            for wanted in &self.thread {
                let is_known = all().any(|(id, thread)| is_thread(wanted, *id, &thread.name));
                if !is_known && number(wanted).is_none() {
                    return Err(nothing("thread", wanted, "threads", labels()));
                }
            }
            let mut chosen = BTreeSet::new();
            for (number, thread) in all() {
                let mut processes = self.process.iter();
                let mut threads = self.thread.iter();
                let of_process = self.process.is_empty()
                    || processes.any(|wanted| is_of(wanted, thread.process));
                let is_chosen = self.thread.is_empty()
                    || threads.any(|wanted| is_thread(wanted, *number, &thread.name));
                if of_process && is_chosen {
                    chosen.insert(*number);
                }
            }
            // The trace may have context ids without names.
            if self.process.is_empty() {
                chosen.extend(self.thread.iter().filter_map(|text| number(text)));
            }
            if chosen.is_empty() {
                return Err(nothing(
                    "thread of this process",
                    &self.thread.join(" or "),
                    "threads",
                    labels(),
                ));
            }
            threads = Some(chosen);
        }
        Ok(threads)
    }
}

impl CodeArgs {
    /// Whether code is selected.
    pub fn any(&self) -> bool {
        !self.address.is_empty() || !self.function.is_empty()
    }

    /// The selected addresses; empty for all.
    ///
    /// # Errors
    /// When a function is requested that no binary has.
    pub fn addresses(&self, opened: &Opened, programs: &mut Programs) -> Result<Addresses, Report> {
        let mut ranges: Vec<_> = self.address.iter().cloned().map(|it| (it, None)).collect();
        for wanted in &self.function {
            let found = programs.functions(&opened.buffers, wanted);
            if found.is_empty() {
                return Err(no_function(wanted, programs));
            }
            ranges.extend(found);
        }
        ranges.sort_by(|(a, a_file), (b, b_file)| {
            (a.start, a.end, a_file).cmp(&(b.start, b.end, b_file))
        });
        ranges.dedup();
        Ok(Addresses { ranges })
    }
}

/// The error for a function that no binary has.
pub fn no_function(wanted: &str, programs: &Programs) -> Report {
    let report = Report::new(format_args!("there is no function {wanted}"));
    if let Some(refusal) = programs.refusals().next() {
        return report.help(escaped(refusal));
    }
    match programs.similar(wanted).as_slice() {
        [] => report.help("kymo hotspots lists what ran; --symfs says where the binaries are"),
        similar => report.help(format!("similar names: {}", similar.join(", "))),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Selected addresses.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// Sorted ranges; empty for all addresses. A range of a function has its file.
    ranges: Vec<(ops::Range<u64>, Option<String>)>,
}

impl Addresses {
    /// Whether all addresses are selected.
    pub fn is_all(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether an address is selected, in this state of memory.
    pub fn has(&self, code: Scene<'_>, address: u64) -> bool {
        self.overlap(code, address, address.saturating_add(1))
    }

    /// Whether an element has a selected address. Elements without an address are included only if all are selected.
    pub fn has_element(&self, code: Scene<'_>, element: &Element) -> bool {
        match *element {
            Element::Range(range) => self.overlap(code, range.start, range.end),
            Element::RangeWithoutPath { start, .. } => self.has(code, start),
            Element::NotAccessible { address, .. } => self.has(code, address),
            Element::Exception {
                return_address: Some(address),
                ..
            } => self.has(code, address),
            _ => self.is_all(),
        }
    }

    /// Passes an element that [has a selected address](Self::has_element) to `each`; of a range, only its selected
    /// parts, so that their instructions are those that `kymo disasm` lists. The last instruction of a part counts as
    /// a branch only if it is the last one of the range.
    pub fn each_part(&self, code: Scene<'_>, element: &Element, mut each: impl FnMut(&Element)) {
        let range = match element {
            Element::Range(range) if !self.is_all() => range,
            _ => return each(element),
        };
        let all: Vec<u64> = steps(code, range.isa, range.start, range.end).collect();
        let chosen: Vec<bool> = all.iter().map(|at| self.has(code, *at)).collect();
        if chosen.iter().all(|is_chosen| *is_chosen) {
            return each(element);
        }
        let ends = all.iter().skip(1).copied().chain([range.end]);
        let steps: Vec<_> = all.iter().copied().zip(ends).zip(chosen).collect();
        for part in steps.chunk_by(|(_, before), (_, after)| before == after) {
            let (Some(((start, _), true)), Some(((last, end), _))) = (part.first(), part.last())
            else {
                continue;
            };
            let is_last = *end == range.end;
            each(&Element::Range(Range {
                start: *start,
                end: *end,
                count: u32::try_from(part.len()).unwrap_or(u32::MAX),
                is_taken: range.is_taken || !is_last,
                last: match is_last {
                    true => range.last,
                    false => Last {
                        size: (end - last) as u8,
                        ..Last::default()
                    },
                },
                block: None,
                cycles: range.cycles.filter(|_| is_last),
                ..*range
            }));
        }
    }

    /// Whether any address of a range is selected.
    pub fn overlap(&self, code: Scene<'_>, start: u64, end: u64) -> bool {
        self.is_all()
            || self.ranges.iter().any(|(range, file)| {
                range.start < end
                    && start < range.end
                    && file.as_deref().is_none_or(|file| {
                        // Another file may be there, in another process or at another time.
                        let here = code.name_at(start.max(range.start));
                        here.is_none_or(|name| name == file)
                    })
            })
    }
}
