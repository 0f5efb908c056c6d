//! What recording costs, measured by a recorder itself before it records.
//!
//! Every kind of hook is called some times as the program would call it, with the gate held open and
//! the cursor pointing to a few bytes of stack (`Stream::divert`): so everything is as it is when it
//! counts (the path in assembly, or the portable one, with tables and promotions), and nothing of it
//! stays. The hook reads the clock as always; the clock is read before the call and after it too. What
//! these parts took in all calls is told as it is ([`Sums`](kymo_wire::cost::Sums)), together with what
//! calls of a function took that does nothing. What a hook costs, and how sure that is, the host works
//! out of it.
//!
//! Who measures (a `Bench`) sees to it that nothing else comes between, as far as that can be; and
//! decides which calls count (a `Tally`): on a microcontroller all, where caches, other processors or a
//! hypervisor disturb it those that were not disturbed.

use core::ffi::c_void;

#[cfg(feature = "cost")]
mod probe;
#[cfg(feature = "cost")]
mod tally;

#[cfg(feature = "cost")]
pub(crate) use probe::{Bench, measure};
#[cfg(all(feature = "cost", target_has_atomic = "ptr"))]
pub(crate) use tally::Undisturbed;

/// A hook as the compiler calls it: with a function, and a call site.
pub type Hook = unsafe extern "C" fn(*const c_void, *const c_void);

/// What is called, in pairs:
/// - a function that does nothing, and one that does the same and calls that, as compilers call hooks: so
///   these two differ by what such a call takes (in assembly where an instruction counts);
/// - the hooks at entries and exits, as compilers call them;
/// - `kymo_isr_enter` and `kymo_isr_exit`, with an interrupt that is never in a trace in place of the function;
/// - `kymo_switched_out` and `kymo_switched_in`, with the thread in place of it.
pub type Hooks = [[Hook; 2]; 4];

/// Those of a target whose hooks nobody calls.
#[cfg(feature = "cost")]
pub(crate) const NO_HOOKS: Hooks = {
    unsafe extern "C" fn nothing(_: *const c_void, _: *const c_void) {}
    [[nothing; 2]; 4]
};

/// Defines `static HOOKS: Hooks`: those of the crate `kymo`, which a processor's crate has no other way to
/// name. With the two functions that do nothing, where they are in assembly; and with what stands for the hook at
/// entries, where compilers call it by an instruction more.
#[macro_export]
macro_rules! program_hooks {
    () => {
        /// Does nothing: but for what [`calling`] does beside calling it.
        unsafe extern "C" fn nothing(_: *const core::ffi::c_void, _: *const core::ffi::c_void) {
            core::hint::black_box::<$crate::cost::Hook>(nothing);
        }

        /// Calls it.
        unsafe extern "C" fn calling(
            function: *const core::ffi::c_void,
            call_site: *const core::ffi::c_void,
        ) {
            let nothing = core::hint::black_box::<$crate::cost::Hook>(nothing);
            // SAFETY: it does nothing.
            unsafe { nothing(function, call_site) };
            core::hint::black_box(());
        }

        $crate::program_hooks!([nothing, calling]);
    };
    ($calls:expr) => {
        $crate::program_hooks!($calls, __cyg_profile_func_enter);
    };
    ($calls:expr, $enter:expr) => {
        // SAFETY: the crate `kymo` has them so; but for the last four, which take only one argument, and that
        // is the number of an interrupt or a thread. All processors that Kymo knows pass it in the same register
        // as an address, and one argument more does no harm.
        unsafe extern "C" {
            fn __cyg_profile_func_enter(
                function: *const core::ffi::c_void,
                call_site: *const core::ffi::c_void,
            );
            fn __cyg_profile_func_exit(
                function: *const core::ffi::c_void,
                call_site: *const core::ffi::c_void,
            );
            fn kymo_isr_enter(irq: *const core::ffi::c_void, _: *const core::ffi::c_void);
            fn kymo_isr_exit(irq: *const core::ffi::c_void, _: *const core::ffi::c_void);
            fn kymo_switched_out(thread: *const core::ffi::c_void, _: *const core::ffi::c_void);
            fn kymo_switched_in(thread: *const core::ffi::c_void, _: *const core::ffi::c_void);
        }

        /// The hooks as the program calls them.
        static HOOKS: $crate::cost::Hooks = [
            $calls,
            [$enter, __cyg_profile_func_exit],
            [kymo_isr_enter, kymo_isr_exit],
            [kymo_switched_out, kymo_switched_in],
        ];
    };
}
