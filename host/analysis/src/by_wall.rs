//! Converts processor times of calls to wall times, which include preemption and interrupts.

use kymo_event::Duration;

use crate::calls::{End, Step, TrackId};

/// Rewrites the ends of calls for any consumer of steps.
#[derive(Debug, Default)]
pub struct ByWall {
    /// For each open call of a track, outermost first, the wall time of its callees.
    open: Vec<Vec<Duration>>,
}

impl ByWall {
    /// Returns the step; for the end of a call, with the times from begin to end.
    pub fn step<'e>(&mut self, step: Step<'e>) -> Step<'e> {
        match step {
            Step::Begin(begin) => {
                self.begin(begin.track);
                step
            }
            Step::End(end) => Step::End(self.end(&end)),
            _ => step,
        }
    }

    /// Records the begin of a call.
    pub(crate) fn begin(&mut self, track: TrackId) {
        self.open(track).push(Duration(0));
    }

    /// Converts the end of a call. Processor time that is certain is certain as wall time, too. Without a doubt, so
    /// is all of the wall time. But a call that was open in a loss may have ended there, even if its thread had no
    /// processor since, unless the source states how long it was open.
    pub(crate) fn end(&mut self, end: &End) -> End {
        // An orphan has no known callees, and no open call is its caller.
        let is_orphan = end.begin.is_none();
        let open = self.open(end.track);
        let callees = match is_orphan {
            true => Duration(0),
            false => open.pop().unwrap_or_default(),
        };
        if let (Some(wall), Some(caller), false) = (end.wall, open.last_mut(), is_orphan) {
            *caller += wall;
        }
        let self_time = end.wall.map(|wall| wall - callees);
        let sure = |seen: Option<Duration>, sure: Option<Duration>| match end.sure == end.duration
            && !end.doubt.loss
        {
            true => seen,
            false => seen.map(|seen| seen.min(sure.unwrap_or_default())),
        };
        End {
            duration: end.wall,
            self_time,
            sure: if is_orphan || end.wall_is_stated {
                end.wall
            } else {
                sure(end.wall, end.sure)
            },
            sure_self: sure(self_time, end.sure_self),
            ..*end
        }
    }

    fn open(&mut self, track: TrackId) -> &mut Vec<Duration> {
        let index = track.0 as usize;
        if self.open.len() <= index {
            self.open.resize_with(index + 1, Vec::new);
        }
        &mut self.open[index]
    }
}
