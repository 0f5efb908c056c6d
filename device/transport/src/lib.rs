//! Transports: how bytes leave a target and how they arrive, whatever carries them. What `kymo_transport.h` is for C.
//!
//! A driver implements [`Transport`]; one that has the traits of `embedded-io` is wrapped in `EmbeddedIo` (feature
//! `embedded-io`). [`Sender`] sends through it and counts what is lost: with [`send`](Sender::send) what may wait, such as Kymo's
//! link (`kymo::Link`), and with [`emit`](Sender::emit) events of one's own, which may not.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "embedded-io")]
mod embedded;

#[cfg(feature = "embedded-io")]
pub use embedded::EmbeddedIo;

/// Nobody is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A way for bytes. No method waits for the other end.
pub trait Transport {
    /// Takes the first of these bytes, as many as there is room for, and returns how many.
    ///
    /// # Errors
    /// When nobody is at the other end.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone>;

    /// How many bytes [`write`](Self::write) would take now. Without this it takes all, or none.
    ///
    /// # Errors
    /// When nobody is at the other end.
    #[inline]
    fn room(&mut self) -> Result<usize, Gone> {
        Ok(usize::MAX)
    }

    /// Fills the first of these bytes with what has arrived, and returns how many. Without this nothing arrives.
    ///
    /// # Errors
    /// When nobody is at the other end.
    #[inline]
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
        let _ = bytes;
        Ok(0)
    }
}

/// What was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Calls of [`send`](Sender::send) and [`emit`](Sender::emit).
    pub writes: u32,
    /// Their bytes.
    pub bytes: u32,
}

/// Sends through a transport and counts what is lost.
///
/// Its methods take `&mut self`: whoever may call them has kept other writers off, by a critical section or a mutex around the
/// sender.
#[derive(Debug)]
pub struct Sender<T> {
    transport: T,
    patience: u32,
    lost: Lost,
}

impl<T> Sender<T> {
    /// A sender that looks for room `patience` times in a row before the rest is lost.
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

    /// What was lost so far.
    #[inline]
    pub const fn lost(&self) -> Lost {
        self.lost
    }

    /// The transport.
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
    /// Sends all of these bytes, and waits for room. False if the other end has gone, or has not taken anything for as many looks as
    /// there is patience: the rest is lost.
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

    /// Sends an event whole, or not at all if there is no room for it, without waiting. Where it is sent, `stamp` is called first, to
    /// write the time into it: as other writers are kept off, the times in the stream never step back.
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

    /// Fills the first of these bytes with what has arrived, and returns how many.
    pub fn receive(&mut self, bytes: &mut [u8]) -> usize {
        self.transport.read(bytes).unwrap_or(0)
    }
}
