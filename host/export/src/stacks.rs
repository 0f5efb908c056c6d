//! Summed call stacks, for flame graphs and folded files.
//!
//! The stacks are those of the [call tree](kymo_analysis::call_tree), with the self time of their innermost call. Names
//! are looked up at the end, so a name that arrives late applies to all stacks.

use std::io;

use kymo_analysis::call_tree::{CallTree, Frame, NodeId, ROOT};
use kymo_analysis::calls::Step;
use kymo_analysis::replay::{Observer, Origin, Replay};
use kymo_analysis::titles;
use kymo_event::{Batch, TraceInfo};

use crate::Summary;
use crate::format::Context;
use crate::names::Names;
use crate::tracks::Tracks;

/// Frame for all calls that are deeper than the tree.
const DEEPER: &str = "(deeper calls)";

/// The tree of stacks while it is built.
pub(crate) struct Stacks<'a> {
    replay: Replay,
    complete: bool,
    names: Names<'a>,
    tree: CallTree,
    tracks: Tracks,
}

impl<'a> Stacks<'a> {
    /// Creates an empty tree.
    pub fn new(info: &TraceInfo, context: Context<'a>) -> Self {
        Self {
            replay: context.replay(info),
            complete: false,
            names: Names::new(context),
            tree: CallTree::new(context.options.thread_roots),
            tracks: Tracks::default(),
        }
    }

    /// Processes the next events.
    pub fn batch(&mut self, info: &TraceInfo, batch: &Batch) {
        let mut growing = Growing {
            tree: &mut self.tree,
            tracks: &mut self.tracks,
            info,
        };
        self.complete = !self.replay.batch_to(info, batch, &mut growing);
    }

    /// Whether the window is over.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Processes the end of the trace.
    pub fn finish(&mut self, info: &TraceInfo, summary: &mut Summary) {
        let mut growing = Growing {
            tree: &mut self.tree,
            tracks: &mut self.tracks,
            info,
        };
        self.replay.finish_to(info, &mut growing);
        summary.count_calls(&self.replay);
    }

    /// Passes every stack with a time to `line`: its frames, outermost first, separated by semicolons, and its
    /// nanoseconds. Stacks with a common prefix are adjacent, in the order of the names, whatever the order in the
    /// trace.
    ///
    /// A call whose total time is less than one part in `parts` of the whole is omitted, and its time is added to its
    /// caller's, if it has one; 0 omits none.
    ///
    /// # Errors
    /// Those of `line`.
    pub fn lines(
        &mut self,
        info: &TraceInfo,
        parts: u64,
        mut line: impl FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let names = self.frame_names(info);
        let tree = &self.tree;
        let name = |id: NodeId| names.get(id as usize).map_or("", |name| name.as_str());
        let totals = tree.sums();
        let total = |id: NodeId| totals.get(id as usize).map_or(0, |total| total.0);
        let smallest = total(ROOT).checked_div(parts).unwrap_or(0);
        let mut path = String::new();
        // Iterative, because stacks can be deeper than ours. Each entry is a node and the length of the path above it.
        let mut rest = vec![(ROOT, 0)];
        while let Some((id, above)) = rest.pop() {
            let node = tree.node(id);
            path.truncate(above);
            let frame = name(id);
            if !frame.is_empty() {
                if above > 0 {
                    path.push(';');
                }
                path.push_str(frame);
            }
            // An outermost call has no caller to which its time could be added.
            let above_all = matches!(node.frame, Frame::Root | Frame::Space(_));
            let keep = |id: &&NodeId| total(**id) >= smallest || above_all;
            let (mut children, small): (Vec<NodeId>, Vec<NodeId>) =
                node.children.iter().partition(keep);
            let ns = small
                .iter()
                .fold(node.self_time.0, |ns, id| ns.saturating_add(total(*id)));
            if ns > 0 {
                line(&path, ns)?;
            }
            children.sort_by(|a, b| name(*b).cmp(name(*a)).then(b.cmp(a)));
            rest.extend(children.into_iter().map(|child| (child, path.len())));
        }
        Ok(())
    }

    /// The label of every node, by [`NodeId`]; empty for omitted ones.
    fn frame_names(&mut self, info: &TraceInfo) -> Vec<String> {
        let (nodes, tracks, names) = (self.tree.nodes(), &mut self.tracks, &mut self.names);
        let spaces = nodes
            .iter()
            .filter(|node| matches!(node.frame, Frame::Space(_)));
        let several = spaces.count() > 1;
        let frames = nodes.iter().map(|node| match node.frame {
            Frame::Space(space) if several => titles::space(info, space),
            Frame::Root | Frame::Space(_) => String::new(),
            Frame::Track(track) => tracks
                .show(track)
                .map_or_else(String::new, |(shown, _)| shown.title.clone()),
            Frame::Call(callee) => names.name(info, callee).to_owned(),
            Frame::Deeper => DEEPER.to_owned(),
        });
        // Semicolons and line feeds are syntax of the format; other control characters are dangerous to terminals and
        // invalid in XML.
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

/// Builds a tree from steps, with its tracks.
struct Growing<'t> {
    tree: &'t mut CallTree,
    tracks: &'t mut Tracks,
    info: &'t TraceInfo,
}

impl Observer for Growing<'_> {
    #[inline(always)]
    fn step(&mut self, _: Option<Origin>, step: Step<'_>) {
        if let Step::Track { track, info: of } = &step {
            self.tracks.update(self.info, *track, of);
        }
        self.tree.step(self.info, &step);
    }
}
