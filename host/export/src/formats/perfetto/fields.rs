//! The numbers of the fields that we write, by message, named as Perfetto's `.proto` files name
//! them (`protos/perfetto/trace/`), so that a number can be looked up there and a name here.

/// `trace.proto`.
pub(super) mod trace {
    pub const PACKET: u32 = 1;
}

/// `trace_packet.proto`.
pub(super) mod trace_packet {
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const FIRST_PACKET_ON_SEQUENCE: u32 = 87;
    pub const GENERIC_KERNEL_TASK_STATE_EVENT: u32 = 117;

    /// `SequenceFlags`: what was interned before is void from this packet on.
    pub const SEQ_INCREMENTAL_STATE_CLEARED: u64 = 1;
    /// `SequenceFlags`: the packet means nothing without what was interned before.
    pub const SEQ_NEEDS_INCREMENTAL_STATE: u64 = 2;

    /// `DataLossReason`: something is missing before this packet.
    pub const DATA_LOSS_PRESENT: u64 = 1;
    /// `DataLossReason`: because newer data took its place.
    pub const DATA_LOSS_OVERWRITE: u64 = 64;
    /// `DataLossReason`: because there was no room for it.
    pub const DATA_LOSS_SMB_FULL: u64 = 256;
}

/// `trace_packet_defaults.proto`.
pub(super) mod trace_packet_defaults {
    pub const TRACK_EVENT_DEFAULTS: u32 = 11;
    pub const TIMESTAMP_CLOCK_ID: u32 = 58;
}

/// `track_event/track_event.proto`: `TrackEventDefaults`.
pub(super) mod track_event_defaults {
    pub const TRACK_UUID: u32 = 11;
}

/// `clock_snapshot.proto`.
pub(super) mod clock_snapshot {
    pub const CLOCKS: u32 = 1;
}

/// `clock_snapshot.proto`: `ClockSnapshot.Clock`.
pub(super) mod clock {
    pub const CLOCK_ID: u32 = 1;
    pub const TIMESTAMP: u32 = 2;
    pub const IS_INCREMENTAL: u32 = 3;

    /// `builtin_clock.proto`: the clock that a trace shows by default.
    pub const BUILTIN_CLOCK_BOOTTIME: u64 = 6;
    /// The first of the numbers (64 to 127) for clocks that a sequence has for itself.
    pub const FIRST_OF_SEQUENCE: u64 = 64;
}

/// `track_event/track_descriptor.proto`.
pub(super) mod track_descriptor {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT_UUID: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const DESCRIPTION: u32 = 14;
    pub const SIBLING_MERGE_BEHAVIOR: u32 = 15;

    /// `SiblingMergeBehavior`: tracks of one name stay two.
    pub const SIBLING_MERGE_BEHAVIOR_NONE: u64 = 2;
}

/// `track_event/process_descriptor.proto`.
pub(super) mod process_descriptor {
    pub const PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
}

/// `track_event/thread_descriptor.proto`.
pub(super) mod thread_descriptor {
    pub const PID: u32 = 1;
    pub const TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
}

/// `interned_data/interned_data.proto`.
pub(super) mod interned_data {
    pub const EVENT_NAMES: u32 = 2;
    pub const SOURCE_LOCATIONS: u32 = 4;
}

/// `track_event/track_event.proto`: `EventName`.
pub(super) mod event_name {
    pub const IID: u32 = 1;
    pub const NAME: u32 = 2;
}

/// `track_event/source_location.proto`.
pub(super) mod source_location {
    pub const IID: u32 = 1;
    pub const FILE_NAME: u32 = 2;
    pub const FUNCTION_NAME: u32 = 3;
    pub const LINE_NUMBER: u32 = 4;
}

/// `track_event/track_event.proto`.
pub(super) mod track_event {
    pub const DEBUG_ANNOTATIONS: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const CATEGORIES: u32 = 22;
    pub const NAME: u32 = 23;
    pub const SOURCE_LOCATION_IID: u32 = 34;
    pub const COUNTER_VALUE: u32 = 30;
    pub const DOUBLE_COUNTER_VALUE: u32 = 44;

    /// `Type`: a slice begins.
    pub const TYPE_SLICE_BEGIN: u64 = 1;
    /// `Type`: the innermost slice of the track ends.
    pub const TYPE_SLICE_END: u64 = 2;
    /// `Type`: something of no length.
    pub const TYPE_INSTANT: u64 = 3;
    /// `Type`: the track's counter has a new value.
    pub const TYPE_COUNTER: u64 = 4;
}

/// `track_event/debug_annotation.proto`.
pub(super) mod debug_annotation {
    pub const BOOL_VALUE: u32 = 2;
    pub const UINT_VALUE: u32 = 3;
    pub const INT_VALUE: u32 = 4;
    pub const STRING_VALUE: u32 = 6;
    pub const POINTER_VALUE: u32 = 7;
    pub const NAME: u32 = 10;
}

/// `generic_kernel/generic_task.proto`: `GenericKernelTaskStateEvent`.
pub(super) mod generic_kernel_task_state_event {
    pub const CPU: u32 = 1;
    pub const COMM: u32 = 2;
    pub const TID: u32 = 3;
    pub const STATE: u32 = 4;

    /// `TaskStateEnum`: has a processor.
    pub const TASK_STATE_RUNNING: u64 = 3;
    /// `TaskStateEnum`: has none, without a claim that it wants one (`RUNNABLE`) or waits for
    /// something (the two sleeps).
    pub const TASK_STATE_STOPPED: u64 = 6;
}
