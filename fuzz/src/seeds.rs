//! Seed recordings: mutations of a valid recording reach more code than random bytes.

use kymo_wire::event::{
    ByteOrder, EventId, Form, Layout, OTHER_BYTES, PacketHeader, Shape, WordSize,
};
use kymo_wire::link::{Capabilities, Identity, Mode};
use kymo_wire::packet::EVENT_STREAM;

const LAYOUT: Layout = Layout {
    shape: Shape::Compact,
    word: WordSize::Bits32,
    order: ByteOrder::Little,
    function_shift: 1,
};

/// A small microcontroller.
pub fn identity() -> Identity {
    Identity {
        protocol: kymo_wire::link::PROTOCOL,
        layout: LAYOUT,
        clock_hz: 25_000_000,
        clock_bits: 32,
        buffer_bytes: 4096,
        packet_bytes: 256,
        streams: 2,
        mode: Mode::Overwrite,
        text_base: 0x0800_0000,
        capabilities: Capabilities::default(),
        build_id: ([7; 32], 20),
    }
}

/// The packets of two streams of that microcontroller, with every kind of record.
pub fn recording() -> Vec<u8> {
    let mut bytes = Vec::new();
    for cpu in 0..2 {
        for sequence in 0..4 {
            bytes.extend(packet(cpu, sequence));
        }
    }
    bytes
}

fn packet(cpu: u16, sequence: u32) -> Vec<u8> {
    let shape = LAYOUT.shape;
    let begin = u64::from(sequence) * 200_000;
    let mut bytes = vec![0; LAYOUT.header_bytes()];
    let mut time = begin;
    for function in 0..20 {
        for form in [
            Form::EnterShort,
            Form::ExitShort,
            Form::EnterLong,
            Form::ExitLong,
        ] {
            time += 17;
            let function = function * u32::from(shape.function_bits(form) > 0);
            let record = shape.call_record(ByteOrder::Little, form, time, function);
            bytes.extend(&record.to_le_bytes()[..shape.bytes(form)]);
        }
    }
    for id in EventId::ALL {
        let payload: &[u8] = match id {
            EventId::Enter | EventId::Exit | EventId::EnterLong | EventId::Time => continue,
            EventId::SwitchedOut | EventId::IsrExit => &[],
            EventId::IsrEnter => &[3],
            EventId::SwitchedInNear
            | EventId::IsrEnterWide
            | EventId::IsrExitNamed
            | EventId::Recording => &[1, 0],
            EventId::ExitNamed => &[1, 0, 0],
            EventId::EnterFrom => &[1, 0, 0, 9, 0, 0, 32],
            EventId::Context | EventId::NamedMarker | EventId::EnterFarFrom | EventId::ClockGap => {
                &[1, 0, 0, 32, 2, 0, 0, 0]
            }
            // In 2023, with an uncertainty of a millisecond.
            EventId::WallClock => &[0, 0, 0, 0, 0, 0x9D, 0x97, 0x17, 0x40, 0x42, 0x0F, 0],
            // The name of thread 1 is "a".
            EventId::Metadata => &[1, 0, 8, 0, 1, 0, 0, 0, b'a', 0, 0, 0],
            EventId::Block => &[1, 0, 3, 0, 1, 2, 3],
            EventId::Call => &[1, 0, 0, 9, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 32],
            EventId::CallFar | EventId::CallOpen | EventId::CallLost => &[
                1, 0, 0, 32, 19, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 32,
            ],
            EventId::EnterFar
            | EventId::ExitFar
            | EventId::SwitchedIn
            | EventId::SwitchedOutNamed
            | EventId::Marker
            | EventId::Setjmp
            | EventId::Longjmp => &[1, 0, 0, 32],
        };
        time += 5;
        let header = Shape::other_header(ByteOrder::Little, id, time);
        bytes.extend(&header.to_le_bytes()[..OTHER_BYTES]);
        bytes.extend_from_slice(payload);
    }
    time += 100_000;
    bytes.extend(Shape::time_record(ByteOrder::Little, time).to_le_bytes());
    let bits = bytes.len() as u32 * 8;
    let header = PacketHeader {
        stream: EVENT_STREAM,
        sequence,
        begin,
        end: time,
        content_bits: bits,
        packet_bits: bits,
        discarded: sequence / 2,
        cpu,
        isr_depth: 0,
        // Some of them as in duration mode.
        flags: if sequence % 2 == 1 {
            PacketHeader::FLAG_CALLS
        } else {
            0
        },
        thread: 0x2000_0000,
    };
    header.write(LAYOUT, &mut bytes);
    bytes
}

/// A recording of SystemView with packets of most kinds: from one core, or from `two` with text before the packets and
/// with event ids in place of lengths.
pub fn systemview_recording(two: bool) -> Vec<u8> {
    use kymo_systemview::{Form, Ids, Length, Packet, SYNC, Text, encode};
    let form = Form {
        length: if two { Length::Id } else { Length::Bytes },
        ..Form::default()
    };
    let ids = Ids {
        base: 0x2000_0000,
        shift: 2,
    };
    let mut packets = vec![
        Packet::TraceStart,
        Packet::Init {
            frequency: 64_000_000,
            cpu_frequency: 64_000_000,
            ids,
        },
        Packet::SystemDescription {
            text: Text(b"N=fuzz,D=none,O=FreeRTOS,I#15=SysTick"),
        },
        Packet::SystemTimeUs { us: 1 << 33 },
        Packet::ModuleCount { count: 1 },
        Packet::ModuleDescription {
            module: 0,
            offset: 512,
            text: Text(b"M=ESP_FunctionTrace, 0 function_enter func=%p call_site=%p, 1 function_exit func=%p call_site=%p"),
        },
        Packet::NameMarker {
            id: 3,
            name: Text(b"phase"),
        },
    ];
    for task in [40, 80] {
        packets.push(Packet::TaskInfo {
            task,
            priority: 3,
            name: Text(b"task"),
        });
        packets.push(Packet::StackInfo {
            task,
            base: 16,
            size: 1024,
            usage: 100,
        });
    }
    let pointers = &[0x80, 0x80, 0x80, 4, 0x90, 0x80, 0x80, 4][..];
    for round in 0..30u32 {
        let task = 40 + 40 * (round & 1);
        packets.extend([
            Packet::TaskStartReady { task },
            Packet::TaskStartExec { task },
            Packet::Event {
                id: 512,
                payload: pointers,
            },
            Packet::IsrEnter { irq: 15 },
            Packet::Event {
                id: 33,
                payload: &[1, 2],
            },
            Packet::EndCall {
                id: 33,
                value: (!two).then_some(7),
            },
            Packet::IsrExit,
            Packet::Event {
                id: 513,
                payload: pointers,
            },
            Packet::MarkStart { id: 3 },
            Packet::Mark { id: 3 },
            Packet::MarkStop { id: 3 },
            Packet::HeapAlloc {
                heap: 1,
                block: round,
                size: 4,
                tag: None,
            },
            Packet::HeapFree {
                heap: 1,
                block: round,
            },
            Packet::TimerEnter { timer: 9 },
            Packet::TimerExit,
            Packet::Print {
                format: Text(b"%5d of %s %x"),
                options: 0,
                count: 2,
                arguments: &[7, 9],
            },
            Packet::DataSample {
                id: 1,
                value: round,
            },
            Packet::Overflow { total: round },
            Packet::TaskStopReady { task, cause: 1 },
            Packet::Idle,
        ]);
    }
    packets.push(Packet::TraceStop);
    let mut stream = SYNC.to_vec();
    let mut scratch = [0; 200];
    for packet in &packets {
        let size = encode(packet, 1000, form, &mut scratch).expect("packets are short");
        stream.extend(&scratch[..size]);
    }
    if !two {
        return stream;
    }
    let text = format!(
        "; fuzz\n; Offset Core0 0\n; Offset Core1 {}\n;\n",
        stream.len()
    );
    [format!(";\n{text}").as_bytes(), &stream, &stream].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged seed would be rejected early and reach little code.
    #[test]
    fn the_recording_is_whole() {
        let options = kymo_read::OpenOptions::default();
        let mut source =
            kymo_read::kymo::open_dump(&identity(), recording(), &[], "seed", &options).unwrap();
        let summary = kymo_read::Summary::of(&mut *source);
        assert_eq!(summary.errors, []);
        assert_eq!(summary.events, 2 * 4 * (80 + EventId::ALL.len() as u64 - 3));
    }
}
