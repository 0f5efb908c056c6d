//! A ring of items with three interrupt levels as concurrent writers, and a concurrent drain. Interrupts preempt
//! between any two instructions, and the tests check every item.

use std::path::Path;

use kymo_device_tests::emulator::{Program, Said, TARGET, equipped, library};

/// Runs `ring.c` with this many items of the lowest level; the interrupts produce a hundred times as many.
fn ring(records: u32) -> Said {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("stress_items")
        .join(records.to_string());
    let library = library(&folder.with_file_name("library"), "");
    let records = format!("-DRECORDS={records}");
    let options = [records.as_str(), "-Wl,--defsym=kymo_counter=0x40028018"];
    let program = Program::build(&folder, "ring.c", &options, &[&library]);
    program.run(&folder)
}

fn check(said: &Said, at_least: u32) {
    let number = |name| said.number(name);
    assert!(number("records") >= at_least, "{said:?}");
    assert!(number("low") > 100 && number("high") > 100);
    // Given once or counted once, and that is what is missing.
    assert_eq!((number("wrong"), number("backward")), (0, 0), "{said:?}");
    assert_eq!(
        number("got") + number("lost"),
        number("records"),
        "{said:?}"
    );
    assert_eq!(number("missing"), number("lost"), "{said:?}");
    assert!(number("lost") > 0, "the ring went round: {said:?}");
    // When interrupts have ended there is an end to what is read.
    assert_eq!(number("stuck"), 0, "{said:?}");
    // At every instruction of the producer up to the one that masks, and its return.
    for offset in [0, 2, 6, 28] {
        assert!(said.struck.contains(&offset), "{offset}: {said:?}");
    }
}

#[test]
fn a_ring_that_is_read_while_interrupts_write_loses_and_repeats_nothing_unsaid() {
    if equipped(&[TARGET]) {
        check(&ring(3_000), 100_000);
    }
}

#[test]
#[ignore = "takes long"]
fn a_million_items_are_read_while_interrupts_write() {
    if equipped(&[TARGET]) {
        check(&ring(30_000), 1_000_000);
    }
}

/// Runs a program, with these options.
fn run(name: &str, options: &[&str]) -> Said {
    run_with("", name, options)
}

/// As [`run`], with a library that has these features in addition to the usual ones.
fn run_with(features: &str, name: &str, options: &[&str]) -> Said {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stress_items");
    let library = library(&folder.join(format!("library{features}")), features);
    let folder = folder.join(format!("{name}{features}{}", options.concat()));
    let counter = "-Wl,--defsym=kymo_counter=0x40028018";
    let options = [&[counter], options].concat();
    let program = Program::build(&folder, &format!("{name}.c"), &options, &[&library]);
    program.run(&folder)
}

#[test]
fn a_tick_that_strikes_anywhere_costs_a_ring_no_item_unsaid() {
    if !equipped(&[TARGET]) {
        return;
    }
    let said = run("ring_tick", &["-DRECORDS=5000"]);
    assert_eq!(said.number("unsaid"), 0, "{said:?}");
    assert_eq!(said.number("backward"), 0, "{said:?}");
    assert!(said.number("next") > 4000, "{said:?}");
}

#[test]
fn a_library_that_is_checked_refuses_at_the_first_hook() {
    if !equipped(&[TARGET]) {
        return;
    }
    // So few that no packet changes: without the check nobody would have looked.
    let options = ["-DUNPRIVILEGED", "-DMARKERS=3"];
    assert_eq!(run("unprivileged", &options).number("set_up"), 1);
    let said = run_with("checked", "unprivileged", &options);
    assert_eq!(said.number("unprivileged"), 1, "{said:?}");
    let said = run_with("checked", "unprivileged", &["-DMARKERS=3"]);
    assert_eq!(said.number("set_up"), 1, "{said:?}");
}

#[test]
fn a_thread_that_cannot_mask_interrupts_is_refused_and_reported() {
    if !equipped(&[TARGET]) {
        return;
    }
    let said = run("unprivileged", &[]);
    assert_eq!(
        (said.number("set_up"), said.number("value")),
        (1, 1),
        "{said:?}"
    );
    for options in [&["-DUNPRIVILEGED"][..], &["-DUNPRIVILEGED", "-DEARLY"]] {
        let said = run("unprivileged", options);
        assert_eq!(
            (said.number("set_up"), said.number("value")),
            (0, 0),
            "{said:?}"
        );
        assert_eq!(said.number("unprivileged"), 1, "{said:?}");
    }
}
