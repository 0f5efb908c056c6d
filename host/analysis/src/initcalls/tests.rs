use kymo_event::{Cpu, Field, Identities, Space, StreamId, Tid};

use super::*;

/// A trace of one kernel, with functions of these names.
struct Made {
    info: TraceInfo,
    batch: Batch,
    functions: Vec<FunctionId>,
    threads: Vec<ThreadId>,
}

impl Made {
    fn new(names: &[&str]) -> Self {
        let mut identities = Identities::default();
        let space = identities.add_space(Space::default());
        let name = |name: &&str| identities.function_named(space, name);
        let functions = names.iter().map(name).collect();
        let threads = (1..4)
            .map(|tid| identities.thread(space, Tid(tid)))
            .collect();
        Self {
            info: TraceInfo {
                identities,
                ..TraceInfo::default()
            },
            batch: Batch::default(),
            functions,
            threads,
        }
    }

    fn row(&mut self, kind: RowKind, function: usize, thread: usize, time: i64) {
        let row = Row::new(kind, Time(time), StreamId(0));
        let row = row.at(Some(Cpu(0)), self.threads.get(thread).copied());
        self.batch
            .push(row.function(self.functions.get(function).copied()));
    }

    fn event(&mut self, name: &'static str, fields: Vec<Field>, thread: usize, time: i64) {
        self.batch.push_event(Event {
            time: Time(time),
            stream: StreamId(0),
            cpu: Some(Cpu(0)),
            thread: self.threads.get(thread).copied(),
            kind: EventKind::Other,
            named: false,
            record: true,
            stamp: None,
            name: name.into(),
            fields,
        });
    }

    fn gap(&mut self, time: i64) {
        self.batch.push_event(Event {
            time: Time(time),
            stream: StreamId(0),
            cpu: Some(Cpu(0)),
            thread: None,
            kind: EventKind::Gap(Gap::Discarded { events: None }),
            named: false,
            record: false,
            stamp: None,
            name: "".into(),
            fields: Vec::new(),
        });
    }

    /// What is found: evidence, and name, beginning, duration, level and result of each.
    fn found(&self) -> Option<(Evidence, Vec<Row5>)> {
        let mut initcalls = Initcalls::default();
        initcalls.batch(&self.info, &self.batch);
        let (evidence, list, left_out) = initcalls.finish()?;
        assert_eq!(left_out, 0);
        let row = |it: Initcall| {
            let start = it.start.map(|time| time.0);
            (
                it.name,
                start,
                it.duration.map(|it| it.0),
                it.level,
                it.result,
            )
        };
        Some((evidence, list.into_iter().map(row).collect()))
    }
}

type Row5 = (
    String,
    Option<i64>,
    Option<u64>,
    Option<String>,
    Option<i64>,
);

fn expected(
    name: &str,
    start: impl Into<Option<i64>>,
    duration: impl Into<Option<u64>>,
    level: &str,
    result: impl Into<Option<i64>>,
) -> Row5 {
    let level = (!level.is_empty()).then(|| level.to_owned());
    (
        name.to_owned(),
        start.into(),
        duration.into(),
        level,
        result.into(),
    )
}

fn func(name: &str) -> Field {
    Field::new("func", name)
}

#[test]
fn events_tell_name_level_time_and_result() {
    let mut made = Made::new(&[]);
    made.event(
        "initcall_finish",
        vec![func("early_init+0x0/0x1"), Field::new("ret", 0_i64)],
        0,
        5,
    );
    made.event("initcall_level", vec![Field::new("level", "core")], 0, 9);
    made.event("initcall_start", vec![func("a_init+0x0/0x61")], 0, 10);
    // A module's, in another thread.
    made.event("initcall_start", vec![func("module_init [mod]")], 1, 12);
    made.event(
        "initcall_finish",
        vec![func("a_init"), Field::new("ret", -19_i64)],
        0,
        25,
    );
    made.event(
        "initcall_finish",
        vec![func("module_init"), Field::new("ret", 0_i64)],
        1,
        30,
    );
    made.event("initcall_start", vec![func("hangs")], 0, 40);
    // What the kernel printed besides is reported already.
    made.event(
        "console",
        vec![Field::new("msg", "initcall x returned 0 after 7 usecs")],
        0,
        41,
    );
    let list = vec![
        expected("early_init", None, None, "", 0),
        expected("a_init", 10, 15, "core", -19),
        expected("module_init", 12, 18, "core", 0),
        expected("hangs", 40, None, "core", None),
    ];
    assert_eq!(made.found(), Some((Evidence::Events, list)));
}

#[test]
fn messages_are_read() {
    let mut made = Made::new(&[]);
    for (time, line) in [
        (1, "[    0.100000] calling  con_init+0x0/0x22c @ 0"),
        (2, "console [tty0] enabled"),
        (3, "initcall con_init+0x0/0x22c returned 0 after 1500 usecs"),
        (
            4,
            "[    0.2] initcall alone+0x0/0x18 returned -2 after 3 usecs",
        ),
        (5, "initcall broken returned x after y usecs"),
    ] {
        made.event("console", vec![Field::new("msg", line)], 0, time);
    }
    let list = vec![
        expected("con_init", 1, 1_500_000, "", 0),
        expected("alone", None, 3_000, "", -2),
        expected("broken", None, None, "", None),
    ];
    assert_eq!(made.found(), Some((Evidence::Messages, list)));
}

#[test]
fn the_longest_callee_of_the_caller_is_the_initcall() {
    use RowKind::{Enter, Exit};
    let mut made = Made::new(&["do_one_initcall", "pci_init", "printk", "inner"]);
    for (kind, function, thread, time) in [
        (Enter, 2, 0, 1),
        (Enter, 0, 0, 10),
        (Enter, 2, 0, 11),
        (Exit, 2, 0, 12),
        (Enter, 1, 0, 13),
        // Another thread's calls are its own.
        (Enter, 2, 1, 14),
        (Enter, 3, 0, 15),
        (Exit, 3, 0, 95),
        (Exit, 1, 0, 100),
        (Exit, 2, 1, 200),
        (Exit, 0, 0, 110),
        // Nothing of it took long enough to be recorded.
        (Enter, 0, 0, 120),
        (Exit, 0, 0, 130),
        (Exit, 2, 0, 140),
    ] {
        made.row(kind, function, thread, time);
    }
    let list = vec![expected("pci_init", 13, 87, "", None)];
    assert_eq!(made.found(), Some((Evidence::Calls, list)));
}

#[test]
fn what_a_loss_cuts_is_no_initcall() {
    use RowKind::{Enter, Exit};
    let mut made = Made::new(&["do_one_initcall", "pci_init"]);
    made.row(Enter, 0, 0, 10);
    made.row(Enter, 1, 0, 11);
    made.gap(12);
    made.row(Exit, 1, 0, 100);
    made.row(Exit, 0, 0, 110);
    assert_eq!(made.found(), None);
}
