//! Processes of the threads in LTTng's traces, and numbers that are given to later processes.

use std::path::Path;

use kymo_event::{EventKind, Identities, SpaceKind, ThreadId};
use kymo_fixtures::captures;
use kymo_read::{Events, OpenOptions, open};

/// A thread's number and name, and the number and the name of its process.
type Seen = (u64, String, Option<u64>, String);

fn about(identities: &Identities, thread: ThreadId) -> Seen {
    let space = identities.thread_space(thread).expect("a space");
    let is_process = space.kind == SpaceKind::Process;
    let file = space.name.rsplit('/').next().unwrap_or_default();
    (
        identities.tid(thread).0,
        identities
            .thread_name(thread)
            .unwrap_or_default()
            .to_owned(),
        space.pid.filter(|_| is_process),
        (if is_process { file } else { "" }).to_owned(),
    )
}

/// The threads of the chosen events in the order of their first ones, and the functions' processes if they differ.
fn threads(path: &Path, chosen: impl Fn(&EventKind) -> bool) -> Vec<Seen> {
    let mut source = open(path, &OpenOptions::default()).expect("a recording");
    let all: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    assert!(source.info().has_processes);
    let identities = &source.info().identities;
    let mut seen = Vec::new();
    for event in all.iter().filter(|event| chosen(&event.kind)) {
        let Some(thread) = event.thread.filter(|it| !seen.contains(it)) else {
            continue;
        };
        seen.push(thread);
        if let Some(function) = event.kind.function()
            && let Some(function) = identities.function(function)
        {
            let of_thread = identities.threads()[thread.0 as usize].space;
            assert_eq!(function.space, of_thread, "{event:?}");
        }
    }
    seen.into_iter()
        .map(|thread| about(identities, thread))
        .collect()
}

fn expected(rows: &[(u64, &str, u64, &str)]) -> Vec<Seen> {
    let rows = rows.iter();
    rows.map(|(tid, name, pid, process)| {
        let pid = Some(*pid).filter(|pid| *pid != 0);
        (*tid, (*name).to_owned(), pid, (*process).to_owned())
    })
    .collect()
}

/// Two programs side by side, then one after the other as process 1, each with the threads 1 and 4.
#[test]
fn threads_of_user_space_are_of_their_processes() {
    let calls = |kind: &EventKind| matches!(kind, EventKind::Enter { .. });
    let mut seen = threads(&captures::lttng_processes(), calls);
    seen.sort_by_key(|it| it.2 == Some(1));
    let of_1 = seen.split_off(4);
    seen.sort();
    let side_by_side = [
        (6147, "alpha", 6147, "alpha"),
        (6148, "beta", 6148, "beta"),
        (6155, "beta", 6148, "beta"),
        (6157, "alpha", 6147, "alpha"),
    ];
    assert_eq!(seen, expected(&side_by_side));
    let reused = [
        (1, "alpha", 1, "alpha"),
        (4, "alpha", 1, "alpha"),
        (1, "beta", 1, "beta"),
        (4, "beta", 1, "beta"),
    ];
    assert_eq!(of_1, expected(&reused));
}

/// A kernel's trace of one CPU.
#[derive(Default)]
struct Kernel {
    stream: Vec<u8>,
    time: u64,
}

impl Kernel {
    fn record(&mut self, id: u32, fields: &[u32], text: &str) -> &mut Self {
        self.time += 10;
        if self.stream.is_empty() {
            let head = [0xC1FC_1FC1_u32, 0, 0].map(u32::to_le_bytes).concat();
            self.stream.extend(head);
        }
        self.stream.extend(id.to_le_bytes());
        self.stream.extend(self.time.to_le_bytes());
        let fields = fields.iter().flat_map(|field| field.to_le_bytes());
        self.stream.extend(fields);
        if !text.is_empty() {
            self.stream.extend(text.as_bytes());
            self.stream.push(0);
        }
        self
    }

    /// A switch, and a system call of the next thread.
    fn switch(&mut self, left: u32, state: u32, next: u32) -> &mut Self {
        self.record(0, &[left, state, next], "").record(1, &[3], "")
    }

    fn existed(&mut self, tid: u32, pid: u32, name: &str) -> &mut Self {
        self.record(2, &[tid, pid], name)
    }

    fn fork(&mut self, tid: u32, pid: u32, name: &str) -> &mut Self {
        self.record(3, &[tid, pid], name)
    }

    fn exit(&mut self, tid: u32, name: &str) -> &mut Self {
        self.record(4, &[tid], name)
    }

    fn write(&self, folder: &Path) {
        let word = "integer { size = 32; }";
        let class = |id: u32, name: &str, fields: &str| {
            format!(
                "event {{ id = {id}; stream_id = 0; name = \"{name}\"; fields := struct {{ {fields} }}; }};"
            )
        };
        let classes = [
            class(
                0,
                "sched_switch",
                &format!("{word} prev_tid; {word} prev_state; {word} next_tid;"),
            ),
            class(1, "syscall_entry_read", &format!("{word} fd;")),
            class(
                2,
                "lttng_statedump_process_state",
                &format!("{word} tid; {word} pid; string name;"),
            ),
            class(
                3,
                "sched_process_fork",
                &format!("{word} child_tid; {word} child_pid; string child_comm;"),
            ),
            class(
                4,
                "sched_process_exit",
                &format!("{word} tid; string comm;"),
            ),
        ];
        let text = format!(
            "/* CTF 1.8 */
            trace {{ major = 1; minor = 8; byte_order = le;
                packet.header := struct {{ {word} magic; {word} stream_id; }}; }};
            env {{ tracer_name = \"lttng-modules\"; domain = \"kernel\"; }};
            clock {{ name = monotonic; freq = 1000000000; }};
            stream {{ id = 0;
                packet.context := struct {{ {word} cpu_id; }};
                event.header := struct {{ {word} id;
                    integer {{ size = 64; map = clock.monotonic.value; }} timestamp; }};
            }};
            {}",
            classes.concat()
        );
        std::fs::write(folder.join("metadata"), text).unwrap();
        std::fs::write(folder.join("chan_0"), &self.stream).unwrap();
    }
}

/// States of a task that sleeps, and of one that is dead.
const SLEEPS: u32 = 1;
const DEAD: u32 = 64;

#[test]
fn a_kernel_names_the_processes_of_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let mut kernel = Kernel::default();
    // The threads of the process 70 run before the kernel names them.
    kernel.switch(0, 0, 71).switch(71, SLEEPS, 70);
    kernel.existed(70, 70, "first").existed(71, 70, "worker");
    // A process is created, with a thread.
    kernel.fork(80, 80, "shell").switch(70, SLEEPS, 80);
    kernel.fork(81, 80, "helper").switch(80, SLEEPS, 81);
    // The process 80 ends, and a later one has its number.
    kernel.exit(81, "helper").switch(81, DEAD, 80);
    kernel.exit(80, "shell").switch(80, DEAD, 70);
    kernel.fork(80, 80, "later").switch(70, SLEEPS, 80);
    // A thread of it has the number of an earlier thread.
    kernel.fork(81, 80, "second").switch(80, SLEEPS, 81);
    // The process of this one is not named.
    kernel.switch(81, SLEEPS, 90);
    kernel.write(folder.path());
    let calls = |kind: &EventKind| matches!(kind, EventKind::SwitchedIn);
    let rows = [
        (71, "worker", 70, "first"),
        (70, "first", 70, "first"),
        (80, "shell", 80, "shell"),
        (81, "helper", 80, "shell"),
        (80, "later", 80, "later"),
        (81, "second", 80, "later"),
        (90, "", 0, ""),
    ];
    assert_eq!(threads(folder.path(), calls), expected(&rows));
}
