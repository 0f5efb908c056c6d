//! Hostile input: truncated captures and random bytes. No panic, no endless loop, every byte in one packet.

use kymo_coresight::element::Element;
use kymo_coresight::flow::{EtmV4Options, Flow};
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::listing::{Line, Listing, PacketDecoder};
use kymo_coresight::memory::{Bytes, Image, Images, Memory, MemorySpace};
use kymo_coresight::snapshot::Snapshot;
use kymo_coresight::{Protocol, Source, etmv3, etmv4, perf, ptm};
use proptest::prelude::*;

use crate::data;

fn protocols() -> Vec<Protocol> {
    let etmv4 = etmv4::Config::default();
    let everything = etmv4::Config {
        idr0: 0x2801_fffb,
        idr2: 0xd000_1088,
        idr8: 78,
        configr: 0x0003_f7df,
        ..etmv4
    };
    let v3 = etmv3::Config {
        cr: 0xd00c,
        ccer: 0x3440_08f2,
        ..Default::default()
    };
    vec![
        Protocol::EtmV4(etmv4),
        Protocol::EtmV4(etmv4::Config {
            is_ete: true,
            ..everything
        }),
        Protocol::EtmV4(everything),
        Protocol::EtmV3(v3),
        Protocol::EtmV3(etmv3::Config {
            idr: 0x0010_0230,
            is_m_profile: true,
            ..v3
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

/// Decodes all bytes; panics unless every byte is in a packet, in order.
fn decode(protocol: &Protocol, bytes: &[u8]) {
    let mut end = 0;
    for packet in PacketDecoder::new(protocol, bytes, 0) {
        let is_next = packet.start() == end || (end > 0 && packet.start() == end - 1);
        assert!(
            is_next,
            "{protocol:?}: a packet at {} behind {end}",
            packet.start()
        );
        assert!(packet.end() > packet.start() && packet.end() <= bytes.len());
        end = packet.end();
    }
    assert_eq!(end, bytes.len(), "{protocol:?}");
}

/// A synchronization of each protocol before the bytes, so that random bytes are parsed as packets.
fn synchronized(protocol: &Protocol, bytes: &[u8]) -> Vec<u8> {
    let mut all = match protocol {
        Protocol::Stm(_) => [vec![0xff; 10], vec![0x0f, 0x0f, 0x30]].concat(),
        // Followed by trace info, trace on and an address with its context, so that atoms are decoded.
        Protocol::EtmV4(_) => {
            let start = vec![
                0x80, 0x01, 0x01, 0x00, 0x04, 0x85, 0, 0x20, 0, 0, 0, 0, 0, 0, 0x31,
            ];
            [vec![0; 11], start].concat()
        }
        _ => vec![0, 0, 0, 0, 0, 0x80],
    };
    all.extend(bytes);
    all
}

/// An exception return that could still be cancelled is kept until the next packet; a long sequence of them is not.
#[test]
fn a_run_of_exception_returns_is_not_kept() {
    const RETURNS: usize = 1000;
    let protocol = Protocol::EtmV3(etmv3::Config::default());
    let images = Images::default();
    let mut flow = Flow::new(&protocol, EtmV4Options::default(), &images);
    // An I-sync without a context ID: a reason and an address.
    let mut bytes = synchronized(&protocol, &[0x08, 0x21, 0, 0x10, 0, 0]);
    bytes.extend([0x76; RETURNS]);
    let mut elements = Vec::new();
    for packet in PacketDecoder::new(&protocol, &bytes, 0) {
        flow.packet(&packet, &mut elements);
    }
    let returns = |elements: &[(usize, Element)]| {
        let is_return = |(_, element): &&(usize, Element)| *element == Element::ExceptionReturn;
        elements.iter().filter(is_return).count()
    };
    assert!(returns(&elements) >= RETURNS - 1, "{}", returns(&elements));
    flow.finish(&mut elements);
    assert_eq!(returns(&elements), RETURNS);
}

proptest! {
    #[test]
    fn any_bytes_are_packets(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for protocol in protocols() {
            decode(&protocol, &bytes);
            decode(&protocol, &synchronized(&protocol, &bytes));
        }
    }

    #[test]
    fn any_packets_through_any_code_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        code in proptest::collection::vec(any::<u8>(), 1..400),
    ) {
        let mut images = Images::default();
        // Code at 0, because short address packets after a synchronization have small addresses.
        images.add(Image { name: String::new(), address: 0, file_offset: 0, bytes: code.clone().into(), space: MemorySpace::ANY });
        images.add(Image { name: String::new(), address: 0x1000, file_offset: 0, bytes: code.into(), space: MemorySpace::EL1N });
        for protocol in protocols() {
            let mut flow = Flow::new(&protocol, EtmV4Options::default(), &images);
            let mut elements = Vec::new();
            for packet in PacketDecoder::new(&protocol, &synchronized(&protocol, &bytes), 0) {
                flow.packet(&packet, &mut elements);
            }
            flow.finish(&mut elements);
            // An atom results in at most two elements, and a byte has at most 24 atoms.
            prop_assert!(elements.len() <= 64 * (bytes.len() + 20));
        }
    }

    #[test]
    fn any_bytes_are_frames(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for format in [FrameFormat::Memory, FrameFormat::Tpiu, FrameFormat::Dstream] {
            let frames = frames::split(&bytes, format, TraceId::NONE);
            for stream in &frames.streams {
                let mut offsets = stream.offsets();
                for at in 0..stream.bytes.len() {
                    prop_assert!(offsets.of(at) < bytes.len() as u64);
                }
            }
        }
    }
}

/// Largest size of a small buffer, in bytes.
const SMALL: usize = 8 << 10;

/// Decodes every snapshot with a small buffer, with any number of the last bytes missing.
#[test]
fn small_captures_may_end_anywhere() {
    let Some(folder) = data::folder() else { return };
    let mut snapshots = 0;
    for entry in std::fs::read_dir(folder.join("snapshots")).expect("snapshots") {
        let snapshot = Snapshot::open(&entry.expect("a snapshot").path()).expect("a snapshot");
        for buffer in &snapshot.buffers {
            let bytes = snapshot.read_buffer(buffer).expect("a buffer");
            if bytes.len() > SMALL {
                continue;
            }
            snapshots += 1;
            let mut files = std::collections::HashMap::new();
            let sources = Source::of_buffer(&snapshot, buffer);
            let code: Vec<_> = sources
                .iter()
                .map(|source| {
                    let device = snapshot.device(&source.name);
                    let core = device.and_then(|device| snapshot.core_of(device));
                    core.map_or_else(Memory::default, |core| {
                        Images::of_core(&snapshot, core, &mut files).0.into()
                    })
                })
                .collect();
            let mut before = 0;
            for end in 0..=bytes.len() {
                let frames = frames::split(&bytes[..end], buffer.format, TraceId::NONE);
                for (source, stream) in sources.iter().zip(&frames.streams) {
                    decode(&source.protocol, &stream.bytes);
                }
                let options = EtmV4Options::default();
                let ranges = Listing::decoding(&sources, &frames.streams, &code, options)
                    .filter(|line| {
                        matches!(
                            line,
                            Line::Element {
                                element: Element::Range(_),
                                ..
                            }
                        )
                    })
                    .count();
                // A missing next packet does not revoke elements of a packet, except those that only the end commits.
                assert!(ranges + 128 >= before, "{}: {end}", buffer.name);
                before = before.max(ranges);
            }
        }
    }
    assert!(snapshots >= 26, "{snapshots}");
}

#[test]
fn a_recording_may_end_or_be_wrong_anywhere() {
    let Some(folder) = data::folder() else { return };
    let bytes = std::fs::read(folder.join("perf/aosp-perf_etm.perf.data")).expect("a recording");
    let mut wrong = bytes.clone();
    for end in 0..bytes.len() {
        let _ = perf::read(&bytes[..end]);
        wrong[end] ^= 0xff;
        if let Ok(mut recording) = perf::read(&wrong) {
            let file = Bytes::from(vec![0; 64]);
            recording.load(|mapping| Ok(vec![mapping.image(&file)]));
        }
        wrong[end] ^= 0xff;
    }
}
