//! Structs of the header, and their construction.

use std::ffi::c_char;

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::element::{
    self, ConditionalResult, Context, ItmMessage, Security, Software, StmKind, TraceOn,
    Transaction, Unsynced,
};
use kymo_coresight::frames::{FrameFormat, TraceId};
use kymo_coresight::instruction::{Class, Purpose};
use kymo_coresight::isa::Isa;
use kymo_coresight::listing::Entry;
use kymo_coresight::{Protocol, Source, etmv3, etmv4, ptm};

/// Converts the header's number of a buffer layout.
pub(crate) fn layout(number: u32) -> Result<FrameFormat, String> {
    Ok(match number {
        0 => FrameFormat::Unformatted,
        1 => FrameFormat::Memory,
        2 => FrameFormat::Tpiu,
        3 => FrameFormat::Dstream,
        _ => return Err(format!("expected a layout from 0 to 3, found {number}")),
    })
}

/// Source: `kymo_coresight_source`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SourceValue {
    protocol: u32,
    is_m_profile: u32,
    registers: [u32; 7],
}

impl SourceValue {
    /// Protocol with the configuration in its registers.
    ///
    /// # Errors
    /// If the number of the protocol is invalid.
    pub(crate) fn protocol(&self) -> Result<Protocol, String> {
        let [first, trace_idr, third, fourth, ..] = self.registers;
        let is_m_profile = self.is_m_profile != 0;
        Ok(match self.protocol {
            0 | 1 => Protocol::EtmV4(etmv4::Config {
                configr: first,
                trace_idr,
                idr0: third,
                idr1: fourth,
                idr2: self.registers[4],
                idr8: self.registers[5],
                devarch: self.registers[6],
                is_ete: self.protocol == 1,
                is_m_profile,
                ..etmv4::Config::default()
            }),
            2 => Protocol::EtmV3(etmv3::Config {
                cr: first,
                trace_idr,
                idr: third,
                ccer: fourth,
                is_m_profile,
            }),
            3 => Protocol::Ptm(ptm::Config {
                cr: first,
                trace_idr,
                idr: third,
                ccer: fourth,
            }),
            4 => Protocol::Stm(TraceId(first as u8 & 0x7f)),
            5 => Protocol::Itm(TraceId(first as u8 & 0x7f)),
            other => return Err(format!("expected a protocol from 0 to 5, found {other}")),
        })
    }
}

const TAKEN: u32 = 1 << 0;
const CONDITIONAL: u32 = 1 << 1;
const BRANCH: u32 = 1 << 2;
const INDIRECT: u32 = 1 << 3;
const CALL: u32 = 1 << 4;
const RETURN: u32 = 1 << 5;
const HAS_ADDRESS: u32 = 1 << 6;
const HAS_CYCLES: u32 = 1 << 7;
const HAS_CONTEXT_ID: u32 = 1 << 8;
const HAS_VMID: u32 = 1 << 9;
const HAS_LEVEL: u32 = 1 << 10;
const HAS_VALUE: u32 = 1 << 11;
const HAS_TIMESTAMP: u32 = 1 << 12;

/// Element: `kymo_coresight_element`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Element {
    offset: u64,
    start: u64,
    end: u64,
    value: u64,
    buffer: u32,
    count: u32,
    number: i32,
    cycles: u32,
    context_id: u32,
    vmid: u32,
    flags: u32,
    kind: u8,
    trace_id: u8,
    isa: u8,
    level: u8,
    security: u8,
    space: u8,
    last_size: u8,
    reserved: u8,
}

impl Element {
    pub(crate) fn new(
        buffer: u32,
        source: &Source,
        offset: u64,
        element: &element::Element,
    ) -> Self {
        use element::Element as From;
        let mut value = Element {
            offset,
            buffer,
            trace_id: source.id.0,
            ..Element::default()
        };
        value.kind = match *element {
            From::NoSync(why) => value.kind(0, unsynced(why)),
            From::TraceOn { why, cycles } => {
                value.cycles(cycles);
                let number = match why {
                    TraceOn::Normal => 0,
                    TraceOn::Overflow => 1,
                    TraceOn::Debug => 2,
                };
                value.kind(1, number)
            }
            From::End(why) => value.kind(2, unsynced(why)),
            From::Context(context) => {
                value.context(&context);
                3
            }
            From::Range(range) => {
                value.range(&range);
                4
            }
            From::RangeWithoutPath { start, next, count } => {
                (value.start, value.end, value.count) = (start, next, count);
                5
            }
            From::NotAccessible { address, space } => {
                (value.start, value.space) = (address, space.0);
                6
            }
            From::AddressUnknown => 7,
            From::Exception {
                number,
                return_address,
                ..
            } => {
                if let Some(address) = return_address {
                    value.start = address;
                    value.flags |= HAS_ADDRESS;
                }
                value.kind(8, number as i32)
            }
            From::ExceptionReturn => 9,
            From::Timestamp {
                value: time,
                cycles,
            } => {
                value.value = time;
                value.cycles(cycles);
                10
            }
            From::Cycles(cycles) => {
                value.cycles(Some(cycles));
                11
            }
            From::Event(number) => value.kind(12, number.map_or(-1, i32::from)),
            From::TimestampMarker => 13,
            From::Transaction(turn) => {
                let number = match turn {
                    Transaction::Init => 0,
                    Transaction::Start => 1,
                    Transaction::Commit => 2,
                    Transaction::Fail => 3,
                };
                value.kind(14, number)
            }
            From::Instrumentation {
                level,
                value: written,
            } => {
                (value.level, value.value) = (level, written);
                value.flags |= HAS_LEVEL;
                15
            }
            From::Conditional { key } => {
                value.value = u64::from(key);
                16
            }
            From::ConditionalResult { key, result } => {
                value.value = u64::from(key);
                let number = match result {
                    ConditionalResult::Failed => 0,
                    ConditionalResult::Passed => 1,
                    ConditionalResult::Unknown => 2,
                    ConditionalResult::Flags(flags) => 0x10 | i32::from(flags),
                };
                value.kind(17, number)
            }
            From::ConditionalFlush => 18,
            From::Data {
                address,
                value: moved,
            } => {
                if let Some(address) = address {
                    value.start = u64::from(address);
                    value.flags |= HAS_ADDRESS;
                }
                if let Some(moved) = moved {
                    value.value = u64::from(moved);
                    value.flags |= HAS_VALUE;
                }
                19
            }
            From::StoreFailed => 20,
            From::DataSuppressed => 21,
            From::Software(software) => value.software(&software),
        };
        value
    }

    /// Stores a message of an STM or ITM: its port or channel in `number`, its data in `value`, the data's size in bits
    /// in `count`.
    fn software(&mut self, software: &Software) -> u8 {
        let (kind, number, value, bits) = match *software {
            Software::Stm(message) => {
                let (master, channel) = message.place.unwrap_or_default();
                let place = i32::from(master) << 16 | i32::from(channel);
                if let Some(timestamp) = message.timestamp {
                    self.start = timestamp;
                    self.flags |= HAS_TIMESTAMP;
                }
                let kind = match message.kind {
                    StmKind::Data if message.is_marker => 23,
                    StmKind::Data => 22,
                    StmKind::Trigger => 24,
                    StmKind::Frequency => 25,
                    StmKind::MasterError | StmKind::GlobalError => 26,
                };
                (kind, place, message.value, u32::from(message.bits))
            }
            Software::Itm { message, .. } => match message {
                ItmMessage::Software { port, value, bytes } => {
                    (27, port as i32, u64::from(value), 8 * u32::from(bytes))
                }
                ItmMessage::Hardware {
                    discriminator,
                    value,
                    bytes,
                } => {
                    let number = i32::from(discriminator);
                    (28, number, u64::from(value), 8 * u32::from(bytes))
                }
                ItmMessage::LocalTimestamp { delay, total, .. } => (29, i32::from(delay), total, 0),
                ItmMessage::GlobalTimestamp(value) => (30, 0, value, 0),
            },
        };
        (self.number, self.value, self.count) = (number, value, bits);
        kind
    }

    fn kind(&mut self, kind: u8, number: i32) -> u8 {
        self.number = number;
        kind
    }

    fn cycles(&mut self, cycles: Option<u32>) {
        if let Some(cycles) = cycles {
            self.cycles = cycles;
            self.flags |= HAS_CYCLES;
        }
    }

    fn context(&mut self, context: &Context) {
        self.isa = isa(context.isa);
        self.cycles(context.cycles);
        self.security = match context.security {
            Security::Secure => 0,
            Security::NonSecure => 1,
            Security::Root => 2,
            Security::Realm => 3,
        };
        let fields = [
            (context.context_id, HAS_CONTEXT_ID),
            (context.vmid, HAS_VMID),
            (context.level.map(u32::from), HAS_LEVEL),
        ];
        for (field, flag) in fields {
            self.flags |= if field.is_some() { flag } else { 0 };
        }
        self.context_id = context.context_id.unwrap_or_default();
        self.vmid = context.vmid.unwrap_or_default();
        self.level = context.level.unwrap_or_default();
    }

    fn range(&mut self, range: &element::Range) {
        (self.start, self.end, self.count) = (range.start, range.end, range.count);
        self.isa = isa(range.isa);
        self.last_size = range.last.size;
        self.cycles(range.cycles);
        let (class, purpose) = (range.last.class, range.last.purpose);
        let is_return = matches!(
            purpose,
            Purpose::Return | Purpose::ExceptionReturn | Purpose::ImpliedReturn
        );
        for (is_set, flag) in [
            (range.is_taken, TAKEN),
            (range.last.is_conditional, CONDITIONAL),
            (matches!(class, Class::Branch | Class::Indirect), BRANCH),
            (class == Class::Indirect, INDIRECT),
            (purpose == Purpose::Call, CALL),
            (is_return, RETURN),
        ] {
            self.flags |= if is_set { flag } else { 0 };
        }
    }
}

fn unsynced(why: Unsynced) -> i32 {
    match why {
        Unsynced::Init => 0,
        Unsynced::Reset => 1,
        Unsynced::Overflow => 2,
        Unsynced::Discard => 3,
        Unsynced::BadPacket => 4,
        Unsynced::BadImage(_) => 5,
        Unsynced::BadOpcode(_) => 6,
        Unsynced::EndOfTrace => 7,
        Unsynced::Truncated => 8,
        Unsynced::Partial => 9,
        Unsynced::Collision => 10,
    }
}

fn isa(isa: Isa) -> u8 {
    match isa {
        Isa::A32 => 0,
        Isa::T32 => 1,
        Isa::A64 => 2,
        Isa::ThumbEe => 3,
        Isa::Jazelle => 4,
        Isa::Unknown => 5,
    }
}

/// Packet: `kymo_coresight_packet`.
#[derive(Debug)]
#[repr(C)]
pub struct Packet {
    offset: u64,
    bytes: *const u8,
    size: usize,
    text: *const c_char,
    buffer: u32,
    trace_id: u8,
    reserved: [u8; 3],
}

impl Packet {
    /// Creates a packet. `text` ends with a zero byte; the text and the packet's bytes must outlive the packet.
    pub(crate) fn new(buffer: u32, entry: &Entry<'_>, text: &str) -> Self {
        Packet {
            offset: entry.offset,
            bytes: entry.bytes.as_ptr(),
            size: entry.bytes.len(),
            text: text.as_ptr().cast(),
            buffer,
            trace_id: entry.id.0,
            reserved: [0; 3],
        }
    }
}

/// Run: `kymo_coresight_run`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Run {
    start: u64,
    end: u64,
    executions: u64,
    taken: u64,
    count: u32,
    thread: u32,
    isa: u8,
    last_size: u8,
    reserved: [u8; 6],
}

impl Run {
    pub(crate) fn new(run: &counts::Run) -> Self {
        Run {
            start: run.start,
            end: run.end,
            executions: run.executions,
            taken: run.taken,
            count: run.count,
            thread: run.thread.unwrap_or_default(),
            isa: isa(run.isa),
            last_size: run.last.size,
            reserved: [0; 6],
        }
    }
}

/// Totals of all sources: `kymo_coresight_totals`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Totals {
    packets: u64,
    ranges: u64,
    instructions: u64,
    exceptions: u64,
    without_path: u64,
    not_accessible: u64,
    unsynced: u64,
}

impl Totals {
    pub(crate) fn new(counts: &Counts) -> Self {
        let doubts = &counts.doubts;
        Totals {
            packets: counts.packets,
            ranges: counts.ranges,
            instructions: counts.instructions,
            exceptions: counts.exceptions,
            without_path: counts.without_path,
            not_accessible: doubts
                .not_accessible
                .values()
                .map(|place| place.count)
                .sum(),
            unsynced: doubts.unsynced.values().map(|place| place.count).sum(),
        }
    }
}
