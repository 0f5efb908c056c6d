//! Exports a trace, for measuring what that takes: `export TRACE FORMAT OUTPUT [PROGRAM]`.
//!
//! `valgrind --tool=callgrind target/release/examples/export TRACE perfetto /dev/null` counts instructions;
//! divided by the events that this prints, that is what an event takes, decoding and all.

use std::error::Error;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use kymo_event::Batch;
use kymo_export::{Destination, Export, Formats, Options, Shape};
use kymo_read::{OpenOptions, Source as _, open};
use kymo_symbols::Symbols;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, format, output, program @ ..] = arguments.as_slice() else {
        return Err("expected a trace, a format and an output".into());
    };
    let formats = Formats::built_in();
    let format = formats.by_name(format).ok_or("no such format")?;
    let wanted = format.wanted;
    let read = OpenOptions {
        wanted,
        ..OpenOptions::default()
    };
    let mut source = open(Path::new(trace), &read)?;
    let mut symbols = Symbols::new();
    if let [program] = program {
        symbols = Symbols::open(Path::new(program))?;
        if let Some(base) = source.info().text_base {
            symbols.set_text_base(base);
        }
    }
    let symbols = Arc::new(symbols);
    let options = Options::default();
    let destination = match format.shape {
        Shape::File => Destination::Writer(Box::new(File::create(output)?)),
        Shape::Directory => Destination::Directory(Path::new(output)),
    };
    let mut export = Export::new(format, source.info(), &symbols, destination, &options)?;
    let mut batch = Batch::default();
    while source.fill(&mut batch)? {
        if !export.batch(source.info(), &batch)? {
            break;
        }
    }
    println!("{}", export.finish(source.info())?);
    Ok(())
}
