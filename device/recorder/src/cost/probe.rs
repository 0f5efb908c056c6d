//! The measurement: repeated calls of pairs of hooks.

use core::ffi::c_void;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr::without_provenance;

use kymo_wire::cost::{Base, Measure, Measured};
use kymo_wire::event::WordSize;

use super::tally::Tally;
use super::{Hook, Hooks};
use crate::Target;
use crate::encode::{Scratch, Stream};
use crate::gate::{Gate, code};
use crate::hot::{COUNTING, Cursor};

/// Number of calls of each hook before those that count, to fill caches.
const WARM_UP: u32 = 2;

/// Distance between functions, in bytes: a multiple of the granularity of function numbers.
const UNIT: usize = 64;

/// Environment of a measurement.
pub(crate) trait Bench {
    /// The target.
    type Target: Target;
    /// Selects the calls that count.
    type Tally: Tally;

    /// The stream that the hooks write to.
    fn stream(&self) -> &Stream<Self::Target>;
    /// The stream's cursor.
    fn cursor(&self) -> &Cursor;
    /// The hooks.
    fn hooks(&self) -> &'static Hooks;
    /// The gate that the hooks check.
    fn gate(&self) -> &Gate;
    /// Reads the clock, and does nothing else: in the same way before and after a hook.
    fn clock(&self) -> u64;
    /// Prevents interrupts in this context; returns the state for [`unmask_interrupts`](Self::unmask_interrupts).
    #[inline(always)]
    fn mask_interrupts(&self) -> usize {
        0
    }
    /// Reverts [`mask_interrupts`](Self::mask_interrupts).
    #[inline(always)]
    fn unmask_interrupts(&self, was: usize) {
        let _ = was;
    }
}

/// Measures the overhead of calls and interrupts and, with `switches`, of a switch from the running thread to itself.
/// (Otherwise the program would seem to report switches from then on.) Passes the text of each result to `report`. If the
/// clock does not count (yet), calls `stuck` instead, before it calls any hook.
#[inline(always)]
pub(crate) fn measure<B: Bench>(
    bench: B,
    switches: bool,
    report: impl Fn(&[u8]),
    stuck: impl FnOnce(),
) {
    let mut measured = Measured {
        measure: 0,
        base: Base {
            nothing: 0,
            calling: 0,
        },
        hooks: [MaybeUninit::uninit(), MaybeUninit::uninit()],
    };
    let plan = const { &plan::<B>() };
    for measure in plan {
        let mut subject = function(bench.cursor(), bench.gate());
        if *measure & 2 != 0 {
            // An interrupt that never occurs in a trace.
            subject = 0;
            if *measure & 1 != 0 {
                if !switches {
                    break;
                }
                subject = bench.stream().thread();
            }
        }
        measured.measure = *measure;
        pair(&bench, subject, &mut measured);
        let whole: *const Measured<MaybeUninit<B::Tally>> = &raw const measured;
        // SAFETY: both have been written now.
        let whole = unsafe { &*whole.cast::<Measured<B::Tally>>() };
        let mut place = None;
        let reported = B::Tally::reported(whole, &mut place);
        if *measure & 3 == 0 {
            let [nothing, calling] = reported.hooks;
            if nothing.most == 0 {
                return stuck();
            }
            measured.base = Base {
                nothing: nothing.after,
                calling: calling.after,
            };
        } else {
            let text: *const Measured = reported;
            // SAFETY: words, with nothing between them.
            let text = unsafe { core::slice::from_raw_parts(text.cast(), size_of::<Measured>()) };
            report(text);
        }
    }
}

/// The measurements: [`Measure`]s as numbers.
const fn plan<B: Bench>() -> [u32; 7] {
    let all = Measure::all(B::Target::LAYOUT, B::Tally::CALLS, B::Tally::HIDDEN);
    let mut plan = [0; 7];
    let mut n = 0;
    while n < plan.len() {
        // Without a count of calls, one is always open.
        plan[n] = Measure {
            open: all[n].open || !COUNTING,
            ..all[n]
        }
        .number();
        n += 1;
    }
    plan
}

/// Calls both hooks of a pair with this subject, and writes both tallies.
#[inline(always)]
fn pair<B: Bench>(bench: &B, subject: usize, measured: &mut Measured<MaybeUninit<B::Tally>>) {
    let (stream, cursor, gate) = (bench.stream(), bench.cursor(), bench.gate());
    let Measured {
        measure,
        hooks: tallies,
        ..
    } = measured;
    let hooks = &bench.hooks()[(*measure & 3) as usize];
    let subject: *const c_void = without_provenance(subject);
    let mut rounds = WARM_UP + B::Tally::ROUNDS;
    loop {
        // (Prevents compilers from keeping more in registers than there are.)
        linger(black_box(rounds));
        let mut scratch = Scratch::uninit();
        let was = bench.mask_interrupts();
        let before = stream.divert(cursor, &mut scratch);
        let forced = gate.force();
        // Both hooks and all pairs run the same code, so its own time can be subtracted. (Compilers don't know that it
        // runs twice.)
        let mut measure = *measure >> Measure::HOOKS_AT[0];
        let mut hook: *const Hook = hooks.as_ptr();
        let mut tally = tallies.as_mut_ptr();
        loop {
            cursor.depth.set((measure >> Measure::OPEN_AT & 1) as usize);
            let begin = bench.clock();
            let back = 1u32 << (measure & 31);
            // A 64-bit clock may be younger than that.
            let last = match B::Target::LAYOUT.word {
                WordSize::Bits32 => begin.wrapping_sub(back.into()),
                WordSize::Bits64 => begin.saturating_sub(back.into()),
            };
            stream.say_last(cursor, last);
            // SAFETY: the program's own hooks, which may be called from anywhere, and use their arguments as numbers
            // only. There are two, as there are bytes in `measure`.
            unsafe { (*hook)(subject, subject) };
            let end = bench.clock() as u32;
            let (begin, recorded) = (begin as u32, cursor.last.get() as u32);
            // SAFETY: there are two. Each is initialized in the last of the rounds that do not count, and in those
            // before it.
            unsafe {
                if rounds >= B::Tally::ROUNDS {
                    (*tally).write(B::Tally::NOTHING);
                }
                let tally = (*tally).assume_init_mut();
                tally.add(recorded.wrapping_sub(begin), end.wrapping_sub(recorded));
            }
            hook = hook.wrapping_add(1);
            tally = tally.wrapping_add(1);
            measure >>= Measure::HOOKS_AT[1] - Measure::HOOKS_AT[0];
            if measure == 0 {
                break;
            }
        }
        gate.restore(forced);
        stream.resume(cursor, before);
        bench.unmask_interrupts(was);
        rounds -= 1;
        if rounds == 0 {
            return;
        }
    }
}

/// A function to report as entered and exited: not the stopper, and for assembly nothing that looks like it.
#[inline(always)]
fn function(cursor: &Cursor, gate: &Gate) -> usize {
    let function = cursor.text_base.get().wrapping_add(UNIT);
    if code(function) == gate.stopper() {
        function.wrapping_add(UNIT)
    } else {
        function
    }
}

/// Waits for a short time that differs between rounds. Otherwise the duration of a round could be a multiple of the
/// clock's tick: then rounding would be the same in all rounds, and averaging would not improve the result. (The delays
/// are spread evenly by multiples of a number near the golden ratio; the loops differ so that they are not both a whole
/// number of ticks.)
#[inline(always)]
fn linger(round: u32) {
    let spread = round.wrapping_mul(157);
    for _ in 0..spread >> 5 & 7 {
        black_box(());
    }
    for step in 0..spread >> 2 & 7 {
        black_box(step);
    }
}
