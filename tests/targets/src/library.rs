//! Builds of `libkymo.a`, the recorder for C programs; `libkymo_minimal.a`, the smallest one; and `libkymo_sysview.a`,
//! which sends SystemView's stream.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::attributes;
use crate::run::{self, Context, Result};
use crate::rust::BareRust;

/// Optional parts of the library, by their feature names in the crate `kymo`.
pub const PARTS: [&str; 7] = [
    "cost",
    "depth",
    "items",
    "metadata",
    "profile",
    "promotions",
    "retained",
];

/// Features that a library has only on request: duration mode, conditions of trigger and stopper, a check in every hook
/// whether interrupts can be masked, checksums of packets in RAM, and on AArch64 a different
/// register for the recorder.
pub const OPTIONS: [&str; 6] = [
    "checked",
    "conditions",
    "duration",
    "sums",
    "tpidr_el0",
    "tpidrro_el0",
];

/// All parts, and duration mode.
pub const WITH_DURATION: &str = "cost,depth,duration,items,metadata,profile,promotions,retained";

/// Options for cargo to build a library with only these parts (`none`, or a comma-separated list), or with all.
///
/// # Errors
/// When the list has an unknown part.
pub fn parts(wanted: Option<&str>) -> Result<Vec<String>> {
    let Some(wanted) = wanted else {
        return Ok(Vec::new());
    };
    let mut options = vec!["--no-default-features".to_owned()];
    if wanted == "none" {
        return Ok(options);
    }
    for part in wanted.split(',') {
        if !PARTS.contains(&part) && !OPTIONS.contains(&part) {
            let known = [&PARTS[..], &OPTIONS[..]].concat().join(", ");
            let message = format!("expected parts ({known}) or none, found `{part}`");
            return Err(run::Error::new(message));
        }
        options.push("--features".to_owned());
        options.push(format!("kymo/{part}"));
    }
    Ok(options)
}

/// Builds the library for this machine and returns its path.
pub fn for_this_machine() -> Result<PathBuf> {
    for_this_machine_with(&[])
}

/// Default features on Linux, where flash is not scarce: all parts, duration mode, conditions of trigger and stopper.
const ON_LINUX: [&str; 2] = ["--features", "kymo/conditions,kymo/duration"];

/// As [`for_this_machine`], with options for cargo that select the library's parts.
pub fn for_this_machine_with(parts: &[&str]) -> Result<PathBuf> {
    let parts = if parts.is_empty() { &ON_LINUX } else { parts };
    let mut cargo = Command::new(env!("CARGO"));
    isolated(&build(cargo.arg("build").args(parts), "c", "release")?)
}

/// Makes a copy of a library for this machine that exports only Kymo's own symbols. Its Rust part also has functions
/// with names of the C library (`floor`, `sqrt`): a program would use those if `-lm` follows the library, or fail to
/// link, because some need more of Rust. The functions that the recorder needs are linked into the copy, and hidden.
fn isolated(library: &Path) -> Result<PathBuf> {
    let folder = library.with_file_name("isolated");
    // Several tests may do this at once, in one process and in others.
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let work = folder.join(format!("{}-{number}", std::process::id()));
    fs::create_dir_all(&work).context(work.display())?;
    let tool = |name: &str, arguments: &[&str]| {
        let mut tool = Command::new(name);
        tool.args(arguments).arg(library).current_dir(&work);
        tool
    };
    let members = run::output(&mut tool("ar", &["t"]))?;
    let is_ours = |member: &&str| member.starts_with("kymo");
    let ours = members.lines().find(is_ours);
    let ours = ours.ok_or_else(|| run::Error::new("the library has no object of Kymo's"))?;
    run::output(tool("ar", &["x"]).arg(ours))?;
    let mut nm = Command::new("nm");
    nm.args(["-g", "--defined-only", "-P", ours]);
    let symbols = run::output(nm.current_dir(&work))?;
    // Mangled Rust names are internal to the object.
    let names = symbols.lines().filter_map(|line| line.split(' ').next());
    let public = names.filter(|name| !name.starts_with("_ZN") && !name.starts_with("_R"));
    let public: Vec<&str> = public.collect();
    let list = work.join("public");
    fs::write(&list, public.join("\n")).context(list.display())?;
    run::output(&mut tool("ld", &["-r", "-o", "whole.o", ours]))?;
    let mut objcopy = Command::new("objcopy");
    // With these sections (bitcode) the tools would treat it as an uncompiled object.
    objcopy.args(["-R", ".llvmbc", "-R", ".llvmcmd"]).args([
        "--keep-global-symbols=public",
        "whole.o",
        "kymo.o",
    ]);
    run::output(objcopy.current_dir(&work))?;
    let mut archive = Command::new("ar");
    archive.args(["rcs", "libkymo.a", "kymo.o"]);
    run::output(archive.current_dir(&work))?;
    let made = folder.join("libkymo.a");
    fs::rename(work.join("libkymo.a"), &made).context(made.display())?;
    let specs = work.join("kymo.specs");
    fs::write(&specs, gcc_specs(&made)).context(specs.display())?;
    fs::rename(&specs, folder.join("kymo.specs")).context(specs.display())?;
    let config = work.join("kymo.cfg");
    fs::write(&config, clang_config(&made)).context(config.display())?;
    fs::rename(&config, folder.join("kymo.cfg")).context(config.display())?;
    fs::remove_dir_all(&work).context(work.display())?;
    Ok(made)
}

/// Specs file for GCC's `-specs=`: links programs with the library so that its hooks take precedence over the empty
/// ones of the C library, in any order of the command line, and with link-time optimization. Shared libraries use the
/// program's hooks, and its other functions (`kymo_marker`, ...) rather than those of a copy that they contain.
fn gcc_specs(library: &Path) -> String {
    let library = library.display();
    format!(
        "%rename link kymo_link\n\
         %rename lib kymo_lib\n\
         \n\
         *link:\n\
         %(kymo_link) %{{!shared:-u __cyg_profile_func_enter -u __cyg_profile_func_exit \
         --export-dynamic-symbol=kymo_*}}\n\
         \n\
         *lib:\n\
         %{{!shared:{library}}} %(kymo_lib)\n"
    )
}

/// The same for Clang: a configuration file for `--config`. It also links a copy to shared libraries, which does nothing in
/// a program that has a recorder.
fn clang_config(library: &Path) -> String {
    format!(
        "-Wl,-u,__cyg_profile_func_enter\n\
         -Wl,-u,__cyg_profile_func_exit\n\
         -Wl,--export-dynamic-symbol=kymo_*\n\
         \"{}\"\n",
        library.display()
    )
}

/// Builds the size-optimized library for the target of `rust` and returns its path.
pub fn for_bare_metal(rust: &BareRust) -> Result<PathBuf> {
    for_bare_metal_with(rust, &[])
}

/// The same with another optimization level: different code with the same function.
pub fn for_bare_metal_optimized(rust: &BareRust, level: &str) -> Result<PathBuf> {
    let mut cargo = rust.cargo_build();
    cargo.env("CARGO_PROFILE_SMALL_OPT_LEVEL", level);
    let place = format!("{}/small", rust.target());
    build_in(&format!("device-{level}"), &mut cargo, "c", &place)
}

/// As [`for_bare_metal`], with options for cargo that select the library's parts.
pub fn for_bare_metal_with(rust: &BareRust, parts: &[&str]) -> Result<PathBuf> {
    let mut cargo = rust.cargo_build();
    // Tests run in parallel: libraries with different parts get different folders.
    let folder = match parts {
        [] => "device".to_owned(),
        parts => {
            let mut hasher = DefaultHasher::new();
            parts.hash(&mut hasher);
            format!("device-parts-{:08x}", hasher.finish() as u32)
        }
    };
    let place = format!("{}/small", rust.target());
    build_in(&folder, cargo.args(parts), "c", &place)
}

/// Builds the smallest library for the target of `rust`, and returns its path.
pub fn minimal(rust: &BareRust) -> Result<PathBuf> {
    let place = format!("{}/small", rust.target());
    build(&mut rust.cargo_build(), "minimal", &place)
}

/// Builds the library that sends SystemView's stream, for the target of `rust` or for this machine, and returns its
/// path.
pub fn sysview(rust: Option<&BareRust>) -> Result<PathBuf> {
    let part = "sysview-c";
    match rust {
        Some(rust) => {
            let place = format!("{}/small", rust.target());
            build(&mut rust.cargo_build(), part, &place)
        }
        None => build(Command::new(env!("CARGO")).arg("build"), part, "release"),
    }
}

/// Builds the library for another Linux target and returns its path.
pub fn for_linux(rust: &BareRust) -> Result<PathBuf> {
    build(
        rust.cargo_build().args(ON_LINUX),
        "c",
        &format!("{}/release", rust.target()),
    )
}

/// `part`: the package name after `kymo-`. `place`: the path below cargo's target directory, which ends with the
/// profile.
fn build(cargo: &mut Command, part: &str, place: &str) -> Result<PathBuf> {
    build_in("device", cargo, part, place)
}

/// As [`build`], in another target folder.
fn build_in(folder: &str, cargo: &mut Command, part: &str, place: &str) -> Result<PathBuf> {
    let (target, profile) = place.rsplit_once('/').unwrap_or(("", place));
    let name = match part {
        "c" => "libkymo.a",
        "sysview-c" => "libkymo_sysview.a",
        _ => "libkymo_minimal.a",
    };
    let command = |folder: &str| {
        let target_dir = run::target_dir().join(folder);
        let mut cargo = again(cargo);
        cargo
            .args(["--profile", profile, "-p", &format!("kymo-{part}")])
            .arg("--manifest-path")
            .arg(run::root().join("device/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target_dir);
        (cargo, target_dir.join(place).join(name))
    };
    let (mut cargo, library) = command(folder);
    run::run(&mut cargo)?;
    if !attributes::are_given(target) {
        return Ok(library);
    }
    let Some(option) = attributes::option(&library)? else {
        return Ok(library);
    };
    // In a separate folder, so that neither build overwrites the other.
    let (mut cargo, smaller) = command(&format!("{folder}-small"));
    let options = std::env::var("RUSTFLAGS").unwrap_or_default();
    cargo.env("RUSTFLAGS", format!("{options} {option}"));
    // The compiler reports, for every crate, the functions that it does not contain.
    cargo.stderr(Stdio::null());
    Ok(match run::quietly(&mut cargo) {
        Ok(()) => smaller,
        Err(_) => library,
    })
}

/// A copy of a command, to be extended.
fn again(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    other.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_those_of_the_crate() {
        let manifest = run::root().join("device/kymo/Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let list = PARTS.map(|part| format!("{part:?}")).join(", ");
        assert!(manifest.contains(&format!("default = [{list}]")), "{list}");
    }

    #[test]
    fn parts_become_features() {
        assert_eq!(parts(None).unwrap(), [""; 0]);
        assert_eq!(parts(Some("none")).unwrap(), ["--no-default-features"]);
        assert_eq!(
            parts(Some("depth,cost")).unwrap(),
            [
                "--no-default-features",
                "--features",
                "kymo/depth",
                "--features",
                "kymo/cost"
            ]
        );
        let error = parts(Some("depth,table")).unwrap_err().to_string();
        assert!(error.contains("found `table`"), "{error}");
        assert!(parts(Some("")).is_err());
    }
}
