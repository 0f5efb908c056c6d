//! Dumps with any content, with any kind of interruption, requested or not.

use std::collections::VecDeque;

use kymo_link::zephyr::{Dump, Ended};
use kymo_link::{Cancel, LinkError};
use kymo_zephyr_instrumentation::Kind;

use super::{COMES, Fake, LACKS, all, one, recognise, text_of, unhurt};
use kymo_fixtures::zephyr_target::recorded::{entries, record, records};
use kymo_fixtures::zephyr_target::{BANNER, Cut, State};

#[test]
fn data_that_contains_the_mark_is_not_cut() {
    // In an address, in a time followed by a line end, and in a name that fills its field.
    let mut all = records(40);
    all.extend(record(0, u32::from_le_bytes(*b"-*-!"), 40));
    let mut timed = record(1, 0x0800_0101, 0);
    timed[9..17].copy_from_slice(b"-*-!\r\n\0\0");
    all.extend(timed);
    let mut named = record(1, 0x0800_0101, 41);
    named[22..].copy_from_slice(&b"-*-!".repeat(8));
    all.extend(named);
    all.extend(records(40));
    let fake = Fake::start(State::new(all.clone(), entries(2)));
    let (mut target, _) = recognise(&fake, COMES);
    let dump = one(&mut target, Kind::Trace);
    assert_eq!(dump.ended, Ended::Whole);
    assert!(dump.body == all);
}

#[test]
fn what_arrived_of_a_dump_is_kept_however_it_breaks_off() {
    let all = records(200);
    std::thread::scope(|scope| {
        for at in [54 * 100, 54 * 100 + 17, 54 * 190, 20] {
            for cut in [Cut::Dead, Cut::Reboot, Cut::Close] {
                let all = &all;
                scope.spawn(move || breaks_off(all, at, cut));
            }
        }
    });
}

fn breaks_off(all: &[u8], at: usize, cut: Cut) {
    let fake = Fake::start(State {
        cut: Some((at, cut)),
        ..State::new(all.to_vec(), entries(2))
    });
    let (mut target, console) = recognise(&fake, LACKS);
    let dump = one(&mut target, Kind::Trace);
    let expected = matches!(
        (cut, &dump.ended),
        (Cut::Dead, Ended::Silent { .. })
            | (Cut::Reboot, Ended::Cut)
            | (Cut::Close, Ended::Disconnected(_))
    );
    assert!(expected, "{cut:?} at {at}: {:?}", dump.ended);
    // The bytes after a cut may look like the beginning of a record's text.
    assert!(all.starts_with(&dump.body), "{cut:?} at {at}");
    assert!(dump.body.len() + 8 >= at, "{cut:?} at {at}");
    drop(target);
    if cut == Cut::Reboot {
        assert!(text_of(&console).contains(BANNER.trim_end()), "{at}");
    }
}

#[test]
fn bytes_lost_in_the_middle_do_not_hide_the_end() {
    let all = records(200);
    for (at, lost) in [(54 * 100, 17), (3, 5), (54 * 199 + 20, 10)] {
        let fake = Fake::start(State {
            cut: Some((at, Cut::Lost(lost))),
            ..State::new(all.clone(), entries(2))
        });
        let (mut target, _) = recognise(&fake, LACKS);
        let dump = one(&mut target, Kind::Trace);
        let mut expected = all.clone();
        expected.drain(at..at + lost);
        assert_eq!(dump.ended, Ended::OutOfStep, "{lost} at {at}");
        assert!(dump.body == expected, "{lost} at {at}");
        assert!(one(&mut target, Kind::Profile).body == entries(2));
    }
}

#[test]
fn dumps_that_come_unasked_are_kept_in_order() {
    let unrequested = [records(300), records(100)];
    let fake = Fake::start(State::new(records(4), entries(2)));
    let (mut target, console) = recognise(&fake, COMES);
    fake.change(|state| state.unrequested = VecDeque::from(unrequested.clone()));
    // One dump arrives before each of these answers.
    assert!(target.status().unwrap().trace);
    let dumps = all(&mut target, Kind::Trace, &Cancel::new());
    let bodies: Vec<_> = dumps.iter().map(|dump| dump.body.clone()).collect();
    assert!(bodies == [records(300), records(100), records(4)]);
    assert!(dumps.iter().all(Dump::is_whole));
    drop(target);
    let printed = text_of(&console).replace("invalid command identify\r\n", "");
    assert_eq!(printed, "", "all of it was replies and dumps");
}

/// A dump that was not requested is returned, together with the reason why the requested one is missing.
#[test]
fn a_device_that_dies_behind_an_unasked_dump_is_told() {
    let fake = Fake::start(State::new(records(40), entries(2)));
    let (mut target, _) = recognise(&fake, LACKS);
    fake.change(|state| {
        state.unrequested = VecDeque::from([records(300)]);
    });
    target.ping().unwrap();
    fake.change(|state| state.lost_commands = u32::MAX);
    let arrived = target
        .dump(Kind::Trace, &mut |_| {}, &Cancel::new())
        .unwrap();
    assert!(arrived.dumps.len() == 1 && arrived.dumps[0].body == records(300));
    assert!(
        matches!(arrived.missing, Some(LinkError::TimedOut { .. })),
        "{:?}",
        arrived.missing
    );
}

/// The target's buffer may become full just before it is identified.
#[test]
fn a_dump_that_comes_before_the_first_answer_is_kept() {
    for text in ["", "EATING\r\n"] {
        let fake = Fake::start(State {
            unrequested: VecDeque::from([records(300)]),
            chatter: Some(text).filter(|text| !text.is_empty()),
            ..State::new(records(4), entries(2))
        });
        let (mut target, console) = recognise(&fake, COMES);
        let dumps = all(&mut target, Kind::Trace, &Cancel::new());
        let bodies: Vec<_> = dumps.iter().map(|dump| dump.body.clone()).collect();
        assert!(bodies == [records(300), records(4)]);
        drop(target);
        assert!(!text_of(&console).contains("-*-"));
        unhurt(&fake, 0);
    }
}

#[test]
fn a_dump_can_be_broken_off() {
    let fake = Fake::start(State {
        fragments: Some(64),
        ..State::new(records(20_000), entries(2))
    });
    let (mut target, _) = recognise(&fake, COMES);
    let cancel = Cancel::new();
    let mut progress = |progress: kymo_link::Progress| {
        if progress.bytes > 1_000 {
            cancel.cancel();
        }
    };
    let arrived = target.dump(Kind::Trace, &mut progress, &cancel).unwrap();
    let dumps = arrived.dumps;
    assert_eq!(dumps[0].ended, Ended::Cancelled);
    assert!(records(20_000).starts_with(&dumps[0].body));
}
