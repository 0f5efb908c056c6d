//! Context switches of one CPU, and the only thread that can have run in a range of time.
//!
//! A schedule looks up one range for each part of the trace, and a trace without timestamps looks up ranges that span
//! all switches. So the switches are indexed once: each stretch of time stores where the next stretch of another thread
//! begins.

/// Thread that a CPU runs, according to the kernel's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// A thread; 0 is the idle task, or a thread of another PID namespace than perf's.
    Thread(u32),
    /// A thread that is not traced.
    Untraced,
    /// A thread that has exited, so that the kernel no longer reports its number. It runs kernel code only.
    Dead,
    /// Unknown, because the kernel's records of the CPU were lost.
    Unknown,
}

/// Kind of code whose threads are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Kernel code, or any code.
    Any,
    /// User code. Dead threads run none, and neither does thread 0, the idle task.
    User,
    /// User code of a recording in which thread 0 is also the number of threads in other PID namespaces.
    UserOfAny,
}

/// Stretch of time in which one thread runs.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    begin: u64,
    end: u64,
    thread: Option<u32>,
    /// Begin of the next stretch of another thread.
    other: u64,
}

/// Context switches of a CPU, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    reported: Vec<(u64, Running)>,
    any: Vec<Stretch>,
    user: Vec<Stretch>,
    user_of_any: Vec<Stretch>,
}

impl Switches {
    /// Adds a switch to `running` at a time; `before` is what the CPU ran up to then, if known.
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

    /// All switches: from each time on, what the CPU runs. No two in a row are of the same thread.
    pub fn all(&self) -> &[(u64, Running)] {
        &self.reported
    }

    /// Whether any thread of the CPU is known.
    pub fn has_any(&self) -> bool {
        let mut reported = self.reported.iter();
        reported.any(|(_, running)| *running != Running::Unknown)
    }

    /// Indexes the switches, after the last of them.
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

    /// The only thread that can have trace of this kind of code from `begin` to `end`, if known.
    pub fn only(&self, begin: u64, end: u64, code: Ran) -> Option<u32> {
        // The thread before the first switch is unknown.
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
        // The last stretch has no end, so it also contains u64::MAX.
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

    /// Reference for [`Switches::only`] that scans each switch.
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
        // Scanning each switch would take hours.
        for at in 0..count {
            assert_eq!(
                switches.only(at, u64::MAX, Ran::Any).is_some(),
                at + 1 < count
            );
        }
    }
}
