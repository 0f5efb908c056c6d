//! Compiles the C part, with hooks, and passes the linker script.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo says where");
    let out = env::var("OUT_DIR").expect("cargo says where to");
    let object = Path::new(&out).join("work.o");
    let has_duration = env::var_os("CARGO_FEATURE_DURATION").is_some();
    let more = ["-DKYMO_DEMO_DURATION", "-I../../device/c/include"];
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(more.iter().filter(|_| has_duration))
        .args(["-std=gnu11", "-Os", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffreestanding", "-fno-pic", "-fno-stack-protector"])
        .args(["-mcpu=cortex-a72", "-mgeneral-regs-only"])
        .args(["-finstrument-functions", "-c", "src/work.c", "-o"])
        .arg(&object)
        .current_dir(&here)
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu): {other:?}"),
    }
    // A copy: another checkout's build in the same directory must not refer to that checkout's file.
    let script = Path::new(&out).join("cpus.ld");
    std::fs::copy(Path::new(&here).join("cpus.ld"), &script).expect("the linker script");
    println!("cargo::rustc-link-arg={}", object.display());
    println!("cargo::rustc-link-arg=-T{}", script.display());
    println!("cargo::rustc-link-arg=--build-id");
    for file in [
        "src/work.c",
        "cpus.ld",
        "build.rs",
        "../../device/c/include/kymo.h",
    ] {
        println!("cargo::rerun-if-changed={file}");
    }
}
