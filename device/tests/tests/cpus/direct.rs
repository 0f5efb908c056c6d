//! Events that a CPU records directly.

use std::sync::atomic::Ordering;

use kymo_device_tests::{Kind, Random, config};
use kymo_recorder::Event;
use kymo_recorder::config::{Config, START_ON};

use crate::device::Device;
use crate::duration::{controls, with};

/// Events of one CPU, in any order, through gaps and changes of the gate.
fn random_events(device: Device, record: impl Fn(Event)) -> Vec<Kind> {
    const TEXT: usize = 0x1000;
    let mut random = Random::new(12);
    assert!(device.start(0));
    for _ in 0..20_000 {
        let thread = match random.below(3) {
            0 => 0,
            1 => TEXT + 64 * random.below(100) as usize,
            _ => 0x7fff_0000_0000 + 64 * random.below(4) as usize,
        };
        let irq = random.below(4) as u16 * 100;
        match random.below(9) {
            0 => record(Event::Marker(random.number() as u32)),
            1 => record(Event::NamedMarker {
                name: TEXT + thread,
                value: 7,
            }),
            2 => record(Event::IsrEnter(irq)),
            3 => record(Event::IsrExit(irq)),
            4 => record(Event::SwitchedIn(thread)),
            5 => record(Event::SwitchedOut(thread)),
            6 => device.enter(TEXT + random.below(64) as usize),
            7 => device.exit(TEXT + random.below(64) as usize),
            _ if random.one_in(100) => {
                let far = 1 << random.below(40);
                device.cpus.port().time.fetch_add(far, Ordering::SeqCst);
            }
            _ if random.one_in(50) => {
                device.cpus.set_recording(device.gate, false);
                record(Event::Marker(1));
                record(Event::SwitchedIn(thread));
                device.cpus.set_recording(device.gate, true);
            }
            _ => {}
        }
    }
    let trace = device.trace();
    let packets = trace.iter().filter(|packet| packet.cpu == 0);
    // In duration mode calls that are too deep are lost.
    let loses = device.gate.in_duration();
    let packets = packets.inspect(|packet| assert!(loses || packet.discarded == 0));
    let records = packets.flat_map(|packet| &packet.records);
    // What is not recorded directly after all reads the clock twice, which takes its time here.
    let timeless = |kind: &Kind| match *kind {
        Kind::Call {
            how,
            function,
            thread,
            ..
        } => Kind::Call {
            how,
            function,
            thread,
            duration: 0,
            own: 0,
        },
        ref other => other.clone(),
    };
    records.map(|record| timeless(&record.kind)).collect()
}

#[test]
fn events_that_are_recorded_directly_are_those_of_the_general_way() {
    compare(|| Device::new(START_ON, 4096), 15_000);
}

/// Markers are; switches and interrupts stand beside the calls.
#[test]
fn so_it_is_in_duration_mode() {
    let device = || {
        let controls = controls();
        for control in controls {
            control.settings.keep_events(true);
        }
        let config = Config {
            flags: START_ON,
            ..config(4096, 1024)
        };
        with(controls, config)
    };
    compare(device, 12_000);
}

/// Records the same events in both ways.
fn compare(device: impl Fn() -> Device, least: usize) {
    let (direct, general) = (device(), device());
    let found = random_events(direct, |event| direct.cpus.event(direct.gate, event));
    let expected = random_events(general, |event| general.cpus.hook(general.gate, event));
    let differs = found
        .iter()
        .zip(&expected)
        .position(|(one, other)| one != other);
    assert_eq!((differs, found.len()), (None, expected.len()));
    assert!(found.len() > least, "{} records", found.len());
}
