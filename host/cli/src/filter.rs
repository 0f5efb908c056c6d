//! The options that choose among the events of a trace, and who goes by them.
//!
//! The words are the same for every verb: [`FilterArgs`] becomes a [`Filter`], which also the
//! conversion of CTF goes by, and a [`Selection`] asks it about the events of the model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use kymo_event::{
    Bound, Choice, Condition, Cpu, Duration, Event, EventKind, Filter, Operand, Pattern, Subject,
    ThreadChoice, ThreadId, Time, TraceInfo,
};
use kymo_symbols::Symbols;

use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{Events, Moment};
use crate::render::count::are;

/// Which events: of every verb that can do with a part of a trace.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which events")]
pub struct FilterArgs {
    /// From this time on: seconds by the trace's clock, or with a + after its first event. Units
    /// can be given: 12.5, +250ms, 80us, +5ns.
    #[arg(long, value_name = "TIME", value_parser = bound, allow_hyphen_values = true)]
    begin: Option<Bound>,

    /// Up to this time.
    #[arg(long, value_name = "TIME", value_parser = bound, allow_hyphen_values = true)]
    end: Option<Bound>,

    /// Only events of this name, with * and ? as wildcards. Repeatable.
    #[arg(long, value_name = "NAME")]
    event: Vec<String>,

    /// No events of this name. Repeatable.
    #[arg(long, value_name = "NAME")]
    drop_event: Vec<String>,

    /// Only streams of this name (`kymo info` lists them). Repeatable.
    #[arg(long, value_name = "NAME")]
    stream: Vec<String>,

    /// No streams of this name. Repeatable.
    #[arg(long, value_name = "NAME")]
    drop_stream: Vec<String>,

    /// Only what happened on this processor. Repeatable.
    #[arg(long, value_name = "CPU")]
    cpu: Vec<u32>,

    /// Only events whose field compares so: 'ret < 0', 'comm == idle', 'state ~ RUN*'. Repeatable:
    /// all have to hold.
    #[arg(long = "where", value_name = "FIELD OP VALUE")]
    condition: Vec<Condition>,
}

impl FilterArgs {
    /// Whether events must have their fields to be chosen.
    pub fn needs_fields(&self) -> bool {
        !self.condition.is_empty()
    }

    /// The filter, of the threads that are named (an option that not every verb has).
    pub fn filter(&self, threads: &[String]) -> Filter {
        let patterns = |list: &[String]| list.iter().map(Pattern::new).collect();
        let choice = |keep: &[String], drop: &[String]| Choice {
            keep: patterns(keep),
            drop: patterns(drop),
        };
        Filter {
            begin: self.begin,
            end: self.end,
            events: choice(&self.event, &self.drop_event),
            streams: choice(&self.stream, &self.drop_stream),
            cpus: self.cpu.iter().copied().map(Cpu).collect(),
            threads: threads.iter().map(|thread| thread_choice(thread)).collect(),
            conditions: self.condition.clone(),
        }
    }
}

/// A thread by its id, decimal or as it is shown, or by its name.
fn thread_choice(text: &str) -> ThreadChoice {
    let id = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    id.map_or_else(
        || ThreadChoice::Named(Pattern::new(text)),
        |id| ThreadChoice::Id(ThreadId(id)),
    )
}

/// Reads a time: seconds, or with a unit; with a `+`, after the first event.
fn bound(text: &str) -> Result<Bound, String> {
    let expected = || {
        format!("expected a time such as 12.5, +250ms, 80us or +5ns (s if no unit), found {text:?}")
    };
    let (after, digits) = match text.strip_prefix('+') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, unit) = [
        ("ns", 1i128),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ]
    .into_iter()
    .find_map(|(unit, ns)| Some((digits.strip_suffix(unit)?, ns)))
    .unwrap_or((digits, 1_000_000_000));
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) if !after => (-1, digits),
        _ => (1, digits),
    };
    let nanoseconds = decimal(digits.trim(), unit).ok_or_else(expected)?;
    if after {
        let distance = u64::try_from(nanoseconds).map_err(|_| expected())?;
        return Ok(Bound::AfterStart(Duration(distance)));
    }
    let time = i64::try_from(sign * nanoseconds).map_err(|_| expected())?;
    Ok(Bound::At(Time(time)))
}

/// A decimal number times `unit`, rounded down, exactly.
fn decimal(digits: &str, unit: i128) -> Option<i128> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    let number = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            i128::from_str(text).ok()
        }
    };
    // More decimals than the unit has say nothing.
    let part = part.get(..part.len().min(9)).unwrap_or(part);
    let scale = 10i128.pow(u32::try_from(part.len()).ok()?);
    let part = number(part)?.checked_mul(unit)? / scale;
    number(whole)?.checked_mul(unit)?.checked_add(part)
}

/// Goes through the events of a trace in their order, and says which are wanted; all, by default.
#[derive(Default)]
pub struct Selection {
    filter: Filter,
    started: bool,
    /// Whether a stream is wanted, as far as they have been asked for.
    streams: Vec<Option<bool>>,
    /// Names of threads that events have told.
    threads: HashMap<ThreadId, String>,
    /// How many events were wanted, gaps and what happened at no moment not counted, ...
    kept: u64,
    /// ... and how many were not.
    left_out: u64,
}

/// Says that of so many events not one was wanted: what was asked for may have been misspelt.
pub fn remark_nothing_left(left_out: u64, context: &Context) {
    context.warn(format_args!(
        "nothing is left: {} not what the options ask for; `kymo show --events` without them lists events \
         with their fields, `kymo info` streams and threads",
        are(left_out, "event")
    ));
}

/// An event, and what is known of its thread.
struct Named<'a> {
    event: &'a Event,
    thread: Option<ThreadId>,
    thread_name: Option<&'a str>,
}

impl Selection {
    /// What a filter selects.
    pub fn new(filter: Filter) -> Self {
        Self {
            filter,
            ..Self::default()
        }
    }

    /// Whether nothing is left out.
    pub fn is_everything(&self) -> bool {
        self.filter.is_everything()
    }

    /// Whether an event is wanted; all of a trace are asked for in their order. What happened at no
    /// moment (names that a stream holds beside the others) always is.
    pub fn keeps(&mut self, event: &Event, info: &TraceInfo) -> bool {
        let stream = info.stream(event.stream);
        if stream.is_some_and(|stream| stream.timeless) {
            return true;
        }
        let wanted = self.wants(event, info);
        if !matches!(event.kind, EventKind::Gap(_)) {
            self.kept += u64::from(wanted);
            self.left_out += u64::from(!wanted);
        }
        wanted
    }

    /// Says so if events there are, and none was wanted.
    pub fn remark(&self, context: &Context) {
        if self.leaves_nothing() {
            remark_nothing_left(self.left_out, context);
        }
    }

    /// Whether there are events, and none was wanted.
    pub const fn leaves_nothing(&self) -> bool {
        self.kept == 0 && self.left_out > 0
    }

    fn wants(&mut self, event: &Event, info: &TraceInfo) -> bool {
        let stream = info.stream(event.stream);
        if !self.started {
            self.started = true;
            self.filter = std::mem::take(&mut self.filter).from_start(event.time);
        }
        let index = usize::try_from(event.stream.0).unwrap_or(usize::MAX);
        if self.streams.len() < info.streams.len() {
            self.streams.resize(info.streams.len(), None);
        }
        if let Some(known) = self.streams.get_mut(index) {
            let name = || stream.map_or("", |stream| &stream.name);
            if !*known.get_or_insert_with(|| self.filter.streams.wants(name())) {
                return false;
            }
        }
        // What tells the name of a thread is about that one.
        let thread = match &event.kind {
            EventKind::Gap(_) => return self.filter.keeps(event),
            EventKind::ThreadName { thread, name } => {
                self.threads.insert(*thread, name.clone());
                Some(*thread)
            }
            _ => event.thread,
        };
        let learnt = || Some(self.threads.get(&thread?)?.as_str());
        let thread_name = learnt().or_else(|| info.thread_name(thread?));
        self.filter.wants(&Named {
            event,
            thread,
            thread_name,
        })
    }
}

impl Selection {
    /// The events of a trace that are wanted.
    pub fn of<'a>(&'a mut self, events: &'a mut dyn Events) -> Selected<'a> {
        Selected {
            events,
            selection: self,
        }
    }
}

/// The events of a trace that are wanted.
pub struct Selected<'a> {
    events: &'a mut dyn Events,
    selection: &'a mut Selection,
}

impl Events for Selected<'_> {
    fn info(&self) -> &TraceInfo {
        self.events.info()
    }

    fn symbols(&self) -> Arc<Symbols> {
        self.events.symbols()
    }

    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<(), Report>,
    ) -> Result<(), Report> {
        if self.selection.is_everything() {
            return self.events.walk(each);
        }
        // Which streams there are is known before the first event.
        let info = self.events.info().clone();
        let selection = &mut *self.selection;
        self.events.walk(&mut |moment| match moment {
            Moment::Event(event) if !selection.keeps(event, &info) => Ok(()),
            moment => each(moment),
        })
    }
}

impl Subject for Named<'_> {
    fn time(&self) -> Option<Time> {
        self.event.time()
    }

    fn name(&self) -> &str {
        self.event.name()
    }

    fn cpu(&self) -> Option<Cpu> {
        self.event.cpu()
    }

    fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    fn thread_name(&self) -> Option<Cow<'_, str>> {
        self.thread_name.map(Cow::from)
    }

    fn field(&self, path: &str) -> Option<Operand<'_>> {
        self.event.field(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_a_unit() {
        let cases = [
            ("12.5", Bound::At(Time(12_500_000_000))),
            ("0.000000001", Bound::At(Time(1))),
            ("-3s", Bound::At(Time(-3_000_000_000))),
            ("80us", Bound::At(Time(80_000))),
            (
                "1700000000.123456789",
                Bound::At(Time(1_700_000_000_123_456_789)),
            ),
            ("+250ms", Bound::AfterStart(Duration(250_000_000))),
            ("+5ns", Bound::AfterStart(Duration(5))),
            (".5", Bound::At(Time(500_000_000))),
        ];
        for (text, expected) in cases {
            assert_eq!(bound(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "+",
            "ms",
            "1.2.3",
            "--1",
            "+-1",
            "1h",
            "99999999999999",
            "1e9",
            ".",
        ] {
            assert!(bound(text).is_err(), "{text}");
        }
    }

    #[test]
    fn threads_are_ids_or_names() {
        assert_eq!(thread_choice("0x10"), ThreadChoice::Id(ThreadId(16)));
        assert_eq!(thread_choice("10"), ThreadChoice::Id(ThreadId(10)));
        assert_eq!(
            thread_choice("main*"),
            ThreadChoice::Named(Pattern::new("main*"))
        );
    }
}
