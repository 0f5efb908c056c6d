//! Effects of committed elements: addresses, contexts, atoms, exceptions, Q elements and source addresses.

use super::queue::{Entry, What};
use super::{EtmV4Flow, Misfit};
use crate::element::{Element, Range, Security, Unsynced};
use crate::etmv4::{self, Atoms, QElement};
use crate::flow::Sink;
use crate::flow::blocks::{BlockId, Blocks, Stop};
use crate::flow::executions::Execution;
use crate::flow::paths::{End, Reached};
use crate::instruction::{Class, Purpose};
use crate::isa::Isa;
use crate::memory::Code;

impl<C: Code> EtmV4Flow<C> {
    pub(super) fn set_address(&mut self, address: u64, is: u8) {
        self.returns.is_pop_pending = false;
        self.address = address;
        self.isa = self.isa_of(is);
        self.needs_address = false;
        self.next_block = None;
    }

    pub(super) fn isa_of(&self, is: u8) -> Isa {
        match (self.context.is_64_bit, is) {
            (true, _) => Isa::A64,
            (false, 0) => Isa::A32,
            _ => Isa::T32,
        }
    }

    pub(super) fn set_context(
        &mut self,
        at: usize,
        context: etmv4::Context,
        is: u8,
        sink: &mut impl Sink,
    ) {
        self.context.is_64_bit = context.is_64_bit;
        self.context.level = Some(context.level);
        self.context.security = match (context.nse, context.ns) {
            (false, false) => Security::Secure,
            (false, true) => Security::NonSecure,
            (true, false) => Security::Root,
            (true, true) => Security::Realm,
        };
        // Fields missing in the packet are unchanged.
        self.context.context_id = context.context_id.or(self.context.context_id);
        self.context.vmid = context.vmid.or(self.context.vmid);
        self.isa = self.isa_of(is);
        self.context.isa = self.isa;
        self.needs_context = false;
        self.next_block = None;
        self.give(at, Element::Context(self.context), sink);
    }

    /// Uses the return address of the last call as the target of an indirect branch without an address packet.
    #[inline]
    pub(super) fn pop_return(&mut self) {
        if self.returns.is_pop_pending
            && let Some((address, isa)) = self.returns.pop()
        {
            self.address = address;
            self.isa = isa;
            self.needs_address = false;
            self.next_block = None;
        }
    }

    #[inline]
    pub(super) fn atoms(
        &mut self,
        at: usize,
        atoms: Atoms,
        sink: &mut impl Sink,
    ) -> Result<(), Misfit> {
        let mut left = atoms;
        while left.count > 0 {
            let next = match self.next_block {
                Some(id) => Some(id),
                None => self.find_here(),
            };
            let Some(id) = next else {
                // Only an address or a context packet gives the current address.
                self.miss_target(at, sink);
                return Ok(());
            };
            let returns = &mut self.returns;
            let reached = self.blocks.follow(at, id, &mut left, returns, sink);
            match reached.end {
                End::At(_) if left.count == 0 => self.stand_at(reached),
                End::At(id) => {
                    let is_taken = left.bits & 1 == 1;
                    left.bits >>= 1;
                    left.count -= 1;
                    self.atom(at, id, is_taken, sink)?;
                }
                End::Behind(_) => self.stand_at(reached),
            }
        }
        Ok(())
    }

    /// Reports an atom behind an indirect branch whose target is neither traced nor on the return stack. Once for each
    /// branch: all atoms up to the next address are of unknown instructions.
    #[cold]
    fn miss_target(&mut self, at: usize, sink: &mut impl Sink) {
        if self.needs_address && std::mem::take(&mut self.needs_target) {
            sink.unknown_target(at);
        }
    }

    /// Moves execution to a block, or to after an indirect branch.
    #[inline]
    fn stand_at(&mut self, reached: Reached) {
        (self.address, self.isa) = (reached.address, reached.isa);
        match reached.end {
            End::At(id) => self.next_block = Some(id),
            End::Behind(id) => {
                (self.needs_address, self.needs_target) = (true, true);
                self.next_block = None;
                // A call through a register pushes its return address before its target could be popped.
                if self.returns.is_active() && self.blocks.get(id).links {
                    self.returns.push(reached.address, reached.isa);
                }
                self.returns.expect_pop();
            }
        }
    }

    /// Looks up the block at the current address, if the address is known.
    fn find_here(&mut self) -> Option<BlockId> {
        self.pop_return();
        let is_known = !self.needs_address && !self.needs_context;
        is_known.then(|| self.blocks.at(self.context.space(), self.isa, self.address))
    }

    /// Executes a block that does not fit, is incomplete, or needs more elements than its range.
    fn atom(
        &mut self,
        at: usize,
        mut id: BlockId,
        is_taken: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Misfit> {
        let mut block = *self.blocks.get(id);
        if block.stop == Stop::NotAccessible && block.count == 0 {
            let (space, isa, address) = (block.space, block.isa, block.start);
            if let Some(view) = self.blocks.advance(space, address) {
                self.see(Some(view), sink);
                id = self.blocks.at(space, isa, address);
                block = *self.blocks.get(id);
            }
        }
        if self.options.checks_opcodes && block.has_no_opcode {
            return Err(Misfit(Unsynced::BadOpcode(block.start)));
        }
        let is_whole = block.stop == Stop::Waypoint;
        if self.options.checks_branches && is_whole && block.range(id, is_taken).is_mismatch() {
            let branch = block.end.wrapping_sub(u64::from(block.last.size));
            return Err(Misfit(Unsynced::BadImage(branch)));
        }
        match block.stop {
            Stop::Waypoint => {
                sink.blocks(at, &[Execution::new(id, is_taken)], self.blocks.all());
                if is_taken && block.last.class == Class::Indirect {
                    self.stand_at(Reached {
                        end: End::Behind(id),
                        address: block.end,
                        isa: block.isa,
                    });
                } else {
                    if block.links && is_taken {
                        self.returns.push(block.end, block.isa);
                    }
                    let next = self.blocks.after(id, is_taken);
                    self.stand_at(self.blocks.before(next));
                }
                let returns = block.last.purpose == Purpose::ExceptionReturn;
                if is_taken && self.config.is_ete && returns {
                    sink.element(at, Element::ExceptionReturn);
                }
                Ok(())
            }
            Stop::NotAccessible => {
                if block.count > 0 {
                    sink.element(at, Element::Range(block.range(id, true)));
                }
                let (address, space) = (block.end, block.space);
                sink.element(at, Element::NotAccessible { address, space });
                (self.address, self.isa) = (block.end, block.isa);
                (self.needs_address, self.needs_target) = (true, false);
                self.next_block = None;
                Ok(())
            }
            Stop::NoCode => Err(Misfit(Unsynced::BadImage(block.start))),
        }
    }

    /// Emits the instructions up to an exception's return address, then the exception. Its address is the next in the
    /// queue.
    pub(super) fn exception(
        &mut self,
        at: usize,
        number: u32,
        is_branch_target: bool,
        sink: &mut impl Sink,
    ) -> Result<(), Misfit> {
        // A traced target means that the return stack did not have it: the trace unit would have left it out.
        if !is_branch_target {
            self.pop_return();
        }
        let mut context = None;
        if let Some(Entry {
            what: What::Context(found, is),
            ..
        }) = self.queue.front()
        {
            context = Some((*found, *is));
            self.queue.pop_front();
        }
        let Some(Entry {
            what: What::Address(return_address, is),
            ..
        }) = self.queue.front().copied()
        else {
            return Err(Misfit(Unsynced::BadPacket));
        };
        if is_branch_target {
            if let Some((context, _)) = context {
                self.context.is_64_bit = context.is_64_bit;
            }
            self.set_address(return_address, is);
        }
        if let Some((context, is)) = context {
            self.set_context(at, context, is, sink);
        }
        // After an indirect branch without a target, walk on from the branch like the reference tool, so that counts
        // are equal.
        if self.address != return_address && !self.needs_context {
            let space = self.context.space();
            let walk = |blocks: &Blocks<C>, isa, start| {
                blocks.walk_until(space, isa, start, Some(return_address))
            };
            let mut block = walk(&self.blocks, self.isa, self.address);
            if block.stop == Stop::NotAccessible
                && block.count == 0
                && let Some(view) = self.blocks.advance(space, self.address)
            {
                self.see(Some(view), sink);
                block = walk(&self.blocks, self.isa, self.address);
            }
            if block.count > 0 && block.stop != Stop::NoCode {
                let range = Range {
                    block: None,
                    ..block.range(0, true)
                };
                sink.element(at, Element::Range(range));
                self.address = block.end;
                self.isa = block.next_isa;
                self.next_block = None;
            }
            if block.stop == Stop::NotAccessible {
                sink.element(
                    at,
                    Element::NotAccessible {
                        address: block.end,
                        space,
                    },
                );
                (self.needs_address, self.needs_target) = (true, false);
                self.next_block = None;
            }
        }
        let return_address = Some(return_address);
        sink.element(
            at,
            Element::Exception {
                number,
                return_address,
                is_branch_target,
                is_inferred: false,
            },
        );
        Ok(())
    }

    /// Executes a Q element: a number of instructions, then an address.
    pub(super) fn q(&mut self, at: usize, q: QElement, sink: &mut impl Sink) {
        self.pop_return();
        let next = q.address;
        let count = q.count.unwrap_or_default();
        if !self.needs_context {
            let (space, start) = (self.context.space(), self.address);
            let block = self.blocks.walk_count(space, self.isa, start, count);
            let is_branch = matches!(block.last.class, Class::Branch | Class::Indirect);
            let leads_there = next.is_none_or(|next| next.value == block.end) || is_branch;
            if count > 0 && block.count == count && leads_there {
                let range = Range {
                    block: None,
                    ..block.range(0, true)
                };
                sink.element(at, Element::Range(range));
            } else {
                let next = next.map_or(start, |next| next.value);
                sink.element(at, Element::RangeWithoutPath { start, next, count });
            }
        }
        match next {
            Some(next) => self.set_address(next.value, next.is),
            None => {
                (self.needs_address, self.needs_target) = (true, false);
                self.next_block = None;
            }
        }
    }

    /// Executes all instructions up to the branch at a source address, which was taken.
    pub(super) fn source(
        &mut self,
        at: usize,
        source: u64,
        is: u8,
        sink: &mut impl Sink,
    ) -> Result<(), Misfit> {
        self.pop_return();
        if self.needs_context {
            return Ok(());
        }
        let space = self.context.space();
        if self.needs_address || self.address > source {
            self.set_address(source, is);
        }
        let mut last = self.blocks.instruction(space, self.isa, source);
        if last.is_none()
            && let Some(view) = self.blocks.advance(space, source)
        {
            self.see(Some(view), sink);
            last = self.blocks.instruction(space, self.isa, source);
        }
        let Some(last) = last else {
            sink.element(
                at,
                Element::NotAccessible {
                    address: source,
                    space,
                },
            );
            (self.needs_address, self.needs_target) = (true, false);
            self.next_block = None;
            return Ok(());
        };
        let end = source.wrapping_add(u64::from(last.size));
        let (isa, mut start) = (self.isa, self.address);
        if self.options.split_source_ranges {
            // No branch before the source address was taken.
            loop {
                let id = self.blocks.at(space, isa, start);
                let block = *self.blocks.get(id);
                if block.stop != Stop::Waypoint || block.end >= end {
                    break;
                }
                sink.element(at, Element::Range(block.range(id, false)));
                start = block.end;
            }
        }
        let block = self.blocks.walk_until(space, isa, start, Some(end));
        if block.stop != Stop::Waypoint || block.count == 0 {
            return Err(Misfit(Unsynced::BadImage(start)));
        }
        sink.element(
            at,
            Element::Range(Range {
                block: None,
                ..block.range(0, true)
            }),
        );
        if block.last.purpose == Purpose::ExceptionReturn {
            sink.element(at, Element::ExceptionReturn);
        }
        self.address = end;
        self.next_block = None;
        if block.links {
            self.returns.push(end, isa);
        }
        match block.last.class {
            Class::Branch => {
                self.address = block.target;
                self.isa = block.next_isa;
            }
            Class::Indirect => {
                (self.needs_address, self.needs_target) = (true, true);
                self.returns.expect_pop();
            }
            _ => {}
        }
        Ok(())
    }
}
