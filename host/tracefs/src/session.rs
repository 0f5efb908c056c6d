//! Recording session, from the first setting to the last page.

use std::io;
use std::path::Path;

use crate::drain::{Drain, Pages};
use crate::pages::Directory;
use crate::plan::{self, Place, Request};
use crate::recording::{Counts, Left, Recording, page_size};
use crate::state::Restore;
use crate::{Result, Tracefs, TracefsError};

/// Progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of recorded events.
    pub events: u64,
    /// Bytes of copied pages.
    pub bytes: u64,
    /// Number of lost events.
    pub lost: u64,
    /// Whether the kernel has stopped recording at the requested function.
    pub has_stopped: bool,
    /// Whether copying has failed; [`Session::finish`] returns the reason.
    pub has_failed: bool,
}

/// A running recording. Dropping it restores the settings.
#[derive(Debug)]
pub struct Session {
    tracefs: Tracefs,
    place: Place,
    tracer: Option<String>,
    systems: Vec<String>,
    restore: Restore,
    drain: Option<Drain>,
    directory: Option<Directory>,
    /// Number of events in the top buffer that this recording has cleared.
    pub cleared: u64,
    /// Functions that are not recorded because of earlier settings (`set_ftrace_notrace`, `set_graph_notrace`).
    pub excluded: Vec<String>,
    /// Why there is no state file; without one, a killed process leaves its settings in place.
    pub unguarded: Option<io::Error>,
}

impl Session {
    /// Applies all settings without starting to record. State files are in `state`.
    ///
    /// # Errors
    /// When the kernel lacks a feature or rejects a value. All settings are restored then.
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

    /// The buffer of the recording.
    pub const fn place(&self) -> &Place {
        &self.place
    }

    /// The tracer; `None` if only events are recorded.
    pub fn tracer(&self) -> Option<&str> {
        self.tracer.as_deref()
    }

    /// The handle that undoes the changes, for a signal handler.
    pub fn restorer(&self) -> Restore {
        self.restore.clone()
    }

    /// Starts to record. Pages go to a directory beside `output`, the final file.
    ///
    /// # Errors
    /// When they can't be written, or the kernel rejects it.
    pub fn start(&mut self, output: &Path) -> Result<()> {
        let size = page_size(&self.tracefs)?;
        let directory = self.directory.insert(Directory::create(output)?);
        directory.explain(&self.tracefs, &self.place, &self.systems)?;
        self.restore.note_pages(directory.path());
        self.drain = Some(Drain::start(&self.tracefs, &self.place, size, directory)?);
        self.tracefs.write(&self.place.file("tracing_on"), "1")
    }

    /// The directory of the copied pages, once recording has started.
    pub fn pages(&self) -> Option<&Path> {
        let any = self.drain.as_ref().is_some_and(|drain| drain.bytes() > 0);
        self.directory.as_ref().filter(|_| any).map(Directory::path)
    }

    /// The current progress.
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

    /// Stops recording, copies the remaining pages, and restores all settings. The second value lists what could not be
    /// restored.
    ///
    /// # Errors
    /// When pages could not be copied, or texts not be read. Settings are restored in this case as well.
    pub fn finish(mut self) -> (Result<Recording>, Vec<TracefsError>) {
        let taken = self.take();
        // Before reading texts, which takes longer than anything else, and even longer while every function of the
        // kernel is traced.
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

/// Ends the threads first: they hold files that prevent the removal of an instance.
impl Drop for Session {
    fn drop(&mut self) {
        // An instance with open files can't be removed.
        self.drain = None;
        // Failed changes stay in the state file, for the next process.
        self.restore.restore();
    }
}

#[cfg(test)]
mod tests;
