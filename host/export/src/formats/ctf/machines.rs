//! Traces of several machines, whose processors and threads have overlapping numbers: each becomes a trace in its own
//! directory.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kymo_ctf::metadata::Version;
use kymo_event::{Batch, SpaceId, TraceInfo};

use super::Ctf;
use crate::Summary;
use crate::format::{Context, Sink};

/// Sink that distributes events by machine.
pub(super) struct Machines<'a> {
    context: Context<'a>,
    directory: &'a Path,
    version: Version,
    machines: BTreeMap<SpaceId, Machine<'a>>,
}

/// A machine, and its events of the current batch.
struct Machine<'a> {
    trace: Ctf<'a>,
    events: Batch,
}

impl<'a> Machines<'a> {
    /// Creates the sink, which writes below `directory`.
    pub const fn new(context: Context<'a>, directory: &'a Path, version: Version) -> Self {
        Self {
            context,
            directory,
            version,
            machines: BTreeMap::new(),
        }
    }

    /// Returns the machine, and chooses its directory at the first use.
    fn of(&mut self, info: &TraceInfo, id: SpaceId) -> &mut Machine<'a> {
        let machine = self.machines.remove(&id).unwrap_or_else(|| {
            let directory = self.folder(info, id);
            let mut trace = Ctf::new(self.context, directory, self.version);
            trace.machine = Some(id);
            Machine {
                trace,
                events: Batch::default(),
            }
        });
        self.machines.entry(id).or_insert(machine)
    }

    /// The directory of a machine, named after it as far as the file system allows.
    fn folder(&self, info: &TraceInfo, id: SpaceId) -> PathBuf {
        let space = info.identities.space(id);
        let name = space.map_or("", |space| space.name.as_str());
        let folder = folder_name(name);
        let taken = |path: &PathBuf| {
            let mut machines = self.machines.values();
            path.exists() || machines.any(|machine| machine.trace.directory == *path)
        };
        let path = self.directory.join(&folder);
        if taken(&path) {
            return self.directory.join(format!("{folder}_{}", id.0));
        }
        path
    }
}

/// Converts a name to a directory name that readers accept for a trace.
fn folder_name(name: &str) -> String {
    let fits = |c: char| match c {
        '/' | '\\' | ':' => '_',
        c if c.is_control() || c.is_whitespace() => '_',
        c => c,
    };
    let name: String = name.chars().map(fits).take(64).collect();
    match name.as_str() {
        "" => "machine".to_owned(),
        // Names of LTTng's, which readers skip; and hidden ones.
        "index" | "metadata" => format!("{name}_"),
        hidden if hidden.starts_with('.') => format!("_{hidden}"),
        _ => name,
    }
}

impl Sink for Machines<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for event in batch.iter() {
            let stream = info.stream(event.row.stream);
            let machine = stream.map_or_else(SpaceId::default, |stream| stream.machine);
            self.of(info, machine).events.push_ref(event);
        }
        for machine in self.machines.values_mut() {
            machine.trace.batch(info, &machine.events)?;
            machine.events.clear();
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        if self.machines.is_empty() {
            // Without events there is still a trace.
            self.of(info, SpaceId::default());
        }
        for machine in self.machines.into_values() {
            Box::new(machine.trace).finish(info, summary)?;
        }
        Ok(())
    }
}
