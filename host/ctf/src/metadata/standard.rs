//! Standard headers and contexts for a model.
//!
//! They use the subset of CTF that every known reader supports: whole bytes, one clock, all facts that a packet can
//! state about itself.

use super::{ArrayClass, Base, ByteOrder, ClockId, IntegerClass, Role, StructClass};

/// A packet header: magic number, UUID of the trace, stream class.
#[must_use]
pub fn packet_header(order: ByteOrder) -> StructClass {
    let word = IntegerClass::unsigned(32, order);
    let mut uuid = ArrayClass::fixed(16, IntegerClass::unsigned(8, order));
    uuid.is_uuid = true;
    StructClass::new()
        .with("magic", word.base(Base::Hexadecimal).role(Role::Magic))
        .with("uuid", uuid)
        .with("stream_id", word.role(Role::StreamId))
}

/// A packet context: times, sizes, sequence number, discarded events. Append further fields of your packets, such as
/// [`cpu_id`].
#[must_use]
pub fn packet_context(order: ByteOrder, clock: ClockId) -> StructClass {
    let long = IntegerClass::unsigned(64, order);
    StructClass::new()
        .with(
            "timestamp_begin",
            long.clock(clock).role(Role::TimestampBegin),
        )
        .with("timestamp_end", long.clock(clock).role(Role::TimestampEnd))
        .with("content_size", long.role(Role::ContentSize))
        .with("packet_size", long.role(Role::PacketSize))
        .with("packet_seq_num", long.role(Role::PacketSeqNum))
        .with("events_discarded", long.role(Role::EventsDiscarded))
}

/// The class of a packet context's member `cpu_id`.
#[must_use]
pub fn cpu_id(order: ByteOrder) -> IntegerClass {
    IntegerClass::unsigned(32, order).role(Role::CpuId)
}

/// An event header: event class and time.
#[must_use]
pub fn event_header(order: ByteOrder, clock: ClockId) -> StructClass {
    StructClass::new()
        .with("id", IntegerClass::unsigned(16, order).role(Role::EventId))
        .with("timestamp", IntegerClass::unsigned(64, order).clock(clock))
}
