//! Which source goes next: the one with the earliest time, and of a thread that moves the one that it ran on before.
//!
//! A thread runs on one processor at a time. What its next processor has at an uncertain time waits for what its processor
//! before has, as far as the times of the trace around both allow it: where they give an order, that is the order, and
//! nothing is taken beyond a time that the trace has behind it.

use super::super::follow::Follow;
use super::super::unit::Item;
use super::CoreSightSource;

/// Things that are taken before an earlier one of another source at most, for a thread that moves: so many are more than
/// what times are uncertain by, and the thread is taken to run on both.
const AHEAD: usize = 1 << 16;

impl CoreSightSource {
    /// The source whose next thing comes first.
    pub(super) fn first(&mut self) -> Option<usize> {
        let first = self.earliest(&[])?;
        if self.is_serial {
            return Some(first);
        }
        let Some((before, latest)) = self.waits(first).filter(|_| self.ahead < AHEAD) else {
            self.ahead = 0;
            return Some(first);
        };
        self.ahead += 1;
        // Others that are due meanwhile keep their times, unless they wait as well.
        let (mut waiting, mut latest) = (vec![first], latest);
        while let Some(other) = self.earliest(&waiting) {
            if other == before || self.next(other).is_none_or(|next| next.time > latest) {
                break;
            }
            let Some((_, its_latest)) = self.waits(other) else {
                return Some(other);
            };
            latest = latest.min(its_latest);
            waiting.push(other);
        }
        if let Some(next) = self.next_mut(before) {
            next.time = next.time.min(latest);
        }
        Some(before)
    }

    /// The source with the earliest time, of all but these.
    fn earliest(&mut self, but: &[usize]) -> Option<usize> {
        let mut first: Option<(i64, usize)> = None;
        for index in 0..self.readers.len() {
            if but.contains(&index) {
                continue;
            }
            let Some(time) = self.peek(index) else {
                continue;
            };
            if first.is_none_or(|(earliest, _)| time < earliest) {
                first = Some((time, index));
            }
            if self.is_serial {
                break;
            }
        }
        first.map(|(_, index)| index)
    }

    /// The source that a source's next thing waits for, and up to when: where it goes on with a thread, the one that this ran
    /// on before.
    fn waits(&mut self, index: usize) -> Option<(usize, i64)> {
        let next = self.next(index)?;
        let latest = next.bounds.1;
        let before = self.follow.before(index, &next.what)?;
        self.peek(before);
        let next = self.next(before)?;
        let is_before = next.bounds.0 <= latest && !Follow::ends_run(&next.what);
        is_before.then_some((before, latest))
    }

    fn next(&self, index: usize) -> Option<&Item> {
        self.readers.get(index)?.items.front()
    }

    fn next_mut(&mut self, index: usize) -> Option<&mut Item> {
        self.readers.get_mut(index)?.items.front_mut()
    }
}
