//! JSON objects of packets and elements of hardware trace, the same in all subcommands.
//!
//! Each object begins with the members of [`Place`]: `type`, `buffer`, `offset`, `trace_id`, `cpu`, and, except for
//! packets, `process`, `thread`, `command` and `timestamp`. Its content follows in further members. Numbers that may
//! have 64 bits (addresses, and values that software wrote) also appear as `NAME_hex`.

use std::borrow::Cow;
use std::rc::Rc;

use kymo_coresight::Source;
use kymo_coresight::element::{
    ConditionalResult, Element, ItmMessage, Software, StmKind, Transaction,
};
use kymo_coresight::exception::Exceptions;
use kymo_coresight::instruction::{Class, Purpose};
use kymo_coresight::listing::{Entry, Value};
use kymo_coresight::memory::Scene;
use kymo_coresight::selection::Tracker;
use kymo_export::json::Object;

use super::Opened;
use super::program::{Program, Programs};

/// The origin of an object, from which its first members are made.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The trace buffer.
    pub buffer: &'a str,
    /// The trace unit.
    pub source: &'a Source,
    /// Offset of the packet in the buffer.
    pub offset: u64,
}

impl Place<'_> {
    fn begin(&self, kind: &str, object: &mut Object<'_>) {
        object
            .member("type", kind)
            .member("buffer", self.buffer)
            .member("offset", self.offset)
            .member("trace_id", self.source.id.0)
            .member("cpu", self.source.cpu);
    }
}

/// Writes the running thread, and the last timestamp.
fn thread(opened: &Opened, tracker: &Tracker<'_>, object: &mut Object<'_>) {
    let thread = tracker.thread();
    let known = thread.and_then(|thread| opened.threads.get(&thread));
    object
        .member("process", known.map(|known| known.process))
        .member("thread", thread)
        .member("command", known.map(|known| known.name.as_str()))
        .member("timestamp", tracker.time());
}

/// The common begin of objects of instructions.
#[derive(Debug, Default)]
pub struct Prefix {
    /// The complete text, for the last offset.
    text: Vec<u8>,
    /// The length of the part before the offset, and the part after it.
    head: usize,
    tail: Vec<u8>,
    offset: Option<u64>,
}

impl Prefix {
    /// Updates the thread and the time.
    pub fn set(&mut self, place: Place<'_>, opened: &Opened, tracker: &Tracker<'_>) {
        self.text.clear();
        let mut object = Object::begin(&mut self.text);
        object
            .member("type", "instruction")
            .member("buffer", place.buffer)
            .with("offset", |_| {});
        self.head = self.text.len();
        self.tail.clear();
        let mut object = Object::begin(&mut self.tail);
        object
            .member("trace_id", place.source.id.0)
            .member("cpu", place.source.cpu);
        thread(opened, tracker, &mut object);
        // A comma replaces the brace, because the text continues after the offset.
        if let Some(first) = self.tail.first_mut() {
            *first = b',';
        }
        self.offset = None;
    }

    /// The text before the members of an instruction from a packet at this offset.
    pub fn at(&mut self, offset: u64) -> &[u8] {
        if self.offset != Some(offset) {
            self.text.truncate(self.head);
            kymo_export::json::Json::write(&offset, &mut self.text);
            self.text.extend_from_slice(&self.tail);
            self.offset = Some(offset);
        }
        &self.text
    }
}

/// Writes a packet as an object. `scratch` is a temporary buffer.
pub fn packet(place: Place<'_>, entry: &Entry<'_>, scratch: &mut String, out: &mut Vec<u8>) {
    scratch.clear();
    // Writing into a String cannot fail.
    let _ = entry.describe(scratch);
    let (name, meaning) = scratch.split_once(':').unwrap_or((scratch, ""));
    let mut object = Object::begin(out);
    place.begin("packet", &mut object);
    object
        .member("name", name.trim())
        .member("text", meaning.trim())
        .member("bytes", super::hex(entry.bytes).as_str())
        .object("fields", |fields| {
            for (name, value) in entry.packet.values(&entry.source.protocol) {
                match value {
                    Value::Number(value) => fields.member(name, value),
                    Value::Signed(value) => fields.member(name, value),
                    Value::Bits(value) => both(fields, name, value),
                    Value::Flag(value) => fields.member(name, value),
                    Value::Text(value) => fields.member(name, &*value),
                };
            }
        });
    object.end();
}

/// A number, and as hexadecimal text.
fn both<'a, 'o>(
    object: &'o mut Object<'a>,
    name: &str,
    value: impl Into<Option<u64>>,
) -> &'o mut Object<'a> {
    let value = value.into();
    let hex = value.map(|value| format!("{value:#x}"));
    object
        .member(name, value)
        .member(&format!("{name}_hex"), hex.as_deref())
}

/// The program and function of an element.
#[derive(Debug)]
pub struct Named {
    function: Option<Rc<str>>,
    file: Rc<Program>,
}

impl Named {
    /// Returns the program and function of an element's first address, if it has one.
    pub fn of(programs: &mut Programs, code: Scene<'_>, element: &Element) -> Option<Self> {
        let address = match *element {
            Element::Range(range) => range.start,
            Element::RangeWithoutPath { start, .. } => start,
            Element::Exception { return_address, .. } => return_address?,
            _ => return None,
        };
        let place = programs.place(code, address)?;
        Some(Self {
            function: programs
                .function(Some(&place), address)
                .map(|within| within.function),
            file: Rc::clone(&place.program),
        })
    }
}

/// Writes an element as an object.
pub fn element(
    place: Place<'_>,
    opened: &Opened,
    tracker: &Tracker<'_>,
    named: Option<&Named>,
    element: &Element,
    out: &mut Vec<u8>,
) {
    let mut object = Object::begin(out);
    place.begin(name(element), &mut object);
    thread(opened, tracker, &mut object);
    members(place.source, element, &mut object);
    if let Some(named) = named {
        object
            .member("file", named.file.path.as_str())
            .member("function", named.function.as_deref());
    }
    object.end();
}

fn members(source: &Source, element: &Element, object: &mut Object<'_>) {
    match *element {
        Element::NoSync(why) | Element::End(why) => {
            object.member("why", why.name());
        }
        Element::TraceOn { why, cycles } => {
            object.member("why", why.name()).member("cycles", cycles);
        }
        Element::Context(context) => {
            object
                .member("isa", context.isa.short_name())
                .member("exception_level", context.level)
                .member("security", context.security.name())
                .member("aarch64", context.is_64_bit)
                .member("vmid", context.vmid)
                .member("context_id", context.context_id)
                .member("cycles", context.cycles);
        }
        Element::Range(range) => {
            both(object, "start", range.start);
            both(object, "end", range.end)
                .member("instructions", range.count)
                .member("isa", range.isa.short_name())
                .member("last", class(range.last.class))
                .member("last_size", range.last.size)
                .member("purpose", purpose(range.last.purpose))
                .member("conditional", range.last.is_conditional)
                .member("taken", range.is_taken)
                .member("cycles", range.cycles);
        }
        Element::RangeWithoutPath { start, next, count } => {
            both(object, "start", start);
            both(object, "next", next).member("instructions", count);
        }
        Element::NotAccessible { address, space } => {
            both(object, "address", address).member("space", space.name());
        }
        Element::Exception {
            number,
            return_address,
            is_branch_target,
            ..
        } => {
            let exceptions = Exceptions::of(&source.protocol);
            let name: Option<Cow<'_, str>> = exceptions.map(|known| known.name(number));
            object
                .member("exception", number)
                .member("exception_name", name.as_deref());
            both(object, "return_address", return_address)
                .member("branch_target", is_branch_target);
        }
        Element::Timestamp { value, cycles } => {
            both(object, "value", value).member("cycles", cycles);
        }
        Element::Cycles(cycles) => {
            object.member("cycles", cycles);
        }
        Element::Event(number) => {
            object
                .member("number", number)
                .member("trigger", number.is_none());
        }
        Element::Transaction(turn) => {
            let turn = match turn {
                Transaction::Init => "init",
                Transaction::Start => "start",
                Transaction::Commit => "commit",
                Transaction::Fail => "fail",
            };
            object.member("turn", turn);
        }
        Element::Instrumentation { level, value } => {
            object.member("exception_level", level);
            both(object, "value", value);
        }
        Element::Conditional { key } => {
            object.member("key", key);
        }
        Element::ConditionalResult { key, result } => {
            let (passed, flags) = match result {
                ConditionalResult::Failed => (Some(false), None),
                ConditionalResult::Passed => (Some(true), None),
                ConditionalResult::Unknown => (None, None),
                ConditionalResult::Flags(flags) => (None, Some(flags)),
            };
            object
                .member("key", key)
                .member("passed", passed)
                .member("nzcv", flags);
        }
        Element::Data { address, value } => {
            both(object, "address", address.map(u64::from));
            both(object, "value", value.map(u64::from));
        }
        Element::Software(software) => message(&software, object),
        Element::AddressUnknown
        | Element::ExceptionReturn
        | Element::TimestampMarker
        | Element::ConditionalFlush
        | Element::StoreFailed
        | Element::DataSuppressed => {}
    }
}

/// The members of a message of an STM or ITM.
fn message(software: &Software, object: &mut Object<'_>) {
    match *software {
        Software::Stm(message) => {
            let kind = match message.kind {
                StmKind::Data => "data",
                StmKind::Trigger => "trigger",
                StmKind::Frequency => "frequency",
                StmKind::MasterError => "master_error",
                StmKind::GlobalError => "global_error",
            };
            object
                .member("kind", kind)
                .member("master", message.place.map(|(master, _)| master))
                .member("channel", message.place.map(|(_, channel)| channel));
            both(object, "value", (message.bits > 0).then_some(message.value))
                .member("bits", message.bits)
                .member("marker", message.is_marker)
                .member("message_timestamp", message.timestamp);
        }
        Software::Itm {
            message,
            overflowed,
        } => {
            object.member("overflowed", overflowed);
            match message {
                ItmMessage::Software { port, value, bytes } => {
                    object.member("kind", "software").member("port", port);
                    both(object, "value", u64::from(value)).member("bits", 8 * u64::from(bytes))
                }
                ItmMessage::Hardware {
                    discriminator,
                    value,
                    bytes,
                } => {
                    object
                        .member("kind", "hardware")
                        .member("discriminator", discriminator);
                    both(object, "value", u64::from(value)).member("bits", 8 * u64::from(bytes))
                }
                ItmMessage::LocalTimestamp {
                    ticks,
                    delay,
                    total,
                } => object
                    .member("kind", "local_timestamp")
                    .member("ticks", ticks)
                    .member("delay", delay)
                    .member("message_timestamp", total),
                ItmMessage::GlobalTimestamp(value) => object
                    .member("kind", "global_timestamp")
                    .member("message_timestamp", value),
            };
        }
    }
}

/// The `type` of an element.
fn name(element: &Element) -> &'static str {
    match element {
        Element::NoSync(_) => "no_sync",
        Element::End(_) => "end",
        Element::TraceOn { .. } => "trace_on",
        Element::Context(_) => "context",
        Element::Range(_) => "range",
        Element::RangeWithoutPath { .. } => "range_without_path",
        Element::NotAccessible { .. } => "not_accessible",
        Element::AddressUnknown => "address_unknown",
        Element::Exception { .. } => "exception",
        Element::ExceptionReturn => "exception_return",
        Element::Timestamp { .. } => "timestamp",
        Element::Cycles(_) => "cycles",
        Element::Event(_) => "event",
        Element::TimestampMarker => "timestamp_marker",
        Element::Transaction(_) => "transaction",
        Element::Instrumentation { .. } => "instrumentation",
        Element::Conditional { .. } => "conditional",
        Element::ConditionalResult { .. } => "conditional_result",
        Element::ConditionalFlush => "conditional_flush",
        Element::Data { .. } => "data",
        Element::StoreFailed => "store_failed",
        Element::DataSuppressed => "data_suppressed",
        Element::Software(Software::Stm(_)) => "stm",
        Element::Software(Software::Itm { .. }) => "itm",
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Other => "other",
        Class::Branch => "branch",
        Class::Indirect => "indirect_branch",
        Class::Isb => "isb",
        Class::Barrier => "barrier",
        Class::Wait => "wait",
        Class::TransactionStart => "transaction_start",
        Class::Access => "access",
    }
}

fn purpose(purpose: Purpose) -> Option<&'static str> {
    match purpose {
        Purpose::None | Purpose::Compare => None,
        Purpose::Call => Some("call"),
        Purpose::Return | Purpose::ImpliedReturn => Some("return"),
        Purpose::ExceptionReturn => Some("exception_return"),
    }
}
