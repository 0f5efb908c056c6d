//! Serial ports without a cable: a pseudo terminal whose other end is connected to a fake target.
#![cfg(unix)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kymo_fixtures::target::{Fake, State, noise};
use kymo_link::{Address, Cancel, LinkError, Target, Timeouts};
use kymo_wire::link::Command;
use serialport::{SerialPort, TTYPort};

/// A serial port connected to a target; dropping it ends the connection.
struct Cable {
    /// The path of the port.
    name: String,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Cable {
    fn to(fake: &Fake) -> Self {
        let (mut master, slave) = TTYPort::pair().expect("a pseudo terminal");
        let name = slave.name().expect("its name");
        master
            .set_timeout(Duration::from_millis(10))
            .expect("a time-out");
        let address = fake.address();
        let host = address.strip_prefix("tcp:").expect("a TCP address");
        let near = TcpStream::connect(host).expect("the target listens");
        near.set_read_timeout(Some(Duration::from_millis(10)))
            .expect("a time-out");
        let stop = Arc::new(AtomicBool::new(false));
        let copy = |mut from: Box<dyn Read + Send>, mut to: Box<dyn Write + Send>| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut buffer = [0; 512];
                while !stop.load(Ordering::Relaxed) {
                    // No data within the time-out, or the other end is not connected yet.
                    if let Ok(length) = from.read(&mut buffer)
                        && to.write_all(&buffer[..length]).is_err()
                    {
                        return;
                    }
                }
            })
        };
        let far = near.try_clone().expect("a second handle");
        let other = master.try_clone_native().expect("a second handle");
        let threads = vec![
            copy(Box::new(master), Box::new(far)),
            copy(Box::new(near), Box::new(other)),
        ];
        Self {
            name,
            stop,
            threads,
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            assert!(thread.join().is_ok() || std::thread::panicking());
        }
    }
}

#[test]
fn a_dump_over_a_serial_port() {
    let fake = Fake::start(State::new(noise(5_000), Vec::new()));
    let cable = Cable::to(&fake);
    let mut target = Target::open(&Address::serial(&cable.name), Timeouts::default())
        .expect("the port can be opened");
    assert_eq!(target.command(Command::Ping).expect("an answer"), "pong");
    let dump = target
        .dump_trace(&mut |_| {}, &Cancel::new())
        .expect("a dump");
    assert_eq!(dump.bytes, noise(5_000));
}

#[test]
fn a_port_is_held_by_one_program_only() {
    let fake = Fake::start(State::new(Vec::new(), Vec::new()));
    let cable = Cable::to(&fake);
    let address = Address::serial(&cable.name);
    let first = Target::open(&address, Timeouts::default()).expect("the port can be opened");
    let second = Target::open(&address, Timeouts::default()).err();
    assert!(
        matches!(second, Some(LinkError::PortBusy { .. })),
        "{second:?}"
    );
    drop(first);
    Target::open(&address, Timeouts::default()).expect("it is free again");
}
