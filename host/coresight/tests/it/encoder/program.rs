//! Random code, and a random walk over it. The encodings are written from the Arm Architecture Reference Manuals,
//! independent of the decoder's classification.

use kymo_coresight::isa::Isa;

/// A linear congruential generator: the same traces in every run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    /// Returns `true` once in `times` calls on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// Effect of an instruction on the control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Plain,
    /// ISB: a waypoint that is no branch.
    Barrier,
    /// A load or store that is a waypoint.
    Access,
    /// Branch to the instruction with this index.
    Jump {
        to: usize,
        is_conditional: bool,
    },
    Call {
        to: usize,
    },
    JumpRegister,
    CallRegister,
    Return,
    ExceptionReturn,
}

#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    pub address: u64,
    pub size: u8,
    pub isa: Isa,
    pub op: Op,
    /// Whether a branch other than [`Op::Jump`] is conditional.
    pub may_skip: bool,
}

impl Instruction {
    pub fn end(&self) -> u64 {
        self.address + u64::from(self.size)
    }
}

pub struct Program {
    pub base: u64,
    pub code: Vec<u8>,
    pub all: Vec<Instruction>,
}

impl Program {
    /// Creates random code in A64, or in A32 and T32, which call each other.
    pub fn new(isa: Isa, base: u64, random: &mut Random) -> Self {
        let count = 40 + random.below(200);
        let mut all = Vec::new();
        let mut address = base;
        for index in 0..count {
            // The first half is A32, the second T32.
            let isa = match isa {
                Isa::A64 => Isa::A64,
                Isa::T32 => Isa::T32,
                _ if index < count / 2 => Isa::A32,
                _ => Isa::T32,
            };
            let near = |random: &mut Random| {
                let low = index.saturating_sub(30);
                low + random.below((index + 30).min(count) - low)
            };
            let op = match random.below(20) {
                0 | 1 => Op::Jump {
                    to: near(random),
                    is_conditional: false,
                },
                2..=5 => Op::Jump {
                    to: near(random),
                    is_conditional: true,
                },
                6 | 7 => Op::Call {
                    to: random.below(count),
                },
                8 => Op::JumpRegister,
                9 => Op::CallRegister,
                10 | 11 => Op::Return,
                12 if isa == Isa::A64 => Op::ExceptionReturn,
                13 => Op::Barrier,
                _ => Op::Plain,
            };
            let size = match (isa, op) {
                (Isa::T32, Op::Call { .. } | Op::Barrier) => 4,
                (Isa::T32, Op::Plain) => 2 + 2 * u8::from(random.once_in(3)),
                (Isa::T32, _) => 2,
                _ => 4,
            };
            // Wide calls from T32 need a target aligned to 4 bytes, which A32 always is.
            all.push(Instruction {
                address,
                size,
                isa,
                op,
                may_skip: false,
            });
            address += u64::from(size);
        }
        // The walk never runs past the end, nor from A32 into T32.
        for end in [count / 2 - 1, count - 1] {
            let last = &mut all[end];
            last.op = Op::Return;
            let before = last.size;
            last.size = if last.isa == Isa::T32 { 2 } else { 4 };
            let moved = u64::from(before - last.size);
            all[end + 1..]
                .iter_mut()
                .for_each(|later| later.address -= moved);
        }
        // Jumps stay in their instruction set; only calls change it.
        for index in 0..count {
            if let Op::Jump { to, is_conditional } = all[index].op
                && all[to].isa != all[index].isa
            {
                all[index].op = Op::Jump {
                    to: index,
                    is_conditional,
                };
            }
        }
        let mut code: Vec<u8> = all
            .iter()
            .flat_map(|instruction| encode(instruction, &all, random))
            .collect();
        // The library reads four bytes for the last instruction, too.
        code.extend([0; 4]);
        Program { base, code, all }
    }

    /// Makes the loads or stores among the plain instructions waypoints.
    pub fn with_accesses(mut self, loads: bool, stores: bool) -> Self {
        let (code, base) = (&self.code, self.base);
        for instruction in self.all.iter_mut().filter(|found| found.op == Op::Plain) {
            let at = (instruction.address - base) as usize;
            let bytes = &code[at..at + usize::from(instruction.size)];
            let (is_load, is_store) = match (instruction.isa, bytes) {
                (Isa::A64, [0x41, 0, 0x40, 0xf9]) => (true, false),
                (Isa::A64, [0x41, 0, 0x00, 0xf9]) => (false, true),
                (Isa::A64, [0x41, 0, 0x21, 0xf8]) => (true, true),
                (Isa::A32, [0, 0x10, 0x90, 0xe5] | [0xd0, 0, 0xc2, 0xe1]) => (true, false),
                (Isa::A32, [0, 0x10, 0x80, 0xe5]) => (false, true),
                (Isa::T32, [0xd0, 0xf8, 0, 0x10] | [0x01, 0x68]) => (true, false),
                (Isa::T32, [0xc0, 0xe9, 0, 0x12] | [0x10, 0xb4]) => (false, true),
                _ => (false, false),
            };
            if loads && is_load || stores && is_store {
                instruction.op = Op::Access;
            }
        }
        self
    }
}

fn words(word: u32) -> Vec<u8> {
    word.to_le_bytes().to_vec()
}

/// A 32-bit instruction of T32: two halfwords, the upper one first.
fn halves(word: u32) -> Vec<u8> {
    [(word >> 16) as u16, word as u16]
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .collect()
}

fn half(half: u32) -> Vec<u8> {
    (half as u16).to_le_bytes().to_vec()
}

fn encode(instruction: &Instruction, all: &[Instruction], random: &mut Random) -> Vec<u8> {
    let Instruction {
        address,
        isa,
        op,
        size,
        ..
    } = *instruction;
    let field = |to: usize, from: u64, unit: i64, bits: u32| {
        let offset = all[to].address as i64 - from as i64;
        (offset / unit) as u32 & ((1u32 << bits) - 1)
    };
    match (isa, op) {
        // NOP, ADD, LDR, SVC, MRS, STR, LDADD.
        (Isa::A64, Op::Plain) => words(
            [
                0xd503_201f,
                0x9100_0400,
                0xf940_0041,
                0xd400_0001,
                0xd53b_d040,
                0xf900_0041,
                0xf821_0041,
            ][random.below(7)],
        ),
        (Isa::A64, Op::Barrier) => words(0xd503_3fdf),
        (
            Isa::A64,
            Op::Jump {
                to,
                is_conditional: false,
            },
        ) => words(0x1400_0000 | field(to, address, 4, 26)),
        // B.cond, CBZ, CBNZ, TBZ.
        (Isa::A64, Op::Jump { to, .. }) => words(match random.below(4) {
            0 => 0x5400_0001 | field(to, address, 4, 19) << 5,
            1 => 0xb400_0003 | field(to, address, 4, 19) << 5,
            2 => 0x3500_0003 | field(to, address, 4, 19) << 5,
            _ => 0x3618_0004 | field(to, address, 4, 14) << 5,
        }),
        (Isa::A64, Op::Call { to }) => words(0x9400_0000 | field(to, address, 4, 26)),
        (Isa::A64, Op::JumpRegister) => words(0xd61f_0200),
        (Isa::A64, Op::CallRegister) => words(0xd63f_0100),
        // RET, RETAA.
        (Isa::A64, Op::Return) => words([0xd65f_03c0, 0xd65f_0bff][random.below(2)]),
        (Isa::A64, Op::ExceptionReturn) => words(0xd69f_03e0),
        (Isa::A32, Op::Plain) => words(
            [
                0xe320_f000,
                0xe280_0001,
                0xe590_1000,
                0xef00_0000,
                0xe580_1000,
                0xe1c2_00d0,
            ][random.below(6)],
        ),
        (Isa::A32, Op::Barrier) => words(0xf57f_f06f),
        (Isa::A32, Op::Jump { to, is_conditional }) => {
            let condition = if is_conditional {
                0x1a00_0000
            } else {
                0xea00_0000
            };
            words(condition | field(to, address + 8, 4, 24))
        }
        (Isa::A32, Op::Call { to }) if all[to].isa == Isa::T32 => {
            // BLX: bit 24 is bit 1 of the offset.
            let odd = (all[to].address - address) as u32 & 2;
            let whole = all[to].address - u64::from(odd);
            let offset = (whole as i64 - address as i64 - 8) / 4;
            words(0xfa00_0000 | odd << 23 | offset as u32 & 0xff_ffff)
        }
        (Isa::A32, Op::Call { to }) => words(0xeb00_0000 | field(to, address + 8, 4, 24)),
        // BX r3, LDR PC; BLX r3; BX LR, POP {PC}, MOV PC, LR.
        (Isa::A32, Op::JumpRegister) => words([0xe12f_ff13, 0xe593_f000][random.below(2)]),
        (Isa::A32, Op::CallRegister) => words(0xe12f_ff33),
        (Isa::A32, _) => words([0xe12f_ff1e, 0xe8bd_8010, 0xe1a0_f00e][random.below(3)]),
        (_, Op::Plain) if size == 4 => {
            halves([0xf8d0_1000, 0xf3af_8000, 0xe9c0_1200][random.below(3)])
        }
        (_, Op::Plain) => half([0xbf00, 0x3001, 0x6801, 0xdf00, 0xb410][random.below(5)]),
        (_, Op::Barrier) => halves(0xf3bf_8f6f),
        (
            _,
            Op::Jump {
                to,
                is_conditional: false,
            },
        ) => half(0xe000 | field(to, address + 4, 2, 11)),
        (_, Op::Jump { to, .. }) => half(0xd100 | field(to, address + 4, 2, 8)),
        (_, Op::Call { to }) => {
            let is_a32 = all[to].isa == Isa::A32;
            let from = if is_a32 {
                (address + 4) & !3
            } else {
                address + 4
            };
            let offset = (all[to].address as i64 - from as i64) as u32;
            let sign = offset >> 24 & 1;
            // J1 and J2 are the inverted bits 23 and 22, exclusive-or the sign.
            let j1 = !(offset >> 23 ^ sign) & 1;
            let j2 = !(offset >> 22 ^ sign) & 1;
            let high = 0xf000 | sign << 10 | offset >> 12 & 0x3ff;
            let kind = if is_a32 { 0xc000 } else { 0xd000 };
            halves(high << 16 | kind | j1 << 13 | j2 << 11 | offset >> 1 & 0x7ff)
        }
        (_, Op::JumpRegister) => half(0x4718),
        (_, Op::CallRegister) => half(0x4798),
        (_, _) => half([0x4770, 0xbd00, 0x46f7][random.below(3)]),
    }
}

/// Step of a walk.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Instructions up to a waypoint, inclusive.
    Run(Run),
    /// An exception before the instruction at `at`; the handler is at `handler`.
    Exception {
        /// Instructions since the last waypoint.
        ran: Run,
        at: u64,
        handler: u64,
        number: u8,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub start: u64,
    pub end: u64,
    pub count: u32,
    pub isa: Isa,
    /// The last instruction; meaningless if `count` is 0.
    pub last: Op,
    /// Address of the last instruction; 0 if `count` is 0.
    pub source: u64,
    pub is_taken: bool,
    /// Address at which execution continues, and its instruction set.
    pub next: u64,
    pub next_isa: Isa,
}

impl Run {
    pub fn is_indirect(&self) -> bool {
        self.is_taken
            && matches!(
                self.last,
                Op::JumpRegister | Op::CallRegister | Op::Return | Op::ExceptionReturn
            )
    }

    pub fn is_call(&self) -> bool {
        matches!(self.last, Op::Call { .. } | Op::CallRegister)
    }
}

/// A random walk that begins at the first instruction.
pub fn walk(program: &Program, steps: usize, exceptions: usize, random: &mut Random) -> Vec<Event> {
    let mut events = Vec::new();
    let mut at = 0;
    let mut calls: Vec<usize> = Vec::new();
    let mut interrupted: Vec<usize> = Vec::new();
    let index_of = |address: u64| {
        program
            .all
            .binary_search_by_key(&address, |instruction| instruction.address)
            .expect("an instruction")
    };
    for _ in 0..steps {
        let first = program.all[at];
        let stops = exceptions > 0 && random.once_in(exceptions);
        let allowed = if stops { random.below(4) } else { usize::MAX };
        let mut count = 0;
        let mut index = at;
        while program.all[index].op == Op::Plain && count < allowed {
            index += 1;
            count += 1;
        }
        let last = program.all[index];
        if stops {
            let handler = random.below(program.all.len());
            let handler = if program.all[handler].isa == first.isa {
                handler
            } else {
                at
            };
            let number = [2, 3, 4, 10, 11, 12, 14, 15][random.below(8)];
            events.push(Event::Exception {
                ran: Run {
                    start: first.address,
                    end: last.address,
                    count: count as u32,
                    isa: first.isa,
                    last: Op::Plain,
                    source: if count > 0 {
                        program.all[index - 1].address
                    } else {
                        0
                    },
                    is_taken: true,
                    next: last.address,
                    next_isa: last.isa,
                },
                at: last.address,
                handler: program.all[handler].address,
                number,
            });
            interrupted.push(index);
            at = handler;
            continue;
        }
        let anywhere = |random: &mut Random| random.below(program.all.len());
        let (is_taken, next) = match last.op {
            Op::Plain => unreachable!("the walk stops at waypoints"),
            Op::Barrier | Op::Access => (true, index + 1),
            Op::Jump { to, is_conditional } => {
                // A conditional branch to itself always falls through, so that the walk leaves it.
                let is_taken = !is_conditional || (to != index && random.once_in(2));
                (is_taken, if is_taken { to } else { index + 1 })
            }
            _ if last.may_skip && random.once_in(2) => (false, index + 1),
            Op::Call { to } => (true, to),
            Op::JumpRegister | Op::CallRegister => (true, anywhere(random)),
            Op::Return => (
                true,
                match calls.pop() {
                    Some(call) if !random.once_in(8) => call,
                    _ => anywhere(random),
                },
            ),
            Op::ExceptionReturn => (true, interrupted.pop().unwrap_or_else(|| anywhere(random))),
        };
        // The last instruction is a return, so another one follows each barrier or branch.
        let next = next.min(program.all.len() - 1);
        let target = program.all[next];
        if is_taken && matches!(last.op, Op::Call { .. } | Op::CallRegister) {
            calls.push(index_of(last.end()).min(program.all.len() - 1));
        }
        events.push(Event::Run(Run {
            start: first.address,
            end: last.end(),
            count: count as u32 + 1,
            isa: first.isa,
            last: last.op,
            source: last.address,
            is_taken,
            next: target.address,
            next_isa: target.isa,
        }));
        at = next;
    }
    events
}
