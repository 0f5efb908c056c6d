//! Speed of packets and of full decode, in memory: `cargo run --release --example speed -- SNAPSHOT...`
//!
//! Prints megabytes of trace, packets, ranges and instructions a second, the best of several runs, on one thread and on
//! all.

use std::path::Path;
use std::time::Instant;

use kymo_coresight::counts;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::TraceId;
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::PacketDecoder;

/// The best time of several runs, in seconds, and what the work gives.
fn best<T>(mut work: impl FnMut() -> T) -> (f64, T) {
    let mut timed = || {
        let started = Instant::now();
        let result = work();
        (started.elapsed().as_secs_f64(), result)
    };
    (0..7)
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
        "snapshot                     MB/s packets  (M/s)  MB/s decode  M ranges/s  M instr/s  on all threads"
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
        let decode = |threads| counts::of_buffer(buffer, EtmV4Options::default(), threads);
        let (decode_time, counted) = best(|| decode(1));
        let (parallel_time, _) = best(|| decode(usize::MAX));
        let ranges: u64 = counted.iter().map(|(_, counts)| counts.ranges).sum();
        let instructions: u64 = counted.iter().map(|(_, counts)| counts.instructions).sum();
        println!(
            "{:28} {:12.0} {:6.1} {:12.1} {:11.1} {:10.1} {:9.2} x",
            path.file_name().unwrap_or_default().display(),
            megabytes / packet_time,
            count as f64 / 1e6 / packet_time,
            megabytes / decode_time,
            ranges as f64 / 1e6 / decode_time,
            instructions as f64 / 1e6 / decode_time,
            decode_time / parallel_time,
        );
    }
}
