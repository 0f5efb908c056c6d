//! The recorder of one processor: gate, trigger and stopper, interrupts at every point, clock.

use std::cell::Cell;
use std::rc::Rc;

use kymo_device_tests::layout::Small;
use kymo_device_tests::{Kind, Mock, Packet, Record, config, hot, leak, packets};
use kymo_recorder::config::{
    Config, Function, PROMOTE_ISR, PROMOTE_NOTHING, PROMOTE_SWITCHED_IN, PROMOTE_SWITCHED_OUT,
    Promotion, START_ON,
};
use kymo_recorder::gate::Gate;
use kymo_recorder::hot::Hot;
use kymo_recorder::retained::{Place, Retained, WORDS};
use kymo_recorder::single::{Request, Single};
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::link::Fault;

mod blocks;
mod conditions;
mod ends;
mod faults;
mod items;
mod recording;
mod sites;
mod sums;

/// A recorder with its context.
#[derive(Clone, Copy)]
struct Device {
    hot: &'static Hot,
    gate: &'static Gate,
    single: &'static Single<Mock<Small>>,
    port: &'static Mock<Small>,
    config: &'static Config,
}

impl Device {
    fn new(config: Config) -> Self {
        let single = leak(Single::new(Mock::default()));
        let hot = hot();
        Self {
            hot,
            gate: &hot.gate,
            single,
            port: single.port(),
            config: leak(config),
        }
    }

    /// Number of lost events.
    fn lost(self) -> u32 {
        let stream = self.single.writer().stream();
        stream.figures().discarded + self.single.unreported()
    }

    fn request(self, request: Request) {
        self.single.request(self.hot, self.config, request);
    }

    fn set_recording(self, on: bool) {
        self.request(if on { Request::On } else { Request::Off });
    }

    fn enable(self, enabled: bool) {
        self.request(if enabled {
            Request::Enable
        } else {
            Request::Disable
        });
    }

    /// A device that records from the start on.
    fn on() -> Self {
        Self::new(Config {
            flags: START_ON,
            ..config(16, 1024)
        })
    }

    fn hook(self, event: Event) {
        self.single.hook(self.hot, self.config, event);
    }

    fn enter(self, function: usize) {
        self.single
            .call(self.hot, self.config, Edge::Enter, function, 0);
    }

    fn exit(self, function: usize) {
        self.single
            .call(self.hot, self.config, Edge::Exit, function, 0);
    }

    fn read(self) -> Vec<Packet> {
        let stream = self.single.writer().stream();
        stream.seal();
        let mut bytes = Vec::new();
        let mut n = 0;
        // SAFETY: the stream is sealed, and nobody writes.
        while let Some(packet) = unsafe { stream.buffer().packet(n) } {
            bytes.extend_from_slice(packet);
            n += 1;
        }
        packets(&bytes, Mock::<Small>::LAYOUT, 0x1000)
    }

    fn records(self) -> Vec<Record> {
        self.read().into_iter().flat_map(|p| p.records).collect()
    }

    fn kinds(self) -> Vec<Kind> {
        self.records().into_iter().map(|r| r.kind).collect()
    }

    /// Changes the gate, as the link does.
    fn change(self, change: impl FnOnce(&Gate)) {
        change(self.gate);
        self.single.writer().stream().miss();
    }

    /// Calls `preempt` wherever the recorder calls the port.
    fn preempt(self, preempt: impl FnMut(&'static str) + 'static) {
        *self.port.preempt.borrow_mut() = Some(Box::new(preempt));
    }
}

/// The program's function at this address.
fn function(address: usize) -> Option<Function> {
    // SAFETY: nobody calls it; a pointer to code may have any value but null.
    Some(unsafe { std::mem::transmute::<usize, Function>(address) })
}

const MAIN: usize = 0x1100;
const WORK: usize = 0x1200;
const LEAF: usize = 0x1300;

fn recording(on: bool, cause: u8) -> Kind {
    Kind::Recording { on, cause }
}

fn enter(function: usize) -> Kind {
    Kind::Enter(function as u64)
}

fn exit(function: usize) -> Kind {
    Kind::Exit(function as u64)
}

#[test]
fn from_the_trigger_s_entry_to_the_stopper_s_exit() {
    let device = Device::new(Config {
        trigger: function(WORK),
        stopper: function(WORK),
        ..config(16, 1024)
    });
    for _ in 0..2 {
        device.enter(MAIN);
        device.enter(WORK);
        device.enter(LEAF);
        device.exit(LEAF);
        device.exit(WORK);
        device.exit(MAIN);
    }
    let once = [
        recording(true, 1),
        enter(WORK),
        enter(LEAF),
        exit(LEAF),
        exit(WORK),
        recording(false, 1),
    ];
    assert_eq!(device.kinds(), [once.clone(), once].concat());
}

#[test]
fn disable_nests_and_apart_from_it_commands_have_their_own_say() {
    let device = Device::on();
    device.enter(MAIN);
    device.enable(false);
    device.enable(false);
    device.enter(WORK);
    device.enable(true);
    device.exit(WORK);
    device.enable(true);
    // One too many does nothing.
    device.enable(true);
    device.enter(LEAF);
    device.change(|gate| gate.command(false));
    device.exit(LEAF);
    device.change(|gate| gate.command(true));
    device.exit(MAIN);
    assert_eq!(
        device.kinds(),
        [recording(true, 0), enter(MAIN), enter(LEAF), exit(MAIN)]
    );
}

#[test]
fn hooks_before_ram_is_initialized_touch_nothing() {
    let device = Device::on();
    // What RAM may hold before start-up code has copied `.data`, or when it was shut for a reboot.
    device.gate.shut();
    device.enter(MAIN);
    device.hook(Event::IsrEnter(3));
    device.single.tick(device.hot, device.config);
    device.set_recording(true);
    device.single.receive(device.hot, b'x');
    device.single.poll(device.hot, device.config);
    device.enable(false);
    assert_eq!(device.port.time.get(), 1000, "the clock has not been read");
    assert_eq!(device.records(), []);
}

#[test]
fn an_interrupt_at_any_point_is_recorded_whole_and_in_order() {
    // The interrupt preempts at the nth of the points at which the recorder calls the port with
    // interrupts open; for every n there is.
    for n in 0.. {
        let device = Device::on();
        let count = Rc::new(Cell::new(0));
        let struck = Rc::new(Cell::new(false));
        let (counter, did) = (count.clone(), struck.clone());
        device.enter(MAIN);
        device.preempt(move |place| {
            if place == "counter" {
                return;
            }
            if counter.replace(counter.get() + 1) == n {
                did.set(true);
                device.hook(Event::IsrEnter(16));
                device.enter(LEAF);
                device.exit(LEAF);
                device.hook(Event::IsrExit(16));
            }
        });
        for _ in 0..2 {
            device.enter(WORK);
            device.exit(WORK);
        }
        device.port.preempt.borrow_mut().take();
        device.exit(MAIN);
        if !struck.get() {
            assert!(
                n >= 8,
                "there are points before and after each of four events"
            );
            break;
        }
        let records = device.records();
        assert!(records.is_sorted_by_key(|r| r.time), "point {n}");
        let kinds: Vec<Kind> = records.into_iter().map(|r| r.kind).collect();
        let begin = kinds
            .iter()
            .position(|k| *k == Kind::IsrEnter(16))
            .expect("the interrupt is recorded");
        let mut rest = kinds.clone();
        let interrupt: Vec<Kind> = rest.splice(begin..begin + 4, []).collect();
        assert_eq!(
            interrupt,
            [
                Kind::IsrEnter(16),
                enter(LEAF),
                exit(LEAF),
                Kind::IsrExit(16)
            ],
            "point {n}"
        );
        let calls = [enter(WORK), exit(WORK)];
        assert_eq!(rest[..2], [recording(true, 0), enter(MAIN)]);
        assert_eq!(rest[2..6], [calls.clone(), calls].concat(), "point {n}");
        assert_eq!(rest[6..], [exit(MAIN)]);
    }
}

#[test]
fn a_hook_from_inside_a_hook_is_refused_and_counted() {
    let device = Device::on();
    device.enter(MAIN);
    // As an NMI would, or an instrumented clock function.
    let nested = Rc::new(Cell::new(0));
    let count = nested.clone();
    device.preempt(move |place| {
        if place == "counter" {
            count.set(count.get() + 1);
            device.enter(LEAF);
        }
    });
    device.exit(MAIN);
    device.port.preempt.borrow_mut().take();
    assert_eq!(nested.get(), 1);
    assert_eq!(
        device.kinds(),
        [recording(true, 0), enter(MAIN), exit(MAIN)]
    );
    assert_eq!(device.single.refused(), 1);
    assert_eq!(device.lost(), 1);
}

#[test]
fn the_clock_is_extended_and_a_doubt_stands_where_it_belongs() {
    let device = Device::new(Config {
        flags: START_ON,
        tick_hz: 1000,
        ..config(16, 1024)
    });
    let port = device.port;
    port.wrap.set(1 << 16);
    port.step.set(0);
    device.enter(MAIN);
    let mut passed = 0;
    for _ in 0..200 {
        port.time.set(port.time.get() + 1000);
        passed += 1000;
        device.single.tick(device.hot, device.config);
    }
    device.exit(MAIN);
    // Interrupts are off for longer than a turn.
    port.time.set(port.time.get() + (1 << 16) + 9000);
    device.enter(WORK);
    port.time.set(port.time.get() + 8000);
    device.exit(WORK);
    let records = device.records();
    let kinds: Vec<&Kind> = records.iter().map(|r| &r.kind).collect();
    assert_eq!(records[2].time - records[1].time, passed);
    assert_eq!(
        kinds[3],
        &Kind::ClockGap(9000),
        "the turn is not seen, but doubted"
    );
    assert_eq!(kinds[4], &enter(WORK));
    assert_eq!(records[4].time - records[2].time, 9000);
    assert_eq!(kinds.len(), 6, "eight periods of the tick are no doubt");
}

#[test]
fn promotions_and_the_current_thread() {
    thread_local!(static THREAD: Cell<usize> = const { Cell::new(7) });
    extern "C" fn current_thread() -> usize {
        THREAD.get()
    }
    let promote = |address, kind, irq| Promotion {
        function: function(address),
        kind,
        irq,
    };
    let promotions = vec![
        promote(0x1400, PROMOTE_SWITCHED_IN, 0),
        promote(0x1500, PROMOTE_SWITCHED_OUT, 0),
        promote(0x1600, PROMOTE_ISR, 20),
        promote(0x1700, PROMOTE_NOTHING, 0),
    ]
    .leak();
    let device = Device::new(Config {
        flags: START_ON,
        promotions: promotions.as_ptr(),
        promotion_count: promotions.len() as u32,
        current_thread: Some(current_thread),
        ..config(16, 1024)
    });
    let call = |function| {
        device.enter(function);
        device.exit(function);
    };
    call(MAIN);
    // The program does not tell; the recorder sees.
    THREAD.set(8);
    call(MAIN);
    call(0x1500);
    THREAD.set(9);
    call(0x1400);
    call(0x1600);
    call(0x1700);
    // Now that it has told once, it is not asked any more.
    THREAD.set(10);
    call(MAIN);
    let context = Kind::Context {
        thread: 8,
        priority: 0,
        mode: 0,
    };
    let main = [enter(MAIN), exit(MAIN)];
    let packets = device.read();
    assert_eq!(packets[0].thread, 7);
    assert_eq!(
        device.kinds(),
        [
            &[recording(true, 0)][..],
            &main,
            &[context],
            &main,
            &[Kind::SwitchedOut(8), Kind::SwitchedIn(9)],
            &[
                Kind::IsrEnter(20),
                enter(0x1600),
                exit(0x1600),
                Kind::IsrExit(20)
            ],
            &main,
        ]
        .concat()
    );
}

#[test]
fn threads_and_interrupts_are_followed_while_nothing_is_recorded() {
    let device = Device::new(config(16, 1024));
    device.hook(Event::SwitchedIn(5));
    device.hook(Event::IsrEnter(15));
    device.set_recording(true);
    device.enter(MAIN);
    let packet = &device.read()[0];
    assert_eq!(packet.thread, 5);
    assert_eq!(packet.isr_depth, 0, "its events tell of the interrupt");
    assert_eq!(
        device.kinds(),
        [recording(true, 2), Kind::IsrEnter(15), enter(MAIN)]
    );
}

#[test]
fn without_a_clock_events_are_counted_until_there_is_one() {
    let device = Device::on();
    device.port.wrap.set(0);
    device.enter(MAIN);
    device.enter(WORK);
    assert_eq!(device.single.fault(), Some(Fault::NoClock.of(0)));
    device.port.wrap.set(1 << 24);
    device.exit(WORK);
    assert_eq!(device.single.fault(), None);
    assert_eq!(device.kinds(), [recording(true, 0), exit(WORK)]);
    assert_eq!(device.read()[0].discarded, 2);
}

#[test]
fn trigger_and_stopper_survive_a_reboot_of_the_same_program() {
    let memory = leak([0xA5A5_A5A5u32; WORDS].map(Cell::new));
    let built = || Config {
        trigger: function(MAIN),
        stopper: function(MAIN),
        retained: memory.as_ptr().cast_mut().cast(),
        ..config(16, 1024)
    };
    let device = Device::new(built());
    device.enter(LEAF);
    assert_eq!((device.gate.trigger(), device.gate.stopper()), (MAIN, MAIN));
    device.request(Request::Trigger(WORK));
    device.request(Request::Stopper(0));
    assert_eq!((device.gate.trigger(), device.gate.stopper()), (WORK, 0));

    let again = Device::new(built());
    again.enter(MAIN);
    assert_eq!((again.gate.trigger(), again.gate.stopper()), (WORK, 0));
    again.enter(WORK);
    assert_eq!(again.kinds(), [recording(true, 1), enter(WORK)]);

    // Another program, whose functions lie elsewhere.
    let note = leak(*b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\xAB\xCD");
    let updated = Device::new(Config {
        build_id_note: note.as_ptr().cast(),
        ..built()
    });
    updated.enter(LEAF);
    assert_eq!(
        (updated.gate.trigger(), updated.gate.stopper()),
        (MAIN, MAIN)
    );

    // Damaged memory.
    memory[3].set(memory[3].get() ^ 0x10);
    let damaged = Device::new(built());
    damaged.enter(LEAF);
    assert_eq!(
        (damaged.gate.trigger(), damaged.gate.stopper()),
        (MAIN, MAIN)
    );
    // SAFETY: the place is `memory`, which nobody else uses now.
    let place = unsafe { Place::new(memory.as_ptr().cast_mut().cast()) };
    let retained = Retained::new(1, 2, false);
    place.store(retained, &[]);
    assert_eq!(place.load(&[]), Some(retained));
}

#[test]
fn what_strikes_while_a_dump_is_prepared_is_lost_but_counted() {
    let device = Device::on();
    device.enter(MAIN);
    device.change(|gate| {
        gate.freeze(true);
    });
    device.enter(WORK);
    device.exit(WORK);
    device.change(|gate| {
        gate.freeze(false);
    });
    device.exit(MAIN);
    assert_eq!(device.lost(), 2);
    assert_eq!(
        device.kinds(),
        [recording(true, 0), enter(MAIN), exit(MAIN)]
    );
}

#[test]
fn trigger_and_stopper_work_while_a_dump_is_read() {
    let device = Device::new(Config {
        trigger: function(WORK),
        stopper: function(WORK),
        ..config(16, 1024)
    });
    device.enter(WORK);
    device.change(|gate| {
        gate.freeze(true);
    });
    device.exit(WORK);
    assert!(!device.gate.state().on());
    device.enter(WORK);
    assert!(device.gate.state().on());
    device.change(|gate| {
        gate.freeze(false);
    });
    device.exit(LEAF);
    let kinds = device.kinds();
    assert_eq!(kinds, [recording(true, 1), enter(WORK), exit(LEAF)]);
    assert_eq!(device.lost(), 2);
}
