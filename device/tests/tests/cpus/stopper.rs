//! The stopper on several CPUs: its thread may return on another CPU, and while a dump is being read.

use std::cell::Cell;

use kymo_device_tests::{Host, config};
use kymo_recorder::Event;
use kymo_recorder::config::{Config, START_ON};

use crate::device::{CPUS, Device, PLACE, figure};
use crate::duration::{controls, device as in_duration, with};

const STOPPER: usize = 0x1300;

thread_local! {
    /// The thread that runs, of a program that does not report switches.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn current_thread() -> usize {
    CURRENT.get()
}

/// Two CPUs, simulated alternately.
struct Pair {
    device: Device,
    registers: [*const (); 2],
}

impl Pair {
    /// Starts the CPUs and sets the stopper.
    fn new(device: Device) -> Self {
        let start = |cpu| {
            assert!(device.start(cpu));
            PLACE.get()
        };
        let registers = [start(0), start(1)];
        device.talk(format!("stopper {STOPPER:x}\r").as_bytes());
        Self { device, registers }
    }

    /// Two CPUs that record entries and exits.
    fn of_calls() -> Self {
        Self::new(Device::new(START_ON, 64))
    }

    /// Selects this CPU, which switches to this thread.
    fn run(&self, cpu: usize, thread: usize) -> Device {
        PLACE.set(self.registers[cpu]);
        self.device
            .cpus
            .hook(self.device.gate, Event::SwitchedIn(thread));
        self.device
    }

    fn is_on(&self) -> bool {
        self.device.gate.state().on()
    }
}

#[test]
fn a_thread_that_returns_on_another_cpu_stops() {
    for pair in [Pair::of_calls(), Pair::new(in_duration())] {
        pair.run(0, 7).enter(STOPPER);
        pair.run(0, 7).enter(STOPPER);
        pair.run(1, 8).enter(STOPPER);
        // They swap.
        pair.run(1, 7).exit(STOPPER);
        assert!(pair.is_on(), "its inner call");
        pair.run(1, 7).exit(STOPPER);
        assert!(!pair.is_on());
        // Calls of an earlier round do not count.
        pair.device.talk(b"on\r");
        pair.run(0, 8).enter(STOPPER);
        pair.run(0, 8).exit(STOPPER);
        assert!(!pair.is_on());
    }
}

#[test]
fn cpus_that_report_no_threads_keep_apart() {
    let pair = Pair::of_calls();
    let on = |cpu: usize| {
        PLACE.set(pair.registers[cpu]);
        pair.device
    };
    on(0).enter(STOPPER);
    on(1).enter(STOPPER);
    on(1).enter(STOPPER);
    on(1).exit(STOPPER);
    assert!(pair.is_on());
    on(0).exit(STOPPER);
    assert!(!pair.is_on());
}

/// A dump does not make the recorder forget which calls are open.
#[test]
fn a_dump_between_recursive_calls_changes_nothing() {
    let pair = Pair::of_calls();
    let device = pair.run(0, 7);
    device.enter(STOPPER);
    device.enter(STOPPER);
    device.dump();
    device.exit(STOPPER);
    assert!(pair.is_on());
    device.exit(STOPPER);
    assert!(!pair.is_on());
}

/// The program answers which thread runs, and no event has been recorded since it changed.
#[test]
fn a_return_during_a_dump_is_that_of_the_running_thread() {
    let pair = Pair::new(Device::with(Config {
        flags: START_ON,
        cpu_count: CPUS.into(),
        current_thread: Some(current_thread),
        ..config(64, 1024)
    }));
    let on = |cpu: usize, thread| {
        PLACE.set(pair.registers[cpu]);
        CURRENT.set(thread);
        pair.device
    };
    let device = on(0, 7);
    device.enter(STOPPER);
    on(0, 8).enter(0x1100);
    device.talk(&Host::command(1, "dump_trace"));
    on(0, 7).exit(STOPPER);
    assert!(!pair.is_on());
    device.talk(&Host::command(2, "done"));
    CURRENT.set(0);
}

#[test]
fn a_jump_ends_the_calls_of_its_thread() {
    for pair in [Pair::of_calls(), Pair::new(in_duration())] {
        let device = pair.run(0, 7);
        device.enter(STOPPER);
        device.enter(STOPPER);
        pair.run(1, 8).enter(STOPPER);
        pair.run(1, 8).enter(STOPPER);
        pair.run(0, 7);
        device.cpus.hook(device.gate, Event::Longjmp(5));
        pair.run(1, 8).exit(STOPPER);
        assert!(pair.is_on(), "the other thread's inner call");
        let device = pair.run(0, 7);
        device.enter(STOPPER);
        device.exit(STOPPER);
        assert!(!pair.is_on());
    }
}

#[test]
fn a_return_while_recording_is_disabled_does_not_keep_recording_on() {
    let pair = Pair::of_calls();
    let device = pair.run(0, 7);
    device.enter(STOPPER);
    device.enter(STOPPER);
    device.cpus.enable(device.gate, false);
    device.exit(STOPPER);
    device.cpus.enable(device.gate, true);
    device.exit(STOPPER);
    assert!(!pair.is_on());
}

/// Another thread may have the number of one that ended.
#[test]
fn a_thread_that_is_reported_as_ended_is_forgotten() {
    let pair = Pair::of_calls();
    pair.run(0, 7).enter(STOPPER);
    pair.run(1, 8).enter(STOPPER);
    let device = pair.run(0, 9);
    device.cpus.end_thread(device.gate, 7);
    device.cpus.end_thread(device.gate, 10);
    pair.run(0, 7).enter(STOPPER);
    pair.run(0, 7).enter(STOPPER);
    pair.run(0, 7).exit(STOPPER);
    assert!(pair.is_on(), "its inner call");
    pair.run(0, 7).exit(STOPPER);
    assert!(!pair.is_on());
}

/// Where a program does not report that a thread has ended: it may be within the stopper.
#[test]
fn threads_that_end_within_the_stopper_do_not_keep_recording_on() {
    for pair in [Pair::of_calls(), Pair::new(in_duration())] {
        for thread in 10..30 {
            pair.run(thread % 2, thread).enter(STOPPER);
        }
        let device = pair.run(0, 7);
        device.enter(STOPPER);
        device.enter(STOPPER);
        device.exit(STOPPER);
        assert!(pair.is_on(), "its inner call");
        let device = pair.run(1, 7);
        device.exit(STOPPER);
        assert!(!pair.is_on());
        // 8 of 21 have a place.
        assert_eq!(figure(&device.status(), "stopper_displaced"), 13);
        device.talk(b"on\r");
        assert_eq!(figure(&device.status(), "stopper_displaced"), 13);
        device.talk(b"off\rclear\r");
        assert!(!device.status().contains("stopper_displaced"));
    }
}

/// Of threads whose calls may have ended one gives way first, and is counted.
#[test]
fn threads_in_doubt_are_displaced_first() {
    let pair = Pair::of_calls();
    let conditions = pair.device.gate.conditions().expect("the part");
    conditions.stopper.set(0x2000, 0x2100, 0, 0);
    let enter = |thread| pair.run(thread % 2, thread).enter_from(STOPPER, 0x2010);
    (10..18).for_each(enter);
    let device = pair.run(0, 17);
    device.cpus.hook(device.gate, Event::Longjmp(5));
    enter(18);
    assert_eq!(figure(&device.status(), "stopper_displaced"), 1);
    pair.run(0, 17).exit(STOPPER);
    assert!(pair.is_on());
    pair.run(0, 10).exit(STOPPER);
    assert!(!pair.is_on());
    // Without a condition there is no doubt that matters.
    device.talk(b"clear\ron\r");
    conditions.stopper.set(0, 0, 0, 0);
    (10..18).for_each(enter);
    device.cpus.enable(device.gate, false);
    device.cpus.enable(device.gate, true);
    enter(18);
    assert!(!device.status().contains("stopper_displaced"));
}

/// Calls of the stopper meet a condition: its caller.
#[test]
fn a_jump_or_gap_within_a_conditioned_stopper_does_not_keep_recording_on() {
    let (code, inside) = ((0x2000, 0x2100), 0x2010);
    let gap = |pair: &Pair| {
        let device = pair.run(0, 7);
        device.cpus.enable(device.gate, false);
        device.cpus.enable(device.gate, true);
    };
    let jump = |pair: &Pair| {
        let device = pair.run(0, 7);
        device.cpus.hook(device.gate, Event::Longjmp(5));
    };
    for leave in [&jump as &dyn Fn(&Pair), &gap] {
        for pair in [Pair::of_calls(), Pair::new(in_duration())] {
            let conditions = pair.device.gate.conditions().expect("the part");
            conditions.stopper.set(code.0, code.1, 0, 0);
            let device = pair.run(0, 7);
            device.enter_from(STOPPER, inside);
            device.enter(0x1100);
            leave(&pair);
            // Calls that do not meet the condition are not its end, nor is another thread's.
            device.enter(STOPPER);
            device.exit(STOPPER);
            let device = pair.run(1, 8);
            device.enter(STOPPER);
            device.exit(STOPPER);
            assert!(pair.is_on());
            pair.run(0, 7).exit(STOPPER);
            assert!(!pair.is_on());
            // All have been left.
            device.talk(b"on\r");
            let device = pair.run(0, 7);
            device.enter_from(STOPPER, inside);
            leave(&pair);
            device.enter_from(STOPPER, inside);
            device.enter(STOPPER);
            device.exit(STOPPER);
            assert!(pair.is_on());
            device.exit(STOPPER);
            assert!(!pair.is_on());
            device.talk(b"on\r");
            device.exit(STOPPER);
            assert!(pair.is_on(), "a call that was not seen");
        }
    }
}

thread_local! {
    /// The device whose hook `instrumented` calls.
    static DEVICE: Cell<Option<Device>> = const { Cell::new(None) };
}

/// An instrumented `current_thread`.
extern "C" fn instrumented() -> usize {
    if let Some(device) = DEVICE.take() {
        device.enter(STOPPER);
    }
    7
}

#[test]
fn a_hook_within_a_hook_is_counted_once_while_a_stop_function_is_set() {
    let device = with(
        controls(),
        Config {
            flags: START_ON,
            current_thread: Some(instrumented),
            ..config(64, 1024)
        },
    );
    assert!(device.start(0));
    device.talk(format!("duration stop_at {STOPPER:x}\r").as_bytes());
    let before = figure(&device.status(), "discarded");
    DEVICE.set(Some(device));
    device.enter(0x1100);
    assert!(DEVICE.take().is_none());
    assert_eq!(figure(&device.status(), "discarded") - before, 1);
}
