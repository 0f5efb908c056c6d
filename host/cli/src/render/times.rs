//! The column of times: when something happened, as whoever looks wants to know it.

use std::fmt::Write;

use kymo_event::{Date, StreamId, Time, TraceInfo, WallClock};

use crate::diagnostic::Report;

use super::duration::Seconds;

/// What times are shown as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeKind {
    /// Seconds by the trace's own clock.
    #[default]
    Absolute,
    /// Seconds since the first event.
    Relative,
    /// Date and time of day, in UTC.
    Date,
}

/// Shows moments in a column.
#[derive(Clone, Debug, Default)]
pub struct Times {
    kind: TimeKind,
    /// What counts as zero; `None` before the first event.
    origin: Option<Time>,
    wall: WallClock,
    /// The streams whose events happened at no moment.
    timeless: Vec<StreamId>,
}

impl Times {
    /// The times of a trace.
    ///
    /// # Errors
    /// If dates are wanted and the trace tells none.
    pub fn new(kind: TimeKind, info: &TraceInfo) -> Result<Self, Report> {
        let wall = match (kind, &info.wall_clock) {
            (TimeKind::Date, None) => {
                return Err(Report::new("nothing in the trace tells the time of day").help(
                    "a target tells it where its program calls kymo_wall_clock(), on Linux, and \
                     while `kymo record` follows it",
                ));
            }
            (_, wall) => wall.clone().unwrap_or_default(),
        };
        let streams = (0..).zip(&info.streams);
        let timeless = streams.filter(|(_, stream)| stream.timeless);
        Ok(Self {
            kind,
            origin: (kind != TimeKind::Relative).then_some(Time(0)),
            wall,
            timeless: timeless.map(|(index, _)| StreamId(index)).collect(),
        })
    }

    /// An event happened then. The first one is what others are relative to.
    pub fn meet(&mut self, time: Time, stream: Option<StreamId>) {
        if self.origin.is_none() && stream.is_none_or(|stream| !self.timeless.contains(&stream)) {
            self.origin = Some(time);
        }
    }

    /// What stands over the column.
    pub const fn heading(&self) -> &'static str {
        match self.kind {
            TimeKind::Absolute | TimeKind::Relative => "       TIME [s]",
            TimeKind::Date => "DATE                          ",
        }
    }

    /// Adds a moment to a text, as wide as the heading.
    pub fn push(&self, time: Time, out: &mut String) {
        match self.kind {
            TimeKind::Absolute | TimeKind::Relative => {
                let origin = self.origin.unwrap_or_default();
                Seconds { time, origin }.push(out);
            }
            // Writing to a string can't fail.
            TimeKind::Date => {
                let _ = write!(out, "{}", Date(self.wall.unix_ns(time)));
            }
        }
    }

    /// The date of a moment, where dates are wanted.
    pub fn date(&self, time: Time) -> Option<Date> {
        (self.kind == TimeKind::Date).then(|| Date(self.wall.unix_ns(time)))
    }
}
