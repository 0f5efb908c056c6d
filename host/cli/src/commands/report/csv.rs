//! Table as comma-separated values, for spreadsheets and data frames.

use std::io::Write;

use kymo_export::csv::cell;

use super::columns::{Column, Value, Whole};
use super::entry::Entry;
use crate::render::unit;

/// The last column: names of columns whose values in a row are lower bounds or in doubt.
const MARKS: &str = "marks";

/// Writes the same columns as the text, with a heading: times in nanoseconds (or the trace's unit), shares in
/// percent, empty cells for unknown values. The last cell lists the values that the text marks with `≥` or `?`:
/// `total>= max?`.
pub fn write(
    out: &mut dyn Write,
    columns: &[&Column],
    entries: &[Entry],
    whole: Whole,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    for column in columns {
        cell(&mut line, &column.member_name(unit::get().suffix()));
        line.push(b',');
    }
    line.extend_from_slice(MARKS.as_bytes());
    line.push(b'\n');
    for entry in entries {
        let mut marks = Vec::new();
        for column in columns {
            match column.value(entry, whole) {
                Value::Count(count) => write!(line, "{count}")?,
                Value::Number(number) => write!(line, "{number}")?,
                Value::Time(time) => write!(line, "{}", time.0)?,
                Value::AtLeast(time) => {
                    write!(line, "{}", time.0)?;
                    marks.push(format!("{}>=", column.name));
                }
                Value::Doubtful(time) => {
                    write!(line, "{}", time.0)?;
                    marks.push(format!("{}?", column.name));
                }
                Value::Share(part, whole) | Value::ShareAtLeast(part, whole) => {
                    write!(line, "{:.4}", part.0 as f64 * 100.0 / whole.0.max(1) as f64)?;
                }
                Value::Text(text) => cell(&mut line, text),
                Value::None => {}
            }
            line.push(b',');
        }
        cell(&mut line, &marks.join(" "));
        line.push(b'\n');
        out.write_all(&line)?;
        line.clear();
    }
    out.write_all(&line)
}
