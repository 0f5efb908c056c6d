//! Call tree: sums calls with the same stack, for flame graphs and tables of callers and callees.
//!
//! A node is a stack of calls. It holds the number of calls of its innermost function with that stack, their self
//! time, and the longest of them. The tree grows with the number of different stacks; it keeps no events.
//!
//! Times are those of [`End::sure_self`](crate::calls::End::sure_self): without callees, preemption and interrupts,
//! which have stacks of their own. The sum of all nodes is therefore the recorded time, and equals the self time of
//! the [profile](crate::profile). Calls that are open at the end of the trace count up to there; where events were
//! lost, only certain time counts. Exits without a begin are not in the tree ([`CallTree::orphans`] counts them).

mod edges;
mod views;

use kymo_event::{Caller, Duration, SpaceId, TraceInfo};

use crate::calls::{Callee, End, Step, TrackId, TrackInfo};
use crate::ended::Ended;
use crate::profile::is_loss;
use crate::recursion::Recursion;
use edges::Edges;
pub use views::{Edge, Group, Sum, View};

/// Maximum depth of stacks in the tree; all deeper calls share the frame [`Frame::Deeper`]. Bounds memory, which a
/// runaway recursion would otherwise use by the square of its depth.
pub const DEEPEST: usize = 1 << 10;

/// Index of a node.
pub type NodeId = u32;

/// The root of the tree.
pub const ROOT: NodeId = 0;

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// The root.
    Root,
    /// The space of a track.
    Space(SpaceId),
    /// A thread, in trees whose stacks begin with the thread.
    Track(TrackId),
    /// A call.
    Call(Callee),
    /// All calls deeper than [`DEEPEST`].
    Deeper,
}

impl Frame {
    /// A key that is unique among all frames.
    #[inline(always)]
    const fn key(self) -> u64 {
        match self {
            Self::Call(Callee::Function(id)) => (id.0 as u64) << 3 | 1,
            Self::Call(Callee::Interrupt(id)) => (id.0 as u64) << 3 | 2,
            Self::Track(track) => (track.0 as u64) << 3 | 3,
            Self::Space(space) => (space.0 as u64) << 3 | 4,
            Self::Call(Callee::Unknown) => 5,
            Self::Deeper => 6,
            Self::Root => 7,
        }
    }
}

/// A stack, identified by its innermost frame.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The innermost frame.
    pub frame: Frame,
    /// The stack without the innermost frame; the root is its own parent.
    pub parent: NodeId,
    /// The stacks that are one call deeper, in order of first appearance.
    pub children: Vec<NodeId>,
    /// The number of calls with this stack.
    pub count: u64,
    /// The self time of the innermost frame.
    pub self_time: Duration,
    /// The time of the innermost frame with its callees, including those that are not shown. A lower bound: callees
    /// after a loss may belong to another call than the one that was open.
    pub total: Duration,
    /// The longest call with this stack.
    pub longest: Duration,
    /// Whether the times are lower bounds, because some call was not seen whole or is in doubt.
    pub at_least: bool,
    /// Calls whose end the source does not record; they are part of no time.
    pub without_end: u64,
}

impl Node {
    const fn new(frame: Frame, parent: NodeId) -> Self {
        Self {
            frame,
            parent,
            children: Vec::new(),
            count: 0,
            self_time: Duration(0),
            total: Duration(0),
            longest: Duration(0),
            at_least: false,
            without_end: 0,
        }
    }
}

/// The call tree, built step by step.
#[derive(Debug)]
pub struct CallTree {
    thread_roots: bool,
    /// The space of each track, and whether the track is a thread, indexed by [`TrackId`].
    tracks: Vec<(SpaceId, bool)>,
    nodes: Vec<Node>,
    edges: Edges,
    /// The open calls of each track, indexed by [`TrackId`], outermost first.
    open: Vec<Vec<NodeId>>,
    /// Calls that have ended, which a later [`Step::ClockAhead`] may correct.
    ended: Ended<NodeId>,
    /// The times of recursive calls that have ended.
    recursion: Recursion<Duration>,
    orphans: u64,
    late: u64,
}

impl CallTree {
    /// An empty tree. With `thread_roots`, the stacks of a thread begin with the thread, so that threads are
    /// distinguished.
    pub fn new(thread_roots: bool) -> Self {
        Self {
            thread_roots,
            tracks: Vec::new(),
            nodes: vec![Node::new(Frame::Root, ROOT)],
            edges: Edges::default(),
            open: Vec::new(),
            ended: Ended::default(),
            recursion: Recursion::default(),
            orphans: 0,
            late: 0,
        }
    }

    /// Processes a step.
    #[inline(always)]
    pub fn step(&mut self, info: &TraceInfo, step: &Step<'_>) {
        match step {
            Step::Begin(begin) => self.begin(begin.track, (begin.callee, begin.caller)),
            // An orphan has no begin, so none of the open calls belongs to it.
            Step::End(end) if end.begin.is_some() => {
                self.end(end, info.in_order);
            }
            Step::End(end) => {
                self.orphans += 1;
                self.late += u64::from(end.wall.is_some());
            }
            Step::Track { track, info: of } => self.track(info, *track, of),
            Step::ClockAhead(ahead) => {
                let node = self.ended.find(ahead.call);
                if let Some(node) = node.and_then(|id| self.nodes.get_mut(id as usize)) {
                    node.total = node.total - ahead.by;
                    if ahead.own {
                        node.self_time = node.self_time - ahead.by;
                    }
                }
            }
            Step::Event { event, .. } if is_loss(*event) => self.recursion.lose(),
            // No other step takes time.
            _ => {}
        }
    }

    /// All nodes, indexed by [`NodeId`]. A node comes after its parent.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node; the root if `id` does not exist.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&self.nodes[0])
    }

    /// The number of calls deeper than the tree distinguishes: those of [`Frame::Deeper`].
    pub fn deeper(&self) -> u64 {
        let nodes = self.nodes.iter();
        let deeper = nodes.filter(|node| node.frame == Frame::Deeper);
        deeper.map(|node| node.count).sum()
    }

    /// The number of exits whose begin is not in the trace.
    pub const fn orphans(&self) -> u64 {
        self.orphans
    }

    /// The number of orphans whose duration the source states. Their callees are in the tree, but not below them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// The total time of each node and the nodes below it, indexed by [`NodeId`].
    pub fn sums(&self) -> Vec<Duration> {
        let mut sums: Vec<Duration> = self.nodes.iter().map(|node| node.self_time).collect();
        // Children come after their parents, so in reverse order each sum is complete before it is added to the
        // parent's.
        for (at, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let sum = sums[at];
            if let Some(parent) = sums.get_mut(node.parent as usize) {
                *parent += sum;
            }
        }
        sums
    }

    #[cold]
    fn track(&mut self, info: &TraceInfo, track: TrackId, of: &TrackInfo) {
        let at = track.0 as usize;
        if self.tracks.len() <= at {
            self.tracks.resize(at + 1, (SpaceId::default(), false));
        }
        self.tracks[at] = (of.space(info), of.is_thread());
    }

    #[inline(always)]
    fn begin(&mut self, id: TrackId, (callee, caller): (Callee, Option<Caller>)) {
        let track = id.0 as usize;
        let (parent, depth) = match self.open.get(track).map(Vec::as_slice) {
            Some(open @ [.., caller]) => (*caller, open.len()),
            _ => (self.root(id), 0),
        };
        // The recorded caller called it, whether or not the caller's own call is in the trace.
        let caller = caller.map(|caller| Frame::Call(Callee::Function(caller.function)));
        let parent = match caller {
            Some(caller) if depth < DEEPEST && self.node(parent).frame != caller => {
                self.child(parent, caller)
            }
            _ => parent,
        };
        let node = if depth < DEEPEST {
            self.child(parent, Frame::Call(callee))
        } else if self.node(parent).frame == Frame::Deeper {
            parent
        } else {
            self.child(parent, Frame::Deeper)
        };
        if let Some(open) = self.open.get_mut(track) {
            open.push(node);
        }
    }

    /// The node below which a track's stacks begin.
    #[inline(never)]
    fn root(&mut self, track: TrackId) -> NodeId {
        let index = track.0 as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, Vec::new);
        }
        let (space, thread) = self.tracks.get(index).copied().unwrap_or_default();
        let space = self.child(ROOT, Frame::Space(space));
        // The stacks of an interrupt begin with its name anyway.
        if self.thread_roots && thread {
            self.child(space, Frame::Track(track))
        } else {
            space
        }
    }

    /// `in_order`: no clock of the source is ever ahead. Inlined, because most of an end is constant on the straight
    /// path.
    #[inline(always)]
    fn end(&mut self, end: &End, in_order: bool) {
        let open = self.open.get_mut(end.track.0 as usize);
        let Some(id) = open.and_then(Vec::pop) else {
            return;
        };
        if !in_order {
            self.ended.add(end.call, id);
        }
        let sure = end.sure.unwrap_or_default();
        let within = self.recursion.end(end, sure);
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.count += 1;
            node.self_time += end.sure_self.unwrap_or_default();
            node.total += sure.max(within);
            node.longest = node.longest.max(end.duration.unwrap_or_default());
            node.at_least |= end.is_at_least();
            node.without_end += u64::from(end.is_untimed());
        }
    }

    /// The child of a node for a frame; created if missing.
    #[inline]
    fn child(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        match self.edges.find(parent, frame.key()) {
            Some(id) => id,
            None => self.new_child(parent, frame),
        }
    }

    #[cold]
    fn new_child(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        // A machine has no memory for 2^32 nodes.
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(Node::new(frame, parent));
        self.edges.add(parent, frame.key(), id);
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children.push(id);
        }
        id
    }
}
