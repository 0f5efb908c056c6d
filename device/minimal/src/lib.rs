//! `libkymo_minimal.a`: the smallest recorder, for C programs on a Cortex-M. See `kymo.h`
//! for the functions that it has, and [`kymo_recorder::minimal`] for what it does.
#![cfg_attr(not(test), no_std)]

#[cfg(all(target_arch = "arm", target_os = "none"))]
mod cortex_m;

/// Nothing in the recorder panics; if something does, the program must not go on recording
/// nonsense.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
