//! Functions of one image, sorted by address.
//!
//! A lookup is a binary search, which is usually avoided: a program calls the same functions repeatedly, so a small
//! cache stores the results for recent addresses.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::name;

/// A symbol that may name a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The link-time address, without mode bits.
    pub address: u64,
    /// The size in bytes; 0 if unknown.
    pub size: u64,
    /// The linker name.
    pub name: Box<str>,
    /// Whether it is marked as a function (else it is a label in code).
    pub function: bool,
    /// Its visibility.
    pub binding: Binding,
    /// Upper bound for the end of code without a size (its section's end); `u64::MAX` if unknown.
    pub limit: u64,
}

/// Visibility of a symbol, the most preferable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    Global,
    Weak,
    Local,
}

/// A function.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The link-time address.
    pub start: u64,
    /// The symbol's size; 0 if it has none.
    pub size: u64,
    /// Its end address: from its size, or the start of the next function.
    pub end: u64,
    /// The linker name.
    pub name: Box<str>,
    demangled: OnceLock<Option<Box<str>>>,
}

impl Entry {
    /// The source name.
    pub fn name(&self) -> &str {
        let demangled = self
            .demangled
            .get_or_init(|| match name::demangle(&self.name) {
                std::borrow::Cow::Borrowed(_) => None,
                std::borrow::Cow::Owned(name) => Some(name.into()),
            });
        demangled.as_deref().unwrap_or(&self.name)
    }
}

/// Extent in bytes of a function of unknown size and end: enough for any hand-written one.
const REACH: u64 = 64 * 1024;

/// Maximum number of enclosed functions skipped in a lookup.
const ENCLOSED: usize = 8;

/// The functions.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Sorted by address, one per address.
    entries: Vec<Entry>,
    /// All linker names, including aliases, with the index of the entry; sorted.
    names: Vec<(Box<str>, u32)>,
    cache: Cache,
}

impl Table {
    /// Assigns names to addresses. Of several symbols at one address the best is the function's name, the others its
    /// aliases.
    pub fn new(mut candidates: Vec<Candidate>) -> Self {
        candidates.sort_by_cached_key(|candidate| (candidate.address, rank(candidate)));
        candidates.dedup();
        let mut table = Self::default();
        let mut limits = Vec::new();
        for candidate in candidates {
            let Candidate {
                address,
                size,
                name,
                function,
                limit,
                ..
            } = candidate;
            match table.entries.last_mut() {
                // Only symbols of the linker script: no function begins here.
                last if is_mark(&name)
                    && !function
                    && last.as_ref().is_none_or(|entry| entry.start != address) => {}
                // A label inside a function is not a function.
                Some(entry)
                    if !function
                        && size == 0
                        && address > entry.start
                        && address - entry.start < entry.size => {}
                Some(entry) if entry.start == address => {
                    entry.size = entry.size.max(size);
                    if entry.name != name {
                        let index = table.entries.len() - 1;
                        table.names.push((name, index as u32));
                    }
                }
                _ => {
                    // A table of 2^32 functions does not fit into memory.
                    let Ok(index) = u32::try_from(table.entries.len()) else {
                        break;
                    };
                    table.names.push((name.clone(), index));
                    limits.push(limit);
                    table.entries.push(Entry {
                        start: address,
                        size,
                        end: address,
                        name,
                        demangled: OnceLock::new(),
                    });
                }
            }
        }
        let mut next = u64::MAX;
        for (entry, limit) in table.entries.iter_mut().zip(limits).rev() {
            entry.end = match entry.size {
                0 => entry.start.saturating_add(REACH).min(next).min(limit),
                size => entry.start.saturating_add(size),
            };
            next = entry.start;
        }
        table.names.sort_unstable();
        table.names.dedup();
        table
    }

    /// All functions, by address.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The function that contains the link-time address.
    pub fn at(&self, address: u64) -> Option<&Entry> {
        let cached = self.cache.get(address) as usize;
        let next = self.entries.get(cached + 1);
        if self.holds(cached, address) && next.is_none_or(|next| address < next.start) {
            return self.entries.get(cached);
        }
        let after = self.entries.partition_point(|entry| entry.start <= address);
        // Code with several entry points encloses functions with names of their own, and continues after them.
        let nearest = (after.saturating_sub(ENCLOSED)..after).rev();
        let index = nearest
            .into_iter()
            .find(|index| self.holds(*index, address))?;
        self.cache.put(address, index as u32);
        self.entries.get(index)
    }

    /// Whether an entry contains an address. The start is always included.
    fn holds(&self, index: usize, address: u64) -> bool {
        self.entries.get(index).is_some_and(|entry| {
            address == entry.start || (entry.start..entry.end).contains(&address)
        })
    }

    /// The functions with this linker name, including aliases.
    pub fn named(&self, name: &str) -> impl Iterator<Item = &Entry> {
        let from = self.names.partition_point(|(other, _)| **other < *name);
        let same = self
            .names
            .iter()
            .skip(from)
            .take_while(move |(other, _)| **other == *name);
        same.filter_map(|(_, index)| self.entries.get(*index as usize))
    }

    /// All linker names, including aliases.
    pub fn names(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.names
            .iter()
            .filter_map(|(name, index)| Some((&**name, self.entries.get(*index as usize)?)))
    }
}

/// Rank of a symbol, lowest for the best at an address, independent of their order in the file: not from the linker
/// script, marked as a function, global, with a size, and then with the plainest name.
fn rank(candidate: &Candidate) -> impl Ord + use<> {
    let name = &candidate.name;
    let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
    (
        is_mark(name),
        !candidate.function,
        candidate.binding,
        candidate.size == 0,
        underscores,
        name.len(),
        name.clone(),
    )
}

/// Whether a name is typical of linker scripts (`_stext`, `__executable_start`) rather than of functions.
pub(crate) fn is_mark(name: &str) -> bool {
    const MARKS: [&str; 24] = [
        "__executable_start",
        "_text",
        "_stext",
        "__text",
        "__text_start",
        "__text_start__",
        "_text_start",
        "_start_text",
        "__stext",
        "_ftext",
        "_etext",
        "etext",
        "__etext",
        "_text_end",
        "__text_end",
        "__text_end__",
        "_image_start",
        "__image_start",
        "__rom_region_start",
        "__code_start__",
        "_code_start",
        "_sinittext",
        "_einittext",
        "__flash_start",
    ];
    MARKS.contains(&name)
}

/// Cache of lookups: maps the hash of an address to the index of an entry. Entries are only hints, so neither
/// collisions nor races between readers matter.
#[derive(Debug)]
struct Cache(Box<[AtomicU32; Cache::SIZE]>);

impl Default for Cache {
    fn default() -> Self {
        Self(Box::new([const { AtomicU32::new(0) }; Self::SIZE]))
    }
}

impl Cache {
    const SIZE: usize = 1024;

    fn slot(&self, address: u64) -> &AtomicU32 {
        // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
        let hash = address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - 10);
        &self.0[hash as usize % Self::SIZE]
    }

    fn get(&self, address: u64) -> u32 {
        self.slot(address).load(Ordering::Relaxed)
    }

    fn put(&self, address: u64, index: u32) {
        self.slot(address).store(index, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(address: u64, size: u64, name: &str) -> Candidate {
        Candidate {
            address,
            size,
            name: name.into(),
            function: true,
            binding: Binding::Global,
            limit: u64::MAX,
        }
    }

    #[test]
    fn the_best_alias_wins_in_any_order() {
        let candidates = vec![
            Candidate {
                function: false,
                ..candidate(0x100, 0, "_stext")
            },
            Candidate {
                binding: Binding::Local,
                ..candidate(0x100, 8, "a")
            },
            candidate(0x100, 8, "__reset"),
            Candidate {
                binding: Binding::Weak,
                ..candidate(0x100, 8, "b")
            },
            candidate(0x100, 8, "reset_handler"),
            candidate(0x100, 0, "r"),
        ];
        for turn in 0..candidates.len() {
            let mut candidates = candidates.clone();
            candidates.rotate_left(turn);
            let table = Table::new(candidates);
            assert_eq!(table.entries().len(), 1);
            assert_eq!(table.entries()[0].name(), "reset_handler");
            for alias in ["_stext", "a", "b", "r", "__reset", "reset_handler"] {
                assert_eq!(table.named(alias).count(), 1, "{alias}");
            }
            assert_eq!(table.named("c").count(), 0);
        }
    }

    #[test]
    fn addresses_belong_to_the_function_that_holds_them() {
        let table = Table::new(vec![
            candidate(0x100, 0x10, "sized"),
            candidate(0x120, 0, "label"),
            candidate(0x140, 0x40, "outer"),
            candidate(0x150, 0x10, "inner"),
            Candidate {
                function: false,
                ..candidate(0x158, 0, "loop")
            },
            Candidate {
                function: false,
                ..candidate(0x110, 0, "_etext")
            },
            Candidate {
                limit: 0x1F0,
                ..candidate(0x1E0, 0, "last")
            },
        ]);
        let at = |address| table.at(address).map(Entry::name);
        // The second lookup uses the cache.
        for _ in 0..2 {
            assert_eq!(at(0xFF), None);
            assert_eq!(at(0x100), Some("sized"));
            assert_eq!(at(0x10F), Some("sized"));
            assert_eq!(at(0x110), None);
            assert_eq!(at(0x13F), Some("label"));
            assert_eq!(at(0x14F), Some("outer"));
            assert_eq!(at(0x150), Some("inner"));
            assert_eq!(at(0x15F), Some("inner"));
            assert_eq!(at(0x160), Some("outer"));
            assert_eq!(at(0x17F), Some("outer"));
            assert_eq!(at(0x180), None);
            assert_eq!(at(0x1EF), Some("last"));
            assert_eq!(at(0x1F0), None);
            assert_eq!(at(u64::MAX), None);
        }
    }

    #[test]
    fn the_cache_never_answers_wrongly() {
        let functions = (0..5000).map(|i| candidate(i * 16, 12, &format!("f{i}")));
        let table = Table::new(functions.collect());
        for address in (0..80_000).chain((0..80_000).rev()) {
            let expected = (address % 16 < 12).then(|| format!("f{}", address / 16));
            assert_eq!(table.at(address).map(|e| e.name().to_owned()), expected);
        }
    }

    #[test]
    fn the_ends_of_the_address_space() {
        let table = Table::new(vec![
            candidate(0, 0, "first"),
            candidate(u64::MAX, 9, "last"),
        ]);
        assert_eq!(table.at(0).map(Entry::name), Some("first"));
        assert!(table.at(REACH).is_none());
        assert!(table.at(u64::MAX - 1).is_none());
        assert!(Table::new(Vec::new()).at(5).is_none());
    }
}
