//! Named values of an enumeration.
//!
//! A Kymo function trace has one label for every function of the program, so looking up a value must not search the
//! list. Ranges may legally overlap and labels may repeat. Usually they don't, and the lookup is a binary search over
//! sorted ranges; otherwise it uses declaration order, as CTF 1.8 readers do.

use super::Value64;

/// A label with a range of values, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The name.
    pub label: String,
    /// The least value.
    pub first: Value64,
    /// The greatest value.
    pub last: Value64,
}

/// All mappings of an enumeration in declaration order, with an index by value and one by label.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mappings {
    list: Vec<Mapping>,
    /// Indices into `list`, sorted by label.
    by_label: Vec<u32>,
    /// `(first, last, index into list)` sorted by `first`, as numbers that cover both signednesses.
    sorted: Vec<(i128, i128, u32)>,
    /// Index into `list` for each value from 0 on, [`NONE`] if none; empty if the table would be large.
    dense: Vec<u32>,
    overlapping: bool,
}

/// Marks a value without a mapping.
const NONE: u32 = u32::MAX;

impl Mappings {
    /// Builds the index. Mappings whose last value is below their first cover nothing.
    #[must_use]
    pub fn new(list: Vec<Mapping>) -> Self {
        let mut sorted: Vec<_> = (0u32..)
            .zip(&list)
            .map(|(index, mapping)| (mapping.first.widen(), mapping.last.widen(), index))
            .filter(|(first, last, _)| first <= last)
            .collect();
        sorted.sort_unstable();
        let mut by_label: Vec<u32> = (0u32..).take(list.len()).collect();
        by_label.sort_by(|a, b| label_at(&list, *a).cmp(label_at(&list, *b)));
        let overlapping = !sorted.is_sorted_by(|a, b| a.1 < b.0);
        Self {
            dense: if overlapping {
                Vec::new()
            } else {
                dense(&sorted)
            },
            overlapping,
            by_label,
            sorted,
            list,
        }
    }

    /// Creates mappings from single values with their labels.
    pub fn from_values<L: Into<String>>(values: impl IntoIterator<Item = (L, Value64)>) -> Self {
        let list = values.into_iter();
        Self::new(
            list.map(|(label, value)| Mapping {
                label: label.into(),
                first: value,
                last: value,
            })
            .collect(),
        )
    }

    /// The mappings in declaration order.
    #[must_use]
    pub fn list(&self) -> &[Mapping] {
        &self.list
    }

    /// The first declared label that covers `value`.
    #[must_use]
    pub fn label(&self, value: Value64) -> Option<&str> {
        self.labels(value).next()
    }

    /// All labels that cover `value`, in declaration order.
    pub fn labels(&self, value: Value64) -> impl Iterator<Item = &str> {
        let value = value.widen();
        let (one, scan): (Option<&Mapping>, &[Mapping]) = if self.overlapping {
            (None, &self.list)
        } else {
            (self.find(value), &[])
        };
        one.into_iter()
            .chain(
                scan.iter()
                    .filter(move |it| it.first.widen() <= value && value <= it.last.widen()),
            )
            .map(|mapping| mapping.label.as_str())
    }

    /// All mappings of `label`, in declaration order.
    pub fn labelled(&self, label: &str) -> impl Iterator<Item = &Mapping> {
        let of = |index: &u32| label_at(&self.list, *index);
        let start = self.by_label.partition_point(|index| of(index) < label);
        let rest = self.by_label.get(start..).unwrap_or(&[]);
        let end = rest.partition_point(|index| of(index) == label);
        let found = rest.get(..end).unwrap_or(&[]);
        found
            .iter()
            .filter_map(|index| self.list.get(*index as usize))
    }

    /// All labels with a range that contains a bit set in `bits`, counted from the least significant one: the flags of
    /// a [bit map](super::BitMapClass).
    pub fn flags(&self, bits: u64) -> impl Iterator<Item = &str> {
        let set = move |mapping: &&Mapping| {
            let (first, last) = (mapping.first.widen(), mapping.last.widen());
            (0..64).any(|bit| bits >> bit & 1 == 1 && (first..=last).contains(&bit))
        };
        let mut last = None;
        self.list.iter().filter(set).filter_map(move |mapping| {
            // The ranges of a label are consecutive.
            let label = mapping.label.as_str();
            (last.replace(label) != Some(label)).then_some(label)
        })
    }

    /// The mapping that covers `value`, if no two overlap.
    fn find(&self, value: i128) -> Option<&Mapping> {
        if let Some(&index) = usize::try_from(value)
            .ok()
            .and_then(|value| self.dense.get(value))
        {
            // The list has no element at [`NONE`].
            return self.list.get(index as usize);
        }
        self.list.get(self.search(value)?)
    }

    /// Index in [`list`](Self::list) of the mapping that covers `value`. `None` also if mappings overlap; without a
    /// mapping, the index may be beyond the list.
    #[inline(always)]
    pub(crate) fn position(&self, value: Value64) -> Option<usize> {
        let low = match value {
            Value64::Unsigned(value) => value,
            // Negative values are beyond any table.
            Value64::Signed(value) => value as u64,
        };
        match usize::try_from(low)
            .ok()
            .and_then(|low| self.dense.get(low))
        {
            Some(index) => Some(*index as usize),
            None if self.overlapping => None,
            None => self.search(value.widen()),
        }
    }

    fn search(&self, value: i128) -> Option<usize> {
        let after = self.sorted.partition_point(|&(first, _, _)| first <= value);
        let &(_, last, index) = self.sorted.get(after.checked_sub(1)?)?;
        (value <= last).then_some(index as usize)
    }
}

fn label_at(list: &[Mapping], index: u32) -> &str {
    list.get(index as usize)
        .map_or("", |mapping| mapping.label.as_str())
}

/// A table of the values from 0 on, unless it is much larger than the list.
fn dense(sorted: &[(i128, i128, u32)]) -> Vec<u32> {
    const FEW: usize = 256;
    const EACH: usize = 32;
    let last = sorted
        .last()
        .and_then(|(_, last, _)| usize::try_from(*last).ok());
    let most = sorted.len().saturating_mul(EACH).max(FEW);
    let Some(last) = last.filter(|last| *last < most) else {
        return Vec::new();
    };
    let mut table = vec![NONE; last + 1];
    for (first, last, index) in sorted {
        for value in (*first).max(0)..=*last {
            if let Some(place) = usize::try_from(value)
                .ok()
                .and_then(|value| table.get_mut(value))
            {
                *place = *index;
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(label: &str, first: i64, last: i64) -> Mapping {
        Mapping {
            label: label.into(),
            first: Value64::Signed(first),
            last: Value64::Signed(last),
        }
    }

    #[test]
    fn finds_single_values_ranges_and_holes() {
        let mappings = Mappings::new(vec![
            map("high", 100, 200),
            map("zero", 0, 0),
            map("minus", -5, -1),
        ]);
        let label = |value| mappings.label(Value64::Signed(value));
        assert_eq!(label(0), Some("zero"));
        assert_eq!(label(150), Some("high"));
        assert_eq!(label(-5), Some("minus"));
        assert_eq!((label(1), label(-6), label(201)), (None, None, None));
    }

    #[test]
    fn overlapping_ranges_give_all_labels_in_declared_order() {
        let mappings = Mappings::new(vec![
            map("wide", 0, 9),
            map("five", 5, 5),
            map("wide", 5, 6),
        ]);
        let labels: Vec<_> = mappings.labels(Value64::Unsigned(5)).collect();
        assert_eq!(labels, ["wide", "five", "wide"]);
        assert_eq!(mappings.label(Value64::Unsigned(9)), Some("wide"));
        let firsts: Vec<_> = mappings.labelled("wide").map(|it| it.first).collect();
        assert_eq!(firsts, [Value64::Signed(0), Value64::Signed(5)]);
        assert_eq!(mappings.labelled("wid").count(), 0);
    }

    #[test]
    fn the_largest_unsigned_value_is_not_minus_one() {
        let mappings = Mappings::from_values([
            ("max", Value64::Unsigned(u64::MAX)),
            ("minus", Value64::Signed(-1)),
        ]);
        assert_eq!(mappings.label(Value64::Unsigned(u64::MAX)), Some("max"));
        assert_eq!(mappings.label(Value64::Signed(-1)), Some("minus"));
    }
}
