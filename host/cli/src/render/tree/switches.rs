//! Thread switches, including those to an idle task that is no thread.

use std::io;

use kymo_analysis::calls::{Step, TrackId};
use kymo_event::{Cpu, StreamId, Time};

use super::{Place, Tree};
use crate::render::palette::paint_with;

/// The name of the idle task.
const IDLE: &str = "idle";

/// A thread that has left its CPU, to another thread or to the idle task; later steps show which.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub stream: StreamId,
    pub track: TrackId,
    pub time: Time,
    /// The recorded time.
    pub recorded: Time,
    pub cpu: Option<Cpu>,
}

/// The idle CPUs, where the idle task is no thread.
#[derive(Debug, Default)]
pub(super) struct Idles {
    /// Whether the idle task is no thread.
    are_known: bool,
    /// Threads whose successor is not known yet.
    left: Vec<Left>,
    /// The streams whose CPU is idle.
    idle: Vec<StreamId>,
}

impl Idles {
    pub(super) fn new(are_known: bool) -> Self {
        Self {
            are_known,
            ..Self::default()
        }
    }

    /// Whether no thread waits for its successor.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Records that a thread leaves its CPU.
    pub(super) fn leave(&mut self, left: Left) -> io::Result<()> {
        if self.are_known {
            self.left.push(left);
        }
        Ok(())
    }

    /// Removes and returns those for which `over` holds.
    pub(super) fn take(&mut self, over: impl Fn(&Left) -> bool) -> Vec<Left> {
        self.left.extract_if(.., |left| over(left)).collect()
    }

    /// Ends the idle time of a stream's CPU. Returns whether it was idle.
    fn end(&mut self, stream: StreamId) -> bool {
        let found = self.idle.iter().position(|idle| *idle == stream);
        found.map(|at| self.idle.swap_remove(at)).is_some()
    }
}

impl Tree<'_> {
    /// Shows the CPUs that the next step in a stream proves idle.
    #[cold]
    pub(super) fn show_idle(&mut self, stream: StreamId, step: &Step<'_>) -> io::Result<()> {
        let now = match step {
            Step::Track { .. } => return Ok(()),
            Step::Begin(begin) => begin.time,
            Step::End(end) => end.time,
            Step::State { time, .. } => *time,
            Step::Event { event, .. } => event.row.time,
            _ => return Ok(()),
        };
        if let Step::State {
            running: true, cpu, ..
        } = step
        {
            // The successor is that thread.
            self.idles.take(|left| left.cpu == *cpu && left.time == now);
        }
        for left in self
            .idles
            .take(|left| left.time < now || left.stream == stream)
        {
            self.idle(left)?;
        }
        Ok(())
    }

    /// Shows that a thread has left its CPU to the idle task.
    pub(super) fn idle(&mut self, left: Left) -> io::Result<()> {
        let is_shown = match self.options.some_calls {
            true => self.shows(left.track),
            // Of a switch, only the thread that gets the CPU is known.
            false => !self.options.some_threads,
        };
        if !is_shown {
            return Ok(());
        }
        self.idles.end(left.stream);
        self.idles.idle.push(left.stream);
        let place = Place {
            time: left.recorded,
            cpu: left.cpu,
            track: None,
            indent: 0,
        };
        let mut switched = String::new();
        paint_with(&mut switched, self.palette.actor, |text| {
            for part in [
                "------ ",
                self.actor_name(left.track),
                " => ",
                IDLE,
                " ------",
            ] {
                text.push_str(part);
            }
        });
        let (text, ..) = self.page.line(left.stream, place);
        text.extend_from_slice(switched.as_bytes());
        self.page.end(self.out)
    }

    /// Shows that a thread gets the CPU of a stream.
    pub(super) fn switch(
        &mut self,
        stream: StreamId,
        track: TrackId,
        time: Time,
        cpu: Option<Cpu>,
        recorded: bool,
    ) -> io::Result<()> {
        let is_idle = self.idles.end(stream);
        let before = self.page.actors.switch(stream, cpu, track);
        // The first thread of a processor is shown in its column.
        let before = before.filter(|before| *before != track && !is_idle);
        if before.is_none() && !is_idle && !(self.options.some_threads && recorded) {
            return Ok(());
        }
        let shown = self.shows(track) || before.is_some_and(|before| self.shows(before));
        if self.options.some_calls && !shown && !is_idle {
            return Ok(());
        }
        let place = Place {
            time: self.recorded(time),
            cpu,
            track: Some(track),
            indent: 0,
        };
        let inferred = if recorded { "" } else { " (no record of it)" };
        let mut switched = String::new();
        paint_with(&mut switched, self.palette.actor, |text| {
            let now = self.actor_name(track);
            text.push_str("------ ");
            let before = before.map(|before| self.actor_name(before));
            if let Some(before) = before.or(is_idle.then_some(IDLE)) {
                text.push_str(before);
                text.push(' ');
            }
            for part in ["=> ", now, inferred, " ------"] {
                text.push_str(part);
            }
        });
        let (text, ..) = self.page.line(stream, place);
        text.extend_from_slice(switched.as_bytes());
        self.page.end(self.out)
    }

    /// Whether a track has open calls that are shown.
    fn shows(&self, track: TrackId) -> bool {
        let actor = self.page.actors.get(track);
        actor.is_some_and(|actor| actor.open > 0)
    }
}
