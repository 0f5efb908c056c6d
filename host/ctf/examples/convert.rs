//! Makes a trace of CTF 1.8 or 2 from a trace of either, and leaves out what is damaged:
//!
//! ```text
//! cargo run --release -p kymo-ctf --example convert -- 1.8|2 DIRECTORY RESULT
//! ```

use std::error::Error;

use kymo_ctf::Trace;
use kymo_ctf::convert::{Conversion, Everything};
use kymo_ctf::metadata::Version;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [version, source, result] = arguments.as_slice() else {
        return Err("expected 1.8|2, the directory of a trace, and one for the result".into());
    };
    let version = match version.as_str() {
        "1.8" => Version::Ctf18,
        "2" => Version::Ctf2,
        other => return Err(format!("expected version 1.8 or 2, found {other}").into()),
    };
    let mut conversion = Conversion::new(version);
    // What is damaged is left out, and said.
    conversion.repair = true;
    let summary = conversion.run(&Trace::open(source)?, result, &mut Everything)?;
    for damage in &summary.damage {
        eprintln!("{}: {}", damage.stream, damage.error);
    }
    for (change, count) in &summary.changes {
        eprintln!("in {version}: {change} ({count})");
    }
    println!("{} events, {} streams", summary.events, summary.streams);
    Ok(())
}
