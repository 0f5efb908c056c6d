//! ELF files as compilers write them.

use std::path::Path;

use crate::workshop::{FLAGS, SOURCES, Workshop, line_of, only};
use kymo_event::Addr;
use kymo_symbols::{DebugInfo, ElfError, Error, Location, Program, Symbols};

/// Compiles the sources with more flags; `None` without a compiler.
fn build(tool: &str, more: &[&str]) -> Option<Workshop> {
    Workshop::compiled(tool, &[more])
}

fn file_and_line(location: Option<Location>) -> Option<(String, u32)> {
    let location = location?;
    let name = Path::new(&location.file).file_name()?.to_str()?.to_owned();
    Some((name, location.line?))
}

/// What must hold whatever the processor.
fn check(symbols: &Symbols) {
    let main = only(symbols, "main");
    let size = main.size().expect("compilers tell sizes");
    let at = |address: u64| symbols.function_at(Addr(address)).map(|f| f.name());
    assert_eq!(at(main.address().0), Some("main"));
    assert_eq!(at(main.address().0 + size - 1), Some("main"));
    assert_ne!(at(main.address().0 + size), Some("main"));
    assert_ne!(at(main.address().0.wrapping_sub(1)), Some("main"));
    assert_eq!(at(u64::MAX), None);

    // One of the aliases names the function, both find it.
    let aliased = only(symbols, "aliased");
    assert_eq!(aliased.address(), only(symbols, "__aliased_too").address());
    assert_eq!(only(symbols, "__aliased_too").name(), "aliased");

    // Two functions of one name are distinguished by where they stand.
    let helpers = symbols.by_name("helper");
    let mut places: Vec<_> = helpers
        .iter()
        .filter_map(|f| file_and_line(f.location()))
        .collect();
    places.sort();
    assert_eq!(
        places,
        [
            ("first.c".to_owned(), line_of("int helper")),
            ("second.c".to_owned(), 3)
        ]
    );

    assert_eq!(symbols.debug_info(), DebugInfo::Present);
    assert_eq!(symbols.by_name("no_such_function").len(), 0);
    assert_eq!(
        symbols.similar("aliasd").first().map(String::as_str),
        Some("aliased")
    );
    assert_eq!(symbols.similar("sceond"), ["second"]);

    // In order, each found at its own address, whole.
    let functions: Vec<_> = symbols.functions().collect();
    assert!(functions.is_sorted_by(|a, b| a.address() < b.address()));
    for function in &functions {
        let there = symbols
            .function_at(function.address())
            .expect("it is there");
        assert_eq!(there.raw_name(), function.raw_name());
    }
    for mark in ["_stext", "__executable_start", "_etext", "$t", "$d"] {
        assert!(functions.iter().all(|f| f.name() != mark), "{mark}");
    }
}

#[test]
fn a_program_of_this_machine() {
    let Some(workshop) = build("gcc", &["-no-pie", "-Wl,--build-id=0x1234abcd"]) else {
        return;
    };
    let mut symbols = workshop.symbols("program");
    check(&symbols);
    assert_eq!(symbols.build_id(), Some(&[0x12, 0x34, 0xab, 0xcd][..]));
    // It runs where it is linked, whatever is said.
    let main = only(&symbols, "main").address();
    assert!(symbols.set_text_base(Addr(0x5555_0000_0000)));
    assert_eq!(only(&symbols, "main").address(), main);
}

#[test]
fn other_debug_information() {
    if let Some(workshop) = build("gcc", &["-no-pie", "-gdwarf-4"]) {
        check(&workshop.symbols("program"));
    }
    if let Some(workshop) = build("clang", &["-no-pie", "-gdwarf-5"]) {
        check(&workshop.symbols("program"));
    }
}

#[test]
fn inlined_functions_show() {
    let Some(workshop) = build("gcc", &["-no-pie"]) else {
        return;
    };
    let symbols = workshop.symbols("program");
    let helpers = symbols.by_name("helper");
    let ours = |f: &&kymo_symbols::Function<'_>| {
        f.location()
            .is_some_and(|location| location.file.ends_with("first.c"))
    };
    let helper = helpers.iter().find(ours).expect("the first file's");
    let start = helper.address().0;
    let frames = (start..start + helper.size().unwrap_or(0)).map(|at| symbols.frames(Addr(at)));
    let inlined = frames
        .into_iter()
        .find(|frames| frames.len() == 2)
        .expect("an inlined call");
    let names: Vec<_> = inlined
        .iter()
        .filter_map(|frame| frame.function.as_deref())
        .collect();
    assert_eq!(names, ["inlined", "helper"]);
    let lines: Vec<_> = inlined
        .into_iter()
        .map(|frame| file_and_line(frame.location))
        .collect();
    let first = |line| Some(("first.c".to_owned(), line));
    assert_eq!(
        lines,
        [
            first(line_of("x * twice")),
            first(line_of("inlined(x) + 1"))
        ]
    );
}

#[test]
fn constant_strings_are_found() {
    let Some(workshop) = build("gcc", &["-no-pie"]) else {
        return;
    };
    let symbols = workshop.symbols("program");
    let bytes = std::fs::read(workshop.path("program")).expect("the program");
    let text = b"a label for markers\0";
    let offset = bytes
        .windows(text.len())
        .position(|window| window == text)
        .expect("it is there");
    // The section's place in the file and in memory, as binutils see them.
    let Some(sections) = workshop.run("readelf", &["-SW", "program"]) else {
        return;
    };
    let rodata = sections
        .lines()
        .find(|line| line.contains(" .rodata "))
        .expect(".rodata");
    let mut words = rodata
        .split_whitespace()
        .skip_while(|word| *word != "PROGBITS")
        .skip(1);
    let mut number = || u64::from_str_radix(words.next().unwrap_or(""), 16).expect("a number");
    let (address, start) = (number(), number());
    let label = Addr(address + offset as u64 - start);
    assert_eq!(
        symbols.string_at(label).as_deref(),
        Some("a label for markers")
    );
    assert_eq!(
        symbols.string_at(Addr(label.0 + 8)).as_deref(),
        Some("for markers")
    );
    // A variable may have changed; nothing is known of it.
    let nm = workshop.run("nm", &["program"]).unwrap_or_default();
    let variable = nm.lines().find_map(|line| line.strip_suffix(" B shown"));
    let variable = u64::from_str_radix(variable.expect("a variable"), 16).expect("an address");
    assert_eq!(symbols.string_at(Addr(variable)), None);
    assert_eq!(symbols.string_at(Addr(0)), None);
    assert_eq!(symbols.string_at(Addr(u64::MAX)), None);
}

#[test]
fn a_position_independent_program_is_found_where_it_runs() {
    let print = r#"
#include <stdio.h>
extern const char __executable_start[];
static const char text[] = "some text";
int main(void)
{
    printf("%p %p %p\n", (void *)__executable_start, (void *)main, (void *)text);
    return 0;
}
"#;
    let workshop = Workshop::new(&[("print.c", print)]);
    let flags = ["-g", "-fPIE", "-pie", "print.c", "-o", "print"];
    if workshop.run("gcc", &flags).is_none() {
        return;
    }
    let program = workshop.path("print");
    let printed = workshop
        .run(program.to_str().expect("a path"), &[])
        .expect("it was just built");
    let addresses: Vec<_> = printed
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("an address"))
        .collect();
    let [base, main, text] = addresses[..] else {
        panic!("{printed}");
    };
    let mut symbols = workshop.symbols("print");
    assert!(symbols.function_at(Addr(main)).is_none());
    // Nothing is loaded at such a place.
    assert!(!symbols.set_text_base(Addr(base + 16)));
    assert!(symbols.function_at(Addr(main)).is_none());
    assert!(symbols.set_text_base(Addr(base)));
    assert_eq!(
        symbols.function_at(Addr(main)).map(|f| f.name()),
        Some("main")
    );
    assert_eq!(only(&symbols, "main").address(), Addr(main));
    assert_eq!(symbols.string_at(Addr(text)).as_deref(), Some("some text"));
    assert_eq!(
        file_and_line(symbols.location(Addr(main))),
        Some(("print.c".to_owned(), 6))
    );

    // The output of nm knows as much, but for lines and strings.
    let nm = workshop
        .run("nm", &["print"])
        .expect("binutils come with gcc");
    let mut listed = Symbols::from_text(&nm).expect("symbols");
    assert!(listed.set_text_base(Addr(base)));
    assert_eq!(
        listed.function_at(Addr(main)).map(|f| f.name()),
        Some("main")
    );

    // A stripped one still tells where it starts: what it loads first.
    workshop.run("strip", &["print"]);
    let mut stripped = workshop.symbols("print");
    assert!(stripped.set_text_base(Addr(base)));
    assert_eq!(stripped.function_at(Addr(main)).map(|f| f.name()), None);
    assert_eq!(stripped.debug_info(), DebugInfo::Missing);
    assert_eq!(stripped.string_at(Addr(text)).as_deref(), Some("some text"));
}

#[test]
fn thumb_code() {
    let flags = [
        "-mcpu=cortex-m3",
        "-mthumb",
        "-nostdlib",
        "-Wl,-e,main",
        "-Wl,-Ttext=0x8000",
    ];
    let Some(workshop) = build("arm-none-eabi-gcc", &flags) else {
        return;
    };
    let symbols = workshop.symbols("program");
    check(&symbols);
    let main = only(&symbols, "main").address();
    assert_eq!(main.0 & 1, 0);
    // Function pointers have the mode bit.
    let pointed = Addr(main.0 | 1);
    assert_eq!(symbols.function_at(pointed).map(|f| f.name()), Some("main"));
    assert_eq!(symbols.location(pointed), symbols.location(main));
    assert_eq!(only(&symbols, "main").pointer(), Some(pointed));

    let flags = ["-mcpu=cortex-r5", "-marm", "-nostdlib", "-Wl,-e,main"];
    if let Some(workshop) = build("arm-none-eabi-gcc", &flags) {
        let symbols = workshop.symbols("program");
        let main = only(&symbols, "main");
        assert_eq!(main.pointer(), Some(main.address()));
    }
}

#[test]
fn marks_of_a_linker_script_name_nothing() {
    let script = "SECTIONS { .text 0x8000 : { _stext = .; *(.text*) _etext = .; } \
                  .rest : { *(.rodata*) *(.data*) *(.bss*) *(COMMON) } }";
    let files = [SOURCES, &[("script.ld", script)]].concat();
    let workshop = Workshop::new(&files);
    let flags = [
        "-mcpu=cortex-m3",
        "-mthumb",
        "-nostdlib",
        "-Wl,-e,main",
        "-Tscript.ld",
    ];
    let arguments: Vec<_> = flags.iter().chain(FLAGS).copied().collect();
    if workshop.run("arm-none-eabi-gcc", &arguments).is_none() {
        return;
    }
    let symbols = workshop.symbols("program");
    check(&symbols);
    let first = symbols
        .function_at(Addr(0x8000))
        .expect("the first function");
    assert_ne!(first.name(), "_stext");
    assert_eq!(only(&symbols, "_stext").name(), first.name());
}

#[test]
fn what_stands_at_address_0_is_in_memory() {
    // Constants in the same section as the code, as in flash that begins at 0; and what else has the
    // address 0, but is not in memory, or has another one and is not either.
    let script = "SECTIONS { .text 0 : { *(.text*) *(.rodata*) } .data 0x20000000 : { *(.data*) } \
                  .bss : { *(.bss*) } .more 0x30000000 (INFO) : { *(.more) } }";
    let source = r#"
const unsigned constant[2] = {0x11223344, 0x55667788};
unsigned variable = 0x99aabbcc;
unsigned zero[2];
__asm__(".section .more,\"\",%progbits; .4byte 1, 2, 3; .text");
int main(void) { return 0; }
"#;
    let workshop = Workshop::new(&[("flash.c", source), ("script.ld", script)]);
    let flags = ["-mcpu=cortex-m3", "-mthumb", "-nostdlib", "-Wl,-e,main"];
    let files = ["-Tscript.ld", "flash.c", "-g", "-o", "flash"];
    if workshop
        .run("arm-none-eabi-gcc", &[&flags[..], &files].concat())
        .is_none()
    {
        return;
    }
    let program = Program::open(&workshop.path("flash")).expect("a program");
    let content = |name| program.bytes_at(program.variable(name).expect(name), 4);
    assert_eq!(content("constant"), Some(&[0x44, 0x33, 0x22, 0x11][..]));
    assert_eq!(content("variable"), Some(&[0xcc, 0xbb, 0xaa, 0x99][..]));
    // The file does not tell what is all zeros.
    assert_eq!(content("zero"), None);
    // The code is at address 0, not the debug information or a table of names.
    let code = program.section(".text").expect("code");
    assert_eq!(program.bytes_at(0, code.len()), Some(code));
    assert_eq!(program.bytes_at(0, code.len() + 1), None);
    assert_eq!(program.bytes_at(0x3000_0000, 4), None);
}

#[test]
fn names_of_cpp_read_as_in_the_source() {
    let source = r#"
namespace ns {
struct Shape { int area(int side) const; };
__attribute__((noinline)) int Shape::area(int side) const { return side * side; }
template <typename T> __attribute__((noinline)) T twice(T x) { return x + x; }
}
int main() { return ns::Shape().area(2) + ns::twice<int>(3) + ns::twice<long>(3); }
"#;
    let workshop = Workshop::new(&[("shape.cc", source)]);
    if workshop
        .run("g++", &["-g", "-O1", "shape.cc", "-o", "shape"])
        .is_none()
    {
        return;
    }
    let symbols = workshop.symbols("shape");
    let area = only(&symbols, "ns::Shape::area(int) const");
    assert_eq!(area.raw_name(), "_ZNK2ns5Shape4areaEi");
    for name in [
        "_ZNK2ns5Shape4areaEi",
        "ns::Shape::area",
        "Shape::area",
        "area",
    ] {
        assert_eq!(only(&symbols, name).address(), area.address(), "{name}");
    }
    assert_eq!(
        only(&symbols, "int ns::twice<int>(int)").size(),
        only(&symbols, "_ZN2ns5twiceIiEET_S1_").size()
    );
    assert_eq!(symbols.similar("ns::Shape::aera"), ["ns::Shape::area"]);
    assert_eq!(symbols.similar("aera"), ["area"]);
}

#[test]
fn names_of_rust_read_as_in_the_source() {
    let source = "
mod shape {
    #[inline(never)]
    pub fn area(side: usize) -> usize {
        std::hint::black_box(side) * side
    }
}
fn main() {
    std::process::exit((shape::area(2) != 4) as i32);
}
";
    let workshop = Workshop::new(&[("shape.rs", source)]);
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    if workshop
        .run(&compiler, &["-g", "-Copt-level=1", "shape.rs"])
        .is_none()
    {
        return;
    }
    let symbols = workshop.symbols("shape");
    let area = only(&symbols, "shape::shape::area");
    assert_ne!(area.name(), area.raw_name());
    assert_eq!(only(&symbols, area.raw_name()).address(), area.address());
    let found = symbols
        .function_at(area.address())
        .map(|function| function.name());
    assert_eq!(found, Some(area.name()));
    let location = area.location().expect("it was compiled with -g");
    assert!(location.file.ends_with("shape.rs"), "{location}");
    assert_eq!(location.line, Some(4), "{location}");
}

#[test]
fn compressed_debug_information_is_read() {
    let Some(workshop) = build("gcc", &["-no-pie"]) else {
        return;
    };
    let plain = workshop.symbols("program");
    let expected = plain.location(only(&plain, "main").address());
    assert!(expected.is_some());
    for way in ["zlib", "zstd", "zlib-gnu"] {
        let option = format!("--compress-debug-sections={way}");
        let name = format!("program-{way}");
        let copied = workshop.run("objcopy", &[&option, "program", &name]);
        copied.expect("binutils come with gcc");
        let symbols = workshop.symbols(&name);
        assert_eq!(symbols.debug_info(), DebugInfo::Present, "{way}");
        let main = only(&symbols, "main").address();
        assert_eq!(symbols.location(main), expected, "{way}");
        // Damage is damage, and no more than that.
        let elf = std::fs::read(workshop.path(&name)).expect("it is there");
        let (mut damaged, mut fine) = (0, 0);
        for at in (64..elf.len()).step_by(elf.len() / 200 + 1) {
            let mut elf = elf.clone();
            elf[at] ^= 0x55;
            match Symbols::from_elf(elf).map(|symbols| symbols.debug_info()) {
                Ok(DebugInfo::Present) => fine += 1,
                _ => damaged += 1,
            }
        }
        assert!(damaged > 0 && fine > 0, "{way}: {damaged} {fine}");
    }
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let not_elf = Symbols::from_elf(*b"\x7fELk...")
        .err()
        .map(|error| error.to_string());
    let expected = "not an ELF file: expected the bytes 7f 45 4c 46 at offset 0, found 7f 45 4c 6b";
    assert_eq!(not_elf.as_deref(), Some(expected));
    let empty = Symbols::from_elf(Vec::new()).err();
    assert_eq!(empty, Some(ElfError::NotElf { found: Vec::new() }));
    let short = Symbols::from_elf(*b"\x7fELF\x02\x01\x01").err();
    assert!(
        matches!(short, Some(ElfError::Damaged { bytes: 7, .. })),
        "{short:?}"
    );
    let missing = Symbols::open(Path::new("no/such/file")).err();
    assert!(matches!(missing, Some(Error::Io { .. })), "{missing:?}");

    let workshop = Workshop::new(SOURCES);
    if workshop.run("gcc", &["-c", "second.c"]).is_some() {
        let object = Symbols::open(&workshop.path("second.o"))
            .err()
            .map(|e| e.to_string());
        let object = object.expect("an object file is no program");
        assert!(
            object.contains("found an object file that is not linked yet"),
            "{object}"
        );
    }
}

/// Asks everything of symbols that may be nonsense.
fn ask_everything(symbols: &Symbols) {
    for function in symbols.functions().take(50) {
        let address = function.address();
        function.name();
        symbols.function_at(address);
        function.location();
        symbols.frames(address);
        symbols.string_at(address);
    }
    symbols.by_name("main");
    symbols.similar("mian");
    symbols.debug_info();
    symbols.build_id();
}

#[test]
fn damaged_files_are_survived() {
    let Some(workshop) = build("gcc", &["-no-pie"]) else {
        return;
    };
    let whole = std::fs::read(workshop.path("program")).expect("the program");
    // Cut anywhere.
    for length in (0..whole.len()).step_by(whole.len() / 200) {
        if let Ok(symbols) = Symbols::from_elf(&whole[..length]) {
            ask_everything(&symbols);
        }
    }
    // A simple generator is random enough, and the same every time.
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..300 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(20) {
            // Headers more often than the rest.
            let place = if random(2) == 0 {
                random(4096)
            } else {
                random(whole.len())
            };
            bytes[place] = random(256) as u8;
        }
        if let Ok(symbols) = Symbols::from_elf(bytes) {
            ask_everything(&symbols);
        }
    }
}
