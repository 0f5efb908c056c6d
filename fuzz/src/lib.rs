//! Bodies of the fuzz targets: functions that must terminate without a panic on any bytes.
//!
//! A body is ordinary code. cargo-fuzz runs it for hours (`cargo +nightly fuzz run TARGET`). The tests of this crate
//! run it on the seeds in `corpus/`, on generated recordings, and on mutations of both (bytes changed, removed or
//! duplicated): this takes seconds, on stable Rust, with every `cargo test`. `cargo run --bin TARGET FILE` replays a
//! file on which a target failed.
//!
//! Each body documents its further checks.

use kymo_read::kymo::{Dump, RawFile, open_dump, write_raw};
use kymo_read::{OpenOptions, Source, Summary};
use kymo_wire::event::{Layout, PacketHeader, Shape, WordSize};
use kymo_wire::link::{Command, Frame, Identity};

mod coresight;
#[cfg(test)]
mod coresight_seeds;
mod seeds;
#[cfg(test)]
mod tests;

pub use coresight::{
    coresight_flow, coresight_frames, coresight_packets, coresight_perf, coresight_snapshot,
};
pub use seeds::{identity, recording, systemview_recording};

/// A fuzz target's body.
pub type Body = fn(&[u8]);

/// All bodies with the names of their targets.
pub const ALL: [(&str, Body); 21] = [
    ("wire", wire),
    ("receiver", receiver),
    ("splitter", splitter),
    ("zephyr_line", zephyr_line),
    ("raw", raw),
    ("dump", dump),
    ("metadata", metadata),
    ("metadata2", metadata2),
    ("stream", stream),
    ("profile", profile),
    ("symbols", symbols),
    ("zephyr_dump", zephyr_dump),
    ("systemview", systemview),
    ("rtems_record", rtems_record),
    ("input", input),
    ("ftrace", ftrace),
    ("coresight_frames", coresight_frames),
    ("coresight_packets", coresight_packets),
    ("coresight_flow", coresight_flow),
    ("coresight_perf", coresight_perf),
    ("coresight_snapshot", coresight_snapshot),
];

/// Runs a body over the files named on the command line.
///
/// # Errors
/// If a file cannot be read.
pub fn replay(body: Body) -> std::io::Result<()> {
    for file in std::env::args_os().skip(1) {
        body(&std::fs::read(file)?);
    }
    Ok(())
}

/// A recording of SystemView: every byte is in one piece, and encoding the packets again results in the same bytes.
pub fn systemview(data: &[u8]) {
    use kymo_systemview::{Piece, Scan, file, scan};
    let streams = match file::header(data) {
        Some(header) => header.streams(data.len() as u64).collect(),
        None => vec![(0, 0..data.len() as u64)],
    };
    let mut scratch = vec![0; 1 << 17];
    for (_, range) in streams {
        let stream = &data[range.start as usize..range.end as usize];
        let mut scan = Scan::default();
        let mut end = 0;
        while let Some(piece) = scan.next(&stream[end as usize..], true, scan::UNKNOWN) {
            let (offset, bytes) = match piece {
                Piece::Sync { offset } => (offset, 10),
                Piece::Damage { offset, bytes, .. } => (offset, bytes),
                Piece::Record(record) => {
                    assert!(scan::is_written_again(&record, &mut scratch), "{record:?}");
                    (record.offset, record.bytes.len() as u64)
                }
            };
            assert_eq!((offset, bytes > 0), (end, true));
            end += bytes;
            assert_eq!(scan.offset(), end);
        }
        assert_eq!(end, stream.len() as u64);
    }
}

/// Any input, opened in each way that the command line offers: see [`kymo_read::fuzz_open`].
pub fn input(data: &[u8]) {
    kymo_read::fuzz_open(data).expect("a temporary directory");
}

/// A trace.dat, as trace-cmd would report it, and an event format with a record of that event.
pub fn ftrace(data: &[u8]) {
    kymo_ftrace::fuzz(data);
}

/// Frames, commands, identity lines and packet headers, from any bytes: encoding a parsed value again results in the
/// same bytes.
pub fn wire(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(frame) = Frame::decode(&mut bytes) {
        let mut wire = [0; kymo_wire::link::frame::MAX_WIRE];
        let length = frame
            .encode(&mut wire)
            .expect("a frame that arrived can be sent");
        let mut again = wire[1..length - 1].to_vec();
        assert_eq!(Frame::decode(&mut again), Some(frame));
    }
    let _ = Command::parse(data);
    if let Some(identity) = std::str::from_utf8(data).ok().and_then(Identity::parse) {
        assert_eq!(Identity::parse(&identity.to_string()), Some(identity));
    }
    for word in [WordSize::Bits32, WordSize::Bits64] {
        let layout = Layout {
            word,
            ..Layout::NATIVE
        };
        if let Some(header) = PacketHeader::read(layout, data) {
            let mut head = [0; PacketHeader::MAX_BYTES];
            let size = header
                .write(layout, &mut head)
                .expect("the room for any head");
            assert_eq!(head.get(..size), data.get(..size));
        }
    }
}

/// Bytes received by a target: after any of them, the next intact commands are parsed.
pub fn receiver(data: &[u8]) {
    kymo_recorder::link::check_receiver(data);
}

/// The bytes of a link: each is returned once, in chunks of any size.
pub fn splitter(data: &[u8]) {
    kymo_link::fuzz_splitter(data);
    kymo_link::gdb::fuzz(data);
}

/// The bytes of a connection to a Zephyr target: text and dumps, every byte once.
pub fn zephyr_line(data: &[u8]) {
    kymo_link::zephyr::fuzz_sorter(data);
}

/// A raw file: saving its content and reading it again results in the same events, without damage.
pub fn raw(data: &[u8]) {
    let Ok(file) = RawFile::from_bytes("fuzz", data.to_vec()) else {
        return;
    };
    let options = OpenOptions::default();
    let Ok(mut source) = file.clone().into_source(&options) else {
        return;
    };
    kept_is_what_was_read(&file.dump(), &mut *source);
}

/// A dump with missing parts, in any layout: the first byte selects the layout, the next four the missing parts.
pub fn dump(data: &[u8]) {
    let Some((&[choice, a, b, c, d], bytes)) = data.split_first_chunk() else {
        return;
    };
    let mut identity = seeds::identity();
    identity.layout = Layout {
        shape: if choice & 1 == 0 {
            Shape::Compact
        } else {
            Shape::Wide
        },
        word: if choice & 2 == 0 {
            WordSize::Bits32
        } else {
            WordSize::Bits64
        },
        order: if choice & 4 == 0 {
            kymo_wire::event::ByteOrder::Little
        } else {
            kymo_wire::event::ByteOrder::Big
        },
        function_shift: choice >> 3 & 7,
    };
    let first = u64::from(a) * 8;
    let second = first + u64::from(b) + u64::from(c) * 8;
    let missing = [first..first + u64::from(b), second..second + u64::from(d)];
    let options = OpenOptions {
        wanted: match choice >> 6 {
            0 => kymo_event::Wanted::Everything,
            1 => kymo_event::Wanted::Details,
            _ => kymo_event::Wanted::Meaning,
        },
        ..OpenOptions::default()
    };
    let mut source = open_dump(&identity, bytes.to_vec(), &missing, "fuzz", &options)
        .expect("the identity is good");
    let dump = Dump {
        identity: &identity,
        bytes,
        missing: &missing,
        target: "fuzz",
    };
    kept_is_what_was_read(&dump, &mut *source);
}

/// Writes `dump` as a raw file and compares that with `source`, which reads the same dump.
fn kept_is_what_was_read(dump: &Dump<'_>, source: &mut dyn Source) {
    let summary = Summary::of(source);
    let mut kept = Vec::new();
    let written = write_raw(&mut kept, dump).expect("memory takes everything");
    let file = RawFile::from_bytes("kept", kept).expect("what we write begins with an identity");
    let mut source = file
        .into_source(&OpenOptions::default())
        .expect("as good as it was");
    let again = Summary::of(&mut *source);
    assert_eq!(again.events, summary.events);
    assert_eq!(again.errors, []);
    assert_eq!(written.damage.is_empty(), summary.errors.is_empty());
}

/// Metadata of CTF 1.8, as text or in packets: writing the parsed metadata and parsing it again results in the same
/// metadata.
pub fn metadata(data: &[u8]) {
    kymo_ctf::fuzzing::metadata(data);
}

/// Metadata of CTF 2: the same check, with fragments and with any beginning of the input.
pub fn metadata2(data: &[u8]) {
    let separator: &[u8] = if data.starts_with(&[0x1e]) {
        b""
    } else {
        b"\x1e"
    };
    kymo_ctf::fuzzing::metadata(&[separator, data].concat());
}

/// CTF metadata, a zero byte, and a stream: all fields of all events up to the first error.
pub fn stream(data: &[u8]) {
    // An event takes at least one bit.
    assert!(kymo_ctf::fuzzing::stream(data) <= data.len() as u64 * 8);
}

/// A profile table: it has no more functions than bytes.
pub fn profile(data: &[u8]) {
    if let Ok(table) = kymo_read::profile_table::decode(data) {
        assert!(table.functions.len() * 40 <= data.len());
    }
}

/// Symbols from an ELF file or from text: every function is found by its own address, and look-ups as for a trace
/// succeed.
pub fn symbols(data: &[u8]) {
    let symbols = if data.starts_with(b"\x7fELF") {
        kymo_symbols::Symbols::from_elf(data).ok()
    } else {
        let text = String::from_utf8_lossy(data);
        kymo_symbols::Symbols::from_text(&text).ok()
    };
    let Some(symbols) = symbols else {
        return;
    };
    for function in symbols.functions().take(100) {
        let address = function.address();
        assert!(symbols.function_at(address).is_some(), "{address}");
        let _ = (
            symbols.location(address),
            symbols.frames(address),
            symbols.string_at(address),
        );
        let _ = symbols.by_name(function.name());
    }
    let _ = (symbols.build_id(), symbols.similar("main"));
}

/// Recordings of RTEMS's events in any encoding: see [`kymo_rtems_record::fuzz`].
pub fn rtems_record(data: &[u8]) {
    kymo_rtems_record::fuzz(data);
}

/// Output of a target with Zephyr's instrumentation: every byte of a dump is a record, damage, or a mark, and its end
/// is found at the same position when the bytes arrive in chunks.
pub fn zephyr_dump(data: &[u8]) {
    let hints = kymo_zephyr_instrumentation::Hints::default();
    if let Ok(profile) = kymo_read::zephyr_instrumentation::decode_profile("fuzz", data, &hints) {
        assert!(profile.functions.len() * 13 <= data.len());
    }
    let options = OpenOptions::default();
    if let Ok(mut source) =
        kymo_read::zephyr_instrumentation::open_bytes("fuzz", data.to_vec(), &options)
    {
        let summary = Summary::of(&mut *source);
        // The shortest record is a profile entry.
        assert!(summary.events * 13 <= data.len() as u64);
        assert!(summary.errors.len() as u64 <= summary.gaps);
    }
    let Some(layout) = kymo_zephyr_instrumentation::detect(data, &hints) else {
        return;
    };
    let mut at = 0;
    let mut end = None;
    for piece in kymo_zephyr_instrumentation::Walk::new(data, layout) {
        at += match piece {
            kymo_zephyr_instrumentation::Piece::Record { bytes, .. } => bytes.len(),
            kymo_zephyr_instrumentation::Piece::Damage { bytes, .. }
            | kymo_zephyr_instrumentation::Piece::Cut { bytes, .. } => bytes,
            kymo_zephyr_instrumentation::Piece::End(found) => {
                end = Some(found);
                found.behind - found.at
            }
        };
    }
    assert_eq!(at, end.map_or(data.len(), |end| end.behind));
    let step = if data.len().is_multiple_of(2) { 61 } else { 1 };
    let mut scanner = kymo_zephyr_instrumentation::Scanner::new(hints);
    let arrived = (0..=data.len()).step_by(step).chain([data.len()]);
    let found = arrived
        .map(|length| data.get(..length).unwrap_or_default())
        .find_map(|arrived| scanner.advance(arrived))
        .or_else(|| scanner.silent(data));
    // A scanner that must select the layout early may select another one.
    if scanner.layout() == Some(layout) {
        let at = |end: Option<kymo_zephyr_instrumentation::End>| end.map(|end| end.at);
        assert_eq!(at(found), at(end), "in steps of {step}");
    }
}
