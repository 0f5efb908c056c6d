//! Duration mode on several CPUs: each follows the calls of its own threads.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use kymo_device_tests::{Host, Kind, Packet, config, leak};
use kymo_recorder::Event;
use kymo_recorder::config::{Config, START_ON, STREAM};
use kymo_recorder::cpus::CpuDuration;
use kymo_recorder::duration::{Control, Frame};
use kymo_wire::event::PacketHeader;

use super::device::{CPUS, Device, PLACE, figure, of};

const CALL: u8 = 27;
const OPEN: u8 = 29;

/// Frames of each of a CPU's two stacks; one is for the stack itself.
const DEPTH: u32 = 10;

/// Structures of all CPUs, with duration mode on.
pub fn controls() -> &'static [Control] {
    let control = |_| {
        let words = Frame::BYTES / size_of::<u64>() * 2 * DEPTH as usize;
        let frames = vec![0u64; words].leak().as_mut_ptr().cast();
        // SAFETY: the memory is new, all zero, and leaked.
        let control = unsafe { Control::new(frames, 2, DEPTH) };
        control.settings.set_recording(true);
        control
    };
    (0..CPUS).map(control).collect::<Vec<_>>().leak()
}

pub fn with(controls: &'static [Control], config: Config) -> Device {
    let device = Device::with(Config {
        cpu_count: CPUS.into(),
        ..config
    });
    let duration = leak(CpuDuration {
        controls: controls.as_ptr().cast_mut(),
        frames: std::ptr::null_mut(),
        cpus: controls.len() as u32,
    });
    // SAFETY: they are the device's alone, for good.
    unsafe { device.cpus.give_duration(duration) };
    device
}

pub fn device() -> Device {
    let config = Config {
        flags: START_ON,
        ..config(64, 1024)
    };
    with(controls(), config)
}

/// The calls that a CPU recorded: how they ended, function, duration, self time, thread.
pub fn calls(trace: &[Packet], cpu: u16) -> Vec<(u8, u64, u64, u64, u64)> {
    let calls = of(trace, cpu)
        .into_iter()
        .filter_map(|(_, kind)| match kind {
            Kind::Call {
                how,
                function,
                duration,
                own,
                thread,
            } => Some((how, function, duration, own, thread)),
            Kind::Recording { .. } | Kind::Marker(_) => None,
            other => panic!("{other:?}"),
        });
    calls.collect()
}

#[test]
fn every_cpu_records_the_calls_of_its_own_threads() {
    let device = device();
    device.run(|cpu| {
        let (outer, inner) = (0x1100 + 0x100 * usize::from(cpu), 0x2000);
        let threads = [10 + usize::from(cpu), 20 + usize::from(cpu)];
        device.cpus.hook(device.gate, Event::SwitchedIn(threads[0]));
        device.enter(outer);
        // Another thread, which is switched away in the middle of a call.
        device.cpus.hook(device.gate, Event::SwitchedIn(threads[1]));
        device.enter(inner);
        device.cpus.hook(device.gate, Event::SwitchedIn(threads[0]));
        for _ in 0..50 {
            device.enter(inner);
            device.exit(inner);
        }
        device.exit(outer);
        device.cpus.hook(device.gate, Event::SwitchedIn(threads[1]));
        device.exit(inner);
    });
    let trace = device.trace();
    for cpu in 0..CPUS {
        let function = 0x1100 + 0x100 * u64::from(cpu);
        let found = calls(&trace, cpu);
        let (first, rest) = found.split_at(50);
        let inside: u64 = first.iter().map(|call| call.2).sum();
        for call in first {
            assert_eq!(
                (call.0, call.1, call.4),
                (CALL, 0x2000, 10 + u64::from(cpu))
            );
            assert!(call.2 > 0 && call.3 == call.2, "{call:?}");
        }
        let [outer, other] = rest else {
            panic!("{rest:?}")
        };
        assert_eq!(
            (outer.0, outer.1, outer.4),
            (CALL, function, 10 + u64::from(cpu))
        );
        assert_eq!(outer.3, outer.2 - inside, "{outer:?}");
        assert_eq!(
            (other.0, other.1, other.4),
            (CALL, 0x2000, 20 + u64::from(cpu))
        );
        assert_eq!(other.3, other.2, "{other:?}");
        let packets = trace.iter().filter(|packet| packet.cpu == cpu);
        let is_calls = |packet: &Packet| packet.flags & PacketHeader::FLAG_CALLS != 0;
        assert!(packets.clone().count() > 0 && packets.clone().all(is_calls));
    }
    let status = device.talk(b"duration\r").text;
    assert_eq!(
        (figure(&status, "too_deep"), figure(&status, "unmatched")),
        (0, 0)
    );
    assert_eq!(figure(&device.status(), "discarded"), 0);
}

#[test]
fn short_and_hidden_calls_leave_nothing_behind_and_open_ones_are_in_each_dump() {
    let device = device();
    assert!(device.start(0));
    device.talk(b"duration threshold 100\r");
    device.enter(0x1100);
    for _ in 0..60 {
        device.enter(0x1200);
        device.exit(0x1200);
    }
    let found = calls(&device.trace(), 0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0, found[0].1), (OPEN, 0x1100));
    // Recording goes on behind the dump; the call has the time that passed meanwhile.
    device.exit(0x1100);
    let found = calls(&device.trace(), 0);
    let (how, function, duration, own, _) = found[found.len() - 1];
    assert_eq!((how, function), (CALL, 0x1100));
    assert!(duration >= 120 && own < duration, "{found:?}");
    device.talk(b"duration depth 1\rduration threshold 0\rclear\r");
    device.enter(0x1100);
    device.enter(0x1200);
    device.exit(0x1200);
    device.exit(0x1100);
    let found = calls(&device.trace(), 0);
    assert_eq!(
        found.iter().map(|call| call.1).collect::<Vec<_>>(),
        [0x1100]
    );
}

#[test]
fn the_mode_changes_while_recording_and_the_stopper_ends_it() {
    let device = device();
    assert!(device.start(0));
    device.enter(0x1100);
    device.talk(b"duration off\r");
    device.enter(0x1200);
    device.exit(0x1200);
    let kinds = of(&device.trace(), 0).into_iter().map(|(_, kind)| kind);
    let kinds: Vec<_> = kinds
        .filter(|kind| !matches!(kind, Kind::Recording { .. }))
        .collect();
    assert_eq!(kinds, [Kind::Enter(0x1200), Kind::Exit(0x1200)]);
    device.talk(b"duration on\rclear\rstopper 1300\r");
    // Its entry is in no call that is followed.
    device.exit(0x1100);
    device.enter(0x1300);
    device.exit(0x1300);
    device.enter(0x1400);
    let status = device.status();
    assert!(status.contains("on=0"), "{status}");
    let found = calls(&device.trace(), 0);
    assert_eq!(
        found.iter().map(|call| call.1).collect::<Vec<_>>(),
        [0x1300]
    );
    // What was open then is not what is open when it goes on.
    device.talk(b"on\r");
    device.exit(0x1300);
    let status = device.talk(b"duration\r").text;
    assert_eq!(figure(&status, "unmatched"), 2, "{status}");
}

/// Two CPUs, simulated alternately by the test.
struct Pair {
    device: Device,
    places: [*const (); 2],
}

impl Pair {
    fn new(device: Device) -> Self {
        let start = |cpu| {
            assert!(device.start(cpu));
            PLACE.get()
        };
        Self {
            places: [start(0), start(1)],
            device,
        }
    }

    /// Switches to this CPU, which runs this thread.
    fn run(&self, cpu: usize, thread: usize) -> Device {
        PLACE.set(self.places[cpu]);
        let device = self.device;
        device.cpus.hook(device.gate, Event::SwitchedIn(thread));
        device
    }

    /// Counts of duration mode.
    fn counts(&self) -> (u32, u32) {
        let status = self.device.talk(b"duration\r").text;
        (figure(&status, "too_deep"), figure(&status, "unmatched"))
    }
}

#[test]
fn calls_of_a_thread_that_changes_the_cpu_are_counted_and_have_no_wrong_times() {
    let pair = Pair::new(device());
    pair.run(0, 7).enter(0x1100);
    pair.run(0, 8).enter(0x1200);
    // Elsewhere the exit finds no entry. The next call of the same function is a call of its own.
    let device = pair.run(1, 7);
    device.exit(0x1100);
    assert_eq!(pair.counts(), (0, 1));
    device.enter(0x1100);
    // Back again: that exit is not the first call's, whose frame is still there.
    let device = pair.run(0, 7);
    device.exit(0x1100);
    assert_eq!(pair.counts(), (0, 3), "two exits and the first entry");
    device.enter(0x1300);
    device.exit(0x1300);
    // The other thread stayed where it was.
    pair.run(0, 8).exit(0x1200);
    let trace = device.trace();
    let functions = |cpu| -> Vec<_> {
        let found = calls(&trace, cpu);
        found.iter().map(|call| (call.0, call.1, call.4)).collect()
    };
    assert_eq!(functions(0), [(CALL, 0x1300, 7), (CALL, 0x1200, 8)]);
    // The one that was open on the other CPU is open for nobody.
    assert_eq!(functions(1), []);
    assert_eq!(pair.counts(), (0, 4));
}

#[test]
fn stacks_of_threads_that_went_elsewhere_are_free_for_others() {
    let pair = Pair::new(device());
    for thread in [7, 8, 9, 10, 11, 12] {
        pair.run(0, thread).enter(0x1100);
        pair.run(1, thread).exit(0x1100);
    }
    // (The last one's stack is looked at when another thread runs there.)
    let device = pair.run(0, 13);
    device.enter(0x1200);
    device.exit(0x1200);
    assert_eq!(pair.counts(), (0, 12));
    assert_eq!(calls(&device.trace(), 0).len(), 1);
}

#[test]
fn a_cpu_that_does_not_say_what_it_runs_instead_drops_them_too() {
    let pair = Pair::new(device());
    pair.run(0, 7).enter(0x1100);
    pair.run(1, 7).exit(0x1100);
    // No other thread in between.
    let device = pair.run(0, 7);
    device.exit(0x1100);
    device.enter(0x1200);
    device.exit(0x1200);
    let found = calls(&device.trace(), 0);
    let found: Vec<_> = found.iter().map(|call| (call.0, call.1)).collect();
    assert_eq!(found, [(CALL, 0x1200)]);
    assert_eq!(pair.counts(), (0, 3));
}

#[test]
fn calls_are_followed_while_a_reader_is_at_work() {
    let pair = Pair::new(device());
    let device = pair.run(0, 7);
    device.enter(0x1100);
    device.enter(0x1200);
    let before = device.cpus.port().time.load(Ordering::SeqCst);
    device.talk(&Host::command(1, "dump_trace"));
    // They end, and begin again, and another thread runs there.
    device.exit(0x1200);
    device.enter(0x1200);
    device.exit(0x1200);
    device.enter(0x1200);
    let again = device.cpus.port().time.load(Ordering::SeqCst);
    pair.run(0, 8).enter(0x1200);
    device.talk(&Host::command(2, "done"));
    device.exit(0x1200);
    pair.run(0, 7).exit(0x1200);
    device.exit(0x1100);
    let found = calls(&device.trace(), 0);
    let found: Vec<_> = found.iter().filter(|call| call.0 == CALL).collect();
    let [other, inner, outer] = &found[..] else {
        panic!("{found:?}")
    };
    let now = device.cpus.port().time.load(Ordering::SeqCst);
    assert_eq!((other.1, other.4), (0x1200, 8));
    assert_eq!((inner.1, inner.4), (0x1200, 7));
    assert!(inner.2 <= now - again + 2, "{inner:?}");
    assert_eq!((outer.1, outer.4), (0x1100, 7));
    assert!(outer.2 > again - before && outer.2 < now, "{outer:?}");
    // Two calls that nothing could be recorded of, and nothing else.
    assert_eq!(figure(&device.status(), "discarded"), 2);
    assert_eq!(pair.counts(), (0, 0));
    // The stopper counts meanwhile, too.
    device.talk(b"stopper 1400\r");
    device.talk(&Host::command(3, "dump_trace"));
    device.enter(0x1400);
    device.exit(0x1400);
    device.talk(&Host::command(4, "done"));
    assert!(device.status().contains("on=0"));
}

#[test]
fn the_threshold_compares_the_time_on_the_cpu_and_switches_stand_beside_calls_if_that_is_asked_for()
{
    let pair = Pair::new(device());
    pair.device
        .talk(b"duration cpu on\rduration threshold 50\r");
    let wait = || {
        pair.device
            .cpus
            .port()
            .time
            .fetch_add(100, Ordering::SeqCst)
    };
    for thread in [7, 8] {
        pair.run(1, thread).enter(0x1100);
    }
    // One of them has the processor all the while.
    wait();
    pair.run(1, 8).exit(0x1100);
    let device = pair.run(1, 7);
    device.exit(0x1100);
    let trace = device.trace();
    let found = calls(&trace, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].0, found[0].1, found[0].4), (CALL, 0x1100, 8));
    device.talk(b"duration events on\r");
    pair.run(1, 9);
    let kinds = of(&device.trace(), 1).into_iter().map(|(_, kind)| kind);
    let switches: Vec<_> = kinds
        .filter(|kind| matches!(kind, Kind::SwitchedIn(_)))
        .collect();
    assert_eq!(switches, [Kind::SwitchedIn(9)]);
}

#[test]
fn a_thread_that_is_switched_in_while_recording_is_disabled_has_its_own_stack() {
    let pair = Pair::new(device());
    let device = pair.run(0, 7);
    device.enter(0x1100);
    device.cpus.enable(device.gate, false);
    pair.run(0, 8);
    device.cpus.enable(device.gate, true);
    // It was entered before, or it would be the other thread's.
    device.exit(0x1100);
    assert_eq!(pair.counts(), (0, 1));
    pair.run(0, 7).exit(0x1100);
    let found = calls(&device.trace(), 0);
    assert_eq!((found.len(), found[0].1, found[0].4), (1, 0x1100, 7));
    assert_eq!(figure(&device.status(), "discarded"), 0);
}

#[test]
fn one_filter_is_that_of_all_cpus() {
    let controls = controls();
    let filter: &[AtomicU8] = leak([const { AtomicU8::new(0) }; 64]);
    for control in controls {
        // SAFETY: it is leaked, and nobody records yet.
        unsafe { control.settings.give_filter(filter, (0x1000, 4)) };
    }
    let config = Config {
        flags: START_ON,
        ..config(64, 1024)
    };
    let pair = Pair::new(with(controls, config));
    let answer = pair
        .device
        .talk(b"duration filter 1100 skip\rduration filter 1200 below\r");
    assert!(!answer.text.contains("error"), "{}", answer.text);
    for (cpu, thread) in [(0, 7), (1, 8)] {
        let device = pair.run(cpu, thread);
        for outer in [0x1100, 0x1200] {
            device.enter(outer);
            device.enter(0x1300);
            device.exit(0x1300);
            device.exit(outer);
        }
    }
    let trace = pair.device.trace();
    for cpu in 0..2 {
        let found = calls(&trace, cpu);
        let found: Vec<_> = found.iter().map(|call| (call.0, call.1)).collect();
        assert_eq!(found, [(CALL, 0x1300)], "CPU {cpu}");
    }
}

#[test]
fn a_threshold_counts_from_now_on_for_calls_that_are_open_elsewhere() {
    let pair = Pair::new(device());
    pair.run(0, 7).enter(0x1100);
    let start = pair.device.cpus.port().time.load(Ordering::SeqCst);
    pair.run(1, 8).enter(0x1200);
    pair.device.talk(b"duration threshold 1000000\r");
    pair.run(1, 8).exit(0x1200);
    pair.device.talk(b"duration threshold 1\r");
    let device = pair.run(0, 7);
    let end = device.cpus.port().time.load(Ordering::SeqCst);
    device.exit(0x1100);
    let trace = device.trace();
    let found = calls(&trace, 0);
    assert_eq!((found[0].1, found[0].2), (0x1100, end - start + 1));
    assert_eq!(calls(&trace, 1), []);
    assert_eq!(pair.counts(), (0, 0));
}

#[test]
fn what_finds_a_full_buffer_is_counted_for_its_cpu_alone() {
    let pair = Pair::new(with(
        controls(),
        Config {
            flags: START_ON | STREAM,
            ..config(4, 1024)
        },
    ));
    let device = pair.run(0, 7);
    for _ in 0..1000 {
        device.enter(0x1100);
        device.exit(0x1100);
    }
    let device = pair.run(1, 8);
    device.enter(0x1200);
    device.exit(0x1200);
    let trace = device.trace();
    let found = calls(&trace, 0);
    assert!((10..1000).contains(&found.len()), "{}", found.len());
    assert!(found.iter().all(|call| call.1 == 0x1100 && call.2 == 1));
    let lost = figure(&device.status(), "discarded") as usize;
    // (And the switch is no record.)
    assert_eq!(found.len() + lost, 1000);
    let found = calls(&trace, 1);
    assert_eq!((found.len(), found[0].1, found[0].2), (1, 0x1200, 1));
    assert_eq!(pair.counts(), (0, 0));
}

#[test]
fn readers_hold_all_cpus_off_and_every_call_is_recorded_or_counted() {
    const CALLS: u32 = 2000;
    let config = Config {
        flags: START_ON,
        ..config(256, 1024)
    };
    let device = with(controls(), config);
    let working = AtomicU32::new(CPUS.into());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // Each takes up two packets of each CPU, of which there are enough.
            let mut dumps = 0;
            while working.load(Ordering::Relaxed) > 0 && dumps < 50 {
                // Before the CPUs start there is nobody to answer.
                if !device.gate.state().fresh() && !device.gate.state().claimed() {
                    device.trace();
                    dumps += 1;
                }
                std::thread::yield_now();
            }
        });
        device.run(|cpu| {
            let thread = 10 + usize::from(cpu);
            device.cpus.hook(device.gate, Event::SwitchedIn(thread));
            for n in 0..CALLS / 2 {
                device.enter(0x1100);
                device.enter(0x1200);
                device.exit(0x1200);
                device.exit(0x1100);
                if n % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            working.fetch_sub(1, Ordering::Relaxed);
        });
        reader.join().expect("no dump is torn");
    });
    assert!(device.start(0));
    let trace = device.trace();
    let mut recorded = 0;
    for cpu in 0..CPUS {
        for (how, function, duration, own, _) in calls(&trace, cpu) {
            match (how, function) {
                // In each dump as far as it had come.
                (OPEN, _) => continue,
                (CALL, 0x1200) => assert_eq!(own, duration),
                // Its callee may have been lost, but took its time.
                (CALL, 0x1100) => assert!(own < duration, "{own} of {duration}"),
                other => panic!("{other:?}"),
            }
            recorded += 1;
        }
    }
    let lost = figure(&device.status(), "discarded");
    assert_eq!(recorded + lost, CALLS * u32::from(CPUS));
    let status = device.talk(b"duration\r").text;
    assert_eq!(figure(&status, "unmatched"), 0, "{status}");
}

#[test]
fn all_cpus_need_a_structure_and_one_clock() {
    unsafe extern "C" fn clock() -> u32 {
        0
    }
    let short = with(&controls()[..2], config(64, 1024));
    let all = with(controls(), config(64, 1024));
    let own_clock = Device {
        config: leak(Config {
            clock: Some(clock),
            clock_bits: 32,
            clock_hz: 1000,
            ..*all.config
        }),
        ..all
    };
    for device in [short, own_clock] {
        assert!(device.start(0));
        let refused = device.talk(b"duration\r").text;
        assert!(refused.contains("no duration mode"), "{refused}");
    }
}

/// What a host reads once recording is off remains as it is.
#[test]
fn a_recording_that_is_off_is_not_changed_by_its_readers() {
    let device = device();
    assert!(device.start(0));
    device.enter(0x1100);
    device.enter(0x1200);
    let read = || {
        let calls = calls(&device.trace(), 0);
        calls.iter().filter(|call| call.0 == OPEN).count()
    };
    assert_eq!(read(), 2);
    assert_eq!(read(), 4, "they have come further");
    device.talk(b"off\r");
    assert_eq!(read(), 6);
    assert_eq!(read(), 6);
    device.talk(b"clear\r");
    assert_eq!(read(), 2);
    assert_eq!(read(), 2);
}

#[test]
fn threads_that_end_give_their_shadow_stacks_to_others() {
    let device = device();
    assert!(device.start(0));
    for thread in (0..20).map(|n| if n < 10 { 5 } else { n }) {
        device.cpus.hook(device.gate, Event::SwitchedIn(thread));
        device.enter(0x1100);
        device.enter(0x1200);
        device.exit(0x1200);
        device.cpus.end_thread(device.gate, thread);
    }
    device.cpus.hook(device.gate, Event::SwitchedIn(30));
    let status = device.talk(b"duration\r").text;
    assert_eq!(
        (figure(&status, "too_deep"), figure(&status, "unmatched")),
        (0, 20)
    );
}
