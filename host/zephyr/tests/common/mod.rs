//! Where the shared captures are, and dumps that no device sent, as one would: written from the description
//! of the records, without anything of the code under test.
#![allow(dead_code, reason = "every test binary uses another part of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use kymo_zephyr::{ByteOrder, Layout, PointerWidth, Record, RecordType};

/// The folder of Zephyr captures beside the checkout, if it is there.
///
/// Without it the tests that need it are skipped, loudly; on a build server they fail.
pub fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/zephyr");
    if folder.join("README.md").is_file() {
        return Some(folder);
    }
    assert!(
        std::env::var("CI").as_deref() != Ok("true"),
        "captures missing: {}",
        folder.display()
    );
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: no captures at {}",
        folder.display()
    );
    None
}

/// Traces of a microcontroller with names of 16 bytes.
pub const CORTEX_M: Layout = Layout {
    pointer: PointerWidth::Bits32,
    order: ByteOrder::Little,
    name_bytes: Some(16),
};

/// Traces of a 64-bit machine with several processors.
pub const CORTEX_A: Layout = Layout {
    pointer: PointerWidth::Bits64,
    order: ByteOrder::Little,
    name_bytes: Some(32),
};

/// A number as it stands in a record.
pub fn number(layout: &Layout, value: u64, bytes: usize) -> Vec<u8> {
    match layout.order {
        ByteOrder::Little => value.to_le_bytes()[..bytes].to_vec(),
        ByteOrder::Big => value.to_be_bytes()[8 - bytes..].to_vec(),
    }
}

/// A record of a trace; a name that is too long is cut, as by the target.
pub fn record(layout: &Layout, record: &Record<'_>) -> Vec<u8> {
    let pointer = layout.pointer.bytes();
    let kind = match record.kind {
        RecordType::Entry => 0,
        RecordType::Exit => 1,
        RecordType::SwitchedIn => 3,
        RecordType::SwitchedOut => 4,
    };
    let bits = match layout.order {
        ByteOrder::Little => record.priority_bits | record.cpu << 3,
        ByteOrder::Big => record.priority_bits << 5 | record.cpu,
    };
    let mut name = record.name.to_vec();
    name.resize(layout.name_bytes.unwrap(), 0);
    [
        vec![kind],
        number(layout, record.callee, pointer),
        number(layout, record.caller, pointer),
        number(layout, record.time_ns, 8),
        vec![bits],
        number(layout, record.thread, pointer),
        name,
    ]
    .concat()
}

/// An entry of a profile.
pub fn entry(layout: &Layout, function: u64, total: u64) -> Vec<u8> {
    let function = number(layout, function, layout.pointer.bytes());
    [vec![2], function, number(layout, total, 8)].concat()
}

/// Records between the marks of a dump.
pub fn marked(records: &[Vec<u8>]) -> Vec<u8> {
    [b"-*-#".to_vec(), records.concat(), b"-*-!\r\n".to_vec()].concat()
}
