//! Trace readers: decode bytes to events with a plan.

pub(crate) mod bits;
mod covered;
mod cursor;
mod event;
mod expected;
mod file;
mod join;
mod messages;
mod parallel;
mod pool;
mod projection;
mod ring;
pub(crate) mod run_program;
mod stream;
mod trace;
mod value;
mod walk;
mod window;

pub use covered::Covered;
pub use event::{Event, EventIter, Events, Gap, GapKind, Packet, PacketInfo, Visitor};
pub use expected::Absence;
pub use messages::{Messages, Origin};
pub use parallel::{Parallel, Reported};
pub use projection::{ContextBytes, Numbers, Projected, Projection};

pub use stream::{Message, Resume, Run, Skipped, StreamReader};
pub use trace::{MAX_LEVELS, Trace};
pub use value::Value;
pub use walk::Container;
