//! Lines in order. Those of a pipe wait until the form in which it records calls is known.

use super::TextSource;
use super::ahead::{LINES_LOOKED_AT, has_switches};
use super::input::Spot;

impl TextSource {
    /// Returns the next line. Exits of a pipe wait until it is known whether calls are recorded as exits only. Lines of
    /// a file are examined beforehand.
    pub(super) fn next_line(&mut self) -> Result<Option<(String, Spot)>, std::io::Error> {
        while self.exits_alone.is_none() {
            let next = self.input.line()?;
            let is_end = next.is_none();
            let mut reported = None;
            if let Some((line, spot)) = next {
                reported = self.exits.add(line.trim_end_matches(['\n', '\r']));
                let waits = reported.is_some() || self.exits.has_any();
                if !waits && self.waiting.is_empty() {
                    return Ok(Some((line, spot)));
                }
                self.waiting.push_back((line, spot));
            } else if self.waiting.is_empty() {
                return Ok(None);
            }
            let is_long = self.waiting.len() >= LINES_LOOKED_AT;
            if let Some(alone) = reported.or((is_end || is_long).then_some(true)) {
                self.exits_are_alone(alone);
            }
        }
        match self.waiting.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.input.line(),
        }
    }

    /// Sets whether calls of a pipe are recorded as exits only.
    fn exits_are_alone(&mut self, alone: bool) {
        let has_switches = |(line, _): &(String, Spot)| has_switches(line.as_bytes());
        self.exits_alone = Some(alone);
        self.marks_missing_exits = !alone;
        self.without_switches = alone && !self.waiting.iter().any(has_switches);
        if alone {
            self.output.sort();
        }
        if self.without_switches {
            self.output.infer_no_switches();
        }
        for stream in &mut self.info.streams {
            stream.whole_calls = alone;
            stream.marks_missing_exits = self.marks_missing_exits;
            stream.without_switches = self.without_switches;
        }
    }
}
