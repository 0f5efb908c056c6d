//! Addresses of targets, and the parser for what a user types.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Default speed of a serial port, in bits per second.
pub const DEFAULT_BAUD: u32 = 115_200;

/// Prefix of the address of shared memory.
const MEMORY: &str = "memory:";

/// Prefix of the address of a local socket.
const UNIX: &str = "unix:";

/// Address of a target.
///
/// Written as `tcp:HOST:PORT` (an IPv6 host in brackets; `socket://HOST:PORT`, the form of pyserial and thus of
/// Zephyr's scripts, means the same), `rtt:HOST:PORT` (with `/CHANNEL` appended if it is not 0), `memory:FILE@ADDRESS`
/// (also with `/CHANNEL`), `unix:PATH`, or the path or name of a serial port (`/dev/ttyACM0`, `COM3`), optionally after
/// `serial:`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP port: a serial server, or a UART of QEMU.
    Tcp {
        /// The name or number of the host, without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// TCP port of a debug probe's server, which forwards one of the target's RTT channels.
    Rtt {
        /// The name or number of the host, without brackets.
        host: String,
        /// The port.
        port: u16,
        /// The channel, for servers with several channels on one port (J-Link's).
        channel: u8,
    },
    /// RTT's rings in memory that this machine shares with a guest.
    Memory {
        /// The file that contains the memory.
        path: PathBuf,
        /// The guest's address of the file's first byte.
        base: u64,
        /// The channel.
        channel: u8,
    },
    /// A local socket: a program on Linux that was started with `KYMO_SOCKET`.
    Unix {
        /// Its path.
        path: PathBuf,
    },
    /// A serial port of this machine.
    Serial {
        /// Its device.
        path: PathBuf,
        /// Its speed in bits per second.
        baud: u32,
    },
}

/// Error for a text that is not an [`Address`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is no address of a target: {problem}")]
pub struct AddressError {
    /// The text.
    pub given: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl Address {
    /// The serial port at `path`, with [`DEFAULT_BAUD`].
    pub fn serial(path: impl AsRef<Path>) -> Self {
        Self::Serial {
            path: path.as_ref().to_owned(),
            baud: DEFAULT_BAUD,
        }
    }

    /// The same address with another speed; addresses other than serial ports are unchanged.
    #[must_use]
    pub fn with_baud(self, speed: u32) -> Self {
        match self {
            Self::Serial { path, .. } => Self::Serial { path, baud: speed },
            other @ (Self::Tcp { .. }
            | Self::Rtt { .. }
            | Self::Memory { .. }
            | Self::Unix { .. }) => other,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Parses an address as a user writes it. A serial port gets [`DEFAULT_BAUD`]; the parser does not check that it
    /// exists.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = |problem| AddressError {
            given: text.to_owned(),
            problem,
        };
        if let Some(rest) = text.strip_prefix("rtt:") {
            let (at, channel) = match rest.rsplit_once('/') {
                Some((at, channel)) => (at, channel.parse()),
                None => (rest, Ok(0)),
            };
            let channel = channel.map_err(|_| error("expected a channel from 0 to 255"))?;
            let (host, port) = host_and_port(at).map_err(error)?;
            return Ok(Self::Rtt {
                host,
                port,
                channel,
            });
        }
        if let Some(rest) = text.strip_prefix(MEMORY) {
            let expected =
                "expected memory:FILE@ADDRESS, the guest's address of the file's first byte";
            let (path, at) = rest.rsplit_once('@').ok_or(error(expected))?;
            let (base, channel) = at.split_once('/').unwrap_or((at, "0"));
            let channel = channel.parse();
            let channel = channel.map_err(|_| error("expected a channel from 0 to 255"))?;
            let base = match base.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => base.parse(),
            };
            let base = base.map_err(|_| error(expected))?;
            if path.is_empty() {
                return Err(error(expected));
            }
            return Ok(Self::Memory {
                path: path.into(),
                base,
                channel,
            });
        }
        if let Some(path) = text.strip_prefix(UNIX) {
            return match path {
                "" => Err(error("expected unix:PATH, the name of a socket")),
                path => Ok(Self::Unix { path: path.into() }),
            };
        }
        let tcp = text
            .strip_prefix("tcp:")
            .or_else(|| text.strip_prefix("socket://"));
        let Some(rest) = tcp else {
            let path = text.strip_prefix("serial:").unwrap_or(text);
            return if path.is_empty() {
                Err(error("expected tcp:HOST:PORT or a serial port"))
            } else {
                Ok(Self::serial(path))
            };
        };
        let (host, port) = host_and_port(rest).map_err(error)?;
        Ok(Self::Tcp { host, port })
    }
}

/// Splits `HOST:PORT`; the error is the message.
fn host_and_port(text: &str) -> Result<(String, u16), &'static str> {
    let (host, port) = text
        .rsplit_once(':')
        .ok_or("expected a port behind the host, as in tcp:localhost:4000")?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if bare.is_none() && host.contains(':') {
        return Err("expected an IPv6 host in brackets, as in tcp:[::1]:4000");
    }
    let host = bare.unwrap_or(host);
    if host.is_empty() {
        return Err("expected a host before the port, as in tcp:localhost:4000");
    }
    match port.parse() {
        Ok(port) if port != 0 => Ok((host.to_owned(), port)),
        _ => Err("expected a port from 1 to 65535"),
    }
}

/// Writes the form that [`FromStr`] reads, without the speed of a serial port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp:{}:{port}", Host(host)),
            Self::Rtt {
                host,
                port,
                channel: 0,
            } => write!(f, "rtt:{}:{port}", Host(host)),
            Self::Rtt {
                host,
                port,
                channel,
            } => write!(f, "rtt:{}:{port}/{channel}", Host(host)),
            Self::Memory {
                path,
                base,
                channel,
            } => {
                write!(f, "{MEMORY}{}@{base:#x}", path.display())?;
                match channel {
                    0 => Ok(()),
                    channel => write!(f, "/{channel}"),
                }
            }
            Self::Unix { path } => write!(f, "{UNIX}{}", path.display()),
            Self::Serial { path, .. } => path.display().fmt(f),
        }
    }
}

/// A host, in brackets if it contains colons.
struct Host<'a>(&'a str);

impl fmt::Display for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.contains(':') {
            true => write!(f, "[{}]", self.0),
            false => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        for text in [
            "tcp:localhost:4000",
            "tcp:[::1]:1",
            "rtt:localhost:9090",
            "rtt:[::1]:19021/2",
            "memory:/dev/shm/guest@0x21000000",
            "memory:a@b@0x0/3",
            "unix:/run/user/1000/prog.sock",
            "/dev/ttyACM0",
            "COM3",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(
            "socket://localhost:4000".parse::<Address>(),
            "tcp:localhost:4000".parse()
        );
        assert_eq!(
            "serial:/dev/ttyS0".parse(),
            Ok(Address::serial("/dev/ttyS0"))
        );
        assert_eq!(
            Address::serial("x").with_baud(9600),
            Address::Serial {
                path: "x".into(),
                baud: 9600
            }
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("tcp:4000", "port behind the host"),
            ("tcp::4000", "host before the port"),
            ("tcp:a:0", "1 to 65535"),
            ("tcp:a:65536", "1 to 65535"),
            ("tcp:::1:4000", "brackets"),
            ("rtt:4000", "port behind the host"),
            ("rtt:a:1/256", "channel from 0 to 255"),
            ("rtt:a:1/", "channel from 0 to 255"),
            ("memory:/dev/shm/guest", "FILE@ADDRESS"),
            ("memory:@0", "FILE@ADDRESS"),
            ("memory:a@x", "FILE@ADDRESS"),
            ("memory:a@0/256", "channel from 0 to 255"),
            ("unix:", "name of a socket"),
            ("", "serial port"),
            ("serial:", "serial port"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
