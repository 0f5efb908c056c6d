//! A program with shared libraries, some of which are loaded one after the other at the same address: the recording
//! names the files of its functions, and `kymo` finds their names without options.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::{library, run};
use serde_json::Value;

/// Two libraries with functions of the same names, of which the program loads one at a time, and the program.
const FIRST: &str = "int first_work(int n);
int plugin(int n) { return first_work(n); }
int first_work(int n) { return n <= 1 ? 1 : n * first_work(n - 1); }\n";
const SECOND: &str = "int second_work(int n);
int plugin(int n) { return second_work(n); }
int second_work(int n) { return n <= 1 ? 1 : n + second_work(n - 1); }\n";
const LINKED: &str = "int linked(int n) { return n + 1; }\n";
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int linked(int n);
__attribute__((no_instrument_function)) static void *use(const char *name, int n) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) { puts(dlerror()); exit(1); }
    int (*plugin)(int) = (int (*)(int))dlsym(library, "plugin");
    plugin(n);
    dlclose(library);
    return (void *)plugin;
}
int main(int count, char **arguments) {
    (void)arguments;
    int same = 0;
    for (int i = 0; i < 20; i++) {
        void *first = use("./libfirst.so", 4);
        void *second = use("./libsecond.so", 3);
        same += first == second;
    }
    printf("%d\n", same + 0 * linked(1));
    fflush(stdout);
    if (count > 1) _exit(0);
    return 0;
}
"#;

/// The files of a test, in a separate folder.
struct Files(PathBuf);

impl Files {
    /// Builds the libraries and the program.
    fn build(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libraries-{test}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let files = Self(folder);
        for (name, source) in [("first", FIRST), ("second", SECOND), ("linked", LINKED)] {
            files.library(name, source);
        }
        fs::write(files.path("program.c"), PROGRAM).unwrap();
        let library = library::for_this_machine().unwrap();
        let hooks = ["enter", "exit"].map(|edge| format!("-Wl,-u,__cyg_profile_func_{edge}"));
        files.compile(&[
            &["program.c", "-L.", "-llinked", "-Wl,-rpath,$ORIGIN", "-ldl"],
            &[hooks[0].as_str(), &hooks[1], library.to_str().unwrap()][..],
            &["-o", "program"],
        ]);
        files
    }

    fn library(&self, name: &str, source: &str) {
        let file = format!("{name}.c");
        fs::write(self.path(&file), source).unwrap();
        let out = format!("lib{name}.so");
        self.compile(&[&[
            "-shared",
            "-fPIC",
            "-fno-toplevel-reorder",
            &file,
            "-o",
            &out,
        ]]);
    }

    fn compile(&self, options: &[&[&str]]) {
        let mut compiler = Command::new("gcc");
        let usual = ["-finstrument-functions", "-O1", "-g", "-Wl,--build-id"];
        compiler.args(usual).args(options.concat());
        run::output(compiler.current_dir(&self.0)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs the program. Returns its recording, and the number of rounds, out of 20, in which both libraries had the
    /// same address.
    fn record(&self, arguments: &[&str]) -> (PathBuf, u32) {
        let mut program = Command::new("./program");
        program.env("KYMO_OUTPUT", "program.kymo").args(arguments);
        let printed = run::output(program.current_dir(&self.0)).unwrap();
        (self.path("program.kymo"), printed.trim().parse().unwrap())
    }
}

/// Runs `kymo` in another folder than the program's.
fn kymo(arguments: &[&str], trace: &Path) -> Output {
    let mut kymo = Command::new(kymo::build(Profile::Debug).unwrap());
    let output = kymo.args(arguments).arg(trace).current_dir("/").output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    output
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How often each function was called, by name and file.
fn calls(output: &Output) -> BTreeMap<(String, String), u64> {
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    let rows = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows = rows.filter_map(|row| {
        let text = |name: &str| row[name].as_str().map(str::to_owned);
        let file = text("object").unwrap_or_default();
        Some(((text("function")?, file), row["count"].as_u64()?))
    });
    rows.collect()
}

fn expected() -> BTreeMap<(String, String), u64> {
    let counts = [
        ("main", "program", 1),
        ("linked", "liblinked.so", 1),
        ("plugin", "libfirst.so", 20),
        ("first_work", "libfirst.so", 80),
        ("plugin", "libsecond.so", 20),
        ("second_work", "libsecond.so", 60),
    ];
    let counts = counts.map(|(name, file, count)| ((name.into(), file.into()), count));
    counts.into()
}

const REPORT: [&str; 5] = [
    "report",
    "--format",
    "json",
    "--columns",
    "count,object,name",
];

#[test]
fn names_are_found_without_being_given() {
    let files = Files::build("found");
    let (trace, same) = files.record(&[]);
    assert!(same > 0, "the libraries were never at the same place");
    let report = kymo(&REPORT, &trace);
    assert_eq!(calls(&report), expected());
    // Nothing about names.
    let printed = printed(&report);
    assert!(
        printed.starts_with("note: durations are wall times") && printed.lines().count() == 1,
        "{printed}"
    );
    let info = kymo(&["info"], &trace);
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    for name in ["program", "liblinked.so", "libfirst.so", "libsecond.so"] {
        let path = files.path(name);
        assert!(
            info.contains(&format!("{}, build id ", path.display())),
            "{info}"
        );
    }
    // The file of a process that ends with `_exit`.
    let (trace, _) = files.record(&["_exit"]);
    assert_eq!(calls(&kymo(&REPORT, &trace)), expected());
}

#[test]
fn libraries_that_are_gone_or_changed_are_reported() {
    let files = Files::build("gone");
    let (trace, _) = files.record(&[]);
    let moved = files.path("elsewhere.so");
    fs::rename(files.path("libfirst.so"), &moved).unwrap();
    files.library("second", "int plugin(int n) { return n + 7; }\n");
    let report = kymo(&REPORT, &trace);
    let text = printed(&report);
    let gone = files.path("libfirst.so");
    assert!(
        text.contains(&format!(
            "not on this machine: {} (build id ",
            gone.display()
        )),
        "{text}"
    );
    let other = files.path("libsecond.so");
    assert!(
        text.contains(&format!(
            "{} is another build than the one",
            other.display()
        )),
        "{text}"
    );
    let names = calls(&report);
    let named = |name: &str, file: &str| names.get(&(name.to_owned(), file.to_owned()));
    assert_eq!(named("linked", "liblinked.so"), Some(&1));
    assert_eq!(named("first_work", "libfirst.so"), None);
    assert_eq!(named("plugin", "libsecond.so"), None);
    // A file given by name is identified by its build id, whatever its path.
    let moved = moved.to_str().unwrap();
    let report = kymo(&[&REPORT[..], &["--elf", moved]].concat(), &trace);
    let names = calls(&report);
    let first = names.get(&("first_work".to_owned(), "libfirst.so".to_owned()));
    assert_eq!(first, Some(&80));
    assert!(
        !printed(&report).contains("not on this machine"),
        "{}",
        printed(&report)
    );
}

#[test]
fn separate_debug_information_is_found_by_build_id() {
    let files = Files::build("debug");
    let library = files.path("liblinked.so");
    let notes = run::output(Command::new("readelf").arg("-n").arg(&library)).unwrap();
    let (_, id) = notes.split_once("Build ID: ").expect("it has one");
    let id = id.split_whitespace().next().unwrap();
    let (first, rest) = id.split_at(2);
    let folder = files.path("debug/.build-id").join(first);
    fs::create_dir_all(&folder).unwrap();
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--only-keep-debug").arg(&library);
    run::output(objcopy.arg(folder.join(format!("{rest}.debug")))).unwrap();
    run::output(Command::new("strip").arg(&library)).unwrap();
    let (trace, _) = files.record(&[]);
    // Files that cannot be read or are of another build do not hide it.
    let broken = files.path("broken/.build-id").join(first);
    fs::create_dir_all(&broken).unwrap();
    fs::write(broken.join(format!("{rest}.debug")), "\x7fELF").unwrap();
    let other = files.path("other/.build-id").join(first);
    fs::create_dir_all(&other).unwrap();
    fs::copy(
        files.path("libfirst.so"),
        other.join(format!("{rest}.debug")),
    )
    .unwrap();
    let directories = ["broken", "other", "debug"].map(|name| files.path(name));
    let directories = directories.iter();
    let options = directories.flat_map(|directory| ["--debug-dir", directory.to_str().unwrap()]);
    let options: Vec<_> = options.chain(["-v"]).collect();
    let report = kymo(&[&REPORT[..], &options].concat(), &trace);
    assert_eq!(calls(&report), expected());
    assert!(printed(&report).contains(".debug"), "{}", printed(&report));
}

/// The library defines nothing that the C libraries define, in any link order.
#[test]
fn the_library_takes_the_place_of_no_other() {
    const MATHS: &str = "#include <math.h>
#include <stdio.h>
volatile double v = 2.5;
int main(void) { printf(\"%.1f %.1f\\n\", floor(v) + ceil(v), fmod(v, 2) * sqrt(4)); return 0; }\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries-maths");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("maths.c"), MATHS).unwrap();
    let library = library::for_this_machine().unwrap();
    for (name, more) in [("dynamic", &[][..]), ("static", &["-static"][..])] {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O0", "-fno-builtin", "-finstrument-functions"])
            .args(more)
            .args(["maths.c", "-pthread", "-o", name])
            .arg(&library)
            .arg("-lm")
            .current_dir(&folder);
        run::run(&mut gcc).unwrap();
        let mut program = Command::new(folder.join(name));
        program.env("KYMO_OUTPUT", folder.join(format!("{name}.kymo")));
        assert_eq!(run::output(&mut program).unwrap(), "5.0 1.0\n", "{name}");
        let recorded = fs::read(folder.join(format!("{name}.kymo"))).unwrap();
        assert!(recorded.starts_with(b"kymo identify:"), "{name}");
    }
    let symbols = run::output(
        Command::new("nm")
            .args(["-u", "dynamic"])
            .current_dir(&folder),
    );
    let symbols = symbols.unwrap();
    for function in ["floor", "ceil", "fmod", "sqrt"] {
        assert!(
            symbols.contains(&format!(" {function}@GLIBC")),
            "{function}"
        );
    }
    let public = run::output(
        Command::new("nm")
            .args(["-g", "--defined-only", "-P"])
            .arg(&library),
    )
    .unwrap();
    let is_foreign = |name: &&str| {
        let known = [
            "kymo_",
            "__cyg_profile_func_",
            "__wrap_",
            "mcount",
            "__fentry__",
        ];
        !name.is_empty()
            && !name.ends_with([':', ']'])
            && !known.iter().any(|it| name.starts_with(it))
    };
    let names = public.lines().filter_map(|line| line.split(' ').next());
    let foreign: Vec<&str> = names.filter(is_foreign).collect();
    assert_eq!(foreign, [""; 0]);
}

/// With `kymo.specs` the recorder's hooks take precedence over glibc's empty ones.
#[test]
fn specs_link_the_hooks_however_a_program_is_built() {
    const PLUGIN: &str = "int inner(int n) { return n + 1; }
int plugin(int n) { return inner(n); }\n";
    const MAIN: &str = "#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline)) int work(int n) { return n < 2 ? 1 : n * work(n - 1); }
int main(int count, char **arguments) {
    int sum = work(5);
    if (count > 1) {
        int (*plugin)(int) = (int (*)(int))dlsym(dlopen(arguments[1], RTLD_NOW), \"plugin\");
        sum += plugin(3);
    }
    printf(\"%d\\n\", sum);
    return 0;
}\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries-specs");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("plugin.c"), PLUGIN).unwrap();
    fs::write(folder.join("main.c"), MAIN).unwrap();
    let library = library::for_this_machine().unwrap();
    let specs = library.with_file_name("kymo.specs");
    let specs = format!("-specs={}", specs.display());
    let build = |options: &[&str], source: &str, name: &str| {
        let mut gcc = Command::new("gcc");
        gcc.args([&specs, "-finstrument-functions", "-pthread"])
            .args(options)
            .args([source, "-o", name])
            .current_dir(&folder);
        run::run(&mut gcc).unwrap();
    };
    build(&["-shared", "-fPIC"], "plugin.c", "plugin.so");
    let kymo = kymo::build(Profile::Debug).unwrap();
    for (name, options) in [
        ("plain", &[][..]),
        ("lto", &["-flto", "-O1"]),
        ("static", &["-static"]),
    ] {
        build(options, "main.c", name);
        let recording = folder.join(format!("{name}.kymo"));
        let _ = fs::remove_file(&recording);
        let mut program = Command::new(folder.join(name));
        program.env("KYMO_OUTPUT", &recording).current_dir(&folder);
        let plugin = name == "plain";
        program.args(plugin.then_some("./plugin.so"));
        run::output(&mut program).unwrap();
        let mut report = Command::new(&kymo);
        report.args(["report", "--format", "json"]).arg(&recording);
        let table = run::output(&mut report).unwrap();
        assert!(table.contains("\"work\""), "{name}: {table}");
        assert_eq!(table.contains("\"inner\""), plugin, "{name}: {table}");
    }
}

/// Clang's counterpart of the specs file, wherever it stands. Without it, an archive before the objects is not linked.
#[test]
fn the_configuration_file_for_clang_records_in_any_order() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries-clang");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let program = "void work(void) {} int main(void) { work(); return 0; }\n";
    fs::write(folder.join("prog.c"), program).unwrap();
    let library = library::for_this_machine().unwrap();
    let config = library.with_file_name("kymo.cfg");
    let config = ["--config", config.to_str().unwrap()];
    let archive = [library.to_str().unwrap()];
    let source = ["prog.c"];
    for (options, records) in [
        ([&config[..], &source], true),
        ([&source, &config], true),
        ([&archive, &source], false),
    ] {
        let mut clang = Command::new("clang");
        clang.args(["-O0", "-finstrument-functions", "-Werror", "-o", "prog"]);
        run::run(clang.args(options.concat()).current_dir(&folder)).unwrap();
        let recording = folder.join("prog.kymo");
        let _ = fs::remove_file(&recording);
        let mut prog = Command::new(folder.join("prog"));
        run::run(prog.env("KYMO_OUTPUT", &recording)).unwrap();
        assert_eq!(recording.exists(), records, "{options:?}");
        let kymo = kymo::build(Profile::Debug).unwrap();
        let mut info = Command::new(kymo);
        let info = info.args(["info", "--format", "json", "prog"]);
        let text = run::output(info.current_dir(&folder)).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let answered = &value["hooks"][0]["answered_by"];
        assert_eq!(answered, if records { "kymo" } else { "empty" }, "{text}");
    }
}
