//! Programs that describe themselves wrongly, and interrupts where nothing is kept any more.

use std::cell::Cell;

use kymo_device_tests::{Kind, config};
use kymo_recorder::config::{Config, FIXED, START_ON};
use kymo_recorder::{Edge, Event};

use super::{Device, LEAF, MAIN, WORK, enter};

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
    device.strike(move |place| {
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
    *device.port.strike.borrow_mut() = None;
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
