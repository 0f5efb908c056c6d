//! What addresses and numbers are called: kernel symbols, print formats of `trace_printk`, names of tasks.

use std::collections::HashMap;

/// Kernel symbols as `/proc/kallsyms` lists them: addresses to functions.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Sorted by address. Of several at one address the last in the file comes first, as trace-cmd has them.
    entries: Vec<Entry>,
    text: String,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    /// Where the name is in the text.
    start: u32,
    length: u16,
    /// The length of the module's name, which stands behind it after a tab and a bracket; 0 for the kernel itself.
    module: u16,
}

/// A kernel symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Where it begins.
    pub address: u64,
    /// Its name.
    pub name: &'a str,
    /// The module that it belongs to; empty for the kernel itself.
    pub module: &'a str,
}

impl Symbols {
    /// Reads the text of `/proc/kallsyms`. Lines that are none of it are passed over, as are absolute symbols (on x86
    /// they are offsets of per-CPU variables) and the mapping symbols of Arm, as trace-cmd does.
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text).into_owned();
        let mut entries = Vec::with_capacity(text.len() / 40);
        let mut line_start = 0;
        for line in text.split_inclusive('\n') {
            entries.extend(entry(line, line_start));
            line_start += line.len();
        }
        entries.reverse();
        entries.sort_by_key(|entry| entry.address);
        Self { entries, text }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The symbol that an address belongs to: the last one that begins at it or before it. Nothing follows the last of
    /// all, so it holds its own address alone.
    pub fn find(&self, address: u64) -> Option<Symbol<'_>> {
        // Among several of one address the choice is that of the C library's bsearch, which trace-cmd uses.
        let (mut low, mut high) = (0, self.entries.len());
        while low < high {
            let middle = low.midpoint(high);
            let entry = self.entries.get(middle)?;
            let next = self.entries.get(middle + 1).map(|entry| entry.address);
            if address < entry.address {
                high = middle;
            } else if address == entry.address || next.is_some_and(|next| address < next) {
                return Some(self.symbol(entry));
            } else {
                low = middle + 1;
            }
        }
        None
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        let start = entry.start as usize;
        let end = start + usize::from(entry.length);
        let module = end + 2..end + 2 + usize::from(entry.module);
        Symbol {
            address: entry.address,
            name: self.text.get(start..end).unwrap_or_default(),
            module: match entry.module {
                0 => "",
                _ => self.text.get(module).unwrap_or_default(),
            },
        }
    }
}

/// The entry of a line `ffffffff81000000 T name\t[module]`.
fn entry(line: &str, line_start: usize) -> Option<Entry> {
    let (address, rest) = line.split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (kind, rest) = rest.split_once(' ')?;
    if matches!(kind, "a" | "A") || rest.starts_with('$') {
        return None;
    }
    let end = rest.find(|c: char| c.is_ascii_whitespace());
    let length = end.unwrap_or(rest.len());
    let start = line_start + (line.len() - rest.len());
    let behind = rest.get(length..)?;
    let module = behind
        .strip_prefix("\t[")
        .and_then(|module| module.find(']'));
    Some(Entry {
        address,
        start: u32::try_from(start).ok()?,
        length: u16::try_from(length).ok().filter(|length| *length > 0)?,
        module: module.and_then(|it| u16::try_from(it).ok()).unwrap_or(0),
    })
}

/// The format strings of `trace_printk`, by address.
#[derive(Clone, Debug, Default)]
pub struct PrintkFormats(HashMap<u64, String>);

impl PrintkFormats {
    /// Reads the text of `printk_formats`: lines `0xffffffffa1f4aef8 : "CPU_ON"`.
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let entry = |line: &str| {
            let (address, format) = line.split_once(" : ")?;
            let address = address.trim().strip_prefix("0x")?;
            let address = u64::from_str_radix(address, 16).ok()?;
            let format = format.trim().strip_prefix('"')?;
            let format = format.strip_suffix('"').unwrap_or(format);
            // The file shows the escapes of the source.
            let format = format.strip_suffix("\\n").unwrap_or(format);
            Some((address, format.replace("\\n", "\n").replace("\\\"", "\"")))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// The format at an address.
    pub fn get(&self, address: u64) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }
}

/// The names of tasks, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Comms(HashMap<i32, String>);

impl Comms {
    /// Reads the text of `saved_cmdlines`: lines `315 sh`.
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let entry = |line: &str| {
            let (pid, comm) = line.split_once(' ')?;
            Some((pid.trim().parse().ok()?, comm.to_owned()))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// The name of a task, if it is known.
    pub fn get(&self, pid: i32) -> Option<&str> {
        match pid {
            0 => Some("<idle>"),
            pid => self.0.get(&pid).map(String::as_str),
        }
    }

    /// Names a task that has no name yet.
    pub fn learn(&mut self, pid: i32, comm: &str) {
        if pid != 0 {
            self.0.entry(pid).or_insert_with(|| comm.to_owned());
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &str)> {
        self.0.iter().map(|(pid, comm)| (*pid, comm.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_symbol_before_it() {
        let text = b"0000000000000000 A per_cpu\n0000000000001000 T first\n0000000000001000 t alias\n\
            0000000000001100 t in_module\t[some_module]\n0000000000001180 d $d\n0000000000001200 T last\n";
        let symbols = Symbols::parse(text);
        assert_eq!(symbols.len(), 4);
        assert_eq!(symbols.find(0xfff), None);
        assert!(["first", "alias"].contains(&symbols.find(0x1010).unwrap().name));
        let found = symbols.find(0x11ff).unwrap();
        assert_eq!((found.name, found.module), ("in_module", "some_module"));
        assert_eq!(found.address, 0x1100);
        assert_eq!(symbols.find(0x1200).unwrap().name, "last");
        assert_eq!(symbols.find(0x1201), None);
    }
}
