//! Compiles the C part, with hooks, and passes the linker script of `demos/cpus`.

use std::env;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = "../../../demos/cpus/cpus.ld";

fn main() {
    let here = env::var("CARGO_MANIFEST_DIR").expect("cargo says where");
    let out = env::var("OUT_DIR").expect("cargo says where to");
    let object = Path::new(&out).join("rounds.o");
    let status = Command::new("aarch64-linux-gnu-gcc")
        .args(["-std=gnu11", "-Os", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-ffreestanding", "-fno-pic", "-fno-stack-protector"])
        .args([
            "-mcpu=cortex-a72",
            "-mgeneral-regs-only",
            "-I../../c/include",
        ])
        .args(["-finstrument-functions", "-c", "src/rounds.c", "-o"])
        .arg(&object)
        .current_dir(&here)
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("aarch64-linux-gnu-gcc (Debian: gcc-aarch64-linux-gnu): {other:?}"),
    }
    // A copy: another checkout's build in the same directory must not refer to that checkout's file.
    let script = Path::new(&out).join("cpus.ld");
    std::fs::copy(Path::new(&here).join(SCRIPT), &script).expect("the linker script");
    println!("cargo::rustc-link-arg={}", object.display());
    println!("cargo::rustc-link-arg=-T{}", script.display());
    println!("cargo::rustc-link-arg=--build-id");
    let header = "../../c/include/kymo.h";
    for file in ["src/rounds.c", SCRIPT, "build.rs", header] {
        println!("cargo::rerun-if-changed={file}");
    }
}
