//! How often the hooks leave the fast path on a real program: less than once per hundred events.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};

/// Addresses at which hooks begin, and those at which they leave the fast path.
const HOOKS: [&str; 2] = ["__cyg_profile_func_enter", "__cyg_profile_func_exit"];
const SLOW: [&str; 2] = ["slow_enter", "slow_exit"];

/// The actual start of the program: before it the recorder measures its hooks, on either path.
const BEGIN: &str = "program_first_round";

#[test]
fn the_slow_path_is_rare_on_lua() {
    tools::require(&[Need::Firmware]).unwrap();
    let elf = firmware::build(Hooks::Lean, &BareRust::find().unwrap()).unwrap();
    let folder = run::target_dir().join("firmware-test/slow-path");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();

    // The emulator logs the start of each translated block, which includes the start of functions.
    let symbols = run::output(Command::new("arm-none-eabi-nm").arg("-C").arg(&elf)).unwrap();
    let mut places = BTreeMap::new();
    for line in symbols.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(_), Some(name)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let name = name.rsplit("::").next().unwrap_or(name);
        if HOOKS.contains(&name) || SLOW.contains(&name) || name == BEGIN {
            let address = u64::from_str_radix(address, 16).unwrap() & !1;
            places.insert(address, name.to_owned());
        }
    }
    assert_eq!(places.len(), 5, "{places:?}");
    let ranges: Vec<String> = places.keys().map(|at| format!("{at:#x}+2")).collect();
    let log = folder.join("log");
    let options = ["-d", "exec,nochain", "-D", log.to_str().unwrap()];
    let ranges = ranges.join(",");
    let options = [&options[..], &["-dfilter", &ranges]].concat();
    let qemu = Qemu::boot_with(&elf, &folder, &options).unwrap();
    drop(qemu);

    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut begun = false;
    for line in BufReader::new(fs::File::open(&log).unwrap()).lines() {
        let line = line.unwrap();
        let address = line
            .split('/')
            .nth(1)
            .and_then(|it| u64::from_str_radix(it, 16).ok());
        if let Some(name) = address.and_then(|address| places.get(&address)) {
            begun |= name == BEGIN;
            *counts.entry(name).or_default() += u64::from(begun);
        }
    }
    let sum = |names: [&str; 2]| -> u64 { names.iter().filter_map(|name| counts.get(name)).sum() };
    let (events, slow) = (sum(HOOKS), sum(SLOW));
    println!("{events} entries and exits, {slow} of them on the slow path: {counts:?}");
    assert!(events > 100_000, "{counts:?}");
    assert!(slow * 100 < events, "{counts:?}");
}
