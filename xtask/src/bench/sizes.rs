//! Size of the recorder in a program: code and RAM after linking, without the parts that the program does not use.

use std::path::PathBuf;

use crate::bench::machine::Machine;
use crate::bench::table::{Figure, Line};
use kymo_targets::library;
use kymo_targets::run::{self, Context, Result};
use kymo_targets::rust::BareRust;

/// A way to build and use the library.
#[derive(Debug)]
struct Build {
    /// Its name in the file of limits.
    name: &'static str,
    /// Its name in the table.
    title: &'static str,
    library: Library,
    /// Options for the C compiler.
    options: &'static [&'static str],
    /// Greatest number of bytes of code and constants on a 32-bit processor, if there is a demand.
    code: Option<u64>,
    /// The same for RAM, beside buffers and tables.
    ram: Option<u64>,
    /// Processors of this build.
    place: Place,
}

/// Set of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// All.
    Anywhere,
    /// Bare metal.
    Bare,
    /// All but those whose recorder for several processors lacks the feature.
    Single,
    /// Cortex-M only.
    CortexM,
    /// One processor only, to see the share of each part.
    One,
}

impl Place {
    /// Whether the set contains this processor.
    fn has(self, target: &str) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Bare => target.contains("-none"),
            Self::Single => !target.starts_with("aarch64"),
            Self::CortexM => target.starts_with("thumb"),
            Self::One => target.starts_with("thumbv7em"),
        }
    }
}

/// The library of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    /// With all its parts.
    Whole,
    /// Built with these parts only, in cargo's syntax.
    Parts(&'static str),
    /// The smallest one.
    Minimal,
}

// The demand of 9,216 bytes (`size_all`) is not met on any processor. Linked code on a Cortex-M4 (November 2026, nm):
// general events 4.3 KB (`Writer::put` 1,000 bytes, `enter` 390, `exit` 320, space checks and packet changes 700),
// starting and stopping with trigger and stopper 1.5 KB, set-up 1.4 KB, the interface with its direct records 1.3 KB,
// the table 1.05 KB, hooks 0.7 KB, names 0.6 KB. Added since the demand was set, in bytes: replacing functions in a
// full table 300, comparing the clock with the tick 270 (including its calls by set-up and tick), two generations of
// records in place 150, the check whether interrupts can be masked 70, recursion of the stopper and single shot 200.
// Two ways to make the general path smaller were tried: one loop for entries and exits (170 bytes less, but on an
// Armv6-M 10 to 35 % more instructions for calls with their call sites, 5 % for other events), and one masked section
// without retries for any event, which by calculation masks 200 instructions where 100 are allowed, because it also
// encodes the record.

/// All parts of the library except the one that measures recording overhead.
const ALL_BUT_COST: &str = "kymo/depth,kymo/items,kymo/metadata,kymo/profile,\
                            kymo/promotions,kymo/retained";

/// All builds. Everything that is linked counts, except the code of the program's own functions. Configuration and
/// names count, because a program without a recorder would not have them.
const BUILDS: [Build; 10] = [
    Build {
        name: "size_all",
        title: "ALL BUT THE LINK",
        library: Library::Parts(ALL_BUT_COST),
        options: &["-DALL"],
        code: Some(9 << 10),
        ram: Some(256),
        place: Place::Anywhere,
    },
    Build {
        name: "size_overhead",
        title: "AND MEASURING ITS OVERHEAD",
        library: Library::Whole,
        options: &["-DALL"],
        code: None,
        ram: None,
        place: Place::Anywhere,
    },
    Build {
        name: "size_link",
        title: "WITH THE LINK",
        library: Library::Whole,
        options: &["-DALL", "-DLINK"],
        code: None,
        ram: None,
        place: Place::Bare,
    },
    Build {
        name: "size_items",
        title: "AND ITEMS, RECORDS IN PLACE",
        library: Library::Whole,
        options: &["-DALL", "-DITEMS"],
        code: None,
        ram: None,
        place: Place::Single,
    },
    Build {
        name: "size_hooks",
        title: "HOOKS ALONE, NO PARTS",
        library: Library::Parts(""),
        options: &[],
        code: None,
        ram: Some(256),
        place: Place::Anywhere,
    },
    part("size_functions", "ALL FUNCTIONS, NO PARTS", ""),
    part("size_table", "AND DEPTH, TABLE", "kymo/depth,kymo/profile"),
    part(
        "size_names",
        "AND NAMES",
        "kymo/depth,kymo/profile,kymo/metadata",
    ),
    part(
        "size_costs",
        "AND COSTS",
        "kymo/depth,kymo/profile,kymo/cost",
    ),
    Build {
        name: "size_minimal",
        title: "THE SMALLEST LIBRARY",
        library: Library::Minimal,
        options: &["-DMINIMAL"],
        code: Some(1536),
        ram: Some(256),
        place: Place::CortexM,
    },
];

/// A build that uses all functions, with these parts.
const fn part(name: &'static str, title: &'static str, parts: &'static str) -> Build {
    Build {
        name,
        title,
        library: Library::Parts(parts),
        options: &["-DALL"],
        code: None,
        ram: None,
        place: Place::One,
    }
}

/// Code and RAM, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    code: u64,
    ram: u64,
}

/// Measures all builds for a processor.
///
/// # Errors
/// When something can't be built.
pub fn measure(machine: &'static Machine) -> Result<Vec<Line>> {
    let cortex_m = machine.target.starts_with("thumb");
    let narrow = cortex_m || machine.target.starts_with("riscv32");
    let builds = BUILDS.iter();
    let builds = builds.filter(|build| build.place.has(machine.target));
    let line = |build: &Build| {
        let size = build.measure(machine)?;
        let figure = |found, demand: Option<u64>| Figure {
            found,
            demand: demand.filter(|_| narrow),
            watched: true,
        };
        let (code, ram) = (figure(size.code, build.code), figure(size.ram, build.ram));
        Ok(Line {
            target: machine.target,
            name: build.name,
            title: build.title,
            most: None,
            figures: [None, None, None, Some(code), Some(ram)],
        })
    };
    builds.map(line).collect()
}

impl Build {
    fn measure(&self, machine: &Machine) -> Result<Size> {
        let library = self.library.build(machine)?;
        let size = weigh(machine, self.name, self.options, Some(library))?;
        if !machine.hosted() {
            return Ok(size);
        }
        // Code that is linked into every program for this system does not count for the recorder.
        let without = weigh(machine, "size_nothing", &["-DNOTHING"], None)?;
        Ok(Size {
            code: size.code.saturating_sub(without.code),
            ram: size.ram.saturating_sub(without.ram),
        })
    }
}

impl Library {
    fn build(self, machine: &Machine) -> Result<PathBuf> {
        let parts: &[&str] = match self {
            Self::Parts("") => &["--no-default-features"],
            Self::Parts(parts) => &["--no-default-features", "--features", parts],
            Self::Whole | Self::Minimal => &[],
        };
        if machine.hosted() {
            return library::for_this_machine_with(parts);
        }
        let rust = BareRust::find_for(machine.target)?;
        match self {
            Self::Minimal => library::minimal(&rust),
            Self::Whole | Self::Parts(_) => library::for_bare_metal_with(&rust, parts),
        }
    }
}

/// Code and RAM of a program, without its own functions.
fn weigh(
    machine: &Machine,
    name: &str,
    options: &[&str],
    library: Option<PathBuf>,
) -> Result<Size> {
    let folder = run::target_dir().join("bench").join(machine.target);
    std::fs::create_dir_all(&folder).context(folder.display())?;
    let elf = folder.join(name).with_extension("elf");
    let bench = run::root().join("device/bench");
    let object = elf.with_extension("o");
    let mut compiler = machine.gcc();
    compiler
        .args(["-c", "-Os", "-finstrument-functions"])
        .args(["-ffunction-sections", "-fdata-sections"])
        .args(options)
        .arg("-I")
        .arg(run::root().join("device/c/include"))
        .arg(bench.join("sizes.c"));
    if machine.hosted() {
        compiler.arg("-fno-pie");
    } else {
        compiler.arg("-ffreestanding");
    }
    run::make(&mut compiler, &object)?;
    let own = run::output(machine.tool("size").arg("-A").arg(&object))?;
    let mut compiler = machine.gcc();
    compiler.arg("-Wl,--gc-sections").arg(&object);
    if machine.hosted() {
        compiler.arg("-no-pie").args(library);
    } else {
        compiler
            .args(["-nostdlib", "-static"])
            .args(["-Wl,--no-warn-rwx-segments", "-Wl,--no-warn-execstack"])
            .arg("-Wl,--build-id=none")
            .arg("-T")
            .arg(bench.join("sizes.ld"));
        if machine.target.starts_with("thumb") {
            // The C library's code, if a program uses any, does not count for the recorder.
            compiler.arg("-lc");
        }
        compiler.args(library);
    }
    run::make(&mut compiler, &elf)?;
    let listing = run::output(machine.tool("size").arg("-A").arg(&elf))?;
    let size = Size::read(&listing);
    Ok(Size {
        code: size.code.saturating_sub(functions(&own)),
        ..size
    })
}

/// Total size of the functions in the output of `size -A` for an object with a section for each.
fn functions(listing: &str) -> u64 {
    let sections = listing.lines().map(str::split_whitespace);
    let sizes = sections.filter_map(|mut words| {
        let own = words.next()?.starts_with(".text");
        own.then_some(words.next()?.parse::<u64>().ok()?)
    });
    sizes.sum()
}

impl Size {
    /// Reads the output of `size -A`.
    fn read(listing: &str) -> Self {
        let of = |names: &[&str]| -> u64 {
            let lines = listing.lines().map(str::split_whitespace);
            let sizes = lines.filter_map(|mut words| {
                names.contains(&words.next()?).then_some(())?;
                words.next()?.parse::<u64>().ok()
            });
            sizes.sum()
        };
        let data = of(&[".data", ".tdata"]);
        Self {
            code: of(&[".text", ".rodata", ".data.rel.ro"]) + data,
            ram: data + of(&[".bss", ".tbss"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_code_or_ram_or_both() {
        let listing = "section  size  addr\n.text  100  32768\n.data.rel.ro 8 0\n.data  4  0\n\
                       .bss  20  0\n.own  9999  0\nTotal 10131\n";
        assert_eq!(Size::read(listing), Size { code: 112, ram: 24 });
        let listing = "section  size  addr\n.text  0  0\n.text.reset  100  0\n.text.traced 32 0\n\
                       .rodata.kymo_config  128  0\nTotal 260\n";
        assert_eq!(functions(listing), 132);
    }
}
