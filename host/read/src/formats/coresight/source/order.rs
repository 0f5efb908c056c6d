//! Order of sources: the one with the earliest time is next or, for a thread that migrates, the one on which it ran
//! before.
//!
//! A thread runs on one processor at a time. Elements with an uncertain time on its next processor wait for those on
//! the processor before, as far as the trace's times around both allow it. Where these times define an order, it is
//! kept, and no element moves beyond the next time of the trace.

use super::super::follow::Follow;
use super::super::unit::Item;
use super::CoreSightSource;

/// Largest number of elements that precede an earlier one of another source for a migrating thread. More exceeds the
/// uncertainty of times, and the thread is then assumed to run on both.
const AHEAD: usize = 1 << 16;

/// Waiting source: its next element continues a thread of which another source has more elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    source: usize,
    /// Source that goes first.
    before: usize,
    /// Time up to which it goes first. Its elements are possible by then.
    latest: i64,
}

/// Chooses the next source if the one with the earliest time waits: `Ok` for a source at its own time, or else the wait
/// to serve. `others` are in order of time.
fn choose(
    first: Wait,
    others: &[(i64, usize)],
    waits: impl Fn(usize) -> Option<Wait>,
) -> Result<usize, Wait> {
    let mut chosen = first;
    for (time, other) in others {
        if *time > chosen.latest {
            break;
        }
        // Other sources that are due meanwhile keep their times, unless they wait as well. Then the earliest deadline
        // goes first, because what another source waits for may not be possible by then.
        match waits(*other) {
            None => return Ok(*other),
            Some(wait) if wait.latest < chosen.latest => chosen = wait,
            Some(_) => {}
        }
    }
    Err(chosen)
}

impl CoreSightSource {
    /// Returns the source with the next element.
    pub(super) fn first(&mut self) -> Option<usize> {
        let next = self.choose()?;
        if let Some(reader) = self.readers.get_mut(next) {
            reader.ahead = 0;
        }
        Some(next)
    }

    fn choose(&mut self) -> Option<usize> {
        let mut first: Option<(i64, usize)> = None;
        for index in 0..self.readers.len() {
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
        let (_, first) = first?;
        if self.is_serial {
            return Some(first);
        }
        let Some(wait) = self.waits(first) else {
            return Some(first);
        };
        let others = (0..self.readers.len()).filter(|index| *index != first);
        let others = others.filter_map(|index| Some((self.next(index)?.time, index)));
        let mut others: Vec<_> = others.filter(|(time, _)| *time <= wait.latest).collect();
        others.sort_unstable();
        let wait = match choose(wait, &others, |index| self.waits(index)) {
            Ok(other) => return Some(other),
            Err(wait) => wait,
        };
        let waiting = self.readers.get_mut(wait.source)?;
        if waiting.ahead >= AHEAD {
            return Some(wait.source);
        }
        waiting.ahead += 1;
        if let Some(next) = self.next_mut(wait.before) {
            next.time = next.time.min(wait.latest);
        }
        Some(wait.before)
    }

    /// Returns what a source's next element waits for: if it continues a thread, the source on which that ran before.
    /// All sources must have been peeked.
    fn waits(&self, source: usize) -> Option<Wait> {
        let next = self.next(source)?;
        let latest = next.bounds.1;
        let before = self.follow.before(source, &next.what)?;
        let next = self.next(before)?;
        let is_before = next.bounds.0 <= latest && !Follow::ends_run(&next.what);
        is_before.then_some(Wait {
            source,
            before,
            latest,
        })
    }

    fn next(&self, index: usize) -> Option<&Item> {
        self.readers.get(index)?.items.front()
    }

    fn next_mut(&mut self, index: usize) -> Option<&mut Item> {
        self.readers.get_mut(index)?.items.front_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_before_it_is_possible() {
        // Source 0 waits for 2, which is possible from 80 on; source 1 for 3, up to 50.
        let wait = |source, before, latest| Wait {
            source,
            before,
            latest,
        };
        let waits = |source| match source {
            0 => Some(wait(0, 2, 100)),
            1 => Some(wait(1, 3, 50)),
            _ => None,
        };
        let first = waits(0).expect("it waits");
        let chosen = choose(first, &[(40, 1), (90, 2), (95, 3)], waits);
        assert_eq!(chosen, Err(wait(1, 3, 50)));
        // Elements that are due meanwhile keep their times.
        assert_eq!(choose(first, &[(30, 3), (40, 1), (90, 2)], waits), Ok(3));
        assert_eq!(choose(first, &[(90, 2), (95, 1)], waits), Ok(2));
        assert_eq!(choose(first, &[(101, 2)], waits), Err(first));
    }
}
