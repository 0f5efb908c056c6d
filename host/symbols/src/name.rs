//! Names as people write them, out of names as linkers see them.

use std::borrow::Cow;

use crate::cpp;

/// The ways in which someone may write a function's name: as it is shown, without its parameters, without
/// what the compiler added to a copy, and without the path to it.
pub fn spellings(name: &str) -> [&str; 4] {
    let bare = without_parameters(name);
    [name, bare, without_clone(name), last_part(bare)]
}

/// A name of Rust (legacy and v0, without the hash) or C++ as the source has it; any other name as
/// it is. A mangled name that says nothing (a hash alone) stays as it is too: nothing is no name.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        return some_or_raw(format!("{name:#}"), raw);
    }
    match cpp::demangle(raw) {
        Some(name) => some_or_raw(name, raw),
        None => Cow::Borrowed(raw),
    }
}

/// The demangled name if there is something to see in it, else the raw one.
fn some_or_raw(name: String, raw: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(name)
    }
}

/// A name without what GCC appends to those of specialized copies: `f` of `f.constprop.0` and `f() [clone .cold]`.
pub(crate) fn without_clone(name: &str) -> &str {
    let copies = [" [clone ", ".constprop.", ".isra.", ".part.", ".lto_priv."];
    let ends = copies.iter().filter_map(|copy| name.find(copy));
    name.get(..ends.min().unwrap_or(name.len())).unwrap_or(name)
}

/// How a C++ namespace without a name reads.
const UNNAMED: &str = "(anonymous namespace)";

/// A demangled name without its parameters, template arguments and what follows them:
/// `ns::f(int) const` is `ns::f`, `<T as Trait>::f` stays whole.
pub(crate) fn without_parameters(name: &str) -> &str {
    let start = behind_operator(name).unwrap_or(0);
    let mut angles = 0i32;
    for (i, c) in name.char_indices() {
        match c {
            _ if i < start => {}
            '<' => angles += 1,
            '>' if !name[..i].ends_with('-') => angles -= 1,
            '(' if angles <= 0 && !name[i..].starts_with(UNNAMED) => {
                return name[..i].trim_end();
            }
            _ => {}
        }
    }
    name
}

/// Where the signs of an operator's name end, which are no parentheses and brackets of types: in
/// `A::operator()(int)` before the second parenthesis.
fn behind_operator(name: &str) -> Option<usize> {
    let signs = name.find("operator")? + "operator".len();
    let rest = name.get(signs..)?;
    if rest.starts_with("()") {
        return Some(signs + 2);
    }
    let other = rest
        .bytes()
        .take_while(|sign| b"<>=!+-*/%^&|~,[]".contains(sign));
    Some(signs + other.count())
}

/// The last part of a path: `f` of `ns::f`.
pub(crate) fn last_part(name: &str) -> &str {
    let mut angles = 0i32;
    let mut last = 0;
    for (i, c) in name.char_indices() {
        match c {
            '<' => angles += 1,
            '>' if !name[..i].ends_with('-') => angles -= 1,
            ':' if angles <= 0 && name[..i].ends_with(':') => last = i + 1,
            _ => {}
        }
    }
    &name[last..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_in_the_source() {
        assert_eq!(
            demangle("_ZN2ns3Foo3barEiPKc"),
            "ns::Foo::bar(int, char const*)"
        );
        assert_eq!(
            demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE"),
            "core::fmt::Formatter::pad"
        );
        assert_eq!(demangle("_RNvCs15kBYyAo9fc_7mycrate3foo"), "mycrate::foo");
        for plain in [
            "main",
            "",
            "_Z",
            "_ZZZZ",
            "$t",
            "luaV_execute.constprop.0",
            "_ZN17h0123456789abcdefE",
        ] {
            assert_eq!(demangle(plain), plain);
        }
        let copy = demangle("_Z3foov.constprop.0");
        assert_eq!(without_clone(&copy), "foo()");
    }

    #[test]
    fn names_that_would_fill_memory_stay_mangled() {
        // Each pair is made of two of the one before it.
        let bomb = |pairs: u32| {
            let mut name = "_Z1fSt4pairIiiE".to_owned();
            for pair in 0..pairs {
                let last = char::from_digit(pair, 36)
                    .unwrap_or('0')
                    .to_ascii_uppercase();
                name += &format!("S_IS{last}_S{last}_E");
            }
            name
        };
        let length = |pairs| demangle(&bomb(pairs)).len();
        assert!(length(4) - length(3) > 2 * (length(2) - length(1)));
        assert_eq!(demangle(&bomb(30)), bomb(30));
        let deep = format!("_Z1f{}i", "P".repeat(10_000));
        assert_eq!(demangle(&deep), deep);
    }

    #[test]
    fn parts_of_names() {
        assert_eq!(without_parameters("ns::f(int) const"), "ns::f");
        assert_eq!(without_parameters("A<(B)1>::f(int)"), "A<(B)1>::f");
        assert_eq!(without_parameters("f::operator()(int)"), "f::operator()");
        assert_eq!(without_parameters("main"), "main");
        assert_eq!(without_parameters("A::operator<(A const&)"), "A::operator<");
        assert_eq!(without_parameters("my_operator(int)"), "my_operator");
        assert_eq!(without_clone("f.constprop.0"), "f");
        assert_eq!(without_clone("f.part.0.constprop.1"), "f");
        assert_eq!(without_clone("f.cold"), "f.cold");
        for unnamed in ["(anonymous namespace)::f", "a::(anonymous namespace)::f"] {
            assert_eq!(without_parameters(unnamed), unnamed);
            assert_eq!(without_parameters(&format!("{unnamed}(int)")), unnamed);
        }
        assert_eq!(last_part("a::b::c"), "c");
        assert_eq!(last_part("<a::B as c::D>::e"), "e");
        assert_eq!(last_part("main"), "main");
        assert_eq!(last_part("a::"), "");
    }
}
