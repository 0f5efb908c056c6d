//! Field formatter for a visitor. It needs no preparation, and formats events without compiled text.

use super::format;
use super::line::Out as _;
use crate::metadata::{Role, Scope};
use crate::read::{Container, Packet, Value, Visitor};

/// Whether a field of a packet context describes the packet and is not shown: those with a role, except the CPU.
pub(super) fn is_hidden(role: Option<Role>) -> bool {
    role.is_some_and(|role| role != Role::CpuId)
}

/// Writes the fields of an event, one scope after the other.
pub(super) struct Fields<'o> {
    out: &'o mut Vec<u8>,
    /// Whether this is the packet context, whose members with roles are omitted.
    head: bool,
    /// Whether a scope is open.
    begun: bool,
    /// The open container, and its number of fields so far.
    container: Container,
    count: u64,
    /// The same for the enclosing containers.
    outer: Vec<(Container, u64)>,
}

impl<'o> Fields<'o> {
    /// Appends to `out`; no field has been shown yet.
    pub(super) const fn new(out: &'o mut Vec<u8>) -> Self {
        Self {
            out,
            head: false,
            begun: false,
            container: Container::Struct,
            count: 0,
            outer: Vec::new(),
        }
    }

    /// Shows the packet context, without hidden members.
    pub(super) fn packet_context(&mut self, packet: &Packet<'_>) {
        self.scope(Scope::PacketContext);
        packet.visit(Scope::PacketContext, self);
    }

    /// Ends the last scope, if there was one.
    pub(super) fn finish(self) {
        if self.begun {
            self.out.bytes(b" }");
        }
    }

    /// Writes the separator and name before a field.
    #[inline]
    fn name(&mut self, name: &str) {
        let out = &mut *self.out;
        out.bytes(if self.count == 0 { b" " } else { b", " });
        match self.container {
            Container::Struct => {
                out.bytes(name.as_bytes());
                out.bytes(b" = ");
            }
            Container::Array(_) => {
                out.byte(b'[');
                format::decimal(out, self.count);
                out.bytes(b"] = ");
            }
            Container::Variant | Container::Optional => {}
        }
        self.count += 1;
    }
}

impl<'a> Visitor<'a> for Fields<'_> {
    fn scope(&mut self, scope: Scope) {
        let before: &[u8] = if self.begun { b" }, {" } else { b"{" };
        self.out.bytes(before);
        (self.begun, self.count) = (true, 0);
        self.head = scope == Scope::PacketContext;
    }

    fn value(&mut self, name: &'a str, value: Value<'a>) {
        if self.head
            && self.outer.is_empty()
            && matches!(value, Value::Integer { class, .. } if is_hidden(class.role))
        {
            return;
        }
        self.name(name);
        let out = &mut *self.out;
        match value {
            Value::Integer {
                value,
                class,
                mappings: None,
            } => format::integer(out, value, class),
            Value::Integer {
                value,
                class,
                mappings: Some(mappings),
            } => {
                format::enumeration(out, value, class, mappings);
            }
            Value::Float { value, .. } => format::float(out, value),
            Value::Boolean(value) => format::boolean(out, value),
            Value::Bits { value, flags, .. } => format::bits(out, value, flags),
            Value::Blob { bytes, .. } => format::blob(out, bytes),
            Value::Absent => out.bytes(b"<none>"),
            Value::Text { bytes, encoding } if encoding.unit() == 1 => format::quoted(out, bytes),
            Value::Text { .. } => {
                format::quoted(out, value.text().unwrap_or_default().as_bytes());
            }
        }
    }

    fn begin(&mut self, name: &'a str, container: Container) {
        self.name(name);
        self.out.byte(match container {
            Container::Array(_) => b'[',
            Container::Struct | Container::Variant | Container::Optional => b'{',
        });
        self.outer.push((self.container, self.count));
        (self.container, self.count) = (container, 0);
    }

    fn end(&mut self, container: Container) {
        if let Some(outer) = self.outer.pop() {
            (self.container, self.count) = outer;
        }
        self.out.bytes(match container {
            Container::Array(_) => b" ]",
            Container::Struct | Container::Variant | Container::Optional => b" }",
        });
    }
}
