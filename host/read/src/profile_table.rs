//! Decoder for the target's own profile table, as `dump_profile` sends it.
//!
//! [`kymo_wire::profile`] defines the layout. This module converts it to nanoseconds and addresses of the event model,
//! adds up the tables of several CPUs, and reports everything that may be wrong in a damaged or foreign table.

use std::collections::{BTreeMap, HashSet};

use kymo_event::{Addr, Duration, Ticks};
use kymo_wire::event::WordSize;
use kymo_wire::profile::{Entry, TABLE_MAGIC, TABLE_VERSION, TableCpu, TableHeader};
use thiserror::Error;

/// Profile table of a target: that of several CPUs is the sum of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileTable {
    /// Functions in descending order of total time, then by address.
    pub functions: Vec<FunctionProfile>,
    /// Number of functions that the table of each CPU can hold.
    pub slots: u32,
    /// Number of functions in the fullest table.
    pub taken: u32,
    /// Number of CPUs that keep a table each.
    pub cpus: u16,
    /// CPUs whose tables are missing.
    pub missing: Vec<u16>,
    /// Number of calls that no function's count includes, because all slots for its function were taken, or because it
    /// was replaced later. Any count may lack this many calls.
    pub no_slot: u64,
    /// Number of times a function took the slot of the nearby function with the lowest total.
    pub replaced: u64,
    /// Sum of the totals of replaced functions. Any total may lack this much time.
    pub replaced_total: Duration,
    /// Number of calls that were not counted because they were nested too deeply, or because their thread had no shadow
    /// stack.
    pub too_deep: u64,
    /// Number of exits without entries and entries without exits (recording began or ended within a call, or
    /// `longjmp`).
    pub unmatched: u64,
    /// Duration of the recording.
    pub recorded: Duration,
    /// Frequency of the target's clock in Hz.
    pub clock_hz: u64,
}

/// Counts of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionProfile {
    /// Run-time address of its start. Without the Thumb bit, if the target reports that it has none.
    pub address: Addr,
    /// Number of completed calls.
    pub count: u64,
    /// Time in the function and its callees, without the time in which its thread did not run. Recursive calls count
    /// once.
    pub total: Duration,
    /// Time in the function itself, without callees.
    pub self_time: Duration,
    /// Duration of the shortest call.
    pub min: Duration,
    /// Duration of the longest call.
    pub max: Duration,
    /// Whether some calls were recursive: `total` is then not the sum of all calls.
    pub recursive: bool,
    /// Its calls on each CPU on which some ended, in the order of the CPUs' numbers. Empty where there is only one table.
    pub cpus: Vec<OnCpu>,
}

/// Part of a function's calls: those that ended on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// Number of the CPU.
    pub cpu: u16,
    /// As [`FunctionProfile::count`].
    pub count: u64,
    /// As [`FunctionProfile::total`], also of parts that such a call spent on other CPUs.
    pub total: Duration,
    /// As [`FunctionProfile::self_time`], in the same way.
    pub self_time: Duration,
}

/// Error for bytes that are not a profile table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TableError {
    /// There are fewer bytes than a header has.
    #[error("profile table: expected a header of {expected} bytes, found {found} bytes")]
    NoHeader {
        /// Size of a header.
        expected: usize,
        /// Number of bytes.
        found: usize,
    },
    /// The magic number does not match.
    #[error(
        "profile table: expected the magic number {TABLE_MAGIC:#010x}, found {found:#010x} at offset {offset}"
    )]
    Magic {
        /// The number found, read as little endian.
        found: u32,
        /// Offset of the header: 0, or that of a later CPU's table.
        offset: usize,
    },
    /// The version or address size is not supported.
    #[error(
        "profile table: expected a version up to {TABLE_VERSION} with addresses of 4 or 8 bytes, found \
         bytes {found:02x?} at offset {offset}"
    )]
    Version {
        /// Version (2 bytes) and address size in bytes.
        found: [u8; 3],
        /// Their offset.
        offset: usize,
    },
    /// The clock frequency is 0.
    #[error("profile table: expected ticks a second, found 0 at offset {offset}")]
    Clock {
        /// Its offset.
        offset: usize,
    },
    /// A table of several is not that of a later CPU of the same target.
    #[error(
        "profile table: expected the table of another CPU of the same target, found that of CPU {number} of {cpus} at \
         offset {offset}"
    )]
    Cpu {
        /// Number of the CPU.
        number: u16,
        /// Number of CPUs.
        cpus: u16,
        /// Offset of the table.
        offset: usize,
    },
    /// The number of entries differs from the header's.
    #[error(
        "profile table: expected {entries} entries of {entry_bytes} bytes from offset {offset} on, \
         found {found} bytes"
    )]
    Length {
        /// Offset of the end of the header.
        offset: usize,
        /// Number of entries in the header.
        entries: u32,
        /// Size of an entry in bytes.
        entry_bytes: usize,
        /// Number of bytes behind the header.
        found: usize,
    },
}

/// Decodes a profile table, or those of several CPUs.
///
/// # Errors
/// [`TableError`] if `bytes` are not exactly one table, or one of each of several CPUs. It states the expected and found
/// data, and the offset.
pub fn decode(bytes: &[u8]) -> Result<ProfileTable, TableError> {
    let mut tables: Vec<One> = Vec::new();
    let mut offset = 0;
    loop {
        let (one, end) = One::decode(bytes, offset)?;
        if let Some(before) = tables.last() {
            one.check_behind(before, bytes, offset)?;
        }
        let is_last = one.cpu.is_none() || end == bytes.len();
        tables.push(one);
        if is_last {
            break;
        }
        offset = end;
    }
    Ok(add_up(&tables))
}

/// A table as it was sent.
struct One {
    header: TableHeader,
    cpu: Option<TableCpu>,
    entries: Vec<Entry>,
}

impl One {
    /// Decodes the table at `offset`; returns also the offset of its end. A single table reaches to the end of all bytes.
    fn decode(all: &[u8], offset: usize) -> Result<(Self, usize), TableError> {
        let bytes = all.get(offset..).unwrap_or(&[]);
        let length = TableHeader::length(bytes);
        let short = TableError::NoHeader {
            expected: length.unwrap_or(TableHeader::BYTES),
            found: bytes.len(),
        };
        let Some(length) = length else {
            return Err(match *bytes {
                [a, b, c, d, e, f, g, _, ..] => {
                    let magic = [a, b, c, d];
                    if [u32::from_le_bytes(magic), u32::from_be_bytes(magic)].contains(&TABLE_MAGIC)
                    {
                        TableError::Version {
                            found: [e, f, g],
                            offset: offset + 4,
                        }
                    } else {
                        TableError::Magic {
                            found: u32::from_le_bytes(magic),
                            offset,
                        }
                    }
                }
                _ => short,
            });
        };
        let Some((head, rest)) = bytes.split_at_checked(length) else {
            return Err(short);
        };
        let Some(header) = TableHeader::read(head) else {
            return Err(TableError::Version {
                found: [4, 5, 6].map(|at| head.get(at).copied().unwrap_or(0)),
                offset: offset + 4,
            });
        };
        if header.clock_hz == 0 {
            let offset = offset + 40;
            return Err(TableError::Clock { offset });
        }
        let cpu = TableCpu::read(head);
        if let Some(TableCpu { number, cpus }) = cpu.filter(|it| it.number >= it.cpus) {
            return Err(TableError::Cpu {
                number,
                cpus,
                offset,
            });
        }
        let entry_bytes = Entry::bytes(header.word);
        let size = (header.entries as usize).checked_mul(entry_bytes);
        let entries = size.and_then(|size| rest.get(..size));
        let Some(entries) = entries.filter(|it| cpu.is_some() || it.len() == rest.len()) else {
            return Err(TableError::Length {
                offset: offset + length,
                entries: header.entries,
                entry_bytes,
                found: rest.len(),
            });
        };
        let end = offset + length + entries.len();
        let entries = entries
            .chunks_exact(entry_bytes)
            .filter_map(|bytes| Entry::read(bytes, header.word, header.order))
            .collect();
        let one = Self {
            header,
            cpu,
            entries,
        };
        Ok((one, end))
    }

    /// Checks that this table may follow another one, of several CPUs.
    fn check_behind(&self, before: &Self, all: &[u8], offset: usize) -> Result<(), TableError> {
        let of = |one: &Self| {
            let header = &one.header;
            (header.order, header.word, header.clock_hz)
        };
        let (Some(cpu), Some(last)) = (self.cpu, before.cpu) else {
            // A single table.
            let found = [4, 5, 6].map(|at| all.get(offset + at).copied().unwrap_or(0));
            return Err(TableError::Version {
                found,
                offset: offset + 4,
            });
        };
        if of(self) != of(before) || cpu.cpus != last.cpus || cpu.number <= last.number {
            return Err(TableError::Cpu {
                number: cpu.number,
                cpus: cpu.cpus,
                offset,
            });
        }
        Ok(())
    }
}

/// Adds up the tables of all CPUs, of which there is at least one.
fn add_up(tables: &[One]) -> ProfileTable {
    let clock_hz = tables.first().map_or(1, |one| one.header.clock_hz);
    let time = |ticks: u64| Duration(Ticks(ticks).to_ns(clock_hz));
    let mut sums: BTreeMap<u64, (Entry, u64)> = BTreeMap::new();
    let mut parts: BTreeMap<u64, Vec<OnCpu>> = BTreeMap::new();
    for one in tables {
        for entry in &one.entries {
            let address = match one.header.word {
                // Only Thumb code has odd addresses. The bit is not part of the function's address.
                WordSize::Bits32 => entry.address & !1,
                WordSize::Bits64 => entry.address,
            };
            sums.entry(address)
                .and_modify(|sum| add(sum, entry))
                .or_insert((*entry, entry.count.into()));
            if let Some(cpu) = one.cpu {
                parts.entry(address).or_default().push(OnCpu {
                    cpu: cpu.number,
                    count: entry.count.into(),
                    total: time(entry.total),
                    self_time: time(entry.self_time),
                });
            }
        }
    }
    let mut functions: Vec<_> = sums
        .into_iter()
        .map(|(address, (entry, count))| FunctionProfile {
            address: Addr(address),
            count,
            total: time(entry.total),
            self_time: time(entry.self_time),
            min: time(entry.min),
            max: time(entry.max),
            recursive: entry.recursive,
            cpus: parts.remove(&address).unwrap_or_default(),
        })
        .collect();
    functions.sort_by_key(|f| (std::cmp::Reverse(f.total), f.address));
    let cpus = tables.iter().filter_map(|one| one.cpu);
    let sum = |number: fn(&TableHeader) -> u64| {
        let numbers = tables.iter().map(|one| number(&one.header));
        numbers.fold(0, u64::saturating_add)
    };
    let most = |number: fn(&TableHeader) -> u64| {
        let numbers = tables.iter().map(|one| number(&one.header));
        numbers.max().unwrap_or(0)
    };
    let present: HashSet<_> = cpus.clone().map(|cpu| cpu.number).collect();
    ProfileTable {
        functions,
        slots: most(|header| header.slots.into()) as u32,
        taken: most(|header| header.entries.into()) as u32,
        cpus: cpus.clone().next().map_or(1, |cpu| cpu.cpus),
        missing: cpus
            .clone()
            .next()
            .map_or(0..0, |cpu| 0..cpu.cpus)
            .filter(|number| !present.contains(number))
            .collect(),
        no_slot: sum(|header| header.no_slot),
        replaced: sum(|header| header.replaced),
        replaced_total: time(sum(|header| header.replaced_total)),
        too_deep: sum(|header| header.too_deep),
        unmatched: sum(|header| header.unmatched),
        recorded: time(most(|header| header.recorded)),
        clock_hz,
    }
}

/// Adds a function's entry to a sum and to the count of its calls.
fn add((sum, count): &mut (Entry, u64), entry: &Entry) {
    sum.min = match (sum.count, entry.count) {
        (_, 0) => sum.min,
        (0, _) => entry.min,
        _ => sum.min.min(entry.min),
    };
    // (Only to know whether there was any.)
    sum.count = sum.count.saturating_add(entry.count);
    *count = count.saturating_add(entry.count.into());
    sum.total = sum.total.saturating_add(entry.total);
    sum.self_time = sum.self_time.saturating_add(entry.self_time);
    sum.max = sum.max.max(entry.max);
    sum.recursive |= entry.recursive;
}

#[cfg(test)]
mod tests;
