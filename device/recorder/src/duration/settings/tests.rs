//! Settings that survive a reboot, and rejection of damaged memory.

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use kymo_wire::link::{Action, FreezeOn};

use super::{Rule, Settings, WORDS};
use crate::link::FreezeReport;

/// Settings of a program that has this memory.
fn program(retained: *mut usize, filter: &mut [u8], rules: &[Rule]) -> Settings {
    Settings {
        retained,
        filter: AtomicPtr::new(filter.as_mut_ptr().cast()),
        filter_bytes: AtomicU32::new(filter.len() as u32),
        rules: rules.as_ptr(),
        rule_count: rules.len() as u16,
        ..Settings::new()
    }
}

fn change(settings: &Settings) {
    settings.set_threshold(6400);
    settings.set_depth(3);
    settings.set_recording(true);
    settings.keep_events(true);
    settings.set_stop(0x80);
    settings.set_freeze(0x40, 9000);
    settings.set_freeze_on(FreezeOn::Marker(0xFFFF_FFFF));
    settings.set_condition(0x60, 3, 200, 5);
    assert!(settings.set_action(0x20, Action::Below));
}

#[test]
fn all_settings_are_kept() {
    let (mut memory, mut filter) = ([usize::MAX / 3; WORDS], [0xA5; 8]);
    let program =
        |memory: &mut [usize; WORDS], filter: &mut [u8]| program(memory.as_mut_ptr(), filter, &[]);
    let first = program(&mut memory, &mut filter);
    first.load(b"id");
    assert_eq!((first.threshold(), first.is_on()), (0, false));
    assert_eq!(
        first.action(0x20),
        Action::Record,
        "what RAM held is no filter"
    );
    change(&first);
    first.keep(b"id");

    let again = program(&mut memory, &mut filter);
    again.load(b"id");
    assert_eq!((again.threshold(), again.depth()), (6400, 3));
    assert!(again.is_on() && again.keeps_events() && !again.counts_cpu());
    assert_eq!((again.stop(), again.action(0x20)), (0x80, Action::Below));
    let freeze = FreezeReport {
        function: 0x40,
        over: 9000,
        event: 1,
        value: u32::MAX,
        from: 0x60,
        hit: 3,
        after: 200,
        times: 5,
        acted: 0,
    };
    assert_eq!(again.freeze_report(), freeze);
    // The count starts again at 0.
    assert_eq!(again.hits.load(Ordering::Relaxed), 0);

    let other = program(&mut memory, &mut filter);
    other.load(b"another");
    assert_eq!(other.freeze_report(), FreezeReport::default());
    assert_eq!(other.action(0x20), Action::Record);
}

#[test]
fn damaged_memory_is_refused() {
    let (mut memory, mut filter) = ([0; WORDS], [0; 8]);
    let first = program(memory.as_mut_ptr(), &mut filter, &[]);
    change(&first);
    first.keep(b"id");
    let (kept, actions) = (memory, filter);
    for bit in 0..(WORDS + 1) * usize::BITS as usize {
        let (word, shift) = (bit / usize::BITS as usize, bit % usize::BITS as usize);
        (memory, filter) = (kept, actions);
        match memory.get_mut(word) {
            Some(word) => *word ^= 1 << shift,
            None => filter[shift / 8] ^= 1 << (shift % 8),
        }
        let again = program(memory.as_mut_ptr(), &mut filter, &[]);
        again.load(b"id");
        assert!(!again.is_on(), "bit {shift} of word {word}");
        assert_eq!(again.freeze_report(), FreezeReport::default());
        assert_eq!(filter, [0; 8]);
    }
}

#[test]
fn rules_hold_unless_something_was_kept() {
    let rule = |function, action: Action| Rule {
        function,
        action: action as u32,
    };
    let unknown = Rule {
        function: 0x20,
        action: 7,
    };
    let rules = [
        rule(0, Action::Skip),
        rule(0x20, Action::Below),
        rule(0x40, Action::Record),
        unknown,
        // Not covered by the filter.
        rule(0x4000, Action::Record),
    ];
    let is_built = |settings: &Settings| {
        let actions = [0x20, 0x40, 0x60].map(|function| settings.action(function));
        actions == [Action::Below, Action::Record, Action::Skip]
    };
    let mut filter = [0; 8];
    let alone = program(core::ptr::null_mut(), &mut filter, &rules);
    alone.load(b"id");
    assert!(is_built(&alone));
    assert_eq!(alone.action(0x4000), Action::Skip, "as all are");

    let mut memory = [usize::MAX; WORDS];
    let mut filter = [0xFF; 8];
    let first = program(memory.as_mut_ptr(), &mut filter, &rules);
    first.load(b"id");
    assert!(is_built(&first));
    first.set_actions(Action::Record);
    first.keep(b"id");
    let again = program(memory.as_mut_ptr(), &mut filter, &rules);
    again.load(b"id");
    assert!(!is_built(&again) && again.action(0x60) == Action::Record);
}

/// Several threads meet the condition at once.
#[test]
fn of_several_threads_one_stops_recording() {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicBool;
    const ROUNDS: u32 = 2000;
    struct Shared(Settings);
    // SAFETY: it has no rules.
    unsafe impl Sync for Shared {}
    let shared = Shared(Settings::new());
    let (Shared(settings), shared) = (&shared, &shared);
    let (barrier, on, stops) = (Barrier::new(2), AtomicBool::new(false), AtomicU32::new(0));
    settings.set_condition(0, 0, 0, u16::MAX);
    let stop = || {
        stops.fetch_add(1, Ordering::SeqCst);
        on.swap(false, Ordering::SeqCst)
    };
    let work = |first: bool| {
        let Shared(settings) = shared;
        for _ in 0..ROUNDS {
            if first {
                settings.restart();
                on.store(true, Ordering::SeqCst);
            }
            barrier.wait();
            if settings.happen_here() {
                settings.act(stop);
            }
            barrier.wait();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(true));
        work(false);
    });
    assert_eq!(stops.into_inner(), ROUNDS);
    assert_eq!(u32::from(settings.freeze_report().acted), ROUNDS);
}
