//! Uncertainty of a table of functions, and the messages about it.

use kymo_analysis::profile::{Bounds, Row};
use kymo_event::{EventKind, EventRef, Gap};

use crate::context::Context;
use crate::render::count::counted;

/// Events that are in no row because they are not in the trace.
#[derive(Default)]
pub struct Missing {
    /// Number of packets that newer ones overwrote.
    overwritten: u64,
    /// Number of lost events, as far as known.
    events: u64,
    /// Number of gaps of unknown size.
    places: u64,
}

impl Missing {
    /// Processes an event; only gaps matter.
    pub fn add(&mut self, event: EventRef<'_>) {
        if let Some(EventKind::Gap(gap)) = event.event.map(|event| &event.kind) {
            self.add_gap(gap);
        }
    }

    fn add_gap(&mut self, gap: &Gap) {
        match (gap, gap.lost_events()) {
            (Gap::Overwritten { packets }, _) => {
                self.overwritten = self.overwritten.saturating_add(*packets);
            }
            (_, Some(events)) => self.events = self.events.saturating_add(events),
            (_, None) => self.places += 1,
        }
    }

    /// Describes the losses, without overwritten packets.
    pub fn what(&self) -> Option<String> {
        Some(match (self.events, self.places) {
            (0, 0) => return None,
            (events, 0) => counted(events, "event"),
            (0, places) => format!("{} of unknown size", counted(places, "gap")),
            (events, places) => format!(
                "{} and {} of unknown size",
                counted(events, "event"),
                counted(places, "gap")
            ),
        })
    }

    /// Reports overwritten packets.
    pub fn remark_overwritten(&self, context: &Context) {
        if self.overwritten > 0 {
            context.note(format_args!(
                "the table is of the newest that was recorded: {} before it, overwritten; a larger buffer \
                 keeps more",
                counted(self.overwritten, "packet")
            ));
        }
    }

    /// Reports losses and their possible effects.
    pub fn remark(&self, bounds: &Bounds, context: &Context) {
        self.remark_overwritten(context);
        let Some(lost) = self.what() else {
            if bounds.before {
                let calls = match bounds.missing_calls {
                    Some(calls) => format!("up to {}", counted(calls, "call")),
                    None => "an unknown number of calls".to_owned(),
                };
                context.note(format_args!(
                    "events were lost in front of this part: {calls} that began there may go on in it and be missing (+)"
                ));
            }
            return;
        };
        let lost = match bounds.before {
            true => format!("{lost}, besides those in front of this part"),
            false => lost,
        };
        match bounds.missing_calls {
            Some(0) => context.note(format_args!("lost, and in no row: {lost}")),
            Some(calls) => context.note(format_args!(
                "lost, and in no row: {lost}; so up to {} of any function can be missing (+)",
                counted(calls, "call")
            )),
            None => context.note(format_args!(
                "lost, and in no row: {lost}; it is not known how many calls are missing (+?)"
            )),
        }
    }
}

/// Number of calls in the table that were not seen whole.
#[derive(Default)]
pub struct Doubts {
    calls: Row,
}

impl Doubts {
    /// The sums over all rows.
    pub fn of<'r>(rows: impl Iterator<Item = &'r Row>) -> Self {
        let mut calls = Row::default();
        for row in rows {
            calls.unwound += row.unwound;
            calls.lost += row.lost;
            calls.doubtful += row.doubtful;
            calls.orphans += row.orphans;
            // A row without any time is marked as such.
            if row.without_end < row.ends() {
                calls.without_end += row.without_end;
            }
            calls.stated += row.stated;
            calls.open += row.open;
            calls.clipped_at_begin += row.clipped_at_begin;
            calls.jumped += row.jumped;
            calls.clock += row.clock;
        }
        Self { calls }
    }

    /// Reports why times of the table are lower bounds.
    pub fn remark_bounds(&self, context: &Context) {
        let Row {
            unwound,
            lost,
            doubtful,
            orphans,
            without_end,
            stated,
            open,
            clipped_at_begin,
            ..
        } = self.calls;
        let doubts = [
            (open, "still open at the end, or when recording stopped"),
            (clipped_at_begin, "whose beginning is not in what is shown"),
            (orphans, "that began before what was recorded"),
            (
                without_end,
                "of which the trace does not tell how long they took",
            ),
            (
                stated,
                "that began before what was recorded, in a loss, or too early to be put in order, and of which only their exits state how \
                 long they took",
            ),
            (lost, "whose return is lost"),
            (
                unwound,
                "left without an exit, by an exception, longjmp or swapcontext",
            ),
            (
                doubtful,
                "during which events were lost, the clock was uncertain, or an interrupt's beginning is missing",
            ),
        ];
        let doubts = doubts.iter().filter(|(calls, _)| *calls > 0);
        let doubts: Vec<String> = doubts
            .map(|(calls, what)| format!("{calls} {what}"))
            .collect();
        if !doubts.is_empty() {
            context.note(format_args!(
                "times are at least what is shown (≥) because of calls that were not seen whole: {}",
                doubts.join(", ")
            ));
        }
    }

    /// Reports the effects on the table; `by_wall` if its times are wall times.
    pub fn remark(&self, by_wall: bool, context: &Context) {
        self.remark_bounds(context);
        let Row {
            doubtful,
            stated,
            jumped,
            clock,
            ..
        } = self.calls;
        if doubtful.max(clock) > 0 {
            context.note(format_args!(
                "AVG, MIN and MAX with a ? may be wrong: during {} events were lost, the clock was uncertain, or an \
                 interrupt's beginning is missing",
                counted(doubtful.max(clock), "call")
            ));
        }
        if stated > 0 && !by_wall {
            context.note(format_args!(
                "AVG, MIN and MAX with a ? may be too long: {} took so long by the wall (--wall), and may not have run \
                 all the time",
                counted(stated, "call")
            ));
        }
        if jumped > 0 {
            context.note(format_args!(
                "left by longjmp: {}; each ends at the jump, which is known exactly",
                counted(jumped, "call")
            ));
        }
    }
}
