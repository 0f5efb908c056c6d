//! Where Lua's sources are: in the crate `lua-src`, which `demos/lua/Cargo.toml` pins and cargo
//! fetches.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::run::{self, Context, Error, Result};

/// The version that the demonstrations use, as the crate names its folder.
const FOLDER: &str = "lua-5.4.";

/// What the interpreter can do without: the demonstrations have no files, no operating system and
/// no shared libraries, and open the other libraries by themselves.
const LEFT_OUT: [&str; 6] = [
    "linit.c",
    "liolib.c",
    "loslib.c",
    "loadlib.c",
    "ldblib.c",
    "lutf8lib.c",
];

/// Makes a run repeat: Lua takes the seed of its hashes from addresses otherwise.
pub const FIXED_SEED: &str = "-Dluai_makeseed(L)=42";

/// Lua's sources.
#[derive(Debug)]
pub struct Lua {
    /// The folder with the headers.
    pub include: PathBuf,
    /// The C files of the interpreter that the demonstrations need, in alphabetical order.
    pub files: Vec<PathBuf>,
}

/// Fetches Lua's sources and tells where they are.
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

/// The folder of Lua's sources, from the output of `cargo metadata`: JSON, but all that is needed
/// of it is where the manifest of lua-src lies, and that is the only path that ends like this.
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
