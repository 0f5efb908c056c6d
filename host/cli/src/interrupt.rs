//! Signals that end the process: ctrl-C, and those that ask a process to end.
//!
//! One handler serves the whole process. While something is waited for ([`Interruptible`]), the first
//! signal only sets a flag. Otherwise it ends the process, after files that are not complete yet were
//! removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kymo_link::Cancel;

use crate::diagnostic::Report;

/// The exit code of a process that ctrl-C ended, as shells have it.
const INTERRUPTED: i32 = 130;

/// What the handler acts on.
#[derive(Default)]
struct State {
    /// What the next signal cancels.
    waiting: Option<Cancel>,
    /// Files and directories to remove.
    temporaries: Vec<PathBuf>,
    /// What else is to be done before the process ends.
    last: Vec<Box<dyn FnOnce() + Send>>,
}

static STATE: Mutex<State> = Mutex::new(State {
    waiting: None,
    temporaries: Vec::new(),
    last: Vec::new(),
});

/// Whether the handler is installed, or why it can't be.
static INSTALLED: OnceLock<Result<(), Arc<ctrlc::Error>>> = OnceLock::new();

/// The state, also if a thread failed that held it.
fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets a write fail that makes a file larger than a limit of the user's (`ulimit -f`), which else ends the process.
pub fn outlive_size_limits() {
    #[cfg(unix)]
    {
        // (Where that is not possible the process ends as any other does.)
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
        return;
    }
    for path in state.temporaries.drain(..) {
        remove(&path);
    }
    for action in state.last.drain(..) {
        action();
    }
    // The lock is held: no output gets its name any more.
    std::process::exit(INTERRUPTED);
}

fn remove(path: &Path) {
    // Nothing can be done about one that can't be removed.
    let _ = match path.is_dir() {
        true => remove_directory(path),
        false => fs::remove_file(path),
    };
}

/// Threads that still write must make neither files in it, so that it can become empty, nor the directory anew: a file has its
/// name meanwhile.
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

/// Creates a temporary file or directory that a signal removes, until it is
/// [put in place](put_in_place) or [removed](remove_now).
///
/// # Errors
/// That of `create`.
pub fn create_temporary<T>(
    create: impl FnOnce() -> io::Result<(PathBuf, T)>,
) -> io::Result<(PathBuf, T)> {
    // Without a handler a signal leaves the temporary file, which harms nobody.
    let _ = install();
    // While the lock is held no signal ends the process: there is no file that it does not know of.
    let mut state = state();
    let (path, created) = create()?;
    state.temporaries.push(path.clone());
    Ok((path, created))
}

/// Has a signal that ends the process do this before.
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

/// Puts a temporary file or directory in its place, which no signal interrupts.
///
/// # Errors
/// That of `put`; then the file is still a temporary one.
pub fn put_in_place(path: &Path, put: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let mut state = state();
    put()?;
    state.temporaries.retain(|other| other != path);
    Ok(())
}

/// Turns the first ctrl-C into a flag while something is waited for. The second one, or one when
/// nothing is waited for, ends the program as usual.
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

    /// The flag.
    pub const fn flag(&self) -> &Cancel {
        &self.flag
    }

    /// From here on ctrl-C ends the program.
    pub fn disarm(&self) {
        state().waiting = None;
    }
}
