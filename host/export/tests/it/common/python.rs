//! Programs of others in Python, installed for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a program needs.
pub struct Environment {
    /// The folder that it is installed into.
    pub name: &'static str,
    /// The interpreter.
    pub python: &'static str,
    /// Whether it sees what the system has installed.
    pub has_system_packages: bool,
    /// The packages of PyPI.
    pub packages: &'static [&'static str],
    /// A program that works if all is there.
    pub imports: &'static str,
}

/// An interpreter with these packages, in the folder that cargo gives tests, so that it is there the next time. `None`
/// where it can't be had.
pub fn with(environment: &Environment) -> Option<PathBuf> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(environment.name);
    let python = home.join("bin/python3");
    let run = |program: &Path, arguments: &[&str]| {
        let run = Command::new(program).args(arguments).output();
        run.is_ok_and(|run| run.status.success())
    };
    let works = || run(&python, &["-c", environment.imports]);
    if works() {
        return Some(python);
    }
    let mut venv = vec!["-m", "venv"];
    if environment.has_system_packages {
        venv.push("--system-site-packages");
    }
    venv.push(home.to_str()?);
    let mut pip = vec!["install", "--quiet", "--timeout", "20", "--retries", "1"];
    pip.extend(environment.packages);
    let made = run(Path::new(environment.python), &venv) && run(&home.join("bin/pip"), &pip);
    (made && works()).then_some(python)
}
