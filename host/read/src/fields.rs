//! Conversion of CTF event fields to fields of the event model.

use std::borrow::Cow;

use kymo_ctf::metadata::{Base, Scope, Value64};
use kymo_ctf::{Container, Visitor};
use kymo_event::{Event, Field, Value};

/// Pool of texts and lists from events that were handled, for reuse in later events. To allocate a dozen of them for
/// each event takes longer than to decode it.
#[derive(Default)]
pub(crate) struct Pool {
    texts: Vec<String>,
    lists: Vec<Vec<Field>>,
    values: Vec<Vec<Value>>,
}

/// Largest number of each kind in a pool, and largest capacity of one of them in bytes or elements.
const KEPT: usize = 256;
const LARGEST: usize = 256;

impl Pool {
    /// Returns a copy of a text.
    pub(crate) fn text(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let mut own = self.texts.pop().unwrap_or_default();
        own.push_str(text);
        own
    }

    fn list(&mut self) -> Vec<Field> {
        self.lists.pop().unwrap_or_default()
    }

    /// Takes the parts of an event that is no longer needed.
    pub(crate) fn take_back(&mut self, event: Event) {
        self.name(event.name);
        self.fields(event.fields);
    }

    fn name(&mut self, name: Cow<'static, str>) {
        if let Cow::Owned(mut text) = name
            && self.texts.len() < KEPT
            && (1..=LARGEST).contains(&text.capacity())
        {
            text.clear();
            self.texts.push(text);
        }
    }

    fn fields(&mut self, mut fields: Vec<Field>) {
        for field in fields.drain(..) {
            self.name(field.name);
            self.value(field.value);
        }
        if self.lists.len() < KEPT && (1..=LARGEST).contains(&fields.capacity()) {
            self.lists.push(fields);
        }
    }

    fn value(&mut self, value: Value) {
        match value {
            Value::Text(text) => self.name(text.into()),
            Value::Struct(fields) => self.fields(fields),
            Value::List(mut values) => {
                for value in values.drain(..) {
                    self.value(value);
                }
                if self.values.len() < KEPT && (1..=LARGEST).contains(&values.capacity()) {
                    self.values.push(values);
                }
            }
            _ => {}
        }
    }
}

/// Incomplete contents of a container.
enum Open {
    Fields(Vec<Field>),
    Values(Vec<Value>),
}

/// Collector of the fields of a scope, with their nesting.
pub(crate) struct Collector<'p> {
    pool: &'p mut Pool,
    /// Complete fields.
    fields: Vec<Field>,
    /// Open containers, from the outermost to the innermost.
    open: Vec<(String, Open)>,
}

impl Collector<'_> {
    /// Returns the fields of one scope of an event.
    pub(crate) fn of(event: &kymo_ctf::Event<'_>, scope: Scope) -> Vec<Field> {
        Collector::collect(event, [scope], &mut Pool::default())
    }

    /// Returns the fields of several scopes, one after the other.
    fn collect<const N: usize>(
        event: &kymo_ctf::Event<'_>,
        scopes: [Scope; N],
        pool: &mut Pool,
    ) -> Vec<Field> {
        let mut collector = Collector {
            fields: pool.list(),
            pool,
            open: Vec::new(),
        };
        for scope in scopes {
            event.visit(scope, &mut collector);
        }
        collector.fields
    }

    fn put(&mut self, name: String, value: Value) {
        let fields = match self.open.last_mut() {
            None => &mut self.fields,
            Some((_, Open::Fields(fields))) => fields,
            Some((_, Open::Values(values))) => return values.push(value),
        };
        fields.push(Field::new(name, value));
    }
}

impl<'a> Visitor<'a> for Collector<'_> {
    fn value(&mut self, name: &'a str, value: kymo_ctf::Value<'a>) {
        let value = plain(&value, self.pool);
        // Elements have the name of their array, and need none.
        let element = matches!(self.open.last(), Some((_, Open::Values(_))));
        let name = if element { "" } else { name };
        let name = self.pool.text(name);
        self.put(name, value);
    }

    fn begin(&mut self, name: &'a str, container: Container) {
        let open = match container {
            Container::Array(_) => Open::Values(self.pool.values.pop().unwrap_or_default()),
            _ => Open::Fields(self.pool.list()),
        };
        self.open.push((self.pool.text(name), open));
    }

    fn end(&mut self, container: Container) {
        let Some((name, open)) = self.open.pop() else {
            return;
        };
        let value = match open {
            Open::Values(values) => Value::List(values),
            Open::Fields(fields) if container == Container::Struct => Value::Struct(fields),
            // It holds only the chosen option of a variant, or the optional field.
            Open::Fields(mut fields) => {
                let chosen = fields.pop().map_or(Value::None, |field| field.value);
                self.pool.fields(fields);
                chosen
            }
        };
        self.put(name, value);
    }
}

/// Returns the payload fields, then those of the contexts as one field `context`, if there are any.
pub(crate) fn all(event: &kymo_ctf::Event<'_>, pool: &mut Pool) -> Vec<Field> {
    let mut fields = Collector::collect(event, [Scope::EventFields], pool);
    let contexts = [Scope::StreamEventContext, Scope::EventContext];
    let context = Collector::collect(event, contexts, pool);
    if context.is_empty() {
        pool.fields(context);
    } else {
        fields.push(Field::new("context", Value::Struct(context)));
    }
    fields
}

/// Converts a value that contains no others. An enumeration keeps its number next to the label.
fn plain(value: &kymo_ctf::Value<'_>, pool: &mut Pool) -> Value {
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
                Some(label) => {
                    let mut fields = pool.list();
                    fields.push(Field::new("label", pool.text(label)));
                    fields.push(Field::new("value", number));
                    Value::Struct(fields)
                }
                None => number,
            }
        }
        kymo_ctf::Value::Float { value, .. } => Value::Real(*value),
        kymo_ctf::Value::Boolean(value) => Value::Bool(*value),
        kymo_ctf::Value::Bits { value, .. } => Value::Hex(*value),
        kymo_ctf::Value::Blob { bytes, .. } => Value::Bytes(bytes.to_vec()),
        kymo_ctf::Value::Absent => Value::None,
        kymo_ctf::Value::Text { .. } => Value::Text(match value.text() {
            Some(Cow::Borrowed(text)) => pool.text(text),
            text => text.unwrap_or_default().into_owned(),
        }),
    }
}
