//! Several CPUs that run one program: their recordings, readers that freeze recording on all of them, turning recording
//! on and off.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};

use kymo_device_tests::{Host, Kind, Packet, config, leak, packets};
use kymo_recorder::Target;
use kymo_recorder::config::{Config, START_ON, STREAM};
use kymo_recorder::cpus::CpuBuffer;
use kymo_wire::event::METADATA_STREAM;
use kymo_wire::profile::TableHeader;

mod conditions;
mod device;
mod direct;
mod duration;
mod items;
mod memory;
mod stopper;
mod stops;
mod table;

use device::{CPUS, Device, Machine, PLACE, STOPPED, STOPS, WHEN_SENDING, figure, of};

#[test]
fn every_cpu_has_a_stream_of_its_own() {
    let device = Device::new(START_ON, 64);
    // A row of numbers under a lock, as the order that the merged trace must have. (Sanitizers do not see
    // the standard library's.)
    let (next, taken) = (AtomicU32::new(0), AtomicBool::new(false));
    device.run(|cpu| {
        for i in 0..200 {
            let function = 0x1000 + 16 * usize::from(cpu) + (i % 3);
            device.enter(function);
            {
                while taken.swap(true, Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let number = next.load(Ordering::Relaxed) + 1;
                next.store(number, Ordering::Relaxed);
                device.marker(number);
                taken.store(false, Ordering::Release);
            }
            device.exit(function);
        }
    });
    let trace = device.trace();
    assert_eq!(trace[0].cpu, METADATA_STREAM);
    let mut all = Vec::new();
    for cpu in 0..CPUS {
        let records = of(&trace, cpu);
        assert!(records.is_sorted_by_key(|(time, _)| *time));
        let calls = records
            .iter()
            .filter(|(_, kind)| !matches!(kind, Kind::Marker(_) | Kind::Recording { .. }));
        let mut i = 0;
        for (at, (_, kind)) in calls.enumerate() {
            let function = 0x1000 + 16 * u64::from(cpu) + i % 3;
            if at % 2 == 0 {
                assert_eq!(*kind, Kind::Enter(function));
            } else {
                assert_eq!(*kind, Kind::Exit(function));
                i += 1;
            }
        }
        assert_eq!(i, 200);
        all.extend(records);
    }
    all.sort_by_key(|(time, _)| *time);
    let numbers = all.iter().filter_map(|(_, kind)| match kind {
        Kind::Marker(number) => Some(*number),
        _ => None,
    });
    assert!(numbers.eq(1..=800));
    let marks = all
        .iter()
        .filter(|(_, kind)| matches!(kind, Kind::Recording { .. }))
        .count();
    assert_eq!(marks, 1, "the CPU that turned it on");
    assert_eq!(figure(&device.status(), "discarded"), 0);
}

#[test]
fn what_a_cpu_records_into_shares_no_cache_line() {
    assert_eq!(align_of::<CpuBuffer<Machine>>(), 128);
    assert_eq!(size_of::<CpuBuffer<Machine>>() % 128, 0);
    let unaligned = Device::with(Config {
        cpu_count: 2,
        buffer_size: 1000,
        packet_size: 200,
        ..config(4, 1024)
    });
    assert!(!unaligned.start(0));
    let status = unaligned.status();
    assert!(status.contains("error=cpu_buffers value=1000"), "{status}");
}

#[test]
fn wrong_configurations_are_told() {
    let too_many = Device::with(Config {
        cpu_count: 9,
        ..config(4, 1024)
    });
    assert!(!too_many.start(0));
    assert!(too_many.status().contains("error=cpu_count"));
    let table = || Config {
        cpu_count: 2,
        slot_count: 8,
        slots: vec![0u64; 2 * 8 * 6].leak().as_mut_ptr().cast(),
        frames: vec![0u64; 3 * 4 * 4].leak().as_mut_ptr().cast(),
        shadow_stacks: 3,
        shadow_depth: 4,
        ..config(4, 1024)
    };
    let (mut stacks, mut depth, mut slots) = (table(), table(), table());
    stacks.shadow_stacks = 2;
    depth.shadow_depth = 2;
    slots.slots = std::ptr::null_mut();
    for (wrong, error) in [
        (stacks, "shadow_stacks value=2"),
        (depth, "shadow_depth value=2"),
        (slots, "slots value=0"),
    ] {
        let with_table = Device::with(wrong);
        assert!(!with_table.start(0));
        let status = with_table.status();
        assert!(status.contains(&format!("error={error}")), "{status}");
    }
}

#[test]
fn a_cpu_that_is_alone_keeps_a_table() {
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr().cast();
    let device = Device::with(Config {
        flags: START_ON,
        slots: words(6 * 16),
        slot_count: 16,
        frames: words(4 * 2 * 8),
        shadow_stacks: 2,
        shadow_depth: 8,
        ..config(4, 1000)
    });
    assert!(device.start(0), "it needs no line of its own");
    for _ in 0..5 {
        device.enter(0x1000);
        device.exit(0x1000);
    }
    let table = |device: Device| {
        let dump = device.talk(&Host::command(1, "dump_profile")).dump();
        device.talk(&Host::command(2, "done"));
        TableHeader::read(&dump).expect("a table")
    };
    let header = table(device);
    assert_eq!(header.entries, 1);
    assert!(header.recorded > 0);
    device.cpus.clear(device.gate);
    assert_eq!(table(device).entries, 0);
    let several = Device::new(START_ON, 4);
    assert!(several.start(0));
    let (_, ok, text) = several
        .talk(&Host::command(3, "dump_profile"))
        .replies
        .remove(0);
    assert!(!ok, "{text}");
}

#[test]
fn a_cpu_that_has_no_buffer_is_counted() {
    let device = Device::new(START_ON, 8);
    assert!(device.start(0));
    device.marker(1);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            device.marker(2);
            assert!(!device.start(CPUS), "there is no such CPU");
            device.enter(0x1000);
            assert!(device.start(1));
            device.marker(3);
        });
        other.join().expect("it ends");
    });
    assert_eq!(figure(&device.status(), "discarded"), 2);
    let trace = device.trace();
    assert_eq!(trace[0].discarded, 2, "told with the metadata");
    assert_eq!(of(&trace, 1).len(), 1);
}

#[test]
fn what_a_cpu_lost_that_never_recorded_is_told() {
    /// A reader excludes all CPUs, and waits until an event is lost.
    static HELD: AtomicBool = AtomicBool::new(false);
    let device = Device::new(START_ON, 8);
    assert!(device.start(0));
    device.marker(1);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert!(device.start(1));
            // Its first event comes while a reader holds all CPUs off.
            while !HELD.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            device.marker(2);
            HELD.store(false, Ordering::SeqCst);
        });
        WHEN_SENDING.set(Some(|| {
            HELD.store(true, Ordering::SeqCst);
            while HELD.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }));
        device.dump();
        other.join().expect("it ends");
    });
    let before = device.cpus.port().time.load(Ordering::Relaxed);
    let reported = |trace: &[Packet]| -> Vec<(u32, usize)> {
        let packets = trace.iter().filter(|packet| packet.cpu == 1);
        packets
            .map(|packet| (packet.discarded, packet.records.len()))
            .collect()
    };
    let trace = device.trace();
    assert_eq!(reported(&trace), [(1, 0)]);
    let packet = trace.iter().find(|packet| packet.cpu == 1).unwrap();
    assert!(packet.begin >= before, "told when it was asked for");
    // Once only, and what is recorded later stands behind it.
    assert_eq!(reported(&device.trace()), [(1, 0)]);
    assert_eq!(figure(&device.status(), "discarded"), 1);
}

#[test]
fn readers_hold_all_cpus_off_and_every_event_is_recorded_or_counted() {
    const EVENTS: u32 = 5000;
    let device = Device::new(START_ON, 256);
    let working = AtomicU32::new(CPUS.into());
    let dumps = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut dumps = Vec::new();
            // Before the CPUs start there is nobody to answer.
            while working.load(Ordering::Relaxed) > 0 {
                if device.gate.state().fresh() || device.gate.state().claimed() {
                    std::thread::yield_now();
                    continue;
                }
                dumps.push(device.trace());
                std::thread::yield_now();
            }
            dumps
        });
        device.run(|_| {
            for value in 0..EVENTS {
                device.marker(value);
                if value % 64 == 0 {
                    std::thread::yield_now();
                }
            }
            working.fetch_sub(1, Ordering::Relaxed);
        });
        reader.join().expect("no dump is torn")
    });
    let last = device.trace();
    for trace in dumps.iter().chain([&last]) {
        for cpu in 0..CPUS {
            let (mut next, mut missing) = (0, 0);
            for packet in trace.iter().filter(|packet| packet.cpu == cpu) {
                for record in &packet.records {
                    if let Kind::Marker(value) = record.kind {
                        missing += value - next;
                        next = value + 1;
                    }
                }
                // What is missing is reported in the packet behind it at the latest.
                assert!(missing <= packet.discarded, "on CPU {cpu}");
            }
        }
    }
    let recorded: u32 = (0..CPUS)
        .map(|cpu| of(&last, cpu).len() as u32)
        .sum::<u32>()
        - 1;
    let lost = figure(&device.status(), "discarded");
    assert_eq!(recorded + lost, u32::from(CPUS) * EVENTS);
    assert!(!dumps.is_empty());
}

#[test]
fn a_reader_takes_packets_while_all_cpus_record() {
    const EVENTS: u32 = 20_000;
    // Little room, so that some is lost.
    let device = Device::new(START_ON | STREAM, 4);
    let working = AtomicU32::new(CPUS.into());
    let taken = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = Vec::new();
            loop {
                let over = working.load(Ordering::Acquire) == 0;
                let packets = device.cpus.take_packets(device.gate, |_, packet| {
                    bytes.extend_from_slice(packet);
                });
                if over && packets == 0 {
                    return bytes;
                }
                std::thread::yield_now();
            }
        });
        device.run(|_| {
            for value in 0..EVENTS {
                device.marker(value);
                if value % 256 == 0 {
                    std::thread::yield_now();
                }
            }
            // The last losses need room to be told.
            for _ in 0..3 {
                device.cpus.flush(device.gate);
                std::thread::yield_now();
            }
            working.fetch_sub(1, Ordering::Release);
        });
        reader.join().expect("no packet is torn")
    });
    let trace = packets(&taken, Machine::LAYOUT, 0x1000);
    let mut missing_in_all = 0;
    for cpu in 0..CPUS {
        let (mut next, mut sequence, mut missing, mut reported) = (0, 0, 0, 0);
        for packet in trace.iter().filter(|packet| packet.cpu == cpu) {
            assert_eq!(packet.sequence, sequence, "every packet is taken, once");
            sequence += 1;
            // Between two packets is where room was missing: the next one tells at its beginning.
            for record in &packet.records {
                if let Kind::Marker(value) = record.kind {
                    missing += value - next;
                    next = value + 1;
                    assert_eq!(missing, packet.discarded, "on CPU {cpu}");
                }
            }
            reported = packet.discarded;
        }
        missing_in_all += missing;
        assert!(reported <= missing + (EVENTS - next), "on CPU {cpu}");
    }
    let lost = figure(&device.status(), "discarded");
    let recorded: usize = (0..CPUS).map(|cpu| of(&trace, cpu).len()).sum();
    assert_eq!(recorded as u32 - 1 + lost, u32::from(CPUS) * EVENTS);
    assert!(missing_in_all <= lost);
}

#[test]
fn a_dump_of_full_streams_tells_what_was_lost_behind_them() {
    const EVENTS: u32 = 4_000;
    let device = Device::new(START_ON | STREAM, 2);
    let recorded = |trace: &[Packet], cpu| {
        let events = of(trace, cpu);
        let markers = events
            .iter()
            .filter(|(_, kind)| matches!(kind, Kind::Marker(_)));
        markers.count() as u32
    };
    device.run(|cpu| (0..EVENTS).for_each(|i| device.marker(u32::from(cpu) * EVENTS + i)));
    for _ in 0..2 {
        let trace = device.trace();
        for cpu in 0..CPUS {
            let newest = trace.iter().rev().find(|packet| packet.cpu == cpu);
            let reported = newest.map_or(0, |packet| packet.discarded);
            assert_eq!(recorded(&trace, cpu) + reported, EVENTS, "CPU {cpu}");
        }
    }
    // A stream has them where they were: behind these packets.
    let mut streamed = Vec::new();
    let mut hear = |host: Host| streamed.extend(host.pieces.into_values().flatten());
    hear(device.talk(&Host::command(1, "stream on 100")));
    hear(device.talk(b""));
    let trace = packets(&streamed, Machine::LAYOUT, 0x1000);
    let events = trace.iter().filter(|packet| packet.cpu != METADATA_STREAM);
    assert!(events.clone().count() > 1);
    assert!(
        events
            .into_iter()
            .all(|packet| packet.discarded < EVENTS / 2)
    );
}

#[test]
fn streams_of_all_cpus_leave_over_one_link() {
    let device = Device::new(START_ON | STREAM, 8);
    // Who is asked for what by turns: CPUs are threads, and each has its own.
    let (asked, done) = (Barrier::new(2), Barrier::new(2));
    let order = Mutex::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(device.start(1));
            loop {
                asked.wait();
                match *order.lock().expect("nobody panics with it") {
                    0 => return,
                    value => device.marker(value),
                }
                done.wait();
            }
        });
        let other = |value| {
            *order.lock().expect("nobody panics with it") = value;
            asked.wait();
            if value != 0 {
                done.wait();
            }
        };
        assert!(device.start(0));
        device.marker(10);
        other(11);
        let mut received = Vec::new();
        let mut hear = |host: Host| {
            received.extend(host.pieces.into_values().flatten());
            host.replies
        };
        let pass = |milliseconds: u64| {
            let time = &device.cpus.port().time;
            time.fetch_add(milliseconds * 1_000_000, Ordering::SeqCst);
        };
        let on = hear(device.talk(&Host::command(1, "stream on 100")));
        assert!(on[0].1, "{on:?}");

        // When it is time to, the own packet is closed at once, the other CPU's with its next event,
        // which begins another.
        pass(150);
        assert_eq!(hear(device.talk(b"")), []);
        pass(150);
        other(12);
        assert_eq!(hear(device.talk(b"")), []);
        let trace = packets(&received, Machine::LAYOUT, 0x1000);
        let markers = |trace: &[Packet], cpu| -> Vec<u32> {
            let records = of(trace, cpu).into_iter();
            records
                .filter_map(|(_, kind)| match kind {
                    Kind::Marker(value) => Some(value),
                    _ => None,
                })
                .collect()
        };
        assert_eq!(markers(&trace, 0), [10]);
        assert_eq!(markers(&trace, 1), [11]);
        // That one has nothing more to record: all are stopped for a moment.
        let mut hear = |host: Host| {
            received.extend(host.pieces.into_values().flatten());
            host.replies
        };
        for _ in 0..20 {
            pass(150);
            hear(device.talk(b""));
        }
        let trace = packets(&received, Machine::LAYOUT, 0x1000);
        assert_eq!(markers(&trace, 1), [11, 12]);
        assert_eq!(figure(&device.status(), "discarded"), 0);
        other(0);
    });
}

#[test]
fn events_lie_between_the_marks_of_on_and_off() {
    let device = Device::new(0, 512);
    let stop = AtomicBool::new(false);
    let turned = AtomicU32::new(0);
    device.run(|cpu| {
        if cpu == 0 {
            for _ in 0..50 {
                device.cpus.set_recording(device.gate, true);
                let before = turned.load(Ordering::Relaxed);
                while turned.load(Ordering::Relaxed) < before + 20 {
                    std::thread::yield_now();
                }
                device.cpus.set_recording(device.gate, false);
            }
            stop.store(true, Ordering::Relaxed);
        } else {
            while !stop.load(Ordering::Relaxed) {
                device.enter(0x1000 + usize::from(cpu));
                device.exit(0x1000 + usize::from(cpu));
                turned.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        }
    });
    let trace = device.trace();
    let mut all: Vec<_> = (0..CPUS).flat_map(|cpu| of(&trace, cpu)).collect();
    all.sort_by_key(|(time, _)| *time);
    let (mut is_on, mut marks, mut calls) = (false, 0, 0);
    for (time, kind) in all {
        match kind {
            Kind::Recording { on, .. } => {
                assert_ne!(on, is_on);
                is_on = on;
                marks += 1;
            }
            _ => {
                assert!(is_on, "{kind:?} at {time} while recording is off");
                calls += 1;
            }
        }
    }
    assert_eq!(marks, 100);
    assert!(calls > 0);
}

/// Only one test at a time stops a CPU.
static STOPPING: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_cpu_that_stays_inside_is_left_out() {
    let _turn = STOPPING.lock();
    let device = Device::new(START_ON, 8);
    assert!(device.start(0));
    device.marker(1);
    std::thread::scope(|scope| {
        let clock = scope.spawn(|| {
            assert!(device.start(1));
            device.marker(2);
            // It crashes in its hook.
            STOPS.set(true);
            device.marker(3);
        });
        while !STOPPED.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        // The reader's patience is a matter of the counter, which does not stand still.
        let later = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                PLACE.set(std::ptr::null());
                device.trace()
            });
            while !reader.is_finished() {
                device.cpus.port().time.fetch_add(1 << 32, Ordering::SeqCst);
                std::thread::yield_now();
            }
            reader.join().expect("there is a trace")
        });
        assert_eq!(of(&later, 0).len(), 2, "the mark and the marker");
        assert_eq!(of(&later, 1), []);
        assert!(device.status().contains("error=cpu_stuck"));
        STOPPED.store(false, Ordering::Relaxed);
        clock.join().expect("it goes on");
    });
    // The next reader waits for it again.
    assert!(!of(&device.trace(), 1).is_empty());
}

#[test]
fn who_turns_recording_off_does_not_wait_for_long_for_a_cpu_that_hangs_in_its_hook() {
    let _turn = STOPPING.lock();
    let device = Device::new(START_ON, 16);
    assert!(device.start(0));
    device.marker(1);
    std::thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            PLACE.set(std::ptr::null());
            assert!(device.start(1));
            STOPS.set(true);
            device.marker(2);
        });
        while !STOPPED.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        // Interrupts are masked meanwhile. A tick of this clock is a reading.
        let before = device.cpus.port().time.load(Ordering::SeqCst);
        device.cpus.set_recording(device.gate, false);
        let waited = device.cpus.port().time.load(Ordering::SeqCst) - before;
        assert!(waited < 1_100_000, "{waited} ns");
        STOPPED.store(false, Ordering::Relaxed);
        stopped.join().expect("it goes on");
    });
}

#[test]
fn any_cpu_pulls_the_trigger_and_any_stops() {
    let device = Device::new(0, 16);
    let barrier = Barrier::new(CPUS.into());
    device.run(|cpu| {
        let on = |who, work: &dyn Fn()| {
            if cpu == who {
                work();
            }
            barrier.wait();
        };
        on(0, &|| {
            let sets = (Some(0x1111), Some(0x2222));
            device.cpus.set_sets(device.gate, sets.0, sets.1);
            device.marker(0);
        });
        on(2, &|| {
            device.enter(0x1111);
            device.exit(0x1111);
        });
        on(1, &|| device.marker(1));
        on(3, &|| {
            device.enter(0x2222);
            device.exit(0x2222);
        });
        on(1, &|| device.marker(2));
    });
    let trace = device.trace();
    let kinds = |cpu| -> Vec<Kind> {
        let records = of(&trace, cpu).into_iter();
        records.map(|(_, kind)| kind).collect()
    };
    let mark = |on| Kind::Recording { on, cause: 1 };
    assert_eq!(kinds(0), []);
    assert_eq!(kinds(1), [Kind::Marker(1)]);
    let expected = [mark(true), Kind::Enter(0x1111), Kind::Exit(0x1111)];
    assert_eq!(kinds(2), expected);
    let expected = [Kind::Enter(0x2222), Kind::Exit(0x2222), mark(false)];
    assert_eq!(kinds(3), expected);
}
