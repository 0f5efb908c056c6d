//! Machines that the traces of a directory are of.

use std::collections::HashMap;

use kymo_ctf::Trace;
use kymo_ctf::metadata::Uuid;
use kymo_event::{Identities, Space, SpaceId, StreamInfo, Time};

use crate::dialects::{Dialect, Spaces, env_text};

/// Machines of the traces, by the id of their clock and of the recording session. Two sessions follow each other, so
/// calls that are open in one of them are not open in the other.
#[derive(Default)]
pub(super) struct Machines(HashMap<(Uuid, Vec<String>), SpaceId>);

/// Environment fields that distinguish LTTng's sessions.
const OF_SESSION: [&str; 2] = ["trace_name", "trace_creation_datetime"];

impl Machines {
    /// Returns the namespaces of a trace.
    pub(super) fn spaces(&mut self, trace: &Trace, identities: &mut Identities) -> Spaces {
        let code = identities.add_space(Space {
            name: trace.name().to_owned(),
            ..Space::default()
        });
        // A kernel and its processes use one clock, whose id is that of the machine's boot (LTTng).
        let mut clocks = trace.metadata().clocks.iter();
        let clock = clocks.find_map(|clock| clock.uuid);
        let machine = match clock {
            Some(clock) => {
                let session = OF_SESSION.map(|name| env_text(trace.metadata(), name).unwrap_or(""));
                let session = session.map(str::to_owned).to_vec();
                *self.0.entry((clock, session)).or_insert(code)
            }
            None => code,
        };
        Spaces { code, machine }
    }
}

/// Determines for the streams of a trace that record thread switches the time that they cover
/// ([`StreamInfo::switches`]), if other streams of the machine record none. `first` is the index of the first of them
/// in `streams`; `origin` is the time 0 of the source.
pub(super) fn cover_switches(
    trace: &Trace,
    dialect: &Dialect,
    first: usize,
    origin: i64,
    streams: &mut [StreamInfo],
) {
    let count = trace.stream_names().len();
    let machine = streams.get(first).map(|stream| stream.machine);
    let is_of_machine = |stream: &StreamInfo| Some(stream.machine) == machine;
    let others = streams.iter().enumerate().filter(|(index, stream)| {
        is_of_machine(stream) && !(first..first.saturating_add(count)).contains(index)
    });
    if others.count() == 0 && trace.metadata().streams.len() < 2 {
        return;
    }
    for (index, stream) in streams.iter_mut().skip(first).take(count).enumerate() {
        let covered = trace.covered(index);
        let covered = covered.filter(|it| dialect.class_tells_switches(it.stream_class));
        let time = |ns: i64| Time(ns.saturating_sub(origin));
        stream.switches = covered.map(|it| (time(it.begin_ns), time(it.end_ns)));
    }
}
