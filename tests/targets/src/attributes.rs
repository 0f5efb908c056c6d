//! Function attributes for which Rust has no syntax, on Arm's small processors.
//!
//! Rust's targets for these processors keep a frame pointer in every function, whatever the options. That wastes a
//! register, some instructions at every function's beginning and end, and 6 % of the recorder's code size. Code outside
//! the hooks' path may be slower if it gets smaller (`minsize` saves another 2 %), but the compiler has this option
//! only for a whole program, where it makes the hooks of an Armv6-M half as fast. LLVM reads attributes of single
//! functions from a file, by their names. Therefore the library is built twice: first without the file, to get the
//! names, then with it. If that fails (an older compiler, no `nm`), the first build is used, which has the same
//! behaviour.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Context, Result};

/// Parts of the mangled names, with their lengths, of functions that get no `minsize`: they are on the path of most
/// events, or copy structures for which `minsize` would generate a call of `memcpy`, which costs more than `minsize`
/// saves.
const OFTEN: [&str; 10] = [
    "10close_full",
    "10usual_call",
    "cyg_profile",
    "4push",
    "5quick",
    "6landed",
    "7prepare",
    "7produce",
    "9begin_next",
    "9put_items",
];

/// Whether functions for this target get attributes.
pub fn are_given(target: &str) -> bool {
    target.starts_with("thumb")
}

/// The option of Rust's compiler that gives the functions in `library` their attributes; `None` if their names are
/// unknown.
///
/// # Errors
/// If the file cannot be written.
pub fn option(library: &Path) -> Result<Option<String>> {
    let mut nm = Command::new("arm-none-eabi-nm");
    // nm prints a message for every member of an archive without symbols.
    let Ok(output) = nm.arg("--defined-only").arg(library).output() else {
        return Ok(None);
    };
    let table = table(&String::from_utf8_lossy(&output.stdout));
    if table.is_empty() {
        return Ok(None);
    }
    // The file name depends on the content: cargo tracks the option, not the file.
    let mut hasher = DefaultHasher::new();
    table.hash(&mut hasher);
    let name = format!("attributes-{:016x}.csv", hasher.finish());
    let file = library.with_file_name(name);
    if !file.exists() {
        let new = new_name(&file);
        fs::write(&new, table).context(new.display())?;
        fs::rename(&new, &file).context(file.display())?;
    }
    let option = format!("-Cllvm-args=-forceattrs-csv-path={}", file.display());
    Ok(Some(option))
}

/// A temporary name beside `file` that no other process uses.
fn new_name(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// One line per attribute of each function that `nm` lists, in a stable order.
fn table(symbols: &str) -> String {
    let mut lines: Vec<String> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (_, kind, name) = (words.next()?, words.next()?, words.next()?);
            matches!(kind, "t" | "T" | "W").then(|| {
                let often = OFTEN.iter().any(|part| name.contains(part));
                let small = if often {
                    String::new()
                } else {
                    format!("{name},minsize\n")
                };
                format!("{name},frame-pointer=none\n{small}")
            })
        })
        .collect();
    lines.sort_unstable();
    lines.dedup();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_taken_from_what_nm_says() {
        let symbols = "\nkymo.o:\n00000001 T kymo_on\n00000000 b buffer\n         U memcpy\n\
                       00000011 t _ZN4kymo4push\n00000021 W weak\n\nagain.o:\n00000001 T kymo_on\n";
        assert_eq!(
            table(symbols),
            "_ZN4kymo4push,frame-pointer=none\nkymo_on,frame-pointer=none\nkymo_on,minsize\n\
             weak,frame-pointer=none\nweak,minsize\n"
        );
    }
}
