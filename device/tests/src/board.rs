//! Boards in QEMU with a connection to the test as their host.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kymo_wire::link::Identity;

use crate::{Host, Packet, packets};

/// Time-out of an answer from a board on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1200);

/// How often `identify` is repeated within that time.
const TRIES: u32 = 120;

/// A board with its UART.
#[derive(Debug)]
pub struct Board {
    qemu: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
}

impl Board {
    /// Starts QEMU with the board's UART connected.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(qemu: &mut Command) -> Self {
        let mut qemu = qemu
            .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("QEMU runs");
        let input = qemu.stdin.take().expect("it is piped");
        let mut from = qemu.stdout.take().expect("it is piped");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count) = from.read(&mut buffer) {
                if count == 0 || sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            qemu,
            input,
            output,
        }
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the connection is lost.
    pub fn say(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).expect("QEMU reads");
    }

    /// Sends bytes, and receives until `done`.
    ///
    /// # Panics
    /// When nothing arrives before the time-out.
    pub fn talk(&mut self, bytes: &[u8], done: impl Fn(&Host) -> bool) -> Host {
        // The UART of the board holds one byte; QEMU waits, but a polling loop needs its time.
        self.say(bytes);
        let mut host = Host::default();
        while !done(&host) {
            let heard = self
                .output
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no answer to {bytes:?}: {host:?}"));
            host.hear(&heard);
        }
        host
    }

    /// Requests the board's identity repeatedly, because a board that is just starting receives nothing, or only the
    /// end of the question, which it does not understand.
    ///
    /// # Panics
    /// When it does not answer, or not with a valid line.
    pub fn identify(&mut self) -> Identity {
        let mut host = Host::default();
        for _ in 0..TRIES {
            self.say(b"identify\r");
            while let Ok(heard) = self.output.recv_timeout(PATIENCE / TRIES) {
                host.hear(&heard);
                if host.text.ends_with('\n') {
                    match host.text.lines().last().and_then(Identity::parse) {
                        Some(identity) => return identity,
                        None => break,
                    }
                }
            }
        }
        panic!("no answer: {host:?}")
    }

    /// Executes a command, and returns the reply.
    ///
    /// # Panics
    /// When it is refused.
    pub fn command(&mut self, command: &str) -> String {
        let host = self.talk(&Host::command(5, command), |host| !host.replies.is_empty());
        let (_, ok, text) = host.replies[0].clone();
        assert!(ok, "{command}: {text}");
        text
    }

    /// Fetches a dump.
    ///
    /// # Panics
    /// When it does not arrive completely.
    pub fn dump(&mut self, command: &str) -> Vec<u8> {
        let host = self.talk(&Host::command(5, command), |host| !host.ends.is_empty());
        self.command("done");
        host.dump()
    }

    /// Fetches the trace.
    ///
    /// # Panics
    /// When it violates the format's description.
    pub fn trace(&mut self, identity: &Identity) -> Vec<Packet> {
        packets(
            &self.dump("dump_trace"),
            identity.layout,
            identity.text_base,
        )
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
