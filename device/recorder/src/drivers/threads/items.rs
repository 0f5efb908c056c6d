//! Items of a thread: a ring for the thread itself, and one for each nested signal handler.
//!
//! A handler that interrupts its thread while it produces an item can't write to the same ring, and need not wait: it
//! uses the next one, as producers of different interrupt levels do on a microcontroller. Readers merge the streams by
//! time. Handlers that are nested more deeply than there are rings count their items as lost. (A handler that leaves by
//! `siglongjmp` while it produces an item blocks its ring for good.)

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence, fence};

use super::{ThreadBuffer, ThreadPort};
use crate::gate::Gate;
use crate::items::{Cursor, Drained, Item, PacketContext, Ring, Timed};
use kymo_wire::event::PacketHeader;
use kymo_wire::link::Mode;

/// Most rings of a thread.
const LEVELS: usize = 3;

/// The rings of a thread. They have no memory before their first use.
#[derive(Debug)]
pub struct Levels<P> {
    levels: [Level<P>; LEVELS],
    /// Items of handlers that found no ring.
    lost: AtomicU32,
    /// Start of the thread's own items, if another thread had the ring before.
    begin: Cell<Cursor>,
}

#[derive(Debug)]
struct Level<P> {
    /// Whether the thread, or a handler, is writing to this ring.
    busy: AtomicBool,
    ring: Ring<P>,
}

impl<P: ThreadPort> Levels<P> {
    pub(super) const fn new() -> Self {
        Self {
            levels: [const {
                Level {
                    busy: AtomicBool::new(false),
                    ring: Ring::empty(),
                }
            }; LEVELS],
            lost: AtomicU32::new(0),
            begin: Cell::new(Cursor::new()),
        }
    }

    pub(super) fn busy(&self) -> bool {
        self.levels
            .iter()
            .any(|level| level.busy.load(Ordering::Acquire))
    }

    /// Counts the items that the thread was producing when it exited as lost.
    pub(super) fn end(&self) {
        for level in &self.levels {
            if level.busy.swap(false, Ordering::Relaxed) {
                level.ring.lose(1);
            }
        }
    }

    /// Gives the rings, which are sealed, to another thread.
    pub(super) fn give(&self) {
        let [Level { ring, .. }, ..] = &self.levels;
        self.begin.set(ring.end());
    }

    /// Whether there are packets that the reader of a stream has not consumed.
    pub(super) fn have_waiting(&self) -> bool {
        let rings = || self.levels.iter().map(|level| &level.ring);
        rings().any(|ring| ring.usable() && (ring.is_open() || ring.waiting(0).is_some()))
    }

    /// Whether each used ring has a slot for its next packet.
    pub(super) fn have_places(&self) -> bool {
        let mut rings = self.levels.iter().map(|level| &level.ring);
        rings.all(|ring| !ring.usable() || ring.has_place())
    }

    /// Closes open packets at `now`, for a reader; and reports items that found no ring.
    pub(super) fn seal(&self, now: u64) {
        for level in &self.levels {
            level.ring.seal(now);
        }
        let [Level { ring, .. }, ..] = &self.levels;
        ring.lose(self.lost.swap(0, Ordering::Relaxed) as usize);
    }

    /// Drops all items. For a reader, while the thread is excluded.
    pub fn clear(&self, mode: Mode) {
        self.lost.store(0, Ordering::Relaxed);
        for level in self.levels.iter().filter(|level| level.ring.usable()) {
            level.ring.set_mode(mode);
            level.ring.clear();
        }
    }

    /// Number of packets kept, of all rings.
    pub fn kept(&self) -> u32 {
        self.levels.iter().map(|level| level.ring.kept()).sum()
    }

    /// The `n`th kept packet, ring by ring and oldest first.
    ///
    /// # Safety
    /// The thread buffer is sealed, and its thread excluded as long as the slice is used.
    pub unsafe fn packet(&self, n: u32) -> Option<&[u8]> {
        let mut n = n;
        for Level { ring, .. } in &self.levels {
            let kept = ring.kept();
            if n < kept {
                // SAFETY: by this function's contract.
                return unsafe { ring.packet(n) };
            }
            n -= kept;
        }
        None
    }

    /// The ring with this stream number, if it is one of these.
    pub fn ring(&self, stream: u16) -> Option<&Ring<P>> {
        let rings = self.levels.iter().map(|level| &level.ring);
        rings
            .filter(|ring| ring.usable())
            .find(|ring| ring.number() == stream)
    }

    /// Address of the first ring, distance between rings, and their number: for a reader of memory.
    pub fn places(&self) -> (*const Ring<P>, usize, u32) {
        let [Level { ring, .. }, ..] = &self.levels;
        (ring, size_of::<Level<P>>(), LEVELS as u32)
    }

    /// Whether a packet has been begun and not closed. Any context may call it.
    pub fn has_open(&self) -> bool {
        self.levels.iter().any(|level| level.ring.is_open())
    }

    /// Number of items produced. Any context may call it.
    pub fn produced(&self) -> u32 {
        let produced = self
            .levels
            .iter()
            .map(|level| level.ring.figures().produced);
        produced.fold(0, u32::wrapping_add)
    }

    /// Copies the thread's own items ([`Ring::drain`]), without those of interrupting handlers.
    pub fn drain(&self, cursor: &mut Cursor, out: &mut [Timed]) -> Drained {
        let [Level { ring, .. }, ..] = &self.levels;
        if *cursor == Cursor::new() {
            *cursor = self.begin.get();
        }
        ring.drain(cursor, out)
    }
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// The rings of items.
    pub fn items(&self) -> &Levels<P> {
        &self.items
    }

    /// Produces items of the owning thread that share one time and stay together. `equip` gives a ring its memory at
    /// its first use.
    pub fn produce(&self, port: &P, gate: &Gate, items: &[Item], equip: impl FnOnce(&Ring<P>)) {
        let free = |level: &&Level<P>| !level.busy.load(Ordering::Relaxed);
        let Some(level) = self.items.levels.iter().find(free) else {
            self.items
                .lost
                .fetch_add(items.len() as u32, Ordering::Relaxed);
            return;
        };
        level.busy.store(true, Ordering::Relaxed);
        if port.fenced() {
            fence(Ordering::SeqCst);
        }
        compiler_fence(Ordering::SeqCst);
        // As for events: a reader waits for a producer that is marked as busy before it checks the gate, or the
        // producer sees the frozen gate.
        let state = gate.state();
        if state.open() {
            if !level.ring.usable() {
                equip(&level.ring);
            }
            let context = || PacketContext {
                isr_depth: self.writer.stream().isr_depth.get(),
                thread: self.writer.stream().thread(),
                flags: PacketHeader::FLAG_THREAD,
            };
            level.ring.produce(port.now(), items, context);
        } else if state.frozen() {
            level.ring.lose(items.len());
        }
        compiler_fence(Ordering::SeqCst);
        level.busy.store(false, Ordering::Release);
    }
}
