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

/// Adds a number, filled to a width.
pub(super) fn number(value: u64, width: usize, fill: char, out: &mut String) {
    let (mut digits, mut at, mut left) = ([0u8; 20], 20, value);
    loop {
        at -= 1;
        // 20 digits are enough for 64 bits.
        if let Some(digit) = digits.get_mut(at) {
            *digit = b'0' + (left % 10) as u8;
        }
        left /= 10;
        if left == 0 || at == 0 {
            break;
        }
    }
    for _ in 20 - at..width {
        out.push(fill);
    }
    let digits = digits.get(at..).unwrap_or_default();
    out.push_str(std::str::from_utf8(digits).unwrap_or_default());
}
