//! Evaluation of print formats for a record, as trace-cmd does it.

use std::fmt::Write;

use super::print::{Expr, Pair};
use super::printf::{Conversion, Piece};
use super::{EventFormat, FieldFormat, PrintFormat, Shape};
use crate::{Order, PrintkFormats, Symbols};

/// Context of an evaluation besides the record.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The byte order of the traced machine.
    pub order: Order,
    /// Size of the machine's `long` in bytes.
    pub long_size: usize,
    /// Symbols of its kernel.
    pub symbols: &'a Symbols,
    /// `trace_printk` formats of its kernel.
    pub printk: &'a PrintkFormats,
}

/// Returns the value of an expression without fields; 0 if it has fields.
pub(super) fn constant(expr: &Expr) -> u64 {
    let (symbols, printk) = (Symbols::default(), PrintkFormats::default());
    let scope = Scope {
        order: Order::Little,
        long_size: 8,
        symbols: &symbols,
        printk: &printk,
    };
    scope.number(expr, &[])
}

impl Scope<'_> {
    /// Returns the number in a field of a record; 0 behind the record's end.
    #[inline]
    pub fn field(&self, field: &FieldFormat, data: &[u8]) -> u64 {
        let number = self.order.number_at(data, field.offset, field.size);
        number.unwrap_or(0)
    }

    /// Returns the bytes of a field: an array's elements, wherever they are, or the field itself. Bytes behind the
    /// record's end are cut off.
    pub fn bytes<'d>(&self, field: &FieldFormat, data: &'d [u8]) -> &'d [u8] {
        let (start, count) = match field.shape {
            Shape::Dynamic | Shape::Relative => {
                let word = self.field(field, data);
                let base = match field.shape {
                    Shape::Relative => field.offset + field.size,
                    _ => 0,
                };
                let (offset, count) = match field.size {
                    8 => (word & 0xffff_ffff, word >> 32),
                    _ => (word & 0xffff, word >> 16 & 0xffff),
                };
                (base + offset as usize, count as usize)
            }
            // Without a size, an array reaches to the record's end: `u32 buf[]`, which older kernels write as
            // `u32 buf`.
            _ if field.size == 0 => (field.offset, usize::MAX),
            _ => (field.offset, field.size),
        };
        let rest = data.get(start..).unwrap_or_default();
        rest.get(..count).unwrap_or(rest)
    }

    /// Returns the text of a field, up to its first zero byte.
    pub fn text<'d>(&self, field: &FieldFormat, data: &'d [u8]) -> std::borrow::Cow<'d, str> {
        until_zero(self.bytes(field, data))
    }

    /// Appends an event as its print format describes it. Returns `false` and appends nothing if the format is not
    /// supported.
    pub fn print(&self, event: &EventFormat, data: &[u8], out: &mut String) -> bool {
        let Some(print) = event.print() else {
            return false;
        };
        match (&*event.name, event.field("fmt"), event.field("buf")) {
            ("bprint", Some(format), Some(buffer)) => {
                self.binary_print(event, format, buffer, data, out)
            }
            _ => self.pieces(print, data, out),
        }
        true
    }

    fn pieces(&self, print: &PrintFormat, data: &[u8], out: &mut String) {
        let mut arguments = print.arguments.iter();
        for piece in &print.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Conversion(conversion) => {
                    let conversion = conversion.with_stars(|| {
                        let size = arguments.next().map_or(0, |it| self.number(it, data));
                        i64::from((size as u32).cast_signed())
                    });
                    if let Some(argument) = arguments.next() {
                        self.argument(&conversion, argument, data, out);
                    }
                }
            }
        }
    }

    /// Appends one argument.
    pub(crate) fn argument(
        &self,
        conversion: &Conversion,
        argument: &Expr,
        data: &[u8],
        out: &mut String,
    ) {
        match conversion.letter {
            's' => self.push_text(conversion, argument, data, out),
            'p' => self.pointer(conversion, argument, data, out),
            _ => conversion.push_number(self.number(argument, data), self.long_size, out),
        }
    }

    /// Appends a `%p` argument, as the letters behind `%p` require.
    fn pointer(&self, conversion: &Conversion, argument: &Expr, data: &[u8], out: &mut String) {
        let letters = conversion.pointer.as_str();
        match letters.as_bytes().first() {
            Some(b's' | b'f' | b'S' | b'F') => {
                let address = self.number(argument, data);
                let mut text = String::new();
                match self.symbols.find(address) {
                    Some(symbol) => {
                        text.push_str(symbol.name);
                        if matches!(letters.as_bytes().first(), Some(b'S' | b'F')) {
                            let _ = write!(text, "+{:#x}", address - symbol.address);
                        }
                    }
                    None => {
                        let _ = write!(text, "{address:#x}");
                    }
                }
                out.push_str(&text);
            }
            Some(b'M' | b'm') => {
                let between = match letters.as_bytes().get(1) {
                    Some(b'F') => "-",
                    _ if letters.starts_with('m') => "",
                    _ => ":",
                };
                let bytes = self.some_bytes(argument, data);
                push_hex(bytes.get(..6).unwrap_or(bytes), between, out);
            }
            Some(b'I' | b'i') => internet_address(letters, self.some_bytes(argument, data), out),
            Some(b'U') => uuid(letters, self.some_bytes(argument, data), out),
            Some(b'h') => {
                let between = match letters.as_bytes().get(1) {
                    Some(b'C') => ":",
                    Some(b'D') => "-",
                    Some(b'N') => "",
                    _ => " ",
                };
                let bytes = self.some_bytes(argument, data);
                push_hex(
                    bytes.get(..conversion.bytes()).unwrap_or(bytes),
                    between,
                    out,
                );
            }
            _ => match self.number(argument, data) {
                0 => out.push_str("(nil)"),
                address => {
                    let _ = write!(out, "{address:#x}");
                }
            },
        }
    }

    /// Returns the bytes of an expression.
    fn some_bytes<'d>(&self, expr: &Expr, data: &'d [u8]) -> &'d [u8] {
        match expr {
            Expr::Field(field) | Expr::Located(field) => self.bytes(field, data),
            Expr::Cast(_, inner) => self.some_bytes(inner, data),
            _ => &[],
        }
    }

    /// Returns the value of an expression as an unsigned 64-bit number.
    pub(crate) fn number(&self, expr: &Expr, data: &[u8]) -> u64 {
        match expr {
            Expr::Number(number) => *number,
            Expr::Variable(name, address) => {
                *address.get_or_init(|| self.symbols.address(name).unwrap_or(0))
            }
            Expr::Field(field) => self.field(field, data),
            Expr::Cast(name, inner) => cast(self.number(inner, data), name),
            Expr::Unary(sign, inner) => {
                let value = self.number(inner, data);
                match sign {
                    '-' => value.wrapping_neg(),
                    '~' => !value,
                    '!' => u64::from(value == 0),
                    _ => value,
                }
            }
            Expr::Binary(sign, left, right) => {
                binary(sign, self.number(left, data), self.number(right, data))
            }
            Expr::Choice(condition, yes, no) => match self.number(condition, data) {
                0 => self.number(no, data),
                _ => self.number(yes, data),
            },
            Expr::Index(of, index) => self.element(of, self.number(index, data), data),
            Expr::Length(field) => self.bytes(field, data).len() as u64,
            Expr::Located(field) => self.order.number(
                self.bytes(field, data)
                    .get(..field.element(self.long_size))
                    .unwrap_or_default(),
            ),
            _ => 0,
        }
    }

    fn element(&self, of: &Expr, index: u64, data: &[u8]) -> u64 {
        let (mut inner, mut size) = (of, None);
        while let Expr::Cast(name, next) = inner {
            let pointed = name.trim_end_matches('*').trim();
            size = size.or(super::element_size(pointed));
            inner = next;
        }
        let (Expr::Field(field) | Expr::Located(field)) = inner else {
            return 0;
        };
        let size = size.unwrap_or_else(|| field.element(self.long_size));
        let start = usize::try_from(index)
            .ok()
            .and_then(|it| it.checked_mul(size));
        start
            .and_then(|start| self.order.number_at(self.bytes(field, data), start, size))
            .unwrap_or(0)
    }

    /// Appends a `%s` argument.
    fn push_text(&self, conversion: &Conversion, expr: &Expr, data: &[u8], out: &mut String) {
        match expr {
            Expr::Text(text) => conversion.push_text(text, out),
            Expr::Number(number) => conversion.push_text(&number.to_string(), out),
            Expr::Field(field) if !field.is_array() && field.size == self.long_size => {
                let address = self.field(field, data);
                match self.printk.get(address) {
                    Some(text) => out.push_str(text),
                    None => {
                        let _ = write!(out, "{address:x}");
                    }
                }
            }
            Expr::Field(field) | Expr::Located(field) => {
                conversion.push_text(&self.text(field, data), out);
            }
            Expr::Flags(value, between, flags) => {
                let value = self.number(value, data);
                flag_names(conversion, value, between, flags, out);
            }
            Expr::Symbolic(value, names) => {
                let value = self.number(value, data);
                match names.iter().find(|(number, _)| *number == value) {
                    Some((_, name)) => conversion.push_text(name, out),
                    None => {
                        let _ = write!(out, "{value:#x}");
                    }
                }
            }
            Expr::Hex(bytes, count, spaced) => {
                let bytes = self.some_bytes(bytes, data);
                let count = usize::try_from(self.number(count, data)).unwrap_or(usize::MAX);
                let between = if *spaced { " " } else { "" };
                push_hex(bytes.get(..count).unwrap_or(bytes), between, out);
            }
            Expr::Numbers(of, count, size) => {
                let bytes = self.some_bytes(of, data);
                let size = match self.number(size, data) {
                    size @ (1 | 2 | 4 | 8) => size as usize,
                    _ => 1,
                };
                let count = count.as_ref().map_or(u64::MAX, |it| self.number(it, data));
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                out.push('{');
                for (place, number) in bytes.chunks_exact(size).take(count).enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    let _ = write!(out, "{comma}{:#x}", self.order.number(number));
                }
                out.push('}');
            }
            Expr::Bitmask(field) => {
                conversion.push_text(&self.bitmask(self.bytes(field, data)), out);
            }
            Expr::Cpumask(field) => {
                conversion.push_text(&self.cpumask(self.bytes(field, data)), out);
            }
            Expr::Choice(condition, yes, no) => {
                let chosen = if self.number(condition, data) == 0 {
                    no
                } else {
                    yes
                };
                self.push_text(conversion, chosen, data, out);
            }
            Expr::Cast(_, inner) => self.push_text(conversion, inner, data, out),
            Expr::Unary(..)
            | Expr::Binary(..)
            | Expr::Index(..)
            | Expr::Length(_)
            | Expr::Variable(..) => {}
        }
    }

    /// Returns the bytes of a mask, the lowest first.
    fn mask_bytes<'d>(&self, bytes: &'d [u8]) -> Box<dyn DoubleEndedIterator<Item = u8> + 'd> {
        match self.order {
            Order::Little => Box::new(bytes.iter().copied()),
            Order::Big => Box::new(bytes.iter().rev().copied()),
        }
    }

    /// Formats a mask in hexadecimal, with a comma after each 32 bits.
    fn bitmask(&self, bytes: &[u8]) -> String {
        let mut text = String::new();
        let mut left = bytes.len();
        for byte in self.mask_bytes(bytes).rev() {
            let _ = write!(text, "{byte:02x}");
            left -= 1;
            if left > 0 && left.is_multiple_of(4) {
                text.push(',');
            }
        }
        text
    }

    /// Formats a mask as ranges: `0-3,7`.
    fn cpumask(&self, bytes: &[u8]) -> String {
        let mut text = String::new();
        let mut first = None;
        let bits = self
            .mask_bytes(bytes)
            .flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1));
        for (place, is_set) in bits.chain([false]).enumerate() {
            match (first, is_set) {
                (None, true) => first = Some(place),
                (Some(start), false) => {
                    let comma = if text.is_empty() { "" } else { "," };
                    let _ = match place - 1 {
                        last if last == start => write!(text, "{comma}{start}"),
                        last => write!(text, "{comma}{start}-{last}"),
                    };
                    first = None;
                }
                _ => {}
            }
        }
        text
    }

    /// Appends a `trace_printk` event that holds the address of its format and its arguments as words.
    fn binary_print(
        &self,
        event: &EventFormat,
        format: &FieldFormat,
        buffer: &FieldFormat,
        data: &[u8],
        out: &mut String,
    ) {
        if let Some(place) = event.field("ip") {
            let address = self.field(place, data);
            match self.symbols.find(address) {
                Some(symbol) => out.push_str(symbol.name),
                None => {
                    let _ = write!(out, "{address:#x}");
                }
            }
            out.push_str(": ");
        }
        self.message(format, buffer, data, out);
    }

    /// Returns the message of a `trace_printk` event that holds the arguments and the address of the format; `None` for
    /// other events.
    pub fn printed(&self, event: &EventFormat, data: &[u8]) -> Option<String> {
        let format = event.field("fmt").filter(|_| event.name == "bprint")?;
        let mut out = String::new();
        self.message(format, event.field("buf")?, data, &mut out);
        Some(out)
    }

    fn message(&self, format: &FieldFormat, buffer: &FieldFormat, data: &[u8], out: &mut String) {
        let address = self.field(format, data);
        let Some(format) = self.printk.get(address) else {
            let _ = write!(out, "(NO FORMAT FOUND at {address:x})");
            return;
        };
        let mut words = Words {
            order: self.order,
            bytes: self.bytes(buffer, data),
            at: 0,
        };
        for piece in super::printf::pieces(format) {
            match piece {
                Piece::Text(text) => out.push_str(&text),
                Piece::Conversion(conversion) => {
                    let conversion =
                        conversion.with_stars(|| i64::from((words.number(4) as u32).cast_signed()));
                    self.word(&conversion, &mut words, out);
                }
            }
        }
    }

    /// Appends one argument of `trace_printk`.
    fn word(&self, conversion: &Conversion, words: &mut Words<'_>, out: &mut String) {
        match conversion.letter {
            's' => conversion.push_text(&words.text(), out),
            'p' => match conversion.pointer.as_bytes().first() {
                None | Some(b's' | b'S' | b'x' | b'f' | b'F') => {
                    let address = Expr::Number(words.number(self.long_size));
                    self.pointer(conversion, &address, &[], out);
                }
                // The kernel has written the text that the pointer stands for.
                Some(_) => out.push_str(&words.text()),
            },
            _ => {
                let size = match conversion.length {
                    ..=0 => 4,
                    1 => self.long_size,
                    _ => 8,
                };
                conversion.push_number(words.number(size), self.long_size, out);
            }
        }
    }
}

/// Arguments of a binary print: numbers at multiples of 4 bytes, strings without alignment.
struct Words<'a> {
    order: Order,
    bytes: &'a [u8],
    at: usize,
}

impl Words<'_> {
    fn number(&mut self, size: usize) -> u64 {
        self.at = self.at.next_multiple_of(4);
        let number = self.order.number_at(self.bytes, self.at, size);
        self.at += size;
        number.unwrap_or(0)
    }

    fn text(&mut self) -> String {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let text = until_zero(rest);
        self.at += text.len() + 1;
        text.into_owned()
    }
}

fn until_zero(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())
}

/// Converts a value to another type. Types of 32 bits and less truncate it; none is signed, as in trace-cmd.
fn cast(value: u64, name: &str) -> u64 {
    if name.ends_with('*') {
        return value;
    }
    match super::element_size(name) {
        Some(1) => value & 0xff,
        Some(2) => value & 0xffff,
        Some(4) => value & 0xffff_ffff,
        _ => value,
    }
}

fn binary(sign: &str, left: u64, right: u64) -> u64 {
    let truth = u64::from;
    let shift = u32::try_from(right).unwrap_or(u32::MAX);
    match sign {
        "||" => truth(left != 0 || right != 0),
        "&&" => truth(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => truth(left == right),
        "!=" => truth(left != right),
        "<" => truth(left < right),
        ">" => truth(left > right),
        "<=" => truth(left <= right),
        ">=" => truth(left >= right),
        "<<" => left.checked_shl(shift).unwrap_or(0),
        ">>" => left.checked_shr(shift).unwrap_or(0),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right).unwrap_or(0),
        "%" => left.checked_rem(right).unwrap_or(0),
        _ => 0,
    }
}

/// Appends the names of the bits that are set, then the remaining bits in hexadecimal.
fn flag_names(
    conversion: &Conversion,
    value: u64,
    between: &str,
    flags: &[Pair],
    out: &mut String,
) {
    let (mut left, mut any) = (value, false);
    for (flag, name) in flags {
        let signed = flag.cast_signed();
        if left == 0 && signed < 0 {
            conversion.push_text(name, out);
            break;
        }
        if signed > 0 && left & flag == *flag {
            if any {
                out.push_str(between);
            }
            conversion.push_text(name, out);
            any = true;
            left &= !flag;
        }
    }
    if left != 0 {
        if any {
            out.push_str(between);
        }
        let _ = write!(out, "{left:#x}");
    }
}

fn push_hex(bytes: &[u8], between: &str, out: &mut String) {
    for (place, byte) in bytes.iter().enumerate() {
        if place > 0 {
            out.push_str(between);
        }
        let _ = write!(out, "{byte:02x}");
    }
}

/// Appends `%pI4`, `%pi6c`, `%pISpc`: an address of 4 or 16 bytes, or a socket address with its family in front.
fn internet_address(letters: &str, bytes: &[u8], out: &mut String) {
    let kind = letters.as_bytes().get(1).copied().unwrap_or_default();
    let short = letters.contains('c');
    match (kind, bytes) {
        (b'4', [a, b, c, d, ..]) if letters.starts_with('i') => {
            let _ = write!(out, "{a:03}.{b:03}.{c:03}.{d:03}");
        }
        (b'4', [a, b, c, d, ..]) => {
            let _ = write!(out, "{a}.{b}.{c}.{d}");
        }
        (b'6', bytes) => ip6(bytes, short, letters.starts_with('i'), out),
        (b'S', bytes) => {
            let family = bytes
                .first()
                .copied()
                .unwrap_or(0)
                .max(bytes.get(1).copied().unwrap_or(0));
            let port = bytes.get(2..4).map_or(0, |port| Order::Big.number(port));
            let with_port = letters.contains('p');
            match family {
                2 => {
                    internet_address("I4", bytes.get(4..).unwrap_or_default(), out);
                    if with_port {
                        let _ = write!(out, ":{port}");
                    }
                }
                10 => {
                    out.push_str(if with_port { "[" } else { "" });
                    ip6(bytes.get(8..).unwrap_or_default(), short, false, out);
                    if with_port {
                        let _ = write!(out, "]:{port}");
                    }
                }
                _ => out.push_str("INVALIDADDR"),
            }
        }
        _ => out.push_str("INVALIDADDR"),
    }
}

fn ip6(bytes: &[u8], short: bool, plain: bool, out: &mut String) {
    let Some(address) = bytes.first_chunk::<16>() else {
        return out.push_str("INVALIDIPv6");
    };
    if short {
        let _ = write!(out, "{}", std::net::Ipv6Addr::from(*address));
        return;
    }
    for (place, pair) in address.chunks_exact(2).enumerate() {
        if place > 0 && !plain {
            out.push(':');
        }
        push_hex(pair, "", out);
    }
}

fn uuid(letters: &str, bytes: &[u8], out: &mut String) {
    const LITTLE: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    if bytes.len() != 16 {
        return out.push_str("INVALIDUUID");
    }
    let little = matches!(letters.as_bytes().get(1), Some(b'L' | b'l'));
    let upper = matches!(letters.as_bytes().get(1), Some(b'L' | b'B'));
    for (place, little_place) in LITTLE.into_iter().enumerate() {
        let byte = bytes.get(if little { little_place } else { place });
        let byte = byte.copied().unwrap_or_default();
        let _ = match upper {
            true => write!(out, "{byte:02X}"),
            false => write!(out, "{byte:02x}"),
        };
        if matches!(place, 3 | 5 | 7 | 9) {
            out.push('-');
        }
    }
}
