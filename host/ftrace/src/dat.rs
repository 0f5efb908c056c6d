//! trace.dat files, versions 6 and 7 (`trace-cmd.dat.v6(5)`, `trace-cmd.dat.v7(5)`).
//!
//! [`Trace::parse`] reads everything but event data: formats, symbols, names, options, and the locations of each CPU's
//! pages. [`Records`](crate::Records) reads the records.

mod options;
mod v6;
mod v7;

pub(crate) use options::id;
pub use options::{Guest, Options};

use crate::clock::Timing;
use crate::cursor::CpuData;
use crate::decompress::Compression;
use crate::format::{EventFormat, Formats, Scope};
use crate::order::Reader;
use crate::page::PageLayout;
use crate::{Comms, Error, Order, PrintkFormats, Symbols};

/// Magic number at the start of the files.
pub const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Metadata of a trace.
#[derive(Debug)]
pub struct Trace {
    /// Version of the file format: 6 or 7; 0 if the trace is not from a trace.dat.
    pub version: u8,
    /// The byte order of the traced machine.
    pub order: Order,
    /// Size of the kernel's `long` in bytes.
    pub long_size: usize,
    /// Compression of the file's parts.
    pub compression: Compression,
    /// Layout of the ring-buffer pages.
    pub layout: PageLayout,
    /// Event formats.
    pub formats: Formats,
    /// Kernel symbols.
    pub symbols: Symbols,
    /// `trace_printk` formats.
    pub printk: PrintkFormats,
    /// Task names.
    pub comms: Comms,
    /// Remaining options of the file.
    pub options: Options,
    /// Conversion of clock ticks to nanoseconds.
    pub timing: Timing,
    /// Buffers: the main one, whose name is empty, and those of instances.
    pub buffers: Vec<Buffer>,
    /// Offset and size of text that replaces event data (`trace-cmd extract` of a latency tracer).
    pub text: Option<(u64, u64)>,
    /// Errors in parts that could not be read. The other parts are read regardless.
    pub damage: Vec<Error>,
}

/// Ring buffer of the kernel: the main one or that of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buffer {
    /// The name of the instance; empty for the main buffer.
    pub name: String,
    /// Name of the trace clock, if the file has it: `local`, `mono`, ...
    pub clock: String,
    /// Page size in bytes.
    pub page_size: usize,
    /// Location of each CPU's pages.
    pub cpus: Vec<CpuData>,
}

/// Largest number of CPUs a file may have. (Linux supports at most 8192.)
pub(crate) const MOST_CPUS: u32 = 1 << 16;

/// Largest size of texts such as `saved_cmdlines`, in bytes.
pub(crate) const LARGEST_TEXT: u64 = 1 << 30;

impl Trace {
    /// Returns the name of the trace clock, if the file has it: `local`, `mono`, ...
    pub fn clock(&self) -> Option<&str> {
        let buffers = self.buffers.iter().map(|buffer| buffer.clock.as_str());
        let mut named = buffers.filter(|clock| !clock.is_empty());
        self.options.clock().or_else(|| named.next())
    }

    /// Returns the kernel clock that all timestamps show, so that other recordings of the same kernel can be aligned:
    /// `sched_clock` for the trace clocks `local`, `global` and `perf`, or `mono` and others under their own names.
    /// `None` if the times were shifted, or if the file does not name the clock.
    pub fn kernel_clock(&self) -> Option<&str> {
        let Options {
            offset_ns,
            dated,
            shifts,
            ..
        } = &self.options;
        let clock = self.clock()?;
        let mut named = self.buffers.iter().map(|buffer| buffer.clock.as_str());
        let is_one = named.all(|name| name.is_empty() || name == clock);
        let is_moved = *offset_ns != 0 || *dated || !shifts.is_empty();
        match clock {
            _ if !is_one || is_moved || !self.has_nanoseconds() => None,
            "local" | "global" | "perf" => Some("sched_clock"),
            "mono" | "mono_raw" | "boot" | "tai" => Some(clock),
            _ => None,
        }
    }

    /// Returns the id of the session whose clock all timestamps use, and whether that session is the host's. It is the
    /// file's own session, or the host's if the file has a guest's shifts. `None` if the times were shifted in another
    /// way, or if the file has no session id.
    pub fn session(&self) -> Option<(u64, bool)> {
        let options = &self.options;
        if options.offset_ns != 0 || options.dated || !self.has_nanoseconds() {
            return None;
        }
        let is_moved = !options.shifts.is_empty();
        let session = match is_moved {
            true => options.peer,
            false => options.trace_id,
        };
        session
            .filter(|number| *number != 0)
            .map(|number| (number, is_moved))
    }

    /// Returns whether times are nanoseconds. Some clocks count other units, whose length the file does not state.
    pub fn has_nanoseconds(&self) -> bool {
        match self.clock() {
            Some("x86-tsc") => self.options.tsc.is_some_and(|(mult, _)| mult != 0),
            Some("counter" | "uptime" | "ppc-tb" | "s390-tod") => false,
            _ => true,
        }
    }

    /// Creates an empty trace of a machine.
    pub fn new(order: Order, long_size: usize) -> Self {
        Self {
            version: 0,
            order,
            long_size,
            compression: Compression::None,
            layout: PageLayout::of_long(order, long_size),
            formats: Formats::default(),
            symbols: Symbols::default(),
            printk: PrintkFormats::default(),
            comms: Comms::default(),
            options: Options::default(),
            timing: Timing::default(),
            buffers: Vec::new(),
            text: None,
            damage: Vec::new(),
        }
    }

    /// Returns whether a file begins with the magic number of a trace.dat.
    pub fn is_dat(head: &[u8]) -> bool {
        head.starts_with(MAGIC)
    }

    /// Reads the metadata of a trace.dat.
    ///
    /// # Errors
    /// [`Error`] if the bytes are not a trace.dat of a supported version, or end before the event data. Other
    /// unreadable parts are listed in [`Trace::damage`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        if !Self::is_dat(bytes) {
            let start = bytes.get(..10).unwrap_or(bytes);
            return Err(Error::new(
                0,
                "the magic number of a trace.dat",
                format!("{start:02x?}"),
            ));
        }
        let mut reader = Reader::at(bytes, MAGIC.len() as u64, Order::Little)?;
        let offset = reader.offset();
        let version = reader.text("a version")?;
        let version = match &*version {
            "6" => 6,
            "7" => 7,
            other => {
                let found = format!("version {other:?}");
                return Err(Error::new(offset, "a trace.dat of version 6 or 7", found));
            }
        };
        let offset = reader.offset();
        let order = match reader.u8("the byte order")? {
            0 => Order::Little,
            1 => Order::Big,
            other => {
                let expected = "the byte order: 0 (little endian) or 1 (big endian)";
                return Err(Error::new(offset, expected, other.to_string()));
            }
        };
        let offset = reader.offset();
        let long_size = match reader.u8("the size of a long")? {
            size @ (4 | 8) => usize::from(size),
            other => {
                let expected = "the size of a long: 4 or 8";
                return Err(Error::new(offset, expected, other.to_string()));
            }
        };
        reader.order = order;
        let mut trace = Self::new(order, long_size);
        trace.version = version;
        let offset = reader.offset();
        let page_size = reader.u32("the size of a page")?;
        let page_size = usize::try_from(page_size).ok();
        let Some(page_size) = page_size.filter(|size| (64..=1 << 26).contains(size)) else {
            let expected = "the size of a page, from 64 bytes to 64 MiB";
            return Err(Error::new(offset, expected, format!("{page_size:?}")));
        };
        match version {
            6 => v6::read(&mut trace, reader, page_size)?,
            _ => v7::read(&mut trace, reader, page_size)?,
        }
        trace.timing = Timing::of(&trace.options);
        Ok(trace)
    }

    /// Finds another trace.dat behind the event data of this one, if two were written into one file.
    pub fn next_file(&self, bytes: &[u8]) -> Option<u64> {
        let ends = self.buffers.iter().flat_map(|buffer| &buffer.cpus);
        let end = ends.map(|cpu| cpu.offset.saturating_add(cpu.size)).max();
        let from = usize::try_from(end.unwrap_or(0).max(MAGIC.len() as u64)).ok()?;
        let found = memchr::memmem::find(bytes.get(from..)?, MAGIC)?;
        Some((from + found) as u64)
    }

    /// Returns the context for evaluating print formats.
    pub const fn scope(&self) -> Scope<'_> {
        Scope {
            order: self.order,
            long_size: self.long_size,
            symbols: &self.symbols,
            printk: &self.printk,
        }
    }

    /// Records an error, with the name of the section in front of the message.
    pub(crate) fn damaged(&mut self, section: &str, error: Error) {
        let expected = format!("{section}: {}", error.expected);
        self.damage
            .push(Error::new(error.offset, expected, error.found));
    }

    /// `header_page`, `header_event`.
    pub(crate) fn read_headers(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        for name in ["header_page", "header_event"] {
            let offset = reader.offset();
            let found = reader.text("the name of a header")?;
            if found != name {
                return Err(Error::new(offset, name, format!("{found:?}")));
            }
            let size = reader.u64("the size of a header")?;
            let text = reader.take(size, name)?;
            if name == "header_page" {
                let text = String::from_utf8_lossy(text);
                self.layout = PageLayout::parse(self.order, self.long_size, &text);
                self.long_size = self.layout.commit_size;
            }
        }
        Ok(())
    }

    /// Reads a count and that number of event formats of one system.
    pub(crate) fn read_formats(
        &mut self,
        reader: &mut Reader<'_>,
        system: &str,
    ) -> Result<(), Error> {
        for _ in 0..reader.u32("the number of event formats")? {
            let size = reader.u64("the size of an event format")?;
            let text = reader.take(size, "an event format")?;
            if let Some(format) = EventFormat::parse(system, &String::from_utf8_lossy(text)) {
                self.formats.add(format);
            }
        }
        Ok(())
    }

    /// Reads a count and that number of systems with their event formats.
    pub(crate) fn read_systems(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        for _ in 0..reader.u32("the number of event systems")? {
            let system = reader.text("the name of an event system")?;
            self.read_formats(reader, &system)?;
        }
        Ok(())
    }

    pub(crate) fn read_symbols(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let size = reader.u32("the size of kallsyms")?;
        self.symbols = Symbols::parse(reader.take(size.into(), "kallsyms")?);
        Ok(())
    }

    pub(crate) fn read_printk(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let size = reader.u32("the size of printk_formats")?;
        self.printk = PrintkFormats::parse(reader.take(size.into(), "printk_formats")?);
        Ok(())
    }

    pub(crate) fn read_comms(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        let offset = reader.offset();
        let size = reader.u64("the size of saved_cmdlines")?;
        if size > LARGEST_TEXT {
            return Err(Error::new(
                offset,
                "the size of saved_cmdlines",
                size.to_string(),
            ));
        }
        self.comms = Comms::parse(reader.take(size, "saved_cmdlines")?);
        Ok(())
    }
}
