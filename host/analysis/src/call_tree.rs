//! The call tree: calls of one function from the same callers added up, for flame graphs and for tables of callers
//! and callees.
//!
//! A node is a stack of calls. It holds how often its innermost function was called from there, the time that this
//! took in itself, and its longest call. The tree grows with the number of different stacks; nothing of the trace
//! itself is kept.
//!
//! The time is that of [`End::sure_self`](crate::calls::End::sure_self): without what the calls made by it took,
//! without preemption, and without interrupts, which have stacks of their own. So everything adds up to the time that
//! was seen, and to the self time of the [profile](crate::profile). Calls that had not ended when the trace did count
//! up to there; where events were lost, only what is certain counts. Exits without a begin have no place in the tree
//! ([`CallTree::orphans`] counts them).

mod edges;
mod views;

use kymo_event::{Caller, Duration, SpaceId, TraceInfo};

use crate::calls::{Callee, End, Step, TrackId, TrackInfo};
use crate::ended::Ended;
use crate::profile::is_loss;
use crate::recursion::Recursion;
use edges::Edges;
pub use views::{Edge, Group, Sum, View};

/// How many calls of a stack are distinguished; what is called from there on is one frame, [`Frame::Deeper`]. A recursion
/// that ran away would else take space by the square of its depth.
pub const DEEPEST: usize = 1 << 10;

/// The number of a node.
pub type NodeId = u32;

/// The node above all stacks.
pub const ROOT: NodeId = 0;

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// What is above all stacks.
    Root,
    /// The space of a track.
    Space(SpaceId),
    /// A thread, where stacks begin with it.
    Track(TrackId),
    /// A call.
    Call(Callee),
    /// All calls that are deeper than the tree.
    Deeper,
}

impl Frame {
    /// A number that no other frame has.
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

/// A stack, by its innermost frame.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Node {
    /// The innermost frame.
    pub frame: Frame,
    /// The stack without it; that of the root is the root.
    pub parent: NodeId,
    /// The stacks that are one call deeper, in the order of first sight.
    pub children: Vec<NodeId>,
    /// How often it was called from there.
    pub count: u64,
    /// The time that the innermost frame itself took.
    pub self_time: Duration,
    /// The time that it took with its callees, also with those that are not shown. A lower bound: of a call that was open when
    /// events were lost, the callees since then may be another one's.
    pub total: Duration,
    /// The longest call from there.
    pub longest: Duration,
    /// Whether the times are lower bounds: of some call not all was seen, or is certain.
    pub at_least: bool,
    /// Calls of which the source does not tell when they ended: they are in no time.
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

/// The tree of stacks, while steps come in.
#[derive(Debug)]
pub struct CallTree {
    thread_roots: bool,
    /// The spaces of tracks, and whether they are threads, by [`TrackId`].
    tracks: Vec<(SpaceId, bool)>,
    nodes: Vec<Node>,
    edges: Edges,
    /// The open calls of every track, by [`TrackId`], outermost first.
    open: Vec<Vec<NodeId>>,
    /// A clock may turn out to have been ahead in a call that has ended.
    ended: Ended<NodeId>,
    /// The times of recursive calls that have ended.
    recursion: Recursion<Duration>,
    orphans: u64,
    late: u64,
}

impl CallTree {
    /// No stacks yet. `thread_roots`: whether stacks of threads begin with the thread, so that threads are distinguished.
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

    /// Takes a step.
    #[inline(always)]
    pub fn step(&mut self, info: &TraceInfo, step: &Step<'_>) {
        match step {
            Step::Begin(begin) => self.begin(begin.track, (begin.callee, begin.caller)),
            // An orphan has no begin, so none of the open calls is its.
            Step::End(end) if end.begin.is_some() => {
                self.end(end, info.in_order);
            }
            Step::End(end) => {
                self.orphans += 1;
                self.late += u64::from(end.wall.is_some());
            }
            Step::Track { track, info: of } => self.track(info, *track, of),
            Step::ClockAhead { call, by, .. } => {
                let node = self.ended.find(*call);
                if let Some(node) = node.and_then(|id| self.nodes.get_mut(id as usize)) {
                    node.self_time = node.self_time - *by;
                }
            }
            Step::Event { event, .. } if is_loss(*event) => self.recursion.lose(),
            // Nothing else takes time.
            _ => {}
        }
    }

    /// All nodes, by [`NodeId`]. A node comes after its parent.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// A node; the root if there is none of this number.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id as usize).unwrap_or(&self.nodes[0])
    }

    /// Calls that are deeper than the tree tells apart: those of [`Frame::Deeper`].
    pub fn deeper(&self) -> u64 {
        let nodes = self.nodes.iter();
        let deeper = nodes.filter(|node| node.frame == Frame::Deeper);
        deeper.map(|node| node.count).sum()
    }

    /// Exits whose begin nobody saw.
    pub const fn orphans(&self) -> u64 {
        self.orphans
    }

    /// Of these, calls whose source states how long they took: what they called is in the tree, but not below them.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// The time of every node with those below it, by [`NodeId`]: what the calls in the tree took themselves.
    pub fn sums(&self) -> Vec<Duration> {
        let mut sums: Vec<Duration> = self.nodes.iter().map(|node| node.self_time).collect();
        // From the last to the first each sum is complete when it is added to the one above.
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
        // It is called from there, whether its own call is in the trace or not.
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

    /// The node below which the stacks of a track stand.
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

    /// `in_order`: no clock of the source is ever ahead. Inlined, because most of an end is a constant on the straight path.
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

    /// The child of a node for a frame, made if it is not there.
    #[inline]
    fn child(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        match self.edges.find(parent, frame.key()) {
            Some(id) => id,
            None => self.new_child(parent, frame),
        }
    }

    #[cold]
    fn new_child(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        // As many nodes as a u32 counts would need more memory than a machine has.
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(Node::new(frame, parent));
        self.edges.add(parent, frame.key(), id);
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children.push(id);
        }
        id
    }
}
