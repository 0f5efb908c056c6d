//! Read and write the [Common Trace Format](https://diamon.org/ctf/), in pure Rust.
//!
//! CTF is the format of LTTng, barectf, Zephyr and Kymo: a directory with a `metadata` file, which describes the
//! layout, and binary streams of packets that hold events, packed to the bit. Both versions of the format, 1.8 and 2,
//! differ in mainly in their metadata; this crate reads both in the same way. It parses the metadata into a model
//! ([`metadata::Metadata`]), compiles that once into a flat plan, and decodes events by walking the plan over borrowed
//! bytes. Memory depends on the number of streams, never on the size of the trace.
//!
//! # Reading
//!
//! [`Trace::open`] opens a trace directory ([`Trace::open_all`] a tree of them, as LTTng writes it, and
//! [`Trace::from_memory`] bytes). [`Trace::messages`] then returns everything ordered by time: packets, events, and
//! the losses between them. Events are not allocated; each borrows from the reader until the next one is requested.
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
//! [`Messages::for_each`] and [`Messages::next_run`] have less overhead per event and are twice as fast.
//! [`Event::visit_all`] visits all fields of an event in one pass, and a [`Projection`] extracts a few selected fields.
//! [`Parallel`] decodes streams in several threads, applies a function to the events, and returns its results ordered
//! by time.
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
//! A stream with an error in it ends there, unless its reader is made to [`skip`](StreamReader::skip) the damaged
//! packet ([`Messages::skip`] in a merge): then it continues with the next packet that it finds, and reports what it
//! skipped.
//!
//! [`Event::visit`] passes the fields of one scope, including nested ones, to a [`Visitor`]. [`StreamReader`] reads a
//! single stream from any input: a pipe, a socket. [`text::Layout`] formats events as `babeltrace2` does.
//!
//! # Writing
//!
//! Programs build a [`metadata::Metadata`], with the help of [`metadata::standard`], and compile it to a [`Plan`]; a
//! [`StreamWriter`] then takes values in the order of their fields. The streams are the same in both versions;
//! [`metadata::Metadata::to_tsdl`] and [`metadata::Metadata::to_ctf2`] write the metadata, and [`TraceWriter`] a whole
//! trace directory. A value that does not suit its field is an error, so the output is always readable, also by
//! `babeltrace2`. Fields that only CTF 2 has are written as any other, and rejected when CTF 1.8 metadata is written.
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
//! [`convert`] converts traces between versions, whole or in part, and repairs damaged ones.
//!
//! # Limitations
//!
//! CTF 2 is read and written completely. Metadata that decoding does not need is preserved: names and unique ids
//! ([`metadata::About`]), and all attributes, also of fields ([`metadata::Metadata::attributes`]). Aliases of field
//! classes are expanded where they are used; names and attributes of the alias itself are lost. Integers, bit arrays
//! and floating point numbers wider than 64 bits are rejected, as in other implementations.

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
    Absence, Container, ContextBytes, Covered, Event, EventIter, Events, Gap, GapKind, MAX_LEVELS,
    Message, Messages, Numbers, Origin, Packet, PacketInfo, Parallel, Projected, Projection,
    Reported, Resume, Run, Skipped, StreamReader, Trace, Value, Visitor,
};
pub use write::{Datum, StreamFile, StreamWriter, TraceWriter};
