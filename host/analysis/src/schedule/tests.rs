//! What ran when, and what is not known of that.

use kymo_event::{Event, StreamId};

use super::*;

const STREAM: StreamId = StreamId(0);

fn row(kind: RowKind, time: i64, thread: Option<u32>) -> Row {
    Row::new(kind, Time(time), STREAM).at(Some(Cpu(0)), thread.map(ThreadId))
}

fn event(kind: EventKind, time: i64) -> Event {
    Event {
        time: Time(time),
        stream: STREAM,
        cpu: Some(Cpu(0)),
        thread: None,
        kind,
        named: false,
        record: true,
        stamp: None,
        name: "".into(),
        fields: Vec::new(),
    }
}

/// Thread 1 runs from 10 to 50 with interrupt 7 from 20 to 30 in it, and one in that from 22 to 25; thread 2 is
/// ready at 40, runs from 50 to 80, and thread 1 from 90 to the end at 100.
fn trace() -> Batch {
    let mut batch = Batch::default();
    let irq = |row: Row, irq| row.interrupt(Some(InterruptId(irq)));
    batch.push(row(RowKind::SwitchedIn, 10, Some(1)));
    batch.push(irq(row(RowKind::IsrEnter, 20, Some(1)), 7));
    batch.push(irq(row(RowKind::IsrEnter, 22, Some(1)), 8));
    batch.push(row(RowKind::IsrExit, 25, Some(1)));
    batch.push(irq(row(RowKind::IsrExit, 30, Some(1)), 7));
    let thread = ThreadId(2);
    batch.push_event(event(EventKind::Ready { thread }, 40));
    batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
    batch.push(row(RowKind::SwitchedIn, 50, Some(2)));
    batch.push(row(RowKind::SwitchedOut, 80, Some(2)));
    batch.push(row(RowKind::SwitchedIn, 90, Some(1)));
    batch.push(row(RowKind::Other, 100, Some(1)));
    batch
}

fn schedule(window: Window, batch: &Batch) -> Schedule {
    let mut schedule = Schedule::new(window);
    schedule.batch(&TraceInfo::default(), batch);
    schedule.finish(&TraceInfo::default());
    schedule
}

#[test]
fn time_is_charged_to_what_ran() {
    let schedule = schedule(Window::default(), &trace());
    let one = schedule.thread(ThreadId(1)).unwrap();
    assert_eq!((one.run, one.count, one.complete), (Duration(40), 2, 1));
    assert_eq!((one.min, one.max), (Duration(30), Duration(30)));
    let two = schedule.thread(ThreadId(2)).unwrap();
    assert_eq!((two.run, two.count), (Duration(30), 1));
    assert_eq!(two.ready.average(), Some(Duration(10)));
    let outer = schedule.interrupt(InterruptId(7)).unwrap();
    assert_eq!(
        (outer.run, outer.max, outer.count),
        (Duration(7), Duration(7), 1)
    );
    assert_eq!(schedule.interrupt(InterruptId(8)).unwrap().run, Duration(3));
    assert_eq!(
        (schedule.idle(), schedule.span(SpaceId(0))),
        (Some(Duration(10)), Duration(90))
    );
    assert_eq!(schedule.thread(ThreadId(0)), None);
    let cpus: Vec<_> = schedule.cpus().collect();
    let [(_, Some(Cpu(0)), cpu)] = cpus[..] else {
        panic!("{cpus:?}");
    };
    assert_eq!(
        (cpu.run, cpu.idle, cpu.count),
        (Duration(80), Some(Duration(10)), 5)
    );
}

#[test]
fn what_runs_at_the_beginning_is_known_by_its_events() {
    let mut batch = Batch::default();
    batch.push(row(RowKind::Enter, 10, Some(1)));
    batch.push(row(RowKind::IsrEnter, 20, Some(1)).interrupt(Some(InterruptId(7))));
    batch.push(row(RowKind::IsrExit, 30, Some(1)).interrupt(Some(InterruptId(7))));
    batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
    batch.push(row(RowKind::SwitchedIn, 60, Some(2)));
    let schedule = schedule(Window::default(), &batch);
    let one = schedule.thread(ThreadId(1)).unwrap();
    assert_eq!((one.run, one.count, one.complete), (Duration(30), 0, 0));
    assert_eq!(schedule.idle(), Some(Duration(10)));
    assert_eq!(schedule.unknown(), Duration(0));
}

#[test]
fn without_switches_nothing_is_known_of_threads() {
    let mut batch = Batch::default();
    batch.push(row(RowKind::Enter, 10, Some(1)));
    batch.push(row(RowKind::IsrEnter, 20, Some(1)).interrupt(Some(InterruptId(7))));
    batch.push(row(RowKind::IsrExit, 30, Some(1)).interrupt(Some(InterruptId(7))));
    // A source says so where it finds an idle task's record.
    batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
    batch.push(row(RowKind::Other, 60, None));
    let schedule = schedule(Window::default(), &batch);
    assert!(schedule.has_interrupts() && !schedule.has_switches());
    assert_eq!(schedule.thread(ThreadId(1)), None);
    assert_eq!((schedule.idle(), schedule.unknown()), (None, Duration(40)));
    let (_, _, cpu) = schedule.cpus().next().unwrap();
    assert_eq!((cpu.run, cpu.idle), (Duration(10), None));
}

/// What ran in a window is known by the switches around it, and by its own events.
#[test]
fn a_window_without_a_switch_has_the_thread_that_runs_through_it() {
    let mut batch = Batch::default();
    batch.push(row(RowKind::Enter, 10, Some(1)));
    batch.push(row(RowKind::Exit, 30, Some(1)));
    batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
    batch.push(row(RowKind::SwitchedIn, 50, Some(2)));
    batch.push(row(RowKind::Other, 90, Some(2)));
    for (begin, end, thread) in [(10, 40, 1), (60, 80, 2)] {
        let window = Window {
            begin: Time(begin),
            end: Time(end),
        };
        let schedule = schedule(window, &batch);
        assert!(schedule.has_switches());
        let run = schedule.thread(ThreadId(thread)).map(|it| it.run.0 as i64);
        assert_eq!(run, Some(end - begin));
        assert_eq!(
            (schedule.idle(), schedule.unknown()),
            (Some(Duration(0)), Duration(0))
        );
    }
}

#[test]
fn two_threads_without_a_switch_between_them_leave_it_open_which_ran() {
    let mut batch = Batch::default();
    batch.push(row(RowKind::Enter, 10, Some(1)));
    batch.push(row(RowKind::Enter, 20, Some(2)));
    batch.push(row(RowKind::SwitchedOut, 30, Some(2)));
    batch.push(row(RowKind::SwitchedIn, 30, Some(1)));
    batch.push(row(RowKind::Other, 35, Some(1)));
    let schedule = schedule(Window::default(), &batch);
    assert_eq!(schedule.thread(ThreadId(2)), None);
    assert_eq!(schedule.thread(ThreadId(1)).unwrap().run, Duration(5));
    assert_eq!(schedule.unknown(), Duration(20));
}

#[test]
fn idle_threads_are_no_load() {
    let mut info = TraceInfo::default();
    let space = info.identities.add_space(kymo_event::Space::default());
    for (tid, name) in [(0, "main"), (1, "idle 00")] {
        let thread = info.identities.thread(space, kymo_event::Tid(tid));
        info.identities.name_thread(thread, name);
    }
    let mut batch = Batch::default();
    batch.push(row(RowKind::SwitchedIn, 0, Some(0)));
    batch.push(row(RowKind::SwitchedOut, 10, Some(0)));
    batch.push(row(RowKind::SwitchedIn, 10, Some(1)));
    batch.push(row(RowKind::Other, 50, Some(1)));
    let mut schedule = Schedule::new(Window::default());
    schedule.batch(&info, &batch);
    schedule.finish(&info);
    assert_eq!(schedule.idle(), Some(Duration(40)));
    assert_eq!(schedule.thread(ThreadId(1)).unwrap().run, Duration(40));
    let (_, _, cpu) = schedule.cpus().next().unwrap();
    assert_eq!((cpu.run, cpu.count), (Duration(10), 1));
}

/// Of a kernel that records both ends of a switch, what lies between is its own time, if it has an idle thread for the rest.
#[test]
fn time_between_threads_is_idle_only_without_an_idle_thread() {
    let run = |name: &str| {
        let mut info = TraceInfo::default();
        let space = info.identities.add_space(kymo_event::Space::default());
        for (tid, name) in [(0, "main"), (1, name)] {
            let thread = info.identities.thread(space, kymo_event::Tid(tid));
            info.identities.name_thread(thread, name);
        }
        let mut batch = Batch::default();
        batch.push(row(RowKind::SwitchedIn, 0, Some(0)));
        batch.push(row(RowKind::SwitchedOut, 10, Some(0)));
        batch.push(row(RowKind::SwitchedIn, 13, Some(1)));
        batch.push(row(RowKind::SwitchedOut, 50, Some(1)));
        batch.push(row(RowKind::SwitchedIn, 55, Some(0)));
        batch.push(row(RowKind::Other, 60, Some(0)));
        let mut schedule = Schedule::new(Window::default());
        schedule.batch(&info, &batch);
        schedule.finish(&info);
        let (_, _, cpu) = schedule.cpus().next().unwrap();
        assert_eq!(cpu.switching, schedule.switching());
        (
            cpu.run.0,
            schedule.idle().unwrap().0,
            schedule.switching().0,
        )
    };
    assert_eq!(run("idle 00"), (15, 37, 8));
    assert_eq!(run("other"), (52, 8, 0));
}

#[test]
fn a_window_clips_and_a_gap_casts_doubt() {
    let window = Window {
        begin: Time(28),
        end: Time(60),
    };
    let clipped = schedule(window, &trace());
    let one = clipped.thread(ThreadId(1)).unwrap();
    assert_eq!((one.run, one.count, one.complete), (Duration(20), 0, 0));
    assert_eq!(clipped.interrupt(InterruptId(7)).unwrap().run, Duration(2));
    let mut batch = Batch::default();
    batch.push(row(RowKind::SwitchedIn, 0, Some(1)));
    batch.push(row(RowKind::IsrEnter, 5, Some(1)).interrupt(Some(InterruptId(7))));
    let events = Some(3);
    batch.push_event(event(EventKind::Gap(Gap::Discarded { events }), 5));
    // What ran up to the next event is not known; behind that nothing is missing up to the switch.
    batch.push(row(RowKind::Other, 12, None));
    batch.push(row(RowKind::SwitchedOut, 20, Some(1)));
    batch.push(row(RowKind::SwitchedIn, 20, Some(1)));
    let again = schedule(Window::default(), &batch);
    let one = again.thread(ThreadId(1)).unwrap();
    assert_eq!((one.run, one.complete, again.gaps()), (Duration(13), 0, 1));
    assert_eq!(again.unknown(), Duration(7));
}

/// Switches and interrupts on two processors, which is which by a sequence of numbers.
fn two_processors() -> Batch {
    let mut batch = Batch::default();
    let mut random = 12345_u64;
    let mut next = |below: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        (random >> 33) % below
    };
    let (mut time, mut running, mut nested) = (0_i64, [None; 2], [0; 2]);
    for _ in 0..400 {
        time += 1 + next(50).cast_signed();
        let cpu = next(2) as usize;
        let mut put = |kind, thread| {
            let row = Row::new(kind, Time(time), StreamId(cpu as u32));
            let irq = matches!(kind, RowKind::IsrEnter | RowKind::IsrExit);
            let irq = irq.then_some(InterruptId(9));
            batch.push(row.at(Some(Cpu(cpu as u32)), thread).interrupt(irq));
        };
        match next(5) {
            0 if nested[cpu] < 3 => {
                nested[cpu] += 1;
                put(RowKind::IsrEnter, running[cpu]);
            }
            1 if nested[cpu] > 0 => {
                nested[cpu] -= 1;
                put(RowKind::IsrExit, running[cpu]);
            }
            2 => put(RowKind::Other, running[cpu]),
            _ => {
                let thread = ThreadId(next(3) as u32 + 4 * cpu as u32);
                match running[cpu].take() {
                    Some(before) => put(RowKind::SwitchedOut, Some(before)),
                    None => {
                        running[cpu] = Some(thread);
                        put(RowKind::SwitchedIn, Some(thread));
                    }
                }
            }
        }
    }
    batch
}

#[test]
fn windows_add_up_wherever_they_are_cut() {
    let trace = two_processors();
    let times = |schedule: &Schedule| {
        let threads = (0..8).map(|id| schedule.thread(ThreadId(id)).map_or(0, |it| it.run.0));
        let irq = schedule.interrupt(InterruptId(9));
        let mut all: Vec<u64> = threads.collect();
        all.extend([
            irq.map_or(0, |it| it.run.0),
            schedule.idle().unwrap_or_default().0,
        ]);
        all
    };
    let whole = schedule(Window::default(), &trace);
    let end = whole.spans[&SpaceId(0)].1;
    for width in [7, 100, 1_000, 5_000] {
        let mut sum = vec![0; times(&whole).len()];
        let mut begin = Time(0);
        let mut spans = 0;
        while begin < end {
            let window = Window {
                begin,
                end: Time(begin.0 + width),
            };
            let part = schedule(window, &trace);
            let of_part = times(&part);
            sum.iter_mut()
                .zip(of_part)
                .for_each(|(sum, time)| *sum += time);
            spans += part.span(SpaceId(0)).0;
            begin = window.end;
        }
        assert_eq!(spans, whole.span(SpaceId(0)).0, "windows of {width}");
        assert_eq!(sum, times(&whole), "windows of {width}");
    }
}

#[test]
fn a_window_without_events_has_what_ran_through_it() {
    let window = Window {
        begin: Time(52),
        end: Time(60),
    };
    let two = schedule(window, &trace());
    assert_eq!(two.span(SpaceId(0)), Duration(8));
    assert_eq!(two.thread(ThreadId(2)).unwrap().run, Duration(8));
    assert_eq!(two.thread(ThreadId(1)), None);
    // Behind the last event of the window something is missing: who knows what ran.
    let mut batch = Batch::default();
    batch.push(row(RowKind::SwitchedIn, 0, Some(1)));
    batch.push(row(RowKind::Other, 55, Some(1)));
    let events = Some(3);
    batch.push_event(event(EventKind::Gap(Gap::Discarded { events }), 70));
    batch.push(row(RowKind::Other, 70, Some(1)));
    let lost = schedule(window, &batch);
    assert_eq!(lost.unknown(), Duration(5));
    assert_eq!(lost.thread(ThreadId(1)).unwrap().run, Duration(3));
}

#[test]
fn what_runs_where_a_switch_is_missing_is_not_known() {
    let mut batch = Batch::default();
    batch.push(row(RowKind::SwitchedIn, 10, Some(1)));
    batch.push(row(RowKind::SwitchedOut, 30, Some(1)));
    batch.push(row(RowKind::SwitchedIn, 30, Some(2)));
    // Thread 2 has left before: with a filter by process that is in no record.
    batch.push(row(RowKind::SwitchedOut, 70, Some(3)));
    batch.push(row(RowKind::SwitchedIn, 70, Some(1)));
    batch.push(row(RowKind::SwitchedOut, 80, Some(1)));
    let other = Row::new(RowKind::SwitchedIn, Time(90), STREAM);
    batch.push(other.at(Some(Cpu(1)), Some(ThreadId(4))));
    batch.push(other.at(Some(Cpu(1)), Some(ThreadId(4))));
    let schedule = schedule(Window::default(), &batch);
    assert_eq!(schedule.gaps(), 1);
    let run = |id| schedule.thread(ThreadId(id)).map(|it| it.run);
    assert_eq!(run(1), Some(Duration(30)));
    assert_eq!((run(2), run(3)), (Some(Duration(0)), None));
    // And processor 1 may have done anything before its first event.
    assert_eq!(schedule.unknown(), Duration(40 + 80));
    assert_eq!(schedule.idle(), Some(Duration(10)));
}

fn row_on(cpu: u32, kind: RowKind, time: i64, thread: u32) -> Row {
    Row::new(kind, Time(time), STREAM).at(Some(Cpu(cpu)), Some(ThreadId(thread)))
}

/// The clocks of the processors differ: the switch from the thread comes behind the switch to it, or not at all. A thread
/// has one processor at a time.
#[test]
fn a_thread_has_no_more_time_than_passes() {
    for comes in [true, false] {
        let mut batch = Batch::default();
        batch.push(row_on(1, RowKind::SwitchedIn, 0, 1));
        batch.push(row_on(0, RowKind::SwitchedIn, 1_000, 1));
        if comes {
            batch.push(row_on(1, RowKind::SwitchedOut, 1_040, 1));
        }
        batch.push(row_on(1, RowKind::SwitchedIn, 1_100, 2));
        batch.push(row_on(1, RowKind::SwitchedOut, 1_500, 2));
        batch.push(row_on(0, RowKind::SwitchedOut, 2_000, 1));
        let schedule = schedule(Window::default(), &batch);
        let one = schedule.thread(ThreadId(1)).unwrap();
        assert_eq!((one.run, one.count), (Duration(2_000), 2));
        let two = schedule.thread(ThreadId(2)).unwrap();
        assert_eq!(two.run, Duration(400));
        // What the processor did up to its own switch is not known.
        let unknown = if comes { 40 } else { 100 };
        assert_eq!(schedule.unknown(), Duration(1_000 + unknown));
        let cpus = schedule.cpus();
        let sums = cpus.map(|(_, _, it)| (it.run + it.idle.unwrap() + it.unknown).0);
        assert_eq!(sums.collect::<Vec<_>>(), [2_000, 2_000]);
    }
}

/// Before its first switch a processor has the thread that its events name, until that is switched in elsewhere.
#[test]
fn a_thread_that_events_name_has_no_more_time_than_passes() {
    let mut batch = Batch::default();
    batch.push(row_on(1, RowKind::Enter, 0, 1));
    batch.push(row_on(0, RowKind::SwitchedIn, 1_000, 1));
    batch.push(row_on(1, RowKind::SwitchedIn, 1_500, 2));
    batch.push(row_on(0, RowKind::SwitchedOut, 2_000, 1));
    let schedule = schedule(Window::default(), &batch);
    let one = schedule.thread(ThreadId(1)).unwrap();
    assert_eq!(one.run, Duration(2_000));
    assert_eq!(schedule.unknown(), Duration(500 + 1_000));
}

/// Some sources have one idle thread for all processors: it runs on several at a time.
#[test]
fn an_idle_thread_of_all_processors_is_idle_on_each() {
    let mut info = TraceInfo::default();
    let space = info.identities.add_space(kymo_event::Space::default());
    let idle = info.identities.thread(space, Tid(5));
    info.identities.name_thread(idle, "idle");
    let mut batch = Batch::default();
    batch.push(row_on(1, RowKind::SwitchedIn, 0, idle.0));
    batch.push(row_on(0, RowKind::SwitchedIn, 0, idle.0));
    batch.push(row_on(0, RowKind::SwitchedOut, 100, idle.0));
    batch.push(row_on(1, RowKind::SwitchedOut, 100, idle.0));
    let mut schedule = Schedule::new(Window::default());
    schedule.batch(&info, &batch);
    schedule.finish(&info);
    let (idle, unknown) = (schedule.idle(), schedule.unknown());
    assert_eq!((idle, unknown), (Some(Duration(200)), Duration(0)));
}

fn gap_on(cpu: u32, time: i64) -> Event {
    let gap = EventKind::Gap(Gap::Discarded { events: Some(3) });
    Event {
        cpu: Some(Cpu(cpu)),
        ..event(gap, time)
    }
}

/// A gap of a processor ends at its own next event, not where its thread gets another processor.
#[test]
fn a_gap_lasts_while_its_thread_runs_elsewhere() {
    for kind in [RowKind::Enter, RowKind::SwitchedOut] {
        let mut batch = Batch::default();
        batch.push(row_on(1, RowKind::SwitchedIn, 0, 1));
        batch.push(row_on(1, RowKind::Other, 100, 1));
        batch.push_event(gap_on(1, 100));
        batch.push(row_on(0, RowKind::SwitchedIn, 200, 1));
        batch.push(row_on(1, kind, 1_000, 2));
        batch.push(row_on(1, RowKind::SwitchedOut, 1_100, 2));
        batch.push(row_on(0, RowKind::SwitchedOut, 1_200, 1));
        let schedule = schedule(Window::default(), &batch);
        let run = |thread| schedule.thread(ThreadId(thread)).map_or(0, |it| it.run.0);
        let of_two = if kind == RowKind::Enter { 100 } else { 0 };
        assert_eq!((run(1), run(2)), (100 + 1_000, of_two));
    }
}

/// Texts have the gap of a processor behind events of other processors, with the time of its own last event.
#[test]
fn a_gap_that_comes_late_is_not_time_of_the_thread() {
    for kind in [RowKind::SwitchedIn, RowKind::Enter] {
        let mut batch = Batch::default();
        batch.push(row_on(1, kind, 0, 1));
        batch.push(row_on(1, RowKind::Other, 100, 1));
        batch.push(row_on(0, RowKind::SwitchedIn, 200, 1));
        batch.push_event(gap_on(1, 100));
        batch.push(row_on(1, RowKind::SwitchedIn, 1_000, 2));
        batch.push(row_on(1, RowKind::SwitchedOut, 1_100, 2));
        batch.push(row_on(0, RowKind::SwitchedOut, 1_200, 1));
        let schedule = schedule(Window::default(), &batch);
        let run = |thread| schedule.thread(ThreadId(thread)).map_or(0, |it| it.run.0);
        assert_eq!((run(1), run(2)), (100 + 1_000, 100));
    }
}

/// Events name a thread on a processor without switches, where it came from another one.
#[test]
fn a_thread_that_comes_back_leaves_the_processor_that_named_it() {
    let mut batch = Batch::default();
    batch.push(row_on(0, RowKind::SwitchedIn, 0, 1));
    batch.push(row_on(0, RowKind::SwitchedOut, 100, 1));
    batch.push(row_on(3, RowKind::Enter, 200, 1));
    batch.push(row_on(0, RowKind::SwitchedIn, 300, 1));
    batch.push(row_on(0, RowKind::SwitchedOut, 400, 1));
    batch.push(row_on(3, RowKind::SwitchedIn, 500, 2));
    let one = schedule(Window::default(), &batch);
    assert_eq!(one.thread(ThreadId(1)).unwrap().run, Duration(300));
    // Two processors that named it, one after the other.
    let mut batch = Batch::default();
    batch.push(row_on(2, RowKind::Enter, 0, 1));
    batch.push(row_on(3, RowKind::Enter, 100, 1));
    batch.push(row_on(0, RowKind::SwitchedIn, 200, 1));
    batch.push(row_on(2, RowKind::SwitchedIn, 300, 2));
    batch.push(row_on(3, RowKind::SwitchedIn, 300, 3));
    batch.push(row_on(0, RowKind::SwitchedOut, 400, 1));
    let one = schedule(Window::default(), &batch);
    assert_eq!(one.thread(ThreadId(1)).unwrap().run, Duration(400));
}

/// The events of a processor that lost its thread to another one name the next one.
#[test]
fn what_runs_behind_a_thread_that_events_named() {
    let mut batch = Batch::default();
    batch.push(row_on(1, RowKind::Enter, 0, 1));
    batch.push(row_on(0, RowKind::SwitchedIn, 200, 1));
    batch.push(row_on(1, RowKind::Enter, 300, 2));
    batch.push(row_on(1, RowKind::SwitchedOut, 400, 2));
    batch.push(row_on(0, RowKind::SwitchedOut, 500, 1));
    let schedule = schedule(Window::default(), &batch);
    let run = |thread| schedule.thread(ThreadId(thread)).map_or(0, |it| it.run.0);
    assert_eq!((run(1), run(2)), (500, 200));
}
