//! Writes a trace.dat as `trace-cmd report` does: `report FILE [-t] [-R] [-l]`.

use std::io::Write;

use kymo_ftrace::{Records, Report, Style, Trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut path, mut style) = (None, Style::default());
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "-t" => style.nanoseconds = true,
            "-R" => style.raw = true,
            "-l" => style.latency = true,
            _ => path = Some(argument),
        }
    }
    let file = std::fs::read(path.ok_or("report FILE [-t] [-R] [-l]")?)?;
    let trace = Trace::parse(&file)?;
    let mut stdout = std::io::stdout().lock();
    let cpus = trace.buffers.iter().map(|buffer| buffer.cpus.len()).max();
    writeln!(stdout, "cpus={}", cpus.unwrap_or(0))?;
    let mut records = Records::new(&trace, &file);
    let mut report = Report::new(&trace, style);
    let mut out = String::new();
    while let Some((place, step)) = records.next(&trace, &file) {
        report.push(place, &step, &mut out);
        if out.len() > 1 << 16 {
            stdout.write_all(out.as_bytes())?;
            out.clear();
        }
    }
    report.finish(&mut out);
    stdout.write_all(out.as_bytes())?;
    Ok(())
}
