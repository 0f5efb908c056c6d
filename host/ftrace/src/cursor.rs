//! Cursor over the records of one CPU, whose pages are in the file as they are or in compressed chunks.

use crate::decompress::{Compression, Unpacker};
use crate::page::{Lost, Page, PageLayout};
use crate::{Error, Order};

/// Location of a CPU's pages in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuData {
    /// The CPU.
    pub cpu: u32,
    /// File offset of its first page.
    pub offset: u64,
    /// Size of its pages in the file, in bytes.
    pub size: u64,
    /// Compression of its pages. A compressed chunk holds several pages.
    pub compression: Compression,
}

/// Largest overlap of page times, in ticks, that is not reported as damage.
const SLACK: u64 = 1_000_000;

/// A record of a CPU.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Timestamp in ticks of the trace clock.
    pub ticks: u64,
    /// Data, padded to a multiple of four bytes.
    pub data: &'a [u8],
    /// Offset in the file. For compressed data, the chunk's file offset plus the offset in the decompressed chunk.
    pub offset: u64,
}

/// Result of [`CpuCursor::advance`].
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// A record, which [`CpuCursor::record`] returns.
    Record,
    /// Events are missing here.
    Lost(Lost),
    /// Bytes that could not be read, and their number. Reading continues behind them.
    Damage(Error, u64),
    /// No more records.
    End,
}

/// Position among the records of a CPU.
#[derive(Clone, Debug)]
pub struct CpuCursor {
    data: CpuData,
    layout: PageLayout,
    page_size: usize,
    /// Number of consumed bytes of the file.
    used: u64,
    /// Number of compressed chunks that follow; unknown before the first one.
    chunks: Option<u32>,
    /// Decompressed pages of the current chunk.
    chunk: Vec<u8>,
    unpacker: Unpacker,
    /// Start of the current page (in the chunk, if compressed, else in the file), and its file offset.
    page_start: usize,
    page_offset: u64,
    page: Page,
    /// Size of the current page in bytes; 0 before the first page.
    page_bytes: usize,
    /// The current page is cut, and its loss has to be reported first.
    pending_cut: bool,
    /// Error for a page whose time does not fit between those of the pages around it.
    wrong_time: Option<Error>,
    ticks: u64,
    start: usize,
    length: usize,
}

impl CpuCursor {
    /// Creates a cursor before the first record.
    pub fn new(data: CpuData, layout: PageLayout, page_size: usize) -> Self {
        Self {
            data,
            layout,
            page_size: page_size.max(layout.data + 4),
            used: 0,
            chunks: None,
            chunk: Vec::new(),
            unpacker: Unpacker::default(),
            page_start: 0,
            page_offset: 0,
            page: Page::default(),
            page_bytes: 0,
            pending_cut: false,
            wrong_time: None,
            ticks: 0,
            start: 0,
            length: 0,
        }
    }

    /// The CPU.
    pub const fn cpu(&self) -> u32 {
        self.data.cpu
    }

    /// Returns the timestamp of the current record, in ticks of the trace clock.
    #[inline]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    fn source<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        match self.data.compression {
            Compression::None => file,
            _ => &self.chunk,
        }
    }

    fn page_slice<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        let rest = self.source(file).get(self.page_start..).unwrap_or_default();
        rest.get(..self.page_bytes).unwrap_or(rest)
    }

    /// Returns the current record. `file` must be the same bytes in every call.
    #[inline]
    pub fn record<'a>(&'a self, file: &'a [u8]) -> Record<'a> {
        let page = self.page_slice(file);
        Record {
            ticks: self.ticks,
            data: page
                .get(self.start..self.start + self.length)
                .unwrap_or_default(),
            offset: self.page_offset + self.start as u64,
        }
    }

    /// Advances to the next record if it follows on the current page, as nearly all do. Otherwise changes nothing.
    #[inline(always)]
    pub(crate) fn step(&mut self, file: &[u8]) -> bool {
        let source = match self.data.compression {
            Compression::None => file,
            _ => &self.chunk,
        };
        let page = source.get(self.page_start..self.page_start + self.page_bytes);
        let entry = page.and_then(|page| self.page.plain(page, self.layout.order));
        let Some(entry) = entry else { return false };
        self.ticks = entry.time;
        self.start = entry.start;
        self.length = entry.length;
        true
    }

    /// Passes the records that follow on the current page to `take`, until `take` returns `false` or an entry needs
    /// [`advance`](Self::advance). The last record passed becomes the current one.
    #[inline(always)]
    pub(crate) fn run<'a>(&'a mut self, file: &'a [u8], mut take: impl FnMut(Record<'a>) -> bool) {
        let source = match self.data.compression {
            Compression::None => file,
            _ => &self.chunk,
        };
        let Some(bytes) = source.get(self.page_start..self.page_start + self.page_bytes) else {
            return;
        };
        let (mut page, order, base) = (self.page, self.layout.order, self.page_offset);
        let mut last = None;
        while let Some(entry) = page.plain(bytes, order) {
            last = Some(entry);
            let data = bytes.get(entry.start..entry.start + entry.length);
            let record = Record {
                ticks: entry.time,
                data: data.unwrap_or_default(),
                offset: base + entry.start as u64,
            };
            if !take(record) {
                break;
            }
        }
        self.page = page;
        if let Some(entry) = last {
            (self.ticks, self.start, self.length) = (entry.time, entry.start, entry.length);
        }
    }

    /// Advances to the next record, loss or damage.
    pub fn advance(&mut self, file: &[u8]) -> Next {
        loop {
            if let Some(error) = self.wrong_time.take() {
                return Next::Damage(error, 0);
            }
            if self.page_bytes > 0 {
                let source = match self.data.compression {
                    Compression::None => file,
                    _ => &self.chunk,
                };
                let rest = source.get(self.page_start..).unwrap_or_default();
                let page = rest.get(..self.page_bytes).unwrap_or(rest);
                match self.page.next(page, self.layout.order) {
                    Ok(Some(entry)) => {
                        self.ticks = entry.time;
                        self.start = entry.start;
                        self.length = entry.length;
                        return Next::Record;
                    }
                    Ok(None) => {}
                    Err(mut error) => {
                        let left =
                            self.page_bytes as u64 - error.offset.min(self.page_bytes as u64);
                        error.offset += self.page_offset;
                        return Next::Damage(error, left);
                    }
                }
            }
            match self.next_page(file) {
                Ok(true) => {
                    let lost = std::mem::take(&mut self.page.lost);
                    if lost != Lost::Nothing {
                        return Next::Lost(lost);
                    }
                }
                Ok(false) => return Next::End,
                Err((error, bytes)) => return Next::Damage(error, bytes),
            }
        }
    }

    /// Advances to the next page. Returns `false` behind the last.
    #[inline(never)]
    fn next_page(&mut self, file: &[u8]) -> Result<bool, (Error, u64)> {
        if std::mem::take(&mut self.pending_cut) {
            let error = Error::new(
                self.page_offset,
                "a page that holds no more than it has bytes",
                format!("a page of {} bytes that says to hold more", self.page_bytes),
            );
            return Err((error, 0));
        }
        self.page_start += self.page_bytes;
        self.page_offset += self.page_bytes as u64;
        self.page_bytes = 0;
        let start = match self.data.compression {
            Compression::None => {
                let start = self.data.offset.saturating_add(self.used);
                let left = self.data.size.saturating_sub(self.used);
                if left == 0 {
                    return Ok(false);
                }
                let size = (self.page_size as u64).min(left);
                self.used += size;
                let at = usize::try_from(start).unwrap_or(usize::MAX);
                let there = file.len().saturating_sub(at) as u64;
                if there == 0 {
                    self.used = self.data.size;
                    let expected = format!("{left} bytes of pages of CPU {}", self.data.cpu);
                    return Err((
                        Error::new(file.len() as u64, expected, "the end of the file"),
                        left,
                    ));
                }
                self.page_start = at;
                self.page_offset = start;
                self.page_bytes = size.min(there) as usize;
                start
            }
            _ => {
                if self.page_start >= self.chunk.len() && !self.next_chunk(file)? {
                    return Ok(false);
                }
                self.page_bytes = self.page_size.min(self.chunk.len() - self.page_start);
                self.page_offset
            }
        };
        let page = self.page_slice(file);
        match self.layout.begin(page, start) {
            Ok(page) => {
                self.page = page;
                self.pending_cut = page.is_cut;
                self.check_time(file, start);
                Ok(true)
            }
            Err(error) => {
                let bytes = std::mem::take(&mut self.page_bytes) as u64;
                Err((error, bytes))
            }
        }
    }

    /// Corrects the time of the current page if it is later than the next page's or earlier than the last record's, and
    /// the next page shows that this page is the wrong one. The page then continues at the last record's time, which is
    /// the earliest possible.
    fn check_time(&mut self, file: &[u8], offset: u64) {
        let next = self.page_start + self.page_bytes;
        let is_last = match self.data.compression {
            Compression::None => self.used >= self.data.size,
            _ => next >= self.chunk.len(),
        };
        let next = self.layout.order.u64_at(self.source(file), next);
        let (Some(next), false, before) = (next, is_last || self.ticks == 0, self.ticks) else {
            return;
        };
        let time = self.page.time;
        let is_behind = |one: u64, other: u64| one.saturating_sub(other) > SLACK;
        if (is_behind(time, next) || is_behind(before, time)) && before <= next {
            let expected = format!("the time of a page, from {before} to {next}");
            self.wrong_time = Some(Error::new(offset, expected, time.to_string()));
            self.page.time = before;
        }
    }

    /// Decompresses the next chunk. Returns `false` behind the last.
    fn next_chunk(&mut self, file: &[u8]) -> Result<bool, (Error, u64)> {
        self.chunk.clear();
        self.page_start = 0;
        let order: Order = self.layout.order;
        let at = |used: u64| {
            usize::try_from(self.data.offset.saturating_add(used)).unwrap_or(usize::MAX)
        };
        if self.data.size == 0 {
            return Ok(false);
        }
        let cut = |this: &Self, what: &'static str| {
            let found = "the end of the file or of what belongs to this CPU";
            let left = this.data.size.saturating_sub(this.used);
            (
                Error::new(this.data.offset.saturating_add(this.used), what, found),
                left,
            )
        };
        let mut left = match self.chunks {
            Some(left) => left,
            None => match order.u32_at(file, at(0)) {
                Some(count) => {
                    self.used = 4;
                    count
                }
                None => {
                    self.chunks = Some(0);
                    return Err(cut(self, "the number of compressed chunks"));
                }
            },
        };
        // Skips chunks that hold no page.
        while left > 0 {
            let header = at(self.used);
            let sizes = order
                .u32_at(file, header)
                .zip(order.u32_at(file, header.saturating_add(4)));
            let found = sizes.and_then(|(packed, plain)| {
                let start = header.checked_add(8)?;
                let bytes = file.get(start..start.checked_add(packed as usize)?)?;
                Some((bytes, plain))
            });
            let Some((packed, plain)) = found else {
                self.chunks = Some(0);
                return Err(cut(self, "a compressed chunk"));
            };
            left -= 1;
            self.chunks = Some(left);
            self.page_offset = header as u64 + 8;
            self.used += 8 + packed.len() as u64;
            let place = self.page_offset;
            let result = self.data.compression.decompress(
                (packed, plain),
                place,
                &mut self.unpacker,
                &mut self.chunk,
            );
            if let Err(error) = result {
                // Keeps the whole pages in front of the damage.
                let whole = self.chunk.len() - self.chunk.len() % self.page_size;
                self.chunk.truncate(whole);
                return Err((error, packed.len() as u64));
            }
            if !self.chunk.is_empty() {
                return Ok(true);
            }
        }
        self.chunks = Some(0);
        Ok(false)
    }
}
