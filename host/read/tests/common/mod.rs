//! A recorder for tests: writes packets by the definitions of `kymo-wire`, and keeps what it wrote
//! as the truth to hold a reader against.
#![allow(dead_code, reason = "every test binary uses another part of it")]

pub mod babeltrace;

use std::io::Write as _;

use kymo_event::{Addr, Event};
use kymo_read::native::{Dump, open_dump, write_raw, write_trace};
use kymo_read::{Events, OpenOptions, Source, open};
use kymo_wire::event::{
    ByteOrder, EventId, Form, Layout, METADATA_STREAM, MetadataType, OTHER_BITS, OTHER_BYTES,
    PacketHeader, Shape, TIME_BITS, WordSize,
};
use kymo_wire::link::{Capabilities, Identity, Mode, PROTOCOL};
use kymo_wire::packet::EVENT_STREAM;

/// Tells loudly that a test did not run; where everything is installed (CI), that is a failure.
pub fn skip(why: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "must not be skipped in CI: {why}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// The run-time address of function 0 in these recordings.
pub const TEXT_BASE: u64 = 0x0800_0000;

/// All ways in which packets can be laid out.
pub fn layouts() -> Vec<Layout> {
    let mut layouts = Vec::new();
    for shape in [Shape::Compact, Shape::Wide] {
        for word in [WordSize::Bits32, WordSize::Bits64] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                for function_shift in [0, 1] {
                    layouts.push(Layout {
                        shape,
                        word,
                        order,
                        function_shift,
                    });
                }
            }
        }
    }
    layouts
}

/// The layout of a Cortex-M.
pub const CORTEX_M: Layout = Layout {
    shape: Shape::Compact,
    word: WordSize::Bits32,
    order: ByteOrder::Little,
    function_shift: 1,
};

/// A target with such packets.
pub fn identity(layout: Layout) -> Identity {
    let mut build_id = ([0; 32], 20);
    build_id.0[..20].copy_from_slice(&[0x5A; 20]);
    Identity {
        protocol: PROTOCOL,
        layout,
        clock_hz: 25_000_000,
        clock_bits: 32,
        buffer_bytes: 65536,
        packet_bytes: 256,
        streams: 1,
        mode: Mode::Overwrite,
        text_base: TEXT_BASE,
        capabilities: Capabilities {
            trace: true,
            ..Capabilities::default()
        },
        build_id,
    }
}

/// What a program does. Which record that becomes is the recorder's to choose.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    Enter(u32),
    /// Leaves the function that is entered, or this one if none is known to be.
    Exit(u32),
    EnterFar(u64),
    /// As `Exit`.
    ExitFar(u64),
    EnterFrom(u32, u64),
    EnterFarFrom(u64, u64),
    Context(u64, i16, u16),
    SwitchedIn(u64),
    /// So many times 4 bytes from the thread that the packet names.
    SwitchedInNear(i16),
    /// Of the thread that runs.
    SwitchedOut,
    SwitchedOutNamed(u64),
    IsrEnter(u16),
    /// Of the innermost handler, or else of this one.
    IsrExit(u16),
    /// Of this one, whatever is known.
    IsrExitNamed(u16),
    Marker(u32),
    NamedMarker(u64, u32),
    Recording(u8, u8),
    ClockGap(u64),
    ThreadName(u64, String),
    IsrName(u16, String),
    Setjmp(u64),
    Longjmp(u64),
    /// Nanoseconds since 1970, and by how many they may be wrong.
    WallClock(u64, u32),
    Block(u16, Vec<u8>),
}

/// What was recorded: what a reader has to give back.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    pub ticks: u64,
    pub name: &'static str,
    /// The address of an enter or exit, the thread of a switch, the value of a marker, ...
    pub argument: u64,
}

/// Records one stream.
pub struct Encoder {
    pub layout: Layout,
    pub number: u16,
    pub thread: u64,
    /// What the packets say of their stream.
    pub flags: u8,
    /// How many interrupts are being served where the next packet begins.
    pub isr_depth: u8,
    /// How many bytes a packet may have.
    pub packet_bytes: usize,
    pub discarded: u32,
    /// The finished packets.
    pub packets: Vec<Vec<u8>>,
    pub truth: Vec<Truth>,
    sequence: u32,
    open: Vec<u8>,
    begin: u64,
    last: u64,
    /// The thread that runs, as far as the packet tells.
    running: u64,
    /// The calls whose exits need no name.
    calls: Vec<u64>,
    handlers: Vec<u16>,
}

impl Encoder {
    pub fn new(layout: Layout, number: u16, thread: u64) -> Self {
        Self {
            layout,
            number,
            thread,
            flags: 0,
            isr_depth: 0,
            packet_bytes: 256,
            discarded: 0,
            packets: Vec::new(),
            truth: Vec::new(),
            sequence: 0,
            open: Vec::new(),
            begin: 0,
            last: 0,
            running: 0,
            calls: Vec::new(),
            handlers: Vec::new(),
        }
    }

    pub fn metadata(layout: Layout) -> Self {
        let mut encoder = Self::new(layout, METADATA_STREAM, 0);
        encoder.packet_bytes = usize::MAX;
        encoder
    }

    fn put(&mut self, value: u64, size: usize) {
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        self.open.extend_from_slice(match self.layout.order {
            ByteOrder::Little => &little[..size],
            ByteOrder::Big => &big[8 - size..],
        });
    }

    /// Records `op` at `ticks`, which must not be before the last record.
    pub fn record(&mut self, ticks: u64, op: &Op) {
        assert!(ticks >= self.last, "a clock does not go back");
        // The largest record with a time record in front of it.
        let largest = 8 + 8 + 4 + 64;
        if !self.open.is_empty() && self.open.len() + largest > self.packet_bytes {
            self.close();
        }
        if self.open.is_empty() {
            self.open = vec![0; self.layout.header_bytes()];
            self.begin = ticks;
            self.last = ticks;
            self.running = self.thread;
            self.calls.clear();
        }
        let word = self.layout.word.bytes();
        let number = self.layout.shape.named_bits() as usize / 8;
        let mut fields: Vec<(u64, usize)> = Vec::new();
        let mut tail = Vec::new();
        let (id, argument) = match op {
            Op::Enter(function) => {
                let address = self.layout.address(*function, TEXT_BASE);
                self.calls.push(address);
                if self.call(ticks, true, *function) {
                    self.truth(ticks, EventId::Enter, address);
                    return;
                }
                fields.push((address, word));
                (EventId::EnterFar, address)
            }
            Op::Exit(_) | Op::ExitFar(_) if !self.calls.is_empty() => {
                let address = self.calls.pop().unwrap();
                self.call(ticks, false, 0);
                self.truth(ticks, EventId::Exit, address);
                return;
            }
            Op::Exit(function) => {
                fields.push(((*function).into(), number));
                let address = self.layout.address(*function, TEXT_BASE);
                (EventId::ExitNamed, address)
            }
            Op::EnterFar(address) => {
                self.calls.push(*address);
                fields.push((*address, word));
                (EventId::EnterFar, *address)
            }
            Op::ExitFar(address) => {
                fields.push((*address, word));
                (EventId::ExitFar, *address)
            }
            Op::EnterFrom(function, caller) => {
                let address = self.layout.address(*function, TEXT_BASE);
                self.calls.push(address);
                fields.extend([((*function).into(), number), (*caller, word)]);
                (EventId::EnterFrom, address)
            }
            Op::EnterFarFrom(address, caller) => {
                self.calls.push(*address);
                fields.extend([(*address, word), (*caller, word)]);
                (EventId::EnterFarFrom, *address)
            }
            Op::Context(thread, priority, mode) => {
                self.switch(*thread, *thread == self.running);
                fields.extend([(*thread, word), (*priority as u64, 2), ((*mode).into(), 2)]);
                (EventId::Context, *thread)
            }
            Op::SwitchedIn(thread) => {
                self.switch(*thread, false);
                fields.push((*thread, word));
                (EventId::SwitchedIn, *thread)
            }
            Op::SwitchedInNear(offset) => {
                let thread = self.thread.wrapping_add_signed(i64::from(*offset) * 4);
                let thread = thread & u64::MAX >> (64 - self.layout.word.bits());
                self.switch(thread, false);
                fields.push((*offset as u64, 2));
                (EventId::SwitchedInNear, thread)
            }
            Op::SwitchedOut => {
                let thread = self.running;
                self.switch(0, false);
                (EventId::SwitchedOut, thread)
            }
            Op::SwitchedOutNamed(thread) => {
                self.switch(0, false);
                fields.push((*thread, word));
                (EventId::SwitchedOutNamed, *thread)
            }
            Op::IsrEnter(irq) => {
                self.handlers.push(*irq);
                let size = if *irq < 256 { 1 } else { 2 };
                fields.push(((*irq).into(), size));
                let ids = [EventId::IsrEnter, EventId::IsrEnterWide];
                (ids[size - 1], (*irq).into())
            }
            Op::IsrExit(_) if !self.handlers.is_empty() => {
                let irq = self.handlers.pop().unwrap();
                (EventId::IsrExit, irq.into())
            }
            Op::IsrExit(irq) | Op::IsrExitNamed(irq) => {
                if let Some(level) = self.handlers.iter().rposition(|served| served == irq) {
                    self.handlers.truncate(level);
                }
                fields.push(((*irq).into(), 2));
                (EventId::IsrExitNamed, (*irq).into())
            }
            Op::Marker(value) => {
                fields.push(((*value).into(), 4));
                (EventId::Marker, (*value).into())
            }
            Op::NamedMarker(name, value) => {
                fields.extend([(*name, word), ((*value).into(), 4)]);
                (EventId::NamedMarker, (*value).into())
            }
            Op::Recording(on, cause) => {
                if *on != 0 {
                    self.calls.clear();
                    self.handlers.clear();
                }
                fields.extend([((*on).into(), 1), ((*cause).into(), 1)]);
                (EventId::Recording, (*on).into())
            }
            Op::ClockGap(ticks) => {
                fields.push((*ticks, 8));
                (EventId::ClockGap, *ticks)
            }
            Op::ThreadName(thread, name) => {
                tail = padded(name);
                let length = (word + tail.len()) as u64;
                fields.extend([
                    (MetadataType::ThreadName as u64, 2),
                    (length, 2),
                    (*thread, word),
                ]);
                (EventId::Metadata, *thread)
            }
            Op::IsrName(irq, name) => {
                tail = padded(name);
                let length = (4 + tail.len()) as u64;
                fields.extend([
                    (MetadataType::IsrName as u64, 2),
                    (length, 2),
                    ((*irq).into(), 2),
                    (0, 2),
                ]);
                (EventId::Metadata, (*irq).into())
            }
            Op::Setjmp(env) => {
                fields.push((*env, word));
                (EventId::Setjmp, *env)
            }
            Op::Longjmp(env) => {
                self.calls.clear();
                fields.push((*env, word));
                (EventId::Longjmp, *env)
            }
            Op::WallClock(ns, uncertainty) => {
                fields.extend([(*ns, 8), ((*uncertainty).into(), 4)]);
                (EventId::WallClock, *ns)
            }
            Op::Block(kind, data) => {
                tail.clone_from(data);
                fields.extend([((*kind).into(), 2), (data.len() as u64, 2)]);
                (EventId::Block, (*kind).into())
            }
        };
        self.header(ticks, id);
        if id == EventId::Block {
            self.open.resize(self.open.len().next_multiple_of(4), 0);
        }
        for (value, size) in fields {
            self.put(value, size);
        }
        self.open.extend_from_slice(&tail);
        self.truth(ticks, id, argument);
    }

    /// This thread runs from here on, with nothing entered but if it is the `same`.
    fn switch(&mut self, thread: u64, same: bool) {
        self.running = thread;
        if !same {
            self.calls.clear();
        }
    }

    /// Writes an enter or an exit without a name, in the shortest form that takes it; `false` if
    /// none does.
    fn call(&mut self, ticks: u64, enter: bool, function: u32) -> bool {
        let Layout { shape, order, .. } = self.layout;
        let forms = if enter {
            [Form::EnterShort, Form::EnterLong]
        } else {
            [Form::ExitShort, Form::ExitLong]
        };
        let fits = |form: &&Form| !enter || u64::from(function) >> shape.function_bits(**form) == 0;
        if !forms.iter().any(|form| fits(&form)) {
            return false;
        }
        let last = self.last;
        let soon = |form: &&Form| (ticks - last) >> shape.time_bits(**form) == 0;
        if !forms.iter().any(|form| fits(&form) && soon(&form)) {
            self.time(ticks);
        }
        let last = self.last;
        let soon = |form: &&Form| (ticks - last) >> shape.time_bits(**form) == 0;
        let form = forms.iter().find(|form| fits(form) && soon(form)).unwrap();
        let record = shape.call_record(order, *form, ticks, function);
        self.put(record, shape.bytes(*form));
        self.last = ticks;
        true
    }

    fn time(&mut self, ticks: u64) {
        assert_eq!((ticks - self.last) >> TIME_BITS, 0);
        self.put(Shape::time_record(self.layout.order, ticks), 8);
        self.truth(ticks, EventId::Time, 0);
        self.last = ticks;
    }

    fn truth(&mut self, ticks: u64, id: EventId, argument: u64) {
        let name = id.name();
        self.truth.push(Truth {
            ticks,
            name,
            argument,
        });
    }

    fn header(&mut self, ticks: u64, id: EventId) {
        if (ticks - self.last) >> OTHER_BITS != 0 {
            self.time(ticks);
        }
        let header = Shape::other_header(self.layout.order, id, ticks);
        self.put(header, OTHER_BYTES);
        self.last = ticks;
    }

    /// Ends the open packet, if there is one.
    pub fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let bits = self.open.len() as u32 * 8;
        let header = PacketHeader {
            stream: EVENT_STREAM,
            sequence: self.sequence,
            begin: self.begin,
            end: self.last,
            content_bits: bits,
            packet_bits: bits,
            discarded: self.discarded,
            cpu: self.number,
            isr_depth: self.isr_depth,
            flags: self.flags,
            thread: self.thread,
        };
        header.write(self.layout, &mut self.open).unwrap();
        self.packets.push(std::mem::take(&mut self.open));
        self.sequence += 1;
    }

    /// The packets as a target sends them.
    pub fn bytes(&mut self) -> Vec<u8> {
        self.close();
        self.packets.concat()
    }
}

/// Text with zeros to a multiple of four bytes.
fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A small recording: two streams and names. Returns the dump, and how many records it has.
pub fn small(layout: Layout) -> (Vec<u8>, u64) {
    let mut names = Encoder::metadata(layout);
    names.record(0, &Op::ThreadName(0x20, "main".to_owned()));
    names.record(10, &Op::ThreadName(0x40, "worker 1".to_owned()));
    names.record(20, &Op::IsrName(15, "SysTick".to_owned()));
    let mut streams = [0u16, 1].map(|number| {
        let mut stream = Encoder::new(layout, number, 0x20);
        let mut ticks = 1_000 + u64::from(number) * 7;
        for round in 0..120u32 {
            stream.record(ticks, &Op::Enter(round));
            ticks += u64::from(round) * 91;
            if round % 10 == 3 {
                stream.record(ticks, &Op::IsrEnter(15));
                stream.record(ticks + 5, &Op::IsrExit(15));
                stream.record(ticks + 9, &Op::SwitchedOut);
                stream.record(ticks + 20, &Op::SwitchedIn(0x40));
                stream.thread = 0x40;
                ticks += 25;
            }
            if round % 40 == 7 {
                ticks += 1 << 26;
            }
            stream.record(ticks, &Op::Exit(round));
            ticks += 3;
        }
        stream
    });
    let mut bytes = names.bytes();
    let mut events = names.truth.len() as u64;
    for stream in &mut streams {
        bytes.extend(stream.bytes());
        events += stream.truth.len() as u64;
    }
    (bytes, events)
}

/// A stream of ten packets of eight events each.
pub fn ten_packets() -> Encoder {
    let mut stream = Encoder::new(CORTEX_M, 0, 1);
    for packet in 0..10u64 {
        for i in 0..8 {
            stream.record(packet * 1000 + i, &Op::Enter(i as u32));
        }
        stream.close();
    }
    stream
}

/// All events of a source that does not fail.
pub fn events(source: &mut dyn Source) -> Vec<Event> {
    Events(source).collect::<Result<_, _>>().unwrap()
}

/// The same dump in memory, as a raw file and as a trace directory.
pub fn every_way(layout: Layout, bytes: &[u8], check: &mut dyn FnMut(&mut dyn Source)) {
    let identity = identity(layout);
    let options = OpenOptions::default();
    check(&mut *open_dump(&identity, bytes.to_vec(), &[], "test", &options).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let dump = Dump {
        identity: &identity,
        bytes,
        missing: &[],
        target: "test",
    };
    let raw = folder.path().join("raw.kymo");
    write_raw(std::fs::File::create(&raw).unwrap(), &dump).unwrap();
    check(&mut *open(&raw, &options).unwrap());
    let directory = folder.path().join("trace");
    let names = [(Addr(TEXT_BASE + 2), "two"), (Addr(TEXT_BASE), "zero")];
    let written = write_trace(&directory, &dump, names).unwrap();
    assert_eq!(written.damage, []);
    check(&mut *open(&directory, &options).unwrap());
}
