//! The event model: what every source of a trace becomes, and all that an analysis or an export
//! needs to know.
//!
//! A source (a Kymo target, a CTF trace, another tool's format) gives a [`TraceInfo`] and then
//! [`Event`]s in the order of time. What an event *means* is its [`EventKind`]; what it was *called*
//! in the source and which fields it had are kept beside it, so that a listing can show the record
//! as it stands. Losses are events too ([`Gap`]): they have a place in time and a size, and an
//! analysis that ignores them has to do so on purpose.
//!
//! This crate depends on nothing, so that anything can depend on it.
#![forbid(unsafe_code)]

mod batch;
mod clock_check;
mod cost;
mod digits;
mod event;
mod field;
mod filter;
mod identity;
mod quantity;
mod trace;
mod units;
mod wall;

pub use batch::{Batch, EventRef, Row, RowKind, Run, Wanted};
pub use clock_check::{ClockCheck, ClockReference, ClockVerdict};
pub use cost::{Recorded, RecordingCost};
pub use digits::{push_number, push_three, three};
pub use event::{CallEnd, Caller, ClockGap, Event, EventKind, Gap, RecordingCause, WholeCall};
pub use field::{Field, Value, push_fields};
pub use filter::{
    Bound, Choice, Condition, ConditionError, Filter, Operand, Pattern, ProcessChoice, Relation,
    Subject, ThreadChoice, Unmet,
};
pub use identity::{
    Beyond, Function, Identities, Interrupt, InterruptKind, Known, Mapping, News, Numbers, Space,
    SpaceKind, Stack, Thread,
};
pub use quantity::Quantity;
pub use trace::{ClockCorrection, Cut, Damage, StreamInfo, TraceCounts, TraceInfo};
pub use units::{
    Addr, Cpu, Duration, FunctionId, InterruptId, Irq, Picoseconds, SpaceId, StreamId, ThreadId,
    Ticks, Tid, Time, TimeUnit,
};
pub use wall::{Date, Moment, NoDate, WallClock};
