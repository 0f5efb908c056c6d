//! Rules for the sources: one module style, files of limited length, one integration test binary per package, and a
//! README in every top-level folder.

use std::fs;
use std::process::Command;

use kymo_targets::run;

/// Maximum number of lines of a source file. Authors aim at 600.
const LINES: usize = 620;

/// The files of the checkout with these endings, without files that are deleted but not committed.
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

/// Names that follow `crate::` in a line.
fn of_the_crate(line: &str) -> Vec<&str> {
    let end = |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names = Vec::new();
    for rest in line.split("crate::").skip(1) {
        let several = rest
            .strip_prefix('{')
            .and_then(|rest| rest.split('}').next());
        let all = several.map_or(vec![rest], |rest| rest.split(',').collect());
        let all = all.into_iter().map(str::trim);
        names.extend(all.map(|text| &text[..end(text).unwrap_or(text.len())]));
    }
    names
}

/// The table in `lib.rs` has the order.
#[test]
fn files_of_the_recorder_for_linux_use_those_above_them() {
    const FOLDER: &str = "device/os/linux/src/";
    let read = |file: &str| fs::read_to_string(run::root().join(file)).unwrap();
    let lib = read(&format!("{FOLDER}lib.rs"));
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let order: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    let place = |name: &str| order.iter().position(|it| *it == name);
    let mut wrong = Vec::new();
    for file in files(&[".rs"]) {
        let Some(inside) = file.strip_prefix(FOLDER).filter(|it| *it != "lib.rs") else {
            continue;
        };
        let own = inside.split(['/', '.']).next().unwrap();
        let Some(own_place) = place(own) else {
            wrong.push(format!("{file} is not in the table"));
            continue;
        };
        for line in read(&file).lines().map(str::trim) {
            let used = of_the_crate(line).into_iter();
            let used = used.filter(|name| *name != own && !line.starts_with("//"));
            // Macros belong to the whole crate.
            let is_file = |name: &str| run::root().join(format!("{FOLDER}{name}.rs")).is_file();
            let used = used.filter(|name| is_file(name));
            let above = |name: &&str| place(name).is_some_and(|it| it < own_place);
            wrong.extend(
                used.filter(|name| !above(name))
                    .map(|name| format!("{file} uses `{name}`, which is not above `{own}`")),
            );
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
