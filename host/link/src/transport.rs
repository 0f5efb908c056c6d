//! How bytes get to a target and back: TCP connections, sockets of this machine and serial ports behind one trait.
//!
//! All could wait forever in their own ways (a peer that does not read, a port that vanished), so
//! the trait asks for a time-out at every step and each transport keeps it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Address, LinkError, memory, rtt};

/// A stream of bytes in both directions, on which no call waits for longer than its time-out.
pub trait Transport: Send {
    /// Reads what is there, waiting for at most `timeout` for the first byte. `Ok(0)` means that
    /// nothing came in that time.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the other side has ended the connection; otherwise
    /// what the system says.
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize>;

    /// Writes all of `bytes` within `timeout`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when the other side did not take them in time; otherwise what
    /// the system says.
    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()>;
}

/// Opens what `address` names, waiting for a TCP connection for at most `timeout`.
pub(crate) fn open(address: &Address, timeout: Duration) -> Result<Box<dyn Transport>, LinkError> {
    Ok(match address {
        Address::Tcp { host, port } => Box::new(TcpTransport::connect(host, *port, timeout)?),
        Address::Rtt {
            host,
            port,
            channel,
        } => rtt::open(address, host, *port, *channel, timeout)?,
        Address::Memory {
            path,
            base,
            channel,
        } => memory::open(address, path, *base, *channel, timeout)?,
        Address::Unix { path } => unix::connect(path)?,
        Address::Serial { path, baud } => Box::new(SerialTransport::open(path, *baud)?),
    })
}

/// A transport that has been closed.
pub(crate) struct Closed;

impl Transport for Closed {
    fn read(&mut self, _: &mut [u8], _: Duration) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn write(&mut self, _: &[u8], _: Duration) -> io::Result<()> {
        Err(io::ErrorKind::NotConnected.into())
    }
}

/// Reads as [`Transport::read`] promises, from something whose reads end with an error after the
/// time-out that it has been given.
fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    match source.read(buffer) {
        Ok(0) if !buffer.is_empty() => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "closed by the other side",
        )),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(0)
        }
        result => result,
    }
}

/// Writes all of `bytes` piece by piece; `write` gets the time that is left for its piece.
fn write_pieces(
    bytes: &[u8],
    timeout: Duration,
    mut write: impl FnMut(&[u8], Duration) -> io::Result<usize>,
) -> io::Result<()> {
    let deadline = Instant::now() + timeout;
    let mut rest = bytes;
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the other side does not take what is sent",
            ));
        }
        match write(rest, left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => rest = rest.get(written..).unwrap_or(&[]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A TCP connection.
#[derive(Debug)]
pub struct TcpTransport(TcpStream);

impl TcpTransport {
    /// A connection that the other side has opened.
    pub(crate) fn of(stream: TcpStream) -> Self {
        // As for those of ours: see [`connect`](Self::connect).
        let _ = stream.set_nodelay(true);
        Self(stream)
    }

    /// Connects to the first address of `host` that accepts, within `timeout` over all of them
    /// (the look-up of the name is the system's and has the system's own time-out).
    ///
    /// # Errors
    /// [`LinkError::NotFound`], [`LinkError::ConnectionRefused`], [`LinkError::ConnectTimeout`] or
    /// [`LinkError::Open`].
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, LinkError> {
        let address = || Address::Tcp {
            host: host.to_owned(),
            port,
        };
        let candidates = (host, port)
            .to_socket_addrs()
            .map_err(|source| LinkError::NotFound {
                address: address(),
                source,
            })?;
        let deadline = Instant::now() + timeout;
        let mut last = None;
        for candidate in candidates {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&candidate, left) {
                Ok(stream) => {
                    // Commands are small and each waits for its answer: Nagle's delay would only
                    // add to that. Where it cannot be turned off, it is slower and still right.
                    let _ = stream.set_nodelay(true);
                    return Ok(Self(stream));
                }
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                LinkError::ConnectionRefused { address: address() }
            }
            Some(source) if source.kind() != io::ErrorKind::TimedOut => LinkError::Open {
                address: address(),
                source,
            },
            _ => LinkError::ConnectTimeout {
                address: address(),
                waited: timeout,
            },
        })
    }
}

/// A time-out that the system takes: it refuses zero.
fn at_least_a_millisecond(timeout: Duration) -> Duration {
    timeout.max(Duration::from_millis(1))
}

impl Transport for TcpTransport {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        self.0
            .set_read_timeout(Some(at_least_a_millisecond(timeout)))?;
        read_some(&mut self.0, buffer)
    }

    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        write_pieces(bytes, timeout, |bytes, left| {
            self.0
                .set_write_timeout(Some(at_least_a_millisecond(left)))?;
            self.0.write(bytes)
        })
    }
}

/// Sockets of this machine.
#[cfg(unix)]
mod unix {
    use std::io::{self, Write};
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::time::Duration;

    use super::{Transport, at_least_a_millisecond, read_some, write_pieces};
    use crate::{Address, LinkError};

    struct UnixTransport(UnixStream);

    /// Connects to the process that serves a socket.
    pub(super) fn connect(path: &Path) -> Result<Box<dyn Transport>, LinkError> {
        let address = Address::Unix {
            path: path.to_owned(),
        };
        match UnixStream::connect(path) {
            Ok(stream) => Ok(Box::new(UnixTransport(stream))),
            Err(source) => Err(match source.kind() {
                io::ErrorKind::ConnectionRefused => LinkError::ConnectionRefused { address },
                io::ErrorKind::NotFound => LinkError::NotFound { address, source },
                io::ErrorKind::PermissionDenied => LinkError::PermissionDenied { address, source },
                _ => LinkError::Open { address, source },
            }),
        }
    }

    impl Transport for UnixTransport {
        fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
            self.0
                .set_read_timeout(Some(at_least_a_millisecond(timeout)))?;
            read_some(&mut self.0, buffer)
        }

        fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
            write_pieces(bytes, timeout, |bytes, left| {
                self.0
                    .set_write_timeout(Some(at_least_a_millisecond(left)))?;
                self.0.write(bytes)
            })
        }
    }
}

/// There are none here.
#[cfg(not(unix))]
mod unix {
    use std::io;
    use std::path::Path;

    use super::Transport;
    use crate::{Address, LinkError};

    pub(super) fn connect(path: &Path) -> Result<Box<dyn Transport>, LinkError> {
        Err(LinkError::Open {
            address: Address::Unix {
                path: path.to_owned(),
            },
            source: io::ErrorKind::Unsupported.into(),
        })
    }
}

/// A serial port, held exclusively while it is open.
pub struct SerialTransport(Box<dyn serialport::SerialPort>);

impl SerialTransport {
    /// Opens the port with 8 data bits, no parity, 1 stop bit and no flow control.
    ///
    /// # Errors
    /// [`LinkError::NotFound`], [`LinkError::PermissionDenied`], [`LinkError::PortBusy`] or
    /// [`LinkError::Open`].
    pub fn open(path: &Path, baud: u32) -> Result<Self, LinkError> {
        let address = Address::Serial {
            path: path.to_owned(),
            baud,
        };
        match serialport::new(path.to_string_lossy(), baud).open() {
            Ok(port) => Ok(Self(port)),
            Err(error) => Err(open_error(address, path, error)),
        }
    }
}

/// What it means that a serial port could not be opened.
fn open_error(address: Address, path: &Path, error: serialport::Error) -> LinkError {
    let kind = error.kind();
    let source = io::Error::from(error);
    match kind {
        serialport::ErrorKind::Io(io::ErrorKind::PermissionDenied) => {
            LinkError::PermissionDenied { address, source }
        }
        serialport::ErrorKind::Io(io::ErrorKind::NotFound) => {
            LinkError::NotFound { address, source }
        }
        // The crate says the same of a port that is taken and of one that is not there.
        serialport::ErrorKind::NoDevice if path.exists() => LinkError::PortBusy { address },
        serialport::ErrorKind::NoDevice => LinkError::NotFound { address, source },
        _ => LinkError::Open { address, source },
    }
}

impl Transport for SerialTransport {
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
        self.0.set_timeout(at_least_a_millisecond(timeout))?;
        read_some(&mut self.0, buffer)
    }

    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()> {
        write_pieces(bytes, timeout, |bytes, left| {
            self.0.set_timeout(at_least_a_millisecond(left))?;
            self.0.write(bytes)
        })
    }
}
