//! Zephyr's own instrumentation subsystem: the protocol that it speaks over its console's UART.
//!
//! Such a target takes commands as text, each ended by a carriage return, and answers with lines of
//! text or with raw records between two marks, without a length, a checksum or an escape
//! (`subsys/instrumentation/transport/uart.c` in Zephyr's tree). The traced program writes to the same
//! UART whenever it likes. Four rules keep the conversation harmless and honest:
//!
//! - *No empty line.* The target compares only as many bytes as it received, so that an empty line is
//!   `reboot`. Every command goes out whole, with a line feed behind its carriage return: a UART that
//!   was switched on late, or keeps only the last byte that it could not pass on, is left with the line
//!   feed, which the target ignores.
//! - *A reply is known by its form*, wherever on a line it stands, and where a console could have
//!   written the same, it is asked for again until only one thing can be meant.
//! - *Nothing is believed that can be checked.* A trigger that was set is read back; whether a dump is
//!   not supported, or only late, shows when the target answers another question.
//! - *A dump ends where its records say so* ([`kymo_zephyr_instrumentation::Scanner`]), not where the bytes of the mark
//!   happen to stand. A dump that nobody asked for (the target sends one whenever its buffer is full,
//!   if it was built to) is kept as any other.

mod dump;
mod replies;
mod sorter;
mod target;
pub mod tracing;

pub use dump::{Arrived, Dump, Ended};
pub use replies::Status;
pub(crate) use replies::{COMPLAINT, complains};
pub use target::{Rebooted, Set, Target};

#[doc(hidden)]
pub use sorter::fuzz_sorter;
