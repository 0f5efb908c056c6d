//! Walks over the code of the captures' programs.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use kymo_coresight::Protocol;
use kymo_coresight::isa::Isa;

use super::program::{Program, Random, walk};
use super::{Case, PLAIN, check, etmv3, etmv4, ptm, real};

#[test]
fn etmv4_over_real_code() {
    let Some(folder) = crate::data::folder() else {
        return;
    };
    let full = etmv4::Options {
        has_return_stack: true,
        counts_cycles: true,
        ..PLAIN
    };
    let speculative = etmv4::Options {
        speculation: 8,
        ..PLAIN
    };
    for (name, options, seed) in [
        ("usr/bin/fib", PLAIN, 70),
        ("usr/lib/aarch64-linux-gnu/ld-2.31.so", full, 71),
        ("usr/lib/aarch64-linux-gnu/libc-2.31.so", full, 72),
        ("usr/lib/aarch64-linux-gnu/ld-2.31.so", speculative, 73),
    ] {
        let file = std::fs::read(folder.join("perf/symfs").join(name)).expect("a file");
        let layout = kymo_coresight::memory::Layout::of_elf(&file).expect("an ELF file");
        let (offset, size, _) = layout.segments().next().expect("a segment of code");
        let code = &file[offset as usize..(offset + size) as usize];
        let words = code.chunks_exact(4).filter_map(|word| word.try_into().ok());
        let words: Vec<u32> = words.map(u32::from_le_bytes).collect();
        // Parts of the code, each used as a program. They are long enough for addresses of all lengths.
        let cases: Vec<Case> = (0..20)
            .map(|number| {
                let mut random = Random(seed * 1000 + number);
                let length = words.len().min(20_000);
                let from = random.below(words.len() - length + 1);
                let program = real::program(0xffff_9d47_0000, &words[from..from + length]);
                let events = walk(&program, 400, 20, &mut random);
                let (trace, expected) = etmv4::encode(&program, &events, options, &mut random);
                Case {
                    protocol: Protocol::EtmV4(options.config()),
                    base: program.base,
                    code: program.code,
                    trace,
                    expected,
                }
            })
            .collect();
        check(&format!("{name}, {options:?}"), &cases, true);
    }
}

/// The code of a program of A32 and T32, as binutils lists it; `None`, with a message, without binutils.
fn listed(file: &Path) -> Option<Vec<real::Line>> {
    let mut objdump = Command::new("arm-none-eabi-objdump");
    let Ok(found) = objdump.arg("-d").arg(file).output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no arm-none-eabi-objdump");
        return None;
    };
    assert!(found.status.success(), "{}", file.display());
    let runs = real::runs(&String::from_utf8_lossy(&found.stdout));
    runs.into_iter().max_by_key(Vec::len)
}

/// Programs made of parts of the code of an R-profile processor, in both instruction sets, which call each other.
fn windows(seed: u64) -> Vec<(Program, Random)> {
    let mut all = Vec::new();
    let Some(folder) = crate::data::folder() else {
        return all;
    };
    for name in ["r5f-freertos/freertos.out", "r5f-zephyr/zephyr.elf"] {
        let Some(lines) = listed(&folder.join("snapshots").join(name)) else {
            return all;
        };
        for number in 0..20 {
            let mut random = Random(seed * 1000 + number);
            let length = lines.len().min(8_000);
            let from = random.below(lines.len() - length + 1);
            let program = real::program_of(&lines[from..from + length]);
            all.push((program, random));
        }
    }
    let has = |isa: Isa| {
        let mut each = all.iter().flat_map(|(program, _)| &program.all);
        each.any(|instruction| instruction.isa == isa)
    };
    assert!(has(Isa::A32) && has(Isa::T32), "both instruction sets");
    all
}

#[test]
fn ptm_over_real_code() {
    for (has_return_stack, counts_cycles, seed) in
        [(false, false, 80), (true, false, 81), (true, true, 82)]
    {
        let options = ptm::Options {
            has_return_stack,
            counts_cycles,
        };
        let cases: Vec<Case> = windows(seed)
            .into_iter()
            .map(|(program, mut random)| {
                let events = walk(&program, 400, 20, &mut random);
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
        check(&format!("PTM, {options:?}"), &cases, true);
    }
}

/// Without the library if exceptions cancel instructions, as for generated code.
#[test]
fn etmv3_over_real_code() {
    for (seed, has_alternative_branches, counts_cycles, cancels) in [
        (82, false, false, false),
        (83, true, false, false),
        (84, true, true, false),
        (85, true, false, true),
    ] {
        let options = etmv3::Options {
            has_alternative_branches,
            counts_cycles,
            cancels,
        };
        let cases: Vec<Case> = windows(seed)
            .into_iter()
            .map(|(program, mut random)| {
                let events = walk(&program, 400, 20, &mut random);
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
        check(&format!("ETMv3, {options:?}"), &cases, !cancels);
    }
}
