//! `libkymo_sysview.a`: the crate `kymo-sysview` as a static library for C programs. See `include/kymo_sysview.h`.
#![cfg_attr(not(test), no_std)]

use core::ffi::{CStr, c_char};

use kymo_sysview_rust::{Greeting, Ids, Level, Part, Port, Recorder, System};

/// Stops the program. The recorder never panics; if it does, the program must not continue to record corrupt data.
#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// `kymo_sysview_module_t`.
#[repr(C)]
struct Module {
    /// Array of texts; a null pointer ends it.
    texts: *const *const c_char,
    first_event: u32,
}

/// `kymo_sysview_config_t`.
#[repr(C)]
struct Config {
    clock_hz: u32,
    cpu_hz: u32,
    id_base: u32,
    id_shift: u32,
    greeting: u32,
    module_count: u32,
    modules: *const Module,
    /// Array of texts; a null pointer ends it.
    description: *const *const c_char,
    clock: Option<extern "C" fn() -> u32>,
    lock: Option<extern "C" fn() -> usize>,
    unlock: Option<extern "C" fn(usize)>,
    write: Option<extern "C" fn(*const u8, usize) -> bool>,
    describe: Option<extern "C" fn()>,
}

// SAFETY: it is constant.
unsafe impl Sync for Config {}

// SAFETY: the header has the same declaration.
unsafe extern "C" {
    /// Defined by the program.
    static kymo_sysview_config: Config;
}

static RECORDER: Recorder<Callbacks> = Recorder::new(Callbacks);

/// Port that calls the functions in the program's configuration.
struct Callbacks;

impl Callbacks {
    #[inline(always)]
    fn config(&self) -> &'static Config {
        // SAFETY: the program defines it, as a constant.
        unsafe { &kymo_sysview_config }
    }
}

/// Returns the bytes of a text; none for null.
///
/// # Safety
/// `text` is null or a text that does not change.
unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(text) }.to_bytes()
}

/// Calls `take` for each text of an array that ends with null.
///
/// # Safety
/// `texts` is null or such an array of constants.
unsafe fn each_text(texts: *const *const c_char, mut take: impl FnMut(&'static [u8])) {
    if texts.is_null() {
        return;
    }
    for place in 0.. {
        // SAFETY: the list has not ended yet.
        let text = unsafe { *texts.add(place) };
        if text.is_null() {
            return;
        }
        // SAFETY: by this function's contract.
        take(unsafe { bytes(text) });
    }
}

impl Port for Callbacks {
    fn now(&self) -> u32 {
        self.config().clock.map_or(0, |clock| clock())
    }

    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let was = self.config().lock.map_or(0, |lock| lock());
        let result = run();
        if let Some(unlock) = self.config().unlock {
            unlock(was);
        }
        result
    }

    fn write(&self, bytes: &[u8]) -> bool {
        let write = self.config().write;
        write.is_some_and(|write| write(bytes.as_ptr(), bytes.len()))
    }

    fn system(&self) -> System {
        let config = self.config();
        System {
            frequency: config.clock_hz,
            cpu_frequency: config.cpu_hz,
            ids: Ids {
                base: config.id_base,
                shift: config.id_shift,
            },
            greeting: match config.greeting {
                1 => Greeting::Serial,
                2 => Greeting::Tcp,
                _ => Greeting::None,
            },
        }
    }

    fn modules(&self) -> u32 {
        self.config().module_count
    }

    fn describe(&self, recorder: &Recorder<Self>, part: Part) {
        let config = self.config();
        match part {
            // SAFETY: the header demands such a list.
            Part::System => unsafe {
                each_text(config.description, |text| recorder.system_description(text));
            },
            Part::Tasks => {
                if let Some(describe) = config.describe {
                    describe();
                }
            }
            Part::Modules if config.modules.is_null() => {}
            Part::Modules => {
                for number in 0..config.module_count {
                    // SAFETY: there are so many.
                    let module = unsafe { &*config.modules.add(number as usize) };
                    let report = |text| recorder.module(number, module.first_event, text);
                    // SAFETY: the header demands such a list.
                    unsafe { each_text(module.texts, report) };
                }
            }
        }
    }
}

/// Defines C functions that call the recorder's methods.
macro_rules! exports {
    ($($(#[$doc:meta])* $name:ident = $method:ident($($argument:ident: $type:ty),*);)+) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $type),*) {
                RECORDER.$method($($argument),*);
            }
        )+
    };
}

exports! {
    /// Ends the recording.
    kymo_sysview_stop = stop();
    /// Begins a connection.
    kymo_sysview_connected = connected();
    /// Takes a byte that arrived from the host.
    kymo_sysview_receive = receive(byte: u8);
    /// Executes the host's requests.
    kymo_sysview_poll = poll();
    /// Records that an interrupt handler begins.
    kymo_sysview_isr_enter = isr_enter(irq: u32);
    /// Records that an interrupt handler ends.
    kymo_sysview_isr_exit = isr_exit();
    /// Records that an interrupt handler ends in the scheduler.
    kymo_sysview_isr_exit_to_scheduler = isr_exit_to_scheduler();
    /// Records that no task runs.
    kymo_sysview_idle = idle();
    /// Records that a task was created.
    kymo_sysview_task_create = task_create(task: usize);
    /// Records a task's stack.
    kymo_sysview_task_stack = task_stack(task: usize, base: usize, size: u32, usage: u32);
    /// Records that a task gets the processor.
    kymo_sysview_task_start_exec = task_start_exec(task: usize);
    /// Records that the running task ends.
    kymo_sysview_task_stop_exec = task_stop_exec();
    /// Records that a task is ready to run.
    kymo_sysview_task_start_ready = task_start_ready(task: usize);
    /// Records that a task is blocked.
    kymo_sysview_task_stop_ready = task_stop_ready(task: usize, cause: u32);
    /// Records that a task was deleted.
    kymo_sysview_task_terminate = task_terminate(task: usize);
    /// Records that a software timer's callback begins.
    kymo_sysview_timer_enter = timer_enter(timer: usize);
    /// Records that a software timer's callback ends.
    kymo_sysview_timer_exit = timer_exit();
    /// Records the start of a user event.
    kymo_sysview_mark_start = mark_start(id: u32);
    /// Records the end of a user event.
    kymo_sysview_mark_stop = mark_stop(id: u32);
    /// Records a marker.
    kymo_sysview_mark = mark(id: u32);
    /// Records the entry to a function.
    kymo_sysview_function_enter = function_enter(function: usize, call_site: usize);
    /// Records the exit from a function.
    kymo_sysview_function_exit = function_exit(function: usize, call_site: usize);
    /// Describes a heap.
    kymo_sysview_heap_define = heap_define(heap: usize, base: usize, size: u32, metadata: u32);
    /// Records that a block is allocated from a heap.
    kymo_sysview_heap_alloc = heap_alloc(heap: usize, block: usize, size: u32);
    /// Records that a block is freed.
    kymo_sysview_heap_free = heap_free(heap: usize, block: usize);
}

/// Begins a recording.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_start() -> bool {
    RECORDER.start()
}

/// Returns whether events are recorded.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_is_on() -> bool {
    RECORDER.is_on()
}

/// Returns whether `kymo_sysview_poll` has work to do.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_pending() -> bool {
    RECORDER.is_requested()
}

/// Returns the number of packets lost since the start.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_dropped() -> u32 {
    RECORDER.dropped()
}

/// Records a task's name and priority.
///
/// # Safety
/// `name` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_sysview_task_info(task: usize, priority: u32, name: *const c_char) {
    // SAFETY: by this function's contract.
    RECORDER.task_info(task, priority, unsafe { bytes(name) });
}

/// Names a timer, semaphore, queue or heap.
///
/// # Safety
/// `name` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_sysview_name_resource(resource: usize, name: *const c_char) {
    // SAFETY: by this function's contract.
    RECORDER.name_resource(resource, unsafe { bytes(name) });
}

/// Names a user event or marker.
///
/// # Safety
/// `name` is null or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_sysview_name_marker(id: u32, name: *const c_char) {
    // SAFETY: by this function's contract.
    RECORDER.name_marker(id, unsafe { bytes(name) });
}

/// Returns the numbers of an event as a slice.
///
/// # Safety
/// `numbers` is null, or points to `count` numbers.
unsafe fn numbers<'a>(numbers: *const u32, count: u32) -> &'a [u32] {
    if numbers.is_null() {
        return &[];
    }
    // SAFETY: by this function's contract.
    unsafe { core::slice::from_raw_parts(numbers, count as usize) }
}

/// Prints a text with numbers in it.
///
/// # Safety
/// `format` is null or a text, and `count` numbers are at `arguments`, unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_sysview_print_with(
    level: u32,
    format: *const c_char,
    arguments: *const u32,
    count: u32,
) {
    let level = match level {
        1 => Level::Warning,
        2 => Level::Error,
        _ => Level::Log,
    };
    // SAFETY: by this function's contract.
    let (format, arguments) = unsafe { (bytes(format), numbers(arguments, count)) };
    RECORDER.print(level, format, arguments);
}

/// Records an event of a module.
///
/// # Safety
/// `count` numbers are at `arguments`, unless that is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kymo_sysview_event(id: u32, arguments: *const u32, count: u32) {
    // SAFETY: by this function's contract.
    RECORDER.event(id, unsafe { numbers(arguments, count) });
}

/// Records that the call which an event began returns nothing.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_end_call(id: u32) {
    RECORDER.end_call(id, None);
}

/// Records that the call which an event began returns a value.
#[unsafe(no_mangle)]
pub extern "C" fn kymo_sysview_end_call_with(id: u32, value: u32) {
    RECORDER.end_call(id, Some(value));
}
