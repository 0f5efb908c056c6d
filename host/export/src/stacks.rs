//! Stacks of calls, added up: what flame graphs and folded files are made of.
//!
//! Two calls of one function from the same callers are one node of a tree, and the node holds the
//! time that they spent in themselves. The tree grows with the number of different stacks; nothing
//! of the trace itself is kept. Names are looked up at the end, so one that comes late holds for all.
//!
//! The time is that of [`End::sure_self`](kymo_analysis::calls::End::sure_self): without what the calls made by it took, without
//! preemption, and without interrupts, which have stacks of their own. So everything adds up to the
//! time that was seen, and to the self time of the profile. Calls that had not ended when the trace did
//! count up to there; where events were lost, only what is certain counts. Exits without a begin have no
//! time.

use std::io;

use kymo_analysis::calls::{CallId, Callee, Step, TrackId};
use kymo_analysis::replay::{Observer, Origin, Replay};
use kymo_event::{Batch, Duration, SpaceId, TraceInfo};

use crate::Summary;
use crate::format::Context;
use crate::names::{self, Names};
use crate::tracks::Tracks;

/// How many calls of a stack are told apart; what is called from there on counts as one frame,
/// [`DEEPER`]. A recursion that ran away would else take space by the square of its depth.
const DEEPEST: usize = 1 << 10;

/// The frame that stands for all calls deeper than [`DEEPEST`].
const DEEPER: &str = "(deeper calls)";

/// The node of a tree, by its number.
type NodeId = u32;

/// How many calls that ended are remembered: clocks run ahead for some hundreds of events.
const ENDED: usize = 1 << 12;

/// Above all stacks.
const ROOT: NodeId = 0;

/// What a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    /// What is above all stacks.
    Root,
    /// The space of a track: shown where there are several.
    Space(SpaceId),
    /// A thread, where stacks begin with it.
    Track(TrackId),
    /// A call.
    Call(Callee),
    /// All calls deeper than [`DEEPEST`].
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
#[derive(Debug)]
struct Node {
    frame: Frame,
    /// The time that the innermost frame itself took.
    self_ns: u64,
    children: Vec<NodeId>,
}

impl Node {
    const fn new(frame: Frame) -> Self {
        Self {
            frame,
            self_ns: 0,
            children: Vec::new(),
        }
    }
}

/// The tree of stacks, while events come in.
pub(crate) struct Stacks<'a> {
    replay: Replay,
    complete: bool,
    names: Names<'a>,
    tree: Tree,
}

impl<'a> Stacks<'a> {
    /// No stacks yet.
    pub fn new(info: &TraceInfo, context: Context<'a>) -> Self {
        Self {
            replay: context.replay(info),
            complete: false,
            names: Names::new(context),
            tree: Tree {
                thread_roots: context.options.thread_roots,
                tracks: Tracks::default(),
                nodes: vec![Node::new(Frame::Root)],
                edges: Edges::default(),
                open: Vec::new(),
                ended: Ended::default(),
            },
        }
    }

    /// Takes the next events.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) {
        let tree = &mut self.tree;
        let mut growing = Growing { tree, info };
        self.complete = !self.replay.batch_to(info, batch, &mut growing);
    }

    /// Whether the window is over.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Takes the end of the trace.
    pub fn finish(&mut self, info: &TraceInfo, summary: &mut Summary) {
        let tree = &mut self.tree;
        self.replay.finish_to(info, &mut Growing { tree, info });
        summary.count_calls(&self.replay);
    }

    /// Gives every stack that took time to `line`: its frames, outermost first, separated by
    /// semicolons, and its nanoseconds. Stacks with the same beginning come together, and the order
    /// is that of the names, whatever the order in the trace.
    ///
    /// A call that with all that it called took less than one part in `parts` of the whole is not
    /// given, and its time is that of its caller, if it has one; with 0, all are given.
    ///
    /// # Errors
    /// Those of `line`.
    pub fn lines(
        &mut self,
        info: &TraceInfo,
        parts: u64,
        mut line: impl FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let tree = &self.tree;
        let names = tree.names(info, &mut self.names);
        let name = |id: NodeId| names.get(id as usize).map_or("", |name| name.as_str());
        let totals = tree.totals();
        let total = |id: NodeId| totals.get(id as usize).copied().unwrap_or(0);
        let smallest = total(ROOT).checked_div(parts).unwrap_or(0);
        let mut path = String::new();
        // Not by recursion: stacks can be deeper than ours. Each entry is a node and how much of
        // the path stands above it.
        let mut rest = vec![(ROOT, 0)];
        while let Some((id, above)) = rest.pop() {
            let Some(node) = tree.nodes.get(id as usize) else {
                continue;
            };
            path.truncate(above);
            let frame = name(id);
            if !frame.is_empty() {
                if above > 0 {
                    path.push(';');
                }
                path.push_str(frame);
            }
            // An outermost call has no caller that could take its time.
            let above_all = matches!(node.frame, Frame::Root | Frame::Space(_));
            let keep = |id: &&NodeId| total(**id) >= smallest || above_all;
            let (mut children, small): (Vec<NodeId>, Vec<NodeId>) =
                node.children.iter().partition(keep);
            let ns = small
                .iter()
                .fold(node.self_ns, |ns, id| ns.saturating_add(total(*id)));
            if ns > 0 {
                line(&path, ns)?;
            }
            children.sort_by(|a, b| name(*b).cmp(name(*a)).then(b.cmp(a)));
            rest.extend(children.into_iter().map(|child| (child, path.len())));
        }
        Ok(())
    }
}

/// A tree that takes steps.
struct Growing<'t> {
    tree: &'t mut Tree,
    info: &'t TraceInfo,
}

impl Observer for Growing<'_> {
    #[inline(always)]
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        self.tree.step(self.info, &step);
    }
}

/// The tree, and where every track is in it.
struct Tree {
    thread_roots: bool,
    tracks: Tracks,
    nodes: Vec<Node>,
    /// The child of a node that has a frame.
    edges: Edges,
    /// The open calls of every track, by [`TrackId`], outermost first.
    open: Vec<Vec<NodeId>>,
    /// A clock may turn out to have been ahead in a call that has ended.
    ended: Ended,
}

impl Tree {
    #[inline(always)]
    fn step(&mut self, info: &TraceInfo, step: &Step<'_>) {
        match step {
            Step::Begin(begin) => self.begin(begin.track, begin.callee),
            // An orphan has no begin, so none of the open calls is its.
            Step::End(end) if end.begin.is_some() => {
                self.end(end.track, end.call, end.sure_self.unwrap_or_default());
            }
            Step::Track { track, info: of } => {
                self.tracks.update(info, *track, of);
            }
            Step::ClockAhead { call, by, .. } => {
                let node = self.ended.find(*call);
                if let Some(node) = node.and_then(|id| self.nodes.get_mut(id as usize)) {
                    node.self_ns = node.self_ns.saturating_sub(by.0);
                }
            }
            // Nothing else takes time.
            _ => {}
        }
    }

    #[inline]
    fn begin(&mut self, id: TrackId, callee: Callee) {
        let track = id.0 as usize;
        let (parent, depth) = match self.open.get(track).map(Vec::as_slice) {
            Some(open @ [.., caller]) => (*caller, open.len()),
            _ => (self.root(id), 0),
        };
        let node = if depth < DEEPEST {
            self.child(parent, Frame::Call(callee))
        } else if self.frame_of(parent) == Some(Frame::Deeper) {
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
        let shown = self.tracks.show(track);
        let (space, thread) = shown.map_or((SpaceId(0), false), |(shown, _)| {
            (shown.space, shown.thread)
        });
        let space = self.child(ROOT, Frame::Space(space));
        // The stacks of an interrupt begin with its name anyway.
        if self.thread_roots && thread {
            self.child(space, Frame::Track(track))
        } else {
            space
        }
    }

    #[inline]
    fn end(&mut self, track: TrackId, call: CallId, time: Duration) {
        let open = self.open.get_mut(track.0 as usize);
        let Some(id) = open.and_then(Vec::pop) else {
            return;
        };
        self.ended.add(call, id);
        if let Some(node) = self.nodes.get_mut(id as usize) {
            node.self_ns = node.self_ns.saturating_add(time.0);
        }
    }

    /// What every node took with all that it called, by [`NodeId`].
    fn totals(&self) -> Vec<u64> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.self_ns).collect();
        // A child is always made after its parent, so from the last to the first each total is
        // complete when it is added to the one above.
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let called = node.children.iter();
            let called = called.filter_map(|child| totals.get(*child as usize).copied());
            let sum = called.fold(node.self_ns, u64::saturating_add);
            if let Some(total) = totals.get_mut(at) {
                *total = sum;
            }
        }
        totals
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
        self.nodes.push(Node::new(frame));
        self.edges.add(parent, frame.key(), id);
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children.push(id);
        }
        id
    }

    #[inline]
    fn frame_of(&self, node: NodeId) -> Option<Frame> {
        self.nodes.get(node as usize).map(|node| node.frame)
    }

    /// How every node is shown, by [`NodeId`]; with nothing for those that are not.
    fn names(&self, info: &TraceInfo, names: &mut Names<'_>) -> Vec<String> {
        let spaces = self
            .nodes
            .iter()
            .filter(|node| matches!(node.frame, Frame::Space(_)));
        let several = spaces.count() > 1;
        let frames = self.nodes.iter().map(|node| match node.frame {
            Frame::Space(space) if several => names::space(info, space),
            Frame::Root | Frame::Space(_) => String::new(),
            Frame::Track(track) => self
                .tracks
                .get(track)
                .map_or_else(String::new, |shown| shown.title.clone()),
            Frame::Call(callee) => names.name(info, callee).to_owned(),
            Frame::Deeper => DEEPER.to_owned(),
        });
        // Semicolons and line feeds mean something in the format; other control characters are a danger to
        // terminals, and no XML.
        let special = |c: char| c == ';' || c.is_control();
        let plain = |c: char| match c {
            ';' => ':',
            c if c.is_control() => ' ',
            c => c,
        };
        frames
            .map(|frame| match frame.contains(special) {
                true => frame.chars().map(plain).collect(),
                false => frame,
            })
            .collect()
    }
}

/// The calls that ended lately, and their nodes.
#[derive(Debug, Default)]
struct Ended {
    /// A ring, once it is full.
    calls: Vec<(CallId, NodeId)>,
    next: usize,
}

impl Ended {
    #[inline]
    fn add(&mut self, call: CallId, node: NodeId) {
        match self.calls.get_mut(self.next) {
            Some(place) => *place = (call, node),
            None => self.calls.push((call, node)),
        }
        self.next = (self.next + 1) % ENDED;
    }

    fn find(&self, call: CallId) -> Option<NodeId> {
        let found = self.calls.iter().find(|(ended, _)| *ended == call);
        found.map(|(_, node)| *node)
    }
}

/// Child of a node by frame: a hash table with open addressing. It is read at every begin, which
/// costs a fraction of what a map of the standard library does. (A trace that is made to collide slows down only
/// its own reader.)
#[derive(Debug, Default)]
struct Edges {
    /// A power of two of them, at most half of them taken; the others lead to [`ROOT`], which is no
    /// child.
    table: Vec<Edge>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    /// [`Frame::key`].
    frame: u64,
    from: NodeId,
    to: NodeId,
}

impl Edge {
    const NONE: Self = Self {
        frame: 0,
        from: ROOT,
        to: ROOT,
    };

    /// Where the search for it begins in a table of so many.
    #[inline(always)]
    fn place(frame: u64, from: NodeId, size: usize) -> usize {
        let mixed = (frame ^ u64::from(from) << 34).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (size.wrapping_sub(1))
    }
}

impl Edges {
    #[inline]
    fn find(&self, from: NodeId, frame: u64) -> Option<NodeId> {
        let size = self.table.len();
        let mut place = Edge::place(frame, from, size);
        // There is a free one, so this ends.
        while let Some(edge) = self.table.get(place) {
            if edge.frame == frame && edge.from == from && edge.to != ROOT {
                return Some(edge.to);
            }
            if edge.to == ROOT {
                return None;
            }
            place = (place + 1) & (size - 1);
        }
        None
    }

    fn add(&mut self, from: NodeId, frame: u64, to: NodeId) {
        if 2 * self.taken >= self.table.len() {
            let size = (2 * self.table.len()).max(64);
            let old = std::mem::replace(&mut self.table, vec![Edge::NONE; size]);
            for edge in old.into_iter().filter(|edge| edge.to != ROOT) {
                self.put(edge);
            }
        }
        self.taken += 1;
        self.put(Edge { frame, from, to });
    }

    fn put(&mut self, edge: Edge) {
        let size = self.table.len();
        let mut place = Edge::place(edge.frame, edge.from, size);
        while let Some(found) = self.table.get_mut(place) {
            if found.to == ROOT {
                *found = edge;
                return;
            }
            place = (place + 1) & (size - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_found_again_and_no_others() {
        let mut edges = Edges::default();
        let mut next = 1;
        let frames = |n: u32| {
            [
                Frame::Call(Callee::Function(kymo_event::FunctionId(n))),
                Frame::Call(Callee::Interrupt(kymo_event::InterruptId(n))),
                Frame::Track(TrackId(n)),
                Frame::Space(SpaceId(n)),
            ]
        };
        let mut all = vec![(0, Frame::Deeper), (0, Frame::Call(Callee::Unknown))];
        for from in (0..40).chain([u32::MAX]) {
            for n in (0..40).chain([u32::MAX]) {
                all.extend(frames(n).map(|frame| (from, frame)));
            }
        }
        for (from, frame) in &all {
            assert_eq!(edges.find(*from, frame.key()), None, "{from} {frame:?}");
            edges.add(*from, frame.key(), next);
            next += 1;
        }
        for ((from, frame), to) in all.iter().zip(1..) {
            assert_eq!(edges.find(*from, frame.key()), Some(to));
        }
    }
}
