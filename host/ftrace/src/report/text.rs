//! Columns of numbers and spaces, without the formatting of the standard library: it takes most of the time that a line
//! takes.

/// Adds so many spaces.
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

/// Adds a number below 1000 with three digits.
#[inline]
pub(super) fn three(value: u64, out: &mut String) {
    out.push_str(group(value));
}

/// The last three digits of a number.
#[inline]
fn group(value: u64) -> &'static str {
    let at = 3 * (value % 1000) as usize;
    GROUP.get(at..at + 3).unwrap_or_default()
}

/// Adds a duration as the kernel writes it: microseconds in at least seven characters, ` us `, and spaces up to the
/// column behind.
pub(super) fn duration(nanoseconds: u64, out: &mut String) {
    let micro = nanoseconds / 1000;
    if micro >= 1000 {
        let start = out.len();
        number(micro, 0, out);
        // Seven digits before the point leave no room for others.
        if out.len() - start < 7 {
            out.push('.');
            three(nanoseconds, out);
        }
        let length = out.len() - start;
        out.push_str(" us ");
        spaces(7usize.saturating_sub(length), out);
        out.push_str("|  ");
        return;
    }
    // Nearly all are as short.
    let whole = group(micro);
    let (digits, behind) = match micro {
        0..10 => (1, " us   |  "),
        10..100 => (2, " us  |  "),
        _ => (3, " us |  "),
    };
    out.push_str(whole.get(3 - digits..).unwrap_or_default());
    out.push('.');
    three(nanoseconds, out);
    out.push_str(behind);
}

/// Adds a number below a million with six digits.
#[inline]
pub(super) fn six(value: u64, out: &mut String) {
    three(value / 1000, out);
    three(value, out);
}

/// Adds a number, with spaces before it up to a width.
pub(super) fn number(value: u64, width: usize, out: &mut String) {
    let digits = value.checked_ilog10().map_or(1, |log| log as usize + 1);
    spaces(width.saturating_sub(digits), out);
    if value < 1000 {
        out.push_str(group(value).get(3 - digits..).unwrap_or_default());
        return;
    }
    // The highest group without its zeros, then all others.
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
            six(value % 1_000_000, &mut out);
            assert_eq!(out, format!("{:03}{:06}", value % 1000, value % 1_000_000));
            let (micro, rest) = (value / 1000, value % 1000);
            let mut expected = micro.to_string();
            if expected.len() < 7 {
                expected += &format!(".{rest:03}");
            }
            let spaces = " ".repeat(7_usize.saturating_sub(expected.len()));
            let mut out = String::new();
            duration(value, &mut out);
            assert_eq!(out, format!("{expected} us {spaces}|  "));
        }
    }
}
