//! Drivers: define which contexts record into which buffers, and exclude other writers meanwhile.
//!
//! | driver | contexts | one writer per buffer by |
//! |---|---|---|
//! | [`single`] | threads and interrupt handlers of one processor | masking interrupts |
//! | [`cpus`] | the same contexts of several processors | a buffer for each CPU, and masking its interrupts |
//! | [`threads`] | threads and signal handlers of a process | a buffer for each thread, and a flag |
//!
//! All have the same parts, in files of the same names as far as they exist:
//!
//! - its *port*, a trait with what it needs of a processor or system (`SinglePort`, `CpusPort`, `ThreadPort`);
//! - hooks and events (the file of the driver's name, `thread_buffer`): they check the [gate](crate::gate), exclude
//!   other writers, read the clock, and pass the event to a [`Writer`](crate::Writer), which does the rest;
//! - `setup`: checks the program's [configuration](crate::config), applies it or reports the error;
//! - `recording`, `commands`: turns recording on and off, sets trigger and stopper;
//! - `control`: serves the [link](crate::link::Control), and gives readers access to the buffers;
//! - `items`, `blocks`, `cost`: RTEMS records, records written in place, recording overhead.

#[cfg(target_has_atomic = "ptr")]
pub mod cpus;
pub mod single;
#[cfg(target_has_atomic = "ptr")]
pub mod threads;
