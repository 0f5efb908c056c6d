//! A full buffer, on a processor whose records are prepared before they are stored: each event without room is counted
//! once.

use std::path::Path;

use kymo_device_tests::emulator::{Program, TARGET, equipped, library};

/// Builds and runs `full.c`. Returns what the target says, name by name.
fn run(features: &str, rounds: u32) -> impl Fn(&str) -> u32 {
    let kind = if features.is_empty() {
        "fast"
    } else {
        features
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("full");
    let library = library(&folder.join(format!("library-{kind}")), features);
    let folder = folder.join(format!("{kind}-{rounds}"));
    let rounds = format!("-DROUNDS={rounds}");
    Program::build(&folder, "full.c", &[&rounds], &[&library]).run(&folder);
    let status = std::fs::read_to_string(folder.join("status.txt")).expect("it was written");
    move |name: &str| {
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        let value = status.split_whitespace().find_map(value);
        value.unwrap_or_else(|| panic!("no {name} in {status:?}"))
    }
}

fn compare(features: &str) {
    let few = run(features, 200);
    let many = run(features, 1200);
    assert!(few("discarded") > 0, "it is full");
    assert_eq!(many("used"), few("used"));
    assert_eq!(many("packets"), few("packets"));
    assert_eq!(many("discarded") - few("discarded"), 5 * 1000);
}

#[test]
fn what_finds_no_room_is_counted_once() {
    if equipped(&[TARGET]) {
        compare("");
    }
}

#[test]
fn so_it_is_with_portable_hooks() {
    if equipped(&[TARGET]) {
        compare("portable");
    }
}
