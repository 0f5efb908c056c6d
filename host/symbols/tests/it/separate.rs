//! Separate files of debug information: where they are searched, and which are refused.

use std::path::Path;

use kymo_symbols::DebugDirectories;

use crate::workshop::Workshop;

/// A stripped program, and its debug information in a separate file; `None` without a compiler.
fn stripped(id: &str) -> Option<Workshop> {
    let workshop = Workshop::compiled("gcc", &[&["-no-pie", id]])?;
    let run = |arguments: &[&str]| {
        let ran = workshop.run("objcopy", arguments);
        ran.expect("binutils come with gcc");
    };
    run(&["--only-keep-debug", "program", "names.debug"]);
    run(&[
        "--strip-all",
        "--add-gnu-debuglink=names.debug",
        "program",
        "stripped",
    ]);
    Some(workshop)
}

#[test]
fn debug_information_is_found_by_build_id_and_by_debug_link() {
    let Some(workshop) = stripped("-Wl,--build-id=0x1234abcd") else {
        return;
    };
    let program = workshop.path("stripped");
    let bytes = std::fs::read(&program).expect("it is there");
    let recorded = Path::new("/opt/board/stripped");
    let folder = program.parent().expect("a folder");
    let directories = DebugDirectories::new([folder.join("debug")]);
    let find = |path: Option<&Path>| directories.of_file(&bytes, path, recorded).file;
    // Beside the file, as its link says.
    let beside = workshop.path("names.debug");
    assert_eq!(find(Some(&program)), Some(beside.clone()));
    assert_eq!(find(None), None);
    for place in [
        ".debug/names.debug",
        "debug/opt/board/names.debug",
        "debug/opt/board/stripped.debug",
        "debug/.build-id/12/34abcd/debug",
        "debug/.build-id/12/34abcd.debug",
    ] {
        let place = folder.join(place);
        std::fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        std::fs::rename(&beside, &place).expect("a file");
        assert_eq!(find(Some(&program)), Some(place.clone()));
        std::fs::rename(&place, &beside).expect("a file");
    }
    // A file with names and lines needs no other.
    let whole = std::fs::read(workshop.path("program")).expect("it is there");
    let own = directories.of_file(&whole, Some(&program), recorded);
    assert_eq!(own.file, None);
}

#[test]
fn debug_information_of_another_build_is_refused() {
    let Some(workshop) = stripped("-Wl,--build-id=none") else {
        return;
    };
    let program = workshop.path("stripped");
    let bytes = std::fs::read(&program).expect("it is there");
    let names = workshop.path("names.debug");
    let find = || DebugDirectories::default().of_file(&bytes, Some(&program), &program);
    assert_eq!(find().file, Some(names.clone()));
    // The checksum is that of the whole file.
    let mut other = std::fs::read(&names).expect("it is there");
    other.push(0);
    std::fs::write(&names, other).expect("a file");
    let found = find();
    assert_eq!((found.file, found.others), (None, vec![names]));
}
