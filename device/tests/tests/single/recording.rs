//! State that must be right when recording is turned on, and when the recording is cleared.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use kymo_device_tests::{Kind, Random, config, leak};
use kymo_recorder::Event;
use kymo_recorder::config::{Config, FIXED, START_ON};

use super::{Device, MAIN, WORK, enter, exit, function, recording};

#[test]
fn a_trigger_in_an_interrupt_is_the_interrupt_s() {
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
    let device = Device::new(Config {
        trigger: function(WORK),
        slots: words(6 * 8).cast(),
        slot_count: 8,
        frames: words(5 * 2 * 8).cast(),
        shadow_stacks: 2,
        shadow_depth: 8,
        ..config(16, 1024)
    });
    device.hook(Event::SwitchedIn(5));
    device.enter(MAIN);
    // One that has ended, and two that have not.
    device.hook(Event::IsrEnter(20));
    device.hook(Event::IsrExit(20));
    device.hook(Event::IsrEnter(21));
    device.hook(Event::IsrEnter(22));
    device.enter(WORK);
    device.exit(WORK);
    device.hook(Event::IsrExit(22));
    device.hook(Event::IsrExit(21));
    device.exit(MAIN);
    assert_eq!(
        device.kinds(),
        [
            recording(true, 1),
            Kind::IsrEnter(21),
            Kind::IsrEnter(22),
            enter(WORK),
            exit(WORK),
            Kind::IsrExit(22),
            Kind::IsrExit(21),
            exit(MAIN),
        ]
    );
    // The table knows it too: only the thread's exit has no entry.
    let table = device.single.writer().profile().expect("there is one");
    assert_eq!(table.losses().unmatched, 1);

    // More than anybody nests: all are reported, the innermost without their numbers.
    let device = Device::new(config(16, 1024));
    for irq in 1..=20 {
        device.hook(Event::IsrEnter(irq));
    }
    device.set_recording(true);
    let reported = (1..=16).chain([0; 4]).map(Kind::IsrEnter);
    let expected: Vec<Kind> = [recording(true, 2)].into_iter().chain(reported).collect();
    assert_eq!(device.kinds(), expected);
    device.hook(Event::IsrExit(20));
    device.set_recording(false);
    device.set_recording(true);
    let again = device.kinds().len() - expected.len() - 2;
    assert_eq!(again, 1 + 19, "and again after the next time");
}

#[test]
fn the_table_goes_on_when_the_buffer_is_full() {
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
    let device = Device::new(Config {
        flags: START_ON | FIXED,
        slots: words(6 * 8).cast(),
        slot_count: 8,
        frames: words(5 * 4 * 8).cast(),
        shadow_stacks: 4,
        shadow_depth: 8,
        ..config(2, 128)
    });
    while device.single.writer().stream().figures().discarded == 0 {
        device.hook(Event::Marker(0));
    }
    let pass = |ticks: u64| device.port.time.set(device.port.time.get() + ticks);
    device.hook(Event::SwitchedIn(5));
    device.enter(WORK);
    device.hook(Event::SwitchedOut(5));
    pass(1_000_000);
    device.hook(Event::SwitchedIn(6));
    pass(1_000_000);
    device.hook(Event::SwitchedOut(6));
    device.hook(Event::SwitchedIn(5));
    device.hook(Event::IsrEnter(20));
    pass(1_000_000);
    device.hook(Event::IsrExit(20));
    pass(500);
    device.exit(WORK);
    let writer = device.single.writer();
    assert_eq!(writer.stream().thread(), 5);
    let table = writer.profile().expect("there is one");
    let entry = (0..8).find_map(|n| table.entry(n).flatten());
    let total = entry.expect("one function was called").total;
    assert!((500..1000).contains(&total), "{total}");
}

#[test]
fn doubt_of_the_clock_before_recording_is_on_is_not_in_the_trace() {
    let device = Device::new(Config {
        flags: START_ON,
        tick_hz: 1000,
        ..config(16, 1024)
    });
    let port = device.port;
    port.wrap.set(1 << 16);
    port.step.set(0);
    let late = |ticks: u64| port.time.set(port.time.get() + ticks);
    let set_recording = |on| device.set_recording(on);
    device.enter(MAIN);
    device.single.tick(device.hot, device.config);
    set_recording(false);
    // Twice late while nothing is recorded.
    late(9000);
    device.single.tick(device.hot, device.config);
    late(9000);
    set_recording(true);
    device.enter(WORK);
    // Late before it is turned off: what is recorded spans it.
    late(9500);
    set_recording(false);
    assert_eq!(
        device.kinds(),
        [
            recording(true, 0),
            enter(MAIN),
            recording(false, 2),
            recording(true, 2),
            enter(WORK),
            Kind::ClockGap(9500),
            recording(false, 2),
        ]
    );
    for byte in b"status\r" {
        device.single.receive(device.hot, *byte);
    }
    thread_local!(static SENT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    extern "C" fn send(bytes: *const u8, count: usize) {
        // SAFETY: the recorder gives a slice.
        let bytes = unsafe { std::slice::from_raw_parts(bytes, count) };
        SENT.with_borrow_mut(|sent| sent.extend(bytes));
    }
    let talking = leak(Config {
        send: Some(send),
        ..config(16, 1024)
    });
    device.single.poll(device.hot, talking);
    let status = String::from_utf8(SENT.take()).expect("text");
    assert!(status.contains(" clock_gaps=3"), "{status}");
}

#[test]
fn a_trigger_that_strikes_during_a_clear_is_whole_and_nothing_is_lost() {
    // At the nth of the points at which the clear calls the port; for every n there is.
    let mut points = 0;
    for n in 0.. {
        let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
        let device = Device::new(Config {
            trigger: function(WORK),
            slots: words(6 * 8).cast(),
            slot_count: 8,
            frames: words(5 * 2 * 8).cast(),
            shadow_stacks: 2,
            shadow_depth: 8,
            ..config(16, 1024)
        });
        device.enter(MAIN);
        let count = Rc::new(Cell::new(0));
        let counter = count.clone();
        device.preempt(move |place| {
            if place != "counter" && counter.replace(counter.get() + 1) == n {
                device.hook(Event::IsrEnter(16));
                device.enter(WORK);
            }
        });
        device.single.clear(device.hot, device.config);
        device.port.preempt.borrow_mut().take();
        if count.get() <= n {
            break;
        }
        points += 1;
        device.exit(WORK);
        device.hook(Event::IsrExit(16));
        assert_eq!(device.lost(), 0, "point {n}");
        assert_eq!(device.read()[0].discarded, 0, "point {n}");
        let begin = [recording(true, 1), Kind::IsrEnter(16), enter(WORK)];
        let end = [exit(WORK), Kind::IsrExit(16)];
        // Before the packets went it is forgotten like all else, and recording stays on.
        let whole = if n == 0 {
            end.to_vec()
        } else {
            [&begin[..], &end].concat()
        };
        assert_eq!(device.kinds(), whole, "point {n}");
    }
    assert_eq!(points, 4, "before and after the packets go, and the table");
}

#[test]
fn the_table_is_the_same_whenever_recording_began() {
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr();
    let made = |flags| {
        Device::new(Config {
            flags,
            slots: words(6 * 32).cast(),
            slot_count: 32,
            frames: words(5 * 6 * 16).cast(),
            shadow_stacks: 6,
            shadow_depth: 16,
            ..config(64, 1024)
        })
    };
    let mut random = Random::new(17);
    for _ in 0..50 {
        let devices = [made(START_ON), made(0)];
        // Before anything is called: an interrupt, in whose handler all is forgotten, as where overhead was measured there.
        let each = |act: &dyn Fn(Device)| devices.into_iter().for_each(act);
        each(&|device| device.port.step.set(0));
        each(&|device| device.hook(Event::SwitchedIn(0x100)));
        for _ in 0..3 {
            each(&|device| device.hook(Event::IsrEnter(15)));
            each(&|device| device.single.clear(device.hot, device.config));
            each(&|device| device.hook(Event::IsrExit(15)));
        }
        let [_, late] = devices;
        late.set_recording(true);
        let (mut thread, mut open) = (0x100, [const { Vec::new() }; 5]);
        for _ in 0..300 {
            let pass = random.below(100);
            let now = devices
                .map(|device| device.port.time.get())
                .into_iter()
                .max();
            let now = now.unwrap_or_default() + pass;
            each(&|device| device.port.time.set(now));
            let calls = &mut open[thread >> 8];
            match random.below(6) {
                0 => {
                    thread = 0x100 * (1 + random.below(4) as usize);
                    each(&|device| device.hook(Event::SwitchedIn(thread)));
                }
                1 => {
                    each(&|device| device.hook(Event::IsrEnter(15)));
                    each(&|device| device.single.tick(device.hot, device.config));
                    each(&|device| device.hook(Event::IsrExit(15)));
                }
                2 | 3 if calls.len() < 8 => {
                    let function = [MAIN, WORK][calls.len() % 2] + 0x40 * calls.len();
                    calls.push(function);
                    each(&|device| device.enter(function));
                }
                _ => {
                    if let Some(function) = calls.pop() {
                        each(&|device| device.exit(function));
                    }
                }
            }
        }
        let [early, late] = devices.map(|device| {
            let table = device.single.writer().profile().expect("there is one");
            let entries = (0..32).filter_map(|n| table.entry(n)?);
            let entries: Vec<_> = entries
                .map(|it| {
                    (
                        it.address,
                        it.count,
                        it.recursive,
                        it.total,
                        it.self_time,
                        it.min,
                        it.max,
                    )
                })
                .collect();
            (entries, table.losses())
        });
        assert_eq!(early, late);
    }
}
