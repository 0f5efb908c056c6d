//! Fields of an exported event: the names for its class, the values for its bytes.

use std::borrow::Cow;

use kymo_event::{Field, Value};

use super::classes::{FieldOf, Type, identifier};
use super::syscalls;

/// Builder of an event's fields.
pub(super) struct Record<'a> {
    pub fields: &'a mut Vec<FieldOf>,
    pub bytes: &'a mut Vec<u8>,
}

impl Record<'_> {
    fn name(&mut self, name: impl Into<Cow<'static, str>>, of_type: Type) {
        self.fields.push((name.into(), of_type));
    }

    pub fn int32(&mut self, name: &'static str, value: i32) {
        self.name(name, Type::Int32);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn long(&mut self, name: impl Into<Cow<'static, str>>, of_type: Type, value: u64) {
        self.name(name, of_type);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn text(&mut self, name: impl Into<Cow<'static, str>>, text: &str) {
        self.name(name, Type::Text);
        self.bytes.extend(text.bytes().filter(|byte| *byte != 0));
        self.bytes.push(0);
    }

    pub fn comm(&mut self, name: &'static str, comm: [u8; 16]) {
        self.name(name, Type::Comm);
        self.bytes.extend(comm);
    }

    /// Adds a number as a field of a system call.
    pub fn number(&mut self, name: impl Into<Cow<'static, str>>, of_type: Type, value: u64) {
        match of_type {
            Type::Int32 | Type::Uint32 => {
                self.name(name, of_type);
                self.bytes.extend((value as u32).to_le_bytes());
            }
            Type::Text | Type::Comm => self.text(name, &format!("{value:#x}")),
            Type::Int64 | Type::Uint64 | Type::Hex64 => self.long(name, of_type, value),
        }
    }

    /// Adds a field of a Linux system call: where LTTng has a text, ftrace has its address.
    pub fn own_field(&mut self, field: &Field) {
        match (syscalls::is_text(&field.name), &field.value) {
            (true, Value::Hex(address) | Value::Unsigned(address)) => {
                self.number(field.name.clone(), Type::Text, *address);
            }
            _ => self.field(field),
        }
    }

    /// Adds a field of the source.
    pub fn field(&mut self, field: &Field) {
        let name = identifier(field.name.clone());
        // Two fields of one name could not be distinguished.
        if self.fields.iter().any(|(known, _)| *known == name) {
            return;
        }
        match &field.value {
            Value::Unsigned(value) => self.long(name, Type::Uint64, *value),
            Value::Hex(value) => self.long(name, Type::Hex64, *value),
            Value::Signed(value) => self.long(name, Type::Int64, *value as u64),
            Value::Text(text) => self.text(name, text),
            other => self.text(name, &other.to_string()),
        }
    }
}
