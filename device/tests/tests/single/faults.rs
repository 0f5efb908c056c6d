//! Programs with wrong configurations, and interrupts when no more data can be stored.

use std::cell::{Cell, UnsafeCell};
use std::rc::Rc;

use kymo_device_tests::{Kind, config, leak};
use kymo_recorder::config::{Config, FIXED, ONCE, PROMOTE_SWITCHED_IN, Promotion, START_ON};
use kymo_recorder::link::Control as _;
use kymo_recorder::retained::WORDS;
use kymo_recorder::single::Request;
use kymo_recorder::{Edge, Event};
use kymo_wire::link::{Fault, Identity, Text};

use super::ends::in_duration;
use super::{Device, LEAF, MAIN, WORK, enter, exit};

#[test]
fn a_wrong_configuration_records_nothing_and_is_reported_for_what_it_is() {
    let good = || config(16, 1024);
    let table = || {
        let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
        Config {
            slots: words(6 * 8).cast(),
            slot_count: 8,
            frames: words(5 * 2 * 8).cast(),
            shadow_stacks: 2,
            shadow_depth: 8,
            ..good()
        }
    };
    type Wrong = fn(&mut Config);
    let wrong: [(Config, Wrong, Fault, usize); 17] = [
        (good(), |it| it.version = 99, Fault::Version, 99),
        (
            good(),
            |it| it.buffer = std::ptr::null_mut(),
            Fault::NoBuffer,
            0,
        ),
        (good(), |it| it.packet_size = 500, Fault::PacketSize, 500),
        (
            good(),
            |it| it.packet_size = 1 << 20,
            Fault::PacketSize,
            1 << 20,
        ),
        (good(), |it| it.packet_size = 0, Fault::PacketSize, 0),
        (good(), |it| it.buffer_size = 1024, Fault::BufferSize, 1024),
        (good(), |it| it.buffer_size = 2500, Fault::BufferSize, 2500),
        (good(), |it| it.metadata_size = 3, Fault::MetadataSize, 3),
        (good(), |it| it.function_shift = 8, Fault::FunctionShift, 8),
        (good(), |it| it.clock_hz = 0, Fault::ClockHz, 0),
        (good(), |it| it.cpu_count = 2, Fault::OneCpu, 2),
        (
            table(),
            |it| it.slots = std::ptr::null_mut(),
            Fault::Slots,
            0,
        ),
        (
            table(),
            |it| it.frames = std::ptr::null_mut(),
            Fault::Frames,
            0,
        ),
        (table(), |it| it.shadow_stacks = 1, Fault::ShadowStacks, 1),
        (table(), |it| it.shadow_stacks = 33, Fault::ShadowStacks, 33),
        (table(), |it| it.shadow_depth = 1, Fault::ShadowDepth, 1),
        (
            table(),
            |it| it.shadow_depth = 1 << 16,
            Fault::ShadowDepth,
            1 << 16,
        ),
    ];
    for (mut config, spoil, fault, value) in wrong {
        spoil(&mut config);
        let device = Device::new(Config {
            flags: START_ON,
            ..config
        });
        device.enter(MAIN);
        device.exit(MAIN);
        assert_eq!(device.single.fault(), Some(fault.of(value)));
        assert_eq!(device.records(), []);
        let control = device.single.control(device.hot, device.config);
        let line = &mut [0; 400];
        let mut line = Text::new(line);
        control.identity().write(&mut line);
        // What it cannot number functions by the host must be able to read.
        let line = std::str::from_utf8(line.bytes()).expect("text");
        assert!(Identity::parse(line).is_some(), "{line}");
    }
}

#[test]
fn a_clock_that_counts_down_hangs_nothing_and_is_marked() {
    let device = Device::new(Config {
        flags: START_ON,
        ..config(64, 1024)
    });
    // By one at each reading, and by 2^32 ticks forward as far as anybody can tell.
    device.port.step.set((1 << 32) - 1);
    for n in 0..20 {
        device.enter(MAIN);
        device.hook(Event::Marker(n));
        device.hook(Event::SwitchedIn(5));
        device.exit(MAIN);
    }
    let kinds = device.kinds();
    let entered = kinds.iter().filter(|kind| **kind == enter(MAIN)).count();
    let lost = device.lost() as usize;
    assert_eq!(entered, 20, "lost: {lost}");
    let gap = |kind: &&Kind| matches!(kind, Kind::ClockGap { .. });
    assert!(kinds.iter().filter(gap).count() > 0, "{kinds:?}");
}

/// With such a clock nearly every record begins a packet: each record then has a form that does not depend on the
/// packet before.
#[test]
fn a_clock_that_counts_down_leaves_interrupts_and_threads_as_they_are() {
    let device = Device::new(Config {
        flags: START_ON,
        ..config(64, 1024)
    });
    device.port.step.set((1 << 32) - 1);
    let events = [
        Event::SwitchedIn(5),
        Event::IsrEnter(300),
        Event::IsrEnter(3),
        Event::IsrExit(3),
        Event::IsrExit(300),
        Event::SwitchedOut(5),
    ];
    for _ in 0..20 {
        for event in events {
            device.hook(event);
        }
    }
    assert_eq!(device.lost(), 0);
    let kinds = device.kinds();
    let is_event = |kind: &&Kind| !matches!(kind, Kind::ClockGap { .. });
    let events: Vec<_> = kinds.into_iter().filter(|it| is_event(&it)).collect();
    let expected = [
        Kind::SwitchedIn(5),
        Kind::IsrEnter(300),
        Kind::IsrEnter(3),
        Kind::IsrExit(3),
        Kind::IsrExit(300),
        Kind::SwitchedOut(5),
    ];
    let rounds = events.windows(expected.len());
    let whole = rounds.filter(|round| **round == expected).count();
    assert_eq!(whole, 20, "{events:?}");
}

#[test]
fn a_call_that_an_interrupt_comes_into_takes_no_negative_time_in_a_full_buffer() {
    const HANDLER: u64 = 1000;
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
    let device = Device::new(Config {
        flags: START_ON | FIXED,
        slots: words(6 * 8).cast(),
        slot_count: 8,
        frames: words(5 * 2 * 8).cast(),
        shadow_stacks: 2,
        shadow_depth: 8,
        ..config(2, 128)
    });
    device.hook(Event::SwitchedIn(5));
    for _ in 0..200 {
        device.enter(LEAF);
        device.exit(LEAF);
    }
    assert!(device.lost() > 0, "the buffer is full");
    // At each place in turn where an interrupt may come.
    let (places, next) = (
        std::rc::Rc::new(Cell::new(0)),
        std::rc::Rc::new(Cell::new(0)),
    );
    let (at, due) = (places.clone(), next.clone());
    device.preempt(move |place| {
        if place != "mask" && place != "unmask" {
            return;
        }
        at.set(at.get() + 1);
        if at.get() == due.get() {
            device.hook(Event::IsrEnter(3));
            device.enter(WORK);
            device.port.time.set(device.port.time.get() + HANDLER);
            device.exit(WORK);
            device.hook(Event::IsrExit(3));
        }
    });
    let mut calls = 0;
    loop {
        places.set(0);
        next.set(next.get() + 1);
        device.enter(MAIN);
        device.exit(MAIN);
        calls += 1;
        if places.get() < next.get() {
            break;
        }
    }
    assert!(calls > 8, "{calls}");
    *device.port.preempt.borrow_mut() = None;
    let table = device.single.writer().profile().expect("there is one");
    let entries = (0..8).filter_map(|n| table.entry(n).flatten());
    let mut count = 0;
    for entry in entries.filter(|entry| entry.address != WORK as u64) {
        count += entry.count;
        // A reading of the clock is a tick; what the handler took is not the thread's.
        assert!(entry.max < HANDLER, "{entry:?}");
        assert!(
            entry.total < u64::from(entry.count) * HANDLER / 2,
            "{entry:?}"
        );
        assert!(entry.self_time <= entry.total, "{entry:?}");
    }
    assert_eq!(count, 200 + calls);
}

thread_local! {
    static RECURSIVE: Cell<Option<Device>> = const { Cell::new(None) };
}

#[test]
fn a_function_that_tells_the_thread_may_be_instrumented() {
    extern "C" fn current_thread() -> usize {
        if let Some(device) = RECURSIVE.get() {
            let Device { hot, config, .. } = device;
            device.single.call(hot, config, Edge::Enter, WORK, 0);
            device.single.call(hot, config, Edge::Exit, WORK, 0);
        }
        7
    }
    let device = Device::new(Config {
        flags: START_ON,
        current_thread: Some(current_thread),
        ..config(16, 1024)
    });
    RECURSIVE.set(Some(device));
    device.enter(MAIN);
    device.enter(LEAF);
    device.exit(LEAF);
    device.exit(MAIN);
    let kinds = device.kinds();
    assert!(kinds.contains(&enter(LEAF)), "{kinds:?}");
    assert!(!kinds.contains(&enter(WORK)), "{kinds:?}");
    assert!(device.single.refused() >= 8, "{}", device.single.refused());
}

#[test]
fn a_thread_that_preempts_the_question_keeps_its_events_apart() {
    thread_local!(static THREAD: Cell<usize> = const { Cell::new(7) });
    extern "C" fn current_thread() -> usize {
        THREAD.get()
    }
    // The other thread runs at the nth of the points at which it can.
    for n in 0.. {
        THREAD.set(7);
        let device = Device::new(Config {
            flags: START_ON,
            current_thread: Some(current_thread),
            ..config(16, 1024)
        });
        device.enter(MAIN);
        let count = Rc::new(Cell::new(0));
        let struck = Rc::new(Cell::new(false));
        let (counter, did) = (count.clone(), struck.clone());
        device.preempt(move |place| {
            if place != "counter" && counter.replace(counter.get() + 1) == n {
                did.set(true);
                THREAD.set(8);
                device.enter(LEAF);
                device.exit(LEAF);
                THREAD.set(7);
            }
        });
        device.enter(WORK);
        device.exit(WORK);
        device.port.preempt.borrow_mut().take();
        device.exit(MAIN);
        if !struck.get() {
            assert!(n >= 8, "each of two events is asked for, and recorded");
            break;
        }
        let mut thread = device.read()[0].thread;
        let mut of_thread = [Vec::new(), Vec::new()];
        for kind in device.kinds() {
            match kind {
                Kind::Context { thread: new, .. } => thread = new,
                Kind::Recording { .. } => {}
                kind => of_thread[(thread - 7) as usize].push(kind),
            }
        }
        let own = [enter(MAIN), enter(WORK), exit(WORK), exit(MAIN)];
        assert_eq!(of_thread[0], own, "point {n}");
        assert_eq!(of_thread[1], [enter(LEAF), exit(LEAF)], "point {n}");
    }
}

/// A recorder with the same function as trigger and stopper.
pub(super) fn between(function_: usize, once: bool) -> Device {
    Device::new(Config {
        flags: if once { ONCE } else { 0 },
        trigger: super::function(function_),
        stopper: super::function(function_),
        ..config(16, 1024)
    })
}

/// Makes a function call itself this often, and another function at each level.
fn recurse(device: Device, depth: usize) {
    for _ in 0..depth {
        device.enter(MAIN);
        device.enter(LEAF);
        device.exit(LEAF);
    }
    for _ in 0..depth {
        device.exit(MAIN);
    }
}

#[test]
fn a_recursive_stopper_stops_at_its_outermost_return() {
    for counter in [true, false] {
        let device = between(MAIN, false);
        if !counter {
            // All takes the slow path where the counter has fewer bits.
            device.port.wrap.set(1 << 24);
        }
        recurse(device, 5);
        assert!(!device.gate.state().on());
        device.enter(WORK);
        device.exit(WORK);
        let kinds = device.kinds();
        let count = |kind: Kind| kinds.iter().filter(|it| **it == kind).count();
        assert_eq!((count(enter(MAIN)), count(exit(MAIN))), (5, 5), "{kinds:?}");
        assert_eq!(count(exit(LEAF)), 5);
        assert_eq!(count(enter(WORK)), 0);
    }
}

#[test]
fn what_leaves_a_stopper_unseen_does_not_keep_recording_on() {
    // By a jump, and while the program has recording disabled.
    for jump in [true, false] {
        let device = between(MAIN, false);
        device.enter(MAIN);
        device.enter(MAIN);
        if jump {
            device.hook(Event::Longjmp(7));
        } else {
            device.enable(false);
            device.exit(MAIN);
            device.enable(true);
        }
        device.exit(MAIN);
        assert!(!device.gate.state().on(), "jump: {jump}");
    }
}

#[test]
fn a_jump_out_of_the_stopper_does_not_keep_duration_mode_on() {
    let (device, _) = in_duration(1);
    device.enter(MAIN);
    device.enter(MAIN);
    let event = Event::Longjmp(7);
    assert!(
        device
            .single
            .duration_event(device.hot, device.config, event)
    );
    device.exit(MAIN);
    assert!(!device.gate.state().on());
}

#[test]
fn another_threads_return_from_the_stopper_does_not_stop() {
    let switches: [fn(Device, usize); 2] = [
        |device, thread| device.hook(Event::SwitchedIn(thread)),
        |device, thread| {
            device.hook(Event::SwitchedOut(0));
            device.hook(Event::SwitchedIn(thread));
        },
    ];
    for switch in switches {
        let device = between(MAIN, false);
        switch(device, 5);
        device.enter(MAIN);
        device.enter(MAIN);
        switch(device, 6);
        device.enter(MAIN);
        device.exit(MAIN);
        // This call was entered before recording began.
        device.exit(MAIN);
        assert!(device.gate.state().on());
        switch(device, 5);
        device.exit(MAIN);
        assert!(device.gate.state().on());
        device.exit(MAIN);
        assert!(!device.gate.state().on());
        // Without an open call of the stopper any thread's return counts.
        device.set_recording(true);
        switch(device, 6);
        device.exit(MAIN);
        assert!(!device.gate.state().on());
    }
}

#[test]
fn interrupts_that_call_the_stopper_anywhere_do_not_stop_early() {
    // At each place in turn where an interrupt may come.
    for due in 1..100 {
        let device = between(MAIN, false);
        device.enter(MAIN);
        let at = Cell::new(0);
        device.preempt(move |place| {
            if place == "mask" || place == "unmask" {
                at.set(at.get() + 1);
                if at.get() == due {
                    device.enter(MAIN);
                    device.exit(MAIN);
                }
            }
        });
        device.enter(MAIN);
        device.exit(MAIN);
        *device.port.preempt.borrow_mut() = None;
        assert!(device.gate.state().on(), "place {due}");
        device.exit(MAIN);
        assert!(!device.gate.state().on(), "place {due}");
    }
}

#[test]
fn a_single_shot_records_one_round_and_is_kept_over_a_reboot() {
    for (once, rounds) in [(true, 1), (false, 3)] {
        let device = between(MAIN, once);
        for _ in 0..3 {
            recurse(device, 2);
        }
        let count = |device: Device| {
            let on = |kind: &Kind| matches!(kind, Kind::Recording { on: true, .. });
            device.kinds().iter().filter(|kind| on(kind)).count()
        };
        assert_eq!(count(device), rounds);
        assert_eq!(device.gate.state().spent(), once);
        // Cleared, it waits for its trigger again.
        device.single.clear(device.hot, device.config);
        recurse(device, 2);
        recurse(device, 2);
        assert_eq!(count(device), rounds.min(2));
        // What the program or the user turns on is on.
        device.set_recording(true);
        assert!(device.gate.state().on());
    }
    let place = leak(UnsafeCell::new([0u32; WORDS]));
    let kept = |flags| Config {
        flags,
        retained: place.get().cast(),
        ..config(16, 1024)
    };
    let device = Device::new(kept(0));
    device.request(Request::Once(true));
    let rebooted = Device::new(kept(0));
    rebooted.enter(MAIN);
    rebooted.set_recording(false);
    let control = rebooted.single.control(rebooted.hot, rebooted.config);
    assert_eq!(control.status().once, Some(false));
}

#[test]
fn the_function_that_is_called_from_inside_a_hook_is_named() {
    extern "C" fn current_thread() -> usize {
        if let Some(device) = RECURSIVE.get() {
            let Device { hot, config, .. } = device;
            device.single.call(hot, config, Edge::Enter, WORK, 0);
            device.single.call(hot, config, Edge::Exit, WORK, 0);
        }
        7
    }
    let promotions = leak([Promotion {
        function: super::function(LEAF),
        kind: PROMOTE_SWITCHED_IN,
        irq: 0,
    }]);
    // Asked for at every event; by a promotion.
    for promotion_count in [0, 1] {
        let device = Device::new(Config {
            flags: START_ON,
            current_thread: Some(current_thread),
            promotions: promotions.as_ptr(),
            promotion_count,
            ..config(16, 1024)
        });
        RECURSIVE.set(Some(device));
        for _ in 0..3 {
            device.enter(LEAF);
            device.exit(LEAF);
        }
        RECURSIVE.set(None);
        let kinds = device.kinds();
        assert!(!kinds.contains(&enter(WORK)), "{kinds:?}");
        let status = device.single.control(device.hot, device.config).status();
        assert_eq!(status.refused_function, WORK);
        assert!(status.refused >= 6, "{}", status.refused);
    }
}

/// The restart function runs with the gate shut: its hooks do nothing, and request no reboot themselves.
#[test]
fn a_function_that_restarts_may_be_instrumented() {
    unsafe extern "C" fn reboot() {
        if let Some(device) = RECURSIVE.get() {
            let Device { hot, config, .. } = device;
            device.single.call(hot, config, Edge::Enter, WORK, 0);
            device.single.call(hot, config, Edge::Exit, WORK, 0);
        }
    }
    let device = Device::new(Config {
        flags: START_ON,
        reboot: Some(reboot),
        ..config(16, 1024)
    });
    device.enter(MAIN);
    RECURSIVE.set(Some(device));
    device.single.control(device.hot, device.config).reboot();
    RECURSIVE.set(None);
    let kinds = device.kinds();
    assert!(kinds.contains(&enter(MAIN)), "{kinds:?}");
    assert!(!kinds.contains(&enter(WORK)), "{kinds:?}");
}
