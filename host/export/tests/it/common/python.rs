//! Python programs of other projects, installed for the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Requirements of a program.
pub struct Environment {
    /// Name of the folder in which it is installed.
    pub name: &'static str,
    /// The interpreter.
    pub python: &'static str,
    /// Whether it uses packages that the system has installed.
    pub has_system_packages: bool,
    /// Packages from PyPI.
    pub packages: &'static [&'static str],
    /// A Python program that succeeds if everything is installed.
    pub imports: &'static str,
}

/// An interpreter with these packages, in the folder that cargo provides for tests, so that it remains for later runs;
/// `None` if it can't be installed.
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
