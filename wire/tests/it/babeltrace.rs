//! What the metadata says of the bytes, as another reader of CTF understands it: packets that hold
//! every kind of record, put together by hand, read by babeltrace2.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use kymo_wire::event::{
    BLOCK_ALIGN, ByteOrder, EventId, Form, Layout, OTHER_BYTES, PacketHeader, Shape, WordSize,
};
use kymo_wire::metadata::{Description, write, write_markers};
use kymo_wire::packet::EVENT_STREAM;

/// A packet in the making, and what a reader should say of its records.
struct Packet {
    layout: Layout,
    bytes: Vec<u8>,
    time: u64,
    expected: String,
}

impl Packet {
    fn put(&mut self, value: u64, size: usize) {
        let all = match self.layout.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => (value << (64 - 8 * size)).to_be_bytes(),
        };
        self.bytes.extend_from_slice(&all[..size]);
    }

    fn word(&mut self, value: u64) {
        self.put(value, self.layout.word.bytes());
    }

    fn expect(&mut self, name: &str, fields: &str) {
        let (seconds, ns) = (self.time / 1_000_000_000, self.time % 1_000_000_000);
        let fields = match fields {
            "" => "{ }".to_owned(),
            fields => format!("{{ {fields} }}"),
        };
        writeln!(self.expected, "[{seconds}.{ns:09}] {name}, {fields}").unwrap();
    }

    /// As far behind the record before as this form's time reaches.
    fn far(&mut self, form: Form) {
        self.time += (1 << self.layout.shape.time_bits(form)) - 1;
    }

    fn call(&mut self, form: Form, function: u32, name: &str, fields: &str) {
        self.far(form);
        let Layout { shape, order, .. } = self.layout;
        let record = shape.call_record(order, form, self.time, function);
        self.put(record, shape.bytes(form));
        self.expect(name, fields);
    }

    fn other(&mut self, id: EventId, name: &str, fields: &str) {
        self.far(Form::Other);
        let record = Shape::other_header(self.layout.order, id, self.time);
        self.put(record, OTHER_BYTES);
        self.expect(name, fields);
    }
}

/// The greatest number of so many bits.
fn most(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

fn packet(layout: Layout) -> Packet {
    let Layout { shape, order, .. } = layout;
    let mut packet = Packet {
        layout,
        bytes: vec![0; layout.header_bytes()],
        time: 1_000,
        expected: String::new(),
    };
    let p = &mut packet;
    let (short, long) = (Form::EnterShort, Form::EnterLong);
    p.call(short, 3, "enter", "function = ( \"main\" : container = 3 )");
    p.call(Form::ExitShort, 0, "exit", "");
    let number = most(shape.function_bits(short));
    let unknown = |number| format!("function = ( <unknown> : container = {number} )");
    p.call(short, number, "enter", &unknown(number));
    p.call(Form::ExitLong, 0, "exit", "");
    p.call(
        long,
        9,
        "enter",
        "function = ( \"a\\\\b\" : container = 9 )",
    );
    let number = most(shape.function_bits(long));
    p.call(long, number, "enter", &unknown(number));
    // The times of all other kinds are those of their form.
    p.time += 1 << 50;
    p.put(Shape::time_record(order, p.time), 8);
    p.expect("time", "");
    p.other(
        EventId::ExitNamed,
        "exit",
        "function = ( \"main\" : container = 3 )",
    );
    p.put(3, shape.named_bits() as usize / 8);
    p.other(EventId::EnterFar, "enter_far", "address = 0xABCD");
    p.word(0xABCD);
    p.other(EventId::ExitFar, "exit_far", "address = 0xABCD");
    p.word(0xABCD);
    let fields = "function = ( \"main\" : container = 3 ), caller = 0x1234";
    p.other(EventId::EnterFrom, "enter_from", fields);
    p.put(3, shape.named_bits() as usize / 8);
    p.word(0x1234);
    let fields = "address = 0xABCD, caller = 0x1234";
    p.other(EventId::EnterFarFrom, "enter_far_from", fields);
    p.word(0xABCD);
    p.word(0x1234);
    p.other(
        EventId::Context,
        "context",
        "thread = 0x2000, priority = -3, mode = 7",
    );
    p.word(0x2000);
    p.put(0xFFFD, 2);
    p.put(7, 2);
    p.other(EventId::SwitchedIn, "switched_in", "thread = 0x2000");
    p.word(0x2000);
    p.other(EventId::SwitchedInNear, "switched_in", "thread_offset = -2");
    p.put(0xFFFE, 2);
    p.other(EventId::SwitchedOut, "switched_out", "");
    p.other(EventId::SwitchedOutNamed, "switched_out", "thread = 0x2000");
    p.word(0x2000);
    p.other(EventId::IsrEnter, "isr_enter", "irq = 255");
    p.put(255, 1);
    p.other(EventId::IsrEnterWide, "isr_enter", "irq = 256");
    p.put(256, 2);
    p.other(EventId::IsrExit, "isr_exit", "");
    p.other(EventId::IsrExitNamed, "isr_exit", "irq = 255");
    p.put(255, 2);
    p.other(EventId::Marker, "marker", "value = 4294967295");
    p.put(u32::MAX.into(), 4);
    p.other(
        EventId::NamedMarker,
        "named_marker",
        "name = ( \"half\" : container = 0x100 ), value = 5",
    );
    p.word(0x100);
    p.put(5, 4);
    let fields = "type = 2, length = 3, value = [ [0] = 1, [1] = 2, [2] = 3 ]";
    p.other(EventId::Metadata, "metadata", fields);
    for (value, size) in [(2, 2), (3, 2), (1, 1), (2, 1), (3, 1)] {
        p.put(value, size);
    }
    p.other(
        EventId::ClockGap,
        "clock_gap",
        "ticks = 18446744073709551615",
    );
    p.put(u64::MAX, 8);
    p.other(EventId::Recording, "recording", "on = 1, cause = 2");
    p.put(1, 1);
    p.put(2, 1);
    p.other(EventId::Setjmp, "setjmp", "jmp_buf = 0x2100");
    p.word(0x2100);
    p.other(EventId::Longjmp, "longjmp", "jmp_buf = 0x2100");
    p.word(0x2100);
    p.other(
        EventId::WallClock,
        "wall_clock",
        "ns = 1700000000000000000, uncertainty = 250000",
    );
    p.put(1_700_000_000_000_000_000, 8);
    p.put(250_000, 4);
    p.other(EventId::Block, "block", "type = 1, length = 0, data = [ ]");
    p.bytes
        .resize(p.bytes.len().next_multiple_of(BLOCK_ALIGN), 0);
    p.put(1, 2);
    p.put(0, 2);
    p.call(Form::ExitShort, 0, "exit", "");
    let bits = packet.bytes.len() as u32 * 8;
    let header = PacketHeader {
        stream: EVENT_STREAM,
        flags: PacketHeader::FLAG_THREAD,
        isr_depth: 2,
        cpu: 3,
        sequence: 0,
        discarded: 0,
        begin: 1_000,
        end: packet.time,
        content_bits: bits,
        packet_bits: bits,
        thread: 0x2008,
    };
    header.write(layout, &mut packet.bytes).unwrap();
    packet
}

#[test]
fn babeltrace2_reads_every_kind_of_record() {
    if Command::new("babeltrace2")
        .arg("--version")
        .output()
        .is_err()
    {
        kymo_fixtures::missing("babeltrace2 is not installed");
        return;
    }
    for (shape, word) in [
        (Shape::Compact, WordSize::Bits32),
        (Shape::Wide, WordSize::Bits64),
    ] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let layout = Layout {
                shape,
                word,
                order,
                function_shift: 1,
            };
            let packet = packet(layout);
            let mut metadata = String::new();
            let description = Description {
                layout,
                clock_hz: 1_000_000_000,
                clock_bits: 32,
                origin_ns: None,
                text_base: 0,
                build_id: &[],
                target: "by hand",
                events: b"7 sensor u8 channel",
                items: false,
            };
            let names = [(3, "main"), (9, "a\\b")];
            write(&mut metadata, &description, names.into_iter()).unwrap();
            write_markers(&mut metadata, [(0x100, "half")].into_iter()).unwrap();
            let name = format!("{}-{}", shape.name(), order.name());
            let trace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
            std::fs::create_dir_all(&trace).unwrap();
            std::fs::write(trace.join("metadata"), &metadata).unwrap();
            std::fs::write(trace.join("stream"), &packet.bytes).unwrap();
            assert_eq!(babeltrace(&trace), packet.expected, "{layout:?}");
        }
    }
}

/// What babeltrace2 prints of a trace, without the packet's context. It must not warn.
fn babeltrace(trace: &Path) -> String {
    let output = Command::new("babeltrace2")
        .arg(trace)
        .args(["--clock-seconds", "--no-delta"])
        .output()
        .unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaints}");
    assert_eq!(complaints, "", "a warning");
    let context = "flags = 1, isr_depth = 2, cpu_id = 3, thread = 0x2008";
    let mut text = String::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // [0.000040280] enter: { cpu_id = 0, ... }, { function = ( "main" : container = 7 ) }
        let (time, rest) = line.split_once("] ").unwrap();
        let (name, rest) = rest.split_once(": ").unwrap();
        let name = name.rsplit(' ').next().unwrap();
        let rest = rest.strip_prefix(&format!("{{ {context} }}"));
        let rest = rest.unwrap_or_else(|| panic!("another context: {line}"));
        writeln!(text, "{time}] {name}{rest}").unwrap();
    }
    text
}
