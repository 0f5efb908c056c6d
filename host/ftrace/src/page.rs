//! Ring-buffer pages as the kernel writes them for each CPU (`Documentation/trace/ring-buffer-design.rst`,
//! `include/linux/ring_buffer.h`).
//!
//! A page begins with its time (`u64`) and the number of written bytes (`long`, with flags in its high bits). Entries
//! follow: a `u32` with a type or length (5 bits) and the time since the entry before (27 bits), and data.

use crate::format::FieldFormat;
use crate::{Error, Order};

/// Page layout as `events/header_page` describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLayout {
    /// The byte order of the traced machine.
    pub order: Order,
    /// Offset of the number of written bytes.
    pub commit: usize,
    /// Size of that number, which is the size of the kernel's `long`.
    pub commit_size: usize,
    /// Offset of the first entry.
    pub data: usize,
}

/// Bits of `commit` that hold the number of written bytes.
const COMMIT_MASK: u64 = (1 << 20) - 1;
/// Flag: events are missing before this page.
const MISSING: u64 = 1 << 31;
/// Flag: the number of missing events is stored behind the entries.
const MISSING_STORED: u64 = 1 << 30;

/// Types of entries that hold no event. Smaller values are lengths in 4-byte words; 0 means that the length follows.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// High bits of a time that an absolute time stamp does not hold.
const STAMP_HIGH: u64 = 0xf8 << 56;

impl PageLayout {
    /// Returns the layout for kernels with this size of `long`, in bytes.
    pub const fn of_long(order: Order, long_size: usize) -> Self {
        Self {
            order,
            commit: 8,
            commit_size: long_size,
            data: 8 + long_size,
        }
    }

    /// Parses the text of `events/header_page`. Missing fields default to [`PageLayout::of_long`].
    pub fn parse(order: Order, long_size: usize, text: &str) -> Self {
        let mut layout = Self::of_long(order, long_size);
        for field in text.lines().filter_map(FieldFormat::parse_line) {
            match &*field.name {
                "commit" if matches!(field.size, 4 | 8) => {
                    layout.commit = field.offset;
                    layout.commit_size = field.size;
                    layout.data = layout.data.max(field.offset + field.size);
                }
                "data" => layout.data = field.offset,
                _ => {}
            }
        }
        layout
    }

    /// Returns the page size in bytes, if the text of `events/header_page` gives it.
    pub fn page_size(text: &str) -> Option<usize> {
        let mut fields = text.lines().filter_map(FieldFormat::parse_line);
        let data = fields.find(|field| field.name == "data")?;
        let size = data.offset + data.size;
        (64..=1 << 26).contains(&size).then_some(size)
    }

    /// Reads the header of a page that lies at `offset` in the input.
    ///
    /// # Errors
    /// [`Error`] if the header is not complete.
    pub fn begin(&self, page: &[u8], offset: u64) -> Result<Page, Error> {
        let time = self.order.u64_at(page, 0);
        let commit = self.order.number_at(page, self.commit, self.commit_size);
        let (Some(time), Some(commit)) = (time, commit) else {
            let found = format!("{} bytes", page.len());
            return Err(Error::new(
                offset,
                "the header of a ring-buffer page",
                found,
            ));
        };
        let written = (commit & COMMIT_MASK) as usize;
        let end = (self.data + written).min(page.len());
        let lost = match commit & (MISSING | MISSING_STORED) {
            0 | MISSING_STORED => Lost::Nothing,
            MISSING => Lost::Unknown,
            _ => match self
                .order
                .number_at(page, self.data + written, self.commit_size)
            {
                Some(count) if count > 0 => Lost::Events(count),
                _ => Lost::Unknown,
            },
        };
        Ok(Page {
            time,
            at: self.data,
            end,
            lost,
            is_cut: self.data + written > page.len(),
        })
    }
}

/// Number of events that are missing before a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lost {
    /// None.
    #[default]
    Nothing,
    /// Known number.
    Events(u64),
    /// Unknown number.
    Unknown,
}

/// Position on a page.
#[derive(Clone, Copy, Debug, Default)]
pub struct Page {
    /// Time of the entry before, in ticks of the trace clock.
    pub time: u64,
    /// Events that are missing before the page.
    pub lost: Lost,
    /// Whether the header declares more bytes than the page has.
    pub is_cut: bool,
    at: usize,
    end: usize,
}

/// Event on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Timestamp in ticks of the trace clock.
    pub time: u64,
    /// Offset of the data on the page.
    pub start: usize,
    /// Length of the data in bytes, padded to a multiple of four.
    pub length: usize,
}

impl Page {
    /// Returns the next event if its length is in its first word, as in nearly all events. Otherwise changes nothing.
    #[inline(always)]
    pub(crate) fn plain(&mut self, page: &[u8], order: Order) -> Option<Entry> {
        let start = self.at;
        let word = order.u32_at(page, start)?;
        let (kind, delta) = match order {
            Order::Little => (word & 31, word >> 5),
            Order::Big => (word >> 27, word & ((1 << 27) - 1)),
        };
        let length = 4 * kind as usize;
        let next = start + 4 + length;
        if !(1..PADDING).contains(&kind) || next > self.end {
            return None;
        }
        self.time = self.time.wrapping_add(u64::from(delta));
        self.at = next;
        Some(Entry {
            time: self.time,
            start: start + 4,
            length,
        })
    }

    /// Returns the next event of the page; `None` behind the last.
    ///
    /// # Errors
    /// [`Error`] if an entry does not fit. Its offset is relative to the page. No entries follow it.
    #[inline]
    pub fn next(&mut self, page: &[u8], order: Order) -> Result<Option<Entry>, Error> {
        while self.at < self.end {
            if let Some(entry) = self.plain(page, order) {
                return Ok(Some(entry));
            }
            let start = self.at;
            let Some(word) = order.u32_at(page, start).filter(|_| start + 4 <= self.end) else {
                return Err(self.broken(start, page));
            };
            let (kind, delta) = match order {
                Order::Little => (word & 31, word >> 5),
                Order::Big => (word >> 27, word & ((1 << 27) - 1)),
            };
            if let 1..PADDING = kind {
                return Err(self.broken(start, page));
            }
            if let Some(entry) = self.special(page, order, (start, kind, delta))? {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// Reads an entry whose first word holds no length: a long event, a time or padding.
    #[inline(never)]
    fn special(
        &mut self,
        page: &[u8],
        order: Order,
        (start, kind, delta): (usize, u32, u32),
    ) -> Result<Option<Entry>, Error> {
        // Padding without a time fills the rest of the page. Its length may be missing.
        if kind == PADDING && delta == 0 {
            self.at = self.end;
            return Ok(None);
        }
        let Some(second) = order
            .u32_at(page, start + 4)
            .filter(|_| start + 8 <= self.end)
        else {
            return Err(self.broken(start, page));
        };
        let long = u64::from(second) << 27 | u64::from(delta);
        match kind {
            TIME_EXTEND => {
                self.time = self.time.wrapping_add(long);
                self.at = start + 8;
                Ok(None)
            }
            TIME_STAMP => {
                self.time = long | self.time & STAMP_HIGH;
                self.at = start + 8;
                Ok(None)
            }
            _ => {
                self.time = self.time.wrapping_add(u64::from(delta));
                let length = second as usize;
                let next = match kind {
                    PADDING => start + 4 + length,
                    // The length includes its own word.
                    _ => start + 4 + length.next_multiple_of(4),
                };
                if length < 4 || next > self.end {
                    return Err(self.broken(start, page));
                }
                self.at = next;
                Ok((kind == 0).then_some(Entry {
                    time: self.time,
                    start: start + 8,
                    length: next - start - 8,
                }))
            }
        }
    }

    #[cold]
    fn broken(&mut self, start: usize, page: &[u8]) -> Error {
        let left = self.end - start;
        self.at = self.end;
        let bytes = page
            .get(start..(start + 8).min(self.end))
            .unwrap_or_default();
        Error::new(
            start as u64,
            format!("an entry that fits into the {left} bytes left on its page"),
            format!("{bytes:02x?}"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout::of_long(Order::Little, 8);

    fn page(entries: &[u8], flags: u64) -> Vec<u8> {
        let mut page = 1000u64.to_le_bytes().to_vec();
        page.extend((entries.len() as u64 | flags).to_le_bytes());
        page.extend(entries);
        page
    }

    fn word(kind: u32, delta: u32) -> [u8; 4] {
        (delta << 5 | kind).to_le_bytes()
    }

    #[test]
    fn entries_of_all_kinds_are_read() {
        let entries = [
            word(1, 5).to_vec(),
            vec![1, 2, 3, 4],
            // Discarded event: 4 bytes of length and 4 of data.
            word(PADDING, 1).to_vec(),
            vec![8, 0, 0, 0, 9, 9, 9, 9],
            word(TIME_EXTEND, 7).to_vec(),
            1u32.to_le_bytes().to_vec(),
            // Length that follows the first word: it counts itself and 5 bytes, which take 8.
            word(0, 2).to_vec(),
            vec![9, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0],
            word(TIME_STAMP, 3).to_vec(),
            2u32.to_le_bytes().to_vec(),
            word(2, 0).to_vec(),
            vec![7; 8],
            word(PADDING, 0).to_vec(),
        ]
        .concat();
        let bytes = page(&entries, MISSING | MISSING_STORED);
        let bytes = [bytes, 77u64.to_le_bytes().to_vec()].concat();
        let mut page = LAYOUT.begin(&bytes, 0).unwrap();
        assert_eq!(page.lost, Lost::Events(77));
        let mut found = Vec::new();
        while let Some(entry) = page.next(&bytes, Order::Little).unwrap() {
            found.push((entry.time, entry.length, bytes[entry.start]));
        }
        let extended = 1006 + (1 << 27) + 9;
        assert_eq!(
            found,
            [(1005, 4, 1), (extended, 8, 1), ((2 << 27) + 3, 8, 7)]
        );
    }

    #[test]
    fn an_entry_that_does_not_fit_ends_its_page() {
        for entries in [
            word(9, 1).to_vec(),
            word(0, 1).to_vec(),
            [word(0, 1), [0; 4]].concat(),
            [word(0, 1), [255; 4]].concat(),
            vec![1, 2, 3],
        ] {
            let bytes = page(&entries, 0);
            let mut page = LAYOUT.begin(&bytes, 0).unwrap();
            let error = page.next(&bytes, Order::Little).unwrap_err();
            assert_eq!(error.offset, 16);
            assert_eq!(page.next(&bytes, Order::Little), Ok(None));
        }
    }
}
