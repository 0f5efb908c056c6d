//! Kymo's tasks: `cargo xtask setup`, `demo`, `test`, `bench` and `lib`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use kymo_targets::library;
use kymo_targets::run::Result;
use kymo_targets::tools::Need;
use xtask::bench;

mod demo;
mod proof;
mod setup;
mod test;

use demo::Target;
use test::Side;

const USAGE: &str = "\
Usage: cargo xtask <task>

  setup             install what builds and tests need besides Rust (Debian, Ubuntu)
  demo [--native]   build the demonstration program, run it, look at it with kymo
                    (on a Cortex-M3 in QEMU; --native: on this machine)
  demo --cpus       the same with another program on eight Cortex-A72 in QEMU
  test              all checks, after setup
    --long          also those that take long
    --host          only the host's side; --device: only the target's side and the product tests
    --only NAME     only the steps with NAME in their names (lints, tests, bench ctf, ...), or the tests of the
                    package NAME, or the tests with NAME in their names
  bench duration  how much time a buffer holds in duration mode
  bench recorder [TARGET]  what recording costs on each processor, or on one: instructions, bytes, code size,
                    RAM (--tighten: lower the limits to what is reached now, of all processors)
  bench ctf [--events N | --count]  how quickly CTF is read, beside babeltrace2: times and memory, or instructions
                    held against budgets (--count)
  bench analyze [--print] [--quick] [--long] [ROW]  what report, show, export and info cost a record, beside uftrace
                    and babeltrace2, and what memory report takes (--print: without holding the figures against
                    xtask/analyze-limits.txt, --quick: without the peers, --long: memory of 100 million events)
  bench import [--count] [ROW]  how quickly recordings of RTEMS, SystemView and ftrace are read, beside their own
                    tools: times and memory, or instructions held against xtask/import-limits.txt (--count)
  bench coresight [--count]  how quickly hardware trace is decoded, beside libopencsd: times, or instructions held
                    against budgets (--count)
  lib [TARGET] [--parts PART,...|none]  libkymo.a for this machine, or for another (thumbv7em-none-eabihf, ...), with
                    these parts alone: depth, profile, metadata, cost, promotions, retained, items; and with these
                    options (the library for Linux has the first two): duration (calls that take long as one record
                    each), conditions (trigger and stopper act for one caller, the n-th time, so often), checked (each
                    hook looks whether it can mask interrupts), sums (checksums of packets, for what survives a reset),
                    tpidrro_el0 or tpidr_el0 (AArch64: the recorder's register in the place of TPIDR_EL1)
  lib TARGET --minimal  libkymo_minimal.a for a Cortex-M whose flash is short
  lib [TARGET] --sysview  libkymo_sysview.a, which sends SEGGER SystemView's stream
";

/// Task of the command line.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    Setup,
    Demo(Target),
    Test(test::Options),
    /// On this target, or all.
    Bench {
        tighten: bool,
        only: Option<String>,
    },
    /// Times on traces with this number of events.
    BenchCtf(u64),
    /// Instructions.
    CountCtf,
    /// Whether to count instructions.
    BenchCoresight {
        count: bool,
    },
    BenchAnalyze(bench::analyze::Options),
    BenchDuration,
    /// Whether to count instructions, and the row if only one is requested.
    BenchImport {
        count: bool,
        only: Option<String>,
    },
    /// For this target, or this machine, with these parts, or all.
    Library(Option<String>, Option<String>),
    Minimal(String),
    /// For this target, or this machine.
    SysView(Option<String>),
    Help,
}

impl Task {
    fn parse(words: &[&str]) -> Option<Self> {
        Some(match words {
            ["demo"] => Self::Demo(Target::Firmware),
            ["demo", "--native"] => Self::Demo(Target::Native),
            ["demo", "--cpus"] => Self::Demo(Target::Cpus),
            ["setup"] => Self::Setup,
            ["test", options @ ..] => Self::Test(test_options(options)?),
            ["bench", "recorder"] => Self::Bench {
                tighten: false,
                only: None,
            },
            ["bench", "recorder", "--tighten"] => Self::Bench {
                tighten: true,
                only: None,
            },
            ["bench", "recorder", target] if !target.starts_with('-') => Self::Bench {
                tighten: false,
                only: Some((*target).to_owned()),
            },
            ["bench", "ctf"] => Self::BenchCtf(bench::ctf::EVENTS),
            ["bench", "ctf", "--events", events] => Self::BenchCtf(events.parse().ok()?),
            ["bench", "ctf", "--count"] => Self::CountCtf,
            ["bench", "duration"] => Self::BenchDuration,
            ["bench", "coresight"] => Self::BenchCoresight { count: false },
            ["bench", "coresight", "--count"] => Self::BenchCoresight { count: true },
            ["bench", "analyze", rest @ ..] => {
                let mut options = bench::analyze::Options::default();
                for word in rest {
                    match *word {
                        "--print" => options.print_only = true,
                        "--quick" => options.quick = true,
                        "--long" => options.long = true,
                        row if !row.starts_with('-') && options.only.is_none() => {
                            options.only = Some(row.to_owned());
                        }
                        _ => return None,
                    }
                }
                Self::BenchAnalyze(options)
            }
            ["bench", "import", rest @ ..] => {
                let (count, rest) = match rest {
                    ["--count", rest @ ..] => (true, rest),
                    _ => (false, rest),
                };
                let only = match rest {
                    [] => None,
                    [row] if !row.starts_with('-') => Some((*row).to_owned()),
                    _ => return None,
                };
                Self::BenchImport { count, only }
            }
            ["lib", target, "--minimal"] if target.starts_with("thumb") => {
                Self::Minimal((*target).to_owned())
            }
            ["lib", "--sysview"] => Self::SysView(None),
            ["lib", target, "--sysview"] if !target.starts_with('-') => {
                Self::SysView(Some((*target).to_owned()))
            }
            ["lib", rest @ ..] => {
                let (target, rest) = match rest {
                    [target, rest @ ..] if !target.starts_with('-') => (Some(*target), rest),
                    _ => (None, rest),
                };
                let parts = match rest {
                    [] => None,
                    ["--parts", parts] => Some(*parts),
                    _ => return None,
                };
                Self::Library(target.map(str::to_owned), parts.map(str::to_owned))
            }
            ["help" | "--help" | "-h"] => Self::Help,
            _ => return None,
        })
    }

    fn run(self) -> Result<()> {
        match self {
            Self::Demo(target) => demo::demo(target),
            Self::Setup => setup::everything(),
            Self::Test(options) => test::test(&options),
            Self::Bench { tighten, only } => {
                setup::packages(&[
                    Need::Firmware,
                    Need::Native,
                    Need::Foreign,
                    Need::Processors,
                ])?;
                bench::recorder(tighten, only.as_deref())
            }
            Self::BenchCtf(events) => {
                setup::packages(&[Need::Checks])?;
                bench::ctf::time(events)
            }
            Self::CountCtf => {
                setup::packages(&[Need::Checks])?;
                bench::ctf::count()
            }
            Self::BenchCoresight { count } => {
                setup::packages(&[Need::Checks])?;
                match count {
                    true => bench::coresight::count(),
                    false => bench::coresight::time(),
                }
            }
            Self::BenchDuration => {
                setup::packages(&[Need::Firmware])?;
                bench::duration::duration()
            }
            Self::BenchAnalyze(options) => {
                setup::packages(&[Need::Native, Need::Checks])?;
                bench::analyze::analyze(&options)
            }
            Self::BenchImport { count, only } => {
                setup::packages(&[Need::Native, Need::Checks])?;
                match count {
                    true => bench::import::count(only.as_deref()),
                    false => bench::import::time(only.as_deref()),
                }
            }
            Self::Library(target, parts) => {
                let parts = library::parts(parts.as_deref())?;
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let library = match target {
                    None => library::for_this_machine_with(&parts),
                    Some(target) => {
                        let rust = setup::rust_for(&target)?;
                        library::for_bare_metal_with(&rust, &parts)
                    }
                }?;
                println!("{}", library.display());
                let beside = |name| Some(library.with_file_name(name)).filter(|it| it.is_file());
                if let Some(specs) = beside("kymo.specs") {
                    eprintln!("gcc -specs={} -finstrument-functions ...", specs.display());
                }
                if let Some(config) = beside("kymo.cfg") {
                    let config = config.display();
                    eprintln!("clang --config {config} -finstrument-functions ...");
                }
                Ok(())
            }
            Self::Minimal(target) => {
                let library = library::minimal(&setup::rust_for(&target)?)?;
                println!("{}", library.display());
                Ok(())
            }
            Self::SysView(target) => {
                let rust = target.map(|target| setup::rust_for(&target)).transpose()?;
                println!("{}", library::sysview(rust.as_ref())?.display());
                Ok(())
            }
            Self::Help => {
                print!("{USAGE}");
                Ok(())
            }
        }
    }
}

/// The options of `test`.
fn test_options(words: &[&str]) -> Option<test::Options> {
    let mut options = test::Options::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--long" => options.long = true,
            "--host" if options.side.is_none() => options.side = Some(Side::Host),
            "--device" if options.side.is_none() => options.side = Some(Side::Device),
            "--only" => options.only = Some((*words.next()?).to_owned()),
            _ => return None,
        }
    }
    Some(options)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(task) = Task::parse(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match task.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_parsed() {
        assert_eq!(Task::parse(&["demo"]), Some(Task::Demo(Target::Firmware)));
        let native = Task::parse(&["demo", "--native"]);
        assert_eq!(native, Some(Task::Demo(Target::Native)));
        let cpus = Task::parse(&["demo", "--cpus"]);
        assert_eq!(cpus, Some(Task::Demo(Target::Cpus)));
        let long = Task::parse(&["test", "--long", "--only", "kymo-link", "--host"]);
        let options = test::Options {
            long: true,
            side: Some(Side::Host),
            only: Some("kymo-link".to_owned()),
        };
        assert_eq!(long, Some(Task::Test(options)));
        let all = Some(Task::Test(test::Options::default()));
        assert_eq!(Task::parse(&["test"]), all);
        assert_eq!(Task::parse(&["test", "--only"]), None);
        assert_eq!(Task::parse(&["test", "--host", "--device"]), None);
        assert_eq!(Task::parse(&["setup"]), Some(Task::Setup));
        let other = Task::parse(&["lib", "thumbv7m-none-eabi"]);
        assert_eq!(
            other,
            Some(Task::Library(Some("thumbv7m-none-eabi".into()), None))
        );
        let counted = Task::parse(&["bench", "coresight", "--count"]);
        assert_eq!(counted, Some(Task::BenchCoresight { count: true }));
        assert_eq!(Task::parse(&["lib"]), Some(Task::Library(None, None)));
        let parts = |parts: &str| Some(parts.to_owned());
        assert_eq!(
            Task::parse(&["lib", "--parts", "none"]),
            Some(Task::Library(None, parts("none")))
        );
        assert_eq!(
            Task::parse(&["lib", "thumbv7m-none-eabi", "--parts", "depth,profile"]),
            Some(Task::Library(
                Some("thumbv7m-none-eabi".into()),
                parts("depth,profile")
            ))
        );
        assert_eq!(Task::parse(&["lib", "--parts"]), None);
        for (words, tighten) in [
            (&["bench", "recorder"][..], false),
            (&["bench", "recorder", "--tighten"], true),
        ] {
            let only = None;
            assert_eq!(Task::parse(words), Some(Task::Bench { tighten, only }));
        }
        assert_eq!(
            Task::parse(&["bench", "ctf", "--count"]),
            Some(Task::CountCtf)
        );
        let million = Task::parse(&["bench", "ctf", "--events", "1000000"]);
        assert_eq!(million, Some(Task::BenchCtf(1_000_000)));
        assert_eq!(Task::parse(&["bench", "ctf", "--events", "many"]), None);
        let analyze = |words: &[&str]| match Task::parse(&[&["bench", "analyze"], words].concat()) {
            Some(Task::BenchAnalyze(options)) => Some(options),
            _ => None,
        };
        let options = bench::analyze::Options {
            print_only: true,
            quick: true,
            long: false,
            only: Some("show".to_owned()),
        };
        assert_eq!(analyze(&["--print", "show", "--quick"]), Some(options));
        assert_eq!(analyze(&[]), Some(bench::analyze::Options::default()));
        assert_eq!(analyze(&["show", "folded"]), None);
        let minimal = Task::parse(&["lib", "thumbv7m-none-eabi", "--minimal"]);
        assert_eq!(minimal, Some(Task::Minimal("thumbv7m-none-eabi".into())));
        assert_eq!(Task::parse(&["lib", "--native"]), None);
        assert_eq!(
            Task::parse(&["lib", "--sysview"]),
            Some(Task::SysView(None))
        );
        let sysview = Task::parse(&["lib", "thumbv7m-none-eabi", "--sysview"]);
        let target = Some("thumbv7m-none-eabi".to_owned());
        assert_eq!(sysview, Some(Task::SysView(target)));
        assert_eq!(
            Task::parse(&["lib", "aarch64-unknown-none", "--minimal"]),
            None
        );
        assert_eq!(Task::parse(&[]), None);
        assert_eq!(Task::parse(&["demo", "--nativ"]), None);
    }
}
