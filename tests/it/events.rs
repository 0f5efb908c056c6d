//! Events declared by a program (`kymo_event.h`): their names and fields come from the ELF file, where they use no
//! target memory.

use std::fs;
use std::process::Command;

use kymo_targets::kymo::{self, Profile};
use kymo_targets::tools::{self, Need};
use kymo_targets::{library, run};
use serde_json::{Value, json};

#[test]
fn records_are_shown_as_they_were_declared() {
    tools::require(&[Need::Native]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let folder = run::target_dir().join("events-test");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let program = folder.join("events");
    let mut compiler = Command::new("gcc");
    compiler
        .args([
            "-std=gnu11",
            "-Os",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-I",
        ])
        .arg(run::root().join("device/c/include"))
        .arg(run::root().join("device/tests/programs/events.c"))
        .arg(library::for_this_machine().unwrap())
        .arg("-o")
        .arg(&program);
    run::run(&mut compiler).unwrap();
    let file = folder.join("events.kymo");
    run::run(Command::new(&program).env("KYMO_OUTPUT", &file)).unwrap();

    let mut show = Command::new(&kymo);
    show.args(["show", "--events", "--format", "json", "--elf"]);
    let text = run::output(show.arg(&program).arg(&file)).unwrap();
    let all = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours = ["sensor", "message", "empty_handed", "heard", "block"];
    let events: Vec<Value> = all
        .filter(|event| ours.iter().any(|name| event["name"] == *name))
        .map(|event| json!([event["name"], event["fields"]]))
        .collect();
    let sensor = |channel: u8, state: Value, volts: f64, offset: i16, count: u64| {
        json!(["sensor", {
            "channel": channel, "state": state, "volts": volts, "offset": offset, "count": count,
        }])
    };
    assert_eq!(
        events[0],
        sensor(
            3,
            json!({"label": "busy", "value": 1}),
            1.5,
            -20,
            0x1234_5678_9ABC_DEF0
        )
    );
    // A value without a label is shown as a number.
    assert_eq!(events[1], sensor(4, json!(9), 0.0, 0, 0));
    let message = &events[2][1];
    assert_eq!(events[2][0], "message");
    assert_eq!(message["topic"], "sixteen letters!");
    assert_eq!(message["flags"], 0xBEEF);
    assert_eq!(message["weight"], -0.25);
    assert_eq!(events[3][1]["topic"], "short");
    assert_eq!(events[4], json!(["empty_handed", {"number": -5}]));
    let heard = json!(["heard", {
        "samples": [1, 2, 0xFFFF], "levels": [0.5, -1.0], "modes": [{"label": "on", "value": 1}, 2], "names": ["left", "rightest"],
    }]);
    assert_eq!(events[5], heard);
    // Undeclared data are shown as bytes.
    assert_eq!(events[6][0], "block");
    assert_eq!(events[6][1]["type"], 99);
    assert_eq!(events.len(), 7);

    // The descriptions are not loaded.
    let headers = run::output(Command::new("objdump").arg("-h").arg(&program)).unwrap();
    let flags = headers.split(".kymo.events").nth(1).expect("the section");
    let flags = flags.lines().nth(1).expect("its flags");
    assert!(
        flags.contains("CONTENTS") && !flags.contains("ALLOC"),
        "{flags}"
    );
}
