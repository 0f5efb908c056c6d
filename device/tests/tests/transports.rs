//! Transports of C programs, with simulated hardware at the other end; and the documentation's table of them.

#[path = "common/programs.rs"]
mod common;

use std::process::Command;

use common::{build, compilers, device};

#[test]
fn what_arrives_and_what_is_counted_as_lost_are_all_that_was_sent() {
    for compiler in compilers() {
        let program = build(compiler, "transports", &["-Wall", "-Wextra", "-Werror"]);
        let output = Command::new(&program)
            .arg(program.with_extension("file"))
            .output()
            .expect("the program runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{compiler}: {text}");
        let both =
            ["fifo", "dma", "usb", "gpio"].map(|name| format!("{name} bytes\n{name} events\n"));
        assert_eq!(
            text,
            both.concat() + "itm bytes\nsocket bytes\nfile bytes\n"
        );
    }
}

/// The documentation's table has a row for each header of a transport, and no other row.
#[test]
fn the_book_has_all_of_them() {
    let book = std::fs::read_to_string(device().join("../book/transports.md")).expect("the book");
    let mut named: Vec<&str> = book
        .lines()
        .filter(|line| line.starts_with('|'))
        .flat_map(|line| line.split('`'))
        .filter(|word| word.starts_with("kymo_") && word.ends_with(".h"))
        .collect();
    named.sort_unstable();
    named.dedup();
    let mut there = vec!["kymo_sysview.h".to_owned()];
    for entry in std::fs::read_dir(device().join("c/include")).expect("the headers") {
        let path = entry.expect("a header").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let opens = ["/* Transport ", "/* Transports", "/* RTT:"];
        if opens.iter().any(|first| text.starts_with(first)) {
            there.push(name);
        }
    }
    there.sort_unstable();
    assert_eq!(named, there);
}
