//! Targets with RTEMS's event recording: streams from their record server, and names for their events.
//!
//! The server (`rtems_record_start_server`) sends its header and then what its rings hold, again and again. It reads
//! nothing, so there is nothing to say to it; when it is enough, the connection is closed.

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

/// What begins the address of a record server.
const PREFIX: &str = "rtems:";

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Format and magic number, in bytes.
const HEADER: u64 = 8;

/// Bytes that are read at once.
const AT_ONCE: usize = 1 << 16;

/// How often ctrl-C is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Whether a path is the address of a record server.
pub fn is_address(path: &Path) -> bool {
    path.to_str().is_some_and(|name| name.starts_with(PREFIX))
}

/// The record server that an input names: `rtems:HOST:PORT`.
///
/// # Errors
/// When it looks like such an address and is none.
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

/// What a record server sends, until it closes the connection or the user has seen enough: then it ends between two items.
pub struct Server {
    transport: TcpTransport,
    cancel: Interruptible,
    /// When it has been enough, also if nothing comes.
    until: Option<Instant>,
    items: WholeItems,
    buffer: Vec<u8>,
}

/// Bytes of a stream, of which an item is given on when it is whole.
#[derive(Debug, Default)]
struct WholeItems {
    /// What has come and was not given.
    waiting: Vec<u8>,
    /// Bytes of an item, once the first word has told.
    item: Option<usize>,
    /// How many bytes have come, and how many of them can be given.
    arrived: u64,
    whole: u64,
    given: u64,
}

impl WholeItems {
    /// Takes what has come. What no stream begins with is given as it is.
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

    /// Gives as much as there is room for.
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
    /// How many of so many bytes at the front of the stream are whole items.
    pub fn whole(&self, bytes: u64) -> u64 {
        match (self.items.item, bytes.checked_sub(HEADER)) {
            (Some(item), Some(items)) => bytes - items % item as u64,
            _ => 0,
        }
    }

    /// Connects to the server that an input names.
    ///
    /// # Errors
    /// When nobody answers there.
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

    /// Ends what is read at a moment.
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
                    // The target broke off: also what is not whole counts.
                    self.items.whole = self.items.arrived;
                    return Ok(self.items.give(room));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Opens what a record server sends, as it comes.
///
/// # Errors
/// When nobody answers, or what it sends is no recording.
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

/// The largest file of names that is read, in bytes: 16 MiB.
const LARGEST_NAMES: u64 = 16 << 20;

/// What stands at an address of code: `function at file:line`.
pub fn code_at(symbols: &Symbols, address: Addr) -> Option<String> {
    let function = symbols.function_at(address)?.name().to_owned();
    Some(match symbols.location(address) {
        Some(location) => format!("{function} at {location}"),
        None => function,
    })
}
