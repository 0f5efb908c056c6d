//! Saves a recording to a file: the identity line, then all packets, as `kymo` reads it.

use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;

use crate::process::Process;
use crate::reader::View;
use crate::settings;
use crate::sys::{self, Errno};

impl Process {
    /// Writes the whole recording to a file: the identity line, then all packets.
    ///
    /// Recording continues afterwards; events that occur meanwhile are counted as discarded. The recording of a thread
    /// that does not leave its hook within ten seconds is omitted.
    ///
    /// # Errors
    /// The system's error; `EBUSY` if another reader is active, or receives a stream; `EINVAL` before the recorder is
    /// set up. `path` ends with a zero byte.
    pub fn save(&self, gate: &Gate, path: &[u8]) -> Result<(), Errno> {
        self.return_by(gate, false);
        sys::without_file_signals(|| self.write_to(gate, || sys::Output::create(path)))
    }

    #[inline(never)]
    fn write_to(
        &self,
        gate: &Gate,
        open: impl FnOnce() -> Result<sys::Output, Errno>,
    ) -> Result<(), Errno> {
        if self.config.get().is_none() {
            return Err(sys::EINVAL);
        }
        if self.is_streaming() {
            return Err(sys::EBUSY);
        }
        // No timestamp in the file is later than now, so this frequency is exact enough.
        let identity = self.identity_at(self.port.clock.hz_by_now());
        let mut output = Output {
            file: open()?,
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
        let stuck = view.resume();
        output.result?;
        output.file.close()?;
        if stuck { Err(sys::EBUSY) } else { Ok(()) }
    }

    /// Saves when the process exits: to the file that was named at the start, or to the one that `KYMO_OUTPUT` names
    /// now. Reports errors on standard error.
    pub fn save_at_exit(&self, gate: &Gate) {
        if self.is_spare() {
            return self.say_if_passed_over();
        }
        if self.recording.is_unused_child() {
            return;
        }
        if !self.recording.is_named() {
            match settings::output() {
                Some(output) => self.recording.name(output),
                None => return,
            }
        }
        // A handler that ends the process does not return to its hook either.
        self.return_by(gate, true);
        self.say_if_nothing_came(gate);
        sys::without_file_signals(|| {
            let write = |open: &mut dyn FnMut() -> _| self.write_to(gate, open);
            self.recording.finish(write);
        });
    }

    /// Reports on standard error if a library has called this copy of the recorder, although the program has another
    /// one.
    fn say_if_passed_over(&self) {
        let lost = self.unbuffered.load(Ordering::Relaxed);
        if lost > 0 && settings::output().is_some() {
            let mut message = Text::<300>::new();
            let _ = write!(
                message,
                "kymo: {lost} events of a library were not recorded: it calls a copy of Kymo of its own, and the program has \
                 another one\nkymo: link the program with kymo.specs, or -Wl,--export-dynamic-symbol=kymo_*\n"
            );
            sys::print(message.bytes());
        }
    }

    /// Reports on standard error if the recording is empty, and how to correct that.
    fn say_if_nothing_came(&self, gate: &Gate) {
        if self.config.get().is_none() {
            return;
        }
        let (problem, help): (&[u8], &[u8]) = if let Some(fault) = self.fault.get() {
            let mut message = Text::<200>::new();
            let _ = writeln!(
                message,
                "kymo: nothing was recorded: kymo_config is wrong: {fault}"
            );
            return sys::print(message.bytes());
        } else if self.is_passed_over() {
            // Markers and other events are recorded all the same.
            (
                b"functions call hooks of another library, as the C library's empty ones",
                b"the recorder is in a plug-in or library; link it to the program, with kymo.specs",
            )
        } else if self.recorded_bytes() > self.bytes_at_start.load(Ordering::Relaxed) {
            return;
        } else if !gate.state().was_ever_on() {
            (
                b"recording was never turned on",
                b"the trigger's function was not called, nor kymo_on()",
            )
        } else if self.is_in_duration() && self.thread_buffers.count() > 0 {
            (
                b"no call took as long as KYMO_THRESHOLD",
                b"a smaller one records more calls, and 0 all of them",
            )
        } else {
            (
                b"no hook was called",
                b"compile with -finstrument-functions, and link with \
                  -Wl,-u,__cyg_profile_func_enter -Wl,-u,__cyg_profile_func_exit libkymo.a, \
                  before which the C library's empty hooks must not come",
            )
        };
        let mut message = Text::<400>::new();
        let what: &[u8] = match self.is_passed_over() {
            true => b"kymo: no call was recorded: ",
            false => b"kymo: nothing was recorded: ",
        };
        message.put(what);
        message.put(problem);
        message.put(b"\nkymo: ");
        message.put(help);
        message.put(b"\n");
        sys::print(message.bytes());
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

/// Text buffer of fixed size; text that does not fit is cut off.
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// Creates an empty text.
    pub const fn new() -> Self {
        Self {
            bytes: [0; N],
            length: 0,
        }
    }

    /// Appends bytes.
    pub fn put(&mut self, text: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or(&mut []);
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text[..count]);
        self.length += count;
    }

    /// Empties the text.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Appends a zero byte, for which there is always room.
    pub fn end(&mut self) {
        self.length = self.length.min(N - 1);
        self.put(&[0]);
    }

    /// Returns the bytes of the text.
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
