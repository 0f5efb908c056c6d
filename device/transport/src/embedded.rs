//! Adapter for drivers that implement the traits of `embedded-io`.

use embedded_io::{Read, ReadReady, Write, WriteReady};

use crate::{Gone, Transport};

/// A driver of `embedded-io` as a [`Transport`]. It is written to and read from only when it is ready, so that neither
/// blocks. An error counts as a disconnected other end. For [`Sender::send`](crate::Sender::send) only: a driver does
/// not report whether it has room for a whole event.
#[derive(Debug)]
pub struct EmbeddedIo<T>(pub T);

impl<T: Read + ReadReady + Write + WriteReady> Transport for EmbeddedIo<T> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Gone> {
        match self.0.write_ready() {
            Ok(true) => self.0.write(bytes).map_err(|_| Gone),
            Ok(false) => Ok(0),
            Err(_) => Err(Gone),
        }
    }

    /// A driver guarantees only one byte.
    fn room(&mut self) -> Result<usize, Gone> {
        self.0.write_ready().map(usize::from).map_err(|_| Gone)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Gone> {
        match self.0.read_ready() {
            Ok(true) => self.0.read(bytes).map_err(|_| Gone),
            Ok(false) => Ok(0),
            Err(_) => Err(Gone),
        }
    }
}
