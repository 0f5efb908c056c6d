//! Errors between the host and a target.

use std::io;
use std::time::Duration;

use kymo_event::Addr;
use kymo_wire::link::PROTOCOL;

use crate::{Address, ReplyError};

/// Reason why a target could not be reached, did not answer, or did not do what was requested.
///
/// Each states what was expected and what was found instead; the system's error is in
/// [`source`](std::error::Error::source), not in the text. Data that arrived before an error is not lost: a dump that
/// breaks off is an [`Ok`] with [`Dump::missing`](crate::Dump::missing).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The serial port or the host does not exist.
    #[error("{address} does not exist")]
    NotFound {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// This user has no permission to open the serial port.
    #[error("no permission to open {address}")]
    PermissionDenied {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// Another program holds the serial port.
    #[error("{address} is in use by another program")]
    PortBusy {
        /// The address.
        address: Address,
    },
    /// Nothing listens at the TCP port.
    #[error("nothing listens at {address}: the connection was refused")]
    ConnectionRefused {
        /// The address.
        address: Address,
    },
    /// The TCP connection was not accepted in time.
    #[error("no connection to {address} within {}", seconds(*waited))]
    ConnectTimeout {
        /// The address.
        address: Address,
        /// How long the host waited.
        waited: Duration,
    },
    /// The port or connection could not be opened for another reason.
    #[error("cannot open {address}")]
    Open {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// No byte arrived.
    #[error("no answer from {address} within {}", seconds(*waited))]
    NoAnswer {
        /// The address.
        address: Address,
        /// How long the host waited.
        waited: Duration,
    },
    /// Something answered that does not use Kymo's protocol.
    #[error(
        "{address} does not answer as a Kymo target: expected a line `kymo identify: ...`, found {}",
        quoted(heard)
    )]
    NotKymo {
        /// The address.
        address: Address,
        /// The last text received (at most a few hundred characters).
        heard: String,
    },
    /// The target runs Zephyr's own instrumentation, which has other commands
    /// ([`Target::recognise`](crate::Target::recognise) accepts it as well).
    #[error("{address} runs Zephyr's own instrumentation, not Kymo")]
    Zephyr {
        /// The address.
        address: Address,
    },
    /// A Kymo target with another version of the protocol.
    #[error("{address} speaks version {found} of the link protocol, expected version {PROTOCOL}")]
    Version {
        /// The address.
        address: Address,
        /// Its version.
        found: u32,
    },
    /// The target did not carry out a command, and gave a reason.
    #[error("the target refused `{command}`: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// The target's reason.
        reason: String,
    },
    /// A target that had answered before did not answer a command.
    #[error("no answer to `{command}` within {}", seconds(*waited))]
    TimedOut {
        /// The command.
        command: String,
        /// How long the host waited, over all attempts.
        waited: Duration,
    },
    /// The target does not answer a command but answers others: its firmware was built without the feature.
    #[error("the target does not answer `{command}`, and goes on answering `ping`")]
    NotSupported {
        /// The command.
        command: String,
    },
    /// A function was set, but the target reports another.
    #[error(
        "the target's {what} should be {} now, but is {}",
        or_none(*wanted), or_none(*found)
    )]
    NotSet {
        /// Trigger or stopper.
        what: &'static str,
        /// The requested function; `None` for no function.
        wanted: Option<Addr>,
        /// The reported function.
        found: Option<Addr>,
    },
    /// The connection ended, or the serial port disappeared.
    #[error("the connection to {address} was lost")]
    Disconnected {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// An answer that lacks required content.
    #[error("unexpected answer to `{command}`")]
    Protocol {
        /// The command.
        command: String,
        /// What was expected and found.
        source: ReplyError,
    },
    /// The target sends more than the host accepts, which bounds the host's memory.
    #[error("the target sends more than {limit} bytes")]
    TooMuch {
        /// Greatest number of bytes that the host accepts.
        limit: u64,
    },
    /// The user cancelled before anything had arrived.
    #[error("broken off")]
    Cancelled,
}

impl LinkError {
    /// Whether the connection failed, so that opening it again could help (a serial port over USB disappears while its
    /// board reboots).
    pub const fn is_connection(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::PermissionDenied { .. }
                | Self::PortBusy { .. }
                | Self::ConnectionRefused { .. }
                | Self::ConnectTimeout { .. }
                | Self::Open { .. }
                | Self::Disconnected { .. }
        )
    }
}

/// An address, or `none`.
fn or_none(address: Option<Addr>) -> String {
    address.map_or_else(|| "none".to_owned(), |address| address.to_string())
}

/// A duration in seconds with one decimal place.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Received text as one quoted line.
fn quoted(heard: &str) -> String {
    format!("{:?}", heard.trim())
}
