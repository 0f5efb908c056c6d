//! How records are laid out: packed, in the target's byte order, all of one size.
//!
//! What differs between targets is the width of pointers, the byte order, and the length of the names
//! of threads (`CONFIG_THREAD_MAX_NAME_LEN`). [`Layout`] holds these three and reads records by them.

use std::ops::RangeInclusive;

/// How long the field for a thread's name can be, in bytes (`CONFIG_THREAD_MAX_NAME_LEN`).
pub const NAME_BYTES: RangeInclusive<usize> = 8..=128;

/// What a dump holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Records of calls and of switches between threads, from `dump_trace`.
    Trace,
    /// The table of functions with their total times, from `dump_profile`.
    Profile,
}

impl Kind {
    /// What a dump holds of which a record begins with this byte; `None` if none does.
    pub const fn of(first: u8) -> Option<Self> {
        match RecordType::of(first) {
            Some(_) => Some(Self::Trace),
            None if first == PROFILE => Some(Self::Profile),
            None => None,
        }
    }
}

/// The type of an entry of the profile.
const PROFILE: u8 = 2;

/// What a record of a trace tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordType {
    /// A function was entered.
    Entry,
    /// A function was left.
    Exit,
    /// A thread got a processor: the entry of `z_thread_mark_switched_in`.
    SwitchedIn,
    /// A thread lost its processor: the entry of `z_thread_mark_switched_out`.
    SwitchedOut,
}

impl RecordType {
    /// The type of this number in a record; `None` if no record of a trace has it.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Entry),
            1 => Some(Self::Exit),
            3 => Some(Self::SwitchedIn),
            4 => Some(Self::SwitchedOut),
            _ => None,
        }
    }

    /// What Zephyr's own metadata calls it (`ctf/metadata.template`).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "func_entry_with_context",
            Self::Exit => "func_exit_with_context",
            Self::SwitchedIn => "sched_switched_in",
            Self::SwitchedOut => "sched_switched_out",
        }
    }
}

/// How wide a target's pointers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerWidth {
    /// 4 bytes.
    Bits32,
    /// 8 bytes.
    Bits64,
}

impl PointerWidth {
    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Bits32 => 4,
            Self::Bits64 => 8,
        }
    }
}

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

/// How the records of one dump are laid out.
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
    /// How wide pointers are.
    pub pointer: PointerWidth,
    /// In which order the bytes of numbers are.
    pub order: ByteOrder,
    /// How long the names of threads are, in bytes (within [`NAME_BYTES`]); `None` for a profile, which
    /// has none.
    pub name_bytes: Option<usize>,
}

/// A record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it tells.
    pub kind: RecordType,
    /// The function, as the compiler gave it to the hook: with Thumb code its address has bit 0 set.
    pub callee: u64,
    /// Where the function was called from: the address behind the call, also with a Thumb bit.
    pub caller: u64,
    /// When, in nanoseconds since some moment of the target's start.
    pub time_ns: u64,
    /// The low three bits of the thread's priority. Zephyr's documents call it the processor's mode,
    /// which it is not: priorities 7, 15 and -1 are all 7 here.
    pub priority_bits: u8,
    /// The processor.
    pub cpu: u8,
    /// The address of the thread's control block; 0 before there are threads.
    pub thread: u64,
    /// The thread's name, without the zeros behind it. If it fills its field there are none, and it may
    /// have been longer.
    pub name: &'a [u8],
}

/// An entry of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The function, with its Thumb bit.
    pub function: u64,
    /// The time spent in it and in what it called, in nanoseconds, of all threads together; a sum of
    /// differences modulo 2^64. A clock that steps back makes some of these negative.
    pub total_ns: u64,
}

impl Record<'_> {
    /// Whether the name has no control characters, as hardly any has; bytes that are no name often do.
    pub fn has_plain_name(&self) -> bool {
        !self.name.iter().any(u8::is_ascii_control)
    }
}

/// Takes fields off the front of a record.
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
    /// What such a dump holds.
    pub const fn kind(&self) -> Kind {
        match self.name_bytes {
            Some(_) => Kind::Trace,
            None => Kind::Profile,
        }
    }

    /// The bytes of a record.
    pub const fn size(&self) -> usize {
        match self.name_bytes {
            Some(name) => 10 + 3 * self.pointer.bytes() + name,
            None => 9 + self.pointer.bytes(),
        }
    }

    /// The record of a trace that these bytes begin with; `None` if they are too few, or its type is
    /// none, or the layout is a profile's.
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
        // Bit fields are laid out from the end where numbers begin.
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

    /// The entry of a profile that these bytes begin with; `None` if they are too few, or its type is
    /// another, or the layout is a trace's.
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

    /// Whether these bytes can begin with a record of this layout: its type exists, its function is not
    /// null, its time lies within two years of the target's start (a profile's total within as much of
    /// zero), and behind the name of its thread there are only zeros. Of bytes that are no such record few
    /// pass.
    ///
    /// The name itself may be any bytes: Zephyr copies what it is given (`k_thread_name_set`, `strncpy`),
    /// and that may well be `"\x1b[1mnet"` or not be text at all.
    pub fn fits(&self, bytes: &[u8]) -> bool {
        /// What the highest byte of a time can't reach: 2^56 nanoseconds are 833 days.
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
