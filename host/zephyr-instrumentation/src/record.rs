//! Record layout: packed fields in the target's byte order, all records of one size.
//!
//! Targets differ in the pointer width, the byte order, and the length of thread names (`CONFIG_THREAD_MAX_NAME_LEN`).
//! [`Layout`] holds these three and reads records accordingly.

use std::ops::RangeInclusive;

/// Possible sizes of the field for a thread's name, in bytes (`CONFIG_THREAD_MAX_NAME_LEN`).
pub const NAME_BYTES: RangeInclusive<usize> = 8..=128;

/// Kinds of dumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records of calls and thread switches, from `dump_trace`.
    Trace,
    /// Table of functions with their total times, from `dump_profile`.
    Profile,
}

impl Kind {
    /// The kind of dump in which a record begins with this byte; `None` if none does.
    pub const fn of(first: u8) -> Option<Self> {
        match RecordType::of(first) {
            Some(_) => Some(Self::Trace),
            None if first == PROFILE => Some(Self::Profile),
            None => None,
        }
    }
}

/// Record type of a profile's entries.
const PROFILE: u8 = 2;

/// Record types of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordType {
    /// A function was entered.
    Entry,
    /// A function exits.
    Exit,
    /// A thread got a CPU: the entry of `z_thread_mark_switched_in`.
    SwitchedIn,
    /// A thread lost its CPU: the entry of `z_thread_mark_switched_out`.
    SwitchedOut,
}

impl RecordType {
    /// The type with this number; `None` if traces have no such record.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Entry),
            1 => Some(Self::Exit),
            3 => Some(Self::SwitchedIn),
            4 => Some(Self::SwitchedOut),
            _ => None,
        }
    }

    /// Its name in Zephyr's metadata (`ctf/metadata.template`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "func_entry_with_context",
            Self::Exit => "func_exit_with_context",
            Self::SwitchedIn => "sched_switched_in",
            Self::SwitchedOut => "sched_switched_out",
        }
    }
}

/// Pointer width of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerWidth {
    /// 4 bytes.
    Bits32,
    /// 8 bytes.
    Bits64,
}

impl PointerWidth {
    /// The width in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }
}

/// Byte order of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

/// Layout of the records of one dump.
///
/// | field of a trace's record | offset (pointers of P bytes) |
/// |---|---|
/// | type, 1 byte | 0 |
/// | callee, P bytes | 1 |
/// | caller, P bytes | 1 + P |
/// | time in nanoseconds, 8 bytes | 1 + 2 P |
/// | low 3 bits of the priority, CPU in 5 bits | 9 + 2 P |
/// | thread, P bytes | 10 + 2 P |
/// | name of the thread, N bytes | 10 + 3 P |
///
/// An entry of the profile is a type (1 byte), a function (P bytes) and nanoseconds (8 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Pointer width.
    pub pointer: PointerWidth,
    /// Byte order.
    pub order: ByteOrder,
    /// Size of thread names in bytes (within [`NAME_BYTES`]); `None` for a profile, which has none.
    pub name_bytes: Option<usize>,
}

/// A record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its type.
    pub kind: RecordType,
    /// The function, as the compiler passed it to the hook: for Thumb code bit 0 of its address is set.
    pub callee: u64,
    /// The address after the call in the caller, also with a Thumb bit.
    pub caller: u64,
    /// Timestamp in nanoseconds; the origin is around the target's start.
    pub time_ns: u64,
    /// The low three bits of the thread's priority. Zephyr's documentation incorrectly calls it the processor's mode:
    /// priorities 7, 15 and -1 are all 7 here.
    pub priority_bits: u8,
    /// The CPU.
    pub cpu: u8,
    /// The address of the thread's control block; 0 before there are threads.
    pub thread: u64,
    /// The thread's name, without trailing zeros. A name without any fills its field, and may have been truncated.
    pub name: &'a [u8],
}

/// An entry of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The function, with its Thumb bit.
    pub function: u64,
    /// The time spent in it and its callees, in nanoseconds, summed over all threads; a sum of differences modulo 2^64.
    /// A clock that steps back makes some of these negative.
    pub total_ns: u64,
}

impl Record<'_> {
    /// Whether the name has no control characters. Hardly any name has; bytes that are not a name often do.
    pub fn has_plain_name(&self) -> bool {
        !self.name.iter().any(u8::is_ascii_control)
    }
}

/// Reads fields from the start of a record.
struct Fields<'a> {
    rest: &'a [u8],
    layout: Layout,
}

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(field)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        let field = self.take(bytes)?.iter();
        let append = |number, byte: &u8| number << 8 | u64::from(*byte);
        Some(match self.layout.order {
            ByteOrder::Little => field.rev().fold(0, append),
            ByteOrder::Big => field.fold(0, append),
        })
    }

    fn pointer(&mut self) -> Option<u64> {
        self.number(self.layout.pointer.bytes())
    }
}

impl Layout {
    /// The kind of dump.
    pub const fn kind(&self) -> Kind {
        match self.name_bytes {
            Some(_) => Kind::Trace,
            None => Kind::Profile,
        }
    }

    /// The size of a record in bytes.
    pub const fn size(&self) -> usize {
        match self.name_bytes {
            Some(name) => 10 + 3 * self.pointer.bytes() + name,
            None => 9 + self.pointer.bytes(),
        }
    }

    /// The record of a trace at the start of these bytes; `None` if they are too few, the type is invalid, or the
    /// layout is a profile's.
    pub fn record<'a>(&self, bytes: &'a [u8]) -> Option<Record<'a>> {
        let name_bytes = self.name_bytes?;
        let mut fields = Fields {
            rest: bytes,
            layout: *self,
        };
        let kind = RecordType::of(fields.byte()?)?;
        let (callee, caller) = (fields.pointer()?, fields.pointer()?);
        let time_ns = fields.number(8)?;
        let bits = fields.byte()?;
        // Bit fields are allocated from the end at which the byte order begins.
        let (priority_bits, cpu) = match self.order {
            ByteOrder::Little => (bits & 7, bits >> 3),
            ByteOrder::Big => (bits >> 5, bits & 31),
        };
        let thread = fields.pointer()?;
        let name = fields.take(name_bytes)?;
        let end = memchr::memchr(0, name).unwrap_or(name.len());
        Some(Record {
            kind,
            callee,
            caller,
            time_ns,
            priority_bits,
            cpu,
            thread,
            name: name.get(..end).unwrap_or(name),
        })
    }

    /// The entry of a profile at the start of these bytes; `None` if they are too few, the type is another, or the
    /// layout is a trace's.
    pub fn entry(&self, bytes: &[u8]) -> Option<Entry> {
        let mut fields = Fields {
            rest: bytes,
            layout: *self,
        };
        if self.name_bytes.is_some() || fields.byte()? != PROFILE {
            return None;
        }
        Some(Entry {
            function: fields.pointer()?,
            total_ns: fields.number(8)?,
        })
    }

    /// Whether these bytes can begin with a record of this layout: its type exists, its function is not null, its time
    /// is within two years of the target's start (a profile's total within as much of zero), and the name of its thread
    /// is followed only by zeros. Few bytes that are not a record pass.
    ///
    /// The name itself may be any bytes: Zephyr copies the given name (`k_thread_name_set`, `strncpy`), which may be
    /// `"\x1b[1mnet"` or not be text at all.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        /// Limit of plausible times: 2^56 nanoseconds are 833 days.
        const TIMES: u64 = 1 << 56;
        let Some(bytes) = bytes.get(..self.size()) else {
            return false;
        };
        if self.kind() == Kind::Profile {
            // A total can be negative, modulo 2^64.
            return self.entry(bytes).is_some_and(|entry| {
                let total = entry.total_ns.min(entry.total_ns.wrapping_neg());
                entry.function != 0 && total < TIMES
            });
        }
        let Some(record) = self.record(bytes) else {
            return false;
        };
        let padding = self.name_bytes.unwrap_or(0) - record.name.len();
        let (_, padding) = bytes.split_at(bytes.len() - padding);
        record.callee != 0 && record.time_ns < TIMES && padding.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_every_width_and_order_are_read() {
        for (pointer, order) in [
            (PointerWidth::Bits32, ByteOrder::Little),
            (PointerWidth::Bits32, ByteOrder::Big),
            (PointerWidth::Bits64, ByteOrder::Little),
            (PointerWidth::Bits64, ByteOrder::Big),
        ] {
            let number = |value: u64, bytes: usize| match order {
                ByteOrder::Little => value.to_le_bytes()[..bytes].to_vec(),
                ByteOrder::Big => value.to_be_bytes()[8 - bytes..].to_vec(),
            };
            let p = pointer.bytes();
            let bits = match order {
                ByteOrder::Little => 7 | 19 << 3,
                ByteOrder::Big => 7 << 5 | 19,
            };
            let bytes = [
                vec![4],
                number(0x1235, p),
                number(0x1241, p),
                number(0x0102_0304_0506, 8),
                vec![bits],
                number(0x2000_0100, p),
                b"thread_A".to_vec(),
            ]
            .concat();
            let layout = Layout {
                pointer,
                order,
                name_bytes: Some(8),
            };
            assert_eq!(layout.size(), bytes.len());
            assert!(layout.fits(&bytes));
            let record = Record {
                kind: RecordType::SwitchedOut,
                callee: 0x1235,
                caller: 0x1241,
                time_ns: 0x0102_0304_0506,
                priority_bits: 7,
                cpu: 19,
                thread: 0x2000_0100,
                // It fills its field.
                name: b"thread_A",
            };
            assert_eq!(layout.record(&bytes), Some(record));
            assert_eq!(layout.record(&bytes[..bytes.len() - 1]), None);
            assert_eq!(layout.entry(&bytes), None);

            let entry = [vec![2], number(0x1235, p), number(u64::MAX - 4, 8)].concat();
            let layout = Layout {
                name_bytes: None,
                ..layout
            };
            assert_eq!(layout.size(), entry.len());
            let read = Entry {
                function: 0x1235,
                total_ns: u64::MAX - 4,
            };
            assert_eq!(layout.entry(&entry), Some(read));
            assert_eq!(layout.record(&entry), None);
        }
    }
}
