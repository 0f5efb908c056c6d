//! Runs other programs: prints the command line, checks the result, and enforces a time-out.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Error of a task: one message for the user.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Creates an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Result of a task.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the failed operation to an error.
pub trait Context<T> {
    /// Returns the value, or an error that begins with `what`.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error(format!("{what}: {error}")))
    }
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    // Cargo sets the variable at run time. The compiled-in path may be another checkout's if checkouts share a target
    // directory.
    let built = Path::new(env!("CARGO_MANIFEST_DIR"));
    let run = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = run.as_deref().unwrap_or(built);
    let mut folders = here.ancestors().chain(built.ancestors());
    let top = folders.find(|folder| folder.join("xtask/Cargo.toml").is_file());
    top.unwrap_or(built).to_path_buf()
}

/// Cargo's target directory for the host's workspace.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// Default time-out: longer than all tests of a workspace need on a slow machine; it only has to end a hang.
pub const PATIENCE: Duration = Duration::from_secs(6 * 3600);

/// Replaces paths in the checkout by relative ones.
pub fn relative(text: impl fmt::Display) -> String {
    text.to_string()
        .replace(&format!("{}/", root().display()), "")
}

/// The command line as a user would type it, with relative paths in the checkout.
pub fn line(command: &Command) -> String {
    let program = match command.get_program() {
        program if program == env!("CARGO") => OsStr::new("cargo"),
        program => program,
    };
    let words = std::iter::once(program).chain(command.get_args());
    let words = words.map(|word| {
        let word = relative(word.to_string_lossy());
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Prints the command line and runs it with inherited output; fails if the command fails or takes longer than
/// [`PATIENCE`].
pub fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", line(command));
    quietly(command)
}

/// As [`run`], without printing the command line.
pub fn quietly(command: &mut Command) -> Result<()> {
    let shown = line(command);
    let mut child = command.spawn().context(&shown)?;
    let status = wait(&mut child, PATIENCE).context(&shown)?;
    if status.success() {
        Ok(())
    } else {
        Err(Error(format!("{shown}: {status}")))
    }
}

/// Runs a compiler or linker that makes `file`, and replaces the file atomically: another test may be reading an
/// earlier version.
pub fn make(command: &mut Command, file: &Path) -> Result<()> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let mut new = file.as_os_str().to_owned();
    new.push(format!(".{}-{number}", std::process::id()));
    quietly(command.arg("-o").arg(&new))?;
    std::fs::rename(&new, file).context(file.display())
}

/// The size of a file in bytes.
///
/// # Errors
/// When it does not exist.
pub fn size(file: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(file).context(file.display())?;
    Ok(metadata.len())
}

/// A command that is killed when a file that it writes exceeds a size.
pub fn limited(program: impl AsRef<OsStr>, file_bytes: u64) -> Command {
    // (A lower limit of the environment stays in force.)
    let blocks = file_bytes / 512;
    let script = format!(r#"ulimit -f {blocks} 2>/dev/null; exec "$0" "$@""#);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(program);
    command
}

/// Runs a command and returns its standard output as text. Its standard error is inherited.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = line(command);
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context(&shown)?;
    let output = collect(child, PATIENCE).context(&shown)?;
    if !output.status.success() {
        return Err(Error(format!("{shown}: {}", output.status)));
    }
    String::from_utf8(output.stdout).context(&shown)
}

/// Whether a program can be started and succeeds; its output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => wait(&mut child, PATIENCE).is_ok_and(|status| status.success()),
        Err(_) => false,
    }
}

/// Waits for a process; kills it when it takes longer than `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<std::process::ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            let message = format!("killed: still running after {} s", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads a process's standard output, which is a pipe, until it ends.
fn collect(mut child: Child, limit: Duration) -> io::Result<Output> {
    let pipe = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        match pipe {
            Some(mut pipe) => pipe.read_to_end(&mut bytes).map(|_| bytes),
            None => Ok(bytes),
        }
    });
    let status = wait(&mut child, limit)?;
    let stdout = reader
        .join()
        .map_err(|_| io::Error::other("the thread that reads the output failed"))??;
    Ok(Output {
        status,
        stdout,
        stderr: Vec::new(),
    })
}

/// A process that is killed on drop.
#[derive(Debug)]
pub struct Background(Child);

impl Background {
    /// Prints the command line and starts it.
    pub fn start(command: &mut Command) -> Result<Self> {
        println!("$ {} &", line(command));
        Self::spawn(command)
    }

    /// Starts it without printing the command line.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        command.spawn().map(Self).context(line(command))
    }

    /// The process's standard output, if it is a pipe and was not taken before.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.0.stdout.take()
    }

    /// The exit status, if it has ended.
    pub fn ended(&mut self) -> Result<Option<std::process::ExitStatus>> {
        self.0.try_wait().context("waiting for a process")
    }

    /// Waits until the process ends by itself, at most `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<std::process::ExitStatus> {
        wait(&mut self.0, limit).context("a background process")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let mut command = Command::new("echo");
        command.args(["a b", "it's", "-Dx=1", ""]);
        command.arg(root().join("demos/lua"));
        assert_eq!(line(&command), r"echo 'a b' 'it'\''s' -Dx=1 '' demos/lua");
    }

    #[test]
    fn a_hanging_program_is_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let error = wait(&mut child, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(child.try_wait().unwrap().is_some());
    }

    #[test]
    fn a_program_that_writes_without_end_is_ended() {
        let file = std::env::temp_dir().join(format!("kymo-limit-{}", std::process::id()));
        let mut dd = limited("dd", 4096);
        dd.arg("if=/dev/zero").arg(format!("of={}", file.display()));
        assert!(!succeeds(&mut dd));
        assert_eq!(std::fs::metadata(&file).unwrap().len(), 4096);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_background_process_ends_with_its_owner() {
        let mut command = Command::new("sleep");
        let background = Background::start(command.arg("60")).unwrap();
        let path = format!("/proc/{}/stat", background.0.id());
        assert!(Path::new(&path).exists());
        drop(background);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn failure_is_an_error_with_the_command_line() {
        let error = quietly(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh -c 'exit 3': exit status: 3");
        assert_eq!(output(Command::new("echo").arg("x")).unwrap(), "x\n");
    }
}
