//! Selects the hooks of the library (`kymo_assembly`: those in `device/arch`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(kymo_assembly)");
    let target = std::env::var("TARGET").unwrap_or_default();
    // Armv6-M and the Armv8-M baseline lack most of the instructions.
    let known = ["thumbv7m-", "thumbv7em-", "thumbv8m.main-"];
    if known.iter().any(|known| target.starts_with(known)) {
        println!("cargo:rustc-cfg=kymo_assembly");
    }
}
