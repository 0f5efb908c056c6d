//! The functions of `kymo.h`.

#[cfg(target_os = "linux")]
use core::ffi::CStr;
use core::ffi::{c_char, c_void};

use kymo_recorder::Event;
use kymo_recorder::metadata::MAX_NAME;
use kymo_wire::event::MetadataType;

use crate::system;

/// A thread got the processor.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switched_in(thread: usize) {
    system::hook(Event::SwitchedIn(thread));
}

/// The processor goes from the thread that runs to another one: one record says both.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switch(next: usize) {
    system::hook(Event::SwitchedIn(next));
}

/// A thread lost the processor.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_switched_out(thread: usize) {
    system::hook(Event::SwitchedOut(thread));
}

/// An interrupt handler begins.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_isr_enter(irq: u16) {
    system::hook(Event::IsrEnter(irq));
}

/// An interrupt handler ends.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_isr_exit(irq: u16) {
    system::hook(Event::IsrExit(irq));
}

/// The program says something.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_marker(value: u32) {
    system::hook(Event::Marker(value));
}

/// The program says something under a name: a string constant, of which the address is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_named_marker(name: *const c_char, value: u32) {
    let name = name as usize;
    system::hook(Event::NamedMarker { name, value });
}

/// What time it is in the world.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_wall_clock(ns: u64) {
    system::hook(Event::WallClock { ns, uncertainty: 0 });
}

/// Thread, priority or mode changed.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_context(thread: usize, priority: i16, mode: u16) {
    system::hook(Event::Context {
        thread,
        priority,
        mode,
    });
}

/// The name of a thread.
///
/// # Safety
/// `name` is a NUL-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_thread_name(thread: usize, name: *const c_char) {
    // SAFETY: by this function's contract.
    unsafe { describe(thread, name, MetadataType::ThreadName) };
}

/// The name of an interrupt.
///
/// # Safety
/// `name` is a NUL-terminated string, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_isr_name(irq: u16, name: *const c_char) {
    // SAFETY: by this function's contract.
    unsafe { describe(irq.into(), name, MetadataType::IsrName) };
}

/// The name of a thread or an interrupt; nothing if there is none.
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

/// The string at `name`, as much of it as can be of use: what is kept of a name, and a byte more, which
/// tells whether that ends with a whole character. (Not `CStr`: that calls a function that the program
/// may not have otherwise.)
///
/// # Safety
/// It is NUL-terminated, and stays.
#[inline(always)]
unsafe fn text<'a>(name: *const c_char) -> &'a [u8] {
    let name = name.cast::<u8>();
    // SAFETY: all before the NUL is the string's.
    let length = (0..=MAX_NAME).take_while(|at| unsafe { name.add(*at).read() } != 0);
    // SAFETY: so many bytes are there.
    unsafe { core::slice::from_raw_parts(name, length.count()) }
}

/// Takes one [`kymo_disable`] back.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_enable() {
    system::enable(true);
}

/// Nothing is recorded until as many [`kymo_enable`].
#[unsafe(no_mangle)]
pub extern "C" fn kymo_disable() {
    system::enable(false);
}

/// Turns recording on.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_on() {
    system::turn(true);
}

/// Turns recording off.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_off() {
    system::turn(false);
}

/// The function whose entry turns recording on; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_set_trigger(function: *const c_void) {
    system::set_sets(Some(function as usize), None);
}

/// The function whose exit turns recording off; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_set_stopper(function: *const c_void) {
    system::set_sets(None, Some(function as usize));
}

/// Why the recorder could not be set up: the field of the configuration that is wrong, and its rule; null
/// if it could. The value goes to `value`, unless that is null.
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

/// Forgets the recorded events and the profile table.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_clear() {
    system::clear();
}

/// Keeps the clock's upper bits.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_tick() {
    system::tick();
}

/// A byte arrived from the host.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_receive(byte: u8) {
    system::receive(byte);
}

/// Does what the host asked for.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_poll() {
    system::poll();
}

/// Whether `kymo_link_poll` would have something to do.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_link_pending() -> bool {
    system::pending()
}

/// Gives all that was recorded so far to `put`, as lines of text; false if there is nothing to give.
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

/// The same of what RAM still holds after a reset, before it is initialized.
///
/// # Safety
/// `put` may be called with a text and its length, and nothing of the program runs yet.
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

/// Writes all that was recorded so far to a file: 0, or -1 with `errno`.
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

/// The CPU that calls this records from now on, as `number`: true, or false if the configuration has
/// no buffer for it or is wrong.
#[cfg(all(target_arch = "aarch64", target_os = "none"))]
#[unsafe(no_mangle)]
pub extern "C" fn kymo_cpu_start(number: u16) -> bool {
    system::cpu_start(number)
}
