//! The hooks of `kymo_hooks.h` in one program, with each back end: Kymo's recorder, SystemView's stream, a header of
//! the user, and none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::tools::{self, Need};
use kymo_targets::{library, run};
use serde_json::Value;

/// The program with this back end.
fn build(name: &str, options: &[&str], library: Option<&Path>) -> PathBuf {
    tools::require(&[Need::Native]).unwrap();
    let folder = run::target_dir().join("kernel-test");
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let programs = run::root().join("device/tests/programs");
    let mut compiler = Command::new("gcc");
    compiler
        .args(["-std=gnu11", "-Os", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(run::root().join("device/c/include"))
        .arg("-I")
        .arg(&programs)
        .args(options)
        .arg(programs.join("kernel.c"))
        .args(library)
        .arg("-o")
        .arg(&program);
    run::run(&mut compiler).unwrap();
    program
}

/// The events that `kymo` finds in a file, with all fields.
fn events(file: &Path, elf: &Path) -> Vec<Value> {
    let kymo = kymo::build(Profile::Debug).unwrap();
    let mut show = Command::new(kymo);
    show.args(["show", "--events", "--format", "json", "--elf"]);
    let text = run::output(show.arg(elf).arg(file)).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let event = |line: &Value| line["type"] == "event";
    lines.filter(event).collect()
}

#[test]
fn kymo_records_them() {
    let library = library::for_this_machine().unwrap();
    let program = build("kymo", &["-DKYMO_HOOKS_KYMO", "-pthread"], Some(&library));
    let file = program.with_extension("recording");
    run::run(Command::new(&program).env("KYMO_OUTPUT", &file)).unwrap();
    let events = events(&file, &program);
    let values = |label: &str| -> Vec<u64> {
        let of_it = events.iter().filter(|event| event["label"] == label);
        let value = |event: &Value| event["fields"]["value"].as_u64().unwrap();
        of_it.map(value).collect()
    };
    assert_eq!(values("mutex_unlock"), [3]);
    // An event with two numbers becomes two markers.
    assert_eq!(values("semaphore_take"), [2]);
    assert_eq!(values("semaphore_take timeout"), [21]);
    assert_eq!(values("user value"), [80]);
    assert_eq!(values("memory_alloc size"), [24]);
    assert_eq!(values("memory_alloc heap"), [1]);
    assert_eq!(values("memory_free heap"), [1]);
    assert_eq!(values("thread_blocked cause"), [2]);
    assert_eq!(values("thread_priority"), [8]);
    assert_eq!(values("thread_priority priority"), [3]);
    assert_eq!(values("idle"), [0]);
    let irqs = |name: &str| -> Vec<u64> {
        let of_it = events.iter().filter(|event| event["name"] == name);
        let irq = |event: &Value| event["fields"]["irq"].as_u64().unwrap();
        of_it.map(irq).collect()
    };
    assert_eq!(
        (irqs("isr_enter"), irqs("isr_exit")),
        (vec![15, 16], vec![15, 16])
    );
}

#[test]
fn systemview_gets_them() {
    let library = library::sysview(None).unwrap();
    let program = build("sysview", &["-DKYMO_HOOKS_SYSVIEW"], Some(&library));
    let file = program.with_extension("SVDat");
    run::run(Command::new(&program).arg(&file)).unwrap();
    let events = events(&file, &program);
    let find = |name: &str| {
        let mut of_name = events.iter().filter(|event| event["name"] == name);
        let event = of_name.next().unwrap_or_else(|| panic!("no {name}"));
        assert!(of_name.next().is_none(), "{name} twice");
        event["fields"].clone()
    };
    let taken = find("semaphore_taken");
    assert_eq!(
        (&taken["semaphore"], &taken["result"]),
        (&2.into(), &22.into())
    );
    assert_eq!(find("syscall_enter")["number"], 6);
    assert_eq!(find("packet_receive")["size"], 71);
    find("interrupts_masked");
    find("task_start_exec");
    find("isr_to_scheduler");
    find("heap_free");
    find("idle");
}

#[test]
fn a_back_end_of_ones_own_takes_what_it_wants() {
    let header = "-DKYMO_HOOKS_FILE=\"kernel_own.h\"";
    let program = build("own", &[header], None);
    let printed = run::output(&mut Command::new(&program)).unwrap();
    let expected = "thread_switched_in 8\n\
        semaphore_init semaphore=2 count=20\n\
        semaphore_take semaphore=2 timeout=21\n\
        semaphore_taken semaphore=2 result=22\n\
        mutex_lock mutex=3 timeout=31\n\
        mutex_locked mutex=3 result=32\n\
        queue_init queue=4 size=40\n\
        queue_put queue=4 timeout=41\n\
        queue_put_done queue=4 result=42\n\
        queue_get queue=4 timeout=43\n\
        queue_got queue=4 result=44\n\
        timer_start timer=5 period=50\n\
        syscall_exit number=6 result=60\n\
        packet_send interface=7 size=70\n\
        packet_receive interface=7 size=71\n\
        mine 88\n";
    assert_eq!(printed, expected);
}

/// The instructions of a function in an object file.
fn instructions(object: &Path, function: &str) -> usize {
    let listing = run::output(Command::new("objdump").arg("-d").arg(object)).unwrap();
    let of_it = listing.split(&format!("<{function}>:\n")).nth(1).unwrap();
    let lines = of_it.lines().take_while(|line| !line.is_empty());
    lines.filter(|line| !line.contains("endbr64")).count()
}

#[test]
fn without_a_back_end_there_is_nothing() {
    let object = build("none.o", &["-c"], None);
    // It only returns.
    assert_eq!(instructions(&object, "kernel"), 1);
    let object = build("some.o", &["-c", "-DKYMO_HOOKS_KYMO"], None);
    assert!(instructions(&object, "kernel") > 100);
}
