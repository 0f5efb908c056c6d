//! Detects which of the two protocols a target uses.
//!
//! Both share their line with a program's console, and a question must not harm another listener. A single line that is
//! harmless to both therefore has to suffice. All bytes received before the protocol is known are kept unchanged: they
//! may be frames of one protocol, or a dump of the other, which such a target sends when its buffer is full.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{RAW_BYTES, Target};
use crate::splitter::Piece;
use crate::{LinkError, zephyr};

/// The kind of target that [`Target::recognise`] detected.
pub enum Device {
    /// An identified Kymo target.
    Kymo(Box<Target>),
    /// A target that runs Zephyr's own instrumentation.
    Zephyr(Box<zephyr::Target>),
}

impl Target {
    /// Detects whether the target uses Kymo's protocol or that of Zephyr's own instrumentation.
    ///
    /// The first question is Kymo's, `identify`: it harms neither, and a Zephyr target answers it with a complaint at
    /// once. Only if there is no answer, a second question follows, `instr_ping`, which newer Zephyr targets answer
    /// when all other lines belong to a shell.
    ///
    /// # Errors
    /// As [`identify`](Self::identify), when it is neither; [`LinkError::TimedOut`] when it answered as a Zephyr target
    /// and then stopped answering.
    pub fn recognise(mut self) -> Result<Device, LinkError> {
        // Text can be told from other bytes only when the protocol is known.
        let console = self.text.console.take();
        let shown = Arc::new(Mutex::new(Vec::new()));
        if console.is_some() {
            let shown = Arc::clone(&shown);
            // What a target sends beyond the limit of `raw` is not worth more memory.
            self.set_console(move |text| {
                let mut shown = lock(&shown);
                let room = RAW_BYTES.saturating_sub(shown.len());
                shown.extend_from_slice(text.get(..room).unwrap_or(text));
            });
        }
        self.raw = Some(Vec::new());
        let result = self.identify();
        let raw = self.raw.take().unwrap_or_default();
        let error = match result {
            Ok(_) => {
                self.text.console = console;
                self.text.print(&lock(&shown));
                return Ok(Device::Kymo(Box::new(self)));
            }
            Err(error) => error,
        };
        let known = matches!(error, LinkError::Zephyr { .. });
        let silent = matches!(
            error,
            LinkError::NoAnswer { .. } | LinkError::NotKymo { .. }
        );
        let mut zephyr = zephyr::Target::over(self.transport, self.address, self.timeouts, console);
        // A dump may have arrived meanwhile; none of it may be lost.
        let dumps = zephyr.heard_before(&raw);
        if !(known || dumps || (silent && self.damaged == 0)) {
            return Err(error);
        }
        let requested = zephyr.clock.now();
        if zephyr.hello(!known && !dumps)? {
            Ok(Device::Zephyr(Box::new(zephyr)))
        } else if known || dumps {
            // It answered once, or sent a dump, and is silent now: the protocol is not the problem.
            Err(LinkError::TimedOut {
                command: "ping".to_owned(),
                waited: zephyr.clock.since(requested),
            })
        } else {
            Err(error)
        }
    }

    /// Treats the target as one that runs Zephyr's own instrumentation. Nothing is sent;
    /// [`greet`](zephyr::Target::greet) checks it.
    pub fn into_zephyr(mut self) -> zephyr::Target {
        let mut rest = |piece: Piece<'_>| {
            if let Piece::Text(text) = piece {
                self.text.take(text);
            }
        };
        self.splitter.flush(&mut rest);
        self.splitter.give_up_frame(&mut rest);
        self.text.expect_text();
        let console = self.text.console.take();
        zephyr::Target::over(self.transport, self.address, self.timeouts, console)
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
