//! What recording costs, measured by a recorder itself before it records.
//!
//! Every kind of hook is called some times as the program would call it, with the gate held open and
//! the cursor pointing to a few bytes of stack (`Stream::divert`): so everything is as it is when it
//! counts (the path in assembly, or the portable one, with tables and promotions), and nothing of it
//! stays. The hook reads the clock as always; the clock is read before the call and after it too,
//! which gives both parts of a [`Cost`](kymo_wire::cost::Cost). What reading the clock takes is taken
//! off, half of it from each part. (Only sums of a part after and a part before matter to a reader, so
//! that it does not matter how it is divided.)
//!
//! How sure that is follows from what was measured: how the calls differed, and what it makes that
//! compilers call hooks by an instruction more in one place than in another.
//!
//! Who measures (a `Bench`) sees to it that nothing else comes between, as far as that can be; and
//! decides how many measurements become one figure (a `Tally`): on a microcontroller that is their
//! average, where caches, other processors or a hypervisor disturb it is that of those that were not
//! disturbed.

use core::ffi::c_void;

#[cfg(feature = "cost")]
mod probe;
#[cfg(feature = "cost")]
mod tally;

#[cfg(feature = "cost")]
pub(crate) use probe::{Bench, COSTS, Probe};
#[cfg(feature = "cost")]
pub(crate) use tally::Sum;
#[cfg(all(feature = "cost", target_has_atomic = "ptr"))]
pub(crate) use tally::Undisturbed;

/// A hook as the compiler calls it: with a function, and a call site.
pub type Hook = unsafe extern "C" fn(*const c_void, *const c_void);

/// The hooks, as a program calls them.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// `__cyg_profile_func_enter`
    pub enter: Hook,
    /// The same by a call that takes a jump more or less: by as much compilers' calls differ, too.
    pub other_enter: Hook,
    /// What shows what a call takes.
    pub calls: Calls,
    /// `__cyg_profile_func_exit`
    pub exit: Hook,
    /// Calls `kymo_isr_enter`, for any interrupt.
    pub isr_enter: Hook,
    /// Calls `kymo_isr_exit`, for the same.
    pub isr_exit: Hook,
    /// Calls `kymo_switched_out`, with the thread in place of the function.
    pub switched_out: Hook,
    /// Calls `kymo_switched_in`, likewise.
    pub switched_in: Hook,
}

/// Functions that are called in place of hooks. The code that measures is compiled in one way today and in
/// another tomorrow, and calls a hook by an instruction more or less; but it calls
/// [`nothing`](Self::nothing) in the same way. So that is taken off rather than no call, and the call that
/// compilers make, which is part of the cost, is the difference of the other two: these are in assembly where an
/// instruction counts.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Returns at once.
    pub nothing: Hook,
    /// Calls [`nothing`](Self::nothing), as compilers call hooks.
    pub calling: Hook,
    /// The same without that.
    pub not_calling: Hook,
}

/// Defines `fn program_hooks() -> &'static Hooks`: those of the crate `kymo`, which a processor's crate has no
/// other way to name. With their [`Calls`], where they are in assembly; and with functions for the hook at entries and
/// the other way to call it, where compilers call it in another way than Rust does.
#[macro_export]
macro_rules! program_hooks {
    () => {
        /// Does nothing.
        unsafe extern "C" fn nothing(_: *const core::ffi::c_void, _: *const core::ffi::c_void) {}

        /// Calls it.
        unsafe extern "C" fn calling(
            function: *const core::ffi::c_void,
            call_site: *const core::ffi::c_void,
        ) {
            let nothing: $crate::cost::Hook = core::hint::black_box(nothing);
            // SAFETY: it does nothing.
            unsafe { nothing(function, call_site) };
            core::hint::black_box(());
        }

        /// Does not.
        unsafe extern "C" fn not_calling(_: *const core::ffi::c_void, _: *const core::ffi::c_void) {
            core::hint::black_box::<$crate::cost::Hook>(nothing);
        }

        $crate::program_hooks!($crate::cost::Calls {
            nothing,
            calling,
            not_calling,
        });
    };
    ($calls:expr) => {
        $crate::program_hooks!(__cyg_profile_func_enter, relayed_enter, $calls);

        /// A jump more.
        unsafe extern "C" fn relayed_enter(
            function: *const core::ffi::c_void,
            call_site: *const core::ffi::c_void,
        ) {
            // SAFETY: it may be called from anywhere.
            unsafe { __cyg_profile_func_enter(function, call_site) };
        }
    };
    ($enter:ident, $other_enter:ident, $calls:expr) => {
        // SAFETY: the crate `kymo` has them so.
        unsafe extern "C" {
            fn __cyg_profile_func_enter(
                function: *const core::ffi::c_void,
                call_site: *const core::ffi::c_void,
            );
            fn __cyg_profile_func_exit(
                function: *const core::ffi::c_void,
                call_site: *const core::ffi::c_void,
            );
            fn kymo_isr_enter(irq: u16);
            fn kymo_isr_exit(irq: u16);
            fn kymo_switched_out(thread: usize);
            fn kymo_switched_in(thread: usize);
        }

        /// The hooks as the program calls them.
        fn program_hooks() -> &'static $crate::cost::Hooks {
            use core::ffi::c_void;

            /// An interrupt that is never in a trace.
            const NO_IRQ: u16 = 0;

            unsafe extern "C" fn isr_enter(_: *const c_void, _: *const c_void) {
                // SAFETY: it may be called from anywhere.
                unsafe { kymo_isr_enter(NO_IRQ) };
            }

            unsafe extern "C" fn isr_exit(_: *const c_void, _: *const c_void) {
                // SAFETY: as above.
                unsafe { kymo_isr_exit(NO_IRQ) };
            }

            unsafe extern "C" fn switched_out(thread: *const c_void, _: *const c_void) {
                // SAFETY: as above.
                unsafe { kymo_switched_out(thread.addr()) };
            }

            unsafe extern "C" fn switched_in(thread: *const c_void, _: *const c_void) {
                // SAFETY: as above.
                unsafe { kymo_switched_in(thread.addr()) };
            }

            static HOOKS: $crate::cost::Hooks = $crate::cost::Hooks {
                enter: $enter,
                other_enter: $other_enter,
                calls: $calls,
                exit: __cyg_profile_func_exit,
                isr_enter,
                isr_exit,
                switched_out,
                switched_in,
            };
            &HOOKS
        }
    };
}
