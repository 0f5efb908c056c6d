//! Saves a recording to a file: the identity line, then all packets, as `kymo` reads it.

use core::fmt::{self, Write as _};
use core::sync::atomic::Ordering;

use kymo_recorder::gate::Gate;

use super::Process;
use super::reader::View;
use crate::settings;
use crate::sys::{self, Errno};
use crate::text::Text;

/// Timeout at exit for threads that are exiting, in milliseconds.
const EXITING: u32 = 20;

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
    /// now. If other threads run, leaves the file that they record into as it is. Reports errors on standard error.
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
        // Other threads matter only to a recording that is complete in its file, or empty although a thread has called a
        // hook.
        let has_new_buffers =
            self.thread_buffers.count() > self.buffers_at_start.load(Ordering::Relaxed);
        let is_kept = self.recording.is_kept();
        let others_run = (is_kept || has_new_buffers && self.is_empty()) && self.others_run();
        // A thread whose buffer is being created has called a hook.
        if !others_run || !has_new_buffers {
            self.say_if_nothing_came(gate);
        }
        if others_run && is_kept {
            // They record until the process is gone: in the file as it is nothing of that is lost.
            let view = View {
                process: self,
                gate,
            };
            if view.begin(true).is_ok() {
                self.reading.release();
            }
            return;
        }
        sys::without_file_signals(|| {
            let write = |open: &mut dyn FnMut() -> _| self.write_to(gate, open);
            self.recording.finish(write);
        });
    }

    /// Returns whether the process has other threads, which may call hooks until it is gone. Waits for those that are just
    /// exiting: a thread can be joined before the kernel has removed it.
    fn others_run(&self) -> bool {
        for _ in 0..EXITING {
            if sys::is_alone() {
                return false;
            }
            sys::sleep(1_000_000);
        }
        true
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

    /// Returns whether nothing has been recorded since the start.
    fn is_empty(&self) -> bool {
        self.recorded_bytes() <= self.bytes_at_start.load(Ordering::Relaxed)
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
        } else if !self.is_empty() {
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
        } else if self.has_followers() {
            (
                b"no function with patchable entries was called",
                b"compile with -fpatchable-function-entry=7,5 (on AArch64 =2) what is to be recorded",
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
