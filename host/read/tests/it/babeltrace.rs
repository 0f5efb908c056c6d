//! Comparison with another reader: babeltrace2 reads our trace directories without a warning, and finds the same events
//! at the same times.

use std::path::Path;
use std::process::Command;

use kymo_event::Addr;
use kymo_fixtures::recorder::{TEXT_BASE, identity, layouts, small};
use kymo_fixtures::{babeltrace, missing};
use kymo_read::kymo::{Dump, Program, write_trace};

/// Compares every layout, with this babeltrace2.
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
        let program = Program {
            functions: names.collect(),
            ..Program::default()
        };
        write_trace(folder.path(), &dump, &program).unwrap();

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
        Err(error) => missing(&format!("babeltrace2 cannot be run: {error}")),
    }
}

#[test]
fn babeltrace_2_1_agrees() {
    let Some(command) = kymo_fixtures::babeltrace::version_2_1() else {
        return;
    };
    every_layout(&command);
}
