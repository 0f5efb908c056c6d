//! What a recording has of a program that ends in any way, and where it is.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_targets::run;

use super::processes::{calls, folder, gcc, specs, table};

/// Calls a function a thousand times, and then does what the argument says.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void work(void) { __asm__ volatile(""); }
int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "";
    for (int i = 0; i < 1000; i++) work();
    if (!strcmp(how, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "term")) raise(SIGTERM);
    if (!strcmp(how, "close")) for (int i = 0; i < 64; i++) close(i);
    if (!strcmp(how, "chroot") && (mkdir("jail", 0755) || chroot("jail") || chdir("/"))) return 1;
    if (!strcmp(how, "chdir") && chdir("/")) return 1;
    if (!strcmp(how, "write")) {
        for (int i = 0; i < 3; i++) {
            char text[] = "not a part of the recording";
            /* They may be closed, and must not be the recorder's. */
            for (int n = 0; n < 1000; n++) if (write(i, text, sizeof text) > 0) return 2;
        }
    }
    if (!strcmp(how, "fork")) {
        int status;
        if (fork() == 0) { work(); exit(0); }
        return wait(&status) < 0 || status != 0;
    }
    return 0;
}
"#;

/// Builds the program in a folder of its own, with an empty one for recordings.
fn program(test: &str) -> PathBuf {
    let folder = folder(test, &[("dies.c", PROGRAM)]);
    let hooks = "-finstrument-functions";
    gcc(&folder, &[&specs(), hooks, "dies.c", "-o", "dies"]);
    fs::create_dir_all(folder.join("recordings")).unwrap();
    folder
}

/// Runs the program in its folder, with its recording in the place that `output` says from there.
fn dies(folder: &Path, how: &str, output: &str) -> Output {
    let recordings = folder.join("recordings");
    let _ = fs::remove_dir_all(&recordings);
    fs::create_dir_all(&recordings).unwrap();
    let mut program = Command::new(folder.join("dies"));
    program.arg(how).current_dir(folder);
    program.env("KYMO_OUTPUT", output).output().unwrap()
}

#[test]
fn a_signal_that_ends_a_program_loses_no_call() {
    const SIGNALS: [(&str, i32); 3] = [("segv", 11), ("abort", 6), ("term", 15)];
    let folder = program("signals");
    for (how, signal) in SIGNALS {
        let output = dies(&folder, how, "recordings/a.kymo");
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
        assert_eq!(
            calls(&folder),
            [table(&[("main", 1), ("work", 1000)])],
            "{how}"
        );
    }
}

#[test]
fn a_relative_name_is_of_the_folder_in_which_the_program_begins() {
    let folder = program("chdir");
    let output = dies(&folder, "chdir", "recordings/a.kymo");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls(&folder), [table(&[("main", 1), ("work", 1000)])]);
}

#[test]
fn each_process_of_a_pattern_has_a_file_with_its_number() {
    let folder = program("pattern");
    let output = dies(&folder, "fork", "recordings/%p-100%%.kymo");
    assert!(output.status.success(), "{output:?}");
    let child = table(&[("work", 1)]);
    let parent = table(&[("main", 1), ("work", 1000)]);
    assert_eq!(calls(&folder), [parent, child]);
    let names = fs::read_dir(folder.join("recordings")).unwrap();
    for name in names.map(|entry| entry.unwrap().file_name()) {
        let name = name.to_string_lossy().into_owned();
        let number = name.strip_suffix("-100%.kymo").expect("a number in front");
        assert!(number.parse::<u32>().is_ok(), "{name}");
    }
}

#[test]
fn a_program_that_closes_all_files_keeps_its_recording() {
    let folder = program("closes");
    let output = dies(&folder, "close", "recordings/a.kymo");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls(&folder), [table(&[("main", 1), ("work", 1000)])]);
}

/// Else what the program prints would go to the recorder's file, which would have the number of a standard one.
#[test]
fn a_program_without_standard_files_has_none_of_the_recorders() {
    let folder = program("without");
    for how in ["write", "term", ""] {
        let recordings = folder.join("recordings");
        let _ = fs::remove_dir_all(&recordings);
        fs::create_dir_all(&recordings).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec ./dies \"$0\" <&- >&- 2>&-", how]);
        shell.env("KYMO_OUTPUT", "recordings/a.kymo");
        let status = shell.current_dir(&folder).status().unwrap();
        let signal = (how == "term").then_some(15);
        assert_eq!(
            (status.signal(), status.code().unwrap_or(0)),
            (signal, 0),
            "{how}"
        );
        assert_eq!(
            calls(&folder),
            [table(&[("main", 1), ("work", 1000)])],
            "{how}"
        );
    }
}

/// Whether the tests run as root; without, a test says that it did not run.
fn is_root() -> bool {
    let root = run::output(Command::new("id").arg("-u")).unwrap();
    if root.trim() == "0" {
        return true;
    }
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "SKIPPED: only root can do this");
    false
}

#[test]
fn a_program_in_a_folder_of_its_own_completes_its_recording() {
    if !is_root() {
        return;
    }
    let folder = program("chroot");
    let output = dies(&folder, "chroot", "recordings/a.kymo");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(errors.contains("nothing is lost"), "{errors}");
    assert_eq!(calls(&folder), [table(&[("main", 1), ("work", 1000)])]);
}

/// A program that has rights which its user does not have writes no file that its user names.
#[test]
fn settings_are_ignored_in_a_program_with_rights_of_another_user() {
    if !is_root() {
        return;
    }
    // Outside of folders that others may not enter.
    let place = std::env::temp_dir().join(format!("kymo-deaths-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
    let folder = program("secure");
    let copy = place.join("dies");
    fs::copy(folder.join("dies"), &copy).unwrap();
    let run = |mode: u32, name: &str| {
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
        let mut program = Command::new("setpriv");
        program.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        program.arg(&copy).env("KYMO_OUTPUT", place.join(name));
        program.env("KYMO_SOCKET", place.join(format!("{name}.socket")));
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        place.join(name).exists()
    };
    let (with_rights, without) = (run(0o4755, "secure.kymo"), run(0o755, "usual.kymo"));
    fs::remove_dir_all(&place).unwrap();
    assert!(!with_rights, "it wrote the file");
    assert!(without, "without rights of others it writes the file");
}

/// A thread that counts its calls in a file while the program exits, and a destructor that runs as late as one can.
const EXITS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#define N __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function))
static volatile long *count;
N void late(void) { __asm__ volatile(""); }
N void work(void) { __asm__ volatile(""); }
HIDDEN __attribute__((destructor(101))) static void last(void) { late(); }
HIDDEN static void *works(void *unused) { for (;;) { work(); ++*count; } return unused; }
HIDDEN int main(int arguments, char **argument)
{
    int file = open("count", O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, sizeof *count)) return 1;
    count = mmap(0, sizeof *count, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t thread;
    if (arguments > 1) {
        pthread_create(&thread, 0, works, 0);
        while (*count == 0) usleep(100);
    }
    if (arguments > 2 && unlink(argument[2])) return 1;
    exit(0);
}
"#;

/// Builds that program.
fn exits(name: &str) -> PathBuf {
    let folder = folder(name, &[("exits.c", EXITS)]);
    let hooks = ["-finstrument-functions", "-pthread"];
    gcc(
        &folder,
        &[&specs(), hooks[0], hooks[1], "exits.c", "-o", "exits"],
    );
    folder
}

/// Runs it with a recording, and returns what it printed.
fn run_exits(folder: &Path, arguments: &[&str]) -> Output {
    let recordings = folder.join("recordings");
    let _ = fs::remove_dir_all(&recordings);
    fs::create_dir_all(&recordings).unwrap();
    let mut program = Command::new(folder.join("exits"));
    program.args(arguments).current_dir(folder);
    // The thread must not begin to overwrite.
    program.env("KYMO_BUFFER", "64M");
    program.env("KYMO_OUTPUT", "recordings/a.kymo");
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

/// A file without a name would be gone with the process.
#[test]
fn a_file_that_is_removed_while_threads_run_is_not_lost() {
    let folder = exits("removed");
    let output = run_exits(&folder, &["thread", "recordings/a.kymo"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("was renamed or removed"), "{errors}");
    let found = calls(&folder);
    assert!(
        found.len() == 1 && found[0].contains_key("work"),
        "{found:?}"
    );
}

#[test]
fn what_runs_until_a_program_is_gone_is_recorded() {
    let folder = exits("exits");
    for arguments in [&[][..], &["thread"][..]] {
        let output = run_exits(&folder, arguments);
        assert_eq!(output.stderr, b"", "{output:?}");
        let count = fs::read(folder.join("count")).unwrap();
        let count = u64::from_ne_bytes(count.try_into().unwrap());
        // The last call may not have been counted.
        let expected = [count, count + 1].map(|count| match count {
            0 => table(&[("late", 1)]),
            _ => table(&[("late", 1), ("work", count)]),
        });
        let found = calls(&folder);
        assert!(
            found.len() == 1 && expected.contains(&found[0]),
            "{found:?} {count}"
        );
    }
}

/// A thread that has called a function and sleeps, and a process that may not sleep any more: it is killed.
const SLEEPLESS: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#define N __attribute__((noinline))
#define HIDDEN __attribute__((no_instrument_function))
static volatile int works_no_more;
N void work(void) { __asm__ volatile(""); }
HIDDEN static void *works(void *unused) { work(); works_no_more = 1; for (;;) pause(); return unused; }
HIDDEN int main(int arguments, char **argument)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    pthread_t thread;
    pthread_create(&thread, 0, works, 0);
    while (!works_no_more) usleep(100);
    if (arguments > 1 && unlink(argument[1])) return 1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 2;
    exit(0);
}
"#;

/// Only a recording that is complete in its file waits at exit for threads that may be exiting.
#[test]
fn a_recording_that_is_saved_at_exit_waits_for_no_thread() {
    let folder = folder("sleepless", &[("sleepless.c", SLEEPLESS)]);
    let [hooks, threads] = ["-finstrument-functions", "-pthread"];
    gcc(
        &folder,
        &[&specs(), hooks, threads, "sleepless.c", "-o", "sleepless"],
    );
    let run = |arguments: &[&str]| {
        let recordings = folder.join("recordings");
        let _ = fs::remove_dir_all(&recordings);
        fs::create_dir_all(&recordings).unwrap();
        let mut program = Command::new(folder.join("sleepless"));
        program.args(arguments).current_dir(&folder);
        program.env("KYMO_OUTPUT", "recordings/a.kymo");
        program.output().unwrap()
    };
    let output = run(&["recordings/a.kymo"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls(&folder), [table(&[("work", 1)])]);
    // The one that is complete waits.
    let output = run(&[]);
    assert_eq!(output.status.signal(), Some(31), "{output:?}");
    assert_eq!(calls(&folder), [table(&[("work", 1)])]);
}
