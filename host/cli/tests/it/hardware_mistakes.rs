//! Wrong descriptions of hardware trace: another protocol, a program instead of the trace, a program for another
//! machine, and contradictory memory.

use std::path::Path;
use std::process::{Command, Output};

use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;
use tempfile::TempDir;

/// Address of the code.
const HERE: u64 = 0x40_0000;

const ETMV4: &str =
    "ETMv4,id=0x10,cpu=0,TRCCONFIGR=0x801,TRCIDR0=0x8000e81,TRCIDR1=0x4100f463,TRCIDR2=0x488";

fn kymo(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(arguments).output().expect("kymo runs")
}

/// Runs `kymo`, which must exit with this code, and returns both outputs.
fn printed(code: i32, arguments: &[&str]) -> String {
    let output = kymo(arguments);
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}

/// Folder with the file `trace`, a buffer of an ETMv4 without frames, which runs the three instructions of the file
/// `code` twice.
struct Case(TempDir);

impl Case {
    fn new() -> Self {
        let case = Case(tempfile::tempdir().expect("a folder"));
        let code = [0xd503_201f_u32, 0xd503_201f, 0xd65f_03c0].map(u32::to_le_bytes);
        case.write("code", &code.concat());
        let trace = Trace::new(false).time(1000).run(1, HERE).run(1, HERE);
        case.write("trace", &trace.time(2000).bytes);
        case
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.path().join(name), bytes).expect("a file");
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// Creates a linked ELF file with one segment, the code at an address.
fn elf(machine: u16, address: u64, code: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(64, 0);
    bytes[16..20].copy_from_slice(&(2 | u32::from(machine) << 16).to_le_bytes());
    bytes[20] = 1;
    (bytes[32], bytes[52], bytes[54], bytes[56]) = (64, 64, 56, 1);
    // PT_LOAD, readable and executable.
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(5u32.to_le_bytes());
    let length = code.len() as u64;
    for field in [120, address, address, length, length, 4] {
        bytes.extend(field.to_le_bytes());
    }
    bytes.extend(code);
    bytes
}

#[test]
fn trace_of_another_protocol_is_named() {
    let case = Case::new();
    // Synchronization packets of an ETMv3 and of an STM.
    case.write("etmv3", &[0, 0, 0, 0, 0, 0x80, 0x08, 0x21, 0, 0x10, 0, 0]);
    case.write(
        "stm",
        &[&[0xff; 10][..], &[0x0f, 0x00, 0x03, 0x11]].concat(),
    );
    case.write("nothing", &[0x55; 8192]);
    for (input, source, expected) in [
        ("trace", "STM,id=1", "no synchronization of STM in "),
        (
            "trace",
            "STM,id=1",
            "is the protocol right? (there is one of ETMv4 or ETE at offset 0)",
        ),
        (
            "etmv3",
            ETMV4,
            "(there is one of ETMv3, PTM or ITM at offset 0)",
        ),
        ("stm", "PTM,id=1", "(there is one of STM at offset 0)"),
        (
            "nothing",
            ETMV4,
            "no synchronization of ETMv4 in 8192 bytes: is the protocol right?",
        ),
    ] {
        let input = case.path(input);
        let options = ["--trace-frames", "none", "--trace-source", source, &input];
        for subcommand in [
            "packets", "ranges", "disasm", "hotspots", "report", "show", "info",
        ] {
            let printed = printed(2, &[&[subcommand], &options[..]].concat());
            assert!(
                printed.contains(expected),
                "{subcommand} {source}: {printed}"
            );
        }
    }
    // The synchronization of ETMv4 is also valid for these protocols, but the packets behind it are not.
    let input = case.path("trace");
    for source in ["PTM,id=1", "ETMv3,id=1"] {
        let options = [
            "hotspots",
            "--trace-frames",
            "none",
            "--trace-source",
            source,
            &input,
        ];
        let printed = printed(2, &options);
        for expected in [
            "from which instructions can be followed",
            "there is one of ETMv4 or ETE",
        ] {
            assert!(printed.contains(expected), "{source}: {printed}");
        }
    }
    let printed = printed(
        0,
        &[
            "packets",
            "--trace-frames",
            "none",
            "--trace-source",
            ETMV4,
            &input,
        ],
    );
    assert!(!printed.contains("no synchronization"), "{printed}");
}

#[test]
fn recordings_that_never_synchronize_say_so() {
    let case = Case::new();
    let mut perf = recording(true, |_| {});
    perf.at(9000).aux(0, 0, 0, 64, AUX_RAW);
    perf.buffer(None, 0, 0, &[0x55; 64]);
    case.write("perf.data", &perf.file());
    let printed = printed(2, &["ranges", &case.path("perf.data")]);
    let expected = "damaged in cpu0@0x0/cpu0 at offset 0: no synchronization of ETMv4 in 64 bytes";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn programs_in_the_place_of_trace_are_refused() {
    let case = Case::new();
    case.write("program", &elf(183, HERE, &[0; 16]));
    let mut core = elf(183, HERE, &[0; 16]);
    core[16] = 4;
    case.write("core", &core);
    for (name, what) in [("program", "an ELF file"), ("core", "a core file (ELF)")] {
        let input = case.path(name);
        for subcommand in ["packets", "ranges", "disasm", "hotspots", "report"] {
            let raw = printed(2, &[subcommand, "--trace-source", ETMV4, &input]);
            let plain = printed(2, &[subcommand, &input]);
            let expected =
                format!("{name}: expected hardware trace, found {what}: INPUT is the trace");
            assert!(raw.contains(&expected), "{subcommand}: {raw}");
            assert!(plain.contains("--elf"), "{subcommand}: {plain}");
            assert!(
                plain.contains(&expected) || subcommand == "report",
                "{subcommand}: {plain}"
            );
        }
    }
}

#[test]
fn an_itm_begins_at_one_place_for_all() {
    let case = Case::new();
    // Six packets of a stimulus port precede the synchronization.
    let packets = [0x03, b'a', b'b', b'c', b'\n'].repeat(6);
    let synchronization = [0, 0, 0, 0, 0, 0x80];
    let late = [&packets[..], &synchronization, &packets].concat();
    let wrong = [&[0x04], &late[..]].concat();
    case.write("late", &late);
    case.write("never", &packets);
    case.write("wrong", &wrong);
    for (name, messages, expected) in [
        (
            "late",
            12,
            "decoding begins at offset 0, where packets are, before the first synchronization at offset 30",
        ),
        (
            "never",
            6,
            "there is no synchronization: decoding begins at offset 0",
        ),
        (
            "wrong",
            6,
            "decoding begins with the synchronization at offset 31: 31 bytes before it left out",
        ),
    ] {
        let input = case.path(name);
        let options = [
            "--trace-frames",
            "none",
            "--trace-source",
            "ITM,id=1",
            &input,
        ];
        for (words, what) in [
            (&["packets"][..], "ITM_SWIT"),
            (&["ranges"], "ITM_SWIT"),
            (&["show", "--events"], "text = \"abc\""),
        ] {
            let printed = printed(0, &[words, &options].concat());
            let found = printed.lines().filter(|line| line.contains(what)).count();
            assert_eq!(found, messages, "{name} {words:?}: {printed}");
            assert!(printed.contains(expected), "{name} {words:?}: {printed}");
        }
    }
}

#[test]
fn ranges_end_where_the_addresses_do() {
    let case = Case::new();
    let (input, image) = (
        case.path("trace"),
        format!("{}@{HERE:#x}", case.path("code")),
    );
    let options = [
        "--trace-frames",
        "none",
        "--trace-source",
        ETMV4,
        "--trace-image",
        &image,
    ];
    for (window, instructions) in [
        ("0x400000..0x40000c", 6),
        ("0x400004..0x400008", 2),
        ("0x400000..0x400008", 4),
        ("0x400006..0x400100", 2),
        ("0x400008..0x40000c", 2),
    ] {
        let sum = |words: &[&str], what: &str| {
            let chosen = ["--format", "json", "--address", window, &input];
            let output = kymo(&[words, &options, &chosen].concat());
            let text = String::from_utf8(output.stdout).expect("text");
            let lines = text.lines().map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
                match what {
                    "" => u64::from(line.get("address").is_some()),
                    what => line[what].as_u64().unwrap_or(0),
                }
            });
            lines.sum::<u64>()
        };
        assert_eq!(sum(&["disasm"], ""), instructions, "{window}");
        assert_eq!(sum(&["ranges"], "instructions"), instructions, "{window}");
        let packets = ["packets", "--decode"];
        assert_eq!(sum(&packets, "instructions"), instructions, "{window}");
        assert_eq!(sum(&["hotspots"], "instructions"), instructions, "{window}");
    }
    let chosen = ["--address", "0x400000..0x400008", &input];
    let text = printed(0, &[&["ranges"], &options[..], &chosen].concat());
    let expected = "exec range=0x400000:[0x400008] num_i(2) last_sz(4) (ISA=A64) E ---";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn memory_of_another_machine_is_refused() {
    let case = Case::new();
    let code = std::fs::read(case.path("code")).expect("code");
    case.write("x86", &elf(62, HERE, &code));
    case.write("arm", &elf(183, HERE, &code));
    let input = case.path("trace");
    let options = ["--trace-frames", "none", "--trace-source", ETMV4, &input];
    for image in [
        case.path("x86"),
        format!("{}@{HERE:#x},offset=120", case.path("x86")),
    ] {
        for subcommand in ["ranges", "report"] {
            let given = [subcommand, "--trace-image", &image];
            let printed = printed(2, &[&given[..], &options].concat());
            let expected =
                "expected memory of an Arm core, found \"an ELF file of another machine (x86-64)\"";
            assert!(printed.contains(expected), "{printed}");
        }
    }
    // The same files, mapped in a recording.
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        for (index, name) in (0..).zip(["/x86", "/arm", "/code", "/archive"]) {
            let offset = if index < 2 { 120 } else { 0 };
            perf.at(2000)
                .mapping(1, HERE + 0x1000 * index, 0x1000, offset, name);
        }
    });
    let mut archive = b"PK\x03\x04".to_vec();
    archive.extend(&code);
    case.write("archive", &archive);
    let trace = Trace::new(true);
    let trace = trace
        .run(1, HERE)
        .run(1, HERE + 0x1000)
        .run(1, HERE + 0x2000);
    perf.at(9000)
        .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    case.write("perf.data", &perf.file());
    let symfs = case.0.path().display().to_string();
    for subcommand in ["ranges", "report"] {
        let printed = printed(0, &[subcommand, "--symfs", &symfs, &case.path("perf.data")]);
        let expected = "x86 (/x86) has code of another machine: expected Arm, found x86-64; what ran there is not followed";
        assert!(printed.contains(expected), "{subcommand}: {printed}");
        assert!(
            printed.contains("the file of /code is no ELF file"),
            "{printed}"
        );
        assert!(
            !printed.contains("/arm is") && !printed.contains("/archive"),
            "{printed}"
        );
    }
}

#[test]
fn images_that_differ_at_an_address_are_named() {
    let case = Case::new();
    let code = std::fs::read(case.path("code")).expect("code");
    case.write("other", &[0xff; 12]);
    case.write("same", &code[4..]);
    let input = case.path("trace");
    let options = ["--trace-frames", "none", "--trace-source", ETMV4, &input];
    let image = |name: &str, rest: &str| format!("{}@{rest}", case.path(name));
    let run = |second: &str| {
        let first = image("code", "0x400000");
        let images = ["ranges", "--trace-image", &first, "--trace-image", second];
        printed(0, &[&images[..], &options].concat())
    };
    let text = run(&image("other", "0x400000"));
    let (code, other) = (case.path("code"), case.path("other"));
    let expected =
        format!("{code} and {other} differ at 0x400000 (memory space Any): {code} is read\n");
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("[0x40000c] num_i(3)"), "{text}");
    let text = run(&image("other", "0x400004"));
    let expected = format!(
        "{other} and {code} differ at 0x400004 (memory space Any): {other} is read, except for runs"
    );
    assert!(text.contains(&expected), "{text}");
    for fine in [
        image("same", "0x400004"),
        image("other", "0x40000c"),
        image("other", "0x3ffff4"),
    ] {
        assert!(!run(&fine).contains(" differ "), "{fine}");
    }
}

#[test]
fn elf_files_of_a_configuration_have_addresses() {
    let case = Case::new();
    let code = std::fs::read(case.path("code")).expect("code");
    case.write("program", &elf(183, HERE, &code));
    let registers =
        "TRCCONFIGR = 0x801, TRCIDR0 = 0x8000e81, TRCIDR1 = 0x4100f463, TRCIDR2 = 0x488";
    let configuration = |image: &str| {
        let text = format!(
            "buffer = 'trace'\nframes = 'none'\n[[source]]\nprotocol = 'ETMv4'\nregisters = {{ {registers} }}\n[[image]]\n{image}\n"
        );
        case.write("x.toml", text.as_bytes());
        case.path("x.toml")
    };
    let text = printed(0, &["ranges", &configuration("file = 'program'")]);
    assert!(
        text.contains("exec range=0x400000:[0x40000c] num_i(3)"),
        "{text}"
    );
    let text = printed(0, &["ranges", &configuration("file = 'code'")]);
    let expected = "code: expected an address, or a linked ELF file, found";
    assert!(text.contains(expected), "{text}");
    let text = printed(
        2,
        &["ranges", &configuration("file = 'program'\noffset = 120")],
    );
    assert!(
        text.contains("image.address: expected an address"),
        "{text}"
    );
}

#[test]
fn a_program_in_the_place_of_a_configured_buffer_is_refused() {
    let case = Case::new();
    let code = std::fs::read(case.path("code")).expect("code");
    case.write("program", &elf(183, HERE, &code));
    let source = "[[source]]\nprotocol = 'ETMv4'\nregisters = { TRCCONFIGR = 0x801 }\n";
    for buffer in ["'program'", "['trace', 'program']"] {
        let text = format!("buffer = {buffer}\nframes = 'none'\n{source}");
        case.write("x.toml", text.as_bytes());
        for subcommand in ["packets", "report"] {
            let text = printed(2, &[subcommand, &case.path("x.toml")]);
            let expected = "program: expected hardware trace (code that ran is an image), found \"an ELF file\"";
            assert!(text.contains(expected), "{text}");
        }
    }
}

#[test]
fn an_error_of_a_configuration_names_it_once() {
    let case = Case::new();
    case.write("x.toml", b"buffer = 'trace'\nframe = 'none'\n[[source]]\n");
    for subcommand in ["packets", "report", "info"] {
        let path = case.path("x.toml");
        let text = printed(2, &[subcommand, &path]);
        assert_eq!(text.matches(&path).count(), 1, "{subcommand}: {text}");
    }
}

#[test]
fn recordings_of_several_threads_are_read() {
    let case = Case::new();
    let trace = Trace::new(true).run(1, HERE);
    let mut main = recording(true, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/code");
    });
    main.at(9000)
        .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
    let mut of_thread = kymo_fixtures::perf_data::PerfData::new(true);
    of_thread.buffer(None, 0, 0, &trace.bytes);
    let (start, size) = (
        104 + 128 + 16 + 8,
        48 + trace.bytes.len().next_multiple_of(8),
    );
    let folder = case.0.path().join("perf.data");
    std::fs::create_dir(&folder).expect("a folder");
    let write = |name: &str, bytes: &[u8]| write(&folder, name, bytes);
    write("data", &main.file());
    write("data.0", &of_thread.file()[start..start + size]);
    let symfs = case.0.path().display().to_string();
    for subcommand in ["ranges", "report"] {
        let given = [
            subcommand,
            "--format",
            "json",
            "--symfs",
            &symfs,
            &case.path("perf.data"),
        ];
        let output = kymo(&given);
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = if subcommand == "ranges" {
            "\"instructions\":3"
        } else {
            "\"self_instructions\":3"
        };
        assert!(
            text.replace(": ", ":").contains(expected),
            "{subcommand}: {output:?}"
        );
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).expect("a file");
}

#[test]
fn what_is_before_a_synchronization_is_counted() {
    let case = Case::new();
    let trace = Trace::new(false).time(1000).run(1, HERE).run(1, HERE);
    let trace = trace.time(2000).bytes;
    case.write("trace", &[&[0x55; 37][..], &trace].concat());
    let [path, code] = [case.path("trace"), case.path("code")];
    let image = format!("{code}@{HERE:#x}");
    for command in ["hotspots", "report", "info"] {
        let printed = printed(
            0,
            &[
                command,
                "--trace-source",
                ETMV4,
                "--trace-frames",
                "none",
                "--trace-image",
                &image,
                &path,
            ],
        );
        let note = printed.lines().find(|line| line.starts_with("note: "));
        let expected = "37 bytes before the first synchronization not decoded, from offset 0 on";
        assert!(
            note.is_some_and(|note| note.contains(expected)),
            "{command}: {printed}"
        );
    }
}

#[test]
fn a_reset_within_frames_is_a_loss() {
    let case = Case::new();
    let trace = Trace::new(false).time(1000).run(1, HERE).run(1, HERE);
    let trace = trace.time(2000).bytes;
    // Frames of one source: its ID, then 14 bytes. The last byte of a frame has the lowest bits of every second one.
    let mut frames = Vec::new();
    for part in trace.chunks(14) {
        let mut frame = [0; 16];
        frame[0] = 0x10 << 1 | 1;
        frame[1..=part.len()].copy_from_slice(part);
        for pair in 1..8 {
            frame[15] |= (frame[2 * pair] & 1) << pair;
            frame[2 * pair] &= !1;
        }
        frames.extend(frame);
    }
    let reset = [0xff, 0xff, 0xff, 0x7f].repeat(4);
    case.write("framed", &[&frames[..], &reset, &frames].concat());
    let [path, code] = [case.path("framed"), case.path("code")];
    let image = format!("{code}@{HERE:#x}");
    let source = ["--trace-source", ETMV4, "--trace-image", &image, &path];
    for command in ["hotspots", "branches", "report"] {
        let output = kymo(&[&[command][..], &source].concat());
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let expected = format!("first at offset {}", frames.len());
        let warns =
            printed.contains("trace was lost 1 time: a frame of synchronization words resets");
        assert!(warns && printed.contains(&expected), "{command}: {printed}");
    }
}

#[test]
fn a_directory_that_is_no_recording_is_named_once() {
    let case = Case::new();
    let path = case.0.path().display().to_string();
    let printed = printed(2, &["hotspots", &path]);
    assert!(
        printed.contains("found a directory without snapshot.ini"),
        "{printed}"
    );
}

#[test]
fn a_source_of_a_snapshot_of_unknown_type_is_named() {
    let case = Case::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/coresight");
    for name in [
        "cpu_0.ini",
        "etm_0.ini",
        "snapshot.ini",
        "trace.bin",
        "trace.ini",
    ] {
        let text = std::fs::read(data.join(name)).expect("it is committed");
        let text = match name {
            "etm_0.ini" => {
                let text = String::from_utf8(text).expect("text");
                let lines = text.lines().map(|line| match line.starts_with("type=") {
                    true => "type=FOO7",
                    false => line,
                });
                lines.collect::<Vec<_>>().join("\n").into_bytes()
            }
            _ => text,
        };
        case.write(name, &text);
    }
    let path = case.0.path().display().to_string();
    let output = kymo(&["hotspots", &path]);
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        printed.contains("expected ETM3, ETM4, ETE, PTM, STM or ITM, found \"FOO7\""),
        "{printed}"
    );
}
