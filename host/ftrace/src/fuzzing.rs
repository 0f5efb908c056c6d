//! Body of the fuzz target `ftrace`.

use crate::{EventFormat, Records, Report, Style, Trace};

/// Reads the bytes as a trace.dat and reports it in both styles, then reads them as the text of an event format,
/// followed by a zero byte and a record of that event.
#[doc(hidden)]
pub fn fuzz(data: &[u8]) {
    if let Ok(trace) = Trace::parse(data) {
        for raw in [false, true] {
            let style = Style {
                raw,
                ..Style::default()
            };
            let mut records = Records::new(&trace, data);
            let mut report = Report::new(&trace, style);
            let mut out = String::new();
            while let Some((place, step)) = records.next(&trace, data) {
                report.push(place, &step, &mut out);
                out.clear();
            }
            report.finish(&mut out);
        }
    }
    let end = data.iter().position(|byte| *byte == 0);
    let (text, record) = data.split_at(end.unwrap_or(data.len()));
    let text = String::from_utf8_lossy(text);
    if let Some(format) = EventFormat::parse("fuzz", &text) {
        let trace = Trace::new(crate::Order::Little, 8);
        let mut out = String::new();
        trace.scope().print(&format, record, &mut out);
    }
}
