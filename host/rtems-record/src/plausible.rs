//! Whether the items of a text can be a target's: a line of base64 that is missing leaves no trace but what the bytes behind
//! it say, as items are read from other places than they begin at.
//!
//! No number or checksum stands in such a text. Behind a missing line, though, items soon tell what no target says: numbers
//! of no event, the header again, processors and losses with a time. One in six of all items would, so the first of these
//! is seldom the first wrong one: the [`IN_DOUBT`] items before it are left out as well, and wait until then. What is lost
//! in whole items is not found, and in streams of 64 bits, big endian, a wrong number is made of the upper bits of a time, which can
//! be an event's for long: there the end of the stream, which does not fit, may be the first that tells.

use crate::EventId;
use crate::stream::{ByteOrder, Format, WordSize};

/// So many items before an impossible one may be wrong.
const IN_DOUBT: usize = 64;

/// Bytes of a dump that were looked at, and are still to be read.
#[derive(Debug, Default)]
pub(crate) struct Plausible {
    bytes: Vec<u8>,
    /// How many of them were looked at.
    seen: usize,
    /// Whether format and magic number were, which are no items; `None` inside if they are no stream's.
    format: Option<Option<Format>>,
    version: u32,
    cpus: u64,
    /// Whether the items of a processor have begun.
    started: bool,
    /// Up to where the bytes are of the header.
    head: usize,
    /// Whether the item before was [`EventId::PROCESSOR`].
    behind_processor: bool,
    /// Which numbers of events can stand anywhere behind the header, whatever else an item holds; known once the
    /// version is, which is all that is looked at of most items.
    ordinary: Vec<bool>,
}

impl Plausible {
    /// Looks at more bytes. If one of them can be no target's, how many [are to be read](Self::take) before the damage, and
    /// what is wrong.
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

    /// Passes the items whose numbers alone say that nothing is wrong with them.
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

    /// How many bytes can be read by now.
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

    /// Takes so many bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let count = count.min(self.bytes.len());
        self.seen = self.seen.saturating_sub(count);
        self.head = self.head.saturating_sub(count);
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Takes all of them.
    pub fn take_all(&mut self) -> Vec<u8> {
        self.take(usize::MAX)
    }

    /// What is wrong with an item, if anything is.
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

/// Whether an event can stand anywhere behind the header, whatever its item's time and data.
fn is_ordinary(event: EventId) -> bool {
    let has_rules = matches!(
        event,
        EventId::PROCESSOR | EventId::PER_CPU_OVERFLOW | EventId::PER_CPU_HEAD
    );
    !has_rules && event.has_time() && !event.is_unused()
}

/// [`is_ordinary`] for each number that an item can hold.
fn ordinary(version: u32) -> Vec<bool> {
    let numbers = 0..=0x3FF;
    numbers
        .map(|number| is_ordinary(EventId::of_number(number, version)))
        .collect()
}

/// The two parts of an item.
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
