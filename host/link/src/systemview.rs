//! Live targets of SEGGER SystemView: its recorder over TCP or a serial line, and servers of RTT channels.
//!
//! | where | greeting |
//! |---|---|
//! | TCP port 19111: the recorder of a target | 32 bytes `SEGGER SystemView V...` each way |
//! | TCP port 19021: J-Link's RTT server | a line that chooses the channel; the server sends lines of text first |
//! | other TCP ports: the RTT servers of OpenOCD, probe-rs, pyOCD | none |
//! | a serial line: the recorder of a target | 4 bytes `SV` and a version each way, the host first |
//!
//! Behind the greeting the host tells the target to start, which makes it describe itself. What comes before the
//! synchronization that a recording starts with (greetings, the middle of an older recording) is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::{Duration, Instant};

use kymo_systemview::{Command, SERIAL_HELLO, SYNC, TCP_HELLO, TCP_PORT};

use crate::{Address, AddressError, LinkError, Transport};

/// The port of J-Link's RTT server.
const JLINK_PORT: u16 = 19021;

/// The channel of SystemView as targets have it by default.
const CHANNEL: u8 = 1;

/// How long a server is given to say who it is.
const GREETING: Duration = Duration::from_millis(250);

/// How long a recording is given to begin; then everything is passed on.
const BEGINNING: Duration = Duration::from_secs(2);

/// Bytes that may come before a recording's beginning.
const BEFORE: usize = 1 << 16;

/// How often a target hears that somebody listens.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Where a target of SystemView is: `systemview:HOST:PORT`, `systemview:HOST` or `systemview:` and a serial port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemViewAddress(pub Address);

/// What such addresses begin with.
pub const PREFIX: &str = "systemview:";

impl FromStr for SystemViewAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(PREFIX).unwrap_or(text);
        let is_path =
            rest.starts_with(['/', '.']) || rest.starts_with("serial:") || rest.starts_with("COM");
        if is_path {
            return rest.parse().map(Self);
        }
        let rest = rest.strip_prefix("tcp:").unwrap_or(rest);
        let has_port = rest
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        match has_port {
            true => format!("tcp:{rest}").parse(),
            false => format!("tcp:{rest}:{TCP_PORT}").parse(),
        }
        .map(Self)
    }
}

impl fmt::Display for SystemViewAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        write!(f, "{PREFIX}{}", text.strip_prefix("tcp:").unwrap_or(&text))
    }
}

/// A recording as it comes.
pub struct Session {
    transport: Box<dyn Transport>,
    /// Bytes from the recording's beginning on that were not asked for yet.
    held: VecDeque<u8>,
    /// Whether the beginning was met, or given up.
    begun: bool,
    since: Instant,
    heartbeat: Instant,
}

impl Session {
    /// Connects, greets, and tells the target to record.
    ///
    /// # Errors
    /// [`LinkError`] if nobody is there, or the connection breaks.
    pub fn start(address: &SystemViewAddress, timeout: Duration) -> Result<Self, LinkError> {
        let mut transport = crate::transport::open(&address.0, timeout)?;
        let mut first = Vec::new();
        let io = |source| LinkError::Open {
            address: address.0.clone(),
            source,
        };
        match &address.0 {
            Address::Serial { .. } => transport.write(&SERIAL_HELLO, timeout).map_err(io)?,
            Address::Tcp { port, .. } if *port == TCP_PORT => {
                transport.write(&TCP_HELLO, timeout).map_err(io)?;
            }
            Address::Tcp { port, .. } if *port == JLINK_PORT => {
                let choice = format!("$$SEGGER_TELNET_ConfigStr=RTTCh;{CHANNEL}$$");
                transport.write(choice.as_bytes(), timeout).map_err(io)?;
            }
            Address::Tcp { .. } => {
                let mut buffer = [0; 256];
                let read = transport.read(&mut buffer, GREETING).map_err(io)?;
                first.extend(buffer.get(..read).unwrap_or_default());
                // A recorder behind another port says who it is, or waits for the host to. To others the hello is a few
                // commands that they do not know.
                let is_recorder = first.is_empty() || first.starts_with(b"SEGGER SystemView");
                if is_recorder {
                    transport.write(&TCP_HELLO, timeout).map_err(io)?;
                }
            }
        }
        let now = Instant::now();
        let mut session = Self {
            transport,
            held: first.into(),
            begun: false,
            since: now,
            heartbeat: now,
        };
        let module = Command::Module as u8;
        let questions = [
            Command::Start as u8,
            Command::ModuleDescriptions as u8,
            module,
            0,
            module,
            1,
            module,
            2,
        ];
        session.transport.write(&questions, timeout).map_err(io)?;
        Ok(session)
    }

    /// Reads what comes, waiting for at most `timeout`; 0 if nothing came.
    ///
    /// # Errors
    /// As [`Transport::read`]: [`io::ErrorKind::UnexpectedEof`] at the end of the connection.
    pub fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.heartbeat.elapsed() >= HEARTBEAT {
            self.heartbeat = Instant::now();
            // A server that takes nothing may still send.
            let _ = self.transport.write(&[Command::Heartbeat as u8], timeout);
        }
        if !self.begun {
            let mut bytes = [0; 4096];
            match self.transport.read(&mut bytes, timeout) {
                Ok(read) => self.held.extend(bytes.iter().take(read)),
                Err(error) if self.held.is_empty() => return Err(error),
                // What is there is given first; the end is met again.
                Err(_) => self.begun = true,
            }
            self.look_for_beginning();
            if !self.begun {
                return Ok(0);
            }
        }
        if self.held.is_empty() {
            return self.transport.read(buffer, timeout);
        }
        let count = self.held.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.held.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    fn look_for_beginning(&mut self) {
        let bytes = self.held.make_contiguous();
        let length = SYNC.len();
        let is_start = |window: &[u8]| window.starts_with(&SYNC) && window.ends_with(&[10]);
        if let Some(at) = bytes.windows(length + 1).position(is_start) {
            self.held.drain(..at);
            self.begun = true;
        } else if self.begun || self.held.len() > BEFORE || self.since.elapsed() > BEGINNING {
            // The target does not listen, and was recording before.
            let greeting = greeting(self.held.make_contiguous());
            self.held.drain(..greeting);
            self.begun = !self.held.is_empty() || self.begun;
        }
    }

    /// Tells the target to stop. What it sends of that can still be read.
    pub fn stop(&mut self, timeout: Duration) {
        // If it does not hear it, it goes on without us.
        let _ = self.transport.write(&[Command::Stop as u8], timeout);
    }
}

/// Bytes of a greeting that a server sends before anything else.
fn greeting(bytes: &[u8]) -> usize {
    if bytes.starts_with(b"SEGGER SystemView") {
        return TCP_HELLO.len().min(bytes.len());
    }
    if bytes.starts_with(b"SEGGER J-Link") {
        let text = bytes
            .iter()
            .take_while(|byte| matches!(byte, b' '..=b'~' | b'\r' | b'\n'));
        return text.count();
    }
    if bytes.starts_with(b"SV") {
        return SERIAL_HELLO.len().min(bytes.len());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hosts_ports_and_serial_lines() {
        for (text, means) in [
            ("systemview:localhost:4000", "tcp:localhost:4000"),
            ("systemview:localhost", "tcp:localhost:19111"),
            ("systemview:[::1]", "tcp:[::1]:19111"),
            ("systemview:[::1]:9", "tcp:[::1]:9"),
            ("systemview:tcp:a:1", "tcp:a:1"),
            ("systemview:/dev/ttyACM0", "/dev/ttyACM0"),
        ] {
            let address: SystemViewAddress = text.parse().unwrap();
            assert_eq!(address.0.to_string(), means, "{text}");
        }
        assert!("systemview:".parse::<SystemViewAddress>().is_err());
    }

    #[test]
    fn greetings_are_no_packets() {
        assert_eq!(greeting(&TCP_HELLO), 32);
        assert_eq!(
            greeting(b"SEGGER J-Link V7.96\r\nProcess: x\r\n\x01\x02"),
            33
        );
        assert_eq!(greeting(b"SV\x01\x02\x22"), 4);
        assert_eq!(greeting(b"\x22\x01\x01\x05"), 0);
    }
}
