//! A recording into a file: the identity line, then all packets, as `kymo` takes it.

use core::fmt::{self, Write as _};

use kymo_recorder::gate::Gate;

use crate::process::Process;
use crate::reader::View;
use crate::sys::{self, Errno};

impl Process {
    /// Writes all that was recorded so far to a file: the identity line, then all packets.
    ///
    /// Recording goes on afterwards; events that come meanwhile are counted as discarded. What a
    /// thread recorded that does not leave its hook within a second is left out.
    ///
    /// # Errors
    /// The system's; `EBUSY` if somebody else is reading, or receives a stream; `EINVAL` before the recorder is set up.
    /// `path` ends with a zero byte.
    pub fn save(&self, gate: &Gate, path: &[u8]) -> Result<(), Errno> {
        self.return_by(gate, false);
        self.write_to(gate, path)
    }

    #[inline(never)]
    fn write_to(&self, gate: &Gate, path: &[u8]) -> Result<(), Errno> {
        if self.config.get().is_none() {
            return Err(sys::EINVAL);
        }
        if self.is_streaming() {
            return Err(sys::EBUSY);
        }
        let identity = self.identity();
        let mut output = Output {
            file: sys::Output::create(path)?,
            result: Ok(()),
        };
        let view = View {
            process: self,
            gate,
        };
        view.hold()?;
        let _ = writeln!(output, "{identity}");
        let mut n = 0;
        while let Some(packet) = view.packet(n) {
            output.put(packet);
            n += 1;
        }
        let stuck = view.let_go();
        output.result?;
        output.file.close()?;
        if stuck { Err(sys::EBUSY) } else { Ok(()) }
    }

    /// Saves to `path`, when the process ends; what goes wrong is said on standard error. A fork
    /// adds its number to the name, so as not to write over its parent's file.
    pub fn save_at_exit(&self, gate: &Gate, path: &[u8]) {
        // A handler that ends the process does not come back to a hook either.
        self.return_by(gate, true);
        let mut full = Text::<4096>::new();
        full.put(path);
        if !self.original() {
            let _ = write!(full, ".{}", sys::process());
        }
        full.put(b"\0");
        if let Err(Errno(error)) = self.write_to(gate, full.bytes()) {
            let mut message = Text::<4200>::new();
            message.put(b"kymo: cannot save to ");
            message.put(path);
            let _ = writeln!(message, ": error {error}");
            sys::say(message.bytes());
        }
    }
}

/// A file that is being written, and the first error.
struct Output {
    file: sys::Output,
    result: Result<(), Errno>,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) {
        if self.result.is_ok() {
            self.result = self.file.write(bytes);
        }
    }
}

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// A short text; what does not fit is cut off.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    /// Adds bytes.
    pub fn put(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or(&mut []);
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text[..count]);
        self.length += count;
    }

    /// What there is.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or(&[])
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}
