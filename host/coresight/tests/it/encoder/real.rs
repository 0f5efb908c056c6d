//! Real code of A64 to walk over, classified by the text of a disassembler.

use kymo_coresight::isa::Isa;
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::program::{Instruction, Op, Program};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;

/// A program of these words, at `base`. Branches that lead out of it, and words that the disassembler does not know, are
/// replaced by NOP; a return ends it.
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
        });
    }
    Program { base, code, all }
}

/// What an instruction does to the flow, by its text; `None` for one that is replaced.
fn op(text: &str, index: usize, count: usize) -> Option<Op> {
    let mnemonic = text.split(' ').next()?;
    // `$+0x10`, from the instruction.
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
        // Of Armv8.8, which the library does not know; among the code is data that looks like it.
        _ if mnemonic.starts_with("bc.") => return None,
        _ if mnemonic.starts_with("ret") => Op::Return,
        _ => Op::Plain,
    })
}
