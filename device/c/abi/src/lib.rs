//! C ABI of the recorder: the functions of `kymo.h`, `kymo_items.h` and `kymo_event.h`.
//!
//! `libkymo.a` consists of this crate. A Rust program whose parts in C call these functions depends on it beside the
//! crate `kymo`, and names it once: `use kymo_abi as _;`. The hooks that compilers call are in the crate `kymo`, and so are the four functions
//! of `kymo.h` for thread switches and interrupts, because the recorder calls them to measure what they cost.
#![no_std]

pub mod blocks;
pub mod items;
pub mod jumps;

#[cfg(target_os = "linux")]
use core::ffi::CStr;
use core::ffi::{c_char, c_void};

use kymo::system;
use kymo_recorder::Event;
use kymo_recorder::metadata::MAX_NAME;
use kymo_wire::event::MetadataType;

/// Records a switch from the running thread to `next`, in one record.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switch(next: usize) {
    system::hook(Event::SwitchedIn(next));
}

/// Records a marker.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_marker(value: u32) {
    system::hook(Event::Marker(value));
}

/// Records a marker with a name: a string constant, of which the address is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_named_marker(name: *const c_char, value: u32) {
    let name = name as usize;
    system::hook(Event::NamedMarker { name, value });
}

/// Records the wall-clock time, in nanoseconds since 1970 UTC.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_wall_clock(ns: u64) {
    system::hook(Event::WallClock { ns, uncertainty: 0 });
}

/// Records a change of thread, priority or mode.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_context(thread: usize, priority: i16, mode: u16) {
    system::hook(Event::Context {
        thread,
        priority,
        mode,
    });
}

/// Names a thread.
///
/// # Safety
/// `name` is a NUL-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_thread_name(thread: usize, name: *const c_char) {
    // SAFETY: by this function's contract.
    unsafe { describe(thread, name, MetadataType::ThreadName) };
}

/// Reports that a thread has ended.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_thread_ended(thread: usize) {
    kymo::thread_ended(thread);
}

/// Names an interrupt.
///
/// # Safety
/// `name` is a NUL-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_isr_name(irq: u16, name: *const c_char) {
    // SAFETY: by this function's contract.
    unsafe { describe(irq.into(), name, MetadataType::IsrName) };
}

/// Names a thread or an interrupt; does nothing if `name` is null.
///
/// # Safety
/// `name` is a NUL-terminated string, or null.
#[inline(never)]
unsafe fn describe(number: usize, name: *const c_char, kind: MetadataType) {
    if !name.is_null() {
        // SAFETY: by this function's contract.
        system::describe(number, unsafe { text(name) }, kind);
    }
}

/// Returns the string at `name`, up to one byte more than the recorder keeps of a name: that byte shows whether the
/// kept part ends with a whole character. (Not `CStr`, which calls a function that the program may not have otherwise.)
///
/// # Safety
/// `name` is NUL-terminated, and does not change.
#[inline(always)]
unsafe fn text<'a>(name: *const c_char) -> &'a [u8] {
    let name = name.cast::<u8>();
    // SAFETY: all before the NUL is the string's.
    let length = (0..=MAX_NAME).take_while(|at| unsafe { name.add(*at).read() } != 0);
    // SAFETY: so many bytes are there.
    unsafe { core::slice::from_raw_parts(name, length.count()) }
}

/// Reverts one [`kymo_disable`].
#[unsafe(no_mangle)]
pub extern "C" fn kymo_enable() {
    system::enable(true);
}

/// Disables recording until the matching [`kymo_enable`].
#[unsafe(no_mangle)]
pub extern "C" fn kymo_disable() {
    system::enable(false);
}

/// Turns recording on.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_on() {
    system::set_recording(true);
}

/// Turns recording off.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_off() {
    system::set_recording(false);
}

/// Sets the function whose entry turns recording on; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_set_trigger(function: *const c_void) {
    system::set_sets(Some(function as usize), None);
}

/// Sets the function whose exit turns recording off; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_set_stopper(function: *const c_void) {
    system::set_sets(None, Some(function as usize));
}

/// Returns why the recorder could not be set up: the wrong field of the configuration, and the rule that it breaks;
/// null if the recorder is set up. Stores the field's value in `value`, unless that is null.
///
/// # Safety
/// `value` is null, or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_status(value: *mut usize) -> *const c_char {
    let Some(error) = system::set_up_error() else {
        return core::ptr::null();
    };
    // SAFETY: by this function's contract.
    if let Some(value) = unsafe { value.as_mut() } {
        *value = error.value;
    }
    error.fault.text().as_ptr()
}

/// Discards the recorded events and the profile table.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_clear() {
    system::clear();
}

/// Counts events that were not recorded and that only the caller knows of, if recording is on.
#[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
#[unsafe(no_mangle)]
pub extern "C" fn kymo_lost(events: u32) {
    system::lose(events);
}

/// Extends the clock beyond the counter's width.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_tick() {
    system::tick();
}

/// Takes a byte that arrived from the host.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_receive(byte: u8) {
    system::receive(byte);
}

/// Executes the host's commands.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_poll() {
    system::poll();
}

/// Returns whether `kymo_link_poll` has work to do.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_pending() -> bool {
    system::pending()
}

/// Applies what a debugger requested in the structure, and stores the state there.
///
/// # Safety
/// `control` points to a `kymo_control_t`, or is null.
#[cfg(not(target_os = "linux"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_control_apply(control: *const kymo_recorder::by_memory::Memory) {
    // SAFETY: by this function's contract.
    if let Some(control) = unsafe { control.as_ref() } {
        system::follow_memory(control);
    }
}

/// Writes the whole recording to `put`, as lines of text; returns false if there is nothing to write.
///
/// # Safety
/// `put` may be called with a text and its length.
#[cfg(not(any(target_os = "linux", target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_dump_text(put: unsafe extern "C" fn(*const c_char, usize)) -> bool {
    system::dump_text(&mut |text| {
        // SAFETY: by this function's contract.
        unsafe { put(text.as_ptr().cast(), text.len()) }
    })
}

/// Writes the whole recording to `put`, as lines that a person can read; returns false if there is nothing to write.
///
/// # Safety
/// `put` may be called with a text and its length.
#[cfg(not(any(target_os = "linux", target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_dump_lines(put: unsafe extern "C" fn(*const c_char, usize)) -> bool {
    system::dump_lines(&mut |text| {
        // SAFETY: by this function's contract.
        unsafe { put(text.as_ptr().cast(), text.len()) }
    })
}

/// Does the same as [`kymo_dump_text`] with the recording that RAM still holds after a reset, before RAM is initialized.
///
/// # Safety
/// `put` may be called with a text and its length, and the program does not run yet.
#[cfg(not(any(target_os = "linux", target_arch = "aarch64")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_dump_survivors(
    put: unsafe extern "C" fn(*const c_char, usize),
) -> bool {
    let mut put = |text: &[u8]| {
        // SAFETY: by this function's contract.
        unsafe { put(text.as_ptr().cast(), text.len()) }
    };
    // SAFETY: by this function's contract.
    unsafe { system::dump_survivors(&mut put) }
}

/// Writes the whole recording to a file. Returns 0, or -1 with `errno`.
///
/// # Safety
/// `path` is a NUL-terminated string, or null.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_save(path: *const c_char) -> core::ffi::c_int {
    let result = if path.is_null() {
        Err(kymo_os_linux::sys::EFAULT)
    } else {
        // SAFETY: by this function's contract.
        let saved = system::save(unsafe { CStr::from_ptr(path) });
        saved.map_err(|error| kymo_os_linux::sys::Errno(error.errno))
    };
    match result {
        Ok(()) => 0,
        Err(errno) => {
            errno.set();
            -1
        }
    }
}

/// Calls `follower` with whether hooks are needed, now and whenever that may have changed. Returns false, and calls it
/// only once, with true, if there are too many followers.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
pub extern "C" fn kymo_follow(follower: extern "C" fn(bool)) -> bool {
    system::follow_gate(follower)
}

/// Reverts [`kymo_follow`].
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
pub extern "C" fn kymo_unfollow(follower: extern "C" fn(bool)) {
    system::unfollow_gate(follower);
}

/// Registers the calling CPU as `number`. Returns false if the configuration has no buffer for it or is wrong.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
#[unsafe(no_mangle)]
pub extern "C" fn kymo_cpu_start(number: u16) -> bool {
    system::cpu_start(number)
}
