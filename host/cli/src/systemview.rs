//! Live targets of SystemView, for `kymo record` and `kymo show --follow`.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kymo_event::{Time, TraceInfo, Wanted};
use kymo_link::systemview::{PREFIX, Session, SystemViewAddress};
use kymo_link::{Cancel, LinkError};
use kymo_read::systemview;
use kymo_symbols::Symbols;
use kymo_systemview::Scan;
use kymo_systemview::scan::UNKNOWN;

use crate::args::{InputArgs, SymbolArgs};
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::{self, Events, Moment, Trace};
use crate::interrupt::Interruptible;
use crate::output::LiveFile;
use crate::render::count::counted;
use crate::target::patience;

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Interval between checks for ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Time for a target to send remaining data after the command to stop.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Parses the address of a SystemView target, `systemview:HOST:PORT`; a serial port gets `baud`.
///
/// # Errors
/// When it looks like one but is not valid.
pub fn address_in(input: &Path, baud: u32) -> Result<Option<SystemViewAddress>, Report> {
    let with_baud = |it: SystemViewAddress| SystemViewAddress {
        address: it.address.with_baud(baud),
        ..it
    };
    match input.to_str().filter(|name| name.starts_with(PREFIX)) {
        None => Ok(None),
        Some(name) => name.parse().map(with_baud).map(Some).map_err(|error| {
            Report::caused_by(&error).help(
                "targets of SystemView are systemview:HOST:PORT, systemview:listen:PORT for one that connects, or systemview: and a serial port",
            )
        }),
    }
}

fn connect(
    address: &SystemViewAddress,
    cancel: &Cancel,
    context: &Context,
) -> Result<Session, Report> {
    if address.listen {
        context.note(format_args!(
            "waiting for a connection to {}",
            address.address
        ));
    }
    Session::start(address, CONNECT * patience()?, cancel).map_err(|error: LinkError| {
        let help = match address.listen {
            true => "a server of RTT channels has to connect to this port, as cargo-embed does with `socket`",
            false => "the recorder of a target listens at port 19111, J-Link's RTT server at 19021, others where they are configured to",
        };
        Report::caused_by(&error).help(help)
    })
}

/// The header of a file that SystemView's application saves.
const HEADER: &[u8] = b";\n; Version     SEGGER SystemViewer compatible\n; Author      kymo\n;\n";

/// Limits of a recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// Stop after this time.
    pub duration: Option<Duration>,
    /// Stop after this number of bytes.
    pub bytes: Option<u64>,
}

/// Records into a file until ctrl-C, a limit, or the target's end.
///
/// # Errors
/// When the target does not answer or the file can't be written.
pub fn record(
    address: &SystemViewAddress,
    output: &Path,
    limits: Limits,
    context: &Context,
) -> Result<ExitCode, Report> {
    let cancel = Interruptible::new()?;
    let mut session = connect(address, cancel.flag(), context)?;
    let mut file = LiveFile::new(output, HEADER)?;
    let begun = Instant::now();
    let mut stopped: Option<Instant> = None;
    let mut bytes = 0;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let is_over = cancel.flag().is_cancelled()
            || limits.duration.is_some_and(|most| begun.elapsed() >= most)
            || limits.bytes.is_some_and(|most| bytes >= most);
        if is_over && stopped.is_none() {
            session.stop(LAST_WORDS);
            stopped = Some(Instant::now());
        }
        if stopped.is_some_and(|stopped| stopped.elapsed() >= LAST_WORDS) {
            break;
        }
        // The limit also applies to the data that remains after the command to stop.
        let most = limits.bytes.map_or(u64::MAX, |most| most - bytes);
        let room = usize::try_from(most).unwrap_or(usize::MAX);
        if room == 0 {
            break;
        }
        let room = room.min(buffer.len());
        match session.read(buffer.get_mut(..room).unwrap_or_default(), LOOK_EVERY) {
            Ok(read) => {
                bytes += read as u64;
                if let Err(error) = file.write_all(buffer.get(..read).unwrap_or_default()) {
                    // Without this the target would continue to record.
                    session.stop(LAST_WORDS);
                    // An output that can't be read back or truncated, such as a pipe, ends within a packet.
                    let _ = whole_packets(output).and_then(|whole| file.cut(whole));
                    return Err(file.unwritten(&error, bytes));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => {
                return Err(Report::caused(address, &error).help(format_args!(
                    "what arrived until then is in {}",
                    output.display()
                )));
            }
        }
    }
    if bytes == 0 {
        return Err(Report::new(format_args!("{address}: nothing came"))
            .help("is it the RTT channel of SystemView, and does the target run?"));
    }
    if !session.has_beginning() {
        context.warn(format_args!(
            "{address}: no beginning of a recording came: it may be damaged up to its first synchronization, or no stream of SystemView"
        ));
    }
    context.note(format_args!(
        "{} in {} s are in {}",
        counted(bytes, "byte"),
        begun.elapsed().as_secs(),
        output.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// Number of bytes of whole packets in a recording, without the file's header.
fn whole_packets(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(HEADER.len() as u64))?;
    let mut scan = Scan::default();
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut buffer)?;
        bytes.extend_from_slice(buffer.get(..read).unwrap_or_default());
        let from = scan.offset();
        let mut used = 0;
        while let Some(rest) = bytes.get(used..)
            && scan.next(rest, false, UNKNOWN).is_some()
        {
            used = usize::try_from(scan.offset() - from).unwrap_or(usize::MAX);
        }
        bytes.drain(..used.min(bytes.len()));
        if read == 0 {
            return Ok(scan.offset());
        }
    }
}

/// Reader of a target's stream, which ends at ctrl-C.
struct Reader {
    session: Session,
    cancel: Cancel,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.cancel.is_cancelled() {
                self.session.stop(LAST_WORDS);
                return Ok(0);
            }
            match self.session.read(buffer, LOOK_EVERY) {
                Ok(0) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
        }
    }
}

/// Trace of a target that is shown while it records.
pub struct Follow {
    trace: Trace,
    _interruptible: Interruptible,
}

impl Follow {
    /// Follows a target.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn target(
        address: &SystemViewAddress,
        input: &InputArgs,
        symbols: &SymbolArgs,
        wanted: Wanted,
        context: &Context,
    ) -> Result<Self, Report> {
        let interruptible = Interruptible::new()?;
        let reader = Reader {
            session: connect(address, interruptible.flag(), context)?,
            cancel: interruptible.flag().clone(),
        };
        let mut options = context.open_options(wanted);
        options.descriptions = input::descriptions(&input.ctf.description)?;
        options.time_zero = input.ctf.time_zero;
        let name = address.to_string();
        let source = systemview::open_reader(&name, Box::new(reader), &options);
        Ok(Self {
            trace: Trace::new(name, source, symbols, context)?,
            _interruptible: interruptible,
        })
    }

    /// Exit code after the trace was read.
    ///
    /// # Errors
    /// If the trace was damaged.
    pub fn verdict(&self) -> Result<ExitCode, Report> {
        self.trace.verdict()
    }
}

impl Events for Follow {
    fn info(&self) -> &TraceInfo {
        self.trace.info()
    }

    fn symbols(&self) -> Arc<Symbols> {
        self.trace.symbols()
    }

    fn start(&mut self) -> Result<Option<Time>, Report> {
        self.trace.start()
    }

    fn walk(
        &mut self,
        each: &mut dyn FnMut(Moment<'_>) -> Result<ControlFlow<()>, Report>,
    ) -> Result<(), Report> {
        self.trace.walk(&mut |moment| {
            if each(moment)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            each(Moment::Pause)
        })
    }
}
