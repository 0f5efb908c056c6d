//! Conversion of ftrace fields to fields of the event model.

use kymo_event::{Field, Value};
use kymo_ftrace::{EventFormat, FieldFormat, Scope};

/// Returns the event's own fields, then in `context` those that all events have: its flags as `trace` shows them, and
/// its task.
pub(super) fn all(event: &EventFormat, scope: &Scope<'_>, data: &[u8], pid: i32) -> Vec<Field> {
    let mut printed = scope.printed(event, data);
    let own = event.fields.iter().map(|field| {
        // The arguments alone are not useful.
        let text = printed.take_if(|_| field.name == "buf").map(Value::Text);
        let value = text.unwrap_or_else(|| value(field, scope, data));
        Field::new(field.name.clone(), value)
    });
    let mut fields: Vec<_> = own.collect();
    let byte = |at| data.get(at).copied().unwrap_or(0);
    let mut flags = String::new();
    kymo_ftrace::latency(byte(2), byte(3), &mut flags);
    fields.push(Field::new(
        "context",
        Value::Struct(vec![
            Field::new("flags", flags),
            Field::new("pid", i64::from(pid)),
        ]),
    ));
    fields
}

fn value(field: &FieldFormat, scope: &Scope<'_>, data: &[u8]) -> Value {
    // A pointer to a kernel function, which the kernel frees after the boot.
    if field.type_name == "initcall_t"
        && let Some(symbol) = scope.symbols.find(scope.field(field, data))
    {
        return Value::Text(symbol.name.to_owned());
    }
    if !field.is_array() {
        return number(field, scope.field(field, data), field.size);
    }
    if field.is_text() {
        return Value::Text(scope.text(field, data).into_owned());
    }
    let bytes = scope.bytes(field, data);
    match field.element(scope.long_size) {
        size @ (2 | 4 | 8) => {
            let numbers = bytes.chunks_exact(size);
            Value::List(
                numbers
                    .map(|bytes| number(field, scope.order.number(bytes), size))
                    .collect(),
            )
        }
        _ => Value::Bytes(bytes.to_vec()),
    }
}

fn number(field: &FieldFormat, value: u64, size: usize) -> Value {
    let unused = 64 - 8 * size.clamp(1, 8) as u32;
    match field.signed {
        // Addresses.
        _ if field.pointer => Value::Hex(value),
        true => Value::Signed((value << unused).cast_signed() >> unused),
        false if field.is_long() => Value::Hex(value),
        false => Value::Unsigned(value),
    }
}
