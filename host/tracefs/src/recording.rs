//! A finished recording: pages, the texts that describe them, and counts of lost events.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use kymo_ftrace::{DatFile, Order, PageLayout};
use rustix::fs::{FallocateFlags, fallocate};

use crate::drain::Pages;
use crate::pages::Directory;
use crate::plan::{Place, number};
use crate::{Result, Tracefs, TracefsError};

/// Events lost by one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The CPU.
    pub cpu: u32,
    /// Events that were overwritten, or rejected, because they were not read in time.
    pub events: u64,
}

/// A finished recording. Its pages are in a directory that exists until [`Self::remove_pages`].
#[derive(Debug)]
pub struct Recording {
    dat: DatFile,
    files: Vec<File>,
    directory: Directory,
    /// Number of recorded events, without lost ones.
    pub events: u64,
    /// The CPUs that lost events.
    pub losses: Vec<Loss>,
    /// Why it ended early: its disk was full, or the kernel's pages could not be read. Pages copied before are kept.
    pub cut: Option<TracefsError>,
    /// Whether the kernel hides the addresses of its symbols, so that functions have no names.
    pub is_nameless: bool,
}

/// The size of a page according to the kernel, in bytes.
pub(crate) fn page_size(tracefs: &Tracefs) -> Result<usize> {
    let text = tracefs.read("events/header_page")?;
    Ok(PageLayout::page_size(&text).unwrap_or(4096))
}

/// Properties of a buffer that are lost when its settings are restored.
#[derive(Debug)]
pub(crate) struct Left {
    clocks: String,
    stats: Vec<(u32, String)>,
    comms: Vec<u8>,
}

impl Left {
    /// Reads them.
    pub(crate) fn of(tracefs: &Tracefs, place: &Place) -> Result<Self> {
        let stats = |cpu: u32| {
            let text = tracefs.read(&place.file(&format!("per_cpu/cpu{cpu}/stats")))?;
            Ok((cpu, text))
        };
        Ok(Self {
            clocks: tracefs.read(&place.file("trace_clock"))?.trim().to_owned(),
            stats: tracefs
                .cpus()
                .into_iter()
                .map(stats)
                .collect::<Result<_>>()?,
            comms: comms(tracefs),
        })
    }
}

/// The kernel's counts of a CPU's buffer: `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Recorded events, without lost ones.
    pub(crate) events: u64,
    pub(crate) lost: u64,
}

impl Counts {
    pub(crate) fn of(text: &str) -> Self {
        let count = |name| number(text, name).unwrap_or(0);
        Self {
            events: count("entries:") + count("read events:"),
            lost: count("overrun:") + count("dropped events:") + count("commit overrun:"),
        }
    }
}

impl Recording {
    /// Adds the texts that describe the pages. They don't change, so that the kernel's settings may already be
    /// restored. `systems` are those with recorded events.
    pub(crate) fn explain(
        tracefs: &Tracefs,
        systems: &[String],
        (mut pages, left, directory): (Vec<Pages>, Left, Directory),
    ) -> Result<Self> {
        let cut = pages.iter_mut().find_map(|pages| pages.cut.take());
        let header_page = tracefs.bytes("events/header_page")?;
        let order = match cfg!(target_endian = "big") {
            true => Order::Big,
            false => Order::Little,
        };
        let text = String::from_utf8_lossy(&header_page);
        // A 32-bit program may run on a 64-bit kernel.
        let long_size = PageLayout::parse(order, size_of::<usize>(), &text).commit_size;
        let path = "/proc/kallsyms";
        let kallsyms = fs::read(path).map_err(|error| TracefsError::io("read", path, error))?;
        let is_nameless = !kallsyms.split(|byte| *byte == b'\n').any(|line| {
            let mut address = line.iter().take_while(|byte| **byte != b' ');
            address.any(|digit| *digit != b'0')
        });
        let mut formats = vec![("ftrace".to_owned(), formats(tracefs, "ftrace"))];
        for system in systems.iter().filter(|system| *system != "ftrace") {
            formats.push((system.clone(), self::formats(tracefs, system)));
        }
        let uname = rustix::system::uname();
        let words = [
            uname.sysname(),
            uname.nodename(),
            uname.release(),
            uname.machine(),
        ];
        let words = words.map(|word| word.to_string_lossy().into_owned());
        let (mut events, mut losses) = (0, Vec::new());
        for (cpu, text) in &left.stats {
            let counts = Counts::of(text);
            events += counts.events;
            if counts.lost > 0 {
                losses.push(Loss {
                    cpu: *cpu,
                    events: counts.lost,
                });
            }
        }
        let dat = DatFile {
            order,
            long_size: if long_size == 4 { 4 } else { 8 },
            page_size: u32::try_from(page_size(tracefs)?).unwrap_or(4096),
            header_event: tracefs.bytes("events/header_event")?,
            systems: formats,
            kallsyms,
            printk_formats: tracefs.bytes("printk_formats").unwrap_or_default(),
            comms: left.comms,
            clocks: left.clocks,
            uname: words.join(" "),
            version: concat!("kymo ", env!("CARGO_PKG_VERSION")).to_owned(),
            cpus: u32::try_from(left.stats.len()).unwrap_or(0),
            stats: left.stats,
            pages: pages.iter().map(|pages| (pages.cpu, pages.bytes)).collect(),
            header_page,
        };
        Ok(Self {
            dat,
            files: pages.into_iter().map(|pages| pages.file).collect(),
            directory,
            events,
            losses,
            cut,
            is_nameless,
        })
    }

    /// Bytes of pages.
    pub fn bytes(&self) -> u64 {
        self.dat.pages.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Writes the trace.dat. Frees the disk space of pages as they are written, because the disk may be full.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn write<W: Write>(&self, out: &mut W) -> io::Result<()> {
        let mut files = self.files.iter();
        self.dat.write(out, |out, place| {
            match (files.next(), self.dat.pages.get(place)) {
                (Some(file), Some((_, bytes))) => pour(file, *bytes, out),
                _ => Ok(()),
            }
        })
    }

    /// The directory with the pages not yet written, which can be read directly.
    pub fn pages(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the pages, once the trace.dat is complete.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn remove_pages(self) -> io::Result<()> {
        self.directory.remove()
    }
}

/// Moves `bytes` of a file in parts.
fn pour(mut file: &File, bytes: u64, out: &mut impl Write) -> io::Result<()> {
    /// Bytes per part.
    const PART: u64 = 1 << 20;
    file.rewind()?;
    let mut at = 0;
    while at < bytes {
        let moved = io::copy(&mut file.take(PART.min(bytes - at)), out)?;
        if moved == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // If the file system doesn't support this, the space is freed at the end.
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, flags, at, moved);
        at += moved;
    }
    Ok(())
}

/// The formats of a system's events.
fn formats(tracefs: &Tracefs, system: &str) -> Vec<Vec<u8>> {
    let names = tracefs.names(&format!("events/{system}"));
    let format = |name: &String| {
        tracefs
            .bytes(&format!("events/{system}/{name}/format"))
            .ok()
    };
    names.iter().filter_map(format).collect()
}

/// The names of tasks: those that the kernel saved during the recording, and all current ones.
pub(crate) fn comms(tracefs: &Tracefs) -> Vec<u8> {
    let mut comms = tracefs.bytes("saved_cmdlines").unwrap_or_default();
    let known: std::collections::HashSet<Vec<u8>> = comms
        .split(|byte| *byte == b'\n')
        .filter_map(|line| Some(line.split(|byte| *byte == b' ').next()?.to_vec()))
        .collect();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let tasks = fs::read_dir(process.path().join("task"));
        for task in tasks.into_iter().flatten().flatten() {
            let pid = task.file_name().into_encoded_bytes();
            if known.contains(&pid) {
                continue;
            }
            // It may have ended meanwhile.
            if let Ok(comm) = fs::read(task.path().join("comm")) {
                comms.extend([&pid[..], b" ", comm.trim_ascii_end(), b"\n"].concat());
            }
        }
    }
    comms
}
