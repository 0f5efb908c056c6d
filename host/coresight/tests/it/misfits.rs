//! Tests of trace that does not match the code: the reported position and image.

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::input::Buffer;
use kymo_coresight::memory::{Image, Images, Memory, MemorySpace};
use kymo_coresight::selection::Selection;
use kymo_coresight::{Protocol, Source, etmv4, ptm, remarks};

/// Decodes runs through T32 code at 0x8000. Returns their counts and the remarks on them.
pub fn run(protocol: Protocol, code: &[u8], trace: &[u8], checks: bool) -> (Counts, Vec<String>) {
    let images: Images = [Image {
        name: "firmware.bin".to_owned(),
        address: 0x8000,
        file_offset: 0,
        bytes: code.to_vec().into(),
        space: MemorySpace::ANY,
    }]
    .into_iter()
    .collect();
    let source = Source {
        id: TraceId::NONE,
        name: "core".to_owned(),
        cpu: None,
        protocol,
    };
    let buffer = Buffer {
        name: "buffer".to_owned(),
        sources: vec![source],
        code: vec![Memory::from(images)],
        frames: frames::split(trace, FrameFormat::Unformatted, TraceId::NONE).into_owned(),
        thread: None,
    };
    let options = EtmV4Options {
        checks_branches: checks,
        ..EtmV4Options::default()
    };
    let mut all = counts::of_buffer(&buffer, options, &Selection::default(), 1, |_| true);
    let (_, mut counts) = all.pop().expect("a source");
    counts.doubts.locate(&buffer.frames.streams[0]);
    let remarks = remarks::of_doubts(&counts.doubts, &buffer, 0, &[]);
    let texts = remarks.iter().map(|remark| remark.text.clone()).collect();
    (counts, texts)
}

/// An ETMv4 whose core is at a T32 address, and executes these atoms.
pub fn etmv4(address: u16, atoms: &[u8]) -> (Protocol, Vec<u8>) {
    // A synchronization, trace info, trace on, and an address with a context of AArch32.
    let start = [&[0; 11][..], &[0x80, 0x01, 0x00, 0x04, 0x83]].concat();
    let address = [
        (address >> 1 & 0x7f) as u8,
        (address >> 8) as u8,
        0,
        0,
        0x20,
    ];
    let trace = [&start[..], &address, atoms].concat();
    (Protocol::EtmV4(etmv4::Config::default()), trace)
}

pub fn halves(code: &[u16]) -> Vec<u8> {
    code.iter().flat_map(|half| half.to_le_bytes()).collect()
}

#[test]
fn branches_of_t32_that_nothing_makes_conditional_are_taken() {
    const NOP: u16 = 0xbf00;
    const BRANCH: u16 = 0xe7fe;
    const IT: u16 = 0xbf08;
    const ITT: u16 = 0xbf04;
    // Each case: the code, the start of the run, and the branch that must be taken.
    let cases: [(&[u16], u16, Option<u64>); 10] = [
        (&[NOP, BRANCH], 0x8000, Some(0x8002)),
        // BX LR, and a call.
        (&[0x4770], 0x8000, Some(0x8000)),
        (&[NOP, 0xf000, 0xf800], 0x8000, Some(0x8002)),
        (&[IT, BRANCH], 0x8000, None),
        // The return address of an exception, within such a block and after its end.
        (&[IT, BRANCH], 0x8002, None),
        (&[IT, NOP, BRANCH], 0x8004, Some(0x8004)),
        (&[ITT, 0xf3af, 0x8000, BRANCH], 0x8006, None),
        (&[ITT, NOP, NOP, NOP, NOP, BRANCH], 0x8002, Some(0x800a)),
        // The end of a loop that has counted down; a conditional branch.
        (&[NOP, 0xf00f, 0xc001], 0x8000, None),
        (&[NOP, 0xd0fe], 0x8000, None),
    ];
    for (code, start, branch) in cases {
        let (protocol, trace) = etmv4(start, &[0xf6]);
        let (counts, texts) = run(protocol, &halves(code), &trace, false);
        let found = counts.doubts.not_taken.keys().next().copied();
        assert_eq!(found, branch, "{code:x?} from {start:#x}");
        assert_eq!(counts.ranges, 1, "{code:x?}");
        if let Some(branch) = branch {
            let expected = format!(
                "an unconditional branch was not taken, at {branch:#x}, in firmware.bin: the image is probably not what ran"
            );
            assert_eq!(texts, [expected]);
            // With checks, decoding stops.
            let (counts, texts) = run(protocol, &halves(code), &trace, true);
            assert_eq!(counts.ranges, 0, "{code:x?}");
            let expected = format!(
                "the trace does not fit the code, at {branch:#x}, in firmware.bin: the image is probably not what ran"
            );
            assert_eq!(texts, [expected]);
        }
    }
}

#[test]
fn a_run_without_an_end_says_where_it_began() {
    // More instructions without a branch than any code has.
    let code = halves(&vec![0xbf00; (1 << 20) + 8]);
    // A-sync; I-sync in non-secure T32, and an atom.
    let isync = [0, 0, 0, 0, 0, 0x80, 0x08, 0x05, 0x80, 0, 0, 0x29, 0x84];
    let ptm = (Protocol::Ptm(ptm::Config::default()), isync.to_vec());
    for (protocol, trace) in [etmv4(0x8004, &[0xf7]), ptm] {
        let (counts, texts) = run(protocol, &code, &trace, false);
        assert_eq!(counts.instructions, 0, "{protocol:?}");
        let expected = "the trace does not fit the code, at 0x8004, in firmware.bin: the image is probably not what ran";
        assert_eq!(texts, [expected], "{protocol:?}");
    }
}

/// A cleared buffer's zeros before the synchronization of a PTM do not make it one of ETMv4.
#[test]
fn zeros_of_a_cleared_buffer_are_of_no_other_protocol() {
    let is_other = |zeros: &[usize]| {
        // I-sync at an address, then reserved packets.
        let rest = [0x80, 0x08, 0x01, 0x00, 0x10, 0x00, 0x20, 0x12, 0x12];
        let parts = zeros
            .iter()
            .map(|zeros| [&vec![0; *zeros][..], &rest].concat());
        let trace = parts.collect::<Vec<_>>().concat();
        let source = Source {
            id: TraceId::NONE,
            name: "core".to_owned(),
            cpu: None,
            protocol: Protocol::Ptm(ptm::Config::default()),
        };
        let buffer = Buffer {
            name: "buffer".to_owned(),
            sources: vec![source],
            code: vec![Memory::from(Images::default())],
            frames: frames::split(&trace, FrameFormat::Unformatted, TraceId::NONE).into_owned(),
            thread: None,
        };
        let remarks = remarks::of_buffers(&[buffer]);
        let mut texts = remarks.iter().map(|remark| remark.text.as_str());
        texts.any(|text| text.starts_with("no synchronization of PTM (5 zeros"))
    };
    assert!(is_other(&[11]));
    assert!(is_other(&[12, 12]));
    assert!(!is_other(&[20]));
    assert!(!is_other(&[20, 5]));
}
