//! What came of a recording: pages, the texts that explain them, and what was lost.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use kymo_ftrace::{DatFile, Order, PageLayout};
use rustix::fs::{FallocateFlags, fallocate};

use crate::drain::Pages;
use crate::pages::Directory;
use crate::plan::{Place, number};
use crate::{Result, Tracefs, TracefsError};

/// Events that one CPU has lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The CPU.
    pub cpu: u32,
    /// Events that were overwritten, or refused, because they were not read in time.
    pub events: u64,
}

/// A recording that is over. Its pages are in a directory that stays until [`Self::remove_pages`].
#[derive(Debug)]
pub struct Recording {
    dat: DatFile,
    files: Vec<File>,
    directory: Directory,
    /// The events that were recorded, without lost ones.
    pub events: u64,
    /// The CPUs that lost events.
    pub losses: Vec<Loss>,
    /// Why it ended early: its disk was full, or the kernel's pages could not be read. What was copied before is there.
    pub cut: Option<TracefsError>,
    /// Whether the kernel shows no addresses of its symbols, so that functions have no names.
    pub is_nameless: bool,
}

/// The bytes of a page, as the kernel describes it.
pub(crate) fn page_size(tracefs: &Tracefs) -> Result<usize> {
    let text = tracefs.read("events/header_page")?;
    Ok(PageLayout::page_size(&text).unwrap_or(4096))
}

/// What of a buffer is gone when its settings are as before.
#[derive(Debug)]
pub(crate) struct Left {
    clocks: String,
    stats: Vec<(u32, String)>,
    comms: Vec<u8>,
}

impl Left {
    /// Reads it.
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

/// What the kernel counts of a CPU's buffer: `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Events that were recorded, and are not lost.
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
    /// Adds what explains the pages: texts that nothing changes, so that the kernel may be as it was already.
    /// `systems` are those whose events were recorded.
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
        // A program of 32 bits may run on a kernel of 64.
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

    /// Writes the trace.dat. Pages are given back to the disk, which may be full, as they are written.
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

    /// The directory with the pages, which can be read as it is: what [`Self::write`] did not take.
    pub fn pages(&self) -> &Path {
        self.directory.path()
    }

    /// Removes the pages, once the trace.dat is in its place.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn remove_pages(self) -> io::Result<()> {
        self.directory.remove()
    }
}

/// Moves so many bytes of a file, part by part.
fn pour(mut file: &File, bytes: u64, out: &mut impl Write) -> io::Result<()> {
    /// Bytes of a part.
    const PART: u64 = 1 << 20;
    file.rewind()?;
    let mut at = 0;
    while at < bytes {
        let moved = io::copy(&mut file.take(PART.min(bytes - at)), out)?;
        if moved == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Where the file system can't do that, the whole file is given back at the end.
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

/// The names of tasks: those that the kernel has met while it recorded, and all that live.
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
