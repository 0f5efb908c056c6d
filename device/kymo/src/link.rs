//! Connects the recorder's link to a transport that the program supplies.

use kymo_transport::{Sender, Transport};

/// Access to the transport that carries the program's link.
///
/// ```no_run
/// use std::sync::Mutex;
///
/// use kymo::transport::{Gone, Sender, Transport};
/// use kymo::{Link, Packets, Recorder};
///
/// struct Uart;
///
/// impl Transport for Uart {
///     fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
///         # let _ = bytes;
///         todo!("puts bytes into the transmitter while it has room")
///     }
///     fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
///         # let _ = bytes;
///         todo!("takes bytes out of the receiver while it has some")
///     }
/// }
///
/// static UART: Mutex<Sender<Uart>> = Mutex::new(Sender::new(Uart, 100_000));
///
/// struct Console;
///
/// impl Link for Console {
///     type Transport = Uart;
///     fn with<R>(then: impl FnOnce(&mut Sender<Uart>) -> R) -> R {
///         then(&mut UART.lock().unwrap())
///     }
/// }
///
/// static EVENTS: Packets<1024, 64> = Packets::new();
///
/// kymo::recorder!(Recorder::new(&EVENTS).link::<Console>());
///
/// fn main() {
///     loop {
///         kymo::poll_link::<Console>();
///     }
/// }
/// ```
pub trait Link {
    /// The transport that carries the link's bytes.
    type Transport: Transport;

    /// Calls `then` with exclusive access to the sender: under one of the kernel's mutexes, or in a critical section.
    /// Recording continues meanwhile, except in interrupt handlers that a critical section masks.
    fn with<R>(then: impl FnOnce(&mut Sender<Self::Transport>) -> R) -> R;
}

/// Receives what the host has sent and executes its commands. Call it from a context that may wait for the transport.
pub fn poll_link<L: Link>() {
    let mut bytes = [0; 32];
    loop {
        let count = L::with(|sender| sender.receive(&mut bytes));
        for byte in bytes.iter().take(count) {
            crate::link_receive(*byte);
        }
        if count == 0 {
            break;
        }
    }
    crate::link_poll();
}

/// [`Config::send`](crate::Config::send) for a link.
///
/// # Safety
/// There are `count` readable bytes at `bytes`.
pub(crate) unsafe extern "C" fn send<L: Link>(bytes: *const u8, count: usize) {
    // SAFETY: by this function's contract.
    let bytes = unsafe { core::slice::from_raw_parts(bytes, count) };
    L::with(|sender| sender.send(bytes));
}
