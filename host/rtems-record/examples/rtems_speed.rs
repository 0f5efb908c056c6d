//! Workload of `cargo xtask bench import` for RTEMS event recording: one way of reading a stream, and its cost.
//!
//! ```text
//! cargo run --release -p kymo-rtems-record --example rtems_speed -- write le64 4000000 FILE
//! cargo run --release -p kymo-rtems-record --example rtems_speed -- read FILE
//! cargo run --release -p kymo-rtems-record --example rtems_speed -- peer FILE
//! ```
//!
//! `peer` performs the work of RTEMS's own converter for each item of a 64-bit stream, in the same simple way. It gives
//! the speed of the machine (the whole converter takes longer by the factor `PEER_WHOLE` in
//! `xtask/src/bench/import.rs`). Both modes print the number of items, the processor time in nanoseconds, and a
//! checksum.

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufWriter, Read, Write};

use kymo_fixtures::rtems_record::{LAYOUTS, Stream};
use kymo_rtems_record::Reader;

/// Writes four processors in rounds of 256 items each: switches, interrupts, user events.
fn stream(items: u64) -> Stream {
    let mut stream = Stream::new(LAYOUTS[1], 10, 4, 1 << 13, 100_000_000);
    let mut now = 100_000_000;
    for round in 0..items / 1024 {
        for cpu in 0..4 {
            stream.processor(cpu);
            let start = now;
            if round % 16 == 0 {
                stream.uptime(now);
            }
            for step in 0..256 {
                now += 100 + step % 7;
                let event = [306, 305, 71, 72, 512 + step as u32 % 100][step as usize % 5];
                stream.item(now, event, 0x0a01_0000 + step);
            }
            if cpu < 3 {
                now = start;
            }
        }
    }
    stream
}

fn write(layout: &str, items: u64, path: &str) -> Result<(), Box<dyn Error>> {
    let stream = stream(items);
    match layout {
        "le64" => fs::write(path, &stream.bytes)?,
        "base64" => fs::write(path, stream.base64())?,
        "zlib" => fs::write(path, stream.zlib())?,
        _ => return Err("le64, base64 or zlib?".into()),
    }
    Ok(())
}

/// Returns the number of items, and a checksum over all of them.
type Seen = (u64, u64);

fn read(path: &str) -> Result<Seen, Box<dyn Error>> {
    let mut reader = Reader::new(File::open(path)?);
    let (mut records, mut items, mut sum) = (Vec::new(), 0, 0_u64);
    let mut goes_on = true;
    while goes_on {
        goes_on = reader.read(&mut records)?;
        for record in &records {
            items += u64::from(record.is_item);
            sum = sum
                .wrapping_add(record.time as u64)
                .wrapping_add(record.data);
        }
        records.clear();
    }
    match reader.take_faults().first() {
        None => Ok((items, sum)),
        Some(fault) => Err(fault.to_string().into()),
    }
}

/// RTEMS's client (`record-client.c`) and the work of its converter (`record-main-lttng.cc`) for each item: it gathers
/// the item's bytes, computes its time, and calls a handler, which converts the time to nanoseconds and writes 21 bytes
/// to a buffered file.
struct Peer {
    item: [u8; 12],
    filled: usize,
    low: u64,
    base: u64,
    accumulated: u64,
    last: u32,
    last_bt: u64,
    items: u64,
    out: BufWriter<File>,
    handler: fn(&mut Self, u64, u32, u64) -> std::io::Result<()>,
}

impl Peer {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            item: [0; 12],
            filled: 0,
            low: 0,
            base: 0,
            accumulated: 0,
            last: 0,
            last_bt: 0,
            items: 0,
            out: BufWriter::with_capacity(4096, File::create("/dev/null")?),
            handler: black_box(Self::handle),
        })
    }

    /// Counterpart of `rtems_record_client_run`.
    fn run(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            let room = &mut self.item[self.filled..];
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
            if self.filled == self.item.len() {
                self.filled = 0;
                let (word, data) = self.item.split_at(4);
                let word = u32::from_le_bytes(word.try_into().unwrap_or_default());
                let data = u64::from_le_bytes(data.try_into().unwrap_or_default());
                self.visit(word >> 10, word & 0x3FF, data)?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, time: u32, event: u32, data: u64) -> std::io::Result<()> {
        const SCALE: u64 = ((1 << 63) + 50_000_000) / 100_000_000;
        match event {
            323 => self.low = data,
            322 => (self.base, self.accumulated, self.last) = (data << 32 | self.low, 0, time),
            _ => {}
        }
        if event > 16 {
            self.accumulated += u64::from(time.wrapping_sub(self.last) & 0x3F_FFFF);
            self.last = time;
        }
        let bt = self
            .base
            .wrapping_add(self.accumulated.wrapping_mul(SCALE) >> 31);
        self.last_bt = self.last_bt.max(bt);
        self.items += 1;
        (self.handler)(self, self.last_bt, event, data)
    }

    fn handle(&mut self, bt: u64, event: u32, data: u64) -> std::io::Result<()> {
        let ns = (bt >> 32) * 1_000_000_000 + (((bt & 0xFFFF_FFFF) * 1_000_000_000) >> 32);
        let mut record = [0; 21];
        record[0] = 31;
        record[1..5].copy_from_slice(&event.to_le_bytes());
        record[5..13].copy_from_slice(&ns.to_le_bytes());
        record[13..].copy_from_slice(&data.to_le_bytes());
        self.out.write_all(&record)
    }
}

fn peer(path: &str) -> Result<Seen, Box<dyn Error>> {
    let (mut file, mut peer) = (File::open(path)?, Peer::new()?);
    let mut buffer = vec![0; 64 << 10];
    // Format and magic.
    file.read_exact(&mut buffer[..8])?;
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            peer.out.flush()?;
            return Ok((peer.items, peer.last_bt));
        }
        peer.run(&buffer[..count])?;
    }
}

/// Returns the processor time of this process, which has one thread, in nanoseconds.
fn processor_time() -> Option<u64> {
    // The system updates a thread's run time when the thread sleeps.
    std::thread::sleep(std::time::Duration::from_millis(1));
    let text = fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let before = processor_time().unwrap_or(0);
    let (items, sum) = match words[..] {
        ["write", layout, items, path] => return write(layout, items.parse()?, path),
        ["read", path] => read(path)?,
        ["peer", path] => peer(path)?,
        _ => return Err("write LAYOUT ITEMS FILE, read FILE or peer FILE?".into()),
    };
    let time = processor_time().unwrap_or(0).saturating_sub(before);
    println!("{items} {time} {sum:x}");
    Ok(())
}
