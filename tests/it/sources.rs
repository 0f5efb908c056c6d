//! Rules that the sources keep: one module style, files that a person can read in one go, one integration
//! binary a package, and a README in every folder at the top.

use std::fs;
use std::process::Command;

use kymo_targets::run;

/// The most lines that a source file may have. Authors aim at 600.
const LINES: usize = 620;

/// The files of the checkout whose names end like this, those that are deleted but not committed left out.
fn files(endings: &[&str]) -> Vec<String> {
    let mut list = Command::new("git");
    list.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let files = run::output(list.current_dir(run::root())).unwrap();
    let matches = |file: &&str| endings.iter().any(|ending| file.ends_with(ending));
    let there = |file: &&str| run::root().join(file).is_file();
    let files = files.lines().filter(matches).filter(there);
    let files: Vec<String> = files.map(str::to_owned).collect();
    assert!(!files.is_empty(), "no {endings:?}: is this the repository?");
    files
}

#[test]
fn modules_are_named_files() {
    let mut wrong = files(&[".rs"]);
    wrong.retain(|file| file.ends_with("/mod.rs"));
    assert!(wrong.is_empty(), "name them foo.rs beside foo/: {wrong:#?}");
}

#[test]
fn files_can_be_read_in_one_go() {
    let sources = [".rs", ".c", ".h", ".S", ".py", ".sh"];
    let mut wrong = Vec::new();
    for file in files(&sources) {
        let text = fs::read_to_string(run::root().join(&file)).unwrap();
        let lines = text.lines().count();
        if lines > LINES {
            wrong.push(format!("{file}: {lines} lines, expected at most {LINES}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn host_packages_have_one_integration_binary() {
    let mut wrong = Vec::new();
    for file in files(&[".rs"]) {
        let Some((package, inside)) = file.split_once("/tests/") else {
            continue;
        };
        let host =
            (package.starts_with("host/") && !package.contains("/src/")) || package == "wire";
        if host && !inside.starts_with("it/") && !inside.starts_with("programs/") {
            wrong.push(file);
        }
    }
    assert!(
        wrong.is_empty(),
        "make them modules of tests/it: {wrong:#?}"
    );
}

#[test]
fn no_module_is_reached_across_packages() {
    let mut wrong = Vec::new();
    for file in files(&[".rs"]) {
        let text = fs::read_to_string(run::root().join(&file)).unwrap();
        for (n, line) in text.lines().enumerate() {
            if line.starts_with("#[path = \"..") {
                wrong.push(format!("{file}:{}: {line}", n + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_folder_at_the_top_says_what_it_is() {
    let files = files(&[""]);
    let mut folders: Vec<&str> = files
        .iter()
        .filter_map(|file| Some(file.split_once('/')?.0))
        .filter(|folder| !folder.starts_with('.'))
        .collect();
    folders.dedup();
    let missing = |folder: &&str| !run::root().join(folder).join("README.md").is_file();
    let missing: Vec<&str> = folders.into_iter().filter(missing).collect();
    assert!(missing.is_empty(), "without README.md: {missing:?}");
}
