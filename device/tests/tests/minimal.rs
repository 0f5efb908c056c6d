//! The smallest recorder on a mock processor: the contents of its memory.

use kymo_device_tests::layout::{Small, SmallBig};
use kymo_device_tests::{Kind, Layouts, Mock, Packet, UNKNOWN, config, hot, leak, packets};
use kymo_recorder::Edge;
use kymo_recorder::config::{Config, FIXED, START_ON};
use kymo_recorder::hot::Hot;
use kymo_recorder::minimal::Minimal;
use kymo_wire::packet::PacketHeader;

const PACKET: usize = 256;
const TEXT_BASE: u64 = 0x1000;
/// Functions with a short number, with a long one, and with none.
const FUNCTIONS: [usize; 3] = [0x1100, 0x1000 + (1 << 16), 0x1000 + (1 << 30)];

/// A processor with its recorder.
struct Machine<L: Layouts + 'static> {
    recorder: &'static Minimal<Mock<L>>,
    hot: &'static Hot,
    config: &'static Config,
}

impl<L: Layouts + 'static> Machine<L> {
    fn new(places: u32, flags: u32) -> Self {
        Self::with(Config {
            flags,
            ..config(places, PACKET as u32)
        })
    }

    fn with(config: Config) -> Self {
        Self {
            recorder: leak(Minimal::new(Mock::default())),
            hot: hot(),
            config: leak(config),
        }
    }

    fn call(&self, edge: Edge, function: usize) {
        self.recorder.call(self.hot, self.config, edge, function);
    }

    fn set_recording(&self, on: bool) {
        self.recorder.set_recording(self.hot, self.config, on);
    }

    fn tick(&self) {
        self.recorder.tick(self.hot, self.config);
    }

    fn time(&self) -> u64 {
        self.recorder.port().time.get()
    }

    /// Lets time pass.
    fn wait(&self, ticks: u64) {
        self.recorder.port().time.set(self.time() + ticks);
    }

    /// Decodes the memory as a debugger would, oldest packet first.
    fn read(&self) -> Vec<Packet> {
        let (memory, bytes) = (self.config.buffer.cast(), self.config.buffer_size as usize);
        // SAFETY: the memory of the configuration; nobody writes to it meanwhile.
        let memory: &[u8] = unsafe { std::slice::from_raw_parts(memory, bytes) };
        let at = (self.hot.cursor.at() as usize).wrapping_sub(memory.as_ptr() as usize);
        let mut found = Vec::new();
        for (n, place) in memory.chunks(PACKET).enumerate() {
            let Some(mut header) = PacketHeader::read(L::LAYOUT, place) else {
                continue;
            };
            let mut place = place.to_vec();
            if header.content_bits == 44 * 8 {
                // It is open, and so the newest.
                assert_eq!(at / PACKET, n);
                header.content_bits = (at % PACKET) as u32 * 8;
                header.packet_bits = header.content_bits;
                let last = self.hot.cursor.last.get() as u32;
                header.end = header.begin + u64::from(last.wrapping_sub(header.begin as u32));
                header.write(L::LAYOUT, &mut place);
            }
            place.truncate(header.content_bits as usize / 8);
            found.push((header.sequence, place));
        }
        found.sort();
        let whole: Vec<u8> = found.into_iter().flat_map(|(_, place)| place).collect();
        let packets = packets(&whole, L::LAYOUT, TEXT_BASE);
        for pair in packets.windows(2) {
            assert_eq!(pair[0].sequence + 1, pair[1].sequence);
            assert!(pair[0].end <= pair[1].begin);
        }
        assert!(packets.iter().all(|packet| packet.flags == 2));
        packets
    }

    /// Records calls with all kinds of times between them; returns the expected records.
    fn work(&self, rounds: u64) -> Vec<(u64, Kind)> {
        let mut expected = Vec::new();
        let mut stack = Vec::new();
        for n in 0..rounds {
            // Each form's limit, and times that take a record of their own.
            self.wait([0, 100, 254, 127, 4094, 8190, 70_000, 1 << 29][(n * 7 % 8) as usize]);
            if n % 5 < 3 {
                let function = FUNCTIONS[(n % 3) as usize];
                stack.push(function as u64);
                self.call(Edge::Enter, function);
                expected.push((self.time(), Kind::Enter(function as u64)));
            } else {
                let function = stack.pop().unwrap_or(UNKNOWN);
                self.call(Edge::Exit, function as usize);
                expected.push((self.time(), Kind::Exit(function)));
            }
        }
        expected
    }
}

fn records(packets: &[Packet]) -> Vec<(u64, Kind)> {
    let records = packets.iter().flat_map(|packet| &packet.records);
    let records = records.map(|record| (record.time, record.kind.clone()));
    records.collect()
}

/// Compares records; an exit of a call that was entered in an overwritten packet has no function.
fn same(found: &[(u64, Kind)], expected: &[(u64, Kind)]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found == expected || *found == (expected.0, Kind::Exit(UNKNOWN)),
            "{found:?}, not {expected:?}"
        );
    }
}

fn everything_is_there<L: Layouts + 'static>() {
    let machine = Machine::<L>::new(64, START_ON);
    let expected = machine.work(1000);
    let packets = machine.read();
    assert!((10..64).contains(&packets.len()), "{}", packets.len());
    assert_eq!(packets[0].sequence, 0);
    assert_eq!(records(&packets), expected);
    assert!(machine.time() > 1 << 34, "the counter has turned");
    // All forms but those of an exit with a function.
    for id in [0, 1, 2, 5, 31] {
        assert!(packets.iter().any(|packet| packet.ids.contains_key(&id)));
    }
    assert!(packets.iter().all(|packet| packet.discarded == 0));
}

#[test]
fn every_call_is_in_memory_with_its_time() {
    everything_is_there::<Small>();
    everything_is_there::<SmallBig>();
}

#[test]
fn the_newest_are_kept() {
    let machine = Machine::<Small>::new(4, START_ON);
    let expected = machine.work(5000);
    let packets = machine.read();
    assert_eq!(packets.len(), 4);
    assert!(packets[0].sequence > 20 && packets[0].discarded == 0);
    let found = records(&packets);
    same(&found, &expected[expected.len() - found.len()..]);
}

#[test]
fn the_oldest_are_kept_and_what_is_lost_is_counted() {
    let machine = Machine::<Small>::new(4, START_ON | FIXED);
    let expected = machine.work(5000);
    // A tick is no event.
    machine.wait(1 << 31);
    machine.tick();
    let packets = machine.read();
    assert_eq!(packets.len(), 4);
    let found = records(&packets);
    assert_eq!(found, expected[..found.len()]);
    assert_eq!(packets[3].discarded as usize, expected.len() - found.len());
    assert_eq!(packets[0].discarded, 0);
}

#[test]
fn it_is_turned_on_and_off() {
    let machine = Machine::<Small>::new(64, 0);
    machine.work(10);
    assert_eq!(machine.read(), [], "off from the start");
    machine.set_recording(true);
    let on = machine.time();
    let mut expected = machine.work(30);
    machine.set_recording(false);
    let off = (
        machine.time(),
        Kind::Recording {
            on: false,
            cause: 2,
        },
    );
    machine.set_recording(false);
    machine.work(10);
    machine.set_recording(true);
    let again = machine.time();
    let more = machine.work(30);
    let packets = machine.read();
    expected.insert(0, (on, Kind::Recording { on: true, cause: 2 }));
    expected.push(off);
    expected.push((again, Kind::Recording { on: true, cause: 2 }));
    expected.extend(more);
    same(&records(&packets), &expected);
    assert!(packets.iter().any(|packet| packet.begin == again));
}

#[test]
fn off_every_packet_is_complete() {
    let machine = Machine::<Small>::new(64, START_ON);
    machine.work(100);
    machine.set_recording(false);
    // Without the cursor.
    machine
        .hot
        .cursor
        .at
        .store(std::ptr::null_mut(), std::sync::atomic::Ordering::Relaxed);
    assert_eq!(records(&machine.read()).len(), 101);
}

#[test]
fn ticks_keep_the_time_while_nothing_happens() {
    for off in [false, true] {
        let machine = Machine::<Small>::new(64, START_ON);
        let mut expected = machine.work(10);
        if off {
            machine.set_recording(false);
        }
        for _ in 0..100 {
            machine.wait(1 << 30);
            machine.tick();
        }
        if off {
            machine.set_recording(true);
        }
        expected.extend(machine.work(10));
        // The open packet is longer than the cursor's 32 bits of time tell.
        machine.set_recording(false);
        let packets = machine.read();
        let calls = |(_, kind): &(u64, Kind)| !matches!(kind, Kind::Recording { .. });
        let found: Vec<_> = records(&packets).into_iter().filter(calls).collect();
        same(&found, &expected);
        assert!(machine.time() > 100 << 30);
    }
}

#[test]
fn what_it_cannot_use_it_does_not_touch() {
    let good = || Config {
        flags: START_ON,
        ..config(4, PACKET as u32)
    };
    let bad = [
        Config {
            version: 1,
            ..good()
        },
        Config {
            packet_size: 120,
            ..good()
        },
        Config {
            packet_size: 252,
            ..good()
        },
        Config {
            packet_size: 1024,
            ..good()
        },
    ];
    for config in bad {
        let machine = Machine::<Small>::with(config);
        machine.work(100);
        machine.set_recording(true);
        machine.tick();
        assert_eq!(machine.read(), []);
    }
    let machine = Machine::<Small>::with(good());
    machine.recorder.port().wrap.set(1 << 24);
    machine.work(100);
    assert_eq!(machine.read(), [], "a counter of 24 bits");
}

#[test]
fn interrupts_wherever_they_are_not_masked_lose_nothing() {
    let machine = leak(Machine::<Small>::new(64, START_ON));
    let preempt = move |_: &str| {
        machine.call(Edge::Enter, FUNCTIONS[1]);
        machine.call(Edge::Exit, FUNCTIONS[1]);
    };
    // Only where nothing masks: the counter is read inside.
    let outside = move |place: &'static str| {
        if place != "counter" {
            preempt(place);
        }
    };
    *machine.recorder.port().preempt.borrow_mut() = Some(Box::new(outside));
    for _ in 0..50 {
        machine.call(Edge::Enter, FUNCTIONS[0]);
        machine.call(Edge::Exit, FUNCTIONS[0]);
    }
    let found = records(&machine.read());
    assert!(found.is_sorted_by_key(|(time, _)| *time));
    let count = |kind: Kind| found.iter().filter(|record| record.1 == kind).count();
    for function in FUNCTIONS.into_iter().take(2) {
        let function = function as u64;
        assert_eq!(count(Kind::Enter(function)), count(Kind::Exit(function)));
    }
    assert_eq!(count(Kind::Enter(FUNCTIONS[0] as u64)), 50);
    assert!(count(Kind::Enter(FUNCTIONS[1] as u64)) >= 200);
}
