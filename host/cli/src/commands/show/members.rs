//! Members that several objects of `kymo show --format json` share.

use std::rc::Rc;

use kymo_analysis::calls::{Callee, End, How};
use kymo_analysis::titles;
use kymo_event::Identities;
use kymo_export::json::Object;

use crate::names::Names;

pub(super) fn callee(
    object: &mut Object<'_>,
    end: &End,
    identities: &Identities,
    names: &Names<'_>,
) {
    let (name, address): (Option<Rc<str>>, _) = match end.callee {
        Callee::Function(id) => {
            let function = identities.function(id);
            let address = function.and_then(|function| function.address);
            (
                Some(names.function(identities, id)),
                address.map(|address| address.0),
            )
        }
        Callee::Interrupt(id) => (Some(titles::interrupt(identities, id).into()), None),
        Callee::Unknown => (None, None),
    };
    object.member("function", name.as_deref());
    object.member("address", address);
}

/// Reason why a call has no exit or no begin. Only `longjmp` is recorded in the trace; the others are inferred.
pub(super) fn reason(how: How) -> Option<&'static str> {
    match how {
        // The end of recording was intended, so it is no repair.
        How::Returned | How::RecordingOff => None,
        How::Repaired(repair) => Some(repair.name()),
        How::Jumped => Some("longjmp"),
        How::NoEnd => Some("not-recorded"),
        How::Open => Some("open"),
        How::Orphan => Some("orphan"),
    }
}
