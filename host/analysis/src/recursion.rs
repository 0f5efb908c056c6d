//! Recursion accounting when an outer exit was lost.
//!
//! A total counts recursion once: a call that ends within another call of its function is part of that one. But if
//! the exit of the outer call was lost, it stays open to the end, and little of its time is certain. Then the inner
//! calls count in its place (see [`profile`](crate::profile)).

use std::ops::AddAssign;

use crate::calls::{Callee, End, How, TrackId};
use crate::hash::FastMap;

/// Values of recursive calls that have ended while a call of their function is open further out: their times, or the
/// overhead charged to them. Nothing is kept before the first loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recursion<T> {
    lossy: bool,
    ended: FastMap<(TrackId, Callee), Ended<T>>,
}

/// Calls of one function by rising depth; each entry has the sum of all calls at this depth.
type Ended<T> = Vec<(u32, T)>;

impl<T: AddAssign + Copy + Default> Recursion<T> {
    /// Records that events were lost.
    pub(crate) fn lose(&mut self) {
        self.lossy = true;
    }

    /// Whether events were lost, so that every end must be passed to [`end`](Self::end).
    #[inline(always)]
    pub(crate) const fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Processes the end of a call with its value. Returns the sum for calls of the same function that ended within
    /// it and count in its place.
    #[inline(always)]
    pub(crate) fn end(&mut self, end: &End, own: T) -> T {
        if !self.lossy {
            return T::default();
        }
        self.end_within(*end, own)
    }

    /// [`end`](Self::end) after a loss.
    #[cold]
    fn end_within(&mut self, end: End, own: T) -> T {
        let open = matches!(end.how, How::Open | How::RecordingOff);
        if end.duration.is_none() || (open && end.recursive) {
            return T::default();
        }
        let key = (end.track, end.callee);
        if end.recursive {
            let ended = self.ended.entry(key).or_default();
            // Deeper calls are part of this one.
            while ended.last().is_some_and(|(depth, _)| *depth > end.depth) {
                ended.pop();
            }
            match ended.last_mut() {
                Some((depth, all)) if *depth == end.depth => *all += own,
                _ => ended.push((end.depth, own)),
            }
            return T::default();
        }
        let mut all = T::default();
        let ended = self.ended.remove(&key).unwrap_or_default();
        if open && end.doubt.loss {
            ended.iter().for_each(|(_, of_depth)| all += *of_depth);
        }
        all
    }
}
