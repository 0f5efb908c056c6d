//! Prefixes of lines that were pasted or went through a log: quotation marks, dates, the kernel log's times.

/// Removes prefixes from a line: a byte order mark, `> ` of a quotation, and those of logs. The kernel's log has `<4>`,
/// `[  516.125674] `, `[    T7] `; syslog and journald have `Nov 27 22:00:00 host kernel: `; logcat has
/// `11-28 05:48:38.123  1234  1234 I tag     : `.
pub(super) fn without_prefix(text: &str) -> &str {
    let mut text = text.trim_start_matches('\u{feff}');
    while let Some(quoted) = text.strip_prefix('>') {
        text = quoted.strip_prefix(' ').unwrap_or(quoted);
    }
    let may_be_date = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    let text = match text.split_once(" kernel: ").filter(|_| may_be_date) {
        Some((date, behind)) if is_dated(date) => behind,
        _ => without_logcat(text).unwrap_or(text),
    };
    let mut rest = text;
    if let Some((level, behind)) = rest.strip_prefix('<').and_then(|it| it.split_once('>'))
        && level.parse::<u8>().is_ok()
        && behind.starts_with('[')
    {
        rest = behind;
    }
    let mut found = text;
    while let Some((inside, behind)) = rest.strip_prefix('[').and_then(|it| it.split_once(']')) {
        let inside = inside.trim_start();
        let who = inside.strip_prefix(['T', 'C']).unwrap_or(inside);
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, part) = who.split_once('.').unwrap_or((who, "0"));
        if whole.is_empty() || !is_number(whole) || !is_number(part) {
            break;
        }
        rest = behind;
        found = rest;
    }
    // One blank belongs to the log.
    found
        .strip_prefix(' ')
        .filter(|_| found != text)
        .unwrap_or(found)
}

/// Returns whether a text is a date and a host, as in logs: `Nov 27 22:00:00 host`, `2026-11-27T22:00:00+0000 host`.
fn is_dated(text: &str) -> bool {
    let mut words = text.split_ascii_whitespace();
    let Some(first) = words.next() else {
        return false;
    };
    let is_clock = |word: &str| word.split(':').count() == 3 && !word.starts_with(':');
    let is_date = match words.next() {
        Some(day) if first.len() == 3 && day.parse::<u8>().is_ok() => {
            words.next().is_some_and(is_clock) && words.next().is_some()
        }
        host => host.is_some() && first.contains('T') && first.contains(':'),
    };
    is_date && words.next().is_none()
}

/// Removes the date, time, process, thread, level and tag of a logcat line (`-v threadtime`, its default); `None` if
/// the line has another form.
fn without_logcat(text: &str) -> Option<&str> {
    let (month, rest) = text.split_once('-').filter(|it| it.0.len() == 2)?;
    let (front, message) = rest.split_once(": ")?;
    let mut words = front.split_ascii_whitespace();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let is_front = is_number(month)
        && is_number(words.next()?)
        && words.next()?.split([':', '.']).all(is_number)
        && is_number(words.next()?)
        && is_number(words.next()?)
        && words.next()?.len() == 1;
    is_front.then_some(message)
}

#[cfg(test)]
mod tests {
    use crate::text::{Line, line};

    #[test]
    fn prefixes_of_pasted_lines_are_no_part_of_them() {
        let text = " 1)    find-298    |  + 12.669 us  |    mutex_unlock();";
        let expected = line(text);
        assert!(matches!(expected, Line::Event(_)));
        for front in [
            "\u{feff}",
            "> ",
            ">> ",
            "> > ",
            "[  516.125674] ",
            "<4>[  516.125674] ",
            "Nov 27 22:00:00 board kernel: ",
            "Nov 27 22:00:00 board kernel: [  516.125674] ",
            "2026-11-27T22:00:00+0000 board kernel: ",
            "11-28 05:48:38.123     0     0 I         : ",
            "11-28 05:48:38.123  1234  1240 W kernel  : [  516.125674] ",
        ] {
            assert_eq!(line(&format!("{front}{text}")), expected, "{front}");
        }
        for front in [
            "host kernel: ",
            "Nov kernel: ",
            "a b c d kernel: ",
            "11-28 05:48:38.123  1234 I tag : ",
        ] {
            assert_ne!(line(&format!("{front}{text}")), expected, "{front}");
        }
    }
}
