//! Live targets of SEGGER SystemView: its recorder over TCP or a serial line, and servers of RTT channels.
//!
//! | where | greeting | commands |
//! |---|---|---|
//! | TCP port 19111: the recorder of a target | the host sends 32 bytes `SEGGER SystemView V...` alone, the target answers likewise | each behind its number of bytes |
//! | another TCP port that answers this greeting: pyOCD's mode `systemview-server`, a recorder | the same | the same |
//! | TCP port 19021, or one that says `SEGGER J-Link`: J-Link's RTT server | the server sends lines of text; the host chooses the channel within 100 ms | plain |
//! | other TCP ports: the RTT servers of OpenOCD and pyOCD | none, or a line of text | plain |
//! | a connection that comes to Kymo (`systemview:listen:...`): probe-rs | none | plain, if it takes them |
//! | a serial line: the recorder of a target | 4 bytes `SV` and a version each way, the host first | plain |
//!
//! After the greeting the host sends the command to start, which makes the target describe itself. A target that was
//! already recording gets the commands to stop and to start again, because only then it sends its frequency. Bytes
//! before the synchronization at the beginning of a recording (greetings, the middle of an older recording) are
//! dropped.
//!
//! Sources: SEGGER's recorder for embOS and emNet (`SEGGER_SYSVIEW_Config_embOS*.c`) and for UARTs (`HIF_UART.c`), pyOCD's
//! `rtt_server.py`, OpenOCD's `rtt_server.c`, probe-rs's `rttui/tcp.rs`. Their ring for commands has 8 bytes, and pyOCD
//! looks at the first command of a segment only: commands are sent one at a time, with a pause between them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kymo_systemview::{Command, SERIAL_HELLO, SYNC, TCP_HELLO, TCP_PORT};

use crate::rtt::{self, GREETING, JLINK_PORT};
use crate::{Address, AddressError, Cancel, Clock, LinkError, TcpTransport, Transport};

/// Default channel of SystemView on targets.
const CHANNEL: u8 = 1;

/// Time-out of a recorder's answer to the greeting.
const ANSWER: Duration = Duration::from_millis(500);

/// Pause between commands.
const COMMAND_EVERY: Duration = Duration::from_millis(100);

/// How long to wait for the beginning of a recording before the target gets the commands to stop and to start again.
const RESTART: Duration = Duration::from_secs(1);

/// How long to wait for the beginning of a recording before all bytes are passed on.
const BEGINNING: Duration = Duration::from_secs(3);

/// Greatest number of bytes before a recording's beginning.
const BEFORE: usize = 1 << 16;

/// Interval of the messages that tell a target that the host still listens.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Polling interval while waiting for an incoming connection.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Address of a SystemView target: `systemview:HOST:PORT`, `systemview:HOST`, `systemview:` and a serial port, or
/// `systemview:listen:HOST:PORT` for a server that connects to Kymo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemViewAddress {
    /// Address of the target, or the one to listen at.
    pub address: Address,
    /// Whether the other side opens the connection.
    pub listen: bool,
}

/// Prefix of such addresses.
pub const PREFIX: &str = "systemview:";

/// What follows the prefix if the other side opens the connection.
const LISTEN: &str = "listen:";

impl FromStr for SystemViewAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix(PREFIX).unwrap_or(text);
        if let Some(at) = rest.strip_prefix(LISTEN) {
            let address = match at.contains(':') {
                true => format!("tcp:{at}").parse(),
                false => format!("tcp:localhost:{at}").parse(),
            };
            return address.map(|address| Self {
                address,
                listen: true,
            });
        }
        let is_whole = rest.starts_with(['/', '.'])
            || ["serial:", "COM", "rtt:", "memory:"]
                .iter()
                .any(|prefix| rest.starts_with(prefix));
        let rest = rest.strip_prefix("tcp:").unwrap_or(rest);
        let has_port = rest
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.contains(']'));
        let address = match (is_whole, has_port) {
            (true, _) => rest.parse(),
            (false, true) => format!("tcp:{rest}").parse(),
            (false, false) => format!("tcp:{rest}:{TCP_PORT}").parse(),
        };
        address.map(|address| Self {
            address,
            listen: false,
        })
    }
}

impl fmt::Display for SystemViewAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.address.to_string();
        let listen = if self.listen { LISTEN } else { "" };
        let rest = text.strip_prefix("tcp:").unwrap_or(&text);
        write!(f, "{PREFIX}{listen}{rest}")
    }
}

/// How commands are sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Plain,
    /// Preceded by a byte with their number of bytes.
    Counted,
}

/// A recording that is being received.
pub struct Session {
    clock: Arc<dyn Clock>,
    transport: Box<dyn Transport>,
    framing: Framing,
    /// Commands that have not been sent yet.
    commands: VecDeque<Vec<u8>>,
    /// When the last one was sent.
    sent: Instant,
    /// Bytes of the recording that have not been read yet.
    held: VecDeque<u8>,
    /// Whether the beginning was found, or the search was given up.
    begun: bool,
    has_beginning: bool,
    restarted: bool,
    since: Instant,
    heartbeat: Instant,
}

impl Session {
    /// Connects, greets, and tells the target to record. Waits for an incoming connection until `cancel` is set.
    ///
    /// # Errors
    /// [`LinkError`] if nothing answers, or the connection breaks.
    pub fn start(
        address: &SystemViewAddress,
        timeout: Duration,
        cancel: &Cancel,
    ) -> Result<Self, LinkError> {
        let mut transport = match address.listen {
            true => accept(&address.address, cancel)?,
            false => crate::transport::open(&address.address, timeout)?,
        };
        let io = |source| LinkError::Open {
            address: address.address.clone(),
            source,
        };
        let greeted = match &address.address {
            Address::Serial { .. } => transport
                .write(&SERIAL_HELLO, timeout)
                .map(|()| (Vec::new(), Framing::Plain)),
            _ if address.listen => Ok((Vec::new(), Framing::Plain)),
            Address::Rtt { .. } | Address::Memory { .. } | Address::Unix { .. } => {
                Ok((Vec::new(), Framing::Plain))
            }
            Address::Tcp { port, .. } => greet(&mut *transport, *port, timeout),
        };
        let (first, framing) = greeted.map_err(io)?;
        let module = Command::Module as u8;
        let questions = [
            vec![Command::Start as u8],
            vec![Command::ModuleDescriptions as u8],
            vec![module, 0],
            vec![module, 1],
            vec![module, 2],
        ];
        let clock = transport.clock();
        let now = clock.now();
        let mut session = Self {
            clock,
            transport,
            framing,
            commands: questions.into(),
            sent: now,
            held: first.into(),
            begun: false,
            has_beginning: false,
            restarted: false,
            since: now,
            heartbeat: now,
        };
        session.send_next(timeout).map_err(io)?;
        Ok(session)
    }

    /// Sends the next command.
    fn send_next(&mut self, timeout: Duration) -> io::Result<()> {
        let Some(mut command) = self.commands.pop_front() else {
            return Ok(());
        };
        self.sent = self.clock.now();
        if self.framing == Framing::Counted {
            command.insert(0, u8::try_from(command.len()).unwrap_or(u8::MAX));
        }
        self.transport.write(&command, timeout)
    }

    /// Reads received bytes, waiting for at most `timeout`; 0 if nothing arrived.
    ///
    /// # Errors
    /// As [`Transport::read`]: [`io::ErrorKind::UnexpectedEof`] at the end of the connection.
    pub fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.clock.since(self.heartbeat) >= HEARTBEAT {
            self.heartbeat = self.clock.now();
            self.commands.push_back(vec![Command::Heartbeat as u8]);
        }
        if self.clock.since(self.sent) >= COMMAND_EVERY {
            // A server that does not accept commands may still send.
            let _ = self.send_next(timeout);
        }
        if !self.begun {
            let mut bytes = [0; 4096];
            match self.receive(&mut bytes, timeout) {
                Ok(read) => self.held.extend(bytes.iter().take(read)),
                Err(error) if self.held.is_empty() => return Err(error),
                // Received bytes are returned first; the next read finds the end again.
                Err(_) => self.begun = true,
            }
            self.look_for_beginning();
            if !self.begun {
                return Ok(0);
            }
        }
        if self.held.is_empty() {
            return self.receive(buffer, timeout);
        }
        let count = self.held.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.held.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    /// Reads from the connection. A server that closes it without having read all commands resets it; that is a normal
    /// end, because what it sent arrived before.
    fn receive(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        let result = self.transport.read(buffer, timeout);
        result.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted => {
                io::Error::new(io::ErrorKind::UnexpectedEof, error)
            }
            _ => error,
        })
    }

    fn look_for_beginning(&mut self) {
        let bytes = self.held.make_contiguous();
        let length = SYNC.len();
        let is_start = |window: &[u8]| window.starts_with(&SYNC) && window.ends_with(&[10]);
        let waited = self.clock.since(self.since);
        if let Some(at) = bytes.windows(length + 1).position(is_start) {
            self.held.drain(..at);
            self.begun = true;
            self.has_beginning = true;
        } else if self.begun || self.held.len() > BEFORE || waited > BEGINNING {
            // The target ignores commands, and was already recording.
            let greeting = greeting(self.held.make_contiguous());
            self.held.drain(..greeting);
            self.begun = !self.held.is_empty() || self.begun;
        } else if waited > RESTART && !self.restarted {
            self.restarted = true;
            let again = [Command::Stop, Command::Start, Command::ModuleDescriptions];
            self.commands
                .extend(again.map(|command| vec![command as u8]));
        }
    }

    /// Whether the recording's beginning was found.
    pub const fn has_beginning(&self) -> bool {
        self.has_beginning
    }

    /// Tells the target to stop. Bytes that it still sends can be read.
    pub fn stop(&mut self, timeout: Duration) {
        self.commands = VecDeque::from([vec![Command::Stop as u8]]);
        // Without this command the target just continues to record.
        let _ = self.send_next(timeout);
    }
}

/// Waits for a server that connects to Kymo as a client, as probe-rs does.
fn accept(address: &Address, cancel: &Cancel) -> Result<Box<dyn Transport>, LinkError> {
    let io = |source| LinkError::Open {
        address: address.clone(),
        source,
    };
    let Address::Tcp { host, port } = address else {
        return Err(io(io::ErrorKind::InvalidInput.into()));
    };
    let listener = TcpListener::bind((host.as_str(), *port)).map_err(io)?;
    listener.set_nonblocking(true).map_err(io)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(io)?;
                return Ok(Box::new(TcpTransport::of(stream)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(io(error)),
        }
        if cancel.is_cancelled() {
            return Err(LinkError::Cancelled);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Detects the kind of server at a TCP port and how it expects commands. Returns the bytes received meanwhile.
fn greet(
    transport: &mut dyn Transport,
    port: u16,
    timeout: Duration,
) -> io::Result<(Vec<u8>, Framing)> {
    let mut first = Vec::new();
    let mut buffer = [0; 4096];
    // A recorder waits for the host. Of RTT servers, J-Link's identifies itself at once.
    if port != TCP_PORT && port != JLINK_PORT {
        let read = transport.read(&mut buffer, GREETING)?;
        first.extend(buffer.get(..read).unwrap_or_default());
    }
    if port == JLINK_PORT || rtt::is_jlink(&first) {
        rtt::choose(transport, CHANNEL, timeout)?;
        return Ok((first, Framing::Plain));
    }
    // A target behind an RTT server takes the greeting for a few unknown commands. Recorders expect it in a segment of
    // its own, and nothing before they have answered.
    transport.write(&TCP_HELLO, timeout)?;
    let clock = transport.clock();
    let requested = clock.now();
    while !is_answered(&first) {
        let left = ANSWER.saturating_sub(clock.since(requested));
        if left.is_zero() {
            break;
        }
        match transport.read(&mut buffer, left) {
            Ok(read) => first.extend(buffer.get(..read).unwrap_or_default()),
            Err(error) if first.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    let framing = match port == TCP_PORT || is_answered(&first) {
        true => Framing::Counted,
        false => Framing::Plain,
    };
    Ok((first, framing))
}

/// Beginning of a recorder's greeting.
const RECORDER: &[u8] = b"SEGGER SystemView";

/// Whether the greeting of a recorder is complete. Bytes that the target recorded before may precede it.
fn is_answered(bytes: &[u8]) -> bool {
    let at = bytes.windows(RECORDER.len()).position(|it| it == RECORDER);
    at.is_some_and(|at| bytes.len() - at >= TCP_HELLO.len())
}

/// Length of a greeting that a server sends before anything else.
fn greeting(bytes: &[u8]) -> usize {
    if bytes.starts_with(RECORDER) {
        return TCP_HELLO.len().min(bytes.len());
    }
    if bytes.starts_with(b"SV") {
        return SERIAL_HELLO.len().min(bytes.len());
    }
    rtt::greeting(bytes)
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
            ("systemview:rtt:localhost:9090/1", "rtt:localhost:9090/1"),
            ("systemview:/dev/ttyACM0", "/dev/ttyACM0"),
        ] {
            let address: SystemViewAddress = text.parse().unwrap();
            assert_eq!(address.address.to_string(), means, "{text}");
            assert!(!address.listen);
        }
        assert!("systemview:".parse::<SystemViewAddress>().is_err());
        for (text, means) in [
            ("systemview:listen:4000", "systemview:listen:localhost:4000"),
            (
                "systemview:listen:[::1]:4000",
                "systemview:listen:[::1]:4000",
            ),
        ] {
            let address: SystemViewAddress = text.parse().unwrap();
            assert!(address.listen);
            assert_eq!(address.to_string(), means, "{text}");
        }
        assert!("systemview:listen:x".parse::<SystemViewAddress>().is_err());
    }

    /// A server that sends one piece and resets the connection, as a server does that closes with unread commands.
    struct Resets(Option<Vec<u8>>);

    impl Transport for Resets {
        fn read(&mut self, buffer: &mut [u8], _: Duration) -> io::Result<usize> {
            let bytes = self.0.take().ok_or(io::ErrorKind::ConnectionReset)?;
            buffer
                .get_mut(..bytes.len())
                .unwrap()
                .copy_from_slice(&bytes);
            Ok(bytes.len())
        }

        fn write(&mut self, _: &[u8], _: Duration) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_connection_that_is_reset_has_ended() {
        let stream = [&SYNC[..], &[10, 0, 17, 5]].concat();
        let now = Instant::now();
        for begun in [false, true] {
            let mut session = Session {
                clock: Arc::new(crate::SystemClock),
                transport: Box::new(Resets(Some(stream.clone()))),
                framing: Framing::Plain,
                commands: VecDeque::new(),
                sent: now,
                held: VecDeque::new(),
                begun,
                has_beginning: begun,
                restarted: false,
                since: now,
                heartbeat: now,
            };
            let mut buffer = [0; 100];
            let read = session.read(&mut buffer, Duration::ZERO).unwrap();
            assert_eq!(buffer[..read], stream);
            let end = session.read(&mut buffer, Duration::ZERO).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
        }
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
