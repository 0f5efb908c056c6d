//! Stream mode: a reader consumes packets while the writer records, each on its own processor.

use std::sync::atomic::{AtomicBool, Ordering};

use kymo_device_tests::layout::{Large, LargeBig, Small, SmallBig};
use kymo_device_tests::{Kind, Layouts, Mock, Packet, leak, packets};
use kymo_recorder::Event;
use kymo_recorder::encode::{Functions, Stream};
use kymo_recorder::hot::{Cursor, low};
use kymo_wire::link::Mode;

const TEXT_BASE: usize = 0x1000;

/// A stream shared by two threads.
struct Shared<L> {
    stream: Stream<Mock<L>>,
    cursor: &'static Cursor,
}

// SAFETY: one thread writes, the other calls only what is for a reader.
unsafe impl<L> Sync for Shared<L> {}

impl<L: Layouts> Shared<L> {
    fn new(places: u32) -> &'static Self {
        let bytes = places * 256;
        let words = vec![0u64; bytes as usize / 8].leak();
        let shared = leak(Self {
            stream: Stream::new(),
            cursor: leak(Cursor::new()),
        });
        let functions = Functions {
            text_base: TEXT_BASE,
            shift: 0,
        };
        let memory = (words.as_mut_ptr().cast(), bytes);
        // SAFETY: the memory is new and leaked.
        unsafe {
            shared
                .stream
                .set_up(shared.cursor, memory, 256, 0, functions)
        }
        .expect("the sizes are right");
        shared.stream.set_mode(Mode::Stream);
        shared.stream.set_fast(true);
        shared
    }

    /// Records an event as a driver does: fast path first.
    fn record(&self, now: u64, event: Event) {
        let now_low = low::<Mock<L>>(now);
        // SAFETY: the cursor is that of the stream, and this is the one writer.
        let done = unsafe {
            match event {
                Event::Enter(function) => self.cursor.enter::<Mock<L>>(now_low, function),
                Event::Exit(_) => self.cursor.exit::<Mock<L>>(now_low),
                _ => false,
            }
        };
        if !done {
            self.stream.record(now, event);
        }
    }

    /// Consumes the next packet, if there is one.
    fn take(&self) -> Option<Packet> {
        // SAFETY: this is the one reader, and the slice is not used after `release`.
        unsafe {
            let bytes = self.stream.buffer().next()?;
            let packet = packets(bytes, L::LAYOUT, TEXT_BASE as u64).remove(0);
            self.stream.buffer().release();
            Some(packet)
        }
    }
}

/// Number of calls and markers, which contain consecutive numbers.
const ROUNDS: u32 = 100_000;

fn a_reader_beside_the_writer<L: Layouts + 'static>(places: u32, lazy: bool) -> (u32, u32) {
    let shared = Shared::<L>::new(places);
    let done = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        let done = &done;
        let reader = scope.spawn(move || {
            let mut taken = Vec::new();
            loop {
                let last = done.load(Ordering::Acquire);
                while let Some(packet) = shared.take() {
                    taken.push(packet);
                    if lazy {
                        std::thread::yield_now();
                    }
                }
                if last {
                    return taken;
                }
            }
        });
        let mut now = 0;
        for number in 0..ROUNDS {
            let function = TEXT_BASE + 16 * (number as usize % 100);
            shared.record(now + 1, Event::Enter(function));
            shared.record(now + 3, Event::Marker(number));
            shared.record(now + 6, Event::Exit(function));
            now += 10;
            if !lazy && number % 1000 == 0 {
                // What was recorded shall be seen even if nothing more comes.
                shared.stream.seal();
                while shared.stream.buffer().used() == places {
                    std::thread::yield_now();
                }
            }
        }
        shared.stream.seal();
        // If there was no room to tell the last losses, there is when the reader has been here.
        while shared.stream.buffer().used() != 0 {
            std::thread::yield_now();
        }
        shared.stream.seal();
        done.store(true, Ordering::Release);
        reader.join().expect("what is read is whole")
    });
    let mut next = 0;
    let (mut time, mut records, mut reported) = (0, 0, 0);
    for (n, packet) in taken.iter().enumerate() {
        assert_eq!(
            packet.sequence, n as u32,
            "no packet is lost, or read twice"
        );
        assert!(packet.discarded >= reported, "losses are counted on");
        reported = packet.discarded;
        for record in &packet.records {
            assert!(record.time >= time, "the order is that of time");
            time = record.time;
            if let Kind::Marker(number) = record.kind {
                assert!(number >= next, "marker {number} after {next}");
                assert_eq!(record.time, u64::from(number) * 10 + 3);
                next = number + 1;
            }
        }
        records += packet.records.len() as u32;
    }
    assert_eq!(
        records + reported,
        3 * ROUNDS,
        "what is not there has been counted"
    );
    assert_eq!(reported, shared.stream.figures().discarded);
    (records, reported)
}

#[test]
fn what_a_reader_takes_out_is_whole_and_losses_are_counted() {
    for lazy in [false, true] {
        a_reader_beside_the_writer::<Small>(2, lazy);
        a_reader_beside_the_writer::<SmallBig>(3, lazy);
        a_reader_beside_the_writer::<Large>(7, lazy);
        a_reader_beside_the_writer::<LargeBig>(16, lazy);
    }
}

#[test]
fn without_a_reader_the_oldest_are_kept_until_one_comes() {
    let shared = Shared::<Small>::new(4);
    let mut number = 0;
    let mut write = |count: u32| {
        for _ in 0..count {
            shared.record(u64::from(number), Event::Marker(number));
            number += 1;
        }
    };
    // Seven bytes each.
    let each = (256 - 44) / 7;
    write(4 * each + 10);
    let first = shared.take().expect("a packet is closed");
    assert_eq!((first.sequence, first.discarded), (0, 0));
    assert_eq!(first.records.len() as u32, each);
    // There is room now: what comes is recorded, and says what was lost before it.
    write(3);
    let packets: Vec<Packet> = std::iter::from_fn(|| shared.take()).collect();
    let sequences: Vec<u32> = packets.iter().map(|packet| packet.sequence).collect();
    assert_eq!(sequences, [1, 2, 3], "the newest is still open");
    shared.stream.seal();
    let last = shared.take().expect("it is closed now");
    assert_eq!((last.sequence, last.discarded), (4, 10));
    let markers: Vec<&Kind> = last.records.iter().map(|record| &record.kind).collect();
    let expected = [4 * each + 10, 4 * each + 11, 4 * each + 12].map(Kind::Marker);
    assert_eq!(markers, expected.iter().collect::<Vec<_>>());
    assert!(shared.take().is_none());
    // Losses behind the last packet are reported by an empty one.
    shared.stream.add_discarded(5);
    shared.stream.seal();
    let reported = shared.take().expect("a packet for them");
    assert_eq!((reported.discarded, reported.records.len()), (15, 0));
    shared.stream.seal();
    assert!(shared.take().is_none(), "once");
}
