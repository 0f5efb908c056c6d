//! The functions of `kymo_items.h`.

use core::ffi::{c_char, c_void};

#[cfg(all(target_os = "none", not(target_arch = "aarch64")))]
use kymo::items::Ring;
use kymo::items::{
    Cursor, Drained, Item, Timed, drain, memory, produce_list, produce_n, registers, text,
};
use kymo::system;

/// Produces one item.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_produce(id: u32, data: usize) {
    system::produce(&[Item { id, data }]);
}

/// Produces two items with one timestamp.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_produce_2(id_0: u32, data_0: usize, id_1: u32, data_1: usize) {
    produce_n(&pair(id_0, data_0, id_1, data_1));
}

/// Produces any number of items with one timestamp.
///
/// # Safety
/// `items` points to `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_produce_n(items: *const Item, count: usize) {
    // SAFETY: by this function's contract.
    produce_n(unsafe { slice(items, count) });
}

/// Produces an item, followed by words with consecutive ids.
///
/// # Safety
/// `words` points to `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_produce_list(
    id: u32,
    data: usize,
    first_id: u32,
    words: *const usize,
    count: usize,
) {
    // SAFETY: by this function's contract.
    produce_list(Item { id, data }, first_id, unsafe { slice(words, count) });
}

/// Records a text under an id.
///
/// # Safety
/// `string` is NUL-terminated, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_text(id: u32, string: *const c_char) {
    if !string.is_null() {
        // SAFETY: by this function's contract.
        text(
            id as u16,
            unsafe { core::ffi::CStr::from_ptr(string) }.to_bytes(),
        );
    }
}

/// Records a block of memory.
///
/// # Safety
/// There are `length` bytes at `address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_memory(address: *const c_void, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { memory(address.cast(), length) }
}

/// Records a set of registers.
///
/// # Safety
/// There are `length` bytes at `saved`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_registers(saved: *const c_void, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { registers(saved.cast(), length) }
}

/// Reads the items after a cursor.
///
/// # Safety
/// `items` points to room for `count` of them, and `cursor` to a cursor, all zero at first, that nobody
/// else uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_items_drain(
    cursor: *mut Cursor,
    items: *mut Timed,
    count: usize,
) -> Drained {
    if cursor.is_null() || (items.is_null() && count != 0) {
        return Drained::default();
    }
    let out = if count == 0 {
        &mut []
    } else {
        // SAFETY: by this function's contract; any bytes are an item.
        unsafe { core::slice::from_raw_parts_mut(items, count) }
    };
    // SAFETY: by this function's contract.
    drain(unsafe { &mut *cursor }, out)
}

/// Produces items in a ring of one interrupt level.
///
/// # Safety
/// `ring` was defined by `KYMO_RING`, and `items` points to `count` items.
#[cfg(all(target_os = "none", not(target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_ring_produce(ring: *const Ring, items: *const Item, count: usize) {
    // SAFETY: by this function's contract.
    if let Some(ring) = unsafe { ring.as_ref() } {
        // SAFETY: as above.
        system::produce_in(ring, unsafe { slice(items, count) });
    }
}

/// Changes packets after a producer in assembly has stored an item at the end of a packet.
///
/// # Safety
/// `ring` was defined by `KYMO_RING`.
#[cfg(all(target_os = "none", not(target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_item_landed(ring: *const Ring) {
    // SAFETY: by this function's contract.
    if let Some(ring) = unsafe { ring.as_ref() } {
        system::landed(ring);
    }
}

fn pair(id_0: u32, data_0: usize, id_1: u32, data_1: usize) -> [Item; 2] {
    let item = |id, data| Item { id, data };
    [item(id_0, data_0), item(id_1, data_1)]
}

/// Converts a C array to a slice.
///
/// # Safety
/// `first` points to `count` elements, or `count` is 0.
unsafe fn slice<'a, E>(first: *const E, count: usize) -> &'a [E] {
    if count == 0 {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(first, count) }
}
