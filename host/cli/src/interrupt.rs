//! Handler of signals that end the process: ctrl-C and termination requests.
//!
//! One handler serves the whole process. During a wait ([`Interruptible`]), the first signal only sets a flag.
//! Otherwise it ends the process, after removing incomplete files.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kymo_link::Cancel;

use crate::diagnostic::Report;

/// The exit code of a process that ctrl-C ended, as in shells.
const INTERRUPTED: i32 = 130;

/// Time after a signal in which another one is the same request: `timeout` signals the process, and then its group.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// State of the handler.
#[derive(Default)]
struct State {
    /// Cancelled by the next signal.
    waiting: Option<Cancel>,
    /// The time of the signal that cancelled it.
    cancelled: Option<Instant>,
    /// Files and directories to remove.
    temporaries: Vec<PathBuf>,
    /// Further actions before the process ends.
    last: Vec<Box<dyn FnOnce() + Send>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    waiting: None,
    cancelled: None,
    temporaries: Vec::new(),
    last: Vec::new(),
});

/// Whether the handler is installed, or why it can't be.
static INSTALLED: OnceLock<Result<(), Arc<ctrlc::Error>>> = OnceLock::new();

/// Locks the state, even if a thread failed while it held the lock.
fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a write beyond the user's file size limit (`ulimit -f`) fail with an error instead of ending the process.
pub fn outlive_size_limits() {
    #[cfg(unix)]
    {
        // (If this fails, the process ends as any other does.)
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    }
}

fn install() -> Result<(), Arc<ctrlc::Error>> {
    INSTALLED
        .get_or_init(|| ctrlc::set_handler(handle).map_err(Arc::new))
        .clone()
}

/// The handler: runs in a thread of its own, so that it may lock and remove files.
fn handle() {
    let mut state = state();
    if let Some(cancel) = state.waiting.as_ref().filter(|flag| !flag.is_cancelled()) {
        cancel.cancel();
        state.cancelled = Some(Instant::now());
        return;
    }
    if let (Some(_), Some(cancelled)) = (&state.waiting, state.cancelled) {
        if cancelled.elapsed() < SAME_REQUEST {
            return;
        }
        // (If standard error is closed, nobody reads it.)
        let _ = writeln!(
            io::stderr(),
            "kymo: ended at once by a second signal: the end of what was recorded may be missing"
        );
    }
    for path in state.temporaries.drain(..) {
        remove(&path);
    }
    for action in state.last.drain(..) {
        action();
    }
    // The lock is held, so no output is renamed any more.
    std::process::exit(INTERRUPTED);
}

fn remove(path: &Path) {
    // A file that can't be removed remains.
    let _ = match path.is_dir() {
        true => remove_directory(path),
        false => fs::remove_file(path),
    };
}

/// Renames the directory first, because threads that still write could otherwise create files in it, so that it can't
/// become empty, or create the directory again. A file is put under its name meanwhile.
fn remove_directory(path: &Path) -> io::Result<()> {
    let mut moved = path.as_os_str().to_owned();
    moved.push(".removed");
    if fs::rename(path, &moved).is_err() {
        return fs::remove_dir_all(path);
    }
    let in_place = fs::File::create_new(path);
    let removed = fs::remove_dir_all(&moved);
    if in_place.is_ok() {
        fs::remove_file(path)?;
    }
    removed
}

/// Creates a temporary file or directory that a signal removes, until it is [put in place](put_in_place) or
/// [removed](remove_now).
///
/// # Errors
/// That of `create`.
pub fn create_temporary<T>(
    create: impl FnOnce() -> io::Result<(PathBuf, T)>,
) -> io::Result<(PathBuf, T)> {
    // Without a handler, a signal leaves the temporary file, which is harmless.
    let _ = install();
    // No signal ends the process while the lock is held, so the handler knows of every file.
    let mut state = state();
    let (path, created) = create()?;
    state.temporaries.push(path.clone());
    Ok((path, created))
}

/// Registers an action that runs before a signal ends the process.
#[cfg(target_os = "linux")]
pub fn before_end(action: impl FnOnce() + Send + 'static) {
    // Without a handler a signal just ends the process.
    let _ = install();
    state().last.push(Box::new(action));
}

/// Removes a temporary file or directory.
pub fn remove_now(path: &Path) {
    let mut state = state();
    state.temporaries.retain(|other| other != path);
    remove(path);
}

/// Renames a temporary file or directory to its final path; no signal interrupts this.
///
/// # Errors
/// That of `put`; then the file is still a temporary one.
pub fn put_in_place(path: &Path, put: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut state = state();
    put()?;
    state.temporaries.retain(|other| other != path);
    Ok(())
}

/// Turns the first ctrl-C into a flag during a wait. The second one, or one without a wait, ends the program as
/// usual.
pub struct Interruptible {
    flag: Cancel,
}

impl Interruptible {
    /// Catches ctrl-C (and the signals that ask a process to end) from here on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> Result<Self, Report> {
        install().map_err(|error| Report::caused("cannot watch for ctrl-C", &*error))?;
        let flag = Cancel::new();
        state().waiting = Some(flag.clone());
        Ok(Self { flag })
    }

    /// The flag that ctrl-C sets.
    pub const fn flag(&self) -> &Cancel {
        &self.flag
    }

    /// Restores ctrl-C to end the program.
    pub fn disarm(&self) {
        state().waiting = None;
    }
}
