//! A recorder that is configured in safe Rust ([`kymo::Recorder`]), on a Cortex-M3 in QEMU; and configurations that
//! must not compile there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kymo_device_tests::{Board, Kind, device, equipped};
use kymo_wire::event::Shape;

const TARGET: &str = "thumbv7m-none-eabi";

/// Builds a crate with this source, beside the workspace; returns the result and the folder.
fn build(name: &str, source: &str) -> (Output, PathBuf) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("builder-{name}"));
    fs::create_dir_all(&folder).expect("a folder");
    let path = |of: &str| device().join(of).display().to_string();
    let manifest = format!(
        "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [lib]\npath = \"lib.rs\"\ncrate-type = [\"staticlib\"]\n\n\
         [dependencies]\nkymo = {{ path = {:?} }}\nkymo-abi = {{ path = {:?} }}\n\n\
         [profile.dev]\npanic = \"abort\"\nopt-level = \"s\"\n\n[workspace]\n",
        path("kymo"),
        path("c/abi")
    );
    fs::write(folder.join("Cargo.toml"), manifest).expect("it can be written");
    fs::write(folder.join("lib.rs"), source).expect("it can be written");
    // Versions of dependencies are those of the workspace.
    fs::copy(device().join("Cargo.lock"), folder.join("Cargo.lock")).expect("it can be copied");
    let target = folder.join("target");
    let output = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--offline",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target)
        .current_dir(&folder)
        .output()
        .expect("cargo runs");
    (output, target.join(TARGET).join("debug/libprogram.a"))
}

fn source() -> String {
    fs::read_to_string(device().join("tests/programs/builder/lib.rs")).expect("it is there")
}

#[test]
fn a_recorder_from_the_builder_records_on_a_cortex_m3() {
    if !equipped(&["arm-none-eabi-gcc", "qemu-system-arm"], &[TARGET]) {
        return;
    }
    let (output, library) = build("good", &source());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let elf = library.with_file_name("builder.elf");
    let programs = device().join("tests/programs");
    let output = Command::new("arm-none-eabi-gcc")
        .args(["-mcpu=cortex-m3", "-mthumb", "-Os", "-g", "-nostdlib", "-I"])
        .arg(device().join("c/include"))
        .args(["-ffreestanding", "-Wl,--gc-sections", "-T"])
        .arg(programs.join("board.ld"))
        .arg(programs.join("builder/board.c"))
        .arg(&library)
        .args(["-lgcc", "-o"])
        .arg(&elf)
        .output()
        .expect("the compiler runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");

    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-machine", "mps2-an385", "-kernel"]).arg(&elf);
    let mut board = Board::start(&mut qemu);
    let identity = board.identify();
    assert_eq!(identity.layout.shape, Shape::Compact);
    assert_eq!((identity.buffer_bytes, identity.packet_bytes), (8192, 512));
    assert!(identity.capabilities.profile);
    let trace = board.trace(&identity);
    let records = trace.iter().skip(1).flat_map(|packet| &packet.records);
    let kinds: Vec<&Kind> = records.map(|record| &record.kind).collect();
    let (Some(Kind::Enter(work)), Some(Kind::Enter(leaf))) = (kinds.get(2), kinds.get(3)) else {
        panic!("{kinds:?}");
    };
    let mut expected = vec![
        Kind::Recording { on: true, cause: 2 },
        Kind::Marker(1),
        Kind::Enter(*work),
    ];
    for _ in 0..10 {
        expected.extend([Kind::Enter(*leaf), Kind::Exit(*leaf)]);
    }
    expected.push(Kind::Exit(*work));
    let (calls, rest) = kinds.split_at(expected.len());
    assert!(calls.iter().copied().eq(&expected), "{calls:?}");
    assert!(
        matches!(
            rest,
            [
                Kind::NamedMarker { value: 2, .. },
                Kind::Recording {
                    on: false,
                    cause: 2
                }
            ]
        ),
        "{rest:?}"
    );
    let status = board.command("status");
    assert!(status.contains("functions=2 slots=16 "), "{status}");
}

#[test]
fn several_processors_are_refused_when_the_program_is_compiled() {
    if !equipped(&[], &[TARGET]) {
        return;
    }
    let source = source();
    let begin = source.find("kymo::recorder!(").expect("its recorder");
    let end = begin + source[begin..].find(");\n").expect("its end") + 3;
    for (cpus, refused) in [(1, false), (2, true)] {
        let config = format!(
            "kymo::config!(unsafe kymo::Config {{ cpu_count: {cpus}, send: Some(board_send), ..kymo::Config::EMPTY }});\n"
        );
        let (head, tail) = (&source[..begin], &source[end..]);
        let head: String = head
            .lines()
            .filter(|line| !line.starts_with("static") && !line.starts_with("use kymo"))
            .map(|line| format!("{line}\n"))
            .collect();
        let (output, _) = build("cpus", &[&head, &*config, tail].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !refused, "{cpus}: {errors}");
        let said = errors.contains("the recorder for this target is made for one processor");
        assert_eq!(said, refused, "{cpus}: {errors}");
    }
}
