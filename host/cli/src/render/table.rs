//! Tables: numbers right-aligned, text left-aligned, no rules.
//!
//! Columns are as wide as their widest cell, so a table is kept in memory until it is written; it has one row per
//! function, never one per event.

use std::io::{self, Write};

use super::escape::escape_from;
use super::palette::Palette;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A table under construction.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns
                .map(|(name, align)| (name.to_owned(), align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row, its cells escaped. Cells beyond the last column are not shown, missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().map(|mut cell| {
            escape_from(&mut cell, 0);
            cell
        });
        self.rows.push(cells.collect());
    }

    /// Writes heading and rows, two spaces between columns and none at the ends of lines.
    pub fn write(&self, out: &mut dyn Write, palette: &Palette) -> io::Result<()> {
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(i, (name, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(i));
                cells.map(|cell| width(cell)).fold(width(name), usize::max)
            })
            .collect();
        let heading = palette.heading;
        let names = self.columns.iter().map(|(name, _)| name.as_str());
        let line = self.line(names, &widths);
        writeln!(out, "{heading}{line}{heading:#}")?;
        for row in &self.rows {
            writeln!(
                out,
                "{}",
                self.line(row.iter().map(String::as_str), &widths)
            )?;
        }
        Ok(())
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, &wide), (_, align)) in cells.zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(wide.saturating_sub(width(cell)));
            match align {
                Align::Left => line.extend([cell, &padding]),
                Align::Right => line.extend([&padding, cell]),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Width of a text in columns: its number of characters. Double-width characters are misaligned, but rare in names of
/// functions and threads.
fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new([
            ("COUNT", Align::Right),
            ("FUNCTION", Align::Left),
            ("", Align::Left),
        ]);
        table.row(["1".into(), "größte".into(), "x".into()]);
        table.row(["1234567".into(), "f".into()]);
        let mut out = Vec::new();
        table
            .write(&mut out, &Palette::PLAIN)
            .expect("a vector takes everything");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "  COUNT  FUNCTION\n      1  größte    x\n1234567  f\n"
        );
    }
}
