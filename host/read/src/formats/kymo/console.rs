//! Reader of text dumps in a console log, as `kymo_dump_text()` prints them when a target crashes.
//!
//! A log also has other output, prefixes (times, names) on each line, and maybe several dumps. The lines of a dump have
//! a mark, a number and a checksum ([`kymo_wire::link::console`]). These identify them at any position, and also where
//! a terminal of 80 columns wrapped them (they have 85 characters). Missing lines are gaps, as in a dump over the link. Lines
//! that a terminal prints more than once, as when it is connected again, are taken once.

use std::ops::Range;
use std::path::Path;

use kymo_wire::link::console::{
    BEGIN, END, LINE, LINE_BYTES, LINE_TEXT, Line, Survived, read_end, read_line, read_survived,
};
use kymo_wire::link::crc::Crc32;
use memchr::memmem;

use super::raw::split_identity;
use super::source::open_packets;
use crate::bytes::Bytes;
use crate::formats::{Confidence, Opened};
use crate::peek::Peek;
use crate::{OpenError, OpenOptions};

mod identity;

/// Number of bytes that are checked for being text.
const HEAD: usize = 4096;

/// Number of bytes of a pipe that are searched for a dump.
const MARK_WITHIN: usize = 1 << 20;

pub(crate) fn probe(peek: &mut Peek, _: &OpenOptions) -> Result<Option<Confidence>, OpenError> {
    if peek.is_directory() {
        return Ok(None);
    }
    let head = peek.first(HEAD)?;
    if head.is_empty() || head.contains(&0) {
        return Ok(None);
    }
    let is_ours = match peek.file() {
        Some(bytes) => has_dump(bytes),
        None => has_dump(peek.first(MARK_WITHIN)?),
    };
    Ok(is_ours.then_some(Confidence::Certain))
}

/// Whether the bytes contain the beginning or a line of a dump.
fn has_dump(bytes: &[u8]) -> bool {
    let mut lines = memmem::find_iter(bytes, LINE);
    let line = |at: usize| read_line(bytes.get(at + LINE.len()..)?);
    memmem::find(bytes, BEGIN.as_bytes()).is_some() || lines.any(|at| line(at).is_some())
}

pub(crate) fn open(peek: Peek, options: &OpenOptions) -> Result<Opened, OpenError> {
    let path = peek.path().to_owned();
    let log = peek.into_bytes()?;
    let dumps = dumps(&log);
    let refuse = |message: String| OpenError::Console {
        path: path.clone(),
        message,
    };
    let count = dumps.len();
    // Without its first line it cannot be read.
    let readable = dumps.iter().rposition(|dump| dump.has_first);
    let newest = readable.map_or(count, |place| place + 1);
    let number = options.console_dump.unwrap_or(newest);
    if count == 0 {
        return Err(refuse(
            "expected the lines of a dump behind its beginning, found none".to_owned(),
        ));
    }
    let chosen = number.checked_sub(1).and_then(|place| dumps.get(place));
    let chosen = chosen.ok_or_else(|| {
        refuse(format!(
            "expected a dump number {number} in the log, found {count} dumps"
        ))
    })?;
    let mut remarks = chosen.remarks();
    if count > 1 {
        let which = match options.console_dump {
            None if newest == count => "the last one",
            None => "the last one with its beginning",
            Some(_) => "this one",
        };
        let lacking = match options.console_dump {
            None if newest < count => "; what is behind it is newer, and cannot be read",
            _ => "",
        };
        remarks.insert(
            0,
            format!(
                "there are {count} dumps in the log: {which} is number {number} (--dump chooses){lacking}"
            ),
        );
    }
    open_dump(chosen, &path, remarks, options)
}

fn open_dump(
    dump: &TextDump,
    path: &Path,
    mut remarks: Vec<String>,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    let (bytes, missing) = dump.bytes();
    let known = missing
        .first()
        .map_or(bytes.len(), |first| first.start as usize);
    let beginning = bytes.get(..known).unwrap_or_default();
    let refuse = |message: String| OpenError::Console {
        path: path.to_owned(),
        message,
    };
    let (identity, start) = match split_identity(beginning) {
        Ok(found) => found,
        Err(message) => {
            let rebuilt = identity::rebuild(&bytes, &missing, options.program.as_deref());
            let rebuilt = rebuilt.map_err(refuse)?.ok_or_else(|| {
                refuse(match missing.is_empty() {
                    true => message.to_owned(),
                    false => format!(
                        "{message}: line {} of the dump is missing or damaged (the program's ELF file, --elf, has what \
                         it said)",
                        known / LINE_BYTES
                    ),
                })
            })?;
            remarks.push(rebuilt.remark);
            (rebuilt.identity, rebuilt.start)
        }
    };
    let mut source = open_packets(&identity, Bytes::from(bytes), start, &missing, options)
        .map_err(|why| why.of_identity(path.to_owned()))?;
    source.info_mut().remarks.extend(remarks);
    Ok(Opened::Source(source))
}

/// The available lines of a dump.
#[derive(Debug, Default)]
struct TextDump {
    /// After [`finish`](Self::finish): sorted by number, without duplicates.
    lines: Vec<Line>,
    has_first: bool,
    /// Numbers of lines and bytes, and the checksum, if the end mark is present.
    end: Option<(u32, u32, u32)>,
    /// What survived a reset, if the dump is of such.
    survived: Option<Survived>,
    /// Most lines of a repetition that has no end.
    cut_repetition: usize,
}

/// Limits of a line number: a constant, plus a multiple of the lines received so far. A damaged number must not
/// exhaust memory.
const MISSING_AT_MOST: usize = 4096;
const MISSING_TO_ONE: usize = 64;

impl TextDump {
    /// Adds a line if its number is within the limits.
    fn take(&mut self, line: Line) {
        let limit = MISSING_AT_MOST + MISSING_TO_ONE * self.lines.len();
        if (line.number as usize) < limit {
            self.has_first |= line.number == 0;
            self.lines.push(line);
        }
    }

    /// Sorts the lines. Of several lines with the same number, the first one is kept.
    fn finish(mut self) -> Self {
        self.lines.sort_by_key(|line| line.number);
        self.lines.dedup_by_key(|line| line.number);
        self
    }

    /// Whether this [finished](Self::finish) one is a part of `earlier` that a terminal has printed again: it has the same
    /// end, or no end and no other lines.
    fn repeats(&self, earlier: &Self) -> bool {
        let has_same_end = self.end.is_some() && self.end == earlier.end;
        if self.end.is_some() && !has_same_end {
            return false;
        }
        let mut known = 0;
        let fits = self.lines.iter().all(|line| {
            let place = earlier
                .lines
                .binary_search_by_key(&line.number, |it| it.number);
            let other = place.ok().and_then(|place| earlier.lines.get(place));
            known += usize::from(other.is_some());
            other.is_none_or(|other| other == line)
        });
        fits && (has_same_end || known == self.lines.len())
    }

    /// Adds the lines of one that [repeats](Self::repeats) this one.
    fn add(&mut self, again: Self) {
        if again.end.is_none() {
            // It has no lines that this one lacks.
            self.cut_repetition = self.cut_repetition.max(again.lines.len());
            return;
        }
        self.has_first |= again.has_first;
        self.survived = self.survived.or(again.survived);
        let mut new = again.lines;
        new.retain(|line| {
            let place = self
                .lines
                .binary_search_by_key(&line.number, |it| it.number);
            place.is_err()
        });
        if !new.is_empty() {
            self.lines.append(&mut new);
            *self = std::mem::take(self).finish();
        }
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.end.is_none()
    }

    /// The size of the dump in bytes, as far as known.
    fn length(&self) -> usize {
        let last = self.lines.last();
        let seen = last.map_or(0, |last| {
            last.number as usize * LINE_BYTES + last.bytes().len()
        });
        let limit = (MISSING_AT_MOST + MISSING_TO_ONE * self.lines.len()) * LINE_BYTES;
        let reported = self.end.map_or(0, |(_, bytes, _)| bytes as usize);
        seen.max(reported.min(limit))
    }

    /// The bytes, and the ranges that are missing.
    fn bytes(&self) -> (Vec<u8>, Vec<Range<u64>>) {
        let mut bytes = vec![0; self.length()];
        let mut missing = Vec::new();
        let mut known = 0;
        for line in &self.lines {
            let at = line.number as usize * LINE_BYTES;
            if at > known {
                missing.push(known as u64..at as u64);
            }
            known = at + line.bytes().len();
            if let Some(room) = bytes.get_mut(at..known) {
                room.copy_from_slice(line.bytes());
            }
        }
        if known < bytes.len() {
            missing.push(known as u64..bytes.len() as u64);
        }
        (bytes, missing)
    }

    /// Remarks for the user.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let (bytes, missing) = self.bytes();
        let lost: u64 = missing.iter().map(|range| range.end - range.start).sum();
        if lost > 0 {
            remarks.push(format!(
                "{lost} bytes of the dump are missing: their lines are damaged or not in the log"
            ));
        }
        match self.end {
            None => remarks.push(
                "the dump has no end: what stood behind its last line is not in the log".to_owned(),
            ),
            Some((_, _, crc)) if lost == 0 => {
                let mut sum = Crc32::new();
                sum.update(&bytes);
                if sum.value() != crc {
                    remarks.push(
                        "the checksum of the dump does not match: lines of two dumps may be mixed"
                            .to_owned(),
                    );
                }
            }
            Some(_) => {}
        }
        if self.cut_repetition > 0 {
            remarks.push(format!(
                "behind the dump, up to {} of its lines are in the log once more, without an end: the same, printed \
                 again, or a newer dump that was cut before it differed",
                self.cut_repetition
            ));
        }
        remarks.extend(self.survived.iter().flat_map(survived_remarks));
        remarks
    }
}

/// Remarks on a dump of what survived a reset.
fn survived_remarks(survived: &Survived) -> Vec<String> {
    let &Survived {
        verified,
        unverified,
        refused,
        lacks_open_calls,
    } = survived;
    let mut remarks = Vec::new();
    let all = verified.saturating_add(unverified);
    if refused > 0 {
        let all = all.saturating_add(refused);
        remarks.push(format!(
            "{refused} of {all} packets that survived the reset were damaged, and are left out"
        ));
    }
    if unverified == 1 && verified > 0 {
        remarks.push(
            "the newest packet is not verified: it had no checksum yet, and its values may be damaged".to_owned(),
        );
    } else if unverified > 0 {
        remarks.push(format!(
            "{unverified} of {all} packets that survived the reset are not verified: they had no checksum, and their \
             values may be damaged"
        ));
    }
    if lacks_open_calls {
        remarks.push(
            "calls that had not ended at the reset are missing: a dump of what survived has only those that had ended"
                .to_owned(),
        );
    }
    remarks
}

/// Number of dumps before one that it may be a repetition of. A log of many dumps must not take quadratic time.
const REPEATED_AT_MOST: usize = 16;

/// Maximum number of lines into which a terminal may have wrapped one line.
const PARTS: usize = 4;

/// Reads the text of a line from `start`, after a prefix of `column` characters. If that fails, a terminal may have
/// wrapped the line: the lines after it then continue it, with or without the prefix. The checksum decides.
fn unwrapped<T>(
    text: &[u8],
    column: usize,
    start: usize,
    behind: &[&[u8]],
    read: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    let words = text.get(start..)?;
    if let Some(found) = read(words) {
        return Some(found);
    }
    // The first part of a wrapped line is shorter than a whole line.
    if words.len() >= LINE_TEXT {
        return None;
    }
    [0, column].into_iter().find_map(|prefix| {
        let mut joined = words.to_vec();
        behind.iter().take(PARTS).find_map(|part| {
            let part = part.get(prefix..)?.trim_ascii_end();
            joined.extend(part.get(..LINE_TEXT).unwrap_or(part));
            read(&joined)
        })
    })
}

/// All dumps of a log, in order.
fn dumps(log: &[u8]) -> Vec<TextDump> {
    let mut dumps: Vec<TextDump> = Vec::new();
    let mut current = TextDump::default();
    let mut finish = |current: &mut TextDump| {
        let done = std::mem::take(current).finish();
        if done.is_empty() {
            return;
        }
        let from = dumps.len().saturating_sub(REPEATED_AT_MOST);
        let is_it = |it: &TextDump| done.repeats(it);
        let place = dumps
            .get(from..)
            .and_then(|last| last.iter().rposition(is_it));
        match place.map(|place| from + place) {
            // It is the last one that was printed.
            Some(place) => {
                let mut again = dumps.remove(place);
                again.add(done);
                dumps.push(again);
            }
            None => dumps.push(done),
        }
    };
    let texts: Vec<&[u8]> = log
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .filter(|text| !text.is_empty())
        .collect();
    for (place, text) in texts.iter().enumerate() {
        let behind = texts.get(place + 1..).unwrap_or_default();
        if memmem::find(text, BEGIN.as_bytes()).is_some() {
            finish(&mut current);
        }
        if let Some(at) = memmem::find(text, END.as_bytes()) {
            let start = at + END.len();
            let whole = |words: &[u8]| {
                let words = String::from_utf8_lossy(words);
                let (words, _) = words.split_once(" ***")?;
                Some((read_end(words)?, read_survived(words)))
            };
            let end = unwrapped(text, at, start, behind, whole);
            current.survived = end.and_then(|(_, survived)| survived);
            current.end = end.map(|(end, _)| end).or_else(|| {
                read_end(&String::from_utf8_lossy(
                    text.get(start..).unwrap_or_default(),
                ))
            });
            finish(&mut current);
            continue;
        }
        for at in memmem::find_iter(text, LINE) {
            let line = unwrapped(text, at, at + LINE.len(), behind, read_line);
            let Some(line) = line else { continue };
            if current.lines.last() == Some(&line) {
                continue;
            }
            // The mark between two dumps may be damaged.
            if line.number == 0 && current.has_first {
                finish(&mut current);
            }
            current.take(line);
        }
    }
    finish(&mut current);
    dumps
}

#[cfg(test)]
mod tests;
