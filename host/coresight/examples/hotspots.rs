//! Prints the ranges of a trace, or the runs that executed the most instructions: the same as `hotspots.c` of
//! `kymo-coresight-c` does in C.
//!
//!     cargo run --release --example hotspots -- [--ranges] INPUT
//!
//! INPUT is a snapshot directory or a perf.data file.

use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::element::Element;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::{Line, Listing};
use kymo_coresight::perf;
use kymo_coresight::selection::Selection;
use kymo_coresight::snapshot::Snapshot;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn open(path: &Path) -> Result<Vec<Buffer>> {
    if Snapshot::is_at(path) {
        let (buffers, missing) = input::open_snapshot(path, &Default::default())?;
        missing
            .iter()
            .for_each(|error| eprintln!("not found: {error}"));
        return Ok(buffers);
    }
    let mut recording = perf::open(path)?;
    let mut files = perf::Files::below(vec!["/".into()]);
    for missing in recording.load(|mapping| files.images(mapping)) {
        eprintln!("not found: {}", missing.mapping.path);
    }
    Ok(recording.buffers)
}

fn ranges(buffers: &[Buffer]) -> Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    for buffer in buffers {
        let (sources, streams) = (&buffer.sources, &buffer.frames.streams);
        for line in Listing::decoding(sources, streams, &buffer.code, EtmV4Options::default()) {
            if let Line::Element {
                source,
                element: Element::Range(range),
                ..
            } = line
            {
                let (id, start, end, count) = (source.id.0, range.start, range.end, range.count);
                let taken = if range.is_taken { "E" } else { "N" };
                writeln!(out, "{id:02x} {start:#x}-{end:#x} {count} {taken}")?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

fn hottest(buffers: &[Buffer]) {
    let mut total = Counts::default();
    for buffer in buffers {
        let (options, all) = (EtmV4Options::default(), Selection::default());
        for (_, counts) in counts::of_buffer(buffer, options, &all, 2, |_| true) {
            total.add(counts);
        }
    }
    let (instructions, ranges, distinct) = (total.instructions, total.ranges, total.runs.len());
    println!("{instructions} instructions in {ranges} ranges, {distinct} of them distinct");
    let mut runs = total.runs;
    runs.sort_by_key(|run| {
        let heat = run.executions * u64::from(run.count);
        (std::cmp::Reverse(heat), run.start, run.end)
    });
    for run in runs.iter().take(20) {
        let (start, end, executions, count) = (run.start, run.end, run.executions, run.count);
        println!("{start:#x}-{end:#x} {executions} times {count}");
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let result = match arguments.as_slice() {
        [input] => open(input.as_ref()).map(|buffers| hottest(&buffers)),
        [option, input] if option == "--ranges" => {
            open(input.as_ref()).and_then(|buffers| ranges(&buffers))
        }
        _ => Err("usage: hotspots [--ranges] INPUT".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
