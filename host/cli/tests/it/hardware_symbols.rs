//! Symbol files given for a hardware trace: their names are used for the code that they are of, and no other.

use std::path::Path;
use std::process::Command;

use kymo_fixtures::etmv4::{Trace, recording};
use kymo_fixtures::perf_data::AUX_RAW;
use tempfile::TempDir;

/// Address of the code.
const HERE: u64 = 0x40_0000;

const ETMV4: &str =
    "ETMv4,id=0x10,cpu=0,TRCCONFIGR=0x801,TRCIDR0=0x8000e81,TRCIDR1=0x4100f463,TRCIDR2=0x488";

/// No operations, then a return.
fn code() -> Vec<u8> {
    let mut words = vec![0xd503_201f_u32; 15];
    words.push(0xd65f_03c0);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Code in which nothing equals [`code`].
fn other_code() -> Vec<u8> {
    [0x9100_0400_u32; 16].map(u32::to_le_bytes).concat()
}

/// Builder of an ELF file for AArch64 with its code in a section, and a function that has all of it.
#[derive(Default)]
struct Elf {
    sections: Vec<(u32, u64, u64, u32, Vec<u8>)>,
}

impl Elf {
    /// A section: its type, flags, address, linked section, contents.
    fn section(mut self, kind: u32, flags: u64, address: u64, link: u32, bytes: Vec<u8>) -> Self {
        self.sections.push((kind, flags, address, link, bytes));
        self
    }

    /// A file with its code at an address, a build ID, and the name of its function.
    fn of(address: u64, code: &[u8], id: Option<u8>, name: Option<&str>) -> Vec<u8> {
        // SHT_PROGBITS; allocated and executable.
        let mut elf = Elf::default().section(1, 6, address, 0, code.to_vec());
        if let Some(id) = id {
            // NT_GNU_BUILD_ID.
            let mut note: Vec<u8> = [4u32, 4, 3].map(u32::to_le_bytes).concat();
            note.extend(b"GNU\0");
            note.extend([id; 4]);
            elf = elf.section(7, 0, 0, 0, note);
        }
        if let Some(name) = name {
            let mut symbols = vec![0; 24];
            // Global function in the first section.
            symbols.extend(1u32.to_le_bytes());
            symbols.extend([0x12, 0, 1, 0]);
            symbols.extend(address.to_le_bytes());
            symbols.extend((code.len() as u64).to_le_bytes());
            let strings = elf.sections.len() as u32 + 2;
            elf = elf.section(2, 0, 0, strings, symbols);
            elf = elf.section(3, 0, 0, 0, format!("\0{name}\0").into());
        }
        elf.file(address, code.len() as u64)
    }

    /// The file, with one executable segment for its first section.
    fn file(self, address: u64, length: u64) -> Vec<u8> {
        // The names of sections, which are all empty.
        let names = self.sections.len() as u8 + 1;
        let elf = self.section(3, 0, 0, 0, vec![0]);
        let mut contents = Vec::new();
        let mut headers = vec![0; 64];
        for (kind, flags, at, link, bytes) in elf.sections {
            headers.extend([0, kind].map(u32::to_le_bytes).concat());
            let offset = 120 + contents.len() as u64;
            let fields = [flags, at, offset, bytes.len() as u64];
            headers.extend(fields.map(u64::to_le_bytes).concat());
            headers.extend([link, 1].map(u32::to_le_bytes).concat());
            let entry = if kind == 2 { 24 } else { 0u64 };
            headers.extend([4, entry].map(u64::to_le_bytes).concat());
            contents.extend(bytes);
            contents.resize(contents.len().next_multiple_of(8), 0);
        }
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[16..20].copy_from_slice(&(2 | 183u32 << 16).to_le_bytes());
        file[20] = 1;
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[40..48].copy_from_slice(&(120 + contents.len() as u64).to_le_bytes());
        (file[52], file[54], file[56], file[58]) = (64, 56, 1, 64);
        (file[60], file[62]) = (names + 1, names);
        file.extend([1u32, 5].map(u32::to_le_bytes).concat());
        for field in [120, address, address, length, length, 4] {
            file.extend(field.to_le_bytes());
        }
        file.extend(contents);
        file.extend(headers);
        file
    }
}

/// Folder with inputs.
struct Case(TempDir);

impl Case {
    fn new() -> Self {
        Case(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    /// A raw buffer of a trace unit without frames, whose core runs the code twice.
    fn raw(&self, image: &[u8]) -> Vec<String> {
        let image = self.write("image", image);
        let image = match Path::new(&image).exists() && image_has_address(&image) {
            true => image,
            false => format!("{image}@{HERE:#x}"),
        };
        let trace = Trace::new(false).time(1000).run(1, HERE).run(1, HERE);
        let trace = self.write("trace", &trace.time(2000).bytes);
        let options = ["--trace-frames", "none", "--trace-source", ETMV4];
        let options = options.map(str::to_owned);
        [&options[..], &["--trace-image".into(), image, trace]].concat()
    }
}

fn image_has_address(path: &str) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

/// Both outputs of a subcommand that succeeds.
fn printed(subcommand: &[&str], input: &[String], symbols: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(subcommand).args(input);
    let output = command.args(["--elf", symbols]).output();
    let output = output.expect("kymo runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{subcommand:?}: {errors}");
    (String::from_utf8_lossy(&output.stdout).into_owned(), errors)
}

const VIEWS: [&[&str]; 6] = [
    &["report"],
    &["calls"],
    &["show", "-e"],
    &["hotspots"],
    &["disasm"],
    &["branches"],
];

/// Checks in each view whether the name is shown, and that a part of the warnings is.
fn check(input: &[String], symbols: &str, is_named: bool, warning: &str) {
    for view in VIEWS {
        let (shown, warnings) = printed(view, input, symbols);
        assert_eq!(shown.contains("work"), is_named, "{view:?}: {shown}");
        assert!(warnings.contains(warning), "{view:?}: {warnings}");
        let warns = warnings.contains("for names") || warnings.contains("names may be wrong");
        assert_eq!(warns, !warning.is_empty(), "{view:?}: {warnings}");
    }
}

#[test]
fn a_program_names_memory_that_has_its_code() {
    let case = Case::new();
    let input = case.raw(&code());
    let same = case.write("same", &Elf::of(HERE, &code(), Some(1), Some("work")));
    check(&input, &same, true, "");
    let mut patched = code();
    patched[32..36].copy_from_slice(&0xd420_0000u32.to_le_bytes());
    let patched = case.write("patched", &Elf::of(HERE, &patched, None, Some("work")));
    let differs = format!("1 of 16 words of the code of {patched} differ from ");
    check(&input, &patched, true, &differs);
    let other = case.write(
        "other",
        &Elf::of(HERE, &other_code(), Some(2), Some("work")),
    );
    let refused = format!(
        "{other} is not used for names: its code is not that of the recording: 16 of 16 words differ, the first at 0x400000 in "
    );
    check(&input, &other, false, &refused);
    // No list of the trace's functions is the reason that this one is missing.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.args(["annotate", "work"]).args(&input);
    let output = command.args(["--elf", &other]).output();
    let errors = String::from_utf8_lossy(&output.expect("kymo runs").stderr).into_owned();
    assert!(errors.contains("there is no function work"), "{errors}");
    assert!(errors.contains("is not used for names"), "{errors}");
}

#[test]
fn a_program_names_an_image_of_its_build() {
    let case = Case::new();
    let input = case.raw(&Elf::of(HERE, &code(), Some(1), None));
    let same = case.write("same", &Elf::of(HERE, &code(), Some(1), Some("work")));
    check(&input, &same, true, "");
    let other = case.write("other", &Elf::of(HERE, &code(), Some(2), Some("work")));
    let refused =
        "other is not used for names: its build ID 02020202 is not that of the traced code";
    check(&input, &other, false, refused);
    // Without a build ID, the code decides.
    let without = case.write("without", &Elf::of(HERE, &code(), None, Some("work")));
    check(&input, &without, true, "");
    let changed = case.write("changed", &Elf::of(HERE, &other_code(), None, Some("work")));
    check(
        &input,
        &changed,
        false,
        "its code is not that of the recording",
    );
}

#[test]
fn a_program_names_the_mapping_of_its_build() {
    let case = Case::new();
    // Linked at 0, as programs are that are loaded anywhere.
    case.write("tool", &Elf::of(0, &code(), Some(1), None));
    let mut perf = recording(true, |perf| {
        perf.at(1000).comm(1, "tool");
        perf.at(2000).mapping(1, HERE, 0x1000, 120, "/tool");
    });
    let trace = Trace::new(true).time(3000).run(1, HERE).run(1, HERE);
    let trace = trace.time(4000);
    perf.at(9000)
        .aux(0, 0, 0, trace.bytes.len() as u64, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    let recorded = case.write("perf.data", &perf.file());
    let below = case.0.path().display().to_string();
    let input = ["--symfs".to_owned(), below, recorded];
    let same = case.write("same", &Elf::of(0, &code(), Some(1), Some("work")));
    check(&input, &same, true, "");
    let other = case.write("other", &Elf::of(HERE, &code(), Some(2), Some("work")));
    check(
        &input,
        &other,
        false,
        "other is not used for names: its build ID 02020202 is not",
    );
}
