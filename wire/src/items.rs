//! Items: fixed-size records of the shape that RTEMS records, in a stream of their own.
//!
//! An *item* is a 10-bit id, the low 22 bits of the clock, and one word of data: 8 bytes on a 32-bit target, 12 on a
//! 64-bit one. Programs that use RTEMS's producer interface keep their events, ids and conventions (an entry has the
//! caller, then arguments), and a hook of twelve instructions. The packets have [`ITEM_STREAM`] as `stream_id`.
//!
//! | bytes | field |
//! |---|---|
//! | packet header | as in any stream ([`PacketHeader`](crate::packet::PacketHeader)), then `u32 items_before`: number of items produced before this packet, kept or not |
//! | item | `id` (10 bits), `timestamp` (22 bits), `word data` |
//! | item with id [`TIME`] | `id` (10 bits), `timestamp` (54 bits) instead of time and data; on 64-bit targets followed by 4 unused bytes |
//!
//! Bit fields fill from the least significant bit on little-endian targets, from the most significant one on big-endian
//! ones, as everywhere.
//!
//! Packets have a fixed size, a power of two ([`packet_bytes`]), and are aligned to it, so that a producer detects a
//! full one by the low bits of its pointer. The last slot of each packet is the *sentinel slot* and never holds
//! content: see the recorder's `items`.

use core::fmt;

use crate::event::{ByteOrder, Layout, WordSize};
use crate::packet::ITEM_STREAM;

mod names;

/// Width of an item's id in bits.
pub const ID_BITS: u32 = 10;

/// Width of the clock in an item in bits.
pub const TIME_BITS: u32 = 22;

/// Width of the clock in an item that is only a timestamp ([`TIME`]) in bits.
pub const LONG_TIME_BITS: u32 = 54;

/// First of the user ids; there are 512 user ids and 512 system ids.
pub const USER: u16 = 512;

/// The highest id.
pub const LAST: u16 = 1023;

/// Timestamp only: the time to the next item is longer than that item's timestamp covers. One of the ids that RTEMS
/// leaves unused.
pub const TIME: u16 = 511;

/// Ids of RTEMS's system events that the recorder itself produces.
pub mod id {
    #![allow(
        missing_docs,
        reason = "they are RTEMS's words, and said in its documentation"
    )]
    pub const ADDRESS: u16 = 19;
    pub const ALIGNED_ALLOC_ENTRY: u16 = 20;
    pub const ALIGNED_ALLOC_EXIT: u16 = 21;
    pub const ARG_0: u16 = 22;
    pub const ARG_1: u16 = 23;
    pub const ARG_2: u16 = 24;
    pub const CALLOC_ENTRY: u16 = 36;
    pub const CALLOC_EXIT: u16 = 37;
    pub const FREE_ENTRY: u16 = 55;
    pub const FREE_EXIT: u16 = 56;
    pub const LENGTH: u16 = 100;
    pub const MALLOC_ENTRY: u16 = 108;
    pub const MALLOC_EXIT: u16 = 109;
    pub const MEMORY: u16 = 110;
    pub const POSIX_MEMALIGN_ENTRY: u16 = 123;
    pub const POSIX_MEMALIGN_EXIT: u16 = 124;
    pub const REALLOC_ENTRY: u16 = 131;
    pub const REALLOC_EXIT: u16 = 132;
    pub const REGISTERS: u16 = 139;
    pub const RETURN_0: u16 = 142;
    pub const RETURN_1: u16 = 143;
}

/// Size and alignment of a packet of items in bytes.
pub const fn packet_bytes(word: WordSize) -> usize {
    match word {
        WordSize::Bits32 => 1024,
        WordSize::Bits64 => 4096,
    }
}

/// Size of an item in bytes.
pub const fn item_bytes(word: WordSize) -> usize {
    4 + word.bytes()
}

/// Size of a packet's header in bytes.
pub const fn header_bytes(layout: Layout) -> usize {
    layout.header_bytes() + 4
}

/// Returns the low bits of a time that an item stores.
pub const fn time_bits(time: u64) -> u32 {
    time as u32 & ((1 << TIME_BITS) - 1)
}

/// Encodes the first word of an item, as an integer in the target's order.
#[inline(always)]
pub const fn head(order: ByteOrder, id: u16, time: u64) -> u32 {
    let (id, time) = ((id & LAST) as u32, time_bits(time));
    match order {
        ByteOrder::Little => id | time << ID_BITS,
        ByteOrder::Big => id << TIME_BITS | time,
    }
}

/// Decodes the id and time of an item's first word: the inverse of [`head`].
pub const fn split(order: ByteOrder, head: u32) -> (u16, u32) {
    match order {
        ByteOrder::Little => ((head & LAST as u32) as u16, head >> ID_BITS),
        ByteOrder::Big => ((head >> TIME_BITS) as u16, head & ((1 << TIME_BITS) - 1)),
    }
}

/// Encodes a [`TIME`] item as the integers of its first and second four bytes in the target's order.
pub const fn long_time(order: ByteOrder, time: u64) -> [u32; 2] {
    match order {
        ByteOrder::Little => [head(order, TIME, time), (time >> TIME_BITS) as u32],
        ByteOrder::Big => [head(order, TIME, time >> 32), time as u32],
    }
}

/// Decodes the full time of a [`TIME`] item from its words, in the order of [`long_time`], after an item at time
/// `last`.
pub const fn from_long_time(order: ByteOrder, last: u64, [head, low]: [u32; 2]) -> u64 {
    let (_, time) = split(order, head);
    let time = match order {
        ByteOrder::Little => time as u64 | (low as u64) << TIME_BITS,
        ByteOrder::Big => (time as u64) << 32 | low as u64,
    };
    last.wrapping_add(time.wrapping_sub(last) & ((1 << LONG_TIME_BITS) - 1))
}

/// Name of an event, as in RTEMS's tools; `USER_0` and so on for user events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub u16);

impl Name {
    /// Parses a name.
    pub fn parse(name: &str) -> Option<Self> {
        let numbered = |prefix: &str, first: u16| {
            let number: u16 = name.strip_prefix(prefix)?.parse().ok()?;
            let id = number.checked_add(first)?;
            (id <= LAST).then_some(Self(id))
        };
        if name == "time" {
            return Some(Self(TIME));
        }
        if let Some(id) = names::SYSTEM.iter().position(|it| *it == name) {
            return Some(Self(id as u16));
        }
        numbered("SYSTEM_", 0)
            .filter(|Self(id)| names::SYSTEM.len() <= usize::from(*id) && *id < USER)
            .or_else(|| numbered("USER_", USER))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(id) = *self;
        match names::SYSTEM.get(usize::from(id)) {
            Some(name) => f.write_str(name),
            None if id == TIME => f.write_str("time"),
            None if id < USER => write!(f, "SYSTEM_{id}"),
            None => write!(f, "USER_{}", id - USER),
        }
    }
}

/// Writes the class of item streams, as a part of the metadata ([`crate::metadata`]), with all existing events, because
/// a stream may hold any.
pub(crate) fn describe(out: &mut impl fmt::Write, word: WordSize, context: &str) -> fmt::Result {
    write!(
        out,
        "\ntypealias integer {{ size = {TIME_BITS}; align = 1; signed = false; map = clock.monotonic.value; }} := item_time_t;\n\
         typealias integer {{ size = {LONG_TIME_BITS}; align = 1; signed = false; map = clock.monotonic.value; }} := item_long_time_t;\n\
         \n\
         stream {{\n\
         \tid = {ITEM_STREAM};\n\
         \tpacket.context := struct {{\n\
         {context}\
         \t\tuint32_t items_before;\n\
         \t}};\n\
         \tevent.header := struct {{\n\
         \t\tenum : integer {{ size = {ID_BITS}; align = 1; signed = false; }} {{ time = {TIME}, item = 0 ... {below}, item = {above} ... {LAST} }} id;\n\
         \t\tvariant <id> {{\n\
         \t\t\tstruct {{ item_time_t timestamp; }} item;\n\
         \t\t\tstruct {{ item_long_time_t timestamp; }} time;\n\
         \t\t}} v;\n\
         \t}} align(8);\n\
         }};\n\n",
        below = TIME - 1,
        above = TIME + 1,
    )?;
    for id in 0..=LAST {
        let fields = match (id, word) {
            (TIME, WordSize::Bits32) => "",
            (TIME, WordSize::Bits64) => " uint32_t unused; ",
            _ => " word_t data; ",
        };
        writeln!(
            out,
            "event {{ name = \"{}\"; id = {id}; stream_id = {ITEM_STREAM}; fields := struct {{{fields}}}; }};",
            Name(id)
        )?;
    }
    Ok(())
}

/// Returns whether the data of an event is a code address: a return address, or a function.
pub const fn is_code(id: u16) -> bool {
    // The ids that RTEMS's own tool looks up: CALLER, FUNCTION_ENTRY and _EXIT, ISR_DISABLE and _ENABLE, LINE,
    // THREAD_DISPATCH_DISABLE and _ENABLE.
    matches!(id, 35 | 63 | 64 | 87 | 88 | 101 | 278 | 279)
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn names_and_ids_agree() {
        for id in 0..=LAST {
            assert_eq!(Name::parse(&Name(id).to_string()), Some(Name(id)), "{id}");
        }
        for (id, name) in [
            (id::ADDRESS, "ADDRESS"),
            (id::ALIGNED_ALLOC_ENTRY, "ALIGNED_ALLOC_ENTRY"),
            (id::ALIGNED_ALLOC_EXIT, "ALIGNED_ALLOC_EXIT"),
            (id::ARG_0, "ARG_0"),
            (id::ARG_2, "ARG_2"),
            (id::CALLOC_ENTRY, "CALLOC_ENTRY"),
            (id::CALLOC_EXIT, "CALLOC_EXIT"),
            (id::FREE_ENTRY, "FREE_ENTRY"),
            (id::FREE_EXIT, "FREE_EXIT"),
            (id::LENGTH, "LENGTH"),
            (id::MALLOC_ENTRY, "MALLOC_ENTRY"),
            (id::MALLOC_EXIT, "MALLOC_EXIT"),
            (id::MEMORY, "MEMORY"),
            (id::POSIX_MEMALIGN_ENTRY, "POSIX_MEMALIGN_ENTRY"),
            (id::POSIX_MEMALIGN_EXIT, "POSIX_MEMALIGN_EXIT"),
            (id::REALLOC_ENTRY, "REALLOC_ENTRY"),
            (id::REALLOC_EXIT, "REALLOC_EXIT"),
            (id::REGISTERS, "REGISTERS"),
            (id::RETURN_0, "RETURN_0"),
            (id::RETURN_1, "RETURN_1"),
            (TIME, "time"),
            (USER, "USER_0"),
            (LAST, "USER_511"),
        ] {
            assert_eq!(Name(id).to_string(), name);
        }
        for name in [
            "",
            "USER_512",
            "SYSTEM_341",
            "SYSTEM_512",
            "USER_70000",
            "caller",
        ] {
            assert_eq!(Name::parse(name), None, "{name}");
        }
        for code in ["CALLER", "FUNCTION_ENTRY", "ISR_ENABLE", "LINE"] {
            assert!(is_code(Name::parse(code).unwrap().0), "{code}");
        }
        assert!(is_code(Name::parse("THREAD_DISPATCH_ENABLE").unwrap().0));
        assert!(!is_code(Name::parse("MALLOC_ENTRY").unwrap().0));
    }

    #[test]
    fn items_fill_their_bits_from_the_right_end() {
        assert_eq!(head(ByteOrder::Little, 1, 0x1_0000_0003), 0xC01);
        assert_eq!(head(ByteOrder::Big, 1, 0x1_0000_0003), 0x40_0003);
        for order in [ByteOrder::Little, ByteOrder::Big] {
            assert_eq!(split(order, head(order, 1023, 77)), (1023, 77));
            assert_eq!(split(order, head(order, 0, u64::MAX)), (0, 0x3F_FFFF));
        }
        let time = 0x12_3456_789A_BCDE;
        assert_eq!(
            long_time(ByteOrder::Little, time),
            [0x1A_BCDE << 10 | 511, 0x48D1_59E2]
        );
        assert_eq!(
            long_time(ByteOrder::Big, time),
            [511 << 22 | 0x12_3456, 0x789A_BCDE]
        );
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let words = long_time(order, time);
            assert_eq!(from_long_time(order, time - 9, words), time);
            assert_eq!(from_long_time(order, time + 1, words), time + (1 << 54));
        }
    }
}
