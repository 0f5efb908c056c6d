//! Servers of RTT channels: debug probes that pass on over TCP what a target has in rings in its memory.
//!
//! OpenOCD and pyOCD have a port for each channel, and say nothing of their own. J-Link has one port: it says lines of text
//! first, and the host chooses the channel within 100 ms. Then bytes go both ways as on a serial line.
//!
//! Sources: SEGGER's wiki (RTT, TELNET channel), OpenOCD's `rtt_server.c`, pyOCD's `rtt_server.py`.

use std::io;
use std::time::Duration;

use crate::{Address, LinkError, TcpTransport, Transport};

/// The port of J-Link's server.
pub(crate) const JLINK_PORT: u16 = 19021;

/// How long a server is given to say who it is.
pub(crate) const GREETING: Duration = Duration::from_millis(250);

/// What J-Link's server begins with.
const JLINK: &[u8] = b"SEGGER J-Link";

/// Whether these first bytes are those of J-Link's server.
pub(crate) fn is_jlink(first: &[u8]) -> bool {
    first.starts_with(JLINK)
}

/// What its lines begin with: the server, the probe, and the program that serves.
const GREETING_LINES: [&[u8]; 2] = [b"SEGGER ", b"Process: "];

/// How many of these bytes are its greeting: the lines at the beginning that are its own, as far as they are whole.
pub(crate) fn greeting(first: &[u8]) -> usize {
    let mut count = 0;
    while let Some(rest) = first.get(count..)
        && GREETING_LINES.iter().any(|line| rest.starts_with(line))
        && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
    {
        count += end + 1;
    }
    count
}

/// Whether these bytes, what follows a [`greeting`], can be the beginning of another line of it.
fn may_be_greeting(rest: &[u8]) -> bool {
    GREETING_LINES
        .iter()
        .any(|line| line.starts_with(rest) || (rest.starts_with(line) && !rest.contains(&b'\n')))
}

/// Tells J-Link's server which channel is meant.
pub(crate) fn choose(
    transport: &mut dyn Transport,
    channel: u8,
    timeout: Duration,
) -> io::Result<()> {
    let choice = format!("$$SEGGER_TELNET_ConfigStr=RTTCh;{channel}$$");
    transport.write(choice.as_bytes(), timeout)
}

/// A channel of a server, from which its greeting was taken.
struct Channel {
    transport: TcpTransport,
    /// What came behind the greeting, and was not asked for yet.
    held: Vec<u8>,
}

/// Connects to a server and chooses the channel.
pub(crate) fn open(
    address: &Address,
    host: &str,
    port: u16,
    channel: u8,
    timeout: Duration,
) -> Result<Box<dyn Transport>, LinkError> {
    let mut transport =
        TcpTransport::connect(host, port, timeout).map_err(|error| match error {
            // (It knows TCP addresses alone.)
            LinkError::ConnectionRefused { .. } => LinkError::ConnectionRefused {
                address: address.clone(),
            },
            other => other,
        })?;
    let held = greet(&mut transport, port, channel, timeout).map_err(|source| LinkError::Open {
        address: address.clone(),
        source,
    })?;
    Ok(Box::new(Channel { transport, held }))
}

/// Takes the greeting, and chooses the channel where there are several; what came behind it.
fn greet(
    transport: &mut TcpTransport,
    port: u16,
    channel: u8,
    timeout: Duration,
) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 4096];
    if port == JLINK_PORT {
        choose(transport, channel, timeout)?;
    }
    let read = transport.read(&mut buffer, GREETING)?;
    let mut held = buffer.get(..read).unwrap_or_default().to_vec();
    let is_jlink = is_jlink(&held);
    if port != JLINK_PORT && is_jlink {
        choose(transport, channel, timeout)?;
    }
    // Its lines come one by one, and are no answer of the target's.
    held.drain(..greeting(&held));
    while is_jlink && may_be_greeting(&held) && held.len() < buffer.len() {
        let read = transport.read(&mut buffer, GREETING)?;
        if read == 0 {
            break;
        }
        held.extend(buffer.get(..read).unwrap_or_default());
        held.drain(..greeting(&held));
    }
    Ok(held)
}

impl Transport for Channel {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.held.is_empty() {
            return self.transport.read(buffer, timeout);
        }
        let count = self.held.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.held.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        self.transport.write(bytes, timeout)
    }
}
