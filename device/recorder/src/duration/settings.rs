//! Settings of duration mode: from the program, a command or a debugger.

use core::mem::offset_of;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicUsize, Ordering};

use kymo_wire::link::{Action, FreezeOn};

use super::filter;
use crate::Event;
use crate::hot::CODE_BIT;
use crate::link::FreezeReport;

/// The settings: a part of `kymo_duration_t`, whose fields `kymo.h` documents.
#[repr(C)]
#[derive(Debug)]
pub struct Settings {
    threshold: AtomicUsize,
    /// Function whose entry turns recording off; with [`CODE_BIT`], 0: none.
    stop: AtomicUsize,
    /// Copy of the gate's stopper, for hooks.
    stopper: AtomicUsize,
    /// [`MAGIC`](super::MAGIC).
    pub(super) magic: u32,
    flags: AtomicU32,
    depth: AtomicU32,
    filter_shift: AtomicU32,
    filter: AtomicPtr<AtomicU8>,
    filter_bytes: AtomicU32,
    /// Set by a debugger that has changed flags or the stop function: the next tick applies the change.
    request: AtomicU32,
    filter_base: AtomicUsize,
    /// Memory that preserves the settings over a reboot.
    retained: *mut usize,
    /// Freeze function (with [`CODE_BIT`]): a call of it that takes longer than `freeze_over` stops recording; 0: none
    /// does.
    freeze: AtomicUsize,
    freeze_over: AtomicUsize,
    /// Required caller of the freeze function, the freeze event and the stop function; 0: any.
    freeze_from: AtomicUsize,
    /// Number of the first such occurrence that counts.
    freeze_hit: AtomicU32,
    /// Number of calls to record after that, before recording stops.
    freeze_after: AtomicU32,
    /// Event that stops recording: [`ON_MARKER`], [`ON_IRQ`], or 0 for none; `freeze_value` is its value or number.
    freeze_on: AtomicU16,
    /// How often recording is stopped at most; 0: unlimited.
    freeze_times: AtomicU16,
    freeze_value: AtomicU32,
    /// Number of such occurrences since recording was turned on.
    hits: AtomicU32,
    /// Number of calls still to be recorded, plus one; 0: there was no occurrence that counts.
    left: AtomicU32,
    /// The program's filter rules: `rule_count` of them.
    rules: *const Rule,
    rule_count: u16,
    /// How often recording was stopped since the conditions were set or events were cleared.
    acted: AtomicU16,
}

/// A filter rule that the program defines at build time: `kymo_duration_rule_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Rule {
    /// The function's address as the compiler passes it; 0: all functions.
    pub function: usize,
    /// The [`Action`] as a number.
    pub action: u32,
}

/// Number of machine words that survive a reboot, without the checksum: `kymo_duration_retained_t` has one more word.
const KEPT: usize = 11;

/// How many of these are machine words in the settings, too.
const OF_WORDS: usize = 5;

/// How many are numbers of 32 bits. The last one is event and limit, of 16 bits each.
const OF_NUMBERS: usize = KEPT - OF_WORDS - 1;

/// Number of machine words of `kymo_duration_retained_t`.
pub const WORDS: usize = KEPT + 1;

/// [`Settings::flags`]: duration mode is on.
pub const ON: u32 = 1;
/// [`Settings::flags`]: the threshold applies to the time that the call's thread was running.
pub const ON_CPU: u32 = 2;
/// [`Settings::flags`]: thread switches and interrupts are recorded, too.
pub const EVENTS: u32 = 4;

/// [`Settings::flags`]: position of the two bits with the action for functions that the filter does not cover.
const OTHERS: u32 = 8;

/// [`Settings::freeze_on`]: a marker.
const ON_MARKER: u16 = 1;
/// [`Settings::freeze_on`]: an interrupt.
const ON_IRQ: u16 = 2;

/// Changes a count, and returns what it was. Threads of a process, and CPUs, may do so at once; on one processor, which
/// may have no atomic operations, interrupts are masked.
macro_rules! change {
    ($count:expr, $to:expr) => {{
        #[cfg(any(target_pointer_width = "64", target_os = "linux"))]
        {
            let to = |was| Some($to(was));
            let changed = $count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, to);
            changed.unwrap_or_else(|was| was)
        }
        #[cfg(not(any(target_pointer_width = "64", target_os = "linux")))]
        {
            let was = $count.load(Ordering::Relaxed);
            $count.store($to(was), Ordering::Relaxed);
            was
        }
    }};
}

impl Settings {
    /// Where the magic word is.
    pub(super) const MAGIC_OFFSET: usize = offset_of!(Self, magic);
    /// Where the flags are.
    pub(super) const FLAGS_OFFSET: usize = offset_of!(Self, flags);

    /// Settings with duration mode off.
    pub const fn new() -> Self {
        Self {
            threshold: AtomicUsize::new(0),
            stop: AtomicUsize::new(0),
            stopper: AtomicUsize::new(0),
            magic: super::MAGIC,
            flags: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            filter_shift: AtomicU32::new(4),
            filter: AtomicPtr::new(null_mut()),
            filter_bytes: AtomicU32::new(0),
            request: AtomicU32::new(0),
            filter_base: AtomicUsize::new(0),
            retained: null_mut(),
            freeze: AtomicUsize::new(0),
            freeze_over: AtomicUsize::new(0),
            freeze_from: AtomicUsize::new(0),
            freeze_hit: AtomicU32::new(0),
            freeze_after: AtomicU32::new(0),
            freeze_on: AtomicU16::new(0),
            freeze_times: AtomicU16::new(0),
            freeze_value: AtomicU32::new(0),
            hits: AtomicU32::new(0),
            left: AtomicU32::new(0),
            rules: null(),
            rule_count: 0,
            acted: AtomicU16::new(0),
        }
    }

    /// Sets the freeze function: a call of it that takes longer than `over` ticks stops recording; 0: none does.
    pub fn set_freeze(&self, function: usize, over: usize) {
        self.freeze_over.store(over, Ordering::Relaxed);
        self.freeze.store(marked(function), Ordering::Relaxed);
        self.rearm();
    }

    /// Sets the event that stops recording.
    pub fn set_freeze_on(&self, event: FreezeOn) {
        let (kind, value) = match event {
            FreezeOn::Nothing => (0, 0),
            FreezeOn::Marker(value) => (ON_MARKER, value),
            FreezeOn::Irq(number) => (ON_IRQ, number.into()),
        };
        self.freeze_value.store(value, Ordering::Relaxed);
        self.freeze_on.store(kind, Ordering::Relaxed);
        self.rearm();
    }

    /// Whether this event stops recording.
    #[inline(always)]
    pub fn freezes_on(&self, event: Event) -> bool {
        let (kind, value) = match event {
            Event::Marker(value) => (ON_MARKER, value),
            Event::IsrEnter(number) => (ON_IRQ, number.into()),
            _ => return false,
        };
        self.freeze_on.load(Ordering::Relaxed) == kind
            && self.freeze_value.load(Ordering::Relaxed) == value
    }

    /// Sets the condition of freeze and stop: they must occur in a call from `from` (0: any), count from the `hit`th
    /// occurrence on, and stop recording after `after` more calls have been recorded, at most `times` times (0:
    /// unlimited) though recording is turned on again.
    pub fn set_condition(&self, from: usize, hit: u32, after: u32, times: u16) {
        self.freeze_from.store(marked(from), Ordering::Relaxed);
        self.freeze_hit.store(hit, Ordering::Relaxed);
        self.freeze_after.store(after, Ordering::Relaxed);
        self.freeze_times.store(times, Ordering::Relaxed);
        self.rearm();
    }

    /// Restarts all counts: conditions were set anew, or events were cleared.
    pub fn rearm(&self) {
        self.acted.store(0, Ordering::Relaxed);
        self.restart();
    }

    /// Restarts the counts of what must happen before recording stops: it is turned on.
    pub fn restart(&self) {
        self.hits.store(0, Ordering::Relaxed);
        self.left.store(0, Ordering::Relaxed);
    }

    /// Whether a call of this duration stops recording.
    pub(crate) fn freezes(&self, function: usize, duration: u64) -> bool {
        let freeze = self.freeze.load(Ordering::Relaxed);
        freeze != 0
            && function == freeze
            && duration > self.freeze_over.load(Ordering::Relaxed) as u64
    }

    /// Counts an occurrence of freeze or stop in a call from `caller`. Returns whether recording is to stop at once; if
    /// it is to stop later, [`count`](Self::count) returns when.
    pub fn happen(&self, caller: Option<usize>) -> bool {
        self.is_from(caller) && self.happen_here()
    }

    /// Whether what happens in a call from `caller` counts.
    pub(crate) fn is_from(&self, caller: Option<usize>) -> bool {
        let from = self.freeze_from.load(Ordering::Relaxed);
        from == 0 || caller == Some(from)
    }

    /// [`happen`](Self::happen) in a call from where it counts.
    pub fn happen_here(&self) -> bool {
        if self.left.load(Ordering::Relaxed) != 0 {
            return false;
        }
        let hits = change!(self.hits, |hits: u32| hits.saturating_add(1)).saturating_add(1);
        if hits < self.freeze_hit.load(Ordering::Relaxed) || self.is_spent() {
            return false;
        }
        let after = self.freeze_after.load(Ordering::Relaxed);
        // Of several threads one begins to count.
        let begin = |left| match left {
            0 => after.saturating_add(1),
            left => left,
        };
        change!(self.left, begin) == 0 && after == 0
    }

    /// Counts a recorded call; returns whether it was the last one to record.
    pub fn count(&self) -> bool {
        let less = |left| if left > 1 { left - 1 } else { left };
        self.left.load(Ordering::Relaxed) > 1 && change!(self.left, less) == 2
    }

    /// Whether recording has been stopped as often as it may be.
    fn is_spent(&self) -> bool {
        let times = self.freeze_times.load(Ordering::Relaxed);
        times != 0 && self.acted.load(Ordering::Relaxed) >= times
    }

    /// Stops recording, as [`happen`](Self::happen) or [`count`](Self::count) says, by `stop`, which returns whether
    /// recording was on until then; counts that.
    pub fn act(&self, stop: impl FnOnce() -> bool) {
        let times = self.freeze_times.load(Ordering::Relaxed);
        // Before, so that no other thread acts instead where recording is turned on again at once.
        let may = |acted| times == 0 || acted < times;
        let more = |acted: u16| acted.saturating_add(may(acted).into());
        if may(change!(self.acted, more)) && !stop() {
            change!(self.acted, |acted: u16| acted.saturating_sub(1));
        }
    }

    /// Least duration of a call that is recorded, in ticks.
    #[inline(always)]
    pub fn threshold(&self) -> usize {
        self.threshold.load(Ordering::Relaxed)
    }

    /// Sets the threshold.
    pub fn set_threshold(&self, ticks: usize) {
        self.threshold.store(ticks, Ordering::Relaxed);
    }

    /// Largest nesting depth of calls that are recorded; 0: any.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Sets the depth.
    pub fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Whether duration mode is on.
    pub fn is_on(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & ON != 0
    }

    /// Turns duration mode on or off.
    pub fn set_recording(&self, on: bool) {
        self.set_flag(ON, on);
    }

    /// Whether the threshold applies to the time that the call's thread was running.
    #[inline(always)]
    pub fn counts_cpu(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & ON_CPU != 0
    }

    /// Sets whether the threshold applies to the running time.
    pub fn count_cpu(&self, cpu: bool) {
        self.set_flag(ON_CPU, cpu);
    }

    /// Whether thread switches and interrupts are recorded, too.
    pub fn keeps_events(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & EVENTS != 0
    }

    /// Sets whether thread switches and interrupts are recorded, too.
    pub fn keep_events(&self, events: bool) {
        self.set_flag(EVENTS, events);
    }

    fn set_flag(&self, flag: u32, set: bool) {
        let others = self.flags.load(Ordering::Relaxed) & !flag;
        let flag = if set { flag } else { 0 };
        self.flags.store(others | flag, Ordering::Relaxed);
    }

    /// The function whose entry turns recording off, without the Thumb bit; 0: none.
    pub fn stop(&self) -> usize {
        self.stop.load(Ordering::Relaxed) & !CODE_BIT
    }

    /// Sets the function whose entry turns recording off.
    pub fn set_stop(&self, function: usize) {
        self.stop.store(marked(function), Ordering::Relaxed);
        self.rearm();
    }

    /// Sets the stopper that hooks compare with.
    pub fn set_stopper(&self, function: usize) {
        self.stopper.store(marked(function), Ordering::Relaxed);
    }

    /// Whether hooks have to compare functions with the stop function or the stopper.
    pub fn watches(&self) -> bool {
        (self.stop.load(Ordering::Relaxed) | self.stopper.load(Ordering::Relaxed)) != 0
    }

    /// Takes over threshold, depth and flags of another CPU's settings.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn copy(&self, other: &Self) {
        self.set_threshold(other.threshold());
        self.set_depth(other.depth());
        let flags = other.flags.load(Ordering::Relaxed);
        self.flags.store(flags, Ordering::Relaxed);
    }

    /// Requests that changes be applied, as a debugger does.
    #[cfg(target_has_atomic = "ptr")]
    pub(crate) fn request(&self) {
        self.request.store(1, Ordering::Relaxed);
    }

    /// Whether a debugger has requested that changes be applied.
    pub fn is_requested(&self) -> bool {
        self.request.load(Ordering::Relaxed) != 0
    }

    /// Whether a debugger has requested that changes be applied; resets the request.
    pub fn take_request(&self) -> bool {
        let requested = self.is_requested();
        if requested {
            self.request.store(0, Ordering::Relaxed);
        }
        requested
    }

    /// Sets the base of the program's text, if there is none yet.
    pub fn set_base(&self, text: usize) {
        if self.filter_base.load(Ordering::Relaxed) == 0 {
            self.filter_base.store(text & !CODE_BIT, Ordering::Relaxed);
        }
    }

    /// Restores the settings that survived a reboot, if this program stored them; otherwise applies the build's filter
    /// rules.
    pub(crate) fn load(&self, build_id: &[u8]) {
        if self.retained.is_null() || !cfg!(feature = "retained") {
            return self.follow_rules();
        }
        // SAFETY: the program gives so many words. Volatile, because the compiler must not assume what RAM holds after
        // a reset.
        let word = |at| unsafe { self.retained.add(at).read_volatile() };
        let kept: [usize; KEPT] = core::array::from_fn(word);
        if self.check(&kept, build_id) != word(KEPT) {
            // The filter is in such memory, too, and its content is undefined.
            self.set_actions(Action::Record);
            return self.follow_rules();
        }
        for (setting, word) in self.kept_words().into_iter().zip(kept) {
            setting.store(word, Ordering::Relaxed);
        }
        for (setting, word) in self
            .kept_numbers()
            .into_iter()
            .zip(kept.iter().skip(OF_WORDS))
        {
            setting.store(*word as u32, Ordering::Relaxed);
        }
        let [.., both] = kept;
        self.freeze_on.store(both as u16, Ordering::Relaxed);
        self.freeze_times
            .store((both >> 16) as u16, Ordering::Relaxed);
    }

    /// Stores the settings for the next boot, if the program has memory for that. An interrupt that stores them
    /// meanwhile may tear them; this then stores them again.
    pub(crate) fn keep(&self, build_id: &[u8]) {
        if self.retained.is_null() || !cfg!(feature = "retained") {
            return;
        }
        loop {
            let kept = self.kept();
            let check = self.check(&kept, build_id);
            for (at, word) in kept.into_iter().chain([check]).enumerate() {
                // SAFETY: the program gives so many words.
                unsafe { self.retained.add(at).write_volatile(word) };
            }
            if self.check(&self.kept(), build_id) == check {
                return;
            }
        }
    }

    /// The settings that survive a reboot.
    fn kept(&self) -> [usize; KEPT] {
        let mut kept = [0; KEPT];
        let words = self.kept_words();
        let words = words.iter().map(|word| word.load(Ordering::Relaxed));
        let numbers = self.kept_numbers();
        let numbers = numbers
            .iter()
            .map(|number| number.load(Ordering::Relaxed) as usize);
        let event = usize::from(self.freeze_on.load(Ordering::Relaxed));
        let times = usize::from(self.freeze_times.load(Ordering::Relaxed));
        let both = [event | times << 16];
        for (to, word) in kept.iter_mut().zip(words.chain(numbers).chain(both)) {
            *to = word;
        }
        kept
    }

    /// Those that are machine words.
    const fn kept_words(&self) -> [&AtomicUsize; OF_WORDS] {
        [
            &self.threshold,
            &self.stop,
            &self.freeze,
            &self.freeze_over,
            &self.freeze_from,
        ]
    }

    /// The others.
    const fn kept_numbers(&self) -> [&AtomicU32; OF_NUMBERS] {
        [
            &self.flags,
            &self.depth,
            &self.freeze_hit,
            &self.freeze_after,
            &self.freeze_value,
        ]
    }

    /// Checksum of the stored settings, of the filter and of the program: FNV-1a.
    fn check(&self, kept: &[usize; KEPT], build_id: &[u8]) -> usize {
        let more = |sum: usize, word: usize| (sum ^ word).wrapping_mul(16_777_619);
        let sum = build_id.iter().fold(super::MAGIC as usize, |sum, byte| {
            more(sum, usize::from(*byte))
        });
        let sum = kept.iter().fold(sum, |sum, word| more(sum, *word));
        let bytes = self.filter_bytes().iter();
        bytes.fold(sum, |sum, byte| {
            more(sum, usize::from(byte.load(Ordering::Relaxed)))
        })
    }

    /// Applies the program's rules, in their order.
    fn follow_rules(&self) {
        for n in 0..usize::from(self.rule_count) {
            // SAFETY: the program gives so many rules.
            let rule = unsafe { &*self.rules.add(n) };
            let mut actions = Action::ALL.into_iter();
            let Some(action) = actions.find(|action| *action as u32 == rule.action) else {
                continue;
            };
            match rule.function {
                0 => self.set_actions(action),
                function => self.set_action(function, action),
            };
        }
    }

    /// Reports what turns recording off besides the stop function.
    pub fn freeze_report(&self) -> FreezeReport {
        let word = |word: &AtomicUsize| word.load(Ordering::Relaxed);
        let number = |number: &AtomicU32| number.load(Ordering::Relaxed);
        FreezeReport {
            function: word(&self.freeze) & !CODE_BIT,
            over: word(&self.freeze_over) as u64,
            event: self.freeze_on.load(Ordering::Relaxed).into(),
            value: number(&self.freeze_value),
            from: word(&self.freeze_from) & !CODE_BIT,
            hit: number(&self.freeze_hit),
            after: number(&self.freeze_after),
            times: self.freeze_times.load(Ordering::Relaxed),
            acted: self.acted.load(Ordering::Relaxed),
        }
    }

    /// Whether there is a filter.
    pub fn filters(&self) -> bool {
        !self.filter.load(Ordering::Relaxed).is_null()
    }

    /// Installs a filter that the program does not have: two bits for every `1 << shift` bytes from `base` on. While
    /// calls are being recorded, `shift` must stay the same.
    ///
    /// # Safety
    /// The filter remains valid for as long as the settings, and so do those that were given before.
    pub unsafe fn give_filter(&self, filter: &[AtomicU8], (base, shift): (usize, u32)) {
        // (Until its length is visible, functions count as not covered by the filter.)
        self.filter_shift.store(shift, Ordering::Relaxed);
        self.filter_base.store(base, Ordering::Relaxed);
        let at: *const AtomicU8 = filter.as_ptr();
        self.filter.store(at.cast_mut(), Ordering::Relaxed);
        let bytes = u32::try_from(filter.len()).unwrap_or(u32::MAX);
        self.filter_bytes.store(bytes, Ordering::Release);
    }

    /// The filter; empty if there is none.
    fn filter_bytes(&self) -> &[AtomicU8] {
        let bytes = self.filter_bytes.load(Ordering::Relaxed) as usize;
        let filter = self.filter.load(Ordering::Relaxed);
        if filter.is_null() {
            return &[];
        }
        // SAFETY: the program gives so many bytes, or `give_filter`'s caller.
        unsafe { core::slice::from_raw_parts(filter, bytes) }
    }

    /// The filter bits of a function.
    fn bits(&self, function: usize) -> Option<(&AtomicU8, u32)> {
        let filter = self.filter_bytes();
        let base = self.filter_base.load(Ordering::Relaxed);
        let place = (base, self.filter_shift.load(Ordering::Relaxed));
        let (byte, shift) = filter::place(function & !CODE_BIT, place, filter.len() as u32)?;
        Some((filter.get(byte)?, shift))
    }

    /// The action for calls of a function.
    pub fn action(&self, function: usize) -> Action {
        match self.bits(function) {
            Some((byte, shift)) => filter::get(byte, shift),
            None => filter::action(self.flags.load(Ordering::Relaxed) >> OTHERS),
        }
    }

    /// Sets the action for calls of a function; returns false if the filter does not cover it.
    pub fn set_action(&self, function: usize, action: Action) -> bool {
        match self.bits(function) {
            Some((byte, shift)) => filter::set(byte, shift, action),
            None => return false,
        }
        true
    }

    /// Sets the action for all functions; returns false if there is no filter.
    pub fn set_actions(&self, action: Action) -> bool {
        let all = action as u8 * 0b0101_0101;
        for byte in self.filter_bytes() {
            byte.store(all, Ordering::Relaxed);
        }
        self.set_others(action);
        self.filters()
    }

    /// Sets the action for functions that the filter does not cover.
    pub fn set_others(&self, action: Action) {
        self.set_flag(3 << OTHERS, false);
        self.set_flag((action as u32) << OTHERS, true);
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::new()
    }
}

/// The address of a function as hooks pass it; 0 stays 0.
const fn marked(function: usize) -> usize {
    if function == 0 {
        0
    } else {
        function | CODE_BIT
    }
}

#[cfg(test)]
mod tests;
