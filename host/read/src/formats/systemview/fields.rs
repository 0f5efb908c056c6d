//! Names and fields of packets for display.

use kymo_event::{Field, Quantity, Value};
use kymo_systemview::{Packet, Text, Varints};

use super::descriptions::TEXT;
use super::meaning::{Meaning, text};

/// Returns the name of a packet.
pub(super) fn name(meaning: &Meaning, packet: &Packet<'_>) -> String {
    match packet {
        Packet::Event { id, .. } => event_name(meaning, *id),
        packet => packet.name().to_owned(),
    }
}

/// Returns the name of an event from its description.
pub(super) fn event_name(meaning: &Meaning, id: u32) -> String {
    match meaning.descriptions.event(id) {
        Some(event) => event.name.clone(),
        None => format!("event {id}"),
    }
}

/// Returns the fields of a packet. `task` converts a task id.
pub(super) fn of(
    meaning: &Meaning,
    packet: &Packet<'_>,
    task: &dyn Fn(u32) -> Value,
) -> Vec<Field> {
    let ids = meaning.names.ids;
    let address = |id: u32| Value::Hex(ids.address(id).into());
    let number = |value: u32| Value::Unsigned(value.into());
    let list = |fields: &[(&'static str, Value)]| {
        let fields = fields.iter().cloned();
        fields
            .map(|(name, value)| Field::new(name, value))
            .collect()
    };
    match *packet {
        Packet::Nop
        | Packet::IsrExit
        | Packet::TaskStopExec
        | Packet::TraceStart
        | Packet::TraceStop
        | Packet::Idle
        | Packet::IsrToScheduler
        | Packet::TimerExit => Vec::new(),
        Packet::Overflow { total } => list(&[("total", number(total))]),
        Packet::IsrEnter { irq } => list(&[("irq", number(irq))]),
        Packet::TaskStartExec { task: id }
        | Packet::TaskStartReady { task: id }
        | Packet::TaskCreate { task: id }
        | Packet::TaskTerminate { task: id } => list(&[("task", task(id))]),
        Packet::TaskStopReady { task: id, cause } => {
            let cause = match meaning.descriptions.cause(cause) {
                Some(name) => Value::from(name),
                None => number(cause),
            };
            list(&[("task", task(id)), ("cause", cause)])
        }
        Packet::TaskInfo {
            task: id,
            priority,
            name,
        } => list(&[
            ("task", task(id)),
            ("priority", number(priority)),
            ("name", text(name).into()),
        ]),
        Packet::SystemTimeCycles { cycles } => list(&[("cycles", number(cycles))]),
        Packet::SystemTimeUs { us } => list(&[("us", us.into())]),
        Packet::SystemDescription { text: it } => list(&[("text", text(it).into())]),
        Packet::MarkStart { id } | Packet::MarkStop { id } | Packet::Mark { id } => {
            list(&[("id", number(id))])
        }
        Packet::TimerEnter { timer } => list(&[("timer", address(timer))]),
        Packet::StackInfo {
            task: id,
            base,
            size,
            usage,
        } => list(&[
            ("task", task(id)),
            ("base", Value::Hex(base.into())),
            ("size", number(size)),
            ("usage", number(usage)),
        ]),
        Packet::ModuleDescription {
            module,
            offset,
            text: it,
        } => list(&[
            ("module", number(module)),
            ("offset", number(offset)),
            ("text", text(it).into()),
        ]),
        Packet::DataSample { id, value } => {
            let (name, kind) = match meaning.names.data.get(&id) {
                Some((name, kind)) => (Value::from(name.as_str()), Some(*kind)),
                None => (number(id), None),
            };
            list(&[("id", name), ("value", sample(kind, value).into())])
        }
        Packet::Init {
            frequency,
            cpu_frequency,
            ids,
        } => list(&[
            ("frequency", number(frequency)),
            ("cpu_frequency", number(cpu_frequency)),
            ("ram_base", Value::Hex(ids.base.into())),
            ("id_shift", number(ids.shift)),
        ]),
        Packet::NameResource { resource, name } => {
            list(&[("resource", address(resource)), ("name", text(name).into())])
        }
        Packet::Print {
            format, options, ..
        } => {
            let arguments = packet.values().map(number).collect();
            list(&[
                ("format", text(format).into()),
                ("options", number(options)),
                ("arguments", Value::List(arguments)),
            ])
        }
        Packet::ModuleCount { count } => list(&[("count", number(count))]),
        Packet::EndCall { id, value } => {
            let mut fields: Vec<Field> = list(&[("call", event_name(meaning, id).into())]);
            if let Some(value) = value {
                let event = meaning.descriptions.event(id);
                let format = event.and_then(|event| event.returns.as_deref());
                let value = shown(meaning, format.unwrap_or("u"), value, task);
                fields.push(Field::new("returns", value));
            }
            fields
        }
        Packet::NameMarker { id, name } => list(&[("id", number(id)), ("name", text(name).into())]),
        Packet::HeapDefine {
            heap,
            base,
            size,
            metadata,
        } => list(&[
            ("heap", heap_name(meaning, heap)),
            ("base", address(base)),
            ("size", number(ids.size(size))),
            ("metadata_size", number(metadata)),
        ]),
        Packet::HeapAlloc {
            heap,
            block,
            size,
            tag,
        } => {
            let mut fields: Vec<Field> = list(&[
                ("heap", heap_name(meaning, heap)),
                ("block", address(block)),
                ("size", number(ids.size(size))),
            ]);
            fields.extend(tag.map(|tag| Field::new("tag", number(tag))));
            fields
        }
        Packet::HeapFree { heap, block } => list(&[
            ("heap", heap_name(meaning, heap)),
            ("block", address(block)),
        ]),
        Packet::RegisterData { id, name, rest } => {
            let mut fields = list(&[("id", number(id)), ("name", text(name).into())]);
            fields.extend(registered(rest));
            fields
        }
        Packet::Extended { id, payload } => list(&[
            ("id", number(id)),
            ("payload", Value::Bytes(payload.to_vec())),
        ]),
        Packet::Event { id, payload } => arguments(meaning, id, payload, task),
        _ => Vec::new(),
    }
}

/// Types of registered values (`SEGGER_SYSVIEW_DATA_TYPE`). Others are unsigned.
const SIGNED: u32 = 1;
const FLOAT: u32 = 2;

/// Converts a sample to its registered type, or to its raw bits without a registration. Does not scale it: whether
/// SystemView adds the registered offset before or after it multiplies is not documented.
pub(super) fn sample(kind: Option<u32>, value: u32) -> Quantity {
    match kind {
        Some(SIGNED) => Quantity::Signed(value.cast_signed().into()),
        Some(FLOAT) => Quantity::Real(f32::from_bits(value).into()),
        _ => Quantity::Unsigned(value.into()),
    }
}

/// Returns the fields of a registration behind the name, as far as they exist.
fn registered(rest: &[u8]) -> Vec<Field> {
    let mut numbers = Varints::new(rest);
    let signed = |value: u32| Value::Signed(value.cast_signed().into());
    let kind = |value| match value {
        0 => "u32".into(),
        SIGNED => "i32".into(),
        FLOAT => "float".into(),
        other => Value::Unsigned(other.into()),
    };
    let float = |value| Value::Real(f32::from_bits(value).into());
    let shown: [(&'static str, &dyn Fn(u32) -> Value); 5] = [
        ("type", &kind),
        ("offset", &signed),
        ("range_min", &signed),
        ("range_max", &signed),
        ("scaling_factor", &float),
    ];
    let mut fields = Vec::new();
    for (name, show) in shown {
        match numbers.next() {
            Some(number) => fields.push(Field::new(name, show(number))),
            None => return fields,
        }
    }
    if let Some((length, unit)) = numbers.rest().split_first()
        && let Some(unit) = unit.get(..usize::from(*length))
    {
        fields.push(Field::new("unit", text(Text(unit))));
    }
    fields
}

fn heap_name(meaning: &Meaning, heap: u32) -> Value {
    match meaning.names.resources.get(&heap) {
        Some(name) => Value::from(name.as_str()),
        None => Value::Hex(meaning.names.ids.address(heap).into()),
    }
}

/// Returns the fields of a described event, as far as they are described.
fn arguments(
    meaning: &Meaning,
    id: u32,
    payload: &[u8],
    task: &dyn Fn(u32) -> Value,
) -> Vec<Field> {
    let described = meaning.descriptions.event(id);
    let parameters = described.map_or(&[][..], |event| &event.parameters);
    let mut rest = Varints::new(payload);
    let mut fields: Vec<Field> = Vec::new();
    // ESP-IDF names all callers of an allocation `caller`. JSON members and table columns need distinct names.
    let named = |name: &str, fields: &[Field]| {
        let first = match name {
            "" => format!("arg{}", fields.len()),
            name => name.to_owned(),
        };
        let is_new = |name: &str| fields.iter().all(|field| field.name != name);
        if is_new(&first) {
            return first;
        }
        let mut numbered = (2..).map(|number| format!("{first}{number}"));
        numbered.find(|name| is_new(name)).unwrap_or_default()
    };
    for (name, format) in parameters {
        let value = if format == TEXT {
            let bytes = rest.rest();
            let Some((length, behind)) = bytes.split_first() else {
                break;
            };
            let (text, behind) = behind.split_at(usize::from(*length).min(behind.len()));
            rest = Varints::new(behind);
            Value::Text(String::from_utf8_lossy(text).into_owned())
        } else {
            match rest.next() {
                Some(value) => shown(meaning, format, value, task),
                None => break,
            }
        };
        fields.push(Field::new(named(name, &fields), value));
    }
    for value in rest.by_ref() {
        fields.push(Field::new(
            named("", &fields),
            Value::Unsigned(value.into()),
        ));
    }
    if !rest.rest().is_empty() {
        fields.push(Field::new("rest", Value::Bytes(rest.rest().to_vec())));
    }
    fields
}

/// Converts a value in the format of a description.
fn shown(meaning: &Meaning, format: &str, value: u32, task: &dyn Fn(u32) -> Value) -> Value {
    match format {
        "t" | "T" => task(value),
        "I" => match meaning.names.resources.get(&value) {
            Some(name) => Value::from(name.as_str()),
            None => Value::Hex(meaning.names.ids.address(value).into()),
        },
        "d" | "i" => Value::Signed(value.cast_signed().into()),
        "p" | "x" | "X" => Value::Hex(value.into()),
        "u" => Value::Unsigned(value.into()),
        of => match meaning.descriptions.value(of, value) {
            Some(name) => Value::from(name),
            None => Value::Unsigned(value.into()),
        },
    }
}
