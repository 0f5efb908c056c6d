//! Options of trace.dat files.

use crate::Error;
use crate::Order;
use crate::clock::{CpuShift, Sample};
use crate::order::Reader;

/// Options of a file that describe the machine and the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Nanoseconds to add to all times (options DATE and OFFSET).
    pub offset_ns: i64,
    /// Whether this offset makes the times dates in UTC (option DATE).
    pub dated: bool,
    /// Statistics of each CPU's buffer, as the kernel prints them.
    pub cpu_stats: Vec<String>,
    /// Clocks that the kernel offers, with brackets around the chosen one.
    pub clocks: String,
    /// System, host name, kernel and machine.
    pub uname: String,
    /// Version of trace-cmd that wrote the file.
    pub version: String,
    /// The number of CPUs.
    pub cpus: Option<u32>,
    /// Id of this tracing session.
    pub trace_id: Option<u64>,
    /// Conversion of a guest's times to the host's, by CPU; empty if none is needed.
    pub shifts: Vec<CpuShift>,
    /// Whether the shift is interpolated linearly between two samples.
    pub interpolate: bool,
    /// Id of the session whose clock `shifts` convert to.
    pub peer: Option<u64>,
    /// Guests that were traced together with this host.
    pub guests: Vec<Guest>,
    /// Multiplier and shift that convert an x86 TSC to nanoseconds.
    pub tsc: Option<(u32, u32)>,
    /// Memory maps of traced processes.
    pub maps: String,
    /// Buffers of version 6: offset and name.
    pub(crate) buffers: Vec<(u64, String)>,
}

/// Virtual machine that was traced together with its host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guest {
    /// Its name.
    pub name: String,
    /// Id of its tracing session: [`Options::trace_id`] of its file.
    pub trace_id: u64,
    /// CPUs, each with the host task that runs it.
    pub cpus: Vec<(u32, u32)>,
}

/// Option numbers.
pub(crate) mod id {
    pub(crate) const DONE: u16 = 0;
    pub(crate) const DATE: u16 = 1;
    pub(crate) const CPUSTAT: u16 = 2;
    pub(crate) const BUFFER: u16 = 3;
    pub(crate) const TRACECLOCK: u16 = 4;
    pub(crate) const UNAME: u16 = 5;
    pub(crate) const OFFSET: u16 = 7;
    pub(crate) const CPUCOUNT: u16 = 8;
    pub(crate) const VERSION: u16 = 9;
    pub(crate) const PROCMAPS: u16 = 10;
    pub(crate) const TRACEID: u16 = 11;
    pub(crate) const TIME_SHIFT: u16 = 12;
    pub(crate) const GUEST: u16 = 13;
    pub(crate) const TSC2NSEC: u16 = 14;
    pub(crate) const HEADER_INFO: u16 = 16;
    pub(crate) const FTRACE_EVENTS: u16 = 17;
    pub(crate) const EVENT_FORMATS: u16 = 18;
    pub(crate) const KALLSYMS: u16 = 19;
    pub(crate) const PRINTK: u16 = 20;
    pub(crate) const CMDLINES: u16 = 21;
    pub(crate) const BUFFER_TEXT: u16 = 22;
}

/// Largest number of statistics, and of guests, that is kept.
const KEPT: usize = 1 << 16;

impl Options {
    /// Returns the name of the chosen clock: the word in brackets.
    pub fn clock(&self) -> Option<&str> {
        let (_, rest) = self.clocks.split_once('[')?;
        Some(rest.split_once(']')?.0)
    }

    /// Stores an option that has its value in itself. Ignores unknown ones.
    pub(crate) fn take(
        &mut self,
        id: u16,
        data: &[u8],
        order: Order,
        at: u64,
    ) -> Result<(), Error> {
        let mut reader = Reader::new(data, at, order);
        let text = || {
            let end = memchr::memchr(0, data).unwrap_or(data.len());
            String::from_utf8_lossy(data.get(..end).unwrap_or_default()).into_owned()
        };
        match id {
            id::DATE => {
                self.add_offset(&text(), 1000);
                self.dated = true;
            }
            id::OFFSET => self.add_offset(&text(), 1),
            id::CPUSTAT if self.cpu_stats.len() < KEPT => self.cpu_stats.push(text()),
            id::BUFFER if self.buffers.len() < KEPT => {
                let offset = reader.u64("the offset of a buffer")?;
                self.buffers
                    .push((offset, reader.text("the name of a buffer")?));
            }
            id::TRACECLOCK => self.clocks = text(),
            id::UNAME => self.uname = text(),
            id::VERSION => self.version = text(),
            id::PROCMAPS => self.maps = text(),
            id::CPUCOUNT => self.cpus = Some(reader.u32("a number of CPUs")?),
            id::TRACEID => self.trace_id = Some(reader.u64("a trace id")?),
            id::TIME_SHIFT => self.time_shift(&mut reader)?,
            id::GUEST if self.guests.len() < KEPT => self.guests.push(guest(&mut reader)?),
            id::TSC2NSEC => {
                let mult = reader.u32("a multiplier")?;
                self.tsc = Some((mult, reader.u32("a shift")?));
            }
            _ => {}
        }
        Ok(())
    }

    fn add_offset(&mut self, text: &str, unit: i64) {
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let number = match digits.strip_prefix("0x") {
            // All 64 bits may be set: negative numbers are written so.
            Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
            None => digits.parse().ok(),
        };
        let number = number.unwrap_or(0i64).wrapping_mul(unit);
        let number = if negative {
            number.wrapping_neg()
        } else {
            number
        };
        self.offset_ns = self.offset_ns.wrapping_add(number);
    }

    fn time_shift(&mut self, reader: &mut Reader<'_>) -> Result<(), Error> {
        if reader.rest().len() < 16 {
            return Ok(());
        }
        self.peer = Some(reader.u64("a trace id")?);
        self.interpolate = reader.u32("flags")? & 1 != 0;
        self.shifts.clear();
        for _ in 0..reader.u32("a number of CPUs")? {
            let count = reader.u32("a number of samples")?;
            let column = |reader: &mut Reader<'_>, what| {
                let bytes = reader.take(u64::from(count) * 8, what)?;
                let numbers = bytes
                    .chunks_exact(8)
                    .map(|number| reader.order.number(number));
                Ok::<Vec<u64>, Error>(numbers.collect())
            };
            let times = column(reader, "times of samples")?;
            let offsets = column(reader, "offsets of samples")?;
            let scalings = column(reader, "scalings of samples")?;
            let samples = times.iter().zip(&offsets).zip(&scalings);
            let samples = samples.map(|((time, offset), scaling)| Sample {
                time: *time,
                offset: offset.cast_signed(),
                scaling: (*scaling).max(1),
                fraction: 0,
            });
            self.shifts.push(CpuShift::new(samples.collect()));
        }
        // Newer files have the number of fractional bits of each scaling at the end.
        for shift in &mut self.shifts {
            for sample in &mut shift.samples {
                if reader.rest().len() < 8 {
                    return Ok(());
                }
                let bits = reader.u64("bits of a fraction")?;
                sample.fraction = u32::try_from(bits).unwrap_or(0).min(63);
            }
        }
        self.shifts.iter_mut().for_each(CpuShift::sort);
        Ok(())
    }
}

fn guest(reader: &mut Reader<'_>) -> Result<Guest, Error> {
    let name = reader.text("the name of a guest")?;
    let trace_id = reader.u64("a trace id")?;
    let mut cpus = Vec::new();
    for _ in 0..reader.u32("a number of CPUs")? {
        cpus.push((reader.u32("a CPU")?, reader.u32("a task")?));
    }
    Ok(Guest {
        name,
        trace_id,
        cpus,
    })
}
