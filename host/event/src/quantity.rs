//! Values of counters.

use std::fmt;

use crate::Value;

/// A number as its source recorded it. Integers keep all of their bits, which an `f64` would not beyond 2^53.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A nonnegative integer.
    Unsigned(u64),
    /// A negative integer, or one that its source records as signed.
    Signed(i64),
    /// A real number.
    Real(f64),
}

impl Quantity {
    /// Parses a decimal number: a 64-bit integer, or else a real number (`1.5`, `-2e3`, `nan`, `inf`; integers beyond
    /// 64 bits are rounded). `None` if the text is not a number.
    pub fn parse(text: &str) -> Option<Self> {
        let unsigned = text.parse().ok().map(Self::Unsigned);
        let signed = || text.parse().ok().map(Self::Signed);
        let real = || text.parse().ok().map(Self::Real);
        unsigned.or_else(signed).or_else(real)
    }

    /// The nearest real number.
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(value) => value as f64,
            Self::Signed(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// The value as a signed 64-bit integer, if it is an integer in that range.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Unsigned(value) => value.try_into().ok(),
            Self::Signed(value) => Some(value),
            Self::Real(_) => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
        }
    }
}

impl From<u64> for Quantity {
    fn from(value: u64) -> Self {
        Self::Unsigned(value)
    }
}

impl From<i64> for Quantity {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<f64> for Quantity {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<Quantity> for Value {
    fn from(value: Quantity) -> Self {
        match value {
            Quantity::Unsigned(value) => Self::Unsigned(value),
            Quantity::Signed(value) => Self::Signed(value),
            Quantity::Real(value) => Self::Real(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_bits_and_other_numbers_are_real() {
        for (text, expected) in [
            ("5", Some(Quantity::Unsigned(5))),
            ("+16", Some(Quantity::Unsigned(16))),
            ("-7", Some(Quantity::Signed(-7))),
            ("18446744073709551615", Some(Quantity::Unsigned(u64::MAX))),
            ("-9223372036854775808", Some(Quantity::Signed(i64::MIN))),
            ("9007199254740993", Some(Quantity::Unsigned((1 << 53) + 1))),
            ("1.5", Some(Quantity::Real(1.5))),
            ("-0.25e3", Some(Quantity::Real(-250.0))),
            ("18446744073709551616", Some(Quantity::Real(2f64.powi(64)))),
            ("inf", Some(Quantity::Real(f64::INFINITY))),
            ("0x10", None),
            ("1_000", None),
            ("", None),
        ] {
            assert_eq!(Quantity::parse(text), expected, "{text}");
        }
        assert!(matches!(Quantity::parse("nan"), Some(Quantity::Real(it)) if it.is_nan()));
        assert_eq!(Quantity::Unsigned(u64::MAX).as_i64(), None);
        assert_eq!(
            Quantity::Unsigned(u64::MAX).to_string(),
            "18446744073709551615"
        );
    }
}
