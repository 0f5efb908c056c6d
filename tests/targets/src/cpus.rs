//! The eight-CPU demonstration and the stress test on the same board: built for AArch64, run by QEMU's machine `virt`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::port;
use crate::run::{self, Background, Context, Error, Result};
use crate::rust::BareRust;

/// The Rust target.
pub const TARGET: &str = "aarch64-unknown-none";

/// Messages of the demonstration when every CPU has finished, and when all start to work endlessly.
const READY: [&str; 2] = ["CPUs are done", "CPUs are at work"];

/// Time-out of a program that ends by itself. Emulating eight CPUs is slow on a machine with one or two, and the
/// time-out only has to detect a hang.
const PATIENCE: Duration = Duration::from_secs(8 * 3600);

/// Builds the demonstration with these features, and returns the path of its ELF file.
pub fn build(rust: &BareRust, features: &[&str]) -> Result<PathBuf> {
    build_in(rust, features, "demos/cpus", "kymo-demo-cpus")
}

/// Builds the stress test with these features, and returns the path of its ELF file.
pub fn build_stress(rust: &BareRust, features: &[&str]) -> Result<PathBuf> {
    build_in(rust, features, "device/tests/cpus", "kymo-stress-cpus")
}

/// Builds the package in `folder`, whose program has this name.
fn build_in(rust: &BareRust, features: &[&str], folder: &str, program: &str) -> Result<PathBuf> {
    // Tests run in parallel, and would write the same files.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let name = features.first().unwrap_or(&"plain");
    let target_dir = run::target_dir().join(folder).join(name);
    let mut cargo = rust.cargo_build();
    cargo
        .args(["--release", "--features", &features.join(",")])
        .arg("--manifest-path")
        .arg(run::root().join(folder).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir);
    run::run(&mut cargo)?;
    Ok(target_dir.join(TARGET).join("release").join(program))
}

/// Task of the demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Works, and then answers at its UART.
    Demonstration,
    /// Works endlessly and slowly, and answers at its UART meanwhile.
    Live,
}

/// Task of the stress test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stress {
    /// Every CPU does this many rounds of three records, and waits when the checking CPU falls behind, so that no event
    /// may be lost.
    Whole(u32),
    /// No CPU waits: lost events must be counted.
    Lossy(u32),
}

impl Wish {
    /// The value that the program reads from memory.
    fn words(self) -> u64 {
        match self {
            Self::Demonstration => 0,
            Self::Live => 3,
        }
    }
}

impl Stress {
    /// The value that the program reads from memory.
    fn words(self) -> u64 {
        match self {
            Self::Whole(rounds) => 1 | u64::from(rounds) << 32,
            Self::Lossy(rounds) => 2 | u64::from(rounds) << 32,
        }
    }
}

/// QEMU with eight Cortex-A72 and this program, which reads `words` from memory.
fn qemu(elf: &Path, words: u64, serial: &str) -> Command {
    let mut command = Command::new("qemu-system-aarch64");
    command
        .args(["-M", "virt,gic-version=2", "-cpu", "cortex-a72"])
        .args(["-smp", "8", "-m", "512M", "-nic", "none"])
        .args(["-display", "none", "-monitor", "none", "-serial", serial])
        .arg("-kernel")
        .arg(elf)
        .arg("-device")
        .arg(format!("loader,addr=0x47fff000,data={words:#x},data-len=8"))
        .stdin(Stdio::null());
    command
}

/// Time-out without output during the stress. The program reports its progress every fifty thousand rounds, which takes
/// less than a minute on an idle machine.
const SILENCE: Duration = Duration::from_secs(3600);

/// Runs the stress to its end, and returns the line with its result.
pub fn stress(elf: &Path, task: Stress) -> Result<String> {
    let mut command = qemu(elf, task.words(), "stdio");
    let mut process = Background::start(command.stdout(Stdio::piped()))?;
    let output = process
        .take_stdout()
        .ok_or_else(|| Error::new("no output"))?;
    let (printed, lines) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(|line| line.ok());
        // The receiver has given up, because there was no output for too long.
        lines
            .map(|line| printed.send(line))
            .find(|sent| sent.is_err())
    });
    let mut last = None;
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => {
                println!("  | {line}");
                last = Some(line);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let what = format!("the stress said nothing for {} s", SILENCE.as_secs());
                return Err(Error::new(what));
            }
        }
    }
    process.wait(PATIENCE)?;
    last.ok_or_else(|| Error::new("the program said nothing"))
}

/// The demonstration, running in QEMU with its UART on a TCP port. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Machine {
    process: Background,
    port: u16,
}

impl Machine {
    /// Boots `elf`, and waits until all CPUs have finished, or have started if the task is endless. Afterwards the port
    /// is free for `kymo`.
    pub fn boot(elf: &Path, wish: Wish) -> Result<Self> {
        Self::boot_with(elf, wish, &[])
    }

    /// As [`boot`](Self::boot), with more options for QEMU.
    pub fn boot_with(elf: &Path, wish: Wish, options: &[&str]) -> Result<Self> {
        let port = port::free()?;
        let serial = format!("tcp:127.0.0.1:{port},server=on,wait=on,nodelay=on");
        let process = Background::start(qemu(elf, wish.words(), &serial).args(options))?;
        let mut machine = Self { process, port };
        machine.wait_until_ready()?;
        Ok(machine)
    }

    /// The UART's address for `kymo --target`.
    pub fn target(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let stream = port::connect(&mut self.process, self.port, PATIENCE)?;
        for line in BufReader::new(stream).lines() {
            let line = line.context("waiting for the CPUs")?;
            println!("  | {line}");
            if READY.iter().any(|ready| line.contains(ready)) {
                return Ok(());
            }
        }
        Err(Error::new("QEMU ended before the CPUs were done"))
    }
}
