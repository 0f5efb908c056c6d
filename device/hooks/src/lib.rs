//! Hooks for what a kernel does: threads, interrupts, locks, semaphores, mutexes, queues, timers, idle time, system calls, memory,
//! network packets, and events of the user's own. What `kymo_hooks.h` is for C, for kernels in Rust.
//!
//! A kernel calls the methods of [`Hooks`] where things happen; a back end implements the trait and says what becomes of them.
//! Kymo's recorder is one (`kymo::kernel::Kymo`), SystemView's stream another (`kymo_sysview::Recorder`), `()` is none. A method that
//! a back end does not define does nothing, and costs nothing once it is inlined.
//!
//! Most hooks come to [`Hooks::event`] with an [`Event`] and at most two numbers.
#![no_std]
#![forbid(unsafe_code)]

use core::ffi::CStr;

/// What a hook is called, and its numbers.
#[derive(Debug, PartialEq, Eq)]
pub struct Event {
    /// Tells it from others, from 0 on.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// The names of its numbers, at most two.
    pub fields: &'static [&'static str],
    /// The same for recorders that have one number to a name: the event's name, and with the second number's behind it.
    pub labels: &'static [&'static CStr],
    /// The same as SystemView's descriptions of modules have it: `6 semaphore_take semaphore=%x timeout=%u`.
    pub description: &'static str,
}

/// A text that ends with 0.
const fn label(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the macro puts a 0 behind a name"),
    }
}

/// The labels of an event with these fields.
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

/// The formats of an event's fields.
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

/// The events, and the hooks that come to one.
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

        /// All of them, by their numbers.
        pub const EVENTS: &[Event] = &[$($name),+];

        /// What a kernel tells a recorder. Threads and other objects are named by a number that tells them apart: their address.
        pub trait Hooks {
            /// One of [`EVENTS`], with as many numbers as it has fields.
            #[inline]
            fn event(&self, event: &'static Event, numbers: &[usize]) {
                let _ = (event, numbers);
            }

            /// A thread was made.
            #[inline]
            fn thread_created(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread has this name and priority.
            #[inline]
            fn thread_name(&self, thread: usize, priority: u32, name: &str) {
                let _ = (thread, priority, name);
            }

            /// A thread can run.
            #[inline]
            fn thread_ready(&self, thread: usize) {
                let _ = thread;
            }

            /// A thread cannot run any more, as the kernel numbers causes.
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

            /// A thread is gone.
            #[inline]
            fn thread_ended(&self, thread: usize) {
                let _ = thread;
            }

            /// No thread runs.
            #[inline]
            fn idle(&self) {}

            /// An interrupt handler begins; `irq` as the architecture counts.
            #[inline]
            fn isr_enter(&self, irq: u16) {
                let _ = irq;
            }

            /// It ends.
            #[inline]
            fn isr_exit(&self, irq: u16) {
                let _ = irq;
            }

            /// It ends in the scheduler.
            #[inline]
            fn isr_exit_to_scheduler(&self, irq: u16) {
                self.isr_exit(irq);
            }

            /// A software timer's function begins.
            #[inline]
            fn timer_enter(&self, timer: usize) {
                let _ = timer;
            }

            /// It ends.
            #[inline]
            fn timer_exit(&self, timer: usize) {
                let _ = timer;
            }

            /// A block is taken from a heap.
            #[inline]
            fn memory_alloc(&self, heap: usize, block: usize, size: usize) {
                let _ = (heap, block, size);
            }

            /// It is given back.
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
    /// It lets them through again.
    1 INTERRUPTS_UNMASKED interrupts_unmasked();
    /// A spin lock is waited for.
    2 LOCK_WAIT lock_wait(lock);
    /// A spin lock was taken.
    3 LOCK_TAKEN lock_taken(lock);
    /// A spin lock is released.
    4 LOCK_RELEASED lock_released(lock);
    /// A semaphore is set up.
    5 SEMAPHORE_INIT semaphore_init(semaphore, count);
    /// A semaphore is to be taken; the call may wait.
    6 SEMAPHORE_TAKE semaphore_take(semaphore, timeout);
    /// That call returns.
    7 SEMAPHORE_TAKEN semaphore_taken(semaphore, result);
    /// A semaphore is given.
    8 SEMAPHORE_GIVE semaphore_give(semaphore);
    /// A mutex is set up.
    9 MUTEX_INIT mutex_init(mutex);
    /// A mutex is to be locked; the call may wait.
    10 MUTEX_LOCK mutex_lock(mutex, timeout);
    /// That call returns.
    11 MUTEX_LOCKED mutex_locked(mutex, result);
    /// A mutex is unlocked.
    12 MUTEX_UNLOCK mutex_unlock(mutex);
    /// A queue is set up.
    13 QUEUE_INIT queue_init(queue, size);
    /// Something is to be put into a queue; the call may wait.
    14 QUEUE_PUT queue_put(queue, timeout);
    /// That call returns.
    15 QUEUE_PUT_DONE queue_put_done(queue, result);
    /// Something is to be got from a queue; the call may wait.
    16 QUEUE_GET queue_get(queue, timeout);
    /// That call returns.
    17 QUEUE_GOT queue_got(queue, result);
    /// A software timer is started.
    18 TIMER_START timer_start(timer, period);
    /// A software timer is stopped.
    19 TIMER_STOP timer_stop(timer);
    /// A system call begins.
    20 SYSCALL_ENTER syscall_enter(number);
    /// It returns.
    21 SYSCALL_EXIT syscall_exit(number, result);
    /// A network packet is sent.
    22 PACKET_SEND packet_send(interface, size);
    /// A network packet was received.
    23 PACKET_RECEIVE packet_receive(interface, size);
    /// An event of the user's own.
    24 USER user(id, value);
}

/// No recorder.
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
