//! The recorder of a process with threads: a stream each, and signals that may preempt anywhere.
//!
//! A thread records into its own [`ThreadBuffer`] without asking anybody. What can interrupt it is a signal
//! whose handler is instrumented too. While the thread is inside a hook, the handler's events go,
//! with their own times, into a small *side buffer* that the interrupted hook empties before its
//! own record and after it, so everything stays in the order of time and nothing is lost unless
//! more events come than the side buffer holds (then they are counted).
//!
//! Why the order holds. A hook does `loop { take the time; if the side buffer is empty, break;
//! empty it }` before its record: an event that comes after the look at the side buffer has a later
//! time than the hook's own, and is written after it. After the record the side buffer is emptied
//! again, then the thread leaves the hook, and looks once more: an event that came between the
//! second emptying and the leaving is still found.
//!
//! Within the side buffer entries may stand in another order than that of their times (a handler
//! reserves a place, and is itself interrupted before it takes the time), so they are sorted. All
//! entries are whole when the hook looks at them: handlers end before the thread goes on. A handler
//! that leaves by `siglongjmp` out of a hook breaks that promise: the thread stays inside, and what it records waits
//! in the side buffer, until a hook finds that its stack has been left ([`ThreadPort::has_left`]).
//!
//! A reader (a dump) freezes the gate, makes sure that every thread sees that (`membarrier` on
//! Linux; where there is none hooks fence, [`ThreadPort::fenced`]), and waits until each thread buffer is
//! outside. A writer first says that it is inside and then looks at the gate. So either the writer
//! sees the gate frozen, or the reader sees the writer inside; and a writer that sees the gate open
//! again sees all that the reader did. (A writer that sees it frozen was inside for a moment all the same; an event
//! of a handler that comes just then waits in the side buffer, which the reader empties.)

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::AtomicUsize;

use kymo_wire::event::WordSize;

use crate::gate::{Gate, State};
use crate::hot::{Cursor, low};
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, Ordering, Owned, SPINS, compiler_fence, fence, spin_loop,
};
use crate::{Edge, Event, Target, Writer};

mod blocks;
#[cfg(feature = "cost")]
mod cost;
#[cfg(feature = "duration")]
mod duration;
mod ended;
mod items;
mod list;
mod losses;

pub use items::Levels;
pub use list::{Chosen, Queue, ThreadBuffers};

/// How many events of signal handlers fit while their thread is inside a hook.
pub const SIDE_EVENTS: usize = 64;

/// What the recorder needs of the system.
pub trait ThreadPort: Target + 'static {
    /// The time in ticks. Must not be instrumented.
    fn now(&self) -> u64;
    /// Whether hooks must make their stores visible themselves, because the system has no barrier
    /// that a reader can lay on all threads.
    fn fenced(&self) -> bool;
    /// Where the calling thread's stack is; never null.
    #[inline(always)]
    fn stack(&self) -> *mut u8 {
        without_provenance_mut(1)
    }
    /// Whether the calling thread has left a hook by a jump that it entered when its stack was `there`, and
    /// will not come back to it; false where that cannot be told. It is not so for a handler that interrupts
    /// the hook, nor for what a hook calls. Asked off the fast path only.
    fn has_left(&self, there: *mut u8) -> bool {
        let _ = there;
        false
    }
    /// Called off the fast path with the time of an event, by the thread buffer's thread, which is inside: what has to
    /// be refreshed now and then may be.
    #[inline(always)]
    fn refresh(&self, thread_buffer: &ThreadBuffer<Self>, now: u64)
    where
        Self: Sized,
    {
        let _ = (thread_buffer, now);
    }
    /// Whether it is time, at `now`, for the calling thread to record what time it is in the world.
    /// Asked off the fast path only; says so to one thread at a time.
    fn wall_clock_due(&self, now: u64) -> bool {
        let _ = now;
        false
    }
    /// The time of day, if the system knows it.
    fn wall_clock(&self) -> Option<WallClock> {
        None
    }
}

/// What time it is in the world.
#[derive(Clone, Copy, Debug)]
pub struct WallClock {
    /// The time in ticks for which it holds.
    pub now: u64,
    /// Nanoseconds since 1970 UTC.
    pub ns: u64,
    /// By how many these may be wrong, either way.
    pub uncertainty: u32,
}

/// What one thread records into.
///
/// Hooks in assembly use the first fields as [`ThreadBuffer::call`] does, for calls that the fast
/// path can record; they hand everything else to [`ThreadBuffer::call_inside`] and [`ThreadBuffer::come_back`].
#[repr(C)]
#[derive(Debug)]
pub struct ThreadBuffer<P> {
    /// Where the stream's next record goes. Closed while something stands in the side buffer and the
    /// thread is outside, so that who finds it open needs not look there.
    cursor: Cursor,
    /// The thread is inside a hook, and owns the stream: where its stack was then, or null.
    inside: AtomicPtr<u8>,
    /// [`Gate::changes`] at the last event.
    changes: Cell<u32>,
    writer: Writer<P>,
    /// Events that were lost beside the stream: frozen, refused, or the side buffer was full.
    lost: AtomicU32,
    /// Hooks that were called while the recorder asks the program which thread runs, and the function that the
    /// last of them was for.
    refused: AtomicU32,
    refused_function: AtomicUsize,
    side: Side,
    items: Levels<P>,
    /// The shadow stack of duration mode.
    #[cfg(feature = "duration")]
    calls: duration::Calls,
    /// Stream, table and what else is the owner's.
    owned: Owned,
    /// [`Gate::turns`] at the last event.
    turns: Cell<u32>,
    /// A reader sealed it.
    readable: AtomicBool,
    /// Whose it is: a process, and a thread by the system's number.
    process: AtomicU32,
    owner: AtomicU32,
    /// What [`withheld`](Self::withheld) told of the hook that the thread is in.
    withheld: AtomicU32,
    /// That thread has ended, and the thread buffer was sealed since.
    ended: AtomicBool,
    /// What had been lost when the thread buffer was last sealed, and whether a packet told of all that.
    sealed_lost: AtomicU32,
    told: AtomicBool,
    lent: losses::Lent,
    /// The next thread buffer in the list of all.
    next: AtomicPtr<ThreadBuffer<P>>,
    /// The next one that a reader chose ([`ThreadBuffers::choose`]).
    chosen: AtomicPtr<ThreadBuffer<P>>,
    /// The one behind it in a [`Queue`].
    behind: AtomicPtr<ThreadBuffer<P>>,
}

// SAFETY: the cells inside belong to the thread that owns the thread buffer while `inside` says so, and to a
// reader who froze the gate and found it outside; the rest are atomics.
unsafe impl<P> Sync for ThreadBuffer<P> {}

/// Events of signal handlers that came while their thread was inside a hook.
#[derive(Debug)]
struct Side {
    /// How many places have been taken, or asked for.
    taken: AtomicU32,
    events: [Cell<(u64, Event)>; SIDE_EVENTS],
    /// Which places have been filled. On the thread buffer's own thread all that are taken have; a reader may
    /// come while a handler fills one.
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
    /// Where the [`Cursor`] is, in bytes from the beginning.
    pub const CURSOR_OFFSET: usize = offset_of!(Self, cursor);
    /// Where stands whether the thread is inside a hook: a word, null or where its stack was then.
    pub const INSIDE_OFFSET: usize = offset_of!(Self, inside);
    /// Where the count of events lost beside the stream is: 4 bytes.
    pub const LOST_OFFSET: usize = offset_of!(Self, lost);
    /// Where the gate's count of changes at the thread's last event is: 4 bytes.
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
            turns: Cell::new(0),
            readable: AtomicBool::new(false),
            process: AtomicU32::new(0),
            owner: AtomicU32::new(0),
            withheld: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            sealed_lost: AtomicU32::new(0),
            lent: losses::Lent::new(),
            told: AtomicBool::new(true),
            next: AtomicPtr::new(null_mut()),
            chosen: AtomicPtr::new(null_mut()),
            behind: AtomicPtr::new(null_mut()),
        }
    }

    /// The cursor, for the stream to be set up with.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// The stream and table. To be written by the thread buffer's thread while inside, or set up before
    /// anybody else knows of the thread buffer.
    pub fn writer(&self) -> &Writer<P> {
        &self.writer
    }

    /// Keeps up with threads and interrupts while nothing is recorded.
    pub fn follow(&self, event: Event) {
        if !self.in_hook() {
            self.writer.follow_event(event);
        }
    }

    /// The process in which the thread buffer was made: after a fork the child has its parent's thread buffers, but
    /// not its threads.
    pub fn process(&self) -> u32 {
        self.process.load(Ordering::Relaxed)
    }

    /// The thread whose thread buffer it is, by the system's number.
    pub fn owner(&self) -> u32 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Says whose the thread buffer is: a process, and a thread of it.
    pub fn set_owner(&self, process: u32, thread: u32) {
        self.process.store(process, Ordering::Relaxed);
        self.owner.store(thread, Ordering::Relaxed);
    }

    /// Whether a reader may read the thread buffer: it has been sealed since the gate was frozen.
    pub fn readable(&self) -> bool {
        self.readable.load(Ordering::Relaxed)
    }

    /// Says that the thread buffer has been sealed, or may be written again.
    pub fn set_readable(&self, readable: bool) {
        self.readable.store(readable, Ordering::Relaxed);
    }

    /// Empties the side buffer and completes the newest packets at `now`, for a reader.
    ///
    /// # Safety
    /// The gate is frozen, every thread knows it ([`ThreadPort::fenced`]), and the thread buffer has been
    /// seen outside since; no other reader is at work.
    #[inline(never)]
    pub unsafe fn seal(&self, now: u64) {
        self.items.seal(now);
        self.withheld.store(0, Ordering::Relaxed);
        self.owned.written();
        self.drain();
        self.writer
            .stream()
            .add_discarded(self.lost.swap(0, Ordering::Relaxed));
        self.writer.stream().seal();
        let buffer = self.writer.stream().buffer();
        self.sealed_lost
            .store(buffer.discarded(), Ordering::Relaxed);
        self.told.store(buffer.has_told(), Ordering::Relaxed);
    }

    /// Whether there is something that [`seal`](Self::seal) would close or tell. Anybody may ask; of a thread that
    /// records it may be otherwise the next moment.
    #[inline(never)]
    pub fn needs_seal(&self) -> bool {
        let buffer = self.writer.stream().buffer();
        buffer.is_open()
            || self.items.has_open()
            || self.lost() != 0
            || self.pending()
            || !self.told.load(Ordering::Relaxed)
            || buffer.discarded() != self.sealed_lost.load(Ordering::Relaxed)
    }

    /// How many hooks were called while the recorder asked the program which thread runs, and the function that the
    /// last of them was for.
    pub fn refused(&self) -> (u32, usize) {
        let function = self.refused_function.load(Ordering::Relaxed);
        (self.refused.load(Ordering::Relaxed), function)
    }

    /// Events lost that the stream does not know of yet.
    pub fn lost(&self) -> u32 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the thread buffer's thread is inside a hook, or in the middle of an item, at this moment.
    pub fn inside(&self) -> bool {
        !self.inside.load(Ordering::Acquire).is_null() || self.items.busy()
    }

    /// Whether the calling thread, whose thread buffer it is, is inside a hook.
    #[inline(always)]
    fn in_hook(&self) -> bool {
        !self.inside.load(Ordering::Relaxed).is_null()
    }

    /// Records that a function was entered, from the place `caller`, or left by the thread buffer's own thread.
    #[inline(always)]
    pub fn call(&self, port: &P, gate: &Gate, edge: Edge, function: usize, caller: usize) {
        if self.in_hook() {
            return self.aside(port, gate, edge.of(function, caller));
        }
        self.enter(port);
        self.call_inside(port, gate, edge, function, caller);
    }

    /// The same from where the thread is inside, and nothing else has happened.
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
                        Edge::Exit => self.cursor.exit::<P>(low),
                    }
                }
            };
            if !done {
                // Not in duration mode, in which calls have [a way of their own](Self::call_in_duration).
                self.writer.record(now, edge.of(function, caller));
                port.refresh(self, now);
                if port.wall_clock_due(now) {
                    self.tell_wall_clock(port);
                }
            }
            self.leave(port, gate);
        } else {
            self.refuse(state);
        }
    }

    /// Whether the low bits of `now` in the cursor cannot be mistaken: the last event is not a turn of
    /// them ago. (A process has no tick that would see to it.)
    #[inline(always)]
    fn near(&self, now: u64) -> bool {
        P::LAYOUT.word == WordSize::Bits64
            || now.wrapping_sub(self.writer.stream().last()) < 1 << 31
    }

    /// Records any event of the thread buffer's own thread.
    #[inline(never)]
    pub fn hook(&self, port: &P, gate: &Gate, event: Event) {
        if self.in_hook() {
            return self.aside(port, gate, event);
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

    /// The time of the event that is about to be recorded. All that came before it has been.
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

    /// Records what time it is in the world, inside.
    #[cold]
    #[inline(never)]
    fn tell_wall_clock(&self, port: &P) {
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

    /// The gate was closed and opened since this thread's last event: what it had open then it may
    /// have left meanwhile. Of recording that was turned off and on the table must know, too.
    #[cold]
    #[inline(never)]
    fn notice_change(&self, now: u64, gate: &Gate) {
        self.changes.set(gate.changes());
        self.writer.stream().miss();
        self.writer.forget_stopper();
        let turns = gate.turns();
        if self.turns.replace(turns) != turns {
            if let Some(table) = self.writer.profile() {
                table.record(now, true);
            }
            #[cfg(feature = "duration")]
            self.abandon_calls();
        }
    }

    /// Records an event, inside.
    #[cfg(not(feature = "duration"))]
    #[inline(always)]
    fn record(&self, now: u64, event: Event) {
        self.writer.record(now, event);
    }

    /// Leaves the hook, with nothing left in the side buffer (unless a reader froze the gate
    /// meanwhile: then the reader empties it).
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

    /// Says that the thread is outside, after everything else.
    #[inline(always)]
    fn go_outside(&self) {
        compiler_fence(Ordering::SeqCst);
        self.inside.store(null_mut(), Ordering::Release);
        compiler_fence(Ordering::SeqCst);
    }

    /// Says that this thread is inside, before anything else is looked at.
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

    /// The gate was closed between the first look at it and the second, which saw this. (A third might
    /// see it open again, and the event would not be counted.)
    #[cold]
    fn refuse(&self, state: State) {
        if state.frozen() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.go_outside();
    }

    /// Keeps an event for the hook that this thread is inside of.
    #[cold]
    #[inline(never)]
    fn aside(&self, port: &P, gate: &Gate, event: Event) {
        if port.has_left(self.inside.load(Ordering::Relaxed)) {
            return self.return_and_hook(port, gate, event);
        }
        // The program's own function, by which it tells the thread, is instrumented: it would be called for this
        // event again.
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
        // Whoever is about to take the fast path sees now that there is something to empty.
        self.cursor.close();
        compiler_fence(Ordering::SeqCst);
    }

    /// Records what stands in the side buffer, in the order of time.
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

/// Waits, for a reader, until a place is filled; false if it is not for long: its handler was left
/// by a jump.
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

/// Sorts by time. Few entries, nearly in order.
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
