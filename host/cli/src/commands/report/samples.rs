//! `kymo report --samples`: functions by samples of the program counter.
//!
//! The DWT of a Cortex-M sends the program counter at a fixed interval of cycles. The samples do not show how often
//! and how long a function ran, and a share of samples has a statistical error.

use std::collections::HashMap;
use std::io::{self, Write};
use std::process::ExitCode;

use kymo_event::{Addr, Batch, EventKind, Field, Time, TraceInfo, Value};
use kymo_export::json::Object;
use kymo_symbols::Symbols;

use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::event_filter::Chooser;
use crate::filter::Part;
use crate::input::{Events, Moment, Trace, more};
use crate::names::Names;
use crate::render::count::counted;
use crate::render::escape::escaped;
use crate::render::table::{Align, Table};
use crate::render::unit;

/// The readers' names of a sample of the program counter, and of one while the processor slept.
const SAMPLE: &str = "pc_sample";
const SLEEPING: &str = "sleeping";

/// The name of samples that the core did not allow.
const PROHIBITED: &str = "pc_sample_prohibited";

/// Maximum number of distinct addresses; a program has as many as it has instructions.
const MOST: usize = 1 << 22;

/// Counts of samples by result.
#[derive(Debug, Default)]
struct Samples {
    counts: HashMap<Sampled, u64>,
    /// Samples of addresses beyond the maximum.
    more: u64,
    span: Option<(Time, Time)>,
}

impl Samples {
    fn add(&mut self, time: Time, address: Sampled) {
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        if self.counts.len() < MOST || self.counts.contains_key(&address) {
            *self.counts.entry(address).or_default() += 1;
        } else {
            self.more += 1;
        }
    }

    fn total(&self) -> u64 {
        self.counts.values().sum::<u64>() + self.more
    }
}

/// Result of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sampled {
    /// The core was at this address.
    At(Addr),
    Sleeping,
    /// The core ran code that must not be sampled: secure code.
    Prohibited,
}

/// The result of a sample; `None` if the event is not a sample.
fn sample(kind: &EventKind, name: &str, fields: &[Field]) -> Option<Sampled> {
    if !matches!(kind, EventKind::Other) {
        return None;
    }
    let address = match fields.first().map(|field| &field.value) {
        Some(Value::Hex(address)) => Some(Addr(*address)),
        _ => None,
    };
    match (name, address) {
        (SAMPLE, Some(address)) => Some(Sampled::At(address)),
        (SLEEPING, None) if fields.is_empty() => Some(Sampled::Sleeping),
        (PROHIBITED, None) if fields.is_empty() => Some(Sampled::Prohibited),
        _ => None,
    }
}

/// The number of samples of the program counter in a batch, if its trace can have any.
pub fn count(info: &TraceInfo, batch: &Batch) -> u64 {
    if !info.is_of(kymo_read::coresight::FORMAT) || !batch.has_events() {
        return 0;
    }
    let events = batch.rows().iter().filter_map(|row| batch.event_of(row));
    events
        .filter(|event| sample(&event.kind, &event.name, &event.fields).is_some())
        .count() as u64
}

/// A row of the table.
struct Row {
    name: String,
    samples: u64,
    /// The share of all samples, and its statistical error, in percent.
    share: f64,
    bound: f64,
}

/// Shows functions by their samples, most first.
///
/// # Errors
/// When the input is damaged; the table of all readable parts is shown before.
pub fn run(
    trace: &mut Trace,
    part: Part,
    (number, format): (Option<usize>, Format),
    context: &mut Context,
) -> Result<ExitCode, Report> {
    let symbols = trace.symbols();
    let names = Names::new(&symbols);
    let mut samples = Samples::default();
    let mut chooser = Chooser::new(part.filter);
    let read = trace.walk(&mut |moment| {
        let Moment::Batch(info, batch) = moment else {
            return Ok(more(true));
        };
        for event in batch.iter() {
            let Some(whole) = event.event else {
                continue;
            };
            if let Some(address) = sample(&whole.kind, &whole.name, &whole.fields)
                && chooser.keeps(event, info, &names)
            {
                samples.add(event.row.time, address);
            }
        }
        Ok(more(true))
    });
    let total = samples.total();
    if total == 0 {
        context.warn(
            "there are no samples of the program counter in it: the DWT sends them where DWT_CTRL.PCSAMPLENA is set",
        );
        read?;
        return trace.verdict();
    }
    let mut rows = rows(&samples, &symbols);
    rows.truncate(number.unwrap_or(usize::MAX));
    let (out, palette) = context.out();
    match format {
        Format::Text => {
            let right = |name| (name, Align::Right);
            let columns = [
                right("SAMPLES"),
                right("SHARE"),
                right("WITHIN"),
                ("FUNCTION", Align::Left),
            ];
            let mut table = Table::new(columns);
            for row in &rows {
                table.row([
                    row.samples.to_string(),
                    format!("{:.2} %", row.share),
                    format!("± {:.2}", row.bound),
                    escaped(&row.name).to_string(),
                ]);
            }
            table.write(out, palette)?;
        }
        Format::Json => {
            for row in &rows {
                json(out, row)?;
            }
        }
    }
    let about = match samples.span {
        Some((first, last)) if first < last && total > 1 => {
            let apart = last.since(first).unwrap_or_default().0 / (total - 1);
            let apart = unit::in_words(kymo_event::Duration(apart));
            format!(", one in {apart} on average")
        }
        _ => String::new(),
    };
    context.note(format_args!(
        "{} of the program counter{about}: shares of samples, no times and no calls; 95 of 100 such shares are right WITHIN",
        counted(total, "sample")
    ));
    if samples.more > 0 {
        context.warn(format_args!(
            "too many addresses to keep: {} in no row",
            counted(samples.more, "sample")
        ));
    }
    read?;
    trace.remark(context);
    trace.verdict()
}

/// The samples by function.
fn rows(samples: &Samples, symbols: &Symbols) -> Vec<Row> {
    let total = samples.total() as f64;
    let mut by_name: HashMap<String, u64> = HashMap::new();
    for (address, count) in &samples.counts {
        let name = match address {
            Sampled::Sleeping => "(sleeping)".to_owned(),
            Sampled::Prohibited => "(prohibited)".to_owned(),
            Sampled::At(address) => {
                let function = symbols.function_at(*address);
                function.map_or(format!("{:#x}", address.0), |it| it.name().to_owned())
            }
        };
        *by_name.entry(name).or_default() += count;
    }
    let rows = by_name.into_iter().map(|(name, samples)| {
        let share = samples as f64 / total;
        // The error is 1.96 standard deviations (95 % confidence) of a share in this number of samples.
        let bound = 1.96 * (share * (1.0 - share) / total).sqrt();
        Row {
            name,
            samples,
            share: 100.0 * share,
            bound: 100.0 * bound,
        }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|one, other| {
        let order = other.samples.cmp(&one.samples);
        order.then_with(|| one.name.cmp(&other.name))
    });
    rows
}

/// Writes a row as one object.
fn json(out: &mut dyn Write, row: &Row) -> io::Result<()> {
    let mut line = Vec::new();
    let mut object = Object::begin(&mut line);
    object
        .member("function", &*row.name)
        .member("samples", row.samples)
        .member("share_percent", row.share)
        .member("within_percent", row.bound);
    object.end();
    line.push(b'\n');
    out.write_all(&line)
}
