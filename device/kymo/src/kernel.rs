//! Back end of [`kymo_hooks::Hooks`] that records with Kymo, for kernels in Rust.

use kymo_hooks::{Event, Hooks};

/// Kymo's recorder. Records threads and interrupts as such, and the rest as named markers; the second of two numbers is
/// a marker of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kymo;

impl Hooks for Kymo {
    #[inline]
    fn event(&self, event: &'static Event, numbers: &[usize]) {
        let numbers = if numbers.is_empty() { &[0] } else { numbers };
        for (label, number) in event.labels.iter().zip(numbers) {
            crate::named_marker(label, *number as u32);
        }
    }

    #[inline]
    fn thread_created(&self, thread: usize) {
        crate::named_marker(c"thread_created", thread as u32);
    }

    #[inline]
    fn thread_name(&self, thread: usize, priority: u32, name: &str) {
        crate::thread_name(thread, name);
        crate::named_marker(c"thread_priority", thread as u32);
        crate::named_marker(c"thread_priority priority", priority);
    }

    #[inline]
    fn thread_ready(&self, thread: usize) {
        crate::named_marker(c"thread_ready", thread as u32);
    }

    #[inline]
    fn thread_blocked(&self, thread: usize, cause: u32) {
        crate::named_marker(c"thread_blocked", thread as u32);
        crate::named_marker(c"thread_blocked cause", cause);
    }

    #[inline]
    fn thread_switched_in(&self, thread: usize) {
        crate::switched_in(thread);
    }

    #[inline]
    fn thread_switched_out(&self, thread: usize) {
        crate::switched_out(thread);
    }

    #[inline]
    fn thread_ended(&self, thread: usize) {
        crate::thread_ended(thread);
    }

    #[inline]
    fn idle(&self) {
        crate::named_marker(c"idle", 0);
    }

    #[inline]
    fn isr_enter(&self, irq: u16) {
        crate::isr_enter(irq);
    }

    #[inline]
    fn isr_exit(&self, irq: u16) {
        crate::isr_exit(irq);
    }

    #[inline]
    fn timer_enter(&self, timer: usize) {
        crate::named_marker(c"timer_enter", timer as u32);
    }

    #[inline]
    fn timer_exit(&self, timer: usize) {
        crate::named_marker(c"timer_exit", timer as u32);
    }

    #[inline]
    fn memory_alloc(&self, heap: usize, block: usize, size: usize) {
        crate::named_marker(c"memory_alloc", block as u32);
        crate::named_marker(c"memory_alloc size", size as u32);
        crate::named_marker(c"memory_alloc heap", heap as u32);
    }

    #[inline]
    fn memory_free(&self, heap: usize, block: usize) {
        crate::named_marker(c"memory_free", block as u32);
        crate::named_marker(c"memory_free heap", heap as u32);
    }
}
