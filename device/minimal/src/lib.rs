//! `libkymo_minimal.a`: the smallest recorder, for C programs on a Cortex-M. `kymo.h` lists its functions, and
//! [`kymo_recorder::minimal`] describes how it works.
#![cfg_attr(not(test), no_std)]

#[cfg(all(target_arch = "arm", target_os = "none"))]
mod cortex_m;

/// Stops the program. The recorder never panics; if it does, the program must not continue to record corrupt data.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
