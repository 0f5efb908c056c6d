//! The trace that a verb works on, with its symbols.
//!
//! All verbs that read a trace do the same before and after their own work: open the input, find
//! names for its functions and check that they are of the same build, go through the events, and
//! say in the end what could not be read. That is here.

mod symbols;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use kymo_event::{Event, TraceInfo};
use kymo_link::Dump;
use kymo_read::native::{self, MemoryDump};
use kymo_read::{OpenError, OpenOptions, ReadError, Source};
use kymo_symbols::{Program, Symbols};
use kymo_zephyr::Kind;

use crate::args::{InputArgs, MemoryArgs, SymbolArgs};
use crate::commands::profile::is_kept_table;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::mapping;
use crate::recording;
use crate::sent::{Sent, is_empty_dump};
use crate::target::{Either, Fetched, LiveZephyr, TargetArgs, address_in, incomplete, trace_info};

/// The format of Kymo's own recordings, whose exits need not name their functions. Those of others,
/// whatever program they are of, tell all that they tell themselves.
const FORMAT: &str = "kymo";

/// The section of a program that says how to read what it left in memory.
const NOTE: &str = ".note.kymo";

/// Events that are to be shown, wherever they come from.
pub trait Events {
    /// What is known of the trace so far.
    fn info(&self) -> &TraceInfo;

    /// The names of its functions.
    fn symbols(&self) -> Arc<Symbols>;

    /// Goes through all events.
    ///
    /// # Errors
    /// The first of `each`, or that of reading; what could be read was given to `each` before.
    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<(), Report>,
    ) -> Result<(), Report>;
}

/// What going through events comes to.
#[derive(Clone, Copy, Debug)]
pub enum Moment<'a> {
    /// An event.
    Event(&'a Event),
    /// There will be more, but not now: what was written should be seen.
    Pause,
}

/// A trace, and names for what is in it.
pub struct Trace {
    /// What messages call it.
    name: String,
    source: Box<dyn Source>,
    symbols: Arc<Symbols>,
    /// Why it is not all that a live target had.
    incomplete: Option<Report>,
    /// What a live target sent that won't send it again.
    sent: Option<Sent>,
}

impl Trace {
    /// Opens a saved trace, or fetches what a live target has recorded, and its symbols. With `fields`, events carry their fields as recorded.
    /// Decoding them takes half of the time; without, only events of other tracers have them, of
    /// which nothing else is known.
    ///
    /// # Errors
    /// When the input is no trace, the target does not answer, or a file of symbols can't be read.
    pub fn open(
        input: &InputArgs,
        symbols: &SymbolArgs,
        fields: bool,
        context: &Context,
    ) -> Result<Self, Report> {
        let path = &input.input;
        if let Some(address) = address_in(path)? {
            let target = TargetArgs::at(address, input.baud);
            return Self::fetch(&target, symbols, fields, context);
        }
        let mut source = open(input, symbols, fields, context)?;
        // What came through a pipe can't be opened again.
        let again = path.is_file() || path.is_dir();
        if !fields && again && source.info().format != "kymo" {
            source = open(input, symbols, true, context)?;
        }
        Self::new(name_of(&input.input), source, symbols, context)
    }

    /// Fetches what a live target has recorded.
    fn fetch(
        target: &TargetArgs,
        symbols: &SymbolArgs,
        fields: bool,
        context: &Context,
    ) -> Result<Self, Report> {
        let mut live = match target.recognise(context)? {
            Either::Kymo(live) => live,
            Either::Zephyr(mut live) => {
                let symbols = Arc::new(symbols.load(&LiveZephyr::info(), context)?);
                let fetched = live.fetch(Kind::Trace, context)?;
                return Self::of_zephyr(live.name(), fetched, symbols, fields);
            }
        };
        recording::check(&live)?;
        let symbols = Arc::new(symbols.load(&trace_info(&live.identity), context)?);
        let dump = recording::fetch(&mut live, context)?;
        Self::of_dump(live.name(), dump, symbols, fields)
    }

    /// The trace in what a target sent; if that is not all that it had, the
    /// [`verdict`](Self::verdict) is why.
    ///
    /// # Errors
    /// When there is no trace in it.
    pub fn of_dump(
        name: String,
        dump: Dump,
        symbols: Arc<Symbols>,
        fields: bool,
    ) -> Result<Self, Report> {
        let incomplete = incomplete(&dump);
        let (identity, options) = (
            dump.identity,
            OpenOptions {
                fields,
                ..OpenOptions::default()
            },
        );
        let source = native::open_dump(&identity, dump.bytes, &dump.missing, &name, &options);
        let source =
            source.map_err(|error| incomplete.clone().unwrap_or_else(|| refused(&error)))?;
        Ok(Self {
            incomplete,
            ..Self::with_symbols(name, source, symbols)
        })
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
        fields: bool,
    ) -> Result<Self, Report> {
        let bytes = fetched.as_sent();
        let incomplete = fetched.incomplete;
        let sent = Sent::new(bytes.clone());
        let options = OpenOptions {
            fields,
            ..OpenOptions::default()
        };
        let source = kymo_read::zephyr::open_bytes(&name, bytes, &options);
        let source = source
            .map_err(|error| sent.keep(incomplete.clone().unwrap_or_else(|| refused(&error))))?;
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
        let symbols = Arc::new(symbols.load(source.info(), context)?);
        Ok(Self::with_symbols(name, source, symbols))
    }

    /// A trace whose symbols are known already: those of a live target are needed before there is
    /// a trace.
    fn with_symbols(name: String, source: Box<dyn Source>, symbols: Arc<Symbols>) -> Self {
        let strings = Arc::clone(&symbols);
        let source = kymo_read::label_markers(source, move |address| strings.string_at(address));
        Self {
            name,
            source: Box::new(source),
            symbols,
            incomplete: None,
            sent: None,
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

    /// Goes through all events.
    ///
    /// # Errors
    /// The first of `each`, or that of reading; what could be read was given to `each` before.
    pub fn for_each(
        &mut self,
        mut each: impl FnMut(&Event) -> Result<(), Report>,
    ) -> Result<(), Report> {
        while let Some(event) = self
            .source
            .next()
            .map_err(|error| self.unreadable(&error))?
        {
            each(&event)?;
            self.source.take_back(event);
        }
        Ok(())
    }

    /// The failure of reading on.
    pub fn unreadable(&self, error: &ReadError) -> Report {
        Report::caused(&self.name, error).help("what was read before is shown")
    }

    /// When what it is for has failed: what a target won't send again is kept.
    pub fn kept(&self, report: Report) -> Report {
        match &self.sent {
            Some(sent) => sent.keep(report),
            None => report,
        }
    }

    /// Says so, once it is read, if a saved dump holds nothing. Of a live target that has been said.
    pub fn remark_empty(&self, context: &Context) {
        if self.sent.is_none() && is_empty_dump(self.info()) {
            context.note(
                "the dump is empty: the target had been dumped before, or its trigger had not been \
                 entered since it started",
            );
        }
    }

    /// Whether the input was whole, once it is read to its end.
    ///
    /// # Errors
    /// When parts of it were damaged or did not arrive: what is not was shown, but a script has to
    /// know.
    pub fn verdict(&self) -> Result<ExitCode, Report> {
        // Why pieces are missing says more than that they are.
        if let Some(report) = &self.incomplete {
            return Err(report.clone());
        }
        let damage = &self.info().damage;
        let Some(first) = damage.first() else {
            return Ok(ExitCode::SUCCESS);
        };
        let more = match damage.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Err(Report::new(format_args!(
            "{}: damaged in {} at offset {}: {}{more}",
            self.name, first.stream, first.offset, first.message
        ))
        .help("all that could be read was given; `kymo info` lists every damaged place"))
    }
}

impl Events for Trace {
    fn info(&self) -> &TraceInfo {
        self.info()
    }

    fn symbols(&self) -> Arc<Symbols> {
        self.symbols()
    }

    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<(), Report>,
    ) -> Result<(), Report> {
        self.for_each(|event| each(Moment::Event(event)))
    }
}

/// Why an input is no trace.
pub struct Refused {
    /// For the user.
    pub report: Report,
    /// Where in the input the fault lies, in bytes from its start; 0 where it is the whole input.
    pub offset: u64,
}

/// A fault of the whole input.
impl From<Report> for Refused {
    fn from(report: Report) -> Self {
        Self { report, offset: 0 }
    }
}

impl From<Refused> for Report {
    fn from(refused: Refused) -> Self {
        refused.report
    }
}

/// Opens a saved trace, or with the program's ELF file a dump of the memory that has one in it.
///
/// # Errors
/// When it is none.
pub fn open(
    input: &InputArgs,
    symbols: &SymbolArgs,
    fields: bool,
    context: &Context,
) -> Result<Box<dyn Source>, Refused> {
    let (path, memory) = (&input.input, &input.memory);
    if is_kept_table(path) {
        let name = path.display();
        let report = Report::new(format_args!("{name} is a profile table, not a trace"));
        return Err(report
            .help(format_args!("`kymo profile {name}` shows it"))
            .into());
    }
    let options = OpenOptions {
        fields,
        mapping: input
            .ctf
            .mapping
            .as_deref()
            .map(mapping::read)
            .transpose()?,
        metadata: input.ctf.metadata.clone(),
        program: symbols.elf.first().cloned(),
    };
    let refuse = |error: OpenError| Refused {
        report: refused(&error),
        offset: error.offset(),
    };
    if memory.memory_address.is_none() {
        match kymo_read::open(path, &options) {
            Err(OpenError::Unknown { .. }) if !symbols.elf.is_empty() && path.is_file() => {}
            Ok(source) if input.ctf.mapping.is_some() && source.info().format == FORMAT => {
                let report = Report::new("--mapping is for traces of other tracers");
                return Err(report.help("what Kymo's events mean is known").into());
            }
            result => return result.map_err(refuse),
        }
    }
    let dump = open_memory(path, memory, symbols, context)?;
    dump.into_source(&options).map_err(refuse)
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
    let Some((first, others)) = symbols.elf.split_first() else {
        return Err(
            Report::new("a dump of a target's memory can't be read alone")
                .help("give the program's ELF file with --elf"),
        );
    };
    let program = |path| Program::open(path).map_err(|error| Report::caused_by(&error));
    // A boot loader's may be among them.
    let mut found = program(first)?;
    for other in others {
        if found.section(NOTE).is_none() {
            found = program(other)?;
        }
    }
    let dump = MemoryDump::open(path, &found, memory.memory_address, &memory.memory);
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

/// Whether the process may open no further file (EMFILE).
fn is_out_of_files(error: &io::Error) -> bool {
    cfg!(unix) && error.raw_os_error() == Some(24)
}

/// Why an input is refused, with advice.
pub fn refused(error: &OpenError) -> Report {
    let report = Report::caused_by(error);
    match error {
        OpenError::Version { .. } => report.help(
            "another version of Kymo made it, and can read it; to record anew for this one, link the \
             program with its library (`cargo xtask lib`)",
        ),
        OpenError::Io { path, .. } if !path.exists() => report.help(
            "give a trace directory or a raw file; `kymo trace -o DIR` makes one from a target",
        ),
        OpenError::Io { source, .. } if is_out_of_files(source) => {
            report.help("`ulimit -n` tells how many files may be open at once; `ulimit -n 1024` allows more")
        }
        OpenError::Io { .. } => report.help("may you read it, and is it a file or a directory?"),
        OpenError::Mapping(_) => {
            report.help("`kymo show --events` lists the events of the trace with their fields")
        }
        OpenError::Empty { .. } => report.help("was the recording stopped before it was written?"),
        OpenError::Identity { .. } => report.help(
            "the first line of a raw file is the target's answer to `identify`; transfer the file \
             again, in binary mode",
        ),
        OpenError::Memory { .. } => report,
        _ => report.help(
            "kymo reads trace directories (CTF), the raw files of its targets, with --elf dumps of their \
             memory, and dumps of Zephyr's instrumentation; symbols are given with --elf",
        ),
    }
}

/// Whether an input is a pipe, which can be read only once.
pub fn is_pipe(path: &Path) -> bool {
    path == Path::new("-") || (path.exists() && !path.is_file() && !path.is_dir())
}

/// Makes sure that an output is not the input, which would be gone before it is read.
///
/// # Errors
/// When it is, under whatever name.
pub fn check_apart(input: &Path, output: &Path) -> Result<(), Report> {
    if input == Path::new("-") || !same_file(input, output) {
        return Ok(());
    }
    let output = output.display();
    Err(Report::new(format_args!(
        "{output} is the input itself: it is left as it is"
    ))
    .help("give --output another name"))
}

/// Whether two paths lead to one file; that can have several names, of which links are the least.
#[cfg(unix)]
fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let file = |path| {
        let found = std::fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    file(one).is_some_and(|one| file(other) == Some(one))
}

/// Whether two paths lead to one file.
#[cfg(not(unix))]
fn same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().ok();
    place(one).is_some_and(|one| place(other) == Some(one))
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
