//! The trace that a subcommand works on, with its symbols.
//!
//! All subcommands that read a trace do the same before and after their own work: open the input, find
//! names for its functions and check that they are of the same build, go through the events, and
//! say in the end what could not be read. That is here.

mod images;
mod placing;
mod refused;
mod remarks;
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

/// The format of Kymo's own recordings, whose exits need not name their functions. Those of others,
/// whatever program they are of, tell all that they tell themselves.
pub const FORMAT: &str = "kymo";

/// Events that are to be shown, wherever they come from.
pub trait Events {
    /// What is known of the trace so far.
    fn info(&self) -> &TraceInfo;

    /// The names of its functions.
    fn symbols(&self) -> Arc<Symbols>;

    /// Takes note of what options name, for a verdict on a trace that has an end.
    fn expect(&mut self, _unseen: Unseen) {}

    /// When the first event is that has a time; `None` if there is none.
    ///
    /// # Errors
    /// When the trace can't be read so far.
    fn start(&mut self) -> Result<Option<Time>, Report>;

    /// Goes through all events, or until no more are wanted.
    ///
    /// # Errors
    /// The first of `each`, or that of reading; what could be read was given to `each` before.
    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report>;
}

/// What going through events comes to.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// The next events, and what is known of the trace by now.
    Batch(&'a TraceInfo, &'a Batch),
    /// There will be more, but not now: what was written should be seen.
    Pause,
}

/// Whether more events are wanted.
pub const fn more(wanted: bool) -> ControlFlow<()> {
    if wanted {
        ControlFlow::Continue(())
    } else {
        ControlFlow::Break(())
    }
}

/// When the first event of a batch is that has a time.
pub fn first_time(info: &TraceInfo, batch: &Batch) -> Option<Time> {
    let mut rows = batch.rows().iter();
    let first = rows.find(|row| has_time(info, row.stream));
    first.map(|row| row.time)
}

/// The events that programs declare themselves.
pub fn declared(symbols: &Symbols) -> Declarations {
    let mut declarations = Declarations::default();
    for (section, big_endian) in symbols.declared_events() {
        // (What is not understood is shown as it was recorded.)
        declarations.add(section, big_endian);
    }
    declarations
}

/// Gives named markers their names, and records of the program's own their names and fields.
pub fn label(source: Box<dyn Source>, symbols: &Arc<Symbols>) -> Box<dyn Source> {
    let strings = Arc::clone(symbols);
    let code = Arc::clone(symbols);
    let source =
        kymo_read::resolve_code(source, move |address| crate::rtems::code_at(&code, address));
    let labelled = kymo_read::label_markers(source, move |address| strings.string_at(address));
    kymo_read::describe_events(Box::new(labelled), declared(symbols))
}

/// A trace, and names for what is in it.
pub struct Trace {
    /// What messages call it.
    name: String,
    source: Box<dyn Source>,
    /// Whether it comes as it happens.
    is_live: bool,
    /// What was read of it beforehand.
    read: Vec<Batch>,
    symbols: Arc<Symbols>,
    /// Why it is not all that a live target had.
    incomplete: Option<Report>,
    /// What a live target sent that won't send it again.
    sent: Option<Rescue>,
    /// So many of the reader's remarks have been passed on.
    remarked: usize,
    /// What options name and events have not.
    unseen: Unseen,
    is_at_end: bool,
}

impl Trace {
    /// Opens a saved trace, or fetches what a live target has recorded, and its symbols. `wanted` says how
    /// much of each event is decoded.
    ///
    /// # Errors
    /// When the input is no trace, the target does not answer, or a file of symbols can't be read.
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

    /// Fetches what a live target has recorded.
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
        let symbols = Arc::new(symbols.load(&trace_info(&live.identity), context)?);
        let captured = recording::fetch(&mut live, context)?;
        Self::of_dump(live.name(), captured, symbols, wanted, context)
    }

    /// The trace in what a target sent; if that is not all that it had, the
    /// [`verdict`](Self::verdict) is why.
    ///
    /// # Errors
    /// When there is no trace in it.
    pub fn of_dump(
        name: String,
        captured: Captured,
        symbols: Arc<Symbols>,
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
        let trace = Self {
            incomplete,
            ..Self::with_symbols(name, source, symbols)
        };
        trace.remark_read(0, context);
        Ok(trace)
    }

    /// The trace in the dumps of a target that runs Zephyr's own instrumentation; if those are not all
    /// that it had, the [`verdict`](Self::verdict) is why.
    ///
    /// # Errors
    /// When there is no trace in them.
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

    /// A trace that comes from elsewhere; `name` is what messages call it.
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
        trace.remark_read(0, context);
        Ok(trace)
    }

    /// A trace whose symbols are known already: those of a live target are needed before there is
    /// a trace.
    fn with_symbols(name: String, source: Box<dyn Source>, symbols: Arc<Symbols>) -> Self {
        unit::set(source.info().unit);
        Self {
            name,
            remarked: source.info().remarks.len(),
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

    /// What is known of the trace so far.
    pub fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    /// The names of its functions.
    pub fn symbols(&self) -> Arc<Symbols> {
        Arc::clone(&self.symbols)
    }

    /// The events themselves, for what wants to read them on its own.
    pub fn source(&mut self) -> &mut dyn Source {
        &mut self.source
    }

    /// The failure of reading on.
    pub fn unreadable(&self, error: &ReadError) -> Report {
        Report::caused(&self.name, error).help("what was read before is shown")
    }

    /// Keeps a dump that the target will not send again in a file, and names that. For subcommands that
    /// only show it. An empty dump is nothing to keep.
    ///
    /// # Errors
    /// When it can't be kept.
    pub fn keep_sent(&mut self, context: &Context) -> Result<(), Report> {
        match &mut self.sent {
            Some(sent) => sent.keep(context),
            None => Ok(()),
        }
    }

    /// When what it is for has failed: what a target won't send again is kept.
    pub fn kept(&self, report: Report) -> Report {
        match &self.sent {
            Some(sent) => sent.keep_after(report),
            None => report,
        }
    }

    /// Whether the input was whole, once it is read to its end, and had all that options name.
    ///
    /// # Errors
    /// When it had not, or when parts of it were damaged or did not arrive: what is not was shown, but a script has to
    /// know.
    pub fn verdict(&self) -> Result<ExitCode, Report> {
        // Why pieces are missing says more than that they are.
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

/// The failure of a subcommand behind whose result an input turned out to be damaged: first in this stream at this offset, and
/// in so many more places.
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

/// Opens a saved trace, or with the program's ELF file a dump of the memory that has one in it.
///
/// # Errors
/// When it is none.
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
        console_dump: input.ctf.dump,
        as_it_comes: input.as_it_comes,
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
                // Options do not describe what is beside it. A snapshot or a raw buffer was checked by its reader.
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
        // A target that records with SystemView alone has none of Kymo's buffers.
        Err(report) => {
            let bytes = std::fs::read(path).unwrap_or_default();
            let address = memory.memory_address;
            let source = kymo_read::systemview::open_memory(path, bytes, address, &options);
            source.map_err(refuse)?.ok_or_else(|| report.into())
        }
    }
}

/// Opens a dump of a target's memory, and says what of the recording it lacks.
///
/// # Errors
/// When there is none in it, or no ELF file that tells where.
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

/// Files that describe events, which can be read.
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

/// Checks that a file which describes a trace can be read, and ends.
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

/// What messages call an input.
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
