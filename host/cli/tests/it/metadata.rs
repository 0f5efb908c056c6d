//! Option `--metadata`, and single streams as inputs.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const DEMO: &str = "tests/data/demo";

fn report(options: &[&str], input: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["report", "--format", "json"]);
    command.args(options).arg(input);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?} {input:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn copy(folder: &Path, but: &str) {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEMO);
    for entry in fs::read_dir(demo).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != but {
            fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn the_metadata_of_a_directory_may_lie_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), "metadata");
    let metadata = format!("{DEMO}/metadata");
    let whole = report(&[], Path::new(DEMO));
    assert_eq!(report(&["--metadata", &metadata], folder.path()), whole);
    // The named metadata has precedence over the file in the directory of the streams.
    fs::write(folder.path().join("metadata"), "no metadata").unwrap();
    assert_eq!(report(&["--metadata", &metadata], folder.path()), whole);
    // The metadata may have any name, and be in the directory of the streams.
    fs::remove_file(folder.path().join("metadata")).unwrap();
    let named = folder.path().join("about.tsdl");
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join(&metadata),
        &named,
    )
    .unwrap();
    let named = named.to_str().unwrap();
    assert_eq!(report(&["--metadata", named], folder.path()), whole);
}

#[test]
fn one_stream_of_a_recording_is_read_with_the_names_beside_it() {
    let whole = report(&[], Path::new(DEMO));
    let stream = format!("{DEMO}/cpu0");
    assert_eq!(report(&[], Path::new(&stream)), whole);
    let elf = ["--elf", "tests/data/demo.elf"];
    let whole = report(&elf, Path::new(DEMO));
    assert_eq!(report(&elf, Path::new(&stream)), whole);
    // Also for a stream outside of its directory.
    let folder = tempfile::tempdir().unwrap();
    copy(folder.path(), "metadata");
    let metadata = format!("{DEMO}/metadata");
    let options = ["--elf", "tests/data/demo.elf", "--metadata", &metadata];
    assert_eq!(report(&options, &folder.path().join("cpu0")), whole);
}

#[test]
fn one_stream_comes_through_a_pipe() {
    let options = ["--elf", "tests/data/demo.elf", "--metadata"];
    let metadata = format!("{DEMO}/metadata");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kymo"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command.args(["report", "--format", "json"]).args(options);
    let mut cat = Command::new("cat");
    cat.current_dir(env!("CARGO_MANIFEST_DIR"));
    let mut cat = cat
        .arg(format!("{DEMO}/cpu0"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    command
        .args([&metadata, "-"])
        .stdin(cat.stdout.take().unwrap());
    let output = command.output().unwrap();
    cat.wait().unwrap();
    assert!(output.status.success(), "{output:?}");
    let whole = report(&options[..2], Path::new(DEMO));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), whole);
}
