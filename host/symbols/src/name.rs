//! Demangling and shortening of function names.

use std::borrow::Cow;

use crate::cpp;

/// Spellings under which users may refer to a function: the shown name, then without parameters, without a
/// compiler-generated suffix, and without its path.
pub fn spellings(name: &str) -> [&str; 4] {
    let bare = without_parameters(name);
    [name, bare, without_clone(name), last_part(bare)]
}

/// Demangles a name of Rust (legacy and v0, without the hash) or C++; returns any other name unchanged. A mangled name
/// without content (only a hash) is also returned unchanged, since an empty name is useless.
pub fn demangle(raw: &str) -> Cow<'_, str> {
    if let Ok(name) = rustc_demangle::try_demangle(raw) {
        return some_or_raw(format!("{name:#}"), raw);
    }
    match cpp::demangle(raw) {
        Some(name) => some_or_raw(name, raw),
        None => Cow::Borrowed(raw),
    }
}

/// The demangled name if it has visible characters, else the raw one.
fn some_or_raw(name: String, raw: &str) -> Cow<'_, str> {
    if name.trim().is_empty() {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(name)
    }
}

/// Removes the suffix that GCC appends to specialized copies: `f` for `f.constprop.0` and `f() [clone .cold]`.
pub(crate) fn without_clone(name: &str) -> &str {
    let copies = [" [clone ", ".constprop.", ".isra.", ".part.", ".lto_priv."];
    let ends = copies.iter().filter_map(|copy| name.find(copy));
    name.get(..ends.min().unwrap_or(name.len())).unwrap_or(name)
}

/// Name of an unnamed C++ namespace.
const UNNAMED: &str = "(anonymous namespace)";

/// Removes parameters, template arguments and anything after them: `ns::f(int) const` becomes `ns::f`; `<T as
/// Trait>::f` is unchanged.
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

/// End of an operator's sign, whose parentheses and brackets are not those of types: in `A::operator()(int)` before the
/// second opening parenthesis.
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

/// The last part of a path: `f` for `ns::f`.
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
        // Each pair consists of two of the previous one.
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
