//! Duration mode of a thread: signals at every point of its hooks, jumps, readers, and calls whose exit is missing.

use std::cell::Cell;
use std::rc::Rc;

use kymo_device_tests::layout::Large;
use kymo_device_tests::{Kind, Mock, Packet, hot, leak, packets};
use kymo_recorder::duration::{Control, Frame};
use kymo_recorder::encode::Functions;
use kymo_recorder::gate::Gate;
use kymo_recorder::threads::ThreadBuffer;
use kymo_recorder::{Edge, Event, Target};
use kymo_wire::event::{Cause, PacketHeader};

/// Frames of the shadow stack; the first is not used for a call.
const DEPTH: u32 = 10;

const CALL: u8 = 27;
const OPEN: u8 = 29;
const LOST: u8 = 30;

#[derive(Clone, Copy)]
struct Thread {
    gate: &'static Gate,
    control: &'static Control,
    thread_buffer: &'static ThreadBuffer<Mock<Large>>,
    port: &'static Mock<Large>,
}

impl Thread {
    /// Creates a thread that records calls of at least this many ticks.
    fn new(threshold: usize) -> Self {
        let gate = &hot().gate;
        assert!(gate.claim());
        gate.set_up(false, false);
        gate.set_recording(true, false);
        let thread_buffer: &'static ThreadBuffer<Mock<Large>> = leak(ThreadBuffer::new());
        let buffer = vec![0u64; 1 << 11].leak();
        let functions = Functions {
            text_base: 0x1000,
            shift: 0,
        };
        let stream = thread_buffer.writer().stream();
        // SAFETY: the memory is new and leaked.
        unsafe {
            stream.set_up(
                thread_buffer.cursor(),
                (buffer.as_mut_ptr().cast(), 1 << 14),
                1 << 10,
                0,
                functions,
            )
        }
        .expect("the sizes are right");
        stream.belong_to(77);
        let words = Frame::BYTES / size_of::<u64>() * DEPTH as usize;
        let frames = vec![0u64; words].leak().as_mut_ptr().cast();
        // SAFETY: the memory is new, all zero, and leaked.
        let control: &'static Control = leak(unsafe { Control::new(frames, 1, DEPTH) });
        control.settings.set_threshold(threshold);
        thread_buffer.give_duration(control);
        Self {
            gate,
            control,
            thread_buffer,
            port: leak(Mock::default()),
        }
    }

    fn call(self, edge: Edge, function: usize) {
        self.thread_buffer
            .call_in_duration(self.port, self.gate, edge, function, 0);
    }

    fn enter(self, function: usize) {
        self.call(Edge::Enter, function);
    }

    fn exit(self, function: usize) {
        self.call(Edge::Exit, function);
    }

    fn hook(self, event: Event) {
        self.thread_buffer.hook(self.port, self.gate, event);
    }

    /// The current time.
    fn now(self) -> u64 {
        use kymo_recorder::threads::ThreadPort as _;
        self.port.now()
    }

    /// Nested calls of a handler.
    fn handler(self) {
        self.enter(0x2000);
        self.enter(0x2100);
        self.exit(0x2100);
        self.exit(0x2000);
    }

    fn packets(self) -> Vec<Packet> {
        // SAFETY: nobody records: there is one thread.
        unsafe { self.thread_buffer.seal(u64::MAX >> 8) };
        let mut bytes = Vec::new();
        let mut n = 0;
        // SAFETY: as above.
        while let Some(packet) = unsafe { self.thread_buffer.writer().stream().buffer().packet(n) }
        {
            bytes.extend_from_slice(packet);
            n += 1;
        }
        let packets = packets(&bytes, Mock::<Large>::LAYOUT, 0x1000);
        assert!(
            packets
                .iter()
                .all(|packet| packet.flags & PacketHeader::FLAG_CALLS != 0)
        );
        packets
    }

    /// The recorded calls.
    fn calls(self) -> Vec<Call> {
        let records = self.packets().into_iter().flat_map(|packet| packet.records);
        let calls = records.filter_map(|record| match record.kind {
            Kind::Call {
                how,
                function,
                duration,
                own,
                thread,
            } => {
                assert_eq!(thread, 77);
                Some(Call {
                    how,
                    function,
                    begin: record.time - duration,
                    end: record.time,
                    own,
                })
            }
            Kind::Recording { .. } => None,
            other => panic!("{other:?}"),
        });
        calls.collect()
    }

    fn shape(self) -> Vec<(u8, u64)> {
        let calls = self.calls().into_iter();
        calls.map(|call| (call.how, call.function)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Call {
    how: u8,
    function: u64,
    begin: u64,
    end: u64,
    own: u64,
}

/// Checks that each call's self time is its duration minus those of its callees.
fn check_self_times(calls: &[Call]) {
    for (n, call) in calls.iter().enumerate() {
        let inside = |other: &&Call| other.begin >= call.begin && other.end <= call.end;
        let mut callees = 0;
        let mut begin = u64::MAX;
        // From the last that ended backwards: what ends in another callee is not its own.
        for other in calls[..n].iter().rev().filter(inside) {
            if other.end <= begin {
                callees += other.end - other.begin;
                begin = other.begin;
            }
        }
        assert_eq!(
            call.own,
            call.end - call.begin - callees,
            "{call:?} of {calls:?}"
        );
    }
}

#[test]
fn calls_are_recorded_at_their_ends_with_their_self_times() {
    let thread = Thread::new(0);
    thread.enter(0x1100);
    thread.enter(0x1200);
    thread.exit(0x1200);
    thread.enter(0x1300);
    thread.enter(0x1200);
    thread.exit(0x1200);
    thread.exit(0x1300);
    thread.exit(0x1100);
    let calls = thread.calls();
    let functions: Vec<u64> = calls.iter().map(|call| call.function).collect();
    assert_eq!(functions, [0x1200, 0x1200, 0x1300, 0x1100]);
    assert!(calls.iter().all(|call| call.how == CALL));
    check_self_times(&calls);
}

#[test]
fn short_calls_leave_nothing_but_what_their_caller_did_not_take_itself() {
    let thread = Thread::new(30);
    thread.enter(0x1100);
    for _ in 0..100 {
        thread.enter(0x1200);
        thread.exit(0x1200);
    }
    thread.exit(0x1100);
    let calls = thread.calls();
    let [call] = calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!(call.function, 0x1100);
    let all = call.end - call.begin;
    assert!(all >= 200 && call.own < all && call.own > 0, "{call:?}");
}

/// Signals at the `n`th point of two calls; false if there is no such point.
fn struck_at(n: usize) -> bool {
    let thread = Thread::new(0);
    let struck = Rc::new(Cell::new(false));
    let (did, mut left) = (struck.clone(), n);
    *thread.port.preempt.borrow_mut() = Some(Box::new(move |_| {
        if left > 0 {
            left -= 1;
            return;
        }
        left = usize::MAX;
        did.set(true);
        thread.handler();
    }));
    for function in [0x1100, 0x1200] {
        thread.enter(0x1000);
        thread.enter(function);
        thread.exit(function);
        thread.exit(0x1000);
    }
    thread.port.preempt.borrow_mut().take();
    // What came behind the last hook's last look is found by the next.
    thread.enter(0x1300);
    thread.exit(0x1300);
    if !struck.get() {
        return false;
    }
    let calls = thread.calls();
    check_self_times(&calls);
    let mut functions: Vec<u64> = calls.iter().map(|call| call.function).collect();
    let at = functions.iter().position(|function| *function == 0x2100);
    let at = at.unwrap_or_else(|| panic!("struck at {n}: {functions:x?}"));
    let handled: Vec<u64> = functions.splice(at..at + 2, []).collect();
    assert_eq!(handled, [0x2100, 0x2000], "struck at {n}");
    let rest = [0x1100, 0x1000, 0x1200, 0x1000, 0x1300];
    assert_eq!(functions, rest, "struck at {n}");
    true
}

#[test]
fn signals_at_any_point_are_calls_of_what_they_interrupt() {
    let points = (0..).take_while(|n| struck_at(*n)).count();
    assert!(points > 20, "only {points} points");
}

#[test]
fn a_reader_gets_the_calls_that_are_open_as_far_as_they_have_come() {
    let thread = Thread::new(30);
    thread.enter(0x1100);
    for _ in 0..20 {
        thread.enter(0x1200);
        thread.exit(0x1200);
    }
    thread.enter(0x1300);
    let now = thread.now();
    // SAFETY: nobody records.
    unsafe { thread.thread_buffer.record_open_calls(now) };
    let calls = thread.calls();
    // The other one has not taken so long.
    let [call] = calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!((call.how, call.function, call.end), (OPEN, 0x1100, now));
    // A second reader of a recording that was turned off then.
    // SAFETY: as above.
    unsafe { thread.thread_buffer.record_open_calls(now) };
    assert_eq!(thread.calls().len(), 1);
    // It goes on, and is recorded as any when it ends.
    thread.exit(0x1300);
    thread.exit(0x1100);
    assert_eq!(thread.shape(), [(OPEN, 0x1100), (CALL, 0x1100)]);
    assert_eq!(thread.calls()[1].begin, call.begin);
}

#[test]
fn a_jump_ends_the_calls_that_it_leaves() {
    let thread = Thread::new(0);
    thread.enter(0x1100);
    thread.hook(Event::Setjmp(0x5000));
    thread.enter(0x1200);
    thread.enter(0x1300);
    thread.hook(Event::Longjmp(0x5000));
    thread.enter(0x1400);
    thread.exit(0x1400);
    thread.exit(0x1100);
    let expected = [0x1300, 0x1200, 0x1400, 0x1100].map(|function| (CALL, function));
    assert_eq!(thread.shape(), expected);
    check_self_times(&thread.calls());
    // Without the marks an exit further out finds them.
    let thread = Thread::new(0);
    thread.enter(0x1100);
    thread.enter(0x1200);
    thread.exit(0x1100);
    assert_eq!(thread.shape(), [(LOST, 0x1200), (CALL, 0x1100)]);
}

#[test]
fn a_jump_out_of_the_stopper_does_not_keep_recording_on() {
    let thread = Thread::new(0);
    let follow = |edge| {
        let writer = thread.thread_buffer.writer();
        writer.follow_stopper(edge, thread.gate.site(0))
    };
    thread.enter(0x1100);
    assert!(!follow(Edge::Enter));
    assert!(!follow(Edge::Enter));
    thread.hook(Event::Longjmp(0x5000));
    assert!(follow(Edge::Exit));
}

#[test]
fn calls_of_a_thread_that_ended_or_that_recording_left_are_lost_where_they_were_last_seen() {
    let thread = Thread::new(0);
    thread.enter(0x1100);
    thread.enter(0x1200);
    thread.exit(0x1200);
    let last = thread.now();
    // SAFETY: there is no thread.
    unsafe { thread.thread_buffer.end(u64::MAX >> 8) };
    assert_eq!(thread.shape(), [(CALL, 0x1200), (LOST, 0x1100)]);
    assert!(thread.calls()[1].end < last);

    let thread = Thread::new(0);
    thread.enter(0x1100);
    let (off, on) = (false, true);
    let cause = Cause::Command;
    thread.hook(Event::Recording { on: off, cause });
    thread.gate.set_recording(off, false);
    thread.gate.set_recording(on, false);
    thread.hook(Event::Recording { on, cause });
    // Whether it is the same call nobody knows.
    thread.exit(0x1100);
    assert_eq!(thread.shape(), [(LOST, 0x1100)]);
    // It doesn't count for what stops the recording that was turned on anew.
    assert_eq!(thread.thread_buffer.take_ended_calls(), (0, 0));
}

/// On x86-64 functions may have odd addresses.
#[test]
fn a_caller_with_an_odd_address_is_known() {
    for (from, frozen) in [(0x1101, 1), (0x1100, 0), (0, 1)] {
        let thread = Thread::new(0);
        thread.control.settings.set_freeze(0x1200, 0);
        thread.control.settings.set_condition(from, 0, 0, 0);
        thread.enter(0x1101);
        thread.enter(0x1200);
        thread.exit(0x1200);
        assert_eq!(thread.thread_buffer.take_ended_calls(), (1, frozen));
    }
}

#[test]
fn calls_for_which_there_is_no_frame_are_counted() {
    let thread = Thread::new(0);
    for _ in 0..DEPTH + 3 {
        thread.enter(0x1100);
    }
    for _ in 0..DEPTH + 3 {
        thread.exit(0x1100);
    }
    let packets = thread.packets();
    let calls: usize = packets.iter().map(|packet| packet.records.len()).sum();
    let lost = packets.iter().map(|packet| packet.discarded).max();
    assert_eq!((calls, lost), (DEPTH as usize - 1, Some(4)));
}
