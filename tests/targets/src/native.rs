//! The native demonstration: the same program built for this machine.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use crate::compile::{self, Compiler, Source};
use crate::firmware::{FIRST_ROUND_DONE, Hooks};
use crate::library;
use crate::lua;
use crate::run::{self, Background, Context, Error, Result};

/// Compilers with function instrumentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompilerKind {
    /// GCC.
    Gcc,
    /// Clang.
    Clang,
}

impl CompilerKind {
    /// The name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
        }
    }
}

/// Builds the program with this compiler and returns its path.
pub fn build(compiler: CompilerKind, hooks: Hooks) -> Result<PathBuf> {
    // Tests run in parallel, and would write the same files.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock();
    let root = run::root();
    let demos = root.join("demos");
    let name = format!("{}-{}", compiler.program(), hooks.name());
    let folder = run::target_dir().join("demos/native").join(name);
    let mut library = library::for_this_machine()?;
    let lua = lua::sources()?;

    let mut cc = Compiler::new(compiler.program());
    cc.args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-pthread", lua::FIXED_SEED])
        .include(&lua.include)
        .include(&root.join("device/c/include"))
        .include(&demos.join("lua"))
        .include(&root.join("device/tests/naive"));
    let mut sources: Vec<Source> = lua.files.into_iter().map(Source::instrumented).collect();
    sources.push(Source::instrumented(demos.join("lua/program.c")));
    sources.push(Source::plain(demos.join("lua/script.S")));
    sources.push(Source::plain(demos.join("native/main.c")));
    if hooks == Hooks::Naive {
        cc.args(compile::naive_options());
        sources.push(Source::plain(
            root.join("device/tests/naive/naive_native.c"),
        ));
        fs::create_dir_all(&folder).context(folder.display())?;
        let copy = folder.join("libkymo.a");
        compile::rename_hooks("objcopy", &library, &copy)?;
        library = copy;
    }
    let objects = cc.compile(&sources, &folder.join("objects"))?;

    let program = folder.join("demo");
    let mut linker = Command::new(compiler.program());
    linker
        .args(["-pthread", "-Wl,--build-id"])
        .args(compile::wrap_options(&["_setjmp", "longjmp"]))
        .args(&objects)
        .arg(&library)
        .arg("-lm")
        .current_dir(&root);
    let shown = run::relative(program.display());
    println!("$ {} ... -o {shown}", compiler.program());
    run::make(&mut linker, &program)?;
    Ok(program)
}

/// The running program, with Kymo's link on a TCP port. Dropping it ends the program.
#[derive(Debug)]
pub struct Running {
    _process: Background,
    address: String,
}

impl Running {
    /// Starts `program` and waits until its first round is over.
    pub fn start(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command
            .args(["--port", "0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = Background::start(&mut command)?;
        let output = process
            .take_stdout()
            .ok_or_else(|| Error::new("the program has no output"))?;
        let mut output = BufReader::new(output);
        let mut address = None;
        loop {
            let mut line = String::new();
            if output.read_line(&mut line).context(program.display())? == 0 {
                return Err(Error::new("the program ended before its first round"));
            }
            print!("  | {line}");
            if let Some(at) = line.trim().strip_prefix("demo: listening at ") {
                address = Some(at.to_owned());
            }
            if line.trim() == FIRST_ROUND_DONE {
                break;
            }
        }
        // The program must be able to keep printing; its further output is not needed.
        thread::spawn(move || io::copy(&mut output, &mut io::sink()));
        Ok(Self {
            _process: process,
            address: address.ok_or_else(|| Error::new("the program named no port"))?,
        })
    }

    /// The link's address for `kymo --target`.
    pub fn target(&self) -> String {
        format!("tcp:{}", self.address)
    }
}
