//! Transports to targets: TCP connections, local sockets and serial ports behind one trait.
//!
//! Each of these can block forever in its own way (a peer that does not read, a port that disappeared), so every method
//! of the trait has a time-out, which each transport enforces.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Address, Clock, LinkError, SystemClock, memory, rtt};

/// Bidirectional byte stream; no call blocks longer than its time-out.
pub trait Transport: Send {
    /// Reads available bytes, waiting for at most `timeout` for the first. `Ok(0)` means that nothing arrived in that
    /// time.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the other side has ended the connection; otherwise the system's error.
    fn read(&mut self, buffer: &mut [u8], timeout: Duration) -> io::Result<usize>;

    /// Writes all of `bytes` within `timeout`.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when the other side did not accept them in time; otherwise the system's error.
    fn write(&mut self, bytes: &[u8], timeout: Duration) -> io::Result<()>;

    /// The clock by which its time-outs are measured: the system's, if a transport has no other.
    fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(SystemClock)
    }
}

/// Opens `address`, waiting for a TCP connection for at most `timeout`.
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

/// Reads as [`Transport::read`] specifies, from a source whose reads fail after the time-out that was set on it.
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

/// Writes all of `bytes` in pieces; `write` gets the remaining time for its piece.
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
    /// Wraps a connection that the other side has opened.
    pub(crate) fn of(stream: TcpStream) -> Self {
        // As for outgoing connections: see [`connect`](Self::connect).
        let _ = stream.set_nodelay(true);
        Self(stream)
    }

    /// Connects to the first address of `host` that accepts, within `timeout` over all of them (the name look-up has
    /// the system's own time-out).
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
                    // Commands are small and each waits for its answer, so Nagle's algorithm would only add delay.
                    // Where it cannot be disabled, the connection is slower but still works.
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

/// A time-out that the system accepts: it rejects zero.
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

/// Local sockets.
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

/// Local sockets do not exist on this system.
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

/// A serial port, opened exclusively.
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

/// Converts the error of opening a serial port.
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
        // The crate reports the same for a busy port and a missing one.
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
