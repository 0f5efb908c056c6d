//! Bodies of the CoreSight targets: frames, packets of every protocol, flow through any code, recordings, snapshots.

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::element::Element;
use kymo_coresight::flow::{EtmV4Options, Flow, Sink};
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::{Listing, PacketDecoder};
use kymo_coresight::memory::{Bytes, Image, Images, Memory, MemorySpace};
use kymo_coresight::selection::Selection;
use kymo_coresight::{Protocol, etmv3, etmv4, perf, ptm};

/// Protocols in configurations that accept most of their packets, and in simple ones.
pub fn protocols() -> [Protocol; 11] {
    let etmv4 = etmv4::Config::default();
    // Cycle counts, Q elements, conditionals, return stack, speculation of 78, 64-bit addresses, both context IDs.
    let everything = etmv4::Config {
        idr0: 0x0801_fffb,
        idr2: 0xd000_1088,
        idr8: 78,
        configr: 0x0003_f7df,
        ..etmv4
    };
    let cycles = etmv3::Config {
        cr: 0xd00c,
        ccer: 0x3440_08f2,
        ..Default::default()
    };
    [
        Protocol::EtmV4(etmv4),
        Protocol::EtmV4(everything),
        Protocol::EtmV4(etmv4::Config {
            is_ete: true,
            ..everything
        }),
        Protocol::EtmV4(etmv4::Config {
            is_m_profile: true,
            idr8: 0,
            ..everything
        }),
        Protocol::EtmV3(etmv3::Config::default()),
        Protocol::EtmV3(cycles),
        Protocol::EtmV3(etmv3::Config {
            idr: 0x0010_0230,
            is_m_profile: true,
            ..cycles
        }),
        Protocol::Ptm(ptm::Config::default()),
        Protocol::Ptm(ptm::Config {
            cr: 0x2000_d000,
            ccer: 0x34c0_1ac2,
            ..Default::default()
        }),
        Protocol::Stm(TraceId(1)),
        Protocol::Itm(TraceId(1)),
    ]
}

/// A synchronization and, for ETMv4, an address with its context. The bytes after it are parsed as packets.
fn synchronization(protocol: &Protocol) -> &'static [u8] {
    match protocol {
        Protocol::EtmV4(_) => &[
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 1, 0, 4, 0x85, 0, 0x20, 0, 0, 0, 0, 0, 0,
            0x31,
        ],
        Protocol::Stm(_) => &[
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x0f, 0x30,
        ],
        _ => &[0, 0, 0, 0, 0, 0x80],
    }
}

/// A buffer in frames: the first byte selects the layout. Every byte belongs to a stream or is counted otherwise, and a
/// stream's bytes come from the buffer in order.
pub fn coresight_frames(data: &[u8]) {
    let Some((layout, data)) = data.split_first() else {
        return;
    };
    let format =
        [FrameFormat::Memory, FrameFormat::Tpiu, FrameFormat::Dstream][usize::from(layout % 3)];
    let split = frames::split(data, format, TraceId::NONE);
    let sourced: usize = split.streams.iter().map(|stream| stream.bytes.len()).sum();
    let named = split.reserved_bytes + split.trigger_bytes;
    let others = split.padding_bytes + named + split.unnamed_bytes;
    let accounted = sourced as u64 + others;
    // One byte of a frame holds the low bits of others, and each change of the ID replaces a data byte.
    assert!(accounted <= 15 * split.frames, "{split:?}");
    assert!(accounted >= 7 * split.frames, "{split:?}");
    let framed = 16 * (split.frames + split.resets);
    assert!(framed + split.rest_bytes + split.skipped_bytes <= data.len() as u64);
    for stream in &split.streams {
        assert!(stream.id.is_source());
        let mut offsets = stream.offsets();
        for at in 0..stream.bytes.len() {
            assert!(offsets.of(at) < data.len() as u64);
        }
        assert!(stream.resets.iter().all(|at| *at <= stream.bytes.len()));
        assert!(stream.resets.is_sorted());
    }
}

/// A trace of one source: the first byte selects protocol and configuration, and whether the trace begins synchronized.
/// Every byte belongs to one packet, in order, and each packet can be printed.
pub fn coresight_packets(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else {
        return;
    };
    let protocols = protocols();
    let protocol = protocols[usize::from(choice >> 1) % protocols.len()];
    let bytes = match choice & 1 {
        0 => data.to_vec(),
        _ => [synchronization(&protocol), data].concat(),
    };
    let mut end = 0;
    for packet in PacketDecoder::new(&protocol, &bytes, 0) {
        // Two packets of an STM can share a byte.
        let shared = usize::from(matches!(protocol, Protocol::Stm(_)) && end > 0);
        assert!(packet.start() == end || packet.start() + shared == end);
        assert!(packet.end() > packet.start() && packet.end() <= bytes.len());
        end = packet.end();
    }
    assert_eq!(end, bytes.len(), "{protocol:?}");
    let buffer = buffer(protocol, &bytes, Images::default());
    let mut text = String::new();
    for line in Listing::new(&buffer.sources, &buffer.frames.streams) {
        text.clear();
        line.write(&mut text).expect("text takes everything");
        assert!(!text.contains('\n'), "{text}");
    }
}

/// A buffer with one source.
fn buffer(protocol: Protocol, bytes: &[u8], code: impl Into<Memory>) -> Buffer {
    Buffer {
        name: "fuzz".into(),
        sources: vec![kymo_coresight::Source {
            id: protocol.trace_id(),
            name: "fuzz".into(),
            cpu: None,
            protocol,
        }],
        code: vec![code.into()],
        frames: frames::split(bytes, FrameFormat::Unformatted, TraceId::NONE).into_owned(),
        thread: None,
    }
}

/// Counts the elements of a buffer.
fn counted(buffer: &Buffer, options: EtmV4Options) -> Vec<(usize, Counts)> {
    counts::of_buffer(buffer, options, &Selection::default(), 1, |_| true)
}

/// Counts a flow's elements, and checks each range.
#[derive(Default)]
struct Check {
    elements: u64,
    instructions: u64,
}

impl Sink for Check {
    fn element(&mut self, _: usize, element: Element) {
        self.elements += 1;
        if let Element::Range(range) = element {
            let bytes = range.end.wrapping_sub(range.start);
            assert!(range.count > 0, "{range:?}");
            let count = u64::from(range.count);
            assert!((2 * count..=4 * count).contains(&bytes), "{range:?}");
            self.instructions += count;
        }
    }
}

/// Packets through any code: the first byte selects protocol and configuration, the next two give the number of the
/// following bytes that are code. The number of elements is limited by that of the bytes, and a second run counts the
/// same instructions.
pub fn coresight_flow(data: &[u8]) {
    let Some((&[choice, low, high], data)) = data.split_first_chunk() else {
        return;
    };
    let protocols = protocols();
    let protocol = protocols[usize::from(choice >> 1) % protocols.len()];
    let code = usize::from(u16::from_le_bytes([low, high]) % 0x1000).min(data.len());
    let (code, trace) = data.split_at(code);
    let image = |address, space| Image {
        name: String::new(),
        address,
        file_offset: 0,
        bytes: code.to_vec().into(),
        space,
    };
    // Code at 0, because short address packets after the synchronization have small addresses.
    let images: Images = [
        image(0, MemorySpace::ANY),
        image(0x1000, MemorySpace::EL1N),
        image(u64::MAX - 63, MemorySpace::ANY),
    ]
    .into_iter()
    .collect();
    let bytes = [synchronization(&protocol), trace].concat();
    let options = EtmV4Options {
        split_source_ranges: choice & 1 == 1,
        checks_opcodes: choice & 2 == 2,
        checks_branches: choice & 4 == 4,
    };
    let mut flow = Flow::new(&protocol, options, &images);
    let mut check = Check::default();
    flow.run(PacketDecoder::new(&protocol, &bytes, 0), &mut check);
    flow.finish(&mut check);
    // A byte has at most 24 atoms with three elements each. With split ranges a source address has one for each branch
    // before it.
    let each = 72
        + if options.split_source_ranges {
            code.len() as u64
        } else {
            0
        };
    assert!(check.elements <= each * (bytes.len() as u64 + 1));
    let buffer = buffer(protocol, &bytes, images.clone());
    let counted = counted(&buffer, options);
    let instructions: u64 = counted.iter().map(|(_, counts)| counts.instructions).sum();
    assert_eq!(instructions, check.instructions);
    for (_, counts) in &counted {
        let by_run = counts
            .runs
            .iter()
            .map(|run| u64::from(run.count) * run.executions);
        assert_eq!(by_run.sum::<u64>(), counts.instructions);
    }
}

/// A perf.data file, whose trace is decoded with the file itself as the code.
pub fn coresight_perf(data: &[u8]) {
    let Ok(mut recording) = perf::read(data) else {
        return;
    };
    let file = Bytes::from(data.to_vec());
    recording.load(|mapping| match mapping.offset.is_multiple_of(2) {
        true => Ok(vec![mapping.image(&file)]),
        false => Err(perf::NotFound::Nothing),
    });
    for buffer in &recording.buffers {
        for (source, _) in counted(buffer, EtmV4Options::default()) {
            assert!(source < buffer.sources.len());
        }
    }
}

/// A snapshot directory: `snapshot.ini`, the metadata, a device and a buffer, separated by zero bytes.
pub fn coresight_snapshot(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut parts = data.splitn(4, |byte| *byte == 0);
    for name in ["snapshot.ini", "trace.ini", "device.ini", "buffer.bin"] {
        let bytes = parts.next().unwrap_or_default();
        std::fs::write(folder.path().join(name), bytes).expect("a file in it");
    }
    let Ok((buffers, _)) = input::open_snapshot(folder.path(), &Default::default()) else {
        return;
    };
    // The input determines how many sections name one file. Four are sufficient.
    for buffer in buffers.iter().take(4) {
        counted(buffer, EtmV4Options::default());
        let streams = &buffer.frames.streams;
        let listing = Listing::decoding(
            &buffer.sources,
            streams,
            &buffer.code,
            EtmV4Options::default(),
        );
        let mut text = String::new();
        for line in listing {
            text.clear();
            line.write(&mut text).expect("text takes everything");
        }
    }
}
