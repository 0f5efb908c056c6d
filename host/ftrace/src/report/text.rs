//! Columns of numbers and spaces. They do not use the formatting of the standard library, which would take most of the
//! time of a line.

/// Appends `count` spaces.
pub(super) fn spaces(count: usize, out: &mut String) {
    const SPACES: &str = "                                                                ";
    let mut left = count;
    while left > 0 {
        let some = left.min(SPACES.len());
        out.push_str(SPACES.get(..some).unwrap_or_default());
        left -= some;
    }
}

/// `000` to `999`.
const GROUPS: [u8; 3000] = {
    let mut digits = [b'0'; 3000];
    let mut number = 0;
    while number < 1000 {
        digits[3 * number] += (number / 100) as u8;
        digits[3 * number + 1] += (number / 10 % 10) as u8;
        digits[3 * number + 2] += (number % 10) as u8;
        number += 1;
    }
    digits
};

static GROUP: &str = match std::str::from_utf8(&GROUPS) {
    Ok(text) => text,
    Err(_) => "",
};

/// Appends a number below 1000 with three digits.
#[inline]
pub(super) fn three(value: u64, out: &mut String) {
    out.push_str(group(value));
}

/// Returns the last three digits of a number.
#[inline]
fn group(value: u64) -> &'static str {
    let at = 3 * (value % 1000) as usize;
    GROUP.get(at..at + 3).unwrap_or_default()
}

/// `000: ` to `999: `.
const GROUPS_AND_COLONS: [u8; 5000] = {
    let mut texts = [b' '; 5000];
    let mut number = 0;
    while number < 1000 {
        let mut place = 0;
        while place < 3 {
            texts[5 * number + place] = GROUPS[3 * number + place];
            place += 1;
        }
        texts[5 * number + 3] = b':';
        number += 1;
    }
    texts
};

static GROUP_AND_COLON: &str = match std::str::from_utf8(&GROUPS_AND_COLONS) {
    Ok(text) => text,
    Err(_) => "",
};

/// Appends the last three digits of a number, a colon and a space.
#[inline]
pub(super) fn three_and_colon(value: u64, out: &mut String) {
    let at = 5 * (value % 1000) as usize;
    out.push_str(GROUP_AND_COLON.get(at..at + 5).unwrap_or_default());
}

/// `000 us` to `999 us`.
const FRACTIONS: [u8; 6000] = {
    let mut texts = [b' '; 6000];
    let mut number = 0;
    while number < 1000 {
        let mut place = 0;
        while place < 3 {
            texts[6 * number + place] = GROUPS[3 * number + place];
            place += 1;
        }
        texts[6 * number + 4] = b'u';
        texts[6 * number + 5] = b's';
        number += 1;
    }
    texts
};

static FRACTION: &str = match std::str::from_utf8(&FRACTIONS) {
    Ok(text) => text,
    Err(_) => "",
};

/// For each whole number of microseconds below 1000: the mark of a duration, the number and a point. Each text has six
/// characters, of which the last ones may be unused.
const WHOLES: [u8; 6000] = {
    let mut texts = [b' '; 6000];
    let mut number = 0;
    while number < 1000 {
        let (mark, digits) = match number {
            0..10 => (b' ', 1),
            10..100 => (b'+', 2),
            _ => (b'!', 3),
        };
        let at = 6 * number;
        texts[at] = mark;
        let mut place = 0;
        while place < digits {
            texts[at + 2 + place] = GROUPS[3 * number + 3 - digits + place];
            place += 1;
        }
        texts[at + 2 + digits] = b'.';
        number += 1;
    }
    texts
};

static WHOLE: &str = match std::str::from_utf8(&WHOLES) {
    Ok(text) => text,
    Err(_) => "",
};

/// Appends the text behind a duration below a millisecond: spaces, a bar, two spaces, and the indentation of a call.
/// `digits` is the number of digits of its microseconds.
#[inline]
pub(super) fn bar(digits: usize, indent: usize, out: &mut String) {
    const BAR: &str = "   |                                                                    ";
    const ROOM: usize = BAR.len() - 6;
    let from = digits - 1;
    if indent <= ROOM {
        out.push_str(BAR.get(from..6 + indent).unwrap_or_default());
    } else {
        out.push_str(BAR.get(from..6).unwrap_or_default());
        spaces(indent, out);
    }
}

/// Appends a duration as the kernel writes it: its mark, microseconds in at least seven characters, ` us `, spaces up
/// to the next column, a bar, and the indentation of a call.
#[inline]
pub(super) fn duration(nanoseconds: u64, indent: usize, out: &mut String) {
    let micro = nanoseconds / 1000;
    // At the limits themselves the kernel writes no mark.
    if micro >= 1000 || nanoseconds == 10_000 || nanoseconds == 100_000 {
        return any_duration(nanoseconds, indent, out);
    }
    let digits = match micro {
        0..10 => 1,
        10..100 => 2,
        _ => 3,
    };
    let whole = 6 * micro as usize;
    out.push_str(WHOLE.get(whole..whole + 3 + digits).unwrap_or_default());
    let fraction = 6 * (nanoseconds % 1000) as usize;
    out.push_str(FRACTION.get(fraction..fraction + 6).unwrap_or_default());
    bar(digits, indent, out);
}

#[inline(never)]
fn any_duration(nanoseconds: u64, indent: usize, out: &mut String) {
    out.push_str(match nanoseconds {
        1_000_000_001.. => "$ ",
        1_000_001.. => "# ",
        100_001.. => "! ",
        10_001.. => "+ ",
        _ => "  ",
    });
    let start = out.len();
    number(nanoseconds / 1000, 0, out);
    // Seven digits in front of the point leave no room for a fraction.
    if out.len() - start < 7 {
        out.push('.');
        three(nanoseconds, out);
    }
    let length = out.len() - start;
    out.push_str(" us ");
    spaces(7usize.saturating_sub(length), out);
    out.push_str("|  ");
    spaces(indent, out);
}

/// Appends a number, padded with spaces in front to a width.
pub(super) fn number(value: u64, width: usize, out: &mut String) {
    let digits = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    spaces(width.saturating_sub(digits), out);
    if value < 1000 {
        out.push_str(group(value).get(3 - digits..).unwrap_or_default());
        return;
    }
    // Writes the highest group without leading zeros, then all others.
    let mut power = 1000_u64.pow(((digits - 1) / 3) as u32);
    number(value / power, 0, out);
    while power > 1 {
        power /= 1000;
        three(value / power, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard_library() {
        let powers = (0..20).map(|power| 10_u64.pow(power));
        let around =
            powers.flat_map(|power| [power - 1, power, power + 1, power.saturating_mul(7)]);
        for value in around.chain([0, u64::MAX, 123_456_789, 1_002_003]) {
            for width in [0, 5, 30] {
                let mut out = String::new();
                number(value, width, &mut out);
                assert_eq!(out, format!("{value:width$}"));
            }
            let mut out = String::new();
            three(value, &mut out);
            three_and_colon(value, &mut out);
            assert_eq!(out, format!("{0:03}{0:03}: ", value % 1000));
            let (micro, rest) = (value / 1000, value % 1000);
            let mut expected = micro.to_string();
            if expected.len() < 7 {
                expected += &format!(".{rest:03}");
            }
            let spaces = " ".repeat(7_usize.saturating_sub(expected.len()));
            for (limit, mark) in [
                (1_000_000_000, '$'),
                (1_000_000, '#'),
                (100_000, '!'),
                (10_000, '+'),
                (0, ' '),
            ] {
                if value > limit || limit == 0 {
                    expected = format!("{mark} {expected}");
                    break;
                }
            }
            for indent in [0, 2, 60, 66, 200] {
                let mut out = String::new();
                duration(value, indent, &mut out);
                assert_eq!(out, format!("{expected} us {spaces}|  {:indent$}", ""));
            }
        }
    }
}
