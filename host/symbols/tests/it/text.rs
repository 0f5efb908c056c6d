//! Lists of symbols as tools write them, compared with the ELF file from which they were made.

use crate::workshop::{Workshop, only};
use kymo_event::{Addr, Function, SpaceId};
use kymo_symbols::{Error, Symbols, TextError};

/// Compiles with a map file; `None` without a compiler.
fn build(tool: &str, more: &[&str]) -> Option<Workshop> {
    Workshop::compiled(tool, &[more, &["-Wl,-Map=program.map"]])
}

/// Checks that the functions of the sources start at the same addresses with the same names.
fn same_functions(elf: &Symbols, text: &Symbols) {
    for name in ["main", "aliased", "helper", "second"] {
        let addresses = |symbols: &Symbols| -> Vec<_> {
            symbols
                .by_name(name)
                .iter()
                .map(|function| function.address())
                .collect()
        };
        assert_eq!(addresses(elf), addresses(text), "{name}");
        for function in elf.by_name(name) {
            let middle = Addr(function.address().0 + 3);
            let found = text.function_at(middle).map(|found| found.name());
            assert_eq!(found, Some(name));
        }
    }
}

#[test]
fn the_output_of_nm() {
    for (compiler, nm, flags) in [
        ("gcc", "nm", &["-no-pie"][..]),
        (
            "arm-none-eabi-gcc",
            "arm-none-eabi-nm",
            &["-mcpu=cortex-m3", "-nostdlib", "-Wl,-e,main"],
        ),
    ] {
        let Some(workshop) = build(compiler, flags) else {
            continue;
        };
        let elf = workshop.symbols("program");
        for options in [
            &[][..],
            &["-n"],
            &["-S"],
            &["-P"],
            &["-C"],
            &["-l"],
            &["-S", "-l", "-C"],
        ] {
            let arguments: Vec<_> = options.iter().chain(&["program"]).copied().collect();
            let Some(listed) = workshop.run(nm, &arguments) else {
                continue;
            };
            let text = Symbols::from_text(&listed).expect("symbols");
            same_functions(&elf, &text);
            let main = only(&text, "main");
            let line = main.location().and_then(|location| location.line);
            let expected = options
                .contains(&"-l")
                .then(|| crate::workshop::line_of("int main"));
            assert_eq!(line, expected, "{options:?}");
            assert_eq!(
                main.size().is_some(),
                options.iter().any(|o| ["-S", "-P"].contains(o))
            );
        }
    }
}

/// The `nm` of a PC prints the addresses of Thumb functions as in the ELF file: odd.
#[test]
fn thumb_functions_in_the_output_of_the_hosts_nm() {
    let odd = "00008001 T boot\n00008011 W handler\n00008021 t helper\tmain.c:7\n";
    let symbols = Symbols::from_text(odd).expect("symbols");
    let at = |address| symbols.function_at(Addr(address)).map(|f| f.name());
    assert_eq!(at(0x8000), Some("boot"));
    assert_eq!(at(0x8010), Some("handler"));
    assert_eq!(at(0x8011), Some("handler"));
    assert_eq!(at(0x8020), Some("helper"));
    assert_eq!(only(&symbols, "boot").address(), Addr(0x8000));
    assert_eq!(only(&symbols, "boot").pointer(), Some(Addr(0x8001)));
    let line = only(&symbols, "helper").location().and_then(|at| at.line);
    assert_eq!(line, Some(7));

    // Code without alignment also has odd addresses, but not only odd ones.
    let mixed = "1001 T first\n1010 T second\n1021 T third\n";
    let symbols = Symbols::from_text(mixed).expect("symbols");
    assert_eq!(only(&symbols, "first").address(), Addr(0x1001));
    assert_eq!(only(&symbols, "first").pointer(), None, "nobody tells");

    let flags = ["-mcpu=cortex-m3", "-mthumb", "-nostdlib", "-Wl,-e,main"];
    if let Some(workshop) = build("arm-none-eabi-gcc", &flags)
        && let Some(listed) = workshop.run("nm", &["program"])
    {
        let text = Symbols::from_text(&listed).expect("symbols");
        same_functions(&workshop.symbols("program"), &text);
    }
}

#[test]
fn the_map_of_the_linker() {
    for (compiler, flags) in [
        ("gcc", &["-no-pie"][..]),
        (
            "arm-none-eabi-gcc",
            &["-mcpu=cortex-m3", "-nostdlib", "-Wl,-e,main"],
        ),
    ] {
        let Some(workshop) = build(compiler, flags) else {
            continue;
        };
        same_functions(
            &workshop.symbols("program"),
            &workshop.symbols("program.map"),
        );
    }
}

#[test]
fn what_the_kernel_knows_of_itself() {
    let kallsyms = "\
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000040 t secondary
ffffffff82000000 D data
ffffffffc0800000 t init\t[module]
";
    let symbols = Symbols::from_text(kallsyms).expect("symbols");
    let at = |address| symbols.function_at(Addr(address)).map(|f| f.name());
    assert_eq!(at(0xffff_ffff_8100_0000), Some("startup_64"));
    assert_eq!(at(0xffff_ffff_8100_0041), Some("secondary"));
    assert_eq!(at(0xffff_ffff_c080_0000), Some("init"));
    assert_eq!(at(0xffff_ffff_8200_0000), None);

    let hidden = kallsyms.replace(|c: char| c.is_ascii_hexdigit() && c.is_ascii_digit(), "0");
    let hidden: String = hidden
        .lines()
        .map(|line| format!("{:0>16}{}\n", 0, &line[16..]))
        .collect();
    assert_eq!(
        Symbols::from_text(&hidden).err(),
        Some(TextError::HiddenAddresses { symbols: 5 })
    );
}

#[test]
fn other_texts_are_refused_with_the_reason() {
    for text in ["", "\n\n", "hello\nworld, how are you\n", "{\"json\": 1}"] {
        let lines = text.lines().count();
        assert_eq!(
            Symbols::from_text(text).err(),
            Some(TextError::NoSymbols { lines }),
            "{text:?}"
        );
    }
    let workshop = Workshop::new(&[]);
    let path = workshop.path("noise");
    std::fs::write(&path, b"abc\xff\xfe").expect("a file");
    let error = Symbols::open(&path).err();
    let offset = match &error {
        Some(Error::TextFile {
            source: TextError::NotText { offset },
            ..
        }) => *offset,
        _ => panic!("{error:?}"),
    };
    assert_eq!(offset, 3);
}

#[test]
fn several_files_answer_as_one() {
    let symbols = Symbols::from_text("1000 0010 T boot\n1010 0010 T both\n").expect("symbols");
    symbols.merge(Symbols::from_text("8000 0010 T app\n1010 0010 T other\n").expect("symbols"));
    let at = |address| symbols.function_at(Addr(address)).map(|f| f.name());
    assert_eq!(at(0x1000), Some("boot"));
    // The first file that contains the address is used.
    assert_eq!(at(0x1010), Some("both"));
    assert_eq!(at(0x8000), Some("app"));
    // The name in a trace is used if no file contains the address.
    let traced = |address| Function {
        space: SpaceId(0),
        address: Some(Addr(address)),
        bytes: None,
        name: Some("traced".into()),
        mapping: None,
    };
    assert_eq!(symbols.name_of(&traced(0x8000)), Some("app"));
    assert_eq!(symbols.name_of(&traced(0x9000)), Some("traced"));
    assert!(Symbols::new().is_empty() && !symbols.is_empty());
    assert!(Symbols::new().function_at(Addr(0)).is_none());
}

#[test]
fn several_threads_can_ask() {
    let symbols = Symbols::from_text("1000 0010 T first\n2000 0010 T second\n").expect("symbols");
    let at = &|address| symbols.function_at(Addr(address)).map(|f| f.name());
    std::thread::scope(|scope| {
        for (address, name) in [(0x1004, "first"), (0x2004, "second")] {
            scope.spawn(move || (0..1000).for_each(|_| assert_eq!(at(address), Some(name))));
        }
    });
}

#[test]
fn any_text_is_survived() {
    // Words that the readers recognize, in every order of three.
    let words = [
        "0x8000",
        "8000",
        "0xffffffffffffffff",
        "T",
        "main",
        "\n",
        "\t",
        "=",
        ".",
        " .text.f",
        "PROVIDE",
        "Linker script and memory map\n",
        "\n .text.f\n",
        "\n                ",
        "é",
    ];
    for a in words {
        for b in words {
            for c in words {
                let text = format!(
                    "Linker script and memory map\n .text 0x8000 0x10 {a} {b} {c}\n{a} {b} {c}\n"
                );
                for text in [
                    text.as_str(),
                    text.split_once('\n').map_or("", |(_, rest)| rest),
                ] {
                    if let Ok(symbols) = Symbols::from_text(text) {
                        symbols.functions().for_each(|function| {
                            symbols.function_at(function.address());
                        });
                        symbols.similar(b);
                    }
                }
            }
        }
    }
}
