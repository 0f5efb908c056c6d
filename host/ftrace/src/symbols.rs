//! Names of addresses and numbers: kernel symbols, print formats of `trace_printk`, task names.

use std::collections::HashMap;

/// Kernel symbols from `/proc/kallsyms`: a map of addresses to functions.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Sorted by address. Several symbols at one address are in reverse order of the file, as in trace-cmd.
    entries: Vec<Entry>,
    text: String,
}

/// Symbol whose name begins at `start` in the text and ends at the next white space. Names are not parsed before they
/// are used, because most never are.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    start: u32,
}

/// Kernel symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Address of its start.
    pub address: u64,
    /// Its name.
    pub name: &'a str,
    /// Module that contains it; empty for the kernel itself.
    pub module: &'a str,
}

impl Symbols {
    /// Parses the text of `/proc/kallsyms`. Skips lines of another form, absolute symbols (on x86 these are offsets of
    /// per-CPU variables) and the mapping symbols of Arm, as trace-cmd does.
    pub fn parse(text: &[u8]) -> Self {
        // Speed matters: a table of 4 MB is read before the first record of each trace.
        let text = match std::str::from_utf8(text) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(text).into_owned(),
        };
        let mut entries = Vec::with_capacity(text.len() / 40);
        let (mut line_start, bytes) = (0, text.as_bytes());
        for line_end in memchr::memchr_iter(b'\n', bytes).chain([bytes.len()]) {
            let line = bytes.get(line_start..line_end).unwrap_or_default();
            entries.extend(entry(line, line_start));
            line_start = line_end + 1;
        }
        // The input is mostly sorted already.
        entries.sort_by_key(|entry| entry.address);
        for same in entries.chunk_by_mut(|one, other| one.address == other.address) {
            same.reverse();
        }
        Self { entries, text }
    }

    /// Returns the number of symbols.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no symbols.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the symbol that contains an address: the last one that begins at or before it. The last symbol of all
    /// has no known end, so it contains its own address only.
    pub fn find(&self, address: u64) -> Option<Symbol<'_>> {
        // Among several symbols at one address, chooses as the C library's bsearch does, which trace-cmd uses.
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

    /// Returns the address of a symbol of the kernel itself. Searches linearly.
    pub(crate) fn address(&self, name: &str) -> Option<u64> {
        let mut symbols = self.entries.iter().map(|entry| self.symbol(entry));
        let found = symbols.find(|symbol| symbol.name == name && symbol.module.is_empty());
        Some(found?.address)
    }

    fn symbol(&self, entry: &Entry) -> Symbol<'_> {
        let rest = self.text.get(entry.start as usize..).unwrap_or_default();
        let rest = rest.split('\n').next().unwrap_or_default();
        let end = rest.find(|c: char| c.is_ascii_whitespace());
        let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let module = behind.strip_prefix("\t[").and_then(|it| it.split_once(']'));
        Symbol {
            address: entry.address,
            name,
            module: module.map_or("", |(module, _)| module),
        }
    }
}

/// Parses a line `ffffffff81000000 T name\t[module]`.
#[inline]
fn entry(line: &[u8], line_start: usize) -> Option<Entry> {
    // Addresses of a 64-bit kernel have 16 digits.
    let digits = match line.get(16) {
        Some(b' ') => 16,
        _ => memchr::memchr(b' ', line)?,
    };
    let (address, rest) = line.split_at_checked(digits)?;
    let address = hexadecimal(address)?;
    let [b' ', kind, b' ', first, ..] = rest else {
        return None;
    };
    if matches!(kind, b'a' | b'A') || *first == b'$' || first.is_ascii_whitespace() {
        return None;
    }
    Some(Entry {
        address,
        start: u32::try_from(line_start + digits + 3).ok()?,
    })
}

/// Parses a number of up to 16 hexadecimal digits.
fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if !(1..=16).contains(&digits.len()) {
        return None;
    }
    let (mut number, mut wrong) = (0, 0);
    for digit in digits {
        let value = DIGITS[usize::from(*digit)];
        wrong |= value;
        number = number << 4 | u64::from(value & 15);
    }
    (wrong < 16).then_some(number)
}

/// Value of each character as a hexadecimal digit; 16 for all others.
static DIGITS: [u8; 256] = {
    let mut table = [16; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// Format strings of `trace_printk`, by address.
#[derive(Clone, Debug, Default)]
pub struct PrintkFormats(HashMap<u64, String>);

impl PrintkFormats {
    /// Parses the text of `printk_formats`: lines `0xffffffffa1f4aef8 : "CPU_ON"`.
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let entry = |line: &str| {
            let (address, format) = line.split_once(" : ")?;
            let address = address.trim().strip_prefix("0x")?;
            let address = u64::from_str_radix(address, 16).ok()?;
            let format = format.trim().strip_prefix('"')?;
            let format = format.strip_suffix('"').unwrap_or(format);
            // The file has the escapes of the C source.
            let format = format.strip_suffix("\\n").unwrap_or(format);
            Some((address, format.replace("\\n", "\n").replace("\\\"", "\"")))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// Returns the format at an address.
    pub fn get(&self, address: u64) -> Option<&str> {
        self.0.get(&address).map(String::as_str)
    }
}

/// Task names, by pid.
#[derive(Clone, Debug, Default)]
pub struct Comms(HashMap<i32, String>);

impl Comms {
    /// Parses the text of `saved_cmdlines`: lines `315 sh`.
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let entry = |line: &str| {
            let (pid, comm) = line.split_once(' ')?;
            Some((pid.trim().parse().ok()?, comm.to_owned()))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    /// Returns the name of a task, if it is known.
    pub fn get(&self, pid: i32) -> Option<&str> {
        match pid {
            0 => Some("<idle>"),
            pid => self.0.get(&pid).map(String::as_str),
        }
    }

    /// Adds the name of a task that has no name yet.
    pub fn learn(&mut self, pid: i32, comm: &str) {
        if pid != 0 {
            self.0.entry(pid).or_insert_with(|| comm.to_owned());
        }
    }

    /// Iterates over all tasks.
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
