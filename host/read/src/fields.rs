//! Fields of CTF events as fields of the event model.

use kymo_ctf::metadata::{Base, Scope, Value64};
use kymo_ctf::{Container, Visitor};
use kymo_event::{Field, Value};

/// Collects the fields of a scope, nested as they are.
#[derive(Default)]
pub(crate) struct Collector {
    /// What is complete.
    fields: Vec<Field>,
    /// The containers that are open, from the outermost on, with what they hold so far.
    open: Vec<(String, Vec<Field>)>,
}

impl Collector {
    /// The fields of one scope of an event.
    pub(crate) fn of(event: &kymo_ctf::Event<'_>, scope: Scope) -> Vec<Field> {
        let mut collector = Self::default();
        event.visit(scope, &mut collector);
        collector.fields
    }

    fn put(&mut self, name: String, value: Value) {
        let fields = self
            .open
            .last_mut()
            .map_or(&mut self.fields, |(_, fields)| fields);
        fields.push(Field::new(name, value));
    }
}

impl<'a> Visitor<'a> for Collector {
    fn value(&mut self, name: &'a str, value: kymo_ctf::Value<'a>) {
        self.put(name.to_owned(), plain(&value));
    }

    fn begin(&mut self, name: &'a str, _: Container) {
        self.open.push((name.to_owned(), Vec::new()));
    }

    fn end(&mut self, container: Container) {
        let Some((name, mut fields)) = self.open.pop() else {
            return;
        };
        let value = match container {
            Container::Struct => Value::Struct(fields),
            Container::Array(_) => {
                Value::List(fields.into_iter().map(|field| field.value).collect())
            }
            // Only the chosen option, or the field that may be missing, is in it.
            Container::Variant | Container::Optional => {
                fields.pop().map_or(Value::None, |field| field.value)
            }
        };
        self.put(name, value);
    }
}

/// The payload's fields, then those of the contexts, if there are any, under `context`.
pub(crate) fn all(event: &kymo_ctf::Event<'_>) -> Vec<Field> {
    let mut fields = Collector::of(event, Scope::EventFields);
    let mut context = Collector::of(event, Scope::StreamEventContext);
    context.extend(Collector::of(event, Scope::EventContext));
    if !context.is_empty() {
        fields.push(Field::new("context", Value::Struct(context)));
    }
    fields
}

/// A value without others in it. An enumeration keeps its number beside the label.
fn plain(value: &kymo_ctf::Value<'_>) -> Value {
    match value {
        kymo_ctf::Value::Integer {
            value: number,
            class,
            ..
        } => {
            let number = match *number {
                Value64::Unsigned(number) if class.base == Base::Hexadecimal => Value::Hex(number),
                Value64::Unsigned(number) => Value::Unsigned(number),
                Value64::Signed(number) => Value::Signed(number),
            };
            match value.label() {
                Some(label) => Value::Struct(vec![
                    Field::new("label", label),
                    Field::new("value", number),
                ]),
                None => number,
            }
        }
        kymo_ctf::Value::Float { value, .. } => Value::Real(*value),
        kymo_ctf::Value::Boolean(value) => Value::Bool(*value),
        kymo_ctf::Value::Bits { value, .. } => Value::Hex(*value),
        kymo_ctf::Value::Blob { bytes, .. } => Value::Bytes(bytes.to_vec()),
        kymo_ctf::Value::Absent => Value::None,
        kymo_ctf::Value::Text { .. } => Value::Text(value.text().unwrap_or_default().into_owned()),
    }
}
