//! What is measured by `cargo xtask bench ctf`: one way of reading a trace, with what it cost.
//!
//! ```text
//! cargo run --release -p kymo-ctf --example ctf_speed -- count DIRECTORY
//! ```
//!
//! Prints events, nanoseconds of processor time (by several threads: of the one that has worked most), nanoseconds from start
//! to end, the largest memory in KiB, and a sum of what was seen.

use std::error::Error;
use std::fs;
use std::io::{BufWriter, Read, Write};
use std::time::Instant;

use kymo_ctf::text::Layout;
use kymo_ctf::{Message, Messages, Origin, Parallel, Projection, Reported, Trace, Value, Visitor};

/// Adds up what it sees, so that no field is left out.
#[derive(Default)]
struct Sum(u64);

impl<'a> Visitor<'a> for Sum {
    const NESTED: bool = false;

    #[inline]
    fn value(&mut self, name: &'a str, value: Value<'a>) {
        let number = match value {
            Value::Integer { value, .. } => value.widen() as u64,
            Value::Float { value, .. } => value.to_bits(),
            Value::Text { bytes, .. } | Value::Blob { bytes, .. } => bytes.len() as u64,
            Value::Boolean(value) => value.into(),
            Value::Bits { value, .. } => value,
            Value::Absent => 0,
        };
        self.0 = self.0.wrapping_add(number).wrapping_add(name.len() as u64);
    }
}

/// Events, and a number that depends on all that was seen.
type Seen = (u64, u64);

fn count(traces: &[Trace]) -> Result<Seen, Box<dyn Error>> {
    let (mut events, mut sum) = (0, 0u64);
    Messages::merge(traces)?.for_each(|_, message| {
        if let Message::Event(event) = message {
            events += 1;
            sum =
                sum.wrapping_add(event.time_ns().unwrap_or(0) as u64 + event.class_index() as u64);
        }
    })?;
    Ok((events, sum))
}

fn visit(traces: &[Trace]) -> Result<Seen, Box<dyn Error>> {
    let (mut events, mut sum) = (0, Sum::default());
    Messages::merge(traces)?.for_each(|_, message| {
        if let Message::Event(event) = message {
            events += 1;
            event.visit_all(&mut sum);
        }
    })?;
    Ok((events, sum.0))
}

fn field(traces: &[Trace], name: &str) -> Result<Seen, Box<dyn Error>> {
    let projections = traces.iter().map(|it| Projection::new(it.plan(), [name]));
    let projections: Vec<_> = projections.collect();
    let (mut events, mut sum) = (0, 0u64);
    Messages::merge(traces)?.for_each(|origin, message| {
        if let (Message::Event(event), Some(projection)) = (message, projections.get(origin.trace))
        {
            events += 1;
            let mut values = [None];
            event.project(projection, &mut values);
            let value = values[0].and_then(|value: Value<'_>| value.as_u64());
            sum = sum.wrapping_add(value.unwrap_or(0));
        }
    })?;
    Ok((events, sum))
}

fn text(traces: &[Trace]) -> Result<Seen, Box<dyn Error>> {
    let layouts = Layout::of(traces);
    let mut out = fs::File::create("/dev/null")?;
    let (mut events, mut bytes, mut lines) = (0, 0, Vec::new());
    let mut written = Ok(());
    Messages::merge(traces)?.for_each(|origin, message| {
        if let (Message::Event(event), Some(layout)) = (message, layouts.get(origin.trace)) {
            events += 1;
            layout.event(&mut lines, &event);
            lines.push(b'\n');
            if lines.len() > 64 << 10 {
                bytes += lines.len() as u64;
                written = out.write_all(&lines);
                lines.clear();
            }
        }
    })?;
    written.and_then(|()| out.write_all(&lines))?;
    Ok((events, bytes + lines.len() as u64))
}

/// The same by several threads.
fn text_by(traces: &[Trace], threads: usize) -> Result<Seen, Box<dyn Error>> {
    let layouts = Layout::of(traces);
    let make = move |origin: Origin, reported: Reported<'_>, lines: &mut Vec<u8>| {
        if let (Reported::Message(Message::Event(event)), Some(layout)) =
            (reported, layouts.get(origin.trace))
        {
            layout.event(lines, &event);
            lines.push(b'\n');
        }
    };
    let mut parallel = Parallel::new(traces, threads, make)?;
    let mut out = BufWriter::with_capacity(64 << 10, fs::File::create("/dev/null")?);
    let (mut lines, mut bytes) = (0, 0);
    while let Some((_, part)) = parallel.next_part() {
        bytes += part.len() as u64;
        lines += part.iter().filter(|byte| **byte == b'\n').count() as u64;
        out.write_all(part)?;
    }
    Ok((lines, bytes))
}

/// Every field of every event, by several threads, and the sums in order.
fn visit_by(traces: &[Trace], threads: usize) -> Result<Seen, Box<dyn Error>> {
    let make = |_: Origin, reported: Reported<'_>, sums: &mut Vec<u64>| {
        if let Reported::Message(Message::Event(event)) = reported {
            let mut sum = Sum::default();
            event.visit_all(&mut sum);
            sums.push(sum.0);
        }
    };
    let mut parallel = Parallel::new(traces, threads, make)?;
    let (mut events, mut all) = (0, 0u64);
    while let Some((_, sums)) = parallel.next_part() {
        events += sums.len() as u64;
        all = sums.iter().fold(all, |all, sum| all.wrapping_add(*sum));
    }
    Ok((events, all))
}

/// The bytes alone, read and added up: what a reader without any decoding would take.
fn bytes(directory: &str) -> Result<Seen, Box<dyn Error>> {
    let mut buffer = vec![0; 256 << 10];
    let (mut sum, mut total) = (0u64, 0);
    for entry in fs::read_dir(directory)? {
        let mut file = fs::File::open(entry?.path())?;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            total += read as u64;
            let words = buffer.get(..read).unwrap_or(&[]).chunks_exact(8);
            let words = words.filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)));
            sum = words.fold(sum, u64::wrapping_add);
        }
    }
    Ok((total, sum))
}

/// Nanoseconds that this process has run so far, if the system says.
fn processor_time() -> Option<u64> {
    let mut total = 0;
    for task in fs::read_dir("/proc/self/task").ok()? {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        total += text.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(total)
}

/// Nanoseconds that the thread that has worked most has run: of two threads, of which one is the main one.
///
/// Of a thread that has ended the system remembers nothing but that the process was so much longer at work.
fn busiest() -> Option<u64> {
    /// Nanoseconds of what the kernel counts in.
    const TICK: u64 = 10_000_000;
    let main = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let main: u64 = main.split(' ').next()?.parse().ok()?;
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11);
    let mut ticks = || times.next()?.parse::<u64>().ok();
    let all = (ticks()? + ticks()?) * TICK;
    Some(main.max(all.saturating_sub(main)))
}

/// The largest memory that this process has had, in KiB.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = Instant::now();
    let (events, sum) = match words[..] {
        ["count", directory] => count(&Trace::open_all(directory)?)?,
        ["visit", directory] => visit(&Trace::open_all(directory)?)?,
        ["field", name, directory] => field(&Trace::open_all(directory)?, name)?,
        ["text", directory] => text(&Trace::open_all(directory)?)?,
        ["visit", "--threads", threads, directory] => {
            visit_by(&Trace::open_all(directory)?, threads.parse()?)?
        }
        ["text", "--threads", threads, directory] => {
            text_by(&Trace::open_all(directory)?, threads.parse()?)?
        }
        ["bytes", directory] => bytes(directory)?,
        _ => return Err("which way, and which trace?".into()),
    };
    let wall = start.elapsed().as_nanos();
    // The system brings what it knows of a thread's time up to date when that goes to sleep.
    std::thread::sleep(std::time::Duration::from_millis(1));
    let time = match words.contains(&"--threads") {
        true => busiest(),
        false => processor_time(),
    };
    let (time, peak) = (time.unwrap_or(0), peak().unwrap_or(0));
    println!("{events} {time} {wall} {peak} {sum:x}");
    Ok(())
}
