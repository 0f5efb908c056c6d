//! Hooks in programs: which calls of them count, and no-ops in other places than they should be.

use kymo_symbols::{Instrumentation, PATCHABLE};

use crate::workshop::Workshop;

/// The recorder's own functions call its hooks, too, in programs of which nothing is instrumented.
const SOURCE: &str = r#"
__attribute__((noinline, noclone)) void __cyg_profile_func_enter(void *function, void *site) { __asm__ volatile("" : : "r"(function), "r"(site)); }
void enter(void *function) __asm__("_ZN18kymo_arch_cortex_m5enter17hb695dfda73b04a5bE");
void enter(void *function) { __cyg_profile_func_enter(function, 0); }
void newer(void *function) __asm__("_RNvCs1bXmLDDxPSU_4kymo5enter");
void newer(void *function) { __cyg_profile_func_enter(function, 0); }
void kymo_pg_enter(void *function) { __cyg_profile_func_enter(function, 0); }
#ifdef OTHERS
void own(void *function) __asm__("_ZN9kymo_like5enter17hb695dfda73b04a5bE");
void own(void *function) { __cyg_profile_func_enter(function, 0); }
void kymo_demonstration(void *function) { __cyg_profile_func_enter(function, 0); }
#endif
int main(void) { return 0; }
"#;

fn read(options: &[&str]) -> Option<Instrumentation> {
    let workshop = Workshop::new(&[("source.c", SOURCE)]);
    // Functions of one content would become one, and calls at their ends short jumps.
    let usual = [
        "-O2",
        "-fno-ipa-icf",
        "-fno-optimize-sibling-calls",
        "source.c",
        "-o",
        "program",
    ];
    workshop.run("gcc", &[options, &usual].concat())?;
    let data = std::fs::read(workshop.path("program")).expect("the program");
    Some(Instrumentation::of(&data).expect("a program"))
}

#[test]
fn calls_by_the_recorder_itself_do_not_count() {
    for (options, expected) in [(&[][..], 0), (&["-DOTHERS"][..], 2)] {
        let Some(file) = read(options) else { return };
        let hook = file.hooks.first().expect("a hook");
        assert_eq!(hook.name, "__cyg_profile_func_enter");
        let calls = hook.calls.expect("calls are known");
        assert_eq!((calls.sites, calls.functions), (expected, expected));
    }
}

/// Static programs of 32 and 64 bits: firmware, and programs for Linux, also without names.
#[test]
fn programs_for_linux_are_no_firmware() {
    let bare = &["-nostdlib", "-static", "-ffreestanding", "-Wl,--entry=main"][..];
    for (compiler, options, expected) in [
        ("powerpc-linux-gnu-gcc", &["-static"][..], true),
        ("powerpc-linux-gnu-gcc", &["-static", "-s"], true),
        ("powerpc-linux-gnu-gcc", bare, false),
        ("aarch64-linux-gnu-gcc", &["-static", "-s"], true),
        ("aarch64-linux-gnu-gcc", bare, false),
        ("arm-none-eabi-gcc", bare, false),
        ("gcc", &["-static"], true),
    ] {
        let workshop = Workshop::new(&[("source.c", "int main(void) { return 0; }")]);
        let usual = ["source.c", "-o", "program"];
        if workshop
            .run(compiler, &[options, &usual].concat())
            .is_none()
        {
            continue;
        }
        let data = std::fs::read(workshop.path("program")).expect("the program");
        let file = Instrumentation::of(&data).expect("a program");
        assert_eq!(file.runs_on_linux, expected, "{compiler} {options:?}");
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn no_ops_in_other_places_are_counted() {
    let all = 5;
    for (numbers, expected) in [("7,5", 0), ("7", all), ("8,6", all), ("2", all), ("5,5", 0)] {
        for more in [&[][..], &["-no-pie"], &["-fcf-protection=full"]] {
            let option = format!("-fpatchable-function-entry={numbers}");
            let Some(file) = read(&[&[&*option][..], more].concat()) else {
                return;
            };
            let sites = file.hooks.iter().find(|hook| hook.name == PATCHABLE);
            let sites = sites.and_then(|hook| hook.calls).expect("no-ops");
            assert_eq!(sites.sites, all, "{option} {more:?}");
            assert_eq!(file.misplaced, expected, "{option} {more:?}");
        }
    }
}
