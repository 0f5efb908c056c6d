//! Totals and remarks of a recording, once all of its sources have ended.

use super::super::meaning::{
    add, backward, brief, coarse, same_address, timeless, too_deep, unordered,
};
use super::CoreSightSource;

impl CoreSightSource {
    /// Adds the totals and remarks at the end.
    pub(super) fn tell(&mut self) {
        if std::mem::replace(&mut self.is_reported, true) {
            return;
        }
        let mut remarks = std::mem::take(&mut self.total.remarks);
        remarks.sort_by_key(|(buffer, remark)| (*buffer, remark.offset));
        for (_, remark) in remarks {
            add(&mut self.info, remark);
        }
        let coarse = coarse(&self.total, &self.info);
        self.info.remarks.extend(coarse);
        self.info.remarks.extend(unordered(self.follow.unordered()));
        let switches = self.follow.doubtful_switches();
        self.info.remarks.extend(same_address(switches));
        self.info.remarks.extend(too_deep(self.follow.too_deep()));
        let mut tell = |what: &str, value: String| self.info.about.push((what.to_owned(), value));
        if self.total.counts.instructions > 0 {
            tell("instructions", self.total.counts.instructions.to_string());
        }
        let unit = self.info.unit.suffix();
        if self.total.widest > 0 {
            let widest = self.total.widest;
            let about = format!("times are right to within {widest} {unit}");
            tell("uncertainty", about);
        }
        if self.total.backward > 0 {
            let times = self.total.backward;
            let about = format!("went back {times} times, and goes on from where it was");
            tell("clock", about);
            self.info.remarks.extend(backward(times));
        }
        let untimed = [timeless(self.total.timeless), brief(self.total.brief)];
        self.info.remarks.extend(untimed.into_iter().flatten());
        if self.total.of_any > 0 {
            let processes = self.total.of_any;
            tell(
                "processes",
                format!(
                    "the trace does not always tell which one runs: then all {processes} are taken for one"
                ),
            );
        }
        for (what, times, why) in [
            (
                "not followed",
                self.doubts.not_followed,
                "no image has the code",
            ),
            ("lost", self.doubts.lost, "trace is missing or damaged"),
            ("off", self.doubts.paused, "nothing was traced for a while"),
            ("resets", self.doubts.resets, "the processor started anew"),
            (
                "not fitting",
                self.doubts.not_fitting,
                "the code is not what ran",
            ),
        ] {
            if times > 0 {
                tell(what, format!("{times} times: {why}"));
            }
        }
    }
}
