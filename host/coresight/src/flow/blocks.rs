//! Straight runs of instructions, decoded once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::element::{Context, Element, Last, Range};
use crate::instruction::{self, Instruction, Waypoints};
use crate::isa::Isa;
use crate::memory::{Code, MemorySpace, Moment, View};

/// Number of a block.
pub type BlockId = u32;

/// No block yet.
const NONE: BlockId = BlockId::MAX;

/// Instructions after which a run without a waypoint is given up: the address is not one of code.
const RUN_LIMIT: u32 = 1 << 20;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// With a waypoint.
    Waypoint,
    /// Where no image has the code.
    NotAccessible,
    /// After more instructions than code has without a branch, or at one of an instruction set that is not followed.
    NoCode,
}

/// A straight run of instructions up to and with its waypoint.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// Address behind the last one.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// Memory space.
    pub space: MemorySpace,
    /// What was in memory.
    pub view: View,
    /// The last instruction.
    pub last: Last,
    /// Whether the last one is a call.
    pub links: bool,
    /// Target of a direct branch.
    pub target: u64,
    /// Instruction set there.
    pub next_isa: Isa,
    /// How it ends.
    pub stop: Stop,
    /// Whether an instruction in it is 0 in its upper half: A64 has none such, so it is no code.
    pub has_no_opcode: bool,
    /// Whether going on from it, not taken and taken, changes nothing but the address: its branch is direct, is no call if
    /// taken, conditional if not, and the block has nothing that a check could refuse.
    is_plain: [bool; 2],
    /// The block that follows if the branch is not taken, and if it is.
    next: [BlockId; 2],
}

impl Block {
    /// The block as a range.
    pub fn range(&self, id: BlockId, is_taken: bool) -> Range {
        Range {
            start: self.start,
            end: self.end,
            count: self.count,
            isa: self.isa,
            is_taken,
            last: self.last,
            block: Some(id),
            cycles: None,
            has_no_opcode: self.has_no_opcode,
        }
    }
}

/// The blocks of programs, found as a trace runs through them. Those of one view of memory are never those of another one.
#[derive(Debug)]
pub struct Blocks<C> {
    code: C,
    waypoints: Waypoints,
    /// Each instruction is a block of its own.
    is_stepping: bool,
    blocks: Vec<Block>,
    moment: Moment,
    view: View,
    /// The blocks of the view at hand, and those of the others.
    by_start: Starts,
    others: HashMap<View, Starts>,
}

/// Blocks by their starts.
type Starts = HashMap<Key, BlockId, AddressHash>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    address: u64,
    space: MemorySpace,
    isa: Isa,
}

impl std::hash::Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.address ^ u64::from(self.space.0) << 56 ^ (self.isa as u64) << 48);
    }
}

/// Builds the hashes of addresses.
pub type AddressHash = BuildHasherDefault<AddressHasher>;

/// Multiplies: addresses need no better hash.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl<C: Code> Blocks<C> {
    /// No block of this code is known yet.
    pub fn new(code: C, waypoints: Waypoints) -> Self {
        Blocks {
            code,
            waypoints,
            is_stepping: false,
            blocks: Vec::new(),
            moment: Moment::default(),
            view: View::default(),
            by_start: HashMap::default(),
            others: HashMap::new(),
        }
    }

    /// The same with each instruction as a block of its own, for a protocol that has an atom for each.
    pub fn stepping(code: C) -> Self {
        Blocks {
            is_stepping: true,
            ..Self::new(code, Waypoints::default())
        }
    }

    /// The code.
    pub fn code(&self) -> &C {
        &self.code
    }

    /// All blocks found so far, by their numbers.
    pub fn all(&self) -> &[Block] {
        &self.blocks
    }

    /// Forgets all blocks: the code has changed. Numbers given so far no longer hold.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.by_start.clear();
        self.others.clear();
    }

    /// What is in memory.
    pub fn view(&self) -> View {
        self.view
    }

    /// What an element says of the memory that follows it. The view of that, if it is another one than before.
    pub fn element(&mut self, element: &Element) -> Option<View> {
        match element {
            Element::Context(context) => self.context(context),
            Element::Timestamp { value, .. } => self.timestamp(*value),
            _ => None,
        }
    }

    /// The trace says the context. The view of memory, if it is another one than before.
    pub fn context(&mut self, context: &Context) -> Option<View> {
        let known = &self.moment.context;
        let is_same = (known.context_id, known.vmid) == (context.context_id, context.vmid);
        self.moment.context = *context;
        (!is_same).then(|| self.look()).flatten()
    }

    /// The trace says the time. The view of memory, if it is another one than before.
    fn timestamp(&mut self, ticks: u64) -> Option<View> {
        self.moment.ticks = Some(ticks);
        self.look()
    }

    /// A session of the trace unit begins, of which nothing is known from the one before. The view of memory.
    pub fn session(&mut self, session: Option<u32>) -> View {
        self.moment = Moment {
            session,
            change: self.moment.change,
            ..Moment::default()
        };
        self.look();
        self.view
    }

    /// Code runs at an address that has none. The view in which it has some, if memory can have changed by now.
    #[cold]
    pub fn advance(&mut self, space: MemorySpace, address: u64) -> Option<View> {
        let view = self.code.later(&self.moment, self.view, space, address)?;
        self.moment.change = view.change();
        self.switch(view)
    }

    fn look(&mut self) -> Option<View> {
        let view = self.code.view(&self.moment);
        self.switch(view)
    }

    fn switch(&mut self, view: View) -> Option<View> {
        if view == self.view {
            return None;
        }
        let next = self.others.remove(&view).unwrap_or_default();
        let before = std::mem::replace(&mut self.by_start, next);
        if !before.is_empty() {
            self.others.insert(self.view, before);
        }
        self.view = view;
        Some(view)
    }

    /// A block that was found before.
    pub fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    /// The block that begins at an address.
    pub fn at(&mut self, space: MemorySpace, isa: Isa, address: u64) -> BlockId {
        let key = Key {
            address,
            space,
            isa,
        };
        if let Some(id) = self.by_start.get(&key) {
            return *id;
        }
        let mut block = self.walk(space, isa, address);
        let is_direct = block.stop == Stop::Waypoint
            && block.last.class == instruction::Class::Branch
            && !block.has_no_opcode;
        block.is_plain = [
            is_direct && block.last.is_conditional,
            is_direct && !block.links,
        ];
        let id = self.blocks.len() as BlockId;
        self.blocks.push(block);
        self.by_start.insert(key, id);
        id
    }

    /// The block behind another one, if it is known and going there changes nothing but the address: no call, which pushes on
    /// the return stack, no return from an exception, no block that is to be checked.
    #[inline]
    pub fn plain_successor(&self, id: BlockId, is_taken: bool) -> Option<BlockId> {
        let block = &self.blocks[id as usize];
        let next = block.next[usize::from(is_taken)];
        (next != NONE && block.is_plain[usize::from(is_taken)]).then_some(next)
    }

    /// The block behind another one whose direct branch is taken or not.
    #[inline]
    pub fn after(&mut self, id: BlockId, is_taken: bool) -> BlockId {
        let block = &self.blocks[id as usize];
        let known = block.next[usize::from(is_taken)];
        if known != NONE {
            return known;
        }
        let (space, isa, target, end, next_isa) = (
            block.space,
            block.isa,
            block.target,
            block.end,
            block.next_isa,
        );
        let next = if is_taken {
            self.at(space, next_isa, target)
        } else {
            self.at(space, isa, end)
        };
        self.blocks[id as usize].next[usize::from(is_taken)] = next;
        next
    }

    /// One instruction.
    pub fn instruction(&self, space: MemorySpace, isa: Isa, address: u64) -> Option<Instruction> {
        let bytes = self.code.at(self.view, space, address)?;
        instruction::decode(isa, address, bytes, self.waypoints)
    }

    fn walk(&self, space: MemorySpace, isa: Isa, start: u64) -> Block {
        self.walk_until(space, isa, start, None)
    }

    /// Walks so many instructions from `start`, or fewer up to the first branch.
    pub fn walk_count(&self, space: MemorySpace, isa: Isa, start: u64, count: u32) -> Block {
        let mut block = self.walk_until(space, isa, start, Some(start));
        for _ in 0..count.min(RUN_LIMIT) {
            let Some(instruction) = self.instruction(space, isa, block.end) else {
                break;
            };
            block.end = block.end.wrapping_add(u64::from(instruction.size));
            block.count += 1;
            block.last = Last {
                size: instruction.size,
                class: instruction.class,
                purpose: instruction.purpose,
                is_conditional: instruction.is_conditional,
            };
            block.links = instruction.links;
            if matches!(
                instruction.class,
                instruction::Class::Branch | instruction::Class::Indirect
            ) {
                break;
            }
        }
        block
    }

    /// Walks from `start` to the first waypoint, or past all of them to the address `until`.
    pub fn walk_until(
        &self,
        space: MemorySpace,
        isa: Isa,
        start: u64,
        until: Option<u64>,
    ) -> Block {
        let mut block = Block {
            start,
            end: start,
            count: 0,
            isa,
            space,
            view: self.view,
            last: Last::default(),
            links: false,
            target: 0,
            next_isa: isa,
            stop: Stop::NotAccessible,
            has_no_opcode: false,
            is_plain: [false; 2],
            next: [NONE; 2],
        };
        let mut bytes: &[u8] = &[];
        let mut conditional_left = 0u8;
        let is_followed = matches!(isa, Isa::A64 | Isa::A32 | Isa::T32);
        loop {
            if !is_followed
                || block.count == RUN_LIMIT
                || until.is_some_and(|until| until < block.end)
            {
                block.stop = Stop::NoCode;
                return block;
            }
            let mut found = instruction::decode(isa, block.end, bytes, self.waypoints);
            if found.is_none() {
                // The next image, or the end of all.
                let code = self.code.at(self.view, space, block.end);
                bytes = code.unwrap_or_default();
                found = instruction::decode(isa, block.end, bytes, self.waypoints);
            }
            let Some(instruction) = found else {
                return block;
            };
            let end = block.end.wrapping_add(u64::from(instruction.size));
            if until.is_some_and(|until| until < end) {
                // The address is within this instruction, which was not completed.
                block.stop = Stop::Waypoint;
                return block;
            }
            block.has_no_opcode |= isa == Isa::A64 && bytes[2..4] == [0, 0];
            bytes = &bytes[usize::from(instruction.size)..];
            block.end = end;
            block.count += 1;
            let is_in_it = conditional_left > 0 && self.waypoints.counts_it;
            conditional_left = match instruction.it_length {
                0 => conditional_left.saturating_sub(1),
                length => length,
            };
            block.last = Last {
                size: instruction.size,
                class: instruction.class,
                purpose: instruction.purpose,
                is_conditional: instruction.is_conditional || is_in_it,
            };
            block.links = instruction.links;
            block.next_isa = instruction.next_isa;
            let is_done = match until {
                Some(until) => block.end == until,
                None => self.is_stepping || instruction.class != instruction::Class::Other,
            };
            if is_done {
                block.target = instruction.target;
                block.stop = Stop::Waypoint;
                return block;
            }
        }
    }
}
