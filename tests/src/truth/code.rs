//! Model of a firmware's code, from its disassembly: each instruction's effect on the control flow, the calls of the
//! hooks, and the instructions that exist only for those calls.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use kymo_targets::run::{self, Result};

/// Effect of an instruction on the control flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// Falls through, or jumps within its own function (or to another function as a tail call).
    #[default]
    On,
    /// Calls a function.
    Call,
    /// Returns to the caller.
    Return {
        /// Whether it returns only if a condition holds.
        conditional: bool,
    },
}

/// One instruction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Instruction {
    /// Size in bytes; 0 at an address without code.
    pub size: u8,
    /// Effect on the control flow.
    pub flow: Flow,
    /// Whether the instruction exists only for the call of a hook.
    pub set_up: bool,
    /// Whether it is the first instruction of an exception handler.
    pub handler: bool,
    /// Whether it is the first instruction of a function of the recorder. The compiler's hooks don't count.
    pub recorder: bool,
}

impl Instruction {
    /// Whether the instruction, which is at `from`, returned when `to` was executed after it.
    pub fn returns(self, from: u32, to: u32) -> bool {
        match self.flow {
            Flow::Return { conditional } => !conditional || to != from + u32::from(self.size),
            Flow::On | Flow::Call => false,
        }
    }
}

/// Function that the compiler calls at an entry or an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// `__cyg_profile_func_enter`
    Enter,
    /// `__cyg_profile_func_exit`
    Exit,
}

/// Call of a hook, which the compiler has inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The called hook.
    pub hook: Hook,
    /// The function that is entered or exited; `None` if the code does not show it (its address was spilled).
    pub function: Option<u32>,
}

/// A symbol with its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// The name.
    pub name: String,
    /// First address, without the Thumb bit.
    pub address: u32,
    /// Size in bytes; 0 if the symbol table does not contain it.
    pub size: u32,
}

/// The whole code of a firmware.
#[derive(Debug)]
pub struct Code {
    instructions: Vec<Instruction>,
    /// Every call of a hook, by the address of the calling instruction.
    pub sites: HashMap<u32, Site>,
    /// Every call of `setjmp`: the addresses of the calling instructions, in order.
    pub setjmp_calls: Vec<u32>,
    /// Address of `setjmp` itself.
    pub setjmp: Option<u32>,
    /// The code of `longjmp`.
    pub longjmp: Range<u32>,
    /// Address of the hook at entries; `u32::MAX` in a program without hooks.
    pub enter: u32,
    /// Address of the hook at exits; `u32::MAX` in a program without hooks.
    pub exit: u32,
    /// All symbols, in the order of their addresses.
    pub symbols: Vec<Symbol>,
}

/// Stands for the address of a function that does not exist.
const NOWHERE: u32 = u32::MAX;

/// A line of the disassembly.
struct Line<'a> {
    address: u32,
    size: u8,
    mnemonic: &'a str,
    operands: &'a str,
    /// Address that objdump prints for the operands: that of a literal, or the target of a jump.
    target: Option<u32>,
}

impl Code {
    /// Reads an ELF file with the tools of its compiler.
    pub fn read(elf: &Path) -> Result<Self> {
        let symbols = symbols(&run::output(
            Command::new("arm-none-eabi-nm").args(["-n", "-S"]).arg(elf),
        )?);
        let disassembly = run::output(Command::new("arm-none-eabi-objdump").arg("-d").arg(elf))?;
        let vectors = run::output(
            Command::new("arm-none-eabi-objdump")
                .args(["-s", "-j", ".vectors"])
                .arg(elf),
        )?;
        Self::new(&disassembly, &vectors, symbols)
    }

    fn new(disassembly: &str, vectors: &str, symbols: Vec<Symbol>) -> Result<Self> {
        let find = |name: &str| {
            let symbol = symbols.iter().find(|symbol| symbol.name == name);
            // The linker has removed the hooks of a program that does not call them.
            symbol.map_or(NOWHERE, |symbol| symbol.address)
        };
        let mut code = Self {
            instructions: Vec::new(),
            sites: HashMap::new(),
            setjmp_calls: Vec::new(),
            setjmp: None,
            longjmp: 0..0,
            enter: find("__cyg_profile_func_enter"),
            exit: find("__cyg_profile_func_exit"),
            symbols: Vec::new(),
        };
        let setjmps: Vec<u32> = symbols
            .iter()
            .filter(|symbol| ["setjmp", "__wrap_setjmp"].contains(&symbol.name.as_str()))
            .map(|symbol| symbol.address)
            .collect();
        let functions: Vec<u32> = symbols.iter().map(|symbol| symbol.address).collect();
        code.symbols = symbols;
        code.setjmp = code.symbol("setjmp").map(|symbol| symbol.address);
        if let Some(longjmp) = code.symbol("longjmp") {
            code.longjmp = longjmp.address..longjmp.address + longjmp.size;
        }

        let mut words = HashMap::new();
        let mut body: Vec<Line> = Vec::new();
        let mut bodies = Vec::new();
        for line in disassembly.lines() {
            if line.ends_with(">:") {
                bodies.push(std::mem::take(&mut body));
                continue;
            }
            let Some(line) = Line::parse(line) else {
                continue;
            };
            if line.mnemonic == ".word" {
                if let Some(word) = hex(line.operands) {
                    words.insert(line.address, word);
                }
            } else if !line.mnemonic.starts_with('.') {
                body.push(line);
            }
        }
        bodies.push(body);
        for body in &bodies {
            code.add_function(body, &words, &functions, &setjmps);
        }
        code.setjmp_calls.sort_unstable();
        let recorder = |symbol: &&Symbol| {
            let mut prefixes = ["kymo_", "__wrap_"].into_iter();
            prefixes.any(|prefix| symbol.name.starts_with(prefix)) && symbol.address < RAM
        };
        let recorder: Vec<u32> = code
            .symbols
            .iter()
            .filter(recorder)
            .map(|s| s.address)
            .collect();
        for function in recorder {
            code.slot(function).recorder = true;
        }
        for handler in vector_table(vectors) {
            code.slot(handler).handler = true;
        }
        Ok(code)
    }

    fn add_function(
        &mut self,
        body: &[Line<'_>],
        words: &HashMap<u32, u32>,
        functions: &[u32],
        setjmps: &[u32],
    ) {
        for line in body {
            let at = self.slot(line.address);
            at.size = line.size;
            at.flow = line.flow();
            if line.target.is_some_and(|target| setjmps.contains(&target))
                && line.flow() == Flow::Call
            {
                self.setjmp_calls.push(line.address);
            }
        }
        // Jumps within the hooks are no calls of a hook.
        let first = body.first().map(|line| line.address);
        if [Some(self.enter), Some(self.exit)].contains(&first) {
            return;
        }
        for (index, line) in body.iter().enumerate() {
            let hook = match line.target {
                Some(target) if target == self.enter => Hook::Enter,
                Some(target) if target == self.exit => Hook::Exit,
                _ => continue,
            };
            let (function, set_up) = arguments(&body[..index], words, functions);
            self.sites.insert(line.address, Site { hook, function });
            self.slot(line.address).set_up = true;
            for address in set_up {
                self.slot(address).set_up = true;
            }
        }
    }

    fn slot(&mut self, address: u32) -> &mut Instruction {
        let index = address as usize / 2;
        if index >= self.instructions.len() {
            self.instructions.resize(index + 1, Instruction::default());
        }
        &mut self.instructions[index]
    }

    /// The instruction at an address; its size is 0 if there is no code.
    pub fn at(&self, address: u32) -> Instruction {
        let instruction = self.instructions.get(address as usize / 2);
        instruction.copied().unwrap_or_default()
    }

    /// The symbol of this name.
    pub fn symbol(&self, name: &str) -> Option<&Symbol> {
        self.symbols.iter().find(|symbol| symbol.name == name)
    }

    /// The last symbol that begins at or before an address, as an index of
    /// [`symbols`](Self::symbols).
    pub fn symbol_index(&self, address: u32) -> Option<usize> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.address <= address);
        after.checked_sub(1)
    }

    /// Address of the last symbol that begins at or before an address.
    pub fn symbol_before(&self, address: u32) -> Option<u32> {
        Some(self.symbols.get(self.symbol_index(address)?)?.address)
    }
}

/// Searches backwards from a call of a hook. Returns the function that it passes to the hook, if the code shows it, and
/// the instructions that exist only to pass the function and the call site.
fn arguments(
    before: &[Line<'_>],
    words: &HashMap<u32, u32>,
    functions: &[u32],
) -> (Option<u32>, Vec<u32>) {
    let literal = |line: &Line<'_>| {
        let value = line.target.and_then(|address| words.get(&address))? & !1;
        (line.mnemonic.starts_with("ldr") && functions.binary_search(&value).is_ok())
            .then_some(value)
    };
    // The last instruction before the call that gives a register its value. It may be anywhere in the function, because
    // the compiler keeps the function's address in a register for both hooks.
    let origin = |register: &str, accept: &dyn Fn(&Line<'_>) -> bool| {
        before
            .iter()
            .rposition(|line| line.writes().contains(&register) && accept(line))
    };
    let mut set_up = Vec::new();
    let mut function = None;
    for register in ["r0", "r1"] {
        // The move itself is in the same basic block as the call.
        let straight = before
            .iter()
            .rev()
            .take_while(|line| !line.ends_straight_code());
        let Some(line) = straight
            .into_iter()
            .find(|line| line.writes().contains(&register))
        else {
            continue;
        };
        set_up.push(line.address);
        let passed = line.operands.split(", ").nth(1).unwrap_or_default();
        let copied = line.mnemonic.starts_with("mov");
        if register == "r0" {
            function = literal(line);
            if let (true, Some(index)) = (copied, origin(passed, &|line| literal(line).is_some())) {
                function = literal(&before[index]);
                set_up.push(before[index].address);
            }
        } else if copied && passed != "lr" {
            let keeps = |line: &Line<'_>| line.operands == format!("{passed}, lr");
            if let Some(index) = origin(passed, &keeps) {
                set_up.push(before[index].address);
            }
        } else if line.operands.starts_with("r1, [sp") {
            let stored = line.operands.replacen("r1", "lr", 1);
            let kept = before
                .iter()
                .rposition(|line| line.mnemonic.starts_with("str") && line.operands == stored);
            set_up.extend(kept.map(|index| before[index].address));
        }
    }
    (function, set_up)
}

impl<'a> Line<'a> {
    /// Parses `  1a66c:\tb508      \tpush\t{r3, lr}`, with an optional ` @ (1a798 <main+0xc0>)` at the end.
    fn parse(line: &'a str) -> Option<Self> {
        let mut columns = line.splitn(4, '\t');
        let address = hex(columns.next()?.trim().strip_suffix(':')?)?;
        let digits = columns
            .next()?
            .chars()
            .filter(char::is_ascii_hexdigit)
            .count();
        let mnemonic = columns.next()?.trim();
        let text = columns.next().unwrap_or_default();
        let (operands, remark) = text.split_once('@').unwrap_or((text, ""));
        let operands = operands.trim();
        // The operands of a jump contain its target, `7b4a <name+0x3a>`. For a literal only the remark contains it.
        let target = match remark.contains('<') {
            true => remark.trim_matches([' ', '(']),
            false => operands,
        };
        let target = target
            .split_once(" <")
            .and_then(|(target, _)| hex(target.rsplit(' ').next()?));
        Some(Self {
            address,
            size: u8::try_from(digits / 2).ok()?,
            mnemonic: mnemonic.trim_end_matches(".w").trim_end_matches(".n"),
            operands,
            target,
        })
    }

    fn flow(&self) -> Flow {
        let is = |name: &str| {
            let condition = self.mnemonic.strip_prefix(name)?;
            (condition.is_empty() || CONDITIONS.contains(&condition))
                .then_some(!condition.is_empty())
        };
        if is("blx").is_some() || is("bl").is_some() {
            return Flow::Call;
        }
        let to_pc = self.operands.ends_with("pc}");
        let returns = [
            ("bx", self.operands == "lr"),
            ("pop", to_pc),
            ("ldm", to_pc),
            ("ldmia", to_pc),
            ("ldmdb", to_pc),
            ("mov", self.operands == "pc, lr"),
            ("ldr", self.operands.starts_with("pc, [sp]")),
        ];
        let conditional = returns
            .iter()
            .find_map(|(name, returns)| is(name).filter(|_| *returns));
        match conditional {
            Some(conditional) => Flow::Return { conditional },
            None => Flow::On,
        }
    }

    /// Whether the instructions before and after this one may not be executed in direct succession.
    fn ends_straight_code(&self) -> bool {
        matches!(self.flow(), Flow::Call | Flow::Return { .. }) || self.mnemonic == "b"
    }

    /// The registers that the instruction changes.
    fn writes(&self) -> Vec<&'a str> {
        let mut operands = self.operands.split(", ");
        let begins = |names: &[&str]| names.iter().any(|name| self.mnemonic.starts_with(name));
        let mut written = Vec::new();
        if begins(&["pop", "ldm"]) {
            let list = self.operands.split('{').nth(1).unwrap_or_default();
            written.extend(list.trim_end_matches('}').split(", "));
        } else if begins(&["ldrd", "smull", "umull", "smlal", "umlal"]) {
            written.extend(operands.by_ref().take(2));
        } else if !begins(&[
            "str", "stm", "push", "cmp", "cmn", "tst", "teq", "cb", "b", "v",
        ]) || begins(&["bic", "bfi", "bfc"])
        {
            written.extend(operands.next());
        }
        // A base register that moves along: `[r3], #4` and `[r3, #4]!`
        if let Some((base, behind)) = self
            .operands
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            && (behind.starts_with(',') || behind.starts_with('!'))
        {
            written.extend(base.split(", ").next());
        }
        written
    }
}

/// Where there is no code any more.
const RAM: u32 = 0x2000_0000;

const CONDITIONS: [&str; 16] = [
    "eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le",
];

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Reads what `nm -n -S` prints: `1a66c 1a t systick_interrupt`, or without the size.
fn symbols(text: &str) -> Vec<Symbol> {
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, size, name) = match words.as_slice() {
            [address, size, _, name] => (hex(address)?, hex(size)?, *name),
            [address, _, name] => (hex(address)?, 0, *name),
            _ => return None,
        };
        Some(Symbol {
            name: name.to_owned(),
            address: address & !1,
            size,
        })
    };
    let mut symbols: Vec<Symbol> = text.lines().filter_map(symbol).collect();
    symbols.sort_by_key(|symbol| symbol.address);
    symbols
}

/// The handlers in a dump of the vector table: `objdump -s` prints an address and four words a line,
/// each as its bytes. The first word is the initial stack pointer, the second where reset goes.
fn vector_table(dump: &str) -> Vec<u32> {
    let rows = dump.lines().filter(|line| line.starts_with(' '));
    let words = rows.flat_map(|row| row.get(1..).unwrap_or_default().split(' ').skip(1).take(4));
    let word = |text: &str| Some(u32::from_str_radix(text, 16).ok()?.swap_bytes() & !1);
    let words = words.skip(2).filter_map(word);
    words.filter(|word| *word != 0).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two functions in the form in which GCC compiles them (the second ends in a hook), the hooks, a handler, a caller
    /// of `setjmp`, and `setjmp` and `longjmp`. The addresses are synthetic.
    const DISASSEMBLY: &str = "
00000100 <outer>:
 100:\tb570      \tpush\t{r4, r5, r6, lr}
 102:\t4604      \tmov\tr4, r0
 104:\t4671      \tmov\tr1, lr
 106:\tf8df 8010 \tldr.w\tr8, [pc, #16]\t@ 118 <outer+0x18>
 10a:\t4640      \tmov\tr0, r8
 10c:\t4675      \tmov\tr5, lr
 10e:\tf000 f877 \tbl\t200 <__cyg_profile_func_enter>
 112:\tf000 f805 \tbl\t120 <inner>
 114:\t4629      \tmov\tr1, r5
 116:\t4640      \tmov\tr0, r8
 11a:\tf000 f871 \tbl\t210 <__cyg_profile_func_exit>
 11c:\tbd70      \tpop\t{r4, r5, r6, pc}
 118:\t00000101 \t.word\t0x00000101

00000120 <inner>:
 120:\tb510      \tpush\t{r4, lr}
 122:\t4671      \tmov\tr1, lr
 124:\t4803      \tldr\tr0, [pc, #12]\t@ (134 <inner+0x14>)
 126:\tf000 f86b \tbl\t200 <__cyg_profile_func_enter>
 12a:\t4621      \tmov\tr1, r4
 12c:\t4801      \tldr\tr0, [pc, #4]\t@ (134 <inner+0x14>)
 12e:\te8bd 4010 \tldmia.w\tsp!, {r4, lr}
 132:\tf000 b86d \tb.w\t210 <__cyg_profile_func_exit>
 134:\t00000121 \t.word\t0x00000121

00000140 <throws>:
 140:\tf000 f8fe \tbl\t230 <setjmp>
 144:\tb108      \tcbz\tr0, 14a <throws+0xa>
 146:\td0fb      \tbls.n\t140 <throws>
 148:\tbf08      \tit\teq
 14a:\t4770      \tbxeq\tlr
 14c:\tf000 f875 \tbl\t120 <inner>
 150:\t4770      \tbx\tlr

00000200 <__cyg_profile_func_enter>:
 200:\t4770      \tbx\tlr

00000210 <__cyg_profile_func_exit>:
 210:\t4770      \tbx\tlr

00000220 <handler>:
 220:\t4770      \tbx\tlr

00000230 <setjmp>:
 230:\t4770      \tbx\tlr

00000240 <longjmp>:
 240:\t4770      \tbx\tlr
";
    const VECTORS: &str = "
Contents of section .vectors:
 0000 00004020 31010000 21020000 00000000  ..@ ............
 0010 21020000                             ....
";
    const SYMBOLS: &str = "\
00000101 00000020 T outer
00000121 00000018 T inner
00000141 00000012 T throws
00000201 00000002 T __cyg_profile_func_enter
00000211 00000002 T __cyg_profile_func_exit
00000221 00000002 t handler
00000231 00000002 T setjmp
00000241 00000002 T longjmp
20000000 00000100 b stack_a
20000100 B end
";

    /// The code above.
    pub fn code() -> Code {
        Code::new(DISASSEMBLY, VECTORS, symbols(SYMBOLS)).unwrap()
    }

    #[test]
    fn sites_are_found_with_their_functions() {
        let code = code();
        let site = |hook, function| Site {
            hook,
            function: Some(function),
        };
        let sites = [
            (0x10E, site(Hook::Enter, 0x100)),
            (0x11A, site(Hook::Exit, 0x100)),
            (0x126, site(Hook::Enter, 0x120)),
            (0x132, site(Hook::Exit, 0x120)),
        ];
        assert_eq!(code.sites, HashMap::from(sites));
        assert_eq!(code.setjmp_calls, [0x140]);
        assert_eq!(code.longjmp, 0x240..0x242);
    }

    #[test]
    fn only_what_serves_a_hook_is_set_up() {
        let code = code();
        let set_up: Vec<u32> = (0x100..0x140)
            .filter(|at| code.at(*at & !1).set_up)
            .collect();
        let set_up: Vec<u32> = set_up.into_iter().filter(|at| at % 2 == 0).collect();
        let outer = [0x104, 0x106, 0x10A, 0x10C, 0x10E, 0x114, 0x116, 0x11A];
        let inner = [0x122, 0x124, 0x126, 0x12A, 0x12C, 0x132];
        assert_eq!(set_up, [&outer[..], &inner[..]].concat());
    }

    #[test]
    fn calls_returns_and_handlers_are_told_apart() {
        let code = code();
        assert_eq!(code.at(0x112).flow, Flow::Call);
        assert_eq!(code.at(0x146).flow, Flow::On);
        let conditional = Flow::Return { conditional: true };
        assert_eq!(code.at(0x14A).flow, conditional);
        assert!(!code.at(0x14A).returns(0x14A, 0x14C));
        assert!(code.at(0x14A).returns(0x14A, 0x116));
        let always = Flow::Return { conditional: false };
        assert_eq!(code.at(0x11C).flow, always);
        assert_eq!(code.at(0x12E).flow, Flow::On, "pops lr, not pc");
        assert!(code.at(0x220).handler && !code.at(0x130).handler);
        assert_eq!(code.symbol_before(0x2000_00FC), Some(0x2000_0000));
    }
}
