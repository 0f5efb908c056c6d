//! The gate: decides whether an event is recorded.
//!
//! It has two stages, as in Zephyr's RFC 57373 for its instrumentation subsystem. *Enabled*: recording is permitted at
//! all. Programs disable this stage around code that they don't want to trace ([`Gate::disable`] nests). *On*: between
//! the trigger and the stopper, or by command. A third state suppresses recording: *frozen*, while a dump is being
//! read.
//!
//! All of this is the *state*, a set of bits. Its upper half is a magic number that start-up code copies into RAM with
//! the rest of `.data`: before that, the recorder does nothing, whatever the RAM contains. (After a reset that
//! preserves RAM the magic number would still be there. Start-up code must not be instrumented, and [`Gate::shut`] must
//! be called before a reboot.)
//!
//! Hooks first load something simpler, the *word*, which has one of three values ([`hot`](crate::hot)): a hook that is
//! off costs a load, a compare and a return. The gate recomputes the word whenever the state or the trigger changes.
//!
//! The gate also holds trigger and stopper, stored with the Thumb bit of code addresses; its functions take and return
//! them without it.

use core::mem::offset_of;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::AtomicUsize;

#[cfg(feature = "conditions")]
use crate::conditions::{Condition, Conditions};
use crate::retained::Retained;
use crate::sync::{ALONE, AtomicPtr, AtomicU32, Ordering, SHARED, change, load_acquire};

/// The Thumb bit, which compilers set in every function address that they pass to hooks. Trigger, stopper and [text
/// base](crate::hot::Cursor::text_base) are stored with it, so that hooks need not clear it.
pub const CODE_BIT: usize = if cfg!(target_arch = "arm") { 1 } else { 0 };

/// Number of words of a [`Hot`](crate::hot::Hot) before its gate: the words of the cursor. `hot` asserts it.
pub(crate) const WORDS_BEFORE: usize = 8;

/// The upper half of the state once RAM is initialized.
pub(crate) const MAGIC: u32 = 0x4B79_0000;
/// Recording is on.
const ON: u32 = 1;
/// A dump is being read, or something else needs the buffers unchanged.
const FROZEN: u32 = 2;
/// Disabled by command.
const COMMANDED: u32 = 4;
/// The recorder has not been set up yet: the first hook does it.
const NEW: u32 = 8;
/// The recorder could not be set up.
const FAILED: u32 = 16;
/// A context is setting the recorder up.
const CLAIMED: u32 = 32;
/// Recording has never been turned on.
const NEVER_ON: u32 = 64;
/// A single shot has ended: the trigger has no effect.
const SPENT: u32 = 128;
/// One call of [`Gate::disable`] that no [`Gate::enable`] has matched yet.
const DISABLED: u32 = 256;
/// The bits that count them: up to 255.
const DISABLED_MASK: u32 = 0xFF00;

/// The state while events are recorded.
pub const OPEN: u32 = MAGIC | ON;

/// The word while nothing is recorded and a trigger is set.
const ARMED: *mut u8 = without_provenance_mut(2);

/// The gate. It must be in initialized RAM (`.data`).
#[repr(C)]
#[derive(Debug)]
pub struct Gate {
    /// With [`CODE_BIT`], unless it is 0.
    trigger: AtomicUsize,
    word: AtomicPtr<u8>,
    /// With [`CODE_BIT`], unless it is 0.
    stopper: AtomicUsize,
    state: AtomicU32,
    /// Counts how often recording was turned on or off.
    generation: [AtomicU32; SHARED],
    /// Counts the changes, other than by a reader, after which events may begin or cease to be missed.
    changes: [AtomicU32; SHARED],
    /// In duration mode, the word that hooks find while events are recorded; else null.
    #[cfg(feature = "duration")]
    duration: AtomicPtr<u8>,
    /// Conditions under which trigger and stopper act; `None`: always.
    #[cfg(feature = "conditions")]
    conditions: Option<&'static Conditions>,
}

/// Call site of a possible trigger or stopper, with the conditions that apply. Empty, and without any instruction, in a
/// recorder without conditions.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    #[cfg(feature = "conditions")]
    conditions: Option<&'static Conditions>,
    #[cfg(feature = "conditions")]
    caller: usize,
}

impl Site {
    /// Whether the trigger acts when it is called from here while recording is off.
    #[inline(always)]
    pub fn triggers(self) -> bool {
        #[cfg(feature = "conditions")]
        if let Some(conditions) = self.conditions
            && conditions.trigger.is_set()
        {
            return conditions.trigger.admits(self.caller) && conditions.trigger.act();
        }
        true
    }

    /// Takes back that trigger or stopper acted, as something else had turned recording on or off before.
    #[inline(always)]
    pub fn take_back(self, stopper: bool) {
        let _ = stopper;
        #[cfg(feature = "conditions")]
        if let Some(conditions) = self.conditions {
            conditions.take_back(stopper);
        }
    }

    /// Returns the stopper's condition, if it has one, and the address from which the stopper is called.
    #[cfg(feature = "conditions")]
    pub(crate) fn stopper(self) -> Option<(&'static Condition, usize)> {
        let stopper = &self.conditions?.stopper;
        stopper.is_set().then_some((stopper, self.caller))
    }
}

/// Decision of a hook from the gate's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing to do.
    Closed,
    /// Only the entry of the trigger matters.
    Armed,
    /// Events are recorded, or the slow path must handle them.
    Open,
    /// As `Open`, in [duration mode](crate::duration), with the word's two low bits: whether functions are filtered,
    /// and whether calls take the slow path.
    #[cfg(feature = "duration")]
    Duration(usize),
}

/// Snapshot of the gate's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(u32);

impl State {
    /// Events are recorded.
    pub const fn open(self) -> bool {
        self.0 == OPEN
    }
    /// RAM is initialized: the recorder may be accessed.
    pub const fn alive(self) -> bool {
        self.0 >> 16 == MAGIC >> 16
    }
    /// The recorder has not been set up yet.
    pub const fn fresh(self) -> bool {
        self.0 & NEW != 0
    }
    /// The recorder has been set up, or is being set up.
    pub const fn set_up(self) -> bool {
        self.0 & (NEW | FAILED) == 0
    }
    /// The recorder could not be set up: nothing will ever be recorded.
    pub const fn failed(self) -> bool {
        self.0 & FAILED != 0
    }
    /// A context is setting the recorder up now.
    pub const fn claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }
    /// The recorder has been set up, and the buffers are not frozen.
    pub const fn usable(self) -> bool {
        self.0 & (NEW | CLAIMED | FAILED | FROZEN) == 0
    }
    /// Recording has been turned on before.
    pub const fn was_ever_on(self) -> bool {
        self.0 & NEVER_ON == 0
    }
    /// A single shot has ended: the trigger has no effect.
    pub const fn spent(self) -> bool {
        self.0 & SPENT != 0
    }
    /// Recording is on: between trigger and stopper, or by command.
    pub const fn on(self) -> bool {
        self.0 & ON != 0
    }
    /// Neither the program nor a command disables recording.
    pub const fn enabled(self) -> bool {
        self.0 & (COMMANDED | DISABLED_MASK) == 0
    }
    /// The buffers are frozen.
    pub const fn frozen(self) -> bool {
        self.0 & FROZEN != 0
    }
}

impl Gate {
    /// Offset of the trigger.
    pub const TRIGGER_OFFSET: usize = offset_of!(Self, trigger);
    /// Offset of the word.
    pub const WORD_OFFSET: usize = offset_of!(Self, word);
    /// Offset of the stopper.
    pub const STOPPER_OFFSET: usize = offset_of!(Self, stopper);
    /// Offset of the state, 4 bytes.
    pub const STATE_OFFSET: usize = offset_of!(Self, state);
    /// Offset of the count of changes, 4 bytes.
    pub const CHANGES_OFFSET: usize = offset_of!(Self, changes);

    /// Gate of a recorder that the first hook will set up. Deliberately not all zero. `hot` is the address of the
    /// [`Hot`](crate::hot::Hot) that will contain it.
    pub(crate) const fn new(hot: *mut u8) -> Self {
        Self {
            trigger: AtomicUsize::new(0),
            word: AtomicPtr::new(hot),
            stopper: AtomicUsize::new(0),
            state: AtomicU32::new(MAGIC | NEW | NEVER_ON),
            generation: [const { AtomicU32::new(0) }; SHARED],
            changes: [const { AtomicU32::new(0) }; SHARED],
            #[cfg(feature = "duration")]
            duration: AtomicPtr::new(null_mut()),
            #[cfg(feature = "conditions")]
            conditions: None,
        }
    }

    /// Sets the conditions under which trigger and stopper act.
    #[cfg(feature = "conditions")]
    pub(crate) const fn set_conditions(&mut self, conditions: &'static Conditions) {
        self.conditions = Some(conditions);
    }

    /// The conditions under which trigger and stopper act; `None`: always.
    #[cfg(feature = "conditions")]
    pub fn conditions(&self) -> Option<&'static Conditions> {
        self.conditions
    }

    /// The site of a call that returns to `caller`.
    #[inline(always)]
    pub fn site(&self, caller: usize) -> Site {
        let _ = caller;
        Site {
            #[cfg(feature = "conditions")]
            conditions: self.conditions,
            #[cfg(feature = "conditions")]
            caller,
        }
    }

    /// Switches to duration mode, in which hooks find `word` while events are recorded; null switches back to entries
    /// and exits. The two low bits of `word` are those of [`Look::Duration`].
    #[cfg(feature = "duration")]
    pub fn set_duration(&self, word: *mut u8) {
        self.duration.store(word, Ordering::SeqCst);
        self.update_word();
    }

    /// Whether calls are recorded in duration mode.
    #[cfg(feature = "duration")]
    #[inline(always)]
    pub fn in_duration(&self) -> bool {
        !self.duration.load(Ordering::Relaxed).is_null()
    }

    /// Decides, from the word, what a hook has to do.
    #[inline(always)]
    pub fn look(&self) -> Look {
        let word = self.word.load(Ordering::Relaxed);
        if word.is_null() {
            Look::Closed
        } else if word == self.hot() {
            Look::Open
        } else if cfg!(feature = "duration") && word != ARMED {
            #[cfg(feature = "duration")]
            return Look::Duration(word.addr() & 3);
            #[cfg(not(feature = "duration"))]
            Look::Armed
        } else {
            Look::Armed
        }
    }

    /// The word that makes hooks record: the address of the [`Hot`](crate::hot::Hot) that contains this gate.
    #[inline(always)]
    fn hot(&self) -> *mut u8 {
        let this: *const Self = self;
        this.cast::<u8>()
            .cast_mut()
            .wrapping_sub(WORDS_BEFORE * size_of::<usize>())
    }

    /// Switches hooks on or off without regard to the state: for a recorder that has no state
    /// ([`minimal`](crate::minimal)).
    #[inline(always)]
    pub(crate) fn set_word(&self, record: bool) {
        let word = if record { self.hot() } else { null_mut() };
        self.word.store(word, Ordering::Relaxed);
    }

    /// Whether events are recorded.
    #[inline(always)]
    pub fn open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// [`open`](Self::open) as a sequentially consistent load: for writers that have announced themselves with a
    /// sequentially consistent store. On AArch64 this is a load-acquire, which is not reordered before an earlier
    /// store-release.
    #[inline(always)]
    pub fn open_in_order(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    /// [`state`](Self::state) as a sequentially consistent load, as [`open_in_order`](Self::open_in_order).
    pub fn state_in_order(&self) -> State {
        State(self.state.load(Ordering::SeqCst))
    }

    /// Loads the state with acquire ordering. A writer that sees an open gate here also sees what a reader did to the
    /// writer's stream before it opened the gate.
    #[inline(always)]
    pub fn state(&self) -> State {
        State(load_acquire(&self.state))
    }

    /// Clears some bits of the state, sets others and updates the word; returns the previous state. On processors
    /// without compare-and-swap the caller has masked interrupts.
    #[inline(never)]
    fn change(&self, clear: u32, set: u32) -> State {
        let old = change(&self.state, |state| state & !clear | set);
        self.update_word();
        State(old)
    }

    /// The word for this state and this trigger. (After [`shut`](Self::shut) the state has no bit set.)
    #[inline(always)]
    fn word_of(&self, state: State, trigger: usize) -> *mut u8 {
        let State(bits) = state;
        if bits & (NEW | CLAIMED) != 0 {
            return self.hot();
        }
        match bits & (ON | SPENT | FAILED | COMMANDED | DISABLED_MASK) {
            ON => self.open_word(),
            0 if trigger != 0 => ARMED,
            _ => null_mut(),
        }
    }

    /// The word while events are recorded.
    #[inline(always)]
    fn open_word(&self) -> *mut u8 {
        #[cfg(feature = "duration")]
        if self.in_duration() {
            return self.duration.load(Ordering::Relaxed);
        }
        self.hot()
    }

    /// Updates the word. Several contexts may do so at once: each reads the state again after its store, and repeats if
    /// it has changed, so the last store is up to date.
    #[inline(never)]
    fn update_word(&self) {
        if ALONE {
            let trigger = self.trigger.load(Ordering::Relaxed);
            let word = self.word_of(self.state(), trigger);
            return self.word.store(word, Ordering::Relaxed);
        }
        loop {
            let state = State(self.state.load(Ordering::SeqCst));
            let trigger = self.trigger.load(Ordering::SeqCst);
            #[cfg(feature = "duration")]
            let duration = self.duration.load(Ordering::SeqCst);
            self.word
                .store(self.word_of(state, trigger), Ordering::SeqCst);
            #[cfg(feature = "duration")]
            if self.duration.load(Ordering::SeqCst) != duration {
                continue;
            }
            if self.state.load(Ordering::SeqCst) == state.0
                && self.trigger.load(Ordering::SeqCst) == trigger
            {
                return;
            }
        }
    }

    /// Opens the gate for a measurement, whatever its state; returns the state for [`restore`](Self::restore) to restore.
    /// The caller has masked interrupts from here until then.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn force(&self) -> State {
        let state = State(self.state.load(Ordering::Relaxed));
        self.state.store(OPEN, Ordering::Relaxed);
        self.word.store(self.hot(), Ordering::Relaxed);
        state
    }

    /// Restores the state that [`force`](Self::force) returned.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn restore(&self, state: State) {
        self.state.store(state.0, Ordering::Relaxed);
        self.update_word();
    }

    /// Claims the right to set the recorder up: true for the first caller only, until it calls
    /// [`set_up`](Self::set_up). (A driver for one processor that sets up with interrupts masked needs no claim.)
    pub fn claim(&self) -> bool {
        self.change(NEW, CLAIMED).fresh()
    }

    /// Ends the set-up: it succeeded, or has failed for good (`failed`), or the next hook tries it again (`again`).
    pub fn set_up(&self, failed: bool, again: bool) {
        let failed = if failed { FAILED } else { 0 };
        let new = if again { NEW } else { 0 };
        self.change(CLAIMED | NEW, failed | new);
    }

    /// Disables recording once more; [`enable`](Self::enable) reverts it. From 255 open calls on, the gate stays closed
    /// for good.
    pub fn disable(&self) {
        self.count_disabled(true);
    }

    /// Reverts one [`disable`](Self::disable); does nothing if none is open, or if there were 255.
    pub fn enable(&self) {
        self.count_disabled(false);
    }

    /// Adds one open call of [`disable`](Self::disable), or removes one.
    #[inline(never)]
    pub(crate) fn count_disabled(&self, more: bool) {
        let step = if more {
            DISABLED
        } else {
            DISABLED.wrapping_neg()
        };
        change(&self.state, |state| match state & DISABLED_MASK {
            DISABLED_MASK => state,
            0 if !more => state,
            _ => state.wrapping_add(step),
        });
        self.update_word();
        count(&self.changes);
    }

    /// Disables or enables recording by command, independently of the program's calls.
    pub fn command(&self, enabled: bool) {
        self.set(COMMANDED, !enabled);
        count(&self.changes);
    }

    /// Turns recording on or off; returns whether that is a change. When it turns off and a single shot is `over`, the
    /// trigger has no effect from then on.
    pub fn set_recording(&self, on: bool, over: bool) -> bool {
        if self.state().on() == on {
            return false;
        }
        // Before the state, so that a context that sees recording on also sees the new counts.
        count(&self.generation);
        count(&self.changes);
        let set = match (on, over) {
            (true, _) => ON,
            (false, true) => SPENT,
            (false, false) => 0,
        };
        self.change(ON | NEVER_ON | SPENT, set).on() != on
    }

    /// The site of an event. Events that are no call, or whose caller is unknown, have the caller 0.
    #[inline(always)]
    pub fn site_of(&self, event: &crate::Event) -> Site {
        #[cfg(feature = "conditions")]
        let site = self.site(event.caller());
        #[cfg(not(feature = "conditions"))]
        let site = {
            let _ = event;
            Site {}
        };
        site
    }

    /// Makes the trigger effective again after a single shot.
    pub fn rearm(&self) {
        #[cfg(feature = "conditions")]
        if let Some(conditions) = self.conditions {
            conditions.rearm();
        }
        self.set(SPENT, false);
    }

    /// Counts a change as if events may have been missed, for drivers in which a reader causes that.
    pub fn call_attention(&self) {
        count(&self.changes);
    }

    /// A counter that changes whenever events may have been missed because the gate was closed, other than by a reader.
    /// (Recorders of microcontrollers don't keep it.)
    #[inline(always)]
    pub fn changes(&self) -> u32 {
        counted(&self.changes)
    }

    /// A counter that changes whenever recording is turned on or off. (Recorders of microcontrollers don't keep it.)
    #[inline(always)]
    pub fn generation(&self) -> u32 {
        counted(&self.generation)
    }

    /// Resets the gate in the child of a fork: other threads of the parent don't exist here, so a set-up or dump that
    /// one of them had begun never ends. Counts a change, because events may have been missed.
    #[cfg(target_has_atomic = "32")]
    pub fn start_as_child(&self) {
        if self.state().claimed() {
            self.change(CLAIMED, NEW);
        }
        self.change(FROZEN, 0);
        count(&self.changes);
    }

    /// Freezes or unfreezes the buffers; returns the previous state.
    pub fn freeze(&self, frozen: bool) -> State {
        self.set(FROZEN, frozen)
    }

    /// Closes the gate for good: before a reboot, so that RAM that survives it does not look initialized.
    pub fn shut(&self) {
        self.change(u32::MAX, 0);
    }

    fn set(&self, bit: u32, set: bool) -> State {
        self.change(bit, if set { bit } else { 0 })
    }

    /// The function whose entry turns recording on; 0 for none.
    #[inline(always)]
    pub fn trigger(&self) -> usize {
        code(self.trigger.load(Ordering::Relaxed))
    }

    /// The function whose exit turns recording off; 0 for none.
    #[inline(always)]
    pub fn stopper(&self) -> usize {
        code(self.stopper.load(Ordering::Relaxed))
    }

    /// Trigger and stopper as they are stored here, for a single shot if `once`.
    pub fn sets(&self, once: bool) -> Retained {
        let load = |function: &AtomicUsize| function.load(Ordering::Relaxed);
        Retained {
            #[cfg(feature = "conditions")]
            conditions: self
                .conditions
                .map_or_else(Default::default, |it| it.kept()),
            ..Retained::new(load(&self.trigger), load(&self.stopper), once)
        }
    }

    /// Sets the trigger or the stopper; 0 for none.
    #[inline(never)]
    pub fn set_function(&self, stopper: bool, function: usize) {
        let place = match stopper {
            true => &self.stopper,
            false => &self.trigger,
        };
        let order = if ALONE {
            Ordering::Relaxed
        } else {
            Ordering::SeqCst
        };
        place.store(marked(function), order);
        self.rearm();
    }

    /// Sets the trigger; 0 for none.
    pub fn set_trigger(&self, function: usize) {
        self.set_function(false, function);
    }

    /// Sets the stopper; 0 for none.
    pub fn set_stopper(&self, function: usize) {
        self.set_function(true, function);
    }
}

/// Increments a counter, if this recorder keeps it. Atomic where the processor has atomic operations.
#[inline(always)]
fn count(counter: &[AtomicU32; SHARED]) {
    for counter in counter {
        #[cfg(target_has_atomic = "32")]
        counter.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_has_atomic = "32"))]
        crate::sync::add(counter, 1);
    }
}

/// Reads a counter; 0 if this recorder does not keep it.
#[inline(always)]
fn counted(counter: &[AtomicU32; SHARED]) -> u32 {
    match counter.first() {
        Some(counter) => counter.load(Ordering::Relaxed),
        None => 0,
    }
}

/// The address of a function as compilers hand it to hooks; 0 stays 0.
const fn marked(function: usize) -> usize {
    if function == 0 {
        0
    } else {
        function | CODE_BIT
    }
}

/// The address of code without the Thumb bit.
#[inline(always)]
pub const fn code(address: usize) -> usize {
    address & !CODE_BIT
}
