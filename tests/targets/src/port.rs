//! TCP ports for emulated UARTs.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::{Background, Context, Error, Result};

/// First port, below the range from which the system assigns ports, and number of ports.
const FIRST: u32 = 16_384;
const COUNT: u32 = 16_384;

/// Distance between the first ports of two processes.
const APART: u32 = 16;

/// Returns a TCP port of this machine at which nothing listens.
///
///  An emulator binds it only later. Therefore the port is outside the range that the system assigns, and is returned
/// only once. Parallel processes start at different ports.
///
/// # Errors
/// If every port is in use.
pub fn free() -> Result<u16> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(APART);
    for _ in 0..COUNT {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + first.wrapping_add(given) % COUNT) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    let last = FIRST + COUNT - 1;
    Err(Error::new(format!(
        "expected a free TCP port from {FIRST} to {last}, found none"
    )))
}

/// Connects to a port as soon as a process listens there; later reads wait for at most `patience`.
///
/// # Errors
/// If the process ends, or does not listen within `patience`.
pub fn connect(process: &mut Background, port: u16, patience: Duration) -> Result<TcpStream> {
    let address = (Ipv4Addr::LOCALHOST, port);
    let what = format!("connecting to port {port}");
    let deadline = Instant::now() + patience;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => {
                stream.set_read_timeout(Some(patience)).context(&what)?;
                return Ok(stream);
            }
            Err(error) if Instant::now() > deadline => return Err(error).context(&what),
            Err(_) => {
                if let Some(status) = process.ended()? {
                    return Err(Error::new(format!("QEMU ended at once: {status}")));
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_port_is_given_once_and_is_free() {
        let ports: Vec<u16> = (0..40).map(|_| free().unwrap()).collect();
        for (n, port) in ports.iter().enumerate() {
            assert!(!ports[..n].contains(port), "{port}");
            assert!(u32::from(*port) >= FIRST && u32::from(*port) < FIRST + COUNT);
        }
        TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
    }

    #[test]
    fn nobody_waits_for_a_process_that_has_ended() {
        let mut process = Background::spawn(&mut Command::new("true")).unwrap();
        let error = connect(&mut process, free().unwrap(), Duration::from_secs(600)).unwrap_err();
        assert!(error.to_string().contains("ended at once"), "{error}");
    }
}
