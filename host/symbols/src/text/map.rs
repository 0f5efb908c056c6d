//! The map that GNU ld writes with `-Map`.
//!
//! It names global symbols with their addresses, and input sections with addresses and sizes:
//!
//! ```text
//!  .text.startup.main
//!                 0x0000000000000434       0x18 main.o
//!                 0x0000000000000434                main
//! ```
//!
//! Static functions are not listed; where every function has a section of its own
//! (`-ffunction-sections`) the section's name tells theirs.

use super::List;
use crate::table::{Binding, Candidate, is_mark};

const HEAD: &str = "Linker script and memory map";

/// Whether a text is such a map.
pub(super) fn recognise(text: &str) -> bool {
    text.lines().any(|line| line.trim_end() == HEAD)
}

/// An input section of code.
struct Section<'t> {
    name: &'t str,
    address: u64,
    size: u64,
}

/// Reads the part after the header, which lists discarded sections.
pub(super) fn read(text: &str) -> List {
    let mut list = List::default();
    let mut section: Option<Section<'_>> = None;
    // A long section name is on a separate line.
    let mut long_name = None;
    for line in text.lines().skip_while(|line| line.trim_end() != HEAD) {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        if indent <= 1 && !first.starts_with("0x") {
            close(&mut list, section.take());
            long_name = None;
            let Some(address) = words.next() else {
                long_name = (indent == 1).then_some(first);
                continue;
            };
            let size = words.next();
            // Output sections are not indented; their symbols are listed below input sections.
            if indent == 1 {
                section = open(first, address, size);
            }
            continue;
        }
        let Some(address) = number(first) else {
            continue;
        };
        let rest: Vec<&str> = words.collect();
        if let Some(name) = long_name.take() {
            if let [size, _, ..] = rest[..] {
                section = open(name, first, Some(size));
            }
            continue;
        }
        symbol(&mut list, section.as_mut(), address, &rest);
    }
    close(&mut list, section);
    list
}

/// A line below a section: `0x8000 main`, `0x8000 _etext = .`, `0x8000 PROVIDE (etext = .)`.
fn symbol(list: &mut List, section: Option<&mut Section<'_>>, address: u64, rest: &[&str]) {
    let assigned = rest.iter().skip(1).any(|word| word.ends_with('='));
    match *rest {
        ["PROVIDE", name, ..] => list.saw(name.trim_start_matches('('), address),
        [name, ..] if assigned => list.saw(name, address),
        // C++ names contain spaces if the map was written with --demangle.
        [_, ..] if number(rest[0]).is_none() => {
            let name = rest.join(" ");
            list.saw(&name, address);
            let Some(section) = section else {
                return;
            };
            let end = section.address.saturating_add(section.size);
            if is_mark(&name) || !(section.address..end).contains(&address) {
                return;
            }
            list.functions.push(Candidate {
                address,
                size: 0,
                name: name.into(),
                function: true,
                binding: Binding::Global,
                limit: end,
            });
        }
        _ => {}
    }
}

fn open<'t>(name: &'t str, address: &str, size: Option<&str>) -> Option<Section<'t>> {
    let (address, size) = (number(address)?, number(size?)?);
    (is_code(name) && size > 0).then_some(Section {
        name,
        address,
        size,
    })
}

/// Whether an input section contains code, judging by its name.
fn is_code(name: &str) -> bool {
    const CODE: [&str; 8] = [
        ".text",
        ".init",
        ".fini",
        ".iram",
        ".ramfunc",
        ".itcm",
        ".fastcode",
        ".startup",
    ];
    const DATA: [&str; 2] = [".init_array", ".fini_array"];
    CODE.iter().any(|code| name.starts_with(code))
        && !DATA.iter().any(|data| name.starts_with(data))
}

/// Ends a section. If it has no symbol at its start, it contains the static function that its name refers to.
fn close(list: &mut List, section: Option<Section<'_>>) {
    let Some(Section {
        name,
        address,
        size,
    }) = section
    else {
        return;
    };
    let name = [
        ".text.startup.",
        ".text.unlikely.",
        ".text.hot.",
        ".text.exit.",
        ".text.",
    ]
    .iter()
    .find_map(|prefix| name.strip_prefix(prefix))
    .unwrap_or("");
    let known = list
        .functions
        .iter()
        .rev()
        .take_while(|known| known.limit == address + size);
    if name.is_empty() || known.into_iter().any(|known| known.address == address) {
        return;
    }
    list.saw(name, address);
    list.functions.push(Candidate {
        address,
        size,
        name: name.into(),
        function: true,
        binding: Binding::Local,
        limit: address.saturating_add(size),
    });
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
Discarded input sections

 .text.gone     0x0000000000000000       0x10 a.o

Memory Configuration

Linker script and memory map

LOAD a.o
                0x0000000000000000                PROVIDE (__executable_start = SEGMENT_START (\"text-segment\", 0))

.text           0x0000000000008000      0x100
                0x0000000000008000                _stext = .
 *(.text*)
 .text.short    0x0000000000008000       0x10 a.o
 .text.startup.main
                0x0000000000008010       0x18 a.o
                0x0000000000008010                main
 .text          0x0000000000008028       0x40 b.o
                0x0000000000008028                first
                0x0000000000008038                ns::f(int, char const*)
                0x0000000000008068                . = ALIGN (0x4)
 *fill*         0x0000000000008068        0x8 
                0x0000000000008100                _etext = .

.data           0x0000000020000000        0x4
 .data.x        0x0000000020000000        0x4 a.o
                0x0000000020000000                x
";

    #[test]
    fn functions_come_from_symbols_and_sections() {
        assert!(recognise(MAP));
        assert!(!recognise("00008000 T main"));
        let list = read(MAP);
        let found: Vec<_> = list
            .functions
            .iter()
            .map(|f| (&*f.name, f.address, f.size, f.limit))
            .collect();
        assert_eq!(
            found,
            [
                ("short", 0x8000, 0x10, 0x8010),
                ("main", 0x8010, 0, 0x8028),
                ("first", 0x8028, 0, 0x8068),
                ("ns::f(int, char const*)", 0x8038, 0, 0x8068),
            ]
        );
        assert_eq!(list.executable_start, Some(0));
    }
}
