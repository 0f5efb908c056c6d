//! The events.

use kymo_systemview::{MAX_VARINT, Packet, Text, encode_number};

use crate::{FUNCTION_EVENTS, MAX_ARGUMENTS, MAX_NAME, MAX_TEXT, Port, Recorder, cut};

/// How loud a print is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    /// For the record.
    Log = 0,
    /// A warning.
    Warning = 1,
    /// An error.
    Error = 2,
}

/// Room for a packet of so many numbers: id, length, numbers, ticks.
pub(crate) const fn room(numbers: usize) -> usize {
    4 + (numbers + 1) * MAX_VARINT
}

impl<P: Port> Recorder<P> {
    /// The id of something at an address.
    fn id(&self, address: usize) -> u32 {
        self.port().system().ids.id(address as u32)
    }

    /// An interrupt handler begins; `irq` as the architecture counts (Cortex-M: the exception number).
    pub fn isr_enter(&self, irq: u32) {
        self.send_numbers(Packet::IsrEnter { irq }.id(), [irq]);
    }

    /// It ends, and the program goes on where it was interrupted.
    pub fn isr_exit(&self) {
        self.send_numbers(Packet::IsrExit.id(), []);
    }

    /// It ends in the scheduler.
    pub fn isr_exit_to_scheduler(&self) {
        self.send_numbers(Packet::IsrToScheduler.id(), []);
    }

    /// No task runs.
    pub fn idle(&self) {
        self.send_numbers(Packet::Idle.id(), []);
    }

    /// A task was made.
    pub fn task_create(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskCreate { task }.id(), [task]);
    }

    /// A task's name, of which [`MAX_NAME`] bytes are sent, and priority.
    pub fn task_info(&self, task: usize, priority: u32, name: &[u8]) {
        let (task, name) = (self.id(task), Text(cut(name, MAX_NAME)));
        self.send::<{ room(2) + 1 + MAX_NAME }>(&Packet::TaskInfo {
            task,
            priority,
            name,
        });
    }

    /// A task's stack: lowest address, bytes, and how many of them were used at most (0: unknown).
    pub fn task_stack(&self, task: usize, base: usize, size: u32, usage: u32) {
        let task = self.id(task);
        self.send::<{ room(4) }>(&Packet::StackInfo {
            task,
            base: base as u32,
            size,
            usage,
        });
    }

    /// A task gets the processor.
    pub fn task_start_exec(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStartExec { task }.id(), [task]);
    }

    /// The task that runs ends.
    pub fn task_stop_exec(&self) {
        self.send_numbers(Packet::TaskStopExec.id(), []);
    }

    /// A task can run.
    pub fn task_start_ready(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStartReady { task }.id(), [task]);
    }

    /// A task cannot run any more, as the operating system numbers causes.
    pub fn task_stop_ready(&self, task: usize, cause: u32) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskStopReady { task, cause }.id(), [task, cause]);
    }

    /// A task was deleted.
    pub fn task_terminate(&self, task: usize) {
        let task = self.id(task);
        self.send_numbers(Packet::TaskTerminate { task }.id(), [task]);
    }

    /// A software timer's function begins.
    pub fn timer_enter(&self, timer: usize) {
        let timer = self.id(timer);
        self.send_numbers(Packet::TimerEnter { timer }.id(), [timer]);
    }

    /// It ends.
    pub fn timer_exit(&self) {
        self.send_numbers(Packet::TimerExit.id(), []);
    }

    /// The name of a timer, semaphore, queue or heap.
    pub fn name_resource(&self, resource: usize, name: &[u8]) {
        let (resource, name) = (self.id(resource), Text(cut(name, MAX_NAME)));
        self.send::<{ room(1) + 1 + MAX_NAME }>(&Packet::NameResource { resource, name });
    }

    /// A user event starts.
    pub fn mark_start(&self, id: u32) {
        self.send_numbers(Packet::MarkStart { id }.id(), [id]);
    }

    /// It stops.
    pub fn mark_stop(&self, id: u32) {
        self.send_numbers(Packet::MarkStop { id }.id(), [id]);
    }

    /// A marker: within a user event, or alone.
    pub fn mark(&self, id: u32) {
        self.send_numbers(Packet::Mark { id }.id(), [0, id]);
    }

    /// The name of a user event or marker.
    pub fn name_marker(&self, id: u32, name: &[u8]) {
        let name = Text(cut(name, MAX_NAME));
        self.send::<{ room(2) + 1 + MAX_NAME }>(&Packet::NameMarker { id, name });
    }

    /// A text, with `%u`, `%d`, `%x` and the like in it for at most [`MAX_ARGUMENTS`] numbers: the host puts them together.
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

    /// An event of a module ([`crate::FIRST_EVENT`] and more), with at most [`MAX_ARGUMENTS`] numbers.
    pub fn event(&self, id: u32, arguments: &[u32]) {
        let arguments = arguments.get(..MAX_ARGUMENTS).unwrap_or(arguments);
        self.send_list(id, arguments);
    }

    /// The call that the event `id` began returns.
    pub fn end_call(&self, id: u32, value: Option<u32>) {
        self.send::<{ room(2) }>(&Packet::EndCall { id, value });
    }

    /// A function is entered.
    pub fn function_enter(&self, function: usize, call_site: usize) {
        self.call(FUNCTION_EVENTS, function, call_site);
    }

    /// A function is left.
    pub fn function_exit(&self, function: usize, call_site: usize) {
        self.call(FUNCTION_EVENTS + 1, function, call_site);
    }

    #[inline]
    fn call(&self, id: u32, function: usize, call_site: usize) {
        // On Arm the lowest bit tells the instruction set, and belongs to no address.
        let code = |address: usize| match cfg!(target_arch = "arm") {
            true => address as u32 & !1,
            false => address as u32,
        };
        self.send_numbers(id, [code(function), code(call_site)]);
    }

    /// A heap: its memory, and the bytes of bookkeeping of a block.
    pub fn heap_define(&self, heap: usize, base: usize, size: u32, metadata: u32) {
        let ids = self.port().system().ids;
        self.send::<{ room(5) }>(&Packet::HeapDefine {
            heap: self.id(heap),
            base: self.id(base),
            size: size.checked_shr(ids.shift).unwrap_or(0),
            metadata,
        });
    }

    /// A block is taken from a heap.
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

    /// A block is given back.
    pub fn heap_free(&self, heap: usize, block: usize) {
        let (heap, block) = (self.id(heap), self.id(block));
        self.send_numbers(Packet::HeapFree { heap, block }.id(), [5, heap, block]);
    }

    /// The system, for [`crate::Part::System`]: `N=application,D=device,C=core,O=system`, `I#15=SysTick,I#31=UART`, ..., at
    /// most [`MAX_TEXT`] bytes each.
    pub fn system_description(&self, text: &[u8]) {
        let text = Text(cut(text, MAX_TEXT));
        self.send::<{ room(0) + 1 + MAX_TEXT }>(&Packet::SystemDescription { text });
    }

    /// A module of the program's own, for [`crate::Part::Modules`]: its number (from 0), the id of its first event
    /// ([`crate::FIRST_EVENT`] and more), and a text `M=Name, 0 event a=%u b=%x, 1 other`. A long text goes in several parts
    /// of at most [`MAX_TEXT`] bytes, the others without a name.
    pub fn module(&self, module: u32, offset: u32, text: &[u8]) {
        self.send_module(module.saturating_add(1), offset, text);
    }
}
