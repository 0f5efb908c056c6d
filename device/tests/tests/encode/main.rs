//! Round trip of records in every layout, by the fast and the slow path, at any fill level of the buffer.

mod random;

use std::collections::BTreeMap;

use kymo_device_tests::layout::{Large, LargeBig, Small, SmallBig};
use kymo_device_tests::{Kind, Layouts, Mock, Packet, Random, Record, leak, packets};
use kymo_recorder::Event;
use kymo_recorder::encode::{Functions, Stream};
use kymo_recorder::hot::{Cursor, low};
use kymo_wire::event::{Cause, EventId, Layout};
use kymo_wire::link::{Fault, Mode};

use random::{Program, event, event_of, later};

const TEXT_BASE: u64 = 0x1_0000;

/// A stream, and its cursor.
struct Recorder<L> {
    stream: Stream<Mock<L>>,
    cursor: &'static Cursor,
    layout: Layout,
    /// Number of events written by the fast path.
    usual: std::cell::Cell<usize>,
}

fn recorder<L: Layouts>(buffer: u32, packet: u32, mode: Mode) -> Recorder<L> {
    let words = vec![0u64; buffer as usize / 8].leak();
    let recorder = Recorder {
        stream: Stream::new(),
        cursor: leak(Cursor::new()),
        layout: L::LAYOUT,
        usual: std::cell::Cell::new(0),
    };
    let memory = (words.as_mut_ptr().cast(), buffer);
    // SAFETY: the memory is new and leaked.
    unsafe {
        recorder
            .stream
            .set_up(recorder.cursor, memory, packet, 3, functions(0))
    }
    .expect("the sizes are right");
    recorder.stream.set_mode(mode);
    recorder
}

fn functions(shift: u32) -> Functions {
    Functions {
        text_base: TEXT_BASE as usize,
        shift,
    }
}

impl<L: Layouts> Recorder<L> {
    /// Records an event as a driver does: fast path first, if it is open.
    fn record(&self, now: u64, event: Event) {
        let low = low::<Mock<L>>(now);
        // The driver's tick sees to this.
        if now - self.stream.last().min(now) > 1 << 31 {
            self.stream.suspend();
        }
        // SAFETY: the cursor is that of the stream, which has memory below its end.
        let done = unsafe {
            match event {
                Event::Enter(function) => self.cursor.enter::<Mock<L>>(low, function),
                Event::Exit(function) => {
                    self.cursor.exit::<Mock<L>>(low)
                        || self.cursor.exit_named::<Mock<L>>(low, function)
                }
                _ => false,
            }
        };
        if done {
            self.usual.set(self.usual.get() + 1);
            return;
        }
        self.stream.record(now, event);
        // What a writer does, for the stream to know it.
        match event {
            Event::SwitchedIn(thread) | Event::Context { thread, .. } => {
                self.stream.set_thread(thread);
            }
            Event::SwitchedOut(_) => self.stream.set_thread(0),
            _ => {}
        }
    }

    /// All packets, as they would be sent.
    fn read(&self) -> Vec<Packet> {
        self.stream.seal();
        let mut bytes = Vec::new();
        let mut n = 0;
        // SAFETY: the stream is sealed, and nobody writes.
        while let Some(packet) = unsafe { self.stream.buffer().packet(n) } {
            bytes.extend_from_slice(packet);
            n += 1;
        }
        packets(&bytes, self.layout, TEXT_BASE)
    }
}

fn records(packets: &[Packet]) -> Vec<Record> {
    packets.iter().flat_map(|p| p.records.clone()).collect()
}

/// Records random events, and checks all invariants of the result. Returns the number of records of each id.
fn random_run<L: Layouts>(seed: u64, mode: Mode, fast: bool) -> BTreeMap<u8, usize> {
    let mut random = Random::new(seed);
    let packet = 128 + 8 * random.below(40) as u32;
    let places = 2 + random.below(20) as u32;
    let recorder = recorder::<L>(packet * places, packet, mode);
    recorder.stream.set_fast(fast);
    let mut now = random.number() >> random.below(64);
    let mut expected = Vec::new();
    let mut program = Program::default();
    for _ in 0..random.below(2000) {
        let next = later::<L>(&mut random, now);
        // The whole clock has 64 bits; it does not turn over.
        now = next.max(now);
        let (event, kind) = event::<L>(&mut random, &mut program);
        recorder.record(now, event);
        expected.push(Record { time: now, kind });
    }
    let figures = recorder.stream.figures();
    let packets = recorder.read();
    let found = records(&packets);
    let name = std::any::type_name::<L>();
    match mode {
        Mode::Overwrite => {
            assert_eq!(figures.discarded, 0, "{name} seed {seed}");
            assert!(
                expected.ends_with(&found),
                "{name} seed {seed}: not the newest events"
            );
        }
        Mode::Fixed | Mode::Stream => {
            assert_eq!(
                figures.discarded as usize,
                expected.len() - found.len(),
                "{name} seed {seed}"
            );
            assert!(
                expected.starts_with(&found),
                "{name} seed {seed}: not the oldest events"
            );
            if let Some(last) = packets.last()
                && mode == Mode::Fixed
            {
                assert_eq!(last.discarded, figures.discarded);
            }
        }
    }
    assert!(fast || recorder.usual.get() == 0);
    assert!(!fast || recorder.usual.get() != 0 || expected.len() < 100);
    let first = figures.packets - packets.len() as u32;
    for (n, packet) in packets.iter().enumerate() {
        assert_eq!(packet.sequence, first + n as u32, "{name} seed {seed}");
        assert_eq!(packet.cpu, 3);
        assert!(!packet.records.is_empty(), "an empty packet");
    }
    if figures.packets <= places && figures.discarded == 0 {
        assert_eq!(found, expected, "{name} seed {seed}: nothing had to go");
    }
    // A buffer of the size that was needed holds everything.
    let needed = u32::try_from(figures.needed).expect("small runs");
    let needed = needed.max(2 * packet);
    let larger = self::recorder::<L>(needed, packet, Mode::Fixed);
    for record in &expected {
        larger.record(record.time, event_of(&record.kind));
    }
    assert_eq!(
        larger.stream.figures().discarded,
        0,
        "{name} seed {seed} {mode:?}"
    );
    let packets = larger.read();
    assert_eq!(records(&packets), expected);
    let mut ids = BTreeMap::new();
    for (id, count) in packets.iter().flat_map(|packet| &packet.ids) {
        *ids.entry(*id).or_default() += count;
    }
    ids
}

#[test]
fn random_events_read_back_in_every_layout() {
    let mut ids = BTreeMap::new();
    for seed in 0..25 {
        for mode in [Mode::Overwrite, Mode::Fixed, Mode::Stream] {
            for fast in [false, true] {
                for found in [
                    random_run::<Small>(seed, mode, fast),
                    random_run::<SmallBig>(seed, mode, fast),
                    random_run::<Large>(seed, mode, fast),
                    random_run::<LargeBig>(seed, mode, fast),
                ] {
                    for (id, count) in found {
                        *ids.entry(id).or_default() += count;
                    }
                }
            }
        }
    }
    let others = [
        // Interrupts are told to the stream by its writer.
        EventId::IsrExit,
        EventId::EnterFrom,
        EventId::EnterFarFrom,
        EventId::Metadata,
        EventId::Block,
        // Duration mode writes these in the place of entries and exits.
        EventId::Call,
        EventId::CallFar,
        EventId::CallOpen,
        EventId::CallLost,
    ];
    for id in EventId::ALL {
        let found: usize = ids.get(&(id as u8)).copied().unwrap_or(0);
        assert_eq!(found == 0, others.contains(&id), "{id:?}: {found}");
    }
}

/// The bytes that `events` take after a first record.
fn bytes_of<L: Layouts>(fast: bool, events: &[(u64, Event)]) -> u32 {
    let recorder = recorder::<L>(8192, 4096, Mode::Fixed);
    recorder.stream.set_fast(fast);
    recorder.record(0, Event::Marker(0));
    let before = recorder.stream.figures().bytes;
    let mut now = 0;
    for &(after, event) in events {
        now += after;
        recorder.record(now, event);
    }
    recorder.stream.figures().bytes - before
}

#[test]
fn records_are_as_short_as_they_can_be() {
    let enter = Event::Enter(0x1_0000);
    let exit = Event::Exit(0x1_0000);
    for fast in [false, true] {
        let small = |events: &[_]| bytes_of::<Small>(fast, events);
        assert_eq!(small(&[(255, enter), (127, exit)]), 3 + 1);
        assert_eq!(small(&[(256, enter), (128, exit)]), 4 + 2);
        assert_eq!(small(&[(4095, enter), (8191, exit)]), 4 + 2);
        assert_eq!(small(&[(4096, enter), (8192, exit)]), 8 + 3 + 8 + 1);
        let at = |number: usize| Event::Enter(0x1_0000 + (number << 1));
        assert_eq!(small(&[(255, at((1 << 13) - 1))]), 3);
        assert_eq!(small(&[(0, at(1 << 13))]), 4);
        assert_eq!(small(&[(4096, at((1 << 17) - 1))]), 8 + 4);
        assert_eq!(small(&[(65535, at(1 << 17))]), 3 + 4);
        assert_eq!(small(&[(65536, at(1 << 17))]), 8 + 3 + 4);
        // Its enter is not in the packet.
        assert_eq!(small(&[(65535, exit)]), 3 + 3);
        let far = Event::Exit(0x1_0000 + (1 << 25));
        assert_eq!(small(&[(65535, far)]), 3 + 4);
        let switch = [
            (0, Event::SwitchedIn(0x2000)),
            (9, Event::SwitchedOut(0x2000)),
        ];
        assert_eq!(small(&switch), 3 + 4 + 3);
        assert_eq!(small(&[(0, Event::IsrEnter(255))]), 4);
        assert_eq!(small(&[(0, Event::IsrEnter(256))]), 5);
        assert_eq!(small(&[(0, Event::Marker(7))]), 7);

        let large = |events: &[_]| bytes_of::<Large>(fast, events);
        let wrap = |bits: u32| 1u64 << bits;
        assert_eq!(large(&[(wrap(21) - 1, enter), (wrap(15) - 1, exit)]), 6 + 2);
        assert_eq!(large(&[(wrap(21), enter), (wrap(15), exit)]), 8 + 4);
        assert_eq!(large(&[(wrap(29) - 1, enter), (wrap(29) - 1, exit)]), 8 + 4);
        assert_eq!(large(&[(wrap(29), enter), (wrap(29), exit)]), 8 + 6 + 8 + 2);
        let at = |number: usize| Event::Enter(0x1_0000 + number);
        assert_eq!(large(&[(0, at(1 << 24))]), 8);
        assert_eq!(large(&[(65535, at(1 << 32))]), 3 + 8);
        assert_eq!(large(&[(65536, at(1 << 32))]), 8 + 3 + 8);
        assert_eq!(large(&[(65535, exit)]), 3 + 4);
        assert_eq!(large(&[(65536, exit)]), 8 + 3 + 4);
        assert_eq!(large(&switch), 3 + 8 + 3);
        assert_eq!(large(&[(0, Event::IsrEnter(255))]), 4);
        assert_eq!(large(&[(0, Event::Marker(7))]), 7);
    }
}

#[test]
fn a_switch_to_a_neighbour_of_the_first_thread_takes_eight_bytes() {
    a_switch_takes_eight_bytes::<Small>(4);
    a_switch_takes_eight_bytes::<SmallBig>(4);
    a_switch_takes_eight_bytes::<Large>(8);
    a_switch_takes_eight_bytes::<LargeBig>(8);
}

/// The same for addresses of this size in bytes.
fn a_switch_takes_eight_bytes<L: Layouts>(word: u32) {
    let recorder = recorder::<L>(8192, 4096, Mode::Fixed);
    recorder.record(0, Event::SwitchedIn(0x2000_1000));
    recorder.stream.seal();
    recorder.record(1, Event::Marker(0));
    let before = recorder.stream.figures().bytes;
    recorder.record(2, Event::SwitchedOut(0x2000_1000));
    recorder.record(3, Event::SwitchedIn(0x2000_1000 - (1 << 17)));
    assert_eq!(recorder.stream.figures().bytes - before, 8);
    recorder.record(4, Event::SwitchedOut(0x2000_1000 - (1 << 17)));
    recorder.record(5, Event::SwitchedIn(0x2000_1000 + (1 << 17)));
    assert_eq!(recorder.stream.figures().bytes - before, 8 + 3 + 3 + word);
}

#[test]
fn functions_that_are_linked_far_apart_have_small_numbers() {
    let recorder = Recorder::<Small> {
        stream: Stream::new(),
        cursor: leak(Cursor::new()),
        layout: Layout {
            function_shift: 4,
            ..Small::LAYOUT
        },
        usual: std::cell::Cell::new(0),
    };
    let words = vec![0u64; 512].leak();
    let memory = (words.as_mut_ptr().cast(), 4096);
    // SAFETY: the memory is new and leaked.
    unsafe {
        recorder
            .stream
            .set_up(recorder.cursor, memory, 1024, 0, functions(4))
    }
    .expect("the sizes are right");
    recorder.stream.set_fast(true);
    recorder.record(0, Event::Marker(0));
    let before = recorder.stream.figures().bytes;
    let last = TEXT_BASE as usize + 0x1_FFF0;
    recorder.record(1, Event::Enter(last));
    assert_eq!(recorder.stream.figures().bytes - before, 3);
    recorder.record(2, Event::Enter(last - 8));
    assert_eq!(
        recorder.stream.figures().bytes - before,
        3 + 7,
        "what is not aligned has no number"
    );
    recorder.record(3, Event::Exit(last - 8));
    recorder.record(4, Event::Exit(last));
    recorder.record(5, Event::Exit(last - 8));
    let kinds: Vec<Kind> = records(&recorder.read())
        .into_iter()
        .map(|record| record.kind)
        .collect();
    let (last, odd) = (last as u64, last as u64 - 8);
    assert_eq!(
        kinds[1..],
        [
            Kind::Enter(last),
            Kind::Enter(odd),
            Kind::Exit(odd),
            Kind::Exit(last),
            Kind::Exit(odd)
        ]
    );
}

#[test]
fn an_exit_is_named_only_where_its_enter_is_not_known() {
    let recorder = recorder::<Small>(32 << 10, 2048, Mode::Fixed);
    recorder.stream.set_fast(true);
    let (main, work) = (0x1_0100, 0x1_0200);
    let named = |events: &[Event]| {
        let before = recorder.read().len();
        recorder.record(1, Event::Enter(main));
        recorder.record(1, Event::Enter(work));
        for event in events {
            recorder.record(1, *event);
        }
        recorder.record(1, Event::Exit(work));
        recorder.record(1, Event::Exit(main));
        let packet = recorder.read().split_off(before).remove(0);
        let kinds: Vec<Kind> = packet.records.into_iter().map(|r| r.kind).collect();
        assert!(kinds.ends_with(&[Kind::Exit(work as u64), Kind::Exit(main as u64)]));
        packet.ids.get(&4).copied().unwrap_or(0)
    };
    let context = |thread| Event::Context {
        thread,
        priority: 1,
        mode: 0,
    };
    let recording = |on| Event::Recording {
        on,
        cause: Cause::Command,
    };
    assert_eq!(named(&[]), 0);
    assert_eq!(named(&[Event::Setjmp(8)]), 0);
    assert_eq!(named(&[Event::IsrEnter(3), Event::IsrExit(3)]), 0);
    assert_eq!(named(&[Event::Longjmp(8)]), 2);
    assert_eq!(named(&[Event::SwitchedIn(0x2000)]), 2);
    assert_eq!(named(&[context(0x2000)]), 0, "the same thread");
    assert_eq!(named(&[context(0x3000)]), 2);
    assert_eq!(named(&[Event::SwitchedOut(0x3000)]), 2);
    assert_eq!(named(&[recording(true)]), 2);
    assert_eq!(named(&[recording(false)]), 0);
}

#[test]
fn time_that_goes_back_stands_still_and_is_counted() {
    let stream = recorder::<Large>(4096, 1024, Mode::Overwrite);
    stream.record(1000, Event::Marker(1));
    stream.record(900, Event::Enter(0x1_0000));
    stream.record(1001, Event::Marker(2));
    let times: Vec<u64> = records(&stream.read()).iter().map(|r| r.time).collect();
    assert_eq!(times, [1000, 1000, 1001]);
    assert_eq!(stream.stream.figures().backward, 1);
}

#[test]
fn recording_goes_on_in_a_new_packet_after_a_dump() {
    let stream = recorder::<Small>(4096, 1024, Mode::Overwrite);
    stream.record(1, Event::Marker(1));
    assert_eq!(records(&stream.read()).len(), 1);
    stream.stream.add_discarded(5);
    stream.record(2, Event::Marker(2));
    let packets = stream.read();
    assert_eq!(records(&packets).len(), 2, "a dump takes nothing away");
    let discarded: Vec<u32> = packets.iter().map(|p| p.discarded).collect();
    assert_eq!(discarded, [0, 5], "the loss stands where it happened");
    stream.stream.clear();
    assert_eq!(stream.read(), []);
    stream.record(3, Event::Marker(3));
    assert_eq!(stream.read()[0].sequence, 0);
    assert_eq!(stream.stream.figures().discarded, 0);
}

#[test]
fn unusable_buffers_are_refused() {
    let words = vec![0u64; 1024].leak();
    let buffer: *mut u8 = words.as_mut_ptr().cast();
    for (at, size, packet, error) in [
        (std::ptr::null_mut(), 1024, 512, Fault::NoBuffer.of(0)),
        (
            buffer.wrapping_add(4),
            1024,
            512,
            Fault::BufferAlignment.of(buffer as usize + 4),
        ),
        (buffer, 1024, 500, Fault::PacketSize.of(500)),
        (buffer, 1024, 0, Fault::PacketSize.of(0)),
        (buffer, 1024, 120, Fault::PacketSize.of(120)),
        (buffer, 512, 512, Fault::BufferSize.of(512)),
        (buffer, 1280, 512, Fault::BufferSize.of(1280)),
    ] {
        let stream = Stream::<Mock<Small>>::new();
        // SAFETY: the memory is leaked; where it is not there the call fails.
        let result = unsafe {
            let cursor = leak(Cursor::new());
            stream.set_up(cursor, (at, size), packet, 0, functions(0))
        };
        assert_eq!(result, Err(error));
        stream.record(1, Event::Marker(1));
        assert_eq!(
            stream.figures().discarded,
            1,
            "without memory all is lost, and counted"
        );
    }
}
