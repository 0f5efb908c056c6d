//! Items: fixed-size records of the shape that RTEMS records, with an id and a word of data.
//!
//! `kymo_items.h` describes them in full. A bare-metal program sets the number of packets once, with
//! [`items!`](macro@crate::items). On Linux every thread that produces items gets that many. On bare-metal AArch64 each
//! CPU has a ring (`cpu_items!`).
//!
//! ```no_run
//! kymo::items!(8);
//! # fn main() {
//! kymo::items::produce(kymo::items::USER, 42);
//! # }
//! ```

use core::mem::size_of;

pub use kymo_recorder::items::{Cursor, Drained, Item, Timed};
pub use kymo_wire::items::{Name, USER, id};

use crate::system;
#[cfg(target_os = "none")]
pub use crate::system::Ring;

/// Maximum number of items that can be produced at once: the capacity of a packet.
pub const AT_ONCE: usize = if size_of::<usize>() == 4 { 121 } else { 336 };

/// Maximum number of words for [`produce_list`].
const LIST: usize = 16;

/// Memory for a ring of items on bare metal: `N` packets.
#[cfg(target_os = "none")]
#[cfg_attr(target_pointer_width = "32", repr(C, align(1024)))]
#[cfg_attr(target_pointer_width = "64", repr(C, align(4096)))]
#[derive(Debug)]
pub struct Packets<const N: usize>(core::cell::UnsafeCell<[[u8; Ring::PACKET]; N]>);

// SAFETY: only the recorder uses what is inside, under its own rules.
#[cfg(target_os = "none")]
unsafe impl<const N: usize> Sync for Packets<N> {}

#[cfg(target_os = "none")]
impl<const N: usize> Packets<N> {
    /// Creates zeroed memory.
    pub const fn new() -> Self {
        Self(core::cell::UnsafeCell::new([[0; Ring::PACKET]; N]))
    }

    /// Returns its address.
    pub const fn get(&'static self) -> *mut u8 {
        self.0.get().cast()
    }
}

#[cfg(target_os = "none")]
impl<const N: usize> Default for Packets<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of all CPUs' rings: see [`cpu_items!`](macro@crate::cpu_items).
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
pub use kymo_recorder::cpus::CpuItems;

/// Gives each of `$cpus` CPUs a ring of `$packets` packets of items (at least 2), once per program.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
#[macro_export]
macro_rules! cpu_items {
    ($cpus:literal, $packets:literal) => {
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        static kymo_cpu_items: $crate::items::CpuItems = {
            const { assert!($packets >= 2) };
            static PACKETS: $crate::items::Packets<{ $cpus * $packets }> =
                $crate::items::Packets::new();
            $crate::items::CpuItems {
                memory: PACKETS.get(),
                packets: $packets,
                cpus: $cpus,
            }
        };
    };
}

/// Defines the ring of items, once per program, with `$packets` packets (at least 2).
#[cfg(all(target_os = "none", not(target_arch = "aarch64")))]
#[macro_export]
macro_rules! items {
    ($packets:literal) => {
        // Counter that `kymo_ring_put` reads, unless the linker script defines the symbol.
        #[cfg(target_arch = "arm")]
        core::arch::global_asm!(".weak kymo_counter", ".set kymo_counter, 0xE0001004");
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        static kymo_items: $crate::items::Ring = {
            const { assert!($packets >= 2) };
            static PACKETS: $crate::items::Packets<$packets> = $crate::items::Packets::new();
            // SAFETY: it is static, aligned by its type, and used by nothing else.
            unsafe { $crate::items::Ring::new(PACKETS.get(), $packets, 0) }
        };
    };
}

/// Sets how many packets of items each thread gets, once per program (at least 2).
#[cfg(not(target_os = "none"))]
#[macro_export]
macro_rules! items {
    ($packets:literal) => {
        #[allow(non_upper_case_globals)]
        #[unsafe(no_mangle)]
        static kymo_items_packets: u32 = $packets;
    };
}

/// Produces an item.
pub fn produce(id: u16, data: usize) {
    let id = id.into();
    system::produce(&[Item { id, data }]);
}

/// Produces items that share one timestamp and stay together: in one packet, with no other item between them. A group
/// of more than [`AT_ONCE`] is not recorded, and counted.
pub fn produce_n(items: &[Item]) {
    system::produce(items);
}

/// Produces an item, followed by up to 16 words with ids from `first` on, all with one timestamp.
pub fn produce_list(item: Item, first: u32, words: &[usize]) {
    let words = words.get(..LIST).unwrap_or(words);
    let mut items = [item; LIST + 1];
    for (n, word) in words.iter().enumerate() {
        if let Some(to) = items.get_mut(n + 1) {
            let id = first.wrapping_add(n as u32);
            *to = Item { id, data: *word };
        }
    }
    produce_n(items.get(..=words.len()).unwrap_or(&[]));
}

/// Records a text, with one item of this id per word; character k of a word is in its bits 8k to 8k + 7. At most
/// [`AT_ONCE`] words.
pub fn text(id: u16, text: &[u8]) {
    pieces(text.chunks(size_of::<usize>()).take(AT_ONCE), |word| Item {
        id: id.into(),
        data: little(word),
    });
}

/// Records a block of memory: its address, its length, then its words. A block of more than 16 words is recorded in
/// several such groups.
///
/// # Safety
/// There are `length` bytes at `address` that may be read.
pub unsafe fn memory(address: *const u8, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { block(id::MEMORY, address, length) }
}

/// Records a set of registers that was saved at an address.
///
/// # Safety
/// There are `length` bytes at `address` that may be read.
pub unsafe fn registers(address: *const u8, length: usize) {
    // SAFETY: by this function's contract.
    unsafe { block(id::REGISTERS, address, length) }
}

/// Words of a block that are recorded at once, with interrupts masked meanwhile.
const BLOCK: usize = 16;

/// Records words of memory under an id, after their address and length.
///
/// # Safety
/// There are `length` bytes at `address` that may be read.
unsafe fn block(id: u16, address: *const u8, length: usize) {
    let mut done = 0;
    while done < length {
        let bytes = (length - done).min(BLOCK * size_of::<usize>());
        let from = address.wrapping_add(done);
        let mut items = [Item {
            id: id.into(),
            data: 0,
        }; BLOCK + 2];
        let [first, second, words @ ..] = &mut items;
        *first = Item {
            id: id::ADDRESS.into(),
            data: from as usize,
        };
        *second = Item {
            id: id::LENGTH.into(),
            data: bytes,
        };
        for (i, word) in words.iter_mut().enumerate() {
            let mut raw = [0; size_of::<usize>()];
            let at = i * raw.len();
            let rest = bytes.saturating_sub(at).min(raw.len());
            for (k, byte) in raw.iter_mut().enumerate().take(rest) {
                // SAFETY: `at + k` is below `bytes`, so within the block. It may change meanwhile.
                *byte = unsafe { from.add(at + k).read_volatile() };
            }
            word.data = usize::from_ne_bytes(raw);
        }
        let count = 2 + bytes.div_ceil(size_of::<usize>());
        produce_n(items.get(..count).unwrap_or(&[]));
        done += bytes;
    }
}

/// Produces one item for each word; sixteen share a timestamp.
fn pieces<'a>(words: impl Iterator<Item = &'a [u8]>, item: impl Fn(&[u8]) -> Item) {
    let mut items = [Item { id: 0, data: 0 }; LIST];
    let mut count = 0;
    for word in words {
        if let Some(to) = items.get_mut(count) {
            *to = item(word);
            count += 1;
        }
        if count == LIST {
            produce_n(&items);
            count = 0;
        }
    }
    produce_n(items.get(..count).unwrap_or(&[]));
}

/// Converts bytes to a word, the first byte lowest.
fn little(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | usize::from(*byte))
}

/// Reads items after `cursor`, in order, as many as fit into `out`. Each item that was produced is returned once or
/// counted as lost once. On Linux it reads the items of the calling thread, on bare-metal AArch64 those of the CPU.
#[inline]
pub fn drain(cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
    system::drain(cursor, out)
}

/// Produces one item in a ring. (Where it is not in assembly: `device/arch`.)
///
/// # Safety
/// `ring` was defined by `KYMO_RING`.
#[cfg(all(target_os = "none", not(target_arch = "aarch64"), not(kymo_assembly)))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_ring_put(ring: *const Ring, id: u32, data: usize) {
    // SAFETY: by this function's contract.
    if let Some(ring) = unsafe { ring.as_ref() } {
        system::produce_in(ring, &[Item { id, data }]);
    }
}
