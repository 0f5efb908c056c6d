//! Time column, in the format that the user chose.

use std::fmt::Write;

use kymo_event::{Date, Time, TimeUnit, TraceInfo, WallClock};

use crate::diagnostic::Report;
use crate::input::Events;

use super::duration::Seconds;
use super::unit;

/// Format of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TimeKind {
    /// Seconds by the trace's own clock.
    #[default]
    Absolute,
    /// Seconds since the first event of the trace, as --begin +SECONDS counts.
    Relative,
    /// Date and time of day, in UTC.
    Date,
}

/// Formats times for a column.
#[derive(Clone, Debug, Default)]
pub struct Times {
    kind: TimeKind,
    /// The zero of relative times.
    origin: Time,
    wall: WallClock,
}

impl Times {
    /// The format for a trace.
    ///
    /// # Errors
    /// If dates are wanted and the trace has none, or its first event is needed and can't be read.
    pub fn of(kind: TimeKind, trace: &mut dyn Events) -> Result<Self, Report> {
        let start = match kind {
            TimeKind::Relative => trace.start()?,
            TimeKind::Absolute | TimeKind::Date => None,
        };
        Self::new(kind, trace.info(), start.unwrap_or_default())
    }

    /// The format with the zero of relative times.
    fn new(kind: TimeKind, info: &TraceInfo, origin: Time) -> Result<Self, Report> {
        let wall = match (kind, &info.wall_clock) {
            (TimeKind::Date, None) => {
                return Err(Report::new("nothing in the trace tells the time of day").help(
                    "--time-zero tells when its clock showed 0; a Kymo target tells it itself where its program \
                     calls kymo_wall_clock(), on Linux, and while `kymo record` follows it",
                ));
            }
            (_, wall) => wall.clone().unwrap_or_default(),
        };
        Ok(Self { kind, origin, wall })
    }

    /// The heading of the column.
    pub fn heading(&self) -> &'static str {
        match self.kind {
            TimeKind::Absolute | TimeKind::Relative => match unit::get() {
                TimeUnit::Nanoseconds => "       TIME [s]",
                TimeUnit::Instructions => "   INSTRUCTIONS",
                TimeUnit::Cycles => "         CYCLES",
                TimeUnit::Ticks => "          TICKS",
            },
            TimeKind::Date => "DATE                          ",
        }
    }

    /// The begin of the millisecond of a time, if the texts of all times in it differ only in their last six digits.
    pub fn millisecond(&self, time: Time) -> Option<i64> {
        let origin = self.origin;
        let is_usual = match self.kind {
            TimeKind::Absolute | TimeKind::Relative => Seconds { time, origin }.digits().is_some(),
            TimeKind::Date => false,
        };
        is_usual.then(|| time.0 - (time.0 - origin.0) % 1_000_000)
    }

    /// Appends a time, as wide as the heading.
    pub fn push(&self, time: Time, out: &mut String) {
        match self.kind {
            TimeKind::Absolute | TimeKind::Relative => {
                let origin = self.origin;
                Seconds { time, origin }.push(out);
            }
            // Writing to a string can't fail.
            TimeKind::Date => {
                let _ = write!(out, "{}", Date(self.wall.unix_ns(time)));
            }
        }
    }

    /// The date of a time, if dates are wanted.
    pub fn date(&self, time: Time) -> Option<Date> {
        (self.kind == TimeKind::Date).then(|| Date(self.wall.unix_ns(time)))
    }
}
