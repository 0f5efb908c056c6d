//! `cargo xtask test`: all checks that must pass before a change is submitted.
//!
//! Formatting, lints and documentation of every workspace, all tests, benchmarks with limits, models and sanitizers.
//! Every step runs even after an earlier failure, so that one run reports everything. Each step reports its elapsed
//! time and its processor time, which depends less on the load of the machine.

use std::process::Command;
use std::time::Instant;

use kymo_targets::cpus;
use kymo_targets::run::{self, Context, Result};
use xtask::bench;

use crate::proof::{self, Sanitizer};
use crate::setup;

pub mod executables;
pub mod report;

use executables::Executable;
use report::{Done, Report};

/// Options of a test run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Includes the checks that take longer than an author waits before submitting a change.
    pub long: bool,
    /// Runs only the checks of one side of the link.
    pub side: Option<Side>,
    /// Filter: the steps whose names contain this text. If there are none, the tests of the package with this name
    /// (`kymo-` may be omitted); otherwise the tests whose names contain it.
    pub only: Option<String>,
}

/// A side of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Code that runs on the host, without product tests.
    Host,
    /// Code that runs on targets, and the product tests, which run targets.
    Device,
}

/// The workspaces, and the side each is on.
const WORKSPACES: [(&str, &str, Side); 2] = [
    ("host", ".", Side::Host),
    ("device", "device", Side::Device),
];

/// The packages whose tests run targets.
const PRODUCT_TESTS: [&str; 2] = ["kymo-tests", "kymo-targets"];

/// How long each fuzz target runs in a long test, in seconds.
const FUZZ_SECONDS: u32 = 120;

/// Function that runs a step.
type Check = Box<dyn FnOnce() -> Result<Done>>;

/// One check.
struct Step {
    name: String,
    side: Side,
    check: Check,
    /// Whether it uses only one core, and therefore runs in parallel with other such steps.
    beside: bool,
}

impl Step {
    fn new(name: &str, side: Side, check: impl FnOnce() -> Result<()> + 'static) -> Self {
        Self::may_skip(name, side, || check().map(|()| Done::Whole))
    }

    /// A step that is skipped if this machine lacks something.
    fn may_skip(name: &str, side: Side, check: impl FnOnce() -> Result<Done> + 'static) -> Self {
        Self {
            name: name.to_owned(),
            side,
            check: Box::new(check),
            beside: false,
        }
    }

    /// Marks the step to run in parallel with others.
    fn beside(self) -> Self {
        Self {
            beside: true,
            ..self
        }
    }
}

/// Runs the checks.
///
/// # Errors
/// If one of them fails.
pub fn test(options: &Options) -> Result<()> {
    let started = Instant::now();
    let mut report = Report::default();
    report.step("setup", || setup::everything().map(|()| Done::Whole));
    let mut steps = steps(options);
    if let Some(side) = options.side {
        steps.retain(|step| step.name == "tests" || step.side == side);
    }
    if let Some(only) = &options.only {
        steps.retain(|step| step.name.contains(only));
        if steps.is_empty() {
            let (only, side) = (only.clone(), options.side);
            let name = format!("tests of {only}");
            steps.push(Step::new(&name, Side::Host, move || matching(&only, side)));
        }
    }
    let several = steps.iter().filter(|step| step.beside).count() > 1;
    let (beside, alone): (Vec<_>, Vec<_>) =
        (steps.into_iter()).partition(|step| several && step.beside);
    for step in alone {
        report.step(&step.name, step.check);
    }
    let names = beside.into_iter().map(|step| step.name).collect();
    report.side_by_side(names, options.long);
    report.end(started.elapsed())
}

/// Programs for eight CPUs, in workspaces of their own. Built for another target, so they have no tests of their own:
/// `tests/it/cpus.rs` tests them.
const ON_EIGHT_CPUS: [&str; 2] = ["demos/cpus", "device/tests/cpus"];

/// All steps, in order.
fn steps(options: &Options) -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, folder, side) in WORKSPACES {
        steps.push(Step::new(&format!("{name} format"), side, move || {
            run::run(cargo(folder, "fmt").args(["--all", "--check"]))
        }));
    }
    for folder in ON_EIGHT_CPUS {
        let name = format!("{folder} format");
        steps.push(Step::new(&name, Side::Device, move || {
            run::run(cargo(folder, "fmt").arg("--check"))
        }));
    }
    for (name, folder, side) in WORKSPACES {
        steps.push(Step::new(&format!("{name} lints"), side, move || {
            let mut clippy = cargo(folder, "clippy");
            clippy.args(["--workspace", "--all-targets", "--", "-D", "warnings"]);
            run::run(&mut clippy)
        }));
        steps.push(Step::new(
            &format!("{name} documentation"),
            side,
            move || {
                let mut doc = cargo(folder, "doc");
                doc.args(["--workspace", "--no-deps"]);
                run::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
            },
        ));
    }
    for folder in ON_EIGHT_CPUS {
        let name = format!("{folder} lints");
        steps.push(Step::new(&name, Side::Device, move || {
            let mut clippy = cargo(folder, "clippy");
            clippy.args(["--target", cpus::TARGET, "--", "-D", "warnings"]);
            run::run(&mut clippy)
        }));
    }
    let (side, long) = (options.side, options.long);
    steps.push(Step::new("tests", Side::Host, move || all_tests(side, &[])));
    steps.push(Step::new("documentation tests", Side::Host, || {
        run::run(cargo(".", "test").args(["--workspace", "--doc", "--no-fail-fast"]))
    }));
    steps.push(Step::new(
        "device documentation tests",
        Side::Device,
        || run::run(cargo("device", "test").args(["--workspace", "--doc", "--no-fail-fast"])),
    ));
    steps.extend(counts(long));
    steps.extend(proofs(long));
    if long {
        steps.extend(long_steps(side));
    }
    steps
}

/// Instruction counts with limits, the longest first.
fn counts(long: bool) -> impl Iterator<Item = Step> {
    // With the other tools it takes minutes: `cargo xtask bench analyze`.
    let analyze = bench::analyze::Options {
        quick: true,
        long,
        ..bench::analyze::Options::default()
    };
    let steps = [
        Step::new("bench analyze", Side::Host, move || {
            bench::analyze::analyze(&analyze)
        }),
        Step::new("bench ctf", Side::Host, bench::ctf::count),
        Step::new("bench recorder", Side::Device, || {
            bench::recorder(false, None)
        }),
        Step::new("bench import", Side::Host, || bench::import::count(None)),
        Step::new("bench coresight", Side::Host, bench::coresight::count),
    ];
    steps.into_iter().map(Step::beside)
}

/// Models and sanitizers.
fn proofs(long: bool) -> impl Iterator<Item = Step> {
    let sanitized = |name: &str, sanitizer| {
        Step::may_skip(name, Side::Device, move || {
            proof::sanitized(&mut cargo("device", "+nightly"), sanitizer)
        })
    };
    let steps = [
        Step::new("models", Side::Device, move || {
            proof::models(&mut cargo("device", "test"), long)
        }),
        Step::may_skip("Miri", Side::Device, || {
            proof::interpreted(&mut cargo("device", "+nightly"))
        }),
        sanitized("address sanitizer", Sanitizer::Address),
        sanitized("thread sanitizer", Sanitizer::Thread),
    ];
    steps.into_iter().map(Step::beside)
}

/// Steps that take longer than an author waits before submitting a change.
fn long_steps(side: Option<Side>) -> [Step; 2] {
    [
        Step::new("ignored tests", Side::Device, move || {
            all_tests(side, &["--ignored"])
        }),
        Step::new("fuzzing", Side::Host, fuzzing),
    ]
}

/// Runs each fuzz target for [`FUZZ_SECONDS`].
fn fuzzing() -> Result<()> {
    let fuzz = |arguments: &[&str]| {
        let mut cargo = cargo("fuzz", "+nightly");
        cargo.arg("fuzz").args(arguments);
        cargo
    };
    if !run::succeeds(&mut fuzz(&["--version"])) {
        run::run(cargo(".", "install").args(["--locked", "cargo-fuzz"]))?;
    }
    let targets = run::output(&mut fuzz(&["list", "--fuzz-dir", "."]))?;
    // A failure does not stop the other targets.
    let failed = targets.lines().filter_map(|target| {
        let mut fuzz = fuzz(&["run", "--fuzz-dir", ".", target, "--"]);
        run::run(fuzz.arg(format!("-max_total_time={FUZZ_SECONDS}"))).err()
    });
    let failed: Vec<String> = failed.map(|error| error.to_string()).collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(run::Error::new(failed.join("\n"))),
    }
}

/// Builds the tests of all workspaces of a side, and runs them in parallel.
fn all_tests(side: Option<Side>, arguments: &[&str]) -> Result<()> {
    let mut executables = Vec::new();
    for (name, folder, of) in WORKSPACES {
        // Product tests need the host's workspace.
        if name == "host" || side.is_none_or(|side| side == of) {
            let mut build = cargo(folder, "test");
            build.args(["--workspace"]);
            executables.extend(executables::build(&mut build).context(name)?);
        }
    }
    executables.retain(|executable| belongs(executable, side));
    executables::run(executables, arguments)
}

/// Whether an executable's tests belong to this side.
fn belongs(executable: &Executable, side: Option<Side>) -> bool {
    let device = executable.folder.starts_with(run::root().join("device"))
        || PRODUCT_TESTS.contains(&&*executable.package);
    match side {
        None => true,
        Some(Side::Host) => !device,
        Some(Side::Device) => device,
    }
}

/// Runs the tests of one package, or those whose names contain `only`.
fn matching(only: &str, side: Option<Side>) -> Result<()> {
    for (_, folder, _) in WORKSPACES {
        for package in [only.to_owned(), format!("kymo-{only}")] {
            let mut known = cargo(folder, "pkgid");
            known.args(["--package", &package]);
            if run::succeeds(&mut known) {
                let mut test = cargo(folder, "test");
                test.args(["--no-fail-fast", "--package", &package]);
                return run::run(&mut test);
            }
        }
    }
    all_tests(side, &[only])
}

/// `cargo SUBCOMMAND` in a workspace.
fn cargo(workspace: &str, subcommand: &str) -> Command {
    // Through rustup's proxy if there is one: a toolchain's own cargo does not know `+nightly`.
    let mut cargo = Command::new("cargo");
    cargo
        .arg(subcommand)
        .current_dir(run::root().join(workspace));
    for variable in ["CARGO", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(variable);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_tests_are_on_the_device_side() {
        let executable = |package: &str, folder: &str| Executable {
            package: package.to_owned(),
            name: "it".to_owned(),
            path: "/x".into(),
            folder: run::root().join(folder),
        };
        for (package, folder, host) in [
            ("kymo-link", "host/link", true),
            ("kymo-tests", "tests", false),
            ("kymo-device-tests", "device/tests", false),
        ] {
            let executable = executable(package, folder);
            assert!(belongs(&executable, None), "{package}");
            assert_eq!(belongs(&executable, Some(Side::Host)), host, "{package}");
            assert_eq!(belongs(&executable, Some(Side::Device)), !host, "{package}");
        }
    }

    #[test]
    fn steps_have_names_of_their_own() {
        let steps = steps(&Options {
            long: true,
            ..Options::default()
        });
        let names: Vec<_> = steps.iter().map(|step| &step.name).collect();
        for (n, name) in names.iter().enumerate() {
            assert!(!names[..n].contains(name), "{name}");
        }
        // Steps that run in parallel are selected by their name.
        for step in steps.iter().filter(|step| step.beside) {
            let found = names.iter().filter(|name| name.contains(&step.name));
            assert_eq!(found.count(), 1, "{}", step.name);
        }
    }
}
