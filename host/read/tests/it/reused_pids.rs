//! Pids of Linux that are given to tasks of other processes: processes and names of the threads.

use std::io::Write as _;

use kymo_event::{EventKind, SpaceKind, TraceInfo};
use kymo_ftrace::{DatFile, Order};
use kymo_read::{Events, OpenOptions, open};

/// The tid, name, process and name of the process of the thread of each event that `chosen` selects.
fn threads(
    text: &[u8],
    chosen: impl Fn(&EventKind) -> bool,
) -> Vec<(u64, String, Option<u64>, String)> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("a file");
    let mut source = open(file.path(), &OpenOptions::default()).expect("a recording");
    let all: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let info: &TraceInfo = source.info();
    let identities = &info.identities;
    let threads = all.iter().filter(|event| chosen(&event.kind));
    let threads = threads.filter_map(|event| event.thread);
    let about = threads.map(|thread| {
        let space = identities.thread_space(thread).expect("a space");
        let name = identities.thread_name(thread).unwrap_or_default();
        let process = (space.kind == SpaceKind::Process).then(|| space.name.clone());
        (
            identities.tid(thread).0,
            name.to_owned(),
            space.pid,
            process.unwrap_or_default(),
        )
    });
    about.collect()
}

/// A line of text with the column TGID.
fn line(task: &str, group: u32, time: u32, event: &str) -> String {
    let group = match group {
        0 => "(-----)".to_owned(),
        group => format!("({group:5})"),
    };
    format!("{task:>16} {group} [000] d..2. 1.{time:06}: {event}\n")
}

fn switch(before: &str, group: u32, time: u32, state: &str, behind: &str) -> String {
    let (comm, pid) = before.split_once('-').unwrap();
    let (next, next_pid) = behind.split_once('-').unwrap();
    let event = format!(
        "sched_switch: prev_comm={comm} prev_pid={pid} prev_prio=120 prev_state={state} ==> next_comm={next} \
         next_pid={next_pid} next_prio=120"
    );
    line(before, group, time, &event)
}

fn exit(task: &str, group: u32, time: u32) -> String {
    let (comm, pid) = task.split_once('-').unwrap();
    let event = format!("sched_process_exit: comm={comm} pid={pid} prio=120");
    line(task, group, time, &event)
}

fn created(by: &str, group: u32, time: u32, pid: u32, flags: &str) -> String {
    let event = format!("task_newtask: pid={pid} comm=sh clone_flags={flags} oom_score_adj=0");
    line(by, group, time, &event)
}

const IDLE: &str = "swapper/0-0";
const HEAD: &str =
    "# tracer: nop\n#\n#           TASK-PID    TGID   CPU#  |||||  TIMESTAMP  FUNCTION\n";

#[test]
fn a_task_with_the_pid_of_an_earlier_one_is_in_its_own_process() {
    let ran = |kind: &EventKind| matches!(kind, EventKind::SwitchedIn);
    let text = [
        HEAD.to_owned(),
        // A thread of process 70, whose pid a thread of process 80 has later.
        switch(IDLE, 0, 1, "R", "first-7"),
        exit("first-7", 70, 2),
        switch("first-7", 70, 3, "X", "sh-80"),
        created("sh-80", 80, 4, 7, "3d0f00"),
        switch("sh-80", 80, 5, "S", "second-7"),
        switch("second-7", 80, 6, "S", IDLE),
    ]
    .concat();
    let seen = threads(text.as_bytes(), ran);
    let of_7 = seen.into_iter().filter(|it| it.0 == 7);
    let of_7: Vec<_> = of_7.map(|it| (it.1, it.2)).collect();
    let expected = [("first", 70), ("second", 80)];
    let expected = expected.map(|(name, process)| (name.to_owned(), Some(process)));
    assert_eq!(of_7, expected);
}

/// The processes of the threads with this pid, at their switches and marks.
fn processes(text: &[String], pid: u64) -> Vec<Option<u64>> {
    let chosen = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::SwitchedIn | EventKind::SwitchedOut | EventKind::Other
        )
    };
    let seen = threads(text.concat().as_bytes(), chosen);
    let seen = seen.into_iter().filter(|it| it.0 == pid);
    seen.map(|it| it.2).collect()
}

fn fork(by: &str, group: u32, time: u32, pid: u32) -> String {
    let (comm, parent) = by.split_once('-').unwrap();
    let event =
        format!("sched_process_fork: comm={comm} pid={parent} child_comm=sh child_pid={pid}");
    line(by, group, time, &event)
}

/// The kernel names the process of the task that has the pid when the text is read.
#[test]
fn a_run_whose_column_changes_is_that_of_one_thread() {
    let text = [
        HEAD.to_owned(),
        switch(IDLE, 0, 1, "R", "first-7"),
        line("first-7", 70, 2, "tracing_mark_write: x"),
        // From here on the text was read when the pid was a later one's.
        line("first-7", 80, 3, "tracing_mark_write: x"),
        line(
            "first-7",
            80,
            4,
            "sched_process_exit: comm=first pid=7 prio=120",
        ),
        line("first-7", 80, 5, "tracing_mark_write: x"),
        switch("first-7", 80, 6, "X", "sh-80"),
        created("sh-80", 80, 7, 7, "3d0f00"),
        switch("sh-80", 80, 8, "S", "second-7"),
        line("second-7", 80, 9, "tracing_mark_write: x"),
        switch("second-7", 80, 10, "S", IDLE),
    ];
    let expected = [[Some(70); 6].as_slice(), &[Some(80); 3]].concat();
    assert_eq!(processes(&text, 7), expected);
}

/// `cat trace` names the latest process on all lines of a pid.
#[test]
fn the_flags_of_a_new_process_are_true_where_its_lines_are_not() {
    let text = [
        HEAD.to_owned(),
        switch(IDLE, 0, 1, "R", "first-7"),
        exit("first-7", 70, 2),
        switch("first-7", 70, 3, "X", "sh-80"),
        created("sh-80", 80, 4, 7, "1200000"),
        switch("sh-80", 80, 5, "S", "second-7"),
        line("second-7", 70, 6, "tracing_mark_write: x"),
        exit("second-7", 70, 7),
        switch("second-7", 70, 8, "X", "sh-70"),
        created("sh-70", 70, 9, 7, "3d0f00"),
        switch("sh-70", 70, 10, "S", "third-7"),
        line("third-7", 70, 11, "tracing_mark_write: x"),
        switch("third-7", 70, 12, "S", IDLE),
    ];
    let [first, second, third] = [70, 7, 70].map(|process| vec![Some(process); 4]);
    let expected = [&first[..3], &second[..], &third[..3]].concat();
    assert_eq!(processes(&text, 7), expected);
}

/// Without flags the next line of a new task tells its process, which may be that of the earlier task.
#[test]
fn a_new_task_can_be_of_the_process_of_the_earlier_one() {
    let mut text = vec![HEAD.to_owned()];
    for (place, group) in [70, 70, 80].into_iter().enumerate() {
        let time = 10 * u32::try_from(place).unwrap();
        let parent = format!("sh-{group}");
        text.extend([
            switch(IDLE, 0, time + 1, "R", &parent),
            fork(&parent, group, time + 2, 7),
            switch(&parent, group, time + 3, "S", "task-7"),
            line("task-7", group, time + 4, "tracing_mark_write: x"),
            switch("task-7", group, time + 5, "S", IDLE),
        ]);
    }
    let expected = [70, 70, 80].map(|process| [Some(process); 3]);
    assert_eq!(processes(&text, 7), expected.concat());
}

/// `execve` by another thread than the first one ends that, and gives its pid to the other one.
#[test]
fn a_process_that_another_thread_replaces_is_the_same() {
    let text = [
        HEAD.to_owned(),
        switch(IDLE, 0, 1, "R", "first-7"),
        exit("first-7", 7, 2),
        switch("first-7", 7, 3, "Z", "worker-9"),
        line(
            "new-7",
            7,
            4,
            "sched_process_exec: filename=/bin/new pid=7 old_pid=9",
        ),
        switch("new-7", 7, 5, "S", IDLE),
        switch(IDLE, 0, 6, "R", "new-7"),
        switch("new-7", 7, 7, "S", IDLE),
    ];
    let seen = threads(text.concat().as_bytes(), |kind| {
        matches!(kind, EventKind::SwitchedIn)
    });
    let of_7 = seen.into_iter().filter(|it| it.0 == 7);
    let of_7: Vec<_> = of_7.map(|it| (it.2, it.3)).collect();
    let new = (Some(7), "new".to_owned());
    assert_eq!(of_7, [new.clone(), new]);
}

#[test]
fn a_process_with_the_pid_of_an_earlier_one_is_another() {
    let text = [
        HEAD.to_owned(),
        switch(IDLE, 0, 1, "R", "first-7"),
        exit("first-7", 7, 2),
        switch("first-7", 7, 3, "X", "sh-80"),
        created("sh-80", 80, 4, 7, "0x1200000"),
        switch("sh-80", 80, 5, "S", "second-7"),
        created("second-7", 7, 6, 8, "3d0f00"),
        switch("second-7", 7, 7, "S", "worker-8"),
        switch("worker-8", 7, 8, "S", IDLE),
    ]
    .concat();
    let seen = threads(text.as_bytes(), |kind| {
        matches!(kind, EventKind::SwitchedIn)
    });
    let own = |tid: u64, name: &str, pid: u64, process: &str| {
        (tid, name.to_owned(), Some(pid), process.to_owned())
    };
    assert_eq!(
        seen,
        [
            own(7, "first", 7, "first"),
            own(80, "sh", 80, "sh"),
            own(7, "second", 7, "second"),
            own(8, "worker", 7, "second"),
        ]
    );
}

/// Behind the lines that are looked at beforehand the flags tell the process of a new task.
#[test]
fn the_flags_of_a_new_task_tell_its_process() {
    let mut text = HEAD.to_owned();
    let mut time = 1;
    text += &switch(IDLE, 0, time, "R", "sh-80");
    for _ in 0..25_000 {
        time += 1;
        text += &line("sh-80", 80, time, "tracing_mark_write: x");
    }
    text += &created("sh-80", 80, time + 1, 7, "3d0f00");
    text += &created("sh-80", 80, time + 2, 9, "1200000");
    text += &switch("sh-80", 80, time + 3, "S", "worker-7");
    text += &switch("worker-7", 80, time + 4, "S", "child-9");
    text += &switch("child-9", 9, time + 5, "S", IDLE);
    let seen = threads(text.as_bytes(), |kind| {
        matches!(kind, EventKind::SwitchedIn)
    });
    let seen: Vec<_> = seen.iter().map(|it| (it.0, it.2)).collect();
    assert_eq!(seen, [(80, Some(80)), (7, Some(80)), (9, Some(9))]);
}

/// The list of names in a trace.dat has those of the last tasks.
#[test]
fn the_name_in_the_list_is_that_of_the_last_task() {
    const PAGE: usize = 4096;
    let format = |name: &str, id: u32, fields: &str| {
        format!(
            "name: {name}\nID: {id}\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
            \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
            \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
            {fields}\nprint fmt: \"%d\", REC->pid\n"
        )
    };
    let pid = "\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n";
    let comm = "\tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n";
    let formats = [
        ("task", format("task_newtask", 6, &format!("{pid}{comm}"))),
        ("sched", format("sched_process_exit", 7, pid)),
    ];
    let header_page = format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:16;\tsize:{};\tsigned:1;\n",
        PAGE - 16
    );
    let mut entries = Vec::new();
    // Task 7 exits; task 1 creates another with its pid, which exits as well.
    for (id, task, comm) in [(7u16, 7u32, None), (6, 1, Some(b"shell")), (7, 7, None)] {
        let mut data = [id.to_le_bytes().to_vec(), vec![0, 1]].concat();
        data.extend(task.to_le_bytes());
        data.extend(7u32.to_le_bytes());
        if let Some(comm) = comm {
            let mut comm = comm.to_vec();
            comm.resize(16, 0);
            data.extend(comm);
        }
        entries.extend((1000u32 << 5 | (data.len() / 4) as u32).to_le_bytes());
        entries.extend(data);
    }
    let mut page = [0u64.to_le_bytes(), (entries.len() as u64).to_le_bytes()].concat();
    page.extend(entries);
    page.resize(PAGE, 0);
    let systems = formats.map(|(system, text)| (system.to_owned(), vec![text.into_bytes()]));
    let file = DatFile {
        order: Order::Little,
        long_size: 8,
        page_size: PAGE as u32,
        header_page: header_page.into_bytes(),
        systems: systems.into(),
        comms: b"1 init\n7 later\n".to_vec(),
        clocks: "[local] global".to_owned(),
        cpus: 1,
        pages: vec![(0, PAGE as u64)],
        ..DatFile::default()
    };
    let mut out = Vec::new();
    file.write(&mut out, |out, _| out.write_all(&page)).unwrap();
    let seen = threads(&out, |kind| matches!(kind, EventKind::Other));
    let seen: Vec<_> = seen.iter().map(|it| (it.0, it.1.as_str())).collect();
    assert_eq!(seen, [(7, ""), (1, "init"), (7, "shell")]);
}
