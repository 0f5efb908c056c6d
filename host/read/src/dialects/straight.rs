//! Entries and exits of functions that follow each other in one thread: nearly all records of a trace of functions.
//!
//! What the dialects do for any record comes down to a few loads and stores for such: so they are taken in a loop that
//! knows nothing else, with all that they share at hand. Whatever is unusual about a record ends it, and takes the general
//! way; the rows are the same.

use kymo_ctf::{EventIter, Projected};
use kymo_event::{Addr, Cpu, RowKind, SpaceId, ThreadId, Time, Wanted};

use super::sink::Sink;

/// What the records of a class are, if they are entries or exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The first number is the function, the second one the call site, if there is one.
    Enter,
    /// The first number is the function, if there is one.
    Exit,
}

/// What the records have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'c> {
    /// Their stream's event context.
    pub(super) context: &'c [u8],
    pub(super) cpu: Option<Cpu>,
    pub(super) thread: Option<ThreadId>,
    /// Where the addresses of functions mean something.
    pub(super) space: SpaceId,
}

/// Takes records at the front of `events`, as far as they are such calls of functions that were met lately, in the order of
/// time. `call` tells what those of a class are.
#[inline(never)]
pub(super) fn take<'a>(
    events: &mut EventIter<'a>,
    numbers: &Projected<'a>,
    common: Common<'_>,
    sink: &mut Sink<'_>,
    call: impl Fn(usize) -> Option<Call>,
) {
    let (Some(mut last), Some(end)) = (sink.clock.last, sink.clock.end) else {
        return;
    };
    if sink.wanted == Wanted::Everything {
        return;
    }
    let origin = sink.clock.origin;
    let row = sink.row(RowKind::Enter).at(common.cpu, common.thread);
    let mut rest = events.clone();
    while let Some(record) = rest.next() {
        let Some(call) = call(record.class_index()) else {
            break;
        };
        let time = record.time_ns().and_then(|ns| ns.checked_sub(origin));
        let Some(time) = time.map(Time).filter(|time| *time >= last) else {
            break;
        };
        if !numbers.has_context(&record, common.context) {
            break;
        }
        let Some(([item, site], known)) = numbers.plain::<2>(&record) else {
            break;
        };
        let function = match known & 1 {
            0 => None,
            _ => match sink.known_function(common.space, item) {
                None => break,
                known => known,
            },
        };
        let mut row = row.function(function);
        row.time = time;
        match call {
            Call::Enter if function.is_none() => break,
            Call::Enter => row = row.word(Addr(site)),
            Call::Exit => row.kind = RowKind::Exit,
        }
        sink.batch.push(row);
        last = time;
        *events = rest.clone();
    }
    sink.clock.last = Some(last);
    sink.clock.end = Some(end.max(last));
}
