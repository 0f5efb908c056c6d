//! Conditions of trigger and stopper: the caller, the n-th call, the maximum number of times.

use std::cell::Cell;

use kymo_device_tests::{Kind, config, leak};
use kymo_recorder::config::Config;
use kymo_recorder::link::Control;
use kymo_recorder::retained::WORDS;
use kymo_recorder::{Edge, Event};

use super::{Device, LEAF, MAIN, WORK, function};

/// Address of MAIN, and the return address of a call by its last instruction.
const CODE: (usize, usize) = (MAIN, MAIN + 0x20);

/// Where a part of it is that lies elsewhere.
const COLD: (usize, usize) = (MAIN - 0x800, MAIN - 0x7F0);

impl Device {
    fn enter_from(self, function: usize, caller: usize) {
        let (hot, config) = (self.hot, self.config);
        self.single.call(hot, config, Edge::Enter, function, caller);
    }

    /// Calls `function` from `caller`; returns whether recording was on during the call, and after it.
    fn round(self, function: usize, caller: usize) -> (bool, bool) {
        self.enter_from(function, caller);
        let within = self.gate.state().on();
        self.exit(function);
        (within, self.gate.state().on())
    }
}

/// A device that begins at WORK and ends when LEAF has returned.
fn device() -> Device {
    Device::new(Config {
        trigger: function(WORK),
        stopper: function(LEAF),
        ..config(16, 1024)
    })
}

#[test]
fn a_trigger_acts_for_one_caller_only() {
    let device = device();
    device.exit(MAIN);
    device
        .gate
        .conditions()
        .unwrap()
        .trigger
        .set(CODE.0, CODE.1, 0, 0);
    for elsewhere in [0, 1, MAIN, CODE.1 + 1] {
        assert_eq!(
            device.round(WORK, elsewhere),
            (false, false),
            "{elsewhere:#x}"
        );
    }
    for inside in [MAIN + 1, CODE.1] {
        assert_eq!(device.round(WORK, inside), (true, true), "{inside:#x}");
        device.set_recording(false);
    }
    // A part of that code lies elsewhere.
    let trigger = &device.gate.conditions().unwrap().trigger;
    trigger.set_cold(COLD.0, COLD.1);
    for (caller, acts) in [
        (COLD.0, false),
        (COLD.0 + 1, true),
        (COLD.1, true),
        (COLD.1 + 1, false),
        (CODE.1, true),
    ] {
        assert_eq!(device.round(WORK, caller), (acts, acts), "{caller:#x}");
        device.set_recording(false);
    }
    trigger.set(CODE.0, CODE.1, 0, 0);
    assert_eq!(device.round(WORK, COLD.1), (false, false));
}

#[test]
fn a_trigger_acts_from_the_nth_time_on_and_so_often() {
    let device = device();
    device.exit(MAIN);
    device.gate.conditions().unwrap().trigger.set(0, 0, 3, 2);
    let round = || {
        let on = device.round(WORK, 1).0;
        device.set_recording(false);
        on
    };
    let rounds = || [(); 6].map(|()| round());
    assert_eq!(rounds(), [false, false, true, true, false, false]);
    assert_eq!(rounds(), [false; 6]);
    // Cleared, it counts anew.
    device.single.clear(device.hot, device.config);
    assert_eq!(rounds(), [false, false, true, true, false, false]);
    // Calls while recording is on do not count.
    device.single.clear(device.hot, device.config);
    device.set_recording(true);
    device.round(WORK, 1);
    device.set_recording(false);
    assert_eq!(rounds(), [false, false, true, true, false, false]);
    let begun = |kind: &Kind| matches!(kind, Kind::Recording { on: true, .. });
    assert_eq!(device.kinds().iter().filter(|kind| begun(kind)).count(), 3);
}

#[test]
fn a_stopper_acts_for_one_caller_only_and_the_nth_time() {
    let device = device();
    device.set_recording(true);
    device
        .gate
        .conditions()
        .unwrap()
        .stopper
        .set(CODE.0, CODE.1, 2, 1);
    assert_eq!(device.round(LEAF, MAIN + 4), (true, true));
    assert_eq!(device.round(LEAF, 0), (true, true));
    assert_eq!(device.round(LEAF, MAIN + 4), (true, false));
    device.set_recording(true);
    assert_eq!(device.round(LEAF, MAIN + 4), (true, true));
    // The exit of a call that nobody saw the entry of is none that was counted.
    device.exit(LEAF);
    assert!(device.gate.state().on());
}

#[test]
fn a_stopper_that_is_recursive_ends_where_the_call_that_counts_returns() {
    let device = device();
    device.set_recording(true);
    device
        .gate
        .conditions()
        .unwrap()
        .stopper
        .set(CODE.0, CODE.1, 0, 0);
    device.enter_from(LEAF, 1);
    device.enter_from(LEAF, MAIN + 2);
    device.enter_from(LEAF, 1);
    // Of another thread it is another call.
    device.hook(Event::SwitchedIn(7));
    assert_eq!(device.round(LEAF, 1), (true, true));
    device.hook(Event::SwitchedIn(0));
    device.exit(LEAF);
    assert!(device.gate.state().on());
    device.exit(LEAF);
    assert!(!device.gate.state().on());
}

#[test]
fn a_jump_or_gap_within_a_stopper_does_not_keep_recording_on() {
    let jump = |device: Device| device.hook(Event::Longjmp(5));
    let gap = |device: Device| {
        device.enable(false);
        device.enable(true);
    };
    for leave in [jump, gap] {
        let device = device();
        device.set_recording(true);
        let conditions = device.gate.conditions().unwrap();
        conditions.stopper.set(CODE.0, CODE.1, 0, 0);
        let round = |within: &dyn Fn()| {
            device.set_recording(true);
            device.enter_from(LEAF, MAIN + 2);
            leave(device);
            within();
            assert!(device.gate.state().on());
            device.exit(LEAF);
            assert!(!device.gate.state().on());
        };
        // Calls that do not meet the condition are not its end.
        round(&|| {
            device.round(LEAF, 1);
        });
        // The thread has left it, and enters it again.
        round(&|| {
            device.enter_from(LEAF, MAIN + 2);
            device.round(LEAF, 1);
        });
        // Another thread does.
        round(&|| {
            device.hook(Event::SwitchedIn(7));
            device.round(LEAF, 1);
            device.exit(LEAF);
            assert!(device.gate.state().on());
            device.enter_from(LEAF, MAIN + 2);
        });
        device.set_recording(true);
        device.exit(LEAF);
        assert!(device.gate.state().on(), "a call that was not seen");
    }
}

/// A program that does not report switches: the jump is the first event of the thread since another one recorded.
#[test]
fn a_jump_is_that_of_the_running_thread() {
    thread_local! {
        static CURRENT: Cell<usize> = const { Cell::new(7) };
    }
    extern "C" fn current_thread() -> usize {
        CURRENT.get()
    }
    let device = Device::new(Config {
        stopper: function(LEAF),
        current_thread: Some(current_thread),
        ..config(16, 1024)
    });
    for other in [false, true] {
        CURRENT.set(7);
        device.set_recording(true);
        device.enter(LEAF);
        CURRENT.set(8);
        device.round(WORK, 1);
        CURRENT.set(if other { 8 } else { 7 });
        device.hook(Event::Longjmp(5));
        CURRENT.set(7);
        device.enter(LEAF);
        device.exit(LEAF);
        assert_eq!(device.gate.state().on(), other);
        device.set_recording(false);
    }
}

#[test]
fn conditions_survive_a_reboot() {
    let place = leak([u32::MAX; WORDS].map(Cell::new));
    let boot = || {
        let device = Device::new(Config {
            trigger: function(WORK),
            stopper: function(LEAF),
            retained: place.as_ptr().cast_mut().cast(),
            ..config(16, 1024)
        });
        device.exit(MAIN);
        device
    };
    let condition = |device: Device| {
        let conditions = device.gate.conditions().unwrap();
        [&conditions.trigger, &conditions.stopper].map(|it| (it.get(), it.cold()))
    };
    let set = (([CODE.0, CODE.1], [2, 1, 0, 0]), [COLD.0, COLD.1]);
    let none = (([0; 2], [0; 4]), [0; 2]);
    let device = boot();
    assert_eq!(condition(device), [none; 2]);
    let conditions = device.gate.conditions().unwrap();
    conditions.trigger.set(CODE.0, CODE.1, 2, 1);
    conditions.trigger.set_cold(COLD.0, COLD.1);
    device
        .single
        .control(device.hot, device.config)
        .keep_conditions();
    assert_eq!(device.round(WORK, CODE.1), (false, false));

    // Counting begins anew.
    let again = boot();
    assert_eq!(condition(again), [set, none]);
    assert_eq!(again.gate.trigger(), WORK);
    assert_eq!(again.round(WORK, CODE.1), (false, false));
    assert_eq!(again.round(WORK, CODE.1), (true, true));

    for word in place {
        word.set(word.get() ^ 0x100);
        assert_eq!(condition(boot()), [none; 2]);
        word.set(word.get() ^ 0x100);
    }
    assert_eq!(condition(boot()), [set, none]);
}
