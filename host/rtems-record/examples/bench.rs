//! How many items a second are read, beside the arithmetic that RTEMS's own client does for each:
//!
//! ```text
//! cargo run --release -p kymo-rtems-record --example bench -- [ITEMS]
//! ```

use std::hint::black_box;
use std::time::Instant;

use kymo_fixtures::rtems_record::{LAYOUTS, Layout, Stream};
use kymo_rtems_record::Reader;

/// Four processors in rounds, 256 items each: switches, interrupts, events of the user.
fn stream(layout: Layout, items: u64) -> Stream {
    let mut stream = Stream::new(layout, 10, 4, 1 << 13, 100_000_000);
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

/// What the peer's client does for each item of 64 bits, as plain as it stands there: time, comparison, a call.
fn peer(bytes: &[u8]) -> u64 {
    let scaler = ((1_u64 << 63) + 50_000_000) / 100_000_000;
    let (mut last, mut accumulated, mut base, mut last_bt) = (0_u32, 0_u64, 0_u64, 0_u64);
    let mut low = 0;
    let mut sum = 0_u64;
    let handler: fn(u64, u32, u64) -> u64 = |bt, event, data| {
        // The handler makes nanoseconds of it, and writes 21 bytes.
        let ns = (bt >> 32) * 1_000_000_000 + (((bt & 0xFFFF_FFFF) * 1_000_000_000) >> 32);
        ns ^ u64::from(event) ^ data
    };
    let handler = black_box(handler);
    for item in bytes.get(8..).unwrap_or(&[]).chunks_exact(12) {
        let word = u32::from_le_bytes([item[0], item[1], item[2], item[3]]);
        let data = u64::from_le_bytes([
            item[4], item[5], item[6], item[7], item[8], item[9], item[10], item[11],
        ]);
        let (time, event) = (word >> 10, word & 0x3FF);
        match event {
            323 => low = data,
            322 => (base, accumulated, last) = (data << 32 | low, 0, time),
            _ => {}
        }
        if event > 16 {
            accumulated += u64::from(time.wrapping_sub(last) & 0x3F_FFFF);
            last = time;
        }
        let bt = base.wrapping_add(accumulated.wrapping_mul(scaler) >> 31);
        last_bt = last_bt.max(bt);
        sum ^= handler(last_bt, event, data);
    }
    sum
}

fn measure(what: &str, items: u64, mut run: impl FnMut() -> u64) {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{what:<28} {:8.1} M items/s", items as f64 / best / 1e6);
}

fn read(bytes: &[u8]) -> u64 {
    let mut reader = Reader::new(bytes);
    let (mut records, mut count) = (Vec::new(), 0);
    while reader.read(&mut records).unwrap_or(false) {
        count += records.len() as u64;
        records.clear();
    }
    count
}

fn main() {
    let items = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let items = items.unwrap_or(4_000_000);
    for (name, layout) in ["LE32", "LE64", "BE32", "BE64"].into_iter().zip(LAYOUTS) {
        let stream = stream(layout, items);
        measure(name, items, || read(&stream.bytes));
        if name == "LE64" {
            measure("LE64, the peer's arithmetic", items, || peer(&stream.bytes));
            let text = stream.base64();
            measure("LE64 as base64", items, || read(text.as_bytes()));
            let packed = stream.zlib();
            measure("LE64 as zlib", items, || read(&packed));
        }
    }
}
