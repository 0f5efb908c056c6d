//! Event model shared by all trace formats, and all that an analysis or an export needs to know.
//!
//! A source (a Kymo target, a CTF trace, another tool's format) supplies a [`TraceInfo`] and then [`Event`]s ordered by
//! time. [`EventKind`] is an event's meaning; the event also keeps its name and fields from the source, so that a
//! listing can show the original record. Losses are events too ([`Gap`]): they have a time and a size, and an analysis
//! can ignore them only deliberately.
//!
//! This crate has no dependencies, so that any crate can depend on it.
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
