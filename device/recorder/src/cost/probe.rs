//! The measurement: pairs of hooks, called again and again.

use core::cell::Cell;
use core::ffi::c_void;
use core::hint::black_box;
use core::marker::PhantomData;
use core::ptr::without_provenance;

use kymo_wire::cost::{Cost, Recorded};
use kymo_wire::event::Form;

use super::tally::Tally;
use super::{Calls, Hook, Hooks};
use crate::Target;
use crate::encode::{Scratch, Stream};
use crate::gate::{Gate, code};
use crate::hot::{COUNTING, Cursor};

/// So often every hook is called before it counts, to fill caches.
const WARM_UP: u32 = 2;

/// What is taken off every cost is measured so many times as well as a cost, as a power of two.
pub(super) const REPEATS: u32 = 2;

/// A clock that does not move while it is read so often does not count yet.
const PATIENCE: u32 = 64;

/// Two kinds of hooks that belong together, and how they are measured.
struct Pair {
    recorded: [Recorded; 2],
    /// So many ticks after the record before it, as a power of two; 0 is at once.
    from_bits: [u8; 2],
    /// How many calls are open.
    depths: [u8; 2],
    /// The first one has been told before.
    known: bool,
}

impl Pair {
    /// An entry and an exit, each of this form.
    const fn calls<P: Target>(enter: Option<Form>, exit: Option<Form>) -> Self {
        const fn bits<P: Target>(form: Option<Form>) -> u8 {
            match form {
                Some(form) => P::LAYOUT.shape.time_bits(form) as u8,
                None => 0,
            }
        }
        Self {
            recorded: [Recorded::Enter, Recorded::Exit],
            from_bits: [bits::<P>(enter), bits::<P>(exit)],
            depths: [1; 2],
            known: false,
        }
    }

    /// The beginning and the end of something that is not a call.
    const fn others(first: Recorded, second: Recorded) -> Self {
        Self {
            recorded: [first, second],
            from_bits: [0; 2],
            depths: [1; 2],
            known: false,
        }
    }
}

/// What is measured: calls near, farther and far from the record before, and exits that say which
/// function they leave; interrupts; and the last one if the program tells of switches.
struct Pairs<P>(PhantomData<P>);

impl<P: Target> Pairs<P> {
    const ALL: [Pair; 6] = [
        Pair::calls::<P>(None, None),
        Pair::calls::<P>(Some(Form::EnterShort), Some(Form::ExitShort)),
        Pair::calls::<P>(Some(Form::EnterLong), Some(Form::ExitLong)),
        Pair {
            recorded: [Recorded::Enter, Recorded::ExitNamed],
            from_bits: [0; 2],
            depths: [1, if COUNTING { 0 } else { 1 }],
            known: true,
        },
        Pair::others(Recorded::IsrEnter, Recorded::IsrExit),
        Pair::others(Recorded::SwitchedOut, Recorded::SwitchedIn),
    ];
}

/// How many costs there are at most.
pub(crate) const COSTS: usize = 11;

/// Who measures, and where.
pub(crate) trait Bench {
    /// The target.
    type Target: Target;
    /// What becomes of measurements.
    type Tally: Tally;

    /// The stream that the hooks write to.
    fn stream(&self) -> &Stream<Self::Target>;
    /// The gate that they look at.
    fn gate(&self) -> &Gate;
    /// The time, alone: read in the same way before and after a hook.
    fn clock(&self) -> u64;
    /// Does `work` while nothing else happens in this context.
    fn alone<R>(&self, work: impl FnOnce() -> R) -> R;
}

/// A measurement that goes on.
pub(crate) struct Probe<B> {
    bench: B,
    /// What [`time`](Self::time) takes beside what a compiler's call of a hook does, in parts of a tick.
    reading: u32,
    /// By how much one call of a hook may differ from another, in parts of a tick.
    call: u32,
    /// What the next delay follows from.
    seed: Cell<u32>,
}

/// The function that is said to be entered and left: neither the stopper nor, for assembly, what looks
/// like none.
fn subject(cursor: &Cursor, gate: &Gate) -> usize {
    let unit = 1 << cursor.function_shift.get();
    let function = cursor.text_base.get().wrapping_add(unit);
    if code(function) == gate.stopper() {
        function.wrapping_add(unit)
    } else {
        function
    }
}

impl<B: Bench> Probe<B> {
    /// A measurement. `None` if the clock does not count (yet).
    pub fn new(bench: B) -> Option<Self> {
        let counts = bench.alone(|| {
            let first = bench.clock();
            (0..PATIENCE).any(|_| bench.clock() != first)
        });
        counts.then_some(Self {
            bench,
            reading: 0,
            call: 0,
            seed: Cell::new(1),
        })
    }

    /// Measures what calls and interrupts cost, and if the program tells of switches, a switch from
    /// `thread` to itself (it would seem to tell of them from then on). Each time gives `tell` two
    /// costs, and whether the first has been told before.
    pub fn run(
        &mut self,
        hooks: &Hooks,
        cursor: &Cursor,
        thread: Option<usize>,
        tell: impl Fn(&[Cost; 2], bool),
    ) {
        const { assert!(2 * Pairs::<B::Target>::ALL.len() - 1 == COSTS) };
        let function = subject(cursor, self.bench.gate());
        let Calls {
            nothing,
            calling,
            not_calling,
        } = hooks.calls;
        // Each but for what is taken off later: the reading of the clock, and the call of nothing.
        let [nothing, calling] = self.both([nothing, calling], function);
        let [not_calling, _] = self.both([not_calling, hooks.exit], function);
        self.reading = nothing.wrapping_sub(calling).wrapping_add(not_calling);
        let [one, other] = self.both([hooks.enter, hooks.other_enter], function);
        self.call = one.abs_diff(other);
        for pair in &Pairs::<B::Target>::ALL {
            let (hooks, subject) = match (pair.recorded, thread) {
                ([Recorded::IsrEnter, _], _) => ([hooks.isr_enter, hooks.isr_exit], 0),
                ([Recorded::SwitchedOut, _], None) => break,
                ([Recorded::SwitchedOut, _], Some(thread)) => {
                    ([hooks.switched_out, hooks.switched_in], thread)
                }
                _ => ([hooks.enter, hooks.exit], function),
            };
            tell(&self.measure(pair, hooks, subject), pair.known);
        }
    }

    /// What each of two functions takes that are called like hooks.
    #[inline(never)]
    fn both(&self, hooks: [Hook; 2], function: usize) -> [u32; 2] {
        let whole = |cost: Cost| cost.before.wrapping_add(cost.after);
        let (mut one, mut other) = (0u32, 0u32);
        for _ in 0..1 << REPEATS {
            let [first, second] = self.measure(&Pairs::<B::Target>::ALL[0], hooks, function);
            one = one.wrapping_add(whole(first));
            other = other.wrapping_add(whole(second));
        }
        [one >> REPEATS, other >> REPEATS]
    }

    /// Calls both hooks of a pair, with `subject` as the function or the thread.
    #[inline(never)]
    fn measure(&self, pair: &Pair, hooks: [Hook; 2], subject: usize) -> [Cost; 2] {
        let subject = without_provenance(subject);
        let mut tallies = [B::Tally::NOTHING; 2];
        let bench = &self.bench;
        let gate = bench.gate();
        for round in 0..WARM_UP + B::Tally::ROUNDS {
            self.linger();
            let mut scratch = Scratch::uninit();
            bench.alone(|| {
                let stream = bench.stream();
                let Some(before) = stream.divert(&mut scratch) else {
                    return;
                };
                let forced = gate.force();
                for (n, tally) in tallies.iter_mut().enumerate() {
                    // 2^0 is not far from nothing, but not it.
                    let back = (1u32 << pair.from_bits[n] & !1).into();
                    let before = (back, pair.depths[n]);
                    let [before, after] = self.time(&mut scratch, hooks[n], subject, before);
                    if round >= WARM_UP {
                        tally.add(before, after);
                    }
                }
                gate.let_go(forced);
                stream.resume(before);
            });
            if tallies.iter().all(Tally::is_settled) {
                break;
            }
        }
        let cost = |tally: &B::Tally, n: usize| {
            tally.cost(pair.recorded[n], pair.from_bits[n], self.reading, self.call)
        };
        let [first, second] = &tallies;
        [cost(first, 0), cost(second, 1)]
    }

    /// Waits for a moment, another time than the last. Else each round could take so long that the next
    /// one meets the clock's ticks in the same places: then what is cut off by them is the same in
    /// all rounds, up to a tick, and the average is no better. (The loops differ so that not both can
    /// be whole ticks.)
    #[inline(never)]
    fn linger(&self) {
        // Marsaglia's xorshift generator: "Xorshift RNGs", Journal of Statistical Software 8 (14), 2003.
        let mut seed = self.seed.get();
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        self.seed.set(seed);
        for step in 0..seed & 7 {
            black_box(step);
        }
        for step in 0..seed >> 3 & 7 {
            black_box(black_box(step));
        }
    }

    /// Calls a hook, or what stands for one: what it took before the moment that it recorded, and after that. The
    /// record before is said to have been `back` ticks ago, and `depth` calls to be open. Not a part of who
    /// calls it, so that all are called by the same instructions; what these take beside is in
    /// [`reading`](Self::reading).
    #[inline(never)]
    fn time(
        &self,
        scratch: &mut Scratch,
        hook: Hook,
        subject: *const c_void,
        (back, depth): (u64, u8),
    ) -> [u32; 2] {
        let bench = &self.bench;
        let stream = bench.stream();
        stream.rewind(scratch, depth.into());
        let begin = bench.clock();
        stream.say_last(begin.wrapping_sub(back));
        // SAFETY: the program's own hooks, which may be called from anywhere, and look at their arguments
        // as numbers only.
        unsafe { hook(subject, subject) };
        let end = bench.clock() as u32;
        let recorded = bench.stream().last() as u32;
        [
            recorded.wrapping_sub(begin as u32),
            end.wrapping_sub(recorded),
        ]
    }
}
