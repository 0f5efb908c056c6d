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
        remarks.insert(
            0,
            format!(
                "there are {count} dumps in the log: {which} is number {number} (--dump chooses)"
            ),
        );
    }
    open_dump(chosen, &path, remarks, options)
}

fn open_dump(
    dump: &TextDump,
    path: &Path,
    remarks: Vec<String>,
    options: &OpenOptions,
) -> Result<Opened, OpenError> {
    let (bytes, missing) = dump.bytes();
    let known = missing
        .first()
        .map_or(bytes.len(), |first| first.start as usize);
    let beginning = bytes.get(..known).unwrap_or_default();
    let (identity, start) = split_identity(beginning).map_err(|message| OpenError::Console {
        path: path.to_owned(),
        message: match missing.is_empty() {
            true => message.to_owned(),
            false => format!(
                "{message}: line {} of the dump is missing or damaged",
                known / LINE_BYTES
            ),
        },
    })?;
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
        self.has_first |= again.has_first;
        self.survived = self.survived.or(again.survived);
        self.lines.extend(again.lines);
        *self = std::mem::take(self).finish();
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
        match dumps.last_mut() {
            _ if done.is_empty() => {}
            Some(earlier) if done.repeats(earlier) => earlier.add(done),
            _ => dumps.push(done),
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
mod tests {
    use kymo_wire::link::Text;
    use kymo_wire::link::console::{write_end, write_line};

    use super::*;

    /// The lines of a text dump of these bytes.
    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut lines = vec![format!("{BEGIN}: keep this text ***")];
        let mut add = |write: &dyn Fn(&mut Text<'_>)| {
            let mut room = [0; LINE_TEXT];
            let mut text = Text::new(&mut room);
            write(&mut text);
            lines.push(String::from_utf8(text.bytes().to_vec()).unwrap());
        };
        for (n, bytes) in bytes.chunks(LINE_BYTES).enumerate() {
            add(&|text| write_line(n as u32, bytes, text));
        }
        let mut crc = Crc32::new();
        crc.update(bytes);
        let count = bytes.len().div_ceil(LINE_BYTES) as u32;
        add(&|text| write_end((count, bytes.len() as u32, crc.value()), None, text));
        lines
    }

    fn content(seed: u8) -> Vec<u8> {
        (0..1000u32).map(|n| (n * 7) as u8 ^ seed).collect()
    }

    #[test]
    fn dumps_are_found_between_other_lines_and_behind_prefixes() {
        let mut log = String::from("boot kymo: kymo:12:x:y\r\n");
        for (seed, prefix) in [
            (1, ""),
            (2, "[   12.345678] console kymo: "),
            (3, "I (12) app: "),
        ] {
            for line in lines(&content(seed)) {
                log += prefix;
                log += &line;
                log += "\r\n[13.0] something else: kymo:zz\n";
            }
        }
        let found = dumps(log.as_bytes());
        assert_eq!(found.len(), 3);
        for (dump, seed) in found.iter().zip(1..) {
            assert_eq!(dump.bytes(), (content(seed), vec![]));
            assert_eq!(dump.remarks(), [""; 0]);
        }
    }

    #[test]
    fn wrapped_lines_are_put_together_by_their_checksums() {
        for prefix in ["", "[   12.345678] "] {
            for columns in [40, 60, 80] {
                for each in [false, true] {
                    let mut log = String::new();
                    for line in lines(&content(1)) {
                        let line = format!("{}{line}", if each { "" } else { prefix });
                        for part in line.as_bytes().chunks(columns) {
                            log += if each { prefix } else { "" };
                            log += str::from_utf8(part).unwrap();
                            log += "\r";
                        }
                        log += "\r";
                    }
                    let found = dumps(log.as_bytes());
                    assert_eq!(found.len(), 1, "{log}");
                    assert_eq!(found[0].bytes(), (content(1), vec![]));
                    assert_eq!(found[0].remarks(), [""; 0]);
                }
            }
        }
    }

    #[test]
    fn what_is_missing_is_known() {
        let bytes = content(5);
        let all = lines(&bytes);
        for gone in 1..all.len() {
            let mut some = all.clone();
            some.remove(gone);
            let found = dumps(some.join("\n").as_bytes());
            let (read, missing) = found[0].bytes();
            let place = (gone - 1) * LINE_BYTES;
            if gone == all.len() - 1 {
                assert_eq!((read.len(), missing), (1000, vec![]));
                assert!(found[0].remarks()[0].contains("no end"));
            } else {
                let end = bytes.len().min(place + LINE_BYTES);
                let lost = place as u64..end as u64;
                assert_eq!((missing.len(), &missing[0]), (1, &lost));
                assert_eq!(read[..place], bytes[..place]);
                assert_eq!(read[end..], bytes[end..]);
                assert!(found[0].remarks()[0].contains("missing"), "{gone}");
            }
        }
        // A reset in the middle of a dump, and the mark of the next one lost.
        let log = [&all[..5], &all[1..]].concat().join("\n");
        let found = dumps(log.as_bytes());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].bytes().0, bytes[..4 * LINE_BYTES]);
        assert_eq!(found[1].bytes(), (bytes, vec![]));
    }

    #[test]
    fn what_a_terminal_repeats_is_taken_once() {
        let bytes = content(5);
        let all = lines(&bytes);
        let check = |log: &[String], what: &str| {
            let found = dumps(log.join("\r\n").as_bytes());
            let [dump] = &found[..] else {
                panic!("{what}: {} dumps", found.len());
            };
            assert_eq!(dump.bytes(), (bytes.clone(), vec![]), "{what}");
            assert_eq!(dump.remarks(), [""; 0], "{what}");
        };
        let doubled = |line: &String| [line.clone(), line.clone()];
        let twice: Vec<_> = all.iter().flat_map(doubled).collect();
        check(&twice, "each line twice");
        let side_by_side: Vec<_> = all.iter().map(|line| format!("{line}{line}")).collect();
        check(&side_by_side, "each line twice in its line");
        // A console that is connected again begins with what it still has.
        let end = all.len() - 1;
        for from in 1..all.len() {
            let again = &all[from..];
            check(&[&all[..], again].concat(), "lines behind the dump");
            check(&[&all[..], &all[from..end]].concat(), "without its end");
            if from > 1 {
                check(&[&all[..end], again].concat(), "in the dump");
            }
        }
        check(&[&all[..], &all[..]].concat(), "all of it");
        // What one copy lacks the other one has.
        let (mut first, mut second) = (all.clone(), all.clone());
        first.remove(3);
        second.remove(7);
        check(&[first, second].concat(), "two damaged copies");
    }

    #[test]
    fn a_damaged_line_loses_its_own_bytes() {
        let bytes = content(5);
        let mut all = lines(&bytes);
        all[4].replace_range(20..21, "*");
        let twice: Vec<_> = all.iter().flat_map(|line| [line, line]).cloned().collect();
        for log in [&all, &twice] {
            let found = dumps(log.join("\r\n").as_bytes());
            assert_eq!(found.len(), 1);
            let lost = 3 * LINE_BYTES as u64..4 * LINE_BYTES as u64;
            assert_eq!(found[0].bytes().1, [lost]);
            let remarks = found[0].remarks();
            assert!(remarks[0].contains("48 bytes"), "{remarks:?}");
        }
    }

    #[test]
    fn a_number_out_of_nowhere_fills_no_memory() {
        let mut room = [0; LINE_TEXT];
        let mut text = Text::new(&mut room);
        write_line((1 << 24) - 1, &[1; LINE_BYTES], &mut text);
        let mut log = text.bytes().to_vec();
        log.extend_from_slice(b"*** kymo dump ends: lines=1 bytes=4294967295 crc=00000000 ***\n");
        let found = dumps(&log);
        assert!(found[0].length() <= MISSING_AT_MOST * LINE_BYTES);
    }
}
