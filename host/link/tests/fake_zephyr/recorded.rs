//! What devices have recorded: as it was captured, and made up.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The captures of real devices, or `None`, said aloud, where they are not there.
pub fn captures() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zephyr");
    if root.is_dir() {
        return Some(root);
    }
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "no captures at {}",
        root.display()
    );
    // The harness hides what `eprintln!` says of a test that passes.
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        root.display()
    );
    None
}

/// What stands between the marks of a dump that was captured.
pub fn body(capture: &Path) -> Vec<u8> {
    let bytes = std::fs::read(capture).expect("a capture");
    let body = bytes.strip_prefix(b"-*-#").expect("the first mark");
    body.strip_suffix(b"-*-!\r\n").expect("the last").to_vec()
}

/// Records of calls, of a 32-bit target with names of 32 bytes.
pub fn records(count: u32) -> Vec<u8> {
    (0..count)
        .flat_map(|number| record(number % 2, 0x0800_0101 + number / 2 * 4, number))
        .collect()
}

/// A record of `main`'s, `at` milliseconds from the start.
pub fn record(kind: u32, callee: u32, at: u32) -> Vec<u8> {
    let mut bytes = vec![kind.to_le_bytes()[0]];
    bytes.extend(callee.to_le_bytes());
    bytes.extend(0x0800_0205_u32.to_le_bytes());
    bytes.extend((u64::from(at) * 1_000_000).to_le_bytes());
    bytes.push(0);
    bytes.extend(0x2000_0100_u32.to_le_bytes());
    let mut name = [0; 32];
    name[..4].copy_from_slice(b"main");
    bytes.extend(name);
    bytes
}

/// Entries of a profile, of a 32-bit target.
pub fn entries(count: u32) -> Vec<u8> {
    let entry = |number: u32| {
        let mut bytes = vec![2];
        bytes.extend((0x0800_0101 + number * 4).to_le_bytes());
        bytes.extend((u64::from(number) * 1_000).to_le_bytes());
        bytes
    };
    (0..count).flat_map(entry).collect()
}
