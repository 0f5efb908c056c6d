//! The captures and the reference tool's listings of them.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Folder of the CoreSight captures: below `KYMO_DATA`, or beside the checkout. Prints a message and returns `None` if
/// it is missing.
///
/// # Panics
/// If `KYMO_DATA` is set and the captures are missing.
pub fn folder() -> Option<PathBuf> {
    let named = std::env::var_os("KYMO_DATA").map(PathBuf::from);
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = named.clone().unwrap_or_else(beside).join("coresight");
    if folder.join("manifest.json").is_file() {
        return Some(folder);
    }
    assert!(
        named.is_none(),
        "KYMO_DATA is set, and there is no {}",
        folder.display()
    );
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        folder.display()
    );
    None
}

/// Snapshots of several sessions, with the number of their buffers.
pub const SESSIONS: [(&str, usize); 6] = [
    ("ete-ite-instr", 2),
    ("ete-wfet", 2),
    ("pauth_lr", 3),
    ("q_elem", 2),
    ("rme_test", 3),
    ("ss_ib_el1ns", 2),
];

/// The listing `golden/NAME.ppl.zst`.
pub fn golden(folder: &Path, name: &str) -> String {
    let path = folder.join("golden").join(format!("{name}.ppl.zst"));
    unpack(&path)
}

/// A file compressed with zstd, as text.
pub fn unpack(path: &Path) -> String {
    let file =
        std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new(std::io::BufReader::new(file)).expect("zstd");
    let mut bytes = Vec::new();
    decoder.read_to_end(&mut bytes).expect("zstd");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The lines of packets in a listing: offset, ID, bytes, text.
pub fn packet_lines(listing: &str) -> Vec<&str> {
    lines(listing)
        .filter(|line| line.contains("; [0x"))
        .collect()
}

/// The lines of elements in a listing.
pub fn element_lines(listing: &str) -> Vec<&str> {
    lines(listing)
        .filter(|line| line.contains("OCSD_GEN_TRC_ELEM_"))
        .collect()
}

/// Lines of packets and elements. The tool writes messages of its own before some of them, without a line break.
fn lines(listing: &str) -> impl Iterator<Item = &str> {
    listing.lines().filter_map(|line| {
        let at = line
            .match_indices("Idx:")
            .map(|(at, _)| at)
            .find(|&at| !line[..at].ends_with("Trc"))?;
        Some(&line[at..])
    })
}
