//! Straight runs of instructions, decoded once.

mod starts;

use std::hash::{BuildHasherDefault, Hasher};

use super::Sink;
use super::executions::{Execution, MOST};
use super::paths::{End, Paths, Reached};
use super::return_stack::ReturnStack;
use crate::element::{Context, Element, Last, Range};
use crate::etmv4::Atoms;
use crate::instruction::{self, Instruction, Waypoints};
use crate::isa::Isa;
use crate::memory::{Code, MemorySpace, Moment, View};
use starts::{Key, Starts};

/// Number of a block.
pub type BlockId = u32;

/// No block yet.
const NONE: BlockId = BlockId::MAX;

/// Limit of instructions in a run without a waypoint. A longer run is no code.
const RUN_LIMIT: u32 = 1 << 20;

/// End of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A waypoint.
    Waypoint,
    /// An address that no image contains.
    NotAccessible,
    /// More instructions without a branch than real code has, or an unsupported instruction set.
    NoCode,
}

/// A straight run of instructions up to and with its waypoint.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Address of the first instruction.
    pub start: u64,
    /// End address of the last instruction.
    pub end: u64,
    /// Instructions.
    pub count: u32,
    /// Instruction set.
    pub isa: Isa,
    /// Memory space.
    pub space: MemorySpace,
    /// View of the memory.
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
    /// Whether the upper half of an instruction in it is 0: A64 has no such instruction, so it is no code.
    pub has_no_opcode: bool,
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

    /// Whether leaving it changes only the address and the return stack: its successor is known without the trace, and
    /// no check can reject it.
    fn is_plain(&self, is_taken: bool) -> bool {
        let is_branch = matches!(
            self.last.class,
            instruction::Class::Branch | instruction::Class::Indirect
        );
        let may_fall_through = !is_branch || self.last.is_conditional || self.last.may_be_skipped;
        let goes = if is_taken {
            self.last.class != instruction::Class::Indirect
        } else {
            may_fall_through
        };
        goes && self.is_sound()
    }

    /// Whether it ends with an indirect branch after which the only element needed is its target.
    fn is_indirect(&self, gives_returns: bool) -> bool {
        let is_silent =
            !gives_returns || self.last.purpose != instruction::Purpose::ExceptionReturn;
        self.last.class == instruction::Class::Indirect && is_silent && self.is_sound()
    }

    /// Whether it is complete up to its waypoint, and no check can reject it.
    fn is_sound(&self) -> bool {
        self.stop == Stop::Waypoint && !self.has_no_opcode
    }
}

/// Blocks of programs, found while a trace is followed. Each view of memory has its own blocks.
#[derive(Clone, Debug)]
pub struct Blocks<C> {
    code: C,
    waypoints: Waypoints,
    /// Whether an exception return is an element of its own.
    gives_returns: bool,
    /// Whether each instruction is a block of its own.
    is_stepping: bool,
    blocks: Vec<Block>,
    /// For each block, its successors for a not-taken and a taken branch, if known and [plain](Block::is_plain).
    /// Separate from the blocks because following atoms needs nothing else.
    links: Vec<[BlockId; 2]>,
    paths: Paths,
    moment: Moment,
    view: View,
    starts: Starts,
}

/// Hash builder for addresses.
pub type AddressHash = BuildHasherDefault<AddressHasher>;

/// Hasher by multiplication; addresses need no better hash.
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
    /// Creates an empty set of blocks of this code.
    pub fn new(code: C, waypoints: Waypoints) -> Self {
        Blocks {
            code,
            waypoints,
            gives_returns: false,
            is_stepping: false,
            blocks: Vec::new(),
            links: Vec::new(),
            paths: Paths::default(),
            moment: Moment::default(),
            view: View::default(),
            starts: Starts::default(),
        }
    }

    /// Like [`new`](Self::new), with each instruction as a block of its own, for a protocol with an atom for each.
    pub fn stepping(code: C) -> Self {
        Blocks {
            is_stepping: true,
            ..Self::new(code, Waypoints::default())
        }
    }

    /// Makes exception returns elements of their own, for a protocol that requires this.
    #[must_use]
    pub fn giving_returns(self) -> Self {
        Blocks {
            gives_returns: true,
            ..self
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

    /// Current moment, and the current view of memory.
    pub(super) fn moment(&self) -> (Moment, View) {
        (self.moment, self.view)
    }

    /// Known paths through the blocks.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Removes all blocks, because the code has changed. Earlier block numbers become invalid.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.links.clear();
        self.paths.clear();
        self.starts = Starts::default();
    }

    /// Takes the blocks and paths of a finished flow of the same source instead of its own, whose numbers become invalid.
    /// Returns the new number of block `here`.
    pub(super) fn adopt(&mut self, finished: Self, here: Option<BlockId>) -> Option<BlockId> {
        let here = here.map(|id| *self.get(id));
        self.blocks = finished.blocks;
        self.links = finished.links;
        self.paths = finished.paths;
        self.starts = finished.starts;
        here.map(|block| self.at(block.space, block.isa, block.start))
    }

    /// Current view of memory.
    pub fn view(&self) -> View {
        self.view
    }

    /// Updates the view of memory by an element from the packet at a position of the stream. Returns the view if it
    /// changed.
    pub fn element(&mut self, at: usize, element: &Element) -> Option<View> {
        match element {
            Element::Context(context) => self.context(at, context),
            Element::Timestamp { value, .. } => {
                self.assign(at);
                self.timestamp(*value)
            }
            Element::TraceOn { .. } if self.assign(at) => self.look(),
            _ => None,
        }
    }

    /// Updates the context, from the packet at a position. Returns the view of memory if it changed.
    pub fn context(&mut self, at: usize, context: &Context) -> Option<View> {
        let known = &self.moment.context;
        let is_same = (known.context_id, known.vmid) == (context.context_id, context.vmid)
            // Thread 0 is the idle task only in the kernel, so the level matters.
            && (known.level == context.level || self.code.schedule().is_none());
        self.moment.context = *context;
        let is_other = self.assign(at);
        (!is_same || is_other).then(|| self.look()).flatten()
    }

    /// Looks up the thread at a position in the schedule. Returns whether it changed.
    fn assign(&mut self, at: usize) -> bool {
        let Some(schedule) = self.code.schedule() else {
            return false;
        };
        let thread = schedule.at(at);
        std::mem::replace(&mut self.moment.thread, thread) != thread
    }

    /// Updates the time. Returns the view of memory if it changed.
    fn timestamp(&mut self, ticks: u64) -> Option<View> {
        self.moment.ticks = Some(ticks);
        self.look()
    }

    /// Begins an independent session of the trace unit at a position. Returns the view of memory.
    pub fn session(&mut self, at: usize, session: Option<u32>) -> View {
        self.moment = Moment {
            session,
            change: self.moment.change,
            ..Moment::default()
        };
        self.assign(at);
        self.look();
        self.view
    }

    /// Begins a session that continues the trace of the previous one. Returns the view of memory if it changed.
    pub fn enter(&mut self, session: Option<u32>) -> Option<View> {
        self.moment.session = session;
        self.look()
    }

    /// Handles execution at an address without code. Returns a later view in which the address has code, if memory can
    /// have changed by now.
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
        self.view = view;
        Some(view)
    }

    /// Block by its number.
    pub fn get(&self, id: BlockId) -> &Block {
        &self.blocks[id as usize]
    }

    /// Number of the block that begins at an address.
    #[inline]
    pub fn at(&mut self, space: MemorySpace, isa: Isa, address: u64) -> BlockId {
        let key = Key {
            address,
            space,
            isa,
            view: self.view,
        };
        match self.starts.find(&self.blocks, &key) {
            Some(id) => id,
            None => self.discover(&key),
        }
    }

    #[cold]
    fn discover(&mut self, key: &Key) -> BlockId {
        let block = self.walk(key.space, key.isa, key.address);
        let id = self.blocks.len() as BlockId;
        self.blocks.push(block);
        self.links.push([NONE; 2]);
        self.starts.add(&self.blocks);
        id
    }

    /// Follows atoms from a block on, up to and including a taken indirect branch, or up to a block that is incomplete,
    /// does not fit, or needs an element besides its range. Removes the followed atoms, emits the executions, and
    /// pushes the return addresses of calls, except for an indirect call at the end. Returns the new point of
    /// execution.
    #[inline]
    pub(super) fn follow(
        &mut self,
        at: usize,
        id: BlockId,
        atoms: &mut Atoms,
        returns: &mut ReturnStack,
        sink: &mut impl Sink,
    ) -> Reached {
        let Some((number, path)) = self.paths.find(id, *atoms) else {
            return self.explore(at, id, atoms, returns, sink);
        };
        let executions = self.paths.executions(path);
        sink.path(at, number, path, executions, &self.blocks);
        atoms.bits >>= path.len;
        atoms.count -= path.len;
        if path.calls && returns.is_active() {
            for execution in executions {
                let block = self.get(execution.block());
                let goes_on = block.last.class != instruction::Class::Indirect;
                if block.links && execution.is_taken() && goes_on {
                    returns.push(block.end, block.isa);
                }
            }
        }
        path.reached
    }

    /// Execution before a block.
    pub(super) fn before(&self, id: BlockId) -> Reached {
        let block = self.get(id);
        Reached {
            end: End::At(id),
            address: block.start,
            isa: block.isa,
        }
    }

    /// Follows atoms without a known path.
    fn explore(
        &mut self,
        at: usize,
        mut id: BlockId,
        atoms: &mut Atoms,
        returns: &mut ReturnStack,
        sink: &mut impl Sink,
    ) -> Reached {
        let key = (id, *atoms);
        let mut room = [Execution::default(); MOST];
        let mut count = 0;
        let mut calls = false;
        let mut behind = None;
        for slot in room.iter_mut().take(usize::from(atoms.count)) {
            let is_taken = atoms.bits & 1 == 1;
            let mut link = self.links[id as usize][usize::from(is_taken)];
            if link == NONE {
                let block = self.get(id);
                if block.is_plain(is_taken) {
                    self.after(id, is_taken);
                    link = self.links[id as usize][usize::from(is_taken)];
                } else if is_taken && block.is_indirect(self.gives_returns) {
                    behind = Some(Reached {
                        end: End::Behind(id),
                        address: block.end,
                        isa: block.isa,
                    });
                } else {
                    break;
                }
            }
            *slot = Execution::new(id, is_taken);
            count += 1;
            atoms.bits >>= 1;
            atoms.count -= 1;
            if behind.is_some() {
                break;
            }
            let block = &self.blocks[id as usize];
            if block.links && is_taken {
                returns.push(block.end, block.isa);
                calls = true;
            }
            id = link;
        }
        let executions = &room[..count];
        let reached = behind.unwrap_or_else(|| self.before(id));
        if let Some(last) = executions.last() {
            sink.blocks(at, executions, &self.blocks);
            if atoms.count == 0 || behind.is_some() {
                let block = |id: BlockId| &self.blocks[id as usize];
                let ends = (block(key.0), block(last.block()));
                self.paths.add(key, executions, reached, calls, ends);
            }
        }
        reached
    }

    /// Successor of a block whose branch is direct, or not taken. It is cached if the step needs no checks.
    pub fn after(&mut self, id: BlockId, is_taken: bool) -> BlockId {
        let block = self.blocks[id as usize];
        let is_jump = is_taken && block.last.class == instruction::Class::Branch;
        let next = if is_jump {
            self.at(block.space, block.next_isa, block.target)
        } else {
            self.at(block.space, block.isa, block.end)
        };
        if block.is_plain(is_taken) {
            self.links[id as usize][usize::from(is_taken)] = next;
        }
        next
    }

    /// Decodes one instruction.
    pub fn instruction(&self, space: MemorySpace, isa: Isa, address: u64) -> Option<Instruction> {
        let bytes = self.code.at(self.view, space, address)?;
        instruction::decode(isa, address, bytes, self.waypoints)
    }

    fn walk(&self, space: MemorySpace, isa: Isa, start: u64) -> Block {
        self.walk_until(space, isa, start, None)
    }

    /// Walks up to `count` instructions from `start`, or to the first branch.
    pub fn walk_count(&self, space: MemorySpace, isa: Isa, start: u64, count: u32) -> Block {
        let mut block = self.walk_until(space, isa, start, Some(start));
        for _ in 0..count.min(RUN_LIMIT) {
            let Some(instruction) = self.instruction(space, isa, block.end) else {
                break;
            };
            block.end = block.end.wrapping_add(u64::from(instruction.size));
            block.count += 1;
            block.last = Last {
                may_be_skipped: isa == Isa::T32,
                ..Last::from(&instruction)
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

    /// Whether an IT instruction before `start` can make the instruction after `others` others conditional: a run can
    /// begin inside an IT block, at the return address of an exception.
    fn has_it_before(&self, space: MemorySpace, start: u64, others: u32) -> bool {
        // `start` can be the last of up to four instructions of an IT block.
        (1..=7u64).any(|halves| {
            let it = start.checked_sub(2 * halves);
            let code = it.and_then(|it| self.code.at(self.view, space, it));
            let Some([low, 0xbf, ..]) = code else {
                return false;
            };
            let between = (halves as u32 - 1).div_ceil(2) + others;
            low & 0xf != 0 && between < 4 - low.trailing_zeros()
        })
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
        };
        let mut bytes: &[u8] = &[];
        let mut conditional_left = 0u8;
        let has_accesses = self.waypoints.has_accesses();
        let is_followed = matches!(isa, Isa::A64 | Isa::A32 | Isa::T32);
        loop {
            if isa == Isa::A64 && until.is_none() && !self.is_stepping && !has_accesses {
                // Fast path: most instructions are no waypoints, and their top bits show it.
                let plain = instruction::plain_run(bytes, RUN_LIMIT - block.count);
                if plain > 0 {
                    bytes = &bytes[4 * plain as usize..];
                    block.count += plain;
                    block.end = block.end.wrapping_add(4 * u64::from(plain));
                    block.last.size = 4;
                }
            }
            if !is_followed
                || block.count == RUN_LIMIT
                || until.is_some_and(|until| until < block.end)
            {
                block.stop = Stop::NoCode;
                return block;
            }
            let mut found = instruction::decode(isa, block.end, bytes, self.waypoints);
            if found.is_none() {
                // Continue in the next image, if any.
                let code = self.code.at(self.view, space, block.end);
                bytes = code.unwrap_or_default();
                found = instruction::decode(isa, block.end, bytes, self.waypoints);
            }
            let Some(instruction) = found else {
                return block;
            };
            let end = block.end.wrapping_add(u64::from(instruction.size));
            if until.is_some_and(|until| until < end) {
                // The address is inside this instruction, which was not completed.
                block.stop = Stop::Waypoint;
                return block;
            }
            block.has_no_opcode |= isa == Isa::A64 && bytes[2..4] == [0, 0];
            bytes = &bytes[usize::from(instruction.size)..];
            block.end = end;
            block.count += 1;
            let is_in_it = conditional_left > 0;
            let may_be_skipped = isa == Isa::T32
                && instruction.class != instruction::Class::Other
                && (is_in_it
                    || instruction.counts_loop
                    || self.has_it_before(space, start, block.count - 1));
            conditional_left = match instruction.it_length {
                0 => conditional_left.saturating_sub(1),
                length => length,
            };
            block.last = Last {
                is_conditional: instruction.is_conditional || is_in_it && self.waypoints.counts_it,
                may_be_skipped,
                ..Last::from(&instruction)
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
