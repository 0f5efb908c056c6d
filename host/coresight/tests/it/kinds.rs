//! Tests of packet kinds without a capture and without a correct reference decoder: conditional instructions of ETMv4,
//! data of ETMv3, all of STM and ITM. A generator writes random packets and records the expected elements.

mod etm;
mod software;

pub use software::trace_of_an_stm;

use kymo_coresight::element::Element;
use kymo_coresight::flow::{EtmV4Options, Flow};
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::memory::Images;
use kymo_coresight::{Protocol, etmv3, etmv4};

/// Packets and elements of a stream. Every byte must be in a packet.
fn decode(protocol: &Protocol, bytes: &[u8]) -> (Vec<Packet>, Vec<Element>) {
    let code = Images::default();
    let mut flow = Flow::new(protocol, EtmV4Options::default(), &code);
    let (mut packets, mut elements) = (Vec::new(), Vec::new());
    for packet in PacketDecoder::new(protocol, bytes, 0) {
        flow.packet(&packet, &mut elements);
        packets.push(packet);
    }
    flow.finish(&mut elements);
    assert_eq!(packets.last().map(Packet::end), Some(bytes.len()));
    (
        packets,
        elements.into_iter().map(|(_, element)| element).collect(),
    )
}

/// Panics at the first element that differs from the generator's record.
fn assert_same(found: &[Element], expected: &[Element], what: &str) {
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found, expected, "{what}: element {index}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// A number with seven bits in each byte, the low ones first.
fn continued(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

#[test]
fn each_packet_of_etmv4_and_ete_that_no_capture_has() {
    use etmv4::{Fields, Kind};
    let v4 = etmv4::Config {
        // Data trace, conditional trace, version 4.6.
        idr0: 0x2800_0ea1 | 3 << 3 | 1 << 6,
        configr: 0xc1 | 1 << 8 | 1 << 16,
        idr1: 0x4100_f460,
        idr8: 8,
        ..etmv4::Config::default()
    };
    let ete = etmv4::Config {
        is_ete: true,
        ..etmv4::Config::default()
    };
    let m = etmv4::Config {
        is_m_profile: true,
        idr1: 0x4100_f420,
        ..etmv4::Config::default()
    };
    let plain = etmv4::Config::default();
    let address = |value, is, bits| {
        Fields::Address(etmv4::Address {
            value,
            is,
            bits,
            match_index: 0,
        })
    };
    let atoms = |bits, count| etmv4::Atoms { bits, count };
    let cases: Vec<(&etmv4::Config, &[u8], Kind, Option<Fields>)> = vec![
        (
            &v4,
            &[0x23],
            Kind::DataSyncNumbered,
            Some(Fields::Number(3)),
        ),
        (
            &v4,
            &[0x2a],
            Kind::DataSyncUnnumbered,
            Some(Fields::Number(2)),
        ),
        (&m, &[0x05], Kind::FunctionReturn, None),
        (&v4, &[0x70], Kind::Ignore, None),
        (&v4, &[0x88], Kind::TimestampMarker, None),
        (&v4, &[0x43], Kind::ConditionalFlush, None),
        (
            &v4,
            &[0x3d],
            Kind::CancelF3,
            Some(Fields::Cancel {
                atoms: atoms(1, 1),
                count: 4,
            }),
        ),
        (&v4, &[0x2f, 0x05], Kind::CancelF1Mispredict, None),
        (
            &v4,
            &[0x9b, 0x01, 0x02, 0x03, 0x04],
            Kind::Address32Is1,
            Some(address(0x0403_0202, 1, 32)),
        ),
        (
            &v4,
            &[0x9e, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08],
            Kind::Address64Is1,
            Some(address(0x0807_0605_0403_0202, 1, 64)),
        ),
        (
            &ete,
            &[0xb8, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08],
            Kind::Source64Is0,
            Some(address(0x0807_0605_0403_0404, 0, 64)),
        ),
        (
            &ete,
            &[0xb9, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08],
            Kind::Source64Is1,
            Some(address(0x0807_0605_0403_0202, 1, 64)),
        ),
        (&ete, &[0xb0], Kind::SourceMatch, None),
        (&ete, &[0xb5, 0x11], Kind::SourceShortIs1, None),
        (
            &ete,
            &[0xb7, 0x01, 0x02, 0x03, 0x04],
            Kind::Source32Is1,
            Some(address(0x0403_0202, 1, 32)),
        ),
        // An exception of type 0 is a reset of an ETE's processor.
        (&ete, &[0x06, 0x01, 0x00], Kind::PeReset, None),
        // Features that the configuration lacks.
        (&plain, &[0x23], Kind::ReservedConfig, None),
        (&plain, &[0x6c], Kind::ReservedConfig, None),
        (&v4, &[0x05], Kind::Reserved, None),
        (&ete, &[0x07], Kind::ReservedConfig, None),
        (&plain, &[0xb0], Kind::Reserved, None),
        (&plain, &[0xa5], Kind::Reserved, None),
    ];
    for (config, bytes, kind, fields) in cases {
        let begin: &[u8] = &[0x80, 0x01, 0x00];
        // The atom after the packet shows where the packet ends.
        let trace = [&[0; 11], begin, bytes, &[0xf7]].concat();
        let packets: Vec<_> = etmv4::Decoder::new(config, &trace, 0).collect();
        let found = packets[2];
        assert_eq!((found.kind, found.len), (kind, bytes.len()), "{bytes:x?}");
        if let Some(fields) = fields {
            assert_eq!(found.fields, fields, "{bytes:x?}");
        }
        assert_eq!(packets[3].kind, Kind::AtomF1, "{bytes:x?}");
    }
}

#[test]
fn each_packet_of_etmv3_and_ptm_that_no_capture_has() {
    use kymo_coresight::ptm;
    let v3 = etmv3::Config {
        // A context ID of two bytes.
        cr: 2 << 14,
        ccer: 1 << 26,
        ..etmv3::Config::default()
    };
    let cases: [(&[u8], etmv3::Kind, etmv3::Fields); 7] = [
        (
            &[0x6e, 0x34, 0x12],
            etmv3::Kind::ContextId,
            etmv3::Fields::ContextId(0x1234),
        ),
        (&[0x3c, 0x07], etmv3::Kind::Vmid, etmv3::Fields::Vmid(7)),
        (
            &[0x04, 0x85, 0x01],
            etmv3::Kind::CycleCount,
            etmv3::Fields::Cycles(0x85),
        ),
        (&[0x7e], etmv3::Kind::ExceptionEntry, etmv3::Fields::None),
        (&[0x0c], etmv3::Kind::Trigger, etmv3::Fields::None),
        (&[0x66], etmv3::Kind::Ignore, etmv3::Fields::None),
        // Data, although no data is traced.
        (&[0x62], etmv3::Kind::BadTraceMode, etmv3::Fields::None),
    ];
    for (bytes, kind, fields) in cases {
        let trace = [&[0, 0, 0, 0, 0, 0x80], bytes, &[0x84]].concat();
        let packets: Vec<_> = etmv3::Decoder::new(&v3, &trace, 0).collect();
        assert_eq!(
            (packets[1].kind, packets[1].fields),
            (kind, fields),
            "{bytes:x?}"
        );
        assert_eq!(packets[2].kind, etmv3::Kind::PHeader, "{bytes:x?}");
    }
    let ptm_config = ptm::Config {
        cr: 2 << 14,
        ..ptm::Config::default()
    };
    let cases: [(&[u8], ptm::Kind); 6] = [
        (&[0x6e, 0x34, 0x12], ptm::Kind::ContextId),
        (&[0x3c, 0x07], ptm::Kind::Vmid),
        (&[0x0c], ptm::Kind::Trigger),
        (&[0x66], ptm::Kind::Ignore),
        (&[0x76], ptm::Kind::ExceptionReturn),
        (&[0x02], ptm::Kind::Reserved),
    ];
    for (bytes, kind) in cases {
        let trace = [&[0, 0, 0, 0, 0, 0x80], bytes, &[0x84]].concat();
        let packets: Vec<_> = ptm::Decoder::new(&ptm_config, &trace, 0).collect();
        assert_eq!(
            (packets[1].kind, packets[1].len),
            (kind, bytes.len()),
            "{bytes:x?}"
        );
        assert_eq!(packets[2].kind, ptm::Kind::Atom, "{bytes:x?}");
    }
}
