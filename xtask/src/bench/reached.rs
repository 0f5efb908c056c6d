//! Regression limits for figures that have no demand or don't meet it: `device/bench/limits.txt`, with lines `TARGET
//! ROW KIND FIGURE`. Figures may not exceed them. `cargo xtask bench recorder --tighten` lowers them to smaller
//! figures, and adds new ones. Larger figures must be entered by hand, where a reviewer sees them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::bench::table::{Kind, Line};
use kymo_targets::run::{self, Context, Error, Result};

/// Limits of all figures without a demand that is met.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Reached(BTreeMap<(String, String, Kind), u64>);

/// First lines of the file.
const ABOUT: &str = "# What `cargo xtask bench recorder` has counted where no demand is kept: processor, row,\n\
                     # what, figure (hundredths of a byte). No figure may grow beyond it; see\n\
                     # xtask/src/bench/reached.rs.\n";

impl Reached {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file is missing, or a line is invalid.
    pub fn load() -> Result<Self> {
        let path = path();
        Self::parse(&fs::read_to_string(&path).context(path.display())?)
    }

    /// Reads the file's text.
    ///
    /// # Errors
    /// If a line is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let mut reached = Self::default();
        for (n, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.is_empty() {
                continue;
            }
            let wrong = || {
                Error::new(format!(
                    "device/bench/limits.txt:{}: what is {line:?}?",
                    n + 1
                ))
            };
            let words: Vec<&str> = line.split(' ').collect();
            let [target, row, kind, figure] = words[..] else {
                return Err(wrong());
            };
            let kind = Kind::ALL.into_iter().find(|it| it.name() == kind);
            let (kind, figure) = kind.zip(figure.parse().ok()).ok_or_else(wrong)?;
            let key = (target.to_owned(), row.to_owned(), kind);
            reached.0.insert(key, figure);
        }
        Ok(reached)
    }

    /// The limit of a figure.
    pub fn get(&self, target: &str, row: &str, kind: Kind) -> Option<u64> {
        let key = (target.to_owned(), row.to_owned(), kind);
        self.0.get(&key).copied()
    }

    /// Returns the limits with smaller and new figures, without those that meet their demand or no longer exist.
    #[must_use]
    pub fn tightened(&self, lines: &[Line]) -> Self {
        let mut tightened = Self::default();
        for line in lines {
            for kind in Kind::ALL {
                let figure = line.figure(kind).filter(|figure| figure.watched);
                let Some(figure) = figure else { continue };
                if figure.demand.is_some_and(|demand| figure.found <= demand) {
                    continue;
                }
                let before = self.get(line.target, line.name, kind);
                let reached = before.map_or(figure.found, |before| before.min(figure.found));
                let key = (line.target.to_owned(), line.name.to_owned(), kind);
                tightened.0.insert(key, reached);
            }
        }
        tightened
    }

    /// Writes the file, in the order of `lines`.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn save(&self, lines: &[Line]) -> Result<()> {
        let mut text = ABOUT.to_owned();
        for line in lines {
            for kind in Kind::ALL {
                if let Some(figure) = self.get(line.target, line.name, kind) {
                    let (target, name, kind) = (line.target, line.name, kind.name());
                    text.push_str(&format!("{target} {name} {kind} {figure}\n"));
                }
            }
        }
        let path = path();
        fs::write(&path, text).context(path.display())
    }
}

fn path() -> PathBuf {
    run::root().join("device/bench/limits.txt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table::Figure;

    #[test]
    fn what_became_larger_is_not_written() {
        let line = |found, demand| {
            let figure = Figure {
                found,
                demand,
                watched: true,
            };
            Line {
                target: "t",
                name: "r",
                title: "row",
                most: None,
                figures: [Some(figure), None, None, None, None],
            }
        };
        let reached = Reached::parse("# why\n\nt r instructions 50\nt old masked 3\n").unwrap();
        let after = |line| {
            let tightened = reached.tightened(&[line]);
            assert_eq!(tightened.get("t", "old", Kind::Masked), None);
            tightened.get("t", "r", Kind::Instructions)
        };
        assert_eq!(after(line(40, None)), Some(40));
        assert_eq!(after(line(60, None)), Some(50));
        assert_eq!(after(line(40, Some(30))), Some(40));
        assert_eq!(after(line(30, Some(30))), None);
    }

    #[test]
    fn a_line_that_is_wrong_is_named() {
        for text in ["a b c\n", "t r instructions x\n", "t r time 3\n"] {
            let error = Reached::parse(text).unwrap_err().to_string();
            assert!(error.contains("limits.txt:1:"), "{error}");
        }
    }
}
