//! Control by memory writes, with several CPUs.

use std::sync::atomic::{AtomicU32, Ordering};

use kymo_device_tests::{Host, config};
use kymo_recorder::by_memory::{MAGIC, Memory, VERSION};
use kymo_recorder::config::{Config, START_ON, STREAM};
use kymo_recorder::duration::Control;

use crate::STOPPING;
use crate::device::{Device, PLACE, STOPPED, STOPS};
use crate::duration::{calls, controls, with};

const REQUEST: usize = 12;
const REFUSED: usize = 16;
const APPLIED: usize = 20;
/// The values that are wanted, and those that hold now (`kymo_control_values_t`).
const WANTED: usize = 24;
const NOW: usize = 56;
const RECORDING: usize = 4;
const MODE: usize = 8;
const TRIGGER: usize = 16;
const BYTES_RECORDED: usize = 92;

/// A `kymo_control_t` as a debugger sees it.
#[repr(C, align(8))]
struct Words([AtomicU32; size_of::<Memory>() / 4]);

impl Words {
    fn new() -> Self {
        let words = Self([const { AtomicU32::new(0) }; size_of::<Memory>() / 4]);
        for (at, value) in [(0, MAGIC), (4, VERSION), (8, size_of::<Memory>() as u32)] {
            words.write(at, value);
        }
        words
    }

    fn read(&self, offset: usize) -> u32 {
        self.0[offset / 4].load(Ordering::Relaxed)
    }

    fn write(&self, offset: usize, value: u32) {
        self.0[offset / 4].store(value, Ordering::Relaxed);
    }

    /// The program polls.
    fn poll(&self, device: Device) {
        let memory: *const Memory = self.0.as_ptr().cast();
        // SAFETY: both consist of atomic words and of numbers; size and alignment are the same.
        device.cpus.follow_memory(device.gate, unsafe { &*memory });
    }

    /// Requests a change, and returns what of it was refused.
    fn request(&self, device: Device, wanted: &[(usize, u32)], request: u32) -> u32 {
        for (at, value) in wanted {
            self.write(WANTED + at, *value);
        }
        self.write(REQUEST, request);
        self.poll(device);
        assert_eq!(self.read(REQUEST), 0);
        self.read(REFUSED)
    }
}

#[test]
fn a_debugger_drives_all_cpus() {
    let device = Device::new(START_ON, 64);
    let memory = Words::new();
    // Before the first CPU has started there is nothing to drive.
    memory.write(REQUEST, 2);
    memory.poll(device);
    assert_eq!((memory.read(REQUEST), memory.read(APPLIED)), (2, 0));
    assert!(device.start(0));
    device.enter(0x1000);
    device.exit(0x1000);
    memory.write(REQUEST, 0);
    memory.poll(device);
    assert_eq!(memory.read(NOW + RECORDING), 1);
    assert!(memory.read(BYTES_RECORDED) > 0);

    assert_eq!(memory.request(device, &[(RECORDING, 0)], 2), 0);
    assert_eq!(memory.read(NOW + RECORDING), 0);
    assert!(!device.gate.state().on());
    let wanted = [(MODE, 1), (TRIGGER, 0x2000)];
    assert_eq!(memory.request(device, &wanted, 4 | 8), 0);
    assert_eq!(
        (memory.read(NOW + MODE), memory.read(NOW + TRIGGER)),
        (1, 0x2000)
    );
    assert!(
        device.status().contains("mode=fixed"),
        "{}",
        device.status()
    );
    assert_eq!(memory.read(APPLIED), 2);
    device.enter(0x2000);
    memory.poll(device);
    assert_eq!(memory.read(NOW + RECORDING), 1);
    // What is no mode, and what no bit stands for.
    assert_eq!(
        memory.request(device, &[(MODE, 7)], 4 | 1 << 20),
        4 | 1 << 20
    );
}

/// Writes a 32-bit field of the first CPU's `kymo_duration_t`, as a debugger does.
fn write(controls: &[Control], offset: usize, value: u32) {
    let first: *const Control = controls.as_ptr();
    // SAFETY: at these offsets there are such words.
    unsafe { &*first.cast::<u8>().add(offset).cast::<AtomicU32>() }.store(value, Ordering::Relaxed);
}

/// Fields of `kymo_duration_t`.
const THRESHOLD: usize = 24;
const STOP_AT: usize = 32;
const FLAGS: usize = 52;
const DURATION_REQUEST: usize = 76;

/// Two CPUs that record entries and exits, and could record in duration mode.
fn pair() -> (&'static [Control], impl Fn(usize) -> Device) {
    let controls = controls();
    for control in controls {
        control.settings.set_recording(false);
    }
    let config = Config {
        flags: START_ON,
        ..config(64, 1024)
    };
    let device = with(controls, config);
    let registers = [0, 1].map(|cpu| {
        assert!(device.start(cpu));
        PLACE.get()
    });
    let on = move |cpu: usize| {
        PLACE.set(registers[cpu]);
        device
    };
    (controls, on)
}

#[test]
fn a_request_applies_the_first_cpus_settings_to_all() {
    let (controls, on) = pair();
    let device = on(1);
    write(controls, FLAGS, 1);
    write(controls, THRESHOLD, 1 << 30);
    write(controls, STOP_AT, 0x1300);
    // What a host sets does not change the mode meanwhile.
    device.talk(b"duration stop_at 1400\r");
    assert!(!device.gate.in_duration());
    write(controls, STOP_AT, 0x1300);
    write(controls, DURATION_REQUEST, 1);
    // Not while a host reads.
    device.talk(&Host::command(1, "dump_trace"));
    device.cpus.tick(device.gate);
    assert!(!device.gate.in_duration());
    device.talk(&Host::command(2, "done"));
    device.cpus.tick(device.gate);
    assert!(device.gate.in_duration());
    for control in controls {
        assert_eq!(control.settings.threshold(), 1 << 30);
        assert!(control.settings.is_on() && !control.settings.is_requested());
    }
    for cpu in [0, 1] {
        on(cpu).enter(0x1100);
        on(cpu).exit(0x1100);
    }
    assert!(device.gate.state().on());
    on(1).enter(0x1300);
    assert!(!device.gate.state().on());
    let trace = device.trace();
    for cpu in [0, 1] {
        assert_eq!(calls(&trace, cpu), [], "none is that long");
    }
    // Back to entries and exits.
    write(controls, FLAGS, 0);
    write(controls, DURATION_REQUEST, 1);
    on(0).cpus.tick(device.gate);
    assert!(!device.gate.in_duration());
    assert!(controls.iter().all(|control| !control.settings.is_on()));
}

#[test]
fn a_request_counts_anew_what_stops_recording() {
    let (controls, on) = pair();
    let device = on(0);
    device.talk(b"duration on\rduration stop_at 1300\rduration condition 0 0 9 1\r");
    device.enter(0x1300);
    device.exit(0x1300);
    write(controls, STOP_AT, 0x1400);
    write(controls, DURATION_REQUEST, 1);
    device.cpus.tick(device.gate);
    device.enter(0x1400);
    // Its own calls are counted, not those after 0x1300.
    for _ in 0..8 {
        device.enter(0x1100);
        device.exit(0x1100);
        assert!(device.gate.state().on());
    }
    device.exit(0x1400);
    assert!(!device.gate.state().on());
}

/// A debugger has stopped a CPU inside its hook.
#[test]
fn a_request_waits_for_a_cpu_that_is_stopped_in_its_hook() {
    let _turn = STOPPING.lock();
    let (controls, on) = pair();
    let device = on(0);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(move || {
            assert!(device.start(1));
            STOPS.set(true);
            device.marker(2);
        });
        while !STOPPED.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        write(controls, FLAGS, 1);
        write(controls, DURATION_REQUEST, 1);
        let before = device.cpus.port().time.load(Ordering::SeqCst);
        device.cpus.tick(device.gate);
        let waited = device.cpus.port().time.load(Ordering::SeqCst) - before;
        assert!(waited < 1000, "{waited} ns");
        assert!(!device.status().contains("error=cpu_stuck"));
        STOPPED.store(false, Ordering::Relaxed);
        stopped.join().expect("it goes on");
    });
    assert!(!device.gate.in_duration());
    device.cpus.tick(device.gate);
    assert!(device.gate.in_duration());
}

#[test]
fn packets_that_a_host_reads_are_not_dropped() {
    let device = Device::new(START_ON | STREAM, 64);
    let memory = Words::new();
    assert!(device.start(0));
    device.marker(1);
    device.talk(&Host::command(1, "stream on 100"));
    assert_eq!(memory.request(device, &[(MODE, 0)], 4 | 64), 4 | 64);
    assert!(
        device.status().contains("mode=stream"),
        "{}",
        device.status()
    );
}
