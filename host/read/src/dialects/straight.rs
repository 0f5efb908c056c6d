//! Entries and exits of functions that follow each other in one thread: nearly all records of a trace of functions.
//!
//! What the dialects do for any record comes down to a few loads and stores for such: so they are taken in a loop that
//! knows nothing else, with all that they share at hand. Whatever is unusual about a record ends it, and takes the general
//! way; the rows are the same.

use kymo_ctf::{ContextBytes, EventIter, Projected};
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
/// time. `calls` says what those of each class are.
#[inline(never)]
pub(super) fn take<'a>(
    events: &mut EventIter<'a>,
    numbers: &Projected<'a>,
    common: Common<'_>,
    sink: &mut Sink<'_>,
    calls: &[Option<Call>],
) {
    let (Some(mut last), Some(end)) = (sink.clock.last, sink.clock.end) else {
        return;
    };
    let Some(context) = ContextBytes::new(common.context) else {
        return;
    };
    if sink.wanted >= Wanted::Everything {
        return;
    }
    let origin = sink.clock.origin;
    let place = sink.row(RowKind::Enter).at(common.cpu, common.thread);
    let known = sink.caches.known_functions(common.space);
    let mut run = sink.batch.run(&place);
    let mut taken = 0;
    for record in events.clone() {
        let Some(Some(call)) = calls.get(record.class_index()) else {
            break;
        };
        let time = record.time_ns().and_then(|ns| ns.checked_sub(origin));
        let Some(time) = time.map(Time).filter(|time| *time >= last) else {
            break;
        };
        let Some(([item, site], found)) = numbers.plain(&record, &context) else {
            break;
        };
        let function = match found & 1 {
            0 => None,
            _ => match known.find(item) {
                None => break,
                known => known,
            },
        };
        match (call, function) {
            (Call::Enter, None) => break,
            (Call::Enter, Some(function)) => run.enter_from(function, Addr(site), time),
            (Call::Exit, function) => run.exit_of(function, time),
        }
        last = time;
        taken += 1;
    }
    run.end();
    if let Some(before) = usize::checked_sub(taken, 1) {
        events.nth(before);
    }
    sink.clock.last = Some(last);
    sink.clock.end = Some(end.max(last));
}
