//! Separate files of debug information: where they are searched, and which are refused.

use std::path::{Path, PathBuf};

use kymo_symbols::{DebugDirectories, Separate};

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
    let directories: DebugDirectories = [folder.join("debug")].into_iter().collect();
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
    let refused = found.refused.iter().map(|refused| &refused.file);
    assert_eq!(refused.collect::<Vec<_>>(), [&names]);
    assert_eq!(found.file, None);
    assert!(found.refused[0].why.contains("checksum"), "{found:?}");
    // Nothing tells which file is of a build without ID and link, so none is refused.
    let run = |arguments: &[&str]| {
        let ran = workshop.run("objcopy", arguments);
        ran.expect("binutils come with gcc");
    };
    run(&["--strip-all", "program", "bare"]);
    std::fs::copy(&names, workshop.path("bare.debug")).expect("a copy");
    let path = workshop.path("bare");
    let find = |path: &Path| {
        let bytes = std::fs::read(path).expect("it is there");
        DebugDirectories::default().of_file(&bytes, Some(path), path)
    };
    assert_eq!(find(&path), Separate::default());
}

#[test]
fn a_search_goes_on_behind_files_that_cannot_be_used() {
    let Some(workshop) = stripped("-Wl,--build-id=0x1234abcd") else {
        return;
    };
    let run = |tool: &str, arguments: &[&str]| {
        let ran = workshop.run(tool, arguments);
        ran.expect("gcc was there before");
    };
    let options = ["-no-pie", "-Wl,--build-id=0x5678", "-o", "other"];
    run(
        "gcc",
        &[&options[..], &["-g", "first.c", "second.c"]].concat(),
    );
    let program = workshop.path("stripped");
    let bytes = std::fs::read(&program).expect("it is there");
    let names = std::fs::read(workshop.path("names.debug")).expect("it is there");
    let other = std::fs::read(workshop.path("other")).expect("it is there");
    std::fs::remove_file(workshop.path("names.debug")).expect("it is there");
    let places = ["stale", "broken", "stripped_too", "right"].map(|name| workshop.path(name));
    for (place, contents) in places
        .iter()
        .zip([&other, &names[..100].to_vec(), &bytes, &names])
    {
        let folder = place.join(".build-id/12");
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("34abcd.debug"), contents).expect("a file");
    }
    let find = |places: &[PathBuf]| {
        let directories: DebugDirectories = places.iter().cloned().collect();
        directories.of_file(&bytes, Some(&program), &program)
    };
    let right = places[3].join(".build-id/12/34abcd.debug");
    let found = find(&places);
    assert_eq!((found.file, found.refused), (Some(right), Vec::new()));
    let refused = find(&places[..3]).refused;
    let refused: Vec<_> = refused.iter().map(|it| (&it.file, &*it.why)).collect();
    let [(stale, id), (broken, unreadable)] = refused[..] else {
        panic!("{refused:?}");
    };
    assert!(stale.starts_with(&places[0]) && broken.starts_with(&places[1]));
    assert_eq!(id, "its build ID is 5678, not 1234abcd");
    assert!(
        unreadable.starts_with("it cannot be read: "),
        "{unreadable}"
    );
}

#[test]
fn a_file_of_the_same_name_is_refused_only_where_names_are_missing() {
    let Some(workshop) = stripped("-Wl,--build-id=0x1234abcd") else {
        return;
    };
    let run = |tool: &str, arguments: &[&str]| {
        let ran = workshop.run(tool, arguments);
        ran.expect("gcc was there before");
    };
    let options = ["-no-pie", "-Wl,--build-id=0x5678", "-o", "app.debug"];
    run(
        "gcc",
        &[&options[..], &["-g", "first.c", "second.c"]].concat(),
    );
    let app = workshop.path("app");
    for (option, is_refused) in [("--strip-debug", false), ("--strip-all", true)] {
        run("objcopy", &[option, "program", "app"]);
        let bytes = std::fs::read(&app).expect("it is there");
        let found = DebugDirectories::default().of_file(&bytes, Some(&app), &app);
        assert_eq!(
            (found.file, found.refused.len()),
            (None, usize::from(is_refused))
        );
    }
}
