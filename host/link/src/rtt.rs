//! Client of RTT servers: debug probes that forward over TCP the rings in a target's memory.
//!
//! OpenOCD and pyOCD have a port for each channel, and send nothing of their own. J-Link has one port: it first sends
//! lines of text, and the host chooses the channel within 100 ms. From then on the connection works as a serial line.
//!
//! Sources: SEGGER's wiki (RTT, TELNET channel), OpenOCD's `rtt_server.c`, pyOCD's `rtt_server.py`.

use std::io;
use std::time::Duration;

use crate::{Address, LinkError, TcpTransport, Transport};

/// Port of J-Link's server.
pub(crate) const JLINK_PORT: u16 = 19021;

/// How long to wait for a server's greeting.
pub(crate) const GREETING: Duration = Duration::from_millis(250);

/// First bytes from J-Link's server.
const JLINK: &[u8] = b"SEGGER J-Link";

/// Whether these first bytes are those of J-Link's server.
pub(crate) fn is_jlink(first: &[u8]) -> bool {
    first.starts_with(JLINK)
}

/// Beginnings of its lines: the server, the probe, and the program that serves.
const GREETING_LINES: [&[u8]; 2] = [b"SEGGER ", b"Process: "];

/// Length of the greeting: the server's own lines at the beginning, as far as they are complete.
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

/// Whether these bytes, which follow a [`greeting`], can be the beginning of another line of it.
fn may_be_greeting(rest: &[u8]) -> bool {
    GREETING_LINES
        .iter()
        .any(|line| line.starts_with(rest) || (rest.starts_with(line) && !rest.contains(&b'\n')))
}

/// Chooses the channel at J-Link's server.
pub(crate) fn choose(
    transport: &mut dyn Transport,
    channel: u8,
    timeout: Duration,
) -> io::Result<()> {
    let choice = format!("$$SEGGER_TELNET_ConfigStr=RTTCh;{channel}$$");
    transport.write(choice.as_bytes(), timeout)
}

/// A channel of a server, after its greeting.
struct Channel {
    transport: TcpTransport,
    /// Bytes received after the greeting that have not been read yet.
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
            // `TcpTransport` knows only TCP addresses.
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

/// Consumes the greeting and chooses the channel where there are several; returns the bytes after the greeting.
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
    // The greeting's lines arrive one by one, and are not the target's answer.
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
