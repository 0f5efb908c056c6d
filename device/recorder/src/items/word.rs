//! Words of the target in memory, in its byte order and size.

use kymo_wire::event::{ByteOrder, Layout};
use kymo_wire::items;

use crate::Target;

/// Splits a word of the target into the integers of its first and last four bytes; on 32-bit targets the second is 0.
pub(super) fn halves(layout: Layout, value: u64) -> [u32; 2] {
    if items::item_bytes(layout.word) == 12 {
        in_order(layout.order, value)
    } else {
        [value as u32, 0]
    }
}

/// Reverts [`halves`].
pub(super) fn whole(layout: Layout, [first, second]: [u32; 2]) -> u64 {
    let (first, second) = (u64::from(first), u64::from(second));
    match layout.order {
        _ if items::item_bytes(layout.word) == 8 => first,
        ByteOrder::Little => first | second << 32,
        ByteOrder::Big => first << 32 | second,
    }
}

/// Splits `value` into the integers of its first and last four bytes.
pub(super) fn in_order(order: ByteOrder, value: u64) -> [u32; 2] {
    let (low, high) = (value as u32, (value >> 32) as u32);
    match order {
        ByteOrder::Little => [low, high],
        ByteOrder::Big => [high, low],
    }
}

/// Converts an integer between the target's byte order and this machine's.
#[inline(always)]
pub(super) fn ordered<T: Target>(value: u32) -> u32 {
    match T::LAYOUT.order {
        ByteOrder::Little => value.to_le(),
        ByteOrder::Big => value.to_be(),
    }
}
