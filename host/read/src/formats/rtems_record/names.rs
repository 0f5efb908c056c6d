//! What threads are called.

use kymo_event::{Identities, SpaceId, ThreadId, Tid};

/// The name of the threads that run when no other does.
const IDLE: &str = "IDLE";

/// The thread of an object id, which has a name if it is a processor's idle thread.
///
/// The API of an object is in bits 24 to 26 of its id, its place among those of its kind in the lower 16: the threads of
/// the internal API are the idle ones, the first of processor 0 (`cpukit/include/rtems/score/object.h`).
pub(super) fn thread(identities: &mut Identities, space: SpaceId, id: u64) -> ThreadId {
    let thread = identities.thread(space, Tid(id));
    if is_internal(id) && identities.thread_name(thread).is_none() {
        name(identities, space, id, IDLE);
    }
    thread
}

/// Names a thread. Idle threads, which all have one name, are distinguished.
pub(super) fn name(identities: &mut Identities, space: SpaceId, id: u64, name: &str) {
    let thread = identities.thread(space, Tid(id));
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
