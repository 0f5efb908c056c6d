//! A recording from its first setting to its last page.

use std::io;
use std::path::Path;

use crate::drain::{Drain, Pages};
use crate::pages::Directory;
use crate::plan::{self, Place, Request};
use crate::recording::{Counts, Left, Recording, page_size};
use crate::state::Restore;
use crate::{Result, Tracefs, TracefsError};

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events that were recorded.
    pub events: u64,
    /// Bytes of pages that have been copied.
    pub bytes: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Whether the kernel has stopped recording: at the function that was named.
    pub has_stopped: bool,
    /// Whether pages can't be copied any more; [`Session::finish`] says why.
    pub has_failed: bool,
}

/// A recording that goes on. Settings are restored when it is dropped.
#[derive(Debug)]
pub struct Session {
    tracefs: Tracefs,
    place: Place,
    tracer: Option<String>,
    systems: Vec<String>,
    restore: Restore,
    drain: Option<Drain>,
    directory: Option<Directory>,
    /// Events that the top buffer held, which this recording has cleared.
    pub cleared: u64,
    /// Functions that are not recorded because someone has excluded them (`set_ftrace_notrace`, `set_graph_notrace`).
    pub excluded: Vec<String>,
    /// Why there is no state file, so that a killed process leaves its settings.
    pub unguarded: Option<io::Error>,
}

impl Session {
    /// Makes all settings, and does not record yet. State files are in `state`.
    ///
    /// # Errors
    /// When the kernel lacks something or refuses a value. Everything is as before, then.
    pub fn prepare(tracefs: Tracefs, request: &Request, state: &Path) -> Result<Self> {
        let tracer = request.tracer(&tracefs.read("available_tracers")?)?;
        let (restore, unguarded) = Restore::begin(&tracefs, state);
        let prepared =
            Place::choose(&tracefs, tracer.as_deref(), &restore).and_then(|(place, cleared)| {
                plan::apply(&tracefs, request, tracer.as_deref(), &place, &restore)?;
                Ok((place, cleared))
            });
        let (place, cleared) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                restore.restore();
                return Err(error);
            }
        };
        let mut systems = vec![plan::NAMING_SYSTEM.to_owned()];
        for (system, _) in request.events.iter().flat_map(|name| name.of(&tracefs)) {
            if !systems.contains(&system) {
                systems.push(system);
            }
        }
        let excluded = match tracer {
            Some(_) => plan::excluded(&tracefs, &place),
            None => Vec::new(),
        };
        Ok(Self {
            tracefs,
            place,
            tracer,
            excluded,
            systems,
            restore,
            drain: None,
            directory: None,
            cleared,
            unguarded,
        })
    }

    /// Which buffer records.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// The tracer; `None` if events alone are recorded.
    pub fn tracer(&self) -> Option<&str> {
        self.tracer.as_deref()
    }

    /// What undoes the changes, for a handler of signals.
    pub fn restorer(&self) -> Restore {
        self.restore.clone()
    }

    /// Begins to record. Pages go to a directory beside `output`, the file that the recording becomes.
    ///
    /// # Errors
    /// When they can't be written, or the kernel refuses.
    pub fn start(&mut self, output: &Path) -> Result<()> {
        let size = page_size(&self.tracefs)?;
        let directory = self.directory.insert(Directory::create(output)?);
        directory.explain(&self.tracefs, &self.place, &self.systems)?;
        self.restore.note_pages(directory.path());
        self.drain = Some(Drain::start(&self.tracefs, &self.place, size, directory)?);
        self.tracefs.write(&self.place.file("tracing_on"), "1")
    }

    /// The directory that pages are copied into, once some have come.
    pub fn pages(&self) -> Option<&Path> {
        let any = self.drain.as_ref().is_some_and(|drain| drain.bytes() > 0);
        self.directory.as_ref().filter(|_| any).map(Directory::path)
    }

    /// How far it is.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        for cpu in self.tracefs.cpus() {
            let stats = self.place.file(&format!("per_cpu/cpu{cpu}/stats"));
            let counts = Counts::of(&self.tracefs.read(&stats).unwrap_or_default());
            figures.events += counts.events;
            figures.lost += counts.lost;
        }
        let on = self.tracefs.read(&self.place.file("tracing_on"));
        figures.has_stopped = on.is_ok_and(|on| on.trim() == "0");
        if let Some(drain) = &self.drain {
            figures.bytes = drain.bytes();
            figures.has_failed = drain.has_failed();
        }
        figures
    }

    /// Stops recording, copies what is left, and restores all settings. The second value is what could not be restored.
    ///
    /// # Errors
    /// When pages could not be copied, or texts not be read. Settings are restored then, too.
    pub fn finish(mut self) -> (Result<Recording>, Vec<TracefsError>) {
        let taken = self.take();
        // Reading texts takes a while, longer than anything else where every function of the kernel is traced.
        let failed = self.restore.restore();
        let recording =
            taken.and_then(|taken| Recording::explain(&self.tracefs, &self.systems, taken));
        (recording, failed)
    }

    fn take(&mut self) -> Result<(Vec<Pages>, Left, Directory)> {
        self.tracefs.write(&self.place.file("tracing_on"), "0")?;
        let pages = self.drain.take().map(Drain::finish).unwrap_or_default();
        let left = Left::of(&self.tracefs, &self.place)?;
        let directory = self.directory.take().ok_or(TracefsError::Empty)?;
        Ok((pages, left, directory))
    }
}

/// Threads hold files that keep an instance from being removed.
impl Drop for Session {
    fn drop(&mut self) {
        // An instance with open files can't be removed.
        self.drain = None;
        // What fails is in the state file, for the next process.
        self.restore.restore();
    }
}

#[cfg(test)]
mod tests;
