//! Targets with RTEMS event recording: streams from their record server, and names for their events.
//!
//! The server (`rtems_record_start_server`) sends its header and then repeatedly the contents of its rings. It reads
//! nothing, so nothing is sent to it; to stop, the connection is closed.

use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kymo_event::Addr;
use kymo_link::{Address, TcpTransport, Transport};
use kymo_read::rtems_record::{self, EventNames};
use kymo_read::{OpenError, OpenOptions, Source};
use kymo_rtems_record::Format;
use kymo_symbols::Symbols;

use crate::diagnostic::Report;
use crate::input::refused;
use crate::interrupt::Interruptible;

/// The prefix of a record server's address.
const PREFIX: &str = "rtems:";

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Size of format and magic number, in bytes.
const HEADER: u64 = 8;

/// Size of one read, in bytes.
const AT_ONCE: usize = 1 << 16;

/// Interval between checks for ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether a path is the address of a record server.
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// Parses the address of a record server, `rtems:HOST:PORT`.
///
/// # Errors
/// When it looks like such an address but is not valid.
fn address_of(path: &Path) -> Result<(String, u16), Report> {
    let name = path.to_str().unwrap_or("");
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    match format!("tcp:{rest}").parse() {
        Ok(Address::Tcp { host, port }) => Ok((host, port)),
        Ok(_) => Err(Report::new(format_args!("{name} is no record server"))),
        Err(error) => Err(
            Report::new(format_args!("`{name}`: {}", error.problem)).help(
                "a record server of RTEMS's is rtems:HOST:PORT; a file of such a name is ./NAME",
            ),
        ),
    }
}

/// The data of a record server, until it closes the connection or the user stops; then it ends between two items.
pub struct Server {
    transport: TcpTransport,
    cancel: Interruptible,
    /// The deadline, even if no data arrives.
    until: Option<Instant>,
    items: WholeItems,
    buffer: Vec<u8>,
}

/// Bytes of a stream, in which an item is passed on only when it is complete.
#[derive(Debug, Default)]
struct WholeItems {
    /// Bytes that have arrived and were not passed on.
    waiting: Vec<u8>,
    /// Size of an item in bytes, once the first word has shown it.
    item: Option<usize>,
    /// Number of bytes that have arrived; `whole` is the number that can be passed on.
    arrived: u64,
    whole: u64,
    given: u64,
}

impl WholeItems {
    /// Adds bytes that have arrived. Bytes that are not the begin of a stream are passed on unchanged.
    fn add(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        self.arrived += bytes.len() as u64;
        if self.item.is_none()
            && let Some(first) = self.waiting.first_chunk::<4>()
        {
            self.item = Some(Format::of_word(*first).map_or(1, Format::item_bytes));
        }
        if let (Some(item), Some(items)) = (self.item, self.arrived.checked_sub(HEADER)) {
            self.whole = self.arrived - items % item as u64;
        }
    }

    /// Passes on as many bytes as fit.
    fn give(&mut self, room: &mut [u8]) -> usize {
        let whole = usize::try_from(self.whole.saturating_sub(self.given)).unwrap_or(usize::MAX);
        let count = whole.min(room.len()).min(self.waiting.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..count), self.waiting.get(..count)) {
            room.copy_from_slice(bytes);
        }
        self.waiting.drain(..count);
        self.given += count as u64;
        count
    }
}

impl Server {
    /// The size of the complete items within the first `bytes` bytes of the stream.
    pub fn whole(&self, bytes: u64) -> u64 {
        match (self.items.item, bytes.checked_sub(HEADER)) {
            (Some(item), Some(items)) => bytes - items % item as u64,
            _ => 0,
        }
    }

    /// Connects to the server that an input names.
    ///
    /// # Errors
    /// When no server answers.
    pub fn connect(path: &Path) -> Result<Self, Report> {
        let (host, port) = address_of(path)?;
        let transport = TcpTransport::connect(&host, port, CONNECT);
        let transport = transport.map_err(|error| {
            Report::caused_by(&error)
                .help("is the record server of the target started (rtems_record_start_server)?")
        })?;
        Ok(Self {
            transport,
            cancel: Interruptible::new()?,
            until: None,
            items: WholeItems::default(),
            buffer: vec![0; AT_ONCE],
        })
    }

    /// Sets a deadline for reading.
    pub const fn end_at(&mut self, until: Option<Instant>) {
        self.until = until;
    }
}

impl Read for Server {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let given = self.items.give(room);
            if given > 0 {
                return Ok(given);
            }
            let is_late = self.until.is_some_and(|until| Instant::now() >= until);
            if is_late || self.cancel.flag().is_cancelled() {
                return Ok(0);
            }
            match self.transport.read(&mut self.buffer, LOOK_EVERY) {
                Ok(count) => self.items.add(self.buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    // The target closed the connection, so an incomplete item is passed on, too.
                    self.items.whole = self.items.arrived;
                    return Ok(self.items.give(room));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens the live data of a record server.
///
/// # Errors
/// When no server answers, or its data is no recording.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>, Report> {
    let server = Box::new(Server::connect(path)?);
    rtems_record::open_stream(path, server, options).map_err(|error| match error {
        OpenError::Empty { .. } => Report::new(format_args!(
            "{}: the connection was closed before anything came",
            path.display()
        ))
        .help("a record server has one client at a time"),
        error => refused(&error),
    })
}

/// The options that tell how to read a recording.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct RtemsArgs {
    /// Names for the events of a recording of RTEMS's: an INI file with a section [EventNames] of
    /// lines NUMBER = NAME.
    #[arg(long, value_name = "FILE")]
    pub event_names: Option<PathBuf>,
}

impl RtemsArgs {
    /// The names, if a file was given.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn names(&self) -> Result<Option<Arc<EventNames>>, Report> {
        let Some(path) = &self.event_names else {
            return Ok(None);
        };
        let name = path.display();
        let text = kymo_symbols::read_file(path, LARGEST_NAMES)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let text = text.map_err(|error| Report::new(format_args!("{name}: {error}")))?;
        let names = EventNames::parse(&text).map_err(|error| {
            Report::new(format_args!("{name}: {error}"))
                .help("under [EventNames] each line is NUMBER = NAME, as in `512 = FrameBegin`")
        })?;
        Ok(Some(Arc::new(names)))
    }
}

/// Maximum size of a file of names, in bytes: 16 MiB.
const LARGEST_NAMES: u64 = 16 << 20;

/// The source location of a code address: `function at file:line`.
pub fn code_at(symbols: &Symbols, address: Addr) -> Option<String> {
    let function = symbols.function_at(address)?.name().to_owned();
    Some(match symbols.location(address) {
        Some(location) => format!("{function} at {location}"),
        None => function,
    })
}
