//! Comparison of the fast paths (header tables, fast payloads, field programs) with the generic decoder, which follows
//! the nodes: for random metadata, the traces of the shared data, and damaged copies of both.

use std::fs;
use std::sync::Arc;

use crate::random::{Kind, Random};
use kymo_ctf::metadata::Metadata;
use kymo_ctf::{Plan, fuzzing};

/// Reads a stream and a few damaged copies of it with both decoders.
fn compare(plan: &Arc<Plan>, stream: &[u8], random: &mut Random, copies: u32) -> usize {
    let slow = fuzzing::slow(plan.metadata()).expect("compiled before");
    let (quickly, slowly) = (
        fuzzing::reported(plan, stream),
        fuzzing::reported(&slow, stream),
    );
    for (index, (quickly, slowly)) in quickly.iter().zip(&slowly).enumerate() {
        assert_eq!(quickly, slowly, "line {index}");
    }
    assert_eq!(quickly.len(), slowly.len());
    for _ in 0..copies {
        let mut damaged = stream.to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(damaged.len().max(1) as u64) as usize;
            if let Some(byte) = damaged.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        damaged.truncate(damaged.len() - random.below(damaged.len().min(9) as u64 + 1) as usize);
        assert_eq!(
            fuzzing::reported(plan, &damaged),
            fuzzing::reported(&slow, &damaged)
        );
    }
    quickly.len()
}

#[test]
fn in_any_metadata() {
    let mut random = Random::new(11);
    let mut lines = 0;
    for round in 0..150 {
        let kind = [Kind::Ctf18, Kind::Ctf2][round % 2];
        let metadata = crate::random::metadata(&mut random, 40, kind);
        let plan = Arc::new(Plan::new(metadata).expect("metadata"));
        for class in 0..plan.metadata().streams.len() {
            let (stream, _) = crate::random::stream(&plan, class, &mut random, 60, 0);
            lines += compare(&plan, &stream, &mut random, 3);
        }
    }
    assert!(lines > 50_000, "{lines}");
}

#[test]
fn in_the_traces_of_the_collection() {
    let Some(data) = kymo_fixtures::captures::ctf() else {
        return;
    };
    let mut random = Random::new(12);
    let mut cases = crate::cases::cases(&data, crate::cases::Version::Ctf1);
    cases.extend(crate::cases::cases(&data, crate::cases::Version::Ctf2));
    let mut streams = 0;
    for case in cases {
        let folder = case.folder.join("trace");
        let Ok(metadata) = fs::read(folder.join("metadata")) else {
            continue;
        };
        let plan = Metadata::parse(&metadata).and_then(|parsed| Plan::new(parsed.metadata));
        let Ok(plan) = plan else { continue };
        let plan = Arc::new(plan);
        let files = fs::read_dir(&folder).expect("a folder").flatten();
        for file in files.filter(|file| file.path().is_file() && file.file_name() != "metadata") {
            let bytes = crate::cases::read(&file.path());
            if bytes.len() < 20_000 {
                compare(&plan, &bytes, &mut random, 2);
                streams += 1;
            }
        }
    }
    assert!(streams > 100, "{streams}");
}
