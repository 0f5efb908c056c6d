//! Transports: byte pipes between a target and the host. The counterpart of `kymo_transport.h`.
//!
//! A driver implements [`Transport`]; a driver with the traits of `embedded-io` is wrapped in `EmbeddedIo` (feature
//! `embedded-io`). [`Sender`] sends through a transport and counts losses. Code that may wait, such as Kymo's link
//! (`kymo::Link`), uses [`send`](Sender::send); user events, which must not wait, use [`emit`](Sender::emit).
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "embedded-io")]
mod embedded;

#[cfg(feature = "embedded-io")]
pub use embedded::EmbeddedIo;

/// The other end is not connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A byte pipe. No method waits for the other end.
pub trait Transport {
    /// Takes as many of the bytes as there is room for, from the first on, and returns their number.
    ///
    /// # Errors
    /// If the other end is not connected.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone>;

    /// Returns how many bytes [`write`](Self::write) would take now. By default it takes all, or none.
    ///
    /// # Errors
    /// If the other end is not connected.
    #[inline]
    fn room(&mut self) -> Result<usize, Gone> {
        Ok(usize::MAX)
    }

    /// Reads the bytes that have arrived, and returns their number. By default a transport only sends.
    ///
    /// # Errors
    /// If the other end is not connected.
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
        let _ = bytes;
        Ok(0)
    }
}

/// Losses of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Calls of [`send`](Sender::send) and [`emit`](Sender::emit) that lost bytes.
    pub writes: u32,
    /// Number of lost bytes.
    pub bytes: u32,
}

/// Sends through a transport and counts losses.
///
/// Its methods take `&mut self`: the caller excludes other writers, by a critical section or a mutex around the sender.
#[derive(Debug)]
pub struct Sender<T> {
    transport: T,
    patience: u32,
    lost: Lost,
}

impl<T> Sender<T> {
    /// Creates a sender that looks for room `patience` times in a row before it drops the rest.
    pub const fn new(transport: T, patience: u32) -> Self {
        Self {
            transport,
            patience,
            lost: Lost {
                writes: 0,
                bytes: 0,
            },
        }
    }

    /// Returns the losses so far.
    #[inline]
    pub const fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns the transport.
    #[inline]
    pub const fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    fn lose(&mut self, bytes: usize) -> bool {
        self.lost.writes = self.lost.writes.wrapping_add(1);
        self.lost.bytes = self.lost.bytes.wrapping_add(bytes as u32);
        false
    }
}

impl<T: Transport> Sender<T> {
    /// Sends all of the bytes, waiting for room. Returns false, and drops the rest, if the other end is gone or has
    /// taken nothing in `patience` attempts.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        let mut looks = 0;
        while !rest.is_empty() {
            match self.transport.write(rest) {
                Ok(0) if looks < self.patience => looks += 1,
                Ok(0) | Err(Gone) => return self.lose(rest.len()),
                Ok(some) => {
                    rest = rest.get(some..).unwrap_or_default();
                    looks = 0;
                }
            }
        }
        true
    }

    /// Sends a whole event without waiting, or drops it if there is no room. If there is room, `stamp` is called first
    /// to write the timestamp into the event. Other writers are excluded, so timestamps in the stream never decrease.
    #[inline]
    pub fn emit<const BYTES: usize>(
        &mut self,
        mut event: [u8; BYTES],
        stamp: impl FnOnce(&mut [u8; BYTES]),
    ) -> bool {
        if self.transport.room().is_ok_and(|room| room >= BYTES) {
            stamp(&mut event);
            if self.transport.write(&event) == Ok(BYTES) {
                return true;
            }
        }
        self.lose(BYTES)
    }

    /// Reads the bytes that have arrived, and returns their number.
    pub fn receive(&mut self, bytes: &mut [u8]) -> usize {
        self.transport.read(bytes).unwrap_or(0)
    }
}
