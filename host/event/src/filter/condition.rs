//! Comparisons of fields with values: `ret < 0`, `comm == "idle"`, `state ~ RUN*`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use super::{Operand, Pattern, Subject};

/// Relation between a field and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `==` or `=`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    AtMost,
    /// `>`.
    Greater,
    /// `>=`.
    AtLeast,
    /// `~`: the text or label matches the value, a [`Pattern`].
    Like,
    /// `!~`: it does not match.
    Unlike,
}

/// Relation signs. Where one is a prefix of another, the longer one comes first.
const SIGNS: [(&str, Relation); 9] = [
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("!~", Relation::Unlike),
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Less),
    (">", Relation::Greater),
    ("=", Relation::Equal),
    ("~", Relation::Like),
];

/// The value that a field is compared with. Its spelling decides whether it is also a number; the text itself is
/// compared with text fields and labels.
#[derive(Clone, Debug, PartialEq)]
struct Constant {
    text: String,
    /// The number, unless the text was quoted or is not a number.
    number: Option<Number>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Integer(i128),
    Real(f64),
}

/// Comparison of a field with a value.
///
/// It is false for events without the field, whatever the relation. Text and a number are unequal, and neither is
/// greater. Text is ordered by code points.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Path of the field: names separated by dots.
    field: String,
    relation: Relation,
    constant: Constant,
}

/// Reason why a text is not a [`Condition`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConditionError {
    /// It has no relation.
    NoRelation {
        /// The whole text.
        found: String,
    },
    /// The field before the relation or the value after it is missing.
    Incomplete {
        /// The missing part.
        expected: &'static str,
        /// The whole text.
        found: String,
    },
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRelation { found } => write!(
                f,
                "expected FIELD OP VALUE, with OP one of == != < <= > >= ~ !~, found {found:?}"
            ),
            Self::Incomplete { expected, found } => {
                write!(f, "expected {expected}, found {found:?}")
            }
        }
    }
}

impl std::error::Error for ConditionError {}

impl FromStr for Condition {
    type Err = ConditionError;

    /// Parses `FIELD OP VALUE`. A value in double or single quotes is text, even if it looks like a number.
    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let signs = SIGNS.iter().enumerate();
        let first = signs
            .filter_map(|(rank, (sign, relation))| Some((text.find(sign)?, rank, sign, *relation)))
            .min_by_key(|(place, rank, ..)| (*place, *rank));
        let Some((place, _, sign, relation)) = first else {
            let found = text.to_owned();
            return Err(ConditionError::NoRelation { found });
        };
        let (field, rest) = text.split_at(place);
        let value = rest.get(sign.len()..).unwrap_or_default().trim();
        let field = field.trim();
        let missing = |expected| {
            let found = text.to_owned();
            Err(ConditionError::Incomplete { expected, found })
        };
        if field.is_empty() {
            return missing("the name of a field before the relation");
        }
        if value.is_empty() {
            return missing("a value behind the relation");
        }
        Ok(Self {
            field: field.to_owned(),
            relation,
            constant: Constant::new(value),
        })
    }
}

impl Constant {
    fn new(text: &str) -> Self {
        let quoted = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
        if let Some(text) = quoted('"').or_else(|| quoted('\'')) {
            return Self {
                text: text.to_owned(),
                number: None,
            };
        }
        let real = || text.parse().ok().map(Number::Real);
        Self {
            text: text.to_owned(),
            number: integer(text).map(Number::Integer).or_else(real),
        }
    }

    /// Orders a field's value relative to this constant.
    fn compare(&self, value: &Operand<'_>) -> Option<Ordering> {
        match value {
            Operand::Integer(value) => self.compare_number(*value),
            Operand::Label(label, value) => match self.number {
                Some(_) => self.compare_number(*value),
                None => Some((*label).cmp(self.text.as_str())),
            },
            Operand::Real(value) => match self.number? {
                Number::Integer(number) => value.partial_cmp(&(number as f64)),
                Number::Real(number) => value.partial_cmp(&number),
            },
            Operand::Bool(value) => match self.text.as_str() {
                "true" | "1" => Some(value.cmp(&true)),
                "false" | "0" => Some(value.cmp(&false)),
                _ => None,
            },
            Operand::Text(text) => Some((**text).cmp(self.text.as_str())),
        }
    }

    fn compare_number(&self, value: i128) -> Option<Ordering> {
        match self.number? {
            Number::Integer(number) => Some(value.cmp(&number)),
            Number::Real(number) => (value as f64).partial_cmp(&number),
        }
    }
}

/// Parses a decimal number, or a hexadecimal one with `0x`, with an optional minus sign.
fn integer(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = match digits.strip_prefix("0x") {
        Some(digits) if !digits.starts_with(['+', '-']) => i128::from_str_radix(digits, 16),
        Some(_) => return None,
        None => digits.parse::<i128>(),
    };
    number.ok()?.checked_mul(sign)
}

impl Condition {
    /// The path of its field.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Whether it holds for an event.
    #[must_use]
    pub fn holds<S: Subject + ?Sized>(&self, subject: &S) -> bool {
        let Some(value) = subject.field(&self.field) else {
            return false;
        };
        if matches!(self.relation, Relation::Like | Relation::Unlike) {
            let pattern = Pattern::new(self.constant.text.as_str());
            let text: &str = match &value {
                Operand::Text(text) => text,
                Operand::Label(label, _) => label,
                Operand::Integer(_) | Operand::Real(_) | Operand::Bool(_) => return false,
            };
            return pattern.matches(text) == (self.relation == Relation::Like);
        }
        let Some(order) = self.constant.compare(&value) else {
            return self.relation == Relation::Unequal;
        };
        match self.relation {
            Relation::Equal => order.is_eq(),
            Relation::Unequal => order.is_ne(),
            Relation::Less => order.is_lt(),
            Relation::AtMost => order.is_le(),
            Relation::Greater => order.is_gt(),
            Relation::AtLeast => order.is_ge(),
            Relation::Like | Relation::Unlike => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::{Cpu, Tid, Time};

    /// An event with one field, `x`.
    struct One(Operand<'static>);

    impl Subject for One {
        fn time(&self) -> Option<Time> {
            None
        }
        fn name(&self) -> &str {
            "one"
        }
        fn cpu(&self) -> Option<Cpu> {
            None
        }
        fn thread(&self) -> Option<Tid> {
            None
        }
        fn thread_name(&self) -> Option<Cow<'_, str>> {
            None
        }
        fn field(&self, path: &str) -> Option<Operand<'_>> {
            (path == "x").then(|| self.0.clone())
        }
    }

    #[test]
    fn comparisons_go_by_what_the_field_is() {
        let integer = |number| Operand::Integer(number);
        let text = |text| Operand::Text(Cow::Borrowed(text));
        let cases = [
            (integer(-5), "x < 0", true),
            (integer(-5), "x<-4", true),
            (integer(16), "x == 0x10", true),
            (integer(16), "x = 16", true),
            (integer(16), "x >= 16.5", false),
            (
                integer(i128::from(u64::MAX)),
                "x > 18446744073709551614",
                true,
            ),
            (integer(1), "x == one", false),
            (integer(1), "x != one", true),
            (integer(1), "x < one", false),
            (integer(1), "y != 2", false),
            (Operand::Real(0.5), "x <= 0.5", true),
            (Operand::Real(0.5), "x > 0", true),
            (Operand::Real(f64::NAN), "x != 0", true),
            (Operand::Bool(true), "x == true", true),
            (Operand::Bool(false), "x != 1", true),
            (text("idle"), "x == idle", true),
            (text("idle"), "x == \"idle\"", true),
            (text("idle"), "x == 'idle'", true),
            (text("it's"), "x == it's", true),
            (text("7"), "x == 7", true),
            (text("idle"), "x ~ i*e", true),
            (text("idle"), "x !~ i*e", false),
            (text("main"), "x !~ 'i*e'", true),
            (text("a<b"), "x == a<b", true),
            (Operand::Label("RUN", 3), "x == RUN", true),
            (Operand::Label("RUN", 3), "x == 3", true),
            (Operand::Label("3", 4), "x == \"3\"", true),
            (Operand::Label("RUN", 3), "x ~ R?N", true),
            (integer(3), "x ~ 3", false),
        ];
        for (value, condition, expected) in cases {
            let parsed: Condition = condition.parse().unwrap();
            assert_eq!(
                parsed.holds(&One(value.clone())),
                expected,
                "{value:?} {condition}"
            );
        }
    }

    #[test]
    fn what_is_no_comparison_is_refused_with_a_reason() {
        for text in ["x", "", "x 5", "< 5", "x <", "x == "] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.starts_with("expected "), "{text}: {error}");
        }
    }
}
