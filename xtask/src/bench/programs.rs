//! Builds of the programs with rows.

use std::path::PathBuf;

use crate::bench::machine::Machine;
use kymo_targets::library;
use kymo_targets::run::Result;
use kymo_targets::rust::BareRust;

/// Builds every program for a processor.
pub fn build_all(machine: &Machine) -> Result<Vec<PathBuf>> {
    let shapes = ["shapes.c", "rtems.c", "empty.c"];
    let mut programs = vec![machine.build("shapes", &shapes, &[], &[])?];
    let library = [library(machine)?];
    // With several processors there are no items.
    let several = machine.target.starts_with("aarch64");
    if !several {
        let counter: &[&str] = match machine.hosted() {
            true => &[],
            false => &["-Wl,--defsym=kymo_counter=0x40028018"],
        };
        programs.push(machine.build("items", &["items.c"], counter, &library)?);
    }
    let kinds = [
        ("everything", &["-DEVERYTHING"][..]),
        ("calls", &[]),
        ("sites", &["-DSITES"]),
    ];
    for (name, options) in kinds {
        programs.push(machine.build(name, &["kymo.c"], options, &library)?);
    }
    if machine.target.starts_with("thumb") {
        let least = [library::minimal(&BareRust::find_for(machine.target)?)?];
        programs.push(machine.build("least", &["kymo.c"], &["-DLEAST"], &least)?);
    }
    // Last, because they overwrite the other library.
    if several || machine.target.starts_with("thumbv7") {
        let rust = BareRust::find_for(machine.target)?;
        let parts = library::parts(Some(library::WITH_DURATION))?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let long = [library::for_bare_metal_with(&rust, &parts)?];
        programs.push(machine.build("duration", &["kymo.c"], &["-DDURATION"], &long)?);
    }
    if machine.target.starts_with("thumbv7") {
        let rust = BareRust::find_for(machine.target)?;
        let parts = ["--features", "kymo/sums"];
        let summed = [library::for_bare_metal_with(&rust, &parts)?];
        programs.push(machine.build("sums", &["kymo.c"], &["-DSUMS"], &summed)?);
        let parts = ["--no-default-features"];
        let few = [library::for_bare_metal_with(&rust, &parts)?];
        programs.push(machine.build("minimal", &["kymo.c"], &["-DMINIMAL"], &few)?);
    }
    Ok(programs)
}

/// The recorder, for a processor.
fn library(machine: &Machine) -> Result<PathBuf> {
    if machine.hosted() {
        library::for_this_machine()
    } else {
        library::for_bare_metal(&BareRust::find_for(machine.target)?)
    }
}
