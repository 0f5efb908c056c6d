//! Records before a window that are needed to understand it, where raw records are copied: those that opened the
//! calls and interrupts that are open at its begin.

use std::collections::{HashMap, HashSet};

use kymo_analysis::calls::{self, CallId, Calls, Step};
use kymo_event::{
    Batch, Cpu, EventKind, EventRef, InterruptId, Row, RowKind, SpaceId, StreamId, ThreadId, Time,
    TraceInfo,
};
use kymo_read::Source;

/// A record, identified by its stream and its index in the stream.
type Place = (StreamId, u64);

/// The records before a window that are needed.
#[derive(Debug, Default)]
pub struct Before {
    needed: HashSet<Place>,
    /// [`Cut::hidden_calls`](kymo_event::Cut).
    pub hidden_calls: Option<u64>,
}

impl Before {
    /// Whether a record is needed.
    pub fn has(&self, stream: StreamId, number: u64) -> bool {
        self.needed.contains(&(stream, number))
    }

    /// Reads a trace up to `begin`, the begin of a window.
    pub fn find(source: &mut dyn Source, begin: Time) -> Self {
        let mut calls = Calls::new(source.info(), calls::Options::default());
        let (mut batch, mut finder) = (Batch::default(), Finder::default());
        // Read errors are reported when the trace itself is read.
        while let Ok(true) = source.fill(&mut batch) {
            let info = source.info();
            calls.learn(info);
            for event in batch.iter() {
                let stream = info.stream(event.row.stream);
                if stream.is_some_and(|stream| stream.timeless) {
                    continue;
                }
                if event.row.time >= begin {
                    return finder.needed(&calls);
                }
                finder.take(event, info, &mut calls);
            }
        }
        finder.needed(&calls)
    }
}

/// Tracks the records that opened the current calls.
#[derive(Default)]
struct Finder {
    /// The number of records in each stream so far.
    records: HashMap<StreamId, u64>,
    /// The records of open calls and interrupts, each with the switch that gave their thread the processor.
    open: HashMap<CallId, (Place, Option<Place>)>,
    /// The last switch of each processor.
    switches: HashMap<(SpaceId, Option<Cpu>), Place>,
    /// The latest records of names.
    names: HashMap<Named, Place>,
    /// The names in the next record.
    reported: Vec<Named>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Named {
    Thread(ThreadId),
    Interrupt(InterruptId),
}

impl Finder {
    fn take(&mut self, event: EventRef<'_>, info: &TraceInfo, calls: &mut Calls) {
        let row: &Row = event.row;
        let records = self.records.entry(row.stream).or_default();
        let place = (row.stream, *records);
        *records += u64::from(row.record);
        match event.event.map(|event| &event.kind) {
            Some(EventKind::ThreadName { thread, .. }) => {
                self.reported.push(Named::Thread(*thread))
            }
            Some(EventKind::IsrName { irq, .. }) => self.reported.push(Named::Interrupt(*irq)),
            _ => {}
        }
        if row.record {
            // Without its record, a call that has ended would seem to be open.
            let is_alone = matches!(row.kind, RowKind::Other | RowKind::Rare);
            let reported = self.reported.drain(..).filter(|_| is_alone);
            self.names.extend(reported.map(|named| (named, place)));
        }
        let stream = info.stream(row.stream);
        let machine = stream.map(|stream| stream.machine).unwrap_or_default();
        let cpu = row.cpu().or(stream.and_then(|stream| stream.cpu));
        if matches!(row.kind, RowKind::SwitchedIn | RowKind::SwitchedOut) {
            self.switches.insert((machine, cpu), place);
        }
        let switch = self.switches.get(&(machine, cpu)).copied();
        let open = &mut self.open;
        calls.push(event, &mut |step| match step {
            Step::Begin(begin) => {
                open.insert(begin.call, (place, switch));
            }
            Step::End(end) => {
                open.remove(&end.call);
            }
            _ => {}
        });
    }

    fn needed(self, calls: &Calls) -> Before {
        let open = self.open.into_values();
        let open = open
            .flat_map(|(begin, switch)| [Some(begin), switch])
            .flatten();
        let rest = self.switches.into_values().chain(self.names.into_values());
        Before {
            needed: open.chain(rest).collect(),
            hidden_calls: calls.hidden_calls(),
        }
    }
}
