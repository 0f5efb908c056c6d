//! Threads and their names.

use kymo_event::{Identities, SpaceId, ThreadId, Tid};

/// Name of the idle threads.
const IDLE: &str = "IDLE";

/// Returns the thread of an object id, and names it if it is a processor's idle thread.
///
/// Bits 24 to 26 of an object id are the API, the lower 16 bits the index among objects of its class. The threads of
/// the internal API are the idle threads, the first of processor 0 (`cpukit/include/rtems/score/object.h`).
pub(super) fn thread(identities: &mut Identities, space: SpaceId, id: u64) -> ThreadId {
    let thread = identities.thread(space, Tid(id));
    if is_internal(id) && identities.thread_name(thread).is_none() {
        name(identities, thread, id, IDLE);
    }
    thread
}

/// Names a thread. Idle threads, which all have the same name, get the processor's number.
pub(super) fn name(identities: &mut Identities, thread: ThreadId, id: u64, name: &str) {
    match is_internal(id) && name == IDLE {
        true => {
            let processor = (id & 0xFFFF).saturating_sub(1);
            identities.name_thread(thread, &format!("{IDLE}/{processor}"));
        }
        false => identities.name_thread(thread, name),
    }
}

const fn is_internal(id: u64) -> bool {
    id >> 24 & 7 == 1
}
