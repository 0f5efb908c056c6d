//! Commands of Zephyr's *tracing* subsystem (`CONFIG_TRACING_HANDLE_HOST_CMD`).
//!
//! A target that was built with them sends an endless CTF stream over a dedicated UART from `enable` to `disable`. It
//! answers neither and has no query, so such a target cannot be detected before it has sent something. An empty line
//! enables it, so sending one does no harm.

use std::io;
use std::time::Duration;

use crate::transport::Transport;
use crate::{Address, LinkError, Timeouts, transport};

/// How long the line is read after a command: until the system has surely sent it. What a TCP
/// connection still held when it is closed could take the command with it.
const SETTLE: Duration = Duration::from_millis(200);

/// What can be said to such a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCommand {
    /// Trace from now on.
    Enable,
    /// Trace no more.
    Disable,
}

impl HostCommand {
    /// The word for it, as the target takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Enable => "enable",
            Self::Disable => "disable",
        }
    }
}

/// The line to a target that traces.
pub struct Line {
    address: Address,
    timeouts: Timeouts,
    transport: Box<dyn Transport>,
}

impl Line {
    /// Opens the line. Nothing is sent.
    ///
    /// # Errors
    /// What kept the port or connection from being opened.
    pub fn open(address: &Address, timeouts: Timeouts) -> Result<Self, LinkError> {
        Ok(Self {
            address: address.clone(),
            timeouts,
            transport: transport::open(address, timeouts.connect)?,
        })
    }

    /// Gives a command. Whether the target takes it shows only in what comes after.
    ///
    /// # Errors
    /// The connection's.
    pub fn give(&mut self, command: HostCommand) -> Result<(), LinkError> {
        let line = format!("{}\r", command.name());
        self.transport
            .write(line.as_bytes(), self.timeouts.reply)
            .map_err(|source| self.lost(source))
    }

    /// Reads what there is of the stream, waiting for at most `timeout` for the first byte: how many
    /// bytes of `buffer`.
    ///
    /// # Errors
    /// The connection's, also when the other side has ended it.
    pub fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> Result<usize, LinkError> {
        self.transport
            .read(buffer, timeout)
            .map_err(|source| self.lost(source))
    }

    fn lost(&self, source: io::Error) -> LinkError {
        LinkError::Disconnected {
            address: self.address.clone(),
            source,
        }
    }
}

/// Gives a command to the target at `address`, and reads its line for a moment. Gives the number of bytes
/// that came, which is all that can be known of the command's effect.
///
/// # Errors
/// What kept the port or connection from being opened or written to.
pub fn send(address: &Address, command: HostCommand, timeouts: Timeouts) -> Result<u64, LinkError> {
    let mut line = Line::open(address, timeouts)?;
    line.give(command)?;
    let clock = line.transport.clock();
    let deadline = clock.now() + SETTLE;
    let mut buffer = vec![0; 64 * 1024];
    let mut arrived = 0;
    loop {
        let left = deadline.saturating_duration_since(clock.now());
        if left.is_zero() {
            return Ok(arrived);
        }
        arrived += line.read(&mut buffer, left)? as u64;
    }
}
