//! Packets of ETMv3 to elements.
//!
//! Every instruction has an atom. The packet of an exception can cancel the last instruction before it (IHI 0014Q, 7.3:
//! `Canc`), so the atoms of a packet wait for the next packet, which decides whether all of them are followed at once,
//! or the last one waits as a range of its own. The reference tool takes back only a range that
//! is alone in its packet, and counts one instruction too many otherwise.

use super::Sink;
use super::blocks::{BlockId, Blocks};
use super::paths::End;
use super::return_stack::ReturnStack;
use crate::element::{Context, Element, Range, Security, TraceOn, Unsynced};
use crate::etmv3::{Branch, Config, Fields, ISync, Kind, Packet};
use crate::etmv4::Atoms;
use crate::instruction::Class;
use crate::isa::{Isa, SyncReason};
use crate::memory::{Code, MemorySpace, View};

/// Converts the packets of one ETMv3 to elements.
#[derive(Clone, Debug)]
pub struct EtmV3Flow<C> {
    config: Config,
    /// The code.
    pub blocks: Blocks<C>,
    state: State,
    unsynced: Unsynced,
    context: Context,
    address: u64,
    isa: Isa,
    /// Block at the address, if the flow reached it without an address packet.
    next_block: Option<BlockId>,
    needs_address: bool,
    sent_unknown: bool,
    /// Always inactive: the trace unit has no return stack.
    returns: ReturnStack,
    /// Atoms of the packet at an offset, several and without cycle counts, which are followed with the next packet.
    waiting: Option<(usize, Atoms)>,
    /// Elements that the next packet can cancel.
    pending: Vec<(usize, Element)>,
    /// Addresses of out-of-order data, by tag.
    out_of_order: [Option<u32>; 4],
    last_packet: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NoSync,
    WaitAsync,
    WaitISync,
    Decoding,
}

impl<C: Code> EtmV3Flow<C> {
    /// Creates an unsynchronized decoder.
    pub fn new(config: &Config, blocks: Blocks<C>) -> Self {
        EtmV3Flow {
            config: *config,
            blocks,
            state: State::NoSync,
            unsynced: Unsynced::Init,
            context: Context::default(),
            address: 0,
            isa: Isa::Unknown,
            next_block: None,
            needs_address: true,
            sent_unknown: false,
            returns: ReturnStack::new(false),
            waiting: None,
            pending: Vec::new(),
            out_of_order: [None; 4],
            last_packet: 0,
        }
    }

    /// Whether the decoder is synchronized.
    pub(super) fn is_under_way(&self) -> bool {
        self.state == State::Decoding
    }

    /// Takes the blocks of a finished flow of the same source, unless an element waits that has the number of a block.
    pub(super) fn adopt_blocks(&mut self, finished: Blocks<C>) {
        if self.pending.is_empty() {
            self.next_block = self.blocks.adopt(finished, self.next_block);
        }
    }

    /// Whether another flow of the same source decodes the next packets in the same way.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let place = |flow: &Self| (flow.address, flow.needs_address, flow.isa);
        place(self) == place(other)
            && (self.state, self.last_packet) == (other.state, other.last_packet)
            && (self.context, self.sent_unknown) == (other.context, other.sent_unknown)
            && (self.waiting, &self.pending) == (other.waiting, &other.pending)
            && self.out_of_order == other.out_of_order
            && self.blocks.moment() == other.blocks.moment()
    }

    /// Restarts decoding as after a reset of the trace unit; the next element reports `why`. Atoms that wait are to
    /// be followed before.
    pub fn reset(&mut self, why: Unsynced) {
        self.lose_sync(why);
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

    fn lose_sync(&mut self, why: Unsynced) {
        self.state = State::NoSync;
        self.unsynced = why;
        self.needs_address = true;
        self.next_block = None;
        self.sent_unknown = false;
        self.pending.clear();
        self.out_of_order = [None; 4];
    }

    /// Ends the trace.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        self.commit(sink);
        sink.element(self.last_packet, Element::End(Unsynced::EndOfTrace));
    }

    /// Follows the atoms that wait, and emits what can no longer be cancelled.
    fn commit(&mut self, sink: &mut impl Sink) {
        if let Some((at, atoms)) = self.waiting.take() {
            let left = self.follow(at, atoms, sink);
            if left > 0 {
                self.walk(at, (atoms, left), 0, 0, sink);
            }
        }
        if !self.pending.is_empty() {
            for (at, element) in self.pending.drain(..) {
                sink.element(at, element);
            }
        }
    }

    /// Follows the atoms that wait. The last instruction can still be cancelled.
    pub(super) fn settle(&mut self, sink: &mut impl Sink) {
        if let Some((at, atoms)) = self.waiting.take() {
            let certain = Atoms {
                count: atoms.count - 1,
                ..atoms
            };
            let left = 1 + self.follow(at, certain, sink);
            self.walk(at, (atoms, left), 0, 0, sink);
        }
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
            State::WaitISync => match packet.fields {
                Fields::ISync(isync) => {
                    self.state = State::Decoding;
                    self.isync(at, &isync, true, sink);
                }
                // Times are valid before the first address.
                Fields::Timestamp(_) => self.decode(packet, sink),
                Fields::Cycles(_) | Fields::PHeader { .. } if self.config.is_cycle_accurate() => {
                    self.decode(packet, sink);
                }
                _ => {}
            },
            State::Decoding => self.decode(packet, sink),
        }
    }

    fn decode(&mut self, packet: &Packet, sink: &mut impl Sink) {
        let at = packet.start;
        let can_cancel = match packet.fields {
            Fields::Branch(branch) => branch.exception.is_some_and(|it| it.cancels),
            _ => packet.kind == Kind::ExceptionExit,
        };
        match can_cancel {
            true => self.settle(sink),
            false => self.commit(sink),
        }
        match packet.fields {
            Fields::Branch(branch) => {
                let mut here = (!self.needs_address).then_some(self.address);
                if branch.exception.is_some_and(|exception| exception.cancels) {
                    // The instruction runs again after the exception.
                    here = self.pending.iter().find_map(|(_, element)| match element {
                        Element::Range(range) => Some(range.start),
                        _ => None,
                    });
                    self.pending.clear();
                }
                self.branch(at, &branch, here, sink);
                return;
            }
            Fields::None if packet.kind == Kind::ExceptionExit => {
                // In the A and R profiles, an exception can cancel the instruction before together with the return.
                // After another return there is no such instruction, so a series of returns does not accumulate.
                let behind_return =
                    matches!(self.pending.last(), Some((_, Element::ExceptionReturn)));
                if self.config.is_m_profile || behind_return {
                    self.commit(sink);
                }
                self.pending.push((at, Element::ExceptionReturn));
                return;
            }
            _ => {}
        }
        match packet.fields {
            Fields::PHeader {
                atoms,
                cycles,
                format,
            } => self.p_header(at, atoms, cycles, format, sink),
            Fields::ISync(isync) => self.isync(at, &isync, false, sink),
            Fields::Cycles(cycles) => sink.element(at, Element::Cycles(cycles)),
            Fields::Timestamp(value) => {
                let cycles = None;
                self.give(at, Element::Timestamp { value, cycles }, sink);
            }
            Fields::ContextId(id) => {
                self.context.context_id = Some(id);
                self.give(at, Element::Context(self.context), sink);
            }
            Fields::Vmid(vmid) => {
                self.context.vmid = Some(u32::from(vmid));
                self.give(at, Element::Context(self.context), sink);
            }
            Fields::Data {
                address,
                value,
                tag,
            } => self.data(
                at,
                packet.kind,
                address.map(|it| it.value),
                value,
                tag,
                sink,
            ),
            Fields::Branch(_) => {}
            Fields::None => match packet.kind {
                Kind::Trigger => sink.element(at, Element::Event(None)),
                Kind::ExceptionEntry => {
                    let number = 0;
                    sink.element(
                        at,
                        Element::Exception {
                            number,
                            return_address: None,
                            is_branch_target: false,
                            is_inferred: true,
                        },
                    );
                }
                Kind::BadSequence | Kind::Reserved | Kind::BadTraceMode => {
                    self.lose_sync(Unsynced::BadPacket)
                }
                _ => {}
            },
        }
    }

    /// Decodes a load or store. The value of an out-of-order access follows later, with its tag.
    fn data(
        &mut self,
        at: usize,
        kind: Kind,
        address: Option<u32>,
        value: Option<u32>,
        tag: u8,
        sink: &mut impl Sink,
    ) {
        let waiting = &mut self.out_of_order[usize::from(tag & 3)];
        let address = match kind {
            Kind::OutOfOrderPlaceholder => {
                *waiting = address;
                return;
            }
            Kind::OutOfOrderData => waiting.take(),
            Kind::StoreFailed => return sink.element(at, Element::StoreFailed),
            Kind::DataSuppressed => return sink.element(at, Element::DataSuppressed),
            _ => address,
        };
        sink.element(at, Element::Data { address, value });
    }

    fn isync(&mut self, at: usize, isync: &ISync, is_first: bool, sink: &mut impl Sink) {
        if is_first || isync.reason != SyncReason::Periodic {
            let why = match isync.reason {
                SyncReason::RestartOverflow => TraceOn::Overflow,
                SyncReason::DebugExit => TraceOn::Debug,
                _ => TraceOn::Normal,
            };
            self.give(at, Element::TraceOn { why, cycles: None }, sink);
        }
        if is_first {
            self.context = Context::default();
        }
        if isync.address.is_some() {
            self.isa = isync.isa;
        }
        self.context.isa = self.isa;
        self.context.context_id = isync.id.or(self.context.context_id);
        self.set_context(isync.context.ns, isync.context.hyp);
        let context = Context {
            cycles: isync.cycles,
            ..self.context
        };
        self.give(at, Element::Context(context), sink);
        if let Some(address) = isync.current.or(isync.address) {
            self.address = u64::from(address.value);
            self.next_block = None;
            self.needs_address = false;
            self.sent_unknown = false;
        }
    }

    fn set_context(&mut self, ns: bool, hyp: bool) {
        self.context.security = if ns {
            Security::NonSecure
        } else {
            Security::Secure
        };
        self.context.level = hyp.then_some(2);
    }

    /// Decodes a branch, or an exception that interrupts `return_address`.
    fn branch(
        &mut self,
        at: usize,
        branch: &Branch,
        return_address: Option<u64>,
        sink: &mut impl Sink,
    ) {
        self.address = u64::from(branch.address.value);
        self.isa = branch.isa;
        self.next_block = None;
        self.needs_address = false;
        self.sent_unknown = false;
        let Some(exception) = branch.exception else {
            return;
        };
        if let Some(context) = branch.context {
            let before = (self.context.security, self.context.level);
            self.set_context(context.ns, context.hyp);
            if before != (self.context.security, self.context.level) {
                self.give(at, Element::Context(self.context), sink);
            }
        }
        if exception.number != 0 {
            let number = u32::from(exception.number);
            sink.element(
                at,
                Element::Exception {
                    number,
                    return_address,
                    is_branch_target: false,
                    is_inferred: true,
                },
            );
        }
    }

    fn p_header(&mut self, at: usize, atoms: Atoms, cycles: u32, format: u8, sink: &mut impl Sink) {
        if atoms.count > 1 && !self.needs_address && !self.config.is_cycle_accurate() {
            self.waiting = Some((at, atoms));
        } else {
            self.walk(at, (atoms, atoms.count), cycles, format, sink);
        }
    }

    /// Follows the last `left` of a packet's atoms one by one. The last instruction can still be cancelled.
    fn walk(
        &mut self,
        at: usize,
        (atoms, mut left): (Atoms, u8),
        cycles: u32,
        format: u8,
        sink: &mut impl Sink,
    ) {
        let counts = self.config.is_cycle_accurate();
        // Cycles before each atom: one each in format 1, else all before the first.
        let cycles_of = |index: u8| match (format, index) {
            (1, _) => 1,
            (_, 0) => cycles,
            _ => 0,
        };
        let mut index = atoms.count - left;
        loop {
            if self.needs_address {
                self.commit(sink);
                if !self.sent_unknown || counts {
                    let remaining: u32 = match left {
                        0 => cycles,
                        _ => (index..atoms.count).map(cycles_of).sum(),
                    };
                    if !self.sent_unknown && left > 0 {
                        sink.element(at, Element::AddressUnknown);
                    } else {
                        sink.element(at, Element::Cycles(remaining));
                    }
                    self.sent_unknown = true;
                }
                return;
            }
            if left == 0 {
                if counts {
                    sink.element(at, Element::Cycles(cycles));
                }
                return;
            }
            let is_taken = atoms.bits >> index & 1 == 1;
            let cycles = counts.then(|| cycles_of(index));
            left -= 1;
            index += 1;
            self.commit(sink);
            self.instruction(at, is_taken, cycles, sink);
            if left == 0 {
                return;
            }
        }
    }

    /// Follows atoms that no exception can cancel, as far as the blocks allow. Returns the number of remaining atoms.
    fn follow(&mut self, at: usize, atoms: Atoms, sink: &mut impl Sink) -> u8 {
        let mut left = atoms;
        let id = self.here();
        let returns = &mut self.returns;
        let reached = self.blocks.follow(at, id, &mut left, returns, sink);
        match reached.end {
            End::At(id) => {
                (self.address, self.isa) = (reached.address, reached.isa);
                self.next_block = Some(id);
            }
            End::Behind(id) => self.stand_behind(id),
        }
        left.count
    }

    /// Moves execution to after an indirect branch.
    fn stand_behind(&mut self, id: BlockId) {
        let block = self.blocks.get(id);
        (self.address, self.isa) = (block.end, block.isa);
        self.needs_address = true;
        self.sent_unknown = false;
        self.next_block = None;
    }

    fn space(&self) -> MemorySpace {
        match self.context.security {
            Security::NonSecure => MemorySpace::ANY_N,
            _ => MemorySpace::ANY_S,
        }
    }

    /// Block at the current address.
    #[inline]
    fn here(&mut self) -> BlockId {
        match self.next_block {
            Some(id) => id,
            None => self.blocks.at(self.space(), self.isa, self.address),
        }
    }

    /// Executes one instruction.
    fn instruction(
        &mut self,
        at: usize,
        is_taken: bool,
        cycles: Option<u32>,
        sink: &mut impl Sink,
    ) {
        let space = self.space();
        let mut id = self.here();
        if self.blocks.get(id).count == 0
            && let Some(view) = self.blocks.advance(space, self.address)
        {
            self.see(Some(view), sink);
            id = self.blocks.at(space, self.isa, self.address);
        }
        let block = self.blocks.get(id);
        if block.count == 0 {
            sink.element(
                at,
                Element::NotAccessible {
                    address: block.start,
                    space,
                },
            );
            self.needs_address = true;
            self.sent_unknown = false;
            self.next_block = None;
            return;
        }
        let range = Range {
            cycles,
            ..block.range(id, is_taken)
        };
        let class = block.last.class;
        self.pending.push((at, Element::Range(range)));
        if is_taken && class == Class::Indirect {
            self.stand_behind(id);
        } else {
            let next = self.blocks.after(id, is_taken);
            let block = self.blocks.get(next);
            (self.address, self.isa) = (block.start, block.isa);
            self.next_block = Some(next);
        }
    }
}
