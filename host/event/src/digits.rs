//! Numbers as text, three digits at a time.
//!
//! A listing has several numbers in each of its millions of lines, and the formatting of the standard library takes
//! most of the time that such a line takes.

const BYTES: [u8; 3000] = {
    let mut bytes = [0; 3000];
    let mut at = 0;
    while at < bytes.len() {
        let divisor = match at % 3 {
            0 => 100,
            1 => 10,
            _ => 1,
        };
        bytes[at] = b'0' + (at / 3 / divisor % 10) as u8;
        at += 1;
    }
    bytes
};

/// The numbers from 0 to 999, three digits each, concatenated.
const GROUPS: &str = match std::str::from_utf8(&BYTES) {
    Ok(text) => text,
    Err(_) => panic!("digits are text"),
};

/// The last three digits of a number.
#[inline]
pub fn three(number: u64) -> [u8; 3] {
    let first = 3 * (number % 1000) as usize;
    let digits = BYTES.get(first..first + 3);
    digits
        .and_then(|digits| digits.first_chunk())
        .copied()
        .unwrap_or_default()
}

/// Appends the last three digits of a number to a text.
#[inline]
pub fn push_three(number: u64, out: &mut String) {
    let first = 3 * (number % 1000) as usize;
    out.push_str(GROUPS.get(first..first + 3).unwrap_or_default());
}

/// Appends a number to a text.
pub fn push_number(number: u64, out: &mut String) {
    if number >= 1000 {
        push_number(number / 1000, out);
        return push_three(number, out);
    }
    let zeros = match number {
        100.. => 0,
        10.. => 1,
        _ => 2,
    };
    let first = 3 * number as usize;
    out.push_str(GROUPS.get(first + zeros..first + 3).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_zeros_in_front() {
        let ends = (0..20).flat_map(|power| [10u64.pow(power) - 1, 10u64.pow(power)]);
        for number in (0..2000).chain(ends).chain([u64::MAX]) {
            let mut text = String::new();
            push_number(number, &mut text);
            assert_eq!(text, number.to_string());
            text.clear();
            push_three(number, &mut text);
            assert_eq!(text, format!("{:03}", number % 1000));
        }
    }
}
