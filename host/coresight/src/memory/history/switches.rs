//! The threads that one CPU switched to, and which of them alone can have run in a range of time.
//!
//! The questions are as many as parts of the trace, and one without timestamps asks of ranges with all switches in them. So
//! stretches of time are put in order once, each with the end of those behind it that have the same thread.

/// What a CPU runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// A thread; 0 is the idle task, or a thread of another PID namespace than perf's.
    Thread(u32),
    /// A thread that is not traced.
    Untraced,
    /// A thread that has ended, whose number the kernel no longer says. It is in the kernel.
    Dead,
    /// What the CPU runs is not known: the kernel's records of it were lost.
    Unknown,
}

/// Of which code the threads are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Of a kernel, or of any.
    Any,
    /// Of a user's program, of which dead threads have none, and the idle task neither: thread 0 is that.
    User,
    /// The same, where user's programs ran as thread 0: threads of other namespaces have that number as well.
    UserOfAny,
}

/// A stretch of time in which one thread runs.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    thread: Option<u32>,
    /// Where the next stretch of another thread begins.
    other: u64,
}

/// Which threads a CPU switched to, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    reported: Vec<(u64, Running)>,
    any: Vec<Stretch>,
    user: Vec<Stretch>,
    user_of_any: Vec<Stretch>,
}

impl Switches {
    /// The CPU runs something from a time on; `before` is what it ran up to then, if that is known.
    pub fn push(&mut self, time: u64, running: Running, before: Option<Running>) {
        if let Some(before) = before
            && self.reported.is_empty()
        {
            self.reported.push((0, before));
        }
        if self
            .reported
            .last()
            .is_none_or(|(_, last)| *last != running)
        {
            self.reported.push((time, running));
        }
    }

    /// Whether anything is known of what runs.
    pub fn has_any(&self) -> bool {
        let mut reported = self.reported.iter();
        reported.any(|(_, running)| *running != Running::Unknown)
    }

    /// All switches are reported: puts the stretches in order.
    pub fn build(&mut self) {
        self.any = self.stretches(Ran::Any);
        self.user = self.stretches(Ran::User);
        self.user_of_any = self.stretches(Ran::UserOfAny);
    }

    fn stretches(&self, code: Ran) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let (mut next, mut other) = (u64::MAX, u64::MAX);
        for (begin, running) in self.reported.iter().rev().copied() {
            let end = std::mem::replace(&mut next, begin);
            let thread = match running {
                Running::Thread(0) if code == Ran::User => continue,
                Running::Thread(thread) => Some(thread),
                Running::Untraced => continue,
                Running::Dead if code != Ran::Any => continue,
                Running::Dead | Running::Unknown => None,
            };
            if let Some(behind) = stretches.last()
                && behind.thread != thread
            {
                other = behind.begin;
            }
            stretches.push(Stretch {
                begin,
                end,
                thread,
                other,
            });
        }
        stretches.reverse();
        stretches
    }

    /// The only thread of which there can be trace of this code from one time to another, if that is known.
    pub fn only(&self, begin: u64, end: u64, code: Ran) -> Option<u32> {
        // What ran before the first switch is not known.
        if self
            .reported
            .first()
            .is_none_or(|(first, _)| begin < *first)
        {
            return None;
        }
        let stretches = match code {
            Ran::Any => &self.any,
            Ran::User => &self.user,
            Ran::UserOfAny => &self.user_of_any,
        };
        // The last one has no end, also at the last time that there is.
        let first = stretches.partition_point(|it| it.end <= begin && it.end < u64::MAX);
        let first = stretches.get(first)?;
        let is_alone = first.begin <= end && (first.other > end || first.other == u64::MAX);
        first.thread.filter(|_| is_alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches(reported: &[(u64, Running)]) -> Switches {
        let mut switches = Switches::default();
        for (time, running) in reported {
            switches.push(*time, *running, None);
        }
        switches.build();
        switches
    }

    /// As [`Switches::only`], by a look at each switch.
    fn looked_for(reported: &[(u64, Running)], begin: u64, end: u64, code: Ran) -> Option<u32> {
        let after = reported.partition_point(|(time, _)| *time <= begin);
        let ran = reported.get(after.checked_sub(1)?..)?.iter();
        let ran = ran.take_while(|(time, _)| *time <= end);
        let ran = ran.map(|(_, running)| *running);
        let mut ran = ran.filter(|running| match running {
            Running::Untraced => false,
            Running::Dead => code == Ran::Any,
            Running::Thread(0) => code != Ran::User,
            _ => true,
        });
        let first = ran.next()?;
        match first {
            Running::Thread(thread) if ran.all(|other| other == first) => Some(thread),
            _ => None,
        }
    }

    #[test]
    fn the_only_thread_of_a_range_is_the_one_that_a_look_at_each_switch_finds() {
        let kinds = [
            Running::Thread(0),
            Running::Thread(7),
            Running::Thread(8),
            Running::Untraced,
            Running::Dead,
            Running::Unknown,
        ];
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let (mut time, mut reported) = (random(4), Vec::new());
            for _ in 0..random(9) {
                let running = kinds[random(6) as usize];
                if reported.last().is_none_or(|(_, last)| *last != running) {
                    reported.push((time, running));
                }
                time += random(3);
            }
            let switches = switches(&reported);
            for begin in 0..12 {
                for end in (begin..14).chain([u64::MAX]) {
                    for code in [Ran::Any, Ran::User, Ran::UserOfAny] {
                        let expected = looked_for(&reported, begin, end, code);
                        let found = switches.only(begin, end, code);
                        assert_eq!(found, expected, "{reported:?} {begin}..={end} {code:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_range_with_many_switches_needs_no_look_at_each() {
        let count = 400_000u64;
        let reported: Vec<_> = (0..count)
            .map(|at| match at % 2 {
                0 => (at, Running::Thread(7)),
                _ => (at, Running::Untraced),
            })
            .collect();
        let switches = switches(&reported);
        // A look at each would take hours.
        for at in 0..count {
            assert_eq!(
                switches.only(at, u64::MAX, Ran::Any).is_some(),
                at + 1 < count
            );
        }
    }
}
