//! Compilation of the demonstrations: a list of C files with the same options, in parallel on all processors.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::run::{self, Context, Error, Result};

/// A compiler with its options.
#[derive(Clone, Debug)]
pub struct Compiler {
    program: OsString,
    options: Vec<OsString>,
}

/// A C file, and whether it is instrumented.
#[derive(Debug)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// Whether the compiler inserts calls of the hooks.
    pub instrumented: bool,
}

impl Source {
    /// An instrumented file.
    pub fn instrumented(file: PathBuf) -> Self {
        Self {
            file,
            instrumented: true,
        }
    }

    /// A file without instrumentation: Kymo calls its functions, or they run before anything is set up.
    pub fn plain(file: PathBuf) -> Self {
        Self {
            file,
            instrumented: false,
        }
    }
}

impl Compiler {
    /// Creates a compiler without options.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            options: Vec::new(),
        }
    }

    /// Adds options.
    pub fn args<A: Into<OsString>>(&mut self, options: impl IntoIterator<Item = A>) -> &mut Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Adds a folder for header files.
    pub fn include(&mut self, folder: &Path) -> &mut Self {
        let mut option = OsString::from("-I");
        option.push(folder);
        self.args([option])
    }

    /// The command line: the program and its options.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).current_dir(run::root());
        command
    }

    /// Compiles every file to an object file in `folder`, and returns those in the same order.
    pub fn compile(&self, sources: &[Source], folder: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(folder).context(folder.display())?;
        let shown = run::line(self.command().args(["-c", "FILE"]));
        println!("$ {shown}   # {} files", sources.len());
        let objects: Vec<PathBuf> = sources
            .iter()
            .map(|source| folder.join(source.file.file_name().unwrap_or_default()))
            .map(|path| path.with_extension("o"))
            .collect();
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let workers = thread::available_parallelism().map_or(2, |n| n.get());
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(source), Some(object)) = (sources.get(i), objects.get(i)) else {
                            break;
                        };
                        if let Err(error) = run::quietly(&mut self.job(source, object)) {
                            next.store(sources.len(), Ordering::Relaxed);
                            *failed.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
                        }
                    }
                });
            }
        });
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            None => Ok(objects),
            Some(error) => Err(error),
        }
    }

    fn job(&self, source: &Source, object: &Path) -> Command {
        let mut command = self.command();
        if source.instrumented {
            command.arg("-finstrument-functions");
        }
        command.arg("-c").arg(&source.file).arg("-o").arg(object);
        command
    }
}

/// Makes a copy of libkymo.a with renamed hooks, so that another recorder can wrap them (`device/tests/naive`).
pub fn rename_hooks(objcopy: &str, library: &Path, copy: &Path) -> Result<()> {
    let mut command = Command::new(objcopy);
    for (hook, renamed) in [
        ("__cyg_profile_func_enter", NAIVE_KYMO_ENTER),
        ("__cyg_profile_func_exit", NAIVE_KYMO_EXIT),
    ] {
        command.arg(format!("--redefine-sym={hook}={renamed}"));
    }
    run::run(command.arg(library).arg(copy))
}

const NAIVE_KYMO_ENTER: &str = "kymo_hook_enter";
const NAIVE_KYMO_EXIT: &str = "kymo_hook_exit";

/// Linker options that redirect calls of these functions (`setjmp`, `longjmp` and similar) to Kymo's wrappers (see
/// `kymo.h`).
pub fn wrap_options(functions: &[&str]) -> Vec<String> {
    let options = |function: &&str| {
        [
            format!("-Wl,--wrap={function}"),
            format!("-Wl,-u,{function}"),
        ]
    };
    functions.iter().flat_map(options).collect()
}

/// Options that pass the new names to `device/tests/naive`.
pub fn naive_options() -> [String; 3] {
    [
        "-DNAIVE".to_owned(),
        format!("-DNAIVE_KYMO_ENTER={NAIVE_KYMO_ENTER}"),
        format!("-DNAIVE_KYMO_EXIT={NAIVE_KYMO_EXIT}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_compile_is_an_error() {
        let folder = run::target_dir().join("xtask-test-compile");
        fs::create_dir_all(&folder).unwrap();
        let (good, bad) = (folder.join("good.c"), folder.join("bad.c"));
        fs::write(&good, "int good(void) { return 1; }\n").unwrap();
        fs::write(&bad, "#error on purpose\n").unwrap();
        let compiler = Compiler::new("cc");
        let objects = compiler.compile(&[Source::plain(good.clone())], &folder);
        assert!(objects.unwrap()[0].exists());
        let sources = [Source::plain(good), Source::plain(bad)];
        assert!(compiler.compile(&sources, &folder).is_err());
    }
}
