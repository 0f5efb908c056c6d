//! Lists the pieces of a recording: `cargo run --example packets FILE`.

use kymo_systemview::scan::UNKNOWN;
use kymo_systemview::{Piece, Scan, file};

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let bytes = std::fs::read(path)?;
        let streams = match file::header(&bytes) {
            Some(header) => header.streams(bytes.len() as u64).collect(),
            None => vec![(0, 0..bytes.len() as u64)],
        };
        for (core, range) in streams {
            println!("core {core}");
            let stream = &bytes[range.start as usize..range.end as usize];
            let mut scan = Scan::default();
            while let Some(piece) = scan.next(&stream[scan.offset() as usize..], true, UNKNOWN) {
                match piece {
                    Piece::Sync { offset } => println!("{offset} sync"),
                    Piece::Record(record) => {
                        println!("{} {:?} +{}", record.offset, record.packet, record.delta);
                    }
                    Piece::Damage {
                        offset,
                        bytes,
                        problem,
                    } => println!("{offset} damage of {bytes} bytes: {problem}"),
                }
            }
        }
    }
    Ok(())
}
