//! Load map: the program and the shared libraries whose functions are called, with their paths and build ids, as
//! metadata of the recording ([`MetadataType::Image`]).
//!
//! A function outside the program is looked up among the known images; if it is in none of them, in `/proc/self/maps`.
//! That takes no lock of the dynamic linker, which another thread, or the code that a signal handler interrupts, may
//! hold.
//!
//! A library may be unloaded and another one loaded at the same address. So when a function is called in an image that
//! was checked more than [`machine::UNLOAD_TICKS`] ago, the image is compared with its earlier state; replacing a
//! library takes longer than that. Reading the image is safe, because the function's caller is about to run it, and the
//! dynamic linker reports where the image begins. (If it cannot, as in glibc before 2.35, the library that was loaded
//! first keeps the address. musl never unloads.)

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use kymo_recorder::threads::ThreadPort as _;
use kymo_wire::event::MetadataType;

use super::Process;
use crate::elf::{Image, Place, place};
use crate::lock::Lock;
use crate::machine;
use crate::sys::{self, maps};

/// Maximum number of known images.
const MOST: usize = 512;

/// Size of the cache of images that were found last, indexed by a part of the address.
const RECENT: usize = 64;

/// Unit, in ticks as a power of two, of the time at which an image was checked.
const UNIT: u32 = 8;

/// Interval, in ticks as a power of two, between checks of memory that is not a file. Checking takes long, and programs
/// that generate code at run time call it often.
const UNNAMED_TICKS: u32 = 24;

/// Bytes of a path in one record, in addition to the number of the part.
const PART: usize = kymo_recorder::metadata::MAX_NAME - 1;

/// The known images.
#[derive(Debug)]
pub(crate) struct Images {
    /// Held while memory is looked up.
    lock: Lock,
    table: AtomicPtr<Table>,
    /// The program itself, which is never unloaded.
    program: AtomicUsize,
    program_bytes: AtomicUsize,
}

/// Table in memory of its own. All zero is an empty table.
struct Table {
    count: AtomicU32,
    /// The number of the last record.
    number: Cell<usize>,
    recent: [AtomicU16; RECENT],
    entries: [Entry; MOST],
    text: UnsafeCell<[u8; 2 * maps::LINE]>,
}

/// An image, or memory that is not an image.
struct Entry {
    start: AtomicUsize,
    /// 0: the entry is free.
    end: AtomicUsize,
    /// Hash of its headers and its build id.
    mark: AtomicU32,
    /// The number of its record; 0 if it is not an image.
    number: AtomicUsize,
    /// Time of the last check, in units of 2^[`UNIT`] ticks.
    seen: AtomicUsize,
}

impl Entry {
    fn holds(&self, address: usize) -> bool {
        let end = self.end.load(Ordering::Acquire);
        self.start.load(Ordering::Relaxed) <= address && address < end
    }

    fn is_named(&self) -> bool {
        self.number.load(Ordering::Relaxed) != 0
    }
}

impl Table {
    fn entries(&self) -> &[Entry] {
        let count = self.count.load(Ordering::Acquire) as usize;
        self.entries.get(..count).unwrap_or(&self.entries)
    }

    /// Returns the entry that contains an address.
    fn find(&self, address: usize) -> Option<&Entry> {
        let recent = self.recent.get((address >> 14) % RECENT)?;
        let entries = self.entries();
        let last = usize::from(recent.load(Ordering::Relaxed));
        if let Some(entry) = entries.get(last).filter(|entry| entry.holds(address)) {
            return Some(entry);
        }
        let (place, entry) = (0..).zip(entries).find(|(_, entry)| entry.holds(address))?;
        recent.store(place, Ordering::Relaxed);
        Some(entry)
    }

    /// Returns a free entry, or a new one.
    fn free(&self) -> Option<&Entry> {
        let gone = |entry: &&Entry| entry.end.load(Ordering::Relaxed) == 0;
        let known = self.entries();
        known.iter().find(gone).or_else(|| {
            let entry = self.entries.get(known.len())?;
            self.count.store(known.len() as u32 + 1, Ordering::Release);
            Some(entry)
        })
    }
}

impl Images {
    /// Creates an empty load map.
    pub const fn new() -> Self {
        Self {
            lock: Lock::new(),
            table: AtomicPtr::new(null_mut()),
            program: AtomicUsize::new(0),
            program_bytes: AtomicUsize::new(0),
        }
    }

    /// Resets the lock in the child of a fork, which keeps the images of its parent.
    pub fn fork(&self) {
        self.lock.reset();
    }

    fn table(&self) -> Option<&Table> {
        // SAFETY: null, or memory that stays for good and is used as a table only.
        unsafe { self.table.load(Ordering::Acquire).as_ref() }
    }

    /// Returns whether the image at the address is known, and was checked recently.
    fn knows(&self, address: usize, now: u64) -> bool {
        let Some(entry) = self.table().and_then(|table| table.find(address)) else {
            return false;
        };
        let wait = if entry.is_named() {
            machine::UNLOAD_TICKS
        } else {
            UNNAMED_TICKS
        };
        let passed = units(now).wrapping_sub(entry.seen.load(Ordering::Relaxed));
        passed < 1 << (wait - UNIT)
    }
}

impl Process {
    /// Records which image contains a function that is called, unless that is known.
    #[inline(always)]
    pub(super) fn follow_image(&self, address: usize) {
        let start = self.images.program.load(Ordering::Relaxed);
        let bytes = self.images.program_bytes.load(Ordering::Relaxed);
        if address.wrapping_sub(start) >= bytes {
            self.follow_library(address);
        }
    }

    #[inline(never)]
    fn follow_library(&self, address: usize) {
        if !self.images.knows(address, self.port.now()) {
            // A handler that interrupts this lookup skips its own: the next call in its image is soon enough.
            self.images.lock.with(|| self.look_at_image(address));
        }
    }

    /// Returns the start of the program's own image, and its size in bytes; 0 bytes if that is unknown.
    #[cfg(feature = "duration")]
    pub(super) fn program_image(&self) -> (usize, usize) {
        let images = &self.images;
        (
            images.program.load(Ordering::Relaxed),
            images.program_bytes.load(Ordering::Relaxed),
        )
    }

    /// Records the image of the program itself.
    pub(super) fn describe_program(&self, text_base: usize) {
        if text_base == 0 {
            return;
        }
        self.images.lock.with(|| {
            let entry = self.look_at_image(text_base);
            if let Some(entry) = entry.filter(|entry| entry.is_named()) {
                let (start, end) = (
                    entry.start.load(Ordering::Relaxed),
                    entry.end.load(Ordering::Relaxed),
                );
                self.images
                    .program_bytes
                    .store(end.wrapping_sub(start), Ordering::Relaxed);
                self.images.program.store(start, Ordering::Relaxed);
            }
        });
    }

    /// Looks up the image at an address. Under the lock.
    #[cold]
    fn look_at_image(&self, address: usize) -> Option<&Entry> {
        if self.images.table().is_none() {
            let memory = sys::map(size_of::<Table>()).ok()?;
            self.images.table.store(memory.cast(), Ordering::Release);
        }
        let table = self.images.table()?;
        let now = units(self.port.now());
        if let Some(known) = table.find(address) {
            if known.is_named() && is_same(known, address) {
                known.seen.store(now, Ordering::Relaxed);
                return Some(known);
            }
            self.forget_image(known);
        }
        let entry = table.free()?;
        // SAFETY: the holder of the lock is the only user.
        let text = unsafe { &mut *table.text.get() };
        let found = maps::mapped(address, text);
        let image = found.and_then(|found| {
            // SAFETY: the start of a file is mapped there, readable, and code of it is about to run.
            let image = unsafe { image_at(found.start) }?;
            Some((image, found.start, found.path?))
        });
        let (start, end) = match (&image, found) {
            (Some((image, start, _)), _) => (*start, start.wrapping_add(image.bytes())),
            (None, Some(found)) => (found.start, found.end),
            (None, None) => (address & !0xFFF, address | 0xFFF),
        };
        for other in table.entries() {
            let other_end = other.end.load(Ordering::Relaxed);
            if other.start.load(Ordering::Relaxed) < end && start < other_end {
                self.forget_image(other);
            }
        }
        let number = image.map_or(0, |(image, _, path)| {
            let number = table.number.get() + 1;
            table.number.set(number);
            self.record_image(number, (start, end), image.build_id(), path);
            number
        });
        let mark = image.map_or(0, |(image, ..)| mark(image));
        entry.mark.store(mark, Ordering::Relaxed);
        entry.number.store(number, Ordering::Relaxed);
        entry.seen.store(now, Ordering::Relaxed);
        entry.start.store(start, Ordering::Relaxed);
        entry.end.store(end, Ordering::Release);
        Some(entry)
    }

    /// Removes an image whose memory holds something else now.
    fn forget_image(&self, entry: &Entry) {
        entry.end.store(0, Ordering::Relaxed);
        let number = entry.number.load(Ordering::Relaxed);
        if number != 0 {
            let now = self.port.now();
            self.with_metadata(|metadata| {
                metadata.add(MetadataType::ImageUnloaded, now, number, &[]);
            });
        }
    }

    fn record_image(&self, number: usize, (start, end): (usize, usize), id: &[u8], path: &[u8]) {
        const WORD: usize = size_of::<usize>();
        let mut text = [0; 2 * WORD + 32];
        text[..WORD].copy_from_slice(&start.to_ne_bytes());
        text[WORD..2 * WORD].copy_from_slice(&end.wrapping_sub(start).to_ne_bytes());
        let id = id.get(..id.len().min(32)).unwrap_or(&[]);
        text[2 * WORD..2 * WORD + id.len()].copy_from_slice(id);
        let text = text.get(..2 * WORD + id.len()).unwrap_or(&[]);
        let now = self.port.now();
        self.with_metadata(|metadata| {
            for (part, bytes) in (0..).zip(path.chunks(PART)) {
                let mut text = [0; PART + 1];
                text[0] = part;
                text[1..=bytes.len()].copy_from_slice(bytes);
                let text = text.get(..=bytes.len()).unwrap_or(&[]);
                metadata.add(MetadataType::ImagePath, now, number, text);
            }
            metadata.add(MetadataType::Image, now, number, text);
        });
    }
}

/// Converts a time to units of 2^[`UNIT`] ticks.
const fn units(now: u64) -> usize {
    (now >> UNIT) as usize
}

/// Returns the ELF image at an address, if there is one.
///
/// # Safety
/// The first page of a file is mapped there, readable, and stays while this value is used; if it is an ELF
/// file, the dynamic linker or the kernel has mapped it whole.
unsafe fn image_at(start: usize) -> Option<Image> {
    // SAFETY: a page is longer than that.
    let magic = unsafe { (start as *const [u8; 4]).read() };
    // SAFETY: by this function's contract.
    (magic == *b"\x7fELF").then(|| unsafe { Image::at(start as *const u8) })
}

/// Returns whether the image at the address, whose code is about to run, is the known one.
fn is_same(entry: &Entry, address: usize) -> bool {
    match place(address) {
        Place::Unknown => true,
        Place::Elsewhere => false,
        Place::Image(start) => {
            start == entry.start.load(Ordering::Relaxed)
                // SAFETY: the dynamic linker reports that an image begins there, and it does not unload it while its
                // code runs.
                && unsafe { image_at(start) }
                    .is_some_and(|image| mark(image) == entry.mark.load(Ordering::Relaxed))
        }
    }
}

/// Computes a hash of an image's headers and build id, which most probably differs between two images.
fn mark(image: Image) -> u32 {
    let parts = [image.header(), image.segments(), image.build_id()];
    let words = parts.into_iter().flat_map(|part| part.chunks(4));
    words.fold(0, |mark: u32, word| {
        let word = word
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte));
        (mark.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B1)
    })
}
