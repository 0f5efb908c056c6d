//! `kymo hotspots`: which functions executed the most instructions, from Arm hardware trace.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kymo_coresight::counts::{self, Counts, Run};
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::input::Buffer;
use kymo_coresight::memory::{Images, Layout, MemorySpace};
use kymo_coresight::selection::Selection;
use kymo_event::Addr;
use kymo_symbols::Symbols;

use super::packets;
use crate::args::{Format, FormatArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::render::table::{Align, Table};

/// The options of `kymo hotspots`.
#[derive(Debug, clap::Args)]
#[command(before_help = "\
EXAMPLES
  kymo hotspots snapshot/                    functions by the instructions that they executed
  kymo hotspots --symfs root/ perf.data      with the binaries below root/
  kymo hotspots -n 10 perf.data              the ten hottest
  kymo hotspots --format json perf.data | jq .function    one object a line, for programs")]
pub struct Args {
    /// A snapshot directory with a snapshot.ini, or a perf.data file.
    #[arg(value_name = "INPUT")]
    input: PathBuf,

    /// Where the binaries of a perf.data are, by their paths below this directory.
    #[arg(long, value_name = "DIR", default_value = "/")]
    symfs: PathBuf,

    /// Only the N hottest functions.
    #[arg(short = 'n', long, value_name = "N")]
    number: Option<usize>,

    #[command(flatten)]
    format: FormatArgs,
}

/// What a function executed.
#[derive(Clone, Copy, Debug, Default)]
struct Heat {
    instructions: u64,
    /// Executions of the run with which it begins.
    entries: u64,
}

/// Counts the instructions of each function.
///
/// # Errors
/// When the input can't be read, or holds no trace of a known protocol.
pub fn run(args: &Args, context: &mut Context) -> Result<ExitCode, Report> {
    let opened = packets::open(&args.input, &args.symfs, true, context)?;
    let mut total = Counts::default();
    let mut heats: HashMap<(String, String), Heat> = HashMap::new();
    let mut binaries = Binaries {
        root: opened.root,
        files: HashMap::new(),
    };
    for buffer in &opened.buffers {
        for (source, counts) in counts::of_buffer(
            buffer,
            EtmV4Options::default(),
            &Selection::default(),
            context.threads(),
            |_| true,
        ) {
            if let Some(code) = buffer.code.get(source) {
                for run in &counts.runs {
                    let (name, file, is_entry) = binaries.function(code, run);
                    let heat = heats.entry((name, file)).or_default();
                    heat.instructions += run.executions * u64::from(run.count);
                    heat.entries += if is_entry { run.executions } else { 0 };
                }
            }
            total.add(counts);
        }
    }
    let mut rows: Vec<_> = heats.into_iter().collect();
    rows.sort_by(|a, b| {
        b.1.instructions
            .cmp(&a.1.instructions)
            .then_with(|| a.0.cmp(&b.0))
    });
    rows.truncate(args.number.unwrap_or(usize::MAX));
    match args.format.format {
        Format::Text => table(&rows, &total, context)?,
        Format::Json => {
            for ((function, file), heat) in &rows {
                let line = serde_json::json!({
                    "function": function,
                    "file": file,
                    "instructions": heat.instructions,
                    "entries": heat.entries,
                });
                writeln!(context.out().0, "{line}")?;
            }
        }
    }
    remark(&opened.buffers, &total, context);
    Ok(ExitCode::SUCCESS)
}

fn table(
    rows: &[((String, String), Heat)],
    total: &Counts,
    context: &mut Context,
) -> Result<(), Report> {
    let mut table = Table::new([
        ("SHARE", Align::Right),
        ("INSTRUCTIONS", Align::Right),
        ("ENTRIES", Align::Right),
        ("FUNCTION", Align::Left),
        ("FILE", Align::Left),
    ]);
    for ((function, file), heat) in rows {
        let share = 100.0 * heat.instructions as f64 / total.instructions.max(1) as f64;
        table.row([
            format!("{share:.2} %"),
            heat.instructions.to_string(),
            heat.entries.to_string(),
            function.clone(),
            file.clone(),
        ]);
    }
    let (out, palette) = context.out();
    table.write(out, palette)?;
    Ok(())
}

/// Says what was counted, and what is not in it.
fn remark(buffers: &[Buffer], total: &Counts, context: &Context) {
    let (instructions, ranges) = (total.instructions, total.ranges);
    context.note(format_args!(
        "{instructions} instructions in {ranges} ranges, {} of them distinct; {} packets in {} buffers",
        total.runs.len(),
        total.packets,
        buffers.len()
    ));
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.sum::<u64>();
    let doubts = &total.doubts;
    let not_accessible = sum(&mut doubts.not_accessible.values().map(|place| place.count));
    if not_accessible > 0 {
        context.warn(format_args!(
            "{not_accessible} times execution went where no file has the code: what ran there is not counted"
        ));
    }
    let unsynced = sum(&mut doubts.unsynced.values().map(|place| place.count));
    if unsynced > 0 {
        context.warn(format_args!(
            "{unsynced} times trace was lost (overflow, bad packet, or code that does not fit): what ran there is not counted"
        ));
    }
}

/// The files behind images, with their symbols.
struct Binaries {
    root: PathBuf,
    files: HashMap<String, Option<Binary>>,
}

struct Binary {
    symbols: Symbols,
    layout: Layout,
}

impl Binaries {
    /// The function of a run, its file, and whether the run begins it.
    fn function(&mut self, code: &Images, run: &Run) -> (String, String, bool) {
        let Some(image) = code.find(MemorySpace::ANY, run.start) else {
            return (format!("{:#x}", run.start), String::new(), false);
        };
        let file = image.name.clone();
        let short = Path::new(&file)
            .file_name()
            .map_or(file.clone(), |name| name.to_string_lossy().into_owned());
        let binary = self.files.entry(file.clone()).or_insert_with(|| {
            let bytes = std::fs::read(self.root.join(file.trim_start_matches('/'))).ok()?;
            let layout = Layout::of_elf(&bytes)?;
            let symbols = Symbols::from_elf(bytes).ok()?;
            Some(Binary { symbols, layout })
        });
        let offset = image.file_offset + (run.start - image.address);
        let found = binary.as_ref().and_then(|binary| {
            let address = binary.layout.address_of(offset)?;
            let function = binary.symbols.function_at(Addr(address))?;
            Some((
                function.name().to_owned(),
                function.address() == Addr(address),
            ))
        });
        match found {
            Some((name, is_entry)) => (name, short, is_entry),
            // Without symbols, the page stands for what is in it.
            None => (format!("{:#x}", run.start & !0xfff), short, false),
        }
    }
}
