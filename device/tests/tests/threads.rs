//! Per-thread buffer: signals at every point of a hook, and readers.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kymo_device_tests::layout::Large;
use kymo_device_tests::{Kind, Mock, Packet, hot, leak, packets, packets_of_jumps};
use kymo_recorder::encode::Functions;
use kymo_recorder::gate::Gate;
use kymo_recorder::threads::{Chosen, SIDE_EVENTS, ThreadBuffer, ThreadBuffers, ThreadPort};
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::event::Layout;

#[derive(Clone, Copy)]
struct Thread {
    gate: &'static Gate,
    thread_buffer: &'static ThreadBuffer<Mock<Large>>,
    port: &'static Mock<Large>,
}

fn new_buffer<P: ThreadPort>() -> &'static ThreadBuffer<P> {
    let thread_buffer = leak(ThreadBuffer::new());
    let buffer = vec![0u64; 1 << 11].leak();
    let memory = (buffer.as_mut_ptr().cast(), 1 << 14);
    let functions = Functions {
        text_base: 0x1000,
        shift: 0,
    };
    // SAFETY: the memory is new and leaked.
    unsafe {
        thread_buffer.writer().stream().set_up(
            thread_buffer.cursor(),
            memory,
            1 << 10,
            0,
            functions,
        )
    }
    .expect("the sizes are right");
    thread_buffer.writer().allow_fast(true);
    thread_buffer
}

/// An open gate.
fn open() -> &'static Gate {
    let gate = &hot().gate;
    assert!(gate.claim());
    gate.set_up(false, false);
    gate.set_recording(true, false);
    gate
}

fn read<P: ThreadPort>(thread_buffer: &ThreadBuffer<P>) -> Vec<Packet> {
    // SAFETY: nobody records: there is one thread, or the gate is frozen and the thread buffer was seen
    // outside. (A thread that comes later goes inside, sees the gate, and leaves.)
    unsafe { thread_buffer.seal(u64::MAX >> 8) };
    let mut bytes = Vec::new();
    let mut n = 0;
    // SAFETY: as above.
    while let Some(packet) = unsafe { thread_buffer.writer().stream().buffer().packet(n) } {
        bytes.extend_from_slice(packet);
        n += 1;
    }
    packets(&bytes, Mock::<Large>::LAYOUT, 0x1000)
}

impl Thread {
    fn new() -> Self {
        Self {
            gate: open(),
            thread_buffer: new_buffer(),
            port: leak(Mock::default()),
        }
    }

    fn call(self, edge: Edge, function: usize) {
        self.thread_buffer
            .call(self.port, self.gate, edge, function, 0);
    }

    /// Runs a handler of signal `irq`, with a call in it.
    fn handler(self, irq: u16) {
        self.thread_buffer
            .hook(self.port, self.gate, Event::IsrEnter(irq));
        self.call(Edge::Enter, 0x2000);
        self.call(Edge::Exit, 0x2000);
        self.thread_buffer
            .hook(self.port, self.gate, Event::IsrExit(irq));
    }

    fn preempt(self, preempt: impl FnMut(&'static str) + 'static) {
        *self.port.preempt.borrow_mut() = Some(Box::new(preempt));
    }

    fn kinds(self) -> Vec<Kind> {
        let records: Vec<_> = read(self.thread_buffer)
            .into_iter()
            .flat_map(|p| p.records)
            .collect();
        assert!(records.is_sorted_by_key(|record| record.time));
        records.into_iter().map(|record| record.kind).collect()
    }
}

/// The records of a handler, without those of signals that interrupt it.
fn handled(irq: u16) -> [Kind; 4] {
    [
        Kind::IsrEnter(irq),
        Kind::Enter(0x2000),
        Kind::Exit(0x2000),
        Kind::IsrExit(irq),
    ]
}

/// Removes the records of handler `irq`, which are contiguous.
fn take_out(kinds: &mut Vec<Kind>, irq: u16, point: (usize, usize)) {
    let begin = kinds
        .iter()
        .position(|kind| *kind == Kind::IsrEnter(irq))
        .unwrap_or_else(|| panic!("the handler is recorded; struck at {point:?}"));
    let taken: Vec<Kind> = kinds.splice(begin..begin + 4, []).collect();
    assert_eq!(taken, handled(irq), "struck at {point:?}");
}

/// Runs two calls with signal 1 at the `n`th point, and signal 2 at the `m`th point after that. Returns false if there
/// is no such point.
fn struck_at(n: usize, m: usize) -> bool {
    let thread = Thread::new();
    let struck = Rc::new(Cell::new(false));
    let (did, mut left) = (struck.clone(), n);
    thread.preempt(move |_| {
        if left > 0 {
            left -= 1;
            return;
        }
        left = usize::MAX;
        let (did, mut left) = (did.clone(), m);
        // From now on the second signal waits for its point.
        thread.preempt(move |_| {
            if left > 0 {
                left -= 1;
            } else {
                left = usize::MAX;
                did.set(true);
                thread.handler(2);
            }
        });
        thread.handler(1);
    });
    for function in [0x1100, 0x1200] {
        thread.call(Edge::Enter, function);
        thread.call(Edge::Exit, function);
    }
    thread.port.preempt.borrow_mut().take();
    // What came behind the last hook's last look is found by the next.
    thread.call(Edge::Enter, 0x1300);
    if !struck.get() {
        return false;
    }
    let mut kinds = thread.kinds();
    take_out(&mut kinds, 2, (n, m));
    take_out(&mut kinds, 1, (n, m));
    let calls = [
        Kind::Enter(0x1100),
        Kind::Exit(0x1100),
        Kind::Enter(0x1200),
        Kind::Exit(0x1200),
        Kind::Enter(0x1300),
    ];
    assert_eq!(kinds, calls, "struck at {n}, {m}");
    true
}

/// The thread is within a call of the new stopper that did not meet its condition.
#[test]
fn calls_of_an_earlier_stopper_do_not_count() {
    const INNER: usize = 0x1200;
    const OUTER: usize = 0x1300;
    let thread = Thread::new();
    let stopper = &thread.gate.conditions().expect("the part").stopper;
    stopper.set(0x2000, 0x2100, 0, 0);
    let ends = |edge, function| {
        thread.call(edge, function);
        let site = thread.gate.site(0x2010);
        thread.thread_buffer.follow_stopper(edge, function, site)
    };
    thread.gate.set_stopper(INNER);
    thread.call(Edge::Enter, OUTER);
    assert!(!ends(Edge::Enter, INNER));
    thread.gate.set_stopper(OUTER);
    thread.gate.call_attention();
    thread.call(Edge::Exit, INNER);
    assert!(!ends(Edge::Exit, OUTER));
    assert!(!ends(Edge::Enter, OUTER));
    assert!(ends(Edge::Exit, OUTER));
}

#[test]
fn signals_at_any_point_and_signals_in_signals_are_recorded_in_order() {
    // Miri takes a second for what otherwise takes none.
    let step = if cfg!(miri) { 5 } else { 1 };
    let mut pairs = 0;
    for n in (0..13).step_by(step) {
        for m in (0..).step_by(step) {
            if !struck_at(n, m) {
                break;
            }
            pairs += 1;
        }
    }
    assert!(pairs > 150 / step / step, "only {pairs} pairs of points");
}

#[test]
fn more_signals_than_the_side_buffer_holds_are_counted() {
    let thread = Thread::new();
    let mut once = true;
    thread.preempt(move |place| {
        if place == "after" && std::mem::take(&mut once) {
            for _ in 0..SIDE_EVENTS + 9 {
                thread.call(Edge::Enter, 0x2000);
            }
        }
    });
    thread.call(Edge::Enter, 0x1100);
    thread.port.preempt.borrow_mut().take();
    assert_eq!(thread.kinds().len(), SIDE_EVENTS + 1);
    assert_eq!(
        thread.thread_buffer.writer().stream().figures().discarded,
        9
    );
}

#[test]
fn a_frozen_gate_is_seen_from_inside_and_what_waits_is_not_lost() {
    let thread = Thread::new();
    thread.call(Edge::Enter, 0x1100);
    // The reader freezes when the writer has said that it is inside, but has not looked yet.
    let mut once = true;
    thread.preempt(move |place| {
        if place == "inside" && std::mem::take(&mut once) {
            thread.gate.freeze(true);
        }
    });
    thread.call(Edge::Exit, 0x1100);
    thread.port.preempt.borrow_mut().take();
    assert!(!thread.thread_buffer.inside());
    assert_eq!(thread.thread_buffer.lost(), 1);
    assert_eq!(thread.kinds(), [Kind::Enter(0x1100)]);
    thread.gate.freeze(false);
    thread.call(Edge::Enter, 0x1200);
    let packets = read(thread.thread_buffer);
    assert_eq!(packets.len(), 2);
    assert_eq!(thread.thread_buffer.lost(), 0);
    assert_eq!(packets[1].records[0].kind, Kind::Enter(0x1200));
    assert_eq!(packets.iter().map(|p| p.discarded).max(), Some(1));
}

/// A real clock for real threads.
struct Real;

impl Target for Real {
    const LAYOUT: Layout = Mock::<Large>::LAYOUT;
}

impl ThreadPort for Real {
    fn now(&self) -> u64 {
        use std::sync::OnceLock;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }

    fn fenced(&self) -> bool {
        true
    }
}

#[test]
fn a_reader_finds_whole_packets_while_threads_record() {
    let gate = open();
    let thread_buffers: &'static ThreadBuffers<Real> = leak(ThreadBuffers::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let thread_buffer = new_buffer::<Real>();
            assert!(thread_buffers.number().is_some());
            thread_buffers.add(thread_buffer);
            let stop = &stop;
            scope.spawn(move || {
                let mut function = 0x1000;
                while !stop.load(Ordering::Relaxed) {
                    function = 0x1000 + (function + 16) % 0x1_0000;
                    thread_buffer.call(&Real, gate, Edge::Enter, function, 0);
                    thread_buffer.call(&Real, gate, Edge::Exit, function, 0);
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut rounds = 0;
        // An assertion that fails must not leave the threads running.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            while rounds < if cfg!(miri) { 2 } else { 20 } && Instant::now() < deadline {
                gate.freeze(true);
                std::sync::atomic::fence(Ordering::SeqCst);
                let mut records = 0;
                for thread_buffer in thread_buffers.iter() {
                    while thread_buffer.inside() {
                        std::thread::yield_now();
                    }
                    // The decoder asserts that everything is whole and in order of time.
                    let packets = read(thread_buffer);
                    let sequences: Vec<u32> = packets.iter().map(|p| p.sequence).collect();
                    assert!(sequences.windows(2).all(|pair| pair[1] == pair[0] + 1));
                    records += packets.iter().map(|p| p.records.len()).sum::<usize>();
                }
                gate.freeze(false);
                rounds += usize::from(records > 0);
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        assert!(result.is_ok() && rounds > 0, "{rounds} rounds with records");
    });
}

/// The mark of a thread's end does not displace records, and does not begin a trace of its own.
#[test]
fn the_end_of_a_thread_is_marked_beside_its_records_only() {
    let ends = |thread_buffer: &ThreadBuffer<Mock<Large>>| {
        // SAFETY: the thread has ended, and there is no reader.
        unsafe { thread_buffer.end(1 << 40) };
        let packets = read(thread_buffer);
        let records = packets.iter().flat_map(|packet| &packet.records);
        let marks = records.filter(|record| matches!(record.kind, Kind::SwitchedOut(_)));
        (marks.count(), packets)
    };
    let thread = Thread::new();
    thread.call(Edge::Enter, 0x1100);
    assert_eq!(ends(thread.thread_buffer).0, 1, "beside its call");

    let cleared = Thread::new();
    cleared.call(Edge::Enter, 0x1100);
    // SAFETY: one thread, which is outside.
    unsafe { cleared.thread_buffer.seal(1 << 30) };
    cleared.thread_buffer.writer().stream().clear();
    let (marks, packets) = ends(cleared.thread_buffer);
    assert_eq!(
        (marks, packets.len()),
        (0, 0),
        "after its events were cleared"
    );

    // All slots hold records, and a dump has closed the newest packet.
    let full = Thread::new();
    for n in 0..20_000 {
        full.call(Edge::Enter, 0x1100 + n % 8);
        full.call(Edge::Exit, 0x1100 + n % 8);
    }
    let before = read(full.thread_buffer);
    let (marks, after) = ends(full.thread_buffer);
    assert_eq!((marks, after.len()), (0, before.len()));
    assert_eq!(
        after.first().map(|it| it.sequence),
        before.first().map(|it| it.sequence)
    );
}

/// A thread that fills two records, and ends at the `n`th point of its last hook; returns the number of recorded
/// events, and of lost ones. `None` if there is no such point.
fn ended_at(n: usize) -> Option<(usize, u32)> {
    let thread = Thread::new();
    let Thread {
        thread_buffer,
        port,
        gate,
    } = thread;
    assert!(!thread_buffer.needs_seal());
    thread.call(Edge::Enter, 0x1100);
    for length in [8, 4] {
        assert!(!thread_buffer.reserve(port, gate, length).is_null());
    }
    assert!(thread_buffer.needs_seal() && thread_buffer.blocked() == 0);
    let mut left = n;
    thread.preempt(move |_| {
        if left == 0 {
            for reported in [2, 1] {
                thread.call(Edge::Enter, 0x2000);
                assert_eq!(thread_buffer.blocked(), reported, "each is reported once");
            }
            std::panic::resume_unwind(Box::new("the thread ends"));
        }
        left -= 1;
    });
    let last = AssertUnwindSafe(|| thread.call(Edge::Exit, 0x1100));
    let ended = std::panic::catch_unwind(last).is_err();
    thread.port.preempt.borrow_mut().take();
    if !ended || !thread_buffer.inside() {
        return None;
    }
    assert!(!thread_buffer.has_ended() && thread_buffer.writer().stream().is_reserved());
    // SAFETY: it has ended, and there is no reader.
    unsafe { thread_buffer.end(1 << 40) };
    assert!(thread_buffer.has_ended() && !thread_buffer.inside() && !thread_buffer.needs_seal());
    assert!(!thread_buffer.writer().stream().is_reserved());
    let mut bytes = Vec::new();
    // SAFETY: as above.
    while let Some(packet) = unsafe {
        thread_buffer
            .writer()
            .stream()
            .buffer()
            .packet(bytes.len() as u32)
    } {
        bytes.push(packet.to_vec());
    }
    let packets = packets_of_jumps(&bytes.concat(), Mock::<Large>::LAYOUT, 0x1000);
    let records = packets.iter().flat_map(|packet| &packet.records);
    let events = records.filter(|record| !matches!(record.kind, Kind::Block { .. }));
    Some((events.count(), packets.last().expect("a packet").discarded))
}

#[test]
fn a_thread_that_ended_in_a_hook_leaves_a_whole_stream_and_what_it_lost_is_counted() {
    let points: Vec<_> = (0..).map_while(ended_at).collect();
    assert!(points.len() >= 2, "{points:?}");
    for (recorded, lost) in points {
        // The hook's own, which may have been recorded, and the two that were being filled.
        assert_eq!(lost, 3);
        assert!(
            (3..=4).contains(&recorded),
            "{recorded} of two calls and two of a handler"
        );
    }
}

#[test]
fn a_reader_comes_back_to_the_buffers_that_it_chose_and_knows_which_are_new() {
    let thread_buffers = leak(ThreadBuffers::new());
    let add = |owner| {
        let thread_buffer: &'static ThreadBuffer<Mock<Large>> = new_buffer();
        thread_buffer.set_owner(1, owner);
        thread_buffers.add(thread_buffer);
    };
    let none = thread_buffers.choose(|_| true);
    (1..=5).for_each(add);
    let chosen = thread_buffers.choose(|thread_buffer| thread_buffer.owner() % 2 == 1);
    (6..=7).for_each(add);
    let owners = |chosen: &Chosen<_>| chosen.iter().map(ThreadBuffer::owner).collect::<Vec<_>>();
    assert!(none.is_empty() && !chosen.is_empty());
    assert_eq!(owners(&chosen), [5, 3, 1]);
    assert!(
        thread_buffers
            .since(&chosen)
            .map(ThreadBuffer::owner)
            .eq([7, 6])
    );
    assert!(
        thread_buffers
            .since(&none)
            .map(ThreadBuffer::owner)
            .eq((1..=7).rev())
    );
    assert_eq!(
        owners(&thread_buffers.choose(|thread_buffer| thread_buffer.owner() > 5)),
        [7, 6]
    );
}
