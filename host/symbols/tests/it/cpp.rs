//! C++ names, compared with the output of `c++filt` of binutils 2.40.
//!
//! `cpp.txt` has mangled names with the output of `c++filt`: from a program with the names that C++20 allows (concepts,
//! lambdas in templates, values of classes as arguments, folds, expressions in types), and from system libraries.

use kymo_symbols::demangle;

#[test]
fn names_are_written_as_cxxfilt_writes_them() {
    let lines = include_str!("cpp.txt").lines();
    let pairs = lines.filter_map(|line| line.split_once(' '));
    let wrong: Vec<String> = pairs
        .clone()
        .filter(|(mangled, expected)| demangle(mangled) != *expected)
        .map(|(mangled, expected)| format!("{mangled}\n  {expected}\n  {}\n", demangle(mangled)))
        .collect();
    assert!(pairs.count() > 500);
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

/// Names that `c++filt` confuses: it prints the argument of another template, or a part of the function instead of a
/// part of a type. Our output is as in the source.
#[test]
fn names_that_cxxfilt_confuses_are_as_in_the_source() {
    let confused = [
        // The parameter is the template's own; c++filt prints the argument of `call_once` instead.
        (
            "_ZNSt9once_flag18_Prepare_executionC1IZSt9call_onceIMSt6threadFvvEJPS3_EEvRS_OT_DpOT0_EUlvE_EERS8_",
            "std::once_flag::_Prepare_execution::_Prepare_execution<std::call_once<void (std::thread::*)(), \
             std::thread*>(std::once_flag&, void (std::thread::*&&)(), std::thread*&&)::{lambda()#1}>\
             (std::call_once<void (std::thread::*)(), std::thread*>(std::once_flag&, \
             void (std::thread::*&&)(), std::thread*&&)::{lambda()#1}&)",
        ),
        // c++filt prints the function's name within the array's type.
        (
            "_ZN3app3strIiEEDTplfp_tlA4_KcLS1_97ELS1_98ELS1_99EEET_",
            "decltype ({parm#1}+char const [4]{(char const)97, (char const)98, (char const)99}) \
             app::str<int>(int)",
        ),
        // c++filt names the destructor like the enclosing class.
        (
            "_ZN6icu_726number4impl10MicroPropsUt_D1Ev",
            "icu_72::number::impl::MicroProps::{unnamed type#1}::~{unnamed type#1}()",
        ),
    ];
    for (mangled, expected) in confused {
        assert_eq!(demangle(mangled), expected);
    }
}

#[test]
fn copies_of_functions_say_so() {
    assert_eq!(
        demangle("_Z3foov.constprop.0"),
        "foo() [clone .constprop.0]"
    );
    assert_eq!(
        demangle("_Z3foov.part.0.cold"),
        "foo() [clone .part.0] [clone .cold]"
    );
}

/// Names of modules, and of types that few compilers emit so far.
#[test]
fn newer_names_are_known() {
    for (mangled, expected) in [
        ("_ZW3foo3barv", "bar@foo()"),
        ("_ZW3fooW4part3barv", "bar@foo.part()"),
        ("_Z1fDF16b", "f(std::bfloat16_t)"),
        ("_Z1fDF16_DF32x", "f(_Float16, _Float32x)"),
        ("_Z1fDuDsDi", "f(char8_t, char16_t, char32_t)"),
        ("_ZN1SssERKS_", "S::operator<=>(S const&)"),
    ] {
        assert_eq!(demangle(mangled), expected);
    }
}

/// Truncated names, and names with changed bytes: the result does not matter, but it must arrive quickly and without a
/// panic.
#[test]
fn damaged_names_are_no_trouble() {
    let names: Vec<&str> = include_str!("cpp.txt")
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    for name in names.iter().step_by(3) {
        for end in 0..name.len() {
            let _ = demangle(&name[..end]);
        }
        for at in 2..name.len() {
            for byte in [b'S', b'T', b'_', b'E', b'I', b'J', b'0', b'D', b'p'] {
                let mut other = name.as_bytes().to_vec();
                other[at] = byte;
                let other = String::from_utf8(other).unwrap();
                assert!(demangle(&other).len() <= 16 * 1024);
            }
        }
    }
}
