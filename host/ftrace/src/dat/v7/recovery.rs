//! Recovery of a version 7 file whose end is missing.
//!
//! The options at the end of the file give the locations of each CPU's pages. Without them, the sections are walked
//! from the start of the file, and each CPU's data is found by its form. Compressed data begins at a page boundary with
//! its number of chunks. Uncompressed pages belong to the next CPU where their times step back. The CPUs are those that
//! recorded something according to their statistics, in that order.

use super::super::options::id;
use super::super::{Buffer, Trace};
use super::{COMPRESSED, MOST_CPUS, MOST_SECTIONS, options, pointed};
use crate::Error;
use crate::cursor::CpuData;
use crate::decompress::Compression;
use crate::order::Reader;

/// Size of a section's header in bytes.
const HEADER: u64 = 16;

/// Finds the buffers, and with `all` also the sections that describe events. `first` is the offset of the first
/// section.
pub(super) fn recover(
    trace: &mut Trace,
    whole: &Reader<'_>,
    (first, all): (u64, bool),
    page_size: usize,
) {
    let mut at = first;
    for _ in 0..MOST_SECTIONS {
        let Some((section, flags, size)) = header(whole, at) else {
            return;
        };
        let end = at.saturating_add(HEADER).saturating_add(size);
        let result = match section {
            id::DONE if all => options(trace, whole, at, page_size).map(|_| ()),
            id::HEADER_INFO..=id::CMDLINES if all => pointed(trace, whole, at, section),
            id::BUFFER => {
                let place = (at + HEADER, end);
                buffer(trace, whole, place, (flags, page_size));
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            trace.damaged(&format!("section {section}"), error);
        }
        at = end;
    }
}

/// Reads a section's number, flags and size; `None` if there is no section at the offset.
fn header(whole: &Reader<'_>, offset: u64) -> Option<(u16, u16, u64)> {
    let mut reader = whole.seek(offset).ok()?;
    let section = reader.u16("the number of a section").ok()?;
    let flags = reader.u16("the flags of a section").ok()?;
    reader.u32("the description of a section").ok()?;
    let size = reader.u64("the size of a section").ok()?;
    (section <= id::BUFFER_TEXT).then_some((section, flags, size))
}

/// Adds a buffer whose data is between two offsets.
fn buffer(
    trace: &mut Trace,
    whole: &Reader<'_>,
    (start, end): (u64, u64),
    (flags, page_size): (u16, usize),
) {
    let Ok(file) = whole.seek(0) else { return };
    let data = Data {
        file: file.rest(),
        trace,
        page_size,
        end: end.min(file.rest().len() as u64),
    };
    let mut cpus = match flags & COMPRESSED {
        0 => data.plain(start),
        _ => data.packed(start),
    };
    if let Some(last) = cpus.last_mut() {
        // The reader of this CPU's data reports what is missing.
        last.size = end - last.offset;
    }
    let number = trace.buffers.len();
    let found = format!(
        "none: {} CPUs with data are numbered in the order of these",
        cpus.len()
    );
    let expected = "options that tell of this buffer and its CPUs";
    trace.damage.push(Error::new(start, expected, found));
    trace.buffers.push(Buffer {
        name: match number {
            0 => String::new(),
            number => format!("buffer {number}"),
        },
        clock: String::new(),
        page_size,
        cpus,
    });
}

/// Data of a buffer's CPUs.
struct Data<'a> {
    file: &'a [u8],
    trace: &'a Trace,
    page_size: usize,
    end: u64,
}

impl Data<'_> {
    /// Returns the next page boundary at or behind `at`, if it is within the data.
    fn page(&self, at: u64) -> Option<u64> {
        let at = at.checked_next_multiple_of(self.page_size as u64)?;
        (at < self.end).then_some(at)
    }

    fn word(&self, at: u64) -> Option<u32> {
        self.trace
            .order
            .u32_at(self.file, usize::try_from(at).ok()?)
    }

    fn packed(&self, start: u64) -> Vec<CpuData> {
        let mut found = Vec::new();
        let mut next = self.page(start);
        for cpu in numbers(self.trace) {
            let Some(offset) = next else { break };
            let mut at = offset + 4;
            for _ in 0..self.word(offset).unwrap_or(0) {
                let Some(packed) = self.word(at).filter(|_| at < self.end) else {
                    break;
                };
                at = at.saturating_add(8 + u64::from(packed));
            }
            found.push(CpuData {
                cpu,
                offset,
                size: at - offset,
                compression: self.trace.compression,
            });
            next = self.page(at);
        }
        found
    }

    fn plain(&self, start: u64) -> Vec<CpuData> {
        let mut found: Vec<CpuData> = Vec::new();
        let mut cpus = numbers(self.trace).into_iter().peekable();
        let (mut next, mut before) = (self.page(start), None);
        while let Some(at) = next {
            let bytes = usize::try_from(at).ok();
            let time = bytes.and_then(|at| self.trace.order.u64_at(self.file, at));
            let steps_back = time.is_none() || time < before;
            match found.last_mut() {
                Some(cpu) if !steps_back || cpus.peek().is_none() => {
                    cpu.size += self.page_size as u64;
                }
                _ => {
                    let Some(cpu) = cpus.next() else { break };
                    found.push(CpuData {
                        cpu,
                        offset: at,
                        size: self.page_size as u64,
                        compression: Compression::None,
                    });
                }
            }
            before = time;
            next = self.page(at + 1);
        }
        found
    }
}

/// Returns the CPUs that recorded something according to their statistics; all CPUs if there are no statistics.
fn numbers(trace: &Trace) -> Vec<u32> {
    let stats = trace.options.cpu_stats.iter().filter_map(|text| {
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok()
        };
        let cpu = u32::try_from(number("CPU:")?).ok()?;
        let events = number("entries:").into_iter().chain(number("read events:"));
        Some((cpu, events.fold(0, u64::saturating_add)))
    });
    let stats: Vec<(u32, u64)> = stats.collect();
    match stats.is_empty() {
        true => (0..trace.options.cpus.unwrap_or(MOST_CPUS).min(MOST_CPUS)).collect(),
        false => stats
            .into_iter()
            .filter_map(|(cpu, events)| (events > 0).then_some(cpu))
            .collect(),
    }
}
