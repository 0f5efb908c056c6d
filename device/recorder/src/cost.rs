//! Recording overhead, which a recorder measures itself before it records.
//!
//! Every kind of hook is called several times in the same way as by the program, with the gate forced open and the
//! cursor pointing to a few bytes of stack (`Stream::divert`). So everything is as in a real recording (the path in
//! assembly or the portable one, tables and promotions), and the records are discarded. The hook reads the clock as
//! always; the measurement reads it before and after the call, too. The sums of these parts over all calls are stored
//! unprocessed ([`Sums`](kymo_wire::cost::Sums)), together with those of calls of a function that does nothing. The
//! host computes the overhead of a hook, and its uncertainty, from them.
//!
//! A `Bench` prevents disturbances as far as possible. A `Tally` decides which calls count: on a microcontroller all of
//! them; where caches, other processors or a hypervisor interfere, only those that were not disturbed.

use core::ffi::c_void;

#[cfg(feature = "cost")]
mod probe;
#[cfg(feature = "cost")]
mod tally;
#[cfg(all(feature = "cost", target_has_atomic = "ptr"))]
mod undisturbed;

#[cfg(feature = "cost")]
pub(crate) use probe::{Bench, measure};
#[cfg(all(feature = "cost", target_has_atomic = "ptr"))]
pub(crate) use undisturbed::measure_undisturbed;

/// A hook with the compiler's signature: function, call site.
pub type Hook = unsafe extern "C" fn(*const c_void, *const c_void);

/// The functions to call, in pairs:
/// - a function that does nothing, and one that does the same and calls it in the way that compilers call hooks: so the
///   difference between the two is the overhead of such a call (in assembly where single instructions count);
/// - the hooks at entries and exits, as compilers call them;
/// - `kymo_isr_enter` and `kymo_isr_exit`, with an interrupt that never occurs in a trace instead of the function;
/// - `kymo_switched_out` and `kymo_switched_in`, with the thread instead of the function.
pub type Hooks = [[Hook; 2]; 4];

/// Hooks for a target that calls none.
#[cfg(feature = "cost")]
pub(crate) const NO_HOOKS: Hooks = {
    unsafe extern "C" fn nothing(_: *const c_void, _: *const c_void) {}
    [[nothing; 2]; 4]
};

/// Defines `static HOOKS: Hooks` with the hooks of the crate `kymo`, which a processor's crate can't name in another
/// way. Optional arguments: the two functions that do nothing, where they are in assembly; and a replacement for the
/// hook at entries, where compilers call it with one more instruction.
#[macro_export]
macro_rules! program_hooks {
    () => {
        /// Does nothing, except for what [`calling`] does besides the call.
        unsafe extern "C" fn nothing(_: *const core::ffi::c_void, _: *const core::ffi::c_void) {
            core::hint::black_box::<$crate::cost::Hook>(nothing);
        }

        /// Calls [`nothing`].
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
        // SAFETY: the crate `kymo` defines them with these signatures, except for the last four, which take only one
        // argument: the number of an interrupt or a thread. All processors that Kymo supports pass it in the same
        // register as an address, and an additional argument does no harm.
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
