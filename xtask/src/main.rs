//! Kymo's chores: `cargo xtask demo`, `cargo xtask test`, `cargo xtask bench`, `cargo xtask lib`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xtask::bench;
use xtask::demo::{self, Target};
use xtask::library;
use xtask::run::Result;
use xtask::tools::{self, BareRust, Need};

mod proof;
mod test;

const USAGE: &str = "\
Usage: cargo xtask <chore>

  demo [--native]   build the demonstration program, run it, look at it with kymo
                    (on a Cortex-M3 in QEMU; --native: on this machine)
  demo --cpus       the same with another program on eight Cortex-A72 in QEMU
  test [--long]     all tests, with what they need installed (--long: also those that take long)
  bench recorder    what recording costs on each processor: instructions, bytes, code size, RAM
                    (--tighten: what is better than it was may not get worse again)
  bench ctf [--events N | --count]  how quickly CTF is read, beside babeltrace2: times and memory, or instructions
                    held against budgets (--count)
  lib [TARGET] [--parts PART,...|none]  libkymo.a for this machine, or for another (thumbv7em-none-eabihf, ...), with
                    these parts alone: depth, profile, metadata, cost, promotions, retained, items
  lib TARGET --minimal  libkymo_minimal.a for a Cortex-M whose flash is short
";

/// What was asked for on the command line.
#[derive(Debug, PartialEq, Eq)]
enum Chore {
    Demo(Target),
    Test {
        long: bool,
    },
    Bench {
        tighten: bool,
    },
    /// Times on traces of so many events.
    BenchCtf(u64),
    /// Instructions.
    CountCtf,
    /// For this target, or this machine, with these parts, or all.
    Library(Option<String>, Option<String>),
    Minimal(String),
    Help,
}

impl Chore {
    fn parse(words: &[&str]) -> Option<Self> {
        Some(match words {
            ["demo"] => Self::Demo(Target::Firmware),
            ["demo", "--native"] => Self::Demo(Target::Native),
            ["demo", "--cpus"] => Self::Demo(Target::Cpus),
            ["test"] => Self::Test { long: false },
            ["test", "--long"] => Self::Test { long: true },
            ["bench", "recorder"] => Self::Bench { tighten: false },
            ["bench", "recorder", "--tighten"] => Self::Bench { tighten: true },
            ["bench", "ctf"] => Self::BenchCtf(bench::ctf::EVENTS),
            ["bench", "ctf", "--events", events] => Self::BenchCtf(events.parse().ok()?),
            ["bench", "ctf", "--count"] => Self::CountCtf,
            ["lib", target, "--minimal"] if target.starts_with("thumb") => {
                Self::Minimal((*target).to_owned())
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
            Self::Test { long } => test::test(long),
            Self::Bench { tighten } => {
                tools::ensure(&[
                    Need::Firmware,
                    Need::Native,
                    Need::Foreign,
                    Need::Processors,
                ])?;
                bench::recorder(tighten)
            }
            Self::BenchCtf(events) => {
                tools::ensure(&[Need::Checks])?;
                bench::ctf::time(events)
            }
            Self::CountCtf => {
                tools::ensure(&[Need::Checks])?;
                bench::ctf::count()
            }
            Self::Library(target, parts) => {
                let parts = library::parts(parts.as_deref())?;
                let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
                let library = match target {
                    None => library::for_this_machine_with(&parts),
                    Some(target) => {
                        let rust = BareRust::ensure_for(&target)?;
                        library::for_bare_metal_with(&rust, &parts)
                    }
                }?;
                println!("{}", library.display());
                Ok(())
            }
            Self::Minimal(target) => {
                let library = library::minimal(&BareRust::ensure_for(&target)?)?;
                println!("{}", library.display());
                Ok(())
            }
            Self::Help => {
                print!("{USAGE}");
                Ok(())
            }
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(chore) = Chore::parse(&words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    match chore.run() {
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
    fn chores_are_told_apart() {
        assert_eq!(Chore::parse(&["demo"]), Some(Chore::Demo(Target::Firmware)));
        let native = Chore::parse(&["demo", "--native"]);
        assert_eq!(native, Some(Chore::Demo(Target::Native)));
        let cpus = Chore::parse(&["demo", "--cpus"]);
        assert_eq!(cpus, Some(Chore::Demo(Target::Cpus)));
        let long = Chore::parse(&["test", "--long"]);
        assert_eq!(long, Some(Chore::Test { long: true }));
        let other = Chore::parse(&["lib", "thumbv7m-none-eabi"]);
        assert_eq!(
            other,
            Some(Chore::Library(Some("thumbv7m-none-eabi".into()), None))
        );
        assert_eq!(Chore::parse(&["lib"]), Some(Chore::Library(None, None)));
        let parts = |parts: &str| Some(parts.to_owned());
        assert_eq!(
            Chore::parse(&["lib", "--parts", "none"]),
            Some(Chore::Library(None, parts("none")))
        );
        assert_eq!(
            Chore::parse(&["lib", "thumbv7m-none-eabi", "--parts", "depth,profile"]),
            Some(Chore::Library(
                Some("thumbv7m-none-eabi".into()),
                parts("depth,profile")
            ))
        );
        assert_eq!(Chore::parse(&["lib", "--parts"]), None);
        for (words, tighten) in [
            (&["bench", "recorder"][..], false),
            (&["bench", "recorder", "--tighten"], true),
        ] {
            assert_eq!(Chore::parse(words), Some(Chore::Bench { tighten }));
        }
        assert_eq!(
            Chore::parse(&["bench", "ctf", "--count"]),
            Some(Chore::CountCtf)
        );
        let million = Chore::parse(&["bench", "ctf", "--events", "1000000"]);
        assert_eq!(million, Some(Chore::BenchCtf(1_000_000)));
        assert_eq!(Chore::parse(&["bench", "ctf", "--events", "many"]), None);
        let minimal = Chore::parse(&["lib", "thumbv7m-none-eabi", "--minimal"]);
        assert_eq!(minimal, Some(Chore::Minimal("thumbv7m-none-eabi".into())));
        assert_eq!(Chore::parse(&["lib", "--native"]), None);
        assert_eq!(
            Chore::parse(&["lib", "aarch64-unknown-none", "--minimal"]),
            None
        );
        assert_eq!(Chore::parse(&[]), None);
        assert_eq!(Chore::parse(&["demo", "--nativ"]), None);
    }
}
