//! Version 6: parts in a fixed order.

use super::options::id;
use super::{Buffer, MOST_CPUS, Trace};
use crate::Error;
use crate::cursor::CpuData;
use crate::decompress::Compression;
use crate::order::Reader;

/// Reads everything behind the page size.
pub(super) fn read(
    trace: &mut Trace,
    mut reader: Reader<'_>,
    page_size: usize,
) -> Result<(), Error> {
    trace.read_headers(&mut reader)?;
    trace.read_formats(&mut reader, "ftrace")?;
    trace.read_systems(&mut reader)?;
    trace.read_symbols(&mut reader)?;
    trace.read_printk(&mut reader)?;
    trace.read_comms(&mut reader)?;
    let offset = reader.offset();
    let cpus = reader.u32("the number of CPUs")?;
    if cpus > MOST_CPUS {
        let expected = format!("at most {MOST_CPUS} CPUs");
        return Err(Error::new(offset, expected, cpus.to_string()));
    }
    let mut main = reader.clone();
    let main = buffer(trace, &mut main, (cpus, page_size), String::new())?;
    trace.buffers.extend(main);
    for (offset, name) in std::mem::take(&mut trace.options.buffers) {
        let instance = reader
            .seek(offset)
            .and_then(|mut reader| buffer(trace, &mut reader, (cpus, page_size), name.clone()));
        match instance {
            Ok(instance) => trace.buffers.extend(instance),
            Err(error) => trace.damaged(&format!("buffer {name:?}"), error),
        }
    }
    Ok(())
}

/// Reads the locations of a buffer's pages; `None` if the file has text instead.
fn buffer(
    trace: &mut Trace,
    reader: &mut Reader<'_>,
    (cpus, page_size): (u32, usize),
    name: String,
) -> Result<Option<Buffer>, Error> {
    loop {
        let offset = reader.offset();
        let what = reader.take(10, "what follows: options, latency or flyrecord")?;
        match what {
            b"options  \0" => options(trace, reader)?,
            b"latency  \0" => {
                trace.text = Some((reader.offset(), reader.rest().len() as u64));
                return Ok(None);
            }
            b"flyrecord\0" => break,
            other => {
                let found = format!("{:?}", String::from_utf8_lossy(other));
                return Err(Error::new(offset, "options, latency or flyrecord", found));
            }
        }
    }
    let cpus = trace
        .options
        .cpus
        .filter(|cpus| *cpus <= MOST_CPUS)
        .unwrap_or(cpus);
    let mut buffer = Buffer {
        name,
        clock: trace.options.clock().unwrap_or_default().to_owned(),
        page_size,
        cpus: Vec::new(),
    };
    for cpu in 0..cpus {
        buffer.cpus.push(CpuData {
            cpu,
            offset: reader.u64("the offset of a CPU's data")?,
            size: reader.u64("the size of a CPU's data")?,
            compression: Compression::None,
        });
    }
    Ok(Some(buffer))
}

fn options(trace: &mut Trace, reader: &mut Reader<'_>) -> Result<(), Error> {
    loop {
        let option = reader.u16("the number of an option")?;
        if option == id::DONE {
            return Ok(());
        }
        let size = reader.u32("the size of an option")?;
        let at = reader.offset();
        let data = reader.take(size.into(), "an option")?;
        if let Err(error) = trace.options.take(option, data, trace.order, at) {
            trace.damaged(&format!("option {option}"), error);
        }
    }
}
