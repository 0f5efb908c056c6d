//! The measurement: pairs of hooks, called again and again.

use core::ffi::c_void;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::ptr::without_provenance;

use kymo_wire::cost::{Base, Measure, Measured};

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
/// other. False if the clock does not count (yet): then it has called no hook.
#[inline(always)]
pub(crate) fn measure<B: Bench>(bench: B, switches: bool, tell: impl Fn(&[u8])) -> bool {
    // Neither the stopper nor, for assembly, what looks like none.
    let mut function = bench.cursor().text_base.get().wrapping_add(UNIT);
    if code(function) == bench.gate().stopper() {
        function = function.wrapping_add(UNIT);
    }
    let subjects = [function, function, 0, bench.stream().thread()];
    let mut measured = Measured {
        measure: 0,
        base: Base {
            nothing: 0,
            calling: 0,
        },
        hooks: [MaybeUninit::uninit(), MaybeUninit::uninit()],
    };
    let plan = const { &plan::<B>() };
    for measure in plan.iter().take(6 + usize::from(switches)) {
        measured.measure = *measure;
        let subject = subjects[(*measure & 3) as usize];
        pair(&bench, subject, *measure, &mut measured.hooks);
        let whole: *const Measured<MaybeUninit<B::Tally>> = &raw const measured;
        // SAFETY: both have been written now.
        let whole = unsafe { &*whole.cast::<Measured<B::Tally>>() };
        let mut place = None;
        let told = B::Tally::told(whole, &mut place);
        if *measure & 3 == 0 {
            let [nothing, calling] = told.hooks;
            if nothing.most == 0 {
                return false;
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
    true
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
#[inline(never)]
fn pair<B: Bench>(
    bench: &B,
    subject: usize,
    measure: u32,
    tallies: &mut [MaybeUninit<B::Tally>; 2],
) {
    let hooks = &bench.hooks()[(measure & 3) as usize];
    let (stream, cursor, gate) = (bench.stream(), bench.cursor(), bench.gate());
    let subject: *const c_void = without_provenance(subject);
    let mut seed = 1;
    let mut rounds = WARM_UP + B::Tally::ROUNDS;
    while rounds != 0 {
        linger(&mut seed);
        let mut scratch = Scratch::uninit();
        let was = bench.hold();
        let before = stream.divert(cursor, &mut scratch);
        let forced = gate.force();
        // This is one piece of code for both hooks and all pairs, so what it takes beside can be taken off.
        // (Compilers do not know that it is gone through twice.)
        let mut measure = measure >> Measure::HOOKS_AT[0];
        let mut hook: *const Hook = hooks.as_ptr();
        let mut tally = tallies.as_mut_ptr();
        while measure != 0 {
            cursor.depth.set((measure >> Measure::OPEN_AT & 1) as usize);
            let begin = bench.clock();
            let back = 1u32 << (measure & 31);
            stream.say_last(cursor, begin.wrapping_sub(back.into()));
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
        }
        gate.let_go(forced);
        stream.resume(cursor, before);
        bench.let_go(was);
        rounds -= 1;
    }
}

/// Waits for a moment, another time than before. Else each round could take so long that the next
/// one meets the clock's ticks in the same places: then what is cut off by them is the same in
/// all rounds, up to a tick, and the average is no better. (The loops differ so that not both can
/// be whole ticks.)
#[inline(always)]
fn linger(seed: &mut u32) {
    // Marsaglia's xorshift generator: "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003.
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    for _ in 0..*seed & 7 {
        black_box(());
    }
    for step in 0..*seed >> 29 {
        black_box(step);
    }
}
