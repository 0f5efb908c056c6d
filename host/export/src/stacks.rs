//! Stacks of calls, added up: what flame graphs and folded files are made of.
//!
//! Two calls of one function from the same callers are one node of a tree, and the node holds the
//! time that they spent in themselves. The tree grows with the number of different stacks; nothing
//! of the trace itself is kept.
//!
//! The time is that of [`End::self_time`]: without what the calls made by it took, without
//! preemption, and without interrupts, which have stacks of their own. So everything adds up to the
//! time that was seen, and for calls that ended to the self time of the profile. Calls that had not
//! ended when the trace did count up to there. Exits without a begin have no time.

use std::collections::{HashMap, VecDeque};
use std::io;

use kymo_analysis::calls::{Begin, CallId, Calls, End, Step, TrackId, TrackKind};
use kymo_event::Event;

use crate::Summary;
use crate::format::Context;
use crate::lanes::Lanes;
use crate::names::{NameId, Names};

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
    /// A thread, where stacks begin with it.
    Track(TrackId),
    /// A call.
    Call(NameId),
    /// All calls deeper than [`DEEPEST`].
    Deeper,
}

/// A stack, by its innermost frame.
#[derive(Debug)]
struct Node {
    frame: Frame,
    /// The time that the innermost frame itself took.
    self_ns: u64,
    children: Vec<NodeId>,
}

/// The tree of stacks, while events come in.
pub(crate) struct Stacks<'a> {
    calls: Calls,
    tree: Tree<'a>,
}

impl<'a> Stacks<'a> {
    /// No stacks yet.
    pub fn new(context: Context<'a>) -> Self {
        Self {
            calls: Calls::new(context.info, Default::default()),
            tree: Tree {
                thread_roots: context.options.thread_roots,
                names: Names::new(context),
                lanes: Lanes::default(),
                nodes: vec![Node {
                    frame: Frame::Root,
                    self_ns: 0,
                    children: Vec::new(),
                }],
                places: HashMap::new(),
                tracks: Vec::new(),
                ended: VecDeque::new(),
            },
        }
    }

    /// Takes the next event.
    pub fn event(&mut self, event: &Event) {
        self.calls.push(event, &mut |step| self.tree.step(&step));
    }

    /// Takes the end of the trace.
    pub fn finish(&mut self, summary: &mut Summary) {
        self.calls.finish(&mut |step| self.tree.step(&step));
        summary.count_calls(self.calls.counts());
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
        &self,
        parts: u64,
        mut line: impl FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let tree = &self.tree;
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
            if node.frame != Frame::Root {
                if above > 0 {
                    path.push(';');
                }
                // The only two characters that mean something in the format.
                path.extend(tree.frame(node.frame).chars().map(|c| match c {
                    ';' => ':',
                    '\n' | '\r' => ' ',
                    c => c,
                }));
            }
            // What is called by nobody has no caller to take its time.
            let keep = |id: &&NodeId| total(**id) >= smallest || node.frame == Frame::Root;
            let (mut children, small): (Vec<NodeId>, Vec<NodeId>) =
                node.children.iter().partition(keep);
            let ns = small
                .iter()
                .fold(node.self_ns, |ns, id| ns.saturating_add(total(*id)));
            if ns > 0 {
                line(&path, ns)?;
            }
            let name = |id: &NodeId| tree.nodes.get(*id as usize).map(|n| tree.frame(n.frame));
            children.sort_by(|a, b| name(b).cmp(&name(a)).then(b.cmp(a)));
            rest.extend(children.into_iter().map(|child| (child, path.len())));
        }
        Ok(())
    }
}

/// The tree, and where every track is in it.
struct Tree<'a> {
    thread_roots: bool,
    names: Names<'a>,
    lanes: Lanes,
    nodes: Vec<Node>,
    /// The child of a node that has a frame.
    places: HashMap<(NodeId, Frame), NodeId>,
    /// The open calls of every track, by [`TrackId`], outermost first.
    tracks: Vec<Vec<NodeId>>,
    /// The calls that ended lately, the latest last: a clock may turn out to have been ahead in them.
    ended: VecDeque<(CallId, NodeId)>,
}

impl Tree<'_> {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Track { track, info } => {
                if let (TrackKind::Interrupt { irq, .. }, Some(name)) = (info.kind, &info.name) {
                    self.names.learn_interrupt(irq, name);
                }
                self.lanes.update(*track, info);
            }
            Step::Begin(begin) => self.begin(begin),
            Step::End(end) => self.end(end),
            Step::ClockAhead { call, by, .. } => {
                let found = self.ended.iter().rev().find(|(ended, _)| ended == call);
                let node = found.and_then(|(_, id)| self.nodes.get_mut(*id as usize));
                if let Some(node) = node {
                    node.self_ns = node.self_ns.saturating_sub(by.0);
                }
            }
            // Nothing else takes time.
            _ => {}
        }
    }

    fn begin(&mut self, begin: &Begin) {
        let name = self.names.id(begin.callee);
        let track = begin.track.0 as usize;
        if self.tracks.len() <= track {
            self.tracks.resize_with(track + 1, Vec::new);
        }
        let open = self.tracks.get(track).map_or(0, Vec::len);
        let parent = match self
            .tracks
            .get(track)
            .and_then(|stack| stack.last().copied())
        {
            Some(caller) => caller,
            None if self.thread_roots && self.is_thread(begin.track) => {
                self.child(ROOT, Frame::Track(begin.track))
            }
            None => ROOT,
        };
        let node = if open < DEEPEST {
            self.child(parent, Frame::Call(name))
        } else if self.frame_of(parent) == Some(Frame::Deeper) {
            parent
        } else {
            self.child(parent, Frame::Deeper)
        };
        if let Some(stack) = self.tracks.get_mut(track) {
            stack.push(node);
        }
    }

    fn end(&mut self, end: &End) {
        // An orphan has no begin, so none of the open calls is its.
        if end.begin.is_none() {
            return;
        }
        let stack = self.tracks.get_mut(end.track.0 as usize);
        let Some(id) = stack.and_then(Vec::pop) else {
            return;
        };
        if self.ended.len() >= ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((end.call, id));
        let node = self.nodes.get_mut(id as usize);
        if let (Some(node), Some(time)) = (node, end.self_time) {
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
    fn child(&mut self, parent: NodeId, frame: Frame) -> NodeId {
        if let Some(&id) = self.places.get(&(parent, frame)) {
            return id;
        }
        // As many nodes as a u32 counts would need more memory than a machine has.
        let id = NodeId::try_from(self.nodes.len()).unwrap_or(NodeId::MAX);
        self.nodes.push(Node {
            frame,
            self_ns: 0,
            children: Vec::new(),
        });
        self.places.insert((parent, frame), id);
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            parent.children.push(id);
        }
        id
    }

    /// Whether a track is a thread. The stacks of an interrupt begin with its name anyway.
    fn is_thread(&mut self, track: TrackId) -> bool {
        let lane = self.lanes.show(track);
        lane.is_some_and(|(lane, _)| lane.thread)
    }

    fn frame_of(&self, node: NodeId) -> Option<Frame> {
        self.nodes.get(node as usize).map(|node| node.frame)
    }

    /// How a frame is shown.
    fn frame(&self, frame: Frame) -> &str {
        match frame {
            Frame::Root => "",
            Frame::Track(track) => self.lanes.get(track).map_or("", |lane| &lane.title),
            Frame::Call(name) => self.names.get(name),
            Frame::Deeper => DEEPER,
        }
    }
}
