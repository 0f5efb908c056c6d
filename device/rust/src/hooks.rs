//! Portable `-finstrument-functions` hooks. Some processors have their own in assembly: `device/arch`.

use core::ffi::c_void;

use kymo_recorder::Edge;
use kymo_recorder::gate::code;

use crate::system;

/// Called by the compiler at the entry of every function, with `-finstrument-functions`.
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_enter(function: *const c_void, call_site: *const c_void) {
    system::call(Edge::Enter, code(function as usize), call_site as usize);
}

/// Called by the compiler at every return.
#[unsafe(no_mangle)]
pub extern "C" fn __cyg_profile_func_exit(function: *const c_void, _call_site: *const c_void) {
    system::call(Edge::Exit, code(function as usize), 0);
}
