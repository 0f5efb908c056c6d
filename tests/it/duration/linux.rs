//! Duration mode of programs on this machine. Calls that must be recorded sleep for longer than the threshold, on any
//! machine. Other calls may also become that long on a busy machine; the tests ignore them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::{library, run};
use serde_json::Value;

const PROGRAM: &str = r#"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define N __attribute__((noinline))
static jmp_buf out;
__attribute__((no_instrument_function)) static void wait_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time)) ;
}
N void small(void) { wait_ms(2); }
N void large(void) { for (int i = 0; i < 30; i++) small(); }
N void jumps(int n) { wait_ms(51); if (n) jumps(n - 1); else longjmp(out, 1); }
N void *worker(void *how) { large(); if (how) pthread_exit(0); return 0; }
N void hang(void) { kill(getpid(), SIGKILL); for (;;) pause(); }
N void rest(void) { large(); exit(0); }
int main(int count, char **arguments) {
    const char *how = arguments[1];
    if (!strcmp(how, "plain")) { large(); large(); }
    if (!strcmp(how, "jumps")) { if (!setjmp(out)) jumps(2); large(); }
    if (!strcmp(how, "threads")) {
        pthread_t threads[4];
        for (long i = 0; i < 4; i++) pthread_create(threads + i, 0, worker, (void *)(i & 1));
        for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    }
    if (!strcmp(how, "fork")) {
        if (fork() == 0) { large(); return 0; }
        wait(0);
    }
    if (!strcmp(how, "exit")) rest();
    if (!strcmp(how, "kill")) { large(); hang(); }
    return count == 0;
}
"#;

/// A program in which an exception unwinds a function.
const THROWS: &str = r#"
#include <time.h>
#define N __attribute__((noinline))
N void thrower() { timespec time = {0, 60000000}; nanosleep(&time, 0); throw 1; }
N void caller() { thrower(); }
N void after() { timespec time = {0, 60000000}; nanosleep(&time, 0); }
int main() { try { caller(); } catch (int) {} after(); return 0; }
"#;

/// Calls a function for each byte that it receives, and then sends the byte back.
const SERVES: &str = r#"
#include <unistd.h>
__attribute__((noinline)) void small(void) { __asm__ volatile("" ::: "memory"); }
int main() {
    char byte;
    while (read(0, &byte, 1) == 1) { small(); if (write(1, &byte, 1) != 1) return 1; }
    return 0;
}
"#;

/// A program in which a host selects functions. Each received byte is answered by a round of calls in a separate
/// thread.
const CHOSEN: &str = r#"
#include <pthread.h>
#include <unistd.h>
#define N __attribute__((noinline))
N void small(void) { __asm__ volatile("" ::: "memory"); }
N void inner(void) { __asm__ volatile("" ::: "memory"); }
N void other(void) { inner(); small(); }
N void *outer(void *unused) { small(); other(); return unused; }
int main() {
    char byte;
    while (read(0, &byte, 1) == 1) {
        pthread_t thread;
        if (pthread_create(&thread, 0, outer, 0) != 0 || pthread_join(thread, 0) != 0) return 1;
        if (write(1, &byte, 1) != 1) return 1;
    }
    return 0;
}
"#;

/// Builds a program in a folder of its own.
fn build(test: &str, compiler: &str, source: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("duration-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let language = if compiler == "g++" { "cc" } else { "c" };
    let name = format!("program.{language}");
    fs::write(folder.join(&name), source).unwrap();
    let library = library::for_this_machine().unwrap();
    let specs = library.with_file_name("kymo.specs");
    let mut gcc = Command::new(compiler);
    gcc.args(["-g", "-O1", "-pthread", "-finstrument-functions"])
        .arg(format!("-specs={}", specs.display()))
        .arg("-I")
        .arg(run::root().join("device/c/include"))
        .args([&name, "-o", "program"])
        .arg("-Wl,--wrap=_setjmp,-u,_setjmp,--wrap=longjmp,-u,longjmp");
    run::run(gcc.current_dir(&folder)).unwrap();
    folder
}

fn record(folder: &Path, how: &str, settings: &[(&str, &str)]) -> Output {
    let recordings = folder.join("recordings");
    let _ = fs::remove_dir_all(&recordings);
    fs::create_dir_all(&recordings).unwrap();
    Command::new(folder.join("program"))
        .arg(how)
        .env("KYMO_OUTPUT", recordings.join("a.kymo"))
        .envs(settings.iter().copied())
        .output()
        .unwrap()
}

/// A call of `kymo calls`.
#[derive(Debug)]
struct Call {
    function: String,
    ended: String,
    caller: Option<String>,
    duration_ns: u64,
    self_ns: u64,
}

fn calls(recording: &Path) -> Vec<Call> {
    let mut kymo = Command::new(kymo::build(Profile::Debug).unwrap());
    kymo.args(["calls", "--format", "json"]).arg(recording);
    calls_of(&mut kymo)
}

/// The calls that a command prints.
fn calls_of(kymo: &mut Command) -> Vec<Call> {
    let text = run::output(kymo).unwrap();
    let call = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        Call {
            function: line["function"].as_str().unwrap().to_owned(),
            ended: line["ended"].as_str().unwrap().to_owned(),
            caller: line["caller"].as_str().map(str::to_owned),
            duration_ns: line["duration_ns"].as_u64().unwrap(),
            self_ns: line["self_ns"].as_u64().unwrap(),
        }
    };
    text.lines().map(call).collect()
}

/// The calls of a function.
fn called<'a>(calls: &'a [Call], function: &'a str) -> impl Iterator<Item = &'a Call> {
    calls.iter().filter(move |call| call.function == function)
}

/// The calls of a run without those of `small`, and how they ended, sorted by name.
fn long_calls(recording: &Path) -> Vec<(String, String)> {
    let calls = calls(recording).into_iter();
    let calls = calls.filter(|call| call.function != "small");
    let mut calls: Vec<_> = calls.map(|call| (call.function, call.ended)).collect();
    calls.sort();
    calls
}

fn expected(calls: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |(function, ended): &(&str, &str)| ((*function).to_owned(), (*ended).to_owned());
    calls.iter().map(own).collect()
}

const LONG: [(&str, &str); 1] = [("KYMO_THRESHOLD", "50ms")];

/// What a run with a threshold of 50 ms recorded.
fn long_calls_of(folder: &Path, how: &str) -> Vec<(String, String)> {
    record(folder, how, &LONG);
    long_calls(&folder.join("recordings/a.kymo"))
}

#[test]
fn a_program_records_calls_of_the_threshold_and_their_self_times_are_without_the_others() {
    let folder = build("plain", "gcc", PROGRAM);
    let recording = folder.join("recordings/a.kymo");
    let output = record(&folder, "plain", &LONG);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let found = calls(&recording);
    // The threshold is accurate to 0.01 %; the test allows 0.2 %.
    let least = 49_900_000;
    assert!(
        found.iter().all(|call| call.duration_ns >= least),
        "{found:?}"
    );
    let of = |function| called(&found, function);
    assert_eq!(of("large").count(), 2, "{found:?}");
    for large in of("large") {
        assert_eq!(large.caller.as_deref(), Some("main"));
        assert_eq!(large.ended, "returned");
        assert!(large.self_ns + 60_000_000 <= large.duration_ns, "{large:?}");
    }
    let [main] = of("main").collect::<Vec<_>>()[..] else {
        panic!("{found:?}");
    };
    let callees: u64 = of("large").map(|call| call.duration_ns).sum();
    assert!(
        main.duration_ns.abs_diff(main.self_ns + callees) <= 3,
        "{found:?}"
    );

    // All calls, with the same properties as in an ordinary recording.
    let counts = |threshold: &str| {
        record(&folder, "plain", &[("KYMO_THRESHOLD", threshold)]);
        let found = calls(&recording);
        let of = |function| called(&found, function);
        let smalls: u64 = of("small").map(|call| call.duration_ns).sum();
        let larges: u64 = of("large").map(|call| call.duration_ns).sum();
        let own: u64 = of("large").map(|call| call.self_ns).sum();
        // Each duration is rounded to a nanosecond.
        assert!(
            larges.abs_diff(own + smalls) <= 70,
            "{threshold}: {found:?}"
        );
        ["main", "large", "small"].map(|function| of(function).count())
    };
    assert_eq!(counts("0"), [1, 2, 60]);
    assert_eq!(counts("off"), [1, 2, 60]);
    let output = record(&folder, "plain", &[("KYMO_THRESHOLD", "5")]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.starts_with("kymo: KYMO_THRESHOLD is not used: expected a time"),
        "{printed}"
    );
    let output = record(&folder, "plain", &[("KYMO_THRESHOLD", "100s")]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.contains("no call took as long as KYMO_THRESHOLD"),
        "{printed}"
    );
}

#[test]
fn jumps_exceptions_and_threads_that_end_are_followed() {
    let folder = build("ways-out", "gcc", PROGRAM);
    let mut jumps = vec![("jumps", "returned"); 3];
    jumps.extend([("large", "returned"), ("main", "returned")]);
    assert_eq!(long_calls_of(&folder, "jumps"), expected(&jumps));
    let mut threads = vec![("large", "returned"); 4];
    threads.extend([("main", "returned"), ("worker", "lost"), ("worker", "lost")]);
    threads.extend([("worker", "returned"); 2]);
    assert_eq!(long_calls_of(&folder, "threads"), expected(&threads));
    let thrown = build("throws", "g++", THROWS);
    let found = long_calls_of(&thrown, "");
    let names: Vec<_> = found
        .iter()
        .map(|(name, ended)| (name.split('(').next().unwrap(), ended.as_str()))
        .collect();
    let all = ["after", "caller", "main", "thrower"].map(|function| (function, "returned"));
    assert_eq!(names, all);
}

#[test]
fn calls_that_are_open_when_the_program_exits_or_is_killed_are_recorded() {
    let folder = build("open", "gcc", PROGRAM);
    let exit = [("large", "returned"), ("main", "open"), ("rest", "open")];
    assert_eq!(long_calls_of(&folder, "exit"), expected(&exit));
    // The call that was running at the kill seems to have just begun.
    let kill = [("hang", "open"), ("large", "returned"), ("main", "open")];
    assert_eq!(long_calls_of(&folder, "kill"), expected(&kill));
}

#[test]
fn a_fork_records_with_the_same_threshold() {
    let folder = build("fork", "gcc", PROGRAM);
    assert_eq!(
        long_calls_of(&folder, "fork"),
        expected(&[("main", "returned")])
    );
    let files = fs::read_dir(folder.join("recordings")).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let child: Vec<PathBuf> = files.filter(|file| !file.ends_with("a.kymo")).collect();
    let [child] = &child[..] else {
        panic!("{child:?}");
    };
    // The parent was in `main` at the fork.
    assert_eq!(long_calls(child), expected(&[("large", "returned")]));
}

/// A program that reads bytes, calls its functions for each, and writes it back. Dropping this ends the program.
struct Served {
    folder: PathBuf,
    program: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Served {
    /// Builds and starts it, with this threshold.
    fn start(name: &str, source: &str, threshold: &str) -> Self {
        Self::start_with(name, source, &[("KYMO_THRESHOLD", threshold)])
    }

    fn start_with(name: &str, source: &str, settings: &[(&str, &str)]) -> Self {
        let folder = build(name, "gcc", source);
        let mut program = Command::new(folder.join("program"));
        program
            .current_dir(&folder)
            .env("KYMO_SOCKET", "socket")
            .envs(settings.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let mut served = Self {
            folder,
            input: program.stdin.take().unwrap(),
            output: program.stdout.take().unwrap(),
            program,
        };
        // The socket exists before `main`.
        served.call(1);
        served
    }

    /// Makes it call its functions this many times.
    fn call(&mut self, times: usize) {
        let mut bytes = vec![b'x'; times];
        self.input.write_all(&bytes).unwrap();
        self.output.read_exact(&mut bytes).unwrap();
    }

    /// `kymo` with these arguments, for this program.
    fn ask(&self, words: &[&str]) -> Command {
        let socket = self.folder.join("socket");
        let mut kymo = Command::new(kymo::build(Profile::Debug).unwrap());
        kymo.env("KYMO_PATIENCE", "20").args(words);
        kymo.arg("--target")
            .arg(format!("unix:{}", socket.display()));
        kymo
    }

    /// The calls in its recording.
    fn calls(&self) -> Vec<Call> {
        let mut kymo = self.ask(&["calls", "--format", "json"]);
        calls_of(kymo.arg("--elf").arg(self.folder.join("program")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn a_host_changes_the_threshold_while_the_program_runs() {
    let mut served = Served::start("served", SERVES, "100000s");
    served.call(2);
    let found = |served: &Served| {
        let calls = served.calls().into_iter();
        let calls = calls.map(|call| (call.function, call.ended));
        calls.collect::<Vec<_>>()
    };
    assert_eq!(found(&served), []);
    let words = ["command", "duration", "threshold", "0"];
    let printed = run::output(&mut served.ask(&words)).unwrap();
    assert!(printed.contains("on=1 threshold=0 depth=0"), "{printed}");
    served.call(2);
    let calls = [
        ("small", "returned"),
        ("small", "returned"),
        ("main", "open"),
    ];
    assert_eq!(found(&served), expected(&calls));
    let refused = served.ask(&["trace", "--threshold", "off"]).output();
    let refused = refused.unwrap();
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && printed.contains("a program on Linux"),
        "{printed}"
    );
}

#[test]
fn a_host_chooses_the_functions_while_the_program_runs() {
    let mut served = Served::start("chosen", CHOSEN, "0");
    let set = |served: &Served, options: &[&str]| {
        let mut kymo = served.ask(&["trace", "--threshold", "0", "--wait", "0"]);
        kymo.args(options);
        kymo.arg("--elf").arg(served.folder.join("program"));
        let trace = served.folder.join("trace");
        let _ = fs::remove_dir_all(&trace);
        run::run(kymo.arg("--output").arg(trace)).unwrap();
    };
    let found = |served: &Served| {
        let calls = served.calls().into_iter();
        let mut names: Vec<_> = calls.map(|call| call.function).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(found(&served), "inner main other outer small small");
    // Only these, including in threads that start later.
    set(&served, &["--function", "small"]);
    served.call(2);
    assert_eq!(found(&served), "small small small small");
    set(&served, &["--function", "o*"]);
    served.call(1);
    assert_eq!(found(&served), "other outer");
    // All except these.
    set(&served, &["--hide", "small", "--hide", "main"]);
    served.call(1);
    assert_eq!(found(&served), "inner other outer");
    let printed = run::output(&mut served.ask(&["command", "duration"])).unwrap();
    assert!(printed.contains(" filter=1 "), "{printed}");
    // All functions again.
    set(&served, &[]);
    served.call(1);
    assert_eq!(found(&served), "inner main other outer small small");
}

/// A program with calls that stop recording: each received byte starts a round.
const STOPS: &str = r#"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
#include "kymo.h"
#define N __attribute__((noinline))
static int rounds;
N void slow(int ms) { struct timespec time = {0, ms * 1000000}; nanosleep(&time, 0); }
N void other(void) { slow(1); }
N void *in_thread(void *unused) { slow(rounds == 3 ? 60 : 1); return unused; }
N void round_of(void) {
    pthread_t thread;
    rounds++;
    kymo_marker(rounds);
    other();
    if (pthread_create(&thread, 0, in_thread, 0) == 0) pthread_join(thread, 0);
}
int main() {
    char byte;
    while (read(0, &byte, 1) == 1) { round_of(); if (write(1, &byte, 1) != 1) return 1; }
    return 0;
}
"#;

#[test]
fn recording_stops_where_a_host_says() {
    let mut served = Served::start("stops", STOPS, "0");
    let rounds = |served: &mut Served, options: &[&str], rounds: usize| {
        let mut kymo = served.ask(&["trace", "--threshold", "0", "--wait", "0"]);
        kymo.args(options);
        kymo.arg("--elf").arg(served.folder.join("program"));
        let trace = served.folder.join("trace");
        let _ = fs::remove_dir_all(&trace);
        run::run(kymo.arg("--output").arg(trace)).unwrap();
        served.call(rounds);
        let status = run::output(&mut served.ask(&["status", "--format", "json"])).unwrap();
        let status: Value = serde_json::from_str(&status).unwrap();
        let mut count = BTreeMap::new();
        for call in served.calls() {
            *count.entry(call.function).or_insert(0) += 1;
        }
        let count = |name: &str| count.get(name).copied().unwrap_or(0);
        (
            status["recording"].as_bool().unwrap(),
            ["other", "in_thread", "slow"].map(count),
        )
    };
    // A call in another thread took long, in round 3: that round is open, and round 2 has ended.
    let freeze = ["--freeze", "slow > 50ms"];
    assert_eq!(rounds(&mut served, &freeze, 4), (false, [2, 2, 4]));
    // The second time that the function is entered from there (round 7), before its first call.
    let from = ["--stop-at", "slow", "--from", "in_thread", "--hit", "2"];
    assert_eq!(rounds(&mut served, &from, 4), (false, [2, 2, 3]));
    // A marker of the program, and three more calls.
    let marker = ["--freeze", "marker == 12", "--after", "3"];
    assert_eq!(rounds(&mut served, &marker, 4), (false, [3, 3, 6]));
    // Without a condition recording does not stop.
    assert_eq!(rounds(&mut served, &[], 2), (true, [2, 2, 4]));
    // Once at most, though recording is turned on again.
    let once = ["--stop-at", "slow", "--times", "1"];
    assert_eq!(rounds(&mut served, &once, 1), (false, [1, 0, 0]));
    run::run(&mut served.ask(&["command", "on"])).unwrap();
    served.call(2);
    assert_eq!(called(&served.calls(), "slow").count(), 4);
}

#[test]
fn trigger_and_stopper_take_conditions() {
    let mut served = Served::start_with("conditions", STOPS, &[]);
    let set = |served: &mut Served, trigger: &str, stopper: &str| {
        let mut kymo = served.ask(&["trace", "--trigger", trigger, "--stopper", stopper]);
        kymo.args(["--wait", "0", "--elf"])
            .arg(served.folder.join("program"));
        let trace = served.folder.join("trace");
        let _ = fs::remove_dir_all(&trace);
        run::run(kymo.arg("--output").arg(trace)).unwrap();
    };
    set(&mut served, "slow from other hit 2", "slow from in_thread");
    served.call(4);
    let mut calls = served.ask(&["calls", "--format", "json"]);
    let calls = calls.arg("--elf").arg(served.folder.join("program"));
    let calls = run::output(calls).unwrap();
    // (One that is open has no duration.)
    let count = |function| {
        let function = format!("\"function\":\"{function}\"");
        calls
            .lines()
            .filter(|line| line.contains(&function))
            .count()
    };
    // From `slow` in the second round, whose caller returns, to the one of its thread.
    assert_eq!(["other", "slow", "round_of"].map(count), [1, 2, 0]);
}

#[test]
fn advice_is_applied_to_a_program_that_has_no_filter_yet() {
    let mut served = Served::start("advised", SERVES, "0");
    served.call(2000);
    let mut advise = served.ask(&["advise", "--apply", "--format", "json"]);
    let advice = run::output(advise.arg("--elf").arg(served.folder.join("program"))).unwrap();
    assert!(advice.contains("small"), "{advice}");
    let printed = run::output(&mut served.ask(&["command", "duration"])).unwrap();
    assert!(printed.contains(" filter=1 "), "{printed}");
    served.call(10);
    assert!(served.calls().iter().all(|call| call.function != "small"));
}
