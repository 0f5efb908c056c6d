//! Targets of indirect branches that no address packet has.

use kymo_coresight::Protocol;
use kymo_coresight::element::Element;
use kymo_coresight::etmv4::Fields;
use kymo_coresight::flow::{EtmV4Options, Flow};
use kymo_coresight::listing::{Packet, PacketDecoder};
use kymo_coresight::memory::{Image, Images, MemorySpace};

use crate::misfits::{etmv4, halves, run};

/// An ETMv4's address packet of a T32 address.
fn address(address: u16) -> [u8; 5] {
    let [low, high] = address.to_le_bytes();
    [0x9b, low >> 1, high, 0, 0]
}

/// A trace unit with a return stack leaves the targets of returns out. If its registers do not say so, what ran behind
/// them is unknown.
#[test]
fn atoms_behind_a_branch_without_a_target_are_counted() {
    const BX_LR: u16 = 0x4770;
    // At 0x8000 a return without a target, and an atom behind it; the same at 0x8002.
    let atoms = [&[0xf7, 0xf7, 0xf7][..], &address(0x8002), &[0xf7, 0xf7]].concat();
    let (protocol, trace) = etmv4(0x8000, &atoms);
    let (counts, texts) = run(protocol, &halves(&[BX_LR, BX_LR]), &trace, false);
    assert_eq!(counts.doubts.address_unknown, 2);
    assert_eq!(
        texts,
        [
            "execution went 2 times to an address that the trace does not say: if the trace unit's return stack was on, TRCCONFIGR \
             has to say so (bit 12)"
        ]
    );
}

/// A trace unit leaves a target out if the top of its return stack has it; that entry is then used up. An exception
/// packet with `E1:E0` = 0b10 implies an address element before the exception (Arm IHI 0064, "Exception instruction
/// trace packet"), so the target was not on the return stack, and no entry is used up. OpenCSD 1.8.0 uses one up
/// before it looks at the exception, and goes to wrong addresses at the returns that follow.
#[test]
fn a_target_in_an_exception_packet_is_not_taken_off_the_return_stack() {
    const NOP: u16 = 0xbf00;
    let mut code = [NOP; 0x22];
    // bl 0x8010; there `b .`
    code[..3].copy_from_slice(&[0xf000, 0xf806, 0xe7fe]);
    // blx r1; bx lr
    code[8..10].copy_from_slice(&[0x4788, 0x4770]);
    // The called function: bx lr
    code[0x18] = 0x4770;
    // The handler: bx r2
    code[0x20] = 0x4710;
    let rest = [
        // Both calls; an interrupt at the target of the second; its handler and the return from there.
        &[0xf7, 0xf7, 0x06, 0x40 | 0x0e << 1][..],
        &address(0x8030),
        &address(0x8040),
        &[0xf7],
        &address(0x8030),
        // Two returns with the return stack, and the loop.
        &[0xf7, 0xf7, 0xf7],
    ]
    .concat();
    let (protocol, trace) = etmv4(0x8000, &rest);
    let Protocol::EtmV4(mut config) = protocol else {
        panic!("{protocol:?}");
    };
    config.configr |= 1 << 12;
    let protocol = Protocol::EtmV4(config);
    let images: Images = [Image {
        name: String::new(),
        address: 0x8000,
        file_offset: 0,
        bytes: halves(&code).into(),
        space: MemorySpace::ANY,
    }]
    .into_iter()
    .collect();
    let mut elements = Vec::new();
    let mut flow = Flow::new(&protocol, EtmV4Options::default(), &images);
    flow.run(PacketDecoder::new(&protocol, &trace, 0), &mut elements);
    let ranges = elements.iter().filter_map(|(_, element)| match element {
        Element::Range(range) => Some((range.start, range.end)),
        Element::Exception { return_address, .. } => Some((0, return_address.unwrap_or_default())),
        _ => None,
    });
    let expected = [
        (0x8000, 0x8004),
        (0x8010, 0x8012),
        (0, 0x8030),
        (0x8040, 0x8042),
        (0x8030, 0x8032),
        (0x8012, 0x8014),
        (0x8004, 0x8006),
    ];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
}

#[test]
fn trace_info_resets_the_addresses_to_which_packets_refer() {
    let protocol = Protocol::EtmV4(Default::default());
    let start = [&[0; 11][..], &[0x80, 0x01, 0x00]].concat();
    let trace = [
        &start[..],
        // A context of AArch64, an address of 64 bits.
        &[0x81, 0x31],
        &[0x9d, 0, 0, 1, 0, 0, 0x80, 0xff, 0xff],
        // Synchronized again: an address of 32 bits; an exact match after another synchronization.
        &start,
        &[0x9a, 0, 0, 0x41, 0],
        &start,
        &[0x90],
    ]
    .concat();
    let packets = PacketDecoder::new(&protocol, &trace, 0);
    let addresses = packets.filter_map(|packet| match packet {
        Packet::EtmV4(packet) => match packet.fields {
            Fields::Address(address) => Some(address.value),
            _ => None,
        },
        _ => None,
    });
    let expected = [0xffff_8000_0001_0000, 0x41_0000, 0];
    assert_eq!(addresses.collect::<Vec<_>>(), expected);
}
