//! Instruction flow: reconstructs elements from packets and code.
//!
//! The walk from one waypoint to the next is the same for all protocols and dominates the cost, so [`Blocks`] does it
//! once for each address and memory space. A block is a straight run of instructions up to its waypoint. It caches its
//! successors for a taken and a not-taken branch, so that an atom costs one array access; only targets that the trace
//! alone gives need a lookup by address.

mod blocks;
mod etmv3;
mod etmv4;
mod executions;
mod paths;
mod ptm;
mod return_stack;
mod software;

pub use blocks::{AddressHash, Block, BlockId, Blocks, Stop};
pub use etmv3::EtmV3Flow;
pub use etmv4::{EtmV4Flow, EtmV4Options};
pub use executions::Execution;
pub use paths::{Path, PathId, Paths};
pub use ptm::PtmFlow;
pub use software::{ItmFlow, StmFlow};

use crate::element::{Element, Unsynced};
use crate::frames::{Segment, Stream};
use crate::instruction::Waypoints;
use crate::listing::{Packet, PacketDecoder};
use crate::memory::{Code, View};
use crate::source::Protocol;

/// Receiver of elements.
pub trait Sink {
    /// Takes an element. `at` is the position in the stream of the packet from which it comes.
    fn element(&mut self, at: usize, element: Element);

    /// The trace unit was restarted at this position, at which its last session had ended. It was off in between; no
    /// other trace is missing.
    fn restart(&mut self, _at: usize) {}

    /// Execution went to an address that the trace does not have, and instructions that ran there are missing. Not an
    /// element, because the reference decoder gives none there ([`Element::AddressUnknown`] is what it gives elsewhere).
    fn unknown_target(&mut self, _at: usize) {}

    /// Changes the view of memory for the following elements. The first view is [`View::default`].
    fn memory(&mut self, _: View) {}

    /// Takes executions of consecutive blocks, each equal to a range. `all` are the blocks, by their numbers. Only the
    /// last can end with a branch whose target only the trace gives, or with one that does not fit the trace, so a sink
    /// that counts blocks needs only the fields of the last one.
    #[inline]
    fn blocks(&mut self, at: usize, executions: &[Execution], all: &[Block]) {
        for execution in executions {
            if let Some(block) = all.get(execution.block() as usize) {
                let range = block.range(execution.block(), execution.is_taken());
                self.element(at, Element::Range(range));
            }
        }
    }

    /// Takes the executions of a [known](Blocks::paths) path. A sink that counts needs only its number.
    #[inline]
    fn path(&mut self, at: usize, _: PathId, path: &Path, executions: &[Execution], all: &[Block]) {
        let _ = path;
        self.blocks(at, executions, all);
    }
}

impl Sink for Vec<(usize, Element)> {
    fn element(&mut self, at: usize, element: Element) {
        self.push((at, element));
    }
}

/// Converts the packets of a source of any protocol to elements.
#[derive(Clone, Debug)]
pub enum Flow<C> {
    /// Of ETMv4 or ETE.
    EtmV4(Box<EtmV4Flow<C>>),
    /// Of ETMv3.
    EtmV3(Box<EtmV3Flow<C>>),
    /// Of a PTM.
    Ptm(Box<PtmFlow<C>>),
    /// Of an STM, whose messages need no code.
    Stm(StmFlow),
    /// Of an ITM.
    Itm(ItmFlow),
    /// Packets without elements.
    None,
}

impl<C: Code> Flow<C> {
    /// Creates the flow of a source whose core runs `code`.
    pub fn new(protocol: &Protocol, options: EtmV4Options, code: C) -> Self {
        match protocol {
            Protocol::EtmV4(config) => {
                let waypoints = Waypoints {
                    waits: config.wfx_is_branch(),
                    loads: config.has_load_atoms(),
                    stores: config.has_store_atoms(),
                    counts_it: true,
                    ..Waypoints::default()
                };
                Flow::EtmV4(Box::new(EtmV4Flow::new(
                    config,
                    options,
                    Blocks::new(code, waypoints),
                )))
            }
            Protocol::EtmV3(config) => {
                Flow::EtmV3(Box::new(EtmV3Flow::new(config, Blocks::stepping(code))))
            }
            Protocol::Ptm(config) => {
                let barriers = config.has_barrier_waypoints();
                let waypoints = Waypoints {
                    barriers,
                    ..Waypoints::default()
                };
                Flow::Ptm(Box::new(PtmFlow::new(config, Blocks::new(code, waypoints))))
            }
            Protocol::Stm(_) => Flow::Stm(StmFlow::default()),
            Protocol::Itm(_) => Flow::Itm(ItmFlow::default()),
        }
    }

    /// Decodes the next packet, which must be of the flow's protocol.
    #[inline]
    pub fn packet(&mut self, packet: &Packet, sink: &mut impl Sink) {
        match (self, packet) {
            (Flow::EtmV4(flow), Packet::EtmV4(packet)) => flow.packet(packet, sink),
            (Flow::EtmV3(flow), Packet::EtmV3(packet)) => flow.packet(packet, sink),
            (Flow::Ptm(flow), Packet::Ptm(packet)) => flow.packet(packet, sink),
            (Flow::Stm(flow), Packet::Stm(packet)) => flow.packet(packet, sink),
            (Flow::Itm(flow), Packet::Itm(packet)) => flow.packet(packet, sink),
            _ => {}
        }
    }

    /// Decodes all packets of a decoder of the same protocol. Returns their number.
    pub fn run(&mut self, mut decoder: PacketDecoder<'_>, sink: &mut impl Sink) -> u64 {
        self.run_to(&mut decoder, usize::MAX, sink)
    }

    /// Decodes the packets of a decoder of the same protocol that begin before a position. Returns their number.
    pub(crate) fn run_to(
        &mut self,
        decoder: &mut PacketDecoder<'_>,
        position: usize,
        sink: &mut impl Sink,
    ) -> u64 {
        let mut packets = 0;
        match (self, decoder) {
            (Flow::EtmV4(flow), PacketDecoder::EtmV4(decoder)) => loop {
                packets += flow.follow_atoms(decoder, position, sink);
                if decoder.next_start() >= position {
                    break;
                }
                let packet = decoder.next();
                let Some(packet) = &packet else { break };
                packets += 1;
                flow.packet(packet, sink);
            },
            (Flow::EtmV3(flow), PacketDecoder::EtmV3(decoder)) => {
                while decoder.next_start() < position
                    && let Some(packet) = decoder.next()
                {
                    packets += 1;
                    flow.packet(&packet, sink);
                }
            }
            (Flow::Ptm(flow), PacketDecoder::Ptm(decoder)) => {
                while decoder.next_start() < position
                    && let Some(packet) = decoder.next()
                {
                    packets += 1;
                    flow.packet(&packet, sink);
                }
            }
            (flow, decoder) => {
                while decoder.next_start().is_none_or(|start| start < position)
                    && let Some(packet) = decoder.next()
                {
                    packets += 1;
                    flow.packet(&packet, sink);
                }
            }
        }
        packets
    }

    /// Decodes all packets of a stream of the same protocol, restarting at its resets, and its end. Returns the number
    /// of packets.
    pub fn run_stream(
        &mut self,
        protocol: &Protocol,
        stream: &Stream<'_>,
        sink: &mut impl Sink,
    ) -> u64 {
        let mut packets = 0;
        for segment in stream.segments() {
            self.begin(&segment, sink);
            let bytes = stream.bytes.get(..segment.end).unwrap_or_default();
            packets += self.run(PacketDecoder::new(protocol, bytes, segment.start), sink);
        }
        self.finish_stream(stream, sink);
        packets
    }

    /// Whether the decoder is synchronized and needs no state from before its start.
    pub(crate) fn is_under_way(&self) -> bool {
        match self {
            Flow::EtmV4(flow) => flow.is_under_way(),
            Flow::EtmV3(flow) => flow.is_under_way(),
            Flow::Ptm(flow) => flow.is_under_way(),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => false,
        }
    }

    /// Takes the blocks of a finished flow of the same source, so that they need not be discovered again. The elements
    /// remain the same, except for the numbers of blocks.
    pub(crate) fn adopt_blocks(&mut self, finished: Self) {
        match (self, finished) {
            (Flow::EtmV4(flow), Flow::EtmV4(other)) => flow.adopt_blocks(other.blocks),
            (Flow::EtmV3(flow), Flow::EtmV3(other)) => flow.adopt_blocks(other.blocks),
            (Flow::Ptm(flow), Flow::Ptm(other)) => flow.adopt_blocks(other.blocks),
            _ => {}
        }
    }

    /// Whether another flow of the same source decodes the next packets in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Flow::EtmV4(a), Flow::EtmV4(b)) => a.is_like(b),
            (Flow::EtmV3(a), Flow::EtmV3(b)) => a.is_like(b),
            (Flow::Ptm(a), Flow::Ptm(b)) => a.is_like(b),
            _ => false,
        }
    }

    /// Begins a segment of the stream. Decoding restarts as after a reset of the trace unit, unless the segment
    /// continues the trace.
    pub fn begin(&mut self, segment: &Segment, sink: &mut impl Sink) {
        if let Flow::EtmV3(flow) = self {
            flow.settle(sink);
        }
        if segment.goes_on && segment.start > 0 && self.is_settled() {
            sink.restart(segment.start);
            if let Some(view) = self.enter(segment.session) {
                sink.memory(view);
            }
            return;
        }
        let is_first = segment.start == 0 && segment.lost_before.is_none();
        let why = segment.lost_before.unwrap_or(Unsynced::Reset);
        let view = match self {
            Flow::EtmV4(flow) => {
                if !is_first {
                    flow.reset(why);
                }
                flow.blocks.session(segment.start, segment.session)
            }
            Flow::EtmV3(flow) => {
                if !is_first {
                    flow.reset(why);
                }
                flow.blocks.session(segment.start, segment.session)
            }
            Flow::Ptm(flow) => {
                if !is_first {
                    flow.reset(why);
                }
                flow.blocks.session(segment.start, segment.session)
            }
            Flow::Stm(flow) => {
                if !is_first {
                    flow.reset(why);
                }
                return;
            }
            Flow::Itm(flow) => {
                if !is_first {
                    flow.reset(why);
                }
                return;
            }
            Flow::None => return,
        };
        sink.memory(view);
    }

    /// Whether no earlier packet waits for later ones.
    fn is_settled(&self) -> bool {
        match self {
            Flow::EtmV4(flow) => flow.is_all_committed(),
            _ => true,
        }
    }

    /// Continues the trace in another session. Returns the view of memory if it changed.
    fn enter(&mut self, session: Option<u32>) -> Option<View> {
        match self {
            Flow::EtmV4(flow) => flow.blocks.enter(session),
            Flow::EtmV3(flow) => flow.blocks.enter(session),
            Flow::Ptm(flow) => flow.blocks.enter(session),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => None,
        }
    }

    /// Ends the stream, and reports a loss after its last segment.
    pub fn finish_stream(&mut self, stream: &Stream<'_>, sink: &mut impl Sink) {
        if let Some(why) = stream.lost_at_end() {
            sink.element(stream.bytes.len(), Element::NoSync(why));
        }
        self.finish(sink);
    }

    /// Ends the trace.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        match self {
            Flow::EtmV4(flow) => flow.finish(sink),
            Flow::EtmV3(flow) => flow.finish(sink),
            Flow::Ptm(flow) => flow.finish(sink),
            Flow::Stm(flow) => flow.finish(sink),
            Flow::Itm(flow) => flow.finish(sink),
            Flow::None => {}
        }
    }

    /// Blocks found so far.
    pub fn blocks(&self) -> Option<&Blocks<C>> {
        match self {
            Flow::EtmV4(flow) => Some(&flow.blocks),
            Flow::EtmV3(flow) => Some(&flow.blocks),
            Flow::Ptm(flow) => Some(&flow.blocks),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => None,
        }
    }
}
