//! Clocks that were ahead: time that they charged is taken back.

use kymo_event::Duration;

use super::cpu_state::Charge;
use super::output::{Ahead, CallId, Callee, Step};
use super::track::Track;
use super::{Calls, TrackId};

/// The calls of a track that have ended and were open when it was charged, innermost first: the charged call, and its
/// callers as far as later charges show them. A call that began before the charged one and was at work after the charge
/// was open meanwhile, as calls of a track nest.
fn ended(charge: &Charge, later: &[Charge], track: &Track) -> Vec<(CallId, Callee)> {
    let Some(charged) = charge.call.filter(|(call, _)| !track.is_open(*call)) else {
        return Vec::new();
    };
    let later = later.iter().filter(|later| later.track == charge.track);
    let callers = later
        .filter_map(|later| later.call)
        .filter(|(call, _)| call.0 < charged.0.0 && !track.is_open(*call));
    let mut ended: Vec<_> = callers.collect();
    ended.push(charged);
    ended.sort_unstable_by_key(|(call, _)| std::cmp::Reverse(call.0));
    ended.dedup_by_key(|(call, _)| *call);
    ended
}

/// The steps for these calls.
fn steps(ended: &[(CallId, Callee)], by: Duration, track: &Track) -> impl Iterator<Item = Ahead> {
    let id: TrackId = track.id;
    ended.iter().enumerate().map(move |(at, (call, callee))| {
        let mut callers = ended.iter().skip(at + 1);
        Ahead {
            track: id,
            call: *call,
            callee: *callee,
            by,
            own: at == 0,
            recursive: callers.any(|(_, caller)| caller == callee)
                || track.is_within(*call, *callee),
        }
    })
}

impl Calls {
    /// Handles a step back of a processor's time: takes back the time that was charged while its clock was ahead.
    #[cold]
    pub(super) fn step_back(
        &mut self,
        cpu: usize,
        passed: i64,
        reported: bool,
        out: &mut impl FnMut(Step<'_>),
    ) {
        let found = &mut self.cpus[cpu];
        // The clock was ahead before. The excess is taken back from the tracks that were charged, which may not be
        // running any more. Calls during which the clock went ahead and back keep their true length.
        let (tracks, counts) = (&mut self.tracks, &mut self.counts);
        found
            .charges
            .take_back(passed.saturating_neg(), |charge, later| {
                let Some(track) = charge.track.map(|track| &mut tracks[track]) else {
                    return;
                };
                let by = Duration(charge.passed.unsigned_abs());
                if track.give_back(charge).is_some() {
                    counts.clock_ahead += by;
                }
                for ahead in steps(&ended(&charge, later, track), by, track) {
                    out(Step::ClockAhead(ahead));
                }
            });
        // A step back that the trace does not report: other tracks may be affected in unknown ways.
        if !reported {
            self.counts.clock_doubts += 1;
            self.each_touched(cpu, Track::doubt_clock);
        }
    }
}
