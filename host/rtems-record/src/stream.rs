//! Decoder of a stream's bytes into items: format, header, processors, thread names.
//!
//! Sources: `cpukit/include/rtems/recorddata.h` and `recordclient.h` for the layout,
//! `cpukit/libtrace/record/record-stream-header.c` for the header.

use crate::chunks::{Chunks, Item, Ring};
use crate::error::Fault;
use crate::event::NUMBERS;
use crate::timeline::Timeline;
use crate::{EventId, ThreadName};

/// Second word of a stream, in the target's byte order.
pub const MAGIC: u32 = 0x82e1_4ec1;

/// Largest number of processors in a stream.
pub const MOST_CPUS: u32 = 32;

/// Largest number of characters of a header text that are kept.
const TEXT: usize = 4096;

/// Largest number of bytes of a thread name that are kept.
const NAME: usize = 256;

/// Word size of the target, which determines the item size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordSize {
    /// Items of 8 bytes.
    #[default]
    Bits32,
    /// Items of 12 bytes.
    Bits64,
}

/// Byte order of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// Little endian.
    #[default]
    Little,
    /// Big endian.
    Big,
}

/// Layout of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Word size.
    pub word: WordSize,
    /// Byte order.
    pub order: ByteOrder,
}

impl Format {
    /// Returns the format of a stream's first word, which reads the same in both byte orders.
    pub const fn of_word(word: [u8; 4]) -> Option<Self> {
        let (word, order) = match u32::from_ne_bytes(word) {
            0x1111_1111 => (WordSize::Bits32, ByteOrder::Little),
            0x2222_2222 => (WordSize::Bits64, ByteOrder::Little),
            0x3333_3333 => (WordSize::Bits32, ByteOrder::Big),
            0x4444_4444 => (WordSize::Bits64, ByteOrder::Big),
            _ => return None,
        };
        Some(Self { word, order })
    }

    /// Returns the size of an item in bytes.
    pub const fn item_bytes(self) -> usize {
        match self.word {
            WordSize::Bits32 => 8,
            WordSize::Bits64 => 12,
        }
    }

    /// Appends the characters in the data of a [`THREAD_NAME`](EventId::THREAD_NAME) item, up to 256 bytes.
    pub fn add_name(self, name: &mut Vec<u8>, data: u64) {
        if name.len() < NAME {
            name.extend(characters(data, self).filter(|character| *character != 0));
        }
    }
}

/// Incomplete name of a thread.
#[derive(Clone, Debug)]
struct Naming {
    id: u64,
    bytes: Vec<u8>,
    is_created: bool,
}

/// Description of the target in a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Layout of items.
    pub format: Format,
    /// Version of the format: 9 or 10.
    pub version: u32,
    /// Number of processors.
    pub cpus: u32,
    /// Number of items in each processor's ring.
    pub ring_items: u64,
    /// Frequency of the counter in Hz.
    pub frequency: u64,
    /// Architecture (`ARM`).
    pub arch: String,
    /// Variant of the libraries that the application was linked with: compiler options.
    pub multilib: String,
    /// Board support package.
    pub bsp: String,
    /// Revision of RTEMS's sources.
    pub version_control_key: String,
    /// Version of the compiler.
    pub tools: String,
}

/// Decoder of a stream.
pub(crate) struct Items {
    header: Header,
    /// Whether format and magic number were read.
    begun: bool,
    /// Event of each number.
    events: Box<[EventId; NUMBERS as usize]>,
    /// First part of an incomplete item.
    part: Vec<u8>,
    /// Offset of the next item.
    offset: u64,
    cpu: usize,
    /// Whether the items of a processor have begun, which ends the header.
    pub started: bool,
    /// Incomplete thread name of each processor.
    naming: Vec<Option<Naming>>,
    /// Complete names that were not taken yet.
    pub names: Vec<ThreadName>,
    /// Version 9: ring positions from the last chunk of each processor.
    rings: Vec<Ring>,
    /// Version 9: chunks whose items may have been overwritten while they were sent.
    chunks: Chunks,
}

/// Splits an item's first word into time and event number.
const fn split(time_event: u32) -> (u32, u16) {
    (time_event >> 10, (time_event & 0x3FF) as u16)
}

impl Items {
    pub fn new() -> Self {
        Self {
            header: Header::default(),
            begun: false,
            events: Box::new([EventId(0); NUMBERS as usize]),
            part: Vec::new(),
            offset: 0,
            cpu: 0,
            started: false,
            naming: Vec::new(),
            names: Vec::new(),
            rings: Vec::new(),
            chunks: Chunks::default(),
        }
    }

    /// Returns the target's description so far.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Returns whether the header has everything that times and processors need.
    pub const fn is_described(&self) -> bool {
        self.header.frequency != 0 && self.header.cpus != 0
    }

    /// Decodes bytes.
    ///
    /// # Errors
    /// A fault with its offset. The items in front of it have been passed on.
    pub fn push(&mut self, mut bytes: &[u8], timeline: &mut Timeline) -> Result<(), Fault> {
        if !self.begun {
            let missing = 8 - self.part.len().min(8);
            let (head, rest) = bytes.split_at(missing.min(bytes.len()));
            self.part.extend_from_slice(head);
            bytes = rest;
            let Some(head) = self.part.first_chunk::<8>().copied() else {
                return Ok(());
            };
            self.begin(head)?;
            self.part.clear();
        }
        let size = self.header.format.item_bytes();
        if !self.part.is_empty() {
            let missing = size - self.part.len();
            let (head, rest) = bytes.split_at(missing.min(bytes.len()));
            self.part.extend_from_slice(head);
            bytes = rest;
            if self.part.len() < size {
                return Ok(());
            }
            let part = std::mem::take(&mut self.part);
            self.run(&part, timeline)?;
        }
        let whole = bytes.len() - bytes.len() % size;
        let (items, part) = bytes.split_at(whole);
        self.run(items, timeline)?;
        self.part.extend_from_slice(part);
        Ok(())
    }

    fn begin(&mut self, head: [u8; 8]) -> Result<(), Fault> {
        let [a, b, c, d, magic @ ..] = head;
        let Some(format) = Format::of_word([a, b, c, d]) else {
            let found = u32::from_le_bytes([a, b, c, d]);
            let message = format!(
                "expected a format word (0x11111111, 0x22222222, 0x33333333 or 0x44444444), found {found:#010x}"
            );
            return Err(self.fault(message));
        };
        let magic = match format.order {
            ByteOrder::Little => u32::from_le_bytes(magic),
            ByteOrder::Big => u32::from_be_bytes(magic),
        };
        if magic != MAGIC {
            self.offset = 4;
            let message = format!("expected the magic number {MAGIC:#x}, found {magic:#010x}");
            return Err(self.fault(message));
        }
        self.header.format = format;
        self.offset = 8;
        self.begun = true;
        Ok(())
    }

    /// Decodes whole items.
    fn run(&mut self, bytes: &[u8], timeline: &mut Timeline) -> Result<(), Fault> {
        match (self.header.format.word, self.header.format.order) {
            (WordSize::Bits32, ByteOrder::Little) => {
                self.items(bytes, timeline, |item: &[u8; 8]| {
                    let [a, b, c, d, data @ ..] = *item;
                    (
                        u32::from_le_bytes([a, b, c, d]),
                        u32::from_le_bytes(data).into(),
                    )
                })
            }
            (WordSize::Bits32, ByteOrder::Big) => self.items(bytes, timeline, |item: &[u8; 8]| {
                let [a, b, c, d, data @ ..] = *item;
                (
                    u32::from_be_bytes([a, b, c, d]),
                    u32::from_be_bytes(data).into(),
                )
            }),
            (WordSize::Bits64, ByteOrder::Little) => {
                self.items(bytes, timeline, |item: &[u8; 12]| {
                    let [a, b, c, d, data @ ..] = *item;
                    (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(data))
                })
            }
            (WordSize::Bits64, ByteOrder::Big) => self.items(bytes, timeline, |item: &[u8; 12]| {
                let [a, b, c, d, data @ ..] = *item;
                (u32::from_be_bytes([a, b, c, d]), u64::from_be_bytes(data))
            }),
        }
    }

    #[inline]
    fn items<const N: usize>(
        &mut self,
        bytes: &[u8],
        timeline: &mut Timeline,
        split_item: impl Fn(&[u8; N]) -> (u32, u64),
    ) -> Result<(), Fault> {
        let (items, _) = bytes.as_chunks::<N>();
        let first = self.offset;
        for (place, item) in items.iter().enumerate() {
            let (time_event, data) = split_item(item);
            let offset = first + (place * N) as u64;
            match self.header.version == 9 && self.header.cpus > 0 {
                true => self.chunk(Item { time_event, data }, offset, timeline)?,
                false => self.item((time_event, data), offset, timeline)?,
            }
        }
        self.offset = first + bytes.len() as u64;
        Ok(())
    }

    /// Handles an item at its offset in the stream.
    #[inline]
    fn item(
        &mut self,
        (time_event, data): (u32, u64),
        offset: u64,
        timeline: &mut Timeline,
    ) -> Result<(), Fault> {
        let (time, number) = split(time_event);
        let event = self.event(number);
        if event.has_time() && event != EventId::UPTIME_HIGH && event != EventId::UPTIME_LOW {
            timeline.item(time, event, data);
            if event == EventId::THREAD_CREATE {
                self.name_next(data, true);
            }
            return Ok(());
        }
        self.offset = offset;
        self.control((time, number), event, data, timeline)
    }

    #[inline]
    fn event(&self, number: u16) -> EventId {
        let event = self.events.get(usize::from(number)).copied();
        event.unwrap_or_default()
    }

    /// Handles an item of version 9 behind the header. It waits until the decoder knows whether it was overwritten.
    fn chunk(&mut self, item: Item, offset: u64, timeline: &mut Timeline) -> Result<(), Fault> {
        let event = self.event(split(item.time_event).1);
        if event == EventId::PROCESSOR {
            let cpu = usize::try_from(item.data).unwrap_or(usize::MAX);
            self.chunks.begin(cpu, offset);
        } else if self.chunks.is_empty() {
            return self.item((item.time_event, item.data), offset, timeline);
        }
        let has_room = self.chunks.push(event, item);
        match event {
            EventId::PROCESSOR | EventId::PER_CPU_HEAD => self.take_chunks(false, timeline),
            _ if !has_room => self.take_chunks(true, timeline),
            _ => Ok(()),
        }
    }

    /// Reads the chunks that have waited long enough, or all of them if the stream has ended.
    fn take_chunks(&mut self, ended: bool, timeline: &mut Timeline) -> Result<(), Fault> {
        let size = self.header.format.item_bytes() as u64;
        while let Some((chunk, lost)) = self.chunks.take(ended) {
            let mut missing = 0;
            for (place, item) in chunk.items.iter().enumerate() {
                if lost.get(place) == Some(&true) {
                    missing += 1;
                    continue;
                }
                if missing > 0 {
                    timeline.overflow(std::mem::take(&mut missing), false);
                }
                let offset = chunk.offset + place as u64 * size;
                let read = self.item((item.time_event, item.data), offset, timeline);
                if read.is_err() {
                    // Nothing behind the fault is read.
                    self.chunks.clear();
                    return read;
                }
            }
            if missing > 0 {
                timeline.overflow(missing, false);
            }
        }
        Ok(())
    }

    /// Handles an item that describes the stream itself.
    #[inline(never)]
    fn control(
        &mut self,
        (time, number): (u32, u16),
        event: EventId,
        data: u64,
        timeline: &mut Timeline,
    ) -> Result<(), Fault> {
        if self.header.version == 0 {
            self.version(number, data)?;
            timeline.untimed(EventId::VERSION, data);
            return Ok(());
        }
        let event = match self.header.cpus {
            // The table of events is empty until the number of processors is known.
            0 => EventId::of_number(number, self.header.version),
            _ => event,
        };
        if self.header.cpus == 0 && event.has_time() {
            let maximum = EventId::PROCESSOR_MAXIMUM.number(self.header.version);
            let message = format!(
                "expected the number of processors (event {} of version {}), found event {number}",
                maximum.unwrap_or(0),
                self.header.version
            );
            return Err(self.fault(message));
        }
        if event != EventId::THREAD_NAME {
            self.end_name();
        }
        match event {
            EventId::UPTIME_LOW | EventId::UPTIME_HIGH => {
                timeline.uptime(time, event, data);
                return Ok(());
            }
            EventId::VERSION => {
                return Err(self.fault("expected one version, found another one".to_owned()));
            }
            EventId::PROCESSOR_MAXIMUM => self.processors(data, timeline)?,
            EventId::PER_CPU_COUNT => self.ring(data, timeline)?,
            EventId::FREQUENCY => {
                if data == 0 {
                    let message = "expected the counter's frequency in Hz, found 0".to_owned();
                    return Err(self.fault(message));
                }
                self.header.frequency = data;
                timeline.set_frequency(data);
            }
            EventId::PROCESSOR => {
                self.processor(data, timeline)?;
                return Ok(());
            }
            EventId::ARCH => self.text(data, |header| &mut header.arch),
            EventId::BSP => self.text(data, |header| &mut header.bsp),
            EventId::MULTILIB => self.text(data, |header| &mut header.multilib),
            EventId::TOOLS => self.text(data, |header| &mut header.tools),
            EventId::VERSION_CONTROL_KEY => {
                self.text(data, |header| &mut header.version_control_key);
            }
            EventId::THREAD_ID => self.name_next(data, false),
            EventId::THREAD_NAME => self.name(data),
            EventId::PER_CPU_OVERFLOW => {
                timeline.overflow(data, true);
                return Ok(());
            }
            EventId::PER_CPU_TAIL => {
                if let Some(ring) = self.rings.get_mut(self.cpu) {
                    ring.tail = data as u32;
                }
            }
            EventId::PER_CPU_HEAD => {
                timeline.untimed(event, data);
                let size = u32::try_from(self.header.ring_items).unwrap_or(u32::MAX);
                let ring = self.rings.get_mut(self.cpu);
                let lost = ring.map_or(0, |ring| ring.lost_before(data as u32, size));
                if lost > 0 {
                    timeline.overflow(lost, false);
                }
                return Ok(());
            }
            _ => {}
        }
        timeline.untimed(event, data);
        Ok(())
    }

    fn version(&mut self, number: u16, data: u64) -> Result<(), Fault> {
        if number != EventId::VERSION.0 {
            let message = format!("expected the version (event 1), found event {number}");
            return Err(self.fault(message));
        }
        let version = match data {
            9 => 9,
            10 => 10,
            _ => {
                let message = format!("expected version 9 or 10, found {data}");
                return Err(self.fault(message));
            }
        };
        self.header.version = version;
        Ok(())
    }

    fn processors(&mut self, data: u64, timeline: &mut Timeline) -> Result<(), Fault> {
        if self.header.cpus != 0 {
            let message = "expected one number of processors, found another one".to_owned();
            return Err(self.fault(message));
        }
        let cpus = data
            .checked_add(1)
            .and_then(|cpus| u32::try_from(cpus).ok());
        let Some(cpus) = cpus.filter(|cpus| *cpus <= MOST_CPUS) else {
            let message = format!(
                "expected at most {MOST_CPUS} processors, found {}",
                u128::from(data) + 1
            );
            return Err(self.fault(message));
        };
        self.header.cpus = cpus;
        for (number, event) in (0..).zip(self.events.iter_mut()) {
            *event = EventId::of_number(number, self.header.version);
        }
        self.naming = vec![None; cpus as usize];
        self.rings = vec![Ring::default(); cpus as usize];
        timeline.set_cpus(cpus);
        Ok(())
    }

    fn ring(&mut self, data: u64, timeline: &mut Timeline) -> Result<(), Fault> {
        if self.header.ring_items != 0 {
            let message = "expected one size of rings, found another one".to_owned();
            return Err(self.fault(message));
        }
        self.header.ring_items = data;
        self.chunks.set_ring(data);
        timeline.set_ring(data);
        Ok(())
    }

    fn processor(&mut self, data: u64, timeline: &mut Timeline) -> Result<(), Fault> {
        if !self.is_described() {
            let message = "expected the number of processors and the counter's frequency before the first items of a processor, found none".to_owned();
            return Err(self.fault(message));
        }
        let cpu = usize::try_from(data).unwrap_or(usize::MAX);
        if cpu >= self.header.cpus as usize {
            let message = format!(
                "expected a processor from 0 to {}, found {data}",
                self.header.cpus - 1
            );
            return Err(self.fault(message));
        }
        self.cpu = cpu;
        self.started = true;
        timeline.switch_to(cpu, data);
        Ok(())
    }

    /// Appends characters to a header text. The first is in the lowest bits on every target.
    fn text(&mut self, data: u64, text: impl Fn(&mut Header) -> &mut String) {
        let characters = characters(data, self.header.format);
        let text = text(&mut self.header);
        let room = TEXT.saturating_sub(text.len());
        text.extend(
            characters
                .take_while(|character| *character != 0)
                .take(room)
                .map(|byte| {
                    if byte.is_ascii() {
                        char::from(byte)
                    } else {
                        '\u{fffd}'
                    }
                }),
        );
    }

    /// Starts a thread's name.
    fn name_next(&mut self, id: u64, is_created: bool) {
        self.end_name();
        if let Some(naming) = self.naming.get_mut(self.cpu) {
            *naming = Some(Naming {
                id,
                bytes: Vec::new(),
                is_created,
            });
        }
    }

    fn name(&mut self, data: u64) {
        if let Some(Some(naming)) = self.naming.get_mut(self.cpu) {
            self.header.format.add_name(&mut naming.bytes, data);
        }
    }

    /// Completes a thread's name.
    fn end_name(&mut self) {
        let naming = self.naming.get_mut(self.cpu).and_then(Option::take);
        if let Some(naming) = naming.filter(|naming| !naming.bytes.is_empty()) {
            self.names.push(ThreadName {
                id: naming.id,
                name: String::from_utf8_lossy(&naming.bytes).into_owned(),
                is_created: naming.is_created,
            });
        }
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// A fault if the stream is incomplete.
    pub fn finish(&mut self, timeline: &mut Timeline) -> Result<(), Fault> {
        let end = self.offset;
        self.take_chunks(true, timeline)?;
        self.offset = end;
        for cpu in 0..self.naming.len() {
            self.cpu = cpu;
            self.end_name();
        }
        let size = self.header.format.item_bytes();
        let part = self.part.len();
        if !self.begun {
            let message =
                format!("expected a format word and a magic number of 8 bytes, found {part}");
            return Err(self.fault(message));
        }
        if part > 0 {
            let message = format!("expected an item of {size} bytes, found {part}");
            return Err(self.fault(message));
        }
        if !self.is_described() {
            let message = "expected the number of processors and the counter's frequency, found the end of the stream"
                .to_owned();
            return Err(self.fault(message));
        }
        Ok(())
    }

    /// Creates a fault at the next item.
    pub const fn fault(&self, message: String) -> Fault {
        Fault {
            offset: self.offset,
            decoded: false,
            message,
        }
    }
}

/// Returns the characters in a data word.
fn characters(data: u64, format: Format) -> impl Iterator<Item = u8> {
    let count = match format.word {
        WordSize::Bits32 => 4,
        WordSize::Bits64 => 8,
    };
    data.to_le_bytes().into_iter().take(count)
}
