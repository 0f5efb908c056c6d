//! Calls of a function within a call of the same one that only seems to be open.
//!
//! A total counts recursion once, so what ends within another call of its function is that one's. But where
//! the outer one's exit is among what was lost it is open to the end, and little of its time is certain: then
//! those within it count in its place ([`profile`](crate::profile) says more).

use std::ops::AddAssign;

use crate::calls::{Callee, End, How, TrackId};
use crate::hash::FastMap;

/// What belongs to recursive calls that have ended, as long as one of their function is open further out: their
/// times, or what was charged to them. Nothing is kept before the first loss.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recursion<T> {
    lossy: bool,
    ended: FastMap<(TrackId, Callee), Ended<T>>,
}

/// Calls of one function that are not within each other, by their depth, which rises: each with what belongs to
/// all at this depth together.
type Ended<T> = Vec<(u32, T)>;

impl<T: AddAssign + Copy + Default> Recursion<T> {
    /// Events were lost.
    pub(crate) fn lose(&mut self) {
        self.lossy = true;
    }

    /// Whether events were lost, so that it has to know of every end.
    #[inline(always)]
    pub(crate) const fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// Takes the end of a call, and what belongs to it: gives what belongs to calls of the same function that
    /// ended within it and are to count in its place.
    #[inline(always)]
    pub(crate) fn end(&mut self, end: &End, own: T) -> T {
        if !self.lossy {
            return T::default();
        }
        self.end_within(*end, own)
    }

    /// The same behind a loss.
    #[cold]
    fn end_within(&mut self, end: End, own: T) -> T {
        let open = matches!(end.how, How::Open | How::RecordingOff);
        if end.duration.is_none() || (open && end.recursive) {
            return T::default();
        }
        let key = (end.track, end.callee);
        if end.recursive {
            let ended = self.ended.entry(key).or_default();
            // They are part of this one.
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
