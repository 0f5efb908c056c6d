//! Fast path for consecutive function entries and exits of one thread, which are nearly all records of a function
//! trace.
//!
//! The general code reduces to a few loads and stores for such records. So they are handled in a loop of their own that
//! keeps all shared state in local variables. Any unusual record ends the loop and takes the general path. The rows are
//! the same.

use kymo_ctf::{ContextBytes, EventIter, Projected};
use kymo_event::{Addr, Cpu, RowKind, SpaceId, ThreadId, Time, Wanted};

use super::sink::Sink;

/// Kind of the records of a class, if they are entries or exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The first number is the function, the second one the call site, if there is one.
    Enter,
    /// The first number is the function, if there is one.
    Exit,
}

/// Common properties of the records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'c> {
    /// Event context of their stream.
    pub(super) context: &'c [u8],
    pub(super) cpu: Option<Cpu>,
    pub(super) thread: Option<ThreadId>,
    /// Address space of the functions.
    pub(super) space: SpaceId,
}

/// Takes records from the front of `events`, while they are entries or exits of cached functions in order of time.
/// `calls` has the kind of each class.
#[inline]
pub(super) fn take<'a>(
    events: &mut EventIter<'a>,
    numbers: &Projected<'a>,
    common: Common<'_>,
    sink: &mut Sink<'_>,
    calls: &[Option<Call>],
) {
    match sink.built {
        _ if sink.wanted < Wanted::Everything => {
            take_rows::<false>(events, numbers, common, sink, (calls, &[]));
        }
        // Classes whose details are wanted are not for this path.
        Some(built) => take_rows::<true>(events, numbers, common, sink, (calls, built)),
        None => {}
    }
}

/// [`take`]. `CHOSEN`: only of classes that are not `built`.
#[inline(never)]
fn take_rows<'a, const CHOSEN: bool>(
    events: &mut EventIter<'a>,
    numbers: &Projected<'a>,
    common: Common<'_>,
    sink: &mut Sink<'_>,
    (calls, built): (&[Option<Call>], &[bool]),
) {
    let (Some(mut last), Some(end)) = (sink.clock.last, sink.clock.end) else {
        return;
    };
    let Some(context) = ContextBytes::new(common.context) else {
        return;
    };
    let origin = sink.clock.origin;
    let place = sink.row(RowKind::Enter).at(common.cpu, common.thread);
    let known = sink.caches.known_functions(common.space);
    let mut run = sink.batch.run(&place);
    let mut taken = 0;
    for record in events.clone() {
        let Some(Some(call)) = calls.get(record.class_index()) else {
            break;
        };
        let class = record.class_index();
        if CHOSEN && built.get(class).copied().unwrap_or(true) {
            break;
        }
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
