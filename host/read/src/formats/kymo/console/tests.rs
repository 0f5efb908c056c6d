use kymo_wire::link::Text;
use kymo_wire::link::console::{write_end, write_line};

use super::*;

/// The lines of a text dump of these bytes.
fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines = vec![format!("{BEGIN}: keep this text ***")];
    let mut add = |write: &dyn Fn(&mut Text<'_>)| {
        let mut room = [0; LINE_TEXT];
        let mut text = Text::new(&mut room);
        write(&mut text);
        lines.push(String::from_utf8(text.bytes().to_vec()).unwrap());
    };
    for (n, bytes) in bytes.chunks(LINE_BYTES).enumerate() {
        add(&|text| write_line(n as u32, bytes, text));
    }
    let mut crc = Crc32::new();
    crc.update(bytes);
    let count = bytes.len().div_ceil(LINE_BYTES) as u32;
    add(&|text| write_end((count, bytes.len() as u32, crc.value()), None, text));
    lines
}

fn content(seed: u8) -> Vec<u8> {
    (0..1000u32).map(|n| (n * 7) as u8 ^ seed).collect()
}

#[test]
fn dumps_are_found_between_other_lines_and_behind_prefixes() {
    let mut log = String::from("boot kymo: kymo:12:x:y\r\n");
    for (seed, prefix) in [
        (1, ""),
        (2, "[   12.345678] console kymo: "),
        (3, "I (12) app: "),
    ] {
        for line in lines(&content(seed)) {
            log += prefix;
            log += &line;
            log += "\r\n[13.0] something else: kymo:zz\n";
        }
    }
    let found = dumps(log.as_bytes());
    assert_eq!(found.len(), 3);
    for (dump, seed) in found.iter().zip(1..) {
        assert_eq!(dump.bytes(), (content(seed), vec![]));
        assert_eq!(dump.remarks(), [""; 0]);
    }
}

#[test]
fn wrapped_lines_are_put_together_by_their_checksums() {
    for prefix in ["", "[   12.345678] "] {
        for columns in [40, 60, 80] {
            for each in [false, true] {
                let mut log = String::new();
                for line in lines(&content(1)) {
                    let line = format!("{}{line}", if each { "" } else { prefix });
                    for part in line.as_bytes().chunks(columns) {
                        log += if each { prefix } else { "" };
                        log += str::from_utf8(part).unwrap();
                        log += "\r";
                    }
                    log += "\r";
                }
                let found = dumps(log.as_bytes());
                assert_eq!(found.len(), 1, "{log}");
                assert_eq!(found[0].bytes(), (content(1), vec![]));
                assert_eq!(found[0].remarks(), [""; 0]);
            }
        }
    }
}

#[test]
fn what_is_missing_is_known() {
    let bytes = content(5);
    let all = lines(&bytes);
    for gone in 1..all.len() {
        let mut some = all.clone();
        some.remove(gone);
        let found = dumps(some.join("\n").as_bytes());
        let (read, missing) = found[0].bytes();
        let place = (gone - 1) * LINE_BYTES;
        if gone == all.len() - 1 {
            assert_eq!((read.len(), missing), (1000, vec![]));
            assert!(found[0].remarks()[0].contains("no end"));
        } else {
            let end = bytes.len().min(place + LINE_BYTES);
            let lost = place as u64..end as u64;
            assert_eq!((missing.len(), &missing[0]), (1, &lost));
            assert_eq!(read[..place], bytes[..place]);
            assert_eq!(read[end..], bytes[end..]);
            assert!(found[0].remarks()[0].contains("missing"), "{gone}");
        }
    }
    // A reset in the middle of a dump, and the mark of the next one lost.
    let log = [&all[..5], &all[1..]].concat().join("\n");
    let found = dumps(log.as_bytes());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].bytes().0, bytes[..4 * LINE_BYTES]);
    assert_eq!(found[1].bytes(), (bytes, vec![]));
}

#[test]
fn what_a_terminal_repeats_is_taken_once() {
    let bytes = content(5);
    let all = lines(&bytes);
    let remarks = |log: &[String], what: &str| {
        let found = dumps(log.join("\r\n").as_bytes());
        let [dump] = &found[..] else {
            panic!("{what}: {} dumps", found.len());
        };
        assert_eq!(dump.bytes(), (bytes.clone(), vec![]), "{what}");
        dump.remarks()
    };
    let check = |log: &[String], what: &str| assert_eq!(remarks(log, what), [""; 0], "{what}");
    let doubled = |line: &String| [line.clone(), line.clone()];
    let twice: Vec<_> = all.iter().flat_map(doubled).collect();
    check(&twice, "each line twice");
    let side_by_side: Vec<_> = all.iter().map(|line| format!("{line}{line}")).collect();
    check(&side_by_side, "each line twice in its line");
    // A console that is connected again begins with what it still has.
    let end = all.len() - 1;
    for from in 1..all.len() {
        let again = &all[from..];
        check(&[&all[..], again].concat(), "lines behind the dump");
        // That may be a newer dump as well.
        let said = remarks(&[&all[..], &all[from..end]].concat(), "without its end");
        let cut = end - from;
        match cut {
            0 => assert_eq!(said, [""; 0]),
            _ => assert!(
                said[0].contains(&format!("up to {cut} of its lines are in the log")),
                "{said:?}"
            ),
        }
        if from > 1 {
            check(&[&all[..end], again].concat(), "in the dump");
        }
    }
    check(&[&all[..], &all[..]].concat(), "all of it");
    // What one copy lacks the other one has.
    let (mut first, mut second) = (all.clone(), all.clone());
    first.remove(3);
    second.remove(7);
    check(&[first, second].concat(), "two damaged copies");
}

#[test]
fn two_dumps_that_a_terminal_repeats_are_two() {
    let (one, two) = (lines(&content(5)), lines(&content(6)));
    let cut = &two[..20];
    let found = dumps([&one[..], &two, &one, cut].concat().join("\n").as_bytes());
    let [first, second] = &found[..] else {
        panic!("{} dumps", found.len());
    };
    assert_eq!(first.bytes().0, content(5));
    assert_eq!(first.remarks(), [""; 0]);
    assert_eq!(second.bytes().0, content(6));
    assert!(second.remarks()[0].contains("up to 19 of its lines"));
}

#[test]
fn a_dump_that_is_printed_again_behind_another_one_is_the_last() {
    let (one, two) = (lines(&content(5)), lines(&content(6)));
    let found = dumps([&one[..], &two, &one].concat().join("\n").as_bytes());
    let bytes = found.iter().map(|dump| dump.bytes().0);
    assert!(bytes.eq([6, 5].map(content)));
}

#[test]
fn a_damaged_line_loses_its_own_bytes() {
    let bytes = content(5);
    let mut all = lines(&bytes);
    all[4].replace_range(20..21, "*");
    let twice: Vec<_> = all.iter().flat_map(|line| [line, line]).cloned().collect();
    for log in [&all, &twice] {
        let found = dumps(log.join("\r\n").as_bytes());
        assert_eq!(found.len(), 1);
        let lost = 3 * LINE_BYTES as u64..4 * LINE_BYTES as u64;
        assert_eq!(found[0].bytes().1, [lost]);
        let remarks = found[0].remarks();
        assert!(remarks[0].contains("48 bytes"), "{remarks:?}");
    }
}

#[test]
fn a_number_out_of_nowhere_fills_no_memory() {
    let mut room = [0; LINE_TEXT];
    let mut text = Text::new(&mut room);
    write_line((1 << 24) - 1, &[1; LINE_BYTES], &mut text);
    let mut log = text.bytes().to_vec();
    log.extend_from_slice(b"*** kymo dump ends: lines=1 bytes=4294967295 crc=00000000 ***\n");
    let found = dumps(&log);
    assert!(found[0].length() <= MISSING_AT_MOST * LINE_BYTES);
}
