//! Reader of a trace directory that is still being written (`kymo show --follow DIR`).
//!
//! There may be thousands of files, one per thread. Polling therefore reads their lengths only, and [`OpenFiles`]
//! limits how many of them are open.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use kymo_ctf::metadata::Metadata;
use kymo_wire::event::{Layout, METADATA_STREAM, PacketHeader};

use super::describe::{Unusable, is_native};
use super::live::Live;
use super::open_files::OpenFiles;
use super::streams::StreamKind;
use crate::{OpenError, OpenOptions};

/// Reader of a trace directory that is being written ([`Recording`](super::Recording)): returns the
/// existing packets first, then new ones as they arrive.
#[derive(Debug)]
pub struct Tail {
    directory: PathBuf,
    files: Vec<Followed>,
    /// The names of all files in `files`.
    known: HashSet<String>,
    open: OpenFiles<usize>,
    /// The begin of each file's next complete packet, and the file's index: at most one entry per file.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    /// The previous content of the file of names.
    names: Vec<u8>,
}

/// A growing file of packets.
#[derive(Debug)]
struct Followed {
    name: String,
    path: PathBuf,
    /// The offset of the next packet.
    at: u64,
    /// The length of the next packet in bytes, once it is complete in the file.
    next: Option<u64>,
}

impl Tail {
    /// Opens the directory; returns a [`Live`] reader that its metadata describes, too.
    ///
    /// # Errors
    /// [`OpenError`] if the directory is not one of Kymo's recordings.
    pub fn open(directory: &Path, options: &OpenOptions) -> Result<(Self, Live), OpenError> {
        let path = directory.join("metadata");
        let text = fs::read(&path).map_err(|source| OpenError::Io {
            path: path.clone(),
            source,
        })?;
        let refuse = |why: Unusable| {
            why.of(path.clone(), |path, message| {
                let offset = 0;
                OpenError::Metadata {
                    path,
                    offset,
                    message,
                }
            })
        };
        let parsed = Metadata::parse(&text).map_err(|error| refuse(error.to_string().into()))?;
        if !is_native(&parsed.metadata) {
            let message = "expected a recording of a target of kymo's, found another trace";
            return Err(refuse(message.into()));
        }
        let live = Live::described(parsed.metadata, options).map_err(refuse)?;
        let tail = Self {
            directory: directory.to_owned(),
            files: Vec::new(),
            known: HashSet::new(),
            open: OpenFiles::new(),
            next: BinaryHeap::new(),
            names: Vec::new(),
        };
        Ok((tail, live))
    }

    /// Passes new packets to `live`, the oldest first, in batches of about 1 MiB; returns whether there
    /// were any.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn feed(&mut self, live: &mut Live) -> io::Result<bool> {
        /// Bytes of packets read per call.
        const BATCH: usize = 1 << 20;
        let layout = live.layout();
        let mut fed = self.feed_names(live)?;
        self.find_files()?;
        for index in 0..self.files.len() {
            self.look(index, layout)?;
        }
        let mut batch = 0;
        while batch < BATCH {
            let Some(Reverse((_, index))) = self.next.pop() else {
                break;
            };
            if let Some(packet) = self.take(index)? {
                batch += packet.len();
                live.push(packet);
                fed = true;
            }
            self.look(index, layout)?;
        }
        Ok(fed)
    }

    /// Passes the packet of names to `live` if it has changed.
    fn feed_names(&mut self, live: &mut Live) -> io::Result<bool> {
        let name = StreamKind::Metadata.file_name(METADATA_STREAM);
        let content = match fs::read(self.directory.join(name)) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let new = content != self.names;
        if new {
            self.names.clone_from(&content);
            live.push(content);
        }
        Ok(new)
    }

    /// Adds files that were created since the last call.
    fn find_files(&mut self) -> io::Result<()> {
        let names = StreamKind::Metadata.file_name(METADATA_STREAM);
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if self.known.contains(&name)
                || name == "metadata"
                || name == names
                || name.starts_with('.')
            {
                continue;
            }
            self.known.insert(name.clone());
            self.files.push(Followed {
                path: self.directory.join(&name),
                name,
                at: 0,
                next: None,
            });
        }
        Ok(())
    }

    /// Reads the header of a file's next packet, and queues the packet if it is complete.
    fn look(&mut self, index: usize, layout: Layout) -> io::Result<()> {
        let Some(file) = self.files.get_mut(index) else {
            return Ok(());
        };
        if file.next.is_some() {
            return Ok(());
        }
        let mut head = vec![0; layout.header_bytes()];
        let length = fs::metadata(&file.path).map_err(of_file(&file.name))?.len();
        let there = length.saturating_sub(file.at);
        if there < head.len() as u64 {
            return Ok(());
        }
        let open = || File::open(&file.path);
        let read = self.open.with(index, open, |opened| {
            opened.seek(SeekFrom::Start(file.at))?;
            opened.read_exact(&mut head)
        });
        read.map_err(of_file(&file.name))?;
        let header = PacketHeader::read(layout, &head);
        let header = header.filter(|header| header.packet_bits as usize / 8 >= head.len());
        let header = header.ok_or_else(|| {
            let message = format!(
                "{}: expected a packet at offset {}, found none",
                file.name, file.at
            );
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        let length = u64::from(header.packet_bits / 8);
        if length <= there {
            file.next = Some(length);
            self.next.push(Reverse((header.begin, index)));
        }
        Ok(())
    }

    /// Reads the packet whose header [`look`](Self::look) has read.
    fn take(&mut self, index: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.files.get_mut(index) else {
            return Ok(None);
        };
        let Some(length) = file.next.take() else {
            return Ok(None);
        };
        let mut packet = vec![0; length as usize];
        let open = || File::open(&file.path);
        let read = self.open.with(index, open, |opened| {
            opened.seek(SeekFrom::Start(file.at))?;
            opened.read_exact(&mut packet)
        });
        read.map_err(of_file(&file.name))?;
        file.at += length;
        Ok(Some(packet))
    }
}

/// Prefixes an error with the name of the file it occurred in.
fn of_file(name: &str) -> impl FnOnce(io::Error) -> io::Error + use<'_> {
    move |error| io::Error::new(error.kind(), format!("{name}: {error}"))
}
