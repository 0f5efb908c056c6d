//! Packets of a PTM to elements.
//!
//! Every waypoint has an atom, or a branch address packet, which implies a taken one. Nothing is speculative.

use super::Sink;
use super::blocks::{Blocks, Stop};
use super::return_stack::ReturnStack;
use crate::element::{Context, Element, Range, Security, TraceOn, Unsynced};
use crate::instruction::Class;
use crate::isa::{Isa, SyncReason};
use crate::memory::{Code, MemorySpace};
use crate::ptm::{self, Branch, Config, Fields, Kind, Packet};

/// Turns the packets of one PTM into elements.
#[derive(Debug)]
pub struct PtmFlow<C> {
    /// The code, as blocks.
    pub blocks: Blocks<C>,
    state: State,
    unsynced: Unsynced,
    context: Context,
    address: u64,
    isa: Isa,
    has_address: bool,
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
    /// Begins to decode.
    pub fn new(config: &Config, blocks: Blocks<C>) -> Self {
        PtmFlow {
            blocks,
            state: State::NoSync,
            unsynced: Unsynced::Init,
            context: Context::default(),
            address: 0,
            isa: Isa::Unknown,
            has_address: false,
            returns: ReturnStack::new(config.uses_return_stack()),
            last_packet: 0,
        }
    }

    /// Begins anew, as after a reset of the trace unit; `why` is what the next element says of it.
    pub fn reset(&mut self, why: Unsynced) {
        self.state = State::NoSync;
        self.unsynced = why;
        self.has_address = false;
        self.isa = Isa::Unknown;
        self.context = Context::default();
        self.returns.flush();
    }

    /// Gives an element, and goes on with the memory that it stands for.
    fn give(&mut self, at: usize, element: Element, sink: &mut impl Sink) {
        sink.element(at, element);
        if let Some(view) = self.blocks.element(&element) {
            sink.memory(view);
        }
    }

    /// The trace ends.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        sink.element(self.last_packet, Element::End(Unsynced::EndOfTrace));
    }

    /// Takes the next packet.
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
            Fields::Atoms(atoms) => {
                let mut bits = atoms.bits;
                for _ in 0..atoms.count {
                    if !self.has_address {
                        break;
                    }
                    self.waypoint(packet, bits & 1 == 1, true, sink);
                    bits >>= 1;
                }
            }
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
                let view = self.blocks.context(&self.context);
                if let Some(view) = view {
                    sink.memory(view);
                }
                return;
            }
            SyncReason::RestartOverflow => TraceOn::Overflow,
            SyncReason::DebugExit => TraceOn::Debug,
            _ => TraceOn::Normal,
        };
        self.returns.flush();
        sink.element(
            packet.start,
            Element::TraceOn {
                why,
                cycles: packet.cycles,
            },
        );
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
    }

    /// What executed up to and with the instruction at an address, which is a waypoint.
    fn waypoint_update(&mut self, packet: &Packet, branch: &Branch, sink: &mut impl Sink) {
        let at = packet.start;
        if !self.has_address {
            return;
        }
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

    /// Code runs at an address. Whether memory has changed for it to be there.
    fn reach(&mut self, space: MemorySpace, address: u64, sink: &mut impl Sink) -> bool {
        if self.blocks.instruction(space, self.isa, address).is_some() {
            return false;
        }
        let view = self.blocks.advance(space, address);
        if let Some(view) = view {
            sink.memory(view);
        }
        view.is_some()
    }

    /// Walks to the next waypoint.
    fn waypoint(&mut self, packet: &Packet, is_taken: bool, is_atom: bool, sink: &mut impl Sink) {
        let at = packet.start;
        let space = self.context.space();
        let mut id = self.blocks.at(space, self.isa, self.address);
        if self.blocks.get(id).count == 0 && self.reach(space, self.address, sink) {
            id = self.blocks.at(space, self.isa, self.address);
        }
        let block = *self.blocks.get(id);
        if block.stop != Stop::Waypoint {
            self.has_address = false;
            if block.count > 0 {
                sink.element(
                    at,
                    Element::Range(Range {
                        cycles: packet.cycles,
                        ..block.range(id, true)
                    }),
                );
            }
            if block.stop == Stop::NotAccessible {
                sink.element(
                    at,
                    Element::NotAccessible {
                        address: block.end,
                        space: block.space,
                    },
                );
            } else {
                sink.element(at, Element::AddressUnknown);
            }
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
            Class::Indirect => {
                // A branch address packet brings the target itself.
                self.has_address = false;
                if is_atom && let Some((address, isa)) = self.returns.pop() {
                    self.address = address;
                    self.isa = isa;
                    self.has_address = true;
                }
            }
            _ => {}
        }
        if block.links {
            self.returns.push(block.end, block.isa);
        }
    }
}
