//! Per-CPU buffer.

use core::cell::Cell;

use super::CpusPort;
#[cfg(feature = "duration")]
use super::duration::Calls;
use super::setup::LINE;
use crate::bits64::Cell64;
use crate::clock::Clock;
use crate::hot::{Cursor, word};
use crate::items::{Ring, Rings, Work};
use crate::profile::Losses;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use crate::{Edge, Event, Writer};

/// How long a reader waits for a CPU to leave its hook. That takes less than a microsecond, except for an emulated CPU
/// whose emulator waits for a processor.
pub(super) const READER_PATIENCE_MS: u64 = 10_000;

/// How long a CPU waits for all others with its interrupts masked.
pub(super) const MASKED_PATIENCE_MS: u64 = 1;

/// The program's own clock function ([`Config::clock`](crate::config::Config::clock)).
type ClockFunction = unsafe extern "C" fn() -> u32;

/// The buffer of one CPU, with its recording state: on cache lines that no other CPU writes while it records. (128
/// bytes, because some processors fetch lines of 64 in pairs, and some have lines of 128.)
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CpuBuffer<P: 'static> {
    /// Whether the CPU is inside a hook, and owns the rest.
    pub(super) inside: AtomicBool,
    /// Whether it is inside, but waiting to turn recording on or off (or doing so): it records nothing before it has
    /// checked the gate again.
    pub(super) switching: AtomicBool,
    /// [`Gate::changes`] at the last event. A reader changes that count, too.
    pub(super) changes: Cell<u32>,
    /// Write position of the stream. Usual calls need only the fields up to here.
    pub(super) cursor: Cursor,
    /// Number of hooks within hooks.
    pub(super) refused: AtomicU32,
    /// Number of events while the CPU buffers were frozen.
    pub(super) lost: AtomicU32,
    /// How many of both the stream's count of losses includes.
    pub(super) reported: AtomicU32,
    /// Number of packets that the link wants closed. Guarded by `polling`.
    pub(super) requested: Cell<u32>,
    /// Whether a reader excludes the CPU, and has sealed its stream.
    pub(super) held: AtomicBool,
    /// The program's own clock, if it has one.
    pub(super) function: Cell<Option<ClockFunction>>,
    pub(super) clock: Clock,
    pub(super) writer: Writer<P>,
    /// The ring of its items. Without memory if the program gives it none.
    pub(super) ring: Ring<P>,
    /// List with this ring, for readers that look for rings.
    pub(super) rings: Rings<P>,
    /// Number of packets of items that the link wants closed. Guarded by `polling`.
    pub(super) requested_items: Cell<u32>,
    /// How many losses the newest packet reports on loan while a reader holds the buffer.
    pub(super) published: Cell<u32>,
    /// Losses of its profile table, and how long that has counted, for a reader that excludes the CPU.
    pub(super) losses: Cell<Losses>,
    pub(super) recorded: Cell64,
    /// Its calls in duration mode.
    #[cfg(feature = "duration")]
    pub(super) calls: Calls,
}

// SAFETY: the cells belong to the CPU that is `inside`, as that CPU's register ensures; or to a reader that froze the
// gate and found it outside; or to the CPU that sets the recorder up, before the gate first opens. The rest are
// atomics.
unsafe impl<P> Sync for CpuBuffer<P> {}

impl<P: CpusPort> CpuBuffer<P> {
    /// Offset of the address of the next record: a word.
    pub(super) const AT_OFFSET: usize =
        core::mem::offset_of!(Self, cursor) + word::AT * size_of::<usize>();
    /// Offset of the writer.
    pub(super) const WRITER_OFFSET: usize = core::mem::offset_of!(Self, writer);
    /// Offset of the count of discarded events: 4 bytes.
    pub(super) const DISCARDED_OFFSET: usize =
        core::mem::offset_of!(Self, writer) + Writer::<P>::DISCARDED_OFFSET;

    /// Offset of the address of the first ring: a word.
    pub(super) const RINGS_OFFSET: usize =
        core::mem::offset_of!(Self, rings) + Rings::<P>::FIRST_OFFSET;

    /// The fields for usual calls are on one line.
    const ON_ONE_LINE: () = assert!(core::mem::offset_of!(Self, refused) <= LINE);

    pub(super) const fn new() -> Self {
        let () = Self::ON_ONE_LINE;
        Self {
            inside: AtomicBool::new(false),
            switching: AtomicBool::new(false),
            changes: Cell::new(0),
            cursor: Cursor::new(),
            refused: AtomicU32::new(0),
            lost: AtomicU32::new(0),
            reported: AtomicU32::new(0),
            requested: Cell::new(0),
            held: AtomicBool::new(false),
            function: Cell::new(None),
            clock: Clock::new(),
            writer: Writer::new(),
            ring: Ring::empty(),
            rings: Rings::new(),
            requested_items: Cell::new(0),
            published: Cell::new(0),
            losses: Cell::new(Losses::NONE),
            recorded: Cell64::new(0),
            #[cfg(feature = "duration")]
            calls: Calls::new(),
        }
    }

    /// The stream and table, for inspection.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// Marks the CPU as outside again.
    #[inline(always)]
    pub(super) fn go_out(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// The time of a call, while inside.
    #[inline(always)]
    pub(super) fn now(&self, port: &P) -> u64 {
        match self.function.get() {
            // SAFETY: the program gives a function that may be called from any context.
            Some(clock) => self.clock.advance(unsafe { clock() }),
            None => port.counter(),
        }
    }

    /// The time of any other event, while inside.
    pub(super) fn now_in_order(&self, port: &P) -> u64 {
        match self.function.get() {
            Some(_) => self.now(port),
            None => port.counter_in_order(),
        }
    }

    /// Records an entry or exit at `now` (truncated by [`low`](crate::hot::low)), if it fits a short form.
    ///
    /// # Safety
    /// The calling CPU is inside, with no reader.
    #[inline(always)]
    pub(super) unsafe fn record_near(&self, edge: Edge, now: usize, function: usize) -> bool {
        let cursor = &self.cursor;
        // SAFETY: the cursor is that of the stream, where there is memory below its end, which only the CPU that is
        // inside writes.
        unsafe {
            match edge {
                Edge::Enter => cursor.enter::<P>(now, function),
                Edge::Exit => cursor.exit::<P>(now) || cursor.exit_named::<P>(now, function),
            }
        }
    }

    /// Begins the next packet where only a full one prevents recording, while inside; returns false otherwise, and if
    /// there is no free slot.
    pub(super) fn begin_if_full(&self, now: usize) -> bool {
        self.cursor.is_full() && self.writer.stream().change_full(&self.cursor, now)
    }

    /// Number of refused hooks and lost events, ever.
    pub(super) fn missed(&self) -> u32 {
        let refused = self.refused.load(Ordering::Relaxed);
        refused.wrapping_add(self.lost.load(Ordering::Relaxed))
    }

    /// How many of them no packet has reported yet.
    pub(super) fn unreported(&self) -> u32 {
        self.missed()
            .wrapping_sub(self.reported.load(Ordering::Relaxed))
    }

    /// Adds the losses to the stream's count, so that its packets report them. For the owner of the CPU buffer.
    pub(super) fn report_losses(&self) {
        let missed = self.missed();
        let before = self.reported.load(Ordering::Relaxed);
        self.reported.store(missed, Ordering::Relaxed);
        self.writer
            .stream()
            .add_discarded(missed.wrapping_sub(before));
    }

    /// Handles changes of the gate and gaps of the clock before an event at `now`; `changes` is the gate's count.
    #[inline(always)]
    pub(super) fn catch_up(&self, changes: u32, now: u64) {
        if self.changes.get() != changes {
            self.begin(changes);
            self.catch_up_table(now);
        }
        if self.clock.doubtful() {
            self.record_gap(now);
        }
    }

    /// Begins a new packet, which also reports the losses. The gate has been closed since this CPU's last event, or a
    /// reader excluded it: calls that were open then may have ended meanwhile, so new records must not rely on earlier
    /// ones.
    #[cold]
    #[inline(never)]
    pub(super) fn begin(&self, changes: u32) {
        self.changes.set(changes);
        // No recorded event lies before the uncertain time.
        self.clock.take_gap();
        self.writer.stream().seal();
        self.seal_items();
        self.report_losses();
    }

    /// Closes the open packet of items, at the time of its last one. For the owner of the CPU buffer.
    pub(super) fn seal_items(&self) {
        self.rings.work(Work::Seal, || 0);
    }

    /// Marks in the trace that the clock is uncertain before `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn record_gap(&self, now: u64) {
        let ticks = self.clock.take_gap();
        self.writer.record(now, Event::ClockGap { ticks });
    }

    /// Waits until the CPU is outside of its hook, or `already` returns true, but at most `patience_ms` milliseconds
    /// after `start`. Interrupts are masked in a hook, and it does not wait for this CPU, so it soon ends. Returns
    /// false if it does not, because the CPU was stopped there, or has crashed.
    #[must_use]
    pub(super) fn wait_outside(
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
