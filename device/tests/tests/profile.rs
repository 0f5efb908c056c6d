//! Compares the target's profile table with a slow and simple computation from the same events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kymo_device_tests::Mock;
use kymo_device_tests::Random;
use kymo_device_tests::layout::Small;
use kymo_recorder::Target;
use kymo_recorder::link::SCRATCH_BYTES;
use kymo_recorder::profile::{Frame, Profile as Table, Slot};
use kymo_wire::link::Fault;
use kymo_wire::profile::{Entry, TableHeader};

type Profile = Table<Mock<Small>>;

fn table<T: Target>(slots: usize, stacks: u32, depth: u32) -> Table<T> {
    let profile = Table::new();
    let slots: &[Slot] = std::iter::repeat_with(Slot::default)
        .take(slots)
        .collect::<Vec<_>>()
        .leak();
    let frames: &[Frame] = std::iter::repeat_with(Frame::default)
        .take((stacks * depth) as usize)
        .collect::<Vec<_>>()
        .leak();
    // SAFETY: the memory is new and leaked.
    unsafe {
        profile.set_up(
            slots.as_ptr(),
            slots.len() as u32,
            frames.as_ptr(),
            stacks,
            depth,
        )
    }
    .expect("the sizes are right");
    profile.record(0, true);
    profile
}

fn entries(profile: &Profile) -> BTreeMap<u64, Entry> {
    (0..profile.slots())
        .filter_map(|n| profile.entry(n)?)
        .map(|entry| (entry.address, entry))
        .collect()
}

/// A stack in the reference computation.
#[derive(Default)]
struct Stack {
    /// Open calls: function, time on the stack's clock so far, that of its callees.
    open: Vec<(u64, u64, u64)>,
}

/// Reference computation: charges every single tick to the innermost open call on the running stack.
#[derive(Default)]
struct Account {
    stacks: BTreeMap<usize, Stack>,
    /// Each active interrupt has a stack of its own, numbered from here on.
    interrupts: Vec<usize>,
    thread: Option<usize>,
    entries: BTreeMap<u64, Entry>,
    unmatched: u64,
    next: usize,
}

impl Account {
    fn running(&mut self) -> Option<&mut Stack> {
        let number = self.interrupts.last().copied().or(self.thread)?;
        Some(self.stacks.entry(number).or_default())
    }

    fn pass(&mut self, ticks: u64) {
        if let Some(stack) = self.running() {
            for (_, time, _) in &mut stack.open {
                *time += ticks;
            }
        }
    }

    fn enter(&mut self, function: u64) {
        self.running()
            .expect("somebody runs")
            .open
            .push((function, 0, 0));
    }

    fn close(&mut self) {
        let stack = self.running().expect("somebody runs");
        let (function, time, callees) = stack.open.pop().expect("something is open");
        if let Some(parent) = stack.open.last_mut() {
            parent.2 += time;
        }
        let recursive = stack.open.iter().any(|call| call.0 == function);
        let entry = self.entries.entry(function).or_insert(Entry {
            address: function,
            min: u64::MAX,
            ..Entry::default()
        });
        entry.count += 1;
        entry.total += if recursive { 0 } else { time };
        entry.recursive |= recursive;
        entry.self_time += time - callees;
        entry.min = entry.min.min(time);
        entry.max = entry.max.max(time);
    }

    fn exit(&mut self, function: u64) {
        let stack = self.running().expect("somebody runs");
        let open = stack.open.len();
        match stack.open.iter().rposition(|call| call.0 == function) {
            Some(found) => {
                for _ in found..open {
                    self.close();
                }
                self.unmatched += (open - found - 1) as u64;
            }
            None => {
                for _ in 0..open {
                    self.close();
                }
                self.unmatched += open as u64 + 1;
            }
        }
    }
}

/// Random threads, interrupts, recursion and jumps, on the target and in the reference computation.
fn random_run(seed: u64) {
    let mut random = Random::new(seed);
    let profile: Profile = table(256, 5, 40);
    let mut account = Account {
        next: 1000,
        ..Account::default()
    };
    let mut now = 0;
    account.thread = Some(1);
    profile.switched_in(now, 1);
    for _ in 0..3000 {
        let ticks = random.below(100);
        now += ticks;
        account.pass(ticks);
        let thread = account.thread.unwrap_or(0);
        let depth = account.running().map_or(0, |stack| stack.open.len());
        match random.below(40) {
            0 if account.interrupts.len() < 3 => {
                profile.isr_enter(now);
                account.interrupts.push(account.next);
                account.next += 1;
            }
            1 | 2 if !account.interrupts.is_empty() => {
                profile.isr_exit(now);
                let left = account.running().map_or(0, |stack| stack.open.len());
                for _ in 0..left {
                    account.close();
                }
                account.unmatched += left as u64;
                account.interrupts.pop();
            }
            3 => {
                // Also from inside an interrupt, as a scheduler may.
                let next = 1 + random.below(4) as usize;
                profile.switched_out(now);
                profile.switched_in(now, next);
                account.thread = Some(next);
            }
            4 => {
                // Somebody's exit, or a jump out of several calls.
                let function = 0x100 + 16 * random.below(12);
                profile.exit(now, thread, function as usize);
                account.exit(function);
            }
            5..=22 if depth < 12 => {
                let function = 0x100 + 16 * random.below(12);
                profile.enter(now, thread, function as usize);
                account.enter(function);
            }
            _ if depth > 0 => {
                let stack = account.running().expect("somebody runs");
                let function = stack.open[depth - 1].0;
                profile.exit(now, thread, function as usize);
                account.exit(function);
            }
            _ => {}
        }
    }
    let found = entries(&profile);
    for (address, expected) in &account.entries {
        assert_eq!(&found[address], expected, "seed {seed}");
    }
    let counted = found.values().filter(|entry| entry.count > 0).count();
    assert_eq!(counted, account.entries.len());
    let losses = profile.losses();
    assert_eq!((losses.no_slot, losses.too_deep), (0, 0));
    assert_eq!(
        u64::from(losses.unmatched),
        account.unmatched,
        "seed {seed}"
    );
    assert_eq!(profile.recorded(now), now);
}

#[test]
fn random_programs_are_accounted_for() {
    for seed in 0..100 {
        random_run(seed);
    }
}

#[test]
fn recursion_counts_once_in_the_total() {
    let profile: Profile = table(8, 2, 16);
    for i in 0..4 {
        profile.enter(i * 10, 1, 0x100);
    }
    for i in 4..8 {
        profile.exit(i * 10, 1, 0x100);
    }
    let entry = entries(&profile)[&0x100];
    assert_eq!((entry.count, entry.total, entry.self_time), (4, 70, 70));
    assert_eq!((entry.min, entry.max), (10, 70));
}

#[test]
fn what_does_not_fit_is_counted() {
    // One slot, whose function is open: the second one has none, but its caller's times are right all the same.
    let profile: Profile = table(1, 2, 4);
    profile.enter(0, 1, 0x100);
    profile.enter(10, 1, 0x200);
    profile.exit(15, 1, 0x200);
    // Three calls fit a stack of four frames; the fourth and fifth don't.
    for _ in 0..4 {
        profile.enter(20, 1, 0x100);
    }
    for _ in 0..4 {
        profile.exit(30, 1, 0x100);
    }
    profile.exit(40, 1, 0x100);
    let losses = profile.losses();
    assert_eq!(
        (losses.no_slot, losses.too_deep, losses.unmatched),
        (1, 2, 0)
    );
    let found = entries(&profile);
    let entry = found[&0x100];
    assert_eq!(found.len(), 1);
    assert_eq!((entry.count, entry.total, entry.self_time), (3, 40, 35));
    // More threads at a time than stacks.
    profile.enter(50, 1, 0x100);
    profile.switched_out(60);
    profile.switched_in(60, 2);
    profile.enter(60, 2, 0x100);
    profile.exit(70, 2, 0x100);
    assert_eq!(profile.losses().too_deep, 3);
}

#[test]
fn turning_off_forgets_what_is_open_and_says_so() {
    let profile: Profile = table(8, 2, 16);
    profile.enter(10, 1, 0x100);
    profile.enter(20, 1, 0x200);
    profile.record(30, false);
    assert_eq!(profile.losses().unmatched, 2);
    profile.record(100, true);
    profile.enter(100, 1, 0x100);
    profile.exit(105, 1, 0x100);
    assert_eq!(profile.recorded(110), 40);
    let entry = entries(&profile)[&0x100];
    assert_eq!(
        (entry.count, entry.total),
        (1, 5),
        "it is not taken for recursive"
    );
    profile.clear(120);
    assert_eq!((profile.functions(), profile.recorded(125)), (0, 5));
}

#[test]
fn tables_of_threads_add_up() {
    let [one, two]: [Profile; 2] = [table(8, 2, 8), table(8, 2, 8)];
    for (profile, time) in [(&one, 10), (&two, 30)] {
        profile.enter(0, 1, 0x100);
        profile.exit(time, 1, 0x100);
    }
    two.enter(50, 1, 0x200);
    let sum: Profile = table(8, 2, 2);
    for profile in [&one, &two] {
        for entry in entries(profile).values() {
            sum.merge(entry);
        }
    }
    let entry = entries(&sum)[&0x100];
    assert_eq!((entry.count, entry.total), (2, 40));
    assert_eq!((entry.min, entry.max), (10, 30));
}

#[test]
fn unusable_sizes_are_refused() {
    let slots: &[Slot] = vec![Slot::default()].leak();
    let frames: &[Frame] = vec![Frame::default()].leak();
    for (stacks, depth, slots, error) in [
        (1, 8, slots.as_ptr(), Fault::ShadowStacks.of(1)),
        (33, 8, slots.as_ptr(), Fault::ShadowStacks.of(33)),
        (2, 1, slots.as_ptr(), Fault::ShadowDepth.of(1)),
        (
            32,
            u32::MAX,
            slots.as_ptr(),
            Fault::ShadowDepth.of(u32::MAX as usize),
        ),
        (2, 8, std::ptr::null(), Fault::Slots.of(0)),
    ] {
        let profile = Profile::new();
        // SAFETY: the call fails before it uses the memory.
        let result = unsafe { profile.set_up(slots, 1, frames.as_ptr(), stacks, depth) };
        assert_eq!(result, Err(error));
        assert!(!profile.is_kept());
        // Without a table nothing is counted, and nothing breaks.
        profile.enter(0, 1, 0x100);
        profile.isr_enter(1);
        profile.exit(2, 1, 0x100);
        profile.isr_exit(3);
        let mut scratch = [0; SCRATCH_BYTES];
        assert!(profile.chunk(1, 1, 0, &mut scratch).is_none());
    }
}

#[test]
fn turning_off_forgets_what_is_open_and_costs_no_look_at_the_table() {
    // To look at every slot each time takes a thousand times as long with the large table. This machine
    // may be busy with other things: the quickest of several turns, one by one, is what counts.
    let times = [(); 20].map(|()| (turn_on_and_off(1 << 6), turn_on_and_off(1 << 16)));
    let small = times.iter().map(|(small, _)| *small).min();
    let large = times.iter().map(|(_, large)| *large).min();
    assert!(large < small.map(|time| time * 50), "{times:?}");
}

/// Time of calls in three contexts around which recording is turned off and on, with a table of this many slots.
fn turn_on_and_off(slots: usize) -> Duration {
    const TIMES: u32 = 400;
    let profile: Profile = table(slots, 3, 16);
    let began = Instant::now();
    let mut now = 0;
    for _ in 0..TIMES {
        // Two threads and an interrupt have something open.
        profile.switched_in(now, 1);
        profile.enter(now, 1, 0x10);
        profile.switched_in(now, 2);
        profile.enter(now, 2, 0x10);
        profile.isr_enter(now);
        profile.enter(now, 2, 0x20);
        profile.record(now, false);
        profile.record(now, true);
        // None of it is open any more: these are not recursive.
        for function in [0x10, 0x20] {
            profile.enter(now, 1, function);
            profile.exit(now + 1, 1, function);
        }
        now += 10;
        profile.record(now, false);
        profile.record(now, true);
    }
    let took = began.elapsed();
    let entries = entries(&profile);
    for function in [0x10, 0x20] {
        let entry = entries[&function];
        let expected = (TIMES, u64::from(TIMES));
        assert_eq!((entry.count, entry.total), expected, "{function:#x}");
    }
    took
}

#[test]
fn what_comes_while_the_table_is_cleared_is_not_half_in_it() {
    let profile: Profile = table(8, 2, 8);
    profile.enter(0, 1, 0x10);
    assert!(profile.pause());
    assert!(!profile.pause(), "somebody is at it");
    assert!(profile.exists() && !profile.is_kept());
    profile.wipe();
    profile.resume(100, true, 1);
    assert!(profile.is_kept());
    // The interrupt that was being served still is.
    profile.enter(110, 1, 0x20);
    profile.exit(115, 1, 0x20);
    profile.isr_exit(120);
    profile.enter(130, 1, 0x30);
    profile.exit(150, 1, 0x30);
    let entries = entries(&profile);
    let totals: Vec<(u64, u64)> = entries.values().map(|e| (e.address, e.total)).collect();
    assert_eq!(totals, [(0x20, 5), (0x30, 20)]);
    assert_eq!(profile.recorded(200), 100);
    assert_eq!(profile.losses().unmatched, 0);
}

#[test]
fn a_jump_ends_what_it_leaves_at_once_where_it_is_marked() {
    let profile: Profile = table(8, 2, 8);
    profile.enter(0, 1, 0x10);
    profile.set_jump(0x5000);
    profile.enter(2, 1, 0x20);
    profile.enter(3, 1, 0x30);
    // A handler's jumps are its own.
    profile.isr_enter(4);
    profile.enter(4, 1, 0x40);
    profile.jump(5, 0x5000);
    profile.exit(6, 1, 0x40);
    profile.isr_exit(6);
    // To nowhere that is known, and then back to the first.
    profile.jump(10, 0x6000);
    profile.jump(20, 0x5000);
    profile.enter(30, 1, 0x50);
    profile.exit(35, 1, 0x50);
    profile.exit(40, 1, 0x10);
    let entries = entries(&profile);
    // The interrupt took 2.
    let of = |function| {
        let entry = &entries[&function];
        (entry.count, entry.total, entry.self_time)
    };
    assert_eq!(of(0x30), (1, 20 - 3 - 2, 20 - 3 - 2));
    assert_eq!(of(0x20), (1, 20 - 2 - 2, 1));
    assert_eq!(of(0x40), (1, 2, 2));
    assert_eq!(of(0x50), (1, 5, 5));
    assert_eq!(of(0x10), (1, 38, 38 - 16 - 5));
    assert_eq!(profile.losses().unmatched, 2);
}

#[test]
fn slots_at_the_end_are_found_like_others() {
    // As many functions as slots: all have one, though they are looked for near their places only.
    for slots in [1, 2, 7, 15, 16, 17, 40] {
        let profile = table::<Mock<Small>>(slots, 2, 4);
        for n in 0..slots {
            let function = 0x800_0000 + 36 * n;
            profile.enter(0, 1, function);
            profile.exit(1, 1, function);
        }
        let found = entries(&profile).len() as u32;
        let losses = profile.losses();
        assert_eq!(losses.no_slot, losses.replaced);
        assert_eq!((found + losses.replaced) as usize, slots);
        assert!(slots > 16 || losses.replaced == 0, "{found} of {slots}");
    }
}

#[test]
fn a_full_table_gives_up_the_function_with_the_lowest_total() {
    let profile: Profile = table(4, 2, 8);
    let call = |begin: u64, took: u64, function: usize| {
        profile.enter(begin, 1, function);
        profile.exit(begin + took, 1, function);
    };
    // The caller's total is 0 as long as it is open; it is not given up for that.
    profile.enter(0, 1, 0x10);
    for (n, took) in [(2, 50), (3, 20), (4, 30)] {
        call(100 * n, took, 0x10 * n as usize);
        call(100 * n + 50, took, 0x10 * n as usize);
    }
    call(1000, 25, 0x50);
    call(1100, 45, 0x50);
    profile.exit(2000, 1, 0x10);
    let found = entries(&profile);
    let functions: Vec<_> = found.keys().copied().collect();
    assert_eq!(functions, [0x10, 0x20, 0x40, 0x50]);
    // Its first call is counted too, and what the other one had is known.
    assert_eq!((found[&0x50].count, found[&0x50].total), (2, 70));
    assert_eq!((found[&0x50].min, found[&0x50].max), (25, 45));
    assert_eq!(found[&0x10].self_time, 2000 - 2 * (50 + 20 + 30) - 70);
    let losses = profile.losses();
    assert_eq!((losses.no_slot, losses.replaced), (2, 1));
    let mut scratch = [0; SCRATCH_BYTES];
    let header = profile.chunk(0, 1_000_000, 2000, &mut scratch);
    let header = TableHeader::read(header.expect("a header")).expect("of this version");
    assert_eq!((header.replaced, header.replaced_total), (1, 40));
}

#[test]
fn calls_that_are_in_the_table_and_those_that_are_not_are_all_calls() {
    // Many more functions than slots, in a thread and in handlers that interrupt it.
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let profile: Profile = table(1 + random.below(40) as usize, 3, 64);
        let (mut now, mut calls, mut open, mut handlers) = (0, 0, Vec::new(), Vec::new());
        profile.switched_in(0, 1);
        for _ in 0..2000 {
            now += random.below(9);
            match random.below(10) {
                0 if handlers.len() < 3 => {
                    profile.isr_enter(now);
                    handlers.push(open.len());
                }
                1 if handlers.last() == Some(&open.len()) => {
                    profile.isr_exit(now);
                    handlers.pop();
                }
                2..=5 if open.len() < 20 => {
                    let function = 0x800_0000 + 12 * random.below(100) as usize;
                    profile.enter(now, 1, function);
                    open.push(function);
                }
                _ if open.len() > handlers.last().copied().unwrap_or(0) => {
                    let function = open.pop().expect("one is open");
                    profile.exit(now, 1, function);
                    calls += 1;
                }
                _ => {}
            }
        }
        let found = entries(&profile);
        let counted: u32 = found.values().map(|entry| entry.count).sum();
        let losses = profile.losses();
        let missing = calls - counted;
        let open = open.len() as u32;
        // Those that are open may have been counted as without a slot already.
        assert!(
            (missing..=missing + open).contains(&losses.no_slot),
            "{seed}"
        );
        assert_eq!((losses.too_deep, losses.unmatched), (0, 0));
        assert!(losses.replaced > 0);
        for entry in found.values().filter(|entry| entry.count != 0) {
            assert!(entry.min <= entry.max && entry.max <= now, "{seed}");
            assert!(entry.total >= entry.max || entry.recursive, "{seed}");
            assert!(entry.self_time <= now, "{seed}");
        }
    }
}

#[test]
fn tables_that_add_up_to_more_than_fits_keep_the_highest_totals() {
    let sum: Profile = table(2, 2, 2);
    for (function, total) in [(1, 10), (2, 30), (3, 20), (4, 5), (2, 1)] {
        sum.merge(&Entry {
            address: 0x100 * function,
            count: 1,
            total,
            self_time: total,
            min: total,
            max: total,
            recursive: false,
        });
    }
    let totals: Vec<_> = entries(&sum)
        .values()
        .map(|e| (e.address, e.total))
        .collect();
    assert_eq!(totals, [(0x200, 31), (0x300, 20)]);
    let losses = sum.losses();
    assert_eq!((losses.no_slot, losses.replaced), (2, 1));
}

#[test]
fn a_jump_leaves_what_did_not_fit_too() {
    let profile: Profile = table(8, 2, 4);
    profile.enter(0, 1, 0x10);
    profile.set_jump(0x5000);
    for function in [0x20, 0x30, 0x40, 0x50] {
        profile.enter(10, 1, function);
    }
    profile.jump(20, 0x5000);
    let losses = profile.losses();
    assert_eq!((losses.too_deep, losses.unmatched), (2, 4));
    profile.enter(30, 1, 0x20);
    profile.exit(35, 1, 0x20);
    profile.exit(40, 1, 0x10);
    let entries = entries(&profile);
    let of = |function| (entries[&function].count, entries[&function].self_time);
    assert_eq!((of(0x10), of(0x20), of(0x30)), ((1, 25), (2, 5), (1, 10)));
    assert_eq!(profile.losses().unmatched, 4);
}
