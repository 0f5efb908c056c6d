//! Detection of programs that call `longjmp`, linked with and without wrappers that record the jumps.

use crate::workshop::Workshop;
use kymo_symbols::{Symbols, UnmarkedJumps};

/// Linker options that wrap these functions.
fn wrap(functions: &[&str]) -> Vec<String> {
    let options = functions
        .iter()
        .map(|function| format!("-Wl,--wrap={function},-u,{function}"));
    options.collect()
}

/// A program that calls `longjmp` if `JUMPS` is defined.
const PROGRAM: &str = r"
#include <setjmp.h>
void hook(void);
jmp_buf place;
int main(void)
{
    hook();
#ifdef JUMPS
    if (setjmp(place) == 0)
        longjmp(place, 1);
#endif
    return 0;
}
";

/// Wrappers in the same object as a hook that every program needs, as in `libkymo.a`: they are linked unless the linker
/// removes unused sections.
const WRAPPERS_HERE: &str = r#"
#define WRAP(name)                                               \
    __asm__(".weak __real_" name "\n"                            \
            ".pushsection .text.__wrap_" name ",\"ax\",@progbits\n" \
            ".globl __wrap_" name "\n"                           \
            ".type __wrap_" name ",@function\n"                  \
            "__wrap_" name ": jmp *__real_" name "@GOTPCREL(%rip)\n" \
            ".size __wrap_" name ", . - __wrap_" name "\n"       \
            ".popsection\n")
WRAP("setjmp");
WRAP("_setjmp");
WRAP("longjmp");
WRAP("siglongjmp");
void hook(void) {}
"#;

/// The same wrappers for Thumb.
const WRAPPERS_THUMB: &str = r#"
#define WRAP(name)                                               \
    __asm__(".weak __real_" name "\n"                            \
            ".pushsection .text.__wrap_" name ",\"ax\",%progbits\n" \
            ".globl __wrap_" name "\n"                           \
            ".type __wrap_" name ",%function\n"                  \
            ".balign 4\n"                                        \
            ".thumb_func\n"                                      \
            "__wrap_" name ": ldr r3, 1f\n"                      \
            "bx r3\n"                                            \
            ".balign 4\n"                                        \
            "1: .word __real_" name "\n"                         \
            ".size __wrap_" name ", . - __wrap_" name "\n"       \
            ".popsection\n")
WRAP("setjmp");
WRAP("longjmp");
void hook(void) {}
"#;

/// The program, built by `tool`; `None` without that tool.
fn build(tool: &str, wrappers: &str, options: &[&str]) -> Option<Symbols> {
    let workshop = Workshop::new(&[("program.c", PROGRAM), ("wrappers.c", wrappers)]);
    let files = ["-O1", "-ffunction-sections", "program.c", "wrappers.c"];
    workshop.run(tool, &[&files, options, &["-o", "program"]].concat())?;
    Some(workshop.symbols("program"))
}

/// Builds with and without jumps, with and without wrappers, and checks what the symbols report of each.
fn check(tool: &str, wrappers: &str, options: &[&str], places: &[&str], jumps: &[&str]) {
    let marks = wrap(&[places, jumps].concat());
    let marks: Vec<&str> = marks.iter().map(String::as_str).collect();
    for garbage in [&[][..], &["-Wl,--gc-sections"]] {
        let built =
            |more: &[&[&str]]| build(tool, wrappers, &[options, garbage, &more.concat()].concat());
        let what = format!("{tool} {options:?} {garbage:?}");
        let Some(unmarked) = built(&[&["-DJUMPS"]]) else {
            return;
        };
        let unmarked = unmarked
            .unmarked_jumps()
            .unwrap_or_else(|| panic!("{what}"));
        assert!(
            unmarked.functions().contains(&"longjmp"),
            "{what}: {unmarked:?}"
        );
        let advice = unmarked.options().expect("there are wrappers");
        for function in [places, jumps].concat() {
            let option = format!(",--wrap={function},-u,{function}");
            assert!(advice.contains(&option), "{what}: {advice}");
        }
        for (marked, what_else) in [
            (built(&[&["-DJUMPS"], &marks]), "marked"),
            (built(&[&marks]), "marked, and does not jump"),
            (built(&[]), "does not jump"),
        ] {
            let marked = marked.expect("the tool is there");
            assert_eq!(marked.unmarked_jumps(), None, "{what}: {what_else}");
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn programs_of_this_machine() {
    for linked in ["-pie", "-no-pie", "-static"] {
        check("gcc", WRAPPERS_HERE, &[linked], &["_setjmp"], &["longjmp"]);
    }
}

#[test]
fn firmware() {
    let options = [
        "-mcpu=cortex-m3",
        "-mthumb",
        "--specs=nosys.specs",
        "-Wl,--no-warnings",
    ];
    check(
        "arm-none-eabi-gcc",
        WRAPPERS_THUMB,
        &options,
        &["setjmp"],
        &["longjmp"],
    );
}

/// The linker's names by which a static C library calls the same function are not jumps of the program. A program
/// without a symbol table reports nothing.
#[test]
#[cfg(target_arch = "x86_64")]
fn what_cannot_be_told_is_not_warned_of() {
    let Some(stripped) = build("gcc", WRAPPERS_HERE, &["-DJUMPS", "-s"]) else {
        return;
    };
    assert_eq!(stripped.unmarked_jumps(), None::<&UnmarkedJumps>);
    let listed = Symbols::from_text("00001000 T longjmp\n00002000 T main\n").expect("a list");
    assert_eq!(listed.unmarked_jumps(), None);
}
