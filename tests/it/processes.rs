//! Processes that are created and that end in unusual ways, and programs whose libraries contain another recorder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::{library, run};
use serde_json::Value;

/// Creates a child by `fork`, or by the system call or the library function `clone`, of which the C library sends no
/// notification.
const CLONES: &str = r#"
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int child_work(int n) { __asm__ volatile("" ::: "memory"); return n + 1; }
__attribute__((noinline)) int child(void *how) {
    for (int i = 0; i < 1000; i++) child_work(i);
    if (!strcmp(how, "execs")) execl("/proc/self/exe", "clones", "nothing", NULL);
    if (!strcmp(how, "exits")) exit(0);
    if (!strcmp(how, "clones")) {
        pid_t grandchild = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (grandchild == 0) { work(1); _exit(0); }
        waitpid(grandchild, NULL, 0);
    }
    _exit(0);
}
int main(int count, char **arguments) {
    const char *how = arguments[1];
    pid_t made = -1;
    int status = 0;
    for (int i = 0; i < 100; i++) work(i);
    if (!strcmp(how, "nothing")) return 0;
    if (!strcmp(how, "vfork")) {
        made = vfork();
        if (made == 0) { child_work(1); _exit(0); }
    } else if (!strcmp(how, "fork")) {
        made = fork();
        if (made == 0) child("");
    } else if (!strcmp(how, "function")) {
        char *stack = malloc(1 << 20);
        made = clone(child, stack + (1 << 20), SIGCHLD, "");
    } else {
        made = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (made == 0) child((void *)how);
    }
    for (int i = 0; i < 2000; i++) work(i);
    return waitpid(made, &status, 0) == made && status == 0 ? count - 2 : 1;
}
"#;

/// A program and a plug-in with a function of its own, which records a marker if possible.
const LOADS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline)) int work(int n) { __asm__ volatile(""); return n + 1; }
int main(int count, char **arguments) {
    int sum = work(1);
    for (int i = 1; i < count; i++) {
        void *library = dlopen(arguments[i], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        sum += ((int (*)(int))dlsym(library, "plugin"))(10);
    }
    return sum == 0;
}
"#;
const PLUGIN: &str = r#"
#include <kymo.h>
__attribute__((noinline)) int inner(int n) { __asm__ volatile(""); return n + 1; }
int plugin(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += inner(i);
    kymo_marker(42);
    return sum;
}
"#;

/// A folder for a test, in which its sources are.
pub(crate) fn folder(test: &str, sources: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("processes-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for (name, source) in sources {
        fs::write(folder.join(name), source).unwrap();
    }
    folder
}

pub(crate) fn gcc(folder: &Path, options: &[&str]) {
    let mut gcc = Command::new("gcc");
    let headers = run::root().join("device/c/include");
    gcc.arg("-g").arg("-O1").arg("-I").arg(headers);
    run::run(gcc.args(options).current_dir(folder)).unwrap();
}

/// The option that links the recorder.
pub(crate) fn specs() -> String {
    let library = library::for_this_machine().unwrap();
    format!("-specs={}", library.with_file_name("kymo.specs").display())
}

fn record(folder: &Path, program: &str, arguments: &[&str]) -> Output {
    let recordings = folder.join("recordings");
    let _ = fs::remove_dir_all(&recordings);
    fs::create_dir_all(&recordings).unwrap();
    let mut program = Command::new(folder.join(program));
    program.env("KYMO_OUTPUT", recordings.join("a.kymo"));
    let output = program.args(arguments).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

pub(crate) fn kymo(arguments: &[&str], path: &Path) -> String {
    let mut kymo = Command::new(kymo::build(Profile::Debug).unwrap());
    run::output(kymo.args(arguments).arg(path)).unwrap()
}

/// Call counts by function for each recording of a run; smaller tables first.
pub(crate) fn calls(folder: &Path) -> Vec<BTreeMap<String, u64>> {
    let files = fs::read_dir(folder.join("recordings")).unwrap();
    let tables = files.map(|file| {
        let text = kymo(&["report", "--format", "json"], &file.unwrap().path());
        let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let rows = rows.filter_map(|row: Value| {
            Some((row["function"].as_str()?.to_owned(), row["count"].as_u64()?))
        });
        rows.collect()
    });
    let mut tables: Vec<BTreeMap<String, u64>> = tables.collect();
    tables.sort();
    tables
}

pub(crate) fn table(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let counts = counts.iter();
    counts.map(|(name, n)| ((*name).to_owned(), *n)).collect()
}

#[test]
fn children_that_nobody_tells_of_begin_empty_and_leave_their_parents_file_alone() {
    let folder = folder("clones", &[("clones.c", CLONES)]);
    gcc(
        &folder,
        &[
            &specs(),
            "-finstrument-functions",
            "clones.c",
            "-o",
            "clones",
        ],
    );
    gcc(
        &folder,
        &[
            &specs(),
            "-finstrument-functions",
            "-static",
            "clones.c",
            "-o",
            "static",
        ],
    );
    let parent = table(&[("main", 1), ("work", 2100)]);
    let child = table(&[("child", 1), ("child_work", 1000)]);
    let alone = table(&[("main", 1), ("work", 100)]);
    let grandchild = table(&[("work", 1)]);
    for program in ["clones", "static"] {
        for (how, children) in [
            ("call", vec![&child]),
            ("function", vec![&child]),
            ("fork", vec![&child]),
            ("exits", vec![&child]),
            ("execs", vec![&child, &alone]),
            ("clones", vec![&child, &grandchild]),
        ] {
            record(&folder, program, &[how]);
            let mut expected: Vec<_> = children.into_iter().cloned().collect();
            expected.push(parent.clone());
            expected.sort();
            assert_eq!(calls(&folder), expected, "{program} {how}");
        }
        record(&folder, program, &["fork"]);
        let files = fs::read_dir(folder.join("recordings")).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        let [one, other] = &files[..] else {
            panic!("{files:?}");
        };
        // Each process has its own files, whichever comes first.
        for (one, other) in [(one, other), (other, one)] {
            let with = [
                "report",
                "--format",
                "json",
                "--with",
                other.to_str().unwrap(),
            ];
            let text = kymo(&with, one);
            let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
            let names = rows.map(|row: Value| row["function"].as_str().map(str::to_owned));
            let names: Option<BTreeSet<_>> = names.collect();
            let expected = ["child", "child_work", "main", "work"].map(str::to_owned);
            assert_eq!(names, Some(expected.into()), "{program}");
        }
    }
    // The child runs in its parent's thread and memory.
    record(&folder, "clones", &["vfork"]);
    let both = table(&[("main", 1), ("work", 2100), ("child_work", 1)]);
    assert_eq!(calls(&folder), [both]);
}

#[test]
fn a_library_with_a_recorder_of_its_own_uses_that_of_the_program() {
    let files = [("loads.c", LOADS), ("plugin.c", PLUGIN)];
    let folder = folder("copies", &files);
    let library = library::for_this_machine().unwrap();
    let library = library.to_str().unwrap();
    let hooks = "-finstrument-functions";
    for name in ["first.so", "second.so"] {
        let options = [hooks, "-shared", "-fPIC", "plugin.c", library, "-o", name];
        gcc(&folder, &options);
    }
    gcc(&folder, &[&specs(), hooks, "loads.c", "-o", "specs"]);
    gcc(&folder, &[hooks, "loads.c", library, "-o", "line"]);
    gcc(&folder, &["loads.c", "-o", "without"]);
    let plugins = ["./first.so", "./second.so"];
    let expected = table(&[("inner", 10), ("main", 1), ("plugin", 1), ("work", 1)]);
    let markers = || {
        let path = folder.join("recordings/a.kymo");
        let events = kymo(&["show", "--events", "--format", "json"], &path);
        events.lines().filter(|it| it.contains("marker")).count()
    };

    let output = record(&folder, "specs", &plugins);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(calls(&folder).len(), 1);
    assert_eq!(
        calls(&folder)[0].keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    assert_eq!(markers(), 2);
    record(&folder, "specs", &plugins[..1]);
    assert_eq!(calls(&folder), std::slice::from_ref(&expected));

    // Markers of the library's own copy do not reach the program's recorder, which is reported.
    let output = record(&folder, "line", &plugins[..1]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("1 events of a library were not recorded: it calls a copy of Kymo"),
        "{printed}"
    );
    assert_eq!(calls(&folder), [expected]);

    // The C library's hooks take precedence over those of a plug-in.
    let output = record(&folder, "without", &plugins[..1]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("functions call hooks of another library"),
        "{printed}"
    );
}

/// The result of `kymo info` for a program: its hooks by name with the number of functions that call each and the
/// definition that handles it, and the next step.
fn info(program: &Path) -> (BTreeMap<String, (u64, String)>, String) {
    let text = kymo(&["info", "--format", "json"], program);
    let info: Value = serde_json::from_str(&text).unwrap();
    let hooks = info["hooks"].as_array().unwrap().iter();
    let hooks = hooks.map(|hook| {
        let text = |name: &str| hook[name].as_str().unwrap().to_owned();
        let functions = hook["functions"].as_u64().unwrap();
        (text("name"), (functions, text("answered_by")))
    });
    (hooks.collect(), info["next"].as_str().unwrap().to_owned())
}

#[test]
fn a_program_is_asked_whether_it_would_record() {
    const PROGRAM: &str = "int b(int n) { return n + 1; }
int a(int n) { return b(n) + 1; }
int main(int n, char **v) { (void)v; return a(n) == 0; }\n";
    let files = [
        ("program.c", PROGRAM),
        ("loads.c", LOADS),
        ("plugin.c", PLUGIN),
    ];
    let folder = folder("info", &files);
    let hooks = "-finstrument-functions";
    let specs = specs();
    let enter = |answer: &str| (3, answer.to_owned());
    let answer = |name: &str, options: &[&str]| {
        gcc(&folder, &[options, &["program.c", "-o", name]].concat());
        let (hooks, next) = info(&folder.join(name));
        (hooks.get("__cyg_profile_func_enter").cloned(), next)
    };
    let (found, next) = answer("specs", &["-O0", &specs, hooks]);
    assert_eq!(found, Some(enter("kymo")));
    assert!(next.starts_with("KYMO_OUTPUT="), "{next}");
    // Exits are jumps, or calls through the linkage table.
    let (found, _) = answer(
        "optimized",
        &["-O2", "-fno-inline", "-fno-ipa-icf", &specs, hooks],
    );
    assert_eq!(found, Some(enter("kymo")));
    let (found, next) = answer("without", &["-O0", hooks]);
    assert_eq!(found, Some(enter("empty")));
    assert!(
        next.contains("nothing would be recorded: link with -specs="),
        "{next}"
    );
    let (found, _) = answer("no-plt", &["-O0", "-fno-plt", hooks]);
    assert_eq!(found, Some(enter("empty")));
    let (found, _) = answer("static-without", &["-O0", "-static", hooks]);
    assert_eq!(found, Some(enter("empty")));
    let (found, _) = answer("static", &["-O0", "-static", &specs, hooks]);
    assert_eq!(found, Some(enter("kymo")));
    let (found, next) = answer("plain", &["-O0", &specs]);
    assert_eq!(found, Some((0, "kymo".to_owned())));
    assert!(
        next.contains("compile what you want to see with -finstrument-functions"),
        "{next}"
    );
    let (found, _) = answer("plugin", &["-O0", "-shared", "-fPIC", hooks]);
    assert_eq!(found, Some(enter("loader")));
    gcc(&folder, &["-O0", "-pg", "program.c", "-o", "profiled"]);
    let (found, _) = info(&folder.join("profiled"));
    assert_eq!(found.get("mcount").map(|it| it.0), Some(3));
    // No-ops at function entries remain no-ops unless the program has the code that replaces them.
    const PATCHABLE: &str = "-fpatchable-function-entry";
    let option = format!("{PATCHABLE}=7,5");
    gcc(
        &folder,
        &["-O0", &specs, &option, "program.c", "-o", "quiet"],
    );
    let (found, next) = info(&folder.join("quiet"));
    assert_eq!(found.get(PATCHABLE), Some(&(3, "nothing".to_owned())));
    assert!(next.contains("patchable.c"), "{next}");
    let c = run::root().join("device/c");
    let c = |path: &str| c.join(path).display().to_string();
    let (include, pg, patchable) = (c("include"), c("wrap/pg.c"), c("wrap/patchable.c"));
    gcc(&folder, &["-O0", &option, "-c", "program.c"]);
    gcc(&folder, &["-O2", "-I", &include, "-c", &pg, &patchable]);
    let objects = ["program.o", "pg.o", "patchable.o"];
    gcc(
        &folder,
        &[&[&*specs][..], &objects, &["-o", "patched"]].concat(),
    );
    let (found, next) = info(&folder.join("patched"));
    assert_eq!(found.get(PATCHABLE), Some(&(3, "kymo".to_owned())));
    assert!(next.starts_with("KYMO_OUTPUT="), "{next}");

    let text = kymo(&["info"], &folder.join("specs"));
    assert!(text.contains("3 functions, 3 places"), "{text}");
    assert!(text.contains("Kymo's recorder, in the file"), "{text}");
}

/// A recording whose file can't grow any more is incomplete, and reports that.
#[test]
fn threads_that_found_no_room_in_the_file_are_missed() {
    const PROGRAM: &str = r#"
#include <pthread.h>
#include <signal.h>
int leaf(int n) { return n + 1; }
static void *thread(void *unused) { for (int n = 0; n < 1000; n++) leaf(n); return unused; }
int main(void) {
    pthread_t other;
    leaf(1);
    signal(SIGXFSZ, SIG_IGN);
    pthread_create(&other, 0, thread, 0);
    pthread_join(other, 0);
    raise(SIGKILL);
}
"#;
    let folder = folder("room", &[("room.c", PROGRAM)]);
    let hooks = "-finstrument-functions";
    gcc(
        &folder,
        &[&specs(), hooks, "-O0", "-pthread", "room.c", "-o", "room"],
    );
    let recording = folder.join("room.kymo");
    let _ = fs::remove_file(&recording);
    // In blocks of 512 bytes: more than one buffer of 4 MiB, and less than two.
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 12000; exec ./room"]);
    shell.env("KYMO_OUTPUT", &recording).current_dir(&folder);
    let output = shell.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("recorded in memory only"), "{errors}");
    let kymo = kymo::build(Profile::Debug).unwrap();
    let output = Command::new(kymo)
        .arg("report")
        .arg(&recording)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.contains("recordings of 1 threads are missing"),
        "{errors}"
    );
    assert!(!errors.contains("is here"), "{errors}");
}

/// A program may lose the permission to reopen its recording, or the path to it may become invalid.
#[test]
fn a_program_that_gives_up_its_rights_completes_its_recording() {
    const PROGRAM: &str = r#"
#include <unistd.h>
int work(int n) { return n + 1; }
int main(void) { return setgid(65534) || setuid(65534) || work(1) == 0; }
"#;
    let folder = folder("rights", &[("rights.c", PROGRAM)]);
    let hooks = "-finstrument-functions";
    gcc(
        &folder,
        &[&specs(), hooks, "-O0", "rights.c", "-o", "rights"],
    );
    let recordings = folder.join("recordings");
    let _ = fs::remove_dir_all(&recordings);
    fs::create_dir_all(&recordings).unwrap();
    let mut open = Command::new("chmod");
    run::run(open.arg("777").arg(&recordings)).unwrap();
    let mut program = Command::new(folder.join("rights"));
    program.env("KYMO_OUTPUT", recordings.join("a.kymo"));
    let output = program.output().unwrap();
    // Only root can do this; a parent folder may be closed to others.
    if output.status.success() {
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!printed.contains("renamed"), "{printed}");
        assert_eq!(
            calls(&folder),
            [table(&[("main", 1), ("work", 1)])],
            "{printed}"
        );
    }
}

/// A thread that ended within calls takes no more time in them, while a waiting one does.
#[test]
fn calls_of_threads_that_ended_take_no_time_after_that() {
    const PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
#define N __attribute__((noinline))
N void ends(void) { pthread_exit(0); }
N void *thread(void *unused) { ends(); return unused; }
N void pauses(void) { for (;;) pause(); }
N void *waiting(void *unused) { pauses(); return unused; }
N void later(void) { usleep(300000); }
int main(void) {
    pthread_t made;
    pthread_create(&made, 0, waiting, 0);
    for (int i = 0; i < 3; i++) {
        pthread_create(&made, 0, thread, 0);
        pthread_join(made, 0);
    }
    later();
    return 0;
}
"#;
    let folder = folder("ended", &[("ended.c", PROGRAM)]);
    let hooks = ["-finstrument-functions", "-pthread"];
    gcc(
        &folder,
        &[&specs(), hooks[0], hooks[1], "ended.c", "-o", "ended"],
    );
    record(&folder, "ended", &[]);
    let recording = folder.join("recordings/a.kymo");
    let text = kymo(&["report", "--format", "json"], &recording);
    let rows: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |function: &str, member: &str| {
        let row = rows.iter().find(|row| row["function"] == function);
        row.unwrap()[member].as_u64()
    };
    for function in ["thread", "ends"] {
        assert_eq!(of(function, "count"), Some(3), "{text}");
        assert!(of(function, "total_ns") < Some(300_000_000), "{text}");
    }
    let pauses = of("pauses", "total_ns");
    assert!(pauses > Some(300_000_000), "{text}");
}
