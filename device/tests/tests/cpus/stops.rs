//! What stops recording in duration mode on several CPUs.

use kymo_device_tests::Kind;
use kymo_recorder::Event;
use kymo_wire::event::Cause;

use crate::device::{CPUS, Device, of};
use crate::duration::{calls, device};

/// Makes a call of this duration at least.
fn call(device: Device, function: usize, ticks: u64) {
    device.enter(function);
    device
        .cpus
        .port()
        .time
        .fetch_add(ticks, std::sync::atomic::Ordering::SeqCst);
    device.exit(function);
}

/// The functions of the calls that a CPU recorded.
fn functions(device: Device, cpu: u16) -> Vec<u64> {
    let found = calls(&device.trace(), cpu);
    found.iter().map(|call| call.1).collect()
}

fn is_on(device: Device) -> bool {
    device.gate.state().on()
}

/// The device with the caller as its first CPU, after these commands.
fn prepared(commands: &str) -> Device {
    let device = device();
    assert!(device.start(0));
    device.talk(commands.as_bytes());
    device
}

#[test]
fn entering_a_function_stops_all_cpus() {
    let device = prepared("duration stop_at 1300\r");
    device.run(|cpu| {
        if cpu > 0 {
            call(device, 0x1100, 0);
        }
    });
    assert!(is_on(device));
    call(device, 0x1200, 0);
    // On a CPU that is not the first one.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(device.start(1));
            device.enter(0x1300);
        });
        other.join().expect("it stops");
    });
    assert!(!is_on(device));
    call(device, 0x1400, 0);
    let trace = device.trace();
    for cpu in 0..CPUS {
        let found: Vec<_> = calls(&trace, cpu).iter().map(|call| call.1).collect();
        assert_eq!(found, [if cpu == 0 { 0x1200 } else { 0x1100 }]);
    }
    let stopped = Kind::Recording {
        on: false,
        cause: Cause::Function as u8,
    };
    let marks = of(&trace, 1)
        .into_iter()
        .filter(|(_, kind)| *kind == stopped);
    assert_eq!(marks.count(), 1);
    // Re-armed without a reboot; without the function nothing stops.
    device.talk(b"duration stop_at 0\ron\rclear\r");
    call(device, 0x1300, 0);
    assert!(is_on(device));
    assert_eq!(functions(device, 0), [0x1300]);
}

#[test]
fn conditions_of_the_stop_function() {
    let device = prepared("duration stop_at 1300\rduration condition 1100 2 0\r");
    call(device, 0x1300, 0);
    device.enter(0x1100);
    device.enter(0x1200);
    call(device, 0x1300, 0);
    device.exit(0x1200);
    call(device, 0x1300, 0);
    assert!(is_on(device), "one call from there");
    device.enter(0x1300);
    assert!(!is_on(device), "the second one");
    // The counts begin anew.
    device.talk(b"on\r");
    device.enter(0x1100);
    call(device, 0x1300, 0);
    assert!(is_on(device));
    device.enter(0x1300);
    assert!(!is_on(device));
}

#[test]
fn a_long_call_freezes_after_some_more() {
    let device = prepared("duration freeze 1300 100\rduration condition 0 0 2\r");
    call(device, 0x1300, 50);
    call(device, 0x1200, 200);
    call(device, 0x1300, 200);
    for function in [0x1400, 0x1500, 0x1600] {
        call(device, function, 0);
    }
    assert!(!is_on(device));
    let expected = [0x1300, 0x1200, 0x1300, 0x1400, 0x1500];
    assert_eq!(functions(device, 0), expected);
    let report = device.talk(b"duration\r").text;
    assert!(report.contains("freeze=0x1300"), "{report}");
}

#[test]
fn recording_stops_so_often_at_most() {
    for freeze in ["stop_at 1300", "freeze_on marker 7"] {
        let device = prepared(&format!("duration {freeze}\rduration condition 0 2 0 2\r"));
        let round = || {
            device.talk(b"on\r");
            for _ in 0..2 {
                device.enter(0x1300);
                device.cpus.event(device.gate, Event::Marker(7));
                device.exit(0x1300);
            }
            is_on(device)
        };
        let rounds = || [(); 4].map(|()| round());
        assert_eq!(rounds(), [false, false, true, true], "{freeze}");
        let report = device.talk(b"duration\r").text;
        assert!(report.contains(" times=2 acted=2 "), "{report}");
        // Counted anew once events are cleared.
        device.talk(b"off\rclear\r");
        assert_eq!(rounds(), [false, false, true, true], "{freeze}");
        device.talk(b"off\rduration condition 0 2 0\r");
        assert_eq!(rounds(), [false; 4], "{freeze}");
    }
}

/// An occurrence after which recording was turned off otherwise is none that stopped it.
#[test]
fn what_did_not_stop_recording_does_not_count() {
    let device = prepared("duration stop_at 1300\rduration condition 0 0 2 1\r");
    call(device, 0x1300, 0);
    device.talk(b"off\ron\r");
    let acted = |times| {
        let report = device.talk(b"duration\r").text;
        let expected = format!(" times=1 acted={times} ");
        assert!(report.contains(&expected), "{report}");
    };
    acted(0);
    for function in [0x1300, 0x1100] {
        assert!(is_on(device));
        call(device, function, 0);
    }
    assert!(!is_on(device));
    acted(1);
    device.talk(b"on\r");
    for _ in 0..4 {
        call(device, 0x1300, 0);
    }
    assert!(is_on(device));
    // A function that is set anew counts anew.
    device.talk(b"duration stop_at 1300\rduration condition 0 0 0 1\r");
    call(device, 0x1300, 0);
    assert!(!is_on(device));
    device.talk(b"on\rduration stop_at 1400\r");
    call(device, 0x1400, 0);
    assert!(!is_on(device));
}

#[test]
fn markers_and_interrupts_freeze() {
    for (event, other, name) in [
        (Event::Marker(7), Event::Marker(8), "marker 7"),
        (Event::IsrEnter(7), Event::IsrEnter(8), "irq 7"),
    ] {
        let device = prepared(&format!("duration freeze_on {name}\r"));
        device.cpus.event(device.gate, other);
        device.cpus.event(device.gate, Event::IsrExit(8));
        assert!(is_on(device), "{name}");
        device.cpus.event(device.gate, event);
        assert!(!is_on(device), "{name}");
        device.talk(b"duration freeze_on nothing\ron\r");
        device.cpus.event(device.gate, event);
        assert!(is_on(device), "{name}");
    }
}

/// While a reader excludes the CPUs.
#[test]
fn what_stops_recording_stops_it_during_a_dump() {
    let device = prepared("duration stop_at 1300\r");
    call(device, 0x1200, 0);
    device.talk(&kymo_device_tests::Host::command(1, "dump_trace"));
    call(device, 0x1300, 0);
    assert!(!is_on(device));
    device.talk(&kymo_device_tests::Host::command(2, "done"));
    assert!(!is_on(device));
}
