//! Writer for trace.dat files of version 7 (`trace-cmd.dat.v7(5)`), in one pass and without seeking.
//!
//! The kernel's texts are compressed sections. Pages of events are written unchanged, so they need not pass through
//! this process's memory. The options come first, because all sizes are known before anything is written.

use std::io::{self, Write};

use crate::Order;
use crate::dat::MAGIC;
use crate::dat::id;

/// Flag of a compressed section.
const COMPRESSED: u16 = 1;

/// Number of the section that holds pages.
const PAGES: u16 = 3;

/// Compression name and version, which `trace-cmd` checks.
const COMPRESSION: &[u8] = b"zstd\x001.5.4\0";

/// Number of bytes in front of the offset of the options.
const HEAD: usize = MAGIC.len() + 2 + 1 + 1 + 4 + COMPRESSION.len();

/// Size of a section's header in bytes.
const SECTION: usize = 16;

/// Contents of a trace.dat: the texts as tracefs and procfs have them, and the sizes of the pages.
#[derive(Clone, Debug, Default)]
pub struct DatFile {
    /// The byte order of the traced machine.
    pub order: Order,
    /// The size of its kernel's `long`: 4 or 8.
    pub long_size: u8,
    /// Size and alignment of a page of events, in bytes.
    pub page_size: u32,
    /// `events/header_page`.
    pub header_page: Vec<u8>,
    /// `events/header_event`.
    pub header_event: Vec<u8>,
    /// Event systems with the `format` files of their events. The kernel's own tracers are the system `ftrace`.
    pub systems: Vec<(String, Vec<Vec<u8>>)>,
    /// `/proc/kallsyms`.
    pub kallsyms: Vec<u8>,
    /// `printk_formats`.
    pub printk_formats: Vec<u8>,
    /// `saved_cmdlines`: lines with a number and a name.
    pub comms: Vec<u8>,
    /// `trace_clock`: all clocks, with brackets around the chosen one.
    pub clocks: String,
    /// System, host name, kernel and machine.
    pub uname: String,
    /// Name and version of the program that wrote the file.
    pub version: String,
    /// The number of CPUs of the machine.
    pub cpus: u32,
    /// Contents of `per_cpu/cpuN/stats`, each with the number of its CPU.
    pub stats: Vec<(u32, String)>,
    /// CPUs that have pages, each with the size of its pages in bytes: a multiple of the page size.
    pub pages: Vec<(u32, u64)>,
}

impl DatFile {
    /// Writes the file. `copy` writes the pages of a CPU, given as an index into [`DatFile::pages`].
    ///
    /// # Errors
    /// Errors of `out` and `copy`, and [`io::ErrorKind::InvalidInput`] for a text of more than 4 GiB.
    pub fn write<W: Write>(
        &self,
        out: &mut W,
        mut copy: impl FnMut(&mut W, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        let sections = self.sections()?;
        let options_at = HEAD + 8;
        // The size of the options does not depend on the offsets in them.
        let options_size = self.options(&sections, 0, &[])?.len();
        let sections_at = options_at + SECTION + options_size;
        let texts: usize = sections
            .iter()
            .map(|(_, bytes)| SECTION + 8 + bytes.packed.len())
            .sum();
        let pages_at = (sections_at + texts) as u64;
        let align = u64::from(self.page_size.max(1));
        let first = (pages_at + SECTION as u64).next_multiple_of(align);
        let mut end = first;
        let mut offsets = Vec::new();
        for (_, size) in &self.pages {
            offsets.push(end);
            end += size;
        }
        out.write_all(MAGIC)?;
        out.write_all(b"7\0")?;
        out.write_all(&[u8::from(self.order == Order::Big), self.long_size])?;
        out.write_all(&self.number(self.page_size))?;
        out.write_all(COMPRESSION)?;
        out.write_all(&self.number(options_at as u64))?;
        let options = self.options(&sections, sections_at as u64, &offsets)?;
        out.write_all(&self.section(id::DONE, 0, options.len() as u64))?;
        out.write_all(&options)?;
        for (id, bytes) in &sections {
            out.write_all(&self.section(*id, COMPRESSED, 8 + bytes.packed.len() as u64))?;
            out.write_all(&self.number(count(bytes.packed.len())?))?;
            out.write_all(&self.number(bytes.plain))?;
            out.write_all(&bytes.packed)?;
        }
        let padding = first - pages_at - SECTION as u64;
        out.write_all(&self.section(PAGES, 0, padding + (end - first)))?;
        // The padding is shorter than a page.
        out.write_all(&vec![0; padding as usize])?;
        (0..self.pages.len()).try_for_each(|place| copy(out, place))
    }

    /// Encodes a number in the file's byte order.
    fn number<T: Number>(&self, value: T) -> Vec<u8> {
        value.bytes(self.order)
    }

    /// Encodes the header of a section.
    fn section(&self, id: u16, flags: u16, size: u64) -> Vec<u8> {
        // The third field is the description of the section, which is empty.
        [
            self.number(id),
            self.number(flags),
            self.number(0_u32),
            self.number(size),
        ]
        .concat()
    }

    /// Encodes a text behind its size.
    fn sized(&self, text: &[u8]) -> Vec<u8> {
        [&self.number(text.len() as u64), text].concat()
    }

    /// Encodes and compresses the sections of texts.
    fn sections(&self) -> io::Result<Vec<(u16, Packed)>> {
        let headers = [
            b"header_page\0".to_vec(),
            self.sized(&self.header_page),
            b"header_event\0".to_vec(),
            self.sized(&self.header_event),
        ];
        let formats = |formats: &[Vec<u8>]| -> io::Result<Vec<u8>> {
            let mut bytes = self.number(count(formats.len())?);
            for format in formats {
                bytes.extend(self.sized(format));
            }
            Ok(bytes)
        };
        let own = |system: &&(String, Vec<Vec<u8>>)| system.0 == "ftrace";
        let tracers = self.systems.iter().find(own);
        let others = self.systems.iter().filter(|system| !own(system));
        let mut systems = self.number(count(others.clone().count())?);
        for (name, events) in others {
            systems.extend(terminated(name));
            systems.extend(formats(events)?);
        }
        let counted = |text: &[u8]| Ok([&self.number(count(text.len())?), text].concat());
        let plain: [(u16, io::Result<Vec<u8>>); 6] = [
            (id::HEADER_INFO, Ok(headers.concat())),
            (
                id::FTRACE_EVENTS,
                formats(tracers.map_or(&[], |system| &system.1)),
            ),
            (id::EVENT_FORMATS, Ok(systems)),
            (id::KALLSYMS, counted(&self.kallsyms)),
            (id::PRINTK, counted(&self.printk_formats)),
            (id::CMDLINES, Ok(self.sized(&self.comms))),
        ];
        plain
            .into_iter()
            .map(|(id, bytes)| Ok((id, Packed::new(&bytes?)?)))
            .collect()
    }

    /// Encodes the options: short values, and the offsets of the sections.
    fn options(
        &self,
        sections: &[(u16, Packed)],
        sections_at: u64,
        offsets: &[u64],
    ) -> io::Result<Vec<u8>> {
        let mut options = Vec::new();
        let mut add = |id: u16, data: Vec<u8>| -> io::Result<()> {
            options.extend(self.number(id));
            options.extend(self.number(count(data.len())?));
            options.extend(data);
            Ok(())
        };
        let mut at = sections_at;
        for (id, bytes) in sections {
            add(*id, self.number(at))?;
            at += (SECTION + 8 + bytes.packed.len()) as u64;
        }
        add(id::UNAME, terminated(&self.uname))?;
        add(id::VERSION, terminated(&self.version))?;
        add(id::CPUCOUNT, self.number(self.cpus))?;
        add(id::TRACECLOCK, terminated(&self.clocks))?;
        for (cpu, stats) in &self.stats {
            add(id::CPUSTAT, terminated(&format!("CPU: {cpu}\n{stats}")))?;
        }
        let clock = self.clocks.split_once('[');
        let clock = clock.and_then(|(_, rest)| rest.split_once(']'));
        let mut buffer = [
            self.number(at),
            terminated(""),
            terminated(clock.map_or("local", |(clock, _)| clock)),
            self.number(self.page_size),
            self.number(count(self.pages.len())?),
        ]
        .concat();
        for (place, (cpu, size)) in self.pages.iter().enumerate() {
            buffer.extend(self.number(*cpu));
            buffer.extend(self.number(offsets.get(place).copied().unwrap_or(0)));
            buffer.extend(self.number(*size));
        }
        add(id::BUFFER, buffer)?;
        // No more options follow.
        add(id::DONE, self.number(0_u64))?;
        Ok(options)
    }
}

/// Encodes a text with a zero byte behind it.
fn terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.replace('\0', " ").into_bytes();
    bytes.push(0);
    bytes
}

/// Converts a count to the file's type.
fn count(number: usize) -> io::Result<u32> {
    u32::try_from(number).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Compressed text and its size before compression.
#[derive(Debug)]
struct Packed {
    plain: u32,
    packed: Vec<u8>,
}

impl Packed {
    fn new(plain: &[u8]) -> io::Result<Self> {
        Ok(Self {
            plain: count(plain.len())?,
            packed: zstd::encode_all(plain, zstd::DEFAULT_COMPRESSION_LEVEL)?,
        })
    }
}

/// Number types in the file.
trait Number {
    fn bytes(self, order: Order) -> Vec<u8>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn bytes(self, order: Order) -> Vec<u8> {
                match order {
                    Order::Little => self.to_le_bytes().to_vec(),
                    Order::Big => self.to_be_bytes().to_vec(),
                }
            }
        }
    )*};
}

number!(u16, u32, u64);
