//! Every kind of packet.

use core::fmt;

use crate::varint::Varints;

/// Bytes of text. SystemView says no encoding; sources in use write ASCII and UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<'a>(pub &'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// How a length from 255 on is written in front of a text, behind a byte 255.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextOrder {
    /// Low byte first, as the sources of version 3.60 do.
    #[default]
    Little,
    /// High byte first.
    Big,
}

/// What stands in the place of a payload's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// The length.
    #[default]
    Bytes,
    /// The length; 127 takes two bytes (`SEGGER_SYSVIEW_SUPPORT_LONG_DATA`).
    Wide,
    /// The low byte of the id, an error of sources with `SEGGER_SYSVIEW_SUPPORT_LONG_DATA`. Payloads of 127 bytes
    /// and more have their length.
    Id,
}

/// How a target writes what can be written in several ways. It belongs to a target, not to a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// The length of payloads.
    pub length: Length,
    /// Lengths of long texts.
    pub text: TextOrder,
    /// An id of 127 takes two bytes (`SEGGER_SYSVIEW_SUPPORT_LONG_ID`).
    pub wide_id: bool,
    /// Whether a packet is of the second core, where ids have a bit that tells: bit 6 of the last byte of the id (ESP-IDF
    /// with two cores over JTAG, `SEGGER_RTT_esp.c`). `None` if they have none. Ids are below 64 then, or 128 and more.
    pub second_core: Option<bool>,
}

/// How a target shortens addresses to ids of tasks, timers, resources and heap blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Subtracted first.
    pub base: u32,
    /// Bits that are then shifted out.
    pub shift: u32,
}

impl Ids {
    /// The address that an id stands for.
    pub fn address(self, id: u32) -> u32 {
        self.size(id).wrapping_add(self.base)
    }

    /// The id of an address.
    pub fn id(self, address: u32) -> u32 {
        let offset = address.wrapping_sub(self.base);
        offset.checked_shr(self.shift).unwrap_or(0)
    }

    /// The bytes that a size stands for.
    pub fn size(self, size: u32) -> u32 {
        size.checked_shl(self.shift).unwrap_or(0)
    }
}

/// One packet without its time. Ids of tasks, timers, resources and heap blocks are shortened addresses ([`Ids`]).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Packet<'a> {
    /// 0: nothing.
    Nop,
    /// 1: packets could not be stored. Targets send a running total since the start, whatever the header says.
    Overflow {
        /// All packets that were dropped so far.
        total: u32,
    },
    /// 2: an interrupt handler begins.
    IsrEnter {
        /// Number of the exception or interrupt.
        irq: u32,
    },
    /// 3: it ends.
    IsrExit,
    /// 4: a task gets the processor.
    TaskStartExec {
        /// Which.
        task: u32,
    },
    /// 5: the running task ends.
    TaskStopExec,
    /// 6: a task can run.
    TaskStartReady {
        /// Which.
        task: u32,
    },
    /// 7: a task cannot run any more.
    TaskStopReady {
        /// Which.
        task: u32,
        /// Why, as its operating system numbers it.
        cause: u32,
    },
    /// 8: a task was made.
    TaskCreate {
        /// Which.
        task: u32,
    },
    /// 9: a task's description.
    TaskInfo {
        /// Which.
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
    /// 16: it stops.
    MarkStop {
        /// Its id.
        id: u32,
    },
    /// 17: no task runs.
    Idle,
    /// 18: an interrupt handler ends in the scheduler.
    IsrToScheduler,
    /// 19: a software timer's function begins.
    TimerEnter {
        /// The timer.
        timer: u32,
    },
    /// 20: it ends.
    TimerExit,
    /// 21: a task's stack.
    StackInfo {
        /// Which task.
        task: u32,
        /// Its lowest address.
        base: u32,
        /// Its bytes.
        size: u32,
        /// Bytes in use at most so far, 0 if unknown. Targets before 3.x send another value here.
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
        /// Its bits; what they mean tells its registration, a float as a rule.
        value: u32,
    },
    /// 24: how the target counts time and ids.
    Init {
        /// Ticks of times a second.
        frequency: u32,
        /// Cycles of the processor a second.
        cpu_frequency: u32,
        /// How ids are shortened.
        ids: Ids,
    },
    /// 25: the name of a resource.
    NameResource {
        /// Its id.
        resource: u32,
        /// Its name.
        name: Text<'a>,
    },
    /// 26: `printf` with the format applied by the host, or a text.
    Print {
        /// Format, or text.
        format: Text<'a>,
        /// Level in bits 0 to 3 (0 log, 1 warning, 2 error), bit 6: continues the text before.
        options: u32,
        /// How many arguments there are, as the target says.
        count: u32,
        /// The arguments, as varints ([`Packet::values`]).
        arguments: &'a [u8],
    },
    /// 27: how many modules there are.
    ModuleCount {
        /// The number.
        count: u32,
    },
    /// 28: a call of the operating system's interface returns.
    EndCall {
        /// The id of its event.
        id: u32,
        /// What it returns, if it is told.
        value: Option<u32>,
    },
    /// 29: a task was deleted.
    TaskTerminate {
        /// Which.
        task: u32,
    },
    /// 31, 0: a marker within its span.
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
        /// Its memory.
        base: u32,
        /// Size of it, shortened ([`Ids::size`]).
        size: u32,
        /// Bytes of bookkeeping a block.
        metadata: u32,
    },
    /// 31, 3 and 4: a block is allocated.
    HeapAlloc {
        /// In which heap.
        heap: u32,
        /// The block.
        block: u32,
        /// Size of it, shortened ([`Ids::size`]).
        size: u32,
        /// Who owns it, if it is told.
        tag: Option<u32>,
    },
    /// 31, 5: a block is freed.
    HeapFree {
        /// In which heap.
        heap: u32,
        /// The block.
        block: u32,
    },
    /// 31, 6: a value of which samples follow.
    RegisterData {
        /// Its id.
        id: u32,
        /// Its name.
        name: Text<'a>,
        /// Type, offset, range, scaling as far as the target tells them: varints, and a text for the unit.
        rest: &'a [u8],
    },
    /// 31: another extended packet.
    Extended {
        /// Its extended id.
        id: u32,
        /// What follows it.
        payload: &'a [u8],
    },
    /// 30, and 32 and more: an event that a description names: a call of the operating system's interface (32 to
    /// 511) or a module's.
    Event {
        /// Its id.
        id: u32,
        /// Its fields, as varints and texts.
        payload: &'a [u8],
    },
}

/// Ids below this one have no length in their packets.
pub(crate) const FIRST_WITH_LENGTH: u32 = 24;

/// The first id of the calls of operating systems.
pub const FIRST_CALL: u32 = 32;

/// The first id of modules' events.
pub const FIRST_OF_MODULES: u32 = 512;

impl<'a> Packet<'a> {
    /// Its id.
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

    /// Its name; that of events which a description names is empty.
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

    /// The numbers of its payload, or the arguments of a print.
    pub const fn values(&self) -> Varints<'a> {
        match self {
            Self::Print { arguments, .. } => Varints::new(arguments),
            Self::Event { payload, .. } | Self::Extended { payload, .. } => Varints::new(payload),
            _ => Varints::new(&[]),
        }
    }

    /// Whether a target with several cores sends it in the stream of each: what describes the recording as a whole.
    /// (ESP32's targets do, with equal times.)
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
