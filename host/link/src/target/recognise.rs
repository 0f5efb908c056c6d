//! Which of the two protocols does a target speak?
//!
//! Both share their line with a program's console, and another listener must not be harmed by a
//! question. So one line has to do, which both take well; and all that comes before it is known who
//! answers is kept as it came, because for one protocol it may be frames, for the other a dump that the
//! target sends when its buffer is full.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{RAW_BYTES, Target};
use crate::splitter::Piece;
use crate::{LinkError, zephyr};

/// Who is at the other end, as [`Target::recognise`] finds out.
pub enum Device {
    /// A Kymo target, which has been identified.
    Kymo(Box<Target>),
    /// A target that runs Zephyr's own instrumentation.
    Zephyr(Box<zephyr::Target>),
}

impl Target {
    /// Finds out whether the target speaks Kymo's protocol or that of Zephyr's own instrumentation.
    ///
    /// The first question is Kymo's, `identify`: it harms neither, and a target of Zephyr's complains of
    /// it at once. Only one that says nothing to it hears a second question, `instr_ping`, to which the
    /// newer of those answer where they leave all other lines to a shell.
    ///
    /// # Errors
    /// As [`identify`](Self::identify), when it is neither; [`LinkError::TimedOut`] when it answered
    /// as a target of Zephyr's and then no more.
    pub fn recognise(mut self) -> Result<Device, LinkError> {
        // What is text and what is not shows only when it is known who writes.
        let console = self.text.console.take();
        let shown = Arc::new(Mutex::new(Vec::new()));
        if console.is_some() {
            let shown = Arc::clone(&shown);
            // A target that floods the line says nothing worth more memory than `raw` takes.
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
        // A dump may have come in between, of which nothing is to be lost.
        let dumps = zephyr.heard_before(&raw);
        if !(known || dumps || (silent && self.damaged == 0)) {
            return Err(error);
        }
        let asked = Instant::now();
        if zephyr.hello(!known && !dumps)? {
            Ok(Device::Zephyr(Box::new(zephyr)))
        } else if known || dumps {
            // It answered once, or sent a dump, and is silent now: which protocol it speaks is not
            // what is wrong.
            Err(LinkError::TimedOut {
                command: "ping".to_owned(),
                waited: asked.elapsed(),
            })
        } else {
            Err(error)
        }
    }

    /// The same target, taken for one that runs Zephyr's own instrumentation. Nothing is sent: whether
    /// it is one shows with [`greet`](zephyr::Target::greet).
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

/// What is behind a lock, also if somebody failed who held it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
