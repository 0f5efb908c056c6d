//! Splits the bytes of a target into console text and dumps.
//!
//! All received bytes pass through here, whatever the host is waiting for: firmware can be built to
//! send a dump whenever its buffer is full, in the middle of a conversation. The structure of the
//! records tells where a dump ends. [`super::Target`] decides about a dump that does not end, because
//! it knows the time.
//!
//! Memory is bounded: dumps together by [`DUMP_BYTES`], text by [`TEXT_BYTES`] and one read.

use std::collections::VecDeque;
use std::ops::Range;

use kymo_zephyr_instrumentation::{BEGIN, END, Hints, Kind, Scanner, find_begin};

use super::replies;
use super::{Dump, Ended};

/// How much text is kept to search for a reply: more than a fast UART sends in a second.
const TEXT_BYTES: usize = 128 * 1024;

/// Limit for all dumps of one connection together. No target with such a UART has as much memory.
pub(super) const DUMP_BYTES: usize = 64 * 1024 * 1024;

/// Memory that a dump takes besides its bytes: an empty one must not be free.
const DUMP_OVERHEAD: usize = 128;

/// Number of marks on the console from which on a mark alone announces no dump: a target that prints
/// nothing else would be waited for without end.
const PRINTED_MARKS: u32 = 16;

/// A dump that is being received.
#[derive(Debug)]
pub(super) struct Coming {
    body: Vec<u8>,
    scanner: Scanner,
    /// Whether it began before one was asked for.
    unrequested: bool,
}

impl Coming {
    /// Number of bytes received.
    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Whether more arrived than the mark and the first bytes of the next mark: a record, or the whole end mark.
    fn has_begun(&self) -> bool {
        self.body.len() >= END.len() || self.body.first().copied().and_then(Kind::of).is_some()
    }

    /// How many bytes from the start are parsed: records, and damage between them.
    pub(super) fn understood(&self) -> u64 {
        let size = self.scanner.layout().map_or(0, |layout| layout.size());
        self.scanner.records() * size as u64 + self.scanner.damaged()
    }

    /// Position of the last mark with its line end after the parsed bytes.
    fn mark(&self, within: Range<usize>) -> Option<usize> {
        let bytes = self.body.get(within.clone())?;
        let mark: Vec<u8> = [END, &b"\r\n"[..]].concat();
        let at = bytes.windows(mark.len()).rposition(|w| w == mark)?;
        Some(within.start + at)
    }

    /// Whether something arrived that looks like the end, but contradicts the records.
    pub(super) fn doubtful(&self) -> bool {
        self.mark(self.start_of_doubt()..self.body.len()).is_some()
    }

    /// End of the parsed bytes.
    fn start_of_doubt(&self) -> usize {
        usize::try_from(self.understood()).map_or(0, |at| at.min(self.body.len()))
    }
}

/// State of the sorter.
#[derive(Debug, Default)]
pub(super) struct Sorter {
    /// Text that has not been consumed yet.
    text: Vec<u8>,
    /// Position in it before which no dump begins.
    searched: usize,
    coming: Option<Coming>,
    /// Dumps that have ended, the oldest first.
    done: VecDeque<Dump>,
    /// The part of the line end after a dump's mark that may still arrive.
    line_end: &'static [u8],
    /// Whether a requested dump has not begun yet.
    requested: bool,
    /// Text beyond [`TEXT_BYTES`]: it belongs to the console ([`Sorter::take_surplus`]).
    surplus: Vec<u8>,
    /// Bytes of the dumps in `done`, each with [`DUMP_OVERHEAD`].
    stored: usize,
    /// Marks that the console printed since the last dump.
    printed_marks: u32,
    /// Whether the dumps have reached [`DUMP_BYTES`]: later bytes are text only.
    full: bool,
}

impl Sorter {
    /// Processes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        while !bytes.is_empty() {
            bytes = match self.coming.take() {
                Some(coming) => self.push_dump(coming, bytes),
                None => self.push_text(bytes),
            };
        }
    }

    /// Adds text until a dump begins; returns the bytes after its mark.
    fn push_text(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let mut bytes = bytes.as_slice();
        while let (Some((expected, rest)), Some(byte)) =
            (self.line_end.split_first(), bytes.first())
        {
            if byte != expected {
                self.line_end = &[];
                break;
            }
            self.line_end = rest;
            bytes = bytes.get(1..).unwrap_or_default();
        }
        self.text.extend_from_slice(bytes);
        if let Some(behind) = find_begin(&self.text, self.searched).filter(|_| !self.full) {
            let body = self.text.split_off(behind);
            self.text.truncate(behind.saturating_sub(BEGIN.len()));
            self.searched = self.text.len();
            // Every read may end with a bare mark, so text is bounded here as well.
            self.move_surplus();
            self.coming = Some(Coming {
                body: Vec::new(),
                scanner: Scanner::new(Hints::default()),
                unrequested: !std::mem::take(&mut self.requested),
            });
            return body;
        }
        // Half of the mark may have arrived.
        self.searched = self.text.len().saturating_sub(BEGIN.len());
        self.move_surplus();
        Vec::new()
    }

    /// Moves the oldest text beyond [`TEXT_BYTES`] to `surplus`.
    fn move_surplus(&mut self) {
        let surplus = self.text.len().saturating_sub(TEXT_BYTES);
        if surplus > 0 {
            self.surplus.extend(self.text.drain(..surplus));
            self.searched = self.searched.saturating_sub(surplus);
        }
    }

    /// Adds bytes to a dump until it ends; returns the bytes after it.
    fn push_dump(&mut self, mut coming: Coming, bytes: Vec<u8>) -> Vec<u8> {
        coming.body.extend_from_slice(&bytes);
        if !could_be_dump(&coming.body) {
            // The console printed the mark.
            self.printed_marks = self.printed_marks.saturating_add(1);
            self.requested |= !coming.unrequested;
            self.text.extend_from_slice(BEGIN);
            self.searched = self.text.len();
            return coming.body;
        }
        if let Some(end) = coming.scanner.advance(&coming.body) {
            let rest = coming.body.split_off(end.behind.min(coming.body.len()));
            let with_mark = coming.body.len();
            coming.body.truncate(end.at);
            self.line_end = match with_mark.saturating_sub(end.at + END.len()) {
                0 => b"\r\n",
                1 => b"\n",
                _ => &[],
            };
            let ended = if coming.scanner.damaged() == 0 {
                Ended::Whole
            } else {
                Ended::OutOfStep
            };
            self.finish(coming, ended);
            return rest;
        }
        let too_long = self.stored + coming.body.len() > DUMP_BYTES;
        self.coming = Some(coming);
        if too_long {
            self.end_dump(Ended::TooLong);
        }
        Vec::new()
    }

    fn finish(&mut self, coming: Coming, ended: Ended) {
        self.stored += coming.body.len() + DUMP_OVERHEAD;
        self.full |= self.stored > DUMP_BYTES;
        self.printed_marks = 0;
        self.done.push_back(Dump {
            body: coming.body,
            ended,
            unrequested: coming.unrequested,
        });
    }

    /// Treats the next dump as requested.
    pub(super) fn ask(&mut self) {
        self.requested = true;
    }

    /// Expects no dump any more.
    pub(super) fn no_longer_requested(&mut self) {
        self.requested = false;
    }

    /// The dump that is being received. A bare mark counts, unless the console has printed many of them.
    pub(super) fn coming(&self) -> Option<&Coming> {
        let trusted = self.printed_marks < PRINTED_MARKS;
        let coming = self.coming.as_ref();
        coming.filter(|coming| trusted || coming.has_begun())
    }

    /// Removes the dumps that have ended.
    pub(super) fn take_dumps(&mut self) -> Vec<Dump> {
        self.stored = 0;
        self.done.drain(..).collect()
    }

    /// Number of dumps that have ended.
    pub(super) fn dumps(&self) -> usize {
        self.done.len()
    }

    /// Whether more dumps arrived than are kept. It stays set: later bytes would be the rest of those dumps.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// Removes the text for which there was no room.
    pub(super) fn take_surplus(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.surplus)
    }

    /// Whether a dump has arrived, or is being received.
    pub(super) fn has_dumps(&self) -> bool {
        self.coming().is_some() || !self.done.is_empty()
    }

    /// Whether a requested dump has ended.
    pub(super) fn has_requested(&self) -> bool {
        self.done.iter().any(|dump| !dump.unrequested)
    }

    /// Ends the dump that is being received, because nothing more of it will arrive.
    pub(super) fn end_dump(&mut self, ended: Ended) {
        let Some(mut coming) = self.coming.take() else {
            return;
        };
        let doubt = coming.start_of_doubt();
        let ended = match coming.mark(doubt..coming.body.len()) {
            // Only text can follow the mark.
            Some(at) => {
                let text = coming.body.split_off(at + END.len());
                coming.body.truncate(at);
                let text = text.strip_prefix(b"\r\n").unwrap_or(&text);
                self.text.extend_from_slice(text);
                Ended::OutOfStep
            }
            None => ended,
        };
        self.finish(coming, ended);
    }

    /// Searches for a reply to `ping` in place of the dump's records: if there is one the dump has ended, and the text
    /// in it is returned to the console text.
    pub(super) fn end_dump_at_pong(&mut self) -> bool {
        let Some(coming) = &mut self.coming else {
            return false;
        };
        let doubt = coming.start_of_doubt();
        let rest = coming.body.get(doubt..).unwrap_or_default();
        let Some((_, pong)) = replies::pong(rest) else {
            return false;
        };
        let end = doubt + pong.end;
        let Some(at) = coming.mark(doubt..end) else {
            // All that can be text before the reply is text; the rest are damaged records.
            let begin = text_at_end(&coming.body, doubt);
            let text = coming.body.split_off(begin);
            self.text.extend_from_slice(&text);
            self.searched = self.text.len();
            self.end_dump(Ended::Cut);
            return true;
        };
        let text = coming.body.split_off(at + END.len());
        let text = text.strip_prefix(b"\r\n").unwrap_or(&text);
        self.text.extend_from_slice(text);
        self.searched = self.text.len();
        coming.body.truncate(at);
        if let Some(coming) = self.coming.take() {
            self.finish(coming, Ended::OutOfStep);
        }
        true
    }

    /// The text that has not been consumed yet.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Removes a reply from the text, and returns all text before it.
    pub(super) fn take_reply(&mut self, range: Range<usize>) -> Vec<u8> {
        let mut before = std::mem::take(&mut self.surplus);
        before.extend_from_slice(self.text.get(..range.start).unwrap_or_default());
        let end = range.end.min(self.text.len());
        self.text.drain(..end);
        self.searched = self.searched.saturating_sub(end);
        before
    }

    /// Removes all text except the possible first bytes of a dump's mark.
    pub(super) fn take_text(&mut self) -> Vec<u8> {
        let kept = (1..BEGIN.len())
            .rev()
            .find(|length| {
                BEGIN
                    .get(..*length)
                    .is_some_and(|part| self.text.ends_with(part))
            })
            .unwrap_or(0);
        let end = self.text.len() - kept;
        self.take_reply(end..end)
    }
}

/// Whether this can follow the mark that begins a dump.
fn could_be_dump(body: &[u8]) -> bool {
    match body.first() {
        None => true,
        Some(first) if Kind::of(*first).is_some() => true,
        _ => END.starts_with(body.get(..END.len()).unwrap_or(body)),
    }
}

/// Start of the text at the end of `bytes`, not before `from`.
fn text_at_end(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x1B | b' '..=b'~');
    let text = rest.iter().rev().take_while(|byte| is_text(byte)).count();
    bytes.len() - text
}

/// Body of the sorter's fuzz target, which a test also runs: for chunks of any size nothing panics, and no byte is lost
/// or returned twice. (The dumps may differ: where there are few records, bytes that have not arrived yet can't
/// contradict an end.)
pub fn fuzz_sorter(data: &[u8]) {
    let cuts = data.first().map_or(1, |first| usize::from(first % 17) + 1);
    for cut in [cuts, data.len().max(1)] {
        let (text, dumps) = sort(data, cut);
        let sent: usize = dumps.iter().map(|dump| dump.as_sent().len()).sum();
        let given = text.len() + sent;
        assert!(
            // The line end after a mark may be incomplete or missing.
            (data.len()..=data.len() + 2 * dumps.len()).contains(&given),
            "every byte is given out once: {given} of {}",
            data.len()
        );
    }
}

/// Sorts `data`, fed in chunks of `cut` bytes: the text, and the dumps.
fn sort(data: &[u8], cut: usize) -> (Vec<u8>, Vec<Dump>) {
    let mut sorter = Sorter::default();
    for bytes in data.chunks(cut) {
        sorter.push(bytes);
    }
    sorter.end_dump(Ended::Cancelled);
    let mut text = sorter.take_text();
    text.extend_from_slice(sorter.text());
    (text, sorter.take_dumps())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_sorted(data in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz_sorter(&data);
        }

        #[test]
        fn marks_anywhere_lose_nothing(
            parts in prop::collection::vec((0..6_usize, any::<u8>()), 0..40),
        ) {
            let mut data = Vec::new();
            for (part, byte) in parts {
                let fixed: &[u8] = match part {
                    0 => BEGIN,
                    1 => END,
                    2 => b"\r\n",
                    3 => b"pong\r\n",
                    4 => &[0, 1, 1, 1, 8, 2, 2, 2, 8, 0, 0, 0, 0],
                    _ => &[],
                };
                data.extend_from_slice(fixed);
                data.push(byte);
            }
            fuzz_sorter(&data);
        }
    }

    #[test]
    fn a_mark_on_the_console_is_text() {
        let mut sorter = Sorter::default();
        for byte in b"a -*-# b\r\n-*-#-*-!\r\nc" {
            sorter.push(&[*byte]);
        }
        assert_eq!(sorter.take_text(), b"a -*-# b\r\nc");
        let dumps = sorter.take_dumps();
        assert_eq!(dumps.len(), 1);
        assert!(dumps[0].is_whole() && dumps[0].body.is_empty() && dumps[0].unrequested);
    }

    #[test]
    fn half_a_mark_is_not_given_to_the_console() {
        let mut sorter = Sorter::default();
        sorter.push(b"abc-*");
        assert_eq!(sorter.take_text(), b"abc");
        sorter.push(b"-#-*-!\nd");
        assert_eq!(sorter.take_text(), b"d");
        assert_eq!(sorter.take_dumps().len(), 1);
    }

    #[test]
    fn endless_text_does_not_fill_the_memory_and_is_not_lost() {
        let mut sorter = Sorter::default();
        for _ in 0..100 {
            sorter.push(&[b'x'; 10_000]);
            assert!(sorter.text().len() <= TEXT_BYTES);
        }
        assert_eq!(sorter.take_text().len(), 1_000_000);
    }

    #[test]
    fn endless_marks_do_not_fill_the_memory() {
        let mut sorter = Sorter::default();
        let marks = BEGIN.repeat(2500);
        let mut given = 0;
        for pushed in 0..100 {
            sorter.push(&marks);
            assert!(sorter.text().len() <= TEXT_BYTES);
            assert_eq!(sorter.coming().is_some(), pushed < PRINTED_MARKS);
            given += sorter.take_surplus().len();
        }
        sorter.end_dump(Ended::Cancelled);
        assert_eq!(given + sorter.take_text().len() + BEGIN.len(), 1_000_000);
    }
}
