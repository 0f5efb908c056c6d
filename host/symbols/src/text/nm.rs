//! `nm`, `System.map`, `/proc/kallsyms`: a symbol a line.
//!
//! | from | line |
//! |---|---|
//! | `nm`, `System.map` | `00008000 T main` |
//! | `nm -S` | `00008000 00000054 T main` |
//! | `nm -l` | `00008000 T main` TAB `/src/main.c:12` |
//! | `nm -C` | `00008000 T ns::f(int, char const*)` |
//! | `nm -P` | `main T 8000 54` |
//! | `/proc/kallsyms` | `ffffffffc0800000 t init` TAB `[module]` |
//!
//! Lines of another form (undefined symbols, names of archive members) are passed over.

use super::List;
use crate::lines::Location;
use crate::table::{Binding, Candidate, is_mark};

/// One line.
struct Symbol<'t> {
    address: u64,
    size: u64,
    letter: char,
    name: &'t str,
    location: Option<Location>,
}

/// Reads the lines.
pub(super) fn read(text: &str) -> List {
    let mut list = List::default();
    for line in text.lines() {
        let Some(symbol) = columns(line).or_else(|| portable(line)) else {
            continue;
        };
        list.saw(symbol.name, symbol.address);
        let binding = match symbol.letter {
            'T' => Binding::Global,
            't' => Binding::Local,
            'W' | 'w' | 'i' => Binding::Weak,
            _ => continue,
        };
        // A symbol of the linker script has the letter of its section, but no size.
        if symbol.name.starts_with('$') || (is_mark(symbol.name) && symbol.size == 0) {
            continue;
        }
        list.locations
            .extend(symbol.location.map(|location| (symbol.address, location)));
        list.functions.push(Candidate {
            address: symbol.address,
            size: symbol.size,
            name: symbol.name.into(),
            // Within a function of known size, a symbol without a size is a label.
            function: symbol.size > 0,
            binding,
            limit: u64::MAX,
        });
    }
    list
}

/// `address [size] letter name [TAB extra]`.
fn columns(line: &str) -> Option<Symbol<'_>> {
    let (address, rest) = word(line)?;
    let address = hexadecimal(address)?;
    let (next, after) = word(rest)?;
    let (size, letter, rest) = match letter(next) {
        Some(letter) => (0, letter, after),
        None => {
            let (next, after) = word(after)?;
            (hexadecimal(word(rest)?.0)?, letter(next)?, after)
        }
    };
    let (name, extra) = rest.split_once('\t').unwrap_or((rest, ""));
    let name = name.trim();
    if name.is_empty() {
        return None;
    }
    Some(Symbol {
        address,
        size,
        letter,
        name,
        location: location(extra),
    })
}

/// `name letter [address [size]]`.
fn portable(line: &str) -> Option<Symbol<'_>> {
    let (name, rest) = word(line)?;
    let (next, rest) = word(rest)?;
    let letter = letter(next)?;
    let (address, rest) = word(rest)?;
    let size = match word(rest) {
        Some((size, rest)) if rest.trim().is_empty() => hexadecimal(size)?,
        Some(_) => return None,
        None => 0,
    };
    Some(Symbol {
        address: hexadecimal(address)?,
        size,
        letter,
        name,
        location: None,
    })
}

/// The first word, and the rest after it.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start_matches([' ', '\t']);
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (!word.is_empty()).then_some((word, rest))
}

fn hexadecimal(word: &str) -> Option<u64> {
    // `from_str_radix` would accept a sign.
    let digits = word.strip_prefix("0x").unwrap_or(word);
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| all_digits)
}

/// The letter for the kind of a symbol.
fn letter(word: &str) -> Option<char> {
    let mut chars = word.chars();
    let letter = chars
        .next()
        .filter(|c| c.is_ascii_alphabetic() || "-?".contains(*c))?;
    chars.next().is_none().then_some(letter)
}

/// `file:line`; the module of kallsyms, in brackets, is not a location.
fn location(extra: &str) -> Option<Location> {
    let (file, line) = extra.trim().rsplit_once(':')?;
    let line = line.parse().ok()?;
    Some(Location {
        file: file.to_owned(),
        line: Some(line),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<(u64, u64, String)> {
        let list = read(line);
        let function = list.functions.first()?;
        Some((function.address, function.size, function.name.to_string()))
    }

    #[test]
    fn every_form_of_line() {
        let main = |size| Some((0x8000, size, "main".to_owned()));
        assert_eq!(one("00008000 T main"), main(0));
        assert_eq!(one("00008000 00000054 T main"), main(0x54));
        assert_eq!(one("main T 8000 54"), main(0x54));
        assert_eq!(one("main T 8000"), main(0));
        assert_eq!(one("0000000000008000 t main\t[module]"), main(0));
        assert_eq!(one("00008000 T main\r"), main(0));
        let list = read("00008000 T main\t/src/main.c:12");
        assert_eq!(list.locations[0].1.to_string(), "/src/main.c:12");
        let cpp = one("8000 W ns::f(int, char const*)");
        assert_eq!(cpp, Some((0x8000, 0, "ns::f(int, char const*)".to_owned())));
        // A size that looks like a letter, a letter that looks like a size.
        assert_eq!(one("8000 b T main"), None);
        assert_eq!(one("8000 0b T main"), main(0xb));
    }

    #[test]
    fn other_lines_are_no_functions() {
        for line in [
            "",
            "main.o:",
            "         U puts",
            "00008000 D data",
            "00008000 t $t",
            "hello world",
            "00008000 T",
            "+8000 T main",
            "zz T main",
            "8000 TT main",
            "0000000000000000 R _stext",
            "fffffffffffffffff T too_wide",
        ] {
            assert_eq!(one(line), None, "{line}");
        }
    }
}
