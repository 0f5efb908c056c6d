//! Read and write the [Common Trace Format](https://diamon.org/ctf/), in pure Rust.
//!
//! CTF is the format of LTTng, barectf, Zephyr and Kymo: a directory with a `metadata` file, which describes the layout,
//! and binary streams of packets that hold events, packed to the bit. Both versions of the format, 1.8 and 2, differ in
//! their metadata above all, and are read alike. This crate turns the metadata into a model
//! ([`metadata::Metadata`]), compiles that once into a flat plan, and decodes events by walking the plan over borrowed
//! bytes, with memory that depends on the number of streams and never on the size of the trace.
//!
//! # Reading
//!
//! [`Trace::open`] takes a trace directory ([`Trace::open_all`] a tree of them, as LTTng leaves it, and
//! [`Trace::from_memory`] bytes). [`Trace::messages`] then gives everything in the order of time: packets, events, and
//! what was lost between them. Nothing is allocated for an event; it borrows from the reader until the next one is asked
//! for.
//!
//! ```
//! use kymo_ctf::{Message, Trace};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metadata = r#"/* CTF 1.8 */
//!     trace { major = 1; minor = 8; byte_order = le; };
//!     clock { name = ticks; freq = 1000; };
//!     stream {
//!         event.header := struct {
//!             integer { size = 8; } id;
//!             integer { size = 8; map = clock.ticks.value; } timestamp;
//!         };
//!     };
//!     event {
//!         id = 7;
//!         name = "call";
//!         fields := struct { enum : integer { size = 16; } { "main" = 1, "idle" = 2 } function; string file; };
//!     };
//! "#;
//! let stream = b"\x07\x05\x02\x00idle.c\0\x07\x09\x01\x00main.c\0";
//! let trace = Trace::from_memory(metadata.as_bytes(), [("stream", &stream[..])])?;
//!
//! let mut lines = Vec::new();
//! let mut messages = trace.messages()?;
//! while let Some((_origin, message)) = messages.next_message()? {
//!     match message {
//!         Message::Event(event) => {
//!             let function = event.field("function").ok_or("no function")?;
//!             let file = event.field("file").and_then(|file| file.text());
//!             lines.push(format!("{:?} {} {:?} {:?}", event.time_ns(), event.name(), function.label(), file));
//!         }
//!         Message::Gap(gap) => println!("lost: {gap:?}"),
//!         Message::Packet(packet) => println!("a packet of CPU {:?}", packet.info().cpu_id),
//!     }
//! }
//! assert_eq!(lines[0], r#"Some(5000000) call Some("idle") Some("idle.c")"#);
//! assert_eq!(lines[1], r#"Some(9000000) call Some("main") Some("main.c")"#);
//! # Ok(())
//! # }
//! ```
//!
//! [`Messages::for_each`] and [`Messages::next_run`] are the same with less to ask for at each event, and twice as quick;
//! [`Event::visit_all`] shows all fields of an event in one go, and a [`Projection`] those few that are asked for. [`Parallel`] decodes streams side by side in several threads
//! and gives out, in the order of time, what a function makes of the events.
//!
//! ```
//! # use kymo_ctf::{Message, OpenError, Trace};
//! /// How many events of each name there are, and the time of the last.
//! fn census(trace: &Trace) -> Result<(Vec<(String, u64)>, Option<i64>), Box<dyn std::error::Error>> {
//!     let mut counts = vec![0; trace.metadata().streams[0].events.len()];
//!     let mut last = None;
//!     trace.messages()?.for_each(|_origin, message| {
//!         if let Message::Event(event) = message {
//!             counts[event.class_index()] += 1;
//!             last = event.time_ns().max(last);
//!         }
//!     })?;
//!     let names = trace.metadata().streams[0].events.iter().map(|event| event.name.clone());
//!     Ok((names.zip(counts).collect(), last))
//! }
//! # let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; clock { name = c; freq = 1000; };
//! #     stream { event.header := struct { integer { size = 8; map = clock.c.value; } timestamp; }; };
//! #     event { name = tick; };";
//! # let trace = Trace::from_memory(metadata.as_bytes(), [("stream", &[3u8, 5, 9][..])]).unwrap();
//! # assert_eq!(census(&trace).unwrap(), (vec![("tick".to_owned(), 3)], Some(9_000_000)));
//! ```
//!
//! A stream with an error in it ends there, unless its reader is made to [`skip`](StreamReader::skip) the damaged packet
//! ([`Messages::skip`] in a merge): then it goes on with the next packet that can be found, and says what it left out.
//!
//! [`Event::visit`] shows all fields of an event, nested ones too, to a [`Visitor`]. [`StreamReader`] reads a single stream
//! from anything that can be read: a pipe, a socket. [`text::Layout`] writes events as `babeltrace2` does.
//!
//! # Writing
//!
//! A [`metadata::Metadata`] is built by hand, with the help of [`metadata::standard`], and compiled to a [`Plan`];
//! a [`StreamWriter`] then takes values in the order of their fields. The streams are the same in both versions, of which
//! [`metadata::Metadata::to_tsdl`] and [`metadata::Metadata::to_ctf2`] give the metadata; [`TraceWriter`] makes a trace
//! directory of all that. What does not suit its field is an error, so what has been written can be read, by `babeltrace2`
//! too. A field that only CTF 2 has is written as any other, and refused when the metadata is to be of CTF 1.8.
//!
//! ```
//! use kymo_ctf::metadata::{ByteOrder, Clock, ClockId, EventClass, IntegerClass, Metadata, StreamClass};
//! use kymo_ctf::metadata::{StringClass, StructClass, standard};
//! use kymo_ctf::{Datum, Plan, StreamWriter};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let order = ByteOrder::Little;
//! let mut metadata = Metadata::new(order);
//! metadata.clocks.push(Clock::new("monotonic", 1_000_000_000));
//! metadata.packet_header = Some(standard::packet_header(order));
//! let mut class = StreamClass::new(0);
//! class.packet_context = Some(standard::packet_context(order, ClockId(0)).with("cpu_id", standard::cpu_id(order)));
//! class.event_header = Some(standard::event_header(order, ClockId(0)));
//! let mut event = EventClass::new(0, "sample".into());
//! let number = IntegerClass::unsigned(32, order);
//! event.fields = Some(StructClass::new().with("channel", number).with("name", StringClass::default()));
//! class.events.push(event);
//! metadata.streams.push(class);
//!
//! let plan = std::sync::Arc::new(Plan::new(metadata)?);
//! let metadata_file = plan.metadata().to_tsdl()?;
//! let mut stream = StreamWriter::new(plan.clone(), 0, Vec::new())?;
//! stream.begin_packet(1_000, &[Datum::from(3u32)])?; // on CPU 3
//! stream.event(0, 1_500, &[7u32.into(), "ADC".into()])?;
//! stream.end_packet(2_000, 0)?;
//! let stream_file = stream.finish()?;
//! # assert!(metadata_file.starts_with("/* CTF 1.8 */"));
//! # assert_eq!(stream_file.len(), 24 + 48 + 4 + 2 + 8 + 4 + 4);
//! # Ok(())
//! # }
//! ```
//!
//! # Converting
//!
//! [`convert`] makes a trace of either version from a trace of either version, whole or in part, and mends damaged ones.
//!
//! # What it does not do
//!
//! Of CTF 2, all is read and written. What its metadata says and decoding does not need is kept: names and unique ids
//! ([`metadata::About`]), and the attributes of everything, fields too ([`metadata::Metadata::attributes`]). An alias of a
//! field class becomes that class wherever it is used, and what is said of the alias itself goes with it.
//! Integers, bit arrays and floating point numbers wider than 64 bits are refused, as everywhere.

pub mod convert;
mod ctf2;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod metadata;
mod plan;
mod read;
pub mod text;
mod tsdl;
mod write;

pub use error::{
    CreateError, DecodeError, DecodeErrorKind, FieldError, MetadataError, MetadataErrorKind,
    OpenError, StreamError, WriteError,
};
pub use plan::Plan;
pub use read::{
    Absence, Container, ContextBytes, Event, EventIter, Events, Gap, GapKind, MAX_LEVELS, Message,
    Messages, Numbers, Origin, Packet, PacketInfo, Parallel, Projected, Projection, Resume, Run,
    Skipped, StreamReader, Told, Trace, Value, Visitor,
};
pub use write::{Datum, StreamFile, StreamWriter, TraceWriter};
