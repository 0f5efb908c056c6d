//! Version 7: sections that options point to.

mod recovery;

use std::borrow::Cow;

use super::options::id;
use super::{Buffer, MOST_CPUS, Trace};
use crate::Error;
use crate::cursor::CpuData;
use crate::decompress::{Compression, Unpacker};
use crate::order::Reader;

/// The flag of a compressed section.
const COMPRESSED: u16 = 1;

/// Largest number of option sections. Bounds files whose sections form a cycle.
const MOST_SECTIONS: usize = 4096;

/// Reads everything behind the page size.
pub(super) fn read(
    trace: &mut Trace,
    mut reader: Reader<'_>,
    page_size: usize,
) -> Result<(), Error> {
    let offset = reader.offset();
    let name = reader.text("the name of a compression")?;
    let _version = reader.text("the version of a compression")?;
    let compression = Compression::of_name(&name);
    trace.compression = compression.ok_or_else(|| {
        let expected = "compression none, zstd or zlib";
        Error::new(offset, expected, format!("{name:?}"))
    })?;
    let mut next = reader.u64("the offset of the options")?;
    let first_section = reader.offset();
    // An interrupted recording has no options, or not all of them.
    let mut broken = (next == 0).then(|| Error::new(offset, "options", "none"));
    let mut seen = Vec::new();
    while next != 0 {
        if seen.contains(&next) || seen.len() >= MOST_SECTIONS {
            let found = "an offset that was there before";
            trace.damage.push(Error::new(next, "more options", found));
            break;
        }
        seen.push(next);
        match options(trace, &reader, next, page_size) {
            Ok(following) => next = following,
            Err(error) => {
                broken = Some(error);
                break;
            }
        }
    }
    let Some(error) = broken else { return Ok(()) };
    let all = seen.len() < 2;
    if trace.buffers.is_empty() {
        recovery::recover(trace, &reader, (first_section, all), page_size);
    }
    if all && trace.buffers.is_empty() {
        // Recovery found nothing.
        return Err(error);
    }
    trace.damaged("options", error);
    Ok(())
}

/// Reads a section: its flags, the offset of its data, and the data, decompressed.
fn section<'a>(
    trace: &Trace,
    whole: &Reader<'a>,
    offset: u64,
    expected: u16,
) -> Result<(u16, u64, Cow<'a, [u8]>), Error> {
    let mut reader = whole.seek(offset)?;
    let found = reader.u16("the number of a section")?;
    if found != expected {
        let expected = format!("section {expected}");
        return Err(Error::new(offset, expected, format!("section {found}")));
    }
    let flags = reader.u16("the flags of a section")?;
    let _description = reader.u32("the description of a section")?;
    let size = reader.u64("the size of a section")?;
    let start = reader.offset();
    if flags & COMPRESSED == 0 {
        return Ok((flags, start, Cow::Borrowed(reader.take(size, "a section")?)));
    }
    let packed_size = reader.u32("the size of compressed data")?;
    let plain_size = reader.u32("the size of decompressed data")?;
    let packed = reader.take(packed_size.into(), "a compressed section")?;
    let (mut unpacker, mut plain) = (Unpacker::default(), Vec::new());
    trace
        .compression
        .decompress((packed, plain_size), start, &mut unpacker, &mut plain)?;
    Ok((flags, start, Cow::Owned(plain)))
}

/// Reads a section of options and what they point to. Returns the offset of the next one.
fn options(
    trace: &mut Trace,
    whole: &Reader<'_>,
    offset: u64,
    page_size: usize,
) -> Result<u64, Error> {
    let (_, start, data) = section(trace, whole, offset, id::DONE)?;
    let mut reader = Reader::new(&data, start, trace.order);
    while !reader.rest().is_empty() {
        let option = reader.u16("the number of an option")?;
        let size = reader.u32("the size of an option")?;
        let at = reader.offset();
        let content = reader.take(size.into(), "an option")?;
        let mut inside = Reader::new(content, at, trace.order);
        let result = match option {
            id::DONE => return inside.u64("the offset of the next options").or(Ok(0)),
            id::BUFFER => buffer(trace, whole, &mut inside, page_size),
            id::BUFFER_TEXT => text(trace, whole, &mut inside),
            id::HEADER_INFO..=id::CMDLINES => inside
                .u64("the offset of a section")
                .and_then(|offset| pointed(trace, whole, offset, option)),
            _ => trace.options.take(option, content, trace.order, at),
        };
        if let Err(error) = result {
            trace.damaged(&format!("option {option}"), error);
        }
    }
    Ok(0)
}

/// Reads the metadata section at an offset. Its number is that of the option that points to it.
fn pointed(trace: &mut Trace, whole: &Reader<'_>, offset: u64, id: u16) -> Result<(), Error> {
    let (_, start, data) = section(trace, whole, offset, id)?;
    let mut reader = Reader::new(&data, start, trace.order);
    match id {
        id::HEADER_INFO => trace.read_headers(&mut reader),
        id::FTRACE_EVENTS => trace.read_formats(&mut reader, "ftrace"),
        id::EVENT_FORMATS => trace.read_systems(&mut reader),
        id::KALLSYMS => trace.read_symbols(&mut reader),
        id::PRINTK => trace.read_printk(&mut reader),
        id::CMDLINES => trace.read_comms(&mut reader),
        _ => Ok(()),
    }
}

/// Reads the locations of a buffer's pages.
fn buffer(
    trace: &mut Trace,
    whole: &Reader<'_>,
    option: &mut Reader<'_>,
    page_size: usize,
) -> Result<(), Error> {
    let offset = option.u64("the offset of a buffer")?;
    let name = option.text("the name of a buffer")?;
    let clock = option.text("the clock of a buffer")?;
    let size = option.u32("the size of a buffer's page")? as usize;
    let page_size = if (64..=1 << 26).contains(&size) {
        size
    } else {
        page_size
    };
    let place = option.offset();
    let cpus = option.u32("a number of CPUs")?;
    if cpus > MOST_CPUS {
        let expected = format!("at most {MOST_CPUS} CPUs");
        return Err(Error::new(place, expected, cpus.to_string()));
    }
    // The section's flags say whether its data is compressed. Without the section (in an interrupted recording) the
    // data is readable nevertheless.
    let flags = whole.seek(offset).and_then(|mut reader| {
        reader.u16("the number of a section")?;
        reader.u16("the flags of a section")
    });
    let compression = match flags {
        Ok(flags) if flags & COMPRESSED == 0 => Compression::None,
        _ => trace.compression,
    };
    let mut buffer = Buffer {
        name,
        clock,
        page_size,
        cpus: Vec::new(),
    };
    for _ in 0..cpus {
        buffer.cpus.push(CpuData {
            cpu: option.u32("a CPU")?,
            offset: option.u64("the offset of a CPU's data")?,
            size: option.u64("the size of a CPU's data")?,
            compression,
        });
    }
    trace.buffers.push(buffer);
    Ok(())
}

/// Reads text that replaces event data. Compressed text is reported as damage: no known tool writes it.
fn text(trace: &mut Trace, whole: &Reader<'_>, option: &mut Reader<'_>) -> Result<(), Error> {
    let offset = option.u64("the offset of a text")?;
    let mut reader = whole.seek(offset)?;
    reader.u16("the number of a section")?;
    let flags = reader.u16("the flags of a section")?;
    reader.u32("the description of a section")?;
    let size = reader.u64("the size of a section")?;
    if flags & COMPRESSED != 0 {
        return Err(Error::new(offset, "text", "compressed data"));
    }
    trace.text = Some((reader.offset(), size.min(reader.rest().len() as u64)));
    Ok(())
}
