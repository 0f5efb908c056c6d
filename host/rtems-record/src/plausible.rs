//! Plausibility check for items decoded from text. It detects a missing line of base64: items behind it are read from
//! wrong offsets, and only their contents show it.
//!
//! The text has neither line numbers nor checksums. Behind a missing line, items soon contain data that no target
//! sends: unknown event numbers, header items, processors and losses with a time. One in six of such items does, so the
//! first of them is seldom the first wrong one. Therefore the [`IN_DOUBT`] items in front of it are dropped as well,
//! and items wait until that many are behind them. The check does not find losses of whole items. In 64-bit big-endian
//! streams, a wrong number consists of the upper bits of a time, which can be a valid event for long. There, only the
//! end of the stream, which does not match the item size, may show the loss.

use crate::EventId;
use crate::stream::{ByteOrder, Format, WordSize};

/// Number of items in front of an impossible one that may be wrong.
const IN_DOUBT: usize = 64;

/// Bytes of a dump that are waiting to be read, and the state of the check.
#[derive(Debug, Default)]
pub(crate) struct Plausible {
    bytes: Vec<u8>,
    /// Number of bytes that were checked.
    seen: usize,
    /// Format, once the first eight bytes (format and magic number) were checked; `None` inside if they are not a
    /// stream's.
    format: Option<Option<Format>>,
    version: u32,
    cpus: u64,
    /// Whether the items of a processor have begun.
    started: bool,
    /// Length of the header in bytes.
    head: usize,
    /// Whether the item before was [`EventId::PROCESSOR`].
    behind_processor: bool,
    /// For each event number, whether its items are valid anywhere behind the header. Set once the version is known.
    /// For most items this table is the whole check.
    ordinary: Vec<bool>,
}

impl Plausible {
    /// Checks more bytes. If one of the items is not a target's, returns how many bytes [are to be read](Self::take) in
    /// front of the damage, and a message.
    pub fn look(&mut self, bytes: &[u8]) -> Option<(usize, String)> {
        self.bytes.extend_from_slice(bytes);
        if self.format.is_none() {
            let head = self.bytes.first_chunk::<8>()?;
            let [a, b, c, d, ..] = *head;
            self.format = Some(Format::of_word([a, b, c, d]));
            self.seen = head.len();
        }
        let format = self.format.flatten()?;
        loop {
            self.pass_ordinary(format);
            let item = self.bytes.get(self.seen..self.seen + format.item_bytes())?;
            let (time_event, data) = split(item, format)?;
            if let Some(what) = self.item(time_event, data) {
                let message = format!(
                    "expected an item that a target sends, found {what}: a line before it may be missing, and up to \
                     {IN_DOUBT} items before it are left out"
                );
                return Some((self.ready(), message));
            }
            self.seen += format.item_bytes();
        }
    }

    /// Skips the items that are valid by their event numbers alone.
    fn pass_ordinary(&mut self, format: Format) {
        if self.ordinary.is_empty() {
            return;
        }
        let items = self.bytes.get(self.seen..).unwrap_or(&[]);
        let is_ordinary = |item: &&[u8]| {
            let word = match (item.first_chunk(), format.order) {
                (Some(word), ByteOrder::Little) => u32::from_le_bytes(*word),
                (Some(word), ByteOrder::Big) => u32::from_be_bytes(*word),
                (None, _) => return false,
            };
            self.ordinary.get((word & 0x3FF) as usize) == Some(&true)
        };
        let items = items.chunks_exact(format.item_bytes());
        let count = items.take_while(is_ordinary).count();
        if count > 0 {
            self.seen += count * format.item_bytes();
            self.behind_processor = false;
        }
    }

    /// Returns how many bytes can be read now.
    pub fn ready(&self) -> usize {
        match self.format {
            None => 0,
            Some(None) => self.bytes.len(),
            Some(Some(format)) => {
                let waiting = IN_DOUBT * format.item_bytes();
                self.head.max(self.seen.saturating_sub(waiting))
            }
        }
    }

    /// Removes and returns this number of bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.bytes.len());
        self.seen = self.seen.saturating_sub(count);
        self.head = self.head.saturating_sub(count);
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Removes and returns all bytes.
    pub fn take_all(&mut self) -> Vec<u8> {
        self.take(usize::MAX)
    }

    /// Returns a description of an impossible item; `None` if it is plausible.
    fn item(&mut self, time_event: u32, data: u64) -> Option<String> {
        let (time, number) = (time_event >> 10, (time_event & 0x3FF) as u16);
        if !self.started && self.version == 0 && number == EventId::VERSION.0 {
            self.version = u32::try_from(data).unwrap_or(0);
        }
        let event = EventId::of_number(number, self.version);
        let behind_processor =
            std::mem::replace(&mut self.behind_processor, event == EventId::PROCESSOR);
        if !self.started {
            match event {
                EventId::PROCESSOR_MAXIMUM => self.cpus = data.saturating_add(1),
                EventId::PROCESSOR => {
                    (self.started, self.head) = (true, self.seen);
                    self.ordinary = ordinary(self.version);
                }
                _ => {}
            }
            return None;
        }
        let what = || Some(event.name(self.version).to_owned());
        match event {
            EventId::PROCESSOR | EventId::PER_CPU_OVERFLOW | EventId::PER_CPU_HEAD if time != 0 => {
                return what();
            }
            EventId::PROCESSOR if data >= self.cpus => {
                return Some(format!("processor {data} of {}", self.cpus));
            }
            EventId::PER_CPU_OVERFLOW if !behind_processor => return what(),
            EventId::PROCESSOR
            | EventId::PER_CPU_OVERFLOW
            | EventId::PER_CPU_HEAD
            | EventId::PER_CPU_TAIL
            | EventId::PER_CPU_DISCARD
            | EventId::THREAD_ID
            | EventId::THREAD_NAME => {}
            event if is_ordinary(event) => {}
            _ => return what(),
        }
        None
    }
}

/// Returns whether an event is valid anywhere behind the header, with any time and data.
fn is_ordinary(event: EventId) -> bool {
    let has_rules = matches!(
        event,
        EventId::PROCESSOR | EventId::PER_CPU_OVERFLOW | EventId::PER_CPU_HEAD
    );
    !has_rules && event.has_time() && !event.is_unused()
}

/// Returns [`is_ordinary`] for each event number.
fn ordinary(version: u32) -> Vec<bool> {
    let numbers = 0..=0x3FF;
    numbers
        .map(|number| is_ordinary(EventId::of_number(number, version)))
        .collect()
}

/// Splits an item into its first word and its data.
fn split(item: &[u8], format: Format) -> Option<(u32, u64)> {
    let (time_event, data) = item.split_first_chunk::<4>()?;
    Some(match (format.word, format.order) {
        (WordSize::Bits32, ByteOrder::Little) => (
            u32::from_le_bytes(*time_event),
            u32::from_le_bytes(*data.first_chunk()?).into(),
        ),
        (WordSize::Bits32, ByteOrder::Big) => (
            u32::from_be_bytes(*time_event),
            u32::from_be_bytes(*data.first_chunk()?).into(),
        ),
        (WordSize::Bits64, ByteOrder::Little) => (
            u32::from_le_bytes(*time_event),
            u64::from_le_bytes(*data.first_chunk()?),
        ),
        (WordSize::Bits64, ByteOrder::Big) => (
            u32::from_be_bytes(*time_event),
            u64::from_be_bytes(*data.first_chunk()?),
        ),
    })
}
