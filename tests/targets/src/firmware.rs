//! The demonstration firmware: built for a Cortex-M3, run by QEMU.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::compile::{self, Compiler, Source};
use crate::library;
use crate::lua;
use crate::port;
use crate::run::{self, Background, Context, Error, Result};
use crate::rust::BareRust;
use crate::tools::FIRMWARE_CPU;

/// Implementation of the compiler's hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hooks {
    /// Kymo.
    Kymo,
    /// Kymo without the profile table and other features that the fast hooks don't support.
    Lean,
    /// As [`Lean`](Self::Lean), but with the program of `device/tests/kernels` instead of Lua.
    LeanKernels,
    /// As [`Lean`](Self::Lean), with duration mode, which is off until the host turns it on.
    Duration,
    /// The naive recorder of `device/tests/naive`, which logs everything and then calls Kymo's hooks.
    Naive,
    /// None: nothing is instrumented.
    None,
}

impl Hooks {
    /// Name of the build folder with these hooks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kymo => "kymo",
            Self::Lean => "lean",
            Self::LeanKernels => "lean-kernels",
            Self::Duration => "duration",
            Self::Naive => "naive",
            Self::None => "none",
        }
    }
}

/// Line that the program prints at the end of its first round, which is recorded by default.
pub const FIRST_ROUND_DONE: &str = "demo: the first round is done";

/// Optimization of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Optimized {
    /// gcc's option for the program.
    pub program: &'static str,
    /// Optimization level of `libkymo.a`; `None` for the default.
    pub library: Option<&'static str>,
}

impl Optimized {
    /// Typical options for a microcontroller.
    pub const USUAL: Self = Self {
        program: "-Os",
        library: None,
    };

    /// Suffix of the build folder's name.
    fn suffix(self) -> String {
        match self {
            Self::USUAL => String::new(),
            Self { program, library } => format!("{program}-{}", library.unwrap_or("usual")),
        }
    }
}

/// Builds the firmware, with this Rust compiler for its library, and returns the path of its ELF file.
pub fn build(hooks: Hooks, rust: &BareRust) -> Result<PathBuf> {
    build_optimized(hooks, rust, Optimized::USUAL)
}

/// As [`build`], with this optimization. [`Hooks::Duration`] ignores the level of the library.
pub fn build_optimized(hooks: Hooks, rust: &BareRust, optimized: Optimized) -> Result<PathBuf> {
    // Tests run in parallel, and would write the same files.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let root = run::root();
    let demos = root.join("demos");
    let folder = run::target_dir()
        .join("demos/firmware")
        .join(hooks.name().to_owned() + &optimized.suffix());
    let mut library = match optimized.library {
        _ if hooks == Hooks::Duration => {
            let parts = library::parts(Some(library::WITH_DURATION))?;
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            library::for_bare_metal_with(rust, &parts)?
        }
        Some(level) => library::for_bare_metal_optimized(rust, level)?,
        None => library::for_bare_metal(rust)?,
    };
    let lua = lua::sources()?;

    let mut compiler = Compiler::new("arm-none-eabi-gcc");
    compiler
        .args(FIRMWARE_CPU)
        .args(["-std=gnu11", optimized.program, "-g"])
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(["-ffunction-sections", "-fdata-sections", lua::FIXED_SEED])
        .include(&lua.include)
        .include(&root.join("device/c/include"))
        .include(&demos.join("lua"))
        .include(&demos.join("firmware"))
        .include(&root.join("device/tests/naive"));
    let traced = |file| match hooks {
        Hooks::None => Source::plain(file),
        _ => Source::instrumented(file),
    };
    let mut sources: Vec<Source> = Vec::new();
    if hooks == Hooks::LeanKernels {
        sources.push(traced(root.join("device/tests/kernels/program.c")));
    } else {
        sources.extend(lua.files.into_iter().map(traced));
        sources.push(traced(demos.join("lua/program.c")));
        sources.push(Source::plain(demos.join("lua/script.S")));
    }
    let switched = demos.join("firmware/switched.c");
    sources.push(match hooks {
        // In these builds functions are not promoted: they record a switch themselves, because a call that begins in
        // one thread and ends in another would belong to neither.
        Hooks::Lean | Hooks::LeanKernels | Hooks::Duration => Source::plain(switched),
        _ => traced(switched),
    });
    for name in ["main", "scheduler", "start", "syscalls", "uart"] {
        let file = demos.join("firmware").join(name).with_extension("c");
        sources.push(Source::plain(file));
    }
    if matches!(hooks, Hooks::Lean | Hooks::LeanKernels | Hooks::Duration) {
        compiler.args(["-DLEAN"]);
    }
    if hooks == Hooks::Duration {
        compiler.args(["-DDURATION"]);
    }
    if hooks == Hooks::Naive {
        compiler.args(compile::naive_options());
        // Not firmware.c: its object file could get the same name as one of the firmware's own.
        sources.push(Source::plain(
            root.join("device/tests/naive/naive_firmware.c"),
        ));
        fs::create_dir_all(&folder).context(folder.display())?;
        let copy = folder.join("libkymo.a");
        compile::rename_hooks("arm-none-eabi-objcopy", &library, &copy)?;
        library = copy;
    }
    let objects = compiler.compile(&sources, &folder.join("objects"))?;

    let elf = folder.join("firmware.elf");
    let mut linker = Command::new("arm-none-eabi-gcc");
    linker
        .args(FIRMWARE_CPU)
        .args(["-nostartfiles", "-Wl,--gc-sections", "-Wl,--build-id"])
        // newlib's assembly does not declare its stack, which matters only to a loader.
        .arg("-Wl,--no-warn-execstack")
        .args(compile::wrap_options(&["setjmp", "longjmp"]))
        .arg("-T")
        .arg(demos.join("firmware/firmware.ld"))
        .args(&objects)
        // libkymo.a is last, because its Rust part also contains some functions of libm and libc.
        .args(["-lm", "-lc"])
        .arg(&library)
        .current_dir(&root);
    let shown = run::relative(elf.display());
    println!("$ arm-none-eabi-gcc ... -o {shown}");
    run::make(&mut linker, &elf)?;
    Ok(elf)
}

/// The firmware, running in QEMU with its UART on a TCP port. Dropping it ends QEMU.
#[derive(Debug)]
pub struct Qemu {
    process: Background,
    port: u16,
}

impl Qemu {
    /// Boots `elf` in the folder `working_dir`, where semihosting puts its files, and waits until the program has
    /// printed [`FIRST_ROUND_DONE`].
    ///
    ///  QEMU starts the processor only when a client is connected to the UART, so that no output is lost; and it counts
    /// instructions instead of time (64 ns for each), so that durations are the program's, whatever the load of this
    /// machine. (Two runs still differ a little: the start of the virtual clock is not fixed.) Afterwards the port is
    /// free for `kymo`.
    pub fn boot(elf: &Path, working_dir: &Path, semihosting: bool) -> Result<Self> {
        let semihosting_on = ["-semihosting-config", "enable=on,target=native"];
        let options: &[&str] = if semihosting { &semihosting_on } else { &[] };
        Self::boot_with(elf, working_dir, options)
    }

    /// As [`boot`](Self::boot), with more options for QEMU.
    pub fn boot_with(elf: &Path, working_dir: &Path, options: &[&str]) -> Result<Self> {
        let (mut command, port) = Self::command(elf, working_dir, options)?;
        let mut qemu = Self {
            process: Background::start(&mut command)?,
            port,
        };
        qemu.wait_for_first_round()?;
        Ok(qemu)
    }

    /// The same with a plugin, which `options` select; `reader` gets the plugin's output from QEMU's standard output,
    /// and has to keep reading while QEMU runs.
    pub fn boot_with_plugin(
        elf: &Path,
        working_dir: &Path,
        options: &[&str],
        reader: impl FnOnce(ChildStdout),
    ) -> Result<Self> {
        let (mut command, port) = Self::command(elf, working_dir, options)?;
        let mut qemu = Self {
            process: Background::start(command.stdout(Stdio::piped()))?,
            port,
        };
        let output = qemu.process.take_stdout();
        reader(output.ok_or_else(|| Error::new("QEMU has no output"))?);
        qemu.wait_for_first_round()?;
        Ok(qemu)
    }

    /// The command that starts QEMU, and the port of its UART.
    fn command(elf: &Path, working_dir: &Path, options: &[&str]) -> Result<(Command, u16)> {
        let port = port::free()?;
        let mut command = Command::new("qemu-system-arm");
        command
            .args(["-M", "mps2-an385", "-icount", "shift=6"])
            .args(["-display", "none", "-monitor", "none"])
            .arg("-serial")
            .arg(format!("tcp:127.0.0.1:{port},server=on,wait=on,nodelay=on"))
            .arg("-kernel")
            .arg(elf)
            .current_dir(working_dir)
            .args(options)
            .stdin(Stdio::null());
        Ok((command, port))
    }

    /// The UART's address for `kymo --target`.
    pub fn target(&self) -> String {
        format!("tcp:127.0.0.1:{}", self.port)
    }

    fn wait_for_first_round(&mut self) -> Result<()> {
        let patience = Duration::from_secs(1800);
        let deadline = Instant::now() + patience;
        let stream = port::connect(&mut self.process, self.port, patience)?;
        for line in BufReader::new(stream).split(b'\n') {
            let line = line.context("waiting for the firmware's first round")?;
            let line = String::from_utf8_lossy(&line).into_owned();
            println!("  | {line}");
            if line.contains(FIRST_ROUND_DONE) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Error::new("the firmware's first round takes too long"));
            }
        }
        Err(Error::new("QEMU ended before the firmware's first round"))
    }
}
