//! Losses that the kernel records, and trace that is missing behind a buffer.

use kymo_coresight::element::Unsynced;
use kymo_coresight::{perf, remarks};
use kymo_fixtures::perf_data::{AUX_COLLISION, AUX_RAW, AUX_TRUNCATED, PerfData};

use super::{Juno, THREAD};

#[test]
fn padding_behind_a_buffer_is_no_trace() {
    let Some(juno) = Juno::open() else { return };
    let missing = |more: &dyn Fn(&mut PerfData)| {
        let mut perf = juno.begin(1, false, false);
        // perf pads these 13 bytes to 16.
        perf.aux(THREAD, 0, 0, 13, AUX_RAW);
        perf.buffer(Some(THREAD), 0, 0, &[0x70; 13]);
        perf.aux(THREAD, 0, 13, 3, AUX_RAW);
        more(&mut perf);
        perf::read(&perf.file()).expect("a recording").missing
    };
    assert_eq!(missing(&|_| {}), 1);
    assert_eq!(
        missing(&|perf| perf.buffer(Some(THREAD), 0, 13, &[0x70; 3])),
        0
    );
}

#[test]
fn zeros_before_the_next_buffer_are_trace() {
    let Some(juno) = Juno::open() else { return };
    let missing = |next| {
        let mut perf = juno.begin(1, false, false);
        // Trace of its own that ends in a synchronization, which the next buffer continues.
        let bytes = [&[0x70; 13][..], &[0; 3]].concat();
        perf.aux(THREAD, 0, 0, 13, AUX_RAW);
        perf.aux(THREAD, 0, 13, 3, AUX_RAW);
        perf.buffer(Some(THREAD), 0, 0, &bytes);
        perf.buffer(Some(THREAD), 0, next, &[0x70; 8]);
        perf::read(&perf.file()).expect("a recording").missing
    };
    assert_eq!(missing(16), 0);
    assert_eq!(missing(24), 1);
}

/// A record of 16 bytes, of which the buffer has 8: the rest is missing, also where the next record's bytes are there.
#[test]
fn a_record_longer_than_its_buffer_loses_its_end() {
    let Some(juno) = Juno::open() else { return };
    let recording = |size| {
        let mut perf = juno.begin(1, false, false);
        perf.aux(THREAD, 0, 0, size, AUX_RAW);
        perf.aux(THREAD, 0, 16, 8, AUX_RAW);
        perf.buffer(Some(THREAD), 0, 0, &[0x70; 8]);
        perf.buffer(Some(THREAD), 0, 16, &[0x70; 8]);
        perf::read(&perf.file()).expect("a recording")
    };
    assert_eq!(recording(8).missing, 0);
    let cut = recording(16);
    assert_eq!(cut.missing, 1);
    let remarks = remarks::of_recording(&cut, &[]);
    let said = |text: &str| remarks.iter().any(|remark| remark.text.starts_with(text));
    assert!(
        said("1 AUX record left out, in whole or from some byte on"),
        "{remarks:?}"
    );
    let loses = |recording: &perf::Recording| {
        let streams = recording.buffers.iter().flat_map(|it| &it.frames.streams);
        let at_ends = streams.filter_map(|it| it.lost_at_end());
        at_ends.collect::<Vec<_>>()
    };
    assert_eq!(loses(&recording(8)), []);
    assert_eq!(loses(&cut), [Unsynced::Truncated]);
}

#[test]
fn losses_of_the_kernel_are_said_with_their_times() {
    let Some(juno) = Juno::open() else { return };
    let mut perf = juno.begin(1, true, false);
    perf.at(1_500_000_000).lost(0, 29);
    perf.at(1_700_000_000).lost(0, 13);
    perf.at(1_800_000_000).lost_samples(5, 0);
    // Left out by a filter, thus not lost; and a record of perf itself, without a time.
    perf.at(1_100_000_000).lost_samples(7, 1 << 15);
    perf.at(0).lost_samples(3, 0);
    let flags = AUX_COLLISION | AUX_TRUNCATED;
    perf.at(1_900_000_000).aux(THREAD, 0, 0, 0, flags);
    let recording = perf::read(&perf.file()).expect("a recording");
    let texts: Vec<String> = remarks::of_recording(&recording, &[])
        .into_iter()
        .map(|remark| remark.text)
        .filter(|text| text.starts_with("the kernel lost"))
        .collect();
    assert_eq!(
        texts,
        [
            "the kernel lost trace: the buffer had no room (flag of AUX records: truncated), first recorded at 1.900000000 s of \
             the kernel's clock",
            "the kernel lost trace: something else used the trace unit (flag of AUX records: collision), first recorded at 1.900000000 s \
             of the kernel's clock",
            "the kernel lost 42 records of its own, 2 times, first recorded at 1.500000000 s of the kernel's clock: processes, \
             mappings, switches or trace may be missing before, so that code or threads are unknown or those of before the loss",
            "the kernel lost 8 samples, 2 times, first recorded at 1.800000000 s of the kernel's clock",
        ]
    );
}
