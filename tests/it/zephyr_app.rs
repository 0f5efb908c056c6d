//! Kymo's module for Zephyr (`device/os/zephyr`): it compiles with the current `kymo.h`, and its sample records in
//! QEMU.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use kymo_targets::kymo::{self, Profile};
use kymo_targets::library;
use kymo_targets::run::{self, Background};
use kymo_targets::rust::BareRust;
use serde_json::Value;

/// Numeric options of its Kconfig file, with their defaults.
const NUMBERS: [&str; 12] = [
    "KYMO=1",
    "KYMO_PACKETS=16",
    "KYMO_PACKET_SIZE=1024",
    "KYMO_METADATA_SIZE=1024",
    "KYMO_TABLE_SLOTS=128",
    "KYMO_TABLE_STACKS=8",
    "KYMO_TABLE_DEPTH=32",
    "KYMO_TICK_HZ=10",
    "KYMO_LINK_PRIORITY=14",
    "KYMO_LINK_STACK_SIZE=2560",
    "FLASH_BASE_ADDRESS=0",
    "SYS_CLOCK_HW_CYCLES_PER_SEC=25000000",
];

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Compiles both files of the module with these options, with each choice of its clock.
#[test]
fn the_module_compiles_with_each_of_its_clocks() {
    let module = run::root().join("device/os/zephyr");
    let folder = folder("zephyr-app");
    for clock in ["DWT", "KERNEL", "APPLICATION"] {
        let options = [
            format!("KYMO_CLOCK_{clock}=1"),
            "KYMO_CLOCK_HZ=25000000".into(),
        ];
        for with in [
            &[
                "KYMO_TABLE=1",
                "KYMO_START_ON=1",
                "KYMO_SYSTICK=1",
                "REBOOT=1",
            ][..],
            &[
                "KYMO_STREAM=1",
                "KYMO_FIXED=1",
                "KERNEL_VERSION_NUMBER=0x030400",
            ],
        ] {
            let defines =
                NUMBERS
                    .iter()
                    .chain(with)
                    .map(|option| match option.starts_with("KERNEL") {
                        true => format!("-D{option}"),
                        false => format!("-DCONFIG_{option}"),
                    });
            let clocks = options.iter().map(|option| format!("-DCONFIG_{option}"));
            for file in ["kymo_zephyr.c", "hooks.c"] {
                let mut gcc = Command::new("arm-none-eabi-gcc");
                gcc.args([
                    "-mcpu=cortex-m3",
                    "-mthumb",
                    "-std=gnu99",
                    "-Os",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                ]);
                gcc.args(defines.clone().chain(clocks.clone()));
                gcc.arg("-I").arg(run::root().join("tests/it/zephyr_app"));
                gcc.arg("-I").arg(run::root().join("device/c/include"));
                gcc.arg("-c").arg(module.join(file));
                run::make(&mut gcc, &folder.join(file).with_extension("o")).unwrap();
            }
        }
    }
}

/// Builds the sample with a user's Zephyr, and records it in QEMU.
///
///  No registry that a test machine can reach contains Zephyr. `ZEPHYR_BASE` is its path, as for `west build`, and
/// `KYMO_ZEPHYR_MODULES` (paths separated by `;`) lists the modules that the board needs (cmsis) outside a west
/// workspace.
#[test]
fn the_sample_records_threads_interrupts_and_functions() {
    let Some(base) = env::var_os("ZEPHYR_BASE") else {
        let why = "ZEPHYR_BASE is not set: the sample for Zephyr is not built";
        let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        return;
    };
    let rust = BareRust::find_for("thumbv7m-none-eabi").unwrap();
    let library = library::for_bare_metal(&rust).unwrap();
    let build = folder("zephyr-sample");
    let mut cmake = Command::new("cmake");
    cmake
        .args(["-G", "Ninja", "-DBOARD=mps2_an385", "-B"])
        .arg(&build);
    let place = library.parent().unwrap().display().to_string();
    cmake.arg(format!("-DCONFIG_KYMO_LIBRARY=\"{place}\""));
    if let Ok(modules) = env::var("KYMO_ZEPHYR_MODULES") {
        cmake.arg(format!("-DZEPHYR_MODULES={modules}"));
    }
    cmake
        .env("ZEPHYR_BASE", base)
        .arg(run::root().join("device/os/zephyr/sample"));
    run::quietly(&mut cmake).unwrap();
    run::quietly(Command::new("ninja").arg("-C").arg(&build)).unwrap();
    let elf = build.join("zephyr/zephyr.elf");

    let port = kymo_targets::port::free().unwrap();
    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an385", "-display", "none", "-serial"]);
    qemu.arg(format!("tcp:127.0.0.1:{port},server,nowait"))
        .arg("-kernel")
        .arg(&elf);
    let _board = Background::start(&mut qemu).unwrap();

    let kymo = kymo::build(Profile::Debug).unwrap();
    let trace = build.join("trace");
    let target = format!("tcp:127.0.0.1:{port}");
    let mut record = Command::new(&kymo);
    record
        .args([
            "record",
            &target,
            "--duration",
            "3s",
            "--retry",
            "10",
            "--elf",
        ])
        .arg(&elf);
    run::quietly(record.arg("-o").arg(&trace)).unwrap();
    let names = |by: &str| -> Vec<String> {
        let mut report = Command::new(&kymo);
        report
            .args(["report", "--format", "json", "--by", by])
            .arg(&trace);
        let report = run::output(&mut report).unwrap();
        let rows = report
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter_map(|row| Some(row.get(by)?.as_str()?.to_owned()))
            .collect()
    };
    let functions = names("function");
    for name in ["sampled", "sample", "median", "print", "next_average"] {
        assert!(
            functions.iter().any(|found| found == name),
            "{name} of {functions:?}"
        );
    }
    let threads = names("thread");
    for name in ["filtering", "reporting", "kymo_link"] {
        assert!(
            threads.iter().any(|found| found == name),
            "{name} of {threads:?}"
        );
    }
    let interrupts = names("irq");
    for name in ["SysTick", "kymo_link"] {
        assert!(
            interrupts.iter().any(|found| found == name),
            "{name} of {interrupts:?}"
        );
    }
}
