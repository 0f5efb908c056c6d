//! `cargo xtask demo`: a demonstration for users who have just cloned the repository.
//!
//! Builds the demonstration program and `kymo`, runs the program, and examines it with command lines that a user would
//! type, which are printed. Output files are in `target/demo`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kymo_targets::cpus::{self, Machine, Stress, Wish};
use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::native::{self, CompilerKind, Running};
use kymo_targets::run::{self, Background, Context, Error, Result};
use kymo_targets::rust::{BareRust, FIRMWARE_TARGET};
use kymo_targets::tools::Need;

use crate::setup;

/// Target of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// On a Cortex-M3 in QEMU; on this machine if the tools are unavailable.
    Firmware,
    /// On this machine.
    Native,
    /// Another program, on eight Cortex-A72 in QEMU.
    Cpus,
}

/// How many lines of the text trace are shown.
const LINES_SHOWN: usize = 60;

/// Runs the demonstration.
pub fn demo(target: Target) -> Result<()> {
    heading("The tool");
    let kymo = kymo::build(Profile::Release)?;
    // The subcommands run in the root of the checkout and get relative paths, as a user types them.
    let out = Path::new("target/demo");
    let folder = run::root().join(out);
    if folder.exists() {
        fs::remove_dir_all(&folder).context(folder.display())?;
    }
    fs::create_dir_all(&folder).context(folder.display())?;

    let rust = match target {
        Target::Firmware => firmware_tools(),
        Target::Native | Target::Cpus => None,
    };
    let ran = match rust {
        None if target == Target::Cpus => {
            setup::packages(&[Need::Cpus])?;
            eight_cpus(&kymo, out)?;
            "eight Cortex-A72 (virt) in QEMU"
        }
        Some(rust) => {
            heading("The firmware, built for a Cortex-M3");
            let elf = firmware::build(Hooks::Kymo, &rust)?;
            heading("The firmware boots; its UART is a TCP port");
            let qemu = Qemu::boot(&elf, &folder, false)?;
            look(&kymo, &qemu.target(), &from_root(&elf), out)?;
            "Lua on a Cortex-M3 (mps2-an385) in QEMU"
        }
        None => {
            setup::packages(&[Need::Native])?;
            heading("The program, built for this machine");
            let program = native::build(CompilerKind::Gcc, Hooks::Kymo)?;
            let running = Running::start(&program)?;
            look(&kymo, &running.target(), &from_root(&program), out)?;
            "Lua on this machine (native)"
        }
    };
    println!();
    println!("Everything is in target/demo; README.txt there says what each file is.");
    println!("target: {ran}");
    Ok(())
}

/// The compiler for the firmware; `None`, with a message, if this machine lacks the tools.
fn firmware_tools() -> Option<BareRust> {
    match setup::packages(&[Need::Firmware]).and_then(|()| setup::rust_for(FIRMWARE_TARGET)) {
        Ok(rust) => Some(rust),
        Err(error) => {
            eprintln!("warning: NO CORTEX-M3 TODAY: {error}");
            eprintln!("warning: going on with the same program built for this machine instead");
            None
        }
    }
}

fn heading(text: &str) {
    println!("\n== {text}");
}

/// The path relative to the root of the checkout, if it is inside.
fn from_root(path: &Path) -> PathBuf {
    path.strip_prefix(run::root()).unwrap_or(path).to_owned()
}

/// `kymo VERB`.
fn verb(kymo: &Path, verb: &str) -> Command {
    let mut command = Command::new(kymo);
    command.arg(verb).current_dir(run::root());
    command
}

/// The demonstration on eight CPUs.
fn eight_cpus(kymo: &Path, out: &Path) -> Result<()> {
    heading("The program, built for AArch64");
    let rust = setup::rust_for(cpus::TARGET)?;
    let elf = cpus::build(&rust, &[])?;
    heading("A million records of eight CPUs, each checked while all continue to record");
    cpus::stress(&cpus::build_stress(&rust, &[])?, Stress::Whole(42_000))?;
    let shown = from_root(&elf);
    heading("The CPUs work; their UART is a TCP port");
    let machine = Machine::boot(&elf, Wish::Demonstration)?;
    get(kymo, &machine.target(), &shown, out)?;
    drop(machine);
    show_trace(kymo, &shown, out)?;
    heading("What they do now, streamed while they go on");
    let machine = Machine::boot(&elf, Wish::Live)?;
    record(kymo, &machine.target(), 5000, &shown, out)?;
    explain(&shown, kymo, out)
}

/// Examines a running target as a user would, with output in `out`.
fn look(kymo: &Path, target: &str, elf: &Path, out: &Path) -> Result<()> {
    get(kymo, target, elf, out)?;

    heading("The profile table that the target itself keeps");
    let mut command = verb(kymo, "profile");
    command.args(["--target", target, "--elf"]).arg(elf);
    run::run(command.args(["-n", "15"]))?;

    show_trace(kymo, elf, out)?;

    heading("What it does now, streamed while it goes on");
    run::run(verb(kymo, "command").args(["on", "--target", target]))?;
    record(kymo, target, 50_000, elf, out)?;
    explain(elf, kymo, out)
}

/// Fetches the trace of a running target.
fn get(kymo: &Path, target: &str, elf: &Path, out: &Path) -> Result<()> {
    let kymo = |name: &str| verb(kymo, name);

    heading("Who is there, and what has it recorded?");
    run::run(kymo("status").args(["--target", target]))?;

    heading("Get the trace");
    let mut command = kymo("trace");
    command.args(["--target", target, "--elf"]).arg(elf);
    run::run(command.arg("--output").arg(out.join("trace")))
}

/// Shows the trace, and exports it to pictures.
fn show_trace(kymo: &Path, elf: &Path, out: &Path) -> Result<()> {
    let kymo = |name: &str| verb(kymo, name);
    let trace = out.join("trace");

    heading("What happened, as text");
    show(kymo("show").arg("--elf").arg(elf).arg(&trace))?;

    heading("Which functions took the time? (from the trace)");
    let mut command = kymo("report");
    command.arg("--elf").arg(elf);
    run::run(command.args(["--sort", "self", "-n", "15"]).arg(&trace))?;

    heading("Pictures");
    for (format, file) in [("perfetto", "trace.pftrace"), ("flamegraph", "flame.svg")] {
        let mut command = kymo("export");
        command.args(["--to", format, "--elf"]).arg(elf);
        run::run(command.arg("--output").arg(out.join(file)).arg(&trace))?;
    }
    Ok(())
}

/// Records a running target until `events` have arrived.
fn record(kymo: &Path, target: &str, events: u32, elf: &Path, out: &Path) -> Result<()> {
    let live = out.join("live");
    let mut command = verb(kymo, "record");
    command.args(["--target", target, "--events", &events.to_string()]);
    command.arg("--elf").arg(elf);
    run::run(command.arg("--output").arg(&live))?;
    run::run(verb(kymo, "info").arg("--elf").arg(elf).arg(&live))
}

/// Runs a command, prints the beginning of its output, and discards the rest.
fn show(command: &mut Command) -> Result<()> {
    println!("$ {} | head -n {LINES_SHOWN}", run::line(command));
    let mut process = Background::spawn(command.stdout(Stdio::piped()))?;
    let output = process
        .take_stdout()
        .ok_or_else(|| Error::new("no output"))?;
    let mut lines = 0;
    for line in BufReader::new(output).lines().take(LINES_SHOWN) {
        println!("{}", line.context(run::line(command))?);
        lines += 1;
    }
    // The pipe is closed now, which must end the command without an error.
    let status = process.wait(run::PATIENCE)?;
    if lines == 0 || !status.success() {
        let shown = run::line(command);
        return Err(Error::new(format!("{shown}: {status}, {lines} lines")));
    }
    Ok(())
}

/// Writes `README.txt`.
fn explain(elf: &Path, kymo: &Path, out: &Path) -> Result<()> {
    let readme = run::root().join(out).join("README.txt");
    fs::write(&readme, explanation(elf, kymo)).context(readme.display())
}

/// Content of `README.txt`.
fn explanation(elf: &Path, kymo: &Path) -> String {
    let kymo = run::relative(kymo.display());
    let elf = run::relative(elf.display());
    format!(
        "What `cargo xtask demo` left here\n\
         =================================\n\n\
         trace/         The recording: a CTF trace directory, one file a stream.\n\
        \x20              kymo show --elf {elf} target/demo/trace\n\
        \x20              babeltrace2 target/demo/trace     (any other CTF reader too)\n\n\
         live/          Another one, which `kymo record` wrote while the program ran on.\n\n\
         trace.pftrace  The same for Perfetto: open https://ui.perfetto.dev and drop the\n\
        \x20              file there (it stays on your machine).\n\n\
         flame.svg      Where the time went: open it in a web browser. A box is a function,\n\
        \x20              its width the time; click on one to see it alone.\n\n\
         The program that was traced: {elf}\n\
         (its sources: demos/; how to trace your own: README.md)\n\n\
         kymo itself was built as {kymo}; `cargo install --path host/cli` installs it.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_every_file() {
        let kymo = Path::new("/elsewhere/release/kymo");
        let text = explanation(&run::root().join("target/x.elf"), kymo);
        for name in [
            "trace/",
            "live/",
            "trace.pftrace",
            "flame.svg",
            " target/x.elf ",
            " /elsewhere/release/kymo;",
        ] {
            assert!(text.contains(name), "{name}");
        }
    }

    #[test]
    fn only_the_beginning_is_shown() {
        show(Command::new("echo").arg("one")).unwrap();
        assert!(show(&mut Command::new("false")).is_err());
        assert!(show(&mut Command::new("true")).is_err());
    }
}
