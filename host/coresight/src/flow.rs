//! Instruction flow: packets and code become elements.
//!
//! The walk from one waypoint to the next is the same for all protocols and all of its cost; [`Blocks`] does it once for
//! each address and memory space. A block is a straight run of instructions up to its waypoint. It remembers the blocks
//! that follow if its branch is taken or not, so that an atom costs a look into an array; only targets that the trace
//! alone knows are looked up by address.

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

/// Where elements go.
pub trait Sink {
    /// Takes an element. `at` is the position in the stream of the packet from which it comes.
    fn element(&mut self, at: usize, element: Element);

    /// The trace unit was started again, at this position, where it had ended: it was off in between, and nothing else is missing.
    fn restart(&mut self, _at: usize) {}

    /// From here on another view of memory holds. The first one is [`View::default`].
    fn memory(&mut self, _: View) {}

    /// Takes executions of blocks, one behind the other: the ranges that they are. `all` are the blocks, by their numbers.
    /// None but the last ends with a branch of which only the trace knows the target, or with one that does not fit the
    /// trace, so a sink that counts blocks needs the fields of the last one alone.
    #[inline]
    fn blocks(&mut self, at: usize, executions: &[Execution], all: &[Block]) {
        for execution in executions {
            if let Some(block) = all.get(execution.block() as usize) {
                let range = block.range(execution.block(), execution.is_taken());
                self.element(at, Element::Range(range));
            }
        }
    }

    /// Takes the executions of a path that is [known](Blocks::paths) by its number. A sink that counts needs the number alone.
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

/// Turns the packets of a source of any protocol into elements.
#[derive(Clone, Debug)]
pub enum Flow<C> {
    /// Of ETMv4 or ETE.
    EtmV4(Box<EtmV4Flow<C>>),
    /// Of ETMv3.
    EtmV3(Box<EtmV3Flow<C>>),
    /// Of a PTM.
    Ptm(Box<PtmFlow<C>>),
    /// Of an STM, whose software has no code here.
    Stm(StmFlow),
    /// Of an ITM.
    Itm(ItmFlow),
    /// Of nothing: packets without elements.
    None,
}

impl<C: Code> Flow<C> {
    /// Begins to decode a source whose core runs `code`. Of an ETMv4 that traces loads and stores with atoms (TRCCONFIGR.INSTP0)
    /// there are no elements.
    pub fn new(protocol: &Protocol, options: EtmV4Options, code: C) -> Self {
        match protocol {
            // Each load or store has an atom, which would be taken for that of a branch.
            Protocol::EtmV4(config) if config.has_load_store_atoms() => Flow::None,
            Protocol::EtmV4(config) => {
                let waypoints = Waypoints {
                    waits: config.wfx_is_branch(),
                    barriers: false,
                    counts_it: true,
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
                    waits: false,
                    barriers,
                    counts_it: false,
                };
                Flow::Ptm(Box::new(PtmFlow::new(config, Blocks::new(code, waypoints))))
            }
            Protocol::Stm(_) => Flow::Stm(StmFlow::default()),
            Protocol::Itm(_) => Flow::Itm(ItmFlow::default()),
        }
    }

    /// Takes the next packet, which has to be one of the flow's protocol.
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

    /// Takes all packets of a decoder of the same protocol. How many they were.
    pub fn run(&mut self, mut decoder: PacketDecoder<'_>, sink: &mut impl Sink) -> u64 {
        self.run_to(&mut decoder, usize::MAX, sink)
    }

    /// Takes the packets of a decoder of the same protocol that begin before a position. How many they were.
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

    /// Takes all packets of a stream of the same protocol, which begins anew at its resets, and its end. How many packets
    /// they were.
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

    /// Whether decoding is under way, and nothing is missing that came before it began.
    pub(crate) fn is_under_way(&self) -> bool {
        match self {
            Flow::EtmV4(flow) => flow.is_under_way(),
            Flow::EtmV3(flow) => flow.is_under_way(),
            Flow::Ptm(flow) => flow.is_under_way(),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => false,
        }
    }

    /// Whether the next packets mean the same to another flow, of the same source.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Flow::EtmV4(a), Flow::EtmV4(b)) => a.is_like(b),
            (Flow::EtmV3(a), Flow::EtmV3(b)) => a.is_like(b),
            (Flow::Ptm(a), Flow::Ptm(b)) => a.is_like(b),
            _ => false,
        }
    }

    /// A segment of the stream begins: decoding begins anew, as after a reset of the trace unit, unless the trace goes on there.
    pub fn begin(&mut self, segment: &Segment, sink: &mut impl Sink) {
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

    /// Whether nothing of what came before waits for what follows.
    fn is_settled(&self) -> bool {
        match self {
            Flow::EtmV4(flow) => flow.is_all_committed(),
            _ => true,
        }
    }

    /// Another session goes on with the trace. The view of memory, if it is another one than before.
    fn enter(&mut self, session: Option<u32>) -> Option<View> {
        match self {
            Flow::EtmV4(flow) => flow.blocks.enter(session),
            Flow::EtmV3(flow) => flow.blocks.enter(session),
            Flow::Ptm(flow) => flow.blocks.enter(session),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => None,
        }
    }

    /// The stream ends, and what its recorder lost behind its last segment is reported.
    pub fn finish_stream(&mut self, stream: &Stream<'_>, sink: &mut impl Sink) {
        if let Some(why) = stream.lost_at_end() {
            sink.element(stream.bytes.len(), Element::NoSync(why));
        }
        self.finish(sink);
    }

    /// The trace ends.
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

    /// The blocks found so far.
    pub fn blocks(&self) -> Option<&Blocks<C>> {
        match self {
            Flow::EtmV4(flow) => Some(&flow.blocks),
            Flow::EtmV3(flow) => Some(&flow.blocks),
            Flow::Ptm(flow) => Some(&flow.blocks),
            Flow::Stm(_) | Flow::Itm(_) | Flow::None => None,
        }
    }
}
