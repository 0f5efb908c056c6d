//! Transports of C programs, with simulated hardware at the other end; and the documentation's table of them.

#[path = "common/programs.rs"]
mod common;

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::process::Command;

use common::{build, compilers, device};

/// Runs the program of all transports, and returns what it prints.
fn output(compiler: &str) -> String {
    let program = build(compiler, "transports", &["-Wall", "-Wextra", "-Werror"]);
    let output = Command::new(&program)
        .arg(program.with_extension("file"))
        .output()
        .expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{compiler}: {text}");
    text
}

#[test]
fn what_arrives_and_what_is_counted_as_lost_are_all_that_was_sent() {
    for compiler in compilers() {
        let text = output(compiler);
        let both = ["fifo", "rtt", "dma", "usb", "gpio"]
            .map(|name| format!("{name} bytes\n{name} events\n"));
        let expected = both.concat() + "itm bytes\nsocket bytes\nfile bytes\n";
        let rest = text
            .lines()
            .filter(|line| !line.starts_with("facts ") && *line != "rtt losses");
        let rest: String = rest.map(|line| format!("{line}\n")).collect();
        assert_eq!(rest, expected);
        assert!(text.contains("rtt losses\n"), "{text}");
    }
}

/// The documentation's table: its rows' cells.
fn table() -> Vec<Vec<String>> {
    let book = std::fs::read_to_string(device().join("../book/transports.md")).expect("the book");
    let lines = book
        .lines()
        .skip_while(|line| !line.starts_with("| transport |"));
    let rows = lines.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| {
        row.trim_matches('|')
            .split('|')
            .map(|it| it.trim().to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

/// Tests of the rows whose transport is no simulated one of `transports.c`, or that lead to another row.
const ELSEWHERE: [(&str, &str, &str); 7] = [
    (
        "memory only",
        "device/tests/tests/full.rs",
        "fn what_finds_no_room_is_counted_once",
    ),
    (
        "console",
        "device/tests/tests/link/ways_out.rs",
        "fn a_dump_to_a_console_locks_nothing_and_all_else_waits",
    ),
    (
        "UART, polled",
        "device/tests/tests/link/ways_out.rs",
        "fn a_polled_uart_locks_nothing_and_one_thread_polls",
    ),
    (
        "memory shared with the host",
        "tests/it/transports.rs",
        "fn a_guest_is_read_through_memory_that_it_shares",
    ),
    (
        "file, pipe (POSIX)",
        "device/tests/programs/transports.c",
        "static void files(",
    ),
    (
        "a socket of the library's own (Linux)",
        "tests/it/served.rs",
        "fn a_host_that_goes_away_in_the_middle_holds_nothing_up",
    ),
    (
        "SystemView's stream",
        "tests/it/sysview.rs",
        "fn a_board_is_recorded_as_a_recorder_over_tcp",
    ),
];

/// Each row's cells are what its transport does in `transports.c`.
#[test]
fn the_books_cells_are_true() {
    let rows = table();
    let (head, rows) = rows.split_first().expect("a table");
    let column = |name: &str| {
        let found = head.iter().position(|it| it == name);
        found.unwrap_or_else(|| panic!("no column {name}"))
    };
    // What is in the row, and what its buffer took in `transports.c`: a ring of 97 bytes, of which one stays free, two halves
    // of 80, a packet of 64.
    let by_name: HashMap<&str, (&str, &str, RangeInclusive<u32>)> = HashMap::from([
        ("fifo", ("`kymo_fifo.h`", "a ring of your size", 96..=96)),
        ("rtt", ("`kymo_rtt.h`: ", "a ring of your size", 96..=96)),
        ("dma", ("`kymo_dma.h`", "two halves", 160..=160)),
        ("usb", ("`kymo_transport.h`", "the stack's", 64..=64)),
        ("gpio", ("`kymo_gpio.h`", "none", 0..=0)),
        ("itm", ("`kymo_itm.h`", "a word", 1..=4)),
        ("semihosting", ("`kymo_semihosting.h`", "none", 0..=0)),
        (
            "socket",
            ("`kymo_posix.h`: a server", "the system's", 1024..=65536),
        ),
    ]);
    let text = output(compilers().first().expect("a compiler"));
    let mut measured = Vec::new();
    for facts in text.lines().filter_map(|line| line.strip_prefix("facts ")) {
        let (name, facts) = facts.split_once(':').expect("a name");
        let fact = |what: &str| {
            let found = facts.split(';').find_map(|it| it.trim().strip_prefix(what));
            found.unwrap_or_else(|| panic!("no {what}: {facts}"))
        };
        let (header, buffer, room) = by_name.get(name).expect("a row of the book");
        let row = rows
            .iter()
            .find(|row| row[column("on the target")].contains(header))
            .expect("a row");
        measured.push(row[0].as_str());
        assert!(row[column("buffer")].starts_with(buffer), "{name}");
        let taken = fact("buffer ").parse().expect("a number");
        assert!(room.contains(&taken), "{name}: {taken}");
        assert_eq!(row[column("blocks")], fact("blocks "), "{name}");
        let lock = &row[column("lock")];
        assert!(lock.starts_with(fact("lock ")), "{name}: {lock}");
        let full = &row[column("when it is full")];
        assert!(full.starts_with(fact("full ")), "{name}: {full}");
        assert_eq!(
            full.contains("counted"),
            fact("full ") != "never",
            "{name}: {full}"
        );
        assert_eq!(
            full.contains("lost at once"),
            fact("gone ") == "lost at once",
            "{name}: {full}"
        );
        // Whole events, with the clock's time or counted as lost.
        let emits = text.contains(&format!("\n{name} events\n"));
        assert_eq!(
            row[column("timestamps")].contains("`emit`"),
            emits,
            "{name}"
        );
        let drops = emits && fact("full ") != "never";
        assert_eq!(full.contains("`emit` drops"), drops, "{name}: {full}");
    }
    assert_eq!(measured.len(), by_name.len());
    for row in &rows[1..] {
        let name = row[0].as_str();
        if measured.contains(&name) {
            continue;
        }
        let (_, file, test) = ELSEWHERE
            .iter()
            .find(|(row, ..)| *row == name)
            .unwrap_or_else(|| panic!("no test of {name}"));
        let path = device().join("..").join(file);
        let text = std::fs::read_to_string(&path).expect("the test's file");
        assert!(text.contains(test), "{name}: {file}");
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
