//! Writes a trace of a few million events in two streams, for other tools to read:
//!
//! ```text
//! cargo run --release -p kymo-ctf --example write -- [--ctf2] DIRECTORY [EVENTS]
//! ```

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use kymo_ctf::metadata::{
    ByteOrder, Clock, ClockId, EnumerationClass, EventClass, FloatClass, IntegerClass, Mappings,
    Metadata, StreamClass, StringClass, StructClass, Value64, standard,
};
use kymo_ctf::{Datum, Plan, StreamWriter};

const ORDER: ByteOrder = ByteOrder::Little;

fn metadata() -> Metadata {
    let mut metadata = Metadata::new(ORDER);
    metadata.clocks.push(Clock::new("monotonic", 1_000_000_000));
    metadata.packet_header = Some(standard::packet_header(ORDER));
    let mut stream = StreamClass::new(0);
    stream.packet_context =
        Some(standard::packet_context(ORDER, ClockId(0)).with("cpu_id", standard::cpu_id(ORDER)));
    stream.event_header = Some(standard::event_header(ORDER, ClockId(0)));
    let word = IntegerClass::unsigned(32, ORDER);
    stream.event_context = Some(StructClass::new().with("thread", word));
    let phases = Mappings::from_values([
        ("IDLE", Value64::Unsigned(0)),
        ("RUN", Value64::Unsigned(1)),
    ]);
    let phase = EnumerationClass {
        integer: IntegerClass::unsigned(8, ORDER),
        mappings: Arc::new(phases),
    };
    let begin = StructClass::new()
        .with("id", word)
        .with("name", StringClass::default())
        .with("phase", phase);
    let end = StructClass::new()
        .with("id", word)
        .with("status", IntegerClass::signed(32, ORDER));
    let end = end.with(
        "value",
        FloatClass {
            reversed: false,
            size: 64,
            align: 8,
            byte_order: ORDER,
            attributes: None,
        },
    );
    for (id, (name, fields)) in [
        ("begin", begin),
        ("end", end),
        ("tick", StructClass::new().with("n", word)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut event = EventClass::new(id as u64, name.into());
        event.fields = Some(fields);
        stream.events.push(event);
    }
    metadata.streams.push(stream);
    metadata
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let ctf2 = arguments.next_if_eq("--ctf2").is_some();
    let directory = arguments.next().ok_or("where to?")?;
    let events: u32 = arguments
        .next()
        .map_or(Ok(1_000_000), |count| count.parse())?;
    let directory = Path::new(&directory);
    fs::create_dir_all(directory)?;
    let plan = Arc::new(Plan::new(metadata())?);
    let text = if ctf2 {
        plan.metadata().to_ctf2()?
    } else {
        plan.metadata().to_tsdl()?
    };
    fs::write(directory.join("metadata"), text)?;
    for cpu in 0..2u32 {
        let file = File::create(directory.join(format!("cpu{cpu}")))?;
        let mut writer = StreamWriter::new(plan.clone(), 0, file)?;
        let mut time = 1_000 + u64::from(cpu);
        writer.begin_packet(time, &[cpu.into()])?;
        for n in 0..events / 2 {
            time += 100;
            let thread = Datum::from(n % 4);
            match n % 3 {
                0 => writer.event(
                    0,
                    time,
                    &[thread, n.into(), "adc.sample".into(), (n / 3 % 2).into()],
                )?,
                1 => {
                    writer.event(
                        1,
                        time,
                        &[
                            thread,
                            n.into(),
                            Datum::Signed(-i64::from(n)),
                            f64::from(n).into(),
                        ],
                    )?;
                }
                _ => writer.event(2, time, &[thread, n.into()])?,
            }
            if writer.packet_size() > 60_000 {
                writer.end_packet(time, 0)?;
                writer.begin_packet(time, &[cpu.into()])?;
            }
        }
        writer.end_packet(time, 0)?;
        writer.finish()?;
    }
    Ok(())
}
