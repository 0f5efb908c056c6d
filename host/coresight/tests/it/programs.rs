//! Programs at equal addresses: processes on one CPU, fork, exec, files mapped over one another. The two files have
//! three and two instructions, so that the instruction count identifies the file that ran.

use kymo_coresight::counts::{self, Counts};
use kymo_coresight::element::Unsynced;
use kymo_coresight::flow::EtmV4Options;
use kymo_coresight::memory::Bytes;
use kymo_coresight::perf::{self, NotFound};
use kymo_coresight::remarks;
use kymo_coresight::selection::Selection;
use kymo_fixtures::etmv4::{Trace, recording, recording_by};
use kymo_fixtures::perf_data::{AUX_RAW, AUX_TRUNCATED, PerfData};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;

/// Address of both files.
const HERE: u64 = 0x40_0000;

/// The code of a file by its name.
fn code(path: &str) -> Option<Vec<u8>> {
    let words: &[u32] = match path {
        "/three" => &[NOP, NOP, RET],
        "/two" => &[NOP, RET],
        _ => return None,
    };
    Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Number of executions at addresses without an image.
fn nowhere(counts: &Counts) -> u64 {
    let places = counts.doubts.not_accessible.values();
    places.map(|it| it.count).sum()
}

/// Number of instructions in each thread's runs.
fn count(perf: PerfData) -> (Vec<(Option<u32>, u32, u64)>, Counts) {
    let mut recording = perf::read(&perf.file()).expect("a recording");
    recording.load(|mapping| {
        let file = Bytes::from(code(&mapping.path).ok_or(NotFound::Nothing)?);
        Ok(vec![mapping.image(&file)])
    });
    let mut all = Counts::default();
    for buffer in &recording.buffers {
        let (options, selection) = (EtmV4Options::default(), Selection::default());
        for (_, counts) in counts::of_buffer(buffer, options, &selection, 1, |_| true) {
            all.add(counts);
        }
    }
    let runs = all.runs.iter();
    let mut ran: Vec<_> = runs
        .map(|run| (run.thread, run.count, run.executions))
        .collect();
    ran.sort_unstable();
    (ran, all)
}

/// One session of the CPU, up to 9000 ns.
fn session(mut perf: PerfData, trace: &Trace) -> PerfData {
    let size = trace.bytes.len() as u64;
    perf.at(9000).aux(0, 0, 0, size, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    perf
}

#[test]
fn processes_at_equal_addresses_are_told_apart_by_context_ids() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(2100).mapping(2, HERE, 0x1000, 0, "/two");
    });
    let trace = Trace::new(true).run(1, HERE).run(2, HERE).run(1, HERE);
    let (ran, _) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 3, 2), (Some(2), 2, 1)]);
}

#[test]
fn processes_at_equal_addresses_are_told_apart_by_switches() {
    let perf = recording(false, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(2100).mapping(2, HERE, 0x1000, 0, "/two");
        perf.at(3000).switch(1, 0);
        perf.at(5000).switch(2, 0);
        perf.at(7000).switch(1, 0);
    });
    let mut trace = Trace::new(false);
    for time in [4000, 6000, 8000] {
        trace = trace.time(time).run(0, HERE);
    }
    let (ran, _) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 3, 2), (Some(2), 2, 1)]);
}

/// A recording without context IDs of two programs at one address, with three and two instructions.
fn without_ids(switches: impl FnOnce(&mut PerfData)) -> PerfData {
    recording(false, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(2100).mapping(2, HERE, 0x1000, 0, "/two");
        switches(perf);
    })
}

#[test]
fn a_switch_between_two_times_is_where_tracing_begins_again() {
    let perf = without_ids(|perf| {
        perf.at(3000).switch_of_cpu((0, 1), 0);
        perf.at(5000).switch_of_cpu((1, 2), 0);
    });
    let trace = Trace::new(false).time(4000).run(0, HERE).on();
    let trace = trace.run(0, HERE).time(6000).run(0, HERE);
    let (ran, _) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 3, 1), (Some(2), 2, 2)]);
}

#[test]
fn what_may_be_of_several_threads_has_none() {
    let trace = Trace::new(false).time(4000).run(0, HERE).on();
    let trace = trace.run(0, HERE).on().run(0, HERE).time(6000);
    let of = |between| {
        let perf = without_ids(|perf| {
            perf.at(3000).switch_of_cpu((0, 1), 0);
            perf.at(5000).switch_of_cpu((1, between), 0);
            perf.at(5500).switch_of_cpu((between, 1), 0);
        });
        count(session(perf, &trace)).0
    };
    assert_eq!(of(2), [(None, 3, 1), (Some(1), 3, 2)]);
    // The idle task runs no user code.
    assert_eq!(of(0), [(Some(1), 3, 3)]);
}

#[test]
fn lost_records_end_what_is_known_of_a_cpu() {
    let trace = Trace::new(false).time(3500).run(0, HERE);
    let trace = trace.time(6000).run(0, HERE).time(9000);
    let of = |is_lost: bool| {
        let perf = without_ids(|perf| {
            perf.at(3000).switch_of_cpu((0, 1), 0);
            perf.at(4000).mapping(1, 2 * HERE, 0x1000, 0, "/three");
            if is_lost {
                // For example the record of the switch to another thread.
                perf.at(7000).lost(0, 1);
            }
            perf.at(8000).switch_of_cpu((2, 1), 0);
        });
        let ran = count(session(perf, &trace)).0;
        let mut threads: Vec<_> = ran.iter().map(|(thread, ..)| *thread).collect();
        threads.dedup();
        threads
    };
    assert_eq!(of(false), [Some(1)]);
    // When the first run begins, the switch is the last known one.
    assert_eq!(of(true), [None, Some(1)]);
}

#[test]
fn a_dead_thread_is_one_that_is_traced() {
    const DEAD: u32 = u32::MAX;
    let trace = Trace::new(false).time(4000).run(0, HERE).on();
    let trace = trace.run(0, HERE).on().run(0, HERE).time(6000);
    let of = |switches: &dyn Fn(&mut PerfData)| {
        let ran = count(session(without_ids(switches), &trace)).0;
        ran.iter().map(|(thread, ..)| *thread).collect::<Vec<_>>()
    };
    // It ran user code before its exit, up to the first switch.
    let before = of(&|perf| {
        perf.at(5000).switch_of_cpu((DEAD, 1), 0);
    });
    assert_eq!(before, [None, Some(1)]);
    // After its exit it runs kernel code only.
    let behind = of(&|perf| {
        perf.at(3000).switch_of_cpu((0, 1), 0);
        perf.at(5000).switch_of_cpu((1, DEAD), 0);
        perf.at(5500).switch_of_cpu((DEAD, 1), 0);
    });
    assert_eq!(behind, [Some(1)]);
}

#[test]
fn a_program_that_runs_as_thread_0_is_not_the_idle_task() {
    let trace = Trace::new(false).time(4000).run(0, HERE).time(5000);
    let trace = trace.time(7000).run(0, HERE).on().run(0, HERE).on();
    let trace = trace.run(0, HERE).time(9000);
    let perf = without_ids(|perf| {
        perf.at(3000).switch_of_cpu((1, 0), 0);
        perf.at(6000).switch_of_cpu((0, 1), 0);
        perf.at(8000).switch_of_cpu((1, 0), 0);
        perf.at(8500).switch_of_cpu((0, 1), 0);
    });
    let (ran, _) = count(session(perf, &trace));
    let threads: Vec<_> = ran
        .iter()
        .map(|(thread, _, times)| (*thread, *times))
        .collect();
    // Thread 0 runs user code, so it may also have run at the other time.
    assert_eq!(threads, [(None, 1), (None, 1), (Some(1), 2)]);
}

#[test]
fn a_timestamp_outside_of_its_session_says_nothing() {
    let trace = |time| Trace::new(false).time(time).run(0, HERE);
    let of = |time| {
        let perf = without_ids(|perf| {
            perf.at(3000).start(1, 0);
            perf.at(8000).switch_of_cpu((1, 2), 0);
        });
        count(session(perf, &trace(time))).0
    };
    assert_eq!(of(4000), [(Some(1), 3, 1)]);
    // The session ends at 9000 ns.
    assert_eq!(of(50_000)[0].0, None);
}

#[test]
fn context_ids_of_0_are_none() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(2100).mapping(2, HERE, 0x1000, 0, "/two");
        perf.at(3000).switch(1, 0);
        perf.at(5000).switch(2, 0);
    });
    let trace = Trace::new(true).time(4000).run(0, HERE).time(6000);
    let (ran, _) = count(session(perf, &trace.run(0, HERE)));
    assert_eq!(ran, [(Some(1), 3, 1), (Some(2), 2, 1)]);
}

#[test]
fn without_timestamps_a_session_is_of_the_only_thread_that_ran() {
    let trace = Trace::new(false).run(0, HERE);
    let of = |switches: &dyn Fn(&mut PerfData)| count(session(without_ids(switches), &trace)).0;
    let start = |perf: &mut PerfData| perf.at(3000).start(2, 0);
    assert_eq!(of(&start), [(Some(2), 2, 1)]);
    // With tracing per thread, other threads that run after a traced one are not traced.
    let traced = |perf: &mut PerfData| {
        perf.at(3000).start(2, 0);
        perf.at(5000).switch_out(2, 0);
    };
    assert_eq!(of(&traced), [(Some(2), 2, 1)]);
    let wide = |perf: &mut PerfData| {
        perf.at(3000).start(2, 0);
        perf.at(5000).switch_of_cpu((2, 1), 0);
    };
    assert_eq!(of(&wide)[0].0, None);
    let idle = |perf: &mut PerfData| {
        perf.at(3000).start(2, 0);
        perf.at(5000).switch_of_cpu((2, 0), 0);
    };
    assert_eq!(of(&idle), [(Some(2), 2, 1)]);
}

#[test]
fn what_has_no_thread_is_reported() {
    let perf = without_ids(|perf| {
        perf.at(3000).start(1, 0);
        perf.at(5000).switch_of_cpu((1, 2), 0);
    });
    let perf = session(perf, &Trace::new(false).run(0, HERE));
    let mut recording = perf::read(&perf.file()).expect("a recording");
    recording.load(|_| Err(NotFound::Nothing));
    let remarks = remarks::of_recording(&recording, &[]);
    let text = remarks.last().expect("a remark").to_string();
    let expected = "the trace has no context IDs: threads are those that the kernel switched to, by the times of its records; \
                    100 % of it has no thread, as several may have run there";
    assert_eq!(text, expected);
}

#[test]
fn a_recording_that_does_not_name_its_clock_says_why_there_is_no_thread() {
    let perf = recording_by(None, 1, false, |perf| {
        perf.at(1000).comm(1, "first");
        perf.at(3000).start(1, 0);
        perf.at(5000).switch_of_cpu((1, 2), 0);
    });
    let trace = Trace::new(false).time(3500).run(0, HERE).time(4000);
    let perf = session(perf, &trace);
    let mut recording = perf::read(&perf.file()).expect("a recording");
    recording.load(|_| Err(NotFound::Nothing));
    let remarks = remarks::of_recording(&recording, &[]);
    let text = remarks.last().expect("a remark").to_string();
    assert!(
        text.contains("100 % of it has no thread, as the recording does not say"),
        "{text}"
    );
    assert!(text.contains("TS_SOURCE"), "{text}");
}

#[test]
fn an_exec_replaces_what_was_mapped() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(2100).mapping(1, 2 * HERE, 0x1000, 0, "/three");
        perf.at(5000).exec(1, "other");
        perf.at(5100).mapping(1, HERE, 0x1000, 0, "/two");
    });
    let trace = Trace::new(true)
        .time(4000)
        .run(1, HERE)
        .run(1, 2 * HERE)
        .time(6000)
        .run(1, HERE)
        .run(1, 2 * HERE);
    let (ran, counts) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 2, 1), (Some(1), 3, 1), (Some(1), 3, 1)]);
    // No mapping of the old program remains.
    assert_eq!(nowhere(&counts), 1);
}

#[test]
fn an_exec_at_a_time_that_no_trace_has_is_reported() {
    let sideband = |path: &'static str| {
        recording(true, move |perf| {
            perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
            perf.at(5000).exec(1, "other");
            perf.at(5100).mapping(1, HERE, 0x1000, 0, path);
        })
    };
    let remarks = |path| {
        let trace = Trace::new(true).run(1, HERE);
        let perf = session(sideband(path), &trace);
        let mut recording = perf::read(&perf.file()).expect("a recording");
        recording.load(|mapping| {
            let file = Bytes::from(code(&mapping.path).ok_or(NotFound::Nothing)?);
            Ok(vec![mapping.image(&file)])
        });
        let remarks = remarks::of_images(&recording.buffers);
        remarks.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = "process 1 executed another program, and nothing relates the trace's times to the recording's: from 0x400000 on, \
                    where both have code, that of /three is read until code runs that only /two has";
    assert_eq!(remarks("/two"), [expected]);
    // The same file has the same code.
    assert_eq!(remarks("/three"), [""; 0]);
}

#[test]
fn a_file_mapped_over_another_one_is_there_from_then_on() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(5000).mapping(1, HERE, 0x1000, 0, "/two");
        perf.at(7000).mapping(1, HERE, 0x1000, 0, "/gone");
    });
    let mut trace = Trace::new(true);
    for time in [4000, 4500, 6000, 8000] {
        trace = trace.time(time).run(1, HERE);
    }
    let (ran, counts) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 2, 1), (Some(1), 3, 2)]);
    // The last mapping has no file. The earlier file at the address must not be used instead.
    assert_eq!(nowhere(&counts), 1);
}

#[test]
fn a_child_keeps_what_its_parent_had() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(3000).fork(2, 1);
        perf.at(4000).mapping(1, HERE, 0x1000, 0, "/two");
        perf.at(4100).fork(3, 2);
    });
    let trace = Trace::new(true)
        .time(5000)
        .run(1, HERE)
        .run(2, HERE)
        .run(3, HERE);
    let (ran, _) = count(session(perf, &trace));
    assert_eq!(ran, [(Some(1), 2, 1), (Some(2), 3, 1), (Some(3), 3, 1)]);
}

#[test]
fn what_is_mapped_within_a_session_is_there_when_it_runs() {
    // There are no timestamps: all trace is one session, in which both were mapped.
    let perf = recording(true, |perf| {
        perf.at(2000).start(1, 0);
        perf.at(5000).mapping(1, HERE, 0x1000, 0, "/three");
        perf.at(6000).mapping(1, 2 * HERE, 0x1000, 0, "/two");
    });
    let trace = Trace::new(true).run(1, HERE).run(1, 2 * HERE).run(1, HERE);
    let (ran, counts) = count(session(perf, &trace));
    let by_length: Vec<_> = [2, 3]
        .iter()
        .map(|length| {
            let own = ran.iter().filter(|(_, count, _)| count == length);
            own.map(|(_, _, executions)| executions).sum::<u64>()
        })
        .collect();
    assert_eq!(by_length, [1, 2]);
    assert!(counts.doubts.not_accessible.is_empty());
}

#[test]
fn what_is_mapped_behind_a_session_is_not_in_it() {
    let perf = recording(true, |perf| {
        perf.at(2000).mapping(1, 2 * HERE, 0x1000, 0, "/two");
    });
    let trace = Trace::new(true).run(1, HERE);
    let mut perf = session(perf, &trace);
    perf.at(9500).mapping(1, HERE, 0x1000, 0, "/three");
    let (ran, counts) = count(perf);
    assert_eq!(ran, []);
    assert_eq!(counts.doubts.not_accessible.len(), 1);
}

#[test]
fn what_the_recorder_lost_is_a_gap_between_sessions() {
    let mut perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let trace = Trace::new(true).run(1, HERE);
    let size = trace.bytes.len() as u64;
    perf.at(3000).aux(0, 0, 0, size, AUX_RAW | AUX_TRUNCATED);
    perf.at(5000).aux(0, 0, size, size, AUX_RAW);
    perf.at(7000).aux(0, 0, 2 * size, 0, AUX_TRUNCATED);
    let twice = [&trace.bytes[..], &trace.bytes].concat();
    perf.buffer(None, 0, 0, &twice);
    let (ran, counts) = count(perf);
    assert_eq!(ran, [(Some(1), 3, 2)]);
    // One after each session; the second one is at the end of the trace.
    let lost = counts.doubts.unsynced.get(&Unsynced::Truncated);
    assert_eq!(
        lost.map(|place| (place.count, place.offset)),
        Some((2, size))
    );
}

#[test]
fn a_loss_between_two_buffers_is_counted() {
    let mut perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let trace = Trace::new(true).run(1, HERE);
    let size = trace.bytes.len() as u64;
    perf.at(3000).aux(0, 0, 0, size, AUX_RAW);
    // It has no bytes, and the offset of the second buffer.
    perf.at(4000).aux(0, 0, size, 0, AUX_TRUNCATED);
    perf.at(5000).aux(0, 0, size, size, AUX_RAW);
    perf.buffer(None, 0, 0, &trace.bytes);
    perf.buffer(None, 0, size, &trace.bytes);
    let (ran, counts) = count(perf);
    assert_eq!(ran, [(Some(1), 3, 2)]);
    let lost = counts.doubts.unsynced.get(&Unsynced::Truncated);
    assert_eq!(lost.map(|place| place.count), Some(1));
}

/// Consecutive sessions of these bytes.
fn sessions(pieces: &[&[u8]], flags: u64) -> PerfData {
    let mut perf = recording(true, |perf| {
        perf.at(2000).mapping(1, HERE, 0x1000, 0, "/three");
    });
    let mut offset = 0;
    for (piece, time) in pieces.iter().zip((3000..).step_by(1000)) {
        let size = piece.len() as u64;
        perf.at(time).aux(0, 0, offset, size, AUX_RAW | flags);
        offset += size;
    }
    perf.buffer(None, 0, 0, &pieces.concat());
    perf
}

#[test]
fn records_that_adjoin_are_one_trace() {
    let resets = |counts: &Counts| {
        let resets = counts.doubts.unsynced.get(&Unsynced::Reset);
        resets.map_or(0, |place| place.count)
    };
    let whole = Trace::new(true).run(1, HERE).run(1, HERE).run(1, HERE);
    // The second one begins in the middle of a packet.
    let (first, second) = whole.bytes.split_at(whole.bytes.len() - 24);
    let (ran, counts) = count(sessions(&[first, second], 0));
    assert_eq!((ran, resets(&counts)), (vec![(Some(1), 3, 3)], 0));
    // The instructions of the lost part are missing.
    let (ran, counts) = count(sessions(&[first, second], AUX_TRUNCATED));
    assert_eq!(ran.iter().map(|(.., count)| count).sum::<u64>(), 1);
    assert!(counts.doubts.unsynced.contains_key(&Unsynced::Truncated));
    // The trace unit was restarted, as the synchronization shows.
    let again = Trace::new(true).run(1, HERE);
    let bytes = perf::read(&sessions(&[&whole.bytes, &again.bytes], 0).file());
    let recording = bytes.expect("a recording");
    let segments = recording.buffers[0].frames.streams[0].segments();
    let segments: Vec<_> = segments.map(|it| (it.start, it.goes_on)).collect();
    assert_eq!(segments, [(0, false), (whole.bytes.len(), true)]);
    let (ran, _) = count(sessions(&[&whole.bytes, &again.bytes], 0));
    assert_eq!(ran, [(Some(1), 3, 4)]);
}
