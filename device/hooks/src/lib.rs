//! Kernel hooks: threads, interrupts, locks, semaphores, mutexes, queues, timers, idle time, system calls, memory,
//! network packets, and user events. For kernels in Rust; the counterpart of `kymo_hooks.h`.
//!
//! A kernel calls the methods of [`Hooks`] when the events occur. A back end implements the trait: Kymo's recorder
//! (`kymo::kernel::Kymo`), SystemView's stream (`kymo_sysview::Recorder`), or `()`, which records nothing. A method
//! that a back end does not define does nothing, and costs nothing once it is inlined.
//!
//! Most hooks call [`Hooks::event`] with an [`Event`] and at most two numbers.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::CStr;

/// Description of a hook and its numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// Identifies the event, from 0 on.
    pub number: u32,
    /// The event's name.
    pub name: &'static str,
    /// The names of its numbers, at most two.
    pub fields: &'static [&'static str],
    /// Names for recorders with one number per name: the event's name, and the event's name followed by the second
    /// number's.
    pub labels: &'static [&'static CStr],
    /// The event in the syntax of SystemView's module descriptions: `6 semaphore_take semaphore=%x timeout=%u`.
    pub description: &'static str,
}

/// Converts a text that ends with a zero byte.
const fn label(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro puts a 0 behind a name"),
    }
}

/// Defines the labels of an event with these fields.
macro_rules! labels {
    ($method:ident) => {
        &[label(concat!(stringify!($method), "\0"))]
    };
    ($method:ident $first:ident) => {
        &[label(concat!(stringify!($method), "\0"))]
    };
    ($method:ident $first:ident $second:ident) => {
        &[
            label(concat!(stringify!($method), "\0")),
            label(concat!(stringify!($method), " ", stringify!($second), "\0")),
        ]
    };
}

/// Defines the formats of an event's fields.
macro_rules! formats {
    () => {
        ""
    };
    ($first:ident) => {
        concat!(" ", stringify!($first), "=%x")
    };
    ($first:ident $second:ident) => {
        concat!(" ", stringify!($first), "=%x ", stringify!($second), "=%u")
    };
}

/// Defines the events, and a hook for each.
macro_rules! events {
    ($($(#[$doc:meta])* $number:literal $name:ident $method:ident($($field:ident),*);)+) => {
        $(
            $(#[$doc])*
            pub const $name: Event = Event {
                number: $number,
                name: stringify!($method),
                fields: &[$(stringify!($field)),*],
                labels: labels!($method $($field)*),
                description: concat!($number, " ", stringify!($method), formats!($($field)*)),
            };
        )+

        /// All events, by their numbers.
        pub const EVENTS: &[Event] = &[$($name),+];

        /// Interface between a kernel and a recorder. Threads and other objects are identified by a unique number:
        /// their address.
        pub trait Hooks {
            /// Records one of [`EVENTS`], with as many numbers as it has fields.
            #[inline]
            fn event(&self, event: &'static Event, numbers: &[usize]) {
                let _ = (event, numbers);
            }

            /// A thread was created.
            #[inline]
            fn thread_created(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread has this name and priority.
            #[inline]
            fn thread_name(&self, thread: usize, priority: u32, name: &str) {
                let _ = (thread, priority, name);
            }

            /// A thread is ready to run.
            #[inline]
            fn thread_ready(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread is blocked; `cause` is the kernel's own number.
            #[inline]
            fn thread_blocked(&self, thread: usize, cause: u32) {
                let _ = (thread, cause);
            }

            /// A thread gets the processor.
            #[inline]
            fn thread_switched_in(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread loses the processor.
            #[inline]
            fn thread_switched_out(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread has ended.
            #[inline]
            fn thread_ended(&self, thread: usize) {
                let _ = thread;
            }

            /// No thread runs.
            #[inline]
            fn idle(&self) {}

            /// An interrupt handler begins; `irq` is the architecture's number.
            #[inline]
            fn isr_enter(&self, irq: u16) {
                let _ = irq;
            }

            /// An interrupt handler ends.
            #[inline]
            fn isr_exit(&self, irq: u16) {
                let _ = irq;
            }

            /// An interrupt handler ends in the scheduler.
            #[inline]
            fn isr_exit_to_scheduler(&self, irq: u16) {
                self.isr_exit(irq);
            }

            /// A software timer's callback begins.
            #[inline]
            fn timer_enter(&self, timer: usize) {
                let _ = timer;
            }

            /// A software timer's callback ends.
            #[inline]
            fn timer_exit(&self, timer: usize) {
                let _ = timer;
            }

            /// A block is allocated from a heap.
            #[inline]
            fn memory_alloc(&self, heap: usize, block: usize, size: usize) {
                let _ = (heap, block, size);
            }

            /// A block is freed.
            #[inline]
            fn memory_free(&self, heap: usize, block: usize) {
                let _ = (heap, block);
            }

            $(
                $(#[$doc])*
                #[inline]
                fn $method(&self, $($field: usize),*) {
                    self.event(&$name, &[$($field),*]);
                }
            )+
        }
    };
}

events! {
    /// The program masks interrupts.
    0 INTERRUPTS_MASKED interrupts_masked();
    /// The program unmasks interrupts.
    1 INTERRUPTS_UNMASKED interrupts_unmasked();
    /// A spin lock is waited for.
    2 LOCK_WAIT lock_wait(lock);
    /// A spin lock was acquired.
    3 LOCK_TAKEN lock_taken(lock);
    /// A spin lock is released.
    4 LOCK_RELEASED lock_released(lock);
    /// A semaphore is initialized.
    5 SEMAPHORE_INIT semaphore_init(semaphore, count);
    /// A call that takes a semaphore begins; it may wait.
    6 SEMAPHORE_TAKE semaphore_take(semaphore, timeout);
    /// The call that takes a semaphore returns.
    7 SEMAPHORE_TAKEN semaphore_taken(semaphore, result);
    /// A semaphore is given.
    8 SEMAPHORE_GIVE semaphore_give(semaphore);
    /// A mutex is initialized.
    9 MUTEX_INIT mutex_init(mutex);
    /// A call that locks a mutex begins; it may wait.
    10 MUTEX_LOCK mutex_lock(mutex, timeout);
    /// The call that locks a mutex returns.
    11 MUTEX_LOCKED mutex_locked(mutex, result);
    /// A mutex is unlocked.
    12 MUTEX_UNLOCK mutex_unlock(mutex);
    /// A queue is initialized.
    13 QUEUE_INIT queue_init(queue, size);
    /// A call that puts an element into a queue begins; it may wait.
    14 QUEUE_PUT queue_put(queue, timeout);
    /// The call that puts an element into a queue returns.
    15 QUEUE_PUT_DONE queue_put_done(queue, result);
    /// A call that gets an element from a queue begins; it may wait.
    16 QUEUE_GET queue_get(queue, timeout);
    /// The call that gets an element from a queue returns.
    17 QUEUE_GOT queue_got(queue, result);
    /// A software timer is started.
    18 TIMER_START timer_start(timer, period);
    /// A software timer is stopped.
    19 TIMER_STOP timer_stop(timer);
    /// A system call begins.
    20 SYSCALL_ENTER syscall_enter(number);
    /// A system call returns.
    21 SYSCALL_EXIT syscall_exit(number, result);
    /// A network packet is sent.
    22 PACKET_SEND packet_send(interface, size);
    /// A network packet was received.
    23 PACKET_RECEIVE packet_receive(interface, size);
    /// An event defined by the user.
    24 USER user(id, value);
}

/// Back end that records nothing.
impl Hooks for () {}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::String;

    use super::*;

    /// `kymo_hooks.h` has the same list.
    #[test]
    fn events_are_those_of_c() {
        let header = include_str!("../../c/include/kymo_hooks.h");
        let list = header.split("#define KYMO_HOOK_EVENTS").nth(1).unwrap();
        let lines = list.lines().skip(1).take(EVENTS.len());
        for (line, event) in lines.zip(EVENTS) {
            let mut expected =
                std::format!("X{}({}, {}", event.fields.len(), event.number, event.name);
            for field in event.fields {
                expected += ", ";
                expected += field;
            }
            let found: String = line.trim().trim_end_matches('\\').trim().into();
            assert_eq!(found, expected + ")");
        }
        let numbers = EVENTS.iter().map(|event| event.number);
        assert!(numbers.eq(0..EVENTS.len() as u32));
        assert_eq!(list.lines().nth(1 + EVENTS.len()), Some(""), "and no more");
        assert_eq!(USER.labels, [c"user", c"user value"]);
        assert_eq!(USER.description, "24 user id=%x value=%u");
    }
}
