//! Programs that are compiled when the tests run, so that the tests read what this machine's compilers and linkers
//! write.

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_symbols::{Function, Symbols};
use tempfile::TempDir;

/// A directory with sources and the files built from them.
pub struct Workshop {
    directory: TempDir,
}

impl Workshop {
    /// Creates a directory with these files: name and contents.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for (name, contents) in files {
            std::fs::write(directory.path().join(name), contents).expect("a source file");
        }
        Self { directory }
    }

    /// Creates a directory with the program of [`SOURCES`], compiled by `tool` with these options; `None` without that
    /// tool.
    pub fn compiled(tool: &str, options: &[&[&str]]) -> Option<Self> {
        let workshop = Self::new(SOURCES);
        workshop.run(tool, &[&options.concat(), FLAGS].concat())?;
        Some(workshop)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a tool in the directory and returns its output; `None`, with a message, if there is no such tool. In CI a
    /// missing tool is an error.
    pub fn run(&self, tool: &str, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new(tool);
        command.args(arguments).current_dir(self.directory.path());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                kymo_fixtures::missing(&format!("{tool} is missing: {error}"));
                return None;
            }
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool} {arguments:?}: {errors}");
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The symbols of a file in the directory.
    pub fn symbols(&self, name: &str) -> Symbols {
        open(&self.path(name))
    }
}

pub fn open(path: &Path) -> Symbols {
    Symbols::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The only function of a name.
pub fn only<'s>(symbols: &'s Symbols, name: &str) -> Function<'s> {
    let found = symbols.by_name(name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

/// Options that compile [`SOURCES`] to `program`.
pub const FLAGS: &[&str] = &[
    "-g",
    "-O1",
    "-ffunction-sections",
    "first.c",
    "second.c",
    "-o",
    "program",
];

/// A program whose names are difficult to read.
pub const SOURCES: &[(&str, &str)] = &[
    (
        "first.c",
        r#"
static const char *const label = "a label for markers";
const char *volatile shown;
int twice_called;
static inline __attribute__((always_inline)) int inlined(int x)
{
    return x * twice_called;
}
static __attribute__((noinline)) int helper(int x)
{
    return inlined(x) + 1;
}
int aliased(int x)
{
    return helper(x);
}
int __aliased_too(int x) __attribute__((alias("aliased")));
int second(int);
int main(void)
{
    shown = label;
    return aliased(second(1)) == 0;
}
"#,
    ),
    (
        "second.c",
        r#"
extern int twice_called;
static __attribute__((noinline)) int helper(int x)
{
    return x + twice_called;
}
__attribute__((weak)) int second(int x)
{
    return helper(x) * 2;
}
"#,
    ),
];

/// The line of [`SOURCES`]' first file that contains a text.
pub fn line_of(text: &str) -> u32 {
    let mut lines = SOURCES[0].1.lines();
    let index = lines
        .position(|line| line.contains(text))
        .expect("the text is there");
    index as u32 + 1
}
