//! Cases of the shared CTF test data.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads a file that must exist.
pub fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One trace of the collection.
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
    /// Whether the authors of the case expect success.
    pub passes: bool,
    /// Exit code of the babeltrace2 that supports this version of CTF: 2.0.4 for 1.8, 2.1.3 for 2.
    pub babeltrace: i64,
    /// Name of the file with that babeltrace2's output, without `.gz`.
    golden: &'static str,
}

impl Case {
    /// The directory of the trace, which is unpacked into `scratch` if it is an archive.
    pub fn trace(&self, scratch: &Path) -> PathBuf {
        let plain = self.folder.join("trace");
        if plain.is_dir() {
            return plain;
        }
        let target = scratch.join(self.name.replace('/', "_"));
        fs::create_dir_all(&target).expect("scratch folder");
        let packed = self.folder.join("trace.tar.gz");
        let status = Command::new("tar")
            .arg("-xzf")
            .arg(packed)
            .arg("-C")
            .arg(&target)
            .status()
            .expect("tar");
        assert!(status.success(), "{}", self.name);
        target.join("trace")
    }

    /// The lines that babeltrace2 printed, if it could read the trace.
    pub fn golden(&self) -> Option<Vec<u8>> {
        let plain = self.folder.join(self.golden);
        if plain.is_file() {
            return Some(read(&plain));
        }
        let packed = self.folder.join(format!("{}.gz", self.golden));
        packed.is_file().then(|| {
            let output = Command::new("gzip")
                .arg("-dc")
                .arg(packed)
                .output()
                .expect("gzip");
            output.stdout
        })
    }
}

/// A version of CTF.
#[derive(Clone, Copy)]
pub enum Version {
    Ctf1,
    Ctf2,
}

/// All cases of a CTF version.
pub fn cases(data: &Path, version: Version) -> Vec<Case> {
    let (number, reader, golden) = match version {
        Version::Ctf1 => (1, "bt20", "golden-bt20.txt"),
        Version::Ctf2 => (2, "bt21", "golden-bt21.txt"),
    };
    let list: serde_json::Value =
        serde_json::from_slice(&read(&data.join("cases.json"))).expect("JSON");
    let list = list.as_object().expect("an object").iter();
    list.filter(|(_, case)| case["ctf"] == number)
        .map(|(name, case)| Case {
            name: name.clone(),
            folder: data.join(name),
            passes: case["expect"] == "pass",
            babeltrace: case[reader]["rc"].as_i64().unwrap_or(-1),
            golden,
        })
        .collect()
}
