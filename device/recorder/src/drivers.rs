//! Drivers: who records into which buffers, and how others are kept away meanwhile.
//!
//! | driver | contexts | one writer a buffer by |
//! |---|---|---|
//! | [`single`] | threads and interrupt handlers of one processor | masking interrupts |
//! | [`cpus`] | the same of several processors | a buffer for each CPU, and masking its interrupts |
//! | [`threads`] | threads and signal handlers of a process | a buffer for each thread, and a flag |
//!
//! Each has the same parts, in files of the same names where it has them:
//!
//! - its *port*, a trait with what it needs of a processor or system (`SinglePort`, `CpusPort`, `ThreadPort`);
//! - hooks and events (the file of the driver's name, `thread_buffer`): they look at the [gate](crate::gate), keep others away, read the
//!   clock, and hand the event to a [`Writer`](crate::Writer), which does the rest;
//! - `setup`: takes the program's [configuration](crate::config), or says what is wrong with it;
//! - `recording`, `commands`: turns recording on and off, trigger and stopper;
//! - `control`: what the [link](crate::link::Control) may ask, and how a reader gets at the buffers;
//! - `items`, `blocks`, `cost`: RTEMS records, records in place, what recording costs.

#[cfg(target_has_atomic = "ptr")]
pub mod cpus;
pub mod single;
#[cfg(target_has_atomic = "ptr")]
pub mod threads;
