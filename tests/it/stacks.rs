//! Calls that end without a return, in programs on this machine: exceptions in code compiled by Clang, and several
//! stacks in one thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::tools::{self, Need};
use kymo_targets::{library, run};
use serde_json::Value;

/// `outer` catches an exception of `thrower`, and calls `after` afterwards.
const THROWS: &str = r#"
#define N __attribute__((noinline))
static volatile int sink;
N void after() { sink = sink + 1; }
N void thrower(int n) { sink = sink + 1; if (n % 2) throw n; }
N void middle(int n) { thrower(n); sink = sink + 1; }
N void outer(int n) { try { middle(n); } catch (int) {} after(); after(); }
int main() { for (int i = 0; i < 500; i++) outer(i); return 0; }
"#;

/// Two contexts beside the main one call `ca` and `cb` 500 times each, and switch to each other within each call.
const SWAPS: &str = r#"
#include <ucontext.h>
#define N __attribute__((noinline))
static ucontext_t home, a, b;
static char stack_a[65536], stack_b[65536];
N void ca(int i) { (void)i; swapcontext(&a, &b); }
N void cb(int i) { if (i % 3) swapcontext(&b, &a); }
static void run_a(void) { for (int i = 0; i < 500; i++) ca(i); swapcontext(&a, &b); }
static void run_b(void) { for (int i = 0; i < 500; i++) cb(i); for (;;) swapcontext(&b, &a); }
int main(void) {
    getcontext(&a);
    a.uc_stack.ss_sp = stack_a; a.uc_stack.ss_size = sizeof stack_a; a.uc_link = &home;
    makecontext(&a, run_a, 0);
    getcontext(&b);
    b.uc_stack.ss_sp = stack_b; b.uc_stack.ss_size = sizeof stack_b; b.uc_link = &home;
    makecontext(&b, run_b, 0);
    swapcontext(&home, &a);
    return 0;
}
"#;

/// A program in a folder of its own, built by this compiler.
fn build(test: &str, compiler: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stacks-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let language = if compiler.ends_with("++") { "cc" } else { "c" };
    let name = format!("program.{language}");
    fs::write(folder.join(&name), source).unwrap();
    let library = library::for_this_machine().unwrap();
    let mut compile = Command::new(compiler);
    compile
        .args(["-g", "-O2", "-pthread", "-finstrument-functions", &name])
        .args(["-Wl,-u,__cyg_profile_func_enter,-u,__cyg_profile_func_exit"])
        .arg(library)
        .args(["-o", "program"]);
    run::run(compile.current_dir(&folder)).unwrap();
    folder
}

/// Records a run of the program with these settings.
fn record(folder: &Path, settings: &[(&str, &str)]) -> PathBuf {
    let recording = folder.join("a.kymo");
    let _ = fs::remove_file(&recording);
    let output = Command::new(folder.join("program"))
        .env("KYMO_OUTPUT", &recording)
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    recording
}

/// The rows of `kymo report`, by the names of functions without their arguments, and its notes.
fn report(recording: &Path) -> (BTreeMap<String, Value>, String) {
    let mut kymo = Command::new(kymo::build(Profile::Debug).unwrap());
    kymo.args(["report", "--format", "json"]).arg(recording);
    let output = kymo.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{printed}");
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().map(|line| {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["function"].as_str().unwrap();
        (name.split('(').next().unwrap().to_owned(), row)
    });
    (rows.collect(), printed)
}

/// The numbers of all calls and of unwound calls of a function.
fn counts(rows: &BTreeMap<String, Value>, function: &str) -> (u64, u64) {
    let row = &rows[function];
    (
        row["count"].as_u64().unwrap(),
        row["unwound"].as_u64().unwrap(),
    )
}

#[test]
fn calls_of_clang_that_exceptions_leave_are_unwound_where_exits_are_named() {
    tools::require(&[Need::Checks]).unwrap();
    let folder = build("throws", "clang++", THROWS);
    let (rows, printed) = report(&record(&folder, &[("KYMO_EXITS", "named")]));
    let found = ["main", "outer", "middle", "thrower", "after"].map(|it| counts(&rows, it));
    assert_eq!(
        found,
        [(1, 0), (500, 0), (500, 250), (500, 250), (1000, 0)],
        "{printed}"
    );
}

#[test]
fn a_thread_with_several_stacks_is_noted() {
    let folder = build("swaps", "gcc", SWAPS);
    let (rows, printed) = report(&record(&folder, &[]));
    let (calls, _) = counts(&rows, "ca");
    assert!((500..=510).contains(&calls), "{calls}");
    assert!(
        printed.contains("the program calls swapcontext"),
        "{printed}"
    );
    let plain = build("plain", "gcc", "int main(void) { return 0; }");
    let (_, printed) = report(&record(&plain, &[]));
    assert!(!printed.contains("stack"), "{printed}");
}
