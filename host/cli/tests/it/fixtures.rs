//! Recordings for the transcripts: generates them, and checks that the committed files are identical.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use kymo_fixtures::recorder::{CORTEX_M, Encoder, Op, TEXT_BASE, identity};
use kymo_read::kymo::{Dump, Program, write_trace};
use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};
use kymo_wire::items::{TIME, USER};
use kymo_wire::link::Identity;
use kymo_wire::packet::{ITEM_STREAM, PacketHeader};

/// Layout of a 64-bit Linux process.
const LINUX: Layout = Layout {
    shape: Shape::Wide,
    word: WordSize::Bits64,
    order: ByteOrder::Little,
    function_shift: 0,
};

const MAIN: u64 = 0x2000_0100;
const WORKER: u64 = 0x2000_0200;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Builder of a recording, with functions given by name, and times in ticks (40 ns for a clock of 25 MHz).
struct Story {
    encoder: Encoder,
    functions: HashMap<String, u64>,
    ticks: u64,
    /// The running thread. A packet has the thread that ran at its begin.
    thread: u64,
}

impl Story {
    fn new(layout: Layout, number: u16, thread: u64) -> Self {
        let nm = fs::read_to_string(data().join("demo.nm")).expect("it is committed");
        let functions = nm.lines().map(|line| {
            let mut words = line.split(' ');
            let address = words.next().expect("an address");
            let address = u64::from_str_radix(address, 16).expect("hexadecimal");
            (words.next_back().expect("a name").to_owned(), address)
        });
        let mut encoder = Encoder::new(layout, number, thread);
        // Large enough that packets end only at `close`.
        encoder.packet_bytes = 4096;
        if layout == LINUX {
            encoder.flags = PacketHeader::FLAG_THREAD;
        }
        Self {
            encoder,
            functions: functions.collect(),
            ticks: 25_000,
            thread,
        }
    }

    /// Adds a record, a number of ticks after the last one.
    fn after(&mut self, ticks: u64, op: &Op) -> &mut Self {
        self.ticks += ticks;
        self.encoder.record(self.ticks, op);
        self
    }

    fn number(&self, function: &str) -> u32 {
        let layout = self.encoder.layout;
        layout
            .function(
                layout.shape.named_bits(),
                self.functions[function],
                TEXT_BASE,
            )
            .expect("in reach")
    }

    fn enter(&mut self, ticks: u64, function: &str) -> &mut Self {
        let number = self.number(function);
        self.after(ticks, &Op::Enter(number))
    }

    fn exit(&mut self, ticks: u64, function: &str) -> &mut Self {
        let number = self.number(function);
        self.after(ticks, &Op::Exit(number));
        let left = self.encoder.truth.last().expect("it was recorded").argument;
        assert_eq!(left, self.functions[function], "{function} is not entered");
        self
    }

    /// Adds a call without callees.
    fn call(&mut self, ticks: u64, function: &str) -> &mut Self {
        self.enter(10, function).exit(ticks, function)
    }

    /// Adds a thread switch.
    fn switch(&mut self, from: u64, to: u64) -> &mut Self {
        self.after(10, &Op::SwitchedOutNamed(from))
            .after(20, &Op::SwitchedIn(to));
        self.thread = to;
        self
    }

    /// Closes the packet.
    fn close(&mut self) -> &mut Self {
        self.encoder.close();
        self.encoder.thread = self.thread;
        self
    }

    /// Closes the last packet and returns all packets.
    fn bytes(&mut self) -> Vec<u8> {
        self.close().encoder.bytes()
    }
}

/// The metadata stream of a target: names of threads and other objects.
fn names() -> Vec<u8> {
    let mut names = Encoder::metadata(CORTEX_M);
    names.record(0, &Op::ThreadName(MAIN, "main".to_owned()));
    names.record(0, &Op::ThreadName(WORKER, "worker".to_owned()));
    names.record(0, &Op::IsrName(15, "SysTick".to_owned()));
    names.bytes()
}

/// Recording of a Cortex-M with two threads and one interrupt. It has one case of everything that a tree can show: an
/// orphan, recursion, leaves, markers, an interrupt within a function and one between two, a `longjmp`, a call
/// abandoned by an exception, a switch within a call, a loss, and calls that are open at the end.
fn demo() -> Vec<u8> {
    let mut story = Story::new(CORTEX_M, 0, MAIN);
    let (frame_mark, environment) = (0x0800_0094, 0x2000_0F80);
    story
        .after(0, &Op::Recording(1, 1))
        .exit(50, "try_call")
        .enter(10, "main")
        .after(5, &Op::NamedMarker(frame_mark, 1))
        .enter(10, "compute")
        .call(25, "leaf")
        .enter(10, "compute")
        .enter(10, "leaf")
        .after(7, &Op::IsrEnter(15))
        .call(30, "tick_handler")
        .after(6, &Op::IsrExit(15))
        .exit(18, "leaf")
        .exit(10, "compute")
        .after(3, &Op::IsrEnter(15))
        .after(40, &Op::IsrExit(15))
        .exit(10, "compute")
        // `thrower` jumps back into main, so its own exit and that of its caller are missing.
        .after(2, &Op::Setjmp(environment))
        .enter(10, "try_call")
        .enter(10, "thrower")
        .after(40, &Op::Marker(42))
        .after(10, &Op::Longjmp(environment))
        .enter(1000, "compute")
        .exit(20, "compute")
        .exit(5, "main")
        .enter(10, "main")
        .close()
        .enter(10, "worker")
        // An exception abandons the call, without a record.
        .enter(10, "leaf")
        .switch(MAIN, WORKER)
        .enter(5, "worker")
        .call(250_000, "leaf")
        .exit(10, "worker")
        .switch(WORKER, MAIN)
        .exit(10, "worker");
    // The buffer was full for a while: the packet that ends here counts the discarded events.
    story.encoder.discarded = 37;
    story.close();
    story
        .call(25, "leaf")
        .enter(10, "try_call")
        .call(5, "thrower");
    [names(), story.bytes()].concat()
}

/// Recording of two processors whose oldest packets are overwritten: a nested interrupt, a thread that migrates between
/// the processors, two threads of the same name, and a doubtful clock.
fn processors() -> Vec<u8> {
    const OTHER: u64 = 0x2000_0300;
    let mut names = Encoder::metadata(CORTEX_M);
    names.record(0, &Op::ThreadName(MAIN, "main".to_owned()));
    names.record(0, &Op::ThreadName(WORKER, "worker".to_owned()));
    names.record(0, &Op::ThreadName(OTHER, "worker".to_owned()));
    names.record(0, &Op::IsrName(15, "SysTick".to_owned()));
    let mut dump = names.bytes();
    let mut first = Story::new(CORTEX_M, 0, WORKER);
    first.call(20, "leaf").close();
    first
        .enter(100, "worker")
        .call(25, "leaf")
        .switch(WORKER, OTHER)
        .call(25, "leaf");
    let mut second = Story::new(CORTEX_M, 1, MAIN);
    second.call(20, "leaf").close();
    second
        .enter(107, "main")
        .after(20, &Op::IsrEnter(15))
        .enter(5, "tick_handler")
        .after(5, &Op::IsrEnter(22))
        .call(10, "leaf")
        .after(5, &Op::IsrExit(22))
        .exit(5, "tick_handler")
        .after(5, &Op::IsrExit(15))
        .exit(20, "main")
        .switch(MAIN, WORKER)
        .call(25, "leaf")
        .after(100_000, &Op::ClockGap(100_000))
        .exit(10, "worker");
    for story in [&mut first, &mut second] {
        story.close();
        story.encoder.packets.remove(0);
        dump.extend(story.bytes());
    }
    dump
}

/// Recording of two processors in which a command turns recording off while both have open calls, and on again later.
fn windows() -> Vec<u8> {
    let mut first = Story::new(CORTEX_M, 0, MAIN);
    first.enter(10, "main").enter(10, "leaf");
    let mut second = Story::new(CORTEX_M, 1, WORKER);
    second
        .enter(35, "worker")
        .after(5, &Op::Recording(0, 2))
        .after(1000, &Op::Recording(1, 2))
        .call(25, "leaf")
        .exit(10, "worker");
    first.exit(2000, "leaf").exit(10, "main");
    [first.bytes(), second.bytes()].concat()
}

/// Recording of two concurrent threads of a Linux process, one of them without a name.
fn threads() -> Vec<u8> {
    let mut names = Encoder::metadata(LINUX);
    names.record(0, &Op::ThreadName(4711, "main".to_owned()));
    let mut dump = names.bytes();
    for (number, thread, start) in [(0, 4711, 0), (1, 4712, 13)] {
        let mut story = Story::new(LINUX, number, thread);
        story
            .enter(start, "worker")
            .enter(10, "compute")
            .call(30, "leaf")
            .call(35, "leaf")
            .exit(10, "compute")
            .exit(10, "worker");
        dump.extend(story.bytes());
    }
    dump
}

/// Recording of a Linux thread with records of its own: one in its Kymo stream, and RTEMS items in a stream of their
/// own. One item is within a call that writes none, and one follows a time that does not fit into an item.
fn items() -> Vec<u8> {
    const LATE: u64 = 25_000 + 5_000_000;
    let mut names = Encoder::metadata(LINUX);
    names.record(0, &Op::ThreadName(4711, "main".to_owned()));
    let mut story = Story::new(LINUX, 0, 4711);
    story
        .enter(0, "worker")
        .call(30, "leaf")
        .after(10, &Op::Block(3, b"abcd".to_vec()))
        .enter(20, "compute")
        .exit(LATE - 25_070, "compute")
        .exit(10, "worker");
    let items: [(u64, u16, Option<u64>); 4] = [
        (25_025, USER + 88, Some(7)),
        (25_065, USER, Some(1)),
        (LATE - 20, TIME, None),
        (LATE - 10, USER + 1, Some(0xFFFF)),
    ];
    let front = LINUX.header_bytes() + 4;
    let bits = 8 * (front + items.len() * 12) as u32;
    let header = PacketHeader {
        stream: ITEM_STREAM,
        flags: PacketHeader::FLAG_THREAD,
        isr_depth: 0,
        cpu: 0,
        sequence: 0,
        discarded: 0,
        begin: items[0].0,
        end: items[3].0,
        content_bits: bits,
        packet_bits: bits,
        thread: 4711,
    };
    let mut packet = vec![0; front];
    header.write(LINUX, &mut packet).expect("there is room");
    for (time, id, data) in items {
        // An id of 10 bits; the other bits are the time: 22 with data, or 54 in an item that is only a timestamp.
        let head = u64::from(id) | time << 10;
        match data {
            Some(data) => {
                packet.extend(&head.to_le_bytes()[..4]);
                packet.extend(data.to_le_bytes());
            }
            None => {
                packet.extend(head.to_le_bytes());
                packet.extend([0; 4]);
            }
        }
    }
    [names.bytes(), story.bytes(), packet].concat()
}

/// Recording of two processors that know the time of day and have clocks of their own. The clock of the second one is
/// 0.1 s ahead, and slow.
fn dates() -> Vec<u8> {
    const START: u64 = 1_795_281_605_000_000_000;
    let mut dump = Vec::new();
    for (number, thread, ahead) in [(0, MAIN, 0), (1, WORKER, 2_500_000)] {
        let mut story = Story::new(CORTEX_M, number, thread);
        story.ticks += ahead;
        for second in 0..3 {
            let slow = ahead / 1000 * second;
            let ns = START + second * 1_000_000_000;
            story
                .after(0, &Op::WallClock(ns, 50_000))
                .call(25 + 25 * u64::from(number), "leaf");
            story.ticks = 25_000 + ahead + (second + 1) * 25_000_000 - slow;
        }
        dump.extend(story.bytes());
    }
    dump
}

/// Type of a record of Zephyr's instrumentation.
#[derive(Clone, Copy)]
enum Zephyr {
    Entry = 0,
    Exit = 1,
    SwitchedIn = 3,
    SwitchedOut = 4,
}

/// Dump of Zephyr's own instrumentation from a 32-bit target with names of 8 bytes: an exit whose entry was
/// overwritten, a thread whose name fills its field, a call between the two halves of a switch, a clock that steps
/// back, a call that is open at the end, and console text before and behind the dump.
fn zephyr_trace() -> Vec<u8> {
    use Zephyr::{Entry, Exit, SwitchedIn, SwitchedOut};
    const COMPUTE: u32 = 0x0800_0035;
    const LEAF: u32 = 0x0800_0025;
    const MAIN_FUNCTION: u32 = 0x0800_007b;
    const WORKER_FUNCTION: u32 = 0x0800_0071;
    const MARK: u32 = 0x0800_0059;
    let mut bytes = b"Philosopher 3 EA-*-#".to_vec();
    let mut record = |kind: Zephyr, function: u32, us: u64, name: &[u8; 8]| {
        let thread: u32 = if name.starts_with(b"main") {
            0x2000_0100
        } else {
            0x2000_0200
        };
        bytes.push(kind as u8);
        bytes.extend(function.to_le_bytes());
        bytes.extend((MAIN_FUNCTION + 8).to_le_bytes());
        bytes.extend((us * 1_000).to_le_bytes());
        bytes.push(7);
        bytes.extend(thread.to_le_bytes());
        bytes.extend(name);
    };
    let (main, worker) = (b"main\0\0\0\0", b"worker_A");
    record(Exit, LEAF, 10, main);
    record(Entry, MAIN_FUNCTION, 12, main);
    record(Entry, COMPUTE, 20, main);
    record(Entry, LEAF, 25, main);
    record(Exit, LEAF, 65, main);
    record(SwitchedOut, MARK, 70, main);
    record(Entry, LEAF, 71, main);
    record(Exit, LEAF, 72, main);
    record(SwitchedIn, MARK, 75, worker);
    record(Entry, WORKER_FUNCTION, 80, worker);
    record(Entry, LEAF, 90, worker);
    record(Exit, LEAF, 85, worker);
    record(Exit, WORKER_FUNCTION, 110, worker);
    record(SwitchedOut, MARK, 115, worker);
    record(SwitchedIn, MARK, 116, main);
    record(Exit, COMPUTE, 120, main);
    bytes.extend(b"-*-!\r\nTING\r\n");
    bytes
}

/// Profile table of the same target. The sum of one function is negative.
fn zephyr_profile() -> Vec<u8> {
    let mut bytes = b"-*-#".to_vec();
    for (function, ns) in [
        (0x0800_007b_u32, 2_003_125_000),
        (0x0800_0035, 1_500_250),
        (0x0800_0025, 0),
        (0x0800_0071, u64::MAX - 40_000),
    ] {
        bytes.push(2);
        bytes.extend(function.to_le_bytes());
        bytes.extend(ns.to_le_bytes());
    }
    bytes.extend(b"-*-!\r\n");
    bytes
}

fn raw(identity: &Identity, dump: &[u8]) -> Vec<u8> {
    let mut file = format!("{identity}\n").into_bytes();
    file.extend_from_slice(dump);
    file
}

/// All recordings with the names of their files.
fn recordings() -> Vec<(&'static str, Vec<u8>)> {
    let demo = raw(&identity(CORTEX_M), &demo());
    let cut = demo[..demo.len() - 6].to_vec();
    let mut damaged = demo.clone();
    // The magic number of the processor's second packet.
    let magic = 0xC1FC_1FC1_u32.to_le_bytes();
    let mut packets = demo
        .windows(4)
        .enumerate()
        .filter(|(_, bytes)| *bytes == magic);
    let (second, _) = packets.nth(2).expect("there are three packets");
    damaged[second] ^= 0xFF;
    let mut torn = demo.clone();
    torn[20] ^= 1;
    vec![
        ("demo.kymo", demo),
        ("threads.kymo", raw(&identity(LINUX), &threads())),
        ("items.kymo", raw(&identity(LINUX), &items())),
        ("processors.kymo", raw(&identity(CORTEX_M), &processors())),
        ("windows.kymo", raw(&identity(CORTEX_M), &windows())),
        ("dates.kymo", raw(&identity(CORTEX_M), &dates())),
        ("cut.kymo", cut),
        ("damaged.kymo", damaged),
        ("torn-identity.kymo", torn),
        ("no-events.kymo", raw(&identity(CORTEX_M), &[])),
        ("empty", Vec::new()),
        ("zephyr.dump", zephyr_trace()),
        ("zephyr-profile.dump", zephyr_profile()),
        ("zephyr-empty.dump", b"-*-#-*-!\r\n".to_vec()),
    ]
}

/// Compares one file, or writes it if `UPDATE_FIXTURES` is set.
fn check(path: &Path, expected: &[u8]) {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(path, expected).expect("fixtures can be written");
    }
    let found = fs::read(path).unwrap_or_default();
    assert!(
        found == expected,
        "{} is not as this test would write it",
        path.display()
    );
}

#[test]
fn committed_recordings_are_what_is_said_here() {
    for (name, expected) in recordings() {
        check(&data().join(name), &expected);
    }
}

#[test]
fn the_committed_trace_directory_is_that_of_the_recording() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let identity = identity(CORTEX_M);
    let bytes = demo();
    let dump = Dump {
        identity: &identity,
        bytes: &bytes,
        missing: &[],
        target: "",
    };
    write_trace(scratch.path(), &dump, &Program::default()).expect("a trace directory");
    fs::create_dir_all(data().join("demo")).expect("a directory");
    for name in ["metadata", "cpu0", "target"] {
        let expected = fs::read(scratch.path().join(name)).expect("a stream");
        check(&data().join("demo").join(name), &expected);
    }
}
