//! The gate: whether an event is recorded.
//!
//! Two stages, as in Zephyr's RFC 57373 for its instrumentation subsystem. *Enabled*: may anything
//! be recorded at all? Programs close and open this stage around what they don't want to see
//! ([`Gate::disable`] nests). *On*: between the trigger and the stopper, or by command. A third
//! reason to refuse is *frozen*: a dump is being read.
//!
//! All of it is the *state*, a set of bits whose upper half is a magic number that start-up code
//! copies into RAM with the rest of `.data`: before that, whatever the RAM holds, nothing is done.
//! (After a reset that keeps RAM the old value would still stand there. Start-up code must not be
//! instrumented, and [`Gate::shut`] is called before a reboot.)
//!
//! Hooks look at something simpler first, the *word*, which has one of three values
//! ([`hot`](crate::hot)): so a hook that is off costs a load, a compare and a return. It is computed
//! anew whenever the state or the trigger changes.
//!
//! Trigger and stopper are here too, with the bit that Thumb code has in its addresses; the functions
//! here take and give them without.

use core::mem::offset_of;
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::AtomicUsize;

#[cfg(feature = "conditions")]
use crate::conditions::{Condition, Conditions};
use crate::retained::Retained;
use crate::sync::{ALONE, AtomicPtr, AtomicU32, Ordering, SHARED, change, load_acquire};

/// The bit that is set in the address of every function of a Thumb program, as compilers hand it to hooks. Trigger and
/// stopper, and the [text base](crate::hot::Cursor::text_base), have it too, so that hooks need not take it off.
pub const CODE_BIT: usize = if cfg!(target_arch = "arm") { 1 } else { 0 };

/// How many words of a [`Hot`](crate::hot::Hot) are before its gate: those of the cursor, which checks that.
pub(crate) const WORDS_BEFORE: usize = 8;

/// The upper half of the state once RAM is initialized.
pub(crate) const MAGIC: u32 = 0x4B79_0000;
/// Recording is on.
const ON: u32 = 1;
/// A dump, or something else that needs the buffers still, is going on.
const FROZEN: u32 = 2;
/// Disabled by command.
const COMMANDED: u32 = 4;
/// The recorder has not been set up yet: the first hook does it.
const NEW: u32 = 8;
/// The recorder could not be set up.
const FAILED: u32 = 16;
/// Somebody is setting the recorder up.
const CLAIMED: u32 = 32;
/// Recording has never been turned on.
const UNTURNED: u32 = 64;
/// A single shot is over: the trigger does nothing.
const SPENT: u32 = 128;
/// One of the calls of [`Gate::disable`] that have not been taken back.
const DISABLED: u32 = 256;
/// The bits in which they are counted: up to 255.
const DISABLED_MASK: u32 = 0xFF00;

/// The state when events are recorded.
pub const OPEN: u32 = MAGIC | ON;

/// The word while nothing is recorded but a trigger is waited for.
const ARMED: *mut u8 = without_provenance_mut(2);

/// The gate. It must lie in initialized RAM (`.data`).
#[repr(C)]
#[derive(Debug)]
pub struct Gate {
    /// With [`CODE_BIT`], unless it is 0.
    trigger: AtomicUsize,
    word: AtomicPtr<u8>,
    /// With [`CODE_BIT`], unless it is 0.
    stopper: AtomicUsize,
    state: AtomicU32,
    /// How often recording has been turned on or off.
    turns: [AtomicU32; SHARED],
    /// How often events may have begun or ceased to be missed, in any way but by a reader.
    changes: [AtomicU32; SHARED],
    /// In duration mode, the word that says so; else null.
    #[cfg(feature = "duration")]
    duration: AtomicPtr<u8>,
    /// When trigger and stopper act, if not always.
    #[cfg(feature = "conditions")]
    conditions: Option<&'static Conditions>,
}

/// Where the trigger or stopper is called from, and when that counts. Nothing, and no instruction, in a recorder without
/// conditions.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    #[cfg(feature = "conditions")]
    conditions: Option<&'static Conditions>,
    #[cfg(feature = "conditions")]
    caller: usize,
}

impl Site {
    /// The trigger is called from here while recording is off: whether it acts.
    #[inline(always)]
    pub fn triggers(self) -> bool {
        #[cfg(feature = "conditions")]
        if let Some(conditions) = self.conditions
            && conditions.trigger.is_set()
        {
            let acts = conditions.trigger.admits(self.caller);
            if acts {
                conditions.trigger.act();
            }
            return acts;
        }
        true
    }

    /// The condition of the stopper, if there is one, and where it is called from.
    #[cfg(feature = "conditions")]
    pub(crate) fn stopper(self) -> Option<(&'static Condition, usize)> {
        let stopper = &self.conditions?.stopper;
        stopper.is_set().then_some((stopper, self.caller))
    }
}

/// What a hook finds in the gate's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// There is nothing to do.
    Closed,
    /// Only the trigger's entry is of interest.
    Armed,
    /// Events are recorded, or something else must be done about them.
    Open,
    /// The same in [duration mode](crate::duration), with the word's two low bits: whether functions are
    /// watched for, and whether calls take the slow path.
    #[cfg(feature = "duration")]
    Duration(usize),
}

/// What the gate's state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(u32);

impl State {
    /// Events are recorded.
    pub const fn open(self) -> bool {
        self.0 == OPEN
    }
    /// RAM is initialized: the recorder may be touched.
    pub const fn alive(self) -> bool {
        self.0 >> 16 == MAGIC >> 16
    }
    /// The recorder has not been set up yet.
    pub const fn fresh(self) -> bool {
        self.0 & NEW != 0
    }
    /// The recorder has been set up, or is being.
    pub const fn set_up(self) -> bool {
        self.0 & (NEW | FAILED) == 0
    }
    /// The recorder could not be set up: nothing will ever be recorded.
    pub const fn failed(self) -> bool {
        self.0 & FAILED != 0
    }
    /// Somebody is setting the recorder up at this moment.
    pub const fn claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }
    /// The recorder has been set up, and the buffers are not held still.
    pub const fn usable(self) -> bool {
        self.0 & (NEW | CLAIMED | FAILED | FROZEN) == 0
    }
    /// Recording has been turned on before.
    pub const fn turned(self) -> bool {
        self.0 & UNTURNED == 0
    }
    /// A single shot is over: the trigger does nothing.
    pub const fn spent(self) -> bool {
        self.0 & SPENT != 0
    }
    /// Between trigger and stopper.
    pub const fn on(self) -> bool {
        self.0 & ON != 0
    }
    /// Neither the program nor a command keeps the gate closed.
    pub const fn enabled(self) -> bool {
        self.0 & (COMMANDED | DISABLED_MASK) == 0
    }
    /// The buffers are held still.
    pub const fn frozen(self) -> bool {
        self.0 & FROZEN != 0
    }
}

impl Gate {
    /// Where the trigger is.
    pub const TRIGGER_OFFSET: usize = offset_of!(Self, trigger);
    /// Where the word is.
    pub const WORD_OFFSET: usize = offset_of!(Self, word);
    /// Where the stopper is.
    pub const STOPPER_OFFSET: usize = offset_of!(Self, stopper);
    /// Where the state is, 4 bytes.
    pub const STATE_OFFSET: usize = offset_of!(Self, state);
    /// Where the count of changes is, 4 bytes.
    pub const CHANGES_OFFSET: usize = offset_of!(Self, changes);

    /// The gate of a recorder that the first hook sets up. It is not all zero on purpose. `hot` is
    /// the address of the [`Hot`](crate::hot::Hot) that it will be a part of.
    pub(crate) const fn new(hot: *mut u8) -> Self {
        Self {
            trigger: AtomicUsize::new(0),
            word: AtomicPtr::new(hot),
            stopper: AtomicUsize::new(0),
            state: AtomicU32::new(MAGIC | NEW | UNTURNED),
            turns: [const { AtomicU32::new(0) }; SHARED],
            changes: [const { AtomicU32::new(0) }; SHARED],
            #[cfg(feature = "duration")]
            duration: AtomicPtr::new(null_mut()),
            #[cfg(feature = "conditions")]
            conditions: None,
        }
    }

    /// Trigger and stopper act when this says so.
    #[cfg(feature = "conditions")]
    pub(crate) const fn set_conditions(&mut self, conditions: &'static Conditions) {
        self.conditions = Some(conditions);
    }

    /// When trigger and stopper act, if not always.
    #[cfg(feature = "conditions")]
    pub fn conditions(&self) -> Option<&'static Conditions> {
        self.conditions
    }

    /// A call that returns to `caller`.
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

    /// From now on calls are recorded in duration mode, and hooks find `word` while events are recorded; or, if it is null,
    /// as entries and exits. Its two low bits are those of [`Look::Duration`].
    #[cfg(feature = "duration")]
    pub fn set_duration(&self, word: *mut u8) {
        self.duration.store(word, Ordering::SeqCst);
        self.tell();
    }

    /// Whether calls are recorded in duration mode.
    #[cfg(feature = "duration")]
    #[inline(always)]
    pub fn in_duration(&self) -> bool {
        !self.duration.load(Ordering::Relaxed).is_null()
    }

    /// What a hook is to do.
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

    /// The word that tells hooks to record: the address of the [`Hot`](crate::hot::Hot) whose gate this is.
    #[inline(always)]
    fn hot(&self) -> *mut u8 {
        let this: *const Self = self;
        this.cast::<u8>()
            .cast_mut()
            .wrapping_sub(WORDS_BEFORE * size_of::<usize>())
    }

    /// Has hooks record, or not, whatever the state says: for a recorder that has none
    /// ([`minimal`](crate::minimal)).
    #[inline(always)]
    pub(crate) fn set_word(&self, record: bool) {
        let word = if record { self.hot() } else { null_mut() };
        self.word.store(word, Ordering::Relaxed);
    }

    /// Whether an event is to be recorded.
    #[inline(always)]
    pub fn open(&self) -> bool {
        self.state.load(Ordering::Relaxed) == OPEN
    }

    /// [`open`](Self::open) in one order with other accesses of this kind: for who first said, with a store of
    /// this kind, that it is at work. On AArch64 a load-acquire, which is not done before an earlier
    /// store-release.
    #[inline(always)]
    pub fn open_in_order(&self) -> bool {
        self.state.load(Ordering::SeqCst) == OPEN
    }

    /// [`state`](Self::state) in one order with [`open_in_order`](Self::open_in_order).
    pub fn state_in_order(&self) -> State {
        State(self.state.load(Ordering::SeqCst))
    }

    /// All that the state says. A writer that sees by this that the gate is open also sees what a reader
    /// did to its stream before that opened it.
    #[inline(always)]
    pub fn state(&self) -> State {
        State(load_acquire(&self.state))
    }

    /// Clears some bits of the state and sets others, and the word with it; returns what it was. On
    /// processors without compare-and-swap the caller has interrupts masked.
    #[inline(never)]
    fn change(&self, clear: u32, set: u32) -> State {
        let old = change(&self.state, |state| state & !clear | set);
        self.tell();
        State(old)
    }

    /// What the word is to be in this state, with this trigger. (Once the gate has been
    /// [shut](Self::shut) the state has no bit.)
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

    /// Brings the word up to date. Several may do so at once: who stores last looks at the state again
    /// after that.
    #[inline(never)]
    fn tell(&self) {
        if ALONE {
            let trigger = self.trigger.load(Ordering::Relaxed);
            let word = self.word_of(self.state(), trigger);
            return self.word.store(word, Ordering::Relaxed);
        }
        loop {
            let state = State(self.state.load(Ordering::SeqCst));
            let trigger = self.trigger.load(Ordering::SeqCst);
            self.word
                .store(self.word_of(state, trigger), Ordering::SeqCst);
            if self.state.load(Ordering::SeqCst) == state.0
                && self.trigger.load(Ordering::SeqCst) == trigger
            {
                return;
            }
        }
    }

    /// Opens the gate for a measurement, whatever it is; returns what [`let_go`](Self::let_go) needs
    /// to make it that again. With interrupts masked all the while.
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn force(&self) -> State {
        let state = State(self.state.load(Ordering::Relaxed));
        self.state.store(OPEN, Ordering::Relaxed);
        self.word.store(self.hot(), Ordering::Relaxed);
        state
    }

    /// See [`force`](Self::force).
    #[cfg(feature = "cost")]
    #[inline(always)]
    pub(crate) fn let_go(&self, state: State) {
        self.state.store(state.0, Ordering::Relaxed);
        self.tell();
    }

    /// Takes the right to set the recorder up: true for the first caller only, until it has ended
    /// with [`set_up`](Self::set_up). (Who does all of that with interrupts masked on one processor needs no
    /// such right.)
    pub fn claim(&self) -> bool {
        self.change(NEW, CLAIMED).fresh()
    }

    /// The recorder has been set up, or not for good (`failed`), or not yet (`again`: the next hook
    /// tries it).
    pub fn set_up(&self, failed: bool, again: bool) {
        let failed = if failed { FAILED } else { 0 };
        let new = if again { NEW } else { 0 };
        self.change(CLAIMED | NEW, failed | new);
    }

    /// One more reason not to record; [`enable`](Self::enable) takes it back. Past 255 of them it
    /// stays closed for good.
    pub fn disable(&self) {
        self.count_disabled(true);
    }

    /// Takes one [`disable`](Self::disable) back; nothing if there is none, or there were too many.
    pub fn enable(&self) {
        self.count_disabled(false);
    }

    /// There is one reason more, or one less.
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
        self.tell();
        count(&self.changes);
    }

    /// Closes or opens the gate by command, apart from what the program does.
    pub fn command(&self, enabled: bool) {
        self.set(COMMANDED, !enabled);
        count(&self.changes);
    }

    /// Turns recording on or off; returns whether that is a change. Off, the trigger does nothing any more if a single
    /// shot is `over`.
    pub fn turn(&self, on: bool, over: bool) -> bool {
        if self.state().on() == on {
            return false;
        }
        // Before, so that who finds recording on finds the new numbers too.
        count(&self.turns);
        count(&self.changes);
        let set = match (on, over) {
            (true, _) => ON,
            (false, true) => SPENT,
            (false, false) => 0,
        };
        self.change(ON | UNTURNED | SPENT, set).on() != on
    }

    /// The same of an event: of no call, or one whose caller is not known, from nowhere.
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

    /// The trigger works again after a single shot.
    pub fn rearm(&self) {
        #[cfg(feature = "conditions")]
        if let Some(conditions) = self.conditions {
            conditions.rearm();
        }
        self.set(SPENT, false);
    }

    /// Counts as if events may have been missed, for drivers where a reader is reason enough.
    pub fn call_attention(&self) {
        count(&self.changes);
    }

    /// A number that is another one whenever events may have been missed: because the gate was
    /// closed, in any way but by a reader. (Where one recorder is alone it need not look for that.)
    #[inline(always)]
    pub fn changes(&self) -> u32 {
        counted(&self.changes)
    }

    /// A number that is another one whenever recording has been turned on or off.
    #[inline(always)]
    pub fn turns(&self) -> u32 {
        counted(&self.turns)
    }

    /// The process is the child of a fork: what another thread of its parent was about to do is never done.
    /// Events may have been missed.
    #[cfg(target_has_atomic = "32")]
    pub fn start_as_child(&self) {
        if self.state().claimed() {
            self.change(CLAIMED, NEW);
        }
        self.change(FROZEN, 0);
        count(&self.changes);
    }

    /// Holds the buffers still, or lets them go; returns what was before.
    pub fn freeze(&self, frozen: bool) -> State {
        self.set(FROZEN, frozen)
    }

    /// Closes the gate for good: before a reboot, so that RAM that survives it does not look
    /// initialized.
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

    /// Trigger and stopper as they stand here, of a single shot if `once`.
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

    /// Sets the trigger, or the stopper; 0 for none.
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

/// Counts one more, whoever else does so at this moment, if anybody looks at it.
#[inline(always)]
fn count(counter: &[AtomicU32; SHARED]) {
    for counter in counter {
        #[cfg(target_has_atomic = "32")]
        counter.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(target_has_atomic = "32"))]
        crate::sync::add(counter, 1);
    }
}

/// What has been counted.
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

/// The address of code without the bit that tells the instruction set.
#[inline(always)]
pub const fn code(address: usize) -> usize {
    address & !CODE_BIT
}
