//! Methods that record events.

use kymo_systemview::{MAX_VARINT, Packet, Text, encode_number};

use crate::{FUNCTION_EVENTS, MAX_ARGUMENTS, MAX_NAME, MAX_TEXT, Port, Recorder, cut};

/// Severity of a print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// An informational message.
    Log = 0,
    /// A warning.
    Warning = 1,
    /// An error.
    Error = 2,
}

/// Maximum size of a packet of this many numbers: id, length, numbers, ticks.
pub(crate) const fn room(numbers: usize) -> usize {
    4 + (numbers + 1) * MAX_VARINT
}

impl<P: Port> Recorder<P> {
    /// Returns the id of the object at an address.
    fn id(&self, address: usize) -> u32 {
        self.port().system().ids.id(address as u32)
    }

    /// Records that an interrupt handler begins; `irq` is the architecture's number (Cortex-M: the exception number).
    pub fn isr_enter(&self, irq: u32) {
        self.send_numbers(Packet::IsrEnter { irq }.id(), [irq]);
    }

    /// Records that an interrupt handler ends, and the program continues where it was interrupted.
    pub fn isr_exit(&self) {
        self.send_numbers(Packet::IsrExit.id(), []);
    }

    /// Records that an interrupt handler ends in the scheduler.
    pub fn isr_exit_to_scheduler(&self) {
        self.send_numbers(Packet::IsrToScheduler.id(), []);
    }

    /// Records that no task runs.
    pub fn idle(&self) {
        self.send_numbers(Packet::Idle.id(), []);
    }

    /// Records that a task was created.
    pub fn task_create(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskCreate { task }.id(), [task]);
    }

    /// Records a task's name, of which [`MAX_NAME`] bytes are sent, and its priority.
    pub fn task_info(&self, task: usize, priority: u32, name: &[u8]) {
        let (task, name) = (self.id(task), Text(cut(name, MAX_NAME)));
        self.send::<{ room(2) + 1 + MAX_NAME }>(&Packet::TaskInfo {
            task,
            priority,
            name,
        });
    }

    /// Records a task's stack: lowest address, size in bytes, and maximum usage in bytes (0: unknown).
    pub fn task_stack(&self, task: usize, base: usize, size: u32, usage: u32) {
        let task = self.id(task);
        self.send::<{ room(4) }>(&Packet::StackInfo {
            task,
            base: base as u32,
            size,
            usage,
        });
    }

    /// Records that a task gets the processor.
    pub fn task_start_exec(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStartExec { task }.id(), [task]);
    }

    /// Records that the running task ends.
    pub fn task_stop_exec(&self) {
        self.send_numbers(Packet::TaskStopExec.id(), []);
    }

    /// Records that a task is ready to run.
    pub fn task_start_ready(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStartReady { task }.id(), [task]);
    }

    /// Records that a task is blocked; `cause` is the operating system's own number.
    pub fn task_stop_ready(&self, task: usize, cause: u32) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStopReady { task, cause }.id(), [task, cause]);
    }

    /// Records that a task was deleted.
    pub fn task_terminate(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskTerminate { task }.id(), [task]);
    }

    /// Records that a software timer's callback begins.
    pub fn timer_enter(&self, timer: usize) {
        let timer = self.id(timer);
        self.send_numbers(Packet::TimerEnter { timer }.id(), [timer]);
    }

    /// Records that a software timer's callback ends.
    pub fn timer_exit(&self) {
        self.send_numbers(Packet::TimerExit.id(), []);
    }

    /// Names a timer, semaphore, queue or heap.
    pub fn name_resource(&self, resource: usize, name: &[u8]) {
        let (resource, name) = (self.id(resource), Text(cut(name, MAX_NAME)));
        self.send::<{ room(1) + 1 + MAX_NAME }>(&Packet::NameResource { resource, name });
    }

    /// Records the start of a user event.
    pub fn mark_start(&self, id: u32) {
        self.send_numbers(Packet::MarkStart { id }.id(), [id]);
    }

    /// Records the end of a user event.
    pub fn mark_stop(&self, id: u32) {
        self.send_numbers(Packet::MarkStop { id }.id(), [id]);
    }

    /// Records a marker: within a user event, or alone.
    pub fn mark(&self, id: u32) {
        self.send_numbers(Packet::Mark { id }.id(), [0, id]);
    }

    /// Names a user event or marker.
    pub fn name_marker(&self, id: u32, name: &[u8]) {
        let name = Text(cut(name, MAX_NAME));
        self.send::<{ room(2) + 1 + MAX_NAME }>(&Packet::NameMarker { id, name });
    }

    /// Prints a text with `%u`, `%d`, `%x` and similar formats for at most [`MAX_ARGUMENTS`] numbers, which the host
    /// formats.
    pub fn print(&self, level: Level, format: &[u8], arguments: &[u32]) {
        let arguments = arguments.get(..MAX_ARGUMENTS).unwrap_or(arguments);
        let (mut numbers, mut size) = ([0; MAX_ARGUMENTS * MAX_VARINT], 0);
        for argument in arguments {
            let behind = numbers.get_mut(size..).unwrap_or_default();
            size += encode_number(*argument, behind).unwrap_or(0);
        }
        self.send::<{ room(MAX_ARGUMENTS + 2) + 1 + MAX_TEXT }>(&Packet::Print {
            format: Text(cut(format, MAX_TEXT)),
            options: level as u32,
            count: arguments.len() as u32,
            arguments: numbers.get(..size).unwrap_or_default(),
        });
    }

    /// Records an event of a module (id [`crate::FIRST_EVENT`] or more), with at most [`MAX_ARGUMENTS`] numbers.
    pub fn event(&self, id: u32, arguments: &[u32]) {
        let arguments = arguments.get(..MAX_ARGUMENTS).unwrap_or(arguments);
        self.send_list(id, arguments);
    }

    /// Records the return of the call that the event `id` began.
    pub fn end_call(&self, id: u32, value: Option<u32>) {
        self.send::<{ room(2) }>(&Packet::EndCall { id, value });
    }

    /// Records the entry to a function.
    pub fn function_enter(&self, function: usize, call_site: usize) {
        self.call(FUNCTION_EVENTS, function, call_site);
    }

    /// Records the exit from a function.
    pub fn function_exit(&self, function: usize, call_site: usize) {
        self.call(FUNCTION_EVENTS + 1, function, call_site);
    }

    #[inline]
    fn call(&self, id: u32, function: usize, call_site: usize) {
        // On Arm the lowest bit selects the instruction set, and is not part of the address.
        let code = |address: usize| match cfg!(target_arch = "arm") {
            true => address as u32 & !1,
            false => address as u32,
        };
        self.send_numbers(id, [code(function), code(call_site)]);
    }

    /// Describes a heap: its memory, and the bytes of bookkeeping per block.
    pub fn heap_define(&self, heap: usize, base: usize, size: u32, metadata: u32) {
        let ids = self.port().system().ids;
        self.send::<{ room(5) }>(&Packet::HeapDefine {
            heap: self.id(heap),
            base: self.id(base),
            size: size.checked_shr(ids.shift).unwrap_or(0),
            metadata,
        });
    }

    /// Records that a block is allocated from a heap.
    pub fn heap_alloc(&self, heap: usize, block: usize, size: u32) {
        let ids = self.port().system().ids;
        let size = size.checked_shr(ids.shift).unwrap_or(0);
        let (heap, block) = (self.id(heap), self.id(block));
        let packet = Packet::HeapAlloc {
            heap,
            block,
            size,
            tag: None,
        };
        self.send_numbers(packet.id(), [3, heap, block, size]);
    }

    /// Records that a block is freed.
    pub fn heap_free(&self, heap: usize, block: usize) {
        let (heap, block) = (self.id(heap), self.id(block));
        self.send_numbers(Packet::HeapFree { heap, block }.id(), [5, heap, block]);
    }

    /// Describes the system, for [`crate::Part::System`]: `N=application,D=device,C=core,O=system`,
    /// `I#15=SysTick,I#31=UART`, ..., at most [`MAX_TEXT`] bytes each.
    pub fn system_description(&self, text: &[u8]) {
        let text = Text(cut(text, MAX_TEXT));
        self.send::<{ room(0) + 1 + MAX_TEXT }>(&Packet::SystemDescription { text });
    }

    /// Describes one of the program's own modules, for [`crate::Part::Modules`]: its number (from 0), the id of its
    /// first event ([`crate::FIRST_EVENT`] or more), and a text `M=Name, 0 event a=%u b=%x, 1 other`. A long text is
    /// sent in several parts of at most [`MAX_TEXT`] bytes, of which only the first has a name.
    pub fn module(&self, module: u32, offset: u32, text: &[u8]) {
        self.send_module(module.saturating_add(1), offset, text);
    }
}
