//! `kymo info PROGRAM`: the instrumentation hooks of a program, and the code that implements them at run time.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use kymo_export::json::{Object, list};
use kymo_symbols::{Calls, FileKind, Hook, HookPlace, Instrumentation, LARGEST_FILE, PATCHABLE};

use crate::args::Format;
use crate::context::Context;
use crate::diagnostic::Report;
use crate::input::hex;
use crate::render::count::counted;
use crate::render::escape::escaped;
use crate::render::palette::Palette;
use crate::render::table::{Align, Table};

/// Limit on the number of libraries examined.
const MOST_LIBRARIES: usize = 500;

/// Implementation of a hook at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// Kymo's recorder in the file.
    Recorder,
    /// Another function of the file.
    Own { empty: bool },
    /// A shared library.
    Library {
        path: PathBuf,
        recorder: bool,
        empty: bool,
    },
    /// The program that loads this library; if that has no such hook, the library named here.
    Loader(Option<PathBuf>),
    /// A library that is not on this machine.
    Unknown,
    /// Nothing: the no-ops at function entries are never patched.
    Nothing,
}

impl Answer {
    const fn name(&self) -> &'static str {
        match self {
            Self::Recorder | Self::Library { recorder: true, .. } => "kymo",
            Self::Own { empty: true } | Self::Library { empty: true, .. } => "empty",
            Self::Own { empty: false } => "program",
            Self::Library { .. } => "library",
            Self::Loader(_) => "loader",
            Self::Unknown => "unknown",
            Self::Nothing => "nothing",
        }
    }

    fn path(&self) -> Option<String> {
        match self {
            Self::Library { path, .. } | Self::Loader(Some(path)) => {
                Some(path.display().to_string())
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Recorder => "Kymo's recorder, in the file".to_owned(),
            Self::Own { empty: true } => "an empty function in the file".to_owned(),
            Self::Own { empty: false } => "a function in the file".to_owned(),
            Self::Library {
                path,
                recorder: true,
                ..
            } => {
                format!("Kymo's recorder, in {}", path.display())
            }
            Self::Library {
                path, empty: true, ..
            } => {
                format!("an empty function in {}", path.display())
            }
            Self::Library { path, .. } => path.display().to_string(),
            Self::Loader(None) => "the program that loads it".to_owned(),
            Self::Loader(Some(path)) => {
                format!("the program that loads it, or else {}", path.display())
            }
            Self::Unknown => "unknown: no library that it needs has it".to_owned(),
            Self::Nothing => "nothing: they stay no-ops".to_owned(),
        }
    }
}

/// A program with its hooks and their implementations.
struct Program {
    name: String,
    file: Instrumentation,
    answers: Vec<(Hook, Answer)>,
    /// Names of libraries that were not found.
    missing: Vec<String>,
}

/// Shows the hooks of a program; returns false if `path` is no program.
///
/// # Errors
/// When the file is damaged or cannot be read, or the result cannot be written.
pub fn run(path: &Path, format: Format, context: &mut Context) -> Result<bool, Report> {
    if !is_program(path) {
        return Ok(false);
    }
    let read = || {
        let data = kymo_symbols::read_file(path, LARGEST_FILE)?;
        Instrumentation::of(&data).map_err(io::Error::other)
    };
    let file = read().map_err(|error| Report::caused(path.display(), &error))?;
    let (libraries, missing) = libraries(path, &file);
    let answers = file.hooks.iter();
    let answers = answers.map(|hook| (*hook, answer(&file, hook, &libraries)));
    let program = Program {
        name: path.display().to_string(),
        answers: answers.collect(),
        missing,
        file,
    };
    let (out, palette) = context.out();
    match format {
        Format::Text => program.text(out, palette)?,
        Format::Json => program.json(out)?,
    }
    Ok(true)
}

/// Whether a file is a linked ELF file. (A core dump is a trace.)
fn is_program(path: &Path) -> bool {
    let mut head = [0; 18];
    let is_file = fs::metadata(path).is_ok_and(|file| file.is_file());
    let mut read = || File::open(path)?.read_exact(&mut head);
    if !is_file || read().is_err() || !head.starts_with(b"\x7fELF") {
        return false;
    }
    // `e_type` in the file's byte order: 2 is ET_EXEC, 3 is ET_DYN (a library or a position-independent program).
    let [.., first, second] = head;
    let kind = match head[5] {
        2 => u16::from_be_bytes([first, second]),
        _ => u16::from_le_bytes([first, second]),
    };
    matches!(kind, 2 | 3)
}

/// A library that will be loaded.
struct Library {
    path: PathBuf,
    file: Instrumentation,
}

/// Returns the libraries of a program in the search order of its symbols, and the names of those not found.
fn libraries(path: &Path, file: &Instrumentation) -> (Vec<Library>, Vec<String>) {
    let mut found: Vec<Library> = Vec::new();
    let mut missing = Vec::new();
    if file.kind == FileKind::Static {
        return (found, missing);
    }
    let preload = std::env::var("LD_PRELOAD").unwrap_or_default();
    let preload = preload.split([' ', ':']).filter(|name| !name.is_empty());
    let from = (path.to_owned(), file.search.clone());
    let names = preload.chain(file.needed.iter().map(String::as_str));
    let mut waiting: VecDeque<(String, (PathBuf, Vec<String>))> =
        names.map(|name| (name.to_owned(), from.clone())).collect();
    let mut known: Vec<String> = Vec::new();
    while let Some((name, from)) = waiting.pop_front() {
        if known.contains(&name) || found.len() > MOST_LIBRARIES {
            continue;
        }
        known.push(name.clone());
        match find(&name, &from, file) {
            Some(library) => {
                let below = (library.path.clone(), library.file.search.clone());
                let needed = library.file.needed.iter();
                waiting.extend(needed.map(|name| (name.clone(), below.clone())));
                found.push(library);
            }
            None => missing.push(name),
        }
    }
    (found, missing)
}

/// Finds a library as the dynamic linker does: in the run path of the file that needs it, then in `LD_LIBRARY_PATH`,
/// then in the folders of the system.
fn find(
    name: &str,
    (from, search): &(PathBuf, Vec<String>),
    program: &Instrumentation,
) -> Option<Library> {
    let open = |path: PathBuf| {
        let data = kymo_symbols::read_file(&path, LARGEST_FILE).ok()?;
        let file = Instrumentation::of(&data).ok()?;
        program.fits(&file).then_some(Library { path, file })
    };
    if name.contains('/') {
        return open(PathBuf::from(name));
    }
    let from = fs::canonicalize(from).unwrap_or_else(|_| from.clone());
    let origin = from
        .parent()
        .unwrap_or(Path::new("/"))
        .display()
        .to_string();
    let own = search.iter().map(|folder| {
        let folder = folder.replace("${ORIGIN}", &origin);
        PathBuf::from(folder.replace("$ORIGIN", &origin))
    });
    let environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let environment: Vec<PathBuf> = std::env::split_paths(&environment).collect();
    let folders = own.chain(environment).chain(system_folders());
    let mut paths = folders.map(|folder| folder.join(name));
    paths.find_map(open)
}

/// Returns the folders listed in `/etc/ld.so.conf`, and the default ones.
fn system_folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut lists = vec![fs::read_to_string("/etc/ld.so.conf").unwrap_or_default()];
    if let Ok(files) = fs::read_dir("/etc/ld.so.conf.d") {
        let mut paths: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
        paths.sort();
        lists.extend(paths.iter().flat_map(fs::read_to_string));
    }
    for line in lists.iter().flat_map(|list| list.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
    let usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
    folders.extend(usual.map(PathBuf::from));
    folders
}

fn answer(file: &Instrumentation, hook: &Hook, libraries: &[Library]) -> Answer {
    let place = |file: &Instrumentation| {
        let hooks = file.hooks.iter();
        let mut places = hooks.filter(|it| it.name == hook.name).map(|it| it.place);
        places.next()
    };
    if hook.place == HookPlace::Nowhere {
        return Answer::Nothing;
    }
    if hook.name == PATCHABLE {
        return Answer::Recorder;
    }
    // A library's own hooks are used only if the program that loads it has none, so they are handled below.
    if let HookPlace::Own { empty } = hook.place
        && file.kind != FileKind::Library
    {
        return match (file.has_recorder, empty) {
            (true, false) => Answer::Recorder,
            (_, empty) => Answer::Own { empty },
        };
    }
    let first = libraries.iter().find_map(|library| {
        let Some(HookPlace::Own { empty }) = place(&library.file) else {
            return None;
        };
        Some((library, empty))
    });
    if file.kind == FileKind::Library {
        return Answer::Loader(first.map(|(library, _)| library.path.clone()));
    }
    match first {
        Some((library, empty)) => Answer::Library {
            path: library.path.clone(),
            recorder: library.file.has_recorder && !empty,
            empty,
        },
        None => Answer::Unknown,
    }
}

impl Program {
    /// Whether any function calls a hook. True if the calls cannot be counted on this processor.
    fn is_instrumented(&self) -> bool {
        let called = |(hook, _): &(Hook, Answer)| hook.calls.is_none_or(|calls| calls.sites > 0);
        self.answers.iter().any(called)
    }

    /// Advice on the next step.
    fn next(&self) -> String {
        let name = &self.name;
        let answered = |wanted: &str| {
            let called = self.answers.iter();
            let mut called = called.filter(|(hook, _)| hook.calls.is_none_or(|it| it.sites > 0));
            called.any(|(_, answer)| answer.name() == wanted)
        };
        let is_firmware = self.file.kind == FileKind::Static && !self.file.runs_on_linux;
        let link = match is_firmware {
            true => {
                "put libkymo.a at the end of the link line (`cargo xtask lib TARGET` builds it)"
            }
            false => {
                "link with -specs=.../kymo.specs (`cargo xtask lib` prints where it is), or with \
                 -Wl,-u,__cyg_profile_func_enter -Wl,-u,__cyg_profile_func_exit libkymo.a"
            }
        };
        if !self.is_instrumented() {
            let recorder = match self.file.has_recorder {
                true => "",
                false => ", and link it with Kymo's recorder",
            };
            return format!("compile what you want to see with -finstrument-functions{recorder}");
        }
        if self.file.misplaced > 0 {
            let option = match self.file.architecture {
                kymo_symbols::Architecture::Aarch64 => "=2",
                _ => "=7,5",
            };
            return format!(
                "compile with -fpatchable-function-entry{option}: {} have other no-ops at their entries, and would not \
                 be recorded",
                counted(self.file.misplaced, "function")
            );
        }
        if answered("empty") {
            return format!("nothing would be recorded: {link}");
        }
        if answered("nothing") && !answered("kymo") {
            return "compile device/c/wrap/patchable.c and pg.c without that option, and link them with \
                    libkymo.a: they make the no-ops calls while something is recorded"
                .to_owned();
        }
        if answered("kymo") {
            return match is_firmware {
                true => format!("kymo doctor --elf {name} says whether a board records"),
                false => {
                    let run = if name.contains('/') { "" } else { "./" };
                    format!("KYMO_OUTPUT=FILE {run}{name}, then kymo show FILE")
                }
            };
        }
        if answered("loader") {
            return "the program that loads it has to have the recorder: kymo info PROGRAM"
                .to_owned();
        }
        if answered("unknown") {
            return format!("nothing answers the hooks: {link}");
        }
        format!("another tool answers the hooks; for Kymo, {link}")
    }

    fn text(&self, out: &mut dyn Write, palette: &Palette) -> io::Result<()> {
        let Self { file, .. } = self;
        let mut line = |what: &str, value: &str| {
            let heading = palette.heading;
            writeln!(out, "{heading}{what:<10}{heading:#} {}", escaped(value))
        };
        line(
            "format",
            &format!("{} for {:?}", kind(file.kind), file.architecture),
        )?;
        if let Some(id) = &file.build_id {
            line("build id", &hex(id))?;
        }
        let recorder = match file.has_recorder {
            true => "Kymo's is linked to it",
            false => "none in the file",
        };
        line("recorder", recorder)?;
        line(
            "functions",
            &match file.functions {
                0 => "without names".to_owned(),
                functions => functions.to_string(),
            },
        )?;
        if self.answers.is_empty() {
            line("hooks", "none")?;
        }
        for name in &self.missing {
            line("not found", name)?;
        }
        line("next", &self.next())?;
        if self.answers.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let mut table = Table::new([
            ("HOOK", Align::Left),
            ("CALLED IN", Align::Left),
            ("ANSWERED BY", Align::Left),
        ]);
        for (hook, answer) in &self.answers {
            let called = called(hook.calls);
            table.row([
                hook.name.to_owned(),
                called,
                escaped(&answer.text()).to_string(),
            ]);
        }
        table.write(out, palette)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let nothing: [&str; 0] = [];
        let mut line = Vec::new();
        let mut object = Object::begin(&mut line);
        object
            .member("format", "elf program")
            .member("events", 0_u64)
            .member("lost", None::<u64>)
            .member("gaps", 0_u64)
            .member("streams", nothing.as_slice())
            .member("errors", nothing.as_slice())
            .member("kind", kind(self.file.kind))
            .member("processor", format!("{:?}", self.file.architecture))
            .member("build_id", self.file.build_id.as_deref().map(hex))
            .member("recorder", self.file.has_recorder)
            .member("functions", self.file.functions)
            .with("hooks", |out| {
                list(out, &self.answers, |out, (hook, answer)| {
                    let mut object = Object::begin(out);
                    object
                        .member("name", hook.name)
                        .member("functions", hook.calls.map(|calls| calls.functions))
                        .member("calls", hook.calls.map(|calls| calls.sites))
                        .member("answered_by", answer.name())
                        .member("path", answer.path());
                    object.end();
                })
            })
            .member("not_found", self.missing.as_slice())
            .member("next", self.next());
        object.end();
        line.push(b'\n');
        out.write_all(&line)
    }
}

const fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Static => "static program",
        FileKind::Dynamic => "program",
        FileKind::Library => "shared library",
    }
}

/// Formats the number of calls of a hook for people.
fn called(calls: Option<Calls>) -> String {
    match calls {
        None => "unknown for this processor".to_owned(),
        Some(Calls { sites: 0, .. }) => "no function".to_owned(),
        Some(Calls {
            sites,
            functions: 0,
        }) => counted(sites, "place"),
        Some(Calls { sites, functions }) => format!(
            "{}, {}",
            counted(functions, "function"),
            counted(sites, "place")
        ),
    }
}
