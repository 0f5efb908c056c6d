//! What we write, another reader takes: babeltrace2 reads our trace directories without a
//! warning, and finds the same events at the same times.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{TEXT_BASE, babeltrace, identity, layouts, skip, small};
use kymo_event::Addr;
use kymo_read::native::{Dump, write_trace};

/// Every layout through `command`.
fn every_layout(command: &Path) {
    for layout in layouts() {
        let (bytes, count) = small(layout);
        let identity = identity(layout);
        let dump = Dump {
            identity: &identity,
            bytes: &bytes,
            missing: &[],
            target: "a \"test\"",
        };
        let folder = tempfile::tempdir().unwrap();
        let names = [
            "main",
            "operator\"\"_x",
            "static",
            "static",
            "ns::f<int>(char*)",
        ];
        let names = (0..)
            .zip(names)
            .map(|(i, name)| (Addr(TEXT_BASE + i * 2), name));
        write_trace(folder.path(), &dump, names).unwrap();

        assert_eq!(
            babeltrace::agrees(command, folder.path(), 0),
            count,
            "{layout:?}"
        );
    }
}

#[test]
fn babeltrace_2_0_agrees() {
    let command = Path::new("babeltrace2");
    match Command::new(command).arg("--version").output() {
        Ok(_) => every_layout(command),
        Err(error) => skip(&format!("babeltrace2 cannot be run: {error}")),
    }
}

#[test]
fn babeltrace_2_1_agrees() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = root.join("../shared/tools/get-babeltrace21.sh");
    if !script.exists() {
        return skip(&format!("no {}", script.display()));
    }
    let Some(home) = std::env::var_os("HOME") else {
        return skip("no HOME to keep babeltrace2 2.1 in");
    };
    let folder = PathBuf::from(home).join(".cache/kymo/babeltrace21");
    let command = folder.join("babeltrace2");
    if !command.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let output = Command::new("timeout")
            .arg("300")
            .arg(&script)
            .arg(&folder)
            .output();
        if output.as_ref().is_ok_and(|output| !output.status.success()) || output.is_err() {
            return skip(&format!("babeltrace2 2.1 cannot be downloaded: {output:?}"));
        }
    }
    every_layout(&command);
}
