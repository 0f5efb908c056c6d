//! Speed of packets and of full decode, in memory, as `cargo xtask bench coresight` measures it:
//!
//!     speed SNAPSHOT...                       times of one thread, and of two
//!     speed --rounds N packets|decode|decode-2 SNAPSHOT    N passes and no times, for counting instructions; decode-2 is
//!                                             decode on two threads
//!     speed --sizes SNAPSHOT                  packets and ranges of a pass
//!     speed --plan SNAPSHOT                   what the peer needs to do the same, as text
//!
//! Both begin with the bytes of the first trace buffer and split its frames. A pass of packets counts packets, a pass of
//! decode counts how often each run executed. Times are of the processor, the least of several.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use kymo_coresight::counts;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::frames::{self, FrameFormat, TraceId};
use kymo_coresight::input::{self, Buffer};
use kymo_coresight::listing::PacketDecoder;
use kymo_coresight::selection::Selection;
use kymo_coresight::snapshot::Snapshot;
use kymo_coresight::{Protocol, Source};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A trace buffer, not split yet, with its sources and their memory.
struct Trace {
    bytes: Vec<u8>,
    format: FrameFormat,
    buffer: Buffer,
}

impl Trace {
    fn open(path: &Path) -> Result<Self> {
        let snapshot = Snapshot::open(path)?;
        let (buffers, _) = input::open_snapshot(path, &Default::default())?;
        let first = snapshot.buffers.first().zip(buffers.into_iter().next());
        let (described, buffer) = first.ok_or("the snapshot has no buffer")?;
        Ok(Trace {
            bytes: snapshot.read_buffer(described)?,
            format: described.format,
            buffer,
        })
    }

    fn split(&mut self) {
        self.buffer.frames = frames::split(&self.bytes, self.format, TraceId::NONE).into_owned();
    }

    /// Splits the frames and counts packets.
    fn packets(&mut self) -> u64 {
        self.split();
        let count = |stream| {
            let source = &self.buffer.sources[self.buffer.source_of(stream)?];
            Some(
                match PacketDecoder::new(&source.protocol, &stream.bytes, 0) {
                    PacketDecoder::EtmV4(decoder) => decoder.count() as u64,
                    PacketDecoder::EtmV3(decoder) => decoder.count() as u64,
                    PacketDecoder::Ptm(decoder) => decoder.count() as u64,
                    decoder => decoder.count() as u64,
                },
            )
        };
        self.buffer.frames.streams.iter().filter_map(count).sum()
    }

    /// Splits the frames and counts ranges and instructions.
    fn decode(&mut self, threads: usize) -> (u64, u64) {
        self.split();
        let (options, all) = (EtmV4Options::default(), Selection::default());
        let counted = counts::of_buffer(&self.buffer, options, &all, threads, |_| true);
        counted.iter().fold((0, 0), |sum, (_, counts)| {
            (sum.0 + counts.ranges, sum.1 + counts.instructions)
        })
    }
}

/// Seconds that this thread has run, so that other work on the machine does not count; where the system does not tell,
/// those that passed.
fn processor(since: Instant) -> f64 {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = schedule
        .split(' ')
        .next()
        .and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| since.elapsed().as_secs_f64(), |run| run / 1e9)
}

/// The best time of several runs, in seconds by `clock`, and what the work gives.
fn best<T>(clock: impl Fn(Instant) -> f64, mut work: impl FnMut() -> T) -> (f64, T) {
    let since = Instant::now();
    // The clock may be one of scheduler ticks: measure many runs at once.
    let mut timed = || {
        let started = clock(since);
        let mut runs = 0;
        loop {
            let result = work();
            runs += 1;
            let time = clock(since) - started;
            if time > 0.1 {
                return (time / f64::from(runs), result);
            }
        }
    };
    (0..5)
        .map(|_| timed())
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("several runs")
}

/// One line: bytes, packets, ranges, instructions, and seconds for packets, for decode, and by the clock on the wall for
/// decode on one thread and on two.
fn times(path: &Path) -> Result<()> {
    let mut trace = Trace::open(path)?;
    let (packet_time, packets) = best(processor, || trace.packets());
    let (decode_time, (ranges, instructions)) = best(processor, || trace.decode(1));
    let wall = |since: Instant| since.elapsed().as_secs_f64();
    let one = best(wall, || trace.decode(1)).0;
    let two = best(wall, || trace.decode(2)).0;
    let bytes = trace.bytes.len();
    println!(
        "{bytes} {packets} {ranges} {instructions} {packet_time:.9} {decode_time:.9} {one:.9} {two:.9}"
    );
    Ok(())
}

fn rounds(rounds: &str, what: &str, path: &Path) -> Result<()> {
    let mut trace = Trace::open(path)?;
    for _ in 0..rounds.parse::<u32>()? {
        match what {
            "packets" => println!("{}", trace.packets()),
            "decode" => println!("{:?}", trace.decode(1)),
            "decode-2" => println!("{:?}", trace.decode(2)),
            _ => return Err("expected packets, decode or decode-2".into()),
        }
    }
    Ok(())
}

/// The trace, its sources with their registers, and the memory of their cores.
fn plan(path: &Path) -> Result<()> {
    let snapshot = Snapshot::open(path)?;
    let buffer = snapshot
        .buffers
        .first()
        .ok_or("the snapshot has no buffer")?;
    let format = match buffer.format {
        FrameFormat::Unformatted => "source",
        FrameFormat::Memory => "memory",
        FrameFormat::Tpiu => "tpiu",
        FrameFormat::Dstream => return Err("the peer's library reads no DSTREAM blocks".into()),
    };
    let file = buffer.files.first().ok_or("the buffer has no file")?;
    println!("trace {format} {}", snapshot.directory.join(file).display());
    for source in Source::of_buffer(&snapshot, buffer) {
        let name = source.protocol.name();
        let device = snapshot.device(&source.name);
        let core = device.and_then(|device| snapshot.core_of(device));
        let is_m = core.is_some_and(|core| core.kind.starts_with("Cortex-M"));
        let registers = match source.protocol {
            Protocol::EtmV4(c) => [
                c.configr,
                c.trace_idr,
                c.idr0,
                c.idr1,
                c.idr2,
                c.idr8,
                c.devarch,
            ],
            Protocol::EtmV3(c) => [c.cr, c.trace_idr, c.idr, c.ccer, 0, 0, 0],
            Protocol::Ptm(c) => [c.cr, c.trace_idr, c.idr, c.ccer, 0, 0, 0],
            Protocol::Stm(_) | Protocol::Itm(_) => continue,
        };
        let registers = registers.map(|register| format!("{register:x}")).join(" ");
        println!("source {name} {} {registers}", u8::from(is_m));
        for dump in core.iter().flat_map(|core| &core.dumps) {
            let file = snapshot.directory.join(&dump.file);
            let length = dump.length.unwrap_or(0);
            println!(
                "memory {:x} {:x} {length:x} {}",
                dump.address.unwrap_or_default(),
                dump.offset,
                file.display()
            );
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["--plan", path] => plan(Path::new(path)),
        ["--sizes", path] => Trace::open(Path::new(path)).map(|mut trace| {
            println!("{} {}", trace.packets(), trace.decode(1).0);
        }),
        ["--rounds", count, what, path] => rounds(count, what, Path::new(path)),
        [] => Err("usage: speed SNAPSHOT... | --rounds N packets|decode SNAPSHOT | --sizes SNAPSHOT | --plan SNAPSHOT".into()),
        _ => words.iter().try_for_each(|path| times(Path::new(path))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
