//! Zephyr's own instrumentation subsystem: the protocol on its console's UART.
//!
//! Such a target accepts commands as text, each ended by a carriage return, and answers with lines of text or with raw
//! records between two marks, without a length, a checksum or an escape (`subsys/instrumentation/transport/uart.c` in
//! Zephyr's tree). The traced program writes to the same UART at any time. Four rules make the protocol safe and
//! reliable:
//!
//! - *No empty line.* The target compares only as many bytes as it received, so an empty line means `reboot`. Every
//!   command is sent at once, with a line feed after its carriage return: a UART that was switched on late, or keeps
//!   only the last byte that it could not forward, is left with the line feed, which the target ignores.
//! - *Replies are recognised by their form*, anywhere on a line. Where the console could have written the same, the
//!   command is repeated until only one reading is possible.
//! - *Whatever can be checked is checked.* A trigger that was set is read back; whether a dump is unsupported or only
//!   late is decided by an answer to another command.
//! - *The records determine the end of a dump* ([`kymo_zephyr_instrumentation::Scanner`]), not the bytes of the mark,
//!   which can occur anywhere. An unsolicited dump (firmware can be built to send one whenever its buffer is full) is
//!   kept like any other.

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
