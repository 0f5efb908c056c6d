//! Tasks of SystemView recordings whose numbers are given to other tasks after their end.

use kymo_event::EventKind;
use kymo_read::{Events, OpenOptions, Source, open};
use kymo_systemview::{Packet, Text};

use crate::systemview::{read, recording};

fn info(name: &str) -> Packet<'_> {
    Packet::TaskInfo {
        task: 0x40,
        priority: 1,
        name: Text(name.as_bytes()),
    }
}

/// Names of the threads that were switched in, by the end of the recording.
fn names(source: &mut dyn Source) -> Vec<String> {
    let all: Vec<_> = Events::new(source).map(Result::unwrap).collect();
    switched_in(&all, source)
}

fn switched_in(all: &[kymo_event::Event], source: &dyn Source) -> Vec<String> {
    let identities = &source.info().identities;
    let switched = all.iter().filter(|it| it.kind == EventKind::SwitchedIn);
    let name = |it: &kymo_event::Event| identities.thread_name(it.thread?).map(str::to_owned);
    switched.map(|it| name(it).unwrap_or_default()).collect()
}

#[test]
fn a_task_with_the_number_of_an_earlier_one_is_another() {
    let bytes = recording(&[
        // It is there when recording begins.
        info("first"),
        Packet::TaskStartExec { task: 0x40 },
        Packet::Idle,
        Packet::TaskTerminate { task: 0x40 },
        Packet::TaskCreate { task: 0x40 },
        info("second"),
        Packet::TaskStartExec { task: 0x40 },
        Packet::Idle,
        // Its end was not recorded, and the next one never runs.
        Packet::TaskCreate { task: 0x40 },
        info("third"),
        Packet::TaskTerminate { task: 0x40 },
        Packet::TaskCreate { task: 0x40 },
        info("fourth"),
        Packet::TaskStartExec { task: 0x40 },
        Packet::Idle,
    ]);
    let expected = ["first", "second", "fourth"];
    let (all, source) = read(bytes.clone());
    assert_eq!(switched_in(&all, &*source), expected);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tasks.SVDat");
    std::fs::write(&path, bytes).expect("a file");
    let mut source = open(&path, &OpenOptions::default()).expect("a recording");
    assert_eq!(names(&mut *source), expected);
}

#[test]
fn a_task_that_is_created_while_recorded_is_one() {
    let (all, source) = read(recording(&[
        Packet::TaskCreate { task: 0x40 },
        info("only"),
        Packet::TaskStartReady { task: 0x40 },
        Packet::TaskStartExec { task: 0x40 },
        Packet::Idle,
        info("renamed"),
        Packet::TaskStartExec { task: 0x40 },
        Packet::Idle,
    ]));
    assert_eq!(switched_in(&all, &*source), ["renamed", "renamed"]);
}

/// The first packet with facts about the task is behind the end of the first one.
#[test]
fn a_task_without_a_name_does_not_get_that_of_a_later_one() {
    let task = 0x44;
    let (all, source) = read(recording(&[
        Packet::TaskStartExec { task },
        Packet::Idle,
        Packet::TaskTerminate { task },
        Packet::TaskCreate { task },
        Packet::TaskInfo {
            task,
            priority: 1,
            name: Text(b"second"),
        },
        Packet::TaskStartExec { task },
        Packet::Idle,
    ]));
    assert_eq!(switched_in(&all, &*source), ["", "second"]);
}
