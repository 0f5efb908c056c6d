//! Models of a thread that records, signals that preempt its hooks, and a reader that excludes it.

use std::boxed::Box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Std};
use std::vec;
use std::vec::Vec;

use kymo_wire::event::Layout;
use kymo_wire::link::Mode;

use super::{Kept, LAYOUT, explore};
use crate::buffer::MIN_PACKET;
use crate::encode::Functions;
use crate::hot::{Cursor, Hot};
use crate::sync::{AtomicBool, AtomicU32, Ordering, Weak, fence, spin_loop};
use crate::threads::{ThreadBuffer, ThreadPort};
use crate::{Edge, Target};

/// Start of the text, and the distance between functions.
const TEXT: usize = 0x1000;
const STEP: usize = 0x10;

/// The function that signal handlers call.
const HANDLER: usize = 0x2000;

/// A 64-bit machine.
struct Machine {
    time: AtomicU32,
    /// Signals that have been sent; each preempts once.
    sent: [AtomicBool; 2],
    struck: [core::cell::Cell<bool>; 2],
    /// The buffer into which handlers record.
    thread_buffer: core::cell::Cell<Option<(&'static ThreadBuffer<Machine>, &'static Hot)>>,
}

// SAFETY: the cells are used by the writer's thread only.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Target for Machine {
    const LAYOUT: Layout = LAYOUT;
}

impl Machine {
    fn new() -> Self {
        Self {
            time: AtomicU32::new(0),
            sent: [AtomicBool::new(false), AtomicBool::new(false)],
            struck: Default::default(),
            thread_buffer: Default::default(),
        }
    }

    /// Runs the handlers of the signals that have been sent.
    fn preempt(&self) {
        let Some((thread_buffer, hot)) = self.thread_buffer.get() else {
            return;
        };
        for (sent, struck) in self.sent.iter().zip(&self.struck) {
            if !struck.get() && sent.load(Ordering::Relaxed) {
                struck.set(true);
                thread_buffer.call(self, &hot.gate, Edge::Enter, HANDLER, 0);
                thread_buffer.call(self, &hot.gate, Edge::Exit, HANDLER, 0);
            }
        }
    }
}

impl ThreadPort for Machine {
    fn now(&self) -> u64 {
        self.preempt();
        let now = self.time.load(Ordering::Relaxed) + 1;
        self.time.store(now, Ordering::Relaxed);
        now.into()
    }

    fn fenced(&self) -> bool {
        self.preempt();
        true
    }
}

/// A process with one thread.
struct Process {
    hot: Hot,
    thread_buffer: ThreadBuffer<Machine>,
    machine: Machine,
    _memory: Vec<u64>,
}

impl Process {
    /// A process with an open gate. It does not move while it is used.
    fn new(mode: Mode) -> Arc<Self> {
        const BYTES: u32 = 3 * MIN_PACKET;
        let process = Arc::new_cyclic(|this: &std::sync::Weak<Self>| Self {
            // SAFETY: only the field's address is computed.
            hot: Hot::new(unsafe { &raw const (*this.as_ptr()).hot }),
            thread_buffer: ThreadBuffer::new(),
            machine: Machine::new(),
            _memory: vec![0; BYTES as usize / 8],
        });
        let functions = Functions {
            text_base: TEXT,
            shift: 0,
        };
        let memory = process._memory.as_ptr().cast_mut().cast();
        let stream = process.thread_buffer.writer().stream();
        // SAFETY: cursor and memory live as long as the stream, which is in the same place.
        unsafe {
            let cursor: &'static Cursor = &*core::ptr::from_ref(process.thread_buffer.cursor());
            let set_up = stream.set_up(cursor, (memory, BYTES), MIN_PACKET, 0, functions);
            set_up.expect("the sizes are right");
            let thread_buffer: &'static ThreadBuffer<Machine> =
                &*core::ptr::from_ref(&process.thread_buffer);
            let hot: &'static Hot = &*core::ptr::from_ref(&process.hot);
            process
                .machine
                .thread_buffer
                .set(Some((thread_buffer, hot)));
        }
        stream.set_mode(mode);
        process.thread_buffer.writer().allow_fast(true);
        assert!(process.hot.gate.claim());
        process.hot.gate.set_up(false, false);
        process.hot.gate.set_recording(true, false);
        process.warm_up();
        process
    }

    /// Runs every operation once, because loom requires the thread that creates an atomic to be known to all others.
    fn warm_up(&self) {
        for sent in &self.machine.sent {
            sent.store(true, Ordering::Relaxed);
        }
        self.call(0);
        let kept = self.read();
        assert_eq!((kept.events, kept.discarded), (6, 0));
        for (sent, struck) in self.machine.sent.iter().zip(&self.machine.struck) {
            sent.store(false, Ordering::Relaxed);
            struck.set(false);
        }
        self.thread_buffer.writer().stream().clear();
    }

    /// The `n`th call: each calls another function.
    fn call(&self, n: usize) {
        for edge in [Edge::Enter, Edge::Exit] {
            let function = TEXT + STEP * n;
            let (thread_buffer, gate) = (&self.thread_buffer, &self.hot.gate);
            thread_buffer.call(&self.machine, gate, edge, function, 0);
        }
    }

    /// Excludes the writer, reads the kept packets, and permits recording again.
    fn read(&self) -> Kept {
        self.hot.gate.freeze(true);
        fence(Ordering::SeqCst);
        while self.thread_buffer.inside() {
            spin_loop();
        }
        // SAFETY: the gate is frozen, the writer fences, and the thread buffer is outside.
        unsafe { self.thread_buffer.seal(0) };
        let stream = self.thread_buffer.writer().stream();
        let mut kept = Kept::default();
        let mut n = 0;
        // SAFETY: as above.
        while let Some(packet) = unsafe { stream.buffer().packet(n) } {
            kept.packet(packet);
            n += 1;
        }
        // The next packet will report what was lost since the last one.
        kept.discarded = kept.discarded.max(stream.figures().discarded);
        self.hot.gate.freeze(false);
        kept
    }
}

/// Initial state of a model with a reader, and the writer's operations.
#[derive(Clone, Copy, Debug)]
struct Dump {
    mode: Mode,
    /// Calls before the reader starts, and while it reads.
    before: usize,
    calls: usize,
    signals: usize,
}

impl Dump {
    /// With room for everything.
    const ROOMY: Self = Self {
        mode: Mode::Overwrite,
        before: 0,
        calls: 2,
        signals: 0,
    };

    /// The thread records while a reader reads, with or without signals. Returns what is kept at the first and at the
    /// second reading.
    fn run(self) -> [Kept; 2] {
        let process = Process::new(self.mode);
        (0..self.before).for_each(|n| process.call(n));
        let writer = process.clone();
        let writer = loom::thread::spawn(move || {
            (self.before..self.before + self.calls).for_each(|n| writer.call(n));
            // Signals that have not preempted yet preempt now.
            for sent in &writer.machine.sent[..self.signals] {
                sent.store(true, Ordering::Relaxed);
            }
            writer.machine.preempt();
        });
        let sender = (self.signals > 0).then(|| {
            let process = process.clone();
            loom::thread::spawn(move || {
                for sent in &process.machine.sent[..self.signals] {
                    sent.store(true, Ordering::Relaxed);
                }
            })
        });
        let first = process.read();
        writer.join().expect("the writer ends");
        if let Some(sender) = sender {
            sender.join().expect("the sender ends");
        }
        [first, process.read()]
    }

    /// Checks that everything is kept or counted.
    fn loses_nothing(self) {
        let [_, kept] = self.run();
        let recorded = 2 * (self.before + self.calls + self.signals);
        assert_eq!(kept.events + kept.discarded as usize, recorded);
    }
}

#[test]
fn a_reader_holds_off_a_writer() {
    explore(None, || Dump::ROOMY.loses_nothing());
}

#[test]
fn a_reader_and_a_signal_meet_in_a_hook() {
    let dump = Dump {
        calls: 1,
        signals: 1,
        ..Dump::ROOMY
    };
    explore(None, move || dump.loses_nothing());
}

/// Number of calls that leave room for one more.
fn nearly_full() -> usize {
    let calls: &'static AtomicUsize = Box::leak(Box::default());
    explore(None, || {
        let process = Process::new(Mode::Fixed);
        let refused = || process.thread_buffer.writer().stream().figures().discarded;
        let all = (0..).find(|n| {
            process.call(*n);
            refused() > 0
        });
        calls.store(all.unwrap_or(0), Std::Relaxed);
    });
    calls.load(Std::Relaxed) - 1
}

/// The buffer becomes full while a reader reads: refused events are counted, and older ones preserved. `first` collects
/// how many had been refused at the first reading.
fn fixed(before: usize, first: &AtomicUsize) {
    let dump = Dump {
        mode: Mode::Fixed,
        before,
        ..Dump::ROOMY
    };
    let [before, after] = dump.run();
    let recorded = 2 * (dump.before + dump.calls);
    assert_eq!(after.events + after.discarded as usize, recorded);
    assert!(after.discarded > 0, "there is no room for all: {after:?}");
    for kept in [&before, &after] {
        assert!(
            kept.entered
                .iter()
                .copied()
                .eq((0..kept.entered.len()).map(|n| STEP * n))
        );
        assert!(
            kept.events >= 2 * dump.before,
            "the oldest are kept: {kept:?}"
        );
    }
    first.fetch_or(1 << before.discarded.min(7), Std::Relaxed);
}

#[test]
fn a_reader_comes_when_a_fixed_buffer_is_full() {
    let first: &'static AtomicUsize = Box::leak(Box::default());
    let before = nearly_full();
    explore(None, move || fixed(before, first));
    // The reader read before anything was refused, and when something was.
    let first = first.load(Std::Relaxed);
    assert!(first & 1 != 0 && first & !1 != 0, "{first:#b}");
}

/// The oldest packet is overwritten while a reader reads.
fn overwrite(before: usize, overwritten: &AtomicUsize) {
    let dump = Dump {
        before,
        ..Dump::ROOMY
    };
    let [before, after] = dump.run();
    let last = STEP * (dump.before + dump.calls - 1);
    for kept in [&before, &after] {
        kept.in_order(STEP);
    }
    let newest = after.entered.last().copied();
    assert!(newest == Some(last) || after.discarded > 0, "{after:?}");
    // Before the first reading, or later.
    for (n, kept) in [before, after].iter().enumerate() {
        let gone = kept.entered.first().is_some_and(|first| *first > 0);
        overwritten.fetch_or(1 << (2 * n + usize::from(gone)), Std::Relaxed);
    }
}

#[test]
fn a_reader_comes_when_the_oldest_are_overwritten() {
    let overwritten: &'static AtomicUsize = Box::leak(Box::default());
    let before = nearly_full();
    explore(None, move || overwrite(before, overwritten));
    let overwritten = overwritten.load(Std::Relaxed);
    assert_eq!(overwritten & 0b1011, 0b1011, "{overwritten:#b}");
}

#[test]
fn holding_off_needs_the_fences_and_every_release_and_acquire() {
    let nowhere: &'static AtomicUsize = Box::leak(Box::default());
    let before = nearly_full();
    for weak in [Weak::Fence, Weak::Release, Weak::Acquire] {
        explore(Some(weak), || Dump::ROOMY.loses_nothing());
        explore(Some(weak), move || fixed(before, nowhere));
        explore(Some(weak), move || overwrite(before, nowhere));
    }
}

#[test]
fn signals_strike_in_hooks_and_in_each_other() {
    explore(None, || {
        let process = Process::new(Mode::Overwrite);
        let sender = process.clone();
        let sender = loom::thread::spawn(move || {
            for sent in &sender.machine.sent {
                sent.store(true, Ordering::Relaxed);
            }
        });
        process.call(0);
        sender.join().expect("the sender ends");
        process.machine.preempt();
        let kept = process.read();
        assert_eq!((kept.events, kept.discarded), (6, 0));
    });
}
