//! Speed of packets and of full decode, in memory: `cargo run --release --example speed -- SNAPSHOT...`
//!
//! Prints megabytes of trace, packets, ranges and instructions a second, the best of several runs, in the time of one thread.

use std::path::Path;
use std::time::Instant;

use kymo_coresight::counts;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::TraceId;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::selection::Selection;

/// Seconds that this thread has run, so that other work on the machine does not count; where the system does not tell,
/// those that passed.
fn now(since: Instant) -> f64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = schedule
        .split(' ')
        .next()
        .and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |run| run / 1e9)
}

/// The best time of several runs, in seconds, and what the work gives.
fn best<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let since = Instant::now();
    // The clock may be one of scheduler ticks: measure many runs at once.
    let mut timed = || {
        let started = now(since);
        let mut runs = 0;
        loop {
            let result = work();
            runs += 1;
            let time = now(since) - started;
            if time > 0.2 {
                return (time / f64::from(runs), result);
            }
        }
    };
    (0..3)
        .map(|_| timed())
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("several runs")
}

fn packets(buffer: &Buffer) -> u64 {
    let mut packets = 0;
    for stream in &buffer.frames.streams {
        let source = match stream.id {
            TraceId::NONE => buffer.sources.first(),
            id => buffer.sources.iter().find(|source| source.id == id),
        };
        if let Some(source) = source {
            packets += match PacketDecoder::new(&source.protocol, &stream.bytes, 0) {
                PacketDecoder::EtmV4(decoder) => decoder.count(),
                decoder => decoder.count(),
            } as u64;
        }
    }
    packets
}

fn main() {
    println!(
        "snapshot                     MB/s packets  (M/s)  MB/s decode  M ranges/s  M instr/s"
    );
    for path in std::env::args().skip(1) {
        let path = Path::new(&path);
        let (buffers, _) = match input::open_snapshot(path) {
            Ok(opened) => opened,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                continue;
            }
        };
        let Some(buffer) = buffers.first() else {
            continue;
        };
        let bytes: usize = buffer
            .frames
            .streams
            .iter()
            .map(|stream| stream.bytes.len())
            .sum();
        let megabytes = bytes as f64 / 1e6;
        let (packet_time, count) = best(|| packets(buffer));
        let (decode_time, counted) = best(|| {
            let all = Selection::default();
            counts::of_buffer(buffer, EtmV4Options::default(), &all, 1, |_| true)
        });
        let ranges: u64 = counted.iter().map(|(_, counts)| counts.ranges).sum();
        let instructions: u64 = counted.iter().map(|(_, counts)| counts.instructions).sum();
        println!(
            "{:28} {:12.0} {:6.1} {:12.1} {:11.1} {:10.1}",
            path.file_name().unwrap_or_default().display(),
            megabytes / packet_time,
            count as f64 / 1e6 / packet_time,
            megabytes / decode_time,
            ranges as f64 / 1e6 / decode_time,
            instructions as f64 / 1e6 / decode_time,
        );
    }
}
