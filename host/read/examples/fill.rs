//! Reads a trace to its end, for measuring what that takes: `fill TRACE [meaning|details|everything|records|summary]
//! [THREADS]`.
//!
//! `valgrind --tool=callgrind target/release/examples/fill TRACE` counts instructions; divided by the events
//! that this prints, that is what an event takes.

use std::error::Error;
use std::path::Path;

use kymo_event::{Batch, Wanted};
use kymo_read::{OpenOptions, Source as _, Summary, open};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected a trace")?;
    let mut summary = false;
    let options = OpenOptions {
        wanted: match arguments.next().as_deref() {
            None | Some("meaning") => Wanted::Meaning,
            Some("details") => Wanted::Details,
            Some("summary") => {
                summary = true;
                Wanted::Meaning
            }
            Some("everything") => Wanted::Everything,
            Some("records") => Wanted::Records,
            Some(other) => return Err(format!("expected what is wanted, found {other}").into()),
        },
        threads: arguments.next().map_or(Ok(1), |threads| threads.parse())?,
        ..OpenOptions::default()
    };
    let mut source = open(Path::new(&path), &options)?;
    if summary {
        println!("{} records", Summary::of(&mut *source).events);
        return Ok(());
    }
    let mut batch = Batch::default();
    let (mut events, mut batches) = (0, 0);
    while source.fill(&mut batch)? {
        events += batch.len();
        batches += 1;
    }
    println!(
        "{events} events in {batches} batches, {} functions, {} places of damage",
        source.info().identities.functions().len(),
        source.info().damage.len(),
    );
    Ok(())
}
