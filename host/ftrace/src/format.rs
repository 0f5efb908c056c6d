//! Event formats: the kernel's description of an event's fields (`events/SYSTEM/NAME/format`).

mod eval;
mod lexer;
mod print;
mod printf;

use std::sync::OnceLock;

pub use eval::Scope;
pub(crate) use print::Expr;
pub use print::PrintFormat;
pub(crate) use printf::{Conversion, Piece};

/// Field of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldFormat {
    /// Its name.
    pub name: String,
    /// Type as the kernel writes it, without `__data_loc` and the brackets of an array.
    pub type_name: String,
    /// Offset in the record.
    pub offset: usize,
    /// Size in bytes; 0 for an array that takes the rest of the record.
    pub size: usize,
    /// Whether it is a signed number.
    pub signed: bool,
    /// Whether it holds one value or several, and their location.
    pub shape: Shape,
    /// Whether its type is a pointer.
    pub pointer: bool,
}

/// Number and location of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One value.
    Scalar,
    /// This number of elements, in the field itself; 0 for as many as fill the record.
    Array(usize),
    /// Elements elsewhere in the record: the low half of the field is their offset and the high half their size in
    /// bytes (`__data_loc`).
    Dynamic,
    /// Like `Dynamic`, with an offset from the field's end (`__rel_loc`).
    Relative,
}

impl FieldFormat {
    /// Parses a line `field:char prev_comm[16]; offset:8; size:16; signed:1;`.
    pub(crate) fn parse_line(line: &str) -> Option<Self> {
        let mut parts = line.trim().split(';');
        let declaration = parts.next()?.strip_prefix("field:")?.trim();
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.trim().split_once(':') {
                Some(("offset", value)) => offset = value.trim().parse().ok(),
                Some(("size", value)) => size = value.trim().parse().ok(),
                Some(("signed", value)) => signed = value.trim() == "1",
                _ => {}
            }
        }
        let (offset, size): (usize, usize) = (offset?, size?);
        // No record is that large, and sums must not overflow.
        if offset > MOST_BYTES || size > MOST_BYTES {
            return None;
        }
        let (declaration, located) = match declaration.strip_prefix("__data_loc ") {
            Some(rest) => (rest, Some(Shape::Dynamic)),
            None => match declaration.strip_prefix("__rel_loc ") {
                Some(rest) => (rest, Some(Shape::Relative)),
                None => (declaration, None),
            },
        };
        // `char comm[16]` or, for fields located elsewhere, `char[] name`.
        let (plain, count) = match declaration.find('[') {
            Some(open) => {
                let close = declaration.rfind(']').filter(|close| *close > open)?;
                let inside = declaration.get(open + 1..close)?.trim();
                let plain = [declaration.get(..open)?, declaration.get(close + 1..)?].concat();
                (plain, Some(inside.parse::<usize>().ok()))
            }
            None => (declaration.to_owned(), None),
        };
        let plain = plain.trim_end();
        let name_start = plain.rfind([' ', '*']).map_or(0, |at| at + 1);
        let (type_name, name) = plain.split_at(name_start);
        let type_name = type_name.trim().to_owned();
        let pointer = type_name.ends_with('*');
        let shape = match (located, count) {
            (Some(located), _) => located,
            // Kernels before 5.5 write `char buf` for an array that reaches to the record's end, like `char buf[]`.
            (None, None) if size == 0 => Shape::Array(0),
            (None, None) => Shape::Scalar,
            // A named count (`[NR]`) follows from the sizes.
            (None, Some(count)) => Shape::Array(match count {
                Some(count) => count,
                None => size / element_size(&type_name).unwrap_or(1).max(1),
            }),
        };
        Some(Self {
            name: name.to_owned(),
            type_name,
            offset,
            size,
            signed,
            shape,
            pointer,
        })
    }

    /// Returns whether it has several elements.
    pub const fn is_array(&self) -> bool {
        !matches!(self.shape, Shape::Scalar)
    }

    /// Returns whether its elements are characters.
    pub fn is_text(&self) -> bool {
        self.is_array()
            && (self.type_name.contains("char") || matches!(&*self.type_name, "u8" | "s8"))
    }

    /// Returns whether its type is `long`, which mostly holds addresses.
    pub fn is_long(&self) -> bool {
        self.type_name.contains("long") && !self.type_name.contains("long long")
    }

    /// Returns the size of an element in bytes, on a machine whose `long` has `long_size` bytes.
    pub fn element(&self, long_size: usize) -> usize {
        match self.shape {
            Shape::Scalar => self.size,
            Shape::Array(count) if count > 0 && self.size > 0 => (self.size / count).max(1),
            _ if self.is_long() || self.pointer => long_size,
            _ => element_size(&self.type_name).unwrap_or(1),
        }
    }
}

/// Largest offset, and largest size, of a field in bytes.
const MOST_BYTES: usize = 1 << 20;

/// Returns the size of a type that is the same on all machines.
fn element_size(type_name: &str) -> Option<usize> {
    let plain = type_name.trim_start_matches("const ").trim();
    let plain = plain
        .trim_start_matches("unsigned ")
        .trim_start_matches("signed ");
    Some(match plain {
        "char" | "u8" | "s8" | "__u8" | "__s8" | "uint8_t" | "int8_t" | "bool" => 1,
        "short" | "u16" | "s16" | "__u16" | "__s16" | "uint16_t" | "int16_t" | "__le16"
        | "__be16" => 2,
        "int" | "unsigned" | "u32" | "s32" | "__u32" | "__s32" | "uint32_t" | "int32_t"
        | "__le32" | "__be32" | "pid_t" | "dev_t" => 4,
        "long long" | "u64" | "s64" | "__u64" | "__s64" | "uint64_t" | "int64_t" | "__le64"
        | "__be64" => 8,
        _ => return None,
    })
}

/// Format of an event.
#[derive(Debug)]
pub struct EventFormat {
    /// Subsystem: `sched`.
    pub system: String,
    /// Name: `sched_switch`.
    pub name: String,
    /// Number at the start of its records.
    pub id: u16,
    /// Fields that all events have: `common_type`, `common_flags`, ...
    pub common: Vec<FieldFormat>,
    /// Fields of this event.
    pub fields: Vec<FieldFormat>,
    /// Print format as the kernel has it: `printf` arguments in C source.
    pub print_text: String,
    print: OnceLock<Option<PrintFormat>>,
}

impl EventFormat {
    /// Parses the text of a format file; `None` if it is not one.
    pub fn parse(system: &str, text: &str) -> Option<Self> {
        let (mut name, mut id) = (None, None);
        let (mut common, mut fields) = (Vec::new(), Vec::new());
        let mut print_text = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
            if let Some(value) = line.strip_prefix("name:") {
                name = Some(value.trim().to_owned());
            } else if let Some(value) = line.strip_prefix("ID:") {
                id = value.trim().parse().ok();
            } else if line.trim_start().starts_with("field:") {
                if let Some(field) = FieldFormat::parse_line(line) {
                    match field.name.starts_with("common_") {
                        true => common.push(field),
                        false => fields.push(field),
                    }
                }
            } else if line.starts_with("print fmt:") {
                let all = rest.strip_prefix("print fmt:").unwrap_or_default();
                print_text = all.trim().to_owned();
                break;
            }
            rest = behind;
        }
        Some(Self {
            system: system.to_owned(),
            name: name?,
            id: id?,
            common,
            fields,
            print_text,
            print: OnceLock::new(),
        })
    }

    /// Returns a field by its name, including the fields that all events have.
    pub fn field(&self, name: &str) -> Option<&FieldFormat> {
        let mut all = self.fields.iter().chain(&self.common);
        all.find(|field| field.name == name)
    }

    /// Returns the parsed print format; `None` if it is not supported.
    pub fn print(&self) -> Option<&PrintFormat> {
        self.print
            .get_or_init(|| PrintFormat::parse(&self.print_text, self))
            .as_ref()
    }
}

/// Event formats of a trace.
#[derive(Debug, Default)]
pub struct Formats {
    by_id: Vec<Option<Box<EventFormat>>>,
}

impl Formats {
    /// Adds a format. Replaces an earlier one with the same number.
    pub fn add(&mut self, format: EventFormat) {
        let place = usize::from(format.id);
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        if let Some(entry) = self.by_id.get_mut(place) {
            *entry = Some(Box::new(format));
        }
    }

    /// Returns the format of records that begin with this number.
    #[inline]
    pub fn get(&self, id: u16) -> Option<&EventFormat> {
        self.by_id.get(usize::from(id))?.as_deref()
    }

    /// Returns the format of the event with this name, in any system.
    pub fn named(&self, name: &str) -> Option<&EventFormat> {
        self.iter().find(|format| format.name == name)
    }

    /// Iterates over all formats, by number.
    pub fn iter(&self) -> impl Iterator<Item = &EventFormat> {
        self.by_id.iter().filter_map(Option::as_deref)
    }

    /// Returns whether there are no formats.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(line: &str) -> FieldFormat {
        FieldFormat::parse_line(line).unwrap_or_else(|| panic!("{line}"))
    }

    #[test]
    fn fields_of_all_shapes_are_understood() {
        let comm = field("\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:1;");
        assert_eq!((&*comm.name, &*comm.type_name), ("prev_comm", "char"));
        assert_eq!((comm.shape, comm.is_text()), (Shape::Array(16), true));
        let name = field("field:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:1;");
        assert_eq!((&*name.name, name.shape), ("name", Shape::Dynamic));
        let by_name = field("field:u32 cpus[NR_CPUS];\toffset:12;\tsize:32;\tsigned:0;");
        assert_eq!(by_name.shape, Shape::Array(8));
        let pointer = field("field:const char * fmt;\toffset:16;\tsize:8;\tsigned:0;");
        assert_eq!((&*pointer.name, pointer.pointer), ("fmt", true));
        let rest = field("field:unsigned long caller[];\toffset:16;\tsize:0;\tsigned:0;");
        assert_eq!((rest.shape, rest.element(8)), (Shape::Array(0), 8));
        let old = field("field:char buf;\toffset:16;\tsize:0;\tsigned:0;");
        assert_eq!((old.shape, old.is_text()), (Shape::Array(0), true));
        assert_eq!(
            FieldFormat::parse_line("field:int x;\toffset:99999999999;\tsize:4;"),
            None
        );
    }
}
