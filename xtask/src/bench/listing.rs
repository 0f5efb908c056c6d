//! Disassembly (`objdump -d`) against which an execution is checked.
//!
//! The counts come from an emulator's log, whose completeness is checked: every instruction in it must belong to the
//! program, and must be followed by the next one or by a branch target.

use std::collections::BTreeMap;

use kymo_targets::run::{Error, Result};

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The name, like `ldr.w`.
    pub name: String,
    /// The operands, as objdump writes them, without comments.
    pub operands: String,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: u64,
    /// Its bytes, literals included.
    pub size: u64,
}

/// A program's instructions and functions.
#[derive(Debug)]
pub struct Listing {
    instructions: BTreeMap<u64, Instruction>,
    functions: BTreeMap<u64, Function>,
    /// There is code outside the listing: Linux maps a page of its own into programs (the vDSO).
    hosted: bool,
}

impl Listing {
    /// Reads the output of `objdump -d --no-show-raw-insn` and of `nm -S`.
    pub fn read(disassembly: &str, symbols: &str, hosted: bool) -> Self {
        let mut instructions = BTreeMap::new();
        for line in disassembly.lines() {
            if let Some((address, instruction)) = instruction(line) {
                instructions.insert(address, instruction);
            }
        }
        let mut functions = BTreeMap::new();
        for function in symbols.lines().filter_map(function) {
            functions.insert(function.address, function);
        }
        Self {
            instructions,
            functions,
            hosted,
        }
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.values().find(|it| it.name == name)
    }

    /// The functions whose names begin with `prefix`.
    pub fn functions<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Function> {
        let all = self.functions.values();
        all.filter(move |function| function.name.starts_with(prefix))
    }

    /// The function that contains this address.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        (address < function.address + function.size).then_some(function)
    }

    /// The instruction at this address.
    pub fn instruction(&self, address: u64) -> Option<&Instruction> {
        self.instructions.get(&address)
    }

    /// The address of the next instruction.
    pub fn after(&self, address: u64) -> Option<u64> {
        let (next, _) = self.instructions.range(address + 1..).next()?;
        Some(*next)
    }

    fn is_foreign(&self, address: u64) -> bool {
        let last = self.instructions.last_key_value();
        last.is_some_and(|(last, _)| address > *last)
    }

    /// Whether `to` can be executed right after `from`.
    ///
    /// # Errors
    /// When it can't, or one of them is not an instruction of this program.
    pub fn check(&self, from: u64, to: u64) -> Result<()> {
        if self.hosted && (self.is_foreign(from) || self.is_foreign(to)) {
            return Ok(());
        }
        let missing = |at| Error::new(format!("{at:#x} was executed and is no instruction"));
        let instruction = self.instruction(from).ok_or_else(|| missing(from))?;
        self.instruction(to).ok_or_else(|| missing(to))?;
        let falls = self.after(from) == Some(to);
        let possible = match instruction.control() {
            Control::None => falls,
            Control::To(target) => falls || target == to,
            Control::Anywhere => true,
        };
        if possible {
            return Ok(());
        }
        Err(Error::new(format!(
            "{to:#x} was executed after {from:#x} ({instruction:?}), which can't be"
        )))
    }
}

/// Branch targets of an instruction, besides the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    /// None.
    None,
    /// This address, possibly conditionally.
    To(u64),
    /// An address in a register or memory.
    Anywhere,
}

/// Prefixes of the names of instructions that lock memory, on all processors except x86: exclusive loads and stores,
/// and the atomic ones of AArch64 and of RISC-V.
/// [`Instruction::locks`] adds x86's prefix and its exchange, which locks without a prefix.
const LOCKS: [&str; 31] = [
    "ldrex", "strex", "ldxr", "ldxp", "ldaxr", "ldaxp", "stxr", "stlxr", "stxp", "stlxp", "cas",
    "swp", "ldadd", "ldset", "ldclr", "ldeor", "ldsmax", "ldsmin", "ldumax", "ldumin", "stadd",
    "stset", "stclr", "steor", "stsmax", "stsmin", "stumax", "stumin", "lr.", "sc.", "amo",
];

impl Instruction {
    /// Whether it locks memory against other processors, or performs two accesses as one.
    pub fn locks(&self) -> bool {
        let begins = |name: &&str| self.name.starts_with(name);
        LOCKS.iter().any(begins)
            || self.name == "lock"
            || self.name.starts_with("xchg") && self.operands.contains('(')
    }

    /// Its branch targets. The names are those of all processors at once: no name is a branch on one and something else
    /// on another.
    fn control(&self) -> Control {
        let name = self.name.split('.').next().unwrap_or("");
        let loads_pc = (name.starts_with("pop") || name.starts_with("ldm"))
            && self.operands.contains("pc}")
            || self.operands.starts_with("pc,");
        let returns = [
            "ret", "retq", "mret", "eret", "bx", "blx", "jr", "jalr", "br", "blr", "tbb", "tbh",
        ];
        if loads_pc || returns.contains(&name) {
            return Control::Anywhere;
        }
        let branch = match name.as_bytes() {
            [b'j', ..] | [b'c', b'a', b'l', b'l', ..] | [b't', b'b', b'z' | b'n', ..] => true,
            [b'c', b'b', b'z' | b'n', ..] => true,
            b"b" | b"bl" => true,
            // Includes beq, bne, bgeu, beqz; not bic, bfi.
            [b'b', rest @ ..] => !matches!(rest, [b'i' | b'f', ..] | b"kpt"),
            _ => false,
        };
        if !branch {
            return Control::None;
        }
        let target = self.operands.rsplit([',', ' ']).find_map(|word| {
            let word = word.strip_prefix("0x").unwrap_or(word);
            u64::from_str_radix(word, 16).ok()
        });
        target.map_or(Control::Anywhere, Control::To)
    }
}

/// The instruction in a line `     17e:\torr.w\tr0, r0, r3, lsl #10 @ why`.
fn instruction(line: &str) -> Option<(u64, Instruction)> {
    let (address, text) = line.split_once(':')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let text = text.split(['@', ';']).next()?;
    let text = text.split("//").next()?;
    // Remove the name of the target, in angle brackets, and x86's comments.
    let text = text
        .split(['<', '#'])
        .next()
        .filter(|t| text.contains('<') && !t.is_empty())
        .unwrap_or(text)
        .trim();
    let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let instruction = Instruction {
        name: name.to_owned(),
        operands: operands.trim().to_owned(),
    };
    (!name.is_empty() && !name.starts_with('.')).then_some((address, instruction))
}

/// The function in a line `0000016c 00000038 T rtems_up_produce`.
fn function(line: &str) -> Option<Function> {
    let mut words = line.split_whitespace();
    let mut number = || u64::from_str_radix(words.next()?, 16).ok();
    let (address, size) = (number()?, number()?);
    let (kind, name) = (words.next()?, words.next()?);
    matches!(kind, "t" | "T" | "w" | "W" | "i").then(|| Function {
        name: name.to_owned(),
        address,
        size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISASSEMBLY: &str = "\n00000124 <row_rtems_smp>:\n\
        \x20124:\tpush\t{r4, lr}\n\
        \x20126:\tcbz\tr2, 12a <row_rtems_smp+0x6>\n\
        \x20128:\tldr\tr2, [pc, #36]\t@ (1a0 <rtems_up_produce+0x34>)\n\
        \x2012a:\tbic.w\tr0, r0, #3\n\
        \x2012e:\tpop\t{r4, pc}\n\
        \x20130:\t.word\t0x20000000\n";
    const SYMBOLS: &str = "00000124 00000010 T row_rtems_smp\n20000000 00000004 B single\n";

    #[test]
    fn an_execution_that_cannot_be_is_found() {
        let listing = Listing::read(DISASSEMBLY, SYMBOLS, false);
        for (from, to) in [
            (0x124, 0x126),
            (0x126, 0x128),
            (0x126, 0x12a),
            (0x12e, 0x124),
        ] {
            listing.check(from, to).unwrap();
        }
        for (from, to) in [
            (0x124, 0x128),
            (0x126, 0x12e),
            (0x12a, 0x130),
            (0x12a, 0x12b),
        ] {
            assert!(listing.check(from, to).is_err(), "{from:x} {to:x}");
        }
    }

    #[test]
    fn functions_have_a_beginning_and_an_end() {
        let listing = Listing::read(DISASSEMBLY, SYMBOLS, false);
        assert_eq!(listing.function_at(0x133).unwrap().name, "row_rtems_smp");
        assert_eq!(listing.function_at(0x134), None);
        assert_eq!(listing.function("single"), None);
        assert_eq!(listing.functions("row_").count(), 1);
    }

    #[test]
    fn what_locks_memory_is_known() {
        let locks = |line| instruction(line).unwrap().1.locks();
        for line in [
            " 8:\tldrex\tr3, [r2]",
            " 8:\tldaxr\tw0, [x1]",
            " 8:\tldaddal\tw0, w1, [x2]",
            " 8:\tamoadd.w.aqrl\ta4,a4,(a5)",
            " 8:\tlock xadd %eax,(%rdx)",
            " 8:\txchg   %eax,0x10(%rdx)",
        ] {
            assert!(locks(line), "{line}");
        }
        for line in [
            " 8:\tldar\tw0, [x1]",
            " 8:\tstlrb\tw0, [x1]",
            " 8:\tldr\tr0, [r1]",
            " 8:\txchg   %ax,%ax",
            " 8:\tsxtw\tx0, w1",
        ] {
            assert!(!locks(line), "{line}");
        }
    }

    #[test]
    fn branches_of_every_processor_are_known() {
        let control = |line| instruction(line).unwrap().1.control();
        for (line, target) in [
            (" 8:\tb.n\t11c <x+0x4>", 0x11c),
            (" 8:\tbne.n\t10", 0x10),
            (" 8:\tbl\t16c <rtems_up_produce>", 0x16c),
            (" 8:\tbgeu\tt0,t1,80000014 <reset+0x10>", 0x8000_0014),
            (" 8:\tb.ne\t400800a0 <row+0x10>  // b.any", 0x4008_00a0),
            (" 8:\ttbnz\tw3, #6, 40080010", 0x4008_0010),
            (" 8:\tjne    401688 <row_rtems_up+0x8>", 0x40_1688),
        ] {
            assert_eq!(control(line), Control::To(target), "{line}");
        }
        for line in [
            " 8:\tbx\tlr",
            " 8:\tret",
            " 8:\tpop\t{r4, pc}",
            " 8:\tjr\ta5",
        ] {
            assert_eq!(control(line), Control::Anywhere, "{line}");
        }
        for line in [
            " 8:\tbic.w\tr0, r1, r2",
            " 8:\tbfi\tr0, r2, #3, #8",
            " 8:\tmov    0xa3a58(%rip),%ecx        # 4a5120 <single>",
        ] {
            assert_eq!(control(line), Control::None, "{line}");
        }
    }
}
