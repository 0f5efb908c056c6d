//! Input of a subcommand: a trace with its symbols.
//!
//! Shared by all subcommands that read a trace: opens the input, finds names for its functions and checks that they
//! belong to the same build, iterates over the events, and reports in the end which parts could not be read.

mod images;
mod placing;
mod refused;
mod remarks;

pub use remarks::WALL_TIMES;
mod replaying;
pub mod symbols;
mod unfit;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use kymo_event::{Batch, Time, TraceInfo, Wanted};
use kymo_read::kymo::{self, MemoryDump};
use kymo_read::{Declarations, OpenError, OpenOptions, ReadError, Source};
use kymo_symbols::Symbols;
use kymo_zephyr_instrumentation::Kind;

use placing::Placing;
pub use refused::{Refused, refused};

use crate::args::{InputArgs, MemoryArgs, SymbolArgs};
use crate::commands::profile::is_kept_table;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::filter::Unseen;
use crate::gdb;
use crate::hardware::open_options;
use crate::mapping;
use crate::output::is_same_file;
use crate::recording::{self, Captured};
use crate::render::unit;
use crate::rescue::{Rescue, is_empty_dump};
use crate::span::has_time;
use crate::target::{Either, Fetched, LiveZephyr, TargetArgs, address_in, incomplete, trace_info};

/// The format of Kymo's own recordings, whose exits need not name their functions. Traces of other formats contain
/// everything needed themselves.
pub const FORMAT: &str = "kymo";

/// A source of events to show, saved or live.
pub trait Events {
    /// The description of the trace so far.
    fn info(&self) -> &TraceInfo;

    /// The names of its functions.
    fn symbols(&self) -> Arc<Symbols>;

    /// Records the names given in options, so that the verdict on a finite trace can check them.
    fn expect(&mut self, _unseen: Unseen) {}

    /// The time of the first event that has one; `None` if there is none.
    ///
    /// # Errors
    /// When the trace can't be read so far.
    fn start(&mut self) -> Result<Option<Time>, Report>;

    /// Iterates over all events, until `each` breaks.
    ///
    /// # Errors
    /// The first error of `each`, or that of reading; all readable events were passed to `each` before.
    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report>;
}

/// An item of the iteration over events.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// The next events, and the description of the trace so far.
    Batch(&'a TraceInfo, &'a Batch),
    /// No events at present, but more will come: output so far should be flushed.
    Pause,
}

/// Continues if more events are wanted.
pub const fn more(wanted: bool) -> ControlFlow<()> {
    if wanted {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// The time of the first event in a batch that has one.
pub fn first_time(info: &TraceInfo, batch: &Batch) -> Option<Time> {
    let mut rows = batch.rows().iter();
    let first = rows.find(|row| has_time(info, row.stream));
    first.map(|row| row.time)
}

/// The events that programs declare in their ELF files.
pub fn declared(symbols: &Symbols) -> Declarations {
    let mut declarations = Declarations::default();
    for (section, big_endian) in symbols.declared_events() {
        // (Declarations that can't be parsed are ignored; their events are shown as recorded.)
        declarations.add(section, big_endian);
    }
    declarations
}

/// Adds names to markers, and names and fields to the program's own records.
pub fn label(source: Box<dyn Source>, symbols: &Arc<Symbols>) -> Box<dyn Source> {
    let strings = Arc::clone(symbols);
    let code = Arc::clone(symbols);
    let source =
        kymo_read::resolve_code(source, move |address| crate::rtems::code_at(&code, address));
    let labelled = kymo_read::label_markers(source, move |address| strings.string_at(address));
    kymo_read::describe_events(Box::new(labelled), declared(symbols))
}

/// A trace, with names for its contents.
pub struct Trace {
    /// Its name in messages.
    name: String,
    source: Box<dyn Source>,
    /// Whether it is live.
    is_live: bool,
    /// Batches that were read ahead.
    read: Vec<Batch>,
    symbols: Arc<Symbols>,
    /// Why it is not all that a live target had.
    incomplete: Option<Report>,
    /// The dump of a live target that can send it only once.
    sent: Option<Rescue>,
    /// The numbers of the reader's remarks and notes that have been reported.
    remarked: (usize, usize),
    /// Names given in options that no event had.
    unseen: Unseen,
    is_at_end: bool,
}

impl Trace {
    /// Opens a saved trace, or fetches the recording of a live target, and its symbols. `wanted` selects how much of
    /// each event is decoded.
    ///
    /// # Errors
    /// When the input is not a trace, the target does not answer, or a file of symbols can't be read.
    pub fn open(
        input: &InputArgs,
        symbols: &SymbolArgs,
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        let path = input.path();
        if let Some(address) = address_in(path)? {
            input.ctf.refuse_with("a live target")?;
            let target = TargetArgs::at(address, input.baud);
            return Self::fetch(&target, symbols, wanted, context);
        }
        let source = open(input, symbols, wanted, context)?;
        let trace = Self::new(name_of(input.path()), source, symbols, context)?;
        Ok(Self {
            is_live: crate::rtems::is_address(path) || is_pipe(path),
            ..trace
        })
    }

    /// Fetches the recording of a live target.
    fn fetch(
        target: &TargetArgs,
        symbols: &SymbolArgs,
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        let mut live = match target.recognise(context)? {
            Either::Kymo(live) => live,
            Either::Zephyr(mut live) => {
                let symbols = Arc::new(symbols.load(&LiveZephyr::info(), context)?);
                let fetched = live.fetch(Kind::Trace, context)?;
                let mut trace = Self::of_zephyr(live.name(), fetched, symbols, wanted)?;
                trace.keep_sent(context)?;
                return Ok(trace);
            }
        };
        recording::check(&live)?;
        let loaded = Arc::new(symbols.load(&trace_info(&live.identity), context)?);
        let captured = recording::fetch(&mut live, context)?;
        Self::of_dump(live.name(), captured, (loaded, symbols), wanted, context)
    }

    /// The trace in a target's dump, with the symbols for it, and the arguments that they come from. If the dump is
    /// incomplete, the [`verdict`](Self::verdict) reports why.
    ///
    /// # Errors
    /// When it contains no trace.
    pub fn of_dump(
        name: String,
        captured: Captured,
        (symbols, files): (Arc<Symbols>, &SymbolArgs),
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        let Captured { dump, host } = captured;
        let incomplete = incomplete(&dump);
        let (identity, options) = (
            dump.identity,
            OpenOptions {
                wanted,
                ..OpenOptions::default()
            },
        );
        let source = kymo::open_dump(&identity, dump.bytes, &dump.missing, &name, &options);
        let mut source =
            source.map_err(|error| incomplete.clone().unwrap_or_else(|| refused(&error)))?;
        kymo::add_host_check(source.info_mut(), host);
        files.load_mapped(source.info(), &symbols, 0, &mut |text| context.note(text));
        let trace = Self {
            incomplete,
            ..Self::with_symbols(name, source, symbols)
        };
        trace.remark_read((0, 0), context);
        Ok(trace)
    }

    /// The trace in the dumps of a target that runs Zephyr's own instrumentation. If they are incomplete, the
    /// [`verdict`](Self::verdict) reports why.
    ///
    /// # Errors
    /// When they contain no trace.
    pub fn of_zephyr(
        name: String,
        fetched: Fetched,
        symbols: Arc<Symbols>,
        wanted: Wanted,
    ) -> Result<Self, Report> {
        let bytes = fetched.as_sent();
        let sent = Rescue::new(if fetched.is_empty() {
            Vec::new()
        } else {
            bytes.clone()
        });
        let incomplete = fetched.incomplete;
        let options = OpenOptions {
            wanted,
            ..OpenOptions::default()
        };
        let source = kymo_read::zephyr_instrumentation::open_bytes(&name, bytes, &options);
        let source = source.map_err(|error| {
            sent.keep_after(incomplete.clone().unwrap_or_else(|| refused(&error)))
        })?;
        Ok(Self {
            incomplete,
            sent: Some(sent),
            ..Self::with_symbols(name, source, symbols)
        })
    }

    /// A trace from any other source; `name` is its name in messages.
    ///
    /// # Errors
    /// When a file of symbols can't be read.
    pub fn new(
        name: String,
        source: Box<dyn Source>,
        symbols: &SymbolArgs,
        context: &Context,
    ) -> Result<Self, Report> {
        let found = Arc::new(symbols.load(source.info(), context)?);
        let source = Box::new(Placing::new(source, &found, symbols));
        let trace = Self::with_symbols(name, source, found);
        trace.remark_read((0, 0), context);
        Ok(trace)
    }

    /// A trace whose symbols are known already: those of a live target are needed before there is a trace.
    fn with_symbols(name: String, source: Box<dyn Source>, symbols: Arc<Symbols>) -> Self {
        unit::set(source.info().unit);
        Self {
            name,
            remarked: (source.info().remarks.len(), source.info().notes.len()),
            source: label(source, &symbols),
            is_live: false,
            read: Vec::new(),
            symbols,
            incomplete: None,
            sent: None,
            unseen: Unseen::default(),
            is_at_end: false,
        }
    }

    /// The description of the trace so far.
    pub fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    /// The names of its functions.
    pub fn symbols(&self) -> Arc<Symbols> {
        Arc::clone(&self.symbols)
    }

    /// The source of events, for callers that read it themselves.
    pub fn source(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    /// The error of a failed read after earlier events were shown.
    pub fn unreadable(&self, error: &ReadError) -> Report {
        Report::caused(&self.name, error).help("what was read before is shown")
    }

    /// Saves a dump that the target can't send again to a file and reports the file's name. Used by subcommands that
    /// only show it. An empty dump is not saved.
    ///
    /// # Errors
    /// When it can't be saved.
    pub fn keep_sent(&mut self, context: &Context) -> Result<(), Report> {
        match &mut self.sent {
            Some(sent) => sent.keep(context),
            None => Ok(()),
        }
    }

    /// Saves a dump that the target can't send again after the subcommand has failed.
    pub fn kept(&self, report: Report) -> Report {
        match &self.sent {
            Some(sent) => sent.keep_after(report),
            None => report,
        }
    }

    /// Checks, at the end of the input, that it was complete and had all names given in options.
    ///
    /// # Errors
    /// When a name is missing, or parts of the input were damaged or did not arrive. The rest was shown, but a script
    /// needs the error.
    pub fn verdict(&self) -> Result<ExitCode, Report> {
        // The reason why pieces are missing is more useful than the damage itself.
        if let Some(report) = &self.incomplete {
            return Err(report.clone());
        }
        let Some(first) = self.info().damage.first() else {
            if self.is_at_end {
                self.unseen.check(self.info(), &self.symbols)?;
            }
            return Ok(ExitCode::SUCCESS);
        };
        let more = self.info().damaged_places().saturating_sub(1);
        let place = (first.stream.as_str(), first.offset);
        Err(damaged(&self.name, place, &first.message, more))
    }
}

/// The error for an input that turned out to be damaged although the result is complete: the first damage with its
/// stream and offset, and the number of further ones.
pub fn damaged(name: &str, (stream, offset): (&str, u64), message: &str, more: u64) -> Report {
    let more = match more {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Report::new(format_args!(
        "{name}: damaged in {stream} at offset {offset}: {message}{more}"
    ))
    .help("all that could be read was given; `kymo info` lists every damaged place")
}

impl Events for Trace {
    fn info(&self) -> &TraceInfo {
        self.info()
    }

    fn symbols(&self) -> Arc<Symbols> {
        self.symbols()
    }

    fn expect(&mut self, unseen: Unseen) {
        self.unseen = unseen;
    }

    fn start(&mut self) -> Result<Option<Time>, Report> {
        let mut read = self.read.iter();
        if let Some(start) = read.find_map(|batch| first_time(self.source.info(), batch)) {
            return Ok(Some(start));
        }
        let mut batch = Batch::default();
        while self
            .source
            .fill(&mut batch)
            .map_err(|error| self.unreadable(&error))?
        {
            let start = first_time(self.source.info(), &batch);
            self.read.push(std::mem::take(&mut batch));
            if start.is_some() {
                return Ok(start);
            }
        }
        Ok(None)
    }

    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report> {
        for batch in std::mem::take(&mut self.read) {
            self.unseen.meet(self.source.info(), &batch);
            if each(Moment::Batch(self.source.info(), &batch))?.is_break() {
                return Ok(());
            }
        }
        let mut batch = Batch::default();
        while self
            .source
            .fill(&mut batch)
            .map_err(|error| self.unreadable(&error))?
        {
            self.unseen.meet(self.source.info(), &batch);
            if each(Moment::Batch(self.source.info(), &batch))?.is_break() {
                return Ok(());
            }
            if self.is_live && each(Moment::Pause)?.is_break() {
                return Ok(());
            }
        }
        self.is_at_end = true;
        Ok(())
    }
}

/// Opens a saved trace, or, with the program's ELF file, a memory dump that contains one.
///
/// # Errors
/// When it contains no trace.
pub fn open(
    input: &InputArgs,
    symbols: &SymbolArgs,
    wanted: Wanted,
    context: &Context,
) -> Result<Box<dyn Source>, Refused> {
    let (path, memory) = (input.path(), &input.memory);
    if gdb::is_address(path) {
        let fetched = gdb::fetch(path, memory.stay_halted, symbols, context)?;
        let input = input.elsewhere(fetched.path.clone());
        return open(&input, symbols, wanted, context);
    }
    if is_kept_table(path) {
        let name = path.display();
        let report = Report::new(format_args!("{name} is a profile table, not a trace"));
        return Err(report
            .help(format_args!("`kymo profile {name}` shows it"))
            .into());
    }
    let mapping = input.ctf.mapping.as_deref();
    if let Some(file) = &input.ctf.metadata {
        described(file)?;
    }
    let mut cores = vec![path];
    for more in &input.ctf.with {
        if cores.iter().any(|core| is_same_file(core, more)) {
            let report = Report::new(format_args!("{} is given twice", more.display()));
            return Err(report
                .help("--with takes the other recordings, each once")
                .into());
        }
        cores.push(more);
    }
    let options = OpenOptions {
        mapping: mapping.map(mapping::read).transpose()?,
        metadata: input.ctf.metadata.clone(),
        program: symbols.elf.first().cloned(),
        descriptions: descriptions(&input.ctf.description)?,
        beside: input.ctf.with.clone(),
        align: input.ctf.align.clone(),
        event_names: input.ctf.rtems.names()?,
        time_zero: input.ctf.time_zero,
        symbols: symbols.files(),
        debug_directories: symbols.debug_dir.clone(),
        console_dump: input.ctf.dump,
        as_it_comes: input.as_it_comes,
        events: input.events.clone(),
        ..open_options(
            &input.ctf.binaries,
            &symbols.elf,
            context.open_options(wanted),
        )
    };
    if crate::rtems::is_address(path) {
        input.ctf.refuse_with("a live target")?;
        return Ok(crate::rtems::open(path, &options)?);
    }
    let refuse = |error: OpenError| Refused {
        report: refused(&error),
        offset: error.offset(),
    };
    if memory.memory_address.is_none() {
        match kymo_read::open(path, &options) {
            Err(OpenError::Unknown { .. }) if !symbols.elf.is_empty() && path.is_file() => {}
            Ok(source) => {
                unfit::check(input, source.info())?;
                // These options do not apply to it. A snapshot or a raw buffer was checked by its reader.
                let format = source.info().format.split('+').next();
                match format == Some(kymo_read::coresight::FORMAT) {
                    true => input.refuse_for_hardware()?,
                    false => input.ctf.binaries.check(None)?,
                }
                return Ok(source);
            }
            Err(error) => return Err(refuse(error)),
        }
    }
    match open_memory(path, memory, symbols, context) {
        Ok(dump) => dump.into_source(&options).map_err(refuse),
        // A target that records only with SystemView has none of Kymo's buffers.
        Err(report) => {
            let bytes = std::fs::read(path).unwrap_or_default();
            let address = memory.memory_address;
            let source = kymo_read::systemview::open_memory(path, bytes, address, &options);
            source.map_err(refuse)?.ok_or_else(|| report.into())
        }
    }
}

/// Opens a dump of a target's memory, and reports which parts of the recording it lacks.
///
/// # Errors
/// When it contains no recording, or no ELF file locates it.
pub fn open_memory(
    path: &Path,
    memory: &MemoryArgs,
    symbols: &SymbolArgs,
    context: &Context,
) -> Result<MemoryDump, Report> {
    let program = gdb::program(symbols)?;
    let dump = MemoryDump::open(path, &program, memory.memory_address, &memory.memory);
    let dump = dump.map_err(|error| {
        let report = refused(&error);
        match error {
            OpenError::Memory { .. } => report.help(
                "is it the ELF file of this very program, and are the recorder's buffers in the dump? \
                 --memory-address says where a dump begins, --memory adds others",
            ),
            _ => report,
        }
    })?;
    for remark in dump.remarks() {
        context.warn(format_args!("{}: {remark}", path.display()));
    }
    Ok(dump)
}

/// Checks that all files that describe events can be read.
///
/// # Errors
/// When one can't.
pub fn descriptions(files: &[PathBuf]) -> Result<Vec<PathBuf>, Report> {
    for file in files {
        described(file)?;
    }
    Ok(files.to_vec())
}

/// The largest file that describes a trace or its events, in bytes: 256 MiB.
const LARGEST_DESCRIPTION: u64 = 256 << 20;

/// Checks that a file that describes a trace can be read completely.
fn described(file: &Path) -> Result<(), Report> {
    match kymo_symbols::read_file(file, LARGEST_DESCRIPTION) {
        Ok(_) => Ok(()),
        Err(error) => Err(Report::caused(file.display(), &error)),
    }
}

/// Whether an input is a pipe, which can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    path == Path::new("-") || (path.exists() && !path.is_file() && !path.is_dir())
}

/// The name of an input in messages.
pub fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
