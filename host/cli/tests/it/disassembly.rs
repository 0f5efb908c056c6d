//! `kymo disasm`, compared with perf's script `arm-cs-trace-disasm.py`, which runs objdump.

use std::collections::BTreeSet;

use kymo_fixtures::captures;

use crate::coresight::{golden, of_perf};

/// An instruction: the low bits of its address, its opcode and mnemonic. The low bits are comparable, although the
/// script lists offsets in files, and Kymo addresses.
type Instruction<'a> = (u64, &'a str, &'a str);

fn instruction(line: &str) -> Option<Instruction<'_>> {
    let mut words = line.split_whitespace();
    let address = words.next()?.trim_end_matches(':');
    let opcode = words.next().filter(|opcode| opcode.len() == 8)?;
    u32::from_str_radix(opcode, 16).ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((address & 0xfff, opcode, words.next()?))
}

/// Different mnemonics for one opcode: some conditions and cache maintenance instructions have two names.
const ALIASES: [(&str, &str); 3] = [("b.lo", "b.cc"), ("b.hs", "b.cs"), ("sys", "dc")];

/// Kymo lists each instruction of the script in the same order, and more: the script lists the instructions from one
/// branch to the next, so not the first ones behind an interruption of the trace, nor those behind the last branch.
/// Within a loop, the iteration of an interruption is unknown, so only the number of such positions is compared.
#[test]
fn instructions_are_those_of_the_script() {
    let Some(folder) = captures::coresight() else {
        return;
    };
    for (name, count) in [("ricsec-fib-1", 77_438), ("ricsec-branches-1", 74_912)] {
        let ours = of_perf(&folder, name, &["disasm", "--no-source"]);
        let mut found = Vec::new();
        // Indexes of the instructions before which the trace is interrupted.
        let mut interrupted = BTreeSet::new();
        for line in ours.lines() {
            match line.trim_start().starts_with("--") {
                true => _ = interrupted.insert(found.len()),
                false => found.extend(instruction(line)),
            }
        }
        assert_eq!(found.len(), count, "{name}");
        let theirs = golden(&folder, name, "disasm");
        let mut at = 0;
        let (mut listed, mut places) = (0, 0);
        for line in theirs.lines().filter(|line| line.starts_with('\t')) {
            let Some(their) = instruction(line) else {
                continue;
            };
            listed += 1;
            let is_it = |our: &Instruction<'_>| (our.0, our.1) == (their.0, their.1);
            let left_out = found[at..].iter().position(is_it);
            let Some(left_out) = left_out else {
                panic!("{name}: {line:?} is not behind {at} instructions of ours");
            };
            places += usize::from(left_out > 0);
            at += left_out;
            let our = found[at];
            assert!(
                our.2 == their.2 || ALIASES.contains(&(our.2, their.2)),
                "{name}: {our:?}, {their:?}"
            );
            at += 1;
        }
        assert!(listed * 100 >= count * 99, "{name}: {listed}");
        let interrupted = interrupted.len();
        assert!(places <= interrupted, "{name}: {places} > {interrupted}");
    }
}
