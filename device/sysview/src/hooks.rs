//! Back end of [`kymo_hooks::Hooks`] that sends SystemView's stream.

use kymo_hooks::{EVENTS, Event, Hooks};

use crate::{KERNEL_EVENTS, Port, Recorder};

impl<P: Port> Recorder<P> {
    /// Describes the module of [`kymo_hooks::EVENTS`], for [`crate::Part::Modules`], as the program's own module of
    /// this number. It takes 1.2 KB.
    pub fn kernel_module(&self, module: u32) {
        self.module(module, KERNEL_EVENTS, b"M=Kernel");
        for event in EVENTS {
            self.module(module, KERNEL_EVENTS, event.description.as_bytes());
        }
    }
}

/// Threads, interrupts, timers and heaps become SystemView's own packets; the rest become events of a module
/// ([`Recorder::kernel_module`]).
impl<P: Port> Hooks for Recorder<P> {
    fn event(&self, event: &'static Event, numbers: &[usize]) {
        let mut short = [0; 2];
        for (short, number) in short.iter_mut().zip(numbers) {
            *short = *number as u32;
        }
        let short = short.get(..numbers.len()).unwrap_or(&short);
        Recorder::event(self, KERNEL_EVENTS + event.number, short);
    }

    fn thread_created(&self, thread: usize) {
        self.task_create(thread);
    }

    fn thread_name(&self, thread: usize, priority: u32, name: &str) {
        self.task_info(thread, priority, name.as_bytes());
    }

    fn thread_ready(&self, thread: usize) {
        self.task_start_ready(thread);
    }

    fn thread_blocked(&self, thread: usize, cause: u32) {
        self.task_stop_ready(thread, cause);
    }

    fn thread_switched_in(&self, thread: usize) {
        self.task_start_exec(thread);
    }

    fn thread_switched_out(&self, _thread: usize) {
        self.task_stop_exec();
    }

    fn thread_ended(&self, thread: usize) {
        self.task_terminate(thread);
    }

    fn idle(&self) {
        Recorder::idle(self);
    }

    fn isr_enter(&self, irq: u16) {
        Recorder::isr_enter(self, irq.into());
    }

    fn isr_exit(&self, _irq: u16) {
        Recorder::isr_exit(self);
    }

    fn isr_exit_to_scheduler(&self, _irq: u16) {
        Recorder::isr_exit_to_scheduler(self);
    }

    fn timer_enter(&self, timer: usize) {
        Recorder::timer_enter(self, timer);
    }

    fn timer_exit(&self, _timer: usize) {
        Recorder::timer_exit(self);
    }

    fn memory_alloc(&self, heap: usize, block: usize, size: usize) {
        self.heap_alloc(heap, block, size as u32);
    }

    fn memory_free(&self, heap: usize, block: usize) {
        self.heap_free(heap, block);
    }
}
