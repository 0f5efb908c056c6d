//! The rows of `kymo profile` as JSON.

use std::io::{self, Write};

use kymo_event::Duration;
use kymo_read::profile_table::OnCpu;
use kymo_symbols::Symbols;

use super::Row;
use crate::render::json::{Json, Object};

/// Writes a function as one line of JSON, with the same members as `kymo report`.
pub(super) fn json(
    out: &mut dyn Write,
    row: &Row,
    name: &str,
    symbols: &Symbols,
) -> io::Result<()> {
    let mut object = Object::begin(out)?;
    object.member("function", name)?;
    object.member("count", row.count)?;
    let known = |time: Duration| (!row.is_timeless).then_some(time.0);
    object.member("total_ns", known(row.total))?;
    object.member("self_ns", known(row.self_time))?;
    object.member("min_ns", row.min)?;
    object.member("max_ns", row.max)?;
    object.member("avg_ns", row.average.map(|average| average.0))?;
    object.member("address", row.address.map(|address| address.0))?;
    if !row.cpus.is_empty() {
        let cpus: Vec<_> = row.cpus.iter().map(JsonOnCpu).collect();
        object.member("cpus", &cpus)?;
    }
    if let Some(location) = row.address.and_then(|address| symbols.location(address)) {
        object.member("file", &location.file)?;
        object.member("line", location.line)?;
    }
    object.end()?;
    out.write_all(b"\n")
}

/// A function's calls on one CPU, as a JSON object.
struct JsonOnCpu<'a>(&'a OnCpu);

impl Json for JsonOnCpu<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        let Self(part) = self;
        let mut object = format!("{{\"cpu\":{},\"count\":{}", part.cpu, part.count);
        object += &format!(",\"total_ns\":{}", part.total.0);
        object += &format!(",\"self_ns\":{}}}", part.self_time.0);
        out.extend_from_slice(object.as_bytes());
    }
}
