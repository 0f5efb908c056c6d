//! Groups calls by a key other than their function: file, thread, processor, call site.
//!
//! [`Groups`] is a stage between a [replay](crate::replay) and tables. It replaces each call's function by the number
//! of its group, and sets [`End::recursive`](crate::calls::End::recursive) if another call *of the group* is open
//! below it. So every table of functions ([`profile`](crate::profile), [`statistics`](crate::statistics),
//! [`call_tree`](crate::call_tree)) also works for groups, and the rule for recursion applies to calls of a group
//! within each other: their time counts once.

use std::hash::Hash;

use kymo_event::FunctionId;

use crate::calls::{Ahead, Begin, Callee, End, Step, TrackId, TrackInfo};
use crate::ended::Ended;
use crate::hash::FastMap;

/// The properties of a call that determine its group.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Grouped<'s> {
    /// The function or interrupt that is called.
    pub callee: Callee,
    /// Its track; `None` if unknown.
    pub track: Option<&'s TrackInfo>,
    /// Its begin; `None` if that was not seen.
    pub begin: Option<&'s Begin>,
}

/// The groups of calls, numbered in order of first appearance.
#[derive(Debug)]
pub struct Groups<K> {
    numbers: FastMap<K, u32>,
    keys: Vec<K>,
    /// Indexed by [`TrackId`].
    tracks: Vec<Track>,
    /// Groups of calls that have ended, and whether they were recursive, which a later [`Step::ClockAhead`] may correct.
    ended: Ended<(u32, bool)>,
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self {
            numbers: FastMap::default(),
            keys: Vec::new(),
            tracks: Vec::new(),
            ended: Ended::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Track {
    info: Option<TrackInfo>,
    /// The open calls, outermost first: their groups, and whether a call of the group is open below.
    open: Vec<(u32, bool)>,
    /// The number of open calls of each group.
    within: FastMap<u32, u32>,
}

impl<K: Copy + Eq + Hash> Groups<K> {
    /// Returns the step with groups instead of functions and interrupts. `key` computes the key of a call's group.
    pub fn step<'e>(&mut self, step: Step<'e>, mut key: impl FnMut(Grouped<'_>) -> K) -> Step<'e> {
        match step {
            Step::Track { track, info } => {
                self.track(track).info = Some(info);
                step
            }
            Step::Begin(begin) => {
                let group = key(Grouped {
                    callee: begin.callee,
                    track: self.track(begin.track).info.as_ref(),
                    begin: Some(&begin),
                });
                let group = self.number(group);
                let track = self.track(begin.track);
                let within = track.within.entry(group).or_default();
                *within += 1;
                track.open.push((group, *within > 1));
                Step::Begin(Begin {
                    callee: callee(group),
                    ..begin
                })
            }
            Step::End(end) => {
                let (group, recursive) = match end.begin {
                    Some(_) => self.end(end.track).unwrap_or_default(),
                    None => {
                        let group = key(Grouped {
                            callee: end.callee,
                            track: self.track(end.track).info.as_ref(),
                            begin: None,
                        });
                        (self.number(group), end.recursive)
                    }
                };
                self.ended.add(end.call, (group, recursive));
                Step::End(End {
                    callee: callee(group),
                    recursive,
                    ..end
                })
            }
            Step::ClockAhead(ahead) => {
                let ended = self.ended.find(ahead.call);
                let (callee, recursive) = match ended {
                    Some((group, recursive)) => (callee(group), recursive),
                    None => (ahead.callee, ahead.recursive),
                };
                Step::ClockAhead(Ahead {
                    callee,
                    recursive,
                    ..ahead
                })
            }
            step => step,
        }
    }

    /// The key of a group; `callee` is one that [`step`](Self::step) returned.
    pub fn key(&self, callee: Callee) -> Option<K> {
        match callee {
            Callee::Function(FunctionId(group)) => self.keys.get(group as usize).copied(),
            _ => None,
        }
    }

    fn number(&mut self, key: K) -> u32 {
        // A machine has no memory for 2^32 groups.
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX);
        let group = *self.numbers.entry(key).or_insert(next);
        if group == next {
            self.keys.push(key);
        }
        group
    }

    fn track(&mut self, track: TrackId) -> &mut Track {
        let index = track.0 as usize;
        if self.tracks.len() <= index {
            self.tracks.resize_with(index + 1, Track::default);
        }
        &mut self.tracks[index]
    }

    fn end(&mut self, track: TrackId) -> Option<(u32, bool)> {
        let track = self.track(track);
        let (group, recursive) = track.open.pop()?;
        if let Some(within) = track.within.get_mut(&group) {
            *within -= 1;
        }
        Some((group, recursive))
    }
}

const fn callee(group: u32) -> Callee {
    Callee::Function(FunctionId(group))
}

#[cfg(test)]
mod tests {
    use kymo_event::{Duration, Time};

    use super::*;
    use crate::calls::{CallId, Doubt, How};
    use crate::profile::Profile;

    const fn function(id: u32) -> Callee {
        Callee::Function(FunctionId(id))
    }

    fn begin(call: u64, of: u32, depth: u32) -> Step<'static> {
        Step::Begin(Begin {
            track: TrackId(0),
            call: CallId(call),
            callee: function(of),
            time: Time(0),
            depth,
            call_site: None,
            caller: None,
            clipped: false,
            cpu: None,
            thread: None,
        })
    }

    fn end(call: u64, of: u32, depth: u32, duration: u64, own: u64) -> Step<'static> {
        Step::End(End {
            track: TrackId(0),
            call: CallId(call),
            callee: function(of),
            time: Time(0),
            depth,
            begin: Some(Time(0)),
            wall: Some(Duration(duration)),
            duration: Some(Duration(duration)),
            self_time: Some(Duration(own)),
            sure: Some(Duration(duration)),
            sure_self: Some(Duration(own)),
            how: How::Returned,
            doubt: Doubt::default(),
            recursive: false,
            clipped: false,
            uncounted: false,
            wall_is_stated: false,
        })
    }

    /// Functions 10, 11 are of group 1, function 20 of group 2: 10 calls 20, which calls 11.
    #[test]
    fn calls_of_a_group_within_each_other_count_once() {
        let mut groups = Groups::default();
        let mut profile = Profile::new();
        let steps = [
            begin(0, 10, 0),
            begin(1, 20, 1),
            begin(2, 11, 2),
            end(2, 11, 2, 5, 5),
            end(1, 20, 1, 20, 15),
            end(0, 10, 0, 50, 30),
            begin(3, 11, 0),
            end(3, 11, 0, 7, 7),
            Step::ClockAhead(Ahead {
                track: TrackId(0),
                call: CallId(1),
                callee: function(20),
                by: Duration(4),
                own: true,
                recursive: false,
            }),
        ];
        for step in steps {
            let step = groups.step(step, |call| match call.callee {
                Callee::Function(FunctionId(id)) => id / 10,
                _ => 0,
            });
            profile.add(&step);
        }
        let rows: Vec<_> = profile.rows().collect();
        let rows: Vec<_> = rows
            .iter()
            .map(|(callee, row)| (groups.key(*callee), row.count, row.total.0, row.self_time.0))
            .collect();
        assert_eq!(rows, [(Some(1), 3, 57, 42), (Some(2), 1, 16, 11)]);
    }
}
