//! Packets of a PTM to elements.
//!
//! Every waypoint has an atom, or a branch address packet, which implies a taken one. Nothing is speculative.

use super::Sink;
use super::blocks::{BlockId, Blocks, Stop};
use super::paths::End;
use super::return_stack::ReturnStack;
use crate::element::{Context, Element, Range, Security, TraceOn, Unsynced};
use crate::etmv4::Atoms;
use crate::instruction::Class;
use crate::isa::{Isa, SyncReason};
use crate::memory::{Code, MemorySpace, View};
use crate::ptm::{self, Branch, Config, Fields, Kind, Packet};

/// Converts the packets of one PTM to elements.
#[derive(Clone, Debug)]
pub struct PtmFlow<C> {
    /// The code, as blocks.
    pub blocks: Blocks<C>,
    state: State,
    unsynced: Unsynced,
    context: Context,
    address: u64,
    isa: Isa,
    has_address: bool,
    /// Block at the address, if the flow reached it without an address packet.
    next_block: Option<BlockId>,
    returns: ReturnStack,
    last_packet: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NoSync,
    WaitAsync,
    WaitISync,
    Decoding,
}

impl<C: Code> PtmFlow<C> {
    /// Creates an unsynchronized decoder.
    pub fn new(config: &Config, blocks: Blocks<C>) -> Self {
        PtmFlow {
            blocks,
            state: State::NoSync,
            unsynced: Unsynced::Init,
            context: Context::default(),
            address: 0,
            isa: Isa::Unknown,
            has_address: false,
            next_block: None,
            returns: ReturnStack::new(config.uses_return_stack()),
            last_packet: 0,
        }
    }

    /// Whether the decoder is synchronized.
    pub(super) fn is_under_way(&self) -> bool {
        self.state == State::Decoding
    }

    /// Takes the blocks of a finished flow of the same source.
    pub(super) fn adopt_blocks(&mut self, finished: Blocks<C>) {
        self.next_block = self.blocks.adopt(finished, self.next_block);
    }

    /// Whether another flow of the same source decodes the next packets in the same way.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let place = |flow: &Self| (flow.address, flow.has_address, flow.isa);
        place(self) == place(other)
            && (self.state, self.last_packet) == (other.state, other.last_packet)
            && self.context == other.context
            && self.returns == other.returns
            && self.blocks.moment() == other.blocks.moment()
    }

    /// Restarts decoding as after a reset of the trace unit; the next element reports `why`.
    pub fn reset(&mut self, why: Unsynced) {
        self.state = State::NoSync;
        self.unsynced = why;
        self.has_address = false;
        self.next_block = None;
        self.isa = Isa::Unknown;
        self.context = Context::default();
        self.returns.flush();
    }

    /// Emits an element, and updates the view of memory by it.
    fn give(&mut self, at: usize, element: Element, sink: &mut impl Sink) {
        sink.element(at, element);
        let view = self.blocks.element(at, &element);
        self.see(view, sink);
    }

    /// Applies a new view of memory, if any.
    fn see(&mut self, view: Option<View>, sink: &mut impl Sink) {
        if let Some(view) = view {
            self.next_block = None;
            sink.memory(view);
        }
    }

    /// Ends the trace.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        sink.element(self.last_packet, Element::End(Unsynced::EndOfTrace));
    }

    /// Decodes the next packet.
    pub fn packet(&mut self, packet: &Packet, sink: &mut impl Sink) {
        let at = packet.start;
        self.last_packet = at;
        if self.state == State::NoSync {
            sink.element(at, Element::NoSync(self.unsynced));
            self.state = State::WaitAsync;
        }
        match self.state {
            State::NoSync | State::WaitAsync => {
                if packet.kind == Kind::Async {
                    self.state = State::WaitISync;
                }
            }
            State::WaitISync => {
                if let Fields::ISync {
                    reason,
                    address,
                    isa,
                    context,
                } = packet.fields
                {
                    self.state = State::Decoding;
                    self.isync(
                        packet,
                        reason,
                        u64::from(address.value),
                        isa,
                        context,
                        true,
                        sink,
                    );
                }
            }
            State::Decoding => self.decode(packet, sink),
        }
    }

    fn decode(&mut self, packet: &Packet, sink: &mut impl Sink) {
        let at = packet.start;
        match packet.fields {
            Fields::Atoms(atoms) => self.atoms(packet, atoms, sink),
            Fields::Branch(branch) if packet.kind == Kind::WaypointUpdate => {
                self.waypoint_update(packet, &branch, sink);
            }
            Fields::Branch(branch) => self.branch(packet, &branch, sink),
            Fields::ISync {
                reason,
                address,
                isa,
                context,
            } => {
                self.isync(
                    packet,
                    reason,
                    u64::from(address.value),
                    isa,
                    context,
                    false,
                    sink,
                );
            }
            Fields::Timestamp { value, .. } => {
                let cycles = packet.cycles;
                self.give(at, Element::Timestamp { value, cycles }, sink);
            }
            Fields::ContextId(id) => {
                if self.context.context_id != Some(id) {
                    self.context.context_id = Some(id);
                    self.context.isa = self.isa;
                    self.give(at, Element::Context(self.context), sink);
                }
            }
            Fields::Vmid(vmid) => {
                if self.context.vmid != Some(u32::from(vmid)) {
                    self.context.vmid = Some(u32::from(vmid));
                    self.context.isa = self.isa;
                    self.give(at, Element::Context(self.context), sink);
                }
            }
            Fields::None => match packet.kind {
                Kind::ExceptionReturn => sink.element(at, Element::ExceptionReturn),
                Kind::Trigger => sink.element(at, Element::Event(None)),
                Kind::BadSequence | Kind::Reserved => {
                    sink.element(at, Element::NoSync(Unsynced::BadPacket));
                    self.reset(Unsynced::Reset);
                    self.state = State::WaitAsync;
                }
                _ => {}
            },
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one packet")]
    fn isync(
        &mut self,
        packet: &Packet,
        reason: SyncReason,
        address: u64,
        isa: Isa,
        context: ptm::Context,
        is_first: bool,
        sink: &mut impl Sink,
    ) {
        let mut is_news = isa != self.isa || is_first;
        self.next_block = None;
        self.address = address;
        self.isa = isa;
        self.has_address = true;
        self.context.isa = isa;
        if let Some(id) = context.id {
            self.context.context_id = Some(id);
            is_news = true;
        }
        self.context.security = if context.ns {
            Security::NonSecure
        } else {
            Security::Secure
        };
        let why = match reason {
            SyncReason::Periodic if !is_first => {
                let view = self.blocks.context(packet.start, &self.context);
                self.see(view, sink);
                return;
            }
            SyncReason::RestartOverflow => TraceOn::Overflow,
            SyncReason::DebugExit => TraceOn::Debug,
            _ => TraceOn::Normal,
        };
        self.returns.flush();
        let cycles = packet.cycles;
        self.give(packet.start, Element::TraceOn { why, cycles }, sink);
        if is_news {
            self.give(packet.start, Element::Context(self.context), sink);
        }
    }

    fn branch(&mut self, packet: &Packet, branch: &Branch, sink: &mut impl Sink) {
        if let Some(number) = branch.exception {
            let return_address = self.has_address.then_some(self.address);
            let number = u32::from(number);
            sink.element(
                packet.start,
                Element::Exception {
                    number,
                    return_address,
                    is_branch_target: false,
                    is_inferred: false,
                },
            );
        } else if self.has_address {
            self.waypoint(packet, true, false, sink);
        }
        if let Some(context) = branch.context {
            self.context.security = if context.ns {
                Security::NonSecure
            } else {
                Security::Secure
            };
        }
        self.address = u64::from(branch.address.value);
        self.isa = branch.isa;
        self.has_address = true;
        self.next_block = None;
    }

    /// Executes all instructions up to and including the waypoint at an address.
    fn waypoint_update(&mut self, packet: &Packet, branch: &Branch, sink: &mut impl Sink) {
        let at = packet.start;
        if !self.has_address {
            return;
        }
        self.next_block = None;
        let space = self.context.space();
        let last = u64::from(branch.address.value);
        self.reach(space, self.address, sink);
        let size = self
            .blocks
            .instruction(space, self.isa, last)
            .map_or(4, |found| u64::from(found.size));
        let block =
            self.blocks
                .walk_until(space, self.isa, self.address, Some(last.wrapping_add(size)));
        if block.count > 0 {
            let range = Range {
                block: None,
                cycles: packet.cycles,
                ..block.range(0, true)
            };
            sink.element(at, Element::Range(range));
        }
        self.address = block.end;
        match (block.stop, block.last.class) {
            (Stop::Waypoint, Class::Branch) => {
                self.address = block.target;
                self.isa = block.next_isa;
            }
            (Stop::Waypoint, Class::Indirect) => self.has_address = false,
            (Stop::Waypoint, _) => {}
            _ => {
                sink.element(
                    at,
                    Element::NotAccessible {
                        address: block.end,
                        space,
                    },
                );
                self.has_address = false;
            }
        }
    }

    /// Handles execution at an address. Returns whether memory had to change for code to be there.
    fn reach(&mut self, space: MemorySpace, address: u64, sink: &mut impl Sink) -> bool {
        if self.blocks.instruction(space, self.isa, address).is_some() {
            return false;
        }
        let view = self.blocks.advance(space, address);
        self.see(view, sink);
        view.is_some()
    }

    /// Block at the current address.
    #[inline]
    fn here(&mut self) -> BlockId {
        match self.next_block {
            Some(id) => id,
            None => self.blocks.at(self.context.space(), self.isa, self.address),
        }
    }

    fn atoms(&mut self, packet: &Packet, atoms: Atoms, sink: &mut impl Sink) {
        let mut left = atoms;
        while left.count > 0 && self.has_address {
            let id = self.here();
            // A packet with cycles needs a range of its own.
            let reached = match packet.cycles {
                None => {
                    let returns = &mut self.returns;
                    self.blocks
                        .follow(packet.start, id, &mut left, returns, sink)
                }
                Some(_) => self.blocks.before(id),
            };
            match reached.end {
                End::At(id) => {
                    (self.address, self.isa) = (reached.address, reached.isa);
                    self.next_block = Some(id);
                    if left.count > 0 {
                        self.waypoint(packet, left.bits & 1 == 1, true, sink);
                        left.bits >>= 1;
                        left.count -= 1;
                    }
                }
                End::Behind(id) => self.stand_behind(id, true),
            }
        }
    }

    /// Moves execution to after an indirect branch. For a branch of an atom, the target is the return address of the
    /// last call; a branch address packet carries its target.
    fn stand_behind(&mut self, id: BlockId, is_atom: bool) {
        let block = self.blocks.get(id);
        let (links, end, isa) = (block.links, block.end, block.isa);
        (self.address, self.isa) = (end, isa);
        self.has_address = false;
        self.next_block = None;
        if is_atom && let Some((address, isa)) = self.returns.pop() {
            self.address = address;
            self.isa = isa;
            self.has_address = true;
        }
        if links {
            self.returns.push(end, isa);
        }
    }

    /// Walks to the next waypoint.
    fn waypoint(&mut self, packet: &Packet, is_taken: bool, is_atom: bool, sink: &mut impl Sink) {
        let at = packet.start;
        let space = self.context.space();
        let mut id = self.here();
        self.next_block = None;
        if self.blocks.get(id).count == 0 && self.reach(space, self.address, sink) {
            id = self.blocks.at(space, self.isa, self.address);
        }
        let block = *self.blocks.get(id);
        if block.stop != Stop::Waypoint {
            self.has_address = false;
            if block.stop == Stop::NoCode {
                let why = Unsynced::BadImage(block.start);
                return sink.element(at, Element::NoSync(why));
            }
            if block.count > 0 {
                sink.element(
                    at,
                    Element::Range(Range {
                        cycles: packet.cycles,
                        ..block.range(id, true)
                    }),
                );
            }
            let (address, space) = (block.end, block.space);
            sink.element(at, Element::NotAccessible { address, space });
            return;
        }
        sink.element(
            at,
            Element::Range(Range {
                cycles: packet.cycles,
                ..block.range(id, is_taken)
            }),
        );
        self.address = block.end;
        if !is_taken {
            return;
        }
        match block.last.class {
            Class::Branch => {
                self.address = block.target;
                self.isa = block.next_isa;
            }
            Class::Indirect => return self.stand_behind(id, is_atom),
            _ => {}
        }
        if block.links {
            self.returns.push(block.end, block.isa);
        }
    }
}
