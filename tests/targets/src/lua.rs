//! Location of Lua's sources: the crate `lua-src`, which `demos/lua/Cargo.toml` pins and cargo downloads.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Context, Error, Result};

/// Version used by the demonstrations, as a prefix of the crate's folder.
const FOLDER: &str = "lua-5.4.";

/// Files of the interpreter that are excluded: the demonstrations have no files, no operating system and no shared
/// libraries, and open the other libraries themselves.
const LEFT_OUT: [&str; 6] = [
    "linit.c",
    "liolib.c",
    "loslib.c",
    "loadlib.c",
    "ldblib.c",
    "lutf8lib.c",
];

/// Makes runs reproducible: otherwise Lua derives the seed of its hashes from addresses.
pub const FIXED_SEED: &str = "-Dluai_makeseed(L)=42";

/// Lua's sources.
#[derive(Debug)]
pub struct Lua {
    /// The folder with the headers.
    pub include: PathBuf,
    /// The C files of the interpreter that the demonstrations need, in alphabetical order.
    pub files: Vec<PathBuf>,
}

/// Downloads Lua's sources and returns their location.
pub fn sources() -> Result<Lua> {
    let manifest = run::root().join("demos/lua/Cargo.toml");
    let metadata = run::output(
        Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--locked"])
            .arg("--manifest-path")
            .arg(manifest),
    )?;
    let include = folder(&metadata)?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&include).context(include.display())? {
        let path = entry.context(include.display())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(".c") && !LEFT_OUT.contains(&name.as_ref()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(Lua { include, files })
}

/// Finds the folder of Lua's sources in the output of `cargo metadata`. It is JSON, of which only the path of lua-src's
/// manifest is needed, and no other path ends in the same way.
fn folder(metadata: &str) -> Result<PathBuf> {
    let lost = || Error::new("cargo metadata does not say where lua-src is");
    let package = metadata
        .split('"')
        .filter_map(|text| text.strip_suffix("/Cargo.toml"))
        .find(|path| path.contains("/lua-src-"))
        .map(PathBuf::from)
        .ok_or_else(lost)?;
    fs::read_dir(&package)
        .context(package.display())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(FOLDER)
        })
        .ok_or_else(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_knows_where_lua_is() {
        let lua = sources().unwrap();
        assert!(lua.include.join("lua.h").exists());
        assert!(lua.files.len() > 20);
        assert!(lua.files.iter().all(|file| !file.ends_with("liolib.c")));
        assert!(folder("{}").is_err());
    }
}
