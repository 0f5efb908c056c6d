//! Real code for walks, classified by the text of a disassembler: `yaxpeax-arm` for A64, binutils for A32 and T32.

use kymo_coresight::isa::Isa;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::program::{Instruction, Op, Program};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;

/// A program of these words, at `base`. Branches to addresses outside of it, and words that the disassembler does not
/// know, are replaced by NOP; a return ends it.
pub fn program(base: u64, words: &[u32]) -> Program {
    let decoder = InstDecoder::default();
    let count = words.len() + 1;
    let mut all = Vec::with_capacity(count);
    let mut code = Vec::with_capacity(4 * count);
    for (index, word) in words.iter().copied().chain([RET]).enumerate() {
        let bytes = word.to_le_bytes();
        let text = decoder.decode(&mut U8Reader::new(&bytes));
        let op = text
            .ok()
            .and_then(|text| op(&text.to_string(), index, count));
        let word = if op.is_some() { word } else { NOP };
        code.extend(word.to_le_bytes());
        all.push(Instruction {
            address: base + 4 * index as u64,
            size: 4,
            isa: Isa::A64,
            op: op.unwrap_or(Op::Plain),
            may_skip: false,
        });
    }
    Program { base, code, all }
}

/// Effect of an instruction on the control flow, from its text; `None` for one that must be replaced.
fn op(text: &str, index: usize, count: usize) -> Option<Op> {
    let mnemonic = text.split(' ').next()?;
    // The text has the form `$+0x10`, relative to the instruction.
    let target = || {
        let (_, offset) = text.rsplit_once('$')?;
        let bytes = i64::from_str_radix(offset.get(3..)?, 16).ok()?;
        let bytes = if offset.starts_with('-') {
            -bytes
        } else {
            bytes
        };
        let to = usize::try_from(index as i64 + bytes / 4).ok()?;
        (bytes % 4 == 0 && to < count).then_some(to)
    };
    Some(match mnemonic {
        "b" => Op::Jump {
            to: target()?,
            is_conditional: false,
        },
        "bl" => Op::Call { to: target()? },
        "cbz" | "cbnz" | "tbz" | "tbnz" => Op::Jump {
            to: target()?,
            is_conditional: true,
        },
        "br" | "braa" | "brab" | "braaz" | "brabz" => Op::JumpRegister,
        "blr" | "blraa" | "blrab" | "blraaz" | "blrabz" => Op::CallRegister,
        "eret" | "eretaa" | "eretab" => Op::ExceptionReturn,
        "isb" => Op::Barrier,
        _ if mnemonic.starts_with("b.") => Op::Jump {
            to: target()?,
            is_conditional: true,
        },
        // An instruction of Armv8.8, which the library does not know. Data among the code may look like it.
        _ if mnemonic.starts_with("bc.") => return None,
        _ if mnemonic.starts_with("ret") => Op::Return,
        _ => Op::Plain,
    })
}

/// A line of a listing of A32 and T32.
#[derive(Clone, Debug)]
pub struct Line {
    address: u64,
    isa: Isa,
    /// The bytes in memory order.
    bytes: Vec<u8>,
    text: String,
}

impl Line {
    fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    fn is_data(&self) -> bool {
        self.text.starts_with('.')
    }

    /// A NOP or a return with the size of this instruction.
    fn replaced(&self, returns: bool) -> Vec<u8> {
        let halves = |halves: [u16; 2]| halves.map(u16::to_le_bytes).concat();
        match (self.isa, self.bytes.len(), returns) {
            (Isa::A32, _, false) => 0xe320_f000_u32.to_le_bytes().to_vec(),
            (Isa::A32, _, true) => 0xe12f_ff1e_u32.to_le_bytes().to_vec(),
            (_, 2, false) => 0xbf00_u16.to_le_bytes().to_vec(),
            (_, 2, true) => 0x4770_u16.to_le_bytes().to_vec(),
            (_, _, false) => halves([0xf3af, 0x8000]),
            // LDR.W pc, [sp], #4
            (_, _, true) => halves([0xf85d, 0xfb04]),
        }
    }
}

/// The lines of a listing of `objdump -d`, in sequences without gaps. Data among the code gets the instruction set of
/// the code before it.
pub fn runs(listing: &str) -> Vec<Vec<Line>> {
    let mut runs: Vec<Vec<Line>> = Vec::new();
    let mut isa = Isa::A32;
    for line in listing.lines() {
        let Some((address, rest)) = line.split_once(":\t") else {
            continue;
        };
        let (opcode, text) = rest.split_once('\t').unwrap_or((rest, ".byte"));
        let (opcode, text) = (opcode.trim(), text.trim());
        let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
        let (Some(address), is_data) = (number(address.trim()), text.starts_with('.')) else {
            continue;
        };
        let bytes = match opcode.split_once(' ') {
            Some((first, second)) => match (number(first), number(second)) {
                (Some(first), Some(second)) if first >> 16 == 0 && second >> 16 == 0 => {
                    isa = Isa::T32;
                    [first as u16, second as u16].map(u16::to_le_bytes).concat()
                }
                // A line of a data dump.
                _ => continue,
            },
            None => match (number(opcode), opcode.len()) {
                (Some(half), 4) => {
                    isa = if is_data { isa } else { Isa::T32 };
                    (half as u16).to_le_bytes().to_vec()
                }
                (Some(word), 8) => {
                    isa = if is_data { isa } else { Isa::A32 };
                    word.to_le_bytes().to_vec()
                }
                _ => continue,
            },
        };
        let line = Line {
            address: address.into(),
            isa,
            bytes,
            text: text.replace('\t', " "),
        };
        // A halfword of data among A32.
        if line.is_data() && isa == Isa::A32 && line.bytes.len() != 4 {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last.end() == line.address) => {
                run.push(line);
            }
            _ => runs.push(vec![line]),
        }
    }
    runs
}

/// A program of these lines. Data, and branches to addresses outside of it, are replaced by NOP. A return ends the
/// program, and each part of it with one instruction set.
pub fn program_of(lines: &[Line]) -> Program {
    let index_of = |address: u64, isa: Isa| {
        let found = lines.binary_search_by_key(&address, |line| line.address);
        found.ok().filter(|index| lines[*index].isa == isa)
    };
    let (mut all, mut code) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1);
        let is_last = next.is_none_or(|next| next.isa != line.isa);
        let op = if line.is_data() || is_last {
            None
        } else {
            op_of(line, index_of)
        };
        let (op, may_skip) = match op {
            Some(known) => {
                code.extend(&line.bytes);
                known
            }
            None => {
                code.extend(line.replaced(is_last));
                (if is_last { Op::Return } else { Op::Plain }, false)
            }
        };
        all.push(Instruction {
            address: line.address,
            size: line.bytes.len() as u8,
            isa: line.isa,
            op,
            may_skip,
        });
    }
    // The library reads four bytes for the last instruction, too.
    code.extend([0; 4]);
    Program {
        base: lines[0].address,
        code,
        all,
    }
}

const CONDITIONS: [&str; 14] = [
    "eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le",
];

/// Effect of an instruction on the control flow, from its text, and whether it is conditional; `None` for one that must
/// be replaced.
fn op_of(line: &Line, index_of: impl Fn(u64, Isa) -> Option<usize>) -> Option<(Op, bool)> {
    let text = line.text.split([';', '@']).next()?.trim();
    let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
    let mnemonic = mnemonic.trim_end_matches(".w").trim_end_matches(".n");
    // `bl` alone is no condition of `b`, unlike `bls` and `blt`.
    let (root, is_conditional) = match mnemonic.split_at_checked(mnemonic.len().wrapping_sub(2)) {
        Some((root, condition)) if CONDITIONS.contains(&condition) && !root.is_empty() => {
            (root, true)
        }
        _ => (mnemonic, false),
    };
    let target = |isa: Isa| {
        let digits = operands.split(' ').find(|word| word.len() >= 6)?;
        index_of(u64::from_str_radix(digits, 16).ok()?, isa)
    };
    let other = match line.isa {
        Isa::A32 => Isa::T32,
        _ => Isa::A32,
    };
    let is_to_pc = operands.starts_with("pc,");
    let loads_pc = operands.ends_with("pc}");
    let op = match root {
        "b" => {
            let to = target(line.isa)?;
            return Some((Op::Jump { to, is_conditional }, false));
        }
        "cbz" | "cbnz" => {
            let to = target(line.isa)?;
            let is_conditional = true;
            return Some((Op::Jump { to, is_conditional }, false));
        }
        "bl" => Op::Call {
            to: target(line.isa)?,
        },
        "blx" if operands.contains('<') => Op::Call { to: target(other)? },
        "blx" => Op::CallRegister,
        "bx" if operands == "lr" => Op::Return,
        "bx" | "bxj" | "tbb" | "tbh" => Op::JumpRegister,
        "isb" => Op::Barrier,
        "mcr" if operands.contains("cr7, cr5, {4}") => Op::Barrier,
        _ if root.starts_with("rfe") || root == "eret" => Op::ExceptionReturn,
        // The effect of `^` on banked registers does not matter for the control flow.
        _ if loads_pc && (root == "pop" || root.starts_with("ldm")) => Op::Return,
        "subs" | "movs" if is_to_pc => Op::ExceptionReturn,
        "ldr" | "mov" | "add" | "sub" if is_to_pc => Op::JumpRegister,
        // Other instructions that write the PC.
        _ if is_to_pc || loads_pc => return None,
        _ => Op::Plain,
    };
    Some((op, is_conditional && op != Op::Plain))
}
