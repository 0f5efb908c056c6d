//! Directories with a trace in tracefs's layout: raw pages of each CPU, event formats, and names.
//!
//! Raw pages are `per_cpu/cpu0/trace_pipe_raw` or `cpu0.raw`. The formats are in `events/SYSTEM/NAME/format`, the
//! layout of pages in `events/header_page` or `header_page`. `kallsyms`, `printk_formats`, `saved_cmdlines` and
//! `trace_clock` are optional.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kymo_ftrace::{
    Buffer, Comms, CpuData, EventFormat, Order, PageLayout, PrintkFormats, Symbols, Trace,
};

use crate::OpenError;
use crate::bytes::Bytes;

/// Largest size of a text of tracefs, in bytes.
const LARGEST_TEXT: u64 = 1 << 28;

/// Returns the file that describes the pages, if the directory has one.
pub(super) fn header_page(directory: &Path) -> Option<PathBuf> {
    let places = ["events/header_page", "header_page"].map(|name| directory.join(name));
    places.into_iter().find(|path| path.is_file())
}

/// Returns the raw pages of each CPU, by its number.
fn raw_files(directory: &Path) -> Vec<(u32, PathBuf)> {
    let mut files = Vec::new();
    let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(cpu) = name
            .to_str()
            .and_then(|name| number(name.strip_suffix(".raw")?))
        {
            files.push((cpu, entry.path()));
        }
    }
    for entry in fs::read_dir(directory.join("per_cpu"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = entry.path().join("trace_pipe_raw");
        let cpu = entry.file_name().to_str().and_then(number);
        if let Some(cpu) = cpu.filter(|_| path.is_file()) {
            files.push((cpu, path));
        }
    }
    files.sort();
    files.dedup_by_key(|(cpu, _)| *cpu);
    files
}

/// Returns whether a directory has such a trace.
pub(super) fn is_one(directory: &Path) -> bool {
    header_page(directory).is_some() && !raw_files(directory).is_empty()
}

/// Returns the text of a file, if it exists.
fn text(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path).ok().filter(|_| path.is_file())?;
    file.take(LARGEST_TEXT).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Reads the event formats of all systems below `events`.
fn add_formats(trace: &mut Trace, directory: &Path) -> io::Result<()> {
    for system in fs::read_dir(directory.join("events"))? {
        let system = system?;
        if !system.path().is_dir() {
            continue;
        }
        let name = system.file_name().to_string_lossy().into_owned();
        for event in fs::read_dir(system.path())? {
            let Some(format) = text(&event?.path().join("format")) else {
                continue;
            };
            if let Some(format) = EventFormat::parse(&name, &String::from_utf8_lossy(&format)) {
                trace.formats.add(format);
            }
        }
    }
    Ok(())
}

/// Returns the byte order in which the number of bytes on the first page is valid.
fn order(page: &[u8], layout: &PageLayout, page_size: usize) -> Order {
    let end = layout.commit + layout.commit_size;
    let commit = page.get(layout.commit..end).unwrap_or_default();
    let fits = |order: &Order| {
        let bytes = order.number(commit) & 0xf_ffff;
        bytes > 0 && bytes as usize <= page_size
    };
    let orders = [Order::Little, Order::Big];
    orders.into_iter().find(fits).unwrap_or_default()
}

/// Returns whether a directory is tracefs itself: its files have size 0.
fn is_live(directory: &Path, raw: &[(u32, PathBuf)]) -> bool {
    let is_empty = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() == 0);
    is_empty(&directory.join("tracing_on")) && raw.iter().all(|(_, path)| is_empty(path))
}

/// Reads everything but the pages, and returns it with the concatenated pages.
///
/// # Errors
/// [`OpenError::Io`] if a file cannot be read, [`OpenError::LiveTracefs`] if reading would wait for events.
pub(super) fn open(directory: &Path) -> Result<(Trace, Bytes), OpenError> {
    let raw = raw_files(directory);
    if is_live(directory, &raw) {
        let path = directory.to_owned();
        return Err(OpenError::LiveTracefs { path });
    }
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let header = header_page(directory).and_then(|path| text(&path));
    let header = String::from_utf8_lossy(&header.unwrap_or_default()).into_owned();
    // The sizes in the header are the same in both orders.
    let guess = PageLayout::parse(Order::Little, 8, &header);
    let page_size = PageLayout::page_size(&header).unwrap_or(4096);
    let (mut cpus, mut offset) = (Vec::new(), 0);
    let mut pages: Box<dyn Read> = Box::new(io::empty());
    let mut first = Vec::new();
    for (cpu, path) in raw {
        let mut file = File::open(&path).map_err(io(&path))?;
        if first.is_empty() {
            let head = Read::by_ref(&mut file).take(64).read_to_end(&mut first);
            head.map_err(io(&path))?;
            file = File::open(&path).map_err(io(&path))?;
        }
        let size = file.metadata().map_err(io(&path))?.len();
        cpus.push(CpuData {
            cpu,
            offset,
            size,
            ..CpuData::default()
        });
        offset += size;
        pages = Box::new(pages.chain(file.take(size)));
    }
    let bytes = Bytes::spool(&mut pages, u64::MAX).map_err(io(directory))?;
    let order = order(&first, &guess, page_size);
    let mut trace = Trace::new(order, guess.commit_size);
    trace.layout = PageLayout { order, ..guess };
    add_formats(&mut trace, directory).map_err(io(&directory.join("events")))?;
    let beside = |name: &str| text(&directory.join(name)).unwrap_or_default();
    trace.symbols = Symbols::parse(&beside("kallsyms"));
    trace.printk = PrintkFormats::parse(&beside("printk_formats"));
    trace.comms = Comms::parse(&beside("saved_cmdlines"));
    let clocks = String::from_utf8_lossy(&beside("trace_clock")).into_owned();
    trace.options.clocks = clocks.trim().to_owned();
    trace.buffers.push(Buffer {
        page_size,
        cpus,
        ..Buffer::default()
    });
    Ok((trace, bytes))
}
