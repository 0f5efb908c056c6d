//! Parallel runs of test executables: built by cargo, run over all cores, the longest first.
//!
//! `cargo test` runs one executable after the other, so that cores are idle during the last test of each and while
//! tests wait. This module runs one more executable than there are cores, and runs many tests at once in packages whose
//! tests mostly wait. The output of each executable is stored and shown when it has ended.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use kymo_targets::kymo;
use kymo_targets::run::{self, Context, Error, Result};

/// Packages with the longest tests, in this order; the others follow.
const LONGEST: [&str; 7] = [
    "kymo-fuzz",
    "kymo-tests",
    "kymo-device-tests",
    "kymo-analysis",
    "kymo",
    "kymo-ctf",
    "kymo-link",
];

/// Packages whose tests spend most of their time waiting for a target that does not answer.
const WAITING: [&str; 2] = ["kymo-link", "kymo"];

/// How many tests of such a package run at once, per core.
const WAITING_TESTS: usize = 6;

/// A test executable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// The package that it tests.
    pub package: String,
    /// The name of cargo's target.
    pub name: String,
    /// The program.
    pub path: PathBuf,
    /// The package's folder, in which it runs.
    pub folder: PathBuf,
}

/// Builds the tests that `cargo test` would run, and returns their executables.
///
/// # Errors
/// If they can't be built.
pub fn build(cargo_test: &mut Command) -> Result<Vec<Executable>> {
    cargo_test.args(["--no-run", "--message-format=json-render-diagnostics"]);
    println!("$ {}", run::line(cargo_test));
    let messages = run::output(cargo_test)?;
    Ok(messages.lines().filter_map(executable).collect())
}

/// The executable in one of cargo's messages, if it is a test. A message is a line of JSON, of which only these texts
/// are needed.
fn executable(message: &str) -> Option<Executable> {
    let (_, profile) = message.split_once(r#""profile":{"#)?;
    if !profile.split_once('}')?.0.contains(r#""test":true"#) {
        return None;
    }
    let text = |key: &str| {
        let (_, rest) = message.split_once(&format!(r#""{key}":""#))?;
        Some(rest.split_once('"')?.0)
    };
    let folder = Path::new(text("manifest_path")?).parent()?;
    // path+file:///.../host/link#kymo-link@0.1.0; without the name if it is that of the folder.
    let id = text("package_id")?.rsplit('#').next()?;
    let package = match id.split_once('@') {
        Some((name, _)) => name.to_owned(),
        None => folder.file_name()?.to_string_lossy().into_owned(),
    };
    let (_, target) = message.split_once(r#""target":{"#)?;
    let (_, name) = target.split_once(r#""name":""#)?;
    Some(Executable {
        package,
        name: name.split_once('"')?.0.to_owned(),
        path: text("executable")?.into(),
        folder: folder.to_owned(),
    })
}

/// Result of an executable.
struct Ended {
    who: String,
    seconds: f64,
    passed: bool,
}

/// Runs executables over all cores, with these arguments for the test harness.
///
/// # Errors
/// If a test fails.
pub fn run(mut executables: Vec<Executable>, arguments: &[&str]) -> Result<()> {
    executables.sort_by_key(|executable| {
        let place = LONGEST.iter().position(|long| *long == executable.package);
        place.unwrap_or(LONGEST.len())
    });
    executables.reverse();
    let logs = std::env::temp_dir().join(format!("kymo-tests-{}", std::process::id()));
    std::fs::create_dir_all(&logs).context(logs.display())?;
    let cores = cores();
    let (waiting, ended) = (Mutex::new(executables), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).pop();
    std::thread::scope(|scope| {
        // One more than there are cores, because some executables wait.
        for worker in 0..=cores {
            let (next, logs, ended) = (&next, &logs, &ended);
            scope.spawn(move || {
                while let Some(executable) = next() {
                    let result = run_one(&executable, arguments, &logs.join(worker.to_string()));
                    let mut ended = ended.lock().unwrap_or_else(|e| e.into_inner());
                    ended.push(result);
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(|e| e.into_inner());
    std::fs::remove_dir_all(&logs).context(logs.display())?;
    ended.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    println!("\nThe longest:");
    for one in ended.iter().take(10) {
        println!("  {}: {:.0} s", one.who, one.seconds);
    }
    let failed = ended.iter().filter(|one| !one.passed);
    let failed: Vec<&str> = failed.map(|one| &*one.who).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Error::new(format!("failed: {}", failed.join(", "))))
}

/// Runs an executable and prints its output, which is buffered in the file `log`.
fn run_one(executable: &Executable, arguments: &[&str], log: &Path) -> Ended {
    let started = Instant::now();
    let who = format!("{} ({})", executable.package, executable.name);
    let result = attempt(executable, arguments, log);
    let printed = std::fs::read(log).unwrap_or_default();
    let seconds = started.elapsed().as_secs_f64();
    // In one write, so that parallel outputs are not mixed.
    let printed = String::from_utf8_lossy(&printed);
    let outcome = match &result {
        Ok(()) => String::new(),
        Err(error) => format!("{error}\n"),
    };
    println!("--- {who}: {seconds:.0} s\n{}\n{outcome}", printed.trim());
    Ended {
        who,
        seconds,
        passed: result.is_ok(),
    }
}

/// Runs an executable, with its output in the file `log`.
fn attempt(executable: &Executable, arguments: &[&str], log: &Path) -> Result<()> {
    let file = File::create(log).context(log.display())?;
    let mut command = Command::new(&executable.path);
    command
        .args(arguments)
        .current_dir(&executable.folder)
        .env("CARGO_MANIFEST_DIR", &executable.folder)
        .env("CARGO_PKG_NAME", &executable.package)
        .env(kymo::BUILT, run::target_dir().join("debug/kymo"))
        .stdin(Stdio::null())
        .stdout(file.try_clone().context(log.display())?)
        .stderr(file);
    if WAITING.contains(&&*executable.package) {
        let tests = cores() * WAITING_TESTS;
        command.env("RUST_TEST_THREADS", tests.to_string());
    }
    run::quietly(&mut command)
}

/// The number of cores.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_what_cargo_says() {
        let test = r#"{"reason":"compiler-artifact","package_id":"path+file:///k/host/link#kymo-link@0.1.0","manifest_path":"/k/host/link/Cargo.toml","target":{"kind":["test"],"crate_types":["bin"],"name":"it","src_path":"/k/host/link/tests/it/main.rs","test":true},"profile":{"opt_level":"0","test":true},"filenames":["/t/it-1"],"executable":"/t/it-1","fresh":true}"#;
        let found = executable(test).unwrap();
        assert_eq!((&*found.package, &*found.name), ("kymo-link", "it"));
        assert_eq!(found.path, Path::new("/t/it-1"));
        assert_eq!(found.folder, Path::new("/k/host/link"));
        let short = test.replace("#kymo-link@", "#");
        assert_eq!(executable(&short).unwrap().package, "link");
        let library = test.replace(r#""executable":"/t/it-1""#, r#""executable":null"#);
        assert_eq!(executable(&library), None);
        let program = test.replace(r#""opt_level":"0","test":true"#, r#""test":false"#);
        assert_eq!(executable(&program).map(|found| found.name), None);
    }

    #[test]
    fn a_test_that_fails_is_named() {
        let executable = |path: &str| Executable {
            package: path.to_owned(),
            name: "it".to_owned(),
            path: path.into(),
            folder: "/".into(),
        };
        run(vec![executable("true")], &[]).unwrap();
        let both = vec![executable("true"), executable("false")];
        let error = run(both, &[]).unwrap_err().to_string();
        assert_eq!(error, "failed: false (it)");
    }
}
