//! System calls in LTTng's kernel traces whose thread or exit is not known.

use std::path::Path;

use kymo_event::{Batch, Duration, EventKind, Gap, RowKind, Time};
use kymo_read::{Events, OpenOptions, open};

/// Writes a kernel's trace of one CPU, in which only switches identify the thread: times, and the numbers of events (0
/// for a switch to thread 8, 1 and 2 for the entry and exit of `read`, 3 and 4 for the entries of `rt_sigreturn` and
/// `write`).
fn without_contexts(folder: &Path, events: &[(u64, u32)]) {
    let word = "integer { size = 32; }";
    let mut text = format!(
        "/* CTF 1.8 */
        trace {{ major = 1; minor = 8; byte_order = le;
            packet.header := struct {{ {word} magic; {word} stream_id; }}; }};
        env {{ tracer_name = \"lttng-modules\"; domain = \"kernel\"; }};
        clock {{ name = monotonic; freq = 1000000000; }};
        stream {{ id = 0;
            packet.context := struct {{ {word} cpu_id; }};
            event.header := struct {{ {word} id;
                integer {{ size = 64; map = clock.monotonic.value; }} timestamp; }};
        }};
        event {{ id = 0; stream_id = 0; name = \"sched_switch\";
            fields := struct {{ {word} prev_tid; {word} next_tid; }}; }};"
    );
    let names = [
        "entry_read",
        "exit_read",
        "entry_rt_sigreturn",
        "entry_write",
    ];
    for (id, name) in (1..).zip(names) {
        text += &format!(
            "event {{ id = {id}; stream_id = 0; name = \"syscall_{name}\";
            fields := struct {{ {word} a; {word} b; }}; }};"
        );
    }
    std::fs::write(folder.join("metadata"), text).unwrap();
    let mut stream = [0xC1FC_1FC1_u32, 0, 0].map(u32::to_le_bytes).concat();
    for (time, id) in events {
        stream.extend(id.to_le_bytes());
        stream.extend(time.to_le_bytes());
        stream.extend([7_u32, 8].map(u32::to_le_bytes).concat());
    }
    std::fs::write(folder.join("chan_0"), stream).unwrap();
}

/// The begins and ends of calls in a trace: time, kind, and the duration if an event states it.
fn calls(folder: &Path) -> Vec<(i64, RowKind, Option<u64>)> {
    let mut source = open(folder, &OpenOptions::default()).unwrap();
    let (mut batch, mut calls) = (Batch::default(), Vec::new());
    while source.fill(&mut batch).unwrap() {
        let rows = batch.rows().iter();
        let rows = rows.filter(|row| matches!(row.kind, RowKind::Enter | RowKind::Exit));
        calls.extend(rows.map(|row| {
            let whole = row.wall().map(|took| took.0);
            (row.time.0, row.kind, whole)
        }));
    }
    calls
}

/// As long as the thread on a CPU is unknown, an entry and an exit are a system call only if nothing is between them.
/// Otherwise calls of several threads would nest without end.
#[test]
fn system_calls_of_unknown_threads_do_not_nest() {
    let folder = tempfile::tempdir().unwrap();
    // The second `read` waits, and another thread writes meanwhile.
    let events = [(10, 1), (20, 2), (30, 1), (40, 4), (50, 2)];
    // After the switch the thread is known.
    let behind = [(60, 1), (70, 0), (80, 2), (90, 1), (95, 2)];
    without_contexts(folder.path(), &[&events[..], &behind].concat());
    let (enter, exit) = (RowKind::Enter, RowKind::Exit);
    let expected = [
        (20, exit, Some(10)),
        (80, exit, None),
        (90, enter, None),
        (95, exit, None),
    ];
    assert_eq!(calls(folder.path()), expected);
}

/// `rt_sigreturn` has no exit of its own: the thread continues where the signal interrupted it.
#[test]
fn a_return_from_a_signal_holds_no_other_call() {
    let folder = tempfile::tempdir().unwrap();
    without_contexts(folder.path(), &[(10, 0), (20, 3), (30, 1), (40, 2)]);
    let mut source = open(folder.path(), &OpenOptions::default()).unwrap();
    let events = Events::new(&mut *source).map(Result::unwrap);
    let missing = events.filter(|event| {
        let ago = Duration(0);
        event.kind == EventKind::Gap(Gap::MissingExit { ago }) && event.time == Time(20)
    });
    assert_eq!(missing.count(), 1);
}
