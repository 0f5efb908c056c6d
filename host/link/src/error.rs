//! What can go wrong between the host and a target.

use std::io;
use std::time::Duration;

use kymo_event::Addr;
use kymo_wire::link::PROTOCOL;

use crate::{Address, ReplyError};

/// Why a target could not be reached, did not answer, or did not do what was asked.
///
/// Each says what was expected and what was found instead; what the system said stands in
/// [`source`](std::error::Error::source), not in the text. What arrived before an error is not
/// lost: a dump that breaks off is an [`Ok`] with [`Dump::missing`](crate::Dump::missing).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// There is no such serial port, or no host of this name.
    #[error("{address} does not exist")]
    NotFound {
        /// What was to be opened.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The serial port may not be opened by this user.
    #[error("no permission to open {address}")]
    PermissionDenied {
        /// What was to be opened.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// Another program holds the serial port.
    #[error("{address} is in use by another program")]
    PortBusy {
        /// What was to be opened.
        address: Address,
    },
    /// Nobody listens at the TCP port.
    #[error("nothing listens at {address}: the connection was refused")]
    ConnectionRefused {
        /// What was to be opened.
        address: Address,
    },
    /// The TCP connection was not accepted in time.
    #[error("no connection to {address} within {}", seconds(*waited))]
    ConnectTimeout {
        /// What was to be opened.
        address: Address,
        /// How long was waited.
        waited: Duration,
    },
    /// The port or connection could not be opened for another reason.
    #[error("cannot open {address}")]
    Open {
        /// What was to be opened.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// Not a byte came back.
    #[error("no answer from {address} within {}", seconds(*waited))]
    NoAnswer {
        /// Who was asked.
        address: Address,
        /// How long was waited.
        waited: Duration,
    },
    /// Somebody answered, but it is not a target with Kymo's protocol.
    #[error(
        "{address} does not answer as a Kymo target: expected a line `kymo identify: ...`, found {}",
        quoted(heard)
    )]
    NotKymo {
        /// Who was asked.
        address: Address,
        /// What was heard last (no more than some hundred characters of it).
        heard: String,
    },
    /// What answered is Zephyr's own instrumentation, which has other commands
    /// ([`Target::recognise`](crate::Target::recognise) takes it as well).
    #[error("{address} runs Zephyr's own instrumentation, not Kymo")]
    Zephyr {
        /// Who was asked.
        address: Address,
    },
    /// A Kymo target of another time.
    #[error("{address} speaks version {found} of the link protocol, expected version {PROTOCOL}")]
    Version {
        /// Who answered.
        address: Address,
        /// Its version.
        found: u32,
    },
    /// The target did not carry out a command, and said why.
    #[error("the target refused `{command}`: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// What the target said.
        reason: String,
    },
    /// The target, which had answered before, did not answer a command.
    #[error("no answer to `{command}` within {}", seconds(*waited))]
    TimedOut {
        /// The command.
        command: String,
        /// How long was waited, over all attempts.
        waited: Duration,
    },
    /// The target does not answer a command, and goes on answering others: its firmware was built
    /// without what the command asks for.
    #[error("the target does not answer `{command}`, and goes on answering `ping`")]
    NotSupported {
        /// The command.
        command: String,
    },
    /// A function was set, and the target says that it has another.
    #[error(
        "the target's {what} should be {} now, but is {}",
        or_none(*wanted), or_none(*found)
    )]
    NotSet {
        /// Trigger or stopper.
        what: &'static str,
        /// What was asked for; `None` for no function.
        wanted: Option<Addr>,
        /// What it says that it has.
        found: Option<Addr>,
    },
    /// The connection ended, or the serial port went away.
    #[error("the connection to {address} was lost")]
    Disconnected {
        /// Who was talked to.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// An answer that does not say what it has to.
    #[error("unexpected answer to `{command}`")]
    Protocol {
        /// The command.
        command: String,
        /// What was expected and found.
        source: ReplyError,
    },
    /// The target sends more than a host takes: memory on the host stays bounded.
    #[error("the target sends more than {limit} bytes")]
    TooMuch {
        /// Bytes that are taken at most.
        limit: u64,
    },
    /// The user broke it off before anything had arrived.
    #[error("broken off")]
    Cancelled,
}

impl LinkError {
    /// Whether it was the connection that failed, so that opening it again could help (a serial
    /// port over USB goes away while its board reboots).
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

/// An address, or that there is none.
fn or_none(address: Option<Addr>) -> String {
    address.map_or_else(|| "none".to_owned(), |address| address.to_string())
}

/// A duration with one digit behind the point.
fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// Heard text as one line in quotes.
fn quoted(heard: &str) -> String {
    format!("{:?}", heard.trim())
}
