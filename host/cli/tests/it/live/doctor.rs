//! `kymo doctor`, with each link of the chain broken in turn.

use super::*;

/// Returns the exit code and the outcome of each check.
fn checks(output: &Output) -> (Option<i32>, Vec<(String, String, String)>) {
    let lines = out(output);
    let rows = lines.lines().map(|line| {
        let row: Value = serde_json::from_str(line).expect("an object");
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        (text("check"), text("outcome"), text("next"))
    });
    (output.status.code(), rows.collect())
}

/// Runs `kymo doctor` on a target with this status. The check `failing` must fail with this advice.
fn diagnose(status: &str, failing: &str, advice: &str) {
    let mut state = state("demo.kymo");
    state.status = status.to_owned();
    let fake = Fake::start(state);
    let output = on(
        &fake,
        &["doctor", "--format", "json", "--symbols", "demo.nm"],
    );
    let (code, rows) = checks(&output);
    let failed = rows.iter().find(|(_, outcome, _)| outcome == "failed");
    let (name, _, next) = failed.unwrap_or_else(|| panic!("nothing fails: {rows:?}"));
    assert_eq!((code, name.as_str()), (Some(1), failing), "{rows:?}");
    assert!(next.contains(advice), "{next}");
}

#[test]
fn doctor_names_the_next_step_of_each_link_that_fails() {
    let hooked = STATUS.replace("on=0", "on=1");
    let cases = [
        (
            format!("{hooked} refused=3 refused_function=0x8000035"),
            "hooks",
            "KYMO_NO_INSTRUMENT",
        ),
        (hooked.replace("damaged=0", "damaged=4"), "link", "--baud"),
        (
            hooked.replace("enabled=1", "enabled=0"),
            "hooks",
            "-finstrument-functions",
        ),
    ];
    for (status, failing, advice) in cases {
        diagnose(&status, failing, advice);
    }
}

/// The linker adds the hooks from the library even if no function calls them.
#[test]
fn doctor_tells_a_program_whose_functions_call_no_hooks() {
    for (program, outcome, found) in [
        ("unhooked.elf", "failed", "but no function calls it"),
        ("hooked.elf", "ok", "called in 2 places"),
    ] {
        let fake = Fake::start(state("demo.kymo"));
        let output = on(&fake, &["doctor", "--format", "json", "--elf", program]);
        let lines = out(&output);
        let mut rows = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object"));
        let hooks = rows.find(|row: &Value| row["check"] == "hooks");
        let hooks = hooks.expect("checked");
        assert_eq!(hooks["outcome"], outcome, "{hooks}");
        assert!(
            hooks["found"].as_str().expect("text").contains(found),
            "{hooks}"
        );
    }
}

#[test]
fn doctor_finds_what_nobody_answers_to_and_what_is_fine() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("tcp:{}", nobody.local_addr().expect("an address"));
    drop(nobody);
    let (code, rows) = checks(&run(&["doctor", "--format", "json", &address]));
    assert_eq!((code, rows.len()), (Some(1), 1), "{rows:?}");
    assert_eq!((&*rows[0].0, &*rows[0].1), ("link", "failed"));
    assert!(!rows[0].2.is_empty());

    let fake = Fake::start(state("demo.kymo"));
    let text = out(&on(&fake, &["doctor"]));
    for part in [
        "ok       link",
        "unknown  build",
        "ok       set-up",
        "ok       events     444 bytes",
    ] {
        assert!(text.contains(part), "expected {part:?} in\n{text}");
    }
}

#[test]
fn doctor_sees_that_nothing_is_recorded() {
    let empty = STATUS.replace("bytes=444", "bytes=0");
    let mut off = state("demo.kymo");
    off.status = empty.clone();
    let fake = Fake::start(off);
    let (code, rows) = checks(&on(&fake, &["doctor", "--format", "json"]));
    assert_eq!(code, Some(1));
    let recording = rows
        .iter()
        .find(|row| row.0 == "recording")
        .expect("checked");
    assert!(
        recording.1 == "failed" && recording.2.contains("kymo command on"),
        "{rows:?}"
    );

    let mut silent = state("demo.kymo");
    silent.status = empty.replace("on=0", "on=1");
    let fake = Fake::start(silent);
    let (code, rows) = checks(&on(&fake, &["doctor", "--format", "json"]));
    assert_eq!(code, Some(1));
    assert_eq!(
        rows.last().map(|row| (&*row.0, &*row.1)),
        Some(("events", "failed"))
    );
}
