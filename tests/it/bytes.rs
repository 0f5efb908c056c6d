//! Bytes per event on real programs: each entry and each exit counts as one event, and everything in the stream is
//! divided among them, including packet headers, timestamp records and records of jumps.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_targets::firmware::{self, Hooks, Qemu};
use kymo_targets::kymo::{self, Profile};
use kymo_targets::native::{self, CompilerKind};
use kymo_targets::run;
use kymo_targets::rust::BareRust;
use kymo_targets::tools::{self, Need};
use serde_json::Value;

/// Size of a run's trace.
struct Cost {
    /// Bytes of all packets, in their trace directory.
    bytes: u64,
    /// Entries and exits.
    events: u64,
}

impl Cost {
    fn per_event(&self) -> f64 {
        self.bytes as f64 / self.events as f64
    }

    #[track_caller]
    fn stays_below(&self, what: &str, budget: f64) {
        let (bytes, events, each) = (self.bytes, self.events, self.per_event());
        println!("{what}: {bytes} bytes, {events} entries and exits: {each:.3} bytes an event");
        assert!(each <= budget, "{what}: {each:.3} bytes an event");
    }
}

/// Measures a trace without losses, which `kymo trace INPUT` saved as packets of streams.
fn cost(kymo: &Path, elf: &Path, trace: &Path) -> Cost {
    let mut info = Command::new(kymo);
    info.args(["info", "--format", "json"]).arg(trace);
    let info: Value = serde_json::from_str(&run::output(&mut info).unwrap()).unwrap();
    assert_eq!(info["lost"], 0, "{info}");
    assert_eq!(info["gaps"], 0, "{info}");
    let mut show = Command::new(kymo);
    show.args(["show", "--format", "json", "--elf"]).arg(elf);
    let is_call = |line: &&str| {
        line.starts_with(r#"{"type":"event""#)
            && [r#""name":"enter"#, r#""name":"exit"#]
                .iter()
                .any(|name| line.contains(name))
    };
    let shown = run::output(show.arg(trace)).unwrap();
    let bytes = fs::read_dir(trace)
        .unwrap()
        .map(Result::unwrap)
        // Files with names and the build id are excluded: they are written once.
        .filter(|file| !["metadata", "target"].contains(&file.file_name().to_str().unwrap()))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    Cost {
        bytes,
        events: shown.lines().filter(is_call).count() as u64,
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = run::target_dir().join("bytes").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The first round of the firmware with these hooks.
fn on_a_microcontroller(hooks: Hooks) -> Cost {
    tools::require(&[Need::Firmware]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let elf = firmware::build(hooks, &BareRust::find().unwrap()).unwrap();
    let folder = folder(hooks.name());
    let qemu = Qemu::boot(&elf, &folder, false).unwrap();
    let trace = folder.join("trace");
    let mut command = Command::new(&kymo);
    command.env("KYMO_PATIENCE", "20");
    command.args(["trace", "--target", &qemu.target(), "--elf"]);
    run::run(command.arg(&elf).arg("--output").arg(&trace)).unwrap();
    drop(qemu);
    let cost = cost(&kymo, &elf, &trace);
    assert!(cost.events > 20_000, "{} events", cost.events);
    cost
}

#[test]
fn a_run_of_lua_on_a_microcontroller() {
    let cost = on_a_microcontroller(Hooks::Lean);
    cost.stays_below("Lua on a Cortex-M3, packets of 4096 bytes", 2.3);
}

#[test]
fn a_program_of_another_shape_on_a_microcontroller() {
    let cost = on_a_microcontroller(Hooks::LeanKernels);
    cost.stays_below("kernels on a Cortex-M3, packets of 4096 bytes", 3.2);
}

#[test]
fn a_run_of_lua_on_this_machine() {
    tools::require(&[Need::Native]).unwrap();
    let kymo = kymo::build(Profile::Debug).unwrap();
    let program = native::build(CompilerKind::Gcc, Hooks::Kymo).unwrap();
    let folder = folder("native");
    let running = native::Running::start(&program).unwrap();
    let trace = folder.join("trace");
    let mut command = Command::new(&kymo);
    command.env("KYMO_PATIENCE", "20");
    command.args(["trace", "--target", &running.target(), "--elf"]);
    run::run(command.arg(&program).arg("--output").arg(&trace)).unwrap();
    drop(running);
    let cost = cost(&kymo, &program, &trace);
    assert!(cost.events > 100_000, "{} events", cost.events);
    cost.stays_below("Lua on x86-64, packets of 4096 bytes", 6.4);
}
