//! What the metadata describes, as other readers understand it.

mod babeltrace;
