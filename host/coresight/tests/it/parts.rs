//! Tests that counts depend neither on the number of threads nor on the positions at which a stream is split.

use kymo_coresight::counts::{self, Cut};
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::input::{self, Buffer, Given};
use kymo_coresight::selection::Selection;

use super::data;

/// Buffers of all snapshots, by their names.
fn buffers() -> Option<Vec<(String, Buffer)>> {
    let folder = data::folder()?.join("snapshots");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("snapshots") {
        let path = entry.expect("an entry").path();
        if !path.join("snapshot.ini").is_file() {
            continue;
        }
        let name = path.file_name().expect("a name").to_string_lossy();
        let (buffers, _) = input::open_snapshot(&path, &Given::default()).expect("a snapshot");
        all.extend(buffers.into_iter().map(|buffer| (name.to_string(), buffer)));
    }
    assert!(all.len() >= 38, "{} buffers", all.len());
    Some(all)
}

#[test]
fn counts_are_the_same_on_any_number_of_threads() {
    let Some(buffers) = buffers() else { return };
    let (options, all) = (EtmV4Options::default(), Selection::default());
    let mut cut_streams = 0;
    let mut joined = 0;
    for (name, buffer) in &buffers {
        let count = |threads, least| {
            let cut = Cut { threads, least };
            counts::of_buffer_cut(buffer, options, &all, cut, |_| true)
        };
        let whole = count(1, 1);
        for (threads, least) in [(2, 1 << 20), (2, 3000), (4, 700), (13, 1)] {
            let parts = count(threads, least);
            assert_eq!(whole.len(), parts.len(), "{name}");
            for ((source, counts, _), (same, others, parts)) in whole.iter().zip(&parts) {
                assert_eq!(source, same, "{name}");
                assert_eq!(counts.ranges, others.ranges, "{name}, {threads} threads");
                assert_eq!(
                    counts.instructions, others.instructions,
                    "{name}, {threads} threads"
                );
                assert!(counts == others, "{name}, {threads} threads: other counts");
                cut_streams += usize::from(*parts > 1);
                joined += parts - 1;
            }
        }
    }
    // With fewer the test would check nothing.
    assert!(
        cut_streams >= 20 && joined >= 200,
        "{joined} joints in {cut_streams} streams"
    );
}
