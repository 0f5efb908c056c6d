//! Events chosen by name when a CTF trace is opened: only these are built, and all others are still counted.

use kymo_event::{Batch, Choice, Event, EventKind, Pattern};
use kymo_fixtures::captures;
use kymo_read::{OpenOptions, open};

fn read(path: &std::path::Path, events: Choice) -> Batch {
    let options = OpenOptions {
        events,
        ..OpenOptions::default()
    };
    let mut source = open(path, &options).expect("a trace");
    let (mut all, mut batch) = (Batch::default(), Batch::default());
    while source.fill(&mut batch).expect("a whole trace") {
        batch.iter().for_each(|event| all.push_ref(event));
    }
    all
}

fn choice(keep: &[&str], drop: &[&str]) -> Choice {
    let patterns = |list: &[&str]| list.iter().copied().map(Pattern::new).collect();
    Choice {
        keep: patterns(keep),
        drop: patterns(drop),
    }
}

#[test]
fn events_with_other_names_are_rows_alone() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let path = data.join("ctf_native_sample/trace");
    let all = read(&path, Choice::default());
    for chosen in [
        choice(&["thread_*"], &[]),
        choice(&["thread_*", "idle"], &["thread_create"]),
    ] {
        let some = read(&path, chosen.clone());
        assert_eq!(some.rows().len(), all.rows().len());
        let (mut built, mut others) = (0, 0);
        for (event, whole) in some.iter().zip(all.iter()) {
            let (found, whole) = (event.to_event(), whole.to_event());
            let meaning = |event: &Event| (event.time, event.thread, event.kind.clone());
            assert_eq!(meaning(&found), meaning(&whole));
            if !whole.record || matches!(whole.kind, EventKind::Marker { .. }) {
                continue;
            }
            if chosen.wants(&whole.name) {
                assert_eq!(found, whole);
                built += 1;
            } else {
                assert!(found.name.is_empty() && found.fields.is_empty());
                others += 1;
            }
        }
        assert!(built > 10 && others > 10, "{built} {others}");
    }
}

/// Events without a name are among the chosen ones, so all have to have theirs.
#[test]
fn a_choice_that_only_drops_builds_all() {
    let Some(data) = captures::zephyr_with_metadata() else {
        return;
    };
    let path = data.join("ctf_native_sample/trace");
    let all = read(&path, Choice::default());
    let some = read(&path, choice(&[], &["thread_*"]));
    assert!(
        all.iter()
            .zip(some.iter())
            .all(|(a, b)| a.to_event() == b.to_event())
    );
}
