//! Attributes of single functions that Rust has no word for, on Arm's small processors.
//!
//! Rust's targets for them keep a frame pointer in every function, whatever options say: that is a
//! register that nobody reads, some instructions at every beginning and end, and 6 % of the recorder's
//! code. And what hooks in Rust do not go through may well be slower if only it is smaller (`minsize`, another 2 %),
//! which the compiler can be told for a whole program alone: that makes an Armv6-M's hooks half as fast.
//! LLVM takes attributes of single functions from a file, by their names. So the library is
//! built twice: as it is, for the names, and with these in such a file. Where that does not work (an
//! older compiler, no `nm`) it stays as it is, which does the same.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Context, Result};

/// What the names of functions have in them that most events go through, or whose copies of structures would be
/// made by a call of `memcpy`, which is larger than all that is saved: as compilers write it, with its
/// length.
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

/// Whether functions for this target are given attributes.
pub fn are_given(target: &str) -> bool {
    target.starts_with("thumb")
}

/// The option for Rust's compiler that gives the functions in `library` theirs; `None` if these are
/// not known.
///
/// # Errors
/// When its file cannot be written.
pub fn option(library: &Path) -> Result<Option<String>> {
    let mut nm = Command::new("arm-none-eabi-nm");
    // It says of every part of an archive that has no symbols that it has none.
    let Ok(output) = nm.arg("--defined-only").arg(library).output() else {
        return Ok(None);
    };
    let table = table(&String::from_utf8_lossy(&output.stdout));
    if table.is_empty() {
        return Ok(None);
    }
    // Another file for other functions: cargo looks at what the option says, not at the file.
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

/// A name beside this one that no other process uses.
fn new_name(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// A line for each attribute of each function that `nm` lists, in a certain order.
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
