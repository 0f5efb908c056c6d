//! Shows every event of a trace as `babeltrace2 --clock-seconds --no-delta --fields=all` would, or only counts them:
//!
//! ```text
//! cargo run --release -p kymo-ctf --example show -- [--count] DIRECTORY
//! ```

use std::error::Error;
use std::io::Write;

use kymo_ctf::text::Layout;
use kymo_ctf::{Message, Messages, Trace};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let count_only = arguments.first().is_some_and(|first| first == "--count");
    let directory = arguments.pop().ok_or("which trace?")?;
    let traces = Trace::open_all(&directory)?;
    let layouts = Layout::of(&traces);
    let mut messages = Messages::merge(&traces)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    let (mut events, mut last) = (0u64, None);
    while let Some((origin, message)) = messages.next_message()? {
        match message {
            Message::Event(event) => {
                events += 1;
                last = event.time_ns().max(last);
                if let (false, Some(layout)) = (count_only, layouts.get(origin.trace)) {
                    line.clear();
                    layout.event(&mut line, &event);
                    line.push(b'\n');
                    out.write_all(&line)?;
                }
            }
            Message::Gap(gap) => eprintln!("{}: lost {:?} {:?}", directory, gap.count, gap.kind),
            Message::Packet(_) => {}
        }
    }
    out.flush()?;
    eprintln!("{events} events, the last at {last:?} ns");
    Ok(())
}
