//! Packets of ETMv4 and ETE to elements.
//!
//! Packets are speculative: up to TRCIDR8 atoms and exceptions can still be cancelled. They wait in a queue, in order
//! with the contexts, times and addresses between them, until a packet commits them, or until more than TRCIDR8 of them
//! wait, which commits the oldest.

mod conditional;
mod execution;
mod queue;

use std::collections::VecDeque;

use super::Sink;
use super::blocks::{BlockId, Blocks};
use super::return_stack::ReturnStack;
use crate::element::{Context, Element, TraceOn, Transaction, Unsynced};
use crate::etmv4::{Address, Atoms, Config, Decoder, Fields, Kind, Packet};
use crate::isa::Isa;
use crate::memory::{Code, View};
use conditional::Keys;
use queue::{Entry, What};

/// Decoder options for ETMv4 and ETE.
#[derive(Clone, Copy, Debug, Default)]
pub struct EtmV4Options {
    /// Splits the range up to a source address at the branches that were not taken.
    pub split_source_ranges: bool,
    /// Stops at an instruction that A64 does not have (0 in its upper half), until the next synchronization.
    pub checks_opcodes: bool,
    /// Stops at an unconditional branch that was not taken, until the next synchronization.
    pub checks_branches: bool,
}

/// Converts the packets of one ETMv4 or ETE to elements.
#[derive(Clone, Debug)]
pub struct EtmV4Flow<C> {
    config: Config,
    options: EtmV4Options,
    /// The code, as blocks.
    pub blocks: Blocks<C>,
    state: State,
    unsynced: Unsynced,
    queue: VecDeque<Entry>,
    /// Number of uncommitted P0 elements, in the queue and before it.
    depth: u32,
    /// Number of those before the first packet.
    unseen: u32,
    exception_waits: bool,
    context: Context,
    needs_context: bool,
    address: u64,
    needs_address: bool,
    isa: Isa,
    /// Block at the address, if the flow reached it without an address packet.
    next_block: Option<BlockId>,
    /// Instruction set bit of the last address packet.
    last_is: u8,
    returns: ReturnStack,
    /// Whether the missing address is the target of an indirect branch, and not yet reported as unknown. Only
    /// meaningful while an address is needed.
    needs_target: bool,
    overflowed: bool,
    /// Keys of conditional instructions.
    keys: Keys,
    /// Position of the previous packet.
    last_packet: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NoSync,
    WaitAsync,
    WaitInfo,
    Decoding,
}

/// Conflict of the trace with the code or with itself; decoding restarts at the next synchronization.
struct Misfit(Unsynced);

impl<C: Code> EtmV4Flow<C> {
    /// Creates an unsynchronized decoder.
    pub fn new(config: &Config, options: EtmV4Options, blocks: Blocks<C>) -> Self {
        EtmV4Flow {
            config: *config,
            options,
            blocks: if config.is_ete {
                blocks.giving_returns()
            } else {
                blocks
            },
            state: State::NoSync,
            unsynced: Unsynced::Init,
            queue: VecDeque::new(),
            depth: 0,
            unseen: 0,
            exception_waits: false,
            context: Context::default(),
            needs_context: true,
            address: 0,
            needs_address: true,
            isa: Isa::Unknown,
            next_block: None,
            last_is: 0,
            returns: ReturnStack::new(config.uses_return_stack()),
            needs_target: false,
            overflowed: false,
            keys: Keys::default(),
            last_packet: 0,
        }
    }

    /// Whether the decoder is synchronized and needs no state from before its start.
    pub(super) fn is_under_way(&self) -> bool {
        self.state == State::Decoding && self.unseen == 0 && !self.needs_context
    }

    /// Takes the blocks of a finished flow of the same source.
    pub(super) fn adopt_blocks(&mut self, finished: Blocks<C>) {
        self.next_block = self.blocks.adopt(finished, self.next_block);
    }

    /// Whether another flow of the same source decodes the next packets in the same way.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let numbers = |flow: &Self| (flow.depth, flow.unseen, flow.last_is, flow.last_packet);
        let states = |flow: &Self| (flow.state, flow.exception_waits, flow.overflowed);
        let needs = |flow: &Self| flow.needs_address.then_some(flow.needs_target);
        let place = |flow: &Self| (flow.address, needs(flow), flow.isa);
        numbers(self) == numbers(other)
            && states(self) == states(other)
            && place(self) == place(other)
            && (self.context, self.needs_context) == (other.context, other.needs_context)
            && (&self.queue, self.keys) == (&other.queue, other.keys)
            && self.returns == other.returns
            && self.blocks.moment() == other.blocks.moment()
    }

    /// Whether nothing waits for a commit, or for the address of an exception.
    pub(super) fn is_all_committed(&self) -> bool {
        self.depth == 0 && self.unseen == 0 && !self.exception_waits
    }

    /// Restarts decoding as after a reset of the trace unit; the next element reports `why`.
    pub fn reset(&mut self, why: Unsynced) {
        self.lose_sync(why);
        self.overflowed = false;
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
        self.queue.clear();
        self.depth = 0;
        self.unseen = 0;
        self.exception_waits = false;
        self.context = Context::default();
        self.needs_context = true;
        self.needs_address = true;
        self.needs_target = false;
        self.next_block = None;
        self.last_is = 0;
        self.keys = Keys::default();
        self.returns.flush();
    }

    /// Decodes the next packet.
    #[inline]
    pub fn packet(&mut self, packet: &Packet, sink: &mut impl Sink) {
        self.last_packet = packet.start;
        let result = match (self.state, packet.fields) {
            (State::Decoding, Fields::Atoms(atoms)) if self.follows_atoms() => {
                return self.follow(packet.start, atoms, sink);
            }
            (State::Decoding, Fields::Address(address))
                if self.is_settled() && !packet.kind.is_source() =>
            {
                return self.go(address);
            }
            (State::Decoding, _) => self.decode(packet, sink),
            _ => self.synchronize(packet, sink),
        };
        self.fit(packet.start, result, sink);
    }

    /// Whether atoms are followed without the queue: nothing is speculative, and the decoder is synchronized.
    #[inline]
    fn follows_atoms(&self) -> bool {
        self.config.idr8 == 0 && self.unseen == 0 && self.state == State::Decoding
    }

    /// Whether the queue is empty and no commit is due.
    #[inline]
    fn is_settled(&self) -> bool {
        let is_empty = self.queue.is_empty() && !self.exception_waits;
        is_empty && self.depth <= self.config.max_speculation()
    }

    /// Follows the next atom and address packets that begin before a position, if atoms are followed without the queue.
    /// Most packets are of these kinds, so this fast path decodes bytes directly to blocks. Returns the number of
    /// packets.
    #[inline]
    pub(super) fn follow_atoms(
        &mut self,
        decoder: &mut Decoder<'_>,
        position: usize,
        sink: &mut impl Sink,
    ) -> u64 {
        let mut packets = 0;
        while self.follows_atoms() && decoder.next_start() < position {
            if let Some((at, atoms)) = decoder.next_atoms() {
                self.follow(at, atoms, sink);
            } else if self.is_settled()
                && let Some((at, address)) = decoder.next_address()
            {
                self.last_packet = at;
                self.go(address);
            } else {
                break;
            }
            packets += 1;
        }
        packets
    }

    /// Moves execution to the address of an address packet, for which no element waits.
    #[inline]
    fn go(&mut self, address: Address) {
        self.last_is = address.is;
        self.set_address(address.value, address.is);
    }

    /// Follows the atoms of a packet at position `at`, after committing the queue.
    #[inline]
    fn follow(&mut self, at: usize, atoms: Atoms, sink: &mut impl Sink) {
        self.last_packet = at;
        let result = self
            .commit_all(sink)
            .and_then(|()| self.atoms(at, atoms, sink));
        self.fit(at, result, sink);
    }

    /// Restarts decoding if the trace does not fit.
    fn fit(&mut self, at: usize, result: Result<(), Misfit>, sink: &mut impl Sink) {
        if let Err(Misfit(why)) = result {
            self.lose_sync(why);
            if matches!(why, Unsynced::BadImage(_) | Unsynced::BadOpcode(_)) {
                sink.element(at, Element::NoSync(why));
                self.state = State::WaitAsync;
            }
        }
    }

    fn synchronize(&mut self, packet: &Packet, sink: &mut impl Sink) -> Result<(), Misfit> {
        if self.state == State::NoSync {
            sink.element(packet.start, Element::NoSync(self.unsynced));
            self.state = State::WaitAsync;
        }
        match (self.state, packet.kind, packet.fields) {
            (State::WaitAsync, Kind::Async, _) => self.state = State::WaitInfo,
            (State::WaitInfo, _, Fields::TraceInfo(info)) => {
                self.needs_context = true;
                self.needs_address = true;
                self.needs_target = false;
                self.depth = info.speculation.unwrap_or_default();
                self.unseen = self.depth;
                self.state = State::Decoding;
                self.returns.flush();
                if self.config.is_ete && info.info & 0x40 != 0 {
                    self.queue.push_back(Entry::new(
                        packet.start,
                        What::Transaction(Transaction::Init),
                    ));
                }
            }
            (State::WaitInfo, Kind::Event, Fields::Number(number)) => {
                sink.element(packet.start, Element::Event(Some(number)));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends the trace: emits waiting times and events, and drops uncommitted elements.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        while let Some(entry) = self.queue.pop_front() {
            match entry.what {
                What::Address(..) | What::Context(..) | What::TraceInfo => {}
                What::Times(element) => sink.element(entry.at, element),
                What::Transaction(turn) if turn != Transaction::Start => {
                    sink.element(entry.at, Element::Transaction(turn));
                }
                _ => self.queue.clear(),
            }
        }
        let why = if self.overflowed {
            Unsynced::Overflow
        } else {
            Unsynced::EndOfTrace
        };
        sink.element(self.last_packet, Element::End(why));
    }

    fn decode(&mut self, packet: &Packet, sink: &mut impl Sink) -> Result<(), Misfit> {
        let at = packet.start;
        let had_none = self.queue.is_empty();
        let mut push = |what| self.queue.push_back(Entry::new(at, what));
        let mut commit = 0;
        let mut is_address = false;
        match (packet.kind, packet.fields) {
            (_, Fields::Atoms(atoms)) => {
                push(What::Atoms(atoms));
                self.depth += u32::from(atoms.count);
            }
            (kind, Fields::Address(address)) if kind.is_source() => {
                push(What::Source(address.value, address.is));
                self.depth += 1;
            }
            (_, Fields::Address(address)) => {
                self.last_is = address.is;
                if had_none {
                    self.set_address(address.value, address.is);
                } else {
                    push(What::Address(address.value, address.is));
                }
                is_address = true;
            }
            (_, Fields::AddressContext(address, context)) => {
                self.last_is = address.is;
                push(What::Context(context, address.is));
                push(What::Address(address.value, address.is));
                is_address = true;
            }
            (_, Fields::Context(Some(context))) => push(What::Context(context, self.last_is)),
            (Kind::TraceOn, _) => push(What::TraceOn),
            (_, Fields::TraceInfo(_)) => push(What::TraceInfo),
            (
                Kind::Exception,
                Fields::Exception {
                    number, address, ..
                },
            ) => {
                push(What::Exception {
                    number: u32::from(number),
                    is_branch_target: address == 2,
                });
                self.exception_waits = true;
            }
            (Kind::PeReset, Fields::Exception { number, .. }) => {
                let element = Element::Exception {
                    number: u32::from(number),
                    return_address: Some(0),
                    is_branch_target: false,
                    is_inferred: false,
                };
                push(What::Times(element));
            }
            (Kind::ExceptionReturn, _) => {
                push(What::ExceptionReturn);
                if self.config.is_m_profile {
                    self.depth += 1;
                }
            }
            (Kind::FunctionReturn, _) => {
                push(What::FunctionReturn);
                self.depth += 1;
            }
            (Kind::TransactionStart, _) => {
                push(What::Transaction(Transaction::Start));
                if self.config.transaction_start_is_p0() {
                    self.depth += 1;
                }
            }
            (Kind::TransactionCommit, _) => push(What::Transaction(Transaction::Commit)),
            (Kind::TransactionFail, _) => push(What::Transaction(Transaction::Fail)),
            (Kind::Event, Fields::Number(number)) => {
                push(What::Times(Element::Event(Some(number))))
            }
            (_, Fields::Timestamp { value, cycles }) => {
                push(What::Times(Element::Timestamp { value, cycles }));
            }
            (
                _,
                Fields::Cycles {
                    count,
                    commit: committed,
                },
            ) => {
                // The count covers the elements that this packet commits, so it is emitted after them.
                if let Some(committed) = committed {
                    self.commit(u32::try_from(committed).unwrap_or_default(), sink)?;
                }
                self.queue
                    .push_back(Entry::new(at, What::Times(Element::Cycles(count))));
            }
            (Kind::TimestampMarker, _) => push(What::Times(Element::TimestampMarker)),
            (_, Fields::Instrumentation { level, value }) => {
                push(What::Times(Element::Instrumentation { level, value }));
            }
            (_, Fields::Q(q)) => {
                push(What::Q(q));
                self.depth += 1;
            }
            (_, Fields::Conditional(_) | Fields::Results(_)) | (Kind::ConditionalFlush, _) => {
                push(What::Conditional(self.keys, packet.kind, packet.fields));
                let (kind, fields) = (packet.kind, packet.fields);
                self.keys.packet(&self.config, kind, fields, &mut |_| {});
            }
            (_, Fields::Commit(count)) => commit = count,
            (kind, Fields::Cancel { atoms, count }) => {
                if atoms.count > 0 {
                    push(What::Atoms(atoms));
                    self.depth += u32::from(atoms.count);
                }
                self.cancel(count);
                if kind != Kind::CancelF1 {
                    self.mispredict();
                }
            }
            (Kind::Overflow, _) => {
                self.overflowed = true;
                return self.discard(at, Unsynced::Overflow, sink);
            }
            (Kind::Discard, _) => return self.discard(at, Unsynced::Discard, sink),
            (Kind::BadSequence | Kind::BadTraceMode | Kind::Reserved | Kind::ReservedConfig, _) => {
                return Err(Misfit(Unsynced::BadPacket));
            }
            _ => {}
        }
        if is_address && self.exception_waits {
            self.depth += 1;
            self.exception_waits = false;
        }
        let max = self.config.max_speculation();
        if self.depth > max {
            commit = commit.max(self.depth - max);
        }
        self.commit(commit, sink)
    }

    /// Loses synchronization: emits waiting times, and drops all other elements.
    fn discard(&mut self, at: usize, why: Unsynced, sink: &mut impl Sink) -> Result<(), Misfit> {
        while let Some(entry) = self.queue.pop_front() {
            if let What::Times(element) = entry.what {
                sink.element(entry.at, element);
            }
        }
        self.lose_sync(why);
        sink.element(at, Element::NoSync(why));
        self.state = State::WaitAsync;
        Ok(())
    }

    /// Commits the whole queue, for a trace unit without speculation.
    #[inline]
    fn commit_all(&mut self, sink: &mut impl Sink) -> Result<(), Misfit> {
        while let Some(entry) = self.queue.pop_front() {
            self.commit_entry(entry, sink)?;
        }
        self.depth = 0;
        Ok(())
    }

    /// Commits this many P0 elements, with all elements before and between them.
    fn commit(&mut self, mut count: u32, sink: &mut impl Sink) -> Result<(), Misfit> {
        let unseen = count.min(self.unseen);
        self.unseen -= unseen;
        count -= unseen;
        self.depth = self.depth.saturating_sub(unseen);
        while count > 0 {
            let Some(mut entry) = self.queue.pop_front() else {
                // More elements are committed than were traced.
                return Err(Misfit(Unsynced::BadPacket));
            };
            if let What::Atoms(atoms) = &mut entry.what {
                let now = atoms.first(count);
                count -= u32::from(now.count);
                self.depth = self.depth.saturating_sub(u32::from(now.count));
                let at = entry.at;
                if atoms.count > 0 {
                    self.queue.push_front(entry);
                }
                self.atoms(at, now, sink)?;
                continue;
            }
            if entry.is_p0(&self.config) {
                count -= 1;
                self.depth = self.depth.saturating_sub(1);
            }
            self.commit_entry(entry, sink)?;
        }
        Ok(())
    }

    fn commit_entry(&mut self, entry: Entry, sink: &mut impl Sink) -> Result<(), Misfit> {
        let at = entry.at;
        match entry.what {
            What::Atoms(atoms) => self.atoms(at, atoms, sink)?,
            What::Address(address, is) => self.set_address(address, is),
            What::Context(context, is) => self.set_context(at, context, is, sink),
            What::TraceOn => {
                let why = if self.overflowed {
                    TraceOn::Overflow
                } else {
                    TraceOn::Normal
                };
                self.overflowed = false;
                self.returns.flush();
                self.give(at, Element::TraceOn { why, cycles: None }, sink);
            }
            What::FunctionReturn => {}
            What::TraceInfo => self.returns.flush(),
            What::Times(element) => self.give(at, element, sink),
            What::Conditional(mut keys, kind, fields) => {
                let out = &mut |element| sink.element(at, element);
                keys.packet(&self.config, kind, fields, out);
            }
            What::Transaction(turn) => sink.element(at, Element::Transaction(turn)),
            What::ExceptionReturn => sink.element(at, Element::ExceptionReturn),
            What::Exception {
                number,
                is_branch_target,
            } => {
                self.exception(at, number, is_branch_target, sink)?;
            }
            What::Q(q) => self.q(at, q, sink),
            What::Source(address, is) => self.source(at, address, is, sink)?,
        }
        Ok(())
    }

    /// Drops the newest P0 elements, and the addresses and contexts among them; times stay.
    fn cancel(&mut self, mut count: u32) {
        let mut kept = Vec::new();
        while count > 0 {
            let Some(mut entry) = self.queue.pop_back() else {
                break;
            };
            let is_p0 = entry.is_p0(&self.config);
            match &mut entry.what {
                What::Atoms(atoms) => {
                    let dropped = atoms.drop_newest(count);
                    count -= dropped;
                    self.depth = self.depth.saturating_sub(dropped);
                    if atoms.count > 0 {
                        self.queue.push_back(entry);
                    }
                }
                What::Times(_) => kept.push(entry),
                _ if is_p0 => {
                    count -= 1;
                    self.depth = self.depth.saturating_sub(1);
                }
                _ => {}
            }
        }
        let unseen = count.min(self.unseen);
        self.unseen -= unseen;
        self.depth = self.depth.saturating_sub(unseen);
        self.queue.extend(kept.into_iter().rev());
    }

    /// Inverts the newest atom, and drops the addresses after it.
    fn mispredict(&mut self) {
        let mut index = self.queue.len();
        while index > 0 {
            index -= 1;
            match &mut self.queue[index].what {
                What::Atoms(atoms) => {
                    atoms.bits ^= 1 << (atoms.count.max(1) - 1);
                    return;
                }
                What::Address(..) => {
                    self.queue.remove(index);
                }
                _ => {}
            }
        }
    }
}
