//! Views of a call tree: downward from callers to callees, upward from callees to callers, and by pairs of both.

use std::collections::HashMap;
use std::hash::Hash;

use kymo_event::Duration;

use super::{CallTree, Frame, NodeId, ROOT};
use crate::calls::Callee;

/// Stacks that a view shows as one line.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Group {
    /// The frame of the line.
    pub frame: Frame,
    /// The number of its calls; in an upward view, of calls of the callee that the view begins with.
    pub count: u64,
    /// The time of these calls with their callees.
    pub total: Duration,
    /// The time of the whole subtree. Exceeds `total` where events were lost and callees may belong to other calls.
    pub below: Duration,
    /// The self time of these calls.
    pub self_time: Duration,
    /// The longest of these calls.
    pub longest: Duration,
    /// Whether the times are lower bounds.
    pub at_least: bool,
    /// The number of its calls, and of those below it, whose end the source does not record.
    pub without_end: u64,
    /// The stacks, each with that of the callee whose time counts.
    stacks: Vec<(NodeId, NodeId)>,
    /// Whether `total` is self time.
    by_self: bool,
}

/// A call of one function by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Edge {
    /// The calling function.
    pub caller: Callee,
    /// The called function.
    pub callee: Callee,
    /// The number of calls.
    pub count: u64,
    /// The callee's time under this caller, with its callees; recursion counts once.
    pub total: Duration,
    /// The longest of these calls.
    pub longest: Duration,
}

/// Sums of calls with the same property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sum {
    /// The number of calls.
    pub count: u64,
    /// Their time with their callees; a call within another one of the same property counts once.
    pub total: Duration,
    /// Their self time.
    pub self_time: Duration,
    /// The longest call.
    pub longest: Duration,
}

/// A call tree with the total of each stack.
#[derive(Debug)]
pub struct View<'t> {
    tree: &'t CallTree,
    totals: Vec<Duration>,
    /// The certain times of nodes with their subtrees.
    below: Vec<Duration>,
    /// Whether totals are lower bounds.
    at_least: Vec<bool>,
    /// [`Group::without_end`].
    without_end: Vec<u64>,
}

impl<'t> View<'t> {
    /// A view of a tree.
    pub fn new(tree: &'t CallTree) -> Self {
        // Calls have totals of their own, which include callees that the tree does not have; all other nodes use the
        // sum of the subtree.
        let nodes = tree.nodes();
        let mut below: Vec<Duration> = nodes.iter().map(|node| node.self_time).collect();
        let mut totals = below.clone();
        let mut at_least: Vec<bool> = nodes.iter().map(|node| node.at_least).collect();
        let mut without_end: Vec<u64> = nodes.iter().map(|node| node.without_end).collect();
        for (at, node) in nodes.iter().enumerate().skip(1).rev() {
            if let Frame::Call(_) = node.frame {
                below[at] = below[at].max(node.total);
                // Callers that are not in the trace themselves have no calls.
                totals[at] = match node.count {
                    0 => below[at],
                    _ => node.total,
                };
            }
            let parent = node.parent as usize;
            let of_node = below[at];
            below[parent] += of_node;
            totals[parent] = below[parent];
            let calls = without_end[at];
            without_end[parent] += calls;
            if !matches!(nodes[parent].frame, Frame::Call(_)) {
                let of_call = at_least[at];
                at_least[parent] |= of_call;
            }
        }
        Self {
            tree,
            totals,
            below,
            at_least,
            without_end,
        }
    }

    /// The tree.
    pub const fn tree(&self) -> &'t CallTree {
        self.tree
    }

    fn total(&self, node: NodeId) -> Duration {
        self.totals.get(node as usize).copied().unwrap_or_default()
    }

    fn below(&self, node: NodeId) -> Duration {
        self.below.get(node as usize).copied().unwrap_or_default()
    }

    /// The self time of all calls of a frame at a node and below it.
    fn self_below(&self, node: NodeId, frame: Frame) -> Duration {
        let (mut sum, mut rest) = (Duration(0), vec![node]);
        while let Some(id) = rest.pop() {
            let node = self.tree.node(id);
            if node.frame == frame {
                sum += node.self_time;
            }
            rest.extend(&node.children);
        }
        sum
    }

    /// The outermost lines of a downward view: spaces if there are several, threads where stacks begin with them,
    /// else outermost calls. Sorted by time, longest first, as all lists below.
    pub fn roots(&self) -> Vec<Group> {
        let spaces = &self.tree.node(ROOT).children;
        match spaces.as_slice() {
            [only] => self.grouped(
                self.tree.node(*only).children.iter().map(|id| (*id, *id)),
                false,
            ),
            _ => self.grouped(spaces.iter().map(|id| (*id, *id)), false),
        }
    }

    /// The callees of a line's calls.
    pub fn callees(&self, group: &Group) -> Vec<Group> {
        let nodes = group.stacks.iter().map(|(at, _)| self.tree.node(*at));
        self.grouped(
            nodes.flat_map(|node| node.children.iter().map(|id| (*id, *id))),
            false,
        )
    }

    /// The first lines of an upward view: each function, by self time.
    pub fn leaves(&self) -> Vec<Group> {
        let stacks = (0..).zip(self.tree.nodes());
        let stacks = stacks.filter(|(_, node)| node.count > 0);
        self.grouped(stacks.map(|(id, _): (NodeId, _)| (id, id)), true)
    }

    /// The first lines of an upward view where functions are chosen: their outermost calls, by time with callees.
    pub fn calls_of(&self, chosen: impl Fn(Callee) -> bool) -> Vec<Group> {
        let mut found = Vec::new();
        let mut rest = vec![ROOT];
        while let Some(id) = rest.pop() {
            match self.tree.node(id).frame {
                Frame::Call(callee) if chosen(callee) => found.push((id, id)),
                _ => rest.extend(&self.tree.node(id).children),
            }
        }
        let mut groups = self.grouped(found.into_iter(), false);
        // Uses the better of two lower bounds, as the table of functions does.
        for group in groups.iter_mut().filter(|group| group.at_least) {
            let own = group
                .stacks
                .iter()
                .map(|(at, _)| self.self_below(*at, group.frame));
            group.total = group.total.max(own.fold(Duration(0), |sum, it| sum + it));
        }
        groups
    }

    /// The callers of a line's calls, in an upward view; empty for outermost calls. Their times are the parts of the
    /// line's time for which they were the callers.
    pub fn callers(&self, group: &Group) -> Vec<Group> {
        let above = group.stacks.iter().filter_map(|(at, of)| {
            let parent = self.tree.node(*at).parent;
            let is_call = matches!(
                self.tree.node(parent).frame,
                Frame::Call(_) | Frame::Deeper | Frame::Track(_)
            );
            is_call.then_some((parent, *of))
        });
        self.grouped(above, group.by_self)
    }

    /// Groups stacks by their frames, with self times if `by_self`.
    fn grouped(&self, stacks: impl Iterator<Item = (NodeId, NodeId)>, by_self: bool) -> Vec<Group> {
        let mut places: HashMap<Frame, usize> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        for (at, of) in stacks {
            let frame = self.tree.node(at).frame;
            let place = *places.entry(frame).or_insert(groups.len());
            if place == groups.len() {
                groups.push(Group {
                    frame,
                    count: 0,
                    total: Duration(0),
                    below: Duration(0),
                    self_time: Duration(0),
                    longest: Duration(0),
                    at_least: false,
                    without_end: 0,
                    stacks: Vec::new(),
                    by_self,
                });
            }
            let (group, node) = (&mut groups[place], self.tree.node(of));
            group.count += node.count;
            let (total, below) = match by_self {
                true => (node.self_time, node.self_time),
                false => (self.total(of), self.below(of)),
            };
            group.total += total;
            group.below += below;
            group.self_time += node.self_time;
            group.longest = group.longest.max(node.longest);
            group.at_least |= self.at_least.get(of as usize).is_some_and(|it| *it);
            group.without_end += match self.without_end.get(of as usize) {
                Some(calls) if !by_self => *calls,
                _ => node.without_end,
            };
            group.stacks.push((at, of));
        }
        // Without times, sorts by calls; equal ones stay in order of first appearance.
        groups.sort_by_key(|group| std::cmp::Reverse((group.total, group.without_end)));
        groups
    }

    /// All pairs of caller and callee, with their times.
    pub fn edges(&self) -> Vec<Edge> {
        let pair = |at: NodeId| {
            let node = self.tree.node(at);
            match (self.tree.node(node.parent).frame, node.frame) {
                (Frame::Call(caller), Frame::Call(callee)) => Some((caller, callee)),
                _ => None,
            }
        };
        let sums = self.sums(pair);
        let edge = |((caller, callee), sum): ((Callee, Callee), Sum)| Edge {
            caller,
            callee,
            count: sum.count,
            total: sum.total,
            longest: sum.longest,
        };
        sums.into_iter().map(edge).collect()
    }

    /// Sums calls by a property; those without one are skipped.
    pub fn by<K: Copy + Eq + Hash>(&self, key: impl Fn(Callee) -> Option<K>) -> Vec<(K, Sum)> {
        self.sums(|at| match self.tree.node(at).frame {
            Frame::Call(callee) => key(callee),
            _ => None,
        })
    }

    /// Sums nodes by a property, in order of first appearance.
    fn sums<K: Copy + Eq + Hash>(&self, key: impl Fn(NodeId) -> Option<K>) -> Vec<(K, Sum)> {
        let mut places: HashMap<K, usize> = HashMap::new();
        // The sums, each with the number of nodes with that property on the current stack.
        let mut sums: Vec<(K, Sum, u32)> = Vec::new();
        // Not recursive, because stacks can be deeper than ours. A node is visited again after all nodes below it.
        let mut rest = vec![(ROOT, None)];
        while let Some((id, done)) = rest.pop() {
            if let Some(place) = done {
                let sum: &mut (K, Sum, u32) = &mut sums[place];
                sum.2 -= 1;
                continue;
            }
            let node = self.tree.node(id);
            if let Some(key) = key(id) {
                let place = *places.entry(key).or_insert(sums.len());
                if place == sums.len() {
                    sums.push((key, Sum::default(), 0));
                }
                let (_, sum, above) = &mut sums[place];
                sum.count += node.count;
                sum.self_time += node.self_time;
                sum.longest = sum.longest.max(node.longest);
                if *above == 0 {
                    sum.total += self.total(id);
                }
                *above += 1;
                rest.push((id, Some(place)));
            }
            rest.extend(node.children.iter().rev().map(|child| (*child, None)));
        }
        sums.into_iter().map(|(key, sum, _)| (key, sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use kymo_event::{FunctionId, SpaceId};

    use super::super::Node;
    use super::*;

    const fn function(id: u32) -> Callee {
        Callee::Function(FunctionId(id))
    }

    /// A tree of calls: parent, function, calls, self time; the space is node 1.
    fn tree(calls: &[(NodeId, u32, u64, u64)]) -> CallTree {
        let mut tree = CallTree::new(false);
        let space = tree.child(ROOT, Frame::Space(SpaceId(0)));
        assert_eq!(space, 1);
        for (parent, id, count, ns) in calls {
            let node = tree.child(*parent, Frame::Call(function(*id)));
            let of_call: &mut Node = &mut tree.nodes[node as usize];
            (of_call.count, of_call.self_time) = (*count, Duration(*ns));
            let mut above = node;
            while above != space {
                tree.nodes[above as usize].total += Duration(*ns);
                above = tree.node(above).parent;
            }
        }
        tree
    }

    fn lines(groups: &[Group]) -> Vec<(Frame, u64, u64)> {
        let line = |group: &Group| (group.frame, group.count, group.total.0);
        groups.iter().map(line).collect()
    }

    /// main → work → {leaf, work → leaf}; main → leaf
    fn example() -> CallTree {
        tree(&[
            (1, 0, 1, 10),
            (2, 1, 2, 20),
            (3, 2, 4, 40),
            (3, 1, 1, 5),
            (5, 2, 8, 80),
            (2, 2, 1, 1),
        ])
    }

    #[test]
    fn downward_and_upward() {
        let tree = example();
        let view = View::new(&tree);
        let [main, work, leaf] = [0, 1, 2].map(|id| Frame::Call(function(id)));
        let roots = view.roots();
        assert_eq!(lines(&roots), [(main, 1, 156)]);
        let below = view.callees(&roots[0]);
        assert_eq!(lines(&below), [(work, 2, 145), (leaf, 1, 1)]);
        assert_eq!(
            lines(&view.callees(&below[0])),
            [(work, 1, 85), (leaf, 4, 40)]
        );

        let leaves = view.leaves();
        assert_eq!(
            lines(&leaves),
            [(leaf, 13, 121), (work, 3, 25), (main, 1, 10)]
        );
        let above = view.callers(&leaves[0]);
        assert_eq!(lines(&above), [(work, 12, 120), (main, 1, 1)]);
        assert_eq!(
            lines(&view.callers(&above[0])),
            [(work, 8, 80), (main, 4, 40)]
        );

        let of = view.calls_of(|callee| callee == function(1));
        assert_eq!(lines(&of), [(work, 2, 145)]);
        assert_eq!(lines(&view.callers(&of[0])), [(main, 2, 145)]);
    }

    #[test]
    fn lower_bounds_are_those_of_calls_and_of_what_nobody_calls() {
        let mut tree = example();
        // work within work
        tree.nodes[5].at_least = true;
        let view = View::new(&tree);
        let marks = |groups: &[Group]| groups.iter().map(|it| it.at_least).collect::<Vec<_>>();
        let roots = view.roots();
        assert_eq!(marks(&roots), [false], "main was seen whole");
        let work = &view.callees(&roots[0])[0];
        assert!(!work.at_least);
        assert_eq!(marks(&view.callees(work)), [true, false]);
        // leaf, work, main
        assert_eq!(marks(&view.leaves()), [false, true, false]);

        let mut tree = example();
        tree.nodes[2].at_least = true;
        let view = View::new(&tree);
        let spaces = &view.tree().node(ROOT).children;
        assert!(spaces.iter().all(|space| view.at_least[*space as usize]));
    }

    #[test]
    fn recursion_counts_once() {
        let tree = example();
        let view = View::new(&tree);
        let by: HashMap<Callee, Sum> = view.by(Some).into_iter().collect();
        assert_eq!(by[&function(1)].total, Duration(145));
        assert_eq!(by[&function(1)].count, 3);
        assert_eq!(by[&function(2)].total, Duration(121));
        let edges = view.edges();
        let of = |caller, callee| {
            let found = edges
                .iter()
                .find(|edge| (edge.caller, edge.callee) == (function(caller), function(callee)));
            found.map(|edge| (edge.count, edge.total.0))
        };
        assert_eq!(of(1, 2), Some((12, 120)));
        assert_eq!(of(1, 1), Some((1, 85)));
        assert_eq!(of(0, 1), Some((2, 145)));
        assert_eq!(of(2, 1), None);
    }
}
