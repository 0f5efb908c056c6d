//! Selects the hooks of the library (`kymo_assembly`: those in `device/arch`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-check-cfg=cfg(kymo_assembly)");
    let target = std::env::var("TARGET").unwrap_or_default();
    // Hooks in assembly do not check whether they can mask interrupts.
    let features = ["CARGO_FEATURE_PORTABLE", "CARGO_FEATURE_CHECKED"];
    let bare = target.contains("-none-");
    let portable =
        std::env::var_os(features[0]).is_some() || bare && std::env::var_os(features[1]).is_some();
    // Armv6-M and the Armv8-M baseline lack most of the instructions.
    let known = [
        "thumbv7m-",
        "thumbv7em-",
        "thumbv8m.main-",
        "x86_64-unknown-linux-",
    ];
    if !portable && known.iter().any(|known| target.starts_with(known)) {
        println!("cargo:rustc-cfg=kymo_assembly");
    }
}
