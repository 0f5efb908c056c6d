//! Encodes one event into the stream and updates the profile table. Shared by all drivers.

use core::cell::Cell;

use kymo_wire::event::EventId;

use crate::config::{
    Config, PROMOTE_ISR, PROMOTE_NOTHING, PROMOTE_SWITCHED_IN, PROMOTE_SWITCHED_OUT, Promotion,
};
use crate::encode::{Alone, Driver, Stream};
use crate::event::Parts;
use crate::gate::code;
use crate::hot::{CODE_BIT, low};
use crate::profile::{Profile, Storage};
use crate::stopper::OpenStoppers;
use crate::{Edge, Event, Target};

mod direct;
mod recording;
mod served;
mod set_up;
mod stopper;
#[cfg(target_has_atomic = "ptr")]
mod unrecorded;

pub(crate) use direct::Place;
use served::Served;
pub use set_up::WriterMemory;

/// The stream and the profile table of one CPU or thread, with the state that events change: the running thread, the
/// active interrupts. For one context at a time.
///
/// (Small processors access the first fields with the shortest instructions, so the most used ones come first.)
#[cfg_attr(target_pointer_width = "32", repr(C))]
#[derive(Debug)]
pub struct Writer<T> {
    /// Source of the running thread.
    threads: Cell<Threads>,
    /// The driver has a fast path, and permits its use.
    fast: Cell<bool>,
    /// The program's `current_thread` is running: calls that it makes are not recorded.
    asking: Cell<bool>,
    /// Call sites are recorded.
    sites: Cell<bool>,
    /// Recording has been turned off since it was last turned on.
    was_off: Cell<bool>,
    /// Open calls of the stopper in the thread that entered it first.
    stopper: Cell<OpenStoppers>,
    /// Hash filter of the promoted functions, one bit for each hash: it alone excludes most other functions. All bits
    /// are set where there is a table and calls of other functions need more than a record and the table.
    promoted: Promoted,
    config: Cell<Option<&'static Config>>,
    /// While recording is off: the thread that ran when it was turned off, which is the last that the stream reports.
    /// While it is on: the thread that entered the stopper first.
    off_thread: Cell<usize>,
    stream: Stream<T>,
    profile: Storage<T>,
    /// The active interrupts, outermost first: as many as the stream's `isr_depth` says, as far as there is room.
    served: Served,
}

/// Storage of the hash filter. (Hooks that keep a table read it in any case.)
#[cfg(any(feature = "promotions", feature = "profile"))]
type Promoted = Cell<u32>;
#[cfg(not(any(feature = "promotions", feature = "profile")))]
type Promoted = crate::compiled_out::CompiledOut<u32>;

/// Source of the running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Threads {
    /// The program's switch events, of which there was none yet.
    Unreported,
    /// The program's `current_thread`, called at every event.
    Queried,
    /// The program's switch events: there is no need to call `current_thread`.
    Reported,
}

impl<T: Target> Writer<T> {
    /// Offset of the stream's count of discarded events: 4 bytes.
    pub const DISCARDED_OFFSET: usize =
        core::mem::offset_of!(Self, stream) + Stream::<T>::DISCARDED_OFFSET;

    /// Offset of the hash filter of functions whose calls need more than a record and the table.
    pub const PROMOTED_OFFSET: usize = core::mem::offset_of!(Self, promoted);
    /// Offset of the table, or of its address (on bare metal with 32-bit words).
    pub const TABLE_OFFSET: usize = core::mem::offset_of!(Self, profile);
    /// Location of the table's state for readers of memory, for a writer at this offset in the recorder
    /// ([`Kept::table`](crate::config::Kept::table)).
    pub const fn table_place(writer: usize) -> Option<(u8, u32)> {
        if !cfg!(feature = "profile") {
            return None;
        }
        Some(match Storage::<T>::PLACE {
            (0, inside) => (0, (writer + Self::TABLE_OFFSET + inside) as u32),
            (slots, _) => (slots, kymo_wire::note::NOWHERE),
        })
    }

    /// Offset of the time of the last record that the slow path knows of.
    pub const LAST_OFFSET: usize = core::mem::offset_of!(Self, stream) + Stream::<T>::LAST_OFFSET;

    /// A writer without memory. All zero.
    pub const fn new() -> Self {
        Self {
            stream: Stream::new(),
            profile: Storage::new(),
            config: Cell::new(None),
            promoted: Promoted::new(0),
            asking: Cell::new(false),
            sites: Cell::new(false),
            off_thread: Cell::new(0),
            was_off: Cell::new(false),
            stopper: Cell::new(OpenStoppers::NONE),
            threads: Cell::new(Threads::Unreported),
            fast: Cell::new(false),
            served: Served::new(),
        }
    }

    /// The packets.
    pub fn stream(&self) -> &Stream<T> {
        &self.stream
    }

    /// The profile table, if there is one.
    pub fn profile(&self) -> Option<&Profile<T>> {
        self.profile.table()
    }

    /// The program's configuration, once this has been [set up](Self::set_up).
    pub(crate) fn config(&self) -> Option<&'static Config> {
        self.config.get()
    }

    /// The program's promotions.
    #[inline(always)]
    fn promotions(&self) -> &'static [Promotion] {
        match self.config.get() {
            Some(config) if cfg!(feature = "promotions") && !config.promotions.is_null() => {
                // SAFETY: by the contract of `set_up`.
                unsafe {
                    core::slice::from_raw_parts(config.promotions, config.promotion_count as usize)
                }
            }
            _ => &[],
        }
    }

    /// Permits the fast path for usual entries and exits, as far as the program's configuration allows it.
    pub fn allow_fast(&self, fast: bool) {
        self.fast.set(fast);
        self.choose_path();
    }

    /// Enables the fast path where nothing rules it out: it updates no table, calls no `current_thread`, and records
    /// neither call sites nor promotions.
    fn choose_path(&self) {
        let asks = self.threads.get() == Threads::Queried;
        let plain = self.fast.get() && !asks && !self.keep_sites();
        let table = self.profile.table().is_some();
        let functions = self.promotions().iter().filter_map(|it| it.function);
        let promoted = functions.fold(0, |bits, function| bits | bit(code(function as usize)));
        let other_ways = table && !plain;
        self.promoted
            .set(if other_ways { u32::MAX } else { promoted });
        self.stream.set_fast(plain && !table && promoted == 0);
        self.choose_direct();
    }

    /// Identifies the path that entries and exits take: a number that changes with the path, and is never 0.
    #[cfg(feature = "cost")]
    pub(crate) fn way(&self) -> u8 {
        self.threads.get() as u8 + 1
    }

    /// Whether the program reports its thread switches.
    #[cfg(feature = "cost")]
    pub(crate) fn reports_switches(&self) -> bool {
        self.threads.get() == Threads::Reported
    }

    /// Notes that the program reports its thread switches.
    #[inline(always)]
    fn note_switches(&self, driver: &impl Driver) {
        if self.threads.get() != Threads::Reported {
            driver.apart(|| {
                self.threads.set(Threads::Reported);
                self.choose_path();
            });
        }
    }

    /// Whether the writer calls the program's `current_thread` at every event.
    #[cfg(feature = "duration")]
    pub(crate) fn queries_thread(&self) -> bool {
        self.threads.get() == Threads::Queried
    }

    /// Whether call sites are recorded.
    fn keep_sites(&self) -> bool {
        self.sites.get()
    }

    /// Records an event at `now` in the stream and the table, where no other context can interrupt. Addresses of
    /// functions have no Thumb bit.
    #[inline(always)]
    pub fn record(&self, now: u64, event: Event) {
        let alone = &Alone::at(&self.stream, now);
        match event {
            Event::Enter(function) => _ = self.call(alone, Edge::Enter, function, 0),
            Event::EnterFrom { function, caller } => {
                _ = self.call(alone, Edge::Enter, function, caller);
            }
            Event::Exit(function) => _ = self.call(alone, Edge::Exit, function, 0),
            Event::Recording { on, cause } => self.record_on_off(on, cause, alone.now()),
            _ => match event.parts::<T>() {
                Ok(parts) => _ = self.other(alone, parts),
                Err(long) => self.stream.record_parts64(alone, long),
            },
        }
    }

    /// Records an entry (from the call site `caller`, unless that is 0) or an exit in the stream and the table; returns
    /// false if the driver has stopped recording. Addresses of functions have no Thumb bit.
    #[inline(always)]
    pub(crate) fn call(
        &self,
        driver: &impl Driver,
        edge: Edge,
        function: usize,
        caller: usize,
    ) -> bool {
        if self.asking.get() {
            driver.refuse(function);
            return true;
        }
        if self.may_be_promoted(function)
            && let Some(promotion) = self.promotion(function)
        {
            return self.promote(driver, edge, function, caller, promotion);
        }
        if self.threads.get() == Threads::Queried {
            self.notice_thread(driver);
        }
        self.plain_call(driver, edge, function, caller)
    }

    #[inline(always)]
    fn plain_call(&self, driver: &impl Driver, edge: Edge, function: usize, caller: usize) -> bool {
        match edge {
            Edge::Enter => self.enter(driver, function, caller),
            Edge::Exit => self.exit(driver, function),
        }
    }

    #[inline(never)]
    fn enter(&self, driver: &impl Driver, function: usize, caller: usize) -> bool {
        let caller = if self.keep_sites() { caller } else { 0 };
        let also = |now| self.account_call(now, Edge::Enter, function);
        let recorded = match self.stream.enter(driver, function, caller, also) {
            Ok(recorded) => recorded,
            Err(parts) => self.put(driver, parts, function),
        };
        self.replace(driver);
        recorded
    }

    #[inline(never)]
    fn exit(&self, driver: &impl Driver, function: usize) -> bool {
        let also = |now| self.account_call(now, Edge::Exit, function);
        match self.stream.exit(driver, function, also) {
            Ok(recorded) => recorded,
            Err(parts) => self.put(driver, parts, function),
        }
    }

    /// Updates the table with a call, in the same step that records it.
    #[inline(always)]
    fn account_call(&self, now: usize, edge: Edge, function: usize) {
        if cfg!(feature = "profile") {
            let id = match edge {
                Edge::Enter => EventId::EnterFar,
                Edge::Exit => EventId::ExitFar,
            };
            self.account_other(self.stream.whole(now), id, function);
        }
    }

    /// If the table is full, gives another function's slot to one that was entered.
    #[inline(always)]
    pub(crate) fn replace(&self, driver: &impl Driver) {
        if let Some(table) = self.profile.get()
            && table.is_wanting()
        {
            driver.apart(|| table.replace());
        }
    }

    /// The table, if it is being kept.
    #[inline(always)]
    fn kept(&self) -> Option<&Profile<T>> {
        self.profile.get().filter(|table| table.is_kept())
    }

    /// Whether a function may be promoted: the hash filter excludes most others.
    #[inline(always)]
    fn may_be_promoted(&self, function: usize) -> bool {
        self.promoted.get() & bit(function) != 0
    }

    #[cold]
    fn promotion(&self, function: usize) -> Option<&'static Promotion> {
        let is = |promotion: &&Promotion| {
            promotion
                .function
                .is_some_and(|it| code(it as usize) == function)
        };
        self.promotions().iter().find(is)
    }

    #[cold]
    #[inline(never)]
    fn promote(
        &self,
        driver: &impl Driver,
        edge: Edge,
        function: usize,
        caller: usize,
        promotion: &Promotion,
    ) -> bool {
        let enter = matches!(edge, Edge::Enter);
        let irq = usize::from(promotion.irq);
        match promotion.kind {
            kind @ (PROMOTE_SWITCHED_IN | PROMOTE_SWITCHED_OUT) if enter => {
                driver.apart(|| self.query_thread());
                let id = match kind {
                    PROMOTE_SWITCHED_IN => EventId::SwitchedIn,
                    _ => EventId::SwitchedOut,
                };
                self.other(driver, (id, self.stream.thread(), 0))
            }
            PROMOTE_SWITCHED_IN | PROMOTE_SWITCHED_OUT | PROMOTE_NOTHING => true,
            PROMOTE_ISR if enter => {
                self.other(driver, (EventId::IsrEnter, irq, 0))
                    && self.plain_call(driver, edge, function, caller)
            }
            PROMOTE_ISR => {
                self.plain_call(driver, edge, function, caller)
                    && self.other(driver, (EventId::IsrExitNamed, irq, 0))
            }
            _ => self.plain_call(driver, edge, function, caller),
        }
    }

    /// Records an event that is neither an entry nor an exit; returns as [`call`](Self::call).
    #[inline(always)]
    pub(crate) fn other(&self, driver: &impl Driver, parts: Parts) -> bool {
        self.put(driver, parts, 0)
    }

    /// Records an event in a form other than the short entries and exits. `function` is that of an entry or exit, else
    /// 0.
    #[inline(never)]
    fn put(&self, driver: &impl Driver, (id, first, second): Parts, function: usize) -> bool {
        let id = match id {
            EventId::IsrExitNamed if self.innermost() == Some(first as u16) => EventId::IsrExit,
            EventId::SwitchedIn | EventId::SwitchedOut => {
                self.note_switches(driver);
                id
            }
            EventId::Longjmp => {
                driver.apart(|| self.jump_in_stopper());
                id
            }
            _ => id,
        };
        let follows = (EventId::Context as u8..=EventId::IsrExitNamed as u8).contains(&(id as u8));
        let accounted = self.profile.is_kept() && updates_table(id);
        let subject = if function != 0 { function } else { first };
        let also = |now| {
            if accounted {
                self.account_other(self.stream.whole(now), id, subject);
            }
            if follows {
                self.follow_apart(id, first);
            }
        };
        let discarded = || also(low::<T>(self.stream.last()));
        let parts = (id, first, second);
        self.stream.other(driver, parts, also, discarded)
    }

    #[inline(never)]
    fn account_other(&self, now: u64, id: EventId, first: usize) {
        let Some(profile) = self.kept() else {
            return;
        };
        let (thread, function) = (first, first);
        match id {
            EventId::EnterFar | EventId::EnterFrom | EventId::EnterFarFrom => {
                profile.enter_only(now, self.stream.thread(), function);
            }
            EventId::ExitNamed | EventId::ExitFar => {
                profile.exit(now, self.stream.thread(), function);
            }
            EventId::SwitchedIn => profile.switched_in(now, thread),
            EventId::SwitchedOut => profile.switched_out(now),
            EventId::Context if thread != self.stream.thread() => {
                profile.switched_in(now, thread);
                self.stream.set_thread(thread);
            }
            EventId::IsrEnter => profile.isr_enter(now),
            EventId::IsrExit | EventId::IsrExitNamed => profile.isr_exit(now),
            EventId::Setjmp => profile.set_jump(thread),
            EventId::Longjmp => profile.jump(now, thread),
            _ => {}
        }
    }

    /// The number of the innermost active interrupt, if there is one and its number is known.
    fn innermost(&self) -> Option<u16> {
        self.served.at(self.stream.isr_depth.get().checked_sub(1)?)
    }

    /// Notes an interrupt as the innermost active one, before `isr_depth` counts it.
    #[inline(always)]
    fn serve(&self, irq: usize) {
        self.served.note(self.stream.isr_depth.get(), irq as u16);
    }

    /// Tracks thread and interrupts while nothing is recorded, so that packets are correct as soon as recording is on.
    pub fn follow_event(&self, event: Event) {
        if let Ok((id, first, _)) = event.parts::<T>() {
            self.follow(id, first);
        }
    }

    /// The same for an event in [parts](Event::parts).
    pub(crate) fn follow(&self, id: EventId, first: usize) {
        if matches!(id, EventId::SwitchedIn | EventId::SwitchedOut)
            && self.threads.replace(Threads::Reported) != Threads::Reported
        {
            self.choose_path();
        }
        self.follow_apart(id, first);
    }

    /// [`follow_parts`](Self::follow_parts), not inlined, for callers that need not be fast.
    #[inline(never)]
    fn follow_apart(&self, id: EventId, first: usize) {
        self.follow_parts(id, first);
    }

    #[inline(always)]
    fn follow_parts(&self, id: EventId, first: usize) {
        let depth = &self.stream.isr_depth;
        match id {
            EventId::SwitchedIn | EventId::Context => self.stream.set_thread(first),
            EventId::SwitchedOut => self.stream.set_thread(0),
            EventId::IsrEnter => {
                self.serve(first);
                depth.set(depth.get().saturating_add(1));
            }
            EventId::IsrExit | EventId::IsrExitNamed => {
                depth.set(depth.get().saturating_sub(1));
            }
            _ => {}
        }
    }

    /// Updates the running thread from the program's `current_thread`, if it has one; returns the thread.
    pub fn query_thread(&self) -> usize {
        if let Some(current_thread) = self.config.get().and_then(|it| it.current_thread)
            && !self.asking.replace(true)
        {
            // SAFETY: by the contract of `set_up`.
            self.stream.set_thread(unsafe { current_thread() });
            self.asking.set(false);
        }
        self.stream.thread()
    }

    /// Runs `work` with the running thread as the program's `current_thread` reports it, if it is called at every event.
    /// The stream has not recorded this thread yet, so it is restored.
    #[cold]
    pub(crate) fn with_queried_thread(&self, work: impl FnOnce(usize)) {
        let before = self.stream.thread();
        if self.threads.get() == Threads::Queried && self.stream.isr_depth.get() == 0 {
            work(self.query_thread());
            self.stream.set_thread(before);
        } else {
            work(before);
        }
    }

    /// Whether the program's `current_thread` is running.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn is_asking(&self) -> bool {
        self.asking.get()
    }

    /// Detects a thread switch by calling `current_thread`, for programs that don't report switches.
    #[cold]
    #[inline(never)]
    fn notice_thread(&self, driver: &impl Driver) {
        let (before, thread) = driver.apart(|| {
            let before = self.stream.thread();
            if self.stream.isr_depth.get() != 0 {
                return (before, before);
            }
            let thread = self.query_thread();
            self.stream.set_thread(before);
            (before, thread)
        });
        if thread != before {
            self.other(driver, (EventId::Context, thread, 0));
        }
        driver.expect_thread(thread);
    }
}

impl<T: Target> Default for Writer<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether an event of this id changes the table.
#[inline(always)]
fn updates_table(id: EventId) -> bool {
    !matches!(
        id,
        EventId::Marker | EventId::NamedMarker | EventId::WallClock
    )
}

/// The bit of a function in the hash filter: bit 31, rotated left by the low five bits of `address ^ address >> 5`,
/// where the address has the Thumb bit. Hooks in assembly compute the same: they rotate the filter right and test bit
/// 31.
#[inline(always)]
fn bit(function: usize) -> u32 {
    let address = function | CODE_BIT;
    (1u32 << 31).rotate_left((address ^ address >> 5) as u32)
}
