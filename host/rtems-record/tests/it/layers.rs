//! Containers of streams: base64, zlib, console logs.

use kymo_fixtures::rtems_record::{LAYOUTS, Stream, base64, zlib};
use kymo_rtems_record::{Kind, probe};

use crate::common::{read, user};

/// Text after a dump in a log.
const END: &str = "*** END OF RECORDS BASE64";

fn stream(first: u64) -> Stream {
    let mut stream = Stream::new(LAYOUTS[1], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(first);
    for step in 0..50 {
        stream.item(first + step, 512, first + step);
    }
    stream
}

#[test]
fn inputs_are_known_by_their_first_bytes() {
    let stream = stream(5);
    for (input, kind) in [
        (stream.bytes.clone(), Kind::Raw),
        (stream.zlib(), Kind::Zlib),
        (stream.base64().into_bytes(), Kind::Base64),
        (base64(&stream.zlib()).into_bytes(), Kind::Base64),
        (stream.log(false, "").into_bytes(), Kind::Log),
    ] {
        assert_eq!(probe(&input), Some((kind, true)), "{kind:?}");
    }
    for other in ["", "hello", "\u{7f}ELF", "CTF", "AAAA AAAA", "x\u{9c}"] {
        assert_eq!(probe(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn a_log_may_have_any_prefix_and_lines_of_others() {
    let stream = stream(5);
    let expected = user(&read(&stream.bytes));
    for compressed in [false, true] {
        for prefix in ["", "[   1.23] ", "uart0: ", "12:00:01.5|", "abc"] {
            let log = format!("boot\r\n{}bye\r\n", stream.log(compressed, prefix));
            let read = read(log.as_bytes());
            assert_eq!(read.faults, [], "{prefix}");
            assert_eq!(user(&read), expected, "{prefix}");
        }
    }
    // A time before each line, with a growing number of digits.
    let log = stream.log(false, "");
    let lines = log.lines().enumerate();
    let log: String = lines
        .map(|(n, line)| format!("[{}] {line}\n", n * 37))
        .collect();
    assert_eq!(user(&read(log.as_bytes())), expected);
    // Colours around each line, and around the times before it.
    let log = stream.log(true, "\u{1b}[32m[   1.23] \u{1b}[0m\u{1b}[33m");
    let log = log.replace("\r\n", "\u{1b}[0m\r\n");
    assert_eq!(user(&read(log.as_bytes())), expected);
    // The form in which GDB's machine interface shows a target's output.
    let log = stream.log(true, "~\"").replace("\r\n", "\\r\\n\"\n");
    assert_eq!(user(&read(log.as_bytes())), expected);
    // Another task writes after the last line.
    let log = stream
        .log(false, "")
        .replace(END, &format!("net: link up eth0\r\n{END}"));
    let whole = read(log.as_bytes());
    assert_eq!((whole.faults.len(), user(&whole)), (0, expected.clone()));
    // Another task writes in between.
    let log = stream
        .log(true, "")
        .replacen("\r\n", "\r\nnetwork: link is up\r\n\r\n", 3);
    let read = read(log.as_bytes());
    assert_eq!((read.faults.len(), user(&read)), (0, expected));
    assert_eq!(read.foreign_lines, 3);
}

/// The last line of a dump can be as long as the others. A line after it does not belong to the dump.
#[test]
fn a_foreign_line_behind_a_full_last_one_is_no_damage() {
    // A line contains 57 bytes, and an item has 8.
    let mut stream = Stream::new(LAYOUTS[0], 10, 1, 64, 1_000_000);
    stream.processor(0).uptime(5);
    let missing = (1..57).find(|items| (stream.bytes.len() + 8 * items).is_multiple_of(57));
    for step in 0..missing.unwrap() as u64 {
        stream.item(6 + step, 512, step);
    }
    let expected = user(&read(&stream.bytes));
    for prefix in ["", "[   1.23] "] {
        let log = stream.log(false, prefix);
        let end = format!("{prefix}{END}");
        let log = log.replace(&end, &format!("{prefix}net: link up eth0\r\n{end}"));
        let read = read(log.as_bytes());
        assert_eq!(
            (read.faults, read.foreign_lines),
            (Vec::new(), 1),
            "{prefix}"
        );
        assert_eq!(user(&self::read(log.as_bytes())), expected);
    }
}

/// Returns a log as a terminal with this number of columns shows it. With `each`, each part has a prefix.
fn wrapped(log: &str, columns: usize, each: &str, end: &str) -> String {
    let mut wrapped = String::new();
    for line in log.lines() {
        let parts = line.as_bytes().chunks(columns);
        for part in parts {
            let part = str::from_utf8(part).unwrap();
            wrapped.extend([each, part, end]);
        }
    }
    wrapped
}

#[test]
fn lines_that_a_terminal_wrapped_are_read() {
    let stream = stream(5);
    let expected = user(&read(&stream.bytes));
    for compressed in [false, true] {
        for (prefix, each) in [
            ("", ""),
            ("[06:12:01.123] ", ""),
            ("", "[06:12:01.123] "),
            ("", "board-3 | "),
        ] {
            let log = stream.log(compressed, prefix);
            // A mark that is wrapped itself is not recognized.
            for columns in [50, 60, 75, 80, 91, 132] {
                for end in ["\n", "\r\n", "\r"] {
                    let log = format!("boot\n{}bye\n", wrapped(&log, columns, each, end));
                    let read = read(log.as_bytes());
                    assert_eq!(read.faults, [], "{prefix:?} {each:?} {columns}");
                    assert_eq!(user(&read), expected, "{prefix:?} {each:?} {columns}");
                }
            }
        }
    }
    // Other tasks write between the lines, also when no line is complete.
    let log = wrapped(&stream.log(false, ""), 60, "", "\n");
    let lines: Vec<_> = log.lines().collect();
    for (at, faults) in [(9, 0), (10, 1)] {
        let mut some = lines.clone();
        some.insert(at, "net: link up eth0");
        let read = read(some.join("\n").as_bytes());
        assert_eq!(read.faults.len(), faults, "{:?}", read.faults);
        match read.faults.first() {
            Some(fault) => assert!(fault.message.contains("wrapped lines"), "{fault:?}"),
            None => assert_eq!(user(&read), expected),
        }
    }
    // Lines in a form that no terminal produces.
    let log = wrapped(&stream.log(false, ""), 60, "", "\n").replace('=', "");
    let log: String = log
        .lines()
        .map(|line| format!("{}\n", line.get(..59).unwrap_or(line)))
        .collect();
    let read = read(log.as_bytes());
    assert!(
        read.faults[0].message.contains("wrapped lines"),
        "{:?}",
        read.faults
    );
}

#[test]
fn the_last_line_of_a_wrapped_dump_may_be_whole() {
    let prefix = "[06:12:01.123] ";
    for steps in 5..9 {
        let stream = stream(steps);
        let log = stream.log(false, prefix);
        let lines: Vec<_> = log.lines().collect();
        let end = lines.iter().position(|line| line.contains("*** END"));
        let last = lines[end.unwrap() - 1];
        let columns = last.len() - 1;
        if last.len() == prefix.len() + 76 || columns < prefix.len() + 8 {
            continue;
        }
        let is_data = |line: &str| line != last && !line.contains("***");
        let log: String = (lines.iter())
            .map(|line| match is_data(line) {
                true => wrapped(line, columns, "", "\n"),
                false => format!("{line}\n"),
            })
            .collect();
        let read = read(log.as_bytes());
        assert_eq!(
            (read.faults.as_slice(), read.foreign_lines),
            ([].as_slice(), 0),
            "{log}"
        );
        assert_eq!(user(&read), user(&self::read(&stream.bytes)));
    }
}

#[test]
fn a_terminal_may_become_wider_within_a_dump() {
    let stream = stream(50);
    let expected = user(&read(&stream.bytes));
    let log = stream.log(false, "> ");
    let middle = log.len() / 2;
    let middle = middle + log[middle..].find("\r\n").unwrap() + 2;
    let log = wrapped(&log[..middle], 60, "", "\n") + &log[middle..];
    let read = read(log.as_bytes());
    assert_eq!(read.faults, []);
    assert_eq!(user(&read), expected);
}

/// A line with one wrong character is not another task's line: without it, the bytes after it would be misaligned.
#[test]
fn a_line_with_a_wrong_character_is_damage() {
    let stream = stream(500);
    for prefix in ["", "> "] {
        let log = stream.log(false, prefix);
        let lines: Vec<_> = log.match_indices("\r\n").map(|(at, _)| at + 2).collect();
        let at = lines[lines.len() / 2] + prefix.len() + 30;
        let mut bytes = log.clone().into_bytes();
        bytes[at] = b'!';
        let damaged = read(&bytes);
        let offsets: Vec<_> = damaged.faults.iter().map(|fault| fault.offset).collect();
        assert_eq!(offsets, [at as u64], "{:?}", damaged.faults);
        let whole = user(&read(log.as_bytes()));
        let found = user(&damaged);
        assert!(!found.is_empty() && found.len() < whole.len());
        assert_eq!(found, whole[..found.len()]);
    }
}

#[test]
fn all_dumps_of_a_log_are_read_also_behind_one_that_breaks_off() {
    let [first, second, third] = [5, 1_000, 2_000].map(stream);
    let broken = second.log(false, "");
    let broken = broken.get(..broken.len() / 2).unwrap();
    let broken = broken.rsplit_once("\r\n").unwrap().0;
    let log = format!(
        "{}{broken}\r\nreset\r\n{}",
        first.log(true, "> "),
        third.log(false, "")
    );
    let read = read(log.as_bytes());
    assert_eq!(read.faults.len(), 1, "{:?}", read.faults);
    let message = &read.faults[0].message;
    assert!(message.contains("end mark"), "{message}");
    let dumps: Vec<_> = read.records.iter().map(|it| it.dump).collect();
    assert!(dumps.is_sorted());
    let count = |dump| {
        let all = read.records.iter().filter(|it| it.dump == dump);
        all.filter(|it| it.event.0 == 512).count()
    };
    assert_eq!((count(0), count(2)), (50, 50));
    assert!((10..50).contains(&count(1)), "{}", count(1));
}

#[test]
fn a_bomb_costs_bounded_memory() {
    // 60 MB of empty items in 60 KB. The records that wait for an uptime pair are bounded, too.
    let mut stream = Stream::new(LAYOUTS[0], 10, 4, 64, 1_000_000);
    stream.processor(3);
    stream.bytes.resize(60 << 20, 0);
    let mut reader = kymo_rtems_record::Reader::new(std::io::Cursor::new(zlib(&stream.bytes)));
    let (mut records, mut most, mut all) = (Vec::new(), 0, 0);
    while reader.read(&mut records).unwrap() {
        most = most.max(records.capacity());
        all += records.len();
        records.clear();
    }
    assert!(all > 7 << 20, "{all}");
    assert!(most < 3 << 20, "{most}");
}
