//! The measurement: pairs of hooks, called again and again.

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

/// So often every hook is called before it counts, to fill caches.
const WARM_UP: u32 = 2;

/// The distance between functions, in bytes: a multiple of what function numbers count in.
const UNIT: usize = 64;

/// Who measures, and where.
pub(crate) trait Bench {
    /// The target.
    type Target: Target;
    /// Which calls count.
    type Tally: Tally;

    /// The stream that the hooks write to.
    fn stream(&self) -> &Stream<Self::Target>;
    /// Its cursor.
    fn cursor(&self) -> &Cursor;
    /// The hooks.
    fn hooks(&self) -> &'static Hooks;
    /// The gate that they look at.
    fn gate(&self) -> &Gate;
    /// The time, alone: read in the same way before and after a hook.
    fn clock(&self) -> u64;
    /// Keeps everything else off in this context; returns what [`let_go`](Self::let_go) needs.
    #[inline(always)]
    fn hold(&self) -> usize {
        0
    }
    /// Takes that back.
    #[inline(always)]
    fn let_go(&self, was: usize) {
        let _ = was;
    }
}

/// Measures what calls and interrupts cost, and with `switches` a switch from the thread that runs to
/// itself (the program would seem to tell of them from then on). Gives `tell` the text of one fact after the
/// other; or calls `stuck`, and no hook, because the clock does not count (yet).
#[inline(always)]
pub(crate) fn measure<B: Bench>(
    bench: B,
    switches: bool,
    tell: impl Fn(&[u8]),
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
            // An interrupt that is never in a trace.
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
        let told = B::Tally::told(whole, &mut place);
        if *measure & 3 == 0 {
            let [nothing, calling] = told.hooks;
            if nothing.most == 0 {
                return stuck();
            }
            measured.base = Base {
                nothing: nothing.after,
                calling: calling.after,
            };
        } else {
            let text: *const Measured = told;
            // SAFETY: words, with nothing between them.
            let text = unsafe { core::slice::from_raw_parts(text.cast(), size_of::<Measured>()) };
            tell(text);
        }
    }
}

/// What is measured: [`Measure`]s as numbers.
const fn plan<B: Bench>() -> [u32; 7] {
    let all = Measure::all(B::Target::LAYOUT, B::Tally::CALLS, B::Tally::HIDDEN);
    let mut plan = [0; 7];
    let mut n = 0;
    while n < plan.len() {
        // Where calls are not counted one is always open.
        plan[n] = Measure {
            open: all[n].open || !COUNTING,
            ..all[n]
        }
        .number();
        n += 1;
    }
    plan
}

/// Calls both hooks of a pair with this subject; both tallies are written.
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
        // (Compilers would keep more in registers than there are.)
        linger(black_box(rounds));
        let mut scratch = Scratch::uninit();
        let was = bench.hold();
        let before = stream.divert(cursor, &mut scratch);
        let forced = gate.force();
        // This is one piece of code for both hooks and all pairs, so what it takes beside can be taken off.
        // (Compilers do not know that it is gone through twice.)
        let mut measure = *measure >> Measure::HOOKS_AT[0];
        let mut hook: *const Hook = hooks.as_ptr();
        let mut tally = tallies.as_mut_ptr();
        loop {
            cursor.depth.set((measure >> Measure::OPEN_AT & 1) as usize);
            let begin = bench.clock();
            let back = 1u32 << (measure & 31);
            // A clock of 64 bits may have begun later than that.
            let last = match B::Target::LAYOUT.word {
                WordSize::Bits32 => begin.wrapping_sub(back.into()),
                WordSize::Bits64 => begin.saturating_sub(back.into()),
            };
            stream.say_last(cursor, last);
            // SAFETY: the program's own hooks, which may be called from anywhere, and look at their arguments
            // as numbers only. There are two, as there are bytes in `measure`.
            unsafe { (*hook)(subject, subject) };
            let end = bench.clock() as u32;
            let (begin, recorded) = (begin as u32, cursor.last.get() as u32);
            // SAFETY: there are two. In the last of the rounds that do not count each is begun, and in those
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
        gate.let_go(forced);
        stream.resume(cursor, before);
        bench.let_go(was);
        rounds -= 1;
        if rounds == 0 {
            return;
        }
    }
}

/// A function that is said to be entered and left: neither the stopper nor, for assembly, what looks
/// like none.
#[inline(always)]
fn function(cursor: &Cursor, gate: &Gate) -> usize {
    let function = cursor.text_base.get().wrapping_add(UNIT);
    if code(function) == gate.stopper() {
        function.wrapping_add(UNIT)
    } else {
        function
    }
}

/// Waits for a moment, another time than before. Else each round could take so long that the next
/// one meets the clock's ticks in the same places: then what is cut off by them is the same in
/// all rounds, up to a tick, and the average is no better. (The times are spread evenly by multiples of
/// a number near the golden ratio; the loops differ so that not both can be whole ticks.)
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
