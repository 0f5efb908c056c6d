//! A stopped child process that becomes the traced command, so that its process ID is known before it runs.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Child, Command, ExitStatus};

use crate::{Result, TracefsError};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Shell script that stops, and becomes the command when it is continued.
const SCRIPT: &str = r#"kill -STOP $$; exec "$@""#;

/// A command that has not started yet.
#[derive(Debug)]
pub struct Stopped {
    child: Child,
    pid: Pid,
}

impl Stopped {
    /// Starts a stopped process that will become the command.
    ///
    /// # Errors
    /// When the program or the shell does not exist.
    pub fn new(command: &[OsString]) -> io::Result<Self> {
        let program = command.first().map_or(OsStr::new(""), OsString::as_os_str);
        if !is_there(program) {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "sh"]).args(command);
        let child = shell.spawn()?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = id.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        loop {
            match waitpid(Some(pid), WaitOptions::UNTRACED) {
                Ok(Some((_, status))) if status.stopped() => return Ok(Self { child, pid }),
                Ok(_) => return Err(io::Error::other("the shell has ended")),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Starts the command.
    ///
    /// # Errors
    /// When the process no longer exists.
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        // It may have ended already.
        let _ = kill_process(self.pid, Signal::TERM);
    }

    /// Kills the process before the command has started.
    pub fn abandon(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The threads of a process.
///
/// # Errors
/// When the process does not exist.
pub fn threads(pid: u32) -> Result<Vec<u32>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.map_err(|_| TracefsError::NoProcess { pid })?;
    let number = |name: OsString| name.to_str()?.parse().ok();
    let threads = tasks.flatten().filter_map(|task| number(task.file_name()));
    Ok(threads.collect())
}

/// Whether a shell would find the program.
fn is_there(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return std::path::Path::new(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    !program.is_empty() && std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_until_it_may_begin() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ran");
        let command = ["touch".into(), file.clone().into_os_string()];
        let mut stopped = Stopped::new(&command).unwrap();
        assert!(stopped.ended().unwrap().is_none());
        assert!(!file.exists());
        stopped.resume().unwrap();
        assert!(stopped.wait().unwrap().success());
        assert!(file.exists());
    }

    #[test]
    fn threads_are_found() {
        let here = std::process::id();
        assert!(threads(here).unwrap().contains(&here));
        assert!(threads(u32::MAX).is_err());
    }

    #[test]
    fn a_program_that_is_not_there_is_found_missing() {
        for name in ["", "no-such-program-as-this", "/no/such/program"] {
            let error = Stopped::new(&[name.into()]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }

    #[test]
    fn a_command_that_may_not_begin_is_ended() {
        let mut stopped = Stopped::new(&["sleep".into(), "1000".into()]).unwrap();
        stopped.abandon();
        assert!(stopped.ended().unwrap().is_some());
    }
}
