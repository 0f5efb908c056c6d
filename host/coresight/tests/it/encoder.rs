//! Synthetic traces for packets without a capture: encoded from a random walk over random code, decoded by this crate
//! and by Debian's libopencsd 1.3.3, and compared with each other and with the walk.
//!
//! Where the library is known to be wrong (`manifest.json` of the captures), for cycle counts with commits and for Q
//! elements, the walk's own record is the oracle.

mod etmv3;
mod etmv4;
mod oracle;
mod over_real_code;
pub(crate) mod program;
mod ptm;
mod real;

use kymo_coresight::Protocol;
use kymo_coresight::element::{Element, Software, TraceOn, Transaction};
use kymo_coresight::flow::{EtmV4Options, Flow};
use kymo_coresight::isa::Isa;
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::memory::{Image, Images, MemorySpace};

use program::{Program, Random, walk};

/// Trace with the walk that it encodes.
struct Case {
    protocol: Protocol,
    base: u64,
    code: Vec<u8>,
    trace: Vec<u8>,
    /// Elements, without the offsets of their packets.
    expected: Vec<String>,
}

/// An element as the oracle prints it.
fn line(at: usize, element: &Element) -> String {
    let cycles =
        |cycles: Option<u32>| cycles.map_or_else(String::new, |count| format!(" cc{count}"));
    let text = match *element {
        Element::Range(range) => {
            let exec = if range.is_taken { 'E' } else { 'N' };
            let (start, end, count) = (range.start, range.end, range.count);
            let isa = etmv4::isa_number(range.isa);
            format!(
                "range {start:x} {end:x} {count} isa{isa} {exec}{}",
                cycles(range.cycles)
            )
        }
        Element::RangeWithoutPath { start, next, count } => {
            format!("nopath {start:x} {next:x} {count}")
        }
        Element::Exception {
            number,
            return_address,
            is_inferred,
            ..
        } => {
            let return_address = return_address.filter(|_| !is_inferred);
            let address =
                return_address.map_or_else(String::new, |address| format!(" {address:x}"));
            format!("exception {number}{address}")
        }
        Element::ExceptionReturn => "return".into(),
        Element::Timestamp {
            value,
            cycles: count,
        } => format!("time {value:x}{}", cycles(count)),
        Element::Cycles(count) => format!("cycles {count}"),
        Element::TraceOn { why, .. } => {
            let why = [TraceOn::Normal, TraceOn::Overflow, TraceOn::Debug]
                .iter()
                .position(|one| *one == why);
            format!("on {}", why.expect("one of them"))
        }
        Element::Event(number) => format!("event {}", number.map_or(-1, i32::from)),
        Element::NotAccessible { address, .. } => format!("nacc {address:x}"),
        Element::AddressUnknown => "unknown".into(),
        Element::Context(context) => {
            let isa = etmv4::isa_number(context.isa);
            let level = context
                .level
                .map_or_else(String::new, |level| format!(" el{level}"));
            let id = context
                .context_id
                .map_or_else(String::new, |id| format!(" id{id:x}"));
            let vmid = context
                .vmid
                .map_or_else(String::new, |id| format!(" vm{id:x}"));
            format!("context {isa}{level}{id}{vmid}")
        }
        Element::Transaction(turn) => {
            let turns = [
                Transaction::Init,
                Transaction::Start,
                Transaction::Commit,
                Transaction::Fail,
            ];
            let number = turns.iter().position(|one| *one == turn);
            format!("transaction {}", number.expect("one of them"))
        }
        Element::NoSync(_) => "nosync".into(),
        Element::End(_) => "end".into(),
        Element::TimestampMarker => "other 15".into(),
        Element::Instrumentation { level, value } => format!("instrumentation {level} {value:x}"),
        Element::Software(Software::Stm(message)) => oracle::message(&message),
        Element::Conditional { .. }
        | Element::ConditionalResult { .. }
        | Element::ConditionalFlush
        | Element::Data { .. }
        | Element::StoreFailed
        | Element::DataSuppressed
        | Element::Software(_) => {
            let mut text = String::new();
            element.describe(&mut text).expect("text");
            text
        }
    };
    format!("{at} {text}")
}

/// Elements of a trace as decoded by this crate.
fn ours(case: &Case) -> Vec<String> {
    let code: Images = [Image {
        name: String::new(),
        address: case.base,
        file_offset: 0,
        bytes: case.code.clone().into(),
        space: MemorySpace::ANY,
    }]
    .into_iter()
    .collect();
    let mut elements = Vec::new();
    let mut flow = Flow::new(&case.protocol, EtmV4Options::default(), &code);
    flow.run(
        PacketDecoder::new(&case.protocol, &case.trace, 0),
        &mut elements,
    );
    flow.finish(&mut elements);
    elements
        .iter()
        .map(|(at, element)| line(*at, element))
        .collect()
}

/// Panics at the first line that differs.
fn same(name: &str, ours: &[String], expected: &[String], case: &Case) {
    let differs = ours.iter().zip(expected).position(|(a, b)| a != b);
    let Some(at) =
        differs.or((ours.len() != expected.len()).then_some(ours.len().min(expected.len())))
    else {
        return;
    };
    let around =
        |lines: &[String]| lines[at.saturating_sub(6)..(at + 3).min(lines.len())].join("\n    ");
    let position: usize = ours.get(at).or(ours.last()).map_or(0, |line| {
        line.split(' ')
            .next()
            .and_then(|at| at.parse().ok())
            .unwrap_or(0)
    });
    let bytes = &case.trace[position.saturating_sub(16)..(position + 32).min(case.trace.len())];
    panic!(
        "{name}, element {at}:\nours\n    {}\nexpected\n    {}\nbytes {bytes:02x?}",
        around(ours),
        around(expected)
    );
}

fn check(name: &str, cases: &[Case], has_oracle: bool) {
    let mut instructions = 0;
    for (number, case) in cases.iter().enumerate() {
        let ours = ours(case);
        let without_positions: Vec<String> = ours
            .iter()
            .map(|line| line.split_once(' ').expect("a position").1.to_owned())
            .collect();
        instructions += without_positions
            .iter()
            .filter(|line| line.starts_with("range"))
            .count();
        same(
            &format!("{name} {number}, the walk"),
            &without_positions,
            &case.expected,
            case,
        );
    }
    assert!(
        instructions > 50 * cases.len(),
        "{name}: {instructions} ranges"
    );
    if !has_oracle {
        return;
    }
    let Some(theirs) = oracle::theirs(cases) else {
        return;
    };
    assert_eq!(theirs.len(), cases.len());
    for (number, (case, theirs)) in cases.iter().zip(&theirs).enumerate() {
        let oracle::Theirs { packets, elements } = theirs;
        // The library does not return packets of an ETE.
        if !matches!(&case.protocol, Protocol::EtmV4(config) if config.is_ete) {
            let ours = oracle::packets(case);
            same(
                &format!("{name} {number}, packets of libopencsd"),
                &ours,
                packets,
                case,
            );
        }
        // The library prints a context with the instruction set of the last range, which a later branch may have
        // changed.
        let is_of_range = matches!(case.protocol, Protocol::Ptm(_) | Protocol::EtmV3(_));
        let comparable = |lines: &[String]| -> Vec<String> {
            let comparable = lines.iter().map(|line| match line.split_once(" context ") {
                Some((at, rest)) if is_of_range => {
                    let (_, ids) = rest.split_once(' ').unwrap_or((rest, ""));
                    format!("{at} context {ids}")
                }
                _ => line.clone(),
            });
            comparable.collect()
        };
        let (ours, theirs) = (comparable(&ours(case)), comparable(elements));
        same(
            &format!("{name} {number}, libopencsd"),
            &ours,
            &theirs,
            case,
        );
    }
}

fn etmv4_cases(options: etmv4::Options, isa: Isa, seed: u64) -> Vec<Case> {
    (0..40)
        .map(|number| {
            let mut random = Random(seed * 1000 + number);
            let base = match (isa, number % 3) {
                (Isa::A64, 0) => 0xffff_8000_1000_0000,
                (Isa::A64, 1) => 0x0000_aaaa_bbbb_0000,
                _ => 0x8000,
            };
            let program = Program::new(isa, base, &mut random);
            let program = program.with_accesses(options.loads, options.stores);
            let events = walk(&program, 300, 12, &mut random);
            let (trace, expected) = etmv4::encode(&program, &events, options, &mut random);
            Case {
                protocol: Protocol::EtmV4(options.config()),
                base: program.base,
                code: program.code,
                trace,
                expected,
            }
        })
        .collect()
}

/// The decoder classifies each generated instruction as it was encoded.
#[test]
fn instructions_are_classified_as_they_were_encoded() {
    use kymo_coresight::instruction::{self, Class, Waypoints};
    use program::Op;
    for seed in 0..60 {
        let mut random = Random(seed);
        let isa = [Isa::A64, Isa::A32, Isa::T32][seed as usize % 3];
        let program = Program::new(isa, 0x8000, &mut random);
        for instruction in &program.all {
            let bytes = &program.code[(instruction.address - program.base) as usize..];
            let found = instruction::decode(
                instruction.isa,
                instruction.address,
                bytes,
                Waypoints::default(),
            );
            let found = found.expect("an instruction");
            assert_eq!(
                found.size,
                instruction.size,
                "{instruction:x?} {:02x?}",
                &bytes[..4.min(bytes.len())]
            );
            let class = match instruction.op {
                Op::Plain => Class::Other,
                Op::Barrier => Class::Isb,
                Op::Access => Class::Access,
                Op::Jump { .. } | Op::Call { .. } => Class::Branch,
                _ => Class::Indirect,
            };
            assert_eq!(found.class, class, "{instruction:x?} {:02x?}", &bytes[..2]);
            if let Op::Jump { to, .. } | Op::Call { to } = instruction.op {
                let to = &program.all[to];
                assert_eq!(
                    (found.target, found.next_isa),
                    (to.address, to.isa),
                    "{instruction:x?}"
                );
            }
            let is_call = matches!(instruction.op, Op::Call { .. } | Op::CallRegister);
            assert_eq!(found.links, is_call, "{instruction:x?}");
            let is_conditional = matches!(
                instruction.op,
                Op::Jump {
                    is_conditional: true,
                    ..
                }
            );
            assert_eq!(found.is_conditional, is_conditional, "{instruction:x?}");
        }
    }
}

const PLAIN: etmv4::Options = etmv4::Options {
    is_ete: false,
    has_return_stack: false,
    counts_cycles: false,
    speculation: 0,
    commits_with_cycles: false,
    has_sources: false,
    has_q: false,
    loads: false,
    stores: false,
};

#[test]
fn etmv4_without_speculation() {
    check("plain", &etmv4_cases(PLAIN, Isa::A64, 1), true);
    let full = etmv4::Options {
        has_return_stack: true,
        counts_cycles: true,
        ..PLAIN
    };
    check("return stack", &etmv4_cases(full, Isa::A64, 2), true);
    check("A32 and T32", &etmv4_cases(full, Isa::A32, 3), true);
    check("T32", &etmv4_cases(PLAIN, Isa::T32, 4), true);
}

#[test]
fn etmv4_with_speculation() {
    for (seed, speculation) in [(10, 1), (11, 4), (12, 16), (13, 78)] {
        let options = etmv4::Options {
            speculation,
            has_return_stack: seed % 2 == 0,
            counts_cycles: seed > 11,
            ..PLAIN
        };
        let name = format!("speculation {speculation}");
        check(&name, &etmv4_cases(options, Isa::A64, seed), true);
    }
}

/// The library adds the base of a format 2 count wrongly (`maxspec78_commopt0`).
#[test]
fn etmv4_with_commits_in_cycle_counts() {
    let options = etmv4::Options {
        speculation: 20,
        counts_cycles: true,
        commits_with_cycles: true,
        ..PLAIN
    };
    check("commits", &etmv4_cases(options, Isa::A64, 20), false);
}

#[test]
fn ete() {
    for (seed, speculation) in [(30, 0), (31, 12)] {
        let options = etmv4::Options {
            is_ete: true,
            speculation,
            // The library does not use the return stack after a source address.
            has_return_stack: seed == 31,
            counts_cycles: true,
            has_sources: seed == 30,
            ..PLAIN
        };
        let name = format!("ETE, speculation {speculation}");
        check(&name, &etmv4_cases(options, Isa::A64, seed), true);
    }
}

/// The library refuses them.
#[test]
fn etmv4_with_atoms_of_loads_and_stores() {
    let kinds = [(true, false), (false, true), (true, true)];
    for (seed, (loads, stores)) in (60..).zip(kinds) {
        for (isa, speculation) in [(Isa::A64, 0), (Isa::A32, 5), (Isa::T32, 0)] {
            let options = etmv4::Options {
                loads,
                stores,
                speculation,
                has_return_stack: true,
                counts_cycles: true,
                ..PLAIN
            };
            let name = format!("{isa:?}, loads {loads}, stores {stores}");
            check(&name, &etmv4_cases(options, isa, seed), false);
        }
    }
}

/// The library follows Q elements past branches (`q_elem`).
#[test]
fn q_elements() {
    let options = etmv4::Options {
        has_q: true,
        counts_cycles: true,
        ..PLAIN
    };
    check("Q", &etmv4_cases(options, Isa::A64, 40), false);
    let options = etmv4::Options {
        speculation: 9,
        ..options
    };
    check(
        "Q with speculation",
        &etmv4_cases(options, Isa::A32, 41),
        false,
    );
}

#[test]
fn ptm() {
    for (isa, has_return_stack, counts_cycles, seed) in [
        (Isa::T32, false, false, 50),
        (Isa::A32, false, false, 51),
        (Isa::A32, true, false, 52),
        (Isa::T32, false, true, 53),
        (Isa::A32, true, true, 54),
    ] {
        let options = ptm::Options {
            has_return_stack,
            counts_cycles,
        };
        let cases: Vec<Case> = (0..40)
            .map(|number| {
                let mut random = Random(seed * 1000 + number);
                let base = if number % 2 == 0 { 0x8000 } else { 0xc010_0000 };
                let program = Program::new(isa, base, &mut random);
                let events = walk(&program, 300, 12, &mut random);
                let (trace, expected) = ptm::encode(&program, &events, options, &mut random);
                Case {
                    protocol: Protocol::Ptm(options.config()),
                    base: program.base,
                    code: program.code,
                    trace,
                    expected,
                }
            })
            .collect();
        check(&format!("PTM, {isa:?}, {options:?}"), &cases, true);
    }
}

/// The library emits an instruction even though an exception cancels it.
#[test]
fn etmv3() {
    for (seed, isa, has_alternative_branches, counts_cycles, cancels) in [
        (60, Isa::A32, false, false, false),
        (61, Isa::T32, true, false, false),
        (62, Isa::A32, true, true, false),
        (63, Isa::A32, false, false, true),
        (64, Isa::T32, true, false, true),
    ] {
        let options = etmv3::Options {
            has_alternative_branches,
            counts_cycles,
            cancels,
        };
        let cases: Vec<Case> = (0..40)
            .map(|number| {
                let mut random = Random(seed * 1000 + number);
                let base = if number % 2 == 0 { 0x8000 } else { 0xc010_0000 };
                let program = Program::new(isa, base, &mut random);
                let events = walk(&program, 300, 12, &mut random);
                let (trace, expected) = etmv3::encode(&program, &events, options, &mut random);
                Case {
                    protocol: Protocol::EtmV3(options.config()),
                    base: program.base,
                    code: program.code,
                    trace,
                    expected,
                }
            })
            .collect();
        check(&format!("ETMv3, {isa:?}, {options:?}"), &cases, !cancels);
    }
}

/// STM against the library: masters, channels, values and times.
///
/// - The library emits an element for a null packet with a timestamp: a message without bits, with the master and
///   channel of the previous message. Software sent no message, the packet only carries the time, so we emit no
///   element.
/// - It treats master and channel as unknown until a master packet, and after a global error. By STPv2 they are 0 after
///   a version packet and a global error, and a channel packet sets the channel, as in this crate.
/// - Gray-coded timestamps from bit 31 on are wrong in 1.3.3 (it shifts an `int`, and the sign fills the upper half).
///   The generator's own record has them; here they are not compared.
/// - It uses the next byte as the start of a packet that begins within a byte. Therefore only the kinds of packets are
///   compared.
#[test]
fn stm() {
    use kymo_coresight::frames::TraceId;
    let cases: Vec<Case> = (0..40)
        .map(|seed| Case {
            protocol: Protocol::Stm(TraceId(1)),
            base: 0,
            code: Vec::new(),
            trace: crate::kinds::trace_of_an_stm(seed).0,
            expected: Vec::new(),
        })
        .collect();
    let Some(theirs) = oracle::theirs(&cases) else {
        return;
    };
    assert_eq!(theirs.len(), cases.len());
    let last = |lines: &[String]| -> Vec<String> {
        let lines = lines.iter().map(|line| line.split(' ').next_back());
        lines
            .map(|kind| kind.unwrap_or_default().to_owned())
            .collect()
    };
    for (number, (case, theirs)) in cases.iter().zip(theirs).enumerate() {
        let name = format!("STM {number}, libopencsd");
        // Version packet after the synchronization.
        let is_gray = case.trace[12] == 0x40;
        let element = |line: &String| {
            let (_, element) = line.split_once(' ').unwrap_or_default();
            let is_time = |text: &str| u64::from_str_radix(text, 16).is_ok();
            match element.rsplit_once(" t") {
                Some((message, time)) if is_gray && is_time(time) => format!("{message} t"),
                _ => element.to_owned(),
            }
        };
        let mut ours: Vec<String> = ours(case).iter().map(element).collect();
        let theirs_are = theirs.elements.iter().map(element);
        let elements: Vec<_> = theirs_are.filter(|line| !line.contains("null")).collect();
        for (our, their) in ours.iter_mut().zip(&elements) {
            let known = our.strip_prefix("message ");
            if let Some((_, rest)) = known.and_then(|known| known.split_once(' '))
                && their.starts_with("message ?")
            {
                *our = format!("message ? {rest}");
            }
        }
        same(&name, &ours, &elements, case);
        let (ours, theirs) = (last(&oracle::packets(case)), last(&theirs.packets));
        same(&name, &ours, &theirs, case);
    }
}
