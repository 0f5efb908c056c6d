//! Walk through the records of a perf.data file: trace, and the kernel's records of processes.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::assignments::{Assigned, Sink};
use super::buffers::{Aux, Place};
use super::fields::{number, text, word};
use super::header;
use super::metadata::Metadata;
use super::packed::Packed;
use super::sample_id::Layouts;
use super::sideband::{Event, Sideband};
use super::{Losses, Mapping, Thread, TimeConversion};
use crate::Error;
use crate::element::Unsynced;
use crate::frames::TraceId;
use crate::memory::Running;

/// Bits of a record's `misc`.
const MISC_CPU_MODE: u32 = 7;
const MISC_KERNEL: u32 = 1;
const MISC_DATA: u32 = 1 << 13;
const MISC_COMM_EXEC: u32 = 1 << 13;
/// Fork that perf synthesized for a process that already existed. Its mappings have records of their own.
const MISC_FORK_EXEC: u32 = 1 << 13;
const MISC_SWITCH_OUT: u32 = 1 << 13;
const MISC_BUILD_ID: u32 = 1 << 14;
/// Samples that a BPF filter left out.
const MISC_LOST_SAMPLES_BPF: u32 = 1 << 15;

/// Contents of the records of a file.
#[derive(Default)]
pub(super) struct Walk {
    pub layouts: Layouts,
    /// Whether the file ends before the recording does.
    pub is_cut: bool,
    pub metadata: Option<Metadata>,
    pub aux: Vec<Aux>,
    pub places: Vec<Place>,
    /// Trace IDs of CPUs.
    pub ids: Vec<Assigned>,
    pub mappings: Vec<Mapping>,
    pub threads: BTreeMap<u32, Thread>,
    pub conversion: Option<TimeConversion>,
    pub sideband: Sideband,
    pub losses: Losses,
    /// Build IDs of files, by path, from the records that a pipe has instead of a section.
    pub build_ids: HashMap<String, Vec<u8>>,
    /// Release of the kernel, from a pipe's record.
    pub release: Option<String>,
    packed: Packed,
    /// Time of each CPU's latest record so far, in the order of the file.
    latest: HashMap<u32, u64>,
    /// Offset of the current record.
    at: u64,
}

impl Walk {
    pub fn records(&mut self, bytes: &[u8], data: Range<usize>) -> Result<(), Error> {
        let mut at = data.start;
        while at + 8 <= data.end {
            let (Some(kind), Some(sizes)) = (word(bytes, at), word(bytes, at + 4)) else {
                break;
            };
            let (misc, size) = (sizes & 0xffff, (sizes >> 16) as usize);
            if at + size > bytes.len() {
                self.is_cut = true;
                break;
            }
            let Some(record) = bytes
                .get(at + 8..at + size.max(8))
                .filter(|_| size >= 8 && at + size <= data.end)
            else {
                return Err(Error::Format {
                    offset: at as u64,
                    expected: "a record that ends before the data does",
                    found: format!("{size} bytes of type {kind}"),
                });
            };
            self.at = at as u64;
            at += size;
            match kind {
                70 => self.metadata = Some(Metadata::read(record, at as u64)?),
                71 => at += self.auxtrace(record, at, data.end),
                81 => self.packed.add(self.at, record),
                // The same with a length in front and padding.
                83 => {
                    let size = number(record, 0).and_then(|size| usize::try_from(size).ok());
                    let packed = record.get(8..).unwrap_or_default();
                    let packed = size.and_then(|size| packed.get(..size)).unwrap_or(packed);
                    self.packed.add(self.at, packed);
                }
                _ => self.record(kind, misc, record)?,
            }
        }
        let packed = std::mem::take(&mut self.packed);
        let mut at = 0;
        let records = packed.unpack()?;
        while let (Some(kind), Some(sizes)) = (word(&records, at), word(&records, at + 4)) {
            let (misc, size) = (sizes & 0xffff, (sizes >> 16) as usize);
            let Some(record) = records.get(at + 8..at + size.max(8)).filter(|_| size >= 8) else {
                self.is_cut = true;
                break;
            };
            // Offset after the compressed record, so that the order of records is kept.
            self.at = packed.at + at as u64;
            self.record(kind, misc, record)?;
            at += size;
        }
        Ok(())
    }

    /// Checks the compression section of the header: a version, then a type. The only type is 1, zstd.
    ///
    /// # Errors
    /// [`Error::Format`] for another compression.
    pub fn compression(&self, section: &[u8], offset: u64) -> Result<(), Error> {
        match word(section, 4) {
            None | Some(0 | 1) => Ok(()),
            Some(other) => Err(Error::Format {
                offset,
                expected: "records compressed with zstd (type 1)",
                found: format!("type {other} in HEADER_COMPRESSED"),
            }),
        }
    }

    /// Reads a record without trailing bytes.
    fn record(&mut self, kind: u32, misc: u32, record: &[u8]) -> Result<(), Error> {
        match kind {
            1 => self.mmap(record, misc),
            2 => self.lost(record),
            3 => self.comm(record, misc),
            4 => self.exit(record),
            7 => self.fork(record, misc),
            10 => self.mmap2(record, misc),
            11 => self.aux(record),
            12 => self.trace_start(record),
            13 => self.lost_samples(record, misc),
            14 => self.switch(record, misc),
            15 => self.switch_of_cpu(record, misc),
            21 => self.hardware_id(record)?,
            64 => self.layouts.add_record(record),
            67 => self.build_ids.extend(header::build_id(record, misc)),
            79 => self.conversion = TimeConversion::read(record),
            80 => self.feature(record)?,
            _ => {}
        }
        Ok(())
    }

    /// Reads a header section in a pipe: its number, then its bytes.
    fn feature(&mut self, record: &[u8]) -> Result<(), Error> {
        let section = record.get(8..).unwrap_or_default();
        match number(record, 0) {
            Some(bit) if bit == u64::from(header::RELEASE) => {
                self.release = Some(text(section, 4)).filter(|release| !release.is_empty());
            }
            Some(bit) if bit == u64::from(header::COMPRESSED) => {
                self.compression(section, self.at)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds an event with the time of its record.
    fn event(&mut self, record: &[u8], event: Event) {
        let ending = self.layouts.read(record);
        if let (Some(cpu), Some(time)) = (ending.cpu, ending.time) {
            self.latest.insert(cpu, time);
        }
        self.sideband.push(ending.time, self.at, event);
    }

    fn mmap(&mut self, record: &[u8], misc: u32) {
        if misc & MISC_DATA == 0 {
            self.mapping(record, misc, 32, Vec::new());
        }
    }

    fn mmap2(&mut self, record: &[u8], misc: u32) {
        const PROT_EXEC: u32 = 4;
        // Protection and flags have the same offsets with and without a build ID.
        if word(record, 56).is_some_and(|protection| protection & PROT_EXEC == 0) {
            return;
        }
        let mut build_id = Vec::new();
        if misc & MISC_BUILD_ID != 0 {
            let size = usize::from(record.get(32).copied().unwrap_or_default()).min(20);
            build_id = record.get(36..36 + size).unwrap_or_default().to_vec();
        }
        self.mapping(record, misc, 64, build_id);
    }

    fn mapping(&mut self, record: &[u8], misc: u32, name: usize, build_id: Vec<u8>) {
        let (Some(process), Some(thread), Some(address), Some(length), Some(offset)) = (
            word(record, 0),
            word(record, 4),
            number(record, 8),
            number(record, 16),
            number(record, 24),
        ) else {
            return;
        };
        let is_kernel = misc & MISC_CPU_MODE == MISC_KERNEL || process == u32::MAX;
        if !is_kernel {
            self.event(record, Event::Thread { process, thread });
            // Besides the mapping thread, the process has a first thread with its own number.
            let thread = process;
            self.event(record, Event::Thread { process, thread });
        }
        self.event(record, Event::Map(self.mappings.len()));
        self.mappings.push(Mapping {
            process: (!is_kernel).then_some(process),
            address,
            length,
            offset,
            path: text(record, name),
            build_id,
        });
    }

    fn comm(&mut self, record: &[u8], misc: u32) {
        if let (Some(process), Some(thread)) = (word(record, 0), word(record, 4)) {
            // Linux limits the name to 15 bytes; forks copy it.
            let name = text(record.get(..72).unwrap_or(record), 8);
            self.event(record, Event::Thread { process, thread });
            if misc & MISC_COMM_EXEC != 0 {
                self.event(record, Event::Exec { process });
            }
            if thread == process && !name.is_empty() {
                let time = self.layouts.read(record).time;
                self.sideband.name(time, self.at, process, name.clone());
            }
            self.threads.insert(thread, Thread { process, name });
        }
    }

    /// Reads the start of a thread, which inherits its parent's name.
    fn fork(&mut self, record: &[u8], misc: u32) {
        if let (Some(process), Some(parent_process), Some(thread), Some(parent)) = (
            word(record, 0),
            word(record, 4),
            word(record, 8),
            word(record, 12),
        ) {
            if process != parent_process {
                let parent = (misc & MISC_FORK_EXEC == 0).then_some(parent_process);
                self.event(record, Event::Fork { process, parent });
            }
            self.event(record, Event::Begin { thread });
            self.event(record, Event::Thread { process, thread });
            let parent = self.threads.get(&parent);
            let name = parent.map_or_else(String::new, |parent| parent.name.clone());
            self.threads.insert(thread, Thread { process, name });
        }
    }

    /// Reads the exit of a thread. A later fork record reports when another thread gets its number.
    fn exit(&mut self, record: &[u8]) {
        if let (Some(process), Some(thread)) = (word(record, 0), word(record, 8)) {
            self.event(record, Event::End { thread });
            let known = self.threads.entry(thread).or_default();
            known.process = process;
        }
    }

    /// Reads the start of a thread's trace.
    fn trace_start(&mut self, record: &[u8]) {
        if let (Some(process), Some(thread)) = (word(record, 0), word(record, 4)) {
            let ending = self.layouts.read(record);
            self.event(record, Event::Thread { process, thread });
            let cpu = ending.cpu.filter(|cpu| *cpu != u32::MAX);
            if let Some(cpu) = cpu {
                self.switched(record, cpu, running(thread), None);
            }
            self.event(record, Event::TraceStart { thread, cpu });
            let known = self.threads.entry(thread).or_default();
            known.process = process;
        }
    }

    fn switched(&mut self, record: &[u8], cpu: u32, thread: Running, before: Option<Running>) {
        let event = Event::Switch {
            cpu,
            thread,
            before,
        };
        self.event(record, event);
    }

    /// Reads a thread's switch to or from a CPU; both are in the `sample_id` fields. Such records exist for per-thread
    /// tracing.
    fn switch(&mut self, record: &[u8], misc: u32) {
        let ending = self.layouts.read(record);
        if let (Some((_, thread)), Some(cpu)) = (ending.thread, ending.cpu) {
            let thread = running(thread);
            match misc & MISC_SWITCH_OUT {
                0 => self.switched(record, cpu, thread, None),
                _ => self.switched(record, cpu, Running::Untraced, Some(thread)),
            }
        }
    }

    /// Reads a switch of a CPU: from the thread in the `sample_id` fields to the one in the record, or vice versa.
    fn switch_of_cpu(&mut self, record: &[u8], misc: u32) {
        let ending = self.layouts.read(record);
        let own = ending.thread.map(|(_, thread)| thread);
        let (thread, before) = match misc & MISC_SWITCH_OUT {
            0 => (own, word(record, 4)),
            _ => (word(record, 4), own),
        };
        if let (Some(thread), Some(cpu)) = (thread, ending.cpu) {
            // A thread that was dead at the switch may have been alive before.
            let before = before.map(|before| match running(before) {
                Running::Dead => Running::Unknown,
                known => known,
            });
            self.switched(record, cpu, running(thread), before);
        }
    }

    /// Reads a loss of records, between the CPU's last record and this one.
    fn lost(&mut self, record: &[u8]) {
        let ending = self.layouts.read(record);
        let latest = match ending.cpu {
            Some(cpu) => self.latest.get(&cpu),
            None => self.latest.values().min(),
        };
        let since = latest.copied().or(ending.time.map(|_| 0));
        let lost = number(record, 8).unwrap_or_default();
        self.losses.records.add(lost, ending.time);
        let event = Event::Lost { cpu: ending.cpu };
        self.sideband.push(since, self.at, event);
    }

    /// Reads a loss of samples. Those that a filter of the recording left out are no loss.
    fn lost_samples(&mut self, record: &[u8], misc: u32) {
        if misc & MISC_LOST_SAMPLES_BPF != 0 {
            return;
        }
        let time = self.layouts.read(record).time;
        let lost = number(record, 0).unwrap_or_default();
        self.losses.samples.add(lost, time);
    }

    fn aux(&mut self, record: &[u8]) {
        if let (Some(offset), Some(size), Some(flags)) =
            (number(record, 0), number(record, 8), number(record, 16))
        {
            let ending = self.layouts.read(record);
            if let Some((process, thread)) = ending.thread {
                self.event(record, Event::Thread { process, thread });
            }
            let aux = Aux {
                offset,
                size,
                flags,
                thread: ending.thread,
                cpu: ending.cpu,
                time: ending.time,
                at: self.at,
            };
            for why in aux.losses() {
                match why {
                    Unsynced::Truncated => self.losses.truncated.add(1, ending.time),
                    Unsynced::Partial => self.losses.partial.add(1, ending.time),
                    _ => self.losses.collisions.add(1, ending.time),
                }
            }
            self.aux.push(aux);
        }
    }

    /// Reads the trace ID of a CPU: bits 7:0. From minor version 1 (bits 59:56) on, bits 39:8 are the sink in which it
    /// is valid. A new major version (bits 63:60) changes the meaning of the bits.
    fn hardware_id(&mut self, record: &[u8]) -> Result<(), Error> {
        let ending = self.layouts.read(record);
        let (Some(value), Some(cpu)) = (number(record, 0), ending.cpu) else {
            return Ok(());
        };
        let (major, minor) = (value >> 60, value >> 56 & 0xf);
        if major > 0 {
            return Err(Error::Format {
                offset: self.at,
                expected: "AUX_OUTPUT_HW_ID of major version 0",
                found: format!("version {major}"),
            });
        }
        self.ids.push(Assigned {
            cpu,
            id: TraceId(value as u8),
            sink: (minor > 0).then_some(Sink((value >> 8) as u32)),
            time: ending.time,
            at: self.at,
        });
        Ok(())
    }

    /// Reads a buffer. Returns the number of its bytes after the record.
    fn auxtrace(&mut self, record: &[u8], start: usize, end: usize) -> usize {
        let (Some(size), Some(offset), Some(thread), Some(cpu)) = (
            number(record, 0),
            number(record, 8),
            word(record, 28),
            word(record, 32),
        ) else {
            return 0;
        };
        let whole = usize::try_from(size).unwrap_or(usize::MAX);
        let size = whole.min(end - start.min(end));
        self.is_cut |= size < whole;
        let none = u32::MAX;
        self.places.push(Place {
            start,
            size,
            offset,
            thread: (cpu == none).then_some(thread),
            cpu: (cpu != none).then_some(cpu),
        });
        size
    }
}

/// Maps the kernel's thread number, which is -1 for a thread that has exited.
fn running(thread: u32) -> Running {
    match thread {
        u32::MAX => Running::Dead,
        thread => Running::Thread(thread),
    }
}
