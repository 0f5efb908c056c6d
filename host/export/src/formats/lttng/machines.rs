//! Traces of several machines: LTTng's kernel tracer records only one, so each machine becomes a trace in its own
//! directory.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use kymo_event::{Batch, SpaceId, TraceInfo};

use super::Lttng;
use super::classes::identifier;
use crate::Summary;
use crate::format::{Context, Sink};

/// Sink that distributes events by machine.
pub(super) struct Machines<'a> {
    context: Context<'a>,
    directory: PathBuf,
    machines: BTreeMap<SpaceId, Machine<'a>>,
}

/// A machine, and its events of the current batch.
struct Machine<'a> {
    trace: Lttng<'a>,
    events: Batch,
}

impl<'a> Machines<'a> {
    /// Creates the sink, which writes below `directory`.
    pub const fn new(context: Context<'a>, directory: PathBuf) -> Self {
        Self {
            context,
            directory,
            machines: BTreeMap::new(),
        }
    }

    /// Returns the machine, and creates its directory at the first use.
    fn of(&mut self, info: &TraceInfo, id: SpaceId) -> io::Result<&mut Machine<'a>> {
        let machine = match self.machines.remove(&id) {
            Some(machine) => machine,
            None => {
                let space = info.identities.space(id);
                let name = space.map_or("", |space| space.name.as_str());
                let mut folder = match name {
                    "" => "machine".to_owned(),
                    name => identifier(name.to_owned().into()).into_owned(),
                };
                // Two machines may have the same name.
                if self.directory.join(&folder).exists() {
                    folder = format!("{folder}{}", id.0);
                }
                let directory = self.directory.join(folder);
                std::fs::create_dir_all(&directory)?;
                let mut trace = Lttng::new(self.context, directory);
                trace.host = Some(name.to_owned()).filter(|name| !name.is_empty());
                Machine {
                    trace,
                    events: Batch::default(),
                }
            }
        };
        Ok(self.machines.entry(id).or_insert(machine))
    }
}

impl Sink for Machines<'_> {
    fn batch(&mut self, info: &TraceInfo, batch: &Batch) -> io::Result<()> {
        for event in batch.iter() {
            let stream = info.stream(event.row.stream);
            let machine = stream.map_or_else(SpaceId::default, |stream| stream.machine);
            self.of(info, machine)?.events.push_ref(event);
        }
        for machine in self.machines.values_mut() {
            machine.trace.batch(info, &machine.events)?;
            machine.events.clear();
        }
        Ok(())
    }

    fn finish(self: Box<Self>, info: &TraceInfo, summary: &mut Summary) -> io::Result<()> {
        for machine in self.machines.into_values() {
            Box::new(machine.trace).finish(info, summary)?;
        }
        Ok(())
    }
}
