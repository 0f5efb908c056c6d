//! Bytes that the events of a row take.
//!
//! On bare metal a program examines its buffer and prints the result in a line `bytes NAME TOTAL COUNT`. Under Linux
//! the recorder owns the buffers. There the file saved at the end is searched for the markers around the row's events.

use kymo_targets::run::{Error, Result};

/// Bytes of a row's events.
#[derive(Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The row.
    pub row: String,
    total: u32,
    count: u32,
}

/// Value of the markers around a row.
const MARK: [u8; 4] = [0xFF; 4];

/// Number of markers per row: the first two are adjacent, the third one is after the row's events.
const MARKS: usize = 3;

impl Bytes {
    /// The bytes per event, on average.
    pub fn of_an_event(&self) -> f64 {
        f64::from(self.total) / f64::from(self.count.max(1))
    }

    /// Parses a program's output.
    pub fn printed(text: &str) -> Vec<Self> {
        let lines = text.lines().filter_map(Self::line);
        lines.filter(|bytes| bytes.total != 0).collect()
    }

    fn line(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("bytes ")?.split(' ');
        let row = words.next()?.to_owned();
        let mut number = || u32::from_str_radix(words.next()?, 16).ok();
        let (total, count) = (number()?, number()?);
        Some(Self { row, total, count })
    }

    /// Reads the bytes of the rows from a program's recording; the program has printed their names. The bytes between
    /// the first two markers are subtracted as the size of a marker.
    ///
    /// # Errors
    /// When the number of markers is wrong, or two of them are not in order.
    pub fn saved(text: &str, recording: &[u8]) -> Result<Vec<Self>> {
        let mut rows: Vec<Self> = text.lines().filter_map(Self::line).collect();
        // A program without a recorder has no markers, and has printed the bytes of its rows.
        if rows.is_empty() || rows.iter().any(|row| row.total != 0) {
            return Ok(Self::printed(text));
        }
        let mut marks = Vec::new();
        let mut at = 0;
        while let Some(rest) = recording.get(at..) {
            let found = rest.windows(MARK.len()).position(|bytes| bytes == MARK);
            let Some(found) = found else { break };
            marks.push(at + found);
            at += found + MARK.len();
        }
        let (between, rest) = marks.as_chunks::<MARKS>();
        let spans = between.iter().map(|[_, before, behind]| behind - before);
        let mut spans = spans.map(|span| span as u32);
        if !rest.is_empty() || spans.len() != rows.len() + 1 {
            let (marks, rows) = (marks.len(), rows.len());
            let what = format!("{marks} marks around {rows} rows in what was saved");
            return Err(Error::new(what));
        }
        let nothing = spans.next().unwrap_or(0);
        for (row, span) in rows.iter_mut().zip(spans) {
            row.total = span.saturating_sub(nothing);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(row: &str, total: u32, count: u32) -> Bytes {
        let row = row.to_owned();
        Bytes { row, total, count }
    }

    #[test]
    fn a_program_says_how_many_bytes_an_event_takes() {
        let text = "bytes enter 00000030 00000010\nanything else\nbytes exit 0 10\n";
        assert_eq!(Bytes::printed(text), [bytes("enter", 48, 16)]);
        assert_eq!(bytes("enter", 49, 16).of_an_event(), 3.0625);
    }

    #[test]
    fn marks_in_a_recording_are_around_rows() {
        let text = "bytes enter 0 10\nbytes exit 0 10\n";
        let mut recording = vec![1, 2, 3];
        for between in [2, 34, 18] {
            for bytes in [5, 2, between] {
                recording.extend(vec![7; bytes]);
                recording.extend(MARK);
            }
        }
        let found = Bytes::saved(text, &recording).unwrap();
        assert_eq!(found, [bytes("enter", 32, 16), bytes("exit", 16, 16)]);
        assert!(Bytes::saved("bytes enter 0 10\n", &recording).is_err());
        let printed = "bytes enter 30 10\n";
        assert_eq!(Bytes::saved(printed, &[]).unwrap().len(), 1);
    }
}
