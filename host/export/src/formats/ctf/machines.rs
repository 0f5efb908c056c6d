//! Several machines: the processors and threads of one have the numbers of another's, so each becomes a trace in a
//! directory of its own.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kymo_ctf::metadata::Version;
use kymo_event::{Batch, SpaceId, TraceInfo};

use super::Ctf;
use crate::Summary;
use crate::format::{Context, Sink};

/// The sink that shares events out by the machine whose they are.
pub(super) struct Machines<'a> {
    context: Context<'a>,
    directory: &'a Path,
    version: Version,
    machines: BTreeMap<SpaceId, Machine<'a>>,
}

/// A machine, and its share of the events at hand.
struct Machine<'a> {
    trace: Ctf<'a>,
    events: Batch,
}

impl<'a> Machines<'a> {
    /// Writes below `directory`.
    pub const fn new(context: Context<'a>, directory: &'a Path, version: Version) -> Self {
        Self {
            context,
            directory,
            version,
            machines: BTreeMap::new(),
        }
    }

    /// The machine, whose directory is chosen when it is met first.
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

    /// The directory of a machine, which has its name as far as a file can.
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

/// A name as that of a directory in which readers look for a trace.
fn folder_name(name: &str) -> String {
    let fits = |c: char| match c {
        '/' | '\\' | ':' => '_',
        c if c.is_control() || c.is_whitespace() => '_',
        c => c,
    };
    let name: String = name.chars().map(fits).take(64).collect();
    match name.as_str() {
        "" => "machine".to_owned(),
        // Of LTTng's, which readers pass over; and what is hidden.
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
            // Nothing happened: a trace without events is one, too.
            self.of(info, SpaceId::default());
        }
        for machine in self.machines.into_values() {
            Box::new(machine.trace).finish(info, summary)?;
        }
        Ok(())
    }
}
