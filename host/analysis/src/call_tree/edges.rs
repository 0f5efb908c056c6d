//! Lookup of a node's child by frame.

use super::{NodeId, ROOT};

/// Hash table with open addressing from (node, frame) to child. It is read at every begin, at a fraction of the cost
/// of a map of the standard library. (A trace made to collide slows down only its own reader.)
#[derive(Debug, Default)]
pub(super) struct Edges {
    /// The slots, a power of two, at most half of them in use; unused ones lead to [`ROOT`], which is no child.
    table: Vec<Edge>,
    taken: usize,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    /// The key of the frame ([`Frame::key`](super::Frame::key)).
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

    /// The slot where the search begins in a table of this size.
    #[inline(always)]
    fn place(frame: u64, from: NodeId, size: usize) -> usize {
        let mixed = (frame ^ u64::from(from) << 34).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (size.wrapping_sub(1))
    }
}

impl Edges {
    #[inline]
    pub(super) fn find(&self, from: NodeId, frame: u64) -> Option<NodeId> {
        let size = self.table.len();
        let mut place = Edge::place(frame, from, size);
        // A free slot exists, so the loop ends.
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

    pub(super) fn add(&mut self, from: NodeId, frame: u64, to: NodeId) {
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
    use kymo_event::{FunctionId, InterruptId, SpaceId};

    use super::*;
    use crate::call_tree::Frame;
    use crate::calls::{Callee, TrackId};

    #[test]
    fn edges_are_found_again_and_no_others() {
        let mut edges = Edges::default();
        let mut next = 1;
        let frames = |n: u32| {
            [
                Frame::Call(Callee::Function(FunctionId(n))),
                Frame::Call(Callee::Interrupt(InterruptId(n))),
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
