//! Driver for a process with threads: one stream per thread, and signals that may preempt anywhere.
//!
//! A thread records into its own [`ThreadBuffer`] without synchronization. Only a signal whose handler is instrumented
//! can interrupt it there. While the thread is inside a hook, the handler's events go, with their own times, into a
//! small *side buffer* that the interrupted hook empties before its own record and after it. So all events are in the
//! order of their times, and none is lost unless there are more than the side buffer holds (then they are counted).
//!
//! Why the order holds: before its record a hook does `loop { take the time; if the side buffer is empty, break; empty
//! it }`. An event that comes after the check of the side buffer has a later time than the hook's own, and is written
//! after it. After the record the hook empties the side buffer again, leaves, and then checks once more: so it also
//! finds an event that came between the second emptying and the leaving.
//!
//! Entries of the side buffer may be out of order (a handler reserves a slot, and is itself interrupted before it takes
//! the time), so they are sorted. All entries are complete when the hook reads them: handlers end before the thread
//! continues. A handler that leaves a hook by `siglongjmp` breaks this: the thread remains inside, and its events go to
//! the side buffer, until a hook finds that its own stack is where the interrupted hook's was
//! ([`ThreadPort::has_left`]).
//!
//! A reader (a dump) freezes the gate, ensures that every thread sees that (`membarrier` on Linux; without it hooks
//! fence, [`ThreadPort::fenced`]), and waits until each thread buffer is outside. A writer first announces that it is
//! inside and then checks the gate. So either the writer sees the frozen gate, or the reader sees the writer inside;
//! and a writer that sees the gate open again sees everything that the reader did. (A writer that sees it frozen was
//! inside briefly all the same; an event of a handler at that time goes to the side buffer, which the reader empties.)

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicUsize;

use kymo_wire::event::WordSize;

use crate::gate::{Gate, Site, State};
use crate::hot::{Cursor, low};
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, Ordering, Owned, SPINS, compiler_fence, fence, spin_loop,
};
use crate::{Edge, Event, Writer};

mod blocks;
#[cfg(feature = "cost")]
mod cost;
#[cfg(feature = "duration")]
mod duration;
mod ended;
mod items;
mod list;
mod losses;
mod port;

pub use items::Levels;
pub use list::{Chosen, Queue, ThreadBuffers};
pub use port::{Frame, ThreadPort, WallClock};

/// Most events of signal handlers that are kept while their thread is inside a hook.
pub const SIDE_EVENTS: usize = 64;

/// The buffer of one thread, with its recording state.
///
/// Hooks in assembly use the first fields in the same way as [`ThreadBuffer::call`], for calls that the fast path can
/// record; they pass everything else to [`ThreadBuffer::call_inside`] and [`ThreadBuffer::come_back`].
#[repr(C)]
#[derive(Debug)]
pub struct ThreadBuffer<P> {
    /// Write position of the stream. Closed while the side buffer has entries and the thread is outside, so that a hook
    /// that finds it open need not check the side buffer.
    cursor: Cursor,
    /// Whether the thread is inside a hook, and owns the stream: the address of its stack at that time, or null.
    inside: AtomicPtr<u8>,
    /// [`Gate::changes`] at the last event.
    changes: Cell<u32>,
    writer: Writer<P>,
    /// Number of events lost without the stream's knowledge: frozen, refused, or the side buffer was full.
    lost: AtomicU32,
    /// Number of hooks during the program's `current_thread`, and the function of the last one.
    refused: AtomicU32,
    refused_function: AtomicUsize,
    side: Side,
    items: Levels<P>,
    /// The shadow stack of duration mode.
    #[cfg(feature = "duration")]
    calls: duration::Calls,
    /// Represents, for models, the stream, table and everything else of the owner.
    owned: Owned,
    /// [`Gate::generation`] at the last event.
    generation: Cell<u32>,
    /// The stopper at its last entry or exit.
    stopper: Cell<usize>,
    /// Whether a reader has sealed it.
    readable: AtomicBool,
    /// Its owner: process, and thread by the system's number.
    process: AtomicU32,
    owner: AtomicU32,
    /// How many events [`blocked`](Self::blocked) has reported for the current hook of the thread.
    blocked: AtomicU32,
    /// Whether the thread has exited, and the thread buffer was sealed since.
    ended: AtomicBool,
    /// Count of losses when the thread buffer was last sealed, and whether packets reported all of them.
    sealed_lost: AtomicU32,
    reported: AtomicBool,
    published: losses::Published,
    /// The next thread buffer in the list of all.
    next: AtomicPtr<ThreadBuffer<P>>,
    /// The next one in a reader's choice ([`ThreadBuffers::choose`]).
    chosen: AtomicPtr<ThreadBuffer<P>>,
    /// The next one in a [`Queue`].
    behind: AtomicPtr<ThreadBuffer<P>>,
}

// SAFETY: the cells inside belong to the thread that owns the thread buffer while `inside` says so, and to a reader
// that froze the gate and found it outside; the rest are atomics.
unsafe impl<P> Sync for ThreadBuffer<P> {}

/// Side buffer: events of signal handlers while their thread is inside a hook.
#[derive(Debug)]
struct Side {
    /// Number of slots reserved, or requested beyond the end.
    taken: AtomicU32,
    events: [Cell<(u64, Event)>; SIDE_EVENTS],
    /// Which slots have been filled. For the thread itself all reserved ones are filled; a reader may read while a
    /// handler is filling one.
    filled: [AtomicBool; SIDE_EVENTS],
}

impl Side {
    const fn new() -> Self {
        Self {
            taken: AtomicU32::new(0),
            events: [const { Cell::new((0, Event::Marker(0))) }; SIDE_EVENTS],
            filled: [const { AtomicBool::new(false) }; SIDE_EVENTS],
        }
    }
}

impl<P> ThreadBuffer<P> {
    /// Offset of the [`Cursor`].
    pub const CURSOR_OFFSET: usize = offset_of!(Self, cursor);
    /// Offset of the word that tells whether the thread is inside a hook: null, or its stack address at that time.
    pub const INSIDE_OFFSET: usize = offset_of!(Self, inside);
    /// Offset of the count of events lost without the stream's knowledge: 4 bytes.
    pub const LOST_OFFSET: usize = offset_of!(Self, lost);
    /// Offset of the gate's count of changes at the thread's last event: 4 bytes.
    pub const CHANGES_OFFSET: usize = offset_of!(Self, changes);
}

impl<P: ThreadPort> ThreadBuffer<P> {
    /// A thread buffer without memory.
    pub const fn new() -> Self {
        Self {
            cursor: Cursor::new(),
            inside: AtomicPtr::new(null_mut()),
            changes: Cell::new(0),
            writer: Writer::new(),
            lost: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            refused_function: AtomicUsize::new(0),
            side: Side::new(),
            items: Levels::new(),
            #[cfg(feature = "duration")]
            calls: duration::Calls::new(),
            owned: Owned::new(),
            generation: Cell::new(0),
            stopper: Cell::new(0),
            readable: AtomicBool::new(false),
            process: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            sealed_lost: AtomicU32::new(0),
            published: losses::Published::new(),
            reported: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
            chosen: AtomicPtr::new(null_mut()),
            behind: AtomicPtr::new(null_mut()),
        }
    }

    /// The cursor, for setting up the stream.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The stream and table. Only the thread buffer's thread may write them, while inside; or the set-up, before any
    /// other context knows the thread buffer.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// Tracks thread and interrupts while nothing is recorded.
    pub fn follow(&self, event: Event) {
        if !self.in_hook() {
            self.writer.follow_event(event);
        }
    }

    /// The process that created the thread buffer: after a fork the child has its parent's thread buffers, but not its
    /// threads.
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// The owning thread, by the system's number.
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Sets the owner: a process, and a thread of it.
    pub fn set_owner(&self, process: u32, thread: u32) {
        self.process.store(process, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    /// Whether a reader may read the thread buffer: it has been sealed since the gate was frozen.
    pub fn readable(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// Marks the thread buffer as sealed, or as writable again.
    pub fn set_readable(&self, readable: bool) {
        self.readable.store(readable, Ordering::Relaxed);
    }

    /// Empties the side buffer and closes the newest packets at `now`, for a reader.
    ///
    /// # Safety
    /// The gate is frozen, every thread knows it ([`ThreadPort::fenced`]), and the thread buffer has been seen outside
    /// since; no other reader is active.
    #[inline(never)]
    pub unsafe fn seal(&self, now: u64) {
        self.items.seal(now);
        self.blocked.store(0, Ordering::Relaxed);
        self.owned.written();
        self.drain();
        self.writer
            .stream()
            .add_discarded(self.lost.swap(0, Ordering::Relaxed));
        self.writer.stream().seal();
        let buffer = self.writer.stream().buffer();
        self.sealed_lost
            .store(buffer.discarded(), Ordering::Relaxed);
        self.reported
            .store(buffer.has_reported(), Ordering::Relaxed);
    }

    /// Whether [`seal`](Self::seal) would close or report something. Any context may call it; while the thread records,
    /// the result may be outdated at once.
    #[inline(never)]
    pub fn needs_seal(&self) -> bool {
        let buffer = self.writer.stream().buffer();
        buffer.is_open()
            || self.items.has_open()
            || self.lost() != 0
            || self.pending()
            || !self.reported.load(Ordering::Relaxed)
            || buffer.discarded() != self.sealed_lost.load(Ordering::Relaxed)
    }

    /// Number of hooks during the program's `current_thread`, and the function of the last one.
    pub fn refused(&self) -> (u32, usize) {
        let function = self.refused_function.load(Ordering::Relaxed);
        (self.refused.load(Ordering::Relaxed), function)
    }

    /// Counts events that the owner could not record. Any of its contexts may call it.
    pub fn lose(&self, events: u32) {
        self.lost.fetch_add(events, Ordering::Relaxed);
    }

    /// Number of lost events that the stream's count does not include yet.
    pub fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the thread buffer's thread is now inside a hook, or producing an item.
    pub fn inside(&self) -> bool {
        !self.inside.load(Ordering::Acquire).is_null() || self.items.busy()
    }

    /// Whether the calling thread, the owner, is inside a hook.
    #[inline(always)]
    fn in_hook(&self) -> bool {
        !self.inside.load(Ordering::Relaxed).is_null()
    }

    /// Hook for the entry of a function, called from `caller`, or its exit, in the owning thread.
    #[inline(always)]
    pub fn call(&self, port: &P, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if self.in_hook() {
            let frame = edge.frame(port.stack(), caller);
            return self.aside(port, gate, edge.of(function, caller), frame);
        }
        self.enter(port);
        self.call_inside(port, gate, edge, function, caller);
    }

    /// The same when the thread seemed to be inside a hook already, with the stack pointer at the entry of this one.
    #[cold]
    pub fn call_nested(
        &self,
        port: &P,
        gate: &Gate,
        edge: Edge,
        (function, caller): (usize, usize),
        stack: *mut u8,
    ) {
        if !self.in_hook() {
            return self.call(port, gate, edge, function, caller);
        }
        let frame = edge.frame(stack, caller);
        self.aside(port, gate, edge.of(function, caller), frame);
    }

    /// The same when the thread is inside already, and has done nothing else yet.
    #[inline(always)]
    pub fn call_inside(&self, port: &P, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        let state = gate.state();
        if state.open() {
            self.owned.written();
            let now = self.time(port, gate);
            let done = self.near(now) && {
                let low = low::<P>(now);
                // SAFETY: the cursor is that of our stream, where there is memory below its end, and
                // the thread is inside.
                unsafe {
                    match edge {
                        Edge::Enter => self.cursor.enter::<P>(low, function),
                        Edge::Exit => {
                            self.cursor.exit::<P>(low) || self.cursor.exit_named::<P>(low, function)
                        }
                    }
                }
            };
            if !done {
                // Not in duration mode, in which calls have [their own function](Self::call_in_duration).
                self.writer.record(now, edge.of(function, caller));
                port.refresh(self, now);
                if port.wall_clock_due(now) {
                    self.record_wall_clock(port);
                }
            }
            self.leave(port, gate);
        } else {
            self.refuse(state);
        }
    }

    /// Whether the low bits of `now` in the cursor are unambiguous: the last event is less than half a wraparound of
    /// them ago. (A process has no tick that would ensure it.)
    #[inline(always)]
    fn near(&self, now: u64) -> bool {
        P::LAYOUT.word == WordSize::Bits64
            || now.wrapping_sub(self.writer.stream().last()) < 1 << 31
    }

    /// Hook for any other event of the owning thread.
    #[inline(never)]
    pub fn hook(&self, port: &P, gate: &Gate, event: Event) {
        if self.in_hook() {
            let (stack, caller) = (port.stack(), 0);
            return self.aside(port, gate, event, Frame { stack, caller });
        }
        self.enter(port);
        let state = gate.state();
        if state.open() {
            self.owned.written();
            let now = self.time(port, gate);
            self.record(now, event);
            port.refresh(self, now);
            self.leave(port, gate);
        } else {
            self.refuse(state);
        }
    }

    /// The time of the event that is about to be recorded. All earlier events have been recorded.
    #[inline(always)]
    fn time(&self, port: &P, gate: &Gate) -> u64 {
        let mut now = port.now();
        while self.pending() {
            self.drain();
            now = port.now();
        }
        if self.changes.get() != gate.changes() {
            self.notice_change(now, gate);
        }
        now
    }

    /// Records the wall-clock time, while inside.
    #[cold]
    #[inline(never)]
    fn record_wall_clock(&self, port: &P) {
        while let Some(wall) = port.wall_clock() {
            if self.pending() {
                self.drain();
                continue;
            }
            let WallClock {
                now,
                ns,
                uncertainty,
            } = wall;
            return self
                .writer
                .record(now, Event::WallClock { ns, uncertainty });
        }
    }

    /// Handles that the gate was closed and opened since this thread's last event: calls that were open may have ended.
    /// If recording was turned off and on, informs the table, too.
    #[cold]
    #[inline(never)]
    fn notice_change(&self, now: u64, gate: &Gate) {
        self.changes.set(gate.changes());
        self.writer.stream().miss();
        let generation = gate.generation();
        let changed = self.generation.replace(generation) != generation;
        match changed {
            true => self.writer.forget_stopper(),
            false => self.writer.doubt_stopper(),
        }
        if changed && let Some(table) = self.writer.profile() {
            table.record(now, true);
        }
        #[cfg(feature = "duration")]
        if changed {
            self.abandon_calls();
        }
    }

    /// Tracks an entry or exit of the stopper, which is this function; returns as [`Writer::follow_stopper`]. Called
    /// after the record: its event may be the first that this thread sees since recording was turned on, and earlier
    /// calls do not count. Nor do open calls of an earlier stopper.
    #[cold]
    #[must_use]
    pub fn follow_stopper(&self, edge: Edge, function: usize, site: Site) -> bool {
        if self.stopper.replace(function) != function {
            self.writer.forget_stopper();
        }
        self.writer.follow_stopper(edge, site)
    }

    /// Records an event, while inside.
    #[cfg(not(feature = "duration"))]
    #[inline(always)]
    fn record(&self, now: u64, event: Event) {
        self.writer.record(now, event);
    }

    /// Leaves the hook, with the side buffer empty (unless a reader froze the gate meanwhile: then the reader empties
    /// it).
    #[inline(always)]
    fn leave(&self, port: &P, gate: &Gate) {
        if self.pending() {
            self.drain();
        }
        self.go_outside();
        if self.pending() {
            self.come_back(port, gate);
        }
    }

    /// Empties the side buffer of a thread that has just left its hook.
    #[cold]
    #[inline(never)]
    pub fn come_back(&self, port: &P, gate: &Gate) {
        while self.pending() {
            self.enter(port);
            if gate.state().frozen() {
                return self.go_outside();
            }
            self.drain();
            self.go_outside();
        }
    }

    /// Marks the thread as outside, after everything else.
    #[inline(always)]
    fn go_outside(&self) {
        compiler_fence(Ordering::SeqCst);
        self.inside.store(null_mut(), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Marks this thread as inside, before it checks anything else.
    #[inline(always)]
    fn enter(&self, port: &P) {
        self.inside.store(port.stack(), Ordering::Relaxed);
        if port.fenced() {
            fence(Ordering::SeqCst);
        }
        compiler_fence(Ordering::SeqCst);
    }

    #[inline(always)]
    fn pending(&self) -> bool {
        self.side.taken.load(Ordering::Relaxed) != 0
    }

    /// Leaves the hook without recording: the gate was closed between the first check of it and the second, which saw
    /// `state`. (A third check might see it open again, and the event would not be counted.)
    #[cold]
    fn refuse(&self, state: State) {
        if state.frozen() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.go_outside();
    }

    /// Stores an event in the side buffer, for the hook that this thread is inside of.
    #[cold]
    #[inline(never)]
    fn aside(&self, port: &P, gate: &Gate, event: Event, frame: Frame) {
        if port.has_left(self.inside.load(Ordering::Relaxed), frame) {
            return self.return_and_hook(port, gate, event);
        }
        // The program's `current_thread` is instrumented: recording this event would call it again.
        if self.writer.is_asking() {
            if let Event::Enter(function) | Event::EnterFrom { function, .. } = event {
                self.refused_function.store(function, Ordering::Relaxed);
            }
            self.refused.fetch_add(1, Ordering::Relaxed);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let place = self.side.taken.fetch_add(1, Ordering::Relaxed) as usize;
        compiler_fence(Ordering::SeqCst);
        if let (Some(entry), Some(filled)) =
            (self.side.events.get(place), self.side.filled.get(place))
        {
            entry.set((port.now(), event));
            filled.store(true, Ordering::Release);
        }
        compiler_fence(Ordering::SeqCst);
        // Sends the next event to the slow path, which empties the side buffer.
        self.cursor.close();
        compiler_fence(Ordering::SeqCst);
    }

    /// Records the events of the side buffer, in the order of their times.
    #[cold]
    #[inline(never)]
    fn drain(&self) {
        let mut from = 0;
        loop {
            let taken = self.side.taken.load(Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            let until = (taken as usize).min(SIDE_EVENTS);
            let range = from..until;
            let filled = self.side.filled.get(range.clone()).unwrap_or(&[]);
            if filled.iter().all(is_filled) {
                let events = self.side.events.get(range).unwrap_or(&[]);
                sort(events);
                for entry in events {
                    let (time, event) = entry.get();
                    self.record(time, event);
                }
            } else {
                self.writer.stream().add_discarded(filled.len() as u32);
            }
            for place in filled {
                place.store(false, Ordering::Relaxed);
            }
            from = until;
            compiler_fence(Ordering::SeqCst);
            let emptied =
                self.side
                    .taken
                    .compare_exchange(taken, 0, Ordering::AcqRel, Ordering::Relaxed);
            if emptied.is_ok() {
                self.writer
                    .stream()
                    .add_discarded(taken.saturating_sub(SIDE_EVENTS as u32));
                return;
            }
        }
    }
}

/// Waits, for a reader, until a slot is filled; returns false if that takes too long: its handler has ended by a jump.
fn is_filled(place: &AtomicBool) -> bool {
    for _ in 0..SPINS {
        if place.load(Ordering::Acquire) {
            return true;
        }
        spin_loop();
    }
    false
}

impl<P: ThreadPort> Default for ThreadBuffer<P> {
    fn default() -> Self {
        Self::new()
    }
}

/// Insertion sort by time, for few entries that are nearly in order.
fn sort(events: &[Cell<(u64, Event)>]) {
    for i in 1..events.len() {
        for pair in events[..=i].windows(2).rev() {
            if pair[0].get().0 <= pair[1].get().0 {
                break;
            }
            pair[0].swap(&pair[1]);
        }
    }
}
