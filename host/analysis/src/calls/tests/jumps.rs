//! `longjmp` with marks: what it leaves is known, also where the functions' names do not tell.

use super::*;

const ENV: Addr = Addr(0x100);
const OTHER: Addr = Addr(0x200);

impl Trace {
    fn setjmp(&mut self, time: i64, env: Addr) -> &mut Self {
        self.push(time, EventKind::SetJmp { env })
    }

    fn longjmp(&mut self, time: i64, env: Addr) -> &mut Self {
        self.push(time, EventKind::LongJmp { env })
    }
}

#[test]
fn a_jump_ends_what_it_leaves_at_once() {
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .setjmp(1, ENV)
        .enter(2, B)
        .enter(3, C)
        .longjmp(10, ENV)
        .enter(20, B)
        .exit(21, B)
        .exit(30, A);
    let printed = [
        "+0 implied",
        "0 C0 3-10 7/7 jumped",
        "0 B0 2-10 8/1 jumped",
        "0 B0 20-21 1/1",
        "0 A0 0-30 30/21",
    ];
    assert_eq!(trace.finish(), printed);
    let counts = Counts {
        returned: 2,
        jumped: 2,
        ran: Duration(30),
        ..Counts::default()
    };
    assert_eq!(*trace.calls.counts(), counts);
}

/// By the names alone the exit would be taken for the innermost call's.
#[test]
fn recursion_is_cut_back_to_the_call_that_set_the_mark() {
    let mut trace = Trace::new();
    trace.enter(0, A).setjmp(1, ENV).enter(2, A).enter(3, A);
    trace.longjmp(4, ENV).exit(9, A);
    let printed = [
        "+0 implied",
        "0 A0 3-4 1/1 jumped recursive",
        "0 A0 2-4 2/1 jumped recursive",
        "0 A0 0-9 9/7",
    ];
    assert_eq!(trace.finish(), printed);

    // Marks at two levels of one recursion: each jump leads to its own.
    let mut trace = Trace::new();
    trace
        .enter(0, A)
        .setjmp(1, ENV)
        .enter(2, A)
        .setjmp(3, OTHER);
    trace
        .enter(4, A)
        .longjmp(5, OTHER)
        .enter(6, A)
        .longjmp(7, ENV);
    trace.exit(8, A);
    let printed = [
        "+0 implied",
        "0 A0 4-5 1/1 jumped recursive",
        "0 A0 6-7 1/1 jumped recursive",
        "0 A0 2-7 5/3 jumped recursive",
        "0 A0 0-8 8/3",
    ];
    assert_eq!(trace.finish(), printed);
    assert_eq!(trace.calls.counts().orphans, 0);
}

#[test]
fn a_mark_can_be_set_anew_and_used_again() {
    let mut trace = Trace::new();
    trace.enter(0, A).setjmp(1, ENV).enter(2, B).setjmp(3, ENV);
    trace
        .enter(4, C)
        .longjmp(5, ENV)
        .enter(6, C)
        .longjmp(7, ENV);
    trace.exit(8, B).exit(9, A);
    let printed = [
        "+0 implied",
        "0 C0 4-5 1/1 jumped",
        "0 C0 6-7 1/1 jumped",
        "0 B0 2-8 6/4",
        "0 A0 0-9 9/3",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn marks_belong_to_threads() {
    let mut trace = Trace::new();
    trace.enter(0, A).setjmp(1, ENV).enter(2, B);
    // Another thread has its environment at the same address of its own stack.
    trace.switch(3, 2).enter(4, C).setjmp(5, ENV).enter(6, B);
    trace.longjmp(7, ENV).exit(8, C);
    trace.switch(9, 1).longjmp(10, ENV).exit(11, A);
    let ends: Vec<_> = trace.finish();
    let ends: Vec<_> = ends
        .iter()
        .filter(|line| !line.starts_with(['+', '-']))
        .collect();
    assert_eq!(
        ends,
        [
            "1 B0 6-7 1/1 jumped",
            "1 C0 4-8 4/3",
            "0 B0 2-10 2/2 jumped",
            "0 A0 0-11 5/3"
        ]
    );
}

#[test]
fn a_handler_can_leave_itself() {
    let mut trace = Trace::new();
    trace.enter(0, A).setjmp(1, ENV).enter(2, B).isr(3, 10);
    trace.enter(4, C).longjmp(6, ENV).exit(9, A);
    let printed = [
        "+0 implied",
        "1 C0 4-6 2/2 jumped",
        "1 irq10 3-6 3/1 jumped",
        "0 B0 2-6 1/1 jumped",
        "0 A0 0-9 6/5",
    ];
    assert_eq!(trace.finish(), printed);
    // And a jump within a handler ends nothing of what it interrupts.
    let mut trace = Trace::new();
    trace.enter(0, A).isr(3, 10).enter(4, B).setjmp(5, ENV);
    trace.enter(6, C).longjmp(7, ENV).exit(8, B).isr_end(9, 10);
    trace.exit(10, A);
    let printed = [
        "+0 implied",
        "1 C0 6-7 1/1 jumped",
        "1 B0 4-8 4/3",
        "1 irq10 3-9 6/2",
        "0 A0 0-10 4/4",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn without_its_mark_a_jump_is_seen_at_the_next_exit() {
    let mut trace = Trace::new();
    trace.enter(0, A).enter(2, B).longjmp(3, ENV).exit(9, A);
    let printed = ["+0 implied", "0 B0 2-9 7/7 unwound", "0 A0 0-9 9/2"];
    assert_eq!(trace.finish(), printed);
    // The call that set the mark has returned, as far as the trace tells: the mark of the call
    // that leads here is among what was lost.
    let mut trace = Trace::new();
    trace.enter(0, A).enter(1, B).setjmp(2, ENV).exit(3, B);
    trace.enter(4, C).longjmp(5, ENV).exit(9, A);
    let printed = [
        "+0 implied",
        "0 B0 1-3 2/2",
        "0 C0 4-9 5/5 unwound",
        "0 A0 0-9 9/2",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn a_loss_in_between_leaves_the_mark_and_puts_calls_in_doubt() {
    let mut trace = Trace::new();
    trace.enter(0, A).setjmp(1, ENV).enter(2, B).gap(3);
    trace.enter(4, C).longjmp(5, ENV).exit(9, A);
    let printed = [
        "+0 implied",
        "0 C0 4-5 1/1 jumped",
        "0 B0 2-5 3/2 lost doubtful",
        "0 A0 0-9 9/6 doubtful",
    ];
    assert_eq!(trace.finish(), printed);
}

#[test]
fn calls_too_deep_to_follow_are_left_as_well() {
    let options = Options { max_depth: 2 };
    let mut trace = Trace::with(&TraceInfo::default(), options);
    trace.enter(0, A).enter(1, B).setjmp(2, ENV);
    trace.enter(3, C).setjmp(4, OTHER).enter(5, C);
    // Where the inner mark leads is not followed: it does nothing, and the outer one still leads.
    trace.longjmp(6, OTHER).longjmp(7, ENV);
    trace.exit(8, B).exit(9, A);
    assert_eq!(
        trace.finish(),
        ["+0 implied", "0 B0 1-8 7/7", "0 A0 0-9 9/2"]
    );
    assert_eq!(trace.calls.counts().too_deep, 2);
}

#[test]
fn marks_do_not_fill_the_memory() {
    let mut trace = Trace::new();
    for i in 0..200_000 {
        trace.enter(i, A).setjmp(i, Addr(i as u64)).exit(i, A);
    }
    trace.enter(300_000, A).setjmp(300_001, ENV);
    trace
        .enter(300_002, B)
        .longjmp(300_003, ENV)
        .exit(300_004, A);
    let printed = trace.finish();
    assert_eq!(
        printed[printed.len() - 2..],
        ["0 B0 300002-300003 1/1 jumped", "0 A0 300000-300004 4/3"]
    );
}

#[test]
fn calls_on_two_stacks_of_a_thread_count_once() {
    // The return of A seems to end B, which is on another stack and returns later.
    let mut counted = crate::profile::Profile::default();
    let mut trace = Trace::new();
    let events = [
        (0, A, true),
        (1, B, true),
        (2, C, true),
        (3, A, false),
        // The call that was taken to have ended with A.
        (4, B, false),
        // This one began before the trace.
        (5, B, false),
    ];
    for (time, function, entry) in events {
        let kind = if entry { RowKind::Enter } else { RowKind::Exit };
        let row = Row::new(kind, Time(time), StreamId(0))
            .at(None, Some(ThreadId(1)))
            .function(Some(function));
        let event = EventRef {
            row: &row,
            event: None,
        };
        trace.calls.push(event, &mut |step| counted.add(&step));
    }
    let row = counted.row(Callee::Function(B)).unwrap();
    assert_eq!((row.count, row.uncounted), (2, 1));
}
