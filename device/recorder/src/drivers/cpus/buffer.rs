//! What one CPU records into.

use core::cell::Cell;

use super::CpusPort;
#[cfg(feature = "duration")]
use super::duration::Calls;
use super::setup::LINE;
use crate::clock::Clock;
use crate::hot::{Cursor, word};
use crate::items::{Ring, Rings, Work};
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::{Event, Writer};

/// How long a reader waits for a CPU to leave its hook. That takes less than a microsecond, but for an
/// emulated CPU whose emulator waits for a processor.
pub(super) const READER_PATIENCE_MS: u64 = 10_000;

/// How long a CPU waits for all others with its interrupts masked.
pub(super) const MASKED_PATIENCE_MS: u64 = 1;

/// The clock of a program that has one of its own ([`Config::clock`](crate::config::Config::clock)).
type ClockFunction = unsafe extern "C" fn() -> u32;

/// What one CPU records into: on cache lines that no other CPU writes while it records. (128 bytes,
/// because some processors fetch lines of 64 in pairs, and some have lines of 128.)
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CpuBuffer<P: 'static> {
    /// The CPU is inside a hook, and owns the rest.
    pub(super) inside: AtomicBool,
    /// It is inside, but waits to turn recording on or off (or does it): it records nothing before
    /// it has looked at the gate again.
    pub(super) turning: AtomicBool,
    /// [`Gate::changes`] at the last event. A reader counts as one.
    pub(super) changes: Cell<u32>,
    /// Where the stream's next record goes. Up to here is what usual calls need.
    pub(super) cursor: Cursor,
    /// Hooks from inside a hook.
    pub(super) refused: AtomicU32,
    /// Events that came while the CPU buffers were held still.
    pub(super) lost: AtomicU32,
    /// How many of both have been told to the stream.
    pub(super) told: AtomicU32,
    /// How many packets the link wants to see closed. Only who is polling touches it.
    pub(super) asked: Cell<u32>,
    /// A reader holds the CPU off, and has sealed its stream.
    pub(super) held: AtomicBool,
    /// The program's own clock, if it has one.
    pub(super) function: Cell<Option<ClockFunction>>,
    pub(super) clock: Clock,
    pub(super) writer: Writer<P>,
    /// Where its items go. Without memory if the program gives it none.
    pub(super) ring: Ring<P>,
    /// The same, where a reader looks for rings.
    pub(super) rings: Rings<P>,
    /// How many packets of items the link wants to see closed. Only who is polling touches it.
    pub(super) asked_items: Cell<u32>,
    /// Its calls in duration mode.
    /// How many losses its newest packet tells of while a reader holds it.
    pub(super) lent: Cell<u32>,
    #[cfg(feature = "duration")]
    pub(super) calls: Calls,
}

// SAFETY: the cells belong to the CPU that is `inside`, which the register of that CPU sees to; or
// to a reader who froze the gate and found it outside; or to who sets the recorder up, before the
// gate opens first. The rest are atomics.
unsafe impl<P> Sync for CpuBuffer<P> {}

impl<P: CpusPort> CpuBuffer<P> {
    /// Where the address of the next record is, in bytes from the beginning: a word.
    pub(super) const AT_OFFSET: usize =
        core::mem::offset_of!(Self, cursor) + word::AT * size_of::<usize>();
    /// Where the writer is, in bytes from the beginning.
    pub(super) const WRITER_OFFSET: usize = core::mem::offset_of!(Self, writer);
    /// Where the count of discarded events is, in bytes from the beginning: 4 bytes.
    pub(super) const DISCARDED_OFFSET: usize =
        core::mem::offset_of!(Self, writer) + Writer::<P>::DISCARDED_OFFSET;

    /// Where the address of the first ring is, in bytes from the beginning: a word.
    pub(super) const RINGS_OFFSET: usize =
        core::mem::offset_of!(Self, rings) + Rings::<P>::FIRST_OFFSET;

    /// What usual calls need is on one line.
    const ON_ONE_LINE: () = assert!(core::mem::offset_of!(Self, refused) <= LINE);

    pub(super) const fn new() -> Self {
        let () = Self::ON_ONE_LINE;
        Self {
            inside: AtomicBool::new(false),
            turning: AtomicBool::new(false),
            changes: Cell::new(0),
            cursor: Cursor::new(),
            refused: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            told: AtomicU32::new(0),
            asked: Cell::new(0),
            held: AtomicBool::new(false),
            function: Cell::new(None),
            clock: Clock::new(),
            writer: Writer::new(),
            ring: Ring::empty(),
            rings: Rings::new(),
            asked_items: Cell::new(0),
            lent: Cell::new(0),
            #[cfg(feature = "duration")]
            calls: Calls::new(),
        }
    }

    /// The stream, to be looked at.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// The time of a call, inside.
    #[inline(always)]
    pub(super) fn now(&self, port: &P) -> u64 {
        match self.function.get() {
            // SAFETY: the program gives a function that may be called from any context.
            Some(clock) => self.clock.advance(unsafe { clock() }),
            None => port.counter(),
        }
    }

    /// The time of any other event, inside.
    pub(super) fn now_in_order(&self, port: &P) -> u64 {
        match self.function.get() {
            Some(_) => self.now(port),
            None => port.counter_in_order(),
        }
    }

    /// Hooks that were refused and events that were lost, ever.
    pub(super) fn missed(&self) -> u32 {
        let refused = self.refused.load(Ordering::Relaxed);
        refused.wrapping_add(self.lost.load(Ordering::Relaxed))
    }

    /// How many of them no packet has reported yet.
    pub(super) fn untold(&self) -> u32 {
        self.missed()
            .wrapping_sub(self.told.load(Ordering::Relaxed))
    }

    /// Tells the stream what was missed, for its packets to say. For who owns the CPU buffer.
    pub(super) fn settle(&self) {
        let missed = self.missed();
        let before = self.told.load(Ordering::Relaxed);
        self.told.store(missed, Ordering::Relaxed);
        self.writer
            .stream()
            .add_discarded(missed.wrapping_sub(before));
    }

    /// What must be done before an event at `now`; `changes` is the gate's number.
    #[inline(always)]
    pub(super) fn catch_up(&self, changes: u32, now: u64) {
        if self.changes.get() != changes {
            self.begin(changes);
        }
        if self.clock.doubtful() {
            self.tell_gap(now);
        }
    }

    /// The gate has been closed since this CPU's last event, or a reader held it off: what it had
    /// open then it may have left meanwhile, so that nothing may be told from what stands in the
    /// stream. A new packet begins anew, and says what was lost.
    #[cold]
    #[inline(never)]
    pub(super) fn begin(&self, changes: u32) {
        self.changes.set(changes);
        self.writer.forget_stopper();
        // Nothing that is recorded spans the doubt of the time before.
        self.clock.take_gap();
        self.writer.stream().seal();
        self.seal_items();
        self.settle();
    }

    /// Closes the packet of items that is open, at the time of its last one. For who owns the CPU buffer.
    pub(super) fn seal_items(&self) {
        self.rings.work(Work::Seal, || 0);
    }

    /// Marks that the clock is uncertain before `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn tell_gap(&self, now: u64) {
        let ticks = self.clock.take_gap();
        self.writer.record(now, Event::ClockGap { ticks });
    }

    /// Waits until the CPU is outside of its hook, or `already` says that this will do, but for no longer than so
    /// many milliseconds since `start`. Interrupts are masked in a hook and it waits for nobody who waits for this
    /// one, so that is soon; false if it is not, because the CPU was stopped there, or has crashed.
    #[must_use]
    pub(super) fn leaves(
        &self,
        port: &P,
        start: u64,
        patience_ms: u64,
        already: impl Fn() -> bool,
    ) -> bool {
        let patience = (port.counter_hz() / 1000).saturating_mul(patience_ms);
        while self.inside.load(Ordering::Acquire) && !already() {
            if port.counter_in_order().wrapping_sub(start) > patience {
                return false;
            }
            port.pause();
        }
        true
    }
}
