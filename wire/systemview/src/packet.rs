//! All kinds of packets.

use core::fmt;

use crate::varint::Varints;

/// Bytes of a text. SystemView specifies no encoding; existing sources write ASCII and UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub &'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Byte order of a text's length from 255 on, which follows a byte 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextOrder {
    /// Low byte first, as in the sources of version 3.60.
    #[default]
    Little,
    /// High byte first.
    Big,
}

/// Content of the length field of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// The length.
    #[default]
    Bytes,
    /// The length; 127 takes two bytes (`SEGGER_SYSVIEW_SUPPORT_LONG_DATA`).
    Wide,
    /// The low byte of the id, an error of sources with `SEGGER_SYSVIEW_SUPPORT_LONG_DATA`. Payloads of 127 bytes and
    /// more have their length.
    Id,
}

/// Content of the payload of an event that a description names, if the stream does not contain its length
/// ([`Length::Id`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Parameters: numbers and texts.
    Parameters {
        /// Number of parameters.
        count: u32,
        /// Mask of the parameters that are texts: bit 0 is the first. Parameters from the 32nd on are numbers.
        texts: u32,
    },
    /// A number of bytes.
    Bytes(usize),
}

impl Payload {
    /// A payload of `count` numbers.
    pub const fn numbers(count: u32) -> Self {
        Self::Parameters { count, texts: 0 }
    }
}

impl Default for Payload {
    /// Nothing.
    fn default() -> Self {
        Self::numbers(0)
    }
}

/// Variant of the encoding. It is a property of a target, not of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Encoding of the length of payloads.
    pub length: Length,
    /// Encoding of the length of long texts.
    pub text: TextOrder,
    /// Whether an id of 127 takes two bytes (`SEGGER_SYSVIEW_SUPPORT_LONG_ID`).
    pub wide_id: bool,
    /// Whether a packet is of the second core, if ids have a bit for it: bit 6 of the last byte of the id (ESP-IDF with
    /// two cores over JTAG, `SEGGER_RTT_esp.c`). `None` if they have none. Otherwise ids are below 64, or 128 and more.
    pub second_core: Option<bool>,
}

/// Rule by which a target shortens addresses to ids of tasks, timers, resources and heap blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Base address, subtracted first.
    pub base: u32,
    /// Number of low bits that are then shifted out.
    pub shift: u32,
}

impl Ids {
    /// Returns the address for an id.
    pub fn address(self, id: u32) -> u32 {
        self.size(id).wrapping_add(self.base)
    }

    /// Returns the id for an address.
    pub fn id(self, address: u32) -> u32 {
        let offset = address.wrapping_sub(self.base);
        offset.checked_shr(self.shift).unwrap_or(0)
    }

    /// Returns the size in bytes for a shortened size.
    pub fn size(self, size: u32) -> u32 {
        size.checked_shl(self.shift).unwrap_or(0)
    }
}

/// One packet without its timestamp. Ids of tasks, timers, resources and heap blocks are shortened addresses ([`Ids`]).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Packet<'a> {
    /// 0: nothing.
    Nop,
    /// 1: packets could not be stored. Targets send a running total since the start, whatever the header of
    /// SystemView's sources says.
    Overflow {
        /// Total number of dropped packets so far.
        total: u32,
    },
    /// 2: an interrupt handler begins.
    IsrEnter {
        /// Number of the exception or interrupt.
        irq: u32,
    },
    /// 3: an interrupt handler ends.
    IsrExit,
    /// 4: a task gets the processor.
    TaskStartExec {
        /// The task.
        task: u32,
    },
    /// 5: the running task ends.
    TaskStopExec,
    /// 6: a task is ready to run.
    TaskStartReady {
        /// The task.
        task: u32,
    },
    /// 7: a task is blocked.
    TaskStopReady {
        /// The task.
        task: u32,
        /// The cause; the operating system's own number.
        cause: u32,
    },
    /// 8: a task was created.
    TaskCreate {
        /// The task.
        task: u32,
    },
    /// 9: a task's description.
    TaskInfo {
        /// The task.
        task: u32,
        /// Its priority.
        priority: u32,
        /// Its name, cut at 32 bytes by targets.
        name: Text<'a>,
    },
    /// 10: recording begins.
    TraceStart,
    /// 11: recording ends.
    TraceStop,
    /// 12: the time in cycles, low 32 bits.
    SystemTimeCycles {
        /// Cycles.
        cycles: u32,
    },
    /// 13: the time in microseconds (Zephyr: in cycles).
    SystemTimeUs {
        /// Microseconds.
        us: u64,
    },
    /// 14: a description of the system ([`crate::describe::system`]).
    SystemDescription {
        /// `key=value`, comma, `key=value` ...
        text: Text<'a>,
    },
    /// 15: a marker or user event starts.
    MarkStart {
        /// Its id.
        id: u32,
    },
    /// 16: a marker or user event ends.
    MarkStop {
        /// Its id.
        id: u32,
    },
    /// 17: no task runs.
    Idle,
    /// 18: an interrupt handler ends in the scheduler.
    IsrToScheduler,
    /// 19: a software timer's callback begins.
    TimerEnter {
        /// The timer.
        timer: u32,
    },
    /// 20: a software timer's callback ends.
    TimerExit,
    /// 21: a task's stack.
    StackInfo {
        /// The task.
        task: u32,
        /// Its lowest address.
        base: u32,
        /// Its size in bytes.
        size: u32,
        /// Maximum usage in bytes so far, 0 if unknown. Targets before 3.x send another value here.
        usage: u32,
    },
    /// 22: a module's description ([`crate::describe::module`]).
    ModuleDescription {
        /// Its number.
        module: u32,
        /// The id of its first event.
        offset: u32,
        /// `M=Name, 0 event a=%u, 1 other ...`.
        text: Text<'a>,
    },
    /// 23: a sample of a registered value.
    DataSample {
        /// The value's id.
        id: u32,
        /// Its bits; its registration defines their type, usually a float.
        value: u32,
    },
    /// 24: the target's units of time and ids.
    Init {
        /// Frequency of timestamps in ticks per second.
        frequency: u32,
        /// Frequency of the processor in cycles per second.
        cpu_frequency: u32,
        /// Rule by which ids are shortened.
        ids: Ids,
    },
    /// 25: the name of a resource.
    NameResource {
        /// Its id.
        resource: u32,
        /// Its name.
        name: Text<'a>,
    },
    /// 26: `printf` whose format the host applies, or a text.
    Print {
        /// Format, or text.
        format: Text<'a>,
        /// Level in bits 0 to 3 (0 log, 1 warning, 2 error), bit 6: continues the text before.
        options: u32,
        /// Number of arguments, according to the target.
        count: u32,
        /// The arguments, as varints ([`Packet::values`]).
        arguments: &'a [u8],
    },
    /// 27: number of modules.
    ModuleCount {
        /// The number.
        count: u32,
    },
    /// 28: an operating system function returns.
    EndCall {
        /// The id of its event.
        id: u32,
        /// The return value, if it was recorded.
        value: Option<u32>,
    },
    /// 29: a task was deleted.
    TaskTerminate {
        /// The task.
        task: u32,
    },
    /// 31, 0: a marker within its interval.
    Mark {
        /// Its id.
        id: u32,
    },
    /// 31, 1: the name of a marker.
    NameMarker {
        /// Its id.
        id: u32,
        /// Its name.
        name: Text<'a>,
    },
    /// 31, 2: a heap.
    HeapDefine {
        /// Its id.
        heap: u32,
        /// Address of its memory.
        base: u32,
        /// Its size, shortened ([`Ids::size`]).
        size: u32,
        /// Bytes of bookkeeping per block.
        metadata: u32,
    },
    /// 31, 3 and 4: a block is allocated.
    HeapAlloc {
        /// The heap.
        heap: u32,
        /// The block.
        block: u32,
        /// Its size, shortened ([`Ids::size`]).
        size: u32,
        /// The owner, if it was recorded.
        tag: Option<u32>,
    },
    /// 31, 5: a block is freed.
    HeapFree {
        /// The heap.
        heap: u32,
        /// The block.
        block: u32,
    },
    /// 31, 6: a value whose samples follow.
    RegisterData {
        /// Its id.
        id: u32,
        /// Its name.
        name: Text<'a>,
        /// Type, offset, range, scaling as far as the target sends them: varints, and a text for the unit.
        rest: &'a [u8],
    },
    /// 31: another extended packet.
    Extended {
        /// Its extended id.
        id: u32,
        /// The bytes after the id.
        payload: &'a [u8],
    },
    /// 30, and 32 and more: an event that a description names: a call of an operating system function (32 to 511) or a
    /// module's event.
    Event {
        /// Its id.
        id: u32,
        /// Its fields, as varints and texts.
        payload: &'a [u8],
    },
}

/// Packets with ids below this one have no length.
pub(crate) const FIRST_WITH_LENGTH: u32 = 24;

/// First id of operating system calls.
pub const FIRST_CALL: u32 = 32;

/// First id of modules' events.
pub const FIRST_OF_MODULES: u32 = 512;

impl<'a> Packet<'a> {
    /// Returns the packet's id.
    pub const fn id(&self) -> u32 {
        match self {
            Self::Nop => 0,
            Self::Overflow { .. } => 1,
            Self::IsrEnter { .. } => 2,
            Self::IsrExit => 3,
            Self::TaskStartExec { .. } => 4,
            Self::TaskStopExec => 5,
            Self::TaskStartReady { .. } => 6,
            Self::TaskStopReady { .. } => 7,
            Self::TaskCreate { .. } => 8,
            Self::TaskInfo { .. } => 9,
            Self::TraceStart => 10,
            Self::TraceStop => 11,
            Self::SystemTimeCycles { .. } => 12,
            Self::SystemTimeUs { .. } => 13,
            Self::SystemDescription { .. } => 14,
            Self::MarkStart { .. } => 15,
            Self::MarkStop { .. } => 16,
            Self::Idle => 17,
            Self::IsrToScheduler => 18,
            Self::TimerEnter { .. } => 19,
            Self::TimerExit => 20,
            Self::StackInfo { .. } => 21,
            Self::ModuleDescription { .. } => 22,
            Self::DataSample { .. } => 23,
            Self::Init { .. } => 24,
            Self::NameResource { .. } => 25,
            Self::Print { .. } => 26,
            Self::ModuleCount { .. } => 27,
            Self::EndCall { .. } => 28,
            Self::TaskTerminate { .. } => 29,
            Self::Mark { .. }
            | Self::NameMarker { .. }
            | Self::HeapDefine { .. }
            | Self::HeapAlloc { .. }
            | Self::HeapFree { .. }
            | Self::RegisterData { .. }
            | Self::Extended { .. } => 31,
            Self::Event { id, .. } => *id,
        }
    }

    /// Returns the packet's name; empty for events that a description names.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Nop => "nop",
            Self::Overflow { .. } => "overflow",
            Self::IsrEnter { .. } => "isr_enter",
            Self::IsrExit => "isr_exit",
            Self::TaskStartExec { .. } => "task_start_exec",
            Self::TaskStopExec => "task_stop_exec",
            Self::TaskStartReady { .. } => "task_start_ready",
            Self::TaskStopReady { .. } => "task_stop_ready",
            Self::TaskCreate { .. } => "task_create",
            Self::TaskInfo { .. } => "task_info",
            Self::TraceStart => "trace_start",
            Self::TraceStop => "trace_stop",
            Self::SystemTimeCycles { .. } => "systime_cycles",
            Self::SystemTimeUs { .. } => "systime_us",
            Self::SystemDescription { .. } => "sysdesc",
            Self::MarkStart { .. } => "mark_start",
            Self::MarkStop { .. } => "mark_stop",
            Self::Idle => "idle",
            Self::IsrToScheduler => "isr_to_scheduler",
            Self::TimerEnter { .. } => "timer_enter",
            Self::TimerExit => "timer_exit",
            Self::StackInfo { .. } => "stack_info",
            Self::ModuleDescription { .. } => "moduledesc",
            Self::DataSample { .. } => "data_sample",
            Self::Init { .. } => "init",
            Self::NameResource { .. } => "name_resource",
            Self::Print { .. } => "print",
            Self::ModuleCount { .. } => "nummodules",
            Self::EndCall { .. } => "end_call",
            Self::TaskTerminate { .. } => "task_terminate",
            Self::Mark { .. } => "mark",
            Self::NameMarker { .. } => "name_marker",
            Self::HeapDefine { .. } => "heap_define",
            Self::HeapAlloc { tag: None, .. } => "heap_alloc",
            Self::HeapAlloc { tag: Some(_), .. } => "heap_alloc_ex",
            Self::HeapFree { .. } => "heap_free",
            Self::RegisterData { .. } => "register_data",
            Self::Extended { .. } => "extended",
            Self::Event { .. } => "",
        }
    }

    /// Returns the numbers of the payload, or the arguments of a print.
    pub const fn values(&self) -> Varints<'a> {
        match self {
            Self::Print { arguments, .. } => Varints::new(arguments),
            Self::Event { payload, .. } | Self::Extended { payload, .. } => Varints::new(payload),
            _ => Varints::new(&[]),
        }
    }

    /// Returns whether a target with several cores sends the packet in each core's stream, because it describes the
    /// whole recording. (ESP32 targets do so, with equal timestamps.)
    pub const fn is_common(&self) -> bool {
        matches!(
            self,
            Self::Overflow { .. }
                | Self::TaskStartReady { .. }
                | Self::TaskInfo { .. }
                | Self::TraceStart
                | Self::TraceStop
                | Self::SystemTimeCycles { .. }
                | Self::SystemTimeUs { .. }
                | Self::SystemDescription { .. }
                | Self::StackInfo { .. }
                | Self::ModuleDescription { .. }
                | Self::Init { .. }
                | Self::NameResource { .. }
                | Self::ModuleCount { .. }
                | Self::NameMarker { .. }
                | Self::HeapDefine { .. }
                | Self::RegisterData { .. }
        )
    }
}
