//! Journal of changed tracefs settings, which restores them at the end, on a signal, or from the next process.
//!
//! Before a setting is changed, a line with its old value is written to a state file, which its process holds locked.
//! An unlocked state file belongs to a process that was killed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FlockOperation, flock};

use crate::{Result, Tracefs, TracefsError};

/// Directory of state files. Like settings of the kernel, they disappear at a reboot. Only root can create files there.
pub const STATE_DIRECTORY: &str = "/run/kymo";

/// Begins the line of a state file with the directory of pages.
const PAGES: &str = "pages";

/// Suffix of state files.
const SUFFIX: &str = ".state";

/// Operation that undoes a change.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Undo {
    /// Writes the value to a file.
    Write { file: String, value: String },
    /// Appends the value to a file: a command that reverts another.
    Append { file: String, value: String },
    /// Removes an instance.
    Instance { name: String },
}

impl Undo {
    fn line(&self) -> String {
        let words = match self {
            Self::Write { file, value } => ["write", file, value],
            Self::Append { file, value } => ["append", file, value],
            Self::Instance { name } => ["instance", name, ""],
        };
        serde_json::json!(words).to_string()
    }

    /// `None` for an invalid line, or a path outside tracefs.
    fn parse(line: &str) -> Option<Self> {
        let [kind, name, value]: [String; 3] = serde_json::from_str(line).ok()?;
        let parts = Path::new(&name).components();
        if !parts
            .into_iter()
            .all(|part| matches!(part, Component::Normal(_)))
            || name.is_empty()
        {
            return None;
        }
        Some(match &*kind {
            "write" => Self::Write { file: name, value },
            "append" => Self::Append { file: name, value },
            "instance" => Self::Instance { name },
            _ => return None,
        })
    }

    fn run(&self, tracefs: &Tracefs) -> Result<()> {
        match self {
            Self::Write { file, value } => tracefs.write(file, value),
            Self::Append { file, value } => tracefs.append(file, value),
            Self::Instance { name } => {
                let instance = format!("instances/{name}");
                if !tracefs.has(&instance) {
                    return Ok(());
                }
                // An instance can't be removed while one of its files is open; at least stop its overhead.
                for (file, value) in [
                    ("tracing_on", "0"),
                    ("events/enable", "0"),
                    ("current_tracer", "nop"),
                ] {
                    let file = format!("{instance}/{file}");
                    if tracefs.has(&file) {
                        tracefs.write(&file, value)?;
                    }
                }
                let path = tracefs.path(&instance);
                fs::remove_dir(&path).map_err(|error| TracefsError::io("remove", path, error))
            }
        }
    }
}

/// Undoes all changes, the last one first. A failure doesn't stop the others.
fn run_all(undo: &mut Vec<Undo>, tracefs: &Tracefs) -> Vec<TracefsError> {
    let mut failed = Vec::new();
    let mut kept = Vec::new();
    while let Some(change) = undo.pop() {
        if let Err(error) = change.run(tracefs) {
            failed.push(error);
            kept.push(change);
        }
    }
    kept.reverse();
    *undo = kept;
    failed
}

/// Changes settings and restores them. Clones share the same changes.
#[derive(Clone, Debug)]
pub struct Restore {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    tracefs: Tracefs,
    undo: Vec<Undo>,
    state: Option<(PathBuf, File)>,
    /// Whether all changes have been undone, after which no more are allowed.
    is_over: bool,
}

impl Restore {
    /// Creates a journal with a state file in this directory. If the file can't be written, the second value is the
    /// reason, and changes outlive this process when it is killed.
    pub(crate) fn begin(tracefs: &Tracefs, directory: &Path) -> (Self, Option<io::Error>) {
        let (state, error) = match create(directory, tracefs) {
            Ok(state) => (Some(state), None),
            Err(error) => (None, Some(error)),
        };
        let inner = Inner {
            tracefs: tracefs.clone(),
            undo: Vec::new(),
            state,
            is_over: false,
        };
        let inner = Arc::new(Mutex::new(inner));
        (Self { inner }, error)
    }

    /// Locks the changes, even if a thread panicked while it held the lock.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a setting with one value, or replaces a list by `value`.
    pub(crate) fn set(&self, file: &str, value: &str) -> Result<()> {
        let mut inner = self.lock();
        let old = inner.tracefs.read(file)?;
        let old = value_of(file, &old);
        if old.trim() == value {
            return Ok(());
        }
        inner.note(Undo::Write {
            file: file.to_owned(),
            value: old,
        })?;
        inner.tracefs.write(file, value)
    }

    /// Appends a command to a file; `back` is the command that reverts it.
    pub(crate) fn command(&self, file: &str, command: &str, back: &str) -> Result<()> {
        let mut inner = self.lock();
        inner.note(Undo::Append {
            file: file.to_owned(),
            value: back.to_owned(),
        })?;
        let done = inner.tracefs.append(file, command);
        if done.is_err() {
            // There is nothing to revert. The state file still has the line, which does no harm.
            inner.undo.pop();
        }
        done
    }

    /// Creates an instance.
    pub(crate) fn make_instance(&self, name: &str) -> Result<()> {
        let mut inner = self.lock();
        let path = inner.tracefs.path(&format!("instances/{name}"));
        inner.note(Undo::Instance {
            name: name.to_owned(),
        })?;
        fs::create_dir(&path).map_err(|error| {
            inner.undo.pop();
            TracefsError::io("make", path, error)
        })
    }

    /// Removes an instance that has not been used.
    pub(crate) fn remove_instance(&self, name: &str) -> Result<()> {
        let mut inner = self.lock();
        let change = Undo::Instance {
            name: name.to_owned(),
        };
        change.run(&inner.tracefs)?;
        inner.undo.retain(|other| *other != change);
        Ok(())
    }

    /// Writes the directory of pages to the state file, for the process that recovers from a kill of this one.
    pub(crate) fn note_pages(&self, directory: &Path) {
        let mut inner = self.lock();
        let whole = std::path::absolute(directory);
        let path = whole.as_deref().unwrap_or(directory).to_string_lossy();
        if let Some((_, file)) = &mut inner.state {
            // The recording works without the line.
            let _ = writeln!(file, "{}", serde_json::json!([PAGES, path, ""]));
        }
    }

    /// Undoes all changes. Returns the failures, which the next process tries again.
    pub fn restore(&self) -> Vec<TracefsError> {
        let mut inner = self.lock();
        let Inner {
            tracefs,
            undo,
            state,
            is_over,
        } = &mut *inner;
        *is_over = true;
        let failed = run_all(undo, tracefs);
        if failed.is_empty()
            && let Some((path, _)) = state.take()
        {
            // A file that can't be removed does no harm: its values are already set.
            let _ = fs::remove_file(path);
        }
        failed
    }
}

impl Inner {
    /// Records how to undo a change, before the change is made.
    fn note(&mut self, undo: Undo) -> Result<()> {
        if self.is_over {
            let source = io::Error::from(io::ErrorKind::Interrupted);
            return Err(TracefsError::io("change", self.tracefs.root(), source));
        }
        if let Some((path, file)) = &mut self.state {
            let line = format!("{}\n", undo.line());
            file.write_all(line.as_bytes())
                .map_err(|error| TracefsError::io("write", &*path, error))?;
        }
        self.undo.push(undo);
        Ok(())
    }
}

/// The value to write so that a file has the content that was read from it.
fn value_of(file: &str, text: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    match name {
        // Comments mean all functions, and commands are not part of the list.
        "set_ftrace_filter" | "set_ftrace_notrace" => {
            let functions = text
                .lines()
                .filter(|line| !line.starts_with('#') && !line.contains(':'));
            // A module function's name is followed by the module.
            let names = functions.filter_map(|line| line.split_whitespace().next());
            let names: String = names.flat_map(|name| [name, "\n"]).collect();
            names
        }
        "set_ftrace_pid" | "set_event_pid" | "set_ftrace_notrace_pid" | "set_event_notrace_pid" => {
            let pids = text
                .split_whitespace()
                .filter(|word| word.bytes().all(|it| it.is_ascii_digit()));
            pids.collect::<Vec<_>>().join(" ")
        }
        // `[local] global`: the selected one is in brackets.
        "trace_clock" => {
            let chosen = text
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'));
            chosen.map_or(text.trim(), |(chosen, _)| chosen).to_owned()
        }
        // `7 (expanded: 1408)`: a buffer that no tracer has used yet.
        "buffer_size_kb" => text
            .split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned(),
        // `0*`: active for a trigger.
        "enable" => text.trim().trim_end_matches('*').to_owned(),
        _ => text.trim_end().to_owned(),
    }
}

/// Creates a state file and locks it before it gets its name.
fn create(directory: &Path, tracefs: &Tracefs) -> io::Result<(PathBuf, File)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    check_owner(directory)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("ftrace-{}-{number}", std::process::id());
    let temporary = directory.join(format!("{name}.new"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let root = serde_json::json!(tracefs.root().to_string_lossy());
    writeln!(file, "{root}")?;
    let path = directory.join(name + SUFFIX);
    fs::rename(&temporary, &path)?;
    Ok((path, file))
}

/// Fails unless the directory belongs to this user alone: its files cause writes with this user's rights.
fn check_owner(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    let mine = metadata.uid() == rustix::process::geteuid().as_raw();
    if metadata.is_dir() && mine && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{} can be written by other users", directory.display());
    Err(io::Error::other(message))
}

/// Result of recovering from a killed process.
#[derive(Debug)]
pub struct Recovery {
    /// Number of undone changes.
    pub changes: usize,
    /// Changes that could not be undone.
    pub failed: Vec<TracefsError>,
    /// The recording of that process: a directory of raw pages, if it exists.
    pub pages: Option<PathBuf>,
}

/// Undoes the changes of killed processes. Returns one recovery for each.
pub fn recover(directory: &Path) -> Vec<Recovery> {
    let mut all = Vec::new();
    if check_owner(directory).is_err() {
        return all;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_state = path.to_str().is_some_and(|path| path.ends_with(SUFFIX));
        if is_state {
            all.extend(recover_one(&path));
        }
    }
    all
}

/// `None` for the file of a live process.
fn recover_one(path: &Path) -> Option<Recovery> {
    let file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut lines = BufReader::new(&file).lines().map_while(io::Result::ok);
    let root: Option<String> = lines
        .next()
        .and_then(|line| serde_json::from_str(&line).ok());
    // The last line may be incomplete: its change was not made.
    let (mut undo, mut pages) = (Vec::new(), None);
    for line in lines {
        undo.extend(Undo::parse(&line));
        if let Ok([kind, path, _]) = serde_json::from_str::<[String; 3]>(&line)
            && kind == PAGES
        {
            pages = Some(PathBuf::from(path)).filter(|path| path.is_dir());
        }
    }
    let changes = undo.len();
    let failed = match root {
        Some(root) => run_all(&mut undo, &Tracefs::at(root)),
        None => Vec::new(),
    };
    // A failure now would fail the next time, too.
    let _ = fs::remove_file(path);
    Some(Recovery {
        changes,
        failed,
        pages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake() -> (tempfile::TempDir, Tracefs, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("tracing");
        fs::create_dir_all(root.join("instances")).unwrap();
        for (name, value) in [
            ("tracing_on", "1\n"),
            ("trace_clock", "[local] global mono\n"),
            ("buffer_size_kb", "7 (expanded: 1408)\n"),
            (
                "set_ftrace_filter",
                "#### all functions enabled ####\nother:traceon:unlimited\n",
            ),
            ("set_event_pid", "12\n13\n"),
        ] {
            fs::write(root.join(name), value).unwrap();
        }
        let state = folder.path().join("run/kymo");
        (folder, Tracefs::at(root), state)
    }

    fn change(restore: &Restore) {
        restore.set("tracing_on", "0").unwrap();
        restore.set("trace_clock", "global").unwrap();
        restore.set("buffer_size_kb", "4096").unwrap();
        restore.set("set_ftrace_filter", "vfs_*").unwrap();
        restore
            .command("set_ftrace_filter", "panic:traceoff", "!panic:traceoff")
            .unwrap();
        restore.set("set_event_pid", "99").unwrap();
    }

    fn check_restored(tracefs: &Tracefs) {
        for (name, value) in [
            ("tracing_on", "1"),
            ("trace_clock", "local"),
            ("buffer_size_kb", "7"),
            ("set_ftrace_filter", ""),
            ("set_event_pid", "12 13"),
        ] {
            assert_eq!(tracefs.read(name).unwrap().trim_end(), value, "{name}");
        }
    }

    #[test]
    fn changes_are_undone_and_the_state_file_goes() {
        let (_folder, tracefs, state) = fake();
        let (restore, error) = Restore::begin(&tracefs, &state);
        assert!(error.is_none());
        change(&restore);
        assert_eq!(tracefs.read("trace_clock").unwrap(), "global\n");
        assert_eq!(
            tracefs.read("set_ftrace_filter").unwrap(),
            "vfs_*\npanic:traceoff\n"
        );
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1);
        // While its process lives, no other process undoes its changes.
        assert!(recover(&state).is_empty());
        assert!(restore.restore().is_empty());
        check_restored(&tracefs);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        // A thread that still tries to change something is rejected.
        assert!(restore.set("tracing_on", "0").is_err());
        check_restored(&tracefs);
    }

    #[test]
    fn the_next_process_undoes_what_a_killed_one_changed() {
        let (_folder, tracefs, state) = fake();
        let (restore, _) = Restore::begin(&tracefs, &state);
        change(&restore);
        restore.make_instance("kymo-7").unwrap();
        assert!(tracefs.has("instances/kymo-7"));
        let pages = state.parent().unwrap().join("x.dat.pages");
        fs::create_dir(&pages).unwrap();
        restore.note_pages(&pages);
        // As when killed: the file is unlocked, and nothing is undone.
        drop(restore);
        assert_eq!(tracefs.read("tracing_on").unwrap(), "0\n");
        let [recovery] = &recover(&state)[..] else {
            panic!()
        };
        assert_eq!((recovery.changes, recovery.failed.len()), (7, 0));
        assert_eq!(recovery.pages, Some(pages));
        check_restored(&tracefs);
        assert!(!tracefs.has("instances/kymo-7"));
        assert!(recover(&state).is_empty());
    }

    #[test]
    fn a_setting_that_has_its_value_is_not_touched() {
        let (_folder, tracefs, state) = fake();
        let (restore, _) = Restore::begin(&tracefs, &state);
        restore.set("tracing_on", "1").unwrap();
        restore.set("trace_clock", "local").unwrap();
        drop(restore);
        assert_eq!(recover(&state)[0].changes, 0);
    }

    #[test]
    fn what_cannot_be_undone_is_told_and_tried_again() {
        let (_folder, tracefs, state) = fake();
        let (restore, _) = Restore::begin(&tracefs, &state);
        change(&restore);
        let gone = tracefs.path("trace_clock");
        fs::remove_file(&gone).unwrap();
        let [failed] = &restore.restore()[..] else {
            panic!()
        };
        assert!(failed.to_string().contains("trace_clock"), "{failed}");
        assert_eq!(tracefs.read("tracing_on").unwrap(), "1\n");
        fs::write(&gone, "global").unwrap();
        drop(restore);
        assert!(recover(&state)[0].failed.is_empty());
        check_restored(&tracefs);
    }

    #[test]
    fn a_state_file_leads_nowhere_else() {
        for line in [
            r#"["write","../../etc/passwd","x"]"#,
            r#"["write","/etc/passwd","x"]"#,
            r#"["instance","..",""]"#,
            r#"["write","",""]"#,
            r#"["remove","tracing_on",""]"#,
            r#"["write","tracing_on"]"#,
            r#"["write","tracing_on","#,
        ] {
            assert_eq!(Undo::parse(line), None, "{line}");
        }
        let undo = Undo::Write {
            file: "events/sched/enable".into(),
            value: "a\n\"b\"".into(),
        };
        assert_eq!(Undo::parse(&undo.line()), Some(undo));
    }

    #[test]
    fn others_cannot_leave_state_files() {
        use std::os::unix::fs::PermissionsExt;
        let (folder, tracefs, state) = fake();
        let (restore, _) = Restore::begin(&tracefs, &state);
        restore.set("tracing_on", "0").unwrap();
        drop(restore);
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(recover(&state).is_empty());
        let (_, error) = Restore::begin(&tracefs, &state);
        assert!(error.is_some());
        drop(folder);
    }
}
