//! Operators by their codes.

/// Relation of an operator to its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Unary,
    /// `++` and `--`: postfix, unless a `_` follows.
    Step,
    /// Before a type.
    OfType,
    Binary,
    /// Valid only as a function's name.
    Name,
}

/// The operators: code, sign, kind.
const OPERATORS: &[(&str, &str, Kind)] = &[
    ("aN", "&=", Kind::Binary),
    ("aS", "=", Kind::Binary),
    ("aa", "&&", Kind::Binary),
    ("ad", "&", Kind::Unary),
    ("an", "&", Kind::Binary),
    ("at", "alignof ", Kind::OfType),
    ("aw", " co_await", Kind::Unary),
    ("az", "alignof ", Kind::Unary),
    ("cl", "()", Kind::Name),
    ("cm", ",", Kind::Binary),
    ("co", "~", Kind::Unary),
    ("dV", "/=", Kind::Binary),
    ("da", " delete[]", Kind::Unary),
    ("de", "*", Kind::Unary),
    ("dl", " delete", Kind::Unary),
    ("ds", ".*", Kind::Binary),
    ("dv", "/", Kind::Binary),
    ("eO", "^=", Kind::Binary),
    ("eo", "^", Kind::Binary),
    ("eq", "==", Kind::Binary),
    ("ge", ">=", Kind::Binary),
    ("gt", ">", Kind::Binary),
    ("ix", "[]", Kind::Name),
    ("lS", "<<=", Kind::Binary),
    ("le", "<=", Kind::Binary),
    ("ls", "<<", Kind::Binary),
    ("lt", "<", Kind::Binary),
    ("mI", "-=", Kind::Binary),
    ("mL", "*=", Kind::Binary),
    ("mi", "-", Kind::Binary),
    ("ml", "*", Kind::Binary),
    ("mm", "--", Kind::Step),
    ("na", " new[]", Kind::Name),
    ("ne", "!=", Kind::Binary),
    ("ng", "-", Kind::Unary),
    ("nt", "!", Kind::Unary),
    ("nw", " new", Kind::Name),
    ("nx", "noexcept ", Kind::Unary),
    ("oR", "|=", Kind::Binary),
    ("oo", "||", Kind::Binary),
    ("or", "|", Kind::Binary),
    ("pL", "+=", Kind::Binary),
    ("pl", "+", Kind::Binary),
    ("pm", "->*", Kind::Binary),
    ("pp", "++", Kind::Step),
    ("ps", "+", Kind::Unary),
    ("pt", "->", Kind::Name),
    ("qu", "?", Kind::Name),
    ("rM", "%=", Kind::Binary),
    ("rS", ">>=", Kind::Binary),
    ("rm", "%", Kind::Binary),
    ("rs", ">>", Kind::Binary),
    ("ss", "<=>", Kind::Binary),
    ("st", "sizeof ", Kind::OfType),
    ("sz", "sizeof ", Kind::Unary),
    ("te", "typeid ", Kind::Unary),
    ("ti", "typeid ", Kind::OfType),
    ("tw", "throw ", Kind::Unary),
];

/// Finds the operator with this code.
pub(super) fn find(code: &str) -> Option<(&'static str, Kind)> {
    let at = OPERATORS.binary_search_by(|it| it.0.cmp(code)).ok()?;
    OPERATORS.get(at).map(|it| (it.1, it.2))
}

/// Finds the named cast with this code.
pub(super) fn cast(code: &str) -> Option<&'static str> {
    Some(match code {
        "cc" => "const_cast",
        "dc" => "dynamic_cast",
        "rc" => "reinterpret_cast",
        "sc" => "static_cast",
        _ => return None,
    })
}
