//! What the events of our own CTF exports mean (`kymo export --to ctf`).
//!
//! The exporter writes one class of events for each thing that the event model knows, on byte
//! boundaries and with names as labels, so that other tools read it. Here it is read back: the
//! calls, threads and interrupts are those of the trace that was exported. What CTF has words for
//! (lost events, lost packets) stands in the packets, and is the CTF reader's to tell.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::metadata::{Metadata, Scope};
use kymo_ctf::{Message, StreamReader, Trace};
use kymo_event::{
    Addr, ClockGap, Cpu, Duration, EventKind, Field, Function, Gap, Irq, RecordingCause, ThreadId,
    TraceInfo, Value,
};
use kymo_wire::event::METADATA_STREAM;

use super::{Meaning, env_text, hex_bytes, labels};
use crate::fields::Collector;
use crate::native::StreamKind;

/// Whether this is the metadata of one of our exports.
pub(crate) fn is_export(metadata: &Metadata) -> bool {
    env_text(metadata, "tracer_name") == Some("kymo-export")
}

/// When time 0 of the exported trace was, in nanoseconds since 1970 in UTC, if that is known.
pub(crate) fn origin(metadata: &Metadata) -> Option<i64> {
    env_text(metadata, "kymo_origin_ns")?.parse().ok()
}

/// The meaning of a record; `None` for what the packets have told already.
pub(crate) fn meaning(record: &kymo_ctf::Event<'_>) -> Option<Meaning> {
    let context = |name| {
        let value = record.field_of(Scope::StreamEventContext, name)?;
        value.as_i64().filter(|value| *value != UNKNOWN)
    };
    let kind = kind(record).unwrap_or(EventKind::Other);
    if matches!(kind, EventKind::Gap(Gap::Overwritten { .. })) {
        return None;
    }
    Some(Meaning {
        name: (record.name() == "other")
            .then(|| text(record, "name"))
            .flatten(),
        kind,
        cpu: context("cpu")
            .and_then(|cpu| u32::try_from(cpu).ok())
            .map(Cpu),
        thread: context("thread").map(|thread| ThreadId(thread.cast_unsigned())),
        is_record: true,
    })
}

/// The fields of a record: an address and its name apart, and nothing that is empty.
pub(crate) fn fields(record: &kymo_ctf::Event<'_>) -> Vec<Field> {
    let mut fields = Vec::new();
    for field in Collector::of(record, Scope::EventFields) {
        match (&*field.name, field.value) {
            ("more", Value::Text(more)) if more.is_empty() => {}
            ("function", Value::Struct(parts)) => {
                let part = |name| parts.iter().find(|part| part.name == name);
                let number = part("value").map(|part| part.value.clone());
                fields.extend(number.map(|number| Field::new("function", number)));
                fields.extend(part("label").cloned());
            }
            (_, value) => fields.push(Field {
                name: field.name,
                value,
            }),
        }
    }
    fields
}

/// Of a thread or processor: not known.
const UNKNOWN: i64 = -1;

/// What a record means; `None` if it is of no kind that is known, or lacks a field.
fn kind(record: &kymo_ctf::Event<'_>) -> Option<EventKind> {
    let number = |name| record.field_of(Scope::EventFields, name)?.as_u64();
    let function = || number("function").map(Addr);
    let irq = || {
        number("irq")
            .and_then(|irq| u32::try_from(irq).ok())
            .map(Irq)
    };
    Some(match record.name() {
        "enter" => EventKind::Enter {
            function: function()?,
            call_site: number("call_site").map(Addr),
        },
        "exit" => EventKind::Exit {
            function: function(),
        },
        "switched_in" => EventKind::SwitchedIn,
        "switched_out" => EventKind::SwitchedOut,
        "isr_enter" => EventKind::IsrEnter { irq: irq()? },
        "isr_exit" => EventKind::IsrExit { irq: irq() },
        "marker" => EventKind::Marker {
            label: text(record, "label"),
            value: number("value")?,
        },
        "thread_name" => EventKind::ThreadName {
            thread: ThreadId(number("named_thread")?),
            name: text(record, "thread_name")?,
        },
        "isr_name" => EventKind::IsrName {
            irq: irq()?,
            name: text(record, "irq_name")?,
        },
        "context" => {
            let priority = record.field_of(Scope::EventFields, "priority")?.as_i64()?;
            EventKind::Context {
                priority: i32::try_from(priority).ok()?,
                mode: u32::try_from(number("mode")?).ok()?,
            }
        }
        "recording" => EventKind::Recording {
            on: number("on")? != 0,
            cause: cause(&text(record, "cause")?),
        },
        "setjmp" => EventKind::SetJmp {
            env: Addr(number("jmp_buf")?),
        },
        "longjmp" => EventKind::LongJmp {
            env: Addr(number("jmp_buf")?),
        },
        "wall_clock" => EventKind::WallClock {
            unix_ns: number("ns")?,
            uncertainty_ns: u32::try_from(number("uncertainty")?).ok()?,
        },
        "gap" => EventKind::Gap(gap(
            &text(record, "kind")?,
            number("amount"),
            number("offset")?,
            text(record, "message")?,
        )?),
        _ => return None,
    })
}

/// The text in a field of the payload.
fn text(record: &kymo_ctf::Event<'_>, name: &str) -> Option<String> {
    let value = record.field_of(Scope::EventFields, name)?;
    Some(value.text()?.into_owned())
}

fn cause(word: &str) -> RecordingCause {
    [
        RecordingCause::Build,
        RecordingCause::Function,
        RecordingCause::Command,
    ]
    .into_iter()
    .find(|cause| cause.name() == word)
    .unwrap_or(RecordingCause::Unknown)
}

/// A gap of this kind; how much is missing is an amount of what the kind counts, and none where
/// that is not known.
fn gap(kind: &str, amount: Option<u64>, offset: u64, message: String) -> Option<Gap> {
    let amount = amount.filter(|amount| *amount != u64::MAX);
    let duration = Duration(amount.unwrap_or(0));
    Some(match kind {
        "discarded" => Gap::Discarded { events: amount },
        "lost_packets" => Gap::LostPackets { packets: amount },
        "overwritten" => Gap::Overwritten {
            packets: amount.unwrap_or(0),
        },
        "in_interrupt" => Gap::InInterrupt {
            depth: u32::try_from(amount?).ok()?,
        },
        "clock" => Gap::Clock(ClockGap { at_least: duration }),
        "time_backward" => Gap::TimeBackward { by: duration },
        "damage" => Gap::Damage {
            offset,
            bytes: amount,
            message,
        },
        _ => return None,
    })
}

/// Whether a stream of an export holds only what is to be known once: it is that of a recording of Kymo's own.
pub(crate) fn is_timeless(metadata: &Metadata, file: &str) -> bool {
    let native = env_text(metadata, "kymo_format") == Some("kymo");
    is_export(metadata) && native && file == StreamKind::Metadata.file_name(METADATA_STREAM)
}

/// So many names are taken from an export: a hostile one must not fill the memory.
const NAMES_LISTED: usize = 100_000;

/// Adds what an export says of the trace as a whole, which was found below `directory`; its streams
/// are those of `info` from number `first` on.
///
/// Names of threads and whom a stream belongs to stand in the streams: what is needed of each is
/// looked at beforehand.
pub(crate) fn describe(trace: &Trace, directory: &Path, first: usize, info: &mut TraceInfo) {
    let metadata = trace.metadata();
    if let Some(base) = env_text(metadata, "kymo_text_base").and_then(address) {
        info.text_base = Some(base);
    }
    if let Some(id) = env_text(metadata, "kymo_build_id").and_then(hex_bytes) {
        info.build_id = Some(id);
    }
    let mut functions = BTreeMap::new();
    let mut interrupts = BTreeMap::new();
    for (number, label) in ["enter", "exit"]
        .into_iter()
        .flat_map(|event| labels(metadata, event, "function"))
    {
        // Where there is no name, the address stands for it.
        if address(label) != Some(Addr(number)) {
            functions.insert(Addr(number), label);
        }
    }
    for (number, label) in labels(metadata, "isr_enter", "irq") {
        // Interrupts are labelled with their number and, if they have one, their name.
        if let Ok(irq) = u32::try_from(number).map(Irq)
            && let Some(name) = label.strip_prefix(&format!("IRQ {irq} "))
        {
            interrupts.insert(irq, name.to_owned());
        }
    }
    let functions = functions.into_iter().map(|(address, name)| Function {
        address,
        name: name.to_owned(),
    });
    info.functions.extend(functions);
    info.functions.sort_by_key(|function| function.address);

    let streams = info.streams.iter_mut().skip(first);
    for (stream, file) in streams.zip(trace.stream_names()) {
        // What cannot be opened is told when the streams are.
        let Ok(bytes) = File::open(directory.join(trace.name()).join(file)) else {
            continue;
        };
        let mut reader = StreamReader::new(Arc::clone(trace.plan()), bytes);
        if is_timeless(metadata, file) {
            stream.timeless = true;
            let mut count = 0;
            while let Some(Meaning { kind, .. }) = next(&mut reader)
                && count < NAMES_LISTED
            {
                count += 1;
                match kind {
                    EventKind::ThreadName { thread, name } => info.threads.push((thread, name)),
                    EventKind::IsrName { irq, name } => {
                        interrupts.insert(irq, name);
                    }
                    _ => {}
                }
            }
        } else if file.starts_with("thread-") {
            let first = next(&mut reader).filter(|first| first.cpu.is_none());
            stream.thread = first.and_then(|first| first.thread);
        }
    }
    info.interrupts.extend(interrupts);
}

/// The next event of a stream; `None` at its end, or where it cannot be read.
fn next(reader: &mut StreamReader) -> Option<Meaning> {
    loop {
        if let Message::Event(event) = reader.next_message().ok()??
            && let Some(meaning) = meaning(&event)
        {
            return Some(meaning);
        }
    }
}

/// The address that a text is, if it is one.
fn address(text: &str) -> Option<Addr> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16)
        .ok()
        .map(Addr)
}
