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
        // Nothing but the column says that the next one is another.
        switch("second-7", 80, 6, "S", IDLE),
        switch(IDLE, 0, 7, "R", "third-7"),
        line("third-7", 7, 8, "tracing_mark_write: x"),
        switch("third-7", 7, 9, "S", IDLE),
    ]
    .concat();
    let seen = threads(text.as_bytes(), ran);
    let seen: Vec<_> = seen.into_iter().filter(|it| it.0 == 7).collect();
    let processes: Vec<_> = seen.iter().map(|it| it.2).collect();
    assert_eq!(&processes[..2], [Some(70), Some(80)]);
    assert_eq!(&seen[0].1, "first");
    assert_eq!(&seen[1].1, "third", "renamed by the switch to it");
    let marks = threads(text.as_bytes(), |kind| matches!(kind, EventKind::Other));
    let last = marks.iter().rfind(|it| it.0 == 7).unwrap();
    assert_eq!((last.1.as_str(), last.2), ("third", Some(7)));
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
