//! Text output of records, as `trace-cmd report` writes it.

mod fields;
mod plugins;
mod text;

use std::collections::HashMap;
use std::fmt::Write;

use crate::dat::Trace;
use crate::format::EventFormat;
use crate::page::Lost;
use crate::records::{Place, Step};
use crate::symbols::Comms;

/// Style of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether times are in nanoseconds (`-t`), not rounded to microseconds.
    pub nanoseconds: bool,
    /// Whether fields are written raw (`-R`), not with the event's print format.
    pub raw: bool,
    /// Whether flag columns follow the CPU (`-l`).
    pub latency: bool,
    /// Whether a function's entry and exit that follow each other become one line even if events are missing between
    /// them. trace-cmd does so, and then does not report the loss.
    pub leaves_over_losses: bool,
}

/// Writer of a trace's steps as lines.
#[derive(Debug)]
pub struct Report<'t> {
    trace: &'t Trace,
    style: Style,
    comms: Comms,
    /// Loss in front of the next record of each CPU buffer.
    lost: HashMap<usize, Lost>,
    /// Callers of functions by CPU, for the indentation of `function` events.
    callers: HashMap<u32, Vec<String>>,
    ids: plugins::GraphIds,
    /// Start of a line, and the task, CPU and buffer that it belongs to.
    head: String,
    head_of: (i32, u32, usize),
    /// Prefix of a line by buffer: the buffer's name, if there are several buffers.
    buffers: Vec<String>,
    /// Whether times are ticks, not nanoseconds.
    ticks: bool,
    /// Entry of a function graph, which is a leaf if its exit is next.
    entry: Option<plugins::GraphEntry>,
    /// Cache of recent functions: address and name. The slot depends on the address.
    recent: Vec<(u64, &'t str)>,
    /// Time of a line without its last three digits, as a number and as text.
    moment: (u64, String),
    /// Text between the time and the body of an event, by event id.
    labels: Vec<String>,
}

/// Entries of [`Report::recent`].
const RECENT: usize = 4096;

impl<'t> Report<'t> {
    /// Starts a report.
    pub fn new(trace: &'t Trace, style: Style) -> Self {
        let mut labels = Vec::new();
        for event in trace.formats.iter() {
            let place = usize::from(event.id);
            if labels.len() <= place {
                labels.resize(place + 1, String::new());
            }
            if let Some(label) = labels.get_mut(place) {
                *label = format!("{}: ", event.name);
                text::spaces(20usize.saturating_sub(event.name.len()), label);
            }
        }
        let buffers = || trace.buffers.iter().map(|buffer| &*buffer.name);
        let width = buffers().map(str::len).max().unwrap_or(0);
        let prefix = |name: &str| match (width, name) {
            (0, _) => String::new(),
            (_, "") => format!("{:width$}  ", ""),
            (_, name) => format!("{name:>width$}: "),
        };
        Self {
            buffers: buffers().map(prefix).collect(),
            ticks: !trace.has_nanoseconds(),
            trace,
            style,
            comms: trace.comms.clone(),
            lost: HashMap::new(),
            callers: HashMap::new(),
            ids: plugins::GraphIds::of(&trace.formats),
            head: String::new(),
            head_of: (0, 0, 0),
            entry: None,
            recent: vec![(0, ""); RECENT],
            moment: (u64::MAX, String::new()),
            labels,
        }
    }

    /// Appends the lines of a step. The entry of a function is written with the step behind it.
    pub fn push(&mut self, place: Place, step: &Step<'_>, out: &mut String) {
        let record = match step {
            Step::Record(record) => record,
            Step::Lost(lost) => {
                self.lost.insert(place.cpu_buffer, *lost);
                return;
            }
            Step::Damage(..) => {
                self.lost.insert(place.cpu_buffer, Lost::Unknown);
                return;
            }
        };
        let data = record.data;
        let lost = match self.lost.is_empty() {
            true => None,
            false => self.lost.remove(&place.cpu_buffer),
        };
        if let Some(entry) = self.entry.take()
            && self.finish_entry(
                &entry,
                place,
                data,
                lost.is_none() || self.style.leaves_over_losses,
                out,
            )
        {
            return;
        }
        let buffer = self.buffers.get(place.buffer).map_or("", String::as_str);
        // Writing to a string cannot fail.
        let _ = match lost {
            Some(Lost::Events(count)) => {
                writeln!(out, "{buffer}CPU:{} [{count} EVENTS DROPPED]", place.cpu)
            }
            Some(Lost::Unknown) => writeln!(out, "{buffer}CPU:{} [EVENTS DROPPED]", place.cpu),
            Some(Lost::Nothing) | None => Ok(()),
        };
        let id = self.trace.order.u16_at(data, 0).unwrap_or(0);
        let pid = self.trace.order.u32_at(data, 4).unwrap_or(0).cast_signed();
        // Most lines belong to the same task as the line before.
        let of = (pid, place.cpu, place.buffer);
        if self.head_of != of || self.head.is_empty() {
            let comm = self.comms.get(pid).unwrap_or("<...>");
            self.head.clear();
            let _ = write!(self.head, "{buffer}{comm:>16}-{pid:<5} [{:03}]", place.cpu);
            self.head_of = of;
        }
        out.push_str(&self.head);
        if self.style.latency {
            out.push(' ');
            let byte = |at| data.get(at).copied().unwrap_or(0);
            crate::latency(byte(2), byte(3), out);
        }
        self.time(place.time, out);
        let Some(event) = self.trace.formats.get(id) else {
            let _ = writeln!(out, "[UNKNOWN EVENT: id {id}]");
            return;
        };
        if let Some(label) = self.labels.get(usize::from(id)) {
            out.push_str(label);
        }
        self.body(event, place, data, out);
        if self.entry.is_none() {
            end_line(out);
        }
    }

    /// Writes the pending entry at the end of the trace.
    pub fn finish(&mut self, out: &mut String) {
        if let Some(entry) = self.entry.take() {
            self.nested(&entry, out);
            end_line(out);
        }
    }

    fn time(&mut self, time: u64, out: &mut String) {
        if self.ticks {
            let _ = write!(out, "{time:>12}: ");
            return;
        }
        let time = match self.style.nanoseconds {
            true => time,
            false => time.saturating_add(500) / 1000,
        };
        // Mostly all but the last three digits are the same as in the line before.
        let moment = time / 1000;
        if self.moment.0 != moment {
            self.begin_moment(moment);
        }
        out.push_str(&self.moment.1);
        text::three_and_colon(time, out);
    }

    #[inline(never)]
    fn begin_moment(&mut self, moment: u64) {
        let text = &mut self.moment.1;
        text.clear();
        text.push(' ');
        let second = match self.style.nanoseconds {
            true => moment / 1_000_000,
            false => moment / 1000,
        };
        text::number(second, 5, text);
        text.push('.');
        if self.style.nanoseconds {
            text::three(moment / 1000, text);
        }
        text::three(moment, text);
        self.moment.0 = moment;
    }

    fn body(&mut self, event: &EventFormat, place: Place, data: &[u8], out: &mut String) {
        if self.style.raw {
            return fields::push(self.trace, event, data, out);
        }
        if self.plugin(event, place, data, out) {
            return;
        }
        if !self.trace.scope().print(event, data, out) {
            out.push_str("[FAILED TO PARSE]");
            fields::push(self.trace, event, data, out);
        }
    }
}

/// Ends a line, unless the print format has already ended it.
fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}
