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
//! Behind the greeting the host tells the target to start, which makes it describe itself. A target that was recording
//! already gets the commands to stop and to start again, as only then it sends its frequency. What comes before the
//! synchronization that a recording starts with (greetings, the middle of an older recording) is dropped.
//!
//! Sources: SEGGER's recorder for embOS and emNet (`SEGGER_SYSVIEW_Config_embOS*.c`) and for UARTs (`HIF_UART.c`), pyOCD's
//! `rtt_server.py`, OpenOCD's `rtt_server.c`, probe-rs's `rttui/tcp.rs`. Their ring for commands has 8 bytes, and pyOCD
//! looks at the first command of a segment only: commands are sent one at a time, with a pause between them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::str::FromStr;
use std::time::{Duration, Instant};

use kymo_systemview::{Command, SERIAL_HELLO, SYNC, TCP_HELLO, TCP_PORT};

use crate::rtt::{self, GREETING, JLINK_PORT};
use crate::{Address, AddressError, Cancel, LinkError, TcpTransport, Transport};

/// The channel of SystemView as targets have it by default.
const CHANNEL: u8 = 1;

/// How long a recorder is given to answer the greeting.
const ANSWER: Duration = Duration::from_millis(500);

/// The pause between commands.
const COMMAND_EVERY: Duration = Duration::from_millis(100);

/// How long a recording is given to begin; then the target gets the commands to stop and to start again.
const RESTART: Duration = Duration::from_secs(1);

/// The same; then everything is passed on.
const BEGINNING: Duration = Duration::from_secs(3);

/// Bytes that may come before a recording's beginning.
const BEFORE: usize = 1 << 16;

/// How often a target hears that somebody listens.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How often a connection is looked for while none has come.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Where a target of SystemView is: `systemview:HOST:PORT`, `systemview:HOST`, `systemview:` and a serial port, or
/// `systemview:listen:HOST:PORT` for a server that connects to Kymo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemViewAddress {
    /// The target, or where to wait for it.
    pub address: Address,
    /// Whether the other side connects.
    pub listen: bool,
}

/// What such addresses begin with.
pub const PREFIX: &str = "systemview:";

/// What follows if the other side connects.
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

/// How commands reach the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Plain,
    /// A byte with their number of bytes comes before them.
    Counted,
}

/// A recording as it comes.
pub struct Session {
    transport: Box<dyn Transport>,
    framing: Framing,
    /// Commands that were not sent yet.
    commands: VecDeque<Vec<u8>>,
    /// When the last one was sent.
    sent: Instant,
    /// Bytes from the recording's beginning on that were not asked for yet.
    held: VecDeque<u8>,
    /// Whether the beginning was met, or given up.
    begun: bool,
    has_beginning: bool,
    restarted: bool,
    since: Instant,
    heartbeat: Instant,
}

impl Session {
    /// Connects, greets, and tells the target to record. A connection that comes from the other side is waited for until
    /// `cancel` is set.
    ///
    /// # Errors
    /// [`LinkError`] if nobody is there, or the connection breaks.
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
        let now = Instant::now();
        let mut session = Self {
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

    /// Sends the command that is next.
    fn send_next(&mut self, timeout: Duration) -> io::Result<()> {
        let Some(mut command) = self.commands.pop_front() else {
            return Ok(());
        };
        self.sent = Instant::now();
        if self.framing == Framing::Counted {
            command.insert(0, u8::try_from(command.len()).unwrap_or(u8::MAX));
        }
        self.transport.write(&command, timeout)
    }

    /// Reads what comes, waiting for at most `timeout`; 0 if nothing came.
    ///
    /// # Errors
    /// As [`Transport::read`]: [`io::ErrorKind::UnexpectedEof`] at the end of the connection.
    pub fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        if self.heartbeat.elapsed() >= HEARTBEAT {
            self.heartbeat = Instant::now();
            self.commands.push_back(vec![Command::Heartbeat as u8]);
        }
        if self.sent.elapsed() >= COMMAND_EVERY {
            // A server that takes nothing may still send.
            let _ = self.send_next(timeout);
        }
        if !self.begun {
            let mut bytes = [0; 4096];
            match self.receive(&mut bytes, timeout) {
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
            return self.receive(buffer, timeout);
        }
        let count = self.held.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(self.held.drain(..count)) {
            *to = from;
        }
        Ok(count)
    }

    /// Reads from the connection. A server that closes it without having read all commands resets it, which is an end like
    /// another: what it sent came before.
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
        let waited = self.since.elapsed();
        if let Some(at) = bytes.windows(length + 1).position(is_start) {
            self.held.drain(..at);
            self.begun = true;
            self.has_beginning = true;
        } else if self.begun || self.held.len() > BEFORE || waited > BEGINNING {
            // The target does not listen, and was recording before.
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

    /// Whether the recording's beginning was met.
    pub const fn has_beginning(&self) -> bool {
        self.has_beginning
    }

    /// Tells the target to stop. What it sends of that can still be read.
    pub fn stop(&mut self, timeout: Duration) {
        self.commands = VecDeque::from([vec![Command::Stop as u8]]);
        // If it does not hear it, it goes on without us.
        let _ = self.send_next(timeout);
    }
}

/// Waits for the connection of a server that is a client of ours, as probe-rs is.
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

/// Finds out who is at a TCP port, and how commands reach the target there. Gives what came meanwhile.
fn greet(
    transport: &mut dyn Transport,
    port: u16,
    timeout: Duration,
) -> io::Result<(Vec<u8>, Framing)> {
    let mut first = Vec::new();
    let mut buffer = [0; 4096];
    // A recorder waits for the host. Of servers of RTT channels, J-Link's says at once who it is.
    if port != TCP_PORT && port != JLINK_PORT {
        let read = transport.read(&mut buffer, GREETING)?;
        first.extend(buffer.get(..read).unwrap_or_default());
    }
    if port == JLINK_PORT || rtt::is_jlink(&first) {
        rtt::choose(transport, CHANNEL, timeout)?;
        return Ok((first, Framing::Plain));
    }
    // To a server of RTT channels the greeting is a few commands that targets do not know. Recorders take it in a segment
    // of its own, and nothing before they have answered.
    transport.write(&TCP_HELLO, timeout)?;
    let asked = Instant::now();
    while !is_answered(&first) {
        let left = ANSWER.saturating_sub(asked.elapsed());
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

/// What recorders begin with.
const RECORDER: &[u8] = b"SEGGER SystemView";

/// Whether the greeting of a recorder is whole. What the target had recorded before may come first.
fn is_answered(bytes: &[u8]) -> bool {
    let at = bytes.windows(RECORDER.len()).position(|it| it == RECORDER);
    at.is_some_and(|at| bytes.len() - at >= TCP_HELLO.len())
}

/// Bytes of a greeting that a server sends before anything else.
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

    /// A server that sends one piece and resets the connection, as one does that closes with commands unread.
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
