//! Durations and times of fixed width, for columns.
//!
//! A duration has a unit close to its size and three decimals: ` 12.345 us`. There is no smaller unit, because in
//! microseconds the decimals are the nanoseconds, and ` 0.800 us` next to ` 1.200 us` is compared at a glance. From a
//! thousand seconds on, whole seconds remain. A value that still does not fit makes its column wider, never wrong.

use std::fmt;

use kymo_event::{Duration, Time, push_number, push_three, three};

use super::unit;

/// The width of a duration: `999.999 us`.
pub const WIDTH: usize = 10;

/// Shows a duration, padded on the left to [`WIDTH`].
///
/// Digits that don't fit are rounded, half up.
#[derive(Clone, Copy, Debug)]
pub struct Human(pub Duration);

impl Human {
    /// Appends the text.
    pub fn push(self, out: &mut String) {
        if let Some(digits) = self.digits() {
            return out.push_str(std::str::from_utf8(&digits).unwrap_or_default());
        }
        if !unit::get().is_time() {
            return push_padded(out, self.0.0, 10);
        }
        push_padded(out, self.rounded(1_000_000_000), 7);
        out.push_str("  s");
    }

    /// The text of a duration below a thousand seconds.
    #[inline]
    pub fn digits(self) -> Option<[u8; WIDTH]> {
        if !unit::get().is_time() {
            return None;
        }
        let ns = self.0.0;
        let (thousandths, unit) = match ns {
            0..1_000_000 => (ns, *b" us"),
            1_000_000..999_999_500 => (self.rounded(1_000), *b" ms"),
            999_999_500..999_999_500_000 => (self.rounded(1_000_000), *b"  s"),
            _ => return None,
        };
        let [a, b, c] = padded(thousandths / 1_000);
        let [d, e, f] = three(thousandths);
        let [x, y, z] = unit;
        Some([a, b, c, b'.', d, e, f, x, y, z])
    }

    /// The number of units, rounded half up.
    const fn rounded(self, unit: u64) -> u64 {
        let ns = self.0.0;
        ns / unit + (ns % unit >= unit / 2) as u64
    }
}

/// A number below a thousand, with spaces on its left.
#[inline]
fn padded(number: u64) -> [u8; 3] {
    let [a, b, c] = three(number);
    match number {
        0..10 => [b' ', b' ', c],
        10..100 => [b' ', b, c],
        _ => [a, b, c],
    }
}

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push(&mut text);
        f.write_str(&text)
    }
}

/// Appends a number, padded with spaces on the left to a width of at most ten.
pub(super) fn push_padded(out: &mut String, number: u64, width: u32) {
    let digits = number.checked_ilog10().unwrap_or(0) + 1;
    let blank = width.saturating_sub(digits) as usize;
    out.push_str("          ".get(..blank).unwrap_or_default());
    push_number(number, out);
}

/// Shows a time as seconds with nine decimals (or, where the trace has no times, as its plain number), padded on the
/// left to 15 columns, which is enough for days. Counts from `origin`.
#[derive(Clone, Copy, Debug)]
pub struct Seconds {
    /// The time to show.
    pub time: Time,
    /// The zero of the scale.
    pub origin: Time,
}

impl Seconds {
    /// The text of most times: those in seconds, not before the origin.
    #[inline]
    pub fn digits(self) -> Option<Digits> {
        let ns = self.time.0.checked_sub(self.origin.0)?;
        if ns < 0 || !unit::get().is_time() {
            return None;
        }
        let ns = ns.unsigned_abs();
        let mut bytes = *b"            .         ";
        for (at, group) in [(13, ns / 1_000_000), (16, ns / 1_000), (19, ns)] {
            bytes[at..at + 3].copy_from_slice(&three(group));
        }
        // At most ten digits of seconds, three at a time from the point on.
        let (mut whole, mut at) = (ns / 1_000_000_000, 9);
        while whole >= 1000 {
            bytes[at..at + 3].copy_from_slice(&three(whole));
            (whole, at) = (whole / 1000, at - 3);
        }
        bytes[at..at + 3].copy_from_slice(&padded(whole));
        let blank = match whole {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        let start = (at + blank).min(7);
        Some(Digits { bytes, start })
    }

    /// Appends the text.
    pub fn push(self, out: &mut String) {
        if let Some(digits) = self.digits() {
            return out.push_str(std::str::from_utf8(digits.as_bytes()).unwrap_or_default());
        }
        let ns = i128::from(self.time.0) - i128::from(self.origin.0);
        // The distance of two 64-bit times fits in an unsigned 64-bit number.
        let apart = ns.unsigned_abs() as u64;
        if !unit::get().is_time() {
            let sign = if ns < 0 { "-" } else { "" };
            return out.push_str(&format!("{:>15}", format!("{sign}{apart}")));
        }
        let (whole, rest) = (apart / 1_000_000_000, apart % 1_000_000_000);
        let sign = if ns < 0 { "-" } else { "" };
        out.push_str(&format!("{:>5}", format!("{sign}{whole}")));
        out.push('.');
        push_three(rest / 1_000_000, out);
        push_three(rest / 1_000, out);
        push_three(rest, out);
    }
}

/// The text of [`Seconds`].
#[derive(Clone, Copy, Debug)]
pub struct Digits {
    bytes: [u8; 22],
    start: usize,
}

impl Digits {
    /// The text: 15 bytes, more from a hundred thousand seconds on.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.push(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_one_width() {
        let shown = |ns| Human(Duration(ns)).to_string();
        assert_eq!(shown(0), "  0.000 us");
        assert_eq!(shown(999), "  0.999 us");
        assert_eq!(shown(1_000), "  1.000 us");
        assert_eq!(shown(999_999), "999.999 us");
        assert_eq!(shown(1_000_000), "  1.000 ms");
        assert_eq!(shown(12_345_678), " 12.346 ms");
        assert_eq!(shown(12_345_499), " 12.345 ms");
        assert_eq!(shown(999_999_499), "999.999 ms");
        assert_eq!(shown(999_999_500), "  1.000  s");
        assert_eq!(shown(999_999_499_999), "999.999  s");
        assert_eq!(shown(999_999_500_000), "   1000  s");
        assert_eq!(shown(61_000_000_000), " 61.000  s");
        assert_eq!(shown(3_600_000_000_000), "   3600  s");
        for ns in [
            0,
            1,
            999,
            1_000,
            54_321,
            999_999,
            1_000_000,
            4_200_000_000_000,
        ] {
            assert_eq!(shown(ns).len(), WIDTH, "{ns}");
        }
        assert_eq!(shown(10_009), " 10.009 us");
        assert_eq!(shown(u64::MAX), "18446744074  s");
    }

    #[test]
    fn seconds_go_to_both_sides_of_zero() {
        let shown = |time, origin| {
            let (time, origin) = (Time(time), Time(origin));
            Seconds { time, origin }.to_string()
        };
        assert_eq!(shown(1_500_000_000, 0), "    1.500000000");
        assert_eq!(shown(-1, 0), "   -0.000000001");
        assert_eq!(shown(5, 5), "    0.000000000");
        assert_eq!(shown(12_003_040_005, 0), "   12.003040005");
        assert_eq!(shown(999_999_999_999, 0), "  999.999999999");
        assert_eq!(shown(1_000_000_000_001, 1), " 1000.000000000");
        assert_eq!(shown(1_000_000_000_001, 0), " 1000.000000001");
        assert_eq!(shown(10_078_526_409_068, 0), "10078.526409068");
        assert_eq!(shown(123_456_000_000_789, 0), "123456.000000789");
        assert_eq!(shown(1_649_361_408_569_332_756, 0), "1649361408.569332756");
        assert_eq!(shown(i64::MAX, 0), "9223372036.854775807");
        assert_eq!(shown(i64::MAX, i64::MIN), "18446744073.709551615");
    }
}
