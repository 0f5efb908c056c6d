//! Threads that end within calls, and readers of a recording that has ended.

use std::sync::atomic::{AtomicU32, Ordering};

use kymo_device_tests::{Kind, config, leak};
use kymo_recorder::Event;
use kymo_recorder::config::{Config, START_ON};
use kymo_recorder::duration::{Control, Frame};
use kymo_recorder::link::{Control as _, Subject};

use super::faults::between;
use super::{Device, LEAF, MAIN, WORK};

/// A recorder in duration mode with so many stacks of ten frames, which is on.
pub(super) fn in_duration(stacks: u32) -> (Device, &'static Control) {
    let words = Frame::BYTES / size_of::<u64>() * 10 * stacks as usize;
    let frames = vec![0u64; words].leak().as_mut_ptr().cast();
    // SAFETY: the memory is new, all zero, and leaked.
    let control: &'static Control = leak(unsafe { Control::new(frames, stacks, 10) });
    control.settings.set_recording(true);
    let device = between(MAIN, false);
    device.single.give_duration(Some(control));
    device.set_recording(true);
    (device, control)
}

/// What a host reads once recording is off remains as it is.
#[test]
fn a_recording_that_is_off_is_not_changed_by_its_readers() {
    let (device, _) = in_duration(1);
    device.enter(WORK);
    device.enter(LEAF);
    let read = || {
        let control = device.single.control(device.hot, device.config);
        control.freeze(Subject::Trace).expect("nobody reads");
        control.thaw();
        let open = |kind: &Kind| matches!(kind, Kind::Call { how: 29, .. });
        device.kinds().iter().filter(|kind| open(kind)).count()
    };
    assert_eq!(read(), 2);
    assert_eq!(read(), 4, "they have come further");
    device.set_recording(false);
    assert_eq!(read(), 6);
    assert_eq!(read(), 6);
    device.set_recording(true);
    device.enter(WORK);
    assert_eq!(read(), 7);
    device.set_recording(false);
    assert_eq!(read(), 8);
    device.single.clear(device.hot, device.config);
    assert_eq!(read(), 1, "of what is cleared they are all that is known");
    assert_eq!(read(), 1);
}

/// Threads are deleted within calls, and others get their numbers, or new ones.
#[test]
fn threads_that_end_give_their_shadow_stacks_to_others() {
    let (device, control) = in_duration(2);
    let threads = |n: usize| if n < 20 { 5 } else { n };
    for n in 0..40 {
        let thread = threads(n);
        let event = Event::SwitchedIn(thread);
        let all = device
            .single
            .duration_event(device.hot, device.config, event);
        assert!(all);
        device.enter(WORK);
        device.enter(LEAF);
        device.exit(LEAF);
        device.single.end_thread(device.hot, thread);
        // It runs on until the kernel switches.
        device.enter(LEAF);
        device.exit(LEAF);
    }
    let counts = &control.counts;
    let load = |count: &AtomicU32| count.load(Ordering::Relaxed);
    assert_eq!((load(&counts.too_deep), load(&counts.unmatched)), (0, 40));
    let calls = device.kinds();
    let ended = |kind: &&Kind| {
        matches!(
            kind,
            Kind::Call {
                how: 27,
                function: 0x1300,
                ..
            }
        )
    };
    assert_eq!(calls.iter().filter(ended).count(), 80);
}

#[test]
fn threads_that_end_give_their_stacks_of_the_profile_table_to_others() {
    let words = |count: usize| vec![0u64; count].leak().as_mut_ptr().cast();
    let device = Device::new(Config {
        flags: START_ON,
        slots: words(6 * 32),
        slot_count: 32,
        frames: words(5 * 2 * 8),
        shadow_stacks: 2,
        shadow_depth: 8,
        ..config(16, 1024)
    });
    for thread in (0..20).map(|n| if n < 10 { 5 } else { n }) {
        device.hook(Event::SwitchedIn(thread));
        device.enter(WORK);
        device.enter(LEAF);
        device.exit(LEAF);
        device.single.end_thread(device.hot, thread);
        device.enter(LEAF);
        device.exit(LEAF);
    }
    let profile = device.single.writer().profile().expect("a table");
    let losses = profile.losses();
    assert_eq!((losses.unmatched, losses.too_deep), (20, 0), "{losses:?}");
    let entries = (0..profile.slots()).filter_map(|n| profile.entry(n).flatten());
    let leaf = entries
        .into_iter()
        .find(|entry| entry.address == LEAF as u64);
    assert_eq!(leaf.expect("it was called").count, 40);
}

/// A thread is deleted within the stopper: the kernel reports it.
#[test]
fn a_thread_that_ends_within_the_stopper_does_not_keep_recording_on() {
    let device = between(MAIN, false);
    device.hook(Event::SwitchedIn(5));
    device.enter(MAIN);
    device.hook(Event::SwitchedIn(6));
    for _ in 0..2 {
        device.enter(MAIN);
        device.exit(MAIN);
        assert!(device.gate.state().on(), "the first thread is within it");
        device.single.end_thread(device.hot, 7);
    }
    device.single.end_thread(device.hot, 5);
    // Its number may be that of another thread now.
    device.hook(Event::SwitchedIn(5));
    device.enter(MAIN);
    device.exit(MAIN);
    assert!(!device.gate.state().on());
}
