//! Loads and stores of structures: elements of several vectors.

use std::fmt::Write as _;

use super::super::{bit, bits, reg};

/// Registers of a structure.
struct List {
    from: u32,
    count: u32,
    step: u32,
    /// What is behind each register: `[1]`, `[]`.
    suffix: String,
}

impl std::fmt::Display for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, suffix) = (self.from, &self.suffix);
        let last = from + (self.count - 1) * self.step;
        match (self.count, self.step) {
            (1, _) => write!(f, "{{d{from}{suffix}}}"),
            (_, 1) if suffix.is_empty() || suffix == "[]" => {
                write!(f, "{{d{from}{suffix}-d{last}{suffix}}}")
            }
            _ => {
                f.write_str("{")?;
                for at in 0..self.count {
                    let separator = if at == 0 { "" } else { ", " };
                    write!(f, "{separator}d{}{suffix}", from + at * self.step)?;
                }
                f.write_str("}")
            }
        }
    }
}

/// Writes the address of a structure, with its alignment in bits, and the rest of the instruction.
fn addressed(word: u32, alignment: u32, out: &mut String) -> Option<()> {
    let (base, index) = (reg(word, 16), bits(word, 0, 4));
    match alignment {
        0 => write!(out, "[{base}]").ok()?,
        _ => write!(out, "[{base} :{alignment}]").ok()?,
    }
    match index {
        15 => Some(()),
        13 => write!(out, "!").ok(),
        _ => write!(out, ", {}", reg(word, 0)).ok(),
    }
}

/// Writes a load or store of structures in several registers.
pub(super) fn registers(word: u32, out: &mut String) -> Option<()> {
    let (elements, count, step) = match bits(word, 8, 4) {
        0 => (4, 4, 1),
        1 => (4, 4, 2),
        2 => (1, 4, 1),
        3 => (2, 4, 1),
        4 => (3, 3, 1),
        5 => (3, 3, 2),
        6 => (1, 3, 1),
        7 => (1, 1, 1),
        8 => (2, 2, 1),
        9 => (2, 2, 2),
        10 => (1, 2, 1),
        _ => return None,
    };
    let (size, align) = (bits(word, 6, 2), bits(word, 4, 2));
    let from = bits(word, 22, 1) << 4 | bits(word, 12, 4);
    let largest = match count {
        4 => 3,
        2 => 2,
        _ => 1,
    };
    let is_defined = from + (count - 1) * step < 32
        && (size < 3 || elements == 1)
        && align <= largest
        && bits(word, 16, 4) != 15;
    is_defined.then_some(())?;
    let list = List {
        from,
        count,
        step,
        suffix: String::new(),
    };
    let name = if bit(word, 21) { "vld" } else { "vst" };
    write!(out, "{name}{elements}.{} {list}, ", 8 << size).ok()?;
    addressed(word, if align == 0 { 0 } else { 32 << align }, out)
}

/// Writes a load or store of a structure in one element of each register, or a load to all elements.
pub(super) fn lane(word: u32, out: &mut String) -> Option<()> {
    let (elements, size) = (bits(word, 8, 2) + 1, bits(word, 10, 2));
    let from = bits(word, 22, 1) << 4 | bits(word, 12, 4);
    let is_load = bit(word, 21);
    let name = if is_load { "vld" } else { "vst" };
    if bits(word, 16, 4) == 15 {
        return None;
    }
    if size == 3 {
        let (size, is_double, is_aligned) = (bits(word, 6, 2), bit(word, 5), bit(word, 4));
        let width = match (size, elements) {
            (3, 4) if is_aligned => 32,
            (3, _) => return None,
            _ => 8 << size,
        };
        let alignment = match elements {
            _ if !is_aligned => 0,
            1 if size == 0 => return None,
            3 => return None,
            4 if size == 3 => 128,
            4 if size == 2 => 64,
            _ => width * elements,
        };
        let (count, step) = match elements {
            1 => (1 + u32::from(is_double), 1),
            _ => (elements, 1 + u32::from(is_double)),
        };
        (is_load && from + (count - 1) * step < 32).then_some(())?;
        let list = List {
            from,
            count,
            step,
            suffix: "[]".to_owned(),
        };
        write!(out, "{name}{elements}.{width} {list}, ").ok()?;
        return addressed(word, alignment, out);
    }
    let field = bits(word, 4, 4);
    let (width, at) = (8 << size, field >> (size + 1));
    // What is below the index: whether registers follow each other, and the alignment.
    let (is_double, low) = match size {
        0 => (false, field & 1),
        1 => (field & 2 != 0, field & 1),
        _ => (field & 4 != 0, field & 3),
    };
    let alignment = match (elements, size, low) {
        (_, _, 0) => 0,
        (1, 1, 1) => 16,
        (1, 2, 3) => 32,
        (2, 0, 1) => 16,
        (2, 1, 1) => 32,
        (2, 2, 1) => 64,
        (4, 0, 1) => 32,
        (4, 1, 1) => 64,
        (4, 2, 1) => 64,
        (4, 2, 2) => 128,
        _ => return None,
    };
    let step = 1 + u32::from(is_double);
    let is_defined = from + (elements - 1) * step < 32 && (elements > 1 || !is_double);
    is_defined.then_some(())?;
    let list = List {
        from,
        count: elements,
        step,
        suffix: format!("[{at}]"),
    };
    write!(out, "{name}{elements}.{width} {list}, ").ok()?;
    addressed(word, alignment, out)
}
