//! Threads that are created. Their names are in the items behind.

use kymo_event::{Identities, ThreadId, Tid};
use kymo_rtems_record::{EventId, Record};

use super::{RecordSource, names};

impl RecordSource {
    /// Handles the creation of a thread, whose id an earlier one may have had.
    pub(super) fn create(&mut self, id: u64, number: usize) {
        let (machine, identities) = (self.dump.machine, &mut self.info.identities);
        let thread = self.reused.created(identities, machine, Tid(id));
        if let Some(cpu) = self.dump.cpus.get_mut(number) {
            cpu.created = Some((thread, Vec::new()));
        }
    }

    /// Takes the name of a thread that is created from a record, or names the thread if the record is another one.
    pub(super) fn name_created(&mut self, record: &Record, number: usize) {
        let Some(cpu) = self.dump.cpus.get_mut(number) else {
            return;
        };
        if record.event == EventId::THREAD_NAME && record.is_item {
            if let Some((_, name)) = &mut cpu.created {
                self.dump.format.add_name(name, record.data);
            }
        } else if let Some(created) = cpu.created.take() {
            name(&mut self.info.identities, created);
        }
    }

    /// Names the threads whose creations were the last records of their processors.
    pub(super) fn name_last(&mut self) {
        let dumps = std::iter::once(&mut self.dump).chain(&mut self.others);
        for cpu in dumps.flat_map(|dump| &mut dump.cpus) {
            if let Some(created) = cpu.created.take() {
                name(&mut self.info.identities, created);
            }
        }
    }
}

/// Names a thread that was created.
fn name(identities: &mut Identities, (thread, name): (ThreadId, Vec<u8>)) {
    if !name.is_empty() {
        let id = identities.tid(thread).0;
        names::name(identities, thread, id, &String::from_utf8_lossy(&name));
    }
}
